//! One of the processes that `disbatch dev` runs, with its log in a file.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use disbatch_mongod::watchdog::Watchdog;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{AccessFlags, Pid, access};
use tokio::process::{Child, Command};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::console::{Colour, Console};

/// How long a process may take to end after each signal, before the next.
const GRACE: [(Signal, Duration); 2] =
    [(Signal::SIGTERM, Duration::from_secs(10)), (Signal::SIGTERM, Duration::from_secs(5))];

/// A running process, which does not outlive this one.
#[derive(Debug)]
pub struct Process {
    name: &'static str,
    child: Child,
    pid: Pid,
    watchdog: Watchdog,
    follower: Follower,
    log: PathBuf,
}

impl Process {
    /// Starts the program `name` with `--config CONFIG` and `arguments`; its output goes to `log` and, with
    /// its name in front, to the console.
    pub fn start(
        name: &'static str,
        (config, arguments): (&Path, &[&str]),
        log: PathBuf,
        (console, colour): (&Console, Colour),
    ) -> anyhow::Result<Self> {
        let program = find_program(name)?;
        if log.exists() {
            fs::rename(&log, log.with_extension("log.1")).context("cannot rename the old log")?;
        }
        let cannot_log = || format!("cannot write {}", log.display());
        let output = File::create(&log).with_context(cannot_log)?;
        let mut command = Command::new(&program);
        command.arg("--config").arg(config).args(arguments);
        // A file, not a pipe: runners write to it too, and go on should we be killed.
        command.stdin(Stdio::null()).stdout(output.try_clone().with_context(cannot_log)?).stderr(output);
        // A ^C in the terminal is for us alone; we stop the others in order.
        command.process_group(0);
        let child = command.spawn().with_context(|| format!("cannot start {}", program.display()))?;
        let id = child.id().with_context(|| format!("{name} ended at once"))?;
        let watchdog = Watchdog::start(id, config.as_os_str(), None).context("cannot start sh")?;
        let follower = Follower::start(console.clone(), console.paint(colour, name), log.clone());
        let pid = Pid::from_raw(i32::try_from(id)?);
        Ok(Self { name, child, pid, watchdog, follower, log })
    }

    /// Resolves when the process ends without having been told to, which is an error.
    pub async fn death(&mut self) -> anyhow::Error {
        match self.child.wait().await {
            Ok(status) => anyhow::anyhow!(
                "{} ended ({}): {} (log: {})",
                self.name,
                in_words(status),
                last_line(&self.log).as_deref().unwrap_or("without a word"),
                self.log.display()
            ),
            Err(error) => anyhow::Error::new(error).context(format!("cannot wait for {}", self.name)),
        }
    }

    /// Ends the process: SIGTERM, once more after 10 seconds, SIGKILL after another five.
    pub async fn stop(mut self) {
        for (signal, grace) in GRACE {
            if matches!(self.child.try_wait(), Ok(None)) {
                // It may end in this moment.
                let _ = kill(self.pid, signal);
            }
            if tokio::time::timeout(grace, self.child.wait()).await.is_ok() {
                break;
            }
        }
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill().await;
        }
        self.watchdog.release();
        self.follower.stop().await;
    }
}

fn in_words(status: ExitStatus) -> String {
    match (status.code(), status.signal()) {
        (Some(code), _) => format!("exit status {code}"),
        (None, Some(signal)) => format!("signal {signal}"),
        (None, None) => status.to_string(),
    }
}

fn last_line(log: &Path) -> Option<String> {
    let bytes = fs::read(log).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    text.lines().rev().map(str::trim).find(|line| !line.is_empty()).map(str::to_owned)
}

/// The program beside this one, else the one on `PATH`.
fn find_program(name: &str) -> anyhow::Result<PathBuf> {
    let here = std::env::current_exe().context("cannot tell where this program is")?;
    let beside = here.parent().unwrap_or(Path::new("/"));
    match find_in(beside, std::env::var_os("PATH").as_deref(), name) {
        Some(path) => Ok(path),
        None => bail!("there is no '{name}' in {} nor on PATH", beside.display()),
    }
}

fn find_in(beside: &Path, path: Option<&OsStr>, name: &str) -> Option<PathBuf> {
    let folders = path.into_iter().flat_map(std::env::split_paths);
    std::iter::once(beside.to_owned())
        .chain(folders)
        .map(|folder| folder.join(name))
        .find(|file| file.is_file() && access(file, AccessFlags::X_OK).is_ok())
}

const INTERVAL: Duration = Duration::from_millis(100);

/// Follows one log in the background.
#[derive(Debug)]
pub struct Follower {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Follower {
    /// Prints every line of `log`, from its start, with `label` in front.
    pub fn start(console: Console, label: String, log: PathBuf) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(follow(console, label, log, stop.clone()));
        Self { stop, task }
    }

    /// Prints what is left and ends.
    pub async fn stop(self) {
        self.stop.cancel();
        // It fails only if it panicked, and then there is nothing more to show.
        let _ = self.task.await;
    }
}

async fn follow(console: Console, label: String, log: PathBuf, stop: CancellationToken) {
    let Ok(mut file) = File::open(&log) else { return };
    let mut interval = tokio::time::interval(INTERVAL);
    let mut rest = Vec::new();
    let mut stopping = false;
    while !stopping {
        tokio::select! {
            _ = interval.tick() => {}
            () = stop.cancelled() => stopping = true,
        }
        if file.read_to_end(&mut rest).is_err() {
            return;
        }
        for line in complete_lines(&mut rest) {
            console.line(&format!("{label} | {line}"));
        }
    }
    if !rest.is_empty() {
        console.line(&format!("{label} | {}", String::from_utf8_lossy(&rest)));
    }
}

/// Takes the lines that have an end out of `bytes`.
fn complete_lines(bytes: &mut Vec<u8>) -> Vec<String> {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |position| position + 1);
    let complete: Vec<u8> = bytes.drain(..end).collect();
    String::from_utf8_lossy(&complete).lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_are_found_beside_this_one_and_on_the_path() {
        let shell = find_in(Path::new("/nowhere"), Some(OsStr::new("/nowhere:/bin")), "sh");
        assert_eq!(shell, Some("/bin/sh".into()));
        assert_eq!(find_in(Path::new("/bin"), None, "sh"), Some("/bin/sh".into()));
        assert_eq!(find_in(Path::new("/"), Some(OsStr::new("/")), "bin"), None);
        let error = find_program("no-such-program").unwrap_err().to_string();
        assert!(error.starts_with("there is no 'no-such-program' in /"), "{error}");
    }

    #[test]
    fn an_end_is_told_in_words() {
        assert_eq!(in_words(ExitStatus::from_raw(2 << 8)), "exit status 2");
        assert_eq!(in_words(ExitStatus::from_raw(9)), "signal 9");
    }

    #[test]
    fn a_line_waits_for_its_end() {
        let mut bytes = b"one\ntwo\nthr".to_vec();
        assert_eq!(complete_lines(&mut bytes), ["one", "two"]);
        assert!(complete_lines(&mut bytes).is_empty());
        bytes.extend(b"ee\n");
        assert_eq!(complete_lines(&mut bytes), ["three"]);
        assert!(bytes.is_empty());
    }
}
