//! Files that are brought here. They are written beside their places first, under names that nobody else has, and go there
//! when all of them has come and is what it should be: what was broken off goes on where it was.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use bson::DateTime;
use disbatch_values::files::{ContentHasher, ContentId, EntryPath};
use disbatch_wire::files::FileEntry;
use nix::fcntl::OFlag;

use super::scan::hash;

/// The mode of a file that has none that can be understood.
const MODE: u32 = 0o644;

/// What is written must be readable and writable to go on with it.
const OWN: u32 = 0o600;

/// Who may read, write and run a file of a set.
fn mode(entry: &FileEntry) -> u32 {
    let mode = entry.mode.as_deref().and_then(|mode| u32::from_str_radix(mode, 8).ok());
    mode.map_or(MODE, |mode| mode & 0o777)
}

fn mtime(entry: &FileEntry) -> Option<SystemTime> {
    let at = DateTime::parse_rfc3339_str(format!("{}Z", entry.mtime.as_deref()?)).ok()?;
    let since = u64::try_from(at.timestamp_millis()).ok()?;
    SystemTime::UNIX_EPOCH.checked_add(Duration::from_millis(since))
}

/// The place of a file below `top`, with the folders that it is in. A link that is there is not gone through: it may lead
/// anywhere.
pub fn place(top: &Path, path: &EntryPath) -> io::Result<PathBuf> {
    let (folders, name) = path.folders_and_name();
    let mut place = top.to_path_buf();
    for folder in folders {
        place.push(folder);
        match fs::create_dir(&place) {
            Ok(()) => {}
            Err(error) if error.kind() == ErrorKind::AlreadyExists => {
                if !fs::symlink_metadata(&place)?.is_dir() {
                    return Err(io::Error::other(format!(
                        "{} is in the way, and no folder",
                        place.display()
                    )));
                }
            }
            Err(error) => return Err(error),
        }
    }
    place.push(name);
    Ok(place)
}

/// Whether a file with this content is there.
pub fn is_there(place: &Path, entry: &FileEntry) -> io::Result<bool> {
    match fs::symlink_metadata(place) {
        Ok(metadata) if metadata.is_file() && metadata.len() == entry.size => {
            Ok(hash(File::open(place)?)?.finish().to_string() == entry.sha256)
        }
        Ok(_) => Ok(false),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// What has come of a file.
#[derive(Debug)]
pub struct Part {
    place: PathBuf,
    beside: PathBuf,
    entry: FileEntry,
    file: File,
    hasher: ContentHasher,
    /// Whether some of it was there before.
    is_resumed: bool,
}

impl Part {
    /// Begins a file, or goes on with one.
    pub fn open(place: PathBuf, entry: FileEntry) -> io::Result<Self> {
        // By the path, too: two files of the same content may come at once.
        let name = ContentId::of(format!("{}\0{}", entry.path, entry.sha256).as_bytes());
        let beside = place.with_file_name(format!(".disbatch-{name}"));
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).mode(mode(&entry) | OWN);
        options.custom_flags(OFlag::O_NOFOLLOW.bits());
        let mut file = options.open(&beside)?;
        if file.metadata()?.len() > entry.size {
            file.set_len(0)?;
        }
        let hasher = hash(&mut file)?;
        let is_resumed = hasher.length() > 0;
        Ok(Self { place, beside, entry, file, hasher, is_resumed })
    }

    /// How many bytes are there.
    pub fn length(&self) -> u64 {
        self.hasher.length()
    }

    /// Whether all of it is.
    pub fn is_whole(&self) -> bool {
        self.length() >= self.entry.size
    }

    /// Whether some of it was there before, which may have been something else.
    pub fn is_resumed(&self) -> bool {
        self.is_resumed
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let length = self.length().saturating_add(bytes.len() as u64);
        if length > self.entry.size {
            return Err(io::Error::other(format!("{} is longer than the file set says", self.entry.path)));
        }
        self.file.write_all(bytes)?;
        self.hasher.update(bytes);
        Ok(())
    }

    pub fn restart(self) -> io::Result<Self> {
        let Self { place, beside, entry, .. } = self;
        fs::remove_file(&beside)?;
        Self::open(place, entry)
    }

    /// Whether it is what it should be.
    pub fn is_right(&self) -> bool {
        self.hasher.clone().finish().to_string() == self.entry.sha256
    }

    /// Removes what is not what it should be.
    pub fn give_up(self) {
        // It would only be begun anew the next time.
        let _left_behind = fs::remove_file(&self.beside);
    }

    /// Puts the file in its place, whatever was there.
    pub fn finish(self) -> io::Result<()> {
        // As the umask has left it, without what the file itself forbids.
        let mode = self.file.metadata()?.mode() & mode(&self.entry);
        self.file.set_permissions(Permissions::from_mode(mode))?;
        if let Some(mtime) = mtime(&self.entry) {
            self.file.set_modified(mtime)?;
        }
        fs::rename(&self.beside, &self.place)
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use serde_json::json;

    use super::*;

    fn entry(path: &str, content: &[u8], mode: &str) -> FileEntry {
        let entry = json!({
            "path": path, "sha256": ContentId::of(content).to_string(), "size": content.len(), "mode": mode,
            "mtime": "2026-11-20T08:24:27",
        });
        serde_json::from_value(entry).unwrap()
    }

    #[test]
    fn a_file_is_in_its_place_only_when_all_of_it_has_come() {
        let folder = tempfile::tempdir().unwrap();
        let entry = entry("a/b/run", b"abcdef", "755");
        let place = place(folder.path(), &entry.path.parse().unwrap()).unwrap();
        assert_eq!(place, folder.path().join("a/b/run"));
        let mut part = Part::open(place.clone(), entry.clone()).unwrap();
        part.write(b"abc").unwrap();
        drop(part);
        assert!(!place.exists() && !is_there(&place, &entry).unwrap());
        let mut part = Part::open(place.clone(), entry.clone()).unwrap();
        assert_eq!((part.length(), part.is_resumed(), part.is_whole()), (3, true, false));
        part.write(b"def").unwrap();
        assert!(part.is_whole() && part.is_right() && part.write(b"g").is_err());
        part.finish().unwrap();
        assert!(is_there(&place, &entry).unwrap());
        let metadata = fs::metadata(&place).unwrap();
        assert_eq!((metadata.mode() & 0o700, metadata.mtime()), (0o700, 1_795_163_067));
        let left: Vec<_> = fs::read_dir(folder.path().join("a/b")).unwrap().collect();
        assert_eq!(left.len(), 1, "{left:?}");
    }

    #[test]
    fn what_was_there_before_may_have_been_something_else() {
        let folder = tempfile::tempdir().unwrap();
        let (place, entry) = (folder.path().join("x"), entry("x", b"abc", "400"));
        let mut part = Part::open(place.clone(), entry.clone()).unwrap();
        part.write(b"zz").unwrap();
        drop(part);
        let mut part = Part::open(place.clone(), entry.clone()).unwrap();
        part.write(b"c").unwrap();
        assert!(part.is_whole() && !part.is_right() && part.is_resumed());
        let mut part = part.restart().unwrap();
        assert_eq!((part.length(), part.is_resumed()), (0, false));
        part.write(b"abc").unwrap();
        part.finish().unwrap();
        assert_eq!(fs::metadata(&place).unwrap().mode() & 0o777, 0o400);
    }

    #[test]
    fn nothing_is_written_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        symlink(elsewhere.path(), folder.path().join("a")).unwrap();
        let error = place(folder.path(), &"a/x".parse().unwrap()).unwrap_err();
        assert!(error.to_string().ends_with("is in the way, and no folder"), "{error}");
        // A link in the place of a file is replaced.
        let target = elsewhere.path().join("kept");
        fs::write(&target, "kept").unwrap();
        symlink(&target, folder.path().join("x")).unwrap();
        let mut part = Part::open(folder.path().join("x"), entry("x", b"abc", "644")).unwrap();
        part.write(b"abc").unwrap();
        part.finish().unwrap();
        assert_eq!(fs::read(&target).unwrap(), b"kept");
        assert_eq!(fs::read(folder.path().join("x")).unwrap(), b"abc");
    }
}
