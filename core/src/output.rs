//! Output that is too large for the task's document: GridFS in `tasks.files` and `tasks.chunks`.
//!
//! Disbatch stores text: the `data` of its chunks is a BSON string of 261,120 characters, where GridFS has
//! binary data (Disbatch 4 design, GridFS for Task stdout and stderr). Output that is not UTF-8 is kept as
//! binary chunks, and the file's metadata says so. Both are read.

mod chunker;
mod range;

use bson::oid::ObjectId;
use bson::{Binary, Bson, Document, doc, spec::BinarySubtype};
use md5::{Digest, Md5};
use serde::{Deserialize, Serialize};
use tokio::io::AsyncRead;

use crate::model::TaskId;
use crate::store::{Store, StoreError};
use chunker::Chunker;

pub use range::OutputFile;

/// Characters (text) or bytes (binary) in a chunk.
pub const CHUNK_SIZE: usize = 261_120;

/// Chunks are sent in batches of about this many bytes.
const BATCH_BYTES: usize = 2 * 1024 * 1024;

/// Which of a task's two streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StreamName {
    /// Standard output.
    Stdout,
    /// Standard error.
    Stderr,
}

impl StreamName {
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
        let mut chunker = Chunker::new(source, encoding);
        let mut digest = Md5::new();
        let mut length = 0;
        let mut number: i32 = 0;
        let mut batch: Vec<Document> = Vec::new();
        let mut batched = 0;
        while let Some(bytes) = chunker.next().await.map_err(StoreError::Spool)? {
            digest.update(&bytes);
            length += bytes.len();
            batched += bytes.len();
            let data = chunk_data(bytes, encoding).map_err(StoreError::Spool)?;
            batch.push(doc! { "_id": ObjectId::new(), "files_id": id, "n": number, "data": data });
            number += 1;
            if batched >= BATCH_BYTES {
                self.chunks().insert_many(std::mem::take(&mut batch)).await?;
                batched = 0;
            }
        }
        if !batch.is_empty() {
            self.chunks().insert_many(batch).await?;
        }
        let mut metadata = doc! { "task_id": task };
        if encoding == Encoding::Binary {
            metadata.insert("encoding", "binary");
        }
        let file = doc! {
            "_id": id,
            "filename": stream.as_str(),
            "length": integer(length),
            "chunkSize": integer(CHUNK_SIZE),
            "uploadDate": self.now(),
            "md5": hex(&digest.finalize()),
            "metadata": metadata,
        };
        self.files().insert_one(file).await?;
        Ok(())
    }

    /// Removes the file `id`, complete or not.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn delete_output(&self, id: ObjectId) -> Result<(), StoreError> {
        self.files().delete_one(doc! { "_id": id }).await?;
        self.chunks().delete_many(doc! { "files_id": id }).await?;
        Ok(())
    }
}

fn chunk_data(bytes: Vec<u8>, encoding: Encoding) -> std::io::Result<Bson> {
    Ok(match encoding {
        Encoding::Text => Bson::String(
            String::from_utf8(bytes)
                .map_err(|error| std::io::Error::new(std::io::ErrorKind::InvalidData, error.utf8_error()))?,
        ),
        Encoding::Binary => Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes }),
    })
}

fn chunk_bytes(id: ObjectId, expected: usize, mut chunk: Document) -> Result<Vec<u8>, StoreError> {
    let damaged = |reason: String| StoreError::DamagedOutput { id, reason };
    let number = chunk.get("n").and_then(|n| n.as_i64().or_else(|| n.as_i32().map(i64::from)));
    if number.and_then(|n| usize::try_from(n).ok()) != Some(expected) {
        return Err(damaged(format!("chunk {expected} is missing")));
    }
    match chunk.remove("data") {
        Some(Bson::String(text)) => Ok(text.into_bytes()),
        Some(Bson::Binary(binary)) => Ok(binary.bytes),
        _ => Err(damaged(format!("chunk {expected} holds neither text nor binary data"))),
    }
}

fn integer(value: usize) -> Bson {
    match i32::try_from(value) {
        Ok(small) => Bson::Int32(small),
        Err(_) => Bson::Int64(i64::try_from(value).unwrap_or(i64::MAX)),
    }
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}
