//! `GET /moments` for people: what happened at 03:12?

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use actix_web::web::Data;
use askama::Template;
use bson::DateTime;
use bson::oid::ObjectId;
use disbatch_core::model::{Queue, QueueId, Status};
use disbatch_core::moment::{Event, Limits, MOST_AROUND, Past, Question, Ran};

use crate::access::Who;
use crate::params::Lenient;
use crate::state::State;
use crate::ui::names::{self, Link, QueueNames, end_of, place};
use crate::ui::parts::{counted, precise};
use crate::ui::{Rendered, plain, zone};
use crate::{history, ui};

/// So many of those that ran are in the table.
const RUNNING: usize = 100;

#[derive(Template)]
#[template(path = "moment.html")]
struct MomentPage<'a> {
    question: &'a Question,
    /// Those that can be chosen, and whether they are.
    queues: Vec<(bool, Queue)>,
    names: QueueNames,
    lanes: Vec<Lane>,
    /// How many lanes are left out.
    more_lanes: usize,
    /// How many attempts ran at the moment.
    ran: usize,
    running: Vec<&'a Ran>,
    past: &'a Past,
}

pub async fn render(state: Data<State>, who: Who, Lenient(params): Lenient) -> Rendered {
    let asked = history::asked_moment(&state, &who, &params, &zone::now()).await?;
    let past = state.store.moment(&asked.question).await?;
    ui::render(&page(&asked.question, asked.queues, &past))
}

fn page<'a>(question: &'a Question, mut queues: Vec<Queue>, past: &'a Past) -> MomentPage<'a> {
    let names = names::names(&queues);
    queues.sort_by_cached_key(Queue::display_name);
    let mut lanes = lanes(question, past, &names);
    let more_lanes = lanes.len().saturating_sub(LANES);
    lanes.truncate(LANES);
    MomentPage {
        question,
        lanes,
        more_lanes,
        ran: past.running(question.at).count(),
        running: past.running(question.at).take(RUNNING).collect(),
        past,
        names,
        queues: queues.into_iter().map(|queue| (question.queue == Some(queue.id), queue)).collect(),
    }
}

/// A length of time as the field takes it. Templates pass references.
fn span(length: &Duration) -> String {
    let seconds = length.as_secs();
    match seconds {
        s if s % 3600 == 0 => format!("{}h", s / 3600),
        s if s % 60 == 0 => format!("{}m", s / 60),
        s => format!("{s}s"),
    }
}

fn address(question: &Question, at: DateTime, around: Duration) -> String {
    let at = [("at", at.try_to_rfc3339_string().unwrap_or_default()), ("around", span(&around))];
    let queue = question.queue.map(|queue| ("queue", queue.to_string()));
    let node = question.node.as_ref().map(|node| ("node", node.as_str().to_owned()));
    names::address("/moments", at.into_iter().chain(queue).chain(node))
}

/// Ways to other moments: what they are called, and their addresses.
fn ways(question: &Question) -> [(&'static str, String); 4] {
    let step = |way: i64| {
        let step = i64::try_from(question.around.as_millis()).unwrap_or(0).saturating_mul(way);
        question.at.saturating_add_millis(step)
    };
    let (at, around) = (question.at, question.around);
    let shorter = Duration::from_secs((around.as_secs() / 2).max(1));
    let longer = (around * 2).min(MOST_AROUND);
    [
        ("Earlier", address(question, step(-1), around)),
        ("Later", address(question, step(1), around)),
        ("Shorter", address(question, at, shorter)),
        ("Longer", address(question, at, longer)),
    ]
}

/// What the picture shows, in words.
fn words(question: &Question, past: &Past, ran: usize) -> String {
    format!(
        "From {} to {}: {} ran, {} of them at the moment; {}.",
        zone::clock(question.from()),
        zone::clock(question.to()),
        counted(past.ran.len(), "attempt"),
        ran,
        counted(past.events.len(), "event"),
    )
}

fn queue_link(queue: &QueueId, names: &QueueNames) -> Link {
    match names.get(&queue.0) {
        Some(name) => Link::to(name, place(queue, name)),
        None => Link::nowhere(end_of(queue)),
    }
}

fn ended(ran: &Ran) -> String {
    let (Some(until), Some(then)) = (ran.until, ran.then) else { return "still runs".to_owned() };
    let lasted = until.timestamp_millis().saturating_sub(ran.since.timestamp_millis());
    format!("{} after {}", ui::word(then), precise(lasted))
}

fn settings(limits: &Limits) -> String {
    let setting = |(name, value): (&String, &bson::Bson)| format!("{name} {}", plain(Some(value)));
    let settings: Vec<String> = limits.settings.iter().map(setting).collect();
    if settings.is_empty() { "none".to_owned() } else { settings.join(", ") }
}

fn links(event: &Event, names: &QueueNames) -> Vec<Link> {
    let task = event.task.map(|task| Link::to(end_of(task), format!("/tasks/{task}")));
    let queue = event.queue.as_ref().map(|queue| queue_link(queue, names));
    let node = event.node.as_deref().map(Link::node);
    let schedule = event.schedule.map(|id| Link::to("schedule", format!("/schedules/{id}")));
    [task, queue, node, schedule].into_iter().flatten().collect()
}

/// How wide a lane is, in its own units.
const WIDTH: i64 = 1000;

/// No bar is narrower: it would not be seen.
const LEAST: i64 = 3;

/// So many lanes are shown.
const LANES: usize = 40;

struct Lane {
    name: String,
    words: String,
    bars: Vec<Bar>,
    /// Where the moment is.
    at: i64,
}

struct Bar {
    tone: &'static str,
    left: i64,
    width: i64,
    title: String,
    /// How many more it stands for.
    more: usize,
    /// How high it is, and where it begins: marks are lower than what ran.
    top: i64,
    height: i64,
}

type Within<'a> = (Vec<&'a Ran>, Vec<&'a Event>);

/// All lanes, those with names first.
fn lanes(question: &Question, past: &Past, names: &QueueNames) -> Vec<Lane> {
    let by_node = question.queue.is_some();
    let name = |queue: Option<ObjectId>, node: Option<&str>| match (by_node, queue) {
        (true, _) => node.unwrap_or("no node").to_owned(),
        (false, Some(queue)) => names.get(&queue).cloned().unwrap_or_else(|| end_of(queue)),
        (false, None) => "no queue".to_owned(),
    };
    let mut lanes: BTreeMap<String, Within<'_>> = BTreeMap::new();
    for ran in &past.ran {
        let name = name(ran.queue.map(|queue| queue.0), ran.node.as_deref());
        lanes.entry(name).or_default().0.push(ran);
    }
    for event in &past.events {
        let name = name(event.queue.map(|queue| queue.0), event.node.as_deref());
        lanes.entry(name).or_default().1.push(event);
    }
    lanes.into_iter().map(|(name, within)| lane(name, &within, question)).collect()
}

fn lane(name: String, (ran, events): &Within<'_>, question: &Question) -> Lane {
    let mut bars = merged(ran.iter().map(|ran| bar(ran, question)).collect());
    bars.extend(merged(events.iter().map(|event| mark(event, question)).collect()));
    Lane {
        words: format!("{name}: {} ran, {} happened", ran.len(), events.len()),
        name,
        bars,
        at: position(question.at, question).saturating_sub(1),
    }
}

/// Those that look alike and begin at the same unit are one, as wide as the widest: nothing is left out, and a lane has few.
fn merged(mut bars: Vec<Bar>) -> Vec<Bar> {
    bars.sort_by_key(|bar| (bar.left, bar.tone, Reverse(bar.width)));
    bars.dedup_by(|next, widest| {
        let is_same = (next.left, next.tone) == (widest.left, widest.tone);
        widest.more += usize::from(is_same);
        is_same
    });
    // What is drawn later hides what was: the narrow come after the wide, and what has succeeded first.
    bars.sort_by_key(|bar| (bar.left, Reverse(bar.width), bar.tone != Status::Succeeded.word()));
    bars
}

fn bar(ran: &Ran, question: &Question) -> Bar {
    let left = position(ran.since, question);
    let right = ran.until.map_or(WIDTH, |until| position(until, question));
    let then = ran.then.unwrap_or(Status::Running);
    let attempt = ran.attempt.map(|attempt| format!(", attempt {attempt}")).unwrap_or_default();
    let node = ran.node.as_deref().map(|node| format!(" on {node}")).unwrap_or_default();
    let title = format!("{}{attempt}{node}: {}", end_of(ran.task.0), ui::word(then));
    Bar { tone: then.word(), left, width: (right - left).max(LEAST), title, more: 0, top: 0, height: 14 }
}

fn mark(event: &Event, question: &Question) -> Bar {
    let tone = event.status.map_or("claimed", |status| status.word());
    let title = format!("{} {}", ui::zone::clock(event.at), event.words);
    Bar { tone, left: position(event.at, question), width: LEAST, title, more: 0, top: 14, height: 6 }
}

/// Where a time is in the picture.
fn position(at: DateTime, question: &Question) -> i64 {
    let (from, to) = (question.from().timestamp_millis(), question.to().timestamp_millis());
    let past = at.timestamp_millis().saturating_sub(from).clamp(0, to - from);
    past.saturating_mul(WIDTH) / (to - from).max(1)
}

#[cfg(test)]
mod tests {
    use disbatch_core::accounts::Reach;
    use disbatch_core::model::TaskId;

    use super::*;

    fn question(queue: Option<QueueId>) -> Question {
        let around = Duration::from_secs(100);
        let at = DateTime::from_millis(100_000);
        Question { at, around, queue, node: None, reach: Reach::All, changes: Reach::All }
    }

    fn ran(queue: u8, (since, until): (i64, i64), then: Status) -> Ran {
        Ran {
            task: TaskId(ObjectId::from_bytes([2; 12])),
            queue: Some(QueueId(ObjectId::from_bytes([queue; 12]))),
            node: Some("n1".to_owned()),
            attempt: Some(1),
            since: DateTime::from_millis(since),
            until: Some(DateTime::from_millis(until)),
            then: Some(then),
            note: String::new(),
        }
    }

    fn past(ran: Vec<Ran>) -> Past {
        Past { ran, waiting: None, limits: vec![], events: vec![], gaps: vec![] }
    }

    #[test]
    fn lanes_are_of_queues_or_of_the_nodes_of_one() {
        let past = past(vec![ran(1, (50_000, 150_000), Status::Failed)]);
        let queue = QueueId(ObjectId::from_bytes([1; 12]));
        let names = [(queue.0, "mail".to_owned())].into();
        let shown = lanes(&question(None), &past, &names);
        assert_eq!(shown.iter().map(|lane| lane.name.as_str()).collect::<Vec<_>>(), ["mail"]);
        let bar = &shown[0].bars[0];
        assert_eq!((bar.tone, bar.left, bar.width), ("failed", 250, 500));
        assert_eq!(shown[0].at, 499);
        assert_eq!(lanes(&question(Some(queue)), &past, &names)[0].name, "n1");
    }

    #[test]
    fn bars_at_one_place_are_one_and_none_is_left_out() {
        let (good, bad) = (Status::Succeeded, Status::Failed);
        let early = (0..900).map(|at| ran(1, (20_000 + at % 100, 40_000 + at), good));
        let past =
            past(early.chain([ran(1, (20_000, 20_100), bad), ran(1, (90_000, 190_000), bad)]).collect());
        let lanes = lanes(&question(None), &past, &QueueNames::new());
        let bars: Vec<_> =
            lanes[0].bars.iter().map(|bar| (bar.tone, bar.left, bar.width, bar.more)).collect();
        assert_eq!(bars, [("succeeded", 100, 104, 899), ("failed", 100, 3, 0), ("failed", 450, 500, 0)]);
        assert!(lanes[0].words.ends_with(": 902 ran, 0 happened"), "{}", lanes[0].words);
        let html = page(&question(None), vec![], &past).render().unwrap();
        assert!(html.contains(": succeeded, and 899 more</title>"), "{html}");
        assert!(!html.contains("Left out") && !html.contains("are listed"), "{html}");
    }

    #[test]
    fn what_is_left_out_is_told() {
        let of = |queue| (0..3).map(move |_| ran(queue, (50_000, 150_000), Status::Failed));
        let past = past((1..=42).flat_map(of).collect());
        let html = page(&question(None), vec![], &past).render().unwrap();
        assert_eq!(html.matches("class=\"life\"").count(), 40, "{html}");
        for part in ["Left out: 2 lanes.", "126 running", "the 100 that began first are listed"] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
    }

    #[test]
    fn what_is_outside_of_the_span_is_at_its_edge() {
        let at = |millis| position(DateTime::from_millis(millis), &question(None));
        assert_eq!([-5, 0, 200_000, i64::MAX].map(at), [0, 0, 1000, 1000]);
    }
}
