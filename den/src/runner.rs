//! One warm runner: its process, the link to it, and the tasks that it works on: one, or those of a batch.
//!
//! Each runner has an attendant, a task of the runtime with a mailbox. What the node wants of the runner, what the
//! runner says, what became of writes and how the process ended all arrive there, one after the other. The end of a
//! runner is told only when its link has been read to the end and everything that it asked for has been written:
//! a result that has arrived here is stored, whether the runner lived to see it or not.

mod attendant;
mod outgoing;

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream as StdStream;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use bson::{DateTime, Document, RawDocumentBuf};
use disbatch_core::clock::boot_time;
use disbatch_core::link::{self, Answer, Ask, ToDen, plugin_share};
use disbatch_core::measure::cause;
use disbatch_core::metrics::labels::{Cause, Label};
use disbatch_core::model::{Queue, Status, TRACE, Task, TaskId, date_time};
use disbatch_core::store::{Store, StoreError, millis};
use disbatch_core::task::{Claim, Finish, Renewed, Run, Waiting, Written};
use disbatch_traces::{Attempt, Ended, Tracer};
use tokio::io::BufReader;
use tokio::net::UnixStream;
use tokio::net::unix::OwnedReadHalf;
use tokio::process::{Child, Command};
use tokio::sync::{Semaphore, SemaphorePermit, mpsc};

use crate::handover::Handover;
use crate::launch::TaskContext;
use crate::runners::{Held, Hold};
use crate::scribe::{Scribe, WriteOutcome};
use crate::supervise::Cover;
use attendant::Attendant;

/// A runner's process. The system may use its number again; the serial is its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProcessId {
    pub pid: u32,
    /// Which runner of this DEN it is.
    pub serial: u64,
}

/// What the node learns of its runners.
#[derive(Debug)]
pub enum Event {
    /// The runner can take another task: one that it had has ended, or was not to be begun. If it is not known to be `over`, it may have its slot still.
    Free { serial: u64, task: TaskId, over: bool },
    /// The runner is on its way out, and has not got the task.
    Refused {
        serial: u64,
        /// The claim, to be given to another, or back.
        claim: Claim,
    },
    /// The runner's process has ended, and everything that it had said is written. This comes for each task that it had.
    Exit(Box<Exit>),
    /// A task was started, and no runner was told of it. If that is not `known`, it may be started yet.
    Untold { claim: Claim, known: bool },
    /// Somebody else has had the task when its end was to be stored, and may have it in the slot, which is another task's by now.
    Left(Held),
    /// Few tasks are left that slots can be handed to.
    FewAhead,
}

#[derive(Debug)]
pub struct Exit {
    /// The claim that it had, unless that was over.
    pub claim: Option<Claim>,
    /// Whether it had taken that task.
    pub begun: bool,
    /// The end that it had asked for, and that could not be stored yet.
    pub result: Option<Ask>,
    /// What is told in traces when that is.
    pub traced: Option<Traced>,
    pub process: ProcessId,
    pub status: Result<ExitStatus, String>,
    /// Whether it was ever able to work.
    pub proven: bool,
}

/// A claimed task for a runner.
#[derive(Debug)]
pub struct Work {
    pub claim: Claim,
    pub known: TaskContext,
    pub lease: Duration,
    /// When the claim was asked for, by [`boot_time`]: the lease that it holds was not given before.
    pub asked: Duration,
}

/// A letter to the attendant.
enum Mail {
    Assign(Box<Work>),
    Look(TaskId),
    Close,
    Said(ToDen, Option<Room>),
    LinkEnded,
    /// Something that was pending has been done, or could not be: what follows from that.
    Done(Box<dyn FnOnce(&mut Attendant) + Send>),
    Exited(io::Result<ExitStatus>),
}

/// The node's hold on a runner. Without it, the runner's link is closed, and the runner ends when it has no task.
#[derive(Debug)]
pub struct Runner(mpsc::UnboundedSender<Mail>);

impl Runner {
    /// Gives the runner a task. To be called when it has room for one only.
    pub fn assign(&self, work: Box<Work>) -> Result<(), Box<Work>> {
        match self.0.send(Mail::Assign(work)) {
            Err(mpsc::error::SendError(Mail::Assign(work))) => Err(work),
            _ => Ok(()),
        }
    }

    /// Tells the runner that somebody has asked for the end of the task.
    pub fn look(&self, task: TaskId) {
        self.send(Mail::Look(task));
    }

    fn send(&self, mail: Mail) {
        // Of a runner that has ended, the node is told.
        let _ended = self.0.send(mail);
    }
}

impl Drop for Runner {
    fn drop(&mut self) {
        self.send(Mail::Close);
    }
}

#[derive(Debug, Clone)]
pub struct Services {
    /// For what is not written together with others.
    pub store: Store,
    pub scribe: Scribe,
    pub cover: Cover,
    pub handover: Handover,
    /// Where the node learns of it.
    pub events: mpsc::UnboundedSender<Event>,
    /// Sends traces, if anybody wants them.
    pub tracer: Option<Tracer>,
}

/// Starts the runner `serial`, with its end of the link as its standard input; what it works on is noted in `hold`. Returns its process
/// and the hold on it.
pub fn start(
    mut command: Command,
    (serial, hold): (u64, Hold),
    services: Services,
) -> io::Result<(u32, Runner)> {
    let (near, far) = StdStream::pair()?;
    near.set_nonblocking(true)?;
    let socket = near.try_clone()?;
    let near = UnixStream::from_std(near)?;
    let child = command.stdin(Stdio::from(OwnedFd::from(far))).stdout(Stdio::null()).spawn()?;
    // It holds our copy of the runner's end.
    drop(command);
    let pid = child.id().unwrap_or_default();
    let (mailbox, mail) = mpsc::unbounded_channel();
    let (source, target) = near.into_split();
    tokio::spawn(listen(source, mailbox.clone()));
    tokio::spawn(wait(child, mailbox.clone()));
    let process = ProcessId { pid, serial };
    let attendant = Attendant::new((process, hold), services, (target, socket), mailbox.downgrade());
    tokio::spawn(attendant.attend(mail));
    Ok((pid, Runner(mailbox)))
}

/// Longer messages of runners have room only if not all of it is taken.
const LARGE: usize = 256 * 1024;

/// So much room there is for those of all runners, in KiB. What is to be written takes it several times.
const ALL_ROOM: usize = 32 * 1024;

static ROOM: Semaphore = Semaphore::const_new(ALL_ROOM);

/// The room for a message, until what it asks for is done.
type Room = SemaphorePermit<'static>;

/// Reads what a runner says next, as soon as there is room for it. A runner that waits for an answer too long goes on without its DEN.
async fn hear(source: &mut BufReader<OwnedReadHalf>) -> io::Result<Option<(ToDen, Option<Room>)>> {
    let Some(length) = link::read_length(source).await? else { return Ok(None) };
    let wanted = u32::try_from(length.div_ceil(1024).min(ALL_ROOM)).map_err(io::Error::other)?;
    let room = match length > LARGE {
        true => Some(ROOM.acquire_many(wanted).await.map_err(io::Error::other)?),
        false => None,
    };
    Ok(link::read_rest(source, length).await?.map(|message| (message, room)))
}

/// Reads what the runner says until the link ends.
async fn listen(source: OwnedReadHalf, mailbox: mpsc::UnboundedSender<Mail>) {
    let mut source = BufReader::new(source);
    loop {
        let mail = match hear(&mut source).await {
            Ok(Some((message, room))) => Mail::Said(message, room),
            Ok(None) => Mail::LinkEnded,
            Err(error) => {
                tracing::debug!(%error, "a runner's link is broken");
                Mail::LinkEnded
            }
        };
        let last = matches!(mail, Mail::LinkEnded);
        if mailbox.send(mail).is_err() || last {
            return;
        }
    }
}

async fn wait(mut child: Child, mailbox: mpsc::UnboundedSender<Mail>) {
    let _ending = mailbox.send(Mail::Exited(child.wait().await));
}

/// What is told in traces of an attempt that a runner has.
#[derive(Debug)]
pub struct Traced {
    attempt: Attempt,
    /// When its runner has said what came out.
    ended: Option<DateTime>,
}

impl Traced {
    /// With the task as its runner gets it: with the place of its plugin in the trace. `None`: the task is odd, which is for its runner to
    /// say.
    fn begin(tracer: &Tracer, work: &Work, at: DateTime) -> Option<(Self, RawDocumentBuf)> {
        let claim = &work.claim;
        let text = |name| work.known.queue.get_str(name).unwrap_or_default().to_owned();
        let mut task = Document::try_from(claim.document.as_ref()).ok()?;
        let waiting = Waiting::of_document(claim.queue, &claim.document);
        let attempt = Attempt::new(claim.run(), (text("name"), text("plugin")), &task, at);
        let attempt = attempt.queued(waiting.map(|waiting| waiting.since));
        task.insert(TRACE, attempt.context(tracer).field());
        let task = RawDocumentBuf::try_from(&task).ok()?;
        Some((Self { attempt, ended: None }, task))
    }

    /// Its end is stored.
    pub fn end(&self, tracer: &Tracer, finish: &Finish, now: DateTime) {
        let ended = Ended {
            at: self.ended,
            stored: now,
            ran: finish.ran(),
            status: finish.status,
            error: cause(finish).map(word),
        };
        tracer.attempted(&self.attempt, ended);
    }
}

fn word(cause: Cause) -> &'static str {
    Cause::VALUES[cause.index()]
}

/// Tells in traces that the runner of a task is gone, and how somebody who has looked after that has ended its attempt.
pub fn trace_buried(tracer: &Tracer, task: &Task, queue: Option<&Queue>, (status, now): (Status, DateTime)) {
    let names = queue.map(|queue| {
        let plugin = queue.plugin_name().ok().flatten().map(|plugin| plugin.to_string());
        (queue.display_name(), plugin.unwrap_or_default())
    });
    let begun = task.rest.get_datetime("started").ok().copied();
    let begun = begun.or_else(|| task.mtime.as_ref().and_then(date_time)).unwrap_or(now);
    let attempt = Attempt::new(Run::of(task), names.unwrap_or_default(), &task.rest, begun);
    let error = (status != Status::Succeeded).then(|| word(Cause::Lost));
    let ended = Ended { at: None, stored: now, ran: None, status, error };
    tracer.attempted(&attempt, ended);
}

/// Writes what does not go together with others.
async fn alone(store: &Store, run: &Run, ask: &Ask) -> Answer {
    match store.carry_out(run, ask).await {
        // With users that Perl Disbatch has made nobody can see it; nothing else is wrong.
        Err(error) if matches!(ask, Ask::Live { .. }) && error.is_forbidden() => Answer::Done,
        done => done.unwrap_or_else(trouble),
    }
}

/// Removes what was shown of an attempt that is over.
async fn remove_live(store: &Store, task: TaskId, attempt: i64) -> Answer {
    store.remove_live(task, Some(attempt)).await.map_or_else(trouble, |()| Answer::Done)
}

fn trouble(error: StoreError) -> Answer {
    Answer::Trouble(error.to_string())
}

/// What is answered to what was written together with others, about a run with that lease.
fn written(outcome: WriteOutcome, lease: Duration) -> Answer {
    match outcome.written {
        Ok(Written::Renewed(Renewed::Held(wishes))) => {
            Answer::Held { until_ms: plugin_until(outcome.asked, lease), wishes }
        }
        Ok(Written::Renewed(Renewed::Lost)) => Answer::Lost,
        Ok(Written::Finished(finished)) => finished.into(),
        Ok(Written::Done) => Answer::Done,
        Ok(other @ (Written::Started | Written::NotClaimed | Written::SlotTaken)) => {
            Answer::Trouble(format!("something else was written: {other:?}"))
        }
        Err(why) => Answer::Trouble(why),
    }
}

/// Until when a plugin may live whose lease was asked for at that time. In milliseconds.
fn plugin_until(asked: Duration, lease: Duration) -> i64 {
    millis(asked.saturating_add(plugin_share(lease)))
}

/// How long there is until the task's deadline, in milliseconds. The server's time is known from the claim's lease,
/// which began after the claim was asked for: so this is rather too short than too long.
fn deadline_in(work: &Work) -> Option<i64> {
    let time = |field| work.claim.document.get_datetime(field).ok().map(|time| time.timestamp_millis());
    let (deadline, until) = (time("deadline")?, time("lease_until")?);
    let claimed = until.saturating_sub(millis(work.lease));
    let since = millis(boot_time().saturating_sub(work.asked));
    Some(deadline.saturating_sub(claimed).saturating_sub(since).max(0))
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use bson::doc;

    use super::*;

    #[tokio::test]
    async fn a_long_message_is_read_when_there_is_room_for_it() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let messages = [9, LARGE, 33 << 20].map(|length| {
            let ask = Ask::Progress(doc! { "x": "x".repeat(length) });
            ToDen::Ask { id: 1, of: 1, ask }
        });
        let speaker = tokio::spawn(async move {
            for message in &messages {
                link::write(&mut far, message).await.unwrap();
            }
        });
        let (source, _target) = near.into_split();
        let mut source = BufReader::new(source);
        let taken = ROOM.acquire_many(1).await.unwrap();
        let others = ROOM.acquire_many(u32::try_from(ALL_ROOM - 1).unwrap()).await.unwrap();
        let (_, room) = hear(&mut source).await.unwrap().unwrap();
        assert!(room.is_none(), "it is short");
        {
            let mut long = pin!(hear(&mut source));
            for _ in 0..100 {
                assert!(futures::poll!(long.as_mut()).is_pending(), "there is no room");
                tokio::task::yield_now().await;
            }
            drop(others);
            let (_, room) = long.await.unwrap().unwrap();
            assert_eq!(room.map(|room| room.num_permits()), Some(257));
        }
        drop(taken);
        let (_, room) = hear(&mut source).await.unwrap().unwrap();
        assert_eq!(room.map(|room| room.num_permits()), Some(ALL_ROOM), "all that there is");
        assert_eq!(ROOM.available_permits(), ALL_ROOM);
        speaker.await.unwrap();
    }
}
