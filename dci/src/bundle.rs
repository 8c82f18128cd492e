//! Bundles: what is known of an attempt of a task, as a tar archive. [`disbatch_wire::bundles`] says what is in it.

mod archive;
mod files;

use actix_web::HttpResponse;
use actix_web::body::SizedStream;
use actix_web::http::header::{CONTENT_DISPOSITION, CONTENT_ENCODING};
use bson::{Bson, Document};
use disbatch_core::files::Content;
use disbatch_core::model::{
    FILES, PLUGIN_VERSION, Queue, QueueId, STEPS, Selector, Step, TaskId, from_extended, whole_number,
};
use disbatch_core::observe::Observed;
use disbatch_core::output::StreamName;
use disbatch_core::recordings::input_of;
use disbatch_core::secrets::{FIELD, SHOWN};
use disbatch_wire::bundles::{
    self, BUNDLE, Bundle, LARGEST_STREAM, Outcome, RECORDING, Recording, STDIN, StepOutcome, Stream, VERSION,
};
use serde::Serialize;
use serde_json::Value;

use crate::access::{Sight, Who};
use crate::api::{Answer, task, task_actions};
use crate::error::HttpError;
use crate::gates;
use crate::state::State;
use crate::tail::Source;
use archive::Archive;

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
    let files = files::find(state, who, task.get(FILES), is_latest).await?;
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
            queue
                .as_object_mut()
                .into_iter()
                .for_each(|fields| fields.retain(|name, _| OF_QUEUE.contains(&name.as_str())));
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
    let not_recorded: Vec<String> = NOT_RECORDED.map(str::to_owned).to_vec();
    let secrets = task.contains_key(SHOWN).then(|| FIELD.to_owned());
    let stored = queue.and_then(|queue| bson::serialize_to_document(queue).ok());
    let bundle = Bundle {
        plugin: plugin.map(|name| name.to_string()).unwrap_or_default(),
        queue: stored.map_or_else(
            || Value::Object(serde_json::Map::new()),
            |queue| Bson::from(queue).into_relaxed_extjson(),
        ),
        secrets: secrets.into_iter().collect(),
        not_recorded,
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
    for name in StreamName::BOTH {
        let source = Source::of_attempt(&state.store, seen, bundle.attempt, name).await?;
        let source = source.unwrap_or(Source::Text(String::new()));
        let length = source.length();
        let included = length.min(LARGEST_STREAM);
        bundle.streams.push(Stream { name: name.as_str().to_owned(), length, included });
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
    let (length, bytes) = all.followed_by(output).end();
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

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs;
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
}
