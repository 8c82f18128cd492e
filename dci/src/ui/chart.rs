//! Charts as a page has them at first: scripts draw them in more detail, and keep them up to date.

use std::time::Duration;

use askama::Template;
use askama::filters::HtmlSafe;
use bson::DateTime;
use serde_json::{Value, json};

use crate::ui::overview::throughput::Span;
use crate::ui::parts::Spark;

#[derive(Debug)]
pub struct Chart {
    /// What it is of, as addresses have it.
    pub of: &'static str,
    /// What it is called.
    pub title: &'static str,
    /// What is seen without script.
    pub picture: Spark,
    /// The same in words.
    pub words: String,
}

/// All charts of a page.
#[derive(Debug, Template)]
#[template(path = "parts/charts.html")]
pub struct Charts {
    /// The address of the page.
    pub place: String,
    /// The address of the list of the tasks that they are of.
    pub tasks: String,
    pub span: Span,
    pub charts: Vec<Chart>,
}

impl HtmlSafe for Charts {}

/// What a script draws: a line, a line of dashes, an area, a layer upon those after it, or bars for each of the series, in a tone of the
/// style sheet.
pub fn drawn(
    times: impl Iterator<Item = DateTime>,
    (unit, every, words): (&str, Duration, String),
    series: impl IntoIterator<Item = (impl Into<String>, &'static str, &'static str, Value)>,
) -> Value {
    let seconds: Vec<i64> = times.map(|at| at.timestamp_millis().div_euclid(1000)).collect();
    let series: Vec<Value> = series
        .into_iter()
        .map(|(label, kind, tone, values)| json!({ "label": label.into(), "kind": kind, "tone": tone, "values": values }))
        .collect();
    json!({ "times": seconds, "unit": unit, "every": every.as_secs(), "words": words, "series": series })
}
