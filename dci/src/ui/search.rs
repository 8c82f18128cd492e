//! `GET /search`: one field for everything that has a name or an id. Pages have it as JSON for their palette, and without script it is a page.

use actix_web::HttpRequest;
use actix_web::web::Data;
use askama::Template;
use bson::oid::ObjectId;
use bson::{Document, doc};
use disbatch_core::accounts::Role;
use disbatch_core::gates::LockFilter;
use disbatch_core::model::{ArrayId, Queue, QueueId, Selector, TaskId};
use disbatch_core::schedules::ScheduleQuery;
use futures::TryFutureExt;
use serde::Serialize;
use serde_json::json;

use crate::access::Who;
use crate::api::{Answer, redirect};
use crate::error::HttpError;
use crate::openapi::JSON_OR_PAGE;
use crate::params::Lenient;
use crate::state::State;
use crate::ui::names::{encoded, label, place_of};
use crate::ui::{self, plain, text};
use crate::{accept, gates, json};

const MOST: usize = 20;

/// So many locks are looked at; what they are called begins with what is looked for.
const MOST_LOCKS: i64 = 10;

const MOST_SCHEDULES: i64 = 1_000;

/// What is looked for has so many characters at most.
const LONGEST: usize = 200;

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct SearchHit {
    /// What it is: `queue`.
    kind: &'static str,
    name: String,
    place: String,
}

impl SearchHit {
    fn of(kind: &'static str, name: String) -> Self {
        Self { kind, place: format!("/{kind}s/{}", encoded(&name)), name }
    }
}

#[derive(Template)]
#[template(path = "search.html")]
struct SearchPage<'a> {
    wanted: &'a str,
    found: &'a [SearchHit],
    /// Where tasks are searched for the same.
    tasks: &'a str,
}

/// What has a name like `q`, or the id `q`: queues, schedules, nodes, locks, tasks and arrays that the client may see. A page leads on by itself to the only
/// thing that is meant, and where there is nothing to tasks whose parameters have the text.
#[utoipa::path(
    get, path = "/search", tag = "service", operation_id = "search",
    params(("q" = Option<String>, Query, description = "A part of a name, its characters in order, or an id. Of a lock how its name begins, in the same case.", example = "mail")),
    responses(
        (status = 200, description = "What was found, the best first; a page if `Accept` asks for HTML.", body = Value,
            content_type = JSON_OR_PAGE, example = json!({"found": [{"kind": "queue", "name": "mail", "place": "/queues/mail"}]})),
        (status = 303, description = "For a page: where what is meant is."),
    ),
)]
pub async fn handle(request: HttpRequest, state: Data<State>, who: Who, Lenient(params): Lenient) -> Answer {
    let given = text(params.fields.get("q"));
    let wanted: String = given.trim().chars().take(LONGEST).collect();
    let found = find(&state, &who, &wanted).await;
    if !accept::wants_html(&request) {
        return Ok(json::ok(&json!({ "found": found? })));
    }
    let found = match found {
        Ok(found) => found,
        Err(error) => return Ok(ui::page(Err(error))),
    };
    let tasks = format!("/tasks?.text={}", encoded(&wanted));
    Ok(match meant(&wanted, &found, &tasks) {
        Some(next) => redirect::see(next),
        None => {
            let page = SearchPage { wanted: &wanted, found: &found, tasks: &tasks };
            ui::page(ui::render(&page))
        }
    })
}

/// The address of the only thing that can be meant.
fn meant<'a>(wanted: &str, found: &'a [SearchHit], tasks: &'a str) -> Option<&'a str> {
    match found {
        [] if !wanted.is_empty() => Some(tasks),
        [one] if one.name.to_lowercase() == wanted.to_lowercase() => Some(&one.place),
        _ => None,
    }
}

async fn find(state: &State, who: &Who, wanted: &str) -> Result<Vec<SearchHit>, HttpError> {
    match ObjectId::parse_str(wanted) {
        _ if wanted.is_empty() => Ok(Vec::new()),
        Ok(id) => with_id(state, who, id).await,
        Err(_) => with_name(state, who, wanted).await,
    }
}

async fn with_id(state: &State, who: &Who, id: ObjectId) -> Result<Vec<SearchHit>, HttpError> {
    let (store, reach, selector) = (&state.store, who.reach(Role::Viewer), Selector::Id(id));
    let (task, array, schedule, node, queues) = futures::try_join!(
        store.find_task_fields(TaskId(id), doc! { "queue": 1, "tenant": 1 }),
        store.find_array(ArrayId(id)),
        store.find_schedule(&selector),
        store.find_node(&selector),
        store.queues_within(&reach),
    )?;
    let is_everywhere = who.is_everywhere(Role::Viewer);
    let sees = |queue: QueueId| is_everywhere || queues.iter().any(|known| known.id == queue);
    let sees_task = |task: &Document| {
        let of_tenant = |tenant: &str| reach.tenants().contains(&tenant);
        is_everywhere
            || task.get_object_id("queue").is_ok_and(|queue| sees(QueueId(queue)))
            || task.get_str("tenant").is_ok_and(of_tenant)
    };
    let known = [
        ("task", task.is_some_and(|task| sees_task(&task))),
        ("array", array.is_some_and(|array| sees(array.queue))),
        ("schedule", schedule.is_some_and(|schedule| sees(schedule.settings.queue))),
        ("queue", queues.iter().any(|queue| queue.id.0 == id)),
        ("node", is_everywhere && node.is_some()),
    ];
    let is_there = known.into_iter().filter(|(_, is_there)| *is_there);
    Ok(is_there.map(|(kind, _)| SearchHit::of(kind, id.to_hex())).collect())
}

async fn with_name(state: &State, who: &Who, wanted: &str) -> Result<Vec<SearchHit>, HttpError> {
    let (store, reach) = (&state.store, who.reach(Role::Viewer));
    let schedules = ScheduleQuery { reach: reach.clone(), limit: MOST_SCHEDULES, ..ScheduleQuery::default() };
    let nodes = async {
        if who.is_everywhere(Role::Viewer) { Ok(store.list_nodes().await?) } else { Ok(Vec::new()) }
    };
    let locks = async {
        let filter = LockFilter { prefix: Some(wanted.to_owned()), after: None };
        gates::locks(state, &gates::sight(state, who).await?, &(filter, MOST_LOCKS)).await
    };
    let (queues, schedules, nodes, locks) = futures::try_join!(
        store.queues_within(&reach).err_into::<HttpError>(),
        store.list_schedules(&schedules).err_into(),
        nodes,
        locks,
    )?;
    let queue = |queue: &Queue| SearchHit { kind: "queue", name: label(queue), place: place_of(queue) };
    let found = queues.iter().map(queue);
    let found = found
        .chain(schedules.into_iter().map(|schedule| SearchHit::of("schedule", schedule.settings.name)))
        .chain(nodes.iter().map(|node| SearchHit::of("node", plain(node.get("node")))))
        .chain(locks.into_iter().map(|lock| SearchHit::of("lock", lock.name)));
    Ok(best(found, wanted))
}

/// Those that fit, the best first, and of those that fit as well the shortest name.
fn best(all: impl Iterator<Item = SearchHit>, wanted: &str) -> Vec<SearchHit> {
    let wanted = wanted.to_lowercase();
    let fitting = all.filter_map(|found| Some((rank(&found.name.to_lowercase(), &wanted)?, found)));
    let mut fitting: Vec<(u8, SearchHit)> = fitting.collect();
    fitting.sort_by_key(|(rank, found)| (*rank, found.name.len()));
    fitting.into_iter().map(|(_, found)| found).take(MOST).collect()
}

/// How well a name fits, the lower the better. The palette has the same for what is on the page (`assets/app/palette.js`).
fn rank(name: &str, wanted: &str) -> Option<u8> {
    let mut words = name.split(|c: char| !c.is_alphanumeric());
    let mut rest = name.chars();
    let ways = [
        name == wanted,
        name.starts_with(wanted),
        words.any(|word| word.starts_with(wanted)),
        name.contains(wanted),
        wanted.chars().all(|c| rest.any(|other| other == c)),
    ];
    (0..).zip(ways).find_map(|(rank, fits)| fits.then_some(rank))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(names: &[&str]) -> Vec<SearchHit> {
        let found = |name: &&str| SearchHit {
            kind: "queue",
            name: (*name).to_owned(),
            place: format!("/queues/{name}"),
        };
        names.iter().map(found).collect()
    }

    #[test]
    fn names_that_fit_best_come_first() {
        let all = found(&["bulk-mail", "hotmail", "Mail", "mailing", "m-a-i-l", "other"]);
        let best = best(all.into_iter(), "MAIL");
        let names: Vec<&str> = best.iter().map(|found| found.name.as_str()).collect();
        assert_eq!(names, ["Mail", "mailing", "bulk-mail", "hotmail", "m-a-i-l"]);
    }

    #[test]
    fn what_can_only_be_meant_is_where_it_leads() {
        let leads =
            |wanted: &str, names: &[&str]| meant(wanted, &found(names), "/tasks?.text=x").map(str::to_owned);
        assert_eq!(leads("MAIL", &["mail"]), Some("/queues/mail".into()));
        assert_eq!(leads("x", &[]), Some("/tasks?.text=x".into()));
        assert_eq!(
            [leads("mai", &["mail"]), leads("mail", &["mail", "mail2"]), leads("", &[])],
            [const { None }; 3]
        );
    }

    #[test]
    fn it_is_said_that_of_locks_the_beginning_is_wanted() {
        // Those of a part in the middle would have to be read all.
        let html = SearchPage { wanted: "", found: &[], tasks: "" }.render().unwrap();
        assert!(html.contains("locks by how their names begin"), "{html}");
    }

    #[test]
    fn what_was_found_is_text() {
        let all = found(&["<b>"]);
        let page = SearchPage { wanted: "<i>", found: &all, tasks: "/tasks?.text=%3Ci%3E" };
        let html = page.render().unwrap();
        for part in ["&#60;b&#62;", "value=\"&#60;i&#62;\"", "href=\"/tasks?.text=%3Ci%3E\""] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<b>") && !html.contains("<i>"), "{html}");
    }
}
