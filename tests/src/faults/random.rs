//! Random numbers that a seed repeats.

use std::time::Duration;

/// `SplitMix64`: small, and good enough to choose what breaks next.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Another sequence that depends on this one.
    pub fn split(&mut self) -> Self {
        Self(self.next())
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number from 0 up to `end`, without it; 0 if `end` is 0.
    pub fn below(&mut self, end: u64) -> u64 {
        self.next().checked_rem(end).unwrap_or(0)
    }

    /// An index of a slice of this length.
    pub fn index(&mut self, length: usize) -> usize {
        usize::try_from(self.below(length as u64)).unwrap_or(0)
    }

    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.index(items.len()))
    }

    pub fn between(&mut self, shortest: Duration, longest: Duration) -> Duration {
        let span = u64::try_from(longest.saturating_sub(shortest).as_millis()).unwrap_or(0);
        shortest + Duration::from_millis(self.below(span + 1))
    }

    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.index(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_repeats_its_sequence() {
        let sequence = |seed| {
            let mut random = Random::new(seed);
            let mut items: Vec<u32> = (0..20).collect();
            random.shuffle(&mut items);
            (items, random.between(Duration::from_secs(1), Duration::from_secs(2)))
        };
        assert_eq!(sequence(7), sequence(7));
        assert_ne!(sequence(7).0, sequence(8).0);
        assert_eq!(sequence(7).0.iter().sum::<u32>(), 190);
        assert_eq!(Random::new(1).pick::<u8>(&[]), None);
    }
}
