//! When the node's loop does what, for how long it leaves alone what fails, and the clock of leases.

use std::time::{Duration, Instant};

/// The interval of the loop (Disbatch 4 design, Overview).
pub const INTERVAL: Duration = Duration::from_secs(1);

/// The interval of what may wait while hints come, and of heartbeats while the node polls and has no tasks.
const SLOW: Duration = Duration::from_secs(2);

/// How many heartbeats there are in a lease at least.
const BEATS: u32 = 4;

/// How many looks for lapsed leases there are in a lease at least.
const LOOKS: u32 = 6;

const QUICK: Duration = Duration::from_millis(100);

/// The shortest time from one look to the next that something due calls for.
const SOON: Duration = Duration::from_millis(200);

/// After hints that led to no claim, the next ones are gathered for so long.
const GATHER: Duration = Duration::from_millis(10);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Situation {
    /// A change stream tells of new tasks.
    pub hints: bool,
    /// One tells other nodes of them, and this one of what else changes.
    pub others_wait: bool,
    pub occupied: bool,
    /// There are tasks to claim, and no place for them.
    pub waiting: bool,
}

impl Situation {
    /// Whether new tasks are told to this node or to others.
    pub fn is_somebody_told(self) -> bool {
        self.hints || self.others_wait
    }
}

/// The times of the loop. Pure: times and what was found in, the time of the next look out.
///
/// A heartbeat and a look at what time has brought about cost an operation each. An idle node pays two
/// operations per second for both at most; one that works looks oftener.
#[derive(Debug, Default)]
pub struct Pace {
    lease: Duration,
    pub situation: Situation,
    beat: Option<Instant>,
    look: Option<Instant>,
    due: Option<Instant>,
    hurry: bool,
    /// The interval of looks after something was claimed: it grows back to the usual one.
    quick: Option<Duration>,
    gather: Option<Instant>,
    /// When a rate or a ramp lets the next task start.
    start: Option<Instant>,
}

impl Pace {
    /// Everything is due.
    pub fn new(lease: Duration) -> Self {
        Self { lease, ..Self::default() }
    }

    pub fn wants_beat(&self, now: Instant) -> bool {
        self.next_beat().is_none_or(|at| at <= now)
    }

    pub fn beaten(&mut self, now: Instant) {
        self.beat = Some(now);
    }

    pub fn wants_look(&self, now: Instant) -> bool {
        self.next_look().is_none_or(|at| at <= now)
    }

    /// The node has looked around. `next` is the time until the next task is due, `again` whether it had
    /// something to do that may have more behind it.
    pub fn looked(&mut self, now: Instant, next: Option<Duration>, again: bool) {
        self.look = Some(now);
        self.due = next.and_then(|next| now.checked_add(next));
        self.hurry = again;
        let slower = |quick: Duration| Some(quick * 2).filter(|quick| *quick < INTERVAL);
        self.quick = self.quick.and_then(slower);
    }

    /// There may be something due that the last look has not seen.
    pub fn hurry(&mut self) {
        self.hurry = true;
    }

    /// Hints were followed, and `claimed` tasks came of it.
    pub fn followed_hints(&mut self, now: Instant, claimed: usize) {
        self.gather = (claimed == 0).then(|| now + GATHER);
    }

    /// Tasks were claimed: without hints it is looked for more of them sooner.
    pub fn claimed(&mut self) {
        self.quick = Some(QUICK);
    }

    /// Tasks may be started at that time that may not be now.
    pub fn starts_at(&mut self, at: Option<Instant>) {
        self.start = at;
    }

    /// Whether that time has come. It is said once.
    pub fn may_start(&mut self, now: Instant) -> bool {
        self.start.take_if(|at| *at <= now).is_some()
    }

    pub fn follows_hints(&self, now: Instant) -> bool {
        self.gather.is_none_or(|until| until <= now)
    }

    /// How long to sleep at `now` if nothing wakes the node. `hinted`: there are hints to follow.
    pub fn wait(&self, now: Instant, hinted: bool) -> Duration {
        let gathered = if hinted { Some(self.gather.unwrap_or(now)) } else { None };
        let times = [self.next_beat().or(Some(now)), self.next_look().or(Some(now)), gathered, self.start];
        let next = times.into_iter().flatten().min().unwrap_or(now);
        next.saturating_duration_since(now)
    }

    fn next_beat(&self) -> Option<Instant> {
        let every = if self.situation.hints || self.situation.occupied || self.situation.waiting {
            INTERVAL
        } else {
            SLOW
        };
        Some(self.beat? + every.min(self.lease / BEATS))
    }

    fn next_look(&self) -> Option<Instant> {
        let last = self.look?;
        let mut every = (self.lease / LOOKS).max(SOON);
        every = every.min(if self.situation.hints && !self.situation.waiting { SLOW } else { INTERVAL });
        if let Some(quick) = self.quick.filter(|_| !self.situation.is_somebody_told()) {
            every = every.min(quick);
        }
        let mut next = last + every;
        if self.hurry {
            next = next.min(last + SOON);
        }
        Some(self.due.map_or(next, |due| next.min(due.max(last + QUICK))))
    }
}

/// Whether something was done last so long ago. Then it is done now.
pub fn is_due(last: &mut Option<Instant>, every: Duration, now: Instant) -> bool {
    let is_due = last.is_none_or(|at| now.saturating_duration_since(at) >= every);
    if is_due {
        *last = Some(now);
    }
    is_due
}

/// Doubles the pause after each failure, up to a longest one, and forgets all about it after a success.
#[derive(Debug)]
pub struct Backoff {
    first: Duration,
    longest: Duration,
    pause: Duration,
    until: Option<Instant>,
}

impl Backoff {
    pub fn new(first: Duration, longest: Duration) -> Self {
        Self { first, longest, pause: first, until: None }
    }

    /// Something failed at `now`. Returns the pause before it should be tried again.
    ///
    /// Failures within a pause belong to the one that began it: ten launches that fail together do not make
    /// the pause a thousand times longer.
    pub fn failed(&mut self, now: Instant) -> Duration {
        if let Some(left) = self.left(now) {
            return left;
        }
        let pause = self.pause;
        self.until = Some(now + pause);
        self.pause = (pause * 2).min(self.longest);
        pause
    }

    pub fn worked(&mut self) {
        self.pause = self.first;
        self.until = None;
    }

    /// How long to wait still at `now`, `None` if it may be tried again.
    pub fn left(&self, now: Instant) -> Option<Duration> {
        let left = self.until?.saturating_duration_since(now);
        (!left.is_zero()).then_some(left)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LEASE: Duration = Duration::from_secs(30);

    /// Follows the pace for so long. Returns the number of heartbeats and the times of looks.
    fn follow(pace: &mut Pace, begin: Instant, time: Duration) -> (usize, Vec<Duration>) {
        let (mut now, mut beats, mut looks) = (begin, 0, Vec::new());
        while now < begin + time {
            if pace.wants_beat(now) {
                pace.beaten(now);
                beats += 1;
            }
            if pace.wants_look(now) {
                pace.looked(now, None, false);
                looks.push(now - begin);
            }
            let wait = pace.wait(now, false);
            assert!(!wait.is_zero(), "it must not spin");
            now += wait;
        }
        (beats, looks)
    }

    fn pace(lease: Duration, situation: Situation) -> Pace {
        let mut pace = Pace::new(lease);
        pace.situation = situation;
        pace
    }

    const IDLE: Situation = Situation { hints: true, others_wait: false, occupied: false, waiting: false };

    #[test]
    fn an_idle_node_pays_less_than_two_operations_per_second() {
        let minute = Duration::from_secs(60);
        let count = |situation| {
            let (beats, looks) = follow(&mut pace(LEASE, situation), Instant::now(), minute);
            (beats, looks.len())
        };
        assert_eq!(count(IDLE), (60, 30));
        assert_eq!(count(Situation { hints: false, ..IDLE }), (30, 60));
        let others_wait = Situation { hints: false, others_wait: true, ..IDLE };
        assert_eq!(count(others_wait), (30, 60), "and 30 questions for changes");
        assert_eq!(count(Situation { occupied: true, ..IDLE }), (60, 30));
        assert_eq!(count(Situation { hints: false, occupied: true, ..IDLE }), (60, 60));
        assert_eq!(count(Situation { waiting: true, ..IDLE }), (60, 60));
    }

    #[test]
    fn a_short_lease_makes_all_of_it_quicker() {
        let second = Duration::from_secs(1);
        let (beats, looks) = follow(&mut pace(second, IDLE), Instant::now(), second * 10);
        assert_eq!((beats, looks.len()), (40, 50));
        let (beats, looks) = follow(&mut pace(second * 3, IDLE), Instant::now(), second * 9);
        assert_eq!((beats, looks.len()), (12, 18));
    }

    #[test]
    fn without_hints_looks_are_quick_after_a_claim_and_slow_down() {
        let mut polls = pace(LEASE, Situation { hints: false, ..IDLE });
        polls.claimed();
        let (_, looks) = follow(&mut polls, Instant::now(), Duration::from_secs(4));
        let gaps: Vec<u128> = looks.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect();
        assert_eq!(gaps, [200, 400, 800, 1_000, 1_000]);
        let mut hinted = pace(LEASE, IDLE);
        hinted.claimed();
        let (_, looks) = follow(&mut hinted, Instant::now(), Duration::from_secs(4));
        assert_eq!(looks, [Duration::ZERO, Duration::from_secs(2)]);
    }

    #[test]
    fn what_is_due_is_looked_for_in_time_and_without_a_spin() {
        let now = Instant::now();
        let mut pace = pace(LEASE, IDLE);
        pace.beaten(now);
        pace.looked(now, Some(Duration::from_millis(700)), false);
        assert_eq!(pace.wait(now, false), Duration::from_millis(700));
        pace.looked(now, Some(Duration::from_millis(1)), false);
        assert_eq!(pace.wait(now, false), QUICK);
        pace.looked(now, Some(Duration::MAX), false);
        assert_eq!(pace.next_look(), Some(now + SLOW));
        pace.looked(now, None, true);
        assert_eq!(pace.wait(now, false), SOON);
        pace.looked(now, None, false);
        pace.hurry();
        assert!(!pace.wants_look(now + SOON - Duration::from_millis(1)));
        assert!(pace.wants_look(now + SOON));
    }

    #[test]
    fn hints_are_followed_at_once_unless_the_last_ones_led_to_nothing() {
        let now = Instant::now();
        let mut pace = pace(LEASE, IDLE);
        pace.beaten(now);
        pace.looked(now, None, false);
        assert_eq!(pace.wait(now, true), Duration::ZERO);
        pace.followed_hints(now, 1);
        assert!(pace.follows_hints(now));
        pace.followed_hints(now, 0);
        assert!(!pace.follows_hints(now));
        assert_eq!(pace.wait(now, true), GATHER);
        assert!(pace.follows_hints(now + GATHER));
    }

    #[test]
    fn it_wakes_when_the_next_start_is_possible_and_once() {
        let now = Instant::now();
        let mut pace = pace(LEASE, IDLE);
        pace.beaten(now);
        pace.looked(now, None, false);
        assert_eq!(pace.wait(now, false), INTERVAL);
        let soon = now + Duration::from_millis(130);
        pace.starts_at(Some(soon));
        assert_eq!(pace.wait(now, false), Duration::from_millis(130));
        assert!(!pace.may_start(soon - Duration::from_millis(1)));
        assert!(pace.may_start(soon) && !pace.may_start(soon));
        assert_eq!(pace.wait(soon, false), INTERVAL - Duration::from_millis(130));
        pace.starts_at(None);
        assert!(!pace.may_start(soon));
    }

    #[test]
    fn what_is_due_now_and_then_is_due_at_first() {
        let (mut last, now) = (None, Instant::now());
        let mut is_due = |later| is_due(&mut last, SLOW, now + later);
        assert!(is_due(Duration::ZERO));
        assert!(!is_due(SLOW / 2) && is_due(SLOW));
    }

    #[test]
    fn pauses_double_up_to_the_longest_and_end_with_success() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(5));
        let mut now = Instant::now();
        assert_eq!(backoff.left(now), None);
        for expected in [1, 2, 4, 5, 5] {
            assert_eq!(backoff.failed(now), Duration::from_secs(expected));
            assert_eq!(backoff.left(now), Some(Duration::from_secs(expected)));
            now += Duration::from_secs(expected);
            assert_eq!(backoff.left(now), None);
        }
        backoff.worked();
        assert_eq!(backoff.failed(now), Duration::from_secs(1));
    }

    #[test]
    fn failures_within_a_pause_count_once() {
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(60));
        let now = Instant::now();
        backoff.failed(now);
        let later = now + Duration::from_millis(400);
        assert_eq!(backoff.failed(later), Duration::from_millis(600));
        assert_eq!(backoff.failed(now + Duration::from_secs(1)), Duration::from_secs(2));
    }
}
