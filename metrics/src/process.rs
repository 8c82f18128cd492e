//! What the system tells of this process, under the names that Prometheus's own libraries use.

use std::fs;

use rustix::param::{clock_ticks_per_second, page_size};
use rustix::process::{Resource, getrlimit};

/// The fields of `/proc/self/stat` behind the name of the program, which may have anything in it: the first is the state.
fn stat(field: usize) -> Option<f64> {
    let text = fs::read_to_string("/proc/self/stat").ok()?;
    text.rsplit_once(')')?.1.split_whitespace().nth(field)?.parse().ok()
}

#[expect(clippy::cast_precision_loss, reason = "a few hundred")]
fn ticks() -> f64 {
    clock_ticks_per_second() as f64
}

pub fn cpu_seconds() -> Option<f64> {
    Some((stat(11)? + stat(12)?) / ticks())
}

pub fn threads() -> Option<f64> {
    stat(17)
}

pub fn virtual_memory() -> Option<f64> {
    stat(20)
}

#[expect(clippy::cast_precision_loss, reason = "some thousands")]
pub fn resident_memory() -> Option<f64> {
    Some(stat(21)? * page_size() as f64)
}

pub fn start_time() -> Option<f64> {
    let system = fs::read_to_string("/proc/stat").ok()?;
    let booted: f64 = system.lines().find_map(|line| line.strip_prefix("btime "))?.trim().parse().ok()?;
    Some(booted + stat(19)? / ticks())
}

#[expect(clippy::cast_precision_loss, reason = "they are numbered with 32 bits")]
pub fn open_descriptors() -> Option<f64> {
    // One of them reads the folder.
    Some(fs::read_dir("/proc/self/fd").ok()?.count().saturating_sub(1) as f64)
}

#[expect(clippy::cast_precision_loss, reason = "they are numbered with 32 bits")]
pub fn most_descriptors() -> Option<f64> {
    Some(getrlimit(Resource::Nofile).current? as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_there() {
        let file = fs::File::open("/proc/self/stat").unwrap();
        let before = open_descriptors().unwrap();
        drop(file);
        assert_eq!(open_descriptors(), Some(before - 1.0));
        assert!(most_descriptors().unwrap() > before);
        assert!(threads().unwrap() >= 1.0 && cpu_seconds().unwrap() < 1000.0);
        let (resident, all) = (resident_memory().unwrap(), virtual_memory().unwrap());
        assert!(resident > 100_000.0 && all > resident, "{resident} of {all}");
        let number = |text: &str| text.split_whitespace().next().unwrap().parse::<f64>().unwrap();
        let system = fs::read_to_string("/proc/stat").unwrap();
        let booted = number(system.lines().find_map(|line| line.strip_prefix("btime ")).unwrap());
        let now = booted + number(&fs::read_to_string("/proc/uptime").unwrap());
        let age = now - start_time().unwrap();
        assert!((-2.0..3600.0).contains(&age), "{age}");
    }
}
