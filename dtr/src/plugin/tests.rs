mod direct;
mod engines;
mod rest;

use std::fs;
use std::path::PathBuf;

use bson::doc;
use disbatch_core::clock::boot_time;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::{sleep, timeout};

use super::*;
use crate::capture::Capture;
use crate::facts::final_status;
use crate::folder::mark;
use crate::relay;
use crate::supervision::{self, Supervisor};
use disbatch_core::model::{NodeName, Queue, Status, TaskId};
use disbatch_core::private_folder::PrivateFolder;

/// Nothing here takes so long.
const DEADLINE: Duration = Duration::from_secs(30);

const PATIENT: Duration = Duration::from_secs(100);

/// What came of a plugin.
#[derive(Debug)]
struct Ran {
    exit: ExitStatus,
    facts: ExitFacts,
    stdout: Capture,
    stderr: Capture,
    control: Control,
    saved: Option<Bson>,
}

/// A plugin in the shell, and what its task needs.
struct Setup {
    plugin: Plugin,
    task: Task,
    secure_params: Option<SecureParams>,
    about: About,
    queue: Queue,
    name: PluginName,
    run: Run,
    folder: TempDir,
    folder_is_used: bool,
    until: Duration,
}

impl Setup {
    fn script(script: &str) -> Self {
        Self::program("/bin/sh", &["-c", script])
    }

    fn program(program: &str, arguments: &[&str]) -> Self {
        let id = bson::oid::ObjectId::new();
        let queue = doc! { "_id": bson::oid::ObjectId::new(), "name": "q", "plugin": "Test" };
        let task =
            doc! { "_id": id, "queue": queue.get_object_id("_id").unwrap(), "status": 0, "params": {} };
        let queue: Queue = bson::deserialize_from_document(queue).unwrap();
        let run =
            Run { task: TaskId(id), queue: queue.id, node: NodeName::new("n1"), attempt: 1, instance: None };
        let manifest = r#"{ "name": "Test", "engine": "exec", "command": ["test"] }"#;
        Self {
            plugin: Plugin::new(
                serde_json::from_str(manifest).unwrap(),
                PathBuf::from(program),
                arguments.iter().map(ToString::to_string).collect(),
            ),
            task: bson::deserialize_from_document(task).unwrap(),
            secure_params: None,
            about: About::default(),
            queue,
            name: "Test".parse().unwrap(),
            run,
            folder: tempfile::Builder::new()
                .prefix(&PrivateFolder::of(TaskId(id), mark()).name())
                .tempdir()
                .unwrap(),
            folder_is_used: false,
            until: boot_time() + PATIENT,
        }
    }

    /// Runs it, and `interfere` beside it.
    async fn run<F: Future<Output = ()>>(
        &self,
        interfere: impl FnOnce(Supervisor) -> F,
    ) -> Result<Ran, NotBegun> {
        self.run_under(&mut Guards::default(), interfere).await
    }

    /// The same under these guards.
    async fn run_under<F: Future<Output = ()>>(
        &self,
        guards: &mut Guards,
        interfere: impl FnOnce(Supervisor) -> F,
    ) -> Result<Ran, NotBegun> {
        let (relay, _inbox) = relay::channel();
        self.run_saying((guards, &relay), interfere).await
    }

    /// The same where its reports, and what is saved, go there.
    async fn run_saying<F: Future<Output = ()>>(
        &self,
        (guards, relay): (&mut Guards, &Relay),
        interfere: impl FnOnce(Supervisor) -> F,
    ) -> Result<Ran, NotBegun> {
        let (supervisor, mut supervision) = supervision::channel();
        let job = Job {
            task: &self.task,
            json: None,
            secure_params: self.secure_params.as_ref(),
            queue: &self.queue,
            name: &self.name,
            run: &self.run,
            folder: self.folder.path(),
            folder_is_used: self.folder_is_used,
            until: self.until,
            about: &self.about,
        };
        let lifecycle = Lifecycle::default();
        let mut captures = Captures::new(None, None);
        let run = async {
            let mut say = Say { supervision: &mut supervision, lifecycle: &lifecycle };
            execute(&self.plugin, (job, None), guards, &mut captures, relay, &mut say).await
        };
        let both = async { tokio::join!(run, interfere(supervisor)).0 };
        let Ended { exit, facts, control } = timeout(DEADLINE, both).await.expect("it ends")?;
        let Captures { stdout, stderr } = captures;
        Ok(Ran { exit, facts, stdout, stderr, control, saved: relay.saved() })
    }

    /// What the plugin has written to a file of this name in its folder, once it has.
    async fn file(&self, name: &str) -> String {
        loop {
            match fs::read_to_string(self.folder.path().join(name)) {
                Ok(text) if text.ends_with('\n') => return text.trim_end().to_owned(),
                _ => sleep(Duration::from_millis(5)).await,
            }
        }
    }
}

async fn nothing(_: Supervisor) {}

/// Whether a process runs. One that has ended and was not waited for does not.
fn runs(pid: &str) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, fields)| !fields.starts_with('Z'))
}

#[tokio::test]
async fn a_plugin_runs_and_all_that_is_known_of_it_is_told() {
    let setup = Setup::script(
        r#"cat; echo err >&2; echo '{"status": 5}' >&3
        echo $DISBATCH_TASK_ID $DISBATCH_QUEUE $DISBATCH_PLUGIN $DISBATCH_NODE $DISBATCH_CONTROL_FD $JOB_PARAMS
        [ $DISBATCH_WORK_DIR = $PWD ] && exit 3"#,
    );
    let ended = setup.run(nothing).await.unwrap();
    let input = json_of(&setup.task).unwrap() + "\n";
    let id = setup.task.id;
    assert_eq!(ended.stdout.text().await.unwrap(), format!("{input}{id} q Test n1 3 {{}}\n"));
    assert_eq!(ended.stderr.text().await.unwrap(), "err\n");
    assert_eq!(ended.control.status, Some(5.into()));
    assert_eq!(ended.exit.code(), Some(3));
    let facts = ended.facts;
    assert_eq!((facts.code(), facts.signal(), facts.exit.oom, facts.reason), (Some(3), None, false, None));
    let exit = facts.exit;
    assert!(exit.duration > Duration::ZERO && exit.cpu > Duration::ZERO && exit.peak_memory > 100_000);
}

#[tokio::test]
async fn secure_parameters_are_on_standard_input_and_nowhere_else() {
    let mut setup = Setup::script("cat; env; tr '\\0' ' ' < /proc/self/cmdline");
    setup.task.rest.insert("secure_params", doc! { "key": "k", "data": "sealed" });
    let secret = json!({ "password": "correct horse" });
    setup.secure_params = SecureParams::new(secret.as_object().unwrap().clone());
    let ended = setup.run(nothing).await.unwrap();
    let stdout = ended.stdout.text().await.unwrap();
    let (input, around) = stdout.split_once('\n').unwrap();
    let input: Value = serde_json::from_str(input).unwrap();
    assert_eq!(input["secure_params"], secret);
    assert!(around.contains("DISBATCH_TASK_ID=") && around.contains("/bin/sh"), "{around}");
    assert!(!around.contains("horse") && !stdout.contains("sealed"), "{stdout}");
}

#[tokio::test]
async fn secure_parameters_are_in_a_variable_for_plugins_that_ask_for_it() {
    let mut setup =
        Setup::script("cat > /dev/null; echo \"$JOB_SECURE_PARAMS\"; tr '\\0' ' ' < /proc/self/cmdline");
    let secret = json!({ "password": "correct horse" });
    setup.secure_params = SecureParams::new(secret.as_object().unwrap().clone());
    setup.about.secure_params_in_environment = true;
    let ended = setup.run(nothing).await.unwrap();
    let stdout = ended.stdout.text().await.unwrap();
    let (told, arguments) = stdout.split_once('\n').unwrap();
    assert_eq!(serde_json::from_str::<Value>(told).unwrap(), secret);
    assert!(!arguments.contains("horse"), "{arguments}");
}

#[tokio::test]
async fn what_is_saved_on_standard_output_stays_in_it() {
    let setup = Setup::script("echo '[saveJobStorage] {\"n\": 1}'; echo more");
    let ended = setup.run(nothing).await.unwrap();
    assert_eq!(ended.stdout.text().await.unwrap(), "[saveJobStorage] {\"n\": 1}\nmore\n");
    assert_eq!(ended.saved, Some(doc! { "n": 1 }.into()));
}

#[tokio::test]
async fn what_is_saved_on_the_control_channel_outlives_nonsense_and_the_plugin() {
    let setup = Setup::script("echo '{\"storage\": [1]}' >&3; echo '[saveJobStorage] no'; kill -9 $$");
    let ended = setup.run(nothing).await.unwrap();
    assert_eq!((ended.saved, ended.facts.signal()), (Some(vec![Bson::from(1)].into()), Some(9)));
    let stderr = ended.stderr.text().await.unwrap();
    assert!(
        stderr.starts_with("disbatch: what [saveJobStorage] says is not saved: it is no JSON"),
        "{stderr}"
    );
}

#[tokio::test]
async fn output_of_any_length_passes() {
    let setup = Setup::script("head -c 3000000 /dev/zero; head -c 2000000 /dev/zero >&2");
    let ended = setup.run(nothing).await.unwrap();
    assert_eq!((ended.stdout.len(), ended.stderr.len()), (3_000_000, 2_000_000));
}

// Each of these in a process of its own: when a guard has lost its runner it removes all of the runner's folders.

#[tokio::test]
async fn a_program_that_is_missing_is_an_error_of_the_system() {
    let error = Setup::program("/nonexistent", &[]).run(nothing).await.unwrap_err();
    assert_eq!(error.to_string(), "No such file or directory (os error 2)");
}

#[tokio::test]
async fn a_program_that_cannot_be_run_is_an_error_of_the_system() {
    let error = Setup::program("/etc/passwd", &[]).run(nothing).await.unwrap_err();
    assert_eq!(error.to_string(), "Permission denied (os error 13)");
}

#[tokio::test]
async fn a_cancelled_plugin_ends_in_its_own_way() {
    let setup =
        Setup::script("trap 'echo last words; exit 4' TERM; echo > ready; while :; do sleep 0.02; done");
    let cancel = async |supervisor: Supervisor| {
        setup.file("ready").await;
        supervisor.end(End { reason: Reason::Cancel, grace: PATIENT });
        // A later reason changes nothing.
        supervisor.end(End { reason: Reason::Timeout, grace: PATIENT });
    };
    let ended = setup.run(cancel).await.unwrap();
    assert_eq!(ended.stdout.text().await.unwrap(), "last words\n");
    assert_eq!((ended.facts.code(), ended.facts.reason), (Some(4), Some(Reason::Cancel)));
}

#[tokio::test]
async fn an_interrupted_plugin_is_over_whatever_it_has_left_behind() {
    let mut setup = Setup::script(
        "trap 'exit 0' TERM; setsid sh -c 'echo $$ > left; exec sleep 1000' & while :; do sleep 0.02; done",
    );
    setup.about.interruptible = true;
    // Its end would be that of the folder.
    let mut guards = Guards::default();
    let interrupt = async |supervisor: Supervisor| {
        setup.file("left").await;
        supervisor.interrupt();
    };
    let ended = setup.run_under(&mut guards, interrupt).await.unwrap();
    let left = setup.file("left").await;
    assert_eq!((ended.exit.code(), ended.facts.reason), (Some(0), None));
    assert!(ended.control.told_to_stop && runs(&left), "as what any plugin leaves");
    kill(Pid::from_raw(left.parse().unwrap()), Signal::SIGKILL).unwrap();
}

#[tokio::test]
async fn a_stubborn_plugin_is_killed_after_its_grace() {
    let setup = Setup::script("trap 'echo term' TERM; echo > ready; while :; do sleep 0.02; done");
    let cancel = async |supervisor: Supervisor| {
        setup.file("ready").await;
        supervisor.end(End { reason: Reason::Timeout, grace: Duration::from_millis(500) });
        supervisor.end(End { reason: Reason::Timeout, grace: PATIENT });
    };
    let started = Instant::now();
    let ended = setup.run(cancel).await.unwrap();
    assert!(started.elapsed() >= Duration::from_millis(500));
    assert_eq!(ended.stdout.text().await.unwrap(), "term\n");
    // A shell may mention its own child first.
    let stderr = ended.stderr.text().await.unwrap();
    assert!(stderr.ends_with("Plugin killed by signal 9 (SIGKILL)\n"), "{stderr}");
    assert_eq!((ended.facts.signal(), ended.facts.reason), (Some(9), Some(Reason::Timeout)));
}

#[tokio::test]
async fn a_plugin_without_a_lease_is_killed_at_once() {
    let setup = Setup::script("trap 'echo term' TERM; echo > ready; while :; do sleep 0.02; done");
    let lose = async |supervisor: Supervisor| {
        setup.file("ready").await;
        supervisor.end(End { reason: Reason::LeaseLost, grace: PATIENT });
    };
    let ended = setup.run(lose).await.unwrap();
    assert!(ended.stdout.is_empty());
    assert_eq!((ended.facts.signal(), ended.facts.reason), (Some(9), Some(Reason::LeaseLost)));
}

#[tokio::test]
async fn a_lease_that_is_not_renewed_ends_the_plugin() {
    let setup = Setup::script("echo > ready; exec sleep 1000");
    let renew = async |supervisor: Supervisor| {
        supervisor.live_until(boot_time() + PATIENT);
        setup.file("ready").await;
        supervisor.live_until(boot_time() + Duration::from_millis(100));
    };
    let ended = setup.run(renew).await.unwrap();
    assert_eq!((ended.facts.signal(), ended.facts.reason), (Some(9), Some(Reason::LeaseLost)));
    let expected = "disbatch: the plugin was killed because the task's lease ran out\n\
        Plugin killed by signal 9 (SIGKILL)\n";
    assert_eq!(ended.stderr.text().await.unwrap(), expected);
}

#[tokio::test]
async fn a_plugin_is_not_started_after_its_time() {
    let setup = Setup { until: boot_time(), ..Setup::script("echo > ran") };
    let error = setup.run(nothing).await.unwrap_err();
    assert_eq!(error.to_string(), "the task's lease had run out before the plugin was started");
    assert!(!setup.folder.path().join("ran").exists());
}

#[tokio::test]
async fn nothing_survives_a_killed_guard() {
    let setup = Setup::script(
        "setsid sh -c 'echo $$ > away; exec sleep 1000' & echo $$ > plugin; echo $PPID > guard; exec sleep 1000",
    );
    let murder = async |supervisor: Supervisor| {
        for name in ["away", "plugin"] {
            assert!(runs(&setup.file(name).await));
        }
        let guard = Pid::from_raw(setup.file("guard").await.parse().unwrap());
        kill(guard, Signal::SIGKILL).unwrap();
        drop(supervisor);
    };
    let ended = setup.run(murder).await.unwrap();
    assert_eq!(final_status(ended.exit, None), Status::Failed);
    let expected = "disbatch: the guard of the plugin was killed, so the plugin was killed too\n\
        Plugin killed by signal 9 (SIGKILL)\n";
    assert_eq!(ended.stderr.text().await.unwrap(), expected);
    for name in ["away", "plugin"] {
        assert!(!runs(&setup.file(name).await), "{name}");
    }
}

#[tokio::test]
async fn nothing_survives_a_runner_that_gives_up() {
    let setup =
        Setup::script("setsid sh -c 'echo $$ > away; exec sleep 1000' & echo $$ > plugin; exec sleep 1000");
    let mut processes = Vec::new();
    let give_up = async {
        let _ended = setup.run(nothing).await;
    };
    let started = async {
        for name in ["away", "plugin"] {
            processes.push(setup.file(name).await);
        }
    };
    tokio::select! {
        () = give_up => panic!("it does not end"),
        () = started => {}
    }
    let gone = async {
        while processes.iter().any(|pid| runs(pid)) || setup.folder.path().exists() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(DEADLINE, gone).await.unwrap();
}
