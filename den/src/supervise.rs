//! Looking after tasks: runners of this DEN that ended, requests to end a task, and whatever a dead runner
//! or node left behind.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bson::{Bson, DateTime, doc};
use disbatch_core::clock::boot_time;
use disbatch_core::link::{Answer, Ask};
use disbatch_core::model::{Status, Task, TaskId};
use disbatch_core::store::StoreError;
use disbatch_core::task::{Buried, Claim, Evidence, Unclaimed, is_detached, long_ago, unleased_limit};

use crate::continuity::Continuity;
use crate::lock;
use crate::node::Node;
use crate::pace::is_due;
use crate::processes::{self, Wanted};
use crate::runner::{Exit, Traced, trace_buried};

/// How long the processes of a killed runner are waited for at most.
const DEATH_TAKES: Duration = Duration::from_secs(10);

/// How long a guard has to kill a plugin whose runner is dead.
const GUARD_TAKES: Duration = Duration::from_secs(2);

/// How long a pass of the node's loop waits for them: what is left then is waited for in later ones.
const PASS_WAITS: Duration = Duration::from_millis(500);

/// Nobody waits any more for what was looked at first so long ago.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(60);

/// How often they are looked for.
const LOOK_AGAIN: Duration = Duration::from_millis(20);

/// For which runs this DEN answers, so that they need no lease: those whose runners have asked it lately. See `core/src/task/cover.rs`. Clones
/// share it.
#[derive(Debug, Clone, Default)]
pub struct Cover(Arc<Mutex<HashMap<TaskId, Instant>>>);

impl Cover {
    /// The runner of a task has asked at that time whether its plugin may go on.
    pub fn asked(&self, task: TaskId, asked: Instant) {
        lock(&self.0).insert(task, asked);
    }

    /// Those whose runners have asked within so long. The others are forgotten.
    fn within(&self, time: Duration, now: Instant) -> Vec<TaskId> {
        let mut answered = lock(&self.0);
        answered.retain(|_, asked| now.saturating_duration_since(*asked) < time);
        answered.keys().copied().collect()
    }
}

/// When this DEN may judge other nodes and runs, and what it has seen of them.
#[derive(Debug, Default)]
pub struct Supervision {
    lease: Duration,
    continuity: Continuity,
    /// When the last heartbeat was sent, by the clock since the host's start.
    beat: Duration,
    /// When it was last looked for what other programs and dead runners have left.
    inspected: Option<Instant>,
    /// Names that no node has, in which something is claimed or running, and since when that is seen.
    unknown: HashMap<String, Instant>,
    /// When they were asked for last.
    asked_for_owners: Option<Instant>,
    /// When it was last looked for claims and runs in nobody's name, or with a lease that is no time.
    asked_for_nobodys: Option<Instant>,
}

impl Supervision {
    pub fn new(lease: Duration) -> Self {
        Self { lease, inspected: Some(Instant::now()), ..Self::default() }
    }

    /// The database has answered a heartbeat that was sent at `sent`; it had the one before of this DEN at `before`, by its own clock.
    pub fn reached(&mut self, sent: Duration, before: Option<DateTime>) {
        let earliest = std::mem::replace(&mut self.beat, sent);
        if let Some(server) = before {
            self.server_said(server, earliest);
        }
        self.continuity.reached(boot_time(), self.lease * 2 / 3);
    }

    /// The database's clock said `server`, at `earliest` or later. Returns whether it has jumped ahead.
    pub fn server_said(&mut self, server: DateTime, earliest: Duration) -> bool {
        let jumped = self.continuity.server_said(server, (earliest, boot_time()), self.lease / 3);
        if jumped {
            tracing::warn!(
                "the database's clock has jumped ahead: nodes and runs are not judged before they could show that they live"
            );
        }
        jumped
    }

    /// After an outage, or a jump of the database's clock, every runner and DEN must have had the chance to show that it lives.
    pub fn may_judge(&self) -> bool {
        self.continuity.lasts(self.lease)
    }

    /// Whether it has worked without an outage for so long, or for as long as a lease.
    fn has_worked_for(&self, time: Duration) -> bool {
        self.continuity.lasts(time.min(self.lease))
    }

    /// Whether it is time to look for what was left. It is asked only to do that.
    pub fn is_inspection_due(&mut self) -> bool {
        let interval = (self.lease / 6).clamp(Duration::from_millis(200), Duration::from_secs(5));
        is_due(&mut self.inspected, interval, Instant::now())
    }

    /// Whether to ask for names in which tasks run and of whom nothing is heard. It is asked only to do that.
    fn wants_owners(&mut self, now: Instant) -> bool {
        is_due(&mut self.asked_for_owners, self.lease / 3, now)
    }

    /// Whether to look for claims and runs that only somebody's own hand can have made: in nobody's name, or with a lease that is no time. It
    /// is asked only to do that.
    fn wants_nobodys(&mut self, now: Instant) -> bool {
        is_due(&mut self.asked_for_nobodys, self.lease, now)
    }

    /// Whoever was to look for them could not: that is to be done again with the next question for owners.
    fn could_not_look(&mut self) {
        self.asked_for_nobodys = None;
    }

    /// These are the names that no node has.
    fn found_unknown(&mut self, names: HashSet<String>, now: Instant) {
        // After an outage the programs of Perl Disbatch must have had the time to write theirs again.
        self.unknown.retain(|name, _| names.contains(name) && self.continuity.lasts(self.lease));
        for name in names {
            self.unknown.entry(name).or_insert(now);
        }
    }

    /// Names that no node has had for as long as a lease.
    fn gone(&self, now: Instant) -> Vec<&str> {
        let is_gone = |since: &Instant| now.saturating_duration_since(*since) >= self.lease;
        let gone = self.unknown.iter().filter(|(_, since)| is_gone(since));
        gone.map(|(name, _)| name.as_str()).collect()
    }
}

impl Node {
    /// Runs of this node for which nobody answers any more, as their runners are silent, get a lease.
    pub(crate) async fn uncover_own(&self) -> Result<(), StoreError> {
        let lease = self.config.lease();
        let answered = self.runners.launcher.cover().within(lease * 2 / 3, Instant::now());
        let runs = self.store.uncover_own(&self.name, &answered, lease).await?;
        if runs > 0 {
            tracing::warn!(runs, "their runners are silent: they get a lease, which runs out");
        }
        Ok(())
    }

    /// Claims and runs of silent nodes, and those that nobody can have, get a lease. A name counts as gone when no node has had it for as long as one.
    pub(crate) async fn lease_unowned(&mut self) -> Result<(), StoreError> {
        let now = Instant::now();
        if !self.supervision.wants_owners(now) {
            return Ok(());
        }
        let leased = self.lease_of_owners(now).await;
        if leased.is_err() {
            self.supervision.could_not_look();
        }
        leased
    }

    async fn lease_of_owners(&mut self, now: Instant) -> Result<(), StoreError> {
        let lease = self.config.lease();
        let owners = self.store.silent_owners().await?;
        let wants_nobodys = self.supervision.wants_nobodys(now);
        if (wants_nobodys || !owners.silent.is_empty())
            && let runs = self.store.uncover_silent(&owners.silent, lease).await?
            && runs > 0
        {
            tracing::warn!(runs, nodes = ?owners.silent, "their nodes are silent, or none: they get a lease, which runs out");
        }
        self.supervision.found_unknown(owners.unknown, now);
        let gone = self.supervision.gone(now);
        if gone.is_empty() && !wants_nobodys {
            return Ok(());
        }
        let tasks = self.store.lease_unowned(lease, &gone).await?;
        if tasks > 0 {
            tracing::warn!(
                tasks,
                ?gone,
                "claims or runs that no process can have: they get a lease, which runs out"
            );
        }
        Ok(())
    }

    /// Finds out what an ended runner left behind. Returns whether that is done: if not, processes of its task live, and it is to be settled later.
    pub(crate) async fn settle(&mut self, exit: &Exit) -> Result<bool, StoreError> {
        let Some(claim) = &exit.claim else {
            if !exit.proven && !exit.status.as_ref().is_ok_and(ExitStatus::success) {
                let pause = self.runners.launches.failed(Instant::now());
                let how = describe(exit);
                tracing::error!(retry_in_s = pause.as_secs(), "a runner ended before it had a task ({how})");
            }
            return Ok(true);
        };
        let (task, how) = (claim.task, describe(exit));
        let why = format!("its runner ended without starting it ({how})");
        if let Some(result) = &exit.result {
            // Whether it has stored that by itself is recognised.
            self.runners.launches.worked();
            self.store_result(claim, result, exit.traced.as_ref()).await?;
            return Ok(true);
        }
        // A runner of another program says by its exit status that it has stored the result.
        let is_stored = exit.begun && exit.status.as_ref().is_ok_and(ExitStatus::success);
        // One that was started for it, and that it has taken, it may have begun.
        let may_have_begun = claim.is_started && exit.begun;
        if !is_stored && !may_have_begun && self.store.unclaim_task(claim, &why).await? == Unclaimed::Queued {
            self.given_back_by(exit, claim, &why).await;
            return Ok(true);
        }
        self.runners.unstarted.remove(&task);
        // It got as far as its task, so launching works.
        self.runners.launches.worked();
        if self.runners.launcher.has_another(task, exit.process.serial) {
            return Ok(true);
        }
        let stored = match self.store.find_task(task).await {
            Err(error) if error.is_about_one() => return self.end_unreadable(claim, exit, error).await,
            stored => stored?,
        };
        let Some(stored) = stored else { return Ok(true) };
        if is_detached(&stored) {
            // It has handed the task over to a web service.
            return Ok(true);
        }
        let is_its_run = stored.status == Status::Running
            && stored.attempt() == Some(claim.attempt)
            && stored.instance() == Some(claim.instance.as_str())
            && stored.node == Some(Bson::from(&self.name));
        if is_its_run {
            let except = self.runners.launcher.at_other_work(task);
            let wanted = Wanted { runner: stored.pid(), except: &except, ..Wanted::of(task, &self.ours) };
            if !await_death(wanted, Some(claim.attempt), &mut self.runners.deaths).await {
                return Ok(false);
            }
            let why = format!("its runner died ({how})");
            self.bury(&stored, Evidence::ProcessGone, &why).await?;
        } else {
            // It may have died after it had stored its result, and before it had tidied up.
            self.store.remove_live(task, Some(claim.attempt)).await?;
        }
        Ok(true)
    }

    /// A runner has ended without beginning its task, which was given back.
    async fn given_back_by(&mut self, exit: &Exit, claim: &Claim, why: &str) {
        let task = claim.task;
        self.put_back(claim.queue);
        if exit.proven && exit.status.as_ref().is_ok_and(ExitStatus::success) {
            tracing::info!(%task, "a runner was told to end before it began its task; it is given back");
            return;
        }
        let pause = self.runners.launches.failed(Instant::now());
        tracing::error!(
            %task, retry_in_s = pause.as_secs(), "a runner ended without starting its task ({}); \
             the task is given back", describe(exit)
        );
        if !self.runners.unstarted.insert(task) {
            // It may be the task that its runners end of.
            self.store.set_aside(task, why).await;
        }
    }

    /// A run whose task cannot be read: not by its runner, and by nobody else either. Returns whether it is ended.
    async fn end_unreadable(
        &mut self,
        claim: &Claim,
        exit: &Exit,
        error: StoreError,
    ) -> Result<bool, StoreError> {
        let task = claim.task;
        let except = self.runners.launcher.at_other_work(task);
        let runner = i32::try_from(exit.process.pid).ok();
        let wanted = Wanted { runner, except: &except, ..Wanted::of(task, &self.ours) };
        if !await_death(wanted, Some(claim.attempt), &mut self.runners.deaths).await {
            return Ok(false);
        }
        self.store.end_run_unfit(claim, error).await?;
        Ok(true)
    }

    /// Stores what a dead runner had sent.
    async fn store_result(
        &self,
        claim: &Claim,
        result: &Ask,
        traced: Option<&Traced>,
    ) -> Result<(), StoreError> {
        let stored = self.store.carry_out(&claim.run(), result).await;
        tracing::info!(task = %claim.task, stored = ?stored, "the result of a runner that has ended");
        let is_stored = stored? == Answer::Stored;
        self.store.remove_live(claim.task, Some(claim.attempt)).await?;
        if let (Some(tracer), Some(traced), Some(finish)) =
            (self.runners.launcher.tracer(), traced.filter(|_| is_stored), result.finish())
        {
            traced.end(tracer, finish, self.store.now());
        }
        Ok(())
    }

    /// Tells runners of this node that somebody wants their task to end.
    pub(crate) async fn pay_attention(&mut self, tasks: &[TaskId]) -> Result<(), StoreError> {
        if tasks.is_empty() {
            return Ok(());
        }
        for task in tasks {
            if !self.runners.launcher.look_at(*task) {
                // An earlier DEN has started it.
                // If they cannot be seen now, it is told when it renews its lease.
                processes::of_task(Wanted::of(*task, &self.ours))
                    .unwrap_or_default()
                    .into_iter()
                    .for_each(|process| processes::nudge(process, *task, &self.ours));
            }
        }
        self.store.attention_paid(&self.name, tasks).await
    }

    /// Asks the database for requests to end tasks of this node. The change stream told of one; the entry of the
    /// node may get its mark only after that, so the tasks themselves are asked.
    pub(crate) async fn look_for_attention(&mut self) -> Result<(), StoreError> {
        let tasks = self.store.cancel_requests(&self.name).await?;
        self.pay_attention(&tasks).await
    }

    /// A run of this node that has not renewed its lease: its processes are killed first, and it is ended
    /// once they are gone. Returns whether that is so.
    pub(crate) async fn end_expired(&mut self, task: &Task) -> Result<bool, StoreError> {
        let except = self.runners.launcher.at_other_work(task.id);
        // One with other tasks is not dead. That its plugin leaves this one alone is seen to by its guard.
        let has_others = self.store.has_run_beside(task).await?;
        let runner = task.pid().filter(|_| !has_others);
        let wanted = Wanted { runner, except: &except, ..Wanted::of(task.id, &self.ours) };
        let Some(left) = seen(task.id, processes::of_task(wanted)) else { return Ok(false) };
        let left = left.len();
        if left > 0 {
            if !self.runners.deaths.since.contains_key(&(task.id, task.attempt())) {
                tracing::warn!(task = %task.id, processes = left, "its lease has run out: killing what is left of it");
            }
            if !await_death(wanted, task.attempt(), &mut self.runners.deaths).await {
                return Ok(false);
            }
        }
        let why = "its runner was gone, or silent for longer than its lease";
        self.bury(task, Evidence::LeaseExpired, why).await?;
        Ok(true)
    }

    /// Ends a run. One that cannot be ended is left alone for a while, and keeps no other from it.
    pub(crate) async fn bury(&self, task: &Task, evidence: Evidence, why: &str) -> Result<(), StoreError> {
        let buried = self.store.bury(task, evidence, why).await;
        if let Some(buried) = self.store.unless_unfit(task.id, buried).await? {
            report(task.id, buried, why);
            self.trace_burial(task, buried).await;
        }
        Ok(())
    }

    async fn trace_burial(&self, task: &Task, buried: Buried) {
        let status = match buried {
            Buried::Orphaned | Buried::Again => Status::Orphaned,
            Buried::Committed(status) => status,
            Buried::Open | Buried::LeftToService | Buried::NotRunning => return,
        };
        let Some(tracer) = self.runners.launcher.tracer() else { return };
        let mut task = task.clone();
        // Whether an attempt was the first is not read of all whose lease has run out.
        if !task.rest.contains_key("history") && task.attempt().is_some_and(|attempt| attempt > 1) {
            let fields = doc! { "history.status": 1, "history.attempt": 1 };
            let read = self.store.find_task_fields(task.id, fields).await;
            task.rest.extend(read.ok().flatten().unwrap_or_default());
        }
        let queue = self.queues.known().iter().find(|queue| queue.id == task.queue);
        trace_buried(tracer, &task, queue, (status, self.store.now()));
    }

    /// Runs that other programs started, where the operator has said how long one may take.
    pub(crate) async fn inspect_unleased(&self) -> Result<(), StoreError> {
        let limited = self.queues.known().iter().filter_map(|queue| Some((queue.id, unleased_limit(queue)?)));
        // What was to be stored during an outage may still be.
        let limited: Vec<_> = limited.filter(|(_, limit)| self.supervision.has_worked_for(*limit)).collect();
        if limited.is_empty() {
            return Ok(());
        }
        let now = self.store.server_time().await?;
        for (queue, limit) in limited {
            let oldest = long_ago(now, limit);
            for task in self.store.unleased_runs(queue, oldest).await? {
                let why = "it ran for longer than the queue's unleased_limit without a sign of life";
                self.bury(&task, Evidence::TooOld(oldest), why).await?;
            }
        }
        Ok(())
    }
}

/// Runs whose processes were killed and are not gone.
#[derive(Debug, Default)]
pub struct Deaths {
    /// Since when they are waited for, by task and attempt, and since when all of them are killed.
    since: HashMap<(TaskId, Option<i64>), (Instant, Option<Instant>)>,
    /// Until when this pass of the node's loop waits.
    until: Option<Instant>,
}

impl Deaths {
    /// A pass of the node's loop begins.
    pub fn pass_begins(&mut self, now: Instant) {
        self.until = Some(now + PASS_WAITS);
        self.since.retain(|_, (since, _)| now.saturating_duration_since(*since) < FORGOTTEN_AFTER);
    }

    /// Processes of a run are to die at `now`. Returns whether its guard has had the time for that, so that all of them are killed.
    fn is_guard_late(&mut self, run: (TaskId, Option<i64>), now: Instant) -> bool {
        let (since, killed) = self.since.entry(run).or_insert((now, None));
        let is_late = now.saturating_duration_since(*since) >= GUARD_TAKES;
        if is_late {
            killed.get_or_insert(now);
        }
        is_late
    }

    /// So many processes of a run are left at `now`. Returns whether it may be ended: none is, or they were waited for in vain. `None`: they are to be looked for
    /// again in this pass.
    fn may_end(&mut self, run: (TaskId, Option<i64>), left: usize, now: Instant) -> Option<bool> {
        let killed = self.since.get(&run).and_then(|(_, killed)| *killed);
        let is_vain = left > 0 && killed.is_some_and(|at| now.saturating_duration_since(at) > DEATH_TAKES);
        if is_vain {
            tracing::error!(task = %run.0, "processes of the task do not die");
        }
        if left == 0 || is_vain {
            self.since.remove(&run);
            return Some(true);
        }
        self.until.is_none_or(|until| now >= until).then_some(false)
    }
}

/// Kills what is left of the processes of a task's attempt, and waits until nothing is, as far as the pass has the time. Returns whether its end may be
/// written; if not, the same is to be done in the next pass.
/// A warm runner that has another task by now, or none, is left alone: the node's loop gives out no task meanwhile, so that stays so for this pass.
async fn await_death(wanted: Wanted<'_>, attempt: Option<i64>, deaths: &mut Deaths) -> bool {
    let run = (wanted.task, attempt);
    loop {
        let now = Instant::now();
        let left = match deaths.is_guard_late(run, now) {
            true => processes::kill_all(wanted),
            false => processes::kill_runners(wanted),
        };
        let Some(left) = seen(wanted.task, left) else {
            // Those that could not be seen were not killed.
            deaths.since.remove(&run);
            return false;
        };
        if let Some(may_end) = deaths.may_end(run, left, now) {
            return may_end;
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// What the system tells of the processes of a task. `None`: it does not, and is to be asked again in the next pass.
fn seen<T>(task: TaskId, told: io::Result<T>) -> Option<T> {
    told.inspect_err(|error| tracing::warn!(%task, %error, "cannot see which processes it has left")).ok()
}

/// Logs what became of a run that was ended.
fn report(task: TaskId, buried: Buried, why: &str) {
    match buried {
        Buried::Orphaned => tracing::error!(%task, "{why}: orphaned"),
        Buried::Again => tracing::warn!(%task, "{why}: it will be tried again"),
        Buried::Committed(status) => {
            tracing::warn!(%task, status = status.code(), "{why}: its plugin had committed its end");
        }
        Buried::Open => tracing::warn!(%task, "{why}: a transaction of its plugin has not ended yet"),
        Buried::LeftToService => tracing::warn!(%task, "{why}: its web service has it, and it runs on"),
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
    use nix::sys::resource::{Resource, getrlimit, setrlimit};

    use super::*;

    #[test]
    fn processes_that_do_not_die_are_waited_for_a_moment_in_each_pass_and_together() {
        let run = |number: u8| (TaskId([number; 12].into()), Some(1));
        let (mut deaths, begun) = (Deaths::default(), Instant::now());
        let look = |deaths: &mut Deaths, number, left, at| {
            (deaths.is_guard_late(run(number), at), deaths.may_end(run(number), left, at))
        };
        deaths.pass_begins(begun);
        assert_eq!(look(&mut deaths, 1, 3, begun), (false, None));
        let at = begun + PASS_WAITS;
        assert_eq!(look(&mut deaths, 1, 3, at), (false, Some(false)));
        assert_eq!(look(&mut deaths, 2, 1, at), (false, Some(false)), "the pass has waited long enough");
        // However late the next look comes, all are killed before they are waited for in vain.
        let at = begun + DEATH_TAKES * 2;
        deaths.pass_begins(at);
        assert_eq!(look(&mut deaths, 1, 1, at), (true, None));
        assert_eq!(look(&mut deaths, 2, 0, at).1, Some(true));
        let at = at + DEATH_TAKES;
        deaths.pass_begins(at);
        assert_eq!(look(&mut deaths, 1, 1, at + LOOK_AGAIN), (true, Some(true)), "it is not waited for ever");
        assert_eq!(look(&mut deaths, 1, 1, at + LOOK_AGAIN), (false, None), "it has begun anew");
        deaths.pass_begins(at + FORGOTTEN_AFTER * 2);
        assert!(deaths.since.is_empty());
        assert!(DEATH_TAKES > GUARD_TAKES, "a plugin whose guard is dead, too, is killed");
    }

    #[tokio::test]
    async fn a_run_is_not_over_while_nobody_can_see_its_processes() {
        let (task, ours) = (TaskId([1; 12].into()), processes::Ours::of(0, None));
        let mut deaths = Deaths::default();
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, 0, hard).unwrap();
        let is_over = await_death(Wanted::of(task, &ours), Some(1), &mut deaths).await;
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
        assert!(!is_over && deaths.since.is_empty());
        assert!(await_death(Wanted::of(task, &ours), Some(1), &mut deaths).await);
    }

    #[test]
    fn what_could_not_be_looked_for_is_looked_for_again() {
        let (mut supervision, now) = (Supervision::new(Duration::from_secs(30)), Instant::now());
        assert!(supervision.wants_nobodys(now));
        assert!(!supervision.wants_nobodys(now));
        supervision.could_not_look();
        assert!(supervision.wants_nobodys(now));
    }
}
