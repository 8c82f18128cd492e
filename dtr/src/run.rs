//! One task, step by step.

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use disbatch_core::config::{Config, ConfigError, Gfs, Role};
use disbatch_core::lifecycle::Lifecycle;
use disbatch_core::model::{IdError, NodeName, PluginName, Queue, Rules, Selector, Task, TaskId};
use disbatch_core::plugin::{Plugin, Plugins};
use disbatch_core::store::{Store, StoreError};
use disbatch_core::task::{Renewed, Run, Start, Started};
use disbatch_core::telemetry;

use crate::args::Args;
use crate::boot_time::boot_time;
use crate::custody::{self, Asked, Charge, Custody, Nudges};
use crate::deliver::{Delivered, deliver};
use crate::live::Live;
use crate::outcome::{self, Outcome};
use crate::plugin::{Job, execute};
use crate::retry::{Patience, retry};
use crate::supervision::{self, Supervision};
use crate::{echo, guard, relay};

/// How long a runner looks for the database before it leaves its task to be given back.
const START_PATIENCE: Patience = Patience::Until(Duration::from_secs(60));

/// How a run ended that did what it should.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    /// The result is stored.
    Stored,
    /// The result is stored without all of its output.
    Incomplete,
}

/// Why a run could not do what it should. One line each.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// `--task` is no id.
    #[error("--task: {0}")]
    TaskId(#[from] IdError),
    /// The configuration cannot be used.
    #[error("{0}")]
    Config(#[from] ConfigError),
    /// `mongohost` or the CA file cannot be used.
    #[error("invalid configuration: {0}")]
    Address(StoreError),
    /// The log file or the signal handlers cannot be set up.
    #[error("{0}")]
    Setup(std::io::Error),
    /// No private folder can be made.
    #[error("cannot make a private folder for the task in {folder}: {source}", folder = folder.display())]
    Folder {
        /// Where.
        folder: std::path::PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// The task is not claimed for this node.
    #[error("no task {task} is claimed for node {node}; nothing was touched")]
    NotClaimed {
        /// The task.
        task: TaskId,
        /// The node.
        node: NodeName,
    },
    /// The task was taken away while it ran.
    #[error("task {task} is not running on node {node} any more; its result is discarded")]
    TakenAway {
        /// The task.
        task: TaskId,
        /// The node.
        node: NodeName,
    },
    /// The database is away or refuses an operation.
    #[error("{0}")]
    Store(#[from] StoreError),
}

impl Ending {
    /// See `dtr --help`.
    pub fn exit_code(self) -> ExitCode {
        match self {
            Self::Stored => ExitCode::SUCCESS,
            Self::Incomplete => ExitCode::from(6),
        }
    }
}

impl Failure {
    /// See `dtr --help`.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::NotClaimed { .. } | Self::TakenAway { .. } => 1,
            Self::TaskId(_) => 2,
            Self::Address(error) if error.is_transient() => 4,
            Self::Config(_) | Self::Address(_) | Self::Setup(_) => 3,
            Self::Store(_) => 4,
            Self::Folder { .. } => 5,
        })
    }
}

/// Starts the task, runs its plugin and stores the result.
///
/// # Errors
/// See [`Failure`].
pub async fn run(args: Args) -> Result<Ending, Failure> {
    let id: TaskId = args.task.parse()?;
    let config = Config::load(&args.config)?;
    let node = match &args.node {
        Some(name) => NodeName::new(name),
        None => NodeName::of_this_host().map_err(Failure::Setup)?,
    };
    telemetry::init(&log_of(&config, args.quiet)).map_err(Failure::Setup)?;
    let lifecycle = Lifecycle::listen().map_err(Failure::Setup)?;
    let nudges = Nudges::listen().map_err(Failure::Setup)?;
    lead_own_session();

    let folder = tempfile::Builder::new()
        .prefix(&guard::folder_prefix(id))
        .tempdir()
        .map_err(|source| Failure::Folder { folder: std::env::temp_dir(), source })?;
    let store = Store::connect(&config, Role::TaskRunner).await.map_err(Failure::Address)?;
    let asked = Asked::now();
    let claim = Start {
        task: id,
        node: node.clone(),
        claim: args.attempt.zip(args.instance),
        // The same time in every attempt, so that a start whose answer was lost is recognised as ours.
        at: store.now(),
        lease: config.lease(),
        pid: std::process::id(),
    };
    let (task, run) = start(&store, &claim, &lifecycle).await?;
    tracing::info!(task = %id, queue = %task.queue, attempt = run.attempt, "task started");

    let work = Work { store: &store, config: &config, task: &task, run: &run, lifecycle: &lifecycle };
    let gfs = args.gfs.or(config.gfs).unwrap_or(Gfs::Never);
    let (outcome, delivered) = work.carry_out(asked, nudges, folder.path(), gfs).await?;
    tracing::info!(task = %id, status = %outcome.status, ?delivered, "task ended");
    if !args.quiet && !args.no_echo {
        echo::echo(&outcome).await;
    }
    match delivered {
        Delivered::Stored => Ok(Ending::Stored),
        Delivered::Incomplete => Ok(Ending::Incomplete),
        Delivered::NotRunning => Err(Failure::TakenAway { task: id, node }),
    }
}

/// A runner must survive what happens to the session of the DEN that started it. From a shell it leads a
/// process group already and stays where it is.
fn lead_own_session() {
    if let Err(error) = nix::unistd::setsid() {
        tracing::debug!(%error, "staying in the session");
    }
}

fn log_of(config: &Config, quiet: bool) -> disbatch_core::config::Log {
    let mut log = config.log.clone();
    if quiet {
        log.level = disbatch_core::config::Level::Warn;
    }
    log
}

async fn start(store: &Store, claim: &Start, lifecycle: &Lifecycle) -> Result<(Task, Run), Failure> {
    let started = retry("starting the task", START_PATIENCE, lifecycle, |_| store.start_task(claim)).await?;
    match started {
        Started::Running(task, run) => Ok((*task, run)),
        Started::NotClaimed => Err(Failure::NotClaimed { task: claim.task, node: claim.node.clone() }),
    }
}

/// A task that this runner has.
struct Work<'a> {
    store: &'a Store,
    config: &'a Config,
    task: &'a Task,
    run: &'a Run,
    lifecycle: &'a Lifecycle,
}

impl Work<'_> {
    /// Runs the plugin and stores what came out. `asked`: when the first lease was asked for.
    async fn carry_out(
        &self,
        asked: Asked,
        nudges: Nudges,
        folder: &Path,
        gfs: Gfs,
    ) -> Result<(Outcome, Delivered), StoreError> {
        let queue = match self.queue().await {
            Err(error) if error.is_transient() => return Err(error),
            found => found,
        };
        let lease = self.config.lease();
        let rules = Rules::of(self.task, queue.as_ref().ok().and_then(Option::as_ref));
        let until_deadline = custody::until_deadline(self.task, &rules, lease);
        let (supervisor, supervision) = supervision::channel();
        let charge = Charge { run: self.run.clone(), rules, lease, asked, until_deadline };
        let custody = Custody::begin(self.store.clone(), charge, supervisor, nudges);
        let live = Live::start(self.store, self.task.id, self.run.attempt);

        let outcome = match outcome::needless(self.task, until_deadline) {
            Some(outcome) => outcome,
            None => match queue {
                Ok(queue) => {
                    let until = self.plugin_until(asked, lease).await?;
                    self.execute(queue, supervision, (folder, &live, until)).await
                }
                Err(error) => {
                    Outcome::unable_to_start(&format!("cannot read queue {}: {error}", self.task.queue))
                }
            },
        };
        let outcome = outcome.with_retry(&rules, self.task.failures());
        let delivered = if custody.is_lost() {
            Delivered::NotRunning
        } else {
            deliver(self.store, (self.task, self.run), &outcome, gfs, self.lifecycle).await?
        };
        // Now the output is in its place, or whoever has taken the task away has kept what was written.
        live.end(self.lifecycle).await;
        Ok((outcome, delivered))
    }

    /// Until when the plugin may live at first. Starting the task may have used up the first lease, where the
    /// database was away for a while; the plugin needs another one then, or its guard would not start it.
    async fn plugin_until(&self, asked: Asked, lease: Duration) -> Result<Duration, StoreError> {
        let mut asked = asked;
        while asked.plugin_until(lease) < boot_time().saturating_add(lease / 2) {
            asked = Asked::now();
            let renewal = retry("renewing the lease", Patience::Endless, self.lifecycle, |_| {
                self.store.renew_lease(self.run, lease)
            });
            if renewal.await? == Renewed::Lost {
                // The time of its first lease is over, so it will not be started.
                return Ok(Duration::ZERO);
            }
        }
        Ok(asked.plugin_until(lease))
    }

    async fn queue(&self) -> Result<Option<Queue>, StoreError> {
        retry("reading the queue", Patience::Endless, self.lifecycle, |_| async {
            self.store.find_queue(&Selector::Id(self.task.queue.0)).await
        })
        .await
    }

    /// Runs the plugin, or says why it cannot run.
    async fn execute(
        &self,
        queue: Option<Queue>,
        supervision: Supervision,
        (folder, live, until): (&Path, &Live, Duration),
    ) -> Outcome {
        let (queue, name, plugin) = match find_plugin(self.config, self.task, queue) {
            Ok(found) => found,
            Err(why) => return Outcome::unable_to_start(&why),
        };
        let job = Job {
            task: self.task,
            queue: &queue,
            name: &name,
            run: self.run,
            folder,
            until,
            live: Some(live),
        };
        let (relay, inbox) = relay::channel();
        let (ended, complaints) = tokio::join!(
            execute(&plugin, job, relay, supervision, self.lifecycle),
            inbox.work(self.store, self.config, self.run, self.lifecycle)
        );
        match ended {
            Ok(mut ended) => {
                for complaint in complaints {
                    ended.stderr.note(&complaint);
                }
                Outcome::of(ended)
            }
            Err(error) => {
                Outcome::unable_to_start(&format!("cannot run {}: {error}", plugin.program.display()))
            }
        }
    }
}

fn find_plugin(
    config: &Config,
    task: &Task,
    queue: Option<Queue>,
) -> Result<(Queue, PluginName, Plugin), String> {
    let undefined = || format!("No plugin defined for task {} in queue {}", task.id, task.queue);
    let queue = queue.ok_or_else(undefined)?;
    let name = queue.plugin_name().map_err(|error| error.to_string())?.ok_or_else(undefined)?;
    let plugins = Plugins::discover(config);
    match plugins.get(&name) {
        Some(plugin) => Ok((queue, name, plugin.clone())),
        None => {
            let problems: String = plugins.problems.iter().map(|problem| format!("\n{problem}")).collect();
            Err(format!("plugin {name} is not installed on this node{problems}"))
        }
    }
}
