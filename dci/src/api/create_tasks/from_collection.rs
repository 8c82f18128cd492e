//! One task for each document of a collection: `document.a.b` in a value of `params` stands for the
//! document's field `a.b`.

use bson::{Bson, Document};
use disbatch_core::model::{QueueId, TaskId};
use disbatch_core::store::Store;
use disbatch_core::task::{Once, SubmitError, TaskOptions};
use serde_json::{Map, Value};

use super::{check_keys, invalid};
use crate::error::HttpError;
use crate::json;
use crate::query::collection_filter;

/// How a value of `params` names a field of the document.
const PLACEHOLDER: &str = "document.";

/// Creates the tasks.
///
/// # Errors
/// The parameters are wrong, or the database cannot be reached.
pub async fn submit(
    store: &Store,
    queue: QueueId,
    fields: &Map<String, Value>,
    (options, once): (&TaskOptions, Option<&Once>),
) -> Result<Vec<TaskId>, HttpError> {
    let Value::Object(filter) = &fields["filter"] else {
        return Err(HttpError::bad_request("'filter' must be a JSON object"));
    };
    let Value::Object(pattern) = &fields["params"] else {
        return Err(HttpError::bad_request("'params' must be a JSON object"));
    };
    let collection = match &fields["collection"] {
        Value::String(name) if is_collection(name) => name,
        _ => return Err(invalid()), // Nothing but text names a collection.
    };
    check_keys(pattern)?;
    let filter = collection_filter(filter)?;
    let pattern = json::to_document(pattern);
    let params = |document: &Document| fill(&pattern, document);
    let submitted = match once {
        Some(once) => store.submit_tasks_for_once(queue, (collection, filter), params, options, once).await,
        None => store.submit_tasks_for(queue, collection, filter, params, options).await,
    };
    match submitted {
        Ok(submitted) => Ok(submitted.ids),
        Err(SubmitError::Store(error)) => Err(HttpError::from_search(error)),
        Err(error) => Err(error.into()),
    }
}

/// MongoDB's rules for names; its own collections are nobody's source of tasks.
fn is_collection(name: &str) -> bool {
    !name.is_empty() && !name.contains(['$', '\0']) && !name.starts_with("system.")
}

fn fill(pattern: &Document, document: &Document) -> Document {
    let value = |value: &Bson| match value.as_str().and_then(|text| text.strip_prefix(PLACEHOLDER)) {
        Some(path) => lookup(document, path),
        None => value.clone(),
    };
    pattern.iter().map(|(key, pattern)| (key.clone(), value(pattern))).collect()
}

/// The field at `path`, null when there is none.
fn lookup(document: &Document, path: &str) -> Bson {
    let found = match path.split_once('.') {
        None => document.get(path).cloned(),
        Some((first, rest)) => document.get_document(first).ok().map(|inner| lookup(inner, rest)),
    };
    found.unwrap_or(Bson::Null)
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn placeholders_are_filled_from_the_document() {
        let pattern = doc! { "user": "document.username", "lit": "x", "deep": "document.deep.k",
        "missing": "document.nope", "nested": { "b": "document.username" } };
        let document = doc! { "username": "foo", "deep": { "k": 5 } };
        assert_eq!(
            fill(&pattern, &document),
            doc! { "user": "foo", "lit": "x", "deep": 5, "missing": null,
            "nested": { "b": "document.username" } }
        );
    }
}
