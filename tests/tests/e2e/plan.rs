//! How the server finds something, as it explains it.

use std::sync::{Arc, Mutex, PoisonError};

use bson::{Bson, Document, doc};
use disbatch_core::clock::SystemClock;
use disbatch_core::model::whole_number;
use disbatch_core::store::Store;
use disbatch_tests::World;
use mongodb::Client;
use mongodb::event::EventHandler;
use mongodb::event::command::CommandEvent;
use mongodb::options::ClientOptions;

/// What comes of `work`, and how the server finds what it is asked for by that, when it is asked once more: one plan for each query,
/// and for each part of an aggregation that unites several.
pub async fn plans<T>(
    world: &World,
    work: impl AsyncFnOnce(Store) -> anyhow::Result<T>,
) -> anyhow::Result<(T, Vec<Document>)> {
    let asked = Arc::new(Mutex::new(Vec::new()));
    let note = Arc::clone(&asked);
    let mut options = ClientOptions::parse(world.uri()).await?;
    options.command_event_handler = Some(EventHandler::callback(move |event| {
        if let CommandEvent::Started(started) = event {
            note.lock().unwrap_or_else(PoisonError::into_inner).push(started.command);
        }
    }));
    let database = Client::with_options(options)?.database(world.database().name());
    let done = work(Store::with_clock(database, Arc::new(SystemClock))).await?;
    let asked = std::mem::take(&mut *asked.lock().unwrap_or_else(PoisonError::into_inner));
    let mut plans = Vec::new();
    for query in asked.into_iter().flat_map(queries) {
        let explain = doc! { "explain": query, "verbosity": "executionStats" };
        plans.push(world.database().run_command(explain).await?);
    }
    anyhow::ensure!(!plans.is_empty(), "nothing was asked");
    Ok((done, plans))
}

/// The queries that a command is, if it is any, without what belongs to its session.
fn queries(command: Document) -> Vec<Document> {
    let is_own = |name: &str| !name.starts_with('$') && !matches!(name, "lsid" | "readConcern");
    let mut query: Document = command.into_iter().filter(|(name, _)| is_own(name)).collect();
    let name = query.keys().next().cloned().unwrap_or_default();
    match name.as_str() {
        "find" | "count" => vec![query],
        "aggregate" => {
            let stages = query.get_array("pipeline").cloned().unwrap_or_default();
            let united = |stage: &Bson| stage.as_document()?.get_document("$unionWith").ok().cloned();
            let others = stages.iter().filter_map(united).map(
                |part| doc! { "aggregate": part.get("coll"), "pipeline": part.get("pipeline"), "cursor": {} },
            );
            let others: Vec<Document> = others.collect();
            let own = stages.into_iter().filter(|stage| united(stage).is_none());
            query.insert("pipeline", own.collect::<Vec<Bson>>());
            std::iter::once(query).chain(others).collect()
        }
        _ => Vec::new(),
    }
}

/// The names of all stages.
pub fn stages(plan: &Document) -> Vec<&str> {
    all_of(plan, "stage").into_iter().filter_map(Bson::as_str).collect()
}

/// The largest of the numbers with this name, if there is one.
pub fn most(plan: &Document, name: &str) -> Option<i64> {
    all_of(plan, name).into_iter().filter_map(whole_number).max()
}

/// All values with this name, wherever they are.
fn all_of<'a>(plan: &'a Document, name: &str) -> Vec<&'a Bson> {
    let mut found = Vec::new();
    for (key, value) in plan {
        if key == name {
            found.push(value);
        }
        found.extend(below(value, name));
    }
    found
}

fn below<'a>(value: &'a Bson, name: &str) -> Vec<&'a Bson> {
    match value {
        Bson::Document(document) => all_of(document, name),
        Bson::Array(items) => items.iter().flat_map(|item| below(item, name)).collect(),
        _ => Vec::new(),
    }
}
