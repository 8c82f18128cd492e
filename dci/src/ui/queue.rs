//! `GET /queues/:queue` for people: what a queue has to do and how it gets on, its settings, and forms for new tasks.

mod charts;
mod facts;
pub mod groups;
mod lists;
mod settings;
pub mod submit;
pub mod versions;

use actix_web::HttpRequest;
use actix_web::web::Data;
use askama::Template;
use bson::{Bson, Document, doc};
use disbatch_core::accounts::Role;
use disbatch_core::explain::Reader;
use disbatch_core::model::Queue;
use disbatch_core::plugin::Template as Prefilled;
use disbatch_core::schedules::OPTIONS;
use disbatch_core::tags::{INDEX, TAGS, TagIndex};
use serde_json::{Map, Value};

use crate::access::{NamedQueue, Who, viewer};
use crate::api::{Answer, queues, redirect};
use crate::catalogue::Catalogue;
use crate::error::HttpError;
use crate::json::Dates;
use crate::openapi::EventStream;
use crate::params::{Lenient, Params};
use crate::state::State;
use crate::ui::overview::throughput::Span;
use crate::ui::parts::Charts;
use crate::ui::schema::{Field, Form};
use crate::ui::task::options_again;
use crate::ui::tasks::params_of;
use crate::ui::{Rendered, live, text};
use crate::{json, ui};
use charts::Of;
pub use charts::length;
use facts::Facts;
pub use lists::how_it_failed;
use settings::Settings;

const MARKS: i64 = 20;

/// The options of tasks that have a field whether they are set or not.
const FIELDS: [&str; 5] = ["timeout", "max_attempts", "group", "priority", TAGS];

#[derive(Template)]
#[template(path = "queue.html")]
struct QueuePage<'a> {
    tab: Tab,
    facts: &'a Facts,
    role: Option<Role>,
    settings: Settings<'a>,
    /// Of the plugin's parameters; none if they are not described.
    fields: Vec<Field>,
    json: String,
    template: Prefilled,
    /// Further options of a task that is run again.
    others: Vec<(String, String)>,
    has_keys: bool,
    charts: Charts,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Tab {
    Now,
    New,
    Settings,
}

impl Tab {
    /// The one that is asked for. A task that is to be run again with others is for the forms.
    fn of(params: &Params) -> Self {
        match text(params.fields.get("tab")).as_str() {
            "new" => Self::New,
            "settings" => Self::Settings,
            "" if params.fields.contains_key("task") => Self::New,
            _ => Self::Now,
        }
    }

    /// What it is called, and what its address adds to that of the page.
    const fn about(self) -> (&'static str, &'static str) {
        match self {
            Self::Now => ("Now", ""),
            Self::New => ("New tasks", "?tab=new"),
            Self::Settings => ("Settings", "?tab=settings"),
        }
    }
}

impl QueuePage<'_> {
    fn tabs(&self) -> Vec<Tab> {
        let all = [Tab::Now, Tab::New, Tab::Settings];
        let submits = self.role >= Some(Role::Submitter);
        all.into_iter().filter(|tab| *tab != Tab::New || submits).collect()
    }
}

pub async fn render(state: Data<State>, who: Who, named: NamedQueue, Lenient(params): Lenient) -> Rendered {
    let queue = queues::find(&state, &named).await?;
    let span = Span::of(&params);
    let (facts, points, plugins) = futures::try_join!(
        Facts::gather(&state, queue.clone(), Reader::of(&who.reach(Role::Viewer))),
        charts::points(&state.store, queue.id, span),
        state.catalogue(),
    )?;
    let again = again(&state, &who, &queue, &params).await?;
    let (is_again, others) = (again.is_some(), again.as_ref().map(without_field).unwrap_or_default());
    // A task that is run again has what it had.
    let template = again.unwrap_or_else(|| template_of(&plugins, &queue));
    let begun = Some(template.params.clone()).filter(|params| is_again || !params.is_empty());
    let charts = charts::first(queue.id, span, &points);
    let page = page(&facts, plugins.names(), (form_of(&plugins, &queue), begun), charts);
    let tab = Some(Tab::of(&params)).filter(|tab| page.tabs().contains(tab)).unwrap_or(Tab::Now);
    ui::render(&QueuePage { tab, template, others, has_keys: !state.keys.is_empty(), ..page })
}

/// The parameters and options of the task that is to be run again with others, if the address names one: of this queue, unless
/// whoever asks may see all tasks.
async fn again(
    state: &State,
    who: &Who,
    queue: &Queue,
    params: &Params,
) -> Result<Option<Prefilled>, HttpError> {
    let Ok(id) = text(params.fields.get("task")).parse() else { return Ok(None) };
    let mut fields = doc! { "params": 1, "parameters": 1, "queue": 1, "tenant": 1 };
    fields.extend(OPTIONS.map(|name| (name.to_owned(), Bson::Int32(1))));
    let task = state.store.find_task_fields(id, fields).await?;
    let is_seen = |task: &Document| {
        who.is_everywhere(Role::Viewer) || task.get_object_id("queue").is_ok_and(|id| id == queue.id.0)
    };
    let index = TagIndex::stored(queue.rest.get(INDEX));
    let of_task = |task: Document| {
        let params = json::from_document(params_of(&task)?.as_document()?, Dates::Text);
        let options = options_again(&task, &index, queue.tenant()).into_iter();
        let options = options.map(|(name, text)| (name.to_owned(), Value::from(text))).collect();
        Some(Prefilled { params, options, ..Prefilled::default() })
    };
    Ok(task.filter(is_seen).and_then(of_task))
}

fn without_field(again: &Prefilled) -> Vec<(String, String)> {
    let others = again.options.keys().filter(|name| !FIELDS.contains(&name.as_str()));
    others.map(|name| (name.clone(), again.option(name))).collect()
}

fn page<'a>(
    facts: &'a Facts,
    plugins: &'a [String],
    (form, again): (Option<Form>, Option<Map<String, Value>>),
    charts: Charts,
) -> QueuePage<'a> {
    let form = match (form, &again) {
        (Some(form), Some(params)) => Some(form.with(params)),
        (form, _) => form,
    };
    QueuePage {
        json: again.map(|params| json::pretty(&Value::Object(params))).unwrap_or_default(),
        template: Prefilled::default(),
        others: Vec::new(),
        has_keys: false,
        tab: Tab::Now,
        facts,
        role: viewer::role_on(&facts.queue),
        settings: Settings { queue: &facts.queue, plugins },
        fields: form.map(|form| form.fields).unwrap_or_default(),
        charts,
    }
}

pub fn form_of(plugins: &Catalogue, queue: &Queue) -> Option<Form> {
    let plugin = queue.effective_plugin().ok()??;
    let schema = plugins.manifest(&plugin)?.params.as_ref()?;
    Some(Form::of(schema))
}

/// What the author of the plugin of a queue has forms begin with, as far as the plugin is known.
pub fn template_of(plugins: &Catalogue, queue: &Queue) -> Prefilled {
    let plugin = queue.effective_plugin().ok().flatten();
    let template = plugin.and_then(|plugin| plugins.manifest(&plugin)?.template.clone());
    template.unwrap_or_default()
}

/// What of the page of a queue changes, as Server-Sent Events like those of `/ui/overview`.
#[utoipa::path(
    get, path = "/ui/queues/{id}", tag = "service", operation_id = "queueEvents",
    params(("id" = String, Path, description = "The queue's id.", example = "6b0003bb686c8275d70dc2f1")),
    responses(EventStream, (status = 404, description = "There is no such queue.")),
)]
pub async fn live(request: HttpRequest, state: Data<State>, who: Who, named: NamedQueue) -> Answer {
    let id = queues::find(&state, &named).await?.id.to_string();
    // What is told of nodes depends on who looks.
    let reader = Reader::of(&who.reach(Role::Viewer));
    let kind = if reader == Reader::OfAll { "queue for all" } else { "queue" };
    Ok(live::of_one(&request, &state, (kind, id), async move |state, id| {
        let queue = queues::find(state, &NamedQueue::parse(id)).await?;
        Facts::gather(state, queue, reader).await?.parts()
    }))
}

/// What happened in a queue over time: `of` is `ended`, how many tasks ended, `waited`, how long those had waited that
/// were started, or `ran`, how long those took that ended.
#[utoipa::path(
    get, path = "/ui/queues/{id}/chart", tag = "service", operation_id = "showQueueChart",
    params(
        ("id" = String, Path, description = "The queue's id.", example = "6b0003bb686c8275d70dc2f1"),
        ("of" = Option<String>, Query, description = "ended, waited or ran."),
        ("span" = Option<String>, Query, description = "1h, 24h or 7d."),
    ),
    responses(
        (status = 200, description = "What the chart shows.", body = serde_json::Value),
        (status = 404, description = "There is no such queue."),
    ),
)]
pub async fn chart(state: Data<State>, named: NamedQueue, Lenient(params): Lenient) -> Answer {
    let queue = queues::find(&state, &named).await?;
    let (of, span) = (Of::named(&text(params.fields.get("of"))).unwrap_or(Of::Ended), Span::of(&params));
    let since = span.since(state.store.now());
    let (points, changes) = futures::try_join!(
        charts::points(&state.store, queue.id, span),
        state.store.changes_of_queue(queue.id, since, MARKS),
    )?;
    let mut chart = charts::chart(of, span, &points);
    chart["marks"] = charts::marks(&changes);
    Ok(json::ok(&chart))
}

/// Deletes a queue, whose tasks stay, and leads to the overview.
#[utoipa::path(
    post, path = "/ui/queues/{id}/delete", tag = "service", operation_id = "deleteQueueByForm",
    params(("id" = String, Path, description = "The queue's id.", example = "6b0003bb686c8275d70dc2f1")),
    responses(
        (status = 303, description = "Deleted; the overview is next."),
        (status = 400, description = "There is no such queue. A page.", body = String, content_type = "text/html"),
        (status = 404, description = "The address has no id of a queue."),
    ),
)]
pub async fn remove(state: Data<State>, who: Who, named: NamedQueue) -> Answer {
    redirect::lead(queues::remove(state, who, named).await, "/")
}

#[cfg(test)]
mod tests;
