//! What the overview shows, gathered with a few reads. Those that grow with the number of queues are shared by all who look, and
//! kept for some seconds.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use askama::Template;
use askama::filters::HtmlSafe;
use bson::{DateTime, Document};
use disbatch_core::counters::Totals;
use disbatch_core::model::{Queue, QueueId, TaskId};
use disbatch_core::rate::Standing;
use disbatch_core::series::{Ended, Point};
use disbatch_core::store::{Store, StoreError};
use futures::{StreamExt, TryStreamExt};

use super::throughput::{Share, Span, largest, sum};
use crate::state::{Kept, State};
use crate::ui::nodes::{NodeState, Now, as_they_are};
use crate::ui::queue_state::{Intake, Lacking, Question, QueueState, Tally, Work, intake};

/// How long what ended within the last hour is kept. Processes write it every few seconds.
const HOUR_KEPT: Duration = Duration::from_secs(5);

const OLDEST_KEPT: Duration = Duration::from_secs(3);

const AT_ONCE: usize = 8;

/// Tasks that are to be run: queued, deferred, blocked.
const WAITING: [i64; 3] = [-2, -7, -4];

/// Tasks that came to their end. Plugins may invent further statuses, which the counters know.
const FINISHED: [i64; 2] = [1, FAILED];

const FAILED: i64 = 2;

/// So many of those are counted.
const MOST_INVENTED: usize = 20;

#[derive(Debug, Default)]
pub struct Memory {
    hour: Kept<HashMap<QueueId, Vec<Ended>>>,
    oldest: Kept<HashMap<QueueId, [Option<DateTime>; 2]>>,
    asks: Kept<HashMap<QueueId, (u64, TaskId)>>,
    /// In the order of the spans.
    throughput: [Kept<Vec<Point>>; Span::ALL.len()],
    shares: [Kept<Vec<Share>>; Span::ALL.len()],
}

#[derive(Debug)]
pub struct Facts {
    /// In order of name.
    pub queues: Vec<QueueFacts>,
    /// In order of name, as they are.
    pub nodes: Vec<Document>,
    pub now: Now,
}

/// A queue and its tasks: also a row of their table.
#[derive(Debug, Template)]
#[template(path = "overview/queue.html")]
pub struct QueueFacts {
    pub queue: Queue,
    /// The tasks that are to be run: queued, deferred or blocked.
    pub waiting: Tally,
    /// How many are claimed or running.
    pub running: u64,
    pub finished: Tally,
    /// Those of them that have failed.
    pub failed: Tally,
    /// What ended in each minute of the last hour; nothing if nothing did.
    pub hour: Vec<Ended>,
    /// Since when the task waits that waits longest.
    pub oldest: Option<DateTime>,
    /// The same of those that are blocked, where none can be claimed.
    pub blocked: Option<DateTime>,
    /// How many tasks wait for the answer of a person, and the first of them.
    pub asks: Option<(u64, TaskId)>,
    pub rate: Option<Standing>,
    pub intake: Option<Intake>,
    pub lacks: Option<&'static str>,
}

impl HtmlSafe for QueueFacts {}

impl QueueFacts {
    pub fn work(&self) -> Work {
        let (rate, intake, lacks) = (self.rate, self.intake, self.lacks);
        Work { waiting: self.waiting.least(), running: self.running, rate, intake, lacks }
    }

    pub fn state(&self) -> QueueState {
        QueueState::of(&self.queue, &self.work())
    }

    pub fn is_idle(&self) -> bool {
        let is_quiet = self.running == 0 && self.waiting.is_none() && self.last_hour().total() == 0;
        is_quiet && !self.queue.is_paused() && self.queue.is_accepting()
    }

    /// Since when the task waits that waits longest, blocked ones too.
    pub fn waits_since(&self) -> Option<DateTime> {
        self.oldest.or(self.blocked)
    }

    pub fn last_hour(&self) -> Ended {
        sum(&self.hour)
    }

    /// Where some of its tasks are, or all of them if it is not known which are meant.
    fn link(&self, tally: &Tally) -> String {
        let id = self.queue.id;
        tally.link(id).unwrap_or_else(|| format!("/tasks?queue={id}"))
    }
}

impl Facts {
    /// Leaves out the queues that are not for whoever asks, and all nodes: they work for others too.
    pub fn limit(&mut self, sees: impl Fn(&Queue) -> bool) {
        self.queues.retain(|facts| sees(&facts.queue));
        self.nodes.clear();
    }

    pub async fn gather(state: &State) -> Result<Self, StoreError> {
        let store = &state.store;
        let memory = &state.overview;
        let (queues, totals, nodes, hour) = futures::try_join!(
            store.list_queues(),
            store.read_counters(),
            store.list_nodes(),
            memory.hour.get(HOUR_KEPT, store.last_hour()),
        )?;
        let ids: Vec<QueueId> = queues.iter().map(|queue| queue.id).collect();
        let ((nodes, now), running, mut counted, rates, rules) = futures::try_join!(
            as_they_are(state, nodes),
            store.count_running(&ids),
            count(store, &ids, totals.as_ref()),
            store.rate_standings(&queues),
            store.admission_rules(),
        )?;
        let waits = |queue: &QueueId| counted.get(queue).is_some_and(|[waiting, ..]| !waiting.is_none());
        let waiting: Vec<QueueId> = ids.iter().copied().filter(waits).collect();
        let (oldest, asks) = futures::try_join!(
            memory.oldest.get(OLDEST_KEPT, oldest(store, waiting)),
            memory.asks.get(OLDEST_KEPT, store.count_awaiting()),
        )?;
        let states: Vec<_> = nodes.iter().map(|node| (NodeState::of(node, &now), node)).collect();
        let fact = |queue: Queue| {
            let [waiting, finished, failed] = counted.remove(&queue.id).unwrap_or_default();
            // It may have been claimed since.
            let oldest = oldest.get(&queue.id).filter(|_| !waiting.is_none());
            let [oldest, blocked] = oldest.copied().unwrap_or_default();
            QueueFacts {
                running: running.get(&queue.id).copied().unwrap_or(0),
                hour: hour.get(&queue.id).cloned().unwrap_or_default(),
                oldest,
                blocked,
                asks: asks.get(&queue.id).copied(),
                rate: rates.get(&queue.id).copied(),
                intake: intake(&rules, &queue),
                lacks: Lacking::of(&queue, states.iter().copied()).map(|lacking| lacking.word()),
                queue,
                waiting,
                finished,
                failed,
            }
        };
        let mut queues: Vec<QueueFacts> = queues.into_iter().map(fact).collect();
        queues.sort_by_cached_key(|facts| {
            let name = facts.queue.display_name();
            (name.to_lowercase(), name, facts.queue.id)
        });
        Ok(Self { queues, nodes, now })
    }
}

impl Memory {
    pub async fn throughput(&self, store: &Store, span: Span) -> Result<Arc<Vec<Point>>, StoreError> {
        let since = span.since(store.now());
        self.throughput[span as usize].get(span.every(), store.series(None, since, span.step())).await
    }

    pub async fn shares(&self, store: &Store, span: Span) -> Result<Arc<Vec<Share>>, StoreError> {
        let largest = async {
            let hour = self.hour.get(HOUR_KEPT, store.last_hour()).await?;
            largest(store, span, &hour).await
        };
        self.shares[span as usize].get(span.every(), largest).await
    }
}

async fn count(
    store: &Store,
    queues: &[QueueId],
    totals: Option<&Totals>,
) -> Result<HashMap<QueueId, [Tally; 3]>, StoreError> {
    let questions = |queue: QueueId| {
        let invented = totals.and_then(|totals| totals.statuses_within(queue, 3..)).unwrap_or_default();
        let finished = FINISHED.into_iter().chain(invented.into_iter().take(MOST_INVENTED)).collect();
        [WAITING.to_vec(), finished, vec![FAILED]]
            .map(|statuses| Question::new(queue, statuses, (queues.len(), totals)))
    };
    let questions: Vec<Question> = queues.iter().copied().flat_map(questions).collect();
    let mut answers = Question::answers(store, questions).await?.into_iter();
    let mut next = || answers.next().unwrap_or_default();
    Ok(queues.iter().map(|queue| (*queue, [next(), next(), next()])).collect())
}

/// Since when tasks of a queue wait that wait longest: that of those that can be claimed, else that of blocked ones.
async fn oldest(
    store: &Store,
    queues: Vec<QueueId>,
) -> Result<HashMap<QueueId, [Option<DateTime>; 2]>, StoreError> {
    let of_queue = async |queue: QueueId| {
        let queued = store.longest_waiting(queue).await?;
        let blocked = if queued.is_none() { store.longest_blocked(queue).await? } else { None };
        Ok::<_, StoreError>((queue, [queued, blocked]))
    };
    futures::stream::iter(queues).map(of_queue).buffer_unordered(AT_ONCE).try_collect().await
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use disbatch_core::counters::count::Amount;

    use super::*;
    use crate::ui::live::Part;
    use crate::ui::overview::table::{Order, QueueTable};

    const ID: &str = "6b0003bb686c8275d70dc2f1";

    fn facts(fields: Document) -> QueueFacts {
        let mut document = doc! { "_id": bson::oid::ObjectId::parse_str(ID).unwrap() };
        document.extend(fields);
        QueueFacts {
            queue: bson::deserialize_from_document(document).unwrap(),
            waiting: Tally::new(vec![-2, -7], Amount::Exactly(17_000)),
            running: 2,
            finished: Tally::new(vec![1, 2, 17], Amount::MoreThan(1_000)),
            failed: Tally::new(vec![2], Amount::Exactly(5)),
            hour: vec![Ended { succeeded: 1200, failed: 3, other: 0 }; 60],
            oldest: Some(DateTime::from_millis(1_795_163_067_344)),
            blocked: None,
            asks: None,
            rate: None,
            intake: None,
            lacks: None,
        }
    }

    fn table(facts: &[QueueFacts]) -> String {
        QueueTable::of(facts, Order::default()).render().unwrap()
    }

    #[test]
    fn a_row_shows_a_queue_and_what_can_be_changed() {
        let fields = doc! {
            "name": "<mail>", "plugin": "My::\"Plugin\"", "threads": "3", "paused": true, "reason": "a <move>",
        };
        let html = table(&[facts(fields)]);
        for part in [
            "<tr id=\"queue-6b0003bb686c8275d70dc2f1\" data-in-queue=\"6b0003bb686c8275d70dc2f1\">",
            "<a class=\"name\" href=\"/queues/6b0003bb686c8275d70dc2f1\">&#60;mail&#62;</a>",
            "My::&#34;Plugin&#34;",
            "name=\"threads\" value=\"3\"",
            "/tasks?queue=6b0003bb686c8275d70dc2f1&#38;status=-2&#38;status=-7\">17,000<",
            "&#38;status=1&#38;status=2&#38;status=17\">1,000+<",
            "class=\"tone-bad\" href=\"/tasks?queue=6b0003bb686c8275d70dc2f1&#38;status=2\">5<",
            "datetime=\"2026-11-20T08:24:27Z\"",
            "<span class=\"status paused\">paused</span>",
            "a &#60;move&#62;</span>",
            "aria-checked=\"false\" name=\"paused\" value=\"\">Running<",
            "aria-checked=\"true\" name=\"accepting\" value=\"false\">Accepting<",
            "72,180 ended within the last hour, 180 failed.",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<mail>") && !html.contains("accepts no tasks"), "{html}");
    }

    #[test]
    fn odd_queues_are_shown_too() {
        let nasty = "<script>alert('1')</script>\"".repeat(400);
        let html = table(&[facts(doc! { "name": &nasty, "plugin": 5, "accepting": false })]);
        assert!(!html.contains("<script") && html.contains("&#60;script&#62;"), "it is text");
        assert!(
            html.len() < 3 * nasty.len() * "&#60;".len(),
            "the name is there in full once: {}",
            html.len()
        );
        assert!(html.contains("<span class=\"status closed\">accepts no tasks</span>"), "{html}");
        let mut bare = facts(doc! {});
        (bare.failed, bare.oldest, bare.hour) = (Tally::default(), None, Vec::new());
        let html = table(&[bare]);
        assert!(html.contains(&format!(">{ID}</a>")), "a queue without a name has its id: {html}");
        assert!(html.contains("No task ended within the last hour.") && !html.contains("–"), "{html}");
    }

    #[test]
    fn the_table_is_sent_again_when_there_are_others_only() {
        let parts = |queues: &[QueueFacts]| {
            let table = QueueTable::of(queues, Order::default());
            table.parts().unwrap().iter().map(Part::stamp).collect::<Vec<_>>()
        };
        let one = parts(&[facts(doc! { "name": "a" })]);
        let renamed = parts(&[facts(doc! { "name": "b" })]);
        assert_eq!((one.len(), one[0] == renamed[0], one[1] == renamed[1]), (3, true, false));
        assert_ne!(parts(&[])[0], one[0]);
        assert!(table(&[]).contains("There are no queues yet."));
    }
}
