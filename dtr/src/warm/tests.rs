use std::collections::BTreeSet;
use std::fs;
use std::pin::pin;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Document, doc};
use disbatch_core::clock::boot_time;
use disbatch_core::lifecycle::Lifecycle;
use disbatch_core::model::{NodeName, Queue, Status, Task, TaskId};
use disbatch_core::plugin::Manifest;
use disbatch_core::secrets::SecureParams;
use disbatch_core::task::Run;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use super::*;
use crate::facts::final_status;
use crate::plugin::{About, PIPES_GRACE};
use crate::relay::{self, Inbox};
use crate::supervision::{self, End, Reason, Supervisor};

/// Nothing here takes so long.
const DEADLINE: Duration = Duration::from_secs(60);

const PATIENT: Duration = Duration::from_secs(100);

/// A warm plugin that does what `params.do` says, in Python, with `say`, `task`, `kept` and `message` at hand.
const PLUGIN: &str = r#"
import json, os, signal, subprocess, sys, time
def say(**line):
    data = json.dumps(line).encode() + b"\n"
    while data:
        data = data[os.write(3, data):]
kept = {}
for line in sys.stdin:
    message = json.loads(line)
    task = message["task"]
    after = ""
    exec(task["params"]["do"])
    sys.stdout.flush(); sys.stderr.flush()
    say(done={"id": task["_id"]["$oid"], "exit": task["params"].get("exit", 0)})
    exec(after)
"#;

struct Setup {
    keeper: Keeper,
    guards: Guards,
    plugin: Plugin,
    limits: Warm,
    queue: Queue,
    about: About,
    until: Duration,
    lifecycle: Lifecycle,
}

/// What came out of a task.
struct Came {
    ended: Ended,
    stdout: String,
    stderr: String,
    inbox: Inbox,
}

impl Setup {
    fn new(limits: Warm) -> Self {
        Self::program(limits, "/usr/bin/env", &["python3", "-c", PLUGIN])
    }

    fn program(limits: Warm, program: &str, arguments: &[&str]) -> Self {
        let queue = doc! { "_id": bson::oid::ObjectId::new(), "name": "q", "plugin": "Test" };
        let manifest = r#"{ "name": "Test", "command": ["test"], "warm": true }"#;
        Self {
            keeper: Keeper::default(),
            guards: Guards::default(),
            plugin: Plugin::new(
                serde_json::from_str(manifest).unwrap(),
                program.into(),
                arguments.iter().map(ToString::to_string).collect(),
            ),
            limits,
            queue: bson::deserialize_from_document(queue).unwrap(),
            about: About::default(),
            until: PATIENT,
            lifecycle: Lifecycle::default(),
        }
    }

    async fn run(&mut self, what: &str) -> Came {
        self.run_with(doc! { "do": what }, async |_| {}).await.unwrap()
    }

    /// Runs a task, and `interfere` beside it, which is given the task's folder too.
    async fn run_with(
        &mut self,
        params: Document,
        interfere: impl AsyncFnOnce((Supervisor, &Path)),
    ) -> Result<Came, NotBegun> {
        let (relay, inbox) = relay::channel();
        let (ended, stdout, stderr) = self.run_saying(params, &relay, interfere).await?;
        Ok(Came { ended, stdout, stderr, inbox })
    }

    /// The same where its reports go there. Returns what it wrote, too.
    async fn run_saying(
        &mut self,
        params: Document,
        relay: &Relay,
        interfere: impl AsyncFnOnce((Supervisor, &Path)),
    ) -> Result<(Ended, String, String), NotBegun> {
        let id = TaskId(bson::oid::ObjectId::new());
        let task = doc! { "_id": id, "queue": self.queue.id, "status": 0, "params": params };
        let task: Task = bson::deserialize_from_document(task).unwrap();
        let run =
            Run { task: id, queue: self.queue.id, node: NodeName::new("n1"), attempt: 1, instance: None };
        let folder: TempDir = tempfile::tempdir().unwrap();
        let (supervisor, mut supervision) = supervision::channel();
        let mut captures = Captures::new(None, None);
        let name = "Test".parse().unwrap();
        let job = Job {
            task: &task,
            json: None,
            secure_params: None,
            queue: &self.queue,
            name: &name,
            run: &run,
            folder: folder.path(),
            folder_is_used: false,
            until: boot_time() + self.until,
            about: &self.about,
        };
        let mut say = Say { supervision: &mut supervision, lifecycle: &self.lifecycle };
        let work = self.keeper.execute(
            (&self.plugin, self.limits),
            (job, &mut self.guards),
            &mut captures,
            relay,
            &mut say,
        );
        let both = async { tokio::join!(work, interfere((supervisor, folder.path()))).0 };
        let ended = timeout(DEADLINE, both).await.expect("it ends")?;
        Ok((ended, captures.stdout.text().await?, captures.stderr.text().await?))
    }
}

impl Came {
    fn status(&self) -> Status {
        final_status(self.ended.exit, self.ended.control.status.as_ref())
    }
}

fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with('Z'))
}

async fn file(folder: &Path, name: &str) -> String {
    loop {
        match fs::read_to_string(folder.join(name)) {
            Ok(text) if text.ends_with('\n') => return text.trim_end().to_owned(),
            _ => sleep(Duration::from_millis(5)).await,
        }
    }
}

#[tokio::test]
async fn one_process_takes_task_after_task() {
    let mut setup = Setup::new(Warm::default());
    let tell = "print(os.getpid(), message['env']['DISBATCH_TASK_ID'] == task['_id']['$oid'], \
        sorted(message['env']), os.getcwd(), os.listdir(message['work_dir']), \
        sorted(name for name in os.environ if name.startswith(('DISBATCH_', 'JOB_')) \
        and not name.startswith('DISBATCH_TEST_')))";
    let mut seen = BTreeSet::new();
    for _ in 0..20 {
        let came = setup.run(tell).await;
        assert_eq!((came.status(), came.stderr.as_str()), (Status::Succeeded, ""));
        seen.insert(came.stdout);
    }
    assert_eq!(seen.len(), 1, "{seen:?}");
    let expected = "True ['DISBATCH_ATTEMPT', 'DISBATCH_NODE', 'DISBATCH_PLUGIN', 'DISBATCH_QUEUE', \
        'DISBATCH_QUEUE_ID', 'DISBATCH_TASK_ID', 'DISBATCH_WORK_DIR', 'JOB_ID', 'JOB_PARAMS', 'JOB_STORAGE', \
        'LAST_SUCCESS_FINISH', 'LAST_SUCCESS_START', 'RUN_ID', 'TENANT_ID'] / [] \
        ['DISBATCH_CONTROL_FD', 'DISBATCH_NODE', 'DISBATCH_PLUGIN', 'DISBATCH_RUNNER_PID', 'DISBATCH_WARM']\n";
    assert_eq!(seen.first().unwrap().split_once(' ').unwrap().1, expected);
}

#[tokio::test]
async fn nothing_that_was_said_of_a_task_is_taken_for_the_next() {
    let mut setup = Setup::new(Warm::default());
    let folder = tempfile::tempdir().unwrap();
    let (go, gone) = (folder.path().join("go"), folder.path().join("gone"));
    let all = format!(
        "say(status=7); say(result={{'a': 1}}); say(progress={{'percent': 50}}); say(report={{'b': 2}}); say(x=1)
print('out'); print('err', file=sys.stderr)
after = '''
while not os.path.exists({go:?}): time.sleep(0.005)
say(status=5); say(result={{}}); say(progress={{}}); say(report={{}}); say(y=1)
print(1, flush=True); print(2, file=sys.stderr, flush=True)
open({gone:?}, 'w').close()'''"
    );
    let mut first = setup.run(&all).await;
    assert_eq!((first.status().code(), first.ended.control.result.take()), (7, Some(doc! { "a": 1 })));
    assert_eq!(first.inbox.next_report().await, Some(doc! { "b": 2 }));
    assert_eq!(first.stdout, "out\n");
    assert!(first.stderr.starts_with("err\ndisbatch: control key 'x' is unknown"), "{}", first.stderr);
    fs::write(&go, "").unwrap();
    while !gone.exists() {
        sleep(Duration::from_millis(5)).await;
    }
    let mut second = setup.run("pass").await;
    assert_eq!((second.status(), second.ended.control.result.take()), (Status::Succeeded, None));
    assert_eq!((second.stdout.as_str(), second.stderr.as_str()), ("", ""));
    assert!(second.inbox.next_report().await.is_none());
}

#[tokio::test]
async fn large_outputs_belong_to_their_tasks() {
    let mut setup = Setup::new(Warm::default());
    let write = |letter: char| {
        format!(
            "for n in range(16):
    os.write(1, b'{letter}' * 65536) and os.write(2, b'{}' * 65536)
sys.stdout.write('{letter}' * 5000); sys.stderr.write('{letter}')",
            letter.to_ascii_uppercase()
        )
    };
    for letter in ('a'..='z').cycle().take(60) {
        let came = setup.run(&write(letter)).await;
        let upper = letter.to_ascii_uppercase();
        assert_eq!((came.stdout.len(), came.stderr.len()), ((1 << 20) + 5000, (1 << 20) + 1));
        assert!(came.stdout.chars().all(|c| c == letter), "{letter}");
        assert!(
            came.stderr[..1 << 20].chars().all(|c| c == upper) && came.stderr.ends_with(letter),
            "{letter}"
        );
    }
}

#[tokio::test]
async fn exit_statuses_are_told_and_errors_are_of_one_task_only() {
    let mut setup = Setup::new(Warm::default());
    let mut pids = BTreeSet::new();
    for exit in [0, 1, 255, 0] {
        let params = doc! { "do": "print(os.getpid())", "exit": exit };
        let came = setup.run_with(params, async |_| {}).await.unwrap();
        assert_eq!((came.ended.exit.code(), came.ended.facts.code()), (Some(exit), Some(exit)));
        pids.insert(came.stdout);
    }
    assert_eq!(pids.len(), 1);
}

#[tokio::test]
async fn an_end_that_cannot_be_used_is_a_failure_of_its_task_alone() {
    let mut setup = Setup::new(Warm::default());
    let what = "say(status=1); say(done={'exit': 0}); kept['say'] = say
say = lambda **line: None
after = \"say = kept['say']\"";
    let wrong = setup.run(what).await;
    assert_eq!((wrong.status(), wrong.ended.exit.code()), (Status::Failed, Some(1)));
    assert!(wrong.stderr.contains("does not name this task as its id"), "{}", wrong.stderr);
    let next = setup.run("pass").await;
    assert_eq!((next.status(), next.stderr.as_str()), (Status::Succeeded, ""));
}

#[tokio::test]
async fn a_process_is_replaced_after_its_tasks() {
    let mut setup = Setup::new(Warm { tasks: 3, ..Warm::default() });
    let mut pids = Vec::new();
    for _ in 0..7 {
        pids.push(setup.run("print(os.getpid())").await.stdout);
    }
    let distinct: BTreeSet<_> = pids.iter().collect();
    assert_eq!(
        (distinct.len(), pids[0] == pids[2], pids[2] == pids[3], pids[3] == pids[5]),
        (3, true, false, true)
    );
    assert!(!runs(&pids[0]) && !runs(&pids[3]) && runs(&pids[6]));
}

#[test]
fn a_script_that_an_interpreter_is_given_counts_as_its_program() {
    let folder = tempfile::tempdir().unwrap();
    let script = folder.path().join("run.py");
    fs::write(&script, "one").unwrap();
    let elsewhere = tempfile::NamedTempFile::new().unwrap();
    let plugin = |arguments: &[&str]| {
        let manifest = Manifest::parse(r#"{ "name": "A", "command": ["a"] }"#).unwrap();
        let arguments = arguments.iter().map(|argument| (*argument).to_owned()).collect();
        let folder = Some(folder.path().to_owned());
        Plugin { folder, ..Plugin::new(manifest, "/bin/sh".into(), arguments) }
    };
    let seen = |plugin: &Plugin| Seen::default().of(plugin);
    let with_script = plugin(&["-u", script.to_str().unwrap(), elsewhere.path().to_str().unwrap(), "--all"]);
    let before = seen(&with_script);
    assert_eq!((before.marks.len(), seen(&plugin(&["-u"])).marks.len()), (2, 1));
    assert_eq!(seen(&with_script), before);
    fs::write(&script, "two and more").unwrap();
    assert_ne!(seen(&with_script), before);
}

#[tokio::test]
async fn a_process_that_has_grown_is_replaced() {
    for limits in [Warm::default(), Warm { memory: Some(60 << 20), ..Warm::default() }] {
        let mut setup = Setup::new(limits);
        let small = setup.run("print(os.getpid())").await;
        assert!((1 << 20..40 << 20).contains(&small.ended.facts.exit.peak_memory), "{:?}", small.ended.facts);
        let grown = setup.run("kept['x'] = b'x' * (100 << 20); print(os.getpid())").await;
        assert!(grown.ended.facts.exit.peak_memory > 100 << 20, "{:?}", grown.ended.facts);
        let next = setup.run("print(os.getpid(), len(kept))").await;
        assert_eq!(small.stdout, grown.stdout);
        assert_ne!(next.stdout.split_once(' ').unwrap().0, grown.stdout.trim());
        assert!(next.stdout.ends_with(" 0\n"), "{}", next.stdout);
    }
}

#[tokio::test]
async fn a_task_that_hangs_is_ended_with_all_that_it_started() {
    let mut setup = Setup::new(Warm::default());
    let before = setup.run("print(os.getpid())").await.stdout;
    let hang = "subprocess.Popen(['sleep', '1000'], start_new_session=True)
child = subprocess.Popen(['sh', '-c', 'echo $$ > $0/child; exec sleep 1000', message['work_dir']])
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print('begun', flush=True); time.sleep(1000)";
    let mut child = String::new();
    let timeout = async |(supervisor, folder): (Supervisor, &Path)| {
        child = file(folder, "child").await;
        supervisor.end(End { reason: Reason::Timeout, grace: Duration::from_millis(300) });
    };
    let came = setup.run_with(doc! { "do": hang }, timeout).await.unwrap();
    assert_eq!((came.ended.facts.signal(), came.ended.facts.reason), (Some(9), Some(Reason::Timeout)));
    assert_eq!(
        (came.stdout.as_str(), came.stderr.as_str()),
        ("begun\n", "Plugin killed by signal 9 (SIGKILL)\n")
    );
    assert!(!runs(&before) && !runs(&child));
    let after = setup.run("print(os.getpid())").await;
    assert_ne!(after.stdout, before);
}

#[tokio::test]
async fn a_task_that_never_stops_writing_is_ended_like_any_other() {
    let mut setup = Setup::new(Warm::default());
    let flood = "signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(message['work_dir'] + '/ready', 'w').write('1\\n')
while True: say(progress={'n': 1})";
    let timeout = async |(supervisor, folder): (Supervisor, &Path)| {
        file(folder, "ready").await;
        supervisor.end(End { reason: Reason::Timeout, grace: Duration::from_millis(50) });
    };
    let came = setup.run_with(doc! { "do": flood }, timeout).await.unwrap();
    assert_eq!((came.ended.facts.signal(), came.ended.facts.reason), (Some(9), Some(Reason::Timeout)));
}

#[tokio::test]
async fn a_cancelled_task_may_end_in_its_own_way_but_its_process_goes() {
    let mut setup = Setup::new(Warm::default());
    let what = "
def stop(*_): raise KeyboardInterrupt
signal.signal(signal.SIGTERM, stop)
try:
    open(message['work_dir'] + '/ready', 'w').write('1\\n'); time.sleep(1000)
except KeyboardInterrupt:
    print(os.getpid())";
    let cancel = async |(supervisor, folder): (Supervisor, &Path)| {
        file(folder, "ready").await;
        supervisor.end(End { reason: Reason::Cancel, grace: PATIENT });
    };
    let came = setup.run_with(doc! { "do": what }, cancel).await.unwrap();
    // It says that it is done, reads that no more tasks will come, and ends.
    assert_eq!((came.ended.facts.code(), came.ended.facts.reason), (Some(0), Some(Reason::Cancel)));
    assert_eq!(came.stderr, "");
    assert!(!runs(&came.stdout));
    assert_eq!(setup.run("pass").await.status(), Status::Succeeded);
}

#[tokio::test]
async fn a_lease_that_is_over_ends_the_process() {
    let mut setup = Setup::new(Warm::default());
    setup.run("pass").await;
    // The guard has a later time from the first task, and has to hear of this one.
    setup.until = Duration::from_millis(200);
    let came = setup.run("time.sleep(1000)").await;
    assert_eq!((came.ended.facts.signal(), came.ended.facts.reason), (Some(9), Some(Reason::LeaseLost)));
    assert!(came.stderr.starts_with("disbatch: the plugin was killed because the task's lease ran out"));
    setup.until = Duration::ZERO;
    let error = setup.run_with(doc! { "do": "pass" }, async |_| {}).await.err().unwrap();
    assert_eq!(error.to_string(), LEASE_IS_OVER);
}

#[tokio::test]
async fn a_renewed_lease_lets_it_live() {
    let mut setup = Setup::new(Warm::default());
    setup.until = Duration::from_millis(400);
    let renew = async |(supervisor, _): (Supervisor, &Path)| supervisor.live_until(boot_time() + PATIENT);
    let came = setup.run_with(doc! { "do": "time.sleep(0.6)" }, renew).await.unwrap();
    assert_eq!(came.status(), Status::Succeeded);
}

#[tokio::test]
async fn a_process_that_dies_takes_its_task_along_and_no_other() {
    let mut setup = Setup::new(Warm::default());
    let cases = [
        ("os.kill(os.getpid(), 11)", None, Some(11), "Plugin killed by signal 11 (SIGSEGV"),
        ("os._exit(3)", Some(3), None, "disbatch: the plugin ended without saying that the task is done\n"),
        ("os._exit(0)", Some(0), None, "disbatch: the plugin ended without saying that the task is done\n"),
    ];
    for (what, code, signal, note) in cases {
        assert_eq!(setup.run("pass").await.status(), Status::Succeeded);
        let came = setup.run(&format!("print('first', flush=True); {what}")).await;
        assert_eq!((came.ended.facts.code(), came.ended.facts.signal()), (code, signal));
        assert_eq!((came.status(), came.stdout.as_str()), (Status::Failed, "first\n"));
        assert!(came.stderr.starts_with(note), "{}", came.stderr);
    }
    assert_eq!(setup.run("pass").await.status(), Status::Succeeded);
}

#[tokio::test]
async fn a_task_that_was_done_is_heard_of_however_long_its_reports_wait_for_the_database() {
    let mut setup = Setup::new(Warm::default());
    let (relay, mut database) = relay::channel();
    let what = "
for n in range(2000): say(report={'n': n})
say(status=5); print('out'); print('err', file=sys.stderr); after = 'os._exit(3)'";
    let mut run = pin!(setup.run_saying(doc! { "do": what }, &relay, async |_| {}));
    assert!(timeout(2 * PIPES_GRACE, run.as_mut()).await.is_err(), "there is more to be read");
    let read = async {
        for n in 0..2000 {
            assert_eq!(database.next_report().await, Some(doc! { "n": n }));
        }
    };
    let (ran, ()) = tokio::join!(run, read);
    let (ended, stdout, stderr) = ran.unwrap();
    assert_eq!((ended.control.status, ended.exit.code()), (Some(5.into()), Some(0)));
    assert_eq!((stdout.as_str(), stderr.as_str()), ("out\n", "err\n"));
}

#[tokio::test]
async fn a_process_that_ends_between_tasks_is_replaced_and_no_task_runs_twice() {
    let mut setup = Setup::new(Warm::default());
    let folder = tempfile::tempdir().unwrap();
    let record = folder.path().join("record");
    // At once, and so late that the next line may be in the pipe already.
    for after in
        ["os._exit(0)", "time.sleep(0.002); os._exit(0)", "os.close(0); time.sleep(0.05); os._exit(1)"]
    {
        for number in 0..15 {
            let what = format!("open({record:?}, 'a').write('{number}\\n'); after = {after:?}");
            let came = setup.run(&what).await;
            assert_eq!((came.status(), came.stderr.as_str()), (Status::Succeeded, ""));
        }
        let expected: String = (0..15).map(|number| format!("{number}\n")).collect();
        assert_eq!(fs::read_to_string(&record).unwrap(), expected);
        fs::remove_file(&record).unwrap();
    }
}

#[tokio::test]
async fn a_task_that_its_process_has_looked_at_is_not_given_to_another() {
    let mut setup = Setup::new(Warm::default());
    // It reads one byte of the next line, and ends.
    let first = setup.run("after = 'os.read(0, 1); os._exit(0)'").await;
    assert_eq!(first.status(), Status::Succeeded);
    let second = setup.run("print('ran')").await;
    assert_eq!((second.status(), second.stdout.as_str()), (Status::Failed, ""));
    assert_eq!(setup.run("print('ran')").await.stdout, "ran\n");
}

#[tokio::test]
async fn a_program_that_takes_no_tasks_is_not_started_for_ever() {
    let mut setup = Setup::program(Warm::default(), "/bin/true", &[]);
    let error = setup.run_with(doc! {}, async |_| {}).await.err().unwrap();
    assert_eq!(error.to_string(), "it ends before it takes a task");
    let mut setup = Setup::program(Warm::default(), "/nonexistent", &[]);
    let error = setup.run_with(doc! {}, async |_| {}).await.err().unwrap();
    assert_eq!(error.to_string(), "No such file or directory (os error 2)");
}

#[tokio::test]
async fn lines_of_any_length_pass() {
    let mut setup = Setup::new(Warm::default());
    for length in [1, 70_000, 3_000_000] {
        let params = doc! { "do": "print(len(task['params']['x']))", "x": "x".repeat(length) };
        let came = setup.run_with(params, async |_| {}).await.unwrap();
        assert_eq!(came.stdout, format!("{length}\n"));
    }
}

#[tokio::test]
async fn a_changed_program_is_used_within_a_second_or_two() {
    let folder = tempfile::tempdir().unwrap();
    let program = folder.path().join("plugin");
    let install = |version: u32| {
        let new = folder.path().join("new");
        let text = PLUGIN.replace("kept = {}", &format!("kept = {version}"));
        fs::write(&new, format!("#!/usr/bin/env python3\n{text}")).unwrap();
        fs::set_permissions(&new, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        fs::rename(&new, &program).unwrap();
    };
    install(1);
    let mut setup = Setup::program(Warm::default(), program.to_str().unwrap(), &[]);
    assert_eq!(setup.run("print(kept)").await.stdout, "1\n");
    install(2);
    let until = Instant::now() + DEADLINE;
    while setup.run("print(kept)").await.stdout != "2\n" {
        assert!(Instant::now() < until, "the old program is still used");
    }
}

#[tokio::test]
async fn nothing_survives_a_killed_guard() {
    let mut setup = Setup::new(Warm::default());
    let what = "subprocess.Popen(['sleep', '1000'], start_new_session=True)
open(message['work_dir'] + '/guard', 'w').write(f'{os.getppid()}\\n'); print(os.getpid(), flush=True); time.sleep(1000)";
    let murder = async |(supervisor, folder): (Supervisor, &Path)| {
        kill(Pid::from_raw(file(folder, "guard").await.parse().unwrap()), Signal::SIGKILL).unwrap();
        drop(supervisor);
    };
    let came = setup.run_with(doc! { "do": what }, murder).await.unwrap();
    assert!(came.stderr.starts_with("disbatch: the guard of the plugin was killed"), "{}", came.stderr);
    assert!(!runs(&came.stdout));
    assert_eq!(setup.run("pass").await.status(), Status::Succeeded);
}

#[tokio::test]
async fn without_tasks_a_process_is_ended_and_what_it_writes_is_thrown_away() {
    let mut setup = Setup::new(Warm { idle: Duration::from_millis(300), ..Warm::default() });
    let folder = tempfile::tempdir().unwrap();
    let go = folder.path().join("go");
    let after = format!(
        "print(os.getpid())
after = '''
while not os.path.exists({go:?}): time.sleep(0.005)
os.write(1, b'x' * 1000000)'''"
    );
    let pid = setup.run(&after).await.stdout;
    fs::write(&go, "").unwrap();
    timeout(DEADLINE, setup.keeper.idle()).await.unwrap();
    assert!(!runs(&pid) && setup.keeper.plugin().is_none());
    assert_eq!(setup.run("print('again')").await.stdout, "again\n");
}

#[tokio::test]
async fn the_end_is_polite_and_does_not_take_for_ever() {
    let folder = tempfile::tempdir().unwrap();
    let mark = folder.path().join("mark");
    let mut setup = Setup::new(Warm::default());
    setup.run(&format!("import atexit; atexit.register(lambda: open({mark:?}, 'w').close())")).await;
    setup.keeper.end().await;
    assert!(mark.exists());
    let pid = setup.run("print(os.getpid()); after = 'time.sleep(1000)'").await.stdout;
    setup.keeper.end().await;
    assert!(!runs(&pid));
}

#[tokio::test]
async fn nothing_survives_a_runner_that_gives_up() {
    let mut setup = Setup::new(Warm::default());
    let pid = setup.run("print(os.getpid())").await.stdout;
    setup.keeper = Keeper::default();
    let gone = async {
        while runs(&pid) {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(DEADLINE, gone).await.unwrap();
}

fn read<T: serde::de::DeserializeOwned>(document: Document) -> T {
    bson::deserialize_from_document(document).unwrap()
}

#[test]
fn secure_parameters_are_in_the_task_and_in_no_variable() {
    let (id, queue) = (ObjectId::new(), ObjectId::new());
    let sealed = doc! { "key": "k", "data": "sealed" };
    let task: Task = read(doc! {
        "_id": id, "queue": queue, "status": 0, "params": { "a": 1 }, "secure_params": sealed,
    });
    let queue: Queue = read(doc! { "_id": queue, "name": "q", "plugin": "Test" });
    let secret = json!({ "password": "correct horse", "odd": { "$oid": "x" } });
    let params = SecureParams::new(secret.as_object().unwrap().clone()).unwrap();
    let name = "Test".parse().unwrap();
    let run =
        Run { task: TaskId(id), queue: queue.id, node: NodeName::new("n1"), attempt: 1, instance: None };
    let job = Job {
        task: &task,
        json: None,
        secure_params: Some(&params),
        queue: &queue,
        name: &name,
        run: &run,
        folder: Path::new("/tmp"),
        folder_is_used: false,
        until: Duration::ZERO,
        about: &About::default(),
    };
    assert!(!format!("{job:?}").contains("horse"));
    let line = task_line(&job).unwrap();
    assert_eq!(line.last(), Some(&b'\n'));
    let text = String::from_utf8(line.to_vec()).unwrap();
    assert_eq!(text.lines().count(), 1);
    let line: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(line["task"]["secure_params"], secret);
    assert!(!line["env"].to_string().contains("horse") && !text.contains("sealed"), "{text}");
    let without = task_line(&Job { secure_params: None, ..job }).unwrap();
    let without = String::from_utf8(without.to_vec()).unwrap();
    assert!(!without.contains("secure_params"), "what is stored of them is of no use: {without}");
    let bare = task_line(&Job { folder: Path::new("/"), ..job }).unwrap();
    let bare: Value = serde_json::from_slice(&bare).unwrap();
    assert!(bare.get("work_dir").is_none() && bare["env"].get("DISBATCH_WORK_DIR").is_none(), "{bare}");
    assert_eq!(line["work_dir"], "/tmp");
    let about = About { secure_params_in_environment: true, ..About::default() };
    let asked = task_line(&Job { about: &about, ..job }).unwrap();
    let line: Value = serde_json::from_slice(&asked).unwrap();
    assert_eq!(line["env"]["JOB_SECURE_PARAMS"], secret.to_string());
}
