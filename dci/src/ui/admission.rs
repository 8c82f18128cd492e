//! `GET /admission` for people: whose tasks are taken at the moment, and whether it is safe to upgrade.

use actix_web::http::StatusCode;
use askama::Template;
use disbatch_core::accounts::Role;
use disbatch_core::admission::{Action, Scope};
use disbatch_wire::admission::AdmissionRule;

use crate::access::{Who, viewer};
use crate::admission::{self, Shown};
use crate::state::State;
use crate::ui::parts::{Pill, When};
use crate::ui::{self, Rendered};

#[derive(Template)]
#[template(path = "admission.html")]
struct AdmissionPage {
    rows: Vec<Row>,
    /// Whether the page's reader may make rules for something.
    operates: bool,
}

/// A rule as a row of the table.
struct Row {
    seen: AdmissionRule,
    /// What it is about, for people.
    place: String,
    /// The address of its queue.
    address: Option<String>,
    action: Pill,
    at: When,
}

/// The page.
pub async fn render(state: &State, who: &Who) -> Rendered {
    let rules = admission::shown(state, who).await?;
    let page = AdmissionPage {
        rows: rules.iter().map(Row::of).collect(),
        operates: viewer::may_somewhere(Role::Operator),
    };
    ui::render(StatusCode::OK, &page)
}

impl Row {
    fn of(shown: &Shown) -> Self {
        let rule = &shown.rule;
        let (place, address) = match &rule.scope {
            Scope::All => ("All tasks".to_owned(), None),
            Scope::Queue(queue) => match &shown.name {
                Some(name) => (format!("Queue {name}"), Some(format!("/queues/{queue}"))),
                None => (format!("Queue {queue}, which is not there"), None),
            },
            Scope::Tenant(tenant) => (format!("Tenant {tenant}"), None),
            Scope::Owner(owner) => (format!("Tasks of {owner}"), None),
        };
        let (tone, word) = match rule.action {
            Action::Accept => ("good", "accepted"),
            Action::Pause => ("busy", "held"),
            Action::Reject => ("bad", "refused"),
        };
        Self { seen: shown.view(), place, address, action: Pill { tone, word }, at: When::at(rule.at) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(scope: &str, safe: bool) -> Row {
        Row {
            seen: AdmissionRule {
                scope: scope.to_owned(),
                value: Some("<acme>".to_owned()),
                reason: Some("<upgrade>".to_owned()),
                by: Some("anna".to_owned()),
                text: "empty: safe to upgrade".to_owned(),
                safe,
                ..AdmissionRule::default()
            },
            place: "Tenant <acme>".to_owned(),
            address: None,
            action: Pill { tone: "busy", word: "held" },
            at: When::default(),
        }
    }

    #[test]
    fn rules_are_rows_that_operators_can_lift() {
        let html = AdmissionPage { rows: vec![row("tenant", true)], operates: true }.render().unwrap();
        for part in
            ["Tenant &#60;acme&#62;", "&#60;upgrade&#62;", "safe to upgrade", "action=\"/ui/admission/lift\""]
        {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        let html = AdmissionPage { rows: vec![row("tenant", false)], operates: false }.render().unwrap();
        assert!(!html.contains("/ui/admission/lift") && !html.contains("<select"), "{html}");
        let html = AdmissionPage { rows: vec![], operates: true }.render().unwrap();
        assert!(html.contains("There are no rules"), "{html}");
    }
}
