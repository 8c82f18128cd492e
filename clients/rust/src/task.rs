//! Tasks as the methods return them.

use std::ops::Index;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::error::{Error, Result};

/// A task. `task["stdout"]` is any other field that the REST API has, null if the task has none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Task {
    pub id: String,
    /// The id of its queue.
    #[serde(default)]
    pub queue: String,
    pub status: i64,
    /// The status in a word.
    #[serde(default)]
    pub word: String,
    /// Whether it is over.
    #[serde(default)]
    pub ended: bool,
    #[serde(default)]
    pub params: Value,
    /// Its other fields.
    #[serde(flatten)]
    pub fields: Map<String, Value>,
}

impl Task {
    /// A task with plain ids, and its status in a word, as the other answers have it.
    pub(crate) fn read(stored: Value) -> Result<Self> {
        let wrong = |why: &str| Error::Protocol(format!("the answer is no task: {why}"));
        let Value::Object(mut stored) = stored else { return Err(wrong("it is no object")) };
        for (old, new) in [("_id", "id"), ("queue", "queue")] {
            let Some(mut value) = stored.remove(old) else { continue };
            if let Some(id) = value.get_mut("$oid") {
                value = id.take();
            }
            stored.insert(new.to_owned(), value);
        }
        let mut task: Self =
            serde_json::from_value(stored.into()).map_err(|error| wrong(&error.to_string()))?;
        (task.word, task.ended) = (word(task.status).to_owned(), has_ended(task.status));
        Ok(task)
    }
}

impl Index<&str> for Task {
    type Output = Value;

    fn index(&self, name: &str) -> &Value {
        self.fields.get(name).unwrap_or(&Value::Null)
    }
}

fn word(status: i64) -> &'static str {
    match status {
        -7 => "deferred",
        -6 => "orphaned",
        -5 => "cancelled",
        -4 => "blocked",
        -3 => "terminated",
        -2 => "queued",
        -1 => "claimed",
        0 => "running",
        1 => "succeeded",
        2 => "failed",
        3.. => "finished",
        ..=-8 => "held",
    }
}

fn has_ended(status: i64) -> bool {
    status > 0 || matches!(status, -6 | -5 | -3)
}

#[cfg(test)]
mod tests {
    use disbatch_values::status::Status;
    use serde_json::json;

    use super::*;

    #[test]
    fn statuses_are_those_of_the_server() {
        for status in Status::NAMED.into_iter().chain([-8, 3].map(Status::Other)) {
            assert_eq!(word(status.code()), status.word());
            assert_eq!(has_ended(status.code()), status.has_ended(), "{}", status.word());
        }
    }

    #[test]
    fn a_task_has_all_that_the_server_says() {
        let task = Task::read(
            json!({"_id": {"$oid": "a"}, "queue": {"$oid": "b"}, "status": 2, "exit": {"code": 1}}),
        );
        let task = task.unwrap();
        assert_eq!(
            (task.id.as_str(), task.queue.as_str(), task.word.as_str(), task.ended),
            ("a", "b", "failed", true)
        );
        assert_eq!((&task["exit"]["code"], &task["node"]), (&json!(1), &Value::Null));
        for wrong in [json!([]), json!({"status": 1}), json!({"id": "a", "status": "x"})] {
            assert_eq!(Task::read(wrong).unwrap_err().code(), "protocol");
        }
    }
}
