//! `GET /tasks`

use actix_web::web::{Bytes, Data};
use actix_web::{HttpRequest, HttpResponse};
use bson::{Bson, Document};
use disbatch_core::store::{Store, StoreError};
use futures::{Stream, StreamExt, TryStreamExt, future, stream};
use serde_json::{Map, Value, json};

use crate::api::Answer;
use crate::error::HttpError;
use crate::params::Params;
use crate::query::{Listing, Shape};
use crate::state::State;
use crate::{accept, json, output, ui};

/// So many tasks are sent together at most.
const CHUNK: usize = 64;

/// Tasks that match the parameters. The options `.limit`, `.skip`, `.count`, `.fields`, `.full`, `.terse`,
/// `.epoch` and `.pretty` say which of them, and how they are written.
///
/// The answer is an array; an object for `.limit=1`, and an empty object when nothing matches.
///
/// # Errors
/// The parameters are wrong or not indexed, or the database cannot be reached.
pub async fn handle(request: HttpRequest, state: Data<State>, params: Params) -> Answer {
    if accept::wants_html(&request) {
        return Ok(ui::page(ui::tasks::render(&state, &params).await));
    }
    let indexes = state.store.task_index_fields().await?;
    let Listing { query, shape } = Listing::parse(&params, &indexes, None)?;
    if shape.count {
        let count = state.store.count_tasks(query.filter).await.map_err(HttpError::from_search)?;
        return Ok(one(&json!({ "count": count }), shape));
    }
    let mut tasks = state.store.stream_tasks(query).await.map_err(HttpError::from_search)?;
    let Some(first) = tasks.next().await else { return Ok(one(&Value::Object(Map::new()), shape)) };
    let first = first.map_err(HttpError::from_search)?;
    if shape.single {
        return Ok(one(&view(&state.store, first, shape).await?, shape));
    }
    let tasks = stream::once(future::ready(Ok(first))).chain(tasks);
    Ok(HttpResponse::Ok().content_type(json::CONTENT_TYPE).streaming(array(state, tasks, shape)))
}

fn one(value: &Value, shape: Shape) -> HttpResponse {
    if shape.pretty { json::ok_pretty(value) } else { json::ok(value) }
}

/// The tasks as a JSON array, written while they are read.
fn array(
    state: Data<State>,
    tasks: impl Stream<Item = Result<Document, StoreError>> + 'static,
    shape: Shape,
) -> impl Stream<Item = Result<Bytes, HttpError>> + 'static {
    let items = tasks.enumerate().then(move |(number, task)| {
        let state = state.clone();
        async move { Ok(item(number, &view(&state.store, task?, shape).await?, shape)) }
    });
    let end = if shape.pretty { "\n]\n" } else { "]" };
    items
        .chain(stream::once(future::ready(Ok(end.to_owned()))))
        .ready_chunks(CHUNK)
        .map(|chunk| chunk.into_iter().collect::<Result<String, StoreError>>())
        .map_ok(Bytes::from)
        // The status is sent already: all that is left is to break the connection.
        .map_err(HttpError::from)
}

fn item(number: usize, task: &Value, shape: Shape) -> String {
    let mut text = String::from(if number == 0 { "[" } else { "," });
    if shape.pretty {
        text.push_str("\n   ");
        json::write_pretty(&mut text, task, 1);
    } else {
        text.push_str(&json::compact(task));
    }
    text
}

/// A task as clients see it.
async fn view(store: &Store, mut task: Document, shape: Shape) -> Result<Value, StoreError> {
    for stream in ["stdout", "stderr"] {
        let shown = match task.get(stream) {
            Some(Bson::String(_)) if shape.terse => Some(Bson::from("[terse mode]")),
            Some(Bson::ObjectId(id)) if shape.full && !shape.terse => {
                Some(output::whole(store, *id).await?.map_or(Bson::Null, Bson::String))
            }
            _ => None, // Shown as it is stored.
        };
        if let Some(shown) = shown {
            task.insert(stream, shown);
        }
    }
    Ok(Value::Object(json::from_document(&task, shape.dates)))
}
