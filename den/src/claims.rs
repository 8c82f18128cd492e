//! Claiming: which tasks this node takes, and that it never takes more than the limits allow.
//!
//! A claim needs a slot of its queue that this node holds, and each has one holder ([`disbatch_core::slots`]). Where that does not keep the limit by itself
//! (`limits.rs`), the claims are confirmed before their tasks are launched: the queue's limit is read again and what is claimed or running
//! is counted. So of all tasks that run together, the one claimed last has seen all others.
//!
//! What is known of the slots of others comes from the last look (`capacity.rs`).
//!
//! How many tasks may be started at all is looked at before a claim (`starts.rs`), and so is how many of them other nodes
//! should have (`sharing.rs`).

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bson::RawDocumentBuf;
use disbatch_core::clock::boot_time;
use disbatch_core::fair::Stay;
use disbatch_core::lifecycle::Lifecycle;
use disbatch_core::metrics::labels::Round as ClaimRound;
use disbatch_core::model::{Queue, QueueId, Task, TaskId};
use disbatch_core::queue::Look;
use disbatch_core::schedules::ForRun;
use disbatch_core::store::StoreError;
use disbatch_core::task::{Batch, Claim, Claimant, Slot, Unclaimed};

use crate::capacity::Sight;
use crate::launch::TaskContext;
use crate::limits::{HEARD_WITHIN, TOO_OLD};
use crate::node::Node;
use crate::runners::{Held, Promised};
use crate::schedule::{Demand, Round};

/// What the schedule of a claimed task knows of earlier runs, which goes to the runner together with the task: nothing if it has none or that
/// is gone; or why it cannot be read.
pub type OfSchedule = Result<Option<ForRun>, String>;

const BATCH: usize = 64;

/// A round goes on for so long, however late the heartbeat is: else a slow database would make it one of a single queue.
const ROUND_TAKES: Duration = Duration::from_millis(500);

/// So few queues are asked one by one whether they have something again.
const FEW: usize = 8;

impl Node {
    pub(crate) async fn claim_and_launch(&mut self, lifecycle: &Lifecycle) -> Result<(), StoreError> {
        if self.capacity.maxthreads == Some(0) {
            return Ok(());
        }
        if self.capacity.holdings.fence().is_none() && !self.capacity.watch.is_forbidden() {
            // It has just become another holder: the next heartbeat tells it the time.
            return Ok(());
        }
        self.resolve_doubts().await?;
        self.refresh().await?;
        let mut queues = self.served().await?;
        let now = Instant::now();
        self.revive_queues(now);
        queues.retain(|queue| !self.dry.contains(&queue.id));
        let is_gated = !queues.is_empty();
        queues.retain(|queue| self.capacity.starts.room_of(queue.id, now) > 0);
        self.capacity.sharing.keep_only(|id| queues.iter().any(|queue| queue.id == id), now);
        if queues.is_empty() || self.capacity.starts.room(now) == 0 {
            if is_gated {
                self.store.metrics().claim_rounds.of(ClaimRound::Gated).inc();
            }
            return Ok(());
        }
        self.forget_grants();
        self.look_at_others(queues.iter().map(|queue| queue.id).collect()).await?;
        let mut round = self.capacity.round(&queues, &self.runners.launcher);
        let mut result = match self.leave_out_dry(&mut round).await? {
            true => ClaimRound::Empty,
            false => ClaimRound::Gated,
        };
        let mut more = true;
        while more && !lifecycle.is_draining() {
            let asked = boot_time();
            let batch = self.measured_batch(&queues, &mut round, &mut result).await?;
            more = !batch.is_empty();
            let mut confirmed = self.confirm(batch, &mut round).await?;
            // Those first that were started for a runner: for the others any will do.
            confirmed.sort_by_key(|claim| claim.runner().is_none());
            let mut schedules = self.schedules_of(&confirmed).await?;
            for claim in confirmed {
                if claim.lacks_locks() {
                    self.block(claim).await?;
                    continue;
                }
                let schedule = schedules.remove(&claim.task).unwrap_or(Ok(None));
                // A node that cannot start one runner does not try the others.
                if self.runners.launches.left(Instant::now()).is_some() {
                    self.give_back(claim, "no runner could be started").await?;
                    more = false;
                } else {
                    more &= self.launch((claim, schedule), &queues, asked).await?;
                }
            }
            // However many queues there are, the heartbeat must not starve: it comes next, and then those whose turn is to come.
            if self.is_round_over() {
                self.capacity.passed_over = round.to_come();
                self.round_goes_on = !self.capacity.passed_over.is_empty();
                more = false;
            }
        }
        self.store.metrics().claim_rounds.of(result).inc();
        Ok(())
    }

    fn is_round_over(&self) -> bool {
        let now = Instant::now();
        self.capacity.round_begun.is_none_or(|begun| now >= begun + ROUND_TAKES) && self.pace.wants_beat(now)
    }

    /// Queues that had nothing may have something now, and nobody knows which.
    pub(crate) fn wake_dry(&mut self) {
        self.once_dry.extend(self.dry.drain());
    }

    /// Asks those queues of a round together that had nothing when they were asked last, where these are many, and leaves out what has nothing still: to ask one
    /// alone takes a slot first. Returns whether it has asked.
    async fn leave_out_dry(&mut self, round: &mut Round) -> Result<bool, StoreError> {
        let mut asked: Vec<QueueId> = round.to_come().into_iter().collect();
        asked.retain(|id| self.once_dry.remove(id));
        if asked.len() <= FEW {
            return Ok(false);
        }
        let filled = self.store.queues_with_tasks(&asked).await?;
        for id in asked.into_iter().filter(|id| !filled.contains(id)) {
            self.dry.insert(id);
            round.leave(id);
        }
        Ok(true)
    }

    /// Claims up to a batch of tasks, and notes what came of it. `result` is that of the round so far.
    async fn measured_batch(
        &mut self,
        queues: &[Queue],
        round: &mut Round,
        result: &mut ClaimRound,
    ) -> Result<Vec<Claim>, StoreError> {
        let metrics = Arc::clone(self.store.metrics());
        let (began, lost) = (Instant::now(), metrics.claim_lost.get());
        let claimed = self.claim_batch(queues, round).await;
        let (batch, has_asked) = claimed.inspect_err(|_| self.runners.uncertain = true)?;
        if has_asked {
            metrics.claim_seconds.observe_time(began.elapsed());
        }
        if !batch.is_empty() {
            metrics.claim_tasks.observe_count(batch.len());
        }
        *result = match *result {
            ClaimRound::Tasks => ClaimRound::Tasks,
            _ if !batch.is_empty() => ClaimRound::Tasks,
            _ if metrics.claim_lost.get() > lost => ClaimRound::Lost,
            ClaimRound::Gated if has_asked => ClaimRound::Empty,
            before => before,
        };
        Ok(batch)
    }

    /// Reads queues again before they are so old that claims would have to be counted, and at the same time what others have.
    async fn refresh(&mut self) -> Result<(), StoreError> {
        let now = Instant::now();
        if self.queues.read_at().is_none_or(|read| now.saturating_duration_since(read) < HEARD_WITHIN / 2) {
            return Ok(());
        }
        let waiting = self.queues.known().iter().map(|queue| queue.id).filter(|id| !self.dry.contains(id));
        let unknown: Vec<QueueId> = waiting.filter(|id| !self.capacity.is_known(*id, now)).collect();
        let capacity = &mut self.capacity;
        let looked = async {
            if unknown.is_empty() { Ok(Sight::default()) } else { capacity.look(&self.store, unknown).await }
        };
        let (queues, sight) = futures::try_join!(self.store.list_queues(), looked)?;
        self.queues.set(queues, now);
        self.capacity.note(&sight, (&self.runners.launcher, &[]), now);
        Ok(())
    }

    pub(crate) async fn look_at_others(&mut self, mut queues: Vec<QueueId>) -> Result<(), StoreError> {
        let now = Instant::now();
        queues.retain(|id| !self.capacity.is_known(*id, now));
        if !queues.is_empty() {
            let seen = self.capacity.look(&self.store, queues).await?;
            self.capacity.note(&seen, (&self.runners.launcher, &[]), now);
        }
        Ok(())
    }

    /// Claims up to a batch of tasks. All of them come back, to be confirmed, and whether there was anything to be asked for.
    async fn claim_batch(
        &mut self,
        queues: &[Queue],
        round: &mut Round,
    ) -> Result<(Vec<Claim>, bool), StoreError> {
        let (mut batch, mut has_asked, mut is_first) = (Vec::new(), false, true);
        let mut promised = Promised::default();
        while batch.len() < BATCH
            && (std::mem::take(&mut is_first) || !self.is_round_over())
            && let Some((id, mut slots)) = round.next_batch(BATCH - batch.len())
        {
            let Some(queue) = queues.iter().find(|queue| queue.id == id) else { break };
            let granted = self.granted(queue, slots.len()).await?;
            if let Some(granted) = &granted {
                slots.truncate(usize::try_from(granted.starts).unwrap_or(usize::MAX));
            }
            if slots.is_empty() {
                self.noted(id, &[], granted).await;
                round.claimed(0, false);
                continue;
            }
            let lanes = self.availability.lanes_of(queue);
            let ready = match self.capacity.watch.is_slow(Instant::now()) {
                true => Vec::new(),
                false => self.runners.launcher.ready(lanes.of_any(), &promised),
            };
            let (mut slots, rest) = with_runners(slots, &ready, self.knows_leases(queue));
            round.put_back(&rest);
            let asked = slots.len();
            has_asked |= asked > 0;
            let refused = self.hold(id, &mut slots).await?;
            let claimant = self.claimant(queue);
            let started = self.start_ahead(queue, &claimant, &mut slots).await;
            let started = started.inspect_err(|error| self.note_failure(error))?;
            let mut claimed = Batch::default();
            if !slots.is_empty() {
                self.end_handover(|of| of.id == id);
                self.ahead.in_hand(id, self.runners.launcher.handover().under_way());
                let (running, _) = self.runners.launcher.places(id);
                self.capacity.divide(&mut self.ahead, id, running);
                let taken = self.store.take_tasks(queue, &claimant, &slots, &mut self.ahead).await;
                claimed = taken.inspect_err(|error| self.note_failure(error))?;
            }
            claimed.claims.splice(..0, started);
            tracing::debug!(queue = queue.display_name(), tasks = claimed.claims.len(), "claimed");
            self.learn_of(id, &mut claimed, refused);
            self.capacity.starts.comes(id, claimed.next, Instant::now());
            self.capacity.starts.by_groups(claimed.grants);
            claimed.claims.iter().for_each(|claim| promised.add(claim, lanes.of_any()));
            let fruitless = claimed.claims.is_empty() && claimed.taken.is_empty();
            let tasks = claimed.claims.len();
            let may_start_more = self.noted(id, &claimed.claims, granted).await;
            round.claimed(tasks, !claimed.exhausted && !fruitless && may_start_more);
            // They need not wait until it is known whether there are others: least of all those that have started, unless they are
            // counted first.
            let has_begun = claimed.claims.iter().any(|claim| claim.is_started);
            let do_not_wait = tasks < asked || (has_begun && !self.capacity.must_count(id, &self.queues));
            batch.extend(claimed.claims);
            if tasks > 0 && do_not_wait {
                break;
            }
        }
        Ok((batch, has_asked))
    }

    /// Takes note of what a claim has told. `refused`: slots that others hold.
    fn learn_of(&mut self, queue: QueueId, claimed: &mut Batch, refused: Vec<u64>) {
        if claimed.exhausted {
            self.dry.insert(queue);
        }
        if !claimed.taken.is_empty() {
            self.capacity.was_wrong(queue);
        }
        if !refused.is_empty() {
            self.capacity.others.remove(&queue);
            claimed.taken.extend(refused);
        }
    }

    /// Whether the runners of a queue know of leases. One that does not would be taken for dead when that of the claim is over.
    fn knows_leases(&self, queue: &Queue) -> bool {
        self.runners.launcher.knows_leases() && self.availability.runner_of(queue).is_none()
    }

    fn claimant(&self, queue: &Queue) -> Claimant {
        let is_forbidden = self.capacity.watch.is_forbidden();
        Claimant {
            node: self.name.clone(),
            instance: self.instance.clone(),
            lease: self.knows_leases(queue).then(|| self.config.lease()),
            fence: self.capacity.holdings.fence().filter(|_| !is_forbidden),
        }
    }

    /// A claim or a start has failed. Where a majority takes too long, tasks are claimed first and started then.
    fn note_failure(&mut self, error: &StoreError) {
        if matches!(error, StoreError::Unconfirmed { .. }) {
            self.capacity.watch.was_slow(Instant::now());
        }
    }

    /// Where slots alone do not keep the limit (`limits.rs`), looks back at claims and gives back what is more than it: it was lowered
    /// lately, the queue paused, or a program that does not know of slots has claimed at the same time.
    async fn confirm(&mut self, mut batch: Vec<Claim>, round: &mut Round) -> Result<Vec<Claim>, StoreError> {
        let mut ids: Vec<QueueId> = batch.iter().map(|claim| claim.queue).collect();
        ids.sort_unstable_by_key(|id| id.0);
        ids.dedup();
        ids.retain(|id| self.capacity.must_count(*id, &self.queues));
        if ids.is_empty() {
            return Ok(batch);
        }
        // Whatever fails from here on, these claims are given back with the next look.
        self.runners.uncertain = true;
        let asked = Instant::now();
        let looks = self.store.look_at_queues(&ids).await?;
        self.capacity.note_tasks(&looks, (&self.runners.launcher, &batch), asked);
        let is_late = self.queues.read_at().is_none_or(|read| read.elapsed() >= TOO_OLD);
        for id in ids {
            let look = looks.get(&id).filter(|_| !is_late);
            let over = look.map_or(u64::MAX, |look| look.running.saturating_sub(look.queue.claim_limit()));
            let mut back = 0;
            if let Some(look) = look.filter(|look| !look.groups.is_empty()) {
                let of_queue = batch.iter().filter(|claim| claim.queue == id);
                let groups: BTreeSet<String> = of_queue.map(|claim| claim.group().to_owned()).collect();
                for group in groups {
                    let is_its = |claim: &Claim| claim.queue == id && claim.group() == group;
                    back += self.reduce(&mut batch, look.above_limit(&group), is_its).await?;
                }
            }
            if let Some(look) = look {
                let misplaced = |claim: &Claim| claim.queue == id && !may_keep(claim, look);
                let all = batch.iter().filter(|claim| misplaced(claim)).count();
                back += self.reduce(&mut batch, all as u64, misplaced).await?;
            }
            if back > 0 {
                // Else the same groups would have their tasks claimed and given back over and over.
                round.leave(id);
                self.queues.changed();
            }
            let over = over.saturating_sub(back);
            if over == 0 {
                continue;
            }
            round.leave(id);
            self.queues.changed();
            self.reduce(&mut batch, over, |claim| claim.queue == id).await?;
        }
        self.runners.uncertain = false;
        Ok(batch)
    }

    /// Gives back the newest of those claims, so many if there are as many. Returns how many these were.
    async fn reduce(
        &mut self,
        batch: &mut Vec<Claim>,
        over: u64,
        which: impl Fn(&Claim) -> bool,
    ) -> Result<u64, StoreError> {
        let mut back = 0;
        while back < over
            && let Some(last) = batch.iter().rposition(&which)
        {
            let claim = batch.remove(last);
            tracing::info!(task = %claim.task, "the queue is paused, or its limit reached: claim given back");
            let unclaimed =
                self.store.unclaim_task(&claim, "its queue was paused, or its limit reached").await?;
            self.given_back(unclaimed, &claim).await;
            back += 1;
        }
        Ok(back)
    }

    /// Has a runner execute a confirmed claim. Returns whether to go on claiming.
    async fn launch(
        &mut self,
        (claim, schedule): (Claim, OfSchedule),
        queues: &[Queue],
        asked: Duration,
    ) -> Result<bool, StoreError> {
        let queue = queues.iter().find(|queue| queue.id == claim.queue);
        let document =
            queue.and_then(|queue| RawDocumentBuf::try_from(&bson::serialize_to_document(queue).ok()?).ok());
        let document = document.unwrap_or_default();
        let (task, stay) = (claim.task, queue.and_then(|queue| Stay::begin(&claim, queue)));
        let launched = match queue.and_then(|queue| self.availability.runner_of(queue)) {
            Some(plugin) => self.runners.launcher.hand_off(claim, plugin),
            None => {
                let workers = queue.map(|queue| self.workers.of_task(queue, &claim.document));
                let lanes = queue.and_then(|queue| self.availability.lanes_of(queue).of(task).cloned());
                let workers = workers.unwrap_or_default();
                let known = TaskContext { queue: document, schedule, workers, lanes };
                self.runners.launcher.launch(claim, known, asked)
            }
        };
        let Err(refused) = launched else {
            self.runners.launcher.stays(task, stay);
            return Ok(true);
        };
        let (claim, error) = *refused;
        let pause = self.runners.launches.failed(Instant::now());
        tracing::error!(
            %error, task = %claim.task, program = %self.runners.launcher.program(), retry_in_s = pause.as_secs(),
            "cannot start a runner; the task is given back"
        );
        self.give_back(claim, "no runner could be started").await?;
        Ok(false)
    }

    /// Sends a task to its locks that was queued without them, by a program that knows nothing of locks.
    async fn block(&mut self, claim: Claim) -> Result<(), StoreError> {
        // Should this fail, the claim is one that nobody launches.
        self.runners.uncertain = true;
        tracing::warn!(task = %claim.task, "the task was queued without its locks: it waits for them");
        self.store.block_claim(&claim).await?;
        self.runners.doubtful.push(Held::of(&claim));
        self.runners.uncertain = false;
        self.not_started(claim.task).await;
        Ok(())
    }

    pub(crate) async fn give_back(&mut self, claim: Claim, why: &str) -> Result<(), StoreError> {
        // Should this fail, the claim is one that nobody launches.
        self.runners.uncertain = true;
        let back = match self.store.unclaim_task(&claim, why).await {
            Ok(back) => back,
            Err(error) => {
                // If it is started, nothing else tells by then that its runner does not have it.
                self.runners.untold.push(claim);
                return Err(error);
            }
        };
        self.runners.uncertain = false;
        self.given_back(back, &claim).await;
        Ok(())
    }

    /// A claim has come to nothing. If it was not given back, whoever has the task now may have it in the slot.
    pub(crate) async fn given_back(&mut self, back: Unclaimed, claim: &Claim) {
        if back != Unclaimed::Queued {
            self.runners.doubtful.push(Held::of(claim));
        }
        self.put_back(claim.queue);
        self.not_started(claim.task).await;
    }

    pub(crate) fn put_back(&mut self, queue: QueueId) {
        self.ahead.look_back(queue);
        self.dry.remove(&queue);
    }
}

/// Whether a claim has a slot that could still be tried for: others may have chosen theirs without having seen it.
fn may_keep(claim: &Claim, look: &Look) -> bool {
    let Some(slot) = claim.slot() else { return true };
    let taken = look.slots.iter().copied().filter(|taken| *taken != slot).collect();
    let (threads, running) = (look.queue.claim_limit(), look.running.saturating_sub(1));
    Demand { queue: claim.queue, threads, running, taken, starts: u64::MAX }.leaves(slot)
}

/// Gives as many of the places as possible a runner that is ready. Where there is one, none is without: what no runner is ready for comes
/// second, and is claimed after that. A runner that knows nothing of leases starts its task by itself.
fn with_runners(mut slots: Vec<u64>, ready: &[u32], knows_leases: bool) -> (Vec<Slot>, Vec<u64>) {
    if ready.is_empty() || !knows_leases {
        let alone = |number| Slot { number, runner: None };
        return (slots.into_iter().map(alone).collect(), Vec::new());
    }
    let rest = slots.split_off(ready.len().min(slots.len()));
    let with = |(number, pid): (u64, &u32)| Slot { number, runner: Some(*pid) };
    (slots.into_iter().zip(ready.iter().rev()).map(with).collect(), rest)
}

impl Node {
    /// What is known of the schedules of those of these tasks that have one; most have none. What earlier runs have left
    /// is told to a schedule before it is read.
    async fn schedules_of(&mut self, claims: &[Claim]) -> Result<HashMap<TaskId, OfSchedule>, StoreError> {
        let has_one = |claim: &&Claim| matches!(claim.document.get("schedule"), Ok(Some(_)));
        let with_one: Vec<&Claim> = claims.iter().filter(has_one).collect();
        // A configured `task_runner` reads it by itself, if it knows of schedules.
        if with_one.is_empty() || !self.runners.launcher.knows_leases() {
            return Ok(HashMap::new());
        }
        self.runners.uncertain = true;
        let all = futures::future::try_join_all(with_one.into_iter().map(|claim| self.schedule_of(claim)));
        let known = all.await?.into_iter().collect();
        self.runners.uncertain = false;
        Ok(known)
    }

    async fn schedule_of(&self, claim: &Claim) -> Result<(TaskId, OfSchedule), StoreError> {
        let known = match bson::deserialize_from_slice::<Task>(claim.document.as_bytes()) {
            Err(error) => Err(error.to_string()),
            Ok(task) => match self.store.schedule_for_run(&task).await {
                Err(error) if error.is_transient() => return Err(error),
                // The runner says so in the task's standard error, rather than begin it without what it needs.
                read => read.map_err(|error| error.to_string()),
            },
        };
        Ok((claim.task, known))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_without_a_runner_are_left_for_the_next_claim() {
        let with = |number, pid| Slot { number, runner: Some(pid) };
        assert_eq!(with_runners(vec![5, 3, 1], &[7, 8], true), (vec![with(5, 8), with(3, 7)], vec![1]));
        assert_eq!(with_runners(vec![5], &[7, 8], true), (vec![with(5, 8)], vec![]));
        let (alone, left) = with_runners(vec![5, 3], &[], true);
        assert!(alone.iter().all(|slot| slot.runner.is_none()) && alone.len() == 2 && left.is_empty());
        assert_eq!(with_runners(vec![5, 3], &[7], false), (alone, left));
    }
}
