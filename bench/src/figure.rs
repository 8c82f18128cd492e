//! What is measured. Each figure has a file with its series, how it is measured, and the measurement.

pub mod drain;
pub mod floor;
pub mod latency;
pub mod queues;

use bson::{Document, doc};

use crate::progress::Progress;
use crate::results::Sample;
use crate::world::World;

/// The plugin of all tasks.
pub const PLUGIN: &str = "Disbatch::Plugin::Demo";

/// How much work a round has.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Tasks, or processes.
    pub tasks: u32,
    /// How many run at once.
    pub threads: u32,
}

/// A figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Figure {
    /// Tasks in a second.
    Drain,
    /// Bare processes in a second.
    Floor,
    /// From submission to start.
    Latency,
    /// Counting the tasks of all queues.
    Queues,
}

impl Figure {
    /// All of them, in the order of a round.
    pub const ALL: [Self; 4] = [Self::Drain, Self::Floor, Self::Latency, Self::Queues];

    /// Its name, on the command line too.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Drain => drain::NAME,
            Self::Floor => floor::NAME,
            Self::Latency => latency::NAME,
            Self::Queues => queues::NAME,
        }
    }

    /// How it is measured.
    pub const fn method(self) -> &'static str {
        match self {
            Self::Drain => drain::METHOD,
            Self::Floor => floor::METHOD,
            Self::Latency => latency::METHOD,
            Self::Queues => queues::METHOD,
        }
    }

    /// Whether every round has it; else the first one alone, which takes several samples.
    pub const fn in_every_round(self) -> bool {
        match self {
            Self::Drain | Self::Floor => true,
            Self::Latency | Self::Queues => false,
        }
    }

    /// Measures it once.
    ///
    /// # Errors
    /// Something did not work.
    pub async fn measure(
        self,
        world: &World,
        load: Load,
        progress: &Progress,
    ) -> anyhow::Result<Vec<Sample>> {
        match self {
            Self::Drain => drain::measure(world, load, progress).await,
            Self::Floor => floor::measure(world, load).await,
            Self::Latency => latency::measure(world, load, progress).await,
            Self::Queues => queues::measure(world, progress).await,
        }
    }
}

/// What a task is to do: print one line.
fn params() -> Document {
    doc! { "commands": "a", "noreport": 1 }
}
