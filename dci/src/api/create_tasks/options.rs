//! The options of a submission: `.run_at`, `.delay`, `.timeout`, `.deadline`, `.grace`, `.max_attempts`, `.backoff`,
//! `.unique`, `.group`, `.priority`, `.tags`, `.after`, `.after_when`, `.after_failed`, `.chain`, `.locks`, `.secure_params`, `.steps`, `.files`,
//! `.tenant` and `.idempotency_key`.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use actix_web::http::StatusCode;
use bson::Bson;
use disbatch_core::accounts::Role;
use disbatch_core::metrics::labels::Refusal;
use disbatch_core::model::{FILES, FileInput, PluginName, Queue, QueueId, STEPS, Step, TaskFiles};
use disbatch_core::request;
use disbatch_core::secrets::{self, Keys, SealError, Sealed, SecureParams};
use disbatch_core::tags::TAGS;
use disbatch_core::task::{Once, TaskOptions};
use serde_json::{Value, json};

use crate::access::Who;
use crate::error::HttpError;
use crate::params::Params;
use crate::state::State;
use crate::{allowance, arrays, files, json, measure, values};

/// The option that names a submission, and is no part of it.
const KEY: &str = "idempotency_key";

/// Those that forms have as the text of JSON.
const OBJECTS: [&str; 3] = ["backoff", "files", "steps"];

/// What is asked for besides the tasks themselves, for tasks of `queue`.
pub fn of(params: &Params, queue: QueueId, keys: &Keys) -> Result<TaskOptions, HttpError> {
    Ok(TaskOptions { secure_params: seal(params, queue, keys)?, ..parse(params)? })
}

/// The same without the secure parameters.
pub fn parse(params: &Params) -> Result<TaskOptions, HttpError> {
    weigh_steps(params)?;
    let given = |name: &str| {
        let value = params.options.get(name)?;
        Some(match name {
            TAGS => values::tag_list(value).map_or(Cow::Borrowed(value), |tags| Cow::Owned(tags.into())),
            name if OBJECTS.contains(&name) => values::object(value),
            _ => Cow::Borrowed(value),
        })
    };
    // Whose they are depends on the queue.
    Ok(request::options(given)?)
}

/// What makes the submission one that may be repeated, if the client wants that.
pub fn once(params: &Params, queue: QueueId, keys: &Keys) -> Result<Option<Once>, HttpError> {
    let Some(key) = key(params)? else { return Ok(None) };
    // A name and an id of the same queue are the same request.
    let queue_id = Value::from(queue.to_string());
    let mut fields: BTreeMap<&str, &Value> =
        params.fields.iter().map(|(name, value)| (name.as_str(), value)).collect();
    fields.insert("queue", &queue_id);
    let of_tasks = request::names();
    let options: BTreeMap<&str, &Value> = params
        .options
        .iter()
        .map(|(name, value)| (name.as_str(), value))
        .filter(|(name, _)| of_tasks.contains(*name) || *name == "tenant" || arrays::OPTIONS.contains(name))
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
    let fingerprints = fingerprints(params, queue, keys)?;
    let (first, others) = (fingerprints.first(), fingerprints.iter().skip(1));
    // The request may have come first when another key was the first one.
    let once = Once::new(key, &request(first));
    Ok(Some(others.fold(once, |once, fingerprint| once.or_before(&request(Some(fingerprint))))))
}

pub fn key(params: &Params) -> Result<Option<String>, HttpError> {
    Ok(params.option(KEY).map(|value| values::text(".idempotency_key", value)).transpose()?)
}

/// So many more copies there are of steps: they are options, which are looked at on their own before each task gets them.
const COPIES: usize = 4;

pub fn weigh_steps(params: &Params) -> Result<(), HttpError> {
    allowance::take_for_copies(COPIES, params.options.get(STEPS))
}

/// Sees to it that nobody runs a plugin by way of a step whom no queue lets run it.
pub async fn check_steps(state: &State, who: &Who, queue: &Queue, steps: &[Step]) -> Result<(), HttpError> {
    let of_queue = queue.plugin_name().ok().flatten();
    let named: BTreeSet<&PluginName> = steps.iter().filter_map(|step| step.plugin.as_ref()).collect();
    let others: Vec<&PluginName> =
        named.into_iter().filter(|plugin| of_queue.as_ref() != Some(*plugin)).collect();
    if others.is_empty() {
        return Ok(());
    }
    let plugins = state.catalogue().await?;
    if let Some(unknown) = others.iter().find(|plugin| !plugins.allows(plugin.as_str())) {
        let body = json!({ "error": "Unknown plugin", "plugin": unknown.as_str() });
        return Err(HttpError::with_body(StatusCode::BAD_REQUEST, body));
    }
    if who.is_everywhere(Role::Operator) {
        return Ok(());
    }
    let queues = state.store.queues_within(&who.reach(Role::Submitter)).await?;
    let may_run: Vec<PluginName> =
        queues.iter().filter_map(|queue| queue.plugin_name().ok().flatten()).collect();
    match others.into_iter().find(|plugin| !may_run.contains(plugin)) {
        None => Ok(()),
        Some(plugin) => Err(HttpError::forbidden(format!(
            "a step of the plugin {plugin} needs a queue of that plugin that you may submit tasks to"
        ))),
    }
}

/// What a queue says of the file sets of its tasks, as it is stored: theirs, or that they have them in their parameters.
pub fn files_of_queue(name: &str, given: &Value) -> Result<Bson, HttpError> {
    let given = values::object(given);
    let object = json::to_bson(&given);
    if TaskFiles::are_from_params(&object) {
        return Ok(object);
    }
    Ok(request::files(name, &given)?.map_or(Bson::Null, |files| files.document().into()))
}

/// Sees to it that nobody has a task read or make file sets who may not read or make them without it. `tenant` is that of the
/// tasks: they take and make sets of no other.
pub fn check_files(who: &Who, wanted: Option<&TaskFiles>, tenant: Option<&str>) -> Result<(), HttpError> {
    let Some(wanted) = wanted else { return Ok(()) };
    if wanted.input.is_some() {
        files::check(who, Role::Viewer, tenant)?;
    }
    if wanted.output.is_some() {
        files::check(who, Role::Submitter, tenant)?;
    }
    Ok(())
}

/// Sees to it that the files are there that new tasks are to get. Those of tasks that start later may still come.
pub async fn check_input(
    state: &State,
    who: &Who,
    queue: QueueId,
    options: &TaskOptions,
) -> Result<(), HttpError> {
    let starts_later = !options.after.is_empty() || options.chain || options.start.is_some();
    let input = options.files.as_ref().and_then(|files| files.input.as_ref());
    let Some(FileInput { name, version, .. }) = input.filter(|_| !starts_later) else { return Ok(()) };
    let found = files::find(state, who, (name.as_str(), *version), Role::Viewer).await;
    found.map(drop).map_err(|error| match error.status() {
        StatusCode::NOT_FOUND => {
            measure::refused(state.store.metrics(), queue, Refusal::Invalid);
            HttpError::bad_request(format!(".files.input: {}", error.message()))
        }
        _ => error, // It is there, or nobody knows.
    })
}

/// The same of what a queue says. Where its tasks may say what they like, whoever decides that must be allowed all of it.
pub fn check_files_of_queue(who: &Who, wanted: Option<&Bson>, tenant: Option<&str>) -> Result<(), HttpError> {
    if wanted.is_some_and(TaskFiles::are_from_params) {
        files::check(who, Role::Viewer, tenant)?;
        return files::check(who, Role::Submitter, tenant);
    }
    let wanted =
        TaskFiles::of_field(wanted).map_err(|why| HttpError::bad_request(format!("{FILES}.{why}")))?;
    check_files(who, wanted.as_ref(), tenant)
}

/// What has to be done before there can be secure parameters.
const NO_KEY: &str = "this server has no key for secure parameters: 'disbatch secrets-key' prints a new one; write it \
    to a file, name the file as secrets.key_file in the configuration of the web server and of all nodes, and start \
    them again";

/// The secure parameters of a submission, which only the plugin gets to see: encrypted here, before anything is stored. No message
/// shows any of them. They are encrypted for tasks of `queue`. `None`: it has none.
fn seal(params: &Params, queue: QueueId, keys: &Keys) -> Result<Option<Sealed>, HttpError> {
    let Some(given) = secure_params_of(params)? else { return Ok(None) };
    keys.seal(queue, &given).map(Some).map_err(|error| not_sealed(".secure_params", &error))
}

pub fn not_sealed(name: &str, error: &SealError) -> HttpError {
    match error {
        SealError::NoKey => HttpError::unavailable(NO_KEY),
        SealError::TooLong(_) => HttpError::bad_request(format!("{name}: {error}")),
        SealError::Random(_) => HttpError::internal(&error.to_string()),
    }
}

/// What tells them from others, as each of the keys has it, the first one first.
fn fingerprints(params: &Params, queue: QueueId, keys: &Keys) -> Result<Vec<String>, HttpError> {
    Ok(secure_params_of(params)?.map(|given| keys.fingerprints(queue, &given)).unwrap_or_default())
}

/// An object, or from a form its JSON as text. An empty one is none.
fn secure_params_of(params: &Params) -> Result<Option<SecureParams>, HttpError> {
    let value = match params.option(secrets::FIELD) {
        None => return Ok(None),
        // What the parser says of text that is no JSON might show some of it.
        Some(Value::String(text)) => crate::allowance::json(text).ok(),
        Some(value) => Some(value.clone()),
    };
    match value {
        Some(Value::Null) => Ok(None),
        Some(Value::Object(object)) => Ok(SecureParams::new(object)),
        _ => Err(HttpError::bad_request(".secure_params must be a JSON object")), // Nothing else has names.
    }
}

/// The options of tasks of `queue` with whose they are. Tasks of a tenant's queue are that tenant's. Of a queue that is
/// nobody's they are for whom `.tenant` says, if whoever asks may submit tasks there.
pub fn with_tenant(
    options: TaskOptions,
    params: &Params,
    who: &Who,
    queue: &Queue,
) -> Result<TaskOptions, HttpError> {
    let given = params.option("tenant").map(|value| values::text(".tenant", value)).transpose()?;
    let tenant = match (given, queue.tenant()) {
        (Some(given), Some(own)) if given != own => {
            return Err(HttpError::bad_request(".tenant: the queue is that of another tenant"));
        }
        (_, Some(own)) => Some(own.to_owned()),
        (Some(given), None) => {
            check_tenant(who, queue, Some(&given))?;
            Some(given)
        }
        (None, None) => None,
    };
    Ok(TaskOptions { tenant, owner: who.name.clone(), trace: who.trace.clone(), ..options })
}

/// Sees to it that somebody may submit tasks for a tenant. Who may submit to a queue may do so for the tenant of that.
pub fn check_tenant(who: &Who, queue: &Queue, tenant: Option<&str>) -> Result<(), HttpError> {
    match tenant.filter(|tenant| queue.tenant() != Some(*tenant)) {
        Some(tenant) if who.rights.on_tenant(tenant) < Some(Role::Submitter) => Err(HttpError::forbidden(
            format!("this needs the role {} on the tenant {tenant}", Role::Submitter),
        )),
        Some(_) | None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{Document, doc};
    use disbatch_core::accounts::{Grant, Rights, Scope};
    use disbatch_core::secrets::new_key;

    use super::*;

    fn params(options: Value) -> Params {
        let fields = json!({"queue": "q", "params": [{"a": 1}]});
        Params { fields: fields.as_object().unwrap().clone(), options: options.as_object().unwrap().clone() }
    }

    #[test]
    fn forms_have_objects_as_text() {
        let of = |options: Value| {
            parse(&params(options)).map_err(|error| (error.status().as_u16(), error.to_string()))
        };
        for tags in [json!("a=1, b,a=1"), json!(["a=1", "b"]), json!(r#"["a=1","b"]"#)] {
            assert_eq!(of(json!({ "tags": tags })).unwrap().tags, ["a=1", "b"]);
        }
        for (name, value) in [
            ("steps", json!([{ "name": "get", "params": { "a": 1 } }, {}])),
            ("files", json!({ "input": { "name": "data", "version": 2 } })),
            ("backoff", json!({ "base": 5 })),
        ] {
            let (object, text) = (of(json!({ name: value })), of(json!({ name: value.to_string() })));
            assert!(object.as_ref().is_ok_and(|options| *options != TaskOptions::default()), "{name}");
            assert_eq!(object, text);
            for none in [json!(null), json!("")] {
                assert_eq!(of(json!({ name: none })), Ok(TaskOptions::default()));
            }
            for wrong in [json!("nope"), json!("5"), json!("null"), json!("\"\"")] {
                let (status, message) = of(json!({ name: wrong })).unwrap_err();
                assert!(status == 400 && message.starts_with(&format!(".{name} must be a")), "{message}");
            }
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

    #[test]
    fn a_task_takes_and_makes_what_its_submitter_may() {
        let of = |tenant: &str, role| Grant { scope: Scope::Tenant(tenant.to_owned()), role };
        let grants = vec![of("acme", Role::Submitter), of("seen", Role::Viewer)];
        let who = Who { rights: Rights::new(None, grants), ..Who::anybody("10.0.0.1".to_owned()) };
        let wanted = |files: Value| request::files("files", &files).unwrap();
        let (input, output) =
            (wanted(json!({ "input": { "name": "a" } })), wanted(json!({ "output": { "name": "a" } })));
        for (files, tenant, may) in [
            (&input, Some("acme"), true),
            (&output, Some("acme"), true),
            (&input, Some("seen"), true),
            (&output, Some("seen"), false),
            (&input, Some("other"), false),
            (&input, None, false),
            (&None, None, true),
        ] {
            assert_eq!(check_files(&who, files.as_ref(), tenant).is_ok(), may, "{files:?} {tenant:?}");
        }
    }

    fn with_secure(value: Value) -> Params {
        let options = json!({ "secure_params": value }).as_object().unwrap().clone();
        Params { options, ..Params::default() }
    }

    #[test]
    fn an_object_or_its_text_is_encrypted() {
        let (keys, queue) = (Keys::of(Some(&new_key().unwrap()), None).unwrap(), QueueId(ObjectId::new()));
        let object = json!({ "password": "correct horse" });
        for same in [object.clone(), json!(object.to_string())] {
            let sealed = seal(&with_secure(same), queue, &keys).unwrap().unwrap();
            assert_eq!(keys.open(queue, &sealed).unwrap().value(), &object);
        }
        for none in [json!(null), json!(""), json!({}), json!("{}"), json!("null")] {
            assert_eq!(seal(&with_secure(none.clone()), queue, &Keys::default()).unwrap(), None, "{none}");
        }
        assert_eq!(seal(&Params::default(), queue, &keys).unwrap(), None);
    }

    #[test]
    fn mistakes_show_nothing_of_it() {
        let (keys, queue) = (Keys::of(Some(&new_key().unwrap()), None).unwrap(), QueueId(ObjectId::new()));
        for wrong in
            [json!("horse"), json!("{\"a\": horse}"), json!(["horse"]), json!(7), json!("[\"horse\"]")]
        {
            let error = seal(&with_secure(wrong.clone()), queue, &keys).unwrap_err();
            assert_eq!(error.to_string(), ".secure_params must be a JSON object", "{wrong}");
            assert_eq!(error.status(), 400);
        }
        let long = seal(&with_secure(json!({ "a": "x".repeat(65_536) })), queue, &keys).unwrap_err();
        assert_eq!(long.status(), 400);
        assert!(long.to_string().contains("at most 65536 bytes") && long.to_string().len() < 200, "{long}");
        let without = seal(&with_secure(json!({ "a": 1 })), queue, &Keys::default()).unwrap_err();
        assert_eq!(without.status(), 503);
        assert!(without.to_string().contains("secrets.key_file"), "{without}");
    }

    fn queue(fields: Document) -> Queue {
        let mut queue = doc! { "_id": ObjectId::from_bytes([1; 12]) };
        queue.extend(fields);
        bson::deserialize_from_document(queue).unwrap()
    }

    fn tenant(given: Value, who: &Who, queue: &Queue) -> Result<Option<String>, u16> {
        let options = json!({ "tenant": given }).as_object().unwrap().clone();
        let params = Params { options, ..Params::default() };
        let options = with_tenant(TaskOptions::default(), &params, who, queue);
        options.map(|options| options.tenant).map_err(|error| error.status().as_u16())
    }

    #[test]
    fn a_tenant_is_that_of_the_queue_or_one_that_somebody_has_rights_on() {
        let mut who = Who::anybody("10.0.0.1".to_owned());
        let (own, shared) = (queue(doc! { "tenant": "acme" }), queue(doc! {}));
        let acme = || Ok(Some("acme".to_owned()));
        assert_eq!(tenant(json!(null), &who, &own), acme());
        assert_eq!(tenant(json!("acme"), &who, &own), acme());
        assert_eq!(tenant(json!("other"), &who, &own), Err(400));
        assert_eq!(tenant(json!(""), &who, &shared), Ok(None));
        assert_eq!(tenant(json!("other"), &who, &shared), Ok(Some("other".to_owned())));
        assert_eq!(tenant(json!({}), &who, &shared), Err(400));
        who.name = Some("anna".to_owned());
        let grant = |scope, role| Grant { scope, role };
        who.rights = Rights::new(
            None,
            vec![
                grant(Scope::Queue(QueueId(ObjectId::from_bytes([1; 12]))), Role::Admin),
                grant(Scope::Tenant("acme".to_owned()), Role::Submitter),
                grant(Scope::Tenant("seen".to_owned()), Role::Viewer),
            ],
        );
        assert_eq!(tenant(json!("acme"), &who, &shared), acme());
        assert_eq!(tenant(json!("seen"), &who, &shared), Err(403));
        assert_eq!(tenant(json!("other"), &who, &shared), Err(403));
        let options = with_tenant(TaskOptions::default(), &Params::default(), &who, &shared).unwrap();
        assert_eq!(options.owner.as_deref(), Some("anna"));
    }
}
