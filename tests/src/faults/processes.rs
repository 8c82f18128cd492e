//! The processes of this suite: they carry its folder in their environment.

use std::path::Path;

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// The variable that all processes of a world inherit.
pub const MARK: &str = "DISBATCH_FAULTS";

/// What a process is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Den,
    /// A DCI.
    Web,
    Runner,
    Guard,
    Plugin,
    /// What runs a plugin with other means.
    Adapter,
    Other,
}

/// A living process.
#[derive(Debug, Clone)]
pub struct Process {
    pub pid: Pid,
    pub kind: Kind,
    /// Its command line.
    pub line: Vec<String>,
}

impl Process {
    /// Sends it a signal. It may have ended meanwhile.
    pub fn signal(&self, signal: Signal) {
        let _ended = kill(self.pid, signal);
    }

    pub fn is_runner_of(&self, node: &str) -> bool {
        self.kind == Kind::Runner
            && self.line.iter().skip_while(|word| *word != "--node").nth(1).is_some_and(|name| name == node)
    }
}

/// The living processes of the world in `folder`.
pub fn all(folder: &Path) -> Vec<Process> {
    let mark = format!("{MARK}={}", folder.display()).into_bytes();
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(Result::ok)
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
        .filter(|(_, path)| carries(path, &mark) && is_alive(path))
        .map(|(pid, path)| {
            let line = line_of(&path);
            Process { pid: Pid::from_raw(pid), kind: kind_of(&path, &line), line }
        })
        .collect()
}

pub fn of_kind(folder: &Path, kind: Kind) -> Vec<Process> {
    all(folder).into_iter().filter(|process| process.kind == kind).collect()
}

fn carries(process: &Path, mark: &[u8]) -> bool {
    let environment = std::fs::read(process.join("environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|entry| entry == mark)
}

/// Not one of which only the exit status is left.
fn is_alive(process: &Path) -> bool {
    stat(process).first().is_some_and(|state| !["Z", "X"].contains(&state.as_str()))
}

/// What `/proc/PID/stat` says after the command: state, parent, process group, session ...
fn stat(process: &Path) -> Vec<String> {
    let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
    // The command is in parentheses and may hold anything.
    let fields = stat.rsplit_once(") ").map_or("", |(_, fields)| fields);
    fields.split_ascii_whitespace().map(str::to_owned).collect()
}

/// A runner leads a session of its own. A copy of it that is about to become its guard does not, and
/// neither does one that has just begun.
fn leads_session(process: &Path) -> bool {
    let pid = process.file_name().map(|name| name.to_string_lossy().into_owned());
    stat(process).get(3) == pid.as_ref()
}

fn line_of(process: &Path) -> Vec<String> {
    let line = std::fs::read(process.join("cmdline")).unwrap_or_default();
    let words = line.split(|byte| *byte == 0).filter(|word| !word.is_empty());
    words.map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

fn kind_of(process: &Path, line: &[String]) -> Kind {
    let program = std::fs::read_link(process.join("exe")).unwrap_or_default();
    let name = program.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    match name.trim_end_matches(" (deleted)") {
        "den" => Kind::Den,
        "dci" => Kind::Web,
        "dtr" if line.get(1).is_some_and(|word| word == "guard") => Kind::Guard,
        "dtr" if leads_session(process) => Kind::Runner,
        "disbatch-faults-plugin" | "disbatch-plugin-notify" => Kind::Plugin,
        "disbatch-http" | "disbatch-container" => Kind::Adapter,
        _ => Kind::Other,
    }
}
