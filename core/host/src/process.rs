//! What a process does before anything else: it lets go of what it was started with, and keeps its memory to itself. And what the system
//! says of others.

use std::os::fd::RawFd;
use std::path::Path;
use std::{fs, io};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::close;

const STDERR: RawFd = 2;

/// Closes all descriptors above the standard streams, but for those that are `kept`: whoever has started this process may
/// have had files open that what it starts must not have. Only for the start of a process, before it has opened anything.
pub fn close_inherited(kept: &[RawFd]) -> io::Result<()> {
    let mut open: Vec<RawFd> = Vec::new();
    for entry in fs::read_dir("/proc/self/fd")? {
        open.extend(entry?.file_name().to_str().and_then(|number| number.parse::<RawFd>().ok()));
    }
    for number in open.into_iter().filter(|number| *number > STDERR && !kept.contains(number)) {
        // By now, there is none with the number of the folder itself.
        let _was_open = close(number);
    }
    Ok(())
}

/// Has no core dump written of this process from now on, nor of those that it starts: it would have all that was in memory, keys and
/// passwords too. These may ask for some, up to the limit that they could not exceed before: plugins do whose limit `core` says so.
///
/// A system that hands core dumps to a program (`kernel.core_pattern` begins with `|`) leaves it to that program to heed
/// this, as `systemd-coredump` does.
///
/// # Errors
/// None that is known of. The process may go on, and should say that dumps may have secrets in them.
pub fn forbid_core_dumps() -> io::Result<()> {
    let (_, highest) = getrlimit(Resource::RLIMIT_CORE)?;
    Ok(setrlimit(Resource::RLIMIT_CORE, 0, highest)?)
}

/// The user who has started a process, by its folder in `/proc`, whatever rights it has got since.
pub fn real_user(process: &Path) -> Option<u32> {
    status_of(process, "Uid:")
}

/// The first number behind this word of a process's status. The name of its program, which is there too, need not be text.
pub fn status_of(process: &Path, word: &str) -> Option<u32> {
    let status = fs::read(process.join("status")).ok()?;
    let status = String::from_utf8_lossy(&status);
    status.lines().find_map(|line| line.strip_prefix(word)?.split_ascii_whitespace().next()?.parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_are_written_unless_somebody_asks_again() {
        let (_, highest) = getrlimit(Resource::RLIMIT_CORE).unwrap();
        setrlimit(Resource::RLIMIT_CORE, highest, highest).unwrap();
        forbid_core_dumps().unwrap();
        assert_eq!(getrlimit(Resource::RLIMIT_CORE).unwrap(), (0, highest));
    }
}
