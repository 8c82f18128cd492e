//! What a runner needs once, however many tasks it runs.

use std::path::Path;
use std::sync::Arc;

use disbatch_core::config::{Config, Gfs, Level, Log};
use disbatch_core::lifecycle::Lifecycle;
use disbatch_core::model::NodeName;
use disbatch_core::telemetry;

use crate::args::Args;
use crate::custody::Nudges;
use crate::failure::Failure;
use crate::folder;

/// What a runner has before its first task.
#[derive(Debug)]
pub struct Setup {
    pub config: Arc<Config>,
    pub node: NodeName,
    /// Where output goes.
    pub gfs: Gfs,
    pub lifecycle: Lifecycle,
    pub nudges: Nudges,
}

impl Setup {
    /// Reads the configuration, and starts to log and to listen for signals.
    pub fn new(args: &Args) -> Result<Self, Failure> {
        let mut config = Config::load(&args.config)?;
        let node = match &args.node {
            Some(name) => NodeName::new(name),
            None => NodeName::of_this_host().map_err(Failure::Setup)?,
        };
        if config.temp_dir.is_some() {
            folder::make_in(config.temp_folder());
            folder::provide(folder::parent())?;
        }
        telemetry::init(&log_of(&config, args.quiet)).map_err(Failure::Setup)?;
        if args.link.is_none() {
            // A DEN has said it for all of its runners.
            config.log_exposure();
        }
        let lifecycle = Lifecycle::listen().map_err(Failure::Setup)?;
        let nudges = Nudges::listen().map_err(Failure::Setup)?;
        lead_own_session();
        // A connection may be made later, with another working directory.
        if let Some(file) = config.attributes.ssl.as_mut().and_then(|ssl| ssl.ca_file.as_mut()) {
            *file = std::path::absolute(Path::new(file)).map_err(Failure::Setup)?;
        }
        let gfs = args.gfs.or(config.gfs).unwrap_or(Gfs::Never);
        Ok(Self { config: Arc::new(config), node, gfs, lifecycle, nudges })
    }
}

/// A runner must survive what happens to the session of the DEN that started it. From a shell it leads a
/// process group already and stays where it is.
fn lead_own_session() {
    if let Err(error) = nix::unistd::setsid() {
        tracing::debug!(%error, "staying in the session");
    }
}

fn log_of(config: &Config, quiet: bool) -> Log {
    let mut log = config.log.clone();
    if quiet {
        log.level = Level::Warn;
    }
    log
}
