//! All routes, in the order in which they are looked at, with what each needs. docs/security.md has the same as a table.

use actix_web::guard;
use disbatch_core::accounts::Role::{Admin, Operator, Submitter, Viewer};

use super::otherwise;
use super::route::{Routes, at};
use crate::access::Need::{Array, Bulk, Everywhere, Login, Nothing, Queue, Schedule, Somewhere, Task, Token};
use crate::state::{Extension, State};
use crate::{api, openapi, ui};

pub fn add(routes: &mut Routes<'_>, state: &State) {
    task_actions(routes);
    many_tasks(routes);
    extensions(routes, state);
    accounts(routes);
    pages(routes);
    parts_of_pages(routes);
    forms(routes);
    things(routes);
    tasks(routes);
    bulk(routes);
    schedules(routes);
    one_schedule(routes);
    calendars(routes);
    arrays(routes);
    callbacks(routes);
    files(routes);
    admission(routes);
    definitions(routes);
    subscriptions(routes);
    service(routes);
    routes.otherwise(Login, otherwise);
}

/// What is done with one task. These come before the extensions, which have `POST /tasks/:queue/:collection`.
fn task_actions(routes: &mut Routes<'_>) {
    routes
        .add(at("/tasks/{id:[0-9a-f]{24}}/cancel").post(Task(Operator), api::task_actions::cancel_task))
        .add(at("/tasks/{id:[0-9a-f]{24}}/retry").post(Task(Operator), api::task_actions::retry_task))
        .add(at("/tasks/{id:[0-9a-f]{24}}/rerun").post(Task(Operator), api::task_actions::rerun_task))
        .add(at("/tasks/{id:[0-9a-f]{24}}/priority").post(Task(Operator), api::task_actions::set_priority))
        // Who may is what the question says.
        .add(at("/tasks/{id:[0-9a-f]{24}}/answer").post(Task(Viewer), api::answers::answer))
        .add(at("/tasks/{id:[0-9a-f]{24}}/answer/link").post(Task(Viewer), api::answers::link))
        .add(
            at("/answers/{id:[0-9a-f]{24}(?:-[0-9a-f]{64})?}")
                .get(Token, ui::answers::show)
                .post(Token, ui::answers::send),
        );
}

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
        .add(at("/ui/balance/check").post(Everywhere(Operator), ui::balance::check))
        .add(at("/ui/balance/disable").post(Everywhere(Operator), api::balance::disable));
}

/// Plugins, nodes, queues and the balance.
fn things(routes: &mut Routes<'_>) {
    routes
        .add(at("/plugins").get(Somewhere(Viewer), api::service::plugins).by_accept())
        .add(at("/nodes").get(Everywhere(Viewer), api::nodes::list).by_accept())
        .add(
            at("/nodes/{node:.+}")
                .get(Everywhere(Viewer), api::nodes::get)
                .post(Everywhere(Operator), api::nodes::set)
                .delete(Everywhere(Operator), api::nodes::remove)
                .by_accept(),
        )
        .add(
            at("/queues")
                .get(Somewhere(Viewer), api::queues::list)
                .post(Everywhere(Operator), api::queues::create)
                .by_accept(),
        )
        // What else is done with a queue goes on to the next address.
        .add(at("/queues/{queue:.+}/explain").shared().get(Queue(Viewer), api::explain::queue))
        .add(at("/queues/{queue:.+}/recordings").shared().get(Queue(Viewer), api::queues::list_recordings))
        .add(at("/queues/{queue:.+}/shadow").shared().get(Queue(Viewer), api::shadows::handle).by_accept())
        .add(
            at("/queues/{queue:.+}/groups").shared().get(Queue(Viewer), api::queues::list_groups).by_accept(),
        )
        .add(
            at("/queues/{queue:.+}")
                .get(Queue(Viewer), api::queues::get)
                .post(Queue(Operator), api::update_queue::handle)
                .delete(Queue(Operator), api::queues::remove)
                .by_accept(),
        )
        .add(
            at("/balance")
                .get(Everywhere(Viewer), api::balance::get)
                .post(Everywhere(Operator), api::balance::update)
                .by_accept(),
        );
}

fn tasks(routes: &mut Routes<'_>) {
    routes
        .add(
            at("/tasks")
                .get(Somewhere(Viewer), api::tasks::list)
                .post(Somewhere(Submitter), api::create_tasks::handle)
                .by_accept(),
        )
        .add(at("/tasks/{id:[0-9a-f]{24}}").get(Task(Viewer), api::task::get).by_accept())
        .add(at("/tasks/{id:[0-9a-f]{24}}/stdout").get(Task(Viewer), api::task::stdout))
        .add(at("/tasks/{id:[0-9a-f]{24}}/stderr").get(Task(Viewer), api::task::stderr))
        .add(at("/tasks/{id:[0-9a-f]{24}}/bundle").get(Task(Viewer), api::task::bundle))
        .add(at("/tasks/{id:[0-9a-f]{24}}/events").get(Task(Viewer), api::events::of_task))
        .add(at("/tasks/{id:[0-9a-f]{24}}/wait").get(Task(Viewer), api::task::wait))
        .add(at("/tasks/{id:[0-9a-f]{24}}/attempts").get(Task(Viewer), api::task::attempts))
        .add(at("/tasks/{id:[0-9a-f]{24}}/explain").get(Task(Viewer), api::explain::task))
        .add(at("/tasks/{id:[0-9a-f]{24}}/graph").get(Task(Viewer), api::explain::graph))
        .add(at("/events").get(Somewhere(Viewer), api::events::follow))
        .add(at("/locks").get(Somewhere(Viewer), api::explain::locks).by_accept())
        .add(at("/locks/{name}").get(Somewhere(Viewer), api::explain::lock).by_accept());
}

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

fn service(routes: &mut Routes<'_>) {
    routes
        .add(at("/openapi.json").get(Login, openapi::handle))
        .add(at("/openapi-3.0.json").get(Login, openapi::handle_older))
        .add(at("/healthz").get(Nothing, api::service::alive))
        .add(at("/readyz").get(Nothing, api::service::ready))
        .add(at("/doctor").get(Everywhere(Operator), api::service::diagnose))
        .add(at("/info").get(Login, api::service::info))
        .add(at("/metrics").get(Everywhere(Viewer), api::service::metrics))
        .add(at("/monitoring").get(Everywhere(Viewer), api::service::monitoring))
        .add(at("/audit").get(Everywhere(Admin), api::events::audit).by_accept())
        .add(at("/moments").get(Somewhere(Viewer), api::events::moment).by_accept())
        .add(at("/counters").get(Everywhere(Viewer), api::events::counters))
        .add(at("/counters/audit").post(Everywhere(Operator), api::events::audit_counters));
}

fn schedules(routes: &mut Routes<'_>) {
    use api::schedules::{create, list, times};
    routes
        .add(at("/schedules").get(Somewhere(Viewer), list).post(Somewhere(Submitter), create).by_accept())
        // Before those of one schedule, as no schedule has such a name.
        .add(at("/schedules/new").get(Somewhere(Submitter), ui::schedules::form::new).shared())
        .add(at("/schedules/preview").post(Somewhere(Viewer), times::preview_new).shared())
        .add(at("/ui/schedules").get(Everywhere(Viewer), ui::schedules::live));
}

fn one_schedule(routes: &mut Routes<'_>) {
    use api::schedules::{delete, delete_by_form, get, pause, resume, times, update};
    use ui::schedules::{form, one};
    routes
        .add(at("/schedules/{id:[^/]+}/pause").post(Schedule(Submitter), pause))
        .add(at("/schedules/{id:[^/]+}/resume").post(Schedule(Submitter), resume))
        .add(at("/schedules/{id:[^/]+}/run").post(Schedule(Submitter), times::run))
        .add(at("/schedules/{id:[^/]+}/backfill").post(Schedule(Submitter), times::backfill))
        .add(at("/schedules/{id:[^/]+}/preview").get(Schedule(Viewer), times::preview))
        .add(at("/schedules/{id:[^/]+}/runs").get(Schedule(Viewer), times::runs))
        .add(at("/schedules/{id:[^/]+}/edit").get(Schedule(Submitter), form::edit))
        .add(
            at("/schedules/{id:[^/]+}")
                .get(Schedule(Viewer), get)
                .post(Schedule(Submitter), update)
                .delete(Schedule(Submitter), delete)
                .by_accept(),
        )
        .add(at("/ui/schedules/{id:[0-9a-f]{24}}").get(Schedule(Viewer), one::live))
        .add(at("/ui/schedules/{id:[0-9a-f]{24}}/delete").post(Schedule(Submitter), delete_by_form));
}

fn calendars(routes: &mut Routes<'_>) {
    use api::calendars::{create, delete, delete_by_form, get, list, set};
    routes
        .add(at("/calendars").get(Somewhere(Viewer), list).post(Everywhere(Operator), create).by_accept())
        .add(
            at("/calendars/{name:[^/]+}")
                .get(Somewhere(Viewer), get)
                .post(Everywhere(Operator), set)
                .delete(Everywhere(Operator), delete),
        )
        .add(at("/ui/calendars/{name:[^/]+}/delete").post(Everywhere(Operator), delete_by_form));
}

fn arrays(routes: &mut Routes<'_>) {
    routes
        .add(at("/arrays").get(Somewhere(Viewer), api::arrays::list).by_accept())
        .add(at("/arrays/{id:[0-9a-f]{24}}").get(Array(Viewer), api::arrays::get).by_accept())
        .add(at("/arrays/{id:[0-9a-f]{24}}/cancel").post(Array(Operator), api::arrays::cancel))
        .add(at("/arrays/{id:[0-9a-f]{24}}/rerun").post(Array(Operator), api::arrays::rerun))
        .add(at("/arrays/{id:[0-9a-f]{24}}/retry").post(Array(Operator), api::arrays::retry))
        .add(at("/ui/arrays/{id:[0-9a-f]{24}}").get(Array(Viewer), ui::arrays::live));
}

/// For web services, which show the token of their task. Where they show none in a header, it is behind the id.
fn callbacks(routes: &mut Routes<'_>) {
    use api::callbacks::{end, log, put_end, put_log, put_storage, store};
    routes
        .add(
            at("/callbacks/{id:[0-9a-f]{24}(?:-[0-9a-f]{64})?}/job_storage")
                .post(Token, store)
                .put(Token, put_storage),
        )
        .add(at("/callbacks/{id:[0-9a-f]{24}(?:-[0-9a-f]{64})?}/log").post(Token, log).put(Token, put_log))
        .add(
            at("/callbacks/{id:[0-9a-f]{24}(?:-[0-9a-f]{64})?}/status").post(Token, end).put(Token, put_end),
        );
}

/// File sets. Their handlers look at the tenant of the set: a role on a queue alone is not enough.
fn files(routes: &mut Routes<'_>) {
    contents(routes);
    routes
        .add(at("/files").get(Somewhere(Viewer), api::files::list).by_accept())
        .add(at("/files/versions/{id:[0-9a-f]{24}}/entries").post(Somewhere(Submitter), api::files::add))
        .add(at("/files/versions/{id:[0-9a-f]{24}}/commit").post(Somewhere(Submitter), api::files::commit))
        .add(at("/files/{name:[^/]+}/content/{path:.*}").get(Somewhere(Viewer), api::files::content))
        .add(
            at("/files/{name:[^/]+}")
                .get(Somewhere(Viewer), api::files::get)
                .post(Somewhere(Submitter), api::files::open)
                .delete(Somewhere(Submitter), api::files::remove)
                .by_accept(),
        )
        .add(at("/ui/files/{name:[^/]+}/delete").post(Somewhere(Submitter), ui::files::remove));
}

fn contents(routes: &mut Routes<'_>) {
    routes
        .add(at("/files/contents/{sha256:[0-9a-f]{64}}").get(Somewhere(Submitter), api::files::content_state))
        .add(
            at("/files/contents/{sha256:[0-9a-f]{64}}/finish")
                .post(Somewhere(Submitter), api::files::finish_content),
        )
        .add(
            at("/files/contents/{sha256:[0-9a-f]{64}}/{n:[0-9]+}")
                .put(Somewhere(Submitter), api::files::put_chunk),
        );
}

/// What is done with tasks. These come before the extensions, which have `POST /tasks/:queue` and
/// `POST /tasks/:queue/:collection`.
fn many_tasks(routes: &mut Routes<'_>) {
    routes
        .add(at("/tasks/{id:[0-9a-f]{24}}/archive").post(Task(Operator), api::task_actions::archive_task))
        .add(at("/tasks/batch").post(Somewhere(Submitter), api::tasks::create_batch).shared())
        .add(at("/tasks/archive").post(Somewhere(Operator), api::bulk::archive).shared())
        .add(at("/tasks/find").get(Somewhere(Viewer), api::find_tasks::handle).shared())
        .add(at("/tasks/query").get(Somewhere(Viewer), api::tasks::query).shared());
}

/// Rules of admission, and tenants.
fn admission(routes: &mut Routes<'_>) {
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

/// Plugins that the database defines.
fn definitions(routes: &mut Routes<'_>) {
    use api::definitions::{create, delete, delete_by_form, get, import, list, put, put_by_form, validate};
    routes
        .add(at("/workers").get(Everywhere(Viewer), list).post(Everywhere(Admin), create).by_accept())
        // These are for POST alone: what else is done there is about workers of these names.
        .add(at("/workers/validate").post(Everywhere(Viewer), validate).shared())
        .add(at("/workers/import").post(Everywhere(Admin), import::handle).shared())
        .add(
            at("/workers/{name:[^/]+}")
                .get(Everywhere(Viewer), get)
                .put(Everywhere(Admin), put)
                .delete(Everywhere(Admin), delete)
                .by_accept(),
        )
        .add(at("/ui/workers/{name:[^/]+}").post(Everywhere(Admin), put_by_form))
        .add(at("/ui/workers/{name:[^/]+}/delete").post(Everywhere(Admin), delete_by_form));
}

fn subscriptions(routes: &mut Routes<'_>) {
    use api::subscriptions::{delete, delete_by_form, get, list, set, set_by_form, test};
    routes
        .add(at("/subscriptions").get(Everywhere(Operator), list).by_accept())
        .add(at("/subscriptions/{name:[^/]+}/test").post(Everywhere(Operator), test))
        .add(
            at("/subscriptions/{name:[^/]+}")
                .get(Everywhere(Operator), get)
                .post(Everywhere(Operator), set)
                .delete(Everywhere(Operator), delete),
        )
        .add(at("/ui/subscriptions").post(Everywhere(Operator), set_by_form))
        .add(at("/ui/subscriptions/{name:[^/]+}/delete").post(Everywhere(Operator), delete_by_form));
}

/// Adds the routes of those web extensions that are configured; they are deprecated. They come before all others, since they add methods to
/// the paths of others.
fn extensions(routes: &mut Routes<'_>, state: &State) {
    if state.has(Extension::Tasks) {
        tasks_extension(routes);
    }
    if state.has(Extension::V3) {
        v3_extension(routes);
    }
}

fn tasks_extension(routes: &mut Routes<'_>) {
    routes
        .add(at("/tasks/search").post(Everywhere(Viewer), api::web_tasks::search).shared())
        .add(at("/tasks/{queue:[^/]+}").post(Queue(Submitter), api::web_tasks::create).shared())
        .add(
            at("/tasks/{queue:[^/]+}/{collection:.+}")
                .post(Everywhere(Operator), api::web_tasks::create_from_collection)
                .shared(),
        );
}

fn v3_extension(routes: &mut Routes<'_>) {
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
        .add(at("/search-tasks-json").post(Everywhere(Viewer), api::v3::search_tasks));
}
