//! The options of a submission: `.run_at`, `.delay`, `.timeout`, `.deadline`, `.grace`, `.max_attempts`, `.backoff`,
//! `.unique`, `.group`, `.priority`, `.tags`, `.secure_params`, `.steps`, `.files` and `.idempotency_key`,
//! and those of [`gates`].

use std::collections::BTreeMap;

use disbatch_core::model::QueueId;
use disbatch_core::secrets::{self, Keys};
use disbatch_core::tags::TAGS;
use disbatch_core::task::{Once, StartAt, TaskOptions};
use serde_json::Value;

use super::{files, gates, secure, steps};
use crate::error::HttpError;
use crate::json;
use crate::params::Params;
use crate::values;

/// The option that names a submission, and is no part of it.
const KEY: &str = "idempotency_key";

/// What is asked for besides the tasks themselves, for tasks of `queue`.
pub fn of(params: &Params, queue: QueueId, keys: &Keys) -> Result<TaskOptions, HttpError> {
    Ok(TaskOptions { secure_params: secure::seal(params, queue, keys)?, ..parse(params)? })
}

/// The same without the secure parameters.
pub fn parse(params: &Params) -> Result<TaskOptions, HttpError> {
    let options = &params.options;
    let given = |name: &str| options.get(name).filter(|value| !values::is_unset(value));
    let start = match (given("run_at"), given("delay")) {
        (Some(_), Some(_)) => return Err(HttpError::bad_request(".run_at and .delay exclude each other")),
        (Some(at), None) => Some(StartAt::At(values::time(".run_at", at)?)),
        (None, Some(delay)) => Some(StartAt::In(values::seconds(".delay", delay)?)),
        (None, None) => None,
    };
    let gates = gates::parse(params)?;
    Ok(TaskOptions {
        start,
        timeout: given("timeout").map(|value| values::some_seconds(".timeout", value)).transpose()?,
        deadline: given("deadline").map(|value| values::time(".deadline", value)).transpose()?,
        grace: given("grace").map(|value| values::seconds(".grace", value)).transpose()?,
        max_attempts: given("max_attempts")
            .map(|value| values::positive(".max_attempts", value))
            .transpose()?,
        backoff: given("backoff").map(|value| values::backoff(".backoff", value)).transpose()?,
        unique: given("unique").map(|value| values::text(".unique", value)).transpose()?,
        group: given("group").map(|value| values::group(".group", value)).transpose()?,
        priority: given("priority").map(|value| values::priority(".priority", value)).transpose()?,
        tags: given(TAGS).map(|value| values::tags::tags(".tags", value)).transpose()?.unwrap_or_default(),
        after: gates.after,
        after_when: gates.after_when,
        after_failed: gates.after_failed,
        chain: gates.chain,
        locks: gates.locks,
        secure_params: None,
        steps: steps::parse(params)?,
        files: files::parse(params)?,
        // Whose they are depends on the queue.
        ..TaskOptions::default()
    })
}

/// What makes the submission one that may be repeated, if the client wants that.
pub fn once(params: &Params, queue: QueueId, keys: &Keys) -> Result<Option<Once>, HttpError> {
    let Some(key) = key(params)? else { return Ok(None) };
    // A name and an id of the same queue are the same request.
    let queue_id = Value::from(queue.to_string());
    let mut fields: BTreeMap<&str, &Value> =
        params.fields.iter().map(|(name, value)| (name.as_str(), value)).collect();
    fields.insert("queue", &queue_id);
    let ours = [
        "run_at",
        "delay",
        "timeout",
        "deadline",
        "grace",
        "max_attempts",
        "backoff",
        "unique",
        "steps",
        "files",
        "after",
        "after_when",
        "after_failed",
        "chain",
        "locks",
        "tenant",
        "array",
        "array_key",
        "array_cap",
        "array_final",
        "array_final_when",
        "group",
        "priority",
        TAGS,
    ];
    let options: BTreeMap<&str, &Value> = params
        .options
        .iter()
        .map(|(name, value)| (name.as_str(), value))
        .filter(|(name, _)| ours.contains(name))
        .collect();
    // A hash of this is stored. Secure parameters stand in it as what only those can make who have the key of the
    // server: whoever reads the database could else try short ones until the hash is the same.
    let request = |fingerprint: Option<&String>| {
        let fingerprint = fingerprint.map(|fingerprint| Value::from(fingerprint.as_str()));
        let mut options = options.clone();
        options.extend(fingerprint.iter().map(|fingerprint| (secrets::FIELD, fingerprint)));
        // Keys are sorted, so that the same request is always the same text.
        json::compact_of([("fields", &fields), ("options", &options)])
    };
    let fingerprints = secure::fingerprints(params, queue, keys)?;
    let (first, others) = (fingerprints.first(), fingerprints.iter().skip(1));
    // The request may have come first when another key was the first one.
    let once = Once::new(key, &request(first));
    Ok(Some(others.fold(once, |once, fingerprint| once.or_before(&request(Some(fingerprint))))))
}

/// The idempotency key, if there is one.
pub fn key(params: &Params) -> Result<Option<String>, HttpError> {
    let given = params.options.get(KEY).filter(|value| !values::is_unset(value));
    given.map(|value| values::text(".idempotency_key", value)).transpose()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use bson::oid::ObjectId;
    use disbatch_core::secrets::new_key;
    use serde_json::json;

    use super::*;

    fn params(options: Value) -> Params {
        let fields = json!({"queue": "q", "params": [{"a": 1}]});
        Params { fields: fields.as_object().unwrap().clone(), options: options.as_object().unwrap().clone() }
    }

    #[test]
    fn options_are_read_and_an_empty_field_is_none() {
        let none = params(json!({"run_at": "", "unique": null, "pretty": 1}));
        assert_eq!(parse(&none).unwrap(), TaskOptions::default());
        let some = parse(&params(json!({"delay": "30", "timeout": 5, "max_attempts": "2", "unique": "k"})));
        let expected = TaskOptions {
            start: Some(StartAt::In(Duration::from_secs(30))),
            timeout: Some(Duration::from_secs(5)),
            max_attempts: Some(2),
            unique: Some("k".to_owned()),
            ..TaskOptions::default()
        };
        assert_eq!(some.unwrap(), expected);
        let turn = parse(&params(json!({"group": "acme/ann", "priority": "-7"}))).unwrap();
        assert_eq!((turn.group.as_deref(), turn.priority), (Some("acme/ann"), Some(-7)));
        assert_eq!(parse(&params(json!({"tags": "a=1, b,a=1"}))).unwrap().tags, ["a=1", "b"]);
    }

    #[test]
    fn mistakes_name_the_option() {
        let wrong = [
            (json!({"run_at": "soon"}), ".run_at must be a time"),
            (json!({"run_at": 1, "delay": 1}), ".run_at and .delay exclude each other"),
            (json!({"delay": -1}), ".delay must be seconds from 0"),
            (json!({"timeout": 0}), ".timeout must be more than 0"),
            (json!({"deadline": []}), ".deadline must be a time"),
            (json!({"grace": "x"}), ".grace must be seconds"),
            (json!({"max_attempts": 0}), ".max_attempts must be an integer from 1"),
            (json!({"backoff": {"step": 1}}), ".backoff must be an object with any of"),
            (json!({"unique": {}}), ".unique must be text"),
            (json!({"group": "a//b"}), ".group must be parts with a slash between them"),
            (json!({"group": ["a"]}), ".group must be text of 1 to 200 characters"),
            (json!({"priority": 1001}), ".priority must be an integer from -1000 to 1000"),
            (json!({"tags": ["a", "b\n"]}), ".tags[1] must be text of 1 to 128 characters"),
            (json!({"tags": {"a": 1}}), ".tags must be an array of texts"),
            (json!({"priority": true}), ".priority must be an integer from -1000 to 1000"),
        ];
        for (options, message) in wrong {
            let error = parse(&params(options)).unwrap_err();
            assert_eq!(error.status(), 400);
            assert!(error.to_string().starts_with(message), "{error}");
        }
        assert!(key(&params(json!({"idempotency_key": []}))).is_err());
    }

    #[test]
    fn a_repetition_is_the_same_request() {
        let queue = QueueId(ObjectId::new());
        let of = |options| once(&params(options), queue, &Keys::default()).unwrap();
        assert_eq!(of(json!({})), None);
        let first = of(json!({"idempotency_key": "k", "delay": 5}));
        assert_eq!(first, of(json!({"delay": 5, "idempotency_key": "k", "pretty": 1})));
        assert_ne!(first, of(json!({"idempotency_key": "k", "delay": 6})));
        assert_ne!(first, of(json!({"idempotency_key": "k", "delay": 5, "locks": "db"})));
        assert_ne!(first, of(json!({"idempotency_key": "k", "delay": 5, "group": "a"})));
        assert_ne!(first, of(json!({"idempotency_key": "k", "delay": 5, "priority": 1})));
        assert_ne!(first, of(json!({"idempotency_key": "k", "delay": 5, "tags": "a"})));
        assert_ne!(first, of(json!({"idempotency_key": "k", "delay": 5, "chain": true})));
        assert_ne!(first, of(json!({"idempotency_key": "k", "delay": 5, "steps": [{}]})));
        assert_ne!(first, of(json!({"idempotency_key": "k", "delay": 5, "files": {"input": {"name": "a"}}})));
        let by_id = Params {
            fields: json!({"queue": queue.to_string(), "params": [{"a": 1}]}).as_object().unwrap().clone(),
            ..params(json!({"idempotency_key": "k", "delay": 5}))
        };
        assert_eq!(first, once(&by_id, queue, &Keys::default()).unwrap());
    }

    #[test]
    fn a_repetition_has_the_same_secure_parameters() {
        let (old, new) = (new_key().unwrap(), new_key().unwrap());
        let keys = |texts: &[&str]| Keys::of(Some(&texts.join(" ")), None).unwrap();
        let queue = QueueId(ObjectId::new());
        let of = |secure: Value, keys: &Keys| {
            let options = json!({"idempotency_key": "k", "secure_params": secure});
            once(&params(options), queue, keys).unwrap().unwrap()
        };
        let first = of(json!({"pin": 1234}), &keys(&[old.as_str()]));
        assert_eq!(first, of(json!("{\"pin\": 1234}"), &keys(&[old.as_str()])), "a form has it as text");
        assert_ne!(first, of(json!({"pin": 1235}), &keys(&[old.as_str()])));
        assert_ne!(
            first,
            of(json!({"pin": 1234}), &keys(&[new.as_str()])),
            "nobody can make it without the key"
        );
        let without = once(&params(json!({"idempotency_key": "k"})), queue, &keys(&[old.as_str()])).unwrap();
        assert_eq!(without, Some(of(json!({}), &keys(&[old.as_str()]))), "an empty object is none");
        assert_ne!(without, Some(first));
    }
}
