//! `disbatch files ..`

mod get;
mod put;
mod scan;

use std::process::ExitCode;

use disbatch_wire::files::{
    FileEntry, FileSearch, FileSetDeleted, FileSetPage, FileSetSummary, FileSetVersion,
};
use indicatif::HumanBytes;
use serde_json::Value;

use crate::api::{Client, address, read, segment};
use crate::args::{FilesCommand, Format, ListFiles, RemoveFiles};
use crate::command::Session;
use crate::command::life::Connection;
use crate::output::{Column, Cut, Progress, Table, known, print, shown_name};

/// So many files are asked for at once: as many as a DCI tells.
const PAGE: usize = 1_000;

pub async fn run(session: &Session, command: FilesCommand) -> anyhow::Result<ExitCode> {
    let client = &session.client;
    match command {
        FilesCommand::Put(options) => return Box::pin(put::run(client, &options)).await,
        FilesCommand::Get(options) => return Box::pin(get::run(client, &options)).await,
        FilesCommand::Ls(options) => list_files(session, &options).await?,
        FilesCommand::Rm(options) => remove(client, &options).await?,
    }
    Ok(ExitCode::SUCCESS)
}

async fn remove(client: &Client, options: &RemoveFiles) -> anyhow::Result<()> {
    let name = &options.name;
    let version = options.number.map(|number| format!("?.version={number}")).unwrap_or_default();
    let FileSetDeleted { deleted, .. } = read(client.delete(&format!("/files/{name}{version}")).await?)?;
    match options.number {
        Some(number) => print(&format!("Removed version {number} of {}\n", shown_name(name))),
        None => print(&format!("Removed {}: {deleted} versions\n", shown_name(name))),
    }
}

/// The version of a set, with those of its files that are wanted and that one page has.
async fn page(connection: &Connection<'_>, name: &str, wanted: &FileSearch) -> anyhow::Result<FileSetPage> {
    let path = address(&format!("/files/{name}"), wanted, i64::try_from(PAGE).ok())?;
    Ok(read(connection.get(&path).await?)?)
}

/// What a bar for bytes shows.
const BYTES: &str = "{wide_bar} {bytes} of {total_bytes}, {binary_bytes_per_sec}, {eta} left";

/// So many bytes more are done. `word` says what is, as in `sent 3 MiB of 4 MiB`.
fn advance(progress: &Progress, word: &str, bytes: u64) {
    let bar = &progress.bar;
    bar.inc(bytes);
    progress.tell(|| {
        let (done, total) = (bar.position(), bar.length().unwrap_or_default());
        format!("{word} {} of {}", HumanBytes(done), HumanBytes(total))
    });
}

const SETS: Table<FileSetSummary> = Table {
    columns: &[
        Column { title: "Name", cell: |set| set.newest.name.clone(), cut: Cut::Late },
        Column { title: "Version", cell: |set| set.newest.version.to_string(), cut: Cut::Never },
        Column { title: "Files", cell: |set| set.newest.count.to_string(), cut: Cut::Never },
        Column { title: "Size", cell: |set| bytes(set.newest.bytes), cut: Cut::Never },
        Column { title: "Stored", cell: |set| known(&set.newest.committed), cut: Cut::Never },
        Column { title: "Versions", cell: |set| set.versions.to_string(), cut: Cut::Never },
        Column { title: "All of them", cell: |set| bytes(set.bytes_of_all), cut: Cut::Never },
        Column { title: "Tenant", cell: |set| known(&set.newest.tenant), cut: Cut::Early },
    ],
    noun: "file sets",
};

const VERSIONS: Table<FileSetVersion> = Table {
    columns: &[
        Column { title: "Version", cell: |set| set.version.to_string(), cut: Cut::Never },
        Column { title: "Files", cell: |set| set.count.to_string(), cut: Cut::Never },
        Column { title: "Size", cell: |set| bytes(set.bytes), cut: Cut::Never },
        Column { title: "Stored", cell: |set| known(&set.committed), cut: Cut::Never },
        Column { title: "By", cell: |set| known(&set.by), cut: Cut::Early },
        Column { title: "Task", cell: |set| known(&set.task), cut: Cut::Late },
    ],
    noun: "versions",
};

async fn list_files(session: &Session, options: &ListFiles) -> anyhow::Result<()> {
    let Session { client, listing } = session;
    let Some(name) = &options.name else {
        let all = Value::Array(sets(client).await?);
        return SETS.print(&all, listing);
    };
    if options.versions {
        let all = Value::Array(versions(client, name).await?);
        return VERSIONS.print(&all, listing);
    }
    files(session, name, options).await
}

async fn sets(client: &Client) -> anyhow::Result<Vec<Value>> {
    let mut all: Vec<Value> = Vec::new();
    loop {
        let last = all.last().map(|set| read::<FileSetVersion>(set.clone())).transpose()?;
        let after = last.map(|last| format!("&.after={}", segment(&last.name))).unwrap_or_default();
        let page = client.get(&format!("/files?.limit={PAGE}{after}"), None).await?;
        let Value::Array(page) = page else { return Ok(all) };
        let is_last = page.len() < PAGE;
        all.extend(page);
        if is_last {
            return Ok(all);
        }
    }
}

/// All versions of a set, the newest first.
async fn versions(client: &Client, name: &str) -> anyhow::Result<Vec<Value>> {
    let mut all: Vec<Value> = Vec::new();
    loop {
        let last = all.last().map(|version| read::<FileSetVersion>(version.clone())).transpose()?;
        let before = last.map(|last| format!("&.before={}", last.version)).unwrap_or_default();
        let mut page = client.get(&format!("/files/{name}?.limit=1{before}"), None).await?;
        match page.get_mut("versions").map(Value::take) {
            Some(Value::Array(page)) if !page.is_empty() => all.extend(page),
            _ => return Ok(all), // There are no more.
        }
    }
}

/// Prints the files of a version. As lines they are printed while they come: there may be very many.
async fn files(session: &Session, name: &str, options: &ListFiles) -> anyhow::Result<()> {
    let Session { client, listing } = session;
    let connection = Connection::new(client);
    let (version, prefix) = (options.number, options.prefix.clone());
    let mut wanted = FileSearch { version, prefix, ..FileSearch::default() };
    let mut all: Vec<FileEntry> = Vec::new();
    loop {
        let found = page(&connection, name, &wanted).await?;
        wanted.version = wanted.version.or(Some(found.set.version));
        match listing.format() {
            Format::Table => print(&found.entries.iter().map(line).collect::<String>())?,
            Format::Json | Format::Yaml => all.extend(found.entries),
        }
        wanted.after = found.next;
        if wanted.after.is_none() {
            return match listing.format() {
                Format::Table => print(&sum(&found.set)),
                Format::Json | Format::Yaml => {
                    session.print(&serde_json::to_value(all)?, |_: &Value| String::new())
                }
            };
        }
    }
}

fn line(entry: &FileEntry) -> String {
    let FileEntry { path, size, mode, mtime, .. } = entry;
    format!("{:>3} {:>10} {} {}\n", known(mode), bytes(*size), known(mtime), shown_name(path))
}

fn sum(set: &FileSetVersion) -> String {
    let name = shown_name(&set.name);
    format!("\nVersion {} of {name}: {} files, {}\n", set.version, set.count, bytes(set.bytes))
}

fn bytes(bytes: u64) -> String {
    HumanBytes(bytes).to_string()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::output::Screen;

    #[test]
    fn a_set_is_its_newest_version() {
        let set = json!({
            "name": "data", "version": 3, "count": 2, "bytes": 2048, "committed": "2026-11-20T08:24:27", "versions": 2,
            "bytes_of_all": 4096, "tenant": null,
        });
        let table = SETS.render(&[read(set).unwrap()], Screen::default());
        assert!(
            table.contains(
                "data | 3       | 2     | 2.00 KiB | 2026-11-20T08:24:27 | 2        | 4.00 KiB    |"
            ),
            "{table}"
        );
    }

    #[test]
    fn a_file_is_a_line() {
        let entry = json!({ "path": "bin/run", "size": 3, "mode": "755", "mtime": "2026-11-20T08:24:27" });
        assert_eq!(line(&read(entry).unwrap()), "755        3 B 2026-11-20T08:24:27 bin/run\n");
        let set = json!({ "name": "data", "version": 3, "count": 1, "bytes": 3 });
        assert_eq!(sum(&read(set).unwrap()), "\nVersion 3 of data: 1 files, 3 B\n");
    }
}
