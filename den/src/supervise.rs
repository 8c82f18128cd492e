//! Looking after tasks: runners of this DEN that ended, requests to end a task, and whatever a dead runner
//! or node left behind.

use std::os::unix::process::ExitStatusExt;
use std::time::{Duration, Instant};

use bson::Bson;
use disbatch_core::model::{Status, Task, TaskId};
use disbatch_core::store::StoreError;
use disbatch_core::task::{Buried, Evidence, Unclaimed, unleased_limit};
use nix::time::{ClockId, clock_gettime};

use crate::launch::Exit;
use crate::node::Node;
use crate::processes;

/// A runner's exit status that says "no such task is claimed for this node".
const NOT_CLAIMED: i32 = 1;

/// How long the processes of a killed runner are waited for at most.
const DEATH_TAKES: Duration = Duration::from_secs(10);

/// How long a guard has to kill a plugin whose runner is dead.
const GUARD_TAKES: Duration = Duration::from_secs(2);

/// How often they are looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// How long this DEN has reached the database without a gap. Only then may it judge others: after an outage,
/// and after it was stopped itself, every runner must have had the chance to renew its lease.
#[derive(Debug, Default)]
pub struct Continuity {
    since: Option<Duration>,
    last: Duration,
}

impl Continuity {
    /// The database has answered. `gap` is the longest time between two answers that is none.
    pub fn reached(&mut self, gap: Duration) {
        self.reached_at(now(), gap);
    }

    fn reached_at(&mut self, now: Duration, gap: Duration) {
        if self.since.is_none() || now.saturating_sub(self.last) > gap {
            self.since = Some(now);
        }
        self.last = now;
    }

    /// Whether that has been so for `lease`.
    pub fn lasts(&self, lease: Duration) -> bool {
        self.since.is_some_and(|since| self.last.saturating_sub(since) >= lease)
    }
}

/// The time since the machine was started, with the time that it was suspended.
fn now() -> Duration {
    clock_gettime(ClockId::CLOCK_BOOTTIME).map(Duration::from).unwrap_or_default()
}

impl Node {
    /// Finds out what an ended runner left behind.
    pub(crate) async fn settle(&mut self, exit: &Exit) -> Result<(), StoreError> {
        let (task, how) = (exit.claim.task, describe(exit));
        match &exit.status {
            Ok(status) if status.success() => {
                self.launches.worked();
                return Ok(());
            }
            Ok(status) if status.code() == Some(NOT_CLAIMED) => return Ok(()),
            Ok(_) | Err(_) => {}
        }
        let why = format!("its runner ended without starting it ({how})");
        if self.store.unclaim_task(&exit.claim, &why).await? == Unclaimed::Queued {
            let pause = self.launches.failed(Instant::now());
            tracing::error!(
                %task, retry_in_s = pause.as_secs(), "a runner ended without starting its task ({how}); \
                 the task is given back"
            );
            return Ok(());
        }
        // It got as far as its task, so launching works.
        self.launches.worked();
        if self.launcher.has_another(task) {
            return Ok(());
        }
        let Some(stored) = self.store.find_task(task).await? else { return Ok(()) };
        let is_its_run = stored.status == Status::Running
            && stored.attempt() == Some(exit.claim.attempt)
            && stored.instance() == Some(exit.claim.instance.as_str())
            && stored.node == Some(Bson::from(&self.name));
        if is_its_run {
            await_death(task).await;
            let why = format!("its runner died ({how})");
            let buried = self.store.bury(&stored, Evidence::ProcessGone, &why).await?;
            report(task, buried, &why);
        } else {
            // It may have died after it had stored its result, and before it had tidied up.
            self.store.remove_live(task, Some(exit.claim.attempt)).await?;
        }
        Ok(())
    }

    /// Tells runners of this node that somebody wants their task to end.
    pub(crate) async fn pay_attention(&mut self, tasks: &[TaskId]) -> Result<(), StoreError> {
        if tasks.is_empty() {
            return Ok(());
        }
        for task in tasks {
            let known = self.launcher.runners_of(*task).iter().filter_map(|pid| i32::try_from(*pid).ok());
            let known: Vec<i32> = known.collect();
            if known.is_empty() {
                // An earlier DEN has started it.
                processes::of_task(*task).into_iter().for_each(|pid| processes::nudge(pid.as_raw(), *task));
            }
            known.into_iter().for_each(|pid| processes::nudge(pid, *task));
        }
        self.store.attention_paid(&self.name, tasks).await
    }

    /// Asks the database for requests to end tasks of this node. The change stream told of one; the entry of the
    /// node may get its mark only after that, so the tasks themselves are asked.
    pub(crate) async fn look_for_attention(&mut self) -> Result<(), StoreError> {
        let tasks = self.store.cancel_requests(&self.name).await?;
        self.pay_attention(&tasks).await
    }

    /// What every DEN does each second: deferred tasks that are due, claims whose lease has run out.
    pub(crate) async fn sweep(&mut self) -> Result<(), StoreError> {
        let orphans = self.store.orphan_stale_claims(&self.name).await?;
        if orphans > 0 {
            tracing::warn!(tasks = orphans, "tasks were claimed and never started: orphaned");
        }
        let swept = self.store.sweep_tasks().await?;
        if swept.given_back > 0 {
            tracing::warn!(tasks = swept.given_back, "claims ran out before a runner started: given back");
        }
        if swept.overdue > 0 {
            tracing::warn!(tasks = swept.overdue, "tasks were not run before their deadline: cancelled");
        }
        if self.inspected.elapsed() >= self.inspection_interval() {
            self.inspected = Instant::now();
            self.inspect().await?;
        }
        Ok(())
    }

    fn inspection_interval(&self) -> Duration {
        (self.config.lease() / 6).clamp(Duration::from_millis(200), Duration::from_secs(5))
    }

    /// What takes longer to go wrong: dead nodes, and runs whose lease has run out.
    async fn inspect(&mut self) -> Result<(), StoreError> {
        self.store.clear_stale_slots().await?;
        self.remove_left_folders().await?;
        if !self.continuity.lasts(self.config.lease()) {
            return Ok(());
        }
        for node in self.store.mark_dead_nodes().await? {
            tracing::warn!(node, "the node has been silent for longer than its lease: dead");
        }
        let expired = self.store.expired_runs().await?;
        if !expired.is_empty() {
            let living = self.store.living_nodes().await?;
            for task in &expired {
                let node = task.node.as_ref().and_then(Bson::as_str).unwrap_or_default();
                if node == self.name.as_str() {
                    self.end_expired(task).await?;
                } else if !living.iter().any(|alive| alive.as_str() == node) {
                    let why = format!(
                        "its runner on {node} and that node have been silent for longer than their lease"
                    );
                    report(task.id, self.store.bury(task, Evidence::LeaseExpired, &why).await?, &why);
                }
            }
        }
        self.inspect_unleased().await
    }

    /// A run of this node that has not renewed its lease: its processes are killed first, and it is ended
    /// once they are gone.
    async fn end_expired(&mut self, task: &Task) -> Result<(), StoreError> {
        let left = processes::of_task(task.id).len();
        if left > 0 {
            tracing::warn!(task = %task.id, processes = left, "its lease has run out: killing what is left of it");
            await_death(task.id).await;
        }
        let why = "its runner was gone, or silent for longer than its lease";
        report(task.id, self.store.bury(task, Evidence::LeaseExpired, why).await?, why);
        Ok(())
    }

    /// Runs that other programs started, where the operator has said how long one may take.
    async fn inspect_unleased(&mut self) -> Result<(), StoreError> {
        for queue in self.store.list_queues().await? {
            let Some(limit) = unleased_limit(&queue, self.store.now()) else { continue };
            for task in self.store.unleased_runs(queue.id, limit).await? {
                let why = "it ran for longer than the queue's unleased_limit without a sign of life";
                report(task.id, self.store.bury(&task, Evidence::TooOld(limit), why).await?, why);
            }
        }
        Ok(())
    }
}

/// Kills what is left of a task's processes and waits until nothing is.
async fn await_death(task: TaskId) {
    let begun = Instant::now();
    loop {
        let left = match begun.elapsed() < GUARD_TAKES {
            true => processes::kill_runners(task),
            false => processes::kill_all(task),
        };
        if left == 0 {
            return;
        }
        if begun.elapsed() > DEATH_TAKES {
            tracing::error!(%task, "processes of the task do not die");
            return;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

fn report(task: TaskId, buried: Buried, why: &str) {
    match buried {
        Buried::Orphaned => tracing::error!(%task, "{why}: orphaned"),
        Buried::Again => tracing::warn!(%task, "{why}: it will be tried again"),
        Buried::NotRunning => tracing::debug!(%task, "{why}, but it was over"),
    }
}

fn describe(exit: &Exit) -> String {
    match &exit.status {
        Ok(status) => match (status.code(), status.signal()) {
            (Some(code), _) => format!("exit status {code}"),
            (None, Some(signal)) => format!("killed by signal {signal}"),
            (None, None) => "it vanished".to_owned(),
        },
        Err(error) => format!("waiting for it failed: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_starts_the_time_anew() {
        let second = Duration::from_secs(1);
        let mut continuity = Continuity::default();
        assert!(!continuity.lasts(Duration::ZERO));
        for seconds in 100..=103 {
            continuity.reached_at(second * seconds, second * 2);
        }
        assert!(continuity.lasts(second * 3));
        assert!(!continuity.lasts(second * 4));
        continuity.reached_at(second * 110, second * 2);
        assert!(!continuity.lasts(second));
    }
}
