//! Measured values, by what they are values of.

use std::borrow::Cow;

use crate::statistics::Summary;

/// Something that is measured. Its figure and its key tell it from all others.
#[derive(Debug, Clone)]
pub struct Series {
    pub figure: &'static str,
    /// Its name for programs, with the unit at the end.
    pub key: Cow<'static, str>,
    /// Its name for people, with the unit.
    pub label: Cow<'static, str>,
}

impl Series {
    /// One that is known beforehand.
    pub const fn fixed(figure: &'static str, key: &'static str, label: &'static str) -> Self {
        Self { figure, key: Cow::Borrowed(key), label: Cow::Borrowed(label) }
    }

    /// A value of this series, in the unit that it names.
    pub fn sample(&self, value: f64) -> Sample {
        Sample { series: self.clone(), value }
    }
}

impl PartialEq for Series {
    fn eq(&self, other: &Self) -> bool {
        (self.figure, &self.key) == (other.figure, &other.key)
    }
}

impl Eq for Series {}

#[derive(Debug, Clone)]
pub struct Sample {
    pub series: Series,
    /// The value, in the unit that the series names.
    pub value: f64,
}

/// All measured values, in the order in which their series were first seen.
#[derive(Debug, Default)]
pub struct Results(Vec<(Series, Vec<f64>)>);

impl Results {
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
        self.0.iter().find(|(known, _)| known == series).map_or(&[], |(_, values)| values)
    }

    /// Every series with its values and what is said of them.
    pub fn summaries(&self) -> impl Iterator<Item = (&Series, &[f64], Summary)> {
        self.0.iter().filter_map(|(series, values)| Some((series, &values[..], Summary::of(values)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_kept_by_series() {
        static ONE: Series = Series::fixed("f", "one_ms", "one, ms");
        static TWO: Series = Series::fixed("f", "two_ms", "two, ms");
        let mut results = Results::default();
        for value in [3.0, 1.0] {
            results.add(vec![TWO.sample(value), ONE.sample(value * 10.0)]);
        }
        assert_eq!(results.values(&ONE), [30.0, 10.0]);
        let keys: Vec<_> = results.summaries().map(|(series, _, _)| series.key.as_ref()).collect();
        assert_eq!(keys, ["two_ms", "one_ms"]);
        assert!(results.values(&Series::fixed("f", "none", "")).is_empty());
        assert!(results.values(&Series::fixed("g", "one_ms", "")).is_empty());
    }
}
