use std::collections::{BTreeSet, HashMap};
use std::io::Read;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::ExitStatusExt;
use std::process::Stdio;

use command_fds::{CommandFdExt, FdMapping};
use disbatch_core::config::RunAs;
use nix::sys::signal::Signal;
use tempfile::TempDir;
use tokio::io::AsyncReadExt;
use tokio::time::timeout;

use super::*;
use crate::guard::limits::Exceeded;
use crate::guard::protocol::{Exit, Order, Report, Settings};
use crate::guard::{Guard, Guarded, program};
use crate::isolation::Environment;

/// Nothing here takes so long.
const DEADLINE: Duration = Duration::from_secs(60);

/// A plugin that has ended.
struct Came {
    pid: i32,
    exit: Exit,
    stdout: String,
    stderr: String,
    control: String,
    folder: TempDir,
}

impl Came {
    /// `Name: value` lines of the output, as in `/proc/PID/status`.
    fn status(&self) -> HashMap<&str, &str> {
        self.stdout.lines().filter_map(|line| line.split_once(":\t")).collect()
    }
}

fn spawn(confinement: &Confinement, command: &[&str]) -> (Spawn, TempDir) {
    let folder = tempfile::Builder::new().permissions(fs::Permissions::from_mode(0o700)).tempdir().unwrap();
    let spawn = Spawn {
        until: boot_time() + DEADLINE,
        program: command[0].into(),
        arguments: command[1..].iter().map(OsString::from).collect(),
        environment: Environment::of(vec![
            ("PATH".into(), "/bin:/usr/bin".into()),
            ("ONLY".into(), "this".into()),
        ]),
        folder: folder.path().to_owned(),
        descriptors: 0,
        confinement: Some(confinement.clone()).filter(|confinement| *confinement != Confinement::default()),
        direct: None,
    };
    (spawn, folder)
}

/// Runs it to its end, or tells why it cannot be started.
async fn run(guard: &Guard, confinement: &Confinement, command: &[&str]) -> Result<Came, String> {
    let (spawn, folder) = spawn(confinement, command);
    let (mut guarded, mut streams) = guard.spawn(spawn).unwrap();
    drop(streams.stdin);
    let pid = match timeout(DEADLINE, guarded.report()).await.unwrap() {
        Some(Report::Pid(pid)) => pid,
        Some(Report::Error(error)) => return Err(error),
        other => panic!("{other:?}"),
    };
    let [mut stdout, mut stderr, mut control] = [String::new(), String::new(), String::new()];
    timeout(DEADLINE, streams.stdout.read_to_string(&mut stdout)).await.unwrap().unwrap();
    timeout(DEADLINE, streams.stderr.read_to_string(&mut stderr)).await.unwrap().unwrap();
    timeout(DEADLINE, streams.control.read_to_string(&mut control)).await.unwrap().unwrap();
    match timeout(DEADLINE, guarded.report()).await.unwrap() {
        Some(Report::Exited(exit)) => Ok(Came { pid, exit, stdout, stderr, control, folder }),
        other => panic!("{other:?}"),
    }
}

async fn script(guard: &Guard, confinement: &Confinement, script: &str) -> Came {
    run(guard, confinement, &["/bin/sh", "-c", script]).await.unwrap()
}

fn guard() -> Guard {
    Guard::start(Settings::default()).unwrap()
}

fn limited(limits: Limits) -> Confinement {
    Confinement { limits, ..Confinement::default() }
}

/// Nobody in particular, if this process may become somebody else.
fn nobody() -> Option<Identity> {
    if !Uid::effective().is_root() {
        let _nobody_reads = writeln!(io::stderr(), "skipped: only root can become another user");
        return None;
    }
    Some(Identity::find(&RunAs { user: "nobody".to_owned(), group: None }).unwrap())
}

#[tokio::test]
async fn a_confined_plugin_has_the_process_that_is_reported_and_no_more_than_others_have() {
    let guard = guard();
    let confinement = limited(Limits { open_files: Some(64), ..Limits::default() });
    let what = "ls /proc/self/fd; tr '\\0' ' ' < /proc/$$/cmdline; echo; env; \
        exec cat /proc/self/stat /proc/self/status";
    for _ in 0..2 {
        let came = script(&guard, &confinement, what).await;
        // The fifth is that of the folder which is listed. Whoever runs the tests may have left higher ones open.
        let numbers = came.stdout.lines().map_while(|line| line.parse::<u32>().ok());
        let mut numbers: Vec<u32> = numbers.filter(|number| *number < 6).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [0, 1, 2, 3, 4]);
        assert!(came.stdout.contains("\nPATH=/bin:/usr/bin\n") && came.stdout.contains("\nONLY=this\n"));
        assert!(!came.stdout.contains("confine"), "{}", came.stdout);
        let stat = came.stdout.lines().find(|line| line.contains("(cat)")).unwrap();
        let fields: Vec<&str> = stat.split(' ').collect();
        assert_eq!([fields[0], fields[4]], [came.pid.to_string(), came.pid.to_string()], "its own group");
        let status = came.status();
        assert_eq!([status["SigBlk"], status["SigCgt"]], ["0000000000000000"; 2]);
        assert_eq!(status["SigIgn"], own_status("SigIgn"), "no signal is ignored for it");
    }
}

/// What a program sees that is started without a guard.
fn own_status(name: &str) -> String {
    let output = Command::new("cat").arg("/proc/self/status").output().unwrap();
    let status = String::from_utf8(output.stdout).unwrap();
    let value = |line: &str| Some(line.strip_prefix(name)?.strip_prefix(":\t")?.to_owned());
    status.lines().find_map(value).unwrap()
}

#[tokio::test]
async fn limits_are_what_was_given_and_never_more_than_there_was() {
    let limits = Limits {
        memory: Some(1 << 30),
        cpu_seconds: Some(7),
        open_files: Some(u64::from(u32::MAX)),
        processes: Some(99),
        file_size: Some(1 << 20),
        core: Some(0),
    };
    let came = script(&guard(), &limited(limits), "exec cat /proc/self/limits").await;
    let of = |name: &str| {
        let line = came.stdout.lines().find(|line| line.starts_with(name)).unwrap();
        let words: Vec<&str> = line[name.len()..].split_whitespace().collect();
        [words[0].to_owned(), words[1].to_owned()]
    };
    assert_eq!(of("Max address space"), ["1073741824", "1073741824"]);
    assert_eq!(of("Max cpu time"), ["7", "12"]);
    assert_eq!(of("Max processes"), ["99", "99"]);
    assert_eq!(of("Max file size"), ["1048576", "1048576"]);
    assert_eq!(of("Max core file size"), ["0", "0"]);
    let (_, highest) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    let files = highest.min(u64::from(u32::MAX)).to_string();
    assert_eq!(of("Max open files"), [files.clone(), files]);
}

#[tokio::test]
async fn who_exceeds_a_limit_is_ended_and_the_limit_is_named() {
    let guard = guard();
    let cpu = limited(Limits { cpu_seconds: Some(1), ..Limits::default() });
    let came = script(&guard, &cpu, "while :; do :; done").await;
    assert_eq!(came.exit.exit_status().signal(), Some(Signal::SIGXCPU as i32));
    assert_eq!(came.exit.limit, Some(Exceeded::CpuSeconds(1)));
    let in_shell = script(&guard, &cpu, "sh -c 'while :; do :; done'; exit $?").await;
    assert_eq!(in_shell.exit.limit, Some(Exceeded::CpuSeconds(1)), "{:?} {}", in_shell.exit, in_shell.stderr);
    let file = limited(Limits { file_size: Some(4096), ..Limits::default() });
    let came = script(&guard, &file, "exec head -c 100000 /dev/zero > file").await;
    assert_eq!(came.exit.limit, Some(Exceeded::FileSize(4096)), "{:?}", came.exit);
    let other = script(&guard, &cpu, "kill -s SEGV $$").await;
    assert_eq!((other.exit.exit_status().signal(), other.exit.limit), (Some(11), None));
}

#[tokio::test]
async fn too_little_memory_is_the_plugins_own_concern() {
    let memory = limited(Limits { memory: Some(256 << 20), ..Limits::default() });
    let came = script(&guard(), &memory, "exec dd if=/dev/zero of=/dev/null bs=512M count=1").await;
    assert!(!came.exit.exit_status().success() && came.stderr.contains("memory"), "{}", came.stderr);
}

#[tokio::test]
async fn what_cannot_be_started_is_named_by_the_system_as_elsewhere() {
    let guard = guard();
    let confinement = limited(Limits { open_files: Some(64), ..Limits::default() });
    for (program, expected) in [
        ("/nonexistent/program", "No such file or directory (os error 2)"),
        ("/etc/passwd", "Permission denied (os error 13)"),
    ] {
        let error = run(&guard, &confinement, &[program]).await.err();
        assert_eq!(error.as_deref(), Some(expected));
    }
    let nowhere = Confinement { cgroup: Some("/nonexistent".into()), ..confinement.clone() };
    let error = run(&guard, &nowhere, &["/bin/true"]).await.err().unwrap();
    assert!(error.starts_with("cannot make the control group /nonexistent/disbatch-"), "{error}");
    assert_eq!(script(&guard, &confinement, "exit 4").await.exit.exit_status().code(), Some(4));
}

#[tokio::test]
async fn a_script_that_does_not_say_what_runs_it_is_not_run_by_anybody() {
    let guard = guard();
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("script");
    fs::write(&script, "echo ran\n").unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    for confinement in [Confinement::default(), limited(Limits { open_files: Some(64), ..Limits::default() })]
    {
        let error = run(&guard, &confinement, &[script.to_str().unwrap()]).await.err();
        assert_eq!(error.as_deref(), Some("it has no #! line, or is no program of this machine"));
    }
}

#[tokio::test]
async fn a_guard_leaves_no_core_dump_where_its_plugins_may() {
    let (_, highest) = getrlimit(Resource::RLIMIT_CORE).unwrap();
    let most = highest.min(1 << 20);
    let guard = Guard::start(Settings { core: 1 << 20, ..Settings::default() }).unwrap();
    let limits = Limits { core: Some(1 << 20), ..Limits::default() };
    let what = "cat /proc/self/limits; echo; cat /proc/$PPID/limits";
    let came = script(&guard, &limited(limits), what).await;
    let (own, of_guard) = came.stdout.split_once("\n\n").unwrap();
    let core = |limits: &str| {
        let line = limits.lines().find_map(|line| line.strip_prefix("Max core file size")).unwrap();
        line.split_whitespace().take(2).map(|word| word.parse::<u64>().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!((core(own), core(of_guard)), (vec![most, most], vec![0, most]));
}

/// A user who has no processes, and whom no other test is.
fn loner(number: u32) -> Option<Identity> {
    let uid = 20_000 + 4 * (std::process::id() % 10_000) + number;
    let user = nobody()?;
    Some(Identity { name: "loner".to_owned(), uid, gid: uid, groups: vec![uid], ..user })
}

/// Plugins of a user who may have one process and has two: the kernel counts before it starts another.
async fn crowd(guard: &Guard, confinement: &Confinement) -> Vec<(Guarded, TempDir)> {
    let mut crowd = Vec::new();
    for _ in 0..2 {
        let (spawn, folder) = spawn(confinement, &["/bin/sleep", "1000"]);
        let (mut guarded, _streams) = guard.spawn(spawn).unwrap();
        assert!(matches!(timeout(DEADLINE, guarded.report()).await.unwrap(), Some(Report::Pid(_))));
        crowd.push((guarded, folder));
    }
    crowd
}

#[tokio::test]
async fn who_finds_too_many_processes_begins_when_there_are_fewer() {
    let Some(user) = loner(1) else { return };
    let guard = guard();
    let limits = Limits { processes: Some(1), ..Limits::default() };
    let confinement = Confinement { user: Some(user), limits, ..Confinement::default() };
    let mut crowd = crowd(&guard, &confinement).await;
    let (spawn, _folder) = spawn(&confinement, &["/bin/echo", "begun"]);
    let (mut guarded, mut streams) = guard.spawn(spawn).unwrap();
    let waits = timeout(Duration::from_millis(300), guarded.report()).await;
    assert!(waits.is_err(), "{waits:?}");
    // The guard has time for others.
    let (mut other, _folder_of_other) = crowd.pop().unwrap();
    other.tell(Order::Until(boot_time()));
    let report = timeout(DEADLINE, other.report()).await.unwrap();
    assert!(matches!(&report, Some(Report::Exited(exit)) if exit.lapsed), "{report:?}");
    assert!(matches!(timeout(DEADLINE, guarded.report()).await.unwrap(), Some(Report::Pid(_))));
    let mut stdout = String::new();
    timeout(DEADLINE, streams.stdout.read_to_string(&mut stdout)).await.unwrap().unwrap();
    assert_eq!(stdout, "begun\n");
}

#[tokio::test]
async fn where_there_are_too_many_processes_for_long_the_limit_is_named() {
    let Some(user) = loner(2) else { return };
    let guard = guard();
    let limits = Limits { processes: Some(1), ..Limits::default() };
    let confinement = Confinement { user: Some(user), limits, ..Confinement::default() };
    let _crowd = crowd(&guard, &confinement).await;
    let error = run(&guard, &confinement, &["/bin/true"]).await.err();
    let expected =
        "the user loner has as many processes as limits.processes allows (1); it was tried for 10 s";
    assert_eq!(error.as_deref(), Some(expected));
}

#[tokio::test]
async fn who_waits_for_fewer_processes_need_not_wait_any_more() {
    let Some(user) = loner(3) else { return };
    let guard = guard();
    let limits = Limits { processes: Some(1), ..Limits::default() };
    let confinement = Confinement { user: Some(user), limits, ..Confinement::default() };
    let _crowd = crowd(&guard, &confinement).await;
    for order in [Order::Term, Order::Kill, Order::Until(Duration::ZERO)] {
        let (spawn, _folder) = spawn(&confinement, &["/bin/true"]);
        let (mut guarded, _streams) = guard.spawn(spawn).unwrap();
        guarded.tell(order);
        let expected = match order {
            Order::Until(_) => LEASE_IS_OVER,
            _ => "the user loner has as many processes as limits.processes allows (1)",
        };
        let report = timeout(DEADLINE, guarded.report()).await.unwrap();
        assert_eq!(report, Some(Report::Error(expected.to_owned())), "{order:?}");
    }
}

#[tokio::test]
async fn a_plugin_may_be_another_user_who_can_do_nothing_to_its_guard() {
    let Some(nobody) = nobody() else { return };
    let guard = guard();
    let confinement = Confinement { user: Some(nobody.clone()), ..Confinement::default() };
    let what = "id -u; id -g; id -G; pwd; touch file; echo again > /dev/fd/3; echo error > /dev/stderr
        kill -0 $PPID 2>/dev/null; echo signal $?; cat /proc/$PPID/environ > /dev/null 2>&1; echo environ $?";
    let came = script(&guard, &confinement, what).await;
    let lines: Vec<&str> = came.stdout.lines().collect();
    let groups: BTreeSet<u32> = lines[2].split(' ').map(|group| group.parse().unwrap()).collect();
    assert_eq!(lines[..2], [nobody.uid.to_string(), nobody.gid.to_string()]);
    assert_eq!(groups, nobody.groups.iter().copied().collect::<BTreeSet<u32>>());
    assert_eq!(lines[3], came.folder.path().to_str().unwrap());
    assert_eq!(lines[4..], ["signal 1", "environ 1"]);
    assert_eq!((came.control.as_str(), came.stderr.as_str()), ("again\n", "error\n"));
    let folder = fs::metadata(came.folder.path()).unwrap();
    assert_eq!((folder.uid(), folder.gid(), folder.mode() & 0o7777), (nobody.uid, nobody.gid, 0o700));
    assert_eq!(fs::metadata(came.folder.path().join("file")).unwrap().uid(), nobody.uid);
    assert_eq!(fs::metadata("/").unwrap().uid(), 0);
}

#[tokio::test]
async fn a_plugin_in_no_folder_gets_none() {
    let Some(nobody) = nobody() else { return };
    let confinement = Confinement { user: Some(nobody), ..Confinement::default() };
    let (spawn, folder) = spawn(&confinement, &["/bin/true"]);
    let (mut guarded, _streams) = guard().spawn(Spawn { folder: "/".into(), ..spawn }).unwrap();
    assert!(matches!(timeout(DEADLINE, guarded.report()).await.unwrap(), Some(Report::Pid(_))));
    assert_eq!(fs::metadata("/").unwrap().uid(), 0);
    assert_eq!(fs::metadata(folder.path()).unwrap().uid(), 0);
}

#[tokio::test]
async fn further_privileges_are_out_of_reach_unless_they_are_allowed() {
    for (no_new_privs, expected) in [(true, "1".to_owned()), (false, own_status("NoNewPrivs"))] {
        let guard = Guard::start(Settings { no_new_privs, ..Settings::default() }).unwrap();
        for confinement in [Confinement::default(), limited(Limits { core: Some(0), ..Limits::default() })] {
            let came = script(&guard, &confinement, "exec cat /proc/self/status").await;
            assert_eq!(came.status()["NoNewPrivs"], expected);
        }
    }
}

/// Runs the step by itself. Returns what it says to the guard, and its exit status.
fn step(arguments: &[&str]) -> (String, Option<i32>) {
    let (mut complaints, end) = io::pipe().unwrap();
    let mut command = Command::new(program());
    command.arg(WORD).args(arguments).stdin(Stdio::null());
    let mapping = FdMapping { parent_fd: OwnedFd::from(end), child_fd: COMPLAINTS_FD };
    command.fd_mappings(vec![mapping]).unwrap();
    let mut child = command.spawn().unwrap();
    // With it goes this process's copy of the other end.
    drop(command);
    let mut complaint = String::new();
    complaints.read_to_string(&mut complaint).unwrap();
    (complaint, child.wait().unwrap().code())
}

#[test]
fn whoever_is_too_late_does_not_begin() {
    let late = (boot_time() - Duration::from_millis(1)).as_millis().to_string();
    let none = serde_json::to_string(&Confinement::default()).unwrap();
    assert_eq!(step(&[&none, &late, "/bin/true"]), (LEASE_IS_OVER.to_owned(), Some(126)));
    let in_time = (boot_time() + DEADLINE).as_millis().to_string();
    assert_eq!(step(&[&none, &in_time, "/bin/sh", "-c", "exit 3"]), (String::new(), Some(3)));
}

#[test]
fn what_cannot_be_given_up_is_told() {
    let in_time = (boot_time() + DEADLINE).as_millis().to_string();
    let gone = Confinement { cgroup: Some("/nonexistent".into()), ..Confinement::default() };
    let gone = serde_json::to_string(&gone).unwrap();
    let (complaint, status) = step(&[&gone, &in_time, "/bin/true"]);
    let expected = "cannot join the control group /nonexistent: No such file or directory (os error 2)";
    assert_eq!((complaint.as_str(), status), (expected, Some(126)));
    assert_eq!(step(&[]), ("wrong arguments".to_owned(), Some(126)));
    assert_eq!(step(&["x"]).1, Some(126));
}

#[test]
fn it_is_not_for_people() {
    // Whoever runs the tests may have left the descriptor open.
    let script = format!("exec \"$0\" {WORD} {COMPLAINTS_FD}>&-");
    let output = Command::new("/bin/sh").arg("-c").arg(script).arg(program()).output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    assert!(text.starts_with("dtr confine: ") && text.contains("started by dtr only"), "{text}");
    assert_eq!(output.status.code(), Some(2));
}
