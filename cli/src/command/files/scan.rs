//! The files on the disk that are to be stored. Links in folders are not followed: what they lead to is not in the folder.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fs::{File, Metadata, OpenOptions};
use std::io::{self, ErrorKind, Read};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, bail};
use disbatch_values::files::{CHUNK_BYTES, ContentHasher, ContentId, EntryPath, Patterns, RESERVED_PREFIX};
use nix::fcntl::OFlag;

const NAMED: usize = 10;

const READ_AT_ONCE: usize = 1024 * 1024;

#[derive(Debug, Clone)]
pub struct LocalFile {
    pub path: EntryPath,
    pub file: PathBuf,
    /// How many bytes it had when it was found.
    pub size: u64,
    pub mode: u32,
    /// When it was changed: seconds since 1970.
    pub mtime: i64,
}

#[derive(Debug, Default)]
pub struct Scan {
    files: BTreeMap<String, LocalFile>,
    left_out: Vec<PathBuf>,
}

impl Scan {
    pub fn of(paths: &[PathBuf], patterns: &Patterns) -> anyhow::Result<Self> {
        let mut scan = Self::default();
        for path in paths {
            // What is named is meant, also if it is a link.
            let real = path.canonicalize().with_context(|| format!("cannot read {}", path.display()))?;
            let metadata = real.metadata().with_context(|| format!("cannot read {}", path.display()))?;
            if metadata.is_dir() {
                scan.folder(&real, patterns)?;
            } else if metadata.is_file() {
                let name = path.file_name().or(real.file_name()).unwrap_or_default();
                let name = name.to_str().with_context(|| not_text(path))?;
                scan.file(name, &real, &metadata, patterns)?;
            } else {
                bail!("{} is neither a file nor a folder", path.display());
            }
        }
        Ok(scan)
    }

    pub fn files(self) -> Vec<LocalFile> {
        self.files.into_values().collect()
    }

    pub fn notes(&self) -> Vec<String> {
        let named = self.left_out.iter().take(NAMED);
        let mut notes: Vec<String> =
            named.map(|path| format!("left out, as it is no file: {}", path.display())).collect();
        let more = self.left_out.len().saturating_sub(NAMED);
        if more > 0 {
            notes.push(format!("left out besides: {more} things that are no files"));
        }
        notes
    }

    fn folder(&mut self, top: &Path, patterns: &Patterns) -> anyhow::Result<()> {
        let mut folders = vec![(top.to_path_buf(), String::new())];
        while let Some((folder, prefix)) = folders.pop() {
            let context = || format!("cannot read {}", folder.display());
            for entry in std::fs::read_dir(&folder).with_context(context)? {
                let entry = entry.with_context(context)?;
                let (path, kind) = (entry.path(), entry.file_type().with_context(context)?);
                let name = entry.file_name();
                let name = name.to_str().with_context(|| not_text(&path))?;
                let within = format!("{prefix}{name}");
                if kind.is_dir() {
                    folders.push((path, format!("{within}/")));
                } else if kind.is_file() {
                    let metadata =
                        entry.metadata().with_context(|| format!("cannot read {}", path.display()))?;
                    self.file(&within, &path, &metadata, patterns)?;
                } else if patterns.matches(&within) {
                    self.left_out.push(path);
                }
            }
        }
        Ok(())
    }

    fn file(
        &mut self,
        within: &str,
        file: &Path,
        metadata: &Metadata,
        patterns: &Patterns,
    ) -> anyhow::Result<()> {
        if !patterns.matches(within) {
            return Ok(());
        }
        let path: EntryPath = within.parse()?;
        if path.is_reserved() {
            bail!("{}: at the top of a file set, no name may begin with {RESERVED_PREFIX}", file.display());
        }
        let found = LocalFile {
            path,
            file: file.to_path_buf(),
            size: metadata.len(),
            mode: metadata.mode() & 0o777,
            mtime: metadata.mtime().max(0),
        };
        match self.files.entry(within.to_owned()) {
            Entry::Vacant(place) => {
                place.insert(found);
            }
            // The same file may be named twice.
            Entry::Occupied(other) if other.get().file == found.file => {}
            Entry::Occupied(other) => {
                let other = other.get().file.display();
                bail!("{} and {other} would both be {within} in the set", file.display());
            }
        }
        Ok(())
    }
}

fn not_text(path: &Path) -> String {
    format!("{} has a name that is not UTF-8", path.display())
}

impl LocalFile {
    pub fn open(&self) -> io::Result<File> {
        // What was a file may be something else by now.
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let file = OpenOptions::new().read(true).custom_flags(flags.bits()).open(&self.file)?;
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("it is no file any more")) }
    }

    /// What its content is known by, and how many bytes it has.
    pub async fn content(&self) -> anyhow::Result<(ContentId, u64)> {
        let found = self.clone();
        let read = tokio::task::spawn_blocking(move || hash(found.open()?).map(finished)).await?;
        read.with_context(|| format!("cannot read {}", self.file.display()))
    }
}

fn finished(hasher: ContentHasher) -> (ContentId, u64) {
    let length = hasher.length();
    (hasher.finish(), length)
}

pub fn hash(mut file: impl Read) -> io::Result<ContentHasher> {
    let mut hasher = ContentHasher::default();
    let mut buffer = vec![0; READ_AT_ONCE];
    loop {
        match file.read(&mut buffer) {
            Ok(0) => return Ok(hasher),
            Ok(length) => hasher.update(buffer.get(..length).unwrap_or_default()),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// The chunk `n` of a file, which has `size` bytes. `None`: the file is shorter than it was.
pub async fn chunk(file: Arc<File>, n: u64, size: u64) -> anyhow::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; usize::try_from(size)?];
    let read = tokio::task::spawn_blocking(move || {
        file.read_exact_at(&mut bytes, n.saturating_mul(CHUNK_BYTES)).map(|()| bytes)
    });
    match read.await? {
        Ok(bytes) => Ok(Some(bytes)),
        Err(error) if error.kind() == ErrorKind::UnexpectedEof => Ok(None),
        Err(error) => Err(error.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn tree() -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path();
        std::fs::create_dir_all(path.join("in/bin/old")).unwrap();
        for (name, text) in
            [("in/a.csv", "abc"), ("in/bin/run", "#!"), ("in/bin/old/run", ""), ("b.csv", "x")]
        {
            std::fs::write(path.join(name), text).unwrap();
        }
        std::fs::set_permissions(path.join("in/bin/run"), PermissionsExt::from_mode(0o755)).unwrap();
        symlink("/etc", path.join("in/elsewhere")).unwrap();
        symlink("../b.csv", path.join("in/link.csv")).unwrap();
        folder
    }

    fn scan(folder: &tempfile::TempDir, names: &[&str], patterns: &[&str]) -> anyhow::Result<Scan> {
        let paths: Vec<PathBuf> = names.iter().map(|name| folder.path().join(name)).collect();
        Scan::of(&paths, &Patterns::new(patterns.iter().copied()).unwrap())
    }

    fn paths(scan: Scan) -> Vec<String> {
        scan.files().into_iter().map(|found| found.path.to_string()).collect()
    }

    #[test]
    fn a_folder_is_all_files_in_it_and_no_links() {
        let folder = tree();
        let all = scan(&folder, &["in"], &[]).unwrap();
        assert_eq!(all.notes().len(), 2, "{:?}", all.notes());
        assert_eq!(paths(all), ["a.csv", "bin/old/run", "bin/run"]);
        assert_eq!(paths(scan(&folder, &["in"], &["bin/**"]).unwrap()), ["bin/old/run", "bin/run"]);
        assert_eq!(paths(scan(&folder, &["in", "b.csv"], &["*.csv"]).unwrap()), ["a.csv", "b.csv"]);
        assert_eq!(
            paths(scan(&folder, &["in/link.csv"], &[]).unwrap()),
            ["link.csv"],
            "what is named is meant"
        );
        let run = scan(&folder, &["in/bin/run"], &[]).unwrap().files().remove(0);
        assert_eq!((run.size, run.mode), (2, 0o755));
    }

    #[test]
    fn what_no_task_could_have_is_refused_before_it_is_sent() {
        let folder = tree();
        std::fs::write(folder.path().join("in/.disbatch-control"), "x").unwrap();
        let error = scan(&folder, &["in"], &[]).unwrap_err().to_string();
        assert!(error.contains("no name may begin with .disbatch-"), "{error}");
        assert_eq!(paths(scan(&folder, &["in"], &["*.csv"]).unwrap()), ["a.csv"], "what is left out is not");
    }

    #[test]
    fn two_files_are_not_one() {
        let folder = tree();
        let error = scan(&folder, &["in/bin/run", "in/bin/old/run"], &[]).unwrap_err().to_string();
        assert!(error.ends_with("would both be run in the set"), "{error}");
        assert_eq!(paths(scan(&folder, &["b.csv", "b.csv"], &[]).unwrap()), ["b.csv"]);
        assert!(scan(&folder, &["nothing"], &[]).unwrap_err().to_string().starts_with("cannot read "));
    }

    #[tokio::test]
    async fn a_file_is_known_by_what_is_in_it() {
        let folder = tree();
        let found = scan(&folder, &["in/a.csv"], &[]).unwrap().files().remove(0);
        assert_eq!(found.content().await.unwrap(), (ContentId::of(b"abc"), 3));
        let file = Arc::new(found.open().unwrap());
        assert_eq!(chunk(Arc::clone(&file), 0, 3).await.unwrap().as_deref(), Some(&b"abc"[..]));
        assert_eq!(chunk(file, 0, 4).await.unwrap(), None);
        let link = LocalFile { file: folder.path().join("in/link.csv"), ..found };
        assert!(link.open().is_err(), "a link has taken its place");
    }
}
