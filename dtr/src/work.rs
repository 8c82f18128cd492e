//! One task that this runner has, from its start to its stored result.

mod answered;
mod elsewhere;
mod parts;
mod perform;

use std::path::Path;
use std::time::Duration;

use disbatch_core::config::{Config, ConfigError};
use disbatch_core::model::{Queue, Rules, Task};
use disbatch_core::plugin::{Engine, Manifest};
use disbatch_core::schedules::ForRun;
use disbatch_core::store::StoreError;
use disbatch_core::task::Run;

use crate::boot_time::{Asked, boot_time};
use crate::custody::{Charge, Custody};
use crate::deliver::{Delivered, deliver};
use crate::early::Early;
use crate::files;
use crate::guard::Guards;
use crate::installed::Installed;
use crate::isolation::Isolation;
use crate::ledger::{Hold, Ledger};
use crate::live::Live;
use crate::outcome::{self, Outcome};
use crate::retry::{Patience, retry};
use crate::setup::Setup;
use crate::steps;
use crate::supervision;
use crate::warm::Keeper;
use parts::Refused;

/// A task that has been started for this runner.
#[derive(Debug)]
pub struct Begun {
    /// The task, as it was after the start.
    pub task: Task,
    /// Its queue, none if it is gone, or why it cannot be read.
    pub queue: Result<Option<Queue>, String>,
    /// What its schedule knows of earlier runs, if it has one, or why that cannot be read.
    pub schedule: Result<Option<ForRun>, String>,
    /// The plugins that the database defines, as far as the task may need them.
    pub workers: Vec<Manifest>,
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
    /// Runs the plugin, or those of all steps, and stores what came out.
    ///
    /// # Errors
    /// The database refuses the end of the task, or the process is told to end while the database is away.
    pub async fn carry_out(&self, kit: &mut Kit) -> Result<(Outcome, Delivered), StoreError> {
        let Begun { task, queue, run, asked, until_deadline, lease, .. } = self.begun;
        let rules = Rules::of(task, queue.as_ref().ok().and_then(Option::as_ref));
        let (supervisor, supervision) = supervision::channel();
        let charge =
            Charge { run: run.clone(), rules, lease: *lease, asked: *asked, until_deadline: *until_deadline };
        let custody = Custody::begin(self.ledger.clone(), charge, supervisor, self.setup.nudges.clone());
        let live = Live::start(self.ledger, run);
        let early = Early::new(self.ledger, run, self.setup.gfs);

        let mut asks_service = false;
        let outcome = match outcome::needless(task, *until_deadline) {
            Some(outcome) => outcome,
            None => match parts::find(self.begun, &self.setup.config, &mut kit.plugins) {
                Ok(parts) => {
                    asks_service = parts.iter().any(|part| part.plugin.manifest.engine == Engine::Http);
                    let until = self.plugin_until().await?;
                    let tools = (&mut kit.guards, &mut kit.warm);
                    self.perform(&parts, tools, supervision, (&live, &early, until)).await
                }
                Err(refused) => {
                    self.note_refused_step(&refused).await;
                    Outcome::unable_to_start(&refused.why)
                }
            },
        };
        let outcome = outcome.with_retry(&rules, task.failures());
        let delivered = if custody.is_lost() {
            early.discard().await;
            self.ledger.let_go().await;
            Delivered::NotRunning
        } else if self.is_elsewhere(&outcome, asks_service).await? {
            early.discard().await;
            // The lease is kept until it is the web service's.
            let detached = self.ledger.detach(run).await?;
            drop(custody);
            if detached { Delivered::Detached } else { Delivered::NotRunning }
        } else {
            deliver(self.ledger, (task, run), &outcome, (self.setup.gfs, &early)).await?
        };
        files::settle(self, delivered).await;
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

    /// Says which step it is that cannot be done. The task's standard error says so, too.
    async fn note_refused_step(&self, refused: &Refused) {
        let Some((index, count)) = refused.step else { return };
        let states = steps::unable_to_start(count, index, &refused.why);
        if let Err(error) = self.ledger.record_steps(&self.begun.run, &states).await {
            tracing::warn!(%error, "cannot record how far the steps are");
        }
    }
}
