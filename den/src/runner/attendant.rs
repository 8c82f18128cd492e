//! The attendant of a runner: what it has, and what is said about that.
//!
//! Mostly a runner has one task; one whose plugin takes batches has several, each in a lane of its own. Lanes know nothing of each
//! other.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::net::Shutdown;
use std::os::unix::net::UnixStream as StdStream;
use std::process::ExitStatus;
use std::time::Duration;

use disbatch_core::link::{self, Answer, Ask, Assignment, Go, ToDen, ToRunner};
use disbatch_core::model::Status;
use disbatch_core::store::{StoreError, millis};
use disbatch_core::task::{Claim, Claimant, RunWrite, Slot, Start, Take, Waiting, Written};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::net::unix::OwnedWriteHalf;
use tokio::sync::mpsc;
use tokio::time::{Instant, timeout_at};

use super::outgoing::{LISTENS_WITHIN, Outgoing, Then};
use super::{Event, Exit, Mail, ProcessId, Room, Services, Traced, Work};
use super::{alone, deadline_in, plugin_until, remove_live, written};
use crate::handover::{Next, UnderWay};
use crate::launch::TaskContext;
use crate::runners::{Held, Hold};
use crate::scribe::WriteOutcome;

/// So many letters are dealt with before the runner is told what follows from them.
const TOGETHER: usize = 256;

/// A task that the runner has.
struct Lane {
    work: Work,
    start: Start,
    /// When the runner is given up unless it has taken the task.
    taken_until: Option<Instant>,
    /// It was to have been taken.
    is_overdue: bool,
    /// The end that the runner asks for, from that moment on until it is stored.
    result: Option<Ask>,
    /// What is told of it in traces, until it has been.
    traced: Option<Traced>,
    /// Its runner has said how it ends, not that a web service goes on with it.
    ends: bool,
    /// That is stored.
    is_over: bool,
    /// A web service may take it over.
    is_external: bool,
}

pub(super) struct Attendant {
    process: ProcessId,
    /// What the node sees of what it works on.
    hold: Hold,
    services: Services,
    outgoing: Outgoing,
    /// The same socket, to end the reading.
    socket: StdStream,
    replies: mpsc::WeakUnboundedSender<Mail>,
    assignments: i64,
    /// What it has, by the numbers of the assignments.
    lanes: BTreeMap<i64, Lane>,
    /// The room for what it asks for, until that is answered, by the numbers of the questions.
    rooms: HashMap<i64, Room>,
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
            outgoing: Outgoing::new(target, process.pid),
            socket,
            replies,
            assignments: 0,
            lanes: BTreeMap::new(),
            rooms: HashMap::new(),
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
            // One whose link is gone begins its tasks by itself.
            let until = self.lanes.values().filter_map(|lane| lane.taken_until).min();
            let mail = match until.filter(|_| self.listening) {
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
            self.deal_with(mail);
            for _ in 1..TOGETHER {
                if self.outgoing.is_large() {
                    break;
                }
                let Ok(mail) = mailbox.try_recv() else { break };
                self.deal_with(mail);
            }
            self.send().await;
        };
        // What was assigned at the last moment has not left this process.
        mailbox.close();
        while let Ok(mail) = mailbox.try_recv() {
            if let Mail::Assign(work) = mail {
                self.refused(work.claim);
            }
        }
        self.tell_of_end(&status.map_err(|error| error.to_string()));
    }

    fn tell_of_end(&mut self, status: &Result<ExitStatus, String>) {
        let (process, proven) = (self.process, self.proven);
        let exit = |claim, begun, (result, traced)| Exit {
            claim,
            begun,
            result,
            traced,
            process,
            status: status.clone(),
            proven,
        };
        let lanes = std::mem::take(&mut self.lanes);
        if lanes.is_empty() {
            self.tell_node(Event::Exit(Box::new(exit(None, false, (None, None)))));
        }
        for lane in lanes.into_values() {
            let exit = exit(Some(lane.work.claim), lane.taken_until.is_none(), (lane.result, lane.traced));
            self.tell_node(Event::Exit(Box::new(exit)));
        }
    }

    fn deal_with(&mut self, mail: Mail) {
        match mail {
            Mail::Assign(work) => self.assign(*work),
            Mail::Look(task) => {
                let has_it = |lane: &Lane| lane.work.claim.task == task;
                match self.lanes.iter().find(|(_, lane)| has_it(lane)) {
                    Some((of, _)) if self.listening => self.outgoing.tell(&ToRunner::Look { of: *of }, None),
                    // It has closed its link for good, and goes on without: long before that it was ready for the signal.
                    Some(_) => self.signal(Signal::SIGUSR1),
                    None => {}
                }
            }
            Mail::Close => self.outgoing.is_given_up = true,
            Mail::Said(ToDen::Taken { of }, _) => self.begin(of),
            Mail::Said(ToDen::Ask { id, of, ask: Ask::LetGo }, _) => {
                self.outgoing.tell(&ToRunner::Answer { id, answer: Answer::Done }, Some(Then::Free(of)));
            }
            Mail::Said(ToDen::Ask { id, of, ask }, room) => {
                self.rooms.extend(room.map(|room| (id, room)));
                self.take_up(id, of, ask);
            }
            Mail::LinkEnded => {
                self.listening = false;
                self.outgoing.is_given_up = true;
            }
            Mail::Done(then) => {
                self.pending -= 1;
                then(self);
            }
            Mail::Exited(status) => {
                self.exited = Some(status);
                // What it had sent is still read; then comes the end, whoever else has got hold of the link.
                let _ended = self.socket.shutdown(Shutdown::Read);
            }
        }
    }

    /// Sends the runner a task. One that has not been started yet is when the runner has taken it.
    fn assign(&mut self, work: Work) {
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
        let tracer = self.services.tracer.as_ref();
        let traced = tracer.and_then(|tracer| Traced::begin(tracer, &work, start.at));
        let (traced, task) = traced.unzip();
        let go = claim.is_started.then(|| go(number, work.asked, &work));
        let assignment = Assignment {
            number,
            run: claim.run(),
            task: task.unwrap_or_else(|| claim.document.clone()),
            queue: work.known.queue.clone(),
            at: start.at,
            lease_ms: millis(work.lease),
            go,
            schedule: work.known.schedule.as_ref().ok().cloned().flatten(),
            schedule_problem: work.known.schedule.as_ref().err().cloned(),
            workers: work.known.workers.clone(),
            lane: work.known.lanes.is_some(),
        };
        let message = match link::encode(&ToRunner::Assign(Box::new(assignment))) {
            Ok(message) => message,
            // The runner is as free as before.
            Err(error) => return self.refuse(work.claim, &error),
        };
        if self.outgoing.is_given_up {
            return self.refused(work.claim);
        }
        self.lanes.insert(
            number,
            Lane {
                start,
                work,
                taken_until,
                is_overdue: false,
                result: None,
                traced,
                ends: false,
                is_over: false,
                is_external: false,
            },
        );
        self.outgoing.add(&message, Some(Then::Assigned(number)));
    }

    /// The runner is on its way out, and has not got this task.
    fn refused(&self, claim: Claim) {
        self.tell_node(Event::Refused { serial: self.process.serial, claim });
    }

    /// No runner can be given this task.
    fn refuse(&mut self, claim: Claim, error: &io::Error) {
        let (store, events, serial) =
            (self.services.store.clone(), self.services.events.clone(), self.process.serial);
        let task = claim.task;
        let error = StoreError::unfit(&format!("it cannot be given to a runner: {error}"));
        tokio::spawn(async move {
            if let Err(error) = store.end_claim_unfit(&claim, error).await {
                // Its lease runs out.
                tracing::warn!(task = %claim.task, %error, "cannot end a task that no runner can be given");
            }
            let _ending = events.send(Event::Free { serial, task, over: false });
        });
    }

    /// The runner has made ready: its task is started, unless it has been.
    fn begin(&mut self, of: i64) {
        self.proven = true;
        let is_listened_to = !self.outgoing.is_given_up && self.exited.is_none();
        let Some(lane) = self.lanes.get_mut(&of) else { return };
        if lane.work.claim.is_started {
            // Whatever has become of the runner, it may have begun.
            lane.taken_until = None;
        } else if is_listened_to && lane.taken_until.take().is_some() {
            let start = lane.start.clone();
            self.write(RunWrite::Start(start), move |attendant, outcome| attendant.go(of, outcome));
        }
        // Else it has been given up, or has left: what it has taken is given back.
    }

    /// The task has been started, or was not there any more. If that is not known, the runner finds out by itself.
    fn go(&mut self, of: i64, outcome: WriteOutcome) {
        let Some(lane) = self.lanes.get(&of) else { return };
        match outcome.written {
            Ok(Written::Started) => {
                let go = go(of, outcome.asked, &lane.work);
                self.outgoing.tell(&ToRunner::Go(go), None);
            }
            Ok(_) => self.outgoing.tell(&ToRunner::Gone { of }, Some(Then::Free(of))),
            Err(_) => self.outgoing.is_given_up = true,
        }
    }

    fn take_up(&mut self, id: i64, of: i64, ask: Ask) {
        if let Ask::RemoveLive { task, attempt } = ask {
            let store = self.services.store.clone();
            return self.alone(id, of, async move { remove_live(&store, task, attempt).await });
        }
        let Some(lane) = self.lanes.get_mut(&of) else {
            return self.alone(id, of, async move { ask.late_answer() });
        };
        let run = lane.work.claim.run();
        let lease = lane.work.lease;
        let result = ask.finish().is_some().then(|| ask.clone());
        lane.ends = result.is_some();
        lane.result = result.or(lane.result.take());
        lane.is_external |= matches!(ask, Ask::Register { .. });
        if lane.result.is_some()
            && let Some(traced) = &mut lane.traced
        {
            traced.ended.get_or_insert_with(|| self.services.store.now());
        }
        let write = match ask {
            Ask::Renew => {
                // Before it is written: who looks for runs without a lease is to know of it.
                self.services.cover.asked(run.task, Instant::now().into_std());
                RunWrite::Renew { run, lease }
            }
            Ask::Finish(finish) => {
                tracing::debug!(task = %run.task, status = %finish.status, "its runner has sent the result");
                let end = RunWrite::Finish { run, finish: *finish };
                match self.next(of) {
                    Some((take, next)) => return self.hand_over((id, of), end, take, next),
                    None => end,
                }
            }
            ask => match ask.interim() {
                Some(interim) => RunWrite::Interim { run, interim },
                None => {
                    let store = self.services.store.clone();
                    return self.alone(id, of, async move { alone(&store, &run, &ask).await });
                }
            },
        };
        self.write(write, move |attendant, outcome| attendant.answer(id, of, written(outcome, lease)));
    }

    /// The task that may have the slot of that one, once that has ended.
    fn next(&self, of: i64) -> Option<(Take, (Box<Work>, UnderWay))> {
        let lane = self.lanes.get(&of).filter(|_| !self.outgoing.is_given_up && self.exited.is_none())?;
        if lane.is_external {
            // Its end may find that the service has it, which keeps the slot.
            return None;
        }
        let (claim, lease) = (&lane.work.claim, lane.work.lease);
        let slot = Slot { number: claim.slot()?, runner: Some(self.process.pid) };
        let fits = |known: &TaskContext| known.lanes == lane.work.known.lanes;
        let (Next { queued, known }, under_way) =
            self.services.handover.take(claim.queue, slot.number, fits)?;
        let by = Claimant {
            node: claim.node.clone(),
            instance: claim.instance.clone(),
            lease: Some(lease),
            fence: Some(under_way.fence),
        };
        let take = queued.take(claim.queue, &by, (slot, self.services.store.now()))?;
        let claim = queued.taken(&take);
        let next = Work { claim, known, lease, asked: Duration::ZERO };
        Some((take, (Box::new(next), under_way)))
    }

    /// Writes the end of the current task and the start of the one that gets its slot.
    fn hand_over(&mut self, (id, of): (i64, i64), end: RunWrite, take: Take, next: (Box<Work>, UnderWay)) {
        let Some(replies) = self.replies.upgrade() else { return };
        self.pending += 1;
        self.services.scribe.hand_over(end, take, move |end, start| {
            let then = move |attendant: &mut Self| attendant.go_on(id, of, (end, start), next);
            let _ending = replies.send(Mail::Done(Box::new(then)));
        });
    }

    /// The current task has ended, or could not be: the runner is told, and gets the next if that was started.
    fn go_on(
        &mut self,
        id: i64,
        of: i64,
        (end, start): (WriteOutcome, Option<Result<Written, String>>),
        (mut next, under_way): (Box<Work>, UnderWay),
    ) {
        self.rooms.remove(&id);
        next.asked = end.asked;
        let answer = written(end, next.lease);
        let is_over = self.note_end(of, &answer);
        let is_free = is_over && !self.outgoing.is_given_up;
        let is_stored = matches!(answer, Answer::Stored);
        let answer = ToRunner::Answer { id, answer };
        match start {
            Some(Ok(Written::Started)) if is_free && under_way.is_in_time() => {
                self.outgoing.tell(&answer, Some(Then::Over(of)));
                if let Some(lane) = self.lanes.get(&of) {
                    self.hold.replace(lane.work.claim.task, &next.claim);
                    if !is_stored {
                        self.tell_node(Event::Left(Held::of(&lane.work.claim)));
                    }
                }
                return self.assign(*next);
            }
            Some(Ok(Written::Started)) => self.tell_node(Event::Untold { claim: next.claim, known: true }),
            Some(Err(_)) => self.tell_node(Event::Untold { claim: next.claim, known: false }),
            Some(Ok(_)) => self.services.handover.lost(next.claim.queue),
            None => {}
        }
        self.outgoing.tell(&answer, is_over.then_some(Then::Free(of)));
    }

    /// Does by itself what does not go together with the writes of others.
    fn alone(&mut self, id: i64, of: i64, work: impl Future<Output = Answer> + Send + 'static) {
        let Some(replies) = self.replies.upgrade() else { return };
        self.pending += 1;
        tokio::spawn(async move {
            let answer = work.await;
            let then = move |attendant: &mut Self| attendant.answer(id, of, answer);
            let _ending = replies.send(Mail::Done(Box::new(then)));
        });
    }

    /// Writes together with others; `then` is what follows from that.
    fn write(&mut self, write: RunWrite, then: impl FnOnce(&mut Self, WriteOutcome) + Send + 'static) {
        let Some(replies) = self.replies.upgrade() else { return };
        self.pending += 1;
        self.services.scribe.write(write, move |outcome| {
            let then = move |attendant: &mut Self| then(attendant, outcome);
            let _ending = replies.send(Mail::Done(Box::new(then)));
        });
    }

    fn answer(&mut self, id: i64, of: i64, answer: Answer) {
        self.rooms.remove(&id);
        let is_over = self.note_end(of, &answer);
        // A runner that does not listen any more ends by itself.
        self.outgoing.tell(&ToRunner::Answer { id, answer }, is_over.then_some(Then::Free(of)));
    }

    /// Takes note of what has been answered to an end, and tells of it in traces. Returns whether the task is over.
    fn note_end(&mut self, of: i64, answer: &Answer) -> bool {
        let is_stored = *answer == Answer::Stored;
        if let Some(lane) = self.lanes.get_mut(&of).filter(|_| is_stored) {
            lane.is_over |= lane.ends;
            if let (Some(tracer), Some(result)) = (&self.services.tracer, &lane.result)
                && let (Some(finish), Some(traced)) = (result.finish(), lane.traced.take())
            {
                traced.end(tracer, finish, self.services.store.now());
            }
        }
        is_stored || *answer == Answer::NotRunning
    }

    /// The assignment is over, and the runner knows.
    fn free(&mut self, of: i64) {
        if let Some(lane) = self.lanes.remove(&of) {
            let (serial, task) = (self.process.serial, lane.work.claim.task);
            self.tell_node(Event::Free { serial, task, over: lane.is_over });
        }
    }

    /// Sends what is to be sent, and does what follows from that.
    async fn send(&mut self) {
        let sent = self.outgoing.send().await;
        if sent.is_stuck {
            self.give_up("does not listen");
        }
        for (then, is_sent) in sent.then {
            match then {
                Then::Assigned(of) if !is_sent => {
                    if let Some(lane) = self.lanes.remove(&of) {
                        self.refused(lane.work.claim);
                    }
                }
                Then::Free(of) if is_sent => self.free(of),
                Then::Over(of) if is_sent => drop(self.lanes.remove(&of)),
                Then::Assigned(_) | Then::Free(_) | Then::Over(_) => {}
            }
        }
        self.outgoing.end();
    }

    /// A runner does not take a task. Its word may lie in the link, if this process has been standing still: it is waited for once more.
    fn wait_or_give_up(&mut self) {
        let now = Instant::now();
        let mut is_hopeless = false;
        for lane in self.lanes.values_mut().filter(|lane| lane.taken_until.is_some_and(|until| until <= now))
        {
            is_hopeless |= std::mem::replace(&mut lane.is_overdue, true);
            lane.taken_until = Some(now + lane.work.lease / 8);
        }
        if is_hopeless {
            self.give_up("does not take its task");
        }
    }

    /// Kills a runner of which nothing can be expected any more.
    fn give_up(&mut self, why: &str) {
        tracing::error!(pid = self.process.pid, "a runner {why}: killing it");
        for lane in self.lanes.values_mut() {
            lane.taken_until = lane.taken_until.map(|until| until + LISTENS_WITHIN);
        }
        self.outgoing.is_given_up = true;
        self.signal(Signal::SIGKILL);
    }

    /// Sends the process a signal, if it is there: its number is its own as long as it has not been waited for.
    fn signal(&self, signal: Signal) {
        if self.exited.is_none()
            && let Ok(pid) = i32::try_from(self.process.pid)
            && let Err(error) = kill(Pid::from_raw(pid), signal)
        {
            tracing::debug!(%error, pid, ?signal, "cannot send a runner a signal");
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
