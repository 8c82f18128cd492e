//! Tasks that there are because of another document: the server inserts them in the operation in which it sees that one.

use std::time::Duration;

use bson::{Document, doc};
use mongodb::Collection;

use crate::store::collections::TASKS;
use crate::store::{Store, StoreError, Stored, majority};

/// So long the server may take to insert tasks. It is far below the time after which others do it in the place of one who has died: an
/// insert that was broken off never comes after what others did because of that.
const INSERTING: Duration = Duration::from_secs(10);

impl Store {
    /// Inserts `task` if there is a document like `cause`.
    ///
    /// # Errors
    /// There is a task with its id (a duplicate key).
    pub(crate) async fn insert_because<T: Send + Sync>(
        &self,
        causes: &Collection<T>,
        cause: Document,
        task: Document,
    ) -> Result<(), StoreError> {
        let task = doc! { "$replaceWith": { "$literal": task } };
        self.insert_made(causes, vec![doc! { "$match": cause }, task]).await
    }

    /// Inserts the tasks that `pipeline` makes of documents in `causes`.
    ///
    /// # Errors
    /// One of them is there (a duplicate key), and maybe some are not that come after it.
    pub(super) async fn insert_made<T: Send + Sync>(
        &self,
        causes: &Collection<T>,
        mut pipeline: Vec<Document>,
    ) -> Result<(), StoreError> {
        pipeline.push(doc! { "$merge": {
            "into": TASKS.name, "on": "_id", "whenMatched": "fail", "whenNotMatched": "insert",
        } });
        let inserted = causes.aggregate(pipeline).with_type::<Stored>().write_concern(majority());
        let _nothing = inserted.max_time(INSERTING).await?;
        Ok(())
    }
}
