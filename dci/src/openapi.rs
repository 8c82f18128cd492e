//! `GET /openapi.json`: the description of all routes, put together from the annotations on their handlers.

#[expect(dead_code, reason = "types that only describe are never made")]
mod answers;
#[expect(dead_code, reason = "types that only describe are never made")]
mod conventions;
#[expect(dead_code, reason = "types that only describe are never made")]
mod requests;
#[expect(dead_code, reason = "types that only describe are never made")]
mod resources;
#[expect(dead_code, reason = "types that only describe are never made")]
mod schema;
mod v3_0;

use std::sync::OnceLock;

use actix_web::HttpResponse;
use disbatch_wire::search::{ChosenTask, Waited};
use serde_json::{Map, Value};
use utoipa::OpenApi;

pub use crate::legacy::{CreatedQueue, DeleteResult, InsertManyResult, UpdateResult};
use crate::{api, json, ui};
pub use answers::{Attempt, OfAnybody, OfCallback, OfFixed, OfRead, OfSearch};
pub use conventions::{EventStream, JSON_OR_FORM, JSON_OR_PAGE, Output, OutputRange};
pub use requests::{
    Canary, NewQueue, NewTasks, NodeChange, QueueChange, Rate, Record, Retention, ShadowRule,
};
pub use resources::{
    BalanceChange, CallbackStatus, CreateTasks, CreateTasksFromQuery, DeleteQueue, FromCollection, NewWorker,
    QueueAttribute, Search, SearchTasks, StartQueue, TaskParams, WorkerDefinition, WorkersImport,
};
pub use schema::{ChosenTasks, Count, ErrorBody, OneTask, Task, TaskSearch, Tasks, WaitAnswer};

/// Parameters may come as a form, as JSON, or in the query string, with GET too.
const ABOUT: &str = "\
The REST API of Disbatch, the same as that of Perl Disbatch 4.

Parameters come from a body that is a form, else from a body that is JSON (with GET too), else from the query \
string. Keys that start with a dot are options. Every address that has GET has HEAD as well. Times are UTC. \
Errors are `{\"error\": ..}` with a status of 400 or above.

Where there are users, each request needs the name and password of one (HTTP Basic), or a token \
(`Authorization: Bearer ..`), which `POST /account/tokens` makes.";

#[derive(OpenApi)]
#[openapi(
    info(title = "Disbatch", description = ABOUT),
    paths(
        api::service::plugins,
        api::nodes::list,
        api::nodes::get,
        api::nodes::set,
        api::nodes::remove,
        ui::node::remove,
        api::queues::list,
        api::queues::create,
        api::queues::get,
        api::update_queue::handle,
        api::queues::remove,
        api::queues::list_groups,
        api::queues::list_recordings,
        api::shadows::handle,
        api::service::alive,
        api::service::ready,
        api::service::diagnose,
        api::explain::queue,
        api::tasks::list,
        api::create_tasks::handle,
        api::tasks::create_batch,
        api::find_tasks::handle,
        api::tasks::query,
        api::task_actions::archive_task,
        api::bulk::archive,
        api::task::get,
        api::task::wait,
        api::events::of_task,
        api::events::follow,
        api::task::bundle,
        api::task::stdout,
        api::task::stderr,
        api::task_actions::cancel_task,
        api::answers::answer,
        api::answers::link,
        ui::answers::show,
        ui::answers::send,
        api::task_actions::rerun_task,
        api::task_actions::retry_task,
        api::task_actions::set_priority,
        api::task::attempts,
        api::explain::task,
        api::explain::graph,
        api::explain::locks,
        api::explain::lock,
        api::arrays::list,
        api::arrays::get,
        api::arrays::cancel,
        api::arrays::rerun,
        api::arrays::retry,
        api::bulk::create,
        api::bulk::list,
        api::bulk::get,
        api::bulk::cancel,
        api::schedules::list,
        api::schedules::create,
        api::schedules::get,
        api::schedules::update,
        api::schedules::delete,
        api::schedules::pause,
        api::schedules::resume,
        api::schedules::times::run,
        api::schedules::times::runs,
        api::schedules::times::backfill,
        api::schedules::times::preview,
        api::schedules::times::preview_new,
        ui::schedules::form::new,
        ui::schedules::form::edit,
        api::subscriptions::list,
        api::subscriptions::get,
        api::subscriptions::set,
        api::subscriptions::delete,
        api::subscriptions::test,
        api::calendars::list,
        api::calendars::create,
        api::calendars::get,
        api::calendars::set,
        api::calendars::delete,
        api::callbacks::log,
        api::callbacks::end,
        api::callbacks::store,
        api::admission::list,
        api::admission::set,
        api::admission::lift,
        api::tenants::list,
        api::tenants::get,
        api::tenants::set,
        api::tenants::set_by_form,
        api::tenants::delete,
        api::admission::lift_by_form,
        api::tenants::delete_by_form,
        api::files::list,
        api::files::open,
        api::files::get,
        api::files::remove,
        api::files::content,
        api::files::add,
        api::files::commit,
        api::files::content_state,
        api::files::put_chunk,
        api::files::finish_content,
        api::definitions::list,
        api::definitions::create,
        api::definitions::get,
        api::definitions::put,
        api::definitions::delete,
        api::definitions::validate,
        api::definitions::import::handle,
        api::events::audit,
        api::events::moment,
        api::balance::get,
        api::balance::update,
        api::events::counters,
        api::events::audit_counters,
        api::service::info,
        api::service::metrics,
        api::service::monitoring,
        handle,
        handle_older,
        ui::login::handle,
        ui::login::log_in,
        ui::login::log_out,
        ui::account::handle,
        ui::account::change_password,
        ui::account::create_token,
        ui::account::revoke_token,
        ui::account::end_session,
        ui::users::handle,
        ui::docs::handle,
        ui::about::handle,
        ui::search::handle,
        ui::zone::handle,
        ui::zone::choose,
        ui::nodes::live,
        ui::locks::live,
        ui::locks::live_one,
        ui::node::live,
        ui::node::chart,
        ui::queue::live,
        ui::queue::chart,
        ui::queue::groups::live,
        ui::queue::submit::handle,
        ui::queue::remove,
        ui::balance::check,
        api::balance::save,
        api::balance::disable,
        ui::overview::render,
        ui::admission::live,
        ui::overview::live,
        ui::overview::throughput,
        ui::tasks::live,
        ui::task::live,
        ui::task::lines::handle,
        ui::bulk::live,
        ui::bulk::job::live,
        ui::arrays::live,
        ui::schedules::live,
        ui::schedules::one::live,
        api::schedules::delete_by_form,
        api::subscriptions::set_by_form,
        api::subscriptions::delete_by_form,
        api::calendars::delete_by_form,
        ui::files::remove,
        api::definitions::put_by_form,
        api::definitions::delete_by_form,
        ui::assets::handle,
        api::web_tasks::search,
        api::web_tasks::create,
        api::web_tasks::create_from_collection,
        resources::scheduler,
        api::v3::queue_prototypes,
        api::v3::set_queue_attr,
        api::v3::start_queue,
        api::v3::delete_queue,
        api::v3::create_tasks,
        api::v3::create_tasks_from_query,
        api::v3::search_tasks,
    ),
    // Those that other schemas refer to by name alone.
    components(schemas(ChosenTask, Count, ErrorBody, Task, Waited)),
    tags(
        (name = "queues", description = "What runs where, and how much of it at once."),
        (name = "tasks", description = "Submitting tasks and looking at them."),
        (name = "bulk", description = "One action on many tasks."),
        (name = "arrays", description = "Many tasks that were submitted as one."),
        (name = "schedules", description = "Tasks that are made again and again, by the clock."),
        (name = "notifications", description = "Who is told what happens."),
        (name = "locks", description = "What tasks hold while they run."),
        (name = "callbacks", description = "What web services say about the tasks that they work on."),
        (name = "admission", description = "Whose tasks are taken, and how many."),
        (name = "files", description = "Sets of files that tasks take and leave."),
        (name = "workers", description = "Plugins that the database defines."),
        (name = "nodes", description = "The machines."),
        (name = "balance", description = "How QueueBalance divides the work among queues."),
        (name = "accounts", description = "Who somebody is, and what they may do."),
        (name = "service", description = "This server itself, and its pages."),
        (
            name = "Disbatch::Web::Tasks",
            description = "Deprecated. Only there if `web_extensions` of the configuration has this name.",
        ),
        (
            name = "Disbatch::Web::V3",
            description = "Deprecated, from Disbatch 3. Only there if `web_extensions` of the configuration has \
                this name.",
        ),
    ),
)]
struct Described;

/// The description. Keys are in order, so that the same handlers always make the same text.
pub fn description() -> &'static Value {
    static DESCRIPTION: OnceLock<Value> = OnceLock::new();
    DESCRIPTION.get_or_init(|| {
        let mut description = serde_json::to_value(Described::openapi()).unwrap_or_default();
        if let Some(paths) = description.get_mut("paths").and_then(Value::as_object_mut) {
            allow_put(paths);
            for (path, operations) in paths {
                for (method, operation) in operations.as_object_mut().into_iter().flatten() {
                    conventions::complete(path, method, operation);
                    retell(operation);
                }
            }
        }
        resources::tell_security(&mut description);
        description
    })
}

/// Has `PUT` for web services wherever they have `POST`.
fn allow_put(paths: &mut Map<String, Value>) {
    for (_, operations) in paths.iter_mut().filter(|(path, _)| path.starts_with("/callbacks/")) {
        let mut put = operations["post"].clone();
        let id = put["operationId"].as_str().unwrap_or_default();
        let (first, rest) = id.split_at_checked(1).unwrap_or_default();
        put["operationId"] = format!("put{}{rest}", first.to_uppercase()).into();
        put["summary"] = "The same as `POST`, for services that can do nothing else.".into();
        put["description"] = "".into();
        operations["put"] = put;
    }
}

/// The handler's documentation becomes the description, up to its errors, which the responses tell better. The
/// summary is the operation's id in words.
fn retell(operation: &mut Value) {
    let text = |key: &str| operation.get(key).and_then(Value::as_str).unwrap_or_default();
    let whole = format!("{}\n\n{}", text("summary"), text("description"));
    let description = whole.split("# Errors").next().unwrap_or_default().trim().to_owned();
    let summary = words(text("operationId"));
    operation["description"] = description.into();
    operation["summary"] = summary.into();
}

/// `listTasks` becomes `List tasks`.
fn words(id: &str) -> String {
    let mut words = String::new();
    for (index, c) in id.chars().enumerate() {
        match c {
            c if index == 0 => words.push(c.to_ascii_uppercase()),
            c if c.is_ascii_uppercase() => words.extend([' ', c.to_ascii_lowercase()]),
            c => words.push(c),
        }
    }
    words
}

/// This description.
#[utoipa::path(
    get, path = "/openapi.json", tag = "service", operation_id = "showDescription",
    responses((status = 200, description = "OpenAPI 3.1.", body = Value), OfFixed),
)]
pub async fn handle() -> HttpResponse {
    json::ok_pretty(description())
}

/// This description for programs that cannot read OpenAPI 3.1.
#[utoipa::path(
    get, path = "/openapi-3.0.json", tag = "service", operation_id = "showOlderDescription",
    responses((status = 200, description = "OpenAPI 3.0.", body = Value), OfFixed),
)]
pub async fn handle_older() -> HttpResponse {
    static OLDER: OnceLock<Value> = OnceLock::new();
    json::ok_pretty(OLDER.get_or_init(|| v3_0::of(description())))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// To renew it after a change of the API that is meant:
    /// `DISBATCH_RENEW=1 cargo nextest run -p disbatch-dci openapi`, then look at the difference.
    const SNAPSHOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/openapi.json");

    #[test]
    fn the_description_is_the_reviewed_one() {
        let text = format!("{:#}\n", description());
        if std::env::var_os("DISBATCH_RENEW").is_some() {
            std::fs::write(SNAPSHOT, &text).unwrap();
        }
        let reviewed = std::fs::read_to_string(SNAPSHOT).unwrap();
        assert!(
            text == reviewed,
            "the API differs from {SNAPSHOT}; if that is meant, run this test with DISBATCH_RENEW=1 and \
             review the difference"
        );
    }

    #[test]
    fn references_lead_somewhere() {
        fn visit(value: &Value, whole: &Value) {
            match value {
                Value::Object(map) => {
                    if let Some(Value::String(reference)) = map.get("$ref") {
                        let target = whole.pointer(reference.trim_start_matches('#'));
                        assert!(target.is_some(), "{reference} leads nowhere");
                    }
                    map.values().for_each(|value| visit(value, whole));
                }
                Value::Array(items) => items.iter().for_each(|value| visit(value, whole)),
                _ => {} // Nothing that refers.
            }
        }
        let description = description();
        assert_eq!(description["openapi"], "3.1.0");
        visit(description, description);
    }
}
