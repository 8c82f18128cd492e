//! All rounds, then the report.

use anyhow::{Context, ensure};

use crate::args::Args;
use crate::figure::{self, Figure, Rounds, Turn};
use crate::machine::Machine;
use crate::progress::{self, Progress};
use crate::report::{self, Report};
use crate::results::Results;
use crate::world::World;

pub async fn run(args: Args) -> anyhow::Result<()> {
    let figures: Vec<&Figure> =
        figure::ALL.iter().filter(|figure| wanted(figure, args.filter.as_deref())).collect();
    ensure!(
        !figures.is_empty(),
        "no figure's name contains '{}'",
        args.filter.as_deref().unwrap_or_default()
    );
    if args.list {
        report::list(&figures);
        return Ok(());
    }
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
    let peers = world.account();
    world.stop().await?;
    let results = measured?;
    let report = Report::new(&args, machine, peers, &figures, &results);
    report.print();
    report.write(&args.json).with_context(|| format!("cannot write {}", args.json.display()))?;
    progress::say(&format!("written to {}", args.json.display()));
    Ok(())
}

fn wanted(figure: &Figure, filter: Option<&str>) -> bool {
    filter.is_none_or(|text| figure.name.contains(text))
}

/// In each round every figure takes its turn, so that whatever else the machine does meets all of them.
async fn rounds(
    args: &Args,
    figures: &[&Figure],
    world: &World,
    progress: &Progress,
) -> anyhow::Result<Results> {
    let mut results = Results::default();
    for round in 0..args.rounds.get() {
        for figure in figures.iter().filter(|figure| round == 0 || figure.rounds == Rounds::Every) {
            let title = format!("round {}/{} {}", round + 1, args.rounds, figure.name);
            progress.begin(&title);
            let samples = (figure.measure)(Turn { world, args, progress, results: &results, round })
                .await
                .with_context(|| format!("{title}: failed"))?;
            results.add(samples);
        }
    }
    Ok(results)
}
