//! What a content is known by, and how it is cut. Pure.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use bson::Bson;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

/// A chunk has so many bytes, and the last one as many as are left.
pub const CHUNK_BYTES: u64 = 1024 * 1024;

/// A content has so many bytes at most.
pub const LONGEST: u64 = 1 << 40;

/// The SHA-256 of a content, by which it is known: 64 hexadecimal digits in lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ContentId([u8; 32]);

/// The text is no SHA-256.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{value}' is no SHA-256: expected 64 hexadecimal digits in lower case")]
pub struct ContentIdError {
    value: String,
}

impl ContentId {
    pub fn of(bytes: &[u8]) -> Self {
        let mut hasher = ContentHasher::default();
        hasher.update(bytes);
        hasher.finish()
    }
}

impl fmt::Display for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for ContentId {
    type Err = ContentIdError;

    fn from_str(value: &str) -> Result<Self, ContentIdError> {
        let wrong = || ContentIdError { value: value.chars().take(100).collect() };
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        let (pairs, rest) = value.as_bytes().as_chunks::<2>();
        if pairs.len() != 32 || !rest.is_empty() {
            return Err(wrong());
        }
        let mut bytes = [0; 32];
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            let (Some(high), Some(low)) = (digit(*high), digit(*low)) else { return Err(wrong()) };
            *byte = high * 16 + low;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for ContentId {
    type Error = ContentIdError;

    fn try_from(value: String) -> Result<Self, ContentIdError> {
        value.parse()
    }
}

impl From<ContentId> for String {
    fn from(id: ContentId) -> Self {
        id.to_string()
    }
}

impl From<ContentId> for Bson {
    fn from(id: ContentId) -> Self {
        Bson::String(id.to_string())
    }
}

/// Finds out what a content is known by while it passes.
#[derive(Debug, Clone, Default)]
pub struct ContentHasher {
    hash: Sha256,
    length: u64,
}

impl ContentHasher {
    /// Takes what comes next.
    pub fn update(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.length = self.length.saturating_add(bytes.len() as u64);
    }

    /// How many bytes have passed.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// What all that has passed is known by.
    pub fn finish(self) -> ContentId {
        ContentId(self.hash.finalize().into())
    }
}

/// How many chunks a content of `length` bytes has.
pub const fn chunks_of(length: u64) -> u64 {
    length.div_ceil(CHUNK_BYTES)
}

/// How many bytes the chunk `n` of a content of `length` bytes has. `None`: there is no such chunk.
pub const fn chunk_length(length: u64, n: u64) -> Option<u64> {
    let Some(start) = n.checked_mul(CHUNK_BYTES) else { return None };
    match length.checked_sub(start) {
        None | Some(0) => None,
        Some(left) if left < CHUNK_BYTES => Some(left),
        Some(_) => Some(CHUNK_BYTES),
    }
}

/// Which chunks have bytes of `range`.
pub const fn chunks_with(range: &Range<u64>) -> Range<u64> {
    if range.start >= range.end {
        return 0..0;
    }
    range.start / CHUNK_BYTES..range.end.div_ceil(CHUNK_BYTES)
}

/// Which bytes of the chunk `n`, that has `length`, are within `range` of the content.
pub fn part_of_chunk(range: &Range<u64>, n: u64, length: usize) -> Range<usize> {
    let start = n.saturating_mul(CHUNK_BYTES);
    let within = |position: u64| {
        usize::try_from(position.saturating_sub(start)).map_or(length, |position| position.min(length))
    };
    let (first, end) = (within(range.start), within(range.end));
    first.min(end)..end
}

/// Collects which chunks are missing, of those that are told in order to be there.
#[derive(Debug, Default)]
pub struct Gaps {
    missing: Vec<Range<u64>>,
    next: u64,
}

impl Gaps {
    /// The chunk `n` is there.
    pub fn there(&mut self, n: u64) {
        if n > self.next {
            self.missing.push(self.next..n);
        }
        self.next = self.next.max(n.saturating_add(1));
    }

    /// What is missing of so many chunks.
    pub fn of(mut self, chunks: u64) -> Vec<Range<u64>> {
        if self.next < chunks {
            self.missing.push(self.next..chunks);
        }
        self.missing.retain_mut(|range| {
            range.end = range.end.min(chunks);
            range.start < range.end
        });
        self.missing
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_content_is_known_by_its_sha_256() {
        let empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(ContentId::of(b"").to_string(), empty);
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(abc.parse(), Ok(ContentId::of(b"abc")));
        for wrong in ["", "abc", &abc.to_uppercase(), &abc[1..], &format!("{abc}0"), &abc.replace('b', "g")] {
            assert!(wrong.parse::<ContentId>().is_err(), "{wrong}");
        }
        assert_eq!(Bson::from(ContentId::of(b"abc")), Bson::from(abc));
    }

    #[test]
    fn no_content_has_a_chunk_beyond_its_end() {
        assert_eq!((chunks_of(0), chunk_length(0, 0)), (0, None));
        assert_eq!((chunks_of(1), chunk_length(1, 0), chunk_length(1, 1)), (1, Some(1), None));
        let two = 2 * CHUNK_BYTES;
        assert_eq!(
            (chunks_of(two), chunk_length(two, 1), chunk_length(two, 2)),
            (2, Some(CHUNK_BYTES), None)
        );
        assert_eq!(chunk_length(u64::MAX, u64::MAX), None);
    }

    #[test]
    fn gaps_are_what_nobody_has_told() {
        let missing = |there: &[u64], chunks| {
            let mut gaps = Gaps::default();
            there.iter().for_each(|n| gaps.there(*n));
            gaps.of(chunks).into_iter().map(|range| (range.start, range.end)).collect::<Vec<(u64, u64)>>()
        };
        assert_eq!(missing(&[], 3), [(0, 3)]);
        assert_eq!(missing(&[0, 2, 3, 6], 8), [(1, 2), (4, 6), (7, 8)]);
        assert_eq!(missing(&[0, 1, 2], 3), []);
        assert_eq!(missing(&[5, 9], 3), [(0, 3)], "chunks of another length do not count");
        assert_eq!(missing(&[], 0), []);
    }

    proptest! {
        #[test]
        fn the_chunks_of_a_content_are_all_of_it(length in 0..20 * CHUNK_BYTES) {
            let lengths: Vec<u64> = (0..chunks_of(length)).map(|n| chunk_length(length, n).unwrap()).collect();
            prop_assert_eq!(lengths.iter().sum::<u64>(), length);
            prop_assert!(lengths.iter().all(|length| (1..=CHUNK_BYTES).contains(length)));
        }

        #[test]
        fn a_range_is_made_of_parts_of_chunks(
            length in 0..6 * CHUNK_BYTES, a in 0..6 * CHUNK_BYTES, b in 0..6 * CHUNK_BYTES,
        ) {
            let range = a.min(b).min(length)..a.max(b).min(length);
            let mut position = range.start;
            for n in chunks_with(&range) {
                let part = part_of_chunk(&range, n, usize::try_from(chunk_length(length, n).unwrap()).unwrap());
                prop_assert!(!part.is_empty());
                prop_assert_eq!(n * CHUNK_BYTES + part.start as u64, position);
                position += part.len() as u64;
            }
            prop_assert_eq!(position, range.end);
        }

        #[test]
        fn what_is_there_and_what_is_missing_is_all(there in prop::collection::btree_set(0u64..50, 0..50)) {
            let mut gaps = Gaps::default();
            there.iter().for_each(|n| gaps.there(*n));
            let missing: Vec<u64> = gaps.of(50).into_iter().flatten().collect();
            let mut all: Vec<u64> = there.iter().copied().chain(missing).collect();
            all.sort_unstable();
            prop_assert_eq!(all, (0..50).collect::<Vec<u64>>());
        }
    }
}
