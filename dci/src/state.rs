//! What every handler may use, and what of it is kept for a while.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use actix_web::http::StatusCode;
use bson::Bson;
use disbatch_core::bulk::Worker;
use disbatch_core::config::{Balance, Config, HostNames, TraceUrl};
use disbatch_core::health::Looks;
use disbatch_core::model::{PluginName, Queue, QueueId, Selector};
use disbatch_core::plugin::Plugins;
use disbatch_core::schema::Schemas;
use disbatch_core::secrets::Keys;
use disbatch_core::store::{Store, StoreError};
use disbatch_traces::Tracer;
use disbatch_values::words;
use serde_json::{Value, json};
use tokio::runtime::Handle;
use tokio::sync::Mutex;

use crate::access::{Access, Door};
use crate::allowance::Budget;
use crate::catalogue::{self, Catalogue, KeptCatalogue};
use crate::counts::QueueCounts;
use crate::error::HttpError;
use crate::files::Checks;
use crate::measure::Gathered;
use crate::ui::about::Sizes;
use crate::ui::live::Feeds;
use crate::ui::names::Titles;
use crate::ui::overview::facts::Memory;
use crate::ui::{names, node_work};
use crate::watch::Watch;

/// Finding out what is kept takes at most one part in so many of the time.
const SHARE: u32 = 20;

/// Shared by all requests.
#[derive(Debug, Clone)]
pub struct State {
    pub store: Store,
    pub access: Arc<Access>,
    pub budget: Arc<Budget>,
    pub counts: Arc<QueueCounts>,
    pub watch: Arc<Watch>,
    pub feeds: Arc<Feeds>,
    /// What metrics have of the database.
    pub gathered: Arc<Gathered>,
    pub tracer: Option<Tracer>,
    /// Whether the database answers.
    pub looks: Arc<Looks>,
    /// What the overview keeps for a while.
    pub overview: Arc<Memory>,
    /// What nodes did lately, likewise.
    pub hours: Arc<Kept<node_work::Hours>>,
    /// Contents of file sets that are being checked.
    pub checks: Arc<Checks>,
    pub bulk: Worker,
    /// Where changes are made that must come to their end, whatever becomes of the request.
    pub runtime: Handle,
    /// Encrypt secure parameters.
    pub keys: Arc<Keys>,
    /// The plugins that queues may be created with, besides those of the database.
    plugins: Vec<String>,
    /// Whether these are all, because the configuration lists them: what nodes have besides is not for queues then.
    plugins_are_listed: bool,
    /// What this host knows of plugins.
    manifests: Arc<Plugins>,
    /// What those that this host knows want of parameters.
    schemas: Schemas,
    catalogue: Arc<KeptCatalogue>,
    /// How large collections are, for a while.
    pub sizes: Arc<Sizes>,
    /// Whether `/monitoring` looks.
    pub monitoring: bool,
    /// The switches of `QueueBalance`.
    pub balance: Balance,
    /// The deprecated routes that are served, in the order of the configuration.
    pub extensions: Vec<Extension>,
    pub web_root: Option<PathBuf>,
    /// Where traces are to be seen.
    pub traces: Option<TraceUrl>,
    /// The names that requests may use for this server.
    pub hosts: Option<HostNames>,
}

words! {
    /// A set of deprecated routes, by the name of the Perl package that had them, as configurations have it.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Extension {
        /// `/tasks/search`, `/tasks/:queue` and `/tasks/:queue/:collection`.
        Tasks = "Disbatch::Web::Tasks",
        /// Those of Disbatch 3, which end in `-json`.
        V3 = "Disbatch::Web::V3",
    }
}

impl State {
    /// The state for `config`: its `plugins`, or every plugin that is found when there is no such key. Changes are made
    /// on the runtime that this is called on.
    pub fn new(config: &Config, store: Store, door: Door) -> Self {
        let manifests = Plugins::discover(config);
        let plugins = match &config.plugins {
            Some(allowed) => allowed.names().map(str::to_owned).collect(),
            None => manifests.names().map(ToString::to_string).collect(),
        };
        let known = |name: &String| {
            let extension = Extension::named(name);
            if extension.is_none() {
                tracing::warn!(name, "no such web extension, its routes are not served");
            }
            extension
        };
        Self {
            access: Arc::new(Access::new(config, door)),
            bulk: Worker::new(store.clone()),
            runtime: Handle::current(),
            keys: Arc::default(),
            store,
            budget: Arc::default(),
            counts: Arc::default(),
            watch: Arc::default(),
            feeds: Arc::default(),
            gathered: Arc::default(),
            tracer: None,
            looks: Arc::default(),
            overview: Arc::default(),
            hours: Arc::default(),
            checks: Arc::default(),
            plugins,
            schemas: catalogue::schemas(&manifests, &BTreeMap::new()),
            plugins_are_listed: config.plugins.is_some(),
            manifests: Arc::new(manifests),
            catalogue: Arc::default(),
            sizes: Arc::default(),
            monitoring: config.monitoring.0,
            balance: config.balance,
            extensions: config.web_extensions.iter().filter_map(known).collect(),
            web_root: config.web_root.clone(),
            traces: config.traces.url.clone(),
            hosts: config.hosts.clone(),
        }
    }

    /// A queue that something is of. If it was deleted, there is left what rights look at: its id.
    pub async fn queue_by_id(&self, id: QueueId) -> Result<Queue, StoreError> {
        let queue = self.store.find_queue(&Selector::Id(id.0)).await?;
        Ok(queue.unwrap_or_else(|| Queue::without_document(id)))
    }

    /// The plugins that there are now: those of this host and, unless the configuration lists them, of the nodes whose DEN is
    /// alive, and those of the database, whose definitions are read only when one of them has changed.
    pub async fn catalogue(&self) -> Result<Arc<Catalogue>, StoreError> {
        let (mark, mut offered) = futures::try_join!(self.store.workers_mark(), self.store.offered())?;
        if self.plugins_are_listed {
            offered.plugins.clear();
        }
        let all = offered.plugins.iter().chain(&offered.versions);
        let mark = Bson::from(vec![mark, Bson::from(all.cloned().collect::<Vec<_>>())]);
        let read = async {
            let workers = self.store.workers().await?;
            let host = Arc::clone(&self.manifests);
            Ok::<Catalogue, StoreError>(
                Catalogue::new(host, &self.plugins, &offered.plugins, &workers).with(&offered.versions),
            )
        };
        self.catalogue.get(mark, read).await
    }

    /// What plugins want of parameters, these among them. The database is asked only where this host does not know one of them.
    pub async fn schemas(&self, named: &[&PluginName]) -> Result<Schemas, StoreError> {
        if named.iter().all(|plugin| self.manifests.get(plugin).is_some()) {
            return Ok(self.schemas.clone());
        }
        Ok(self.catalogue().await?.schemas.clone())
    }

    /// What tasks of these queues are called. The database is asked only where this host does not know the plugin of one that does
    /// not say it itself.
    pub async fn titles(&self, queues: &[Queue]) -> Result<Titles, StoreError> {
        let is_known = |queue: &Queue| {
            let here = |name: PluginName| self.manifests.get(&name).is_some();
            names::template(queue).is_some() || queue.effective_plugin().ok().flatten().is_none_or(here)
        };
        if queues.iter().all(is_known) {
            return Ok(Titles::of(queues, |name| self.manifests.get(name).map(|plugin| &plugin.manifest)));
        }
        let catalogue = self.catalogue().await?;
        Ok(Titles::of(queues, |name| catalogue.manifest(name)))
    }

    /// Sees to it that queues may be created with `plugin`. If not, the answer has these words, and the plugins that there are.
    pub async fn check_plugin(&self, error: &str, plugin: &Value) -> Result<(), HttpError> {
        let known = self.catalogue().await?;
        if plugin.as_str().is_some_and(|plugin| known.allows(plugin)) {
            return Ok(());
        }
        let mut body = json!({ "error": error, "plugin": plugin });
        // Where the configuration lists them, it is answered as Perl does.
        if !self.plugins_are_listed {
            body["known"] = known.names().into();
        }
        let offered = self.store.offered().await?.plugins;
        if plugin.as_str().is_some_and(|plugin| offered.contains(plugin)) {
            let hint = "nodes have it, and plugins in the configuration of this server does not list it";
            body["hint"] = hint.into();
        }
        Err(HttpError::with_body(StatusCode::BAD_REQUEST, body))
    }

    /// Whether queues may be created with `plugin` whatever the database defines.
    pub fn lists(&self, plugin: &str) -> bool {
        self.plugins.iter().any(|listed| listed == plugin)
    }
}

/// A value that takes some reading to find out, and is the same for all who ask within some seconds.
#[derive(Debug)]
pub struct Kept<T> {
    value: Mutex<Option<(Instant, Arc<T>)>>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { value: Mutex::default() }
    }
}

impl<T> Kept<T> {
    /// The value as it was found out last, unless that was more than `least` ago, or longer if it takes long. Whoever comes
    /// while it is found out waits for the same.
    pub async fn get<E>(
        &self,
        least: Duration,
        find: impl Future<Output = Result<T, E>>,
    ) -> Result<Arc<T>, E> {
        let mut kept = self.value.lock().await;
        if let Some((until, value)) = &*kept
            && Instant::now() < *until
        {
            return Ok(Arc::clone(value));
        }
        let began = Instant::now();
        let value = Arc::new(find.await?);
        *kept = Some((Instant::now() + least.max(began.elapsed() * SHARE), Arc::clone(&value)));
        Ok(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_value_is_found_out_once_for_a_while_and_failures_are_not_kept() {
        let kept = Kept::default();
        let long = Duration::from_secs(60);
        assert_eq!(kept.get(long, async { Err::<u8, _>("away") }).await, Err("away"));
        for next in 1..4 {
            assert_eq!(*kept.get(long, async { Ok::<_, &str>(next) }).await.unwrap(), 1);
        }
        let brief = Kept::default();
        for next in 1..4 {
            assert_eq!(*brief.get(Duration::ZERO, async { Ok::<_, &str>(next) }).await.unwrap(), next);
            // However short it was, it is kept for a multiple of the time that it took.
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
