//! The processes of a task on this host: its runner, the runner's guard, the plugin and what that started.
//!
//! They are found by what they carry: the task's id in their command line, in `DISBATCH_TASK_ID`, or in the name of
//! the private folder that a warm runner and its guard are in while they have the task. So those of a runner that
//! an earlier DEN started are found too, and a process number that was used again is not mistaken for them. A warm
//! plugin carries the number of its runner, and does no other's work: it is found when the runner is dead.

use std::path::Path;

use disbatch_core::model::TaskId;
use disbatch_core::private_folder::PrivateFolder;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Whose processes are looked for. This one is never among them.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    /// The task.
    pub task: TaskId,
    /// Its runner, as far as it is known.
    pub runner: Option<i32>,
    /// Processes that are not its own, whatever they carry.
    pub except: &'a [u32],
}

impl Wanted<'_> {
    /// All of `task` that can be found without knowing its runner.
    pub fn of(task: TaskId) -> Self {
        Self { task, runner: None, except: &[] }
    }

    /// What the environment of the runner's warm plugin has. None as long as there is a process with its number: it
    /// is the runner, whose guard looks after the plugin, or another one that has come after it.
    fn mark_of_warm(self) -> Option<String> {
        let runner = self.runner.filter(|pid| is_dead(Path::new(&format!("/proc/{pid}"))))?;
        Some(format!("DISBATCH_RUNNER_PID={runner}"))
    }
}

/// The processes that belong to a task.
pub fn of_task(wanted: Wanted<'_>) -> Vec<Pid> {
    let marks = [Some(format!("DISBATCH_TASK_ID={}", wanted.task)), wanted.mark_of_warm()];
    let id = wanted.task.to_string();
    let own = std::process::id();
    let is_left_out =
        |pid: i32| u32::try_from(pid).is_ok_and(|pid| pid == own || wanted.except.contains(&pid));
    let Ok(entries) = std::fs::read_dir("/proc") else { return Vec::new() };
    entries
        .filter_map(Result::ok)
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse::<i32>().ok()?, entry.path())))
        .filter(|(pid, path)| !is_left_out(*pid) && belongs(path, &id, &marks) && !is_dead(path))
        .map(|(pid, _)| Pid::from_raw(pid))
        .collect()
}

/// Kills the runners of a task, whose guards then kill the rest with more knowledge than there is here.
/// Returns how many processes of the task there were: 0 means that all are gone.
pub fn kill_runners(wanted: Wanted<'_>) -> usize {
    let processes = of_task(wanted);
    let id = wanted.task.to_string();
    let runners = processes.iter().filter(|process| is_runner(Path::new(&format!("/proc/{process}")), &id));
    kill_these(wanted.task, runners);
    processes.len()
}

/// Kills everything that belongs to a task. Returns how many processes were there: 0 means that it is gone.
pub fn kill_all(wanted: Wanted<'_>) -> usize {
    let processes = of_task(wanted);
    kill_these(wanted.task, processes.iter());
    processes.len()
}

fn kill_these<'a>(task: TaskId, processes: impl Iterator<Item = &'a Pid>) {
    for process in processes {
        if let Err(error) = kill(*process, Signal::SIGKILL) {
            tracing::debug!(%error, %task, %process, "cannot kill a process of the task");
        }
    }
}

/// Asks the runner `pid` to look at its task at once, if that process still is a runner of `task`.
pub fn nudge(pid: i32, task: TaskId) {
    let path = format!("/proc/{pid}");
    if is_runner(Path::new(&path), &task.to_string())
        && let Err(error) = kill(Pid::from_raw(pid), Signal::SIGUSR1)
    {
        tracing::debug!(%error, %task, pid, "cannot tell the runner");
    }
}

/// Only our own runner expects the signal; it would end another.
fn is_runner(process: &Path, id: &str) -> bool {
    let line = CommandLine::of(process);
    line.program().starts_with(b"dtr")
        && (line.words().skip_while(|word| *word != b"--task").nth(1) == Some(id.as_bytes())
            || (line.words().any(|word| word == b"--link") && is_in_folder(process, id)))
}

fn belongs(process: &Path, id: &str, marks: &[Option<String>]) -> bool {
    let line = CommandLine::of(process);
    let is_ours = line.program().starts_with(b"dtr");
    if is_ours && is_in_folder(process, id) {
        return true;
    }
    if (is_ours || line.program().starts_with(b"task_runner"))
        && line.words().any(|word| word == id.as_bytes())
    {
        return true;
    }
    // Of another user's process only root can read it. To anybody else such a process is none of ours to end either.
    let environment = std::fs::read(process.join("environ")).unwrap_or_default();
    let is_mark = |entry: &[u8]| marks.iter().flatten().any(|mark| mark.as_bytes() == entry);
    environment.split(|byte| *byte == 0).any(is_mark)
}

/// Whether a process is in the private folder of the task: a warm runner and its guard are, while they have it.
fn is_in_folder(process: &Path, id: &str) -> bool {
    let Ok(folder) = std::fs::read_link(process.join("cwd")) else { return false };
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    PrivateFolder::parse(name).and_then(|folder| folder.task).is_some_and(|task| task.to_string() == id)
}

/// What a process was started with.
struct CommandLine(Vec<u8>);

impl CommandLine {
    fn of(process: &Path) -> Self {
        Self(std::fs::read(process.join("cmdline")).unwrap_or_default())
    }

    /// The name of the program, without its folder.
    fn program(&self) -> &[u8] {
        let program = self.words().next().unwrap_or_default();
        program.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }

    fn words(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == 0)
    }
}

/// Whether only its exit status is left of a process.
fn is_dead(process: &Path) -> bool {
    let stat = std::fs::read_to_string(process.join("stat")).unwrap_or_default();
    // PID (COMMAND) STATE ..., and the command may hold anything.
    stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X']))
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use bson::oid::ObjectId;

    use super::*;

    #[test]
    fn the_processes_of_a_task_are_found_and_killed_and_no_others() {
        let (task, other) = (TaskId(ObjectId::new()), TaskId(ObjectId::new()));
        let sleeper = |task: TaskId| {
            Command::new("sleep").arg("1000").env("DISBATCH_TASK_ID", task.to_string()).spawn().unwrap()
        };
        let (mut child, mut bystander) = (sleeper(task), sleeper(other));
        assert_eq!(of_task(Wanted::of(task)), [Pid::from_raw(i32::try_from(child.id()).unwrap())]);
        assert_eq!(kill_all(Wanted::of(task)), 1);
        assert!(!child.wait().unwrap().success());
        assert_eq!(kill_all(Wanted::of(task)), 0);
        assert_eq!(kill_all(Wanted::of(other)), 1);
        bystander.wait().unwrap();
    }

    #[test]
    fn a_warm_plugin_is_found_when_its_runner_is_dead() {
        let task = TaskId(ObjectId::new());
        let mut runner = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = i32::try_from(runner.id()).unwrap();
        let mut plugin = Command::new("sleep")
            .arg("1000")
            .env("DISBATCH_WARM", "1")
            .env("DISBATCH_RUNNER_PID", pid.to_string())
            .spawn()
            .unwrap();
        let wanted = Wanted { runner: Some(pid), ..Wanted::of(task) };
        assert!(of_task(wanted).is_empty(), "it may do another task");
        runner.kill().unwrap();
        runner.wait().unwrap();
        assert_eq!(kill_all(wanted), 1);
        plugin.wait().unwrap();
        assert_eq!(kill_all(wanted), 0);
    }

    #[test]
    fn a_process_number_that_belongs_to_something_else_is_left_alone() {
        let mut bystander = Command::new("sleep").arg("1000").spawn().unwrap();
        nudge(i32::try_from(bystander.id()).unwrap(), TaskId(ObjectId::new()));
        assert!(bystander.try_wait().unwrap().is_none(), "SIGUSR1 would have ended it");
        bystander.kill().unwrap();
        bystander.wait().unwrap();
    }
}
