//! One task for each document of a collection: `document.a.b` in a value of `params` stands for the
//! document's field `a.b`.

use bson::{Bson, Document};
use disbatch_core::metrics::labels::Refusal;
use disbatch_core::model::{Queue, TaskId};
use disbatch_core::request::check_keys;
use disbatch_core::store::collections::{SourceError, TaskSource};
use disbatch_core::task::{Once, SubmitError, TaskOptions};
use serde_json::{Map, Value};

use super::{fit, invalid, is_repetition};
use crate::access::Who;
use crate::error::HttpError;
use crate::query::collection_filter;
use crate::state::State;
use crate::{changes, json, measure};

/// How a value of `params` names a field of the document.
const PLACEHOLDER: &str = "document.";

pub async fn submit(
    state: &State,
    who: &Who,
    queue: &Queue,
    fields: &Map<String, Value>,
    (options, once): (TaskOptions, Option<Once>),
) -> Result<Vec<TaskId>, HttpError> {
    let Value::Object(filter) = &fields["filter"] else {
        return Err(HttpError::bad_request("'filter' must be a JSON object"));
    };
    let Value::Object(pattern) = &fields["params"] else {
        return Err(HttpError::bad_request("'params' must be a JSON object"));
    };
    let Value::String(name) = &fields["collection"] else { return Err(invalid()) };
    let source = TaskSource::named(name).map_err(|error| match error {
        SourceError::Ours(_) => HttpError::forbidden(error.to_string()),
        SourceError::Name(_) => invalid(), // As Perl says it.
    })?;
    check_keys(pattern)?;
    if let Some(hidden) = source.hidden() {
        check_hidden(hidden, &[&fields["filter"], &fields["params"]])?;
    }
    let filter = collection_filter(filter)?;
    let pattern = json::to_document(pattern);
    if let Some(fit) = fit::of(state, queue, &options.steps).await?
        && !is_repetition(state, queue.id, once.as_ref()).await?
    {
        let mut stream = fit::Stream::new(fit);
        let mut checked = Ok(());
        let mut goes_on = |document: &Document| {
            checked = stream.check(&fill(&pattern, document));
            checked.is_ok()
        };
        let looked = state.store.look_at_source(&source, filter.clone(), &mut goes_on).await;
        looked.map_err(HttpError::from_search)?;
        checked.inspect_err(|_| measure::refused(state.store.metrics(), queue.id, Refusal::Schema))?;
    }
    let (store, collection, queue) = (state.store.clone(), name.clone(), queue.id);
    let options = TaskOptions { owner: who.name.clone(), trace: who.trace.clone(), ..options };
    let submission = async move {
        let params = |document: &Document| fill(&pattern, document);
        let submitted = match &once {
            Some(once) => {
                let from = (&source, filter);
                store.submit_tasks_for_once(queue, from, &params, &options, once).await
            }
            None => store.submit_tasks_for(queue, &source, filter, &params, &options).await,
        };
        let submitted = submitted.inspect_err(|error| measure::refused_by(store.metrics(), queue, error));
        submitted.map_err(|error| match error {
            SubmitError::Store(error) => HttpError::from_search(error),
            other => other.into(), // It says what is wrong with the request.
        })
    };
    Box::pin(changes::submit(state, who, queue, Some(collection), submission)).await
}

/// What plugins alone are to see is not copied, although it is encrypted, nor looked for.
fn check_hidden(field: &str, given: &[&Value]) -> Result<(), HttpError> {
    if given.iter().any(|value| value.to_string().contains(field)) {
        return Err(HttpError::bad_request(format!("'{field}' of a task is for plugins only")));
    }
    Ok(())
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
