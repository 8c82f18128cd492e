//! Output that is too large for the task's document: GridFS in `tasks.files` and `tasks.chunks`.
//!
//! Disbatch stores text: the `data` of its chunks is a BSON string of 261,120 characters, where GridFS has
//! binary data (Disbatch 4 design, GridFS for Task stdout and stderr). Output that is not UTF-8 is kept as
//! binary chunks, and the file's metadata says so. Both are read.
//!
//! Batches of chunks are written two at a time: while the server makes one durable, the next is on its way. Each is acknowledged by a majority,
//! like the file's document that follows them all. With less, an election in the middle could take back a batch, and the next primary would
//! accept the file nevertheless.

mod marks;
mod range;

use std::io;

use bson::oid::ObjectId;
use bson::raw::{CStr, RawBinaryRef, cstr};
use bson::spec::BinarySubtype;
use bson::{Bson, Document, RawDocumentBuf, doc};
use disbatch_operation::operation;
use md5::{Digest, Md5};
use mongodb::Collection;
use serde::{Deserialize, Serialize};
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio::task::JoinSet;

use crate::model::TaskId;
use crate::store::{Store, StoreError, count_of, integer, put};
use crate::text::hex;

pub use marks::{Marks, Times, timed};
pub use range::{OutputEnd, OutputFile};

/// Characters (text) or bytes (binary) in a chunk.
pub const CHUNK_SIZE: usize = 261_120;

/// Chunks are sent in batches of about this many bytes.
const BATCH_BYTES: usize = 2 * 1024 * 1024;

/// Less than this is packed on the spot; more of it, where nothing has to wait meanwhile.
const ON_THE_SPOT: usize = 256 * 1024;

const DATA: &CStr = cstr!("data");

/// So many batches are under way at once.
const BATCHES_AT_ONCE: usize = 2;

disbatch_values::words! {
    /// Which of a task's two streams: the GridFS file name and the task's field.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    pub enum StreamName {
        Stdout = "stdout",
        Stderr = "stderr",
    }
}

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
        let mut writes = Writes { chunks: self.chunks().clone_with_type(), under_way: JoinSet::new() };
        let packed = pack(id, encoding, source, &mut writes).await;
        // What is under way must not arrive after an error was told, or after the file is there.
        let written = writes.end().await;
        let (length, md5) = packed?.sums();
        written?;
        let mut metadata = doc! { "task_id": task };
        put(&mut metadata, "encoding", (encoding == Encoding::Binary).then_some("binary"));
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
        // A file is found as long as its document is there, so that goes last.
        self.chunks().delete_many(doc! { "files_id": id }).await?;
        self.files().delete_one(doc! { "_id": id }).await?;
        Ok(())
    }
}

async fn pack<R: AsyncRead + Unpin>(
    id: ObjectId,
    encoding: Encoding,
    mut source: R,
    writes: &mut Writes,
) -> Result<Packer, StoreError> {
    let mut packer = Packer::new(id, encoding);
    while !packer.ended {
        packer.fill(&mut source, BATCH_BYTES).await.map_err(StoreError::Spool)?;
        let chunks;
        (packer, chunks) = packer.pack_aside().await.map_err(StoreError::Spool)?;
        writes.add(chunks).await?;
    }
    Ok(packer)
}

fn chunk_bytes(id: ObjectId, expected: usize, mut chunk: Document) -> Result<Vec<u8>, StoreError> {
    if count_of(&chunk, "n") != Some(expected as u64) {
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

/// Cuts one file into chunks, from its start to its end, by characters for text, by bytes otherwise, and makes documents of them.
struct Packer {
    id: ObjectId,
    encoding: Encoding,
    /// What has been read and is in no chunk yet.
    buffer: Vec<u8>,
    ended: bool,
    digest: Md5,
    length: u64,
    number: i32,
}

impl Packer {
    fn new(id: ObjectId, encoding: Encoding) -> Self {
        let (buffer, digest) = (Vec::new(), Md5::new());
        Self { id, encoding, buffer, ended: false, digest, length: 0, number: 0 }
    }

    async fn fill(&mut self, source: &mut (impl AsyncRead + Unpin), wanted: usize) -> io::Result<()> {
        let read = source.take(wanted as u64).read_to_end(&mut self.buffer).await?;
        self.ended = read < wanted;
        Ok(())
    }

    /// As [`Packer::pack`], without holding up what else there is to do.
    async fn pack_aside(mut self) -> io::Result<(Self, Vec<RawDocumentBuf>)> {
        if self.buffer.len() < ON_THE_SPOT {
            let chunks = self.pack()?;
            return Ok((self, chunks));
        }
        let pack = move || self.pack().map(|chunks| (self, chunks));
        tokio::task::spawn_blocking(pack).await.map_err(io::Error::other)?
    }

    /// The chunks of what has been read: full ones, and at the end the rest. Text is cut between characters.
    ///
    /// # Errors
    /// It is not UTF-8 although it should be: of kind `InvalidData`.
    fn pack(&mut self) -> io::Result<Vec<RawDocumentBuf>> {
        let buffer = std::mem::take(&mut self.buffer);
        let mut chunks = Vec::new();
        let packed = match self.encoding {
            Encoding::Text => {
                let whole = text_of(&buffer, self.ended)?;
                let mut text = whole;
                while let Some(length) = length_of_characters(text, CHUNK_SIZE)
                    .or_else(|| (self.ended && !text.is_empty()).then_some(text.len()))
                {
                    let (chunk, rest) = text.split_at(length);
                    chunks.push(self.chunk(chunk.as_bytes(), |document| document.append(DATA, chunk)));
                    text = rest;
                }
                whole.len() - text.len()
            }
            Encoding::Binary => {
                let full = buffer.len() - buffer.len() % CHUNK_SIZE;
                let packed = if self.ended { buffer.len() } else { full };
                for bytes in buffer[..packed].chunks(CHUNK_SIZE) {
                    let data = RawBinaryRef { subtype: BinarySubtype::Generic, bytes };
                    chunks.push(self.chunk(bytes, |document| document.append(DATA, data)));
                }
                packed
            }
        };
        self.buffer = buffer;
        self.buffer.drain(..packed);
        Ok(chunks)
    }

    fn sums(self) -> (Bson, String) {
        let length = match i32::try_from(self.length) {
            Ok(small) => Bson::Int32(small),
            Err(_) => Bson::Int64(integer(self.length)),
        };
        (length, hex(self.digest.finalize()))
    }

    fn chunk(&mut self, bytes: &[u8], append_data: impl FnOnce(&mut RawDocumentBuf)) -> RawDocumentBuf {
        self.digest.update(bytes);
        self.length += bytes.len() as u64;
        let mut document = RawDocumentBuf::new();
        document.append(cstr!("_id"), ObjectId::new());
        document.append(cstr!("files_id"), self.id);
        document.append(cstr!("n"), self.number);
        append_data(&mut document);
        self.number += 1;
        document
    }
}

/// The buffer as text, up to a character that is not complete yet.
fn text_of(buffer: &[u8], ended: bool) -> io::Result<&str> {
    let invalid = |error| io::Error::new(io::ErrorKind::InvalidData, error);
    match std::str::from_utf8(buffer) {
        Err(error) if error.error_len().is_none() && !ended => {
            std::str::from_utf8(&buffer[..error.valid_up_to()]).map_err(invalid)
        }
        text => text.map_err(invalid),
    }
}

/// How many bytes the first `count` characters take, if there are so many.
fn length_of_characters(text: &str, count: usize) -> Option<usize> {
    // Mostly, each character is a byte.
    if text.as_bytes().get(..count)?.is_ascii() {
        return Some(count);
    }
    let mut characters = text.chars();
    characters.nth(count.checked_sub(1)?)?;
    Some(text.len() - characters.as_str().len())
}

struct Writes {
    chunks: Collection<RawDocumentBuf>,
    under_way: JoinSet<Result<(), StoreError>>,
}

impl Writes {
    /// Begins to write a batch, as soon as there is room for one more. Fails if an earlier one could not be written.
    async fn add(&mut self, batch: Vec<RawDocumentBuf>) -> Result<(), StoreError> {
        if batch.is_empty() {
            return Ok(());
        }
        if self.under_way.len() >= BATCHES_AT_ONCE {
            self.next().await?;
        }
        let chunks = self.chunks.clone();
        self.under_way.spawn(async move {
            chunks.insert_many(batch).await?;
            Ok(())
        });
        Ok(())
    }

    /// Waits until nothing is under way any more. Returns the first error of a batch that could not be written.
    async fn end(mut self) -> Result<(), StoreError> {
        let mut ended = Ok(());
        while !self.under_way.is_empty() {
            ended = ended.and(self.next().await);
        }
        ended
    }

    async fn next(&mut self) -> Result<(), StoreError> {
        match self.under_way.join_next().await {
            None => Ok(()),
            Some(Ok(written)) => written,
            Some(Err(broken)) => Err(StoreError::Spool(std::io::Error::other(broken))),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use proptest::prelude::*;
    use tokio::runtime::{Builder, Runtime};

    use super::*;

    static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| Builder::new_current_thread().build().unwrap());

    /// The data of chunks, and the sums.
    type Packed = (Vec<Vec<u8>>, (Bson, String));

    /// The data of the chunks, checked for what else is in them, and the sums; `step` bytes are read at once.
    fn packed(bytes: &[u8], encoding: Encoding, step: usize) -> io::Result<Packed> {
        RUNTIME.block_on(async {
            let id = ObjectId::new();
            let (mut packer, mut source, mut chunks) = (Packer::new(id, encoding), bytes, Vec::new());
            while !packer.ended {
                packer.fill(&mut source, step).await?;
                let more;
                (packer, more) = packer.pack_aside().await?;
                chunks.extend(more);
            }
            let data = (0..).zip(chunks).map(|(number, chunk)| data_of(&chunk, id, number, encoding));
            Ok((data.collect(), packer.sums()))
        })
    }

    fn data_of(chunk: &RawDocumentBuf, id: ObjectId, number: i32, encoding: Encoding) -> Vec<u8> {
        let chunk = Document::try_from(chunk.as_ref()).unwrap();
        assert_eq!(chunk.keys().collect::<Vec<_>>(), ["_id", "files_id", "n", "data"]);
        assert_eq!(chunk.get_object_id("files_id").unwrap(), id);
        assert_eq!(chunk.get_i32("n").unwrap(), number);
        match encoding {
            Encoding::Text => chunk.get_str("data").unwrap().into(),
            Encoding::Binary => chunk.get_binary_generic("data").unwrap().clone(),
        }
    }

    fn chunks(bytes: &[u8], encoding: Encoding) -> io::Result<Vec<Vec<u8>>> {
        Ok(packed(bytes, encoding, 4 * CHUNK_SIZE)?.0)
    }

    #[test]
    fn text_is_cut_by_characters_and_binary_by_bytes() {
        // 6 Mi characters of 3 bytes each give 25 chunks of 783,360 bytes, the last one shorter.
        let wide = "☃".repeat(6 * 1024 * 1024);
        let cut = chunks(wide.as_bytes(), Encoding::Text).unwrap();
        assert_eq!(cut.len(), 25);
        assert!(cut[..24].iter().all(|chunk| chunk.len() == 783_360));
        let cut = chunks(wide.as_bytes(), Encoding::Binary).unwrap();
        assert_eq!(cut.len(), 73);
        assert!(cut[..72].iter().all(|chunk| chunk.len() == CHUNK_SIZE));
    }

    #[test]
    fn exact_chunks_leave_no_empty_one() {
        for encoding in [Encoding::Text, Encoding::Binary] {
            assert_eq!(chunks(&vec![b'x'; 2 * CHUNK_SIZE], encoding).unwrap().len(), 2);
            assert!(chunks(b"", encoding).unwrap().is_empty());
        }
    }

    #[test]
    fn text_that_is_none_is_refused() {
        for bytes in [&b"a\xff\xfeb"[..], b"ends within \xe2\x98"] {
            let error = chunks(bytes, Encoding::Text).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
            assert_eq!(chunks(bytes, Encoding::Binary).unwrap().concat(), bytes);
        }
    }

    #[test]
    fn the_sums_are_those_of_the_whole() {
        let (_, sums) = packed(b"abc", Encoding::Text, 2).unwrap();
        assert_eq!(sums, (Bson::Int32(3), "900150983cd24fb0d6963f7d28e17f72".to_owned()));
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn nothing_is_lost_or_torn(
            text in "[a-zé☃𝄞]{0,300}", repeat in 1usize..4000, step in 100_000usize..3_000_000,
        ) {
            let text = text.repeat(repeat);
            let (cut, sums) = packed(text.as_bytes(), Encoding::Text, step).unwrap();
            prop_assert_eq!(cut.concat(), text.as_bytes());
            prop_assert_eq!(sums, packed(text.as_bytes(), Encoding::Binary, 7 * step).unwrap().1);
            for (index, chunk) in cut.iter().enumerate() {
                let characters = std::str::from_utf8(chunk).unwrap().chars().count();
                prop_assert!(characters == CHUNK_SIZE || (index + 1 == cut.len() && characters < CHUNK_SIZE));
            }
        }
    }
}
