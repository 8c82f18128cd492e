//! What came out of two runs of the same, side by side: for replays of recorded runs, and for tasks of a queue and their shadows.

pub mod diff;
pub mod mask;
mod speed;

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

pub use mask::{MaskError, Masks};
pub use speed::{Speed, Thresholds};

/// What of `exit` is to be the same. All else is measured.
const OF_EXIT: [&str; 5] = ["code", "signal", "reason", "limit", "oom"];

const STREAMS: [&str; 2] = ["stdout", "stderr"];

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Both<T> {
    pub was: T,
    pub is: T,
    pub same: bool,
}

impl<T: PartialEq> Both<T> {
    pub fn new(was: T, is: T) -> Self {
        Self { same: was == is, was, is }
    }
}

/// A number of both runs, which is told and not compared; none where it was not measured.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    pub was: Option<f64>,
    pub is: Option<f64>,
}

/// A stream or a result, as text without what differs from run to run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Text {
    pub name: String,
    pub same: bool,
    /// The lengths before anything was masked, in bytes.
    pub was_bytes: u64,
    pub is_bytes: u64,
    /// A unified difference; empty if there is none that can be shown.
    pub difference: String,
    /// How much of the first is in the bundle, if that is not all: only that was compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compared: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct StepEnd {
    pub name: String,
    pub status: i64,
    /// How long it took; none if it was not begun.
    pub seconds: Option<f64>,
}

/// A file that was left.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LeftFile {
    pub path: String,
    pub size: u64,
    pub sha256: String,
}

/// A plugin that did not run in the same version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OtherVersion {
    pub plugin: String,
    pub was: String,
    /// None if it says none.
    pub is: Option<String>,
}

/// What came of one run.
#[derive(Debug, Clone, Default)]
pub struct AttemptOutcome<'a> {
    pub status: i64,
    pub exit: Option<&'a Value>,
    pub result: Option<&'a Value>,
    pub output: [&'a [u8]; 2],
    /// The lengths of the streams of which only a part is there.
    pub whole: [Option<u64>; 2],
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    pub status: Both<i64>,
    pub exit: Both<Value>,
    pub texts: Vec<Text>,
    /// The steps in their order, if it has some: only how they ended is compared.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub steps: Option<Both<Vec<StepEnd>>>,
    /// The files that it has left, if it was to leave some.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub files: Option<Both<Vec<LeftFile>>>,
    /// In seconds.
    pub duration: Measured,
    /// The most that the plugin had at once, in bytes.
    pub memory: Measured,
    /// Plugins of which another version ran than the first time, if that is known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub other_versions: Vec<OtherVersion>,
    /// Names of files of the plugin that are not what they were. None: that is not known.
    pub changed_files: Option<Vec<String>>,
    /// Why it ended so, where that is not the plugin's doing.
    pub note: Option<String>,
}

impl Comparison {
    /// Of what both have: steps, files, and what else is known of the plugin is for whoever knows it. Each difference may take so long;
    /// `None`: none is told.
    pub fn between(
        was: &AttemptOutcome<'_>,
        is: &AttemptOutcome<'_>,
        masks: &Masks,
        takes: Option<Duration>,
    ) -> Self {
        let result = |value: Option<&Value>| {
            value.map_or_else(String::new, |value| format!("{:#}\n", sorted(value))).into_bytes()
        };
        let text = |name, both: (&[u8], &[u8]), whole| text(name, both, whole, (masks, takes));
        let mut texts = vec![text("result", (&result(was.result), &result(is.result)), None)];
        for (number, name) in STREAMS.into_iter().enumerate() {
            texts.push(text(name, (was.output[number], is.output[number]), was.whole[number]));
        }
        let measured = |name: &str| {
            let number = |exit: Option<&Value>| exit?.get(name)?.as_f64();
            Measured { was: number(was.exit), is: number(is.exit) }
        };
        Self {
            status: Both::new(was.status, is.status),
            exit: Both::new(facts(was.exit), facts(is.exit)),
            texts,
            steps: None,
            files: None,
            duration: measured("duration"),
            memory: measured("peak_memory"),
            other_versions: Vec::new(),
            changed_files: None,
            note: None,
        }
    }

    /// Names of what came out differently.
    pub fn different(&self) -> Vec<&str> {
        let facts = [("status", self.status.same), ("exit", self.exit.same)];
        let texts = self.texts.iter().map(|text| (text.name.as_str(), text.same));
        let is_same = [
            self.steps.as_ref().map(|steps| ("steps", steps.same)),
            self.files.as_ref().map(|files| ("files", files.same)),
        ];
        let all = facts.into_iter().chain(texts).chain(is_same.into_iter().flatten());
        all.filter(|(_, same)| !same).map(|(name, _)| name).collect()
    }

    pub fn is_same(&self) -> bool {
        self.different().is_empty()
    }

    pub fn json(&self) -> Value {
        let mut all = serde_json::to_value(self).unwrap_or_default();
        if let Some(all) = all.as_object_mut() {
            all.insert("same".to_owned(), self.is_same().into());
            all.insert("different".to_owned(), json!(self.different()));
        }
        all
    }
}

fn facts(exit: Option<&Value>) -> Value {
    let has = |name: &str| Some((name.to_owned(), exit?.get(name)?.clone()));
    Value::Object(OF_EXIT.into_iter().filter_map(has).collect())
}

/// The order of fields means nothing.
fn sorted(value: &Value) -> Value {
    match value {
        Value::Object(object) => {
            let mut fields: Vec<_> =
                object.iter().map(|(name, value)| (name.clone(), sorted(value))).collect();
            fields.sort_by(|(one, _), (other, _)| one.cmp(other));
            Value::Object(Map::from_iter(fields))
        }
        Value::Array(items) => Value::Array(items.iter().map(sorted).collect()),
        other => other.clone(),
    }
}

/// `whole`: the length of the first, if only a part of it is there.
fn text(
    name: &str,
    (was, is): (&[u8], &[u8]),
    whole: Option<u64>,
    (masks, takes): (&Masks, Option<Duration>),
) -> Text {
    let compared = whole.map(|_| was.len() as u64);
    let part = if whole.is_some() { &is[..is.len().min(was.len())] } else { is };
    let [masked_was, masked_is] = [was, part].map(|bytes| masks.apply(bytes));
    let same = was == part || masked_was == masked_is;
    let difference = takes.filter(|_| !same).map(|takes| diff::unified(&masked_was, &masked_is, takes));
    let difference = difference.unwrap_or_default();
    Text {
        name: name.to_owned(),
        same,
        was_bytes: whole.unwrap_or(was.len() as u64),
        is_bytes: is.len() as u64,
        difference,
        compared,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TAKES: Option<Duration> = Some(Duration::from_secs(5));

    #[test]
    fn what_is_measured_and_times_are_no_difference() {
        let masks = Masks::new(&[], "disbatch-5f").unwrap();
        let exit = json!({ "code": 0, "duration": 1.5, "peak_memory": 100, "cpu": 1 });
        let result = json!({ "b": 1, "a": [2] });
        let of = |status, exit, result, out| AttemptOutcome {
            status,
            exit,
            result,
            output: [out, b""],
            ..AttemptOutcome::default()
        };
        let was = of(1, Some(&exit), Some(&result), &b"at 10:00:00\n"[..]);
        let (shorter, other_order) =
            (json!({ "code": 0, "duration": 0.5, "peak_memory": 200 }), json!({ "a": [2], "b": 1 }));
        let same = of(1, Some(&shorter), Some(&other_order), &b"at 11:11:11\n"[..]);
        let compared = Comparison::between(&was, &same, &masks, TAKES);
        assert!(compared.is_same(), "{compared:?}");
        assert_eq!(compared.duration, Measured { was: Some(1.5), is: Some(0.5) });
        let failed = json!({ "code": 1 });
        let other = of(2, Some(&failed), None, &b"one\n2\n"[..]);
        let different = Comparison::between(
            &AttemptOutcome { output: [b"one\ntwo\n", b""], ..was },
            &other,
            &masks,
            TAKES,
        );
        assert_eq!(different.different(), ["status", "exit", "result", "stdout"]);
        assert!(different.texts[1].difference.contains("-two\n+2\n"), "{different:?}");
        let json = different.json();
        assert_eq!((&json["same"], &json["exit"]["was"]["code"]), (&json!(false), &json!(0)));
    }

    #[test]
    fn of_output_that_is_cut_what_is_there_is_compared() {
        let masks = Masks::new(&[], "disbatch-5f").unwrap();
        let cut = |is: &[u8]| text("stdout", (b"abc", is), Some(10), (&masks, TAKES));
        assert!(cut(b"abcdefghij").same && !cut(b"abX").same);
        assert_eq!((cut(b"abcd").was_bytes, cut(b"abcd").compared), (10, Some(3)));
    }
}
