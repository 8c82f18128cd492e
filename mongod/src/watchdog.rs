//! Ends a process when the one that started it is gone, however that happened.
//!
//! A small shell waits on a pipe that only this process holds. When the pipe is closed without a word, the
//! shell ends the process. This works after SIGKILL too, and needs neither unsafe code nor the death signal
//! of Linux, which is bound to a thread.

use std::ffi::OsStr;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// The process is recognised by one of its arguments, so that nothing else dies should its id be reused.
const SCRIPT: &str = r#"
pid=$1 argument=$2 folder=$3
trap '' HUP INT TERM
alive() { { tr '\0' '\n' <"/proc/$pid/cmdline" | grep -qxF -e "$argument"; } 2>/dev/null; }
read -r _ && exit 0
alive && kill -TERM "$pid"
tries=0
while alive && [ "$tries" -lt 150 ]; do sleep 0.2; tries=$((tries + 1)); done
alive && kill -KILL "$pid"
[ -z "$folder" ] || rm -rf -- "$folder"
"#;

/// Watches until it is [released](Watchdog::release); dropping it ends the process.
#[derive(Debug)]
pub struct Watchdog(Child);

impl Watchdog {
    /// Ends process `pid`, one of whose arguments is exactly `argument`, when this process is gone: SIGTERM,
    /// and SIGKILL after 30 seconds. Then removes `folder`, if given.
    pub fn start(pid: u32, argument: &OsStr, folder: Option<&Path>) -> std::io::Result<Self> {
        let mut shell = Command::new("sh");
        shell.args(["-c", SCRIPT, "disbatch-watchdog", &pid.to_string()]).arg(argument);
        shell.arg(folder.map_or(OsStr::new(""), Path::as_os_str));
        shell.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).current_dir("/");
        // A ^C in the terminal is for the starter alone.
        shell.process_group(0);
        shell.spawn().map(Self)
    }

    /// Ends the watch; the process may live on.
    pub fn release(mut self) {
        if let Some(mut pipe) = self.0.stdin.take() {
            // Should the shell be gone already there is nobody to tell.
            let _ = pipe.write_all(b"released\n");
        }
        let _ = self.0.wait();
    }
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    fn sleeper(seconds: &str) -> Child {
        Command::new("sleep").arg(seconds).spawn().unwrap()
    }

    fn wait_for(child: &mut Child) -> std::process::ExitStatus {
        let deadline = Instant::now() + Duration::from_secs(20);
        loop {
            if let Some(status) = child.try_wait().unwrap() {
                return status;
            }
            assert!(Instant::now() < deadline, "the process still runs");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_dropped_watchdog_ends_the_process_and_removes_the_folder() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        std::fs::create_dir(&data).unwrap();
        let mut child = sleeper("61.25");
        drop(Watchdog::start(child.id(), OsStr::new("61.25"), Some(&data)).unwrap());
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&wait_for(&mut child)), Some(15));
        let deadline = Instant::now() + Duration::from_secs(20);
        while data.exists() {
            assert!(Instant::now() < deadline, "the folder is still there");
            std::thread::yield_now();
        }
    }

    #[test]
    fn a_released_watchdog_and_one_for_another_program_do_nothing() {
        let mut child = sleeper("61.5");
        Watchdog::start(child.id(), OsStr::new("61.5"), None).unwrap().release();
        let mut other = Watchdog::start(child.id(), OsStr::new("62"), None).unwrap();
        drop(other.0.stdin.take());
        other.0.wait().unwrap();
        assert!(child.try_wait().unwrap().is_none());
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
