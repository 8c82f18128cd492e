//! The answer of a plugin whose result comes apart from what it prints: `{"status": .., "stdout": .., "stderr": ..}`, in a
//! file of its private folder, or in a document.
//!
//! Nothing limits the memory of a runner, and a list of small numbers takes many times its length there. So what is in the file
//! is looked through without a copy, and a value that is no text and longer than [`LARGEST_VALUE`] stays the text that it is.

use std::borrow::Cow;
use std::path::Path;

use bson::{Bson, Document};
use disbatch_core::identity::Identity;
use disbatch_core::json;
use disbatch_core::model::{Status, TaskId, extended, to_bson};
use serde_json::Value;

use crate::facts;
use crate::folder::read_file;

const LARGEST: u64 = 64 * 1024 * 1024;

/// A larger value that is no text is stored as text: in bytes of its JSON, and of BSON.
const LARGEST_VALUE: usize = 1024 * 1024;

/// What is longer is no status, in bytes.
const LONGEST_STATUS: usize = 1024;

#[derive(Debug, Clone, PartialEq)]
pub struct Answer {
    /// The status, whatever it is. Null: there is none.
    pub given_status: Value,
    /// Standard output: null, text, or any other value.
    pub stdout: Bson,
    pub stderr: Bson,
    whole: Whole,
}

#[derive(Debug, Clone, PartialEq)]
enum Whole {
    Json(String),
    Document(Document),
}

pub fn file_name(task: TaskId) -> String {
    format!("{task}-response.json")
}

/// Reads the file of an answer, which belongs to `user`, or to anybody if that is not given.
pub fn read(folder: &Path, task: TaskId, user: Option<&Identity>) -> Result<Answer, String> {
    let name = file_name(task);
    let bytes = read_file(folder, &name, LARGEST, user)
        .map_err(|error| format!("its answer {name} cannot be read: {error}"))?;
    let text = String::from_utf8(bytes).map_err(|error| format!("its answer is no JSON: {error}"))?;
    Answer::of_json(text)
}

impl Answer {
    pub fn of_json(text: String) -> Result<Self, String> {
        let wrong = |error: serde_json::Error| format!("its answer is no JSON: {error}");
        let fields = json::fields(&text).map_err(|error| match error.is_data() {
            true => "its answer is no object".to_owned(),
            false => wrong(error),
        })?;
        let field = |name: &str| fields.iter().rfind(|(known, _)| known == name).map(|(_, json)| *json);
        let status = field("status").filter(|status| status.len() <= LONGEST_STATUS);
        let given_status = status.map_or(Ok(Value::Null), serde_json::from_str).map_err(wrong)?;
        let (stdout, stderr) =
            (stream(field("stdout")).map_err(wrong)?, stream(field("stderr")).map_err(wrong)?);
        Ok(Self { given_status, stdout, stderr, whole: Whole::Json(text) })
    }

    pub fn of_document(mut document: Document) -> Self {
        let whole = Whole::Document(document.clone());
        let mut field = |name: &str| document.remove(name).unwrap_or(Bson::Null);
        let (stdout, stderr) = (field("stdout"), field("stderr"));
        Self { given_status: field("status").into_relaxed_extjson(), stdout, stderr, whole }
    }

    /// Its status by Disbatch's rule: what is no positive integer is a failure.
    pub fn status(&self) -> Status {
        facts::announced_status(&self.given_status)
    }

    /// The answer whose standard output is all of this one.
    pub fn into_output(self) -> Self {
        let text = match &self.whole {
            Whole::Json(text) => text.trim().to_owned(),
            Whole::Document(document) => extended(&Bson::Document(document.clone())),
        };
        Self { stdout: Bson::String(text), stderr: Bson::Null, ..self }
    }
}

/// A stream as it is given. What is too large for a value is text, as is what nobody can read as one.
fn stream(given: Option<&str>) -> Result<Bson, serde_json::Error> {
    let Some(json) = given else { return Ok(Bson::Null) };
    if json.starts_with('"') {
        return serde_json::from_str(json).map(Bson::String);
    }
    let value = (json.len() <= LARGEST_VALUE).then(|| serde_json::from_str::<Value>(json));
    Ok(match value {
        Some(Ok(value)) => to_bson(&value),
        Some(Err(_)) | None => Bson::String(json.to_owned()),
    })
}

pub fn text(value: &Bson) -> Cow<'_, str> {
    match value {
        Bson::Null => Cow::Borrowed(""),
        Bson::String(text) => Cow::Borrowed(text),
        other => Cow::Owned(extended(other)),
    }
}

/// What a task holds in place of that text, where it has a stream in its document: a value that is no text, or text
/// that is empty, while nothing at all is null.
pub fn in_place_of_text(value: &Bson) -> Option<Bson> {
    match value {
        Bson::Null => None,
        Bson::String(text) if !text.is_empty() => None,
        other => {
            let document = bson::doc! { "": other.clone() };
            let size = bson::serialize_to_vec(&document).map_or(usize::MAX, |bytes| bytes.len());
            (size <= LARGEST_VALUE).then(|| other.clone())
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use bson::doc;
    use bson::oid::ObjectId;
    use serde_json::json;

    use super::*;

    fn answer(value: Value) -> Answer {
        Answer::of_json(value.to_string()).unwrap()
    }

    #[test]
    fn streams_are_text_or_nothing_or_anything_else() {
        for (value, expected, as_text) in [
            (json!(null), None, ""),
            (json!("x"), None, "x"),
            (json!(""), Some(Bson::from("")), ""),
            (json!(12), Some(Bson::Int32(12)), "12"),
            (json!(1.5), Some(Bson::Double(1.5)), "1.5"),
            (json!({ "a": 1 }), Some(Bson::from(doc! { "a": 1 })), r#"{"a":1}"#),
            (json!([1]), Some(Bson::from(vec![1])), "[1]"),
        ] {
            let answer = answer(json!({ "status": 1, "stdout": value }));
            assert_eq!(in_place_of_text(&answer.stdout), expected, "{value}");
            assert_eq!(text(&answer.stdout), as_text);
            assert_eq!(answer.stderr, Bson::Null);
        }
        let long = answer(json!({ "stdout": vec![1; 200_000] }));
        assert_eq!(in_place_of_text(&long.stdout), None, "it is text then");
    }

    /// Read as values, these would take many times as much memory as they are long.
    #[test]
    fn what_is_too_large_for_a_value_is_the_text_that_was_given() {
        let list = format!("[{}1]", "1, ".repeat(400_000));
        let deep = format!("{}{}", "[".repeat(2_000), "]".repeat(2_000));
        let given =
            format!(r#" {{"status": {list}, "stdout": {list}, "stderr": {deep}, "further": {list}}} "#);
        let answer = Answer::of_json(given.clone()).unwrap();
        assert_eq!((answer.status().code(), &answer.given_status), (2, &Value::Null));
        assert_eq!((&answer.stdout, &answer.stderr), (&Bson::from(list), &Bson::from(deep)));
        assert_eq!((in_place_of_text(&answer.stdout), in_place_of_text(&answer.stderr)), (None, None));
        assert_eq!(text(&answer.into_output().stdout), given.trim());
    }

    #[test]
    fn the_status_follows_perls_rule() {
        for (value, status) in [
            (json!({}), 2),
            (json!({ "status": 0 }), 2),
            (json!({ "status": 1 }), 1),
            (json!({ "status": "1" }), 1),
            (json!({ "status": -3 }), 2),
            (json!({ "status": 1.5 }), 2),
            (json!({ "status": 7 }), 7),
        ] {
            assert_eq!(answer(value.clone()).status().code(), status, "{value}");
        }
        let of_document = Answer::of_document(doc! { "_id": 1, "status": 3_i64, "stdout": "x", "n": 5 });
        assert_eq!((of_document.status().code(), of_document.stdout), (3, Bson::from("x")));
    }

    #[test]
    fn all_of_an_answer_can_be_its_output() {
        let output = answer(json!({ "status": 1, "stdout": "x", "stderr": "y" })).into_output();
        let whole: Value = serde_json::from_str(&text(&output.stdout)).unwrap();
        assert_eq!(whole, json!({ "status": 1, "stdout": "x", "stderr": "y" }));
        assert_eq!(output.stderr, Bson::Null);
    }

    #[test]
    fn what_is_no_answer_is_said() {
        let folder = tempfile::tempdir().unwrap();
        let task = TaskId(ObjectId::new());
        let error = read(folder.path(), task, None).unwrap_err();
        assert!(error.contains("cannot be read: No such file"), "{error}");
        for (text, expected) in [
            (b"".as_slice(), "its answer is no JSON: EOF"),
            (b"{} {}".as_slice(), "its answer is no JSON: trailing characters"),
            (b"\xff".as_slice(), "its answer is no JSON: invalid utf-8"),
            (br#"{"stdout": "\ud800"}"#.as_slice(), "its answer is no JSON: "),
            (b"[1]".as_slice(), "its answer is no object"),
        ] {
            fs::write(folder.path().join(file_name(task)), text).unwrap();
            let error = read(folder.path(), task, None).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
        fs::write(folder.path().join(file_name(task)), r#"{"status":4}"#).unwrap();
        assert_eq!(read(folder.path(), task, None).unwrap().status().code(), 4);
    }
}
