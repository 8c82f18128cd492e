//! `GET /metrics`

use actix_web::http::header::ACCEPT;
use actix_web::web::{self, Data};
use actix_web::{HttpRequest, HttpResponse};
use disbatch_core::metrics::{Component, Format};

use crate::api::Answer;
use crate::error::HttpError;
use crate::openapi::OfRead;
use crate::state::State;

/// The metrics of this server and of all queues, for Prometheus: in its format, or in that of OpenMetrics if `Accept` names
/// `application/openmetrics-text`. `docs/metrics.md` has all of them. What comes from the database is some seconds old at most,
/// unless there is much of it; what cannot be found out is missing.
#[utoipa::path(
    get, path = "/metrics", tag = "service", operation_id = "getMetrics",
    responses(
        (
            status = 200, content((String = "text/plain"), (String = "application/openmetrics-text")),
            description = "The metrics.",
        ),
        OfRead,
    ),
)]
pub async fn handle(request: HttpRequest, state: Data<State>) -> Answer {
    state.gathered.renew(&state.store).await;
    let accept = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok());
    let format = Format::of_accept(accept);
    let metrics = state.store.metrics().clone();
    // Of many queues it is a long text.
    let text = web::block(move || metrics.text(Component::Dci, format)).await;
    let text = text.map_err(|error| HttpError::internal(&format!("metrics cannot be written: {error}")))?;
    Ok(HttpResponse::Ok().content_type(format.content_type()).body(text))
}
