//! How a transition is written: one update as a pipeline, so that the server's clock and the task's own
//! fields can be used, and so that the history gets its entry in the same update.
//!
//! An end that somebody waits for, as a dependency or for a lock, also writes the field `awaited`: change streams tell of such ends and of no others.

use std::iter::Peekable;
use std::str::Chars;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};

use crate::budget;
use crate::model::{AWAITING, Status};
use crate::store::{millis, put, with};

/// The largest count that a double can tell from its neighbours.
const MOST_COUNTED: i64 = 1 << 53;

/// What belongs to a running attempt, and ends with it.
const OF_A_RUN: [&str; 7] = ["slot", "group_slot", "lease_until", "instance", "pid", "uploads", "saves"];

/// What runs leave in a task besides what came out, and what it can do without.
const LEAVINGS: [&str; 4] = ["progress", "external", "again", "awaited"];

/// The field of a task that says why it failed, in a line that lists show without reading output.
pub const ERROR: &str = "error";

/// It has so many characters at most.
pub(crate) const MOST_OF_LINE: usize = 200;

pub(crate) fn of_runs() -> impl Iterator<Item = &'static str> {
    OF_A_RUN.into_iter().chain(LEAVINGS)
}

/// What an entry of the history says of the task, besides when and why.
const OF_ENTRIES: [&str; 3] = ["status", "attempt", "node"];

/// What a task has while it is blocked, or waits for an answer, and not after.
const OF_A_BLOCK: [&str; 3] = ["gate", "needs_lock", AWAITING];

/// An update of a task: to another status, with an entry in its history, or within one.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Transition {
    values: Document,
    computed: Document,
    unset: Vec<&'static str>,
    note: Option<String>,
    history: History,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum History {
    Same,
    Longer,
    /// It has that entry and no other.
    Anew,
}

impl Transition {
    pub(crate) fn to(status: Status, now: DateTime) -> Self {
        let values = doc! { "status": status, "mtime": now };
        let transition = Self { values, history: History::Longer, ..Self::within() };
        if status.has_ended() || status == Status::Deferred { transition.awaited() } else { transition }
    }

    pub(crate) fn within() -> Self {
        let (values, computed) = (Document::new(), Document::new());
        Self { values, computed, unset: Vec::new(), note: None, history: History::Same }
    }

    /// Sets a field to a value. Text that looks like an expression stays text.
    pub(crate) fn set(mut self, field: &str, value: impl Into<Bson>) -> Self {
        self.values.insert(field, value.into());
        self
    }

    pub(crate) fn set_some(self, field: &str, value: Option<impl Into<Bson>>) -> Self {
        match value {
            Some(value) => self.set(field, value),
            None => self,
        }
    }

    pub(crate) fn compute(mut self, field: &str, expression: impl Into<Bson>) -> Self {
        self.computed.insert(field, expression);
        self
    }

    pub(crate) fn unset(self, field: &'static str) -> Self {
        self.unset_all([field])
    }

    pub(crate) fn unset_all(mut self, fields: impl IntoIterator<Item = &'static str>) -> Self {
        self.unset.extend(fields);
        self
    }

    pub(crate) fn without_node(self) -> Self {
        self.set("node", Bson::Null)
    }

    pub(crate) fn end_of_run(self) -> Self {
        self.unset_all(OF_A_RUN)
    }

    /// Removes what keeps a blocked task at a gate, see [`crate::gates`], and what a task waits for an answer to.
    pub(crate) fn end_of_block(self) -> Self {
        self.unset_all(OF_A_BLOCK)
    }

    /// To a gate again, where the task looks anew for those that it waits for, and for its locks: in another round, in which
    /// it holds nothing yet, and no end counts that was seen before.
    pub(crate) fn blocked_anew(self) -> Self {
        self.set("gate", "new")
            .compute("lock_round", doc! { "$add": [count_in("lock_round"), 1] })
            .unset("needs_lock")
    }

    /// Those that wait for the end of the task, if any ever have, are to be told of its next one, too.
    pub(crate) fn with_dependents(self) -> Self {
        let had_dependents = doc! { "$ne": [{ "$type": "$dependents" }, "missing"] };
        self.compute("dependents", doc! { "$cond": [had_dependents, true, "$$REMOVE"] })
    }

    /// Notes that somebody waits for this moment, if somebody does: change streams tell of that.
    fn awaited(self) -> Self {
        let is_awaited = doc! { "$or": [
            { "$eq": ["$dependents", true] }, { "$eq": ["$holds_locks", true] },
        ] };
        self.compute("awaited", doc! { "$cond": [is_awaited, "$$NOW", "$$REMOVE"] })
    }

    /// Says in the history why. What is too long for that is cut.
    pub(crate) fn note(mut self, note: impl AsRef<str>) -> Self {
        self.note = Some(budget::cut(note.as_ref(), budget::NOTE));
        self
    }

    pub(crate) fn failed(self, why: &str) -> Self {
        self.note(why).set_some(ERROR, last_line(why))
    }

    pub(super) fn forgetful(self) -> Self {
        Self { history: History::Anew, ..self }
    }

    /// Removes the history and the progress, so that there is room for something else.
    pub(super) fn without_history(self) -> Self {
        self.unset_all(["history", "progress"])
    }

    pub(super) fn without_leavings(mut self) -> Self {
        self.computed.remove("awaited");
        self.unset_all(LEAVINGS)
    }

    /// The status and nothing that takes room: what can be left out of the task is, and a time replaces one that takes as much.
    pub(super) fn bare(self, with_time: bool) -> Self {
        let bare = Self::within().end_of_run().end_of_block().without_leavings().unset("history");
        let bare = bare.set_some("status", self.values.get("status"));
        match self.values.get("mtime").filter(|_| with_time) {
            Some(now) => bare.compute(
                "mtime",
                doc! { "$cond": [
                    { "$eq": [{ "$type": "$mtime" }, "missing"] }, "$$REMOVE", literal(now.clone()),
                ] },
            ),
            None => bare,
        }
    }

    pub(crate) fn pipeline(self) -> Vec<Document> {
        let values = self.values.clone().into_iter();
        let set = values.map(|(field, value)| (field, literal(value).into())).collect();
        self.stages(set)
    }

    /// Whether one update can make both transitions: they differ in values alone.
    pub(crate) fn is_like(&self, other: &Self) -> bool {
        self.values.keys().eq(other.values.keys())
            && self.computed == other.computed
            && self.unset == other.unset
            && self.note == other.note
            && self.history == other.history
    }

    /// One update for several tasks whose transitions are alike, each with its own values. None: there are none.
    pub(crate) fn pipeline_of(tasks: &[(ObjectId, &Self)]) -> Vec<Document> {
        let Some((_, first)) = tasks.first() else { return Vec::new() };
        let ids: Vec<ObjectId> = tasks.iter().map(|(id, _)| *id).collect();
        let position = doc! { "$indexOfArray": [literal(ids), "$_id"] };
        let set = |(field, value): (&String, &Bson)| {
            let of_task = |(_, task): &(ObjectId, &Self)| task.values.get(field).cloned();
            let all: Vec<Bson> = tasks.iter().filter_map(of_task).collect();
            let value = if all.iter().all(|one| one == value) {
                literal(value.clone())
            } else {
                doc! { "$arrayElemAt": [literal(all), position.clone()] }
            };
            (field.clone(), value.into())
        };
        (*first).clone().stages(first.values.iter().map(set).collect())
    }

    /// The update that gives fields what `set` has for them. It has as few stages as can be: the server makes a document of each.
    fn stages(self, mut set: Document) -> Vec<Document> {
        // An entry of what is computed is for another stage, which sees what this one has set.
        let is_later =
            self.history != History::Same && OF_ENTRIES.iter().any(|field| self.computed.contains_key(field));
        let mut last = match self.history {
            History::Same => Document::new(),
            which => doc! { "history": history(self.note, which, (!is_later).then_some(&set)) },
        };
        set.extend(self.computed);
        // Removing a part of what is not there would make it, and what has parts of its own here is not set as a whole.
        let has_parts = |field: &str| {
            set.keys().any(|key| key.strip_prefix(field).is_some_and(|rest| rest.starts_with('.')))
        };
        let stays = |field: &&str| field.contains('.') || has_parts(field);
        let (parts, fields): (Vec<_>, Vec<_>) = self.unset.into_iter().partition(stays);
        last.extend(fields.into_iter().map(|field| (field.to_owned(), Bson::from("$$REMOVE"))));
        let sets = if is_later { vec![set, last] } else { vec![with(set, last)] };
        let mut stages: Vec<Document> = sets.into_iter().map(|set| doc! { "$set": set }).collect();
        if !parts.is_empty() {
            stages.push(doc! { "$unset": parts });
        }
        stages
    }
}

fn literal(value: impl Into<Bson>) -> Document {
    doc! { "$literal": value.into() }
}

/// The history with an entry of what the task is by now, or of what it gets by `set`.
fn history(note: Option<String>, which: History, set: Option<&Document>) -> Bson {
    let mut entry = doc! { "at": "$$NOW" };
    for field in OF_ENTRIES {
        let set = set.and_then(|set| set.get(field)).cloned();
        entry.insert(field, set.unwrap_or_else(|| format!("${field}").into()));
    }
    put(&mut entry, "note", note.map(literal));
    if which == History::Anew {
        return Bson::from(vec![entry]);
    }
    let before = doc! { "$cond": [{ "$isArray": "$history" }, "$history", []] };
    doc! { "$slice": [{ "$concatArrays": [before, [entry]] }, -budget::ENTRIES] }.into()
}

/// A field that is to be a number from 0 on, as one: what else a program has put there counts as what can be made of it, or as 0, so that no
/// task is in the way of an update of many.
pub(super) fn count_in(field: &str) -> Document {
    let value = format!("${field}");
    let is_integer = doc! { "$in": [{ "$type": &value }, ["int", "long"]] };
    let made = doc! { "$convert": { "input": &value, "to": "int", "onError": 0, "onNull": 0 } };
    doc! { "$max": [0, { "$min": [{ "$cond": [is_integer, value, made] }, MOST_COUNTED] }] }
}

pub(crate) fn server_time_in(duration: Duration) -> Document {
    doc! { "$add": ["$$NOW", millis(duration)] }
}

/// A condition: the time in `field` is past, by the server's clock.
pub(super) fn is_past(field: &str) -> Document {
    doc! { "$lt": [format!("${field}"), "$$NOW"] }
}

/// The last line of a text that says something, without what controls a terminal. `None`: there is none.
pub fn last_line(text: &str) -> Option<String> {
    let lines = text.rsplit(['\n', '\r']).map(|line| shown(line).trim().to_owned());
    let line = lines.into_iter().find(|line| !line.is_empty())?;
    Some(match line.char_indices().nth(MOST_OF_LINE - 1) {
        Some((end, _)) if line.chars().count() > MOST_OF_LINE => {
            format!("{}…", line.get(..end).unwrap_or_default())
        }
        _ => line,
    })
}

fn shown(line: &str) -> String {
    let mut shown = String::new();
    let mut letters = line.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\u{1b}' => skip_sequence(&mut letters),
            '\t' => shown.push(' '),
            control if control.is_control() => {}
            letter => shown.push(letter),
        }
    }
    shown
}

/// Skips the rest of an escape sequence: ECMA-48, control sequences and strings.
fn skip_sequence(letters: &mut Peekable<Chars<'_>>) {
    match letters.next() {
        Some('[') => {
            letters.find(|letter| ('@'..='~').contains(letter));
        }
        Some(']') => {
            letters.find(|letter| matches!(letter, '\u{7}' | '\u{1b}'));
            letters.next_if_eq(&'\\');
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_that_says_something_is_told_as_text() {
        for (text, line) in [
            ("one\ntwo\n\n  \n", "two"),
            ("50 %\r100 %\r\n", "100 %"),
            ("\u{1b}[1;31mno\u{1b}[0m\t<disk>\u{7}", "no <disk>"),
            ("\u{1b}]0;title\u{7}done", "done"),
            ("\u{1b}]0;title\u{1b}\\done", "done"),
            ("\u{1b}[", ""),
            ("", ""),
        ] {
            assert_eq!(last_line(text).unwrap_or_default(), line, "{text:?}");
        }
        let long = last_line(&"é".repeat(1_000)).unwrap();
        assert_eq!((long.chars().count(), long.ends_with('…')), (MOST_OF_LINE, true));
        assert_eq!(last_line(&"é".repeat(MOST_OF_LINE)).unwrap().chars().count(), MOST_OF_LINE);
    }
}
