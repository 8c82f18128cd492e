//! The newest bytes of a stream, until they are written.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use disbatch_core::live::Piece;
use tokio::sync::Notify;

/// So many bytes are held; older ones are left out.
pub const HELD_BYTES: usize = 1024 * 1024;

/// Takes what a capture reads. Clones share what they hold.
#[derive(Debug, Clone)]
pub struct Tap {
    held: Arc<Mutex<Held>>,
    news: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Held {
    bytes: VecDeque<u8>,
    /// Where the first of them is in the stream.
    offset: u64,
    closed: bool,
}

impl Tap {
    /// A tap at the start of a stream, which tells `news` when it has been given something.
    pub fn new(news: Arc<Notify>) -> Self {
        Self { held: Arc::default(), news }
    }

    /// The next bytes of the stream. Never waits.
    pub fn push(&self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        {
            let mut held = self.held();
            let newest = &bytes[bytes.len().saturating_sub(HELD_BYTES)..];
            let too_many = (held.bytes.len() + newest.len()).saturating_sub(HELD_BYTES);
            held.bytes.drain(..too_many);
            held.bytes.extend(newest);
            held.offset += (too_many + bytes.len() - newest.len()) as u64;
        }
        self.news.notify_one();
    }

    /// The stream has come to its end.
    pub fn close(&self) {
        self.held().closed = true;
    }

    /// The stream goes on after all.
    pub fn open(&self) {
        self.held().closed = false;
    }

    /// Whether the stream has come to its end.
    pub fn is_closed(&self) -> bool {
        self.held().closed
    }

    /// What is held, if anything. It is still held afterwards.
    pub fn peek(&self) -> Option<Piece> {
        let held = self.held();
        let (first, second) = held.bytes.as_slices();
        let bytes = [first, second].concat();
        (!bytes.is_empty()).then_some(Piece { offset: held.offset, bytes })
    }

    /// Lets go of what comes before the byte `end`: it is written.
    pub fn forget_before(&self, end: u64) {
        let mut held = self.held();
        let written = usize::try_from(end.saturating_sub(held.offset)).unwrap_or(usize::MAX);
        let written = written.min(held.bytes.len());
        held.bytes.drain(..written);
        held.offset += written as u64;
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    impl Tap {
        pub fn held_bytes(&self) -> usize {
            self.held().bytes.len()
        }
    }

    fn tap() -> Tap {
        Tap::new(Arc::default())
    }

    #[test]
    fn the_newest_bytes_are_held() {
        let tap = tap();
        assert_eq!(tap.peek(), None);
        tap.push(&vec![b'a'; HELD_BYTES]);
        tap.push(b"bcd");
        let piece = tap.peek().unwrap();
        assert_eq!((piece.offset, piece.bytes.len()), (3, HELD_BYTES));
        assert!(piece.bytes.ends_with(b"abcd"));
        tap.push(&[b'e'; 3 * HELD_BYTES]);
        let piece = tap.peek().unwrap();
        assert_eq!((piece.offset, piece.end()), (3 * HELD_BYTES as u64 + 3, 4 * HELD_BYTES as u64 + 3));
        assert!(piece.bytes.iter().all(|byte| *byte == b'e'));
        tap.forget_before(7);
        assert_eq!(tap.peek(), Some(piece), "that was not held any more");
        tap.forget_before(u64::MAX);
        assert_eq!(tap.peek(), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn offsets_are_those_of_the_stream(
            steps in prop::collection::vec((0usize..2 * HELD_BYTES, any::<bool>()), 1..4),
        ) {
            let stream: Vec<u8> = (0..=250).cycle().take(8 * HELD_BYTES).collect();
            let (tap, mut end) = (tap(), 0);
            for (length, written) in steps {
                tap.push(&stream[end..end + length]);
                end += length;
                let Some(piece) = tap.peek() else { continue };
                let start = usize::try_from(piece.offset).unwrap();
                prop_assert!(piece.bytes == stream[start..end], "{start} to {end}");
                if written {
                    tap.forget_before(piece.end());
                }
            }
        }
    }
}
