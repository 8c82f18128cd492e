//! `POST /queues/:queue`

use std::collections::BTreeMap;
use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::web::Data;
use bson::{Bson, Document};
use disbatch_core::accounts::Role;
use disbatch_core::fair::{LONGEST_HALF_LIFE, Share};
use disbatch_core::model::{
    BEGAN, CANARY, CANARY_RETURNED, FILES, NODES, OnLostLease, OnOrphan, Policy, Queue, RECORD, SHADOW,
    Shadow, Sort, VERSION,
};
use disbatch_core::node::Updated;
use disbatch_core::tags::INDEX;
use disbatch_wire::options::field_names;
use serde_json::{Map, Value, json};

use crate::access::{NamedQueue, Who};
use crate::api::queues::NAME_TAKEN;
use crate::api::{Answer, create_tasks, redirect};
use crate::error::HttpError;
use crate::json::Dates;
use crate::openapi::{JSON_OR_FORM, QueueChange, UpdateResult};
use crate::params::Params;
use crate::state::State;
use crate::ui::names::TITLE;
use crate::{changes, json, legacy, shadows, values};

/// A template of titles has so many characters at most.
const LONGEST_TITLE: usize = 200;

/// Whether these may be changed as somebody wants it depends on the queue.
const OF_THE_QUEUE: [&str; 6] = ["group_rate", "plugin", FILES, VERSION, CANARY, SHADOW];

/// Changes a queue. `name`, `plugin` and `threads` are stored as given, text as text. All others can be unset with
/// null, or with an empty field of a form: then the default applies. The parts of `backoff`, `canary`, `retention`, `record`, `shadow`, `nodes`, `rate` and
/// `group_rate` may also be given one by one, as `backoff.base`: they take the place of all parts that there were. With the option
/// `.was`, only what differs from it is changed, and only if nobody else has changed it meanwhile.
#[utoipa::path(
    post, path = "/queues/{queue}", tag = "queues", operation_id = "updateQueue",
    request_body(content = QueueChange, content_type = JSON_OR_FORM),
    responses(
        (status = 200, description = "Changed.", body = UpdateResult),
        (status = 400, description = "A parameter is wrong, there is no such queue, or the new name is taken."),
        (status = 409, description = "A field is not what it was by `.was`. Nothing is changed; `changed` has what these fields are now."),
    ),
)]
pub async fn handle(state: Data<State>, who: Who, named: NamedQueue, params: Params) -> Answer {
    let Some(seen) = seen(&params)? else {
        may(&who, &params.fields.keys().map(String::as_str).collect::<Vec<_>>())?;
        let fields = checked(&params, &params.fields)?;
        return update(&state, &who, &named, None, (&params, fields, Vec::new())).await;
    };
    let fields = checked(&params, &params.fields)?;
    let Some(queue) = state.store.find_queue(&named.selector).await? else {
        return Err(no_queue(&named, Updated { matched: 0, modified: 0 }));
    };
    let (fields, stored) = merged(&params, &queue, fields, &seen)?;
    if fields.is_empty() {
        let updated = Updated { matched: 1, modified: 0 };
        return redirect::answer(&params, json::ok(&legacy::update_result(updated)));
    }
    may(&who, &fields.keys().map(String::as_str).collect::<Vec<_>>())?;
    update(&state, &who, &named.found(queue.id.0), Some(queue), (&params, fields, stored)).await
}

/// What the client has seen, by the option `.was`, if it says so. A form has it as text.
fn seen(params: &Params) -> Result<Option<Document>, HttpError> {
    let Some(was) = params.option("was") else { return Ok(None) };
    let was = values::object(was);
    let was = was.as_object().ok_or_else(|| HttpError::bad_request(".was must be an object"))?;
    checked(params, was).map(Some)
}

/// The values that fields must still have; `None`: not set.
type Stored = Vec<(String, Option<Bson>)>;

/// What is to be changed by a client that has seen some fields as `seen`, and what is stored of that now. What it leaves as it has
/// seen it is left as it is.
///
/// # Errors
/// Somebody has changed one of them meanwhile.
fn merged(
    params: &Params,
    queue: &Queue,
    fields: Document,
    seen: &Document,
) -> Result<(Document, Stored), HttpError> {
    let (mut changed, mut stored, mut overtaken) = (Document::new(), Vec::new(), Map::new());
    for (name, value) in fields {
        let now = queue.rest.get(&name);
        let shown = now.map(|now| json::from_bson(now, Dates::Text)).unwrap_or_default();
        // What makes no sense counts as not given.
        let known = value_of(params, &name, &shown).unwrap_or(Bson::Null);
        let was = seen.get(&name);
        if value == known || Some(&value) == was {
            continue;
        }
        if was.is_some_and(|was| *was != known) {
            overtaken.insert(name.clone(), shown);
        }
        if was.is_some() {
            stored.push((name.clone(), now.cloned()));
        }
        changed.insert(name, value);
    }
    if overtaken.is_empty() { Ok((changed, stored)) } else { Err(overtaken_by(overtaken)) }
}

/// Somebody else has changed these fields meanwhile, which have these values now.
fn overtaken_by(fields: Map<String, Value>) -> HttpError {
    let is = |(name, value): (&String, &Value)| match value {
        Value::Null => format!("{name} (not set any more)"),
        value => format!("{name} (now {})", json::compact(value)),
    };
    let named: Vec<String> = fields.iter().map(is).collect();
    let error = format!("changed by somebody else meanwhile: {}. Nothing is saved", named.join(", "));
    HttpError::with_body(StatusCode::CONFLICT, json!({ "error": error, "changed": fields }))
}

fn no_queue(named: &NamedQueue, updated: Updated) -> HttpError {
    let body = legacy::with(legacy::update_result(updated), "error", format!("no queue '{}'", named.name));
    HttpError::with_body(StatusCode::BAD_REQUEST, body)
}

/// What is not for those who operate only some queues: what a queue's tasks run, and where. Each with what it is called.
const OF_ALL_QUEUES: [(&str, &str); 4] =
    [("plugin", "plugin"), (VERSION, "plugin"), (CANARY, "plugin"), (NODES, "nodes")];

/// What a field changes, or a part of it as `nodes.labels`, if that is for operators of all queues.
pub fn of_all_queues(field: &str) -> Option<&'static str> {
    let whole = field.split('.').next().unwrap_or(field);
    OF_ALL_QUEUES.iter().find(|(name, _)| *name == whole).map(|(_, what)| *what)
}

fn may(who: &Who, fields: &[&str]) -> Result<(), HttpError> {
    if fields.contains(&"tenant") && !who.is_everywhere(Role::Admin) {
        return Err(HttpError::forbidden("to change a queue's tenant needs the role admin"));
    }
    if let Some(what) = fields.iter().find_map(|field| of_all_queues(field))
        && !who.is_everywhere(Role::Operator)
    {
        let message = format!("to change a queue's {what} needs the role operator on all queues");
        return Err(HttpError::forbidden(message));
    }
    Ok(())
}

/// `queue`: as it was read a moment ago, if it was.
async fn update(
    state: &State,
    who: &Who,
    named: &NamedQueue,
    queue: Option<Queue>,
    (params, mut fields, stored): (&Params, Document, Stored),
) -> Answer {
    if let Some(plugin) = params.fields.get("plugin").filter(|_| fields.contains_key("plugin")) {
        state.check_plugin("unknown plugin", plugin).await?;
    }
    // One that does not exist is refused by the update.
    let queue = match queue {
        None if fields.keys().any(|field| OF_THE_QUEUE.contains(&field.as_str())) => {
            state.store.find_queue(&named.selector).await?
        }
        known => known,
    };
    let is_given = |field: &str| fields.get(field).is_some_and(|value| *value != Bson::Null);
    if is_given("group_rate") && !has_groups(queue.as_ref(), &fields) {
        return Err(HttpError::bad_request("group_rate must be of a queue whose policy is \"fair\""));
    }
    // Nobody has tasks take or make file sets who may not do that without them.
    if let Some(queue) = queue.as_ref().filter(|_| is_given(FILES)) {
        create_tasks::options::check_files_of_queue(who, fields.get(FILES), queue.tenant())?;
    }
    begin_canary(state, queue.as_ref(), &mut fields)?;
    if let Some(queue) = queue {
        check_shadow(state, who, queue, &fields).await?;
    }
    let is_conditional = !stored.is_empty();
    let updated = changes::update_queue(state, who, named.selector.clone(), fields, stored).await;
    let updated = updated.map_err(|error| match error.write_failure() {
        Some(failure) if failure.is_duplicate_key() && !who.is_everywhere(Role::Viewer) => {
            HttpError::name_not_allowed()
        }
        Some(failure) if failure.is_duplicate_key() && redirect::is_form(params) => {
            HttpError::bad_request(NAME_TAKEN)
        }
        Some(failure) if failure.is_duplicate_key() => {
            HttpError::with_body(StatusCode::BAD_REQUEST, legacy::duplicate(&failure, &Value::Null))
        }
        _ => error.into(),
    })?;
    if updated.matched == 0 && is_conditional {
        return Err(HttpError::conflict(
            "the queue was changed at the same moment. Nothing is saved: try it again",
        ));
    }
    if updated.matched == 0 {
        return Err(no_queue(named, updated));
    }
    redirect::answer(params, json::ok(&legacy::update_result(updated)))
}

/// Sees to it that shadows have no effects.
async fn check_shadow(
    state: &State,
    who: &Who,
    mut queue: Queue,
    fields: &Document,
) -> Result<(), HttpError> {
    if let Some(plugin) = fields.get("plugin") {
        let plugin = json::from_bson(plugin, Dates::Text);
        Box::pin(shadows::check_of_shadow(state, &queue, &plugin)).await?;
    }
    let Some(shadow) = fields.get(SHADOW) else { return Ok(()) };
    queue.rest.insert(SHADOW, shadow.clone());
    match Shadow::of(&queue) {
        Some(shadow) => Box::pin(shadows::check(state, who, &queue, &shadow)).await,
        None => Ok(()),
    }
}

/// Whether the queue will go by the groups of its tasks.
fn has_groups(queue: Option<&Queue>, fields: &Document) -> bool {
    match fields.get("policy") {
        Some(policy) => policy.as_str() == Some("fair"),
        None => queue.is_none_or(|queue| queue.policy() == Policy::Fair),
    }
}

/// The fields as they are stored; null for those that are to go.
fn checked(params: &Params, fields: &Map<String, Value>) -> Result<Document, HttpError> {
    if fields.is_empty() {
        return Err(HttpError::bad_request("no params"));
    }
    let given = gathered(fields)?;
    let known = field_names::<QueueChange>();
    // Those that begin with a dot are options.
    if let Some(param) = given.keys().find(|name| name.starts_with('.') || !known.contains(&name.as_str())) {
        return Err(HttpError::bad_param("unknown param", param));
    }
    let mut fields = Document::new();
    for (field, value) in &given {
        fields.insert(field, value_of(params, field, value)?);
    }
    Ok(fields)
}

/// A field as it is stored; null if it is to go.
fn value_of(params: &Params, field: &str, value: &Value) -> Result<Bson, HttpError> {
    match field {
        "name" if !is_name(value) => Err(HttpError::bad_request("name must be a string")),
        "name" => {
            values::shown_as_written("name", value)?;
            Ok(json::to_bson(value))
        }
        "plugin" => Ok(json::to_bson(value)),
        setting_of_queue => setting(params, setting_of_queue, value),
    }
}

/// A setting as it is stored; null if it is to go.
pub fn setting(params: &Params, name: &str, value: &Value) -> Result<Bson, HttpError> {
    match name {
        "threads" if !legacy::is_non_negative_integer(value) => {
            Err(HttpError::bad_request("threads must be a non-negative integer"))
        }
        "threads" => Ok(json::to_bson(&redirect::number(params, value))),
        _ if values::is_unset(value) => Ok(Bson::Null),
        control => control_value(control, value),
    }
}

/// The fields with those that were given in parts as wholes: null if no part has a value.
fn gathered(fields: &Map<String, Value>) -> Result<Map<String, Value>, HttpError> {
    let mut given = Map::new();
    let mut groups: BTreeMap<&str, Map<String, Value>> = BTreeMap::new();
    for (field, value) in fields {
        match field.split_once('.').filter(|(group, _)| QueueChange::GROUPS.contains(group)) {
            Some((group, part)) => {
                let parts = groups.entry(group).or_default();
                if !values::is_unset(value) {
                    parts.insert(part.to_owned(), value.clone());
                }
            }
            None => drop(given.insert(field.clone(), value.clone())),
        }
    }
    for (group, parts) in groups {
        if given.contains_key(group) {
            return Err(HttpError::bad_request(format!("{group} and its parts exclude each other")));
        }
        given.insert(group.to_owned(), if parts.is_empty() { Value::Null } else { Value::Object(parts) });
    }
    Ok(given)
}

/// A control of a queue that Perl Disbatch does not have.
fn control_value(field: &str, value: &Value) -> Result<Bson, HttpError> {
    Ok(match field {
        "paused" | "accepting" => values::flag(field, value)?.into(),
        "sort" => values::word(field, value, &Sort::ALL.map(Sort::as_str))?.into(),
        "on_orphan" => values::word(field, value, &OnOrphan::ALL.map(OnOrphan::as_str))?.into(),
        "on_lost_lease" => values::word(field, value, &OnLostLease::ALL.map(OnLostLease::as_str))?.into(),
        "max_attempts" | "group_threads" => values::positive(field, value)?.into(),
        "backoff" => values::backoff(field, value)?.into(),
        "timeout" | "unleased_limit" => values::stored(values::some_seconds(field, value)?),
        "grace" => values::stored(values::seconds(field, value)?),
        NODES => values::nodes(field, value)?,
        FILES => create_tasks::options::files_of_queue(field, value)?,
        INDEX => values::tag_index(field, value)?,
        "retention" => values::retention(field, value)?.into(),
        RECORD => values::record(field, value)?.into(),
        VERSION => values::version(field, value)?.as_str().into(),
        CANARY => values::canary(field, value)?.into(),
        SHADOW => values::shadow(field, value)?.into(),
        "rate" | "group_rate" => values::rate(field, value)?.into(),
        "policy" => values::word(field, value, &["fifo", "lifo", "priority", "fair"])?.into(),
        "share" => values::word(field, value, &Share::ALL.map(Share::as_str))?.into(),
        "scheme" => values::scheme(field, value)?.times().to_vec().into(),
        "weights" => values::weights(field, value)?.into(),
        "half_life" => values::stored(half_life(field, value)?),
        TITLE => title(field, value)?.into(),
        _ => values::text(field, value)?.into(), // The reason and the tenant.
    })
}

fn title(field: &str, value: &Value) -> Result<String, HttpError> {
    let title = values::text(field, value)?;
    values::shown_as_written(field, value)?;
    let is_short = title.chars().count() <= LONGEST_TITLE;
    let too_long = || HttpError::bad_request(format!("{field} must have at most {LONGEST_TITLE} characters"));
    is_short.then_some(title).ok_or_else(too_long)
}

fn half_life(field: &str, value: &Value) -> Result<Duration, HttpError> {
    let given = values::some_seconds(field, value)?;
    let most = LONGEST_HALF_LIFE.as_secs();
    let is_short = given <= LONGEST_HALF_LIFE;
    let too_long = || HttpError::bad_request(format!("{field} must be at most {most} seconds"));
    is_short.then_some(given).ok_or_else(too_long)
}

/// Perl takes numbers for strings, and "0" for no name.
fn is_name(value: &Value) -> bool {
    (value.is_string() || value.is_number()) && legacy::is_true(Some(value))
}

/// Notes when a canary begins: it is told by that from those before, and its attempts are counted from then on. What has become of the last
/// one is of no interest any more when a version is pinned or tried.
fn begin_canary(state: &State, queue: Option<&Queue>, fields: &mut Document) -> Result<(), HttpError> {
    if !fields.contains_key(VERSION) && !fields.contains_key(CANARY) {
        return Ok(());
    }
    let stored = |name: &str| queue.and_then(|queue| queue.rest.get(name));
    let pinned = fields.get(VERSION).or_else(|| stored(VERSION)).and_then(Bson::as_str).map(str::to_owned);
    let version_in = |canary: &Document| canary.get_str("version").ok().map(str::to_owned);
    fields.insert(CANARY_RETURNED, Bson::Null);
    match fields.get_mut(CANARY) {
        Some(Bson::Document(canary)) => {
            canary.insert(BEGAN, state.store.now());
            if pinned.is_some() && version_in(canary) == pinned {
                let message = "canary.version is the version that the queue pins for all tasks";
                return Err(HttpError::bad_request(message));
            }
        }
        // What runs all tasks is not tried any more.
        None if pinned.is_some()
            && stored(CANARY).and_then(Bson::as_document).and_then(version_in) == pinned =>
        {
            fields.insert(CANARY, Bson::Null);
        }
        Some(_) | None => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_are_stored_with_their_type() {
        let stored = |field, value: Value| control_value(field, &value).unwrap();
        assert_eq!(stored("paused", json!("true")), Bson::Boolean(true));
        assert_eq!(stored("timeout", json!("90")), Bson::Int32(90));
        assert_eq!(stored("grace", json!(0.5)), Bson::Double(0.5));
        assert_eq!(stored("reason", json!("maintenance")), Bson::from("maintenance"));
        let input = bson::doc! { "input": { "name": "data" } };
        assert_eq!(stored("files", json!({"input": {"name": "data"}})), Bson::from(input));
        assert_eq!(stored("files", json!({})), Bson::Null);
        let nodes = bson::doc! { "labels": { "gpu": "yes" }, "names": ["n1"] };
        assert_eq!(stored("nodes", json!({"labels.gpu": "yes", "names": "n1"})), Bson::from(nodes));
        assert_eq!(stored("nodes", json!({"names": []})), Bson::Null);
        assert_eq!(stored("index", json!("params.a")), Bson::from(vec!["params.a"]));
        assert_eq!(stored("index", json!([])), Bson::Null);
        assert_eq!(stored("title", json!("say {a}")), Bson::from("say {a}"));
        assert_eq!(stored("sort", json!("lifo")), Bson::from("lifo"));
        let record = bson::doc! { "share": 0.1, "keep": 30.0 };
        assert_eq!(stored("record", json!({"share": "0.1", "keep": 30})), Bson::from(record));
        assert_eq!(stored("policy", json!("fair")), Bson::from("fair"));
        assert_eq!(stored("scheme", json!("2, 1")), Bson::from(vec![2_i32, 1]));
        assert_eq!(stored("weights", json!({"a": 2})), Bson::from(bson::doc! { "a": 2 }));
        assert_eq!(stored("half_life", json!("60")), Bson::Int32(60));
        assert_eq!(
            stored("rate", json!({"n": "10", "per": 60})),
            Bson::from(bson::doc! { "n": 10, "per": 60 })
        );
    }

    #[test]
    fn wholes_may_be_given_in_parts() {
        assert!(QueueChange::GROUPS.iter().all(|group| field_names::<QueueChange>().contains(group)));
        let of = |fields: Value| gathered(fields.as_object().unwrap()).map(Value::Object);
        let parts = json!({"grace": 1, "backoff.base": "2", "backoff.max": null, "backoff.jitter": ""});
        assert_eq!(of(parts).unwrap(), json!({"grace": 1, "backoff": {"base": "2"}}));
        assert_eq!(of(json!({"retention.delete_after": ""})).unwrap(), json!({"retention": null}));
        assert_eq!(of(json!({"a.b": 1})).unwrap(), json!({"a.b": 1}));
        let both = of(json!({"backoff": {"base": 1}, "backoff.max": 2})).unwrap_err();
        assert_eq!(both.to_string(), "backoff and its parts exclude each other");
        let odd = of(json!({"backoff.bases": 1})).unwrap();
        assert!(control_value("backoff", &odd["backoff"]).is_err());
    }

    #[test]
    fn mistakes_name_the_control() {
        for (field, value) in [
            ("paused", json!("maybe")),
            ("accepting", json!(2)),
            ("sort", json!("sideways")),
            ("on_orphan", json!("retry")),
            ("on_lost_lease", json!(1)),
            ("max_attempts", json!(0)),
            ("backoff", json!([])),
            ("timeout", json!(0)),
            ("grace", json!(-1)),
            ("files", json!([])),
            ("nodes", json!("n1")),
            ("nodes", json!({"labels": "gpu"})),
            ("unleased_limit", json!("x")),
            ("title", json!("x".repeat(201))),
            ("title", json!([])),
            ("retention", json!({"after": 1})),
            ("record", json!({"keep": 1})),
            ("record", json!(true)),
            ("shadow", json!({"queue": "next"})),
            ("rate", json!({"n": 5})),
            ("group_rate", json!(5)),
            ("policy", json!("round robin")),
            ("scheme", json!([1])),
            ("weights", json!({"a": 0})),
            ("group_threads", json!(0)),
            ("share", json!("time")),
            ("half_life", json!(2_592_001)),
            ("reason", json!({})),
        ] {
            let error = control_value(field, &value).unwrap_err();
            assert!(error.to_string().starts_with(&format!("{field} must be ")), "{error}");
        }
    }

    #[test]
    fn what_is_recorded_has_bounds() {
        let error = |value: Value| control_value("record", &value).unwrap_err().to_string();
        assert_eq!(error(json!({"share": 2})), "record.share must be above 0 and at most 1");
        assert_eq!(error(json!({"share": 1, "keep": 0})), "record.keep must be above 0 and at most 3650");
        let shadow = control_value("shadow", &json!({"queue": "next", "share": 0})).unwrap_err().to_string();
        assert_eq!(shadow, "shadow.share must be above 0 and at most 1");
    }
}
