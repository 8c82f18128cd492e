//! A warm runner, and a DEN that a test plays.
#![cfg(test)]

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use command_fds::{CommandFdExt, FdMapping};
use disbatch_core::link::{Answer, Ask, Assignment, Go, ToDen, ToRunner, read, write};
use disbatch_core::model::{NodeName, QueueId, Status, TaskId};
use disbatch_core::output::StreamName;
use disbatch_core::private_folder::PrivateFolder;
use disbatch_core::task::{Finish, Run, Wishes};
use nix::sys::signal::{Signal, kill};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::net::UnixStream;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

/// Nothing here takes so long.
const DEADLINE: Duration = Duration::from_secs(30);

const LEASE: Duration = Duration::from_secs(30);

#[test]
fn it_is_linked_for_one_address() {
    let program = fs::read(env!("CARGO_BIN_EXE_dtr")).unwrap();
    // `e_type` of its ELF header: EXEC, not DYN.
    assert_eq!((&program[..4], &program[16..18]), (&b"\x7fELF"[..], &[2_u8, 0][..]));
}

/// The DEN's side of a warm runner. Nobody answers for the database.
struct Den {
    folder: TempDir,
    runner: Child,
    link: UnixStream,
    lease: Duration,
    /// Of the last assignment.
    number: i64,
}

impl Den {
    fn start() -> Self {
        Self::with(LEASE, doc! {})
    }

    fn with(lease: Duration, extra: Document) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut config = doc! {
            "mongohost": "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=50&connectTimeoutMS=50",
            "database": "none", "plugin_dirs": ["plugins"],
        };
        config.extend(extra);
        let path = folder.path().join("config.json");
        fs::write(&path, Bson::Document(config).into_relaxed_extjson().to_string()).unwrap();
        fs::create_dir(folder.path().join("plugins")).unwrap();
        fs::create_dir(folder.path().join("tmp")).unwrap();
        let (link, far) = std::os::unix::net::UnixStream::pair().unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_dtr"));
        command
            .arg("--config")
            .arg(&path)
            .args(["--node", "n1", "--gfs", "auto", "--no-echo", "--link", "7"])
            .env("TMPDIR", folder.path().join("tmp"))
            .stdin(Stdio::null())
            .fd_mappings(vec![FdMapping { parent_fd: OwnedFd::from(far), child_fd: 7 }])
            .unwrap()
            .kill_on_drop(true);
        let runner = command.spawn().unwrap();
        drop(command);
        link.set_nonblocking(true).unwrap();
        Self { folder, runner, link: UnixStream::from_std(link).unwrap(), lease, number: 0 }
    }

    /// Installs `sh -c script` as a plugin.
    fn plugin(&self, name: &str, script: &str) {
        let folder = self.folder.path().join("plugins").join(name);
        fs::create_dir_all(&folder).unwrap();
        let manifest = doc! { "name": name, "command": ["sh", "-c", script] };
        fs::write(folder.join("plugin.json"), Bson::Document(manifest).into_relaxed_extjson().to_string())
            .unwrap();
    }

    /// Installs a warm plugin in the shell whose tasks have no folder. It says whether a task is told of one, and does
    /// `script` for it.
    fn warm_plugin(&self, name: &str, script: &str) {
        let script = format!(
            "while read -r line; do id=${{line#*oid\\\":\\\"}}; id=${{id%%\\\"*}}
            case $line in *work_dir*|*WORK_DIR*) echo told;; *) echo untold;; esac
            {script}
            echo \"{{\\\"done\\\":{{\\\"id\\\":\\\"$id\\\"}}}}\" >&3; done"
        );
        self.plugin(name, &script);
        let manifest = doc! { "name": name, "command": ["sh", "-c", script], "warm": { "folder": false } };
        let file = self.folder.path().join("plugins").join(name).join("plugin.json");
        fs::write(file, Bson::Document(manifest).into_relaxed_extjson().to_string()).unwrap();
    }

    /// Whether the runner is in the private folder of the task.
    fn is_at(&self, task: TaskId) -> bool {
        let cwd = self.cwd();
        let name = cwd.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        PrivateFolder::parse(name).and_then(|folder| folder.task) == Some(task)
    }

    fn pid(&self) -> Pid {
        Pid::from_raw(self.runner.id().unwrap().try_into().unwrap())
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Waits for a file with a complete line, and returns it.
    async fn line_of(&self, name: &str) -> String {
        let wait = async {
            loop {
                match fs::read_to_string(self.file(name)) {
                    Ok(text) if text.ends_with('\n') => return text.trim_end().to_owned(),
                    _ => sleep(Duration::from_millis(5)).await,
                }
            }
        };
        timeout(DEADLINE, wait).await.expect("the plugin says something")
    }

    async fn tell(&mut self, message: ToRunner) {
        timeout(DEADLINE, write(&mut self.link, &message)).await.unwrap().unwrap();
    }

    /// Assigns a task for a plugin.
    async fn assign(&mut self, plugin: &str) -> Assignment {
        self.number += 1;
        let assignment = assignment(plugin, self.lease, self.number);
        self.tell(ToRunner::Assign(Box::new(assignment.clone()))).await;
        let taken = timeout(DEADLINE, read::<ToDen>(&mut self.link)).await.expect("it is taken").unwrap();
        assert!(matches!(taken, Some(ToDen::Taken { of }) if of == self.number), "{taken:?}");
        assignment
    }

    async fn go(&mut self) {
        let until_ms = until_ms(self.lease);
        self.tell(ToRunner::Go(Go { of: self.number, until_ms, deadline_in_ms: None })).await;
    }

    /// Assigns a task and lets it begin.
    async fn begin(&mut self, plugin: &str) -> Assignment {
        let assignment = self.assign(plugin).await;
        self.go().await;
        assignment
    }

    /// The next question.
    async fn asked(&mut self) -> (i64, Ask) {
        let message = timeout(DEADLINE, read::<ToDen>(&mut self.link)).await;
        match message.expect("a question is due").unwrap().expect("the link is up") {
            ToDen::Ask { id, of, ask } => {
                assert_eq!(of, self.number, "{ask:?}");
                (id, ask)
            }
            ToDen::Taken { of } => panic!("assignment {of} is taken twice"),
        }
    }

    async fn answer(&mut self, id: i64, answer: Answer) {
        self.tell(ToRunner::Answer { id, answer }).await;
    }

    /// Answers everything as a DEN does until the end of the task, and returns that. It is not answered.
    async fn until_finish(&mut self) -> (i64, Finish) {
        loop {
            let (id, ask) = self.asked().await;
            let answer = match ask {
                Ask::Finish(finish) => return (id, *finish),
                Ask::Renew => Answer::Held { until_ms: until_ms(self.lease), wishes: Wishes::default() },
                Ask::RetryLater { .. } | Ask::Settle | Ask::Register { .. } | Ask::Detach | Ask::LetGo => {
                    panic!("{ask:?}")
                }
                Ask::Progress(_)
                | Ask::Steps { .. }
                | Ask::Storage { .. }
                | Ask::Live { .. }
                | Ask::RemoveLive { .. }
                | Ask::KeepCommon { .. }
                | Ask::Upload { .. } => Answer::Done,
            };
            self.answer(id, answer).await;
        }
    }

    /// Lets the task end, and stores it.
    async fn finish(&mut self) -> Finish {
        let (id, finish) = self.until_finish().await;
        self.answer(id, Answer::Stored).await;
        finish
    }

    async fn run(&mut self, plugin: &str) -> Finish {
        self.begin(plugin).await;
        self.finish().await
    }

    async fn exit(&mut self) -> ExitStatus {
        timeout(DEADLINE, self.runner.wait()).await.expect("the runner ends").unwrap()
    }

    fn cwd(&self) -> PathBuf {
        fs::read_link(format!("/proc/{}/cwd", self.pid())).unwrap()
    }

    async fn until_idle(&self) {
        eventually("the runner is idle", || self.cwd() == Path::new("/")).await;
    }
}

fn assignment(plugin: &str, lease: Duration, number: i64) -> Assignment {
    let (task, queue) = (ObjectId::new(), ObjectId::new());
    let run = Run {
        task: TaskId(task),
        queue: QueueId(queue),
        node: NodeName::new("n1"),
        attempt: 3,
        instance: Some("i".to_owned()),
    };
    let history = vec![doc! { "at": DateTime::from_millis(1), "status": -2 }];
    let task = doc! {
        "_id": task, "queue": queue, "status": -1, "node": "n1", "params": { "a": 1 }, "attempt": 3_i64,
        "instance": "i", "history": history, "mtime": DateTime::from_millis(1),
    };
    let queue = doc! { "_id": queue, "name": "q", "plugin": plugin };
    Assignment {
        number,
        run,
        task: RawDocumentBuf::try_from(&task).unwrap(),
        queue: RawDocumentBuf::try_from(&queue).unwrap(),
        at: DateTime::from_millis(1_700_000_000_000),
        lease_ms: lease.as_millis().try_into().unwrap(),
        go: None,
        schedule: None,
        schedule_problem: None,
        workers: Vec::new(),
        lane: false,
    }
}

fn until_ms(lease: Duration) -> i64 {
    let boot = Duration::from(clock_gettime(ClockId::CLOCK_BOOTTIME).unwrap());
    (boot + lease.mul_f64(0.9)).as_millis().try_into().unwrap()
}

async fn eventually(what: &str, mut condition: impl FnMut() -> bool) {
    let until = Instant::now() + DEADLINE;
    while !condition() {
        assert!(Instant::now() < until, "{what}");
        sleep(Duration::from_millis(5)).await;
    }
}

fn text(stream: &Bson) -> &str {
    stream.as_str().unwrap_or_default()
}

#[tokio::test]
async fn one_runner_takes_many_tasks() {
    let mut den = Den::start();
    den.plugin("Echo", "echo $DISBATCH_TASK_ID $DISBATCH_ATTEMPT; pwd; echo err >&2; exit 3");
    let runner = den.pid();
    for _ in 0..50 {
        let assignment = den.begin("Echo").await;
        let id = assignment.run.task.to_string();
        let finish = den.finish().await;
        assert_eq!(finish.status, Status::Failed);
        let lines: Vec<&str> = text(&finish.stdout).lines().collect();
        assert_eq!(lines[0], format!("{id} 3"));
        let folder = den.file(&format!("tmp/disbatch-{id}-"));
        assert!(lines[1].starts_with(folder.to_str().unwrap()), "{lines:?}");
        assert!(text(&finish.stderr).starts_with("err\n"));
        assert_eq!(finish.exit.unwrap().get_i32("code").unwrap(), 3);
    }
    assert_eq!(den.pid(), runner);
    den.until_idle().await;
    let tmp = den.file("tmp");
    let left: Vec<_> = fs::read_dir(&tmp).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    let left: Vec<_> = left.iter().map(|name| PrivateFolder::parse(name.to_str().unwrap())).collect();
    assert!(matches!(left[..], [Some(PrivateFolder { task: None, .. })]), "one for the next task: {left:?}");
    drop(den.link);
    let mut ended = den.runner;
    assert!(timeout(DEADLINE, ended.wait()).await.unwrap().unwrap().success());
    assert_eq!(fs::read_dir(tmp).unwrap().count(), 0, "no folder is left");
}

#[tokio::test]
async fn what_tasks_leave_goes_beside_the_next_ones() {
    let mut den = Den::start();
    den.plugin("Full", "ls; mkdir -p a/b; for n in 1 2 3 4 5; do echo > a/b/$n; done");
    for _ in 0..20 {
        let finish = den.run("Full").await;
        assert_eq!((finish.status, text(&finish.stdout)), (Status::Succeeded, ""), "its folder is empty");
    }
    let tmp = den.file("tmp");
    eventually("all of it is gone", || fs::read_dir(&tmp).unwrap().next().is_none()).await;
}

#[tokio::test]
async fn the_plugin_is_told_of_a_running_task() {
    let mut den = Den::start();
    den.plugin("Cat", "cat");
    let assignment = den.begin("Cat").await;
    let finish = den.finish().await;
    let task: serde_json::Value = serde_json::from_str(text(&finish.stdout)).unwrap();
    let at = "2023-11-14T22:13:20Z";
    assert_eq!(task["_id"]["$oid"], assignment.run.task.to_string());
    assert_eq!((&task["status"], &task["mtime"]["$date"]), (&0.into(), &at.into()));
    assert_eq!((&task["started"]["$date"], &task["pid"]), (&at.into(), &den.pid().as_raw().into()));
    assert_eq!(task["history"][1]["status"], 0);
    assert_eq!(task["params"]["a"], 1);
}

#[tokio::test]
async fn while_it_has_a_task_the_runner_is_in_its_folder() {
    let mut den = Den::start();
    den.plugin(
        "Wait",
        &format!("echo > {}; until [ -e go ]; do sleep 0.02; done", den.file("ran").display()),
    );
    den.until_idle().await;
    let assignment = den.assign("Wait").await;
    let id = assignment.run.task.to_string();
    let name = format!("disbatch-{id}-");
    let is_there = |den: &Den| den.cwd().file_name().is_some_and(|n| n.to_str().unwrap().starts_with(&name));
    eventually("the runner is in the folder of the task", || is_there(&den)).await;
    assert!(!den.file("ran").exists(), "it has not been started");
    den.go().await;
    den.line_of("ran").await;
    assert!(is_there(&den));
    fs::write(den.cwd().join("go"), "").unwrap();
    let (finish, _) = den.until_finish().await;
    assert!(is_there(&den), "its result is not stored yet");
    den.answer(finish, Answer::Stored).await;
    den.until_idle().await;
}

#[tokio::test]
async fn a_warm_task_that_needs_no_folder_gets_none_until_it_lasts() {
    let mut den = Den::start();
    den.warm_plugin("Warm", &format!("until [ -e {} ]; do sleep 0.02; done", den.file("go").display()));
    fs::write(den.file("go"), "").unwrap();
    for _ in 0..3 {
        den.assign("Warm").await;
        assert_eq!(den.cwd(), Path::new("/"), "none is made before the task is started");
        den.go().await;
        let finish = den.finish().await;
        assert_eq!((finish.status, text(&finish.stdout)), (Status::Succeeded, "untold\n"));
    }
    assert_eq!(fs::read_dir(den.file("tmp")).unwrap().count(), 0, "none was made");
    fs::remove_file(den.file("go")).unwrap();
    let task = den.begin("Warm").await.run.task;
    eventually("others see what the runner works on", || den.is_at(task)).await;
    fs::write(den.file("go"), "").unwrap();
    assert_eq!(text(&den.finish().await.stdout), "untold\n");
    let (id, ask) = den.asked().await;
    assert!(matches!(ask, Ask::RemoveLive { .. }), "{ask:?}");
    den.answer(id, Answer::Done).await;
    den.until_idle().await;
}

#[tokio::test]
async fn a_runner_without_a_den_shows_what_it_works_on_whatever_that_needs() {
    let mut den = Den::with(Duration::from_secs(600), doc! {});
    den.warm_plugin("Warm", &format!("echo > {}; exec sleep 1000", den.file("ready").display()));
    let task = den.begin("Warm").await.run.task;
    den.line_of("ready").await;
    let Den { folder, runner, link, lease, number } = den;
    drop(link);
    let (link, _far) = UnixStream::pair().unwrap();
    let den = Den { folder, runner, link, lease, number };
    eventually("others see what the runner works on", || den.is_at(task)).await;
}

#[tokio::test]
async fn a_task_that_is_gone_is_not_begun() {
    let mut den = Den::start();
    den.plugin("Touch", &format!("echo ran >> {}", den.file("ran").display()));
    den.assign("Touch").await;
    den.tell(ToRunner::Gone { of: den.number }).await;
    den.until_idle().await;
    assert!(!den.file("ran").exists());
    assert_eq!(den.run("Touch").await.status, Status::Succeeded);
    assert_eq!(den.line_of("ran").await, "ran");
}

#[tokio::test]
async fn a_look_becomes_a_renewal_and_a_cancel_ends_the_plugin() {
    let mut den = Den::start();
    let ready = den.file("ready");
    den.plugin("Wait", &format!("echo > {}; exec sleep 1000", ready.display()));
    den.begin("Wait").await;
    den.line_of("ready").await;
    den.tell(ToRunner::Look { of: den.number }).await;
    let (id, ask) = den.asked().await;
    assert!(matches!(ask, Ask::Renew), "{ask:?}");
    den.answer(
        id,
        Answer::Held { until_ms: until_ms(LEASE), wishes: Wishes { cancel: true, interrupt: false } },
    )
    .await;
    let finish = den.finish().await;
    assert_eq!((finish.status, finish.note.as_deref()), (Status::Terminated, Some("cancelled")));
    // What was left of the task's requests does not concern the next.
    den.plugin("True", "true");
    assert_eq!(den.run("True").await.status, Status::Succeeded);
}

#[tokio::test]
async fn a_renewal_passes_while_other_questions_wait() {
    let mut den = Den::with(Duration::from_secs(3), doc! {});
    den.plugin("Talk", "echo words; echo '{\"progress\": {\"percent\": 5}}' >&3; exec sleep 1000");
    den.begin("Talk").await;
    let mut waiting = Vec::new();
    let mut renewals = 0;
    while renewals < 2 || waiting.len() < 2 {
        match den.asked().await {
            (id, Ask::Renew) => {
                renewals += 1;
                let cancel = renewals == 2;
                den.answer(
                    id,
                    Answer::Held {
                        until_ms: until_ms(den.lease),
                        wishes: Wishes { cancel, interrupt: false },
                    },
                )
                .await;
            }
            (id, Ask::Progress(_) | Ask::Live { .. }) => waiting.push(id),
            (_, other) => panic!("{other:?}"),
        }
    }
    for id in waiting {
        den.answer(id, Answer::Done).await;
    }
    assert_eq!(den.finish().await.status, Status::Terminated);
}

#[tokio::test]
async fn a_task_that_was_taken_away_is_let_go() {
    let mut den = Den::start();
    den.plugin("Wait", &format!("echo > {}; exec sleep 1000", den.file("ready").display()));
    den.begin("Wait").await;
    den.line_of("ready").await;
    den.tell(ToRunner::Look { of: den.number }).await;
    let (id, _) = den.asked().await;
    den.answer(id, Answer::Lost).await;
    let (id, ask) = den.asked().await;
    assert!(matches!(ask, Ask::LetGo), "{ask:?}");
    den.answer(id, Answer::Done).await;
    den.plugin("True", "true");
    assert_eq!(den.run("True").await.status, Status::Succeeded);
}

#[tokio::test]
async fn long_output_and_files_come_over_the_link() {
    let mut den = Den::start();
    den.plugin("Long", "head -c 3145728 /dev/zero | tr '\\0' x; printf '\\377' >&2");
    den.begin("Long").await;
    let mut file = None;
    let finish = loop {
        match den.asked().await {
            (id, Ask::Upload { file: name, stream, bytes, .. }) => {
                assert_eq!((stream, &bytes[..]), (StreamName::Stderr, &b"\xff"[..]), "it is no text");
                file = Some(name);
                den.answer(id, Answer::Done).await;
            }
            (id, Ask::Finish(finish)) => {
                den.answer(id, Answer::Stored).await;
                break finish;
            }
            (id, _) => den.answer(id, Answer::Done).await,
        }
    };
    assert_eq!(text(&finish.stdout).len(), 3 << 20);
    assert_eq!(finish.stderr.as_object_id(), file);
}

#[tokio::test]
async fn an_idle_runner_ends_when_it_is_told_to_or_alone() {
    let mut den = Den::start();
    den.plugin("True", "true");
    den.run("True").await;
    kill(den.pid(), Signal::SIGTERM).unwrap();
    assert!(den.exit().await.success());
}

#[tokio::test]
async fn a_busy_runner_that_is_told_to_end_stores_its_task_first() {
    let mut den = Den::start();
    den.plugin(
        "Wait",
        &format!("echo > {}; until [ -e go ]; do sleep 0.02; done", den.file("ready").display()),
    );
    den.begin("Wait").await;
    den.line_of("ready").await;
    kill(den.pid(), Signal::SIGTERM).unwrap();
    fs::write(den.cwd().join("go"), "").unwrap();
    assert_eq!(den.finish().await.status, Status::Succeeded);
    assert!(den.exit().await.success());
}
