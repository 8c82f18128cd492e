//! One task that this runner has, from its start to its stored result.
//!
//! All that goes on beside the plugin (link, lease, live output, relay) is polled in the task of the runtime that follows the plugin, and not in tasks of its own: to
//! wake another one up costs two system calls. What is not needed is not begun.

mod answer_outcome;
pub mod parts;
mod perform;
mod tools;

use std::convert::Infallible;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bson::RawDocumentBuf;
use disbatch_core::clock::boot_time;
use disbatch_core::config::{Config, ConfigError};
use disbatch_core::model::{Queue, Rules, Status, Task, whole_number};
use disbatch_core::plugin::{Engine, Manifest};
use disbatch_core::schedules::ForRun;
use disbatch_core::secrets::SecureParams;
use disbatch_core::store::StoreError;
use disbatch_core::task::Run;

use crate::custody::{Asked, Custody, Nudged};
use crate::deliver::{Delivered, deliver};
use crate::early_upload::Early;
use crate::files;
use crate::folder::Lodging;
use crate::guard::Guards;
use crate::isolation::Isolation;
use crate::ledger::{Hold, Ledger};
use crate::live::Live;
use crate::local::Prepared;
use crate::lock;
use crate::outcome::{self, Outcome};
use crate::plugin::{self, Job};
use crate::recorder::{Commons, Sums};
use crate::setup::Setup;
use crate::steps;
use crate::supervision::{self, Supervision};
use crate::warm::{Batcher, Batches};
use parts::{Installed, Part, Refused};
use tools::Toolbox;

/// A task that lasts longer is shown to others in any case.
const SHOWN_AFTER: Duration = Duration::from_secs(1);

/// Answers of proxies, which do not know what became of the request to a web service.
const OF_PROXIES: [i64; 2] = [502, 504];

/// So many characters of what is said about a refusal by one are kept at most.
const LONGEST_REFUSAL: usize = 16 * 1024;

#[derive(Debug)]
pub struct Begun {
    /// The task, as it was after the start.
    pub task: Task,
    /// Its queue, none if it is gone, or why it cannot be read.
    pub queue: Result<Option<Arc<Queue>>, String>,
    /// What its schedule knows of earlier runs, if it has one, or why that cannot be read.
    pub schedule: Result<Option<ForRun>, String>,
    /// The plugins that the database defines, as far as the task may need them.
    pub workers: Vec<Manifest>,
    pub run: Run,
    /// When the first lease was asked for.
    pub asked: Asked,
    /// How long there is until the task's deadline, by the server's clock.
    pub until_deadline: Option<Duration>,
    pub lease: Duration,
}

impl Begun {
    pub fn known_queue(&self) -> Option<&Queue> {
        self.queue.as_ref().ok()?.as_deref()
    }
}

/// What a runner keeps from task to task. Tasks that it has at the same time share it.
#[derive(Debug)]
pub struct Kit {
    plugins: Mutex<Installed>,
    /// That of the last task, and how its DEN has told of it.
    queue: Mutex<Option<(RawDocumentBuf, Arc<Queue>)>>,
    /// What plugins are kept from.
    isolation: Arc<Isolation>,
    /// What each task has for itself.
    pub tools: Toolbox,
    batches: Batches,
    /// What is known of the files of plugins, for recordings, and of what these have in common.
    sums: Sums,
    commons: Commons,
}

impl Kit {
    /// Nothing but the plugins that there are, and what they are kept from; and what gives tasks to those that take batches.
    pub fn new(config: &Config) -> Result<(Self, Batcher), ConfigError> {
        let isolation = Arc::new(Isolation::prepare(config)?);
        let tools = Toolbox::new(Arc::clone(&isolation));
        let (batches, batcher) = Batcher::new(Guards::new(Arc::clone(&isolation)));
        let (plugins, queue) = (Mutex::new(Installed::discover(config)), Mutex::default());
        let (sums, commons) = (Sums::default(), Commons::default());
        Ok((Self { plugins, queue, isolation, tools, batches, sums, commons }, batcher))
    }

    /// A queue as a DEN tells of it. Most tasks are of the same one as the task before: that is not read again.
    pub fn queue(&self, told: RawDocumentBuf) -> Result<Arc<Queue>, bson::error::Error> {
        let mut last = lock(&self.queue);
        if let Some((_, queue)) = last.as_ref().filter(|(known, _)| *known == told) {
            return Ok(Arc::clone(queue));
        }
        let queue = Arc::new(bson::deserialize_from_slice(told.as_bytes())?);
        Ok(Arc::clone(&last.insert((told, queue)).1))
    }

    pub fn plugins(&self) -> MutexGuard<'_, Installed> {
        lock(&self.plugins)
    }

    /// What the plugin of a task is started with in this folder.
    pub fn prepare(
        &self,
        begun: &Begun,
        config: &Config,
        (secure_params, folder): (Option<&SecureParams>, &Path),
    ) -> io::Result<Prepared> {
        let parts = self.parts_of(begun, config).map_err(|refused| io::Error::other(refused.why))?;
        let queue = parts::queue_of(begun).map_err(io::Error::other)?;
        let [part] = &parts[..] else { return Err(io::Error::other("the task has several steps")) };
        let job = Job {
            task: &begun.task,
            json: None,
            secure_params,
            queue,
            name: &part.name,
            run: &begun.run,
            folder,
            folder_is_used: false,
            until: begun.lease,
            about: &part.about,
        };
        plugin::prepare(&part.plugin, job, &self.isolation)
    }

    /// What a task needs of them. They are looked at for this only: what the task takes does not keep others from them.
    fn parts_of(&self, begun: &Begun, config: &Config) -> Result<Vec<Part>, Refused> {
        parts::find(begun, config, &mut self.plugins())
    }
}

#[derive(Debug)]
pub struct Work<'a> {
    pub setup: &'a Setup,
    pub ledger: &'a Ledger,
    pub begun: &'a Begun,
    pub folder: &'a Lodging,
    /// Whether the runner has no other task meanwhile.
    pub is_alone: bool,
}

const UNSEEN_COMMITS: &str = "its plugin may commit, and the MongoDB user of this node may not look at tasks.commits: \
                              run disbatch create-users again";

fn commits(parts: &[Part]) -> bool {
    parts.iter().any(|part| part.plugin.manifest.commits)
}

impl Work<'_> {
    /// Runs the plugin, or those of all steps, and stores what came out.
    pub async fn carry_out(&self, kit: &Kit, nudged: Nudged) -> Result<(Outcome, Delivered), StoreError> {
        let Begun { task, run, .. } = self.begun;
        let rules = Rules::of(task, self.begun.known_queue());
        let (supervisor, supervision) = supervision::channel();
        let custody = Custody::new(self.ledger, (self.begun, rules), supervisor);
        let live = Live::new(self.ledger, run);
        // Now the output is in its place, or whoever has taken the task away has kept what was written.
        let work = live.beside(self.carry_through(kit, (&rules, supervision), (&custody, &live)));
        tokio::select! {
            biased;
            never = custody.keep(nudged) => match never {},
            never = self.show() => match never {},
            done = work => done,
        }
    }

    /// The same while the task is kept, and its output shown.
    async fn carry_through(
        &self,
        kit: &Kit,
        (rules, supervision): (&Rules, Supervision),
        (custody, live): (&Custody<'_>, &Live<'_>),
    ) -> Result<(Outcome, Delivered), StoreError> {
        let Begun { task, run, until_deadline, .. } = self.begun;
        let early = Early::new(self.ledger, run, self.setup.gfs);
        let (mut asks_service, mut may_commit) = (false, false);
        let outcome = match outcome::needless(task, *until_deadline) {
            Some(outcome) => outcome,
            None => match kit.parts_of(self.begun, &self.setup.config) {
                Ok(parts) if commits(&parts) && !self.ledger.sees_commits(run).await? => {
                    Outcome::unable_to_start(UNSEEN_COMMITS)
                }
                Ok(parts) => {
                    may_commit = commits(&parts);
                    asks_service = parts.iter().any(|part| part.plugin.manifest.engine == Engine::Http);
                    let until = self.plugin_until().await?;
                    self.perform(&parts, kit, supervision, (live, &early, until)).await
                }
                Err(refused) => {
                    Box::pin(self.note_refused_step(&refused)).await;
                    Outcome::unable_to_start(&refused.why)
                }
            },
        };
        let mut outcome = outcome.with_retry(rules, task.failures());
        if may_commit
            && !custody.is_lost()
            && let Some(status) = Box::pin(self.ledger.settle_commit(run)).await?
        {
            outcome = outcome.committed(status);
        }
        let delivered = if custody.is_lost() {
            Box::pin(early.discard()).await;
            self.ledger.let_go().await;
            Delivered::NotRunning
        } else if Box::pin(self.is_elsewhere(&outcome, asks_service)).await? {
            Box::pin(early.discard()).await;
            // The lease is kept until it is the web service's.
            let detached = Box::pin(self.ledger.detach(run)).await?;
            custody.end();
            if detached { Delivered::Detached } else { Delivered::NotRunning }
        } else {
            deliver(self, &outcome, &early).await?
        };
        files::settle(self, delivered).await;
        Ok((outcome, delivered))
    }

    /// Whether a web service goes on with the task, or has ended it: it has taken it, or it has called back, whatever became
    /// since of who has asked it. What it has logged would be lost if the task ended here, and its work would be done twice if
    /// the task was tried again. If it has refused the task after that, the task fails as others do, with what was logged.
    async fn is_elsewhere(&self, outcome: &Outcome, asks_service: bool) -> Result<bool, StoreError> {
        if outcome.verdict.detached {
            return Ok(true);
        }
        let run = &self.begun.run;
        if !asks_service || self.ledger.withdraw(run).await? {
            return Ok(false);
        }
        if let Some(why) = refusal(outcome).await {
            self.ledger.fail_external(run, &why).await?;
        }
        Ok(true)
    }

    /// Sees to it that others find out what the runner works on, by the folder that it is in: a later DEN, to which there is no
    /// link. What is over in a moment need not be found, so for a task that needs no folder none is made before.
    async fn show(&self) -> Infallible {
        // A runner can be in one folder only. One that has several tasks is found by its number, which these have.
        if self.is_alone && !self.folder.is_made() {
            let _unlinked = tokio::time::timeout(SHOWN_AFTER, self.ledger.unlinked()).await;
            if let Err(error) = self.folder.path() {
                tracing::warn!(%error, "others cannot tell what this runner works on");
            }
        }
        std::future::pending().await
    }

    /// Until when the plugin may live at first. Starting the task may have used up the first lease, where the
    /// database was away for a while; the plugin needs another one then, or its guard would not start it.
    async fn plugin_until(&self) -> Result<Duration, StoreError> {
        let Begun { run, asked, lease, .. } = self.begun;
        let mut until = asked.plugin_until(*lease);
        while until < boot_time().saturating_add(*lease / 2) {
            let renew = |_| self.ledger.renew(run, *lease);
            match Box::pin(self.ledger.keep_trying("renewing the lease", renew)).await? {
                Hold::Held { until: longer, .. } => until = longer,
                // The time of its first lease is over, so it will not be started.
                Hold::Lost => return Ok(Duration::ZERO),
            }
        }
        Ok(until)
    }

    /// Says which step it is that cannot be done. The task's standard error says so, too.
    async fn note_refused_step(&self, refused: &Refused) {
        let Some((index, count)) = refused.step else { return };
        let states = steps::unable_to_start(count, index, &refused.why);
        if let Err(error) = self.ledger.record_steps(&self.begun.run, &states).await {
            tracing::warn!(%error, "cannot record how far the steps are");
        }
    }
}

/// What there is to say about it if the service itself has answered that it does not take the task.
async fn refusal(outcome: &Outcome) -> Option<String> {
    let facts = outcome.exit.as_ref()?.get_document("engine").ok()?;
    let answered = facts.get("http_status").and_then(whole_number)?;
    if outcome.verdict.status != Status::Failed || OF_PROXIES.contains(&answered) {
        return None;
    }
    // It is short, and what cannot be read of it is no reason to do anything else.
    let text = outcome.stderr.text().await.unwrap_or_default();
    Some(text.trim_end().chars().take(LONGEST_REFUSAL).collect())
}

#[cfg(test)]
mod tests {
    use bson::{Document, doc};

    use super::*;

    fn failed(exit: Option<Document>) -> Outcome {
        Outcome { exit, ..Outcome::unable_to_start("it has answered with 500") }
    }

    #[tokio::test]
    async fn only_the_service_itself_refuses() {
        let answered = |status: i32| Some(doc! { "code": 1, "engine": { "http_status": status } });
        let said = refusal(&failed(answered(500))).await;
        assert_eq!(said.as_deref(), Some("it has answered with 500"));
        for nothing in [answered(502), answered(504), Some(doc! { "code": 1 }), None] {
            assert_eq!(refusal(&failed(nothing.clone())).await, None, "{nothing:?}");
        }
        let mut cancelled = failed(answered(500));
        cancelled.verdict.status = Status::Terminated;
        assert_eq!(refusal(&cancelled).await, None);
    }
}
