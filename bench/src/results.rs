//! Measured values, by what they are values of.

use crate::statistics::Summary;

/// Something that is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Series {
    /// The name of the figure that it belongs to.
    pub figure: &'static str,
    /// Its name for programs, with the unit at the end.
    pub key: &'static str,
    /// Its name for people, with the unit.
    pub label: &'static str,
}

/// One measured value.
#[derive(Debug, Clone, Copy)]
pub struct Sample {
    /// What was measured.
    pub series: &'static Series,
    /// The value, in the unit that the series names.
    pub value: f64,
}

/// All measured values, in the order in which their series were first seen.
#[derive(Debug, Default)]
pub struct Results(Vec<(&'static Series, Vec<f64>)>);

impl Results {
    /// Adds samples to their series.
    pub fn add(&mut self, samples: Vec<Sample>) {
        for Sample { series, value } in samples {
            match self.0.iter_mut().find(|(known, _)| *known == series) {
                Some((_, values)) => values.push(value),
                None => self.0.push((series, vec![value])),
            }
        }
    }

    /// The values of `series`, in the order in which they were measured.
    pub fn values(&self, series: &Series) -> &[f64] {
        self.0.iter().find(|(known, _)| *known == series).map_or(&[], |(_, values)| values)
    }

    /// Every series with its values and what is said of them.
    pub fn summaries(&self) -> impl Iterator<Item = (&'static Series, &[f64], Summary)> {
        self.0.iter().filter_map(|(series, values)| Some((*series, &values[..], Summary::of(values)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_kept_by_series() {
        static ONE: Series = Series { figure: "f", key: "one_ms", label: "one, ms" };
        static TWO: Series = Series { figure: "f", key: "two_ms", label: "two, ms" };
        let mut results = Results::default();
        for value in [3.0, 1.0] {
            results.add(vec![Sample { series: &TWO, value }, Sample { series: &ONE, value: value * 10.0 }]);
        }
        assert_eq!(results.values(&ONE), [30.0, 10.0]);
        let keys: Vec<_> = results.summaries().map(|(series, _, _)| series.key).collect();
        assert_eq!(keys, ["two_ms", "one_ms"]);
        assert!(results.values(&Series { key: "none", ..ONE }).is_empty());
    }
}
