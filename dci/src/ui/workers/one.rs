//! `GET /workers/:name` for people: what was defined, and a form to change it.

use actix_web::http::StatusCode;
use askama::Template;
use disbatch_core::accounts::Role;
use serde_json::Value;

use super::{Place, nodes_by_plugin, place, pretty};
use crate::access::{Who, viewer};
use crate::api::workers::{delete, find, view};
use crate::state::State;
use crate::ui::node_state::Now;
use crate::ui::parts::When;
use crate::ui::schema::{Form, Row};
use crate::ui::{self, Rendered, text};

#[derive(Template)]
#[template(path = "worker.html")]
struct WorkerPage {
    name: String,
    /// Its address.
    place: String,
    engine: String,
    description: String,
    version: String,
    runs: String,
    problem: String,
    /// The definition as JSON, as far as the page's reader may see it.
    definition: String,
    rev: i64,
    at: When,
    by: String,
    nodes: Vec<Place>,
    queues: Vec<String>,
    /// None: the definition does not describe them.
    params: Option<Vec<Row>>,
    /// Whether the page's reader may change it.
    administers: bool,
}

/// The page.
pub async fn render(state: &State, who: &Who, name: &str) -> Rendered {
    let (worker, store) = (find(state, name).await?, &state.store);
    let (nodes, server) = futures::try_join!(store.list_nodes(), store.server_time())?;
    let mut on = nodes_by_plugin(&nodes, &Now { server, host: store.now() });
    let manifest = worker.manifest().ok();
    let schema = manifest.as_ref().and_then(|manifest| manifest.params.as_ref());
    let params = schema.map(|schema| Form::of(schema).rows());
    let seen = view(&worker, who);
    let page = WorkerPage {
        nodes: on.remove(worker.name.as_str()).unwrap_or_default(),
        queues: delete::queues_of(state, &worker.name).await?,
        administers: viewer::may(Role::Admin),
        place: place(&worker.name),
        at: worker.at.map(When::at).unwrap_or_default(),
        params,
        ..page(&seen)
    };
    ui::render(StatusCode::OK, &page)
}

/// What is seen of a worker, and nothing around it.
fn page(seen: &Value) -> WorkerPage {
    let field = |name: &str| text(seen.get(name));
    WorkerPage {
        name: field("name"),
        place: String::new(),
        engine: field("engine"),
        description: field("description"),
        version: field("version"),
        runs: field("runs"),
        problem: field("problem"),
        definition: pretty(seen.get("definition").unwrap_or(&Value::Null)),
        rev: seen.get("rev").and_then(Value::as_i64).unwrap_or_default(),
        at: When::default(),
        by: field("by"),
        nodes: Vec::new(),
        queues: Vec::new(),
        params: None,
        administers: false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn shown(administers: bool) -> String {
        let seen = json!({
            "name": "My::Report", "engine": "http", "description": "<b>", "version": "", "runs": "https://x/",
            "problem": null, "definition": { "engine": "http", "http": { "url": "</textarea>" } }, "rev": 3, "by": "<ann>",
        });
        let page = WorkerPage {
            place: "/workers/My%3A%3AReport".to_owned(),
            queues: vec!["<mail>".to_owned()],
            administers,
            ..page(&seen)
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
