//! What the elements of an array are for: numbers, or values that somebody has listed. Pure.

use std::collections::HashSet;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use sha2::{Digest, Sha256};

use crate::model::{ArrayId, TaskId, whole_number};

pub const MOST_ELEMENTS: u32 = 100_000;

/// So many tasks with consecutive ids fit behind the id of an array. The last of these ids is that of its final task.
const IDS: u32 = 0x00FF_FFFF;

/// The largest number of a range.
const LARGEST: i64 = 999_999_999_999;

/// So much of what was given is in messages.
const QUOTED: usize = 60;

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ArrayError {
    #[error("'{0}' is no array: expected numbers and ranges as \"0-9999\", \"1,3,5-9:2\" or \"0-99%5\"")]
    Malformed(String),
    #[error("the range '{0}' ends before it begins")]
    Backwards(String),
    #[error("the number {0} comes twice")]
    Twice(i64),
    #[error("an array has at most {most} elements", most = MOST_ELEMENTS)]
    TooMany,
    #[error("an array has at least one element")]
    Empty,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Range {
    first: i64,
    last: i64,
    step: i64,
}

impl Range {
    fn count(self) -> i64 {
        (self.last - self.first) / self.step + 1
    }

    fn numbers(self) -> impl Iterator<Item = i64> {
        (0..self.count()).map(move |index| self.first + index * self.step)
    }
}

#[derive(Debug, Clone, PartialEq)]
pub enum Items {
    Ranges(Vec<Range>),
    Values(Vec<Bson>),
}

impl Items {
    /// Reads `0-9999%50` or `1,3,5-9:2`: the numbers, and how many may run at once if that is said.
    pub fn parse(text: &str) -> Result<(Self, Option<u32>), ArrayError> {
        let malformed = || ArrayError::Malformed(text.chars().take(QUOTED).collect());
        let (list, cap) = match text.split_once('%') {
            Some((list, cap)) => (list, Some(read_cap(cap).ok_or_else(malformed)?)),
            None => (text, None),
        };
        let mut ranges = Vec::new();
        let mut count = 0;
        for part in list.split(',') {
            let range = read_range(part.trim()).ok_or_else(malformed)?;
            if range.last < range.first {
                return Err(ArrayError::Backwards(part.trim().chars().take(QUOTED).collect()));
            }
            count += range.count();
            if count > i64::from(MOST_ELEMENTS) {
                return Err(ArrayError::TooMany);
            }
            ranges.push(range);
        }
        let mut known = HashSet::new();
        match ranges.iter().flat_map(|range| range.numbers()).find(|number| !known.insert(*number)) {
            Some(twice) => Err(ArrayError::Twice(twice)),
            None => Ok((Self::Ranges(ranges), cap)),
        }
    }

    pub fn of(values: Vec<Bson>) -> Result<Self, ArrayError> {
        match u32::try_from(values.len()) {
            Ok(0) => Err(ArrayError::Empty),
            Ok(count) if count <= MOST_ELEMENTS => Ok(Self::Values(values)),
            Ok(_) | Err(_) => Err(ArrayError::TooMany),
        }
    }

    pub fn count(&self) -> u32 {
        let count = match self {
            Self::Ranges(ranges) => ranges.iter().map(|range| range.count()).sum(),
            Self::Values(values) => i64::try_from(values.len()).unwrap_or(i64::MAX),
        };
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// What they are for from the element at this place on, counted from 0.
    pub fn starting_at(&self, place: u32) -> Box<dyn Iterator<Item = Bson> + Send + '_> {
        let place = usize::try_from(place).unwrap_or(usize::MAX);
        match self {
            Self::Ranges(ranges) => {
                Box::new(ranges.iter().flat_map(|range| range.numbers()).skip(place).map(Bson::Int64))
            }
            Self::Values(values) => Box::new(values.iter().skip(place).cloned()),
        }
    }

    /// In words, as it was given or shorter.
    pub fn words(&self) -> String {
        match self {
            Self::Values(values) => format!("{} values", values.len()),
            Self::Ranges(ranges) => {
                let range = |range: &Range| match *range {
                    Range { first, last, .. } if first == last => first.to_string(),
                    Range { first, last, step: 1 } => format!("{first}-{last}"),
                    Range { first, last, step } => format!("{first}-{last}:{step}"),
                };
                let shown: Vec<String> = ranges.iter().take(QUOTED).map(range).collect();
                let more = if ranges.len() > QUOTED { ",…" } else { "" };
                format!("{}{more}", shown.join(","))
            }
        }
    }

    /// As it is stored while elements are still to be inserted.
    pub(crate) fn document(&self) -> Document {
        match self {
            Self::Values(values) => doc! { "values": values.clone() },
            Self::Ranges(ranges) => {
                let range = |range: &Range| Bson::from(vec![range.first, range.last, range.step]);
                doc! { "ranges": ranges.iter().map(range).collect::<Vec<Bson>>() }
            }
        }
    }

    /// What is stored. `None`: it is nothing of this kind.
    pub(super) fn stored(items: &Document) -> Option<Self> {
        if let Ok(values) = items.get_array("values") {
            return Some(Self::Values(values.clone()));
        }
        let range = |range: &Bson| {
            let numbers: Option<Vec<i64>> = range.as_array()?.iter().map(whole_number).collect();
            match numbers?[..] {
                [first, last, step] if first <= last && step > 0 => Some(Range { first, last, step }),
                _ => None, // No other numbers are a range.
            }
        };
        Some(Self::Ranges(items.get_array("ranges").ok()?.iter().map(range).collect::<Option<_>>()?))
    }
}

/// `5`, `0-9` or `0-9:3`.
fn read_range(text: &str) -> Option<Range> {
    let (range, step) = match text.split_once(':') {
        Some((range, step)) => (range, read_number(step).filter(|step| *step > 0)?),
        None => (text, 1),
    };
    match range.split_once('-') {
        Some((first, last)) => Some(Range { first: read_number(first)?, last: read_number(last)?, step }),
        // A single number has no steps.
        None if text.contains(':') => None,
        None => read_number(range).map(|number| Range { first: number, last: number, step }),
    }
}

/// Digits without a sign.
fn read_number(text: &str) -> Option<i64> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|number| is_number && *number <= LARGEST)
}

fn read_cap(text: &str) -> Option<u32> {
    let cap = read_number(text.trim())?;
    u32::try_from(cap).ok().filter(|cap| (1..=MOST_ELEMENTS).contains(cap))
}

/// An id for a new array. The ids behind it are its tasks': they are no other process's, as there are 40 bits between these
/// that nobody else has in the same second.
pub(crate) fn new_id() -> ArrayId {
    let seed = ObjectId::new().bytes();
    let hash = Sha256::digest(seed);
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&seed[..4]);
    bytes[4..9].copy_from_slice(&hash[..5]);
    ArrayId(ObjectId::from_bytes(bytes))
}

/// The id of the element at this place, counted from 0.
pub fn element_id(array: ArrayId, place: u32) -> TaskId {
    numbered(array, place.saturating_add(1).min(IDS - 1))
}

pub(crate) fn final_id(array: ArrayId) -> TaskId {
    numbered(array, IDS)
}

fn numbered(array: ArrayId, number: u32) -> TaskId {
    let mut bytes = array.0.bytes();
    bytes[9..].copy_from_slice(&number.to_be_bytes()[1..]);
    TaskId(ObjectId::from_bytes(bytes))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn numbers(text: &str) -> Vec<i64> {
        let (items, _) = Items::parse(text).unwrap();
        items.starting_at(0).map(|item| item.as_i64().unwrap()).collect()
    }

    #[test]
    fn numbers_and_ranges_are_read_in_their_order() {
        assert_eq!(numbers("0-3"), [0, 1, 2, 3]);
        assert_eq!(numbers("1,3,5-9:2"), [1, 3, 5, 7, 9]);
        assert_eq!(numbers("5-10:3, 1"), [5, 8, 1]);
        assert_eq!(numbers("7"), [7]);
        assert_eq!(Items::parse("0-9999%50").unwrap().1, Some(50));
        assert_eq!(Items::parse("0-9999").unwrap().1, None);
        assert_eq!(Items::parse("1,3,5-9:2").unwrap().0.words(), "1,3,5-9:2");
        assert_eq!(Items::of(vec![Bson::from("a")]).unwrap().words(), "1 values");
    }

    #[test]
    fn what_is_no_array_is_named() {
        for text in [
            "", ",", "1,", "a", "-1", "1-", "1--2", "1-2-3", "1:2", "1-2:0", "1-2:", "+1", "1.5", "1%",
            "1%0", "1%x",
        ] {
            assert!(matches!(Items::parse(text), Err(ArrayError::Malformed(_))), "{text}");
        }
        assert_eq!(Items::parse("5-3"), Err(ArrayError::Backwards("5-3".to_owned())));
        assert_eq!(Items::parse("1-5,3"), Err(ArrayError::Twice(3)));
        assert_eq!(Items::parse("0-100000"), Err(ArrayError::TooMany));
        assert_eq!(Items::parse("0-99999").unwrap().0.count(), MOST_ELEMENTS);
        assert_eq!(Items::parse("0-999999999999"), Err(ArrayError::TooMany));
        assert_eq!(Items::of(Vec::new()), Err(ArrayError::Empty));
        assert_eq!(Items::of(vec![Bson::Null; 100_001]), Err(ArrayError::TooMany));
    }

    #[test]
    fn ids_are_in_the_order_of_the_elements_and_the_final_one_is_the_last() {
        let array = new_id();
        let ids: Vec<TaskId> = [0, 1, 255, 256, 99_999].map(|place| element_id(array, place)).into();
        assert!(array.0 < ids[0].0 && ids.windows(2).all(|pair| pair[0] < pair[1]));
        assert!(ids[4] < final_id(array) && final_id(array).0.bytes()[..9] == array.0.bytes()[..9]);
        assert_ne!(new_id(), new_id());
    }

    fn any_ranges() -> impl Strategy<Value = Vec<(i64, i64, i64)>> {
        // Each has a thousand numbers of its own.
        prop::collection::vec((0_i64..500, 0_i64..500, 1_i64..50), 1..9)
    }

    proptest! {
        #[test]
        fn what_is_written_is_read_again(ranges in any_ranges(), cap in prop::option::of(1_u32..1_000)) {
            let parts: Vec<(i64, i64, i64)> = ranges
                .iter()
                .enumerate()
                .map(|(number, (first, more, step))| {
                    let first = i64::try_from(number).unwrap() * 1_000 + first;
                    (first, first + more, *step)
                })
                .collect();
            let text: Vec<String> = parts.iter().map(|(first, last, step)| format!("{first}-{last}:{step}")).collect();
            let expected: Vec<i64> = parts
                .iter()
                .flat_map(|(first, last, step)| {
                    (*first..=*last).step_by(usize::try_from(*step).unwrap())
                })
                .collect();
            let text = text.join(",") + &cap.map(|cap| format!("%{cap}")).unwrap_or_default();
            let (items, read) = Items::parse(&text).unwrap();
            prop_assert_eq!(read, cap);
            prop_assert_eq!(usize::try_from(items.count()).unwrap(), expected.len());
            let stored = Items::stored(&items.document()).unwrap();
            prop_assert_eq!(&stored, &items);
            let (again, _) = Items::parse(&items.words()).unwrap();
            prop_assert_eq!(again.starting_at(0).collect::<Vec<_>>(), items.starting_at(0).collect::<Vec<_>>());
            let half = u32::try_from(expected.len() / 2).unwrap();
            let rest: Vec<i64> = stored.starting_at(half).filter_map(|item| item.as_i64()).collect();
            prop_assert_eq!(&rest[..], &expected[expected.len() / 2..]);
        }

        #[test]
        fn no_text_makes_it_panic(text in "[0-9,:%-]{0,40}|.{0,100}") {
            if let Ok((items, _)) = Items::parse(&text) {
                prop_assert!((1..=MOST_ELEMENTS).contains(&items.count()));
            }
        }
    }
}
