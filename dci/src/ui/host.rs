//! What the host of a node is like, for people.

use disbatch_core::node::Stats;

use crate::ui::parts::bytes;

/// How busy its processors are.
pub fn load(stats: &Stats) -> String {
    match (stats.load, stats.cpus) {
        (Some(load), Some(cpus)) => format!("{load:.2} of {cpus}"),
        (Some(load), None) => format!("{load:.2}"),
        (None, _) => String::new(),
    }
}

/// How much of its memory is in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Memory {
    /// The part of it.
    pub percent: u64,
    /// As people say it.
    pub words: String,
}

impl Memory {
    /// What the host says, if it does.
    pub fn of(stats: &Stats) -> Option<Self> {
        let all = stats.memory.filter(|all| *all > 0)?;
        let used = all.saturating_sub(stats.memory_available?);
        let percent = u64::try_from(u128::from(used) * 100 / u128::from(all)).unwrap_or(100);
        Some(Self { percent, words: format!("{} of {}", bytes(used), bytes(all)) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_is_told_as_far_as_it_is_known() {
        let known = Stats {
            load: Some(1.256),
            cpus: Some(4),
            memory: Some(8 << 30),
            memory_available: Some(2 << 30),
        };
        assert_eq!(load(&known), "1.26 of 4");
        assert_eq!(Memory::of(&known), Some(Memory { percent: 75, words: "6.0 GiB of 8.0 GiB".into() }));
        assert_eq!(load(&Stats { cpus: None, ..known }), "1.26");
        assert_eq!(load(&Stats::default()), "");
        for odd in [Stats { memory: Some(0), ..known }, Stats { memory_available: None, ..known }] {
            assert_eq!(Memory::of(&odd), None);
        }
    }
}
