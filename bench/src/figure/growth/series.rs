//! What is measured at each number of tasks, and how it is compared.

use crate::compare::{Finding, Goal};
use crate::results::{Results, Series};
use crate::statistics::Summary;

use super::NAME;

/// No cost grows by more than this from none to all.
const MOST: f64 = 1.3;

/// Something that is measured at each number of tasks.
#[derive(Debug, Clone, Copy)]
pub struct Cost {
    /// Its name for programs, with the unit at the end.
    pub key: &'static str,
    pub label: &'static str,
    /// Whether its p95 is compared, too.
    p95: bool,
    /// Whether it is to stay as it is.
    flat: bool,
}

const fn cost(key: &'static str, label: &'static str) -> Cost {
    Cost { key, label, p95: false, flat: true }
}

pub const CLAIM_ONE: Cost = cost("claim_1_us", "claim of a task, us");
pub const CLAIM: Cost = cost("claim_8_us", "claim of 8 tasks, us");
pub const WRITE: Cost = cost("write_8_us", "start and end of 8 tasks, us");
pub const DRAIN: Cost = cost("drain_us_per_task", "drain by a DEN, us per task");
pub const QUEUES: Cost = Cost { p95: true, ..cost("get_queues_us", "GET /queues, us") };
pub const PLUGINS: Cost = Cost { flat: false, ..cost("get_plugins_us", "GET /plugins, us") };
pub const FIRST_PAGE: Cost = Cost { p95: true, ..cost("first_page_us", "GET /tasks, first page, us") };
pub const NEXT_PAGE: Cost = Cost { p95: true, ..cost("next_page_us", "GET /tasks, next page, us") };
pub const LOOK: Cost = cost("look_us", "look of an idle DEN, us");
pub const OPERATIONS: Cost = cost("idle_operations_per_second", "idle DEN, database operations/s");
pub const DATABASE: Cost = cost("idle_database_us_per_second", "idle DEN, time in the database, us/s");

/// Compared with [`CLAIM`] at 0.
pub const DEEP: Cost = cost("deep_claim_8_us", "claim of 8 tasks, many queued, us");

const ALL: [Cost; 11] =
    [CLAIM_ONE, CLAIM, WRITE, DRAIN, QUEUES, PLUGINS, FIRST_PAGE, NEXT_PAGE, LOOK, OPERATIONS, DATABASE];

impl Cost {
    /// Its values with so many finished tasks.
    pub fn at(self, level: u32) -> Series {
        Series {
            figure: NAME,
            key: format!("{}_at_{level}", self.key).into(),
            label: format!("{}, {level} finished", self.label).into(),
        }
    }
}

fn levels(results: &Results) -> Vec<u32> {
    let level = |series: &Series| {
        let level = series.key.strip_prefix(CLAIM.key)?.strip_prefix("_at_")?;
        level.parse().ok().filter(|_| series.figure == NAME)
    };
    results.summaries().filter_map(|(series, ..)| level(series)).collect()
}

/// Each cost as a multiple of what it was with no finished tasks.
pub fn findings(results: &Results) -> Vec<Finding> {
    let levels = levels(results);
    let Some(most) = levels.last().copied().filter(|level| *level > 0) else { return Vec::new() };
    let summary = |cost: Cost, level| Summary::of(results.values(&cost.at(level)));
    let mut findings = Vec::new();
    let mut compare = |(above, below): (Cost, Cost), level: u32, what: &str, of: fn(Summary) -> f64| {
        let Some((below, value)) = summary(below, 0).zip(summary(above, level)) else { return };
        let key = format!("{}{}_grows_to_{level}", above.key, what.replace(", ", "_"));
        let label = format!("{}{what}: with {level} / with 0", above.label);
        let goal = Some(Goal::AtMost(MOST)).filter(|_| above.flat && level == most);
        findings.push(Finding { goal, ..Finding::new(key, label, vec![of(value) / of(below)]) });
    };
    for cost in ALL {
        for level in levels.iter().copied().filter(|level| *level > 0) {
            compare((cost, cost), level, "", |summary| summary.median);
            if cost.p95 {
                compare((cost, cost), level, ", p95", |summary| summary.p95);
            }
        }
    }
    compare((DEEP, CLAIM), most, "", |summary| summary.median);
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_number_has_the_goal() {
        let mut results = Results::default();
        for (level, value) in [(0, 100.0), (50, 120.0), (500, 140.0)] {
            for cost in [CLAIM, QUEUES, PLUGINS] {
                results.add(vec![cost.at(level).sample(value)]);
            }
        }
        results.add(vec![DEEP.at(500).sample(110.0)]);
        let findings = findings(&results);
        let found = |key: &str| {
            let found = findings.iter().find(|finding| finding.key == key).unwrap();
            (found.values.clone(), found.is_reached())
        };
        assert_eq!(found("claim_8_us_grows_to_50"), (vec![1.2], None));
        assert_eq!(found("claim_8_us_grows_to_500"), (vec![1.4], Some(false)));
        assert_eq!(found("get_queues_us_p95_grows_to_500"), (vec![1.4], Some(false)));
        assert_eq!(found("get_plugins_us_grows_to_500"), (vec![1.4], None));
        assert_eq!(found("deep_claim_8_us_grows_to_500"), (vec![1.1], Some(true)));
    }
}
