//! When a run counts as slower or faster than another.

use disbatch_values::text::percent_more;

use super::Measured;

#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Thresholds {
    /// One is slower that took more than so many percent longer.
    pub slower_than: f64,
    /// One is faster that took more than so many percent less.
    pub faster_than: f64,
    /// What differs by no more seconds than this is neither.
    pub noise: f64,
}

impl Default for Thresholds {
    fn default() -> Self {
        Self { slower_than: 50.0, faster_than: 33.0, noise: 0.2 }
    }
}

/// What the time means that a run took.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Speed {
    Same,
    Faster,
    Slower,
}

impl Measured {
    /// Whether it took longer, or less long, by more than chance.
    pub fn speed(&self, bounds: &Thresholds) -> Speed {
        let (Some(was), Some(is)) = (self.was, self.is) else { return Speed::Same };
        if is - was > bounds.noise && is > was * (1.0 + bounds.slower_than / 100.0) {
            Speed::Slower
        } else if was - is > bounds.noise && is < was * (1.0 - bounds.faster_than / 100.0) {
            Speed::Faster
        } else {
            Speed::Same
        }
    }

    /// By how much it has changed, for people: `+5 %`. Empty: there is nothing to compare.
    pub fn change(&self) -> String {
        match (self.was, self.is) {
            (Some(was), Some(is)) if was > 0.0 => percent_more((is / was - 1.0) * 100.0),
            _ => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn milliseconds_and_parts_are_no_change() {
        let bounds = Thresholds { noise: 0.1, ..Thresholds::default() };
        let of = |was: f64, is: f64| Measured { was: Some(was), is: Some(is) }.speed(&bounds);
        for (was, is, speed) in [
            (0.002, 0.09, Speed::Same),
            (0.002, 0.2, Speed::Slower),
            (10.0, 14.0, Speed::Same),
            (10.0, 16.0, Speed::Slower),
            (10.0, 7.0, Speed::Same),
            (10.0, 6.0, Speed::Faster),
            (0.09, 0.001, Speed::Same),
        ] {
            assert_eq!(of(was, is), speed, "{was} {is}");
        }
        assert_eq!(Measured { was: None, is: Some(9.0) }.speed(&bounds), Speed::Same);
        assert_eq!(Measured { was: Some(2.0), is: Some(3.0) }.change(), "+50 %");
    }
}
