//! The file sets of a task that is run without a database: they are given, and what it leaves is looked at.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, Read};
use std::ops::ControlFlow;
use std::path::Path;

use bson::DateTime;
use disbatch_core::config::Config;
use disbatch_core::files::{ContentHasher, ContentId, EntryPath, Patterns};
use disbatch_core::identity::Identity;
use disbatch_core::model::TaskId;

use crate::files::is_own;
use crate::files::root::Root;
use crate::files::walk::{FolderFile, Item, walk};

/// So many bytes are read at once.
const BUFFER: usize = 256 * 1024;

/// What a task gets and leaves.
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
    let (mut file, mut hasher): (File, _) = (file, ContentHasher::default());
    let mut buffer = vec![0; BUFFER];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            read => hasher.update(&buffer[..read]),
        }
    }
    let (size, id) = (hasher.length(), hasher.finish());
    let is_given = given.contains(&(path.as_str(), id, mode));
    Ok((!is_given).then(|| LeftFile { path: path.as_str().to_owned(), size, sha256: id.to_string() }))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use bson::oid::ObjectId;

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
