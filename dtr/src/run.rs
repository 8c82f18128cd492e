//! One task by itself, step by step, as a person or a Perl DEN wants it.

use disbatch_core::model::{Queue, Rules, Selector, Task, TaskId};
use disbatch_core::schedules::ForRun;
use disbatch_core::store::StoreError;
use disbatch_core::task::{Start, Started};

use crate::args::Args;
use crate::boot_time::Asked;
use crate::custody;
use crate::echo;
use crate::failure::{Ending, Failure};
use crate::folder::Folder;
use crate::ledger::Ledger;
use crate::retry::{Patience, retry};
use crate::setup::Setup;
use crate::work::{Begun, Kit, Work};

/// Starts the task, runs its plugin and stores the result.
///
/// # Errors
/// See [`Failure`].
pub async fn run(args: Args) -> Result<Ending, Failure> {
    let id: TaskId = args.task.as_deref().unwrap_or_default().parse()?;
    let setup = Setup::new(&args)?;
    // First: a task is not begun whose plugin cannot be started as is configured.
    let mut kit = Kit::new(&setup.config)?;
    let folder = Folder::make(id)?;
    let ledger = Ledger::new(setup.config.clone(), setup.lifecycle.clone(), None);
    let store = ledger.store().await.map_err(Failure::Address)?;
    let asked = Asked::now();
    let claim = Start {
        task: id,
        node: setup.node.clone(),
        claim: args.attempt.zip(args.instance),
        claimed: None,
        // The same time in every attempt, so that a start whose answer was lost is recognised as ours.
        at: store.now(),
        lease: setup.config.lease(),
        pid: std::process::id(),
        waiting: None,
    };
    let begun = begin(&ledger, &claim, asked, &setup).await?;
    tracing::info!(task = %id, queue = %begun.task.queue, attempt = begun.run.attempt, "task started");
    let work = Work { setup: &setup, ledger: &ledger, begun: &begun, folder: folder.path() };
    let (outcome, delivered) = work.carry_out(&mut kit).await?;
    kit.warm.end().await;
    tracing::info!(task = %id, status = %outcome.status, ?delivered, "task ended");
    ledger.flush().await;
    if !args.quiet && !args.no_echo {
        echo::echo(&outcome).await;
    }
    delivered.ending(&begun.run)
}

async fn begin(ledger: &Ledger, claim: &Start, asked: Asked, setup: &Setup) -> Result<Begun, Failure> {
    let (task, run) = match ledger.start(claim).await? {
        Started::Running(task, run) => (*task, run),
        Started::NotClaimed => {
            return Err(Failure::NotClaimed { task: claim.task, node: claim.node.clone() });
        }
    };
    let queue = match queue_of(&task, ledger, setup).await {
        Err(error) if error.is_transient() => return Err(error.into()),
        found => found.map_err(|error| error.to_string()),
    };
    let schedule = match schedule_of(&task, ledger, setup).await {
        Err(error) if error.is_transient() => return Err(error.into()),
        found => found.map_err(|error| error.to_string()),
    };
    let rules = Rules::of(&task, queue.as_ref().ok().and_then(Option::as_ref));
    let until_deadline = custody::until_deadline(&task, &rules, claim.lease);
    Ok(Begun { task, queue, schedule, run, asked, until_deadline, lease: claim.lease })
}

/// What the task's schedule knows of earlier runs. Most tasks have none.
async fn schedule_of(task: &Task, ledger: &Ledger, setup: &Setup) -> Result<Option<ForRun>, StoreError> {
    if !task.rest.contains_key("schedule") {
        return Ok(None);
    }
    retry("reading the schedule", Patience::Endless, &setup.lifecycle, |_| async {
        ledger.store().await?.schedule_for_run(task).await
    })
    .await
}

async fn queue_of(task: &Task, ledger: &Ledger, setup: &Setup) -> Result<Option<Queue>, StoreError> {
    retry("reading the queue", Patience::Endless, &setup.lifecycle, |_| async {
        ledger.store().await?.find_queue(&Selector::Id(task.queue.0)).await
    })
    .await
}
