//! Reading ahead: which queued tasks a DEN tries to claim next.
//!
//! A claim that asks for the first queued task gets slower with every claim: what was claimed leaves deleted index
//! entries at the head of the queue, and the server steps over all of them as long as it keeps its history
//! (five minutes). So a DEN reads the ids of the next tasks ahead, claims them by `_id`, and goes on reading behind
//! the last id that it has read: its mark.
//!
//! **What is behind the mark** is seen when it is read from the start again: once a second while tasks are claimed
//! (less often where that is slow, see [`SCAN_AT_LEAST_EVERY`]), when nothing is left past the mark, and when the DEN
//! says that something was put back. So a task that is given back or tried again waits for about a second, ten at most. One whose id is
//! older by [`OLDER`], as of a long transaction that is committed now, is read as soon as it is told of, where reading from the start is
//! cheap. What the DEN itself is about to start is still queued then, and left out ([`Ahead::in_hand`]).
//!
//! **Order.** While one DEN claims from a queue, tasks are claimed in the exact order of the queue, save those put
//! behind the mark. Where several do, all of them would try the same few tasks. There are two ways out of that:
//!
//! - DENs that know of each other divide the tasks ([`Share`]). Each tries its own part, and whatever it has read past before the last but
//!   one time that it read from the start: that is anybody's. So a task can be overtaken for two of these times, some seconds. The last
//!   tasks of a queue, fewer than are read at once, everybody tries.
//! - A DEN that has lost tasks to others and does not know to whom, or to too many, reads at a random place behind the head of the queue, up
//!   to a distance that doubles with each loss and shrinks again without. A task can be overtaken by those at most about [`FARTHEST`]
//!   places behind it. Leaving out tasks by counting them would cost as much as reading them, so where to read is guessed from how far
//!   apart ids are. Where the head is, is seen several times a second, from where it was.
//!
//! Reading from the start, over all that was claimed lately, is shared: the more DENs there seem to be, the more seldom each does it.

mod share;

use std::collections::{BTreeSet, HashMap, HashSet, VecDeque};
use std::time::{Duration, Instant};

use bson::oid::ObjectId;

use crate::fair::{FairWindow, RankedWindow};
use crate::model::{Queue, QueueId, TaskId};

pub use share::Share;

/// So many ids are read at once, at least.
const RUN: usize = 64;

/// The same where several DENs claim from the queue: what is read ages quickly.
const CONTENDED_RUN: usize = 16;

/// So many tasks are left out at most, about.
const FARTHEST: usize = 8_192;

/// How long it is good enough to know where the head was, where several DENs claim.
const HEAD_EVERY: Duration = Duration::from_millis(200);

/// With this chance, divided by the number of those who claim, one of them takes what is at the head.
const HEAD_SHARE: f64 = 0.5;

/// The distance at which few tasks are lost, for each DEN that claims.
const DISTANCE_EACH: usize = 4 * CONTENDED_RUN;

/// Of so many tasks it is remembered that they were read: the change stream is a little late.
const REMEMBERED: usize = 256;

/// How long what is behind the mark waits.
const SCAN_EVERY: Duration = Duration::from_secs(1);

/// The same where reading from the start takes long.
const SCAN_AT_LEAST_EVERY: Duration = Duration::from_secs(10);

/// Reading from the start takes at most one part in so many of the time.
const SCAN_SHARE: u32 = 50;

/// Ids that are so much older than the mark are not those of tasks that came at the same time as others.
const OLDER: Duration = Duration::from_secs(2);

/// Reading from the start is no burden if it takes so long.
const CHEAP_SCAN: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub struct Ahead {
    queues: HashMap<QueueId, Window>,
    ranked: HashMap<QueueId, RankedWindow>,
    fair: HashMap<QueueId, FairWindow>,
}

impl Ahead {
    /// Something may have been put back behind the mark of `queue`: the next claim begins at its start.
    pub fn look_back(&mut self, queue: QueueId) {
        if let Some(window) = self.queues.get_mut(&queue) {
            window.scanned = None;
        }
        if let Some(window) = self.ranked.get_mut(&queue) {
            window.look_back();
        }
        if let Some(window) = self.fair.get_mut(&queue) {
            window.look_back();
        }
    }

    pub fn look_back_everywhere(&mut self) {
        for window in self.queues.values_mut() {
            window.scanned = None;
        }
        self.ranked.values_mut().for_each(RankedWindow::look_back);
        self.fair.values_mut().for_each(FairWindow::look_back);
    }

    /// Tasks of `queue` that were read and are not to be tried yet, in its order: they come next.
    pub fn put_back(&mut self, queue: QueueId, tasks: Vec<TaskId>) {
        if let Some(window) = self.queues.get_mut(&queue) {
            window.put_back(tasks.into_iter().map(|task| task.0).collect());
        }
    }

    /// These tasks of `queue`, which were read, are about to be started, or may be: they are not to be tried a second time.
    pub fn in_hand(&mut self, queue: QueueId, tasks: HashSet<TaskId>) {
        if let Some(window) = self.queues.get_mut(&queue) {
            window.in_hand = tasks;
        }
    }

    /// More tasks are new than each was told of. Where the last that was read is not the last that there was, they are read in their turn.
    pub fn many_came(&mut self) {
        let at_their_end = self.queues.values_mut().filter(|window| window.ended);
        at_their_end.for_each(|window| window.scanned = None);
    }

    /// These tasks of `queue` are new. Where all before them has been read, they are what comes next, and need not be looked for.
    pub fn came(&mut self, queue: QueueId, tasks: &[TaskId]) {
        if let Some(window) = self.queues.get_mut(&queue) {
            window.came(tasks.iter().map(|task| task.0));
        }
    }

    /// Others claim tasks of `queue`, too: this is the part that is to be tried first from now on, if it is known.
    pub fn divide(&mut self, queue: QueueId, share: Option<Share>) {
        if let Some(window) = self.queues.get_mut(&queue) {
            let share = share.filter(|_| !window.newest_first);
            if window.share.is_some() && share.is_none() {
                // What was left to others has not been seen.
                window.scanned = None;
            }
            window.share = share;
        }
    }

    /// Of so many starts of tasks of `queue`, others were faster with so many.
    pub fn met_others(&mut self, queue: QueueId, (tried, lost): (usize, usize)) {
        if let Some(window) = self.queues.get_mut(&queue) {
            window.met_others(tried, lost);
        }
    }

    pub fn keep_only(&mut self, queues: &[Queue]) {
        let is_kept = |id: &QueueId| queues.iter().any(|queue| queue.id == *id);
        self.queues.retain(|id, _| is_kept(id));
        self.ranked.retain(|id, _| is_kept(id));
        self.fair.retain(|id, _| is_kept(id));
    }

    pub(super) fn ranked(&mut self, queue: QueueId) -> &mut RankedWindow {
        self.ranked.entry(queue).or_default()
    }

    pub(super) fn fair(&mut self, queue: QueueId) -> &mut FairWindow {
        self.fair.entry(queue).or_default()
    }

    pub(super) fn window(&mut self, queue: QueueId, newest_first: bool) -> &mut Window {
        let window = self.queues.entry(queue).or_default();
        if window.newest_first != newest_first {
            *window = Window { newest_first, ..Window::default() };
        }
        window
    }
}

#[derive(Debug, Default)]
pub(super) struct Window {
    newest_first: bool,
    /// The last id that was read.
    mark: Option<ObjectId>,
    /// Read and not tried yet, in the order of the queue.
    ids: VecDeque<ObjectId>,
    /// Tried already, or about to be, and not known to be started: what is read again may have them.
    in_hand: HashSet<TaskId>,
    /// When it was last read from the start, and how long that took.
    scanned: Option<(Instant, Duration)>,
    /// Where several claim: the first task of the queue, and when that was seen.
    head: Option<(ObjectId, Instant)>,
    share: Option<Share>,
    /// The last id that had been read when it was read from the start.
    seen: Option<ObjectId>,
    /// The same the time before: what is left up to it is anybody's.
    left: Option<ObjectId>,
    /// How far apart ids are.
    gap: u128,
    /// How many tasks are left out at most when it is read on, because others claim too.
    distance: usize,
    /// All that there was past the mark has been read.
    ended: bool,
    recent: VecDeque<ObjectId>,
    /// It was told of a task that is to come before what was read.
    older: bool,
    /// What is to be tried next was told of, not read: there is no time to look for older ones first.
    told: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reading {
    /// Past this id; `None`: from the start.
    pub past: Option<ObjectId>,
    pub limit: usize,
    place: Place,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Start,
    Mark,
    Head,
    /// At the head, only to see where it is.
    Look,
    Behind,
}

#[derive(Debug)]
pub(super) struct Search {
    wanted: usize,
    from_start: bool,
    /// It has been read on as far as there is something.
    past_mark: bool,
    /// It has been read behind the end of the queue.
    has_overshot: bool,
    /// Nothing more is to be left out: the queue is shorter than that.
    exact: bool,
}

impl Search {
    pub(super) fn of(wanted: usize) -> Self {
        Self { wanted, from_start: false, past_mark: false, has_overshot: false, exact: false }
    }
}

impl Window {
    /// What is to be read next for `search`; `None`: nothing, take what there is. `chance` is random, from 0
    /// to 1.
    pub(super) fn reading(&self, search: &Search, now: Instant, chance: f64) -> Option<Reading> {
        let limit = match self.share {
            Some(share) => (search.wanted.max(CONTENDED_RUN) * share.times()).min(FARTHEST),
            None if self.is_contended() => search.wanted.max(CONTENDED_RUN),
            None => search.wanted.max(RUN),
        };
        // What is in hand is still there.
        let start = Reading { past: None, limit: limit + self.in_hand.len(), place: Place::Start };
        if self.told && !self.ids.is_empty() && !self.must_look_back(search, now) {
            return None;
        }
        let is_due = self.mark.is_none() || self.is_scan_due(now) || (self.older && self.may_scan(now));
        if !search.from_start && is_due {
            return Some(start);
        }
        if self.ids.len() < search.wanted && !search.past_mark {
            return Some(self.further(search, limit, (now, chance)));
        }
        (self.ids.is_empty() && !search.from_start && self.may_scan(now)).then_some(start)
    }

    fn further(&self, search: &Search, limit: usize, (now, chance): (Instant, f64)) -> Reading {
        let Some((head, seen)) = self.head.filter(|_| self.is_contended()) else {
            return Reading { past: self.mark, limit, place: Place::Mark };
        };
        // From the last known head, that one too.
        let at_head = Some(moved(head, 1, !self.newest_first));
        // One after the other takes the head, or what is left there would hold it back for ever.
        if search.exact || chance * f64::from(self.claimers()) < HEAD_SHARE {
            return Reading { past: at_head, limit, place: Place::Head };
        }
        if now.saturating_duration_since(seen) >= HEAD_EVERY {
            return Reading { past: at_head, limit: 1, place: Place::Look };
        }
        // Squared: the head is read more often than what is far from it.
        let by = self.gap.saturating_mul(part(self.distance, chance * chance));
        Reading { past: Some(moved(head, by, self.newest_first)), limit, place: Place::Behind }
    }

    pub(super) fn read(
        &mut self,
        search: &mut Search,
        reading: Reading,
        ids: Vec<ObjectId>,
        (began, ended): (Instant, Instant),
    ) {
        let is_short = ids.len() < reading.limit;
        if matches!(reading.place, Place::Start | Place::Head | Place::Look) {
            self.head = ids.first().map(|first| (*first, ended));
        }
        match reading.place {
            // What is there has been read to its end.
            Place::Start => {
                (self.left, self.seen) = (self.seen, self.seen.max(self.mark));
                self.scanned = Some((ended, ended.saturating_duration_since(began)));
                (search.from_start, search.past_mark) = (true, is_short);
                self.older = false;
            }
            Place::Look => return,
            // Where little comes, the queue has ended: it is shorter than that.
            Place::Behind if is_short => {
                self.distance = (self.distance / 2).max(CONTENDED_RUN);
                search.exact = search.has_overshot;
                search.has_overshot = true;
            }
            Place::Behind | Place::Mark | Place::Head => search.past_mark = true,
        }
        // At the head, much is gone from between those that are left.
        let is_typical = !self.is_contended() || reading.place == Place::Behind;
        if let (Some(first), Some(last)) = (ids.first(), ids.last())
            && ids.len() > 1
            && is_typical
        {
            self.gap = number(*first).abs_diff(number(*last)) / (ids.len() as u128 - 1);
        }
        // Behind what is somebody else's it has been read before, and what was found there stays.
        let goes_on = reading.place == Place::Start && self.share.is_some() && !is_short;
        if reading.place != Place::Mark && !goes_on {
            // They may be among those that come now.
            self.ids.clear();
        }
        let last = ids.last().copied();
        self.mark = if goes_on { last.max(self.mark) } else { last.or(self.mark) };
        self.ended = is_short && reading.place != Place::Behind;
        self.told = false;
        self.remember(&ids);
        let untried = ids.into_iter().filter(|id| !self.in_hand.contains(&TaskId(*id))).collect();
        let mut new = self.to_try(untried, is_short, reading.place);
        if goes_on {
            new = self.ids.drain(..).chain(new).collect::<BTreeSet<_>>().into_iter().collect();
        }
        self.ids.extend(new);
        // Further ones may be for this DEN.
        search.past_mark &= is_short || self.ids.len() >= search.wanted || self.share.is_none();
    }

    /// Which of those that were read to try. The last ones of a queue anybody does.
    fn to_try(&self, ids: Vec<ObjectId>, is_short: bool, place: Place) -> Vec<ObjectId> {
        let Some(share) = self.share.filter(|_| !is_short) else { return ids };
        let is_left = |id: ObjectId| self.left.is_some_and(|left| id <= left);
        let own: Vec<ObjectId> = ids.iter().copied().filter(|id| share.has(*id) || is_left(*id)).collect();
        if own.is_empty() && place == Place::Start { ids } else { own }
    }

    /// Whether what is there is not to be taken unless it has been read from the start: what is queued again nobody tells of, and it must not wait for as
    /// long as there are new ones.
    fn must_look_back(&self, search: &Search, now: Instant) -> bool {
        let Some((at, _)) = self.scanned else { return true };
        let is_overdue = now.saturating_duration_since(at) >= SCAN_AT_LEAST_EVERY * self.claimers();
        is_overdue || (self.ids.len() > search.wanted && self.is_scan_due(now))
    }

    /// New tasks that somebody has told of. Each is told of once, whatever its id, so the mark goes on with them. Some may have been read
    /// before they were told of.
    fn came(&mut self, mut tasks: impl Iterator<Item = ObjectId>) {
        // They are behind the mark, and read when it is their turn.
        self.ended &= self.ids.len() < FARTHEST;
        let Some(mark) = self.mark.filter(|_| self.ended && !self.is_contended() && !self.newest_first)
        else {
            let is_older = |task: ObjectId| self.mark.is_some_and(|mark| is_much_older(task, mark));
            self.older |= !self.newest_first && tasks.any(is_older);
            return;
        };
        let new: Vec<ObjectId> = tasks.filter(|task| !self.recent.contains(task)).collect();
        if new.is_empty() {
            return;
        }
        self.remember(&new);
        let mut ids: BTreeSet<ObjectId> = self.ids.drain(..).collect();
        ids.extend(new);
        self.mark = ids.last().copied().max(Some(mark));
        self.ids = ids.into_iter().collect();
        self.told = true;
    }

    fn remember(&mut self, ids: &[ObjectId]) {
        let new = &ids[ids.len().saturating_sub(REMEMBERED)..];
        self.recent.extend(new);
        let more = self.recent.len().saturating_sub(REMEMBERED);
        self.recent.drain(..more);
    }

    fn is_scan_due(&self, now: Instant) -> bool {
        self.scanned.is_none_or(|(at, took)| {
            let every = (took * SCAN_SHARE).clamp(SCAN_EVERY, SCAN_AT_LEAST_EVERY);
            now.saturating_duration_since(at) >= every * self.claimers()
        })
    }

    fn claimers(&self) -> u32 {
        if let Some(share) = self.share {
            return u32::try_from(share.times()).unwrap_or(u32::MAX);
        }
        u32::try_from(self.distance / DISTANCE_EACH).unwrap_or(u32::MAX).max(1)
    }

    /// Whether it may be read from the start because nothing is left past the mark: at once where that is cheap.
    fn may_scan(&self, now: Instant) -> bool {
        self.scanned
            .is_none_or(|(at, took)| took <= CHEAP_SCAN || now.saturating_duration_since(at) >= took * 10)
    }

    /// Whether the queue has no more than what is left to try: `search` has read all of it.
    pub(super) fn is_exhausted(&self, search: &Search) -> bool {
        self.ids.is_empty() && search.from_start
    }

    pub(super) fn take(&mut self, wanted: usize) -> Vec<ObjectId> {
        self.ids.drain(..wanted.min(self.ids.len())).collect()
    }

    /// Ids that were not tried after all, in the order of the queue.
    pub(super) fn put_back(&mut self, ids: Vec<ObjectId>) {
        for id in ids.into_iter().rev() {
            self.ids.push_front(id);
        }
    }

    /// Whether others claim from the queue too, as far as is known or assumed.
    pub(super) fn has_others(&self) -> bool {
        self.share.is_some() || self.is_contended()
    }

    /// Whether it is assumed that there are others, and not known which.
    fn is_contended(&self) -> bool {
        self.share.is_none() && self.distance > 0
    }

    pub(super) fn met_others(&mut self, tried: usize, lost: usize) {
        if self.share.is_some() {
            if lost * 4 > tried {
                self.ids.clear();
            }
        } else if lost * 4 > tried {
            // Where all is lost, there are many others: the sooner they spread, the better.
            let factor = if lost == tried { 4 } else { 2 };
            self.distance = (self.distance * factor).clamp(CONTENDED_RUN.max(tried), FARTHEST);
            // Whoever was faster is about to claim these, too.
            self.ids.clear();
        } else if lost == 0 && self.ids.is_empty() {
            self.distance = self.distance * 7 / 8;
            if !self.is_contended() {
                // There may be something at any place before the mark.
                self.mark = None;
            }
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a part of a small positive number"
)]
fn part(of: usize, chance: f64) -> u128 {
    (of as f64 * chance) as u128
}

fn is_much_older(id: ObjectId, than: ObjectId) -> bool {
    let age = than.timestamp().timestamp_millis() - id.timestamp().timestamp_millis();
    u64::try_from(age).is_ok_and(|age| Duration::from_millis(age) >= OLDER)
}

/// An id as a number: the order is the same.
fn number(id: ObjectId) -> u128 {
    id.bytes().iter().fold(0, |number, byte| number << 8 | u128::from(*byte))
}

/// The id that comes so far after another one, or before it.
fn moved(id: ObjectId, by: u128, back: bool) -> ObjectId {
    let number = if back { number(id).saturating_sub(by) } else { number(id).saturating_add(by) };
    let [_, _, _, _, bytes @ ..] = number.min(LAST).to_be_bytes();
    ObjectId::from_bytes(bytes)
}

const LAST: u128 = (1 << 96) - 1;

#[cfg(test)]
mod tests;
