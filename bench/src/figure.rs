//! What is measured. Each figure has a file with its series, how it is measured, the measurement, what follows
//! from it, and the goals; at its end is a `FIGURE`, which [`ALL`] lists.

pub mod contention;
mod contest;
mod cost;
pub mod drained;
pub mod engines;
pub mod fair;
pub mod fleet;
pub mod footprint;
pub mod gridfs;
pub mod growth;
pub mod inbox;
pub mod latency;
pub mod observed;
pub mod pages;
pub mod processes;
pub mod queues;
pub mod recorded;
pub mod scrape;
pub mod shares;
pub mod simulation;
pub mod warm;
pub mod warm_batch;

use futures::future::LocalBoxFuture;

use crate::args::Args;
use crate::compare::Finding;
use crate::progress::Progress;
use crate::results::{Results, Sample};
use crate::world::World;

/// All figures, in the order of a round.
pub static ALL: &[Figure] = &[
    processes::FIGURE,
    observed::FIGURE,
    recorded::FIGURE,
    warm::FIGURE,
    warm_batch::FIGURE,
    latency::FIGURE,
    drained::FIGURE,
    inbox::FIGURE,
    fleet::FIGURE,
    engines::FIGURE,
    queues::FIGURE,
    pages::FIGURE,
    scrape::FIGURE,
    growth::FIGURE,
    gridfs::FIGURE,
    contention::FIGURE,
    fair::FIGURE,
    footprint::FIGURE,
    shares::FIGURE,
    simulation::FIGURE,
];

#[derive(Debug)]
pub struct Figure {
    /// Its name, on the command line too.
    pub name: &'static str,
    pub method: &'static str,
    pub rounds: Rounds,
    /// Measures it once. An error means that something did not work.
    pub measure: for<'a> fn(Turn<'a>) -> Measurement<'a>,
    /// What follows from all rounds, with the goals. It may look at other figures' results.
    pub findings: fn(&Results) -> Vec<Finding>,
}

pub type Measurement<'a> = LocalBoxFuture<'a, anyhow::Result<Vec<Sample>>>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rounds {
    Every,
    /// In the first one alone, where it takes several samples.
    First,
}

/// What a figure measures with.
#[derive(Debug, Clone, Copy)]
pub struct Turn<'a> {
    pub world: &'a World,
    pub args: &'a Args,
    pub progress: &'a Progress,
    /// What has been measured before.
    pub results: &'a Results,
    /// The number of the round, from 0. Systems take turns by it.
    pub round: u32,
}

impl Turn<'_> {
    /// Says what is going on.
    pub fn begin(self, what: &str) {
        self.progress.begin(&format!("round {}/{}, {what}", self.round + 1, self.args.rounds));
    }

    /// Says what came out of it: the first series stands for all.
    pub fn end(self, samples: &[Sample]) {
        self.progress.end(&format!("round {}/{}", self.round + 1, self.args.rounds), samples);
    }
}
