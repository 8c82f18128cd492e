//! The output of one attempt of a task from some byte on: what is there of it while it runs, and the rest from where
//! it is stored.

use bson::Bson;
use bson::oid::ObjectId;
use disbatch_core::live::LiveStream;
use disbatch_core::model::TaskId;
use disbatch_core::observe::Observed;
use disbatch_core::output::{OutputFile, StreamName};
use disbatch_core::store::{Store, StoreError};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

/// Live output is read about so many bytes at a time, and text in tasks is handed on in such pieces.
const AT_ONCE: usize = 256 * 1024;

/// Part of a stream of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Bytes, of which the first is at `offset` of the stream.
    Bytes {
        /// Where.
        offset: u64,
        bytes: Vec<u8>,
    },
    /// Bytes that are not kept.
    Gap {
        /// Where they were.
        offset: u64,
        /// How many.
        missing: u64,
    },
}

/// Where stored output is.
#[derive(Debug)]
pub enum Source {
    /// In the task.
    Text(String),
    /// In a file, with what is known about it.
    File(ObjectId, Option<OutputFile>),
}

impl Source {
    /// The stored output of an attempt that is over. `None`: nothing is known of such an attempt.
    pub async fn of_attempt(
        store: &Store,
        seen: &Observed,
        attempt: i64,
        stream: StreamName,
    ) -> Result<Option<Self>, StoreError> {
        let task = seen.task.id;
        let is_latest = seen.attempt().max(1) == attempt.max(1);
        let value = if is_latest && seen.task.status.has_ended() {
            store.task_output(task, stream).await?
        } else {
            match store.attempt_output(task, attempt, stream).await? {
                // What a task did before anybody counted is its first attempt.
                None if attempt == 0 => store.attempt_output(task, 1, stream).await?,
                None if is_latest => store.task_output(task, stream).await?,
                kept => kept,
            }
        };
        match value {
            Some(value) => Self::from_value(store, value).await.map(Some),
            None => Ok(None),
        }
    }

    /// What a task holds as its output.
    pub async fn of_task(store: &Store, task: TaskId, stream: StreamName) -> Result<Self, StoreError> {
        let value = store.task_output(task, stream).await?;
        Self::from_value(store, value.unwrap_or(Bson::Null)).await
    }

    /// Its bytes, as far as is known.
    pub fn length(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::File(_, file) => file.map_or(0, |file| file.length),
        }
    }

    async fn from_value(store: &Store, value: Bson) -> Result<Self, StoreError> {
        Ok(match value {
            Bson::String(text) => Self::Text(text),
            Bson::ObjectId(id) => Self::File(id, store.find_output(id).await?),
            other => Self::Text(crate::ui::plain(Some(&other))),
        })
    }

    /// Its bytes, without those before `from`.
    pub async fn read(
        self,
        store: &Store,
        from: u64,
    ) -> Result<BoxStream<'static, Result<Vec<u8>, StoreError>>, StoreError> {
        Ok(match self {
            Self::Text(text) => {
                let mut bytes = text.into_bytes();
                let known = usize::try_from(from).unwrap_or(usize::MAX).min(bytes.len());
                bytes.drain(..known);
                let pieces: Vec<_> = bytes.chunks(AT_ONCE).map(|piece| Ok(piece.to_vec())).collect();
                stream::iter(pieces).boxed()
            }
            Self::File(id, file) => store.read_output_from(id, file, from).await?.boxed(),
        })
    }
}

/// One stream of one attempt, read from its position on.
pub struct Tail {
    store: Store,
    of: LiveStream,
    position: u64,
    rest: Option<BoxStream<'static, Result<Vec<u8>, StoreError>>>,
}

impl Tail {
    pub fn new(store: Store, of: LiveStream, position: u64) -> Self {
        Self { store, of, position, rest: None }
    }

    /// Where the next byte is.
    pub fn position(&self) -> u64 {
        self.position
    }

    pub fn name(&self) -> StreamName {
        self.of.stream
    }

    /// What there is of the live output, not necessarily all at once. Nothing if there is no more for now.
    pub async fn live(&mut self) -> Result<Vec<Part>, StoreError> {
        let mut parts = Vec::new();
        for piece in self.store.read_live(self.of, self.position, AT_ONCE).await? {
            if piece.offset > self.position {
                parts.push(Part::Gap { offset: self.position, missing: piece.offset - self.position });
            }
            self.position = piece.end();
            parts.push(Part::Bytes { offset: piece.offset, bytes: piece.bytes });
        }
        Ok(parts)
    }

    /// The attempt is over: the rest is in `source`.
    pub async fn settle(&mut self, source: Option<Source>) -> Result<(), StoreError> {
        self.rest = match source {
            Some(source) => Some(source.read(&self.store, self.position).await?),
            None => None,
        };
        Ok(())
    }

    /// The next part of the rest, `None` at the end.
    pub async fn rest(&mut self) -> Result<Option<Part>, StoreError> {
        let Some(rest) = &mut self.rest else { return Ok(None) };
        let Some(bytes) = rest.try_next().await? else { return Ok(None) };
        let offset = self.position;
        self.position += bytes.len() as u64;
        Ok(Some(Part::Bytes { offset, bytes }))
    }
}
