//! Many tasks at once: documents as Disbatch leaves them, written past it, as fast as the server takes them.

use std::ops::Range;

use anyhow::{Context, ensure};
use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use disbatch_core::clock::{Clock, SystemClock};
use disbatch_core::model::QueueId;
use futures::{StreamExt, TryStreamExt, stream};
use mongodb::options::{Acknowledgment, WriteConcern};
use mongodb::{Collection, Database};

use crate::progress::Progress;

/// So many tasks are sent at once.
const BATCH: u32 = 5_000;

/// So many batches are on their way at once.
const WRITERS: usize = 3;

/// Where the id begins in a document whose first field it is: behind the length, the type and the name.
const ID_AT: usize = 9;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// They have ended; those of one queue in twenty have failed.
    Finished,
    /// They wait for a node.
    Queued,
    /// They do, and are of so many groups, of which each has as many.
    Grouped(u32),
}

/// Writes `each` tasks into each of `queues`. Their ids come in order, through all queues at the same time.
pub async fn fill(
    database: &Database,
    queues: &[QueueId],
    each: u32,
    kind: Kind,
    progress: &Progress,
) -> anyhow::Result<()> {
    let tasks: Collection<RawDocumentBuf> = database.collection("tasks");
    let all = u64::from(each) * u64::try_from(queues.len())?;
    let batches = (0..each.div_ceil(BATCH)).flat_map(|turn| {
        let first = turn * BATCH;
        let range = first..each.min(first + BATCH);
        queues.iter().enumerate().map(move |(number, queue)| (number, *queue, range.clone()))
    });
    let written = stream::iter(batches).map(|(number, queue, range)| {
        let (tasks, size) = (tasks.clone(), range.end - range.start);
        async move {
            let batch = batch(queue, range, kind, number)?;
            tasks.insert_many(batch).ordered(false).write_concern(one_member()).await?;
            anyhow::Ok(u64::from(size))
        }
    });
    let mut written = written.buffer_unordered(WRITERS);
    let mut done = 0;
    while let Some(size) = written.try_next().await? {
        done += size;
        progress.at(done, all);
    }
    ensure!(done == all, "{done} of {all} tasks were written");
    Ok(())
}

fn one_member() -> WriteConcern {
    WriteConcern::builder().w(Acknowledgment::Nodes(1)).build()
}

/// The same document many times, each with an id of its own, or with a group, too.
fn batch(
    queue: QueueId,
    range: Range<u32>,
    kind: Kind,
    number: usize,
) -> anyhow::Result<Vec<RawDocumentBuf>> {
    let now = SystemClock.now();
    let task = match kind {
        Kind::Finished => finished(queue, number, now),
        Kind::Queued => queued(queue, now),
        Kind::Grouped(groups) => {
            let one = |number: u32| Ok(RawDocumentBuf::try_from(&grouped(queue, number % groups, now))?);
            return range.map(one).collect();
        }
    };
    let template = RawDocumentBuf::try_from(&task)?.into_bytes();
    let one = |_| {
        let mut bytes = template.clone();
        let id = bytes.get_mut(ID_AT..ID_AT + 12).context("a task is too short")?;
        id.copy_from_slice(&ObjectId::new().bytes());
        Ok(RawDocumentBuf::from_bytes(bytes)?)
    };
    range.map(one).collect()
}

fn queued(queue: QueueId, now: DateTime) -> Document {
    doc! {
        "_id": ObjectId::new(), "queue": queue, "status": -2, "node": Bson::Null, "params": { "commands": "a" },
        "stdout": Bson::Null, "stderr": Bson::Null, "ctime": now, "mtime": now,
    }
}

fn grouped(queue: QueueId, group: u32, now: DateTime) -> Document {
    let mut task = queued(queue, now);
    task.extend(doc! { "group": format!("g{group:07}"), "priority": 0_i64 });
    task
}

/// As a node leaves it behind.
fn finished(queue: QueueId, number: usize, now: DateTime) -> Document {
    let node = format!("node{}", number % 10);
    let status = if number % 20 == 19 { 2 } else { 1 };
    let entry = |status: i32| doc! { "at": now, "status": status, "node": &node, "attempt": 1_i64 };
    doc! {
        "_id": ObjectId::new(), "queue": queue, "status": status, "node": &node,
        "params": { "commands": "a", "object": "apple" }, "stdout": "This is command 'a' for apple.\n",
        "stderr": "", "ctime": now, "mtime": now, "attempt": 1_i64,
        "history": [entry(-1), entry(0), entry(status)], "started": now, "complete": true,
        "exit": { "code": status - 1, "duration": 0.012, "cpu": 0.004, "memory": 3_000_000_i64 },
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use disbatch_core::queue::new_queue_id;

    use super::*;

    #[test]
    fn each_task_has_an_id_of_its_own() {
        let queue = new_queue_id();
        for kind in [Kind::Finished, Kind::Queued, Kind::Grouped(7)] {
            let batch = batch(queue, 0..100, kind, 0).unwrap();
            let ids: BTreeSet<ObjectId> =
                batch.iter().map(|task| task.get_object_id("_id").unwrap()).collect();
            assert_eq!(ids.len(), 100);
            assert!(batch.iter().all(|task| task.get_object_id("queue").unwrap() == queue.0));
        }
    }

    #[test]
    fn groups_have_as_many_each_whatever_is_written_at_once() {
        let queue = new_queue_id();
        let mut groups: BTreeMap<String, u32> = BTreeMap::new();
        for range in [0..50, 50..80, 80..100] {
            for task in batch(queue, range, Kind::Grouped(10), 0).unwrap() {
                *groups.entry(task.get_str("group").unwrap().to_owned()).or_default() += 1;
            }
        }
        assert_eq!((groups.len(), groups.values().all(|tasks| *tasks == 10)), (10, true), "{groups:?}");
    }
}
