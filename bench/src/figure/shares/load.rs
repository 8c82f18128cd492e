//! Who submits what: few groups have most of the tasks, as by Zipf's law, and most have few.

use std::sync::Arc;

use crate::simulation::random::Random;
use crate::simulation::station::{Time, time};

/// How fast the number of tasks falls with the rank of a group.
const FALLS: f64 = 1.1;

/// Groups come within so many seconds.
const WITHIN: f64 = 1_800.0;

/// The largest hundredth of them comes within so many.
const FIRST: f64 = 60.0;

/// How long tasks run on average, in seconds: those of each third group, and others.
const LONG: f64 = 20.0;
const SHORT: f64 = 5.0;

#[derive(Debug, Clone, Copy)]
pub struct Job {
    /// The number of its group.
    pub group: usize,
    /// When it is submitted.
    pub comes: Time,
    /// How long it runs.
    pub takes: Time,
}

#[derive(Debug)]
pub struct Load {
    /// The names of groups. Their order has nothing to do with how much they submit.
    pub groups: Vec<Arc<str>>,
    /// How many tasks each has.
    pub sizes: Vec<u32>,
    /// In the order in which they come.
    pub jobs: Vec<Job>,
}

/// So many groups, with about so many tasks. Each submits all that it has at once.
pub fn load(groups: u32, tasks: u32, random: &mut Random) -> Load {
    let part = |rank: u32| f64::from(rank).powf(-FALLS);
    let all: f64 = (1..=groups).map(part).sum();
    let mut load = Load { groups: Vec::new(), sizes: Vec::new(), jobs: Vec::new() };
    for (group, rank) in (1..=groups).enumerate() {
        let size = whole(f64::from(tasks) * part(rank) / all).max(1);
        let is_first = u64::from(rank) * 100 <= u64::from(groups);
        let comes = time(random.share() * if is_first { FIRST } else { WITHIN });
        let mean = if rank % 3 == 0 { LONG } else { SHORT };
        load.groups.push(Arc::from(format!("{:08x}-{rank}", random.below(1 << 31))));
        load.sizes.push(size);
        load.jobs.extend((0..size).map(|_| Job { group, comes, takes: time(random.exponential(mean)) }));
    }
    load.jobs.sort_by_key(|job| job.comes);
    load
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of a number of tasks")]
fn whole(number: f64) -> u32 {
    number as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_groups_have_most_tasks_and_each_has_one() {
        let load = load(1_000, 12_000, &mut Random::new(1));
        let of = |range: std::ops::Range<usize>| load.sizes[range].iter().sum::<u32>();
        assert!(of(0..50) > of(50..1_000) && load.sizes.iter().all(|size| *size > 0));
        assert!(load.sizes.is_sorted_by(|one, other| one >= other));
        assert!((10_000..=13_000).contains(&load.jobs.len()), "{}", load.jobs.len());
        assert!(load.jobs.is_sorted_by_key(|job| job.comes));
        assert_eq!(load.jobs.iter().filter(|job| job.group == 7).count(), load.sizes[7] as usize);
    }
}
