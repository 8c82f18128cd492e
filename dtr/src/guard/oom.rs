//! Tells whether the kernel has killed something for want of memory.

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant};

/// A look costs as much as some plugins do, so what was seen so recently counts as seen now.
const RECENT: Duration = Duration::from_secs(1);

/// The kernel's counter of such kills: that of our control group, or that of the whole machine where the
/// group has none.
#[derive(Debug)]
pub struct OomKills {
    file: PathBuf,
    seen: u64,
    at: Instant,
}

impl OomKills {
    /// Notes where the counter stands now. `None` where there is no such counter.
    pub fn now() -> Option<Self> {
        let group = fs::read_to_string("/proc/self/cgroup").ok().and_then(|text| events_file(&text));
        let files = group.into_iter().chain([PathBuf::from("/proc/vmstat")]);
        files.into_iter().find_map(|file| {
            let seen = count(&fs::read_to_string(&file).ok()?)?;
            Some(Self { file, seen, at: Instant::now() })
        })
    }

    /// Notes again where it stands, unless that is known.
    pub fn note(&mut self) {
        if self.at.elapsed() > RECENT {
            self.more();
        }
    }

    /// Whether it has gone up since it was noted. That is noted, too.
    pub fn more(&mut self) -> bool {
        let now = fs::read_to_string(&self.file).ok().and_then(|text| count(&text));
        let more = now.is_some_and(|now| now > self.seen);
        self.seen = now.unwrap_or(self.seen);
        self.at = Instant::now();
        more
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
    fn only_a_rise_counts_and_only_once() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("memory.events");
        fs::write(&file, "oom_kill 3\n").unwrap();
        let mut kills = OomKills { file: file.clone(), seen: 3, at: Instant::now() };
        assert!(!kills.more());
        fs::write(&file, "oom_kill 4\n").unwrap();
        assert!(kills.more());
        assert!(!kills.more());
    }
}
