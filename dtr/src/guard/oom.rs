//! Tells whether the kernel has killed something for want of memory.

use std::fs;
use std::path::PathBuf;

/// The kernel's counter of such kills: that of our control group, or that of the whole machine where the
/// group has none.
#[derive(Debug)]
pub struct OomKills {
    file: PathBuf,
    at_first: u64,
}

impl OomKills {
    /// Notes where the counter stands now. `None` where there is no such counter.
    pub fn now() -> Option<Self> {
        let group = fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| events_file(&text));
        let files = group.into_iter().chain([PathBuf::from("/proc/vmstat")]);
        files.into_iter().find_map(|file| {
            let at_first = count(&fs::read_to_string(&file).ok()?)?;
            Some(Self { file, at_first })
        })
    }

    /// Whether it has gone up since.
    pub fn more(&self) -> bool {
        let now = fs::read_to_string(&self.file).ok().and_then(|text| count(&text));
        now.is_some_and(|now| now > self.at_first)
    }
}

/// Where control groups of version 2 count, by the text of `/proc/self/cgroup`.
fn events_file(groups: &str) -> Option<PathBuf> {
    let group = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    Some(PathBuf::from("/sys/fs/cgroup").join(group).join("memory.events"))
}

fn count(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("oom_kill ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn the_counter_is_found() {
        assert_eq!(
            events_file("4:memory:/x\n0::/system.slice/den.service\n").as_deref(),
            Some(Path::new("/sys/fs/cgroup/system.slice/den.service/memory.events"))
        );
        assert_eq!(events_file("4:memory:/x\n"), None);
        assert_eq!(count("low 0\nhigh 0\noom 4\noom_kill 3\noom_group_kill 1\n"), Some(3));
        assert_eq!(count("nr_free_pages 5\n"), None);
    }

    #[test]
    fn only_a_rise_counts() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("memory.events");
        fs::write(&file, "oom_kill 3\n").unwrap();
        let kills = OomKills { file: file.clone(), at_first: 3 };
        assert!(!kills.more());
        fs::write(&file, "oom_kill 4\n").unwrap();
        assert!(kills.more());
    }
}
