//! The janitor next to the node: archives and deletes ended tasks as their queues want it, and finishes what
//! movers and deleters that were killed have left. Every DEN has one; whoever holds the lease works.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use disbatch_core::callbacks::LogSweep;
use disbatch_core::files::SweptFiles;
use disbatch_core::keys::KeySweep;
use disbatch_core::lease::LeaseName;
use disbatch_core::live::LiveSweep;
use disbatch_core::metrics::labels;
use disbatch_core::model::{QueueId, Retention};
use disbatch_core::store::StoreError;
use disbatch_core::task::Place;
use tokio::time::sleep;

use super::{Leader, measured, rounds};

/// Prolonged with each batch, which takes a small part of it.
pub const LEASE: LeaseName = LeaseName::new("janitor", Duration::from_secs(60));

pub const EVERY: Duration = Duration::from_secs(60);

const BATCH: usize = 500;

/// So many batches in a round at most, so that all else has its turn; the next round goes on.
const BATCHES: usize = 100;

/// How soon the next round begins then.
const SOON: Duration = Duration::from_secs(1);

/// For so long keys are looked at in a round, and for so long files.
const SWEEP_TAKES: Duration = Duration::from_secs(10);

/// Pauses are a part of the time that the work takes, so that it never has more than half of the database.
const SHORTEST_PAUSE: Duration = Duration::from_millis(20);

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Round {
    archived: u64,
    deleted: u64,
    /// Moves and deletions of others that it has finished.
    finished: u64,
    batches: usize,
}

impl Round {
    const fn is_cut_short(&self) -> bool {
        self.batches >= BATCHES && self.archived + self.deleted > 0
    }
}

#[derive(Debug, Clone, Copy)]
enum Step {
    Delete(Place, Duration),
    Archive(Duration),
}

struct Worker {
    leader: Leader,
    last: Option<QueueId>,
    /// How far it has looked through what web services have logged.
    logs: LogSweep,
    /// The same of live output.
    live: LiveSweep,
    /// The same of keys.
    keys: KeySweep,
    /// How many tasks have ids that are none, as far as that was said.
    odd_ids: usize,
}

pub async fn run(leader: Leader, every: Duration) {
    let (stop, mut rounds) = (leader.stop.clone(), rounds(every));
    let (logs, live, keys) = (LogSweep::default(), LiveSweep::default(), KeySweep::default());
    let mut worker = Worker { leader, last: None, logs, live, keys, odd_ids: 0 };
    while stop.run_until_cancelled(rounds.tick()).await.is_some() {
        let began = Instant::now();
        match worker.round().await {
            Ok(round) if round == Round::default() => {}
            Ok(round) => {
                tracing::info!(
                    archived = round.archived,
                    deleted = round.deleted,
                    finished = round.finished,
                    seconds = began.elapsed().as_secs_f32(),
                    more_to_come = round.is_cut_short(),
                    "ended tasks were archived or deleted"
                );
                if round.is_cut_short() {
                    rounds.reset_after(SOON.min(every));
                }
            }
            Err(error) => tracing::warn!(%error, "the janitor could not work"),
        }
    }
    worker.leader.resign().await;
}

impl Worker {
    async fn round(&mut self) -> Result<Round, StoreError> {
        let mut round = Round::default();
        if !self.leader.leads().await? {
            return Ok(round);
        }
        let store = self.leader.store.clone();
        measured(&store, labels::Worker::Archive, self.work(&mut round)).await?;
        Ok(round)
    }

    async fn work(&mut self, round: &mut Round) -> Result<(), StoreError> {
        let moves = self.leader.store.finish_archiving().await?;
        round.finished = moves.moved + moves.stayed + self.leader.store.finish_deleting().await?;
        let swept = self.leader.store.sweep_callback_logs(&mut self.logs).await;
        // A user that an older release made may not look there.
        let swept = StoreError::unless_forbidden(swept)?.unwrap_or(0);
        if swept > 0 {
            tracing::info!(attempts = swept, "what web services had logged was left behind: removed");
        }
        let arrays = self.leader.store.note_empty_arrays().await?;
        if arrays > 0 {
            tracing::info!(arrays, "all tasks of arrays were deleted: the arrays go away, too");
        }
        self.sweep_files().await?;
        let swept = self.leader.store.sweep_live(&mut self.live).await?;
        if swept > 0 {
            tracing::info!(
                attempts = swept,
                "live output of attempts that are over was left behind: removed"
            );
        }
        self.sweep_keys().await?;
        self.look_for_odd_ids().await?;
        // Last, as it takes longest, and as what a queue wants may be refused.
        self.tidy(round).await
    }

    /// Keys that nobody has any more: all of them, or as many as can be looked at in a while.
    async fn sweep_keys(&mut self) -> Result<(), StoreError> {
        let begun = Instant::now();
        loop {
            let began = Instant::now();
            let swept = self.leader.store.sweep_keys(&mut self.keys).await;
            // A user that an older release made may not.
            let Some(swept) = StoreError::unless_forbidden(swept)? else { return Ok(()) };
            if swept > 0 {
                tracing::debug!(keys = swept, "keys that no task has any more were removed");
            }
            if self.keys.is_through() || begun.elapsed() > SWEEP_TAKES || !self.pause(began).await {
                return Ok(());
            }
        }
    }

    /// Tasks that other programs have written and nobody can run.
    async fn look_for_odd_ids(&mut self) -> Result<(), StoreError> {
        let (tasks, one) = self.leader.store.tasks_with_odd_ids().await?;
        if let Some(one) = one.filter(|_| tasks != self.odd_ids) {
            tracing::warn!(tasks, %one, "tasks whose _id is no ObjectId are never run, and cannot be addressed");
        }
        self.odd_ids = tasks;
        Ok(())
    }

    /// What of file sets nobody needs any more: all of it, or as much as can be removed in a while.
    async fn sweep_files(&self) -> Result<(), StoreError> {
        let begun = Instant::now();
        loop {
            let began = Instant::now();
            let swept = self.leader.store.sweep_files().await;
            // A user that an older release made may not.
            let swept = StoreError::unless_forbidden(swept)?.unwrap_or_default();
            if swept != SweptFiles::default() {
                tracing::info!(
                    versions = swept.versions,
                    entries = swept.entries,
                    contents = swept.contents,
                    bytes = swept.bytes,
                    "files that nobody needs any more were removed"
                );
            }
            if !swept.more || begun.elapsed() > SWEEP_TAKES || !self.pause(began).await {
                return Ok(());
            }
        }
    }

    /// What the policies of queues want. These take turns, with a batch in each, so that none keeps the others waiting; the first is the
    /// one behind that which had the last turn.
    async fn tidy(&mut self, round: &mut Round) -> Result<(), StoreError> {
        let found = self.leader.store.queues_with_retention().await?.into_iter();
        let mut queues: VecDeque<_> = found.map(|(queue, policy)| (queue.id, steps_of(policy))).collect();
        let last = queues.iter().position(|(queue, _)| self.last == Some(*queue));
        queues.rotate_left(last.map_or(0, |last| last + 1));
        while let Some((queue, mut steps)) = queues.pop_front() {
            let Some(began) = self.may_go_on(round).await? else { break };
            let Some(step) = steps.pop() else { continue };
            self.last = Some(queue);
            let (found, done) = self.take(queue, step, round).await?;
            if self.is_more(found, done, began, round).await {
                steps.push(step);
            }
            if !steps.is_empty() {
                queues.push_back((queue, steps));
            }
        }
        Ok(())
    }

    /// Takes a batch of a queue. Returns how many tasks it has, and how many of these have gone.
    async fn take(&self, queue: QueueId, step: Step, round: &mut Round) -> Result<(usize, u64), StoreError> {
        let store = &self.leader.store;
        match step {
            Step::Delete(place, age) => {
                let old = store.ended_before(queue, place, age, BATCH).await?;
                let deleted = store.delete_tasks(&old).await?;
                round.deleted += deleted;
                Ok((old.len(), deleted))
            }
            Step::Archive(age) => {
                let old = store.ended_before(queue, Place::Tasks, age, BATCH).await?;
                let moved = store.archive_tasks(&old).await?.moved;
                round.archived += moved;
                Ok((old.len(), moved))
            }
        }
    }

    /// Prolongs the lease for another batch, unless it is time to stop.
    async fn may_go_on(&self, round: &Round) -> Result<Option<Instant>, StoreError> {
        if round.batches >= BATCHES || self.leader.stop.is_cancelled() {
            return Ok(None);
        }
        let began = Instant::now();
        Ok(self.leader.leads().await?.then_some(began))
    }

    /// Whether a batch was full, and something came of it; if so, pauses.
    async fn is_more(&self, found: usize, done: u64, began: Instant, round: &mut Round) -> bool {
        if found > 0 {
            round.batches += 1;
        }
        if found < BATCH || done == 0 {
            return false;
        }
        self.pause(began).await
    }

    /// Lets the database do something else for as long as what began then has taken. Returns whether to go on.
    async fn pause(&self, began: Instant) -> bool {
        let pause = sleep(began.elapsed().max(SHORTEST_PAUSE));
        self.leader.stop.run_until_cancelled(pause).await.is_some()
    }
}

/// What a policy wants, the first thing last. What is to be deleted need not be archived first.
fn steps_of(policy: Retention) -> Vec<Step> {
    let delete = |place| policy.delete_after.map(|age| Step::Delete(place, age));
    let archive = policy.archive_after.map(Step::Archive);
    [archive, delete(Place::Archive), delete(Place::Tasks)].into_iter().flatten().collect()
}
