//! From the parameters of a request to a bulk job, and from a bulk job to what clients see.

use std::time::Duration;

use actix_web::HttpRequest;
use bson::oid::ObjectId;
use disbatch_core::accounts::Role;
use disbatch_core::bulk::{Action, BulkError, BulkFilter, BulkJob, BulkRequest, Queues};
use disbatch_core::model::{Selector, TaskId};
use disbatch_wire::bulk as wire;
use disbatch_wire::options::field_names;
use serde_json::{Map, Value};

use crate::access::{Sight, Who, may_bulk};
use crate::error::HttpError;
use crate::json::{self, Dates};
use crate::params::Params;
use crate::state::State;
use crate::values::is_unset;
use crate::{changes, legacy, ui, values};

/// A filter has at most so many ids.
const MOST_IDS: usize = 100_000;

pub async fn request(state: &State, params: &Params, http: &HttpRequest) -> Result<BulkRequest, HttpError> {
    let known = ["action", "filter", "reason"];
    let given = |name: &str| params.fields.get(name).filter(|value| !is_unset(value));
    params.only(&[&known[..], keys()].concat())?;
    let action = given("action").and_then(Value::as_str).and_then(Action::named);
    let action = action
        .ok_or_else(|| HttpError::bad_request("action must be one of cancel, retry, archive and delete"))?;
    let mut fields = filter_fields(params)?;
    for name in values::CREATED {
        // A field of a form has a time of the reader's zone.
        if let Some(Value::String(given)) = fields.get_mut(name)
            && let Ok(at) = ui::zone::time(&ui::zone::of(http), name, given)
            && let Some(text) = json::date_text(at)
        {
            *given = format!("{text}Z");
        }
    }
    let who = Who::of(http)?;
    let filter = filter(state, &who, action, &fields).await?;
    let queue = match filter.queue {
        Some(Queues::One(queue)) => Some(queue),
        Some(Queues::All) | None => None,
    };
    let named = fields.get("queue").map(|name| name.as_str().map_or_else(|| name.to_string(), str::to_owned));
    let allowed = may_bulk(&who, Role::Operator, queue, state).await;
    allowed.map_err(|error| error.hidden_as(|| no_queue(&named.unwrap_or_default())))?;
    let reason = match given("reason") {
        None => None,
        Some(Value::String(reason)) => Some(reason.clone()),
        Some(_) => return Err(HttpError::bad_request("reason must be a string")),
    };
    Ok(BulkRequest { action, filter, reason, who: changes::actor(&who), rerun: None })
}

/// The keys of a filter. A form has them among the parameters.
fn keys() -> &'static [&'static str] {
    field_names::<wire::BulkFilter>()
}

/// `filter`, or the parameters of a form that has its keys.
fn filter_fields(params: &Params) -> Result<Map<String, Value>, HttpError> {
    let fields = match params.fields.get("filter") {
        Some(Value::Object(filter)) => filter.clone(),
        Some(value) if !is_unset(value) => {
            return Err(HttpError::bad_request("filter must be an object"));
        }
        _ => Map::new(), // None is given.
    };
    if let Some(param) = fields.keys().find(|name| !keys().contains(&name.as_str())) {
        return Err(HttpError::bad_param("unknown param in filter", param));
    }
    // A program that does not have what it means to say must not act on more than that.
    if let Some((param, _)) = fields.iter().find(|(_, value)| is_unset(value)) {
        let message = format!("filter.{param} is empty: leave it out if it is to restrict nothing");
        return Err(HttpError::bad_request(message));
    }
    let flat = params.fields.iter().filter(|(name, _)| keys().contains(&name.as_str()));
    let all = fields.into_iter().chain(flat.map(|(name, value)| (name.clone(), value.clone())));
    Ok(all.filter(|(_, value)| !is_unset(value)).collect())
}

async fn filter(
    state: &State,
    who: &Who,
    action: Action,
    fields: &Map<String, Value>,
) -> Result<BulkFilter, HttpError> {
    let statuses = fields.get("status").map(statuses).transpose()?.unwrap_or_default();
    let older_than = fields.get("older_than").map(seconds).transpose()?;
    let ids = fields.get("ids").map(ids).transpose()?;
    let node = fields.get("node").map(node).transpose()?;
    let archive = fields.get("archive").map(|value| values::flag("archive", value)).transpose()?;
    let text = |name: &str| fields.get(name).map(|value| values::text(name, value)).transpose();
    let (group, tenant) = (text("group")?, text("tenant")?);
    let [tags, any_tags] = values::TAG_NAMES
        .map(|name| fields.get(name).map(|value| values::wanted_tags(name, value)).transpose());
    let (tags, any_tags) = (tags?.unwrap_or_default(), any_tags?.unwrap_or_default());
    let schedule = match text("schedule")? {
        Some(name) => Some(schedule(state, who, &name).await?),
        None => None,
    };
    let queue = match fields.get("queue") {
        Some(Value::String(name)) => Some(queue(state, name).await?),
        Some(Value::Number(name)) => Some(queue(state, &name.to_string()).await?),
        Some(_) => return Err(HttpError::bad_request("queue must be a name or an id")),
        None => None,
    };
    if queue.is_none() && ids.is_none() {
        return Err(HttpError::bad_request(
            "refusing to act on everything: the filter needs a queue, ids, or {\"queue\":\"*\"} for all queues",
        ));
    }
    if let Some(status) = statuses.iter().find(|status| !action.applies_to(**status)) {
        let message = format!("there is nothing to {} about tasks with status {status}", action.as_str());
        return Err(HttpError::bad_request(message));
    }
    let now = state.store.now();
    let [created_since, created_until] = values::CREATED
        .map(|name| fields.get(name).map(|value| values::moment(name, value, now)).transpose());
    let (created_since, created_until) = (created_since?, created_until?);
    Ok(BulkFilter {
        queue,
        statuses,
        older_than,
        ids,
        node,
        schedule,
        group,
        tenant,
        tags,
        any_tags,
        created_since,
        created_until,
        // What is usual is not stored.
        archive: archive.filter(|archive| !archive),
        ..BulkFilter::default()
    })
}

/// A schedule that has been deleted may still have tasks, so an id need not be one of a schedule that there is. Names of those that somebody may
/// not see are none to them.
pub async fn schedule(state: &State, who: &Who, name: &str) -> Result<ObjectId, HttpError> {
    let selector = Selector::parse(name);
    if let Selector::Id(id) = selector {
        return Ok(id);
    }
    let reach = who.reach(Role::Viewer);
    let (found, sight) =
        futures::try_join!(state.store.find_schedule(&selector), Sight::of(&state.store, &reach))?;
    let found = found.filter(|schedule| sight.sees(Some(schedule.settings.queue)));
    found.map(|schedule| schedule.id.0).ok_or_else(|| HttpError::bad_request(format!("no schedule '{name}'")))
}

fn no_queue(name: &str) -> HttpError {
    HttpError::bad_request(format!("no queue '{name}'"))
}

/// A queue that has been deleted may still have tasks, so an id need not be one of a queue that there is.
async fn queue(state: &State, name: &str) -> Result<Queues, HttpError> {
    if name == "*" {
        return Ok(Queues::All);
    }
    let selector = Selector::parse(name);
    if let Selector::Id(id) = selector {
        return Ok(Queues::One(id.into()));
    }
    let found = state.store.find_queue(&selector).await?;
    let found = found.ok_or_else(|| no_queue(name))?;
    Ok(Queues::One(found.id))
}

/// The values of an array, of text with commas or spaces between them, or of a single one.
fn several(value: &Value) -> Vec<Value> {
    match value {
        Value::Array(values) => values.iter().flat_map(several).collect(),
        Value::String(text) => {
            let words = text.split(|c: char| c == ',' || c.is_whitespace());
            words.filter(|word| !word.is_empty()).map(Value::from).collect()
        }
        single => vec![single.clone()],
    }
}

/// Integers, of which there is at least one.
pub fn statuses(value: &Value) -> Result<Vec<i64>, HttpError> {
    let wrong = || HttpError::bad_request("status must be an integer, or an array of integers");
    let integer = |value: &Value| legacy::integer(value).filter(|_| !value.is_boolean()).ok_or_else(wrong);
    let statuses: Vec<i64> = several(value).iter().map(integer).collect::<Result<_, _>>()?;
    if statuses.is_empty() {
        return Err(HttpError::bad_request(
            "status is empty: leave it out if tasks of all statuses are meant",
        ));
    }
    Ok(statuses)
}

fn seconds(value: &Value) -> Result<Duration, HttpError> {
    let seconds = match value {
        Value::Number(number) => number.as_f64(),
        Value::String(text) => text.trim().parse().ok(),
        _ => None, // Nothing else is a number.
    };
    // Ten thousand years: beyond that the server's arithmetic with times ends.
    let seconds = seconds.filter(|seconds| *seconds <= 315_576_000_000.0);
    seconds
        .and_then(|seconds| Duration::try_from_secs_f64(seconds).ok())
        .ok_or_else(|| HttpError::bad_request("older_than must be a number of seconds"))
}

fn node(value: &Value) -> Result<String, HttpError> {
    value.as_str().map(str::to_owned).ok_or_else(|| HttpError::bad_request("node must be a name"))
}

fn ids(value: &Value) -> Result<Vec<TaskId>, HttpError> {
    let id = |value: &Value| {
        let text = value.as_str().or_else(|| value.get("$oid").and_then(Value::as_str)).unwrap_or_default();
        text.parse::<TaskId>().map_err(|error| HttpError::bad_request(format!("ids: {error}")))
    };
    let ids = several(value).iter().map(id).collect::<Result<Vec<_>, _>>()?;
    if ids.is_empty() || ids.len() > MOST_IDS {
        return Err(HttpError::bad_request(format!("ids must be from 1 to {MOST_IDS} ids of tasks")));
    }
    Ok(ids)
}

/// `.limit`, for answers that are never too long.
pub fn limit(params: &Params, default: i64) -> Result<i64, HttpError> {
    Ok(params.options::<wire::BulkLimit>()?.limit.unwrap_or(default))
}

pub async fn find(state: &State, id: &str) -> Result<BulkJob, HttpError> {
    let id = id_of(id)?;
    state.store.find_bulk(id).await?.ok_or_else(|| not_found(&id.to_hex()))
}

pub fn id_of(id: &str) -> Result<ObjectId, HttpError> {
    ObjectId::parse_str(id).map_err(|_| not_found(id))
}

pub fn not_found(id: &str) -> HttpError {
    HttpError::not_found(format!("no bulk job with id {id}"))
}

/// A job as clients see it. `whole`: with all ids of its filter, in place of their number.
pub fn view(job: &BulkJob, whole: bool) -> wire::BulkJob {
    let filter = if whole { job.filter.clone() } else { job.short_filter() };
    let error = |error: &BulkError| wire::BulkError { id: error.id.to_string(), error: error.error.clone() };
    let time = |at: bson::DateTime| json::from_bson(&at.into(), Dates::Text);
    wire::BulkJob {
        id: job.id.to_hex(),
        action: job.action.as_str().to_owned(),
        filter: plain_ids(Value::Object(json::from_document(&filter, Dates::Text))),
        reason: job.reason.clone(),
        by: job.by.clone(),
        state: job.state.as_str().to_owned(),
        total: job.total,
        done: job.done,
        skipped: job.skipped,
        errors: job.errors.iter().map(error).collect(),
        failure: job.failure.clone(),
        position: job.position.map(ObjectId::to_hex),
        created: time(job.created),
        updated: time(job.updated),
        instance: job.instance.clone(),
        downstream: job.downstream,
    }
}

/// Ids as text: clients give them so, too.
pub fn plain_ids(value: Value) -> Value {
    match value {
        Value::Object(map) if map.len() == 1 && map.contains_key("$oid") => {
            map.into_iter().next().map(|(_, id)| id).unwrap_or_default()
        }
        Value::Object(map) => map.into_iter().map(|(key, value)| (key, plain_ids(value))).collect(),
        Value::Array(items) => items.into_iter().map(plain_ids).collect(),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ID: &str = "6b0003bb686c8275d8013333";

    #[test]
    fn statuses_and_ids_come_in_arrays_and_as_text() {
        for value in [json!([1, -2]), json!("1, -2"), json!(["1", "-2"]), json!("1 -2")] {
            assert_eq!(statuses(&value).unwrap(), [1, -2], "{value}");
        }
        assert_eq!(statuses(&json!(7)).unwrap(), [7]);
        for wrong in [json!(true), json!("a"), json!([1.5]), json!({})] {
            assert_eq!(statuses(&wrong).unwrap_err().status(), 400, "{wrong}");
        }
        for value in [json!([ID]), json!(ID), json!(format!(" {ID}\n")), json!({ "$oid": ID })] {
            assert_eq!(ids(&value).unwrap()[0].to_string(), ID);
        }
        for wrong in [json!([]), json!("x"), json!(5), json!("")] {
            assert_eq!(ids(&wrong).unwrap_err().status(), 400, "{wrong}");
        }
    }

    #[test]
    fn ages_are_seconds() {
        assert_eq!(seconds(&json!(1.5)).unwrap(), Duration::from_millis(1500));
        assert_eq!(seconds(&json!("60")).unwrap(), Duration::from_secs(60));
        for wrong in [json!(-1), json!("1h"), json!(1e300), json!("NaN"), json!([1])] {
            assert_eq!(seconds(&wrong).unwrap_err().status(), 400, "{wrong}");
        }
    }

    #[test]
    fn archived_tasks_are_meant_or_not_and_nothing_between() {
        for yes in [json!(true), json!(1), json!("1"), json!("true")] {
            assert!(values::flag("archive", &yes).unwrap(), "{yes}");
        }
        for no in [json!(false), json!(0), json!("0"), json!("false")] {
            assert!(!values::flag("archive", &no).unwrap(), "{no}");
        }
        for wrong in [json!("no"), json!(2), json!(["0", "1"]), json!({})] {
            assert!(values::flag("archive", &wrong).is_err(), "{wrong}");
        }
        assert_eq!(node(&json!("n")).unwrap(), "n");
        assert_eq!(node(&json!(5)).unwrap_err().status(), 400);
    }

    #[test]
    fn a_form_has_the_keys_of_the_filter_among_its_own() {
        let map = |value: Value| value.as_object().unwrap().clone();
        let params = |fields| Params { fields: map(fields), options: Map::new() };
        let flat = filter_fields(&params(json!({"action": "cancel", "queue": "q", "status": ""}))).unwrap();
        assert_eq!(flat, map(json!({"queue": "q"})));
        let nested = filter_fields(&params(json!({"filter": {"queue": "q", "ids": [ID]}}))).unwrap();
        assert_eq!(nested, map(json!({"queue": "q", "ids": [ID]})));
        assert!(filter_fields(&params(json!({"filter": {"pid": 7}}))).is_err());
        assert!(filter_fields(&params(json!({"filter": "queue"}))).is_err());
    }
}
