//! Inserts the elements of an array, a batch at a time. Whoever does it has the array as long as its lease lasts.
//!
//! The server inserts a batch in the operation in which it sees that the array has come to it (`next_index`), and until the array has come
//! to the next one, its elements are in doubt (`task/submit/noted.rs`) and so in `tasks`. So whoever inserts them once more, however late, makes
//! none again that has ended and left.

use disbatch_operation::operation;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use mongodb::options::ReturnDocument;

use super::items::{Items, element_id, final_id};
use crate::model::{ArrayId, QueueId, Status, TaskId, whole_number};
use crate::store::{Store, StoreError, put, with};
use crate::tags::{self, TagIndex};
use crate::task::transition::server_time_in;
use disbatch_metrics::labels::Source;

/// So long nobody else goes on with an array without a sign of progress.
const LEASE: Duration = Duration::from_secs(20);

/// So many elements are inserted at once.
const BATCH: u32 = 1_000;

/// They have so many bytes together at most, unless a single one has more: each has all parameters of its array, and they are copied on the
/// way.
const MOST_BYTES: usize = 4 * 1024 * 1024;

/// So many arrays that somebody else has left are filled in a row.
const IN_A_ROW: u64 = 20;

struct Filling {
    id: ArrayId,
    queue: QueueId,
    next: u32,
    count: u32,
    key: String,
    params: Document,
    items: Items,
    template: Document,
    /// Which of its parameters are tags of an element.
    tag_index: TagIndex,
    last: Option<Document>,
    /// The bytes of what each element has of its array.
    bytes_of_each: usize,
}

fn bytes_of(document: &Document) -> usize {
    bson::serialize_to_vec(document).map_or(0, |bytes| bytes.len())
}

pub(crate) fn first_lease(now: DateTime) -> DateTime {
    now.saturating_add_duration(LEASE)
}

/// The tasks of an array that is being filled that may be there although that is not noted: those of a batch.
pub(crate) fn in_doubt(array: &Document) -> Vec<ObjectId> {
    let next = array.get("next_index").and_then(whole_number).and_then(|next| u32::try_from(next).ok());
    let Some((id, next)) = array.get_object_id("_id").ok().map(ArrayId).zip(next) else { return Vec::new() };
    let last = (next == 0).then(|| final_id(id));
    let count = array.get("count").and_then(whole_number).and_then(|count| u32::try_from(count).ok());
    let elements =
        (next..next.saturating_add(BATCH).min(count.unwrap_or(u32::MAX))).map(|place| element_id(id, place));
    elements.chain(last).map(|task| task.0).collect()
}

impl Filling {
    fn stored(array: &Document) -> Option<Self> {
        let number = |name: &str| array.get(name).and_then(whole_number).and_then(|n| u32::try_from(n).ok());
        let params = array.get_document("params").ok()?.clone();
        let template = array.get_document("template").ok()?.clone();
        Some(Self {
            id: ArrayId(array.get_object_id("_id").ok()?),
            queue: QueueId(array.get_object_id("queue").ok()?),
            next: number("next_index")?,
            count: number("count")?,
            key: array.get_str("key").ok()?.to_owned(),
            bytes_of_each: bytes_of(&params) + bytes_of(&template),
            params,
            items: Items::stored(array.get_document("items").ok()?)?,
            template,
            tag_index: TagIndex::stored(array.get(tags::INDEX)),
            last: array.get_document("last").ok().cloned(),
        })
    }

    /// Matches the array as long as nobody has noted more.
    fn same(&self) -> Document {
        doc! { "_id": self.id, "filling": true, "next_index": i64::from(self.next) }
    }

    /// The elements from this place on: at most so many, of at most so many bytes, and one at least if there are any.
    fn elements(&self, from: u32, now: DateTime) -> Vec<Document> {
        let batch = usize::try_from(BATCH).unwrap_or(usize::MAX);
        let places = (from..self.count).take(batch);
        let (mut elements, mut bytes) = (Vec::new(), 0_usize);
        for (place, item) in places.zip(self.items.starting_at(from)) {
            // An element has its item twice: in its parameters and beside its place.
            bytes += self.bytes_of_each + 2 * bytes_of(&doc! { "value": &item });
            if bytes > MOST_BYTES && !elements.is_empty() {
                break;
            }
            elements.push(self.element(place, item, now));
        }
        elements
    }

    fn element(&self, place: u32, item: Bson, now: DateTime) -> Document {
        let mut params = self.params.clone();
        params.insert(&self.key, item.clone());
        let mut array = doc! { "id": self.id.0, "index": i64::from(place) };
        put(&mut array, "value", (item != Bson::Int64(i64::from(place))).then_some(item));
        let mut element = with(doc! { "_id": element_id(self.id, place).0 }, self.template.clone());
        element.extend(doc! { "params": params, "array": array, "ctime": now, "mtime": now });
        self.tag_index.mark(&mut element);
        element
    }
}

impl Store {
    /// Inserts what is missing of an array. If that fails, a DEN goes on later.
    #[operation(array = %id)]
    pub async fn fill_array(&self, id: ArrayId) -> Result<(), StoreError> {
        loop {
            let filling = doc! { "_id": id, "filling": true };
            let Some(array) = self.arrays().find_one(filling).await? else { return Ok(()) };
            if self.fill(&array).await? {
                return Ok(());
            }
        }
    }

    /// Fills arrays that somebody has begun and left. Returns how many.
    pub(super) async fn fill_left(&self) -> Result<u64, StoreError> {
        let left = doc! {
            "work": true, "filling": true, "$expr": { "$lte": ["$lease_until", "$$NOW"] },
        };
        let take = vec![doc! { "$set": { "lease_until": server_time_in(LEASE) } }];
        let arrays = self.arrays();
        for filled in 0..IN_A_ROW {
            let taken = arrays.find_one_and_update(left.clone(), take.clone());
            let Some(array) = taken.return_document(ReturnDocument::After).await? else { return Ok(filled) };
            match self.fill(&array).await {
                Ok(true) => {
                    tracing::info!(array = ?array.get("_id"), "elements of an array were missing: inserted");
                }
                Ok(false) => {}
                Err(error) if error.is_transient() || error.is_forbidden() => return Err(error),
                // The others are not to wait for one that the server refuses. It is tried again after a lease.
                Err(error) => {
                    tracing::error!(%error, array = ?array.get("_id"), "elements of an array cannot be inserted");
                }
            }
        }
        Ok(IN_A_ROW)
    }

    /// Goes on with an array that was read just now. Returns whether all is done; else somebody else has got on with it
    /// meanwhile.
    async fn fill(&self, array: &Document) -> Result<bool, StoreError> {
        let Some(mut filling) = Filling::stored(array) else {
            tracing::error!(array = ?array.get("_id"), "an array cannot be understood: it stays as it is");
            // Nobody can do anything about it, and it is not looked at again.
            let odd = doc! { "_id": array.get("_id").cloned() };
            self.arrays().update_one(odd, doc! { "$unset": { "work": "", "filling": "" } }).await?;
            return Ok(true);
        };
        if filling.next == 0
            && let Some(last) = filling.last.take()
        {
            self.insert_of_array(&filling, vec![last]).await?;
        }
        loop {
            let elements = filling.elements(filling.next, self.now());
            let inserted = u32::try_from(elements.len()).unwrap_or(u32::MAX);
            if inserted > 0 {
                self.insert_of_array(&filling, elements).await?;
            }
            let next = filling.next.saturating_add(inserted);
            let is_last = next >= filling.count || inserted == 0;
            if !self.move_on(&filling, next, is_last).await? {
                // What was counted here may be what the other one has inserted.
                self.doubt_counters();
                return Ok(false);
            }
            if is_last {
                return Ok(true);
            }
            filling.next = next;
        }
    }

    /// Notes that there are all elements up to this one, unless somebody else has noted more.
    async fn move_on(&self, filling: &Filling, next: u32, is_last: bool) -> Result<bool, StoreError> {
        let set = doc! { "next_index": i64::from(next), "lease_until": server_time_in(LEASE) };
        let mut update = vec![doc! { "$set": set }];
        if is_last {
            let of_filling = ["filling", "lease_until", "template", "items", "params", tags::INDEX, "last"];
            update.push(doc! { "$unset": of_filling.to_vec() });
        }
        Ok(self.arrays().update_one(filling.same(), update).await?.matched_count == 1)
    }

    /// Inserts tasks that are alike, some of which may be there, if nobody has noted more.
    async fn insert_of_array(&self, filling: &Filling, tasks: Vec<Document>) -> Result<(), StoreError> {
        let status = tasks.first().and_then(Status::stored);
        let ids = tasks.iter().filter_map(|task| task.get_object_id("_id").ok());
        let ids: Vec<TaskId> = ids.map(TaskId).collect();
        let inserted = self.insert_missing_because(&self.arrays(), &filling.same(), tasks).await;
        if inserted.inspect_err(|_| self.doubt_counters())? {
            self.submitted(filling.queue, status, ids.len() as u64, Source::Array);
        } else {
            // Which of them were there, and counted, nobody knows.
            self.doubt_counters();
        }
        if status == Some(Status::Blocked) {
            self.link_at_once(&ids).await;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

    use super::*;

    fn filling(items: Items) -> Filling {
        Filling {
            id: super::super::new_id(),
            queue: QueueId(ObjectId::new()),
            next: 0,
            count: items.count(),
            key: "item".to_owned(),
            params: doc! { "command": "x" },
            items,
            template: doc! { "status": -2, "timeout": 5, "tags": ["a"] },
            tag_index: TagIndex::of(vec!["params.item".to_owned()]).unwrap(),
            last: None,
            bytes_of_each: 0,
        }
    }

    #[test]
    fn an_element_has_its_item_among_its_parameters() {
        let filling = filling(Items::parse("0,7").unwrap().0);
        let elements = filling.elements(0, DateTime::from_millis(5));
        assert_eq!(elements.len(), 2);
        assert_eq!(elements[1].get_object_id("_id").unwrap(), element_id(filling.id, 1).0);
        assert_eq!(elements[0].get_document("params").unwrap(), &doc! { "command": "x", "item": 0_i64 });
        assert_eq!(elements[0].get_document("array").unwrap(), &doc! { "id": filling.id, "index": 0_i64 });
        let second = doc! { "id": filling.id, "index": 1_i64, "value": 7_i64 };
        assert_eq!(elements[1].get_document("array").unwrap(), &second);
        assert_eq!(elements[1].get_i32("timeout").unwrap(), 5);
        assert_eq!(elements[1].get("tags"), Some(&Bson::from(["a", "item=7"].as_slice())));
    }

    #[test]
    fn all_that_a_batch_has_is_in_doubt() {
        let filling = filling(Items::parse("0-2499").unwrap().0);
        let in_doubt =
            |next: i64| in_doubt(&doc! { "_id": filling.id, "next_index": next, "count": 2_500_i64 });
        for from in [0_u32, 1_000, 2_000] {
            let doubted = in_doubt(from.into());
            for element in filling.elements(from, DateTime::from_millis(0)) {
                assert!(doubted.contains(&element.get_object_id("_id").unwrap()), "{from}: {element}");
            }
            assert_eq!(doubted.contains(&final_id(filling.id).0), from == 0);
        }
        assert!(!in_doubt(1_000).contains(&element_id(filling.id, 999).0));
        assert!(super::in_doubt(&doc! { "_id": filling.id }).is_empty());
    }

    #[test]
    fn batches_have_all_elements_once() {
        let filling = filling(Items::parse("0-2499").unwrap().0);
        let at = DateTime::from_millis(0);
        let sizes = [0, 1_000, 2_000, 2_500].map(|from| filling.elements(from, at).len());
        assert_eq!(sizes, [1_000, 1_000, 500, 0]);
    }

    #[test]
    fn large_elements_come_in_small_batches() {
        let at = DateTime::from_millis(0);
        let of = |bytes_of_each, items: &str| {
            let filling = Filling { bytes_of_each, ..filling(Items::parse(items).unwrap().0) };
            filling.elements(0, at).len()
        };
        let third = MOST_BYTES / 3 - 100;
        assert_eq!((of(third, "0-9"), of(MOST_BYTES, "0-9"), of(2 * MOST_BYTES, "0-9")), (3, 1, 1));
        let values = vec![Bson::from("x".repeat(MOST_BYTES / 4)); 5];
        let values = filling(Items::of(values).unwrap());
        assert_eq!(values.elements(0, at).len(), 1, "the item is in an element twice");
        let stored = doc! {
            "_id": values.id, "queue": values.queue, "next_index": 0, "count": 5, "key": "item",
            "params": { "text": "x".repeat(500) }, "template": { "status": -2 }, "items": values.items.document(),
        };
        assert!(Filling::stored(&stored).unwrap().bytes_of_each > 500);
    }
}
