//! The database. [`Store`] has one method per named operation; each lives in the file of the step of a
//! task's life that it serves (see [`crate::task`], [`crate::queue`], [`crate::node`], [`crate::output`]).
//!
//! Every write that decides a task's fate is acknowledged by a majority of the replica set.

mod abandonment;
mod alteration;
mod blame;
pub mod collections;
pub(crate) mod error;
mod indexes;
#[cfg(test)]
mod operations;

use disbatch_operation::operation;
use std::sync::Arc;
use std::time::Duration;

use bson::{DateTime, Document, doc};
use futures::stream::{BoxStream, Stream, StreamExt};
use mongodb::options::{
    Acknowledgment, AuthMechanism, ClientOptions, Credential, ServerMonitoringMode, Tls, TlsOptions,
    WriteConcern,
};
use mongodb::{Client, Collection, Database};
use tokio_util::task::AbortOnDropHandle;

pub(crate) use crate::model::document::Stored;
pub use abandonment::Attended;
pub use alteration::Altered;
pub(crate) use alteration::still;
pub use blame::Blame;
pub use error::{StoreError, WriteFailure};

use crate::admission::Memory;
use crate::clock::{Clock, SystemClock};
use crate::config::{Config, Inbox, Indexes, Role, Ssl};
use crate::counters::Counters;
use crate::fair::Ledger;
use crate::notebook::Notebook;
use crate::series::Series;
use crate::task::aside;
use collections::{ARCHIVE, ATTEMPTS, BALANCE, CHUNKS, FILES, NODES, QUEUES, REPORTS, SUBMISSIONS, TASKS};
use disbatch_metrics::Metrics;

/// How long an operation waits for a reachable server before it fails.
const SERVER_SELECTION_TIMEOUT: Duration = Duration::from_secs(5);
const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);

/// A runner's connections are closed when they have not been used for so long.
const RUNNER_IDLE_TIME: Duration = Duration::from_secs(10);

/// What comes a batch at a time; the stream ends with an error when the database goes away.
pub type Rows<T> = BoxStream<'static, Result<T, StoreError>>;

/// Rows of which it is noticed when nobody waits for them any more.
pub(crate) fn attended<T>(
    rows: impl Stream<Item = Result<T, StoreError>> + Unpin + Send + 'static,
) -> Rows<T> {
    Attended::new(rows).boxed()
}

/// A connection pool to one Disbatch database. Clones share it.
#[derive(Debug, Clone)]
pub struct Store {
    database: Database,
    clock: Arc<dyn Clock>,
    pub(crate) counters: Arc<Counters>,
    pub(crate) series: Arc<Notebook<Series>>,
    pub(crate) groups: Arc<Notebook<Ledger>>,
    pub(crate) admission: Arc<Memory>,
    aside: Arc<aside::Memory>,
    metrics: Arc<Metrics>,
    indexes: Indexes,
    inbox: Arc<Inbox>,
    _turns: Arc<AbortOnDropHandle<()>>,
}

impl Store {
    /// Prepares a connection as the MongoDB user of `role`. Nothing is sent yet: see [`Store::ping`].
    #[operation]
    pub async fn connect(config: &Config, role: Role) -> Result<Self, StoreError> {
        let mut options = client_options(config).await?;
        options.app_name.get_or_insert_with(|| role.user().to_owned());
        if role == Role::TaskRunner {
            frugal(&mut options);
        }
        if let Some(password) = config.auth.password(role) {
            options.credential = Some(credential(role, password, &config.database));
        }
        let database = Client::with_options(options)?.database(&config.database);
        let (counters, series) = match role {
            Role::TaskRunner => (Counters::of_runner(), Notebook::of_runner()),
            Role::Disbatchd | Role::DisbatchWeb | Role::QueueBalance | Role::Plugin => {
                (Counters::of_daemon(), Notebook::of_daemon())
            }
        };
        let (clock, groups) = (Arc::new(SystemClock), Arc::new(Notebook::of_daemon()));
        let (counters, series, admission) = (Arc::new(counters), Arc::new(series), Arc::default());
        let (aside, metrics, indexes) = (Arc::default(), Arc::default(), config.indexes);
        let turns = turns(&database);
        Ok(Self {
            database,
            clock,
            counters,
            series,
            groups,
            admission,
            aside,
            metrics,
            indexes,
            inbox: Arc::new(config.inbox.clone()),
            _turns: turns,
        })
    }

    /// The operations of this module on `database`, with the time from `clock`.
    pub fn with_clock(database: Database, clock: Arc<dyn Clock>) -> Self {
        let (counters, series) = (Counters::of_daemon(), Notebook::of_daemon());
        let groups = Arc::new(Notebook::of_daemon());
        let (counters, series, admission) = (Arc::new(counters), Arc::new(series), Arc::default());
        let (aside, metrics, indexes) = (Arc::default(), Arc::default(), Indexes::default());
        let turns = turns(&database);
        let inbox = Arc::default();
        Self {
            database,
            clock,
            counters,
            series,
            groups,
            admission,
            aside,
            metrics,
            indexes,
            inbox,
            _turns: turns,
        }
    }

    /// What the process does is counted in these metrics.
    pub fn counting_in(self, metrics: Arc<Metrics>) -> Self {
        Self { metrics, ..self }
    }

    /// What the process counts.
    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    /// Asks the server for a sign of life.
    #[operation]
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.database.run_command(doc! { "ping": 1 }).await?;
        Ok(())
    }

    /// The time by the server's clock.
    #[operation]
    pub async fn server_time(&self) -> Result<DateTime, StoreError> {
        let hello = self.database.run_command(doc! { "hello": 1 }).await?;
        // Every server says it; its clock is the one that counts.
        Ok(hello.get_datetime("localTime").copied().unwrap_or_else(|_| self.now()))
    }

    /// The time by this store's clock.
    pub fn now(&self) -> DateTime {
        self.clock.now()
    }

    pub fn database_name(&self) -> &str {
        self.database.name()
    }

    pub(crate) fn database(&self) -> &Database {
        &self.database
    }

    /// Who may submit tasks by the inbox.
    pub(crate) fn inbox_config(&self) -> &Inbox {
        &self.inbox
    }

    pub(crate) fn aside(&self) -> &aside::Memory {
        &self.aside
    }

    pub(crate) fn nodes(&self) -> Collection<Stored> {
        self.database.collection(NODES.name)
    }

    pub(crate) fn queues(&self) -> Collection<Stored> {
        self.database.collection(QUEUES.name)
    }

    pub(crate) fn tasks(&self) -> Collection<Stored> {
        self.database.collection(TASKS.name)
    }

    /// `tasks`, to put new ones into.
    pub(crate) fn new_tasks(&self) -> Collection<Document> {
        self.database.collection(TASKS.name)
    }

    pub(crate) fn archive(&self) -> Collection<Stored> {
        self.database.collection(ARCHIVE.name)
    }

    pub(crate) fn attempts(&self) -> Collection<Stored> {
        self.database.collection(ATTEMPTS.name)
    }

    pub(crate) fn submissions(&self) -> Collection<Document> {
        self.database.collection(SUBMISSIONS.name)
    }

    pub(crate) fn files(&self) -> Collection<Document> {
        self.database.collection(FILES.name)
    }

    pub(crate) fn chunks(&self) -> Collection<Document> {
        self.database.collection(CHUNKS.name)
    }

    pub(crate) fn balance(&self) -> Collection<Stored> {
        self.database.collection(BALANCE.name)
    }

    pub(crate) fn reports(&self) -> Collection<Document> {
        self.database.collection(REPORTS.name)
    }
}

/// A node may run a thousand tasks at once, each with a runner that talks to the database at its start and at
/// its end: no streaming monitor with connections of its own, and none kept while the plugin works.
fn frugal(options: &mut ClientOptions) {
    options.server_monitoring_mode.get_or_insert(ServerMonitoringMode::Poll);
    options.max_idle_time.get_or_insert(RUNNER_IDLE_TIME);
}

/// Goes on for as long as one of the stores of `database` is there.
fn turns(database: &Database) -> Arc<AbortOnDropHandle<()>> {
    Arc::new(AbortOnDropHandle::new(tokio::spawn(abandonment::make_turns(database.clone()))))
}

/// Where the database is and how it is spoken to, without a user.
pub(crate) async fn client_options(config: &Config) -> Result<ClientOptions, StoreError> {
    let is_uri = config.mongohost.starts_with("mongodb://") || config.mongohost.starts_with("mongodb+srv://");
    let uri = if is_uri { config.mongohost.clone() } else { format!("mongodb://{}/", config.mongohost) };
    let mut options = ClientOptions::parse(&uri).await?;
    options.server_selection_timeout.get_or_insert(SERVER_SELECTION_TIMEOUT);
    options.connect_timeout.get_or_insert(CONNECT_TIMEOUT);
    options.write_concern.get_or_insert_with(majority);
    if let Some(ssl) = &config.attributes.ssl {
        options.tls = Some(Tls::Enabled(tls_options(ssl)));
    }
    Ok(options)
}

pub(crate) fn majority() -> WriteConcern {
    WriteConcern::builder().w(Acknowledgment::Majority).build()
}

fn credential(role: Role, password: &str, database: &str) -> Credential {
    // The mechanism is negotiated: SCRAM-SHA-256, or SCRAM-SHA-1 where the user has no other.
    let mechanism: Option<AuthMechanism> = None;
    let mut credential = Credential::default();
    credential.username = Some(role.user().to_owned());
    credential.password = Some(password.to_owned());
    credential.source = Some(database.to_owned());
    credential.mechanism = mechanism;
    credential
}

fn tls_options(ssl: &Ssl) -> TlsOptions {
    let mut tls = TlsOptions::default();
    tls.ca_file_path.clone_from(&ssl.ca_file);
    if !ssl.verify {
        tls.allow_invalid_certificates = Some(true);
    }
    tls
}
