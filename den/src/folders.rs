//! Private folders of tasks. A runner removes its own, and its guard does when the runner is dead. Where both
//! died, or the runner did before it had a guard, the folder is left for the DEN.
//!
//! A runner that lives may use a folder again for its next task. Both give it another name first, which only one of
//! them can; so nothing is removed that has got another task's files meanwhile.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use disbatch_core::cgroup;
use disbatch_core::model::TaskId;
use disbatch_core::private_folder::PrivateFolder;
use disbatch_core::remove_tree::remove_tree;
use disbatch_core::store::StoreError;

use crate::node::Node;
use crate::processes::{self, Ours, Wanted};

/// What the names of folders end with that are being removed.
const LEFT: &str = "left";

impl Node {
    /// Removes folders of tasks that nobody has claimed and of which no process is left, and their live output. Also the
    /// control groups of runners that are gone.
    ///
    /// A task that this database does not know may be another's: its folder is left alone.
    pub(crate) async fn remove_left_folders(&self) -> Result<(), StoreError> {
        cgroup::remove_left(&self.config);
        let living = self.runners.launcher.tasks();
        let mut left = Vec::new();
        for (task, folder) in private_folders(&self.config.temp_folder(), &self.ours) {
            match task {
                Some(task) if !living.contains(&task) => left.push((task, folder)),
                Some(_) => {}
                // It is empty. Should its runner live, it makes another one.
                None => drop(tokio::fs::remove_dir(&folder).await),
            }
        }
        let ids: Vec<TaskId> = left.iter().map(|(task, _)| *task).collect();
        let without_run = self.store.without_run(&ids).await?;
        for (task, folder) in left {
            let Some(stored) = without_run.iter().find(|stored| stored.id == task) else { continue };
            // In this order: a runner makes its folder before it starts its task.
            if !processes::of_task(Wanted::of(task, &self.ours)).is_empty() {
                continue;
            }
            // It may have died after it had stored its result, and before it had tidied up.
            self.store.remove_live(task, stored.attempt()).await?;
            match remove(&folder).await {
                Ok(()) => {
                    tracing::info!(%task, folder = %folder.display(), "removed what a dead runner left")
                }
                Err(error) => tracing::debug!(%error, %task, "cannot remove what a dead runner left"),
            }
        }
        Ok(())
    }
}

async fn remove(folder: &Path) -> io::Result<()> {
    if folder.extension().is_some_and(|extension| extension == LEFT) {
        return remove_for_good(folder.to_owned()).await;
    }
    let mut ours = folder.as_os_str().to_owned();
    ours.push(".");
    ours.push(LEFT);
    tokio::fs::rename(folder, &ours).await?;
    remove_for_good(ours.into()).await
}

async fn remove_for_good(folder: PathBuf) -> io::Result<()> {
    tokio::task::spawn_blocking(move || remove_tree(&folder)).await.map_err(io::Error::other)?
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
    use super::*;

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
        let begun = parent.path().join("disbatch-6b0003bb686c8275d70dc2f1-Ab3.left");
        fs::create_dir_all(begun.join("folder")).unwrap();
        remove(&begun).await.unwrap();
        assert!(!begun.exists());
        let gone = remove(&parent.path().join("disbatch-6b0003bb686c8275d70dc2f1-Ab3")).await;
        assert_eq!(gone.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
