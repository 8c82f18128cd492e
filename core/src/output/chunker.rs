//! Cuts a stream into GridFS chunks: by characters for text, by bytes otherwise.

use std::io;

use tokio::io::{AsyncRead, AsyncReadExt};

use super::{CHUNK_SIZE, Encoding};

/// Reads a source chunk by chunk.
pub(super) struct Chunker<R> {
    source: R,
    encoding: Encoding,
    buffer: Vec<u8>,
    ended: bool,
}

impl<R: AsyncRead + Unpin> Chunker<R> {
    pub(super) fn new(source: R, encoding: Encoding) -> Self {
        Self { source, encoding, buffer: Vec::new(), ended: false }
    }

    /// The next chunk, `None` at the end. Text is cut between characters; a source that is not UTF-8 gives an
    /// error of kind `InvalidData`.
    pub(super) async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            if let Some(length) = self.complete_chunk()? {
                let rest = self.buffer.split_off(length);
                return Ok(Some(std::mem::replace(&mut self.buffer, rest)));
            }
            if self.ended {
                return Ok(None);
            }
            // A character is at most four bytes, so this is at most four chunks of them.
            let wanted = CHUNK_SIZE as u64;
            let read = (&mut self.source).take(wanted).read_to_end(&mut self.buffer).await?;
            self.ended = read == 0;
        }
    }

    /// The length in bytes of the chunk at the head of the buffer, if it is all there.
    fn complete_chunk(&self) -> io::Result<Option<usize>> {
        let cut = match self.encoding {
            Encoding::Binary => (self.buffer.len() >= CHUNK_SIZE).then_some(CHUNK_SIZE),
            Encoding::Text if self.buffer.len() < CHUNK_SIZE => None,
            Encoding::Text => byte_length_of_characters(self.valid_text()?, CHUNK_SIZE),
        };
        if cut.is_none() && self.ended && !self.buffer.is_empty() {
            if self.encoding == Encoding::Text && self.valid_text()?.len() < self.buffer.len() {
                return Err(io::Error::new(io::ErrorKind::InvalidData, "text ends within a character"));
            }
            return Ok(Some(self.buffer.len()));
        }
        Ok(cut)
    }

    /// The buffer without a character that is not complete yet.
    fn valid_text(&self) -> io::Result<&str> {
        match std::str::from_utf8(&self.buffer) {
            Ok(text) => Ok(text),
            Err(error) if error.error_len().is_none() => {
                std::str::from_utf8(&self.buffer[..error.valid_up_to()])
                    .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
            }
            Err(error) => Err(io::Error::new(io::ErrorKind::InvalidData, error)),
        }
    }
}

/// How many bytes the first `count` characters take, if there are so many.
fn byte_length_of_characters(text: &str, count: usize) -> Option<usize> {
    if text.len() < count {
        return None;
    }
    text.char_indices().nth(count).map(|(at, _)| at).or_else(|| {
        // Exactly `count` characters are a full chunk too.
        (text.chars().count() == count).then_some(text.len())
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn chunks(bytes: &[u8], encoding: Encoding) -> io::Result<Vec<Vec<u8>>> {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut chunker = Chunker::new(bytes, encoding);
            let mut chunks = Vec::new();
            while let Some(chunk) = chunker.next().await? {
                chunks.push(chunk);
            }
            Ok(chunks)
        })
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

    proptest! {
        #[test]
        fn nothing_is_lost_or_torn(text in "[a-zé☃𝄞]{0,300}", repeat in 1usize..4000) {
            let text = text.repeat(repeat);
            let cut = chunks(text.as_bytes(), Encoding::Text).unwrap();
            prop_assert_eq!(cut.concat(), text.as_bytes());
            for (index, chunk) in cut.iter().enumerate() {
                let characters = std::str::from_utf8(chunk).unwrap().chars().count();
                prop_assert!(characters == CHUNK_SIZE || (index + 1 == cut.len() && characters < CHUNK_SIZE));
            }
        }
    }
}
