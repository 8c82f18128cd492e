//! Questions, and other pauses: a task waits for the answer of a person, without a runner.
//!
//! Its plugin asks on the control channel (`await`) and ends. One update, with the fence of every run, ends the attempt as neither a success nor a
//! failure: the task is deferred (-7) with the question in `awaiting`, and its `run_at` is the deadline of that, if it has one. So all that holds for a
//! deferred task holds for it: it has no slot and no lease, its locks are given back, and the look for due tasks finds it by the index that is there.
//!
//! The answer is stored by the update that queues the task again ([`reply`]), on the condition that the question of that attempt still waits. The next
//! attempt gets it as `answer`, and keeps what was saved. Nobody's answer in time is one, too, if the question says `continue`.
//!
//! An attempt ends likewise where its plugin stops because its runner told it to ([`interrupt_runs`](crate::store::Store::interrupt_runs)).

mod reply;

use std::time::{Duration, Instant};

use bson::{Bson, DateTime, Document, doc};
use disbatch_wire::accounts::Role;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use subtle::ConstantTimeEq;

use super::finish::{COMMAND_FIELDS, Finish, goes_first};
use super::steps::queued;
use super::transition::{ERROR, Transition, is_past, server_time_in};
use super::{Finished, Run};
use crate::budget;
use crate::callbacks::Token;
use crate::model::{AWAITING, STEPS, Status, Task, to_document, whole_number};
use crate::request::{self, Invalid};
use crate::schema::{LONGEST_CHECK, Problem, Schema, SchemaError, Wrong, as_plugins_get};
use crate::store::{Store, StoreError, documents_in, millis, texts_in};

pub use reply::{Replied, Reply};

/// The field with the answer, for the next attempt.
pub const ANSWER: &str = "answer";

/// The longest title in bytes.
const LONGEST_TITLE: usize = 1_000;

/// The largest form in bytes of JSON.
const LARGEST_FORM: usize = 64 * 1024;

/// So many may be named who may answer.
const MOST_NAMED: usize = 50;

/// The longest of these names in bytes.
const LONGEST_NAME: usize = 200;

const ROLE: &str = "role:";

disbatch_values::words! {
    /// What becomes of a task that nobody answers in time.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum OnDeadline {
        /// It ends as cancelled (-5).
        #[default]
        Cancel = "cancel",
        /// It goes on, and the next attempt is told that nobody has answered.
        Continue = "continue",
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Question {
    pub title: String,
    /// The schema of the answer, as JSON: what it has may look like extended JSON, and is none.
    form: String,
    /// Users, and roles as `role:operator`. Empty: operators of the queue.
    who: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    deadline: Option<DateTime>,
    /// The deadline, counted from when it is stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    within: Option<f64>,
    on_deadline: OnDeadline,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unaskable {
    #[error("expected an object, got {0}")]
    NoObject(String),
    #[error("'{0}' is unknown: a question has title, form, who, deadline and on_deadline")]
    Unknown(String),
    #[error("title: expected text of 1 to {LONGEST_TITLE} bytes")]
    Title,
    #[error("form: expected a JSON Schema of an object, with at most {LARGEST_FORM} bytes")]
    Form,
    #[error("form: {0}")]
    Schema(#[from] SchemaError),
    #[error("who: expected at most {MOST_NAMED} names of users, or roles as \"{ROLE}operator\"")]
    Who,
    #[error("deadline: expected seconds from now, more than 0, or a time as 2026-11-20T08:24:27Z")]
    Deadline,
    #[error("{0}")]
    Invalid(#[from] Invalid),
}

impl Question {
    pub fn parse(value: &Value) -> Result<Self, Unaskable> {
        let object = value.as_object().ok_or_else(|| Unaskable::NoObject(value.to_string()))?;
        let mut question = Self {
            title: String::new(),
            form: "{}".to_owned(),
            who: Vec::new(),
            deadline: None,
            within: None,
            on_deadline: OnDeadline::default(),
        };
        for (key, value) in object.iter().filter(|(_, value)| !value.is_null()) {
            match key.as_str() {
                "title" => question.title = value.as_str().ok_or(Unaskable::Title)?.trim().to_owned(),
                "form" => question.form = form(value)?,
                "who" => question.who = who(value)?,
                "deadline" if value.is_number() => {
                    let seconds = request::some_seconds("deadline", value);
                    question.within = Some(seconds.map_err(|_| Unaskable::Deadline)?.as_secs_f64());
                }
                "deadline" => {
                    let time = value.is_string().then(|| request::time("deadline", value).ok()).flatten();
                    question.deadline = Some(time.ok_or(Unaskable::Deadline)?);
                }
                "on_deadline" => {
                    let words = OnDeadline::ALL.map(OnDeadline::as_str);
                    let word = request::word("on_deadline", value, &words)?;
                    question.on_deadline = OnDeadline::named(word).unwrap_or_default();
                }
                unknown => return Err(Unaskable::Unknown(budget::cut(unknown, LONGEST_NAME))),
            }
        }
        match question.title.len() {
            1..=LONGEST_TITLE => Ok(question),
            _ => Err(Unaskable::Title), // None, or too much.
        }
    }

    fn asked(&self, store: &Store) -> Transition {
        let form: Value = serde_json::from_str(&self.form).unwrap_or_default();
        let form = form.as_object().map(to_document).unwrap_or_default();
        let asked = doc! {
            "title": &self.title, "form": form, "who": &self.who, "on_deadline": self.on_deadline.as_str(),
        };
        let deadline = match (self.deadline, self.within) {
            (Some(deadline), _) => Bson::from(deadline),
            (None, Some(seconds)) => {
                let pause = Duration::try_from_secs_f64(seconds).unwrap_or_default();
                doc! { "$add": ["$$NOW", millis(pause)] }.into()
            }
            (None, None) => "$$REMOVE".into(),
        };
        let asked = doc! { "$mergeObjects": [
            { "$literal": asked }, { "asked": "$$NOW", "attempt": "$attempt", "deadline": &deadline },
        ] };
        between_attempts(store)
            .compute(AWAITING, asked)
            .compute("run_at", deadline)
            .unset(ANSWER)
            .unset_all(COMMAND_FIELDS)
            .unset(ERROR)
    }
}

fn form(value: &Value) -> Result<String, Unaskable> {
    let text = value.to_string();
    if !value.is_object() || text.len() > LARGEST_FORM {
        return Err(Unaskable::Form);
    }
    Schema::compile(value)?;
    Ok(text)
}

fn who(value: &Value) -> Result<Vec<String>, Unaskable> {
    let names = request::list(value).ok_or(Unaskable::Who)?;
    let is_one = |name: &String| {
        let is_role = name.strip_prefix(ROLE).is_none_or(|role| role.parse::<Role>().is_ok());
        is_role && (1..=LONGEST_NAME).contains(&name.len())
    };
    if names.len() > MOST_NAMED || !names.iter().all(is_one) {
        return Err(Unaskable::Who);
    }
    Ok(names)
}

#[derive(Debug, Clone, PartialEq)]
pub struct Awaiting {
    pub title: String,
    pub form: Document,
    pub who: Vec<String>,
    pub deadline: Option<DateTime>,
    pub on_deadline: OnDeadline,
    pub asked: Option<DateTime>,
    pub attempt: i64,
    /// The fingerprints of the tokens by which it may be answered without a login, and until when, and whose they are.
    links: Vec<(String, DateTime, String)>,
}

impl Awaiting {
    pub fn of(task: &Task) -> Option<Self> {
        Self::stored(&task.rest).filter(|_| task.status == Status::Deferred)
    }

    pub fn of_document(task: &Document) -> Option<Self> {
        Self::stored(task).filter(|_| Status::stored(task) == Some(Status::Deferred))
    }

    /// What is stored in a task of whatever status.
    fn stored(task: &Document) -> Option<Self> {
        let stored = task.get_document(AWAITING).ok()?;
        let text = |field| stored.get_str(field).unwrap_or_default().to_owned();
        let time = |field| stored.get_datetime(field).ok().copied();
        let link = |link: &Document| {
            let until = *link.get_datetime("until").ok()?;
            Some((link.get_str("token").ok()?.to_owned(), until, link.get_str("by").ok()?.to_owned()))
        };
        Some(Self {
            title: text("title"),
            form: stored.get_document("form").cloned().unwrap_or_default(),
            who: texts_in(stored, "who").collect(),
            deadline: time("deadline"),
            on_deadline: stored.get_str("on_deadline").ok().and_then(OnDeadline::named).unwrap_or_default(),
            asked: time("asked"),
            attempt: stored.get("attempt").and_then(whole_number)?,
            links: documents_in(stored, "links").filter_map(link).collect(),
        })
    }

    /// Whether somebody may answer: `user`, if it is one, who has this role on the task.
    pub fn may_be_answered_by(&self, user: Option<&str>, role: Option<Role>) -> bool {
        let has = |least: Role| role.is_some_and(|role| role >= least);
        if self.who.is_empty() {
            return has(Role::Operator);
        }
        self.who.iter().any(|name| match name.strip_prefix(ROLE) {
            Some(least) => least.parse().is_ok_and(has),
            None => user == Some(name),
        })
    }

    pub fn who_in_words(&self) -> String {
        let one = |name: &String| match name.strip_prefix(ROLE) {
            Some(role) => format!("a user with the role {role}"),
            None => name.clone(),
        };
        match self.who.as_slice() {
            [] => "an operator of its queue".to_owned(),
            names => names.iter().map(one).collect::<Vec<_>>().join(" or "),
        }
    }

    /// Whose link this is the token of. `None`: nobody's, or it holds no more at that time.
    pub fn link_of(&self, token: &Token, now: DateTime) -> Option<&str> {
        let ours = token.fingerprint();
        let is_it = |(stored, until, _): &&(String, DateTime, String)| {
            bool::from(stored.as_bytes().ct_eq(ours.as_bytes())) && *until > now
        };
        self.links.iter().find(is_it).map(|(_, _, by)| by.as_str())
    }

    pub fn check(&self, value: &Map<String, Value>) -> Result<(), Vec<Problem>> {
        let problem = |text: String| vec![Problem { pointer: String::new(), text }];
        let value = Value::Object(value.clone());
        if value.to_string().len() > budget::REPLY {
            return Err(problem(format!("has more than {} bytes of JSON", budget::REPLY)));
        }
        // What was no schema would not have been asked; a program may have changed it since.
        let schema = Schema::compile(&as_plugins_get(&self.form));
        let schema = schema.map_err(|error| problem(format!("cannot be checked: {error}")))?;
        match schema.check(&value, Instant::now() + LONGEST_CHECK) {
            Ok(()) => Ok(()),
            Err(Wrong::Problems(problems)) => Err(problems),
            Err(Wrong::TooLong) => Err(problem("takes too long to be checked".to_owned())),
        }
    }
}

pub(super) fn unanswered() -> Document {
    doc! {
        "status": Status::Deferred, "run_at": { "$type": "date" }, "$expr": is_past("run_at"),
        "awaiting.on_deadline": OnDeadline::Cancel.as_str(),
    }
}

/// What is `awaiting.on_deadline` of the others.
pub(super) fn goes_on() -> Document {
    doc! { "$ne": OnDeadline::Cancel.as_str() }
}

/// The answer that the next attempt gets of a task that goes on without one: nobody's, if it waits for one, else what there is.
pub(super) fn nobodys() -> Document {
    let none = doc! { "value": Bson::Null, "by": Bson::Null, "at": "$$NOW", "attempt": "$awaiting.attempt" };
    let is_awaited = doc! { "$eq": [{ "$type": "$awaiting" }, "object"] };
    doc! { "$cond": [is_awaited, none, { "$ifNull": ["$answer", "$$REMOVE"] }] }
}

/// Why an attempt ends as neither a success nor a failure, after which the task waits for the next one.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pause {
    Ask(Box<Question>),
    /// The task goes on at once, where there is a place for it.
    Interrupted,
}

impl Pause {
    pub fn note(&self) -> String {
        match self {
            Self::Ask(question) => format!("asks: {}", question.title),
            Self::Interrupted => "interrupted, to go on elsewhere".to_owned(),
        }
    }

    pub(super) fn transition(&self, store: &Store) -> Transition {
        match self {
            Self::Ask(question) => question.asked(store).note(self.note()),
            Self::Interrupted => waits_again(store, Duration::ZERO, &self.note()),
        }
    }
}

pub(super) fn waits_again(store: &Store, pause: Duration, why: &str) -> Transition {
    between_attempts(store).compute("run_at", server_time_in(pause)).compute("again", goes_first()).note(why)
}

fn between_attempts(store: &Store) -> Transition {
    Transition::to(Status::Deferred, store.now())
        .without_node()
        .set("stdout", Bson::Null)
        .set("stderr", Bson::Null)
        .compute(STEPS, queued())
        .end_of_run()
        .unset("progress")
}

impl Store {
    /// Ends the task of a run that was to wait for its next attempt, because somebody wants its end, or did when this was done before.
    /// `None`: that is not so.
    pub(super) async fn end_as_asked(
        &self,
        run: &Run,
        finish: &Finish,
        stored: Option<&Task>,
    ) -> Result<Option<Finished>, StoreError> {
        let ended = match &finish.pause {
            Some(_) => {
                let note = Some("cancelled".to_owned());
                Finish { status: Status::Terminated, note, pause: None, ..finish.clone() }
            }
            // It has failed by itself.
            None => finish.clone(),
        };
        let is_cancelled =
            |task: &Task| (run.has(task) && task.is_to_be_cancelled()) || ended.is_held_by(task, run);
        if !stored.is_some_and(is_cancelled) {
            return Ok(None);
        }
        Ok(Some(self.finish_task(run, &ended).await?))
    }
}

impl Finish {
    /// The same of an attempt that is the last one: no other can come after it.
    pub(super) fn for_good(&self) -> Self {
        let Some(pause) = &self.pause else { return self.clone() };
        let note = Some(format!("{}; that cannot be kept", pause.note()));
        Self { status: Status::Failed, note, pause: None, ..self.clone() }
    }
}

#[cfg(test)]
mod tests;
