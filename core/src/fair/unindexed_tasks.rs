//! Tasks that the index of a policy does not have, as they have no group or no priority: Perl's programs give them none.
//!
//! They are found by reading the queue in the order of ids, with whatever else is in it. Where what was read had none of
//! them, and others wait that the index has, this rests for [`REST`] times as long as it took, so that it costs such a
//! queue next to nothing. So a task without a group is found at once in a queue where there are many of them, and later in
//! a long one where there are few.

use std::time::{Duration, Instant};

use bson::oid::ObjectId;

use super::order::Candidate;

/// So many tasks are read at once, at least.
const CHUNK: usize = 256;

/// So many chunks are read for one question, at most.
const CHUNKS: usize = 4;

/// Fruitless reading takes one part in so many of the time.
const REST: u32 = 20;

/// How long what comes behind the mark by now may wait, at least and at most.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// Reading all of it once more is no burden if it takes so long.
const CHEAP: Duration = Duration::from_millis(50);

#[derive(Debug, Default)]
pub(super) struct Plain {
    /// Found and not tried yet, in the order of ids.
    pub found: Vec<Candidate>,
    mark: Option<ObjectId>,
    /// There was nothing behind the mark.
    at_end: bool,
    /// How long reading has taken since it began at the start.
    spent: Duration,
    /// When all was read, and how long that took.
    passed: Option<(Instant, Duration)>,
    /// Nothing is read before that time.
    rests: Option<Instant>,
    /// When it was last looked behind the mark.
    looked: Option<Instant>,
    /// Something may have come, at whatever place.
    stale: bool,
}

#[derive(Debug, Default)]
pub(super) struct Search {
    wanted: usize,
    /// Whether there are other tasks, so that there is no hurry.
    others: bool,
    chunks: usize,
    from_start: bool,
    past_mark: bool,
}

/// What is to be read: tasks past an id, so many at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Reading {
    pub past: Option<ObjectId>,
    pub limit: usize,
}

impl Search {
    /// So many are wanted now, beside others or not.
    pub fn want(&mut self, wanted: usize, others: bool) {
        (self.wanted, self.others, self.chunks) = (wanted, others, 0);
    }
}

impl Plain {
    /// Something may have been put back, or is new.
    pub fn look_back(&mut self) {
        self.stale = true;
    }

    /// What is to be read next for `search`; `None`: nothing, take what there is.
    pub fn reading(&mut self, search: &mut Search, now: Instant) -> Option<Reading> {
        let rests = search.others && self.rests.is_some_and(|until| until > now);
        if self.found.len() >= search.wanted || search.chunks >= CHUNKS || rests {
            return None;
        }
        if self.at_end {
            if !search.from_start && self.may_begin_again(search, now) {
                (self.mark, self.at_end, self.spent) = (None, false, Duration::ZERO);
                self.found.clear();
                search.from_start = true;
            } else if search.past_mark || !self.may_look(search, now) {
                return None;
            }
        } else if self.mark.is_none() {
            search.from_start = true;
        }
        search.chunks += 1;
        Some(Reading { past: self.mark, limit: CHUNK.max(search.wanted) })
    }

    /// What was read: how many tasks, the last of them, and those of them that are wanted.
    pub fn read(
        &mut self,
        search: &mut Search,
        (limit, last, tasks): (usize, Option<ObjectId>, usize),
        found: Vec<Candidate>,
        (began, ended): (Instant, Instant),
    ) {
        let took = ended.saturating_duration_since(began);
        let was_at_end = std::mem::replace(&mut self.at_end, tasks < limit);
        self.spent += took;
        if self.at_end {
            search.past_mark = true;
            self.looked = Some(ended);
            if !was_at_end {
                self.passed = Some((ended, self.spent));
                self.stale = false;
            }
        }
        self.rests = found.is_empty().then(|| ended + took * (REST - 1));
        self.mark = last.or(self.mark);
        self.found.extend(found);
    }

    /// Whether there are none, as far as `search` could tell.
    pub fn is_exhausted(&self, search: &Search) -> bool {
        self.found.is_empty() && self.at_end && search.past_mark
    }

    fn may_begin_again(&self, search: &Search, now: Instant) -> bool {
        self.passed.is_none_or(|(at, took)| {
            let since = now.saturating_duration_since(at);
            let nothing = !search.others && self.found.is_empty() && search.past_mark;
            since >= (took * 50).clamp(AGAIN.0, AGAIN.1)
                || (self.stale && since >= took * REST)
                || (nothing && took <= CHEAP && since >= took)
        })
    }

    fn may_look(&self, search: &Search, now: Instant) -> bool {
        let is_old = |at: Instant| now.saturating_duration_since(at) >= AGAIN.0;
        self.stale || !search.others || self.looked.is_none_or(is_old)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A queue: ids, and whether they are wanted.
    struct Queue(Vec<(u32, bool)>);

    fn id(number: u32) -> ObjectId {
        ObjectId::from_parts(number, [0; 5], [0; 3])
    }

    fn asking(wanted: usize, others: bool) -> Search {
        Search { wanted, others, ..Search::default() }
    }

    impl Queue {
        /// Asks for so many; each reading takes a millisecond. Returns how many chunks were read.
        fn ask(&self, plain: &mut Plain, search: &mut Search, now: &mut Instant) -> usize {
            let mut chunks = 0;
            while let Some(reading) = plain.reading(search, *now) {
                let past = |number: u32| reading.past.is_none_or(|past| id(number) > past);
                let read: Vec<&(u32, bool)> =
                    self.0.iter().filter(|(number, _)| past(*number)).take(reading.limit).collect();
                let found = read.iter().filter(|(_, wanted)| *wanted);
                let found =
                    found.map(|(n, _)| Candidate { task: id(*n), priority: 0, again: false }).collect();
                let began = *now;
                *now += Duration::from_millis(1);
                let last = read.last().map(|(number, _)| id(*number));
                plain.read(search, (reading.limit, last, read.len()), found, (began, *now));
                chunks += 1;
            }
            chunks
        }
    }

    #[test]
    fn where_all_are_wanted_they_are_read_as_they_are_needed() {
        let queue = Queue((0..3_000).map(|number| (number, true)).collect());
        let (mut plain, mut now, mut had) = (Plain::default(), Instant::now(), Vec::new());
        while had.len() < 3_000 {
            let mut search = asking(100, false);
            queue.ask(&mut plain, &mut search, &mut now);
            assert!(plain.found.len() >= 100);
            had.extend(plain.found.drain(..100));
        }
        let ids: Vec<ObjectId> = had.iter().map(|task| task.task).collect();
        assert_eq!(ids, (0..3_000).map(id).collect::<Vec<_>>());
    }

    #[test]
    fn where_none_is_wanted_reading_rests_and_goes_on_to_the_end() {
        let queue = Queue((0..10_000).map(|number| (number, number == 9_000)).collect());
        let (mut plain, mut now) = (Plain::default(), Instant::now());
        let begun = now;
        assert_eq!(queue.ask(&mut plain, &mut asking(1, true), &mut now), 1);
        assert_eq!(queue.ask(&mut plain, &mut asking(1, true), &mut now), 0, "it rests");
        while plain.found.is_empty() {
            now += Duration::from_millis(1);
            queue.ask(&mut plain, &mut asking(1, true), &mut now);
        }
        let chunks = u32::try_from(9_000 / CHUNK + 1).unwrap();
        let took = now - begun;
        assert!(took <= Duration::from_millis(1) * chunks * (REST + 1), "{took:?}");
        assert!(took >= Duration::from_millis(1) * (chunks - 1) * (REST - 1), "{took:?}");
    }

    #[test]
    fn what_is_new_or_put_back_is_found() {
        let mut queue = Queue((10..20).map(|number| (number, false)).collect());
        let (mut plain, mut now) = (Plain::default(), Instant::now());
        let mut search = asking(1, false);
        queue.ask(&mut plain, &mut search, &mut now);
        assert!(plain.is_exhausted(&search));
        queue.0.push((30, true));
        queue.ask(&mut plain, &mut asking(1, false), &mut now);
        assert_eq!(plain.found.remove(0).task, id(30));
        // An old one; nobody says so, and nothing else waits.
        queue.0.insert(0, (5, true));
        queue.ask(&mut plain, &mut asking(1, false), &mut now);
        assert_eq!(plain.found.remove(0).task, id(5));
        // The same where others wait: at once when told, and soon anyway.
        queue.0.insert(0, (4, true));
        now += Duration::from_millis(100);
        queue.ask(&mut plain, &mut asking(1, true), &mut now);
        plain.found.clear();
        plain.look_back();
        now += Duration::from_millis(100);
        queue.ask(&mut plain, &mut asking(1, true), &mut now);
        assert_eq!(plain.found.first().map(|task| task.task), Some(id(4)));
        plain.found.clear();
        now += AGAIN.1;
        queue.ask(&mut plain, &mut asking(1, true), &mut now);
        assert_eq!(plain.found.first().map(|task| task.task), Some(id(4)));
    }
}
