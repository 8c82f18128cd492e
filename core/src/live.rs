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
//!
//! What is left of the output of a task whose runner died is made into stored output ([`Store::seal_live`]). What else may be left behind are
//! chunks of attempts that are over: a DEN that is stopped may write one for a runner that has ended its task without it meanwhile.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, Document, doc};
use disbatch_operation::operation;
use futures::{StreamExt, TryStreamExt};
use mongodb::options::WriteConcern;

use crate::model::{Status, TaskId, whole_number};
use crate::output::{Encoding, StreamName};
use crate::store::{Store, StoreError, collect, count_of, integer, put, with};
use crate::task::long_ago;

pub const CHUNK_BYTES: usize = 256 * 1024;

/// The most that is kept of a stream: the newest bytes.
pub const KEPT_BYTES: u64 = 8 * 1024 * 1024;

/// A chunk shorter than this may be written again with more bytes, so that a plugin that prints now and then
/// does not leave a document for each line.
pub const FULL_BYTES: usize = 16 * 1024;

/// A stream of which nothing was written for so long belongs to nobody.
pub(crate) const FORGOTTEN_AFTER: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// Text up to so many bytes is kept in the task.
const IN_TASK: usize = 1024 * 1024;

/// Pieces are read about so many bytes at a time.
const READ_AT_ONCE: usize = 2 * 1024 * 1024;

/// What was written a moment ago is left to whoever ends the attempt.
const YOUNG: Duration = Duration::from_secs(10);

/// So many chunks are looked at in a round, by the index alone.
const LOOKED_AT: usize = 2_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LiveStream {
    pub task: TaskId,
    /// Which attempt, 0 if nobody counted.
    pub attempt: i64,
    pub stream: StreamName,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    pub offset: u64,
    pub bytes: Vec<u8>,
}

impl Piece {
    pub fn end(&self) -> u64 {
        self.offset + self.bytes.len() as u64
    }
}

/// How far a sweeper has come: the next round goes on from there.
#[derive(Debug, Default)]
pub struct LiveSweep {
    after: Option<ObjectId>,
}

impl Store {
    /// Writes `bytes` of a stream, which begin at `offset`. A chunk that begins there is replaced, so a write
    /// may be repeated, and repeated with more bytes.
    #[operation(task = %of.task)]
    pub async fn append_live(&self, of: LiveStream, offset: u64, bytes: &[u8]) -> Result<(), StoreError> {
        let mut start = offset;
        for chunk in bytes.chunks(CHUNK_BYTES) {
            let end = start + chunk.len() as u64;
            // An update in a change stream tells only the `_id`: it names the task.
            let id = with(key(of), doc! { "offset": integer(start) });
            let data = Binary { subtype: BinarySubtype::Generic, bytes: chunk.to_vec() };
            let set = with(id.clone(), doc! { "end": integer(end), "data": data });
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
        // The first chunk of interest may begin before `from`. The index finds those that are near enough, and
        // their ends tell which.
        let near = from.saturating_sub(CHUNK_BYTES as u64);
        let near = doc! { "offset": { "$gte": integer(near) }, "end": { "$gt": integer(from) } };
        let mut cursor = self.live().find(with(key(of), near)).sort(doc! { "offset": 1 }).await?;
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
            let (start, end) = (count_of(&chunk, "offset"), count_of(&chunk, "end"));
            let (Some(start), Some(end)) = (start, end) else { continue };
            match extent.last_mut() {
                Some(last) if start <= last.end => last.end = last.end.max(end),
                _ => extent.push(start..end),
            }
        }
        Ok(extent)
    }

    #[operation(task = %of.task)]
    pub async fn live_end(&self, of: LiveStream) -> Result<u64, StoreError> {
        let only = doc! { "_id": 0, "end": 1 };
        let newest = self.live().find_one(key(of)).sort(doc! { "offset": -1 }).projection(only).await?;
        Ok(newest.and_then(|chunk| count_of(&chunk, "end")).unwrap_or(0))
    }

    /// Removes of a stream that has been written up to `end` what is older than the newest [`KEPT_BYTES`].
    #[operation(task = %of.task)]
    pub async fn trim_live(&self, of: LiveStream, end: u64) -> Result<(), StoreError> {
        let Some(first) = end.checked_sub(KEPT_BYTES).filter(|first| *first > 0) else { return Ok(()) };
        let old = with(key(of), doc! { "offset": { "$lt": integer(first) } });
        self.live().delete_many(old).write_concern(soon()).await?;
        Ok(())
    }

    /// Removes of a stream what is older than its newest `most` chunks, where chunks may be short.
    #[operation(task = %of.task)]
    pub async fn trim_live_chunks(&self, of: LiveStream, most: u64) -> Result<(), StoreError> {
        let live = self.live();
        let newest_first = live.find_one(key(of)).sort(doc! { "offset": -1 }).skip(most);
        let Some(last) = newest_first.projection(doc! { "offset": 1 }).await? else { return Ok(()) };
        let old = with(key(of), doc! { "offset": { "$lte": last.get("offset").cloned() } });
        live.delete_many(old).write_concern(soon()).await?;
        Ok(())
    }

    #[operation(task = %task)]
    pub async fn remove_live(&self, task: TaskId, attempt: Option<i64>) -> Result<(), StoreError> {
        let mut filter = doc! { "task": task };
        put(&mut filter, "attempt", attempt);
        // Who has no right to remove it has had none to write it.
        StoreError::unless_forbidden(self.live().delete_many(filter).await)?;
        Ok(())
    }

    /// Stores the live output of an attempt for good, and returns what the task's `stdout` and `stderr` are to
    /// hold: null, text, or the id of a GridFS file, which is noted in the task while that runs. The live output stays: remove it once the
    /// task holds these.
    ///
    /// Each call makes files of its own. If the task turns out not to be ours to end, remove them with
    /// [`Store::discard_output`]. After an error no file is left if it could be removed.
    #[operation(task = %task)]
    pub async fn seal_live(&self, task: TaskId, attempt: i64) -> Result<(Bson, Bson), StoreError> {
        // One after the other, to hold one stream in memory.
        let stdout = self.seal(LiveStream { task, attempt, stream: StreamName::Stdout }).await?;
        match self.seal(LiveStream { task, attempt, stream: StreamName::Stderr }).await {
            Ok(stderr) => Ok((stdout, stderr)),
            Err(error) => {
                self.discard_output(&[stdout]).await?;
                Err(error)
            }
        }
    }

    #[operation]
    pub async fn discard_output(&self, values: &[Bson]) -> Result<(), StoreError> {
        for value in values {
            if let Bson::ObjectId(id) = value {
                self.delete_output(*id).await?;
            }
        }
        Ok(())
    }

    /// All of a stream. A line says how much is missing where something is.
    async fn assemble(&self, of: LiveStream) -> Result<Vec<u8>, StoreError> {
        let mut whole = Assembly::default();
        loop {
            let pieces = self.read_live(of, whole.position, READ_AT_ONCE).await?;
            if pieces.is_empty() {
                return Ok(whole.finish());
            }
            pieces.iter().for_each(|piece| whole.push(piece));
        }
    }

    async fn seal(&self, of: LiveStream) -> Result<Bson, StoreError> {
        let bytes = self.assemble(of).await?;
        if bytes.is_empty() {
            return Ok(Bson::Null);
        }
        let (bytes, encoding) = match String::from_utf8(bytes) {
            Ok(text) if text.len() <= IN_TASK => return Ok(Bson::String(text)),
            Ok(text) => (text.into_bytes(), Encoding::Text),
            Err(error) => (error.into_bytes(), Encoding::Binary),
        };
        let id = ObjectId::new();
        // Should this process die, whoever buries the task in its place removes the file.
        let running = doc! { "_id": of.task, "status": Status::Running };
        self.note_upload(of.task, running, id).await?;
        match self.put_output(id, (of.task, of.stream), encoding, &bytes[..]).await {
            Ok(()) => Ok(Bson::ObjectId(id)),
            Err(error) => {
                self.delete_output(id).await?;
                Err(error)
            }
        }
    }

    /// Removes live output of attempts that are over, or whose task is gone: looks at some of it, and notes in `sweep` how far it
    /// has come. Returns of how many attempts.
    #[operation]
    pub async fn sweep_live(&self, sweep: &mut LiveSweep) -> Result<u64, StoreError> {
        let next = sweep.after.map_or_else(Document::new, |task| doc! { "task": { "$gt": task } });
        let live = self.live();
        let found = live.find(next).projection(doc! { "_id": 0, "task": 1, "attempt": 1 });
        let found = found.sort(doc! { "task": 1, "attempt": 1, "stream": 1, "offset": 1 });
        // A user that Perl Disbatch made may not look there.
        let found = StoreError::unless_forbidden(collect(found.limit(integer(LOOKED_AT))).await)?;
        let Some(found) = found else { return Ok(0) };
        let attempts: BTreeSet<(ObjectId, i64)> = found.iter().filter_map(attempt_of).collect();
        let running = self.running_attempts(attempts.iter().map(|(task, _)| *task).collect()).await?;
        let limit = long_ago(self.now(), YOUNG);
        let mut removed = 0;
        for (task, attempt) in &attempts {
            if running.get(task) != Some(attempt) {
                let left = doc! { "task": task, "attempt": attempt, "at": { "$lt": limit } };
                removed += u64::from(self.live().delete_many(left).await?.deleted_count > 0);
            }
        }
        // From the start again when that was the last of them.
        let is_all = found.len() < LOOKED_AT;
        sweep.after = attempts.last().filter(|_| !is_all).map(|(task, _)| *task);
        Ok(removed)
    }
}

/// Nothing depends on live output, so nobody waits for the majority.
fn soon() -> WriteConcern {
    WriteConcern::nodes(1)
}

fn key(of: LiveStream) -> Document {
    doc! { "task": of.task, "attempt": of.attempt, "stream": of.stream.as_str() }
}

/// A chunk as far as it is new to who has everything before `position`. A chunk that grew while it was read
/// is in the way of nothing: the same bytes have the same offsets.
fn piece(mut chunk: Document, position: u64) -> Option<Piece> {
    let offset = count_of(&chunk, "offset")?;
    let Some(Bson::Binary(Binary { mut bytes, .. })) = chunk.remove("data") else { return None };
    let known = usize::try_from(position.saturating_sub(offset)).ok()?;
    if known >= bytes.len() {
        return None;
    }
    let bytes = bytes.split_off(known);
    Some(Piece { offset: offset.max(position), bytes })
}

/// The line that stands for bytes that are missing, on a line of its own after the byte `last`.
pub fn gap_line(missing: u64, last: Option<u8>) -> String {
    let start = if last.is_none_or(|byte| byte == b'\n') { "" } else { "\n" };
    format!("{start}[{missing} bytes not kept]\n")
}

#[derive(Debug, Default)]
struct Assembly {
    bytes: Vec<u8>,
    position: u64,
}

impl Assembly {
    /// A character that a gap tears apart counts as missing: else the whole would not be text.
    fn push(&mut self, piece: &Piece) {
        let mut bytes = &piece.bytes[..];
        if piece.offset > self.position {
            let torn = torn_end(&self.bytes);
            self.bytes.truncate(self.bytes.len() - torn);
            // The rest of a character.
            let rest = bytes.iter().take(3).take_while(|byte| **byte & 0b1100_0000 == 0b1000_0000).count();
            bytes = &bytes[rest..];
            let missing = piece.offset - self.position + (torn + rest) as u64;
            self.bytes.extend(gap_line(missing, self.bytes.last().copied()).into_bytes());
        }
        self.bytes.extend_from_slice(bytes);
        self.position = piece.end();
    }

    /// Text may end within a character, as its writer did not live to write the rest.
    fn finish(mut self) -> Vec<u8> {
        let torn = torn_end(&self.bytes);
        if torn > 0 && std::str::from_utf8(&self.bytes[..self.bytes.len() - torn]).is_ok() {
            self.bytes.truncate(self.bytes.len() - torn);
            self.bytes.extend(gap_line(torn as u64, self.bytes.last().copied()).into_bytes());
        }
        self.bytes
    }
}

/// How many bytes at the end are the start of a UTF-8 character that goes on behind it: 3 at most.
pub fn torn_end(bytes: &[u8]) -> usize {
    let tail = &bytes[bytes.len().saturating_sub(3)..];
    (0..tail.len())
        .find(|start| {
            std::str::from_utf8(&tail[*start..])
                .is_err_and(|e| e.valid_up_to() == 0 && e.error_len().is_none())
        })
        .map_or(0, |start| tail.len() - start)
}

fn attempt_of(chunk: &Document) -> Option<(ObjectId, i64)> {
    Some((chunk.get_object_id("task").ok()?, chunk.get("attempt").and_then(whole_number)?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

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

    fn assemble(pieces: &[(u64, &[u8])]) -> Vec<u8> {
        let mut assembly = Assembly::default();
        for (offset, bytes) in pieces {
            assembly.push(&Piece { offset: *offset, bytes: bytes.to_vec() });
        }
        assembly.finish()
    }

    #[test]
    fn gaps_are_lines_of_their_own() {
        assert_eq!(assemble(&[(0, b"ab"), (2, b"cd\n")]), b"abcd\n");
        assert_eq!(assemble(&[(100, b"late\n")]), b"[100 bytes not kept]\nlate\n");
        assert_eq!(assemble(&[(0, b"ab"), (5, b"fg")]), b"ab\n[3 bytes not kept]\nfg");
        assert_eq!(assemble(&[(0, b"a\n"), (5, b"fg")]), b"a\n[3 bytes not kept]\nfg");
        assert!(assemble(&[]).is_empty());
    }

    #[test]
    fn torn_characters_do_not_make_text_binary() {
        let snow = "☃".as_bytes();
        assert_eq!(assemble(&[(0, b"a"), (1, &snow[..2])]), b"a\n[2 bytes not kept]\n");
        assert_eq!(assemble(&[(7, &snow[1..]), (9, b"b")]), b"[9 bytes not kept]\nb");
        assert_eq!(assemble(&[(0, &snow[..1]), (9, &snow[2..]), (10, b"b")]), b"[10 bytes not kept]\nb");
        assert_eq!(assemble(&[(0, b"\xff"), (1, &snow[..2])]), b"\xff\xe2\x98", "this is no text anyway");
    }

    proptest! {
        #[test]
        fn without_gaps_nothing_changes(text in ".{0,60}", cuts in prop::collection::vec(1usize..9, 0..30)) {
            let (mut rest, mut offset, mut pieces) = (text.as_bytes(), 0, Vec::new());
            for cut in cuts.into_iter().chain([usize::MAX]) {
                let (piece, more) = rest.split_at(cut.min(rest.len()));
                if !piece.is_empty() {
                    pieces.push((offset, piece));
                }
                offset += piece.len() as u64;
                rest = more;
            }
            prop_assert_eq!(assemble(&pieces), text.as_bytes());
        }

        #[test]
        fn text_with_gaps_is_text(text in "[a-zé☃𝄞]{12,40}", from in 0usize..10, length in 1usize..10) {
            let bytes = text.as_bytes();
            let sealed = assemble(&[(0, &bytes[..from]), ((from + length) as u64, &bytes[from + length..])]);
            let sealed = String::from_utf8(sealed).unwrap();
            prop_assert!(sealed.contains("bytes not kept]\n"), "{}", sealed);
        }
    }
}
