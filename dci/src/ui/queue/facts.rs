//! What the page of a queue shows of it, gathered with bounded reads.

use std::ops::RangeInclusive;

use askama::Template;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::counters::Totals;
use disbatch_core::counters::count::Amount;
use disbatch_core::explain::{Hold, Holding, Reader, hold};
use disbatch_core::model::{Canary, Policy, Queue, QueueId, Sort};
use disbatch_core::rate::Standing;
use disbatch_core::series::{Histogram, Numbers, Sides};
use disbatch_core::store::{Store, StoreError};
use futures::{StreamExt, TryStreamExt};

use super::charts;
use super::lists::Lists;
use super::versions::Versions;
use crate::error::HttpError;
use crate::state::State;
use crate::ui::live::Part;
use crate::ui::nodes::{NodeState, Now};
use crate::ui::overview::throughput::Span;
use crate::ui::queue_state::{Intake, Lacking, QueueState, Tally, Work, beyond, intake, lacking};
use crate::ui::{StatusView, plain};

/// Up to so many tasks of a status are counted, and beyond that the counters are asked.
const BOUND: u64 = 1_000;

const AT_ONCE: usize = 6;

/// Statuses in the order in which tasks come to them, and those beyond the known ones.
const STATUSES: [Statuses; 12] = [
    Statuses::One(-2),
    Statuses::One(-7),
    Statuses::One(-4),
    Statuses::Held,
    Statuses::One(-1),
    Statuses::One(0),
    Statuses::One(1),
    Statuses::One(2),
    Statuses::Finished,
    Statuses::One(-6),
    Statuses::One(-5),
    Statuses::One(-3),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Statuses {
    One(i64),
    /// Those that somebody keeps from being claimed: -8 and below.
    Held,
    /// Those with a status of their plugin's: 3 and above.
    Finished,
}

/// Its blocks are the parts of the page that change by themselves.
#[derive(Debug, Template)]
#[template(path = "queue/parts.html", blocks = ["head", "notices", "controls", "figures", "statuses", "running", "failed", "next"])]
pub(super) struct Facts {
    pub queue: Queue,
    pub tallies: Vec<(Statuses, Tally)>,
    pub running: u64,
    /// What holds its head.
    pub held: Holding,
    /// Since when the task waits that waits longest.
    pub oldest: Option<DateTime>,
    pub hour: Numbers,
    pub nodes: Vec<Document>,
    pub now: Now,
    pub rate: Option<Standing>,
    pub intake: Option<Intake>,
    pub lists: Lists,
    pub versions: Versions,
}

impl Statuses {
    fn view(self) -> StatusView {
        match self {
            Self::One(code) => StatusView::from_code(code),
            Self::Held => StatusView::named("-8 and below", "held"),
            Self::Finished => StatusView::named("3 and above", "finished"),
        }
    }

    fn filter(self, queue: QueueId) -> Document {
        let status: Bson = match self {
            Self::One(code) => code.into(),
            Self::Held => doc! { "$lte": -8 }.into(),
            Self::Finished => doc! { "$gte": 3 }.into(),
        };
        doc! { "queue": queue, "status": status }
    }

    const fn range(self) -> RangeInclusive<i64> {
        match self {
            Self::One(code) => code..=code,
            Self::Held => i64::MIN..=-8,
            Self::Finished => 3..=i64::MAX,
        }
    }

    /// What the counters say. Nobody counts those that run.
    fn counted(self, totals: &Totals, queue: QueueId) -> Option<u64> {
        let tasks: i64 = totals.by_status(queue)?.range(self.range()).map(|(_, tasks)| *tasks).sum();
        u64::try_from(tasks).ok().filter(|_| !matches!(self, Self::One(-1 | 0)))
    }

    /// Which they are; nothing if the counters do not tell.
    fn codes(self, totals: Option<&Totals>, queue: QueueId) -> Vec<i64> {
        if let Self::One(code) = self {
            return vec![code];
        }
        totals.and_then(|totals| totals.statuses_within(queue, self.range())).unwrap_or_default()
    }
}

impl Facts {
    pub async fn gather(state: &State, queue: Queue, reader: Reader) -> Result<Self, StoreError> {
        let (store, id) = (&state.store, queue.id);
        let (tallies, running, nodes, now, points, oldest, head, rate, rules, lists) = futures::try_join!(
            tallies(store, id),
            store.count_running(std::slice::from_ref(&id)),
            store.list_nodes(),
            Now::read(store),
            charts::points(store, id, Span::Hour),
            store.longest_waiting(id),
            store.head_of_queue(&queue),
            store.rate_standing(&queue, None),
            store.admission_rules(),
            async { Lists::gather(store, &queue, &state.titles(std::slice::from_ref(&queue)).await?).await },
        )?;
        let running = running.get(&id).copied().unwrap_or(0);
        let held = hold(&queue, &head, reader);
        let hour = points.iter().fold(Numbers::default(), |mut sum, point| {
            sum.merge(&point.numbers);
            sum
        });
        let intake = intake(&rules, &queue);
        let sides = match Canary::of(&queue) {
            Some(canary) => store.canary_sides(id, &canary).await?,
            None => Sides::default(),
        };
        let versions = Versions::of(&queue, (&nodes, &now), (reader, sides));
        Ok(Self { queue, tallies, running, held, oldest, hour, nodes, now, rate, intake, lists, versions })
    }

    pub fn parts(&self) -> Result<Vec<Part>, HttpError> {
        Ok(vec![
            Part::new(&self.as_head())?,
            Part::new(&self.as_notices())?,
            Part::new(&self.as_controls())?,
            Part::new(&self.as_figures())?,
            Part::new(&self.versions)?,
            Part::new(&self.as_statuses())?,
            Part::new(&self.as_running())?,
            Part::new(&self.as_failed())?,
            Part::new(&self.as_next())?,
        ])
    }

    fn tasks(&self, codes: &[i64]) -> Tally {
        let is_asked = |of: &Statuses| matches!(of, Statuses::One(code) if codes.contains(code));
        Tally::sum(self.tallies.iter().filter(|(of, _)| is_asked(of)).map(|(_, tally)| tally))
    }

    fn state(&self) -> QueueState {
        let waiting = self.tasks(&[-2, -7, -4]).least();
        let lacks = self.lacking().map(|lacking| lacking.word());
        let (rate, intake) = (self.rate, self.intake);
        let work = Work { waiting, running: self.running, rate, intake, lacks };
        QueueState::of(&self.queue, &work)
    }

    fn times(&self) -> [(&'static str, &Histogram); 2] {
        [("Wait", &self.hour.waited), ("Run time", &self.hour.ran)]
    }

    pub fn place(&self) -> String {
        format!("/queues/{}", self.queue.id)
    }

    pub fn plugin(&self) -> String {
        plain(self.queue.rest.get("plugin"))
    }

    /// What keeps its tasks from running, or from coming, and whether that is as somebody wanted it.
    fn notices(&self) -> Vec<(bool, String)> {
        let queue = &self.queue;
        let because = queue.reason().map(|reason| format!(": {reason}")).unwrap_or_default();
        let mut notices = Vec::new();
        let waits = !matches!(self.held.gate, Hold::None | Hold::Empty);
        if waits {
            let is_trouble = matches!(self.held.gate, Hold::Nodes | Hold::Plugin | Hold::Blocked)
                || queue.thread_limit() == 0;
            notices.push((!is_trouble, self.held.text.clone()));
        } else if queue.is_paused() {
            notices.push((true, format!("Nothing of it is claimed, as it is paused{because}")));
        } else if queue.thread_limit() == 0 {
            notices.push((false, "Nothing of it is claimed, as its threads are 0.".to_owned()));
        }
        if !queue.is_accepting() {
            notices.push((true, format!("It accepts no tasks{because}")));
        }
        notices.extend(queue.unknown_sort().map(|sort| {
            (false, format!("Its order (sort), \"{sort}\", is unknown: the default order is used."))
        }));
        notices.extend(self.lacks().filter(|_| !waits).map(|text| (false, text)));
        notices
    }

    fn lacking(&self) -> Option<Lacking> {
        Lacking::of(&self.queue, self.nodes.iter().map(|node| (NodeState::of(node, &self.now), node)))
    }

    fn lacks(&self) -> Option<String> {
        Some(match self.lacking()? {
            Lacking::Plugin => "It has no plugin, so nothing can run its tasks.".to_owned(),
            Lacking::UsablePlugin(why) => format!("Nothing can run its tasks: {why}."),
            Lacking::Node => "No node is alive that claims tasks.".to_owned(),
            Lacking::NodeWith(plugin) => format!("No node that is alive has {}.", lacking(&plugin)),
        })
    }
}

async fn tallies(store: &Store, queue: QueueId) -> Result<Vec<(Statuses, Tally)>, StoreError> {
    let count =
        async |of: Statuses| Ok::<_, StoreError>((of, store.count_up_to(of.filter(queue), BOUND).await?));
    let counted: Vec<(Statuses, Amount)> =
        futures::stream::iter(STATUSES).map(count).buffered(AT_ONCE).try_collect().await?;
    let is_asked = |(of, amount): &(Statuses, Amount)| match amount {
        Amount::Exactly(0) => false,
        Amount::Exactly(_) => !matches!(of, Statuses::One(_)),
        Amount::MoreThan(_) => true,
    };
    let totals = if counted.iter().any(is_asked) { store.read_counters().await? } else { None };
    let tally = |(of, amount): (Statuses, Amount)| {
        let known = totals.as_ref().and_then(|totals| of.counted(totals, queue));
        (of, Tally::new(of.codes(totals.as_ref(), queue), beyond(amount, known)))
    };
    Ok(counted.into_iter().map(tally).collect())
}
