//! What recordings have in common: made and stored once, and then only named. The sums of the files of plugins are among it.

use std::collections::{HashMap, VecDeque};
use std::ffi::OsString;
use std::fs::{self, File, Metadata};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use bson::{Bson, DateTime};
use disbatch_core::files::ContentHasher;
use disbatch_core::model::Queue;
use disbatch_core::plugin::Plugin;
use disbatch_core::recordings::CommonPart;
use disbatch_wire::bundles::{PluginFile, RecordedPlugin, RecordedStep, Recording, Variable};
use serde_json::Value;

use crate::files::content::hash_on;
use crate::isolation::Environment;
use crate::lock;
use crate::work::parts::{Mark, Part};

/// A runner remembers so many: of each queue one, unless something changes.
const MOST: usize = 16;

/// What no recording has.
const NEVER: [&str; 3] = [
    "what the plugin found outside: other files, databases, the network, the time, random numbers",
    "secrets: secure parameters and the values of secret variables",
    "libraries that the plugin loads from outside its folder",
];

/// What a recording of a warm plugin lacks besides.
const WARM: &str = "the environment and the times of output: the plugin is warm";

/// What a recording of a task with steps lacks besides.
const STEPS: &str = "the environments of all steps but the first";

/// Larger files of plugins are not read.
const LARGEST: u64 = 64 * 1024 * 1024;

/// So many sums are remembered.
const MOST_SUMS: usize = 2_000;

/// For so long a plugin is taken to have the files that it had. That these are the same is looked at each time.
const STAY: Duration = Duration::from_secs(1);

/// By what it follows which files a plugin has.
type Place = (PathBuf, Vec<String>, Option<PathBuf>);

/// Of what the common part is made. Only what may differ from attempt to attempt of a queue is copied.
#[derive(Debug)]
pub struct Common<'a> {
    queue: &'a Queue,
    parts: &'a [Part],
    /// Without the queue, the manifests and the variables.
    rest: Recording,
    environment: Arc<[Variable]>,
}

impl<'a> Common<'a> {
    /// Of an attempt whose plugins have these files, and whose first had these variables.
    pub fn new(
        queue: &'a Queue,
        parts: &'a [Part],
        files: Vec<Vec<PluginFile>>,
        environment: Arc<[Variable]>,
    ) -> Self {
        let mut files = files.into_iter();
        let mut plugins = parts.iter().map(|part| recorded_plugin(part, files.next().unwrap_or_default()));
        let (plugin, steps) = match parts {
            [first, ..] if first.step.is_some() => {
                let step = |plugin| RecordedStep { plugin, ..RecordedStep::default() };
                let steps: Vec<_> = plugins.map(step).collect();
                (steps.first().map(|step| step.plugin.clone()), steps)
            }
            _ => (plugins.next(), Vec::new()),
        };
        let not_recorded = parts.first().map(not_recorded).unwrap_or_default();
        let plugin = plugin.unwrap_or_default();
        let rest = Recording { plugin, steps, not_recorded, ..Recording::default() };
        Self { queue, parts, rest, environment }
    }

    pub fn recording(&self) -> Recording {
        let mut all = self.rest.clone();
        all.queue = extended(self.queue);
        all.environment = self.environment.to_vec();
        let of_steps = all.steps.iter_mut().map(|step| &mut step.plugin).zip(self.parts);
        for (plugin, part) in
            self.parts.first().map(|first| (&mut all.plugin, first)).into_iter().chain(of_steps)
        {
            plugin.manifest = serde_json::to_value(&part.plugin.manifest).unwrap_or_default();
        }
        all
    }
}

/// The common parts that this runner has stored. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Commons(Arc<Mutex<Memory>>);

#[derive(Debug, Default)]
struct Memory {
    /// The latest last.
    known: VecDeque<Known>,
    inherited: Option<Inherited>,
}

#[derive(Debug)]
struct Known {
    queue: Queue,
    plugins: Vec<Arc<Plugin>>,
    rest: Recording,
    environment: Arc<[Variable]>,
    part: CommonPart,
}

/// The variables of the last attempt that may be those of the next.
#[derive(Debug)]
struct Inherited {
    given: Environment,
    /// Those of named secrets.
    named: Vec<String>,
    /// As they are recorded.
    shown: Arc<[Variable]>,
}

impl Inherited {
    fn is(&self, given: &[&(OsString, OsString)], named: &[String]) -> bool {
        self.named == named && self.given.iter().eq(given.iter().copied())
    }
}

impl Known {
    fn is(&self, common: &Common<'_>) -> bool {
        let is_same = |one: &Arc<Plugin>, other: &Part| {
            Arc::ptr_eq(one, &other.plugin) || one.manifest == other.plugin.manifest
        };
        self.queue == *common.queue
            && self.rest == common.rest
            && (Arc::ptr_eq(&self.environment, &common.environment) || self.environment == common.environment)
            && self.plugins.len() == common.parts.len()
            && self.plugins.iter().zip(common.parts).all(|(one, other)| is_same(one, other))
    }
}

impl Commons {
    /// Where it is stored, if a recording that is kept for so long from now on may name it.
    pub fn part(&self, common: &Common<'_>, now: DateTime, keep_ms: i64) -> Option<CommonPart> {
        let memory = lock(&self.0);
        let mut found = memory.known.iter().filter(|known| known.is(common)).map(|known| &known.part);
        found.find(|part| part.outlives(now, keep_ms)).cloned()
    }

    pub fn remember(&self, common: Common<'_>, part: CommonPart) {
        let known = &mut lock(&self.0).known;
        known.retain(|known| !known.is(&common));
        if known.len() >= MOST {
            known.pop_front();
        }
        let plugins = common.parts.iter().map(|part| Arc::clone(&part.plugin)).collect();
        let Common { queue, rest, environment, .. } = common;
        known.push_back(Known { queue: queue.clone(), plugins, rest, environment, part });
    }

    /// Variables that do not come from the task, as they are recorded: `make` is asked for them where they are not as they were.
    pub fn variables(
        &self,
        given: &[&(OsString, OsString)],
        named: Vec<String>,
        make: impl FnOnce() -> Vec<Variable>,
    ) -> Arc<[Variable]> {
        let inherited = &mut lock(&self.0).inherited;
        if let Some(same) = inherited.as_ref().filter(|same| same.is(given, &named)) {
            return Arc::clone(&same.shown);
        }
        let given = Environment::of(given.iter().map(|variable| (*variable).clone()).collect());
        Arc::clone(&inherited.insert(Inherited { given, named, shown: make().into() }).shown)
    }
}

fn recorded_plugin(part: &Part, files: Vec<PluginFile>) -> RecordedPlugin {
    let (name, version) = (part.name.base().to_owned(), part.plugin.manifest.version.clone());
    RecordedPlugin { name, version, manifest: Value::Null, files }
}

/// A document as pages and bundles have it.
fn extended(queue: &Queue) -> Value {
    bson::serialize_to_document(queue)
        .map(|queue| Bson::from(queue).into_relaxed_extjson())
        .unwrap_or_default()
}

fn not_recorded(part: &Part) -> Vec<String> {
    let further = [(part.plugin.manifest.warm.is_some(), WARM), (part.step.is_some(), STEPS)];
    let further = further.into_iter().filter_map(|(is_so, what)| is_so.then_some(what));
    NEVER.into_iter().chain(further).map(str::to_owned).collect()
}

/// SHA-256 sums of the files of plugins, as far as they are known. Which a plugin has is looked at once a second, as its manifest is,
/// and each is read again only when it looks different. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Sums(Arc<Mutex<SumCache>>);

#[derive(Debug, Default)]
struct SumCache {
    sums: HashMap<PathBuf, (Mark, String)>,
    plugins: HashMap<Place, (Instant, Vec<PathBuf>)>,
}

impl SumCache {
    /// The sum of a file that looks like this, if there is one. `None`: the file has to be read for it.
    fn of(&self, path: &Path, found: &Metadata) -> Option<Option<String>> {
        match self.sums.get(path) {
            Some((same, sum)) if *same == Mark::of_found(found) => Some(Some(sum.clone())),
            _ => (found.len() > LARGEST).then_some(None),
        }
    }
}

impl Sums {
    /// The files of a plugin with their sums, without those that are gone.
    pub fn of(&self, plugin: &Plugin) -> Vec<PluginFile> {
        let now = Instant::now();
        let files = plugin.files();
        let found = self.of_files(&files);
        let mut known = lock(&self.0);
        known.plugins.retain(|_, (at, _)| at.elapsed() < STAY);
        known.plugins.insert(place(plugin), (now, files));
        found
    }

    /// The same, if no file has to be read for it.
    pub fn known_of(&self, plugin: &Plugin) -> Option<Vec<PluginFile>> {
        let known = lock(&self.0);
        let (at, files) = known.plugins.get(&place(plugin))?;
        let file = |path: &PathBuf| {
            let found = fs::metadata(path).ok()?;
            Some(plugin_file(path, &found, known.of(path, &found)?))
        };
        (at.elapsed() < STAY).then(|| files.iter().map(file).collect()).flatten()
    }

    fn of_files(&self, files: &[PathBuf]) -> Vec<PluginFile> {
        files.iter().filter_map(|file| self.one(file).ok()).collect()
    }

    fn one(&self, path: &Path) -> io::Result<PluginFile> {
        let found = fs::metadata(path)?;
        if let Some(sum) = lock(&self.0).of(path, &found) {
            return Ok(plugin_file(path, &found, sum));
        }
        let hasher = hash_on(&File::open(path)?, ContentHasher::default(), u64::MAX)?;
        let sum = hasher.finish().to_string();
        let mut known = lock(&self.0);
        if known.sums.len() >= MOST_SUMS {
            known.sums.clear();
        }
        known.sums.insert(path.to_owned(), (Mark::of_found(&found), sum.clone()));
        Ok(plugin_file(path, &found, Some(sum)))
    }
}

fn place(plugin: &Plugin) -> Place {
    (plugin.program.clone(), plugin.arguments.clone(), plugin.folder.clone())
}

fn plugin_file(path: &Path, found: &Metadata, sha256: Option<String>) -> PluginFile {
    PluginFile { path: path.to_string_lossy().into_owned(), size: found.len(), sha256 }
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use bson::oid::ObjectId;
    use disbatch_core::plugin::Manifest;

    use super::*;
    use crate::plugin::About;

    const DAY: i64 = 86_400_000;

    fn queue(name: &str) -> Queue {
        bson::deserialize_from_document(doc! { "_id": ObjectId::from_bytes([1; 12]), "name": name }).unwrap()
    }

    fn parts(title: &str) -> [Part; 1] {
        let manifest = format!(r#"{{ "name": "A", "command": ["a"], "title": "{title}" }}"#);
        let plugin = Plugin::new(Manifest::parse(&manifest).unwrap(), "/bin/true".into(), Vec::new());
        [Part { name: "A".parse().unwrap(), plugin: Arc::new(plugin), step: None, about: About::default() }]
    }

    fn of<'a>(queue: &'a Queue, parts: &'a [Part], size: u64, variable: &str) -> Common<'a> {
        let file = PluginFile { size, ..PluginFile::default() };
        let variable = Variable { name: variable.to_owned(), ..Variable::default() };
        Common::new(queue, parts, vec![vec![file]], Arc::new([variable]))
    }

    #[test]
    fn what_is_the_same_is_stored_once_and_again_before_it_goes() {
        let (commons, at) = (Commons::default(), DateTime::from_millis);
        let (queue, other_queue) = (queue("one"), queue("two"));
        // Read anew, it is the same.
        let [same, again, other] = ["t", "t", "u"].map(parts);
        let part = CommonPart::new("text", at(0), DAY);
        assert_eq!(commons.part(&of(&queue, &same, 1, "A"), at(0), DAY), None);
        commons.remember(of(&queue, &same, 1, "A"), part.clone());
        assert_eq!(commons.part(&of(&queue, &again, 1, "A"), at(0), DAY), Some(part.clone()));
        let others = [
            of(&other_queue, &same, 1, "A"),
            of(&queue, &other, 1, "A"),
            of(&queue, &same, 2, "A"),
            of(&queue, &same, 1, "B"),
        ];
        for other in others {
            assert_eq!(commons.part(&other, at(0), DAY), None, "{other:?}");
        }
        for (now, keep) in [(0, 2 * DAY + 1), (DAY + 1, DAY)] {
            assert_eq!(commons.part(&of(&queue, &same, 1, "A"), at(now), keep), None);
        }
        for size in 2..=MOST as u64 + 1 {
            commons.remember(of(&queue, &same, size, "A"), part.clone());
        }
        assert_eq!(commons.part(&of(&queue, &same, 1, "A"), at(0), DAY), None, "it is the oldest");
        assert!(commons.part(&of(&queue, &same, 2, "A"), at(0), DAY).is_some());
    }

    #[test]
    fn variables_are_made_again_only_where_they_or_the_named_secrets_have_changed() {
        let commons = Commons::default();
        let made = std::cell::Cell::new(0);
        let variables = |value: &str, named: &[&str]| {
            let given = [("A".into(), OsString::from(value)), ("B".into(), "b".into())];
            let named = named.iter().map(|name| (*name).to_owned()).collect();
            let make = || {
                made.set(made.get() + 1);
                vec![Variable { name: value.to_owned(), ..Variable::default() }]
            };
            commons.variables(&given.iter().collect::<Vec<_>>(), named, make)[0].name.clone()
        };
        for (value, named, expected) in [
            ("1", &[][..], 1),
            ("1", &[], 1),
            ("2", &[], 2),
            ("2", &["A"], 3),
            ("2", &["A"], 3),
            ("1", &[], 4),
        ] {
            assert_eq!((variables(value, named).as_str(), made.get()), (value, expected));
        }
    }

    #[test]
    fn it_has_the_queue_and_the_plugin_whole() {
        let (queue, parts) = (queue("one"), parts("t"));
        let recording = of(&queue, &parts, 7, "A").recording();
        assert!(
            recording.queue["name"] == "one" && recording.plugin.manifest["title"] == "t",
            "{recording:?}"
        );
        assert_eq!((recording.plugin.name.as_str(), recording.plugin.files[0].size), ("A", 7));
        assert_eq!((recording.environment.len(), recording.not_recorded.len()), (1, NEVER.len()));
    }

    #[test]
    fn a_file_that_has_changed_has_another_sum() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("run");
        let (sums, files) = (Sums::default(), [path.clone(), folder.path().join("gone")]);
        fs::write(&path, "abc").unwrap();
        let sum = || {
            sums.of_files(&files)
                .into_iter()
                .map(|file| (file.size, file.sha256.unwrap()))
                .collect::<Vec<_>>()
        };
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(sum(), [(3, abc.to_owned())]);
        assert_eq!(sum(), [(3, abc.to_owned())]);
        fs::write(&path, "abcd").unwrap();
        assert_ne!(sum()[0].1, abc);
    }
}
