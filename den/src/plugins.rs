//! Which queues have a plugin here, looked at again and again, and which plugins the database defines.

use std::collections::{BTreeMap, BTreeSet};
use std::thread;
use std::time::{Duration, Instant};

use bson::{Bson, RawDocument, RawDocumentBuf};
use disbatch_core::config::{AllowedPlugins, Config};
use disbatch_core::definitions::{Definition, manifests};
use disbatch_core::link::WARM_LANES;
use disbatch_core::model::{Canary, PluginName, Queue, QueueId, TaskId};
use disbatch_core::plugin::{Engine, Http, Manifest, Plugin, Plugins};
use disbatch_core::schema::Schemas;
use disbatch_core::store::{Store, StoreError};
use tokio::sync::oneshot::{self, error::TryRecvError};

use crate::runners::Lanes;

/// How often to look when every queue has its plugin.
const LOOK_AGAIN: Duration = Duration::from_secs(3);

/// How often to look when a queue waits for its plugin to be installed.
const LOOK_AGAIN_SOON: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub struct Availability {
    pub plugins: Plugins,
    /// What the database defines besides.
    workers: Vec<Manifest>,
    /// What all of them want of parameters, if it may be other than when it was asked for last.
    pub schemas: Option<Schemas>,
    looked: Instant,
    /// What a look that is under way will have found.
    under_way: Option<oneshot::Receiver<Plugins>>,
    /// Queues without a plugin here, with the reason that was logged.
    missing: BTreeMap<QueueId, String>,
}

/// Which tasks a runner may have beside those of a queue: each version of its plugin has lanes of its own.
#[derive(Debug)]
pub struct QueueLanes {
    own: Option<Lanes>,
    tried: Option<(Canary, Option<Lanes>)>,
}

impl QueueLanes {
    pub fn of(&self, task: TaskId) -> Option<&Lanes> {
        match &self.tried {
            Some((canary, lanes)) if canary.has(task) => lanes.as_ref(),
            _ => self.own.as_ref(), // One version runs all of them, or the others.
        }
    }

    /// Those of whichever task comes next. None if that depends on the task.
    pub fn of_any(&self) -> Option<&Lanes> {
        self.own.as_ref().filter(|_| self.tried.is_none())
    }
}

impl Availability {
    pub fn look(config: &Config) -> Self {
        let plugins = Plugins::discover(config);
        for problem in &plugins.problems {
            tracing::warn!("{problem}");
        }
        warn_of_open_callbacks(
            plugins.names().filter_map(|name| plugins.get(name)).map(|plugin| &plugin.manifest),
        );
        let names: Vec<&str> = plugins.names().map(PluginName::as_str).collect();
        tracing::info!(plugins = names.join(" "), "plugins of this node");
        Self {
            schemas: Some(schemas_of(&plugins)),
            plugins,
            workers: Vec::new(),
            looked: Instant::now(),
            under_way: None,
            missing: BTreeMap::new(),
        }
    }

    /// Looks again if it is time, beside all else that the node does: file systems and interpreters may take as long as they
    /// like. What is found holds from the next time on that this is called.
    pub fn refresh(&mut self, config: &Config) {
        if let Some(look) = &mut self.under_way {
            match look.try_recv() {
                Ok(mut found) => {
                    found.remember(&self.plugins);
                    found.with_workers(&self.workers);
                    self.schemas = Some(schemas_of(&found));
                    for problem in new_problems(&self.plugins, &found) {
                        tracing::warn!("{problem}");
                    }
                    self.plugins = found;
                }
                Err(TryRecvError::Empty) => return,
                Err(TryRecvError::Closed) => tracing::error!("looking for plugins has failed"),
            }
            self.under_way = None;
            self.looked = Instant::now();
        }
        let every = if self.missing.is_empty() { LOOK_AGAIN } else { LOOK_AGAIN_SOON };
        if self.looked.elapsed() >= every {
            self.under_way = look_beside(config);
            self.looked = Instant::now();
        }
    }

    /// The database defines these plugins, and no others. Those of the node's files come before them, or neither is there: see
    /// [`Plugins::with_workers`].
    pub fn define(&mut self, workers: &[Definition]) {
        self.workers = manifests(workers);
        warn_of_open_callbacks(&self.workers);
        self.plugins.with_workers(&self.workers);
        self.schemas = Some(schemas_of(&self.plugins));
        let names: Vec<&str> = self.workers.iter().map(|manifest| manifest.name.as_str()).collect();
        tracing::info!(workers = names.join(" "), "plugins that the database defines");
    }

    pub fn keep_only(&mut self, queues: &[Queue]) {
        self.missing.retain(|id, _| queues.iter().any(|queue| queue.id == *id));
    }

    /// Whether this node can run the queue's tasks. Logs when that has changed.
    pub fn serves(&mut self, config: &Config, queue: &Queue) -> bool {
        match self.reason_against(config, queue) {
            None => {
                if self.missing.remove(&queue.id).is_some() {
                    tracing::info!(queue = queue.display_name(), "the queue's plugin is available now");
                }
                true
            }
            Some(reason) => {
                if self.missing.get(&queue.id) != Some(&reason) {
                    tracing::warn!(queue = queue.display_name(), "ignoring the queue: {reason}");
                    self.missing.insert(queue.id, reason);
                }
                false
            }
        }
    }

    /// The names of those that say, in any version, that they can run without effects.
    pub fn shadows(&self) -> Vec<String> {
        let shadows = self.plugins.manifests().filter(|manifest| manifest.shadow);
        let names: BTreeSet<String> = shadows.map(|manifest| manifest.name.to_string()).collect();
        names.into_iter().collect()
    }

    pub fn names(&self, config: &Config) -> Vec<String> {
        let found = self.plugins.names().map(PluginName::as_str);
        let all: BTreeSet<&str> = found.chain(of_another_runner(config)).collect();
        all.into_iter().map(str::to_owned).collect()
    }

    pub fn in_containers(&self) -> impl Iterator<Item = &Plugin> {
        let plugins = self.plugins.names().filter_map(|name| self.plugins.get(name));
        plugins.filter(|plugin| plugin.manifest.engine == Engine::Container)
    }

    pub fn runner_of(&self, queue: &Queue) -> Option<&Plugin> {
        let name = queue.effective_plugin().ok().flatten()?;
        self.plugins.get(&name).filter(|plugin| plugin.handoff)
    }

    pub fn lanes_of(&self, queue: &Queue) -> QueueLanes {
        let plugin = queue.effective_plugin().ok().flatten();
        let tried = plugin.as_ref().zip(Canary::of(queue)).map(|(plugin, canary)| {
            let lanes = self.lanes(plugin.at(&canary.version));
            (canary, lanes)
        });
        QueueLanes { own: plugin.and_then(|plugin| self.lanes(plugin)), tried }
    }

    /// Those of a plugin, if that takes batches, or if it is a warm one whose tasks have no folders.
    fn lanes(&self, plugin: PluginName) -> Option<Lanes> {
        let warm = self.plugins.get(&plugin)?.manifest.warm?;
        let most = match warm.batch {
            Some(batch) => usize::try_from(batch.max).unwrap_or(1),
            None if !warm.folder => WARM_LANES,
            None => return None,
        };
        Some(Lanes { plugin, most })
    }

    fn reason_against(&self, config: &Config, queue: &Queue) -> Option<String> {
        match queue.needed_plugins() {
            Ok(needed) if needed.is_empty() => Some("it names no plugin".to_owned()),
            Ok(needed) if needed.len() > 1 && needed.iter().any(|name| self.is_runner(name)) => Some(
                "its plugin is a runner itself, of which no version can be tried with some tasks".to_owned(),
            ),
            Ok(needed) => needed.iter().find_map(|name| self.reason_against_plugin(config, name)),
            Err(error) => Some(error.to_string()),
        }
    }

    fn is_runner(&self, name: &PluginName) -> bool {
        self.plugins.get(name).is_some_and(|plugin| plugin.handoff)
    }

    fn reason_against_plugin(&self, config: &Config, name: &PluginName) -> Option<String> {
        let runs_elsewhere =
            name.version().is_none() && of_another_runner(config).any(|of| of == name.as_str());
        if runs_elsewhere || self.plugins.get(name).is_some() {
            return None;
        }
        Some(match self.plugins.problem_with(name) {
            Some(problem) => format!("{} is not available on this node: {problem}", name.words()),
            None => format!("{} is not available on this node", name.words()),
        })
    }
}

/// Another runner finds plugins by its own rules; the configuration says which there are, and not in which versions.
fn of_another_runner(config: &Config) -> impl Iterator<Item = &str> {
    let allowed = config.plugins.iter().filter(move |_| config.task_runner.is_some());
    allowed.flat_map(AllowedPlugins::names)
}

/// Says which web services show no token when they call back.
fn warn_of_open_callbacks<'a>(manifests: impl IntoIterator<Item = &'a Manifest>) {
    for manifest in manifests {
        if manifest.http.as_ref().is_some_and(Http::shows_no_token) {
            tracing::warn!(
                plugin = %manifest.name,
                "callback_auth is none: whoever learns the callback address of a task may write its log and end it"
            );
        }
    }
}

/// What these plugins want of parameters. A schema that cannot be used checks nothing.
fn schemas_of(plugins: &Plugins) -> Schemas {
    let schemas = Schemas::of(plugins.manifests());
    for (plugin, error) in schemas.unusable() {
        tracing::debug!(%plugin, %error, "params of this plugin are not checked");
    }
    schemas
}

/// Looks in a thread of its own. `None`: there can be none now.
fn look_beside(config: &Config) -> Option<oneshot::Receiver<Plugins>> {
    let (tell, found) = oneshot::channel();
    let config = config.clone();
    let look = move || {
        let _node_has_ended = tell.send(Plugins::discover(&config));
    };
    let started = thread::Builder::new().name("plugins".to_owned()).spawn(look);
    started.inspect_err(|error| tracing::warn!(%error, "cannot look for plugins")).ok().map(|_| found)
}

/// What is wrong now and was not so at the look before, as it is to be logged.
fn new_problems(before: &Plugins, now: &Plugins) -> Vec<String> {
    let known: Vec<String> = before.problems.iter().map(ToString::to_string).collect();
    now.problems.iter().map(ToString::to_string).filter(|problem| !known.contains(problem)).collect()
}

/// The plugins that the database defines are read again after so long, also when nothing tells of a change.
const KEPT: Duration = Duration::from_secs(60);

/// The plugins that the database defines, as this node knows them.
///
/// A look around tells whether any definition has changed, by a small value for all of them; they are read when it has, and when a
/// hint tells of a change. Now and then they are read besides: what somebody has changed by hand may have the same length.
#[derive(Debug, Default)]
pub struct Workers {
    all: Vec<Definition>,
    mark: Option<Bson>,
    read: Option<Instant>,
}

impl Workers {
    pub fn changed(&mut self) {
        self.read = None;
    }

    /// A look around has found this value.
    pub fn marked(&mut self, mark: Option<Bson>) {
        if self.mark != mark {
            self.mark = mark;
            self.changed();
        }
    }

    /// Reads them again if they may have changed. Returns whether they have.
    pub async fn refresh(&mut self, store: &Store) -> Result<bool, StoreError> {
        let now = Instant::now();
        if !self.are_old(now) {
            return Ok(false);
        }
        let all = store.workers().await?;
        Ok(self.set(all, now))
    }

    pub fn all(&self) -> &[Definition] {
        &self.all
    }

    /// What a runner has to know of them for a task of `queue`.
    pub fn of_task(&self, queue: &Queue, task: &RawDocument) -> Vec<RawDocumentBuf> {
        if self.all.is_empty() {
            return Vec::new();
        }
        let of_queue = queue.plugin_name().ok().flatten();
        let mut names = of_steps(task);
        names.extend(of_queue.as_ref().map(|name| name.as_str()));
        let is_named = |worker: &&Definition| names.contains(worker.name.as_str());
        self.all.iter().filter(is_named).map(Definition::to_raw).collect()
    }

    fn are_old(&self, now: Instant) -> bool {
        self.read.is_none_or(|read| now.saturating_duration_since(read) >= KEPT)
    }

    fn set(&mut self, all: Vec<Definition>, now: Instant) -> bool {
        self.read = Some(now);
        let have_changed = all != self.all;
        self.all = all;
        have_changed
    }
}

fn of_steps(task: &RawDocument) -> BTreeSet<&str> {
    let steps = task.get_array("steps").into_iter().flatten().filter_map(Result::ok);
    steps.filter_map(|step| step.as_document()?.get_str("plugin").ok()).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    use bson::oid::ObjectId;
    use bson::{doc, rawdoc};

    use super::*;

    fn executable(path: &Path, text: &str) {
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }

    /// One that knows of nothing, and has not looked for long.
    fn ignorant() -> Availability {
        Availability {
            plugins: Plugins::default(),
            workers: Vec::new(),
            schemas: None,
            looked: Instant::now().checked_sub(LOOK_AGAIN).unwrap(),
            under_way: None,
            missing: BTreeMap::new(),
        }
    }

    fn config(folder: &Path, keys: &str) -> Config {
        let text = format!(r#"{{ "mongohost": "h", "database": "d", {keys} }}"#);
        Config::parse(&text, &folder.join("config.json")).unwrap()
    }

    #[test]
    fn each_version_has_lanes_of_its_own() {
        let folder = tempfile::tempdir().unwrap();
        for (version, warm) in
            [("1", r#"{ "batch": { "max": 4 } }"#), ("2", r#"{ "folder": false }"#), ("3", "true")]
        {
            let place = folder.path().join("plugins").join(version);
            executable(&place.join("run"), "#!/bin/sh\n");
            let manifest = format!(
                r#"{{ "name": "Mail", "version": "{version}", "command": ["./run"], "warm": {warm} }}"#
            );
            fs::write(place.join("plugin.json"), manifest).unwrap();
        }
        let config = config(folder.path(), r#""plugin_dirs": ["plugins"]"#);
        let availability = Availability { plugins: Plugins::discover(&config), ..ignorant() };
        let lanes = |fields: bson::Document| {
            let mut queue = bson::doc! { "_id": bson::oid::ObjectId::new(), "plugin": "Mail" };
            queue.extend(fields);
            availability.lanes_of(&bson::deserialize_from_document(queue).unwrap())
        };
        let told = |lanes: Option<&Lanes>| lanes.map(|lanes| format!("{} {}", lanes.plugin, lanes.most));
        let task = TaskId(bson::oid::ObjectId::new());
        let alone = lanes(bson::doc! {});
        assert_eq!(told(alone.of_any()).as_deref(), Some("Mail 4"));
        assert_eq!(alone.of(task), alone.of_any());
        let tried = |version: &str, share: f64| {
            lanes(bson::doc! { "version": "1", "canary": { "version": version, "share": share } })
        };
        let both = tried("2", 0.5);
        let mut seen: Vec<_> =
            (0..200).map(|_| told(both.of(TaskId(bson::oid::ObjectId::new()))).unwrap()).collect();
        seen.sort();
        seen.dedup();
        assert_eq!((seen, both.of_any()), (vec!["Mail@1 4".to_owned(), "Mail@2 8".to_owned()], None));
        assert_eq!((tried("3", 1.0).of(task), tried("9", 1.0).of(task)), (None, None));
    }

    #[test]
    fn what_another_runner_finds_is_told_besides() {
        let folder = tempfile::tempdir().unwrap();
        executable(&folder.path().join("plugins/My/run"), "#!/bin/sh\n");
        let manifest = r#"{ "name": "My", "command": ["./run"] }"#;
        fs::write(folder.path().join("plugins/My/plugin.json"), manifest).unwrap();
        let found = Plugins::discover(&config(folder.path(), r#""plugin_dirs": ["plugins"]"#));
        let availability = Availability { plugins: found, ..ignorant() };
        let names = |keys: &str| {
            let mut names = availability.names(&config(folder.path(), keys));
            // Those that Disbatch ships are there, too.
            names.retain(|name| name.contains("My"));
            names
        };
        let plugins = r#""plugins": ["My::X", "My", "A::My"]"#;
        assert_eq!(names(plugins), ["My"]);
        assert_eq!(names(r#""task_runner": "/bin/true""#), ["My"]);
        assert_eq!(names(&format!(r#"{plugins}, "task_runner": "/bin/true""#)), ["A::My", "My", "My::X"]);
    }

    #[tokio::test]
    async fn what_is_new_is_found_beside_all_else() {
        let folder = tempfile::tempdir().unwrap();
        executable(&folder.path().join("plugins/new/run"), "#!/bin/sh\n");
        let manifest = r#"{ "name": "New", "command": ["./run"] }"#;
        fs::write(folder.path().join("plugins/new/plugin.json"), manifest).unwrap();
        let config = config(folder.path(), r#""plugin_dirs": ["plugins"]"#);
        let mut availability = ignorant();
        let found = async {
            while !availability.plugins.names().any(|name| name.as_str() == "New") {
                availability.refresh(&config);
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(30), found).await.unwrap();
    }

    #[test]
    fn a_manifest_that_breaks_is_named_once_and_belongs_to_its_plugin() {
        let folder = tempfile::tempdir().unwrap();
        executable(&folder.path().join("plugins/new/run"), "#!/bin/sh\n");
        let path = folder.path().join("plugins/new/plugin.json");
        fs::write(&path, "{ \"name\": \"New\", # relaxed\n \"command\": [\"./run\",], }").unwrap();
        let config = config(folder.path(), r#""plugin_dirs": ["plugins"]"#);
        let good = Plugins::discover(&config);
        assert!(
            good.reports().iter().all(|told| told.plugin.as_deref() != Some("New")),
            "{:?}",
            good.reports()
        );
        fs::write(&path, r#"{ "name": "New", "command": ["./run" }"#).unwrap();
        let mut broken = Plugins::discover(&config);
        broken.remember(&good);
        let told = new_problems(&good, &broken);
        assert!(
            told.len() == 1 && told[0].contains("plugins/new/plugin.json: command: expected `,` or `]`"),
            "{told:?}"
        );
        assert!(new_problems(&broken, &broken).is_empty());
        fs::write(&path, "{").unwrap();
        let told = new_problems(&broken, &Plugins::discover(&config));
        assert!(
            told.len() == 1 && told[0].contains("plugins/new/plugin.json: EOF while parsing"),
            "{told:?}"
        );
        let reports = broken.reports();
        assert_eq!(reports[0].plugin.as_deref(), Some("New"));
        let of_plugin = broken.problem_with(&"New".parse().unwrap()).unwrap().to_string();
        assert!(of_plugin.contains("plugins/new/plugin.json"), "{of_plugin}");
        assert!(
            Plugins::discover(&config).problem_with(&"New".parse().unwrap()).is_none(),
            "its name is not known"
        );
    }

    #[test]
    fn an_interpreter_that_hangs_holds_nobody_up() {
        let folder = tempfile::tempdir().unwrap();
        executable(&folder.path().join("perl"), "#!/bin/sh\nexec sleep 15\n");
        let config = config(
            folder.path(),
            r#""plugins": { "My::Module": 1 }, "engines": { "perl": { "interpreter": "./perl" } }"#,
        );
        let mut availability = ignorant();
        let begun = Instant::now();
        for _ in 0..3 {
            availability.refresh(&config);
            assert!(availability.under_way.is_some());
        }
        assert!(begun.elapsed() < Duration::from_secs(5));
    }

    fn worker(name: &str) -> Definition {
        Definition::read(doc! { "_id": name, "engine": "http" }).unwrap()
    }

    #[test]
    fn they_are_read_when_something_tells_of_a_change_and_now_and_then() {
        let now = Instant::now();
        let mut workers = Workers::default();
        assert!(workers.are_old(now), "they have not been read");
        assert!(workers.set(vec![worker("a")], now));
        assert!(!workers.are_old(now));
        workers.marked(None);
        assert!(!workers.are_old(now), "it is the same mark");
        workers.marked(Some(Bson::from(5)));
        assert!(workers.are_old(now));
        assert!(!workers.set(vec![worker("a")], now), "nothing has changed that matters");
        workers.marked(Some(Bson::from(5)));
        assert!(!workers.are_old(now) && workers.are_old(now + KEPT));
        workers.changed();
        assert!(workers.are_old(now));
    }

    #[test]
    fn a_runner_is_told_of_those_that_its_task_needs() {
        let mut workers = Workers::default();
        workers.set(["a", "b", "c"].map(worker).to_vec(), Instant::now());
        let queue = doc! { "_id": ObjectId::new(), "name": "q", "plugin": "a" };
        let queue: Queue = bson::deserialize_from_document(queue).unwrap();
        let names = |task: RawDocumentBuf| -> Vec<String> {
            let told = workers.of_task(&queue, &task);
            told.iter().map(|raw| Definition::of_raw(raw).unwrap().name.to_string()).collect()
        };
        assert_eq!(names(rawdoc! { "status": -1 }), ["a"]);
        assert_eq!(names(rawdoc! { "steps": [{ "name": "x" }, { "plugin": "c" }, 5] }), ["a", "c"]);
        assert_eq!(names(rawdoc! { "steps": "odd" }), ["a"]);
    }
}
