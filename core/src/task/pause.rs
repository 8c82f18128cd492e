//! Pauses: an attempt that is neither a success nor a failure, after which the task waits for the next one.
//!
//! Its plugin asks a person something ([`Question`]), or stops where it is because its runner told it to
//! ([`interrupt_runs`](crate::store::Store::interrupt_runs)). Either way one update, with the fence of every run, makes the task -7, with what was saved.

use std::time::Duration;

use bson::Bson;
use serde::{Deserialize, Serialize};

use super::finish::{Finish, goes_first};
use super::question::Question;
use super::steps::queued;
use super::transition::{Transition, server_time_in};
use super::{Finished, Run};
use crate::model::{STEPS, Status, Task};
use crate::store::{Store, StoreError};

/// Why an attempt ends without an outcome.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pause {
    /// The task waits for the answer of a person.
    Ask(Box<Question>),
    /// The task goes on at once, where there is a place for it.
    Interrupted,
}

impl Pause {
    /// What such an attempt says in the task's history.
    pub fn note(&self) -> String {
        match self {
            Self::Ask(question) => question.note(),
            Self::Interrupted => "interrupted, to go on elsewhere".to_owned(),
        }
    }

    pub(super) fn transition(&self, store: &Store) -> Transition {
        match self {
            Self::Ask(question) => question.asked(store),
            Self::Interrupted => waits_again(store, Duration::ZERO, &self.note()),
        }
    }
}

/// An attempt is over, and the task waits for the next.
pub(super) fn waits_again(store: &Store, pause: Duration, why: &str) -> Transition {
    Transition::to(Status::Deferred, store.now())
        .without_node()
        .set("stdout", Bson::Null)
        .set("stderr", Bson::Null)
        .compute("run_at", server_time_in(pause))
        .compute("again", goes_first())
        .compute(STEPS, queued())
        .end_of_run()
        .unset("progress")
        .note(why)
}

impl Store {
    /// Ends the task of a run that pauses, because somebody wants its end, or did when this was done before. `None`: that is not so.
    pub(super) async fn end_instead_of_pause(
        &self,
        run: &Run,
        finish: &Finish,
        stored: Option<&Task>,
    ) -> Result<Option<Finished>, StoreError> {
        let note = Some("cancelled".to_owned());
        let ended = Finish { status: Status::Terminated, note, pause: None, ..finish.clone() };
        let is_cancelled =
            |task: &Task| (run.has(task) && task.is_to_be_cancelled()) || ended.is_held_by(task, run);
        if finish.pause.is_none() || !stored.is_some_and(is_cancelled) {
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
