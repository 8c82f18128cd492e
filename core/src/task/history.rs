//! What was before: the history of a task as it is told; what came out of each earlier attempt, kept in `tasks.attempts` when a task is
//! tried again; and what programs of Disbatch 4.4 have answered in `results`.
//!
//! What is stored of the history are the changes of its status; how it began is in its other fields. So a submission is no larger for
//! it, and old tasks and those of Perl's programs have a beginning, too.

use bson::{Bson, DateTime, Document, doc};
use disbatch_operation::operation;

use super::steps::kept;
use super::sweep::DUE;
use super::transition::ERROR;
use super::{Finish, Run};
use crate::model::{PLUGIN_VERSION, Phase, STEPS, Status, Task, TaskId, date_time, whole_number};
use crate::store::{Store, StoreError, Stored, collect, put, with};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Submission {
    pub at: DateTime,
    pub status: Status,
}

impl Submission {
    pub const NOTE: &str = "submitted";

    /// That of a task. `None`: nobody has noted when it was, or its history begins earlier.
    pub fn of(task: &Document) -> Option<Self> {
        let at = task.get("ctime").and_then(date_time)?;
        let first = entries(task).first().and_then(Bson::as_document);
        let begun = first.and_then(|entry| entry.get("at")).and_then(date_time);
        let is_first = begun.is_none_or(|first| at <= first);
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

fn first_status(task: &Document, change: Option<&Document>) -> Status {
    let next = change.and_then(Status::stored);
    let has = |field: &str| task.get(field).is_some_and(|value| *value != Bson::Null);
    let failures = task.get("failures").and_then(whole_number);
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
        Some(Status::Queued) if has("locks") || failures.is_some_and(|failures| failures > 0) => {
            Status::Blocked
        }
        // It was not queued before; nothing may be left of what has held it.
        Some(Status::Queued) if of_fields() == Status::Queued => Status::Blocked,
        Some(Status::Blocked) if has("run_at") => Status::Deferred,
        Some(Status::Blocked) => Status::Queued,
        None => {
            Status::stored(task).filter(|now| now.phase() == Some(Phase::Queued)).unwrap_or_else(of_fields)
        }
        Some(_) => of_fields(), // Any change is possible from where it was.
    }
}

fn entries(task: &Document) -> &[Bson] {
    task.get_array("history").map(Vec::as_slice).unwrap_or_default()
}

impl Store {
    /// Keeps the outcome of an attempt. Whoever comes second changes nothing, and gets back what was not kept, for
    /// [`Store::keep_instead`].
    pub(super) async fn keep_attempt(
        &self,
        run: &Run,
        finish: &Finish,
    ) -> Result<Option<Document>, StoreError> {
        let only = doc! { "started": 1, STEPS: 1, PLUGIN_VERSION: 1 };
        let stored = self.tasks().find_one(doc! { "_id": run.task }).projection(only).await?;
        let mut outcome = doc! {
            "node": &run.node, "status": finish.status, "stdout": &finish.stdout, "stderr": &finish.stderr,
            "complete": finish.complete, "ended": self.now(),
        };
        let of_task = |field: &str| stored.as_ref().and_then(|task| task.get(field));
        put(&mut outcome, "started", of_task("started"));
        put(&mut outcome, PLUGIN_VERSION, of_task(PLUGIN_VERSION));
        put(&mut outcome, STEPS, kept(of_task(STEPS), finish.status));
        put(&mut outcome, "exit", finish.exit.as_ref());
        put(&mut outcome, "result", finish.result.as_ref());
        put(&mut outcome, "note", finish.note.as_ref());
        put(&mut outcome, ERROR, finish.error());
        let is_kept = self.insert_attempt(run.task, run.attempt, outcome.clone()).await?;
        Ok((!is_kept).then_some(outcome))
    }

    /// Keeps the outcome with which this caller has let the task of `run` wait for its next attempt, in place of that of a burial
    /// that came to nothing, whose files it removes. An outcome that the run itself has kept stays.
    pub(super) async fn keep_instead(&self, run: &Run, outcome: Document) {
        let attempt = doc! { "task": run.task, "attempt": run.attempt };
        let buried = with(attempt.clone(), doc! { "status": Status::Orphaned });
        let kept: Result<(), StoreError> = async {
            let instead = Stored(with(attempt, outcome.clone()));
            let Some(before) = self.attempts().find_one_and_replace(buried, instead).await? else {
                // Who had kept it may have removed it.
                return self.insert_attempt(run.task, run.attempt, outcome).await.map(|_| ());
            };
            self.discard_output(&files_in(&before)).await
        }
        .await;
        if let Err(error) = kept {
            tracing::warn!(task = %run.task, %error, "what a burial had kept of an attempt stays in place of its outcome");
        }
    }

    /// Keeps the outcome that an ended task holds, before it is tried again by hand.
    pub(super) async fn keep_outcome(&self, task: &Task) -> Result<bool, StoreError> {
        let mut outcome = doc! { "status": task.status, "ended": task.mtime.clone() };
        put(&mut outcome, "node", task.node.as_ref());
        put(&mut outcome, "stdout", task.stdout.as_ref());
        put(&mut outcome, "stderr", task.stderr.as_ref());
        put(&mut outcome, "complete", task.complete.as_ref());
        for field in ["started", "exit", "result", ERROR, PLUGIN_VERSION] {
            put(&mut outcome, field, task.rest.get(field));
        }
        put(&mut outcome, STEPS, kept(task.rest.get(STEPS), task.status));
        // A task of Perl's has no number; what it did was its first attempt all the same.
        self.insert_attempt(task.id, task.attempt().unwrap_or(0).max(1), outcome).await
    }

    async fn insert_attempt(
        &self,
        task: TaskId,
        attempt: i64,
        outcome: Document,
    ) -> Result<bool, StoreError> {
        let update = doc! { "$setOnInsert": outcome };
        let inserted =
            self.attempts().update_one(doc! { "task": task, "attempt": attempt }, update).upsert(true).await;
        // Two at once: one of them has kept it.
        let inserted = StoreError::unless_duplicate(inserted)?;
        Ok(inserted.is_some_and(|result| result.upserted_id.is_some()))
    }

    /// Removes an attempt that this caller has kept, if its outcome is in the task itself after all, or if `run` goes on: how that ends
    /// is not known yet. An outcome from which somebody else has gone on meanwhile stays: there is no other copy.
    pub(super) async fn forget_attempt(
        &self,
        (task, attempt): (TaskId, i64),
        run: Option<&Run>,
    ) -> Result<(), StoreError> {
        // Before the task: what somebody puts in its place who goes on from there is another one.
        let Some(kept) = self.find_attempt(task, attempt).await? else { return Ok(()) };
        let stored = self.find_task(task).await?;
        // One that was cancelled while it waited for its next attempt has the number of the last one, and nothing of it.
        let is_there = |task: &Task| {
            task.status.has_ended()
                && task.status != Status::Cancelled
                && task.attempt().unwrap_or(0).max(1) == attempt.max(1)
        };
        let goes_on = |task: &Task| {
            let attempt = task.rest.get("attempt");
            task.status == Status::Running && run.is_some_and(|run| run.is_of(attempt))
        };
        if stored.is_some_and(|task| is_there(&task) || goes_on(&task)) {
            let of_kept = |field: &str| kept.get(field).cloned();
            let same = doc! { "_id": of_kept("_id"), "status": of_kept("status"), "ended": of_kept("ended") };
            self.attempts().delete_one(same).await?;
        }
        Ok(())
    }

    #[operation(task = %task)]
    pub async fn list_attempts(&self, task: TaskId) -> Result<Vec<Document>, StoreError> {
        collect(self.attempts().find(doc! { "task": task }).sort(doc! { "attempt": 1 })).await
    }

    #[operation(task = %task, attempt)]
    pub async fn find_attempt(&self, task: TaskId, attempt: i64) -> Result<Option<Document>, StoreError> {
        Ok(self.attempts().find_one(doc! { "task": task, "attempt": attempt }).await?.map(Document::from))
    }

    #[operation(%task)]
    pub async fn find_result(&self, task: TaskId) -> Result<Option<Document>, StoreError> {
        Ok(self.results().find_one(doc! { "_id": task }).await?.map(Document::from))
    }

    /// Removes the answer of an earlier attempt, so that it is not taken for that of the next one.
    #[operation(%task)]
    pub async fn remove_result(&self, task: TaskId) -> Result<(), StoreError> {
        let removed = self.results().delete_one(doc! { "_id": task }).await.map_err(StoreError::from);
        let Err(error) = removed else { return Ok(()) };
        // There mostly is none, and who may look at least need not remove anything then.
        if error.is_forbidden() && self.find_result(task).await?.is_none() { Ok(()) } else { Err(error) }
    }
}

pub(super) fn files_in(outcome: &Document) -> Vec<Bson> {
    let file = |stream: &str| outcome.get_object_id(stream).ok().map(Bson::from);
    ["stdout", "stderr"].into_iter().filter_map(file).collect()
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
