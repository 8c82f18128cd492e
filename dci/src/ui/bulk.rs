//! `GET /bulk` for people: the bulk jobs, and a form that first says how many tasks it is about.

use std::collections::HashMap;

use actix_web::http::StatusCode;
use askama::Template;
use bson::oid::ObjectId;
use bson::{Bson, Document};
use disbatch_core::bulk::{Action, BulkJob, BulkRequest, State as JobState};
use disbatch_core::model::Queue;

use crate::api::list_bulk::DEFAULT_LIMIT;
use crate::bulk;
use crate::error::HttpError;
use crate::params::Params;
use crate::state::State;
use crate::ui::{self, Rendered, text, time};

#[derive(Template)]
#[template(path = "bulk.html")]
struct BulkPage {
    form: Form,
    message: Option<String>,
    jobs: Vec<Row>,
}

#[derive(Template)]
#[template(path = "bulk_confirm.html")]
struct ConfirmPage {
    action: &'static str,
    count: Option<i64>,
    conditions: Vec<(&'static str, String)>,
    /// Every parameter again.
    hidden: Vec<(String, String)>,
    /// Where to change them.
    back: String,
}

/// What the form's fields hold.
struct Form {
    actions: Vec<(&'static str, bool)>,
    queues: Vec<(String, String, bool)>,
    all: bool,
    status: String,
    older_than: String,
    ids: String,
    reason: String,
}

struct Row {
    id: String,
    action: &'static str,
    conditions: Vec<(&'static str, String)>,
    reason: String,
    by: String,
    state: &'static str,
    running: bool,
    seen: i64,
    done: i64,
    skipped: i64,
    total: Option<i64>,
    errors: Vec<(String, String)>,
    failure: Option<String>,
    created: String,
    updated: String,
}

/// The page.
///
/// # Errors
/// The database cannot be reached.
pub async fn render(state: &State, params: &Params) -> Rendered {
    page(state, params, None).await
}

/// The page with what is wrong with the form.
///
/// # Errors
/// The error is not the client's, or the database cannot be reached.
pub async fn refused(state: &State, params: &Params, error: &HttpError) -> Rendered {
    if error.status() == StatusCode::BAD_REQUEST {
        page(state, params, Some(error)).await
    } else {
        Err(error.clone())
    }
}

async fn page(state: &State, params: &Params, error: Option<&HttpError>) -> Rendered {
    let limit = bulk::limit(params, DEFAULT_LIMIT)?;
    let (queues, jobs) = futures::try_join!(state.store.list_queues(), state.store.list_bulk(limit))?;
    let names = names(&queues);
    let page = BulkPage {
        form: form(&queues, params),
        message: error.map(|error| error.message().to_owned()),
        jobs: jobs.iter().map(|job| row(job, &names)).collect(),
    };
    ui::render(error.map_or(StatusCode::OK, HttpError::status), &page)
}

/// The page that asks whether these tasks are meant.
///
/// # Errors
/// The database cannot be reached.
pub async fn confirm(state: &State, params: &Params, wanted: &BulkRequest, count: Option<i64>) -> Rendered {
    let names = names(&state.store.list_queues().await?);
    ui::render(StatusCode::OK, &confirmation(params, wanted, count, &names))
}

fn confirmation(
    params: &Params,
    wanted: &BulkRequest,
    count: Option<i64>,
    names: &HashMap<ObjectId, String>,
) -> ConfirmPage {
    let fields = params.fields.iter().map(|(name, value)| (name.clone(), text(Some(value))));
    let hidden: Vec<(String, String)> = fields.filter(|(_, value)| !value.is_empty()).collect();
    let pairs = hidden.iter().filter(|(name, _)| name != "ids");
    let pairs: Vec<String> = pairs.map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    ConfirmPage {
        action: wanted.action.as_str(),
        count,
        conditions: conditions(&wanted.filter.document(), names),
        hidden,
        back: format!("/bulk?{}", pairs.join("&")),
    }
}

/// A value in a query string.
pub fn encoded(value: &str) -> String {
    value.bytes().fold(String::new(), |mut out, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'*' => out.push(char::from(byte)),
            other => out.push_str(&format!("%{other:02X}")),
        }
        out
    })
}

fn names(queues: &[Queue]) -> HashMap<ObjectId, String> {
    queues.iter().map(|queue| (queue.id.0, queue.display_name())).collect()
}

fn form(queues: &[Queue], params: &Params) -> Form {
    let field = |name: &str| text(params.fields.get(name));
    let (action, queue) = (field("action"), field("queue"));
    let option = |found: &Queue| {
        let (id, name) = (found.id.to_string(), found.display_name());
        let selected = id == queue || (!name.is_empty() && name == queue);
        (id, name, selected)
    };
    Form {
        actions: Action::ALL.map(|known| (known.as_str(), known.as_str() == action)).to_vec(),
        queues: queues.iter().map(option).collect(),
        all: queue == "*",
        status: field("status"),
        older_than: field("older_than"),
        ids: field("ids"),
        reason: field("reason"),
    }
}

fn row(job: &BulkJob, names: &HashMap<ObjectId, String>) -> Row {
    Row {
        id: job.id.to_hex(),
        action: job.action.as_str(),
        conditions: conditions(&job.filter, names),
        reason: job.reason.clone().unwrap_or_default(),
        by: job.by.clone(),
        state: job.state.as_str(),
        running: job.state == JobState::Running,
        seen: job.done + job.skipped,
        done: job.done,
        skipped: job.skipped,
        total: job.total,
        errors: job.errors.iter().map(|error| (error.id.to_string(), error.error.clone())).collect(),
        failure: job.failure.clone(),
        created: time(Some(&job.created.into())),
        updated: time(Some(&job.updated.into())),
    }
}

/// A filter for people.
fn conditions(filter: &Document, names: &HashMap<ObjectId, String>) -> Vec<(&'static str, String)> {
    let queue = filter.get("queue").map(|queue| match queue {
        Bson::ObjectId(id) => names.get(id).cloned().unwrap_or_else(|| id.to_hex()),
        _ => "all".to_owned(), // `*` is the only other.
    });
    let status = filter
        .get_array("status")
        .ok()
        .map(|statuses| statuses.iter().map(ToString::to_string).collect::<Vec<_>>().join(", "));
    let age = filter.get_f64("older_than").ok().map(|age| format!("{age} s"));
    let ids = filter.get_array("ids").ok().map(|ids| format!("{} given", ids.len()));
    let all = [("queue", queue), ("status", status), ("unchanged for", age), ("ids", ids)];
    all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, doc};
    use disbatch_core::bulk::{BulkError, BulkFilter, Queues};
    use disbatch_core::model::{QueueId, TaskId};
    use serde_json::{Value, json};

    use super::*;

    const QUEUE: &str = "6b0003bb686c8275d70dc2f1";

    fn params() -> Params {
        let fields: Value = json!({"action": "retry", "queue": QUEUE, "status": "2", "reason": "a \"b\""});
        Params { fields: fields.as_object().unwrap().clone(), ..Params::default() }
    }

    fn queue() -> Queue {
        let id = ObjectId::parse_str(QUEUE).unwrap();
        bson::deserialize_from_document(doc! { "_id": id, "name": "q<1>" }).unwrap()
    }

    fn job(state: JobState) -> BulkJob {
        let id = ObjectId::parse_str("6b0003bb686c8275d8014444").unwrap();
        BulkJob {
            id,
            action: Action::Cancel,
            filter: doc! { "queue": ObjectId::parse_str(QUEUE).unwrap(), "status": [-2_i64] },
            reason: Some("<why>".into()),
            by: "someone".into(),
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
            updated: DateTime::from_millis(0),
            instance: String::new(),
        }
    }

    #[test]
    fn the_page_shows_jobs_and_keeps_the_form() {
        let queues = [queue()];
        let rows = [JobState::Running, JobState::Done].map(|state| row(&job(state), &names(&queues)));
        let page =
            BulkPage { form: form(&queues, &params()), message: Some("no & no".into()), jobs: rows.into() };
        let html = page.render().unwrap();
        for part in [
            "<progress max=\"500\" value=\"203\"",
            "q&#60;1&#62;",
            "&#60;why&#62;",
            "bad &#38; worse",
            "no &#38; no",
            "/bulk/6b0003bb686c8275d8014444/cancel",
            "<option value=\"retry\" selected>",
            "value=\"a &#34;b&#34;\"",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert_eq!(html.matches("/cancel\"").count(), 1, "only what runs can be stopped");
        let nothing = BulkPage { form: form(&[], &Params::default()), message: None, jobs: vec![] };
        assert!(nothing.render().unwrap().contains("There are no bulk jobs yet."));
    }

    #[test]
    fn nothing_is_done_before_it_is_confirmed() {
        let filter = BulkFilter {
            queue: Some(Queues::One(QueueId(ObjectId::parse_str(QUEUE).unwrap()))),
            statuses: vec![2],
            older_than: Some(std::time::Duration::from_secs(60)),
            ids: None,
        };
        let wanted = BulkRequest { action: Action::Retry, filter, reason: None, by: "someone".into() };
        let show = |count| confirmation(&params(), &wanted, count, &names(&[queue()])).render().unwrap();
        let html = show(Some(17));
        for part in ["Retry 17 tasks?", "q&#60;1&#62;", "60 s", "name=\"status\" value=\"2\"", "a%20%22b%22"]
        {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(show(None).contains("too long"));
        assert!(!show(Some(0)).contains("<form"), "there is nothing to do");
    }
}
