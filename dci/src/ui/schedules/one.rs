//! `GET /schedules/:id` for people: when a schedule runs next, what became of its last runs, and what can be done with it; and the page that
//! asks whether these tasks of the past are meant.

use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::web::Data;
use askama::Template;
use askama::filters::HtmlSafe;
use bson::{Bson, DateTime, doc};
use disbatch_core::accounts::Role;
use disbatch_core::model::{Queue, ScheduleId, Selector, Status, TaskId};
use disbatch_core::schedules::{Occurrence, Schedule};
use disbatch_core::store::{Store, StoreError};

use super::words::{self, Timeline, clock, utc};
use crate::access::{NamedSchedule, Who, owns_schedule, viewer};
use crate::api::Answer;
use crate::error::HttpError;
use crate::json::{Dates, date_text};
use crate::openapi::EventStream;
use crate::params::Params;
use crate::schedules::view::{Run, find_runs};
use crate::state::State;
use crate::ui::live::{self, Part};
use crate::ui::names::Called;
use crate::ui::parts::{When, limit_span, precise};
use crate::ui::{Rendered, StatusView, pretty, text};
use crate::{json, schedules, ui};

/// So many of the last runs are on the page.
const RUNS: i64 = 30;

#[derive(Template)]
#[template(path = "schedule.html")]
struct SchedulePage {
    facts: Facts,
    /// The role of the page's reader on the queue.
    role: Option<Role>,
    /// Whether it is theirs.
    own: bool,
}

/// What the page shows. Its blocks are the parts that change by themselves.
#[derive(Template)]
#[template(path = "schedule/parts.html", blocks = ["head", "controls", "figures", "next", "runs", "settings"])]
struct Facts {
    schedule: Schedule,
    queue: Queue,
    times: Vec<Occurrence>,
    runs: Vec<Run>,
    called: Called,
    now: DateTime,
}

impl SchedulePage {
    /// Whether the page's reader may have it make tasks.
    fn submits(&self) -> bool {
        self.role >= Some(Role::Submitter)
    }

    /// Whether the page's reader may change and delete it.
    fn changes(&self) -> bool {
        self.role >= Some(Role::Operator) || (self.own && self.submits())
    }
}

pub async fn render(state: Data<State>, who: Who, named: NamedSchedule) -> Rendered {
    let facts = Facts::gather(&state, &named).await?;
    let (role, own) = (viewer::role_on(&facts.queue), owns_schedule(&who, &facts.schedule));
    ui::render(&SchedulePage { facts, role, own })
}

/// What of the page of a schedule changes, as Server-Sent Events like those of `/ui/overview`.
#[utoipa::path(
    get, path = "/ui/schedules/{id}", tag = "service", operation_id = "scheduleEvents",
    params(("id" = String, Path, description = "The schedule's id.", example = "6b0003bb686c8275d8014444")),
    responses(EventStream, (status = 404, description = "There is no such schedule.")),
)]
pub async fn live(request: HttpRequest, state: Data<State>, named: NamedSchedule) -> Answer {
    let id = schedules::find(&state, &named).await?.id.to_string();
    Ok(live::of_one(&request, &state, ("schedule", id), async |state, id| {
        Facts::gather(state, &NamedSchedule::parse(id)).await?.parts()
    }))
}

impl Facts {
    async fn gather(state: &State, named: &NamedSchedule) -> Result<Self, HttpError> {
        let schedule = schedules::find(state, named).await?;
        let (store, id, spec) = (&state.store, schedule.id, &schedule.settings.spec);
        let selector = Selector::Id(schedule.settings.queue.0);
        let (queue, runs, now, calendars) = futures::try_join!(
            store.find_queue(&selector),
            last_runs(store, id, RUNS),
            store.server_time(),
            store.calendars_of(spec),
        )?;
        let times = spec.preview(Some(id), &calendars, now, schedules::SHOWN);
        let queue = queue.unwrap_or_else(|| Queue::without_document(schedule.settings.queue));
        let tasks = runs.iter().filter_map(|run| run.task.map(TaskId));
        let called = state.titles(std::slice::from_ref(&queue)).await?.read(store, tasks).await?;
        Ok(Self { queue, times, runs, called, now, schedule })
    }

    fn parts(&self) -> Result<Vec<Part>, HttpError> {
        Ok(vec![
            Part::new(&self.as_head())?,
            Part::new(&self.as_controls())?,
            Part::new(&self.as_figures())?,
            Part::new(&self.as_next())?,
            Part::new(&self.as_runs())?,
            Part::new(&self.as_settings())?,
        ])
    }

    fn called(&self, run: &Run) -> &str {
        run.task.map_or("", |task| self.called.of(&TaskId(task)))
    }

    /// The last of its runs that has succeeded, of those that are shown.
    fn good_run(&self) -> Option<&Run> {
        self.runs.iter().find(|run| run.code == Some(Status::Succeeded.code()))
    }

    fn took(&self) -> Option<String> {
        let success = self.schedule.last_success?;
        Some(between(success.start?, success.finish))
    }

    /// When it makes tasks. What is not set is left out.
    fn when(&self) -> impl Iterator<Item = (&'static str, String)> {
        let (settings, spec) = (&self.schedule.settings, &self.schedule.settings.spec);
        let length = |length: Duration| (!length.is_zero()).then(|| limit_span(length.as_secs_f64()));
        let calendars: Vec<String> =
            spec.calendars.iter().map(|used| format!("{} {}", used.rule.as_str(), used.name)).collect();
        filled([
            ("times", Some(words::cron(&self.schedule))),
            ("zone", Some(spec.zone.name().to_owned())),
            ("DST gap", Some(spec.gap.as_str().to_owned())),
            ("DST overlap", Some(spec.fold.as_str().to_owned())),
            ("not before", spec.start.map(|at| words::there(&spec.zone, at))),
            ("not after", spec.end.map(|at| words::there(&spec.zone, at))),
            ("jitter", length(spec.jitter)),
            ("calendars", Some(calendars.join(", "))),
            ("overlap", Some(settings.overlap.as_str().to_owned())),
            ("catch up", length(settings.catch_up)),
        ])
    }

    /// What else people have set.
    fn what(&self) -> impl Iterator<Item = (&'static str, String)> {
        let (schedule, settings) = (&self.schedule, &self.schedule.settings);
        let has_secure = settings.options.secure_params.is_some();
        let options = schedule.shown().remove("options");
        filled([
            ("options", options.map(|options| json::compact(&json::from_bson(&options, Dates::Text)))),
            ("secure parameters", has_secure.then(|| "for the plugin alone".to_owned())),
            ("owner", settings.owner.clone()),
            ("tenant", settings.tenant.clone()),
            ("revision", Some(schedule.rev.to_string())),
        ])
    }

    fn params(&self) -> String {
        pretty(&self.schedule.settings.params.clone().into())
    }

    fn storage(&self) -> Option<String> {
        self.schedule.storage.as_ref().filter(|storage| **storage != Bson::Null).map(pretty)
    }
}

fn filled<const N: usize>(
    facts: [(&'static str, Option<String>); N],
) -> impl Iterator<Item = (&'static str, String)> {
    let facts = facts.into_iter().filter_map(|(name, value)| Some((name, value?)));
    facts.filter(|(_, value)| !value.is_empty())
}

fn between(start: DateTime, end: DateTime) -> String {
    precise(end.timestamp_millis().saturating_sub(start.timestamp_millis()))
}

fn ran(run: &Run) -> String {
    run.started.zip(run.ended).map(|(start, end)| between(start, end)).unwrap_or_default()
}

/// How wide a bar of the strip is, with the gap behind it.
const BAR: usize = 8;

/// The runs side by side, one bar for each, the oldest first.
#[derive(Debug, Clone, Default, PartialEq, Eq, Template)]
#[template(path = "schedules/strip.html")]
pub struct Strip {
    width: usize,
    pub words: String,
    bars: Vec<Bar>,
}

impl HtmlSafe for Strip {}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Bar {
    left: usize,
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
        Self { width: (runs.len() * BAR).max(BAR), words: runs_in_words(runs), bars }
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
    // That of the style sheet, which has other words than people read.
    let tone = run.code.map_or("", |code| Status::from_code(code).word());
    Bar { left: place * BAR, height, tone, title: format!("{}{time}", word(run)) }
}

fn runs_in_words(runs: &[Run]) -> String {
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
pub async fn last_runs(store: &Store, schedule: ScheduleId, limit: i64) -> Result<Vec<Run>, StoreError> {
    // As the index has it that keeps two tasks of one time apart.
    let filter = doc! { "schedule": schedule, "scheduled_for": { "$exists": true } };
    find_runs(store, filter, limit, false).await
}

#[derive(Template)]
#[template(path = "schedule_backfill.html")]
struct ConfirmPage<'a> {
    schedule: &'a Schedule,
    from: When,
    to: When,
    /// The times in the zone, and in that of the reader.
    rows: Vec<(String, When)>,
    /// What is sent when it is meant so.
    hidden: Vec<(&'static str, String)>,
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
        schedule,
        from: When::exactly(from),
        to: When::exactly(to),
        rows: times.iter().map(|time| (clock(&zone.local(*time)), When::exactly(*time))).collect(),
        hidden: hidden.into_iter().filter(|(_, value)| !value.is_empty()).collect(),
    };
    ui::render(&page)
}

#[cfg(test)]
pub mod tests {
    use bson::oid::ObjectId;

    use super::*;
    use crate::ui::live::assert_on_page;
    use crate::ui::plain;

    fn facts(paused: bool) -> Facts {
        let id = ObjectId::parse_str(super::super::tests::ID).unwrap();
        let schedule = Schedule::read(doc! {
            "_id": id, "name": "<nightly>", "description": "<why>", "queue": id, "params": { "a": "<b>" },
            "cron": "0 3 * * *", "zone": "Europe/Berlin", "paused": paused, "storage": {},
            "counts": { "fired": 1_700 },
            "last": { "for": DateTime::from_millis(0), "at": DateTime::from_millis(0), "outcome": "wrong params", "why": "<wrong>" },
        });
        Facts {
            schedule: schedule.unwrap(),
            queue: bson::deserialize_from_document(doc! { "_id": id, "name": "q<1>" }).unwrap(),
            times: vec![],
            runs: vec![run(1)],
            called: Called::from([(TaskId(ObjectId::from_bytes([7; 12])), "<report>".to_owned())]),
            now: DateTime::from_millis(0),
        }
    }

    fn page(role: Role, own: bool, paused: bool) -> String {
        SchedulePage { facts: facts(paused), role: Some(role), own }.render().unwrap()
    }

    #[test]
    fn the_page_shows_what_a_schedule_does() {
        let html = page(Role::Operator, false, false);
        for part in [
            "data-live=\"/ui/schedules/6b0003bb686c8275d8014444\"",
            "&#60;nightly&#62;",
            "&#60;why&#62;",
            "&#60;wrong&#62;",
            "q&#60;1&#62;",
            "1,700",
            "2026-11-20 09:24:27 Europe/Berlin",
            "&#60;vm&#62;",
            "0 3 * * *",
            "&#60;b&#62;",
            "hx-post=\"/schedules/6b0003bb686c8275d8014444/run\"",
            "action=\"/schedules/6b0003bb686c8275d8014444/backfill\"",
            "hx-delete=\"/schedules/6b0003bb686c8275d8014444\"",
            "href=\"/schedules/6b0003bb686c8275d8014444/edit\"",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<nightly>") && !html.contains("<vm>") && !html.contains(" style="), "{html}");
        assert!(
            !html.contains("It is paused.") && page(Role::Operator, false, true).contains("It is paused.")
        );
    }

    #[test]
    fn runs_of_a_backfill_are_runs() {
        let html = |runs: Vec<Run>| {
            let mut facts = facts(false);
            facts.schedule.last = None;
            facts.runs = runs;
            facts.as_figures().render().unwrap()
        };
        let some = html(vec![run(2), run(1)]);
        assert!(some.contains(">failed</span>") && some.contains("what somebody has asked for"), "{some}");
        assert!(some.matches("datetime=").count() == 1, "when the other succeeded: {some}");
        assert!(html(vec![]).contains("nothing has run yet"));
    }

    #[test]
    fn who_may_not_change_it_has_no_forms_for_that() {
        let (viewer, submitter) = (page(Role::Viewer, true, false), page(Role::Submitter, false, false));
        let owner = page(Role::Submitter, true, false);
        for (html, submits, changes) in
            [(viewer, false, false), (submitter, true, false), (owner, true, true)]
        {
            assert_eq!(html.contains("/backfill\""), submits, "{html}");
            assert_eq!((html.contains("/edit\""), html.contains("hx-delete")), (changes, changes), "{html}");
        }
    }

    #[test]
    fn every_part_is_on_the_page_under_its_id() {
        let html = page(Role::Operator, false, false);
        assert_on_page(&facts(false).parts().unwrap(), &html);
    }

    #[test]
    fn what_is_not_set_is_left_out() {
        let html = facts(false).as_settings().render().unwrap();
        assert!(html.contains("<dt>times</dt><dd>0 3 * * *</dd>") && !html.contains("jitter"), "{html}");
        assert!(html.contains("What its plugin has saved"), "{html}");
    }

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
    fn bars_have_the_colours_of_statuses_and_the_words_of_pages() {
        let strip = Strip::of(&[-7, -3, -6].map(run));
        let bars: Vec<(usize, &str, bool)> = strip
            .bars
            .iter()
            .zip(["lost,", "ended early,", "scheduled,"])
            .map(|(bar, word)| (bar.height, bar.tone, bar.title.starts_with(word)))
            .collect();
        assert_eq!(bars, [(20, "orphaned", true), (20, "terminated", true), (7, "deferred", true)]);
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

    fn confirm_page(rows: usize) -> String {
        let page = ConfirmPage {
            schedule: &facts(false).schedule,
            from: When::default(),
            to: When::default(),
            rows: vec![("2026-11-01 03:00:00".into(), When::default()); rows],
            hidden: vec![("from", "2026-11-01T00:00:00Z".into())],
        };
        page.render().unwrap()
    }

    #[test]
    fn nothing_is_made_before_it_is_confirmed() {
        let html = confirm_page(7);
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
        assert!(confirm_page(1).contains("Create 1 task of"));
        let none = confirm_page(0);
        assert!(
            none.contains("No time between these two is without a task.") && !none.contains("/backfill\"")
        );
    }
}
