//! Queues: those that there are, new ones, and their end; their groups, and which of their attempts were recorded. What changes of them is
//! in [`super::update_queue`].

use actix_web::http::StatusCode;
use actix_web::web::Data;
use bson::{DateTime, Document, doc};
use disbatch_core::accounts::Role;
use disbatch_core::canary::probability;
use disbatch_core::fair::{GroupFilter, GroupPage, Settings};
use disbatch_core::model::{Canary, Queue};
use disbatch_core::queue::{Counts, new_queue_id};
use disbatch_core::series::Sides;
use disbatch_core::store::StoreError;
use disbatch_wire::bundles::{RecordedAttempt, RecordingSearch};
use disbatch_wire::options::Details;
use disbatch_wire::queues::{self as wire, GroupSearch, QueueGroups};
use serde_json::{Map, Value, json};

use crate::access::{NamedQueue, Who};
use crate::api::{Answer, redirect, update_queue};
use crate::error::HttpError;
use crate::json::Dates;
use crate::openapi::{CreatedQueue, DeleteResult, JSON_OR_FORM, JSON_OR_PAGE, NewQueue, OfRead};
use crate::params::{Lenient, Params};
use crate::state::State;
use crate::{changes, fields, json, legacy, values};

/// All queues that the client may see, with their tasks counted, in the order of the database. Numbers up to 10,000 are counted (up to 1,000 with
/// 20 queues and more); larger ones come from counters and may be a few seconds old. With the option `.details`, also what applies to its tasks.
/// Browsers get the overview.
#[utoipa::path(
    get, path = "/queues", tag = "queues", operation_id = "listQueues",
    params(Details),
    responses(
        (status = 200, description = "All queues; a page if `Accept` asks for HTML.", body = Vec<wire::Queue>,
            content_type = JSON_OR_PAGE),
    ),
)]
pub async fn list(state: Data<State>, who: Who, Lenient(params): Lenient) -> Answer {
    let (queues, details) = (counted(&state, &who).await?, params.is_on("details"));
    json::of(&queues.iter().map(|(queue, counts)| view(queue, *counts, details)).collect::<Vec<_>>())
}

pub async fn counted(state: &State, who: &Who) -> Result<Vec<(Queue, Counts)>, StoreError> {
    let queues = state.store.queues_within(&who.reach(Role::Viewer)).await?;
    let ids = queues.iter().map(|queue| queue.id).collect();
    let counts = state.counts.of(&state.store, ids).await?;
    let with_counts = |queue: Queue| {
        let counts = counts.get(&queue.id).copied().unwrap_or_default();
        (queue, counts)
    };
    Ok(queues.into_iter().map(with_counts).collect())
}

pub fn view(queue: &Queue, counts: Counts, details: bool) -> wire::Queue {
    let stored =
        |name: &str| queue.rest.get(name).map_or(Value::Null, |value| json::from_bson(value, Dates::Text));
    wire::Queue {
        id: queue.id.to_string(),
        name: stored("name"),
        plugin: stored("plugin"),
        threads: stored("threads"),
        queued: counts.queued,
        running: counts.running,
        completed: counts.completed,
        details: if details { fields::of_queue(queue) } else { Map::new() },
    }
}

/// One queue with its tasks counted, by name or id. Numbers beyond 10,000 come from counters, as those of `GET /queues`.
/// With the option `.details` and a rate, `rate_now` is how many tasks it allows to start at once, and in how many seconds
/// the next one where it allows none; and with a canary, `canary_now` is how attempts of both versions have ended since it began: `ended` and
/// `failed`, `others_ended` and `others_failed`, and `p`, how probable that is by chance alone. Browsers get a page.
#[utoipa::path(
    get, path = "/queues/{queue}", tag = "queues", operation_id = "getQueue",
    params(Details),
    responses(
        (status = 200, description = "The queue; a page if `Accept` asks for HTML.", body = wire::Queue, content_type = JSON_OR_PAGE),
    ),
)]
pub async fn get(state: Data<State>, named: NamedQueue, Lenient(params): Lenient) -> Answer {
    let (queue, details) = (find(&state, &named).await?, params.is_on("details"));
    let counts = state.counts.of(&state.store, vec![queue.id]).await?;
    let counts = counts.get(&queue.id).copied().unwrap_or_default();
    let mut view = view(&queue, counts, details);
    if details {
        view.details.extend(allowed(&state, &queue).await?);
        view.details.extend(tried(&state, &queue).await?);
    }
    json::of(&view)
}

async fn allowed(state: &State, queue: &Queue) -> Result<Option<(String, Value)>, HttpError> {
    let standing = state.store.rate_standing(queue, None).await?;
    Ok(standing.map(|standing| {
        let next = standing.next.map(|next| next.as_secs_f64());
        ("rate_now".to_owned(), json!({ "allowed": standing.allowed, "next_in": next }))
    }))
}

async fn tried(state: &State, queue: &Queue) -> Result<Option<(String, Value)>, HttpError> {
    let Some(canary) = Canary::of(queue) else { return Ok(None) };
    let Sides { canary, others } = state.store.canary_sides(queue.id, &canary).await?;
    let now = json!({
        "ended": canary.ended, "failed": canary.failed,
        "others_ended": others.ended, "others_failed": others.failed, "p": probability(canary, others),
    });
    Ok(Some(("canary_now".to_owned(), now)))
}

pub async fn find(state: &State, named: &NamedQueue) -> Result<Queue, HttpError> {
    let queue = state.store.find_queue(&named.selector).await?;
    queue.ok_or_else(|| HttpError::not_found(format!("no queue '{}'", named.name)))
}

/// Creates a queue from `name` and `plugin`, and perhaps `threads` and `sort`. It runs nothing until its `threads` are set.
#[utoipa::path(
    post, path = "/queues", tag = "queues", operation_id = "createQueue",
    request_body(content = NewQueue, content_type = JSON_OR_FORM),
    responses(
        (status = 200, description = "Created.", body = CreatedQueue),
        (status = 400, description = "A parameter is missing or wrong, or the name is taken."),
    ),
)]
pub async fn create(state: Data<State>, who: Who, params: Params) -> Answer {
    let (name, plugin) = checked(&params)?;
    state.check_plugin("Unknown plugin", plugin).await?;
    let mut fields = doc! { "name": json::to_bson(name), "plugin": json::to_bson(plugin) };
    fields.extend(settings(&params)?);
    let id = new_queue_id();
    let created = changes::create_queue(&state, &who, id, fields).await;
    created.map_err(|error| match error.write_failure() {
        Some(failure) if failure.is_duplicate_key() && redirect::is_form(&params) => {
            HttpError::bad_request(NAME_TAKEN)
        }
        Some(failure) if failure.is_duplicate_key() => {
            let body = legacy::duplicate_on_insert(&failure, id.0, name, plugin);
            HttpError::with_body(StatusCode::BAD_REQUEST, legacy::with(body, "id", Value::Null))
        }
        _ => error.into(),
    })?;
    redirect::answer(&params, json::ok(&legacy::created_queue(id.0)))
}

/// What people are told where programs get the structures of Perl's driver.
pub const NAME_TAKEN: &str = "there is a queue with this name already";

fn checked(params: &Params) -> Result<(&Value, &Value), HttpError> {
    let given = |name: &str| params.fields.get(name).filter(|value| legacy::is_true(Some(value)));
    let (Some(name), Some(plugin)) = (given("name"), given("plugin")) else {
        return Err(HttpError::bad_request("name and plugin required"));
    };
    if let Some(param) = params.unknown(disbatch_wire::options::field_names::<NewQueue>()) {
        return Err(HttpError::bad_param("Invalid param", param));
    }
    values::shown_as_written("name", name)?;
    Ok((name, plugin))
}

/// What else a new queue may have: `threads` and `sort`. A field of a form that was left empty is not given.
fn settings(params: &Params) -> Result<Document, HttpError> {
    let given = ["threads", "sort"].into_iter().filter_map(|name| Some((name, params.fields.get(name)?)));
    let given = given.filter(|(_, value)| !values::is_unset(value));
    let stored = |(name, value): (&str, &Value)| {
        // A form has text. Perl stores that of an update as it is; here nothing of Perl's is to be kept.
        let number = value.as_str().and_then(|text| text.parse::<u64>().ok()).map(Value::from);
        let value = number.as_ref().filter(|_| name == "threads").unwrap_or(value);
        Ok((name.to_owned(), update_queue::setting(params, name, value)?))
    };
    given.map(stored).collect()
}

/// Deletes a queue. Its tasks stay.
#[utoipa::path(
    delete, path = "/queues/{queue}", tag = "queues", operation_id = "deleteQueue",
    responses(
        (status = 200, description = "Deleted.", body = DeleteResult),
        (status = 400, description = "There is no such queue."),
    ),
)]
pub async fn remove(state: Data<State>, who: Who, named: NamedQueue) -> Answer {
    let deleted = changes::delete_queue(&state, &who, named.selector).await?;
    let result = legacy::delete_result(deleted);
    if deleted == 0 {
        let body = legacy::with(result, "error", format!("no queue '{}'", named.name));
        return Err(HttpError::with_body(StatusCode::BAD_REQUEST, body));
    }
    Ok(json::ok(&result))
}

/// So many groups are answered unless somebody wants another number.
pub const GROUPS_SHOWN: usize = 100;

/// The groups of a queue in the order of their names: what each has waiting, running and got, and when its next turn is.
/// Groups are those that wait, have tasks running, or had some in the last 90 days. The tasks without a group are one that
/// has no name. Browsers get a page.
#[utoipa::path(
    get, path = "/queues/{queue}/groups", tag = "queues", operation_id = "listGroups",
    params(GroupSearch),
    responses(
        (status = 200, description = "The groups; a page if `Accept` asks for HTML.", body = QueueGroups, content_type = JSON_OR_PAGE),
        (status = 400, description = "An option is wrong."),
        (status = 404, description = "There is no such queue."),
        OfRead,
    ),
)]
pub async fn list_groups(state: Data<State>, named: NamedQueue, params: Params) -> Answer {
    let filter = group_filter(&params)?;
    let queue = find(&state, &named).await?;
    let page = state.store.queue_groups(&queue, &filter).await?;
    json::of(&groups_view(&queue, page))
}

pub fn group_filter(params: &Params) -> Result<GroupFilter, HttpError> {
    // The group without a name is the first one: behind it is everything else.
    let GroupSearch { after, prefix, waiting, limit } = params.known()?;
    let prefix = prefix.filter(|prefix| !prefix.is_empty());
    Ok(GroupFilter { after, prefix, waiting, limit: limit.unwrap_or(GROUPS_SHOWN) })
}

fn groups_view(queue: &Queue, page: GroupPage) -> QueueGroups {
    let (waiting, more_waiting) = page.waiting.parts();
    let settings = Settings::of(queue);
    QueueGroups {
        next: page.rows.last().filter(|_| page.more).map(|row| row.group.clone()),
        groups: page.rows,
        waiting,
        more_waiting,
        round: page.round,
        last: page.last,
        policy: fields::policy(queue).to_owned(),
        share: settings.share.as_str().to_owned(),
        scheme: settings.scheme.as_ref().map(|scheme| scheme.times().to_vec()),
        group_threads: settings.group_threads,
        half_life: settings.half_life().as_secs_f64(),
        weights: queue.rest.get("weights").map(|weights| json::from_bson(weights, Dates::Text)),
    }
}

/// The attempts of a queue that were recorded, the latest first. `GET /tasks/{id}/bundle` with `.attempt` has what is known of each.
#[utoipa::path(
    get, path = "/queues/{queue}/recordings", tag = "queues", operation_id = "listRecordings",
    params(RecordingSearch),
    responses(
        (status = 200, description = "The attempts; none if nothing is recorded.", body = Vec<RecordedAttempt>),
        (status = 400, description = "The option is wrong."),
        (status = 404, description = "There is no such queue."),
        OfRead,
    ),
)]
pub async fn list_recordings(state: Data<State>, named: NamedQueue, params: Params) -> Answer {
    let limit = params.options::<RecordingSearch>()?.limit.unwrap_or(100);
    let queue = find(&state, &named).await?;
    let found = state.store.list_recordings(queue.id, limit).await?;
    let text = |time: DateTime| time.try_to_rfc3339_string().unwrap_or_default();
    let view = found.iter().map(|found| RecordedAttempt {
        task: found.task.to_string(),
        attempt: found.attempt,
        at: text(found.at),
        expires: text(found.expires),
    });
    json::of(&view.collect::<Vec<_>>())
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use disbatch_core::counters::count::Amount;
    use disbatch_wire::queues::QueueGroup;

    use super::*;

    fn of(fields: Value) -> Result<Document, String> {
        let fields = fields.as_object().unwrap().clone();
        settings(&Params { fields, ..Params::default() }).map_err(|error| error.to_string())
    }

    #[test]
    fn threads_and_order_may_come_with_the_queue() {
        assert_eq!(of(json!({ "name": "q", "plugin": "p" })), Ok(doc! {}));
        assert_eq!(of(json!({ "threads": 4, "sort": "fifo" })), Ok(doc! { "threads": 4, "sort": "fifo" }));
        assert_eq!(of(json!({ "threads": "4" })), Ok(doc! { "threads": 4 }), "a form has text");
        assert_eq!(of(json!({ "threads": "", "sort": null })), Ok(doc! {}), "an empty field of a form");
        assert_eq!(of(json!({ "threads": -1 })).unwrap_err(), "threads must be a non-negative integer");
        assert!(of(json!({ "sort": "sideways" })).unwrap_err().starts_with("sort must be "));
    }

    fn params(options: Value) -> Params {
        Params { options: options.as_object().unwrap().clone(), ..Params::default() }
    }

    #[test]
    fn options_say_which_groups() {
        let plain = group_filter(&params(json!({}))).unwrap();
        assert_eq!(plain, GroupFilter { limit: GROUPS_SHOWN, ..GroupFilter::default() });
        let some = json!({ "limit": "7", "after": "", "prefix": "acme/", "waiting": "1" });
        let expected = GroupFilter {
            after: Some(String::new()),
            prefix: Some("acme/".to_owned()),
            waiting: true,
            limit: 7,
        };
        assert_eq!(group_filter(&params(some)).unwrap(), expected);
        for wrong in [json!({"limit": 0}), json!({"limit": 1001}), json!({"limit": "x"})] {
            assert_eq!(group_filter(&params(wrong)).unwrap_err().status(), 400);
        }
    }

    #[test]
    fn groups_are_told_with_what_applies_to_them() {
        let queue = doc! { "_id": ObjectId::new(), "policy": "fair", "scheme": [2, 1] };
        let queue: Queue = bson::deserialize_from_document(queue).unwrap();
        let ann = QueueGroup {
            group: "acme/ann".to_owned(),
            waiting: 1_000,
            more_waiting: true,
            running: 2,
            started: 9,
            finished: 7,
            used: 1.5,
            weight: 3,
            started_ago: None,
            turn_in: Some(1),
            why: "1 turn comes before its next one".to_owned(),
        };
        let (waiting, last) = (Amount::Exactly(5), Some("zoe".to_owned()));
        let page = GroupPage { rows: vec![ann], more: true, waiting, round: 4, last };
        let view = serde_json::to_value(groups_view(&queue, page)).unwrap();
        let told = ["next", "waiting", "round", "last", "policy"].map(|name| view[name].clone());
        assert_eq!(told, [json!("acme/ann"), json!(5), json!(4), json!("zoe"), json!("fair")]);
        let expected = json!({
            "group": "acme/ann", "waiting": 1_000, "more_waiting": true, "running": 2, "started": 9, "finished": 7,
            "used": 1.5, "weight": 3, "started_ago": null, "turn_in": 1, "why": "1 turn comes before its next one",
        });
        assert_eq!(view["groups"], json!([expected]));
    }
}
