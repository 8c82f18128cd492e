//! What happens and has happened: events of one task or of all, what people did, what a moment of the past was like, and counters of tasks
//! with their audit.

use actix_web::HttpRequest;
use actix_web::http::{Method, StatusCode};
use actix_web::web::{Data, Path};
use disbatch_core::accounts::{Reach, Role};
use disbatch_core::counters::Totals;
use disbatch_core::model::{Queue, QueueId, Selector};
use disbatch_core::observe::{FeedError, FeedFilter, Position};
use disbatch_core::schedules::Zone;
use disbatch_wire::history::{AuditEntry, AuditSearch, Moment, MomentSearch};
use disbatch_wire::history::{EventSearch, TaskEvent};
use disbatch_wire::liberal;
use disbatch_wire::options::field_names;
use serde_json::{Map, Value, json};

use crate::access::Who;
use crate::api::{Answer, task_actions};
use crate::error::HttpError;
use crate::events::{Events, Followed, Resume};
use crate::json::Dates;
use crate::openapi::{EventStream, JSON_OR_PAGE, OfRead};
use crate::params::{Lenient, Params};
use crate::state::State;
use crate::{bulk, changes, events, history, json, ui, values};

/// What happens to a task, as Server-Sent Events, each with JSON as its data:
///
/// `status` comes first and at every change: `status`, `word`, `attempt`, `ended`, `node`, `mtime`.
/// `progress` is what the plugin says: `percent`, `message`, `at`. `output` is what it writes: `attempt`,
/// `stream`, `offset` in bytes, `text`; bytes that are not UTF-8 are replaced, and a line stands for `missing`
/// bytes that are not kept. `end`, with the keys of `status`, is the last one.
///
/// When a task is tried again, the events go on with the next attempt. A client that comes back with
/// `Last-Event-ID`, or the same as the option `.resume`, gets the output from there on.
#[utoipa::path(
    get, path = "/tasks/{id}/events", tag = "tasks", operation_id = "getEvents",
    params(
        ("id" = String, Path, description = "The task's id."),
        (
            "Last-Event-ID" = Option<String>, Header, example = "attempt:1,stdout:123,stderr:0",
            description = "The id of the last `output` that the client has.",
        ),
        (
            ".resume" = Option<String>, Query, example = "attempt:1,stdout:123,stderr:0",
            description = "The same, for clients that cannot set the header, which goes before it.",
        ),
    ),
    responses(EventStream),
)]
pub async fn of_task(
    request: HttpRequest,
    state: Data<State>,
    id: Path<String>,
    Lenient(params): Lenient,
) -> Answer {
    let task = task_actions::task_id(&id)?;
    // Interest is registered before the first look, so that no change is missed.
    let waiter = state.watch.wait_for(task, &state.store);
    state.store.observe_task(task).await?.ok_or_else(|| task_actions::not_found(&id))?;
    let mut response = events::response();
    if request.method() == Method::HEAD {
        return Ok(response.finish());
    }
    let last = request.headers().get("Last-Event-ID").and_then(|id| id.to_str().ok());
    let asked = params.options.get("resume").and_then(Value::as_str);
    let resume = last.and_then(Resume::parse).or_else(|| asked.and_then(Resume::parse));
    Ok(response.streaming(Events::new(state, waiter, task, resume).stream()))
}

/// What happens to tasks, as Server-Sent Events, from now on: `status` at each change of a task's status, and `end` in its place when
/// the task is over. No change is left out, and those of one task come in their order. Viewers of some queues get what happens in these.
///
/// A client that comes back with `Last-Event-ID`, or the same as `.after`, gets what happened since, for as long as the database keeps
/// it (its oplog). Connections are closed after an hour, and when the server stops: come back then. An id without data comes at once,
/// and every 15 s while nothing happens. A client may get an event twice, but not one less.
#[utoipa::path(
    get, path = "/events", tag = "tasks", operation_id = "followEvents",
    params(
        EventSearch,
        ("Last-Event-ID" = Option<String>, Header, description = "The last id that the client has."),
    ),
    responses(
        (status = 200, description = "The events; the data of each is a `TaskEvent`.", body = TaskEvent, content_type = "text/event-stream"),
        (status = 400, description = "A parameter is wrong, or there is no such event."),
        (status = 410, description = "What happened after this event is no longer kept."),
        (status = 501, description = "The database is no replica set, so it keeps no log of changes."),
        OfRead,
    ),
)]
pub async fn follow(request: HttpRequest, state: Data<State>, who: Who, params: Params) -> Answer {
    let place = events::place()?;
    let (filter, after) = read(&state, &who, &params).await?;
    let last =
        request.headers().get("Last-Event-ID").and_then(|id| id.to_str().ok()).filter(|id| !id.is_empty());
    let position = match last.map(str::to_owned).or(after) {
        Some(id) => Some(Position::parse(&id).ok_or_else(|| HttpError::from(FeedError::Position))?),
        None => None,
    };
    let feed = state.store.feed(&filter, position).await?;
    let mut response = events::response();
    if request.method() == Method::HEAD {
        return Ok(response.finish());
    }
    let reach = who.reach(Role::Viewer);
    Ok(response.streaming(Followed::new(state, feed, reach, place).stream()))
}

async fn read(state: &State, who: &Who, params: &Params) -> Result<(FeedFilter, Option<String>), HttpError> {
    let search = params.search::<EventSearch>()?;
    let reach = who.reach(Role::Viewer);
    let names = search.queue.as_ref().map(liberal::list);
    let known = match names.is_some() || reach != Reach::All {
        true => state.store.queues_within(&reach).await?,
        false => Vec::new(),
    };
    let id = |name: &String| match Selector::parse(name) {
        // One that has been deleted may still have tasks.
        Selector::Id(id) => Ok(QueueId(id)),
        Selector::Name(_) => {
            let found = known.iter().find(|queue| queue.display_name() == *name);
            found.map(|queue| queue.id).ok_or_else(|| HttpError::bad_request(format!("no queue '{name}'")))
        }
    };
    let queues = names.map(|names| names.iter().map(id).collect::<Result<_, _>>()).transpose()?;
    let within = (reach != Reach::All).then(|| {
        let tenants = reach.tenants().into_iter().map(str::to_owned).collect();
        (known.iter().map(|queue| queue.id).collect(), tenants)
    });
    let schedule = match &search.schedule {
        Some(name) => Some(bulk::schedule(state, who, &name.0).await?),
        None => None,
    };
    let filter = FeedFilter {
        queues,
        within,
        statuses: search.status.as_ref().map(bulk::statuses).transpose()?.unwrap_or_default(),
        ended: search.ended.is_some_and(|flag| flag.0),
        schedule,
        group: search.group.map(|group| group.0),
        tenant: search.tenant.map(|tenant| tenant.0),
        tags: values::tag_filter(search.tags.as_ref(), search.any_tags.as_ref())?,
    };
    Ok((filter, search.after.map(|after| after.0)))
}

impl From<FeedError> for HttpError {
    fn from(error: FeedError) -> Self {
        match error {
            FeedError::Lost => {
                Self::gone(format!("{error}: ask GET /tasks what there is, and follow without an id"))
            }
            FeedError::Position => Self::bad_request(error.to_string()),
            FeedError::Store(error) if error.has_no_change_streams() => Self::new(
                StatusCode::NOT_IMPLEMENTED,
                "the database is no replica set: it keeps no log of changes, so events cannot be followed",
            ),
            FeedError::Store(error) => error.into(),
        }
    }
}

/// So many entries unless told otherwise.
const DEFAULT_LIMIT: i64 = 100;

/// Who did what to which object, when and from where, the latest first. Browsers get a page. All that is asked for must be
/// so. The next entries are those `.after` the `key` of the last one.
#[utoipa::path(
    get, path = "/audit", tag = "service", operation_id = "listAudit",
    params(AuditSearch),
    responses(
        (status = 200, description = "The entries; a page if `Accept` asks for HTML.", body = Vec<AuditEntry>, content_type = JSON_OR_PAGE),
        (status = 400, description = "A parameter is wrong, or the search takes too long."),
    ),
)]
pub async fn audit(state: Data<State>, mut params: Params) -> Answer {
    params.only(field_names::<AuditSearch>())?;
    history::name_queue(&state.store, &mut params).await?;
    let limit = usize::try_from(bulk::limit(&params, DEFAULT_LIMIT)?).unwrap_or(usize::MAX);
    let found = state.store.find_audit(&history::audit_query(&params, limit, &Zone::default())?).await?;
    let too_long = "the search takes too long: leave out a condition, or look for what is there more often";
    let found = found.ok_or_else(|| HttpError::bad_request(too_long))?;
    Ok(json::ok(&found.rows.iter().map(history::audit_view).collect()))
}

/// What ran and waited at a moment of the past, what limits held, and what happened around it: tasks that ended badly, nodes that came and went,
/// what people changed (for admins), and what schedules made, on one time line. Browsers get a page. Of nodes it is told to those who see all
/// queues.
///
/// It is told from what is kept anyway. What is not known, or was too much to read, is in `gaps`.
#[utoipa::path(
    get, path = "/moments", tag = "service", operation_id = "getMoment",
    params(MomentSearch),
    responses(
        (status = 200, description = "What is known; a page if `Accept` asks for HTML.", body = Moment, content_type = JSON_OR_PAGE),
        (status = 400, description = "A parameter is wrong."),
        (status = 404, description = "There is no such queue."),
    ),
)]
pub async fn moment(state: Data<State>, who: Who, params: Params) -> Answer {
    params.only(field_names::<MomentSearch>())?;
    let asked = history::asked_moment(&state, &who, &params, &Zone::default()).await?;
    let past = state.store.moment(&asked.question).await?;
    json::of(&history::moment_view(&asked.question, &past, &ui::names::names(&asked.queues)))
}

/// The counters of all queues by status, without the statuses -1 and 0, which are always counted; null for a queue that no
/// audit has come to yet. `audit` tells of the last audit of all queues: when it began, by how many tasks counters had
/// drifted and were corrected, how many queues it looked at, and for how many milliseconds it counted.
#[utoipa::path(
    get, path = "/counters", tag = "service", operation_id = "listCounters",
    responses(
        (
            status = 200, description = "The counters.", body = Value,
            example = json!({
                "audit": {"at": "2026-11-20T08:24:27", "corrected": 0, "counting_ms": 3, "queues": 1},
                "queues": [{"counters": {"-2": 17, "1": 5}, "id": "6b0003bb686c8275d70dc2f1", "name": "mail"}],
            }),
        ),
    ),
)]
pub async fn counters(state: Data<State>) -> Answer {
    let queues = state.store.list_queues().await?;
    let totals = state.store.read_counters().await?.unwrap_or_default();
    let audit = &totals.audit;
    let at = audit.at.map(|at| json::from_bson(&at.into(), Dates::Text));
    Ok(json::ok(&json!({
        "audit": at.map(|at| json!({
            "at": at, "corrected": audit.corrected, "queues": audit.queues, "counting_ms": audit.counting_ms,
        })),
        "queues": queues.iter().map(|queue| totals_view(queue, &totals)).collect::<Vec<_>>(),
    })))
}

fn totals_view(queue: &Queue, totals: &Totals) -> Value {
    let counters = totals.by_status(queue.id).map(|tasks| {
        let some = tasks.iter().filter(|(_, tasks)| **tasks != 0);
        some.map(|(status, tasks)| (status.to_string(), Value::from(*tasks))).collect::<Map<_, _>>()
    });
    json!({ "id": queue.id.to_string(), "name": queue.display_name(), "counters": counters })
}

/// Asks for an audit of all counters, which a DEN makes within seconds. `GET /counters` tells when it has.
#[utoipa::path(
    post, path = "/counters/audit", tag = "service", operation_id = "auditCounters",
    responses((status = 200, description = "Asked for.", body = Object, example = json!({"asked": true}))),
)]
pub async fn audit_counters(state: Data<State>, who: Who) -> Answer {
    changes::audit_counters(&state, &who).await?;
    Ok(json::ok(&json!({ "asked": true })))
}
