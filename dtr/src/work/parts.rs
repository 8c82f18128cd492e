//! The plugins of this host, which of them a task needs, one after the other, and what each is told besides the task itself.

use std::fs::{self, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use disbatch_core::config::Config;
use disbatch_core::link::Assignment;
use disbatch_core::model::{PLUGIN_VERSION, PluginName, Queue, SHADOW_OF, Step, Task};
use disbatch_core::notifications;
use disbatch_core::plugin::{Engine, Manifest, Plugin, Plugins};
use disbatch_core::secrets::NamedSecrets;

use super::Begun;
use crate::plugin::{About, Adapter};
use crate::steps::OfStep;

const BELIEVED_FOR: Duration = Duration::from_secs(1);

/// The plugins of this host, looked for once and again when something has changed: what was found, and the state of the files that
/// say so.
#[derive(Debug)]
pub struct Installed {
    plugins: Plugins,
    seen: Vec<(Option<Mark>, PathBuf)>,
    /// What the database defines besides.
    workers: Vec<Manifest>,
    looked: Instant,
    believed_for: Duration,
}

/// Tells a file that was changed or replaced: device, number, length, and the time of the last change in seconds and
/// nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mark(u64, u64, u64, i64, i64);

impl Mark {
    pub fn of(path: &Path) -> Option<Self> {
        fs::metadata(path).ok().as_ref().map(Self::of_found)
    }

    pub fn of_found(found: &Metadata) -> Self {
        Self(found.dev(), found.ino(), found.size(), found.ctime(), found.ctime_nsec())
    }
}

impl Installed {
    pub fn discover(config: &Config) -> Self {
        // In this order: what changes in between counts as changed later.
        let looked = Instant::now();
        let with_mark = |path: PathBuf| (Mark::of(&path), path);
        let seen = sources(config).into_iter().map(with_mark).collect();
        let (plugins, workers) = (Plugins::discover(config), Vec::new());
        Self { plugins, seen, workers, looked, believed_for: BELIEVED_FOR }
    }

    /// The database defines these plugins for the next task, and no others.
    pub fn define(&mut self, workers: &[Manifest]) {
        if self.workers != workers {
            self.workers = workers.to_vec();
            self.plugins.with_workers(workers);
        }
    }

    /// Looks again if a plugin with this name is not known, or not for certain, or if something has changed. That is asked once a
    /// second at most: where tasks are short, it would be much of what they cost.
    pub fn refresh(&mut self, name: &PluginName, config: &Config) {
        let is_unknown = self.plugins.get(name).is_none();
        if !is_unknown && self.looked.elapsed() < self.believed_for {
            return;
        }
        self.looked = Instant::now();
        if is_unknown || self.seen.iter().any(|(seen, path)| Mark::of(path) != *seen) {
            let workers = std::mem::take(&mut self.workers);
            let mut again = Self::discover(config);
            again.plugins.remember(&self.plugins);
            again.believed_for = self.believed_for;
            *self = again;
            self.define(&workers);
        }
    }

    pub fn get(&self, name: &PluginName) -> Option<&Arc<Plugin>> {
        self.plugins.get_to_run(name)
    }

    /// What looks like plugins and cannot run, as lines that begin with a line break.
    pub fn problems(&self) -> String {
        self.plugins.problems.iter().map(|problem| format!("\n{problem}")).collect()
    }
}

/// The folders and manifests that decide which plugins there are.
fn sources(config: &Config) -> Vec<PathBuf> {
    let base = config.path.parent().unwrap_or(Path::new("."));
    let mut sources = Vec::new();
    for folder in config.plugin_dirs.iter().map(|folder| base.join(folder)) {
        let entries = fs::read_dir(&folder).into_iter().flatten().flatten();
        sources.extend(entries.flat_map(|entry| [entry.path(), entry.path().join("plugin.json")]));
        sources.push(folder.join("plugin.json"));
        sources.push(folder);
    }
    sources
}

#[derive(Debug)]
pub struct Part {
    /// Its name, as the queue or the step gives it, with the version that the claim has chosen.
    pub name: PluginName,
    pub plugin: Arc<Plugin>,
    pub step: Option<Step>,
    pub about: About,
}

#[derive(Debug, PartialEq, Eq)]
pub struct Refused {
    /// For the task's standard error.
    pub why: String,
    /// Of how many steps which one cannot be done, counted from 0, if it is about one.
    pub step: Option<(usize, usize)>,
}

impl From<String> for Refused {
    fn from(why: String) -> Self {
        Self { why, step: None }
    }
}

pub fn queue_of(begun: &Begun) -> Result<&Queue, String> {
    let queue = begun.queue.as_ref();
    let queue = queue.map_err(|error| format!("cannot read queue {}: {error}", begun.task.queue))?;
    queue.as_deref().ok_or_else(|| undefined(begun))
}

/// Whether the private folder of a task is to be there before the task is started. If it turns out later that it is needed after
/// all, it is made then.
pub fn needs_folder(assignment: &Assignment, plugins: &Installed) -> bool {
    let plugin = name_in(assignment).and_then(|name| plugins.get(&name));
    let has_steps = assignment.task.get("steps").map_or(true, |steps| steps.is_some());
    has_steps || plugin.is_none_or(|plugin| plugin.manifest.has_folder())
}

/// The plugin of a task, in the version of its claim, if it can be told without reading the rest.
fn name_in(assignment: &Assignment) -> Option<PluginName> {
    let name: PluginName = assignment.queue.get_str("plugin").ok()?.parse().ok()?;
    let version = assignment.task.get_str(PLUGIN_VERSION).ok().and_then(|version| version.parse().ok());
    Some(version.map_or(name.clone(), |version| name.at(&version)))
}

/// All plugins that a task needs. None of them is started if one is missing: what the others did would be in vain.
pub fn find(begun: &Begun, config: &Config, plugins: &mut Installed) -> Result<Vec<Part>, Refused> {
    let queue = queue_of(begun)?;
    let steps = Step::of_task(&begun.task).map_err(|why| format!("the task cannot be understood: {why}"))?;
    let schedule = begun.schedule.as_ref();
    let schedule = schedule.map_err(|why| format!("cannot read the schedule of the task: {why}"))?.as_ref();
    let last_success =
        schedule.map_or([None; 2], |known| [known.last_success_start, known.last_success_finish]);
    let wanted = wanted(begun, queue, steps)?;
    plugins.define(&begun.workers);
    for (name, _) in &wanted {
        plugins.refresh(name, config);
    }
    let plugins: &Installed = plugins;
    let count = wanted.len();
    let part = |(index, (name, step)): (usize, (PluginName, Option<Step>))| {
        let of_step = step.as_ref().map(|step| of_step(index, count, step));
        // What it ends is the task.
        let is_last = index + 1 == count;
        let refused = |why: String| match &of_step {
            Some(of_step) => {
                Refused { why: format!("{}: {why}", of_step.words()), step: Some((index, count)) }
            }
            None => Refused { why, step: None },
        };
        let missing = || {
            let plugin = name.words().replacen("the ", "", 1);
            format!("{plugin} is not installed on this node{}", plugins.problems())
        };
        let plugin = plugins.get(&name).map(Arc::clone).ok_or_else(|| refused(missing()))?;
        fits(&begun.task, &plugin, step.is_some()).map_err(|why| refused(format!("plugin {name} {why}")))?;
        let secrets = NamedSecrets::load(config, &plugin.manifest.name).map_err(refused)?;
        let asked = plugin.manifest.secure_params_in_environment;
        let about = About {
            last_success,
            commits_in: Some(&config.database).filter(|_| plugin.manifest.commits && is_last).cloned(),
            // What it has done of a step would be done again with those before.
            interruptible: plugin.manifest.interruptible && of_step.is_none(),
            step: of_step.clone(),
            secure_params_in_environment: config.secure_params_in_environment.map_or(asked, |flag| flag.0),
            secrets,
            ..of_engine(&plugin, config)
        };
        Ok::<_, Refused>(Part { name, plugin, step, about })
    };
    wanted.into_iter().enumerate().map(part).collect()
}

/// Whether a runner can have the plugin do a task, or a step of one.
fn fits(task: &Task, plugin: &Plugin, is_step: bool) -> Result<(), &'static str> {
    // A task that runs for the second time has no effects only if its plugin knows that it is one.
    if task.rest.contains_key(SHADOW_OF) && (!plugin.manifest.shadow || is_step) {
        return Err("does not say in its manifest that it can run as a shadow");
    }
    if plugin.handoff {
        return Err("is a runner itself, which only a DEN starts, for the tasks of a queue that has it");
    }
    if is_step && plugin.manifest.engine == Engine::Http {
        return Err(
            "is a web service, which cannot do a step: the task goes on there when its runner has left",
        );
    }
    Ok(())
}

fn of_engine(plugin: &Plugin, config: &Config) -> About {
    let engine = plugin.manifest.engine;
    let adapter = plugin.adapter.as_ref().map(|settings| Adapter {
        engine,
        settings: settings.clone(),
        engine_config: config.engines.told(engine),
        database: config.database.clone(),
        secure_params_in_environment: config.secure_params_in_environment.map(|flag| flag.0),
    });
    let needs_config = matches!(engine, Engine::Perl | Engine::Program);
    let path = if needs_config { config.path.clone() } else { PathBuf::new() };
    let allowed = &config.notifications.allow;
    let notifies = plugin.manifest.name.as_str() == notifications::PLUGIN;
    let allowed_addresses = notifies.then(|| allowed.join(","));
    About { adapter, config: path, allowed_addresses, ..About::default() }
}

/// The names of the plugins, with the steps that they are for.
fn wanted(
    begun: &Begun,
    queue: &Queue,
    steps: Vec<Step>,
) -> Result<Vec<(PluginName, Option<Step>)>, Refused> {
    let of_queue = || -> Result<PluginName, String> {
        let name = queue.plugin_of(&begun.task).map_err(|error| error.to_string())?;
        name.ok_or_else(|| undefined(begun))
    };
    if steps.is_empty() {
        return Ok(vec![(of_queue()?, None)]);
    }
    let named = |step: Step| {
        let name = step.plugin.clone().map_or_else(of_queue, Ok)?;
        Ok::<_, Refused>((name, Some(step)))
    };
    steps.into_iter().map(named).collect()
}

fn of_step(index: usize, count: usize, step: &Step) -> OfStep {
    let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    OfStep { number: number(index.saturating_add(1)), of: number(count), name: step.name.clone() }
}

fn undefined(begun: &Begun) -> String {
    format!("No plugin defined for task {} in queue {}", begun.task.id, begun.task.queue)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use bson::oid::ObjectId;
    use bson::{DateTime, Document, doc};
    use disbatch_core::model::{NodeName, QueueId, TaskId};
    use disbatch_core::plugin::{Program, ProgramType};
    use disbatch_core::schedules::ForRun;
    use disbatch_core::task::Run;

    use super::*;
    use crate::custody::Asked;

    fn install(folder: &Path, plugin: &str, argument: &str) {
        fs::create_dir_all(folder).unwrap();
        let program = folder.join("run.sh");
        fs::write(&program, "#!/bin/sh\n").unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        let manifest = format!(r#"{{"name":"{plugin}","command":["./run.sh","{argument}"]}}"#);
        fs::write(folder.join("plugin.json"), manifest).unwrap();
    }

    #[test]
    fn what_the_database_defines_holds_for_one_task() {
        let folder = tempfile::tempdir().unwrap();
        install(&folder.path().join("plugins/one"), "One", "1");
        let text = r#"{"mongohost":"h","database":"d","plugin_dirs":["plugins"]}"#;
        let config = Config::parse(text, &folder.path().join("config.json")).unwrap();
        let mut installed = Installed { believed_for: Duration::ZERO, ..Installed::discover(&config) };
        let worker = |name: &str| {
            let value = serde_json::json!({ "name": name, "command": ["/bin/sh", "-c"] });
            Manifest::from_value(value).unwrap()
        };
        let (one, two) = ("One".parse().unwrap(), "Two".parse().unwrap());
        installed.define(&[worker("One"), worker("Two")]);
        installed.refresh(&"Unknown".parse().unwrap(), &config);
        assert_eq!(installed.get(&one).unwrap().arguments, ["1"], "files come first");
        assert_eq!(installed.get(&two).unwrap().arguments, ["-c"], "looking again changes nothing");
        installed.define(&[]);
        assert!(installed.get(&two).is_none() && installed.get(&one).is_some());
        fs::write(folder.path().join("plugins/one/plugin.json"), "{").unwrap();
        installed.refresh(&one, &config);
        installed.define(&[worker("One"), worker("Two")]);
        assert!(installed.get(&one).is_none(), "its manifest cannot be read for now");
        assert!(installed.get(&two).is_some());
    }

    #[test]
    fn what_changes_is_seen() {
        let folder = tempfile::tempdir().unwrap();
        let plugins = folder.path().join("plugins");
        install(&plugins.join("one"), "One", "1");
        let text = r#"{"mongohost":"h","database":"d","plugin_dirs":["plugins"]}"#;
        let config = Config::parse(text, &folder.path().join("config.json")).unwrap();
        let mut installed = Installed { believed_for: Duration::ZERO, ..Installed::discover(&config) };
        let mut arguments = |name: &str| {
            let name = name.parse().unwrap();
            installed.refresh(&name, &config);
            installed.get(&name).map(|plugin| plugin.arguments.concat())
        };
        assert_eq!(arguments("One").as_deref(), Some("1"));
        assert_eq!(arguments("Two"), None);
        install(&plugins.join("two"), "Two", "2");
        assert_eq!(arguments("Two").as_deref(), Some("2"));
        install(&plugins.join("one"), "One", "changed");
        assert_eq!(arguments("One").as_deref(), Some("changed"));
        fs::remove_file(plugins.join("one/plugin.json")).unwrap();
        assert_eq!(arguments("One"), None);
        fs::rename(plugins.join("two"), plugins.join("three")).unwrap();
        assert!(arguments("Two").is_some());
        fs::remove_dir_all(&plugins).unwrap();
        assert_eq!(arguments("Two"), None);
    }

    #[test]
    fn what_was_just_seen_is_believed_for_a_moment() {
        let folder = tempfile::tempdir().unwrap();
        let plugins = folder.path().join("plugins");
        install(&plugins.join("one"), "One", "1");
        let text = r#"{"mongohost":"h","database":"d","plugin_dirs":["plugins"]}"#;
        let config = Config::parse(text, &folder.path().join("config.json")).unwrap();
        let long = Duration::from_secs(1000);
        let mut installed = Installed { believed_for: long, ..Installed::discover(&config) };
        install(&plugins.join("one"), "One", "changed");
        let mut arguments = |name: &str| {
            let name = name.parse().unwrap();
            installed.refresh(&name, &config);
            installed.get(&name).map(|plugin| plugin.arguments.concat())
        };
        assert_eq!(arguments("One").as_deref(), Some("1"));
        install(&plugins.join("two"), "Two", "2");
        assert_eq!(arguments("Two").as_deref(), Some("2"), "who is missing is looked for at once");
        assert_eq!(arguments("One").as_deref(), Some("changed"), "with everybody else");
    }

    fn begun(task: Document, queue: Document) -> Begun {
        let (id, queue_id) = (ObjectId::from_bytes([1; 12]), ObjectId::from_bytes([2; 12]));
        let mut document = doc! { "_id": id, "queue": queue_id, "status": 0 };
        document.extend(task);
        let mut of_queue = doc! { "_id": queue_id, "name": "q" };
        of_queue.extend(queue);
        let task: Task = bson::deserialize_from_document(document).unwrap();
        let node = NodeName::new("n");
        Begun {
            task,
            queue: Ok(Some(Arc::new(bson::deserialize_from_document(of_queue).unwrap()))),
            schedule: Ok(None),
            workers: Vec::new(),
            run: Run { task: TaskId(id), queue: QueueId(queue_id), node, attempt: 1, instance: None },
            asked: Asked::now(),
            until_deadline: None,
            lease: Duration::from_secs(30),
        }
    }

    /// A node with the plugins One and Two, of which Two asks for secure parameters in a variable.
    fn node(folder: &Path, keys: &str) -> Config {
        for (name, more) in [("One", ""), ("Two", r#", "secure_params_in_environment": true"#)] {
            let plugin = folder.join("plugins").join(name);
            fs::create_dir_all(&plugin).unwrap();
            fs::write(plugin.join("run"), "#!/bin/sh\n").unwrap();
            fs::set_permissions(plugin.join("run"), fs::Permissions::from_mode(0o755)).unwrap();
            let manifest = format!(r#"{{ "name": "{name}", "command": ["./run"]{more} }}"#);
            fs::write(plugin.join("plugin.json"), manifest).unwrap();
        }
        let text = format!(r#"{{"mongohost":"h","database":"d","plugin_dirs":["plugins"]{keys}}}"#);
        Config::parse(&text, &folder.join("config.json")).unwrap()
    }

    /// The names of the plugins, with the numbers and names of their steps.
    fn found(begun: &Begun, config: &Config) -> Result<Vec<String>, Refused> {
        let mut installed = Installed::discover(config);
        let parts = find(begun, config, &mut installed)?;
        let words = |part: &Part| part.about.step.as_ref().map_or(String::new(), OfStep::words);
        Ok(parts.iter().map(|part| format!("{} {}", part.name, words(part)).trim().to_owned()).collect())
    }

    #[test]
    fn a_task_has_the_plugin_of_its_queue_or_those_of_its_steps() {
        let folder = tempfile::tempdir().unwrap();
        let config = node(folder.path(), "");
        let one = doc! { "plugin": "One" };
        assert_eq!(found(&begun(doc! {}, one.clone()), &config).unwrap(), ["One"]);
        let steps = doc! { "steps": [{ "name": "get" }, { "name": "use", "plugin": "Two" }] };
        let expected = ["One step 1 of 2 (get)", "Two step 2 of 2 (use)"];
        assert_eq!(found(&begun(steps.clone(), one), &config).unwrap(), expected);
        let refused = found(&begun(steps, doc! {}), &config).unwrap_err();
        assert!(refused.why.starts_with("No plugin defined for task"), "{refused:?}");
    }

    #[test]
    fn nothing_is_begun_when_a_later_plugin_is_missing() {
        let folder = tempfile::tempdir().unwrap();
        let config = node(folder.path(), "");
        let steps = doc! { "steps": [{}, { "name": "use", "plugin": "Three" }] };
        let refused = found(&begun(steps, doc! { "plugin": "One" }), &config).unwrap_err();
        assert_eq!(refused.step, Some((1, 2)));
        let start = "step 2 of 2 (use): plugin Three is not installed on this node";
        assert!(refused.why.starts_with(start), "{refused:?}");
        let odd = begun(doc! { "steps": 7 }, doc! { "plugin": "One" });
        let refused = found(&odd, &config).unwrap_err();
        assert_eq!(refused.why, "the task cannot be understood: steps must be an array");
        let schedule = Err("no rights".to_owned());
        let unread = Begun { schedule, ..begun(doc! {}, doc! { "plugin": "One" }) };
        let refused = found(&unread, &config).unwrap_err();
        assert_eq!(refused.why, "cannot read the schedule of the task: no rights");
    }

    #[test]
    fn the_database_may_define_a_plugin() {
        let folder = tempfile::tempdir().unwrap();
        let config = node(folder.path(), "");
        let value = serde_json::json!({ "name": "Three", "command": ["/bin/sh"] });
        let three = Manifest::from_value(value).unwrap();
        let begun = Begun { workers: vec![three], ..begun(doc! {}, doc! { "plugin": "Three" }) };
        assert_eq!(found(&begun, &config).unwrap(), ["Three"]);
    }

    #[test]
    fn not_every_plugin_does_steps() {
        let plugin = |value: serde_json::Value| {
            Plugin::new(Manifest::from_value(value).unwrap(), "/bin/true".into(), Vec::new())
        };
        let exec = plugin(serde_json::json!({ "name": "A", "command": ["a"] }));
        let web = plugin(serde_json::json!({ "name": "A", "engine": "http" }));
        let runner = Program { kind: ProgramType::Handoff, ..Program::default() };
        let runner = Manifest::of_program("A".parse().unwrap(), runner);
        let runner = Plugin::new(runner, "/bin/true".into(), Vec::new());
        let task = begun(doc! {}, doc! {}).task;
        let fit = |plugin: &Plugin| [false, true].map(|is_step| fits(&task, plugin, is_step).is_ok());
        assert_eq!([fit(&exec), fit(&web), fit(&runner)], [[true, true], [true, false], [false, false]]);
    }

    #[test]
    fn the_node_says_before_the_manifest_who_finds_secure_parameters_in_a_variable() {
        for (keys, expected) in [
            ("", [false, true]),
            (r#","secure_params_in_environment":true"#, [true, true]),
            (r#","secure_params_in_environment":false"#, [false, false]),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let config = node(folder.path(), keys);
            let steps = doc! { "steps": [{ "plugin": "One" }, { "plugin": "Two" }] };
            let begun = begun(steps, doc! {});
            let mut installed = Installed::discover(&config);
            let parts = find(&begun, &config, &mut installed).unwrap();
            let asked: Vec<bool> = parts.iter().map(|part| part.about.secure_params_in_environment).collect();
            assert_eq!(asked, expected, "{keys}");
        }
    }

    #[test]
    fn what_is_told_comes_from_the_schedule_and_from_files_of_the_node() {
        let folder = tempfile::tempdir().unwrap();
        let keys =
            r#","secrets_dir":"secrets","secret_environment":{"key":{"variable":"KEY","plugins":["Two"]}}"#;
        let config = node(folder.path(), keys);
        let schedule = ForRun {
            id: ObjectId::new(),
            name: "nightly".to_owned(),
            storage: None,
            last_success_start: Some(DateTime::from_millis(5)),
            last_success_finish: Some(DateTime::from_millis(6)),
        };
        let steps = doc! { "steps": [{ "plugin": "One" }, { "plugin": "Two" }] };
        let begun = Begun { schedule: Ok(Some(schedule)), ..begun(steps, doc! {}) };
        let refused = found(&begun, &config).unwrap_err();
        let start = "step 2 of 2 (step 2): cannot read the secret key: No such file";
        assert!(refused.why.starts_with(start), "{refused:?}");
        fs::create_dir(folder.path().join("secrets")).unwrap();
        fs::write(folder.path().join("secrets/key"), "horse\n").unwrap();
        fs::set_permissions(folder.path().join("secrets/key"), fs::Permissions::from_mode(0o600)).unwrap();
        let mut installed = Installed::discover(&config);
        let parts = find(&begun, &config, &mut installed).unwrap();
        let times = [5, 6].map(|millis| Some(DateTime::from_millis(millis)));
        assert!(parts.iter().all(|part| part.about.last_success == times));
        let secrets = |part: &Part| part.about.secrets.variables().count();
        assert_eq!(parts.iter().map(secrets).collect::<Vec<_>>(), [0, 1]);
        assert!(!format!("{parts:?}").contains("horse"));
    }
}
