//! The last runs of a schedule: as a strip, one bar for each, and as rows of a table.

use askama::Template;
use askama::filters::HtmlSafe;
use bson::{Bson, doc};
use disbatch_core::model::{ScheduleId, Status};
use disbatch_core::store::{Store, StoreError};

use super::words::utc;
use crate::schedules::runs::{Run, find};
use crate::ui::{self, StatusView};

/// How wide a bar of the strip is, with the gap behind it.
const BAR: usize = 8;

/// The runs side by side, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Template)]
#[template(path = "schedules/strip.html")]
pub struct Strip {
    width: usize,
    /// The same in words.
    pub words: String,
    bars: Vec<Bar>,
}

impl HtmlSafe for Strip {}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Bar {
    left: usize,
    top: usize,
    height: usize,
    tone: &'static str,
    title: String,
}

/// The status of a run for people.
pub fn status(run: &Run) -> StatusView {
    run.code.map_or_else(|| StatusView::of(&doc! { "status": Bson::Null }), StatusView::from_code)
}

/// The word for it.
fn word(run: &Run) -> &'static str {
    run.code.map_or("", |code| ui::word(Status::from_code(code)))
}

fn is_bad(run: &Run) -> bool {
    matches!(run.code.map(Status::from_code), Some(Status::Failed | Status::Orphaned | Status::Terminated))
}

impl Strip {
    /// That of runs of which the latest is the first.
    pub fn of(runs: &[Run]) -> Self {
        let bars = runs.iter().rev().enumerate().map(|(place, run)| bar(place, run)).collect();
        Self { width: (runs.len() * BAR).max(BAR), words: words(runs), bars }
    }
}

/// Good and bad differ in height, too, for those who do not see the colours.
fn bar(place: usize, run: &Run) -> Bar {
    let height = match run.code.map(Status::from_code) {
        _ if is_bad(run) => 20,
        Some(Status::Succeeded) => 12,
        _ => 7, // It is on its way, was cancelled, or ended as its plugin wanted it.
    };
    let time = run.time.map(|time| format!(", {} UTC", utc(time))).unwrap_or_default();
    Bar {
        left: place * BAR,
        top: 20 - height,
        height,
        tone: word(run),
        title: format!("{}{time}", word(run)),
    }
}

fn words(runs: &[Run]) -> String {
    let count = |is: &dyn Fn(&Run) -> bool| runs.iter().filter(|run| is(run)).count();
    let succeeded = count(&|run| run.code == Some(Status::Succeeded.code()));
    let failed = count(&is_bad);
    let going = count(&|run| run.code.is_some_and(|code| !Status::from_code(code).has_ended()));
    let other = runs.len().saturating_sub(succeeded + failed + going);
    let all =
        [(succeeded, "succeeded"), (failed, "failed"), (going, "on the way"), (other, "ended otherwise")];
    let parts: Vec<String> = all
        .into_iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    match runs.len() {
        0 => "No run yet.".to_owned(),
        1 => format!("The last run: {}.", parts.join(", ")),
        count => format!("The last {count} runs: {}.", parts.join(", ")),
    }
}

/// The last runs of a schedule whose tasks are still there, the latest first.
pub async fn last(store: &Store, schedule: ScheduleId, limit: i64) -> Result<Vec<Run>, StoreError> {
    // As the index has it that keeps two tasks of one time apart.
    let filter = doc! { "schedule": schedule, "scheduled_for": { "$exists": true } };
    find(store, filter, limit, false).await
}

#[cfg(test)]
pub mod tests {
    use bson::DateTime;
    use bson::oid::ObjectId;

    use super::*;
    use crate::ui::plain;

    /// A run that ended with a status, or has not.
    pub fn run(code: i64) -> Run {
        let at = DateTime::from_millis(1_795_163_067_344);
        let task = doc! {
            "_id": ObjectId::from_bytes([7; 12]), "status": code, "scheduled_for": at, "started": at, "mtime": at,
            "node": "<vm>",
        };
        Run::of(&task)
    }

    #[test]
    fn each_run_has_a_bar_and_failures_stand_out() {
        let strip = Strip::of(&[run(0), run(2), run(1), run(-5)]);
        let bars: Vec<(usize, usize, &str)> =
            strip.bars.iter().map(|bar| (bar.left, bar.height, bar.tone)).collect();
        assert_eq!(bars, [(0, 7, "cancelled"), (8, 12, "succeeded"), (16, 20, "failed"), (24, 7, "running")]);
        assert_eq!(strip.words, "The last 4 runs: 1 succeeded, 1 failed, 1 on the way, 1 ended otherwise.");
        let html = strip.render().unwrap();
        assert!(
            html.contains("width=\"32\"") && html.contains("<title>failed, 2026-11-20 08:24:27 UTC</title>"),
            "{html}"
        );
    }

    #[test]
    fn no_run_is_told_too() {
        let none = Strip::of(&[]);
        assert_eq!(none.words, "No run yet.");
        assert_eq!(none.render().unwrap(), "<span class=\"zero\">none</span>");
        assert_eq!(Strip::of(&[run(1)]).words, "The last run: 1 succeeded.");
    }

    #[test]
    fn odd_tasks_are_shown_as_they_are() {
        let odd = Run::of(&doc! { "_id": ObjectId::from_bytes([7; 12]), "status": "x", "node": 5 });
        assert_eq!((odd.code, odd.time, odd.ended, plain(odd.node.as_ref())), (None, None, None, "5".into()));
        assert_eq!(status(&odd).word, "unknown");
        assert!(Strip::of(&[odd]).render().unwrap().contains("<rect"));
    }
}
