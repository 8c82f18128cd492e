//! Drains by several systems in turn, and what they say.

use crate::compare::{Finding, Goal, ratio};
use crate::figure::Turn;
use crate::peer::Peer;
use crate::results::{Results, Sample, Series};
use crate::statistics::rate;

/// Who drains.
#[derive(Debug, Clone, Copy)]
pub enum Entrant {
    /// Nobody: bare processes.
    Floor,
    /// Disbatch.
    Ours,
    /// Disbatch, by its plugin that runs a command.
    Shell,
    Peer(&'static Peer),
}

impl Entrant {
    pub const fn key(self) -> &'static str {
        match self {
            Self::Floor => "floor",
            Self::Ours => "disbatch",
            Self::Shell => "disbatch_shell",
            Self::Peer(peer) => peer.key,
        }
    }

    pub const fn label(self) -> &'static str {
        match self {
            Self::Floor => "floor, bare processes",
            Self::Ours => "Disbatch",
            Self::Shell => "Disbatch, Shell plugin",
            Self::Peer(peer) => peer.label,
        }
    }

    /// Its speed at one width.
    pub fn series(self, figure: &'static str, width: u32) -> Series {
        Series {
            figure,
            key: format!("{}_{width}_wide_per_second", self.key()).into(),
            label: format!("{}, {width} wide, per second", self.label()).into(),
        }
    }
}

/// The order of a round: everybody begins in turn, so that who comes after whom is not always the same.
pub fn order<T: Clone>(entrants: &[T], round: u32) -> Vec<T> {
    let mut order = entrants.to_vec();
    let first = usize::try_from(round).unwrap_or_default() % order.len().max(1);
    order.rotate_left(first);
    order
}

/// Drains in several ways, one after the other. `begin` names one while it is measured, `drained` gives its seconds.
pub async fn drains<T: Copy>(
    turn: Turn<'_>,
    tasks: u32,
    ways: &[T],
    (begin, series): (impl Fn(T) -> String, impl Fn(T) -> Series),
    drained: impl AsyncFn(T) -> anyhow::Result<f64>,
) -> anyhow::Result<Vec<Sample>> {
    let mut samples = Vec::new();
    for way in order(ways, turn.round) {
        turn.begin(&begin(way));
        let seconds = Box::pin(drained(way)).await?;
        let new: Vec<Sample> =
            rate(tasks, seconds).map(|rate| series(way).sample(rate)).into_iter().collect();
        turn.end(&new);
        samples.extend(new);
    }
    Ok(samples)
}

/// A drain by a peer, with as many jobs as suit it where we drain `tasks`. Nothing, if it is left out.
pub async fn peer_drain(
    turn: Turn<'_>,
    figure: &'static str,
    peer: &'static Peer,
    (tasks, width): (u32, u32),
) -> Option<Sample> {
    let speed = turn.world.peers.drain(peer, peer.jobs(tasks), width).await?;
    Some(Entrant::Peer(peer).series(figure, width).sample(speed))
}

/// The widths at which we were measured.
pub fn widths(results: &Results, figure: &str) -> Vec<u32> {
    widths_of(results, figure, Entrant::Ours.key())
}

/// The widths at which the one with this key was measured.
pub fn widths_of(results: &Results, figure: &str, key: &str) -> Vec<u32> {
    let width = |series: &Series| {
        let rest = series.key.strip_prefix(key)?.strip_prefix('_')?;
        rest.strip_suffix("_wide_per_second")?.parse().ok()
    };
    results
        .summaries()
        .filter(|(series, ..)| series.figure == figure)
        .filter_map(|(series, ..)| width(series))
        .collect()
}

/// Our speed as a multiple of another's.
pub fn times(
    results: &Results,
    figure: &'static str,
    (other, width): (Entrant, u32),
    goal: Option<Goal>,
) -> Finding {
    let values = ratio(results, &Entrant::Ours.series(figure, width), &other.series(figure, width));
    let key = format!("over_{}_{width}_wide", other.key());
    Finding { goal, ..Finding::new(key, format!("Disbatch / {}, {width} wide", other.label()), values) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::RQ;

    #[test]
    fn everybody_begins_once() {
        let entrants = [Entrant::Floor, Entrant::Ours, Entrant::Peer(&RQ)];
        let firsts: Vec<_> = (0..4).map(|round| order(&entrants, round)[0].key()).collect();
        assert_eq!(firsts, ["floor", "disbatch", "rq", "floor"]);
    }

    #[test]
    fn widths_are_those_of_our_own_drains() {
        let mut results = Results::default();
        for (entrant, figure, width) in [
            (Entrant::Ours, "f", 8),
            (Entrant::Shell, "f", 128),
            (Entrant::Floor, "f", 16),
            (Entrant::Ours, "g", 32),
            (Entrant::Ours, "f", 64),
        ] {
            results.add(vec![entrant.series(figure, width).sample(1.0)]);
        }
        results.add(vec![Series::fixed("f", "disbatch_8_wide_first_tenth_per_second", "").sample(1.0)]);
        assert_eq!(widths(&results, "f"), [8, 64]);
        assert_eq!(widths_of(&results, "f", "floor"), [16]);
        let finding = times(&results, "f", (Entrant::Floor, 16), Some(Goal::AtLeast(0.5)));
        assert!(finding.values.is_empty());
    }
}
