//! Reads stored output, from any byte on.

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_operation::operation;
use futures::{StreamExt, TryStreamExt};
use mongodb::Cursor;

use super::{CHUNK_SIZE, Encoding, chunk_bytes, damaged};
use crate::store::{Rows, Store, StoreError, attended, count_of, integer};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputFile {
    /// Its length in bytes.
    pub length: u64,
    pub encoding: Encoding,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OutputEnd {
    /// Where the first of these bytes is in the file.
    pub offset: u64,
    pub bytes: Vec<u8>,
}

impl Store {
    #[operation]
    pub async fn find_output(&self, id: ObjectId) -> Result<Option<OutputFile>, StoreError> {
        let Some(file) = self.files().find_one(doc! { "_id": id }).await? else { return Ok(None) };
        let binary = file
            .get_document("metadata")
            .is_ok_and(|data| data.get_str("encoding").is_ok_and(|name| name == "binary"));
        Ok(Some(OutputFile {
            length: count_of(&file, "length").unwrap_or(0),
            encoding: if binary { Encoding::Binary } else { Encoding::Text },
        }))
    }

    /// The chunks of the file `id` in order, as bytes. Text and binary chunks are read alike. A file without
    /// chunks is an empty stream.
    ///
    /// # Errors
    /// The database cannot be reached; within the stream also when a chunk is missing or is no chunk.
    #[operation]
    pub async fn read_output(&self, id: ObjectId) -> Result<Rows<Vec<u8>>, StoreError> {
        self.read_output_from(id, None, 0).await
    }

    /// As [`Store::read_output`], without the bytes before `from`, which are not fetched. `file` is what
    /// [`Store::find_output`] knows of it.
    #[operation]
    pub async fn read_output_from(
        &self,
        id: ObjectId,
        file: Option<OutputFile>,
        from: u64,
    ) -> Result<Rows<Vec<u8>>, StoreError> {
        let (first, skip) = if from == 0 { (0, 0) } else { self.chunk_at(id, file, from).await? };
        let wanted = doc! { "files_id": id, "n": { "$gte": integer(first) } };
        // A chunk at a time: without that, the server sends 16 MiB at once to each reader.
        let cursor = self.chunks().find(wanted).sort(doc! { "n": 1 }).batch_size(1).await?;
        let pieces = cursor.enumerate().map(move |(index, chunk)| {
            let mut bytes = chunk_bytes(id, first + index, chunk?)?;
            if index == 0 {
                bytes.drain(..skip.min(bytes.len()));
            }
            Ok(bytes)
        });
        Ok(attended(pieces))
    }

    /// The last bytes of the file `id`: `most` of them, or all if there are not so many. However long the file is, only
    /// the chunks with these bytes are read. It is an error if there is more or less than the file says.
    #[operation]
    pub async fn read_output_end(&self, id: ObjectId, most: usize) -> Result<OutputEnd, StoreError> {
        let file = self.find_output(id).await?.unwrap_or(OutputFile { length: 0, encoding: Encoding::Text });
        if !self.has_its_end(id, file).await? {
            return Err(damaged(id, "its end is missing".to_owned()));
        }
        let mut chunks =
            self.chunks().find(doc! { "files_id": id }).sort(doc! { "n": -1 }).batch_size(1).await?;
        let (mut parts, mut read, mut before) = (Vec::new(), 0, None);
        while read < most && before != Some(0) {
            let Some(chunk) = chunks.try_next().await? else { break };
            let number = before.map_or_else(|| count_of(&chunk, "n"), |number| u64::checked_sub(number, 1));
            let number = number.and_then(|number| usize::try_from(number).ok()).unwrap_or(0);
            let bytes = chunk_bytes(id, number, chunk)?;
            read += bytes.len();
            parts.push(bytes);
            before = Some(number as u64);
        }
        let is_all = read < most || before == Some(0);
        if (is_all && read as u64 != file.length) || read as u64 > file.length {
            return Err(damaged(id, format!("it has {read} bytes and should have {}", file.length)));
        }
        let mut bytes: Vec<u8> = parts.into_iter().rev().flatten().collect();
        bytes.drain(..bytes.len().saturating_sub(most));
        Ok(OutputEnd { offset: file.length - bytes.len() as u64, bytes })
    }

    /// Whether the last chunk of the file is there. Of binary chunks the last one has a number that is known. Of text, all
    /// have as many characters but the last: one that has fewer is it, and else the server measures them all.
    async fn has_its_end(&self, id: ObjectId, file: OutputFile) -> Result<bool, StoreError> {
        let Some(last_byte) = file.length.checked_sub(1) else { return Ok(true) };
        let is_text = doc! { "$eq": [{ "$type": "$data" }, "string"] };
        let only = doc! {
            "_id": 0, "n": 1, "characters": { "$cond": [is_text, { "$strLenCP": "$data" }, Bson::Null] },
        };
        let chunks = self.chunks();
        let last = chunks.find_one(doc! { "files_id": id }).sort(doc! { "n": -1 }).projection(only).await?;
        let Some(last) = last else { return Ok(false) };
        let size = CHUNK_SIZE as u64;
        match file.encoding {
            Encoding::Binary => Ok(count_of(&last, "n") == Some(last_byte / size)),
            Encoding::Text if count_of(&last, "characters").is_some_and(|characters| characters < size) => {
                Ok(true)
            }
            Encoding::Text => {
                let mut lengths = self.chunk_lengths(id, 1).await?;
                let mut there = 0;
                while let Some(chunk) = lengths.try_next().await? {
                    there += count_of(&chunk, "length").unwrap_or(0);
                }
                Ok(there == file.length)
            }
        }
    }

    /// The number of the chunk that holds the byte at `position`, and how many of its bytes come before. Chunks
    /// of text have the same number of characters, not of bytes, so that the server has to measure them: from the
    /// nearer end.
    async fn chunk_at(
        &self,
        id: ObjectId,
        file: Option<OutputFile>,
        position: u64,
    ) -> Result<(usize, usize), StoreError> {
        let length = file.map_or(0, |file| file.length);
        if let Some(file) = file
            && (length / 2..length).contains(&position)
            && self.has_its_end(id, file).await?
            && let Some(found) = self.chunk_near_the_end(id, length, position).await?
        {
            return Ok(found);
        }
        let mut lengths = self.chunk_lengths(id, 1).await?;
        let (mut number, mut before) = (0_usize, 0);
        while let Some(chunk) = lengths.try_next().await? {
            if count_of(&chunk, "n") != Some(number as u64) {
                return Err(damaged(id, format!("chunk {number} is missing")));
            }
            let end = before + count_of(&chunk, "length").unwrap_or(0);
            if position < end {
                return Ok((number, usize::try_from(position - before).unwrap_or(usize::MAX)));
            }
            before = end;
            number += 1;
        }
        if position < length {
            return Err(damaged(id, format!("it has {before} bytes and should have {length}")));
        }
        Ok((number, 0))
    }

    /// The same, measured from the end of a file of this length. `None`: there are not all chunks of it.
    async fn chunk_near_the_end(
        &self,
        id: ObjectId,
        length: u64,
        position: u64,
    ) -> Result<Option<(usize, usize)>, StoreError> {
        let mut lengths = self.chunk_lengths(id, -1).await?;
        let (mut end, mut after) = (length, None);
        while let Some(chunk) = lengths.try_next().await? {
            let (number, size) = (count_of(&chunk, "n"), count_of(&chunk, "length"));
            let (Some(number), Some(size)) = (number, size) else { break };
            if after.is_some_and(|after| number.checked_add(1) != Some(after)) {
                break;
            }
            let Some(start) = end.checked_sub(size) else { break };
            if start <= position {
                return Ok(usize::try_from(number).ok().zip(usize::try_from(position - start).ok()));
            }
            (end, after) = (start, Some(number));
        }
        Ok(None)
    }

    /// The numbers of the chunks and how many bytes each has, in this order.
    async fn chunk_lengths(&self, id: ObjectId, order: i32) -> Result<Cursor<Document>, StoreError> {
        let is_chunk = doc! { "$in": [{ "$type": "$data" }, ["string", "binData"]] };
        let only = doc! {
            "_id": 0, "n": 1, "length": { "$cond": [is_chunk, { "$binarySize": "$data" }, Bson::Null] },
        };
        Ok(self.chunks().find(doc! { "files_id": id }).projection(only).sort(doc! { "n": order }).await?)
    }
}
