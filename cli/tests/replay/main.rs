//! Replays recorded runs of Perl Disbatch 4.103's command line with the built `disbatch`, a built `dci` and a
//! real database. What differs on purpose stands in `docs/compatibility.md`; nothing else may.

mod accounts;
mod additions;
mod difference;
mod files;
mod found;
mod proxy;
mod recording;
mod server;
mod settings;
mod states;
#[path = "../../../dci/tests/replay/text.rs"]
mod text;

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use disbatch_mongod::testing::TestDatabase;
use recording::{ProgramOutput, Run};
use text::Ids;

#[tokio::test]
async fn recorded_runs_have_the_same_results() -> anyhow::Result<()> {
    let differences = difference::read()?;
    let database = TestDatabase::create(disbatch_mongod::testing::server().await?).await?;
    states::prepare(&database).await?;
    let servers = server::Servers::start(&database).await?;

    let mut ids = Ids::default();
    let mut problems = Vec::new();
    let mut different = BTreeSet::new();
    let mut compared = 0;
    for run in recording::in_scope()? {
        states::before(&run.name, &database).await?;
        let outcome = servers.run(&run, &ids).await.with_context(|| run.name.clone())?;
        let Some(expected) = run.outcome() else {
            ids.learn(recording::ids_told_elsewhere(&run.name), &outcome.stdout);
            continue;
        };
        compared += 1;
        let expected = servers.here(&expected);
        ids.learn(&expected.text(), &outcome.text());
        let same = normal(&expected, &ids) == normal(&outcome, &Ids::default());
        match (same, differences.get(&run.name)) {
            (true, None) => {}
            (true, Some(_)) => problems.push(format!("{}: is listed, and the same", run.name)),
            (false, None) => {
                problems.push(format!("{}:\n  recorded {expected:?}\n  here     {outcome:?}", run.name));
            }
            (false, Some(listed)) => {
                different.insert(run.name.clone());
                problems.extend(listed.check(&outcome).err());
            }
        }
    }
    let unseen = differences.keys().filter(|name| !different.contains(*name));
    problems.extend(unseen.map(|name| format!("{name}: is listed, and was not replayed or is the same")));
    database.drop_database().await?;
    ensure!(problems.is_empty(), "{} problems:\n{}", problems.len(), problems.join("\n"));
    ensure!(compared >= 60, "only {compared} runs were compared");
    Ok(())
}

fn normal(outcome: &ProgramOutput, ids: &Ids) -> ProgramOutput {
    let text = |text: &str| {
        // The usage is this project's own.
        let text = if text.contains("Usage: disbatch") { "(usage text)" } else { text };
        text::without_times(&ids.translate(text))
    };
    ProgramOutput {
        exit_code: outcome.exit_code,
        stdout: text(&outcome.stdout),
        stderr: text(&outcome.stderr),
    }
}

/// A run without a server needs no database.
#[test]
fn every_recorded_run_is_read() -> anyhow::Result<()> {
    let runs: Vec<Run> = recording::in_scope()?;
    ensure!(runs.iter().any(|run| run.name == "tasks.pretty"), "{runs:?}");
    Ok(())
}
