//! Queues: what may be done with them, and how their tasks are counted. What monitoring systems want to know of all of them costs no more
//! however many tasks there are.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use disbatch_operation::operation;
use mongodb::options::UpdateModifications;

use crate::accounts::Reach;
use crate::counters::count::Amount;
use crate::fair::Settings;
use crate::model::{Policy, Queue, QueueId, SHADOW_OF, STOPPED, Selector, Status, Task, whole_number};
use crate::store::collections::{QUEUES, TASKS};
use crate::store::error::typed;
use crate::store::{
    Altered, Store, StoreError, Stored, between, collect, count_of, of_millis, put, setting_or_removing,
    still, with,
};
use crate::task::{SetAside, Waiting, claimable_of_any, is_taken};

/// What is stored of why a queue is paused or accepts no tasks, and of who did it when.
const OF_STOP: [&str; 2] = ["reason", STOPPED];

/// The server may take so long for one answer to monitoring systems.
const TAKES: Duration = Duration::from_secs(5);

/// How many tasks a queue has in each [`crate::model::Phase`].
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Those that wait.
    pub queued: u64,
    /// Those that are claimed or running.
    pub running: u64,
    /// Those that have ended with a result.
    pub completed: u64,
}

/// Tasks of a queue that are claimed or running.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct UnderWay {
    pub claimed: u64,
    pub running: u64,
    /// How long the one that was started first has been running.
    pub longest: Option<Duration>,
}

#[derive(Debug, Clone)]
pub struct FirstTask {
    /// What tells why it waits. `None`: it cannot be read.
    pub task: Option<Task>,
    /// How long it has waited, if it can be claimed.
    pub waited: Option<Duration>,
    pub aside: Option<SetAside>,
}

impl FirstTask {
    fn fields() -> Document {
        doc! { "queue": 1, "status": 1, "node": 1, "gate": 1, "group": 1, "ctime": 1, "mtime": 1, "run_at": 1, "history": 1, SHADOW_OF: 1 }
    }

    fn of(queue: QueueId, task: Document, now: DateTime) -> Self {
        let raw = RawDocumentBuf::try_from(&task).ok();
        let task = typed::<Task>(TASKS.name, task).ok();
        let is_queued = task.as_ref().is_some_and(|task| task.status == Status::Queued);
        let since = raw.filter(|_| is_queued).and_then(|raw| Waiting::of_document(queue, &raw));
        Self { task, waited: since.map(|waiting| between(waiting.since, now)), aside: None }
    }
}

impl Store {
    /// All queues in the server's order. A document that is no queue (no usable `_id`) is logged and left out.
    #[operation]
    pub async fn list_queues(&self) -> Result<Vec<Queue>, StoreError> {
        self.queues_within(&Reach::All).await
    }

    /// The queues that somebody may do something with, in the server's order.
    #[operation]
    pub async fn queues_within(&self, reach: &Reach) -> Result<Vec<Queue>, StoreError> {
        let documents = collect(self.queues().find(reach.filter())).await?;
        let queues: Vec<Queue> = documents.into_iter().filter_map(readable).collect();
        if matches!(reach, Reach::All) {
            self.measure_queues(&queues);
        }
        Ok(queues)
    }

    /// One queue. A name also finds a queue whose name was stored as a number.
    #[operation]
    pub async fn find_queue(&self, selector: &Selector) -> Result<Option<Queue>, StoreError> {
        // If there are both, the text, which comes after numbers.
        let found = self.queues().find_one(liberal_queue_filter(selector)).sort(doc! { "name": -1 }).await?;
        found.map(|document| typed(QUEUES.name, document)).transpose()
    }

    /// Creates a queue with all that it is to have. The caller has validated that.
    ///
    /// # Errors
    /// The name is taken ([`StoreError::write_failure`] says so), or the database cannot be reached.
    #[operation]
    pub async fn insert_queue(&self, queue: Document) -> Result<(), StoreError> {
        self.queues().insert_one(Stored(queue)).await?;
        self.admission.forget(Instant::now());
        Ok(())
    }

    /// Sets fields of a queue, and removes those whose new value is null. The caller has validated them. `None`: there
    /// is no such queue.
    ///
    /// # Errors
    /// The new name is taken ([`StoreError::write_failure`] says so), or the database cannot be reached.
    #[operation]
    pub async fn update_queue(
        &self,
        selector: &Selector,
        fields: Document,
    ) -> Result<Option<Altered>, StoreError> {
        self.update_queue_from(selector, fields, &[]).await
    }

    /// The same, if these fields still have the values that are stored. A queue that is resumed and accepts tasks loses the
    /// reason why it did not. `None`: there is no such queue, or a field has another value.
    #[operation]
    pub async fn update_queue_from(
        &self,
        selector: &Selector,
        fields: Document,
        stored: &[(String, Option<Bson>)],
    ) -> Result<Option<Altered>, StoreError> {
        let mut filter = selector.filter("name");
        if !stored.is_empty() {
            filter.insert("$expr", still(stored.iter().map(|(name, value)| (name.as_str(), value.as_ref()))));
        }
        let reopens = reopens(&fields);
        let update: UpdateModifications =
            if reopens { reopening(fields.clone()).into() } else { change(fields.clone()).into() };
        let before = self.queues().find_one_and_update(filter, update).await?;
        self.admission.forget(Instant::now());
        Ok(before.map(|before| {
            let mut altered = Altered::by_setting_or_removing(before.into(), fields);
            if reopens && !is_stopped(&altered.after) {
                OF_STOP.iter().for_each(|field| drop(altered.after.remove(field)));
            }
            altered
        }))
    }

    /// Deletes a queue, leaving its tasks. Returns what it was; `None`: there is no such queue.
    #[operation]
    pub async fn delete_queue(&self, selector: &Selector) -> Result<Option<Document>, StoreError> {
        Ok(self.queues().find_one_and_delete(selector.filter("name")).await?.map(Document::from))
    }

    /// What limits the claims of each of `queues` now, and which places are taken, over all DENs: to choose what
    /// to claim, and to look back after a claim. A queue that is gone is left out.
    #[operation]
    pub async fn look_at_queues(&self, queues: &[QueueId]) -> Result<HashMap<QueueId, Look>, StoreError> {
        let (all, tasks) = (self.queues(), self.tasks());
        let stored = collect(all.find(doc! { "_id": { "$in": queues } }));
        let pipeline = [
            doc! { "$match": { "queue": { "$in": queues }, "status": { "$in": [-1, 0] } } },
            doc! { "$group": {
                "_id": { "queue": "$queue", "node": "$node" },
                "running": { "$sum": 1 }, "slots": { "$push": "$slot" },
            } },
        ];
        let (stored, taken) = futures::try_join!(stored, collect(tasks.aggregate(pipeline)))?;
        let mut looks = HashMap::new();
        for document in stored {
            let Ok(queue) = typed::<Queue>(QUEUES.name, document) else { continue };
            looks.insert(queue.id, Look::without_tasks(queue));
        }
        for group in taken {
            if let Some(look) = group_id(&group).and_then(|id| looks.get_mut(&id)) {
                look.count(&group);
            }
        }
        for (id, look) in &mut looks {
            if look.group_limit().is_some() && look.running > 0 {
                let running = self.running_by_group(*id).await?.into_iter();
                let running = running.map(|(group, running)| (group.to_string(), running.places.running));
                look.groups = running.collect();
            }
        }
        Ok(looks)
    }

    /// How many tasks of these queues are claimed and running. It reads these tasks, and no others.
    #[operation]
    pub async fn tasks_under_way(
        &self,
        queues: &[QueueId],
    ) -> Result<HashMap<QueueId, UnderWay>, StoreError> {
        let is = |status: Status| doc! { "$sum": { "$cond": [{ "$eq": ["$status", status] }, 1, 0] } };
        let is_date = |field: &str| doc! { "$eq": [{ "$type": field }, "date"] };
        let started = doc! { "$and": [{ "$eq": ["$status", Status::Running] }, is_date("$started")] };
        let since = doc! { "$subtract": ["$$NOW", "$first"] };
        let pipeline = [
            doc! { "$match": {
                "queue": { "$in": queues }, "status": { "$in": [Status::Claimed, Status::Running] },
            } },
            doc! { "$group": {
                "_id": "$queue", "claimed": is(Status::Claimed), "running": is(Status::Running),
                "first": { "$min": { "$cond": [started, "$started", Bson::Null] } },
            } },
            doc! { "$set": { "longest": { "$cond": [is_date("$first"), since, Bson::Null] } } },
        ];
        let found = collect(self.tasks().aggregate(pipeline).max_time(TAKES)).await?;
        let of_queue = |group: &Document| {
            let count = |name| count_of(group, name).unwrap_or(0);
            let longest = group.get("longest").and_then(whole_number).map(of_millis);
            let counts = UnderWay { claimed: count("claimed"), running: count("running"), longest };
            Some((QueueId(group.get_object_id("_id").ok()?), counts))
        };
        Ok(found.iter().filter_map(of_queue).collect())
    }

    /// The first task that waits of each queue that has one: the first by its id that can be claimed, else one that is blocked, else one that
    /// is deferred, else one that is queued and that DENs pass over. This is one command, in which the server looks up at most four tasks for
    /// each queue, by indexes, and another one that asks which are set aside.
    #[operation]
    pub async fn first_tasks(&self) -> Result<HashMap<QueueId, FirstTask>, StoreError> {
        let mut aside = self.all_aside().await?;
        let first = |r#as: &str, filter: Document, order: Option<Document>| {
            let filter = with(filter, doc! { "$expr": { "$eq": ["$queue", "$$queue"] } });
            let mut pipeline = vec![doc! { "$match": filter }];
            pipeline.extend(order.map(|order| doc! { "$sort": order }));
            pipeline.extend([doc! { "$limit": 1 }, doc! { "$project": FirstTask::fields() }]);
            doc! { "$lookup": { "from": TASKS.name, "let": { "queue": "$_id" }, "as": r#as, "pipeline": pipeline } }
        };
        let lists = ["$claimable", "$blocked", "$deferred", "$passed_over"];
        let found_first = doc! { "$first": { "$concatArrays": lists.to_vec() } };
        let taken = doc! { "$and": [{ "$expr": is_taken(aside.keys()) }] };
        let pipeline = [
            doc! { "$project": { "_id": 1 } },
            first("claimable", with(claimable_of_any(), taken), Some(doc! { "_id": 1 })),
            first("blocked", doc! { "status": Status::Blocked }, None),
            first("deferred", doc! { "status": Status::Deferred }, None),
            first("passed_over", claimable_of_any(), None),
            doc! { "$project": { "first": found_first, "now": "$$NOW" } },
            doc! { "$match": { "first": { "$type": "object" } } },
        ];
        let found = collect(self.queues().aggregate(pipeline).max_time(TAKES)).await?;
        let of_queue = |mut row: Document| {
            let queue = QueueId(row.get_object_id("_id").ok()?);
            let now = row.get_datetime("now").ok().copied()?;
            let Some(Bson::Document(task)) = row.remove("first") else { return None };
            let aside = task.get_object_id("_id").ok().and_then(|id| aside.remove(&id));
            Some((queue, FirstTask { aside, ..FirstTask::of(queue, task, now) }))
        };
        Ok(found.into_iter().filter_map(of_queue).collect())
    }

    /// How many tasks hold locks, and how many wait for one; counted up to `bound`.
    #[operation]
    pub async fn count_locks(&self, bound: u64) -> Result<(u64, u64), StoreError> {
        let holding = doc! { "holds_locks": true };
        let waiting = doc! { "status": Status::Blocked, "needs_lock": { "$exists": true } };
        let (holding, waiting) =
            futures::try_join!(self.count_up_to(holding, bound), self.count_up_to(waiting, bound))?;
        let number = |(Amount::Exactly(tasks) | Amount::MoreThan(tasks))| tasks;
        Ok((number(holding), number(waiting)))
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Look {
    pub queue: Queue,
    pub running: u64,
    /// How many of them each node has.
    pub nodes: HashMap<String, u64>,
    /// The places that they have. Fewer than `running` if other programs claimed some.
    pub slots: Vec<u64>,
    /// How many of them each group has, where groups of a fair queue are limited.
    pub groups: HashMap<String, u64>,
}

impl Look {
    fn without_tasks(queue: Queue) -> Self {
        Self { queue, running: 0, nodes: HashMap::new(), slots: Vec::new(), groups: HashMap::new() }
    }

    fn group_limit(&self) -> Option<u64> {
        let is_fair = self.queue.policy() == Policy::Fair;
        is_fair.then(|| Settings::of(&self.queue).group_threads).flatten()
    }

    pub fn above_limit(&self, group: &str) -> u64 {
        let running = self.groups.get(group).copied().unwrap_or(0);
        self.group_limit().map_or(0, |limit| running.saturating_sub(limit))
    }

    fn count(&mut self, group: &Document) {
        let count = count_of(group, "running").unwrap_or(0);
        self.running += count;
        if let Some(node) = group.get_document("_id").ok().and_then(|id| id.get_str("node").ok()) {
            self.nodes.insert(node.to_owned(), count);
        }
        let slots = group.get_array("slots").map(Vec::as_slice).unwrap_or_default();
        let slots = slots.iter().filter_map(whole_number).filter_map(|slot| u64::try_from(slot).ok());
        self.slots.extend(slots);
    }
}

/// A queue, unless its document is none.
pub(crate) fn readable(document: Document) -> Option<Queue> {
    typed(QUEUES.name, document)
        .inspect_err(|error| tracing::warn!(%error, "ignoring a queue that cannot be read"))
        .ok()
}

fn group_id(group: &Document) -> Option<QueueId> {
    group.get_document("_id").ok()?.get_object_id("queue").ok().map(QueueId)
}

/// Whether a change may let a queue claim or accept tasks again, without saying anything of its reason.
fn reopens(fields: &Document) -> bool {
    let is =
        |field: &str, stopped: bool| fields.get(field).is_some_and(|value| *value != Bson::from(stopped));
    !fields.contains_key("reason") && (is("paused", true) || is("accepting", false))
}

/// Whether a queue is paused or accepts no tasks, as [`Queue::is_paused`] and [`Queue::is_accepting`] have it.
fn is_stopped(queue: &Document) -> bool {
    queue.get_bool("paused").unwrap_or(false) || !queue.get_bool("accepting").unwrap_or(true)
}

/// The same as [`change`], where what is said of why the queue is stopped goes with the last thing that stops it.
fn reopening(fields: Document) -> Vec<Document> {
    let mut update = setting_or_removing(fields);
    let stopped = doc! { "$or": [{ "$eq": ["$paused", true] }, { "$eq": ["$accepting", false] }] };
    let kept = |field: &str| doc! { "$cond": [stopped.clone(), format!("${field}"), "$$REMOVE"] };
    let kept: Document = OF_STOP.iter().map(|field| ((*field).to_owned(), Bson::from(kept(field)))).collect();
    update.push(doc! { "$set": kept });
    update
}

/// An update that sets fields, and removes those whose new value is null. MongoDB refuses an empty `$set`.
fn change(fields: Document) -> Document {
    let (unset, set): (Document, Document) = fields.into_iter().partition(|(_, value)| *value == Bson::Null);
    let mut update = Document::new();
    for (operator, fields) in [("$set", set), ("$unset", unset)] {
        put(&mut update, operator, (!fields.is_empty()).then_some(fields));
    }
    update
}

/// Perl compares names as text when it reads a queue, and by type when it changes one.
fn liberal_queue_filter(selector: &Selector) -> Document {
    if let Selector::Name(name) = selector
        && let Ok(number) = name.parse::<i64>()
        && number.to_string() == *name
    {
        return doc! { "name": { "$in": [name, number] } };
    }
    selector.filter("name")
}

pub fn new_queue_id() -> QueueId {
    QueueId(ObjectId::new())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_goes_with_the_last_thing_that_it_is_for() {
        for (fields, expected) in [
            (doc! { "paused": Bson::Null }, true),
            (doc! { "accepting": true, "threads": 1 }, true),
            (doc! { "paused": false, "reason": "x" }, false),
            (doc! { "paused": true }, false),
            (doc! { "accepting": false }, false),
            (doc! { "threads": 1 }, false),
        ] {
            assert_eq!(reopens(&fields), expected, "{fields}");
        }
        assert!(is_stopped(&doc! { "paused": true }) && is_stopped(&doc! { "accepting": false }));
        assert!(!is_stopped(&doc! { "paused": "yes", "accepting": true }));
        let update = reopening(doc! { "paused": Bson::Null, "name": "$a" });
        assert_eq!(update[0], doc! { "$set": { "name": { "$literal": "$a" } } });
        assert_eq!((update[1].clone(), update.len()), (doc! { "$unset": ["paused"] }, 3));
    }
}
