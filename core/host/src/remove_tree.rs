//! Removes a folder with all that is in it, however deep that is: whoever has filled it may mean harm.
//!
//! What lies deep is moved up to the top before it is removed, so that this takes four descriptors and the same memory
//! for any tree. A removal that descends takes some of both for each level, until the process ends for lack of them.
//!
//! Folders of this process's user that it may not change, as a plugin can leave them, are made such that it may.
//!
//! Whoever removes a folder has a lock on it, which goes with the process. It only tells others that they need not do the same.

use std::ffi::{CStr, CString};
use std::fs::{self, File, TryLockError};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat, renameat};
use nix::sys::stat::{FileStat, Mode, fchmod, fstat};
use nix::unistd::{Uid, UnlinkatFlags, unlinkat};

/// Links are removed, and not followed.
const FOLDER: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// What its user needs of a folder to remove what is in it.
const OWN: Mode = Mode::S_IRWXU;

/// After so many looks at the top, somebody keeps filling the folder.
const MOST_LOOKS: usize = 1_000_000;

/// Removes what is at `path`. A link is removed, and not what it leads to.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let name = CString::new(path.as_os_str().as_bytes()).map_err(io::Error::other)?;
    let dir = match open(AT_FDCWD, &name) {
        Ok(dir) => dir,
        Err(Errno::ENOTDIR | Errno::ELOOP) => return fs::remove_file(path),
        Err(error) => return Err(error.into()),
    };
    Top::new(dir)?.clear()?;
    fs::remove_dir(path)
}

pub fn is_being_removed(folder: &Path) -> bool {
    let open = openat(AT_FDCWD, folder, FOLDER, Mode::empty());
    open.is_ok_and(|open| matches!(File::from(open).try_lock_shared(), Err(TryLockError::WouldBlock)))
}

/// The folder that is to be removed.
struct Top {
    dir: Dir,
    at: OwnedFd,
    /// So many folders were moved up to it.
    moved: u64,
}

impl Top {
    fn new(dir: Dir) -> io::Result<Self> {
        let at = File::from(dir.as_fd().try_clone_to_owned()?);
        // Others can lock it, too: that keeps nobody from removing it.
        let _told = at.try_lock();
        Ok(Self { dir, at: at.into(), moved: 0 })
    }

    fn clear(mut self) -> io::Result<()> {
        for _ in 0..MOST_LOOKS {
            let (at, moved) = (&self.at, &mut self.moved);
            if !each(&mut self.dir, at, |name| flatten(at, name, moved))? {
                return Ok(());
            }
        }
        Err(io::Error::other("it is filled while it is removed"))
    }
}

/// Opens a folder, and sees to it that its own user may remove what is in it.
fn open(at: impl AsFd, name: &CStr) -> nix::Result<Dir> {
    let dir = match Dir::openat(&at, name, FOLDER, Mode::empty()) {
        Err(Errno::EACCES) => {
            unlock(&at, name)?;
            Dir::openat(&at, name, FOLDER, Mode::empty())?
        }
        other => other?,
    };
    let found = fstat(&dir)?;
    if is_locked(&found) {
        fchmod(&dir, OWN)?;
    }
    Ok(dir)
}

/// The same for a folder that may not even be read. A link is not followed: it is what is open that is changed.
fn unlock(at: impl AsFd, name: &CStr) -> nix::Result<()> {
    let folder = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let open = openat(at, name, folder, Mode::empty())?;
    if !is_locked(&fstat(&open)?) {
        return Err(Errno::EACCES);
    }
    // A descriptor of this kind cannot be changed in another way.
    let place = format!("/proc/self/fd/{}", open.as_raw_fd());
    let changed = fs::set_permissions(place, fs::Permissions::from_mode(OWN.bits()));
    changed.map_err(|error| Errno::from_raw(error.raw_os_error().unwrap_or_default()))
}

/// Whether a folder is this process's user's, who may not do all with it.
fn is_locked(found: &FileStat) -> bool {
    Uid::from_raw(found.st_uid) == Uid::effective() && !Mode::from_bits_truncate(found.st_mode).contains(OWN)
}

/// Removes the files of a folder, and calls `folder` with the names of folders. Returns whether there was anything.
fn each(dir: &mut Dir, at: &OwnedFd, mut folder: impl FnMut(&CStr) -> io::Result<()>) -> io::Result<bool> {
    let mut any = false;
    for entry in dir.iter() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        any = true;
        match unlinkat(at, name, UnlinkatFlags::NoRemoveDir) {
            Ok(()) | Err(Errno::ENOENT) => {}
            Err(Errno::EISDIR) => folder(name)?,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(any)
}

/// Removes a folder of the top after moving its folders up. If something has come into it meanwhile, it is left for the
/// next look.
fn flatten(top: &OwnedFd, name: &CStr, moved: &mut u64) -> io::Result<()> {
    let mut dir = match open(top, name) {
        Ok(dir) => dir,
        // Something else has taken its place.
        Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let at = dir.as_fd().try_clone_to_owned()?;
    each(&mut dir, &at, |inner| move_up(&at, inner, top, moved))?;
    match unlinkat(top, name, UnlinkatFlags::RemoveDir) {
        Ok(()) | Err(Errno::ENOENT | Errno::ENOTEMPTY | Errno::EEXIST | Errno::ENOTDIR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

fn move_up(from: &OwnedFd, name: &CStr, top: &OwnedFd, moved: &mut u64) -> io::Result<()> {
    loop {
        *moved += 1;
        let new = CString::new(format!(".moved-{moved}")).map_err(io::Error::other)?;
        match renameat(from, name, top, new.as_c_str()) {
            Ok(()) | Err(Errno::ENOENT) => return Ok(()),
            // A folder that goes elsewhere is changed itself.
            Err(Errno::EACCES) => unlock(from, name)?,
            // The name is taken.
            Err(Errno::ENOTEMPTY | Errno::EEXIST | Errno::ENOTDIR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::CommandExt;

    use nix::sys::stat::mkdirat;

    use super::*;

    /// A folder in a folder, and so on.
    fn deep(top: &Path, levels: usize) {
        let mode = Mode::from_bits_truncate(0o700);
        let mut at: OwnedFd = fs::File::open(top).unwrap().into();
        for _ in 0..levels {
            mkdirat(&at, "a", mode).unwrap();
            at = openat(&at, "a", FOLDER, Mode::empty()).unwrap();
        }
    }

    #[test]
    fn depth_takes_neither_stack_nor_descriptors() {
        let parent = tempfile::tempdir().unwrap();
        let top = parent.path().join("top");
        fs::create_dir(&top).unwrap();
        deep(&top, 20_000);
        let stack = std::thread::Builder::new().stack_size(128 * 1024);
        let removed = stack.spawn({
            let top = top.clone();
            move || remove_tree(&top)
        });
        removed.unwrap().join().unwrap().unwrap();
        assert!(!top.exists());
    }

    /// Root may do anything, so this begins again as somebody else.
    #[test]
    fn folders_that_may_not_be_changed_go_too() {
        const NAME: &str = "remove_tree::tests::folders_that_may_not_be_changed_go_too";
        let parent = tempfile::tempdir().unwrap();
        fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o777)).unwrap();
        if Uid::effective().is_root() {
            let mut again = std::process::Command::new(std::env::current_exe().unwrap());
            again.args(["--exact", NAME]).uid(65_534).gid(65_534).env("TMPDIR", parent.path());
            let again = again.output().unwrap();
            let told = String::from_utf8_lossy(&again.stdout);
            assert!(again.status.success() && told.contains("1 passed"), "{again:?}");
            return;
        }
        let (top, outside) = (parent.path().join("top"), parent.path().join("outside"));
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "x").unwrap();
        let lock =
            |folder: &Path, mode| fs::set_permissions(folder, fs::Permissions::from_mode(mode)).unwrap();
        for (number, mode) in [0o000, 0o100, 0o400, 0o500, 0o555, 0o600].into_iter().enumerate() {
            let folder = top.join(format!("{number}"));
            fs::create_dir_all(folder.join("a/b")).unwrap();
            for within in ["", "a", "a/b"] {
                fs::write(folder.join(within).join("file"), "x").unwrap();
                std::os::unix::fs::symlink(&outside, folder.join(within).join("link")).unwrap();
            }
            for within in ["a/b", "a", ""] {
                lock(&folder.join(within), mode);
            }
        }
        lock(&outside, 0o500);
        lock(&top, 0o500);
        remove_tree(&top).unwrap();
        assert!(!top.exists() && outside.join("kept").exists());
        assert_eq!(
            fs::metadata(&outside).unwrap().permissions().mode() & 0o777,
            0o500,
            "no link is followed"
        );
        lock(&outside, 0o700);
    }

    #[test]
    fn others_can_tell_what_is_being_removed() {
        let parent = tempfile::tempdir().unwrap();
        let folder = parent.path().join("folder");
        fs::create_dir_all(folder.join("a")).unwrap();
        assert!(!is_being_removed(&folder));
        let name = CString::new(folder.as_os_str().as_bytes()).unwrap();
        let top = Top::new(open(AT_FDCWD, &name).unwrap()).unwrap();
        assert!(is_being_removed(&folder) && !is_being_removed(parent.path()));
        top.clear().unwrap();
        assert!(!is_being_removed(&folder) && fs::read_dir(&folder).unwrap().next().is_none());
        fs::remove_dir(&folder).unwrap();
        assert!(!is_being_removed(&folder));
    }

    #[test]
    fn everything_goes_and_nothing_outside() {
        let parent = tempfile::tempdir().unwrap();
        let (top, outside) = (parent.path().join("top"), parent.path().join("outside"));
        fs::create_dir(&outside).unwrap();
        fs::write(outside.join("kept"), "x").unwrap();
        for number in 0..50 {
            let folder = top.join(format!("{number}/b/.moved-{number}/c"));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join("file"), "x").unwrap();
            std::os::unix::fs::symlink(&outside, folder.join("link")).unwrap();
        }
        // A name that something is moved up to.
        fs::create_dir_all(top.join(".moved-1/full")).unwrap();
        fs::write(top.join(".moved-2"), "x").unwrap();
        std::os::unix::fs::symlink(&outside, top.join("link")).unwrap();
        remove_tree(&top).unwrap();
        assert!(!top.exists() && outside.join("kept").exists());
        let link = parent.path().join("link");
        std::os::unix::fs::symlink(&outside, &link).unwrap();
        remove_tree(&link).unwrap();
        assert!(fs::symlink_metadata(&link).is_err() && outside.join("kept").exists());
        assert_eq!(remove_tree(&top).unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
