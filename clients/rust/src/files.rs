//! File sets: what is sent, and where it is put.

use std::collections::BTreeMap;
use std::fs::Permissions;
use std::io::{self, SeekFrom, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use reqwest::Method;
use reqwest::header::ACCEPT;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use tokio::fs;
use tokio::io::{AsyncReadExt, AsyncSeekExt};

use crate::call::{Call, Connection};
use crate::error::{Error, Result};

const CHUNK: u64 = 1024 * 1024;
const ENTRIES: usize = 1000;
/// Reading back 10 GiB may take minutes.
const FINISH: Duration = Duration::from_secs(300);

/// What becomes a version of a file set.
#[derive(Debug, Clone)]
pub enum Source {
    /// All files below a folder, or a single file.
    Path(PathBuf),
    /// What is in files, by their paths in the set.
    Contents(BTreeMap<String, Vec<u8>>),
}

impl From<&str> for Source {
    fn from(path: &str) -> Self {
        Self::Path(path.into())
    }
}

impl From<&Path> for Source {
    fn from(path: &Path) -> Self {
        Self::Path(path.into())
    }
}

impl From<PathBuf> for Source {
    fn from(path: PathBuf) -> Self {
        Self::Path(path)
    }
}

impl From<BTreeMap<String, Vec<u8>>> for Source {
    fn from(contents: BTreeMap<String, Vec<u8>>) -> Self {
        Self::Contents(contents)
    }
}

/// Makes a new version of a set.
pub async fn put(
    connection: &Connection,
    name: &str,
    source: Source,
    options: &Map<String, Value>,
) -> Result<Value> {
    let files = local_files(source).await?;
    // One that is opened twice and left alone goes away by itself.
    let answer = connection.send(&connection.post(&["files", name], options)?.repeatable()).await?;
    let version =
        answer.json()?["id"].as_str().map(str::to_owned).ok_or_else(|| answer.lacks("id of a version"))?;
    let mut entries = Vec::with_capacity(files.len());
    for file in &files {
        entries.push(file.put(connection).await?);
    }
    let path = ["files", "versions", &version, "entries"];
    for part in entries.chunks(ENTRIES) {
        connection.send(&connection.post(&path, &json!({"entries": part}))?.repeatable()).await?;
    }
    connection
        .ask(connection.post(&["files", "versions", &version, "commit"], &json!({}))?.repeatable())
        .await
}

/// A file to be sent.
struct LocalFile {
    name: String,
    content: Content,
}

enum Content {
    Path(PathBuf),
    Bytes(Vec<u8>),
}

async fn local_files(source: Source) -> Result<Vec<LocalFile>> {
    let top = match source {
        Source::Path(top) => top,
        Source::Contents(contents) => {
            let file = |(name, bytes)| LocalFile { name, content: Content::Bytes(bytes) };
            return Ok(contents.into_iter().map(file).collect());
        }
    };
    let kind = fs::metadata(&top).await.map_err(Error::file(&top))?;
    let (base, paths) = match (kind.is_dir(), top.parent()) {
        (true, _) => (top.as_path(), walk(&top).await?),
        (false, Some(parent)) if kind.is_file() => (parent, vec![top.clone()]),
        _ => return Err(Error::Invalid(format!("{} is neither a folder nor a file", top.display()))),
    };
    let file = |path: PathBuf| {
        let parts: Option<Vec<_>> =
            path.strip_prefix(base).ok()?.components().map(|part| part.as_os_str().to_str()).collect();
        Some(LocalFile { name: parts?.join("/"), content: Content::Path(path) })
    };
    let wrong = |path: &Path| Error::Invalid(format!("{} has a name that is no UTF-8", path.display()));
    paths.into_iter().map(|path| file(path.clone()).ok_or_else(|| wrong(&path))).collect()
}

/// All files below a folder. Links are none.
async fn walk(top: &Path) -> Result<Vec<PathBuf>> {
    let (mut found, mut folders) = (Vec::new(), vec![top.to_owned()]);
    while let Some(folder) = folders.pop() {
        let mut entries = fs::read_dir(&folder).await.map_err(Error::file(&folder))?;
        while let Some(entry) = entries.next_entry().await.map_err(Error::file(&folder))? {
            let kind = entry.file_type().await.map_err(Error::file(entry.path()))?;
            if kind.is_dir() {
                folders.push(entry.path());
            } else if kind.is_file() {
                found.push(entry.path());
            }
        }
    }
    found.sort();
    Ok(found)
}

impl LocalFile {
    /// Sends what the server lacks of it, and returns its entry.
    async fn put(&self, connection: &Connection) -> Result<Value> {
        let (sha, size) = self.digest().await?;
        let state = connection.ask(connection.get(&["files", "contents", &sha])?).await?;
        if state["done"] != true {
            for part in missing(&state, size.div_ceil(CHUNK))? {
                let path = ["files", "contents", &sha, &part.to_string()];
                let call = connection.call(Method::PUT, &path)?.query("length", size);
                connection.send(&call.bytes(self.chunk(part).await?)).await?;
            }
            let call = connection.call(Method::POST, &["files", "contents", &sha, "finish"])?;
            connection.send(&call.bytes(Vec::new()).repeatable().patience(FINISH)).await?;
        }
        self.entry(&sha, size).await
    }

    async fn digest(&self) -> Result<(String, u64)> {
        match &self.content {
            Content::Path(path) => digest(path).await.map_err(Error::file(path)),
            Content::Bytes(bytes) => Ok((hex(Sha256::digest(bytes)), bytes.len() as u64)),
        }
    }

    async fn chunk(&self, number: u64) -> Result<Vec<u8>> {
        match &self.content {
            Content::Path(path) => chunk(path, number).await.map_err(Error::file(path)),
            Content::Bytes(bytes) => {
                let size = usize::try_from(CHUNK).unwrap_or(usize::MAX);
                let number = usize::try_from(number).unwrap_or(usize::MAX);
                Ok(bytes.chunks(size).nth(number).unwrap_or_default().to_vec())
            }
        }
    }

    async fn entry(&self, sha: &str, size: u64) -> Result<Value> {
        let mut entry = json!({"path": self.name, "sha256": sha, "size": size});
        if let Content::Path(path) = &self.content {
            let file = fs::metadata(path).await.map_err(Error::file(path))?;
            entry["mode"] = format!("{:03o}", file.permissions().mode() & 0o777).into();
            let changed = file.modified().map_err(Error::file(path))?;
            if let Ok(changed) = Timestamp::try_from(changed) {
                entry["mtime"] = changed.strftime("%Y-%m-%dT%H:%M:%SZ").to_string().into();
            }
        }
        Ok(entry)
    }
}

/// The numbers of the chunks that the server does not have.
fn missing(state: &Value, all: u64) -> Result<Vec<u64>> {
    if state["length"].is_null() {
        return Ok((0..all).collect());
    }
    let range = |part: &Value| Some(part["first"].as_u64()?..=part["last"].as_u64()?.min(all));
    let ranges: Option<Vec<_>> =
        state["missing"].as_array().and_then(|parts| parts.iter().map(range).collect());
    let wrong = || Error::Protocol("the answer does not say what is missing of a file".into());
    Ok(ranges.ok_or_else(wrong)?.into_iter().flatten().collect())
}

/// SHA-256 and length.
async fn digest(path: &Path) -> io::Result<(String, u64)> {
    let mut file = fs::File::open(path).await?;
    let (mut sha, mut size) = (Sha256::new(), 0);
    let mut buffer = Vec::new();
    while (&mut file).take(CHUNK).read_to_end(&mut buffer).await? > 0 {
        sha.update(&buffer);
        size += buffer.len() as u64;
        buffer.clear();
    }
    Ok((hex(sha.finalize()), size))
}

async fn chunk(path: &Path, number: u64) -> io::Result<Vec<u8>> {
    let mut file = fs::File::open(path).await?;
    file.seek(SeekFrom::Start(number * CHUNK)).await?;
    let mut chunk = Vec::new();
    file.take(CHUNK).read_to_end(&mut chunk).await?;
    Ok(chunk)
}

fn hex(bytes: impl AsRef<[u8]>) -> String {
    bytes.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Brings the files of a version into a folder, and returns the version.
pub async fn get(
    connection: &Connection,
    name: &str,
    folder: &Path,
    mut version: Option<u64>,
    prefix: Option<&str>,
) -> Result<Value> {
    let mut entries = Vec::new();
    let mut after = None;
    let mut page = loop {
        let call = connection.get(&["files", name])?.maybe(".version", version).maybe(".prefix", prefix);
        let answer = connection.send(&call.maybe(".after", after).query(".limit", ENTRIES)).await?;
        let mut page = answer.json()?;
        let listed = page["entries"].as_array_mut().ok_or_else(|| answer.lacks("entries"))?;
        entries.append(listed);
        // There may be a newer one in a moment.
        version = Some(page["version"].as_u64().ok_or_else(|| answer.lacks("version"))?);
        after = page["next"].as_str().map(str::to_owned);
        if after.is_none() {
            break page;
        }
    };
    for entry in entries {
        let (place, segments) = Place::of(folder, entry).await?;
        if !place.is_there().await {
            let path: Vec<_> = ["files", name, "content"].into_iter().chain(segments.split('/')).collect();
            let call = connection.get(&path)?.maybe(".version", version).header(ACCEPT, "*/*");
            place.bring(connection, &call).await?;
        }
    }
    if let Some(page) = page.as_object_mut() {
        page.retain(|key, _| !matches!(key.as_str(), "entries" | "next" | "versions"));
    }
    Ok(page)
}

/// Where a file of a set is put: whole or not at all, and never outside of the folder.
struct Place {
    entry: Value,
    folder: PathBuf,
    path: PathBuf,
}

impl Place {
    /// The place, and the path in the set.
    async fn of(top: &Path, entry: Value) -> Result<(Self, String)> {
        let name = entry["path"].as_str().unwrap_or_default().to_owned();
        let is_wrong = |part: &str| matches!(part, "" | "." | "..") || part.contains(['\0', '\\']);
        if name.split('/').any(is_wrong) {
            let why = format!("the server names a file {name:?}, which is no path in a folder");
            return Err(Error::Protocol(why));
        }
        fs::create_dir_all(top).await.map_err(Error::file(top))?;
        let top = fs::canonicalize(top).await.map_err(Error::file(top))?;
        let (parents, last) = name.rsplit_once('/').unwrap_or(("", &name));
        let mut folder = top.clone();
        for part in parents.split('/').filter(|part| !part.is_empty()) {
            folder.push(part);
            match fs::create_dir(&folder).await {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(Error::file(&folder)(error));
                }
                _ => (), // It is there.
            }
            let real = fs::canonicalize(&folder).await.map_err(Error::file(&folder))?;
            if !real.starts_with(&top) {
                return Err(Error::Protocol(format!("{} leads out of {}", folder.display(), top.display())));
            }
            folder = real;
        }
        let path = folder.join(last);
        Ok((Self { entry, folder, path }, name))
    }

    async fn is_there(&self) -> bool {
        let is_file = fs::symlink_metadata(&self.path)
            .await
            .is_ok_and(|file| file.is_file() && self.entry["size"] == file.len());
        is_file && digest(&self.path).await.is_ok_and(|(sha, _)| self.entry["sha256"] == sha)
    }

    /// Tries until the file has come whole, or is not to be tried again.
    async fn bring(&self, connection: &Connection, call: &Call) -> Result<()> {
        let mut tried = 0;
        loop {
            match self.once(connection, call).await {
                Ok(()) => return Ok(()),
                Err(error) => connection.pause(error, call, &mut tried).await?,
            }
        }
    }

    async fn once(&self, connection: &Connection, call: &Call) -> Result<()> {
        let part = tempfile::Builder::new().prefix(".disbatch-").tempfile_in(&self.folder);
        let mut part = part.map_err(Error::file(&self.folder))?;
        let mut sha = Sha256::new();
        let mut incoming = connection.open(call).await?;
        while let Some(chunk) = incoming.chunk().await? {
            part.write_all(&chunk).map_err(Error::file(part.path()))?;
            sha.update(&chunk);
        }
        if self.entry["sha256"] != hex(sha.finalize()) {
            let name = &self.entry["path"];
            let why = format!("{name}: what has come has another SHA-256 than the file set says");
            return Err(Error::Protocol(why));
        }
        let mode = self.entry["mode"].as_str().and_then(|mode| u32::from_str_radix(mode, 8).ok());
        let permissions = Permissions::from_mode(mode.unwrap_or(0o644) & 0o777);
        part.as_file().set_permissions(permissions).map_err(Error::file(part.path()))?;
        let changed = self.entry["mtime"].as_str().map(|at| format!("{}Z", at.trim_end_matches('Z')));
        if let Some(changed) = changed.and_then(|at| at.parse::<Timestamp>().ok()) {
            part.as_file().set_modified(SystemTime::from(changed)).map_err(Error::file(part.path()))?;
        }
        part.persist(&self.path).map(drop).map_err(|error| Error::file(&self.path)(error.error))
    }
}
