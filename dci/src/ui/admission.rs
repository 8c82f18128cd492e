//! `GET /admission` for people: whose tasks are taken at the moment, and whether it is safe to upgrade.

use actix_web::http::StatusCode;
use actix_web::web::Data;
use askama::Template;
use disbatch_core::accounts::Role;
use disbatch_core::admission::{Action, Scope};

use crate::access::{Who, viewer};
use crate::admission::{self, Shown};
use crate::api::admission::lift as lifting;
use crate::api::{Answer, then};
use crate::openapi::{AdmissionLift, ErrorBody, OfWrite};
use crate::params::Params;
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
    scope: &'static str,
    value: String,
    /// What it is about, for people.
    place: String,
    /// The address of its queue.
    address: Option<String>,
    action: Pill,
    reason: String,
    by: String,
    at: When,
    state: String,
    is_safe: bool,
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
        Self {
            scope: rule.scope.kind(),
            value: rule.scope.value().unwrap_or_default(),
            place,
            address,
            action: Pill { tone, word },
            reason: rule.reason.clone().unwrap_or_default(),
            by: rule.by.clone(),
            at: When::at(rule.at),
            state: shown.words(),
            is_safe: shown.is_safe(),
        }
    }
}

/// Lifts a rule, and leads to the list of rules. HTML forms know no `DELETE`.
#[utoipa::path(
    post, path = "/ui/admission/lift", tag = "service", operation_id = "liftAdmissionRuleByForm",
    request_body(content((AdmissionLift = "application/x-www-form-urlencoded"))),
    responses(
        (status = 303, description = "Lifted; the list of rules is next."),
        (status = 400, description = "A parameter is wrong. A page, unless it is the gate that refuses.",
            content((ErrorBody = "application/json"), (String = "text/html"))),
        (status = 404, description = "There is no rule for that. A page, unless it is the gate that refuses.",
            content((ErrorBody = "application/json"), (String = "text/html"))),
        OfWrite,
    ),
)]
pub async fn lift(state: Data<State>, who: Who, params: Params) -> Answer {
    then::lead(lifting::lift(&state, &who, &params).await, "/admission")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(scope: &'static str, is_safe: bool) -> Row {
        Row {
            scope,
            value: "<acme>".to_owned(),
            place: "Tenant <acme>".to_owned(),
            address: None,
            action: Pill { tone: "busy", word: "held" },
            reason: "<upgrade>".to_owned(),
            by: "anna".to_owned(),
            at: When::default(),
            state: "empty: safe to upgrade".to_owned(),
            is_safe,
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
