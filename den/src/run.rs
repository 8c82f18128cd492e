//! Sets a node up and lets it work, or only checks its configuration.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use disbatch_core::cgroup;
use disbatch_core::config::{Config, ConfigError, Role};
use disbatch_core::identity::Identity;
use disbatch_core::lifecycle::Lifecycle;
use disbatch_core::metrics::{Component, Metrics};
use disbatch_core::model::NodeName;
use disbatch_core::secrets::{Keys, KeysError};
use disbatch_core::service_manager;
use disbatch_core::store::{Store, StoreError};
use disbatch_core::telemetry::{self, last_words};
use disbatch_core::wake::Hints;
use disbatch_traces::{Tracer, TracesError};
use nix::unistd::{AccessFlags, access};
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use crate::Args;
use crate::chores::Chores;
use crate::launch::{Launcher, runner_of};
use crate::monitoring;
use crate::node::Node;
use crate::pace::Backoff;
use crate::processes::Ours;

/// How long the end of the node waits until its last notes are written.
const LAST_MOMENT: Duration = Duration::from_secs(2);

/// The database says within this time that all indexes are there.
const INDEXES_THERE: Duration = Duration::from_secs(3);

/// Why a DEN cannot even begin. One line each.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    #[error("{0}")]
    Config(#[from] ConfigError),
    #[error("{0}")]
    Traces(#[from] TracesError),
    #[error("{0}")]
    Keys(#[from] KeysError),
    /// `mongohost` or the CA file cannot be used.
    #[error("invalid configuration: {0}")]
    Address(StoreError),
    #[error("cannot run tasks with {path}: {why}", path = .0.display(), why = .1)]
    Runner(PathBuf, io::Error),
    #[error("cannot listen on {0} (metrics.listen): {1}")]
    Listen(SocketAddr, io::Error),
    /// The log file, the signal handlers, the host name or the own path.
    #[error("{0}")]
    Setup(#[from] io::Error),
}

impl Failure {
    /// The exit status. A manager of services starts a DEN again where waiting may help.
    pub fn status(&self) -> u8 {
        match self {
            Self::Config(ConfigError::Unknown { .. }) | Self::Listen(..) | Self::Setup(_) => 4,
            Self::Config(_) | Self::Traces(_) | Self::Keys(_) | Self::Address(_) | Self::Runner(..) => 3,
        }
    }
}

/// Works until a signal comes.
pub async fn run(args: Args) -> Result<(), Failure> {
    let mut config = Config::load(&args.config)?;
    config.schedules.0 &= !args.disable_cron;
    telemetry::init(&config.log)?;
    config.log_concerns();
    let ours = make_sure_of_isolation(&config)?;
    // Runners read them when they need them. That they cannot be used is better known now.
    drop(Keys::load(&config)?);
    let name = match args.node {
        Some(name) => NodeName::new(name),
        None => NodeName::of_this_host()?,
    };
    let lifecycle = Lifecycle::listen()?;
    service_manager::tell_end(lifecycle.clone());
    service_manager::waiting("waits for the database");
    let metrics = Arc::new(Metrics::of(Component::Den, env!("CARGO_PKG_VERSION")));
    let _monitored = monitored(&config, &metrics).await?;
    let Some(store) = connect(&config, &lifecycle).await? else { return Ok(()) };
    let traces =
        Tracer::of_environment("disbatch-den", env!("CARGO_PKG_VERSION"), Some(name.to_string()), &metrics)?;
    let (tracer, sending) = traces.unzip();
    let store = store.counting_in(metrics);
    let launcher = Launcher::new(&config, &name, &store, tracer)?;
    tracing::info!(
        node = %name, database = store.database_name(), mongohost = %shown(&config.mongohost),
        version = env!("CARGO_PKG_VERSION"), "node starts"
    );
    warn_of_root(&config);
    if !prepare_database(&store, &lifecycle).await {
        return Ok(());
    }
    if let Err(error) = store.keep_audit(config.audit.kept()).await {
        // `disbatch create-users` gives the right to.
        tracing::warn!(%error, "entries of the audit are not kept as long as audit.keep_days says");
    }
    let hints = Arc::new(Hints::default());
    let chores = Chores::start(&config, &store, &hints, (&name, args.balance));
    let notes = store.clone();
    let mut node = Node::new(config, ours, store, name, hints, launcher);
    (node.stay, node.interrupt) = (args.drain, args.interrupt);
    node.clockwork = chores.clockwork.clone();
    Box::pin(node.run(&lifecycle)).await;
    chores.end().await;
    let _written = timeout(LAST_MOMENT, notes.flush()).await;
    if let Some(sending) = sending {
        sending.finish(LAST_MOMENT).await;
    }
    Ok(())
}

/// Serves metrics, if that is wanted, from before the database is there until what is returned is dropped.
async fn monitored(
    config: &Config,
    metrics: &Arc<Metrics>,
) -> Result<Option<AbortOnDropHandle<()>>, Failure> {
    let Some(address) = config.metrics.listen else { return Ok(None) };
    let served = monitoring::serve(address, Arc::clone(metrics)).await;
    served.map(Some).map_err(|why| Failure::Listen(address, why))
}

/// Resolves the database's address, waiting for a name server that is away. `None`: a signal came first.
async fn connect(config: &Config, lifecycle: &Lifecycle) -> Result<Option<Store>, Failure> {
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
    loop {
        match Store::connect(config, Role::Disbatchd).await {
            Ok(store) => return Ok(Some(store)),
            Err(error) if error.is_transient() => {
                let pause = backoff.failed(Instant::now());
                tracing::error!(%error, retry_in_s = pause.as_secs(), "cannot find the database");
                if timeout(pause, lifecycle.draining()).await.is_ok() {
                    return Ok(None);
                }
            }
            Err(error) => return Err(Failure::Address(error)),
        }
    }
}

/// Waits for the database and ensures the indexes. Returns whether there is a node to run: not if a signal
/// came first.
async fn prepare_database(store: &Store, lifecycle: &Lifecycle) -> bool {
    let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
    loop {
        let error = tokio::select! {
            () = lifecycle.draining() => return false,
            prepared = ensure_indexes(store) => match prepared {
                Ok(()) => return true,
                // Documents that violate a unique index, say, are the operator's to mend; work goes on.
                Err(error) if error.write_failure().is_some() && !error.is_away() => {
                    tracing::error!(%error, "cannot create an index; working without it");
                    return true;
                }
                Err(error) => error,
            },
        };
        let pause = backoff.failed(Instant::now());
        tracing::error!(%error, retry_in_s = pause.as_secs(), "cannot work with the database");
        if timeout(pause, lifecycle.draining()).await.is_ok() {
            return false;
        }
    }
}

/// It says so when that lasts: the server may take hours to create those of a large collection.
async fn ensure_indexes(store: &Store) -> Result<(), StoreError> {
    // One that is away takes long, too.
    store.ping().await?;
    let mut work = store.ensure_indexes();
    if let Ok(ensured) = timeout(INDEXES_THERE, &mut work).await {
        return ensured;
    }
    tracing::info!(
        "making sure of the indexes, and creating those that are missing: this node claims nothing before they are there"
    );
    service_manager::waiting("makes sure of the indexes");
    work.await.inspect_err(|_| service_manager::waiting("waits for the database"))
}

/// An address without the password that a URI may hold.
fn shown(mongohost: &str) -> &str {
    mongohost.rsplit_once('@').map_or(mongohost, |(_, host)| host)
}

/// Makes sure of what runners need to keep plugins from what is not theirs. Refuses a configuration with which no runner could start a
/// plugin. Returns whose processes plugins are.
fn make_sure_of_isolation(config: &Config) -> Result<Ours, ConfigError> {
    let user = Identity::of(config)?;
    if let Some(user) = &user {
        tracing::info!(user = %user.name, uid = user.uid, gid = user.gid, "plugins run as another user");
    }
    cgroup::prepare(config)?;
    cgroup::remove_left(config);
    if let Some(runner) = &config.task_runner {
        // Whatever is configured: by default, too, plugins are kept from privileges and variables.
        let runner = runner.display();
        tracing::warn!(
            "task_runner is {runner}: unless it is a dtr, run_as, limits, cgroup, no_new_privs and \
             plugin_environment mean nothing to it"
        );
    }
    Ok(Ours::new(config, user.map(|user| user.uid)))
}

fn warn_of_root(config: &Config) {
    if config.run_as.is_none() && nix::unistd::Uid::effective().is_root() {
        tracing::warn!("plugins run as root: name another user as run_as in the configuration");
    }
}

/// `den --check-config`: what can be checked without the database. Changes nothing, and opens no log. Says what is not as it should be;
/// what keeps a DEN from starting is the error.
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
    let runner = runner_of(&config)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_by_itself_has_another_status_than_what_is_wrong() {
        let why = || io::Error::other("no");
        let (path, key, message) = (PathBuf::from("/c"), "run_as".to_owned(), "no".to_owned());
        let unknown = ConfigError::Unknown { path: path.clone(), key: key.clone(), message: message.clone() };
        let invalid = ConfigError::Invalid { path: path.clone(), key, message };
        for (failure, status) in [
            (Failure::from(unknown), 4),
            (Failure::Listen(([127, 0, 0, 1], 9464).into(), why()), 4),
            (Failure::from(why()), 4),
            (Failure::from(invalid), 3),
            (Failure::Runner(path, why()), 3),
        ] {
            assert_eq!(failure.status(), status, "{failure}");
        }
    }
}
