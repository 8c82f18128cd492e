//! An array whose elements are tried again is open again.

use disbatch_operation::operation;
use std::time::Duration;

use bson::doc;

use super::{Array, millis, new_rev};
use crate::model::ArrayId;
use crate::store::{Store, StoreError};

/// So long an array stays open that nobody has said more about.
const HELD: Duration = Duration::from_secs(60);

/// How often it is tried to open an array that somebody else changes at the same time.
const TRIES: usize = 5;

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reopened {
    /// It is open for a minute at least, or until it is told what keeps it open: see [`Store::hold_array`].
    Open,
    /// Others have changed it again and again.
    Busy,
    NoSuchArray,
}

impl Store {
    /// Opens an array again, so that some of its elements can be tried again before it is done. Elements that are missing are
    /// inserted before that.
    #[operation(array = %id)]
    pub async fn reopen_array(&self, id: ArrayId) -> Result<Reopened, StoreError> {
        for _ in 0..TRIES {
            self.fill_array(id).await?;
            let Some(stored) = self.arrays().find_one(doc! { "_id": id }).await? else {
                return Ok(Reopened::NoSuchArray);
            };
            let Some(array) = Array::stored(&stored) else { return Ok(Reopened::NoSuchArray) };
            if stored.get_bool("last_due").unwrap_or(false) {
                self.settle_last(&array, stored.get("rev")).await?;
                continue;
            }
            let same = doc! { "_id": id, "rev": stored.get("rev").cloned(), "filling": { "$exists": false } };
            let until = doc! { "$add": ["$$NOW", millis(HELD)] };
            let open = doc! { "state": "open", "work": true, "hold_until": until, "rev": new_rev() };
            let unset = ["ended", "succeeded", "counts", "last_due", "gone"];
            let update = vec![doc! { "$set": open }, doc! { "$unset": unset.to_vec() }];
            if self.arrays().update_one(same, update).await?.matched_count == 1 {
                return Ok(Reopened::Open);
            }
        }
        Ok(Reopened::Busy)
    }
}
