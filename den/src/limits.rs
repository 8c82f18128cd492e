//! Whether a limit has to be looked after by counting, after a claim. Pure.
//!
//! Slots keep the limit of a queue among nodes that hold them: each has one holder, and there are as many as `threads`. A node that may not hold
//! slots counts all that is claimed or running. So does one where no unique index keeps slots of groups apart (where `tasks` is sharded by `_id`, too, there can be
//! none, and an operator may have dropped it): whether it is there is looked at now and then. There are two
//! things that slots do not keep. A program that does not hold slots takes tasks beside them, so as long as one may be there, all that is
//! claimed or running is counted. And when the limit is lowered, tasks run in slots above it, so for a while after that the tasks of the queue
//! are counted as well: until every node has heard of it, and has seen what the others started before they did, or until the limit is again
//! what it was. What limit a queue had before it was heard of is not known, unless the change stream has told that it was made.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::time::{Duration, Instant};

use disbatch_core::fair::Settings;
use disbatch_core::model::{Policy, Queue, QueueId};
use disbatch_core::wake::{Peak, Peaks};

/// How old may be what is known of a queue's settings, when a task of it is started.
pub const HEARD_WITHIN: Duration = Duration::from_secs(1);

/// So long after a lower limit is heard of, everybody else has heard of it and has been seen since.
const SETTLES_IN: Duration = Duration::from_secs(10);

/// By settings that were read longer ago than this nothing is started, counted or not: it would have to be made, and seen by others, while
/// these count.
pub const TOO_OLD: Duration = Duration::from_secs(8);

/// So often it is looked whether the indexes are there that give each slot once.
const LOOK_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub struct Limits {
    /// Whether each slot is given once. `None`: it has not been looked yet.
    slots_are_kept: Option<bool>,
    looked: Option<Instant>,
    /// Whether there may be programs that know nothing of slots. `None`: it has not been looked yet.
    strangers: Option<bool>,
    queues: HashMap<QueueId, LimitHistory>,
    /// Queues of which it was heard that they were made, and not yet what they are; and the highest limit that they have had.
    made: HashMap<QueueId, u64>,
    /// Queues that were there, with the time when that was found over. What is made with the same id has had other limits.
    gone: HashMap<QueueId, Instant>,
}

/// How many tasks of a queue, and of a group of it, may run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Limit {
    threads: u64,
    group_threads: u64,
}

impl Limit {
    const NONE: Self = Self { threads: u64::MAX, group_threads: u64::MAX };

    fn of(queue: &Queue) -> Self {
        let of_groups = if queue.policy() == Policy::Fair { Settings::of(queue).group_threads } else { None };
        Self { threads: queue.claim_limit(), group_threads: of_groups.unwrap_or(u64::MAX) }
    }

    fn max(self, other: Self) -> Self {
        Self {
            threads: self.threads.max(other.threads),
            group_threads: self.group_threads.max(other.group_threads),
        }
    }

    /// Whether tasks may be in slots above `other` because of it.
    fn exceeds(self, other: Self) -> bool {
        self.threads > other.threads || self.group_threads > other.group_threads
    }
}

/// The limit of a queue, and what it was before, with the time when that was found over.
#[derive(Debug)]
struct LimitHistory {
    limit: Limit,
    /// What it was for a moment at least since it was read.
    peak: Option<Limit>,
    before: Vec<(Limit, Instant)>,
}

impl LimitHistory {
    fn peaked(&mut self, peak: Limit) {
        self.peak = Some(self.peak.map_or(peak, |highest| highest.max(peak)));
    }

    fn was(&mut self, limit: Limit, now: Instant) {
        // What was not higher, and was over before, tells nothing more.
        self.before.retain(|(before, over)| {
            before.exceeds(limit) && now.saturating_duration_since(*over) < SETTLES_IN
        });
        self.before.push((limit, now));
    }

    fn change(&mut self, new: Limit, now: Instant) {
        let before = std::mem::replace(&mut self.limit, new);
        if before != new {
            self.was(before, now);
        }
        if let Some(peak) = self.peak.take() {
            self.was(peak, now);
        }
    }

    /// Whether the limit may have been higher a moment ago: it has not been read since.
    fn is_behind(&self) -> bool {
        self.peak.is_some_and(|peak| peak.exceeds(self.limit))
    }

    /// When the limits were found over that were higher than it is now.
    fn lowered(&self) -> impl Iterator<Item = Instant> {
        self.before.iter().filter(|(before, _)| before.exceeds(self.limit)).map(|(_, over)| *over)
    }
}

#[derive(Debug, Clone, Copy, Default)]
pub struct Seen {
    pub read: Option<Instant>,
    /// There are tasks that have no slot.
    pub has_others: bool,
    /// There was no other DEN when it was looked for some, which began then.
    pub alone: Option<Instant>,
}

impl Limits {
    /// It was looked who is there.
    pub fn met(&mut self, strangers: bool) {
        if self.strangers != Some(strangers) {
            tracing::debug!(strangers, "whether limits are kept by counting");
        }
        self.strangers = Some(strangers);
    }

    /// Whether it has to be looked if each slot is given once.
    pub fn want_look(&self, now: Instant) -> bool {
        self.looked.is_none_or(|looked| now.saturating_duration_since(looked) >= LOOK_EVERY)
    }

    /// It was looked if each slot is given once.
    pub fn looked(&mut self, kept: bool, now: Instant) {
        self.looked = Some(now);
        match (self.slots_are_kept.replace(kept), kept) {
            (Some(true) | None, false) => tracing::warn!(
                "no unique indexes that keep slots of tasks apart are to be seen (they are dropped, tasks is sharded, or this user may not list them, or not hold slots): limits are kept by counting, which costs more"
            ),
            (Some(false), true) => tracing::info!("unique indexes keep slots of tasks apart again"),
            _ => {}
        }
    }

    /// Whether all nodes are known to keep limits by slots.
    pub fn are_ours(&self) -> bool {
        self.strangers == Some(false) && self.slots_are_kept == Some(true)
    }

    /// Limits have changed since queues were read, and may have been changed back: what they were for a moment counts as heard of.
    pub fn were(&mut self, peaks: &Peaks, now: Instant) {
        if peaks.of_any {
            self.made.clear();
            self.queues.values_mut().for_each(|known| known.peaked(Limit::NONE));
            return;
        }
        for (queue, peak) in &peaks.queues {
            let (known, made) = (self.queues.get_mut(queue), self.made.get_mut(queue));
            match (*peak, known, made) {
                (Peak::Threads(threads), Some(known), _) => known.peaked(Limit { threads, ..known.limit }),
                (_, Some(known), _) => known.peaked(Limit::NONE),
                (Peak::Threads(threads), None, Some(highest)) => *highest = threads.max(*highest),
                (Peak::Made(threads), None, None) => drop(self.made.insert(*queue, threads)),
                (_, None, _) => {
                    self.made.remove(queue);
                    self.gone.insert(*queue, now);
                }
            }
        }
    }

    /// These are the queues now. Returns whether a limit is lower than before, or new.
    pub fn heard(&mut self, queues: &[Queue], now: Instant) -> bool {
        self.gone.retain(|_, since| now.saturating_duration_since(*since) < SETTLES_IN);
        let gone = self.queues.extract_if(|id, _| !queues.iter().any(|queue| queue.id == *id));
        self.gone.extend(gone.map(|(id, _)| (id, now)));
        for queue in queues {
            let limit = Limit::of(queue);
            match self.queues.entry(queue.id) {
                Entry::Occupied(mut known) => known.get_mut().change(limit, now),
                Entry::Vacant(vacant) => {
                    let made = self.made.get(&queue.id).filter(|_| !self.gone.contains_key(&queue.id));
                    let highest = made.map_or(Limit::NONE, |threads| Limit { threads: *threads, ..limit });
                    vacant.insert(LimitHistory { limit, peak: None, before: vec![(highest, now)] });
                }
            }
        }
        self.made.clear();
        self.queues.values().any(|known| known.lowered().any(|lowered| lowered == now))
    }

    pub fn must_count(&self, queue: QueueId, seen: Seen, now: Instant) -> bool {
        let Seen { read, has_others, alone } = seen;
        // A DEN that came later has said that it is there before it read the queue.
        let nobody_else = |lowered: Instant| alone.is_some_and(|alone| alone > lowered);
        let counts =
            |lowered: Instant| now.saturating_duration_since(lowered) < SETTLES_IN && !nobody_else(lowered);
        let is_new =
            self.queues.get(&queue).is_none_or(|known| known.is_behind() || known.lowered().any(counts));
        let is_old = read.is_none_or(|read| now.saturating_duration_since(read) >= HEARD_WITHIN);
        !self.are_ours() || has_others || is_new || is_old
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(threads: i32) -> Queue {
        let id = QueueId([1; 12].into());
        let queue = bson::doc! { "_id": id, "name": "q", "plugin": "P", "threads": threads };
        bson::deserialize_from_document(queue).unwrap()
    }

    #[test]
    fn tasks_are_counted_until_everybody_has_heard_of_a_lower_limit() {
        let (begun, second) = (Instant::now(), Duration::from_secs(1));
        let mut limits = Limits::default();
        let id = queue(1).id;
        let count = |limits: &Limits, at: Instant| {
            limits.must_count(id, Seen { read: Some(at), ..Seen::default() }, at)
        };
        limits.met(false);
        limits.looked(true, begun);
        assert!(count(&limits, begun), "it is not known");
        limits.heard(&[queue(5)], begun);
        assert!(count(&limits, begun + second * 2));
        limits.heard(&[queue(5)], begun + second * 2);
        assert!(!count(&limits, begun + SETTLES_IN), "it is the same");
        let later = begun + SETTLES_IN * 2;
        limits.heard(&[queue(7)], later);
        assert!(!count(&limits, later), "slots are enough for a higher one");
        limits.heard(&[queue(6)], later + second);
        assert!(count(&limits, later + second * 2));
        assert!(!count(&limits, later + second + SETTLES_IN));
        let later = later + SETTLES_IN * 2;
        for (threads, counts) in [(3, true), (5, true), (6, false), (7, false), (6, true)] {
            limits.heard(&[queue(threads)], later);
            assert_eq!(count(&limits, later), counts, "no task is in a slot above {threads}");
        }
        let later = later + SETTLES_IN * 2;
        let told = |peak: Peak| Peaks { of_any: false, queues: [(id, peak)].into() };
        limits.were(&told(Peak::Threads(6)), later);
        limits.were(&Peaks::default(), later);
        limits.heard(&[queue(6)], later);
        assert!(!count(&limits, later + second), "it was not higher for a moment");
        limits.were(&told(Peak::Threads(7)), later);
        assert!(count(&limits, later + second), "it was higher for a moment");
        limits.heard(&[queue(7)], later);
        assert!(!count(&limits, later + second), "and still is");
        limits.heard(&[queue(6)], later);
        assert!(count(&limits, later + second), "it was higher");
        let later = later + SETTLES_IN * 2;
        limits.were(&told(Peak::Threads(7)), later);
        limits.were(&told(Peak::Threads(6)), later + SETTLES_IN * 2);
        let later = later + SETTLES_IN * 2;
        limits.heard(&[queue(6)], later);
        assert!(count(&limits, later + second * 9), "it was higher until it was read again");
        for peaks in [told(Peak::Unknown), Peaks { of_any: true, ..Peaks::default() }] {
            let later = later + SETTLES_IN * 2;
            assert!(!count(&limits, later));
            limits.were(&peaks, later);
            assert!(count(&limits, later + SETTLES_IN), "it may have been higher for a moment");
            limits.heard(&[], later);
            limits.heard(&[queue(6)], later - SETTLES_IN);
        }
    }

    #[test]
    fn a_queue_that_was_heard_of_when_it_was_made_has_had_no_other_limit() {
        let (begun, id) = (Instant::now(), queue(1).id);
        let seen = Seen { read: Some(begun), ..Seen::default() };
        let told = |peak: Peak| Peaks { of_any: false, queues: [(id, peak)].into() };
        let any = Peaks { of_any: true, ..Peaks::default() };
        for (peaks, counts) in [
            (vec![told(Peak::Made(5))], false),
            (vec![told(Peak::Made(6))], true),
            (vec![told(Peak::Made(3)), told(Peak::Threads(5))], false),
            (vec![told(Peak::Made(3)), told(Peak::Threads(6))], true),
            (vec![told(Peak::Made(5)), told(Peak::Unknown)], true),
            (vec![told(Peak::Made(5)), told(Peak::Made(5))], true),
            (vec![told(Peak::Made(5)), any], true),
            (vec![told(Peak::Threads(5))], true),
        ] {
            let mut limits = Limits::default();
            limits.met(false);
            limits.looked(true, begun);
            peaks.iter().for_each(|peaks| limits.were(peaks, begun));
            assert_eq!(limits.heard(&[queue(5)], begun), counts, "{peaks:?}");
            assert_eq!(limits.must_count(id, seen, begun), counts, "{peaks:?}");
            limits.were(&told(Peak::Made(5)), begun);
            assert!(limits.must_count(id, seen, begun), "it was another one, which is gone: {peaks:?}");
            let (soon, later) = (begun + SETTLES_IN / 2, begun + SETTLES_IN * 2);
            for (at, counts) in [(soon, true), (later, false)] {
                limits.heard(&[], begun);
                limits.heard(&[], at);
                limits.were(&told(Peak::Made(5)), at);
                limits.heard(&[queue(5)], at);
                let seen = Seen { read: Some(at), ..Seen::default() };
                assert_eq!(limits.must_count(id, seen, at), counts, "one before it was there: {peaks:?}");
            }
        }
    }

    #[test]
    fn nobody_has_to_hear_of_a_change_where_nobody_is() {
        let begun = Instant::now();
        let mut limits = Limits::default();
        limits.met(false);
        limits.looked(true, begun);
        assert!(limits.heard(&[queue(5)], begun));
        assert!(!limits.heard(&[queue(5)], begun + HEARD_WITHIN));
        let alone = |at: Instant| Seen { read: Some(begun), has_others: false, alone: Some(at) };
        let later = begun + Duration::from_millis(9);
        assert!(limits.must_count(queue(5).id, alone(begun), later), "somebody may have come meanwhile");
        assert!(!limits.must_count(queue(5).id, alone(later), later));
    }

    #[test]
    fn tasks_are_counted_where_somebody_knows_nothing_of_slots_or_nothing_is_known() {
        let begun = Instant::now();
        let later = begun + SETTLES_IN;
        let mut limits = Limits::default();
        limits.heard(&[queue(5)], begun);
        let id = queue(5).id;
        let seen = |read: Instant| Seen { read: Some(read), ..Seen::default() };
        limits.looked(true, begun);
        assert!(limits.must_count(id, seen(later), later), "nobody has looked");
        limits.met(true);
        assert!(limits.must_count(id, seen(later), later));
        limits.met(false);
        assert!(!limits.must_count(id, seen(later), later));
        assert!(limits.must_count(id, Seen { has_others: true, ..seen(later) }, later), "a task has no slot");
        assert!(limits.must_count(id, seen(later - HEARD_WITHIN), later));
        assert!(limits.must_count(id, Seen::default(), later));
        limits.heard(&[], later);
        assert!(limits.must_count(id, seen(later), later), "it is gone");
    }

    #[test]
    fn tasks_are_counted_while_no_index_gives_each_slot_once() {
        let begun = Instant::now();
        let later = begun + SETTLES_IN;
        let mut limits = Limits::default();
        limits.heard(&[queue(5)], begun);
        limits.met(false);
        let count = |limits: &Limits| {
            limits.must_count(queue(5).id, Seen { read: Some(later), ..Seen::default() }, later)
        };
        assert!(count(&limits) && limits.want_look(begun), "nobody has looked");
        limits.looked(true, begun);
        assert!(!count(&limits) && !limits.want_look(begun));
        assert!(limits.want_look(begun + LOOK_EVERY));
        limits.looked(false, begun + LOOK_EVERY);
        assert!(count(&limits) && !limits.are_ours());
        limits.looked(true, begun + LOOK_EVERY * 2);
        assert!(!count(&limits));
    }
}
