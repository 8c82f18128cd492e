//! `disbatch files ls`

use indicatif::HumanBytes;
use serde_json::Value;

use super::{PAGE, Wanted, entries, page};
use crate::api::{Client, segment};
use crate::args::{Format, ListFiles, ListingOptions};
use crate::command::life::advise;
use crate::command::life::connection::Connection;
use crate::output::{Column, Cut, Screen, Table, list, plain, print, shown_name, visible};

const SETS: Table = Table {
    columns: &[
        Column { title: "Name", cell: |set| plain(set.get("name")), cut: Cut::Late },
        Column { title: "Version", cell: |set| plain(set.get("version")), cut: Cut::Never },
        Column { title: "Files", cell: |set| plain(set.get("count")), cut: Cut::Never },
        Column { title: "Size", cell: |set| bytes(set, "bytes"), cut: Cut::Never },
        Column { title: "Stored", cell: |set| plain(set.get("committed")), cut: Cut::Never },
        Column { title: "Versions", cell: |set| plain(set.get("versions")), cut: Cut::Never },
        Column { title: "All of them", cell: |set| bytes(set, "bytes_of_all"), cut: Cut::Never },
        Column { title: "Tenant", cell: |set| plain(set.get("tenant")), cut: Cut::Early },
    ],
    noun: "file sets",
};

const VERSIONS: Table = Table {
    columns: &[
        Column { title: "Version", cell: |set| plain(set.get("version")), cut: Cut::Never },
        Column { title: "Files", cell: |set| plain(set.get("count")), cut: Cut::Never },
        Column { title: "Size", cell: |set| bytes(set, "bytes"), cut: Cut::Never },
        Column { title: "Stored", cell: |set| plain(set.get("committed")), cut: Cut::Never },
        Column { title: "By", cell: |set| plain(set.get("by")), cut: Cut::Early },
        Column { title: "Task", cell: |set| plain(set.get("task")), cut: Cut::Late },
    ],
    noun: "versions",
};

/// Prints the sets, the files of one, or its versions.
pub async fn run(client: &Client, options: &ListFiles, listing: &ListingOptions) -> anyhow::Result<()> {
    let Some(name) = &options.name else {
        let all = Value::Array(sets(client).await?);
        return print(&list(&all, listing, |all| SETS.render(all, Screen::of_stdout()))?);
    };
    if options.versions {
        let all = Value::Array(versions(client, name).await?);
        return print(&list(&all, listing, |all| VERSIONS.render(all, Screen::of_stdout()))?);
    }
    files(client, name, options, listing).await
}

/// All sets, by name.
async fn sets(client: &Client) -> anyhow::Result<Vec<Value>> {
    let mut all: Vec<Value> = Vec::new();
    loop {
        let after = all.last().map(|set| plain(set.get("name")));
        let after = after.map(|after| format!("&.after={}", segment(&after))).unwrap_or_default();
        let page = client.get(&format!("/files?.limit={PAGE}{after}"), None).await.map_err(advise)?;
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
        let before = all.last().map(|version| plain(version.get("version")));
        let before = before.map(|before| format!("&.before={before}")).unwrap_or_default();
        let mut page = client.get(&format!("/files/{name}?.limit=1{before}"), None).await.map_err(advise)?;
        match page.get_mut("versions").map(Value::take) {
            Some(Value::Array(page)) if !page.is_empty() => all.extend(page),
            _ => return Ok(all), // There are no more.
        }
    }
}

/// Prints the files of a version. As lines they are printed while they come: there may be very many.
async fn files(
    client: &Client,
    name: &str,
    options: &ListFiles,
    listing: &ListingOptions,
) -> anyhow::Result<()> {
    let connection = Connection::new(client);
    let mut wanted =
        Wanted { version: options.number, prefix: options.prefix.as_deref(), ..Wanted::default() };
    let (mut all, mut after): (Vec<Value>, Option<String>) = (Vec::new(), None);
    loop {
        let mut found = page(&connection, name, Wanted { after: after.as_deref(), ..wanted }).await?;
        wanted.version = wanted.version.or_else(|| found.get("version").and_then(Value::as_i64));
        let (listed, next) = entries(&mut found);
        match listing.format() {
            Format::Table => print(&listed.iter().map(line).collect::<String>())?,
            Format::Json | Format::Yaml => all.extend(listed),
        }
        after = next;
        if after.is_none() {
            return match listing.format() {
                Format::Table => print(&sum(&found)),
                Format::Json | Format::Yaml => print(&list(&Value::Array(all), listing, |_| String::new())?),
            };
        }
    }
}

/// A file: its mode, size, time and path.
fn line(entry: &Value) -> String {
    let field = |name: &str| plain(entry.get(name));
    let path = if Screen::of_stdout().size.is_some() { visible(&field("path")) } else { field("path") };
    format!("{:>3} {:>10} {} {path}\n", field("mode"), bytes(entry, "size"), field("mtime"))
}

fn sum(set: &Value) -> String {
    let (name, version) = (shown_name(&plain(set.get("name"))), plain(set.get("version")));
    format!("\nVersion {version} of {name}: {} files, {}\n", plain(set.get("count")), bytes(set, "bytes"))
}

fn bytes(value: &Value, key: &str) -> String {
    value.get(key).and_then(Value::as_u64).map(|bytes| HumanBytes(bytes).to_string()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_set_is_its_newest_version() {
        let set = json!({
            "name": "data", "version": 3, "count": 2, "bytes": 2048, "committed": "2026-11-20T08:24:27", "versions": 2,
            "bytes_of_all": 4096, "tenant": null,
        });
        let table = SETS.render(&[set], Screen::default());
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
        assert_eq!(line(&entry), "755        3 B 2026-11-20T08:24:27 bin/run\n");
        let set = json!({ "name": "data", "version": 3, "count": 1, "bytes": 3 });
        assert_eq!(sum(&set), "\nVersion 3 of data: 1 files, 3 B\n");
    }
}
