//! `GET /balance` for people: the switches of `QueueBalance` and its document.

use actix_web::http::StatusCode;
use askama::Template;
use serde_json::{Map, Value};

use crate::api::get_balance;
use crate::json;
use crate::state::State;
use crate::ui::{self, Rendered};

#[derive(Template)]
#[template(path = "balance.html")]
struct BalancePage {
    settings: Vec<(String, bool)>,
    notice: Option<String>,
    known_queues: Vec<String>,
    document: String,
}

/// The page.
///
/// # Errors
/// The database cannot be reached.
pub async fn render(state: &State) -> Rendered {
    ui::render(StatusCode::OK, &page(get_balance::find(state).await?))
}

fn page(mut shown: Map<String, Value>) -> BalancePage {
    let mut take = |key: &str| shown.remove(key).unwrap_or_default();
    let settings = take("settings");
    let switches = settings.as_object().into_iter().flatten();
    let known = take("known_queues");
    let names = known.as_array().into_iter().flatten();
    BalancePage {
        settings: switches.map(|(name, on)| (name.clone(), on == &Value::Bool(true))).collect(),
        notice: take("notice").as_str().map(str::to_owned),
        known_queues: names.filter_map(Value::as_str).map(str::to_owned).collect(),
        document: json::pretty(&Value::Object(shown)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_page_shows_switches_queues_and_document() {
        let shown = json!({"settings": {"enabled": true, "log": false}, "known_queues": ["<q>"],
            "max_tasks": {"* 07:00": 5}});
        let html = page(shown.as_object().unwrap().clone()).render().unwrap();
        for part in ["enabled", "on", "off", "&#60;q&#62;", "* 07:00"] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        let nothing = page(json!({"notice": "not found"}).as_object().unwrap().clone()).render().unwrap();
        assert!(nothing.contains("not found") && nothing.contains("There are no queues yet."), "{nothing}");
    }
}
