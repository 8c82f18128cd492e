//! What the host is like: load, processors and memory, from three small files of the system.

use std::fs;

use disbatch_core::node::Stats;

/// What the system tells now. Of what it does not tell, or tells in a way that is not understood, nothing is known.
pub fn read() -> Stats {
    let file = |path| fs::read_to_string(path).unwrap_or_default();
    // Those of the host, as the load is, also where a DEN may use fewer.
    of_texts(&file("/proc/loadavg"), &file("/sys/devices/system/cpu/online"), &file("/proc/meminfo"))
}

fn of_texts(load: &str, cpus: &str, memory: &str) -> Stats {
    Stats {
        load: load.split_whitespace().next().and_then(|word| word.parse().ok()).filter(is_a_load),
        cpus: processors(cpus),
        memory: bytes(memory, "MemTotal"),
        memory_available: bytes(memory, "MemAvailable"),
    }
}

fn is_a_load(load: &f64) -> bool {
    load.is_finite() && *load >= 0.0
}

/// How many there are in a list of ranges: `0-3,8`.
fn processors(list: &str) -> Option<u64> {
    let number = |text: &str| text.parse::<u64>().ok();
    let length = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        number(last)?.checked_sub(number(first)?)?.checked_add(1)
    };
    list.trim().split(',').try_fold(0_u64, |sum, range| sum.checked_add(length(range)?))
}

/// A line of `/proc/meminfo`, which has units of 1024 bytes.
fn bytes(text: &str, name: &str) -> Option<u64> {
    let value = |line: &str| {
        let (found, value) = line.split_once(':')?;
        let kibibytes = value.trim().strip_suffix("kB").filter(|_| found == name)?;
        kibibytes.trim_end().parse::<u64>().ok()?.checked_mul(1024)
    };
    text.lines().find_map(value)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MEMORY: &str = "\
MemTotal:        8146872 kB
MemFree:          312044 kB
MemAvailable:    4012344 kB
Buffers:           12345 kB
HugePages_Total:       0
";

    #[test]
    fn what_linux_says_is_understood() {
        let stats = of_texts("0.52 0.58 0.59 1/967 12345\n", "0-3,8,10-11\n", MEMORY);
        let expected = Stats {
            load: Some(0.52),
            cpus: Some(7),
            memory: Some(8_146_872 * 1024),
            memory_available: Some(4_012_344 * 1024),
        };
        assert_eq!(stats, expected);
        assert_eq!(processors("0\n"), Some(1));
    }

    #[test]
    fn what_is_absent_or_odd_is_not_known() {
        assert_eq!(of_texts("", "", ""), Stats::default());
        let odd = "MemTotal: many kB\nMemAvailable: 99999999999999999999 kB\nMemTotal 5\n";
        assert_eq!(of_texts("NaN 1 1", "3-0", odd), Stats::default());
        assert_eq!(of_texts("-1", "0-18446744073709551615", "MemAvailable: 5"), Stats::default());
        for list in ["0-", "-1", "0-1-2", "a", ",", "0,,1"] {
            assert_eq!(processors(list), None, "{list}");
        }
    }

    #[test]
    fn this_host_tells_something() {
        let stats = read();
        assert!(stats.load.is_some() && stats.memory > stats.memory_available, "{stats:?}");
    }
}
