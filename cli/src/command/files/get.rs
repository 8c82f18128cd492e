//! `disbatch files get NAME FOLDER`

use std::cell::RefCell;
use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use anyhow::{Context, bail, ensure};
use bson::DateTime;
use disbatch_values::files::{ContentHasher, ContentId, EntryPath, Patterns};
use disbatch_wire::files::{FileEntry, FileSearch};
use futures::{StreamExt, stream};
use indicatif::HumanBytes;
use nix::fcntl::OFlag;
use reqwest::{Response, StatusCode};

use super::scan::hash;
use super::{BYTES, advance, page};
use crate::Signals;
use crate::api::{ApiError, Client, segment};
use crate::args::GetFiles;
use crate::command::life::{Connection, FIRST_PAUSE};
use crate::output::{Progress, print, shown_name};
use crate::status::INTERRUPTED;

const FILES_AT_ONCE: usize = 4;

/// So often an answer may bring nothing, one after the other.
const MOST_EMPTY: usize = 20;

pub async fn run(client: &Client, options: &GetFiles) -> anyhow::Result<ExitCode> {
    let signals = Signals::listen().context("cannot listen for signals")?;
    let connection = Connection::new(client);
    let download = Download {
        connection: &connection,
        options,
        patterns: Patterns::new(options.matching.iter().map(String::as_str))?,
        progress: Progress::start(Some(0), BYTES)?,
        tally: RefCell::default(),
    };
    let version = tokio::select! {
        version = download.all() => Some(version),
        () = signals.first() => None,
    };
    download.progress.bar.finish_and_clear();
    let Some(version) = version else {
        eprintln!("Interrupted. The same command goes on where it was.");
        return Ok(ExitCode::from(INTERRUPTED));
    };
    print(&download.tally.borrow().told(&options.name, version?))?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Default)]
struct Tally {
    files: u64,
    bytes: u64,
    unchanged: u64,
    received: u64,
}

impl Tally {
    fn told(&self, name: &str, version: i64) -> String {
        let Self { files, unchanged, .. } = self;
        let (name, bytes, received) = (shown_name(name), HumanBytes(self.bytes), HumanBytes(self.received));
        let word = if *files == 1 { "file" } else { "files" };
        let there = if *unchanged == 0 { String::new() } else { format!("; {unchanged} were there already") };
        format!("Got version {version} of {name}: {files} {word}, {bytes} ({received} received){there}\n")
    }
}

struct Download<'a> {
    connection: &'a Connection<'a>,
    options: &'a GetFiles,
    patterns: Patterns,
    progress: Progress,
    tally: RefCell<Tally>,
}

impl Download<'_> {
    /// Brings all files that match. Returns the number of the version that they are of.
    async fn all(&self) -> anyhow::Result<i64> {
        let mut wanted = FileSearch { version: self.options.number, ..FileSearch::default() };
        let mut page_now = page(self.connection, &self.options.name, &wanted).await?;
        let version = page_now.set.version;
        ensure!(version > 0, "the DCI does not say which version it has");
        // There may be a newer one in a moment.
        wanted.version = Some(version);
        let folder = self.options.folder.clone();
        tokio::task::spawn_blocking(move || std::fs::create_dir_all(folder))
            .await?
            .with_context(|| format!("cannot make the folder {}", self.options.folder.display()))?;
        loop {
            self.some(page_now.entries, version).await?;
            wanted.after = page_now.next;
            if wanted.after.is_none() {
                return Ok(version);
            }
            page_now = page(self.connection, &self.options.name, &wanted).await?;
        }
    }

    async fn some(&self, listed: Vec<FileEntry>, version: i64) -> anyhow::Result<()> {
        let wanted: Vec<FileEntry> =
            listed.into_iter().filter(|entry| self.patterns.matches(&entry.path)).collect();
        self.progress.bar.inc_length(wanted.iter().map(|entry| entry.size).sum());
        let mut brought =
            stream::iter(wanted).map(|entry| self.bring(entry, version)).buffer_unordered(FILES_AT_ONCE);
        while let Some(done) = brought.next().await {
            done?;
        }
        Ok(())
    }

    async fn bring(&self, entry: FileEntry, version: i64) -> anyhow::Result<()> {
        // Whatever the DCI says, nothing is written elsewhere.
        let path = entry.path.parse::<EntryPath>()?;
        let (top, known, at) = (self.options.folder.clone(), entry.clone(), path.clone());
        let looked = blocking(move || {
            let place = place(&top, &at)?;
            let is_there = is_there(&place, &known)?;
            Ok((place, is_there))
        });
        let (place, is_there) = looked.await.with_context(|| format!("cannot write {path}"))?;
        let size = entry.size;
        if is_there {
            advance(&self.progress, "got", size);
            self.tally.borrow_mut().unchanged += 1;
            return Ok(());
        }
        self.fetch(place, entry, version).await.with_context(|| format!("cannot get {path}"))?;
        let mut tally = self.tally.borrow_mut();
        tally.files += 1;
        tally.bytes = tally.bytes.saturating_add(size);
        Ok(())
    }

    async fn fetch(&self, place: PathBuf, entry: FileEntry, version: i64) -> anyhow::Result<()> {
        let parts: Vec<String> = entry.path.split('/').map(segment).collect();
        let name = &self.options.name;
        let content = format!("/files/{name}/content/{}?.version={version}", parts.join("/"));
        let mut part = blocking(move || Part::open(place, entry)).await?;
        advance(&self.progress, "got", part.length());
        self.fill(&mut part, &content).await?;
        if !part.is_right() && part.is_resumed {
            part = blocking(move || part.restart()).await?;
            self.fill(&mut part, &content).await?;
        }
        if !part.is_right() {
            // It would only be begun anew the next time.
            let _left_behind = blocking(move || fs::remove_file(&part.beside)).await;
            bail!("what has come is not what the file set says: its SHA-256 is another one");
        }
        blocking(move || part.finish()).await
    }

    /// Goes on with a file until all of it has come, however often the connection is lost.
    async fn fill(&self, part: &mut Part, content: &str) -> anyhow::Result<()> {
        let (mut pause, mut empty) = (FIRST_PAUSE, 0_usize);
        while !part.is_whole() {
            let before = part.length();
            let lost = match self.connection.client.stream(content, before).await {
                Ok(response) => {
                    self.connection.answered();
                    let is_part = response.status() == StatusCode::PARTIAL_CONTENT;
                    ensure!(is_part == (before > 0), "the DCI sends another part than it was asked for");
                    let lost = self.copy(response, part).await?;
                    empty += 1;
                    lost
                }
                Err(error) => Some(error),
            };
            if part.length() > before {
                (pause, empty) = (FIRST_PAUSE, 0);
            }
            ensure!(empty < MOST_EMPTY, "the DCI sends nothing of it");
            if let Some(error) = lost {
                self.connection.pause(error, &mut pause).await?;
            }
        }
        Ok(())
    }

    /// Writes what comes. Returns why there is no more of it, if that is not its end.
    async fn copy(&self, mut response: Response, part: &mut Part) -> anyhow::Result<Option<ApiError>> {
        let url = response.url().to_string();
        loop {
            match response.chunk().await {
                Ok(Some(bytes)) => {
                    part.write(&bytes)?;
                    let length = bytes.len() as u64;
                    self.tally.borrow_mut().received += length;
                    advance(&self.progress, "got", length);
                }
                Ok(None) => return Ok(None),
                Err(error) => return Ok(Some(ApiError::broken_off("getting", url, &error))),
            }
        }
    }
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    Ok(tokio::task::spawn_blocking(work).await??)
}

/// The mode of a file that has none that can be understood.
const MODE: u32 = 0o644;

/// What is written must be readable and writable to go on with it.
const OWN: u32 = 0o600;

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
fn place(top: &Path, path: &EntryPath) -> io::Result<PathBuf> {
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

fn is_there(place: &Path, entry: &FileEntry) -> io::Result<bool> {
    match fs::symlink_metadata(place) {
        Ok(metadata) if metadata.is_file() && metadata.len() == entry.size => {
            Ok(hash(File::open(place)?)?.finish().to_string() == entry.sha256)
        }
        Ok(_) => Ok(false),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

/// What has come of a file. It is written beside its place first, under a name that nobody else has, and goes there when all of it has
/// come and is what it should be: what was broken off goes on where it was.
#[derive(Debug)]
struct Part {
    place: PathBuf,
    beside: PathBuf,
    entry: FileEntry,
    file: File,
    hasher: ContentHasher,
    /// Whether some of it was there before, which may have been something else.
    is_resumed: bool,
}

impl Part {
    fn open(place: PathBuf, entry: FileEntry) -> io::Result<Self> {
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

    fn length(&self) -> u64 {
        self.hasher.length()
    }

    fn is_whole(&self) -> bool {
        self.length() >= self.entry.size
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let length = self.length().saturating_add(bytes.len() as u64);
        if length > self.entry.size {
            return Err(io::Error::other(format!("{} is longer than the file set says", self.entry.path)));
        }
        self.file.write_all(bytes)?;
        self.hasher.update(bytes);
        Ok(())
    }

    fn restart(self) -> io::Result<Self> {
        let Self { place, beside, entry, .. } = self;
        fs::remove_file(&beside)?;
        Self::open(place, entry)
    }

    fn is_right(&self) -> bool {
        self.hasher.clone().finish().to_string() == self.entry.sha256
    }

    /// Puts the file in its place, whatever was there.
    fn finish(self) -> io::Result<()> {
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

    #[test]
    fn what_has_come_is_told() {
        let tally = Tally { files: 2, bytes: 2048, received: 1024, ..Tally::default() };
        assert_eq!(tally.told("data", 3), "Got version 3 of data: 2 files, 2.00 KiB (1.00 KiB received)\n");
        let none = Tally { unchanged: 5, ..Tally::default() };
        let told = none.told("data", 3);
        assert_eq!(told, "Got version 3 of data: 0 files, 0 B (0 B received); 5 were there already\n");
    }

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
        assert_eq!((part.length(), part.is_resumed, part.is_whole()), (3, true, false));
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
        assert!(part.is_whole() && !part.is_right() && part.is_resumed);
        let mut part = part.restart().unwrap();
        assert_eq!((part.length(), part.is_resumed), (0, false));
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
