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
    routes
        .add(at("/tasks/search").post(Everywhere(Viewer), api::web_tasks::search).shared())
        .add(at("/tasks/{queue:[^/]+}").post(Queue(Submitter), api::web_tasks::create).shared())
        .add(
            at("/tasks/{queue:[^/]+}/{collection:.+}")
                .post(Everywhere(Operator), api::web_tasks::create_from_collection)
                .shared(),
        );
}

fn v3(routes: &mut Routes<'_>) {
    routes
        .add(at("/scheduler-json").get(Everywhere(Viewer), api::queues::programs))
        .add(at("/queue-prototypes-json").get(Everywhere(Viewer), api::v3::queue_prototypes))
        .add(at("/set-queue-attr-json").post(Everywhere(Operator), api::v3::set_queue_attr))
        .add(at("/start-queue-json").post(Everywhere(Operator), api::v3::start_queue))
        .add(at("/delete-queue-json").post(Everywhere(Operator), api::v3::delete_queue))
        .add(at("/queue-create-tasks-json").post(Everywhere(Submitter), api::v3::create_tasks))
        .add(
            at("/queue-create-tasks-from-query-json")
                .post(Everywhere(Operator), api::v3::create_tasks_from_query),
        )
        .add(at("/search-tasks-json").post(Everywhere(Viewer), api::v3::search_tasks::handle));
}
