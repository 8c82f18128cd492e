//! `disbatch files get NAME FOLDER`

use std::cell::Cell;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use disbatch_values::files::{EntryPath, Patterns};
use disbatch_wire::files::FileEntry;
use futures::{StreamExt, stream};
use indicatif::HumanBytes;
use reqwest::{Response, StatusCode};

use super::local::{Part, is_there, place};
use super::{Progress, Wanted, page};
use crate::api::{ApiError, Client, segment};
use crate::args::GetFiles;
use crate::command::life::advise;
use crate::command::life::connection::{Connection, Pause};
use crate::output::{print, shown_name};
use crate::signals::Signals;
use crate::status::INTERRUPTED;

/// So many files are brought at once.
const FILES_AT_ONCE: usize = 4;

/// So often an answer may bring nothing, one after the other.
const MOST_EMPTY: usize = 20;

/// Brings the files of a set into a folder.
pub async fn run(client: &Client, options: &GetFiles) -> anyhow::Result<ExitCode> {
    let signals = Signals::listen().context("cannot listen for signals")?;
    let connection = Connection::new(client);
    let download = Download {
        connection: &connection,
        options,
        patterns: Patterns::new(options.matching.iter().map(String::as_str))?,
        progress: Progress::start("got", 0)?,
        tally: Cell::default(),
        received: Cell::default(),
    };
    let version = tokio::select! {
        version = download.all() => Some(version),
        () = signals.first() => None,
    };
    download.progress.finish();
    let Some(version) = version else {
        eprintln!("Interrupted. The same command goes on where it was.");
        return Ok(ExitCode::from(INTERRUPTED));
    };
    print(&download.tally.get().told(&options.name, version?, download.received.get()))?;
    Ok(ExitCode::SUCCESS)
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Tally {
    files: u64,
    bytes: u64,
    /// Files that were there.
    unchanged: u64,
}

impl Tally {
    fn told(self, name: &str, version: i64, received: u64) -> String {
        let Self { files, bytes, unchanged } = self;
        let word = if files == 1 { "file" } else { "files" };
        let there = if unchanged == 0 { String::new() } else { format!("; {unchanged} were there already") };
        format!(
            "Got version {version} of {}: {files} {word}, {} ({} received){there}\n",
            shown_name(name),
            HumanBytes(bytes),
            HumanBytes(received)
        )
    }
}

/// The way of files out of a set.
struct Download<'a> {
    connection: &'a Connection<'a>,
    options: &'a GetFiles,
    patterns: Patterns,
    progress: Progress,
    tally: Cell<Tally>,
    /// How many bytes were sent to here.
    received: Cell<u64>,
}

impl Download<'_> {
    /// Brings all files that match. Returns the number of the version that they are of.
    async fn all(&self) -> anyhow::Result<i64> {
        let mut wanted = Wanted { version: self.options.number, ..Wanted::default() };
        let mut page_now = page(self.connection, &self.options.name, wanted).await?;
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
            let Some(next) = page_now.next else { return Ok(version) };
            page_now =
                page(self.connection, &self.options.name, Wanted { after: Some(&next), ..wanted }).await?;
        }
    }

    async fn some(&self, listed: Vec<FileEntry>, version: i64) -> anyhow::Result<()> {
        let wanted: Vec<FileEntry> =
            listed.into_iter().filter(|entry| self.patterns.matches(&entry.path)).collect();
        self.progress.grow(wanted.iter().map(|entry| entry.size).sum());
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
            self.progress.advance(size);
            self.count(|tally| Tally { unchanged: tally.unchanged + 1, ..tally });
            return Ok(());
        }
        self.fetch(place, entry, version).await.with_context(|| format!("cannot get {path}"))?;
        let more = |bytes: u64| bytes.saturating_add(size);
        self.count(|tally| Tally { files: tally.files + 1, bytes: more(tally.bytes), ..tally });
        Ok(())
    }

    fn count(&self, one: impl FnOnce(Tally) -> Tally) {
        self.tally.set(one(self.tally.get()));
    }

    /// Brings a file to its place.
    async fn fetch(&self, place: PathBuf, entry: FileEntry, version: i64) -> anyhow::Result<()> {
        let parts: Vec<String> = entry.path.split('/').map(segment).collect();
        let name = &self.options.name;
        let address = format!("/files/{name}/content/{}?.version={version}", parts.join("/"));
        let mut part = blocking(move || Part::open(place, entry)).await?;
        self.progress.advance(part.length());
        self.fill(&mut part, &address).await?;
        if !part.is_right() && part.is_resumed() {
            part = blocking(move || part.restart()).await?;
            self.fill(&mut part, &address).await?;
        }
        if !part.is_right() {
            blocking(move || {
                part.give_up();
                Ok(())
            })
            .await?;
            bail!("what has come is not what the file set says: its SHA-256 is another one");
        }
        blocking(move || part.finish()).await
    }

    /// Goes on with a file until all of it has come, however often the connection is lost.
    async fn fill(&self, part: &mut Part, address: &str) -> anyhow::Result<()> {
        let (mut pause, mut empty) = (Pause::default(), 0_usize);
        while !part.is_whole() {
            let before = part.length();
            let lost = match self.connection.client.stream(address, before).await {
                Ok(response) => {
                    self.connection.answered();
                    let is_part = response.status() == StatusCode::PARTIAL_CONTENT;
                    ensure!(is_part == (before > 0), "the DCI sends another part than it was asked for");
                    let lost = self.copy(response, part, address).await?;
                    empty += 1;
                    lost
                }
                Err(error) => Some(error),
            };
            if part.length() > before {
                (pause, empty) = (Pause::default(), 0);
            }
            ensure!(empty < MOST_EMPTY, "the DCI sends nothing of it");
            if let Some(error) = lost {
                self.connection.pause(error, &mut pause).await.map_err(advise)?;
            }
        }
        Ok(())
    }

    /// Writes what comes. Returns why there is no more of it, if that is not its end.
    async fn copy(
        &self,
        mut response: Response,
        part: &mut Part,
        address: &str,
    ) -> anyhow::Result<Option<ApiError>> {
        loop {
            match response.chunk().await {
                Ok(Some(bytes)) => {
                    part.write(&bytes)?;
                    let length = bytes.len() as u64;
                    self.received.set(self.received.get().saturating_add(length));
                    self.progress.advance(length);
                }
                Ok(None) => return Ok(None),
                Err(error) => return Ok(Some(ApiError::broken_off("getting", address.to_owned(), &error))),
            }
        }
    }
}

/// Does what the disk may take a while for.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> std::io::Result<T> + Send + 'static,
) -> anyhow::Result<T> {
    Ok(tokio::task::spawn_blocking(work).await??)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_come_is_told() {
        let tally = Tally { files: 2, bytes: 2048, unchanged: 0 };
        assert_eq!(
            tally.told("data", 3, 1024),
            "Got version 3 of data: 2 files, 2.00 KiB (1.00 KiB received)\n"
        );
        let none = Tally { files: 0, bytes: 0, unchanged: 5 };
        let told = none.told("data", 3, 0);
        assert_eq!(told, "Got version 3 of data: 0 files, 0 B (0 B received); 5 were there already\n");
    }
}
