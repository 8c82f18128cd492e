//! Runs the plugins of a task, one after the other: that of its queue, or those of its steps.

use std::borrow::Cow;
use std::io;
use std::path::Path;
use std::time::Duration;

use bson::{Bson, doc};
use disbatch_core::callbacks::Token;
use disbatch_core::model::{Canary, Queue, Status, Step, Task};
use disbatch_core::plugin::{CallbackAuth, Engine, ProgramType};
use disbatch_core::secrets::SecureParams;
use disbatch_core::store::StoreError;
use disbatch_core::task::STORAGE;

use super::answer_outcome;
use super::parts::{self, Part};
use super::tools::{InUse, Tools};
use super::{Kit, Work, commits};
use crate::answer::{self, Answer};
use crate::capture::Captures;
use crate::early_upload::Early;
use crate::files::{self, Exchange};
use crate::folder;
use crate::live::Live;
use crate::outcome::{Outcome, Verdict};
use crate::plugin::{self, About, Callback, Job, NotBegun, Say};
use crate::recorder::Recorder;
use crate::relay::{self, Relay};
use crate::secrets;
use crate::steps::{Board, OfStep};
use crate::supervision::{Reason, Supervision};

impl Work<'_> {
    pub(super) async fn perform(
        &self,
        parts: &[Part],
        kit: &Kit,
        supervision: Supervision,
        (live, early, until): (&Live<'_>, &Early, Duration),
    ) -> Outcome {
        let (queue, secure_params, files) = match self.needed() {
            Ok(needed) => needed,
            Err(why) => return Outcome::unable_to_start(&why),
        };
        let only = if let [only] = parts { Some(&*only.plugin) } else { None };
        let is_apart = only.is_some_and(|plugin| plugin.answers);
        // What its web service logs is shown in place of what is said here.
        let is_elsewhere = only.is_some_and(|plugin| plugin.manifest.engine == Engine::Http);
        let shown = Some(live).filter(|_| !is_apart && !is_elsewhere);
        let mut captures = Captures::new(shown, Some(early));
        let (mut relay, inbox) = relay::channel();
        let live = Some(live).filter(|_| is_apart);
        let recorder = Recorder::of(queue, (&self.begun.task, self.begun.run.attempt), parts, &kit.commons);
        relay.recorder.clone_from(&recorder);
        let stage = Stage {
            is_filled: files.is_some(),
            files,
            live,
            ..Stage::new(self, (queue, secure_params), kit, (supervision, until))
        };
        // By itself, so that what is around it is small: it is moved into its place several times.
        let stage = Box::pin(stage.run_all(parts, &mut captures, relay));
        let ((verdict, written), complaints) = inbox.beside(stage, (self.ledger, &self.begun.run)).await;
        for complaint in complaints {
            captures.stderr.note(&complaint);
        }
        let outcome = match verdict {
            Ok(verdict) => Outcome::of(verdict, captures).timed(),
            Err((reason, why)) => {
                let only = only.filter(|_| reason.is_none());
                let exit = only.and_then(|plugin| answer_outcome::not_started(plugin, &why));
                Outcome { exit, ..Outcome::not_begun(reason, &why) }
            }
        };
        let recorded = match recorder {
            Some(recorder) => Box::pin(recorder.finish((queue, parts), self.ledger)).await,
            None => None,
        };
        Outcome { written, recorded: recorded.map(Box::new), ..outcome }
    }

    /// What it takes to run any of the plugins.
    fn needed(&self) -> Result<(&Queue, Option<SecureParams>, Option<Exchange<'_>>), String> {
        let queue = parts::queue_of(self.begun)?;
        let secure_params = secrets::of(&self.begun.task, &self.setup.config)?;
        Ok((queue, secure_params, Exchange::of(self, queue)?))
    }

    /// Runs the plugins without a database: what they say comes out of the other side of the relay, and their output goes to
    /// `captures` alone. The plugin may live at first until the time that comes with the secure parameters; `is_filled`: there are
    /// files in its private folder.
    pub async fn rehearse(
        &self,
        kit: &Kit,
        supervision: Supervision,
        (secure_params, until, is_filled): (Option<SecureParams>, Duration, bool),
        (mut captures, relay): (Captures, Relay),
    ) -> Outcome {
        let found = kit.parts_of(self.begun, &self.setup.config);
        let (parts, queue) = match (found, parts::queue_of(self.begun)) {
            (Ok(parts), Ok(queue)) => (parts, queue),
            (Err(refused), _) => return Outcome::unable_to_start(&refused.why),
            (_, Err(why)) => return Outcome::unable_to_start(&why),
        };
        let stage =
            Stage { is_filled, ..Stage::new(self, (queue, secure_params), kit, (supervision, until)) };
        match stage.run_all(&parts, &mut captures, relay).await.0 {
            Ok(verdict) => Outcome::of(verdict, captures),
            Err((reason, why)) => Outcome::not_begun(reason, &why),
        }
    }
}

struct Stage<'a> {
    work: &'a Work<'a>,
    queue: &'a Queue,
    /// Until the last plugin has been told of them.
    secure_params: Option<SecureParams>,
    kit: &'a Kit,
    supervision: Supervision,
    /// Until when the next plugin may live at first.
    until: Duration,
    /// What shows the streams of a plugin whose result comes apart from them.
    live: Option<&'a Live<'a>>,
    files: Option<Exchange<'a>>,
    /// Whether files of the task are in its private folder.
    is_filled: bool,
    folder_is_used: bool,
}

impl<'a> Stage<'a> {
    /// Without files, and without anybody who is shown what a plugin prints. The next plugin may live until that time at first.
    fn new(
        work: &'a Work<'a>,
        (queue, secure_params): (&'a Queue, Option<SecureParams>),
        kit: &'a Kit,
        (supervision, until): (Supervision, Duration),
    ) -> Self {
        let (live, files, is_filled, folder_is_used) = (None, None, false, false);
        Self { work, queue, secure_params, kit, supervision, until, live, files, is_filled, folder_is_used }
    }

    /// What came of the plugins, or why the only one cannot run; and how many bytes were put into the task meanwhile. When
    /// this is done, nothing more comes over the relay.
    async fn run_all(
        mut self,
        parts: &[Part],
        captures: &mut Captures,
        relay: Relay,
    ) -> (Result<Verdict, (Option<Reason>, String)>, u64) {
        if self.is_filled || parts.iter().any(|part| part.plugin.manifest.has_folder()) {
            // Else what tasks leave could come faster than it goes.
            let lifecycle = &self.work.setup.lifecycle;
            let room = files::unless_ended(folder::room(), &mut self.supervision, lifecycle).await;
            if let Some(reason) = room.err().or_else(|| self.must_end()) {
                return (Ok(in_its_place(Verdict::ordered(reason))), relay.written());
            }
        }
        if self.files.is_some()
            && let Err(verdict) = Box::pin(self.bring_files(captures, &relay)).await
        {
            return (Ok(*verdict), relay.written());
        }
        let verdict = match parts {
            [only] if only.step.is_none() => self
                .run(only, captures, &relay)
                .await
                .map_err(|error| (error.reason(), cannot_run(only, &error))),
            steps => Ok(Box::pin(self.run_steps(steps, captures, &relay)).await),
        };
        let verdict = match self.files {
            Some(_) => Box::pin(self.leave_files(verdict, commits(parts), captures, &relay)).await,
            None => verdict,
        };
        (verdict, relay.written())
    }

    /// Brings the files that the task is to have. If that cannot be, it is what came of the task.
    async fn bring_files(&mut self, captures: &mut Captures, relay: &Relay) -> Result<(), Box<Verdict>> {
        let Some(exchange) = &self.files else { return Ok(()) };
        let bring = Box::pin(exchange.bring(relay));
        let brought = files::unless_ended(bring, &mut self.supervision, &self.work.setup.lifecycle).await;
        let verdict = match brought {
            // The first plugin may live for as long as the lease was renewed for meanwhile.
            Ok(Ok(())) => match self.must_end() {
                None => return Ok(()),
                Some(reason) => Verdict::ordered(reason),
            },
            Ok(Err(trouble)) => {
                let why = format!("cannot bring the input files: {trouble}");
                captures.stderr.note(&format!("disbatch: {why}\n"));
                Verdict::unable_to_start(why)
            }
            Err(reason) => Verdict::ordered(reason),
        };
        Err(Box::new(in_its_place(verdict)))
    }

    /// Stores the files that the task leaves, if it has succeeded. It has not if they cannot be stored. What its plugin `may_commit` comes before how
    /// that has ended, unless it was told to end.
    async fn leave_files<E>(
        &mut self,
        verdict: Result<Verdict, E>,
        may_commit: bool,
        captures: &mut Captures,
        relay: &Relay,
    ) -> Result<Verdict, E> {
        let verdict = verdict?;
        let may_commit = may_commit && self.must_end().is_none();
        let Some(exchange) = &self.files else { return Ok(verdict) };
        let mut verdict = in_its_place(verdict);
        let own = verdict.status;
        if (own != Status::Succeeded && !may_commit) || verdict.detached {
            return Ok(verdict);
        }
        let Work { ledger, begun, .. } = self.work;
        let leave = async {
            let committed = if may_commit { Box::pin(ledger.settle_commit(&begun.run)).await? } else { None };
            if committed.unwrap_or(own) == Status::Succeeded {
                Box::pin(exchange.leave(relay)).await
            } else {
                Ok(Vec::new())
            }
        };
        match files::unless_ended(leave, &mut self.supervision, &self.work.setup.lifecycle).await {
            Ok(Ok(notes)) => notes.iter().for_each(|line| captures.stderr.note(line)),
            Ok(Err(trouble)) => {
                let why = format!("cannot store the output files: {trouble}");
                tracing::error!("{why}");
                captures.stderr.note(&format!("disbatch: {why}\n"));
                exchange.give_up().await;
                verdict.status = Status::Failed;
                verdict.note = Some(why);
            }
            Err(reason) => {
                captures.stderr.note("disbatch: the output files were not all stored yet\n");
                // Who has taken the task away takes back what it has made, too.
                if reason != Reason::LeaseLost {
                    exchange.give_up().await;
                }
                verdict = in_its_place(Verdict::ordered(reason).after(Some(verdict)));
            }
        }
        Ok(verdict)
    }

    async fn run_steps(&mut self, parts: &[Part], captures: &mut Captures, relay: &Relay) -> Verdict {
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

    async fn run_step(&mut self, part: &Part, captures: &mut Captures, relay: &Relay) -> Verdict {
        let of_step = part.about.step.clone();
        let relay = of_step.clone().map_or_else(|| relay.clone(), |step| relay.within(step));
        // So that it is seen which one it is, whatever its plugin says.
        relay.progress(doc! {});
        match self.run(part, captures, &relay).await {
            Ok(verdict) => verdict,
            Err(error) => {
                let why = cannot_run(part, &error);
                let step = of_step.map(|step| step.words()).unwrap_or_default();
                captures.stderr.note(&format!("disbatch: {step}: {why}\n"));
                error.reason().map_or_else(|| Verdict::unable_to_start(why), Verdict::ordered)
            }
        }
    }

    async fn run(
        &mut self,
        part: &Part,
        captures: &mut Captures,
        relay: &Relay,
    ) -> Result<Verdict, NotBegun> {
        let about = match Box::pin(self.make_ready(part)).await? {
            Some(callback) => Cow::Owned(About { callback: Some(callback), ..part.about.clone() }),
            None => Cow::Borrowed(&part.about),
        };
        let begun = self.work.begun;
        let of_schedule = begun.schedule.as_ref().ok().and_then(Option::as_ref);
        let saved = relay.saved().or_else(|| begun.task.rest.get(STORAGE).cloned());
        let storage = saved.or_else(|| of_schedule.and_then(|schedule| schedule.storage.clone()));
        let task = told(&begun.task, part.step.as_ref(), storage);
        let is_last = part.about.step.as_ref().is_none_or(OfStep::is_last);
        let for_the_last = if is_last { self.secure_params.take() } else { None };
        let folder = self.folder_of(part)?;
        let batch = part.plugin.manifest.warm.filter(|warm| warm.batch.is_some());
        let tools = if batch.is_none() { Some(self.tools(part).await?) } else { None };
        let json = self.record(&task, part, relay)?;
        let job = Job {
            task: &task,
            json: json.as_deref(),
            secure_params: self.secure_params.as_ref(),
            queue: self.queue,
            name: &part.name,
            run: &begun.run,
            folder,
            folder_is_used: self.folder_is_used,
            until: self.until,
            about: &about,
        };
        self.folder_is_used |= job.private_folder().is_some();
        let mut own = part.plugin.answers.then(|| Captures::new(self.live, None));
        let printed = own.as_mut().unwrap_or(&mut *captures);
        printed.be_recorded(relay.recorder.as_ref());
        let mut say = Say { supervision: &mut self.supervision, lifecycle: &self.work.setup.lifecycle };
        let plugin = &*part.plugin;
        let whole = Job { secure_params: for_the_last.as_ref().or(job.secure_params), ..job };
        let ended = match (plugin.manifest.warm, tools) {
            (None, Some(mut tools)) => {
                let (guards, params) = (&mut tools.of_task().guards, for_the_last);
                Box::pin(plugin::execute(plugin, (job, params), guards, printed, relay, &mut say)).await?
            }
            (Some(limits), Some(mut tools)) => {
                let Tools { guards, warm } = tools.of_task();
                warm.execute((plugin, limits), (whole, guards), printed, relay, &mut say).await?
            }
            (limits, None) => {
                let plugin = (plugin, limits.unwrap_or_default());
                let job = (whole, &*self.kit.isolation);
                self.kit.batches.execute(plugin, job, printed, relay, say.supervision).await?
            }
        };
        match own {
            None => Ok(Verdict::of(ended)),
            Some(own) => {
                let answer = Box::pin(self.answer_of(part)).await;
                plugin::clear_away(folder, begun.run.task);
                let captures = (captures, part.step.is_none());
                Ok(Box::pin(answer_outcome::of(&part.plugin, (answer, ended), &own, captures)).await)
            }
        }
    }

    /// Records what a plugin is given, if that is to be. Returns it.
    fn record(&self, task: &Task, part: &Part, relay: &Relay) -> io::Result<Option<String>> {
        let Some(recorder) = &relay.recorder else { return Ok(None) };
        let json = plugin::json_of(task)?;
        // A replay begins with the first of the steps.
        let whole = || plugin::json_of(&self.work.begun.task);
        let input = || if part.step.is_some() { whole() } else { Ok(json.clone()) };
        recorder.gives(task, input, &self.kit.sums)?;
        Ok(Some(json))
    }

    /// The private folder of the task, as the plugin is told of it.
    fn folder_of(&self, part: &Part) -> io::Result<&'a Path> {
        // The files of the task are in it, whoever wants it otherwise.
        let work: &'a Work<'a> = self.work;
        if part.plugin.manifest.has_folder() || self.is_filled {
            return work.folder.path().map_err(io::Error::other);
        }
        Ok(Path::new(folder::HOME))
    }

    /// What one task has at a time. That may take until others have ended.
    async fn tools(&mut self, part: &Part) -> Result<InUse<'a>, NotBegun> {
        let kit = self.kit;
        // Of a queue that tries a version, the next task may be run by the other one.
        let both = Canary::of(self.queue).is_some();
        let tools = kit.tools.take(&part.name, both).await;
        self.may_begin(tools)
    }

    /// Sees to what has to be done in the database before a plugin is started. Returns with what its web service calls back,
    /// if that can.
    async fn make_ready(&mut self, part: &Part) -> Result<Option<Callback>, NotBegun> {
        let Work { ledger, begun, setup, .. } = self.work;
        let failed = |error: StoreError| io::Error::other(error.to_string());
        let manifest = &part.plugin.manifest;
        let mut callback = None;
        if manifest.program_type() == Some(ProgramType::Mongo) {
            ledger.forget_answer(&begun.run).await.map_err(failed)?;
        } else if manifest.engine == Engine::Http
            && let Some(server) =
                setup.config.engines.http.as_ref().and_then(|http| http.callback_url.as_deref())
        {
            let http = manifest.http.clone().unwrap_or_default();
            let token = match http.callback_auth {
                CallbackAuth::Token => Token::new()?,
                CallbackAuth::None => Token::new()?.in_address(),
            };
            let silence = Duration::from_secs(http.timeout);
            if !ledger.register(&begun.run, &token.fingerprint(), silence).await.map_err(failed)? {
                let why = "the task has been taken away".to_owned();
                return Err(NotBegun::ToEnd { reason: Reason::LeaseLost, why });
            }
            callback = Some(Callback::new(&token, server, begun.run.task));
        } else {
            return Ok(None);
        }
        self.may_begin(callback)
    }

    /// Getting `this` may have taken a while.
    fn may_begin<T>(&mut self, this: T) -> Result<T, NotBegun> {
        match self.must_end() {
            Some(reason) => Err(NotBegun::ToEnd { reason, why: "it was to end before".to_owned() }),
            None => Ok(this),
        }
    }

    /// What a plugin has answered whose result comes apart from what it prints.
    async fn answer_of(&self, part: &Part) -> Result<Answer, String> {
        let run = &self.work.begun.run;
        if part.plugin.manifest.program_type() != Some(ProgramType::Mongo) {
            let folder = self.work.folder.path().map_err(|error| error.to_string())?;
            return answer::read(folder, run.task, self.kit.isolation.user());
        }
        match self.work.ledger.answer(run).await {
            Ok(Some(document)) => Ok(Answer::of_document(document)),
            Ok(None) => Err("no document in results has its id".to_owned()),
            Err(error) => Err(format!("its answer in results cannot be read: {error}")),
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

fn cannot_run(part: &Part, error: &NotBegun) -> String {
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

/// The private folder stays this task's: something may still be on its way to it.
fn in_its_place(mut verdict: Verdict) -> Verdict {
    verdict.has_left = false;
    verdict
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
