//! `disbatch files put NAME PATH..`
//!
//! Contents are sent first, chunk by chunk, and those chunks that are there already are not sent again. So a command that was
//! broken off goes on where it was when it is repeated. A version gets its files while they are sent, which keeps their contents
//! from being removed, and becomes done at the end. However long the sending takes, it gets them every few minutes, and is touched
//! when there are none: a version that nobody has touched for a day is given up.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fs::File;
use std::ops::Range;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use std::{iter, mem};

use anyhow::{Context, bail, ensure};
use disbatch_values::files::{ContentId, Patterns, chunk_length, chunks_of};
use disbatch_wire::files::{ContentChunks, FileSetVersion};
use futures::{StreamExt, stream};
use indicatif::HumanBytes;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::time::{Instant, MissedTickBehavior, interval_at};

use super::scan::{LocalFile, Scan, chunk};
use super::{BYTES, advance};
use crate::Signals;
use crate::api::{ApiError, Client, given, read};
use crate::args::PutFiles;
use crate::command::life::Connection;
use crate::output::{Progress, print, say, shown_name};
use crate::status::INTERRUPTED;

const FILES_AT_ONCE: usize = 4;

const CHUNKS_AT_ONCE: usize = 4;

/// So many files are added to the version at once at most.
const TOGETHER: usize = 500;

const ADDED: Duration = Duration::from_secs(300);

/// So often a file is sent that changes meanwhile, or whose content goes away.
const TRIES: usize = 3;

pub async fn run(client: &Client, options: &PutFiles) -> anyhow::Result<ExitCode> {
    let signals = Signals::listen().context("cannot listen for signals")?;
    let patterns = Patterns::new(options.matching.iter().map(String::as_str))?;
    let paths = options.paths.clone();
    let scan = tokio::task::spawn_blocking(move || Scan::of(&paths, &patterns)).await??;
    for note in scan.notes() {
        say(&format!("disbatch: {note}"));
    }
    let files = scan.files();
    ensure!(!files.is_empty(), "there is no file to be stored");
    let connection = Connection::new(client);
    let upload = Upload {
        connection: &connection,
        options,
        progress: Progress::start(Some(files.iter().map(|found| found.size).sum()), BYTES)?,
        sent: Cell::new(0),
        known: RefCell::default(),
    };
    let stored = tokio::select! {
        stored = upload.all(&files) => Some(stored),
        () = signals.first() => None,
    };
    upload.progress.bar.finish_and_clear();
    let Some(stored) = stored else {
        eprintln!("Interrupted. What was sent is kept for a day: the same command goes on with it.");
        return Ok(ExitCode::from(INTERRUPTED));
    };
    print(&told(&stored?, upload.sent.get()))?;
    Ok(ExitCode::SUCCESS)
}

struct Upload<'a> {
    connection: &'a Connection<'a>,
    options: &'a PutFiles,
    progress: Progress,
    sent: Cell<u64>,
    /// Contents that are there for sure.
    known: RefCell<HashSet<ContentId>>,
}

struct Stored<'f> {
    found: &'f LocalFile,
    id: ContentId,
    entry: Value,
}

impl Upload<'_> {
    async fn all(&self, files: &[LocalFile]) -> anyhow::Result<FileSetVersion> {
        let name = &self.options.name;
        let FileSetVersion { id, .. } =
            read(self.post(&format!("/files/{name}"), &opening(self.options)).await?)?;
        let stored = self.contents(files, &id).await?;
        Ok(read(self.insist(&format!("/files/versions/{id}/commit"), &json!({}), &stored).await?)?)
    }

    /// Asks for something that needs the contents of these files. Those whose contents have gone away meanwhile are sent again.
    async fn insist(
        &self,
        path: &str,
        body: &Value,
        files: &[(&LocalFile, ContentId)],
    ) -> anyhow::Result<Value> {
        for _ in 0..TRIES {
            let error = match self.post(path, body).await {
                Ok(answer) => return Ok(answer),
                Err(error) => error,
            };
            let gone = missing_contents(&error);
            if gone.is_empty() {
                return Err(error.into());
            }
            Box::pin(self.again(files, &gone)).await?;
        }
        bail!("contents of the files go away while they are sent: try it again")
    }

    /// Sends all files and adds them to the version. Returns what each of them is known by, in any order.
    async fn contents<'f>(
        &self,
        files: &'f [LocalFile],
        version: &str,
    ) -> anyhow::Result<Vec<(&'f LocalFile, ContentId)>> {
        let mut all = Vec::with_capacity(files.len());
        let mut waiting = Vec::new();
        // In any order: those behind a large one are added before it.
        let mut stored = stream::iter(files).map(|found| self.store(found)).buffer_unordered(FILES_AT_ONCE);
        let mut ticks = interval_at(Instant::now() + ADDED, ADDED);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            let is_time = tokio::select! {
                one = stored.next() => match one {
                    Some(one) => {
                        let one = one?;
                        all.push((one.found, one.id));
                        waiting.push(one);
                        waiting.len() >= TOGETHER
                    }
                    None => break,
                },
                _ = ticks.tick() => true,
            };
            if is_time {
                self.add(version, &mem::take(&mut waiting)).await?;
            }
        }
        if !waiting.is_empty() {
            self.add(version, &waiting).await?;
        }
        Ok(all)
    }

    /// Adds files to the version, which is touched even if there are none. Those are sent again whose contents have gone away.
    async fn add(&self, version: &str, stored: &[Stored<'_>]) -> anyhow::Result<()> {
        let path = format!("/files/versions/{version}/entries");
        let entries: Vec<&Value> = stored.iter().map(|one| &one.entry).collect();
        let files: Vec<(&LocalFile, ContentId)> = stored.iter().map(|one| (one.found, one.id)).collect();
        self.insist(&path, &json!({ "entries": entries }), &files).await.map(drop)
    }

    /// Sends those of these files again whose contents are `gone`, as they were sent very long ago.
    async fn again(&self, files: &[(&LocalFile, ContentId)], gone: &HashSet<String>) -> anyhow::Result<()> {
        self.known.borrow_mut().clear();
        for (found, id) in files.iter().filter(|(_, id)| gone.contains(&id.to_string())) {
            let now = self.store(found).await?.id;
            ensure!(now == *id, "{} has changed since it was sent: try it again", found.file.display());
        }
        Ok(())
    }

    async fn store<'f>(&self, found: &'f LocalFile) -> anyhow::Result<Stored<'f>> {
        for _ in 0..TRIES {
            let (id, length) = found.content().await?;
            let is_known = self.known.borrow().contains(&id);
            if is_known {
                advance(&self.progress, "sent", length);
            } else if !self.send(found, (id, length)).await? {
                continue;
            }
            self.known.borrow_mut().insert(id);
            let entry = json!({
                "path": found.path.as_str(),
                "sha256": id.to_string(),
                "size": length,
                "mode": format!("{:o}", found.mode),
                "mtime": found.mtime,
            });
            return Ok(Stored { found, id, entry });
        }
        bail!("{} changes while it is sent", found.file.display())
    }

    /// Sends what is missing of a content. Returns whether it is there then; if not, it was another one, or has gone away.
    async fn send(&self, found: &LocalFile, (id, length): (ContentId, u64)) -> anyhow::Result<bool> {
        let path = format!("/files/contents/{id}");
        let told: ContentChunks = read(self.connection.get(&path).await?)?;
        if told.done {
            advance(&self.progress, "sent", length);
            return Ok(true);
        }
        let missing = missing_chunks(&told, length);
        let left: u64 = missing.iter().cloned().flatten().filter_map(|n| chunk_length(length, n)).sum();
        advance(&self.progress, "sent", length.saturating_sub(left));
        let file = found.open().with_context(|| format!("cannot read {}", found.file.display()))?;
        let file = Arc::new(file);
        let chunks = stream::iter(missing.into_iter().flatten());
        let mut sent =
            chunks.map(|n| self.send_chunk(&file, (id, length), n)).buffer_unordered(CHUNKS_AT_ONCE);
        while let Some(is_same) = sent.next().await {
            if !is_same? {
                return Ok(false);
            }
        }
        drop(sent);
        match self.post(&format!("{path}/finish"), &json!({})).await {
            Ok(_) => Ok(true),
            Err(error) => match error.status() {
                Some(StatusCode::UNPROCESSABLE_ENTITY | StatusCode::CONFLICT | StatusCode::NOT_FOUND) => {
                    Ok(false)
                }
                _ => Err(error.into()),
            },
        }
    }

    /// Sends a chunk. Returns whether the file has it.
    async fn send_chunk(
        &self,
        file: &Arc<File>,
        (id, length): (ContentId, u64),
        n: u64,
    ) -> anyhow::Result<bool> {
        let size = chunk_length(length, n).unwrap_or_default();
        let Some(bytes) = chunk(Arc::clone(file), n, size).await? else { return Ok(false) };
        let path = format!("/files/contents/{id}/{n}?length={length}");
        let client = self.connection.client;
        self.connection.persist(async || client.put_bytes(&path, bytes.clone()).await).await?;
        self.sent.set(self.sent.get().saturating_add(size));
        advance(&self.progress, "sent", size);
        Ok(true)
    }

    async fn post(&self, path: &str, body: &Value) -> Result<Value, ApiError> {
        let client = self.connection.client;
        self.connection.persist(async || client.post(path, body).await).await
    }
}

fn opening(options: &PutFiles) -> Value {
    let text = |text: &Option<String>| text.clone().map(Value::from);
    Value::Object(given([(".tenant", text(&options.tenant)), (".expires", text(&options.expires))]))
}

fn missing_chunks(told: &ContentChunks, length: u64) -> Vec<Range<u64>> {
    if told.length != Some(length) {
        return iter::once(0..chunks_of(length)).collect();
    }
    told.missing.iter().map(|range| range.first..range.last.saturating_add(1)).collect()
}

fn missing_contents(error: &ApiError) -> HashSet<String> {
    let ApiError::Refused { status: StatusCode::CONFLICT, body, .. } = error else { return HashSet::new() };
    let body: Value = serde_json::from_str(body).unwrap_or_default();
    let contents = body.get("contents").and_then(Value::as_array).into_iter().flatten();
    contents.filter_map(Value::as_str).map(str::to_owned).collect()
}

fn told(version: &FileSetVersion, sent: u64) -> String {
    let FileSetVersion { name, version, count, bytes, .. } = version;
    let files = if *count == 1 { "file" } else { "files" };
    let (bytes, sent) = (HumanBytes(*bytes), HumanBytes(sent));
    format!("Stored version {version} of {}: {count} {files}, {bytes} ({sent} sent)\n", shown_name(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_missing_is_sent() {
        const MIB: u64 = 1024 * 1024;
        let told =
            json!({ "length": 5 * MIB, "missing": [{ "first": 1, "last": 2 }, { "first": 4, "last": 4 }] });
        let told = read(told).unwrap();
        assert_eq!(missing_chunks(&told, 5 * MIB), [1..3, 4..5]);
        let all: Vec<u64> = missing_chunks(&told, 3 * MIB).into_iter().flatten().collect();
        assert_eq!(all, [0, 1, 2], "what was sent of another length is begun anew");
        let nothing = json!({ "length": null, "missing": [] });
        assert_eq!(missing_chunks(&read(nothing).unwrap(), 0).into_iter().flatten().count(), 0);
    }

    #[test]
    fn what_was_stored_is_told() {
        let version = json!({ "name": "data", "version": 3, "count": 1, "bytes": 2048 });
        assert_eq!(
            told(&read(version).unwrap(), 0),
            "Stored version 3 of data: 1 file, 2.00 KiB (0 B sent)\n"
        );
    }
}
