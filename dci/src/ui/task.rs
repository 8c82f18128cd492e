//! `GET /tasks/:id` for people: one task with its output.

mod life;

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use askama::Template;
use bson::{Bson, Document};
use disbatch_core::model::{Selector, Status};
use disbatch_core::store::StoreError;

use crate::api::get_task;
use crate::error::HttpError;
use crate::json::{self, Dates};
use crate::output::{self, Excerpt};
use crate::state::State;
use crate::ui::{self, StatusView, plain, time};
use life::Life;

/// Output is shown up to so many bytes.
const SHOWN_BYTES: usize = 64 * 1024;

/// Fields that have a place of their own on the page.
const KNOWN: [&str; 13] = [
    "_id",
    "queue",
    "status",
    "node",
    "ctime",
    "mtime",
    "params",
    "parameters",
    "stdout",
    "stderr",
    "complete",
    "exit",
    "history",
];

#[derive(Template)]
#[template(path = "task.html")]
struct TaskPage {
    id: String,
    queue: QueueLink,
    status: StatusView,
    node: String,
    created: String,
    changed: String,
    incomplete: bool,
    params: String,
    others: Vec<(String, String)>,
    outputs: [Output; 2],
    /// There until the task has ended.
    live: Option<Progress>,
    life: Life,
}

/// How far the plugin says it is.
#[derive(Debug, Default, PartialEq)]
struct Progress {
    percent: Option<f64>,
    message: String,
}

/// The queue's name, and its id if it has one.
struct QueueLink {
    id: Option<String>,
    name: String,
}

struct Output {
    title: &'static str,
    /// The last part of the address that has all of it.
    stream: &'static str,
    /// Nothing when the task wrote nothing.
    excerpt: Option<Excerpt>,
}

/// The page, or the error that there is instead. Only the page of a task that has not ended may run a script.
pub async fn respond(state: &State, id: &str) -> HttpResponse {
    match render(state, id).await {
        Ok((page, true)) => ui::page_with(Ok(page), ui::LIVE_POLICY),
        Ok((page, false)) => ui::page(Ok(page)),
        Err(error) => ui::page(Err(error)),
    }
}

/// The page, and whether it is live.
async fn render(state: &State, id: &str) -> Result<((StatusCode, String), bool), HttpError> {
    let task = get_task::find(state, id).await?;
    let outputs = [
        Output { title: "Output", stream: "stdout", excerpt: excerpt(state, task.get("stdout")).await? },
        Output { title: "Errors", stream: "stderr", excerpt: excerpt(state, task.get("stderr")).await? },
    ];
    let queue = queue_link(state, task.get("queue")).await?;
    let mut view = view(id, &task, queue, outputs);
    view.life = view.life.with_more(state, id, &task).await?;
    Ok((ui::render(StatusCode::OK, &view)?, view.live.is_some()))
}

/// Progress so far of a task that has not ended.
fn live(task: &Document) -> Option<Progress> {
    let status = bson::deserialize_from_bson::<Status>(task.get("status")?.clone()).ok()?;
    if status.has_ended() {
        return None;
    }
    let Some(Bson::Document(progress)) = task.get("progress") else { return Some(Progress::default()) };
    Some(Progress {
        percent: progress.get("percent").and_then(Bson::as_f64),
        message: progress.get_str("message").unwrap_or_default().to_owned(),
    })
}

async fn excerpt(state: &State, value: Option<&Bson>) -> Result<Option<Excerpt>, StoreError> {
    let excerpt = match value {
        None | Some(Bson::Null) => return Ok(None),
        Some(Bson::ObjectId(id)) => output::excerpt(&state.store, *id, SHOWN_BYTES).await?,
        Some(Bson::String(text)) => output::cut(text.clone().into_bytes(), SHOWN_BYTES),
        Some(other) => output::cut(plain(Some(other)).into_bytes(), SHOWN_BYTES),
    };
    let empty = excerpt.text.is_empty() && excerpt.damage.is_none();
    Ok(Some(excerpt).filter(|_| !empty))
}

async fn queue_link(state: &State, value: Option<&Bson>) -> Result<QueueLink, StoreError> {
    let Some(Bson::ObjectId(id)) = value else { return Ok(QueueLink { id: None, name: plain(value) }) };
    let queue = state.store.find_queue(&Selector::Id(*id)).await?;
    let name = queue.map_or_else(|| format!("{id} (deleted)"), |queue| queue.display_name());
    Ok(QueueLink { id: Some(id.to_hex()), name })
}

fn view(id: &str, task: &Document, queue: QueueLink, outputs: [Output; 2]) -> TaskPage {
    let pretty = |value: &Bson| json::pretty(&json::from_bson(value, Dates::Text)).trim_end().to_owned();
    let params = task.get("params").or_else(|| task.get("parameters"));
    let live = live(task);
    let is_shown = |key: &str| KNOWN.contains(&key) || (key == "progress" && live.is_some());
    let others = task.iter().filter(|(key, _)| !is_shown(key));
    TaskPage {
        id: id.to_owned(),
        queue,
        status: StatusView::of(task),
        node: plain(task.get("node")),
        created: time(task.get("ctime")),
        changed: time(task.get("mtime")),
        incomplete: task.get("complete") == Some(&Bson::Boolean(false)),
        params: params.map(pretty).unwrap_or_default(),
        others: others.map(|(key, value)| (key.clone(), pretty(value))).collect(),
        outputs,
        live,
        life: Life::of(task),
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn the_page_shows_everything_about_a_task() {
        let task = doc! {
            "status": 2, "node": "vm", "params": { "commands": "<ab>" }, "complete": false,
            "ctime": bson::DateTime::from_millis(1_795_163_067_344), "progress": { "percent": 50 },
        };
        let outputs = [
            Output { title: "Output", stream: "stdout", excerpt: Some(output::cut("a <b> c".into(), 5)) },
            Output { title: "Errors", stream: "stderr", excerpt: None },
        ];
        let queue = QueueLink { id: Some("6b0003bb686c8275d70dc2f1".into()), name: "q1".into() };
        let html = view("6b0003bb686c8275d8013333", &task, queue, outputs).render().unwrap();
        for part in [
            "6b0003bb686c8275d8013333",
            "/tasks?queue=6b0003bb686c8275d70dc2f1",
            "failed",
            "2026-11-20 08:24:27",
            "&#34;commands&#34; : &#34;&#60;ab&#62;&#34;",
            "a &#60;b&#62;",
            "Only the first 64 KiB are shown.",
            "Storing the output failed.",
            "progress",
            "None.",
            "<a href=\"/tasks/6b0003bb686c8275d8013333/stdout\">All of it</a>",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<script"), "{html}");
    }

    #[test]
    fn the_page_of_a_running_task_follows_it() {
        let task = doc! { "status": 0, "progress": { "percent": 12.5, "message": "a <b>" } };
        let outputs = ["stdout", "stderr"].map(|stream| Output { title: "Output", stream, excerpt: None });
        let queue = QueueLink { id: None, name: String::new() };
        let html = view("6b0003bb686c8275d8013333", &task, queue, outputs).render().unwrap();
        for part in [
            "<script src=\"/assets/live.js\" defer></script>",
            "data-events=\"/tasks/6b0003bb686c8275d8013333/events\"",
            "value=\"12.5\"",
            "a &#60;b&#62;",
            "href=\"/tasks/6b0003bb686c8275d8013333/stderr\"",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("Further fields"), "{html}");
        assert_eq!(live(&doc! { "status": -7 }), Some(Progress::default()));
        assert_eq!(live(&doc! { "status": "odd" }), None);
    }

    #[test]
    fn the_page_tells_a_tasks_life() {
        let task = doc! {
            "status": -2, "history": [{ "status": -2, "note": "its <time> has come" }], "exit": { "code": 3 },
        };
        let outputs = ["Output", "Errors"].map(|title| Output { title, stream: "stdout", excerpt: None });
        let mut page =
            view("6b0003bb686c8275d8013333", &task, QueueLink { id: None, name: "q".into() }, outputs);
        page.life.attempts = vec![life::Attempt {
            number: "1".into(),
            status: StatusView::from_code(2),
            node: "vm".into(),
            started: String::new(),
            ended: String::new(),
            note: "timed <out>".into(),
            outputs: vec!["stdout"],
        }];
        page.life.explained = Some(life::Explained {
            question: "Why is it not running?",
            summary: "The queue <q> is paused.".into(),
            gates: vec![(true, "It is there.".into()), (false, "It is paused.".into())],
        });
        let html = page.render().unwrap();
        for part in [
            "action=\"/tasks/6b0003bb686c8275d8013333/cancel\"",
            "name=\".then\" value=\"/tasks/6b0003bb686c8275d8013333\"",
            "its &#60;time&#62; has come",
            "<dt>Exit code</dt><dd>3</dd>",
            "/tasks/6b0003bb686c8275d8013333/stdout?.attempt=1",
            "timed &#60;out&#62;",
            "The queue &#60;q&#62; is paused.",
            "✗</span> It is paused.",
            "✓</span> It is there.",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("Further fields") && !html.contains("/retry"), "{html}");
    }
}
