//! All rounds, then the report.

use anyhow::{Context, ensure};

use crate::args::Args;
use crate::figure::{Figure, Load};
use crate::machine::Machine;
use crate::progress::{self, Progress};
use crate::report::Report;
use crate::results::Results;
use crate::world::World;

/// Measures and reports.
///
/// # Errors
/// Something did not work; a low speed is no error.
pub async fn run(args: Args) -> anyhow::Result<()> {
    let figures: Vec<Figure> =
        Figure::ALL.into_iter().filter(|figure| wanted(*figure, args.filter.as_deref())).collect();
    ensure!(
        !figures.is_empty(),
        "no figure's name contains '{}'",
        args.filter.as_deref().unwrap_or_default()
    );
    if cfg!(debug_assertions) {
        progress::say("this is a debug build: its figures mean little (use `make bench`)");
    }
    let machine = Machine::look().await;
    if machine.is_busy() {
        progress::say("other processes are at work on this machine: figures come out too low");
    }
    let progress = Progress::default();
    let world = Box::pin(World::start(&progress)).await?;
    let measured = rounds(&args, &figures, &world, &progress).await;
    world.stop().await?;
    let results = measured?;
    let report = Report::new(&args, machine, &figures, &results);
    report.print();
    report.write(&args.json).with_context(|| format!("cannot write {}", args.json.display()))?;
    progress::say(&format!("written to {}", args.json.display()));
    Ok(())
}

fn wanted(figure: Figure, filter: Option<&str>) -> bool {
    filter.is_none_or(|text| figure.name().contains(text))
}

/// In each round every figure takes its turn, so that whatever else the machine does meets all of them.
async fn rounds(
    args: &Args,
    figures: &[Figure],
    world: &World,
    progress: &Progress,
) -> anyhow::Result<Results> {
    let load = Load { tasks: args.tasks.get(), threads: args.threads.get() };
    let mut results = Results::default();
    for round in 0..args.rounds.get() {
        for figure in figures.iter().filter(|figure| round == 0 || figure.in_every_round()) {
            let title = format!("round {}/{} {}", round + 1, args.rounds, figure.name());
            progress.begin(&title);
            let samples = Box::pin(figure.measure(world, load, progress))
                .await
                .with_context(|| format!("{title}: failed"))?;
            progress.end(&title, &samples);
            results.add(samples);
        }
    }
    Ok(results)
}
