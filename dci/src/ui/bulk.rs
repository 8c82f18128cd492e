//! `GET /bulk` for people: the bulk jobs, and a form that first says how many tasks it is about.

pub mod job;

use actix_web::http::StatusCode;
use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use askama::filters::HtmlSafe;
use bson::oid::ObjectId;
use disbatch_core::accounts::Role;
use disbatch_core::bulk::{Action, BulkJob, BulkRequest};
use disbatch_core::model::Queue;
use disbatch_core::paging::{self, Position};
use disbatch_core::store::{Store, StoreError};
use disbatch_core::tags::{ANY_TAGS, TAGS};
use serde_json::Value;

use crate::access::Who;
use crate::api::bulk::DEFAULT_LIMIT;
use crate::error::HttpError;
use crate::openapi::{EventStream, OfFixed};
use crate::params::{Lenient, Params};
use crate::state::State;
use crate::ui::live::{self, Part};
use crate::ui::names::{Called, QueueNames, address, encoded, names};
use crate::ui::tasks::statuses::{Statuses, given};
use crate::ui::tasks::time_field;
use crate::ui::{Rendered, text};
use crate::values::{TAG_NAMES, tag_line, tag_list};
use crate::{bulk, ui};
use job::{View, conditions};

#[derive(Template)]
#[template(path = "bulk.html")]
struct BulkPage<'a> {
    form: Form<'a>,
    message: Option<String>,
    jobs: Jobs,
    /// Where those before these are, and those after them; nothing if there are none.
    previous: String,
    next: String,
    /// Where the changes are told.
    live: String,
}

#[derive(Template)]
#[template(path = "bulk_confirm.html")]
struct ConfirmPage<'a> {
    wanted: &'a BulkRequest,
    count: Option<i64>,
    /// What has to be typed before it is done.
    typed: Option<i64>,
    conditions: Vec<(&'static str, String)>,
    /// Every other parameter again.
    hidden: Vec<(String, String)>,
    back: String,
}

/// What has a field only where it is given, and what that is called.
const OTHERS: [(&str, &str); 5] = [
    (TAGS, "Tags"),
    (ANY_TAGS, "Any of the tags"),
    ("group", "Group"),
    ("schedule", "Schedule"),
    ("tenant", "Tenant"),
];

struct Form<'a> {
    queues: &'a [Queue],
    params: &'a Params,
}

impl Form<'_> {
    fn field(&self, name: &str) -> String {
        text(self.params.fields.get(name))
    }

    fn each(&self, name: &str) -> Vec<String> {
        given(self.params.fields.get(name))
    }

    fn is_chosen(&self, queue: &Queue) -> bool {
        let (asked, name) = (self.field("queue"), queue.display_name());
        queue.id.to_string() == asked || (!name.is_empty() && name == asked)
    }

    /// The queue that is asked for, if it is none of the choices: there may still be tasks of it.
    fn gone(&self) -> Option<String> {
        let asked = self.field("queue");
        let is_choice = asked.is_empty() || asked == "*";
        (!is_choice && !self.queues.iter().any(|queue| self.is_chosen(queue))).then_some(asked)
    }

    /// A time, and the type of its field: an age is no time that a browser has a field for.
    fn time(&self, name: &str) -> (&'static str, String) {
        let given = self.field(name);
        let time = time_field(&given);
        if time.is_empty() && !given.is_empty() { ("text", given) } else { ("datetime-local", time) }
    }

    fn others(&self) -> Vec<(&'static str, &'static str, String)> {
        let value = |name: &str| {
            let given = self.params.fields.get(name);
            let tags = given.filter(|_| TAG_NAMES.contains(&name)).and_then(tag_list);
            tags.map_or_else(|| text(given), |tags| tag_line(&tags))
        };
        let all = OTHERS.into_iter().map(|(name, title)| (name, title, value(name)));
        all.filter(|(_, _, value)| !value.is_empty()).collect()
    }
}

#[derive(Debug, Template)]
#[template(path = "bulk/jobs.html")]
struct Jobs {
    rows: Vec<View>,
}

impl HtmlSafe for Jobs {}

pub async fn render(state: Data<State>, params: Params) -> Rendered {
    page(&state, &params, None).await
}

pub async fn refused(state: &State, who: &Who, params: &Params, error: &HttpError) -> Rendered {
    // The page has all queues and jobs.
    if error.status() == StatusCode::BAD_REQUEST && who.is_everywhere(Role::Viewer) {
        page(state, params, Some(error)).await
    } else {
        Err(error.clone())
    }
}

async fn page(state: &State, params: &Params, error: Option<&HttpError>) -> Rendered {
    let page = Page::of(params)?;
    let (queues, found) = futures::try_join!(state.store.list_queues(), page.find(&state.store))?;
    let place = |position: Option<Position<ObjectId>>| {
        position.map_or_else(String::new, |position| page.address("/bulk", position))
    };
    let shown = BulkPage {
        form: Form { queues: &queues, params },
        message: error.map(|error| error.message().to_owned()),
        jobs: Jobs::of(found.rows, &names(&queues)),
        previous: place(found.previous.map(Position::Before)),
        next: place(found.next.map(Position::After)),
        live: page.address("/ui/bulk", page.position),
    };
    ui::render_with(error.map_or(StatusCode::OK, HttpError::status), &shown)
}

/// What of the page changes, as Server-Sent Events: each message has elements that take the place of those with the
/// same ids.
#[utoipa::path(
    get,
    path = "/ui/bulk",
    tag = "service",
    operation_id = "bulkEvents",
    responses(EventStream, OfFixed)
)]
pub async fn live(request: HttpRequest, state: Data<State>, Lenient(params): Lenient) -> HttpResponse {
    live::of_search(&request, &state, ("jobs", params), async |state, params| {
        let page = Page::of(params)?;
        let (queues, found) = futures::try_join!(state.store.list_queues(), page.find(&state.store))?;
        Jobs::of(found.rows, &names(&queues)).parts()
    })
}

impl Jobs {
    fn of(jobs: Vec<BulkJob>, names: &QueueNames) -> Self {
        Self { rows: jobs.into_iter().map(|job| View::of(job, names, Called::default())).collect() }
    }

    fn parts(&self) -> Result<Vec<Part>, HttpError> {
        Part::table(self, self.rows.iter().map(View::as_row))
    }
}

pub async fn confirm(state: &State, params: &Params, wanted: &BulkRequest, count: Option<i64>) -> Rendered {
    let names = names(&state.store.list_queues().await?);
    ui::render(&confirmation(params, wanted, count, &names))
}

fn confirmation<'a>(
    params: &Params,
    wanted: &'a BulkRequest,
    count: Option<i64>,
    names: &QueueNames,
) -> ConfirmPage<'a> {
    let each = |(name, value): (&String, &Value)| -> Vec<(String, String)> {
        let values = match value {
            Value::Array(values) => values.iter().map(|value| text(Some(value))).collect(),
            value => vec![text(Some(value))],
        };
        values.into_iter().map(|value| (name.clone(), value)).collect()
    };
    let all = params.fields.iter().flat_map(each);
    let given: Vec<(String, String)> = all.filter(|(_, value)| !value.is_empty()).collect();
    let pairs = given.iter().filter(|(name, _)| name != "ids");
    let pairs: Vec<String> = pairs.map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    ConfirmPage {
        wanted,
        count,
        typed: count.filter(|count| *count > 1 && wanted.action == Action::Delete),
        conditions: conditions(&wanted.filter.document(), names),
        hidden: given.into_iter().filter(|(name, _)| name != "reason").collect(),
        back: format!("/bulk?{}", pairs.join("&")),
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Page {
    position: Position<ObjectId>,
    limit: i64,
}

impl Page {
    fn of(params: &Params) -> Result<Self, HttpError> {
        let job = |name: &str| {
            let given = text(params.options.get(name));
            let wrong = |_| HttpError::bad_request(format!("'.{name}' must be the id of a bulk job"));
            (!given.is_empty()).then(|| ObjectId::parse_str(&given).map_err(wrong)).transpose()
        };
        let position = Position::of(job("after")?, job("before")?);
        Ok(Self { position, limit: bulk::limit(params, DEFAULT_LIMIT)? })
    }

    async fn find(self, store: &Store) -> Result<paging::Page<BulkJob, ObjectId>, StoreError> {
        // One more tells whether there are more.
        let jobs = store.list_bulk(self.position, self.limit + 1).await?;
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        Ok(self.position.page(limit, jobs, |job| Some(job.id)))
    }

    fn address(self, path: &str, position: Position<ObjectId>) -> String {
        let limit = (self.limit != DEFAULT_LIMIT).then(|| (".limit", self.limit.to_string()));
        let place = match position {
            Position::First => None,
            Position::After(job) => Some((".after", job.to_string())),
            Position::Before(job) => Some((".before", job.to_string())),
        };
        address(path, limit.into_iter().chain(place))
    }
}

#[cfg(test)]
mod tests {
    use disbatch_core::audit::{Actor, Via};
    use disbatch_core::bulk::{BulkFilter, Queues, State as JobState};
    use disbatch_core::model::QueueId;
    use serde_json::json;

    use super::job::tests::{QUEUE, job};
    use super::*;

    fn params(fields: Value) -> Params {
        Params { fields: fields.as_object().unwrap().clone(), ..Params::default() }
    }

    fn filled() -> Params {
        params(json!({
            "action": "retry", "queue": QUEUE, "status": ["2", "17"], "reason": "a \"b\"", "node": "<vm>",
            "archive": "0",
        }))
    }

    fn someone() -> Actor {
        Actor::new(None, Via::OpenDoor, "10.0.0.1")
    }

    fn queue() -> Queue {
        let id = ObjectId::parse_str(QUEUE).unwrap();
        bson::deserialize_from_document(bson::doc! { "_id": id, "name": "q<1>" }).unwrap()
    }

    fn jobs(states: &[JobState]) -> Jobs {
        let names = names(&[queue()]);
        Jobs::of(states.iter().map(|state| job(*state)).collect(), &names)
    }

    fn page(form: Form<'_>, message: Option<&str>, jobs: Jobs) -> String {
        let (previous, next) = ("/bulk?.before=x".to_owned(), String::new());
        let message = message.map(str::to_owned);
        BulkPage { form, message, jobs, previous, next, live: "/ui/bulk".into() }.render().unwrap()
    }

    #[test]
    fn the_page_shows_jobs_and_keeps_the_form() {
        let both = jobs(&[JobState::Running, JobState::Done]);
        let html = page(Form { queues: &[queue()], params: &filled() }, Some("no & no"), both);
        for part in [
            "data-live=\"/ui/bulk\"",
            "<progress max=\"500\" value=\"203\"",
            "q&#60;1&#62;",
            "&#60;why&#62;",
            "bad &#38; worse",
            "no &#38; no",
            "/bulk/6b0003bb686c8275d8014444/cancel",
            "<option value=\"retry\" selected>",
            "name=\"status\" value=\"2\" checked",
            "name=\"status\" value=\"17\"",
            "value=\"a &#34;b&#34;\"",
            "name=\"node\" value=\"&#60;vm&#62;\"",
            "<option value=\"0\" selected>no</option>",
            "rel=\"prev\" href=\"/bulk?.before=x\"",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert_eq!(html.matches("hx-post=").count(), 1, "only what runs can be stopped");
        let nothing = page(Form { queues: &[], params: &Params::default() }, None, jobs(&[]));
        assert!(nothing.contains("There are no bulk jobs yet.") && !nothing.contains(" style="));
    }

    #[test]
    fn the_form_has_all_that_was_given() {
        let given = params(json!({
            "queue": "070707070707070707070707", "tags": ["a=1", "b"], "group": "<g>",
            "created_since": "2026-11-20T03:00:05Z", "created_until": "2h",
        }));
        let html = page(Form { queues: &[queue()], params: &given }, None, jobs(&[]));
        for part in [
            "<option value=\"070707070707070707070707\" selected>070707070707070707070707 (deleted)</option>",
            "name=\"tags\" value=\"a=1,b\"",
            "name=\"group\" value=\"&#60;g&#62;\"",
            "type=\"datetime-local\" step=\"1\" name=\"created_since\" value=\"2026-11-20T03:00:05\"",
            "type=\"text\" step=\"1\" name=\"created_until\" value=\"2h\"",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("name=\"any_tags\"") && !html.contains("name=\"tenant\""), "{html}");
    }

    #[test]
    fn the_list_is_sent_again_when_there_are_others_only() {
        let stamps = |jobs: Jobs| jobs.parts().unwrap().iter().map(Part::stamp).collect::<Vec<_>>();
        let (running, done) = (stamps(jobs(&[JobState::Running])), stamps(jobs(&[JobState::Done])));
        assert_eq!((running.len(), running[0] == done[0], running[1] == done[1]), (2, true, false));
        let parts = jobs(&[JobState::Done]).parts().unwrap();
        assert!(parts[1].is_within("jobs"), "a row that is sent with the list is not sent again");
        assert!(parts.iter().all(|part| part.html().contains(&format!("id=\"{}\"", part.id()))), "{parts:?}");
    }

    #[test]
    fn nothing_is_done_before_it_is_confirmed() {
        let filter = BulkFilter {
            queue: Some(Queues::One(QueueId(ObjectId::parse_str(QUEUE).unwrap()))),
            statuses: vec![2],
            older_than: Some(std::time::Duration::from_secs(60)),
            node: Some("<vm>".into()),
            ..BulkFilter::default()
        };
        let reason = Some("a \"b\"".into());
        let wanted = BulkRequest { action: Action::Retry, filter, reason, who: someone(), rerun: None };
        let show = |count| confirmation(&filled(), &wanted, count, &names(&[queue()])).render().unwrap();
        let html = show(Some(1700));
        for part in [
            "Retry 1,700 tasks?",
            "q&#60;1&#62;",
            "60 s",
            "name=\"status\" value=\"2\"",
            "name=\"status\" value=\"17\"",
            "status=2&#38;status=17",
            "a%20%22b%22",
            "<dt>node</dt><dd>&#60;vm&#62;</dd>",
            "<input name=\"reason\" value=\"a &#34;b&#34;\"",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert_eq!(html.matches("name=\"reason\"").count(), 1, "{html}");
        assert!(!html.contains("Archived"), "a retry is for none of them: {html}");
        assert!(show(Some(1)).contains("Retry 1 task?"));
        assert!(show(None).contains("too long"));
        assert!(!show(Some(0)).contains("method=\"post\""), "there is nothing to do");
    }

    #[test]
    fn who_deletes_without_scripts_types_how_many() {
        let show = |action, count| {
            let filter = BulkFilter { queue: Some(Queues::All), ..BulkFilter::default() };
            let wanted = BulkRequest { action, filter, reason: None, who: someone(), rerun: None };
            confirmation(&params(json!({})), &wanted, Some(count), &QueueNames::new()).render().unwrap()
        };
        assert!(show(Action::Delete, 643).contains("<input required pattern=\"643\""));
        assert!(
            !show(Action::Delete, 1).contains("pattern") && !show(Action::Retry, 643).contains("pattern")
        );
    }

    #[test]
    fn it_is_said_what_becomes_of_archived_tasks() {
        let show = |archive| {
            let filter = BulkFilter { queue: Some(Queues::All), archive, ..BulkFilter::default() };
            let wanted =
                BulkRequest { action: Action::Delete, filter, reason: None, who: someone(), rerun: None };
            confirmation(&params(json!({})), &wanted, Some(2), &QueueNames::new()).render().unwrap()
        };
        assert!(show(None).contains("Archived tasks that match are counted, and deleted, too."));
        assert!(show(Some(false)).contains("Archived tasks are left alone."));
    }

    #[test]
    fn odd_values_are_kept_as_text() {
        let nasty = "<script>\"".repeat(10_000);
        let odd =
            params(json!({"ids": [&nasty, "b"], "status": {"$gt": 1}, "queue": 5, "older_than": &nasty}));
        let html = page(Form { queues: &[queue()], params: &odd }, Some(&nasty), jobs(&[]));
        let plain = page(Form { queues: &[], params: &Params::default() }, None, jobs(&[]));
        assert_eq!(html.matches("<script").count(), plain.matches("<script").count());
        assert!(html.contains("&#60;script&#62;&#34;"));
    }

    #[test]
    fn jobs_come_a_page_at_a_time() {
        let id = |n: u8| ObjectId::from_bytes([n; 12]);
        let jobs = |ids: &[u8]| -> Vec<BulkJob> {
            ids.iter().map(|n| BulkJob { id: id(*n), ..job(JobState::Done) }).collect()
        };
        let cut = |position: Position<ObjectId>, ids: &[u8]| {
            let found = position.page(2, jobs(ids), |job| Some(job.id));
            (found.rows.iter().map(|job| job.id).collect::<Vec<_>>(), found.previous, found.next)
        };
        assert_eq!(cut(Position::First, &[9, 8, 7]), (vec![id(9), id(8)], None, Some(id(8))));
        assert_eq!(cut(Position::After(id(8)), &[7]), (vec![id(7)], Some(id(7)), None));
        assert_eq!(
            cut(Position::Before(id(4)), &[5, 6, 7]),
            (vec![id(6), id(5)], Some(id(6)), Some(id(5))),
            "those next to it"
        );
        let options = json!({"limit": "2", "after": id(8).to_hex()});
        let asked = Params { options: options.as_object().unwrap().clone(), ..Params::default() };
        let page = Page::of(&asked).unwrap();
        assert_eq!(page, Page { position: Position::After(id(8)), limit: 2 });
        let address = page.address("/ui/bulk", page.position);
        assert_eq!(address, format!("/ui/bulk?.limit=2&.after={}", id(8)));
        let usual = Page::of(&Params::default()).unwrap();
        assert_eq!(usual.address("/bulk", usual.position), "/bulk");
        let odd = json!({"before": "<x>"});
        let odd = Params { options: odd.as_object().unwrap().clone(), ..Params::default() };
        assert_eq!(Page::of(&odd).unwrap_err().status(), 400);
    }
}
