//! `GET` and `POST /answers/:id-:token`: a question of a task for whoever has its link, with no login and no script. Nothing else of the task is shown.
//!
//! What a browser needs to send the form is in its address, and no cookie is looked at: no other page can send it for somebody. Wrong links are counted
//! as wrong tokens are.

use actix_web::http::StatusCode;
use actix_web::http::header::{CACHE_CONTROL, HeaderValue};
use actix_web::web::{Data, Path};
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use disbatch_core::callbacks::Token;
use disbatch_core::model::Task;
use disbatch_core::task::question::Awaiting;
use disbatch_wire::task_actions::{AnswerLink, NewAnswer};

use crate::access::address;
use crate::api::{Answer, answers, task_actions};
use crate::error::HttpError;
use crate::openapi::OfAnybody;
use crate::params::Params;
use crate::state::State;
use crate::ui::Rendered;
use crate::ui::schema::Field;
use crate::{allowance, changes, ui};

#[derive(Template)]
#[template(path = "answer.html")]
struct AnswerPage<'a> {
    stage: Stage<'a>,
}

enum Stage<'a> {
    /// What is asked, and what was wrong with the answer that was sent.
    Asks {
        awaiting: &'a Awaiting,
        fields: Vec<Field>,
        message: Option<String>,
    },
    Done,
    /// To those who may answer themselves: the address for somebody else.
    Link(&'a AnswerLink),
}

/// The question, for whoever has the link.
#[utoipa::path(
    get, path = "/answers/{id}", tag = "tasks", operation_id = "showQuestion",
    params(("id" = String, Path, description = "The task's id, a hyphen, and the secret of the link.")),
    responses(
        (status = 200, description = "The page.", body = String, content_type = "text/html"),
        (status = 401, description = "There is no such link, or the question was answered. A page.", body = String,
            content_type = "text/html"),
        (status = 404, description = "No link looks like this."),
        (status = 429, description = "There were too many wrong links. A page.", body = String, content_type = "text/html"),
        OfAnybody,
    ),
)]
pub async fn show(request: HttpRequest, state: Data<State>, id: Path<String>) -> HttpResponse {
    let shown = async {
        let (_, awaiting, _) = holder(&request, &state, &id).await?;
        asks(&awaiting, StatusCode::OK, None)
    };
    private(ui::page(shown.await))
}

/// The answer to it.
#[utoipa::path(
    post, path = "/answers/{id}", tag = "tasks", operation_id = "answerByLink",
    params(("id" = String, Path, description = "The task's id, a hyphen, and the secret of the link.")),
    request_body(content = NewAnswer, content_type = "application/x-www-form-urlencoded"),
    responses(
        (status = 200, description = "It is stored.", body = String, content_type = "text/html"),
        (status = 400, description = "It does not fit the form. A page.", body = String, content_type = "text/html"),
        (status = 401, description = "There is no such link, or the question was answered. A page.", body = String,
            content_type = "text/html"),
        (status = 404, description = "No link looks like this."),
        (status = 409, description = "Somebody else has answered at the same time. A page.", body = String, content_type = "text/html"),
        (status = 429, description = "There were too many wrong links. A page.", body = String, content_type = "text/html"),
        OfAnybody,
    ),
)]
pub async fn send(
    request: HttpRequest,
    state: Data<State>,
    id: Path<String>,
    params: Result<Params, HttpError>,
) -> HttpResponse {
    let sent = async {
        let (task, awaiting, of) = holder(&request, &state, &id).await?;
        // Without a field, a form sends nothing; there is a form all the same.
        let mut params = params?;
        params.options.insert("then".to_owned(), "/".into());
        let value = match answers::value(&awaiting, &params) {
            Ok(value) => value,
            Err(error) => return asks(&awaiting, error.status(), Some(error.message().to_owned())),
        };
        let from = address::text(&request, state.access.proxy.as_ref());
        let replied = changes::answer_by_link(&state, (&of, &from), &task, (awaiting, value)).await?;
        answers::result(task.id, replied)?;
        ui::render(&AnswerPage { stage: Stage::Done })
    };
    private(ui::page(sent.await))
}

/// The page with a link that was made by a form.
pub fn made(link: &AnswerLink) -> Answer {
    Ok(private(ui::page(ui::render(&AnswerPage { stage: Stage::Link(link) }))))
}

/// The task, what it asks, and whose link it is.
async fn holder(
    request: &HttpRequest,
    state: &State,
    id: &str,
) -> Result<(Task, Awaiting, String), HttpError> {
    let unknown =
        || HttpError::unauthorized("this link holds no more: the question was answered, or its time is over");
    let Some((id, token)) = id.split_once('-') else { return Err(unknown()) };
    let task = task_actions::task_id(id)?;
    let token = Token::parse(token).map(Token::in_address).ok_or_else(unknown)?;
    let task = state.store.find_task(task).await?;
    let found = task.and_then(|task| {
        let awaiting = Awaiting::of(&task)?;
        let of = awaiting.link_of(&token, state.store.now())?.to_owned();
        Some((task, awaiting, of))
    });
    let Some(holder) = found else {
        let from = address::of(request, state.access.proxy.as_ref());
        state.access.passwords.count_wrong_token(from)?;
        return Err(unknown());
    };
    allowance::known();
    Ok(holder)
}

fn asks(awaiting: &Awaiting, status: StatusCode, message: Option<String>) -> Rendered {
    let stage = Stage::Asks { awaiting, fields: answers::form_of(awaiting).fields, message };
    ui::render_with(status, &AnswerPage { stage })
}

/// The address is a secret: the page is not kept. To other sites no address is told; were it told to nobody, browsers would not say whose form it is.
fn private(mut response: HttpResponse) -> HttpResponse {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn the_page_has_the_question_and_its_form_alone() {
        let task = doc! {
            "_id": bson::oid::ObjectId::new(), "queue": bson::oid::ObjectId::new(), "status": -7,
            "params": { "secret": "hidden" },
            "awaiting": {
                "title": "<b>Go on?</b>", "attempt": 1, "form": { "properties": { "go": { "type": "boolean" } } },
            },
        };
        let awaiting = Awaiting::of(&bson::deserialize_from_document(task).unwrap()).unwrap();
        let (status, html) = asks(&awaiting, StatusCode::OK, None).unwrap();
        assert_eq!(status, 200);
        assert!(html.contains("&#60;b&#62;Go on?") && html.contains("name=\"/go\""), "{html}");
        for hidden in ["hidden", "<nav", "/search", "role=\"alert\"", "<script"] {
            assert!(!html.contains(hidden), "{hidden} is in {html}");
        }
        let (_, html) =
            asks(&awaiting, StatusCode::BAD_REQUEST, Some("go must be given".to_owned())).unwrap();
        assert!(html.contains("role=\"alert\">go must be given"), "{html}");
    }
}
