//! The task that a plugin works on.

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::str::FromStr;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::control::Control;
use crate::warm::Parts;
use crate::{Error, SecureParams};

/// A larger result is refused.
pub const MAX_RESULT_BYTES: usize = 1024 * 1024;

/// So much text is in a line of the control channel at most: a runner takes 2 MiB, and as JSON a byte may be six.
const MAX_TEXT: usize = 256 * 1024;

/// The task that this process was started for or, if it is warm, was given now.
#[derive(Debug)]
pub struct Task {
    document: Value,
    secure_params: SecureParams,
    id: String,
    queue: String,
    control: Control,
    /// The variables of a warm plugin's task, and its folder.
    variables: Value,
    work_dir: Option<String>,
}

impl Task {
    /// Reads the task from standard input, and opens the control descriptor if there is one.
    ///
    /// [`run`](crate::run) does this; call it yourself to decide about the exit code.
    ///
    /// # Errors
    /// Standard input is a terminal, or cannot be read, or is not a JSON object.
    pub fn read() -> Result<Self, Error> {
        let stdin = io::stdin();
        if stdin.is_terminal() {
            let hint = "standard input is a terminal; try: echo '{\"params\":{}}' | plugin";
            return Err(Error::Task(hint.to_owned()));
        }
        let text = io::read_to_string(stdin).map_err(|error| Error::Task(error.to_string()))?;
        let mut task: Self = text.parse()?;
        task.control = Control::from_environment();
        Ok(task)
    }

    /// The task that a line has brought to a warm plugin.
    pub(crate) fn brought(parts: Parts, control: Control) -> Result<Self, Error> {
        let Parts { task: document, env: variables, work_dir } = parts;
        Ok(Self { control, variables, work_dir, ..Self::try_from(document)? })
    }

    /// Whether the process has been given others beside it: then the runner has to be told which one something is about.
    pub(crate) fn is_one_of(&mut self, several: bool) {
        let id = several.then(|| self.id.clone());
        self.control.about(id);
    }

    pub(crate) fn into_control(self) -> Control {
        self.control
    }

    /// The task's id, 24 hexadecimal digits; empty if the document has none, as when tried by hand.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The id of the task's queue, 24 hexadecimal digits; empty if the document has none.
    pub fn queue(&self) -> &str {
        &self.queue
    }

    /// The whole document as MongoDB has it, in relaxed Extended JSON: an id is `{"$oid": "..."}`, a date is
    /// `{"$date": "..."}`. Secure parameters are not in it, see [`secure_params`](Self::secure_params).
    pub fn document(&self) -> &Value {
        &self.document
    }

    /// The task's `params`, null if it has none. Extended JSON as in [`document`](Self::document).
    pub fn params(&self) -> &Value {
        // Tasks from before Disbatch 4 have the older name.
        let params = self.document.get("params").or_else(|| self.document.get("parameters"));
        params.unwrap_or(&Value::Null)
    }

    /// One of the task's parameters. Use an `Option` for one that may be left out or null.
    ///
    /// ```
    /// # fn main() -> Result<(), disbatch_plugin::Error> {
    /// let task: disbatch_plugin::Task = r#"{"params":{"path":"/tmp","depth":"all"}}"#.parse()?;
    /// assert_eq!(task.param::<String>("path")?, "/tmp");
    /// assert_eq!(task.param::<Option<u32>>("limit")?, None);
    /// let error = task.param::<u32>("depth").unwrap_err();
    /// assert_eq!(error.to_string(), r#"params.depth is wrong: invalid type: string "all", expected u32"#);
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The parameter is missing or not a `T`; the error names it and says what is wrong.
    pub fn param<T: DeserializeOwned>(&self, name: &str) -> Result<T, Error> {
        let value = self.params().get(name);
        T::deserialize(value.unwrap_or(&Value::Null)).map_err(|error| Error::Param {
            name: name.to_owned(),
            problem: value.map_or("is missing".to_owned(), |_| format!("is wrong: {error}")),
        })
    }

    /// What was given for this task as `.secure_params`: passwords, tokens and the like, which nobody else is shown.
    pub fn secure_params(&self) -> &SecureParams {
        &self.secure_params
    }

    /// One of the task's secure parameters. Use an `Option` for one that may be left out or null.
    ///
    /// ```
    /// # fn main() -> Result<(), disbatch_plugin::Error> {
    /// let task: disbatch_plugin::Task = r#"{"secure_params":{"password":"horse","port":"no"}}"#.parse()?;
    /// assert_eq!(task.secure_param::<String>("password")?, "horse");
    /// let error = task.secure_param::<u16>("port").unwrap_err();
    /// assert_eq!(error.to_string(), "secure_params.port is no u16");
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// The parameter is missing or not a `T`; the error names it, and does not show what it is.
    pub fn secure_param<T: DeserializeOwned>(&self, name: &str) -> Result<T, Error> {
        let value = self.secure_params.get(name);
        // The error in other words: serde's has the value.
        T::deserialize(value.unwrap_or(&Value::Null)).map_err(|_| Error::SecureParam {
            name: name.to_owned(),
            problem: value
                .map_or("is missing".to_owned(), |_| format!("is no {}", std::any::type_name::<T>())),
        })
    }

    /// One of the variables that tell about the task, such as `DISBATCH_QUEUE` or `DISBATCH_ATTEMPT`.
    ///
    /// The environment of a warm plugin is as old as its process, so its tasks bring their own; elsewhere this is
    /// `std::env::var`.
    pub fn variable(&self, name: &str) -> Option<String> {
        match self.variables.get(name) {
            Some(Value::String(text)) => Some(text.clone()),
            Some(other) => Some(other.to_string()),
            None => std::env::var(name).ok(),
        }
    }

    /// The task's private folder, empty at the start and removed after the end. A cold plugin is in it; the
    /// working directory of a warm one does not change.
    pub fn work_dir(&self) -> PathBuf {
        match &self.work_dir {
            Some(folder) => folder.into(),
            None => std::env::var_os("DISBATCH_WORK_DIR").map_or_else(|| ".".into(), PathBuf::from),
        }
    }

    /// Adds to the task's standard output. So does `println!`, unless the process has several tasks at a time: then what it
    /// prints by itself belongs to none of them.
    pub fn print(&mut self, text: &str) {
        match self.control.is_among_others() {
            true => self.say("stdout", text),
            // Nobody reads it who has closed it.
            false => drop(io::stdout().write_all(text.as_bytes())),
        }
    }

    /// The same for its standard error.
    pub fn print_error(&mut self, text: &str) {
        match self.control.is_among_others() {
            true => self.say("stderr", text),
            false => drop(io::stderr().write_all(text.as_bytes())),
        }
    }

    /// The same by the control channel, in as many lines as it takes.
    fn say(&mut self, stream: &str, mut text: &str) {
        while !text.is_empty() {
            let mut end = text.len().min(MAX_TEXT);
            while !text.is_char_boundary(end) {
                end -= 1;
            }
            let (piece, rest) = text.split_at(end);
            self.control.send(&json!({ stream: piece }));
            text = rest;
        }
    }

    /// Tells how far the task is: percent from 0 to 100 or `None`, and a message or `""`.
    ///
    /// ```
    /// # let mut task: disbatch_plugin::Task = "{}".parse()?;
    /// task.progress(40.0, "2 of 5 files");
    /// task.progress(None, "waiting for the printer");
    /// # Ok::<(), disbatch_plugin::Error>(())
    /// ```
    pub fn progress(&mut self, percent: impl Into<Option<f64>>, message: &str) {
        let mut progress = serde_json::Map::new();
        if let Some(percent) = percent.into().filter(|percent| !percent.is_nan()) {
            progress.insert("percent".to_owned(), percent.clamp(0.0, 100.0).into());
        }
        if !message.is_empty() {
            progress.insert("message".to_owned(), message.into());
        }
        if !progress.is_empty() {
            self.control.send(&json!({ "progress": progress }));
        }
    }

    /// Sets the task's final status in place of the one that the exit code gives: 1 succeeded, 2 failed, others
    /// as the plugin pleases. The last call wins. A plugin that sets 1 and then fails has failed all the same.
    ///
    /// # Errors
    /// The status is not positive; those are Disbatch's own.
    pub fn set_status(&mut self, status: i32) -> Result<(), Error> {
        if status < 1 {
            return Err(Error::Status(status));
        }
        self.control.send(&json!({ "status": status }));
        Ok(())
    }

    /// Says that the plugin has stopped where it was, as SIGTERM told it to: save what the next attempt goes on with
    /// ([`save_storage`](Self::save_storage)), and return after this. Needs `"interruptible": true` in the manifest.
    pub fn interrupted(&mut self) {
        self.control.send(&json!({ "interrupted": true }));
    }

    /// What ends the task in a transaction of the plugin's own, with this status: insert it, as the transaction's last statement, into the
    /// collection `tasks.commits` of the database that [`variable`](Self::variable)`("DISBATCH_DATABASE")` names. Then the effects are there
    /// and the task has ended, or neither. A duplicate key says that the run has lost its task, or has ended it before: abort.
    ///
    /// # Errors
    /// The manifest has no `"commits": true`, or another step comes after this one; or the status is not positive.
    pub fn commit_document(&self, status: i32) -> Result<Value, Error> {
        if status < 1 {
            return Err(Error::Status(status));
        }
        let name = self.variable("DISBATCH_COMMIT").ok_or(Error::Commit)?;
        Ok(json!({ "_id": name, "status": status }))
    }

    /// Sets the task's structured result, an object of at most [`MAX_RESULT_BYTES`]. The last call wins.
    ///
    /// The size is that of its JSON here; the runner looks again at the size in MongoDB's own form.
    ///
    /// # Errors
    /// The result is too large, does not serialise, or is no object.
    pub fn set_result(&mut self, result: impl Serialize) -> Result<(), Error> {
        let result = object(result).map_err(Error::Result)?;
        let size = result.to_string().len();
        if size > MAX_RESULT_BYTES {
            return Err(Error::Result(format!("must have at most {MAX_RESULT_BYTES} bytes, got {size}")));
        }
        self.control.send(&json!({ "result": result }));
        Ok(())
    }

    /// Adds a document to the collection `reports`. It is Extended JSON: write an id as `{"$oid": "..."}`.
    /// A runner takes no lines longer than 2 MiB.
    ///
    /// # Errors
    /// The document does not serialise, or is no object.
    pub fn report(&mut self, document: impl Serialize) -> Result<(), Error> {
        let document = object(document).map_err(Error::Report)?;
        self.control.send(&json!({ "report": document }));
        Ok(())
    }
}

/// A task without a runner, for tests of a plugin's own code.
impl FromStr for Task {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let document: Value = serde_json::from_str(text).map_err(|error| Error::Task(error.to_string()))?;
        Self::try_from(document)
    }
}

impl TryFrom<Value> for Task {
    type Error = Error;

    fn try_from(mut document: Value) -> Result<Self, Error> {
        if !document.is_object() {
            return Err(Error::Task(format!("must be an object, got {document}")));
        }
        let secure_params = SecureParams::take(&mut document);
        let (id, queue) = (id_text(&document["_id"]), id_text(&document["queue"]));
        let (control, variables) = (Control::default(), Value::Null);
        Ok(Self { document, secure_params, id, queue, control, variables, work_dir: None })
    }
}

/// An id as text, whether it is an `ObjectId` or, in documents that people write, anything else.
fn id_text(id: &Value) -> String {
    match id.get("$oid").unwrap_or(id) {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => other.to_string(),
    }
}

fn object(value: impl Serialize) -> Result<Value, String> {
    let value = serde_json::to_value(value).map_err(|error| error.to_string())?;
    if value.is_object() { Ok(value) } else { Err("must be an object".to_owned()) }
}

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
mod tests;
