mod hiding;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

use disbatch_core::model::TaskId;
use disbatch_core::private_folder::PrivateFolder;
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::time::{sleep, timeout};

use super::protocol::Exit;
use super::*;
use crate::folder::Folder;
use crate::isolation::Environment;

/// Nothing here takes so long.
const DEADLINE: Duration = Duration::from_secs(30);

/// A runner may be silent for so long where that does not matter.
const PATIENT: Duration = Duration::from_secs(100);

/// Leaves processes in sessions of their own, with and without a parent.
const SPREADING: &str = "setsid sleep 1000 & (setsid sh -c 'sleep 1000 & exec sleep 1000' &)
    touch file; echo ready; exec sleep 1000";

/// A plugin with its guard, seen from the runner.
struct Plugin {
    guarded: Guarded,
    streams: Streams,
    folder: TempDir,
    task: TaskId,
}

/// What is needed to start `command` as a plugin of a new task.
fn request(command: &[&str]) -> (Spawn, TempDir, TaskId) {
    let task = TaskId(bson::oid::ObjectId::new());
    let folder = tempfile::Builder::new().prefix(&PrivateFolder::of(task, "").name()).tempdir().unwrap();
    let spawn = Spawn {
        until: boot_time() + PATIENT,
        program: command[0].into(),
        arguments: command[1..].iter().map(OsString::from).collect(),
        environment: Environment::of(vec![
            (TASK_VARIABLE.into(), task.to_string().into()),
            ("ADDED".into(), "a=b\nc".into()),
            ("PATH".into(), "/bin:/usr/bin".into()),
        ]),
        folder: folder.path().to_owned(),
        descriptors: 0,
        confinement: None,
        direct: None,
    };
    (spawn, folder, task)
}

impl Plugin {
    fn start(guard: &Guard, command: &[&str]) -> Self {
        let (spawn, folder, task) = request(command);
        let (guarded, streams) = guard.spawn(spawn).unwrap();
        Self { guarded, streams, folder, task }
    }

    fn script(guard: &Guard, script: &str) -> Self {
        Self::start(guard, &["/bin/sh", "-c", script])
    }

    /// Writes to its standard input, which is closed after that.
    async fn tell(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.streams.stdin.take().unwrap().write_all(bytes).await
    }

    async fn report(&mut self) -> Option<Report> {
        timeout(DEADLINE, self.guarded.report()).await.expect("a report is due")
    }

    async fn pid(&mut self) -> Pid {
        match self.report().await {
            Some(Report::Pid(pid)) => Pid::from_raw(pid),
            other => panic!("{other:?}"),
        }
    }

    /// The last report, and how the plugin ended.
    async fn exit(&mut self) -> (Exit, ExitStatus) {
        match self.report().await {
            Some(Report::Exited(exit)) => (exit, exit.exit_status()),
            other => panic!("{other:?}"),
        }
    }

    /// Waits for a line of the plugin's standard output.
    async fn line(&mut self) -> String {
        let mut line = Vec::new();
        while line.last() != Some(&b'\n') {
            line.push(timeout(DEADLINE, self.streams.stdout.read_u8()).await.unwrap().unwrap());
        }
        String::from_utf8(line).unwrap().trim_end().to_owned()
    }

    /// The rest of the plugin's standard output.
    async fn output(&mut self) -> String {
        let mut output = String::new();
        timeout(DEADLINE, self.streams.stdout.read_to_string(&mut output)).await.unwrap().unwrap();
        output
    }

    /// How many processes there are that the plugin's environment was passed to.
    fn family(&self) -> usize {
        let mark = format!("{TASK_VARIABLE}={}", self.task);
        let processes = fs::read_dir("/proc").unwrap().flatten();
        processes.filter(|entry| has_variable(&entry.path(), &mark)).count()
    }
}

fn has_variable(process: &Path, variable: &str) -> bool {
    let environment = fs::read(process.join("environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
}

fn runs(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with('Z'))
}

async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < until, "{what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// The process of a guard that has this plugin.
async fn guard_of(plugin: &mut Plugin) -> Pid {
    let pid = plugin.pid().await;
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let parent = status.lines().find_map(|line| line.strip_prefix("PPid:\t")).unwrap();
    Pid::from_raw(parent.parse().unwrap())
}

#[tokio::test]
async fn a_plugin_has_its_four_descriptors_and_no_others() {
    let guard = Guard::start(Settings::default()).unwrap();
    for _ in 0..3 {
        let mut plugin = Plugin::start(&guard, &["/bin/ls", "/proc/self/fd"]);
        plugin.pid().await;
        // That of the folder that is listed is the fifth. Whoever runs the tests may have left higher ones open.
        let mut numbers: Vec<u32> = plugin.output().await.lines().map(|line| line.parse().unwrap()).collect();
        numbers.retain(|number| *number < 6);
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2, 3, 4]);
        assert!(plugin.exit().await.1.success());
    }
}

#[tokio::test]
async fn a_plugin_has_its_streams_environment_folder_and_process_group() {
    let script =
        r#"cat; echo err >&2; echo control >&3; env; pwd; exec cat /proc/self/stat /proc/self/status"#;
    let guard = Guard::start(Settings::default()).unwrap();
    let mut plugin = Plugin::script(&guard, script);
    let pid = plugin.pid().await;
    plugin.tell(b"in\n").await.unwrap();
    let output = plugin.output().await;
    let mut lines: Vec<&str> = output.lines().collect();
    let status = lines.split_off(lines.iter().position(|line| line.contains("(cat)")).unwrap());
    assert_eq!(lines.first(), Some(&"in"));
    assert_eq!(lines.last(), plugin.folder.path().to_str().as_ref());
    assert!(lines.contains(&&*format!("{TASK_VARIABLE}={}", plugin.task)));
    assert!(lines.windows(2).any(|pair| pair == ["ADDED=a=b", "c"]), "{lines:?}");
    assert!(!lines.iter().any(|line| line.starts_with("HOME=")), "{lines:?}");
    let stat: Vec<&str> = status[0].split(' ').collect();
    assert_eq!([stat[0], stat[4]], [pid.to_string(), pid.to_string()], "its own group");
    let status: HashMap<_, _> = status[1..].iter().filter_map(|line| line.split_once(":\t")).collect();
    for signals in ["SigBlk", "SigCgt"] {
        assert_eq!(status[signals], "0000000000000000", "a plugin can be told to end");
    }
    assert_eq!(status["SigIgn"], own_status("SigIgn:\t"), "no signal is ignored for it");
    let [mut control, mut err] = [String::new(), String::new()];
    plugin.streams.control.read_to_string(&mut control).await.unwrap();
    plugin.streams.stderr.read_to_string(&mut err).await.unwrap();
    assert_eq!([control, err], ["control\n", "err\n"]);
    assert!(plugin.exit().await.1.success());
}

/// Something to put in the place of a pipe that is to be closed.
/// What a program sees that is started without a guard.
fn own_status(name: &str) -> String {
    let output = Command::new("cat").arg("/proc/self/status").output().unwrap();
    let status = String::from_utf8(output.stdout).unwrap();
    status.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned()
}

#[tokio::test]
async fn the_guard_keeps_no_stream_open() {
    let script = "read x; exec >&- 3>&- <&-; until [ -e go ]; do sleep 0.02; done";
    let guard = Guard::start(Settings::default()).unwrap();
    let mut plugin = Plugin::script(&guard, script);
    plugin.pid().await;
    let stdin = plugin.streams.stdin.take().unwrap().followed().unwrap();
    rustix::io::write(stdin.get_ref(), b"x\n").unwrap();
    assert_eq!(plugin.output().await, "");
    let mut control = String::new();
    timeout(DEADLINE, plugin.streams.control.read_to_string(&mut control)).await.unwrap().unwrap();
    assert!(plugin.family() > 0, "the plugin still runs");
    assert_eq!(rustix::io::write(stdin.get_ref(), b"x").unwrap_err(), Errno::PIPE);
    fs::write(plugin.folder.path().join("go"), "").unwrap();
    assert!(plugin.exit().await.1.success());
}

#[tokio::test]
async fn every_way_to_end_is_reported() {
    let guard = Guard::start(Settings::default()).unwrap();
    for (script, code, signal) in [
        ("exit 0", Some(0), None),
        ("exit 255", Some(255), None),
        ("kill -s SEGV $$", None, Some(11)),
        ("kill -s KILL $$", None, Some(9)),
        // A signal without a name.
        ("kill -40 $$", None, Some(40)),
    ] {
        let mut plugin = Plugin::script(&guard, script);
        plugin.pid().await;
        let (exit, status) = plugin.exit().await;
        assert_eq!((status.code(), status.signal()), (code, signal), "{script}");
        assert!(!exit.oom && !exit.ordered && !exit.lapsed, "{script}: {exit:?}");
        assert!(plugin.folder.path().exists(), "it belongs to the runner");
    }
}

#[tokio::test]
async fn what_each_plugin_used_is_reported() {
    let guard = Guard::start(Settings::default()).unwrap();
    let mut exits = Vec::new();
    for script in [
        "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done",
        "head -c 60000000 /dev/zero | tail -c 60000000 | wc -c",
        "true",
    ] {
        let mut plugin = Plugin::script(&guard, script);
        plugin.pid().await;
        exits.push(plugin.exit().await.0);
    }
    assert!(exits[0].cpu > Duration::from_millis(5), "{exits:?}");
    assert!(exits[0].duration > Duration::from_millis(5), "{exits:?}");
    assert!(exits[1].peak_memory > 50_000_000, "{exits:?}");
    assert!((200_000..30_000_000).contains(&exits[2].peak_memory), "{exits:?}");
    assert!(exits[2].cpu < exits[0].cpu, "{exits:?}");
}

#[tokio::test]
async fn what_cannot_be_executed_is_named_by_the_system() {
    let guard = Guard::start(Settings::default()).unwrap();
    for (program, error) in [
        ("/nonexistent/program", "No such file or directory (os error 2)"),
        ("/etc/passwd", "Permission denied (os error 13)"),
    ] {
        let mut plugin = Plugin::start(&guard, &[program]);
        assert_eq!(plugin.report().await, Some(Report::Error(error.to_owned())));
        assert_eq!(plugin.report().await, None);
    }
    let mut plugin = Plugin::script(&guard, "exit 4");
    plugin.pid().await;
    assert_eq!(plugin.exit().await.1.code(), Some(4), "the guard goes on");
}

#[tokio::test]
async fn a_plugin_is_not_started_after_its_time() {
    let guard = Guard::start(Settings::default()).unwrap();
    let (spawn, folder, _) = request(&["/bin/touch", "ran"]);
    let (mut guarded, _streams) = guard.spawn(Spawn { until: boot_time(), ..spawn }).unwrap();
    let expected = "the task's lease had run out before the plugin was started";
    assert_eq!(guarded.report().await, Some(Report::Error(expected.to_owned())));
    assert!(!folder.path().join("ran").exists());
}

#[tokio::test]
async fn a_plugin_lives_as_long_as_its_time_is_renewed() {
    let guard = Guard::start(Settings::default()).unwrap();
    let (spawn, _folder, _) = request(&["/bin/sh", "-c", SPREADING]);
    let until = boot_time() + Duration::from_secs(2);
    let (mut guarded, _streams) = guard.spawn(Spawn { until, ..spawn }).unwrap();
    assert!(matches!(guarded.report().await, Some(Report::Pid(_))));
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(2500) {
        guarded.tell(Order::Until(boot_time() + Duration::from_secs(2)));
        assert!(timeout(Duration::from_millis(50), guarded.report()).await.is_err(), "it lives");
    }
    guarded.tell(Order::Until(boot_time() + Duration::from_millis(200)));
    let report = timeout(DEADLINE, guarded.report()).await.unwrap();
    assert!(matches!(report, Some(Report::Exited(exit)) if exit.lapsed && exit.status == 9));
}

#[tokio::test]
async fn a_plugin_may_end_in_its_own_way_when_it_is_told_to() {
    let script = "trap 'echo last words; exit 3' TERM; echo ready; while :; do sleep 0.02; done";
    let guard = Guard::start(Settings::default()).unwrap();
    let mut plugin = Plugin::script(&guard, script);
    plugin.pid().await;
    assert_eq!(plugin.line().await, "ready");
    plugin.guarded.tell(Order::Term);
    let (exit, status) = plugin.exit().await;
    assert_eq!((exit.ordered, status.code()), (true, Some(3)));
    assert_eq!(plugin.output().await, "last words\n");
}

#[tokio::test]
async fn who_was_told_to_end_and_left_something_behind_has_not_ended() {
    let script = "(trap '' TERM; setsid sleep 1000 & while :; do sleep 0.02; done) & sleep 0.02
        echo ready; exec sleep 1000";
    let guard = Guard::start(Settings::default()).unwrap();
    let mut plugin = Plugin::script(&guard, script);
    let pid = plugin.pid().await;
    assert_eq!(plugin.line().await, "ready");
    plugin.guarded.tell(Order::Term);
    eventually("the plugin itself obeys", || !Path::new(&format!("/proc/{pid}")).exists()).await;
    assert!(plugin.family() > 1);
    assert!(timeout(Duration::from_millis(200), plugin.guarded.report()).await.is_err());
    plugin.guarded.tell(Order::Kill);
    let (exit, status) = plugin.exit().await;
    assert_eq!((exit.ordered, status.signal()), (true, Some(15)));
    assert_eq!(plugin.family(), 0);
}

#[tokio::test]
async fn who_was_told_to_stop_and_left_something_behind_is_over() {
    let script = "trap 'exit 0' TERM; setsid sh -c 'echo $$; exec sleep 1000' & while :; do sleep 0.02; done";
    let guard = Guard::start(Settings::default()).unwrap();
    let mut plugin = Plugin::script(&guard, script);
    plugin.pid().await;
    let left: i32 = plugin.line().await.parse().unwrap();
    plugin.guarded.tell(Order::Stop);
    let (exit, status) = plugin.exit().await;
    assert_eq!((exit.ordered, exit.alone, status.code()), (false, false, Some(0)));
    assert!(runs(left), "it is left alone, as if the plugin had not been told");
    kill(Pid::from_raw(left), Signal::SIGKILL).unwrap();
}

#[tokio::test]
async fn who_was_told_to_stop_is_waited_for_with_its_group() {
    let script = "(trap 'until [ -e go ]; do sleep 0.02; done; exit' TERM; echo ready
        while :; do sleep 0.02; done) & wait";
    let guard = Guard::start(Settings::default()).unwrap();
    let mut plugin = Plugin::script(&guard, script);
    let pid = plugin.pid().await;
    assert_eq!(plugin.line().await, "ready");
    plugin.guarded.tell(Order::Stop);
    eventually("the plugin itself obeys", || !Path::new(&format!("/proc/{pid}")).exists()).await;
    assert!(timeout(Duration::from_millis(200), plugin.guarded.report()).await.is_err());
    fs::write(plugin.folder.path().join("go"), "").unwrap();
    let (exit, status) = plugin.exit().await;
    assert_eq!((exit.ordered, status.signal()), (false, Some(15)));
    assert_eq!(plugin.family(), 0);
}

#[tokio::test]
async fn who_ignores_term_is_killed_with_all_descendants() {
    let guard = Guard::start(Settings::default()).unwrap();
    let mut plugin = Plugin::script(&guard, &format!("trap '' TERM; {SPREADING}"));
    plugin.pid().await;
    assert_eq!(plugin.line().await, "ready");
    eventually("all four run", || plugin.family() == 4).await;
    plugin.guarded.tell(Order::Term);
    plugin.guarded.tell(Order::Kill);
    let (exit, status) = plugin.exit().await;
    assert_eq!((exit.ordered, status.signal()), (true, Some(9)));
    assert_eq!(plugin.family(), 0);
}

#[tokio::test]
async fn what_a_plugin_leaves_running_is_left_alone_whatever_happens_to_the_next() {
    let guard = Guard::start(Settings::default()).unwrap();
    // One that is known by its marks, and one that has shed them.
    let script = "setsid sleep 1000 & echo $!; env -i setsid sleep 1000 & echo $!";
    let mut plugin = Plugin::script(&guard, script);
    plugin.pid().await;
    let left: Vec<i32> = [plugin.line().await, plugin.line().await].map(|pid| pid.parse().unwrap()).into();
    let (exit, status) = plugin.exit().await;
    assert!(status.success() && !exit.alone, "it may be in the private folder");
    let script = format!("env -i setsid sleep 1000 & echo $!; {SPREADING}");
    let mut next = Plugin::script(&guard, &script);
    next.pid().await;
    let own: i32 = next.line().await.parse().unwrap();
    assert_eq!(next.line().await, "ready");
    eventually("all four run", || next.family() == 4).await;
    next.guarded.tell(Order::Kill);
    assert_eq!(next.exit().await.1.signal(), Some(9));
    assert_eq!(next.family(), 0);
    assert!(!runs(own), "it has shed its marks, and is the next one's all the same");
    assert!(left.iter().all(|pid| runs(*pid)), "{left:?}");
    for pid in &left {
        kill(Pid::from_raw(*pid), Signal::SIGKILL).unwrap();
    }
    // What the guard has adopted, it buries when it has something to do.
    let mut alone = false;
    while !alone {
        let mut another = Plugin::script(&guard, "true");
        another.pid().await;
        let (exit, status) = another.exit().await;
        assert!(status.success());
        alone = exit.alone;
    }
    assert!(!left.iter().any(|pid| Path::new(&format!("/proc/{pid}")).exists()));
}

#[tokio::test]
async fn plugins_of_one_guard_do_not_meddle_with_each_other() {
    let guard = Guard::start(Settings::default()).unwrap();
    let mut first = Plugin::script(&guard, SPREADING);
    let mut second = Plugin::script(&guard, SPREADING);
    for plugin in [&mut first, &mut second] {
        plugin.pid().await;
        assert_eq!(plugin.line().await, "ready");
    }
    eventually("all run", || first.family() == 4 && second.family() == 4).await;
    first.guarded.tell(Order::Kill);
    assert_eq!(first.exit().await.1.signal(), Some(9));
    assert_eq!((first.family(), second.family()), (0, 4));
    second.guarded.tell(Order::Kill);
    assert_eq!(second.exit().await.1.signal(), Some(9));
    assert_eq!(second.family(), 0);
}

#[tokio::test]
async fn signals_for_others_do_not_end_a_guard() {
    let guard = Guard::start(Settings::default()).unwrap();
    for _ in 0..2 {
        let mut plugin = Plugin::script(&guard, "read x");
        let process = guard_of(&mut plugin).await;
        for signal in Signal::iterator().filter(|s| !matches!(s, Signal::SIGKILL | Signal::SIGSTOP)) {
            // Those that tell of an error of its own end anything.
            let own = matches!(signal, Signal::SIGILL | Signal::SIGFPE | Signal::SIGSEGV | Signal::SIGBUS);
            if !own {
                kill(process, signal).unwrap();
            }
        }
        plugin.tell(b"x\n").await.unwrap();
        assert!(plugin.exit().await.1.success());
    }
}

#[tokio::test]
async fn a_guard_is_where_its_plugin_is() {
    let guard = Guard::start(Settings::default()).unwrap();
    let mut plugin = Plugin::script(&guard, "read x");
    let process = guard_of(&mut plugin).await;
    let cwd = || fs::read_link(format!("/proc/{process}/cwd")).unwrap();
    assert_eq!(cwd(), plugin.folder.path());
    plugin.tell(b"x\n").await.unwrap();
    plugin.exit().await;
    assert_eq!(cwd(), Path::new("/"));
}

#[tokio::test]
async fn a_plugin_without_a_folder_keeps_nobody_in_one() {
    let guard = Guard::start(Settings::default()).unwrap();
    let (spawn, folder, task) = request(&["/bin/sh", "-c", "read x"]);
    let spawn = Spawn { folder: "/".into(), ..spawn };
    let (guarded, streams) = guard.spawn(spawn).unwrap();
    let mut warm = Plugin { guarded, streams, folder, task };
    let process = guard_of(&mut warm).await;
    let mut plugin = Plugin::script(&guard, "exit 0");
    plugin.pid().await;
    plugin.exit().await;
    assert_eq!(fs::read_link(format!("/proc/{process}/cwd")).unwrap(), Path::new("/"));
    // When the runner is gone, the guard removes what this runner has made for tasks, and nothing else.
    let ours = Folder::make(task).unwrap();
    let other = tempfile::Builder::new().prefix(&PrivateFolder::of(task, "").name()).tempdir().unwrap();
    drop((guard, warm.guarded, plugin.guarded));
    eventually("it is removed", || !ours.path().exists()).await;
    assert!(other.path().exists());
}

#[tokio::test]
async fn another_guard_takes_the_place_of_one_that_is_gone() {
    let mut guards = Guards::default();
    let mut plugin = Plugin::script(guards.get().unwrap(), "exec sleep 1000");
    let first = guard_of(&mut plugin).await;
    kill(first, Signal::SIGKILL).unwrap();
    assert_eq!(plugin.report().await, None);
    plugin.guarded.clear_up().await;
    assert_eq!(plugin.family(), 0);
    eventually("it is missed", || !guards.get().is_ok_and(|guard| !guard.is_alive())).await;
    let mut plugin = Plugin::script(guards.get().unwrap(), "exit 0");
    plugin.pid().await;
    assert!(plugin.exit().await.1.success());
    // It may not have been quite dead when the second one was started.
    let place = format!("/proc/{first}");
    eventually("it is buried", || guards.renew().is_ok() && !Path::new(&place).exists()).await;
}

#[test]
fn what_a_dead_runner_has_asked_for_is_not_begun() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (of_runner, other) = (runtime(), runtime());
    let outside = tempfile::tempdir().unwrap();
    let begun = outside.path().join("begun");
    let guard = of_runner.block_on(async {
        let mut guards = Guards::default();
        let mut first = Plugin::script(guards.get().unwrap(), "exec sleep 1000");
        let guard = guard_of(&mut first).await;
        kill(guard, Signal::SIGSTOP).unwrap();
        Plugin::script(guards.get().unwrap(), &format!("touch {}", begun.display()));
        guard
    });
    // As if the runner had died: nothing of it is left, and the guard has not heard of the order yet.
    drop(of_runner);
    kill(guard, Signal::SIGCONT).unwrap();
    let is_dead =
        || fs::read_to_string(format!("/proc/{guard}/stat")).map_or(true, |stat| stat.contains(") Z "));
    other.block_on(eventually("the guard ends", is_dead));
    assert!(!begun.exists());
}

#[test]
fn a_guard_is_not_for_people() {
    for arguments in [&["guard"][..], &["guard", "x"], &["guard", "x", "y"]] {
        let output = Command::new(program()).args(arguments).stdin(Stdio::null()).output().unwrap();
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.starts_with("dtr guard: ") && text.contains("started by dtr only"), "{text}");
    }
}
