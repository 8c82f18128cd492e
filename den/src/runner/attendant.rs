//! The attendant of a runner.

use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream as StdStream;
use std::process::ExitStatus;
use std::time::Duration;

use bson::Bson;
use disbatch_core::link::{self, Answer, Ask, Assignment, Go, ToDen, ToRunner};
use disbatch_core::model::Status;
use disbatch_core::store::StoreError;
use disbatch_core::task::{Claim, RunWrite, STORAGE, Start, Take, Waiting, Written};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout, timeout_at};

use super::answers::{
    alone, deadline_in, done, finished, millis, outdated, plugin_until, remove_live, renewal,
};
use super::{Event, Exit, Mail, ProcessId, Report, Services, Work, run_of};
use crate::handover::{Next, UnderWay};
use crate::launch::{Hold, Known};
use crate::scribe::Outcome;

/// A runner that does not take what it is sent for so long is stopped, or hangs.
const LISTENS_WITHIN: Duration = Duration::from_secs(10);

/// A task that the runner has.
struct Current {
    number: i64,
    work: Work,
    start: Start,
    /// When the runner is given up unless it has taken the task.
    taken_until: Option<Instant>,
    /// It was to have been taken.
    is_overdue: bool,
    /// What came out, from the moment when the runner says so until it is stored.
    result: Option<Report>,
}

pub(super) struct Attendant {
    process: ProcessId,
    /// What the node sees of what it works on.
    hold: Hold,
    services: Services,
    /// `None` once the link is given up.
    target: Option<OwnedWriteHalf>,
    /// The same socket, to end the reading.
    socket: StdStream,
    replies: mpsc::WeakUnboundedSender<Mail>,
    assignments: i64,
    current: Option<Current>,
    /// Whether it has ever taken a task.
    proven: bool,
    /// How much of what the runner asked for, and of what is done for it, has not come to its end.
    pending: usize,
    listening: bool,
    exited: Option<io::Result<ExitStatus>>,
}

impl Attendant {
    pub(super) fn new(
        (process, hold): (ProcessId, Hold),
        services: Services,
        (target, socket): (OwnedWriteHalf, StdStream),
        replies: mpsc::WeakUnboundedSender<Mail>,
    ) -> Self {
        Self {
            process,
            hold,
            services,
            target: Some(target),
            socket,
            replies,
            assignments: 0,
            current: None,
            proven: false,
            pending: 0,
            listening: true,
            exited: None,
        }
    }

    /// Works until the process has ended and everything it said has been dealt with.
    pub(super) async fn attend(mut self, mut mailbox: mpsc::UnboundedReceiver<Mail>) {
        let status = loop {
            if !self.listening
                && self.pending == 0
                && let Some(status) = self.exited.take()
            {
                break status;
            }
            // One whose link is gone begins its task by itself.
            let current = self.current.as_ref().filter(|_| self.listening);
            let mail = match current.and_then(|current| current.taken_until) {
                None => mailbox.recv().await,
                Some(until) => match timeout_at(until, mailbox.recv()).await {
                    Ok(mail) => mail,
                    Err(_) => {
                        self.wait_or_give_up();
                        continue;
                    }
                },
            };
            // There is a sender as long as the process lives.
            let Some(mail) = mail else { return };
            self.deal_with(mail).await;
        };
        let begun = self.current.as_ref().is_some_and(|current| current.taken_until.is_none());
        let (claim, result) = self.current.take().map(|current| (current.work.claim, current.result)).unzip();
        // What was assigned at the last moment has not left this process.
        mailbox.close();
        while let Ok(mail) = mailbox.try_recv() {
            if let Mail::Assign(work) = mail {
                self.tell_node(Event::Refused { serial: self.process.serial, claim: work.claim });
            }
        }
        let exit = Exit {
            claim,
            begun,
            result: result.flatten(),
            process: self.process,
            status,
            proven: self.proven,
        };
        self.tell_node(Event::Exit(Box::new(exit)));
    }

    async fn deal_with(&mut self, mail: Mail) {
        match mail {
            Mail::Assign(work) => self.assign(*work).await,
            Mail::Look => {
                if let Some(of) = self.current.as_ref().map(|current| current.number) {
                    self.tell(&ToRunner::Look { of }).await;
                }
            }
            Mail::Close => self.target = None,
            Mail::Said(ToDen::Taken { of }) => self.begin(of),
            Mail::Said(ToDen::Ask { id, of, ask: Ask::LetGo }) => {
                if self.tell(&ToRunner::Answer { id, answer: Answer::Done }).await {
                    self.free(of);
                }
            }
            Mail::Said(ToDen::Ask { id, of, ask }) => self.take_up(id, of, ask),
            Mail::LinkEnded => {
                self.listening = false;
                self.target = None;
            }
            Mail::StartWritten(of, outcome) => self.go(of, outcome).await,
            Mail::Answered { id, of, answer } => self.answer(id, of, answer).await,
            Mail::Ended { id, of, end, next, start } => self.go_on(id, of, (end, start), next).await,
            Mail::Exited(status) => {
                self.exited = Some(status);
                // What it had sent is still read; then comes the end, whoever else has got hold of the link.
                let _ended = self.socket.shutdown(Shutdown::Read);
            }
        }
    }

    /// Sends the runner its task. One that has not been started yet is when the runner has taken it.
    async fn assign(&mut self, work: Work) {
        self.assignments += 1;
        let claim = &work.claim;
        let start = Start {
            task: claim.task,
            from: Status::Claimed,
            node: claim.node.clone(),
            claim: Some((claim.attempt, claim.instance.clone())),
            claimed: claim.document.get_datetime("mtime").ok(),
            at: claim.started_at().unwrap_or_else(|| self.services.store.now()),
            lease: work.lease,
            pid: self.process.pid,
            waiting: Waiting::of_document(claim.queue, &claim.document),
        };
        // Less than the claim holds: then it is given back before others do so.
        let taken_until = Some(Instant::now() + work.lease / 2);
        let number = self.assignments;
        let go = claim.is_started.then(|| go(number, work.asked, &work));
        let current = Current { number, start, work, taken_until, is_overdue: false, result: None };
        let assignment = Assignment {
            number: current.number,
            run: run_of(&current.work.claim),
            task: current.work.claim.document.clone(),
            queue: current.work.queue.clone(),
            at: current.start.at,
            lease_ms: millis(current.work.lease),
            go,
            schedule: current.work.schedule.as_ref().ok().cloned().flatten(),
            schedule_problem: current.work.schedule.as_ref().err().cloned(),
            workers: current.work.workers.clone(),
        };
        let message = match link::encode(&ToRunner::Assign(Box::new(assignment))) {
            Ok(message) => message,
            // The runner is as free as before.
            Err(error) => return self.refuse(current.work.claim, &error),
        };
        self.current = Some(current);
        if !self.send(&message).await
            && let Some(current) = self.current.take()
        {
            // Not all of it was sent, so the runner has not got it.
            self.tell_node(Event::Refused { serial: self.process.serial, claim: current.work.claim });
        }
    }

    /// No runner can be given this task.
    fn refuse(&mut self, claim: Claim, error: &io::Error) {
        let (store, events, serial) =
            (self.services.store.clone(), self.services.events.clone(), self.process.serial);
        let error = StoreError::unfit(&format!("it cannot be given to a runner: {error}"));
        tokio::spawn(async move {
            if let Err(error) = store.end_claim_unfit(&claim, error).await {
                // Its lease runs out.
                tracing::warn!(task = %claim.task, %error, "cannot end a task that no runner can be given");
            }
            let _ending = events.send(Event::Free { serial });
        });
    }

    /// The runner has made ready: its task is started, unless it has been.
    fn begin(&mut self, of: i64) {
        self.proven = true;
        if let Some(current) = self.current.as_mut().filter(|current| current.number == of)
            && current.work.claim.is_started
        {
            // Whatever has become of the runner, it may have begun.
            current.taken_until = None;
            return;
        }
        if self.target.is_none() || self.exited.is_some() {
            // It has been given up, or has left: what it has taken is given back.
            return;
        }
        let Some(current) = self.current.as_mut().filter(|current| current.number == of) else { return };
        if current.taken_until.take().is_some() {
            let start = current.start.clone();
            self.write(RunWrite::Start(start), move |outcome| Mail::StartWritten(of, outcome));
        }
    }

    /// The task has been started, or was not there any more. If that is not known, the runner finds out by itself.
    async fn go(&mut self, of: i64, outcome: Outcome) {
        self.pending -= 1;
        let Some(current) = self.current.as_ref().filter(|current| current.number == of) else { return };
        match outcome.written {
            Ok(Written::Started) => {
                let go = go(of, outcome.asked, &current.work);
                self.tell(&ToRunner::Go(go)).await;
            }
            Ok(_) => {
                if self.tell(&ToRunner::Gone { of }).await {
                    self.free(of);
                }
            }
            Err(_) => self.target = None,
        }
    }

    fn take_up(&mut self, id: i64, of: i64, ask: Ask) {
        if let Ask::RemoveLive { task, attempt } = ask {
            let store = self.services.store.clone();
            return self.alone(id, of, async move { remove_live(&store, task, attempt).await });
        }
        let Some(current) = self.current.as_mut().filter(|current| current.number == of) else {
            return self.alone(id, of, async move { outdated(&ask) });
        };
        let run = run_of(&current.work.claim);
        let lease = current.work.lease;
        current.result = Report::of(&ask).or(current.result.take());
        let answered = move |answer| Mail::Answered { id, of, answer };
        match ask {
            Ask::Renew => {
                self.write(RunWrite::Renew { run, lease }, move |outcome| answered(renewal(&outcome, lease)));
            }
            Ask::Progress(progress) => {
                let write = RunWrite::Progress { run, progress };
                self.write(write, move |outcome| answered(done(outcome.written)));
            }
            Ask::Steps { states, number } => {
                let write = RunWrite::Steps { run, states, number };
                self.write(write, move |outcome| answered(done(outcome.written)));
            }
            Ask::Storage { mut saved, number } => {
                let storage = saved.remove(STORAGE).unwrap_or(Bson::Null);
                let write = RunWrite::Storage { run, storage, number };
                self.write(write, move |outcome| answered(done(outcome.written)));
            }
            Ask::Finish(finish) => {
                tracing::debug!(task = %run.task, status = %finish.status, "its runner has sent the result");
                let write = RunWrite::Finish { run, finish: *finish };
                match self.next() {
                    Some((take, next)) => self.hand_over((id, of), write, take, next),
                    None => self.write(write, move |outcome| answered(finished(outcome.written))),
                }
            }
            ask => {
                let store = self.services.store.clone();
                self.alone(id, of, async move { alone(&store, &run, ask).await });
            }
        }
    }

    /// The task that may have the slot of the current one, once that has ended.
    fn next(&self) -> Option<(Take, (Box<Work>, UnderWay))> {
        let current = self.current.as_ref().filter(|_| self.target.is_some() && self.exited.is_none())?;
        let (claim, lease) = (&current.work.claim, current.work.lease);
        let (Next { queued, known }, under_way) = self.services.handover.take(claim.queue, claim.slot()?)?;
        let take = queued.take(claim, (self.process.pid, self.services.store.now(), lease))?;
        let claim = queued.taken(&take);
        let Known { queue, schedule, workers } = known;
        let next = Work { claim, queue, schedule, workers, lease, asked: Duration::ZERO };
        Some((take, (Box::new(next), under_way)))
    }

    /// Writes the end of the current task and the start of the one that gets its slot.
    fn hand_over(&mut self, (id, of): (i64, i64), end: RunWrite, take: Take, next: (Box<Work>, UnderWay)) {
        let Some(replies) = self.replies.upgrade() else { return };
        self.pending += 1;
        self.services.scribe.hand_over(end, take, move |end, start| {
            let _ending = replies.send(Mail::Ended { id, of, end, next, start });
        });
    }

    /// The current task has ended, or could not be: the runner is told, and gets the next if that was started.
    async fn go_on(
        &mut self,
        id: i64,
        of: i64,
        (end, start): (Outcome, Option<Result<Written, String>>),
        (mut next, under_way): (Box<Work>, UnderWay),
    ) {
        self.pending -= 1;
        next.asked = end.asked;
        let answer = finished(end.written);
        let is_over = matches!(answer, Answer::Stored | Answer::NotRunning);
        let is_free = self.tell(&ToRunner::Answer { id, answer }).await && is_over;
        match start {
            Some(Ok(Written::Started)) if is_free && under_way.is_in_time() => {
                self.hold.set(&next.claim);
                self.assign(*next).await;
                return;
            }
            Some(Ok(Written::Started) | Err(_)) => self.tell_node(Event::Untold(next.claim)),
            Some(Ok(_)) => self.services.handover.lost(next.claim.queue),
            None => {}
        }
        if is_free {
            self.free(of);
        }
    }

    /// Does by itself what does not go together with the writes of others.
    fn alone(&mut self, id: i64, of: i64, work: impl Future<Output = Answer> + Send + 'static) {
        let Some(replies) = self.replies.upgrade() else { return };
        self.pending += 1;
        tokio::spawn(async move {
            let _ending = replies.send(Mail::Answered { id, of, answer: work.await });
        });
    }

    /// Writes together with others; `mail` is what then arrives here.
    fn write(&mut self, write: RunWrite, mail: impl FnOnce(Outcome) -> Mail + Send + 'static) {
        let Some(replies) = self.replies.upgrade() else { return };
        self.pending += 1;
        self.services.scribe.write(write, move |outcome| {
            let _ending = replies.send(mail(outcome));
        });
    }

    async fn answer(&mut self, id: i64, of: i64, answer: Answer) {
        self.pending -= 1;
        let is_over = matches!(answer, Answer::Stored | Answer::NotRunning);
        // A runner that does not listen any more ends by itself.
        if self.tell(&ToRunner::Answer { id, answer }).await && is_over {
            self.free(of);
        }
    }

    /// The assignment is over, and the runner knows.
    fn free(&mut self, of: i64) {
        if self.current.as_ref().is_some_and(|current| current.number == of) {
            self.current = None;
            self.tell_node(Event::Free { serial: self.process.serial });
        }
    }

    /// Sends a message. Returns whether it was sent; if not, the link is given up.
    async fn tell(&mut self, message: &ToRunner) -> bool {
        match link::encode(message) {
            Ok(message) => self.send(&message).await,
            Err(error) => {
                tracing::error!(%error, pid = self.process.pid, "a runner cannot be told something");
                self.target = None;
                false
            }
        }
    }

    async fn send(&mut self, message: &[u8]) -> bool {
        let Some(target) = &mut self.target else { return false };
        match timeout(LISTENS_WITHIN, target.write_all(message)).await {
            Ok(Ok(())) => return true,
            Ok(Err(error)) => tracing::debug!(%error, pid = self.process.pid, "a runner does not listen"),
            Err(_) => self.give_up("does not listen"),
        }
        self.target = None;
        false
    }

    /// A runner does not take its task. Its word may lie in the link, if this process has been standing still: it is waited for once more.
    fn wait_or_give_up(&mut self) {
        let Some(current) = &mut self.current else { return };
        if std::mem::replace(&mut current.is_overdue, true) {
            self.give_up("does not take its task");
        } else {
            current.taken_until = Some(Instant::now() + current.work.lease / 8);
        }
    }

    /// Kills a runner of which nothing can be expected any more.
    fn give_up(&mut self, why: &str) {
        tracing::error!(pid = self.process.pid, "a runner {why}: killing it");
        if let Some(current) = &mut self.current {
            current.taken_until = current.taken_until.map(|until| until + LISTENS_WITHIN);
        }
        self.target = None;
        // Its number is its own as long as it has not been waited for.
        if self.exited.is_none()
            && let Ok(pid) = i32::try_from(self.process.pid)
            && let Err(error) = kill(Pid::from_raw(pid), Signal::SIGKILL)
        {
            tracing::debug!(%error, pid, "cannot kill it");
        }
    }

    fn tell_node(&self, event: Event) {
        let _ending = self.services.events.send(event);
    }
}

/// What a runner has to know of a start that was asked for at that time.
fn go(of: i64, asked: Duration, work: &Work) -> Go {
    Go { of, until_ms: plugin_until(asked, work.lease), deadline_in_ms: deadline_in(work) }
}
