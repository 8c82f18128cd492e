//! Stores what came out: each stream in its place, which is the task or GridFS, and the one update that ends the task.

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_core::budget;
use disbatch_core::config::Gfs;
use disbatch_core::model::{Task, Trial};
use disbatch_core::output::{Encoding, StreamName};
use disbatch_core::store::StoreError;
use disbatch_core::task::{Finish, Finished, Run};

use crate::capture::Capture;
use crate::early_upload::Early;
use crate::ledger::Ledger;
use crate::outcome::Outcome;
use crate::setup::{Ending, Failure};
use crate::work::{Begun, Work};

/// So many bytes of `exit` are always reckoned with.
const ORDINARY_EXIT: u64 = 1024;

/// The last line of a stream is looked for in so many bytes at its end.
const LINE: usize = 4 * 1024;

/// Output of both streams together, or standard error alone, is kept in the task up to this many bytes
/// (`gfs: auto`).
const INLINE_LIMIT: u64 = 15 * 1024 * 1024;

const DOCUMENT_LIMIT: u64 = budget::DOCUMENT as u64;

/// Room for the fields that the end of a task adds.
const RESERVE: u64 = budget::END as u64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Delivered {
    Stored,
    /// The task has ended, but some output is missing; the task says which.
    Incomplete,
    /// A web service goes on with the task. Nothing is stored.
    Detached,
    /// The task was not ours to end any more. Nothing is stored.
    NotRunning,
}

impl Delivered {
    /// What that means for the runner of `run`.
    pub fn ending(self, run: &Run) -> Result<Ending, Failure> {
        match self {
            Self::Stored | Self::Detached => Ok(Ending::Stored),
            Self::Incomplete => Ok(Ending::Incomplete),
            Self::NotRunning => Err(Failure::TakenAway { task: run.task, node: run.node.clone() }),
        }
    }
}

/// Stores `outcome` and ends the task. Keeps trying while the database is away. Of what was stored early, that remains
/// which the task refers to.
pub async fn deliver(work: &Work<'_>, outcome: &Outcome, early: &Early) -> Result<Delivered, StoreError> {
    let Work { setup, ledger, begun: Begun { task, run, .. }, .. } = work;
    let verdict = &outcome.verdict;
    let [out, err] = verdict.held.each_ref().map(|held| held.as_ref().map(|held| &held.value));
    let held = [out, err].into_iter().flatten().cloned().map(size).sum::<u64>();
    let further = outcome.exit.clone().map_or(0, size).saturating_sub(ORDINARY_EXIT) + held;
    let room = room_in(task, verdict.result.as_ref()).saturating_sub(outcome.written + further);
    let shapes = [&outcome.stdout, &outcome.stderr].map(Capture::shape);
    let [out_place, err_place] = places(setup.gfs, room, shapes);
    let mut delivery = Delivery { ledger, run, files: Vec::new(), abandoned: Vec::new(), complete: true };
    let stdout = delivery.place(StreamName::Stdout, (&outcome.stdout, out), out_place).await?;
    let stderr = delivery.place(StreamName::Stderr, (&outcome.stderr, err), err_place).await?;
    Box::pin(early.discard()).await;
    let complete = delivery.complete;
    let last_line = if stderr.as_str().is_some() { None } else { last_line(&outcome.stderr) };
    let finish = Finish {
        status: verdict.status,
        stdout,
        stderr,
        complete,
        result: verdict.result.clone(),
        exit: outcome.exit.clone(),
        note: verdict.note.clone(),
        last_line,
        pause: verdict.pause.clone(),
        recorded: outcome.recorded.clone(),
        trial: work.begun.known_queue().and_then(|queue| Trial::of(queue, task)),
    };
    let finished = ledger.finish(run, finish, outcome.again).await?;
    // The DEN may still have been at it before.
    Box::pin(ledger.remove_files(&delivery.abandoned)).await;
    Ok(match finished {
        Finished::Stored if complete => Delivered::Stored,
        Finished::Stored => Delivered::Incomplete,
        Finished::NotRunning => {
            Box::pin(ledger.remove_files(&delivery.files)).await;
            Delivered::NotRunning
        }
    })
}

fn last_line(stream: &Capture) -> Option<String> {
    let tail = stream.tail(LINE).ok()?;
    disbatch_core::task::last_line(&String::from_utf8_lossy(&tail))
}

fn size(value: impl Into<Bson>) -> u64 {
    let value: Bson = value.into();
    bson::serialize_to_vec(&doc! { "": value }).map_or(0, |bytes| bytes.len() as u64)
}

struct Delivery<'a> {
    ledger: &'a Ledger,
    run: &'a Run,
    files: Vec<ObjectId>,
    /// What the DEN was asked to store, and has not said that it has.
    abandoned: Vec<ObjectId>,
    complete: bool,
}

impl Delivery<'_> {
    /// Brings a stream to its place and returns what the task's field is to hold: `held`, if there is such a value, and the
    /// task has the stream. Output that cannot be stored is replaced by the reason.
    async fn place(
        &mut self,
        name: StreamName,
        (stream, held): (&Capture, Option<&Bson>),
        place: Place,
    ) -> Result<Bson, StoreError> {
        self.complete &= stream.failure().is_none();
        match (place, held) {
            (Place::Task, Some(value)) => Ok(value.clone()),
            (Place::Task, None) if stream.is_empty() => Ok(Bson::Null),
            (Place::Task, None) => match stream.text().await {
                Ok(text) => Ok(Bson::String(text)),
                Err(error) => Ok(self.give_up(name, stream, &error.to_string())),
            },
            (Place::Nowhere, _) => {
                Ok(self.give_up(name, stream, "the task's document would exceed 16 MiB, and gfs is off"))
            }
            (Place::GridFs, _) => match Box::pin(self.upload(name, stream)).await {
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
        if let Some(early) = &stream.early
            && let Some(id) = early.finish(stream.shape()).await
        {
            self.files.push(id);
            return Ok(id);
        }
        let mut id = ObjectId::new();
        if self.ledger.takes(stream.len()) {
            if self.ledger.ask_to_store((id, name), stream).await? {
                self.files.push(id);
                return Ok(id);
            }
            // It may still be stored under this id, by chunks beside which there must be no others.
            self.abandoned.push(id);
            id = ObjectId::new();
        }
        self.files.push(id);
        let open = || Ok((stream.shape().encoding(), stream.reader()?));
        self.ledger.store_from(self.run, (id, name), open).await?;
        Ok(id)
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    Task,
    GridFs,
    /// Nowhere: it does not fit into the task, and GridFS is not wanted.
    Nowhere,
}

/// What decides where a stream goes.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Bytes.
    pub length: u64,
    /// Whether they are no text.
    pub binary: bool,
}

impl Shape {
    pub fn encoding(self) -> Encoding {
        if self.binary { Encoding::Binary } else { Encoding::Text }
    }
}

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

/// Whether a stream that has come so far goes to GridFS, whatever it and the other one still become.
pub fn is_for_gridfs(gfs: Gfs, so_far: Shape) -> bool {
    let as_text = match gfs {
        Gfs::Always => true,
        // Should it turn out to be no text, it goes there as well.
        Gfs::Auto => so_far.length > INLINE_LIMIT,
        Gfs::Never => false,
    };
    as_text || so_far.binary
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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

    prop_compose! {
        fn any_shape()(length in 0..40 * MIB, binary in any::<bool>()) -> Shape {
            Shape { length, binary }
        }
    }

    proptest! {
        #[test]
        fn what_is_known_early_holds_at_the_end(
            gfs in prop::sample::select(vec![Gfs::Always, Gfs::Auto, Gfs::Never]),
            room in 0..ROOM,
            (so_far, more, turns, other) in (any_shape(), 0..9 * MIB, any::<bool>(), any_shape()),
        ) {
            prop_assume!(is_for_gridfs(gfs, so_far));
            let ended = Shape { length: so_far.length + more, binary: so_far.binary || turns };
            prop_assert_eq!(places(gfs, room, [ended, other])[0], Place::GridFs);
            prop_assert_eq!(places(gfs, room, [other, ended])[1], Place::GridFs);
        }
    }
}
