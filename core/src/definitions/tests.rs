use serde_json::json;

use super::*;
use crate::plugin::Engine;

fn fields(value: Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

fn new(value: Value) -> Result<NewDefinition, String> {
    NewDefinition::read(None, &fields(value)).map_err(|error| error.to_string())
}

/// As it comes back from the database.
fn stored(document: Document) -> Definition {
    let bytes = bson::serialize_to_vec(&document).unwrap();
    Definition::read(bson::deserialize_from_slice::<crate::store::Stored>(&bytes).unwrap().into()).unwrap()
}

#[test]
fn a_definition_is_a_manifest_or_that_of_another_scheduler() {
    let ours = stored(doc! {
        "_id": "My::Report", "engine": "http", "description": "d", "http": { "url": "http://x", "timeout": 60.0 },
        "rev": 3, "by": "ann", "at": DateTime::from_millis(5),
    });
    let manifest = ours.manifest().unwrap();
    assert_eq!((manifest.engine, manifest.name.as_str()), (Engine::Http, "My::Report"));
    assert_eq!(manifest.http.unwrap().timeout, 60, "a shell writes doubles");
    assert_eq!((ours.rev, ours.by.as_deref(), ours.at), (3, Some("ann"), Some(DateTime::from_millis(5))));
    let theirs = stored(doc! {
        "_id": "csv", "_rev": "2-ea", "worker": { "name": "CSV", "image": "registry.example/csv" },
    });
    let manifest = theirs.manifest().unwrap();
    assert_eq!((manifest.engine, theirs.rev), (Engine::Kubernetes, 0));
    assert_eq!(theirs.definition(), json!({ "worker": { "name": "CSV", "image": "registry.example/csv" } }));
}

#[test]
fn what_runners_are_told_makes_the_same_plugin() {
    let odd = doc! { "$oid": "x", "n": 5_i64 };
    for worker in [
        stored(doc! { "_id": "a", "engine": "http", "template": { "params": odd }, "rev": 7 }),
        stored(doc! { "_id": "b", "worker": { "engine": "webservice" } }),
    ] {
        let told = Definition::of_raw(&worker.to_raw()).unwrap();
        assert_eq!(told.manifest().unwrap(), worker.manifest().unwrap());
        assert_eq!(told.name, worker.name);
    }
    assert!(Definition::of_raw(&RawDocumentBuf::new()).is_err());
}

#[test]
fn a_worker_has_the_name_of_a_plugin() {
    for odd in [doc! {}, doc! { "_id": 5 }, doc! { "_id": "a-b" }, doc! { "_id": "" }] {
        assert!(Definition::read(odd.clone()).is_err(), "{odd}");
    }
    assert_eq!(new(json!({ "engine": "http" })).unwrap_err(), "_id: expected the name of a plugin");
    let error = new(json!({ "_id": "a-b", "engine": "http" })).unwrap_err();
    assert!(error.starts_with("_id: plugin value 'a-b' must be"), "{error}");
    for given in [json!({ "_id": "a", "engine": "http" }), json!({ "name": "a", "engine": "http" })] {
        assert_eq!(new(given.clone()).unwrap().name.as_str(), "a");
        let other = NewDefinition::read(Some("b".parse().unwrap()), &fields(given)).unwrap_err();
        assert_eq!(other.to_string(), "_id: 'a' is not the name of this worker, 'b'");
    }
    let titled = json!({ "_id": "a", "worker": { "name": "A title", "engine": "webservice" } });
    assert_eq!(new(titled).unwrap().name.as_str(), "a");
}

#[test]
fn what_is_to_be_stored_is_read_strictly() {
    let large = "x".repeat(LARGEST);
    for (value, expected) in [
        (json!({ "_id": "a", "engine": "http", "htp": {} }), "htp: is unknown"),
        (json!({ "_id": "a", "engine": "http", "http": { "uri": "" } }), "http.uri: unknown field `uri`"),
        (json!({ "_id": "a", "command": ["sh"] }), "engine: exec runs a program of the node"),
        (json!({ "_id": "a", "worker": {} }), "worker.image: must be given"),
        (
            json!({ "_id": "Disbatch::Plugin::Shell", "engine": "http" }),
            "_id: 'Disbatch::Plugin::Shell' is a plugin that comes with Disbatch",
        ),
        (json!({ "_id": "a", "worker": {}, "engine": "http" }), "engine: is not to be set beside worker"),
        (
            json!({ "_id": "a", "engine": "http", "description": large }),
            "the definition has more than 262144",
        ),
    ] {
        let error = new(value.clone()).unwrap_err();
        assert!(error.starts_with(expected), "{expected}: {error}");
    }
    let read = new(json!({ "_id": "a", "_rev": "1-x", "rev": 9, "by": "x", "engine": "http" })).unwrap();
    assert_eq!(read.definition, doc! { "engine": "http" });
}

#[test]
fn nothing_that_is_logged_has_what_is_secret() {
    let definition = json!({ "_id": "a", "engine": "http", "http": { "headers": { "A": "horse" } } });
    let new = new(definition).unwrap();
    let worker = stored(doc! { "_id": "a", "http": { "headers": { "A": "horse" } } });
    assert!(!format!("{new:?} {worker:?}").contains("horse"));
}

#[test]
fn what_is_secret_in_jobs_of_another_scheduler_is_not_stored() {
    let secure = json!({ "password": "horse" });
    let template = json!({
        "parameters": { "rows": 5 }, "secureParameters": secure, "httpHeaders": { "X-Team": "data" },
    });
    let given =
        json!({ "_id": "csv", "worker": { "image": "i", "template": template, "secureParams": secure } });
    let template = doc! { "parameters": { "rows": 5 }, "httpHeaders": { "X-Team": "data" } };
    let mut stored = new(given).unwrap().definition;
    let Some(Bson::Document(worker)) = stored.remove("worker") else { panic!("{stored}") };
    assert_eq!(worker.get("template"), Some(&Bson::from(template)));
    assert!(!worker.to_string().contains("horse") && worker.contains_key("image"), "{worker}");
}

#[test]
fn forms_begin_with_nothing_that_only_administrators_see() {
    for definition in [
        json!({ "_id": "a", "engine": "http", "template": {
            "params": { "rows": 5, "httpHeaders": { "A": "horse" } }, "options": { "secure_params": { "p": "horse" } },
        } }),
        json!({ "_id": "b", "worker": { "engine": "webservice", "template": {
            "parameters": { "rows": 5, "env": { "A": "horse" } }, "httpHeaders": { "A": "horse" },
        } } }),
    ] {
        let template = new(definition.clone()).unwrap().manifest().unwrap().template.unwrap();
        assert_eq!(Value::Object(template.params), json!({ "rows": 5 }), "{definition}");
        assert!(template.options.is_empty(), "{definition}");
        let seen = hidden(&definition).to_string();
        assert!(!seen.contains("horse"), "{seen}");
    }
}

#[test]
fn workers_that_make_no_plugin_are_left_out() {
    let workers = [
        stored(doc! { "_id": "a", "engine": "http" }),
        stored(doc! { "_id": "b", "command": ["sh"] }),
        stored(doc! { "_id": "c", "worker": 5 }),
    ];
    let names: Vec<String> = manifests(&workers).iter().map(|manifest| manifest.name.to_string()).collect();
    assert_eq!(names, ["a"]);
}

#[test]
fn the_documented_definitions_are_right() {
    let page = include_str!("../../../docs/plugins.md");
    let blocks = page.split("```json\n").skip(1).filter_map(|rest| rest.split_once("```"));
    let documented: Vec<Value> = blocks.filter_map(|(block, _)| serde_json::from_str(block).ok()).collect();
    let has = |block: &&Value, key: &str| block.get(key).is_some();
    let manifests: Vec<&Value> =
        documented.iter().filter(|block| has(block, "engine") && has(block, "name")).collect();
    assert!(manifests.len() >= 2, "{documented:?}");
    for block in manifests {
        let manifest = Manifest::from_value(block.clone()).unwrap();
        assert_eq!(manifest.unknown_keys, Vec::<String>::new(), "{block}");
    }
    let is_worker = |block: &&Value| block.get("_id").is_some_and(Value::is_string) && !has(block, "job");
    let workers: Vec<&Value> = documented.iter().filter(is_worker).collect();
    assert_eq!(workers.len(), 2, "{documented:?}");
    let engines: Vec<Engine> =
        workers.into_iter().map(|block| new(block.clone()).unwrap().manifest().unwrap().engine).collect();
    assert_eq!(engines, [Engine::Http; 2]);
}
