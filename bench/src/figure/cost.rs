//! The CPU time of one task in a drain, by who has used it.

use crate::compare::{Finding, Goal};
use crate::results::{Results, Sample, Series};
use crate::world::processes::Cpu;

/// What a drain of so many tasks, so many at once, has used for each, in microseconds.
pub fn samples(figure: &'static str, (tasks, width): (u32, u32), used: Cpu) -> Vec<Sample> {
    let Cpu { den, runners, guards, plugins, mongod } = used;
    let by_whom = [
        ("node", "DEN, runners and guards", den + runners + guards),
        ("den", "DEN", den),
        ("runners", "runners", runners),
        ("guards", "guards", guards),
        ("plugins", "plugins", plugins),
        ("mongod", "mongod", mongod),
    ];
    let sample = |(key, label, seconds): (&str, &str, f64)| {
        series(figure, width, key, label).sample(seconds * 1_000_000.0 / f64::from(tasks))
    };
    by_whom.into_iter().map(sample).collect()
}

/// What DEN, runners and guards are to use for a task at most, in microseconds.
pub fn finding(results: &Results, figure: &'static str, width: u32, most: f64) -> Finding {
    let label = format!("DEN, runners and guards, {width} wide, CPU of each task, us");
    let values = results.values(&series(figure, width, "node", "")).to_vec();
    Finding::new(format!("node_cpu_us_{width}_wide"), label, values).with(Goal::AtMost(most))
}

fn series(figure: &'static str, width: u32, key: &str, label: &str) -> Series {
    Series {
        figure,
        key: format!("{key}_{width}_wide_cpu_us").into(),
        label: format!("{label}, {width} wide, CPU of each task, us").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_shared_by_all_tasks_and_plugins_are_not_the_node() {
        let mut results = Results::default();
        let used = Cpu { den: 0.5, runners: 1.0, guards: 0.5, plugins: 4.0, mongod: 3.0 };
        results.add(samples("f", (4_000, 8), used));
        let node = finding(&results, "f", 8, 250.0);
        assert_eq!((&node.values[..], node.is_reached()), (&[500.0][..], Some(false)));
        assert_eq!(finding(&results, "f", 8, 500.0).is_reached(), Some(true));
        assert_eq!(results.values(&series("f", 8, "mongod", "")), [750.0]);
        assert!(finding(&results, "f", 64, 250.0).values.is_empty());
    }
}
