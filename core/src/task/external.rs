//! External: a task whose work a web service does. Its runner hands it over and is free; the task runs on without a
//! process of ours, and ends by what the service calls back, by a cancel, or because nothing is heard any more.
//!
//! 1. [`Store::register_external`]: before the service is told of the task, the task has the fingerprint of the token that
//!    the service will show.
//! 2. [`Store::detach_external`]: the service has taken it. `external.detached` is true from now on, and no write of the
//!    run matches any more ([`Run`]). The lease is the time in which the service has to be heard of.
//! 3. Its end is noted in `external.end` by one update, whoever brings it about, and only once ([`end`]). Then its output
//!    is put together, and one more update ends the task with that. Who notes the end has the task for a while: if
//!    it dies in between, any DEN finds the lease lapsed and does the rest.
//!
//! A run that has not handed its task over ends it by itself only when no service can call back any more
//! ([`Store::withdraw_external`]). One that has called back has the task, whatever became of who has asked it.

mod end;
mod ending;

use disbatch_operation::operation;
use std::time::Duration;

use bson::{Document, doc};
use mongodb::options::ReturnDocument;

use super::Run;
use super::transition::{Transition, server_time_in};
use crate::model::{Rules, Selector, Status, Task, TaskId, whole_number};
use crate::store::collections::TASKS;
use crate::store::error::typed;
use crate::store::{Store, StoreError, Stored, millis, put, with};

pub(crate) use ending::{Ending, Reason};

pub const EXTERNAL: &str = "external";

/// The field in it that is true once the runner has handed the task over.
pub(crate) const DETACHED: &str = "external.detached";

/// The field with the time at which the task has left its place in its queue. DENs hear of it, as no runner of theirs tells them.
pub(crate) const FREED: &str = "freed";

const CALLED: &str = "called";

/// Of so many earlier attempts it is known which token they had, so that their services can be told that they are over.
const EARLIER: i32 = 10;

/// Longer silences than this (ten years) are cut.
const LONGEST_SILENCE: Duration = Duration::from_secs(315_360_000);

/// What a task can do without whose end was noted, and that has no room: together more than the note of an end takes.
const SPARE: [&str; 8] = [
    "external.since",
    "external.heard",
    "external.until",
    "external.earlier",
    "external.log",
    "external.bytes",
    "external.called",
    "progress",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detached {
    /// It runs on without the runner.
    Done,
    /// A callback or a cancel has brought about its end: it is over, or will be without the runner.
    Ended,
    /// The task is no longer this run's, or was not registered. Nothing has changed.
    NotRunning,
}

impl Store {
    /// Notes that the plugin of `run` is about to give its task to a web service: which token that will show (the SHA-256
    /// sum of it in hexadecimal), and for how long nothing may be heard of it where neither the task nor its queue has a timeout.
    /// Returns whether the run has the task. May be repeated with the same values, however late: what a service has said meanwhile stays.
    #[operation(task = %run.task)]
    pub async fn register_external(
        &self,
        run: &Run,
        token_sha256: &str,
        timeout: Duration,
    ) -> Result<bool, StoreError> {
        let without = doc! { "params": 0, "parameters": 0, "history": 0 };
        let Some(found) = self.tasks().find_one(run.filter()).projection(without).await? else {
            return Ok(false);
        };
        let task: Task = typed(TASKS.name, found)?;
        let queue = self.find_queue(&Selector::Id(task.queue.0)).await?;
        let rules = Rules::of(&task, queue.as_ref());
        // What the task says comes before what its plugin says. Both count from when something was heard last.
        let timeout = rules.timeout.unwrap_or(timeout);
        let external = doc! {
            "token": token_sha256, "attempt": run.attempt, "detached": false,
            "timeout": timeout.min(LONGEST_SILENCE).as_secs_f64(), "log": 0_i64, "bytes": 0_i64,
        };
        let mut computed = doc! { "heard": "$$NOW", "earlier": earlier_tokens(token_sha256) };
        put(&mut computed, "until", rules.deadline);
        // In place of what an earlier attempt has left.
        let whole = doc! { "$mergeObjects": [{ "$literal": external }, computed] };
        let update = Transition::within().compute(EXTERNAL, whole).pipeline();
        let unregistered = with(run.filter(), doc! { "external.token": { "$ne": token_sha256 } });
        if self.tasks().update_one(unregistered, update).await?.matched_count == 1 {
            return Ok(true);
        }
        let registered = with(run.filter(), doc! { "external.token": token_sha256 });
        Ok(self.tasks().find_one(registered).projection(doc! { "_id": 1 }).await?.is_some())
    }

    /// Takes back what [`Store::register_external`] has noted, so that the run may end its task by itself: whatever is called
    /// back from then on comes too late. Returns whether it may. If not, a service has called back before and so works on the
    /// task, which is to be handed over to it; nothing has changed then. May be repeated.
    #[operation(task = %run.task)]
    pub async fn withdraw_external(&self, run: &Run) -> Result<bool, StoreError> {
        let registered = with(run.filter(), doc! { "external.attempt": run.attempt });
        let unheard = with(registered.clone(), doc! { "external.called": { "$ne": true } });
        // Callbacks are for the attempt that is noted there.
        let withdraw = doc! { "$unset": { "external.attempt": "" } };
        if self.tasks().update_one(unheard, withdraw).await?.matched_count == 1 {
            return Ok(true);
        }
        let registered = with(registered, doc! { "external.called": true });
        if self.tasks().find_one(registered).projection(doc! { "_id": 1 }).await?.is_some() {
            return Ok(false);
        }
        // It was not registered, or not any more; or the service has ended it.
        Ok(self.find_detached(run).await? == Detached::NotRunning)
    }

    /// Ends the task of `run` as failed although its web service has called back: it has refused the task since, which is told
    /// by `why`. What it has logged is kept. May be repeated.
    #[operation(task = %run.task)]
    pub async fn fail_external(&self, run: &Run, why: &str) -> Result<(), StoreError> {
        let registered = with(run.filter(), doc! { "external.attempt": run.attempt });
        let message = Some(why.to_owned());
        let ending = Ending { status: Status::Failed, reason: Reason::Service, message, result: None };
        if self.note_end(registered, &ending, None).await? {
            self.complete_soon(run.task).await;
        }
        Ok(())
    }

    /// Hands the task of `run` over to the web service that has taken it: from now on the run cannot change it. May be
    /// repeated. Where somebody has asked for the task's end before, it ends here.
    #[operation(task = %run.task)]
    pub async fn detach_external(&self, run: &Run) -> Result<Detached, StoreError> {
        let registered = with(run.filter(), doc! { "external.attempt": run.attempt });
        let Some(task) = self.hand_over(registered).await? else { return self.find_detached(run).await };
        Ok(if self.ends_at_once(run.task, &task).await { Detached::Ended } else { Detached::Done })
    }

    /// Hands the task over that `filter` matches. Returns its `external.end` as it is then.
    async fn hand_over(&self, filter: Document) -> Result<Option<Stored>, StoreError> {
        let tasks = self.tasks();
        let update = tasks.find_one_and_update(filter, handed_over().pipeline());
        let update = update.projection(doc! { "external.end": 1 });
        Ok(update.return_document(ReturnDocument::After).await?)
    }

    /// Ends a task whose end was noted when it was handed over. Tells whether that was so.
    async fn ends_at_once(&self, id: TaskId, handed_over: &Stored) -> bool {
        let is_over = handed_over.get_document(EXTERNAL).is_ok_and(|noted| noted.get_document("end").is_ok());
        if is_over {
            self.complete_soon(id).await;
        }
        is_over
    }

    /// What became of a task that could not be handed over: an earlier call may have done it, whose answer was lost.
    async fn find_detached(&self, run: &Run) -> Result<Detached, StoreError> {
        let Some(task) = self.find_task(run.task).await? else { return Ok(Detached::NotRunning) };
        let Ok(external) = task.rest.get_document(EXTERNAL) else { return Ok(Detached::NotRunning) };
        let attempts = [task.rest.get("attempt"), external.get("attempt")];
        if !attempts.into_iter().all(|attempt| run.is_of(attempt)) {
            return Ok(Detached::NotRunning);
        }
        if external.get_document("end").is_ok() {
            return Ok(Detached::Ended);
        }
        let is_there = task.status == Status::Running && is_detached(&task);
        Ok(if is_there { Detached::Done } else { Detached::NotRunning })
    }

    /// Leaves a task whose runner has died to the web service that has called back for it, and so works on it. `still`: what
    /// the task must be like. Returns whether that was so, and it has room for it.
    pub(super) async fn leave_to_service(&self, task: &Task, still: Document) -> Result<bool, StoreError> {
        let Ok(external) = task.rest.get_document(EXTERNAL) else { return Ok(false) };
        let is_of_this_attempt = external.get("attempt").and_then(whole_number) == task.attempt();
        if !is_of_this_attempt || !external.get_bool(CALLED).unwrap_or(false) {
            return Ok(false);
        }
        let still = with(still, doc! { "external.attempt": task.attempt() });
        match self.hand_over(still).await {
            // Nobody could ever do it: then it is buried as others are.
            Err(error) if error.is_too_large() => {
                tracing::error!(task = %task.id, %error, "a task has no room to be left to its web service");
                Ok(false)
            }
            left => {
                let Some(left) = left? else { return Ok(false) };
                self.ends_at_once(task.id, &left).await;
                Ok(true)
            }
        }
    }
}

/// From a runner to its web service. Whose end somebody has asked for meanwhile, has its end noted with that: nobody looks for
/// the request any more, but any DEN for what was noted.
fn handed_over() -> Transition {
    let is_to_end = doc! { "$eq": [{ "$type": "$cancel" }, "object"] };
    let cancelled = end::noted(&Ending::ordered(Reason::Cancel));
    Transition::within()
        .set(DETACHED, true)
        .compute("external.since", "$$NOW")
        .compute("external.heard", "$$NOW")
        .compute("external.end", doc! { "$cond": [&is_to_end, cancelled, "$$REMOVE"] })
        .compute("lease_until", doc! { "$cond": [is_to_end, server_time_in(end::ENDING), silence()] })
        .unset("pid")
}

/// What must still be so of a task that no web service had called back for when it was read.
pub(super) fn unheard(task: &Task) -> Document {
    let external = task.rest.get_document(EXTERNAL);
    let has_called = external.is_ok_and(|external| external.get_bool(CALLED).unwrap_or(false));
    // Then there was no room to leave it to that service.
    if has_called {
        Document::new()
    } else {
        doc! { "external.called": { "$ne": true } }
    }
}

pub fn is_detached(task: &Task) -> bool {
    let external = task.rest.get_document(EXTERNAL);
    external.is_ok_and(|external| external.get_bool("detached").unwrap_or(false))
}

/// What [`DETACHED`] is of a task that a runner has, if anybody has.
pub(crate) fn attached() -> Document {
    doc! { "$ne": true }
}

/// The server's time until which something has to be heard, but not beyond the task's own end.
pub(crate) fn silence() -> Document {
    let seconds = doc! { "$convert": {
        "input": "$external.timeout", "to": "double", "onError": 0.0, "onNull": 0.0,
    } };
    let pause = doc! { "$multiply": [{ "$min": [seconds, LONGEST_SILENCE.as_secs_f64()] }, millis(Duration::from_secs(1))] };
    doc! { "$min": [{ "$add": ["$$NOW", pause] }, "$external.until"] }
}

/// The tokens of earlier attempts, the newest last.
fn earlier_tokens(token: &str) -> Document {
    let before = doc! { "$cond": [{ "$isArray": "$external.earlier" }, "$external.earlier", []] };
    let is_other = doc! { "$and": [
        { "$eq": [{ "$type": "$external.token" }, "string"] },
        { "$ne": ["$external.token", { "$literal": token }] },
    ] };
    let newest = doc! { "$cond": [is_other, ["$external.token"], []] };
    doc! { "$slice": [{ "$concatArrays": [before, newest] }, -EARLIER] }
}
