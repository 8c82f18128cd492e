//! The runners that a DEN left when it ended. They lead sessions of their own, and became our children.

use std::collections::HashMap;
use std::convert::Infallible;
use std::time::{Duration, Instant};

use disbatch_cli::api::Client;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, waitpid};
use nix::unistd::{Pid, getpid, getsid};

use super::console::Console;

/// The name of a runner's process.
const RUNNER: &str = "dtr";

const INTERVAL: Duration = Duration::from_millis(200);
const BURIAL_INTERVAL: Duration = Duration::from_secs(5);

/// How often the number of running tasks is looked up while they are waited for.
const COUNT_INTERVAL: Duration = Duration::from_secs(1);

/// How long runners may take to end their tasks when told to, and then to be gone after SIGKILL.
const END_DEADLINE: Duration = Duration::from_secs(15);
const KILL_DEADLINE: Duration = Duration::from_secs(5);

/// Buries, until it is dropped, what dies in our care: processes that a task left behind.
pub async fn bury() -> Infallible {
    let mut interval = tokio::time::interval(BURIAL_INTERVAL);
    loop {
        interval.tick().await;
        let _alive = adopted();
    }
}

/// Waits until the last runner has ended its task; ends them when `impatient` resolves.
pub async fn wait(console: &Console, client: &Client, impatient: impl Future<Output = ()>) {
    let mut interval = tokio::time::interval(INTERVAL);
    tokio::pin!(impatient);
    let mut told = None;
    let mut counted: Option<Instant> = None;
    loop {
        tokio::select! {
            _ = interval.tick() => {}
            () = &mut impatient => {
                console.line("ending the running tasks");
                return end(console).await;
            }
        }
        // What else tasks left behind may stay: its owner wanted it so.
        let runners = adopted().into_iter().filter(|orphan| orphan.name == RUNNER).count();
        if runners == 0 {
            return;
        }
        if counted.is_none_or(|at| at.elapsed() > COUNT_INTERVAL) {
            let running = running_tasks(client).await.unwrap_or(runners as u64);
            if told != Some(running) {
                let tasks = if running == 1 { "task" } else { "tasks" };
                console.line(&format!("waiting for {running} running {tasks}; ^C ends them"));
            }
            told = Some(running);
            counted = Some(Instant::now());
        }
    }
}

/// Tells every runner twice, as the second signal does not wait for the task; kills what is left of them and
/// of their tasks.
async fn end(console: &Console) {
    let mut interval = tokio::time::interval(INTERVAL);
    let mut signals: HashMap<Pid, u32> = HashMap::new();
    let start = Instant::now();
    loop {
        interval.tick().await;
        let left = adopted();
        if left.is_empty() {
            return;
        }
        if start.elapsed() > END_DEADLINE + KILL_DEADLINE {
            return console.error(&format!("{} processes of tasks cannot be ended", left.len()));
        }
        for Orphan { pid, .. } in left {
            let sent = signals.entry(pid).or_default();
            *sent += 1;
            // Each of these may end in this moment.
            let _ = match *sent {
                _ if start.elapsed() > END_DEADLINE => kill(pid, Signal::SIGKILL),
                1 | 2 => kill(pid, Signal::SIGTERM),
                _ => Ok(()),
            };
        }
    }
}

async fn running_tasks(client: &Client) -> Option<u64> {
    let queues = client.get("/queues", None).await.ok()?;
    Some(queues.as_array()?.iter().filter_map(|queue| queue["running"].as_u64()).sum())
}

/// A child of ours in another session.
#[derive(Debug)]
struct Orphan {
    pid: Pid,
    name: String,
}

/// Our children in other sessions. The dead among them are buried.
fn adopted() -> Vec<Orphan> {
    let (Ok(own_session), Ok(entries)) = (getsid(None), std::fs::read_dir("/proc")) else {
        return Vec::new();
    };
    let processes =
        entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok().map(Pid::from_raw));
    let orphan = |pid: Pid| {
        let stat = Stat::parse(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)?;
        let ours = stat.parent == getpid().as_raw() && stat.session != own_session.as_raw();
        let buried = ours && stat.dead && waitpid(pid, Some(WaitPidFlag::WNOHANG)).is_ok();
        (ours && !buried).then_some(Orphan { pid, name: stat.name })
    };
    processes.filter_map(orphan).collect()
}

/// The fields of `/proc/PID/stat` that matter here.
#[derive(Debug, PartialEq)]
struct Stat {
    name: String,
    dead: bool,
    parent: i32,
    session: i32,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The name between the parentheses may hold anything.
        let (start, rest) = text.rsplit_once(')')?;
        let name = start.split_once('(')?.1.to_owned();
        let mut fields = rest.split_ascii_whitespace();
        let dead = fields.next()? == "Z";
        let parent = fields.next()?.parse().ok()?;
        let _group = fields.next()?;
        Some(Self { name, dead, parent, session: fields.next()?.parse().ok()? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_confuse() {
        let stat = Stat::parse("42 (a) S 1 (b) Z 7 42 41 0 -1 4194304").unwrap();
        assert_eq!(stat, Stat { name: "a) S 1 (b".to_owned(), dead: true, parent: 7, session: 41 });
        assert_eq!(Stat::parse(""), None);
    }

    #[test]
    fn children_in_our_own_session_are_not_runners() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = Pid::from_raw(i32::try_from(child.id()).unwrap());
        assert!(adopted().iter().all(|orphan| orphan.pid != pid));
        child.kill().unwrap();
        child.wait().unwrap();
    }
}
