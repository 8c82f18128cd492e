//! Tasks as a JSON array that is written while they are read.

use std::future::Future;

use actix_web::HttpResponse;
use actix_web::web::Bytes;
use bson::{Bson, Document};
use disbatch_core::store::{Store, StoreError};
use futures::{FutureExt, Stream, StreamExt, TryStreamExt, future, stream};
use serde_json::Value;

use crate::access::Sight;
use crate::error::HttpError;
use crate::query::Shape;
use crate::raw::{PIECE, pieces};
use crate::{fields, json, output};

/// What stands for output that was not asked for.
pub const TERSE: &str = "[terse mode]";

/// The answer with all of `tasks`, each as `view` has it.
pub fn respond<F: Future<Output = Result<Value, StoreError>> + 'static>(
    tasks: impl Stream<Item = Result<Document, StoreError>> + 'static,
    pretty: bool,
    view: impl Fn(Document) -> F + 'static,
) -> HttpResponse {
    let items = tasks.enumerate().then(move |(number, task)| {
        let viewed = task.map(&view);
        async move { Ok(item(number, &viewed?.await?, pretty)) }
    });
    let end = if pretty { "\n]\n" } else { "]" };
    let texts = items.chain(stream::once(future::ready(Ok(end.to_owned()))));
    // The status is sent already: all that is left in case of an error is to break the connection.
    let body = pieces(together(texts).map_ok(Bytes::from)).map_err(HttpError::from);
    HttpResponse::Ok().content_type(json::CONTENT_TYPE).streaming(body)
}

/// Joins texts that are there at the same time, until there is enough for a piece.
fn together(
    texts: impl Stream<Item = Result<String, StoreError>> + 'static,
) -> impl Stream<Item = Result<String, StoreError>> {
    stream::try_unfold(Box::pin(texts), async |mut texts| {
        let Some(mut text) = texts.try_next().await? else { return Ok(None) };
        while text.len() < PIECE
            && let Some(Some(more)) = texts.next().now_or_never()
        {
            text.push_str(&more?);
        }
        Ok(Some((text, texts)))
    })
}

fn item(number: usize, task: &Value, pretty: bool) -> String {
    let mut text = String::from(if number == 0 { "[" } else { "," });
    if pretty {
        text.push_str("\n   ");
        json::write_pretty(&mut text, task, 1);
    } else {
        text.push_str(&json::compact(task));
    }
    text
}

/// A task as clients see it who see so much.
///
/// # Errors
/// The database cannot be reached.
pub async fn view(
    store: &Store,
    mut task: Document,
    shape: Shape,
    sight: &Sight,
) -> Result<Value, StoreError> {
    sight.conceal(store, &mut task).await?;
    for stream in ["stdout", "stderr"] {
        let shown = match task.get(stream) {
            Some(Bson::String(_)) if shape.terse => Some(Bson::from(TERSE)),
            Some(Bson::ObjectId(id)) if shape.full && !shape.terse => {
                Some(output::whole(store, *id).await?.map_or(Bson::Null, Bson::String))
            }
            _ => None, // Shown as it is stored.
        };
        if let Some(shown) = shown {
            task.insert(stream, shown);
        }
    }
    Ok(Value::Object(json::from_document(&fields::of_task(task, shape.details), shape.dates)))
}
