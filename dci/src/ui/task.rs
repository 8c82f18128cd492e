//! `GET /tasks/:id` for people: one task, what it is doing, and what it has written.

mod facts;
mod feed;
mod life;
mod output;
mod timeline;

use std::rc::Rc;

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use bson::{Bson, DateTime, Document};
use disbatch_core::explain::Reader;
use disbatch_core::model::{Selector, Status};
use disbatch_core::output::{OutputEnd, StreamName};
use disbatch_core::secrets;
use disbatch_core::store::StoreError;
use futures::FutureExt;

use crate::access::Who;
use crate::api::{explain_task, get_task, task_action};
use crate::error::HttpError;
use crate::openapi::OfFixed;
use crate::state::State;
use crate::ui::live::{self, Part};
use crate::ui::tasks::params_of;
use crate::ui::{self, Rendered, plain};
use facts::{Facts, Outcome, QueueLink, Shown};
use feed::Feed;
use life::{Head, Progress, Why, status};
use output::Output;
use timeline::Timeline;

#[derive(Template)]
#[template(path = "task.html")]
struct TaskPage {
    id: String,
    queue: QueueLink,
    look: Look,
    params: Shown,
    /// Whether it has parameters that are shown to nobody.
    secure: bool,
    outputs: [Output; 2],
    /// From where on the output is to be told; nothing while there is none.
    resume: String,
    again: Again,
}

/// What changes by itself.
struct Look {
    head: Head,
    progress: Progress,
    why: Why,
    facts: Facts,
    timeline: Timeline,
    outcome: Outcome,
}

/// The form that submits the task again.
struct Again {
    params: String,
    /// The page of the task's queue, whose form can be filled with its params; nothing if it is gone.
    form: String,
    /// Whether that is the only way, as the params are too long for the field.
    too_long: bool,
    timeout: String,
    max_attempts: String,
}

/// All that a page shows of the task itself, one part after the other.
///
/// # Errors
/// A part cannot be rendered.
pub fn html_of(task: &Document, now: DateTime) -> Result<String, HttpError> {
    let id = task.get_object_id("_id").map(|id| id.to_hex()).unwrap_or_default();
    let queue = QueueLink { name: plain(task.get("queue")), ..QueueLink::default() };
    let look = view(&id, task, &queue, now);
    let parts = [
        ui::html(&look.head)?,
        ui::html(&look.progress)?,
        ui::html(&look.facts)?,
        ui::html(&look.timeline)?,
        ui::html(&look.outcome)?,
    ];
    Ok(parts.concat())
}

/// What a page shows of the end of a stream.
///
/// # Errors
/// It cannot be rendered.
pub fn html_of_output(id: &str, stream: StreamName, end: OutputEnd, live: bool) -> Result<String, HttpError> {
    ui::html(&Output::of(id, stream, end, None, live))
}

/// The page for somebody, or the error that there is instead.
pub async fn respond(state: &State, id: &str, reader: Reader) -> HttpResponse {
    ui::page(render(state, id, reader).await)
}

async fn render(state: &State, id: &str, reader: Reader) -> Rendered {
    let task = get_task::find(state, id).await?;
    let task_id = task_action::id(id)?;
    let attempt = running_attempt(&task);
    let live = status(&task).is_some_and(|status| !status.has_ended());
    let output = |stream| Output::read(&state.store, (task_id, &task), stream, (attempt, live));
    let (stdout, stderr, look) = futures::try_join!(
        async { output(StreamName::Stdout).await.map_err(HttpError::from) },
        async { output(StreamName::Stderr).await.map_err(HttpError::from) },
        look(state, id, &task, reader),
    )?;
    let (look, queue) = look;
    ui::render(StatusCode::OK, &page(id, &task, queue, look, [stdout, stderr]))
}

/// What of the page changes, as Server-Sent Events: each message has elements that take the place of those with the
/// same ids. What the task writes is told by `/tasks/:id/events`.
#[utoipa::path(
    get, path = "/ui/tasks/{id}", tag = "service", operation_id = "taskEvents",
    params(("id" = String, Path, description = "The task's id.")),
    responses(
        (status = 200, description = "The events.", body = String, content_type = "text/event-stream"),
        OfFixed,
    ),
)]
pub async fn live(request: HttpRequest, state: Data<State>, who: Who, id: Path<String>) -> HttpResponse {
    let id = id.into_inner();
    let feed = Rc::new(Feed::of(who.reader()));
    // Who looks at the same page shares what is found out, and they are not all told the same.
    live::respond(&request, &state, format!("task {id} {:?}", who.reader()), move |state| {
        let (id, feed) = (id.clone(), Rc::clone(&feed));
        async move { feed.look(&state, &id).await }.boxed_local()
    })
}

impl Look {
    fn parts(&self) -> Result<Vec<Part>, HttpError> {
        Ok(vec![
            Part::new("task-head", &self.head)?,
            Part::new("task-progress", &self.progress)?,
            Part::new("task-why", &self.why)?,
            Part::new("task-facts", &self.facts)?,
            Part::new("task-timeline", &self.timeline)?,
            Part::new("task-outcome", &self.outcome)?,
        ])
    }
}

/// What is known of the task at this moment.
async fn look(
    state: &State,
    id: &str,
    task: &Document,
    reader: Reader,
) -> Result<(Look, QueueLink), HttpError> {
    let store = &state.store;
    let task_id = task_action::id(id)?;
    // A status that is no number cannot be explained.
    let waits = status(task).is_some_and(|status| !status.has_ended());
    let explained = async {
        if !waits {
            return Ok(None);
        }
        match explain_task::find(state, id, reader).await {
            Err(error) if error.status() == StatusCode::NOT_FOUND => Ok(None), // It has gone meanwhile.
            other => other.map(Some),
        }
    };
    let (explained, queue, attempts, now) = futures::try_join!(
        explained,
        async { queue_link(state, task.get("queue")).await.map_err(HttpError::from) },
        async { store.list_attempts(task_id).await.map_err(HttpError::from) },
        async { store.server_time().await.map_err(HttpError::from) },
    )?;
    let mut look = view(id, task, &queue, now);
    look.why = Why::of(explained);
    look.outcome = Outcome::of(id, task, &attempts);
    Ok((look, queue))
}

/// What the task itself tells.
fn view(id: &str, task: &Document, queue: &QueueLink, now: DateTime) -> Look {
    Look {
        head: Head::of(id, task, queue.there),
        progress: Progress::of(task),
        why: Why::default(),
        facts: Facts::of(task, queue.clone()),
        timeline: Timeline::of(task, now),
        outcome: Outcome::of(id, task, &[]),
    }
}

fn page(id: &str, task: &Document, queue: QueueLink, look: Look, outputs: [Output; 2]) -> TaskPage {
    let params = params_of(task).map(Shown::of).unwrap_or_default();
    let [stdout, stderr] = &outputs;
    let resume = running_attempt(task)
        .map(|attempt| format!("attempt:{attempt},stdout:{},stderr:{}", stdout.end(), stderr.end()));
    let form = queue.id.as_ref().filter(|_| queue.there);
    let form = form.map(|queue| format!("/queues/{queue}?task={id}#new")).unwrap_or_default();
    TaskPage {
        id: id.to_owned(),
        queue,
        look,
        again: Again {
            // What is not shown as a whole is not to be sent again in part.
            params: if params.cut { String::new() } else { params.text.clone() },
            too_long: params.cut,
            form,
            timeout: plain(task.get("timeout")),
            max_attempts: plain(task.get("max_attempts")),
        },
        params,
        secure: task.contains_key(secrets::SHOWN),
        outputs,
        resume: resume.unwrap_or_default(),
    }
}

/// The number of the attempt that runs, 0 if nobody has counted.
fn running_attempt(task: &Document) -> Option<i64> {
    let attempt = task.get("attempt").and_then(disbatch_core::model::whole_number).unwrap_or(0);
    (status(task) == Some(Status::Running)).then_some(attempt)
}

async fn queue_link(state: &State, value: Option<&Bson>) -> Result<QueueLink, StoreError> {
    let Some(Bson::ObjectId(id)) = value else {
        return Ok(QueueLink { name: plain(value), ..QueueLink::default() });
    };
    let queue = state.store.find_queue(&Selector::Id(*id)).await?;
    let there = queue.is_some();
    let name = queue.map_or_else(|| format!("{id} (deleted)"), |queue| queue.display_name());
    Ok(QueueLink { id: Some(id.to_hex()), name, there })
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    const ID: &str = "6b0003bb686c8275d8013333";
    const QUEUE: &str = "6b0003bb686c8275d70dc2f1";

    fn outputs(stdout: &str, live: bool) -> [Output; 2] {
        let of = |stream, text: &str| {
            let end = OutputEnd { offset: 0, bytes: text.as_bytes().to_vec() };
            Output::of(ID, stream, end, None, live)
        };
        [of(StreamName::Stdout, stdout), of(StreamName::Stderr, "")]
    }

    fn shown(task: &Document, stdout: &str) -> String {
        let queue = QueueLink { id: Some(QUEUE.into()), name: "q<1>".into(), there: true };
        let look = view(ID, task, &queue, DateTime::from_millis(1_795_163_167_344));
        let live = status(task).is_some_and(|status| !status.has_ended());
        page(ID, task, queue, look, outputs(stdout, live)).render().unwrap()
    }

    #[test]
    fn the_page_shows_everything_about_a_task() {
        let task = doc! {
            "status": 2, "node": "vm", "params": { "commands": "<ab>" }, "complete": false,
            "ctime": DateTime::from_millis(1_795_163_067_344), "progress": { "percent": 50 }, "odd": "<odd>",
            "history": [{ "at": DateTime::from_millis(1_795_163_067_344), "status": 2, "note": "its <time> has come" }],
            "exit": { "code": 3 }, "timeout": 90, "result": { "rows": 17 },
        };
        let html = shown(&task, "a <b>");
        for part in [
            ID,
            "/tasks?queue=6b0003bb686c8275d70dc2f1",
            "q&#60;1&#62;",
            "failed",
            "2026-11-20 08:24:27",
            "&#34;commands&#34; : &#34;&#60;ab&#62;&#34;",
            "a &#60;b&#62;",
            "Storing the output failed.",
            "its &#60;time&#62; has come",
            "<dt>Exit code</dt><dd>3</dd>",
            "&#34;rows&#34; : 17",
            "&#60;odd&#62;",
            "None.",
            "href=\"/tasks/6b0003bb686c8275d8013333/stdout\"",
            "data-ended=\"true\"",
            "data-resume=\"\"",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains(" style=") && !html.contains("<ab>"), "{html}");
    }

    #[test]
    fn the_page_of_a_running_task_follows_it() {
        let task = doc! { "status": 0, "attempt": 2, "progress": { "percent": 12.5, "message": "a <b>" } };
        let html = shown(&task, "so far\n");
        for part in [
            "<script src=\"/assets/task.js?v=",
            "data-live=\"/ui/tasks/6b0003bb686c8275d8013333\"",
            "data-events=\"/tasks/6b0003bb686c8275d8013333/events\"",
            "data-resume=\"attempt:2,stdout:7,stderr:0\"",
            "value=\"12.5\"",
            "a &#60;b&#62;",
            "None so far.",
            "href=\"/tasks/6b0003bb686c8275d8013333/stderr\"",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("Further fields"), "{html}");
    }

    #[test]
    fn what_can_be_done_has_a_form_without_script() {
        let html = shown(&doc! { "status": -2, "params": { "a": "</textarea><script>" }, "timeout": 90 }, "");
        for part in [
            "action=\"/tasks/6b0003bb686c8275d8013333/cancel\" method=\"post\"",
            "action=\"/tasks/6b0003bb686c8275d8013333/retry\" method=\"post\"",
            "name=\".then\" value=\"/tasks/6b0003bb686c8275d8013333\"",
            "action=\"/tasks\" method=\"post\"",
            "name=\".then\" value=\"/tasks/{id}\"",
            "name=\"queue\" value=\"6b0003bb686c8275d70dc2f1\"",
            "name=\".timeout\" value=\"90\"",
            "&#60;/textarea&#62;&#60;script&#62;",
            "href=\"#cancel\"",
            "href=\"/queues/6b0003bb686c8275d70dc2f1?task=6b0003bb686c8275d8013333#new\"",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("too long for this field"), "{html}");
        assert!(!html.contains("href=\"#retry\""), "it has not ended: {html}");
    }

    #[test]
    fn of_secure_parameters_only_that_there_are_some_is_shown() {
        let html = shown(&doc! { "status": 1, "params": { "a": 1 }, "has_secure_params": true }, "");
        for part in
            ["has secure parameters, which are shown to nobody", "Its secure parameters are not copied"]
        {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("Further fields"), "{html}");
        let without = shown(&doc! { "status": 1, "params": { "a": 1 } }, "");
        assert!(!without.contains("secure parameters"), "{without}");
    }

    #[test]
    fn params_that_are_too_long_to_be_changed_here_say_so() {
        let html = shown(&doc! { "status": 1, "params": { "a": "<x>".repeat(40_000) } }, "");
        let again = html.split("id=\"again\"").nth(1).unwrap();
        assert!(again.contains("too long for this field") && !again.contains("name=\"params\""), "{again}");
        assert!(again.contains("?task=6b0003bb686c8275d8013333#new\""), "{again}");
    }

    #[test]
    fn every_part_is_on_the_page_under_its_id() {
        let task = doc! { "status": 0, "ctime": DateTime::from_millis(0), "cancel": { "reason": "<x>" } };
        let html = shown(&task, "");
        let queue = QueueLink::default();
        for part in view(ID, &task, &queue, DateTime::from_millis(1000)).parts().unwrap() {
            let id = format!(" id=\"{}\"", part.id());
            assert_eq!(html.matches(&id).count(), 1, "{id} in {html}");
            assert!(part.html().contains(&id), "{part:?}");
        }
    }

    #[test]
    fn tasks_of_any_shape_have_a_page() {
        let nasty = "<script>alert('1')</script>\"".repeat(10_000);
        let frame = shown(&doc! {}, "").matches("<script").count();
        for task in [
            doc! { "status": &nasty, "node": &nasty, "params": &nasty, "ctime": &nasty, "exit": &nasty },
            doc! { "status": 0, "progress": &nasty, "history": &nasty, "cancel": { "by": &nasty }, &nasty: 1 },
            doc! { "status": 2.5, "params": Bson::Null, "parameters": [1], "attempt": "x", "result": &nasty },
        ] {
            let html = shown(&task, &nasty);
            assert_eq!(html.matches("<script").count(), frame);
            assert!(html.contains("&#60;script&#62;alert(&#39;1&#39;)"));
        }
        assert_eq!(running_attempt(&doc! { "status": 0 }), Some(0));
        assert_eq!(running_attempt(&doc! { "status": -1, "attempt": 2 }), None);
    }
}
