//! The runs of a schedule: its tasks.

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::model::{Moment, Status, whole_number};
use disbatch_core::store::{Store, StoreError};
use disbatch_core::task::TaskQuery;

/// A task of a schedule, as far as it can be understood.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    pub task: Option<ObjectId>,
    pub queue: Option<ObjectId>,
    /// Its status.
    pub code: Option<i64>,
    pub time: Option<DateTime>,
    pub started: Option<DateTime>,
    /// When it ended, if it has.
    pub ended: Option<DateTime>,
    /// Where it ran.
    pub node: Option<Bson>,
    /// Somebody has asked for it.
    pub asked_for: bool,
}

impl Run {
    pub fn of(task: &Document) -> Self {
        let time = |field: &str| task.get(field).and_then(|value| Moment(value.clone()).get());
        let code = task.get("status").and_then(whole_number);
        let has_ended = code.is_some_and(|code| Status::from_code(code).has_ended());
        Self {
            task: task.get_object_id("_id").ok(),
            queue: task.get_object_id("queue").ok(),
            code,
            time: time("scheduled_for"),
            started: time("started"),
            ended: time("mtime").filter(|_| has_ended),
            node: task.get("node").cloned(),
            asked_for: task.get_bool("asked_for").unwrap_or(false),
        }
    }

    pub fn id(&self) -> String {
        self.task.map(|id| id.to_hex()).unwrap_or_default()
    }
}

/// The last runs that are like this, the latest first.
pub async fn find(
    store: &Store,
    filter: Document,
    limit: i64,
    archive: bool,
) -> Result<Vec<Run>, StoreError> {
    let fields = doc! {
        "queue": 1, "status": 1, "scheduled_for": 1, "started": 1, "mtime": 1, "node": 1, "asked_for": 1,
    };
    let query = TaskQuery {
        filter,
        limit: Some(limit),
        projection: Some(fields),
        sort: Some(doc! { "scheduled_for": -1 }),
        archive,
        ..TaskQuery::default()
    };
    Ok(store.search_tasks(query).await?.iter().map(Run::of).collect())
}
