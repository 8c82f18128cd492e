//! Which slots of queues this DEN holds, and may start tasks in: see [`disbatch_core::slots`]. Pure, but for the clock.
//!
//! A slot is free when no task of ours is in it and none can come to be: its end was acknowledged, or it was found that its task does not run any more. As long as
//! nobody knows, the slot is in doubt. Whoever does not know whether what it sent takes effect (a claim, a start, a release without an answer) goes on as another
//! holder, with none of the slots.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bson::DateTime;
use disbatch_core::model::{QueueId, TaskId};
use disbatch_core::slots::{FENCE, Holder, SILENT};

use crate::lock;
use crate::pace::is_due;

/// For so long a slot that is not used is kept where there are other nodes.
const KEPT: Duration = Duration::from_secs(1);

/// The right to hold slots is asked for again after so long.
const FORBIDDEN: Duration = Duration::from_secs(60);

/// So often it is looked whether other holders are alive, and whether there are slots to be taken back: while tasks wait, and otherwise.
const LOOK_EVERY: [Duration; 2] = [Duration::from_millis(900), Duration::from_secs(10)];

/// So often it is looked which slots are not used.
const RELEASE_EVERY: Duration = Duration::from_millis(100);

/// For so long tasks are claimed first and started then, after a start was not confirmed in time.
const SLOW_FOR: Duration = Duration::from_secs(20);

/// A node that does not come to giving up slots for so long does without.
const STUCK: Duration = Duration::from_secs(20);

/// So often it is asked whether tasks are still in slots in doubt: web services may work on many.
const ASK_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
struct Inner {
    holder: Holder,
    fence: Option<DateTime>,
    /// The slots that are held, and when each was last used.
    slots: HashMap<QueueId, BTreeMap<u64, Instant>>,
}

/// The slots that this DEN holds. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Holdings(Arc<Mutex<Inner>>);

impl Holdings {
    pub fn holder(&self) -> Holder {
        lock(&self.0).holder
    }

    /// A heartbeat of `holder` was made at this moment by the server's clock, and another one after it. Returns whether it came in time: if not, there is another
    /// holder now, which holds nothing.
    pub fn beaten(&self, holder: Holder, at: DateTime) -> bool {
        let mut inner = lock(&self.0);
        if inner.holder != holder {
            return true;
        }
        if inner.fence.is_some_and(|fence| at >= fence) {
            inner.renounce();
            return false;
        }
        inner.fence = Some(at.saturating_add_duration(FENCE));
        true
    }

    /// Goes on as another holder: nobody knows whether what was sent takes effect.
    pub fn renounce(&self) {
        lock(&self.0).renounce();
    }

    /// Until when a task may be started in the slot. `None`: it is not held.
    pub fn fence_of(&self, queue: QueueId, slot: u64) -> Option<DateTime> {
        let inner = lock(&self.0);
        inner.fence.filter(|_| inner.slots.get(&queue).is_some_and(|slots| slots.contains_key(&slot)))
    }

    /// Until when tasks may be started in what is held. `None`: that is not known yet.
    pub fn fence(&self) -> Option<DateTime> {
        lock(&self.0).fence
    }

    pub fn lacking(&self, queue: QueueId, slots: &[u64]) -> Vec<u64> {
        let inner = lock(&self.0);
        let held = inner.slots.get(&queue);
        slots.iter().copied().filter(|slot| held.is_none_or(|held| !held.contains_key(slot))).collect()
    }

    /// These are held by `holder` now.
    pub fn add(&self, holder: Holder, queue: QueueId, slots: &[u64]) {
        let (mut inner, now) = (lock(&self.0), Instant::now());
        if inner.holder == holder {
            inner.slots.entry(queue).or_default().extend(slots.iter().map(|slot| (*slot, now)));
        }
    }

    pub fn of(&self, queue: QueueId) -> Vec<u64> {
        lock(&self.0).slots.get(&queue).into_iter().flat_map(BTreeMap::keys).copied().collect()
    }

    /// Removes those slots that are free and no longer wanted, and returns them: they are to be released. `used`: those in which there is, or may be, a task of
    /// ours. `keeps`: how a queue is looked at.
    pub fn superfluous(
        &self,
        used: &HashSet<(QueueId, u64)>,
        keeps: impl Fn(QueueId) -> Keeps,
        now: Instant,
    ) -> Vec<(QueueId, u64)> {
        let mut inner = lock(&self.0);
        let mut gone = Vec::new();
        for (queue, slots) in &mut inner.slots {
            let keeps = keeps(*queue);
            slots.retain(|slot, last| {
                if used.contains(&(*queue, *slot)) {
                    *last = now;
                    return true;
                }
                let is_kept = keeps.lets(*slot, now.saturating_duration_since(*last));
                if !is_kept {
                    gone.push((*queue, *slot));
                }
                is_kept
            });
        }
        inner.slots.retain(|_, slots| !slots.is_empty());
        gone
    }
}

impl Default for Inner {
    fn default() -> Self {
        Self { holder: Holder::drawn(), fence: None, slots: HashMap::new() }
    }
}

impl Inner {
    fn renounce(&mut self) {
        tracing::debug!(
            slots = self.slots.values().map(BTreeMap::len).sum::<usize>(),
            "holds no slots any more"
        );
        *self = Self::default();
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keeps {
    /// Those below the limit: nobody else wants any.
    Below(u64),
    /// Those below the limit that were used a moment ago.
    Lately(u64),
    Nothing,
}

impl Keeps {
    fn lets(self, slot: u64, idle: Duration) -> bool {
        match self {
            Self::Below(limit) => slot < limit,
            Self::Lately(limit) => slot < limit && idle < KEPT,
            Self::Nothing => false,
        }
    }
}

#[derive(Debug, Default)]
pub struct Watch {
    /// The last sign of each, and when that was seen first.
    beats: HashMap<Holder, (Option<DateTime>, Instant)>,
    looked: Option<Instant>,
    released: Option<Instant>,
    /// Slots of ours in which a task may still be.
    doubtful: HashMap<(QueueId, u64), TaskId>,
    asked: Option<Instant>,
    right: Right,
    /// When a pass last came so far that it would have given up slots.
    reached: Option<Instant>,
    /// Until when nothing is started in one write: it takes too long until a majority has it.
    slow_until: Option<Instant>,
}

#[derive(Debug, Default, PartialEq, Eq)]
enum Right {
    #[default]
    Unknown,
    Given,
    /// Not when that was tried.
    Refused(Instant),
}

impl Watch {
    /// Whether it is time to look at other holders. It is asked only to do that.
    pub fn wants_look(&mut self, tasks_wait: bool, now: Instant) -> bool {
        let every = LOOK_EVERY[usize::from(!tasks_wait)];
        is_due(&mut self.looked, every, now)
    }

    /// Whether it is time to look which slots are not used. It is asked only to do that.
    pub fn wants_release(&mut self, now: Instant) -> bool {
        is_due(&mut self.released, RELEASE_EVERY, now)
    }

    /// Of these holders, other than `own`, those that start nothing any more: they have said so (`true`), or were not heard of for so long. `beats` was asked for
    /// at `asked`, and answered at `answered`.
    pub fn gone(
        &mut self,
        holders: &HashMap<Holder, bool>,
        beats: &HashMap<Holder, DateTime>,
        own: Holder,
        (asked, answered): (Instant, Instant),
    ) -> HashSet<Holder> {
        self.beats.retain(|holder, _| holders.contains_key(holder));
        let mut gone = HashSet::new();
        for (holder, is_closed) in holders.iter().filter(|(holder, _)| **holder != own) {
            let last = beats.get(holder).copied();
            let known = self.beats.entry(*holder).or_insert((last, answered));
            if known.0 != last {
                *known = (last, answered);
            }
            if *is_closed || asked.saturating_duration_since(known.1) >= SILENT {
                gone.insert(*holder);
            }
        }
        gone
    }

    /// Nobody knows whether the task has left its slot.
    pub fn doubt(&mut self, queue: QueueId, slot: u64, task: TaskId) {
        self.doubtful.insert((queue, slot), task);
        self.asked = None;
    }

    /// The tasks to be asked for now, if there are some.
    pub fn tasks_to_ask(&mut self, now: Instant) -> Vec<TaskId> {
        if is_due(&mut self.asked, ASK_EVERY, now) {
            return self.doubtful.values().copied().collect();
        }
        Vec::new()
    }

    pub fn doubtful(&self) -> impl Iterator<Item = ((QueueId, u64), TaskId)> {
        self.doubtful.iter().map(|(slot, task)| (*slot, *task))
    }

    /// Of the tasks that were asked for, these are still claimed or running, in these slots.
    pub fn asked(&mut self, asked: &[TaskId], still: &HashMap<TaskId, (QueueId, u64)>) {
        self.doubtful.retain(|slot, task| !asked.contains(task) || still.get(task) == Some(slot));
    }

    /// Whether it has to be tried if this user may hold slots.
    pub fn wants_try(&self, now: Instant) -> bool {
        match self.right {
            Right::Unknown => true,
            Right::Given => false,
            Right::Refused(at) => now.saturating_duration_since(at) >= FORBIDDEN,
        }
    }

    pub fn tried(&mut self, may: bool, now: Instant) {
        self.right = if may { Right::Given } else { Right::Refused(now) };
    }

    /// Whether it is not known that this user may hold slots.
    pub fn is_forbidden(&self) -> bool {
        self.right != Right::Given
    }

    /// A pass has come so far that it gives up slots.
    pub fn reached(&mut self, now: Instant) {
        self.reached = Some(now);
    }

    /// Whether no pass has come so far for long.
    pub fn is_stuck(&self, now: Instant) -> bool {
        self.reached.is_some_and(|at| now.saturating_duration_since(at) >= STUCK)
    }

    /// A start was not confirmed by a majority in time.
    pub fn was_slow(&mut self, now: Instant) {
        self.slow_until = Some(now + SLOW_FOR);
    }

    /// Whether to claim first and start then, which may take as long as it takes.
    pub fn is_slow(&self, now: Instant) -> bool {
        self.slow_until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn queue() -> QueueId {
        QueueId([1; 12].into())
    }

    fn at(seconds: i64) -> DateTime {
        DateTime::from_millis(seconds * 1_000)
    }

    #[test]
    fn a_heartbeat_that_is_late_makes_another_holder() {
        let holdings = Holdings::default();
        let first = holdings.holder();
        holdings.add(first, queue(), &[0, 2]);
        assert_eq!(holdings.fence_of(queue(), 0), None, "the server's time is not known");
        assert!(holdings.beaten(first, at(100)));
        assert_eq!(holdings.fence_of(queue(), 0), Some(at(105)));
        assert_eq!(holdings.fence_of(queue(), 1), None);
        assert_eq!(holdings.lacking(queue(), &[0, 1, 2]), [1]);
        assert!(holdings.beaten(first, at(104)));
        assert!(!holdings.beaten(first, at(109)));
        let second = holdings.holder();
        assert!(second != first && holdings.of(queue()).is_empty() && holdings.fence().is_none());
        holdings.add(first, queue(), &[5]);
        assert!(holdings.of(queue()).is_empty(), "that was the other's");
        assert!(holdings.beaten(first, at(110)) && holdings.fence().is_none());
    }

    #[test]
    fn what_is_not_used_is_released_where_others_are() {
        let (holdings, now) = (Holdings::default(), Instant::now());
        holdings.add(holdings.holder(), queue(), &[0, 1, 2, 3]);
        let used = HashSet::from([(queue(), 1)]);
        let gone = |keeps: Keeps, later: Duration| {
            let mut gone = holdings.superfluous(&used, |_| keeps, now + later);
            gone.sort_unstable_by_key(|(_, slot)| *slot);
            gone.into_iter().map(|(_, slot)| slot).collect::<Vec<_>>()
        };
        assert!(gone(Keeps::Below(9), SECOND * 9).is_empty());
        assert!(gone(Keeps::Lately(9), Duration::ZERO).is_empty());
        assert_eq!(gone(Keeps::Below(3), Duration::ZERO), [3]);
        assert_eq!(gone(Keeps::Lately(9), SECOND * 2), [0, 2]);
        assert!(gone(Keeps::Nothing, SECOND).is_empty(), "a task is in the other");
        assert_eq!(holdings.of(queue()), [1]);
    }

    #[test]
    fn who_is_silent_for_long_is_gone() {
        let (mut watch, now) = (Watch::default(), Instant::now());
        let (own, other, left) = (Holder::drawn(), Holder::drawn(), Holder::drawn());
        let holders = HashMap::from([(own, false), (other, false), (left, true)]);
        let mut gone = |beat: i64, later: Duration| {
            watch.gone(
                &holders,
                &HashMap::from([(other, at(beat)), (own, at(1))]),
                own,
                (now + later, now + later),
            )
        };
        assert_eq!(gone(1, Duration::ZERO), HashSet::from([left]));
        assert_eq!(gone(2, SILENT), HashSet::from([left]), "it beats");
        assert_eq!(gone(2, SILENT * 2 - SECOND), HashSet::from([left]));
        assert_eq!(gone(2, SILENT * 2), HashSet::from([left, other]));
    }
}
