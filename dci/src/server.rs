//! Starts the server, and ends it when asked to.

#[cfg(test)]
mod described;
mod extensions;

use std::io;
use std::net::SocketAddr;
use std::num::NonZero;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use actix_web::dev::Server;
use actix_web::http::header::{VARY, X_CONTENT_TYPE_OPTIONS};
use actix_web::middleware::{Compress, DefaultHeaders, from_fn};
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{App, HttpRequest, HttpServer, Resource, Route, guard};
use anyhow::anyhow;
use disbatch_core::bulk;
use disbatch_core::config::{Config, Role};
use disbatch_core::lifecycle::Lifecycle;
use disbatch_core::store::Store;
use disbatch_core::telemetry;

use crate::api::{self, Answer};
use crate::args::Arguments;
use crate::error::HttpError;
use crate::state::State;
use crate::{accept, openapi, origin, static_files, ui};

const USAGE: u8 = 2;
const CONFIGURATION: u8 = 3;
const CANNOT_LISTEN: u8 = 4;

/// Requests that run when a signal comes have so many seconds to end.
const GRACE_SECONDS: u64 = 30;

/// So many threads answer requests, however many processors there are.
const WORKERS: usize = 4;

/// So many threads of each of them read files and compress.
const BLOCKING: usize = 4;

/// How long the end waits for counters to be written.
const LAST_MOMENT: Duration = Duration::from_secs(2);

/// How often an absent database is looked for at the start.
const RETRY: Duration = Duration::from_secs(5);

/// Serves until a signal comes. Returns the process's exit status.
pub async fn run(arguments: Arguments) -> ExitCode {
    let address = match arguments.checked_address() {
        Ok(address) => address,
        Err(error) => return complain(USAGE, &error),
    };
    let (config, store) = match configure(&arguments).await {
        Ok(configured) => configured,
        Err(error) => return complain(CONFIGURATION, &error),
    };
    let watch = tokio::spawn(await_database(store.clone()));
    // The one before this may have been killed.
    store.doubt_counters();
    let served = serve(State::new(&config, store.clone()), address).await;
    watch.abort();
    let _written = tokio::time::timeout(LAST_MOMENT, store.flush()).await;
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(CANNOT_LISTEN, &format!("cannot listen on {address}: {error}")),
    }
}

fn complain(status: u8, error: &dyn std::fmt::Display) -> ExitCode {
    telemetry::last_words("dci", error);
    ExitCode::from(status)
}

async fn configure(arguments: &Arguments) -> anyhow::Result<(Config, Store)> {
    // The messages name their cause already, so it is not to be printed again.
    let config = Config::load(&arguments.config).map_err(|error| anyhow!("{error}"))?;
    telemetry::init(&config.log)?;
    config.log_unknown_keys();
    let store = Store::connect(&config, Role::DisbatchWeb).await;
    let store =
        store.map_err(|error| anyhow!("cannot use mongohost of {}: {error}", config.path.display()))?;
    Ok((config, store))
}

/// Says in the log whether the database is there. Requests do not wait for it.
async fn await_database(store: Store) {
    let mut failed = false;
    while let Err(error) = store.ping().await {
        if !failed {
            tracing::warn!(%error, "no database yet, requests are answered with 503");
            failed = true;
        }
        tokio::time::sleep(RETRY).await;
    }
    tracing::info!(database = store.database_name(), "the database is there");
}

async fn serve(state: State, address: SocketAddr) -> io::Result<()> {
    let lifecycle = Lifecycle::listen()?;
    let (watch, feeds) = (Arc::clone(&state.watch), Arc::clone(&state.feeds));
    let bulk = state.bulk.clone();
    let server = listen(state, address)?;
    let followed = tokio::spawn(bulk::follow(bulk.clone()));
    let handle = server.handle();
    let stop = tokio::spawn(async move {
        lifecycle.draining().await;
        tracing::info!("stopping: answering what has been asked");
        watch.close();
        feeds.close();
        tokio::select! {
            () = handle.stop(true) => {}
            () = lifecycle.ending() => handle.stop(false).await,
        }
    });
    let served = server.await;
    bulk.end().await;
    followed.abort();
    stop.abort();
    tracing::info!("stopped");
    served
}

fn listen(state: State, address: SocketAddr) -> io::Result<Server> {
    let data = Data::new(state);
    let application = move || {
        App::new()
            .app_data(data.clone())
            .wrap(from_fn(origin::refuse_other_sites))
            .wrap(Compress::default())
            .wrap(DefaultHeaders::new().add((X_CONTENT_TYPE_OPTIONS, "nosniff")))
            .configure(|app| all_routes(app, &data))
    };
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    let server = HttpServer::new(application)
        // Each has memory of its own, and they mostly wait for the database.
        .workers(processors.min(WORKERS))
        .worker_max_blocking_threads(BLOCKING)
        .disable_signals()
        .shutdown_timeout(GRACE_SECONDS)
        // Else the end of an answer that takes several packets waits for a client that delays its acknowledgement.
        .tcp_nodelay(true)
        // Else answers that go on for long would do so for clients that have gone.
        .h1_allow_half_closed(false)
        .bind(address)?;
    for address in server.addrs() {
        tracing::info!(%address, "listening");
    }
    Ok(server.run())
}

/// All routes, in the order in which they are looked at.
fn all_routes(app: &mut ServiceConfig, state: &State) {
    actions(app);
    extensions::routes(app, state);
    routes(app);
}

/// What is done with one task. These come before the extensions, which have `POST /tasks/:queue/:collection`.
fn actions(app: &mut ServiceConfig) {
    app.service(
        resource("/tasks/{id:[0-9a-f]{24}}/cancel", "POST").route(web::post().to(api::cancel_task::handle)),
    )
    .service(
        resource("/tasks/{id:[0-9a-f]{24}}/retry", "POST").route(web::post().to(api::retry_task::handle)),
    );
}

/// All other routes that are always there.
fn routes(app: &mut ServiceConfig) {
    const GET: &str = "GET, HEAD";
    const GET_POST: &str = "GET, HEAD, POST";
    app.configure(pages)
        .service(resource("/openapi.json", GET).route(get().to(openapi::handle)))
        .service(resource("/plugins", GET).route(get().to(api::list_plugins::handle)).wrap(by_accept()))
        .service(resource("/nodes", GET).route(get().to(api::list_nodes::handle)).wrap(by_accept()))
        .service(
            resource("/nodes/{node:.+}", GET_POST)
                .route(get().to(api::get_node::handle))
                .route(web::post().to(api::update_node::handle))
                .wrap(by_accept()),
        )
        .service(
            resource("/queues", GET_POST)
                .route(get().to(api::list_queues::handle))
                .route(web::post().to(api::create_queue::handle))
                .wrap(by_accept()),
        )
        .service(
            resource("/queues/{queue:.+}", "GET, HEAD, POST, DELETE")
                .route(get().to(api::get_queue::handle))
                .route(web::post().to(api::update_queue::handle))
                .route(web::delete().to(api::delete_queue::handle))
                .wrap(by_accept()),
        )
        .service(
            resource("/tasks", GET_POST)
                .route(get().to(api::list_tasks::handle))
                .route(web::post().to(api::create_tasks::handle))
                .wrap(by_accept()),
        )
        .service(resource("/info", GET).route(get().to(api::info::handle)))
        .service(resource("/monitoring", GET).route(get().to(api::monitoring::handle)))
        .service(
            resource("/balance", GET_POST)
                .route(get().to(api::get_balance::handle))
                .route(web::post().to(api::update_balance::handle))
                .wrap(by_accept()),
        )
        .service(
            resource("/tasks/{id:[0-9a-f]{24}}", GET)
                .route(get().to(api::get_task::handle))
                .wrap(by_accept()),
        )
        .configure(running)
        .service(
            resource("/tasks/{id:[0-9a-f]{24}}/attempts", GET).route(get().to(api::list_attempts::handle)),
        )
        .service(resource("/tasks/{id:[0-9a-f]{24}}/explain", GET).route(get().to(api::explain_task::handle)))
        .configure(bulk)
        .service(resource("/audit", GET).route(get().to(api::list_audit::handle)).wrap(by_accept()))
        .service(resource("/counters", GET).route(get().to(api::list_counters::handle)))
        .service(resource("/counters/audit", "POST").route(web::post().to(api::audit_counters::handle)))
        .default_service(web::to(otherwise));
}

/// Routes that only pages need.
fn pages(app: &mut ServiceConfig) {
    const GET: &str = "GET, HEAD";
    // What is no asset may be a file of the same folder.
    let is_asset = guard::fn_guard(|context| ui::assets::is_at(context.head().uri.path()));
    app.service(resource("/", GET).route(get().to(ui::overview::handle)))
        .service(resource("/assets/{asset}", GET).guard(is_asset).route(get().to(ui::assets::handle)))
        .service(resource("/docs", GET).route(get().to(ui::docs::handle)))
        .service(resource("/about", GET).route(get().to(ui::about::handle)))
        .configure(pages_of_things)
        .service(resource("/ui/overview", GET).route(get().to(ui::overview::live)))
        .service(resource("/ui/tasks", GET).route(get().to(ui::tasks::live)))
        .service(resource("/ui/tasks/{id:[0-9a-f]{24}}", GET).route(get().to(ui::task::live)))
        .service(resource("/ui/bulk", GET).route(get().to(ui::bulk::live)))
        .service(resource("/ui/bulk/{id:[0-9a-f]{24}}", GET).route(get().to(ui::bulk::job::live)))
        .service(resource("/ui/throughput", GET).route(get().to(ui::overview::throughput)));
}

/// Those that the pages of queues, nodes and QueueBalance need.
fn pages_of_things(app: &mut ServiceConfig) {
    const GET: &str = "GET, HEAD";
    const POST: &str = "POST";
    app.service(resource("/ui/nodes", GET).route(get().to(ui::nodes::live)))
        .service(resource("/ui/nodes/{id:[0-9a-f]{24}}", GET).route(get().to(ui::node::live)))
        .service(resource("/ui/nodes/{id:[0-9a-f]{24}}/chart", GET).route(get().to(ui::node::chart)))
        .service(resource("/ui/queues/{id:[0-9a-f]{24}}", GET).route(get().to(ui::queue::live)))
        .service(resource("/ui/queues/{id:[0-9a-f]{24}}/chart", GET).route(get().to(ui::queue::chart)))
        .service(
            resource("/ui/queues/{id:[0-9a-f]{24}}/tasks", POST)
                .route(web::post().to(ui::queue::submit::handle)),
        )
        .service(
            resource("/ui/queues/{id:[0-9a-f]{24}}/delete", POST)
                .route(web::post().to(ui::queue::remove::handle)),
        )
        .service(resource("/ui/balance", POST).route(web::post().to(ui::balance::save::handle)))
        .service(resource("/ui/balance/check", POST).route(web::post().to(ui::balance::check::handle)))
        .service(resource("/ui/balance/disable", POST).route(web::post().to(ui::balance::disable::handle)));
}

/// Routes that go on while the task does.
fn running(app: &mut ServiceConfig) {
    const GET: &str = "GET, HEAD";
    app.service(resource("/tasks/{id:[0-9a-f]{24}}/stdout", GET).route(get().to(api::get_stdout::handle)))
        .service(resource("/tasks/{id:[0-9a-f]{24}}/stderr", GET).route(get().to(api::get_stderr::handle)))
        .service(resource("/tasks/{id:[0-9a-f]{24}}/events", GET).route(get().to(api::get_events::handle)))
        .service(resource("/tasks/{id:[0-9a-f]{24}}/wait", GET).route(get().to(api::wait_for_task::handle)));
}

/// Routes for many tasks at once.
fn bulk(app: &mut ServiceConfig) {
    const GET: &str = "GET, HEAD";
    const GET_POST: &str = "GET, HEAD, POST";
    app.service(
        resource("/bulk", GET_POST)
            .route(get().to(api::list_bulk::handle))
            .route(web::post().to(api::create_bulk::handle))
            .wrap(by_accept()),
    )
    .service(
        resource("/bulk/{id:[0-9a-f]{24}}", GET).route(get().to(api::get_bulk::handle)).wrap(by_accept()),
    )
    .service(
        resource("/bulk/{id:[0-9a-f]{24}}/cancel", "POST").route(web::post().to(api::cancel_bulk::handle)),
    );
}

/// A path whose methods are `allow`.
fn resource(path: &str, allow: &'static str) -> Resource {
    let refuse = move |request: HttpRequest| async move {
        Answer::Err(HttpError::method_not_allowed(request.method().as_str(), allow))
    };
    web::resource(path).default_service(web::to(refuse))
}

/// Tells caches that the answer depends on `Accept`.
fn by_accept() -> DefaultHeaders {
    DefaultHeaders::new().add((VARY, "Accept"))
}

/// A route for GET and for HEAD, whose answer is sent without its body.
fn get() -> Route {
    web::route().guard(guard::Any(guard::Get()).or(guard::Head()))
}

/// What no route is for: a file, or nothing.
async fn otherwise(request: HttpRequest) -> Answer {
    if let Some(state) = request.app_data::<Data<State>>()
        && let Some(root) = &state.web_root
        && let Some(file) = static_files::find(root, &request).await
    {
        return Ok(file);
    }
    let error = HttpError::not_found(format!("nothing is at {}", request.path()));
    if accept::wants_html(&request) { Ok(ui::page(Err(error))) } else { Err(error) }
}
