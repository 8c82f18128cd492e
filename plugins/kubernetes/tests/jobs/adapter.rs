//! The adapter as a process, with what a runner sees of it.

use std::io::{PipeReader, Read, Write, pipe};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;

use command_fds::{CommandFdExt, FdMapping};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::{Value, json};

use crate::cluster::{Cluster, LONGEST, NAMESPACE};

/// The number of the control descriptor.
const CONTROL: i32 = 10;

/// The task of all tests.
pub const TASK: &str = "6b0004f4686c827f5a609575";

pub const DATABASE: &str = "main";

/// What it has written so far: standard output, standard error and the control channel.
#[derive(Default)]
struct Written {
    texts: Mutex<([String; 3], usize)>,
    changed: Condvar,
}

pub struct Adapter {
    child: Child,
    written: Arc<Written>,
}

pub struct AdapterOutput {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
    pub control: Vec<Value>,
}

impl AdapterOutput {
    /// What it has said of the run at last.
    pub fn facts(&self) -> &Value {
        let facts = self.control.iter().rev().find_map(|line| line.get("facts"));
        facts.unwrap_or_else(|| panic!("no facts: {:?} {}", self.control, self.stderr))
    }
}

/// What a runner tells of an attempt, with these settings.
pub fn task(cluster: &Cluster, attempt: u32, settings: &Value) -> Value {
    let variables = json!({
        "DISBATCH_TASK_ID": TASK, "DISBATCH_ATTEMPT": attempt.to_string(), "DISBATCH_NODE": "n1", "JOB_ID": TASK,
        "RUN_ID": TASK, "TENANT_ID": "", "JOB_PARAMS": "{}",
    });
    let mut all = json!({ "image": "busybox" });
    for (key, value) in settings.as_object().unwrap() {
        all[key] = value.clone();
    }
    json!({
        "_id": { "$oid": TASK }, "params": {},
        "worker": {
            "name": "My::Pod", "engine": "kubernetes", "settings": all, "secrets": { "token": "horse" },
            "engine_config": { "kubeconfig": cluster.kubeconfig(), "namespace": NAMESPACE }, "variables": variables,
            "work_dir": "/tmp", "database": DATABASE, "grace": 20.0, "timeout": 300.0,
        },
    })
}

/// The name of the job of an attempt.
pub fn job_of(attempt: u32) -> String {
    format!("disbatch-{TASK}-{attempt}")
}

impl Adapter {
    /// Starts one for an ordinary task.
    pub fn start(cluster: &Cluster, attempt: u32) -> Self {
        Self::start_with(&task(cluster, attempt, &json!({})))
    }

    /// Starts one that is told this.
    pub fn start_with(task: &Value) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_disbatch-kubernetes"));
        command.env_clear().env("DISBATCH_CONTROL_FD", CONTROL.to_string());
        let (control, theirs) = pipe().unwrap();
        command.fd_mappings(vec![FdMapping { parent_fd: theirs.into(), child_fd: CONTROL }]).unwrap();
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // Our copy of its end would keep the pipe open for ever.
        drop(command);
        let mut stdin = child.stdin.take().unwrap();
        stdin.write_all(format!("{task}\n").as_bytes()).unwrap();
        drop(stdin);
        let written = Arc::new(Written::default());
        let (stdout, stderr) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        read(0, stdout, &written);
        read(1, stderr, &written);
        read::<PipeReader>(2, control, &written);
        Self { child, written }
    }

    pub fn signal(&self, signal: Signal) {
        kill(Pid::from_raw(i32::try_from(self.child.id()).unwrap()), signal).unwrap();
    }

    /// Kills it, as runners do when there is no time left.
    pub fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Waits until it has written something: to 0, standard output; 1, standard error; 2, the control channel.
    pub fn until_written(&self, stream: usize, text: &str) {
        self.until(&format!("{text:?} in stream {stream}"), |(texts, _)| texts[stream].contains(text));
    }

    pub fn is_running(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    pub fn wait(mut self) -> AdapterOutput {
        self.until("the end", |(_, ended)| *ended == 3);
        let code = self.child.wait().unwrap().code();
        let texts = self.written.texts.lock().unwrap();
        let [stdout, stderr, control] = texts.0.clone();
        let control = control.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        AdapterOutput { code, stdout, stderr, control }
    }

    fn until(&self, what: &str, is_so: impl Fn(&([String; 3], usize)) -> bool) {
        let texts = self.written.texts.lock().unwrap();
        let (texts, waited) =
            self.written.changed.wait_timeout_while(texts, LONGEST, |texts| !is_so(texts)).unwrap();
        assert!(!waited.timed_out(), "waited for: {what}; written: {:#?}", texts.0);
    }
}

impl Drop for Adapter {
    fn drop(&mut self) {
        // It has usually ended.
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

/// Reads a stream to its end.
fn read<R: Read + Send + 'static>(number: usize, mut source: R, written: &Arc<Written>) {
    let written = Arc::clone(written);
    thread::spawn(move || {
        let mut buffer = [0; 4096];
        let mut bytes = Vec::new();
        loop {
            let read = source.read(&mut buffer).unwrap_or(0);
            bytes.extend_from_slice(&buffer[..read]);
            let mut texts = written.texts.lock().unwrap();
            texts.0[number] = String::from_utf8_lossy(&bytes).into_owned();
            texts.1 += usize::from(read == 0);
            written.changed.notify_all();
            if read == 0 {
                return;
            }
        }
    });
}
