//! Definitions in the form of another scheduler, the lex jobs-scheduler, which keeps its workers in a database as well:
//! `{"_id": .., "worker": {"name", "description", "engine", "image", "url", "httpHeaders", "timeout", "template"}}`.
//!
//! There, a worker without an engine is a job of Kubernetes, and `webservice` is what is called `http` here. `template` is
//! what a new job begins with; a job's parameters are what is called `params` here, and its address is a parameter of the task.

use std::collections::BTreeMap;

use bson::{Bson, Document};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::LEX;
use crate::model::PluginName;
use crate::plugin::{CallbackAuth, ManifestError};

/// What is read of such a definition. It may have more.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Lex {
    /// A title for people.
    name: Option<String>,
    description: Option<String>,
    engine: Option<String>,
    image: Option<String>,
    url: Option<String>,
    http_headers: Option<BTreeMap<String, String>>,
    /// In seconds.
    timeout: Option<u64>,
    /// A key of ours: there, services show no token of ours.
    #[serde(rename = "callback_auth")]
    callback_auth: Option<CallbackAuth>,
    template: Option<Template>,
}

/// What of a template there is a place for here. When a job runs, for whom, and what is secret in it ([`drop_secure`]) is not for
/// a template; nor are headers, since everybody who may submit tasks sees what forms begin with.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Template {
    name: Option<String>,
    /// Anything: there, workers give it its meaning.
    parameters: Option<Value>,
    params: Option<Value>,
    url: Option<String>,
    timeout: Option<u64>,
}

/// Leaves out secure parameters, of the worker and of its template, which may have all that a job has. There they are encrypted in
/// jobs; here they would be a part of a definition, in the clear, and in every dump.
pub(super) fn drop_secure(worker: &mut Document) {
    let is_secure = |name: &str| name.get(..6).is_some_and(|start| start.eq_ignore_ascii_case("secure"));
    let names: Vec<String> = worker.keys().filter(|name| is_secure(name)).cloned().collect();
    for name in names {
        worker.remove(&name);
    }
    if let Some(Bson::Document(template)) = worker.get_mut("template") {
        drop_secure(template);
    }
}

/// The manifest that such a definition is.
pub(super) fn manifest(name: &PluginName, worker: Value) -> Result<Value, ManifestError> {
    let lex: Lex = serde_path_to_error::deserialize(worker).map_err(|error| {
        let path = error.path().to_string();
        wrong(&path, error.into_inner().to_string())
    })?;
    let mut manifest = json!({ "name": name.as_str(), "description": description(&lex) });
    match lex.engine.as_deref().filter(|engine| !engine.is_empty()) {
        None | Some("kubernetes") => {
            let image = lex.image.filter(|image| !image.is_empty());
            let image = image.ok_or_else(|| wrong("image", "must be given".to_owned()))?;
            manifest["engine"] = "kubernetes".into();
            manifest["kubernetes"] = json!({ "image": image });
        }
        Some("webservice") => {
            let fields = [
                ("url", lex.url.filter(|url| !url.is_empty()).map(Value::from)),
                ("headers", lex.http_headers.map(|headers| json!(headers))),
                ("timeout", lex.timeout.map(Value::from)),
                ("callback_auth", lex.callback_auth.map(|auth| json!(auth))),
            ];
            manifest["engine"] = "http".into();
            manifest["http"] = fields.into_iter().filter_map(|(key, value)| Some((key, value?))).collect();
        }
        Some(other) => {
            return Err(wrong("engine", format!("expected kubernetes or webservice, got {other:?}")));
        }
    }
    if let Some(template) = lex.template {
        manifest["template"] = template.into_ours();
    }
    Ok(manifest)
}

fn description(lex: &Lex) -> String {
    let (title, text) = (lex.name.as_deref().unwrap_or_default(), lex.description.as_deref());
    match text.filter(|text| !text.is_empty()) {
        None => title.to_owned(),
        Some(text) if title.is_empty() || text.starts_with(title) => text.to_owned(),
        Some(text) => format!("{title}: {text}"),
    }
}

impl Template {
    fn into_ours(self) -> Value {
        let mut params = match self.params.or(self.parameters) {
            None | Some(Value::Null) => Map::new(),
            Some(Value::Object(params)) => params,
            Some(other) => Map::from_iter([("parameters".to_owned(), other)]),
        };
        if let Some(url) = self.url {
            params.insert("url".to_owned(), url.into());
        }
        let options = self.timeout.map_or_else(|| json!({}), |timeout| json!({ "timeout": timeout }));
        json!({ "name": self.name.unwrap_or_default(), "params": params, "options": options })
    }
}

fn wrong(key: &str, message: String) -> ManifestError {
    let path = if key == "." { LEX.to_owned() } else { format!("{LEX}.{key}") };
    ManifestError::invalid(path, message)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plugin::{Engine, Manifest};

    fn read(worker: Value) -> Result<Manifest, String> {
        let name = "csv".parse().unwrap();
        let value = manifest(&name, worker).map_err(|error| error.to_string())?;
        Manifest::from_value(value).map_err(|error| error.to_string())
    }

    #[test]
    fn a_worker_without_an_engine_is_a_job_of_kubernetes() {
        let manifest = read(json!({
            "name": "CSV upload", "description": "CSV upload worker. No parameters needed.",
            "image": "registry.example/batch.csv", "tags": ["odd"],
        }))
        .unwrap();
        assert_eq!((manifest.engine, manifest.name.as_str()), (Engine::Kubernetes, "csv"));
        assert_eq!(manifest.kubernetes.unwrap().image, "registry.example/batch.csv");
        assert_eq!(manifest.description, "CSV upload worker. No parameters needed.");
        assert!(manifest.unknown_keys.is_empty());
    }

    #[test]
    fn a_web_service_has_an_address_and_headers_or_leaves_them_to_its_jobs() {
        let manifest = read(json!({
            "name": "CSV", "description": "Uploads", "engine": "webservice", "url": "http://my.example/worker",
            "httpHeaders": { "Authorization": "Basic x" }, "timeout": 60,
        }))
        .unwrap();
        assert_eq!((manifest.engine, manifest.description.as_str()), (Engine::Http, "CSV: Uploads"));
        let http = manifest.http.unwrap();
        assert_eq!((http.url.as_deref(), http.timeout), (Some("http://my.example/worker"), 60));
        assert_eq!(http.headers["Authorization"], "Basic x");
        let any = read(json!({ "engine": "webservice" })).unwrap().http.unwrap();
        assert_eq!((any.callback_auth, any.url, any.timeout), (CallbackAuth::Token, None, 43_200));
        let open = read(json!({ "engine": "webservice", "callback_auth": "none" })).unwrap().http.unwrap();
        assert!(open.shows_no_token());
    }

    #[test]
    fn a_template_of_a_job_is_one_of_tasks() {
        let template = |template: Value| {
            let manifest = read(json!({ "image": "i", "template": template })).unwrap();
            serde_json::to_value(manifest.template.unwrap()).unwrap()
        };
        let given = json!({
            "name": "nightly", "tenant": "acme", "cron": "0 10 * * *", "parameters": { "rows": 5 }, "timeout": 60,
            "url": "http://x", "httpHeaders": { "A": "horse" }, "secureParameters": { "password": "p" },
        });
        let told = template(given);
        assert_eq!(told["name"], "nightly");
        assert_eq!(told["params"], json!({ "rows": 5, "url": "http://x" }));
        assert_eq!(told["options"], json!({ "timeout": 60 }));
        assert!(!told.to_string().contains("password") && !told.to_string().contains("horse"), "{told}");
        assert_eq!(template(json!({ "parameters": "a,b" }))["params"], json!({ "parameters": "a,b" }));
    }

    #[test]
    fn secure_parameters_are_no_part_of_a_definition() {
        let mut worker = bson::doc! {
            "image": "i", "secureParameters": { "a": 1 },
            "template": { "SecureParams": { "b": 1 }, "secure": 1, "parameters": { "secureTransfer": true }, "é": 1 },
        };
        drop_secure(&mut worker);
        let left = bson::doc! {
            "image": "i", "template": { "parameters": { "secureTransfer": true }, "é": 1 },
        };
        assert_eq!(worker, left, "what a parameter is called says nothing");
    }

    #[test]
    fn what_is_wrong_is_named_as_it_was_written() {
        for (worker, expected) in [
            (json!({}), "worker.image: must be given"),
            (json!(5), "worker: invalid type: integer `5`"),
            (json!({ "image": 5 }), "worker.image: invalid type: integer `5`, expected a string"),
            (json!({ "engine": "cloud" }), "worker.engine: expected kubernetes or webservice, got \"cloud\""),
            (json!({ "image": "i", "template": { "timeout": "x" } }), "worker.template.timeout: "),
        ] {
            let error = read(worker.clone()).unwrap_err();
            assert!(error.starts_with(expected), "{worker}: {error}");
        }
    }
}
