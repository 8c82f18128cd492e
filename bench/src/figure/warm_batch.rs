//! `warm-batch`: tasks that do nothing, in a plugin that is given many at a time.

use futures::FutureExt;

use crate::compare::{Finding, Goal};
use crate::figure::contest::{Entrant, widths};
use crate::figure::{Figure, Rounds, Turn, cost, warm};
use crate::results::{Results, Sample};
use crate::world::plugins::BATCH;

const NAME: &str = "warm-batch";

const METHOD: &str = "as `warm`, with the demo plugin declared as one that is given up to 64 tasks at a time";

pub const FIGURE: Figure = Figure {
    name: NAME,
    method: METHOD,
    rounds: Rounds::Every,
    measure: |turn| measure(turn).boxed_local(),
    findings,
};

/// What DEN, runner and guard may use for a task.
const NODE_MICROSECONDS: f64 = 60.0;

async fn measure(turn: Turn<'_>) -> anyhow::Result<Vec<Sample>> {
    let tasks = turn.args.tasks_or(50_000);
    let mut samples = Vec::new();
    for width in turn.args.widths_or(&[64]) {
        turn.begin(&format!("{NAME}: {width} wide"));
        let new = warm::ours(turn, (NAME, BATCH), (tasks, width)).await?;
        turn.end(&new);
        samples.extend(new);
    }
    Ok(samples)
}

fn findings(results: &Results) -> Vec<Finding> {
    let of_width = |width| {
        let ours = results.values(&Entrant::Ours.series(NAME, width)).to_vec();
        let label = format!("Disbatch, batches, {width} wide, per second");
        let speed = Finding::new(format!("per_second_{width}_wide"), label, ours);
        [speed.with(Goal::AtLeast(15_000.0)), cost::finding(results, NAME, width, NODE_MICROSECONDS)]
    };
    widths(results, NAME).into_iter().flat_map(of_width).collect()
}
