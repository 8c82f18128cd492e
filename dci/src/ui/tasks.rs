//! `GET /tasks` for people: a form, and the tasks that it finds.

use std::collections::HashMap;

use actix_web::http::StatusCode;
use askama::Template;
use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_core::model::{Queue, TaskId};
use disbatch_core::store::StoreError;
use futures::{Stream, TryStreamExt};
use serde_json::Value;

use crate::counts;
use crate::error::HttpError;
use crate::params::Params;
use crate::query::{Listing, Refusal};
use crate::state::State;
use crate::ui::{self, Rendered, StatusView, plain, text, time};

/// How many tasks a page shows unless it is told.
const DEFAULT_LIMIT: i64 = 100;

/// Parameters are shown up to so many characters.
const EXCERPT: usize = 120;

#[derive(Template)]
#[template(path = "tasks.html")]
struct TasksPage {
    form: Form,
    message: Option<String>,
    result: Option<Found>,
}

/// What the form's fields hold.
struct Form {
    queues: Vec<QueueOption>,
    id: String,
    status: String,
    node: String,
    archive: bool,
    limit: String,
}

struct QueueOption {
    id: String,
    name: String,
    selected: bool,
}

enum Found {
    Count(String),
    Tasks(Tasks),
}

struct Tasks {
    rows: Vec<Row>,
    /// Where to act on all that match, if what was asked for can be said there.
    bulk: Option<String>,
    /// Every parameter again, for the forms that turn pages.
    hidden: Vec<(String, String)>,
    previous: Option<Turn>,
    next: Option<Turn>,
}

/// What another page is asked for with.
struct Turn {
    option: &'static str,
    value: String,
}

impl Turn {
    fn skip(tasks: u64) -> Self {
        Self { option: ".skip", value: tasks.to_string() }
    }
}

struct Row {
    id: String,
    queue: String,
    status: StatusView,
    node: String,
    created: String,
    changed: String,
    params: String,
}

/// The page.
///
/// # Errors
/// The database cannot be reached.
pub async fn render(state: &State, params: &Params) -> Rendered {
    let queues = state.store.list_queues().await?;
    let names: HashMap<ObjectId, String> =
        queues.iter().map(|queue| (queue.id.0, queue.display_name())).collect();
    let form = form(&queues, params);
    let (status, message, result) = match find(state, params, &names).await {
        Ok(found) => (StatusCode::OK, None, Some(found)),
        // Nothing was asked yet: the form alone is the answer.
        Err(Refusal::Everything { .. }) if params.fields.is_empty() && params.options.is_empty() => {
            (StatusCode::OK, None, None)
        }
        Err(Refusal::Wrong(error)) if error.status() != StatusCode::BAD_REQUEST => return Err(error),
        Err(Refusal::Wrong(error)) => (error.status(), Some(error.message().to_owned()), None),
        Err(refusal) => (StatusCode::OK, Some(HttpError::from(refusal).message().to_owned()), None),
    };
    ui::render(status, &TasksPage { form, message, result })
}

async fn find(state: &State, params: &Params, names: &HashMap<ObjectId, String>) -> Result<Found, Refusal> {
    let indexes = state.store.task_index_fields().await.map_err(HttpError::from)?;
    let mut params = params.clone();
    if pages_by_id(&params) {
        params.options.insert("order".to_owned(), "-id".into());
    }
    let Listing { mut query, shape, page } = Listing::parse(&params, &indexes, Some(DEFAULT_LIMIT))?;
    if shape.count {
        let count = counts::about(&state.store, query).await.map_err(HttpError::from_search)?;
        return Ok(Found::Count(count));
    }
    // A list shows no output, which may be large.
    query.projection.get_or_insert_with(|| doc! { "stdout": 0, "stderr": 0, "history": 0, "result": 0 });
    if let Some(page) = page {
        let found = state.store.find_page(&page).await.map_err(HttpError::from)?;
        let tasks = state.store.stream_page(&found.ids, query.filter, query.projection).await;
        let rows = rows(tasks.map_err(HttpError::from_search)?, names).await?;
        let turn = |option, id: Option<TaskId>| id.map(|id| Turn { option, value: id.to_string() });
        return Ok(Found::Tasks(Tasks {
            rows,
            bulk: bulk(&params),
            hidden: hidden(&params),
            previous: turn(".before", page.preceding(&found)),
            next: turn(".after", page.following(&found)),
        }));
    }
    let skip = query.skip;
    let limit = query.limit.and_then(|limit| u64::try_from(limit).ok());
    let tasks = state.store.stream_tasks(query).await.map_err(HttpError::from_search)?;
    let rows = rows(tasks, names).await?;
    let full = limit.filter(|limit| u64::try_from(rows.len()).is_ok_and(|found| found >= *limit));
    Ok(Found::Tasks(Tasks {
        rows,
        bulk: bulk(&params),
        hidden: hidden(&params),
        previous: (skip > 0).then(|| Turn::skip(skip.saturating_sub(limit.unwrap_or(skip)))),
        next: full.map(|limit| Turn::skip(skip.saturating_add(limit))),
    }))
}

/// Whether to show the newest tasks first, a page at a time: where there are such pages, and nobody has asked for
/// something else.
fn pages_by_id(params: &Params) -> bool {
    let given = |name: &str| params.fields.get(name).is_some_and(|value| *value != "");
    let only =
        params.fields.iter().all(|(name, value)| *value == "" || matches!(name.as_str(), "queue" | "status"));
    let is_plain = |value: &Value| value.is_array() || value.is_string() || value.is_number();
    let options = ["skip", "archive", "order", "count"];
    only && (given("queue") || !given("status"))
        && params.fields.get("status").is_none_or(is_plain)
        && options.iter().all(|name| params.options.get(*name).is_none_or(|value| *value == ""))
}

/// The page for bulk jobs with the form filled in. It knows nothing of nodes and other fields.
fn bulk(params: &Params) -> Option<String> {
    let given: Vec<(&str, &Value)> =
        params.fields.iter().map(|(name, value)| (name.as_str(), value)).filter(|(_, v)| *v != "").collect();
    let is_whole = given.iter().any(|(name, _)| matches!(*name, "queue" | "id"))
        && given.iter().all(|(name, _)| matches!(*name, "queue" | "id" | "status"));
    let pair = |(name, value): &(&str, &Value)| {
        let name = if *name == "id" { "ids" } else { name };
        let value = match value {
            Value::Array(values) => values.iter().map(|v| text(Some(v))).collect::<Vec<_>>().join(","),
            single => text(Some(single)),
        };
        format!("{name}={}", ui::bulk::encoded(&value))
    };
    is_whole.then(|| format!("/bulk?{}", given.iter().map(pair).collect::<Vec<_>>().join("&")))
}

fn form(queues: &[Queue], params: &Params) -> Form {
    let field = |name: &str| text(params.fields.get(name));
    let queue = field("queue");
    let option = |found: &Queue| QueueOption {
        id: found.id.to_string(),
        name: found.display_name(),
        selected: found.id.to_string() == queue,
    };
    Form {
        queues: queues.iter().map(option).collect(),
        id: field("id"),
        status: field("status"),
        node: field("node"),
        archive: params.is_on("archive"),
        limit: Some(text(params.options.get("limit")))
            .filter(|limit| !limit.is_empty())
            .unwrap_or_else(|| DEFAULT_LIMIT.to_string()),
    }
}

/// All that was asked for except where to start.
fn hidden(params: &Params) -> Vec<(String, String)> {
    let options = params.options.iter().map(|(name, value)| (format!(".{name}"), value));
    let fields = params.fields.iter().map(|(name, value)| (name.clone(), value));
    let each = |(name, value): (String, &Value)| match value {
        Value::Array(values) => values.iter().map(|value| (name.clone(), text(Some(value)))).collect(),
        value => vec![(name, text(Some(value)))],
    };
    let turns = [".skip", ".after", ".before"];
    fields.chain(options).filter(|(name, _)| !turns.contains(&name.as_str())).flat_map(each).collect()
}

/// The rows of tasks as they come in, since only the beginning of what may be large is shown.
async fn rows(
    tasks: impl Stream<Item = Result<Document, StoreError>>,
    names: &HashMap<ObjectId, String>,
) -> Result<Vec<Row>, HttpError> {
    tasks.map_ok(|task| row(&task, names)).try_collect().await.map_err(HttpError::from_search)
}

fn row(task: &Document, names: &HashMap<ObjectId, String>) -> Row {
    let queue = match task.get("queue") {
        Some(Bson::ObjectId(id)) => names.get(id).cloned().unwrap_or_else(|| id.to_hex()),
        other => plain(other),
    };
    let params = plain(task.get("params").or_else(|| task.get("parameters")));
    let cut = params.char_indices().nth(EXCERPT).map(|(at, _)| format!("{}…", &params[..at]));
    Row {
        id: task.get_object_id("_id").map(ObjectId::to_hex).unwrap_or_default(),
        queue,
        status: StatusView::of(task),
        node: plain(task.get("node")),
        created: time(task.get("ctime")),
        changed: time(task.get("mtime")),
        params: cut.unwrap_or(params),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn params() -> Params {
        let map = |value: Value| value.as_object().unwrap().clone();
        Params {
            fields: map(json!({"queue": "6b0003bb686c8275d70dc2f1", "status": ["1", "2"]})),
            options: map(json!({"limit": "1", "skip": "5"})),
        }
    }

    fn queue() -> Queue {
        bson::deserialize_from_document(doc! {
            "_id": ObjectId::parse_str("6b0003bb686c8275d70dc2f1").unwrap(), "name": "q<1>",
        })
        .unwrap()
    }

    #[test]
    fn the_page_lists_tasks_and_turns_pages() {
        let queue = queue();
        let names = HashMap::from([(queue.id.0, queue.display_name())]);
        let task = doc! {
            "_id": ObjectId::parse_str("6b0003bb686c8275d8013333").unwrap(), "queue": queue.id,
            "status": 1, "node": "vm", "params": { "text": "<x>".repeat(99) }, "stdout": null,
        };
        let page = TasksPage {
            form: form(&[queue], &params()),
            message: Some("careful & slow".into()),
            result: Some(Found::Tasks(Tasks {
                rows: vec![row(&task, &names)],
                bulk: bulk(&params()),
                hidden: hidden(&params()),
                previous: Some(Turn::skip(4)),
                next: Some(Turn { option: ".after", value: "6b0003bb686c8275d8013333".into() }),
            })),
        };
        let html = page.render().unwrap();
        for part in [
            "/tasks/6b0003bb686c8275d8013333",
            "q&#60;1&#62;",
            "succeeded",
            "careful &#38; slow",
            "…",
            "name=\".after\" value=\"6b0003bb686c8275d8013333\"",
            "name=\".skip\" value=\"4\"",
            "/bulk?queue=6b0003bb686c8275d70dc2f1&#38;status=1%2C2",
            "name=\"status\" value=\"2\"",
            "selected",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<x>") && !html.contains("value=\"5\""));
    }

    #[test]
    fn the_page_shows_a_count_or_that_there_is_nothing() {
        let with = |result| TasksPage { form: form(&[], &Params::default()), message: None, result };
        assert!(with(Some(Found::Count("10,000+".into()))).render().unwrap().contains("10,000+ tasks"));
        let none = Tasks { rows: vec![], bulk: None, hidden: vec![], previous: None, next: None };
        assert!(with(Some(Found::Tasks(none))).render().unwrap().contains("No task matches."));
        assert!(!with(None).render().unwrap().contains("No task matches."));
    }
}
