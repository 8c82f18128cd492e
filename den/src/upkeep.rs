//! What time brings about, for whoever looks first: tasks that are due, deadlines, leases that have run out, nodes
//! that are silent. One operation tells whether there is any of it, and mostly there is not.

use std::process::Stdio;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bson::{Bson, DateTime};
use disbatch_core::clock::boot_time;
use disbatch_core::config::Hook;
use disbatch_core::inbox::UNNOTICED;
use disbatch_core::metrics::labels::Worker;
use disbatch_core::model::{Canary, NodeSelector, Queue, QueueId, Shadow, Task};
use disbatch_core::node::Death;
use disbatch_core::store::{Store, StoreError};
use disbatch_core::task::{Evidence, Outlook, Question, is_detached};
use disbatch_core::wake::Listener;
use futures::StreamExt;
use tokio::sync::Semaphore;

use crate::chores::measured;
use crate::launch::program;
use crate::node::Node;
use crate::pace::is_due;

impl Node {
    /// Looks around and does what there is to do. Returns whether there is something to claim.
    pub(crate) async fn upkeep(&mut self, may_claim: bool) -> Result<bool, StoreError> {
        let claim_from = if may_claim { self.served().await? } else { Vec::new() };
        let has_places = self.capacity.maxthreads != Some(0);
        let ids: Vec<QueueId> = claim_from.iter().filter(|_| has_places).map(|queue| queue.id).collect();
        let hints = self.pace.situation.is_somebody_told();
        let began = Instant::now();
        let for_all = self.capacity.sharing.looks_for_all(&self.name, self.hour(), began);
        let question = Question {
            node: &self.name,
            lease: self.config.lease(),
            occupied: self.pace.situation.occupied || self.runners.launcher.running() > 0,
            for_all,
            claim_from: &ids,
            queues: self.queues.are_old(Instant::now(), hints),
            peers: self.capacity.sharing.wants_peers(Instant::now()),
            holder: Some(self.capacity.holdings.holder()).filter(|_| !self.capacity.watch.is_forbidden()),
        };
        let mut outlook = self.store.look_around(&question).await?;
        if for_all {
            self.capacity.sharing.looked_for_all(began);
        }
        self.learn(&mut outlook, began, &claim_from);
        let mut again = self.sweep(&outlook).await?;
        self.look_at_slots().await?;
        let took_back = outlook.held_by_others && self.take_back_slots(outlook.claimable).await?;
        self.look_at_canaries().await?;
        self.refresh_workers().await?;
        if let Some(schemas) = self.availability.schemas.take() {
            self.clockwork.knows(schemas);
        }
        again |= self.wake_chores(&outlook, hints);
        again |= self.judge(&outlook).await?;
        if self.supervision.is_inspection_due() {
            if outlook.occupied {
                self.uncover_own().await?;
            }
            if for_all {
                self.lease_unowned().await?;
            }
            self.remove_left_folders().await?;
            self.inspect_unleased().await?;
            if self.supervision.may_judge() {
                self.look_after_deaths().await?;
            }
        }
        if outlook.claimable {
            self.wake_dry();
        }
        self.capacity.inherited = match self.capacity.maxthreads {
            Some(_) if outlook.occupied => {
                // One of ours may have ended without our having heard of it: so they are left out by name.
                self.store.running_on_node(&self.name, &self.runners.launcher.tasks()).await?
            }
            _ => 0,
        };
        let situation = &mut self.pace.situation;
        situation.occupied = outlook.occupied;
        situation.waiting = outlook.claimable;
        self.pace.looked(Instant::now(), outlook.next, again);
        Ok(outlook.claimable || took_back)
    }

    /// Has those next to the loop look after what was found. `hints`: changes are told of. Returns whether there may soon be more.
    fn wake_chores(&self, outlook: &Outlook, hints: bool) -> bool {
        if outlook.gates {
            self.hints.gates_found.notify_one();
        }
        // Where hints come, somebody follows them.
        if outlook.inbox.is_some_and(|age| !hints || age >= UNNOTICED) {
            self.hints.inbox.notify_one();
        }
        if outlook.arrays {
            self.clockwork.arrays.notify_one();
        }
        let fires = (outlook.schedules || outlook.unsettled) && self.clockwork.look();
        // When the next time of a schedule comes is known only when it has fired.
        fires && outlook.schedules
    }

    /// The hour since 1970, in each of which nodes have another order.
    fn hour(&self) -> i64 {
        self.store.now().timestamp_millis() / 3_600_000
    }

    /// Reads the plugins that the database defines again, if they may have changed.
    async fn refresh_workers(&mut self) -> Result<(), StoreError> {
        if self.workers.refresh(&self.store).await? {
            // Runners are told of them with their tasks.
            self.end_handover(|_| true);
            self.availability.define(self.workers.all());
        }
        Ok(())
    }

    /// The queues that this node would claim from.
    pub(crate) async fn served(&mut self) -> Result<Vec<Queue>, StoreError> {
        let mut queues = self.queues.get(&self.store).await?.to_vec();
        let have_shadows = queues.iter().any(|queue| Shadow::of(queue).is_some());
        self.clockwork.shadows.store(have_shadows, Ordering::Relaxed);
        self.refresh_workers().await?;
        self.availability.keep_only(&queues);
        self.ahead.keep_only(&queues);
        if self.capacity.keep_only(&queues) {
            self.pace.hurry();
        }
        match (&self.config.activequeues, &self.config.ignorequeues) {
            (Some(active), _) => queues.retain(|queue| active.contains(&queue.id)),
            (None, Some(ignored)) => queues.retain(|queue| !ignored.contains(&queue.id)),
            (None, None) => {}
        }
        let is_admitted = |queue: &Queue| {
            NodeSelector::of(queue).is_none_or(|nodes| nodes.admits(self.name.as_str(), &self.config.labels))
        };
        queues.retain(is_admitted);
        queues.retain(|queue| self.availability.serves(&self.config, queue));
        queues.retain(|queue| queue.claim_limit() > 0);
        Ok(queues)
    }

    /// Looks now and then whether slots keep the limits by themselves.
    async fn look_at_slots(&mut self) -> Result<(), StoreError> {
        if !self.capacity.limits.want_look(Instant::now()) {
            return Ok(());
        }
        // Who may not look cannot know.
        let kept = StoreError::unless_forbidden(self.store.keeps_slots().await)?.unwrap_or(false);
        self.capacity.limits.looked(kept && !self.capacity.watch.is_forbidden(), Instant::now());
        Ok(())
    }

    /// Takes note of which nodes and queues there are, as far as that was asked for at `began`. `served`: what this node would claim from.
    fn learn(&mut self, outlook: &mut Outlook, began: Instant, served: &[Queue]) {
        if let Some(peers) = outlook.peers.take() {
            self.capacity.sharing.set_peers(peers, began);
            self.capacity.limits.met(outlook.strangers);
            if outlook.strangers {
                self.capacity.met_strangers();
            }
        }
        let is_prompt = self.capacity.sharing.is_prompt(&self.name, served, self.hour());
        self.hints.needs_at_once(Listener::Node, is_prompt);
        if let Some(queues) = &outlook.queues {
            self.queues.set(queues.clone(), began);
            self.workers.marked(outlook.workers.clone());
        }
    }

    /// What any DEN does at once: deferred tasks that are due, deadlines, claims whose lease has run out. Returns
    /// whether tasks were due: there may be more behind them.
    async fn sweep(&self, outlook: &Outlook) -> Result<bool, StoreError> {
        let mut again = false;
        if outlook.stale_claims {
            let orphans = self.store.orphan_stale_claims(&self.name).await?;
            if orphans > 0 {
                tracing::warn!(tasks = orphans, "tasks were claimed and never started: orphaned");
            }
        }
        if outlook.due {
            let swept = measured(&self.store, Worker::Sweep, self.store.sweep_tasks()).await?;
            if swept.given_back > 0 {
                tracing::warn!(
                    tasks = swept.given_back,
                    "claims ran out before a runner started: given back"
                );
            }
            if swept.overdue > 0 {
                tracing::warn!(tasks = swept.overdue, "tasks were not run before their deadline: cancelled");
            }
            if swept.blocked > 0 {
                self.hints.gates_found.notify_one();
            }
            again = swept.due + swept.given_back + swept.overdue > 0;
        }
        if outlook.stale_slots {
            self.store.clear_stale_slots().await?;
        }
        Ok(again)
    }

    /// Dead nodes, and runs whose lease has run out. Returns whether there may be more of them.
    async fn judge(&mut self, outlook: &Outlook) -> Result<bool, StoreError> {
        if !self.supervision.may_judge() || !(outlook.silent_nodes || outlook.lapsed) {
            return Ok(false);
        }
        // The last heartbeat may have been before its clock jumped.
        let asked = boot_time();
        let now = self.store.server_time().await?;
        if self.supervision.server_said(now, asked) {
            return Ok(false);
        }
        if outlook.silent_nodes {
            for node in self.store.mark_dead_nodes(now).await? {
                tracing::warn!(node, "the node has been silent for longer than its lease: dead");
            }
            self.look_after_deaths().await?;
        }
        if !outlook.lapsed {
            return Ok(false);
        }
        let mut expired = self.store.expired_runs().await?;
        // The clock may have jumped since.
        expired.retain(|task| lease_of(task).is_none_or(|until| until < now));
        let (of_services, expired): (Vec<Task>, Vec<Task>) = expired.into_iter().partition(is_detached);
        end_lapsed(&self.store, of_services);
        if expired.is_empty() {
            return Ok(false);
        }
        let living = self.store.living_nodes().await?;
        let mut again = false;
        for task in &expired {
            let node = task.node.as_ref().and_then(Bson::as_str).unwrap_or_default();
            if node == self.name.as_str() {
                again |= !self.end_expired(task).await?;
            } else if !living.iter().any(|alive| alive.as_str() == node) {
                let why = match node {
                    "" => "it was in no node's name, and its lease is over".to_owned(),
                    node => format!(
                        "its runner on {node} and that node have been silent for longer than their lease"
                    ),
                };
                self.bury(task, Evidence::LeaseExpired, &why).await?;
            }
            // However many there are, the heartbeat must not starve.
            if self.pace.wants_beat(Instant::now()) {
                return Ok(true);
            }
        }
        Ok(again)
    }
}

/// Until when the runner of a task counts as alive. `None`: what it has is no time.
fn lease_of(task: &Task) -> Option<DateTime> {
    task.rest.get_datetime("lease_until").ok().copied()
}

/// Canaries are looked at so often. What runners and DENs have counted is written every five seconds.
const CANARIES_EVERY: Duration = Duration::from_secs(5);

/// Somebody may run `disbatch create-users`, so it is tried again after so long.
const FORBIDDEN: Duration = Duration::from_secs(60);

impl Node {
    /// Takes back the canaries of queues that are worse, if it is time to look. Most nodes know of no queue that has one, and ask nothing.
    async fn look_at_canaries(&mut self) -> Result<(), StoreError> {
        let tried: Vec<Queue> =
            self.queues.known().iter().filter(|queue| Canary::of(queue).is_some()).cloned().collect();
        if tried.is_empty() || !is_due(&mut self.judged_canaries, CANARIES_EVERY, Instant::now()) {
            return Ok(());
        }
        for queue in tried {
            match self.store.judge_canary(&self.name, &queue).await {
                Ok(None) => {}
                Ok(Some(sides)) => {
                    self.queues.changed();
                    tracing::warn!(
                        queue = queue.display_name(),
                        failed = sides.canary.failed,
                        of = sides.canary.ended,
                        others_failed = sides.others.failed,
                        others_of = sides.others.ended,
                        "the canary of the queue is worse: its tasks are run by the other version again"
                    );
                }
                Err(error) if error.is_forbidden() => {
                    // As if it had been done so much later.
                    self.judged_canaries = Some(Instant::now() + (FORBIDDEN - CANARIES_EVERY));
                    tracing::error!(
                        %error, queue = queue.display_name(),
                        "cannot take the canary of the queue back; `disbatch create-users` gives the right to"
                    );
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// After so long the command `on_dead_node` is killed.
const PATIENCE: Duration = Duration::from_secs(60);

impl Node {
    /// Runs the command `on_dead_node` of the configuration for each death that nobody looks after yet: once for each, by one DEN, and beside
    /// all else that the node does.
    async fn look_after_deaths(&self) -> Result<(), StoreError> {
        let Some(hook) = &self.config.on_dead_node else { return Ok(()) };
        for death in self.store.take_deaths(&self.name).await? {
            tokio::spawn(look_after(self.store.clone(), hook.clone(), death));
        }
        Ok(())
    }
}

async fn look_after(store: Store, hook: Hook, death: Death) {
    let outcome = match tokio::time::timeout(PATIENCE, run_hook(&hook, &death)).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => format!("cannot be started: {error}"),
        Err(_) => format!("killed after {} s", PATIENCE.as_secs()),
    };
    tracing::warn!(node = death.node, program = hook.program, outcome, "on_dead_node has run");
    if let Err(error) = store.note_hook(&death, &outcome).await {
        tracing::warn!(%error, node = death.node, "cannot note what came of on_dead_node");
    }
}

async fn run_hook(hook: &Hook, death: &Death) -> std::io::Result<String> {
    let addresses: Vec<&str> = death.addresses.all().collect();
    let status = program(&hook.program)
        .args(&hook.arguments)
        .env("DISBATCH_NODE", &death.node)
        .env("DISBATCH_INSTANCE", &death.instance)
        .env("DISBATCH_ADDRESSES", addresses.join(" "))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .status()
        .await?;
    Ok(status.to_string())
}

/// So many tasks of web services are ended at once.
const AT_ONCE: usize = 4;

/// One round at a time: what it does not come to is found again.
static ROUND: Semaphore = Semaphore::const_new(1);

/// Ends tasks that web services work on and that no runner looks after, unless others are being ended: nothing was heard of the service in
/// time, or whoever had noted the end of the task has died before it was made.
///
/// Any DEN does. It does so next to the node's loop, as what a service has logged may be long.
fn end_lapsed(store: &Store, tasks: Vec<Task>) {
    if tasks.is_empty() {
        return;
    }
    let Ok(round) = ROUND.try_acquire() else { return };
    let store = store.clone();
    tokio::spawn(async move {
        let one = |task: Task| end_one_lapsed(&store, task);
        futures::stream::iter(tasks).for_each_concurrent(AT_ONCE, one).await;
        drop(round);
    });
}

async fn end_one_lapsed(store: &Store, task: Task) {
    match store.end_lapsed_external(&task).await {
        Ok(true) => tracing::warn!(task = %task.id, "a task of a web service had no time left: it is ended"),
        // It was heard of after all, or another DEN does it.
        Ok(false) => {}
        Err(error) => tracing::warn!(task = %task.id, %error, "cannot end a task of a web service yet"),
    }
}
