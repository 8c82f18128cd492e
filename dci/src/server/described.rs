//! Every route is described, and every description is of a route.

use std::collections::BTreeSet;

use actix_web::http::Method;
use actix_web::{App, HttpResponse, test as server, web};

use disbatch_core::config::{Config, Role};
use disbatch_core::store::Store;

use super::all_routes;
use crate::openapi::description;
use crate::state::State;

const METHODS: [Method; 5] = [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

type Route = (String, String);

fn described() -> BTreeSet<Route> {
    let paths = description()["paths"].as_object().unwrap();
    let of_path = |(path, operations): (&String, &serde_json::Value)| -> Vec<Route> {
        operations.as_object().unwrap().keys().map(|method| (path.clone(), method.to_uppercase())).collect()
    };
    paths.iter().flat_map(of_path).collect()
}

/// The patterns in the sources: each text that starts with a slash and that a function gets first.
fn patterns() -> Vec<String> {
    let sources = [include_str!("../server.rs"), include_str!("extensions.rs")];
    let mut found = Vec::new();
    for text in sources.map(|text| text.split_whitespace().collect::<String>()) {
        let by_pattern = text.matches("web::resource(path)").count();
        assert_eq!(text.matches("web::resource(").count(), by_pattern, "add routes with resource()");
        assert!(!text.contains("web::scope("), "there are routes that this test does not see");
        let calls = text.split("(\"/").skip(1).filter_map(|rest| rest.split_once('"'));
        found.extend(calls.map(|(pattern, _)| format!("/{pattern}")));
    }
    found
}

/// `/a/{b:.+}` with `parameter` in place of the part in braces, which may have braces inside.
fn filled(pattern: &str, parameter: impl Fn(&str) -> String) -> String {
    let (mut out, mut inner, mut depth) = (String::new(), String::new(), 0);
    for c in pattern.chars() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            _ => {} // Part of the text or of the parameter.
        }
        match (c, depth) {
            ('{', 1) => inner.clear(),
            ('}', 0) => out.push_str(&parameter(inner.split(':').next().unwrap_or_default())),
            (c, 0) => out.push(c),
            (c, _) => inner.push(c),
        }
    }
    out
}

/// What the server has a handler for. Handlers fail here, as there is no state for them.
async fn served() -> BTreeSet<Route> {
    let state = state().await;
    let app = App::new().configure(|app| all_routes(app, &state));
    let app = server::init_service(app.default_service(web::to(HttpResponse::NotFound))).await;
    let patterns = patterns();
    assert!(patterns.len() > 20, "routes are added in another way: {patterns:?}");
    let mut served = BTreeSet::new();
    for pattern in patterns {
        let sample = |name: &str| match name {
            "id" => "6b0003bb686c8275d8013333".to_owned(),
            "asset" => "app.css".to_owned(),
            _ => "sample".to_owned(),
        };
        let address = filled(&pattern, sample);
        for method in METHODS {
            let request = server::TestRequest::with_uri(&address).method(method.clone()).to_request();
            let status = server::call_service(&app, request).await.status();
            let route = (filled(&pattern, |name| format!("{{{name}}}")), method.to_string());
            if status != 404 && status != 405 && !is_other(&route) {
                served.insert(route);
            }
        }
    }
    served
}

/// A state with all web extensions, for a database that is not there.
async fn state() -> State {
    let extensions = ["Disbatch::Web::Tasks", "Disbatch::Web::V3"];
    let config = serde_json::json!({
        "mongohost": "mongodb://127.0.0.1:1", "database": "x", "plugins": [], "web_extensions": extensions,
    });
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("config.json");
    std::fs::write(&path, config.to_string()).unwrap();
    let config = Config::load(&path).unwrap();
    let store = Store::connect(&config, Role::DisbatchWeb).await.unwrap();
    State::new(&config, store)
}

/// A task's address may also be that of a queue, by id, and what follows the name of a collection.
fn is_other((path, method): &Route) -> bool {
    let read = ["", "/attempts", "/explain", "/stdout", "/stderr", "/events", "/wait"];
    path.strip_prefix("/tasks/{id}").is_some_and(|rest| read.contains(&rest)) && method == "POST"
}

#[actix_web::test]
async fn what_is_served_is_what_is_described() {
    let (served, described) = (served().await, described());
    let missing: Vec<_> = served.difference(&described).collect();
    assert!(missing.is_empty(), "add #[utoipa::path] and list it in openapi.rs: {missing:?}");
    let stale: Vec<_> = described.difference(&served).collect();
    assert!(stale.is_empty(), "described, but not served: {stale:?}");
}

#[test]
fn parameters_are_found_in_patterns() {
    let named = |pattern| filled(pattern, |name| format!("<{name}>"));
    assert_eq!(named("/tasks/{id:[0-9a-f]{24}}"), "/tasks/<id>");
    assert_eq!(named("/tasks/{queue}/{collection:.+}"), "/tasks/<queue>/<collection>");
    assert_eq!(named("/tasks"), "/tasks");
}
