//! `GET /admission`

use actix_web::HttpRequest;
use actix_web::web::Data;
use serde_json::{Value, json};

use crate::access::Who;
use crate::admission::{self, Shown};
use crate::api::Answer;
use crate::openapi::{Admission, OfRead};
use crate::state::State;
use crate::{accept, json, ui};

/// The rules that say whose new tasks are taken at the moment, and what each has come to: how many tasks of those that it is about
/// wait, are held or run, and whether it is safe to upgrade what works on them. Who may not see everything sees the rules for
/// all, and those for what they may see.
#[utoipa::path(
    get, path = "/admission", tag = "admission", operation_id = "listAdmission",
    responses(
        (
            status = 200, content((Admission = "application/json"), (String = "text/html")),
            description = "The rules; a page if `Accept` asks for HTML.",
        ),
        OfRead,
    ),
)]
pub async fn handle(request: HttpRequest, state: Data<State>, who: Who) -> Answer {
    if accept::wants_html(&request) {
        return Ok(ui::page(ui::admission::render(&state, &who).await));
    }
    let rules = admission::shown(&state, &who).await?;
    let rules: Vec<Value> = rules.iter().map(Shown::json).collect();
    Ok(json::ok(&json!({ "rules": rules })))
}
