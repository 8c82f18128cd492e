//! Files of file sets: what a content is known by and how it is cut, and names, paths and patterns. Pure.

use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use bson::Bson;
use globset::{GlobBuilder, GlobSet, GlobSetBuilder};
use serde_with::{DeserializeFromStr, SerializeDisplay};
use sha2::{Digest, Sha256};

use crate::text::{hex, of_hex};

/// A chunk has so many bytes, and the last one as many as are left.
pub const CHUNK_BYTES: u64 = 1024 * 1024;

/// A content has so many bytes at most.
pub const LONGEST: u64 = 1 << 40;

/// The SHA-256 of a content, by which it is known: 64 hexadecimal digits in lower case.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, SerializeDisplay, DeserializeFromStr)]
pub struct ContentId([u8; 32]);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is no SHA-256: expected 64 hexadecimal digits in lower case")]
pub struct ContentIdError(String);

impl ContentId {
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

impl fmt::Display for ContentId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex(self.0))
    }
}

impl FromStr for ContentId {
    type Err = ContentIdError;

    fn from_str(value: &str) -> Result<Self, ContentIdError> {
        let is_lower_case = !value.contains(|c: char| c.is_ascii_uppercase());
        let bytes = of_hex(value).filter(|_| is_lower_case);
        bytes.map(Self).ok_or_else(|| ContentIdError(value.chars().take(100).collect()))
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
    pub fn update(&mut self, bytes: &[u8]) {
        self.hash.update(bytes);
        self.length = self.length.saturating_add(bytes.len() as u64);
    }

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

const LONGEST_PATH: usize = 1024;

/// A part of a path has so many bytes at most, by the rule of file systems.
const LONGEST_PART: usize = 255;

const LONGEST_NAME: usize = 200;

/// Words that stand in the place of a name in addresses.
const RESERVED: [&str; 2] = ["contents", "versions"];

/// The name of a file set: letters, digits, `.`, `_` and `-`, the first of which is a letter or a digit.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SetName(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{0}' is no name of a file set: expected up to {most} letters, digits, '.', '_' and '-', beginning with a \
     letter or a digit, and neither 'contents' nor 'versions'",
    most = LONGEST_NAME
)]
pub struct SetNameError(String);

crate::shown_as_text!(SetName);

impl FromStr for SetName {
    type Err = SetNameError;

    fn from_str(value: &str) -> Result<Self, SetNameError> {
        let is_legal = value.len() <= LONGEST_NAME
            && value.starts_with(|first: char| first.is_ascii_alphanumeric())
            && value.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"._-".contains(&byte))
            && !RESERVED.contains(&value);
        if is_legal {
            Ok(Self(value.to_owned()))
        } else {
            Err(SetNameError(value.chars().take(LONGEST_NAME).collect()))
        }
    }
}

/// At the top of a private folder, what begins so is between the runner and the plugin.
pub const RESERVED_PREFIX: &str = ".disbatch-";

/// Where a file is in a set: parts with `/` between them, none of which is empty, `.` or `..`. Whoever writes a file to the disk under a
/// path goes by this, which leads nowhere else.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EntryPath(String);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{value:?} is no path in a file set: {why}")]
pub struct PathError {
    value: String,
    why: &'static str,
}

crate::shown_as_text!(EntryPath);

impl EntryPath {
    /// Its parts. There is at least one.
    pub fn parts(&self) -> impl Iterator<Item = &str> {
        self.0.split('/')
    }

    /// Whether a task could not have it in its private folder: what begins so is between runner and plugin there.
    pub fn is_reserved(&self) -> bool {
        self.0.starts_with(RESERVED_PREFIX)
    }

    /// The parts that are folders, and the name of the file.
    pub fn folders_and_name(&self) -> (impl Iterator<Item = &str>, &str) {
        let (folders, name) = match self.0.rsplit_once('/') {
            Some((folders, name)) => (Some(folders), name),
            None => (None, self.0.as_str()),
        };
        (folders.into_iter().flat_map(|folders| folders.split('/')), name)
    }
}

impl FromStr for EntryPath {
    type Err = PathError;

    fn from_str(value: &str) -> Result<Self, PathError> {
        let wrong = |why| PathError { value: value.chars().take(LONGEST_PATH).collect(), why };
        if value.is_empty() || value.len() > LONGEST_PATH {
            return Err(wrong("expected 1 to 1024 bytes"));
        }
        if value.contains('\0') {
            return Err(wrong("it has a null character"));
        }
        for part in value.split('/') {
            match part {
                "" => return Err(wrong("it has an empty part, or begins or ends with a slash")),
                "." | ".." => return Err(wrong("it has a part that is a dot or two")),
                long if long.len() > LONGEST_PART => return Err(wrong("a part has more than 255 bytes")),
                _ => {}
            }
        }
        Ok(Self(value.to_owned()))
    }
}

const MOST_PATTERNS: usize = 100;

const LONGEST_PATTERN: usize = 1024;

/// Patterns that tell files of a set apart, of which a path has to match one: `*` and `?` stand for what is within a part of a path, `**` for any parts,
/// `[ab]` for one of these characters and `{a,b}` for one of these texts. None at all match every path.
#[derive(Debug, Clone, Default)]
pub struct Patterns(Option<GlobSet>);

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct PatternError(String);

impl PatternError {
    fn of(pattern: &str, why: impl fmt::Display) -> Self {
        let pattern: String = pattern.chars().take(LONGEST_PATTERN).collect();
        Self(format!("the pattern '{pattern}' cannot be understood: {why}"))
    }
}

impl Patterns {
    pub fn new<'a>(patterns: impl IntoIterator<Item = &'a str>) -> Result<Self, PatternError> {
        let mut builder = GlobSetBuilder::new();
        let mut count = 0;
        for pattern in patterns {
            count += 1;
            if count > MOST_PATTERNS {
                return Err(PatternError(format!("at most {MOST_PATTERNS} patterns can be given")));
            }
            if pattern.is_empty() || pattern.len() > LONGEST_PATTERN {
                return Err(PatternError::of(pattern, format!("expected 1 to {LONGEST_PATTERN} bytes")));
            }
            if pattern.starts_with('/') {
                return Err(PatternError::of(pattern, "paths in a file set do not begin with a slash"));
            }
            let glob = GlobBuilder::new(pattern).literal_separator(true).build();
            builder.add(glob.map_err(|error| PatternError::of(pattern, error.kind()))?);
        }
        if count == 0 {
            return Ok(Self::default());
        }
        let built = builder.build();
        let globs =
            built.map_err(|error| PatternError::of(error.glob().unwrap_or_default(), error.kind()))?;
        Ok(Self(Some(globs)))
    }

    pub fn matches(&self, path: &str) -> bool {
        self.0.as_ref().is_none_or(|globs| globs.is_match(path))
    }
}

#[cfg(test)]
mod tests {
    use std::path::{Component, Path};

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

    #[test]
    fn names_stand_in_addresses_as_they_are() {
        for name in ["data", "foo_result", "2024-01.x", "A"] {
            assert_eq!(name.parse::<SetName>().unwrap().as_str(), name);
        }
        for wrong in ["", ".data", "-x", "a/b", "a b", "contents", "versions", "ä", "a\0", &"x".repeat(201)]
        {
            assert!(wrong.parse::<SetName>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn paths_lead_nowhere_else() {
        let path: EntryPath = "a/b.d/c".parse().unwrap();
        let (folders, name) = path.folders_and_name();
        assert_eq!((folders.collect::<Vec<_>>(), name), (vec!["a", "b.d"], "c"));
        let path: EntryPath = "...".parse().unwrap();
        let (folders, name) = path.folders_and_name();
        assert_eq!((folders.count(), name, path.parts().count()), (0, "...", 1));
        for wrong in
            ["", "/", "/a", "a/", "a//b", ".", "..", "a/../b", "./a", "a/.", "a\0b", &"x/".repeat(513)]
        {
            assert!(wrong.parse::<EntryPath>().is_err(), "{wrong:?}");
        }
        assert!("x".repeat(255).parse::<EntryPath>().is_ok());
        assert!("x".repeat(256).parse::<EntryPath>().is_err());
        let error = "../x".parse::<EntryPath>().unwrap_err();
        assert_eq!(
            error.to_string(),
            "\"../x\" is no path in a file set: it has a part that is a dot or two"
        );
    }

    proptest! {
        #[test]
        fn a_path_is_below_the_folder_that_it_is_in(text in "[a./\\x00ä\\\\]{0,12}|\\PC{0,20}") {
            if let Ok(path) = text.parse::<EntryPath>() {
                let components: Vec<Component<'_>> = Path::new(path.as_str()).components().collect();
                prop_assert!(components.iter().all(|part| matches!(part, Component::Normal(_))), "{:?}", components);
                prop_assert_eq!(components.len(), path.parts().count());
                prop_assert_eq!(path.as_str(), text.as_str());
            }
        }
    }

    fn matching(patterns: &[&str]) -> Vec<&'static str> {
        let patterns = Patterns::new(patterns.iter().copied()).unwrap();
        let paths = ["a.py", "bin/run", "bin/old/run", "data/x/1.dat", "1.dat", ".hidden", "b/.hidden"];
        paths.into_iter().filter(|path| patterns.matches(path)).collect()
    }

    #[test]
    fn a_star_stays_within_a_part_of_a_path() {
        assert_eq!(matching(&["*.py", "bin/*"]), ["a.py", "bin/run"]);
        assert_eq!(matching(&["**/*.dat"]), ["data/x/1.dat", "1.dat"]);
        assert_eq!(matching(&["bin/**"]), ["bin/run", "bin/old/run"]);
        assert_eq!(matching(&["?.{py,dat}", "[.b]*"]), ["a.py", "1.dat", ".hidden"]);
        assert_eq!(matching(&["**"]).len(), 7);
        assert_eq!(matching(&[]).len(), 7);
        assert!(matching(&["nothing"]).is_empty());
    }

    #[test]
    fn what_is_wrong_with_a_pattern_is_said() {
        let why = |pattern: &str| Patterns::new([pattern]).unwrap_err().to_string();
        assert!(
            why("a[").starts_with("the pattern 'a[' cannot be understood: unclosed character class"),
            "{}",
            why("a[")
        );
        assert!(why("/etc/*").ends_with("do not begin with a slash"));
        assert!(why("").ends_with("expected 1 to 1024 bytes"));
        assert!(why(&"x".repeat(1025)).ends_with("expected 1 to 1024 bytes"));
        assert_eq!(Patterns::new(["x"; 101]).unwrap_err().to_string(), "at most 100 patterns can be given");
        assert!(Patterns::new(["x"; 100]).is_ok());
    }

    proptest! {
        #[test]
        fn any_text_is_a_pattern_or_is_refused(pattern in "[a*?{},\\[\\]!/\\\\-]{0,20}", path in "[a/]{0,10}") {
            if let Ok(patterns) = Patterns::new([pattern.as_str()]) {
                let _either = patterns.matches(&path);
            }
        }

        #[test]
        fn a_path_matches_itself_and_what_begins_like_it(path in "[a-z]{1,5}(/[a-z]{1,5}){0,4}") {
            prop_assert!(Patterns::new([path.as_str()]).unwrap().matches(&path));
            let (first, _) = path.split_once('/').unwrap_or((path.as_str(), ""));
            let below = format!("{first}/**");
            prop_assert_eq!(Patterns::new([below.as_str()]).unwrap().matches(&path), path.contains('/'));
        }
    }
}
