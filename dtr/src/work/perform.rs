//! Runs the plugins of a task, one after the other: that of its queue, or those of its steps.

use std::borrow::Cow;
use std::time::Duration;

use bson::{Bson, doc};
use disbatch_core::model::{Queue, Status, Step, Task};
use disbatch_core::secrets::SecureParams;
use disbatch_core::task::STORAGE;

use super::Work;
use super::parts::{self, Part};
use crate::capture::Captures;
use crate::early::Early;
use crate::guard::Guards;
use crate::live::Live;
use crate::outcome::{Outcome, Verdict};
use crate::plugin::{self, Ended, Job, NotBegun};
use crate::relay::{self, Relay};
use crate::secrets;
use crate::steps::{Board, OfStep};
use crate::supervision::{Reason, Supervision};
use crate::warm::Keeper;

impl Work<'_> {
    /// Runs the plugins, or says why they cannot run.
    pub(super) async fn perform(
        &self,
        parts: &[Part<'_>],
        (guards, warm): (&mut Guards, &mut Keeper),
        supervision: Supervision,
        (live, early, until): (&Live, &Early, Duration),
    ) -> Outcome {
        let queue = match parts::queue_of(self.begun) {
            Ok(queue) => queue,
            Err(why) => return Outcome::unable_to_start(&why),
        };
        let secure_params = match secrets::of(&self.begun.task, &self.setup.config) {
            Ok(params) => params,
            Err(why) => return Outcome::unable_to_start(&why),
        };
        let mut captures = Captures::new(Some(live), Some(early));
        let (relay, inbox) = relay::channel();
        let stage = Stage { work: self, queue, secure_params, guards, warm, supervision, until };
        let (run, config, lifecycle) = (&self.begun.run, &self.setup.config, &self.setup.lifecycle);
        let ((verdict, written), complaints) = tokio::join!(
            stage.run_all(parts, &mut captures, relay),
            inbox.work(self.ledger, config, run, lifecycle),
        );
        for complaint in complaints {
            captures.stderr.note(&complaint);
        }
        let outcome = match verdict {
            Ok(verdict) => Outcome::of(verdict, captures),
            Err((None, why)) => Outcome::unable_to_start(&why),
            Err((Some(reason), why)) => Outcome::not_begun(reason, &why),
        };
        outcome.after_writing(written)
    }
}

/// What all plugins of a task have in common.
struct Stage<'a> {
    work: &'a Work<'a>,
    queue: &'a Queue,
    /// Until the last plugin has been told of them.
    secure_params: Option<SecureParams>,
    guards: &'a mut Guards,
    warm: &'a mut Keeper,
    supervision: Supervision,
    /// Until when the next plugin may live at first.
    until: Duration,
}

impl Stage<'_> {
    /// What came of the plugins, or why the only one cannot run; and how many bytes were put into the task meanwhile. When
    /// this is done, nothing more comes over the relay.
    async fn run_all(
        mut self,
        parts: &[Part<'_>],
        captures: &mut Captures,
        relay: Relay,
    ) -> (Result<Verdict, (Option<Reason>, String)>, u64) {
        let verdict = match parts {
            [only] if only.step.is_none() => self
                .run(only, captures, &relay)
                .await
                .map(Verdict::of)
                .map_err(|error| (error.reason(), cannot_run(only, &error))),
            steps => Ok(self.run_steps(steps, captures, &relay).await),
        };
        (verdict, relay.written())
    }

    /// Runs the plugins of all steps until one has not succeeded.
    async fn run_steps(&mut self, parts: &[Part<'_>], captures: &mut Captures, relay: &Relay) -> Verdict {
        let mut board = Board::new(parts.len(), relay.clone());
        let mut earlier: Option<Verdict> = None;
        for (index, part) in parts.iter().enumerate() {
            if index > 0 {
                if let Some(reason) = self.must_end() {
                    return Verdict::ordered(reason).after(earlier);
                }
                captures.reopen();
            }
            board.begin(index, captures);
            let verdict = self.run_step(part, captures, relay).await;
            board.end(index, &verdict);
            let succeeded = verdict.status == Status::Succeeded;
            let verdict = verdict.after(earlier.take());
            if !succeeded {
                return verdict;
            }
            earlier = Some(verdict);
        }
        earlier.unwrap_or_else(|| Verdict::unable_to_start("the task has no steps".to_owned()))
    }

    async fn run_step(&mut self, part: &Part<'_>, captures: &mut Captures, relay: &Relay) -> Verdict {
        let of_step = part.about.step.clone();
        let relay = of_step.clone().map_or_else(|| relay.clone(), |step| relay.within(step));
        // So that it is seen which one it is, whatever its plugin says.
        relay.progress(doc! {});
        match self.run(part, captures, &relay).await {
            Ok(ended) => Verdict::of(ended),
            Err(error) => {
                let why = cannot_run(part, &error);
                let step = of_step.map(|step| step.words()).unwrap_or_default();
                captures.stderr.note(&format!("disbatch: {step}: {why}\n"));
                error.reason().map_or_else(|| Verdict::unable_to_start(why), Verdict::ordered)
            }
        }
    }

    /// Runs a plugin.
    async fn run(
        &mut self,
        part: &Part<'_>,
        captures: &mut Captures,
        relay: &Relay,
    ) -> Result<Ended, NotBegun> {
        let begun = self.work.begun;
        let of_schedule = begun.schedule.as_ref().ok().and_then(Option::as_ref);
        let saved = relay.saved().or_else(|| begun.task.rest.get(STORAGE).cloned());
        let storage = saved.or_else(|| of_schedule.and_then(|schedule| schedule.storage.clone()));
        let task = told(&begun.task, part.step.as_ref(), storage);
        let is_last = part.about.step.as_ref().is_none_or(OfStep::is_last);
        let for_the_last = if is_last { self.secure_params.take() } else { None };
        let job = Job {
            task: &task,
            secure_params: for_the_last.as_ref().or(self.secure_params.as_ref()),
            queue: self.queue,
            name: &part.name,
            run: &begun.run,
            folder: self.work.folder,
            until: self.until,
            about: &part.about,
        };
        let says = (&mut self.supervision, &self.work.setup.lifecycle);
        match part.plugin.manifest.warm {
            None => {
                let guarded = plugin::start(part.plugin, job, self.guards).await?;
                let ended = plugin::follow(guarded, job, captures, relay, says);
                // They are in its environment and in what is being sent to it, which is overwritten then. It may run for days.
                drop(for_the_last);
                ended.await
            }
            Some(limits) => {
                let plugin = (part.plugin, limits);
                self.warm.execute(plugin, (job, &mut *self.guards), captures, relay, says).await
            }
        }
    }

    /// Whether the next plugin is not to be begun with. What was said to the one before holds for it, too.
    fn must_end(&mut self) -> Option<Reason> {
        let so_far = self.supervision.so_far();
        self.until = so_far.until.unwrap_or(self.until);
        let told = self.work.setup.lifecycle.is_ending().then_some(Reason::Runner);
        so_far.end.map(|end| end.reason).or(told)
    }
}

fn cannot_run(part: &Part<'_>, error: &NotBegun) -> String {
    format!("cannot run {}: {error}", part.plugin.program.display())
}

/// The task as its plugin is told of it: with the parameters of the step, and with what was saved last.
fn told<'a>(task: &'a Task, step: Option<&Step>, storage: Option<Bson>) -> Cow<'a, Task> {
    if step.is_none() && storage.is_none() {
        return Cow::Borrowed(task);
    }
    let mut told = task.clone();
    if let Some(step) = step {
        told.params = Some(step.params_over(task.params()));
        told.parameters = None;
    }
    if let Some(storage) = storage {
        told.rest.insert(STORAGE, storage);
    }
    Cow::Owned(told)
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

    use super::*;

    #[test]
    fn a_plugin_is_told_of_its_own_step_and_of_what_was_saved_last() {
        let task = doc! {
            "_id": ObjectId::new(), "queue": ObjectId::new(), "status": 0, "parameters": { "a": 1, "b": 2 },
            "storage": "old",
        };
        let task: Task = bson::deserialize_from_document(task).unwrap();
        assert!(matches!(told(&task, None, None), Cow::Borrowed(same) if *same == task));
        let step = Step { name: "s".to_owned(), plugin: None, params: doc! { "b": 3 } };
        let told = told(&task, Some(&step), Some(Bson::from(7)));
        assert_eq!(told.params(), &Bson::from(doc! { "a": 1, "b": 3 }));
        assert_eq!((told.rest.get(STORAGE), told.id), (Some(&Bson::from(7)), task.id));
    }
}
