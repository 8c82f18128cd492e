//! Claiming: which tasks this node takes, and that it never takes more than the limits allow.
//!
//! A claim needs a free place in its queue, and one place is given once (`Store::claim_task`). Before a claimed task
//! is launched, the claim is confirmed: the queue's limit is read again and what is claimed or running is
//! counted. So of all tasks that run together, the one claimed last has seen all others.

use std::time::Instant;

use disbatch_core::lifecycle::Lifecycle;
use disbatch_core::model::{Queue, QueueId};
use disbatch_core::store::StoreError;
use disbatch_core::task::{Claim, Claimant, Claimed};

use crate::node::Node;
use crate::schedule::{Demand, Round};

/// So many claims are confirmed together.
const BATCH: usize = 8;

impl Node {
    /// Claims as many tasks as the limits allow and starts a runner for each.
    pub(crate) async fn claim_and_launch(&mut self, lifecycle: &Lifecycle) -> Result<(), StoreError> {
        let queues = self.queues().await?;
        if queues.is_empty() || self.maxthreads == Some(0) {
            return Ok(());
        }
        let mut round = self.round(&queues).await?;
        let mut more = true;
        while more && !lifecycle.is_draining() {
            let batch = self.claim_batch(&queues, &mut round).await?;
            more = batch.len() == BATCH;
            for claim in self.confirm(batch, &mut round).await? {
                // A node that cannot start one runner does not try the others.
                if self.launches.left(Instant::now()).is_some() {
                    self.give_back(claim, "no runner could be started").await?;
                    more = false;
                } else {
                    more &= self.launch(claim).await?;
                }
            }
        }
        Ok(())
    }

    /// What may be claimed, as far as it is known now.
    async fn round(&mut self, queues: &[Queue]) -> Result<Round, StoreError> {
        let ids: Vec<QueueId> = queues.iter().map(|queue| queue.id).collect();
        let mut places = self.store.places_by_queue(&ids).await?;
        let demand = |queue: &Queue| {
            let taken = places.remove(&queue.id).unwrap_or_default();
            Demand {
                queue: queue.id,
                threads: queue.claim_limit(),
                running: taken.running,
                taken: taken.slots,
            }
        };
        let demands: Vec<Demand> = queues.iter().map(demand).collect();
        let on_node = match self.maxthreads {
            Some(_) => self.store.running_on_node(&self.name).await?,
            None => 0,
        };
        self.turn = self.turn.wrapping_add(1);
        Ok(Round::new(self.maxthreads, on_node, &demands, self.turn, self.spread))
    }

    /// Claims up to a batch of tasks. All of them come back, to be confirmed.
    async fn claim_batch(&mut self, queues: &[Queue], round: &mut Round) -> Result<Vec<Claim>, StoreError> {
        let claimant = Claimant {
            node: self.name.clone(),
            instance: self.instance.clone(),
            lease: self.launcher.knows_leases().then(|| self.config.lease()),
        };
        let mut batch = Vec::new();
        while batch.len() < BATCH
            && let Some((id, slot)) = round.next()
        {
            let Some(queue) = queues.iter().find(|queue| queue.id == id) else { break };
            let claimed = self.store.claim_task(queue, &claimant, slot).await;
            match claimed.inspect_err(|_| self.uncertain = true)? {
                Claimed::Task(claim) => {
                    tracing::debug!(task = %claim.task, queue = queue.display_name(), slot, "claimed");
                    round.claimed();
                    batch.push(claim);
                }
                Claimed::NothingThere => round.nothing_there(),
                Claimed::SlotTaken => round.place_taken(),
            }
        }
        Ok(batch)
    }

    /// Looks back at claims and gives back what is more than the limit: it was lowered meanwhile, the queue
    /// paused, or a program that does not know of places has claimed at the same time.
    async fn confirm(&mut self, mut batch: Vec<Claim>, round: &mut Round) -> Result<Vec<Claim>, StoreError> {
        if batch.is_empty() {
            return Ok(batch);
        }
        let mut ids: Vec<QueueId> = batch.iter().map(|claim| claim.queue).collect();
        ids.sort_unstable_by_key(|id| id.0);
        ids.dedup();
        // Whatever fails from here on, these claims are given back with the next look.
        self.uncertain = true;
        let limits = self.store.limits_by_queue(&ids).await?;
        for id in ids {
            let over = limits.get(&id).map_or(u64::MAX, |limit| limit.running.saturating_sub(limit.threads));
            if over == 0 {
                continue;
            }
            round.leave(id);
            for _ in 0..over {
                let Some(last) = batch.iter().rposition(|claim| claim.queue == id) else { break };
                let claim = batch.remove(last);
                tracing::info!(task = %claim.task, "the queue is paused, or its limit reached: claim given back");
                self.store.unclaim_task(&claim, "its queue was paused, or its limit reached").await?;
            }
        }
        self.uncertain = false;
        Ok(batch)
    }

    /// Starts a runner for a confirmed claim. Returns whether to go on claiming.
    async fn launch(&mut self, claim: Claim) -> Result<bool, StoreError> {
        let Err((claim, error)) = self.launcher.launch(claim) else { return Ok(true) };
        let pause = self.launches.failed(Instant::now());
        tracing::error!(
            %error, task = %claim.task, program = %self.launcher.program(), retry_in_s = pause.as_secs(),
            "cannot start a runner; the task is given back"
        );
        self.give_back(claim, "no runner could be started").await?;
        Ok(false)
    }

    async fn give_back(&mut self, claim: Claim, why: &str) -> Result<(), StoreError> {
        // Should this fail, the claim is one that nobody launches.
        self.uncertain = true;
        self.store.unclaim_task(&claim, why).await?;
        self.uncertain = false;
        Ok(())
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
        queues.retain(|queue| queue.claim_limit() > 0);
        Ok(queues)
    }
}
