//! `den --check-config`: what can be checked without the database. Changes nothing, and opens no log.

use std::sync::Arc;

use disbatch_core::config::{Config, Role};
use disbatch_core::identity::Identity;
use disbatch_core::metrics::{Component, Metrics};
use disbatch_core::model::NodeName;
use disbatch_core::secrets::Keys;
use disbatch_core::store::Store;
use disbatch_core::telemetry::last_words;
use disbatch_traces::Tracer;
use nix::unistd::{AccessFlags, access};

use crate::args::Args;
use crate::launch;
use crate::run::Failure;

/// Says what is not as it should be; what keeps a DEN from starting is the error.
pub async fn check(args: &Args) -> Result<(), Failure> {
    let config = Config::load(&args.config)?;
    for concern in config.concerns() {
        last_words("den", &concern);
    }
    Identity::of(&config)?;
    drop(Keys::load(&config)?);
    if args.node.is_none() {
        NodeName::of_this_host()?;
    }
    let runner = launch::runner_of(&config)?;
    access(&runner, AccessFlags::X_OK).map_err(|why| Failure::Runner(runner, why.into()))?;
    match Store::connect(&config, Role::Disbatchd).await {
        Ok(_) => {}
        // A name server that is away.
        Err(error) if error.is_transient() => {
            last_words("den", &format!("cannot find the database: {error}"));
        }
        Err(error) => return Err(Failure::Address(error)),
    }
    let metrics = Arc::new(Metrics::of(Component::Den, env!("CARGO_PKG_VERSION")));
    Tracer::of_environment("disbatch-den", env!("CARGO_PKG_VERSION"), None, &metrics)?;
    last_words("den", &format!("{} can be used", config.path.display()));
    Ok(())
}
