//! `GET /tasks/:id` for people: one task, what it is doing, and what it has written.

mod facts;
mod feed;
mod graph;
mod life;
mod output;
mod steps;
mod timeline;

use std::rc::Rc;

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use bson::{Bson, DateTime, Document};
use disbatch_core::accounts::{Reach, Role};
use disbatch_core::model::{Selector, Status};
use disbatch_core::output::{OutputEnd, StreamName};
use disbatch_core::secrets;
use disbatch_core::store::StoreError;
use futures::FutureExt;

use crate::access::Who;
use crate::api::{explain_task, get_task, task_action};
use crate::error::HttpError;
use crate::openapi::OfFixed;
use crate::state::State;
use crate::ui::live::{self, Part};
use crate::ui::tasks::params_of;
use crate::ui::{self, Rendered, plain};
use facts::{Facts, Outcome, QueueLink, Shown};
use feed::Feed;
use graph::Graph;
use life::{Head, Progress, Why, status};
use output::Output;
use steps::Steps;
use timeline::Timeline;

#[derive(Template)]
#[template(path = "task.html")]
struct TaskPage<'a> {
    id: &'a str,
    task: &'a Document,
    queue: QueueLink,
    look: Look,
    params: Shown,
    /// Whether it has parameters that are shown to nobody.
    secure: bool,
    outputs: [Output; 2],
    /// From where on the output is to be told; nothing while there is none.
    resume: String,
    /// Its priority; 0 if it has none.
    priority: i64,
    /// The page of its queue, whose form can be filled with its params; nothing if it is gone.
    form: String,
}

/// What changes by itself.
struct Look {
    head: Head,
    progress: Progress,
    why: Why,
    graph: Graph,
    steps: Steps,
    facts: Facts,
    timeline: Timeline,
    outcome: Outcome,
}

/// All that a page shows of the task itself, one part after the other.
pub fn html_of(task: &Document, now: DateTime) -> Result<String, HttpError> {
    let id = task.get_object_id("_id").map(|id| id.to_hex()).unwrap_or_default();
    let queue = QueueLink { name: plain(task.get("queue")), ..QueueLink::default() };
    let look = view(&id, task, &queue, now);
    let parts = [
        ui::html(&look.head)?,
        ui::html(&look.progress)?,
        ui::html(&look.steps)?,
        ui::html(&look.facts)?,
        ui::html(&look.timeline)?,
        ui::html(&look.outcome)?,
    ];
    Ok(parts.concat())
}

/// What a page shows of the end of a stream.
pub fn html_of_output(id: &str, stream: StreamName, end: OutputEnd, live: bool) -> Result<String, HttpError> {
    ui::html(&Output::of(id, stream, end, None, live))
}

/// The page, or the error that there is instead.
pub async fn respond(state: &State, who: &Who, id: &str) -> HttpResponse {
    ui::page(render(state, who, id).await)
}

async fn render(state: &State, who: &Who, id: &str) -> Rendered {
    let reach = who.reach(Role::Viewer);
    let _turn = state.budget.answers.turn().await?;
    let task = get_task::find(state, who, id).await?;
    let task_id = task_action::id(id)?;
    let attempt = running_attempt(&task);
    let live = status(&task).is_some_and(|status| !status.has_ended());
    let output = |stream| Output::read(&state.store, (task_id, &task), stream, (attempt, live));
    let (stdout, stderr, look) = futures::try_join!(
        async { output(StreamName::Stdout).await.map_err(HttpError::from) },
        async { output(StreamName::Stderr).await.map_err(HttpError::from) },
        look(state, id, &task, &reach),
    )?;
    let (look, queue) = look;
    ui::render(StatusCode::OK, &page(id, &task, queue, look, [stdout, stderr]))
}

/// What of the page changes, as Server-Sent Events: each message has elements that take the place of those with the
/// same ids. What the task writes is told by `/tasks/:id/events`.
#[utoipa::path(
    get, path = "/ui/tasks/{id}", tag = "service", operation_id = "taskEvents",
    params(("id" = String, Path, description = "The task's id.")),
    responses(
        (status = 200, description = "The events.", body = String, content_type = "text/event-stream"),
        OfFixed,
    ),
)]
pub async fn live(request: HttpRequest, state: Data<State>, who: Who, id: Path<String>) -> HttpResponse {
    let id = id.into_inner();
    let reach = who.reach(Role::Viewer);
    // What is told of tasks of other queues depends on who looks.
    let name = match &reach {
        Reach::All => format!("task {id}"),
        some => format!("task {id} for {some:?}"),
    };
    let feed = Rc::new(Feed::new(reach));
    live::respond(&request, &state, name, move |state| {
        let (id, feed) = (id.clone(), Rc::clone(&feed));
        async move { feed.look(&state, &id).await }.boxed_local()
    })
}

impl Look {
    fn parts(&self) -> Result<Vec<Part>, HttpError> {
        Ok(vec![
            Part::new("task-head", &self.head)?,
            Part::new("task-progress", &self.progress)?,
            Part::new("task-why", &self.why)?,
            Part::new("task-graph", &self.graph)?,
            Part::new("task-steps", &self.steps)?,
            Part::new("task-facts", &self.facts)?,
            Part::new("task-timeline", &self.timeline)?,
            Part::new("task-outcome", &self.outcome)?,
        ])
    }
}

/// What is known of the task at this moment, and may be known to those whose rights reach so far.
async fn look(
    state: &State,
    id: &str,
    task: &Document,
    reach: &Reach,
) -> Result<(Look, QueueLink), HttpError> {
    let store = &state.store;
    let task_id = task_action::id(id)?;
    // A status that is no number cannot be explained.
    let waits = status(task).is_some_and(|status| !status.has_ended()) || task.contains_key("aside");
    let explained = async {
        if !waits {
            return Ok(None);
        }
        match explain_task::find(state, id, reach).await {
            Err(error) if error.status() == StatusCode::NOT_FOUND => Ok(None), // It has gone meanwhile.
            other => other.map(Some),
        }
    };
    let (explained, graph, queue, attempts, now) = futures::try_join!(
        explained,
        Graph::find(state, task_id, task, reach),
        async { queue_link(state, task.get("queue")).await.map_err(HttpError::from) },
        async { store.list_attempts(task_id).await.map_err(HttpError::from) },
        async { store.server_time().await.map_err(HttpError::from) },
    )?;
    let mut look = view(id, task, &queue, now);
    look.why = Why::of(explained);
    look.graph = graph;
    look.outcome = Outcome::of(id, task, &attempts);
    look.facts = look.facts.with_trace(task, state.traces.as_ref());
    Ok((look, queue))
}

/// What the task itself tells.
fn view(id: &str, task: &Document, queue: &QueueLink, now: DateTime) -> Look {
    Look {
        head: Head::of(id, task, queue.there),
        progress: Progress::of(task),
        why: Why::default(),
        graph: Graph::default(),
        steps: Steps::of(task, now),
        facts: Facts::of(task, queue.clone()),
        timeline: Timeline::of(task, now),
        outcome: Outcome::of(id, task, &[]),
    }
}

fn page<'a>(
    id: &'a str,
    task: &'a Document,
    queue: QueueLink,
    look: Look,
    outputs: [Output; 2],
) -> TaskPage<'a> {
    let params = params_of(task).map(Shown::of).unwrap_or_default();
    let [stdout, stderr] = &outputs;
    let resume = running_attempt(task)
        .map(|attempt| format!("attempt:{attempt},stdout:{},stderr:{}", stdout.end(), stderr.end()));
    let form = queue.id.as_ref().filter(|_| queue.there);
    let form = form.map(|queue| format!("/queues/{queue}?tab=new&task={id}#new")).unwrap_or_default();
    TaskPage {
        id,
        task,
        queue,
        look,
        form,
        params,
        secure: task.contains_key(secrets::SHOWN),
        outputs,
        resume: resume.unwrap_or_default(),
        priority: task.get("priority").and_then(disbatch_core::model::whole_number).unwrap_or(0),
    }
}

/// The number of the attempt that runs, 0 if nobody has counted.
fn running_attempt(task: &Document) -> Option<i64> {
    let attempt = task.get("attempt").and_then(disbatch_core::model::whole_number).unwrap_or(0);
    (status(task) == Some(Status::Running)).then_some(attempt)
}

async fn queue_link(state: &State, value: Option<&Bson>) -> Result<QueueLink, StoreError> {
    let Some(Bson::ObjectId(id)) = value else {
        return Ok(QueueLink { name: plain(value), ..QueueLink::default() });
    };
    let queue = state.store.find_queue(&Selector::Id(*id)).await?;
    let there = queue.is_some();
    let name = queue.map_or_else(|| format!("{id} (deleted)"), |queue| queue.display_name());
    Ok(QueueLink { id: Some(id.to_hex()), name, there })
}

#[cfg(test)]
mod tests;
