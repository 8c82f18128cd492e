//! Every route is described, and every description is of a route; and docs/security.md has what each needs.

use std::cell::RefCell;
use std::collections::BTreeSet;

use actix_web::{App, test as server};
use disbatch_core::config::{Config, Role};
use disbatch_core::store::Store;

use crate::access::Door;
use crate::openapi::description;
use crate::options::plain;
use crate::server::all_routes;
use crate::server::route::Declared;
use crate::state::State;

type Route = (String, String);

const TABLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/security.md");
const BEGIN: &str = "<!-- routes -->\n";
const END: &str = "<!-- /routes -->";

fn described() -> BTreeSet<Route> {
    let paths = description()["paths"].as_object().unwrap();
    let of_path = |(path, operations): (&String, &serde_json::Value)| -> Vec<Route> {
        operations.as_object().unwrap().keys().map(|method| (path.clone(), method.to_uppercase())).collect()
    };
    paths.iter().flat_map(of_path).collect()
}

/// All routes with all web extensions, as they are declared when a server starts.
async fn declared() -> Vec<Declared> {
    let extensions = ["Disbatch::Web::Tasks", "Disbatch::Web::V3"];
    let config = serde_json::json!({
        "mongohost": "mongodb://127.0.0.1:1", "database": "x", "plugins": [], "web_extensions": extensions,
    });
    let config = Config::parse(&config.to_string(), std::path::Path::new("/c.json")).unwrap();
    let store = Store::connect(&config, Role::DisbatchWeb).await.unwrap();
    let state = State::new(&config, store, Door::Open);
    let declared = RefCell::new(Vec::new());
    let app = App::new().configure(|app| *declared.borrow_mut() = all_routes(app, &state));
    let _app = server::init_service(app).await;
    declared.into_inner()
}

#[actix_web::test]
async fn what_is_served_is_what_is_described() {
    let declared = declared().await;
    assert!(declared.len() > 60, "{declared:?}");
    let served: BTreeSet<Route> =
        declared.iter().map(|route| (plain(route.path), route.verb.name().to_owned())).collect();
    let described = described();
    let missing: Vec<_> = served.difference(&described).collect();
    assert!(missing.is_empty(), "add #[utoipa::path] and list it in openapi.rs: {missing:?}");
    let stale: Vec<_> = described.difference(&served).collect();
    assert!(stale.is_empty(), "described, but not served: {stale:?}");
}

/// Another test goes through this table with every role.
#[actix_web::test]
async fn the_documented_needs_are_those_of_the_routes() {
    let mut rows: Vec<String> = declared()
        .await
        .iter()
        .map(|route| format!("| `{} {}` | {} |\n", route.verb.name(), plain(route.path), route.need))
        .collect();
    rows.sort_by_key(|row| row.split_once('/').map(|(_, path)| path.to_owned()));
    let table = format!("| route | needs |\n| --- | --- |\n{}", rows.concat());
    let text = std::fs::read_to_string(TABLE).unwrap();
    let (head, rest) = text.split_once(BEGIN).unwrap();
    let (documented, tail) = rest.split_once(END).unwrap();
    if std::env::var_os("DISBATCH_RENEW").is_some() {
        std::fs::write(TABLE, format!("{head}{BEGIN}{table}{END}{tail}")).unwrap();
        return;
    }
    assert_eq!(documented, table, "run this test with DISBATCH_RENEW=1, and read the difference");
}
