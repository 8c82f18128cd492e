//! What a plugin asks a person, and the answer.

use serde::Serialize;
use serde_json::{Value, json};

use super::Task;
use crate::Error;

/// What a plugin asks a person. See "Asking a person" in docs/plugins.md.
#[derive(Debug, Clone, PartialEq)]
pub struct Question {
    value: Value,
}

impl Question {
    /// A question that operators of the task's queue answer, without a form and without a deadline.
    pub fn new(title: impl Into<String>) -> Self {
        Self { value: json!({ "title": title.into() }) }
    }

    /// With a JSON Schema of the answer, which is an object.
    ///
    /// # Errors
    /// It does not serialise.
    pub fn form(self, form: impl Serialize) -> Result<Self, Error> {
        let form = serde_json::to_value(form).map_err(|error| Error::Question(error.to_string()))?;
        Ok(self.with("form", form))
    }

    /// For these users, and roles as `role:operator`.
    #[must_use]
    pub fn who<T: Into<String>>(self, who: impl IntoIterator<Item = T>) -> Self {
        let who: Vec<String> = who.into_iter().map(Into::into).collect();
        self.with("who", who.into())
    }

    /// To be answered within so many seconds; then the task is cancelled, unless it is to go on without an answer.
    #[must_use]
    pub fn within(self, seconds: f64) -> Self {
        self.with("deadline", seconds.into())
    }

    /// Goes on when nobody has answered in time: then the answer's `value` is null.
    #[must_use]
    pub fn or_continue(self) -> Self {
        self.with("on_deadline", "continue".into())
    }

    fn with(mut self, field: &str, value: Value) -> Self {
        self.value[field] = value;
        self
    }
}

impl Task {
    /// Asks a person. The plugin returns after this: the task waits without a process, and its next attempt has the
    /// [`answer`](Self::answer). What it has to know then is to be saved, see [`save_storage`](Self::save_storage).
    ///
    /// ```
    /// use disbatch_plugin::Question;
    /// # let mut task: disbatch_plugin::Task = "{}".parse()?;
    /// if task.answer().is_null() {
    ///     let form = serde_json::json!({ "properties": { "go": { "type": "boolean" } }, "required": ["go"] });
    ///     task.ask(&Question::new("Deploy?").form(form)?.who(["ann", "role:operator"]).within(86_400.0));
    ///     return Ok(());
    /// }
    /// # Ok::<(), disbatch_plugin::Error>(())
    /// ```
    pub fn ask(&mut self, question: &Question) {
        self.control.send(&json!({ "await": question.value }));
    }

    /// The answer to what the attempt before has asked: `value`, `by`, `at` and `attempt`. Null if there is none.
    ///
    /// ```
    /// let task: disbatch_plugin::Task = r#"{"answer":{"value":{"go":true},"by":"ann"}}"#.parse()?;
    /// assert_eq!(task.answer()["value"]["go"], true);
    /// # Ok::<(), disbatch_plugin::Error>(())
    /// ```
    pub fn answer(&self) -> &Value {
        self.document().get("answer").unwrap_or(&Value::Null)
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::sent;
    use super::*;

    #[test]
    fn a_question_has_what_was_said_of_it() {
        let lines = sent(|task| {
            task.ask(&Question::new("Go?"));
            let question = Question::new("Go?").form(json!({ "type": "object" })).unwrap();
            task.ask(&question.who(["ann"]).within(60.0).or_continue());
        });
        let whole = json!({
            "title": "Go?", "form": { "type": "object" }, "who": ["ann"], "deadline": 60.0, "on_deadline": "continue",
        });
        assert_eq!(lines, [json!({ "await": { "title": "Go?" } }), json!({ "await": whole })]);
    }
}
