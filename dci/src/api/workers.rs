//! The operations on workers: plugins that the database defines. One file each.

pub mod create;
pub mod delete;
pub mod get;
pub mod import;
pub mod list;
pub mod put;
pub mod validate;

use std::collections::BTreeSet;

use bson::{Bson, Document};
use disbatch_core::accounts::Role;
use disbatch_core::model::PluginName;
use disbatch_core::plugin::{Manifest, ManifestError};
use disbatch_core::workers::{NewWorker, Worker, WorkerError, hidden};
use serde_json::{Map, Value, json};

use crate::access::Who;
use crate::allowance;
use crate::error::HttpError;
use crate::json::date_text;
use crate::params::Params;
use crate::state::State;
use crate::values;

/// So many more copies there are of a definition while it is read as a manifest and compared with what there is.
const COPIES: usize = 3;

/// The field of a page's form that has a definition as JSON.
pub const TEXT: &str = "definition";

/// The field of a page's form that has the name of a new one.
const NAME: &str = "name";

/// What somebody may see of a worker: all of it if they may change it, else nothing that is secret.
pub fn view(worker: &Worker, who: &Who) -> Value {
    let is_full = who.is_everywhere(Role::Admin);
    let manifest = worker.manifest();
    let known = manifest.as_ref().ok();
    let definition = worker.definition();
    json!({
        "name": worker.name.as_str(),
        "engine": known.map(|manifest| manifest.engine.as_str()),
        "description": known.map(|manifest| manifest.description.as_str()).unwrap_or_default(),
        "version": known.map(|manifest| manifest.version.as_str()).unwrap_or_default(),
        "runs": known.map(runs).unwrap_or_default(),
        "problem": manifest.as_ref().err().map(|error| problem(error, is_full)),
        "definition": if is_full { definition } else { hidden(&definition) },
        "rev": worker.rev,
        "by": worker.by,
        "at": worker.at.and_then(date_text),
    })
}

/// What a task of the plugin is, in a word: an image or an address.
fn runs(manifest: &Manifest) -> String {
    let config =
        manifest.container.as_ref().and_then(|container| container.config.as_ref()?.get("Image")?.as_str());
    let image = match (&manifest.container, &manifest.kubernetes) {
        (Some(container), _) => Some(container.image.as_str()).filter(|image| !image.is_empty()).or(config),
        (None, Some(kubernetes)) => Some(kubernetes.image.as_str()),
        (None, None) => None,
    };
    let url = manifest.http.as_ref().and_then(|http| http.url.as_deref());
    let told = Value::from(image.or(url).unwrap_or_default());
    // An address may have more in it than it says.
    hidden(&told).as_str().unwrap_or_default().to_owned()
}

/// What is wrong with a definition. Those who may not see all of it are told where, as the message may have what is there.
fn problem(error: &ManifestError, is_full: bool) -> String {
    match error {
        ManifestError::Invalid { path, .. } if !is_full => format!("{path} is wrong"),
        error => error.to_string(),
    }
}

/// There is no such worker.
pub fn not_found(name: &str) -> HttpError {
    HttpError::not_found(format!("no worker '{name}'"))
}

/// Somebody else has changed the worker meanwhile.
pub fn changed_meanwhile(rev: i64) -> HttpError {
    let message = format!("the worker was changed meanwhile: its revision is {rev}. Nothing is changed");
    HttpError::with_body(actix_web::http::StatusCode::CONFLICT, json!({ "error": message, "rev": rev }))
}

/// The name that an address has.
pub fn named(name: &str) -> Result<PluginName, HttpError> {
    name.parse().map_err(|_| not_found(name))
}

/// A worker that there is.
pub async fn find(state: &State, name: &str) -> Result<Worker, HttpError> {
    state.store.worker(&named(name)?).await?.ok_or_else(|| not_found(name))
}

/// Sees to it that nobody gets a plugin of a node by defining one of its name: what queues may not have here, but a node has in its files.
pub async fn check_names(state: &State, workers: &[NewWorker]) -> Result<(), HttpError> {
    let unlisted: Vec<&str> =
        workers.iter().map(|worker| worker.name.as_str()).filter(|name| !state.lists(name)).collect();
    if unlisted.is_empty() {
        return Ok(());
    }
    for node in state.store.list_nodes().await? {
        let own = own_plugins(&node);
        if let Some(name) = unlisted.iter().find(|name| own.contains(**name)) {
            return Err(HttpError::bad_request(format!(
                "the node {} has a plugin '{name}' in its files, and plugins of the configuration does not list it: a worker needs \
                 another name",
                node.get_str("node").unwrap_or_default()
            )));
        }
    }
    Ok(())
}

/// The plugins that a node has by itself.
fn own_plugins(node: &Document) -> BTreeSet<&str> {
    fn names<'a>(node: &'a Document, field: &str) -> BTreeSet<&'a str> {
        let listed = node.get(field).and_then(Bson::as_array);
        listed.into_iter().flatten().filter_map(Bson::as_str).collect()
    }
    &names(node, "plugins") - &names(node, "workers")
}

/// The definition that a request has, for the worker `name` if the address has one: its fields, or those of the text in a page's
/// form.
pub fn read(name: Option<&str>, params: &Params) -> Result<NewWorker, HttpError> {
    allowance::take_for_copies(COPIES, params.fields.values())?;
    let mut name = name.map(str::to_owned);
    let fields = match params.fields.get(TEXT) {
        Some(Value::String(text)) => {
            if let Some(given) = params.fields.get(NAME).filter(|value| !values::is_unset(value)) {
                name = Some(values::text(NAME, given)?);
            }
            of_text(text)?
        }
        _ => params.fields.clone(),
    };
    let name = name.map(|name| name.parse::<PluginName>()).transpose();
    let name = name.map_err(|error| HttpError::bad_request(format!("name: {error}")))?;
    Ok(NewWorker::read(name, &fields)?)
}

fn of_text(text: &str) -> Result<Map<String, Value>, HttpError> {
    match crate::allowance::json(text) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(HttpError::bad_request("the definition must be a JSON object")),
        Err(error) => Err(HttpError::bad_request(format!("the definition is not JSON: {error}"))),
    }
}

impl From<WorkerError> for HttpError {
    fn from(error: WorkerError) -> Self {
        match error {
            WorkerError::Store(error) => error.into(),
            WorkerError::NameTaken(_) => Self::conflict(error.to_string()),
            WorkerError::NoName
            | WorkerError::Name(_)
            | WorkerError::OtherName { .. }
            | WorkerError::Definition(_)
            | WorkerError::Shipped(_)
            | WorkerError::TooLarge
            | WorkerError::TooMany(_)
            | WorkerError::TooMuch(_) => Self::bad_request(error.to_string()),
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use disbatch_core::accounts::Rights;

    use super::*;

    fn params(fields: Value) -> Params {
        Params { fields: fields.as_object().unwrap().clone(), ..Params::default() }
    }

    fn who(role: Role) -> Who {
        Who { rights: Rights::new(Some(role), Vec::new()), ..Who::anybody("10.0.0.1".to_owned()) }
    }

    fn worker(document: bson::Document) -> Worker {
        Worker::read(document).unwrap()
    }

    #[test]
    fn secrets_are_for_those_who_may_change_them() {
        let worker = worker(doc! {
            "_id": "Csv", "engine": "http", "description": "d", "rev": 3, "by": "ann",
            "http": { "url": "https://u:horse@x/y", "headers": { "A": "horse" } },
        });
        let full = view(&worker, &who(Role::Admin));
        assert_eq!(full["definition"]["http"]["headers"], json!({ "A": "horse" }));
        for role in [Role::Operator, Role::Viewer] {
            let seen = view(&worker, &who(role));
            assert_eq!(
                (&seen["runs"], &seen["rev"], &seen["engine"]),
                (&json!("https://x/y"), &json!(3), &json!("http"))
            );
            assert!(!seen.to_string().contains("horse"), "{seen}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_to_others_without_what_is_there() {
        let worker = worker(doc! { "_id": "Csv", "engine": "http", "http": { "headers": "horse" } });
        let full = view(&worker, &who(Role::Admin));
        assert!(full["problem"].as_str().unwrap().contains("horse"), "{full}");
        let seen = view(&worker, &who(Role::Viewer));
        assert_eq!((&seen["problem"], &seen["engine"]), (&json!("http.headers is wrong"), &Value::Null));
        assert!(!seen.to_string().contains("horse"), "{seen}");
    }

    #[test]
    fn a_node_says_which_plugins_it_has_by_itself() {
        let node = doc! { "node": "n1", "plugins": ["A", "B", 5], "workers": ["B", "C"] };
        assert_eq!(own_plugins(&node), BTreeSet::from(["A"]));
        assert_eq!(own_plugins(&doc! { "plugins": ["A"] }), BTreeSet::from(["A"]), "one of an older release");
        assert!(own_plugins(&doc! { "plugins": "A" }).is_empty());
    }

    #[test]
    fn a_form_has_the_definition_as_text() {
        let text = r#"{ "engine": "http" }"#;
        let read = |name: Option<&str>, fields: Value| {
            super::read(name, &params(fields))
                .map(|new| new.name.to_string())
                .map_err(|error| error.to_string())
        };
        assert_eq!(read(None, json!({ "name": "A", "definition": text })), Ok("A".to_owned()));
        assert_eq!(read(Some("A"), json!({ "definition": text })), Ok("A".to_owned()));
        assert_eq!(read(None, json!({ "_id": "A", "engine": "http" })), Ok("A".to_owned()));
        for (fields, expected) in [
            (json!({ "name": "A", "definition": "{" }), "the definition is not JSON: "),
            (json!({ "name": "A", "definition": "[]" }), "the definition must be a JSON object"),
            (json!({ "name": "a b", "definition": text }), "name: plugin value 'a b' must be"),
            (json!({ "definition": text }), "_id: expected the name of a plugin"),
        ] {
            let error = read(None, fields).unwrap_err();
            assert!(error.starts_with(expected), "{error}");
        }
    }
}
