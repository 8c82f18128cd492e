//! Which tasks of a queue are whose, where several DENs claim them and know of each other.

use bson::oid::ObjectId;

/// Among more than so many DENs tasks are not divided: too much would be read that is somebody else's.
const MOST_SHARES: u64 = 32;

/// The part of the tasks of a queue that a DEN tries first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    first: u64,
    many: u64,
    of: u64,
}

impl Share {
    /// Of `all` equal parts, `own` after the first `before`. `None`: it is all of them, or too few.
    pub fn new(before: u64, own: u64, all: u64) -> Option<Self> {
        (own > 0 && own < all && all / own <= MOST_SHARES).then_some(Self {
            first: before,
            many: own,
            of: all,
        })
    }

    /// Whether a task is in it: DENs that know the same of each other say the same.
    pub(super) fn has(self, id: ObjectId) -> bool {
        // Ids that are made one after the other are spread over all parts.
        let [a, b, c, d, low @ ..] = id.bytes();
        let part =
            mixed(u64::from_be_bytes(low) ^ u64::from(u32::from_be_bytes([a, b, c, d])) << 32) % self.of;
        part.checked_sub(self.first).is_some_and(|part| part < self.many)
    }

    /// How many tasks there are for each that is in it.
    pub(super) fn times(self) -> usize {
        usize::try_from(self.of.div_ceil(self.many)).unwrap_or(usize::MAX)
    }
}

/// A number that shows no pattern of the one that it is made of (the end of SplitMix64).
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u32) -> ObjectId {
        ObjectId::from_parts(number, [0; 5], [0; 3])
    }

    #[test]
    fn each_task_is_in_one_share() {
        let shares = [Share::new(0, 4, 15), Share::new(4, 1, 15), Share::new(5, 10, 15)].map(Option::unwrap);
        let mut counts = [0; 3];
        for number in 0..15_000 {
            let of: Vec<usize> = (0..3).filter(|share| shares[*share].has(id(number))).collect();
            assert_eq!(of.len(), 1, "{number} is in {of:?}");
            counts[of[0]] += 1;
        }
        for (count, expected) in counts.into_iter().zip([4_000, 1_000, 10_000]) {
            assert!(count * 10 > expected * 9 && count * 10 < expected * 11, "{counts:?}");
        }
        assert_eq!([Share::new(0, 1, 1), Share::new(0, 0, 4), Share::new(0, 1, 1_000)], [None; 3]);
    }
}
