//! `POST /ui/queues/:id/delete`: deletes a queue for browsers that run no script. HTML forms know no `DELETE`.

use actix_web::web::Data;

use crate::access::{NamedQueue, Who};
use crate::api::{Answer, delete_queue, then};
use crate::openapi::{ErrorBody, OfWrite};
use crate::state::State;

/// Deletes a queue, whose tasks stay, and leads to the overview.
#[utoipa::path(
    post, path = "/ui/queues/{id}/delete", tag = "service", operation_id = "deleteQueueByForm",
    params(("id" = String, Path, description = "The queue's id.", example = "6b0003bb686c8275d70dc2f1")),
    responses(
        (status = 303, description = "Deleted; the overview is next."),
        (status = 400, description = "There is no such queue. A page.", body = String, content_type = "text/html"),
        (status = 404, description = "The address has no id of a queue.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, named: NamedQueue) -> Answer {
    then::lead(delete_queue::delete(&state, &who, &named).await, "/")
}
