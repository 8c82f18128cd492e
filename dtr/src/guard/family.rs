//! Finds the descendants of a process, wherever they have put themselves.

use std::collections::HashMap;
use std::fs;

use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::Pid;

/// The living descendants of `ancestor` at this moment, in no order. None if `/proc` cannot be read.
///
/// Whoever loses its parent stays a descendant only if `ancestor` is a child subreaper.
pub fn descendants(ancestor: Pid) -> Vec<Pid> {
    let mut children: HashMap<i32, Vec<(i32, bool)>> = HashMap::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        // It may be gone by now.
        let Ok(stat) = fs::read(entry.path().join("stat")) else { continue };
        let Some((state, parent)) = state_and_parent(&stat) else { continue };
        children.entry(parent).or_default().push((pid, !matches!(state, b'Z' | b'X')));
    }
    let mut found = Vec::new();
    let mut parents = vec![ancestor.as_raw()];
    while let Some(parent) = parents.pop() {
        for (pid, alive) in children.remove(&parent).into_iter().flatten() {
            parents.push(pid);
            if alive {
                found.push(Pid::from_raw(pid));
            }
        }
    }
    found
}

/// Removes ended children of this thread, which adopted them, from the system's table. Not `except`.
pub fn bury_adopted(except: Pid) {
    let children = fs::read_to_string("/proc/thread-self/children").unwrap_or_default();
    let children = children.split_ascii_whitespace().filter_map(|pid| pid.parse().ok()).map(Pid::from_raw);
    for child in children.filter(|child| *child != except) {
        let _alive_or_gone = waitpid(child, Some(WaitPidFlag::WNOHANG));
    }
}

/// The third and fourth field of `/proc/PID/stat`. The second is the program's name in parentheses, and may
/// hold anything.
fn state_and_parent(stat: &[u8]) -> Option<(u8, i32)> {
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(stat.get(name_end + 1..)?).ok()?;
    let mut fields = rest.split_ascii_whitespace();
    let state = *fields.next()?.as_bytes().first()?;
    Some((state, fields.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;

    #[test]
    fn names_cannot_confuse_it() {
        assert_eq!(state_and_parent(b"12 (a) R 1 (b\xff) S 7 12 12 0"), Some((b'S', 7)));
        assert_eq!(state_and_parent(b"12 (a)"), None);
        assert_eq!(state_and_parent(b""), None);
    }

    #[test]
    fn children_are_found_while_they_live() {
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = Pid::from_raw(child.id().try_into().unwrap());
        assert!(descendants(Pid::this()).contains(&pid));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!descendants(Pid::this()).contains(&pid));
    }
}
