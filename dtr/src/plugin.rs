//! One plugin process from its start to its end: a single owner for its pipes, its exit and its signals.

use std::io;
use std::path::Path;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use bson::Bson;
use command_fds::{CommandFdExt, FdMapping};
use disbatch_core::lifecycle::Lifecycle;
use disbatch_core::model::{NodeName, PluginName, Queue, Task};
use disbatch_core::plugin::Plugin;
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use tokio::io::AsyncWriteExt;
use tokio::net::unix::pipe;
use tokio::process::{Child, Command};

use crate::capture::Capture;
use crate::control::Control;
use crate::relay::Relay;

/// The control channel's descriptor in the plugin. One digit, as `>&3` in a shell needs it.
const CONTROL_FD: i32 = 3;

/// Longer parameters are only on standard input: the kernel limits a variable to 128 KiB.
const LONGEST_JOB_PARAMS: usize = 64 * 1024;

/// How long pipes may stay open after the plugin's end before they are left to whoever holds them.
const PIPES_GRACE: Duration = Duration::from_secs(2);

/// How long a plugin has between SIGTERM and SIGKILL.
const KILL_GRACE: Duration = Duration::from_secs(10);

/// What a plugin is started for.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// The task.
    pub task: &'a Task,
    /// Its queue.
    pub queue: &'a Queue,
    /// The plugin's name, as the queue gives it.
    pub name: &'a PluginName,
    /// The node that runs it.
    pub node: &'a NodeName,
    /// Its private folder.
    pub folder: &'a Path,
}

/// A plugin that has ended.
#[derive(Debug)]
pub struct Ended {
    /// How.
    pub exit: ExitStatus,
    /// Its standard output.
    pub stdout: Capture,
    /// Its standard error, with the runner's notes at the end.
    pub stderr: Capture,
    /// What it said on the control channel.
    pub control: Control,
}

/// Runs the plugin to its end.
///
/// # Errors
/// The process cannot be started or waited for.
pub async fn execute(
    plugin: &Plugin,
    job: Job<'_>,
    relay: Relay,
    lifecycle: &Lifecycle,
) -> io::Result<Ended> {
    let document = task_json(job.task)?;
    let (mut child, control_pipe) = spawn(plugin, job)?;
    let stdin = child.stdin.take();
    let (Some(out_pipe), Some(err_pipe)) = (child.stdout.take(), child.stderr.take()) else {
        return Err(io::Error::other("the plugin has no pipes"));
    };
    let mut stdout = Capture::new(std::env::temp_dir());
    let mut stderr = Capture::new(std::env::temp_dir());
    let mut control = Control::default();
    let exit;
    let abandoned;
    {
        let feed = async {
            if let Some(mut stdin) = stdin {
                // A plugin need not read its standard input.
                let _broken_pipe = stdin.write_all(document.as_bytes()).await;
            }
        };
        let streams = async {
            tokio::join!(
                feed,
                stdout.drain(out_pipe),
                stderr.drain(err_pipe),
                control.listen(control_pipe, &relay),
            );
        };
        tokio::pin!(streams);
        let (status, drained) = until_exit(&mut child, streams.as_mut(), lifecycle).await?;
        exit = status;
        abandoned = !drained && tokio::time::timeout(PIPES_GRACE, streams).await.is_err();
    }
    if abandoned {
        tracing::warn!("a process that outlived the plugin holds its pipes; not waiting for it");
        stderr.note(&format!(
            "disbatch: a process that outlived the plugin holds its output open; stopped reading {} s after \
             the plugin's end\n",
            PIPES_GRACE.as_secs()
        ));
    }
    for note in control.notes() {
        stderr.note(&note);
    }
    if let Some(note) = crate::verdict::signal_note(exit) {
        stderr.note(&note);
    }
    Ok(Ended { exit, stdout, stderr, control })
}

/// Waits for the exit, reading all the while, and ends the plugin when the runner is told to end. Returns
/// how it ended and whether all streams had come to their end by then.
async fn until_exit(
    child: &mut Child,
    mut streams: std::pin::Pin<&mut impl Future<Output = ()>>,
    lifecycle: &Lifecycle,
) -> io::Result<(ExitStatus, bool)> {
    let group = child.id();
    let mut drained = false;
    let kill = end_group(group, lifecycle);
    tokio::pin!(kill);
    let mut killing = true;
    loop {
        tokio::select! {
            exit = child.wait() => return Ok((exit?, drained)),
            () = streams.as_mut(), if !drained => drained = true,
            () = &mut kill, if killing => killing = false,
        }
    }
}

/// On the runner's second signal: TERM to the plugin's process group, and KILL after a while.
async fn end_group(group: Option<u32>, lifecycle: &Lifecycle) {
    lifecycle.ending().await;
    for (signal, pause) in [(Signal::SIGTERM, KILL_GRACE), (Signal::SIGKILL, Duration::ZERO)] {
        tracing::warn!(%signal, "ending the plugin");
        if let Some(group) = group.and_then(|id| i32::try_from(id).ok())
            && let Err(error) = killpg(Pid::from_raw(group), signal)
        {
            tracing::debug!(%error, "the plugin's process group is gone");
        }
        tokio::time::sleep(pause).await;
    }
}

fn spawn(plugin: &Plugin, job: Job<'_>) -> io::Result<(Child, pipe::Receiver)> {
    let (reader, writer) = io::pipe()?;
    let mut command = Command::new(&plugin.program);
    command
        .args(&plugin.arguments)
        .current_dir(job.folder)
        .env("DISBATCH_TASK_ID", job.task.id.to_string())
        .env("DISBATCH_QUEUE_ID", job.queue.id.to_string())
        .env("DISBATCH_QUEUE", job.queue.display_name().replace('\0', ""))
        .env("DISBATCH_PLUGIN", job.name.as_str())
        .env("DISBATCH_NODE", job.node.as_str())
        .env("DISBATCH_WORK_DIR", job.folder)
        .env("DISBATCH_CONTROL_FD", CONTROL_FD.to_string())
        .env("JOB_ID", job.task.id.to_string())
        .env_remove("JOB_PARAMS")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let params = job.task.params().clone().into_relaxed_extjson().to_string();
    if params.len() <= LONGEST_JOB_PARAMS {
        command.env("JOB_PARAMS", params);
    }
    command
        .fd_mappings(vec![FdMapping { parent_fd: writer.into(), child_fd: CONTROL_FD }])
        .map_err(io::Error::other)?;
    let child = command.spawn()?;
    // The command holds our copy of the writing end, which would keep the channel open for ever.
    drop(command);
    Ok((child, pipe::Receiver::from_owned_fd(reader.into())?))
}

/// The task as one line of relaxed extended JSON.
fn task_json(task: &Task) -> io::Result<String> {
    let document = bson::serialize_to_document(task).map_err(io::Error::other)?;
    Ok(format!("{}\n", Bson::Document(document).into_relaxed_extjson()))
}
