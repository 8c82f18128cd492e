//! The end of a task that a web service works on: noted by one update, then made: its log goes to its place, and another update ends the
//! task with that, or lets it wait for its next attempt.
//!
//! A noted end is that of the run that was handed over: [`DETACHED`] is true from the note until the end is made, and the start
//! of another run removes both. So nobody who completes what was noted ends a run that it was not noted for.
//!
//! Who notes the end has the task for [`ENDING`]. Output comes before the task that refers to it, so what a dead process has
//! begun to store is noted in `uploads` before, and whoever ends the task in its place removes it.
//!
//! Several may make the end at once: the service that has repeated what it had said, and a DEN. Each brings a log of its own to its
//! place; the one that the task, or its kept attempt, refers to stays, and each removes its own if it is another one.

use std::convert::Infallible;
use std::time::Duration;

use bson::{Bson, Document, doc};
use disbatch_metrics::labels::Burial;
use disbatch_operation::operation;

use super::{DETACHED, EXTERNAL, Ending, FREED, Reason, SPARE};
use crate::model::{Rules, STEPS, Selector, Status, Task, TaskId, Trial};
use crate::store::collections::TASKS;
use crate::store::error::typed;
use crate::store::{Store, StoreError, between, with};
use crate::task::finish::deferred;
use crate::task::steer::unasked;
use crate::task::steps::closed;
use crate::task::transition::{Transition, is_past, server_time_in};
use crate::task::{CancelRequest, Cancelled, Finish, Run};

/// How long whoever has noted an end may take to make it, without saying that it is still at work.
pub(super) const ENDING: Duration = Duration::from_secs(30);

#[derive(Debug, PartialEq)]
enum Made {
    Again,
    Ended(Bson),
    ByAnother,
}

impl Store {
    /// Notes the end of the task that `filter` matches, which must be running and without a noted end. From then on it is
    /// nobody else's. Returns whether this call has noted it. `cancel`: who wants the end, if somebody does. Where the task has
    /// no room for all of that, how it ends is noted alone.
    pub(crate) async fn note_end(
        &self,
        filter: Document,
        ending: &Ending,
        cancel: Option<Document>,
    ) -> Result<bool, StoreError> {
        let filter = with(filter, doc! { "status": Status::Running, "external.end": Bson::Null });
        let mut update = note(ending);
        if let Some(cancel) = cancel {
            update = update.compute("cancel", doc! { "$ifNull": ["$cancel", { "$literal": cancel }] });
        }
        let whole = self.tasks().update_one(filter.clone(), update.pipeline()).await;
        match whole.map_err(StoreError::from) {
            Err(error) if error.is_too_large() => {
                // Better without what is said about it than running for ever.
                tracing::error!(%error, "the end of a task is too large to be noted as it is");
                let short = Ending { message: None, result: None, ..ending.clone() };
                let update = note(&short).unset_all(SPARE);
                Ok(self.tasks().update_one(filter, update.pipeline()).await?.matched_count == 1)
            }
            whole => Ok(whole?.matched_count == 1),
        }
    }

    /// Ends a task that a web service has, because somebody wants that. Where another end was noted before and is not made yet,
    /// that one stays, but the task is not tried again after it. Returns what came of it, or `None` if no service has the task.
    pub(in crate::task) async fn cancel_external(
        &self,
        id: TaskId,
        request: &CancelRequest,
    ) -> Result<Option<Cancelled>, StoreError> {
        let wish = request.document(self);
        let detached = doc! { "_id": id, DETACHED: true };
        if self.note_end(detached, &Ending::ordered(Reason::Cancel), Some(wish.clone())).await? {
            self.complete_soon(id).await;
            return Ok(Some(Cancelled::Terminated));
        }
        let unasked = with(being_ended(id), doc! { "cancel": Bson::Null });
        let ask = doc! { "$set": { "cancel": wish } };
        if self.tasks().update_one(unasked, ask).await?.matched_count == 1 {
            return Ok(Some(Cancelled::Requested));
        }
        // Somebody else has asked for it, or it has come to its end.
        let found = self.tasks().find_one(being_ended(id)).projection(doc! { "_id": 1 }).await?;
        Ok(found.map(|_| Cancelled::Requested))
    }

    /// Ends a task of [`Store::expired_runs`] that no runner has: nothing was heard of its service in time, or whoever has
    /// noted its end has died since. Returns whether this call has ended it.
    #[operation(task = %task.id)]
    pub async fn end_lapsed_external(&self, task: &Task) -> Result<bool, StoreError> {
        let Ok(external) = task.rest.get_document(EXTERNAL) else { return Ok(false) };
        let lapsed = doc! {
            "_id": task.id, "attempt": task.rest.get("attempt").cloned(), DETACHED: true,
            "lease_until": { "$type": "date" }, "$expr": is_past("lease_until"),
        };
        let is_ours = if Ending::of(external).is_some() {
            let noted = doc! { "status": Status::Running, "external.end": { "$type": "object" } };
            let lapsed = with(lapsed, noted);
            let update = Transition::within().compute("lease_until", server_time_in(ENDING));
            self.tasks().update_one(lapsed, update.pipeline()).await?.matched_count == 1
        } else {
            let ending = Ending::ordered(why_lapsed(task, external));
            self.note_end(lapsed, &ending, None).await?
        };
        if is_ours {
            self.complete_external(task.id).await?;
        }
        Ok(is_ours)
    }

    /// Ends a task whose end was noted, with its output. Whoever comes second changes nothing.
    ///
    /// # Errors
    /// The database cannot be reached. A DEN does it then when [`ENDING`] is over.
    pub(crate) async fn complete_external(&self, id: TaskId) -> Result<(), StoreError> {
        let without = doc! { "params": 0, "parameters": 0, "history": 0 };
        let Some(found) = self.tasks().find_one(being_ended(id)).projection(without).await? else {
            return Ok(());
        };
        let task: Task = typed(TASKS.name, found)?;
        tokio::select! {
            completed = Box::pin(self.make_end(&task)) => completed,
            never = self.keep_ending(&task) => match never {},
        }
    }

    /// The same for those whom its failure does not concern: from the note on, the task ends in any case.
    pub(super) async fn complete_soon(&self, id: TaskId) {
        if let Err(error) = Box::pin(self.complete_external(id)).await {
            tracing::warn!(task = %id, %error, "a task whose end is known is left to a den, which ends it");
        }
    }

    /// Says from time to time that whoever ends the task is still at work.
    async fn keep_ending(&self, task: &Task) -> Infallible {
        let update = Transition::within().compute("lease_until", server_time_in(ENDING)).pipeline();
        loop {
            tokio::time::sleep(ENDING / 3).await;
            if let Err(error) = self.tasks().update_one(still_ending(task), update.clone()).await {
                tracing::debug!(task = %task.id, %error, "cannot say that a task is being ended");
            }
        }
    }

    /// Makes the end that was noted in `task`. Whoever comes second changes nothing.
    async fn make_end(&self, task: &Task) -> Result<(), StoreError> {
        let Some(ending) = task.rest.get_document(EXTERNAL).ok().and_then(Ending::of) else { return Ok(()) };
        let queue = self.find_queue(&Selector::Id(task.queue.0)).await?;
        let run = Run::of(task);
        let stdout = self.seal_log(&run, &still_ending(task), false).await?;
        let finish = ending.finish(task, stdout);
        let again = ending.again(task, &Rules::of(task, queue.as_ref()));
        let mut kept = false;
        let mut made = Made::ByAnother;
        if let Some(pause) = again {
            kept = self.keep_attempt(&run, &finish).await?.is_none();
            made = self.let_wait(task, &finish, pause).await?;
        }
        if made == Made::ByAnother {
            made = self.end_for_good(task, &run, &finish).await?;
        }
        if kept && made != Made::Again {
            self.forget_attempt((run.task, run.attempt), None).await?;
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
        // Since when its service alone has the task: up to then, the DEN of its runner notes how long it has had its place. `None`: it has
        // ended it before.
        let external = task.rest.get_document(EXTERNAL);
        if let (Some(queue), Ok(since)) =
            (&queue, external.and_then(|external| external.get_datetime("since")))
        {
            self.note_stayed_with_service(task, queue, between(*since, self.now()));
        }
        self.remove_log(run.task, run.attempt).await?;
        self.remove_live(run.task, Some(run.attempt)).await?;
        // What others had begun to store who did not come so far.
        self.discard_uploads(&run, &task.rest).await
    }

    /// Lets the task wait for its next attempt, unless somebody wants its end, has made it, or there is no room for that.
    async fn let_wait(&self, task: &Task, finish: &Finish, pause: Duration) -> Result<Made, StoreError> {
        let unasked = with(still_ending(task), unasked());
        let update = deferred(self, pause, finish).set(DETACHED, false).compute(FREED, "$$NOW").pipeline();
        let changed = match self.tasks().update_one(unasked, update).await.map_err(StoreError::from) {
            Err(error) if error.is_too_large() => {
                tracing::error!(task = %task.id, %error, "a task has no room for another attempt");
                false
            }
            changed => changed?.matched_count == 1,
        };
        if changed {
            self.moved(task.queue, Some(Status::Running), Some(Status::Deferred), 1);
            self.measure_retry(task.queue);
            self.measure_attempt(task.queue, finish, Burial::Requeued);
        }
        Ok(if changed { Made::Again } else { Made::ByAnother })
    }

    /// Ends the task. Where it has no room for that, its output goes into a file; and at last it is left out, which is better than
    /// running for ever.
    async fn end_for_good(&self, task: &Task, run: &Run, finish: &Finish) -> Result<Made, StoreError> {
        let refused = match self.end_with(task, run, finish, &[]).await {
            Err(error) if error.is_too_large() => error,
            made => return made,
        };
        tracing::error!(task = %task.id, error = %refused, "the end of a task is too large to be stored as it is");
        if finish.stdout.as_str().is_some() {
            let stdout = self.seal_log(run, &still_ending(task), true).await?;
            let in_file = Finish { stdout, ..finish.clone() };
            match self.end_with(task, run, &in_file, &[]).await {
                Err(error) if error.is_too_large() => {}
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
            Err(error) if error.is_too_large() => {}
            made => return made,
        }
        let bare = Finish { exit: None, note: None, ..without_output };
        self.end_with(task, run, &bare, &SPARE).await
    }

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
        let update = update.unset_all(spare.iter().copied());
        if self.tasks().update_one(still_ending(task), update.pipeline()).await?.matched_count == 0 {
            return Ok(Made::ByAnother);
        }
        self.note_finish(run, finish);
        Ok(Made::Ended(finish.stdout.clone()))
    }

    async fn has_kept(&self, run: &Run, stdout: &Bson) -> Result<bool, StoreError> {
        if stdout.as_object_id().is_none() {
            return Ok(false); // There is nothing to remove.
        }
        let kept = self.find_attempt(run.task, run.attempt).await?;
        Ok(kept.is_some_and(|kept| kept.get("stdout") == Some(stdout)))
    }
}

pub(super) fn noted(ending: &Ending) -> Document {
    doc! { "$mergeObjects": [{ "$literal": ending.document() }, { "at": "$$NOW" }] }
}

fn note(ending: &Ending) -> Transition {
    let update = Transition::within()
        .set(DETACHED, true)
        .compute("external.end", noted(ending))
        .compute("lease_until", server_time_in(ENDING))
        .unset("pid");
    if ending.reason == Reason::Service { update.compute("external.heard", "$$NOW") } else { update }
}

/// Matches a task whose end was noted and is not made.
fn being_ended(id: TaskId) -> Document {
    doc! { "_id": id, "status": Status::Running, DETACHED: true, "external.end": { "$type": "object" } }
}

/// The same while it is still the end that `task` was read with.
fn still_ending(task: &Task) -> Document {
    let token = task.rest.get_document(EXTERNAL).ok().and_then(|external| external.get("token"));
    let same = doc! { "attempt": task.rest.get("attempt").cloned(), "external.token": token.cloned() };
    with(being_ended(task.id), same)
}

fn why_lapsed(task: &Task, external: &Document) -> Reason {
    let (until, lease) = (external.get_datetime("until"), task.rest.get_datetime("lease_until"));
    match (until, lease) {
        (Ok(until), Ok(lease)) if until <= lease => match task.rest.get_datetime("deadline") {
            Ok(deadline) if deadline <= until => Reason::Deadline,
            _ => Reason::Timeout,
        },
        _ => Reason::Silence,
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{DateTime, deserialize_from_document};

    use super::*;

    fn at(seconds: i64) -> DateTime {
        DateTime::from_millis(1_795_163_067_000 + seconds * 1000)
    }

    #[test]
    fn it_is_told_apart_what_has_run_out() {
        let of = |fields: Document, external: Document| {
            let mut task = doc! { "_id": ObjectId::new(), "queue": ObjectId::new(), "status": 0 };
            task.extend(fields);
            why_lapsed(&deserialize_from_document(task).unwrap(), &external)
        };
        assert_eq!(of(doc! { "lease_until": at(9) }, doc! {}), Reason::Silence);
        assert_eq!(of(doc! { "lease_until": at(9) }, doc! { "until": at(20) }), Reason::Silence);
        assert_eq!(of(doc! { "lease_until": at(20) }, doc! { "until": at(20) }), Reason::Timeout);
        let deadline = doc! { "lease_until": at(20), "deadline": at(20) };
        assert_eq!(of(deadline, doc! { "until": at(20) }), Reason::Deadline);
        let later = doc! { "lease_until": at(20), "deadline": at(90) };
        assert_eq!(of(later, doc! { "until": at(20) }), Reason::Timeout);
    }

    #[test]
    fn what_is_spared_takes_more_room_than_the_note_of_an_end() {
        let size = |document: &Document| bson::serialize_to_vec(document).unwrap().len();
        // What every task has of it that a runner has. One that was handed over has `since` in place of its process.
        let external = doc! { "heard": at(0), "earlier": [], "log": 0_i64, "bytes": 0_i64 };
        let spared = doc! { "external": external, "pid": 1_i64 };
        for reason in [Reason::Service, Reason::Cancel, Reason::Silence, Reason::Timeout, Reason::Deadline] {
            let mut end = Ending { status: Status::Other(i64::MAX), ..Ending::ordered(reason) }.document();
            end.insert("at", at(0));
            let added = doc! { "external": { "end": end } };
            assert!(size(&added) <= size(&spared), "{reason:?}");
        }
    }
}
