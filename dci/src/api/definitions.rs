//! Definitions of plugins that the database has: the routes of workers.

pub mod import;

use std::collections::BTreeSet;

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path};
use bson::{Bson, Document};
use disbatch_core::accounts::Role;
use disbatch_core::audit::{Object, ObjectKind, Verb};
use disbatch_core::definitions as core;
use disbatch_core::definitions::{DefinitionError, NewDefinition, Place, hidden};
use disbatch_core::model::{PluginName, Queue};
use disbatch_core::plugin::{Manifest, ManifestError};
use disbatch_core::store::Store;
use disbatch_wire::definitions::{Definition, DefinitionCheck, DefinitionDeleted};
use serde_json::{Map, Value, json};

use crate::access::Who;
use crate::api::{Answer, redirect};
use crate::error::HttpError;
use crate::json::date_text;
use crate::openapi::{JSON_OR_FORM, JSON_OR_PAGE, NewWorker, OfFixed, WorkerDefinition};
use crate::params::Params;
use crate::schedules::revision;
use crate::state::State;
use crate::{allowance, changes, json, ui, values};

/// So many more copies there are of a definition while it is read as a manifest and compared with what there is.
const COPIES: usize = 3;

/// The field of a page's form that has a definition as JSON.
const TEXT: &str = "definition";

/// The field of a page's form that has the name of a new one.
const NAME: &str = "name";

/// The plugins that the database defines, by name. Browsers get a page. Values of headers and variables are for administrators
/// alone.
#[utoipa::path(
    get, path = "/workers", tag = "workers", operation_id = "listWorkers",
    responses(
        (status = 200, description = "The workers; a page if `Accept` asks for HTML.", body = Vec<Definition>, content_type = JSON_OR_PAGE),
    ),
)]
pub async fn list(state: Data<State>, who: Who) -> Answer {
    let all = state.store.workers().await?;
    json::of(&all.iter().map(|definition| view(definition, &who)).collect::<Vec<_>>())
}

/// One worker. Browsers get a page. Values of headers and variables are for administrators alone.
#[utoipa::path(
    get, path = "/workers/{name}", tag = "workers", operation_id = "getWorker",
    responses(
        (status = 200, description = "The worker; a page if `Accept` asks for HTML.", body = Definition, content_type = JSON_OR_PAGE),
    ),
)]
pub async fn get(state: Data<State>, who: Who, name: Path<String>) -> Answer {
    json::of(&view(&find(&state, &name).await?, &who))
}

/// Makes a worker: its name is `_id` or `name`, and all else is the manifest of a plugin, with an engine whose work is done
/// elsewhere. What runs a program of a node, or sees of a node more than its container engine, is refused. In place of a manifest
/// there may be `worker`, as the lex jobs-scheduler has it.
#[utoipa::path(
    post, path = "/workers", tag = "workers", operation_id = "createWorker",
    request_body(content = NewWorker, content_type = JSON_OR_FORM),
    responses(
        (status = 201, description = "Made.", body = Definition),
        (status = 400, description = "The definition is wrong."),
        (status = 409, description = "There is a worker of this name."),
    ),
)]
pub async fn create(state: Data<State>, who: Who, params: Params) -> Answer {
    let new = checked(&state, None, &params).await?;
    store(&state, &who, (new, Place::Free), &params).await
}

/// Gives a worker this definition, and nothing of the one that it had; makes it if there is none. With the option `.rev`, only
/// if there is one that still has this revision. Tasks that run go on as they began.
#[utoipa::path(
    put, path = "/workers/{name}", tag = "workers", operation_id = "putWorker",
    request_body(content = WorkerDefinition, content_type = JSON_OR_FORM),
    responses(
        (status = 200, description = "Stored.", body = Definition),
        (status = 201, description = "Made.", body = Definition),
        (status = 400, description = "The definition is wrong."),
        (status = 404, description = "With `.rev`: there is no such worker."),
        (status = 409, description = "It has another revision (`rev`), and is not changed."),
    ),
)]
pub async fn put(state: Data<State>, who: Who, name: Path<String>, params: Params) -> Answer {
    let change = async {
        let new = checked(&state, Some(&name), &params).await?;
        let place = revision(&params)?.map_or(Place::Any, Place::Revision);
        store(&state, &who, (new, place), &params).await
    };
    redirect::or_page(redirect::is_form(&params), change.await)
}

/// Gives a worker the definition in the field `definition`, which is JSON as text.
#[utoipa::path(
    post, path = "/ui/workers/{name}", tag = "service", operation_id = "saveWorkerByForm",
    request_body(
        content = Value, content_type = "application/x-www-form-urlencoded",
        example = json!({"definition": "{\"engine\": \"http\"}", ".rev": "1", ".then": "/workers"}),
    ),
    responses(
        (status = 200, description = "Stored.", body = Definition),
        (status = 303, description = "Stored; the page in `.then` is next."),
        (status = 400, description = "The definition is wrong. A page, unless it is the gate that refuses.", content_type = JSON_OR_PAGE),
        (status = 404, description = "There is no such worker. A page, unless it is the gate that refuses.", content_type = JSON_OR_PAGE),
        (status = 409, description = "It has another revision. A page, unless it is the gate that refuses.", content_type = JSON_OR_PAGE),
    ),
)]
pub async fn put_by_form(state: Data<State>, who: Who, name: Path<String>, params: Params) -> Answer {
    put(state, who, name, params).await
}

/// Removes a worker. Queues of this plugin stay, and their tasks wait until it is there again; `queues` names them. Tasks that run go
/// on.
#[utoipa::path(
    delete, path = "/workers/{name}", tag = "workers", operation_id = "deleteWorker",
    responses(
        (status = 200, description = "Removed.", body = DefinitionDeleted),
    ),
)]
pub async fn delete(state: Data<State>, who: Who, name: Path<String>) -> Answer {
    let plugin = named(&name)?;
    let (of, object) = (plugin.clone(), Object::with_name(ObjectKind::Worker, name.as_str()));
    let delete = |store: Store| async move { store.delete_worker(&of, None).await };
    if !changes::remove(&state, &who, (Verb::WorkerDelete, object), delete).await? {
        return Err(not_found(&name));
    }
    let queues = queues_of(&state, &plugin).await?;
    json::of(&DefinitionDeleted { name: name.into_inner(), deleted: true, queues })
}

/// Removes a worker, and leads to the list of workers.
#[utoipa::path(
    post, path = "/ui/workers/{name}/delete", tag = "service", operation_id = "deleteWorkerByForm",
    responses(
        (status = 303, description = "Removed; the list of workers is next."),
        (status = 404, description = "There is no such worker. A page, unless it is the gate that refuses.", content_type = JSON_OR_PAGE),
    ),
)]
pub async fn delete_by_form(state: Data<State>, who: Who, name: Path<String>) -> Answer {
    redirect::lead(delete(state, who, name).await, "/workers")
}

/// Tells whether a definition could be stored, and which plugin it makes. Nothing is stored.
#[utoipa::path(
    post, path = "/workers/validate", tag = "workers", operation_id = "validateWorker",
    request_body(content = NewWorker, content_type = JSON_OR_FORM),
    responses(
        (status = 200, description = "Whether it could; and the plugin, or what is wrong.", body = DefinitionCheck),
        (status = 400, description = "There is no definition to be read."),
        OfFixed,
    ),
)]
pub async fn validate(params: Params) -> Answer {
    let checked =
        read(None, &params).and_then(|new| Ok((new.manifest().map_err(DefinitionError::from)?, new.name)));
    json::of(&match checked {
        Ok((manifest, name)) => DefinitionCheck {
            valid: true,
            error: None,
            name: Some(name.to_string()),
            engine: Some(manifest.engine.to_string()),
            plugin: Some(serde_json::to_value(&manifest).unwrap_or_default()),
        },
        Err(error) => {
            DefinitionCheck { error: Some(error.message().to_owned()), ..DefinitionCheck::default() }
        }
    })
}

async fn checked(state: &State, name: Option<&str>, params: &Params) -> Result<NewDefinition, HttpError> {
    let new = read(name, params)?;
    check_names(state, std::slice::from_ref(&new)).await?;
    Ok(new)
}

async fn store(state: &State, who: &Who, (new, place): (NewDefinition, Place), params: &Params) -> Answer {
    let name = new.name.clone();
    let is_new = changes::define_plugin(state, who, new, place).await?.before.is_none();
    let stored = serde_json::to_value(view(&find(state, name.as_str()).await?, who)).unwrap_or_default();
    let made = || json::made(StatusCode::CREATED, &ui::plugins::worker_place(&name), &stored);
    redirect::answer(params, if is_new { made() } else { json::ok(&stored) })
}

pub async fn queues_of(state: &State, plugin: &PluginName) -> Result<Vec<String>, HttpError> {
    let queues = state.store.list_queues().await?;
    let has_it = |queue: &&Queue| queue.plugin_name().ok().flatten().as_ref() == Some(plugin);
    Ok(queues.iter().filter(has_it).map(Queue::display_name).collect())
}

/// What somebody may see of a definition: all of it if they may change it, else nothing that is secret.
pub fn view(stored: &core::Definition, who: &Who) -> Definition {
    let is_full = who.is_everywhere(Role::Admin);
    let manifest = stored.manifest();
    let known = manifest.as_ref().ok();
    let definition = stored.definition();
    Definition {
        name: stored.name.to_string(),
        engine: known.map(|manifest| manifest.engine.to_string()),
        description: known.map(|manifest| manifest.description.clone()).unwrap_or_default(),
        version: known.map(|manifest| manifest.version.clone()).unwrap_or_default(),
        runs: known.map(runs).unwrap_or_default(),
        problem: manifest.as_ref().err().map(|error| problem(error, is_full)),
        definition: if is_full { definition } else { hidden(&definition) },
        rev: stored.rev,
        by: stored.by.clone(),
        at: stored.at.and_then(date_text),
    }
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

fn not_found(name: &str) -> HttpError {
    HttpError::not_found(format!("no worker '{name}'"))
}

fn named(name: &str) -> Result<PluginName, HttpError> {
    name.parse().map_err(|_| not_found(name))
}

pub async fn find(state: &State, name: &str) -> Result<core::Definition, HttpError> {
    state.store.worker(&named(name)?).await?.ok_or_else(|| not_found(name))
}

/// Sees to it that nobody gets a plugin of a node by defining one of its name: what queues may not have here, but a node has in its files.
async fn check_names(state: &State, new: &[NewDefinition]) -> Result<(), HttpError> {
    let unlisted: Vec<&str> =
        new.iter().map(|new| new.name.as_str()).filter(|name| !state.lists(name)).collect();
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

fn own_plugins(node: &Document) -> BTreeSet<&str> {
    fn names<'a>(node: &'a Document, field: &str) -> BTreeSet<&'a str> {
        let listed = node.get(field).and_then(Bson::as_array);
        listed.into_iter().flatten().filter_map(Bson::as_str).collect()
    }
    &names(node, "plugins") - &names(node, "workers")
}

/// The definition that a request has, for the plugin `name` if the address has one: its fields, or those of the text in a page's
/// form.
fn read(name: Option<&str>, params: &Params) -> Result<NewDefinition, HttpError> {
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
    Ok(NewDefinition::read(name, &fields)?)
}

fn of_text(text: &str) -> Result<Map<String, Value>, HttpError> {
    match allowance::json(text) {
        Ok(Value::Object(fields)) => Ok(fields),
        Ok(_) => Err(HttpError::bad_request("the definition must be a JSON object")),
        Err(error) => Err(HttpError::bad_request(format!("the definition is not JSON: {error}"))),
    }
}

impl From<DefinitionError> for HttpError {
    fn from(error: DefinitionError) -> Self {
        let message = error.to_string();
        match error {
            DefinitionError::Store(error) => error.into(),
            DefinitionError::NameTaken(_) => Self::conflict(message),
            DefinitionError::Missing(_) => Self::not_found(message),
            DefinitionError::Changed(rev) => {
                Self::with_body(StatusCode::CONFLICT, json!({ "error": message, "rev": rev }))
            }
            DefinitionError::NoName
            | DefinitionError::Name(_)
            | DefinitionError::OtherName { .. }
            | DefinitionError::Definition(_)
            | DefinitionError::Shipped(_)
            | DefinitionError::TooLarge
            | DefinitionError::TooMany(_)
            | DefinitionError::TooMuch(_) => Self::bad_request(message),
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

    fn worker(document: Document) -> core::Definition {
        core::Definition::read(document).unwrap()
    }

    #[test]
    fn secrets_are_for_those_who_may_change_them() {
        let worker = worker(doc! {
            "_id": "Csv", "engine": "http", "description": "d", "rev": 3, "by": "ann",
            "http": { "url": "https://u:horse@x/y", "headers": { "A": "horse" } },
        });
        let full = view(&worker, &who(Role::Admin));
        assert_eq!(full.definition["http"]["headers"], json!({ "A": "horse" }));
        for role in [Role::Operator, Role::Viewer] {
            let seen = view(&worker, &who(role));
            assert_eq!(
                (seen.runs.as_str(), seen.rev, seen.engine.as_deref()),
                ("https://x/y", 3, Some("http"))
            );
            assert!(!format!("{seen:?}").contains("horse"), "{seen:?}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_to_others_without_what_is_there() {
        let worker = worker(doc! { "_id": "Csv", "engine": "http", "http": { "headers": "horse" } });
        let full = view(&worker, &who(Role::Admin));
        assert!(full.problem.unwrap().contains("horse"));
        let seen = view(&worker, &who(Role::Viewer));
        assert_eq!((seen.problem.as_deref(), &seen.engine), (Some("http.headers is wrong"), &None));
        assert!(!format!("{seen:?}").contains("horse"), "{seen:?}");
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
