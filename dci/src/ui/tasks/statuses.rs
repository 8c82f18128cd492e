//! A choice of statuses, by their names; those that plugins have invented by number.

use askama::Template;
use askama::filters::HtmlSafe;
use disbatch_core::model::Status;
use serde_json::Value;

use crate::ui::{self, StatusView, text};

pub(super) const NAMED: [Status; 10] = [
    Status::Deferred,
    Status::Blocked,
    Status::Queued,
    Status::Claimed,
    Status::Running,
    Status::Succeeded,
    Status::Failed,
    Status::Cancelled,
    Status::Terminated,
    Status::Orphaned,
];

/// Fields of a form.
#[derive(Debug, Clone, PartialEq, Eq, Template)]
#[template(path = "tasks/statuses.html")]
pub struct Statuses {
    choices: Vec<Choice>,
    others: String,
}

impl HtmlSafe for Statuses {}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Choice {
    status: StatusView,
    checked: bool,
}

impl Statuses {
    /// Fields in which `chosen` are ticked, or written.
    pub fn of(chosen: &[String]) -> Self {
        let choice = |status: Status| {
            let status = StatusView::from_code(status.code());
            let checked = chosen.contains(&status.code);
            Choice { status, checked }
        };
        let choices = NAMED.map(choice).to_vec();
        let is_other = |code: &&String| !choices.iter().any(|choice| choice.status.code == **code);
        let others: Vec<&str> = chosen.iter().filter(is_other).map(String::as_str).collect();
        Self { others: others.join(" "), choices }
    }
}

/// The statuses that a parameter names: one, several, or text with commas or spaces between them.
pub fn given(value: Option<&Value>) -> Vec<String> {
    let all = match value {
        Some(Value::Array(values)) => values.iter().flat_map(|value| given(Some(value))).collect(),
        value => words(&text(value)),
    };
    all.into_iter().fold(Vec::new(), |mut once, status| {
        if !once.contains(&status) {
            once.push(status);
        }
        once
    })
}

/// What is between commas or spaces.
pub fn words(text: &str) -> Vec<String> {
    let words = text.split(|c: char| c == ',' || c.is_whitespace());
    words.filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

/// The word for a status that is given as text.
pub fn word(status: &str) -> String {
    match status.parse().map(Status::from_code) {
        Ok(Status::Other(code)) => format!("{} ({code})", Status::Other(code).word()),
        Ok(status) => ui::word(status).to_owned(),
        Err(_) => status.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn statuses_come_one_by_one_and_together() {
        for value in [json!(["-2", "17"]), json!("-2, 17 -2"), json!([-2, "17", ""])] {
            assert_eq!(given(Some(&value)), ["-2", "17"], "{value}");
        }
        assert!(given(None).is_empty() && given(Some(&json!({"$gt": 1}))).is_empty());
        assert_eq!(["-2", "17", "<x>"].map(word), ["queued", "finished (17)", "<x>"]);
    }

    #[test]
    fn those_without_a_name_are_written() {
        let html = Statuses::of(&["-2".into(), "17".into(), "\"<x>".into()]).render().unwrap();
        assert!(
            html.contains("value=\"-2\" checked") && html.contains("value=\"17 &#34;&#60;x&#62;\""),
            "{html}"
        );
        assert_eq!(html.matches(" checked").count(), 1, "{html}");
    }
}
