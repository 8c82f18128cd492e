//! All routes, in the order in which they are looked at, with what each needs. docs/security.md has the same as a table.

mod admission;
mod arrays;
mod callbacks;
mod definitions;
mod files;
mod schedules;
mod subscriptions;

use actix_web::guard;
use disbatch_core::accounts::Role::{Admin, Operator, Submitter, Viewer};

use super::extensions;
use super::otherwise;
use super::route::{Routes, at};
use crate::access::Need::{Bulk, Everywhere, Login, Nothing, Queue, Somewhere, Task, Token};
use crate::state::State;
use crate::{api, openapi, ui};

/// Adds all of them.
pub fn add(routes: &mut Routes<'_>, state: &State) {
    task_actions(routes);
    admission::of_tasks(routes);
    extensions::add(routes, state);
    accounts(routes);
    pages(routes);
    parts_of_pages(routes);
    forms(routes);
    things(routes);
    tasks(routes);
    bulk(routes);
    schedules::add(routes);
    arrays::add(routes);
    callbacks::add(routes);
    files::add(routes);
    admission::add(routes);
    definitions::add(routes);
    subscriptions::add(routes);
    service(routes);
    routes.otherwise(Login, otherwise);
}

/// What is done with one task. These come before the extensions, which have `POST /tasks/:queue/:collection`.
fn task_actions(routes: &mut Routes<'_>) {
    routes
        .add(at("/tasks/{id:[0-9a-f]{24}}/cancel").post(Task(Operator), api::cancel_task::handle))
        .add(at("/tasks/{id:[0-9a-f]{24}}/retry").post(Task(Operator), api::retry_task::handle))
        .add(at("/tasks/{id:[0-9a-f]{24}}/rerun").post(Task(Operator), api::rerun_task::handle))
        .add(at("/tasks/{id:[0-9a-f]{24}}/priority").post(Task(Operator), api::set_priority::handle))
        // Who may is what the question says.
        .add(at("/tasks/{id:[0-9a-f]{24}}/answer").post(Task(Viewer), api::answers::answer))
        .add(at("/tasks/{id:[0-9a-f]{24}}/answer/link").post(Task(Viewer), api::answers::link))
        .add(
            at("/answers/{id:[0-9a-f]{24}(?:-[0-9a-f]{64})?}")
                .get(Token, ui::answers::show)
                .post(Token, ui::answers::send),
        );
}

/// Who somebody is.
fn accounts(routes: &mut Routes<'_>) {
    routes
        .add(at("/login").get(Nothing, ui::login::handle).post(Nothing, ui::login::log_in))
        .add(at("/logout").post(Login, ui::login::log_out))
        .add(at("/account").get(Login, ui::account::handle).by_accept())
        .add(at("/account/password").post(Login, ui::account::change_password))
        .add(at("/account/tokens").post(Login, ui::account::create_token))
        .add(at("/account/tokens/{id:[0-9a-f]{24}}/revoke").post(Login, ui::account::revoke_token))
        .add(at("/account/sessions/{id:[0-9a-f]{24}}/end").post(Login, ui::account::end_session))
        .add(at("/users").get(Everywhere(Admin), ui::users::handle).by_accept());
}

/// Routes that only pages need.
fn pages(routes: &mut Routes<'_>) {
    // What is no asset may be a file of the same folder.
    let is_asset = guard::fn_guard(|context| ui::assets::is_at(context.head().uri.path()));
    routes
        .add(at("/").get(Somewhere(Viewer), ui::overview::handle))
        .add(at("/assets/{asset}").only(is_asset).get(Nothing, ui::assets::handle))
        .add(at("/docs").get(Login, ui::docs::handle))
        .add(at("/search").get(Somewhere(Viewer), ui::search::handle).by_accept())
        .add(at("/zone").get(Login, ui::zone::handle).post(Login, ui::zone::choose))
        .add(at("/about").get(Everywhere(Viewer), ui::about::handle));
}

/// What of pages changes by itself.
fn parts_of_pages(routes: &mut Routes<'_>) {
    routes
        .add(at("/ui/nodes").get(Everywhere(Viewer), ui::nodes::live))
        .add(at("/ui/locks").get(Everywhere(Viewer), ui::locks::live))
        .add(at("/ui/locks/{name}").get(Everywhere(Viewer), ui::locks::live_one))
        .add(at("/ui/nodes/{id:[0-9a-f]{24}}").get(Everywhere(Viewer), ui::node::live))
        .add(at("/ui/nodes/{id:[0-9a-f]{24}}/chart").get(Everywhere(Viewer), ui::node::chart))
        .add(at("/ui/queues/{id:[0-9a-f]{24}}").get(Queue(Viewer), ui::queue::live))
        .add(at("/ui/queues/{id:[0-9a-f]{24}}/chart").get(Queue(Viewer), ui::queue::chart))
        .add(at("/ui/queues/{id:[0-9a-f]{24}}/groups").get(Queue(Viewer), ui::queue::groups::live))
        .add(at("/ui/admission").get(Somewhere(Viewer), ui::admission::live))
        .add(at("/ui/overview").get(Somewhere(Viewer), ui::overview::live))
        .add(at("/ui/tasks").get(Everywhere(Viewer), ui::tasks::live))
        .add(at("/ui/tasks/{id:[0-9a-f]{24}}").get(Task(Viewer), ui::task::live))
        .add(at("/ui/tasks/{id:[0-9a-f]{24}}/output/{stream}").get(Task(Viewer), ui::task::lines::handle))
        .add(at("/ui/bulk").get(Everywhere(Viewer), ui::bulk::live))
        .add(at("/ui/bulk/{id:[0-9a-f]{24}}").get(Bulk(Viewer), ui::bulk::job::live))
        .add(at("/ui/throughput").get(Everywhere(Viewer), ui::overview::throughput));
}

/// What only forms of pages send.
fn forms(routes: &mut Routes<'_>) {
    routes
        .add(at("/ui/queues/{id:[0-9a-f]{24}}/tasks").post(Queue(Submitter), ui::queue::submit::handle))
        .add(at("/ui/nodes/{id:[0-9a-f]{24}}/delete").post(Everywhere(Operator), ui::node::remove))
        .add(at("/ui/queues/{id:[0-9a-f]{24}}/delete").post(Queue(Operator), ui::queue::remove))
        .add(at("/ui/balance").post(Everywhere(Operator), api::balance::save))
        .add(at("/ui/balance/check").post(Everywhere(Operator), ui::balance::check::handle))
        .add(at("/ui/balance/disable").post(Everywhere(Operator), api::balance::disable));
}

/// Plugins, nodes, queues and the balance.
fn things(routes: &mut Routes<'_>) {
    routes
        .add(at("/plugins").get(Somewhere(Viewer), api::list_plugins::handle).by_accept())
        .add(at("/nodes").get(Everywhere(Viewer), api::list_nodes::handle).by_accept())
        .add(
            at("/nodes/{node:.+}")
                .get(Everywhere(Viewer), api::get_node::handle)
                .post(Everywhere(Operator), api::update_node::handle)
                .delete(Everywhere(Operator), api::delete_node::handle)
                .by_accept(),
        )
        .add(
            at("/queues")
                .get(Somewhere(Viewer), api::list_queues::handle)
                .post(Everywhere(Operator), api::create_queue::handle)
                .by_accept(),
        )
        // What else is done with a queue goes on to the next address.
        .add(at("/queues/{queue:.+}/explain").shared().get(Queue(Viewer), api::explain_queue::handle))
        .add(at("/queues/{queue:.+}/recordings").shared().get(Queue(Viewer), api::list_recordings::handle))
        .add(at("/queues/{queue:.+}/shadow").shared().get(Queue(Viewer), api::shadows::handle).by_accept())
        .add(
            at("/queues/{queue:.+}/groups").shared().get(Queue(Viewer), api::list_groups::handle).by_accept(),
        )
        .add(
            at("/queues/{queue:.+}")
                .get(Queue(Viewer), api::get_queue::handle)
                .post(Queue(Operator), api::update_queue::handle)
                .delete(Queue(Operator), api::delete_queue::handle)
                .by_accept(),
        )
        .add(
            at("/balance")
                .get(Everywhere(Viewer), api::balance::get)
                .post(Everywhere(Operator), api::balance::update)
                .by_accept(),
        );
}

/// Tasks, and what goes on while one does.
fn tasks(routes: &mut Routes<'_>) {
    routes
        .add(
            at("/tasks")
                .get(Somewhere(Viewer), api::list_tasks::handle)
                .post(Somewhere(Submitter), api::create_tasks::handle)
                .by_accept(),
        )
        .add(at("/tasks/{id:[0-9a-f]{24}}").get(Task(Viewer), api::get_task::handle).by_accept())
        .add(at("/tasks/{id:[0-9a-f]{24}}/stdout").get(Task(Viewer), api::get_stdout::handle))
        .add(at("/tasks/{id:[0-9a-f]{24}}/stderr").get(Task(Viewer), api::get_stderr::handle))
        .add(at("/tasks/{id:[0-9a-f]{24}}/bundle").get(Task(Viewer), api::get_bundle::handle))
        .add(at("/tasks/{id:[0-9a-f]{24}}/events").get(Task(Viewer), api::get_events::handle))
        .add(at("/tasks/{id:[0-9a-f]{24}}/wait").get(Task(Viewer), api::wait_for_task::handle))
        .add(at("/tasks/{id:[0-9a-f]{24}}/attempts").get(Task(Viewer), api::list_attempts::handle))
        .add(at("/tasks/{id:[0-9a-f]{24}}/explain").get(Task(Viewer), api::explain_task::handle))
        .add(at("/tasks/{id:[0-9a-f]{24}}/graph").get(Task(Viewer), api::locks::graph))
        .add(at("/events").get(Somewhere(Viewer), api::follow_events::handle))
        .add(at("/locks").get(Somewhere(Viewer), api::locks::list).by_accept())
        .add(at("/locks/{name}").get(Somewhere(Viewer), api::locks::get).by_accept());
}

/// Many tasks at once.
fn bulk(routes: &mut Routes<'_>) {
    routes
        .add(
            at("/bulk")
                .get(Everywhere(Viewer), api::bulk::list)
                .post(Somewhere(Operator), api::bulk::create)
                .by_accept(),
        )
        .add(at("/bulk/{id:[0-9a-f]{24}}").get(Bulk(Viewer), api::bulk::get).by_accept())
        .add(at("/bulk/{id:[0-9a-f]{24}}/cancel").post(Bulk(Operator), api::bulk::cancel));
}

/// The service itself.
fn service(routes: &mut Routes<'_>) {
    routes
        .add(at("/openapi.json").get(Login, openapi::handle))
        .add(at("/openapi-3.0.json").get(Login, openapi::handle_older))
        .add(at("/healthz").get(Nothing, api::health::alive))
        .add(at("/readyz").get(Nothing, api::health::ready))
        .add(at("/doctor").get(Everywhere(Operator), api::doctor::handle))
        .add(at("/info").get(Login, api::info::handle))
        .add(at("/metrics").get(Everywhere(Viewer), api::metrics::handle))
        .add(at("/monitoring").get(Everywhere(Viewer), api::monitoring::handle))
        .add(at("/audit").get(Everywhere(Admin), api::list_audit::handle).by_accept())
        .add(at("/moments").get(Somewhere(Viewer), api::get_moment::handle).by_accept())
        .add(at("/counters").get(Everywhere(Viewer), api::list_counters::handle))
        .add(at("/counters/audit").post(Everywhere(Operator), api::audit_counters::handle));
}
