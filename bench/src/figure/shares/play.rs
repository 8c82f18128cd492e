//! A queue on paper: tasks come, places become free, and the same functions as in a DEN say who is next.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use disbatch_core::fair::shares::{Shares, decayed};
use disbatch_core::fair::turns::{Listed, Pointer, Waiter, take};
use disbatch_core::fair::{HALF_LIFE, Settings};

use super::load::Load;
use crate::simulation::station::{Time, seconds};

/// What is used is looked at so often, in nanoseconds: as a DEN does.
const FRESH: Time = 1_000_000_000;

/// What a task is charged when it is given, in seconds.
const USUAL: f64 = 10.0;

/// Who is next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// The task that came first.
    Fifo,
    /// The group whose turn it is.
    Turns,
    /// The group that has used the least.
    Use,
}

impl Order {
    pub const ALL: [Self; 3] = [Self::Fifo, Self::Turns, Self::Use];

    pub const fn name(self) -> &'static str {
        match self {
            Self::Fifo => "fifo",
            Self::Turns => "turns",
            Self::Use => "use",
        }
    }
}

#[derive(Debug)]
pub struct Played {
    /// How long each task waited, in seconds.
    pub waits: Vec<f64>,
    /// How many tasks of another group were started at most while a group waited for its next.
    pub most_between: usize,
}

/// Runs all tasks in so many places.
pub fn play(load: &Load, places: usize, order: Order) -> Played {
    let mut queue = Queue::new(load);
    let mut waits = vec![0.0; load.jobs.len()];
    let mut jobs = load.jobs.iter().enumerate().peekable();
    loop {
        let comes = jobs.peek().map(|(_, job)| job.comes);
        let ends = queue.runs.peek().map(|Reverse((end, _))| *end);
        let Some(now) = comes.into_iter().chain(ends).min() else { break };
        while let Some((number, job)) = jobs.next_if(|(_, job)| job.comes <= now) {
            queue.comes(number, job.group);
        }
        while queue.runs.peek().is_some_and(|Reverse((end, _))| *end <= now) {
            queue.ends(now);
        }
        while queue.runs.len() < places
            && let Some(job) = queue.starts(order, now)
        {
            waits[job] = seconds(now - load.jobs[job].comes);
        }
    }
    Played { waits, most_between: queue.watch.most }
}

struct Queue<'a> {
    load: &'a Load,
    /// The numbers of groups by their names.
    numbers: HashMap<Arc<str>, usize>,
    /// The tasks of each group.
    waiting: Vec<VecDeque<usize>>,
    /// The groups of all tasks, in the order in which these came.
    line: VecDeque<usize>,
    /// What runs, and until when.
    runs: BinaryHeap<Reverse<(Time, usize)>>,
    pointer: Pointer,
    listed: Listed,
    /// What each group has used, and as of when.
    used: Vec<(f64, Time)>,
    shares: Option<(Shares, Time)>,
    watch: Watch,
}

impl<'a> Queue<'a> {
    fn new(load: &'a Load) -> Self {
        let groups = load.groups.len();
        Self {
            load,
            numbers: load.groups.iter().cloned().zip(0..).collect(),
            waiting: vec![VecDeque::new(); groups],
            line: VecDeque::new(),
            runs: BinaryHeap::new(),
            pointer: Pointer::default(),
            listed: Listed::default(),
            used: vec![(0.0, 0); groups],
            shares: None,
            watch: Watch { started: vec![Vec::new(); groups], since: vec![0; groups], count: 0, most: 0 },
        }
    }

    fn comes(&mut self, job: usize, group: usize) {
        if self.waiting[group].is_empty() {
            self.listed.groups.insert(Arc::clone(&self.load.groups[group]));
            self.watch.waits(group);
        }
        self.waiting[group].push_back(job);
        self.line.push_back(group);
    }

    /// The task that is done first ends.
    fn ends(&mut self, now: Time) {
        let Some(Reverse((_, job))) = self.runs.pop() else { return };
        let job = self.load.jobs[job];
        let (used, at) = &mut self.used[job.group];
        *used = decayed(*used, Duration::from_nanos(now - *at), HALF_LIFE) + seconds(job.takes);
        *at = now;
    }

    fn starts(&mut self, order: Order, now: Time) -> Option<usize> {
        let group = match order {
            Order::Fifo => self.line.pop_front(),
            Order::Turns => self.by_turns(),
            Order::Use => self.by_use(now),
        }?;
        let job = self.waiting[group].pop_front()?;
        if self.waiting[group].is_empty() {
            self.listed.groups.remove(&self.load.groups[group]);
        }
        self.watch.starts(group);
        self.runs.push(Reverse((now + self.load.jobs[job].takes, job)));
        Some(job)
    }

    fn by_turns(&mut self) -> Option<usize> {
        let taken = take(&self.pointer, &self.listed, |_| Waiter { weight: 1, room: u64::MAX }, 1);
        let turn = taken.turns.first()?;
        let group = self.numbers.get(&turn.group).copied();
        self.pointer = taken.pointer;
        group
    }

    fn by_use(&mut self, now: Time) -> Option<usize> {
        let is_fresh = self.shares.as_ref().is_some_and(|(_, at)| now - at < FRESH);
        if is_fresh && let Some(group) = self.least_used() {
            return Some(group);
        }
        // Nobody that is known waits: somebody may have come.
        self.look(now);
        self.least_used()
    }

    fn least_used(&mut self) -> Option<usize> {
        let (numbers, waiting) = (&self.numbers, &self.waiting);
        let may = |group: &str| numbers.get(group).is_some_and(|number| !waiting[*number].is_empty());
        let (shares, _) = self.shares.as_mut()?;
        let group = shares.next(USUAL, may)?;
        numbers.get(&group).copied()
    }

    /// Looks at what groups have used, and what they have running.
    fn look(&mut self, now: Time) {
        let so_far = |(used, at): &(f64, Time)| decayed(*used, Duration::from_nanos(now - at), HALF_LIFE);
        let mut used: Vec<f64> = self.used.iter().map(so_far).collect();
        for Reverse((end, job)) in &self.runs {
            let job = self.load.jobs[*job];
            let ran = job.takes.saturating_sub(end.saturating_sub(now));
            used[job.group] += seconds(ran).max(USUAL);
        }
        let known = self.load.groups.iter().zip(&used).zip(&self.waiting);
        let waiting = known.filter(|(_, tasks)| !tasks.is_empty());
        let groups = waiting.map(|((group, used), _)| (Arc::clone(group), *used));
        let of_tenant = |tenant: &str| self.numbers.get(tenant).map_or(0.0, |number| used[*number]);
        self.shares = Some((Shares::new(groups, of_tenant, &Settings::default()), now));
    }
}

/// Counts what others get while a group waits.
struct Watch {
    /// With which start each task of each group was started.
    started: Vec<Vec<usize>>,
    /// Since which start each group has waited for its next.
    since: Vec<usize>,
    count: usize,
    most: usize,
}

impl Watch {
    fn waits(&mut self, group: usize) {
        self.since[group] = self.count;
    }

    fn starts(&mut self, group: usize) {
        let since = self.since[group];
        let others = self.started.iter().enumerate().filter(|(other, _)| *other != group);
        let between = others.map(|(_, starts)| starts.len() - starts.partition_point(|at| *at < since));
        self.most = self.most.max(between.max().unwrap_or(0));
        self.started[group].push(self.count);
        self.count += 1;
        self.since[group] = self.count;
    }
}

#[cfg(test)]
mod tests {
    use super::super::load::load;
    use super::*;
    use crate::simulation::random::Random;

    #[test]
    fn groups_that_take_turns_wait_for_one_task_of_each_other_at_most() {
        let load = load(60, 2_000, &mut Random::new(3));
        let most = Order::ALL.map(|order| play(&load, 4, order).most_between);
        assert!(most[0] > 100, "{most:?}");
        assert_eq!(most[1], 1);
    }

    #[test]
    fn small_groups_wait_less_where_the_queue_is_fair() {
        let load = load(60, 2_000, &mut Random::new(3));
        let small = |order| {
            let waits = play(&load, 4, order).waits.into_iter().zip(&load.jobs);
            waits.filter(|(_, job)| job.group >= 50).map(|(wait, _)| wait).sum::<f64>()
        };
        assert!(small(Order::Turns) * 3.0 < small(Order::Fifo));
        assert!(small(Order::Use) * 3.0 < small(Order::Fifo));
    }

    #[test]
    fn no_place_is_left_free_while_something_waits() {
        // The tasks of one group: in whichever order, they are the same.
        let load = load(1, 50, &mut Random::new(5));
        let waits = Order::ALL.map(|order| play(&load, 3, order).waits);
        assert_eq!(waits[0], waits[1]);
        assert_eq!(waits[0], waits[2]);
        assert_eq!(waits[0].iter().filter(|wait| **wait <= 0.0).count(), 3);
    }
}
