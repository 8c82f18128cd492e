//! What a task was submitted with, for a new one like it.

use std::time::Duration;

use bson::{Bson, Document};

use super::TaskOptions;
use crate::gates::LockRequest;
use crate::inbox::REFUSED;
use crate::model::{FILES, SHADOW_OF, STEPS, Step, Task, TaskFiles, number, whole_number};
use crate::secrets::Sealed;
use crate::tags;

impl TaskOptions {
    /// What was asked for of `task`, save what was for that one time: when it was to start and to have ended, those that it came
    /// after, and its place in an array.
    ///
    /// # Errors
    /// Something is stored in a way that this release does not know. Says what.
    pub fn of_task(task: &Task) -> Result<Self, String> {
        let field = |name: &str| task.rest.get(name);
        let text = |name: &str| field(name).and_then(Bson::as_str).map(str::to_owned);
        if field(REFUSED).is_some() {
            return Err("it was refused".to_owned());
        }
        if field(SHADOW_OF).is_some() {
            // A new one would not be without effects.
            return Err("it is the shadow of another task".to_owned());
        }
        let seconds = |name: &str| {
            let seconds = field(name).and_then(number);
            seconds.and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        };
        Ok(Self {
            timeout: seconds("timeout"),
            grace: seconds("grace"),
            max_attempts: field("max_attempts").and_then(whole_number),
            backoff: field("backoff").and_then(Bson::as_document).cloned(),
            unique: text("unique"),
            group: text("group"),
            priority: field("priority").and_then(whole_number),
            locks: locks(&task.rest)?,
            secure_params: Sealed::of(task).map_err(|error| error.to_string())?,
            steps: Step::of_field(field(STEPS))?,
            files: TaskFiles::of_field(field(FILES))?,
            tenant: text("tenant"),
            tags: tags::stored(field(tags::TAGS)),
            ..Self::default()
        })
    }
}

/// Its locks, save those of its array and its schedule.
fn locks(task: &Document) -> Result<Vec<LockRequest>, String> {
    let stored = task.get_array("locks").map(Vec::as_slice).unwrap_or_default();
    let is_own = |text: &&str| !text.starts_with("array:") && !text.starts_with("schedule:");
    let own = stored.iter().filter_map(Bson::as_str).filter(is_own);
    LockRequest::list(own).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{DateTime, doc};

    use super::*;

    fn of(fields: Document) -> Result<TaskOptions, String> {
        let mut task = doc! { "_id": ObjectId::new(), "queue": ObjectId::new(), "status": 2 };
        task.extend(fields);
        TaskOptions::of_task(&bson::deserialize_from_document(task).unwrap())
    }

    #[test]
    fn what_was_asked_for_is_asked_for_again() {
        let asked = doc! {
            "timeout": 90_i64, "grace": 1.5, "max_attempts": 3_i64, "unique": "k", "group": "a/b", "priority": 5_i64,
            "tenant": "a", "locks": ["db", "r/2"],
            "steps": [{ "name": "get", "params": { "a": 1 }, "status": -2 }], "tags": ["a=1", "b"],
        };
        assert_eq!(of(asked.clone()).unwrap().fields(), asked);
    }

    #[test]
    fn what_was_for_that_one_time_is_not() {
        let once = doc! {
            "deadline": DateTime::MAX, "run_at": DateTime::MAX, "after": [ObjectId::new()], "attempt": 3,
            "locks": ["array:6b/4", "schedule:x"], "schedule": ObjectId::new(), "history": [],
        };
        assert_eq!(of(once), Ok(TaskOptions::default()));
        assert!(of(doc! { "steps": 5 }).unwrap_err().contains("steps"));
    }
}
