//! Tasks as a JSON array that is written while they are read.

use std::future::Future;
use std::rc::Rc;

use actix_web::HttpResponse;
use actix_web::web::Bytes;
use bson::{Bson, Document};
use disbatch_core::store::{Store, StoreError};
use futures::{FutureExt, Stream, StreamExt, TryStreamExt, future, stream};
use serde_json::Value;

use crate::access::Sight;
use crate::allowance::answers::growing;
use crate::api::Answer;
use crate::error::HttpError;
use crate::query::Shape;
use crate::raw::{PIECE, pieces};
use crate::{fields, json, output};

/// What stands for output that was not asked for.
pub const TERSE: &str = "[terse mode]";

/// What is read from the database at once has at most so many bytes.
const BATCH: usize = 16 * 1024 * 1024;

/// The answer with all of `tasks`, each as `view` has it.
pub async fn respond<F: Future<Output = Result<Value, StoreError>> + 'static>(
    tasks: impl Stream<Item = Result<Document, StoreError>> + 'static,
    pretty: bool,
    view: impl Fn(Document) -> F + 'static,
) -> Answer {
    let room = growing().map(Rc::new);
    let has_room = room.clone();
    let mut made = 0;
    let items = tasks.enumerate().then(move |(number, task)| {
        let viewed = task.map(&view);
        async move { Ok::<_, HttpError>(item(number, &viewed?.await?, pretty)) }
    });
    let counted = items.map(move |text| {
        let text = text?;
        // What has been read of the database and is waiting: nobody knows how much it is, but it is like what came before.
        made += text.len();
        if let Some(room) = &has_room {
            room.grow(made.min(BATCH) + text.len())?;
        }
        Ok(text)
    });
    let end = if pretty { "\n]\n" } else { "]" };
    let mut texts = Box::pin(counted.chain(stream::once(future::ready(Ok(end.to_owned())))));
    // Until then, an error is still an answer.
    let first = texts.try_next().await?.unwrap_or_default();
    let texts = stream::once(future::ready(Ok(first))).chain(texts);
    let body = pieces(together(texts).map_ok(Bytes::from));
    // The status is sent already: all that is left in case of an error is to break the connection.
    Ok(HttpResponse::Ok().content_type(json::CONTENT_TYPE).streaming(body.inspect_ok(move |piece| {
        if let Some(room) = &room {
            room.handed_out(piece.len());
        }
    })))
}

/// Joins texts that are there at the same time, until there is enough for a piece.
fn together(
    texts: impl Stream<Item = Result<String, HttpError>> + 'static,
) -> impl Stream<Item = Result<String, HttpError>> {
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
    }
    json::write(&mut text, task, pretty.then_some(1));
    text
}

/// A task as clients see it who see so much.
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
