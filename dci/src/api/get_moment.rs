//! `GET /moments`

use actix_web::HttpRequest;
use actix_web::web::Data;
use disbatch_core::schedules::Zone;

use crate::access::Who;
use crate::api::Answer;
use crate::error::HttpError;
use crate::openapi::{ErrorBody, Moment, MomentSearch, OfSearch};
use crate::params::Params;
use crate::state::State;
use crate::{accept, json, moments, ui};

/// What ran and waited at a moment of the past, what limits held, and what happened around it: tasks that ended badly, nodes that came and went,
/// what people changed (for admins), and what schedules made, on one time line. Browsers get a page. Of nodes it is told to those who see all
/// queues.
///
/// It is told from what is kept anyway. What is not known, or was too much to read, is in `gaps`.
#[utoipa::path(
    get, path = "/moments", tag = "service", operation_id = "getMoment",
    params(MomentSearch),
    responses(
        (
            status = 200, content((Moment = "application/json"), (String = "text/html")),
            description = "What is known; a page if `Accept` asks for HTML.",
        ),
        (status = 400, description = "A parameter is wrong.", body = ErrorBody),
        (status = 404, description = "There is no such queue.", body = ErrorBody),
        OfSearch,
    ),
)]
pub async fn handle(
    request: HttpRequest,
    state: Data<State>,
    who: Who,
    params: Result<Params, HttpError>,
) -> Answer {
    if accept::wants_html(&request) {
        return Ok(ui::page(ui::moment::render(&state, &who, &params.unwrap_or_default()).await));
    }
    let params = params?;
    params.only(&moments::FIELDS)?;
    let asked = moments::asked(&state, &who, &params, &Zone::utc()).await?;
    let past = state.store.moment(&asked.question).await?;
    json::of(&moments::view(&asked.question, &past, &ui::names::names(&asked.queues)))
}
