//! One process of a warm plugin, from its start to its end.

use std::pin::pin;
use std::time::Duration;

use disbatch_core::clock::boot_time;
use futures::FutureExt;
use nix::unistd::Pid;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use super::Key;
use super::meter::{Meter, Usage};
use super::pipes::{Pipes, Said};
use crate::guard::protocol::{Exit, Order, Report};
use crate::guard::{Guarded, Streams};
use crate::plugin::{Exited, NotBegun, Say, Watch};
use crate::secrets::Wiped;
use crate::supervision::{Ending, Reason, Wish};

/// How long a process has to end that is told to, or that does not take tasks any more.
pub(super) const LEAVING: Duration = Duration::from_secs(2);

/// A plugin that has no task may live for ever: the guard need not wake up for it. Its runner's end ends it all the same.
const WITHOUT_TASK: Duration = Duration::from_secs(200 * 365 * 24 * 60 * 60);

#[derive(Debug)]
pub struct Process {
    pub(super) key: Key,
    pub(super) guard: Guarded,
    pub(super) pipes: Pipes,
    pub(super) meter: Meter,
    pub(super) leash: Leash,
    pub(super) tasks: u32,
    most_memory: u64,
    /// It has done or used so much that it is to be replaced.
    is_worn: bool,
    /// The first task pays for the start.
    began: Instant,
    idle_since: Instant,
    /// When it is killed that has been told to end.
    kill_at: Option<Instant>,
    stray_was_told: bool,
}

#[derive(Debug)]
pub enum Fate {
    Done {
        took: Duration,
        usage: Usage,
    },
    /// The process has ended, and how, with duration and processor time of this task.
    Ended(Exited),
    /// The process has ended, and certainly not begun with it.
    NotBegun,
}

impl Process {
    /// For a process that `guard` has begun to start, and lets live until that time. That may take a while, in which
    /// `until` may be put off.
    pub(super) async fn begin(
        (mut guard, streams): (Guarded, Streams),
        key: Key,
        until: &mut Duration,
        say: &mut Say<'_>,
    ) -> Result<Self, NotBegun> {
        let began = Instant::now();
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
            key,
            guard,
            pipes: Pipes::new(streams)?,
            meter: Meter::of(pid),
            leash: Leash::new(*until),
            tasks: 0,
            most_memory: 0,
            is_worn: false,
            began,
            idle_since: began,
            kill_at: None,
            stray_was_told: false,
        })
    }

    pub fn is_fit(&self) -> bool {
        self.kill_at.is_none() && !self.is_worn
    }

    /// Gives it a task by this line, which may last `until`, and waits for its end. After anything but [`Fate::Done`] the
    /// process is gone.
    pub async fn work(
        &mut self,
        line: Wiped,
        said: &mut Said<'_>,
        until: Duration,
        say: &mut Say<'_>,
    ) -> Result<Fate, NotBegun> {
        self.pipes.discard();
        self.tell_of_stray();
        self.grant(until);
        let began = if self.tasks == 0 { self.began } else { Instant::now() };
        let mut ending = Ending::default();
        let line = self.pipes.put(line);
        if self.pipes.send().is_err() {
            // It is about to end. If not, it has no part in this any more.
            ending.kill_in(LEAVING);
        }
        let hang_up = Notify::new();
        let (guard, leash, relay) = (&mut self.guard, Some(&mut self.leash), said.relay);
        let mut watch = Watch { guard, leash, relay, ending, stops: false, told_to_stop: false };
        let follow = self.pipes.follow(said, &hang_up).map(|is_done| is_done.then_some(()));
        let ended = watch.until_exit(pin!(follow), &hang_up, say).await?;
        Ok(match ended {
            Err(()) => self.done(said, began.elapsed()),
            Ok(_) if watch.ending.reason.is_none() && self.pipes.is_unread()(line) => Fate::NotBegun,
            Ok(exited) => {
                self.pipes.take_rest(said);
                let cpu = self.meter.rest(exited.exit.cpu);
                let exit = Exit { duration: began.elapsed(), cpu, ..exited.exit };
                Fate::Ended(Exited { exit, ..exited })
            }
        })
    }

    /// The guard is told until when the process may live at least, if it has to be.
    pub(super) fn grant(&mut self, until: Duration) {
        if let Some(until) = self.leash.begin(until, boot_time()) {
            self.guard.tell(Order::Until(until));
        }
    }

    fn done(&mut self, said: &mut Said<'_>, took: Duration) -> Fate {
        self.pipes.take_rest(said);
        let usage = self.meter.lap(took);
        self.rest();
        self.count(1, usage);
        if self.is_worn {
            self.leave();
        }
        Fate::Done { took, usage }
    }

    pub(super) fn count(&mut self, tasks: u32, usage: Usage) {
        let limits = self.key.limits;
        if self.tasks == 0 {
            self.most_memory = limits.most_memory(usage.memory);
        }
        self.tasks += tasks;
        // Its processor time is that of all its tasks. So each of them can have half of what there is.
        let worn = self.key.most_cpu().is_some_and(|most| self.meter.total() >= most / 2);
        if self.tasks >= limits.tasks || worn || usage.memory > self.most_memory {
            tracing::debug!(tasks = self.tasks, memory = usage.memory, "the warm plugin is replaced");
            self.is_worn = true;
        }
    }

    pub(super) fn rest(&mut self) {
        self.idle_since = Instant::now();
    }

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
        let until = self.kill_at.unwrap_or(self.idle_since + self.key.limits.idle);
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
        if let Some(until) = self.leash.put_off(boot_time()) {
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

    pub fn tell(&mut self, until: Duration) -> Duration {
        self.kept_back = None;
        self.told = until;
        until
    }

    /// How long what was kept back may be kept back at most: half of what the guard grants.
    pub fn must_tell_in(&self, now: Duration) -> Option<Duration> {
        self.kept_back.map(|_| self.told.saturating_sub(now) / 2)
    }

    pub fn tell_kept_back(&mut self) -> Option<Duration> {
        self.kept_back.take().map(|until| self.tell(until))
    }

    /// How long a plugin without a task may be left alone before the guard is told of [`Leash::put_off`].
    pub fn must_put_off_in(&self, now: Duration) -> Duration {
        self.told.saturating_sub(now) / 2
    }

    /// A plugin that has no task may live for long. Returns what the guard has to be told, unless it knows that there is none.
    pub fn put_off(&mut self, now: Duration) -> Option<Duration> {
        let knows = self.told.saturating_sub(now) > WITHOUT_TASK / 2;
        (!knows).then(|| self.tell(now.saturating_add(WITHOUT_TASK)))
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
        assert_eq!(leash.put_off(s(114)), Some(WITHOUT_TASK + s(114)));
        assert_eq!(leash.put_off(s(120)), None, "the guard knows");
        assert_eq!(leash.begin(s(147), s(120)), Some(s(147)), "later than the lease of the task");
        assert_eq!(leash.begin(s(90), s(120)), Some(s(90)), "a lease that is over");
    }
}
