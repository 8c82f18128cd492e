//! Reads stored output, from any byte on.

use bson::oid::ObjectId;
use bson::{Document, doc};
use futures::{Stream, StreamExt, TryStreamExt};

use super::{Encoding, chunk_bytes};
use crate::store::{Store, StoreError};

/// What is known about a file of output.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputFile {
    /// Its length in bytes.
    pub length: u64,
    /// Whether it is text.
    pub encoding: Encoding,
}

/// The end of a file of output.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OutputEnd {
    /// Where the first of these bytes is in the file.
    pub offset: u64,
    /// The bytes, up to the last of the file.
    pub bytes: Vec<u8>,
}

impl Store {
    /// What there is to know about the file `id`, `None` if it does not exist.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn find_output(&self, id: ObjectId) -> Result<Option<OutputFile>, StoreError> {
        let Some(file) = self.files().find_one(doc! { "_id": id }).await? else { return Ok(None) };
        let binary = file
            .get_document("metadata")
            .is_ok_and(|data| data.get_str("encoding").is_ok_and(|name| name == "binary"));
        Ok(Some(OutputFile {
            length: count(&file, "length").unwrap_or(0),
            encoding: if binary { Encoding::Binary } else { Encoding::Text },
        }))
    }

    /// The chunks of the file `id` in order, as bytes. Text and binary chunks are read alike. A file without
    /// chunks is an empty stream.
    ///
    /// # Errors
    /// The database cannot be reached; within the stream also when a chunk is missing or is no chunk.
    pub async fn read_output(
        &self,
        id: ObjectId,
    ) -> Result<impl Stream<Item = Result<Vec<u8>, StoreError>> + Send + 'static, StoreError> {
        self.read_output_from(id, 0).await
    }

    /// As [`Store::read_output`], without the bytes before `from`, which are not fetched.
    ///
    /// # Errors
    /// As [`Store::read_output`].
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn read_output_from(
        &self,
        id: ObjectId,
        from: u64,
    ) -> Result<impl Stream<Item = Result<Vec<u8>, StoreError>> + Send + 'static, StoreError> {
        let (first, skip) = if from == 0 { (0, 0) } else { self.chunk_at(id, from).await? };
        let number = i64::try_from(first).unwrap_or(i64::MAX);
        let wanted = doc! { "files_id": id, "n": { "$gte": number } };
        // A chunk at a time: without that, the server sends 16 MiB at once to each reader.
        let cursor = self.chunks().find(wanted).sort(doc! { "n": 1 }).batch_size(1).await?;
        Ok(cursor.enumerate().map(move |(index, chunk)| {
            let mut bytes = chunk_bytes(id, first + index, chunk?)?;
            if index == 0 {
                bytes.drain(..skip.min(bytes.len()));
            }
            Ok(bytes)
        }))
    }

    /// The last bytes of the file `id`: `most` of them, or all if there are not so many. However long the file is, only
    /// the chunks with these bytes are read.
    ///
    /// # Errors
    /// The database cannot be reached, or one of the chunks is missing or is no chunk.
    #[tracing::instrument(skip_all, err(level = "debug"))]
    pub async fn read_output_end(&self, id: ObjectId, most: usize) -> Result<OutputEnd, StoreError> {
        let file = self.find_output(id).await?;
        let mut chunks =
            self.chunks().find(doc! { "files_id": id }).sort(doc! { "n": -1 }).batch_size(1).await?;
        let (mut parts, mut read, mut before) = (Vec::new(), 0, None);
        while read < most && before != Some(0) {
            let Some(chunk) = chunks.try_next().await? else { break };
            let number = before.map_or_else(|| count(&chunk, "n"), |number| u64::checked_sub(number, 1));
            let number = number.and_then(|number| usize::try_from(number).ok()).unwrap_or(0);
            let bytes = chunk_bytes(id, number, chunk)?;
            read += bytes.len();
            parts.push(bytes);
            before = Some(number as u64);
        }
        let mut bytes: Vec<u8> = parts.into_iter().rev().flatten().collect();
        bytes.drain(..bytes.len().saturating_sub(most));
        let length = file.map_or(0, |file| file.length);
        Ok(OutputEnd { offset: length.saturating_sub(bytes.len() as u64), bytes })
    }

    /// The number of the chunk that holds the byte at `position`, and how many of its bytes come before. Chunks
    /// of text have the same number of characters, not of bytes, so that the server has to measure them: from the
    /// nearer end.
    async fn chunk_at(&self, id: ObjectId, position: u64) -> Result<(usize, usize), StoreError> {
        let length = self.find_output(id).await?.map_or(0, |file| file.length);
        if (length / 2..length).contains(&position)
            && let Some(found) = self.chunk_near_the_end(id, length, position).await?
        {
            return Ok(found);
        }
        let only = doc! { "_id": 0, "length": { "$binarySize": "$data" } };
        let mut lengths =
            self.chunks().find(doc! { "files_id": id }).projection(only).sort(doc! { "n": 1 }).await?;
        let (mut number, mut before) = (0, 0);
        while let Some(chunk) = lengths.next().await {
            let end = before + count(&chunk?, "length").unwrap_or(0);
            if position < end {
                break;
            }
            before = end;
            number += 1;
        }
        Ok((number, usize::try_from(position - before).unwrap_or(usize::MAX)))
    }

    /// The same, measured from the end of a file of this length. `None`: there are not all chunks of it.
    async fn chunk_near_the_end(
        &self,
        id: ObjectId,
        length: u64,
        position: u64,
    ) -> Result<Option<(usize, usize)>, StoreError> {
        let only = doc! { "_id": 0, "n": 1, "length": { "$binarySize": "$data" } };
        let mut lengths =
            self.chunks().find(doc! { "files_id": id }).projection(only).sort(doc! { "n": -1 }).await?;
        let mut end = length;
        while let Some(chunk) = lengths.try_next().await? {
            let (Some(number), Some(size)) = (count(&chunk, "n"), count(&chunk, "length")) else { break };
            let Some(start) = end.checked_sub(size) else { break };
            if start <= position {
                let place = (usize::try_from(number), usize::try_from(position - start));
                return Ok(if let (Ok(number), Ok(skip)) = place { Some((number, skip)) } else { None });
            }
            end = start;
        }
        Ok(None)
    }
}

fn count(document: &Document, key: &str) -> Option<u64> {
    let number = document.get(key)?;
    let number = number.as_i64().or_else(|| number.as_i32().map(i64::from));
    number.and_then(|number| u64::try_from(number).ok())
}
