//! `POST /tasks/:queue/:collection`

use actix_web::web::{Data, Path};
use disbatch_core::task::TaskOptions;

use crate::access::Who;
use crate::api::Answer;
use crate::api::create_tasks::{self, from_collection};
use crate::openapi::{ErrorBody, FromCollection, InsertManyResult, OfWrite};
use crate::params::Params;
use crate::state::State;

/// Creates one task in the queue for each document of the collection that `filter` finds, with `params` as
/// the pattern.
#[utoipa::path(
    post, path = "/tasks/{queue}/{collection}", tag = "Disbatch::Web::Tasks",
    operation_id = "createTasksFromCollection",
    params(
        (
            "queue" = String, Path, example = "mail",
            description = "Its id if 24 hexadecimal digits, else its name.",
        ),
        ("collection" = String, Path, description = "The collection with one document for each task."),
    ),
    request_body = FromCollection,
    responses(
        (status = 200, description = "Submitted.", body = InsertManyResult),
        (
            status = 400, body = ErrorBody,
            description = "A parameter is wrong, there is no such queue, or no document was found.",
        ),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, path: Path<(String, String)>, params: Params) -> Answer {
    params.refuse_options()?;
    let (queue, collection) = path.into_inner();
    let queue = create_tasks::queue(&state, Some(&queue.into())).await?;
    let names: Vec<&str> = params.fields.keys().map(String::as_str).collect();
    if names != ["filter", "params"] {
        return Err(create_tasks::invalid());
    }
    let mut fields = params.fields;
    fields.insert("collection".to_owned(), collection.into());
    let wishes = (TaskOptions::default(), None);
    create_tasks::answer(from_collection::submit(&state, &who, &queue, &fields, wishes).await?)
}
