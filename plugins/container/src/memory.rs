//! Tells whether the kernel has killed something for want of memory, where the container engine does not tell:
//! with Podman on control groups of version 1 it never hears of it.

use std::fs;

/// Where the kernel counts that for the whole machine.
const COUNTERS: &str = "/proc/vmstat";

/// How often it has done so. `None`: it does not count.
pub fn kills() -> Option<u64> {
    count(&fs::read_to_string(COUNTERS).ok()?)
}

fn count(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_counter_is_found() {
        assert_eq!(count("nr_free_pages 5\noom_kill 3\ndrop_pagecache 0\n"), Some(3));
        assert_eq!(count("nr_free_pages 5\n"), None);
        assert_eq!(count("oom_kill x\n"), None);
    }
}
