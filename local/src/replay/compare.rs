//! What came out of a run the first time, and the second.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::Path;
use std::time::Duration;

use bson::DateTime;
use disbatch_core::model::{STEPS, Step};
use disbatch_core::plugin::Plugin;
use disbatch_dtr::local::Rehearsed;
use disbatch_wire::bundles::RecordedPlugin;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use super::bundle::Run;
use super::diff;
use super::mask::Masks;

/// What of `exit` is to be the same. All else is measured.
const OF_EXIT: [&str; 5] = ["code", "signal", "reason", "limit", "oom"];

/// Both of something.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Both<T> {
    pub was: T,
    pub is: T,
    pub same: bool,
}

impl<T: PartialEq> Both<T> {
    fn new(was: T, is: T) -> Self {
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
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub compared: Option<u64>,
}

/// How a step ended.
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

/// All of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    pub status: Both<i64>,
    pub exit: Both<Value>,
    pub texts: Vec<Text>,
    /// The steps in their order, if it has some: only how they ended is compared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub steps: Option<Both<Vec<StepEnd>>>,
    /// The files that it has left, if it was to leave some.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub files: Option<Both<Vec<LeftFile>>>,
    /// In seconds.
    pub duration: Measured,
    /// The most that the plugin had at once, in bytes.
    pub memory: Measured,
    /// Names of files of the plugin that are not what they were. None: that is not known.
    pub changed_files: Option<Vec<String>>,
    /// Why it ended so, where that is not the plugin's doing.
    pub note: Option<String>,
}

impl Comparison {
    pub fn of(
        run: &Run,
        (ended, output): (&Rehearsed, &[Vec<u8>; 2]),
        masks: &Masks,
        changed_files: Option<Vec<String>>,
    ) -> Self {
        let outcome = &run.bundle.outcome;
        let result = |value: &Option<Value>| {
            value.as_ref().map_or_else(String::new, |value| format!("{:#}\n", sorted(value))).into_bytes()
        };
        let mut texts = vec![text("result", (&result(&outcome.result), &result(&ended.result)), None, masks)];
        for (number, name) in ["stdout", "stderr"].into_iter().enumerate() {
            let stream = run.bundle.streams.iter().find(|stream| stream.name == name);
            let cut = stream.filter(|stream| stream.included < stream.length);
            texts.push(text(
                name,
                (&run.output[number], &output[number]),
                cut.map(|stream| stream.length),
                masks,
            ));
        }
        let measured = |name: &str| {
            let number = |exit: &Option<Value>| exit.as_ref()?.get(name)?.as_f64();
            Measured { was: number(&outcome.exit), is: number(&ended.exit) }
        };
        Self {
            status: Both::new(outcome.status, ended.status),
            exit: Both::new(facts(outcome.exit.as_ref()), facts(ended.exit.as_ref())),
            texts,
            steps: steps(run, ended),
            files: left(run, ended),
            duration: measured("duration"),
            memory: measured("peak_memory"),
            changed_files,
            note: ended.note.clone(),
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

    /// As programs read it.
    pub fn json(&self, folder: Option<&Path>) -> Value {
        let mut all = serde_json::to_value(self).unwrap_or_default();
        if let Some(all) = all.as_object_mut() {
            all.insert("same".to_owned(), self.is_same().into());
            all.insert("different".to_owned(), json!(self.different()));
            all.extend(folder.map(|folder| ("folder".to_owned(), json!(folder))));
        }
        all
    }
}

/// By name, order, and how they ended; none if a release has made the bundle that does not tell.
fn steps(run: &Run, ended: &Rehearsed) -> Option<Both<Vec<StepEnd>>> {
    let steps = &run.bundle.outcome.steps;
    if steps.is_empty() {
        return None;
    }
    let time =
        |text: &Option<String>| Some(DateTime::parse_rfc3339_str(text.as_ref()?).ok()?.timestamp_millis());
    let was: Vec<StepEnd> = steps
        .iter()
        .map(|step| {
            let took = time(&step.started).zip(time(&step.ended));
            let took = took.map(|(from, to)| Duration::from_millis(to.saturating_sub(from).unsigned_abs()));
            StepEnd {
                name: step.name.clone(),
                status: step.status,
                seconds: took.map(|took| took.as_secs_f64()),
            }
        })
        .collect();
    let asked = run.task.get(STEPS).and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let name = |index: usize| {
        let name =
            asked.get(index).and_then(|step| step.get("name")?.as_str()).filter(|name| !name.is_empty());
        name.map_or_else(|| Step::default_name(index), str::to_owned)
    };
    let is: Vec<StepEnd> = ended
        .steps
        .iter()
        .enumerate()
        .map(|(index, (status, seconds))| StepEnd { name: name(index), status: *status, seconds: *seconds })
        .collect();
    let ends =
        |steps: &[StepEnd]| steps.iter().map(|step| (step.name.clone(), step.status)).collect::<Vec<_>>();
    let same = ends(&was) == ends(&is);
    Some(Both { was, is, same })
}

/// None if it is not known what was left.
fn left(run: &Run, ended: &Rehearsed) -> Option<Both<Vec<LeftFile>>> {
    let was = run.bundle.files.as_ref()?.output.as_ref()?.files.as_ref()?;
    let was = was.iter().map(|file| LeftFile {
        path: file.path.clone(),
        size: file.size,
        sha256: file.sha256.clone(),
    });
    let is = ended.left.iter().flatten().map(|file| LeftFile {
        path: file.path.clone(),
        size: file.size,
        sha256: file.sha256.clone(),
    });
    let mut was: Vec<LeftFile> = was.collect();
    was.sort();
    Some(Both::new(was, is.collect()))
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
fn text(name: &str, (was, is): (&[u8], &[u8]), whole: Option<u64>, masks: &Masks) -> Text {
    let compared = whole.map(|_| was.len() as u64);
    let part = if whole.is_some() { &is[..is.len().min(was.len())] } else { is };
    let [masked_was, masked_is] = [was, part].map(|bytes| masks.apply(bytes));
    let same = was == part || masked_was == masked_is;
    let difference = if same { String::new() } else { diff::unified(&masked_was, &masked_is) };
    Text {
        name: name.to_owned(),
        same,
        was_bytes: whole.unwrap_or(was.len() as u64),
        is_bytes: is.len() as u64,
        difference,
        compared,
    }
}

/// Which files of the plugin are not what was recorded, by their names. `only_program`: it has no others here.
pub fn files(recorded: &RecordedPlugin, plugin: &Plugin, only_program: bool) -> Vec<String> {
    let most = if only_program { 1 } else { usize::MAX };
    let recorded: Vec<_> = recorded.files.iter().take(most).collect();
    let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let was: BTreeSet<(String, String)> = recorded
        .iter()
        .filter_map(|file| Some((name(Path::new(&file.path)), file.sha256.clone()?)))
        .collect();
    let is: BTreeSet<(String, String)> =
        plugin.files().iter().take(most).filter_map(|path| Some((name(path), sum(path).ok()?))).collect();
    // A file that is read for its sum here may have been too large there.
    let unread: BTreeSet<String> = recorded
        .iter()
        .filter(|file| file.sha256.is_none())
        .map(|file| name(Path::new(&file.path)))
        .collect();
    let changed: BTreeSet<String> = was.symmetric_difference(&is).map(|(name, _)| name.clone()).collect();
    changed.difference(&unread).cloned().collect()
}

fn sum(path: &Path) -> io::Result<String> {
    let (mut file, mut digest) = (File::open(path)?, Sha256::new());
    let mut buffer = vec![0; 64 * 1024];
    loop {
        match io::Read::read(&mut file, &mut buffer)? {
            0 => return Ok(digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()),
            read => digest.update(&buffer[..read]),
        }
    }
}

#[cfg(test)]
mod tests {
    use disbatch_wire::bundles::{Bundle, Outcome, Stream};

    use super::*;

    fn compared(was: (Outcome, &str), is: (Rehearsed, &str)) -> Comparison {
        let bundle = Bundle { outcome: was.0, ..Bundle::default() };
        let run = Run { bundle, output: [was.1.into(), Vec::new()], ..Run::default() };
        Comparison::of(&run, (&is.0, &[is.1.into(), Vec::new()]), &Masks::new(&[], "5f").unwrap(), None)
    }

    fn ended(status: i64, exit: Value, result: Option<Value>) -> Rehearsed {
        Rehearsed { status, exit: Some(exit), result, note: None, steps: Vec::new(), left: None }
    }

    #[test]
    fn what_is_measured_and_times_are_no_difference() {
        let was = || Outcome {
            status: 1,
            exit: Some(json!({ "code": 0, "duration": 1.5, "peak_memory": 100, "cpu": 1 })),
            result: Some(json!({ "b": 1, "a": [2] })),
            note: None,
            steps: Vec::new(),
        };
        let exit = json!({ "code": 0, "duration": 0.5, "peak_memory": 200 });
        let same = ended(1, exit.clone(), Some(json!({ "a": [2], "b": 1 })));
        let compared_same = compared((was(), "at 10:00:00\n"), (same, "at 11:11:11\n"));
        assert!(compared_same.is_same(), "{compared_same:?}");
        assert_eq!(compared_same.duration, Measured { was: Some(1.5), is: Some(0.5) });
        let other = ended(2, json!({ "code": 1 }), None);
        let different = compared((was(), "one\ntwo\n"), (other, "one\n2\n"));
        assert_eq!(different.different(), ["status", "exit", "result", "stdout"]);
        assert!(different.texts[1].difference.contains("-two\n+2\n"), "{different:?}");
        let json = different.json(Some(Path::new("/x")));
        assert_eq!(
            (&json["same"], &json["folder"], &json["exit"]["was"]["code"]),
            (&json!(false), &json!("/x"), &json!(0))
        );
    }

    #[test]
    fn of_output_that_is_cut_what_is_there_is_compared() {
        let masks = Masks::new(&[], "5f").unwrap();
        let cut = |is: &[u8]| text("stdout", (b"abc", is), Some(10), &masks);
        assert!(cut(b"abcdefghij").same && !cut(b"abX").same);
        assert_eq!((cut(b"abcd").was_bytes, cut(b"abcd").compared), (10, Some(3)));
        let stream = Stream { name: "stdout".to_owned(), length: 10, included: 3 };
        assert!(stream.included < stream.length);
    }
}
