//! The processes of a task on this host: its runner, the runner's guard, the plugin and what that started.
//!
//! They are found by what they carry: the task's id in their command line, in `DISBATCH_TASK_ID`, or in the name of
//! the private folder that a warm runner and its guard are in while they have the task. So those of a runner that
//! an earlier DEN started are found too, and a process number that was used again is not mistaken for them. A runner need not be in
//! a folder for a task that is over in a moment: then it is the one that the task names, if it shows no other task. A warm
//! plugin carries the number of its runner, and does no other's work: it is found when the runner is dead. Where tasks
//! have control groups, what is in that of the task is found whatever it carries.
//!
//! Any user of the host can carry and be called what they like. So whose processes are not those of [`Ours`] are not
//! looked at, and only the DEN's own user has runners. Where that is root, plugins can become whom they like: then a mark
//! is enough.
//!
//! What runs in the container of a task carries the task's id as well, so a DEN that is root ends it with the task that it buries.

use std::io;
use std::path::{Path, PathBuf};

use disbatch_core::cgroup;
use disbatch_core::config::Config;
use disbatch_core::model::TaskId;
use disbatch_core::private_folder::PrivateFolder;
use disbatch_core::process::{is_out_of_sight, real_user, status_of};
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};

/// Whose processes and folders can be those of tasks, and where the control groups are. It is looked up once: to ask
/// the system for a user may take long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ours {
    /// The user of the DEN and of its runners.
    own: u32,
    /// The user whom plugins run as, if that is another one.
    pub plugins: Option<u32>,
    groups: Option<PathBuf>,
}

impl Ours {
    /// As configured; `plugins`: the user whom plugins run as, if that is another one.
    pub fn new(config: &Config, plugins: Option<u32>) -> Self {
        Self { own: Uid::current().as_raw(), plugins, groups: config.cgroup.clone() }
    }

    /// Those of `own`, and of `plugins` if that is another one, without control groups.
    #[cfg(test)]
    pub fn of(own: u32, plugins: Option<u32>) -> Self {
        Self { own, plugins, groups: None }
    }

    /// Whether what carries the mark of a task is believed: a plugin of root's may have become anybody.
    fn believes(&self, user: u32) -> bool {
        self.own == 0 || self.has(user)
    }

    /// Whether a process or a folder of this user can be a task's.
    pub fn has(&self, user: u32) -> bool {
        user == self.own || Some(user) == self.plugins
    }

    fn groups_of(&self, task: TaskId) -> Vec<PathBuf> {
        self.groups.as_ref().map(|folder| cgroup::of_task(folder, task)).unwrap_or_default()
    }
}

/// Whose processes are looked for. This one is never among them.
#[derive(Debug, Clone, Copy)]
pub struct Wanted<'a> {
    pub task: TaskId,
    pub runner: Option<i32>,
    /// Processes that are not its own, whatever they carry.
    pub except: &'a [u32],
    pub ours: &'a Ours,
}

impl<'a> Wanted<'a> {
    /// All of `task` that can be found without knowing its runner.
    pub fn of(task: TaskId, ours: &'a Ours) -> Self {
        Self { task, runner: None, except: &[], ours }
    }

    /// What the environment of the runner's warm plugin has. None as long as there is a process of the runner's user with
    /// its number: it is the runner, whose guard looks after the plugin, or another one that has come after it.
    fn mark_of_warm(self) -> io::Result<Option<String>> {
        let Some(runner) = self.runner else { return Ok(None) };
        let process = PathBuf::from(format!("/proc/{runner}"));
        let is_gone = is_dead(&process)? || real_user(&process) != Some(self.ours.own);
        Ok(is_gone.then(|| format!("DISBATCH_RUNNER_PID={runner}")))
    }

    /// The control groups of the task: those that were made for it, and those of a warm plugin whose runner is dead, which
    /// are known by the plugin's `processes`.
    fn groups(self, processes: &[Pid]) -> Vec<PathBuf> {
        let mut groups = self.ours.groups_of(self.task);
        if let (Some(folder), Some(mark)) = (&self.ours.groups, self.mark_of_warm().ok().flatten()) {
            let of_warm = processes.iter().filter(|pid| carries(&place(**pid), &[Some(mark.clone())]));
            groups.extend(of_warm.filter_map(|pid| cgroup::of_process(folder, pid.as_raw())));
        }
        groups.sort_unstable();
        groups.dedup();
        groups
    }
}

fn place(process: Pid) -> PathBuf {
    PathBuf::from(format!("/proc/{process}"))
}

/// # Errors
/// The system does not tell: nobody knows whether there are any.
pub fn of_task(wanted: Wanted<'_>) -> io::Result<Vec<Pid>> {
    let marks = [Some(format!("DISBATCH_TASK_ID={}", wanted.task)), wanted.mark_of_warm()?];
    let id = wanted.task.to_string();
    let own = std::process::id();
    let is_left_out =
        |pid: i32| u32::try_from(pid).is_ok_and(|pid| pid == own || wanted.except.contains(&pid));
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let entry = entry?;
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let path = entry.path();
        if !is_left_out(pid)
            && !is_dead(&path)?
            && (belongs(&path, &id, &marks, wanted.ours) || is_silent_runner(pid, &path, wanted))
        {
            found.push(Pid::from_raw(pid));
        }
    }
    // Whatever they have made of their marks.
    let groups = wanted.ours.groups_of(wanted.task);
    let grouped = groups.iter().flat_map(|group| cgroup::processes(group));
    for process in grouped.filter(|pid| !is_left_out(*pid)).map(Pid::from_raw) {
        if !is_dead(&place(process))? {
            found.push(process);
        }
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Kills the runners of a task, whose guards then kill the rest with more knowledge than there is here.
/// Returns how many processes of the task there were: 0 means that all are gone.
///
/// # Errors
/// As for [`of_task`].
pub fn kill_runners(wanted: Wanted<'_>) -> io::Result<usize> {
    let processes = of_task(wanted)?;
    let id = wanted.task.to_string();
    let runners = processes.iter().filter(|process| {
        let place = place(**process);
        is_runner(&place, &id, wanted.ours) || is_silent_runner(process.as_raw(), &place, wanted)
    });
    kill_these(wanted.task, runners);
    Ok(processes.len())
}

/// Kills everything that belongs to a task. Returns how many processes were there: 0 means that it is gone.
///
/// # Errors
/// As for [`of_task`].
pub fn kill_all(wanted: Wanted<'_>) -> io::Result<usize> {
    let processes = of_task(wanted)?;
    // First: nobody in them gets to start another process.
    for group in wanted.groups(&processes) {
        if let Err(error) = cgroup::kill(&group) {
            tracing::debug!(%error, group = %group.display(), "cannot kill a control group as a whole");
        }
    }
    kill_these(wanted.task, processes.iter());
    Ok(processes.len())
}

fn kill_these<'a>(task: TaskId, processes: impl Iterator<Item = &'a Pid>) {
    for process in processes {
        if let Err(error) = kill(*process, Signal::SIGKILL) {
            tracing::debug!(%error, %task, %process, "cannot kill a process of the task");
        }
    }
}

/// Asks a process to look at its task at once, if it still is a runner of `task`.
pub fn nudge(process: Pid, task: TaskId, ours: &Ours) {
    if is_runner(&place(process), &task.to_string(), ours)
        && let Err(error) = kill(process, Signal::SIGUSR1)
    {
        tracing::debug!(%error, %task, %process, "cannot tell the runner");
    }
}

/// Only our own runner expects the signal; it would end another.
fn is_runner(process: &Path, id: &str, ours: &Ours) -> bool {
    if real_user(process) != Some(ours.own) {
        return false;
    }
    let line = CommandLine::of(process);
    line.program().starts_with(b"dtr")
        && (line.words().skip_while(|word| *word != b"--task").nth(1) == Some(id.as_bytes())
            || (line.words().any(|word| word == b"--link") && is_in_folder(process, id)))
}

/// Whether it is the runner that the task names, and in the folder of no task. It has this one then, which is short or was when the
/// runner was stopped, or none any more: a runner whose DEN is gone ends when it has none. One of another living DEN is that DEN's.
fn is_silent_runner(pid: i32, process: &Path, wanted: Wanted<'_>) -> bool {
    if wanted.runner != Some(pid) || real_user(process) != Some(wanted.ours.own) {
        return false;
    }
    let line = CommandLine::of(process);
    let is_warm = line.program().starts_with(b"dtr") && line.words().any(|word| word == b"--link");
    is_warm
        && std::fs::read_link(process.join("cwd")).is_ok_and(|folder| folder == Path::new("/"))
        && !is_anothers(process)
}

fn is_anothers(process: &Path) -> bool {
    let Some(parent) = status_of(process, "PPid:").and_then(|parent| i32::try_from(parent).ok()) else {
        return true;
    };
    let is_own = u32::try_from(parent).is_ok_and(|parent| parent == std::process::id());
    !is_own && CommandLine::of(&place(Pid::from_raw(parent))).program() == b"den"
}

fn belongs(process: &Path, id: &str, marks: &[Option<String>], ours: &Ours) -> bool {
    let Some(user) = real_user(process).filter(|user| ours.believes(*user)) else { return false };
    (user == ours.own && is_named(process, id)) || carries(process, marks)
}

/// Whether it calls itself a runner of the task, or the guard of one.
fn is_named(process: &Path, id: &str) -> bool {
    let line = CommandLine::of(process);
    let is_ours = line.program().starts_with(b"dtr");
    (is_ours && is_in_folder(process, id))
        || ((is_ours || line.program().starts_with(b"task_runner"))
            && line.words().any(|word| word == id.as_bytes()))
}

fn carries(process: &Path, marks: &[Option<String>]) -> bool {
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

struct CommandLine(Vec<u8>);

impl CommandLine {
    fn of(process: &Path) -> Self {
        Self(std::fs::read(process.join("cmdline")).unwrap_or_default())
    }

    fn program(&self) -> &[u8] {
        let program = self.words().next().unwrap_or_default();
        program.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }

    fn words(&self) -> impl Iterator<Item = &[u8]> {
        self.0.split(|byte| *byte == 0)
    }
}

/// Whether only its exit status is left of a process.
fn is_dead(process: &Path) -> io::Result<bool> {
    let stat = match std::fs::read(process.join("stat")) {
        Err(error) if is_out_of_sight(&error) => return Ok(true),
        stat => stat?,
    };
    let stat = String::from_utf8_lossy(&stat);
    // PID (COMMAND) STATE ..., and the command may hold anything.
    Ok(stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with(['Z', 'X'])))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::fs;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command, Stdio};
    use std::time::{Duration, Instant};

    use bson::oid::ObjectId;
    use nix::sys::resource::{Resource, getrlimit, setrlimit};

    use super::*;

    fn ours() -> Ours {
        Ours::of(Uid::current().as_raw(), None)
    }

    /// As if somebody else had the DEN, and plugins ran as this user.
    fn anothers() -> Ours {
        let own = Uid::current().as_raw();
        Ours::of(own + 1, Some(own))
    }

    fn pid_of(child: &Child) -> Pid {
        Pid::from_raw(i32::try_from(child.id()).unwrap())
    }

    /// Waits until a child can be read: one that has only just been started has no command line for a moment.
    fn begun(child: Child) -> Child {
        let deadline = Instant::now() + Duration::from_secs(10);
        while fs::read(place(pid_of(&child)).join("cmdline")).unwrap().is_empty() {
            assert!(Instant::now() < deadline, "it has no command line");
            std::thread::yield_now();
        }
        child
    }

    fn end(mut child: Child) {
        child.kill().unwrap();
        child.wait().unwrap();
    }

    #[test]
    fn whoever_looks_like_a_process_of_a_task_is_believed_if_it_is_ours() {
        let task = TaskId(ObjectId::new());
        let mut marked = Command::new("sleep");
        let marked = begun(marked.arg("1000").env("DISBATCH_TASK_ID", task.to_string()).spawn().unwrap());
        let mut named = Command::new("/bin/sh");
        named.arg0("dtr").args(["-c", "read x", "--task", &task.to_string()]).stdin(Stdio::piped());
        let named = begun(named.spawn().unwrap());
        let found = |ours: &Ours| of_task(Wanted::of(task, ours)).unwrap();
        let (first, second) = (pid_of(&marked).min(pid_of(&named)), pid_of(&marked).max(pid_of(&named)));
        assert_eq!(found(&ours()), [first, second]);
        assert_eq!(found(&anothers()), [pid_of(&marked)], "no plugin is a runner");
        assert!(found(&Ours { plugins: None, ..anothers() }).is_empty());
        assert!(found(&Ours::of(0, None)).contains(&pid_of(&marked)), "a plugin of root's can be anybody's");
        nudge(pid_of(&named), task, &anothers());
        assert_eq!(kill_runners(Wanted::of(task, &anothers())).unwrap(), 1);
        end(marked);
        // It ends by itself when nothing more can come: no signal has ended it before.
        let mut named = named;
        drop(named.stdin.take());
        assert!(named.wait().unwrap().code().is_some());
    }

    #[test]
    fn a_name_that_is_no_text_hides_nobody() {
        let task = TaskId(ObjectId::new());
        let folder = tempfile::tempdir().unwrap();
        let program = folder.path().join(OsStr::from_bytes(b"s\xff) Z"));
        fs::write(&program, "#!/bin/sh\nread x\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let mut command = Command::new(&program);
        command.env("DISBATCH_TASK_ID", task.to_string()).stdin(Stdio::piped());
        let child = begun(command.spawn().unwrap());
        assert_eq!(of_task(Wanted::of(task, &ours())).unwrap(), [pid_of(&child)]);
        end(child);
    }

    #[test]
    fn what_is_in_the_control_group_of_a_task_is_its_whatever_it_carries() {
        let (task, other) = (TaskId(ObjectId::new()), TaskId(ObjectId::new()));
        let folder = tempfile::tempdir().unwrap();
        let groups = [task, other].map(|task| folder.path().join(cgroup::name("Ab3", 1, 1, Some(task))));
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        for group in &groups {
            fs::create_dir(group).unwrap();
        }
        fs::write(groups[0].join("cgroup.procs"), format!("{}\n", child.id())).unwrap();
        let ours = Ours { groups: Some(folder.path().to_owned()), ..ours() };
        assert!(of_task(Wanted::of(other, &ours)).unwrap().is_empty());
        assert_eq!(of_task(Wanted::of(task, &ours)).unwrap(), [pid_of(&child)]);
        let except = [child.id()];
        assert!(of_task(Wanted { except: &except, ..Wanted::of(task, &ours) }).unwrap().is_empty());
        assert_eq!(kill_all(Wanted::of(task, &ours)).unwrap(), 1);
        assert_eq!(fs::read_to_string(groups[0].join("cgroup.kill")).unwrap(), "1");
        assert!(!groups[1].join("cgroup.kill").exists());
        assert!(!child.wait().unwrap().success());
    }

    #[test]
    fn the_processes_of_a_task_are_found_and_killed_and_no_others() {
        let (task, other) = (TaskId(ObjectId::new()), TaskId(ObjectId::new()));
        let sleeper = |task: TaskId| {
            let mut command = Command::new("sleep");
            begun(command.arg("1000").env("DISBATCH_TASK_ID", task.to_string()).spawn().unwrap())
        };
        let (mut child, mut bystander) = (sleeper(task), sleeper(other));
        assert_eq!(
            of_task(Wanted::of(task, &ours())).unwrap(),
            [Pid::from_raw(i32::try_from(child.id()).unwrap())]
        );
        assert_eq!(kill_all(Wanted::of(task, &ours())).unwrap(), 1);
        assert!(!child.wait().unwrap().success());
        assert_eq!(kill_all(Wanted::of(task, &ours())).unwrap(), 0);
        assert_eq!(kill_all(Wanted::of(other, &ours())).unwrap(), 1);
        bystander.wait().unwrap();
    }

    #[test]
    fn a_warm_plugin_is_found_when_its_runner_is_dead() {
        let task = TaskId(ObjectId::new());
        let mut runner = Command::new("sleep").arg("1000").spawn().unwrap();
        let pid = i32::try_from(runner.id()).unwrap();
        let mut plugin = Command::new("sleep");
        plugin.arg("1000").env("DISBATCH_WARM", "1").env("DISBATCH_RUNNER_PID", pid.to_string());
        let mut plugin = begun(plugin.spawn().unwrap());
        let ours = ours();
        let wanted = Wanted { runner: Some(pid), ..Wanted::of(task, &ours) };
        assert!(of_task(wanted).unwrap().is_empty(), "it may do another task");
        runner.kill().unwrap();
        runner.wait().unwrap();
        assert_eq!(kill_all(wanted).unwrap(), 1);
        plugin.wait().unwrap();
        assert_eq!(kill_all(wanted).unwrap(), 0);
    }

    #[test]
    fn a_runner_in_no_folder_is_that_of_the_task_that_names_it() {
        let task = TaskId(ObjectId::new());
        let runner = |word: &str, folder: &Path| {
            let mut command = Command::new("/bin/sh");
            command.arg0("dtr").args(["-c", "read x", word, "0"]).stdin(Stdio::piped()).current_dir(folder);
            begun(command.spawn().unwrap())
        };
        let (ours, elsewhere) = (ours(), tempfile::tempdir().unwrap());
        let wanted =
            |child: &Child| Wanted { runner: Some(pid_of(child).as_raw()), ..Wanted::of(task, &ours) };
        let (warm, other) = (runner("--link", Path::new("/")), runner("--task", Path::new("/")));
        let away = runner("--link", elsewhere.path());
        assert_eq!(of_task(wanted(&warm)).unwrap(), [pid_of(&warm)]);
        assert!(
            of_task(Wanted { except: &[warm.id()], ..wanted(&warm) }).unwrap().is_empty(),
            "it has another task"
        );
        assert!(of_task(Wanted::of(task, &ours)).unwrap().is_empty(), "the task does not name it");
        for others in [&other, &away] {
            assert!(of_task(wanted(others)).unwrap().is_empty(), "it works on something else");
        }
        assert_eq!(kill_runners(wanted(&warm)).unwrap(), 1);
        let mut warm = warm;
        assert!(!warm.wait().unwrap().success());
        end(other);
        end(away);
    }

    #[test]
    fn a_runner_of_another_den_is_left_alone() {
        let task = TaskId(ObjectId::new());
        let script =
            "import os; os.chdir('/'); os.execv('/bin/sh', ['dtr', '-c', 'sleep 1000; :', '--link', '0'])";
        let mut den = Command::new("/bin/sh");
        den.arg0("den").args(["-c", "python3 -c \"$0\" & echo $!; wait", script]).process_group(0);
        let mut den = den.stdout(Stdio::piped()).spawn().unwrap();
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(den.stdout.take().unwrap()), &mut line)
            .unwrap();
        let pid: i32 = line.trim().parse().unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while CommandLine::of(&place(Pid::from_raw(pid))).program() != b"dtr" {
            assert!(Instant::now() < deadline, "it has not become a runner");
            std::thread::yield_now();
        }
        let ours = ours();
        assert!(of_task(Wanted { runner: Some(pid), ..Wanted::of(task, &ours) }).unwrap().is_empty());
        nix::sys::signal::killpg(pid_of(&den), Signal::SIGKILL).unwrap();
        den.wait().unwrap();
    }

    #[test]
    fn what_cannot_be_seen_is_not_taken_for_gone() {
        let task = TaskId(ObjectId::new());
        let ours = ours();
        let wanted = Wanted { runner: Some(Pid::this().as_raw()), ..Wanted::of(task, &ours) };
        let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
        setrlimit(Resource::RLIMIT_NOFILE, 0, hard).unwrap();
        let found = [of_task(wanted).map(drop), of_task(Wanted::of(task, &ours)).map(drop)];
        let killed = [kill_all(wanted), kill_runners(wanted)];
        setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
        assert!(found.iter().all(Result::is_err), "{found:?}");
        assert!(killed.iter().all(Result::is_err), "{killed:?}");
        assert_eq!(kill_all(wanted).unwrap(), 0);
    }

    #[test]
    fn a_process_number_that_belongs_to_something_else_is_left_alone() {
        let mut bystander = Command::new("sleep").arg("1000").spawn().unwrap();
        nudge(pid_of(&bystander), TaskId(ObjectId::new()), &ours());
        assert!(bystander.try_wait().unwrap().is_none(), "SIGUSR1 would have ended it");
        bystander.kill().unwrap();
        bystander.wait().unwrap();
    }
}
