//! Descriptors that a process was started with.

use std::os::fd::RawFd;
use std::{fs, io};

use nix::unistd::close;

/// The last of the standard streams.
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
