//! One run of a plugin without a database and without a node, for whoever writes it: `disbatch plugin run`.
//!
//! All that a plugin meets is what it meets on a node: the guard, the private folder, its input and its variables, the control
//! channel, limits, and what is made of its end. What it says is handed on as it comes, and stored nowhere.

mod given;

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, Document};
use disbatch_core::clock::boot_time;
use disbatch_core::config::{Config, Gfs};
use disbatch_core::lifecycle::Lifecycle;
use disbatch_core::model::{NodeName, PluginName, Rules, Status, whole_number};
use disbatch_core::output::StreamName;
use disbatch_core::process;
use disbatch_core::secrets::SecureParams;
use serde_json::Value;
use tokio::io::AsyncReadExt;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;

use crate::capture::Captures;
use crate::custody::Nudges;
use crate::folder::{self, Folders, Lodging};
use crate::ledger::{Connection, Ledger};
use crate::live::Tap;
use crate::outcome::Outcome;
use crate::relay;
use crate::setup::Setup;
use crate::supervision::{self, End, Reason, Supervisor, until};
use crate::work::{Kit, Work};
use given::begun;

pub use given::{Earlier, Given, GivenFile, GivenFiles, LeftFile};

/// Nobody waits longer for a plugin at a terminal: a month.
const LONGEST: Duration = Duration::from_secs(30 * 86_400);

const GRACE: Duration = Duration::from_secs(10);

#[derive(Debug)]
pub struct Rehearsal {
    pub config: Config,
    pub plugin: PluginName,
    pub given: Given,
    /// What only the plugin is told.
    pub secure_params: Option<SecureParams>,
    /// What is in its private folder before it begins, and is looked for there afterwards.
    pub files: Option<GivenFiles>,
    pub timeout: Option<Duration>,
    /// Where its private folder is to be afterwards: an empty folder beside it, see [`folder`]. None: it goes.
    pub keep: Option<PathBuf>,
}

impl Rehearsal {
    /// By the name of the database clusters and container engines know what is a task's. A run that is repeated has the id of a task, its attempt and
    /// its node, and what it makes there must not be taken for theirs, nor for what another one of these has made.
    fn without_database(mut self) -> Self {
        self.config.database = format!("none-{}", ObjectId::new());
        self
    }
}

pub struct Prepared {
    pub program: PathBuf,
    pub arguments: Vec<OsString>,
    /// What is secret is in it.
    pub environment: Vec<(OsString, OsString)>,
    /// Its standard input, with what is secret.
    pub input: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq)]
pub enum Word {
    Output(StreamName, Vec<u8>),
    /// So many bytes of a stream came faster than they were handed on, and come with the end.
    LeftOut(StreamName, u64),
    Progress(Value),
    Storage(Value),
    Report(Value),
}

#[derive(Debug, Clone, PartialEq)]
pub struct Rehearsed {
    pub status: i64,
    pub result: Option<Value>,
    /// How it ended, and what it has used, as tasks have it.
    pub exit: Option<Value>,
    /// Why it ended like that, where that is not its own doing.
    pub note: Option<String>,
    /// The status of each step, and how many seconds it took; none of a task without steps.
    pub steps: Vec<(i64, Option<f64>)>,
    /// The files that it has left, if it was to leave some and has succeeded.
    pub left: Option<Vec<LeftFile>>,
}

/// Makes an empty folder for what is to be kept of a private one.
pub fn folder() -> io::Result<PathBuf> {
    Ok(tempfile::Builder::new().prefix("disbatch-replay-").tempdir_in(folder::parent())?.keep())
}

/// Runs a plugin once, and hands on what it says. The first SIGINT or SIGTERM has it end, the second at once.
pub async fn run(rehearsal: Rehearsal, mut say: impl FnMut(Word)) -> io::Result<Rehearsed> {
    let (mut streams, captures) = Streams::new();
    let performed = perform(rehearsal, captures, (&mut streams, &mut say)).await?;
    streams.hand_on_the_rest(&performed.outcome, &mut say)?;
    Ok(Rehearsed::of(performed))
}

/// The same, in silence. Returns the task's standard output and standard error besides, at most so many bytes of each.
pub async fn run_whole(rehearsal: Rehearsal, most: u64) -> io::Result<(Rehearsed, [Vec<u8>; 2])> {
    let (mut streams, captures) = Streams::new();
    let performed = perform(rehearsal, captures, (&mut streams, &mut |_| ())).await?;
    let mut output = [Vec::new(), Vec::new()];
    let Outcome { stdout, stderr, .. } = &performed.outcome;
    for (stream, bytes) in [stdout, stderr].into_iter().zip(&mut output) {
        stream.reader()?.take(most).read_to_end(bytes).await?;
    }
    Ok((Rehearsed::of(performed), output))
}

/// Says what a plugin would be started with in this folder.
pub fn prepare(rehearsal: Rehearsal, folder: &Path) -> io::Result<Prepared> {
    let Rehearsal { config, plugin, given, secure_params, files, .. } = rehearsal.without_database();
    if let Some(files) = &files {
        files.place(folder, &config)?;
    }
    let (kit, _batcher) = Kit::new(&config).map_err(io::Error::other)?;
    let begun = begun(&plugin, given, NodeName::of_this_host()?)?;
    kit.prepare(&begun, &config, (secure_params.as_ref(), folder))
}

struct Performed {
    outcome: Outcome,
    steps: Vec<Document>,
    left: Option<Vec<LeftFile>>,
}

async fn perform(
    rehearsal: Rehearsal,
    captures: Captures,
    (streams, say): (&mut Streams, &mut impl FnMut(Word)),
) -> io::Result<Performed> {
    let Rehearsal { config, plugin, given, secure_params, files, timeout, keep } =
        rehearsal.without_database();
    // One would have secure parameters in it.
    process::forbid_core_dumps()?;
    let (kit, mut batcher) = Kit::new(&config).map_err(io::Error::other)?;
    let setup = Setup {
        config: Arc::new(config),
        node: NodeName::of_this_host()?,
        gfs: Gfs::Never,
        lifecycle: Lifecycle::listen()?,
        nudges: Nudges::default(),
    };
    let begun = begun(&plugin, given, setup.node.clone())?;
    let rules = Rules::of(&begun.task, begun.known_queue());
    let folder = Lodging::new(begun.run.task, Folders::default());
    // Nothing is written to it: there is no database.
    let ledger = Ledger::new(Arc::clone(&setup.config), setup.lifecycle.clone(), None, Connection::default());
    let work = Work { setup: &setup, ledger: &ledger, begun: &begun, folder: &folder, is_alone: true };
    let filled = |folder: &Lodging| folder.path().map(Path::to_owned).map_err(io::Error::other);
    if let Some(files) = &files {
        files.place(&filled(&folder)?, &setup.config)?;
    }
    let given = (secure_params, boot_time().saturating_add(LONGEST), files.is_some());
    let followed = follow(&work, &kit, (given, captures, timeout.or(rules.timeout)), (streams, say));
    let (outcome, steps) = tokio::select! {
        biased;
        done = Box::pin(followed) => done,
        never = batcher.drive(&setup.lifecycle) => match never {},
    };
    let left = match &files {
        Some(files) if outcome.verdict.status == Status::Succeeded => {
            files.left(&filled(&folder)?, &setup.config, begun.run.task)?
        }
        Some(_) | None => None,
    };
    if let Some(target) = &keep {
        folder.move_to(target)?;
    }
    kit.tools.end().await;
    batcher.end().await;
    Ok(Performed { outcome, steps, left })
}

impl Rehearsed {
    fn of(Performed { outcome, steps, left }: Performed) -> Self {
        let time = |step: &Document, name: &str| step.get_datetime(name).ok().map(|at| at.timestamp_millis());
        let step = |step: &Document| {
            let took = time(step, "started").zip(time(step, "ended"));
            // Milliseconds of a replay that nobody waits a hundred thousand years for.
            let took = took.map(|(from, to)| Duration::from_millis(to.saturating_sub(from).unsigned_abs()));
            let status = step.get("status").and_then(whole_number).unwrap_or_default();
            (status, took.map(|took| took.as_secs_f64()))
        };
        Self {
            steps: steps.iter().map(step).collect(),
            left,
            status: outcome.verdict.status.code(),
            result: outcome.verdict.result.map(json),
            exit: outcome.exit.map(json),
            note: outcome.verdict.note,
        }
    }
}

async fn follow(
    work: &Work<'_>,
    kit: &Kit,
    (given, captures, timeout): ((Option<SecureParams>, Duration, bool), Captures, Option<Duration>),
    (streams, say): (&mut Streams, &mut impl FnMut(Word)),
) -> (Outcome, Vec<Document>) {
    let (supervisor, supervision) = supervision::channel();
    let (relay, inbox) = relay::channel();
    let steps = relay.steps.subscribe();
    let (tell, mut told) = mpsc::unbounded_channel();
    let hand_on = |word| {
        // Whoever runs the plugin listens until it has ended.
        let _listening = tell.send(word);
    };
    let running = work.rehearse(kit, supervision, given, (captures, relay));
    let both = async { tokio::join!(running, inbox.tell(hand_on)).0 };
    tokio::pin!(both);
    let ending = end(supervisor, timeout, &work.setup.lifecycle);
    tokio::pin!(ending);
    let mut has_end = false;
    let outcome = loop {
        tokio::select! {
            outcome = &mut both => break outcome,
            () = streams.news.notified() => streams.hand_on(say),
            Some(word) = told.recv() => say(word),
            () = &mut ending, if !has_end => has_end = true,
        }
    };
    while let Ok(word) = told.try_recv() {
        say(word);
    }
    streams.hand_on(say);
    let steps = steps.borrow().clone().unwrap_or_default();
    (outcome, steps)
}

/// Has the plugin end when its time is over, or when this process is told to end; at once when that is told again.
async fn end(supervisor: Supervisor, timeout: Option<Duration>, lifecycle: &Lifecycle) {
    let over = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    let reason = tokio::select! {
        () = until(over) => Reason::Timeout,
        () = lifecycle.draining() => Reason::Cancel,
    };
    supervisor.end(End { reason, grace: GRACE });
    lifecycle.ending().await;
    supervisor.end(End { reason, grace: Duration::ZERO });
}

/// What is handed on of the task's output while it runs, as it comes.
struct Streams {
    news: Arc<Notify>,
    /// Each with how much of it was handed on.
    taps: [(StreamName, Tap, u64); 2],
}

impl Streams {
    /// None yet, and where they are captured.
    fn new() -> (Self, Captures) {
        let news = Arc::new(Notify::new());
        let (out, err) = (Tap::new(Arc::clone(&news)), Tap::new(Arc::clone(&news)));
        let Captures { stdout, stderr } = Captures::new(None, None);
        let captures = Captures { stdout: stdout.tapped(out.clone()), stderr: stderr.tapped(err.clone()) };
        (Self { news, taps: [(StreamName::Stdout, out, 0), (StreamName::Stderr, err, 0)] }, captures)
    }

    fn hand_on(&mut self, say: &mut impl FnMut(Word)) {
        for (name, tap, shown) in &mut self.taps {
            let Some(piece) = tap.peek() else { continue };
            if piece.offset > *shown {
                say(Word::LeftOut(*name, piece.offset - *shown));
            }
            *shown = piece.end();
            tap.forget_before(*shown);
            say(Word::Output(*name, piece.bytes));
        }
    }

    /// Hands on what comes with the end: why a plugin was not begun with, which no tap has seen.
    fn hand_on_the_rest(&self, outcome: &Outcome, say: &mut impl FnMut(Word)) -> io::Result<()> {
        for ((name, _, shown), stream) in self.taps.iter().zip([&outcome.stdout, &outcome.stderr]) {
            let rest = usize::try_from(stream.len().saturating_sub(*shown)).map_err(io::Error::other)?;
            if rest > 0 {
                say(Word::Output(*name, stream.tail(rest)?));
            }
        }
        Ok(())
    }
}

fn json(document: Document) -> Value {
    Bson::Document(document).into_relaxed_extjson()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;
    use serde_json::{Map, json};

    use super::*;
    use crate::supervision::Wish;

    /// Runs a plugin that is this script. Returns what it wrote, what else it said, and what came of it.
    async fn rehearse(
        script: &str,
        params: Value,
        timeout: Option<Duration>,
    ) -> (String, String, Vec<Word>, Rehearsed) {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), script);
        let text = r#"{ "mongohost": "mongodb://127.0.0.1:1", "database": "none", "plugin_dirs": ["."] }"#;
        let config = Config::parse(text, &folder.path().join("config.json")).unwrap();
        let params = params.as_object().unwrap().clone();
        let plugin = "My::Script".parse().unwrap();
        let given = Given::Params(params);
        let rehearsal =
            Rehearsal { config, plugin, given, secure_params: None, files: None, timeout, keep: None };
        let (mut out, mut err, mut words) = (Vec::new(), Vec::new(), Vec::new());
        let ended = run(rehearsal, |word| match word {
            Word::Output(StreamName::Stdout, bytes) => out.extend(bytes),
            Word::Output(StreamName::Stderr, bytes) => err.extend(bytes),
            other => words.push(other),
        });
        let ended = Box::pin(ended).await.unwrap();
        (String::from_utf8(out).unwrap(), String::from_utf8(err).unwrap(), words, ended)
    }

    fn write(folder: &Path, script: &str) {
        fs::write(folder.join("plugin.json"), r#"{ "name": "My::Script", "command": ["./run"] }"#).unwrap();
        fs::write(folder.join("run"), format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(folder.join("run"), fs::Permissions::from_mode(0o755)).unwrap();
    }

    #[tokio::test]
    async fn a_plugin_meets_what_it_meets_on_a_node() {
        let script = r#"cat > task; grep -q '"a":1' task && echo "$DISBATCH_PLUGIN $JOB_PARAMS"; echo err >&2
            [ "$PWD" = "$DISBATCH_WORK_DIR" ] && ls
            echo '{"progress": {"percent": 50}, "result": {"n": 7}, "report": {"r": 1}, "storage": [1]}' >&3"#;
        let (out, err, mut words, ended) = Box::pin(rehearse(script, json!({ "a": 1 }), None)).await;
        assert_eq!((out.as_str(), err.as_str()), ("My::Script {\"a\":1}\ntask\n", "err\n"));
        assert_eq!((ended.status, ended.result, ended.note), (1, Some(json!({ "n": 7 })), None));
        assert_eq!(ended.exit.unwrap()["code"], json!(0));
        words.sort_by_key(|word| format!("{word:?}"));
        let expected = [
            Word::Progress(json!({ "percent": 50.0 })),
            Word::Report(json!({ "r": 1 })),
            Word::Storage(json!([1])),
        ];
        assert_eq!(words, expected);
    }

    #[tokio::test]
    async fn it_does_not_know_the_database_of_the_configuration() {
        let folder = tempfile::tempdir().unwrap();
        write(folder.path(), "true");
        let manifest = r#"{ "name": "My::Script", "command": ["./run"], "commits": true }"#;
        fs::write(folder.path().join("plugin.json"), manifest).unwrap();
        let text = r#"{ "mongohost": "mongodb://127.0.0.1:1", "database": "real", "plugin_dirs": ["."] }"#;
        let config = Config::parse(text, &folder.path().join("config.json")).unwrap();
        let (plugin, given) = ("My::Script".parse().unwrap(), Given::Params(Map::new()));
        let rehearsal =
            Rehearsal { config, plugin, given, secure_params: None, files: None, timeout: None, keep: None };
        let prepared = prepare(rehearsal, folder.path()).unwrap();
        let found = prepared.environment.iter().find(|(name, _)| name == "DISBATCH_DATABASE");
        let told = found.and_then(|(_, value)| value.to_str()).unwrap();
        assert!(told.starts_with("none-"), "{told}");
    }

    #[tokio::test]
    async fn how_it_ends_is_told_as_a_task_would_have_it() {
        let (out, _, _, ended) = Box::pin(rehearse("echo x; exit 3", json!({}), None)).await;
        assert_eq!((out.as_str(), ended.status), ("x\n", 2));
    }

    /// By itself: the guard of a rehearsal removes the folders of its process when it ends.
    #[tokio::test]
    async fn what_takes_too_long_is_told_as_a_task_would_have_it() {
        let endless = rehearse("exec sleep 1000", json!({}), Some(Duration::from_secs(2)));
        let (_, _, _, ended) = Box::pin(endless).await;
        assert_eq!((ended.status, ended.note.as_deref()), (-3, Some("it took longer than its timeout")));
        assert_eq!(ended.exit.unwrap()["reason"], json!("timeout"));
    }

    /// By itself: the signals are those of its process.
    #[tokio::test]
    async fn a_second_signal_leaves_no_grace() {
        let lifecycle = Lifecycle::listen().unwrap();
        let (supervisor, mut supervision) = supervision::channel();
        let wishes = async {
            for grace in [GRACE, Duration::ZERO] {
                kill(Pid::this(), Signal::SIGINT).unwrap();
                let expected = Wish::End(End { reason: Reason::Cancel, grace });
                assert_eq!(supervision.next().await, expected);
            }
        };
        tokio::join!(end(supervisor, None, &lifecycle), wishes);
    }

    #[tokio::test]
    async fn much_output_comes_whole_or_says_what_is_left_out() {
        let much = rehearse("head -c 3000000 /dev/zero | tr '\\0' x", json!({}), None);
        let (out, _, words, _) = Box::pin(much).await;
        let left_out: u64 = words
            .iter()
            .map(|word| match word {
                Word::LeftOut(_, bytes) => *bytes,
                _ => 0, // No others are said.
            })
            .sum();
        assert_eq!(out.len() as u64 + left_out, 3_000_000);
    }

    #[tokio::test]
    async fn why_it_cannot_be_run_is_its_output() {
        let folder = tempfile::tempdir().unwrap();
        let text = r#"{ "mongohost": "mongodb://127.0.0.1:1", "database": "none", "plugin_dirs": ["."] }"#;
        let config = Config::parse(text, &folder.path().join("config.json")).unwrap();
        let plugin = "My::Missing".parse().unwrap();
        let given = Given::Params(Map::new());
        let rehearsal =
            Rehearsal { config, plugin, given, secure_params: None, files: None, timeout: None, keep: None };
        let mut all = Vec::new();
        let ended = run(rehearsal, |word| {
            if let Word::Output(_, bytes) = word {
                all.extend(bytes);
            }
        });
        assert_eq!(Box::pin(ended).await.unwrap().status, 2);
        let all = String::from_utf8(all).unwrap();
        assert!(all.starts_with("Unable to start") && all.contains("My::Missing is not installed"), "{all}");
    }
}
