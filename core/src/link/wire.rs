//! Messages of the link as bytes: each is one BSON document, which begins with its length.

use std::io;

use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The longest message: a task of 16 MiB and its queue, or a result with as much output.
const LONGEST: usize = 48 * 1024 * 1024;

/// Reads the next message. `None`: the other side has closed the link. Not to be dropped between messages
/// unless the link is given up.
pub async fn read<T: DeserializeOwned>(source: &mut (impl AsyncRead + Unpin)) -> io::Result<Option<T>> {
    let mut length = [0; 4];
    match source.read_exact(&mut length).await {
        Ok(_) => {}
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
        Err(error) => return Err(error),
    }
    let total =
        usize::try_from(i32::from_le_bytes(length)).ok().filter(|total| (5..=LONGEST).contains(total));
    let total =
        total.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "a message of impossible length"))?;
    let mut bytes = Vec::with_capacity(total);
    bytes.extend_from_slice(&length);
    let rest = u64::try_from(total - length.len()).unwrap_or(0);
    source.take(rest).read_to_end(&mut bytes).await?;
    if bytes.len() < total {
        return Ok(None);
    }
    bson::deserialize_from_slice(&bytes)
        .map(Some)
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Sends a message.
///
/// # Errors
/// The link is broken, or the message is too long for it.
pub async fn write<T: Serialize>(target: &mut (impl AsyncWrite + Unpin), message: &T) -> io::Result<()> {
    target.write_all(&encode(message)?).await
}

/// A message as [`write()`] sends it.
///
/// # Errors
/// It is too long for the link.
pub fn encode<T: Serialize>(message: &T) -> io::Result<Vec<u8>> {
    let bytes = bson::serialize_to_vec(message).map_err(io::Error::other)?;
    if bytes.len() > LONGEST {
        return Err(io::Error::new(io::ErrorKind::InvalidData, "the message is too long"));
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{Bson, DateTime, Document, doc, rawdoc};

    use super::*;
    use crate::link::{Ask, Assignment, ToDen, ToRunner};
    use crate::model::{NodeName, QueueId, Status, TaskId, Trial};
    use crate::output::StreamName;
    use crate::schedules::ForRun;
    use crate::task::Pause;
    use crate::task::question::Question;
    use crate::task::{Finish, Run};

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
        let asks =
            [Ask::Storage { saved: odd(), number: 1 }, Ask::Steps { states: steps.clone(), number: 2 }];
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
        assert_eq!((saved, states), (odd(), steps));
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
