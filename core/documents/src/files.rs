//! The file sets of a task: which files it gets before it begins, and which it leaves when it has succeeded.

use bson::{Bson, Document, doc};
use disbatch_values::files::{Patterns, SetName};

use super::document::put;
use super::{Queue, Task, whole_number};

/// The field of a task, or of a queue for all of its tasks, that has them.
pub const FILES: &str = "files";

/// In the field of a task: it has none of its own, and these are what its queue said when it ran.
const OF_QUEUE: &str = "of_queue";

/// As others have it around the same: the keys are in capitals then, too.
const WRAPPER: &str = "Fileset";

/// In the field of a queue, and alone there: its tasks have theirs in [`WRAPPER`] of their parameters, as jobs of etcdq do.
const FROM_PARAMS: &str = "from_params";

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskFiles {
    pub input: Option<FileInput>,
    pub output: Option<FileOutput>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileInput {
    pub name: SetName,
    /// Of which version. `None`: of the newest at the moment when an attempt begins.
    pub version: Option<i64>,
    /// Which of its files: those that match one of these. Empty: all.
    pub patterns: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileOutput {
    /// In a new version of which set.
    pub name: SetName,
    /// Which files: those that match one of these. Empty: all.
    pub patterns: Vec<String>,
}

impl TaskFiles {
    /// What somebody asks for: `{input: {name, version?, patterns?}, output: {name, patterns?}}`, or the same in `Fileset`
    /// and with capitals. `None`: nothing.
    pub fn parse(value: &Bson) -> Result<Option<Self>, String> {
        Self::read(value, Unknown::Refused)
    }

    /// Those of a task: its own, or what its queue says.
    pub fn of(task: &Task, queue: Option<&Queue>) -> Result<Option<Self>, String> {
        let of_queue = queue.and_then(|queue| queue.rest.get(FILES));
        match own(task.rest.get(FILES)).or(of_queue) {
            None => Ok(None),
            Some(files) if Self::are_from_params(files) => {
                let params = task.params().as_document();
                let given = params.and_then(|params| params.get(WRAPPER));
                let given = given.map_or(Ok(None), |files| Self::read(files, Unknown::Refused));
                given.map_err(|why| format!("params.{WRAPPER}: {why}"))
            }
            Some(files) => Self::read(files, Unknown::Ignored),
        }
    }

    /// Whether a queue that has `files` leaves it to the parameters of its tasks: `{from_params: true}`.
    pub fn are_from_params(files: &Bson) -> bool {
        files.as_document() == Some(&doc! { FROM_PARAMS: true })
    }

    /// The same of the field that has them.
    pub fn of_field(field: Option<&Bson>) -> Result<Option<Self>, String> {
        field.map_or(Ok(None), |files| Self::read(files, Unknown::Ignored))
    }

    /// The same of a task alone: without what its queue said when it ran.
    pub fn own_of_field(field: Option<&Bson>) -> Result<Option<Self>, String> {
        Self::of_field(own(field))
    }

    pub fn document(&self) -> Document {
        let mut document = Document::new();
        let input = |input: &FileInput| part(&input.name, &input.patterns, input.version);
        put(&mut document, "input", self.input.as_ref().map(input));
        let output = |output: &FileOutput| part(&output.name, &output.patterns, None);
        put(&mut document, "output", self.output.as_ref().map(output));
        document
    }

    /// As a task has it while it runs: with the version that it has `taken`, and the one that it has `made`. `task` is as it
    /// was before.
    pub fn document_of_run(&self, task: &Task, taken: Option<i64>, made: Option<i64>) -> Document {
        let mut document = self.document();
        if own(task.rest.get(FILES)).is_none() {
            document.insert(OF_QUEUE, true);
        }
        for (key, field, value) in [("input", "taken", taken), ("output", "version", made)] {
            if let (Ok(part), Some(value)) = (document.get_document_mut(key), value) {
                part.insert(field, value);
            }
        }
        document
    }

    fn read(value: &Bson, unknown: Unknown) -> Result<Option<Self>, String> {
        let object = match value {
            Bson::Null => return Ok(None),
            Bson::Document(object) => object,
            _ => return Err("expected an object with input and output".to_owned()),
        };
        if let (Some(inner), 1) = (object.get(WRAPPER), object.len()) {
            return Self::read(inner, unknown);
        }
        let mut files = Self::default();
        for (key, value) in object.iter().filter(|(_, value)| **value != Bson::Null) {
            let read = || FileInput::read(value, unknown).map_err(|why| format!("{key}{why}"));
            match key.as_str() {
                "input" | "Input" => files.input = Some(read()?),
                "output" | "Output" => {
                    let part = read()?;
                    if part.version.is_some() && unknown == Unknown::Refused {
                        return Err(format!("{key}.version: a new version gets its number by itself"));
                    }
                    files.output = Some(FileOutput { name: part.name, patterns: part.patterns });
                }
                other if unknown == Unknown::Refused => {
                    return Err(format!("{other} is unknown: expected input and output"));
                }
                _ => {}
            }
        }
        Ok((files != Self::default()).then_some(files))
    }
}

/// What is done about keys that nobody knows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unknown {
    Refused,
    Ignored,
}

impl FileInput {
    /// What is said of files that are taken, or that are left. What is wrong begins with the key below this one.
    fn read(value: &Bson, unknown: Unknown) -> Result<Self, String> {
        let Bson::Document(object) = value else { return Err(": expected an object".to_owned()) };
        let (mut name, mut version, mut patterns) = (None, None, Vec::new());
        for (key, value) in object.iter().filter(|(_, value)| **value != Bson::Null) {
            match key.as_str() {
                "name" | "Name" => {
                    let text = value.as_str().ok_or_else(|| format!(".{key}: expected text"))?;
                    name = Some(text.parse::<SetName>().map_err(|error| format!(".{key}: {error}"))?);
                }
                "version" | "Version" => {
                    let number = whole_number(value).filter(|number| *number >= 1);
                    version = Some(number.ok_or_else(|| format!(".{key}: expected an integer from 1 on"))?);
                }
                "patterns" | "Patterns" => {
                    patterns = read_patterns(value).map_err(|why| format!(".{key}: {why}"))?
                }
                other if unknown == Unknown::Refused => {
                    return Err(format!(".{other} is unknown: expected name, version and patterns"));
                }
                _ => {}
            }
        }
        let name = name.ok_or_else(|| ".name is missing".to_owned())?;
        Ok(Self { name, version, patterns })
    }
}

fn read_patterns(value: &Bson) -> Result<Vec<String>, String> {
    let texts = value.as_array().map(|all| all.iter().map(|text| text.as_str().map(str::to_owned)));
    let patterns: Option<Vec<String>> = texts.and_then(Iterator::collect);
    let patterns = patterns.ok_or_else(|| "expected an array of texts".to_owned())?;
    Patterns::new(patterns.iter().map(String::as_str)).map_err(|error| error.to_string())?;
    Ok(patterns)
}

fn part(name: &SetName, patterns: &[String], version: Option<i64>) -> Document {
    let mut part = doc! { "name": name.as_str() };
    put(&mut part, "patterns", (!patterns.is_empty()).then_some(patterns));
    put(&mut part, "version", version);
    part
}

fn own(field: Option<&Bson>) -> Option<&Bson> {
    let is_of_queue = |files: &Bson| files.as_document().is_some_and(|files| files.contains_key(OF_QUEUE));
    field.filter(|files| **files != Bson::Null && !is_of_queue(files))
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

    use super::*;

    fn parse(value: impl Into<Bson>) -> Result<Option<TaskFiles>, String> {
        TaskFiles::parse(&value.into())
    }

    fn task(fields: Document) -> Task {
        let mut task = doc! { "_id": ObjectId::new(), "queue": ObjectId::new(), "status": 0 };
        task.extend(fields);
        bson::deserialize_from_document(task).unwrap()
    }

    fn queue(fields: Document) -> Queue {
        let mut queue = doc! { "_id": ObjectId::new() };
        queue.extend(fields);
        bson::deserialize_from_document(queue).unwrap()
    }

    #[test]
    fn both_ways_to_write_them_mean_the_same() {
        let stored = doc! {
            "input": { "name": "foo", "patterns": ["*.py", "bin/*"] },
            "output": { "name": "foo_result", "patterns": ["**/*.dat"] },
        };
        let files = parse(stored.clone()).unwrap().unwrap();
        assert_eq!(files.document(), stored);
        let theirs = doc! { "Fileset": {
            "Input": { "Name": "foo", "Patterns": ["*.py", "bin/*"] },
            "Output": { "Name": "foo_result", "Patterns": ["**/*.dat"] },
        } };
        assert_eq!(parse(theirs), Ok(Some(files)));
        let one =
            parse(doc! { "input": { "name": "foo", "version": 3 }, "output": Bson::Null }).unwrap().unwrap();
        assert_eq!(one.document(), doc! { "input": { "name": "foo", "version": 3_i64 } });
        for nothing in [Bson::Null, doc! {}.into(), doc! { "input": Bson::Null }.into()] {
            assert_eq!(parse(nothing), Ok(None));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (value, error) in [
            (Bson::from("x"), "expected an object with input and output"),
            (doc! { "inputs": {} }.into(), "inputs is unknown: expected input and output"),
            (doc! { "input": 1 }.into(), "input: expected an object"),
            (doc! { "input": {} }.into(), "input.name is missing"),
            (doc! { "Input": { "Name": 5 } }.into(), "Input.Name: expected text"),
            (
                doc! { "input": { "name": "a", "version": 0 } }.into(),
                "input.version: expected an integer from 1 on",
            ),
            (
                doc! { "input": { "name": "a", "patterns": "*" } }.into(),
                "input.patterns: expected an array of texts",
            ),
            (
                doc! { "output": { "name": "a", "pattern": [] } }.into(),
                "output.pattern is unknown: expected name, version and patterns",
            ),
            (
                doc! { "output": { "name": "a", "version": 2 } }.into(),
                "output.version: a new version gets its number by itself",
            ),
        ] {
            assert_eq!(parse(value), Err(error.to_owned()));
        }
        let error = parse(doc! { "input": { "name": "../x" } }).unwrap_err();
        assert!(error.starts_with("input.name: '../x' is no name of a file set"), "{error}");
        let error = parse(doc! { "output": { "name": "x", "patterns": ["["] } }).unwrap_err();
        assert!(error.starts_with("output.patterns: the pattern '[' cannot be understood"), "{error}");
    }

    #[test]
    fn a_task_has_its_own_or_those_of_its_queue() {
        let of_queue = queue(doc! { "files": { "output": { "name": "logs" } } });
        let own = task(doc! { "files": { "input": { "name": "data", "taken": 4_i64 } } });
        let files = TaskFiles::of(&own, Some(&of_queue)).unwrap().unwrap();
        assert_eq!((files.input.is_some(), files.output.is_some()), (true, false));
        let expected = doc! { "input": { "name": "data", "taken": 7_i64 } };
        assert_eq!(files.document_of_run(&own, Some(7), Some(2)), expected);
        let plain = task(doc! {});
        let files = TaskFiles::of(&plain, Some(&of_queue)).unwrap().unwrap();
        let recorded = files.document_of_run(&plain, None, Some(2));
        assert_eq!(recorded, doc! { "output": { "name": "logs", "version": 2_i64 }, "of_queue": true });
        assert_eq!(TaskFiles::own_of_field(Some(&recorded.clone().into())), Ok(None));
        // The next attempt asks the queue again.
        let again = task(doc! { "files": recorded });
        let other = queue(doc! { "files": { "output": { "name": "other" } } });
        let files = TaskFiles::of(&again, Some(&other)).unwrap().unwrap();
        assert_eq!(files.output.map(|output| output.name.to_string()).as_deref(), Some("other"));
        assert_eq!(TaskFiles::of(&again, Some(&queue(doc! {}))), Ok(None));
        assert_eq!(TaskFiles::of(&plain, None), Ok(None));
    }

    #[test]
    fn a_queue_may_leave_it_to_parameters() {
        let of_queue = queue(doc! { "files": { "from_params": true } });
        let of = |params: Document| TaskFiles::of(&task(doc! { "params": params }), Some(&of_queue));
        let given = doc! { "Container": {}, "Fileset": { "Output": { "Name": "foo_result" } } };
        let files = of(given.clone()).unwrap().unwrap();
        assert_eq!(files.document(), doc! { "output": { "name": "foo_result" } });
        assert_eq!(of(doc! { "a": 1 }), Ok(None));
        assert_eq!(
            of(doc! { "Fileset": { "Input": 5 } }),
            Err("params.Fileset: Input: expected an object".into())
        );
        // Otherwise it is a parameter like others.
        let params = task(doc! { "params": given });
        assert_eq!(TaskFiles::of(&params, Some(&queue(doc! {}))), Ok(None));
        for (files, is_from_params) in [
            (doc! { "from_params": true }, true),
            (doc! { "output": { "name": "a" } }, false),
            (doc! { "from_params": false }, false),
            (doc! { "from_params": true, "output": { "name": "a" } }, false),
        ] {
            assert_eq!(TaskFiles::are_from_params(&files.clone().into()), is_from_params, "{files}");
        }
    }
}
