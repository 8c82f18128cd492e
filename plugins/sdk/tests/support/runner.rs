//! Runs a plugin's program as a runner does, with a pipe as its control descriptor.

use std::io::{Read, Write, pipe};
use std::process::{Command, ExitStatus, Stdio};
use std::thread;

use command_fds::{CommandFdExt, FdMapping};
use serde_json::Value;

/// The number of the control descriptor: two digits, which not every shell can redirect to.
const CONTROL: i32 = 10;

/// What a runner sees of a plugin.
#[derive(Debug)]
pub struct PluginOutput {
    pub exit: ExitStatus,
    pub stdout: String,
    pub stderr: String,
    pub control: Vec<Value>,
}

/// Runs `command` for `task` to its end.
pub fn run(mut command: Command, task: &Value) -> PluginOutput {
    let id = task["_id"]["$oid"].as_str().unwrap_or("");
    command.env("DISBATCH_TASK_ID", id).env("DISBATCH_CONTROL_FD", CONTROL.to_string());
    command.env("JOB_ID", id).env("JOB_PARAMS", task["params"].to_string());
    let (mut control, theirs) = pipe().unwrap();
    command.fd_mappings(vec![FdMapping { parent_fd: theirs.into(), child_fd: CONTROL }]).unwrap();
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // Our copy of the plugin's end would keep the pipe open for ever.
    drop(command);
    let (stdin, line) = (child.stdin.take(), format!("{task}\n"));
    // A plugin may end without reading its task.
    let feed = thread::spawn(move || stdin.map(|mut stdin| stdin.write_all(line.as_bytes()).is_ok()));
    let listen = thread::spawn(move || {
        let mut text = String::new();
        control.read_to_string(&mut text).map(|_| text)
    });
    let output = child.wait_with_output().unwrap();
    feed.join().unwrap();
    let lines = listen.join().unwrap().unwrap();
    PluginOutput {
        exit: output.status,
        stdout: String::from_utf8(output.stdout).unwrap(),
        stderr: String::from_utf8(output.stderr).unwrap(),
        control: lines.lines().map(|line| serde_json::from_str(line).unwrap()).collect(),
    }
}
