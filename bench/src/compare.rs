//! Figures set against each other, and against what others have measured. Pure.

use crate::figure::{drain, floor};
use crate::results::Results;

/// Tasks in a second that Perl Disbatch 4.103 ran: one DEN, 8 threads, the Demo plugin, MongoDB 6.0.5. A
/// recorded figure from another run on a 2-core machine; it is not measured here.
pub const PERL_DISBATCH_TASKS_PER_SECOND: f64 = 3.2;

/// How many times as fast as Perl Disbatch this is meant to be, at least.
pub const GOAL_TIMES_PERL: f64 = 20.0;

/// One figure as a multiple of another.
#[derive(Debug, Clone)]
pub struct Ratio {
    /// Its name for programs.
    pub key: &'static str,
    /// Its name for people.
    pub label: &'static str,
    /// One value a round.
    pub values: Vec<f64>,
}

/// Tasks in a second as a share of the bare processes in a second of the same round.
pub fn share_of_floor(results: &Results) -> Ratio {
    let drained = results.values(&drain::RATE);
    let bare = results.values(&floor::RATE);
    let values = drained.iter().zip(bare).map(|(drained, bare)| drained / bare).collect();
    Ratio { key: "share_of_floor", label: "drain / floor", values }
}

/// Tasks in a second as a multiple of Perl Disbatch's.
pub fn times_perl(results: &Results) -> Ratio {
    let values =
        results.values(&drain::RATE).iter().map(|rate| rate / PERL_DISBATCH_TASKS_PER_SECOND).collect();
    Ratio { key: "times_perl_disbatch_4_103", label: "drain / Perl Disbatch 4.103", values }
}

/// The speed of the end of a drain as a share of that of its beginning: 1 where nothing decays.
pub fn decay(results: &Results) -> Ratio {
    let (first, last) = (results.values(&drain::FIRST_TENTH), results.values(&drain::LAST_TENTH));
    // A round that was too short to have one of the two has neither.
    let values = first.iter().zip(last).map(|(first, last)| last / first).collect();
    Ratio { key: "last_tenth_over_first_tenth", label: "drain, last tenth / first tenth", values }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::results::Sample;

    #[test]
    fn rounds_are_compared_with_themselves() {
        let mut results = Results::default();
        for (drained, bare) in [(64.0, 640.0), (32.0, 64.0)] {
            results.add(vec![
                Sample { series: &drain::RATE, value: drained },
                Sample { series: &floor::RATE, value: bare },
            ]);
        }
        assert_eq!(share_of_floor(&results).values, [0.1, 0.5]);
        assert_eq!(times_perl(&results).values, [20.0, 10.0]);
        assert!(decay(&results).values.is_empty());
    }
}
