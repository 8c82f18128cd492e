//! What time brings about, for whoever looks first: tasks that are due, deadlines, leases that have run out, nodes
//! that are silent. One operation tells whether there is any of it, and mostly there is not.

use std::time::Instant;

use bson::Bson;
use disbatch_core::inbox::UNNOTICED;
use disbatch_core::metrics::labels::Worker;
use disbatch_core::model::{NodeSelector, Queue, QueueId, Shadow, Task};
use disbatch_core::store::StoreError;
use disbatch_core::task::{Evidence, Outlook, Question, is_detached};
use disbatch_core::wake::Listener;

use crate::chores::measured;
use crate::external;
use crate::node::Node;

impl Node {
    /// Looks around and does what there is to do. Returns whether there is something to claim.
    pub(crate) async fn upkeep(&mut self, may_claim: bool) -> Result<bool, StoreError> {
        let claim_from = if may_claim { self.served().await? } else { Vec::new() };
        let has_places = self.capacity.maxthreads != Some(0);
        let ids: Vec<QueueId> = claim_from.iter().filter(|_| has_places).map(|queue| queue.id).collect();
        let hints = self.pace.situation().is_somebody_told();
        let began = Instant::now();
        let for_all = self.capacity.sharing.looks_for_all(&self.name, self.hour(), began);
        let question = Question {
            node: &self.name,
            lease: self.config.lease(),
            occupied: self.pace.situation().occupied || self.runners.launcher.running() > 0,
            for_all,
            claim_from: &ids,
            queues: self.queues.are_old(Instant::now(), hints),
            peers: self.capacity.sharing.wants_peers(Instant::now()),
        };
        let mut outlook = self.store.look_around(&question).await?;
        if for_all {
            self.capacity.sharing.looked_for_all(began);
        }
        self.learn(&mut outlook, began, &claim_from);
        let mut again = self.sweep(&outlook).await?;
        self.look_at_slots().await?;
        self.look_at_canaries().await?;
        if self.workers.refresh(&self.store).await? {
            // Runners are told of them with their tasks.
            self.end_handover(|_| true);
            self.availability.define(self.workers.all());
        }
        if let Some(schemas) = self.availability.new_schemas() {
            self.clockwork.knows(schemas);
        }
        again |= self.wake_chores(&outlook, hints);
        self.judge(&outlook).await?;
        if self.supervision.is_inspection_due() {
            self.lease_unowned().await?;
            self.remove_left_folders().await?;
            self.inspect_unleased().await?;
            if self.supervision.may_judge() {
                self.look_after_deaths().await?;
            }
        }
        if outlook.claimable {
            self.dry.clear();
        }
        self.capacity.inherited = match self.capacity.maxthreads {
            Some(_) if outlook.occupied => {
                // One of ours may have ended without our having heard of it: so they are left out by name.
                self.store.running_on_node(&self.name, &self.runners.launcher.tasks()).await?
            }
            _ => 0,
        };
        let situation = self.pace.situation();
        situation.occupied = outlook.occupied;
        situation.waiting = outlook.claimable;
        self.pace.looked(Instant::now(), outlook.next, again);
        Ok(outlook.claimable)
    }

    /// Has those next to the loop look after what was found. `hints`: changes are told of. Returns whether there may soon be more.
    fn wake_chores(&self, outlook: &Outlook, hints: bool) -> bool {
        if outlook.gates {
            self.hints.look_at_gates();
        }
        // Where hints come, somebody follows them.
        if outlook.inbox.is_some_and(|age| !hints || age >= UNNOTICED) {
            self.hints.look_at_inbox();
        }
        if outlook.arrays {
            self.clockwork.look_at_arrays();
        }
        let fires = (outlook.schedules || outlook.unsettled) && self.clockwork.look();
        // When the next time of a schedule comes is known only when it has fired.
        fires && outlook.schedules
    }

    /// The hour since 1970, in each of which nodes have another order.
    fn hour(&self) -> i64 {
        self.store.now().timestamp_millis() / 3_600_000
    }

    /// The queues that this node would claim from.
    pub(crate) async fn served(&mut self) -> Result<Vec<Queue>, StoreError> {
        let mut queues = self.queues.get(&self.store).await?.to_vec();
        self.clockwork.knows_of_shadows(queues.iter().any(|queue| Shadow::of(queue).is_some()));
        if self.workers.refresh(&self.store).await? {
            // Runners are told of them with their tasks.
            self.end_handover(|_| true);
            self.availability.define(self.workers.all());
        }
        self.availability.keep_only(&queues);
        self.ahead.keep_only(&queues);
        if self.capacity.keep_only(&queues) {
            self.pace.hurry();
        }
        match (&self.config.activequeues, &self.config.ignorequeues) {
            (Some(active), _) => queues.retain(|queue| active.0.contains(&queue.id)),
            (None, Some(ignored)) => queues.retain(|queue| !ignored.0.contains(&queue.id)),
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
        let kept = match self.store.keeps_slots().await {
            // Who may not look cannot know.
            Err(error) if error.is_forbidden() => false,
            kept => kept?,
        };
        self.capacity.limits.looked(kept, Instant::now());
        Ok(())
    }

    /// Takes note of which nodes and queues there are, as far as that was asked for at `began`. `served`: what this node would claim from.
    fn learn(&mut self, outlook: &mut Outlook, began: Instant, served: &[Queue]) {
        if let Some(peers) = outlook.peers.take() {
            self.capacity.sharing.set_peers(peers, began);
            self.capacity.limits.met(outlook.strangers);
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
                self.hints.look_at_gates();
            }
            again = swept.due + swept.given_back + swept.overdue > 0;
        }
        if outlook.stale_slots {
            self.store.clear_stale_slots().await?;
        }
        Ok(again)
    }

    /// Dead nodes, and runs whose lease has run out.
    async fn judge(&mut self, outlook: &Outlook) -> Result<(), StoreError> {
        if !self.supervision.may_judge() {
            return Ok(());
        }
        if outlook.silent_nodes {
            for node in self.store.mark_dead_nodes().await? {
                tracing::warn!(node, "the node has been silent for longer than its lease: dead");
            }
            self.look_after_deaths().await?;
        }
        if !outlook.lapsed {
            return Ok(());
        }
        let expired = self.store.expired_runs().await?;
        let (of_services, expired): (Vec<Task>, Vec<Task>) = expired.into_iter().partition(is_detached);
        external::end_lapsed(&self.store, of_services);
        if expired.is_empty() {
            return Ok(());
        }
        let living = self.store.living_nodes().await?;
        for task in &expired {
            let node = task.node.as_ref().and_then(Bson::as_str).unwrap_or_default();
            if node == self.name.as_str() {
                self.end_expired(task).await?;
            } else if !living.iter().any(|alive| alive.as_str() == node) {
                let why = match node {
                    "" => "it was in no node's name, and its lease is over".to_owned(),
                    node => format!(
                        "its runner on {node} and that node have been silent for longer than their lease"
                    ),
                };
                self.bury(task, Evidence::LeaseExpired, &why).await?;
            }
        }
        Ok(())
    }
}
