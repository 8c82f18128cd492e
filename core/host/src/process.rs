//! What a process does before anything else: it lets go of what it was started with, and keeps its memory to itself. And what the system
//! says of others.

use std::os::fd::RawFd;
use std::path::Path;
use std::time::Duration;
use std::{fs, io, thread};

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use nix::unistd::close;
use tokio::runtime::{Builder, Runtime};

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

/// A runtime on the thread that asks. It has another thread for what blocks from the beginning, and keeps it: where no more can be started, what
/// blocks waits for that one. Without any, it would panic.
///
/// # Errors
/// Threads cannot be started at this moment.
pub fn runtime() -> io::Result<Runtime> {
    let runtime = Builder::new_current_thread().enable_all().thread_keep_alive(Duration::MAX).build()?;
    // The runtime would not say that there can be none.
    let _ended = thread::Builder::new().spawn(|| ())?.join();
    drop(runtime.spawn_blocking(|| ()));
    Ok(runtime)
}

/// Whether what was to be read of a process is not there, or not for us to see: it is gone, or another user's. Other errors (too many files are
/// open, there is no memory) say nothing of it.
pub fn is_out_of_sight(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
        || error.raw_os_error() == Some(Errno::ESRCH as i32)
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
    use tokio::task::spawn_blocking;

    use super::*;

    #[test]
    fn what_blocks_is_done_where_no_more_threads_can_be_started() {
        let runtime = runtime().unwrap();
        let kibibytes = u64::from(status_of(Path::new("/proc/self"), "VmSize:").unwrap());
        let (soft, hard) = getrlimit(Resource::RLIMIT_AS).unwrap();
        // There is room for small things, and not for the stack of a thread.
        setrlimit(Resource::RLIMIT_AS, (kibibytes + 1024) * 1024, hard).unwrap();
        let refused = thread::Builder::new().stack_size(1 << 26).spawn(|| ()).map(drop);
        let done = runtime.block_on(async { tokio::join!(spawn_blocking(|| 1), spawn_blocking(|| 2)) });
        setrlimit(Resource::RLIMIT_AS, soft, hard).unwrap();
        assert_eq!(refused.unwrap_err().kind(), io::ErrorKind::WouldBlock);
        assert_eq!((done.0.unwrap(), done.1.unwrap()), (1, 2));
    }

    #[test]
    fn none_are_written_unless_somebody_asks_again() {
        let (_, highest) = getrlimit(Resource::RLIMIT_CORE).unwrap();
        setrlimit(Resource::RLIMIT_CORE, highest, highest).unwrap();
        forbid_core_dumps().unwrap();
        assert_eq!(getrlimit(Resource::RLIMIT_CORE).unwrap(), (0, highest));
    }
}
