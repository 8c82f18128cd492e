//! `GET /balance` for people: how many tasks may run when, which queues come first, and how `QueueBalance` is doing. It can be
//! paused. With script all of it can be changed: it is checked while somebody does so ([`check`]), and saved unless somebody else was
//! faster.

pub mod check;
mod week;

use std::collections::BTreeSet;

use actix_web::http::StatusCode;
use askama::Template;
use askama::filters::HtmlSafe;
use bson::{DateTime, Document};
use disbatch_core::balance::BalanceDocument;
use disbatch_core::balance::change::revision;
use disbatch_core::config::Balance;
use serde_json::{Map, Value, json};

use crate::api::balance;
use crate::json;
use crate::state::State;
use crate::ui::parts::{Pill, When};
use crate::ui::{self, Rendered};
use week::Week;

/// Days as `max_tasks` has them.
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
    switches: [Switch; 4],
    enabled: bool,
    pretend: bool,
    /// Whether there is a document.
    begun: bool,
    state: Option<Pill>,
    message: String,
    seen: When,
    /// Until when it does nothing.
    disabled: Option<When>,
    times: Vec<TimeRow>,
    /// What a new one begins as.
    blank: TimeRow,
    week: Week,
    /// In the order in which they get their part: the default one last.
    tiers: Vec<Tier>,
    /// What is in none.
    others: Vec<Item>,
    /// What is stored, as `POST /balance` takes it.
    saved: String,
    /// Of what is stored.
    revision: String,
}

/// A switch of the configuration.
struct Switch {
    name: &'static str,
    on: bool,
    meaning: &'static str,
}

/// An entry of the timetable.
#[derive(Debug, PartialEq, Eq, Template)]
#[template(path = "balance/time.html")]
struct TimeRow {
    day: String,
    time: String,
    most: i64,
    /// The key as stored, if it is no time of the week.
    odd: Option<String>,
}

impl HtmlSafe for TimeRow {}

struct Day {
    value: &'static str,
    name: &'static str,
    chosen: bool,
}

impl TimeRow {
    fn days(&self) -> Vec<Day> {
        DAYS.map(|(value, name)| Day { value, name, chosen: value == self.day }).into()
    }
}

struct Tier {
    is_default: bool,
    items: Vec<Item>,
}

/// A queue.
#[derive(Template)]
#[template(path = "balance/queue.html")]
struct Item {
    name: String,
    /// Whether there is such a queue.
    known: bool,
}

impl HtmlSafe for Item {}

pub async fn render(state: &State) -> Rendered {
    let (stored, known) = futures::try_join!(state.store.stored_balance(), balance::known_queues(state))?;
    ui::render(StatusCode::OK, &page(stored, &known, state.balance, state.store.now()))
}

fn page(stored: Option<Document>, known: &[String], config: Balance, now: DateTime) -> BalancePage {
    let (begun, revision) = (stored.is_some(), revision(stored.as_ref()));
    let stored = stored.map(BalanceDocument::from).unwrap_or_default();
    let (tiers, others) = tiers(&stored.queues, known);
    let until = stored.disabled.filter(|until| *until > now.timestamp_millis() / 1000);
    BalancePage {
        switches: switches(config),
        enabled: config.enabled.0,
        pretend: config.pretend.0,
        begun,
        state: stored.status.as_deref().map(pill),
        message: stored.message.clone().unwrap_or_default(),
        seen: stored.timestamp.map(When::at).unwrap_or_default(),
        disabled: until.map(|until| When::at(DateTime::from_millis(until.saturating_mul(1000)))),
        times: times(&stored.max_tasks),
        blank: TimeRow { day: "*".to_owned(), time: "07:00".to_owned(), most: 10, odd: None },
        week: Week::of(&stored.max_tasks),
        tiers,
        others,
        saved: json::compact(&saved(&stored)),
        revision,
    }
}

fn switches(config: Balance) -> [Switch; 4] {
    let switch = |name, on, meaning| Switch { name, on, meaning };
    [
        switch(
            "balance.enabled",
            config.enabled.0,
            "Whether it works at all. A den with --balance does the work.",
        ),
        switch("balance.log", config.log.0, "Each change is logged."),
        switch("balance.verbose", config.verbose.0, "What it was reckoned from is logged too."),
        switch("balance.pretend", config.pretend.0, "Changes are logged and not made."),
    ]
}

fn pill(status: &str) -> Pill {
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
fn tiers(stored: &[Vec<String>], known: &[String]) -> (Vec<Tier>, Vec<Item>) {
    let is_known: BTreeSet<&String> = known.iter().collect();
    let item = |name: &String| Item { name: name.clone(), known: is_known.contains(name) };
    let tier = |is_default, names: &Vec<String>| Tier { is_default, items: names.iter().map(item).collect() };
    let nothing = Vec::new();
    let (default, others) = match stored.split_first() {
        Some((default, others)) => (default, others),
        None => (&nothing, &[][..]),
    };
    let mut tiers: Vec<Tier> = others.iter().map(|names| tier(false, names)).collect();
    tiers.push(tier(true, default));
    let named: BTreeSet<&String> = stored.iter().flatten().collect();
    let mut rest: Vec<Item> = known.iter().filter(|name| !named.contains(name)).map(item).collect();
    rest.sort_by(|one, other| one.name.cmp(&other.name));
    (tiers, rest)
}

fn saved(stored: &BalanceDocument) -> Value {
    let max_tasks: Map<String, Value> =
        stored.max_tasks.iter().map(|(time, most)| (time.clone(), Value::from(*most))).collect();
    json!({ "max_tasks": max_tasks, "queues": stored.queues })
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    fn config(enabled: &str) -> Balance {
        let text = format!(r#"{{"mongohost":"h","database":"d","balance":{{"enabled":{enabled}}}}}"#);
        disbatch_core::config::Config::parse(&text, std::path::Path::new("/c.json")).unwrap().balance
    }

    fn html(stored: Option<Document>, known: &[&str]) -> String {
        let known: Vec<String> = known.iter().map(|name| (*name).to_owned()).collect();
        let now = DateTime::from_millis(1_795_163_067_344);
        page(stored, &known, config("1"), now).render().unwrap()
    }

    #[test]
    fn the_page_shows_times_tiers_and_how_it_goes() {
        let html = html(
            Some(doc! {
                "max_tasks": { "* 07:00": 5, "0 7:5": "9", "never": 1 },
                "queues": [["last"], ["first", "<gone>"]],
                "disabled": 1_795_163_068_i64, "status": "WARNING", "message": "unknown queue <gone>",
                "timestamp": 1_795_163_000_i64,
            }),
            &["first", "last", "free<1>"],
        );
        for part in [
            "<a href=\"/balance\" aria-current=\"page\">Balance</a>",
            "<span class=\"status busy\">WARNING</span>",
            "unknown queue &#60;gone&#62;",
            "datetime=\"2026-11-20T08:24:28Z\"",
            "value=\"07:00\"",
            "value=\"07:05\"",
            "value=\"never\"",
            "data-queue=\"&#60;gone&#62;\"",
            "no such queue",
            "data-queue=\"free&#60;1&#62;\"",
            "<svg class=\"week\"",
            "&#34;queues&#34;:[[&#34;last&#34;],[&#34;first&#34;,&#34;&#60;gone&#62;&#34;]]",
            "action=\"/ui/balance/disable\" method=\"post\"",
            "<button name=\"enable\" value=\"1\"",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(
            html.find("data-queue=\"first\"").unwrap() < html.find("data-queue=\"last\"").unwrap(),
            "the default is last"
        );
        assert!(!html.contains("<gone>") && !html.contains(" style="), "{html}");
    }

    #[test]
    fn an_empty_database_says_what_to_do() {
        let html = html(None, &[]);
        assert!(!html.contains("name=\"enable\""), "it works: {html}");
        for part in ["Nothing has been set yet.", "There are no queues yet.", "data-revision=\"\""] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        let now = DateTime::from_millis(0);
        let off = page(None, &[], config("0"), now).render().unwrap();
        assert!(off.contains("switched off"), "{off}");
    }

    #[test]
    fn names_and_times_are_text() {
        let nasty = "<script>'\"".repeat(1000);
        let html = html(
            Some(
                doc! { "queues": [[&nasty]], "max_tasks": { &nasty: 1 }, "status": &nasty, "message": &nasty },
            ),
            &[],
        );
        let body = html.split("<main").nth(1).unwrap();
        assert!(!body.contains("<script") && body.contains("&#60;script&#62;&#39;&#34;"), "it is text");
    }

    #[test]
    fn times_are_read_as_they_are_meant() {
        let row = |key: &str| time_row(key, 1);
        assert_eq!((row("* 7:5").time, row("6 23:59").day), ("07:05".to_owned(), "6".to_owned()));
        for odd in ["", "7 07:00", "* 24:00", "* 07:60", "07:00", "* x"] {
            assert_eq!(row(odd).odd.as_deref(), Some(odd));
        }
    }
}
