//! The routes of the web extensions, which are deprecated.

use actix_web::web::{self, ServiceConfig};
use actix_web::{Resource, Route, guard};

use super::{get, resource};
use crate::api;
use crate::state::{Extension, State};

/// The routes of those extensions that are configured. They come before all others, since they add methods to
/// the paths of others.
pub fn routes(app: &mut ServiceConfig, state: &State) {
    if state.has(Extension::Tasks) {
        tasks(app);
    }
    if state.has(Extension::V3) {
        v3(app);
    }
}

fn tasks(app: &mut ServiceConfig) {
    use api::web_tasks::{create, create_from_collection, search};
    app.service(shared("/tasks/search", web::to(search::handle)))
        .service(shared("/tasks/{queue:[^/]+}", web::to(create::handle)))
        .service(shared("/tasks/{queue:[^/]+}/{collection:.+}", web::to(create_from_collection::handle)));
}

fn v3(app: &mut ServiceConfig) {
    use api::v3;
    app.service(only_get("/scheduler-json", get().to(api::list_queues::programs)))
        .service(only_get("/queue-prototypes-json", get().to(v3::queue_prototypes::handle)))
        .service(only_post("/set-queue-attr-json", web::post().to(v3::set_queue_attr::handle)))
        .service(only_post("/start-queue-json", web::post().to(v3::start_queue::handle)))
        .service(only_post("/delete-queue-json", web::post().to(v3::delete_queue::handle)))
        .service(only_post("/queue-create-tasks-json", web::post().to(v3::create_tasks::handle)))
        .service(only_post(
            "/queue-create-tasks-from-query-json",
            web::post().to(v3::create_tasks_from_query::handle),
        ))
        .service(only_post("/search-tasks-json", web::post().to(v3::search_tasks::handle)));
}

/// A path for POST, which other routes have for other methods.
fn shared(path: &str, route: Route) -> Resource {
    web::resource(path).guard(guard::Post()).route(route)
}

fn only_get(path: &str, route: Route) -> Resource {
    resource(path, "GET, HEAD").route(route)
}

fn only_post(path: &str, route: Route) -> Resource {
    resource(path, "POST").route(route)
}
