//! The routes of the web extensions, which are deprecated.

use disbatch_core::accounts::Role::{Operator, Submitter, Viewer};

use super::route::{Routes, at};
use crate::access::Need::{Everywhere, Queue};
use crate::api;
use crate::state::{Extension, State};

/// Adds the routes of those extensions that are configured. They come before all others, since they add methods to
/// the paths of others.
pub fn add(routes: &mut Routes<'_>, state: &State) {
    if state.has(Extension::Tasks) {
        tasks(routes);
    }
    if state.has(Extension::V3) {
        v3(routes);
    }
}

fn tasks(routes: &mut Routes<'_>) {
    use api::web_tasks::{create, create_from_collection, search};
    routes
        .add(at("/tasks/search").post(Everywhere(Viewer), search::handle).shared())
        .add(at("/tasks/{queue:[^/]+}").post(Queue(Submitter), create::handle).shared())
        .add(
            at("/tasks/{queue:[^/]+}/{collection:.+}")
                .post(Everywhere(Operator), create_from_collection::handle)
                .shared(),
        );
}

fn v3(routes: &mut Routes<'_>) {
    use api::v3;
    routes
        .add(at("/scheduler-json").get(Everywhere(Viewer), api::list_queues::programs))
        .add(at("/queue-prototypes-json").get(Everywhere(Viewer), v3::queue_prototypes::handle))
        .add(at("/set-queue-attr-json").post(Everywhere(Operator), v3::set_queue_attr::handle))
        .add(at("/start-queue-json").post(Everywhere(Operator), v3::start_queue::handle))
        .add(at("/delete-queue-json").post(Everywhere(Operator), v3::delete_queue::handle))
        .add(at("/queue-create-tasks-json").post(Everywhere(Submitter), v3::create_tasks::handle))
        .add(
            at("/queue-create-tasks-from-query-json")
                .post(Everywhere(Operator), v3::create_tasks_from_query::handle),
        )
        .add(at("/search-tasks-json").post(Everywhere(Viewer), v3::search_tasks::handle));
}
