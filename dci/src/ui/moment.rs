//! `GET /moments` for people: what happened at 03:12?

mod lanes;

use std::collections::HashMap;
use std::time::Duration;

use actix_web::http::StatusCode;
use askama::Template;
use bson::DateTime;
use bson::oid::ObjectId;
use disbatch_core::accounts::Role;
use disbatch_core::model::Queue;
use disbatch_core::moment::{Event, MOST_AROUND, Past, Question, Ran};

use crate::access::{Who, viewer};
use crate::moments;
use crate::params::Params;
use crate::state::State;
use crate::ui::bulk::encoded;
use crate::ui::names::{names, place};
use crate::ui::parts::When;
use crate::ui::spans::precise;
use crate::ui::titles::end_of;
use crate::ui::{self, Rendered, plain, zone};
use lanes::Lane;

/// So many of those that ran are in the table.
const RUNNING: usize = 100;

#[derive(Template)]
#[template(path = "moment.html")]
struct MomentPage {
    /// The moment, as the form has it.
    at: String,
    around: String,
    queues: Vec<(Queue, bool)>,
    node: String,
    /// Ways to other moments: what they are called, and their addresses.
    ways: Vec<(&'static str, String)>,
    /// What the picture shows, in words.
    words: String,
    lanes: Vec<Lane>,
    /// How many attempts ran at the moment.
    ran: usize,
    waiting: Option<u64>,
    running: Vec<Row>,
    limits: Vec<Limit>,
    events: Vec<EventRow>,
    gaps: Vec<String>,
}

/// An attempt that ran at the moment.
struct Row {
    address: String,
    task: String,
    attempt: String,
    queue: Link,
    node: Link,
    since: When,
    ended: String,
}

/// A name, and where there is more of it.
#[derive(Default)]
struct Link {
    name: String,
    address: String,
}

struct Limit {
    what: &'static str,
    name: String,
    settings: String,
    known: bool,
}

/// An event.
struct EventRow {
    at: When,
    kind: &'static str,
    words: String,
    by: String,
    links: Vec<Link>,
}

/// The page.
pub async fn render(state: &State, who: &Who, params: &Params) -> Rendered {
    let asked = moments::asked(state, who, params, &zone::now()).await?;
    let past = state.store.moment(&asked.question).await?;
    ui::render(StatusCode::OK, &page(&asked.question, asked.queues, past))
}

fn page(question: &Question, mut queues: Vec<Queue>, past: Past) -> MomentPage {
    let names = names(&queues);
    queues.sort_by_cached_key(Queue::display_name);
    let ran = past.running(question.at).count();
    MomentPage {
        at: zone::clock(question.at),
        around: span(question.around),
        node: question.node.as_ref().map(ToString::to_string).unwrap_or_default(),
        ways: ways(question),
        words: words(question, &past, ran),
        lanes: lanes::of(question, &past, &names),
        ran,
        waiting: past.waiting,
        running: past.running(question.at).take(RUNNING).map(|ran| row(ran, &names)).collect(),
        limits: past.limits.iter().map(limit).collect(),
        events: past.events.iter().map(|event| told(event, &names)).collect(),
        gaps: past.gaps,
        queues: queues.into_iter().map(|queue| chosen(queue, question)).collect(),
    }
}

/// A queue for the form, and whether it is asked for.
fn chosen(queue: Queue, question: &Question) -> (Queue, bool) {
    let is_chosen = question.queue == Some(queue.id);
    (queue, is_chosen)
}

/// A length of time as the field takes it.
fn span(length: Duration) -> String {
    let seconds = length.as_secs();
    match seconds {
        s if s % 3600 == 0 => format!("{}h", s / 3600),
        s if s % 60 == 0 => format!("{}m", s / 60),
        s => format!("{s}s"),
    }
}

/// The address of another moment.
fn address(question: &Question, at: DateTime, around: Duration) -> String {
    let at = at.try_to_rfc3339_string().unwrap_or_default();
    let mut address = format!("/moments?at={}&around={}", encoded(&at), span(around));
    if let Some(queue) = question.queue {
        address.push_str(&format!("&queue={queue}"));
    }
    if let Some(node) = &question.node {
        address.push_str(&format!("&node={}", encoded(node.as_str())));
    }
    address
}

fn ways(question: &Question) -> Vec<(&'static str, String)> {
    let step = |way: i64| {
        let step = i64::try_from(question.around.as_millis()).unwrap_or(0).saturating_mul(way);
        DateTime::from_millis(question.at.timestamp_millis().saturating_add(step))
    };
    let (at, around) = (question.at, question.around);
    let shorter = Duration::from_secs((around.as_secs() / 2).max(1));
    let longer = (around * 2).min(MOST_AROUND);
    vec![
        ("Earlier", address(question, step(-1), around)),
        ("Later", address(question, step(1), around)),
        ("Shorter", address(question, at, shorter)),
        ("Longer", address(question, at, longer)),
    ]
}

fn words(question: &Question, past: &Past, ran: usize) -> String {
    let plural =
        |count: usize, one: &str, many: &str| format!("{count} {}", if count == 1 { one } else { many });
    format!(
        "From {} to {}: {} ran, {} of them at the moment; {}.",
        zone::clock(question.from()),
        zone::clock(question.to()),
        plural(past.ran.len(), "attempt", "attempts"),
        ran,
        plural(past.events.len(), "event", "events"),
    )
}

fn queue_link(queue: ObjectId, names: &HashMap<ObjectId, String>) -> Link {
    match names.get(&queue) {
        Some(name) => Link { name: name.clone(), address: place(queue, name) },
        None => Link { name: end_of(queue), address: String::new() },
    }
}

/// Pages of nodes are for those who see all queues.
fn node_link(node: &str) -> Link {
    let address = if viewer::may(Role::Viewer) { format!("/nodes/{}", encoded(node)) } else { String::new() };
    Link { name: node.to_owned(), address }
}

fn row(ran: &Ran, names: &HashMap<ObjectId, String>) -> Row {
    let ended = match (ran.until, ran.then) {
        (Some(until), Some(then)) => {
            let lasted = until.timestamp_millis().saturating_sub(ran.since.timestamp_millis());
            format!("{} after {}", ui::word(then), precise(lasted))
        }
        _ => "still runs".to_owned(),
    };
    Row {
        address: format!("/tasks/{}", ran.task),
        task: end_of(ran.task.0),
        attempt: ran.attempt.map(|attempt| attempt.to_string()).unwrap_or_default(),
        queue: ran.queue.map(|queue| queue_link(queue.0, names)).unwrap_or_default(),
        node: ran.node.as_deref().map(node_link).unwrap_or_default(),
        since: When::exact(Some(&ran.since.into())),
        ended,
    }
}

fn limit(limits: &disbatch_core::moment::Limits) -> Limit {
    let setting = |(name, value): (&String, &bson::Bson)| format!("{name} {}", plain(Some(value)));
    let settings: Vec<String> = limits.settings.iter().map(setting).collect();
    Limit {
        what: if limits.of_node { "node" } else { "queue" },
        name: limits.name.clone(),
        settings: if settings.is_empty() { "none".to_owned() } else { settings.join(", ") },
        known: limits.known,
    }
}

fn told(event: &Event, names: &HashMap<ObjectId, String>) -> EventRow {
    let task = event.task.map(|task| Link { name: end_of(task.0), address: format!("/tasks/{task}") });
    let queue = event.queue.map(|queue| queue_link(queue.0, names));
    let node = event.node.as_deref().map(node_link);
    let schedule =
        event.schedule.map(|id| Link { name: "schedule".to_owned(), address: format!("/schedules/{id}") });
    EventRow {
        at: When::exact(Some(&event.at.into())),
        kind: event.kind.word(),
        words: event.words.clone(),
        by: event.by.clone().unwrap_or_default(),
        links: [task, queue, node, schedule].into_iter().flatten().collect(),
    }
}
