//! `GET /arrays`

use actix_web::HttpRequest;
use actix_web::web::Data;

use crate::access::Who;
use crate::api::Answer;
use crate::openapi::{Array, ArraySearch, ErrorBody, OfSearch};
use crate::params::Params;
use crate::state::State;
use crate::{accept, arrays, json, ui};

/// The arrays of all queues that the client may see, the latest first.
#[utoipa::path(
    get, path = "/arrays", tag = "arrays", operation_id = "listArrays",
    params(ArraySearch),
    responses(
        (
            status = 200, content((Vec<Array> = "application/json"), (String = "text/html")),
            description = "The arrays; a page if `Accept` asks for HTML.",
        ),
        (status = 400, description = "A parameter is wrong.", body = ErrorBody),
        OfSearch,
    ),
)]
pub async fn handle(request: HttpRequest, state: Data<State>, who: Who, params: Params) -> Answer {
    if accept::wants_html(&request) {
        return Ok(ui::page(ui::arrays::list(&state, &who, &params).await));
    }
    let (filter, limit) = arrays::filter(&state, &who, &params).await?;
    let found = state.store.list_arrays(&filter, limit).await?;
    Ok(json::ok(&found.iter().map(|(array, counts)| arrays::view(array, counts.as_ref())).collect()))
}
