//! The last runs of a schedule: as a strip, one bar for each, and as rows of a table; and the page that asks whether these tasks
//! of the past are meant.

use actix_web::http::StatusCode;
use askama::Template;
use askama::filters::HtmlSafe;
use bson::{Bson, DateTime, doc};
use disbatch_core::model::{ScheduleId, Status};
use disbatch_core::schedules::Schedule;
use disbatch_core::store::{Store, StoreError};

use super::words::{clock, utc};
use crate::json::date_text;
use crate::params::Params;
use crate::schedules::view::{Run, find_runs};
use crate::ui::parts::When;
use crate::ui::{self, Rendered, StatusView, text};

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

pub(super) fn status(run: &Run) -> StatusView {
    run.code.map_or_else(|| StatusView::of(&doc! { "status": Bson::Null }), StatusView::from_code)
}

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
    find_runs(store, filter, limit, false).await
}

#[derive(Template)]
#[template(path = "schedule_backfill.html")]
struct ConfirmPage {
    id: String,
    name: String,
    zone: String,
    from: When,
    to: When,
    /// The times in the zone, and in that of the reader.
    rows: Vec<(String, When)>,
    /// What is sent when it is meant so.
    hidden: Vec<(&'static str, String)>,
}

impl ConfirmPage {
    fn count(&self) -> u64 {
        self.rows.len() as u64
    }
}

/// The page for the times from one time to another that have no task yet.
pub fn confirm(
    schedule: &Schedule,
    (from, to): (DateTime, DateTime),
    times: &[DateTime],
    params: &Params,
) -> Rendered {
    let zone = &schedule.settings.spec.zone;
    let sent = |at: DateTime| date_text(at).map(|text| format!("{text}Z")).unwrap_or_default();
    let hidden = [("from", sent(from)), ("to", sent(to)), ("limit", text(params.fields.get("limit")))];
    let page = ConfirmPage {
        id: schedule.id.to_string(),
        name: schedule.settings.name.clone(),
        zone: zone.name().to_owned(),
        from: When::exact(Some(&from.into())),
        to: When::exact(Some(&to.into())),
        rows: times
            .iter()
            .map(|time| (clock(&zone.local(*time)), When::exact(Some(&(*time).into()))))
            .collect(),
        hidden: hidden.into_iter().filter(|(_, value)| !value.is_empty()).collect(),
    };
    ui::render(StatusCode::OK, &page)
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

    fn page(rows: usize) -> String {
        let page = ConfirmPage {
            id: "6b0003bb686c8275d8014444".into(),
            name: "<nightly>".into(),
            zone: "Europe/Berlin".into(),
            from: When::default(),
            to: When::default(),
            rows: vec![("2026-11-01 03:00:00".into(), When::default()); rows],
            hidden: vec![("from", "2026-11-01T00:00:00Z".into())],
        };
        page.render().unwrap()
    }

    #[test]
    fn nothing_is_made_before_it_is_confirmed() {
        let html = page(7);
        for part in [
            "Create 7 tasks of &#60;nightly&#62;?",
            "2026-11-01 03:00:00",
            "In Europe/Berlin",
            "<input type=\"hidden\" name=\"from\" value=\"2026-11-01T00:00:00Z\">",
            "action=\"/schedules/6b0003bb686c8275d8014444/backfill\"",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains(".preview") && !html.contains("<nightly>"), "{html}");
        assert!(page(1).contains("Create 1 task of"));
        let none = page(0);
        assert!(
            none.contains("No time between these two is without a task.") && !none.contains("/backfill\"")
        );
    }
}
