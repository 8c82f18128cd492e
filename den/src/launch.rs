//! Starts runners and learns how they end. A runner outlives the DEN: nothing here is needed for it to finish.

use std::collections::HashMap;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use disbatch_core::config::Config;
use disbatch_core::model::{NodeName, TaskId};
use disbatch_core::task::Claim;
use tokio::process::Command;
use tokio::sync::mpsc;

/// A runner that has ended.
#[derive(Debug)]
pub struct Exit {
    /// The claim that it was started for.
    pub claim: Claim,
    /// Its process.
    pub pid: u32,
    /// How it ended.
    pub status: io::Result<ExitStatus>,
}

/// Starts runners, one process per claimed task.
#[derive(Debug)]
pub struct Launcher {
    program: PathBuf,
    arguments: Vec<OsString>,
    foreign: bool,
    /// The living runners of each task. More than one only if it was given back and claimed again
    /// before the first noticed.
    living: HashMap<TaskId, Vec<u32>>,
    exits: mpsc::UnboundedSender<Exit>,
}

impl Launcher {
    /// Prepares to start `dtr` from beside this binary, or the configured `task_runner`. Ends of runners
    /// arrive at the receiver.
    ///
    /// # Errors
    /// This binary's own path is unknown.
    pub fn new(config: &Config, node: &NodeName) -> io::Result<(Self, mpsc::UnboundedReceiver<Exit>)> {
        let beside = std::env::current_exe()?.with_file_name("dtr");
        let foreign = config.task_runner.is_some();
        let program = config.task_runner.clone().unwrap_or(beside);
        let (exits, inbox) = mpsc::unbounded_channel();
        let arguments = arguments(config, node);
        Ok((Self { program, arguments, foreign, living: HashMap::new(), exits }, inbox))
    }

    /// Starts a runner for `claim`.
    ///
    /// # Errors
    /// The process cannot be started. The claim comes back to be given up.
    pub fn launch(&mut self, claim: Claim) -> Result<(), (Claim, io::Error)> {
        let mut command = Command::new(&self.program);
        command
            .args(&self.arguments)
            .arg("--task")
            .arg(claim.task.to_string())
            .args(self.fence(&claim))
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        if self.foreign {
            // Our own runner makes itself the leader of a session; for others this is the next best thing.
            command.process_group(0);
        }
        let mut child = match command.spawn() {
            Ok(child) => child,
            Err(error) => return Err((claim, error)),
        };
        let pid = child.id().unwrap_or_default();
        self.living.entry(claim.task).or_default().push(pid);
        let exits = self.exits.clone();
        tokio::spawn(async move {
            let status = child.wait().await;
            // Nobody listens any more when the DEN is ending; the runner's task is stored all the same.
            let _ending = exits.send(Exit { claim, pid, status });
        });
        Ok(())
    }

    /// Notes that a runner has ended and been looked after.
    pub fn ended(&mut self, exit: &Exit) {
        if let Some(living) = self.living.get_mut(&exit.claim.task) {
            living.retain(|pid| *pid != exit.pid);
            if living.is_empty() {
                self.living.remove(&exit.claim.task);
            }
        }
    }

    /// Whether `task` has another runner besides one that has ended and not been noted yet.
    pub fn has_another(&self, task: TaskId) -> bool {
        self.living.get(&task).is_some_and(|living| living.len() > 1)
    }

    /// The processes of the living runners of `task` that this DEN has started.
    pub fn runners_of(&self, task: TaskId) -> &[u32] {
        self.living.get(&task).map_or(&[], Vec::as_slice)
    }

    /// Whether runners know of leases: our own do.
    pub fn knows_leases(&self) -> bool {
        !self.foreign
    }

    /// The tasks that have a living runner of this DEN.
    pub fn tasks(&self) -> Vec<TaskId> {
        self.living.keys().copied().collect()
    }

    /// Tells our own runner which claim it is started for.
    fn fence(&self, claim: &Claim) -> Vec<OsString> {
        if self.foreign {
            return Vec::new();
        }
        vec![
            "--attempt".into(),
            claim.attempt.to_string().into(),
            "--instance".into(),
            claim.instance.clone().into(),
        ]
    }

    /// The program, for messages.
    pub fn program(&self) -> std::path::Display<'_> {
        self.program.display()
    }
}

fn arguments(config: &Config, node: &NodeName) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = vec!["--config".into(), config.path.clone().into()];
    // Perl's runner has no --node; it goes by the host name, and so does ours when not told otherwise.
    if NodeName::of_this_host().ok().as_ref() != Some(node) {
        arguments.extend(["--node".into(), node.as_str().into()]);
    }
    arguments.extend(["--gfs".into(), config.den_gfs().as_argument().into()]);
    if config.task_runner.is_none() {
        // Perl's runner does not know it either.
        arguments.push("--no-echo".into());
    }
    if config.quiet.0 {
        arguments.push("--quiet".into());
    }
    if config.testing.0 {
        arguments.push("--testing".into());
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runners_get_the_arguments_of_disbatch() {
        let config = |extra: &str| {
            let text = format!(r#"{{"mongohost":"h","database":"d"{extra}}}"#);
            Config::parse(&text, std::path::Path::new("/etc/d.json")).unwrap()
        };
        let here = NodeName::of_this_host().unwrap();
        assert_eq!(arguments(&config(""), &here), ["--config", "/etc/d.json", "--gfs", "auto", "--no-echo"]);
        assert_eq!(
            arguments(
                &config(r#","gfs":false,"quiet":1,"testing":true,"task_runner":"/usr/bin/task_runner""#),
                &NodeName::new("other")
            ),
            ["--config", "/etc/d.json", "--node", "other", "--gfs", "0", "--quiet", "--testing"]
        );
    }
}
