//! One task that this runner has, from its start to its stored result.

use std::path::Path;
use std::time::Duration;

use disbatch_core::config::{Config, ConfigError};
use disbatch_core::model::{PluginName, Queue, Rules, Task};
use disbatch_core::plugin::Plugin;
use disbatch_core::store::StoreError;
use disbatch_core::task::Run;

use crate::boot_time::{Asked, boot_time};
use crate::custody::{Charge, Custody};
use crate::deliver::{Delivered, deliver};
use crate::early::Early;
use crate::guard::Guards;
use crate::installed::Installed;
use crate::isolation::Isolation;
use crate::ledger::{Hold, Ledger};
use crate::live::Live;
use crate::outcome::{self, Outcome};
use crate::plugin::{self, Job, NotBegun};
use crate::relay;
use crate::retry::{Patience, retry};
use crate::secrets::{self, Untold};
use crate::setup::Setup;
use crate::supervision::{self, Supervision};
use crate::warm::Keeper;

/// A task that has been started for this runner.
#[derive(Debug)]
pub struct Begun {
    /// The task, as it was after the start.
    pub task: Task,
    /// Its queue, none if it is gone, or why it cannot be read.
    pub queue: Result<Option<Queue>, String>,
    /// This run of it.
    pub run: Run,
    /// When the first lease was asked for.
    pub asked: Asked,
    /// How long there is until the task's deadline.
    pub until_deadline: Option<Duration>,
    /// How long a lease is.
    pub lease: Duration,
}

/// What a runner keeps from task to task.
#[derive(Debug)]
pub struct Kit {
    /// The plugins of this host.
    pub plugins: Installed,
    /// The process that plugins are started by.
    pub guards: Guards,
    /// The process of a warm plugin.
    pub warm: Keeper,
}

impl Kit {
    /// Nothing but the plugins that there are, and what they are kept from.
    ///
    /// # Errors
    /// They cannot be kept from it as the configuration wants.
    pub fn new(config: &Config) -> Result<Self, ConfigError> {
        let guards = Guards::new(Isolation::prepare(config)?);
        Ok(Self { plugins: Installed::discover(config), guards, warm: Keeper::default() })
    }
}

/// Carries out what has begun.
#[derive(Debug)]
pub struct Work<'a> {
    /// What the runner has.
    pub setup: &'a Setup,
    /// Where the run is recorded.
    pub ledger: &'a Ledger,
    /// The task.
    pub begun: &'a Begun,
    /// Its private folder.
    pub folder: &'a Path,
}

impl Work<'_> {
    /// Runs the plugin and stores what came out.
    ///
    /// # Errors
    /// The database refuses the end of the task, or the process is told to end while the database is away.
    pub async fn carry_out(&self, kit: &mut Kit) -> Result<(Outcome, Delivered), StoreError> {
        let Begun { task, queue, run, asked, until_deadline, lease } = self.begun;
        let rules = Rules::of(task, queue.as_ref().ok().and_then(Option::as_ref));
        let (supervisor, supervision) = supervision::channel();
        let charge =
            Charge { run: run.clone(), rules, lease: *lease, asked: *asked, until_deadline: *until_deadline };
        let custody = Custody::begin(self.ledger.clone(), charge, supervisor, self.setup.nudges.clone());
        let live = Live::start(self.ledger, run);
        let early = Early::new(self.ledger, run, self.setup.gfs);

        let outcome = match outcome::needless(task, *until_deadline) {
            Some(outcome) => outcome,
            None => match find_plugin(self.setup, task, queue, &mut kit.plugins) {
                Ok(found) => {
                    let until = self.plugin_until().await?;
                    let tools = (&mut kit.guards, &mut kit.warm);
                    self.execute(found, tools, supervision, (&live, &early, until)).await
                }
                Err(why) => Outcome::unable_to_start(&why),
            },
        };
        let outcome = outcome.with_retry(&rules, task.failures());
        let delivered = if custody.is_lost() {
            early.discard().await;
            self.ledger.let_go().await;
            Delivered::NotRunning
        } else {
            deliver(self.ledger, (task, run), &outcome, (self.setup.gfs, &early)).await?
        };
        // Now the output is in its place, or whoever has taken the task away has kept what was written.
        live.end().await;
        Ok((outcome, delivered))
    }

    /// Until when the plugin may live at first. Starting the task may have used up the first lease, where the
    /// database was away for a while; the plugin needs another one then, or its guard would not start it.
    async fn plugin_until(&self) -> Result<Duration, StoreError> {
        let Begun { run, asked, lease, .. } = self.begun;
        let mut until = asked.plugin_until(*lease);
        while until < boot_time().saturating_add(*lease / 2) {
            let renewal = retry("renewing the lease", Patience::Endless, &self.setup.lifecycle, |_| {
                self.ledger.renew(run, *lease)
            });
            match renewal.await? {
                Hold::Held { until: longer, .. } => until = longer,
                // The time of its first lease is over, so it will not be started.
                Hold::Lost => return Ok(Duration::ZERO),
            }
        }
        Ok(until)
    }

    /// Runs the plugin, or says why it cannot run.
    async fn execute(
        &self,
        (queue, name, plugin): (&Queue, PluginName, &Plugin),
        (guards, warm): (&mut Guards, &mut Keeper),
        supervision: Supervision,
        (live, early, until): (&Live, &Early, Duration),
    ) -> Outcome {
        let Begun { task, run, .. } = self.begun;
        let secure_params = match secrets::of(task, &self.setup.config) {
            Ok(params) => Untold::new(params),
            Err(why) => return Outcome::unable_to_start(&why),
        };
        let (folder, secure_params) = (self.folder, &secure_params);
        let (live, early) = (Some(live), Some(early));
        let job = Job { task, secure_params, queue, name: &name, run, folder, until, live, early };
        let (relay, inbox) = relay::channel();
        let lifecycle = &self.setup.lifecycle;
        let run_plugin = async {
            match plugin.manifest.warm {
                None => {
                    let guarded = plugin::start(plugin, job, guards).await?;
                    plugin::follow(guarded, job, relay, supervision, lifecycle).await
                }
                Some(limits) => {
                    warm.execute((plugin, limits), (job, guards), relay, supervision, lifecycle).await
                }
            }
        };
        let (ended, complaints) =
            tokio::join!(run_plugin, inbox.work(self.ledger, &self.setup.config, run, lifecycle));
        match ended {
            Ok(mut ended) => {
                for complaint in complaints {
                    ended.stderr.note(&complaint);
                }
                Outcome::of(ended)
            }
            Err(error) => {
                let why = format!("cannot run {}: {error}", plugin.program.display());
                match error {
                    NotBegun::Refused(_) => Outcome::unable_to_start(&why),
                    NotBegun::ToEnd { reason, .. } => Outcome::not_begun(reason, &why),
                }
            }
        }
    }
}

fn find_plugin<'a>(
    setup: &Setup,
    task: &Task,
    queue: &'a Result<Option<Queue>, String>,
    plugins: &'a mut Installed,
) -> Result<(&'a Queue, PluginName, &'a Plugin), String> {
    let queue = queue.as_ref().map_err(|error| format!("cannot read queue {}: {error}", task.queue))?;
    let undefined = || format!("No plugin defined for task {} in queue {}", task.id, task.queue);
    let queue = queue.as_ref().ok_or_else(undefined)?;
    let name = queue.plugin_name().map_err(|error| error.to_string())?.ok_or_else(undefined)?;
    plugins.refresh(&name, &setup.config);
    match plugins.get(&name) {
        Some(plugin) => Ok((queue, name, plugin)),
        None => Err(format!("plugin {name} is not installed on this node{}", plugins.problems())),
    }
}
