//! `GET /tasks` for people: a search, the tasks that it finds, and what can be done to them. The address is the search.

mod actions;
pub(in crate::ui) mod columns;
mod find;
mod search;
pub mod statuses;

use std::collections::{BTreeSet, HashMap};

use actix_web::http::StatusCode;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use askama::filters::HtmlSafe;
use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};
use disbatch_core::accounts::{Reach, Role};
use disbatch_core::bulk::Action;
use disbatch_core::model::{Queue, Selector, TaskId};
use disbatch_core::schedules::Zone;
use futures::TryStreamExt;
use serde_json::Value;

use crate::access::Who;
use crate::error::HttpError;
use crate::openapi::{EventStream, OfFixed};
use crate::params::{Lenient, Params};
use crate::query::Refusal;
use crate::state::State;
use crate::ui::live::{self, Part};
use crate::ui::names::{QueueNames, address, names};
use crate::ui::{self, Rendered, parts, text, zone};
use actions::Actions;
use columns::{Column, Row, Table};
use find::{Plan, ResultPage};
use search::{Chip, Search};
use statuses::{Tally, words};

pub use actions::title;
pub use search::{tags_of, time_field};

pub use columns::{MOST_BYTES, TOO_LARGE, params as params_of, unless_large};

/// So many rows change by themselves. Their ids are in the address of what tells it.
const MOST_LIVE: usize = 100;

#[derive(Template)]
#[template(path = "tasks.html")]
struct TasksPage<'a> {
    search: &'a Search,
    queues: &'a [Queue],
    others: Vec<(String, String)>,
    chips: Vec<Chip>,
    tally: Tally,
    created: Vec<search::CreatedChoice>,
    message: Option<String>,
    result: Option<SearchResult>,
}

struct SearchResult {
    table: Table,
    count: Option<String>,
    /// How many tasks were looked at for what params contain, and how many there are, for people; nothing if that is not known.
    looked_at: Option<u64>,
    of_all: String,
    actions: Actions,
    previous: String,
    next: String,
    is_first: bool,
    /// Where the changes are told; nothing if they are not.
    live: String,
    newer: Newer,
}

#[derive(Debug, Template)]
#[template(path = "tasks/newer.html")]
struct Newer {
    there: bool,
    first: String,
}

impl HtmlSafe for Newer {}

pub fn html_of(task: &Document) -> Result<String, HttpError> {
    let row = Row::of(task, &Column::ALL, &QueueNames::new(), "");
    ui::html(&Table { columns: Column::ALL.to_vec(), rows: vec![row] })
}

pub async fn render(state: Data<State>, who: Who, params: Params) -> Rendered {
    let reach = who.reach(Role::Viewer);
    let (queues, indexes) =
        futures::try_join!(state.store.queues_within(&reach), state.store.task_index_fields())?;
    let titles = state.titles(&queues).await?;
    let params = &named(&params, &queues);
    let (search, names, now) = (Search::of(params), names(&queues), state.store.now());
    let find = async {
        let plan = Plan::of((&search, params), &indexes, &queues, &titles, now).map_err(in_words)?;
        let plan = if reach == Reach::All { plan } else { plan.within(&queues, &reach) };
        plan.find(&state.store).await.map_err(HttpError::from_search)
    };
    let (found, tally) = futures::join!(find, tally(&state, &search, &queues, &reach));
    let (status, message, found) = match found {
        Ok(found) => (StatusCode::OK, None, Some(found)),
        Err(error) if error.status() != StatusCode::BAD_REQUEST => return Err(error),
        Err(error) => (error.status(), Some(error.message().to_owned()), None),
    };
    let others = indexes.iter().flatten().filter(|name| *name != "_id" && !search::is_usual(name));
    let page = TasksPage {
        chips: search.chips(&names),
        tally: tally?,
        created: search.created.choices(|created| Search { created, ..search.clone() }.address(None)),
        message,
        result: found.map(|found| shown(&search, found, &names, now)),
        others: of_others(&search, others.cloned().collect()),
        queues: &queues,
        search: &search,
    };
    ui::render_with(status, &page)
}

/// The choice of statuses. Whoever sees tasks of tenants sees some of queues that are not theirs, and no counts.
async fn tally(state: &State, search: &Search, queues: &[Queue], reach: &Reach) -> Result<Tally, HttpError> {
    match search.created.between(state.store.now()) {
        Ok(created) if reach.tenants().is_empty() => {
            Ok(Tally::find(&state.store, search, created, queues).await?)
        }
        _ => Ok(Tally::of(search, &[])),
    }
}

/// What of the page changes, as Server-Sent Events: each message has elements that take the place of those with the
/// same ids. The parameters are those of the page; the option `.ids` names the tasks that it shows.
#[utoipa::path(
    get, path = "/ui/tasks", tag = "service", operation_id = "tasksEvents",
    params((".ids" = Option<String>, Query, description = "Ids with commas between them.")),
    responses(EventStream, OfFixed),
)]
pub async fn live(request: HttpRequest, state: Data<State>, Lenient(params): Lenient) -> HttpResponse {
    live::of_search(&request, &state, ("tasks", params), changes)
}

async fn changes(state: &State, params: &Params) -> Result<Vec<Part>, HttpError> {
    let ids = words(&text(params.options.get("ids")));
    let ids: Vec<TaskId> = ids.iter().filter_map(|id| id.parse().ok()).take(MOST_LIVE).collect();
    let (queues, indexes) = futures::try_join!(state.store.list_queues(), state.store.task_index_fields())?;
    let titles = state.titles(&queues).await?;
    let params = &named(params, &queues);
    let search = Search::of(params);
    let (names, hit) = (names(&queues), search.text.to_lowercase());
    let projection = Some(Column::projection(&search.columns));
    let mut tasks = state.store.stream_page(&ids, doc! {}, projection).await?;
    let mut rows: HashMap<ObjectId, Row> = HashMap::new();
    while let Some(task) = tasks.try_next().await? {
        if let Ok(id) = task.get_object_id("_id") {
            rows.insert(id, Row::of(&task, &search.columns, &names, &hit).called(titles.of_task(&task)));
        }
    }
    let gone: Vec<TaskId> = ids.iter().filter(|id| !rows.contains_key(&id.0)).copied().collect();
    // After `tasks`: a task leaves these only when it is in the archive.
    let archived = state.store.archived_of(&gone).await?;
    // What is made for everybody is not in the zone of a reader, save its days.
    let days = Zone::named(&text(params.options.get("zone"))).unwrap_or_default();
    let counted = zone::within(days.clone(), tally(state, &search, &queues, &Reach::All)).await?;
    let mut parts = vec![Part::new(&counted)?];
    for TaskId(id) in &ids {
        let row =
            rows.remove(id).unwrap_or_else(|| Row::of_gone(*id, &search.columns, archived.contains(id)));
        parts.push(Part::new(&row)?);
    }
    if params.is_on("newest") {
        let now = state.store.now();
        let plan = async { Plan::of((&search, params), &indexes, &queues, &titles, now) };
        let plan = zone::within(days, plan).await.map_err(in_words)?;
        let there = plan.has_newer(&state.store, ids.first().copied()).await?;
        parts.push(Part::new(&Newer { there, first: search.address(None) })?);
    }
    Ok(parts)
}

/// The parameters with the id of the queue in the place of its name.
pub fn named(params: &Params, queues: &[Queue]) -> Params {
    let mut params = params.clone();
    if let Some(Value::String(name)) = params.fields.get_mut("queue")
        && let Selector::Name(given) = Selector::parse(name.trim())
        && let Some(queue) = queues.iter().find(|queue| queue.display_name() == given)
        && !given.is_empty()
    {
        *name = queue.id.to_string();
    }
    params
}

fn usual(search: &Search) -> String {
    Column::usual(&search.statuses).into_iter().map(Column::name).collect::<Vec<_>>().join(",")
}

fn in_words(refusal: Refusal) -> HttpError {
    match refusal {
        Refusal::NotIndexed { invalid, .. } => HttpError::bad_request(format!(
            "There is no index for {} with these other fields, so that all tasks would have to be read. Search by queue, node or id, \
             or say what the params contain.",
            invalid.join(" and ")
        )),
        refusal => refusal.into(),
    }
}

fn of_others(search: &Search, names: BTreeSet<String>) -> Vec<(String, String)> {
    let given = |name: String| {
        let value = search.others.iter().find(|(known, _)| *known == name);
        (name, value.map(|(_, value)| value.clone()).unwrap_or_default())
    };
    names.into_iter().map(given).collect()
}

fn shown(search: &Search, found: ResultPage, names: &QueueNames, now: DateTime) -> SearchResult {
    let ids: Vec<&str> = found.rows.iter().map(|row| row.id.as_str()).collect();
    let is_live = ids.len() <= MOST_LIVE && !search.archive && (found.is_newest || !ids.is_empty());
    let live = if is_live {
        let mut pairs = search.pairs();
        pairs.push((".ids".to_owned(), ids.join(",")));
        if !search.created.is_any() {
            pairs.push((".zone".to_owned(), zone::name()));
        }
        if found.is_newest {
            pairs.push((".newest".to_owned(), "1".to_owned()));
        }
        address("/ui/tasks", pairs)
    } else {
        String::new()
    };
    let place = |place: Option<_>| place.map(|place| search.address(Some(place))).unwrap_or_default();
    let count = found.count.map(|count| count.parse::<u64>().map_or(count, parts::grouped));
    SearchResult {
        actions: Actions::of(search, count.as_deref(), names, now),
        looked_at: found.looked_at.map(|tasks| tasks as u64),
        of_all: found.of_all.map(|all| all.parse::<u64>().map_or(all, parts::grouped)).unwrap_or_default(),
        previous: place(found.previous),
        next: place(found.next),
        is_first: found.is_first,
        newer: Newer { there: false, first: search.address(None) },
        count,
        table: Table { columns: search.columns.clone(), rows: found.rows },
        live,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const QUEUE: &str = "6b0003bb686c8275d70dc2f1";
    const TASK: &str = "6b0003bb686c8275d8013333";

    fn search(fields: Value, options: Value) -> Search {
        let map = |value: Value| value.as_object().unwrap().clone();
        Search::of(&Params { fields: map(fields), options: map(options) })
    }

    fn queue() -> Queue {
        let id = ObjectId::parse_str(QUEUE).unwrap();
        bson::deserialize_from_document(doc! { "_id": id, "name": "q<1>" }).unwrap()
    }

    fn row() -> Row {
        let task = doc! {
            "_id": ObjectId::parse_str(TASK).unwrap(), "queue": ObjectId::parse_str(QUEUE).unwrap(),
            "status": 1, "node": "vm", "params": { "text": "<x>".repeat(99) }, "stdout": null,
        };
        Row::of(&task, &Column::USUAL, &names(&[queue()]), "")
    }

    fn page(search: Search, message: Option<&str>, found: Option<ResultPage>) -> String {
        let queues = [queue()];
        let (names, now) = (names(&queues), DateTime::from_millis(1_795_163_067_344));
        let page = TasksPage {
            chips: search.chips(&names),
            tally: Tally::of(&search, &[]),
            created: search.created.choices(|created| Search { created, ..search.clone() }.address(None)),
            message: message.map(str::to_owned),
            result: found.map(|found| shown(&search, found, &names, now)),
            others: of_others(&search, ["params.<to>".to_owned()].into()),
            queues: &queues,
            search: &search,
        };
        page.render().unwrap()
    }

    #[test]
    fn the_page_lists_tasks_and_turns_pages() {
        let found = ResultPage {
            rows: vec![row()],
            previous: Some(("skip", "4".into())),
            next: Some(("after", TASK.into())),
            count: Some("1234".into()),
            is_newest: true,
            ..ResultPage::default()
        };
        let search =
            search(json!({"queue": QUEUE, "status": ["1", "2"], "params.<to>": "\"me\""}), json!({}));
        let html = page(search, Some("careful & slow"), Some(found));
        for part in [
            "/tasks/6b0003bb686c8275d8013333",
            "q&#60;1&#62;",
            "succeeded",
            "careful &#38; slow",
            "…",
            "&#38;.after=6b0003bb686c8275d8013333\">Next</a>",
            "&#38;.skip=4\">Previous</a>",
            "type=\"hidden\" name=\"status\" value=\"2\"",
            "href=\"/tasks?queue=6b0003bb686c8275d70dc2f1&#38;status=1&#38;params.%3Cto%3E=%22me%22\" aria-current=\"true\"",
            "<option value=\"6b0003bb686c8275d70dc2f1\" selected>",
            "name=\"params.&#60;to&#62;\" value=\"&#34;me&#34;\"",
            "1,234 tasks",
            "data-live=\"/ui/tasks?queue=6b0003bb686c8275d70dc2f1&#38;status=1&#38;status=2&#38;",
            ".ids=6b0003bb686c8275d8013333&#38;.newest=1\"",
            "id=\"selected\" action=\"/bulk\" method=\"post\"",
            "id=\"newer\"",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<x>") && !html.contains(" style=") && !html.contains("<to>"), "{html}");
    }

    #[test]
    fn restrictions_are_shown_and_can_be_taken_away() {
        let html = page(search(json!({"queue": QUEUE, "status": "2"}), json!({"text": "<you>"})), None, None);
        for part in [
            "href=\"/tasks?status=2&#38;.text=%3Cyou%3E\"",
            "q&#60;1&#62;",
            "failed",
            "&#60;you&#62;",
            "<a class=\"chip\" href=\"/tasks\">Clear filters</a>",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!page(search(json!({}), json!({})), None, None).contains("Clear filters"));
    }

    #[test]
    fn the_page_shows_a_count_or_that_there_is_nothing() {
        let many = ResultPage { rows: vec![row()], count: Some("10,000+".into()), ..ResultPage::default() };
        let html = page(search(json!({"queue": QUEUE}), json!({})), None, Some(many));
        assert!(html.contains("10,000+ tasks") && html.contains("10,000+ match:"), "{html}");
        let html = page(search(json!({"queue": QUEUE}), json!({})), None, Some(ResultPage::default()));
        assert!(html.contains("No task matches.") && !html.contains("<tbody"), "{html}");
        let html = page(search(json!({}), json!({})), None, Some(ResultPage::default()));
        assert!(html.contains("There are no tasks yet."), "{html}");
        assert!(!page(search(json!({}), json!({})), Some("no"), None).contains("No task matches."));
    }

    #[test]
    fn a_search_in_params_says_how_far_it_looked() {
        let (next, of_all) = (Some(("after", TASK.into())), Some("13700".into()));
        let found = ResultPage { looked_at: Some(5_000), next, of_all, ..ResultPage::default() };
        let html = page(search(json!({"queue": QUEUE}), json!({"text": "x"})), None, Some(found));
        for part in [
            "0 found</strong> in the newest 5,000 of 13,700",
            "Search older",
            ".text=x&#38;.after=6b0003bb686c8275d8013333",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains(" match:"), "what is not known is not acted on: {html}");
    }

    #[test]
    fn a_queue_may_be_named() {
        let of = |name: &str| {
            let fields = json!({ "queue": name }).as_object().unwrap().clone();
            let params = named(&Params { fields, ..Params::default() }, &[queue()]);
            text(params.fields.get("queue"))
        };
        assert_eq!(of("q<1>"), QUEUE);
        assert_eq!((of("other").as_str(), of("").as_str(), of(QUEUE).as_str()), ("other", "", QUEUE));
    }

    #[test]
    fn refusals_are_in_words() {
        let refused =
            in_words(Refusal::NotIndexed { indexes: vec![], invalid: vec!["a".into(), "b".into()] });
        assert!(refused.message().starts_with("There is no index for a and b with"), "{refused}");
        let wrong = in_words(HttpError::bad_request("'x' is not an id").into());
        assert_eq!((wrong.status().as_u16(), wrong.message()), (400, "'x' is not an id"));
    }
}
