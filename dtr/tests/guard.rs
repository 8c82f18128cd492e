//! The guard as a process: what its plugin sees, and that it never outlives its runner.
#![cfg(test)]

use std::collections::HashMap;
use std::fs;
use std::io;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use command_fds::{CommandFdExt, FdMapping};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader, Lines};
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

/// Nothing here takes so long.
const DEADLINE: Duration = Duration::from_secs(30);

/// A runner may be silent for so long where that does not matter.
const PATIENT: &str = "100000";

const TASK: &str = "6b0003bb686c8275d70dc2f1";

/// Gives the plugin two more seconds again and again.
const RENEWING: &str = "while read -r up _ < /proc/uptime; do \
    echo until $(( ${up%.*}${up#*.}0 + 2000 )); sleep 0.05; done";

fn boot_milliseconds() -> u128 {
    Duration::from(nix::time::clock_gettime(nix::time::ClockId::CLOCK_BOOTTIME).unwrap()).as_millis()
}

/// A guard with its plugin, seen from the runner.
struct Guarded {
    process: Child,
    orders: Option<pipe::Sender>,
    reports: Lines<BufReader<pipe::Receiver>>,
    control: pipe::Receiver,
    folder: TempDir,
    mark: String,
}

impl Guarded {
    /// Guards `sh -c script`.
    async fn script(patience: &str, script: &str) -> io::Result<Self> {
        Self::start(patience, &["/bin/sh", "-c", script], None).await
    }

    /// With `runner`, that program's standard output is where the orders come from.
    async fn start(patience: &str, plugin: &[&str], runner: Option<&mut Runner>) -> io::Result<Self> {
        let folder = tempfile::Builder::new().prefix(&format!("disbatch-{TASK}-")).tempdir()?;
        let mark = format!("GUARD_TEST={}", folder.path().display());
        let (orders_in, orders) = io::pipe()?;
        let (reports, reports_out) = io::pipe()?;
        let (control, control_out) = io::pipe()?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_dtr"));
        let until = boot_milliseconds() + patience.parse::<u128>().unwrap();
        command.args(["guard", TASK, &until.to_string(), "--"]).args(plugin).current_dir(folder.path());
        command.env_clear().env("PATH", "/bin:/usr/bin").env("GUARD_TEST", folder.path());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        let mappings = [(control_out.into(), 3), (orders_in.into(), 4), (reports_out.into(), 5)];
        let mappings = mappings.map(|(parent_fd, child_fd)| FdMapping { parent_fd, child_fd });
        command.fd_mappings(mappings.into()).map_err(io::Error::other)?;
        let process = command.spawn()?;
        drop(command);
        let orders = match runner {
            None => Some(pipe::Sender::from_owned_fd(orders.into())?),
            Some(runner) => {
                runner.start(orders.into())?;
                None
            }
        };
        Ok(Self {
            process,
            orders,
            reports: BufReader::new(pipe::Receiver::from_owned_fd(reports.into())?).lines(),
            control: pipe::Receiver::from_owned_fd(control.into())?,
            folder,
            mark,
        })
    }

    async fn tell(&mut self, order: &str) {
        let orders = self.orders.as_mut().unwrap();
        orders.write_all(format!("{order}\n").as_bytes()).await.unwrap();
    }

    /// The next report.
    async fn report(&mut self) -> Value {
        let line = timeout(DEADLINE, self.reports.next_line()).await.expect("a report is due").unwrap();
        serde_json::from_str(&line.expect("the guard lives until its last report")).unwrap()
    }

    async fn pid(&mut self) -> Pid {
        let report = self.report().await;
        Pid::from_raw(report["pid"].as_i64().unwrap_or_else(|| panic!("{report}")).try_into().unwrap())
    }

    /// The last report, and how the plugin ended.
    async fn exit(&mut self) -> (Value, ExitStatus) {
        let report = self.report().await;
        let status = report["exited"]["status"].as_i64().unwrap_or_else(|| panic!("{report}"));
        let guard = timeout(DEADLINE, self.process.wait()).await.unwrap().unwrap();
        assert!(guard.success(), "{guard}");
        (report["exited"].clone(), ExitStatus::from_raw(status.try_into().unwrap()))
    }

    /// Waits for a line of the plugin's standard output.
    async fn line(&mut self) -> String {
        let mut line = Vec::new();
        let stdout = self.process.stdout.as_mut().unwrap();
        while line.last() != Some(&b'\n') {
            line.push(timeout(DEADLINE, stdout.read_u8()).await.unwrap().unwrap());
        }
        String::from_utf8(line).unwrap().trim_end().to_owned()
    }

    /// The rest of the plugin's standard output.
    async fn output(&mut self) -> String {
        let mut output = String::new();
        let stdout = self.process.stdout.as_mut().unwrap();
        timeout(DEADLINE, stdout.read_to_string(&mut output)).await.unwrap().unwrap();
        output
    }

    /// How many processes there are that the plugin's environment was passed to. Not the guard.
    fn family(&self) -> usize {
        let guard = self.process.id().map(|id| id.to_string());
        let processes = fs::read_dir("/proc").unwrap().flatten();
        let others = processes.filter(|entry| entry.file_name().to_str() != guard.as_deref());
        others.filter(|entry| has_variable(&entry.path(), &self.mark)).count()
    }
}

fn has_variable(process: &Path, variable: &str) -> bool {
    let environment = fs::read(process.join("environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
}

/// A process that holds the orders' other end.
struct Runner {
    script: &'static str,
    process: Option<Child>,
}

impl Runner {
    fn new(script: &'static str) -> Self {
        Self { script, process: None }
    }

    fn start(&mut self, orders: std::os::fd::OwnedFd) -> io::Result<()> {
        let mut command = Command::new("/bin/sh");
        self.process = Some(command.args(["-c", self.script]).stdout(orders).kill_on_drop(true).spawn()?);
        Ok(())
    }

    fn signal(&self, signal: Signal) {
        let pid = self.process.as_ref().and_then(Child::id).unwrap();
        kill(Pid::from_raw(pid.try_into().unwrap()), signal).unwrap();
    }
}

async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < until, "{what}");
        sleep(Duration::from_millis(5)).await;
    }
}

/// Leaves processes in sessions of their own, with and without a parent.
const SPREADING: &str = "setsid sleep 1000 & (setsid sh -c 'sleep 1000 & exec sleep 1000' &)
    touch file; echo ready; exec sleep 1000";

#[tokio::test]
async fn a_plugin_has_its_four_descriptors_and_no_others() {
    let list = ["/bin/ls", "/proc/self/fd"];
    let mut guarded = Guarded::start(PATIENT, &list, None).await.unwrap();
    guarded.pid().await;
    // Whoever runs the tests may have left some open.
    let mut unguarded = Command::new(list[0]);
    let null = fs::File::open("/dev/null").unwrap().into();
    unguarded.arg(list[1]).fd_mappings(vec![FdMapping { parent_fd: null, child_fd: 3 }]).unwrap();
    let unguarded = String::from_utf8(unguarded.output().await.unwrap().stdout).unwrap();
    assert_eq!(guarded.output().await, unguarded);
    // That of the folder that is listed is the fifth.
    assert!(!unguarded.contains("\n5\n"), "{unguarded}");
    assert!(guarded.exit().await.1.success());
}

#[tokio::test]
async fn a_plugin_has_its_streams_environment_folder_and_process_group() {
    let script = "cat; echo err >&2; echo control >&3; env; pwd; exec cat /proc/self/stat /proc/self/status";
    let mut guarded = Guarded::script(PATIENT, script).await.unwrap();
    let pid = guarded.pid().await;
    guarded.process.stdin.take().unwrap().write_all(b"in\n").await.unwrap();
    let output = guarded.output().await;
    let mut lines: Vec<&str> = output.lines().collect();
    let status = lines.split_off(lines.iter().position(|line| line.contains("(cat)")).unwrap());
    // A shell adds PWD and a few more.
    lines.retain(|line| !["PWD=", "OLDPWD=", "SHLVL=", "_="].iter().any(|name| line.starts_with(name)));
    let folder = guarded.folder.path().to_str().unwrap();
    lines[1..3].sort_unstable();
    assert_eq!(lines, ["in", &guarded.mark, "PATH=/bin:/usr/bin", folder]);
    let stat: Vec<&str> = status[0].split(' ').collect();
    assert_eq!([stat[0], stat[4]], [pid.to_string(), pid.to_string()], "its own group");
    let status: HashMap<_, _> = status[1..].iter().filter_map(|line| line.split_once(":\t")).collect();
    assert_eq!(status["SigBlk"], "0000000000000000", "a plugin can be told to end");
    assert_eq!(status["SigIgn"], own_status("SigIgn:\t").await, "no signal is ignored for it");
    let [mut control, mut err] = [String::new(), String::new()];
    guarded.control.read_to_string(&mut control).await.unwrap();
    guarded.process.stderr.take().unwrap().read_to_string(&mut err).await.unwrap();
    assert_eq!([control, err], ["control\n", "err\n"]);
    assert!(guarded.exit().await.1.success());
}

/// What a program sees that is started without a guard.
async fn own_status(name: &str) -> String {
    let output = Command::new("cat").arg("/proc/self/status").output().await.unwrap();
    let status = String::from_utf8(output.stdout).unwrap();
    status.lines().find_map(|line| line.strip_prefix(name)).unwrap().to_owned()
}

#[tokio::test]
async fn the_guard_keeps_no_stream_open() {
    let script = "read x; exec >&- 3>&- <&-; while [ -e . ] && [ ! -e go ]; do sleep 0.02; done";
    let mut guarded = Guarded::script(PATIENT, script).await.unwrap();
    guarded.pid().await;
    guarded.process.stdin.as_mut().unwrap().write_all(b"x\n").await.unwrap();
    assert_eq!(guarded.output().await, "");
    let mut control = String::new();
    timeout(DEADLINE, guarded.control.read_to_string(&mut control)).await.unwrap().unwrap();
    assert!(guarded.family() > 0, "the plugin still runs");
    let mut stdin = guarded.process.stdin.take().unwrap();
    assert_eq!(stdin.write_all(b"x").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    fs::write(guarded.folder.path().join("go"), "").unwrap();
    assert!(guarded.exit().await.1.success());
}

#[tokio::test]
async fn every_way_to_end_is_reported() {
    for (script, code, signal) in [
        ("exit 0", Some(0), None),
        ("exit 255", Some(255), None),
        ("kill -s SEGV $$", None, Some(11)),
        ("kill -s KILL $$", None, Some(9)),
        // A signal without a name.
        ("kill -40 $$", None, Some(40)),
    ] {
        let mut guarded = Guarded::script(PATIENT, script).await.unwrap();
        guarded.pid().await;
        let (facts, status) = guarded.exit().await;
        assert_eq!((status.code(), status.signal()), (code, signal), "{script}");
        assert_eq!((&facts["why"], &facts["oom"]), (&Value::Null, &false.into()), "{script}");
        assert_eq!(facts["ordered"], false, "{script}");
        assert!(guarded.folder.path().exists(), "it belongs to the runner");
    }
}

#[tokio::test]
async fn what_a_plugin_used_is_reported() {
    let script = "i=0; while [ $i -lt 300000 ]; do i=$((i+1)); done";
    let mut guarded = Guarded::script(PATIENT, script).await.unwrap();
    guarded.pid().await;
    let (facts, _) = guarded.exit().await;
    let length = |name: &str| serde_json::from_value::<Duration>(facts[name].clone()).unwrap();
    assert!(length("cpu") > Duration::from_millis(5), "{facts}");
    assert!(length("duration") > Duration::from_millis(5), "{facts}");
    let peak = facts["peak_memory"].as_u64().unwrap();
    assert!((200_000..200_000_000).contains(&peak), "{facts}");
}

#[tokio::test]
async fn what_cannot_be_executed_is_named_by_the_system() {
    for (program, error) in [
        ("/nonexistent/program", "No such file or directory (os error 2)"),
        ("/etc/passwd", "Permission denied (os error 13)"),
    ] {
        let mut guarded = Guarded::start(PATIENT, &[program], None).await.unwrap();
        assert_eq!(guarded.report().await["error"], error);
        assert!(guarded.process.wait().await.unwrap().success());
    }
}

#[tokio::test]
async fn nothing_survives_a_killed_runner() {
    let mut runner = Runner::new("exec sleep 1000");
    let plugin = ["/bin/sh", "-c", SPREADING];
    let mut guarded = Guarded::start(PATIENT, &plugin, Some(&mut runner)).await.unwrap();
    guarded.pid().await;
    assert_eq!(guarded.line().await, "ready");
    eventually("all four run", || guarded.family() == 4).await;
    runner.signal(Signal::SIGKILL);
    let (facts, status) = guarded.exit().await;
    assert_eq!(status.signal(), Some(9), "{facts}");
    assert_eq!(guarded.family(), 0);
    assert!(!guarded.folder.path().exists(), "nobody else can remove it");
}

#[tokio::test]
async fn a_folder_that_is_no_private_one_survives() {
    let mut guarded = Guarded::script(PATIENT, "mkdir other && mv other .. && cd ../other").await.unwrap();
    guarded.pid().await;
    drop(guarded.exit().await);
    // A guard whose working directory has another name.
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new("/bin/sh");
    let script = r#"exec "$0" guard "$1" 1000000000000 -- /bin/true 3>/dev/null 4</dev/null 5>/dev/null"#;
    command.args(["-c", script, env!("CARGO_BIN_EXE_dtr"), TASK]).current_dir(folder.path());
    assert!(command.status().await.unwrap().success());
    assert!(folder.path().exists());
}

#[tokio::test]
async fn nothing_survives_a_stopped_runner() {
    let mut runner = Runner::new(RENEWING);
    let plugin = ["/bin/sh", "-c", SPREADING];
    let mut guarded = Guarded::start("2000", &plugin, Some(&mut runner)).await.unwrap();
    guarded.pid().await;
    assert_eq!(guarded.line().await, "ready");
    eventually("all four run", || guarded.family() == 4).await;
    runner.signal(Signal::SIGSTOP);
    let (facts, status) = guarded.exit().await;
    assert_eq!((facts["lapsed"].as_bool(), status.signal()), (Some(true), Some(9)));
    assert_eq!(guarded.family(), 0);
    assert!(guarded.folder.path().exists(), "the runner may go on");
}

#[tokio::test]
async fn a_plugin_lives_as_long_as_its_time_is_renewed() {
    let mut guarded = Guarded::script("2000", "exec sleep 1000").await.unwrap();
    guarded.pid().await;
    let started = Instant::now();
    while started.elapsed() < Duration::from_millis(2500) {
        guarded.tell(&format!("until {}", boot_milliseconds() + 2000)).await;
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(guarded.family(), 1, "longer than its first time");
    guarded.tell(&format!("until {}", boot_milliseconds() + 200)).await;
    let (facts, status) = guarded.exit().await;
    assert_eq!((facts["lapsed"].as_bool(), status.signal()), (Some(true), Some(9)));
}

#[tokio::test]
async fn a_plugin_may_end_in_its_own_way_when_it_is_told_to() {
    let script = "trap 'echo last words; exit 3' TERM; echo ready; while :; do sleep 0.02; done";
    let mut guarded = Guarded::script(PATIENT, script).await.unwrap();
    guarded.pid().await;
    assert_eq!(guarded.line().await, "ready");
    guarded.tell("term").await;
    let (facts, status) = guarded.exit().await;
    assert_eq!((facts["ordered"].as_bool(), status.code()), (Some(true), Some(3)));
    assert_eq!(guarded.output().await, "last words\n");
}

#[tokio::test]
async fn who_was_told_to_end_and_left_something_behind_has_not_ended() {
    let script = "(trap '' TERM; setsid sleep 1000 & while :; do sleep 0.02; done) & sleep 0.02
        echo ready; exec sleep 1000";
    let mut guarded = Guarded::script(PATIENT, script).await.unwrap();
    let pid = guarded.pid().await;
    assert_eq!(guarded.line().await, "ready");
    guarded.tell("term").await;
    eventually("the plugin itself obeys", || !Path::new(&format!("/proc/{pid}")).exists()).await;
    assert!(guarded.family() > 1);
    assert!(timeout(Duration::from_millis(200), guarded.reports.next_line()).await.is_err());
    guarded.tell("kill").await;
    let (facts, status) = guarded.exit().await;
    assert_eq!((facts["ordered"].as_bool(), status.signal()), (Some(true), Some(15)));
    assert_eq!(guarded.family(), 0);
}

#[tokio::test]
async fn who_ignores_term_is_killed() {
    let mut guarded =
        Guarded::script(PATIENT, "trap '' TERM; echo ready; sleep 1000; sleep 1000").await.unwrap();
    guarded.pid().await;
    assert_eq!(guarded.line().await, "ready");
    guarded.tell("term\nkill").await;
    let (facts, status) = guarded.exit().await;
    assert_eq!((facts["ordered"].as_bool(), status.signal()), (Some(true), Some(9)));
    assert_eq!(guarded.family(), 0);
}

#[tokio::test]
async fn what_a_plugin_leaves_running_is_left_alone() {
    let mut guarded = Guarded::script(PATIENT, "setsid sleep 1000 & echo $!").await.unwrap();
    guarded.pid().await;
    let left: i32 = guarded.line().await.parse().unwrap();
    assert!(guarded.exit().await.1.success());
    kill(Pid::from_raw(left), Signal::SIGKILL).expect("it runs");
}

#[tokio::test]
async fn signals_for_others_do_not_end_a_guard() {
    let mut guarded = Guarded::script(PATIENT, "read x").await.unwrap();
    guarded.pid().await;
    let guard = Pid::from_raw(guarded.process.id().unwrap().try_into().unwrap());
    for signal in [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP, Signal::SIGQUIT, Signal::SIGTSTP] {
        kill(guard, signal).unwrap();
    }
    guarded.process.stdin.take().unwrap().write_all(b"x\n").await.unwrap();
    assert!(guarded.exit().await.1.success());
}

#[tokio::test]
async fn a_guard_is_not_for_people() {
    for arguments in [&["guard"][..], &["guard", TASK, "1000", "--", "/bin/true"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_dtr")).args(arguments).output().await.unwrap();
        assert_eq!(output.status.code(), Some(2));
        let text = String::from_utf8(output.stderr).unwrap();
        assert!(text.starts_with("dtr guard: ") && text.contains("started by dtr only"), "{text}");
    }
}
