//! The file sets of a task, as its page tells them.

use bson::Document;
use disbatch_core::model::{FILES, whole_number};

use crate::ui::files::place;
use crate::ui::plain;

/// A set that a task gets or leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileLink {
    /// Which of the two.
    pub title: &'static str,
    pub name: String,
    /// Its page; that of the version, if that is known.
    pub address: String,
    /// Which version, and which of its files.
    pub about: String,
}

/// Those of a task.
pub fn links(task: &Document) -> Vec<FileLink> {
    let Ok(files) = task.get_document(FILES) else { return Vec::new() };
    let input = files.get_document("input").ok().map(|part| {
        let version = number(part, "taken").or_else(|| number(part, "version"));
        let words =
            version.map_or_else(|| "the newest version".to_owned(), |version| format!("version {version}"));
        link("Input files", part, version, words)
    });
    let output = files.get_document("output").ok().map(|part| {
        let version = number(part, "version");
        let words = version
            .map_or_else(|| "when it has succeeded".to_owned(), |version| format!("version {version}"));
        link("Output files", part, version, words)
    });
    [input, output].into_iter().flatten().collect()
}

fn link(title: &'static str, part: &Document, version: Option<i64>, words: String) -> FileLink {
    let name = plain(part.get("name"));
    let patterns = part.get_array("patterns").map(Vec::as_slice).unwrap_or_default();
    let patterns: Vec<String> = patterns.iter().map(|pattern| plain(Some(pattern))).collect();
    let of = if patterns.is_empty() { String::new() } else { format!(": {}", patterns.join(", ")) };
    let version = version.map(|version| format!("?.version={version}")).unwrap_or_default();
    FileLink { title, address: format!("{}{version}", place(&name)), name, about: format!("{words}{of}") }
}

fn number(part: &Document, key: &str) -> Option<i64> {
    part.get(key).and_then(whole_number)
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn what_was_taken_and_made_is_linked() {
        let task = doc! { "files": {
            "input": { "name": "data", "patterns": ["*.py", "bin/*"], "taken": 3_i64 },
            "output": { "name": "a b", "version": 7_i64 },
        } };
        let told: Vec<(String, String)> =
            links(&task).into_iter().map(|link| (link.address, link.about)).collect();
        let expected =
            [("/files/data?.version=3", "version 3: *.py, bin/*"), ("/files/a%20b?.version=7", "version 7")];
        assert_eq!(told, expected.map(|(address, about)| (address.to_owned(), about.to_owned())));
        let waits = doc! { "files": { "input": { "name": "data" }, "output": { "name": "result" } } };
        let about: Vec<String> = links(&waits).into_iter().map(|link| link.about).collect();
        assert_eq!(about, ["the newest version", "when it has succeeded"]);
        assert_eq!(links(&doc! { "files": "odd" }), []);
    }
}
