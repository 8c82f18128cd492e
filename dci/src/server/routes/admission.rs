//! The routes about whose tasks are taken and how many, and those that ask for many tasks at once or for chosen fields.

use disbatch_core::accounts::Role::{Admin, Operator, Submitter, Viewer};

use crate::access::Need::{Everywhere, Somewhere, Task};
use crate::api;
use crate::server::route::{Routes, at};

/// What is done with tasks. These come before the extensions, which have `POST /tasks/:queue` and
/// `POST /tasks/:queue/:collection`.
pub fn of_tasks(routes: &mut Routes<'_>) {
    routes
        .add(at("/tasks/{id:[0-9a-f]{24}}/archive").post(Task(Operator), api::archive_task::handle))
        .add(at("/tasks/batch").post(Somewhere(Submitter), api::create_batch::handle).shared())
        .add(at("/tasks/archive").post(Somewhere(Operator), api::archive_tasks::handle).shared())
        .add(at("/tasks/find").get(Somewhere(Viewer), api::find_tasks::handle).shared())
        .add(at("/tasks/query").get(Somewhere(Viewer), api::query_tasks::handle).shared());
}

/// Rules of admission, and tenants.
pub fn add(routes: &mut Routes<'_>) {
    routes
        .add(
            at("/admission")
                .get(Somewhere(Viewer), api::admission::list)
                .post(Somewhere(Operator), api::admission::set)
                .delete(Somewhere(Operator), api::admission::lift)
                .by_accept(),
        )
        .add(at("/tenants").get(Everywhere(Admin), api::tenants::list).by_accept())
        .add(
            at("/tenants/{tenant:.+}")
                .get(Everywhere(Admin), api::tenants::get)
                .post(Everywhere(Admin), api::tenants::set)
                .delete(Everywhere(Admin), api::tenants::delete),
        )
        // What only forms of pages send.
        .add(at("/ui/admission/lift").post(Somewhere(Operator), api::admission::lift_by_form))
        .add(at("/ui/tenants/{tenant:.+}/delete").post(Everywhere(Admin), api::tenants::delete_by_form));
}
