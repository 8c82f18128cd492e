//! The file sets of a task: what it got, with the contents, and what it left, by sums.
//!
//! As the pages of file sets, this is for those who may see the sets: whoever may see a task only is told their names.

use std::collections::BTreeSet;

use bson::Bson;
use disbatch_core::accounts::Role;
use disbatch_core::files::{Content, ContentId, EntryQuery, FileEntry, FileSet, Patterns};
use disbatch_core::model::{FileInput, FileOutput, TaskFiles, whole_number};
use disbatch_wire::bundles::{BundledFile, BundledFiles, BundledSet, LARGEST_FILES, MOST_FILES};

use crate::access::Who;
use crate::error::HttpError;
use crate::files;
use crate::state::State;

/// What a bundle has of them.
pub struct BundleContents {
    pub files: BundledFiles,
    /// What is in it as well.
    pub contents: Vec<Content>,
    /// What is not, in words.
    pub unknown: Vec<String>,
}

/// That of a task with this field. `is_latest`: whether the versions in it are those of the attempt. `None`: it has no file sets.
pub async fn find(
    state: &State,
    who: &Who,
    field: Option<&Bson>,
    is_latest: bool,
) -> Result<Option<BundleContents>, HttpError> {
    let wanted = TaskFiles::of_field(field).ok().flatten();
    let Some(TaskFiles { input, output }) = wanted else { return Ok(None) };
    let version = |part: &str, name: &str| {
        let stored = field.and_then(Bson::as_document)?.get_document(part).ok()?.get(name)?;
        whole_number(stored).filter(|_| is_latest)
    };
    let mut found =
        BundleContents { files: BundledFiles::default(), contents: Vec::new(), unknown: Vec::new() };
    if let Some(FileInput { name, version: pinned, patterns }) = input {
        let version = version("input", "taken").or(pinned);
        let (mut set, entries) = set(state, who, (name.as_str(), version, patterns)).await?;
        found.contents = contents(state, &entries).await?;
        let ids: BTreeSet<String> = found.contents.iter().map(|content| content.id.to_string()).collect();
        for file in set.files.iter_mut().flatten() {
            file.included = ids.contains(&file.sha256);
        }
        found.unknown.extend(unknown("input", &set));
        found.files.input = Some(set);
    }
    if let Some(FileOutput { name, patterns }) = output {
        let (set, _) = set(state, who, (name.as_str(), version("output", "version"), patterns)).await?;
        found.files.output = Some(set);
    }
    Ok(Some(found))
}

/// A version with its files that match, if it is known and somebody may see it.
async fn set(
    state: &State,
    who: &Who,
    (name, version, patterns): (&str, Option<i64>, Vec<String>),
) -> Result<(BundledSet, Vec<FileEntry>), HttpError> {
    let unseen = BundledSet { name: name.to_owned(), version, patterns, files: None };
    if version.is_none() {
        return Ok((unseen, Vec::new()));
    }
    let set = match files::find(state, who, (name, version), Role::Viewer).await {
        Ok(set) => set,
        Err(error) if matches!(error.status().as_u16(), 403 | 404) => return Ok((unseen, Vec::new())),
        Err(error) => return Err(error),
    };
    let Ok(patterns) = Patterns::new(unseen.patterns.iter().map(String::as_str)) else {
        return Ok((unseen, Vec::new()));
    };
    let Some(entries) = entries(state, &set, &patterns).await? else { return Ok((unseen, Vec::new())) };
    let shown = entries.iter().map(|entry| BundledFile {
        path: entry.path.clone(),
        size: entry.size,
        sha256: entry.file.to_string(),
        mode: entry.mode,
        mtime: entry.mtime.timestamp_millis(),
        included: false,
    });
    Ok((BundledSet { files: Some(shown.collect()), ..unseen }, entries))
}

/// Those that match. `None`: they are too many.
async fn entries(
    state: &State,
    set: &FileSet,
    patterns: &Patterns,
) -> Result<Option<Vec<FileEntry>>, HttpError> {
    let mut all: Vec<FileEntry> = Vec::new();
    let mut after: Option<String> = None;
    loop {
        let query = EntryQuery { after: after.as_deref(), ..EntryQuery::ALL };
        let page = state.store.fileset_entries(set, query).await?;
        let Some(last) = page.last() else { return Ok(Some(all)) };
        after = Some(last.path.clone());
        all.extend(page.into_iter().filter(|entry| patterns.matches(&entry.path)));
        if all.len() > MOST_FILES {
            return Ok(None);
        }
    }
}

/// What is in the first of them, as far as a bundle has room for it.
async fn contents(state: &State, entries: &[FileEntry]) -> Result<Vec<Content>, HttpError> {
    let (mut room, mut ids) = (LARGEST_FILES, BTreeSet::new());
    for entry in entries {
        if entry.size <= room && ids.insert(entry.file) {
            room -= entry.size;
        }
    }
    let ids: Vec<ContentId> = ids.into_iter().collect();
    Ok(state.store.find_contents(&ids).await?.into_values().collect())
}

/// Why a set is not in the bundle, or not all of it.
fn unknown(part: &str, set: &BundledSet) -> Option<String> {
    let name = &set.name;
    let Some(files) = &set.files else {
        return Some(format!(
            "the {part} files, of the file set {name}: their version is not known, is gone, has more than {MOST_FILES} files, or needs a role on file sets"
        ));
    };
    let left_out = files.iter().filter(|file| !file.included).count();
    (left_out > 0)
        .then(|| format!("{left_out} {part} files of {}, which would be too large together", files.len()))
}
