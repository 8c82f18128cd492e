//! What a plugin is given that is run without a database: a task and its queue, made up or as they were, and files; and what it
//! leaves.

use std::collections::HashSet;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::clock::{Clock, SystemClock};
use disbatch_core::config::Config;
use disbatch_core::files::{ContentHasher, ContentId, EntryPath, Patterns};
use disbatch_core::identity::Identity;
use disbatch_core::model::{
    CANARY, NodeName, PluginName, QueueId, TaskId, VERSION, from_extended, to_document,
};
use disbatch_core::schedules::ForRun;
use disbatch_core::task::Run;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::custody::Asked;
use crate::files::content::hash_on;
use crate::files::is_own;
use crate::files::root::{FolderFile, Item, Root, walk};
use crate::work::Begun;

/// What a task has unless its queue says otherwise.
const LEASE: Duration = Duration::from_secs(30);

#[derive(Debug)]
pub enum Given {
    /// A task that has these parameters, and nothing else of interest.
    Params(Map<String, Value>),
    Earlier(Box<Earlier>),
}

#[derive(Debug, Default)]
pub struct Earlier {
    pub task: Map<String, Value>,
    pub queue: Map<String, Value>,
    pub node: Option<String>,
    pub attempt: i64,
    /// When the newest run of its schedule that had succeeded began and ended, as variables have it.
    pub last_success: [Option<String>; 2],
}

/// A task of a queue that has this plugin, as if they were there.
pub(super) fn begun(plugin: &PluginName, given: Given, node: NodeName) -> io::Result<Begun> {
    match given {
        Given::Params(params) => of_params(plugin, &params, node),
        Given::Earlier(earlier) => of_earlier(plugin, *earlier, node),
    }
}

fn of_params(plugin: &PluginName, params: &Map<String, Value>, node: NodeName) -> io::Result<Begun> {
    let (id, queue, now) = (ObjectId::new(), ObjectId::new(), SystemClock.now());
    let task = doc! {
        "_id": id, "queue": queue, "status": 0, "node": &node, "params": to_document(params),
        "stdout": Bson::Null, "stderr": Bson::Null, "ctime": now, "mtime": now, "attempt": 1_i64,
    };
    let of_queue = doc! { "_id": queue, "name": "local", "plugin": plugin.as_str() };
    let run = Run { task: TaskId(id), queue: QueueId(queue), node, attempt: 1, instance: None };
    as_begun((task, of_queue), run, None)
}

fn of_earlier(plugin: &PluginName, earlier: Earlier, own: NodeName) -> io::Result<Begun> {
    let Earlier { task, queue, node, attempt, last_success } = earlier;
    let task = from_extended(task);
    let id = |name: &str| {
        let missing = |_| io::Error::other(format!("the task has no {name} that is an id"));
        task.get_object_id(name).map_err(missing)
    };
    let (task_id, queue_id) = (id("_id")?, id("queue")?);
    let mut of_queue = from_extended(queue);
    // Which version runs is said by the task, or by what is installed here.
    for field in [VERSION, CANARY] {
        of_queue.remove(field);
    }
    of_queue.extend(doc! { "_id": queue_id, "plugin": plugin.as_str() });
    let node = node.map_or(own, NodeName::new);
    let run = Run { task: TaskId(task_id), queue: QueueId(queue_id), node, attempt, instance: None };
    let time =
        |text: &Option<String>| text.as_deref().and_then(|text| DateTime::parse_rfc3339_str(text).ok());
    let [last_success_start, last_success_finish] = last_success.each_ref().map(time);
    let schedule = task.get_object_id("schedule").ok().map(|id| ForRun {
        id,
        name: String::new(),
        storage: None,
        last_success_start,
        last_success_finish,
    });
    as_begun((task, of_queue), run, schedule)
}

fn as_begun((task, queue): (Document, Document), run: Run, schedule: Option<ForRun>) -> io::Result<Begun> {
    Ok(Begun {
        task: read(task)?,
        queue: Ok(Some(Arc::new(read(queue)?))),
        schedule: Ok(schedule),
        workers: Vec::new(),
        run,
        asked: Asked::now(),
        until_deadline: None,
        lease: LEASE,
    })
}

/// As it would come from the database: what looks like extended JSON is read as it is.
fn read<T: DeserializeOwned>(document: Document) -> io::Result<T> {
    let bytes = bson::serialize_to_vec(&document).map_err(io::Error::other)?;
    bson::deserialize_from_slice(&bytes).map_err(io::Error::other)
}

/// What a task gets and leaves in place of file sets.
#[derive(Debug, Clone, Default)]
pub struct GivenFiles {
    pub input: Vec<GivenFile>,
    /// Which files it leaves, if any: those that match one of these; all that are new if there are none.
    pub output: Option<Vec<String>>,
}

#[derive(Debug, Clone)]
pub struct GivenFile {
    /// Where it is in the private folder: whatever somebody has put into a bundle.
    pub path: String,
    pub mode: u32,
    /// When it was changed, in milliseconds since 1970.
    pub mtime: i64,
    pub bytes: Vec<u8>,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeftFile {
    pub path: String,
    pub size: u64,
    /// In hexadecimal.
    pub sha256: String,
}

impl GivenFiles {
    /// Puts them into this folder. No path leads anywhere else.
    pub fn place(&self, folder: &Path, config: &Config) -> io::Result<()> {
        let root = root(folder, config)?;
        for file in &self.input {
            let path: EntryPath = file.path.parse().map_err(io::Error::other)?;
            let placed = root.create(&path).and_then(|writer| writer.write(&file.bytes));
            placed
                .and_then(|writer| writer.finish(file.mode, DateTime::from_millis(file.mtime)))
                .map_err(|error| io::Error::new(error.kind(), format!("cannot place {path}: {error}")))?;
        }
        Ok(())
    }

    /// Those that the task has left there, in the order of their paths, as a runner would have stored them.
    pub fn left(&self, folder: &Path, config: &Config, task: TaskId) -> io::Result<Option<Vec<LeftFile>>> {
        let Some(output) = &self.output else { return Ok(None) };
        let patterns = Patterns::new(output.iter().map(String::as_str)).map_err(io::Error::other)?;
        let given: HashSet<(&str, ContentId, u32)> =
            self.input.iter().filter(|_| output.is_empty()).map(known).collect();
        let (task, mut left, mut trouble) = (task.to_string(), Vec::new(), None);
        let tell = |item| {
            let Item::File(found) = item else { return ControlFlow::Continue(()) };
            match look_through(found, &given) {
                Ok(file) => left.extend(file),
                Err(error) => trouble = Some(error),
            }
            if trouble.is_none() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        };
        walk(&root(folder, config)?, &patterns, |name| is_own(name, &task), tell)?;
        left.sort();
        trouble.map_or(Ok(Some(left)), Err)
    }
}

fn root(folder: &Path, config: &Config) -> io::Result<Root> {
    let owner = Identity::of(config).map_err(io::Error::other)?;
    Root::open(folder, owner.as_ref())
}

fn known(file: &GivenFile) -> (&str, ContentId, u32) {
    (&file.path, ContentId::of(&file.bytes), file.mode)
}

/// `None`: the task was given it as it is.
fn look_through(found: FolderFile, given: &HashSet<(&str, ContentId, u32)>) -> io::Result<Option<LeftFile>> {
    let FolderFile { path, file, mode, .. } = found;
    let hasher = hash_on(&file, ContentHasher::default(), u64::MAX)?;
    let (size, id) = (hasher.length(), hasher.finish());
    let is_given = given.contains(&(path.as_str(), id, mode));
    Ok((!is_given).then(|| LeftFile { path: path.as_str().to_owned(), size, sha256: id.to_string() }))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn files_are_placed_and_what_is_new_is_found() {
        let folder = tempfile::tempdir().unwrap();
        let config =
            Config::parse(r#"{ "mongohost": "x", "database": "y" }"#, Path::new("/nonexistent/c.json"))
                .unwrap();
        let file = |path: &str, text: &str| GivenFile {
            path: path.to_owned(),
            mode: 0o644,
            mtime: 5_000,
            bytes: text.into(),
        };
        let mut files =
            GivenFiles { input: vec![file("a/b", "one"), file("c", "two")], output: Some(Vec::new()) };
        files.place(folder.path(), &config).unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("a/b")).unwrap(), "one");
        fs::write(folder.path().join("c"), "three").unwrap();
        fs::write(folder.path().join("d"), "").unwrap();
        fs::write(folder.path().join(".disbatch-control"), "").unwrap();
        let left = |files: &GivenFiles| {
            let left = files.left(folder.path(), &config, TaskId(ObjectId::new())).unwrap();
            left.map(|left| left.into_iter().map(|file| (file.path, file.size)).collect::<Vec<_>>())
        };
        assert_eq!(left(&files), Some(vec![("c".to_owned(), 5), ("d".to_owned(), 0)]));
        files.output = Some(vec!["a/*".to_owned()]);
        assert_eq!(left(&files), Some(vec![("a/b".to_owned(), 3)]));
        files.output = None;
        assert_eq!(left(&files), None);
        for odd in ["../x", "/x", ""] {
            let odd = GivenFiles { input: vec![file(odd, "x")], output: None };
            assert!(odd.place(folder.path(), &config).is_err());
        }
    }
}
