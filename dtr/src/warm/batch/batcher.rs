//! What gives tasks of several lanes to a process, and takes apart what that says.

use std::collections::{HashMap, VecDeque};
use std::convert::Infallible;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use disbatch_core::clock::boot_time;
use disbatch_core::lifecycle::Lifecycle;
use disbatch_core::model::TaskId;
use serde_json::json;
use tokio::sync::mpsc;
use tokio::task::consume_budget;
use tokio::time::{Instant, sleep};

use super::running::{Running, read};
use super::{Answered, Batches, Entry, Fate, Order, Unheard, Weight, Word};
use crate::control::end_of;
use crate::guard::Guards;
use crate::guard::protocol::{Exit, Order as ToGuard, Report};
use crate::plugin::{Exited, TOLD_TO_END};
use crate::supervision::{End, Reason, Wish, or_never, until};
use crate::warm::pipes::{Line, Ready};
use crate::warm::process::Process;

/// How long an answer waits for others at most, where a plugin may be given tasks that have waited for others.
const GATHERS: Duration = Duration::from_millis(2);

/// Gives tasks to the process, and hands on what that says.
#[derive(Debug)]
pub struct Batcher {
    orders: mpsc::UnboundedReceiver<Order>,
    pub(super) guards: Guards,
    unheard: Arc<Unheard>,
    /// Tasks that no process has, in the order in which they came.
    pub(super) waiting: VecDeque<Entry>,
    /// When the first of them has waited for long enough, or something else may be different.
    pub(super) due: Option<Instant>,
    pub(super) running: Option<Running>,
    /// What the process has been given and not answered.
    pub(super) lanes: HashMap<TaskId, Lane>,
    is_told_to_end: bool,
}

/// A task that the process has.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) words: mpsc::UnboundedSender<Word>,
    pub(super) until: Duration,
    pub(super) began: Instant,
    pub(super) line: Line,
    /// Why it is to end, and when the process is killed for that.
    pub(super) end: Option<(Reason, Instant)>,
}

impl Lane {
    /// It is to end, and its process is killed at that moment if it has not. Of several requests the first gives the reason, and
    /// the earliest moment counts.
    fn end_by(&mut self, reason: Reason, kill_at: Instant) {
        let (reason, earlier) = self.end.unwrap_or((reason, kill_at));
        self.end = Some((reason, earlier.min(kill_at)));
    }
}

impl Batcher {
    /// Both sides. Processes are started by `guards`.
    pub fn new(guards: Guards) -> (Batches, Self) {
        let (sender, orders) = mpsc::unbounded_channel();
        let batches = Batches { orders: sender, seen: Mutex::default() };
        let batcher = Self {
            orders,
            guards,
            unheard: Arc::default(),
            waiting: VecDeque::new(),
            due: None,
            running: None,
            lanes: HashMap::new(),
            is_told_to_end: false,
        };
        (batches, batcher)
    }

    /// Works. Never returns. As long as no task is here, nothing is lost when this is dropped.
    pub async fn drive(&mut self, lifecycle: &Lifecycle) -> Infallible {
        loop {
            self.give(lifecycle).await;
            self.deal_with_next(lifecycle).await;
        }
    }

    /// Ends the process, if there is one. To be called when there are no tasks.
    pub async fn end(&mut self) {
        if let Some(running) = self.running.take() {
            running.process.end().await;
        }
    }

    /// Waits for what comes first, and deals with that.
    async fn deal_with_next(&mut self, lifecycle: &Lifecycle) {
        let (look, kill) = (until(self.due), until(self.kill_at()));
        let Self { orders, running, lanes, unheard, is_told_to_end, .. } = self;
        if lanes.is_empty() || running.is_none() {
            let idle = or_never(running.as_mut().map(|running| running.process.idle()));
            return tokio::select! {
                biased;
                Some(order) = orders.recv() => self.obey(order),
                () = look => {}
                has_ended = idle => {
                    if has_ended {
                        tracing::debug!("the warm plugin has ended");
                        self.running = None;
                    }
                }
            };
        }
        let Some(running) = running else { return };
        let is_overheard = unheard.is_too_much();
        let heard_at = running.heard_at.filter(|_| !is_overheard);
        let is_listened_to = !is_overheard && heard_at.is_none();
        let tell_in = running.process.leash.must_tell_in(boot_time());
        let Process { pipes, guard, .. } = &mut running.process;
        tokio::select! {
            biased;
            Some(order) = orders.recv() => self.obey(order),
            () = lifecycle.ending(), if !*is_told_to_end => self.end_all(),
            () = kill => self.kill(),
            () = sleep(tell_in.unwrap_or_default()), if tell_in.is_some() => {
                if let Some(until) = running.process.leash.tell_kept_back() {
                    running.process.guard.tell(ToGuard::Until(until));
                }
            }
            ready = pipes.ready(is_listened_to, None), if !running.has_closed_all => {
                self.deal_with(ready);
                consume_budget().await;
            }
            () = unheard.fewer.notified(), if is_overheard => {}
            () = until(heard_at) => self.hear_all(),
            // Also when output has used up what a task of the runtime may do at a time.
            report = tokio::task::unconstrained(guard.report()) => match report {
                Some(Report::Exited(exit)) => self.bury(exit, true),
                Some(Report::Pid(_) | Report::Error(_) | Report::NotDirect) => {}
                None => {
                    Box::pin(running.process.guard.clear_up()).await;
                    self.bury(Exit::unknown(), false);
                }
            },
            () = look => {}
        }
    }

    /// Takes this order, and all that have come since.
    fn obey(&mut self, order: Order) {
        self.note(order);
        while let Ok(order) = self.orders.try_recv() {
            self.note(order);
        }
        self.grant();
    }

    fn note(&mut self, order: Order) {
        match order {
            Order::Work(entry) => match self.is_told_to_end {
                true => entry.refuse("its runner was told to end", Some(Reason::Runner)),
                false => self.waiting.push_back(*entry),
            },
            Order::Wish(task, wish) => {
                let waiting = self.waiting.iter().position(|entry| entry.task == task);
                match (wish, waiting) {
                    (Wish::Until(until), Some(at)) => self.waiting[at].until = until,
                    (Wish::Until(until), None) => {
                        if let Some(lane) = self.lanes.get_mut(&task) {
                            lane.until = until;
                        }
                    }
                    (Wish::End(end), Some(at)) => {
                        if let Some(entry) = self.waiting.remove(at) {
                            entry.refuse("it was to end before it was begun", Some(end.reason));
                        }
                    }
                    (Wish::End(end), None) => self.end_one(task, end),
                    (Wish::Interrupt, _) => {}
                }
            }
        }
    }

    /// Lets the process live until the first of the leases is over.
    pub(super) fn grant(&mut self) {
        let until = self.lanes.values().map(|lane| lane.until).min();
        if let (Some(until), Some(Running { process, .. })) = (until, &mut self.running) {
            process.grant(until);
        }
    }

    /// Has the process end its work on a task.
    fn end_one(&mut self, task: TaskId, end: End) {
        let (Some(lane), Some(running)) = (self.lanes.get_mut(&task), &mut self.running) else { return };
        let is_first = lane.end.is_none();
        // There is no grace when somebody else has the task.
        let grace = if end.reason == Reason::LeaseLost { Duration::ZERO } else { end.grace };
        lane.end_by(end.reason, Instant::now() + grace);
        if is_first && !grace.is_zero() {
            let (reason, grace_s) = (end.reason.as_str(), grace.as_secs_f64());
            tracing::warn!(%task, reason, grace_s, "telling the plugin to end one of its tasks");
            let line = json!({ "cancel": { "id": task.to_string(), "reason": reason } });
            running.process.pipes.put(format!("{line}\n").into_bytes().into());
        }
    }

    /// The runner was told to end, and so is what it runs.
    fn end_all(&mut self) {
        self.is_told_to_end = true;
        for entry in self.waiting.drain(..) {
            entry.refuse("its runner was told to end", Some(Reason::Runner));
        }
        let kill_at = Instant::now() + TOLD_TO_END.grace;
        for lane in self.lanes.values_mut() {
            lane.end_by(TOLD_TO_END.reason, kill_at);
        }
        if let Some(running) = &self.running {
            running.process.guard.tell(ToGuard::Term);
        }
    }

    fn kill_at(&self) -> Option<Instant> {
        let running = self.running.as_ref().filter(|running| !running.is_killed)?;
        self.lanes.values().filter_map(|lane| lane.end.map(|(_, at)| at)).chain(running.kill_at).min()
    }

    fn kill(&mut self) {
        if let Some(running) = &mut self.running {
            tracing::warn!(
                tasks = self.lanes.len(),
                "killing the plugin, with all tasks that it has not answered"
            );
            running.is_killed = true;
            running.process.guard.tell(ToGuard::Kill);
        }
    }

    fn deal_with(&mut self, ready: Option<Ready>) {
        let Some(running) = &mut self.running else { return };
        match ready {
            None => running.has_closed_all = true,
            Some(Ready::Stdin) => running.send(),
            Some(Ready::Control) => {
                let wait = running.process.key.limits.batch.map_or(Duration::ZERO, |batch| batch.wait());
                if self.lanes.len() > 1 && !wait.is_zero() {
                    // What is stored together costs less. Most of a line is often answered at the same moment.
                    running.heard_at = Some(Instant::now() + wait.min(GATHERS));
                } else {
                    self.hear_all();
                }
            }
            Some(ready @ (Ready::Stdout | Ready::Stderr)) => running.take_stray(ready, false),
            Some(Ready::HangUp) => {}
        }
    }

    /// Reads what the plugin has said, and hands it on.
    fn hear_all(&mut self) {
        let Some(running) = &mut self.running else { return };
        running.heard_at = None;
        let mut bytes = Vec::new();
        running.process.pipes.take_from(Ready::Control, false, |read| bytes.extend_from_slice(read));
        self.hear(&bytes);
    }

    /// Hands on what the plugin has said.
    fn hear(&mut self, mut bytes: &[u8]) {
        let Some(running) = &mut self.running else { return };
        let mut sayings = Vec::new();
        while let Some(line) = running.lines.next(&mut bytes) {
            let read = line.map_err(|error| error.to_string()).and_then(|line| read(&line));
            let (task, message, length) = match read {
                Ok(read) => read,
                Err(why) => {
                    running.complain(&why);
                    continue;
                }
            };
            let is_end = message.get("done").is_some_and(|done| end_of(done, task, true).is_some());
            // What is said of it later is about a task that the plugin does not have.
            let lane = if is_end { self.lanes.remove(&task) } else { None };
            let Some(told) = lane.as_ref().or_else(|| self.lanes.get(&task)) else {
                running.complain(&format!("a line is ignored: the plugin does not have the task {task}"));
                continue;
            };
            let (words, weight) = (told.words.clone(), Weight::new(length, &self.unheard));
            sayings.push((words, message, weight, lane));
        }
        let answered = sayings.iter().filter(|(.., lane)| lane.is_some()).count();
        let usage = running.used_by_each(answered);
        for (words, message, weight, lane) in sayings {
            let answered = lane.map(|lane| Answered {
                took: lane.began.elapsed(),
                usage,
                reason: lane.end.map(|(reason, _)| reason),
            });
            // A lane whose task has been taken away may have ended.
            let _ended = words.send(Word::Said { message, answered, weight });
        }
        if self.lanes.is_empty() {
            running.process.rest();
        }
    }

    /// The process has ended: with it those tasks that it has not answered, save those that it cannot have begun.
    fn bury(&mut self, exit: Exit, guarded: bool) {
        let mut last = Vec::new();
        if let Some(running) = &mut self.running {
            running.process.pipes.take_from(Ready::Control, true, |read| last.extend_from_slice(read));
            running.take_stray(Ready::Stderr, true);
        }
        self.hear(&last);
        let Some(running) = self.running.take() else { return };
        let is_unread = running.process.pipes.is_unread();
        let is_ended = exit.ordered && self.lanes.values().any(|lane| lane.end.is_some());
        let (with_others, alone) = (running.last_words(is_ended), running.last_words(false));
        let cpu = running.process.meter.rest(exit.cpu) / u32::try_from(self.lanes.len()).unwrap_or(1).max(1);
        let (was_first, now) = (running.process.tasks == 0, boot_time());
        for (_, lane) in self.lanes.drain() {
            let fate = if lane.end.is_none() && is_unread(lane.line) {
                Fate::NotBegun { was_first }
            } else {
                let reason = lane.end.map(|(reason, _)| reason).filter(|_| exit.ordered || !guarded);
                let lapsed = exit.lapsed && lane.until <= now;
                let exit = Exit { duration: lane.began.elapsed(), cpu, lapsed, ..exit };
                let last_words = Arc::clone(if lane.end.is_none() { &with_others } else { &alone });
                Fate::Ended(Exited { exit, reason, guarded, abandoned: None }, last_words)
            };
            let _ended = lane.words.send(Word::Over(fate));
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

    use super::*;

    #[test]
    fn a_runner_that_is_told_to_end_does_not_wait_for_the_longer_grace_of_a_task() {
        let now = Instant::now();
        for (end, reason) in [
            (None, Reason::Runner),
            (Some((Reason::Cancel, now + 100 * TOLD_TO_END.grace)), Reason::Cancel),
            (Some((Reason::Timeout, now)), Reason::Timeout),
        ] {
            let (_batches, mut batcher) = Batcher::new(Guards::default());
            let (words, _heard) = mpsc::unbounded_channel();
            let lane = Lane { words, until: Duration::ZERO, began: now, line: (0, 0), end };
            let task = TaskId(ObjectId::new());
            batcher.lanes.insert(task, lane);
            batcher.end_all();
            let (seen, kill_at) = batcher.lanes[&task].end.unwrap();
            assert_eq!(seen, reason);
            let latest = end.map_or(Instant::now() + TOLD_TO_END.grace, |(_, earlier)| earlier);
            assert!(kill_at <= latest.min(Instant::now() + TOLD_TO_END.grace), "{reason:?}");
        }
    }
}
