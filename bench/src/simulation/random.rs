//! Random numbers that are the same in each run. SplitMix64.

#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The same seed gives the same numbers.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// From 0 up to, and without, 1.
    pub fn share(&mut self) -> f64 {
        let [.., a, b, c, d] = self.next().to_le_bytes();
        f64::from(u32::from_le_bytes([a, b, c, d])) / (f64::from(u32::MAX) + 1.0)
    }

    /// A time with this mean, as between things that happen at random.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -(1.0 - self.share()).ln() * mean
    }

    /// One of so many.
    pub fn below(&mut self, many: usize) -> usize {
        let many = u64::try_from(many).unwrap_or(u64::MAX).max(1);
        usize::try_from(self.next() % many).unwrap_or_default()
    }
}
