//! The fleet in time: each event is taken in its turn and makes others.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use super::plan::Load;
use super::random::Random;
use super::station::{Station, Time, seconds, time};
use super::{Assumptions, Scenario, Wakes};

/// A node takes so many tasks at once at most.
const BATCH: usize = 64;

/// Nodes look by themselves so often.
const LOOK: f64 = 1.0;

/// So many of the nodes that have a free place are told of a task at once.
pub const PROMPT: u32 = 4;

#[derive(Debug, Clone, Default)]
pub struct Outcome {
    /// Seconds from the call that submits to the start, of all tasks after the first tenth of the time, in order.
    pub waits: Vec<f64>,
    pub submitted: usize,
    pub started: usize,
    /// Which share of the cores' time was used while tasks came, change streams included.
    pub used: f64,
    /// Times that a node asked and got nothing, for each task.
    pub fruitless: f64,
}

impl Outcome {
    /// So many of a hundred waits are at most this. `None`: there are none.
    pub fn percentile(&self, percent: usize) -> Option<f64> {
        self.waits.get((self.waits.len() * percent).div_ceil(100).saturating_sub(1)).copied()
    }
}

/// Lets tasks come for so many seconds, and all of them end.
pub fn simulate(
    assumptions: &Assumptions,
    scenario: Scenario,
    shards: u32,
    length: f64,
    seed: u64,
) -> Outcome {
    let mut fleet = Fleet::new(assumptions, scenario, shards, length, seed);
    fleet.begin();
    while let Some(Reverse((now, _, event))) = fleet.events.pop() {
        fleet.take_event(now, event);
    }
    fleet.outcome.waits.sort_by(f64::total_cmp);
    fleet.outcome
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A task is submitted.
    Submit,
    /// It is stored, and can be claimed.
    Stored { submitted: Time, shard: usize },
    /// A node looks whether there is anything.
    Look(usize),
    /// A node was told of a task, and asks all queues.
    Ask(usize),
    /// It has the answers, or a place has become free, and it takes what waits.
    Take(usize),
    /// A task ends on its node.
    End { node: usize, shard: usize },
    /// Its end is stored.
    Freed(usize),
    /// No more tasks come.
    Close,
}

/// What a node is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Doing {
    Nothing,
    /// It will ask.
    Waiting,
    /// It asks or takes; whether there was another hint meanwhile.
    Working {
        again: bool,
    },
}

#[derive(Debug)]
struct Node {
    free: u32,
    doing: Doing,
    /// It gathers hints until then.
    gathers: Time,
    launches: Station,
}

#[derive(Debug, Clone, Copy)]
struct Waiting {
    submitted: Time,
    shard: usize,
}

struct Fleet<'a> {
    a: &'a Assumptions,
    scenario: Scenario,
    random: Random,
    events: BinaryHeap<Reverse<(Time, u64, Event)>>,
    /// Events at the same time keep their order.
    number: u64,
    nodes: Vec<Node>,
    shards: Vec<Station>,
    waiting: VecDeque<Waiting>,
    end: Time,
    /// How much longer everything takes because of change streams.
    slower: f64,
    streams: f64,
    asked_for_nothing: u32,
    outcome: Outcome,
}

impl<'a> Fleet<'a> {
    fn new(a: &'a Assumptions, scenario: Scenario, shards: u32, length: f64, seed: u64) -> Self {
        let node = |_| Node { free: a.places, doing: Doing::Nothing, gathers: 0, launches: Station::new(1) };
        let streams = Load::of(a, scenario).streams / f64::from(shards * a.cores);
        Self {
            a,
            scenario,
            random: Random::new(seed),
            events: BinaryHeap::new(),
            number: 0,
            nodes: (0..scenario.nodes).map(node).collect(),
            shards: (0..shards).map(|_| Station::new(a.cores)).collect(),
            waiting: VecDeque::new(),
            end: time(length),
            slower: 1.0 / (1.0 - streams).max(0.01),
            streams,
            asked_for_nothing: 0,
            outcome: Outcome::default(),
        }
    }

    fn at(&mut self, when: Time, event: Event) {
        self.number += 1;
        self.events.push(Reverse((when, self.number, event)));
    }

    fn begin(&mut self) {
        self.at(0, Event::Submit);
        self.at(self.end, Event::Close);
        for node in 0..self.nodes.len() {
            let first = time(self.random.share() * LOOK);
            self.at(first, Event::Look(node));
        }
    }

    /// What a shard needs for so many microseconds of work.
    fn serve(&mut self, shard: usize, now: Time, micros: f64) -> Time {
        let takes = time(micros * self.slower / 1e6);
        self.shards.get_mut(shard).map_or(now, |station| station.serve(now, takes))
    }

    fn take_event(&mut self, now: Time, event: Event) {
        match event {
            Event::Submit => self.submit(now),
            Event::Stored { submitted, shard } => {
                self.waiting.push_back(Waiting { submitted, shard });
                if self.scenario.wakes == Wakes::Streams {
                    self.tell_some(now);
                }
            }
            Event::Look(node) => self.look(now, node),
            Event::Ask(node) => self.ask(now, node),
            Event::Take(node) => self.take(now, node),
            Event::End { node, shard } => {
                let stored = self.serve(shard, now, self.a.run_us / 3.0) + self.round_trip();
                self.at(stored, Event::Freed(node));
            }
            Event::Freed(node) => self.freed(now, node),
            Event::Close => self.close(now),
        }
    }

    fn round_trip(&self) -> Time {
        time(self.a.round_trip_ms / 1e3)
    }

    fn submit(&mut self, now: Time) {
        if now >= self.end {
            return;
        }
        self.outcome.submitted += 1;
        let shard = self.random.below(self.shards.len());
        let stored = self.serve(shard, now, self.a.submit_us) + self.round_trip();
        self.at(stored, Event::Stored { submitted: now, shard });
        let next = now + time(self.random.exponential(1.0 / self.scenario.rate()));
        self.at(next, Event::Submit);
    }

    /// A hint for some nodes with a free place.
    fn tell_some(&mut self, now: Time) {
        let told = now + time(self.a.hint_ms / 1e3);
        let with_room = self.nodes.iter().enumerate().filter(|(_, node)| node.free > 0);
        let some: Vec<usize> = with_room.map(|(number, _)| number).take(PROMPT as usize).collect();
        for number in some {
            let Some(node) = self.nodes.get_mut(number) else { continue };
            match node.doing {
                Doing::Nothing => {
                    node.doing = Doing::Waiting;
                    let when = told.max(node.gathers);
                    self.at(when, Event::Ask(number));
                }
                Doing::Working { .. } => node.doing = Doing::Working { again: true },
                Doing::Waiting => {}
            }
        }
    }

    /// A node looks, and asks every queue if there is something.
    fn look(&mut self, now: Time, number: usize) {
        if now < self.end || self.outcome.started < self.outcome.submitted {
            self.at(now + time(LOOK), Event::Look(number));
        }
        let is_idle = |node: &&mut Node| node.doing == Doing::Nothing && node.free > 0;
        let Some(node) = self.nodes.get_mut(number).filter(is_idle) else { return };
        node.doing = Doing::Working { again: false };
        let mut answered = self.serve(number % self.shards.len().max(1), now, self.a.own_look_us);
        if !self.waiting.is_empty() {
            answered = self.ask_all(answered);
        }
        self.at(answered + self.round_trip(), Event::Take(number));
    }

    /// A node that was told of a task asks every queue.
    fn ask(&mut self, now: Time, number: usize) {
        let Some(node) = self.nodes.get_mut(number) else { return };
        if node.free == 0 {
            node.doing = Doing::Nothing;
            return;
        }
        node.doing = Doing::Working { again: false };
        let answered = self.ask_all(now);
        self.at(answered + self.round_trip(), Event::Take(number));
    }

    /// Returns when all queues have been asked but for the last way back.
    fn ask_all(&mut self, now: Time) -> Time {
        let shards = u32::try_from(self.shards.len()).unwrap_or(1);
        let each = self.a.fruitless_us * f64::from(self.a.queues) / f64::from(shards);
        let answers = (0..self.shards.len()).map(|shard| self.serve(shard, now, each));
        let answered = answers.max().unwrap_or(now);
        answered + self.round_trip() * u64::from(self.a.queues.saturating_sub(1))
    }

    /// A node claims what waits, as far as it has places, and starts it.
    fn take(&mut self, now: Time, number: usize) {
        let Some(free) = self.nodes.get(number).map(|node| node.free) else { return };
        let most = BATCH.min(usize::try_from(free).unwrap_or(BATCH)).min(self.waiting.len());
        let batch: Vec<Waiting> = self.waiting.drain(..most).collect();
        let mut claimed = now;
        for task in &batch {
            claimed = claimed.max(self.serve(task.shard, now, self.a.run_us * 2.0 / 3.0));
        }
        // Claim, confirmation and start are commands one after the other.
        claimed += self.round_trip() * 3;
        for task in batch {
            self.start(claimed, number, task);
        }
        let left = !self.waiting.is_empty();
        let gathered = now + time(self.a.gather_ms / 1e3);
        let Some(node) = self.nodes.get_mut(number) else { return };
        let again = node.doing == Doing::Working { again: true };
        if most == 0 {
            node.gathers = gathered;
            self.asked_for_nothing += 1;
        }
        if left && node.free > 0 {
            self.at(claimed, Event::Take(number));
        } else if again && node.free > 0 {
            node.doing = Doing::Waiting;
            let when = node.gathers.max(claimed);
            self.at(when, Event::Ask(number));
        } else {
            node.doing = Doing::Nothing;
        }
    }

    fn start(&mut self, claimed: Time, number: usize, task: Waiting) {
        let runs = time(self.random.exponential(self.a.task_seconds));
        let takes = time(1.0 / self.a.starts_per_second);
        let Some(node) = self.nodes.get_mut(number) else { return };
        node.free -= 1;
        let started = node.launches.serve(claimed, takes);
        self.outcome.started += 1;
        if task.submitted >= self.end / 10 {
            self.outcome.waits.push(seconds(started - task.submitted));
        }
        self.at(started + runs, Event::End { node: number, shard: task.shard });
    }

    /// A place is free: there may be a task for it.
    fn freed(&mut self, now: Time, number: usize) {
        let waits = !self.waiting.is_empty();
        let Some(node) = self.nodes.get_mut(number) else { return };
        node.free += 1;
        if waits && node.doing == Doing::Nothing {
            node.doing = Doing::Working { again: false };
            self.at(now, Event::Take(number));
        }
    }

    fn close(&mut self, now: Time) {
        let busy: f64 = self.shards.iter().map(|shard| seconds(shard.busy())).sum();
        let all =
            seconds(now) * f64::from(self.a.cores) * f64::from(u32::try_from(self.shards.len()).unwrap_or(1));
        // What is slower because of change streams does not need more.
        self.outcome.used = busy / self.slower / all + self.streams;
        let tasks = u32::try_from(self.outcome.submitted).unwrap_or(u32::MAX).max(1);
        self.outcome.fruitless = f64::from(self.asked_for_nothing) / f64::from(tasks);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::simulation::plan::used_nodes;

    fn scenario(nodes: u32, wakes: Wakes) -> Scenario {
        Scenario { nodes, millions: 5, factor: 1.0, wakes }
    }

    #[test]
    fn every_task_starts_once() {
        let a = Assumptions::default();
        for wakes in [Wakes::Streams, Wakes::Looks] {
            for nodes in [1, 7, 40] {
                let outcome = simulate(&a, scenario(nodes, wakes), 3, 30.0, 1);
                assert!(outcome.submitted > 1_000);
                assert_eq!(outcome.started, outcome.submitted, "{nodes} nodes, {wakes:?}");
                assert!(outcome.waits.iter().all(|wait| *wait > 0.0));
            }
        }
    }

    #[test]
    fn the_same_seed_is_the_same_run() {
        let a = Assumptions::default();
        let run = |seed| simulate(&a, scenario(5, Wakes::Streams), 2, 10.0, seed).waits;
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
    }

    #[test]
    fn one_place_is_a_line_as_the_formula_says() {
        // One node with one place and costs that are nearly nothing: M/M/1.
        let a = Assumptions {
            places: 1,
            task_seconds: 0.5,
            starts_per_second: 1e9,
            round_trip_ms: 0.0,
            hint_ms: 0.0,
            gather_ms: 0.0,
            submit_us: 0.0,
            run_us: 0.0,
            stream_us: 0.0,
            fruitless_us: 0.0,
            ..Assumptions::default()
        };
        let scenario = Scenario { nodes: 1, millions: 1, factor: 0.1, wakes: Wakes::Streams };
        let used = used_nodes(&a, scenario);
        let waits = simulate(&a, scenario, 1, 200_000.0, 5).waits;
        let count = f64::from(u32::try_from(waits.len()).unwrap());
        let (mean, exact) = (waits.iter().sum::<f64>() / count, used / (1.0 - used) * a.task_seconds);
        assert!((mean / exact - 1.0).abs() < 0.05, "{mean}, by the formula {exact}");
    }

    #[test]
    fn without_hints_a_task_waits_for_the_next_look() {
        let a = Assumptions::default();
        // So few tasks that hardly any ends, after which the node would look at once, while another one waits.
        let quiet = |wakes| Scenario { nodes: 1, millions: 1, factor: 0.02, wakes };
        let median = |wakes| simulate(&a, quiet(wakes), 1, 5_000.0, 2).percentile(50).unwrap();
        let (streams, looks) = (median(Wakes::Streams), median(Wakes::Looks));
        assert!(streams < 0.05 && (0.2..0.9).contains(&looks), "{streams} {looks}");
    }
}
