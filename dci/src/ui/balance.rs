//! `GET /balance` for people: how many tasks may run when, which queues come first, and how `QueueBalance` is doing. It can be
//! paused. With script all of it can be changed: it is checked while somebody does so ([`check`]), and saved unless somebody else was
//! faster.

use std::collections::{BTreeSet, HashSet};
use std::fmt::Write as _;

use actix_web::web::Data;
use askama::Template;
use askama::filters::HtmlSafe;
use bson::{DateTime, Document};
use disbatch_core::balance::plan::{Timetable, WeekMinute};
use disbatch_core::balance::{BalanceDocument, revision};
use disbatch_core::config::Balance;
use serde::Serialize;
use serde_json::{Map, Value, json};

use crate::api::{Answer, balance};
use crate::params::Params;
use crate::state::State;
use crate::ui::Rendered;
use crate::ui::parts::{Pill, When, grouped};
use crate::{json, legacy, ui};

/// Days as `max_tasks` has them: all of them, and those of the week in the order in which weeks are shown.
const DAYS: [(&str, &str); 8] = [
    ("*", "Every day"),
    ("1", "Monday"),
    ("2", "Tuesday"),
    ("3", "Wednesday"),
    ("4", "Thursday"),
    ("5", "Friday"),
    ("6", "Saturday"),
    ("0", "Sunday"),
];

#[derive(Template)]
#[template(path = "balance.html")]
struct BalancePage {
    config: Balance,
    /// Whether there is a document.
    begun: bool,
    stored: BalanceDocument,
    /// Until when it does nothing.
    disabled: Option<When>,
    /// What a new entry of the timetable begins as.
    blank: TimeRow,
    /// In the order in which they get their part: the default one last.
    tiers: Vec<Vec<Item>>,
    /// What is in none.
    others: Vec<Item>,
    /// What is stored, as `POST /balance` takes it.
    saved: String,
    /// Of what is stored.
    revision: String,
}

#[derive(Debug, PartialEq, Eq)]
struct TimeRow {
    day: String,
    time: String,
    most: i64,
    /// The key as stored, if it is no time of the week.
    odd: Option<String>,
}

struct Item {
    name: String,
    /// Whether there is such a queue.
    known: bool,
}

pub async fn render(state: Data<State>) -> Rendered {
    let (stored, known) = futures::try_join!(state.store.stored_balance(), balance::known_queues(&state))?;
    ui::render(&page(stored, &known, state.balance, state.store.now()))
}

fn page(stored: Option<Document>, known: &[String], config: Balance, now: DateTime) -> BalancePage {
    let (begun, revision) = (stored.is_some(), revision(stored.as_ref()));
    let stored = stored.map(BalanceDocument::from).unwrap_or_default();
    let (tiers, others) = tiers(&stored.queues, known);
    let until = stored.disabled.filter(|until| *until > now.timestamp_millis() / 1000);
    BalancePage {
        config,
        begun,
        disabled: until.map(|until| When::at(DateTime::from_millis(until.saturating_mul(1000)))),
        blank: TimeRow { day: "*".to_owned(), time: "07:00".to_owned(), most: 10, odd: None },
        tiers,
        others,
        saved: json::compact(&document(&stored.max_tasks, &stored.queues)),
        revision,
        stored,
    }
}

/// A status as monitoring systems know it.
pub fn health(status: &str) -> Pill {
    match status {
        "OK" => Pill { tone: "good", word: "OK" },
        "WARNING" => Pill { tone: "busy", word: "WARNING" },
        "CRITICAL" => Pill { tone: "bad", word: "CRITICAL" },
        _ => Pill { tone: "idle", word: "unknown" }, // Nobody writes anything else.
    }
}

/// The timetable in order: that of every day first.
fn times(max_tasks: &[(String, i64)]) -> Vec<TimeRow> {
    let mut rows: Vec<TimeRow> = max_tasks.iter().map(|(key, most)| time_row(key, *most)).collect();
    rows.sort_by_key(|row| {
        let day = DAYS.iter().position(|(day, _)| *day == row.day);
        (day.unwrap_or(DAYS.len()), row.time.clone())
    });
    rows
}

fn time_row(key: &str, most: i64) -> TimeRow {
    let odd = || TimeRow { day: String::new(), time: String::new(), most, odd: Some(key.to_owned()) };
    let Some((day, clock)) = key.trim().split_once(' ') else { return odd() };
    let Some((hour, minute)) = clock.trim().split_once(':') else { return odd() };
    let number = |text: &str, below: u8| text.parse::<u8>().ok().filter(|number| *number < below);
    match (DAYS.iter().any(|(known, _)| *known == day), number(hour, 24), number(minute, 60)) {
        (true, Some(hour), Some(minute)) => {
            TimeRow { day: day.to_owned(), time: format!("{hour:02}:{minute:02}"), most, odd: None }
        }
        _ => odd(),
    }
}

/// Tiers in the order in which they get their part, and what is in none. The first that is stored is the default one.
fn tiers(stored: &[Vec<String>], known: &[String]) -> (Vec<Vec<Item>>, Vec<Item>) {
    let is_known: BTreeSet<&String> = known.iter().collect();
    let item = |name: &String| Item { name: name.clone(), known: is_known.contains(name) };
    let tier = |names: &[String]| names.iter().map(item).collect::<Vec<Item>>();
    let (default, others) = stored.split_at(stored.len().min(1));
    let mut tiers: Vec<Vec<Item>> = others.iter().map(|names| tier(names)).collect();
    tiers.push(tier(&default.concat()));
    let named: BTreeSet<&String> = stored.iter().flatten().collect();
    let mut rest: Vec<Item> = known.iter().filter(|name| !named.contains(name)).map(item).collect();
    rest.sort_by(|one, other| one.name.cmp(&other.name));
    (tiers, rest)
}

/// As `POST /balance` takes it.
fn document(times: &[(String, i64)], queues: &[Vec<String>]) -> Value {
    let max_tasks: Map<String, Value> =
        times.iter().map(|(time, most)| (time.clone(), Value::from(*most))).collect();
    json!({ "max_tasks": max_tasks, "queues": queues })
}

/// So many minutes are one unit of the picture's width.
const MINUTES: usize = 10;

/// The picture's height, in units of its own.
const HEIGHT: usize = 100;

/// A day has so many minutes.
const DAY: usize = 24 * 60;

/// How many tasks may run over the week: as a picture, and as a table for those who cannot see it.
#[derive(Debug, Template)]
#[template(path = "balance/week.html")]
struct Week {
    area: String,
    most: u64,
    words: String,
    /// From when until when there is which limit.
    rows: Vec<(String, String, u64)>,
}

impl HtmlSafe for Week {}

impl Week {
    /// Those of a timetable. What is no time of the week is left out.
    fn of(max_tasks: &[(String, i64)]) -> Self {
        let legal = |entry: &&(String, i64)| Timetable::read(std::slice::from_ref(*entry)).is_ok();
        let entries: Vec<(String, i64)> = max_tasks.iter().filter(legal).cloned().collect();
        let stretches = stretches(&Timetable::read(&entries).unwrap_or_default());
        let most = stretches.iter().map(|(.., limit)| *limit).max().unwrap_or(0);
        let least = stretches.iter().map(|(.., limit)| *limit).min().unwrap_or(0);
        let words = match (stretches.is_empty(), least == most) {
            (true, _) => "There is no time yet from which on tasks may run.".to_owned(),
            (false, true) => format!("{} tasks may run at any time.", grouped(most)),
            (false, false) => format!("From {} to {} tasks may run.", grouped(least), grouped(most)),
        };
        Self {
            area: area(&stretches, most),
            most,
            words,
            rows: stretches.iter().map(|(from, until, limit)| (told(*from), told(*until), *limit)).collect(),
        }
    }
}

/// Which limit holds from which minute to which, counted from the beginning of Monday.
fn stretches(times: &Timetable) -> Vec<(usize, usize, u64)> {
    let mut found: Vec<(usize, usize, u64)> = Vec::new();
    for minute in 0..7 * DAY {
        let Some(limit) = at(minute).and_then(|at| times.limit_at(at)) else { continue };
        match found.last_mut() {
            Some((_, until, known)) if *known == limit && *until == minute => *until = minute + 1,
            _ => found.push((minute, minute + 1, limit)),
        }
    }
    found
}

fn at(minute: usize) -> Option<WeekMinute> {
    let (number, _) = DAYS.get(1 + minute / DAY)?;
    let (hour, rest) = (minute % DAY / 60, minute % 60);
    WeekMinute::new(number.parse().ok()?, u8::try_from(hour).ok()?, u8::try_from(rest).ok()?)
}

fn area(stretches: &[(usize, usize, u64)], most: u64) -> String {
    let mut path = String::new();
    for (from, until, limit) in stretches {
        let x = |minute: usize| minute as f64 / MINUTES as f64;
        // A part of the height is left above, so that the highest has an edge.
        let height = 0.92 * HEIGHT as f64 * *limit as f64 / most.max(1) as f64;
        let _infallible = write!(
            path,
            "M{:.1} {HEIGHT}V{:.1}H{:.1}V{HEIGHT}z",
            x(*from),
            HEIGHT as f64 - height,
            x(*until)
        );
    }
    path
}

fn told(minute: usize) -> String {
    let day = DAYS.get(1 + minute / DAY % 7).map_or("", |(_, name)| name);
    format!("{day} {:02}:{:02}", minute % DAY / 60, minute % 60)
}

#[derive(Debug, PartialEq, Eq, Serialize)]
struct Problem {
    /// Where it is: `times/0/most`, or `queues/NAME`.
    at: String,
    text: String,
}

/// Checks `times`, an array of objects with `day`, `time` and `most`, `tiers`, arrays of names of queues in the order in which
/// they get their part, and `default`, those that get the rest. Answers the problems, the document for `POST /balance`,
/// and the picture of the week. Nothing is changed.
#[utoipa::path(
    post, path = "/ui/balance/check", tag = "service", operation_id = "checkBalance",
    request_body(
        content = Value, content_type = "application/json",
        example = json!({"times": [{"day": "*", "time": "07:00", "most": "5"}], "tiers": [["mail"]], "default": []}),
    ),
    responses(
        (
            status = 200, description = "What was found.", body = Value,
            example = json!({
                "document": {"max_tasks": {"* 07:00": 5}, "queues": [[], ["mail"]]}, "problems": [],
                "week": "<figure id=\"week\">..</figure>",
            }),
        ),
        (status = 400, description = "The body is no JSON object."),
    ),
)]
pub async fn check(state: Data<State>, params: Params) -> Answer {
    let known: BTreeSet<String> = balance::known_queues(&state).await?.into_iter().collect();
    let (problems, document, times) = checked(&params.fields, &known);
    Ok(json::ok(&json!({
        "problems": problems,
        "document": document,
        "week": ui::html(&Week::of(&times))?,
    })))
}

/// What is wrong, the document as `POST /balance` takes it, and the times that are right.
fn checked(
    fields: &Map<String, Value>,
    known: &BTreeSet<String>,
) -> (Vec<Problem>, Value, Vec<(String, i64)>) {
    let mut problems = Vec::new();
    let times = checked_times(fields.get("times"), &mut problems);
    let mut queues = vec![names(fields.get("default"))];
    let tiers = fields.get("tiers").and_then(Value::as_array).into_iter().flatten();
    // A tier without anything in it is none; only the default one keeps its place.
    queues.extend(tiers.map(|tier| names(Some(tier))).filter(|tier| !tier.is_empty()));
    let mut seen = HashSet::new();
    for name in queues.iter().flatten() {
        let text = match (known.contains(name), seen.insert(name)) {
            (false, _) => "There is no such queue: take it out.",
            (true, false) => "It is here more than once.",
            (true, true) => continue,
        };
        problems.push(Problem { at: format!("queues/{name}"), text: text.to_owned() });
    }
    if queues.iter().all(Vec::is_empty) {
        queues.clear();
    }
    (problems, document(&times, &queues), times)
}

fn checked_times(rows: Option<&Value>, problems: &mut Vec<Problem>) -> Vec<(String, i64)> {
    let mut times: Vec<(String, i64)> = Vec::new();
    for (number, row) in rows.and_then(Value::as_array).into_iter().flatten().enumerate() {
        let mut wrong = |field: &str, text: &str| {
            problems.push(Problem { at: format!("times/{number}/{field}"), text: text.to_owned() });
        };
        let text = |field: &str| row[field].as_str().unwrap_or_default().trim().to_owned();
        let key = format!("{} {}", text("day"), text("time"));
        // The end of the week is as it is stored: two digits each.
        let legal = time_row(&key, 0);
        let key = format!("{} {}", legal.day, legal.time);
        let most = legacy::integer(&row["most"]).filter(|most| *most >= 0);
        let is_new = times.iter().all(|(known, _)| *known != key);
        match (legal.odd, most, is_new) {
            (Some(_), ..) => wrong("time", "This must be a time of the day, like 07:00."),
            (None, None, _) => wrong("most", "This must be a whole number, 0 or more."),
            (None, Some(_), false) => wrong("time", "There is another line for the same day and time."),
            (None, Some(most), true) => times.push((key, most)),
        }
    }
    times
}

fn names(tier: Option<&Value>) -> Vec<String> {
    let names = tier.and_then(Value::as_array).into_iter().flatten();
    names.filter_map(Value::as_str).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests;
