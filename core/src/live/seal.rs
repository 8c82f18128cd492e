//! What is left of the output of a task whose runner died, made into stored output.

use bson::Bson;
use bson::oid::ObjectId;
use disbatch_operation::operation;

use super::{LiveStream, Piece};
use crate::model::TaskId;
use crate::output::{Encoding, StreamName};
use crate::store::{Store, StoreError};

/// Text up to so many bytes is kept in the task.
const IN_TASK: usize = 1024 * 1024;

/// Pieces are read about so many bytes at a time.
const READ_AT_ONCE: usize = 2 * 1024 * 1024;

impl Store {
    /// The live output of an attempt: standard output and standard error. A line says how much is missing where
    /// something is.
    #[operation(task = %task)]
    pub async fn assemble_live(&self, task: TaskId, attempt: i64) -> Result<(Vec<u8>, Vec<u8>), StoreError> {
        let stdout = self.assemble(LiveStream { task, attempt, stream: StreamName::Stdout }).await?;
        let stderr = self.assemble(LiveStream { task, attempt, stream: StreamName::Stderr }).await?;
        Ok((stdout, stderr))
    }

    /// Stores the live output of an attempt for good, and returns what the task's `stdout` and `stderr` are to
    /// hold: null, text, or the id of a GridFS file. The live output stays: remove it once the task holds these.
    ///
    /// Each call makes files of its own. If the task turns out not to be ours to end, remove them with
    /// [`Store::discard_output`].
    ///
    /// # Errors
    /// The database cannot be reached, or refuses a file. No file is left then if it could be removed.
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

    /// Removes the files that these values of `stdout` and `stderr` refer to.
    #[operation]
    pub async fn discard_output(&self, values: &[Bson]) -> Result<(), StoreError> {
        for value in values {
            if let Bson::ObjectId(id) = value {
                self.delete_output(*id).await?;
            }
        }
        Ok(())
    }

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
        match self.put_output(id, (of.task, of.stream), encoding, &bytes[..]).await {
            Ok(()) => Ok(Bson::ObjectId(id)),
            Err(error) => {
                self.delete_output(id).await?;
                Err(error)
            }
        }
    }
}

/// The line that stands for bytes that are missing, on a line of its own after the byte `last`.
pub fn gap_line(missing: u64, last: Option<u8>) -> String {
    let start = if last.is_none_or(|byte| byte == b'\n') { "" } else { "\n" };
    format!("{start}[{missing} bytes not kept]\n")
}

/// Pieces put together.
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
            let rest = torn_start(bytes);
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

/// How many bytes at the start are the rest of a character.
fn torn_start(bytes: &[u8]) -> usize {
    bytes.iter().take(3).take_while(|byte| **byte & 0b1100_0000 == 0b1000_0000).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
