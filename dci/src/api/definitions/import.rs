//! `POST /workers/import`

use std::collections::BTreeSet;

use actix_web::http::StatusCode;
use actix_web::web::Data;
use disbatch_core::definitions::{NewDefinition, Place};
use disbatch_core::node::Offered;
use disbatch_core::plugin::Engine;
use disbatch_wire::definitions::DefinitionsImported;
use serde_json::{Value, json};

use crate::access::Who;
use crate::api::{Answer, definitions};
use crate::error::HttpError;
use crate::openapi::WorkersImport;
use crate::params::AnyJson;
use crate::state::State;
use crate::{changes, json, legacy};

/// So many definitions are taken at once.
const MOST: usize = 1_000;

/// Stores definitions that come from elsewhere: a list of documents, or an object with `documents`, or with `rows` or `docs` as
/// CouchDB exports and takes them. If one of them is wrong, nothing is stored. One whose name another worker has is left
/// alone, unless `replace` is true.
#[utoipa::path(
    post, path = "/workers/import", tag = "workers", operation_id = "importWorkers",
    request_body = WorkersImport,
    responses(
        (status = 200, description = "What became of each, by name.", body = DefinitionsImported),
        (status = 400, description = "Definitions are wrong: `problems` has the name and the mistake of each. Nothing is stored."),
    ),
)]
pub async fn handle(state: Data<State>, who: Who, body: AnyJson) -> Answer {
    let (documents, place) = documents(body.0)?;
    let new = checked(&documents)?;
    definitions::check_names(&state, &new).await?;
    let warnings = [without_engine(&new, &state.store.offered().await?), without_token(&new)].concat();
    let told = changes::import_definitions(&state, &who, new, place).await?;
    json::of(&DefinitionsImported { warnings, ..told })
}

/// For each definition whose engine no node has, that its tasks will wait.
fn without_engine(new: &[NewDefinition], offered: &Offered) -> Vec<String> {
    let engine = |worker: &NewDefinition| worker.manifest().ok().map(|manifest| manifest.engine);
    let engines = new.iter().filter_map(|worker| Some((worker, engine(worker)?)));
    let missing = engines.filter(|(_, engine)| !offered.engines.contains(engine));
    let warning = |(worker, engine): (&NewDefinition, Engine)| {
        format!(
            "{}: no node whose DEN is alive has the engine {engine}, so its tasks wait until one has; or name another \
             engine",
            worker.name
        )
    };
    missing.map(warning).collect()
}

/// For each web service of another scheduler, what it has to show when it calls back: there, it knew of no such thing.
fn without_token(new: &[NewDefinition]) -> Vec<String> {
    let wants_one = |worker: &&NewDefinition| {
        let http = worker.manifest().ok().and_then(|manifest| manifest.http);
        worker.is_foreign() && http.is_some_and(|http| !http.shows_no_token())
    };
    let warning = |worker: &NewDefinition| {
        format!(
            "{}: when it calls back, its service has to show the token that it is told; for one that cannot, say \
             \"callback_auth\": \"none\" beside its url",
            worker.name
        )
    };
    new.iter().filter(wants_one).map(warning).collect()
}

/// The documents in a body, and what they take the place of.
fn documents(body: Value) -> Result<(Vec<Value>, Place), HttpError> {
    let mut fields = match body {
        Value::Array(documents) => return Ok((documents, Place::Free)),
        Value::Object(fields) => fields,
        _ => return Err(wrong()),
    };
    if fields.contains_key("_id") {
        return Ok((vec![Value::Object(fields)], Place::Free));
    }
    let place = if legacy::is_true(fields.get("replace")) { Place::Any } else { Place::Free };
    let listed = ["documents", "docs"].into_iter().find_map(|key| fields.remove(key));
    match (listed, fields.remove("rows")) {
        (Some(Value::Array(documents)), None) => Ok((documents, place)),
        (None, Some(Value::Array(rows))) => {
            let document = |mut row: Value| row.get_mut("doc").map(Value::take);
            let documents: Option<Vec<Value>> = rows.into_iter().map(document).collect();
            let documents = documents.ok_or_else(|| {
                HttpError::bad_request("rows must have doc: export them with include_docs=true")
            })?;
            // CouchDB keeps its views beside what they are views of.
            let is_view =
                |document: &Value| document["_id"].as_str().is_some_and(|id| id.starts_with("_design/"));
            Ok((documents.into_iter().filter(|document| !is_view(document)).collect(), place))
        }
        _ => Err(wrong()),
    }
}

fn wrong() -> HttpError {
    HttpError::bad_request("expected a list of definitions, or an object with documents")
}

fn checked(documents: &[Value]) -> Result<Vec<NewDefinition>, HttpError> {
    if documents.is_empty() || documents.len() > MOST {
        return Err(HttpError::bad_request(format!(
            "expected 1 to {MOST} definitions, got {}",
            documents.len()
        )));
    }
    let mut new = Vec::new();
    let mut problems = Vec::new();
    let mut names = BTreeSet::new();
    for document in documents {
        let read = match document.as_object() {
            Some(fields) => NewDefinition::read(None, fields).map_err(|error| error.to_string()),
            None => Err("it must be an object".to_owned()),
        };
        match read {
            Ok(worker) if names.insert(worker.name.clone()) => new.push(worker),
            Ok(worker) => {
                problems.push(json!({ "name": worker.name.as_str(), "error": "it is there twice" }))
            }
            Err(error) => {
                let name = document.get("_id").or_else(|| document.get("name")).cloned().unwrap_or_default();
                problems.push(json!({ "name": name, "error": error }));
            }
        }
    }
    if problems.is_empty() {
        return Ok(new);
    }
    let error =
        format!("{} of {} definitions are wrong, and nothing is stored", problems.len(), documents.len());
    let body = json!({ "error": error, "problems": problems });
    Err(HttpError::with_body(StatusCode::BAD_REQUEST, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn documents_come_in_several_wrappings() {
        let one = json!({ "_id": "a", "worker": { "image": "i" } });
        for body in [
            json!([one]),
            one.clone(),
            json!({ "documents": [one] }),
            json!({ "docs": [one] }),
            json!({ "total_rows": 2, "rows": [
                { "id": "_design/x", "doc": { "_id": "_design/x", "views": {} } }, { "id": "a", "doc": one },
            ] }),
        ] {
            assert_eq!(documents(body.clone()).unwrap(), (vec![one.clone()], Place::Free), "{body}");
        }
        assert_eq!(documents(json!({ "documents": [one], "replace": true })).unwrap().1, Place::Any);
        for body in [json!(5), json!({}), json!({ "documents": 5 }), json!({ "rows": [{ "id": "a" }] })] {
            assert!(documents(body.clone()).is_err(), "{body}");
        }
    }

    #[test]
    fn an_engine_that_no_node_has_is_warned_about() {
        let documents =
            [json!({ "_id": "a", "worker": { "image": "i" } }), json!({ "_id": "b", "engine": "http" })];
        let new = checked(&documents).unwrap();
        let offered = Offered { engines: [Engine::Exec, Engine::Http].into(), ..Offered::default() };
        let warnings = without_engine(&new, &offered);
        assert!(warnings.len() == 1 && warnings[0].starts_with("a: no node"), "{warnings:?}");
        assert!(warnings[0].contains("the engine kubernetes"), "{warnings:?}");
    }

    #[test]
    fn a_service_of_another_scheduler_is_told_of_the_token() {
        let service = |more: Value| {
            let mut worker = json!({ "engine": "webservice", "url": "https://x" });
            worker.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            json!({ "_id": "a", "worker": worker })
        };
        let warnings = |document: Value| without_token(&checked(&[document]).unwrap());
        let told = warnings(service(json!({})));
        assert!(told.len() == 1 && told[0].starts_with("a: when it calls back"), "{told:?}");
        assert!(warnings(service(json!({ "callback_auth": "none" }))).is_empty());
        assert!(warnings(json!({ "_id": "a", "worker": { "image": "i" } })).is_empty());
        assert!(warnings(json!({ "_id": "a", "engine": "http" })).is_empty(), "it is of this one");
    }

    #[test]
    fn all_mistakes_are_told_at_once() {
        let good = json!({ "_id": "a", "engine": "http" });
        assert_eq!(checked(std::slice::from_ref(&good)).unwrap().len(), 1);
        assert!(checked(&[]).is_err());
        let error = checked(&[good.clone(), good, json!({ "_id": "b" }), json!(5)]).unwrap_err();
        let body: Value = serde_json::from_str(&error.json()).unwrap();
        assert_eq!(body["error"], "3 of 4 definitions are wrong, and nothing is stored");
        let names: Vec<&Value> =
            body["problems"].as_array().unwrap().iter().map(|one| &one["name"]).collect();
        assert_eq!(names, [&json!("a"), &json!("b"), &Value::Null]);
    }
}
