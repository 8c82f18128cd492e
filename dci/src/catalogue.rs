//! Which plugins there are: those that this host knows, and those that the database defines.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bson::Bson;
use disbatch_core::definitions::{Definition, manifests};
use disbatch_core::model::PluginName;
use disbatch_core::plugin::{Manifest, Plugins};
use disbatch_core::schema::Schemas;
use tokio::sync::Mutex;

/// It is read again after so long, also when nothing tells of a change: what somebody has changed by hand may have the same mark.
const KEPT: Duration = Duration::from_secs(60);

#[derive(Debug)]
pub struct Catalogue {
    host: Arc<Plugins>,
    /// What is defined in the database. Whether a node can run it is for that node to know.
    workers: BTreeMap<PluginName, Manifest>,
    pub schemas: Schemas,
    /// Those that queues may be created with.
    names: Vec<String>,
    versions: BTreeMap<String, BTreeSet<String>>,
}

impl Catalogue {
    /// Those of this host, of which queues may be created with `allowed`, those that nodes have (`offered`), and all of the database: who has defined these may do more than
    /// create queues. But by a name that is that of a plugin of this host or a shipped one, nodes would run that, and who defines
    /// workers does not choose programs of nodes.
    pub fn new(
        host: Arc<Plugins>,
        allowed: &[String],
        offered: &BTreeSet<String>,
        workers: &[Definition],
    ) -> Self {
        let workers: BTreeMap<PluginName, Manifest> =
            manifests(workers).into_iter().map(|manifest| (manifest.name.clone(), manifest)).collect();
        let mut names = allowed.to_vec();
        names.extend(offered.iter().filter(|name| !allowed.contains(name)).cloned());
        let of_nodes = names.clone();
        let is_new = |name: &&PluginName| {
            let is_allowed = of_nodes.iter().any(|known| known == name.as_str());
            !is_allowed && !host.defines(name) && !Plugins::is_shipped(name)
        };
        names.extend(workers.keys().filter(is_new).map(ToString::to_string));
        let schemas = schemas(&host, &workers);
        let of_host: BTreeSet<String> = host.versions().map(ToString::to_string).collect();
        let of_workers = workers
            .values()
            .filter_map(|manifest| Some(manifest.name.at(&manifest.version().ok()??).to_string()));
        let of_workers = of_workers.collect();
        let catalogue = Self { host, workers, schemas, names, versions: BTreeMap::new() };
        catalogue.with(&of_host).with(&of_workers)
    }

    /// The same with versions that nodes have, as `Name@version`.
    #[must_use]
    pub fn with(mut self, versions: &BTreeSet<String>) -> Self {
        for (name, version) in versions.iter().filter_map(|version| version.split_once('@')) {
            self.versions.entry(name.to_owned()).or_default().insert(version.to_owned());
        }
        self
    }

    pub fn versions(&self, plugin: &str) -> impl Iterator<Item = &str> {
        self.versions.get(plugin).into_iter().flatten().map(String::as_str)
    }

    pub fn names(&self) -> &[String] {
        &self.names
    }

    pub fn allows(&self, plugin: &str) -> bool {
        self.names.iter().any(|name| name == plugin)
    }

    pub fn host(&self) -> &Plugins {
        &self.host
    }

    pub fn workers(&self) -> &BTreeMap<PluginName, Manifest> {
        &self.workers
    }

    /// What is known of a plugin. One of this host comes before one of the database. Of a version that is not here, what is known of the
    /// plugin says something all the same.
    pub fn manifest(&self, name: &PluginName) -> Option<&Manifest> {
        let known = |name: &PluginName| {
            self.host.get(name).map(|plugin| &plugin.manifest).or_else(|| self.workers.get(name))
        };
        known(name).or_else(|| known(&name.without_version()))
    }
}

/// What these plugins want of parameters. Those of this host come before those of the database.
pub fn schemas(host: &Plugins, workers: &BTreeMap<PluginName, Manifest>) -> Schemas {
    let of_host = host.manifests();
    let others = workers.values().filter(|manifest| host.get(&manifest.name).is_none());
    let schemas = Schemas::of(of_host.chain(others));
    for (plugin, error) in schemas.unusable() {
        tracing::warn!(%plugin, %error, "params of this plugin are not checked");
    }
    schemas
}

/// The catalogue as it was read last.
#[derive(Debug, Default)]
pub struct KeptCatalogue(Mutex<Option<Kept>>);

#[derive(Debug)]
struct Kept {
    /// What told then which definitions there are.
    mark: Bson,
    read: Instant,
    catalogue: Arc<Catalogue>,
}

impl KeptCatalogue {
    /// The catalogue of the definitions that have this mark, read only if there was another mark before. Whoever comes while it is
    /// read waits for the same.
    pub async fn get<E>(
        &self,
        mark: Bson,
        read: impl Future<Output = Result<Catalogue, E>>,
    ) -> Result<Arc<Catalogue>, E> {
        let mut kept = self.0.lock().await;
        if let Some(known) = &*kept
            && known.mark == mark
            && known.read.elapsed() < KEPT
        {
            return Ok(Arc::clone(&known.catalogue));
        }
        let catalogue = Arc::new(read.await?);
        *kept = Some(Kept { mark, read: Instant::now(), catalogue: Arc::clone(&catalogue) });
        Ok(catalogue)
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use disbatch_core::config::Config;

    use super::*;

    #[test]
    fn what_the_database_defines_is_there_beside_what_is_configured() {
        let workers = [
            doc! { "_id": "Csv", "worker": { "image": "i" } },
            doc! { "_id": "My::Plugin", "engine": "http" },
            doc! { "_id": "Wrong", "command": ["sh"] },
        ];
        let workers = workers.map(|worker| Definition::read(worker).unwrap());
        let allowed = ["My::Plugin".to_owned(), "Other".to_owned()];
        let catalogue = Catalogue::new(Arc::default(), &allowed, &BTreeSet::new(), &workers);
        assert_eq!(catalogue.names(), ["My::Plugin", "Other", "Csv"]);
        let offered = BTreeSet::from(["Csv".to_owned(), "New".to_owned(), "Other".to_owned()]);
        let with_nodes = Catalogue::new(Arc::default(), &allowed, &offered, &workers);
        assert_eq!(with_nodes.names(), ["My::Plugin", "Other", "Csv", "New"]);
        assert!(catalogue.allows("Csv") && !catalogue.allows("Wrong"));
        assert!(catalogue.manifest(&"My::Plugin".parse().unwrap()).is_some());
        assert!(catalogue.manifest(&"Other".parse().unwrap()).is_none());
    }
    #[test]
    fn a_definition_allows_nothing_that_a_host_may_have_by_that_name() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::create_dir(folder.path().join("own")).unwrap();
        let manifest = r#"{ "name": "Own", "command": ["./missing"] }"#;
        std::fs::write(folder.path().join("own/plugin.json"), manifest).unwrap();
        let text = r#"{ "mongohost": "h", "database": "d", "plugin_dirs": ["."], "plugins": ["My::Safe"] }"#;
        let host = Plugins::discover(&Config::parse(text, &folder.path().join("config.json")).unwrap());
        let workers = ["Disbatch::Plugin::Shell", "Own", "Csv", "My::Safe"]
            .map(|name| Definition::read(doc! { "_id": name, "engine": "http" }).unwrap());
        let allowed = ["My::Safe".to_owned()];
        assert_eq!(
            Catalogue::new(Arc::new(host), &allowed, &BTreeSet::new(), &workers).names(),
            ["My::Safe", "Csv"]
        );
        let nothing_known = Catalogue::new(Arc::default(), &allowed, &BTreeSet::new(), &workers);
        assert!(!nothing_known.allows("Disbatch::Plugin::Shell"), "its program may be missing here");
    }

    #[tokio::test]
    async fn definitions_are_read_when_they_have_changed() {
        let kept = KeptCatalogue::default();
        let reads = std::cell::Cell::new(0);
        let get = async |mark: i32| {
            let read = async {
                reads.set(reads.get() + 1);
                Ok::<_, &str>(Catalogue::new(Arc::default(), &[], &BTreeSet::new(), &[]))
            };
            kept.get(mark.into(), read).await.map(|_| reads.get())
        };
        assert_eq!([get(1).await, get(1).await, get(1).await], [Ok(1); 3]);
        assert_eq!([get(2).await, get(2).await, get(1).await], [Ok(2), Ok(2), Ok(3)]);
        assert!(kept.get(7.into(), async { Err::<Catalogue, _>("away") }).await.is_err());
        assert_eq!(get(1).await, Ok(3), "what there was is kept");
    }
}
