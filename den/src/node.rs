//! The node's loop: every second and at every hint it looks after its tasks and claims new ones.
//!
//! Nothing here is remembered that the database does not know: a DEN that is killed and started again goes
//! on where it was, and the runners in between have not noticed.

use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use disbatch_core::config::Config;
use disbatch_core::lifecycle::Lifecycle;
use disbatch_core::model::{NodeName, Queue, QueueId};
use disbatch_core::store::{Store, StoreError};
use disbatch_core::task::Unclaimed;
use tokio::sync::{Notify, mpsc};
use tokio::time::MissedTickBehavior;

use crate::backoff::Backoff;
use crate::launch::{Exit, Launcher};
use crate::plugins::Availability;
use crate::schedule::{Demand, Round};

/// The interval of the loop (Disbatch 4 design, Overview).
const INTERVAL: Duration = Duration::from_secs(1);

/// A runner's exit status that says "no such task is claimed for this node".
const NOT_CLAIMED: i32 = 1;

/// One node at work.
#[derive(Debug)]
pub struct Node {
    config: Config,
    store: Store,
    name: NodeName,
    launcher: Launcher,
    exits: mpsc::UnboundedReceiver<Exit>,
    availability: Availability,
    /// The operator's limit as of the last heartbeat.
    maxthreads: Option<u64>,
    /// Whose turn it is first in the next round.
    turn: usize,
    /// Launches fail: claim nothing for a while.
    launches: Backoff,
    /// The database is away: leave it alone for a while.
    database: Backoff,
    /// Ends of runners that could not be looked into because the database was away.
    unsettled: Vec<Exit>,
    /// A claim failed without an answer: there may be tasks claimed in our name that nobody launches.
    uncertain: bool,
}

impl Node {
    /// A node that has done nothing yet.
    pub fn new(
        config: Config,
        store: Store,
        name: NodeName,
        (launcher, exits): (Launcher, mpsc::UnboundedReceiver<Exit>),
    ) -> Self {
        let availability = Availability::look(&config);
        Self {
            config,
            store,
            name,
            launcher,
            exits,
            availability,
            maxthreads: None,
            turn: 0,
            launches: Backoff::new(Duration::from_secs(1), Duration::from_secs(60)),
            database: Backoff::new(INTERVAL, Duration::from_secs(30)),
            unsettled: Vec::new(),
            uncertain: false,
        }
    }

    /// Works until told to drain, then gives back what has not been started.
    pub async fn run(mut self, wake: Arc<Notify>, lifecycle: &Lifecycle) {
        let mut seconds = tokio::time::interval(INTERVAL);
        seconds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            // The tick comes first: however many runners end, the heartbeat must not starve.
            let second = tokio::select! {
                biased;
                () = lifecycle.draining() => break,
                _ = seconds.tick() => true,
                exit = self.exits.recv() => { self.unsettled.extend(exit); false }
                () = wake.notified() => false,
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
        if second {
            self.maxthreads = self.store.heartbeat(&self.name).await?.thread_limit();
            let orphans = self.store.orphan_stale_claims(&self.name).await?;
            if orphans > 0 {
                tracing::warn!(tasks = orphans, "tasks were claimed and never started: orphaned");
            }
            self.availability.refresh(&self.config);
        }
        while let Some(exit) = self.unsettled.pop() {
            if let Err(error) = self.settle(&exit).await {
                self.unsettled.push(exit);
                return Err(error);
            }
            self.launcher.ended(exit.claim.task);
        }
        if self.uncertain {
            let unknown = self.store.unclaim_all(&self.name, &self.launcher.tasks()).await?;
            if unknown > 0 {
                tracing::warn!(tasks = unknown, "gave back tasks whose claim had not been answered");
            }
            self.uncertain = false;
        }
        if self.launches.left(Instant::now()).is_none() && !lifecycle.is_draining() {
            self.claim_and_launch(lifecycle).await?;
        }
        Ok(())
    }

    /// Claims as many tasks as the limits allow and starts a runner for each.
    async fn claim_and_launch(&mut self, lifecycle: &Lifecycle) -> Result<(), StoreError> {
        let queues = self.queues().await?;
        if queues.is_empty() || self.maxthreads == Some(0) {
            return Ok(());
        }
        let ids: Vec<QueueId> = queues.iter().map(|queue| queue.id).collect();
        let running = self.store.running_by_queue(&ids).await?;
        let demands: Vec<Demand> = queues
            .iter()
            .map(|queue| Demand {
                queue: queue.id,
                threads: queue.thread_limit(),
                running: running.get(&queue.id).copied().unwrap_or(0),
            })
            .collect();
        let on_node = match self.maxthreads {
            Some(_) => self.store.running_on_node(&self.name).await?,
            None => 0,
        };
        let mut round = Round::new(self.maxthreads, on_node, &demands, self.turn);
        self.turn = self.turn.wrapping_add(1);
        while let Some(id) = round.next() {
            if lifecycle.is_draining() {
                break;
            }
            let Some(queue) = queues.iter().find(|queue| queue.id == id) else { break };
            if !self.claim_one(queue, &mut round).await? {
                break;
            }
        }
        Ok(())
    }

    /// Claims and launches one task of `queue`. Returns whether to go on with the round.
    async fn claim_one(&mut self, queue: &Queue, round: &mut Round) -> Result<bool, StoreError> {
        let claimed =
            self.store.claim_task(queue, &self.name).await.inspect_err(|_| self.uncertain = true)?;
        let Some(claim) = claimed else {
            round.nothing_there();
            return Ok(true);
        };
        tracing::debug!(task = %claim.task, queue = queue.display_name(), "claimed");
        round.claimed();
        let Err((claim, error)) = self.launcher.launch(claim) else { return Ok(true) };
        let pause = self.launches.failed(Instant::now());
        tracing::error!(
            %error, task = %claim.task, program = %self.launcher.program(), retry_in_s = pause.as_secs(),
            "cannot start a runner; the task is given back"
        );
        // Should this fail, the claim is one that nobody launches.
        self.uncertain = true;
        self.store.unclaim_task(&claim).await?;
        self.uncertain = false;
        Ok(false)
    }

    /// The queues that this node serves.
    async fn queues(&mut self) -> Result<Vec<Queue>, StoreError> {
        let mut queues = self.store.list_queues().await?;
        self.availability.keep_only(&queues);
        match (&self.config.activequeues, &self.config.ignorequeues) {
            (Some(active), _) => queues.retain(|queue| active.0.contains(&queue.id)),
            (None, Some(ignored)) => queues.retain(|queue| !ignored.0.contains(&queue.id)),
            (None, None) => {}
        }
        queues.retain(|queue| self.availability.serves(&self.config, queue));
        queues.retain(|queue| queue.thread_limit() > 0);
        Ok(queues)
    }

    /// Finds out what an ended runner left behind.
    async fn settle(&mut self, exit: &Exit) -> Result<(), StoreError> {
        let (task, how) = (exit.claim.task, describe(exit));
        match &exit.status {
            Ok(status) if status.success() => {
                self.launches.worked();
                return Ok(());
            }
            Ok(status) if status.code() == Some(NOT_CLAIMED) => return Ok(()),
            Ok(_) | Err(_) => {}
        }
        if self.store.unclaim_task(&exit.claim).await? == Unclaimed::Queued {
            let pause = self.launches.failed(Instant::now());
            tracing::error!(
                %task, retry_in_s = pause.as_secs(), "a runner ended without starting its task ({how}); \
                 the task is given back"
            );
            return Ok(());
        }
        // It got as far as its task, so launching works.
        self.launches.worked();
        if !self.launcher.has_another(task) && self.store.orphan_task(task, &self.name).await? {
            tracing::error!(%task, "a runner died while its task ran ({how}): orphaned");
        }
        Ok(())
    }

    /// Gives back every task that no runner has started. A runner that starts now finds its claim gone.
    async fn drain(self, lifecycle: &Lifecycle) {
        tracing::info!(running = self.launcher.tasks().len(), "draining: claiming nothing more");
        let deadline = Instant::now() + Duration::from_secs(10);
        loop {
            let error = match self.store.unclaim_all(&self.name, &[]).await {
                Ok(tasks) => {
                    tracing::info!(given_back = tasks, "ended; running tasks go on by themselves");
                    return;
                }
                Err(error) => error,
            };
            if Instant::now() > deadline || lifecycle.is_ending() {
                tracing::error!(%error, "cannot give back claimed tasks; they become orphans in five minutes");
                return;
            }
            tracing::warn!(%error, "cannot give back claimed tasks, trying again");
            tokio::select! {
                () = tokio::time::sleep(INTERVAL) => {}
                () = lifecycle.ending() => {}
            }
        }
    }
}

fn describe(exit: &Exit) -> String {
    match &exit.status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit status {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => "it vanished".to_owned(),
        },
        Err(error) => format!("waiting for it failed: {error}"),
    }
}
