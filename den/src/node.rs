//! The node's loop: every second and at every hint it looks after its tasks and claims new ones.
//!
//! Nothing here is remembered that the database does not know: a DEN that is killed and started again goes
//! on where it was, and the runners in between have not noticed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bson::oid::ObjectId;
use bson::{Bson, Document};
use disbatch_core::config::{Config, QueueIds};
use disbatch_core::lifecycle::Lifecycle;
use disbatch_core::model::NodeName;
use disbatch_core::node::Beat;
use disbatch_core::store::{Store, StoreError};
use disbatch_core::wake::Hints;
use tokio::sync::mpsc;
use tokio::time::MissedTickBehavior;

use crate::backoff::Backoff;
use crate::launch::{Exit, Launcher};
use crate::plugins::Availability;
use crate::supervise::Continuity;

/// The interval of the loop (Disbatch 4 design, Overview).
const INTERVAL: Duration = Duration::from_secs(1);

/// How many heartbeats there are in a lease at least.
const BEATS: u32 = 4;

/// One node at work.
#[derive(Debug)]
pub struct Node {
    pub(crate) config: Config,
    pub(crate) store: Store,
    pub(crate) name: NodeName,
    /// This start of the DEN.
    pub(crate) instance: String,
    hints: Arc<Hints>,
    pub(crate) launcher: Launcher,
    exits: mpsc::UnboundedReceiver<Exit>,
    pub(crate) availability: Availability,
    /// The operator's limit as of the last heartbeat.
    pub(crate) maxthreads: Option<u64>,
    /// An operator wants it to claim nothing more.
    draining: bool,
    /// Whether to wait for running tasks at the end.
    stay: bool,
    /// Whose turn it is first in the next round.
    pub(crate) turn: usize,
    /// Where to begin among the free places of a queue: another number for each DEN.
    pub(crate) spread: usize,
    /// Launches fail: claim nothing for a while.
    pub(crate) launches: Backoff,
    /// The database is away: leave it alone for a while.
    database: Backoff,
    /// Ends of runners that could not be looked into because the database was away.
    unsettled: Vec<Exit>,
    /// A claim failed without an answer: there may be tasks claimed in our name that nobody launches.
    pub(crate) uncertain: bool,
    /// Since when the database has been there without a gap.
    pub(crate) continuity: Continuity,
    /// When it was last looked for dead nodes and runs.
    pub(crate) inspected: Instant,
}

impl Node {
    /// A node that has done nothing yet.
    pub fn new(
        config: Config,
        store: Store,
        name: NodeName,
        hints: Arc<Hints>,
        (launcher, exits): (Launcher, mpsc::UnboundedReceiver<Exit>),
    ) -> Self {
        let availability = Availability::look(&config);
        Self {
            config,
            store,
            name,
            instance: ObjectId::new().to_hex(),
            hints,
            launcher,
            exits,
            availability,
            maxthreads: None,
            draining: false,
            stay: false,
            turn: 0,
            spread: usize::from(std::process::id().to_le_bytes()[0]),
            launches: Backoff::new(Duration::from_secs(1), Duration::from_secs(60)),
            database: Backoff::new(INTERVAL, Duration::from_secs(30)),
            unsettled: Vec::new(),
            uncertain: false,
            continuity: Continuity::default(),
            inspected: Instant::now(),
        }
    }

    /// Whether to wait, at the end, until the node's tasks have ended.
    pub fn staying_for_its_tasks(self, stay: bool) -> Self {
        Self { stay, ..self }
    }

    /// Works until told to drain, then gives back what has not been started.
    pub async fn run(mut self, lifecycle: &Lifecycle) {
        let mut seconds = tokio::time::interval(INTERVAL.min(self.config.lease() / BEATS));
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let hints = self.hints.clone();
        loop {
            // The tick comes first: however many runners end, the heartbeat must not starve.
            let second = tokio::select! {
                biased;
                () = lifecycle.draining() => break,
                _ = seconds.tick() => true,
                exit = self.exits.recv() => { self.unsettled.extend(exit); false }
                () = hints.noticed() => false,
            };
            while let Ok(exit) = self.exits.try_recv() {
                self.unsettled.push(exit);
            }
            if self.database.left(Instant::now()).is_some() {
                continue;
            }
            match self.look(second, lifecycle).await {
                Ok(()) => self.database.worked(),
                Err(error) => {
                    let pause = self.database.failed(Instant::now());
                    tracing::error!(%error, retry_in_s = pause.as_secs_f32(), "cannot work with the database");
                }
            }
        }
        self.drain(lifecycle).await;
    }

    /// One pass of the loop.
    async fn look(&mut self, second: bool, lifecycle: &Lifecycle) -> Result<(), StoreError> {
        let attention = self.hints.take_attention();
        if second {
            self.beat(lifecycle.is_draining()).await?;
            self.sweep().await?;
            self.availability.refresh(&self.config);
        } else if attention {
            self.look_for_attention().await?;
        }
        while let Some(exit) = self.unsettled.pop() {
            if let Err(error) = self.settle(&exit).await {
                self.unsettled.push(exit);
                return Err(error);
            }
            self.launcher.ended(&exit);
        }
        if self.uncertain {
            let why = "its DEN could not tell whether it had claimed it";
            let unknown = self.store.unclaim_all(&self.name, &self.launcher.tasks(), why).await?;
            if unknown > 0 {
                tracing::warn!(tasks = unknown, "gave back tasks whose claim had not been answered");
            }
            self.uncertain = false;
        }
        let may_claim = !self.draining && !lifecycle.is_draining();
        if may_claim && self.launches.left(Instant::now()).is_none() {
            self.claim_and_launch(lifecycle).await?;
        }
        Ok(())
    }

    /// Says that this DEN is alive, and learns what operators want of it.
    async fn beat(&mut self, leaving: bool) -> Result<(), StoreError> {
        let ids = |ids: &Option<QueueIds>| {
            ids.iter().flat_map(|ids| &ids.0).map(|id| Bson::from(id.0)).collect::<Vec<_>>()
        };
        let mut serves = Document::new();
        if self.config.activequeues.is_some() {
            serves.insert("active", ids(&self.config.activequeues));
        } else if self.config.ignorequeues.is_some() {
            serves.insert("ignored", ids(&self.config.ignorequeues));
        }
        let beat = Beat {
            instance: self.instance.clone(),
            lease: self.config.lease(),
            draining: leaving || self.draining,
            running: self.launcher.tasks().len(),
            plugins: self.availability.names(),
            serves,
        };
        let entry = self.store.heartbeat(&self.name, &beat).await?;
        self.continuity.reached(self.config.lease() * 2 / 3);
        self.maxthreads = entry.thread_limit();
        if entry.is_draining() != self.draining {
            self.draining = entry.is_draining();
            let what = if self.draining { "claiming nothing more" } else { "claiming again" };
            tracing::info!("an operator has changed whether this node drains: {what}");
        }
        self.pay_attention(&entry.attention()).await
    }

    /// Gives back every task that no runner has started. A runner that starts now finds its claim gone.
    async fn drain(mut self, lifecycle: &Lifecycle) {
        tracing::info!(running = self.launcher.tasks().len(), "draining: claiming nothing more");
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let error = match self.store.unclaim_all(&self.name, &[], "its DEN ended").await {
                Ok(tasks) => {
                    tracing::info!(given_back = tasks, "gave back what no runner has started");
                    break;
                }
                Err(error) => error,
            };
            if Instant::now() > deadline || lifecycle.is_ending() {
                tracing::error!(%error, "cannot give back claimed tasks; others do when their lease has run out");
                return;
            }
            tracing::warn!(%error, "cannot give back claimed tasks, trying again");
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                () = lifecycle.ending() => {}
            }
        }
        if self.stay {
            self.stay_for_running(lifecycle).await;
        }
        if let Err(error) = self.store.leave(&self.name, &self.instance).await {
            tracing::warn!(%error, "cannot say that this node has ended");
        }
        tracing::info!("ended; running tasks go on by themselves");
    }

    /// Looks after the node until none of its tasks runs any more.
    async fn stay_for_running(&mut self, lifecycle: &Lifecycle) {
        let mut seconds = tokio::time::interval(INTERVAL.min(self.config.lease() / BEATS));
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut reported = u64::MAX;
        while !lifecycle.is_ending() {
            let second = tokio::select! {
                _ = seconds.tick() => true,
                exit = self.exits.recv() => { self.unsettled.extend(exit); false }
                () = lifecycle.ending() => return,
            };
            let looked = self.look(second, lifecycle).await;
            let running = match looked {
                Ok(()) => self.store.running_on_node(&self.name).await,
                Err(error) => Err(error),
            };
            match running {
                Ok(0) => return,
                Ok(running) if running != reported => {
                    reported = running;
                    tracing::info!(running, "waiting for running tasks to end");
                }
                Ok(_) => {}
                Err(error) => tracing::error!(%error, "cannot work with the database"),
            }
        }
    }
}
