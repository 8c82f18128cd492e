//! Which tasks a job is for.
//!
//! Their ids are read in order, by one query that the server sorts once: a queue's tasks are found by the index
//! `{queue, status}`, which is not in the order of ids. Whether a task is still one of them is looked at again
//! for each batch.

use disbatch_operation::operation;
use std::collections::BTreeSet;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use futures::{Stream, TryStreamExt};

use super::{Action, BulkFilter, BulkJob, Queues};
use crate::budget::{CANCEL, NOTE, cut};
use crate::model::TaskId;
use crate::store::collections::{BULK, TASKS};
use crate::store::{Store, StoreError, attended, collect_ids, integer, put};
use crate::tags;
use crate::task::archive::{server_time_before, unchanged_since};
use crate::task::{Created, archive};

const COUNTING: Duration = Duration::from_secs(5);

const COUNTED: u64 = 10_000;

/// So many ids are fetched at once: they are used up before the server forgets the query.
const FETCHED: u32 = 5_000;

impl BulkFilter {
    /// As it is stored and shown. One that cannot be stored is nothing, which is read as no filter.
    pub fn document(&self) -> Document {
        bson::serialize_to_document(self).unwrap_or_default()
    }

    /// Whether `action` is for archived tasks too.
    pub(super) const fn reaches_archive(&self, action: Action) -> bool {
        action.reaches_archive() && !matches!(self.archive, Some(false))
    }

    /// What [`BulkFilter::document`] made. `None`: something else made it.
    fn from_document(document: &Document) -> Option<Self> {
        let filter: Self = bson::deserialize_from_document(document.clone()).ok()?;
        // Never everything by mistake.
        (filter.queue.is_some() || filter.ids.is_some()).then_some(filter)
    }

    /// What the server looks for. Ages count from `now`.
    pub fn query(&self, action: Action, now: Bson) -> Document {
        let mut all = vec![self.status(action)];
        if let Some(Queues::One(queue)) = self.queue {
            all.push(doc! { "queue": queue });
        }
        all.extend(self.ids.as_ref().map(|ids| doc! { "_id": { "$in": ids } }));
        all.extend(self.array.map(|array| doc! { "array.id": array }));
        all.extend(self.schedule.map(|schedule| doc! { "schedule": schedule }));
        let created = Created { since: self.created_since, until: self.created_until }.ids();
        if !created.is_empty() {
            all.push(doc! { "_id": created });
        }
        all.extend(tags::query(&self.tags, &self.any_tags));
        let texts = [("node", &self.node), ("group", &self.group), ("tenant", &self.tenant)];
        all.extend(texts.into_iter().filter_map(|(name, value)| Some(doc! { name: value.as_ref()? })));
        let unchanged = |age| doc! { "$expr": unchanged_since(server_time_before(now, age)) };
        all.extend(self.older_than.map(unchanged));
        doc! { "$and": all }
    }

    fn status(&self, action: Action) -> Document {
        if !self.statuses.is_empty() {
            let applicable = self.statuses.iter().filter(|status| action.applies_to(**status));
            let applicable: Vec<Bson> = applicable.map(|status| Bson::Int64(*status)).collect();
            return doc! { "status": { "$in": applicable } };
        }
        match action {
            Action::Cancel => doc! { "status": { "$in": [-7, -4, -2, -1, 0] } },
            // What went well is not done again unless someone says so.
            Action::Retry if !self.succeeded => {
                doc! { "$or": [{ "status": { "$in": [-3, -5, -6] } }, { "status": { "$gte": 2 } }] }
            }
            Action::Retry | Action::Archive | Action::Delete => archive::ended(),
        }
    }
}

impl Store {
    /// How many tasks an action would be tried on now: counted up to a bound, beyond that as the counters say. `None`:
    /// there are many, and nobody has counted them.
    #[operation]
    pub async fn count_bulk(&self, action: Action, filter: &BulkFilter) -> Result<Option<i64>, StoreError> {
        let query = filter.query(action, "$$NOW".into());
        let mut total = 0;
        for collection in self.bulk_collections(filter.reaches_archive(action)) {
            let counted = collection.count_documents(query.clone()).limit(COUNTED + 1).max_time(COUNTING);
            let Some(count) = StoreError::unless_out_of_time(counted.await)? else { return Ok(None) };
            if count > COUNTED {
                return self.counted_bulk(action, filter).await;
            }
            total += integer(count);
        }
        Ok(Some(total))
    }

    /// The same as the counters say, which know of queues and statuses, and nothing of the archive.
    async fn counted_bulk(&self, action: Action, filter: &BulkFilter) -> Result<Option<i64>, StoreError> {
        let BulkFilter { queue, statuses, archive, succeeded, .. } = filter.clone();
        let known = BulkFilter { queue, statuses, archive, succeeded, ..BulkFilter::default() };
        // Queues that are gone may have tasks that nobody has counted.
        let Some(Queues::One(queue)) = queue else { return Ok(None) };
        if *filter != known || filter.reaches_archive(action) {
            return Ok(None);
        }
        let Some(totals) = self.read_counters().await? else { return Ok(None) };
        let is_meant = |status: i64| {
            let asked = filter.statuses.is_empty() || filter.statuses.contains(&status);
            let redone = action == Action::Retry && filter.statuses.is_empty() && status == 1;
            action.applies_to(status) && asked && !redone
        };
        let Some(by_status) = totals.by_status(queue) else { return Ok(None) };
        let meant = by_status.iter().filter(|(status, _)| is_meant(**status));
        let tasks: i64 = meant.map(|(_, tasks)| *tasks).sum();
        Ok(Some(tasks.max(integer(COUNTED))))
    }

    /// The newest task that there is, among archived ones too if `archive`.
    pub(super) async fn newest_task(&self, archive: bool) -> Result<ObjectId, StoreError> {
        let mut newest = ObjectId::from_bytes([0; 12]);
        for collection in self.bulk_collections(archive) {
            // What others have inserted may have ids of types that come after these.
            let ours = doc! { "_id": { "$type": "objectId" } };
            let last = collection.find_one(ours).sort(doc! { "_id": -1 }).projection(doc! { "_id": 1 });
            let last = last.await?.and_then(|task| task.get_object_id("_id").ok());
            newest = newest.max(last.unwrap_or(newest));
        }
        Ok(newest)
    }

    /// The ids of the tasks that come after those that the job looks at now, in order.
    pub(super) async fn bulk_ids(
        &self,
        job: &BulkJob,
    ) -> Result<impl Stream<Item = Result<TaskId, StoreError>> + Unpin + use<>, StoreError> {
        let mut between = doc! { "$lte": job.newest };
        put(&mut between, "$gt", job.pending.last().or(job.position.as_ref()));
        let query = doc! { "$and": [{ "_id": between }, job.query()?] };
        let mut stages = vec![doc! { "$match": query }, doc! { "$project": { "_id": 1 } }];
        if job.reaches_archive()? {
            let pipeline = stages.clone();
            stages.push(doc! { "$unionWith": { "coll": archive::COLLECTION, "pipeline": pipeline } });
        }
        stages.push(doc! { "$sort": { "_id": 1 } });
        let ids = self.tasks().aggregate(stages).allow_disk_use(true).batch_size(FETCHED).await?;
        let ids = ids
            .map_err(StoreError::from)
            .try_filter_map(|task| futures::future::ready(Ok(task.get_object_id("_id").ok().map(TaskId))));
        Ok(attended(ids))
    }

    /// Those of `batch` that the job is still for.
    pub(super) async fn bulk_still(
        &self,
        job: &BulkJob,
        batch: &[TaskId],
    ) -> Result<BTreeSet<ObjectId>, StoreError> {
        let ids: Vec<ObjectId> = batch.iter().map(|id| id.0).collect();
        let mut all = vec![doc! { "_id": { "$in": ids } }, job.query()?];
        if job.action == Action::Retry {
            // It may have ended again since this job retried it, if the job was taken over just then.
            all.push(doc! { "history.note": { "$ne": job.retry_note() } });
        }
        self.bulk_found(job.reaches_archive()?, doc! { "$and": all }).await
    }

    /// How many of these tasks, for which the job is not any more, it has changed itself: its worker was broken off before it could say so.
    pub(super) async fn bulk_changed(&self, job: &BulkJob, tasks: &[TaskId]) -> Result<i64, StoreError> {
        let ids: Vec<Bson> = tasks.iter().map(|id| id.0.into()).collect();
        let mark = match job.action {
            // As it is written, see `CancelRequest`.
            Action::Cancel => doc! { "cancel.by": cut(&job.by, CANCEL / 4) },
            Action::Retry => doc! { "history.note": job.retry_note() },
            Action::Archive | Action::Delete => {
                let live = self.ids_in(TASKS.name, &ids).await?;
                let archived = self.ids_in(archive::COLLECTION, &ids).await?;
                let kept = job.action == Action::Archive;
                let is_changed = |id: &&TaskId| !live.contains(&id.0) && archived.contains(&id.0) == kept;
                return Ok(integer(tasks.iter().filter(is_changed).count()));
            }
        };
        let changed = self.bulk_found(true, doc! { "$and": [{ "_id": { "$in": ids } }, mark] }).await?;
        Ok(integer(changed.len()))
    }

    async fn bulk_found(&self, archive: bool, query: Document) -> Result<BTreeSet<ObjectId>, StoreError> {
        let mut found = BTreeSet::new();
        for collection in self.bulk_collections(archive) {
            found.extend(collect_ids(collection.find(query.clone()).projection(doc! { "_id": 1 })).await?);
        }
        Ok(found)
    }

    fn bulk_collections(&self, archive: bool) -> Vec<mongodb::Collection<crate::store::Stored>> {
        let archive = archive.then(|| self.archive());
        std::iter::once(self.tasks()).chain(archive).collect()
    }
}

impl BulkJob {
    /// Ages count from when the job was made, so that a task that was too young then stays so.
    fn query(&self) -> Result<Document, StoreError> {
        Ok(self.which()?.query(self.action, self.created.into()))
    }

    fn reaches_archive(&self) -> Result<bool, StoreError> {
        Ok(self.which()?.reaches_archive(self.action))
    }

    pub(super) fn which(&self) -> Result<BulkFilter, StoreError> {
        BulkFilter::from_document(&self.filter).ok_or_else(|| StoreError::Document {
            collection: BULK.name,
            id: self.id.to_hex(),
            why: Box::new(<bson::error::Error as serde::de::Error>::custom("its filter is none")),
        })
    }

    /// What the history of a task says that this job has retried. It is looked for, so it has to have room there.
    pub(super) fn retry_note(&self) -> String {
        let short = |reason: &String| format!(": {}", cut(reason, NOTE / 2));
        let reason = self.reason.as_ref().map(short).unwrap_or_default();
        format!("tried again by {}{reason} (bulk job {})", self.by, self.id)
    }
}

#[cfg(test)]
mod tests {
    use bson::DateTime;

    use super::*;
    use crate::model::{ArrayId, QueueId};

    #[test]
    fn filters_are_stored_and_read_again() {
        let filter = BulkFilter {
            queue: Some(Queues::One(QueueId(ObjectId::new()))),
            statuses: vec![-2, 7],
            older_than: Some(Duration::from_millis(1500)),
            ids: Some(vec![TaskId(ObjectId::new())]),
            array: Some(ArrayId(ObjectId::new())),
            node: Some("n".into()),
            schedule: Some(ObjectId::new()),
            group: Some("g".into()),
            tenant: Some("acme".into()),
            tags: vec!["a".into()],
            any_tags: vec!["b".into()],
            created_since: Some(DateTime::from_millis(1_000)),
            created_until: Some(DateTime::from_millis(2_000)),
            archive: Some(false),
            succeeded: true,
        };
        let keys = "queue status older_than ids array schedule node group tenant tags any_tags \
                    created_since created_until archive succeeded";
        assert_eq!(filter.document().keys().map(String::as_str).collect::<Vec<_>>().join(" "), keys);
        assert_eq!(filter.document().get_array("status").unwrap(), &[Bson::Int64(-2), Bson::Int64(7)]);
        assert_eq!(filter.document().get_f64("older_than").unwrap(), 1.5);
        assert!(filter.document().get_array("ids").unwrap()[0].as_object_id().is_some());
        let query = filter.query(Action::Retry, Bson::Null).to_string();
        assert!(
            query.contains("000000010000000000000000") && query.contains("00000001ffffffffffffffff"),
            "{query}"
        );
        assert_eq!(BulkFilter::from_document(&filter.document()), Some(filter));
        let all = BulkFilter { queue: Some(Queues::All), ..BulkFilter::default() };
        assert_eq!(all.document(), doc! { "queue": "*" }, "what is usual is not stored");
        assert_eq!(BulkFilter::from_document(&all.document()), Some(all));
        for odd in [
            doc! {},
            doc! { "status": [1] },
            doc! { "node": "n" },
            doc! { "queue": "mail" },
            doc! { "queue": "*", "ids": 1 },
            doc! { "queue": "*", "node": 1 },
            doc! { "queue": "*", "group": 1 },
            doc! { "queue": "*", "schedule": "nightly" },
            doc! { "queue": "*", "of_a_later_release": 1 },
            doc! { "queue": "*", "archive": "no" },
            doc! { "queue": "*", "older_than": -1.0 },
        ] {
            assert_eq!(BulkFilter::from_document(&odd), None, "{odd}");
        }
    }

    #[test]
    fn only_statuses_that_the_action_applies_to_are_looked_for() {
        let filter = |statuses| BulkFilter { statuses, ids: Some(vec![]), ..BulkFilter::default() };
        let cancel = filter(vec![-2, 1]).status(Action::Cancel);
        assert_eq!(cancel, doc! { "status": { "$in": [-2_i64] } });
        let everything = filter(vec![]).status(Action::Retry);
        assert!(!everything.to_string().contains("$gte\": 1"), "{everything}");
        assert_eq!(filter(vec![1]).status(Action::Retry), doc! { "status": { "$in": [1_i64] } });
    }

    #[test]
    fn only_deleting_reaches_archived_tasks_and_only_if_it_is_to() {
        let (usual, without) =
            (BulkFilter::default(), BulkFilter { archive: Some(false), ..BulkFilter::default() });
        for action in Action::ALL {
            assert_eq!(usual.reaches_archive(action), action == Action::Delete, "{action:?}");
            assert!(!without.reaches_archive(action), "{action:?}");
        }
        let on_node = BulkFilter { node: Some("n".into()), ..BulkFilter::default() };
        assert!(on_node.query(Action::Cancel, Bson::Null).to_string().contains("\"node\": \"n\""));
    }
}
