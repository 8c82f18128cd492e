//! `POST /ui/files/:name/delete`: removes a file set, or a version of one, for browsers that run no script. HTML forms know no
//! `DELETE`.

use actix_web::HttpResponse;
use actix_web::http::header::LOCATION;
use actix_web::web::{Data, Path};

use crate::access::Who;
use crate::api::files::delete;
use crate::api::{Answer, then};
use crate::error::HttpError;
use crate::openapi::{ErrorBody, OfWrite};
use crate::params::Params;
use crate::state::State;

/// Removes a file set, or the version that `.version` says, and leads to the list of sets.
#[utoipa::path(
    post, path = "/ui/files/{name}/delete", tag = "service", operation_id = "deleteFileSetByForm",
    params(("name" = String, Path, description = "The name of the set.", example = "data")),
    request_body(
        content = Value, content_type = "application/x-www-form-urlencoded", example = json!({".version": "3"}),
    ),
    responses(
        (status = 303, description = "Removed; the list of sets is next."),
        (status = 400, description = "The option is wrong. A page, unless it is the gate that refuses.",
            content((ErrorBody = "application/json"), (String = "text/html"))),
        (status = 404, description = "There is no such version. A page, unless it is the gate that refuses.",
            content((ErrorBody = "application/json"), (String = "text/html"))),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, name: Path<String>, params: Params) -> Answer {
    then::or_page(true, remove(&state, &who, &name, &params).await)
}

async fn remove(state: &State, who: &Who, name: &str, params: &Params) -> Result<HttpResponse, HttpError> {
    delete::delete(state, who, name, params).await?;
    Ok(HttpResponse::SeeOther().insert_header((LOCATION, "/files")).finish())
}
