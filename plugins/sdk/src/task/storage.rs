//! What a plugin saves for the next run of its task's schedule, and what it is told of earlier runs.

use serde::Serialize;
use serde_json::{Value, json};

use super::Task;
use crate::Error;

/// More is refused.
pub const MAX_STORAGE_BYTES: usize = 1024 * 1024;

impl Task {
    /// What the plugin saved last with [`save_storage`](Self::save_storage): in an earlier run of the task's schedule, in an
    /// earlier attempt of this task, or in an earlier step. Null if there is nothing. What this run saves does not change it.
    ///
    /// ```
    /// let task: disbatch_plugin::Task = r#"{"storage":{"cursor":7}}"#.parse()?;
    /// assert_eq!(task.storage()["cursor"], 7);
    /// # Ok::<(), disbatch_plugin::Error>(())
    /// ```
    pub fn storage(&self) -> &Value {
        self.document().get("storage").unwrap_or(&Value::Null)
    }

    /// Saves a value for the next run of the task's schedule, at most [`MAX_STORAGE_BYTES`] of it. The last call wins. It is
    /// kept also if the task fails afterwards.
    ///
    /// ```
    /// # let mut task: disbatch_plugin::Task = "{}".parse()?;
    /// task.save_storage(serde_json::json!({ "cursor": 8 }))?;
    /// # Ok::<(), disbatch_plugin::Error>(())
    /// ```
    ///
    /// # Errors
    /// It is too large, or does not serialise.
    pub fn save_storage(&mut self, storage: impl Serialize) -> Result<(), Error> {
        let storage = serde_json::to_value(storage).map_err(|error| Error::Storage(error.to_string()))?;
        let size = storage.to_string().len();
        if size > MAX_STORAGE_BYTES {
            return Err(Error::Storage(format!("must have at most {MAX_STORAGE_BYTES} bytes, got {size}")));
        }
        self.control.send(&json!({ "storage": storage }));
        Ok(())
    }

    /// When the newest run of the task's schedule that succeeded began, as `2026-11-20T08:24:27.344Z`. None if there was
    /// none.
    pub fn last_success_start(&self) -> Option<String> {
        self.variable("LAST_SUCCESS_START").filter(|time| !time.is_empty())
    }

    /// When that run ended.
    pub fn last_success_finish(&self) -> Option<String> {
        self.variable("LAST_SUCCESS_FINISH").filter(|time| !time.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sent;
    use super::*;

    #[test]
    fn storage_is_any_value_of_limited_size() {
        let lines = sent(|task| {
            task.save_storage([1, 2]).unwrap();
            task.save_storage(Value::Null).unwrap();
            let error = task.save_storage("x".repeat(MAX_STORAGE_BYTES)).unwrap_err();
            assert_eq!(error.to_string(), "storage must have at most 1048576 bytes, got 1048578");
        });
        assert_eq!(lines, [json!({ "storage": [1, 2] }), json!({ "storage": null })]);
    }

    #[test]
    fn without_a_schedule_nothing_is_known_of_earlier_runs() {
        let task: Task = "{}".parse().unwrap();
        assert_eq!((task.storage(), task.last_success_start()), (&Value::Null, None));
        let line = r#"{"task":{"storage":[7]},"env":{"LAST_SUCCESS_START":"2026-11-20T08:24:27Z",
            "LAST_SUCCESS_FINISH":""}}"#;
        let parts = serde_json::from_str(line).unwrap();
        let task = Task::brought(parts, crate::control::Control::default()).unwrap();
        assert_eq!(task.storage(), &json!([7]));
        assert_eq!(task.last_success_start().as_deref(), Some("2026-11-20T08:24:27Z"));
        assert_eq!(task.last_success_finish(), None);
    }
}
