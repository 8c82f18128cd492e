//! A task that a web service works on.

use bson::{DateTime, Document};

use super::words::{moment, span_until};
use super::{Facts, Gate};
use crate::task::EXTERNAL;

/// What it waits for, and how long that is done.
pub(super) fn gates(facts: &Facts) -> Vec<Gate> {
    let empty = Document::new();
    let external = facts.task.rest.get_document(EXTERNAL).unwrap_or(&empty);
    let time = |field: &str| external.get_datetime(field).ok().copied();
    if external.get_document("end").is_ok() {
        let text = "Its web service has ended it, or somebody has: its output is being put together.";
        return vec![Gate::new("running", true, text)];
    }
    let since = time("since").map(|at| format!(" since {} ({})", moment(at), span_until(at, facts.now)));
    let attempt = match facts.task.attempt() {
        Some(attempt) if attempt > 1 => format!(", as attempt {attempt}"),
        _ => String::new(),
    };
    let since = since.unwrap_or_default();
    let text = format!("It waits for its web service{since}{attempt}; no runner is occupied.");
    let mut gates = vec![Gate::new("running", true, text)];
    gates.extend(time("heard").map(|at| heard(at, external.get_bool("called").unwrap_or(false), facts)));
    gates.extend(facts.time("lease_until").map(|until| silence(until, time("until"), facts)));
    gates
}

fn heard(at: DateTime, has_called: bool, facts: &Facts) -> Gate {
    let (moment, ago) = (moment(at), span_until(at, facts.now));
    let text = if has_called {
        format!("It was last heard of at {moment}, {ago} ago.")
    } else {
        format!("Nothing was heard of it since it has taken the task at {moment}, {ago} ago.")
    };
    Gate::new("heard", true, text)
}

fn silence(until: DateTime, hard: Option<DateTime>, facts: &Facts) -> Gate {
    if until < facts.now {
        let text = format!("Its time was over at {}: a DEN ends it within seconds.", moment(until));
        return Gate::new("lease", false, text);
    }
    let (moment, left) = (moment(until), span_until(facts.now, until));
    let text = if hard.is_some_and(|hard| hard <= until) {
        format!("Whatever is heard of it, its time is over at {moment}, in {left}.")
    } else {
        format!("If nothing is heard of it until {moment}, in {left}, it is ended.")
    };
    Gate::new("lease", true, text)
}
