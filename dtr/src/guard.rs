//! The guard: a small process between runner and plugin which makes sure that a plugin never outlives its
//! runner's right to run it.
//!
//! A runner may be killed, stopped or suspended with its machine. Others may then take over its task, and
//! the plugin must be gone by that time. So the plugin's parent is not the runner but a second process that
//! does nothing else than to watch: it is the same program, started with the first argument `guard` from
//! `/proc/self/exe`, so that an upgrade on disk cannot mix versions.
//!
//! Its command line is `guard TASK UNTIL_MS -- PROGRAM ARGUMENT...`. Environment, working directory and the
//! descriptors 0 to 3 are the plugin's; the guard gives up these descriptors once the plugin has them.
//! Descriptor 4 brings orders from the runner, descriptor 5 takes reports to it; the plugin gets neither.
//!
//! Orders, one in each line:
//!
//! | order | meaning |
//! | --- | --- |
//! | `until MS` | the plugin may live until this time, unless there is another such order |
//! | `term` | SIGTERM to the plugin's process group; its descendants have to end too |
//! | `kill` | SIGKILL to the group and all descendants of the plugin |
//!
//! Times are milliseconds since the machine was started, those of suspension included (`CLOCK_BOOTTIME`): a runner
//! that was stopped between looking at the clock and speaking gives no more than it should. Before UNTIL_MS, the
//! guard starts the plugin; after the last such time it kills it. It also kills it at once at the end of the orders,
//! for then the runner is dead; in this case the guard removes the task's private folder too.
//!
//! Reports, a JSON object in each line: `{"pid": N}` or `{"error": "..."}` first, `{"exited": {...}}` last; see
//! [`protocol::Report`]. When the plugin ends by itself, what it has left running is left alone. When it was to
//! end, the last report comes after its last descendant is gone, or cannot be killed.
//!
//! If the guard itself is killed, its reports end without the last one, and the runner kills what it has guarded.

mod family;
mod oom;
pub mod process;
pub mod protocol;

use std::ffi::{CStr, OsStr};
use std::fs::{self, File};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::path::PathBuf;
use std::time::Duration;

use command_fds::{CommandFdExt, FdMapping};
use disbatch_core::model::TaskId;
use disbatch_core::plugin::Plugin;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill, killpg};
use nix::unistd::Pid;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::net::unix::pipe;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::time::Instant;

use protocol::{Order, Report};

/// The first argument of a guard.
pub const WORD: &str = "guard";

/// The control channel's descriptor in the plugin. One digit, as `>&3` in a shell needs it.
pub const CONTROL_FD: i32 = 3;

const ORDERS_FD: i32 = 4;

const REPORTS_FD: i32 = 5;

/// The guard's name in lists of processes.
const COMM: &CStr = c"dtr-guard";

/// The variable by which a task's processes are known. Plugins have it in any case.
pub const TASK_VARIABLE: &str = "DISBATCH_TASK_ID";

/// How long to look for the remains of a plugin whose guard was killed.
const REMAINS_LIMIT: Duration = Duration::from_secs(5);

/// How the names of private folders begin: a guard removes no other.
pub fn folder_prefix(task: impl std::fmt::Display) -> String {
    format!("disbatch-{task}-")
}

/// The program of a guard: this one.
#[cfg(not(test))]
fn program() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

/// A test program cannot be its own guard. For tests, Cargo builds the binary beside their folder.
#[cfg(test)]
fn program() -> PathBuf {
    std::env::current_exe().unwrap_or_default().with_file_name("../dtr")
}

/// The command that starts a guard for `plugin`. Environment and working directory are for the plugin.
pub fn command(plugin: &Plugin, task: TaskId, until: Duration) -> Command {
    let mut command = Command::new(program());
    command
        .arg0(OsStr::new("dtr-guard"))
        .arg(WORD)
        .arg(task.to_string())
        .arg(until.as_millis().to_string())
        .arg("--")
        .arg(&plugin.program)
        .args(&plugin.arguments)
        .env(TASK_VARIABLE, task.to_string())
        // What is sent to the runner's group is not meant for it.
        .process_group(0);
    command
}

/// A running guard, from the runner's side. Without it, the guard kills its plugin.
#[derive(Debug)]
pub struct Guard {
    child: Child,
    task: TaskId,
    orders: pipe::Sender,
    reports: Lines<BufReader<pipe::Receiver>>,
    plugin: Option<Pid>,
}

impl Guard {
    /// Starts `command`, see [`command`]. `control` is the plugin's end of the control channel.
    ///
    /// # Errors
    /// The process cannot be started.
    pub fn start(mut command: Command, task: TaskId, control: OwnedFd) -> io::Result<Self> {
        let (orders_in, orders) = io::pipe()?;
        let (reports, reports_out) = io::pipe()?;
        // Adopts what a killed guard leaves behind, see `Guard::clear_up`.
        prctl::set_child_subreaper(true)?;
        command
            .fd_mappings(vec![
                FdMapping { parent_fd: control, child_fd: CONTROL_FD },
                FdMapping { parent_fd: orders_in.into(), child_fd: ORDERS_FD },
                FdMapping { parent_fd: reports_out.into(), child_fd: REPORTS_FD },
            ])
            .map_err(io::Error::other)?;
        let occupied = occupy_low_descriptors()?;
        let child = command.spawn()?;
        drop(occupied);
        // The command holds our copies of the guard's ends, which would keep the pipes open for ever.
        drop(command);
        Ok(Self {
            child,
            task,
            orders: pipe::Sender::from_owned_fd(orders.into())?,
            reports: BufReader::new(pipe::Receiver::from_owned_fd(reports.into())?).lines(),
            plugin: None,
        })
    }

    /// The other ends of the plugin's standard streams, the first time.
    pub fn streams(&mut self) -> Option<(ChildStdin, ChildStdout, ChildStderr)> {
        Some((self.child.stdin.take()?, self.child.stdout.take()?, self.child.stderr.take()?))
    }

    /// Gives an order. Never waits: a guard that does not take orders is stopped, or gone.
    pub fn tell(&self, order: Order) {
        if let Err(error) = self.orders.try_write(order.to_string().as_bytes()) {
            tracing::debug!(%error, ?order, "the guard does not take orders");
        }
    }

    /// The next report; `None` when the guard is gone. Nothing is lost when this is dropped.
    ///
    /// # Errors
    /// The report cannot be understood.
    pub async fn report(&mut self) -> io::Result<Option<Report>> {
        let Some(line) = self.reports.next_line().await? else { return Ok(None) };
        let report = serde_json::from_str(&line)?;
        if let Report::Pid(pid) = report {
            self.plugin = Some(Pid::from_raw(pid));
        }
        Ok(Some(report))
    }

    /// Kills what a guard that is gone has left behind: the plugin's process group and every process of ours that has
    /// the task's id in its environment.
    pub async fn clear_up(&self) {
        if let Some(group) = self.plugin {
            let _gone = killpg(group, Signal::SIGKILL);
        }
        let mark = format!("{TASK_VARIABLE}={}", self.task);
        let until = Instant::now() + REMAINS_LIMIT;
        loop {
            let mut remains = family::descendants(Pid::this());
            remains.retain(|pid| has_variable(*pid, mark.as_bytes()));
            if remains.is_empty() || Instant::now() > until {
                return;
            }
            for pid in remains {
                let _gone = kill(pid, Signal::SIGKILL);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

fn has_variable(pid: Pid, variable: &[u8]) -> bool {
    let environment = fs::read(format!("/proc/{pid}/environ")).unwrap_or_default();
    environment.split(|byte| *byte == 0).any(|entry| entry == variable)
}

/// Sees to it that the descriptors that the guard is to get are taken in this process. The standard library
/// passes an error of `exec` through a descriptor of its own, which must not be one of these.
fn occupy_low_descriptors() -> io::Result<Vec<File>> {
    let mut occupied = Vec::new();
    loop {
        let file = File::open("/dev/null")?;
        let high = file.as_raw_fd() > REPORTS_FD;
        occupied.push(file);
        if high {
            return Ok(occupied);
        }
    }
}
