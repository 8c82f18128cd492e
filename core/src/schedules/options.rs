//! What the tasks of a schedule have besides parameters: the options of a submission that make sense for tasks which
//! are made again and again.

use std::time::Duration;

use bson::{Bson, Document};

use super::spec::{SpecError, given, text};
use crate::gates::LockRequest;
use crate::model::{FILES, STEPS, Step, TaskFiles, number, whole_number};
use crate::secrets::{self, Sealed};
use crate::tags::{self, TAGS};
use crate::task::TaskOptions;

/// Their names, which are those of the fields of tasks.
pub const OPTIONS: [&str; 10] =
    ["timeout", "grace", "max_attempts", "backoff", "group", "priority", "locks", TAGS, STEPS, FILES];

/// `before`, with those of `fresh` that have these names in place of its own.
pub fn options_with(
    before: &TaskOptions,
    names: &[&str],
    fresh: &TaskOptions,
) -> Result<TaskOptions, SpecError> {
    let ((mut options, sealed), (mut fresh, _)) = (document(before), document(fresh));
    for name in names {
        options.remove(name);
        options.extend(fresh.remove(name).map(|value| ((*name).to_owned(), value)));
    }
    read(&options, sealed.as_ref())
}

/// Whether a schedule can have these.
pub(super) fn check(options: &TaskOptions) -> Result<(), SpecError> {
    let others = [
        ("a time to start at", options.start.is_some()),
        ("a deadline", options.deadline.is_some()),
        ("a unique key", options.unique.is_some()),
        ("tasks to come after", !options.after.is_empty() || options.chain),
    ];
    match others.into_iter().find(|(_, is_given)| *is_given) {
        Some((what, _)) => Err(SpecError::new("options", format!("a schedule cannot have {what}"))),
        None => Ok(()),
    }
}

/// As they are stored, and the secure parameters, which are stored beside them.
pub(super) fn document(options: &TaskOptions) -> (Document, Option<Bson>) {
    let mut fields = options.fields();
    let sealed = fields.remove(secrets::FIELD);
    let kept = fields.into_iter().filter(|(name, _)| OPTIONS.contains(&name.as_str()));
    (kept.collect(), sealed)
}

/// What is stored.
pub(super) fn read(options: &Document, sealed: Option<&Bson>) -> Result<TaskOptions, SpecError> {
    let wrong = |name: &str| SpecError::new("options", format!("{name} cannot be understood"));
    let seconds = |name: &str| match given(options, name) {
        None => Ok(None),
        Some(value) => {
            let duration = number(value).and_then(|seconds| Duration::try_from_secs_f64(seconds).ok());
            duration.ok_or_else(|| wrong(name)).map(Some)
        }
    };
    let whole = |name: &str| match given(options, name) {
        None => Ok(None),
        Some(value) => whole_number(value).ok_or_else(|| wrong(name)).map(Some),
    };
    let backoff = match given(options, "backoff") {
        None => None,
        Some(backoff) => Some(backoff.as_document().cloned().ok_or_else(|| wrong("backoff"))?),
    };
    let locks = match given(options, "locks") {
        None => Vec::new(),
        Some(locks) => {
            let texts = locks.as_array().ok_or_else(|| wrong("locks"))?.iter().map(Bson::as_str);
            let texts = texts.collect::<Option<Vec<&str>>>().ok_or_else(|| wrong("locks"))?;
            LockRequest::list(texts).map_err(|error| SpecError::new("options", error.to_string()))?
        }
    };
    let sealed = match sealed {
        None => None,
        Some(sealed) => {
            let unknown = || SpecError::new("secure_params", "they are not stored in a way that is known");
            let sealed = sealed.as_document().ok_or_else(unknown)?;
            Some(Sealed::stored(sealed).map_err(|error| SpecError::new("secure_params", error.to_string()))?)
        }
    };
    Ok(TaskOptions {
        timeout: seconds("timeout")?,
        grace: seconds("grace")?,
        max_attempts: whole("max_attempts")?,
        backoff,
        group: text(options, "group")?.map(str::to_owned),
        priority: whole("priority")?,
        secure_params: sealed,
        locks,
        tags: tags::stored(options.get(TAGS)),
        steps: Step::of_field(options.get(STEPS)).map_err(|error| SpecError::new("options", error))?,
        files: TaskFiles::of_field(options.get(FILES))
            .map_err(|error| SpecError::new("options", format!("{FILES}.{error}")))?,
        ..TaskOptions::default()
    })
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn what_is_stored_is_read_again() {
        let stored = doc! {
            "timeout": 90_i64, "grace": 1.5, "max_attempts": 3_i64, "backoff": { "initial": 5 }, "group": "acme/alice",
            "priority": 7_i64, "locks": ["a", "b/shared"],
            "steps": [{ "name": "get", "params": { "a": 1 }, "status": -2 }],
            "files": { "input": { "name": "data" } }, "tags": ["a=1", "b, c"],
        };
        let options = read(&stored, None).unwrap();
        assert_eq!((options.timeout, options.locks.len()), (Some(Duration::from_secs(90)), 2));
        assert_eq!(check(&options), Ok(()));
        assert_eq!(document(&options), (stored, None));
        assert_eq!(read(&doc! {}, None), Ok(TaskOptions::default()));
        assert_eq!(document(&TaskOptions::default()), (doc! {}, None));
    }

    #[test]
    fn secure_parameters_stay_encrypted() {
        let data = bson::Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![1, 2] };
        let sealed = Bson::from(doc! { "key": "0011223344556677", "data": data });
        let options = read(&doc! {}, Some(&sealed)).unwrap();
        assert_eq!(document(&options), (doc! {}, Some(sealed)));
        assert_eq!(read(&doc! {}, Some(&Bson::from("x"))).unwrap_err().field, "secure_params");
    }

    #[test]
    fn what_cannot_be_understood_is_named() {
        for (odd, error) in [
            (doc! { "timeout": "long" }, "options: timeout cannot be understood"),
            (doc! { "grace": -1 }, "options: grace cannot be understood"),
            (doc! { "max_attempts": 1.5 }, "options: max_attempts cannot be understood"),
            (doc! { "backoff": 5 }, "options: backoff cannot be understood"),
            (doc! { "locks": "a" }, "options: locks cannot be understood"),
            (doc! { "group": 5 }, "group: expected text, not 5"),
        ] {
            assert_eq!(read(&odd, None).unwrap_err().to_string(), error);
        }
        let refused = TaskOptions { unique: Some("k".to_owned()), ..TaskOptions::default() };
        assert_eq!(check(&refused).unwrap_err().to_string(), "options: a schedule cannot have a unique key");
    }
}
