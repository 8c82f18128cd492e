//! What the runner tells: the task as every plugin gets it, and the key `worker` for this program; and what the service is asked with. Pure.

use std::collections::BTreeMap;

use disbatch_adapter::sections::{Http, HttpEngine};
use disbatch_adapter::{Callback, Worker};
use reqwest::Url;
use reqwest::header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::{check_host, check_host_of_task};

#[derive(Deserialize)]
pub struct RequestInput {
    #[serde(rename = "_id", default)]
    id: Value,
    #[serde(default)]
    params: Value,
    #[serde(default)]
    parameters: Value,
    /// What is not to be shown, if there is any.
    pub secure_params: Option<Map<String, Value>>,
    #[serde(default)]
    storage: Value,
    pub worker: Worker<Http, HttpEngine>,
    callback: Option<Callback>,
}

impl RequestInput {
    /// Reads the line. An error shows nothing of what is in it.
    pub fn parse(line: &str) -> Result<Self, String> {
        serde_json::from_str(line).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            format!("this is not the task of a web service: wrong at line {line}, column {column}")
        })
    }

    /// The hosts that may be asked on this node. Without such a list those that plugins name, and none that tasks name.
    pub fn allowed(&self) -> Option<&[String]> {
        self.worker.engine_config.as_ref()?.allow.as_deref()
    }

    pub fn params(&self) -> &Value {
        // Tasks from before Disbatch 4 have the older name.
        if self.params.is_null() { &self.parameters } else { &self.params }
    }

    pub fn id(&self) -> Option<&str> {
        self.worker.variable("RUN_ID").or_else(|| self.id.get("$oid").and_then(Value::as_str))
    }

    pub fn storage(&self) -> Value {
        if !self.storage.is_null() {
            return self.storage.clone();
        }
        let text = self.worker.variable("JOB_STORAGE").unwrap_or("null");
        serde_json::from_str(text).unwrap_or_default()
    }

    pub fn callback(&self) -> Result<&Callback, String> {
        self.callback.as_ref().or(self.worker.callback.as_ref()).ok_or_else(|| {
            "the web service could not call back: engines.http.callback_url of this node's configuration is not set"
                .to_owned()
        })
    }
}

/// The parameters of a task that say how its service is asked.
const URL: &str = "url";
const HEADERS: &str = "httpHeaders";

/// The headers of a trace, and the variables that have them.
const TRACE: [(&str, &str); 3] =
    [("traceparent", "TRACEPARENT"), ("tracestate", "TRACESTATE"), ("baggage", "BAGGAGE")];

const NOT_TO_BE_SET: [&str; 6] =
    ["host", "content-length", "transfer-encoding", "connection", "upgrade", "expect"];

pub struct Request {
    pub url: Url,
    pub headers: HeaderMap,
    pub body: String,
}

impl Request {
    /// The request for a task. There is none that the node does not allow. An error shows no values.
    pub fn of(told: &RequestInput) -> Result<Self, String> {
        let (settings, url) = (&told.worker.settings, url(told)?);
        match settings.url {
            Some(_) => check_host(&url, told.allowed())?,
            None => check_host_of_task(&url, told.allowed(), !settings.headers.is_empty())?,
        }
        Ok(Self { url, headers: headers(told)?, body: body(told)?.to_string() })
    }
}

/// Where the service is, as the plugin's manifest says, or else whoever has submitted the task.
fn url(told: &RequestInput) -> Result<Url, String> {
    let (place, text) = match (&told.worker.settings.url, told.params().get(URL)) {
        (Some(url), _) => ("http.url of the plugin", filled(url, &told.worker.secrets)?),
        (None, Some(Value::String(url))) => ("params.url", url.clone()),
        (None, Some(_)) => return Err("params.url must be text".to_owned()),
        (None, None) => {
            return Err(
                "neither the plugin's manifest nor params.url says where the web service is".to_owned()
            );
        }
    };
    let url = text.parse::<Url>().map_err(|error| format!("{place} is no address: {error}"))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(format!("{place} must be an address with http:// or https://"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(format!("{place} has a password: it belongs into a header"));
    }
    Ok(url)
}

/// Those of the plugin, then those of the task.
fn headers(told: &RequestInput) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    for (name, value) in &told.worker.settings.headers {
        let value = filled(value, &told.worker.secrets)?;
        add(&mut headers, "http.headers of the plugin", name, &value)?;
    }
    match told.params().get(HEADERS) {
        None | Some(Value::Null) => {}
        Some(Value::Object(of_task)) => {
            for (name, value) in of_task {
                let Value::String(value) = value else {
                    return Err(format!("params.{HEADERS}: {name:?} must be text"));
                };
                add(&mut headers, "params.httpHeaders", name, value)?;
            }
        }
        Some(_) => return Err(format!("params.{HEADERS} must be an object of text")),
    }
    // Whoever names another trace means that one alone: a state of this one would be none of it.
    if TRACE.iter().all(|(name, _)| !headers.contains_key(*name)) {
        for (name, variable) in TRACE {
            let value = told.worker.variable(variable).and_then(|value| HeaderValue::from_str(value).ok());
            headers.extend(value.map(|value| (HeaderName::from_static(name), value)));
        }
    }
    Ok(headers)
}

fn add(headers: &mut HeaderMap, place: &str, name: &str, value: &str) -> Result<(), String> {
    let header =
        name.parse::<HeaderName>().map_err(|_| format!("{place}: {name:?} is no name of a header"))?;
    if NOT_TO_BE_SET.contains(&header.as_str()) {
        return Err(format!("{place}: {name:?} cannot be set"));
    }
    let mut value = HeaderValue::from_str(value)
        .map_err(|_| format!("{place}: the value of {name:?} cannot be one of a header"))?;
    value.set_sensitive(true);
    headers.insert(header, value);
    Ok(())
}

/// `text` with the values of the plugin's secrets in the place of `{{secret:NAME}}`.
fn filled(text: &str, secrets: &BTreeMap<String, String>) -> Result<String, String> {
    let (mut out, mut rest) = (String::new(), text);
    while let Some((before, after)) = rest.split_once("{{secret:") {
        let Some((name, behind)) = after.split_once("}}") else { break };
        let secret = secrets.get(name.trim());
        let secret = secret.ok_or_else(|| format!("the plugin has no secret '{}'", name.trim()))?;
        out.push_str(before);
        out.push_str(secret);
        rest = behind;
    }
    out.push_str(rest);
    Ok(out)
}

fn body(told: &RequestInput) -> Result<Value, String> {
    let callback = told.callback()?;
    let url = callback.url.trim_end_matches('/');
    let of = |what: &str| format!("{url}/{what}");
    let number = |name: &str| told.worker.variable(name).and_then(|text| text.parse::<i64>().ok());
    let mut body = json!({
        "runId": told.id(),
        "jobId": told.worker.variable("JOB_ID"),
        "tenant": told.worker.variable("TENANT_ID"),
        "attempt": number("DISBATCH_ATTEMPT"),
        "job": job(told.params()),
        "storage": told.storage(),
        "callbacks": { "log": of("log"), "status": of("status"), "job_storage": of("job_storage") },
        "token": callback.token,
        "lastSuccessStart": told.worker.variable("LAST_SUCCESS_START"),
        "lastSuccessFinish": told.worker.variable("LAST_SUCCESS_FINISH"),
    });
    if let Some(secure) = told.secure_params.as_ref().filter(|secure| !secure.is_empty()) {
        body["secureParams"] = Value::Object(secure.clone());
    }
    Ok(body)
}

/// The task's parameters, without the headers, which the service has got by then.
fn job(params: &Value) -> Value {
    match params {
        Value::Object(params) => {
            let others = params.iter().filter(|(name, _)| *name != HEADERS);
            Value::Object(others.map(|(name, value)| (name.clone(), value.clone())).collect())
        }
        Value::Null => Value::Object(Map::new()),
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn parsed(task: &Value) -> RequestInput {
        RequestInput::parse(&task.to_string()).unwrap()
    }

    #[test]
    fn what_is_left_out_is_not_there() {
        let bare = parsed(&json!({ "_id": { "$oid": "a" }, "worker": {} }));
        assert_eq!((bare.id(), bare.params(), bare.storage()), (Some("a"), &Value::Null, Value::Null));
        assert_eq!(bare.worker.settings.connect_retries, 5);
        assert!(bare.callback().err().unwrap().contains("engines.http.callback_url"));
    }

    #[test]
    fn variables_and_fields_are_found_where_they_are() {
        let variables = json!({ "RUN_ID": "r", "TENANT_ID": "", "JOB_STORAGE": "{\"n\":1}" });
        let callback = json!({ "token": "t", "url": "https://dci.example/callbacks/r" });
        let told = parsed(&json!({
            "_id": { "$oid": "a" }, "parameters": { "x": 1 }, "worker": { "variables": variables },
            "callback": callback,
        }));
        assert_eq!((told.id(), told.worker.variable("TENANT_ID")), (Some("r"), None));
        assert_eq!((told.params(), told.storage()), (&json!({ "x": 1 }), json!({ "n": 1 })));
        assert_eq!(told.callback().unwrap().token.as_deref(), Some("t"));
    }

    #[test]
    fn what_is_no_task_is_refused_without_showing_it() {
        let error = RequestInput::parse(r#"{"worker":{"secrets":{"A":5,"B":"horse"}}}"#).err().unwrap();
        assert!(error.starts_with("this is not the task of a web service") && !error.contains("horse"));
    }

    fn told(task: Value) -> RequestInput {
        let mut whole = json!({
            "_id": { "$oid": "6b0003bb686c8275d8013333" },
            "worker": { "settings": { "url": "https://jobs.example/start" }, "variables": {} },
            "callback": { "token": "secret-token", "url": "https://dci.example/callbacks/6b0003bb686c8275d8013333" },
        });
        for (key, value) in task.as_object().unwrap() {
            let place = match key.as_str() {
                "settings" | "variables" | "secrets" | "engine_config" => &mut whole["worker"][key],
                _ => &mut whole[key],
            };
            *place = value.clone();
        }
        RequestInput::parse(&whole.to_string()).unwrap()
    }

    #[test]
    fn a_service_gets_the_trace_unless_the_task_names_another() {
        let variables = json!({ "TRACEPARENT": "00-aa-bb-01", "TRACESTATE": "a=1", "BAGGAGE": "user=ann" });
        let of = |params: Value| {
            let request =
                Request::of(&told(json!({ "variables": variables, "params": params }))).ok().unwrap();
            ["traceparent", "tracestate", "baggage"].map(|name| {
                request.headers.get(name).map(|value| value.to_str().unwrap().to_owned()).unwrap_or_default()
            })
        };
        assert_eq!(of(json!({})), ["00-aa-bb-01", "a=1", "user=ann"]);
        assert_eq!(of(json!({ "httpHeaders": { "Traceparent": "00-cc-dd-00" } })), ["00-cc-dd-00", "", ""]);
    }

    fn refused(task: Value) -> String {
        Request::of(&told(task)).err().unwrap()
    }

    #[test]
    fn the_service_is_told_what_there_is_to_know() {
        let variables = json!({
            "RUN_ID": "r", "JOB_ID": "j", "TENANT_ID": "acme", "DISBATCH_ATTEMPT": "2", "LAST_SUCCESS_START": "s",
            "LAST_SUCCESS_FINISH": "",
        });
        let params = json!({ "rows": 3, "httpHeaders": { "X-A": "b" } });
        let request = Request::of(&told(json!({
            "variables": variables, "params": params, "storage": { "n": 1 }, "secure_params": { "p": "horse" },
        })));
        let request = request.ok().unwrap();
        let body: Value = serde_json::from_str(&request.body).unwrap();
        let base = "https://dci.example/callbacks/6b0003bb686c8275d8013333";
        assert_eq!(
            body,
            json!({
                "runId": "r", "jobId": "j", "tenant": "acme", "attempt": 2, "job": { "rows": 3 },
                "secureParams": { "p": "horse" }, "storage": { "n": 1 }, "token": "secret-token",
                "callbacks": {
                    "log": format!("{base}/log"), "status": format!("{base}/status"),
                    "job_storage": format!("{base}/job_storage"),
                },
                "lastSuccessStart": "s", "lastSuccessFinish": null,
            })
        );
        assert_eq!(request.headers["x-a"], "b");
        assert_eq!(request.headers["content-type"], "application/json");
        let bare = Request::of(&told(json!({}))).ok().unwrap();
        let body: Value = serde_json::from_str(&bare.body).unwrap();
        assert_eq!((&body["job"], body.get("secureParams")), (&json!({}), None));
        assert_eq!(body["runId"], "6b0003bb686c8275d8013333");
    }

    #[test]
    fn the_manifest_says_where_and_else_the_task() {
        let of = |task: Value| Request::of(&told(task)).ok().unwrap().url.to_string();
        let elsewhere = json!({ "url": "http://elsewhere.example/" });
        assert_eq!(of(json!({ "params": elsewhere.clone() })), "https://jobs.example/start");
        let allow = json!({ "allow": ["elsewhere.example"] });
        let task = json!({ "settings": {}, "params": elsewhere, "engine_config": allow });
        assert_eq!(of(task), "http://elsewhere.example/");
        assert!(
            refused(json!({ "settings": {} })).starts_with("neither the plugin's manifest nor params.url")
        );
        for (url, message) in [
            (json!("ftp://x"), "params.url must be an address with http"),
            (json!("/x"), "params.url is no address"),
            (json!("http://u:p@x"), "params.url has a password"),
            (json!(5), "params.url must be text"),
        ] {
            let error = refused(json!({ "settings": {}, "params": { "url": url } }));
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[test]
    fn what_the_plugin_has_for_its_service_is_sent_to_no_address_of_a_task() {
        let of = |engine_config: Value, headers: Value| {
            let task = json!({
                "settings": { "headers": headers }, "secrets": { "KEY": "k" }, "engine_config": engine_config,
                "params": { "url": "https://evil.example/", "httpHeaders": { "X-A": "mine" } },
            });
            Request::of(&told(task)).map(|request| request.headers)
        };
        let secret = json!({ "Authorization": "Bearer {{secret:KEY}}" });
        for headers in [secret.clone(), json!({ "Authorization": "Bearer in-the-clear" })] {
            for engine_config in [json!({}), json!({ "allow": ["*"] }), json!({ "allow": ["jobs.example"] })]
            {
                let error = of(engine_config, headers.clone()).err().unwrap();
                assert!(error.contains("engines.http.allow") && !error.contains("Bearer"), "{error}");
            }
        }
        // Nor is an address asked that only the task has, unless the node allows it.
        assert!(of(json!({}), json!({})).err().unwrap().contains("engines.http.allow"));
        assert_eq!(of(json!({ "allow": ["*"] }), json!({})).ok().unwrap()["x-a"], "mine");
        let named = of(json!({ "allow": ["evil.example"] }), secret).ok().unwrap();
        assert_eq!(named["authorization"], "Bearer k", "who runs the node knows the host");
    }

    #[test]
    fn headers_of_the_task_come_last_and_secrets_are_the_plugins() {
        let settings = json!({
            "url": "http://x", "headers": { "Authorization": "Bearer {{secret:KEY}}", "X-A": "a" },
        });
        let task = json!({
            "settings": settings, "secrets": { "KEY": "k" },
            "params": { "httpHeaders": { "x-a": "{{secret:KEY}}" } },
        });
        let request = Request::of(&told(task)).ok().unwrap();
        assert_eq!(request.headers["authorization"], "Bearer k");
        assert_eq!(request.headers["x-a"], "{{secret:KEY}}", "a task cannot ask for secrets");
        let error = refused(json!({ "settings": settings }));
        assert_eq!(error, "the plugin has no secret 'KEY'");
        for (headers, message) in [
            (json!({ "Host": "x" }), "params.httpHeaders: \"Host\" cannot be set"),
            (json!({ "a b": "x" }), "params.httpHeaders: \"a b\" is no name of a header"),
            (json!({ "a": "x\ny" }), "params.httpHeaders: the value of \"a\" cannot be one of a header"),
            (json!({ "a": 5 }), "params.httpHeaders: \"a\" must be text"),
            (json!(["a"]), "params.httpHeaders must be an object of text"),
        ] {
            assert_eq!(refused(json!({ "params": { "httpHeaders": headers } })), message);
        }
    }

    #[test]
    fn what_only_looks_like_a_secret_stays() {
        let secrets = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
        assert_eq!(filled("{{secret:A}}-{{secret: A }}", &secrets), Ok("1-1".to_owned()));
        assert_eq!(filled("{{x}} {{secret:A", &secrets), Ok("{{x}} {{secret:A".to_owned()));
        assert!(filled("{{secret:B}}", &secrets).is_err());
    }
}
