//! What the measured values say: ratios of one to another, and whether they reach a goal. Pure.

use std::borrow::Cow;

use crate::results::{Results, Series};
use crate::statistics::Summary;

/// Something that follows from what was measured: the ratio of two series, mostly.
#[derive(Debug, Clone)]
pub struct Finding {
    pub key: Cow<'static, str>,
    pub label: Cow<'static, str>,
    /// One value a round.
    pub values: Vec<f64>,
    pub goal: Option<Goal>,
}

impl Finding {
    pub fn new(
        key: impl Into<Cow<'static, str>>,
        label: impl Into<Cow<'static, str>>,
        values: Vec<f64>,
    ) -> Self {
        Self { key: key.into(), label: label.into(), values, goal: None }
    }

    pub fn with(self, goal: Goal) -> Self {
        Self { goal: Some(goal), ..self }
    }

    /// Whether the goal is reached. `None` without a goal or without values.
    pub fn is_reached(&self) -> Option<bool> {
        Some(self.goal?.is_reached(Summary::of(&self.values)?))
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Goal {
    /// The median is at least this.
    AtLeast(f64),
    /// The median is more than this.
    MoreThan(f64),
    /// The median is at most this.
    AtMost(f64),
    /// 95 of 100 values are at most this.
    P95AtMost(f64),
}

impl Goal {
    fn is_reached(self, summary: Summary) -> bool {
        match self {
            Self::AtLeast(goal) => summary.median >= goal,
            Self::MoreThan(goal) => summary.median > goal,
            Self::AtMost(goal) => summary.median <= goal,
            Self::P95AtMost(goal) => summary.p95 <= goal,
        }
    }

    pub fn words(self) -> String {
        match self {
            Self::AtLeast(goal) => format!("at least {goal}"),
            Self::MoreThan(goal) => format!("more than {goal}"),
            Self::AtMost(goal) => format!("at most {goal}"),
            Self::P95AtMost(goal) => format!("p95 at most {goal}"),
        }
    }
}

/// One series as a multiple of another, round by round: each value by the one that was measured in its round.
pub fn ratio(results: &Results, above: &Series, below: &Series) -> Vec<f64> {
    // A round in which one of them was not measured ends the comparison.
    results.values(above).iter().zip(results.values(below)).map(|(above, below)| above / below).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rounds_are_compared_with_themselves() {
        static OURS: Series = Series::fixed("f", "ours", "");
        static FLOOR: Series = Series::fixed("f", "floor", "");
        let mut results = Results::default();
        for (ours, floor) in [(64.0, 640.0), (32.0, 64.0)] {
            results.add(vec![OURS.sample(ours), FLOOR.sample(floor)]);
        }
        assert_eq!(ratio(&results, &OURS, &FLOOR), [0.1, 0.5]);
        assert!(ratio(&results, &OURS, &Series::fixed("f", "none", "")).is_empty());
    }

    #[test]
    fn goals_are_about_the_median_or_the_p95() {
        let values: Vec<f64> = (1..=100).map(f64::from).collect(); // Median 50.5, p95 95.
        let finding = |goal| Finding::new("k", "l", values.clone()).with(goal).is_reached();
        assert_eq!(finding(Goal::AtLeast(50.5)), Some(true));
        assert_eq!(finding(Goal::MoreThan(50.5)), Some(false));
        assert_eq!(finding(Goal::AtMost(50.0)), Some(false));
        assert_eq!(finding(Goal::P95AtMost(95.0)), Some(true));
        assert_eq!(finding(Goal::P95AtMost(94.0)), Some(false));
        assert_eq!(Finding::new("k", "l", Vec::new()).with(Goal::AtLeast(1.0)).is_reached(), None);
        assert_eq!(Finding::new("k", "l", values.clone()).is_reached(), None);
    }
}
