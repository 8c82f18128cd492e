//! What the adapters share: programs that run plugins by the means of another system.
//!
//! A runner starts an adapter as it starts any plugin: the task is one line of JSON on standard input, SIGTERM means that it is to
//! end, and JSON lines on a descriptor are for the runner. The line has one key more, `worker`, which is for the adapter alone
//! ([`Line`]).

pub mod hosts;

use std::collections::BTreeMap;
use std::error::Error;
use std::fmt::Display;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use tokio::io::AsyncWriteExt;
use tokio::signal::unix::{Signal, SignalKind, signal};
use zeroize::Zeroizing;

pub use disbatch_values::sections;

/// The exit code where no container has run, as Docker's own client has it.
pub const CANNOT_RUN: u8 = 125;

/// The exit code when the task was to end before there was a container: that of a process that SIGTERM ends.
pub const TOLD_TO_END: u8 = 128 + 15;

/// How long a write that nobody reads may hold up the end.
const LAST_MOMENT: Duration = Duration::from_secs(1);

/// Does `work`, which returns the exit code of this process.
pub fn block_on(work: impl Future<Output = u8>) -> ExitCode {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(error) => {
            note(&format_args!("cannot begin: {error}"));
            return ExitCode::from(CANNOT_RUN);
        }
    };
    let code = runtime.block_on(work);
    runtime.shutdown_timeout(LAST_MOMENT);
    ExitCode::from(code)
}

/// Does `work` with the task of which the runner tells, and returns the exit code of its container.
pub async fn with_task(work: impl AsyncFnOnce(&[u8]) -> Result<u8, String>) -> u8 {
    let mut line = Zeroizing::new(Vec::new());
    let read = io::stdin().read_to_end(&mut line);
    let ran = match read {
        Ok(_) => Box::pin(work(line.as_slice())).await,
        Err(error) => Err(format!("cannot read the task: {error}")),
    };
    ran.unwrap_or_else(|why| {
        note(&why);
        CANNOT_RUN
    })
}

/// Hears of SIGTERM, and of SIGINT for who tries it on a terminal.
#[derive(Debug)]
pub struct Stop {
    terminate: Signal,
    interrupt: Signal,
}

impl Stop {
    /// From now on these signals end nothing by themselves.
    pub fn listen() -> io::Result<Self> {
        Ok(Self { terminate: signal(SignalKind::terminate())?, interrupt: signal(SignalKind::interrupt())? })
    }

    pub async fn wanted(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

/// Says something on standard error, as a line that is not of what the plugin runs.
pub fn note(what: &dyn Display) {
    // Nobody is left to tell when standard error is closed.
    let _nobody_reads = writeln!(io::stderr(), "disbatch: {what}");
}

/// A stream of this process, as one of what an adapter runs: without the buffer that the standard library has for it: who looks on sees what is there at once. Where nobody reads it any
/// more, what is written is lost: what the adapter runs goes on, as it may do more than to write.
#[derive(Debug)]
pub struct Output(Option<tokio::fs::File>);

impl Output {
    pub fn to(stream: impl AsFd) -> io::Result<Self> {
        let file = tokio::fs::File::from_std(stream.as_fd().try_clone_to_owned()?.into());
        Ok(Self(Some(file)))
    }

    pub async fn write(&mut self, bytes: &[u8]) {
        if let Some(file) = &mut self.0
            && file.write_all(bytes).await.is_err()
        {
            self.0 = None;
        }
    }

    pub async fn flush(&mut self) {
        if let Some(file) = &mut self.0 {
            let _nobody_reads = file.flush().await;
        }
    }
}

pub fn with_causes(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let next = error.to_string();
        // Some errors say what their cause says.
        if !text.contains(&next) {
            text = format!("{text}: {next}");
        }
        cause = error.source();
    }
    text
}

/// The keys that are the adapter's. With the second, the task could be ended from anywhere.
const WORKER: &str = "worker";
const CALLBACK: &str = "callback";

/// The usual time between SIGTERM and SIGKILL.
const USUAL_GRACE: Duration = Duration::from_secs(10);

/// So much of that is left for what an adapter has to do afterwards.
const OWN_GRACE: Duration = Duration::from_secs(3);

/// Longer times are cut, in seconds: a year.
const LONGEST: f64 = 365.0 * 24.0 * 60.0 * 60.0;

/// A task, with what its adapter is told. `S` is what a manifest says, `C` what a node says of the engine.
pub struct Line<'a, S, C> {
    pub worker: Worker<S, C>,
    /// As they are: a number that was read and written again may be another one.
    fields: BTreeMap<String, &'a str>,
}

#[derive(Default, Deserialize)]
#[serde(default, bound(deserialize = "S: Default + Deserialize<'de>, C: Default + Deserialize<'de>"))]
pub struct Worker<S, C> {
    pub name: String,
    pub settings: S,
    pub engine_config: Option<C>,
    pub secrets: BTreeMap<String, String>,
    /// The variables that a program would find.
    pub variables: BTreeMap<String, String>,
    pub work_dir: PathBuf,
    pub database: Option<String>,
    /// What the node says of secure parameters in variables, if it says anything.
    pub secure_params_in_environment: Option<bool>,
    /// The seconds between SIGTERM and SIGKILL, by the task or its queue.
    pub grace: Option<f64>,
    /// How many seconds the task may take, by the same.
    pub timeout: Option<f64>,
    pub callback: Option<Callback>,
}

/// How a web service says what becomes of its task.
#[derive(Clone, Deserialize)]
pub struct Callback {
    /// What it shows; null if its addresses say enough.
    pub token: Option<String>,
    pub url: String,
}

impl<S, C> Worker<S, C> {
    /// One of the variables that tell about the task. `None`: it is not there, or empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The task's id: letters and digits.
    pub fn task_id(&self) -> &str {
        self.variable("DISBATCH_TASK_ID").unwrap_or_default()
    }

    pub fn attempt(&self) -> u64 {
        self.variable("DISBATCH_ATTEMPT").and_then(|number| number.parse().ok()).unwrap_or_default()
    }

    /// How long what the adapter runs has to end.
    pub fn grace(&self) -> Duration {
        grace(self.grace)
    }
}

impl<'a, S: Default + DeserializeOwned, C: Default + DeserializeOwned> Line<'a, S, C> {
    /// Reads it. An error shows nothing of what is in it.
    pub fn parse(line: &'a [u8]) -> Result<Self, String> {
        let fields = std::str::from_utf8(line).ok().and_then(|line| disbatch_values::json::fields(line).ok());
        let mut fields: BTreeMap<String, &'a str> =
            fields.ok_or("no JSON object is on standard input")?.into_iter().collect();
        let worker = fields.remove(WORKER).ok_or("only runners start this program")?;
        let worker: Worker<S, C> = serde_json::from_str(worker).map_err(|error| {
            format!("{WORKER} is wrong at column {} ({:?})", error.column(), error.classify())
        })?;
        fields.remove(CALLBACK);
        let id = worker.task_id();
        if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
            return Err("it has no id".to_owned());
        }
        Ok(Self { worker, fields })
    }

    /// A field of the task. What is not there, or is another kind of value, has its default.
    pub fn field<T: Default + DeserializeOwned>(&self, name: &str) -> T {
        self.raw(name).and_then(|raw| serde_json::from_str(raw).ok()).unwrap_or_default()
    }

    /// The JSON of a field of the task, as it came.
    pub fn raw(&self, name: &str) -> Option<&'a str> {
        self.fields.get(name).copied()
    }

    /// The task as every plugin gets it, with its end of line. Secure parameters are in it.
    pub fn task(&self) -> Result<Zeroizing<String>, String> {
        // Written with room for all of it: what grows leaves copies behind.
        let length = self.fields.iter().map(|(name, raw)| 6 * name.len() + raw.len() + 4).sum::<usize>() + 3;
        let mut task = Zeroizing::new(String::with_capacity(length));
        for (number, (name, raw)) in self.fields.iter().enumerate() {
            task.push(if number == 0 { '{' } else { ',' });
            task.push_str(&serde_json::to_string(name).map_err(|error| error.to_string())?);
            task.push(':');
            task.push_str(raw);
        }
        task.push_str(if self.fields.is_empty() { "{}\n" } else { "}\n" });
        Ok(task)
    }
}

pub fn without_nulls(object: Value) -> Map<String, Value> {
    let Value::Object(mut fields) = object else { return Map::new() };
    fields.retain(|_, value| !value.is_null());
    fields
}

/// A time that is told in seconds. `None`: it is none.
pub fn seconds(told: Option<f64>) -> Option<Duration> {
    told.filter(|seconds| *seconds >= 0.0).map(|seconds| Duration::from_secs_f64(seconds.min(LONGEST)))
}

/// How long what an adapter runs has to end, if the adapter has so many seconds itself.
fn grace(told: Option<f64>) -> Duration {
    let whole = seconds(told).unwrap_or(USUAL_GRACE);
    whole.saturating_sub(OWN_GRACE).max(whole / 2)
}

const MARKS: (&str, &str) = ("{{secret:", "}}");

/// A value with the secrets that it names.
#[derive(Debug)]
pub struct Filled {
    pub text: Zeroizing<String>,
    pub is_secret: bool,
}

/// `value` with the plugin's secrets in the place of `{{secret:NAME}}`. `of` is its place in the manifest. An error shows no values.
pub fn fill(of: &str, value: &str, secrets: &BTreeMap<String, String>) -> Result<Filled, String> {
    let (begin, end) = MARKS;
    let mut text = Zeroizing::new(String::new());
    let mut rest = value;
    let mut is_secret = false;
    while let Some((before, after)) = rest.split_once(begin) {
        let (name, after) = after.split_once(end).ok_or_else(|| format!("{of}: {begin} without {end}"))?;
        let secret = secrets.get(name.trim());
        let secret =
            secret.ok_or_else(|| format!("{of}: the plugin has no secret '{}' here", name.trim()))?;
        text.push_str(before);
        text.push_str(secret);
        rest = after;
        is_secret = true;
    }
    text.push_str(rest);
    Ok(Filled { text, is_secret })
}

/// Names the control descriptor in the environment, to which JSON lines for the runner are written.
pub const CONTROL_VARIABLE: &str = "DISBATCH_CONTROL_FD";

/// So many characters of how a task gets on are shown.
const SHOWN: usize = 500;

/// The descriptor that the environment names. `None`: there is no runner.
pub fn runner() -> Option<File> {
    let number: u32 = std::env::var(CONTROL_VARIABLE).ok()?.parse().ok()?;
    // One that was inherited is opened by its number without unsafe code.
    OpenOptions::new().append(true).open(format!("/proc/self/fd/{number}")).ok()
}

#[derive(Debug, Default)]
pub struct Control {
    runner: Option<File>,
    message: String,
}

impl Control {
    pub fn from_environment() -> Self {
        Self { runner: runner(), message: String::new() }
    }

    /// Sends one line. Returns whether somebody may read it.
    pub fn send(&mut self, message: &Value) -> bool {
        let Some(runner) = &mut self.runner else { return false };
        let is_sent = runner.write_all(format!("{message}\n").as_bytes()).is_ok();
        if !is_sent {
            // The task goes on; only nobody hears of it.
            self.runner = None;
        }
        is_sent
    }

    /// Says how it gets on, if that is something else than what was said last.
    pub fn progress(&mut self, message: &str) {
        let message: String = message.chars().take(SHOWN).collect();
        if message != self.message {
            self.send(&json!({ "progress": { "message": message } }));
            self.message = message;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Seek};

    use super::*;

    #[test]
    fn causes_that_an_error_has_said_are_not_said_again() {
        let odd = io::Error::other("odd");
        let text = |error: io::Error| with_causes(&io::Error::other(error));
        assert_eq!(text(odd), "odd");
        let number = "x".parse::<u8>().unwrap_err();
        assert_eq!(with_causes(&number), "invalid digit found in string");
    }

    type Any<'a> = Line<'a, Map<String, Value>, Value>;

    #[test]
    fn the_task_is_as_it_came_and_has_nothing_of_the_adapter() {
        let line = r#"{"worker":{"settings":{"image":"i"},"variables":{"DISBATCH_TASK_ID":"0a"}},
            "callback":{"token":"t"},"params":{"a":0.30000000000000004,"b":12345678901234567890123,"c":"\u00e9"},"secure_params":{"p": "x"}}"#;
        let told = Any::parse(line.as_bytes()).unwrap();
        let params = r#"{"a":0.30000000000000004,"b":12345678901234567890123,"c":"\u00e9"}"#;
        let expected = format!("{{\"params\":{params},\"secure_params\":{{\"p\": \"x\"}}}}\n");
        assert_eq!(told.task().unwrap().as_str(), expected);
        assert_eq!((told.raw("params"), told.raw("worker")), (Some(params), None));
        assert_eq!(told.field::<Map<String, Value>>("secure_params")["p"], "x");
        assert_eq!(told.field::<String>("params"), "");
        assert_eq!((told.worker.task_id(), told.worker.attempt()), ("0a", 0));
        assert_eq!(told.worker.settings["image"], "i");
    }

    #[test]
    fn what_is_no_task_is_refused_and_not_shown() {
        for (line, expected) in [
            ("", "no JSON object"),
            ("[1]", "no JSON object"),
            (r#"{"params":"horse"}"#, "only runners"),
            (r#"{"worker":{"settings":{},"secrets":"horse"}}"#, "worker is wrong at column"),
            (r#"{"worker":{"settings":{},"secrets":{"A":5,"B":"horse"}}}"#, "worker is wrong at column"),
            (r#"{"worker":{"settings":{},"variables":{"horse":"x"}}}"#, "it has no id"),
            (r#"{"worker":{"settings":{},"variables":{"DISBATCH_TASK_ID":"../horse"}}}"#, "it has no id"),
        ] {
            let why = Any::parse(line.as_bytes()).err().unwrap();
            assert!(why.contains(expected) && !why.contains("horse"), "{why}");
        }
    }

    #[test]
    fn what_is_run_has_less_time_to_end_than_its_adapter() {
        let of = |told: Option<f64>| grace(told).as_secs_f64();
        assert_eq!([of(None), of(Some(60.0)), of(Some(4.0)), of(Some(3.0))], [7.0, 57.0, 2.0, 1.5]);
        assert_eq!([of(Some(0.0)), of(Some(-1.0)), of(Some(f64::NAN))], [0.0, 7.0, 7.0]);
        assert_eq!(of(Some(f64::INFINITY)), LONGEST - 3.0);
    }

    fn of(value: &str) -> Result<(String, bool), String> {
        let secrets = BTreeMap::from([("token".to_owned(), "horse".to_owned())]);
        fill("http.url", value, &secrets).map(|filled| (filled.text.to_string(), filled.is_secret))
    }

    #[test]
    fn secrets_stand_where_they_are_named() {
        assert_eq!(of("x{{secret:token}}y{{secret: token }}"), Ok(("xhorseyhorse".to_owned(), true)));
        assert_eq!(of("{{ secret:token }} {{x}}"), Ok(("{{ secret:token }} {{x}}".to_owned(), false)));
        assert_eq!(of(""), Ok((String::new(), false)));
        assert_eq!(of("{{secret:other}}"), Err("http.url: the plugin has no secret 'other' here".to_owned()));
        assert_eq!(of("{{secret:x"), Err("http.url: {{secret: without }}".to_owned()));
    }

    #[test]
    fn each_progress_is_said_once_and_not_at_any_length() {
        let mut file = tempfile::tempfile().unwrap();
        let mut control = Control { runner: Some(file.try_clone().unwrap()), message: String::new() };
        for message in ["a", "a", "b"] {
            control.progress(message);
        }
        control.progress(&"\u{2603}".repeat(SHOWN + 1));
        assert!(control.send(&json!({ "facts": {} })));
        let mut said = String::new();
        file.rewind().unwrap();
        file.read_to_string(&mut said).unwrap();
        let lines: Vec<Value> = said.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 4, "{said}");
        assert_eq!(lines[1]["progress"]["message"], "b");
        assert_eq!(lines[2]["progress"]["message"].as_str().unwrap().chars().count(), SHOWN);
        assert!(!Control::default().send(&json!(1)), "nobody listens");
    }
}
