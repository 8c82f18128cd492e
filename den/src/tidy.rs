//! What dead runners have left: containers and private folders of tasks.

use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use disbatch_core::cgroup;
use disbatch_core::config::Config;
use disbatch_core::model::{NodeName, TaskId};
use disbatch_core::plugin::{Engine, Plugin, adapter_program};
use disbatch_core::private_folder::{LEFT, PrivateFolder};
use disbatch_core::remove_tree::{is_being_removed, remove_tree};
use disbatch_core::store::StoreError;
use tokio::process::Command;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{sleep, timeout};

use crate::node::Node;
use crate::processes::{self, Ours, Wanted};

/// How often it is looked for containers when nothing has happened.
const EVERY: Duration = Duration::from_secs(60);

/// When it is tried again if not all could be removed: one that is ending at that moment, for instance.
const AGAIN: Duration = Duration::from_secs(15);

/// A container engine that takes longer is asked again later.
const LONGEST: Duration = Duration::from_secs(120);

#[derive(Debug, Clone)]
struct Order {
    /// None: there can be no containers.
    program: Option<PathBuf>,
    /// What it is told of this node.
    arguments: Vec<OsString>,
    /// Where container engines are: those of the node, and of plugins that there are or have been since it was started. An
    /// empty one is looked for.
    sockets: BTreeSet<String>,
    /// The variables that adapters have: they find the same container engine.
    environment: Vec<(OsString, OsString)>,
}

impl Order {
    fn all_arguments(&self) -> Vec<OsString> {
        let mut arguments = self.arguments.clone();
        let unknown = self.sockets.is_empty().then_some("");
        for socket in self.sockets.iter().map(String::as_str).chain(unknown) {
            arguments.extend(["--socket", socket].map(OsString::from));
        }
        arguments
    }
}

/// Has the containers removed that nobody looks after any more, as their adapters were killed. The adapter's program knows
/// how; it is run when the node starts, when a runner has died, and every minute, as long as the configuration lets the node
/// run containers: those of a plugin that is gone by now may still be there.
///
/// Nothing more is run when this is dropped.
#[derive(Debug)]
pub struct Tidier {
    order: watch::Sender<Order>,
    soon: Arc<Notify>,
}

impl Tidier {
    /// Begins to wait for what [`Tidier::look`] says. `user`: whom plugins run as, if that is another user.
    pub fn start(config: &Config, node: &NodeName, database: &str, user: Option<u32>) -> Self {
        let mut arguments: Vec<OsString> =
            ["tidy", "--node", node.as_str(), "--database", database].map(OsString::from).to_vec();
        if let Some(user) = user {
            arguments.extend(["--user".into(), user.to_string().into()]);
        }
        let environment =
            std::env::vars_os().filter(|(name, _)| config.plugin_environment.passes(name)).collect();
        Self::with(arguments, environment)
    }

    fn with(arguments: Vec<OsString>, environment: Vec<(OsString, OsString)>) -> Self {
        let order = Order { program: None, arguments, sockets: BTreeSet::new(), environment };
        let ((order, orders), soon) = (watch::channel(order), Arc::new(Notify::new()));
        tokio::spawn(work(orders, Arc::clone(&soon)));
        Self { order, soon }
    }

    /// Takes note of the plugins that run in containers. `program`: the adapter's, if the node may run containers and has it;
    /// `of_node`: the socket that the node names.
    pub fn look<'a>(
        &self,
        program: Option<&Path>,
        plugins: impl Iterator<Item = &'a Plugin>,
        of_node: Option<&str>,
    ) {
        let own = |plugin: &'a Plugin| plugin.manifest.container.as_ref()?.socket.as_deref();
        let of_plugins = plugins.map(|plugin| own(plugin).or(of_node).unwrap_or_default());
        let sockets = of_plugins.chain(of_node).filter(|_| program.is_some()).map(str::to_owned);
        let mut sockets: BTreeSet<String> = sockets.collect();
        self.order.send_if_modified(|order| {
            if program.is_some() {
                // A plugin that is gone may have left a container there.
                sockets.extend(order.sockets.iter().cloned());
            }
            let is_new = order.program.as_deref() != program || order.sockets != sockets;
            (order.program, order.sockets) = (program.map(Path::to_owned), sockets);
            is_new
        });
    }

    /// Something has happened by which a container may have lost its adapter.
    pub fn soon(&self) {
        self.soon.notify_one();
    }
}

impl Node {
    /// Has it known which plugins there are.
    pub(crate) fn look_after_containers(&self) {
        let engines = &self.config.engines;
        let socket = engines.container.as_ref().and_then(|engine| engine.socket.as_deref());
        let is_enabled = engines.is_enabled(Engine::Container);
        let program = is_enabled.then(|| adapter_program(Engine::Container)).flatten();
        self.tidier.look(program.as_deref(), self.availability.in_containers(), socket);
    }
}

async fn work(mut orders: watch::Receiver<Order>, soon: Arc<Notify>) {
    let mut said = None;
    loop {
        let order = orders.borrow_and_update().clone();
        if let Some(program) = &order.program {
            let complaint = run(program, &order).await.err();
            if let Some(why) = complaint.as_ref().filter(|_| said != complaint) {
                tracing::warn!("cannot remove containers that were left: {why}");
            }
            said = complaint;
        }
        tokio::select! {
            changed = orders.changed() => if changed.is_err() {
                return;
            },
            () = soon.notified() => {}
            () = sleep(if said.is_some() { AGAIN } else { EVERY }) => {}
        }
    }
}

/// Runs it, and logs what it has removed.
async fn run(program: &Path, order: &Order) -> Result<(), String> {
    let mut command = Command::new(program);
    command
        .args(order.all_arguments())
        .env_clear()
        .envs(order.environment.iter().map(|(name, value)| (name, value)))
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let Output { status, stdout, stderr } = match timeout(LONGEST, command.output()).await {
        Ok(output) => output.map_err(|error: io::Error| format!("{}: {error}", program.display()))?,
        Err(_) => return Err(format!("no answer within {} s", LONGEST.as_secs())),
    };
    for line in String::from_utf8_lossy(&stdout).lines() {
        tracing::info!("{line}");
    }
    if status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&stderr);
    Err(if said.trim().is_empty() { status.to_string() } else { said.trim().replace('\n', "; ") })
}

/// One look's folders at a time are removed, beside the node's loop: that may take long. What is left meanwhile is found again.
static REMOVAL: Semaphore = Semaphore::const_new(1);

impl Node {
    /// Removes private folders of tasks that nobody has claimed and of which no process is left, and their live output. Also the
    /// control groups of runners that are gone.
    ///
    /// A task that this database does not know may be another's: its folder is left alone.
    ///
    /// A runner removes its own, and its guard does when the runner is dead: that may take minutes, and is left to them. Where both died, or the
    /// runner did before it had a guard, the folder is left for the DEN. A runner that lives may use a folder again for its next task. Both give it
    /// another name first, which only one of them can; so nothing is removed that has got another task's files meanwhile.
    pub(crate) async fn remove_left_folders(&self) -> Result<(), StoreError> {
        cgroup::remove_left(&self.config);
        let living = self.runners.launcher.tasks();
        let mut left = Vec::new();
        for (task, folder) in private_folders(&self.config.temp_folder(), &self.ours) {
            match task {
                Some(task) if living.contains(&task) || is_being_removed(&folder) => {}
                Some(task) => left.push((task, folder)),
                // It is empty. Should its runner live, it makes another one.
                None => drop(tokio::fs::remove_dir(&folder).await),
            }
        }
        let ids: Vec<TaskId> = left.iter().map(|(task, _)| *task).collect();
        let without_run = self.store.without_run(&ids).await?;
        let mut taken = Vec::new();
        for (task, folder) in left {
            // However many there are, the heartbeat must not starve.
            if !taken.is_empty() && self.pace.wants_beat(Instant::now()) {
                break;
            }
            let Some(stored) = without_run.iter().find(|stored| stored.id == task) else { continue };
            // In this order: a runner makes its folder before it starts its task.
            if processes::of_task(Wanted::of(task, &self.ours)).map_or(true, |left| !left.is_empty()) {
                continue;
            }
            // It may have died after it had stored its result, and before it had tidied up.
            self.store.remove_live(task, stored.attempt()).await?;
            match take(&folder).await {
                Ok(folder) => taken.push((task, folder)),
                Err(error) => tracing::debug!(%error, %task, "cannot take what a dead runner left"),
            }
        }
        // Whoever finds it in vain finds it again: the permit is for the removal alone.
        let Ok(removal) = REMOVAL.try_acquire() else { return Ok(()) };
        let work = move || {
            for (task, folder) in taken {
                match remove_tree(&folder) {
                    Ok(()) => {
                        tracing::info!(%task, folder = %folder.display(), "removed what a dead runner left");
                    }
                    Err(error) => tracing::debug!(%error, %task, "cannot remove what a dead runner left"),
                }
            }
            drop(removal);
        };
        // Not one of the runtime's, for which the end of this process would wait.
        if let Err(error) = thread::Builder::new().name("removal".to_owned()).spawn(work) {
            tracing::debug!(%error, "cannot remove what dead runners left");
        }
        Ok(())
    }
}

/// Gives a folder the name that nobody else gives it, unless it has it.
async fn take(folder: &Path) -> io::Result<PathBuf> {
    if folder.extension().is_some_and(|extension| extension == LEFT) {
        return Ok(folder.to_owned());
    }
    let mut ours = folder.as_os_str().to_owned();
    ours.push(".");
    ours.push(LEFT);
    tokio::fs::rename(folder, &ours).await?;
    Ok(ours.into())
}

/// The private folders in `parent` that are ours, with their tasks. A folder belongs to the user whom its plugin runs as.
fn private_folders(parent: &Path, ours: &Ours) -> Vec<(Option<TaskId>, PathBuf)> {
    let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
    entries
        .filter_map(Result::ok)
        .filter_map(|entry| Some((PrivateFolder::parse(entry.file_name().to_str()?)?.task, entry)))
        .filter(|(_, entry)| entry.metadata().is_ok_and(|found| found.is_dir() && ours.has(found.uid())))
        .map(|(task, entry)| (task, entry.path()))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;
    use std::os::unix::fs::PermissionsExt;

    use disbatch_core::plugin::Manifest;

    use super::*;

    /// Notes its arguments and what it finds in a variable, one line for each run.
    fn program(folder: &Path) -> PathBuf {
        let path = folder.join("adapter");
        fs::write(&path, "#!/bin/sh\necho \"$* $GIVEN\" >> \"${0%/*}/log\"\n").unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        path
    }

    fn plugin(program: &Path, container: &str) -> Plugin {
        let text = format!(r#"{{ "name": "A", "engine": "container", "container": {container} }}"#);
        Plugin::new(Manifest::parse(&text).unwrap(), program.to_owned(), Vec::new())
    }

    /// Waits until the program has run so often.
    async fn lines(folder: &Path, count: usize) -> Vec<String> {
        let read = async {
            loop {
                let log = fs::read_to_string(folder.join("log")).unwrap_or_default();
                let lines: Vec<String> = log.lines().map(str::to_owned).collect();
                if lines.len() >= count {
                    return lines;
                }
                sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(Duration::from_secs(30), read).await.unwrap()
    }

    #[tokio::test]
    async fn it_runs_where_containers_may_be_and_again_when_a_runner_has_died() {
        let folder = tempfile::tempdir().unwrap();
        let program = program(folder.path());
        let environment = vec![("GIVEN".into(), "given".into())];
        let tidier = Tidier::with(vec!["tidy".into()], environment);
        let one = plugin(&program, r#"{ "image": "i" }"#);
        let two = plugin(&program, r#"{ "image": "i", "socket": "/t" }"#);
        tidier.look(None, [&one].into_iter(), Some("/s"));
        // It sees that there is nothing to be done.
        tokio::task::yield_now().await;
        tidier.look(Some(&program), [&one].into_iter(), None);
        assert_eq!(lines(folder.path(), 1).await, ["tidy --socket  given"], "nothing was run before");
        tidier.look(Some(&program), [&two].into_iter(), None);
        assert_eq!(lines(folder.path(), 2).await[1], "tidy --socket  --socket /t given");
        tidier.look(Some(&program), [&two, &one].into_iter(), None);
        tidier.soon();
        assert_eq!(lines(folder.path(), 3).await.len(), 3);
    }

    #[tokio::test]
    async fn containers_of_plugins_that_are_gone_are_looked_for() {
        let folder = tempfile::tempdir().unwrap();
        let program = program(folder.path());
        let tidier = Tidier::with(vec!["tidy".into()], Vec::new());
        // As a node is started whose last plugin in a container was removed while it was down.
        tidier.look(Some(&program), std::iter::empty(), Some("/s"));
        assert_eq!(lines(folder.path(), 1).await, ["tidy --socket /s "]);
        let one = plugin(&program, r#"{ "image": "i", "socket": "/t" }"#);
        tidier.look(Some(&program), [&one].into_iter(), Some("/s"));
        assert_eq!(lines(folder.path(), 2).await[1], "tidy --socket /s --socket /t ");
        tidier.look(Some(&program), std::iter::empty(), Some("/s"));
        tidier.soon();
        assert_eq!(lines(folder.path(), 3).await[2], "tidy --socket /s --socket /t ");
    }

    #[tokio::test]
    async fn what_goes_wrong_is_told_in_one_line() {
        let order = |arguments: &[&str]| Order {
            program: None,
            arguments: arguments.iter().map(OsString::from).collect(),
            sockets: BTreeSet::new(),
            environment: Vec::new(),
        };
        let shell = Path::new("/bin/sh");
        let failed = order(&["-c", "echo one >&2; echo two >&2; exit 1"]);
        assert_eq!(run(shell, &failed).await, Err("one; two".to_owned()));
        assert_eq!(run(shell, &order(&["-c", "exit 3"])).await, Err("exit status: 3".to_owned()));
        assert_eq!(run(shell, &order(&["-c", "echo done"])).await, Ok(()));
        let missing = run(Path::new("/none"), &order(&[])).await;
        assert!(missing.unwrap_err().starts_with("/none: No such file"));
    }

    #[test]
    fn only_private_folders_are_found() {
        let parent = tempfile::tempdir().unwrap();
        let id = "6b0003bb686c8275d70dc2f1";
        let folder = parent.path().join(format!("disbatch-{id}-Ab3"));
        fs::create_dir(&folder).unwrap();
        let idle = parent.path().join("disbatch-idle-Ab3");
        fs::create_dir(&idle).unwrap();
        fs::create_dir(parent.path().join("disbatch-mongod-Ab3")).unwrap();
        fs::create_dir(parent.path().join(id)).unwrap();
        fs::write(parent.path().join(format!("disbatch-{id}-file")), "").unwrap();
        std::os::unix::fs::symlink(&folder, parent.path().join(format!("disbatch-{id}-link"))).unwrap();
        let own = fs::metadata(&folder).unwrap().uid();
        let mut found = private_folders(parent.path(), &Ours::of(own, None));
        found.sort_unstable_by_key(|(task, _)| task.is_none());
        assert_eq!(found, [(Some(id.parse().unwrap()), folder), (None, idle)]);
        assert!(private_folders(parent.path(), &Ours::of(own + 1, None)).is_empty());
        let of_plugins = private_folders(parent.path(), &Ours::of(own + 1, Some(own)));
        assert_eq!(of_plugins.len(), 2, "they may belong to the user of plugins");
    }

    #[tokio::test]
    async fn a_folder_that_cannot_be_removed_at_once_is_removed_later() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("disbatch-6b0003bb686c8275d70dc2f1-Ab3");
        let begun = parent.path().join("disbatch-6b0003bb686c8275d70dc2f1-Ab3.left");
        fs::create_dir_all(folder.join("folder")).unwrap();
        assert_eq!(take(&folder).await.unwrap(), begun);
        assert!(begun.join("folder").exists() && !folder.exists());
        assert_eq!(take(&begun).await.unwrap(), begun, "as whoever finds it later does");
        remove_tree(&begun).unwrap();
        assert!(!begun.exists());
        assert_eq!(take(&folder).await.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
