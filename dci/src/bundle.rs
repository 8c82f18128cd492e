//! Bundles: what is known of an attempt of a task, as a tar archive. [`disbatch_wire::bundles`] says what is in it.

use std::collections::BTreeSet;

use actix_web::HttpResponse;
use actix_web::body::SizedStream;
use actix_web::http::header::{CONTENT_DISPOSITION, CONTENT_ENCODING};
use actix_web::web::Bytes;
use bson::{Bson, Document};
use disbatch_core::accounts::Role;
use disbatch_core::files::{Content, ContentId, EntryQuery, FileEntry, FileSet, Patterns};
use disbatch_core::model::{
    FILES, FileInput, FileOutput, PLUGIN_VERSION, Queue, QueueId, STEPS, Selector, Step, TaskFiles, TaskId,
    from_extended, whole_number,
};
use disbatch_core::observe::Observed;
use disbatch_core::output::StreamName;
use disbatch_core::recordings::input_of;
use disbatch_core::secrets::{FIELD, SHOWN};
use disbatch_core::store::StoreError;
use disbatch_wire::bundles::{
    self, BUNDLE, Bundle, BundledFile, BundledFiles, BundledSet, LARGEST_FILES, LARGEST_STREAM, MOST_FILES,
    Outcome, RECORDING, Recording, STDIN, StepOutcome, VERSION,
};
use futures::stream::{self, LocalBoxStream};
use futures::{Stream, StreamExt, TryStreamExt};
use serde::Serialize;
use serde_json::Value;
use tar::Header;

use crate::access::{Sight, Who};
use crate::api::{Answer, task, task_actions};
use crate::error::HttpError;
use crate::output::Source;
use crate::raw::{limited, pieces};
use crate::state::State;
use crate::{files, gates};

/// What a bundle of an attempt lacks that was not recorded.
const NOT_RECORDED: [&str; 3] = [
    "the attempt was not recorded: the queue and the input are as they were when the bundle was made, without what has changed since",
    "the plugin's manifest, version and files, the environment, the control messages, and the times of output",
    "what the plugin found outside: other files, databases, the network, the time, random numbers",
];

/// What of a queue they know who may not look at it, but at the task.
const OF_QUEUE: [&str; 3] = ["_id", "name", "plugin"];

/// What they are told who get no more of it.
const PART_OF_QUEUE: &str = "the queue's settings, which need a role on the queue";

/// The answer with the bundle of an attempt: the latest that is over unless it is said.
pub async fn respond(state: &State, who: &Who, id: &str, attempt: Option<i64>) -> Answer {
    let task_id = task_actions::task_id(id)?;
    let task = task::find(state, who, id).await?;
    let seen = state.store.observe_task(task_id).await?.ok_or_else(|| task_actions::not_found(id))?;
    let (attempt, outcome) = over(state, (&task, &seen), attempt).await?;
    let sight = gates::sight(state, who).await?;
    let queue = state.store.find_queue(&Selector::Id(seen.task.queue.0)).await?;
    let recording = state.store.find_recording(task_id, attempt).await?;
    let bundle = Bundle {
        v: VERSION,
        made_by: env!("CARGO_PKG_VERSION").to_owned(),
        task: id.to_owned(),
        attempt,
        outcome: of_outcome(&outcome),
        node: outcome.get_str("node").ok().map(str::to_owned),
        version: outcome.get_str(PLUGIN_VERSION).ok().map(str::to_owned),
        ..Bundle::default()
    };
    let is_latest = attempt == seen.attempt().max(1) && seen.task.status.has_ended();
    let files = find_files(state, who, task.get(FILES), is_latest).await?;
    let mut contents = match recording {
        Some(recording) => of_recording(state, bundle, recording, (&sight, task)).await?,
        None => of_task(bundle, task, queue.as_ref()),
    };
    let files = files.map(|found| {
        contents.bundle.files = Some(found.files);
        contents.bundle.not_recorded.extend(found.unknown);
        found.contents
    });
    let is_seen = sight.sees(Some(QueueId(seen.task.queue.0)));
    if !is_seen {
        contents.bundle.not_recorded.push(PART_OF_QUEUE.to_owned());
        let of_bundle = &mut contents.bundle.queue;
        let of_recording = contents.recording.as_mut().map(|recording| &mut recording.queue);
        for queue in [of_bundle].into_iter().chain(of_recording) {
            if let Some(fields) = queue.as_object_mut() {
                fields.retain(|name, _| OF_QUEUE.contains(&name.as_str()));
            }
        }
    }
    archive(state, (task_id, &seen), contents, files.unwrap_or_default()).await
}

/// What a bundle has besides the output.
struct Contents {
    bundle: Bundle,
    input: String,
    recording: Option<Recording>,
}

/// Which attempt it is, and what came of it.
async fn over(
    state: &State,
    (task, seen): (&Document, &Observed),
    attempt: Option<i64>,
) -> Result<(i64, Document), HttpError> {
    let id = seen.task.id;
    let latest = seen.attempt().max(1);
    let has_ended = seen.task.status.has_ended();
    let wanted = attempt.unwrap_or(latest);
    if wanted == latest && has_ended {
        return Ok((latest, task.clone()));
    }
    let kept = match attempt {
        Some(attempt) => state.store.find_attempt(id, attempt).await?,
        None => state.store.list_attempts(id).await?.pop(),
    };
    match kept {
        Some(kept) => Ok((kept.get("attempt").and_then(whole_number).unwrap_or(wanted), kept)),
        None if wanted == latest => Err(task_actions::wrong_state(seen.task.status, "has not ended")),
        None => Err(HttpError::not_found(format!("task {id} has no attempt {wanted}"))),
    }
}

fn of_outcome(outcome: &Document) -> Outcome {
    let value = |name: &str| {
        outcome.get(name).filter(|value| **value != Bson::Null).cloned().map(Bson::into_relaxed_extjson)
    };
    let steps = outcome.get_array(STEPS).map(Vec::as_slice).unwrap_or_default();
    Outcome {
        steps: steps.iter().filter_map(Bson::as_document).enumerate().map(of_step).collect(),
        status: outcome.get("status").and_then(whole_number).unwrap_or_default(),
        exit: value("exit"),
        result: value("result"),
        note: outcome.get_str("note").ok().map(str::to_owned),
    }
}

fn of_step((index, step): (usize, &Document)) -> StepOutcome {
    let text = |name: &str| step.get_str(name).ok().filter(|text| !text.is_empty()).map(str::to_owned);
    let time = |name: &str| step.get_datetime(name).ok()?.try_to_rfc3339_string().ok();
    StepOutcome {
        name: text("name").unwrap_or_else(|| Step::default_name(index)),
        plugin: text("plugin"),
        status: step.get("status").and_then(whole_number).unwrap_or_default(),
        started: time("started"),
        ended: time("ended"),
    }
}

async fn of_recording(
    state: &State,
    bundle: Bundle,
    mut recording: Recording,
    (sight, task): (&Sight, Document),
) -> Result<Contents, HttpError> {
    let mut input = std::mem::take(&mut recording.input);
    if input.is_empty() {
        // It was too large, and is in the task.
        input = text(input_of(task, bundle.attempt, bundle.version.as_deref()));
    }
    if *sight != Sight::All
        && let Ok(given) = serde_json::from_str(&input)
    {
        let mut given = from_extended(given);
        sight.conceal(&state.store, &mut given).await?;
        input = text(given);
    }
    // Steps that name no plugin are done by that of the queue.
    let of_queue =
        recording.queue.get("plugin").and_then(Value::as_str).filter(|_| !recording.steps.is_empty());
    let plugin = of_queue.unwrap_or(&recording.plugin.name).to_owned();
    // None was chosen, but what ran may have had one all the same.
    let own = recording.of_plugin(&plugin).map(|own| own.version.clone()).filter(|own| !own.is_empty());
    let bundle = Bundle {
        recorded: true,
        version: bundle.version.clone().or(own),
        plugin,
        queue: recording.queue.clone(),
        secrets: recording.secrets.clone(),
        not_recorded: recording.not_recorded.clone(),
        ..bundle
    };
    Ok(Contents { bundle, input, recording: Some(recording) })
}

/// What is known of an attempt that was not recorded.
fn of_task(bundle: Bundle, task: Document, queue: Option<&Queue>) -> Contents {
    let plugin = queue.and_then(|queue| queue.plugin_name().ok().flatten());
    let secrets = task.contains_key(SHOWN).then(|| FIELD.to_owned());
    let stored = queue.and_then(|queue| bson::serialize_to_document(queue).ok()).unwrap_or_default();
    let bundle = Bundle {
        plugin: plugin.map(|name| name.to_string()).unwrap_or_default(),
        queue: Bson::from(stored).into_relaxed_extjson(),
        secrets: secrets.into_iter().collect(),
        not_recorded: NOT_RECORDED.map(str::to_owned).into(),
        ..bundle
    };
    let input = text(input_of(task, bundle.attempt, bundle.version.as_deref()));
    Contents { bundle, input, recording: None }
}

/// A task as plugins are given it.
fn text(task: Document) -> String {
    Bson::from(task).into_relaxed_extjson().to_string()
}

async fn archive(
    state: &State,
    (task, seen): (TaskId, &Observed),
    contents: Contents,
    files: Vec<Content>,
) -> Answer {
    let Contents { mut bundle, input, recording } = contents;
    let mut output = Archive::default();
    for name in StreamName::ALL {
        let source = Source::of_attempt(&state.store, seen, bundle.attempt, name).await?;
        let source = source.unwrap_or(Source::Text(String::new()));
        let length = source.length();
        let included = length.min(LARGEST_STREAM);
        bundle.streams.push(bundles::Stream { name: name.as_str().to_owned(), length, included });
        output.add(name.as_str(), included, source.read(&state.store, 0).await?)?;
    }
    for content in files {
        let name = format!("{}{}", bundles::FILES, content.id);
        output.add(&name, content.length, state.store.content_stream(content, 0..content.length))?;
    }
    let mut all = Archive::default();
    all.add_text(BUNDLE, pretty(&bundle)?)?;
    all.add_text(STDIN, input)?;
    if let Some(recording) = recording {
        all.add_text(RECORDING, pretty(&recording)?)?;
    }
    all.length += output.length;
    all.files.extend(output.files);
    let (length, bytes) = all.end();
    let name = format!("attachment; filename=\"disbatch-{task}-{}.tar\"", bundle.attempt);
    Ok(HttpResponse::Ok()
        .content_type("application/x-tar")
        .insert_header((CONTENT_ENCODING, "identity"))
        .insert_header((CONTENT_DISPOSITION, name))
        .body(SizedStream::new(length, bytes)))
}

fn pretty(file: &impl Serialize) -> Result<String, HttpError> {
    let value = crate::json::value_of(file)?;
    Ok(format!("{value:#}\n"))
}

/// What an archive consists of.
const BLOCK: u64 = 512;

/// Only its owner may read what is extracted.
const MODE: u32 = 0o600;

/// A tar archive that is sent while it is read: its files, one after the other.
#[derive(Default)]
struct Archive {
    length: u64,
    files: Vec<LocalBoxStream<'static, Result<Bytes, HttpError>>>,
}

impl Archive {
    /// Adds a file of this length, which is the first part of `bytes`.
    fn add(
        &mut self,
        name: &str,
        length: u64,
        bytes: impl Stream<Item = Result<Vec<u8>, StoreError>> + 'static,
    ) -> Result<(), HttpError> {
        let mut header = Header::new_gnu();
        header.set_path(name).map_err(|error| HttpError::internal(&error.to_string()))?;
        header.set_size(length);
        header.set_mode(MODE);
        header.set_cksum();
        let padding = (BLOCK - length % BLOCK) % BLOCK;
        self.length += BLOCK + length + padding;
        let [header, padding] = [Bytes::copy_from_slice(header.as_bytes()), zeros(padding)]
            .map(|bytes| stream::iter([Ok(bytes)]));
        let bytes = limited(bytes.map_err(HttpError::from), length);
        self.files.push(header.chain(bytes).chain(padding).boxed_local());
        Ok(())
    }

    fn add_text(&mut self, name: &str, text: String) -> Result<(), HttpError> {
        self.add(name, text.len() as u64, stream::iter([Ok(text.into_bytes())]))
    }

    fn end(self) -> (u64, impl Stream<Item = Result<Bytes, HttpError>>) {
        let end = stream::iter([Ok(zeros(2 * BLOCK))]);
        (self.length + 2 * BLOCK, pieces(stream::iter(self.files).flatten().chain(end)))
    }
}

fn zeros(count: u64) -> Bytes {
    Bytes::from_static(&[0; 1024]).slice(..usize::try_from(count).unwrap_or_default().min(1024))
}

/// The file sets of a task: what it got, with the contents, and what it left, by sums.
///
/// As the pages of file sets, this is for those who may see the sets: whoever may see a task only is told their names.
struct BundleContents {
    files: BundledFiles,
    contents: Vec<Content>,
    /// What is not, in words.
    unknown: Vec<String>,
}

/// Those of a task with this field. `is_latest`: whether the versions in it are those of the attempt. `None`: it has no file sets.
async fn find_files(
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
        let (mut set, entries) = find_set(state, who, (name.as_str(), version, patterns)).await?;
        found.contents = find_contents(state, &entries).await?;
        let ids: BTreeSet<String> = found.contents.iter().map(|content| content.id.to_string()).collect();
        for file in set.files.iter_mut().flatten() {
            file.included = ids.contains(&file.sha256);
        }
        found.unknown.extend(why_missing("input", &set));
        found.files.input = Some(set);
    }
    if let Some(FileOutput { name, patterns }) = output {
        let (set, _) = find_set(state, who, (name.as_str(), version("output", "version"), patterns)).await?;
        found.files.output = Some(set);
    }
    Ok(Some(found))
}

/// A version with its files that match, if it is known and somebody may see it.
async fn find_set(
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
    let Some(entries) = matching(state, &set, &patterns).await? else { return Ok((unseen, Vec::new())) };
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
async fn matching(
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
async fn find_contents(state: &State, entries: &[FileEntry]) -> Result<Vec<Content>, HttpError> {
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
fn why_missing(part: &str, set: &BundledSet) -> Option<String> {
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
    use std::io::Read;
    use std::path::Path;

    use serde_json::json;
    use utoipa::openapi::{RefOr, Schema};
    use utoipa::{PartialSchema, ToSchema};

    use super::*;

    /// The types of its files as JSON Schema, of which OpenAPI has a dialect.
    fn schema() -> String {
        let mut types: Vec<(String, RefOr<Schema>)> = Vec::new();
        Bundle::schemas(&mut types);
        Recording::schemas(&mut types);
        types.push((Bundle::name().into_owned(), Bundle::schema()));
        types.push((Recording::name().into_owned(), Recording::schema()));
        let types: BTreeMap<String, RefOr<Schema>> = types.into_iter().collect();
        let schema = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": "The files bundle.json (Bundle) and recording.json (Recording) of a bundle",
            "$ref": "#/$defs/Bundle",
            "$defs": types,
        });
        format!("{schema:#}\n").replace("#/components/schemas/", "#/$defs/")
    }

    #[test]
    fn the_documented_schema_is_that_of_the_types() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../contract/bundle.schema.json");
        if std::env::var_os("DISBATCH_RENEW").is_some() {
            fs::write(&path, schema()).unwrap();
        }
        assert_eq!(fs::read_to_string(path).unwrap(), schema());
    }

    #[actix_web::test]
    async fn others_can_read_it() {
        let mut archive = Archive::default();
        archive.add_text("a.json", "{}".to_owned()).unwrap();
        let long = stream::iter([Ok(vec![b'x'; 700]), Ok(vec![b'y'; 700])]);
        archive.add("stdout", 1000, long).unwrap();
        archive.add_text("stderr", String::new()).unwrap();
        let (length, bytes) = archive.end();
        let bytes: Vec<Bytes> = bytes.try_collect().await.unwrap();
        let bytes = bytes.concat();
        assert_eq!(bytes.len() as u64, length);
        let mut archive = tar::Archive::new(&bytes[..]);
        let mut files = Vec::new();
        for file in archive.entries().unwrap() {
            let mut file = file.unwrap();
            let mut text = String::new();
            file.read_to_string(&mut text).unwrap();
            files.push((file.path().unwrap().to_string_lossy().into_owned(), text));
        }
        let stdout = format!("{}{}", "x".repeat(700), "y".repeat(300));
        let expected = [("a.json", "{}"), ("stdout", &stdout), ("stderr", "")];
        assert_eq!(files, expected.map(|(name, text)| (name.to_owned(), text.to_owned())));
    }
}
