//! `GET /workers` for people: the plugins that the database defines; and `GET /workers/:name`: what was defined, and a form to
//! change it.

use std::collections::{BTreeMap, BTreeSet};

use actix_web::http::StatusCode;
use askama::Template;
use bson::{Bson, Document};
use disbatch_core::accounts::Role;
use disbatch_core::definitions as core;
use disbatch_core::model::PluginName;
use disbatch_wire::definitions::Definition;

use crate::access::{Who, viewer};
use crate::api::definitions::{find, queues_of, view};
use crate::state::State;
use crate::ui::bulk::encoded;
use crate::ui::node_state::{NodeState, Now};
use crate::ui::parts::When;
use crate::ui::schema::Form;
use crate::ui::{self, Rendered, node_row, plain, schema};

/// What the field for a new definition has at first.
const EXAMPLE: &str = r#"{
   "engine": "http",
   "description": "",
   "http": { "url": "https://" }
}"#;

#[derive(Template)]
#[template(path = "definitions.html")]
struct DefinitionsPage {
    rows: Vec<Row>,
    /// Whether the page's reader may change them.
    administers: bool,
    example: &'static str,
}

/// A definition as a row of the table.
struct Row {
    seen: Definition,
    /// Its address.
    place: String,
    /// The nodes that can run it.
    nodes: Vec<Place>,
    at: When,
}

/// A node.
#[derive(Clone)]
struct Place {
    name: String,
    address: Option<String>,
}

/// The page of a worker.
pub fn place(name: &PluginName) -> String {
    format!("/workers/{}", encoded(name.as_str()))
}

pub async fn render(state: &State, who: &Who) -> Rendered {
    let store = &state.store;
    let (workers, nodes, server) =
        futures::try_join!(store.workers(), store.list_nodes(), store.server_time())?;
    let on = nodes_by_plugin(&nodes, &Now { server, host: store.now() });
    let row = |stored: &core::Definition| Row::of(stored, who, on.get(stored.name.as_str()));
    let page = DefinitionsPage {
        rows: workers.iter().map(row).collect(),
        administers: viewer::may(Role::Admin),
        example: EXAMPLE,
    };
    ui::render(StatusCode::OK, &page)
}

impl Row {
    fn of(stored: &core::Definition, who: &Who, nodes: Option<&Vec<Place>>) -> Self {
        Self {
            seen: view(stored, who),
            place: place(&stored.name),
            nodes: nodes.cloned().unwrap_or_default(),
            at: stored.at.map(When::at).unwrap_or_default(),
        }
    }
}

/// The nodes that are there and say that they have a plugin, by its name.
fn nodes_by_plugin(nodes: &[Document], now: &Now) -> BTreeMap<String, Vec<Place>> {
    let mut on: BTreeMap<String, Vec<Place>> = BTreeMap::new();
    for node in nodes.iter().filter(|node| NodeState::of(node, now).is_up()) {
        let plugins = node.get("plugins").and_then(Bson::as_array);
        let plugins: BTreeSet<&str> = plugins.into_iter().flatten().filter_map(Bson::as_str).collect();
        for plugin in plugins {
            let place = Place { name: plain(node.get("node")), address: node_row::place(node) };
            on.entry(plugin.to_owned()).or_default().push(place);
        }
    }
    on
}

#[derive(Template)]
#[template(path = "definition.html")]
struct DefinitionPage {
    /// As far as the page's reader may see it.
    seen: Definition,
    /// Its address.
    place: String,
    at: When,
    nodes: Vec<Place>,
    queues: Vec<String>,
    /// None: the definition does not describe them.
    params: Option<Vec<schema::Row>>,
    /// Whether the page's reader may change it.
    administers: bool,
}

pub async fn render_one(state: &State, who: &Who, name: &str) -> Rendered {
    let (stored, store) = (find(state, name).await?, &state.store);
    let (nodes, server) = futures::try_join!(store.list_nodes(), store.server_time())?;
    let mut on = nodes_by_plugin(&nodes, &Now { server, host: store.now() });
    let manifest = stored.manifest().ok();
    let params = manifest.as_ref().and_then(|manifest| manifest.params.as_ref());
    let page = DefinitionPage {
        seen: view(&stored, who),
        place: place(&stored.name),
        at: stored.at.map(When::at).unwrap_or_default(),
        nodes: on.remove(stored.name.as_str()).unwrap_or_default(),
        queues: queues_of(state, &stored.name).await?,
        params: params.map(|params| Form::of(params).rows()),
        administers: viewer::may(Role::Admin),
    };
    ui::render(StatusCode::OK, &page)
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use serde_json::json;

    use super::*;

    fn page(administers: bool) -> String {
        let who = Who::anybody("10.0.0.1".to_owned());
        let worker = core::Definition::read(doc! {
            "_id": "My::Report", "engine": "http", "description": "<b>", "http": { "url": "https://x/" }, "by": "<ann>",
        });
        let wrong = core::Definition::read(doc! { "_id": "Wrong", "command": ["sh"] });
        let node = Place { name: "<vm>".to_owned(), address: Some("/nodes/vm".to_owned()) };
        let rows = [Row::of(&worker.unwrap(), &who, Some(&vec![node])), Row::of(&wrong.unwrap(), &who, None)];
        DefinitionsPage { rows: rows.into(), administers, example: EXAMPLE }.render().unwrap()
    }

    #[test]
    fn each_worker_says_what_it_runs_and_where() {
        let html = page(true);
        for part in [
            "href=\"/workers/My%3A%3AReport\"",
            "https://x/",
            "&#60;b&#62;",
            "&#60;ann&#62;",
            "&#60;vm&#62;</a>",
            "engine: exec runs a program of the node",
            "No node can run it.",
            "New worker",
            "action=\"/workers\"",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<vm>") && !html.contains(" style="), "{html}");
        assert!(!page(false).contains("New worker"));
        let none = DefinitionsPage { rows: vec![], administers: true, example: EXAMPLE }.render().unwrap();
        assert!(none.contains("There are no workers yet."));
    }

    fn shown(administers: bool) -> String {
        let seen = json!({
            "name": "My::Report", "engine": "http", "description": "<b>", "version": "", "runs": "https://x/",
            "problem": null, "definition": { "engine": "http", "http": { "url": "</textarea>" } }, "rev": 3, "by": "<ann>",
        });
        let page = DefinitionPage {
            seen: serde_json::from_value(seen).unwrap(),
            place: "/workers/My%3A%3AReport".to_owned(),
            at: When::default(),
            nodes: Vec::new(),
            queues: vec!["<mail>".to_owned()],
            params: None,
            administers,
        };
        page.render().unwrap()
    }

    #[test]
    fn the_definition_is_in_a_form_for_those_who_may_change_it() {
        let html = shown(true);
        for part in [
            "action=\"/ui/workers/My%3A%3AReport\"",
            "name=\".rev\" value=\"3\"",
            "&#60;/textarea&#62;",
            "action=\"/ui/workers/My%3A%3AReport/delete\"",
            "&#60;mail&#62;",
            "No node can run it.",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<mail>") && !html.contains(" style="), "{html}");
        let viewers = shown(false);
        assert!(!viewers.contains("<textarea") && !viewers.contains("/delete\""), "{viewers}");
        assert!(viewers.contains("&#60;/textarea&#62;"), "{viewers}");
    }
}
