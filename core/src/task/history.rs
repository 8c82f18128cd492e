//! The history of a task as it is told. What is stored are the changes of its status; how it began is in its other fields. Pure.
//!
//! So a submission is no larger for it, and old tasks and those of Perl's programs have a beginning, too.

use bson::{Bson, DateTime, Document, doc};

use super::sweep::DUE;
use crate::model::{Moment, Phase, Status, whole_number};

/// How a task began.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submission {
    /// When it was submitted.
    pub at: DateTime,
    /// The status that it had then.
    pub status: Status,
}

impl Submission {
    /// What tells of it in a history.
    pub const NOTE: &str = "submitted";

    /// That of a task. `None`: nobody has noted when it was, or its history begins earlier.
    pub fn of(task: &Document) -> Option<Self> {
        let at = time(task, "ctime")?;
        let first = entries(task).first().and_then(Bson::as_document);
        let is_first = first.and_then(|entry| time(entry, "at")).is_none_or(|first| at <= first);
        is_first.then(|| Self { at, status: first_status(task, first) })
    }
}

/// The history of a task from its submission on. `None`: that is not known, or what is stored is no history.
pub fn history(task: &Document) -> Option<Vec<Bson>> {
    let is_odd = task.get("history").is_some_and(|stored| !matches!(stored, Bson::Array(_) | Bson::Null));
    let Submission { at, status } = Submission::of(task).filter(|_| !is_odd)?;
    let note = Submission::NOTE;
    let first = doc! { "at": at, "status": status, "attempt": Bson::Null, "node": Bson::Null, "note": note };
    Some([Bson::from(first)].into_iter().chain(entries(task).iter().cloned()).collect())
}

/// The status before the first change.
fn first_status(task: &Document, change: Option<&Document>) -> Status {
    let next = change.and_then(status);
    let has = |field: &str| task.get(field).is_some_and(|value| *value != Bson::Null);
    // The time of a task that is tried again is that of its next attempt, and tells nothing of its first.
    let was_due = || change.is_some_and(|change| change.get_str("note").is_ok_and(|note| note == DUE));
    let of_fields = || match (has("after"), has("run_at")) {
        (true, _) => Status::Blocked,
        (false, true) => Status::Deferred,
        (false, false) if has("locks") || has("held") => Status::Blocked,
        (false, false) => Status::Queued,
    };
    match next {
        Some(Status::Claimed) => Status::Queued,
        Some(Status::Deferred) => Status::Blocked,
        Some(Status::Queued) if was_due() => Status::Deferred,
        // A deferred task with locks would have gone on to these.
        Some(Status::Queued) if has("locks") || is_tried_again(task) => Status::Blocked,
        // It was not queued before; nothing may be left of what has held it.
        Some(Status::Queued) if of_fields() == Status::Queued => Status::Blocked,
        Some(Status::Blocked) if has("run_at") => Status::Deferred,
        Some(Status::Blocked) => Status::Queued,
        None => status(task).filter(|now| now.phase() == Some(Phase::Queued)).unwrap_or_else(of_fields),
        Some(_) => of_fields(), // Any change is possible from where it was.
    }
}

/// Whether the time of a task is that of its next attempt.
fn is_tried_again(task: &Document) -> bool {
    task.get("failures").and_then(whole_number).is_some_and(|failures| failures > 0)
}

fn entries(task: &Document) -> &[Bson] {
    task.get_array("history").map(Vec::as_slice).unwrap_or_default()
}

fn time(document: &Document, field: &str) -> Option<DateTime> {
    Moment(document.get(field)?.clone()).get()
}

fn status(document: &Document) -> Option<Status> {
    document.get("status").and_then(whole_number).map(Status::from_code)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> DateTime {
        DateTime::from_millis(1_795_163_067_344 + seconds * 1000)
    }

    fn began(fields: Document) -> Option<Status> {
        let mut task = doc! { "ctime": at(0) };
        task.extend(fields);
        Submission::of(&task).map(|submission| submission.status)
    }

    #[test]
    fn a_task_begins_as_what_it_was_before_its_first_change() {
        let then = |status: i32| vec![doc! { "at": at(5), "status": status }];
        let due = doc! { "at": at(5), "status": -2, "note": DUE };
        for (fields, expected) in [
            (doc! { "status": -2 }, Status::Queued),
            (doc! { "status": -7, "run_at": at(9) }, Status::Deferred),
            (doc! { "status": -99 }, Status::Other(-99)),
            (doc! { "status": 1 }, Status::Queued),
            (doc! { "status": 1, "run_at": at(9), "history": then(-1) }, Status::Queued),
            (doc! { "status": -2, "run_at": at(9), "history": then(-2) }, Status::Deferred),
            (doc! { "status": -2, "history": then(-2) }, Status::Blocked),
            (doc! { "status": -7, "locks": [1], "run_at": at(99), "history": then(-2) }, Status::Blocked),
            (doc! { "status": -7, "run_at": at(99), "failures": 1, "history": then(-2) }, Status::Blocked),
            (doc! { "run_at": at(99), "failures": 1, "history": [due] }, Status::Deferred),
            (doc! { "status": -7, "after": [1], "run_at": at(9), "history": then(-7) }, Status::Blocked),
            (doc! { "status": -4, "locks": [1], "run_at": at(9), "history": then(-4) }, Status::Deferred),
            (doc! { "status": -4, "locks": [1], "history": then(-4) }, Status::Queued),
            (doc! { "status": -5, "after": [1], "history": then(-5) }, Status::Blocked),
            (doc! { "status": -5, "locks": [1], "history": then(-5) }, Status::Blocked),
            (doc! { "status": -5, "history": then(-5) }, Status::Queued),
        ] {
            assert_eq!(began(fields.clone()), Some(expected), "{fields}");
        }
        assert_eq!(began(doc! { "history": [{ "at": at(-1), "status": -1 }] }), None, "it is older");
        assert_eq!(Submission::of(&doc! { "status": -2 }), None, "nobody knows when");
    }

    #[test]
    fn a_history_is_told_from_its_submission_on() {
        let claimed = doc! { "at": at(5), "status": -1 };
        let task = doc! { "ctime": at(0), "status": -1, "history": [claimed.clone()] };
        let told = history(&task).unwrap();
        let first = told[0].as_document().unwrap();
        assert_eq!((first["status"].as_i32(), first["note"].as_str()), (Some(-2), Some("submitted")));
        assert_eq!(told[1..], [Bson::from(claimed)]);
        assert_eq!(history(&doc! { "ctime": 1_795_163_067_i64, "status": -2 }).unwrap().len(), 1);
        assert_eq!(history(&doc! { "ctime": at(0), "history": "odd" }), None);
    }
}
