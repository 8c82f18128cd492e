//! Versions, files and chunks as clients see them.

use bson::DateTime;
use disbatch_core::files::{ContentState, FileEntry, FileSet, SetSummary};
use serde_json::{Value, json};

use super::{Page, ranges};
use crate::json::date_text;

/// A version.
pub fn of_set(set: &FileSet) -> Value {
    json!({
        "id": set.id.to_string(),
        "name": set.name,
        "version": set.version,
        "state": set.state.as_str(),
        "count": set.count,
        "bytes": set.bytes,
        "created": time(Some(set.created)),
        "committed": time(set.committed),
        "expires": time(set.expires),
        "by": set.by,
        "tenant": set.tenant,
        "task": set.task.map(|task| task.to_string()),
    })
}

/// A set by its newest version.
pub fn of_summary(summary: &SetSummary) -> Value {
    let mut set = of_set(&summary.latest);
    set["versions"] = summary.versions.into();
    set["bytes_of_all"] = summary.bytes.into();
    set
}

/// A version with some of its files, and the other versions.
pub fn of_page(page: &Page) -> Value {
    let mut set = of_set(&page.set);
    set["entries"] = page.entries.iter().map(of_entry).collect();
    set["next"] = page.next.as_deref().into();
    set["versions"] = page.versions.iter().map(of_set).collect();
    set
}

/// A file of a version.
fn of_entry(entry: &FileEntry) -> Value {
    json!({
        "path": entry.path,
        "sha256": entry.file.to_string(),
        "size": entry.size,
        "mode": format!("{:o}", entry.mode),
        "mtime": time(Some(entry.mtime)),
    })
}

/// How far a content is.
pub fn of_chunks(id: &str, chunks: &ContentState) -> Value {
    json!({
        "sha256": id,
        "length": chunks.length,
        "done": chunks.done,
        "missing": ranges(&chunks.missing),
    })
}

fn time(at: Option<DateTime>) -> Value {
    at.and_then(date_text).map_or(Value::Null, Value::from)
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use bson::oid::ObjectId;

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
        let entry: FileEntry = bson::deserialize_from_document(entry).unwrap();
        let page =
            Page { versions: vec![set.clone()], set, entries: vec![entry], next: Some("a/b".to_owned()) };
        let told = of_page(&page);
        assert_eq!((&told["version"], &told["next"], &told["by"]), (&json!(3), &json!("a/b"), &json!("ann")));
        assert_eq!(told["versions"][0]["committed"], "2026-11-20T08:24:27");
        let expected = json!({
            "path": "a/b", "sha256": content.to_string(), "size": 3, "mode": "755", "mtime": "2026-11-20T08:24:27",
        });
        assert_eq!(told["entries"], json!([expected]));
    }
}
