//! `disbatch files ..`

mod get;
mod list;
mod local;
mod put;
mod scan;

use std::cell::Cell;
use std::io::IsTerminal;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use disbatch_wire::files::{FileSetDeleted, FileSetPage};
use indicatif::{HumanBytes, ProgressBar, ProgressStyle};

use crate::api::{Client, read, segment};
use crate::args::{FilesCommand, ListingOptions, RemoveFiles};
use crate::command::life::advise;
use crate::command::life::connection::Connection;
use crate::output::{print, shown_name};

/// So many files are asked for at once: as many as a DCI tells.
const PAGE: usize = 1_000;

pub async fn run(
    client: &Client,
    command: FilesCommand,
    listing: &ListingOptions,
) -> anyhow::Result<ExitCode> {
    match command {
        FilesCommand::Put(options) => return Box::pin(put::run(client, &options)).await,
        FilesCommand::Get(options) => return Box::pin(get::run(client, &options)).await,
        FilesCommand::Ls(options) => list::run(client, &options, listing).await?,
        FilesCommand::Rm(options) => remove(client, &options).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn remove(client: &Client, options: &RemoveFiles) -> anyhow::Result<()> {
    let name = &options.name;
    let version = options.number.map(|number| format!("?.version={number}")).unwrap_or_default();
    let gone = client.delete(&format!("/files/{name}{version}")).await.map_err(advise)?;
    let FileSetDeleted { deleted, .. } = read(gone)?;
    match options.number {
        Some(number) => print(&format!("Removed version {number} of {}\n", shown_name(name))),
        None => print(&format!("Removed {}: {deleted} versions\n", shown_name(name))),
    }
}

/// Which files of a set are asked for.
#[derive(Debug, Clone, Copy, Default)]
struct Wanted<'a> {
    version: Option<i64>,
    prefix: Option<&'a str>,
    after: Option<&'a str>,
}

async fn page(connection: &Connection<'_>, name: &str, wanted: Wanted<'_>) -> anyhow::Result<FileSetPage> {
    let version = wanted.version.map(|version| format!("&.version={version}")).unwrap_or_default();
    let text = |key: &str, text: Option<&str>| {
        text.map(|text| format!("&.{key}={}", segment(text))).unwrap_or_default()
    };
    let (prefix, after) = (text("prefix", wanted.prefix), text("after", wanted.after));
    let path = format!("/files/{name}?.limit={PAGE}{version}{prefix}{after}");
    let page = connection.persist(async || connection.client.get(&path, None).await).await;
    Ok(read(page.map_err(advise)?)?)
}

/// How often a line is printed where a bar cannot be shown.
const NOW_AND_THEN: Duration = Duration::from_secs(10);

/// A bar on a terminal, else lines.
#[derive(Debug)]
struct Progress {
    bar: Option<ProgressBar>,
    /// What is done, as in `sent 3 MiB of 4 MiB`.
    word: &'static str,
    done: Cell<u64>,
    total: Cell<u64>,
    last_line: Cell<Instant>,
}

impl Progress {
    /// Begins with so many bytes to be done.
    pub fn start(word: &'static str, total: u64) -> anyhow::Result<Self> {
        let bar = std::io::stderr().is_terminal().then(|| bar(total)).transpose()?;
        let now = Cell::new(Instant::now());
        Ok(Self { bar, word, done: Cell::new(0), total: Cell::new(total), last_line: now })
    }

    /// There is more to be done than was known.
    pub fn grow(&self, bytes: u64) {
        self.total.set(self.total.get().saturating_add(bytes));
        if let Some(bar) = &self.bar {
            bar.set_length(self.total.get());
        }
    }

    pub fn advance(&self, bytes: u64) {
        self.done.set(self.done.get().saturating_add(bytes));
        if let Some(bar) = &self.bar {
            bar.set_position(self.done.get());
        } else if self.last_line.get().elapsed() >= NOW_AND_THEN {
            self.last_line.set(Instant::now());
            eprintln!("{} {} of {}", self.word, HumanBytes(self.done.get()), HumanBytes(self.total.get()));
        }
    }

    /// Removes the bar.
    pub fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}

fn bar(total: u64) -> anyhow::Result<ProgressBar> {
    let bar = ProgressBar::new(total);
    let template = "{wide_bar} {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left";
    bar.set_style(ProgressStyle::with_template(template)?);
    bar.enable_steady_tick(Duration::from_millis(200));
    Ok(bar)
}
