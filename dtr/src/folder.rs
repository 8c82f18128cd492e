//! A task's private folder. While the task is on, it is the runner's working directory, by which others see what the
//! runner works on. Where the plugin needs none, there is none for a short task whose runner has a DEN: see [`Lodging`].
//!
//! Runner and plugin leave files for each other in it. It belongs to the plugin's user, who may put anything in the place of
//! anything. So nothing is written through a link, and nothing is read but a file of theirs.
//!
//! A runner that goes on removes what tasks have left beside the next ones, in threads: while it removed a large folder itself, its DEN
//! would hear nothing of it. What is left when it ends is removed by its guard, or by the DEN.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt, fchown};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};
use std::thread;

use bson::oid::ObjectId;
use disbatch_core::identity::Identity;
use disbatch_core::model::TaskId;
use disbatch_core::private_folder::{LEFT, PrivateFolder};
use disbatch_core::remove_tree::remove_tree;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::Mode;
use nix::unistd::{Uid, UnlinkatFlags, unlinkat};
use tempfile::TempDir;
use tokio::sync::Semaphore;

use crate::lock;
use crate::setup::Failure;

/// Where a runner is that has no task.
pub const HOME: &str = "/";

/// Nobody else may look into a private folder.
const MODE: u32 = 0o700;

/// Others than the runner's user may pass through the folder of private folders, and not look into it.
const PARENT_MODE: u32 = 0o711;

pub const FOLDER: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// How files are made: what is there under the name already stays as it is.
pub const NEW_FILE: OFlag = OFlag::O_WRONLY
    .union(OFlag::O_CREAT)
    .union(OFlag::O_EXCL)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC);

/// So many random characters make a name that nobody has.
const RANDOM: usize = 6;

/// While so many folders are being removed, no further one is filled.
const MOST_REMOVED: usize = 2;

/// How many more there may be of these.
static ROOM: Semaphore = Semaphore::const_new(MOST_REMOVED);

static PARENT: OnceLock<PathBuf> = OnceLock::new();

/// Where private folders are made: in the system's folder for temporary files, unless that was said otherwise.
pub fn parent() -> &'static Path {
    PARENT.get_or_init(std::env::temp_dir)
}

/// Has them made in `parent`. That is of no effect once [`parent`] was asked for.
pub fn make_in(parent: PathBuf) {
    PARENT.get_or_init(|| parent);
}

/// Sees to it that there is such a folder. Others may pass through it, and not look into it.
pub fn provide(parent: &Path) -> Result<(), Failure> {
    let made = fs::DirBuilder::new().recursive(true).mode(PARENT_MODE).create(parent);
    made.map_err(|source| Failure::Folder { folder: parent.to_owned(), source })
}

pub async fn room() {
    // It is never closed.
    drop(ROOM.acquire().await);
}

/// Makes private folders. One that a task has left empty is the next task's, under its name: some file systems take
/// longer to make and to remove a folder than a short task takes.
#[derive(Debug, Default)]
pub struct Folders {
    spare: Option<PathBuf>,
}

impl Folders {
    pub fn make(&mut self, task: TaskId) -> Result<Folder, Failure> {
        if let Some(spare) = self.spare.take()
            && let Some(folder) = reuse(&spare, task)
        {
            return Ok(folder);
        }
        Folder::make(task)
    }

    /// Leaves the folder of a task that is over, which is kept if it is as good as new.
    pub fn keep(&mut self, folder: Folder) {
        let idle = parent().join(PrivateFolder::idle(mark()).name());
        match folder.set_aside(&idle) {
            Ok(true) => self.spare = Some(idle),
            Ok(false) => {}
            Err(error) => tracing::debug!(%error, "cannot keep the private folder for the next task"),
        }
    }
}

impl Drop for Folders {
    fn drop(&mut self) {
        if let Some(spare) = &self.spare {
            // The DEN removes it otherwise.
            let _left_behind = fs::remove_dir(spare);
        }
    }
}

/// The private folder of a task, which is made when it is needed first.
#[derive(Debug)]
pub struct Lodging {
    task: TaskId,
    folders: Mutex<Folders>,
    made: OnceLock<Folder>,
}

impl Lodging {
    /// None yet for this task. When there is to be one, it comes from `folders`.
    pub fn new(task: TaskId, folders: Folders) -> Self {
        Self { task, folders: Mutex::new(folders), made: OnceLock::new() }
    }

    /// Where it is. If it has not been made, it is, and the runner goes there.
    pub fn path(&self) -> Result<&Path, Failure> {
        if self.made.get().is_none() {
            let mut folders = lock(&self.folders);
            let folder = folders.make(self.task)?;
            // Nobody else makes one meanwhile: only one thread of the runner does.
            let _made = self.made.set(folder);
        }
        Ok(self.made.get().map_or(Path::new(HOME), Folder::path))
    }

    pub fn is_made(&self) -> bool {
        self.made.get().is_some()
    }

    /// Moves it to `target`, an empty folder beside it, and leaves it. Nothing happens if it has not been made.
    pub fn move_to(self, target: &Path) -> io::Result<()> {
        self.made.into_inner().map_or(Ok(()), |folder| folder.move_to(target))
    }

    /// The end of the task. `left`: whether everyone has left the folder, so that the next task may have it.
    pub fn end(self, left: bool) -> Folders {
        let mut folders = self.folders.into_inner().unwrap_or_else(PoisonError::into_inner);
        match self.made.into_inner() {
            Some(folder) if left => folders.keep(folder),
            Some(folder) => folder.remove_beside(),
            None => {}
        }
        folders
    }
}

/// Makes the spare folder the task's. `None`: it is gone, or the name is taken.
fn reuse(spare: &Path, task: TaskId) -> Option<Folder> {
    let path = parent().join(PrivateFolder::of(task, mark()).name());
    let entered = fs::rename(spare, &path).and_then(|()| std::env::set_current_dir(&path));
    match entered {
        Ok(()) => Some(Folder(path)),
        Err(error) => {
            tracing::debug!(%error, folder = %spare.display(), "cannot use the private folder again");
            let _gone = fs::remove_dir(spare).or_else(|_| fs::remove_dir(&path));
            None
        }
    }
}

/// A private folder. Removed when dropped, unless the path is empty: then it has been set aside.
#[derive(Debug)]
pub struct Folder(PathBuf);

impl Folder {
    pub fn make(task: TaskId) -> Result<Self, Failure> {
        let name = PrivateFolder::of(task, mark()).name();
        let mut builder = tempfile::Builder::new();
        builder.prefix(&name).permissions(fs::Permissions::from_mode(MODE));
        let made = match builder.rand_bytes(0).tempdir_in(parent()) {
            // Somebody else, or an earlier attempt that could not remove it.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                builder.rand_bytes(RANDOM).tempdir_in(parent())
            }
            made => made,
        };
        made.and_then(enter).map_err(|source| Failure::Folder { folder: parent().to_owned(), source })
    }

    pub fn path(&self) -> &Path {
        &self.0
    }

    fn move_to(mut self, target: &Path) -> io::Result<()> {
        fs::rename(&self.0, target)?;
        self.0.clear();
        std::env::set_current_dir(HOME)
    }

    /// Leaves it. If it is empty and as it was made, it is `idle` from now on, and else it is removed.
    ///
    /// One that belongs to another user is not used again: that user can put anything in its place at any time.
    fn set_aside(self, idle: &Path) -> io::Result<bool> {
        let found = fs::symlink_metadata(&self.0)?;
        let is_as_new = found.is_dir()
            && found.uid() == Uid::effective().as_raw()
            && found.permissions().mode() & 0o7777 == MODE
            && fs::read_dir(&self.0)?.next().is_none();
        if is_as_new {
            self.move_to(idle)?;
        } else {
            self.remove_beside();
        }
        Ok(is_as_new)
    }

    /// Leaves it, and has it removed while the runner goes on.
    fn remove_beside(mut self) {
        let Some(left) = self.leave() else { return };
        let (beside, room) = (left.clone(), ROOM.try_acquire().ok());
        let work = move || {
            remove(&beside);
            drop(room);
        };
        if thread::Builder::new().name("removal".to_owned()).spawn(work).is_err() {
            // There are too many processes now.
            remove(&left);
        }
    }

    /// Leaves it. Returns where it is now, if there is still something to be removed.
    fn leave(&mut self) -> Option<PathBuf> {
        let folder = std::mem::take(&mut self.0);
        if folder.as_os_str().is_empty() {
            return None;
        }
        move_away(&folder).unwrap_or_else(|error| {
            warn(&error, &folder);
            None
        })
    }
}

/// By which the private folders of this runner are known, after the task's id: nobody else has it.
pub fn mark() -> &'static str {
    static MARK: OnceLock<String> = OnceLock::new();
    MARK.get_or_init(|| ObjectId::new().to_hex())
}

pub fn of_mark(mark: &str) -> impl Iterator<Item = PathBuf> {
    let entries = fs::read_dir(parent()).into_iter().flatten().flatten();
    let is_of_mark = move |path: &PathBuf| {
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        PrivateFolder::parse(name).is_some_and(|folder| folder.mark.starts_with(mark))
    };
    entries.map(|entry| entry.path()).filter(is_of_mark)
}

fn enter(folder: TempDir) -> io::Result<Folder> {
    std::env::set_current_dir(folder.path())?;
    Ok(Folder(folder.keep()))
}

impl Drop for Folder {
    fn drop(&mut self) {
        if let Some(left) = self.leave() {
            remove(&left);
        }
    }
}

/// Goes home, and gives a folder in which there is something a name that no task gets: the next attempt may have the old one at
/// once. Returns that name.
fn move_away(folder: &Path) -> io::Result<Option<PathBuf>> {
    std::env::set_current_dir(HOME)?;
    // Most are empty, and gone with this.
    let moved = match fs::remove_dir(folder) {
        Err(error) if error.kind() == io::ErrorKind::DirectoryNotEmpty => {
            let mut left = folder.as_os_str().to_owned();
            left.push(format!(".{}.{LEFT}", ObjectId::new()));
            fs::rename(folder, &left).map(|()| Some(left.into()))
        }
        // The plugin's user may have put something else there. A link is removed, and not what it leads to.
        Err(error) if error.kind() == io::ErrorKind::NotADirectory => fs::remove_file(folder).map(|()| None),
        other => other.map(|()| None),
    };
    match moved {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        moved => moved,
    }
}

/// Removes what a task has left, unless somebody else has.
fn remove(left: &Path) {
    if let Err(error) = remove_tree(left)
        && error.kind() != io::ErrorKind::NotFound
    {
        warn(&error, left);
    }
}

fn warn(error: &io::Error, folder: &Path) {
    tracing::warn!(%error, folder = %folder.display(), "cannot remove the task's private folder");
}

/// Makes the file `name`, in place of what there is of that name. Only `user` can read it, or the runner's own user.
pub fn write_file(folder: &Path, name: &str, bytes: &[u8], user: Option<&Identity>) -> io::Result<()> {
    let folder = open_folder(folder)?;
    take_away(&folder, name)?;
    let mut file = File::from(openat(&folder, name, NEW_FILE, Mode::S_IRUSR | Mode::S_IWUSR)?);
    file.write_all(bytes)?;
    if let Some(user) = user {
        fchown(&file, Some(user.uid), Some(user.gid))?;
    }
    Ok(())
}

pub fn remove_file(folder: &Path, name: &str) -> io::Result<()> {
    take_away(&open_folder(folder)?, name)
}

/// What is in the file `name`, which has at most so many bytes and belongs to `user`, or to anybody if that is not given.
pub fn read_file(folder: &Path, name: &str, most: u64, user: Option<&Identity>) -> io::Result<Vec<u8>> {
    let flags = OFlag::O_RDONLY | OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
    let file = File::from(openat(open_folder(folder)?, name, flags, Mode::empty())?);
    let found = file.metadata()?;
    if !found.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    if user.is_some_and(|user| found.uid() != user.uid) {
        return Err(io::Error::other("it belongs to somebody else than the plugin's user"));
    }
    let mut bytes = Vec::new();
    file.take(most + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("it has more than {most} bytes")));
    }
    Ok(bytes)
}

fn open_folder(folder: &Path) -> io::Result<OwnedFd> {
    Ok(open(folder, FOLDER, Mode::empty())?)
}

fn take_away(folder: &OwnedFd, name: &str) -> io::Result<()> {
    match unlinkat(folder, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{chown, symlink};
    use std::time::{Duration, Instant};

    use futures::FutureExt;
    use nix::unistd::mkfifo;

    use super::*;

    /// Nothing here takes so long.
    const DEADLINE: Duration = Duration::from_secs(30);

    const MOST: u64 = 100;

    fn task(number: u8) -> TaskId {
        TaskId(ObjectId::from_bytes([number; 12]))
    }

    fn number_of(folder: &Folder) -> u64 {
        fs::metadata(folder.path()).unwrap().ino()
    }

    #[test]
    fn what_a_task_has_left_empty_is_the_next_ones() {
        let mut folders = Folders::default();
        let first = folders.make(task(1)).unwrap();
        let (path, number) = (first.path().to_owned(), number_of(&first));
        folders.keep(first);
        assert!(!path.exists());
        assert_eq!(std::env::current_dir().unwrap(), Path::new(HOME));
        assert_eq!(of_mark(mark()).count(), 1, "the guard would find it");
        let second = folders.make(task(2)).unwrap();
        assert_eq!(number_of(&second), number);
        assert_eq!(std::env::current_dir().unwrap(), second.path());
        let name = second.path().file_name().unwrap().to_str().unwrap();
        assert_eq!(PrivateFolder::parse(name), Some(PrivateFolder::of(task(2), mark())));
        folders.keep(second);
        drop(folders);
        assert_eq!(of_mark(mark()).count(), 0);
    }

    #[test]
    fn a_folder_that_nobody_asks_for_is_not_made() {
        let folders = Lodging::new(task(1), Folders::default()).end(true);
        assert_eq!(of_mark(mark()).count(), 0);
        let lodging = Lodging::new(task(2), folders);
        let path = lodging.path().unwrap().to_owned();
        assert!(lodging.is_made() && lodging.path().unwrap() == path && path.is_dir());
        assert_eq!(std::env::current_dir().unwrap(), path);
        let folders = lodging.end(true);
        assert_eq!(of_mark(mark()).count(), 1, "the next one's");
        let lodging = Lodging::new(task(3), folders);
        assert!(!lodging.is_made());
        lodging.path().unwrap();
        drop(lodging.end(false));
        assert_eq!(of_mark(mark()).count(), 0);
        assert_eq!(std::env::current_dir().unwrap(), Path::new(HOME));
    }

    #[test]
    fn the_folder_of_private_folders_is_made_if_need_be() {
        let folder = tempfile::tempdir().unwrap();
        let parent = folder.path().join("a/b");
        provide(&parent).unwrap();
        provide(&parent).unwrap();
        assert_eq!(fs::metadata(&parent).unwrap().permissions().mode() & 0o066, 0);
        fs::write(folder.path().join("file"), "").unwrap();
        assert!(provide(&folder.path().join("file/b")).is_err());
    }

    #[test]
    fn what_is_not_as_it_was_made_is_removed() {
        let mut folders = Folders::default();
        let (full, open) = (folders.make(task(1)).unwrap(), folders.make(task(2)).unwrap());
        fs::create_dir(full.path().join("folder")).unwrap();
        fs::set_permissions(open.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let path = full.path().to_owned();
        folders.keep(full);
        folders.keep(open);
        assert!(!path.exists());
        let until = Instant::now() + DEADLINE;
        while of_mark(mark()).next().is_some() {
            assert!(Instant::now() < until);
            thread::yield_now();
        }
    }

    #[test]
    fn what_a_task_has_left_is_first_given_a_name_that_no_task_gets() {
        let mut folder = Folder::make(task(1)).unwrap();
        let path = folder.path().to_owned();
        fs::write(path.join("file"), "").unwrap();
        let left = folder.leave().unwrap();
        assert_eq!(std::env::current_dir().unwrap(), Path::new(HOME));
        assert!(left.extension().is_some_and(|end| end == LEFT) && left.join("file").exists());
        assert_eq!(
            of_mark(mark()).collect::<Vec<_>>(),
            std::slice::from_ref(&left),
            "the guard would find it"
        );
        let name = left.file_name().unwrap().to_str().unwrap();
        assert_eq!(PrivateFolder::parse(name).unwrap().task, Some(task(1)), "and so would the DEN");
        assert_eq!(Folder::make(task(1)).unwrap().path(), path, "the next attempt has the old one");
        remove(&left);
        assert_eq!(of_mark(mark()).count(), 0);
    }

    #[test]
    fn no_folder_is_filled_while_too_many_are_removed() {
        let removals: Vec<_> = (0..MOST_REMOVED).map(|_| ROOM.try_acquire().unwrap()).collect();
        assert!(room().now_or_never().is_none());
        drop(removals);
        assert!(room().now_or_never().is_some());
    }

    #[test]
    fn what_belongs_to_another_user_is_not_used_again() {
        if !Uid::effective().is_root() {
            let _nobody_reads = writeln!(io::stderr(), "skipped: only root can give a folder away");
            return;
        }
        let mut folders = Folders::default();
        let first = folders.make(task(1)).unwrap();
        let path = first.path().to_owned();
        chown(&path, Some(65_534), Some(65_534)).unwrap();
        folders.keep(first);
        assert!(!path.exists() && of_mark(mark()).count() == 0);
    }

    #[test]
    fn what_was_put_in_the_place_of_a_folder_is_removed_and_nothing_behind_it() {
        let mut folders = Folders::default();
        let first = folders.make(task(1)).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        fs::write(elsewhere.path().join("file"), "").unwrap();
        fs::remove_dir(first.path()).unwrap();
        symlink(elsewhere.path(), first.path()).unwrap();
        folders.keep(first);
        assert_eq!(of_mark(mark()).count(), 0);
        assert!(elsewhere.path().join("file").exists());
    }

    #[test]
    fn a_task_gets_a_folder_whatever_has_become_of_the_spare_one() {
        let mut folders = Folders::default();
        let first = folders.make(task(1)).unwrap();
        folders.keep(first);
        of_mark(mark()).for_each(|spare| fs::remove_dir(spare).unwrap());
        let second = folders.make(task(2)).unwrap();
        folders.keep(second);
        // An earlier attempt could not remove this.
        let rest = std::env::temp_dir().join(PrivateFolder::of(task(3), mark()).name());
        fs::create_dir_all(rest.join("folder")).unwrap();
        let third = folders.make(task(3)).unwrap();
        assert!(third.path() != rest && fs::read_dir(third.path()).unwrap().next().is_none());
        drop((third, folders));
        fs::remove_dir_all(rest).unwrap();
        assert_eq!(of_mark(mark()).count(), 0);
    }

    #[test]
    fn what_was_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        write_file(folder, "a", b"first", None).unwrap();
        write_file(folder, "a", b"second", None).unwrap();
        assert_eq!(read_file(folder, "a", MOST, None).unwrap(), b"second");
        assert_eq!(fs::metadata(folder.join("a")).unwrap().permissions().mode() & 0o777, 0o600);
        let error = read_file(folder, "a", 5, None).unwrap_err().to_string();
        assert_eq!(error, "it has more than 5 bytes");
        remove_file(folder, "a").unwrap();
        remove_file(folder, "a").unwrap();
        assert_eq!(read_file(folder, "a", MOST, None).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn links_are_not_followed_and_what_is_no_file_is_not_waited_for() {
        let (folder, elsewhere) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (folder, secret) = (folder.path(), elsewhere.path().join("secret"));
        fs::write(&secret, "horse").unwrap();
        symlink(&secret, folder.join("link")).unwrap();
        assert!(read_file(folder, "link", MOST, None).is_err());
        write_file(folder, "link", b"new", None).unwrap();
        assert_eq!(fs::read_to_string(&secret).unwrap(), "horse");
        mkfifo(folder.join("fifo").as_path(), Mode::S_IRWXU).unwrap();
        assert_eq!(read_file(folder, "fifo", MOST, None).unwrap_err().to_string(), "it is no file");
        fs::create_dir(folder.join("folder")).unwrap();
        assert!(read_file(folder, "folder", MOST, None).is_err());
        assert!(write_file(folder, "folder", b"", None).is_err());
        symlink(elsewhere.path(), folder.join("other")).unwrap();
        assert!(
            read_file(&folder.join("other"), "secret", MOST, None).is_err(),
            "the folder itself is a link"
        );
    }

    #[test]
    fn only_what_is_the_plugins_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let own = fs::metadata(folder.path()).unwrap().uid();
        let of = |uid| Identity { name: "u".to_owned(), uid, gid: 7, groups: vec![], home: "/".into() };
        write_file(folder.path(), "a", b"x", None).unwrap();
        assert!(read_file(folder.path(), "a", MOST, Some(&of(own))).is_ok());
        assert!(read_file(folder.path(), "a", MOST, Some(&of(own + 1))).is_err());
    }
}
