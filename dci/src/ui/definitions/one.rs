//! `GET /workers/:name` for people: what was defined, and a form to change it.

use actix_web::http::StatusCode;
use askama::Template;
use disbatch_core::accounts::Role;
use disbatch_wire::definitions::Definition;

use super::{Place, nodes_by_plugin, place};
use crate::access::{Who, viewer};
use crate::api::definitions::{find, queues_of, view};
use crate::state::State;
use crate::ui::node_state::Now;
use crate::ui::parts::When;
use crate::ui::schema::{Form, Row};
use crate::ui::{self, Rendered};

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
    params: Option<Vec<Row>>,
    /// Whether the page's reader may change it.
    administers: bool,
}

/// The page.
pub async fn render(state: &State, who: &Who, name: &str) -> Rendered {
    let (stored, store) = (find(state, name).await?, &state.store);
    let (nodes, server) = futures::try_join!(store.list_nodes(), store.server_time())?;
    let mut on = nodes_by_plugin(&nodes, &Now { server, host: store.now() });
    let manifest = stored.manifest().ok();
    let schema = manifest.as_ref().and_then(|manifest| manifest.params.as_ref());
    let page = DefinitionPage {
        seen: view(&stored, who),
        place: place(&stored.name),
        at: stored.at.map(When::at).unwrap_or_default(),
        nodes: on.remove(stored.name.as_str()).unwrap_or_default(),
        queues: queues_of(state, &stored.name).await?,
        params: schema.map(|schema| Form::of(schema).rows()),
        administers: viewer::may(Role::Admin),
    };
    ui::render(StatusCode::OK, &page)
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
