//! The private folder as files are put into it: below a descriptor, part of a path by part, through no link.

use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, fchown};
use std::path::Path;
use std::sync::Arc;

use bson::DateTime;
use disbatch_core::files::{ContentHasher, ContentId, EntryPath};
use disbatch_core::identity::Identity;
use nix::errno::Errno;
use nix::fcntl::{OFlag, open, openat};
use nix::sys::stat::{Mode, mkdirat};

/// How folders are opened.
pub const FOLDER: OFlag =
    OFlag::O_RDONLY.union(OFlag::O_DIRECTORY).union(OFlag::O_NOFOLLOW).union(OFlag::O_CLOEXEC);

/// How files are made: what is there under the name already stays as it is.
const NEW_FILE: OFlag = OFlag::O_WRONLY
    .union(OFlag::O_CREAT)
    .union(OFlag::O_EXCL)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC);

/// The bits of a mode that are kept.
const PERMISSIONS: u32 = 0o777;

/// The private folder. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Root {
    at: Arc<OwnedFd>,
    owner: Option<Owner>,
}

/// Whom the plugin runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Owner {
    pub uid: u32,
    pub gid: u32,
}

impl Root {
    /// Opens the folder. What is put into it is to belong to `owner`, if that is another than this process's user.
    pub fn open(folder: &Path, owner: Option<&Identity>) -> io::Result<Self> {
        let at = open(folder, FOLDER, Mode::empty())?;
        let owner = owner.map(|owner| Owner { uid: owner.uid, gid: owner.gid });
        Ok(Self { at: Arc::new(at), owner })
    }

    pub fn at(&self) -> &OwnedFd {
        &self.at
    }

    /// Whom the plugin runs as, if that is another than this process's user.
    pub fn owner(&self) -> Option<Owner> {
        self.owner
    }

    /// Makes a file, and the folders that it is in as far as they are missing.
    pub fn create(&self, path: &EntryPath) -> io::Result<Writer> {
        let (folders, name) = path.folders_and_name();
        let mut below: Option<OwnedFd> = None;
        for folder in folders {
            let inner = self.enter(below.as_ref().unwrap_or(&self.at), folder)?;
            below = Some(inner);
        }
        let at = below.as_ref().unwrap_or(&self.at);
        let file = File::from(openat(at, name, NEW_FILE, Mode::S_IRUSR | Mode::S_IWUSR)?);
        Ok(Writer { file, hasher: ContentHasher::default(), owner: self.owner })
    }

    fn enter(&self, at: &OwnedFd, name: &str) -> io::Result<OwnedFd> {
        let made = match mkdirat(at, name, Mode::from_bits_truncate(0o755)) {
            Ok(()) => true,
            Err(Errno::EEXIST) => false,
            Err(error) => return Err(error.into()),
        };
        let folder = openat(at, name, FOLDER, Mode::empty())?;
        if let Some(owner) = self.owner.filter(|_| made) {
            fchown(&folder, Some(owner.uid), Some(owner.gid))?;
        }
        Ok(folder)
    }
}

/// A file that is being written.
#[derive(Debug)]
pub struct Writer {
    file: File,
    hasher: ContentHasher,
    owner: Option<Owner>,
}

impl Writer {
    pub fn write(mut self, bytes: &[u8]) -> io::Result<Self> {
        self.file.write_all(bytes)?;
        self.hasher.update(bytes);
        Ok(self)
    }

    /// Gives the file away as it is to be. Returns what was written.
    pub fn finish(self, mode: u32, mtime: DateTime) -> io::Result<ContentId> {
        if let Err(error) = self.file.set_modified(mtime.to_system_time()) {
            tracing::debug!(%error, "the file keeps the time when it was placed");
        }
        self.file.set_permissions(Permissions::from_mode(mode & PERMISSIONS))?;
        if let Some(owner) = self.owner {
            fchown(&self.file, Some(owner.uid), Some(owner.gid))?;
        }
        Ok(self.hasher.finish())
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{MetadataExt, symlink};

    use nix::unistd::Uid;

    use super::*;

    fn place(root: &Root, path: &str, text: &str) -> io::Result<ContentId> {
        let writer = root.create(&path.parse().unwrap())?.write(text.as_bytes())?;
        writer.finish(0o104_755, DateTime::from_millis(5_000))
    }

    #[test]
    fn files_are_placed_with_their_folders_modes_and_times() {
        let folder = tempfile::tempdir().unwrap();
        let root = Root::open(folder.path(), None).unwrap();
        assert_eq!(place(&root, "a/b/c", "one").unwrap(), ContentId::of(b"one"));
        place(&root, "a/b/d", "two").unwrap();
        assert_eq!(fs::read_to_string(folder.path().join("a/b/d")).unwrap(), "two");
        let placed = fs::metadata(folder.path().join("a/b/c")).unwrap();
        assert_eq!(
            (placed.mode() & 0o7777, placed.mtime()),
            (0o755, 5),
            "no bit that makes it run as another"
        );
    }

    #[test]
    fn nothing_is_placed_through_a_link_or_over_what_is_there() {
        let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let root = Root::open(folder.path(), None).unwrap();
        symlink(outside.path(), folder.path().join("link")).unwrap();
        symlink(outside.path().join("new"), folder.path().join("file")).unwrap();
        fs::write(folder.path().join("there"), "old").unwrap();
        for path in ["link/x", "link/y/z", "file", "there", "there/x", "link"] {
            assert!(place(&root, path, "new").is_err(), "{path}");
        }
        assert_eq!(fs::read_dir(outside.path()).unwrap().count(), 0);
        assert_eq!(fs::read_to_string(folder.path().join("there")).unwrap(), "old");
        assert!(Root::open(&folder.path().join("link"), None).is_err());
    }

    #[test]
    fn files_and_folders_belong_to_the_plugins_user() {
        if !Uid::effective().is_root() {
            let _nobody_reads = writeln!(io::stderr(), "skipped: only root can give files away");
            return;
        }
        let folder = tempfile::tempdir().unwrap();
        let user =
            Identity { name: "u".to_owned(), uid: 65_534, gid: 65_533, groups: Vec::new(), home: "/".into() };
        let root = Root::open(folder.path(), Some(&user)).unwrap();
        place(&root, "a/b", "x").unwrap();
        for path in ["a", "a/b"] {
            let found = fs::metadata(folder.path().join(path)).unwrap();
            assert_eq!((found.uid(), found.gid()), (65_534, 65_533), "{path}");
        }
        assert_eq!(
            fs::metadata(folder.path()).unwrap().uid(),
            0,
            "it is handed over when the plugin is started"
        );
    }
}
