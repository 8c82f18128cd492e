//! Stores what came out: each stream in its place, and the one update that ends the task.

use bson::oid::ObjectId;
use bson::{Bson, doc};
use disbatch_core::config::Gfs;
use disbatch_core::model::{Task, Trial};
use disbatch_core::output::StreamName;
use disbatch_core::store::StoreError;
use disbatch_core::task::{Finish, Finished, Run};

use crate::capture::Capture;
use crate::early_upload::Early;
use crate::failure::{Ending, Failure};
use crate::ledger::{Ledger, OutputFile};
use crate::outcome::Outcome;
use crate::places::{Place, places, room_in};

/// So many bytes of `exit` are always reckoned with.
const ORDINARY_EXIT: u64 = 1024;

/// The last line of a stream is looked for in so many bytes at its end.
const LINE: usize = 4 * 1024;

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
pub async fn deliver(
    ledger: &Ledger,
    (task, run): (&Task, &Run),
    outcome: &Outcome,
    (gfs, early, trial): (Gfs, &Early, Option<Trial>),
) -> Result<Delivered, StoreError> {
    let held = outcome.held.iter().flatten().cloned().map(size).sum::<u64>();
    let further = outcome.exit.clone().map_or(0, size).saturating_sub(ORDINARY_EXIT) + held;
    let room = room_in(task, outcome.result.as_ref()).saturating_sub(outcome.written + further);
    let [out_place, err_place] = places(gfs, room, [&outcome.stdout, &outcome.stderr].map(Capture::shape));
    let mut delivery = Delivery { ledger, run, files: Vec::new(), abandoned: Vec::new(), complete: true };
    let [out, err] = &outcome.held;
    let stdout = delivery.place(StreamName::Stdout, (&outcome.stdout, out), out_place).await?;
    let stderr = delivery.place(StreamName::Stderr, (&outcome.stderr, err), err_place).await?;
    Box::pin(early.discard()).await;
    let complete = delivery.complete;
    let last_line = if stderr.as_str().is_some() { None } else { last_line(&outcome.stderr) };
    let finish = Finish {
        status: outcome.status,
        stdout,
        stderr,
        complete,
        result: outcome.result.clone(),
        exit: outcome.exit.clone(),
        note: outcome.note.clone(),
        last_line,
        pause: outcome.pause.clone(),
        recorded: outcome.recorded.clone(),
        trial,
    };
    let finished = ledger.finish(run, &finish, outcome.again).await?;
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

/// The last line of a stream that may be long.
fn last_line(stream: &Capture) -> Option<String> {
    let tail = stream.tail(LINE).ok()?;
    disbatch_core::task::last_line(&String::from_utf8_lossy(&tail))
}

/// How many bytes a value takes in a document.
fn size(value: impl Into<Bson>) -> u64 {
    let value: Bson = value.into();
    bson::serialize_to_vec(&doc! { "": value }).map_or(0, |bytes| bytes.len() as u64)
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
    /// Brings a stream to its place and returns what the task's field is to hold: `held`, if there is such a value, and the
    /// task has the stream. Output that cannot be stored is replaced by the reason.
    async fn place(
        &mut self,
        name: StreamName,
        (stream, held): (&Capture, &Option<Bson>),
        place: Place,
    ) -> Result<Bson, StoreError> {
        self.complete &= stream.failure().is_none();
        if let (Place::Task, Some(value)) = (place, held) {
            return Ok(value.clone());
        }
        match place {
            Place::Task if stream.is_empty() => Ok(Bson::Null),
            Place::Task => match stream.text().await {
                Ok(text) => Ok(Bson::String(text)),
                Err(error) => Ok(self.give_up(name, stream, &error.to_string())),
            },
            Place::Nowhere => {
                Ok(self.give_up(name, stream, "the task's document would exceed 16 MiB, and gfs is off"))
            }
            Place::GridFs => match Box::pin(self.upload(name, stream)).await {
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
        if let Some(early) = stream.early()
            && let Some(id) = early.finish(stream.shape()).await
        {
            self.files.push(id);
            return Ok(id);
        }
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
