//! A bulk job: as a row of the list, and `GET /bulk/:id` for people.

use actix_web::web::{Data, Path};
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use bson::{Bson, Document};
use disbatch_core::bulk::{BulkJob, State as JobState};
use disbatch_core::model::QueueId;
use disbatch_core::tags::{ANY_TAGS, TAGS, stored};

use crate::error::HttpError;
use crate::openapi::{EventStream, OfFixed};
use crate::state::State;
use crate::ui::live::Part;
use crate::ui::names::{Called, Names, QueueNames, name_of};
use crate::ui::parts::{Pill, limit_span};
use crate::ui::schedules::words::utc;
use crate::ui::tasks::statuses::word;
use crate::ui::{Rendered, live};
use crate::values::CREATED;
use crate::{bulk, ui};

#[derive(Template)]
#[template(path = "bulk/page.html")]
struct JobPage {
    view: View,
}

/// A job. Its blocks are the parts of its page that change by themselves, and a row of the list.
#[derive(Debug, Template)]
#[template(path = "bulk/job.html", blocks = ["panel", "details", "row"])]
pub struct View {
    job: BulkJob,
    conditions: Vec<(&'static str, String)>,
    /// What the tasks are called that could not be acted on.
    called: Called,
}

pub async fn render(state: Data<State>, id: Path<String>) -> Rendered {
    ui::render(&JobPage { view: read(&state, &id).await? })
}

/// What of a job's page changes, as Server-Sent Events: each message has elements that take the place of those with the
/// same ids.
#[utoipa::path(
    get, path = "/ui/bulk/{id}", tag = "service", operation_id = "bulkJobEvents",
    params(("id" = String, Path, description = "The job's id.")),
    responses(EventStream, OfFixed),
)]
pub async fn live(request: HttpRequest, state: Data<State>, id: Path<String>) -> HttpResponse {
    live::of_one(&request, &state, ("bulk", id.into_inner()), async |state, id| {
        let view = read(state, id).await?;
        Ok(vec![Part::new(&view.as_panel())?, Part::new(&view.as_details())?])
    })
}

async fn read(state: &State, id: &str) -> Result<View, HttpError> {
    let (job, queues) = futures::try_join!(bulk::find(state, id), async {
        state.store.list_queues().await.map_err(HttpError::from)
    })?;
    let failed = job.errors.iter().map(|error| error.id);
    let names = Names::read(state, &queues, failed).await?;
    Ok(View::of(job, &names.queues, names.tasks))
}

impl View {
    pub fn of(job: BulkJob, names: &QueueNames, called: Called) -> Self {
        Self { conditions: conditions(&job.filter, names), job, called }
    }

    fn state(&self) -> Pill {
        Pill { tone: self.job.state.as_str(), word: self.job.state.as_str() }
    }

    fn seen(&self) -> i64 {
        self.job.done.saturating_add(self.job.skipped)
    }
}

/// How many seconds it takes until it is done, if it goes on as it has so far.
fn left(job: &BulkJob) -> Option<u64> {
    let seen = u64::try_from(job.done + job.skipped).ok().filter(|seen| *seen > 0)?;
    let rest = u64::try_from(job.total?).ok()?.checked_sub(seen)?;
    let took = job.updated.timestamp_millis().saturating_sub(job.created.timestamp_millis());
    let took = u128::from(u64::try_from(took).ok()?);
    let seconds = took * u128::from(rest) / u128::from(seen) / 1000;
    (job.state == JobState::Running && rest > 0).then(|| u64::try_from(seconds).unwrap_or(u64::MAX))
}

pub fn conditions(filter: &Document, names: &QueueNames) -> Vec<(&'static str, String)> {
    let queue = filter.get("queue").map(|queue| match queue {
        Bson::ObjectId(id) => name_of(names, QueueId(*id)),
        _ => "all".to_owned(), // `*` is the only other.
    });
    let status = filter.get_array("status").ok();
    let status =
        status.map(|all| all.iter().map(|code| word(&code.to_string())).collect::<Vec<_>>().join(", "));
    let age = filter.get_f64("older_than").ok().map(limit_span);
    let time = |name: &str| filter.get_datetime(name).ok().map(|at| format!("{} UTC", utc(*at)));
    let ids = filter.get_array("ids").ok().map(|ids| format!("{} given", ids.len()));
    let id = |name: &str| filter.get_object_id(name).ok().map(|id| id.to_hex());
    let text = |name: &str| filter.get_str(name).ok().map(str::to_owned);
    let texts = |name: &str| Some(stored(filter.get(name)).join(", ")).filter(|texts| !texts.is_empty());
    let archived =
        filter.get_bool("archive").ok().filter(|archive| !archive).map(|_| "left alone".to_owned());
    let all = [
        ("queue", queue),
        ("status", status),
        ("array", id("array")),
        ("node", text("node")),
        ("schedule", id("schedule")),
        ("group", text("group")),
        ("tenant", text("tenant")),
        ("tags", texts(TAGS)),
        ("any of the tags", texts(ANY_TAGS)),
        ("created since", time(CREATED[0])),
        ("created before", time(CREATED[1])),
        ("older than", age),
        ("ids", ids),
        ("archived", archived),
    ];
    all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

#[cfg(test)]
pub mod tests {
    use std::collections::HashMap;

    use bson::oid::ObjectId;
    use bson::{DateTime, doc};
    use disbatch_core::bulk::{Action, BulkError};
    use disbatch_core::model::TaskId;

    use super::*;

    pub const QUEUE: &str = "6b0003bb686c8275d70dc2f1";
    pub const JOB: &str = "6b0003bb686c8275d8014444";

    /// A job that has looked at 203 of 500 tasks in ten seconds.
    pub fn job(state: JobState) -> BulkJob {
        let id = ObjectId::parse_str(JOB).unwrap();
        BulkJob {
            id,
            action: Action::Cancel,
            filter: doc! {
                "queue": ObjectId::parse_str(QUEUE).unwrap(), "status": [-2_i64, 17], "node": "<vm>", "archive": false,
            },
            reason: Some("<why>".into()),
            by: "someone".into(),
            actor: doc! {},
            state,
            total: Some(500),
            done: 200,
            skipped: 3,
            errors: vec![BulkError { id: TaskId(id), error: "bad & worse".into() }],
            failure: None,
            position: None,
            pending: vec![],
            newest: id,
            created: DateTime::from_millis(0),
            updated: DateTime::from_millis(10_000),
            instance: String::new(),
            rerun: None,
            downstream: None,
        }
    }

    fn page(job: &BulkJob) -> String {
        let names = HashMap::from([(ObjectId::parse_str(QUEUE).unwrap(), "q<1>".to_owned())]);
        let called = Called::from([(TaskId(job.id), "convert <a>".to_owned())]);
        JobPage { view: View::of(job.clone(), &names, called) }.render().unwrap()
    }

    #[test]
    fn the_page_shows_how_far_a_job_is() {
        let html = page(&job(JobState::Running));
        for part in [
            "data-live=\"/ui/bulk/6b0003bb686c8275d8014444\"",
            "id=\"job-6b0003bb686c8275d8014444\" data-state=\"running\" data-done=\"200\"",
            "id=\"details-6b0003bb686c8275d8014444\"",
            "<progress max=\"500\" value=\"203\"",
            "about 14 s left",
            "q&#60;1&#62;",
            "queued, finished (17)",
            "<dt>node</dt><dd>&#60;vm&#62;</dd>",
            "<dt>archived</dt><dd>left alone</dd>",
            "&#60;why&#62;",
            ">convert &#60;a&#62;</a> <code class=\"hint\">…014444</code>: bad &#38; worse",
            "hx-post=\"/bulk/6b0003bb686c8275d8014444/cancel\"",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains(" style=") && !html.contains("<why>"), "{html}");
    }

    #[test]
    fn what_is_over_cannot_be_stopped() {
        for state in [JobState::Done, JobState::Cancelled, JobState::Failed] {
            let ended = BulkJob { total: None, failure: Some("<no>".repeat(10_000)), ..job(state) };
            let html = page(&ended);
            assert!(!html.contains("/cancel\"") && !html.contains(" s left"), "{html}");
            assert!(
                html.contains(&format!("<span class=\"status {0}\">{0}</span>", state.as_str())),
                "{html}"
            );
            assert!(html.contains("&#60;no&#62;") && !html.contains("<no>"));
        }
    }

    #[test]
    fn what_is_left_is_an_estimate() {
        assert_eq!(left(&job(JobState::Running)), Some(14));
        assert_eq!(left(&job(JobState::Done)), None);
        let with = |total, done| left(&BulkJob { total, done, skipped: 0, ..job(JobState::Running) });
        assert_eq!([with(None, 5), with(Some(5), 0), with(Some(5), 9), with(Some(5), 5)], [None; 4]);
    }
}
