//! A plugin that says when it began: it writes the time, CLOCK_REALTIME in nanoseconds, to the named pipe that is
//! its argument. Small, because its start is part of what is measured.

use std::fs::OpenOptions;
use std::io::Write;
use std::process::ExitCode;

use nix::time::{ClockId, clock_gettime};

fn main() -> ExitCode {
    match clock_gettime(ClockId::CLOCK_REALTIME).map_err(Into::into).and_then(tell) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE, // The benchmark looks at the status.
    }
}

fn tell(now: nix::sys::time::TimeSpec) -> std::io::Result<()> {
    let pipe = std::env::args_os().nth(1).ok_or(std::io::ErrorKind::InvalidInput)?;
    let line = format!("{}{:09}\n", now.tv_sec(), now.tv_nsec());
    OpenOptions::new().write(true).open(pipe)?.write_all(line.as_bytes())
}
