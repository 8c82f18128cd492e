//! The control channel: JSON lines that a plugin writes to the descriptor `DISBATCH_CONTROL_FD`.
//!
//! Reports go this way, too, so that a plugin needs no driver of MongoDB and no password: the runner writes them.

use bson::{Bson, Document};
use disbatch_core::budget;
use disbatch_core::model::{TaskId, to_document};
use disbatch_core::task::Pause;
use disbatch_core::task::question::Question;
use serde_json::{Map, Value};
use tokio::io::{AsyncRead, AsyncReadExt};

use crate::relay::{Notes, Relay};
use crate::storage;

/// Longer lines are refused: a result may have 1 MiB, and needs some room for its JSON.
pub const LONGEST_LINE: usize = 2 * 1024 * 1024;

#[derive(Debug, Default)]
pub struct Control {
    /// The last `status`, as it was given.
    pub status: Option<Value>,
    pub result: Option<Document>,
    pub facts: Option<Document>,
    /// A web service has taken the task, which goes on without the plugin.
    pub detach: bool,
    /// That it is to go on in another attempt, or why it cannot.
    pub pause: Option<Result<Pause, String>>,
    pub told_to_stop: bool,
    /// Of a warm plugin: the task is done, with what would be its exit status.
    pub done: Option<u8>,
    /// Whether it can be so.
    may_detach: bool,
    /// Of a warm plugin: the task that is to be done, and whether each line names it.
    task: Option<(TaskId, bool)>,
    complaints: Notes,
    lines: Lines,
}

#[derive(Debug, Default)]
pub struct Lines {
    line: Vec<u8>,
    skipping: bool,
}

#[derive(Debug, thiserror::Error)]
#[error("a control line of more than {LONGEST_LINE} bytes is ignored")]
pub struct TooLong;

impl Lines {
    /// The next line that is complete and not blank, taken from `bytes`, which loses what has been seen.
    pub fn next(&mut self, bytes: &mut &[u8]) -> Option<Result<Vec<u8>, TooLong>> {
        while !bytes.is_empty() {
            let end = bytes.iter().position(|byte| *byte == b'\n');
            let (piece, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            *bytes = if end.is_some() { &rest[1..] } else { rest };
            let is_too_long = !self.skipping && self.line.len() + piece.len() > LONGEST_LINE;
            if is_too_long {
                self.line = Vec::new();
            } else if !self.skipping {
                self.line.extend_from_slice(piece);
            }
            self.skipping = (self.skipping || is_too_long) && end.is_none();
            if is_too_long {
                return Some(Err(TooLong));
            }
            if end.is_some() {
                let line = std::mem::take(&mut self.line);
                if !line.trim_ascii().is_empty() {
                    return Some(Ok(line));
                }
            }
        }
        None
    }
}

/// What `done` says of the end of `task`: what would be its exit status, or what is wrong with that. `None`: it is not about that task.
/// `named`: that need not be said, because the line says so.
pub fn end_of(done: &Value, task: TaskId, named: bool) -> Option<Result<u8, String>> {
    let done = done.as_object()?;
    let is_its = match done.get("id") {
        Some(id) => id.as_str().is_some_and(|id| id.parse() == Ok(task)),
        None => named,
    };
    let exit = done.get("exit").unwrap_or(&Value::Null);
    let code = if exit.is_null() { Some(0) } else { exit.as_u64().and_then(|code| u8::try_from(code).ok()) };
    let wrong = || format!("exit {exit} is not within 0 to 255, so the task has failed");
    is_its.then(|| code.ok_or_else(wrong))
}

impl Control {
    pub fn of(task: TaskId) -> Self {
        Self { task: Some((task, false)), ..Self::default() }
    }

    /// The same for one that was given others beside it, so that each line names its task.
    pub fn among_others(task: TaskId) -> Self {
        Self { task: Some((task, true)), ..Self::default() }
    }

    /// The same for a plugin that may leave its task to a web service, or may not.
    pub fn that_may_detach(self, may_detach: bool) -> Self {
        Self { may_detach, ..self }
    }

    /// Follows the channel to its end. Keeps what was said so far when dropped between lines.
    pub async fn listen(&mut self, mut source: impl AsyncRead + Unpin, relay: &Relay) {
        let mut buffer = vec![0; 8 * 1024];
        loop {
            match source.read(&mut buffer).await {
                Ok(0) => break,
                Ok(read) => drop(self.feed(&buffer[..read], relay).await),
                Err(error) => {
                    self.complain(format!("the control channel cannot be read: {error}"));
                    break;
                }
            }
        }
        self.feed(b"\n", relay).await;
    }

    /// What was wrong with it, as lines for the task's standard error.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        self.complaints.lines("complaints about the control channel")
    }

    /// Takes what came over the channel. Returns what comes after the line that says that the task is done.
    pub async fn feed<'a>(&mut self, mut bytes: &'a [u8], relay: &Relay) -> &'a [u8] {
        while let Some(line) = self.lines.next(&mut bytes) {
            match line {
                Ok(line) => self.take_line(&line, relay).await,
                Err(error) => self.complain(error.to_string()),
            }
            if self.done.is_some() {
                return bytes;
            }
        }
        &[]
    }

    async fn take_line(&mut self, line: &[u8], relay: &Relay) {
        if let Some(recorder) = &relay.recorder {
            recorder.heard(line);
        }
        match serde_json::from_slice::<Map<String, Value>>(line) {
            Ok(message) => self.take(message, relay).await,
            Err(error) => self.complain(format!("a control line is no JSON object: {error}")),
        }
    }

    pub async fn take(&mut self, message: Map<String, Value>, relay: &Relay) {
        for (key, value) in message {
            if let Err(complaint) = self.take_value(&key, value, relay).await {
                self.complain(complaint);
            }
        }
    }

    async fn take_value(&mut self, key: &str, value: Value, relay: &Relay) -> Result<(), String> {
        match key {
            "status" => self.status = Some(value),
            "result" => self.result = Some(bounded(value, budget::RESULT, ["a result", "is"])?),
            "facts" => self.facts = Some(bounded(value, budget::FACTS, ["facts", "are"])?),
            "detach" => {
                let detach = flag(key, &value)?;
                if !self.may_detach {
                    return Err("detach is ignored: no web service calls back".to_owned());
                }
                self.detach = detach;
            }
            "await" if relay.step.is_some() => {
                self.pause = Some(Err("a step cannot ask, only a task without steps".to_owned()));
            }
            "await" => {
                let question = Question::parse(&value).map_err(|why| why.to_string());
                self.pause = Some(question.map(|question| Pause::Ask(Box::new(question))));
            }
            "interrupted" => self.pause = flag(key, &value)?.then_some(Ok(Pause::Interrupted)),
            "progress" => relay.progress(progress(&value).map_err(ignored("progress is"))?),
            "storage" => relay.save(storage::stored(&value).map_err(ignored("storage is"))?),
            "report" => relay.report(extended(value).map_err(ignored("a report is"))?).await,
            "done" if self.task.is_some() => self.take_end(&value)?,
            unknown => return Err(format!("control key '{unknown}' is unknown")),
        }
        Ok(())
    }

    fn take_end(&mut self, value: &Value) -> Result<(), String> {
        let Some((task, named)) = self.task else { return Ok(()) };
        let is_of_another = value["id"].as_str().is_some_and(|id| id.parse::<TaskId>().is_ok());
        let end = match end_of(value, task, named) {
            Some(end) => end,
            // Its process has no other task, and waits for the next one: nothing else would end this one.
            None if !named && !is_of_another => {
                Err(format!("done {value} does not name this task as its id, so the task has failed"))
            }
            None => return Err(format!("done is ignored: {value} does not name this task as its id")),
        };
        self.done = Some(*end.as_ref().unwrap_or(&1));
        end.map(|_| ())
    }

    pub fn complain(&mut self, complaint: String) {
        let is_told = self.complaints.add(&complaint);
        // The task of a warm plugin whose `done` is not understood may never come to an end that shows it.
        if let Some((task, _)) = self.task.filter(|_| is_told) {
            tracing::warn!(%task, "what the plugin says: {complaint:.300}");
        }
    }
}

/// Says of what it is ignored.
fn ignored(what: &str) -> impl Fn(String) -> String {
    move |why| format!("{what} ignored: {why}")
}

fn flag(key: &str, value: &Value) -> Result<bool, String> {
    value.as_bool().ok_or_else(|| format!("{key} is ignored: expected true or false, got {value}"))
}

/// An object in extended JSON as a document of so many bytes at most; `what`: what it is called, and the verb.
fn bounded(value: Value, most: usize, [what, is]: [&str; 2]) -> Result<Document, String> {
    let Value::Object(object) = value else {
        return Err(format!("{what} {is} ignored: expected an object, got {value}"));
    };
    let document = to_document(&object);
    let size = bson::serialize_to_vec(&document).map_or(usize::MAX, |bytes| bytes.len());
    if size > most {
        return Err(format!("{what} of more than {most} bytes {is} ignored"));
    }
    Ok(document)
}

/// A report is for whoever reads the collection: `{"$oid": ..}` is an id there.
fn extended(value: Value) -> Result<Document, String> {
    match Bson::try_from(value).map_err(|error| error.to_string())? {
        Bson::Document(document) => Ok(document),
        other => Err(format!("expected an object, got {other}")),
    }
}

fn progress(value: &Value) -> Result<Document, String> {
    let object = value.as_object().ok_or_else(|| format!("expected an object, got {value}"))?;
    let mut progress = Document::new();
    if let Some(percent) = object.get("percent") {
        let number = percent.as_f64().filter(|n| (0.0..=100.0).contains(n));
        progress
            .insert("percent", number.ok_or_else(|| format!("percent {percent} is not within 0 to 100"))?);
    }
    if let Some(message) = object.get("message") {
        let text = message.as_str().ok_or_else(|| format!("message {message} is no text"))?;
        // It is written into the task once a second.
        if text.len() > budget::MESSAGE {
            return Err(format!("its message has more than {} bytes", budget::MESSAGE));
        }
        progress.insert("message", text);
    }
    Ok(progress)
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;
    use crate::relay;

    async fn hear(text: &[u8]) -> (Control, Vec<Document>) {
        let (relay, mut inbox) = relay::channel();
        let mut control = Control::default();
        control.listen(text, &relay).await;
        drop(relay);
        let mut reports = Vec::new();
        while let Some(report) = inbox.next_report().await {
            reports.push(report);
        }
        (control, reports)
    }

    #[tokio::test]
    async fn lines_are_understood_even_without_a_final_line_break() {
        let text = br#"{"status": 3, "result": {"rows": 7}}
            {"report": {"task_id": {"$oid": "6b0003bb686c8275d70dc2f1"}}}

            {"status": "4"}"#;
        let (control, reports) = hear(text).await;
        assert_eq!(control.status, Some("4".into()));
        assert_eq!(control.result, Some(doc! { "rows": 7 }));
        assert!(reports[0].get_object_id("task_id").is_ok());
        assert_eq!(control.notes().count(), 0);
    }

    #[tokio::test]
    async fn facts_are_an_object_that_is_not_too_large() {
        let (control, _) = hear(b"{\"facts\":{\"image\":\"a\"}}\n{\"facts\":5}\n").await;
        assert_eq!((control.facts.clone(), control.notes().count()), (Some(doc! { "image": "a" }), 1));
        let large = format!("{{\"facts\":{{\"a\":\"{}\"}}}}\n", "x".repeat(budget::FACTS));
        let (control, _) = hear(large.as_bytes()).await;
        assert_eq!(control.facts, None);
        let notes: Vec<String> = control.notes().collect();
        assert_eq!(notes, ["disbatch: facts of more than 16384 bytes are ignored\n"]);
    }

    #[tokio::test]
    async fn only_who_is_called_back_can_leave_a_task() {
        let (relay, _inbox) = relay::channel();
        for (may, text, detach, complaints) in [
            (true, "{\"detach\":true}\n", true, 0),
            (true, "{\"detach\":true}\n{\"detach\":false}\n", false, 0),
            (true, "{\"detach\":1}\n", false, 1),
            (false, "{\"detach\":true}\n", false, 1),
        ] {
            let mut control = Control::default().that_may_detach(may);
            control.listen(text.as_bytes(), &relay).await;
            assert_eq!((control.detach, control.notes().count()), (detach, complaints), "{text}");
        }
    }

    #[tokio::test]
    async fn the_last_question_counts_and_a_wrong_one_is_named() {
        let asked = async |text: &[u8]| hear(text).await.0.pause.map(|pause| pause.map(|pause| pause.note()));
        let question = br#"{"await": {"title": "Go on?", "form": {"type": "object"}, "deadline": 60}}"#;
        assert_eq!(asked(question).await, Some(Ok("asks: Go on?".to_owned())));
        let wrong = asked(b"{\"await\": {\"title\": \"Go on?\", \"form\": {\"type\": 5}}}\n").await;
        assert!(wrong.unwrap().unwrap_err().starts_with("form: "));
        assert_eq!(asked(b"{\"status\": 1}\n").await, None);
        let (relay, _inbox) = relay::channel();
        let relay = relay.within(crate::steps::OfStep { number: 1, of: 2, name: "a".to_owned() });
        let mut control = Control::default();
        control.listen(&question[..], &relay).await;
        assert!(control.pause.unwrap().unwrap_err().starts_with("a step cannot ask"));
    }

    #[tokio::test]
    async fn storage_may_be_anything_and_the_last_one_counts() {
        let (relay, _inbox) = relay::channel();
        let mut control = Control::default();
        let text = b"{\"storage\":{\"$oid\":\"x\"}}\n{\"storage\":[1,null]}\n";
        control.listen(&text[..], &relay).await;
        assert_eq!(relay.saved(), Some(Bson::from(vec![Bson::from(1), Bson::Null])));
        let large = format!("{{\"storage\":\"{}\"}}\n", "x".repeat(1_100_000));
        control.listen(large.as_bytes(), &relay).await;
        let notes: Vec<String> = control.notes().collect();
        assert_eq!(notes, ["disbatch: storage is ignored: it has more than 1048576 bytes\n"]);
        assert_eq!(relay.saved(), Some(Bson::from(vec![Bson::from(1), Bson::Null])));
    }

    #[tokio::test]
    async fn rubbish_is_named_and_costs_nothing_else() {
        let (control, _) = hear(
            b"nope\n[1]\n{\"stauts\":1}\n{\"result\":5}\n{\"progress\":{\"percent\":101}}\n{\"status\":1}\n",
        )
        .await;
        assert_eq!(control.status, Some(1.into()));
        let notes: Vec<String> = control.notes().collect();
        assert_eq!(notes.len(), 5, "{notes:?}");
        assert!(notes[2].contains("control key 'stauts' is unknown"));
        assert!(notes[4].contains("percent 101 is not within 0 to 100"));
    }

    #[tokio::test]
    async fn a_task_is_done_when_its_own_end_is_said() {
        let id = TaskId(bson::oid::ObjectId::new());
        let (relay, _inbox) = relay::channel();
        let mut control = Control::of(id);
        let other = TaskId(bson::oid::ObjectId::new());
        let text = format!(
            "{{\"status\":3}}\n{{\"done\":{{\"id\":\"{other}\"}}}}\n{{\"done\":{{\"id\":\"{id}\",\"exit\":4}}}}\nrest"
        );
        let (first, second) = text.as_bytes().split_at(text.len() - 20);
        assert!(control.feed(first, &relay).await.is_empty());
        assert_eq!(control.done, None);
        assert_eq!(control.feed(second, &relay).await, b"rest");
        assert_eq!((control.done, control.status.clone()), (Some(4), Some(3.into())));
        let notes: Vec<String> = control.notes().collect();
        assert_eq!(notes.len(), 1, "{notes:?}");
        assert!(notes[0].contains("does not name this task"), "{notes:?}");
    }

    #[tokio::test]
    async fn an_end_that_names_no_task_is_a_failure_of_the_only_one() {
        let id = TaskId(bson::oid::ObjectId::new());
        let (relay, _inbox) = relay::channel();
        let nested = format!("{{\"id\":{{\"$oid\":\"{id}\"}}}}");
        for (done, alone, among_others) in [
            ("{\"exit\":0}", Some(1), Some(0)),
            ("true", Some(1), None),
            ("7", Some(1), None),
            ("{\"id\":\"other\"}", Some(1), None),
            (&nested, Some(1), None),
            ("{\"id\":\"6b0003bb686c8275d8013333\"}", None, None),
        ] {
            for (mut control, expected) in
                [(Control::of(id), alone), (Control::among_others(id), among_others)]
            {
                control.feed(format!("{{\"done\":{done}}}\n").as_bytes(), &relay).await;
                assert_eq!(control.done, expected, "{done}");
                assert_eq!(control.notes().count(), usize::from(expected != Some(0)), "{done}");
            }
        }
    }

    #[tokio::test]
    async fn an_end_without_an_exit_status_is_a_good_one() {
        let id = TaskId(bson::oid::ObjectId::new());
        let (relay, _inbox) = relay::channel();
        for (exit, code) in [
            ("", 0),
            (",\"exit\":0", 0),
            (",\"exit\":255", 255),
            (",\"exit\":256", 1),
            (",\"exit\":\"0\"", 1),
        ] {
            let mut control = Control::of(id);
            let line = format!("{{\"done\":{{\"id\":\"{id}\"{exit}}}}}\n");
            control.feed(line.as_bytes(), &relay).await;
            assert_eq!(control.done, Some(code), "{line}");
            assert_eq!(control.notes().count(), usize::from(code == 1), "{line}");
        }
    }

    #[tokio::test]
    async fn cold_plugins_are_not_done_by_saying_so() {
        let (control, _) = hear(b"{\"done\":{\"id\":\"x\"}}\n{\"status\":3}\n").await;
        assert_eq!((control.done, control.status.clone()), (None, Some(3.into())));
        assert_eq!(control.notes().count(), 1);
    }

    #[tokio::test]
    async fn floods_are_bounded() {
        let mut flood = vec![b'x'; 3 * LONGEST_LINE];
        flood.extend_from_slice(b"\n{\"status\":5}\n");
        flood.extend(b"junk\n".repeat(100));
        let (control, _) = hear(&flood).await;
        assert_eq!(control.status, Some(5.into()));
        assert_eq!(control.notes().count(), 11, "ten complaints, and how many more there were");
        assert!(control.lines.line.capacity() <= 2 * LONGEST_LINE);
    }

    #[tokio::test]
    async fn what_is_quoted_in_complaints_is_short() {
        let long = "x".repeat(LONGEST_LINE / 4);
        let lines = ["KEY", "progress", "report", "result"].map(|key| format!("{{\"{key}\":\"{long}\"}}\n"));
        let (control, reports) = hear(lines.concat().replace("KEY", &long).as_bytes()).await;
        let notes: Vec<String> = control.notes().collect();
        assert_eq!((notes.len(), reports.len()), (4, 0), "{notes:?}");
        assert!(notes.iter().all(|note| note.chars().count() < 400), "{notes:?}");
    }

    #[tokio::test]
    async fn the_message_of_progress_is_short_enough_to_be_written_again_and_again() {
        let of = |length| format!("{{\"progress\":{{\"message\":\"{}\"}}}}\n", "x".repeat(length));
        let (control, _) = hear(of(budget::MESSAGE).as_bytes()).await;
        assert_eq!(control.notes().count(), 0);
        let (control, _) = hear(of(budget::MESSAGE + 1).as_bytes()).await;
        let notes: Vec<String> = control.notes().collect();
        assert_eq!(notes, ["disbatch: progress is ignored: its message has more than 4096 bytes\n"]);
    }
}
