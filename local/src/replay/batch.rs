//! Replays many runs at once. Each is replayed by a process of its own, as each has a working directory of its own.

use std::ffi::OsStr;
use std::fs;
use std::io::IsTerminal;
use std::path::Path;
use std::process::{ExitCode, Output, Stdio};
use std::thread::available_parallelism;
use std::time::Duration;

use anyhow::Context;
use disbatch_cli::args::{ConnectionOptions, ReplayOptions};
use disbatch_cli::output::{Screen, print, say, shown_json};
use disbatch_compare::{Comparison, diff};
use disbatch_core::lifecycle::Lifecycle;
use futures::{StreamExt, stream};
use indicatif::{ProgressBar, ProgressStyle};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use super::sources::{Source, Sources};
use super::verdict::{Tried, Verdict, Verdicts};
use super::{DIFFERENT, page, secrets, summary};

/// The exit status of what was interrupted.
const INTERRUPTED: u8 = 130;

/// The exit status when nothing could be replayed.
const NOT_REPLAYABLE: u8 = 255;

/// So many bytes of each difference are kept: there may be a thousand of them.
const LONGEST: usize = 64 * 1024;

/// Replays all of them, and tells what came out.
pub async fn run(options: &ReplayOptions, connection: ConnectionOptions) -> anyhow::Result<ExitCode> {
    let lifecycle = Lifecycle::listen()?;
    let config = connection.config.clone();
    let sources = tokio::select! {
        biased;
        () = lifecycle.draining() => return Ok(ExitCode::from(INTERRUPTED)),
        sources = Box::pin(Sources::of(options, connection)) => sources?,
    };
    let given = secrets::read_or_ask(&sources.secrets(), options.secrets.as_deref())?;
    let secrets = (!given.is_empty()).then(|| serde_json::Value::Object(given).to_string());
    let how = How { options, config: config.as_deref(), secrets: secrets.as_deref(), lifecycle: &lifecycle };
    let Sources { all: sources, folder } = sources;
    let count = sources.len();
    let all = how.all(sources).await?;
    // The bundles were needed until now.
    drop(folder);
    let limits = &options.many.limits;
    let verdicts = Verdicts { all: &all, limits };
    if let Some(path) = &options.many.html {
        let page = page::render(&verdicts, options)?;
        fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    if options.json {
        print(&shown_json(format!("{:#}\n", verdicts.json())))?;
    } else if !all.is_empty() {
        print(&summary::text(&verdicts, Screen::of_stdout()))?;
    }
    if all.len() < count {
        say(&format!("interrupted: {} of {count} runs were replayed", all.len()));
        return Ok(ExitCode::from(INTERRUPTED));
    }
    Ok(if verdicts.fail(&options.many.fail_on) {
        ExitCode::from(DIFFERENT)
    } else if verdicts.count(Verdict::NotReplayable) == all.len() {
        ExitCode::from(NOT_REPLAYABLE)
    } else {
        ExitCode::SUCCESS
    })
}

/// How each of them is replayed.
#[derive(Clone, Copy)]
struct How<'a> {
    options: &'a ReplayOptions,
    config: Option<&'a Path>,
    /// As `--secrets` takes them.
    secrets: Option<&'a str>,
    lifecycle: &'a Lifecycle,
}

impl How<'_> {
    /// What came of them, in their order; without those that were not replayed as somebody has had enough.
    async fn all(self, sources: Vec<Source>) -> anyhow::Result<Vec<Tried>> {
        let jobs = self.options.many.jobs.map_or_else(processors, usize::from);
        let progress = Progress::start(sources.len())?;
        let tries = stream::iter(sources.into_iter().enumerate()).map(|source| self.one(source));
        let mut tries = tries.buffer_unordered(jobs);
        let mut all = Vec::new();
        while let Some(tried) = tries.next().await {
            all.extend(tried.inspect(|tried| progress.advance(tried, self.options)));
        }
        progress.finish();
        all.sort_by_key(|tried| tried.number);
        Ok(all)
    }

    async fn one(self, (number, source): (usize, Source)) -> Option<Tried> {
        if self.lifecycle.is_draining() {
            return None;
        }
        let Source { task, attempt, bundle } = source;
        let plugin = bundle.as_ref().map(|(_, bundle)| bundle.plugin.clone()).unwrap_or_default();
        let outcome = match bundle {
            Ok((path, _)) => self.replay(&path).await,
            Err(why) => Err(why),
        };
        // What was interrupted comes to nothing.
        (!self.lifecycle.is_draining()).then_some(Tried { number, task, attempt, plugin, outcome })
    }

    async fn replay(self, bundle: &Path) -> Result<Comparison, String> {
        let output = self.output(bundle).await.map_err(|error| format!("{error:#}"))?;
        match output.status.code() {
            Some(code) if code == 0 || code == i32::from(DIFFERENT) => {}
            _ => return Err(why(&output)),
        }
        let mut found: Comparison =
            serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
        for text in &mut found.texts {
            text.difference = diff::cut(std::mem::take(&mut text.difference), LONGEST);
        }
        Ok(found)
    }

    /// That of this program, which replays one run.
    async fn output(self, bundle: &Path) -> anyhow::Result<Output> {
        let own = std::env::current_exe().context("cannot tell where this program is")?;
        let ReplayOptions { with, mask, timeout, .. } = self.options;
        let mut command = Command::new(own);
        command.arg("replay").arg("--json").kill_on_drop(true);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        for (option, path) in [("--with", with.as_deref()), ("--config", self.config)] {
            command.args(path.map(|path| [OsStr::new(option), path.as_os_str()]).into_iter().flatten());
        }
        command.args(mask.iter().flat_map(|mask| ["--mask", mask.as_str()]));
        command
            .args(timeout.iter().flat_map(|time| ["--timeout".to_owned(), time.as_secs_f64().to_string()]));
        command.args(self.secrets.map(|_| ["--secrets", "-"]).into_iter().flatten());
        // A ^C in the terminal is for us alone: a second signal leaves a plugin no time to end.
        command.process_group(0);
        let mut child = command.arg("--").arg(bundle).spawn().context("cannot start a process")?;
        if let Some(mut stdin) = child.stdin.take() {
            // One that does not read it has found something wrong before.
            let _unread = stdin.write_all(self.secrets.unwrap_or_default().as_bytes()).await;
        }
        let pid = child.id().and_then(|pid| i32::try_from(pid).ok());
        let output = child.wait_with_output();
        tokio::pin!(output);
        // It may have ended just now.
        let tell = || pid.map(|pid| kill(Pid::from_raw(pid), Signal::SIGTERM));
        tokio::select! {
            biased;
            output = &mut output => return Ok(output?),
            () = self.lifecycle.draining() => drop(tell()),
        }
        tokio::select! {
            biased;
            output = &mut output => return Ok(output?),
            () = self.lifecycle.ending() => drop(tell()),
        }
        Ok(output.await?)
    }
}

/// Why nothing came out: what it said last.
fn why(output: &Output) -> String {
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim();
    if said.is_empty() { format!("its process ended with {}", output.status) } else { said.to_owned() }
}

fn processors() -> usize {
    available_parallelism().map_or(1, usize::from)
}

/// How far it is: a bar on a terminal, else a line for each.
struct Progress {
    bar: Option<ProgressBar>,
    total: usize,
}

impl Progress {
    fn start(total: usize) -> anyhow::Result<Self> {
        let bar = std::io::stderr().is_terminal().then(|| ProgressBar::new(total as u64));
        if let Some(bar) = &bar {
            bar.set_style(ProgressStyle::with_template("{wide_bar} {pos} of {len}, {eta} left")?);
            bar.enable_steady_tick(Duration::from_millis(200));
        }
        Ok(Self { bar, total })
    }

    fn advance(&self, tried: &Tried, options: &ReplayOptions) {
        match &self.bar {
            Some(bar) => bar.inc(1),
            None => say(&format!(
                "{} of {}: {}",
                tried.number + 1,
                self.total,
                summary::line(tried, &options.many.limits)
            )),
        }
    }

    fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
