//! The end that was noted for a task of a web service is made: its log goes to its place, and one update ends the task with
//! that, or lets it wait for its next attempt.
//!
//! Several may do so at once: the service that has repeated what it had said, and a DEN. Each brings a log of its own to its
//! place; the one that the task, or its kept attempt, refers to stays, and each removes its own if it is another one.

use std::time::Duration;

use bson::{Bson, DateTime, doc};

use super::end::still_ending;
use super::{DETACHED, EXTERNAL, Ending, FREED, SPARE, is_too_large};
use crate::model::{Rules, STEPS, Selector, Status, Task, Trial};
use crate::store::{Store, StoreError};
use crate::task::finish::deferred;
use crate::task::steps::closed;
use crate::task::transition::Transition;
use crate::task::{Finish, Run};

/// What has become of a task whose end was to be made.
#[derive(Debug, PartialEq)]
enum Made {
    /// It waits for its next attempt.
    Again,
    /// It has ended with this standard output.
    Ended(Bson),
    /// Somebody else has made the end.
    ByAnother,
}

impl Store {
    /// Makes the end that was noted in `task`. Whoever comes second changes nothing.
    pub(super) async fn make_end(&self, task: &Task) -> Result<(), StoreError> {
        let Some(ending) = task.rest.get_document(EXTERNAL).ok().and_then(Ending::of) else { return Ok(()) };
        let queue = self.find_queue(&Selector::Id(task.queue.0)).await?;
        let run = Run::of(task);
        let stdout = self.seal_log(&run, &still_ending(task)).await?;
        let finish = ending.finish(task, stdout);
        let again = ending.again(task, &Rules::of(task, queue.as_ref()));
        let mut kept = false;
        let mut made = Made::ByAnother;
        if let Some(pause) = again {
            kept = self.keep_attempt(&run, &finish).await?;
            made = self.let_wait(task, &finish, pause).await?;
        }
        if made == Made::ByAnother {
            made = self.end_for_good(task, &run, &finish).await?;
        }
        if kept && made != Made::Again {
            self.forget_attempt(run.task, run.attempt).await?;
        }
        let is_referred_to = match &made {
            Made::Ended(stdout) => *stdout == finish.stdout,
            // Two may have kept the attempt at once, and only one of them has.
            Made::Again | Made::ByAnother => again.is_some() && self.has_kept(&run, &finish.stdout).await?,
        };
        if !is_referred_to {
            self.discard_output(std::slice::from_ref(&finish.stdout)).await?;
        }
        if made == Made::ByAnother {
            return Ok(());
        }
        self.note_trial(
            task.queue,
            queue.as_ref().and_then(|queue| Trial::of_started(queue, task)),
            finish.status,
        );
        if let (Some(queue), Some(since)) = (&queue, handed_over(task)) {
            let stayed = self.now().timestamp_millis().saturating_sub(since.timestamp_millis());
            let stayed = Duration::from_millis(u64::try_from(stayed).unwrap_or(0));
            self.note_stayed_with_service(task, queue, stayed);
        }
        self.remove_log(run.task, run.attempt).await?;
        self.remove_live(run.task, Some(run.attempt)).await?;
        // What others had begun to store who did not come so far.
        let uploads = task.rest.get_array("uploads").map_or(&[][..], Vec::as_slice);
        self.discard_uploads(&run, uploads).await
    }

    /// Lets the task wait for its next attempt, unless somebody wants its end, has made it, or there is no room for that.
    async fn let_wait(&self, task: &Task, finish: &Finish, pause: Duration) -> Result<Made, StoreError> {
        let mut unasked = still_ending(task);
        unasked.insert("cancel", doc! { "$not": { "$type": "object" } });
        let why = format!("{}; to be tried again", finish.note.as_deref().unwrap_or("failed"));
        let update = deferred(self, pause, &why).set(DETACHED, false).compute(FREED, "$$NOW").pipeline();
        let changed = match self.tasks().update_one(unasked, update).await.map_err(StoreError::from) {
            Err(error) if is_too_large(&error) => {
                tracing::error!(task = %task.id, %error, "a task has no room for another attempt");
                false
            }
            changed => changed?.matched_count == 1,
        };
        if changed {
            self.moved(task.queue, Some(Status::Running), Some(Status::Deferred), 1);
            self.measure_attempt(task.queue, finish);
        }
        Ok(if changed { Made::Again } else { Made::ByAnother })
    }

    /// Ends the task. Where it has no room for that, its output goes into a file; and at last it is left out, which is better than
    /// running for ever.
    async fn end_for_good(&self, task: &Task, run: &Run, finish: &Finish) -> Result<Made, StoreError> {
        let refused = match self.end_with(task, run, finish, &[]).await {
            Err(error) if is_too_large(&error) => error,
            made => return made,
        };
        tracing::error!(task = %task.id, error = %refused, "the end of a task is too large to be stored as it is");
        if finish.stdout.as_str().is_some() {
            let stdout = self.seal_log_as_file(run, &still_ending(task)).await?;
            let in_file = Finish { stdout, ..finish.clone() };
            match self.end_with(task, run, &in_file, &[]).await {
                Err(error) if is_too_large(&error) => {}
                Ok(Made::ByAnother) => {}
                made => return made,
            }
            self.discard_output(&[in_file.stdout]).await?;
        }
        let without_output = Finish {
            stdout: Bson::Null,
            stderr: Bson::Null,
            complete: false,
            result: None,
            note: Some(format!("{}; {refused}", finish.note.as_deref().unwrap_or("ended"))),
            ..finish.clone()
        };
        match self.end_with(task, run, &without_output, &[]).await {
            Err(error) if is_too_large(&error) => {}
            made => return made,
        }
        let bare = Finish { exit: None, note: None, ..without_output };
        self.end_with(task, run, &bare, &SPARE).await
    }

    /// Ends the task so, without these fields.
    async fn end_with(
        &self,
        task: &Task,
        run: &Run,
        finish: &Finish,
        spare: &[&'static str],
    ) -> Result<Made, StoreError> {
        let update = finish.statement(run, self.now()).transition;
        let update = update.set(DETACHED, false).compute(STEPS, closed(finish.status));
        // They are in their places by now.
        let update = update.unset("external.end.result").unset("external.end.message");
        let update = if spare.is_empty() { update.compute(FREED, "$$NOW") } else { update };
        let update = spare.iter().copied().fold(update, Transition::unset);
        if self.tasks().update_one(still_ending(task), update.pipeline()).await?.matched_count == 0 {
            return Ok(Made::ByAnother);
        }
        self.note_finish(run, finish);
        Ok(Made::Ended(finish.stdout.clone()))
    }

    /// Whether the kept attempt of this run has this standard output.
    async fn has_kept(&self, run: &Run, stdout: &Bson) -> Result<bool, StoreError> {
        if stdout.as_object_id().is_none() {
            return Ok(false); // There is nothing to remove.
        }
        let kept = self.find_attempt(run.task, run.attempt).await?;
        Ok(kept.is_some_and(|kept| kept.get("stdout") == Some(stdout)))
    }
}

/// Since when its service alone has the task: up to then, the DEN of its runner notes how long it has had its place. `None`: it has
/// ended it before.
fn handed_over(task: &Task) -> Option<DateTime> {
    task.rest.get_document(EXTERNAL).ok()?.get_datetime("since").ok().copied()
}
