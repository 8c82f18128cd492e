//! A few numbers that stand for many. Pure.

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Summary {
    pub median: f64,
    pub p95: f64,
    pub min: f64,
    pub max: f64,
}

impl Summary {
    /// `None` when there are no values.
    pub fn of(values: &[f64]) -> Option<Self> {
        let mut sorted = values.to_vec();
        sorted.sort_by(f64::total_cmp);
        let (min, max) = (*sorted.first()?, *sorted.last()?);
        let (low, high) = (sorted[(sorted.len() - 1) / 2], sorted[sorted.len() / 2]);
        // Nearest rank: the smallest value that 95 % do not exceed.
        let p95 = sorted[(sorted.len() * 95).div_ceil(100) - 1];
        Some(Self { median: f64::midpoint(low, high), p95, min, max })
    }
}

/// How many in a second when `count` took `seconds`. `None` when it took no time that could be measured.
pub fn rate(count: u32, seconds: f64) -> Option<f64> {
    (seconds > 0.0).then(|| f64::from(count) / seconds)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summaries_of_few_and_many_values() {
        assert_eq!(Summary::of(&[]), None);
        assert_eq!(Summary::of(&[3.0]), Some(Summary { median: 3.0, p95: 3.0, min: 3.0, max: 3.0 }));
        let even = Summary::of(&[4.0, 1.0, 3.0, 2.0]);
        assert_eq!(even, Some(Summary { median: 2.5, p95: 4.0, min: 1.0, max: 4.0 }));
        let many: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(Summary::of(&many), Some(Summary { median: 50.5, p95: 95.0, min: 1.0, max: 100.0 }));
    }

    #[test]
    fn no_time_has_no_rate() {
        assert_eq!(rate(10, 2.0), Some(5.0));
        assert_eq!(rate(10, 0.0), None);
    }
}
