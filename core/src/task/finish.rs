//! Finish: a runner stores what came out (0 -> final, or -7 to be tried again), status and output in one
//! update.

use disbatch_operation::operation;
use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};
use disbatch_metrics::labels::Burial;
use futures::future::join;
use serde::{Deserialize, Serialize};

use super::Run;
use super::aside::Unfit;
use super::question::{Pause, waits_again};
use super::statements::Statement;
use super::steer::unasked;
use super::transition::{ERROR, Transition, count_in, last_line};
use crate::budget::{NOTE, cut};
use crate::model::document::optional;
use crate::model::{Status, Task, Trial, number, whole_number};
use crate::recordings::Recorded;
use crate::store::collections::ARCHIVE;
use crate::store::error::typed;
use crate::store::{Store, StoreError, with};

/// What Disbatch 4.4 tells of the end of a plugin that is a program: its exit status, and what was wrong. Where `exit` has
/// these, a task has them for itself, too.
pub const COMMAND_FIELDS: [&str; 2] = ["cmdExit", "cmdErr"];

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Finish {
    /// The status that it ended with: at least 1, or -3 if it was terminated, -5 if it was not to run at all.
    pub status: Status,
    /// Null, text, or the id of a GridFS file.
    pub stdout: Bson,
    /// Null, text, or the id of a GridFS file.
    pub stderr: Bson,
    pub complete: bool,
    #[serde(default, deserialize_with = "optional")]
    pub result: Option<Document>,
    /// How the plugin ended: exit code, signal, times, memory.
    pub exit: Option<Document>,
    /// Why it ended like that, where that is not the plugin's doing.
    pub note: Option<String>,
    /// The last line of standard error where `stderr` is not its text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_line: Option<String>,
    /// The attempt is neither a success nor a failure, and the task waits for another.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<Pause>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub recorded: Option<Box<Recorded>>,
    /// Which version ran it, where the queue tried one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub trial: Option<Trial>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Finished {
    Stored,
    /// The task is no longer this run's: it was orphaned or changed by hand. Nothing was stored.
    NotRunning,
}

impl Store {
    /// May be called again with the same values when an answer was lost: a task that already holds them
    /// counts as stored.
    #[operation(task = %run.task, status = %finish.status)]
    pub async fn finish_task(&self, run: &Run, finish: &Finish) -> Result<Finished, StoreError> {
        let (filter, update) = finish.statement(run, self.now()).alone();
        let (ended, ()) = join(
            async { self.tasks().update_one(filter, update).await.map_err(StoreError::from) },
            self.keep_recordings(finish.recorded_of(run)),
        )
        .await;
        let ended = match ended {
            Err(error) if error.is_about_one() => return self.finish_unfit(run, finish, error).await,
            ended => ended?,
        };
        if ended.matched_count == 1 {
            self.note_finish(run, finish);
            return Ok(Finished::Stored);
        }
        let task = self.find_task(run.task).await?;
        self.recognise_finish(run, finish, task.as_ref()).await
    }

    /// Ends the task of `run` although the server refuses `finish` for what the task is like: without its history, then without
    /// what came out, and at last with its status alone. Files that the task would have referred to are removed.
    ///
    /// # Errors
    /// The database cannot be reached, or the task cannot be ended: it is set aside.
    pub(super) async fn finish_unfit(
        &self,
        run: &Run,
        finish: &Finish,
        error: StoreError,
    ) -> Result<Finished, StoreError> {
        let why = format!("what came out could not be stored: {error}");
        let without_output = Finish {
            stdout: Bson::Null,
            stderr: Bson::String(format!("disbatch: {}\n", cut(&why, NOTE))),
            complete: false,
            result: None,
            note: Some(why),
            ..finish.clone()
        };
        for smaller in [finish, &without_output] {
            let transition = smaller.transition(self.now()).without_leavings().forgetful();
            match self.tasks().update_one(run.filter(), transition.pipeline()).await.map_err(StoreError::from)
            {
                Ok(ended) if ended.matched_count == 1 => {
                    tracing::error!(task = %run.task, %error, complete = smaller.complete, "the end of a task is stored without some of it");
                    self.note_finish(run, smaller);
                    if !std::ptr::eq(smaller, finish) {
                        self.discard_output(&[finish.stdout.clone(), finish.stderr.clone()]).await?;
                    }
                    return Ok(Finished::Stored);
                }
                // Somebody else has ended it.
                Ok(_) => return Ok(Finished::NotRunning),
                Err(error) if error.is_about_one() => {}
                Err(error) => return Err(error),
            }
        }
        let refused = error.to_string();
        match self.end_unfit(run.task, &run.like(), finish.status, error).await? {
            Unfit::Ended => {
                self.measure_attempt(run.queue, finish, Burial::Ended);
                self.discard_output(&[finish.stdout.clone(), finish.stderr.clone()]).await?;
                Ok(Finished::Stored)
            }
            Unfit::Changed => Ok(Finished::NotRunning),
            Unfit::Aside => Err(StoreError::unfit(&refused)),
        }
    }

    pub(super) fn note_finish(&self, run: &Run, finish: &Finish) {
        self.moved(run.queue, Some(Status::Running), Some(finish.status), 1);
        self.measure_attempt(run.queue, finish, Burial::Ended);
        self.note_attempt(run, finish.status, finish.ran());
        self.note_trial(run.queue, finish.trial, finish.status);
        if let Some(ran) = finish.ran() {
            self.note_run(run.queue, ran);
        }
    }

    /// Whether the end that found no running task is stored all the same: in the task as it is now, by an
    /// earlier update whose answer was lost, or in what was made of the task since then.
    pub(super) async fn recognise_finish(
        &self,
        run: &Run,
        finish: &Finish,
        task: Option<&Task>,
    ) -> Result<Finished, StoreError> {
        // Whether the one who stored it has counted it is not known.
        self.doubt_counters();
        if task.is_some_and(|task| finish.is_held_by(task, run)) {
            return Ok(Finished::Stored);
        }
        let elsewhere = self.was_archived(run, finish).await? || self.was_tried_again(run, finish).await?;
        Ok(if elsewhere { Finished::Stored } else { Finished::NotRunning })
    }

    async fn ends_with(&self, run: &Run) -> Result<bool, StoreError> {
        let task = self.find_task(run.task).await?;
        Ok(task.is_some_and(|task| task.status.has_ended() && run.is_of(task.rest.get("attempt"))))
    }

    async fn was_archived(&self, run: &Run, finish: &Finish) -> Result<bool, StoreError> {
        let copy = self.archive().find_one(doc! { "_id": run.task }).await;
        // A user that an older release made may not look there.
        let Some(copy) = StoreError::unless_forbidden(copy)?.flatten() else { return Ok(false) };
        Ok(finish.is_held_by(&typed(ARCHIVE.name, copy)?, run))
    }

    /// A task that has ended and is tried again by hand leaves its outcome among the attempts.
    async fn was_tried_again(&self, run: &Run, finish: &Finish) -> Result<bool, StoreError> {
        let kept = self.find_attempt(run.task, run.attempt).await?;
        Ok(kept.is_some_and(|kept| {
            kept.get("status") == Some(&Bson::from(finish.status))
                && kept.get("node") == Some(&Bson::from(&run.node))
                && kept.get("stdout") == Some(&finish.stdout)
                && kept.get("stderr") == Some(&finish.stderr)
                && kept.get("complete") == Some(&Bson::from(finish.complete))
        }))
    }

    /// Ends the task of `run`, or this attempt, if it is to be tried `again` after a pause. Where this user may not
    /// keep attempts, it is the last one. May be repeated like [`Store::finish_task`].
    #[operation]
    pub async fn end_attempt(
        &self,
        run: &Run,
        finish: &Finish,
        again: Option<Duration>,
    ) -> Result<Finished, StoreError> {
        let Some(pause) = again else { return self.finish_task(run, &finish.for_good()).await };
        match self.retry_later(run, finish, pause).await {
            Err(error) if error.is_forbidden() => {
                tracing::error!(%error, "cannot keep this attempt, so it is the last one");
                self.finish_task(run, &finish.for_good()).await
            }
            other => other,
        }
    }

    /// Ends an attempt that failed, and lets the task be tried again after `pause`, or one that [pauses](Pause): its
    /// outcome is kept beside the task, which becomes -7. May be repeated like [`Store::finish_task`].
    #[operation(task = %run.task, status = %finish.status)]
    pub async fn retry_later(
        &self,
        run: &Run,
        finish: &Finish,
        pause: Duration,
    ) -> Result<Finished, StoreError> {
        let keeping = Box::pin(self.keep_attempt(run, finish));
        let not_kept = match join(keeping, self.keep_recordings(finish.recorded_of(run))).await.0 {
            Err(error) if error.is_about_one() => return self.last_attempt(run, finish, &error).await,
            not_kept => not_kept?,
        };
        let update = match &finish.pause {
            Some(pause) => pause.transition(self),
            None => deferred(self, pause, finish),
        };
        let filter = with(run.filter(), unasked());
        let updated = self.tasks().update_one(filter, update.pipeline()).await;
        let deferred = match updated.map_err(StoreError::from) {
            Err(error) if error.is_about_one() => {
                if not_kept.is_none() {
                    self.forget_attempt((run.task, run.attempt), Some(run)).await?;
                }
                return self.last_attempt(run, finish, &error).await;
            }
            deferred => deferred?,
        };
        if deferred.matched_count == 1 {
            if let Some(outcome) = not_kept {
                self.keep_instead(run, outcome).await;
            }
            self.moved(run.queue, Some(Status::Running), Some(Status::Deferred), 1);
            if finish.pause.is_none() {
                self.measure_retry(run.queue);
            }
            self.measure_attempt(run.queue, finish, Burial::Requeued);
            self.note_attempt(run, finish.status, finish.ran());
            self.note_trial(run.queue, finish.trial.filter(|_| finish.pause.is_none()), finish.status);
            return Ok(Finished::Stored);
        }
        let stored = self.find_task(run.task).await?;
        let is_deferred =
            |task: &Task| task.status == Status::Deferred && run.is_of(task.rest.get("attempt"));
        if stored.as_ref().is_some_and(is_deferred) {
            self.doubt_counters();
            return Ok(Finished::Stored);
        }
        let ended = self.end_as_asked(run, finish, stored.as_ref()).await?;
        // Somebody has stored the same, and the task has gone on from there.
        if ended.is_none() && self.was_tried_again(run, finish).await? && !self.ends_with(run).await? {
            return Ok(Finished::Stored);
        }
        if not_kept.is_none() {
            self.forget_attempt((run.task, run.attempt), Some(run)).await?;
        }
        Ok(ended.unwrap_or(Finished::NotRunning))
    }

    async fn last_attempt(
        &self,
        run: &Run,
        finish: &Finish,
        error: &StoreError,
    ) -> Result<Finished, StoreError> {
        let why = finish.note.as_deref().unwrap_or("failed");
        let note = Some(format!("{why}; it cannot be tried again: {error}"));
        self.finish_task(run, &Finish { note, ..finish.for_good() }).await
    }
}

pub(super) fn deferred(store: &Store, pause: Duration, finish: &Finish) -> Transition {
    let why = format!("{}; to be tried again", finish.note.as_deref().unwrap_or("failed"));
    waits_again(store, pause, &why).compute("failures", doc! { "$add": [count_in("failures"), 1] })
}

/// Of the tasks of a group, those come first that are tried again.
pub(super) fn goes_first() -> Document {
    let has_group = doc! { "$ne": [{ "$type": "$group" }, "missing"] };
    doc! { "$cond": [has_group, true, "$$REMOVE"] }
}

impl Finish {
    pub(super) fn recorded_of<'a>(&'a self, run: &'a Run) -> Vec<(&'a Run, &'a Recorded)> {
        self.recorded.iter().map(|recorded| (run, &**recorded)).collect()
    }

    pub fn ran(&self) -> Option<Duration> {
        let seconds = self.exit.as_ref()?.get("duration").and_then(number)?;
        Duration::try_from_secs_f64(seconds).ok()
    }

    pub(super) fn statement(&self, run: &Run, now: DateTime) -> Statement {
        Statement::of(run.task.0, run.like(), self.transition(now))
    }

    fn transition(&self, now: DateTime) -> Transition {
        let mut transition = Transition::to(self.status, now)
            .set("stdout", self.stdout.clone())
            .set("stderr", self.stderr.clone())
            .set("complete", self.complete)
            .end_of_run()
            .set_some("result", self.result.as_ref())
            .set_some("exit", self.exit.as_ref());
        for field in COMMAND_FIELDS {
            transition = transition.set_some(field, self.exit.as_ref().and_then(|exit| exit.get(field)));
        }
        if let Some(note) = &self.note {
            transition = transition.note(note);
        }
        transition.set_some(ERROR, self.error())
    }

    /// Why it failed, in a line: what the plugin said last, or what ended it. `None`: it has not failed, or nobody said anything.
    pub(super) fn error(&self) -> Option<String> {
        if self.status == Status::Succeeded || self.pause.is_some() {
            return None;
        }
        let said = match &self.stderr {
            Bson::String(text) => last_line(text),
            _ => self.last_line.clone(), // Null, or a file.
        };
        let note = self.note.as_deref().and_then(last_line);
        let of_exit = |name: &str| self.exit.as_ref()?.get(name).and_then(whole_number);
        let code = || {
            let code = of_exit("code").filter(|code| *code != 0).map(|code| format!("exit code {code}"));
            code.or_else(|| of_exit("signal").map(|signal| format!("signal {signal}")))
        };
        // What others have ended has not failed by itself.
        let is_made_to = matches!(self.status, Status::Cancelled | Status::Terminated | Status::Orphaned);
        if is_made_to { note.or(said) } else { said.or(note).or_else(code) }
    }

    pub(super) fn is_held_by(&self, task: &Task, run: &Run) -> bool {
        task.status == self.status
            && run.is_of(task.rest.get("attempt"))
            && task.node.as_ref() == Some(&Bson::from(&run.node))
            && task.stdout.as_ref() == Some(&self.stdout)
            && task.stderr.as_ref() == Some(&self.stderr)
            && task.complete == Some(Bson::Boolean(self.complete))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_has_a_line_that_says_why() {
        let finish = |status, stderr: Bson, note: Option<&str>| Finish {
            status,
            stdout: Bson::Null,
            stderr,
            complete: true,
            result: None,
            exit: Some(doc! { "code": 3 }),
            note: note.map(str::to_owned),
            last_line: Some("of the file".to_owned()),
            pause: None,
            recorded: None,
            trial: None,
        };
        let text = || Bson::from("trying\nno disk\n");
        let error = |finish: Finish| finish.error();
        assert_eq!(error(finish(Status::Succeeded, text(), None)), None);
        assert_eq!(error(finish(Status::Failed, text(), Some("told to end"))).as_deref(), Some("no disk"));
        assert_eq!(error(finish(Status::from_code(17), text(), None)).as_deref(), Some("no disk"));
        let file = bson::oid::ObjectId::new();
        assert_eq!(error(finish(Status::Failed, file.into(), None)).as_deref(), Some("of the file"));
        let late = finish(Status::Terminated, text(), Some("it took longer than its timeout"));
        assert_eq!(error(late).as_deref(), Some("it took longer than its timeout"));
        let silent = Finish { last_line: None, ..finish(Status::Failed, Bson::Null, None) };
        assert_eq!(silent.error().as_deref(), Some("exit code 3"));
        let stored = silent.transition(DateTime::from_millis(0)).pipeline();
        assert!(bson::Bson::from(stored).to_string().contains("exit code 3"));
    }
}
