//! What is read of a fair queue, each with an index: who waits, the next tasks of groups, and what they have running.

use std::collections::HashMap;
use std::sync::Arc;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use futures::TryStreamExt;
use mongodb::Collection;
use mongodb::options::Hint;

use super::order::{Candidate, Range, Scheme};
use super::unindexed_tasks::Reading;
use super::window::{Head, Places, Want};
use super::{NO_GROUP, group_of};
use crate::model::{Queue, QueueId, Status, whole_number};
use crate::store::collections::TASKS;
use crate::store::{Store, StoreError, collect, count_of, in_one, integer, put};
use crate::task::claimable;

const BATCH_READ: u32 = 10_000;

const IN_A_COMMAND: usize = 100;

fn only() -> Document {
    doc! { "_id": 1, "group": 1, "priority": 1, "again": 1 }
}

/// Ids from the first ObjectId that there can be on, so that documents with ids of another kind are not in the way: nobody claims these.
pub(super) fn any_id() -> Document {
    doc! { "$gte": ObjectId::from_bytes([0; 12]) }
}

/// The index of tasks that wait and have a group. The status is the same for all of them; it stands here so that the
/// server finds that the index alone tells all that is asked.
pub(crate) fn index_of_groups() -> Document {
    doc! { "queue": 1, "status": 1, "group": 1, "again": -1, "priority": -1, "_id": 1 }
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Running {
    pub places: Places,
    /// Since when its tasks run, in seconds and all together.
    pub seconds: f64,
}

/// Names of groups: from one on, up to another one and without it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Names<'a> {
    pub from: Option<&'a str>,
    pub before: Option<&'a str>,
}

impl Store {
    /// Groups that wait, `most` at most, in the order of their names, each with its first task. The server skips from one group
    /// to the next in the index, however many tasks each has.
    #[tracing::instrument(skip_all, fields(queue = %queue), err(level = "debug"))]
    pub(super) async fn waiting_groups(
        &self,
        queue: QueueId,
        names: Names<'_>,
        most: usize,
    ) -> Result<Vec<Head>, StoreError> {
        let pipeline = waiting_groups(queue, names, most);
        let tasks = self.tasks();
        let ask = || tasks.aggregate(pipeline.clone()).batch_size(BATCH_READ).with_type::<RawDocumentBuf>();
        let found = match ask().hint(Hint::Keys(index_of_groups())).await.map_err(StoreError::from) {
            // Nobody has created it yet: the server finds another way.
            Err(error) if error.is_no_index() => ask().await?,
            found => found?,
        };
        let found: Vec<RawDocumentBuf> = found.try_collect().await?;
        let head = |document: &RawDocumentBuf| {
            let group = Arc::from(document.get_str("_id").ok()?);
            Some(Head { group, first: candidate(document)? })
        };
        Ok(found.iter().filter_map(head).collect())
    }

    /// The next tasks of each group that is asked for, and whether these are all.
    #[tracing::instrument(skip_all, fields(queue = %queue, groups = wants.len()), err(level = "debug"))]
    pub(super) async fn tasks_of_groups(
        &self,
        queue: QueueId,
        wants: &[Want],
        scheme: Option<&Scheme>,
    ) -> Result<Vec<(Vec<Candidate>, bool)>, StoreError> {
        let mut questions: Vec<(usize, Vec<Document>)> = Vec::new();
        for (number, want) in wants.iter().enumerate() {
            let classes = want.classes.iter().filter_map(|class| Some(scheme?.range(*class)));
            for range in std::iter::once(Range::default()).chain(classes) {
                questions.push((number, tasks_of_group(queue, want, range)));
            }
        }
        let mut answers: Vec<(Vec<Candidate>, bool)> = wants.iter().map(|_| (Vec::new(), true)).collect();
        for some in questions.chunks(IN_A_COMMAND) {
            let mut found = vec![0; some.len()];
            for (number, task) in self.ask_together(some).await? {
                let Some((want, _)) = some.get(number) else { continue };
                if let Some(count) = found.get_mut(number) {
                    *count += 1;
                }
                if let Some((tasks, _)) = answers.get_mut(*want) {
                    tasks.push(task);
                }
            }
            for ((number, _), count) in some.iter().zip(found) {
                if let (Some(want), Some((_, whole))) = (wants.get(*number), answers.get_mut(*number)) {
                    *whole &= count < want.limit;
                }
            }
        }
        Ok(answers)
    }

    /// The tasks that each pipeline finds, with its number.
    async fn ask_together(
        &self,
        pipelines: &[(usize, Vec<Document>)],
    ) -> Result<Vec<(usize, Candidate)>, StoreError> {
        let numbered = |(of, (_, pipeline)): (i64, &(usize, Vec<Document>))| {
            (TASKS.name, [&pipeline[..], &[doc! { "$addFields": { "of": of } }]].concat())
        };
        let whole = in_one((0..).zip(pipelines).map(numbered));
        let tasks = self.tasks();
        let found = tasks.aggregate(whole).batch_size(BATCH_READ).with_type::<RawDocumentBuf>();
        let found: Vec<RawDocumentBuf> = found.await?.try_collect().await?;
        let answer = |document: &RawDocumentBuf| {
            let of = usize::try_from(integer_of(document, "of")?).ok()?;
            Some((of, candidate(document)?))
        };
        Ok(found.iter().filter_map(answer).collect())
    }

    /// The next tasks of a queue, of whatever kind. Returns how many there were, the last of them, and those that are plain.
    #[tracing::instrument(skip_all, fields(queue = %queue.id), err(level = "debug"))]
    pub(super) async fn plain_tasks(
        &self,
        queue: &Queue,
        reading: Reading,
        is_plain: fn(&RawDocumentBuf) -> bool,
    ) -> Result<(usize, Option<ObjectId>, Vec<Candidate>), StoreError> {
        let mut filter = claimable(queue.id);
        filter.insert("_id", reading.past.map_or_else(any_id, |past| doc! { "$gt": past }));
        let index = doc! { "node": 1, "status": 1, "queue": 1, "_id": 1 };
        let found = self.by_index(index, filter, only(), doc! { "_id": 1 }, reading.limit).await?;
        let last = found.last().and_then(|task| task.get_object_id("_id").ok());
        let plain = found.iter().filter(|task| is_plain(task)).filter_map(candidate).collect();
        Ok((found.len(), last, plain))
    }

    pub(super) async fn by_index(
        &self,
        index: Document,
        filter: Document,
        only: Document,
        order: Document,
        limit: usize,
    ) -> Result<Vec<RawDocumentBuf>, StoreError> {
        let tasks: Collection<RawDocumentBuf> = self.tasks().clone_with_type();
        let limit = integer(limit);
        let find = || {
            let found = tasks.find(filter.clone()).projection(only.clone()).sort(order.clone());
            found.limit(limit).batch_size(BATCH_READ)
        };
        let found = match find().hint(Hint::Keys(index)).await.map_err(StoreError::from) {
            // Nobody has created it yet: the server finds another way.
            Err(error) if error.is_no_index() => find().await?,
            found => found?,
        };
        Ok(found.try_collect().await?)
    }

    #[tracing::instrument(skip_all, fields(queue = %queue), err(level = "debug"))]
    pub(crate) async fn running_by_group(
        &self,
        queue: QueueId,
    ) -> Result<HashMap<Arc<str>, Running>, StoreError> {
        // Neither what is no time nor one that cannot be reckoned with.
        let is_time = doc! { "$and": [
            { "$eq": [{ "$type": "$mtime" }, "date"] }, { "$gt": ["$mtime", DateTime::from_millis(0)] },
        ] };
        let since = doc! { "$cond": [
            is_time, { "$max": [0, { "$subtract": ["$$NOW", { "$min": ["$mtime", "$$NOW"] }] }] }, 0,
        ] };
        let pipeline = [
            doc! { "$match": { "queue": queue, "status": { "$in": [-1, 0] } } },
            doc! { "$group": {
                "_id": "$group", "running": { "$sum": 1 }, "places": { "$push": "$group_slot" },
                "ms": { "$sum": since },
            } },
        ];
        let found = collect(self.tasks().aggregate(pipeline)).await?;
        let mut groups: HashMap<Arc<str>, Running> = HashMap::new();
        for group in &found {
            // What is no text is no group, as nothing is.
            let name = group.get_str("_id").unwrap_or(NO_GROUP);
            groups.entry(Arc::from(name)).or_default().add(group);
        }
        Ok(groups)
    }
}

impl Running {
    fn add(&mut self, group: &Document) {
        let number = |field: &str| count_of(group, field).unwrap_or(0);
        self.places.running += number("running");
        self.seconds += number("ms") as f64 / 1000.0;
        let places = group.get_array("places").into_iter().flatten();
        let places = places.filter_map(whole_number).filter_map(|place| u64::try_from(place).ok());
        self.places.taken.extend(places);
    }
}

fn waiting_groups(queue: QueueId, names: Names<'_>, most: usize) -> Vec<Document> {
    let mut between = doc! { "$gt": "" };
    if let Some(from) = names.from.filter(|from| !from.is_empty()) {
        between = doc! { "$gte": from };
    }
    put(&mut between, "$lt", names.before);
    let first = |field: &str| doc! { "$first": format!("${field}") };
    vec![
        doc! { "$match": { "queue": queue, "status": Status::Queued, "group": between, "_id": any_id() } },
        doc! { "$sort": index_of_groups() },
        doc! { "$group": {
            "_id": "$group", "task": first("_id"), "priority": first("priority"), "again": first("again"),
        } },
        doc! { "$limit": integer(most.max(1)) },
    ]
}

fn tasks_of_group(queue: QueueId, want: &Want, range: Range) -> Vec<Document> {
    let mut filter =
        doc! { "queue": queue, "status": Status::Queued, "group": &*want.group, "_id": any_id() };
    if want.free {
        // As `claimable`, but in a way that leads the server to no other index.
        filter.insert("$expr", doc! { "$eq": [{ "$ifNull": ["$node", -1] }, -1] });
    }
    let mut bounds = Document::new();
    put(&mut bounds, "$gte", range.least);
    put(&mut bounds, "$lte", range.most);
    put(&mut filter, "priority", (!bounds.is_empty()).then_some(bounds));
    vec![
        doc! { "$match": filter },
        doc! { "$sort": index_of_groups() },
        doc! { "$limit": integer(want.limit.max(1)) },
        doc! { "$project": only() },
    ]
}

pub(super) fn has_no_group(task: &RawDocumentBuf) -> bool {
    group_of(task) == NO_GROUP
}

pub(super) fn has_no_priority(task: &RawDocumentBuf) -> bool {
    integer_of(task, "priority").is_none()
}

/// A task as it was read, by itself or as the first one of its group.
pub(super) fn candidate(document: &RawDocumentBuf) -> Option<Candidate> {
    let task = document.get_object_id("task").or_else(|_| document.get_object_id("_id")).ok()?;
    let priority = integer_of(document, "priority").unwrap_or(0);
    let again = matches!(document.get_bool("again"), Ok(true));
    Some(Candidate { task, priority, again })
}

fn integer_of(document: &RawDocumentBuf, field: &str) -> Option<i64> {
    let value = document.get(field).ok().flatten()?;
    whole_number(&Bson::try_from(value).ok()?)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn who_waits_is_asked_for_by_name() {
        let queue = QueueId(ObjectId::from_bytes([1; 12]));
        let asked =
            |names: Names<'_>| waiting_groups(queue, names, 5)[0].get_document("$match").unwrap().clone();
        let group = |names: Names<'_>| asked(names).get_document("group").unwrap().clone();
        assert_eq!(group(Names::default()), doc! { "$gt": "" });
        assert_eq!(group(Names { from: Some(""), before: Some("c") }), doc! { "$gt": "", "$lt": "c" });
        assert_eq!(group(Names { from: Some("b"), before: None }), doc! { "$gte": "b" });
    }

    #[test]
    fn a_class_is_asked_for_by_its_priorities() {
        let queue = QueueId(ObjectId::from_bytes([1; 12]));
        let scheme = Scheme::new(vec![3, 2, 1]).unwrap();
        let mut want = Want { group: Arc::from("a"), limit: 5, classes: BTreeSet::new(), free: false };
        let of = |want: &Want, range: Range| {
            tasks_of_group(queue, want, range)[0].get_document("$match").unwrap().clone()
        };
        let asked = |range: Range| of(&want, range);
        assert!(!asked(Range::default()).contains_key("priority"));
        let priority = |class: usize| asked(scheme.range(class)).get_document("priority").unwrap().clone();
        assert_eq!(
            [priority(0), priority(1), priority(2)],
            [doc! { "$gte": 2_i64 }, doc! { "$gte": 1_i64, "$lte": 1_i64 }, doc! { "$lte": 0_i64 },]
        );
        assert!(!asked(Range::default()).contains_key("$expr"), "the index alone tells all that is asked");
        want.free = true;
        assert!(of(&want, Range::default()).contains_key("$expr"));
    }

    #[test]
    fn odd_tasks_are_read_too() {
        let raw = |task| RawDocumentBuf::try_from(&task).unwrap();
        let id = ObjectId::from_bytes([3; 12]);
        let plain = Candidate { task: id, priority: 0, again: false };
        assert_eq!(candidate(&raw(doc! { "_id": id, "priority": "high", "again": 1 })), Some(plain));
        let other = ObjectId::from_bytes([4; 12]);
        let first = candidate(&raw(doc! { "_id": "g", "task": other, "priority": 5.0, "again": true }));
        assert_eq!(first, Some(Candidate { task: other, priority: 5, again: true }));
        assert_eq!(candidate(&raw(doc! { "_id": 7 })), None);
        assert!(has_no_group(&raw(doc! { "group": 1 })) && !has_no_group(&raw(doc! { "group": "a" })));
        assert!(
            has_no_priority(&raw(doc! { "priority": "x" })) && !has_no_priority(&raw(doc! { "priority": 0 }))
        );
    }
}
