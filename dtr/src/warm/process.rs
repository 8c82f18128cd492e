//! One process of a warm plugin, from its start to its end.

use std::io;
use std::time::Duration;

use disbatch_core::clock::boot_time;
use disbatch_core::lifecycle::Lifecycle;
use disbatch_core::plugin::Warm;
use nix::unistd::Pid;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until, timeout};

use super::meter::{Meter, Usage};
use super::pipes::{Intake, Pipes};
use crate::guard::Guarded;
use crate::guard::protocol::{Exit, Order, Report};
use crate::plugin::{NotBegun, PIPES_GRACE, TOLD_TO_END};
use crate::supervision::{Ending, Reason, Supervision, Wish};

/// How long a process has to end that is told to, or that does not take tasks any more.
const LEAVING: Duration = Duration::from_secs(2);

/// A plugin that has no task may live for ever: the guard need not wake up for it. Its runner's end ends it all the same.
const WITHOUT_TASK: Duration = Duration::from_secs(200 * 365 * 24 * 60 * 60);

/// A process that takes one task after the other.
#[derive(Debug)]
pub struct Process {
    pub(super) guard: Guarded,
    pub(super) pipes: Pipes,
    pub(super) meter: Meter,
    pub(super) leash: Leash,
    bounds: Bounds,
    tasks: u32,
    most_memory: u64,
    /// The first task pays for the start.
    began: Instant,
    idle_since: Instant,
    /// When it is killed that has been told to end.
    kill_at: Option<Instant>,
    stray_was_told: bool,
}

/// How long a process is kept.
#[derive(Debug, Clone, Copy)]
pub struct Bounds {
    /// What the manifest says of that.
    pub limits: Warm,
    /// After so much processor time the system kills it, if there is such a limit.
    pub cpu: Option<Duration>,
}

/// What became of a task.
#[derive(Debug)]
pub enum Fate {
    Done {
        /// What would be its exit status.
        code: u8,
        took: Duration,
        usage: Usage,
    },
    /// The process has ended.
    Ended {
        /// How, with duration and processor time of this task.
        exit: Exit,
        /// What the runner wanted it to end for.
        reason: Option<Reason>,
        /// Whether the guard lived to tell.
        guarded: bool,
        /// Whether a process that outlived it holds its pipes.
        abandoned: bool,
    },
    /// The process has ended, and certainly not begun with it.
    NotBegun,
}

/// Who has a say while a task runs, or its process is started.
pub struct Say<'a> {
    pub supervision: &'a mut Supervision,
    /// The runner's own end.
    pub lifecycle: &'a Lifecycle,
}

impl Process {
    /// For a process that `guard` has begun to start, and lets live until that time. That may take a while, in which
    /// `until` may be put off.
    pub async fn begin(
        mut guard: Guarded,
        bounds: Bounds,
        until: &mut Duration,
        say: Say<'_>,
    ) -> Result<Self, NotBegun> {
        let began = Instant::now();
        let streams = guard.streams().ok_or_else(|| io::Error::other("the plugin has no pipes"))?;
        let mut reason = None;
        let pid = loop {
            tokio::select! {
                biased;
                report = guard.report() => match report {
                    Some(Report::Pid(pid)) if reason.is_none() => break Pid::from_raw(pid),
                    // It has no task, and gets none.
                    Some(Report::Pid(_)) => {
                        return Err(NotBegun::new("it had just been started".to_owned(), reason));
                    }
                    Some(Report::Error(error)) => return Err(NotBegun::new(error, reason)),
                    Some(Report::Exited(_) | Report::NotDirect) | None => {
                        return Err(NotBegun::new("the guard is gone".to_owned(), reason));
                    }
                },
                wish = say.supervision.next() => match wish {
                    Wish::Until(time) => {
                        *until = time;
                        guard.tell(Order::Until(time));
                    }
                    Wish::Interrupt => {}
                    Wish::End(end) => {
                        reason.get_or_insert(end.reason);
                        guard.tell(Order::Kill);
                    }
                },
                () = say.lifecycle.ending(), if reason.is_none() => {
                    reason = Some(Reason::Runner);
                    guard.tell(Order::Kill);
                }
            }
        };
        Ok(Self {
            guard,
            pipes: Pipes::new(streams)?,
            meter: Meter::of(pid),
            leash: Leash::new(*until),
            bounds,
            tasks: 0,
            most_memory: 0,
            began,
            idle_since: began,
            kill_at: None,
            stray_was_told: false,
        })
    }

    /// Whether it can be given another task.
    pub fn is_fit(&self) -> bool {
        self.kill_at.is_none()
    }

    /// Gives it a task, which may last `until`, and waits for its end. After anything but [`Fate::Done`] the process
    /// is gone.
    pub async fn work(&mut self, intake: &mut Intake<'_>, until: Duration, say: Say<'_>) -> Fate {
        self.pipes.discard();
        self.tell_of_stray();
        if let Some(until) = self.leash.begin(until, boot_time()) {
            self.guard.tell(Order::Until(until));
        }
        let began = if self.tasks == 0 { self.began } else { Instant::now() };
        let mut ending = Ending::default();
        if self.pipes.send(intake).is_err() {
            // It is about to end. If not, it has no part in this any more.
            ending.kill_in(LEAVING);
        }
        match self.attend(intake, &mut ending, say).await {
            None => self.done(intake, began.elapsed()),
            Some((exit, guarded, abandoned)) => {
                let reason = ending.reason.filter(|_| exit.ordered || !guarded);
                if ending.reason.is_none() && self.pipes.is_unread(intake) {
                    return Fate::NotBegun;
                }
                let exit = Exit { duration: began.elapsed(), cpu: self.meter.rest(exit.cpu), ..exit };
                Fate::Ended { exit, reason, guarded, abandoned }
            }
        }
    }

    /// Waits until the task is done, or tells how the process ended: its exit, whether its guard lived to tell, and
    /// whether its pipes are held by another process.
    async fn attend(
        &mut self,
        intake: &mut Intake<'_>,
        ending: &mut Ending,
        say: Say<'_>,
    ) -> Option<(Exit, bool, bool)> {
        let hang_up = Notify::new();
        let follow = self.pipes.follow(intake, &hang_up);
        tokio::pin!(follow);
        let mut drained = false;
        let mut told_to_end = false;
        let tell_in = self.leash.must_tell_in(boot_time());
        let tell_kept_back = sleep(tell_in.unwrap_or_default());
        tokio::pin!(tell_kept_back);
        let (exit, guarded) = loop {
            tokio::select! {
                biased;
                // Before the output, which may never cease to come.
                wish = say.supervision.next() => match wish {
                    Wish::Until(time) => self.guard.tell(Order::Until(self.leash.tell(time))),
                    Wish::Interrupt => {}
                    Wish::End(end) => {
                        ending.end(&self.guard, end);
                        hang_up.notify_one();
                    }
                },
                () = say.lifecycle.ending(), if !told_to_end => {
                    told_to_end = true;
                    ending.end(&self.guard, TOLD_TO_END);
                    hang_up.notify_one();
                }
                () = tell_kept_back.as_mut(), if tell_in.is_some() && !tell_kept_back.is_elapsed() => {
                    if let Some(until) = self.leash.tell_kept_back() {
                        self.guard.tell(Order::Until(until));
                    }
                }
                () = ending.grace_is_over() => ending.kill(&self.guard),
                done = follow.as_mut(), if !drained => match done {
                    true => return None,
                    false => drained = true,
                },
                report = self.guard.report() => match report {
                    Some(Report::Exited(exit)) => break (exit, true),
                    Some(Report::Pid(_) | Report::Error(_) | Report::NotDirect) => {}
                    None => {
                        Box::pin(self.guard.clear_up()).await;
                        break (Exit::unknown(), false);
                    }
                },
            }
        };
        let abandoned = !drained && timeout(PIPES_GRACE, follow).await.is_err();
        Some((exit, guarded, abandoned))
    }

    fn done(&mut self, intake: &mut Intake<'_>, took: Duration) -> Fate {
        self.pipes.take_rest(intake);
        let usage = self.meter.lap(took);
        self.idle_since = Instant::now();
        if self.count(1, usage) {
            self.leave();
        }
        Fate::Done { code: intake.said.control.done.unwrap_or(1), took, usage }
    }

    /// Counts tasks that it has done, with what they have used. Returns whether it is to be replaced.
    pub(super) fn count(&mut self, tasks: u32, usage: Usage) -> bool {
        if self.tasks == 0 {
            self.most_memory = self.bounds.limits.most_memory(usage.memory);
        }
        self.tasks += tasks;
        // Its processor time is that of all its tasks. So each of them can have half of what there is.
        let worn = self.bounds.cpu.is_some_and(|most| self.meter.total() >= most / 2);
        let is_enough = self.tasks >= self.bounds.limits.tasks || worn || usage.memory > self.most_memory;
        if is_enough {
            tracing::debug!(tasks = self.tasks, memory = usage.memory, "the warm plugin is replaced");
        }
        is_enough
    }

    /// It has no task from now on.
    pub(super) fn rest(&mut self) {
        self.idle_since = Instant::now();
    }

    /// Tells it to end, which takes a while.
    pub fn leave(&mut self) {
        self.pipes.hang_up();
        self.kill_at.get_or_insert_with(|| Instant::now() + LEAVING);
    }

    /// Waits until it has ended. Kills it if that takes too long.
    pub async fn end(mut self) {
        self.leave();
        while !self.idle().await {}
    }

    /// Looks after it while it has no task: throws away what it writes, and ends it when it has had none for too
    /// long. Returns when there was something to do, with whether it has ended. Nothing is lost when this is dropped.
    pub async fn idle(&mut self) -> bool {
        let put_off_in = self.leash.must_put_off_in(boot_time());
        let until = self.kill_at.unwrap_or(self.idle_since + self.bounds.limits.idle);
        tokio::select! {
            report = self.guard.report() => return match report {
                Some(Report::Pid(_)) => false,
                Some(Report::Exited(_) | Report::Error(_) | Report::NotDirect) => true,
                None => {
                    self.guard.clear_up().await;
                    true
                }
            },
            () = self.pipes.discard_next() => self.tell_of_stray(),
            () = sleep(put_off_in) => self.put_off(),
            () = sleep_until(until) => match self.kill_at {
                None => self.leave(),
                Some(_) => {
                    self.guard.tell(Order::Kill);
                    self.kill_at = Some(Instant::now() + LEAVING);
                }
            },
        }
        false
    }

    /// Without a task, it does not end with the lease of the last one.
    pub fn put_off(&mut self) {
        let now = boot_time();
        if !self.leash.is_put_off(now) {
            let until = self.leash.put_off(now);
            self.guard.tell(Order::Until(until));
        }
    }

    pub(super) fn tell_of_stray(&mut self) {
        if self.pipes.stray > 0 && !std::mem::replace(&mut self.stray_was_told, true) {
            let bytes = self.pipes.stray;
            tracing::warn!(bytes, "the warm plugin writes what belongs to no task, which is thrown away");
        }
    }
}

/// Until when the guard lets a warm plugin live: what it has been told last, as times of [`boot_time`](disbatch_core::clock::boot_time). Pure.
///
/// While a plugin has a task, the guard must know of no later time than that of the task's own lease. An earlier one
/// is safe too, as long as it is put off in time. So the guard, which is a process that has to wake up for
/// each word, hears of most short tasks nothing.
#[derive(Debug)]
pub struct Leash {
    told: Duration,
    /// What it has not been told yet.
    kept_back: Option<Duration>,
}

impl Leash {
    /// The guard was told this when it started the plugin.
    pub fn new(told: Duration) -> Self {
        Self { told, kept_back: None }
    }

    /// A task begins at `now` that may last until `until`. Returns what the guard has to be told before.
    pub fn begin(&mut self, until: Duration, now: Duration) -> Option<Duration> {
        let enough = now.saturating_add(until.saturating_sub(now) / 2);
        if enough <= self.told && self.told <= until {
            self.kept_back = Some(until).filter(|until| *until > self.told);
            return None;
        }
        Some(self.tell(until))
    }

    /// The guard is told of this time.
    pub fn tell(&mut self, until: Duration) -> Duration {
        self.kept_back = None;
        self.told = until;
        until
    }

    /// How long what was kept back may be kept back at most: half of what the guard grants.
    pub fn must_tell_in(&self, now: Duration) -> Option<Duration> {
        self.kept_back.map(|_| self.told.saturating_sub(now) / 2)
    }

    /// What was kept back, to be told now.
    pub fn tell_kept_back(&mut self) -> Option<Duration> {
        self.kept_back.take().map(|until| self.tell(until))
    }

    /// How long a plugin without a task may be left alone before the guard is told of [`Leash::put_off`].
    pub fn must_put_off_in(&self, now: Duration) -> Duration {
        self.told.saturating_sub(now) / 2
    }

    /// Whether the guard knows that the plugin has no task.
    pub fn is_put_off(&self, now: Duration) -> bool {
        self.told.saturating_sub(now) > WITHOUT_TASK / 2
    }

    /// A plugin that has no task may live for long.
    pub fn put_off(&mut self, now: Duration) -> Duration {
        self.tell(now.saturating_add(WITHOUT_TASK))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn short_tasks_in_a_row_need_few_words() {
        let mut leash = Leash::new(s(127));
        let mut told = 0;
        for now in 100..200 {
            if let Some(until) = leash.begin(s(now + 27), s(now)) {
                assert_eq!(until, s(now + 27));
                told += 1;
            }
            assert!(leash.told <= s(now + 27), "never more than the task's lease");
            assert!(leash.told >= s(now + 13), "and always half of it");
        }
        assert!((6..10).contains(&told), "{told}");
    }

    #[test]
    fn a_task_that_lasts_gets_all_of_its_lease() {
        let mut leash = Leash::new(s(120));
        assert_eq!(leash.begin(s(127), s(100)), None);
        assert_eq!(leash.must_tell_in(s(100)), Some(s(10)));
        assert_eq!(leash.tell_kept_back(), Some(s(127)));
        assert_eq!((leash.must_tell_in(s(110)), leash.tell_kept_back()), (None, None));
        assert_eq!(leash.begin(s(127), s(101)), None);
        assert_eq!(leash.must_tell_in(s(101)), None, "it has all of it");
    }

    #[test]
    fn a_renewal_takes_the_place_of_what_was_kept_back() {
        let mut leash = Leash::new(s(120));
        assert_eq!(leash.begin(s(127), s(100)), None);
        assert_eq!(leash.tell(s(136)), s(136));
        assert_eq!(leash.tell_kept_back(), None);
    }

    #[test]
    fn after_a_time_without_tasks_the_lease_counts_again() {
        let mut leash = Leash::new(s(127));
        assert_eq!(leash.must_put_off_in(s(101)), s(13));
        assert!(!leash.is_put_off(s(101)));
        assert_eq!(leash.put_off(s(114)), WITHOUT_TASK + s(114));
        assert!(leash.is_put_off(s(120)));
        assert_eq!(leash.begin(s(147), s(120)), Some(s(147)), "later than the lease of the task");
        assert_eq!(leash.begin(s(90), s(120)), Some(s(90)), "a lease that is over");
    }
}
