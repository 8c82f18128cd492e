//! Writes one stream: whole chunks, of which the last may still grow.

use disbatch_core::live::{CHUNK_BYTES, FULL_BYTES, LiveStream, Piece};
use disbatch_core::store::StoreError;

use super::Tap;
use crate::ledger::Ledger;

/// One stream on its way to the database.
pub struct Writer {
    of: LiveStream,
    tap: Tap,
    /// The last chunk, while it is short enough to grow.
    open: Option<Piece>,
}

impl Writer {
    pub fn new(of: LiveStream, tap: Tap) -> Self {
        Self { of, tap, open: None }
    }

    /// Writes what the tap holds.
    pub async fn write(&mut self, ledger: &Ledger) -> Result<(), StoreError> {
        let Some(new) = self.tap.peek() else { return Ok(()) };
        let end = new.end();
        let whole = joined(self.open.as_ref(), new);
        ledger.write_live(self.of, &whole).await?;
        self.tap.forget_before(end);
        self.open = last_chunk(whole);
        Ok(())
    }
}

/// The chunk that may grow, grown by what follows it. Skipped bytes end it.
fn joined(open: Option<&Piece>, new: Piece) -> Piece {
    match open {
        Some(open) if open.end() == new.offset => {
            Piece { offset: open.offset, bytes: [&open.bytes[..], &new.bytes].concat() }
        }
        _ => new,
    }
}

/// The last chunk of what was written, if it may grow.
fn last_chunk(written: Piece) -> Option<Piece> {
    let start = (written.bytes.len().saturating_sub(1) / CHUNK_BYTES) * CHUNK_BYTES;
    let bytes = written.bytes[start..].to_vec();
    (bytes.len() < FULL_BYTES).then_some(Piece { offset: written.offset + start as u64, bytes })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(offset: u64, length: usize) -> Piece {
        Piece { offset, bytes: vec![b'x'; length] }
    }

    #[test]
    fn short_chunks_grow_and_full_ones_do_not() {
        assert_eq!(last_chunk(piece(5, 7)), Some(piece(5, 7)));
        assert_eq!(last_chunk(piece(5, FULL_BYTES)), None);
        assert_eq!(last_chunk(piece(5, CHUNK_BYTES)), None);
        assert_eq!(last_chunk(piece(5, CHUNK_BYTES + 3)), Some(piece(5 + CHUNK_BYTES as u64, 3)));
    }

    #[test]
    fn only_what_follows_is_joined() {
        assert_eq!(joined(None, piece(5, 7)), piece(5, 7));
        assert_eq!(joined(Some(&piece(2, 3)), piece(5, 7)), piece(2, 10));
        assert_eq!(joined(Some(&piece(1, 3)), piece(5, 7)), piece(5, 7), "a byte was skipped");
    }
}
