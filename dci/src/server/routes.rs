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
        .add(at("/tasks/{id:[0-9a-f]{24}}/cancel").form(Task(Operator), api::task_actions::cancel_task))
        .add(at("/tasks/{id:[0-9a-f]{24}}/retry").form(Task(Operator), api::task_actions::retry_task))
        .add(at("/tasks/{id:[0-9a-f]{24}}/rerun").form(Task(Operator), api::task_actions::rerun_task))
        .add(at("/tasks/{id:[0-9a-f]{24}}/priority").form(Task(Operator), api::task_actions::set_priority))
        // Who may is what the question says.
        .add(at("/tasks/{id:[0-9a-f]{24}}/answer").form(Task(Viewer), api::answers::answer))
        .add(at("/tasks/{id:[0-9a-f]{24}}/answer/link").form(Task(Viewer), api::answers::link))
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
        .add(at("/account").get_or_page(Login, ui::account::handle, ui::account::render))
        .add(at("/account/password").post(Login, ui::account::change_password))
        .add(at("/account/tokens").post(Login, ui::account::create_token))
        .add(at("/account/tokens/{id:[0-9a-f]{24}}/revoke").form(Login, ui::account::revoke_token))
        .add(at("/account/sessions/{id:[0-9a-f]{24}}/end").form(Login, ui::account::end_session))
        .add(at("/users").get_or_page(Everywhere(Admin), ui::users::handle, ui::users::render));
}

/// Routes that only pages need.
fn pages(routes: &mut Routes<'_>) {
    // What is no asset may be a file of the same folder.
    let is_asset = guard::fn_guard(|context| ui::assets::is_at(context.head().uri.path()));
    routes
        .add(at("/").page(Somewhere(Viewer), ui::overview::render))
        .add(at("/assets/{asset}").only(is_asset).get(Nothing, ui::assets::handle))
        .add(at("/docs").page(Login, ui::docs::handle))
        .add(at("/search").get(Somewhere(Viewer), ui::search::handle).by_accept())
        .add(at("/zone").page(Login, ui::zone::handle).post(Login, ui::zone::choose))
        .add(at("/about").page(Everywhere(Viewer), ui::about::handle));
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
        .add(at("/ui/queues/{id:[0-9a-f]{24}}/tasks").form(Queue(Submitter), ui::queue::submit::handle))
        .add(at("/ui/nodes/{id:[0-9a-f]{24}}/delete").post(Everywhere(Operator), ui::node::remove))
        .add(at("/ui/queues/{id:[0-9a-f]{24}}/delete").post(Queue(Operator), ui::queue::remove))
        .add(at("/ui/balance").post(Everywhere(Operator), api::balance::save))
        .add(at("/ui/balance/check").post(Everywhere(Operator), ui::balance::check))
        .add(at("/ui/balance/disable").form(Everywhere(Operator), api::balance::disable));
}

/// Plugins, nodes, queues and the balance.
fn things(routes: &mut Routes<'_>) {
    routes
        .add(at("/plugins").get_or_page(Somewhere(Viewer), api::service::plugins, ui::plugins::render))
        .add(at("/nodes").get_or_page(Everywhere(Viewer), api::nodes::list, ui::nodes::render))
        .add(
            at("/nodes/{node:.+}")
                .get_or_page(Everywhere(Viewer), api::nodes::get, ui::node::render)
                .form(Everywhere(Operator), api::nodes::set)
                .delete(Everywhere(Operator), api::nodes::remove),
        )
        .add(
            at("/queues")
                .get_or_page(Somewhere(Viewer), api::queues::list, ui::overview::render)
                .form(Everywhere(Operator), api::queues::create),
        )
        // What else is done with a queue goes on to the next address.
        .add(at("/queues/{queue:.+}/explain").shared().get(Queue(Viewer), api::explain::queue))
        .add(at("/queues/{queue:.+}/recordings").shared().get(Queue(Viewer), api::queues::list_recordings))
        .add(at("/queues/{queue:.+}/shadow").shared().get_or_page(
            Queue(Viewer),
            api::shadows::handle,
            ui::queue::versions::shadow,
        ))
        .add(at("/queues/{queue:.+}/groups").shared().get_or_page(
            Queue(Viewer),
            api::queues::list_groups,
            ui::queue::groups::render,
        ))
        .add(
            at("/queues/{queue:.+}")
                .get_or_page(Queue(Viewer), api::queues::get, ui::queue::render)
                .form(Queue(Operator), api::update_queue::handle)
                .delete(Queue(Operator), api::queues::remove),
        )
        .add(
            at("/balance")
                .get_or_page(Everywhere(Viewer), api::balance::get, ui::balance::render)
                .post(Everywhere(Operator), api::balance::update),
        );
}

fn tasks(routes: &mut Routes<'_>) {
    routes
        .add(
            at("/tasks")
                .get_or_page(Somewhere(Viewer), api::tasks::list, ui::tasks::render)
                .post(Somewhere(Submitter), api::create_tasks::handle),
        )
        .add(at("/tasks/{id:[0-9a-f]{24}}").get_or_page(Task(Viewer), api::task::get, ui::task::render))
        .add(at("/tasks/{id:[0-9a-f]{24}}/stdout").get(Task(Viewer), api::task::stdout))
        .add(at("/tasks/{id:[0-9a-f]{24}}/stderr").get(Task(Viewer), api::task::stderr))
        .add(at("/tasks/{id:[0-9a-f]{24}}/bundle").get(Task(Viewer), api::task::bundle))
        .add(at("/tasks/{id:[0-9a-f]{24}}/events").get(Task(Viewer), api::events::of_task))
        .add(at("/tasks/{id:[0-9a-f]{24}}/wait").get(Task(Viewer), api::task::wait))
        .add(at("/tasks/{id:[0-9a-f]{24}}/attempts").get(Task(Viewer), api::task::attempts))
        .add(at("/tasks/{id:[0-9a-f]{24}}/explain").get(Task(Viewer), api::explain::task))
        .add(at("/tasks/{id:[0-9a-f]{24}}/graph").get(Task(Viewer), api::explain::graph))
        .add(at("/events").get(Somewhere(Viewer), api::events::follow))
        .add(at("/locks").get_or_page(Somewhere(Viewer), api::explain::locks, ui::locks::list))
        .add(at("/locks/{name}").get_or_page(Somewhere(Viewer), api::explain::lock, ui::locks::one));
}

fn bulk(routes: &mut Routes<'_>) {
    routes
        .add(
            at("/bulk")
                .get_or_page(Everywhere(Viewer), api::bulk::list, ui::bulk::render)
                .post(Somewhere(Operator), api::bulk::create),
        )
        .add(at("/bulk/{id:[0-9a-f]{24}}").get_or_page(Bulk(Viewer), api::bulk::get, ui::bulk::job::render))
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
        .add(at("/audit").get_or_page(Everywhere(Admin), api::events::audit, ui::audit::render))
        .add(at("/moments").get_or_page(Somewhere(Viewer), api::events::moment, ui::moment::render))
        .add(at("/counters").get(Everywhere(Viewer), api::events::counters))
        .add(at("/counters/audit").post(Everywhere(Operator), api::events::audit_counters));
}

fn schedules(routes: &mut Routes<'_>) {
    use api::schedules::{create, list, times};
    routes
        .add(
            at("/schedules")
                .get_or_page(Somewhere(Viewer), list, ui::schedules::render)
                .form(Somewhere(Submitter), create),
        )
        // Before those of one schedule, as no schedule has such a name.
        .add(at("/schedules/new").page(Somewhere(Submitter), ui::schedules::form::new).shared())
        .add(at("/schedules/preview").post(Somewhere(Viewer), times::preview_new).shared())
        .add(at("/ui/schedules").get(Everywhere(Viewer), ui::schedules::live));
}

fn one_schedule(routes: &mut Routes<'_>) {
    use api::schedules::{delete, delete_by_form, get, pause, resume, times, update};
    use ui::schedules::{form, one};
    routes
        .add(at("/schedules/{id:[^/]+}/pause").form(Schedule(Submitter), pause))
        .add(at("/schedules/{id:[^/]+}/resume").form(Schedule(Submitter), resume))
        .add(at("/schedules/{id:[^/]+}/run").form(Schedule(Submitter), times::run))
        .add(at("/schedules/{id:[^/]+}/backfill").post(Schedule(Submitter), times::backfill))
        .add(at("/schedules/{id:[^/]+}/preview").get(Schedule(Viewer), times::preview))
        .add(at("/schedules/{id:[^/]+}/runs").get(Schedule(Viewer), times::runs))
        .add(at("/schedules/{id:[^/]+}/edit").page(Schedule(Submitter), form::edit))
        .add(
            at("/schedules/{id:[^/]+}")
                .get_or_page(Schedule(Viewer), get, one::render)
                .form(Schedule(Submitter), update)
                .delete(Schedule(Submitter), delete),
        )
        .add(at("/ui/schedules/{id:[0-9a-f]{24}}").get(Schedule(Viewer), one::live))
        .add(at("/ui/schedules/{id:[0-9a-f]{24}}/delete").post(Schedule(Submitter), delete_by_form));
}

fn calendars(routes: &mut Routes<'_>) {
    use api::calendars::{create, delete, delete_by_form, get, list, render, set};
    routes
        .add(at("/calendars").get_or_page(Somewhere(Viewer), list, render).form(Everywhere(Operator), create))
        .add(
            at("/calendars/{name:[^/]+}")
                .get(Somewhere(Viewer), get)
                .form(Everywhere(Operator), set)
                .delete(Everywhere(Operator), delete),
        )
        .add(at("/ui/calendars/{name:[^/]+}/delete").post(Everywhere(Operator), delete_by_form));
}

fn arrays(routes: &mut Routes<'_>) {
    routes
        .add(at("/arrays").get_or_page(Somewhere(Viewer), api::arrays::list, ui::arrays::list))
        .add(at("/arrays/{id:[0-9a-f]{24}}").get_or_page(Array(Viewer), api::arrays::get, ui::arrays::one))
        .add(at("/arrays/{id:[0-9a-f]{24}}/cancel").post(Array(Operator), api::arrays::cancel))
        .add(at("/arrays/{id:[0-9a-f]{24}}/rerun").post(Array(Operator), api::arrays::rerun))
        .add(at("/arrays/{id:[0-9a-f]{24}}/retry").post(Array(Operator), api::arrays::retry))
        .add(at("/ui/arrays/{id:[0-9a-f]{24}}").get(Array(Viewer), ui::arrays::live));
}

/// For web services, which show the token of their task. Where they show none in a header, it is behind the id.
fn callbacks(routes: &mut Routes<'_>) {
    use api::callbacks::{end, log, store};
    routes
        .add(
            at("/callbacks/{id:[0-9a-f]{24}(?:-[0-9a-f]{64})?}/job_storage")
                .post(Token, store)
                .put(Token, store),
        )
        .add(at("/callbacks/{id:[0-9a-f]{24}(?:-[0-9a-f]{64})?}/log").post(Token, log).put(Token, log))
        .add(at("/callbacks/{id:[0-9a-f]{24}(?:-[0-9a-f]{64})?}/status").post(Token, end).put(Token, end));
}

/// File sets. Their handlers look at the tenant of the set: a role on a queue alone is not enough.
fn files(routes: &mut Routes<'_>) {
    contents(routes);
    routes
        .add(at("/files").get_or_page(Somewhere(Viewer), api::files::list, ui::files::render))
        .add(at("/files/versions/{id:[0-9a-f]{24}}/entries").post(Somewhere(Submitter), api::files::add))
        .add(at("/files/versions/{id:[0-9a-f]{24}}/commit").post(Somewhere(Submitter), api::files::commit))
        .add(at("/files/{name:[^/]+}/content/{path:.*}").get(Somewhere(Viewer), api::files::content))
        .add(
            at("/files/{name:[^/]+}")
                .get_or_page(Somewhere(Viewer), api::files::get, ui::files::render_one)
                .post(Somewhere(Submitter), api::files::open)
                .delete(Somewhere(Submitter), api::files::remove),
        )
        .add(at("/ui/files/{name:[^/]+}/delete").post(Somewhere(Submitter), ui::files::remove));
}

fn contents(routes: &mut Routes<'_>) {
    use api::files::{content_state, finish_content, put_chunk};
    routes
        .add(at("/files/contents/{sha256:[0-9a-f]{64}}").get(Somewhere(Submitter), content_state))
        .add(at("/files/contents/{sha256:[0-9a-f]{64}}/finish").post(Somewhere(Submitter), finish_content))
        .add(at("/files/contents/{sha256:[0-9a-f]{64}}/{n:[0-9]+}").put(Somewhere(Submitter), put_chunk));
}

/// What is done with tasks. These come before the extensions, which have `POST /tasks/:queue` and
/// `POST /tasks/:queue/:collection`.
fn many_tasks(routes: &mut Routes<'_>) {
    routes
        .add(at("/tasks/{id:[0-9a-f]{24}}/archive").form(Task(Operator), api::task_actions::archive_task))
        .add(at("/tasks/batch").post(Somewhere(Submitter), api::tasks::create_batch).shared())
        .add(at("/tasks/archive").post(Somewhere(Operator), api::bulk::archive).shared())
        .add(at("/tasks/find").get(Somewhere(Viewer), api::find_tasks::handle).shared())
        .add(at("/tasks/query").get(Somewhere(Viewer), api::tasks::query).shared());
}

fn admission(routes: &mut Routes<'_>) {
    routes
        .add(
            at("/admission")
                .get_or_page(Somewhere(Viewer), api::admission::list, ui::admission::render)
                .form(Somewhere(Operator), api::admission::set)
                .delete(Somewhere(Operator), api::admission::lift),
        )
        .add(at("/tenants").get_or_page(Everywhere(Admin), api::tenants::list, api::tenants::render))
        .add(
            at("/tenants/{tenant:.+}")
                .get(Everywhere(Admin), api::tenants::get)
                .form(Everywhere(Admin), api::tenants::set)
                .delete(Everywhere(Admin), api::tenants::delete),
        )
        // What only forms of pages send.
        .add(at("/ui/admission/lift").post(Somewhere(Operator), api::admission::lift_by_form))
        .add(at("/ui/tenants").post(Everywhere(Admin), api::tenants::set_by_form))
        .add(at("/ui/tenants/{tenant:.+}/delete").post(Everywhere(Admin), api::tenants::delete_by_form));
}

fn definitions(routes: &mut Routes<'_>) {
    use api::definitions::{create, delete, delete_by_form, get, import, list, put, put_by_form, validate};
    use ui::plugins::{render_worker, render_workers};
    routes
        .add(
            at("/workers")
                .get_or_page(Everywhere(Viewer), list, render_workers)
                .form(Everywhere(Admin), create),
        )
        // These are for POST alone: what else is done there is about workers of these names.
        .add(at("/workers/validate").post(Everywhere(Viewer), validate).shared())
        .add(at("/workers/import").post(Everywhere(Admin), import::handle).shared())
        .add(
            at("/workers/{name:[^/]+}")
                .get_or_page(Everywhere(Viewer), get, render_worker)
                .put(Everywhere(Admin), put)
                .delete(Everywhere(Admin), delete),
        )
        .add(at("/ui/workers/{name:[^/]+}").post(Everywhere(Admin), put_by_form))
        .add(at("/ui/workers/{name:[^/]+}/delete").post(Everywhere(Admin), delete_by_form));
}

fn subscriptions(routes: &mut Routes<'_>) {
    use api::subscriptions::{delete, delete_by_form, get, list, render, set, set_by_form, test};
    routes
        .add(at("/subscriptions").get_or_page(Everywhere(Operator), list, render))
        .add(at("/subscriptions/{name:[^/]+}/test").form(Everywhere(Operator), test))
        .add(
            at("/subscriptions/{name:[^/]+}")
                .get(Everywhere(Operator), get)
                .form(Everywhere(Operator), set)
                .delete(Everywhere(Operator), delete),
        )
        .add(at("/ui/subscriptions").post(Everywhere(Operator), set_by_form))
        .add(at("/ui/subscriptions/{name:[^/]+}/delete").post(Everywhere(Operator), delete_by_form));
}

/// Adds the routes of those web extensions that are configured; they are deprecated. They come before all others, since they add methods to
/// the paths of others.
fn extensions(routes: &mut Routes<'_>, state: &State) {
    if state.extensions.contains(&Extension::Tasks) {
        tasks_extension(routes);
    }
    if state.extensions.contains(&Extension::V3) {
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
        .add(at("/scheduler-json").get(Everywhere(Viewer), api::queues::list))
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
