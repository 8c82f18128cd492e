//! Records an attempt whose queue wants that: what its plugin is given, and when it says what. See [`disbatch_wire::bundles`].
//!
//! Of a task with steps the input is recorded once, as it is before the first, and the plugin of each step. Of a warm plugin there is neither an environment nor the times of output, since its process has begun before
//! and has other tasks as well; of what a web service goes on with nothing is recorded.

mod common;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::io;
use std::iter;
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bson::Bson;
use disbatch_core::clock::{Clock, SystemClock};
use disbatch_core::model::{Queue, Sample, Task};
use disbatch_core::output::StreamName;
use disbatch_core::plugin::{Engine, Plugin};
use disbatch_core::recordings::{CommonPart, Recorded};
use disbatch_core::secrets::{FIELD, NamedSecrets};
use disbatch_core::store::millis;
use disbatch_wire::bundles::{
    ControlLine, OutputPiece, PluginFile, RecordedPlugin, RecordedStep, Recording, VERSION, Variable,
};
use serde_json::Value;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::isolation::{Environment, is_set_here};
use crate::ledger::Ledger;
use crate::lock;
use crate::work::parts::Part;
use common::Common;

pub use common::{Commons, Sums};

/// How long the end of an attempt may wait for the sums of files, which have been made since its start.
const SUMS_TAKE: Duration = Duration::from_secs(1);

/// As JSON a recording has so many bytes at most.
const LARGEST: usize = 1024 * 1024;

/// So many control lines are recorded at most,
const MOST_LINES: usize = 2_000;

/// with so many bytes together.
const MOST_CONTROL: usize = 256 * 1024;

/// So often it is recorded when output came.
const MOST_PIECES: usize = 2_000;

/// Longer values of variables are left out. Those that the runner sets are in the input as well.
const LONGEST_VALUE: usize = 4 * 1024;

/// Variables that are set here and are the same for all attempts of a queue.
const OF_QUEUE: [&str; 5] =
    ["DISBATCH_CONTROL_FD", "DISBATCH_DATABASE", "DISBATCH_PLUGIN", "DISBATCH_QUEUE", "DISBATCH_QUEUE_ID"];

/// What often is in the names of variables with secrets.
const SUSPECT: [&str; 6] = ["AUTH", "CREDENTIAL", "KEY", "PASS", "SECRET", "TOKEN"];

/// What records one attempt. Clones record the same.
#[derive(Debug, Clone)]
pub struct Recorder(Arc<Mutex<Draft>>);

#[derive(Debug)]
struct Draft {
    began: Instant,
    sample: Sample,
    /// Without what is common to several attempts,
    own: Recording,
    /// as these variables are.
    environment: Arc<[Variable]>,
    /// What this runner knows of that.
    commons: Commons,
    /// How many bytes of control lines there are.
    control: usize,
    /// How many lines and pieces came that there was no room for.
    left_out: [u64; 2],
    /// The plugin, or that of each step, until the first has begun; and then their files.
    plugins: Vec<Arc<Plugin>>,
    files: Option<Files>,
}

/// The files of the plugin, or of that of each step.
#[derive(Debug)]
enum Files {
    Known(Vec<Vec<PluginFile>>),
    Awaited(JoinHandle<Vec<Vec<PluginFile>>>),
}

impl Recorder {
    /// For an attempt that is to be recorded. Asks the queue first, as most have nothing recorded.
    pub fn of(
        queue: &Queue,
        (task, attempt): (&Task, i64),
        parts: &[Part],
        commons: &Commons,
    ) -> Option<Self> {
        let sample = Sample::of(queue)?;
        let is_service = |part: &Part| part.plugin.manifest.engine == Engine::Http;
        if parts.iter().any(is_service) || !sample.has(task.id, attempt) {
            return None;
        }
        let step = |part: &Part| {
            let name = part.step.as_ref()?.name.clone();
            Some(RecordedStep { name, ..RecordedStep::default() })
        };
        let steps = parts.iter().filter_map(step).collect();
        let own = Recording { v: VERSION, steps, ..Recording::default() };
        let plugins = parts.iter().map(|part| Arc::clone(&part.plugin)).collect();
        let draft = Draft {
            began: Instant::now(),
            sample,
            own,
            environment: Arc::default(),
            commons: commons.clone(),
            control: 0,
            left_out: [0; 2],
            plugins,
            files: None,
        };
        Some(Self(Arc::new(Mutex::new(draft))))
    }

    /// The plugin is about to be given the task, which is `input` without what is secret. Of a task with steps that is what it is before
    /// the first.
    pub fn gives(
        &self,
        task: &Task,
        input: impl FnOnce() -> io::Result<String>,
        sums: &Sums,
    ) -> io::Result<()> {
        let mut draft = lock(&self.0);
        if draft.files.is_none() {
            draft.began = Instant::now();
            draft.own.at = SystemClock.now().try_to_rfc3339_string().unwrap_or_default();
            draft.own.input = input()?;
            if task.rest.get(FIELD).is_some_and(|sealed| *sealed != Bson::Null) {
                draft.own.secrets.push(FIELD.to_owned());
            }
            let (plugins, sums) = (mem::take(&mut draft.plugins), sums.clone());
            let known = plugins.iter().map(|plugin| sums.known_of(plugin)).collect::<Option<_>>();
            // Beside the plugin: it need not wait for that.
            let look = move || plugins.iter().map(|plugin| sums.of(plugin)).collect();
            draft.files = Some(match known {
                Some(files) => Files::Known(files),
                None => Files::Awaited(tokio::task::spawn_blocking(look)),
            });
        }
        let ms = draft.ms();
        if let Some(step) = draft.own.steps.iter_mut().find(|step| step.ms.is_none()) {
            step.ms = Some(ms);
        }
        Ok(())
    }

    /// A process is started for the task, with this environment.
    pub fn starts(
        &self,
        environment: &Environment,
        secrets: &NamedSecrets,
        folder: Option<&Path>,
        secret: &str,
    ) {
        let mut draft = lock(&self.0);
        let is_named =
            |name: &str| name == secret || secrets.variables().any(|(variable, _)| variable == name);
        if draft.own.steps.get(1).is_none_or(|second| second.ms.is_none()) {
            let is_own =
                |name: &OsStr| is_set_here(name) && OF_QUEUE.iter().all(|of_queue| *of_queue != name);
            let (own, inherited): (Vec<_>, Vec<_>) = environment.iter().partition(|(name, _)| is_own(name));
            let is_secret = |name: &str, value: &OsStr| is_named(name) || is_suspect(name, value.as_bytes());
            draft.own.environment = variables(&own, is_secret);
            let named = secrets.variables().map(|(variable, _)| variable.to_owned()).collect();
            draft.environment =
                draft.commons.variables(&inherited, named, || variables(&inherited, is_secret));
        }
        draft.own.folder = folder.map(|folder| folder.to_string_lossy().into_owned());
        for (variable, _) in secrets.variables() {
            if !draft.own.secrets.iter().any(|known| known == variable) {
                draft.own.secrets.push(variable.to_owned());
            }
        }
    }

    /// The plugin has said this line on its control channel.
    pub fn heard(&self, line: &[u8]) {
        let mut draft = lock(&self.0);
        if draft.own.control.len() >= MOST_LINES || draft.control + line.len() > MOST_CONTROL {
            draft.left_out[0] += 1;
            return;
        }
        draft.control += line.len();
        let (ms, line) = (draft.ms(), String::from_utf8_lossy(line).into_owned());
        draft.own.control.push(ControlLine { ms, line });
    }

    /// The plugin has written so many bytes.
    pub fn wrote(&self, stream: StreamName, offset: u64, length: usize) {
        let mut draft = lock(&self.0);
        if draft.own.output.len() >= MOST_PIECES {
            draft.left_out[1] += 1;
            return;
        }
        let (ms, stream, length) = (draft.ms(), stream.as_str().to_owned(), length as u64);
        draft.own.output.push(OutputPiece { ms, stream, offset, length });
    }

    /// What was recorded. What others have, too, is only named. `None`: no plugin was given anything.
    pub async fn finish(&self, (queue, parts): (&Queue, &[Part]), ledger: &Ledger) -> Option<Recorded> {
        let (files, commons) = {
            let mut draft = lock(&self.0);
            (draft.files.take()?, draft.commons.clone())
        };
        let files = match files {
            Files::Known(files) => Some(files),
            // The next attempt will find the sums, which go on being made.
            Files::Awaited(files) => timeout(SUMS_TAKE, files).await.ok().and_then(Result::ok),
        };
        let (mut own, environment, keep) = lock(&self.0).take();
        if files.is_none() {
            own.cut.push("the files of the plugin: to read them took too long".to_owned());
        }
        let keep_ms = millis(keep);
        let common = Common::new(queue, parts, files.unwrap_or_default(), environment);
        let now = SystemClock.now();
        let mut part = commons.part(&common, now, keep_ms);
        if part.is_none() {
            let recording = common.recording();
            let text = bounded(recording.clone());
            let new = CommonPart::new(&text, now, keep_ms);
            if ledger.keep_common(&new, &text).await {
                commons.remember(common, new.clone());
                part = Some(new);
            } else {
                own = own.with(recording);
            }
        }
        Some(Recorded { text: bounded(own), keep_ms, common: part })
    }
}

impl Draft {
    /// What is the attempt's own, with what was left out of it; the variables that are not; and for how long it is kept.
    fn take(&mut self) -> (Recording, Arc<[Variable]>, Duration) {
        let mut own = mem::take(&mut self.own);
        for (count, what) in self.left_out.into_iter().zip(["control lines", "times of output"]) {
            if count > 0 {
                own.cut.push(format!("{count} {what}"));
            }
        }
        (own, mem::take(&mut self.environment), self.sample.keep)
    }

    fn ms(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// The variables as they are recorded, in the order of their names. Of several with one name the last counts.
fn variables(
    environment: &[&(OsString, OsString)],
    is_secret: impl Fn(&str, &OsStr) -> bool,
) -> Vec<Variable> {
    let of_names: BTreeMap<_, _> = environment.iter().map(|(name, value)| (name, value)).collect();
    let variable = |(name, value): (&OsString, &OsString)| {
        let name = name.to_string_lossy().into_owned();
        let secret = is_secret(&name, value);
        let shown = value.to_str().filter(|value| !secret && value.len() <= LONGEST_VALUE);
        Variable { value: shown.map(str::to_owned), name, secret }
    };
    of_names.into_iter().map(variable).collect()
}

/// Whether a variable that nobody has called secret may be: by its name, or as an address with a password.
fn is_suspect(name: &str, value: &[u8]) -> bool {
    let name = name.to_ascii_uppercase();
    let has = |part: &[u8]| value.windows(part.len()).any(|window| window == part);
    SUSPECT.iter().any(|part| name.contains(part)) || (value.contains(&b'@') && has(b"://"))
}

/// The recording as JSON. What makes it too large is left out, what can be had elsewhere first, and it says so.
fn bounded(mut recording: Recording) -> String {
    type Cut = (&'static str, fn(&mut Recording));
    const CUTS: [Cut; 6] = [
        ("standard input, which is the task", |recording| recording.input = String::new()),
        ("the times of output", |recording| recording.output = Vec::new()),
        ("the control lines", |recording| recording.control = Vec::new()),
        ("the manifest", |recording| plugins(recording).for_each(|plugin| plugin.manifest = Value::Null)),
        ("the files of the plugin", |recording| {
            plugins(recording).for_each(|plugin| plugin.files = Vec::new())
        }),
        ("the environment", |recording| recording.environment = Vec::new()),
    ];
    let long = |variable: &&Variable| variable.value.is_none() && !variable.secret;
    let names: Vec<String> =
        recording.environment.iter().filter(long).map(|variable| variable.name.clone()).collect();
    recording.cut.extend(names.into_iter().map(|name| format!("the value of {name}")));
    let mut cuts = CUTS.into_iter();
    loop {
        let text = serde_json::to_string(&recording).unwrap_or_default();
        if text.len() <= LARGEST {
            return text;
        }
        // A queue alone that is so large is a document of nobody's making.
        let Some((what, cut)) = cuts.next() else { return String::new() };
        cut(&mut recording);
        recording.cut.push(what.to_owned());
    }
}

/// The plugin of the task and those of its steps.
fn plugins(recording: &mut Recording) -> impl Iterator<Item = &mut RecordedPlugin> {
    let of_steps = recording.steps.iter_mut().map(|step| &mut step.plugin);
    iter::once(&mut recording.plugin).chain(of_steps)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_be_secret_is_taken_for_secret() {
        for name in ["AWS_SECRET_ACCESS_KEY", "db_password", "GITHUB_TOKEN", "SSH_AUTH_SOCK"] {
            assert!(is_suspect(name, b"x"), "{name}");
        }
        assert!(is_suspect("DATABASE", b"mongodb://me:horse@host/db"));
        for name in ["PATH", "HOME", "DISBATCH_TASK_ID", "JOB_PARAMS", "LAST_SUCCESS_START"] {
            assert!(!is_suspect(name, b"/bin"), "{name}");
        }
    }

    #[test]
    fn what_makes_it_too_large_is_left_out_and_said() {
        let line = || ControlLine { ms: 1, line: "x".to_owned() };
        let variable = Variable { name: "JOB_PARAMS".to_owned(), value: None, secret: false };
        let small = Recording { control: vec![line()], environment: vec![variable], ..Recording::default() };
        let read = |text: String| serde_json::from_str::<Recording>(&text).unwrap();
        let same = read(bounded(small.clone()));
        assert_eq!(same, Recording { cut: vec!["the value of JOB_PARAMS".to_owned()], ..small.clone() });
        let large = Recording { input: "\u{1}".repeat(LARGEST / 4), ..small };
        let cut = read(bounded(large));
        assert_eq!((cut.input.as_str(), cut.control.len()), ("", 1));
        assert_eq!(cut.cut[1], "standard input, which is the task");
    }
}
