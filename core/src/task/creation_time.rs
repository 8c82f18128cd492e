//! When tasks were made, as their ids say: to the second, and by an index that every database has.

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document};

/// Tasks that were made between two times.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Created {
    /// At this time or later.
    pub since: Option<DateTime>,
    /// Before this time.
    pub until: Option<DateTime>,
}

impl Created {
    /// Whether any task is meant.
    pub fn is_any(self) -> bool {
        self == Self::default()
    }

    /// What their ids must be: the value of `_id` in a filter. Empty if any task is meant.
    pub fn ids(self) -> Document {
        // Both include their end, so that the place of a page can be told besides.
        let bounds = [
            ("$gte", self.since.map(|at| id(seconds(at), u8::MIN))),
            ("$lte", self.until.map(|at| id(seconds(at).saturating_sub(1), u8::MAX))),
        ];
        bounds.into_iter().filter_map(|(name, id)| Some((name.to_owned(), Bson::from(id?)))).collect()
    }
}

/// Whole seconds since 1970, as far as ids can have them. A fraction counts to the next one.
fn seconds(at: DateTime) -> u32 {
    let seconds = at.timestamp_millis().saturating_add(999).div_euclid(1_000);
    u32::try_from(seconds.max(0)).unwrap_or(u32::MAX)
}

/// The first or the last id of a second.
fn id(seconds: u32, rest: u8) -> ObjectId {
    let mut bytes = [rest; 12];
    bytes[..4].copy_from_slice(&seconds.to_be_bytes());
    ObjectId::from_bytes(bytes)
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn ids_have_their_second() {
        let at = |millis| Some(DateTime::from_millis(millis));
        let id = |text: &str| ObjectId::parse_str(text).unwrap();
        assert!(Created::default().is_any() && Created::default().ids().is_empty());
        let between = Created { since: at(16_000), until: at(32_000) };
        let (first, last) = (id("000000100000000000000000"), id("0000001fffffffffffffffff"));
        assert_eq!(between.ids(), doc! { "$gte": first, "$lte": last });
        let odd = Created { since: at(15_001), until: at(-5) };
        assert_eq!(odd.ids(), doc! { "$gte": first, "$lte": id("00000000ffffffffffffffff") });
    }
}
