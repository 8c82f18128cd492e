//! `simulation`: what becomes of fleets that nobody has here, reckoned with what was measured in the same run.

mod costs;

use anyhow::Context;
use futures::FutureExt;

use crate::compare::Finding;
use crate::figure::{Figure, Rounds, Turn};
use crate::results::{Results, Sample, Series};
use crate::simulation::table::{Row, markdown, rows};
use crate::simulation::{Scenario, Wakes};
use costs::Costs;

pub const NAME: &str = "simulation";

const METHOD: &str = "discrete events, the same in each run: nodes, shards and tasks of fleets of 10 to 1,000 nodes and 1 to \
    100 million tasks a day, with tasks at random times, at the average of the day and at its busiest hour. Costs come from \
    the other figures of the run where these were measured, from this one (mongod's CPU for 2,000 tasks submitted one by \
    one and taken 8 at a time, without and with 32 change streams, which are waited at or asked now and then; for 2,000 claims from an empty queue, before and after, and for 2,000 looks of each kind), and are assumed \
    otherwise; the table beside the JSON file says which. Shards: as many as keep the busiest hour at 70 % of 16 cores";

pub const FIGURE: Figure = Figure {
    name: NAME,
    method: METHOD,
    rounds: Rounds::First,
    measure: |turn| measure(turn).boxed_local(),
    findings: |_: &Results| -> Vec<Finding> { Vec::new() },
};

async fn measure(turn: Turn<'_>) -> anyhow::Result<Vec<Sample>> {
    turn.begin(&format!("{NAME}: what things cost"));
    let (costs, mut samples) = Costs::measure(turn).await?;
    turn.begin(&format!("{NAME}: fleets"));
    let mut done = |number: usize, all: usize| {
        let count = |number| u64::try_from(number).unwrap_or_default();
        turn.progress.at(count(number), count(all));
    };
    // It keeps a core busy for a while; nothing else is measured meanwhile.
    let rows = rows(&costs.assumptions, &mut done);
    samples.extend(rows.iter().flat_map(of_row));
    let path = turn.args.json.with_extension("simulation.md");
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    std::fs::write(&path, markdown(&costs.assumptions, &costs.measured, &rows))
        .with_context(|| format!("cannot write {}", path.display()))?;
    turn.end(&samples);
    turn.progress.note(&format!("{NAME}: the table is in {}", path.display()));
    Ok(samples)
}

/// What is told of a site; the table has more.
fn of_row(row: &Row) -> Vec<Sample> {
    let series = |key: &str, label: &str| {
        let Scenario { nodes, millions, wakes, .. } = row.scenario;
        let (way, how) = match wakes {
            Wakes::Streams => ("streams", "change streams"),
            Wakes::Looks => ("looks", "looks"),
        };
        Series {
            figure: NAME,
            key: format!("{way}_{nodes}_nodes_{millions}_million_{key}").into(),
            label: format!("{nodes} nodes, {millions} million a day, {how}: {label}").into(),
        }
    };
    let mut samples = vec![series("shards", "shards").sample(f64::from(row.shards))];
    if let Some(peak) = &row.peak {
        let waits = [(50, "wait_p50_ms", "p50, ms"), (99, "wait_p99_ms", "p99, ms")];
        let wait = |(percent, key, label): (usize, &str, &str)| {
            Some(series(key, label).sample(peak.percentile(percent)? * 1e3))
        };
        samples.extend(waits.into_iter().filter_map(wait));
    }
    samples
}
