//! Starts the server, and ends it when asked to.
//!
//! A request passes these before a handler sees it, in this order:
//!
//! | | |
//! | --- | --- |
//! | [`connections`] | notes for the connection when a request is answered |
//! | [`browsers::protect`] | completes the headers of every answer |
//! | [`measure`] | counts every answer |
//! | [`allowance`] | counts the memory that the request takes |
//! | [`request_body`] | breaks off bodies that do not come in time |
//! | [`browsers::refuse_other_names`] | refuses names that are not this server's |
//! | [`browsers::refuse_other_sites`] | refuses changes by pages of other sites |
//! | [`allowance::answers`] | counts the memory of long answers until they have been read |
//! | [`crate::access`] | finds out who asks, and whether they may |

mod listen;
mod route;
mod routes;

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::process::ExitCode;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use actix_web::dev::Server;
use actix_web::middleware::{Compress, from_fn};
use actix_web::web::{Data, ServiceConfig};
use actix_web::{App, HttpRequest};
use anyhow::anyhow;
use clap::Parser;
use disbatch_core::config::{Config, Role};
use disbatch_core::lifecycle::Lifecycle;
use disbatch_core::metrics::{Component, Metrics};
use disbatch_core::secrets::Keys;
use disbatch_core::store::Store;
use disbatch_core::{admission, bulk, lock, process, service_manager, telemetry};
use disbatch_traces::Tracer;
use tokio::time::{Instant, sleep};

use crate::api::Answer;
use crate::args::Arguments;
use crate::browsers::Hosts;
use crate::error::HttpError;
use crate::state::State;
use crate::tls::Certificate;
use crate::{accept, allowance, browsers, connections, measure, request_body, static_files, ui};
use route::{Declared, Routes};

const USAGE: u8 = 2;
const CONFIGURATION: u8 = 3;
const CANNOT_LISTEN: u8 = 4;

/// How long the end waits for counters, and before that for entries of the audit, to be written.
const LAST_MOMENT: Duration = Duration::from_secs(2);

/// How often an absent database is looked for at the start.
const RETRY: Duration = Duration::from_secs(5);

/// An exit status, and why it is that one.
struct Failure(u8, String);

fn misused(error: impl Display) -> Failure {
    Failure(USAGE, error.to_string())
}

fn unusable(error: impl Display) -> Failure {
    Failure(CONFIGURATION, error.to_string())
}

/// Reads the command line and serves until a signal comes. Returns the process's exit status.
///
/// Requests have threads of their own; those of this runtime are for what goes on behind them.
#[tokio::main(worker_threads = 2)]
pub async fn main() -> ExitCode {
    let Err(Failure(status, why)) = Box::pin(run(Arguments::parse())).await else { return ExitCode::SUCCESS };
    telemetry::last_words("dci", &why);
    ExitCode::from(status)
}

async fn run(arguments: Arguments) -> Result<(), Failure> {
    if arguments.man_page {
        return Arguments::print_man_page().map_err(misused);
    }
    if arguments.check_config {
        return check(&arguments).await.map_err(unusable);
    }
    let address = arguments.listen;
    // Before there is anything to be kept.
    let dumps = process::forbid_core_dumps();
    let lifecycle = Lifecycle::listen().map_err(unusable)?;
    let Some((config, store)) = configure(&arguments, &lifecycle).await.map_err(unusable)? else {
        return Ok(());
    };
    if let Err(error) = dumps {
        tracing::warn!(%error, "core dumps of this process cannot be forbidden, and would have secrets in them");
    }
    let certificate = arguments.tls(&config).map(Certificate::open).transpose().map_err(unusable)?;
    let keys = Keys::load(&config).map_err(unusable)?;
    let door = tokio::select! {
        () = lifecycle.draining() => return Ok(()),
        door = arguments.door(&config, &store) => door.map_err(misused)?,
    };
    ui::manual::find(&config);
    let watch = tokio::spawn(await_database(store.clone()));
    // The one before this may have been killed.
    store.doubt_counters();
    let traces = Tracer::of_environment("disbatch-dci", env!("CARGO_PKG_VERSION"), None, store.metrics());
    let (tracer, sending) = traces.map_err(unusable)?.unzip();
    let mut state = State::new(&config, store.clone(), door);
    (state.keys, state.tracer) = (Arc::new(keys), tracer);
    let served = serve(state, address, certificate, lifecycle).await;
    watch.abort();
    let _written = tokio::time::timeout(LAST_MOMENT, store.flush()).await;
    if let Some(sending) = sending {
        sending.finish(LAST_MOMENT).await;
    }
    served.map_err(|error| Failure(CANNOT_LISTEN, format!("cannot listen on {address}: {error}")))
}

/// `None`: a signal came first.
async fn configure(arguments: &Arguments, lifecycle: &Lifecycle) -> anyhow::Result<Option<(Config, Store)>> {
    // The messages name their cause already, so it is not to be printed again.
    let config = Config::load(&arguments.config).map_err(|error| anyhow!("{error}"))?;
    telemetry::init(&config.log)?;
    config.log_concerns();
    let store = tokio::select! {
        () = lifecycle.draining() => return Ok(None),
        store = connect(&config) => store?,
    };
    let metrics = Metrics::of(Component::Dci, env!("CARGO_PKG_VERSION"));
    Ok(Some((config, store.counting_in(Arc::new(metrics)))))
}

/// Resolves the database's address, waiting for a name server that is away.
async fn connect(config: &Config) -> anyhow::Result<Store> {
    let mut failed = false;
    loop {
        match Store::connect(config, Role::DisbatchWeb).await {
            Ok(store) => return Ok(store),
            Err(error) if error.is_transient() => {
                if !failed {
                    tracing::warn!(%error, "cannot find the database, not listening before that");
                    service_manager::waiting("waits for the address of the database");
                    failed = true;
                }
                sleep(RETRY).await;
            }
            Err(error) => return Err(anyhow!("cannot use mongohost of {}: {error}", config.path.display())),
        }
    }
}

/// Checks what can be checked without the database. Changes nothing, and opens no log.
async fn check(arguments: &Arguments) -> anyhow::Result<()> {
    let config = Config::load(&arguments.config).map_err(|error| anyhow!("{error}"))?;
    let path = config.path.display();
    for concern in config.concerns() {
        telemetry::last_words("dci", &concern);
    }
    arguments.tls(&config).map(Certificate::open).transpose()?;
    let keys = Keys::load(&config)?;
    drop(keys);
    match Store::connect(&config, Role::DisbatchWeb).await {
        Ok(store) => {
            Tracer::of_environment("disbatch-dci", env!("CARGO_PKG_VERSION"), None, store.metrics())?;
        }
        // A name server that is away.
        Err(error) if error.is_transient() => {
            telemetry::last_words("dci", &format!("cannot find the database: {error}"));
        }
        Err(error) => return Err(anyhow!("cannot use mongohost of {path}: {error}")),
    }
    telemetry::last_words("dci", &format!("{path} can be used"));
    Ok(())
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

async fn serve(
    state: State,
    address: SocketAddr,
    certificate: Option<Certificate>,
    lifecycle: Lifecycle,
) -> io::Result<()> {
    let (watch, feeds) = (Arc::clone(&state.watch), Arc::clone(&state.feeds));
    let (bulk, access) = (state.bulk.clone(), Arc::clone(&state.access));
    let store = state.store.clone();
    let workers = Workers::default();
    let server = listening(state, address, certificate, &workers)?;
    service_manager::tell_end(lifecycle.clone());
    service_manager::ready();
    let watched = tokio::spawn(service_manager::watch(async move || workers.go_on()));
    let followed = tokio::spawn(bulk::follow(bulk.clone()));
    let released = tokio::spawn(admission::follow(store));
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
    released.abort();
    stop.abort();
    watched.abort();
    let _written = tokio::time::timeout(LAST_MOMENT, access.passwords.written()).await;
    tracing::info!("stopped");
    served
}

fn listening(
    state: State,
    address: SocketAddr,
    certificate: Option<Certificate>,
    workers: &Workers,
) -> io::Result<Server> {
    let hosts = Data::new(Hosts::new(state.hosts.as_ref(), address));
    let data = Data::new(state);
    let workers = workers.clone();
    let application = move || {
        workers.enter();
        App::new()
            .app_data(data.clone())
            .app_data(hosts.clone())
            // First, so that it sees answers as they are made.
            .wrap(from_fn(allowance::answers::bound))
            .wrap(from_fn(browsers::refuse_other_sites))
            .wrap(Compress::default())
            .wrap(from_fn(browsers::refuse_other_names))
            .wrap(from_fn(request_body::in_time))
            .wrap(from_fn(allowance::of_stranger))
            .wrap(from_fn(measure::requests))
            // It sees every answer.
            .wrap(from_fn(browsers::protect))
            // Last, so that it sees the whole of it.
            .wrap(from_fn(connections::note))
            .configure(|app| drop(all_routes(app, &data)))
    };
    let tls = certificate.map(Certificate::serve).transpose()?;
    listen::listen(application, address, tls)
}

fn all_routes(app: &mut ServiceConfig, state: &State) -> Vec<Declared> {
    let mut routes = Routes::of(app);
    routes::add(&mut routes, state);
    routes.declared()
}

/// What no route is for: a file of the operator, one of the documentation, or nothing.
async fn otherwise(request: HttpRequest) -> Answer {
    if let Some(state) = request.app_data::<Data<State>>()
        && let Some(root) = &state.web_root
        && let Some(file) = static_files::find(root, &request).await
    {
        return Ok(file);
    }
    let error = if ui::manual::is_at(request.path()) {
        match ui::manual::handle(&request).await {
            Ok(file) => return Ok(file),
            Err(error) => error,
        }
    } else {
        HttpError::not_found(format!("nothing is at {}", request.path()))
    };
    if accept::wants_html(&request) { Ok(ui::page(Err(error))) } else { Err(error) }
}

/// How often each thread shows that it goes on.
const PULSE_EVERY: Duration = Duration::from_secs(1);

/// A thread that has not done so for so long is stuck.
const STUCK: Duration = Duration::from_secs(60);

type Pulse = Mutex<Instant>;

/// The threads that answer requests: whether they go on, for the system's manager of services.
#[derive(Debug, Clone, Default)]
struct Workers(Arc<Mutex<Vec<Weak<Pulse>>>>);

impl Workers {
    /// Called on a thread of its own by each of them. Nothing unless somebody wants to know.
    fn enter(&self) {
        if !service_manager::is_watching() {
            return;
        }
        let pulse = Arc::new(Pulse::new(Instant::now()));
        lock(&self.0).push(Arc::downgrade(&pulse));
        // It goes with its thread.
        actix_web::rt::spawn(async move {
            loop {
                *lock(&pulse) = Instant::now();
                sleep(PULSE_EVERY).await;
            }
        });
    }

    /// Whether all that are there go on.
    fn go_on(&self) -> bool {
        let mut all = lock(&self.0);
        all.retain(|pulse| pulse.strong_count() > 0);
        all.iter().filter_map(Weak::upgrade).all(|pulse| lock(&pulse).elapsed() < STUCK)
    }
}

#[cfg(test)]
mod tests;
