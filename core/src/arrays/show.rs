//! Arrays as they are shown: how many elements are in which status, and where these are.

use disbatch_operation::operation;
use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};

use super::items::element_id;
use super::{Array, ArrayState};
use crate::model::{ArrayId, QueueId, Status, TaskId, date_time, whole_number};
use crate::store::{Store, StoreError, collect, put};

const COUNTING: Duration = Duration::from_secs(5);

/// How many elements are in which status. Those that were archived are among them, those that were deleted are not.
pub type Counts = BTreeMap<i64, i64>;

/// An array of a list, and its counts, if they are known.
pub type ArrayRow = (Array, Option<Counts>);

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ArrayFilter {
    pub queues: Option<Vec<QueueId>>,
    pub state: Option<ArrayState>,
    /// Older than this one: for the next page.
    pub before: Option<ArrayId>,
}

impl ArrayFilter {
    fn document(&self) -> Document {
        let mut filter = Document::new();
        put(&mut filter, "queue", self.queues.as_ref().map(|queues| doc! { "$in": queues }));
        put(&mut filter, "state", self.state.map(ArrayState::as_str));
        put(&mut filter, "_id", self.before.map(|before| doc! { "$lt": before }));
        filter
    }
}

/// So many elements of a stretch of an array are in this status.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cell {
    /// Which stretch, counted from 0.
    pub number: u32,
    pub status: Status,
    pub tasks: i64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Element {
    pub id: TaskId,
    /// Its place, counted from 0.
    pub index: u32,
    /// What it is for, as far as it is known.
    pub value: Option<Bson>,
    /// Its status. `None`: there is no such task, not yet or not any more.
    pub status: Option<Status>,
    /// Where it runs, or ran last.
    pub node: Option<String>,
    pub started: Option<DateTime>,
    /// How its plugin ended: `code`, `signal` and `duration`.
    pub exit: Option<Document>,
}

impl Element {
    fn missing(id: TaskId, index: u32) -> Self {
        Self { id, index, value: None, status: None, node: None, started: None, exit: None }
    }

    /// A task as stored, with the fields of [`fields`].
    fn of(task: &Document) -> Option<Self> {
        let of_array = task.get_document("array").ok()?;
        Some(Self {
            id: TaskId(task.get_object_id("_id").ok()?),
            index: u32::try_from(of_array.get("index").and_then(whole_number)?).ok()?,
            value: of_array.get("value").or_else(|| of_array.get("index")).cloned(),
            status: Status::stored(task),
            node: task.get_str("node").ok().map(str::to_owned),
            started: task.get("started").and_then(date_time),
            exit: task.get_document("exit").ok().cloned(),
        })
    }
}

fn fields() -> Document {
    let mut fields = doc! { "status": 1, "array": 1, "node": 1, "started": 1 };
    fields.extend(["code", "signal", "duration"].map(|name| (format!("exit.{name}"), 1.into())));
    fields
}

impl Store {
    #[operation(array = %id)]
    pub async fn find_array(&self, id: ArrayId) -> Result<Option<Array>, StoreError> {
        let found = self.arrays().find_one(doc! { "_id": id }).projection(without_tasks()).await?;
        Ok(found.and_then(|array| Array::stored(&array)))
    }

    /// Arrays, the latest first.
    #[operation]
    pub async fn list_arrays(&self, filter: &ArrayFilter, limit: i64) -> Result<Vec<ArrayRow>, StoreError> {
        let arrays = self.arrays();
        let found = arrays.find(filter.document()).projection(without_tasks()).sort(doc! { "_id": -1 });
        let found = collect(found.limit(limit)).await?;
        let known: HashMap<ArrayId, Counts> = found.iter().filter_map(noted_counts).collect();
        let arrays: Vec<Array> = found.iter().filter_map(Array::stored).collect();
        let open: Vec<ArrayId> =
            arrays.iter().map(|array| array.id).filter(|id| !known.contains_key(id)).collect();
        let counted = self.count_elements(&open).await?;
        let row = |array: Array| {
            let of_open = || counted.as_ref().map(|all| all.get(&array.id).cloned().unwrap_or_default());
            let counts = known.get(&array.id).cloned().or_else(of_open);
            (array, counts)
        };
        Ok(arrays.into_iter().map(row).collect())
    }

    /// How many elements of arrays are in which status. `None`: counting takes too long.
    #[operation]
    pub async fn count_elements(
        &self,
        arrays: &[ArrayId],
    ) -> Result<Option<HashMap<ArrayId, Counts>>, StoreError> {
        let mut all: HashMap<ArrayId, Counts> = HashMap::new();
        if arrays.is_empty() {
            return Ok(Some(all));
        }
        for collection in [self.tasks(), self.archive()] {
            let pipeline = [
                doc! { "$match": { "array.id": { "$in": arrays.to_vec() } } },
                doc! { "$group": {
                    "_id": { "array": "$array.id", "status": "$status" }, "tasks": { "$sum": 1_i64 },
                } },
            ];
            let found = collect(collection.aggregate(pipeline).max_time(COUNTING)).await;
            let Some(found) = StoreError::unless_out_of_time(found)? else { return Ok(None) };
            for group in &found {
                let Ok(key) = group.get_document("_id") else { continue };
                let numbers = status_and_tasks(key, group);
                if let (Ok(array), Some((status, tasks))) = (key.get_object_id("array"), numbers) {
                    *all.entry(ArrayId(array)).or_default().entry(status).or_insert(0) += tasks;
                }
            }
        }
        Ok(Some(all))
    }

    /// How many elements are in which status in each stretch of so many elements.
    #[operation(array = %id)]
    pub async fn array_cells(&self, id: ArrayId, size: u32) -> Result<Vec<Cell>, StoreError> {
        let stretch = doc! { "$floor": { "$divide": ["$array.index", i64::from(size.max(1))] } };
        let mut cells = Vec::new();
        for collection in [self.tasks(), self.archive()] {
            let pipeline = [
                doc! { "$match": { "array.id": id } },
                doc! { "$group": {
                    "_id": { "number": { "$toLong": &stretch }, "status": "$status" }, "tasks": { "$sum": 1_i64 },
                } },
            ];
            let found = collect(collection.aggregate(pipeline).max_time(COUNTING)).await?;
            cells.extend(found.iter().filter_map(cell));
        }
        Ok(cells)
    }

    /// The elements from this place on, at most so many.
    #[operation(array = %array.id)]
    pub async fn array_elements(
        &self,
        array: &Array,
        from: u32,
        limit: u32,
    ) -> Result<Vec<Element>, StoreError> {
        let until = from.saturating_add(limit).min(array.count);
        let ids: Vec<TaskId> = (from..until).map(|place| element_id(array.id, place)).collect();
        let mut known: HashMap<TaskId, Element> = HashMap::new();
        for collection in [self.archive(), self.tasks()] {
            let found =
                collect(collection.find(doc! { "_id": { "$in": ids.clone() } }).projection(fields())).await?;
            known.extend(found.iter().filter_map(Element::of).map(|element| (element.id, element)));
        }
        let element = |(index, id): (u32, TaskId)| {
            let known = known.remove(&id).unwrap_or_else(|| Element::missing(id, index));
            Element { index, ..known }
        };
        Ok((from..until).zip(ids).map(element).collect())
    }

    /// The elements with this status from this place on, at most so many. Found by an index.
    #[operation(array = %array.id)]
    pub async fn array_elements_with(
        &self,
        array: &Array,
        status: Status,
        from: u32,
        limit: u32,
    ) -> Result<Vec<Element>, StoreError> {
        let mut all = Vec::new();
        for collection in [self.tasks(), self.archive()] {
            let these = doc! {
                "array.id": array.id, "status": status, "array.index": { "$gte": i64::from(from) },
            };
            let found = collection.find(these).projection(fields()).sort(doc! { "array.index": 1 });
            let found = collect(found.limit(i64::from(limit))).await?;
            all.extend(found.iter().filter_map(Element::of));
        }
        all.sort_by_key(|element| element.index);
        // One that is being moved to the archive is there twice.
        all.dedup_by_key(|element| element.id);
        all.truncate(usize::try_from(limit).unwrap_or(usize::MAX));
        Ok(all)
    }
}

/// All but what the tasks are made of, which may be much, and secret.
fn without_tasks() -> Document {
    doc! { "template": 0, "items": 0, "params": 0, "last": 0 }
}

fn status_and_tasks(key: &Document, group: &Document) -> Option<(i64, i64)> {
    key.get("status").and_then(whole_number).zip(group.get("tasks").and_then(whole_number))
}

/// What was noted when the array was done.
fn noted_counts(array: &Document) -> Option<(ArrayId, Counts)> {
    let id = ArrayId(array.get_object_id("_id").ok()?);
    let count = |group: &Bson| group.as_document().and_then(|group| status_and_tasks(group, group));
    let counts: Option<Counts> = array.get_array("counts").ok()?.iter().map(count).collect();
    Some((id, counts?))
}

fn cell(group: &Document) -> Option<Cell> {
    let key = group.get_document("_id").ok()?;
    Some(Cell {
        number: u32::try_from(key.get("number").and_then(whole_number)?).ok()?,
        status: Status::stored(key)?,
        tasks: group.get("tasks").and_then(whole_number)?,
    })
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

    use super::*;

    #[test]
    fn counts_that_were_noted_are_read() {
        let id = ObjectId::new();
        let noted =
            doc! { "_id": id, "counts": [{ "status": 1, "tasks": 5_i64 }, { "status": 2_i64, "tasks": 1 }] };
        assert_eq!(noted_counts(&noted), Some((ArrayId(id), Counts::from([(1, 5), (2, 1)]))));
        assert_eq!(noted_counts(&doc! { "_id": id }), None);
        assert_eq!(noted_counts(&doc! { "_id": id, "counts": [5] }), None);
    }

    #[test]
    fn an_element_is_read_as_far_as_it_goes() {
        let (id, at) = (ObjectId::new(), DateTime::from_millis(5_000));
        let task = doc! {
            "_id": id, "status": 2, "node": "n", "started": at, "array": { "index": 3, "value": "x" }, "exit": { "code": 1 },
        };
        let read = Element::of(&task).unwrap();
        assert_eq!((read.index, read.value, read.status), (3, Some("x".into()), Some(Status::Failed)));
        assert_eq!((read.node.as_deref(), read.started), (Some("n"), Some(at)));
        let odd = Element::of(&doc! { "_id": id, "status": "done", "array": { "index": 3 }, "exit": 5 });
        let missing = Element::missing(TaskId(id), 3);
        assert_eq!(odd, Some(Element { value: Some(3.into()), ..missing }));
        assert_eq!(Element::of(&doc! { "_id": id, "array": { "index": -1 } }), None);
    }

    #[test]
    fn a_cell_tells_where_how_many_are_how() {
        let group = doc! { "_id": { "number": 3_i64, "status": 1 }, "tasks": 7_i64 };
        assert_eq!(cell(&group), Some(Cell { number: 3, status: Status::Succeeded, tasks: 7 }));
        assert_eq!(cell(&doc! { "_id": { "number": Bson::Null, "status": 1 }, "tasks": 7_i64 }), None);
    }
}
