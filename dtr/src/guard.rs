//! The guard: a small process between runner and plugins which makes sure that a plugin never outlives its
//! runner's right to run it.
//!
//! A runner may be killed, stopped or suspended with its machine. Others may then take over its task, and
//! the plugin must be gone by that time. So the plugin's parent is not the runner but a second process that
//! does nothing else than to watch: it is the same program, started with the argument `guard` from
//! `/proc/self/exe`, so that an upgrade on disk cannot mix versions. A runner has one guard for all its tasks. The
//! guard's standard input is a socket, by which it takes orders and sends reports; see [`protocol`].
//!
//! | order | meaning |
//! | --- | --- |
//! | spawn | start a plugin in this folder, with this environment, confined in this way, and with the descriptors that come along |
//! | until | the plugin may live until this time, unless there is another such order |
//! | term | SIGTERM to the plugin's process group; its descendants have to end too |
//! | stop | SIGTERM to the plugin's process group, which stops in its own time |
//! | kill | SIGKILL to the group and all descendants of the plugin |
//!
//! Times are those since the machine was started, that of suspension included (`CLOCK_BOOTTIME`): a runner
//! that was stopped between looking at the clock and speaking gives no more than it should. Before the first such
//! time, the guard starts the plugin; after the last it kills it. It also kills it at once at the end of the orders,
//! for then the runner is dead; in this case the guard removes the runner's private folders too, which it finds by the
//! end of their names: that is the same for all of a runner. While it has a plugin, its working directory is that
//! plugin's folder, else `/`. A plugin that takes several tasks is in `/`; that the guard is not told of each of its
//! tasks saves waking it up.
//!
//! Of each plugin it reports the process, or why it cannot be started; and how it ended, see [`protocol::Report`]. When the
//! plugin ends by itself, what it has left running is left alone. So it is when it was told to stop, but those of its group, who
//! were told the same, have ten seconds before the last report. When it was to end, that comes after
//! its last descendant is gone, or cannot be killed. What earlier plugins have left running is not a descendant, although
//! the guard has adopted it: the guard remembers what was left. All else that it adopts comes from a plugin, whatever it
//! carries ([`family`]).
//!
//! Where the system lets no more processes be started, as the user of the plugins has too many of them, the guard tries
//! again for a while before it reports that ([`refusal`]).
//!
//! What is the same for all plugins of a runner, like having no way to further privileges, the guard makes of itself, and they
//! inherit it. A plugin that is to be another user, or to have limits or a control group, is started by way of
//! [`crate::confine`]; the guard makes the control group, and removes it when it is empty.
//!
//! If the guard itself is killed, its reports end, and the runner kills what it has guarded. For the next task, it
//! starts another guard.

mod family;
pub mod limits;
pub mod process;
pub mod protocol;
pub mod refusal;
mod ward;

use std::collections::{BTreeSet, HashMap};
use std::ffi::{CStr, OsStr};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::pin::{Pin, pin};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use disbatch_core::clock::boot_time;
use nix::sys::prctl;
use nix::sys::signal::{Signal, kill, killpg};
use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid, waitpid};
use nix::unistd::Pid;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use tokio::io::{AsyncRead, ReadBuf};
use tokio::time::Instant;

use crate::descriptors::{PipeSink, PipeSource, Socket};
use crate::folder;
use crate::isolation::Isolation;
use crate::lock;
use crate::post::Post;
use family::{Marks, Processes};
use protocol::{FromGuard, LENGTH, Number, Order, Report, Settings, Spawn, ToGuard, first_frame};
use refusal::Patience;

pub const WORD: &str = "guard";

pub const ARG0: &str = "dtr-guard";

/// The control channel's descriptor in the plugin. One digit, as `>&3` in a shell needs it.
pub const CONTROL_FD: i32 = 3;

/// The three standard streams, and this.
const MOST_DESCRIPTORS: usize = 4;

const COMM: &CStr = c"dtr-guard";

/// The variable by which a task's processes are known. Plugins have it in any case.
pub const TASK_VARIABLE: &str = "DISBATCH_TASK_ID";

/// The variable by which the processes of a plugin are known that takes several tasks: the process id of its runner.
pub const RUNNER_VARIABLE: &str = "DISBATCH_RUNNER_PID";

/// Why a plugin is not begun with.
pub const LEASE_IS_OVER: &str = "the task's lease had run out before the plugin was started";

const READ_SIZE: usize = 1024;

/// No report is longer: an error in the operating system's words at most.
const LONGEST_REPORT: usize = 64 * 1024;

/// How long to look for the remains of a plugin whose guard was killed.
const REMAINS_LIMIT: Duration = Duration::from_secs(5);

/// The program of a guard: this one.
#[cfg(not(test))]
pub fn program() -> PathBuf {
    PathBuf::from("/proc/self/exe")
}

/// A test program cannot be its own guard. For tests, Cargo builds the binary beside their folder.
#[cfg(test)]
pub fn program() -> PathBuf {
    std::env::current_exe().unwrap_or_default().with_file_name("../dtr")
}

/// The guard of this runner, and the next one if it is gone.
#[derive(Debug)]
#[cfg_attr(test, derive(Default))]
pub struct Guards {
    guard: Option<Guard>,
    isolation: Arc<Isolation>,
}

impl Guards {
    /// No guard yet. Each one's plugins are kept from what they are not to have.
    pub fn new(isolation: Arc<Isolation>) -> Self {
        Self { guard: None, isolation }
    }

    pub fn isolation(&self) -> &Isolation {
        &self.isolation
    }

    pub fn get(&mut self) -> io::Result<&Guard> {
        match self.guard.take_if(|guard| guard.is_alive()) {
            Some(guard) => Ok(self.guard.insert(guard)),
            None => self.renew(),
        }
    }

    /// Has a guard there. Where the system lets no more processes be started, this tries again for a while, but not after
    /// `until`, by [`boot_time`](disbatch_core::clock::boot_time).
    pub async fn be_ready(&mut self, until: Duration) -> io::Result<()> {
        let mut patience: Option<Patience> = None;
        loop {
            let refusal = match self.get() {
                Ok(_) => return Ok(()),
                Err(error) if refusal::is_for_now(&error) => error,
                Err(error) => return Err(error),
            };
            let now = boot_time();
            let goes_on = patience.as_mut().is_none_or(|patience| patience.goes_on(now));
            if !goes_on || now >= until {
                return Err(refusal::in_vain(&refusal));
            }
            let pause = patience.get_or_insert_with(|| Patience::new(now)).left(now);
            tokio::time::sleep(pause).await;
        }
    }

    /// Starts a plugin. It has a guard that is there, and if need be a new one.
    pub fn spawn(&mut self, spawn: Spawn) -> io::Result<(Guarded, Streams)> {
        match self.get()?.spawn(spawn.clone()) {
            // It may have been killed while there was nothing to guard.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.renew()?.spawn(spawn),
            started => started,
        }
    }

    /// Another guard: this one is gone.
    pub fn renew(&mut self) -> io::Result<&Guard> {
        if self.guard.take().is_some() {
            tracing::warn!("the guard is gone, starting another");
        }
        Ok(self.guard.insert(Guard::start(self.isolation.settings)?))
    }
}

/// A guard process, from the runner's side. Clones speak to the same one; when the last is dropped, the guard kills
/// its plugins and ends.
#[derive(Debug, Clone)]
pub struct Guard(Arc<Shared>);

/// The processes of the guards of this runner that are there, as far as is known.
static THERE: Mutex<BTreeSet<u32>> = Mutex::new(BTreeSet::new());

#[derive(Debug)]
struct Shared {
    process: u32,
    socket: Socket,
    reports: Mutex<Reports>,
    last: AtomicU64,
    gone: AtomicBool,
}

/// What the guard has said and nobody has taken yet.
#[derive(Debug, Default)]
struct Reports {
    arrived: Vec<u8>,
    /// Of plugins that are not over.
    of_plugins: HashMap<Number, Post<Report>>,
}

impl Guard {
    pub fn start(settings: Settings) -> io::Result<Self> {
        // Adopts what a killed guard leaves behind, see `Guarded::clear_up`.
        prctl::set_child_subreaper(true)?;
        bury_children();
        let (near, far) = std::os::unix::net::UnixStream::pair()?;
        let guard = Command::new(program())
            .arg0(OsStr::new(ARG0))
            .arg(WORD)
            .arg(folder::mark())
            .arg(serde_json::to_string(&settings)?)
            .arg(folder::parent())
            .stdin(OwnedFd::from(far))
            .stdout(Stdio::null())
            .spawn()?;
        lock(&THERE).insert(guard.id());
        Ok(Self(Arc::new(Shared {
            process: guard.id(),
            socket: Socket::new(near)?,
            reports: Mutex::default(),
            last: AtomicU64::new(0),
            gone: AtomicBool::new(false),
        })))
    }

    pub fn is_alive(&self) -> bool {
        !self.0.gone.load(Ordering::Relaxed)
    }

    pub fn spawn(&self, mut spawn: Spawn) -> io::Result<(Guarded, Streams)> {
        let (streams, ends) = Streams::new(spawn.direct.is_none())?;
        spawn.descriptors = ends.len();
        let shared = &self.0;
        let number = shared.last.fetch_add(1, Ordering::Relaxed) + 1;
        lock(&shared.reports).of_plugins.insert(number, Post::default());
        let guarded = Guarded {
            guard: self.clone(),
            number,
            process: None,
            marks: family::marks_of(&spawn.environment),
            is_over: false,
        };
        shared.send_with(&ToGuard::Spawn(number, Box::new(spawn)).to_bytes(), &ends)?;
        Ok((guarded, streams))
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // Whoever has inherited the socket does not keep the guard alive.
        let _gone = rustix::net::shutdown(&self.socket, rustix::net::Shutdown::Both);
        lock(&THERE).remove(&self.process);
    }
}

impl Shared {
    /// Never waits: a guard that does not take orders is stopped, or gone.
    fn send(&self, order: &ToGuard) {
        if let Err(error) = self.socket.send(&order.to_bytes()) {
            tracing::debug!(%error, "the guard does not take orders");
        }
    }

    fn send_with(&self, bytes: &[u8], descriptors: &[OwnedFd]) -> io::Result<()> {
        // What was kept back while nobody waited for a report.
        self.socket.flush_now()?;
        if !self.socket.has_sent_all() {
            return Err(io::Error::other("the guard does not take orders"));
        }
        let borrowed: Vec<_> = descriptors.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut along = SendAncillaryBuffer::new(&mut space);
        if !along.push(SendAncillaryMessage::ScmRights(&borrowed)) {
            return Err(io::Error::other("a plugin gets too many descriptors"));
        }
        // They go with the first byte; without one they would be lost.
        self.socket.send_by(bytes, |bytes| {
            match sendmsg(&self.socket, &[IoSlice::new(bytes)], &mut along, SendFlags::NOSIGNAL) {
                Ok(0) | Err(Errno::AGAIN) => Err(io::Error::other("the guard does not take orders")),
                sent => Ok(sent?),
            }
        })
    }

    /// The next report about a plugin; `None`: the guard is gone, or has said all. Nothing is lost when this is dropped.
    async fn report(&self, number: Number) -> Option<Report> {
        let mut work = pin!(self.work());
        poll_fn(|cx| {
            if let Poll::Ready(report) = self.poll_report(number, cx) {
                return Poll::Ready(report);
            }
            // What it brings may be about this one.
            let ended = work.as_mut().poll(cx).is_ready();
            let report = self.poll_report(number, cx);
            if ended && report.is_pending() { Poll::Ready(None) } else { report }
        })
        .await
    }

    fn poll_report(&self, number: Number, cx: &mut Context<'_>) -> Poll<Option<Report>> {
        let mut reports = lock(&self.reports);
        let Some(post) = reports.of_plugins.get_mut(&number) else { return Poll::Ready(None) };
        let report = post.poll(cx);
        if let Poll::Ready(None | Some(Report::Error(_) | Report::NotDirect | Report::Exited(_))) = report {
            reports.of_plugins.remove(&number);
        }
        report
    }

    /// Reads and writes until the guard is gone. Nothing is lost when this is dropped, and begun again.
    async fn work(&self) {
        if self.gone.load(Ordering::Relaxed) {
            return;
        }
        let ended = tokio::select! {
            ended = self.listen() => ended,
            error = self.socket.flush() => Err(error),
        };
        if let Err(error) = ended {
            tracing::debug!(%error, "the guard is gone");
        }
        self.gone.store(true, Ordering::Relaxed);
        lock(&self.reports).of_plugins.values_mut().for_each(Post::end);
    }

    /// Reads until the guard is gone. All who wait for reports of a guard are parts of one task of the runtime.
    async fn listen(&self) -> io::Result<()> {
        poll_fn(|cx| {
            loop {
                // Not kept from one time to the next: what waits for a report is to be small.
                let mut buffer = [0; READ_SIZE];
                let mut buffer = ReadBuf::new(&mut buffer);
                ready!(Pin::new(&mut &self.socket).poll_read(cx, &mut buffer))?;
                if buffer.filled().is_empty() {
                    return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                lock(&self.reports).take(buffer.filled(), cx.waker())?;
            }
        })
        .await
    }
}

impl Reports {
    /// Hands out what has arrived, as far as it is complete.
    fn take(&mut self, bytes: &[u8], own: &Waker) -> io::Result<()> {
        self.arrived.extend_from_slice(bytes);
        while let Some(frame) = first_frame(&self.arrived, LONGEST_REPORT)? {
            let FromGuard(number, report) = FromGuard::parse(frame)?;
            let end = LENGTH + frame.len();
            self.arrived.drain(..end);
            // Of one that nobody waits for any more nothing has to be known.
            if let Some(plugin) = self.of_plugins.get_mut(&number) {
                plugin.put(report, own);
            }
        }
        Ok(())
    }
}

#[derive(Debug)]
pub struct Streams {
    pub stdin: Option<PipeSink>,
    pub stdout: PipeSource,
    pub stderr: PipeSource,
    /// From its control channel, [`CONTROL_FD`].
    pub control: PipeSource,
}

impl Streams {
    /// With the plugin's ends, in the order of their numbers; without standard input they begin with standard output.
    pub fn new(with_stdin: bool) -> io::Result<(Self, Vec<OwnedFd>)> {
        let (stdin, stdin_end) = if with_stdin { Some(PipeSink::new()?) } else { None }.unzip();
        let (stdout, stdout_end) = PipeSource::new()?;
        let (stderr, stderr_end) = PipeSource::new()?;
        let (control, control_end) = PipeSource::new()?;
        let ends = stdin_end.into_iter().chain([stdout_end, stderr_end, control_end]).collect();
        let streams = Self { stdin, stdout, stderr, control };
        Ok((streams, ends))
    }
}

/// A plugin under a guard. It is killed when this is dropped before its end was reported.
#[derive(Debug)]
pub struct Guarded {
    guard: Guard,
    number: Number,
    process: Option<Pid>,
    marks: Marks,
    is_over: bool,
}

impl Guarded {
    /// Gives an order. Never waits.
    pub fn tell(&self, order: Order) {
        self.guard.0.send(&ToGuard::Order(self.number, order));
    }

    /// The next report; `None` when the guard is gone, or has said all. Nothing is lost when this is dropped.
    pub async fn report(&mut self) -> Option<Report> {
        let report = self.guard.0.report(self.number).await;
        match report {
            Some(Report::Pid(pid)) => self.process = Some(Pid::from_raw(pid)),
            Some(Report::Error(_) | Report::NotDirect | Report::Exited(_)) | None => self.is_over = true,
        }
        report
    }

    /// Kills what a guard that is gone has left behind: the plugin's process group and every process of ours that
    /// carries its marks, and has no other guard. What has shed them is not known from what earlier plugins have left running.
    pub async fn clear_up(&self) {
        if let Some(group) = self.process {
            let _gone = killpg(group, Signal::SIGKILL);
        }
        let until = Instant::now() + REMAINS_LIMIT;
        let of_another = |child: &family::Process| {
            let process = u32::try_from(child.pid.as_raw()).unwrap_or_default();
            process != self.guard.0.process && lock(&THERE).contains(&process)
        };
        loop {
            let remains = Processes::now().map(|all| {
                let mut remains = all.descendants(Pid::this(), of_another);
                remains.retain(|process| !self.marks.is_empty() && family::marks(process.pid) == self.marks);
                remains
            });
            if remains.as_ref().is_ok_and(Vec::is_empty) || Instant::now() > until {
                return;
            }
            for process in remains.unwrap_or_default() {
                let _gone = kill(process.pid, Signal::SIGKILL);
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

impl Drop for Guarded {
    fn drop(&mut self) {
        if !self.is_over {
            self.tell(Order::Kill);
        }
        lock(&self.guard.0.reports).of_plugins.remove(&self.number);
    }
}

/// Removes what has ended from the system's table: earlier guards, and what they left behind.
fn bury_children() {
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    while let Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _)) = waitid(Id::All, look) {
        let _buried = waitpid(pid, None);
    }
}

#[cfg(test)]
mod tests;
