//! `POST /ui/workers/:name/delete`: removes a worker for browsers that run no script. HTML forms know no `DELETE`.

use actix_web::HttpResponse;
use actix_web::http::header::LOCATION;
use actix_web::web::{Data, Path};

use crate::access::Who;
use crate::api::workers::delete;
use crate::api::{Answer, then};
use crate::error::HttpError;
use crate::openapi::{ErrorBody, OfWrite};
use crate::state::State;

/// Removes a worker, and leads to the list of workers.
#[utoipa::path(
    post, path = "/ui/workers/{name}/delete", tag = "service", operation_id = "deleteWorkerByForm",
    params(("name" = String, Path, description = "The plugin's name.", example = "My::Report")),
    responses(
        (status = 303, description = "Removed; the list of workers is next."),
        (status = 404, description = "There is no such worker. A page, unless it is the gate that refuses.",
            content((ErrorBody = "application/json"), (String = "text/html"))),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, name: Path<String>) -> Answer {
    then::or_page(true, remove(&state, &who, &name).await)
}

async fn remove(state: &State, who: &Who, name: &str) -> Result<HttpResponse, HttpError> {
    delete::delete(state, who, name).await?;
    Ok(HttpResponse::SeeOther().insert_header((LOCATION, "/workers")).finish())
}
