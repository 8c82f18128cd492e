//! Whether successful tasks have the output that their plugin printed.

use std::collections::{HashMap, HashSet};

use anyhow::Context;
use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_core::model::TaskId;
use futures::TryStreamExt;

use super::Evidence;
use crate::faults::records;
use crate::faults::work::Work;

/// Where stored output differs from what was printed, and files that no task refers to.
pub async fn outputs(evidence: &Evidence<'_>) -> anyhow::Result<(Vec<String>, Vec<String>)> {
    let mut wrong = Vec::new();
    let mut referred: HashSet<ObjectId> = HashSet::new();
    let runs = records::by_task(&evidence.runs);
    for (id, task) in &evidence.tasks {
        referred.extend(["stdout", "stderr"].iter().filter_map(|stream| task.get_object_id(stream).ok()));
        if Evidence::status(task) != 1 {
            continue;
        }
        if !task.get_bool("complete").unwrap_or(false) {
            wrong.push(format!("task {id} succeeded and is not complete: {:?}", task.get("complete")));
        }
        let attempt = Evidence::attempt(task);
        let run = runs.get(id).into_iter().flatten().find(|run| run.attempt == attempt && run.ended);
        // Its absence is another check's.
        let Some(run) = run else { continue };
        let expected = expected(task, *id, attempt, run.pid).context("a task lost its parameters")?;
        let stored = stored(evidence, task.get("stdout")).await?;
        let served = evidence.served.iter().find(|served| (served.task, served.attempt) == (*id, attempt));
        let is_right = match served {
            Some(served) => served.has_logged(expected.as_bytes(), &stored),
            None => stored == expected.as_bytes(),
        };
        if !is_right {
            wrong.push(format!("task {id}: {} bytes are stored of {}", stored.len(), expected.len()));
        }
        if !self::stored(evidence, task.get("stderr")).await?.is_empty() {
            wrong.push(format!("task {id} has standard error: {:?}", task.get("stderr")));
        }
    }
    Ok((wrong, stray_files(evidence, referred).await?))
}

fn expected(task: &Document, id: TaskId, attempt: i64, pid: i32) -> Option<String> {
    let params = Bson::Document(task.get_document("params").ok()?.clone()).into_relaxed_extjson();
    Some(Work::of(&params)?.output(&id.to_string(), attempt, pid))
}

async fn stored(evidence: &Evidence<'_>, stream: Option<&Bson>) -> anyhow::Result<Vec<u8>> {
    match stream {
        None | Some(Bson::Null) => Ok(Vec::new()),
        Some(Bson::String(text)) => Ok(text.clone().into_bytes()),
        Some(Bson::ObjectId(file)) => {
            let chunks = evidence.world.database.collection::<Document>("tasks.chunks");
            let mut found = chunks.find(doc! { "files_id": file }).sort(doc! { "n": 1 }).await?;
            let mut bytes = Vec::new();
            while let Some(chunk) = found.try_next().await? {
                match chunk.get("data") {
                    Some(Bson::String(text)) => bytes.extend_from_slice(text.as_bytes()),
                    Some(Bson::Binary(binary)) => bytes.extend_from_slice(&binary.bytes),
                    other => anyhow::bail!("a chunk of {file} has {other:?}"),
                }
            }
            Ok(bytes)
        }
        other => anyhow::bail!("output is {other:?}"),
    }
}

/// Files, and chunks of files, that neither a task nor an earlier attempt refers to.
async fn stray_files(
    evidence: &Evidence<'_>,
    mut referred: HashSet<ObjectId>,
) -> anyhow::Result<Vec<String>> {
    let database = &evidence.world.database;
    let mut attempts = database.collection::<Document>("tasks.attempts").find(doc! {}).await?;
    while let Some(attempt) = attempts.try_next().await? {
        referred.extend(["stdout", "stderr"].iter().filter_map(|stream| attempt.get_object_id(stream).ok()));
    }
    let mut stray: HashMap<ObjectId, String> = HashMap::new();
    let mut files = database.collection::<Document>("tasks.files").find(doc! {}).await?;
    while let Some(file) = files.try_next().await? {
        let id = file.get_object_id("_id")?;
        if !referred.contains(&id) {
            stray.insert(id, format!("file {file}"));
        }
    }
    let chunks = database.collection::<Document>("tasks.chunks");
    for id in chunks.distinct("files_id", doc! {}).await?.iter().filter_map(Bson::as_object_id) {
        if !referred.contains(&id) {
            stray.entry(id).or_insert_with(|| format!("chunks of file {id}, which does not exist"));
        }
    }
    Ok(stray.into_values().collect())
}
