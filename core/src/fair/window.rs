//! What a DEN has read of a fair queue: which groups wait, and the next tasks of some of them.
//!
//! Who waits is read about once a second, and sooner when a hint tells of new tasks, or nothing is left; less often where
//! that takes long. So a group has its first turn in the first round that begins after DENs have seen it.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bson::oid::ObjectId;

use super::order::{self, Candidate, Scheme};
use super::shares::Shares;
use super::turns::{Listed, Pointer, Turn, Waiter};
use super::unindexed_tasks::{self, Plain};
use super::{NO_GROUP, Settings, Share};
use crate::clock::{chance, random};

/// So many tasks of a group are read beyond those that are wanted.
const AHEAD: usize = 16;

/// How long it is good enough to know who waits, at least and at most.
const FRESH: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Reading takes one part in so many of the time at most.
const SHARE: u32 = 50;

/// The same when there is a reason to look.
const SHARE_WHEN_STALE: u32 = 20;

/// A turn that was taken and came to nothing is kept for so long.
const OWED: Duration = Duration::from_secs(1);

/// A task that could not be claimed is left out for so long.
pub(super) const SKIPPED: Duration = Duration::from_secs(10);

/// So many tasks are left out at most by a DEN that has lost some to others.
const FARTHEST: usize = 512;

/// With the first loss, so many.
const FIRST: usize = 8;

#[derive(Debug, Clone)]
pub(super) struct Head {
    pub group: Arc<str>,
    pub first: Candidate,
}

#[derive(Debug, Clone)]
pub(super) struct Choice {
    pub task: Candidate,
    /// The place that it gets in its group, where these have such.
    pub place: Option<u64>,
    pub turn: Turn,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Want {
    pub group: Arc<str>,
    pub limit: usize,
    /// And as many of each of these classes.
    pub classes: BTreeSet<usize>,
    /// Those alone that no node has. The index does not tell, so that it is asked for only where many could not be claimed.
    pub free: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Places {
    /// How many of its tasks are claimed or running.
    pub running: u64,
    pub taken: BTreeSet<u64>,
}

#[derive(Debug, Default)]
struct Buffer {
    tasks: Vec<Candidate>,
    /// These are what is next when its next turn is that of this round, with so many tasks given before: else somebody else
    /// had a turn of it since.
    at: Option<(i64, u32)>,
    /// There were no more.
    whole: bool,
}

#[derive(Debug, Default)]
pub(super) struct Call {
    pub plain: unindexed_tasks::Search,
    /// Who waits has been read for it.
    pub read: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Window {
    pub(super) listed: Listed,
    /// Where the rotation stood when it was last seen.
    pub(super) pointer: Option<Pointer>,
    /// The rotation is this DEN's own, as it may not write the common one.
    pub(super) alone: bool,
    pub(super) plain: Plain,
    pub(super) spread: Spread,
    /// Where use is shared: who is next, and what a task is charged in seconds.
    pub(super) shares: Option<(Shares, f64)>,
    pub(super) places: HashMap<Arc<str>, Places>,
    read: Option<(Instant, Duration)>,
    /// There may be others who wait.
    stale: bool,
    buffers: HashMap<Arc<str>, Buffer>,
    owed: Vec<(Turn, Instant)>,
    /// Tasks that could not be claimed, and their groups.
    skipped: HashMap<ObjectId, (Arc<str>, Instant)>,
    /// Groups whose rate allows nothing before a time.
    resting: HashMap<Arc<str>, Instant>,
}

impl Places {
    fn room(&self, threads: u64) -> u64 {
        let taken = self.taken.range(..threads).count();
        threads.saturating_sub(self.running.max(u64::try_from(taken).unwrap_or(u64::MAX)))
    }

    /// Takes one of the free places. Which one is left to chance: others look for one, too.
    fn take(&mut self, threads: u64, chance: u64) -> Option<u64> {
        if self.room(threads) == 0 {
            return None;
        }
        let from = chance % threads;
        let place = (from..threads).chain(0..from).find(|place| !self.taken.contains(place))?;
        self.taken.insert(place);
        self.running += 1;
        Some(place)
    }
}

impl Window {
    /// Something may have been put back, or is new.
    pub fn look_back(&mut self) {
        self.stale = true;
        self.plain.look_back();
    }

    pub(super) fn is_old(&self, now: Instant) -> bool {
        is_due(self.read, FRESH, self.stale || self.listed.groups.is_empty(), now)
    }

    /// Who waits. `pointer`: where the rotation stood before that was read, if it was looked.
    pub(super) fn list(
        &mut self,
        listed: Listed,
        heads: Vec<Head>,
        (settings, pointer): (&Settings, Option<&Pointer>),
        (began, ended): (Instant, Instant),
    ) {
        self.listed = listed;
        self.read = Some((ended, ended.saturating_duration_since(began)));
        self.stale = false;
        self.shares = None;
        self.skipped.retain(|_, (_, at)| ended.saturating_duration_since(*at) < SKIPPED);
        self.resting.retain(|_, until| *until > ended);
        let mut before = std::mem::take(&mut self.buffers);
        for Head { group, first } in heads {
            let at = pointer.map(|pointer| next_of(&group, settings.weight(&group), pointer));
            let tasks = if self.skipped.contains_key(&first.task) { Vec::new() } else { vec![first] };
            let buffer = match before.remove(&group) {
                // What has been read of it is still what is next.
                Some(known) if known.at == at && known.tasks.first() == tasks.first() => known,
                _ => Buffer { tasks, at, whole: false },
            };
            self.buffers.insert(group, buffer);
        }
    }

    pub(super) fn list_plain(&mut self) {
        if self.plain.found.is_empty() {
            self.listed.groups.remove(NO_GROUP);
        } else if !self.listed.groups.contains(NO_GROUP) {
            self.listed.groups.insert(Arc::from(NO_GROUP));
            // They have no part in what was reckoned without them.
            self.shares = None;
        }
    }

    pub(super) fn waiter(&self, group: &str, settings: &Settings, now: Instant) -> Waiter {
        let rests = self.resting.get(group).is_some_and(|until| *until > now);
        let room = match settings.group_threads {
            _ if rests => 0,
            None => u64::MAX,
            Some(threads) => self.places.get(group).map_or(threads, |places| places.room(threads)),
        };
        Waiter { weight: settings.weight(group), room }
    }

    /// The rate of a group allows nothing before `until`.
    pub(super) fn rest(&mut self, group: Arc<str>, until: Instant) {
        self.resting.insert(group, until);
    }

    /// When the rate of a group that waits allows the next of its tasks.
    pub(super) fn next_start(&self, now: Instant) -> Option<Duration> {
        let groups = &self.listed.groups;
        let waits = self.resting.iter().filter(|(group, until)| groups.contains(*group) && **until > now);
        waits.map(|(_, until)| until.saturating_duration_since(now)).min()
    }

    /// Turns that were taken and came to nothing, for `wanted` tasks at most.
    pub(super) fn take_owed(&mut self, wanted: u64, now: Instant) -> Vec<Turn> {
        self.owed.retain(|(_, at)| now.saturating_duration_since(*at) < OWED);
        let taken = usize::try_from(wanted).unwrap_or(usize::MAX).min(self.owed.len());
        self.owed.drain(..taken).map(|(turn, _)| turn).collect()
    }

    /// What of the groups of `turns` has to be read.
    pub(super) fn wants(&self, settings: &Settings, turns: &[Turn]) -> Vec<Want> {
        let mut wants: Vec<Want> = Vec::new();
        let mut numbers: HashMap<&str, usize> = HashMap::new();
        for turn in turns.iter().filter(|turn| &*turn.group != NO_GROUP) {
            let tasks = usize::try_from(turn.tasks).unwrap_or(usize::MAX);
            let class = settings.scheme.as_ref().map(|scheme| scheme.preferred(turn.round));
            let number = *numbers.entry(&turn.group).or_insert_with(|| {
                let group = Arc::clone(&turn.group);
                wants.push(Want { group, limit: 0, classes: BTreeSet::new(), free: false });
                wants.len() - 1
            });
            if let Some(want) = wants.get_mut(number) {
                want.limit += tasks;
                want.classes.extend(class);
            }
        }
        let mut skipped: HashMap<&str, usize> = HashMap::new();
        for (group, _) in self.skipped.values() {
            *skipped.entry(&**group).or_default() += 1;
        }
        let first = |group: &str| turns.iter().find(|turn| &*turn.group == group);
        wants.retain_mut(|want| {
            let known = self.buffers.get(&want.group).filter(|known| {
                let is_next = |turn: &Turn| known.at.is_some_and(|at| (turn.round, turn.had) <= at);
                settings.share == Share::Use || first(&want.group).is_some_and(is_next)
            });
            let is_enough = |known: &Buffer| {
                settings.scheme.is_none() && (known.whole || known.tasks.len() >= want.limit)
            };
            if known.is_some_and(is_enough) {
                return false;
            }
            // Where nobody else claims of it, what comes next is read as well.
            let is_ours = known.is_some() && settings.scheme.is_none();
            let left_out = skipped.get(&*want.group).copied().unwrap_or(0);
            want.limit += left_out.min(AHEAD) + if is_ours { AHEAD } else { 0 };
            want.free = left_out >= AHEAD;
            true
        });
        wants
    }

    /// What was read of a group, in any order, and whether these are all.
    pub(super) fn fill(&mut self, group: &Arc<str>, mut tasks: Vec<Candidate>, whole: bool) {
        let mut seen = HashSet::new();
        tasks.retain(|task| !self.skipped.contains_key(&task.task) && seen.insert(task.task));
        let buffer = self.buffers.entry(Arc::clone(group)).or_default();
        (buffer.tasks, buffer.whole) = (tasks, whole);
    }

    /// The tasks of `turns`. A group that has none left does not wait any more.
    pub(super) fn choose(&mut self, settings: &Settings, turns: Vec<Turn>) -> Vec<Choice> {
        let mut choices = Vec::new();
        for turn in turns {
            let had = choices.len();
            for _ in 0..turn.tasks {
                let Some(task) = self.next_task(&turn, settings.scheme.as_ref()) else { break };
                let place = settings.group_threads.and_then(|threads| {
                    self.places.entry(Arc::clone(&turn.group)).or_default().take(threads, random())
                });
                if settings.group_threads.is_some() && place.is_none() {
                    self.put_back(&turn.group, task);
                    break;
                }
                choices.push(Choice { task, place, turn: Turn { tasks: 1, ..turn.clone() } });
            }
            let is_short = choices.len() - had < usize::try_from(turn.tasks).unwrap_or(usize::MAX);
            self.pass(&turn, settings.weight(&turn.group), is_short);
        }
        choices
    }

    fn next_task(&mut self, turn: &Turn, scheme: Option<&Scheme>) -> Option<Candidate> {
        if &*turn.group != NO_GROUP {
            return order::next(&mut self.buffers.get_mut(&turn.group)?.tasks, scheme, turn.round);
        }
        let found = &mut self.plain.found;
        if self.spread.distance() > 0 && !found.is_empty() {
            return Some(found.remove(self.spread.pick(found.len(), chance())));
        }
        order::next(found, scheme, turn.round)
    }

    /// A turn has been used.
    fn pass(&mut self, turn: &Turn, weight: u32, is_short: bool) {
        let next = if turn.had + turn.tasks < weight {
            (turn.round, turn.had + turn.tasks)
        } else {
            (turn.round + 1, 0)
        };
        let is_empty = match self.buffers.get_mut(&turn.group) {
            Some(buffer) => {
                buffer.at = buffer.at.max(Some(next));
                buffer.tasks.is_empty() && buffer.whole
            }
            None => &*turn.group != NO_GROUP || self.plain.found.is_empty(),
        };
        if is_short && is_empty {
            self.listed.groups.remove(&turn.group);
            self.buffers.remove(&turn.group);
            // Others may have come.
            self.stale = true;
        }
    }

    /// A task was not claimed, and still may be.
    pub(super) fn put_back(&mut self, group: &Arc<str>, task: Candidate) {
        if &**group == NO_GROUP {
            self.plain.found.insert(0, task);
        } else if let Some(buffer) = self.buffers.get_mut(group) {
            buffer.tasks.insert(0, task);
        }
    }

    /// A task could not be claimed: it is gone, or odd.
    pub(super) fn skip(&mut self, task: ObjectId, group: &Arc<str>, now: Instant) {
        self.skipped.insert(task, (Arc::clone(group), now));
    }

    /// Nothing came of a turn: it is used for another task, or place.
    pub(super) fn owe(&mut self, turn: Turn, now: Instant) {
        self.owed.push((turn, now));
    }

    /// Whether the queue has nothing to claim, as far as `call` could tell.
    pub(super) fn is_exhausted(&self, call: &Call) -> bool {
        let is_nobody = self.listed.is_whole() && self.listed.groups.is_empty();
        call.read && is_nobody && self.plain.is_exhausted(&call.plain)
    }
}

/// Whether what was read at a time, which took so long, is to be read again. `between`: how long it is good enough, at least and
/// at most, unless it is stale.
pub(super) fn is_due(
    read: Option<(Instant, Duration)>,
    between: (Duration, Duration),
    is_stale: bool,
    now: Instant,
) -> bool {
    read.is_none_or(|(at, took)| {
        let since = now.saturating_duration_since(at);
        since >= (took * SHARE).clamp(between.0, between.1) || (is_stale && since >= took * SHARE_WHEN_STALE)
    })
}

/// When a group has its next turn after the rotation stood there: in which round, and how much of the turn was given.
fn next_of(group: &str, weight: u32, pointer: &Pointer) -> (i64, u32) {
    match group.cmp(&pointer.last) {
        std::cmp::Ordering::Equal if pointer.had < weight => (pointer.round, pointer.had),
        std::cmp::Ordering::Greater => (pointer.round, 0),
        std::cmp::Ordering::Equal | std::cmp::Ordering::Less => (pointer.round + 1, 0),
    }
}

/// How far what is tried is from the first one. Where several DENs read the same tasks in the same order, each would try the first ones,
/// and all but one in vain. So whoever has lost tasks to others takes some that come a bit later.
#[derive(Debug, Default)]
pub(super) struct Spread(usize);

impl Spread {
    /// How many are to be read beyond those that are wanted.
    pub fn distance(&self) -> usize {
        self.0
    }

    /// Which of `tasks` that could all be the next one to take. `chance` is random, from 0 to 1.
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a part of a small positive number"
    )]
    pub fn pick(&self, tasks: usize, chance: f64) -> usize {
        // Squared: the first ones are taken more often, so that none of them is left for long.
        let at = (self.0 as f64 * chance * chance) as usize;
        at.min(tasks.saturating_sub(1))
    }

    /// Of `tried` tasks, others were faster to claim `lost`.
    pub fn met_others(&mut self, tried: usize, lost: usize) {
        if lost * 4 > tried {
            self.0 = (self.0 * 2).max(tried).clamp(FIRST, FARTHEST);
        } else if lost == 0 {
            self.0 = self.0 * 7 / 8;
        }
    }
}

#[cfg(test)]
mod tests;
