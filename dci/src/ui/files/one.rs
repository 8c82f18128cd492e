//! `GET /files/:name` for people: a version, its files, and the versions that there are besides.

use actix_web::http::StatusCode;
use askama::Template;
use disbatch_core::accounts::Role;
use disbatch_core::files::{FileEntry, FileSet};

use super::place;
use crate::access::Who;
use crate::files::{self, Page};
use crate::params::Params;
use crate::state::State;
use crate::ui::bulk::encoded;
use crate::ui::parts::{When, bytes};
use crate::ui::{self, Rendered, text};

#[derive(Template)]
#[template(path = "fileset.html")]
struct SetPage {
    name: String,
    /// The address of the set.
    place: String,
    version: i64,
    count: u64,
    bytes: String,
    by: String,
    task: Option<String>,
    tenant: String,
    committed: When,
    expires: When,
    prefix: String,
    entries: Vec<Entry>,
    /// The address of the page behind this one.
    next: String,
    versions: Vec<Version>,
    /// Whether the page's reader may remove it.
    stores: bool,
}

/// A file.
struct Entry {
    path: String,
    address: String,
    size: String,
    mode: String,
    sha256: String,
    mtime: When,
}

/// A version of the set.
struct Version {
    number: i64,
    address: String,
    is_shown: bool,
    count: u64,
    bytes: String,
    committed: When,
    by: String,
    task: Option<String>,
}

/// The page.
pub async fn render(state: &State, who: &Who, name: &str, params: &Params) -> Rendered {
    let page = files::page(state, who, name, params).await?;
    let stores = files::role_on(who, page.set.tenant.as_deref()) >= Some(Role::Submitter);
    let prefix = text(params.options.get("prefix"));
    ui::render(StatusCode::OK, &SetPage::of(&page, prefix, stores))
}

impl SetPage {
    fn of(page: &Page, prefix: String, stores: bool) -> Self {
        let (set, place) = (&page.set, place(&page.set.name));
        let next = page.next.as_ref().map(|next| {
            let version = set.version;
            format!("{place}?.version={version}&.prefix={}&.after={}", encoded(&prefix), encoded(next))
        });
        Self {
            name: set.name.clone(),
            version: set.version,
            count: set.count,
            bytes: bytes(set.bytes),
            by: set.by.clone().unwrap_or_default(),
            task: set.task.map(|task| task.to_string()),
            tenant: set.tenant.clone().unwrap_or_default(),
            committed: set.committed.map(When::at).unwrap_or_default(),
            expires: set.expires.map(When::at).unwrap_or_default(),
            entries: page.entries.iter().map(|entry| Entry::of(entry, &place, set.version)).collect(),
            next: next.unwrap_or_default(),
            versions: page.versions.iter().map(|version| Version::of(version, &place, set)).collect(),
            prefix,
            place,
            stores,
        }
    }
}

impl Entry {
    fn of(entry: &FileEntry, place: &str, version: i64) -> Self {
        let parts: Vec<String> = entry.path.split('/').map(encoded).collect();
        Self {
            path: entry.path.clone(),
            address: format!("{place}/content/{}?.version={version}", parts.join("/")),
            size: bytes(entry.size),
            mode: format!("{:03o}", entry.mode),
            sha256: entry.file.to_string(),
            mtime: When::at(entry.mtime),
        }
    }
}

impl Version {
    fn of(version: &FileSet, place: &str, shown: &FileSet) -> Self {
        Self {
            number: version.version,
            address: format!("{place}?.version={}", version.version),
            is_shown: version.version == shown.version,
            count: version.count,
            bytes: bytes(version.bytes),
            committed: version.committed.map(When::at).unwrap_or_default(),
            by: version.by.clone().unwrap_or_default(),
            task: version.task.map(|task| task.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{DateTime, doc};
    use disbatch_core::files::ContentId;

    use super::*;

    fn page(stores: bool) -> String {
        let at = DateTime::from_millis(1_795_163_067_344);
        let set = |version: i64| -> FileSet {
            let set = doc! {
                "_id": ObjectId::from_bytes([1; 12]), "name": "data", "version": version, "state": "done", "count": 1_i64,
                "bytes": 3_i64, "created": at, "committed": at, "by": "<ann>",
            };
            bson::deserialize_from_document(set).unwrap()
        };
        let entry = doc! {
            "path": "a b/<c>.csv", "file": ContentId::of(b"abc"), "size": 3_i64, "mode": 0o644_i64, "mtime": at,
        };
        let entry: FileEntry = bson::deserialize_from_document(entry).unwrap();
        let page = Page {
            set: set(3),
            versions: vec![set(3), set(2)],
            entries: vec![entry],
            next: Some("a b/<c>.csv".to_owned()),
        };
        SetPage::of(&page, "a&b".to_owned(), stores).render().unwrap()
    }

    #[test]
    fn files_have_addresses_whatever_they_are_called() {
        let html = page(true);
        for part in [
            "href=\"/files/data/content/a%20b/%3Cc%3E.csv?.version=3\"",
            "a b/&#60;c&#62;.csv",
            "<td>644</td>",
            "href=\"/files/data?.version=2\"",
            "?.version=3&#38;.prefix=a%26b&#38;.after=a%20b%2F%3Cc%3E.csv",
            "&#60;ann&#62;",
            "action=\"/ui/files/data/delete\"",
            "name=\".version\" value=\"3\"",
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<ann>") && !html.contains("<c>") && !html.contains(" style="), "{html}");
        assert!(!page(false).contains("/delete\""));
    }
}
