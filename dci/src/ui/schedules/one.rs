//! `GET /schedules/:id` for people: when a schedule runs next, what became of its last runs, and what can be done with it.

use std::time::Duration;

use actix_web::HttpRequest;
use actix_web::http::StatusCode;
use actix_web::web::Data;
use askama::Template;
use askama::filters::HtmlSafeOutput;
use bson::{Bson, DateTime};
use disbatch_core::accounts::Role;
use disbatch_core::model::{Queue, Selector, Status, TaskId};
use disbatch_core::schedules::{Occurrence, Schedule};

use super::runs::Strip;
use super::timeline::Timeline;
use super::{runs, words};
use crate::access::{NamedSchedule, Who, owns_schedule, viewer};
use crate::api::Answer;
use crate::error::HttpError;
use crate::json::Dates;
use crate::openapi::{ErrorBody, OfRead};
use crate::schedules::view::Run;
use crate::state::State;
use crate::ui::live::Part;
use crate::ui::names::Called;
use crate::ui::parts::{limit_span, precise};
use crate::ui::{Rendered, live};
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

struct Facts {
    schedule: Schedule,
    queue: Queue,
    times: Vec<Occurrence>,
    runs: Vec<Run>,
    called: Called,
    now: DateTime,
}

// The parts that change by themselves.

#[derive(Template)]
#[template(path = "schedule/head.html")]
struct Head<'a> {
    facts: &'a Facts,
}

#[derive(Template)]
#[template(path = "schedule/controls.html")]
struct Controls<'a> {
    facts: &'a Facts,
}

#[derive(Template)]
#[template(path = "schedule/figures.html")]
struct Figures<'a> {
    facts: &'a Facts,
}

#[derive(Template)]
#[template(path = "schedule/next.html")]
struct Next<'a> {
    facts: &'a Facts,
}

#[derive(Template)]
#[template(path = "schedule/runs.html")]
struct Runs<'a> {
    facts: &'a Facts,
}

#[derive(Template)]
#[template(path = "schedule/settings.html")]
struct SettingList<'a> {
    facts: &'a Facts,
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

pub async fn render(state: &State, who: &Who, named: &NamedSchedule) -> Rendered {
    let facts = Facts::gather(state, named).await?;
    let (role, own) = (viewer::role_on(&facts.queue), owns_schedule(who, &facts.schedule));
    ui::render(StatusCode::OK, &SchedulePage { facts, role, own })
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
    Facts::gather(state, &NamedSchedule::parse(id)).await?.parts()
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
        let tasks = runs.iter().filter_map(|run| run.task.map(TaskId));
        let called = state.titles(std::slice::from_ref(&queue)).await?.read(store, tasks).await?;
        Ok(Self { queue, times, runs, called, now, schedule })
    }

    fn parts(&self) -> Result<Vec<Part>, HttpError> {
        let facts = self;
        Ok(vec![
            Part::new("schedule-head", &Head { facts })?,
            Part::new("schedule-controls", &Controls { facts })?,
            Part::new("schedule-figures", &Figures { facts })?,
            Part::new("schedule-next", &Next { facts })?,
            Part::new("schedule-runs", &Runs { facts })?,
            Part::new("schedule-settings", &SettingList { facts })?,
        ])
    }

    fn called(&self, run: &Run) -> &str {
        run.task.map_or("", |task| self.called.of(&TaskId(task)))
    }

    /// The last of its runs that has succeeded, of those that are shown.
    fn good_run(&self) -> Option<&Run> {
        self.runs.iter().find(|run| run.code == Some(Status::Succeeded.code()))
    }

    fn strip(&self) -> Strip {
        Strip::of(&self.runs)
    }

    fn timeline(&self) -> Timeline {
        Timeline::of(&self.schedule.settings.spec, &self.times, self.now)
    }

    /// How long the newest run took that succeeded.
    fn took(&self) -> Option<String> {
        let success = self.schedule.last_success?;
        Some(between(success.start?, success.finish))
    }

    /// For which time a run was.
    fn there(&self, run: &Run) -> String {
        run.time.map(|time| words::there(&self.schedule.settings.spec.zone, time)).unwrap_or_default()
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
            ("made", schedule.created.map(words::utc)),
            ("changed", schedule.changed.map(words::utc)),
        ])
    }

    fn params(&self) -> String {
        pretty(&self.schedule.settings.params.clone().into())
    }

    /// What the plugin has saved.
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

fn pretty(value: &Bson) -> String {
    json::pretty(&json::from_bson(value, Dates::Text)).trim_end().to_owned()
}

fn between(start: DateTime, end: DateTime) -> String {
    precise(end.timestamp_millis().saturating_sub(start.timestamp_millis()))
}

/// How long a run took.
fn ran(run: &Run) -> String {
    run.started.zip(run.ended).map(|(start, end)| between(start, end)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use bson::oid::ObjectId;

    use super::super::runs::tests::run;
    use super::*;
    use crate::ui::live::assert_on_page;

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
            Figures { facts: &facts }.render().unwrap()
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
        let html = SettingList { facts: &facts(false) }.render().unwrap();
        assert!(html.contains("<dt>times</dt><dd>0 3 * * *</dd>") && !html.contains("jitter"), "{html}");
        assert!(html.contains("What its plugin has saved"), "{html}");
    }
}
