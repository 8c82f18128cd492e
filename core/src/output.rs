//! Output that is too large for the task's document: GridFS in `tasks.files` and `tasks.chunks`.
//!
//! Disbatch stores text: the `data` of its chunks is a BSON string of 261,120 characters, where GridFS has
//! binary data (Disbatch 4 design, GridFS for Task stdout and stderr). Output that is not UTF-8 is kept as
//! binary chunks, and the file's metadata says so. Both are read.

mod marks;
mod packer;
mod range;
mod writes;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_operation::operation;
use serde::{Deserialize, Serialize};
use tokio::io::AsyncRead;

use crate::model::TaskId;
use crate::store::{Store, StoreError};
use packer::Packer;
use writes::Writes;

pub use marks::{Marks, Times, timed};
pub use range::{OutputEnd, OutputFile};

/// Characters (text) or bytes (binary) in a chunk.
pub const CHUNK_SIZE: usize = 261_120;

/// Chunks are sent in batches of about this many bytes.
const BATCH_BYTES: usize = 2 * 1024 * 1024;

/// Which of a task's two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamName {
    Stdout,
    Stderr,
}

impl StreamName {
    pub const BOTH: [Self; 2] = [Self::Stdout, Self::Stderr];

    /// The GridFS file name and the task's field.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// How a stream's bytes are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Encoding {
    /// Valid UTF-8, in string chunks as Perl reads them.
    Text,
    /// Anything else, in binary chunks.
    Binary,
}

impl Store {
    /// Stores `source` to its end as the file `id` of `task`. Holds a few MiB, whatever the length.
    ///
    /// A file exists once all of its chunks do. After an error, [`Store::delete_output`] removes what was
    /// written, and the same id can be used again.
    ///
    /// # Errors
    /// The database cannot be reached, `source` cannot be read, or it is not UTF-8 although announced as text.
    #[tracing::instrument(skip_all, fields(task = %task, stream = stream.as_str()), err(level = "debug"))]
    pub async fn put_output<R: AsyncRead + Unpin>(
        &self,
        id: ObjectId,
        (task, stream): (TaskId, StreamName),
        encoding: Encoding,
        source: R,
    ) -> Result<(), StoreError> {
        let mut writes = Writes::to(self.chunks());
        let packed = pack(id, encoding, source, &mut writes).await;
        // What is under way must not arrive after an error was told, or after the file is there.
        let written = writes.end().await;
        let (length, md5) = packed?.sums();
        written?;
        let mut metadata = doc! { "task_id": task };
        if encoding == Encoding::Binary {
            metadata.insert("encoding", "binary");
        }
        let file = doc! {
            "_id": id,
            "filename": stream.as_str(),
            "length": length,
            "chunkSize": i32::try_from(CHUNK_SIZE).unwrap_or(i32::MAX),
            "uploadDate": self.now(),
            "md5": md5,
            "metadata": metadata,
        };
        self.files().insert_one(file).await?;
        Ok(())
    }

    /// Removes the file `id`, complete or not.
    #[operation]
    pub async fn delete_output(&self, id: ObjectId) -> Result<(), StoreError> {
        self.files().delete_one(doc! { "_id": id }).await?;
        self.chunks().delete_many(doc! { "files_id": id }).await?;
        Ok(())
    }
}

/// Packs `source` to its end, a batch while earlier ones are being written.
async fn pack<R: AsyncRead + Unpin>(
    id: ObjectId,
    encoding: Encoding,
    mut source: R,
    writes: &mut Writes,
) -> Result<Packer, StoreError> {
    let mut packer = Packer::new(id, encoding);
    while !packer.has_ended() {
        packer.fill(&mut source, BATCH_BYTES).await.map_err(StoreError::Spool)?;
        let chunks;
        (packer, chunks) = packer.pack_aside().await.map_err(StoreError::Spool)?;
        writes.add(chunks).await?;
    }
    Ok(packer)
}

fn chunk_bytes(id: ObjectId, expected: usize, mut chunk: Document) -> Result<Vec<u8>, StoreError> {
    let number = chunk.get("n").and_then(|n| n.as_i64().or_else(|| n.as_i32().map(i64::from)));
    if number.and_then(|n| usize::try_from(n).ok()) != Some(expected) {
        return Err(damaged(id, format!("chunk {expected} is missing")));
    }
    match chunk.remove("data") {
        Some(Bson::String(text)) => Ok(text.into_bytes()),
        Some(Bson::Binary(binary)) => Ok(binary.bytes),
        _ => Err(damaged(id, format!("chunk {expected} holds neither text nor binary data"))),
    }
}

fn damaged(id: ObjectId, reason: String) -> StoreError {
    StoreError::DamagedOutput { id, reason }
}
