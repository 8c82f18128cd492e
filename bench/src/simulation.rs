//! A fleet on paper: nodes, shards and tasks as events in time, with costs that were measured or are assumed.
//!
//! What it is for: to see what breaks first where nobody has the machines to try it. What it is not: a forecast to the
//! millisecond. Everything it takes for granted is a field of [`Assumptions`]. Besides:
//!
//! - Tasks arrive at random (Poisson), each in one of the queues at random, and run for random times
//!   (exponential). `threads` never stands in the way.
//! - A shard is a primary with so many cores, which serves operations in their order; queues are spread evenly
//!   over shards. Disks, networks and elections are not part of it.
//! - A hint reaches all nodes at the same time. Each node with a free place then asks every queue; after that it takes what
//!   waits. Who comes late has asked for nothing, and gathers hints before it asks again.
//! - What DENs cost each other when they reach for the same tasks is in the measured cost of a task.
//! - Following the change streams takes its share of every shard's time.

pub mod cluster;
pub mod plan;
pub mod random;
pub mod station;
pub mod table;

/// What a site is like, and what things cost. Microseconds are those of one core of the database server.
#[derive(Debug, Clone, PartialEq)]
pub struct Assumptions {
    /// Cores of the primary of a shard.
    pub cores: u32,
    /// So much of their time may be used when the number of shards is chosen.
    pub most_used: f64,
    /// Tasks that a node runs at once.
    pub places: u32,
    /// How long a task runs on average, in seconds.
    pub task_seconds: f64,
    /// Queues with tasks.
    pub queues: u32,
    /// How much more is submitted in the busiest hour than on average.
    pub peak: f64,
    /// Tasks that a node can start in a second.
    pub starts_per_second: f64,
    /// The way of a command and its answer, in milliseconds.
    pub round_trip_ms: f64,
    /// From the acknowledgement of a task to the hint, in milliseconds.
    pub hint_ms: f64,
    /// For so long a node gathers hints after it has claimed nothing, in milliseconds.
    pub gather_ms: f64,
    /// Storing a new task, in microseconds.
    pub submit_us: f64,
    /// Claiming, starting and ending a task, with what claimers cost each other, in microseconds.
    pub run_us: f64,
    /// Telling one change stream that is waited at of all that is written for a task, or leaving it out, in microseconds.
    pub stream_us: f64,
    /// The same of a stream that is asked now and then, and of tasks tells nothing.
    pub asked_us: f64,
    /// Asking a queue that has nothing, in microseconds.
    pub fruitless_us: f64,
    /// The look, each second, of one of the few nodes that look for what any may do, in microseconds.
    pub look_us: f64,
    /// The look of another one.
    pub own_look_us: f64,
    /// The heartbeat of a node, each second, in microseconds.
    pub beat_us: f64,
    /// Connections of a node to the primary of a shard.
    pub connections: f64,
    /// Documents that are written for a task from its submission to its end.
    pub writes_per_task: f64,
}

impl Default for Assumptions {
    /// Where nothing was measured.
    fn default() -> Self {
        Self {
            cores: 16,
            most_used: 0.7,
            places: 64,
            task_seconds: 1.0,
            queues: 20,
            peak: 3.0,
            starts_per_second: 1_200.0,
            round_trip_ms: 0.3,
            hint_ms: 1.4,
            gather_ms: 10.0,
            submit_us: 200.0,
            run_us: 300.0,
            stream_us: 20.0,
            asked_us: 5.0,
            fruitless_us: 100.0,
            look_us: 3_000.0,
            own_look_us: 700.0,
            beat_us: 300.0,
            connections: 12.0,
            writes_per_task: 4.0,
        }
    }
}

/// How nodes learn of new tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wakes {
    /// By change streams at which a few wait, and by the looks of the others.
    Streams,
    /// By a look every second, as where there are no change streams.
    Looks,
}

/// A site of a certain size.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scenario {
    pub nodes: u32,
    /// Tasks in a day, in millions.
    pub millions: u32,
    /// How many times the average of a day is submitted at the time that is looked at.
    pub factor: f64,
    pub wakes: Wakes,
}

impl Scenario {
    /// Tasks that are submitted in a second.
    pub fn rate(self) -> f64 {
        f64::from(self.millions) * 1e6 / 86_400.0 * self.factor
    }
}
