//! Output of tasks while they run, in `tasks.live`: what a runner has read from its plugin so far, for those
//! who watch, and for whoever ends the task if its runner dies.
//!
//! A stream is kept in chunks, by the offset of their first byte in what the plugin wrote. A runner leaves out
//! what it could not write in time and removes what is old, so there may be gaps between chunks and at the
//! start. What there is holds to these rules:
//!
//! - Offsets count the bytes of the plugin's stream in one attempt of the task. A byte has the same offset
//!   in `tasks.live` and in the stored output of a runner that lived to store it.
//! - A chunk has at most [`CHUNK_BYTES`]. A stream has at most [`KEPT_BYTES`] and one write.
//! - Chunks are written in their order, one after the other. Only the last one may grow.
//! - Live output is removed when the task's output is stored. What is left behind by accident is removed by the janitor of a DEN,
//!   and without one after a week.

mod seal;
mod sweep;

use disbatch_operation::operation;
use std::ops::Range;
use std::time::Duration;

use bson::{Binary, Bson, Document, doc, spec::BinarySubtype};
use futures::{StreamExt, TryStreamExt};
use mongodb::Collection;
use mongodb::options::{Acknowledgment, WriteConcern};

use crate::model::TaskId;
use crate::output::StreamName;
use crate::store::collections::LIVE;
use crate::store::{Store, StoreError};

pub use seal::{gap_line, torn_end};
pub use sweep::LiveSweep;

/// The longest chunk.
pub const CHUNK_BYTES: usize = 256 * 1024;

/// The most that is kept of a stream: the newest bytes.
pub const KEPT_BYTES: u64 = 8 * 1024 * 1024;

/// A chunk shorter than this may be written again with more bytes, so that a plugin that prints now and then
/// does not leave a document for each line.
pub const FULL_BYTES: usize = 16 * 1024;

/// A stream of which nothing was written for so long belongs to nobody.
pub(crate) const FORGOTTEN_AFTER: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// One of the streams of one attempt of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveStream {
    pub task: TaskId,
    /// Which attempt, 0 if nobody counted.
    pub attempt: i64,
    pub stream: StreamName,
}

/// Bytes of a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Where they begin in the stream.
    pub offset: u64,
    /// The bytes, at least one.
    pub bytes: Vec<u8>,
}

impl Piece {
    /// Where the next byte is.
    pub fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

impl Store {
    /// Writes `bytes` of a stream, which begin at `offset`. A chunk that begins there is replaced, so a write
    /// may be repeated, and repeated with more bytes.
    #[operation(task = %of.task)]
    pub async fn append_live(&self, of: LiveStream, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let mut start = offset;
        for chunk in bytes.chunks(CHUNK_BYTES) {
            let end = start + chunk.len() as u64;
            let mut set = key(of);
            set.insert("offset", integer(start));
            // An update in a change stream tells only the `_id`: it names the task.
            let id = set.clone();
            set.insert("end", integer(end));
            set.insert("data", Binary { subtype: BinarySubtype::Generic, bytes: chunk.to_vec() });
            let update = doc! { "$set": set, "$currentDate": { "at": true } };
            self.live().update_one(doc! { "_id": id }, update).upsert(true).write_concern(soon()).await?;
            start = end;
        }
        Ok(())
    }

    /// What there is of a stream from the byte `from` on, in order and without overlaps: about `most` bytes, and
    /// at least one piece if there is any.
    #[operation(task = %of.task)]
    pub async fn read_live(&self, of: LiveStream, from: u64, most: usize) -> Result<Vec<Piece>, StoreError> {
        let mut cursor = self.live().find(from_on(of, from)).sort(doc! { "offset": 1 }).await?;
        let (mut pieces, mut position, mut read) = (Vec::new(), from, 0);
        while let Some(chunk) = cursor.next().await {
            if let Some(piece) = piece(chunk?, position) {
                position = piece.end();
                read += piece.bytes.len();
                pieces.push(piece);
            }
            if read >= most {
                break;
            }
        }
        Ok(pieces)
    }

    /// Which bytes of a stream there are, in order; what touches is one range.
    #[operation(task = %of.task)]
    pub async fn live_extent(&self, of: LiveStream) -> Result<Vec<Range<u64>>, StoreError> {
        let only = doc! { "_id": 0, "offset": 1, "end": 1 };
        let mut chunks = self.live().find(key(of)).projection(only).sort(doc! { "offset": 1 }).await?;
        let mut extent: Vec<Range<u64>> = Vec::new();
        while let Some(chunk) = chunks.try_next().await? {
            let (Some(start), Some(end)) = (count(&chunk, "offset"), count(&chunk, "end")) else { continue };
            match extent.last_mut() {
                Some(last) if start <= last.end => last.end = last.end.max(end),
                _ => extent.push(start..end),
            }
        }
        Ok(extent)
    }

    /// How many bytes of a stream were written so far.
    #[operation(task = %of.task)]
    pub async fn live_end(&self, of: LiveStream) -> Result<u64, StoreError> {
        let only = doc! { "_id": 0, "end": 1 };
        let newest = self.live().find_one(key(of)).sort(doc! { "offset": -1 }).projection(only).await?;
        Ok(newest.and_then(|chunk| count(&chunk, "end")).unwrap_or(0))
    }

    /// Removes of a stream that has been written up to `end` what is older than the newest [`KEPT_BYTES`].
    #[operation(task = %of.task)]
    pub async fn trim_live(&self, of: LiveStream, end: u64) -> Result<(), StoreError> {
        let Some(first) = end.checked_sub(KEPT_BYTES).filter(|first| *first > 0) else { return Ok(()) };
        let mut old = key(of);
        old.insert("offset", doc! { "$lt": integer(first) });
        self.live().delete_many(old).write_concern(soon()).await?;
        Ok(())
    }

    /// Removes of a stream what is older than its newest `most` chunks, where chunks may be short.
    #[operation(task = %of.task)]
    pub async fn trim_live_chunks(&self, of: LiveStream, most: u64) -> Result<(), StoreError> {
        let live = self.live();
        let newest_first = live.find_one(key(of)).sort(doc! { "offset": -1 }).skip(most);
        let Some(last) = newest_first.projection(doc! { "offset": 1 }).await? else { return Ok(()) };
        let mut old = key(of);
        old.insert("offset", doc! { "$lte": last.get("offset").cloned() });
        live.delete_many(old).write_concern(soon()).await?;
        Ok(())
    }

    /// Removes the live output of an attempt, or of all attempts.
    #[operation(task = %task)]
    pub async fn remove_live(&self, task: TaskId, attempt: Option<i64>) -> Result<(), StoreError> {
        let mut filter = doc! { "task": task };
        if let Some(attempt) = attempt {
            filter.insert("attempt", attempt);
        }
        match self.live().delete_many(filter).await.map_err(StoreError::from) {
            // Who has no right to remove it has had none to write it.
            Err(error) if !error.is_forbidden() => Err(error),
            _ => Ok(()), // Removed, or nothing there.
        }
    }

    fn live(&self) -> Collection<Document> {
        self.database().collection(LIVE.name)
    }
}

/// Nothing depends on live output, so nobody waits for the majority.
fn soon() -> WriteConcern {
    WriteConcern::builder().w(Acknowledgment::Nodes(1)).build()
}

fn key(of: LiveStream) -> Document {
    doc! { "task": of.task, "attempt": of.attempt, "stream": of.stream.as_str() }
}

fn from_on(of: LiveStream, from: u64) -> Document {
    let mut filter = key(of);
    // The first chunk of interest may begin before `from`. The index finds those that are near enough, and
    // their ends tell which.
    let near = from.saturating_sub(CHUNK_BYTES as u64);
    filter.insert("offset", doc! { "$gte": integer(near) });
    filter.insert("end", doc! { "$gt": integer(from) });
    filter
}

/// A chunk as far as it is new to who has everything before `position`. A chunk that grew while it was read
/// is in the way of nothing: the same bytes have the same offsets.
fn piece(mut chunk: Document, position: u64) -> Option<Piece> {
    let offset = count(&chunk, "offset")?;
    let Some(Bson::Binary(Binary { mut bytes, .. })) = chunk.remove("data") else { return None };
    let known = usize::try_from(position.saturating_sub(offset)).ok()?;
    if known >= bytes.len() {
        return None;
    }
    let bytes = bytes.split_off(known);
    Some(Piece { offset: offset.max(position), bytes })
}

fn count(chunk: &Document, key: &str) -> Option<u64> {
    let number = chunk.get(key).and_then(|value| value.as_i64().or_else(|| value.as_i32().map(i64::from)));
    number.and_then(|number| u64::try_from(number).ok())
}

fn integer(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chunk(offset: i64, bytes: &[u8]) -> Document {
        let data = Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() };
        doc! { "offset": offset, "end": offset + i64::try_from(bytes.len()).unwrap(), "data": data }
    }

    #[test]
    fn only_what_is_new_of_a_chunk_counts() {
        let new = |position| piece(chunk(10, b"abcde"), position);
        assert_eq!(new(0), Some(Piece { offset: 10, bytes: b"abcde".to_vec() }));
        assert_eq!(new(10), Some(Piece { offset: 10, bytes: b"abcde".to_vec() }));
        assert_eq!(new(12), Some(Piece { offset: 12, bytes: b"cde".to_vec() }));
        assert_eq!(new(15), None);
        assert_eq!(new(99), None);
        assert_eq!(piece(doc! { "offset": -1 }, 0), None);
    }
}
