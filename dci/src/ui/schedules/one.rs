//! `GET /schedules/:id` for people: when a schedule runs next, what became of its last runs, and what can be done with it.

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::Data;
use askama::Template;
use askama::filters::{HtmlSafe, HtmlSafeOutput};
use bson::DateTime;
use disbatch_core::accounts::Role;
use disbatch_core::model::{Queue, Selector};
use disbatch_core::schedules::{Occurrence, Schedule};

use super::runs::{self, Strip};
use super::settings::SettingList;
use super::timeline::Timeline;
use super::{state_of, words};
use crate::access::{NamedSchedule, Who, owns_schedule, viewer};
use crate::api::Answer;
use crate::error::HttpError;
use crate::openapi::{ErrorBody, OfRead};
use crate::schedules::{self, runs::Run};
use crate::state::State;
use crate::ui::live::{self, Part};
use crate::ui::names::label;
use crate::ui::parts::{Pill, When};
use crate::ui::spans::precise;
use crate::ui::{self, Rendered, StatusView, plain};

/// So many of the last runs are on the page.
const RUNS: i64 = 30;

#[derive(Template)]
#[template(path = "schedule.html")]
struct SchedulePage {
    id: String,
    name: String,
    /// The role of the page's reader on the queue.
    role: Option<Role>,
    /// Whether it is theirs.
    own: bool,
    shown: Shown,
}

/// The parts that change by themselves.
struct Shown {
    head: Head,
    controls: Controls,
    figures: Figures,
    next: Next,
    runs: Runs,
    settings: SettingList,
}

#[derive(Template)]
#[template(path = "schedule/head.html")]
struct Head {
    name: String,
    state: Pill,
    queue: String,
    queue_name: String,
    description: String,
}

#[derive(Template)]
#[template(path = "schedule/controls.html")]
struct Controls {
    id: String,
    name: String,
    paused: bool,
}

#[derive(Template)]
#[template(path = "schedule/figures.html")]
struct Figures {
    next: When,
    there: String,
    outcome: Option<Pill>,
    decided: When,
    /// What is wrong with its parameters.
    why: String,
    success: When,
    took: String,
    fired: u64,
    skipped: u64,
}

#[derive(Template)]
#[template(path = "schedule/next.html")]
struct Next {
    paused: bool,
    timeline: Timeline,
}

#[derive(Template)]
#[template(path = "schedule/runs.html")]
struct Runs {
    strip: Strip,
    words: String,
    rows: Vec<RunRow>,
}

struct RunRow {
    task: String,
    local: String,
    status: StatusView,
    started: When,
    ran: String,
    node: String,
}

impl HtmlSafe for Head {}
impl HtmlSafe for Controls {}
impl HtmlSafe for Figures {}
impl HtmlSafe for Next {}
impl HtmlSafe for Runs {}

/// What the page is made of.
struct Facts {
    schedule: Schedule,
    queue: Queue,
    times: Vec<Occurrence>,
    runs: Vec<Run>,
    now: DateTime,
}

impl SchedulePage {
    /// Attributes of the body of the page.
    fn roles(&self) -> HtmlSafeOutput<String> {
        viewer::roles_with(self.role)
    }

    /// Whether the page's reader may have it make tasks.
    fn submits(&self) -> bool {
        self.role >= Some(Role::Submitter)
    }

    /// Whether the page's reader may change and delete it.
    fn changes(&self) -> bool {
        self.role >= Some(Role::Operator) || (self.own && self.submits())
    }
}

/// The page.
pub async fn render(state: &State, who: &Who, named: &NamedSchedule) -> Rendered {
    let facts = Facts::gather(state, named).await?;
    let page = SchedulePage {
        id: facts.schedule.id.to_string(),
        name: facts.schedule.settings.name.clone(),
        role: viewer::role_on(&facts.queue),
        own: owns_schedule(who, &facts.schedule),
        shown: Shown::of(&facts),
    };
    ui::render(StatusCode::OK, &page)
}

/// What of the page of a schedule changes, as Server-Sent Events like those of `/ui/overview`.
#[utoipa::path(
    get, path = "/ui/schedules/{id}", tag = "service", operation_id = "scheduleEvents",
    params(("id" = String, Path, description = "The schedule's id.", example = "6b0003bb686c8275d8014444")),
    responses(
        (status = 200, description = "The events.", body = String, content_type = "text/event-stream"),
        (status = 404, description = "There is no such schedule.", body = ErrorBody),
        OfRead,
    ),
)]
pub async fn live(request: HttpRequest, state: Data<State>, named: NamedSchedule) -> Answer {
    let id = schedules::find(&state, &named).await?.id.to_string();
    Ok(live::of_one(&request, &state, ("schedule", id), parts))
}

async fn parts(state: &State, id: &str) -> Result<Vec<Part>, HttpError> {
    Shown::of(&Facts::gather(state, &NamedSchedule::parse(id)).await?).parts()
}

impl Facts {
    async fn gather(state: &State, named: &NamedSchedule) -> Result<Self, HttpError> {
        let schedule = schedules::find(state, named).await?;
        let (store, id, spec) = (&state.store, schedule.id, &schedule.settings.spec);
        let selector = Selector::Id(schedule.settings.queue.0);
        let (queue, runs, now, calendars) = futures::try_join!(
            store.find_queue(&selector),
            runs::last(store, id, RUNS),
            store.server_time(),
            store.calendars_of(spec),
        )?;
        let times = spec.preview(Some(id), &calendars, now, schedules::SHOWN);
        let queue = queue.unwrap_or_else(|| Queue::without_document(schedule.settings.queue));
        Ok(Self { queue, times, runs, now, schedule })
    }
}

impl Shown {
    fn of(facts: &Facts) -> Self {
        let (schedule, spec) = (&facts.schedule, &facts.schedule.settings.spec);
        let settings = &schedule.settings;
        Self {
            head: Head {
                name: settings.name.clone(),
                state: state_of(schedule),
                queue: settings.queue.to_string(),
                queue_name: label(&facts.queue),
                description: settings.description.clone(),
            },
            controls: Controls {
                id: schedule.id.to_string(),
                name: settings.name.clone(),
                paused: schedule.paused,
            },
            figures: figures(schedule),
            next: Next { paused: schedule.paused, timeline: Timeline::of(spec, &facts.times, facts.now) },
            runs: runs_of(facts),
            settings: SettingList::of(schedule),
        }
    }

    fn parts(&self) -> Result<Vec<Part>, HttpError> {
        Ok(vec![
            Part::new("schedule-head", &self.head)?,
            Part::new("schedule-controls", &self.controls)?,
            Part::new("schedule-figures", &self.figures)?,
            Part::new("schedule-next", &self.next)?,
            Part::new("schedule-runs", &self.runs)?,
            Part::new("schedule-settings", &self.settings)?,
        ])
    }
}

fn figures(schedule: &Schedule) -> Figures {
    let (last, success) = (schedule.last.as_ref(), schedule.last_success);
    let took = success.and_then(|success| Some(between(success.start?, success.finish)));
    let zone = &schedule.settings.spec.zone;
    let count = |number: i64| u64::try_from(number).unwrap_or(0);
    Figures {
        next: schedule.next.map(When::at).unwrap_or_default(),
        there: schedule.next.map(|next| words::there(zone, next)).unwrap_or_default(),
        outcome: last.map(|last| words::outcome(&last.outcome)),
        decided: last.map(|last| When::at(last.at)).unwrap_or_default(),
        why: last.and_then(|last| last.why.clone()).unwrap_or_default(),
        success: success.map(|success| When::at(success.finish)).unwrap_or_default(),
        took: took.unwrap_or_default(),
        fired: count(schedule.counts.fired),
        skipped: count(schedule.counts.skipped),
    }
}

fn between(start: DateTime, end: DateTime) -> String {
    precise(end.timestamp_millis().saturating_sub(start.timestamp_millis()))
}

fn runs_of(facts: &Facts) -> Runs {
    let zone = &facts.schedule.settings.spec.zone;
    let row = |run: &Run| RunRow {
        task: run.task.map(|id| id.to_hex()).unwrap_or_default(),
        local: run.time.map(|time| words::there(zone, time)).unwrap_or_default(),
        status: runs::status(run),
        started: run.started.map(When::at).unwrap_or_default(),
        ran: run.started.zip(run.ended).map(|(start, end)| between(start, end)).unwrap_or_default(),
        node: plain(run.node.as_ref()),
    };
    let strip = Strip::of(&facts.runs);
    Runs { words: strip.words.clone(), strip, rows: facts.runs.iter().map(row).collect() }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

    use super::super::runs::tests::run;
    use super::*;
    use crate::ui::live::assert_on_page;

    fn shown(paused: bool) -> Shown {
        Shown {
            head: Head {
                name: "<nightly>".into(),
                state: Pill { tone: "alive", word: "active" },
                queue: "6b0003bb686c8275d70dc2f1".into(),
                queue_name: "q<1>".into(),
                description: "<why>".into(),
            },
            controls: Controls { id: super::super::tests::ID.into(), name: "<nightly>".into(), paused },
            figures: Figures {
                next: When::default(),
                there: String::new(),
                outcome: Some(words::outcome("succeeded")),
                decided: When::at(DateTime::from_millis(0)),
                why: "<wrong>".into(),
                success: When::default(),
                took: String::new(),
                fired: 1_700,
                skipped: 0,
            },
            next: Next { paused, timeline: Timeline::default() },
            runs: Runs {
                strip: Strip::of(&[run(1)]),
                words: "The last run: 1 succeeded.".into(),
                rows: vec![RunRow {
                    task: ObjectId::from_bytes([7; 12]).to_hex(),
                    local: "2026-11-20 09:24:27 Europe/Berlin".into(),
                    status: runs::status(&run(1)),
                    started: When::default(),
                    ran: "1.0 s".into(),
                    node: "<vm>".into(),
                }],
            },
            settings: super::super::settings::tests::list(),
        }
    }

    fn page(role: Role, own: bool, paused: bool) -> String {
        let page = SchedulePage {
            id: super::super::tests::ID.into(),
            name: "<nightly>".into(),
            role: Some(role),
            own,
            shown: shown(paused),
        };
        page.render().unwrap()
    }

    #[test]
    fn the_page_shows_what_a_schedule_does() {
        let html = page(Role::Operator, false, false);
        for part in [
            "data-live=\"/ui/schedules/6b0003bb686c8275d8014444\"",
            "&#60;nightly&#62;",
            "&#60;why&#62;",
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
        assert_on_page(&shown(false).parts().unwrap(), &html);
    }
}
