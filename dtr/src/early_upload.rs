//! Stores large output while the plugin still writes it.
//!
//! Once a stream is so long that it goes to GridFS whatever comes, a task of the runtime reads what is captured from
//! its file on disk and writes chunks. The plugin never waits for that, and nothing depends on it: the file on disk has
//! all of the output, and what goes wrong is begun again from its start, at the latest when the plugin has ended.
//!
//! The stored file appears at the end, when the length is known. What an upload has written before it belongs to
//! nobody yet. So its id is announced in the task first: should the runner die, whoever buries the run removes it.
//!
//! That a stream of text stays text is a guess. Where it was wrong, the chunks are removed and written again.

use std::fs::File;
use std::io::{self, Cursor};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bson::oid::ObjectId;
use disbatch_core::config::Gfs;
use disbatch_core::output::{Encoding, StreamName};
use disbatch_core::store::StoreError;
use disbatch_core::task::Run;
use futures::stream;
use tokio::io::AsyncRead;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_util::io::StreamReader;

use crate::deliver::{Shape, is_for_gridfs};
use crate::ledger::Ledger;
use crate::lock;

/// Shorter streams are stored at the end, which takes no time.
const SHORTEST: u64 = 4 * 1024 * 1024;

/// So much is read at once, and waited for.
const READ_BYTES: u64 = 1024 * 1024;

/// How long a write that is under way is waited for before its chunks are removed.
const LAST_WRITE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub struct Early([Tap; 2]);

impl Early {
    pub fn new(ledger: &Ledger, run: &Run, gfs: Gfs) -> Self {
        let tap = |stream| {
            let (ledger, run, stage) = (ledger.clone(), run.clone(), Mutex::new(Stage::Idle));
            Tap(Arc::new(Inner { ledger, run, stream, gfs, stage }))
        };
        Self(StreamName::ALL.map(tap))
    }

    pub fn tap(&self, stream: StreamName) -> Tap {
        self.0[stream as usize].clone()
    }

    /// Gives up what has not been finished, and removes what was written of it.
    pub async fn discard(&self) {
        for tap in &self.0 {
            let Some(Upload { id, growth, mut task }) = tap.end() else { continue };
            // Its source fails then.
            drop(growth);
            // A write that reaches the server after the removal would stay.
            if tokio::time::timeout(LAST_WRITE, &mut task).await.is_err() {
                task.abort();
            }
            tap.0.ledger.remove_files(&[id]).await;
        }
    }
}

/// Is told how a stream grows, and stores it meanwhile. Clones share the upload.
#[derive(Debug, Clone)]
pub struct Tap(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    ledger: Ledger,
    run: Run,
    stream: StreamName,
    gfs: Gfs,
    stage: Mutex<Stage>,
}

#[derive(Debug)]
enum Stage {
    Idle,
    Begun(Upload),
    Over,
}

#[derive(Debug)]
struct Upload {
    id: ObjectId,
    growth: watch::Sender<Growth>,
    task: JoinHandle<Result<(), StoreError>>,
}

impl Tap {
    /// The stream has come so far, and `file` holds it. Never waits.
    pub fn grown(&self, file: &File, so_far: Shape) {
        if so_far.length < SHORTEST || !is_for_gridfs(self.0.gfs, so_far) {
            return;
        }
        let mut stage = lock(&self.0.stage);
        match &*stage {
            Stage::Idle => match self.begin(file, so_far) {
                Ok(upload) => *stage = Stage::Begun(upload),
                Err(error) => {
                    tracing::warn!(%error, "output is stored at the end only");
                    *stage = Stage::Over;
                }
            },
            Stage::Begun(upload) => upload.growth.send_modify(|growth| growth.so_far = so_far),
            Stage::Over => {}
        }
    }

    /// Stores the rest of the stream, which has this shape now that it is complete, and returns the id of its file.
    /// `None`: it has not been stored, and what was written of it has been removed.
    pub async fn finish(&self, shape: Shape) -> Option<ObjectId> {
        let Upload { id, growth, task } = self.end()?;
        growth.send_replace(Growth { so_far: shape, complete: true });
        let error = match task.await {
            Ok(Ok(())) => return Some(id),
            Ok(Err(error)) => error.to_string(),
            Err(error) => error.to_string(),
        };
        tracing::warn!(%error, stream = self.0.stream.as_str(), "output could not be stored early, storing it again");
        self.0.ledger.remove_files(&[id]).await;
        None
    }

    fn begin(&self, file: &File, so_far: Shape) -> io::Result<Upload> {
        let id = ObjectId::new();
        let (growth, grown) = watch::channel(Growth { so_far, complete: false });
        let task = tokio::spawn(store(Arc::clone(&self.0), id, Arc::new(file.try_clone()?), grown));
        Ok(Upload { id, growth, task })
    }

    fn end(&self) -> Option<Upload> {
        match std::mem::replace(&mut *lock(&self.0.stage), Stage::Over) {
            Stage::Begun(upload) => Some(upload),
            Stage::Idle | Stage::Over => None,
        }
    }
}

/// Stores the stream as what it is so far. When that turns out to be wrong, begins again.
async fn store(
    tap: Arc<Inner>,
    id: ObjectId,
    file: Arc<File>,
    grown: watch::Receiver<Growth>,
) -> Result<(), StoreError> {
    let open = || {
        let encoding = grown.borrow().so_far.encoding();
        Ok((encoding, follow(Arc::clone(&file), grown.clone(), encoding)))
    };
    loop {
        match tap.ledger.store_from(&tap.run, (id, tap.stream), open).await {
            Err(StoreError::Spool(error))
                if error.kind() == io::ErrorKind::InvalidData
                    && grown.borrow().so_far.encoding() == Encoding::Binary =>
            {
                tracing::debug!("output that was stored as text is none");
                tap.ledger.store().await?.delete_output(id).await?;
            }
            stored => return stored,
        }
    }
}

#[derive(Debug, Clone, Copy)]
struct Growth {
    so_far: Shape,
    complete: bool,
}

/// Reads the stream in `file` to its end, as something that is stored like this. Fails when nobody tells any more how
/// it grows, and with `InvalidData` as soon as it is known to be no text although it was to be.
fn follow(
    file: Arc<File>,
    grown: watch::Receiver<Growth>,
    encoding: Encoding,
) -> impl AsyncRead + Unpin + Send {
    let next = move |position: u64| {
        let (file, mut grown) = (Arc::clone(&file), grown.clone());
        async move {
            let is_enough = |growth: &Growth| {
                let turned = growth.so_far.encoding() != encoding;
                turned || growth.complete || growth.so_far.length >= position + READ_BYTES
            };
            let growth = *grown.wait_for(is_enough).await.map_err(io::Error::other)?;
            if growth.so_far.encoding() != encoding {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "it turned out to be no text"));
            }
            let wanted = growth.so_far.length.saturating_sub(position).min(READ_BYTES);
            if wanted == 0 {
                return Ok(None);
            }
            let mut bytes = vec![0; usize::try_from(wanted).map_err(io::Error::other)?];
            let read = tokio::task::spawn_blocking(move || {
                // With a position of its own: the capture writes at that of the file.
                file.read_exact_at(&mut bytes, position).map(|()| bytes)
            });
            let bytes = read.await.map_err(io::Error::other)??;
            Ok(Some((Cursor::new(bytes), position + wanted)))
        }
    };
    StreamReader::new(Box::pin(stream::try_unfold(0, next)))
}

#[cfg(test)]
mod tests;
