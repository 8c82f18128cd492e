//! Handover: which tasks may have the slots that tasks of this node are about to free. The node puts them here, as long as the limits let
//! it keep what it has; whoever writes the end of a task takes one, and its start is written in the same command
//! ([`disbatch_core::task::Take`]). So a slot that goes from task to task costs one write, and no look.
//!
//! What is here is good for a moment only: a queue that is paused, or whose limit is lowered, has to be heard of. Only the oldest tasks of
//! queues that are taken in their order come here; all else is claimed.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bson::{DateTime, RawDocumentBuf};
use disbatch_core::clock::boot_time;
use disbatch_core::model::{Policy, Queue, QueueId, Sort, TaskId};
use disbatch_core::rate::Rate;
use disbatch_core::store::StoreError;
use disbatch_core::task::{Claim, Claimant, MOST_READ_AHEAD, Queued, Slot, StartedAhead};
use tokio::sync::mpsc;

use crate::holdings::Holdings;
use crate::launch::TaskContext;
use crate::lock;
use crate::node::Node;
use crate::runner::Event;

/// How long after its queue was read a task may be taken to be started. A change of the queue holds for all starts a second later.
const GOOD_FOR: Duration = Duration::from_millis(600);

/// How long its start may take after that, until its runner is told.
const ON_ITS_WAY: Duration = Duration::from_millis(400);

/// Queues are read again after so long while slots are handed over.
const READ_AGAIN: Duration = Duration::from_millis(300);

/// A queue without further tasks is read again after so long.
const AFTER_NOTHING: Duration = Duration::from_millis(50);

/// For each task that runs, so many are ready to take its slot. They are read in quarters.
const EACH: usize = 4;

/// So many are ready at least and at most.
const FEWEST: usize = 64;
const MOST: usize = 512;

/// How fast slots are handed over is known after so many seconds.
const MEASURED_FOR: f64 = 0.5;

/// For so long later tasks that fit beside what a runner has may pass over the first. Then slots are left to that.
const PASSED_FOR: Duration = Duration::from_millis(500);

/// A task that may have the next slot of its queue, and what its runner has to know besides.
#[derive(Debug)]
pub struct Next {
    pub queued: Queued,
    pub known: TaskContext,
}

#[derive(Debug)]
struct Stock {
    /// As it was when they were read: their runners are told of it.
    queue: Queue,
    tasks: VecDeque<Next>,
    /// Since when others pass over the first.
    passed: Option<Instant>,
    /// By [`boot_time`], which goes on while the host sleeps.
    until: Duration,
    /// Fewer than these are to be told of.
    low: usize,
    /// It was told that more is needed, or that the queue is to be read again.
    told: bool,
    /// How many starts were sent since it was asked, and how many of them found their tasks taken.
    tried: usize,
    lost: usize,
    /// Nothing more was there when it was read: not to be read again until then.
    rests: Option<Instant>,
}

#[derive(Debug, Default)]
struct Stand {
    /// So many are ready, and there is room for more.
    ready: usize,
    has_room: bool,
    in_hand: HashSet<TaskId>,
    /// How many starts were tried since the last time, and how many of them were lost.
    met: (usize, usize),
    rests: Option<Instant>,
}

/// Tasks for the next slots. Clones share them.
#[derive(Debug, Clone)]
pub struct Handover {
    queues: Arc<Mutex<HashMap<QueueId, Stock>>>,
    under_way: Arc<Mutex<Vec<TaskId>>>,
    /// How many slots were handed over since that was asked last, and when.
    lately: Arc<Mutex<(u32, Instant)>>,
    pub holdings: Holdings,
    events: mpsc::UnboundedSender<Event>,
}

/// A task that was taken from here, of which it is not known yet whether it was started and its runner told.
#[derive(Debug)]
pub struct UnderWay {
    until: Duration,
    /// Until when it may be started, by the server's clock.
    pub fence: DateTime,
    task: TaskId,
    all: Arc<Mutex<Vec<TaskId>>>,
}

impl UnderWay {
    fn new((until, fence): (Duration, DateTime), task: TaskId, all: &Arc<Mutex<Vec<TaskId>>>) -> Self {
        lock(all).push(task);
        Self { until, fence, task, all: Arc::clone(all) }
    }

    /// Whether its runner may still be told. A start that was long on its way may have been made by settings that do not hold any more.
    pub fn is_in_time(&self) -> bool {
        boot_time() < self.until
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut all = lock(&self.all);
        if let Some(at) = all.iter().position(|task| *task == self.task) {
            all.swap_remove(at);
        }
    }
}

impl Handover {
    /// Nothing yet. Where there are few tasks left is told to `events`.
    pub fn new(events: mpsc::UnboundedSender<Event>, holdings: Holdings) -> Self {
        let lately = Arc::new(Mutex::new((0, Instant::now())));
        Self { queues: Arc::default(), under_way: Arc::default(), lately, holdings, events }
    }

    /// How many slots were handed over a second since this was answered last. `None`: that was just now.
    pub fn rate(&self, now: Instant) -> Option<f64> {
        let mut lately = lock(&self.lately);
        let (slots, since) = *lately;
        let seconds = now.saturating_duration_since(since).as_secs_f64();
        if seconds < MEASURED_FOR {
            return None;
        }
        *lately = (0, now);
        Some(f64::from(slots) / seconds)
    }

    /// The first task that fits and may have the slot `slot` of `queue`, if there is one. Until it is known what became of that, the
    /// returned guard is to be kept.
    pub fn take(
        &self,
        queue: QueueId,
        slot: u64,
        fits: impl Fn(&TaskContext) -> bool,
    ) -> Option<(Next, UnderWay)> {
        let mut queues = lock(&self.queues);
        let stock = queues.get_mut(&queue)?;
        // A slot above a limit that was lowered is given up.
        if boot_time() >= stock.until || slot >= stock.queue.claim_limit() {
            return None;
        }
        let fence = self.holdings.fence_of(queue, slot)?;
        let at = stock.tasks.iter().position(|next| fits(&next.known));
        let at = at.filter(|at| may_take(*at, &mut stock.passed, Instant::now()))?;
        let next = stock.tasks.remove(at)?;
        stock.tried += 1;
        lock(&self.lately).0 += 1;
        let until = stock.until.saturating_add(ON_ITS_WAY);
        let under_way = UnderWay::new((until, fence), next.queued.task, &self.under_way);
        let needs_look =
            stock.tasks.len() < stock.low || boot_time().saturating_add(READ_AGAIN) >= stock.until;
        if needs_look && !std::mem::replace(&mut stock.told, true) {
            let _ending = self.events.send(Event::FewAhead);
        }
        Some((next, under_way))
    }

    pub fn is_under_way(&self) -> bool {
        !lock(&self.under_way).is_empty()
    }

    pub fn under_way(&self) -> HashSet<TaskId> {
        lock(&self.under_way).iter().copied().collect()
    }

    /// One that was taken was somebody else's.
    pub fn lost(&self, queue: QueueId) {
        if let Some(stock) = lock(&self.queues).get_mut(&queue) {
            stock.lost += 1;
        }
    }

    /// Hands nothing of these queues over any more. Returns the tasks that were there.
    fn clear(&self, which: impl Fn(&Queue) -> bool) -> Vec<(QueueId, Vec<TaskId>)> {
        let cleared = lock(&self.queues).extract_if(|_, stock| which(&stock.queue)).collect::<Vec<_>>();
        let tasks = |stock: Stock| stock.tasks.into_iter().map(|next| next.queued.task).collect();
        cleared.into_iter().map(|(id, stock)| (id, tasks(stock))).collect()
    }

    /// What there is to know of a queue before tasks of it are read.
    fn stand(&self, queue: &Queue, (until, low): (Duration, usize)) -> Stand {
        // First: what is taken meanwhile is still ready then, or under way.
        let mut queues = lock(&self.queues);
        let mut in_hand = self.under_way();
        let Some(stock) = queues.get_mut(&queue.id) else {
            return Stand { has_room: true, in_hand, ..Stand::default() };
        };
        let ready = stock.tasks.len();
        let bytes: usize = stock.tasks.iter().map(|next| next.queued.document().as_bytes().len()).sum();
        in_hand.extend(stock.tasks.iter().map(|next| next.queued.task));
        // While those that are ready have so many bytes no more are read.
        (stock.until, stock.low) = (until, if bytes < MOST_READ_AHEAD { low } else { low.min(ready) });
        // Where there are no more it need not be told again.
        stock.told = ready < stock.low;
        Stand {
            ready,
            has_room: ready < stock.low,
            in_hand,
            met: (std::mem::take(&mut stock.tried), std::mem::take(&mut stock.lost)),
            rests: stock.rests,
        }
    }

    fn add(&self, queue: &Queue, tasks: Vec<Next>, (until, low): (Duration, usize)) {
        let rests = tasks.is_empty().then(|| Instant::now() + AFTER_NOTHING);
        let mut queues = lock(&self.queues);
        let stock = queues.entry(queue.id).or_insert_with(|| Stock {
            queue: queue.clone(),
            tasks: VecDeque::new(),
            passed: None,
            until,
            low,
            told: false,
            tried: 0,
            lost: 0,
            rests,
        });
        stock.told &= tasks.is_empty();
        stock.tasks.extend(tasks);
        (stock.until, stock.low, stock.rests) = (until, low, rests);
    }
}

impl Node {
    /// Sees to it that tasks of this node can hand their slots over, as far as they may.
    pub(crate) async fn prepare_handover(&mut self) -> Result<(), StoreError> {
        let running = self.runners.launcher.running_by_queue();
        let may_hand_over = self.runners.launcher.knows_leases()
            && self.capacity.may_keep_slots(self.runners.launcher.running());
        if running.is_empty() || !may_hand_over {
            self.end_handover(|_| true);
            return Ok(());
        }
        let now = Instant::now();
        if self.queues.read_at().is_none_or(|read| now.saturating_duration_since(read) >= READ_AGAIN) {
            self.queues.changed();
        }
        self.look_at_others(running.keys().copied().collect()).await?;
        let served = self.served().await?;
        let age = self.queues.read_at().map_or(GOOD_FOR, |read| read.elapsed());
        let until = boot_time().saturating_add(GOOD_FOR.saturating_sub(age));
        let eligible: Vec<&Queue> = served
            .iter()
            .filter(|queue| running.contains_key(&queue.id) && self.hands_over(queue, &served))
            .collect();
        // Of one that has changed the tasks are read again, with what their runners have to know of it.
        self.end_handover(|queue| !eligible.contains(&queue));
        for queue in eligible {
            let Some(running) = running.get(&queue.id) else { continue };
            let target = (running * EACH).clamp(FEWEST, MOST);
            let low = target - target / 4;
            let stand = self.runners.launcher.handover().stand(queue, (until, low));
            if stand.met.1 > 0 {
                self.ahead.met_others(queue.id, stand.met);
            }
            // Where nobody tells of new tasks, it is here that they are found soon.
            let is_dry = self.pace.situation.hints && self.dry.contains(&queue.id);
            let rests = is_dry || stand.rests.is_some_and(|until| now < until);
            if rests || !stand.has_room {
                continue;
            }
            self.ahead.in_hand(queue.id, stand.in_hand);
            self.capacity.divide(&mut self.ahead, queue.id, *running as u64);
            let tasks = self.store.read_ahead(queue, &mut self.ahead, target - stand.ready).await?;
            let document = bson::serialize_to_document(queue).ok();
            let document = document.and_then(|document| RawDocumentBuf::try_from(&document).ok());
            let Some(document) = document else { continue };
            let lanes = self.availability.lanes_of(queue);
            let next = |queued: Queued| {
                let workers = self.workers.of_task(queue, queued.document());
                let lanes = lanes.of(queued.task).cloned();
                Next {
                    queued,
                    known: TaskContext { queue: document.clone(), schedule: Ok(None), workers, lanes },
                }
            };
            let tasks = tasks.into_iter().map(next).collect();
            self.runners.launcher.handover().add(queue, tasks, (until, low));
        }
        Ok(())
    }

    /// Starts tasks of `queue` that were read ahead, one for each of `slots` that has a runner, as long as there are some: they come before
    /// what would be claimed now. The others of `slots` are left.
    pub(crate) async fn start_ahead(
        &mut self,
        queue: &Queue,
        claimant: &Claimant,
        slots: &mut Vec<Slot>,
    ) -> Result<Vec<Claim>, StoreError> {
        let (mut tasks, mut guards, mut rest) = (Vec::new(), Vec::new(), Vec::new());
        let handover = self.runners.launcher.handover();
        for slot in slots.drain(..) {
            // Its runner has room for whichever it is.
            let next = slot.runner.and_then(|_| handover.take(queue.id, slot.number, |_| true));
            match next {
                Some((Next { queued, .. }, under_way)) => {
                    tasks.push((queued, slot));
                    guards.push(under_way);
                }
                None => rest.push(slot),
            }
        }
        *slots = rest;
        if tasks.is_empty() {
            return Ok(Vec::new());
        }
        let StartedAhead { claims, lost, found_slots_taken } =
            self.store.start_ahead(queue, claimant, tasks).await?;
        lost.iter().for_each(|_| self.runners.launcher.handover().lost(queue.id));
        if found_slots_taken {
            self.capacity.was_wrong(queue.id);
        }
        if !lost.is_empty() {
            self.ahead.put_back(queue.id, lost.into_iter().map(|(task, _)| task).collect());
        }
        if guards.iter().all(UnderWay::is_in_time) {
            return Ok(claims);
        }
        self.runners.untold.extend(claims);
        Ok(Vec::new())
    }

    /// Hands nothing of these queues over any more: their tasks are claimed, each in its turn.
    pub(crate) fn end_handover(&mut self, which: impl Fn(&Queue) -> bool) {
        for (queue, tasks) in self.runners.launcher.handover().clear(which) {
            self.ahead.put_back(queue, tasks);
        }
    }

    fn hands_over(&self, queue: &Queue, served: &[Queue]) -> bool {
        let is_plain = matches!(queue.policy(), Policy::Sorted(Sort::Fifo | Sort::Default))
            && Rate::of_queue(queue).is_none()
            && self.availability.runner_of(queue).is_none();
        let others_wait = self.capacity.maxthreads.is_some()
            && served.iter().any(|other| other.id != queue.id && !self.dry.contains(&other.id));
        let is_slow = self.capacity.watch.is_slow(Instant::now());
        is_plain && !is_slow && !others_wait && self.capacity.sharing.may_keep(queue.id) && {
            let ours = self.runners.launcher.places(queue.id);
            self.capacity.is_within_limit(queue, ours, &self.queues)
        }
    }
}

/// Whether the task at this place may be taken now, before those that came earlier. `passed`: since when that is done.
fn may_take(at: usize, passed: &mut Option<Instant>, now: Instant) -> bool {
    if at == 0 {
        *passed = None;
        return true;
    }
    now.saturating_duration_since(*passed.get_or_insert(now)) < PASSED_FOR
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_is_passed_over_for_a_moment_only() {
        let (mut passed, now) = (None, Instant::now());
        let mut may_take = |at, later| may_take(at, &mut passed, now + later);
        assert!(may_take(3, Duration::ZERO) && may_take(1, PASSED_FOR / 2));
        assert!(!may_take(1, PASSED_FOR) && !may_take(2, PASSED_FOR * 2));
        assert!(may_take(0, PASSED_FOR * 2) && may_take(1, PASSED_FOR * 2));
    }
}
