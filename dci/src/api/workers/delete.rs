//! `DELETE /workers/:name`

use actix_web::web::{Data, Path};
use disbatch_core::model::{PluginName, Queue};
use serde_json::{Value, json};

use crate::access::Who;
use crate::api::{Answer, workers};
use crate::error::HttpError;
use crate::openapi::{ErrorBody, OfWrite, WorkerDeleted};
use crate::state::State;
use crate::{changes, json as js};

/// Removes a worker. Queues of this plugin stay, and their tasks wait until it is there again; `queues` names them. Tasks that run go
/// on.
#[utoipa::path(
    delete, path = "/workers/{name}", tag = "workers", operation_id = "deleteWorker",
    params(("name" = String, Path, description = "The plugin's name.", example = "My::Report")),
    responses(
        (status = 200, description = "Removed.", body = WorkerDeleted),
        (status = 404, description = "There is no such worker.", body = ErrorBody),
        OfWrite,
    ),
)]
pub async fn handle(state: Data<State>, who: Who, name: Path<String>) -> Answer {
    Ok(js::ok(&delete(&state, &who, &name).await?))
}

/// Removes the worker with this name. Returns the result as clients see it.
pub async fn delete(state: &State, who: &Who, name: &str) -> Result<Value, HttpError> {
    let plugin = workers::named(name)?;
    if !changes::delete_worker(state, who, plugin.clone()).await? {
        return Err(workers::not_found(name));
    }
    Ok(json!({ "name": name, "deleted": true, "queues": queues_of(state, &plugin).await? }))
}

/// The names of the queues that have this plugin.
pub async fn queues_of(state: &State, plugin: &PluginName) -> Result<Vec<String>, HttpError> {
    let queues = state.store.list_queues().await?;
    let has_it = |queue: &&Queue| queue.plugin_name().ok().flatten().as_ref() == Some(plugin);
    Ok(queues.iter().filter(has_it).map(Queue::display_name).collect())
}
