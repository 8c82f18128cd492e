//! The private folder as files are put into it and looked for in it: below a descriptor, part of a path by part, through no link.
//! What is no file is told.

use std::ffi::{CStr, CString};
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{PermissionsExt, fchown};
use std::path::Path;
use std::sync::Arc;

use bson::DateTime;
use disbatch_core::files::{ContentHasher, ContentId, EntryPath, Patterns};
use disbatch_core::identity::Identity;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat, mkdirat};

use crate::folder::{FOLDER, NEW_FILE};

const PERMISSIONS: u32 = 0o777;

/// How files are opened. One that turns out to be a pipe does not hold anybody up.
const FILE: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_NONBLOCK)
    .union(OFlag::O_NOCTTY)
    .union(OFlag::O_CLOEXEC);

/// So many names are in memory at most: those of what is still to be looked at in the folders on the way to a file.
const MOST_NAMES: usize = 500_000;

/// The private folder. Clones are the same one.
#[derive(Debug, Clone)]
pub struct Root {
    at: Arc<OwnedFd>,
    /// Whom the plugin runs as, if that is another than this process's user.
    owner: Option<Owner>,
}

/// User and group.
type Owner = (u32, u32);

impl Root {
    /// Opens the folder. What is put into it is to belong to `owner`, if that is another than this process's user.
    pub fn open(folder: &Path, owner: Option<&Identity>) -> io::Result<Self> {
        let at = open(folder, FOLDER, Mode::empty())?;
        Ok(Self { at: Arc::new(at), owner: owner.map(|owner| (owner.uid, owner.gid)) })
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
        if let Some((user, group)) = self.owner.filter(|_| made) {
            fchown(&folder, Some(user), Some(group))?;
        }
        Ok(folder)
    }
}

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
        if let Some((user, group)) = self.owner {
            fchown(&self.file, Some(user), Some(group))?;
        }
        Ok(self.hasher.finish())
    }
}

#[derive(Debug)]
pub struct FolderFile {
    pub path: EntryPath,
    pub file: File,
    pub mode: u32,
    pub mtime: DateTime,
}

#[derive(Debug)]
pub enum Item {
    File(FolderFile),
    /// Something that matches and is not stored, and why.
    Skipped(String),
}

/// Tells all files below `root` that match, in the order of their names, folder by folder. `is_own` says which names at the
/// top are left out. Ends when nobody wants to be told any more.
pub fn walk(
    root: &Root,
    patterns: &Patterns,
    is_own: impl Fn(&str) -> bool,
    mut tell: impl FnMut(Item) -> ControlFlow<()>,
) -> io::Result<()> {
    let mut held = 0;
    let mut levels = vec![Level::open(root.at.try_clone()?, String::new(), &mut held)?];
    while let Some(level) = levels.last_mut() {
        let Some(name) = level.names.next() else {
            levels.pop();
            continue;
        };
        held -= 1;
        if level.prefix.is_empty() && name.to_str().is_ok_and(&is_own) {
            continue;
        }
        let item = match level.look(&name, patterns, root)? {
            Look::Nothing => continue,
            Look::Folder(at, prefix) => {
                levels.push(Level::open(at, prefix, &mut held)?);
                continue;
            }
            Look::Item(item) => item,
        };
        if tell(item).is_break() {
            return Ok(());
        }
    }
    Ok(())
}

struct Level {
    at: OwnedFd,
    /// What is still to be looked at.
    names: std::vec::IntoIter<CString>,
    /// Its path, with a slash after it.
    prefix: String,
}

enum Look {
    Nothing,
    Folder(OwnedFd, String),
    Item(Item),
}

impl Level {
    fn open(at: OwnedFd, prefix: String, held: &mut usize) -> io::Result<Self> {
        let names = names_in(&at, held).map_err(|error| told(&prefix, &error))?;
        Ok(Self { at, names: names.into_iter(), prefix })
    }

    fn look(&self, name: &CStr, patterns: &Patterns, root: &Root) -> io::Result<Look> {
        let Ok(text) = name.to_str() else {
            let path = format!("{}{}", self.prefix, name.to_string_lossy());
            return Ok(skipped(&path, "its name is not UTF-8"));
        };
        let path = format!("{}{text}", self.prefix);
        let found = match fstatat(&self.at, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
            Ok(found) => found,
            Err(Errno::ENOENT) => return Ok(Look::Nothing),
            Err(error) => return Err(told(&path, &error.into())),
        };
        let is_folder = kind(&found) == SFlag::S_IFDIR;
        if !is_folder && !patterns.matches(&path) {
            return Ok(Look::Nothing);
        }
        let Ok(entry) = path.parse::<EntryPath>() else {
            return Ok(skipped(&path, "its path is too long"));
        };
        if is_folder {
            return match openat(&self.at, name, FOLDER, Mode::empty()) {
                Ok(at) => Ok(Look::Folder(at, format!("{path}/"))),
                Err(error) => gone_or(&path, error),
            };
        }
        if kind(&found) != SFlag::S_IFREG {
            return Ok(skipped(&path, what_else(kind(&found))));
        }
        match openat(&self.at, name, FILE, Mode::empty()) {
            Ok(file) => file_of(entry, file, root),
            Err(error) => gone_or(&path, error),
        }
    }
}

/// The names in a folder, in order. `held`: how many names are in memory.
fn names_in(folder: &OwnedFd, held: &mut usize) -> io::Result<Vec<CString>> {
    // A descriptor of its own, that begins at the beginning.
    let mut dir = Dir::openat(folder, ".", FOLDER, Mode::empty())?;
    let mut names = Vec::new();
    for entry in dir.iter() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        *held += 1;
        if *held > MOST_NAMES {
            return Err(io::Error::other("there are too many files"));
        }
        names.push(name.to_owned());
    }
    names.sort_unstable();
    Ok(names)
}

/// What was opened, if it is a file, and one that the plugin's user may have stored.
fn file_of(path: EntryPath, file: OwnedFd, root: &Root) -> io::Result<Look> {
    let found = fstat(&file)?;
    if kind(&found) != SFlag::S_IFREG {
        return Ok(skipped(path.as_str(), what_else(kind(&found))));
    }
    // Who gives files that they cannot read another name, here, would get them by having them stored.
    if root.owner.is_some_and(|(user, _)| found.st_uid != user) {
        return Ok(skipped(path.as_str(), "it belongs to somebody else than the plugin's user"));
    }
    let millis = found.st_mtime.saturating_mul(1_000).saturating_add(found.st_mtime_nsec / 1_000_000);
    let mtime = DateTime::from_millis(millis);
    Ok(Look::Item(Item::File(FolderFile { path, file: file.into(), mode: found.st_mode & 0o777, mtime })))
}

/// Something has gone, or something else has taken its place.
fn gone_or(path: &str, error: Errno) -> io::Result<Look> {
    match error {
        Errno::ENOENT => Ok(Look::Nothing),
        Errno::ELOOP | Errno::ENOTDIR | Errno::ENXIO => Ok(skipped(path, "it was replaced meanwhile")),
        error => Err(told(path, &error.into())),
    }
}

fn kind(found: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(found.st_mode) & SFlag::S_IFMT
}

fn what_else(kind: SFlag) -> &'static str {
    if kind == SFlag::S_IFLNK { "it is a link, and links are not followed" } else { "it is no file" }
}

fn skipped(path: &str, why: &str) -> Look {
    Look::Item(Item::Skipped(format!("{path} is not stored: {why}")))
}

fn told(path: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{path}: {error}"))
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::io::Read;
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{MetadataExt, symlink};

    use nix::unistd::{Uid, mkfifo};

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

    fn walked(folder: &Path, patterns: &[&str], owner: Option<&Identity>) -> (Vec<String>, Vec<String>) {
        let root = Root::open(folder, owner).unwrap();
        let patterns = Patterns::new(patterns.iter().copied()).unwrap();
        let (mut files, mut skipped) = (Vec::new(), Vec::new());
        let tell = |item| {
            match item {
                Item::File(mut found) => {
                    let mut text = String::new();
                    found.file.read_to_string(&mut text).unwrap();
                    files.push(format!("{}={text}", found.path));
                }
                Item::Skipped(why) => skipped.push(why),
            }
            ControlFlow::Continue(())
        };
        walk(&root, &patterns, |name| name == "own", tell).unwrap();
        (files, skipped)
    }

    fn tree() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("a/deep/own")).unwrap();
        for path in ["a/1.dat", "a/deep/own/2.dat", "b.txt", "own"] {
            fs::write(folder.path().join(path), path.len().to_string()).unwrap();
        }
        folder
    }

    #[test]
    fn files_that_match_are_told_and_those_at_the_top_that_are_not_the_tasks_are_not() {
        let folder = tree();
        let all = ["a/1.dat=7", "a/deep/own/2.dat=16", "b.txt=5"];
        assert_eq!(walked(folder.path(), &[], None), (all.map(str::to_owned).to_vec(), Vec::new()));
        assert_eq!(walked(folder.path(), &["**/*.dat"], None).0, all[..2]);
        assert_eq!(walked(folder.path(), &["*.txt"], None).0, all[2..]);
        // It can be looked through again.
        let root = Root::open(folder.path(), None).unwrap();
        for _ in 0..2 {
            let mut count = 0;
            let tell = |_| {
                count += 1;
                if count == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
            };
            walk(&root, &Patterns::default(), |_| false, tell).unwrap();
            assert_eq!(count, 2, "it ends when nobody wants more");
        }
    }

    #[test]
    fn links_are_not_followed_and_what_is_no_file_is_told() {
        let (folder, outside) = (tree(), tempfile::tempdir().unwrap());
        fs::write(outside.path().join("secret"), "secret").unwrap();
        symlink(outside.path(), folder.path().join("a/folder")).unwrap();
        symlink(outside.path().join("secret"), folder.path().join("a/link")).unwrap();
        symlink("b.txt", folder.path().join("c.txt")).unwrap();
        mkfifo(&folder.path().join("pipe"), Mode::S_IRUSR).unwrap();
        fs::write(folder.path().join(std::ffi::OsStr::from_bytes(b"\xff")), "").unwrap();
        let (files, skipped) = walked(folder.path(), &[], None);
        assert_eq!(files.len(), 3, "{files:?}");
        let expected = [
            "a/folder is not stored: it is a link, and links are not followed",
            "a/link is not stored: it is a link, and links are not followed",
            "c.txt is not stored: it is a link, and links are not followed",
            "pipe is not stored: it is no file",
            "\u{fffd} is not stored: its name is not UTF-8",
        ];
        assert_eq!(skipped, expected);
        assert_eq!(walked(folder.path(), &["b*"], None).1.len(), 1, "what does not match is not told");
    }

    #[test]
    fn folders_that_are_too_deep_take_neither_stack_nor_too_many_descriptors() {
        let folder = tree();
        let mut at: OwnedFd = File::open(folder.path().join("a")).unwrap().into();
        for _ in 0..3_000 {
            mkdirat(&at, "x", Mode::S_IRWXU).unwrap();
            at = openat(&at, "x", FOLDER, Mode::empty()).unwrap();
        }
        let (files, skipped) = walked(folder.path(), &[], None);
        assert_eq!(files.len(), 3);
        assert!(skipped.len() == 1 && skipped[0].ends_with("its path is too long"), "{skipped:?}");
        disbatch_core::remove_tree::remove_tree(&folder.path().join("a")).unwrap();
    }

    #[test]
    fn a_file_that_cannot_be_read_is_an_error_that_names_it() {
        let folder = tree();
        if Uid::effective().is_root() {
            let _nobody_reads = writeln!(io::stderr(), "skipped: root can read everything");
            return;
        }
        fs::set_permissions(folder.path().join("b.txt"), fs::Permissions::from_mode(0o0)).unwrap();
        let root = Root::open(folder.path(), None).unwrap();
        let error = walk(&root, &Patterns::default(), |_| false, |_| ControlFlow::Continue(())).unwrap_err();
        assert!(error.to_string().starts_with("b.txt: "), "{error}");
    }

    #[test]
    fn a_file_of_somebody_else_is_not_stored_by_whatever_name() {
        let folder = tree();
        fs::hard_link(folder.path().join("b.txt"), folder.path().join("second")).unwrap();
        let user = |uid: u32| Identity {
            name: "somebody".to_owned(),
            uid,
            gid: 65_534,
            groups: Vec::new(),
            home: "/".into(),
        };
        let own = Uid::effective().as_raw();
        let (files, skipped) = walked(folder.path(), &[], Some(&user(own + 1)));
        let why = "is not stored: it belongs to somebody else than the plugin's user";
        let all = ["a/1.dat", "a/deep/own/2.dat", "b.txt", "second"];
        assert_eq!((files.len(), skipped), (0, all.map(|path| format!("{path} {why}")).to_vec()));
        for owner in [Some(user(own)), None] {
            assert_eq!(walked(folder.path(), &[], owner.as_ref()).0.len(), 4, "{owner:?}");
        }
    }
}
