//! `GET /tasks/:id` for people: one task, what it is doing, and what it has written.

mod attempts;
mod facts;
mod graph;
mod life;
pub mod lines;
mod output;
mod timeline;

use std::cell::RefCell;
use std::collections::HashSet;
use std::time::{Duration, Instant};

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use askama::filters::HtmlSafeOutput;
use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document};
use disbatch_core::accounts::{Reach, Role};
use disbatch_core::config::TraceUrl;
use disbatch_core::explain::Explanation;
use disbatch_core::model::{Queue, QueueId, Rules, Selector, Shadow, Status, TaskId, shadow_id};
use disbatch_core::output::{OutputEnd, StreamName};
use disbatch_core::schedules::Schedule;
use disbatch_core::secrets;
use disbatch_core::store::StoreError;
use disbatch_core::tags::{INDEX, TagIndex};

use crate::access::{Sight, Who, viewer};
use crate::api::{explain, task, task_actions};
use crate::error::HttpError;
use crate::openapi::{EventStream, OfFixed};
use crate::params::Params;
use crate::state::State;
use crate::ui::live::{self, Part};
use crate::ui::names::{Called, title_of};
use crate::ui::tasks::params_of;
use crate::ui::{self, Rendered, integer, plain};
use attempts::{Choice, Failed, Tabs};
pub use facts::options_again;
use facts::{AnswerBox, Facts, JsonText, OutcomeView, QueueLink};
use graph::Graph;
use life::{Head, Progress, Why};
use output::Output;
use timeline::{Steps, Timeline};

#[derive(Template)]
#[template(path = "task.html")]
struct TaskPage<'a> {
    id: &'a str,
    task: &'a Document,
    queue: QueueLink,
    look: Look,
    params: JsonText,
    table: Vec<(String, String)>,
    outputs: [Output; 2],
    /// Whose output is shown. One that somebody has chosen does not go on.
    choice: &'a Choice<'a>,
    /// From where on the output is to be told; nothing while there is none.
    resume: String,
    /// The page of its queue, whose form can be filled with its params; nothing if it is gone.
    form: String,
    /// Options of a new task like it that have no field in the dialog.
    again: Vec<(&'static str, String)>,
}

struct Look {
    /// What the task is called; empty if its params do not say it.
    title: String,
    tab: String,
    parts: Vec<Part>,
}

#[derive(Default)]
struct Known<'a> {
    /// The earlier ones.
    attempts: &'a [Document],
    /// Which of them is shown; else the last one of all.
    chosen: Option<i64>,
    explained: Option<Explanation>,
    called: Called,
    graph: Graph,
    /// The end of what it has written to that.
    stderr: String,
    schedule: Option<Schedule>,
    traces: Option<&'a TraceUrl>,
}

/// All that a page shows of the task itself, one part after the other.
pub fn html_of(task: &Document, now: DateTime) -> Result<String, HttpError> {
    let id = task.get_object_id("_id").map(|id| id.to_hex()).unwrap_or_default();
    let queue = QueueLink { name: plain(task.get("queue")), ..QueueLink::default() };
    let known = Known { stderr: plain(task.get("stderr")), ..Known::default() };
    let look = view((&id, task), &queue, None, now, known)?;
    Ok(look.parts.into_iter().map(|part| part.html).collect())
}

pub fn html_of_output(id: &str, stream: StreamName, end: OutputEnd, live: bool) -> Result<String, HttpError> {
    ui::html(&Output::of(id, stream, end, None, live))
}

pub async fn render(
    state: Data<State>,
    who: Who,
    id: Path<String>,
    params: Result<Params, HttpError>,
) -> Rendered {
    // Whose output is to be shown, if not that of the last one.
    let attempt = params?.integer("attempt")?;
    let reach = who.reach(Role::Viewer);
    let _turn = state.budget.answers.turn().await?;
    let task = task::find(&state, &who, &id).await?;
    let task_id = task_actions::task_id(&id)?;
    let attempts = state.store.list_attempts(task_id).await?;
    let choice = Choice::of(&task, &attempts, attempt).ok_or_else(|| {
        HttpError::not_found(format!("task {id} has no attempt {}", attempt.unwrap_or_default()))
    })?;
    let live = !choice.fixed && Status::stored(&task).is_some_and(|status| !status.has_ended());
    let document = choice.earlier.unwrap_or(&task);
    let output = |stream| Output::read(&state.store, (task_id, document), stream, (choice.of, live));
    let (stdout, stderr, look) = futures::try_join!(
        async { output(StreamName::Stdout).await.map_err(HttpError::from) },
        async { output(StreamName::Stderr).await.map_err(HttpError::from) },
        look(&state, &id, (&task, &attempts, choice.earlier_number()), None, &reach),
    )?;
    let (look, queue) = look;
    ui::render(&page(&id, &task, queue, look, ([stdout, stderr], &choice)))
}

/// What of the page changes, as Server-Sent Events: each message has elements that take the place of those with the
/// same ids. What the task writes is told by `/tasks/:id/events`.
#[utoipa::path(
    get, path = "/ui/tasks/{id}", tag = "service", operation_id = "taskEvents",
    params(("id" = String, Path, description = "The task's id.")),
    responses(EventStream, OfFixed),
)]
pub async fn live(request: HttpRequest, state: Data<State>, who: Who, id: Path<String>) -> HttpResponse {
    let id = id.into_inner();
    let reach = who.reach(Role::Viewer);
    // What is told of tasks of other queues depends on who looks.
    let name = match &reach {
        Reach::All => format!("task {id}"),
        some => format!("task {id} for {some:?}"),
    };
    let feed = Feed::new(reach);
    live::respond(&request, &state, name, async move |state: &State| feed.look(state, &id).await)
}

/// What is known of the task and its earlier attempts at this moment, and may be known to those whose rights reach so far.
/// `chosen`: the earlier attempt that is shown. `title`: what the task is called, if its params were not read.
async fn look(
    state: &State,
    id: &str,
    (task, attempts, chosen): (&Document, &[Document], Option<i64>),
    title: Option<String>,
    reach: &Reach,
) -> Result<(Look, QueueLink), HttpError> {
    let store = &state.store;
    let task_id = task_actions::task_id(id)?;
    // A status that is no number cannot be explained.
    let waits = Status::stored(task).is_some_and(|status| !status.has_ended()) || task.contains_key("aside");
    let explained = async {
        if !waits {
            return Ok(None);
        }
        match explain::find(state, id, reach).await {
            Err(error) if error.status() == StatusCode::NOT_FOUND => Ok(None), // It has gone meanwhile.
            other => other.map(Some),
        }
    };
    let schedule = async {
        match task.get_object_id("schedule") {
            Ok(id) => {
                let id = Selector::Id(id);
                let (found, sight) = futures::try_join!(store.find_schedule(&id), Sight::of(store, reach))?;
                // One of another queue may have been of this one.
                Ok::<_, HttpError>(found.filter(|schedule| sight.sees(Some(schedule.settings.queue))))
            }
            Err(_) => Ok(None),
        }
    };
    let (explained, graph, queue, stderr, now, schedule) = futures::try_join!(
        explained,
        Graph::find(state, task_id, task, reach),
        async { queue_link(state, task).await.map_err(HttpError::from) },
        async { Failed::stderr(store, task_id, task).await.map_err(HttpError::from) },
        async { store.server_time().await.map_err(HttpError::from) },
        schedule,
    )?;
    let texts = explained.iter().flat_map(|explained| {
        explained.gates.iter().map(|gate| gate.text.as_str()).chain([explained.summary.as_str()])
    });
    let named: HashSet<TaskId> = texts.flat_map(life::ids).collect();
    let called = if named.is_empty() {
        Called::default()
    } else {
        let queues = store.queues_within(reach).await?;
        state.titles(&queues).await?.read(store, named).await?
    };
    let traces = state.traces.as_ref();
    let known = Known { attempts, chosen, explained, called, graph, stderr, schedule, traces };
    Ok((view((id, task), &queue, title, now, known)?, queue))
}

fn view(
    (id, task): (&str, &Document),
    queue: &QueueLink,
    title: Option<String>,
    now: DateTime,
    known: Known<'_>,
) -> Result<Look, HttpError> {
    let title = title.unwrap_or_else(|| title_of(task, queue.title.as_deref()));
    let head = Head::of(id, task, queue, title);
    let failed = Failed::of(task, queue, &known.stderr, known.graph.culprits.clone());
    let why = Why::of((id, task), queue, &known.called, known.explained);
    let schedule = known.schedule.map(|schedule| schedule.settings.name).unwrap_or_default();
    let facts = Facts { task, queue: queue.clone(), schedule, traces: known.traces };
    let parts = vec![
        Part::new(&head)?,
        Part::new(&AnswerBox::of(id, task))?,
        Part::new(&failed)?,
        Part::new(&Progress::of(task))?,
        Part::new(&why)?,
        Part::new(&known.graph)?,
        Part::new(&Steps::of(task, now))?,
        Part::new(&facts)?,
        Part::new(&Tabs::of(id, task, known.attempts, known.chosen))?,
        Part::new(&Timeline::of(task, now))?,
        Part::new(&OutcomeView::of(id, task, known.attempts))?,
    ];
    Ok(Look { title: head.title, tab: head.tab, parts })
}

impl Look {
    fn part(&self, id: &str) -> HtmlSafeOutput<&str> {
        let part = self.parts.iter().find(|part| part.id == id);
        HtmlSafeOutput(part.map_or("", |part| &part.html))
    }
}

fn page<'a>(
    id: &'a str,
    task: &'a Document,
    queue: QueueLink,
    look: Look,
    (outputs, choice): ([Output; 2], &'a Choice<'a>),
) -> TaskPage<'a> {
    let given = params_of(task);
    let params = given.map(JsonText::of).unwrap_or_default();
    let [stdout, stderr] = &outputs;
    let resume = running_attempt(task)
        .filter(|_| !choice.fixed)
        .map(|attempt| format!("attempt:{attempt},stdout:{},stderr:{}", stdout.end, stderr.end));
    let form = queue.id.as_ref().filter(|_| queue.there);
    let form = form.map(|queue| format!("/queues/{queue}?tab=new&task={id}#new")).unwrap_or_default();
    let mut again = options_again(task, &queue.index, queue.tenant.as_deref());
    again.retain(|(name, _)| !["timeout", "max_attempts"].contains(name));
    TaskPage {
        id,
        task,
        queue,
        look,
        form,
        again,
        table: facts::table(given),
        params,
        outputs,
        choice,
        resume: resume.unwrap_or_default(),
    }
}

/// The number of the attempt that runs, 0 if nobody has counted.
fn running_attempt(task: &Document) -> Option<i64> {
    (Status::stored(task) == Some(Status::Running)).then(|| integer(task, "attempt").unwrap_or(0))
}

async fn queue_link(state: &State, task: &Document) -> Result<QueueLink, StoreError> {
    let (value, tenant) = (task.get("queue"), task.get_str("tenant").ok());
    let Some(Bson::ObjectId(id)) = value else {
        let nobodys = Queue::without_document(QueueId(ObjectId::from_bytes([0; 12])));
        let role = viewer::role_on_task(&nobodys, tenant);
        return Ok(QueueLink { name: plain(value), role, ..QueueLink::default() });
    };
    let queue = state.store.find_queue(&Selector::Id(*id)).await?;
    let there = queue.is_some();
    let titles = state.titles(queue.as_slice()).await?;
    let title = titles.template(*id).map(str::to_owned);
    let max_attempts = queue.as_ref().and_then(|queue| Rules::of_queue(queue).max_attempts);
    let name = queue.as_ref().map_or_else(|| format!("{id} (deleted)"), Queue::display_name);
    let reason = queue.as_ref().and_then(Queue::reason).map(str::to_owned);
    let index = queue.as_ref().map(|queue| TagIndex::stored(queue.rest.get(INDEX))).unwrap_or_default();
    let shadow = queue.as_ref().and_then(Shadow::of).zip(task.get_object_id("_id").ok());
    let shadow = shadow.filter(|(shadow, task)| shadow.has(TaskId(*task)));
    let shadow = match shadow.map(|(_, task)| shadow_id(TaskId(task))) {
        Some(shadow) if state.store.missing_tasks(&[shadow]).await?.is_empty() => Some(shadow),
        _ => None, // It has none, or not yet.
    };
    let queue = queue.unwrap_or_else(|| Queue::without_document(QueueId(*id)));
    let role = viewer::role_on_task(&queue, tenant);
    let (id, tenant) = (Some(id.to_hex()), queue.tenant().map(str::to_owned));
    Ok(QueueLink { id, name, there, reason, title, max_attempts, role, shadow, index, tenant })
}

/// After so long all of an ended task is looked at again: its queue may have another name.
const RARELY: Duration = Duration::from_secs(30);

const STAMP: [&str; 4] = ["status", "mtime", "complete", "archived"];

/// The looks at one task: what its page is told. Its output, params and whatever else is large is not read for that, and once it has ended,
/// the task is only asked whether that is still so.
#[derive(Debug)]
struct Feed {
    reach: Reach,
    /// What the task is called, which does not change: its params are read once.
    title: RefCell<Option<String>>,
    last: RefCell<Option<Last>>,
}

#[derive(Debug)]
struct Last {
    stamp: Vec<Option<Bson>>,
    at: Instant,
    parts: Vec<Part>,
}

impl Feed {
    fn new(reach: Reach) -> Self {
        Self { reach, title: RefCell::default(), last: RefCell::default() }
    }

    async fn look(&self, state: &State, id: &str) -> Result<Vec<Part>, HttpError> {
        if self.last.borrow().is_some() {
            let now = read(state, id, only(&STAMP, 1)).await?;
            if let Some(parts) = self.known(&now) {
                return Ok(parts);
            }
        }
        let title = self.title.borrow().clone();
        let large: &[&str] = if title.is_some() {
            &["stdout", "stderr", "params", "parameters"]
        } else {
            &["stdout", "stderr"]
        };
        let of = task_actions::task_id(id)?;
        let (task, attempts) = futures::try_join!(read(state, id, only(large, 0)), async {
            state.store.list_attempts(of).await.map_err(HttpError::from)
        })?;
        let (look, _) = look(state, id, (&task, &attempts, None), title, &self.reach).await?;
        *self.title.borrow_mut() = Some(look.title);
        self.note(&task, &look.parts);
        Ok(look.parts)
    }

    fn known(&self, now: &Document) -> Option<Vec<Part>> {
        let last = self.last.borrow();
        let same = last.as_ref().filter(|last| last.stamp == stamp(now) && last.at.elapsed() < RARELY)?;
        Some(same.parts.clone())
    }

    fn note(&self, task: &Document, parts: &[Part]) {
        let has_ended = Status::stored(task).is_some_and(|status| status.has_ended());
        let last = || Last { stamp: stamp(task), at: Instant::now(), parts: parts.to_vec() };
        *self.last.borrow_mut() = has_ended.then(last);
    }
}

fn stamp(task: &Document) -> Vec<Option<Bson>> {
    STAMP.iter().map(|field| task.get(*field).cloned()).collect()
}

fn only(fields: &[&str], which: i32) -> Document {
    fields.iter().map(|field| ((*field).to_owned(), Bson::Int32(which))).collect()
}

async fn read(state: &State, id: &str, projection: Document) -> Result<Document, HttpError> {
    let found = state.store.find_task_fields(task_actions::task_id(id)?, projection).await?;
    found.ok_or_else(|| task_actions::not_found(id))
}

#[cfg(test)]
mod tests;
