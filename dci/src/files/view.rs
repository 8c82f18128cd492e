//! Versions, files and chunks as clients see them.

use disbatch_core::files as stored;
use disbatch_core::files::{ContentState, FileSet, SetSummary};
use disbatch_wire::files::{ContentChunks, FileEntry, FileSetPage, FileSetSummary, FileSetVersion};

use super::{Page, ranges};
use crate::json::date_text;

pub fn of_set(set: &FileSet) -> FileSetVersion {
    FileSetVersion {
        id: set.id.to_string(),
        name: set.name.clone(),
        version: set.version,
        state: set.state.as_str().to_owned(),
        count: set.count,
        bytes: set.bytes,
        created: date_text(set.created),
        committed: set.committed.and_then(date_text),
        expires: set.expires.and_then(date_text),
        by: set.by.clone(),
        tenant: set.tenant.clone(),
        task: set.task.map(|task| task.to_string()),
    }
}

/// A set by its newest version.
pub fn of_summary(summary: &SetSummary) -> FileSetSummary {
    let SetSummary { latest, versions, bytes } = summary;
    FileSetSummary { newest: of_set(latest), versions: *versions, bytes_of_all: *bytes }
}

/// A version with some of its files, and the other versions.
pub fn of_page(page: &Page) -> FileSetPage {
    FileSetPage {
        set: of_set(&page.set),
        entries: page.entries.iter().map(of_entry).collect(),
        next: page.next.clone(),
        versions: page.versions.iter().map(of_set).collect(),
    }
}

fn of_entry(entry: &stored::FileEntry) -> FileEntry {
    FileEntry {
        path: entry.path.clone(),
        sha256: entry.file.to_string(),
        size: entry.size,
        mode: Some(format!("{:o}", entry.mode)),
        mtime: date_text(entry.mtime),
    }
}

/// How far a content is.
pub fn of_chunks(id: &str, chunks: &ContentState) -> ContentChunks {
    let ContentState { length, done, missing } = chunks;
    ContentChunks { sha256: id.to_owned(), length: *length, done: *done, missing: ranges(missing) }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{DateTime, doc};
    use serde_json::json;

    use super::*;

    #[test]
    fn a_version_is_told_with_its_files() {
        let id = ObjectId::from_bytes([1; 12]);
        let at = DateTime::from_millis(1_795_163_067_344);
        let stored = doc! {
            "_id": id, "name": "data", "version": 3_i64, "state": "done", "count": 1_i64, "bytes": 7_i64,
            "created": at, "committed": at, "by": "ann", "tickets": 1_i64, "pending": [], "lost": [],
        };
        let set: FileSet = bson::deserialize_from_document(stored).unwrap();
        let content = disbatch_core::files::ContentId::of(b"abc");
        let entry = doc! { "path": "a/b", "file": content, "size": 3_i64, "mode": 0o755_i64, "mtime": at };
        let entry: stored::FileEntry = bson::deserialize_from_document(entry).unwrap();
        let page =
            Page { versions: vec![set.clone()], set, entries: vec![entry], next: Some("a/b".to_owned()) };
        let told = serde_json::to_value(of_page(&page)).unwrap();
        assert_eq!((&told["version"], &told["next"], &told["by"]), (&json!(3), &json!("a/b"), &json!("ann")));
        assert_eq!(told["versions"][0]["committed"], "2026-11-20T08:24:27");
        let expected = json!({
            "path": "a/b", "sha256": content.to_string(), "size": 3, "mode": "755", "mtime": "2026-11-20T08:24:27",
        });
        assert_eq!(told["entries"], json!([expected]));
    }
}
