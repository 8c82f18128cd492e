//! Arrays that are done and whose tasks are all deleted: nobody needs them any more.

use disbatch_operation::operation;
use std::time::Duration;

use bson::{DateTime, Document, doc};
use futures::TryStreamExt;

use super::new_rev;
use crate::store::{Store, StoreError, Stored};

/// An array is looked at again after so long.
const EVERY: Duration = Duration::from_secs(3600);

/// So long the document of an array stays whose tasks are all gone: whoever submits it again with the same key is told of it,
/// for as long as a key is remembered.
pub(crate) const KEPT: Duration = Duration::from_secs(8 * 24 * 3600);

/// So many are looked at at once.
const AT_ONCE: i64 = 200;

impl Store {
    /// Notes which of the arrays that are done have no task any more, neither in `tasks` nor in the archive. The server removes
    /// their documents eight days later. Of many arrays those are looked at that nobody has looked at for the longest time.
    /// Returns how many were noted. A user who may not write to `arrays` notes none.
    #[operation]
    pub async fn note_empty_arrays(&self) -> Result<u64, StoreError> {
        match self.look_at_done_arrays().await {
            Err(error) if error.is_forbidden() => Ok(0),
            looked => looked,
        }
    }

    async fn look_at_done_arrays(&self) -> Result<u64, StoreError> {
        let arrays = self.arrays();
        let fields = doc! { "rev": 1, "final": 1, "looked": 1, "gone": 1 };
        let done = arrays.find(doc! { "state": "done" }).projection(fields);
        let found = done.sort(doc! { "looked": 1 }).limit(AT_ONCE).await?;
        let found: Vec<Stored> = found.try_collect().await?;
        let now = self.server_time().await?;
        let mut noted = 0;
        for array in found.iter().filter(|array| is_to_be_looked_at(array, now)) {
            let is_empty = !array.contains_key("gone") && self.has_no_task(array).await?;
            let mut set = doc! { "looked": "$$NOW" };
            if is_empty {
                set.extend(doc! { "gone": "$$NOW", "rev": new_rev() });
            }
            let same =
                doc! { "_id": array.get("_id").cloned(), "state": "done", "rev": array.get("rev").cloned() };
            let matched = arrays.update_one(same, vec![doc! { "$set": set }]).await?.matched_count;
            if is_empty {
                noted += matched;
            }
        }
        Ok(noted)
    }

    async fn has_no_task(&self, array: &Document) -> Result<bool, StoreError> {
        let (id, last) = (array.get("_id").cloned(), array.get("final").cloned());
        // A task is in both for a moment when it moves, to the archive or from there.
        for collection in [self.tasks(), self.archive(), self.tasks()] {
            let element = collection.find_one(doc! { "array.id": id.clone() }).projection(doc! { "_id": 1 });
            if element.await?.is_some() {
                return Ok(false);
            }
            if let Some(last) = &last
                && collection.find_one(doc! { "_id": last }).projection(doc! { "_id": 1 }).await?.is_some()
            {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

fn is_to_be_looked_at(array: &Document, now: DateTime) -> bool {
    let every = i64::try_from(EVERY.as_millis()).unwrap_or(i64::MAX);
    let looked = array.get_datetime("looked").map_or(i64::MIN, |looked| looked.timestamp_millis());
    looked.saturating_add(every) <= now.timestamp_millis()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array_is_looked_at_once_in_a_while() {
        let at = |seconds: i64| DateTime::from_millis(seconds * 1_000);
        assert!(is_to_be_looked_at(&doc! {}, at(0)));
        assert!(!is_to_be_looked_at(&doc! { "looked": at(0) }, at(3_599)));
        assert!(is_to_be_looked_at(&doc! { "looked": at(0) }, at(3_600)));
    }
}
