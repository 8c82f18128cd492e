//! Reads what is stored of a moment.

use std::collections::BTreeMap;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};
use disbatch_operation::operation;
use mongodb::Collection;
use mongodb::options::Hint;

use super::events::{self, Life};
use super::{Event, Limits, Past, Question};
use crate::accounts::{Reach, tasks_within};
use crate::audit::{AuditQuery, CHANGES, Changed, Object, ObjectKind, Verb};
use crate::model::{Queue, Status, TaskId, whole_number};
use crate::store::{Store, StoreError, Stored, collect, integer, put};

/// How long each read may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// So many tasks are read with each.
const MOST_TASKS: i64 = 5_000;

/// So many entries of the audit, and changes of a queue or of all nodes since.
const MOST_CHANGES: usize = 500;

const MOST_MINUTES: i64 = 20_000;

/// So many events are told, and so many queues and nodes with their limits.
const MOST_EVENTS: usize = 1_000;

const MOST_LIMITS: usize = 200;

/// Tasks are looked for that were submitted at most so long before the span: first the near ones, so that these are told even if the others take too long.
const BEFORE: [Duration; 3] = [Duration::ZERO, Duration::from_secs(3600), Duration::from_secs(24 * 3600)];

const FIELDS: [&str; 15] = [
    "queue", "status", "node", "attempt", "ctime", "started", "mtime", "history", "run_at", "after", "locks",
    "held", "failures", "schedule", "_id",
];

const OF_QUEUE: [&str; 6] = ["threads", "group_threads", "rate", "group_rate", "paused", "accepting"];

const OF_NODE: [&str; 3] = ["maxthreads", "draining", "interrupt"];

/// Tasks by id, and what is missing.
#[derive(Default)]
struct TaskLives {
    lives: BTreeMap<TaskId, Life>,
    is_cut: bool,
}

impl TaskLives {
    fn add(&mut self, tasks: Option<Vec<Document>>) {
        let Some(tasks) = tasks else {
            self.is_cut = true; // It took too long.
            return;
        };
        self.is_cut |= i64::try_from(tasks.len()).is_ok_and(|count| count >= MOST_TASKS);
        self.lives.extend(tasks.iter().filter_map(Life::of).map(|life| (life.task, life)));
    }
}

impl Store {
    #[operation]
    pub async fn moment(&self, question: &Question) -> Result<Past, StoreError> {
        let queues = self.queues_within(&question.reach).await?;
        let found = self.lives(question, &queues).await?;
        let nodes = if question.has_nodes() { self.list_nodes().await? } else { Vec::new() };
        let mut gaps = gaps(question, found.is_cut);
        let lives = found.lives.values();
        let mut all: Vec<Event> = lives.clone().flat_map(|life| events::of_life(life, question)).collect();
        if question.has_nodes() {
            all.extend(self.events_of_nodes(question, &nodes).await?);
        }
        match self.events_of_people(question).await? {
            Some(told) => all.extend(told),
            None => gaps.push("Not all that people have changed is told: it is too much.".to_owned()),
        }
        let (told, is_all) = events::sorted(all, question.at, MOST_EVENTS);
        if !is_all {
            gaps.push(format!("Of the events, only the {MOST_EVENTS} next to the moment are told."));
        }
        let waited = lives.clone().filter(|life| life.waited_at(question.at)).count();
        Ok(Past {
            ran: ran(lives, question),
            waiting: question.node.is_none().then_some(waited as u64),
            limits: self.limits(question, &queues, &nodes).await?,
            events: told,
            gaps,
        })
    }

    /// `queues`: those within reach.
    async fn lives(&self, question: &Question, queues: &[Queue]) -> Result<TaskLives, StoreError> {
        let within = |these: Document| match &question.reach {
            Reach::All => these,
            reach @ Reach::Some { .. } => tasks_within(these, queues, &reach.tenants()),
        };
        let mut found = TaskLives::default();
        let mut until = id_at(question.to(), Duration::ZERO, 1);
        for before in BEFORE {
            let from = id_at(question.from(), before, 0);
            // By id alone: an index that is always there, in which the span is one stretch.
            let mut these = doc! {
                "_id": { "$gte": from, "$lt": until },
                "$or": [{ "mtime": { "$gte": question.from() } }, { "status": { "$lte": 0 } }],
            };
            put(&mut these, "queue", question.queue);
            // In this order: a task leaves `tasks` only when it is in the archive.
            for collection in [self.tasks(), self.archive()] {
                found.add(read(&collection, within(these.clone()), doc! { "_id": 1 }).await?);
            }
            until = from;
        }
        let runs = Status::Running.code();
        let (these, hint) = match question.queue {
            Some(queue) => (doc! { "queue": queue, "status": runs }, doc! { "queue": 1, "status": 1 }),
            None => (doc! { "status": runs }, doc! { "lease_until": 1 }),
        };
        found.add(read(&self.tasks(), within(these), hint).await?);
        Ok(found)
    }

    async fn events_of_nodes(
        &self,
        question: &Question,
        nodes: &[Document],
    ) -> Result<Vec<Event>, StoreError> {
        let mut told: Vec<Event> = nodes.iter().filter_map(|node| gone(node, self.now())).collect();
        told.retain(|event| question.spans(event.at) && question.is_about(event.node.as_deref()));
        let margin = 2 * events::SILENCE;
        let from = question.from().timestamp_millis().saturating_sub(margin);
        let until = question.to().min(self.now()).timestamp_millis().saturating_add(1);
        let minutes = self.minutes_of_nodes((from, until)).await?;
        let is_asked = |(node, _): &(String, i64)| question.is_about(Some(node.as_str()));
        let minutes: Vec<(String, i64)> = minutes.into_iter().filter(is_asked).collect();
        let of_minutes = events::of_minutes(&minutes, (from, until), question);
        // What its document says is more exact.
        let is_known = |event: &Event| {
            let near = |other: &Event| {
                other.node == event.node
                    && other.at.timestamp_millis().abs_diff(event.at.timestamp_millis()) < 120_000
            };
            told.iter().any(near)
        };
        let further: Vec<Event> = of_minutes.into_iter().filter(|event| !is_known(event)).collect();
        told.extend(further);
        Ok(told)
    }

    /// The minutes in which nodes were heard of. None where this user may not read them.
    async fn minutes_of_nodes(&self, (from, until): (i64, i64)) -> Result<Vec<(String, i64)>, StoreError> {
        let [from, until] = [from, until].map(DateTime::from_millis);
        let these = doc! { "at": { "$gte": from, "$lt": until }, "_id.node": { "$exists": true } };
        let series = self.database().collection::<Stored>(crate::store::collections::SERIES.name);
        let found = series.find(these).projection(doc! { "at": 1 }).sort(doc! { "at": 1 });
        let found = match collect(found.limit(MOST_MINUTES).max_time(PATIENCE)).await {
            Err(error) if error.is_forbidden() || error.is_out_of_time() => Vec::new(),
            found => found?,
        };
        let minute = |document: &Document| {
            let node = document.get_document("_id").ok()?.get_str("node").ok()?.to_owned();
            Some((node, document.get_datetime("at").ok()?.timestamp_millis()))
        };
        Ok(found.iter().filter_map(minute).collect())
    }

    /// What people changed. `None`: not all of it is known.
    async fn events_of_people(&self, question: &Question) -> Result<Option<Vec<Event>>, StoreError> {
        let within = match &question.changes {
            Reach::All => None,
            reach @ Reach::Some { .. } => {
                Some(self.queues_within(reach).await?.into_iter().map(|queue| queue.id.0).collect::<Vec<_>>())
            }
        };
        if within.as_ref().is_some_and(Vec::is_empty) {
            return Ok(Some(Vec::new()));
        }
        let query = AuditQuery {
            what: Some(CHANGES.to_owned()),
            queue: question.queue.map(|queue| queue.0),
            within,
            kind: question.node.as_ref().map(|_| ObjectKind::Node),
            name: question.node.as_ref().map(ToString::to_string),
            from: Some(question.from()),
            to: Some(question.to().saturating_add_millis(1)),
            limit: MOST_CHANGES,
            ..AuditQuery::default()
        };
        let Some(page) = self.find_audit(&query).await?.filter(|page| page.next.is_none()) else {
            return Ok(None);
        };
        // Submissions are changes as well, and may be very many; the tasks tell of themselves.
        let submits =
            |entry: &&Document| entry.get_str("what").is_ok_and(|what| what == Verb::TasksSubmit.words());
        Ok(Some(page.rows.iter().filter(|entry| !submits(entry)).filter_map(Event::of_entry).collect()))
    }

    async fn limits(
        &self,
        question: &Question,
        queues: &[Queue],
        nodes: &[Document],
    ) -> Result<Vec<Limits>, StoreError> {
        let reaches = self.audit_since().await?.is_some_and(|since| since <= question.at);
        let mut limits = Vec::new();
        if question.node.is_none() {
            let asked = |queue: &Queue| question.queue.is_none_or(|id| queue.id == id);
            for queue in queues.iter().filter(|queue| asked(queue)).take(MOST_LIMITS) {
                limits.push(self.limits_of_queue(queue, question.at, reaches).await?);
            }
        }
        if question.has_nodes() {
            limits.extend(self.limits_of_nodes(question, nodes, reaches).await?);
        }
        Ok(limits)
    }

    async fn limits_of_queue(
        &self,
        queue: &Queue,
        at: DateTime,
        reaches: bool,
    ) -> Result<Limits, StoreError> {
        let most = integer(MOST_CHANGES);
        let changes = self.changes_of_queue(queue.id, at, most).await?;
        let stored = |name: &&str| Some(((*name).to_owned(), queue.rest.get(*name)?.clone()));
        let now: Document = OF_QUEUE.iter().filter_map(stored).collect();
        Ok(Limits {
            of_node: false,
            name: queue.display_name(),
            settings: rolled_back(&now, &changes, at, &OF_QUEUE),
            known: reaches && changes.len() < MOST_CHANGES,
        })
    }

    async fn limits_of_nodes(
        &self,
        question: &Question,
        nodes: &[Document],
        reaches: bool,
    ) -> Result<Vec<Limits>, StoreError> {
        let query = AuditQuery {
            what: Some(Verb::NodeUpdate.words()),
            kind: Some(ObjectKind::Node),
            from: Some(question.at),
            limit: MOST_CHANGES,
            ..AuditQuery::default()
        };
        let page = self.find_audit(&query).await?.filter(|page| page.next.is_none());
        let known = reaches && page.is_some();
        let entries = page.unwrap_or_default().rows;
        let of = |node: &Document| {
            let name = node.get_str("node").ok()?;
            let is_it = |entry: &&Document| {
                Object::of_entry(entry).is_some_and(|object| object.name.as_deref() == Some(name))
            };
            let changes: Vec<Changed> = entries.iter().filter(is_it).filter_map(Changed::of).collect();
            let settings = rolled_back(node, &changes, question.at, &OF_NODE);
            Some(Limits { of_node: true, name: name.to_owned(), settings, known })
        };
        let is_asked = |limits: &Limits| question.is_about(Some(limits.name.as_str()));
        Ok(nodes.iter().filter_map(of).filter(is_asked).take(MOST_LIMITS).collect())
    }
}

/// What is not told of any moment, of this one, or to who asks.
fn gaps(question: &Question, is_cut: bool) -> Vec<String> {
    let partial = question.reach != Reach::All;
    let gaps = [
        (true, "Of tasks that were submitted more than a day before, only those are told that still run."),
        (
            partial,
            "Only what is within your rights is told: nothing of other queues and tasks, and nothing of nodes.",
        ),
        (
            is_cut,
            "Not all tasks were read: there are too many, or it took too long. Ask for one queue or a shorter time.",
        ),
        (
            question.changes != Reach::All,
            "What people have changed is told to admins of the queue, or of all.",
        ),
    ];
    gaps.into_iter().filter(|(is_so, _)| *is_so).map(|(_, gap)| gap.to_owned()).collect()
}

/// At most [`MOST_TASKS`]. `None`: it would take too long.
async fn read(
    collection: &Collection<Stored>,
    these: Document,
    hint: Document,
) -> Result<Option<Vec<Document>>, StoreError> {
    let only: Document = FIELDS.iter().map(|field| ((*field).to_owned(), 1.into())).collect();
    let find =
        || collection.find(these.clone()).projection(only.clone()).limit(MOST_TASKS).max_time(PATIENCE);
    let found = match collect(find().hint(Hint::Keys(hint))).await {
        // The index is not there (yet).
        Err(error) if error.is_no_index() => collect(find()).await,
        found => found,
    };
    StoreError::unless_out_of_time(found)
}

/// The least id of so long before a time and so many seconds after that.
fn id_at(at: DateTime, before: Duration, after: i64) -> ObjectId {
    let before = integer(before.as_secs());
    let seconds = at.timestamp_millis().div_euclid(1000).saturating_sub(before).saturating_add(after);
    ObjectId::from_parts(u32::try_from(seconds.max(0)).unwrap_or(u32::MAX), [0; 5], [0; 3])
}

/// The end of a DEN that its node's document tells of. Whether another DEN has noticed it yet does not matter.
fn gone(node: &Document, now: DateTime) -> Option<Event> {
    let time = |field| node.get_datetime(field).ok().copied();
    let (at, words) = match node.get_str("state").ok()? {
        "stopped" => (time("timestamp")?, "stopped: last heard of then"),
        _ => {
            let seen = time("seen")?;
            let silent = now.timestamp_millis().saturating_sub(seen.timestamp_millis());
            let lease = node.get("lease_ms").and_then(whole_number)?;
            (silent > lease).then_some((seen, "lost: last heard of then"))?
        }
    };
    Some(Event::of_node(at, node.get_str("node").ok()?, words))
}

fn ran<'a>(lives: impl Iterator<Item = &'a Life>, question: &Question) -> Vec<super::Ran> {
    let overlaps = |ran: &super::Ran| {
        ran.since <= question.to() && ran.until.is_none_or(|until| until >= question.from())
    };
    let is_asked = |ran: &super::Ran| question.is_about(ran.node.as_deref());
    let mut all: Vec<_> = lives.flat_map(Life::attempts).filter(overlaps).filter(is_asked).collect();
    all.sort_by_key(|ran| (ran.since, ran.task));
    all
}

/// These settings at a time, from those of now and what was changed since, the latest change first.
fn rolled_back(now: &Document, changes: &[Changed], at: DateTime, names: &[&str]) -> Document {
    let mut then: Document = now.clone();
    for change in changes.iter().filter(|change| change.at > at) {
        for added in change.after.keys().filter(|field| !change.before.contains_key(field)) {
            then.remove(added);
        }
        then.extend(change.before.clone());
    }
    let kept = names.iter().filter_map(|name| Some(((*name).to_owned(), then.remove(name)?)));
    kept.filter(|(_, value)| *value != bson::Bson::Null).collect()
}

#[cfg(test)]
mod tests {
    use super::super::events::tests::at;
    use super::*;

    #[test]
    fn what_was_changed_since_is_undone() {
        let change = |seconds, before, after| Changed { at: at(seconds), before, after };
        let changes = [
            change(30, doc! { "paused": true }, doc! {}),
            change(20, doc! { "threads": 2 }, doc! { "threads": 5, "paused": true }),
            change(10, doc! { "threads": 1, "name": "old" }, doc! { "threads": 2, "name": "new" }),
        ];
        let now = doc! { "name": "new", "threads": 5, "sort": "fifo" };
        let then = |seconds| rolled_back(&now, &changes, at(seconds), &OF_QUEUE);
        assert_eq!(then(40), doc! { "threads": 5 });
        assert_eq!(then(30), doc! { "threads": 5 }, "the change was made by then");
        assert_eq!(then(29), doc! { "threads": 5, "paused": true });
        assert_eq!(then(15), doc! { "threads": 2 });
        assert_eq!(then(9), doc! { "threads": 1 });
    }

    #[test]
    fn what_was_not_set_is_left_out() {
        let now = doc! { "maxthreads": bson::Bson::Null, "draining": true };
        assert_eq!(rolled_back(&now, &[], at(0), &OF_NODE), doc! { "draining": true });
    }
}
