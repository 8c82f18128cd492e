//! The database. [`Store`] has one method per named operation; each lives in the file of the step of a
//! task's life that it serves (see [`crate::task`], [`crate::queue`], [`crate::node`], [`crate::output`]).
//!
//! Every write that decides a task's fate is acknowledged by a majority of the replica set.

mod abandonment;
pub mod collections;
pub(crate) mod error;
mod indexes;

use std::sync::Arc;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_metrics::Metrics;
use disbatch_operation::operation;
use futures::stream::{BoxStream, Stream, StreamExt, TryStreamExt};
use mongodb::options::{
    ClientOptions, Credential, ReadConcern, ServerMonitoringMode, Tls, TlsOptions, WriteConcern,
};
use mongodb::{Client, Collection, Cursor, Database};
use serde::de::DeserializeOwned;
use tokio_util::task::AbortOnDropHandle;

use self::collections::TASKS;
use crate::admission::Memory;
use crate::audit::is_same;
use crate::clock::{Clock, SystemClock};
use crate::config::{Config, Inbox, Indexes, Role, Ssl};
use crate::counters::Counters;
use crate::fair::Ledger;
use crate::model::whole_number;
use crate::node::Updated;
use crate::notebook::Notebook;
use crate::series::Series;
use crate::task::aside;

pub(crate) use crate::model::document::{Stored, put};
pub use abandonment::Attended;
pub use error::{Blame, StoreError, WriteFailure};

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
    /// Go on for as long as one of the clones is there.
    _turns: Arc<AbortOnDropHandle<()>>,
}

/// A condition, for `$expr`: fields still have these values, or none. Values are compared as a whole: a plain condition would also
/// hold for an array with the value among its elements.
pub(crate) fn still<'a>(fields: impl Iterator<Item = (&'a str, Option<&'a Bson>)>) -> Document {
    let same = |(name, value): (&str, Option<&Bson>)| match value {
        Some(value) => doc! { "$eq": [format!("${name}"), { "$literal": value.clone() }] },
        None => doc! { "$eq": [{ "$type": format!("${name}") }, "missing"] },
    };
    doc! { "$and": fields.map(same).collect::<Vec<Document>>() }
}

pub(crate) fn collect<D: DeserializeOwned>(
    query: impl IntoFuture<Output = mongodb::error::Result<Cursor<D>>>,
) -> impl Future<Output = Result<Vec<Document>, StoreError>>
where
    Document: From<D>,
{
    // Begun here, as what waits then has the options of the query, which are large, behind a pointer.
    let found = query.into_future();
    async move { Ok(found.await?.map_ok(Document::from).try_collect().await?) }
}

/// The ids of all documents that a query finds, but those that are no ObjectIds.
pub(crate) fn collect_ids<D: DeserializeOwned>(
    query: impl IntoFuture<Output = mongodb::error::Result<Cursor<D>>>,
) -> impl Future<Output = Result<Vec<ObjectId>, StoreError>>
where
    Document: From<D>,
{
    let found = collect(query);
    async move { Ok(found.await?.iter().filter_map(|found| found.get_object_id("_id").ok()).collect()) }
}

/// Fields of the documents that match, as a majority of the replica set has them: at most so many, 0 for all.
pub(crate) async fn as_majority(
    collection: &Collection<Stored>,
    filter: Document,
    only: Document,
    limit: i64,
) -> Result<Vec<Document>, StoreError> {
    let found = collection.find(filter).projection(only).limit(limit);
    collect(found.read_concern(ReadConcern::majority())).await
}

/// A document with more fields, which take the place of those that are called the same.
pub(crate) fn with(mut document: Document, more: impl IntoIterator<Item = (String, Bson)>) -> Document {
    document.extend(more);
    document
}

/// The ids in a list that a document has, but for what is none there.
pub(crate) fn ids_in(document: &Document, field: &str) -> impl Iterator<Item = ObjectId> {
    document.get_array(field).into_iter().flatten().filter_map(Bson::as_object_id)
}

/// The texts in a list that a document has, but for what is none there.
pub(crate) fn texts_in(document: &Document, field: &str) -> impl Iterator<Item = String> {
    document.get_array(field).into_iter().flatten().filter_map(Bson::as_str).map(str::to_owned)
}

/// The documents in a list that a document has, but for what is none there.
pub(crate) fn documents_in<'a>(document: &'a Document, field: &str) -> impl Iterator<Item = &'a Document> {
    document.get_array(field).into_iter().flatten().filter_map(Bson::as_document)
}

pub(crate) fn without_null(fields: Document) -> Document {
    fields.into_iter().filter(|(_, value)| *value != Bson::Null).collect()
}

pub(crate) fn all_of(conditions: Vec<Document>) -> Document {
    if conditions.is_empty() {
        Document::new()
    } else {
        doc! { "$and": conditions }
    }
}

/// Stages that set fields, and remove those whose new value is null. Values that look like expressions stay what they are.
pub(crate) fn setting_or_removing(fields: Document) -> Vec<Document> {
    let (gone, set): (Document, Document) = fields.into_iter().partition(|(_, value)| *value == Bson::Null);
    let literal = |(name, value): (String, Bson)| (name, Bson::from(doc! { "$literal": value }));
    let set = (!set.is_empty()).then(|| doc! { "$set": set.into_iter().map(literal).collect::<Document>() });
    let gone = (!gone.is_empty()).then(|| doc! { "$unset": gone.keys().collect::<Vec<_>>() });
    set.into_iter().chain(gone).collect()
}

/// Pipelines of collections as one, which is for the first of these: it finds what they find, one after the other.
pub(crate) fn in_one(pipelines: impl IntoIterator<Item = (&'static str, Vec<Document>)>) -> Vec<Document> {
    let mut rest = pipelines.into_iter();
    let mut all = rest.next().map(|(_, first)| first).unwrap_or_default();
    all.extend(rest.map(|(coll, pipeline)| doc! { "$unionWith": { "coll": coll, "pipeline": pipeline } }));
    all
}

/// A count as it is stored: the largest integer in place of what is larger.
pub(crate) fn integer(count: impl TryInto<i64>) -> i64 {
    count.try_into().unwrap_or(i64::MAX)
}

/// A count that a document has. `None`: it has none, or what stands there is none.
pub(crate) fn count_of(document: &Document, field: &str) -> Option<u64> {
    document.get(field).and_then(whole_number).and_then(|count| u64::try_from(count).ok())
}

/// A length of time as it is stored: in milliseconds.
pub fn millis(length: Duration) -> i64 {
    integer(length.as_millis())
}

/// The same as it was: none in place of what is below that.
pub fn of_millis(millis: i64) -> Duration {
    Duration::from_millis(u64::try_from(millis).unwrap_or(0))
}

/// How long it is from one time to another; none if that was before, as it may be by the clocks of two hosts.
pub(crate) fn between(from: DateTime, to: DateTime) -> Duration {
    of_millis(to.timestamp_millis().saturating_sub(from.timestamp_millis()))
}

/// A document that was changed, as it was at that moment and as it is since.
#[derive(Debug, Clone, PartialEq)]
pub struct Altered {
    /// As it was. None: there was none.
    pub before: Option<Document>,
    pub after: Document,
}

impl Altered {
    /// What becomes of a document when `fields` are set. They are whole fields, and not parts of some.
    pub(crate) fn by_setting(before: Option<Document>, fields: Document) -> Self {
        let mut after = before.clone().unwrap_or_default();
        after.extend(fields);
        Self { before, after }
    }

    /// The same, where fields whose new value is null are removed.
    pub(crate) fn by_setting_or_removing(before: Document, fields: Document) -> Self {
        let (gone, set): (Document, Document) =
            fields.into_iter().partition(|(_, value)| *value == Bson::Null);
        let mut altered = Self::by_setting(Some(before), set);
        for (name, _) in gone {
            altered.after.remove(name);
        }
        altered
    }

    /// Whether anything is not as it was.
    pub fn is_different(&self) -> bool {
        let Some(before) = &self.before else { return true };
        let is_other = |(name, value): (&String, &Bson)| !is_same(Some(value), before.get(name));
        before.len() != self.after.len() || self.after.iter().any(is_other)
    }

    /// What an update found, where there may have been nothing to change.
    pub fn updated(altered: Option<&Self>) -> Updated {
        let is_different = altered.is_some_and(Self::is_different);
        Updated { matched: u64::from(altered.is_some()), modified: u64::from(is_different) }
    }
}

impl Store {
    /// Prepares a connection as the MongoDB user of `role`. Nothing is sent yet: see [`Store::ping`].
    #[operation]
    pub async fn connect(config: &Config, role: Role) -> Result<Self, StoreError> {
        let mut options = client_options(config).await?;
        options.app_name.get_or_insert_with(|| role.as_str().to_owned());
        if role == Role::TaskRunner {
            // A node may run a thousand tasks at once, each with a runner that talks to the database at its start and at
            // its end: no streaming monitor with connections of its own, and none kept while the plugin works.
            options.server_monitoring_mode.get_or_insert(ServerMonitoringMode::Poll);
            options.max_idle_time.get_or_insert(RUNNER_IDLE_TIME);
        }
        if let Some(password) = config.auth.password(role) {
            options.credential = Some(credential(role.as_str(), password, &config.database));
        }
        let database = Client::with_options(options)?.database(&config.database);
        let (indexes, inbox) = (config.indexes, Arc::new(config.inbox.clone()));
        let store = Self { indexes, inbox, ..Self::with_clock(database, Arc::new(SystemClock)) };
        Ok(match role {
            Role::TaskRunner => Self {
                counters: Arc::new(Counters::new(Notebook::of_runner())),
                series: Arc::new(Notebook::of_runner()),
                ..store
            },
            Role::Disbatchd | Role::DisbatchWeb | Role::QueueBalance | Role::Plugin => store,
        })
    }

    /// The operations of this module on `database`, with the time from `clock`.
    pub fn with_clock(database: Database, clock: Arc<dyn Clock>) -> Self {
        Self {
            clock,
            counters: Arc::new(Counters::new(Notebook::of_daemon())),
            series: Arc::new(Notebook::of_daemon()),
            groups: Arc::new(Notebook::of_daemon()),
            admission: Arc::default(),
            aside: Arc::default(),
            metrics: Arc::default(),
            indexes: Indexes::default(),
            inbox: Arc::default(),
            _turns: Arc::new(AbortOnDropHandle::new(tokio::spawn(abandonment::make_turns(database.clone())))),
            database,
        }
    }

    /// What the process does is counted in these metrics.
    pub fn counting_in(self, metrics: Arc<Metrics>) -> Self {
        Self { metrics, ..self }
    }

    pub fn metrics(&self) -> &Arc<Metrics> {
        &self.metrics
    }

    #[operation]
    pub async fn ping(&self) -> Result<(), StoreError> {
        self.database.run_command(doc! { "ping": 1 }).await?;
        Ok(())
    }

    /// Comes back when a majority has all that the server has now, which is never while nothing can be written. Changes nothing.
    #[operation]
    pub async fn reach_majority(&self) -> Result<(), StoreError> {
        let (nodes, nobody) = (self.nodes(), doc! { "_id": ObjectId::new() });
        let update = nodes.update_one(nobody, doc! { "$set": { "node": Bson::Null } });
        update.write_concern(WriteConcern::majority()).await?;
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

    pub(crate) fn inbox_config(&self) -> &Inbox {
        &self.inbox
    }

    pub(crate) fn aside(&self) -> &aside::Memory {
        &self.aside
    }

    /// `tasks`, to put new ones into.
    pub(crate) fn new_tasks(&self) -> Collection<Document> {
        self.database.collection(TASKS.name)
    }
}

/// Where the database is and how it is spoken to, without a user.
pub(crate) async fn client_options(config: &Config) -> Result<ClientOptions, StoreError> {
    let is_uri = config.mongohost.starts_with("mongodb://") || config.mongohost.starts_with("mongodb+srv://");
    let uri = if is_uri { config.mongohost.clone() } else { format!("mongodb://{}/", config.mongohost) };
    let mut options = ClientOptions::parse(&uri).await?;
    options.server_selection_timeout.get_or_insert(SERVER_SELECTION_TIMEOUT);
    options.connect_timeout.get_or_insert(CONNECT_TIMEOUT);
    options.write_concern.get_or_insert_with(WriteConcern::majority);
    if let Some(ssl) = &config.attributes.ssl {
        options.tls = Some(Tls::Enabled(tls_options(ssl)));
    }
    Ok(options)
}

pub(crate) fn credential(user: &str, password: &str, database: &str) -> Credential {
    // Without a mechanism, it is negotiated: SCRAM-SHA-256, or SCRAM-SHA-1 where the user has no other.
    let mut credential = Credential::default();
    credential.username = Some(user.to_owned());
    credential.password = Some(password.to_owned());
    credential.source = Some(database.to_owned());
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

#[cfg(test)]
mod tests;
