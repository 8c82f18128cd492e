//! `GET /arrays/:id`

use actix_web::HttpRequest;
use actix_web::web::{Data, Path};
use bson::doc;
use disbatch_core::model::whole_number;
use serde_json::Value;

use crate::api::Answer;
use crate::openapi::{Array, ElementRange, ErrorBody, OfSearch};
use crate::params::Params;
use crate::state::State;
use crate::{accept, arrays, json, ui};

/// One array: how many of its elements are in which status, the task that comes after them, and some of its elements.
#[utoipa::path(
    get, path = "/arrays/{id}", tag = "arrays", operation_id = "getArray",
    params(("id" = String, Path, description = "Its id."), ElementRange),
    responses(
        (
            status = 200, content((Array = "application/json"), (String = "text/html")),
            description = "The array; a page if `Accept` asks for HTML.",
        ),
        (status = 400, description = "An option is wrong.", body = ErrorBody),
        (status = 404, description = "There is no such array.", body = ErrorBody),
        OfSearch,
    ),
)]
pub async fn handle(request: HttpRequest, state: Data<State>, id: Path<String>, params: Params) -> Answer {
    if accept::wants_html(&request) {
        return Ok(ui::page(ui::arrays::one(&state, &id, &params).await));
    }
    let (from, limit) = arrays::extent(&params)?;
    let array = arrays::find(&state, &id).await?;
    let only = [array.id];
    let counting = state.store.count_elements(&only);
    let (mut counted, elements) =
        futures::try_join!(counting, state.store.array_elements(&array, from, limit))?;
    let counts = counted.as_mut().map(|all| all.remove(&array.id).unwrap_or_default());
    let mut view = arrays::view(&array, counts.as_ref());
    if let Some((last, _)) = array.last {
        let task = state.store.find_task_fields(last, doc! { "status": 1 }).await?;
        let status = task.as_ref().and_then(|task| task.get("status")).and_then(whole_number);
        view["final"]["status"] = status.into();
    }
    view["elements"] = elements.iter().map(arrays::of_element).collect::<Vec<Value>>().into();
    Ok(json::ok(&view))
}
