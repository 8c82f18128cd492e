//! The link between a DEN and one of its runners: what they tell each other, over a Unix socket that the runner
//! is given as an open descriptor.
//!
//! A warm runner has no connection to the database as long as its DEN answers. The DEN gives it claimed tasks
//! and writes what it says about them, together with what other runners say. Every message is one BSON document, which begins with its length.
//!
//! A runner that gives the link up closes it for reading and writing first, then reads what has come by then: a task
//! that it finds there is its own, and it starts it by itself. So no task is ever sent to a runner that is on
//! its way out.
//!
//! What is sent over the link is a service, not a promise: a runner whose link is gone, or slow, does by itself
//! what it has asked for, with the same values. So each of these operations may happen twice, and each is written
//! on the condition that the run still has its task.
//!
//! ```text
//! DEN                                     runner
//!  |    (starts a task for it: -2 -> 0)       |
//!  | -- assign (the task, with its go) -----> |   it makes ready: a folder, unless the plugin needs none
//!  | <----------------------------- taken --- |   the plugin begins
//!  | <----------------------- ask (renew) --- |
//!  | -- answer (held until, cancel) --------> |
//!  | <---------------------- ask (finish) --- |
//!  |    (writes it)                           |
//!  | -- answer (stored) --------------------> |   only now it is free for the next task
//! ```
//!
//! Each assignment has a number, and whatever is said about it names that number: what comes late, when the runner has
//! the next task already, is of no effect.
//!
//! A runner has one task, or several of a warm plugin: these are its lanes ([`Assignment::lane`]). Each is as if it were the only
//! one; what is due at the same moment goes out together.
//!
//! A task that was not `taken` has not been begun: if its runner dies or cannot make the folder, it is given back. A runner
//! that cannot say `taken` because the link is gone starts the task once more, by an update that nobody's giving back matches any
//! more, or learns that it is not its own any more. If the link ends before the answer to `finish`, the runner stores the result by
//! itself; who comes second finds it stored.
//!
//! Where no runner was ready, a task is claimed first (-2 -> -1) and assigned without its go. Its runner makes ready, and the DEN then
//! starts the task:
//!
//! ```text
//!  | -- assign (a claimed task) ------------> |   it makes ready
//!  | <----------------------------- taken --- |
//!  |    (starts the task: -1 -> 0)            |
//!  | -- go, or gone ------------------------> |   the plugin begins, or is not begun
//! ```
//!
//! If the link ends between `taken` and `go`, the runner starts the task by itself.

mod carry_out;

use std::io;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{DateTime, Document, RawDocumentBuf};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use crate::model::document::Stored;
use crate::model::{Status, TaskId};
use crate::output::{Encoding, StreamName};
use crate::recordings::CommonPart;
use crate::schedules::ForRun;
use crate::task::{Finish, Run, Wishes};

/// So many processes of a warm plugin one runner has, each with a task of its own. What a runner does for a task costs less the more it
/// does at a time, but it does that on one processor; and if somebody kills it, they end together.
pub const WARM_LANES: usize = 8;

/// The longest message: a task of 16 MiB and its queue, or a result with as much output.
const LONGEST: usize = 48 * 1024 * 1024;

/// The length of a message takes so many bytes, with which it begins.
const LENGTH: usize = 4;

/// What a DEN tells a runner. `of` is the number of the assignment that it is about, and `id` that of a question. The tag makes documents
/// of the messages that are a word only.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "is", content = "what")]
pub enum ToRunner {
    /// A task, to be begun at once if it has its go, and after [`ToRunner::Go`] otherwise.
    Assign(Box<Assignment>),
    /// The task has been started for this runner, which may begin.
    Go(Go),
    /// The task is not claimed for this runner any more. It is free.
    Gone {
        of: i64,
    },
    Answer {
        id: i64,
        answer: Answer,
    },
    /// Somebody has asked for the end of the task: renew at once, and see.
    Look {
        of: i64,
    },
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Assignment {
    /// Its number: another one for each assignment of a runner.
    pub number: i64,
    pub run: Run,
    /// The task as it was claimed (status -1), or started (0).
    pub task: RawDocumentBuf,
    pub queue: RawDocumentBuf,
    /// The time of the start, `mtime` and `started` of the task; the same if the runner starts it by itself.
    pub at: DateTime,
    /// That the task has been started. None: to be told with [`ToRunner::Go`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub go: Option<Go>,
    pub lease_ms: i64,
    /// What its schedule knows of earlier runs, if it is a task of a schedule that is still there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule: Option<ForRun>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schedule_problem: Option<String>,
    /// Those definitions of plugins in the database that the task may need, each as
    /// [`Definition::to_raw`](crate::definitions::Definition::to_raw) makes it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub workers: Vec<RawDocumentBuf>,
    /// Others may be assigned before the end of this one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub lane: bool,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub struct Go {
    pub of: i64,
    /// Until when the plugin may live at first: milliseconds by `CLOCK_BOOTTIME`.
    pub until_ms: i64,
    /// How long there is until the task's deadline, in milliseconds, counted from this message; none: it has none.
    pub deadline_in_ms: Option<i64>,
}

/// How much of a lease is the plugin's: less than all, so that it has been killed when the lease is over.
pub fn plugin_share(lease: Duration) -> Duration {
    lease.mul_f64(0.9)
}

/// What a runner tells its DEN, about the assignment with the number `of`. It sends an [`Ask`] that it keeps: `A` is a reference then.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToDen<A = Ask> {
    /// It has made ready for the task that was assigned: from now on it can be found by the folder that it is in, or as the process that
    /// the task names.
    Taken { of: i64 },
    /// A question, to be answered with its number `id`.
    Ask { id: i64, of: i64, ask: A },
}

/// What a runner wants written about an assignment. About one that is over, nothing is written, see [`Ask::late_answer`]. Who writes does it
/// with [`Store::carry_out`], unless it goes together with what others want written.
///
/// A runner is free for the next task once it has been told [`ToRunner::Gone`], or the end of the task has been
/// answered: [`Ask::Finish`], [`Ask::RetryLater`], [`Ask::Detach`] or [`Ask::LetGo`].
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Ask {
    /// Prolong the lease. Answered by [`Answer::Held`] or [`Answer::Lost`].
    Renew,
    /// Record how far the task is. Answered by [`Answer::Done`].
    Progress(Document),
    /// Record how far its steps are. Answered by [`Answer::Done`].
    Steps {
        states: Vec<Document>,
        /// Which of the run's these are: only higher numbers take their place.
        number: i64,
    },
    /// Keep what the plugin has saved, which may be any value. Answered by [`Answer::Done`].
    Storage {
        /// A document that has it, and nothing else, as [`STORAGE`](crate::task::STORAGE).
        saved: Stored,
        /// Which of the run's it is: only a higher number takes its place.
        number: i64,
    },
    /// Write live output, and remove what is older than the newest bytes that are kept. Answered by
    /// [`Answer::Done`].
    Live {
        stream: StreamName,
        offset: i64,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// Remove the live output of an attempt. Answered by [`Answer::Done`]. It names the task, because this comes
    /// after the end of it, when the runner may have been given the next one.
    RemoveLive { task: TaskId, attempt: i64 },
    /// Store a small file of output. Larger ones the runner stores by itself. Answered by [`Answer::Done`].
    Upload {
        file: ObjectId,
        stream: StreamName,
        encoding: Encoding,
        #[serde(with = "serde_bytes")]
        bytes: Vec<u8>,
    },
    /// End the task. Answered by [`Answer::Stored`] or [`Answer::NotRunning`].
    Finish(Box<Finish>),
    /// End this attempt, and let the task be tried again after the pause. Answered likewise.
    RetryLater { finish: Box<Finish>, pause_ms: i64 },
    /// Keep what recordings have in common. Answered by [`Answer::Done`], or by [`Answer::Lost`] if that cannot be done.
    KeepCommon { part: CommonPart, text: String },
    /// Decide what this attempt comes to, as its plugin, which has ended, may have ended the task in a transaction of its own. Answered by
    /// [`Answer::Committed`].
    Settle,
    /// Note that the plugin is about to give the task to a web service. Answered by [`Answer::Done`] or [`Answer::Lost`].
    Register {
        /// The SHA-256 sum, in hexadecimal, of the token that the service will show.
        token: String,
        /// For how long nothing may be heard of it, in milliseconds.
        timeout_ms: i64,
    },
    /// Hand the task over to the web service that has taken it: it runs on without a runner. Answered by [`Answer::Stored`],
    /// also if its end has come meanwhile, or by [`Answer::NotRunning`].
    Detach,
    /// The task was taken away ([`Answer::Lost`]), its plugin has ended, and nothing is to be stored: the runner
    /// is free. Answered by [`Answer::Done`].
    LetGo,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    Done,
    Held {
        /// Until when the plugin may live: milliseconds by `CLOCK_BOOTTIME`.
        until_ms: i64,
        #[serde(flatten)]
        wishes: Wishes,
    },
    Lost,
    Committed(Option<Status>),
    Stored,
    NotRunning,
    /// It could not be written, for this reason. The runner does it by itself.
    Trouble(String),
}

/// Reads the next message. `None`: the other side has closed the link. Not to be dropped between messages
/// unless the link is given up.
pub async fn read<T: DeserializeOwned>(source: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<T>> {
    match read_length(source).await? {
        Some(length) => read_rest(source, length).await,
        None => Ok(None),
    }
}

/// Reads how many bytes the next message has. Only [`read_rest`] may come after it.
pub async fn read_length(source: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<usize>> {
    let mut length = [0; LENGTH];
    match source.read_exact(&mut length).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let total = usize::try_from(i32::from_le_bytes(length)).ok();
    let total = total.filter(|total| (5..=LONGEST).contains(total));
    total.ok_or_else(|| invalid("a message of impossible length")).map(Some)
}

/// Reads the rest of a message that has so many bytes.
pub async fn read_rest<T: DeserializeOwned>(
    source: &mut (impl AsyncRead + Unpin),
    total: usize,
) -> io::Result<Option<T>> {
    let mut bytes = Vec::with_capacity(total);
    bytes.extend_from_slice(&i32::try_from(total).map_err(invalid)?.to_le_bytes());
    let rest = u64::try_from(total.saturating_sub(LENGTH)).unwrap_or(0);
    source.take(rest).read_to_end(&mut bytes).await?;
    if bytes.len() < total {
        return Ok(None);
    }
    bson::deserialize_from_slice(&bytes).map(Some).map_err(invalid)
}

fn invalid(why: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

pub async fn write<T: Serialize>(target: &mut (impl AsyncWrite + Unpin), message: &T) -> io::Result<()> {
    target.write_all(&encode(message)?).await
}

pub fn encode<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let bytes = bson::serialize_to_vec(message).map_err(io::Error::other)?;
    if bytes.len() > LONGEST {
        return Err(invalid("the message is too long"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use bson::{Bson, doc, rawdoc};

    use crate::model::{NodeName, QueueId, Trial};
    use crate::task::Pause;
    use crate::task::question::Question;

    use super::*;

    /// What a plugin may save: it looks like extended JSON, and is none.
    fn odd() -> Document {
        doc! { "storage": { "$oid": "x", "$date": [{ "$numberLong": true }] } }
    }

    fn schedule() -> ForRun {
        ForRun {
            id: ObjectId::from_bytes([7; 12]),
            name: "nightly".to_owned(),
            storage: odd().remove("storage"),
            last_success_start: Some(DateTime::from_millis(5)),
            last_success_finish: None,
        }
    }

    fn finish() -> Finish {
        Finish {
            status: Status::Succeeded,
            stdout: Bson::from("out"),
            stderr: Bson::Null,
            complete: true,
            result: Some(doc! { "a": [1, 2] }),
            exit: None,
            note: Some("note".to_owned()),
            last_line: Some("line".to_owned()),
            pause: Question::parse(&serde_json::json!({ "title": "t", "form": { "$ref": "#" } }))
                .ok()
                .map(|question| Pause::Ask(Box::new(question))),
            recorded: None,
            trial: Some(Trial { began: DateTime::from_millis(5), is_canary: true }),
        }
    }

    #[tokio::test]
    async fn messages_survive_the_way() {
        let run = Run {
            task: TaskId(ObjectId::new()),
            queue: QueueId(ObjectId::new()),
            node: NodeName::new("n"),
            attempt: 3,
            instance: Some("i".to_owned()),
        };
        let (mut near, mut far) = tokio::io::duplex(64);
        let sender = async {
            let task = rawdoc! { "_id": run.task.0, "params": { "x": 1 } };
            let assignment = Assignment {
                run: run.clone(),
                task,
                queue: rawdoc! { "name": "q" },
                number: 1,
                at: DateTime::from_millis(1_700_000_000_123),
                lease_ms: 30_000,
                go: None,
                schedule: Some(schedule()),
                schedule_problem: None,
                workers: vec![rawdoc! { "_id": "W", "engine": "http" }],
                lane: true,
            };
            write(&mut near, &ToRunner::Assign(Box::new(assignment))).await.unwrap();
            write(&mut near, &ToDen::Ask { id: 7, of: 1, ask: Ask::Finish(Box::new(finish())) })
                .await
                .unwrap();
            let bytes = vec![0, 255, 10];
            let live = Ask::Live { stream: StreamName::Stderr, offset: 5, bytes };
            write(&mut near, &ToDen::Ask { id: 8, of: 1, ask: live }).await.unwrap();
            write(&mut near, &ToRunner::Gone { of: 1 }).await.unwrap();
            write(&mut near, &ToDen::Ask { id: 9, of: 1, ask: Ask::Renew }).await.unwrap();
            write(&mut near, &ToDen::Ask { id: 10, of: 1, ask: Ask::Detach }).await.unwrap();
            drop(near);
        };
        let receiver = async {
            let Some(ToRunner::Assign(assignment)) = read(&mut far).await.unwrap() else { panic!() };
            assert_eq!(assignment.run, run);
            assert_eq!(assignment.task.get_document("params").unwrap().get_i32("x").unwrap(), 1);
            assert_eq!((assignment.schedule, assignment.schedule_problem), (Some(schedule()), None));
            assert_eq!(assignment.workers, [rawdoc! { "_id": "W", "engine": "http" }]);
            let Some(ToDen::Ask { id: 7, of: 1, ask: Ask::Finish(end) }) = read(&mut far).await.unwrap()
            else {
                panic!()
            };
            assert_eq!(*end, finish());
            let Some(ToDen::Ask { ask: Ask::Live { bytes, offset: 5, .. }, .. }) =
                read(&mut far).await.unwrap()
            else {
                panic!()
            };
            assert_eq!(bytes, [0, 255, 10]);
            assert!(matches!(read(&mut far).await.unwrap(), Some(ToRunner::Gone { of: 1 })));
            let renew = read(&mut far).await.unwrap();
            assert!(matches!(renew, Some(ToDen::Ask { id: 9, of: 1, ask: Ask::Renew })));
            let detach = read(&mut far).await.unwrap();
            assert!(matches!(detach, Some(ToDen::Ask { id: 10, of: 1, ask: Ask::Detach })));
            assert!(read::<ToRunner>(&mut far).await.unwrap().is_none());
        };
        tokio::join!(sender, receiver);
    }

    #[tokio::test]
    async fn what_a_task_stored_and_its_steps_survive_the_way() {
        let mut way = Vec::new();
        let steps = vec![doc! { "status": 1 }, doc! { "status": -2 }];
        let asks = [
            Ask::Storage { saved: odd().into(), number: 1 },
            Ask::Steps { states: steps.clone(), number: 2 },
        ];
        for ask in asks {
            write(&mut way, &ToDen::Ask { id: 1, of: 1, ask }).await.unwrap();
        }
        let mut way = &way[..];
        let Some(ToDen::Ask { ask: Ask::Storage { saved, number: 1 }, .. }) = read(&mut way).await.unwrap()
        else {
            panic!()
        };
        let Some(ToDen::Ask { ask: Ask::Steps { states, number: 2 }, .. }) = read(&mut way).await.unwrap()
        else {
            panic!()
        };
        assert_eq!((Document::from(saved), states), (odd(), steps));
    }

    #[tokio::test]
    async fn rubbish_is_an_error_and_half_a_message_is_the_end() {
        for rubbish in [&[0, 0, 0, 0][..], &[255, 255, 255, 255], &[5, 0, 0, 0, 7]] {
            assert!(read::<ToRunner>(&mut &rubbish[..]).await.is_err(), "{rubbish:?}");
        }
        for half in [&[][..], &[9, 0], &[9, 0, 0, 0, 2]] {
            assert!(read::<ToRunner>(&mut &half[..]).await.unwrap().is_none(), "{half:?}");
        }
    }
}
