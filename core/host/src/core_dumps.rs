//! Core dumps: files with all that a process had in its memory when it crashed, keys and passwords too.

use std::io;

use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Has no core dump written of this process from now on, nor of those that it starts. These may ask for some, up to the
/// limit that they could not exceed before: plugins do whose limit `core` says so.
///
/// A system that hands core dumps to a program (`kernel.core_pattern` begins with `|`) leaves it to that program to heed
/// this, as `systemd-coredump` does.
///
/// # Errors
/// None that is known of. The process may go on, and should say that dumps may have secrets in them.
pub fn forbid() -> io::Result<()> {
    let (_, highest) = getrlimit(Resource::RLIMIT_CORE)?;
    Ok(setrlimit(Resource::RLIMIT_CORE, 0, highest)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn none_are_written_unless_somebody_asks_again() {
        let (_, highest) = getrlimit(Resource::RLIMIT_CORE).unwrap();
        setrlimit(Resource::RLIMIT_CORE, highest, highest).unwrap();
        forbid().unwrap();
        assert_eq!(getrlimit(Resource::RLIMIT_CORE).unwrap(), (0, highest));
    }
}
