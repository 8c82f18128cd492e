//! What web services log, until their tasks have ended: `callbacks.log`.
//!
//! What one call adds is a piece. Where it belongs is told by the numbers that the task gave it: which call it is, and where
//! its bytes begin in the whole. A sheet is a document with the pieces of calls that follow each other, so that many short ones
//! make few documents. A piece may be missing, where a server died before it had stored it; nobody was told then that it was.

use std::collections::{BTreeSet, HashMap};
use std::io::{self, Cursor};
use std::time::Duration;

use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, Document, doc};
use disbatch_operation::operation;
use futures::{StreamExt, TryStreamExt};
use tokio_util::io::StreamReader;

use crate::model::{Status, TaskId, whole_number};
use crate::output::{Encoding, StreamName};
use crate::store::{Store, StoreError, collect, integer, with};
use crate::task::{Run, long_ago};

/// The log of an attempt has so many bytes at most.
pub const MOST_LOG: u64 = 256 * 1024 * 1024;

pub const MOST_CALLS: i64 = 1_000_000;

/// A sheet has the pieces of so many calls at most.
const CALLS_IN_SHEET: i64 = 256;

/// The pieces of a sheet begin within so many bytes. The last one may be longer.
const BYTES_IN_SHEET: u64 = 256 * 1024;

/// Text up to so many bytes is kept in the task.
const IN_TASK: usize = 1024 * 1024;

/// So many sheets are read at once, each of which may have a little more than a MiB.
const READ_AT_ONCE: u32 = 4;

/// Sheets that are older may belong to a task that has ended without them.
const FORGOTTEN_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// So many old sheets are looked at in a round, by the index alone.
const LOOKED_AT: usize = 2_000;

#[derive(Debug)]
pub(super) struct Piece {
    pub task: TaskId,
    pub attempt: i64,
    /// Which call it came with, counted from 1.
    pub call: i64,
    /// Which sheet it is on, counted from 0. A later piece is on the same or a later one.
    sheet: i64,
    /// Where it begins in the whole.
    pub offset: u64,
    pub bytes: Vec<u8>,
}

impl Piece {
    /// The one that `task` has got its numbers for.
    pub(super) fn of(id: TaskId, task: &Document, bytes: Vec<u8>) -> Self {
        let external = task.get_document(crate::task::EXTERNAL).ok();
        let number = |field: &str| external.and_then(|of| of.get(field)).and_then(whole_number).unwrap_or(0);
        let end = u64::try_from(number("bytes")).unwrap_or(0);
        let offset = end.saturating_sub(bytes.len() as u64);
        // Both grow. So pieces with the same sum have the same of each, and a later one has no smaller sum.
        let by_calls = (number("log") - 1).max(0) / CALLS_IN_SHEET;
        let by_bytes = integer(offset / BYTES_IN_SHEET);
        Self {
            task: id,
            attempt: task.get("attempt").and_then(whole_number).unwrap_or(0),
            call: number("log"),
            sheet: by_calls.saturating_add(by_bytes),
            offset,
            bytes,
        }
    }

    /// What its sheet is found by.
    fn key(&self) -> Document {
        doc! { "task": self.task, "attempt": self.attempt, "n": self.sheet }
    }

    fn position(&self) -> i64 {
        integer(self.offset)
    }
}

impl Store {
    /// Stores a piece, acknowledged by a majority.
    pub(super) async fn add_piece(&self, piece: &Piece) -> Result<(), StoreError> {
        let bytes = Binary { subtype: BinarySubtype::Generic, bytes: piece.bytes.clone() };
        let update = doc! {
            "$push": { "pieces": { "offset": piece.position(), "bytes": bytes } },
            "$setOnInsert": { "at": self.now() },
        };
        let add = || async { self.sheets().update_one(piece.key(), update.clone()).upsert(true).await };
        // Two may be the first of a sheet at once: by now it is there.
        if StoreError::unless_duplicate(add().await)?.is_none() {
            add().await?;
        }
        Ok(())
    }

    pub(super) async fn withdraw_piece(&self, piece: &Piece) -> Result<(), StoreError> {
        let remove = doc! { "$pull": { "pieces": { "offset": piece.position() } } };
        self.sheets().update_one(piece.key(), remove).await?;
        // It may have come after all sheets were removed.
        self.sheets().delete_one(with(piece.key(), doc! { "pieces": { "$size": 0 } })).await?;
        Ok(())
    }

    /// Stores the log of a run for good, and returns what the task's `stdout` is to hold: null, text, or the id of a GridFS
    /// file, which is noted in the task if that is like `still`. `as_file`: the task has no room for text, however short it is. The
    /// sheets stay: remove them once the task holds this.
    ///
    /// # Errors
    /// The database cannot be reached, or refuses the file. No file is left then if it could be removed.
    pub(crate) async fn seal_log(
        &self,
        run: &Run,
        still: &Document,
        as_file: bool,
    ) -> Result<Bson, StoreError> {
        match self.survey(run).await? {
            Survey { length: 0, .. } => Ok(Bson::Null),
            Survey { start: Some(text), .. } if !as_file => Ok(Bson::String(text)),
            Survey { is_text, .. } => self.store_log(run, still, is_text).await,
        }
    }

    async fn store_log(&self, run: &Run, still: &Document, is_text: bool) -> Result<Bson, StoreError> {
        let encoding = if is_text { Encoding::Text } else { Encoding::Binary };
        let id = ObjectId::new();
        self.note_upload(run.task, still.clone(), id).await?;
        let mut stored = self.put_log(run, id, encoding).await;
        let is_no_text = |error: &StoreError| matches!(error, StoreError::Spool(error) if error.kind() == io::ErrorKind::InvalidData);
        if stored.as_ref().is_err_and(is_no_text) && encoding == Encoding::Text {
            // A piece that came late is no text.
            self.delete_output(id).await?;
            stored = self.put_log(run, id, Encoding::Binary).await;
        }
        if let Err(error) = stored {
            self.delete_output(id).await?;
            return Err(error);
        }
        Ok(Bson::ObjectId(id))
    }

    async fn put_log(&self, run: &Run, id: ObjectId, encoding: Encoding) -> Result<(), StoreError> {
        let sheets = self.sheets().find(of_run(run)).sort(doc! { "n": 1 }).batch_size(READ_AT_ONCE).await?;
        let bytes = sheets.map(|sheet| sheet.map(bytes_of).map(Cursor::new).map_err(io::Error::other));
        let source = StreamReader::new(bytes.boxed());
        let put = self.put_output(id, (run.task, StreamName::Stdout), encoding, source).await;
        put.map_err(of_database)
    }

    /// Reads the whole log once, to know what it is.
    async fn survey(&self, run: &Run) -> Result<Survey, StoreError> {
        let sheets = self.sheets();
        let mut found = sheets.find(of_run(run)).sort(doc! { "n": 1 }).batch_size(READ_AT_ONCE).await?;
        let mut surveyor = Surveyor::default();
        while let Some(sheet) = found.try_next().await? {
            surveyor.push(&bytes_of(sheet));
        }
        Ok(surveyor.finish())
    }

    pub(crate) async fn remove_log(&self, task: TaskId, attempt: i64) -> Result<(), StoreError> {
        self.sheets().delete_many(doc! { "task": task, "attempt": attempt }).await?;
        Ok(())
    }
}

/// The sheets could not be read on, which came as an error of a source of bytes.
fn of_database(error: StoreError) -> StoreError {
    let StoreError::Spool(error) = error else { return error };
    match error.downcast::<mongodb::error::Error>() {
        Ok(error) => error.into(),
        Err(error) => StoreError::Spool(error),
    }
}

fn of_run(run: &Run) -> Document {
    doc! { "task": run.task, "attempt": run.attempt }
}

/// What is on a sheet, in its order. Pieces come to it in that of their ways here.
fn bytes_of(mut sheet: Document) -> Vec<u8> {
    let Some(Bson::Array(pieces)) = sheet.remove("pieces") else { return Vec::new() };
    let piece = |piece: Bson| {
        let Bson::Document(mut piece) = piece else { return None };
        let offset = piece.get("offset").and_then(whole_number)?;
        match piece.remove("bytes") {
            Some(Bson::Binary(binary)) => Some((offset, binary.bytes)),
            _ => None, // Nobody writes anything else.
        }
    };
    let mut pieces: Vec<(i64, Vec<u8>)> = pieces.into_iter().filter_map(piece).collect();
    pieces.sort_by_key(|(offset, _)| *offset);
    pieces.into_iter().flat_map(|(_, bytes)| bytes).collect()
}

#[derive(Debug, PartialEq, Eq)]
struct Survey {
    length: u64,
    is_text: bool,
    /// All of it, if it is short and text.
    start: Option<String>,
}

/// Looks at a log piece by piece. A character may begin in one and end in the next.
#[derive(Debug, Default)]
struct Surveyor {
    length: u64,
    /// The first bytes, up to a few more than are kept in a task.
    start: Vec<u8>,
    /// The beginning of a character.
    torn: Vec<u8>,
    is_binary: bool,
}

impl Surveyor {
    fn push(&mut self, bytes: &[u8]) {
        self.length += bytes.len() as u64;
        if self.start.len() <= IN_TASK {
            self.start.extend_from_slice(bytes);
        }
        if self.is_binary {
            return;
        }
        self.torn.extend_from_slice(bytes);
        match std::str::from_utf8(&self.torn) {
            Ok(_) => self.torn.clear(),
            Err(error) if error.error_len().is_none() => {
                self.torn.drain(..error.valid_up_to());
            }
            Err(_) => self.is_binary = true,
        }
    }

    fn finish(self) -> Survey {
        let is_text = !self.is_binary && self.torn.is_empty();
        let is_short = self.length <= IN_TASK as u64;
        let start = if is_text && is_short { String::from_utf8(self.start).ok() } else { None };
        Survey { length: self.length, is_text, start }
    }
}

/// How far a sweeper has come that looks for sheets whose task has ended or gone without them, because whoever ended it, or stored
/// them late, was killed. The next round goes on from there, so that the sheets of tasks that run for long keep nobody
/// from those behind them.
#[derive(Debug, Default)]
pub struct LogSweep {
    after: Option<Sheet>,
}

/// Which attempt a sheet is of, and since when it is there, in the order of the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Sheet {
    at: DateTime,
    task: ObjectId,
    attempt: i64,
}

impl Sheet {
    fn of(found: &Document) -> Option<Self> {
        Some(Self {
            at: *found.get_datetime("at").ok()?,
            task: found.get_object_id("task").ok()?,
            attempt: found.get("attempt").and_then(whole_number)?,
        })
    }
}

impl LogSweep {
    /// Matches what comes next of the sheets from before `limit`.
    fn next(&self, limit: DateTime) -> Document {
        let Some(Sheet { at, task, attempt }) = self.after else { return doc! { "at": { "$lt": limit } } };
        doc! {
            "at": { "$gte": at, "$lt": limit },
            "$or": [
                { "at": { "$gt": at } },
                { "task": { "$gt": task } },
                { "task": task, "attempt": { "$gt": attempt } },
            ],
        }
    }
}

impl Store {
    /// Removes logs that are left behind: looks at some that are old, and notes in `sweep` how far it has come. Returns of how
    /// many attempts.
    #[operation]
    pub async fn sweep_callback_logs(&self, sweep: &mut LogSweep) -> Result<u64, StoreError> {
        let limit = long_ago(self.now(), FORGOTTEN_AFTER);
        let only = doc! { "_id": 0, "at": 1, "task": 1, "attempt": 1 };
        let sheets = self.sheets();
        let found = sheets.find(sweep.next(limit)).projection(only).limit(integer(LOOKED_AT));
        let found = collect(found.sort(doc! { "at": 1, "task": 1, "attempt": 1 })).await?;
        let sheets: Vec<Sheet> = found.iter().filter_map(Sheet::of).collect();
        let running = self.running_attempts(sheets.iter().map(|sheet| sheet.task).collect()).await?;
        let attempts: BTreeSet<(ObjectId, i64)> =
            sheets.iter().map(|sheet| (sheet.task, sheet.attempt)).collect();
        let mut removed = 0;
        for (task, attempt) in attempts {
            if running.get(&task) != Some(&attempt) {
                self.remove_log(TaskId(task), attempt).await?;
                removed += 1;
            }
        }
        // From the start again when that was the last of them.
        sweep.after = if found.len() < LOOKED_AT { None } else { sheets.last().copied() };
        Ok(removed)
    }

    /// Those of the tasks that run, with the attempt at which they are: 0 if nobody counts.
    pub(crate) async fn running_attempts(
        &self,
        tasks: BTreeSet<ObjectId>,
    ) -> Result<HashMap<ObjectId, i64>, StoreError> {
        if tasks.is_empty() {
            return Ok(HashMap::new());
        }
        let ids: Vec<Bson> = tasks.into_iter().map(Bson::from).collect();
        let running = doc! { "_id": { "$in": ids }, "status": Status::Running };
        let found = collect(self.tasks().find(running).projection(doc! { "attempt": 1 })).await?;
        let attempt = |task: &Document| task.get("attempt").and_then(whole_number).unwrap_or(0);
        let of = |task: &Document| Some((task.get_object_id("_id").ok()?, attempt(task)));
        Ok(found.iter().filter_map(of).collect())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn survey(pieces: &[&[u8]]) -> Survey {
        let mut surveyor = Surveyor::default();
        pieces.iter().for_each(|piece| surveyor.push(piece));
        surveyor.finish()
    }

    #[test]
    fn a_piece_is_where_its_numbers_say() {
        let id = TaskId(ObjectId::new());
        let of = |calls: i64, bytes: i64, length: usize| {
            let task = doc! { "attempt": 2, "external": { "log": calls, "bytes": bytes } };
            Piece::of(id, &task, vec![0; length])
        };
        let piece = of(7, 100, 30);
        assert_eq!((piece.attempt, piece.sheet, piece.offset), (2, 0, 70));
        assert_eq!(piece.key(), doc! { "task": id, "attempt": 2_i64, "n": 0_i64 });
        assert_eq!([of(256, 256, 1).sheet, of(257, 257, 1).sheet], [0, 1], "many calls");
        let full = i64::try_from(BYTES_IN_SHEET).unwrap();
        assert_eq!([of(2, full, 1).sheet, of(3, full + 1, 1).sheet], [0, 1], "many bytes");
        assert_eq!(of(257, full + 1, 1).sheet, 2);
    }

    #[test]
    fn a_server_that_goes_away_makes_no_text_binary() {
        let gone = mongodb::error::Error::custom("gone");
        let error = of_database(StoreError::Spool(io::Error::other(gone)));
        assert!(!matches!(error, StoreError::Spool(_)), "{error}");
        let no_text = io::Error::new(io::ErrorKind::InvalidData, "no text");
        assert!(matches!(of_database(StoreError::Spool(no_text)), StoreError::Spool(_)));
    }

    #[test]
    fn what_is_on_a_sheet_is_read_in_its_order() {
        let piece = |offset: i64, text: &str| {
            let bytes = Binary { subtype: BinarySubtype::Generic, bytes: text.as_bytes().to_vec() };
            doc! { "offset": offset, "bytes": bytes }
        };
        let pieces = [piece(4, "two\n"), piece(0, "one\n"), piece(12, "four\n")];
        assert_eq!(bytes_of(doc! { "pieces": pieces.to_vec() }), b"one\ntwo\nfour\n");
        assert_eq!(bytes_of(doc! { "pieces": [] }), b"");
        assert_eq!(bytes_of(doc! { "at": 1 }), b"");
    }

    #[test]
    fn short_text_is_for_the_task_and_all_else_for_a_file() {
        let short = survey(&[b"a\xe2\x98", b"\x83b"]);
        assert_eq!(short, Survey { length: 5, is_text: true, start: Some("a\u{2603}b".to_owned()) });
        assert_eq!(survey(&[]), Survey { length: 0, is_text: true, start: Some(String::new()) });
        let torn = survey(&[b"a\xe2\x98"]);
        assert_eq!(torn, Survey { length: 3, is_text: false, start: None });
        assert!(!survey(&[b"\xff", b"text"]).is_text);
        let full = vec![b'x'; IN_TASK];
        assert!(survey(&[&full]).start.is_some());
        let long = survey(&[&full, b"x"]);
        assert_eq!(long, Survey { length: IN_TASK as u64 + 1, is_text: true, start: None });
    }

    proptest! {
        #[test]
        fn sheets_are_in_the_order_of_the_calls_and_small(lengths in prop::collection::vec(1usize..2_000, 1..700)) {
            let mut bytes = 0;
            let mut sheets: Vec<(i64, Vec<usize>)> = Vec::new();
            for (number, length) in (1_i64..).zip(lengths) {
                bytes += i64::try_from(length).unwrap();
                let task = doc! { "external": { "log": number, "bytes": bytes } };
                let sheet = Piece::of(TaskId(ObjectId::new()), &task, vec![0; length]).sheet;
                let last = sheets.last().map(|(last, _)| *last);
                prop_assert!(last.is_none_or(|last| last <= sheet), "it goes back");
                if last != Some(sheet) {
                    sheets.push((sheet, Vec::new()));
                }
                sheets.last_mut().unwrap().1.push(length);
            }
            for (_, pieces) in sheets {
                prop_assert!(pieces.len() <= 256);
                let before_the_last: usize = pieces[..pieces.len() - 1].iter().sum();
                prop_assert!(before_the_last < 256 * 1024);
            }
        }

        #[test]
        fn where_text_is_cut_does_not_matter(text in "[a-zé☃𝄞]{0,40}", cuts in prop::collection::vec(1usize..9, 0..40)) {
            let (mut rest, mut pieces) = (text.as_bytes(), Vec::new());
            for cut in cuts.into_iter().chain([usize::MAX]) {
                let (piece, more) = rest.split_at(cut.min(rest.len()));
                pieces.push(piece);
                rest = more;
            }
            prop_assert_eq!(survey(&pieces).start, Some(text.clone()));
        }
    }

    #[test]
    fn a_sweep_goes_on_behind_what_it_has_seen() {
        let at = DateTime::from_millis;
        let mut sweep = LogSweep::default();
        assert_eq!(sweep.next(at(90)), doc! { "at": { "$lt": at(90) } });
        let task = ObjectId::new();
        sweep.after = Sheet::of(&doc! { "at": at(7), "task": task, "attempt": 2 });
        let next = sweep.next(at(90));
        assert_eq!(next.get_document("at").unwrap(), &doc! { "$gte": at(7), "$lt": at(90) });
        assert_eq!(next.get_array("$or").unwrap().len(), 3);
    }
}
