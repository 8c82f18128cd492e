//! `POST /ui/workers/:name`: changes a worker for the form of its page. HTML forms know no `PUT`.

use actix_web::web::{Data, Path};

use crate::access::Who;
use crate::api::workers::put;
use crate::api::{Answer, then};
use crate::openapi::{self, ErrorBody, OfWrite};
use crate::params::Params;
use crate::state::State;

/// Gives a worker the definition in the field `definition`, which is JSON as text.
#[utoipa::path(
    post, path = "/ui/workers/{name}", tag = "service", operation_id = "saveWorkerByForm",
    params(("name" = String, Path, description = "The plugin's name.", example = "My::Report")),
    request_body(
        content = Value, content_type = "application/x-www-form-urlencoded",
        example = json!({"definition": "{\"engine\": \"http\"}", ".rev": "1", ".then": "/workers"}),
    ),
    responses(
        (status = 200, description = "Stored.", body = openapi::Worker),
        (status = 303, description = "Stored; the page in `.then` is next."),
        (status = 400, description = "The definition is wrong. A page, unless it is the gate that refuses.",
            content((ErrorBody = "application/json"), (String = "text/html"))),
        (status = 404, description = "There is no such worker. A page, unless it is the gate that refuses.",
            content((ErrorBody = "application/json"), (String = "text/html"))),
        (status = 409, description = "It has another revision. A page, unless it is the gate that refuses.",
            content((ErrorBody = "application/json"), (String = "text/html"))),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, name: Path<String>, params: Params) -> Answer {
    then::or_page(then::is_form(&params), put::put(&state, &who, &name, &params).await)
}
