//! A task's private folder. While the task is on, it is the runner's working directory, by which others see what the
//! runner works on.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use bson::oid::ObjectId;
use disbatch_core::model::TaskId;
use tempfile::TempDir;

use crate::failure::Failure;
use crate::guard;

/// Where a runner is that has no task.
const HOME: &str = "/";

/// A private folder. Removed when dropped.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    /// Makes a folder and goes there.
    ///
    /// # Errors
    /// There is no room for it, or the folder for temporary files is missing.
    pub fn make(task: TaskId) -> Result<Self, Failure> {
        let name = format!("{}{}", guard::folder_prefix(task), mark());
        let made = match tempfile::Builder::new().prefix(&name).rand_bytes(0).tempdir() {
            // Somebody else, or an earlier attempt that could not remove it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                tempfile::Builder::new().prefix(&name).tempdir()
            }
            made => made,
        };
        made.and_then(enter).map_err(|source| Failure::Folder { folder: std::env::temp_dir(), source })
    }

    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

/// By which the private folders of this runner are known, after the task's id: nobody else has it.
pub fn mark() -> &'static str {
    static MARK: OnceLock<String> = OnceLock::new();
    MARK.get_or_init(|| ObjectId::new().to_hex())
}

/// The private folders of the runner with this mark.
pub fn of_mark(mark: &str) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(std::env::temp_dir()).into_iter().flatten().flatten();
    let is_of_mark = move |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let rest = name.strip_prefix("disbatch-").and_then(|rest| rest.split_once('-'));
        rest.is_some_and(|(_, end)| end.starts_with(mark))
    };
    entries.map(|entry| entry.path()).filter(is_of_mark)
}

fn enter(folder: TempDir) -> io::Result<Folder> {
    std::env::set_current_dir(folder.path())?;
    Ok(Folder(folder.keep()))
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Err(error) = leave(&self.0) {
            tracing::warn!(%error, folder = %self.0.display(), "cannot remove the task's private folder");
        }
    }
}

fn leave(folder: &Path) -> io::Result<()> {
    std::env::set_current_dir(HOME)?;
    // Most are empty, and gone with this.
    match fs::remove_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => fs::remove_dir_all(folder),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}
