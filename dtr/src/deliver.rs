//! Stores what came out: where each stream goes, and the one update that ends the task.

use bson::oid::ObjectId;
use bson::{Bson, Document};
use disbatch_core::config::Gfs;
use disbatch_core::model::Task;
use disbatch_core::output::{Encoding, StreamName};
use disbatch_core::store::StoreError;
use disbatch_core::task::{Finish, Finished, Run};

use crate::capture::Capture;
use crate::failure::{Ending, Failure};
use crate::ledger::{Ledger, OutputFile};
use crate::outcome::Outcome;

/// Output of both streams together, or standard error alone, is kept in the task up to this many bytes
/// (`gfs: auto`).
const INLINE_LIMIT: u64 = 15 * 1024 * 1024;

/// MongoDB's limit for a document.
const DOCUMENT_LIMIT: u64 = 16 * 1024 * 1024;

/// Room for the fields that the end of a task adds.
const RESERVE: u64 = 4 * 1024;

/// How storing went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivered {
    /// Everything is stored.
    Stored,
    /// The task has ended, but some output is missing; the task says which.
    Incomplete,
    /// The task was not ours to end any more. Nothing is stored.
    NotRunning,
}

impl Delivered {
    /// What that means for the runner of `run`.
    ///
    /// # Errors
    /// The task was not ours to end.
    pub fn ending(self, run: &Run) -> Result<Ending, Failure> {
        match self {
            Self::Stored => Ok(Ending::Stored),
            Self::Incomplete => Ok(Ending::Incomplete),
            Self::NotRunning => Err(Failure::TakenAway { task: run.task, node: run.node.clone() }),
        }
    }
}

/// Where a stream goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Task,
    GridFs,
    /// Nowhere: it does not fit into the task, and GridFS is not wanted.
    Nowhere,
}

/// Stores `outcome` and ends the task. Keeps trying while the database is away.
///
/// # Errors
/// The database refuses the end of the task, or the process is told to end while the database is away.
pub async fn deliver(
    ledger: &Ledger,
    (task, run): (&Task, &Run),
    outcome: &Outcome,
    gfs: Gfs,
) -> Result<Delivered, StoreError> {
    let room = room_in(task, outcome.result.as_ref());
    let [out_place, err_place] = places(gfs, room, [&outcome.stdout, &outcome.stderr].map(shape));
    let mut delivery = Delivery { ledger, run, files: Vec::new(), abandoned: Vec::new(), complete: true };
    let stdout = delivery.place(StreamName::Stdout, &outcome.stdout, out_place).await?;
    let stderr = delivery.place(StreamName::Stderr, &outcome.stderr, err_place).await?;
    let complete = delivery.complete;
    let finish = Finish {
        status: outcome.status,
        stdout,
        stderr,
        complete,
        result: outcome.result.clone(),
        exit: outcome.exit.clone(),
        note: outcome.note.clone(),
    };
    let finished = ledger.finish(run, &finish, outcome.again).await?;
    // The DEN may still have been at it before.
    ledger.remove_files(&delivery.abandoned).await;
    Ok(match finished {
        Finished::Stored if complete => Delivered::Stored,
        Finished::Stored => Delivered::Incomplete,
        Finished::NotRunning => {
            ledger.remove_files(&delivery.files).await;
            Delivered::NotRunning
        }
    })
}

struct Delivery<'a> {
    ledger: &'a Ledger,
    run: &'a Run,
    /// What the task will refer to.
    files: Vec<ObjectId>,
    /// What the DEN was asked to store, and has not said that it has.
    abandoned: Vec<ObjectId>,
    complete: bool,
}

impl Delivery<'_> {
    /// Brings a stream to its place and returns what the task's field is to hold. Output that cannot be
    /// stored is replaced by the reason.
    async fn place(&mut self, name: StreamName, stream: &Capture, place: Place) -> Result<Bson, StoreError> {
        self.complete &= stream.failure().is_none();
        match place {
            Place::Task if stream.is_empty() => Ok(Bson::Null),
            Place::Task => match stream.text().await {
                Ok(text) => Ok(Bson::String(text)),
                Err(error) => Ok(self.give_up(name, stream, &error.to_string())),
            },
            Place::Nowhere => {
                Ok(self.give_up(name, stream, "the task's document would exceed 16 MiB, and gfs is off"))
            }
            Place::GridFs => match self.upload(name, stream).await {
                Ok(id) => Ok(Bson::ObjectId(id)),
                Err(error) if error.is_transient() => Err(error),
                Err(error) => Ok(self.give_up(name, stream, &error.to_string())),
            },
        }
    }

    fn give_up(&mut self, name: StreamName, stream: &Capture, why: &str) -> Bson {
        let message = format!("Could not store {} bytes of {}: {why}", stream.len(), name.as_str());
        tracing::error!("{message}");
        self.complete = false;
        Bson::String(message)
    }

    async fn upload(&mut self, name: StreamName, stream: &Capture) -> Result<ObjectId, StoreError> {
        let mut file = OutputFile { id: ObjectId::new(), stream: name, from: stream };
        if self.ledger.takes(stream.len()) {
            if self.ledger.ask_to_store(file).await? {
                self.files.push(file.id);
                return Ok(file.id);
            }
            // It may still be stored under this id, by chunks beside which there must be no others.
            self.abandoned.push(file.id);
            file.id = ObjectId::new();
        }
        self.files.push(file.id);
        self.ledger.store_file(self.run, file).await?;
        Ok(file.id)
    }
}

#[derive(Debug, Clone, Copy)]
struct Shape {
    length: u64,
    binary: bool,
}

fn shape(stream: &Capture) -> Shape {
    Shape { length: stream.len(), binary: stream.encoding() == Encoding::Binary }
}

/// How many bytes of output the task's document has room for.
fn room_in(task: &Task, result: Option<&Document>) -> u64 {
    let size = |bytes: Result<Vec<u8>, _>| bytes.map_or(DOCUMENT_LIMIT, |bytes| bytes.len() as u64);
    let taken =
        size(bson::serialize_to_vec(task)) + result.map_or(0, |result| size(bson::serialize_to_vec(result)));
    DOCUMENT_LIMIT.saturating_sub(taken + RESERVE)
}

/// Disbatch's rule for `gfs`. Output that is no text cannot be kept in a task, so it goes to GridFS in any case.
fn places(gfs: Gfs, room: u64, [stdout, stderr]: [Shape; 2]) -> [Place; 2] {
    let inline = |stream: &Shape| if stream.binary { 0 } else { stream.length };
    let both = inline(&stdout) + inline(&stderr);
    let limit = INLINE_LIMIT.min(room);
    let [out, err] = match gfs {
        Gfs::Always => [Place::GridFs, Place::GridFs],
        Gfs::Auto if both <= limit => [Place::Task, Place::Task],
        Gfs::Auto if inline(&stderr) <= limit => [Place::GridFs, Place::Task],
        Gfs::Auto => [Place::GridFs, Place::GridFs],
        Gfs::Never if both <= room => [Place::Task, Place::Task],
        Gfs::Never if inline(&stderr) <= room => [Place::Nowhere, Place::Task],
        Gfs::Never => [Place::Nowhere, Place::Nowhere],
    };
    let place = |stream: Shape, place| if stream.binary { Place::GridFs } else { place };
    [place(stdout, out), place(stderr, err)]
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1024 * 1024;
    const ROOM: u64 = DOCUMENT_LIMIT - RESERVE - 500;

    fn text(length: u64) -> Shape {
        Shape { length, binary: false }
    }

    #[test]
    fn output_goes_where_disbatch_puts_it() {
        use Place::{GridFs, Nowhere, Task};
        let cases = [
            (Gfs::Auto, text(3), text(0), [Task, Task]),
            (Gfs::Auto, text(15 * MIB), text(0), [Task, Task]),
            (Gfs::Auto, text(15 * MIB), text(1), [GridFs, Task]),
            (Gfs::Auto, text(16 * MIB - 200), text(5), [GridFs, Task]),
            (Gfs::Auto, text(17 * MIB), text(5), [GridFs, Task]),
            (Gfs::Auto, text(1), text(15 * MIB), [GridFs, Task]),
            (Gfs::Auto, text(0), text(15 * MIB + 1), [GridFs, GridFs]),
            (Gfs::Always, text(3), text(0), [GridFs, GridFs]),
            (Gfs::Never, text(3), text(0), [Task, Task]),
            (Gfs::Never, text(17 * MIB), text(5), [Nowhere, Task]),
            (Gfs::Never, text(17 * MIB), text(17 * MIB), [Nowhere, Nowhere]),
        ];
        for (gfs, stdout, stderr, expected) in cases {
            assert_eq!(places(gfs, ROOM, [stdout, stderr]), expected, "{gfs:?} {stdout:?} {stderr:?}");
        }
    }

    #[test]
    fn bytes_that_are_no_text_are_kept_in_gridfs_whatever_the_mode() {
        for gfs in [Gfs::Auto, Gfs::Always, Gfs::Never] {
            let binary = Shape { length: 3, binary: true };
            assert_eq!(places(gfs, ROOM, [binary, text(2)])[0], Place::GridFs);
        }
        let binary = Shape { length: 17 * MIB, binary: true };
        assert_eq!(places(Gfs::Auto, ROOM, [binary, text(2)]), [Place::GridFs, Place::Task]);
    }

    #[test]
    fn large_parameters_leave_less_room() {
        assert_eq!(places(Gfs::Auto, MIB, [text(2 * MIB), text(5)]), [Place::GridFs, Place::Task]);
    }
}
