//! `POST /ui/balance/check`: whether what somebody has put together on the page can be saved, what is wrong where, and what
//! the week would look like.

use std::collections::{BTreeSet, HashSet};

use actix_web::web::Data;
use serde_json::{Map, Value, json};

use super::time_row;
use super::week::Week;
use crate::api::{Answer, balance};
use crate::json;
use crate::legacy;
use crate::openapi::{ErrorBody, OfWrite};
use crate::params::Params;
use crate::state::State;
use crate::ui;

/// Something that cannot be saved.
#[derive(Debug, PartialEq, Eq)]
struct Problem {
    /// Where it is: `times/0/most`, or `queues/NAME`.
    at: String,
    text: String,
}

struct Checked {
    problems: Vec<Problem>,
    /// As `POST /balance` takes it.
    document: Value,
    /// The times that are right.
    times: Vec<(String, i64)>,
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
        (status = 400, description = "The body is no JSON object.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, params: Params) -> Answer {
    let known: BTreeSet<String> = balance::known_queues(&state).await?.into_iter().collect();
    let checked = check(&params.fields, &known);
    let problem = |problem: &Problem| json!({ "at": problem.at, "text": problem.text });
    Ok(json::ok(&json!({
        "problems": checked.problems.iter().map(problem).collect::<Vec<_>>(),
        "document": checked.document,
        "week": ui::html(&Week::of(&checked.times))?,
    })))
}

fn check(fields: &Map<String, Value>, known: &BTreeSet<String>) -> Checked {
    let mut problems = Vec::new();
    let times = times(fields.get("times"), &mut problems);
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
    let max_tasks: Map<String, Value> =
        times.iter().map(|(time, most)| (time.clone(), Value::from(*most))).collect();
    if queues.iter().all(Vec::is_empty) {
        queues.clear();
    }
    Checked { document: json!({ "max_tasks": max_tasks, "queues": queues }), problems, times }
}

fn times(rows: Option<&Value>, problems: &mut Vec<Problem>) -> Vec<(String, i64)> {
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
mod tests {
    use super::*;

    fn of(fields: Value) -> (Value, Vec<(String, String)>) {
        let known = ["mail", "reports"].map(str::to_owned).into();
        let checked = check(fields.as_object().unwrap(), &known);
        let told = checked.problems.into_iter().map(|problem| (problem.at, problem.text)).collect();
        (checked.document, told)
    }

    #[test]
    fn what_is_right_becomes_the_document_with_the_default_tier_first() {
        let fields = json!({
            "times": [{"day": "*", "time": "7:00", "most": "5"}, {"day": "0", "time": "23:59", "most": 0}],
            "tiers": [["mail"], []], "default": ["reports"],
        });
        let expected =
            json!({ "max_tasks": {"* 07:00": 5, "0 23:59": 0}, "queues": [["reports"], ["mail"]] });
        assert_eq!(of(fields), (expected, vec![]));
        let empty = json!({ "max_tasks": {}, "queues": [] });
        assert_eq!(of(json!({})), (empty.clone(), vec![]));
        assert_eq!(of(json!({ "tiers": [[]], "default": [] })), (empty, vec![]));
    }

    #[test]
    fn what_is_wrong_is_said_where_it_is() {
        let row = |day: &str, time: &str, most: &str| json!({"day": day, "time": time, "most": most});
        let (document, problems) = of(json!({
            "times": [row("*", "", "5"), row("8", "07:00", "5"), row("1", "07:00", "-1"), row("1", "07:00", "2"),
                row("1", "7:00", "3"), row("2", "08:00", "")],
            "tiers": [["mail", "<gone>"], ["mail"]], "default": "odd",
        }));
        let places: Vec<&str> = problems.iter().map(|(at, _)| at.as_str()).collect();
        assert_eq!(
            places,
            [
                "times/0/time",
                "times/1/time",
                "times/2/most",
                "times/4/time",
                "times/5/most",
                "queues/<gone>",
                "queues/mail"
            ]
        );
        assert_eq!(document["max_tasks"], json!({ "1 07:00": 2 }));
    }
}
