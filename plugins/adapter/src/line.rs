//! What the runner tells: the task as every plugin gets it, with the key `worker`, which is for the adapter alone, and secrets in
//! what a manifest says.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use zeroize::Zeroizing;

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
    fields: BTreeMap<String, &'a RawValue>,
}

/// What an adapter is told.
#[derive(Deserialize)]
#[serde(bound(deserialize = "S: Default + Deserialize<'de>, C: Deserialize<'de>"))]
pub struct Worker<S, C> {
    /// The plugin.
    #[serde(default)]
    pub name: String,
    /// What the manifest says.
    #[serde(default)]
    pub settings: S,
    /// What the node says.
    #[serde(default)]
    pub engine_config: Option<C>,
    /// The named secrets of the plugin.
    #[serde(default)]
    pub secrets: BTreeMap<String, String>,
    /// The variables that a program would find.
    #[serde(default)]
    pub variables: BTreeMap<String, String>,
    /// The private folder of the task.
    #[serde(default)]
    pub work_dir: PathBuf,
    /// The database of the task.
    #[serde(default)]
    pub database: Option<String>,
    /// The seconds between SIGTERM and SIGKILL, by the task or its queue.
    #[serde(default)]
    pub grace: Option<f64>,
    /// How many seconds the task may take, by the same.
    #[serde(default)]
    pub timeout: Option<f64>,
}

impl<S, C> Worker<S, C> {
    /// One of the variables that tell about the task. `None`: it is not there, or empty.
    pub fn variable(&self, name: &str) -> Option<&str> {
        self.variables.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The task's id: letters and digits.
    pub fn task_id(&self) -> Option<&str> {
        let id = self.variable("DISBATCH_TASK_ID")?;
        id.bytes().all(|byte| byte.is_ascii_alphanumeric()).then_some(id)
    }

    pub fn attempt(&self) -> u64 {
        self.variable("DISBATCH_ATTEMPT").and_then(|number| number.parse().ok()).unwrap_or_default()
    }
}

impl<'a, S: Default + DeserializeOwned, C: DeserializeOwned> Line<'a, S, C> {
    /// Reads it. An error shows nothing of what is in it.
    pub fn parse(line: &'a [u8]) -> Result<Self, String> {
        let mut fields: BTreeMap<String, &'a RawValue> =
            serde_json::from_slice(line).map_err(|_| "no JSON object is on standard input".to_owned())?;
        let worker = fields.remove(WORKER).ok_or("only runners start this program")?;
        let worker: Worker<S, C> = serde_json::from_str(worker.get()).map_err(|error| {
            format!("{WORKER} is wrong at column {} ({:?})", error.column(), error.classify())
        })?;
        fields.remove(CALLBACK);
        if worker.task_id().is_none() {
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
        self.fields.get(name).map(|raw| raw.get())
    }

    /// The task as every plugin gets it, with its end of line. Secure parameters are in it.
    pub fn task(&self) -> Result<Zeroizing<String>, String> {
        // Written with room for all of it: what grows leaves copies behind.
        let length =
            self.fields.iter().map(|(name, raw)| 2 * name.len() + raw.get().len() + 8).sum::<usize>();
        let mut task = Zeroizing::new(Vec::with_capacity(length));
        serde_json::to_writer(&mut *task, &self.fields).map_err(|error| error.to_string())?;
        task.push(b'\n');
        String::from_utf8(std::mem::take(&mut *task)).map(Zeroizing::new).map_err(|error| error.to_string())
    }
}

/// A time that is told in seconds. `None`: it is none.
pub fn seconds(told: Option<f64>) -> Option<Duration> {
    told.filter(|seconds| *seconds >= 0.0).map(|seconds| Duration::from_secs_f64(seconds.min(LONGEST)))
}

/// How long what an adapter runs has to end, if the adapter has so many seconds itself.
pub fn grace(told: Option<f64>) -> Duration {
    let whole = seconds(told).unwrap_or(USUAL_GRACE);
    whole.saturating_sub(OWN_GRACE).max(whole / 2)
}

/// What begins the name of a secret in a value, and what ends it.
const MARKS: (&str, &str) = ("{{secret:", "}}");

/// A value with the secrets that it names.
#[derive(Debug)]
pub struct Filled {
    pub text: Zeroizing<String>,
    /// Whether there is a secret in it.
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

#[cfg(test)]
mod tests {
    use serde_json::{Map, Value};

    use super::*;

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
        assert_eq!((told.worker.task_id(), told.worker.attempt()), (Some("0a"), 0));
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
}
