//! One task by itself, step by step, as a person or a Perl DEN wants it.

use std::io::{self, Write};
use std::sync::Arc;

use disbatch_core::definitions::manifests;
use disbatch_core::model::{PluginName, Queue, Selector, Status, Step, Task, TaskId};
use disbatch_core::plugin::Manifest;
use disbatch_core::schedules::ForRun;
use disbatch_core::store::{Store, StoreError};
use disbatch_core::task::Start;
use tokio::io::AsyncReadExt;

use crate::capture::Capture;
use crate::custody::{self, Asked};
use crate::folder::{Folders, Lodging};
use crate::ledger::{Connection, Ledger};
use crate::outcome::Outcome;
use crate::retry::Patience;
use crate::setup::{Args, Ending, Failure, Setup};
use crate::work::{Begun, Kit, Work};

/// Longer output is cut here when it is shown; all of it is in the database.
const SHOWN: u64 = 64 * 1024;

/// Starts the task, runs its plugin and stores the result.
pub async fn run(args: Args) -> Result<Ending, Failure> {
    let id: TaskId = args.task.as_deref().unwrap_or_default().parse()?;
    let setup = Setup::new(&args)?;
    // First: a task is not begun whose plugin cannot be started as is configured.
    let (kit, mut batcher) = Kit::new(&setup.config)?;
    let nudged = setup.nudges.heard();
    let folder = Lodging::new(id, Folders::default());
    // Before the task is started: others find its runner by it.
    folder.path()?;
    let ledger = Ledger::new(setup.config.clone(), setup.lifecycle.clone(), None, Connection::default());
    let store = ledger.store().await.map_err(Failure::Address)?;
    let asked = Asked::now();
    let claim = Start {
        task: id,
        from: Status::Claimed,
        node: setup.node.clone(),
        claim: args.attempt.zip(args.instance),
        claimed: None,
        // The same time in every attempt, so that a start whose answer was lost is recognised as ours.
        at: store.now(),
        lease: setup.config.lease(),
        pid: std::process::id(),
        waiting: None,
    };
    let begun = begin(&ledger, &claim, asked, (&setup, &kit)).await?;
    tracing::info!(task = %id, queue = %begun.task.queue, attempt = begun.run.attempt, "task started");
    let work = Work { setup: &setup, ledger: &ledger, begun: &begun, folder: &folder, is_alone: true };
    let (outcome, delivered) = tokio::select! {
        biased;
        done = Box::pin(work.carry_out(&kit, nudged)) => done?,
        never = batcher.drive(&setup.lifecycle) => match never {},
    };
    kit.tools.end().await;
    batcher.end().await;
    tracing::info!(task = %id, status = %outcome.verdict.status, ?delivered, "task ended");
    ledger.flush().await;
    if !args.quiet && !args.no_echo {
        echo(&outcome).await;
    }
    delivered.ending(&begun.run)
}

async fn begin(
    ledger: &Ledger,
    claim: &Start,
    asked: Asked,
    (setup, kit): (&Setup, &Kit),
) -> Result<Begun, Failure> {
    let (task, run) = ledger.start(claim).await?;
    let queue = unless_away(queue_of(&task, ledger).await)?;
    let schedule = unless_away(schedule_of(&task, ledger).await)?;
    let known_queue = queue.as_ref().ok().and_then(Option::as_deref);
    let has_all = plugins_of(&task, known_queue).all(|name| is_run_anyway(&name, (setup, kit)));
    let workers = if has_all { Vec::new() } else { workers(ledger).await? };
    let until_deadline = custody::until_deadline(&task, known_queue, claim.lease);
    Ok(Begun { task, queue, schedule, workers, run, asked, until_deadline, lease: claim.lease })
}

/// What was found, or why it cannot be read, as long as the database is there.
fn unless_away<T>(found: Result<T, StoreError>) -> Result<Result<T, String>, StoreError> {
    match found {
        Err(error) if error.is_transient() => Err(error),
        found => Ok(found.map_err(|error| error.to_string())),
    }
}

/// Whether this host has a plugin that is run whatever the database defines. If the configuration leaves it out, it is not.
fn is_run_anyway(name: &PluginName, (setup, kit): (&Setup, &Kit)) -> bool {
    let listed = setup.config.plugins.as_ref();
    kit.plugins().get(name).is_some() && listed.is_none_or(|listed| listed.allows(name.base()))
}

/// The plugins that a task and its queue name.
fn plugins_of(task: &Task, queue: Option<&Queue>) -> impl Iterator<Item = PluginName> {
    let of_queue = queue.and_then(|queue| queue.plugin_of(task).ok().flatten());
    let steps = Step::of_task(task).unwrap_or_default();
    of_queue.into_iter().chain(steps.into_iter().filter_map(|step| step.plugin))
}

/// The plugins that the database defines. If they cannot be read, there are none: most tasks need none.
async fn workers(ledger: &Ledger) -> Result<Vec<Manifest>, StoreError> {
    let read = async |store: &Store| store.workers().await;
    match ledger.insist("reading the workers", Patience::Endless, read).await {
        Ok(workers) => Ok(manifests(&workers)),
        Err(error) if error.is_transient() => Err(error),
        Err(error) => {
            tracing::warn!(%error, "the plugins that the database defines cannot be read");
            Ok(Vec::new())
        }
    }
}

/// What the task's schedule knows of earlier runs. Most tasks have none.
async fn schedule_of(task: &Task, ledger: &Ledger) -> Result<Option<ForRun>, StoreError> {
    if !task.rest.contains_key("schedule") {
        return Ok(None);
    }
    let read = async |store: &Store| store.schedule_for_run(task).await;
    ledger.insist("reading the schedule", Patience::Endless, read).await
}

async fn queue_of(task: &Task, ledger: &Ledger) -> Result<Option<Arc<Queue>>, StoreError> {
    let find = async |store: &Store| store.find_queue(&Selector::Id(task.queue.0)).await;
    Ok(ledger.insist("reading the queue", Patience::Endless, find).await?.map(Arc::new))
}

/// Shows a person who runs `dtr` by hand what came out, as Disbatch's runner does: writes both streams to standard error.
async fn echo(outcome: &Outcome) {
    for (name, stream) in [("STDOUT", &outcome.stdout), ("STDERR", &outcome.stderr)] {
        let text = beginning(stream).await.unwrap_or_else(|error| format!("cannot be shown: {error}"));
        let _nobody_reads = writeln!(io::stderr(), "{name}: {text}");
    }
}

async fn beginning(stream: &Capture) -> io::Result<String> {
    if stream.is_empty() {
        return Ok("null".to_owned());
    }
    let mut bytes = Vec::new();
    stream.reader()?.take(SHOWN).read_to_end(&mut bytes).await?;
    let text = String::from_utf8_lossy(&bytes);
    let more = stream.len().saturating_sub(SHOWN);
    let rest = if more > 0 { format!("\n[{more} more bytes]") } else { String::new() };
    Ok(format!("{}{rest}", text.trim_end_matches('\n')))
}
