//! Removes a folder with all that is in it, however deep that is: whoever has filled it may mean harm.
//!
//! What lies deep is moved up to the top before it is removed, so that this takes four descriptors and the same memory
//! for any tree. A removal that descends takes some of both for each level, until the process ends for lack of them.

use std::ffi::{CStr, CString};
use std::fs;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{OFlag, renameat};
use nix::sys::stat::Mode;
use nix::unistd::{UnlinkatFlags, unlinkat};

/// Links are removed, and not followed.
const FOLDER: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// After so many looks at the top, somebody keeps filling the folder.
const MOST_LOOKS: usize = 1_000_000;

/// Removes what is at `path`. A link is removed, and not what it leads to.
///
/// # Errors
/// Something in it may not be removed, or it is filled all the while.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let top = match Dir::open(path, FOLDER, Mode::empty()) {
        Ok(top) => top,
        Err(Errno::ENOTDIR | Errno::ELOOP) => return fs::remove_file(path),
        Err(error) => return Err(error.into()),
    };
    Top { at: top.as_fd().try_clone_to_owned()?, dir: top, moved: 0 }.clear()?;
    fs::remove_dir(path)
}

/// The folder that is to be removed.
struct Top {
    dir: Dir,
    at: OwnedFd,
    /// So many folders were moved up to it.
    moved: u64,
}

impl Top {
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
    let mut dir = match Dir::openat(top, name, FOLDER, Mode::empty()) {
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
            // The name is taken.
            Err(Errno::ENOTEMPTY | Errno::EEXIST | Errno::ENOTDIR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use nix::fcntl::openat;
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
