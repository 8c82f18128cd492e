//! Cuts a stream into GridFS chunks, by characters for text, by bytes otherwise, and makes documents of them.

use std::io;

use bson::oid::ObjectId;
use bson::raw::{CStr, RawBinaryRef, cstr};
use bson::spec::BinarySubtype;
use bson::{Bson, RawDocumentBuf};
use md5::{Digest, Md5};
use tokio::io::{AsyncRead, AsyncReadExt};

use super::{CHUNK_SIZE, Encoding};

/// Less than this is packed on the spot; more of it, where nothing has to wait meanwhile.
const ON_THE_SPOT: usize = 256 * 1024;

const DATA: &CStr = cstr!("data");

/// Makes the chunks of one file, from its start to its end.
pub(super) struct Packer {
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
    /// Begins the file `id`.
    pub(super) fn new(id: ObjectId, encoding: Encoding) -> Self {
        let (buffer, digest) = (Vec::new(), Md5::new());
        Self { id, encoding, buffer, ended: false, digest, length: 0, number: 0 }
    }

    /// Reads `wanted` bytes of `source`, or all that are left.
    pub(super) async fn fill(
        &mut self,
        source: &mut (impl AsyncRead + Unpin),
        wanted: usize,
    ) -> io::Result<()> {
        let read = source.take(wanted as u64).read_to_end(&mut self.buffer).await?;
        self.ended = read < wanted;
        Ok(())
    }

    /// Whether the source has been read to its end.
    pub(super) fn has_ended(&self) -> bool {
        self.ended
    }

    /// As [`Packer::pack`], without holding up what else there is to do.
    pub(super) async fn pack_aside(mut self) -> io::Result<(Self, Vec<RawDocumentBuf>)> {
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
    pub(super) fn pack(&mut self) -> io::Result<Vec<RawDocumentBuf>> {
        let buffer = std::mem::take(&mut self.buffer);
        let mut chunks = Vec::new();
        let packed = match self.encoding {
            Encoding::Text => {
                let whole = text_of(&buffer, self.ended)?;
                let mut text = whole;
                while let Some(length) = length_of_characters(text, CHUNK_SIZE) {
                    let (chunk, rest) = text.split_at(length);
                    chunks.push(self.chunk(chunk.as_bytes(), |document| document.append(DATA, chunk)));
                    text = rest;
                }
                if self.ended && !text.is_empty() {
                    chunks.push(self.chunk(text.as_bytes(), |document| document.append(DATA, text)));
                    text = "";
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

    /// The length of what was packed, and its digest, as the document of the file has them.
    pub(super) fn sums(self) -> (Bson, String) {
        let length = match i32::try_from(self.length) {
            Ok(small) => Bson::Int32(small),
            Err(_) => Bson::Int64(i64::try_from(self.length).unwrap_or(i64::MAX)),
        };
        (length, hex(&self.digest.finalize()))
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

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut text, byte| {
        // Writing to a String cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests {
    use std::sync::LazyLock;

    use bson::Document;
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
            while !packer.has_ended() {
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
