//! What every page says while new tasks are rejected or held, whosever they are.

use askama::Template;
use askama::filters::HtmlSafeOutput;
use disbatch_core::admission::{Action, Rule};

use crate::error::HttpError;
use crate::state::State;
use crate::ui::live::Part;
use crate::ui::parts::When;

/// How the words begin that say who has made a rule where nobody is asked who they are.
const NOBODY: &str = "the REST API";

/// The bar, which is empty as long as there is nothing to say.
#[derive(Debug, Default, Template)]
#[template(path = "parts/intake.html")]
pub struct Intake {
    rule: Option<Closed>,
}

/// A rule for all tasks.
#[derive(Debug)]
struct Closed {
    rejects: bool,
    since: When,
    by: Option<String>,
    reason: Option<String>,
}

impl Intake {
    /// What a rule for all tasks comes to. Who has made it is not for those who see only some queues.
    pub fn of(rule: Option<&Rule>, sees_all: bool) -> Self {
        let closed = |rule: &Rule| Closed {
            rejects: rule.action == Action::Reject,
            since: When::at(rule.at),
            by: Some(name_of(&rule.by)).filter(|name| sees_all && !name.is_empty()).map(str::to_owned),
            reason: rule.reason.clone(),
        };
        Self { rule: rule.map(closed) }
    }

    /// For pages that are made for somebody.
    pub fn html(&self) -> HtmlSafeOutput<String> {
        HtmlSafeOutput(self.render().unwrap_or_default())
    }
}

/// The bar as a part of a page that changes by itself.
pub async fn part(state: &State, sees_all: bool) -> Result<Part, HttpError> {
    let rule = state.store.rule_for_all().await?;
    Part::new("intake", &Intake::of(rule.as_ref(), sees_all))
}

/// Who made a rule, without the address; nothing if nobody was asked.
pub fn name_of(by: &str) -> &str {
    let name = by.rsplit_once(" from ").map_or(by, |(name, _)| name);
    if name == NOBODY { "" } else { name }
}

#[cfg(test)]
mod tests {
    use bson::DateTime;
    use disbatch_core::admission::Scope;

    use super::*;

    fn html(action: Action, by: &str, sees_all: bool) -> String {
        let rule = Rule {
            scope: Scope::All,
            action,
            reason: Some("<upgrade> at noon".to_owned()),
            by: by.to_owned(),
            at: DateTime::from_millis(1_795_163_067_344),
        };
        Intake::of(Some(&rule), sees_all).render().unwrap()
    }

    #[test]
    fn a_rule_for_all_is_told_with_who_made_it_and_why() {
        let rejected = html(Action::Reject, "<ann> from 10.0.0.1", true);
        for part in [
            "New tasks are rejected",
            "2026-11-20T08:24:27Z",
            "by &#60;ann&#62;",
            "&#60;upgrade&#62; at noon",
            "hx-post=\"/ui/admission/lift\"",
        ] {
            assert!(rejected.contains(part), "{part} is not in {rejected}");
        }
        assert!(!rejected.contains("10.0.0.1"), "{rejected}");
        assert!(html(Action::Pause, "x", true).contains("New tasks are held"));
        assert!(!html(Action::Reject, "ann from 10.0.0.1", false).contains("ann"));
        assert!(!html(Action::Reject, "the REST API from 10.0.0.1", true).contains(" by "));
        let none = Intake::default().render().unwrap();
        assert!(!none.contains("message"), "{none}");
    }
}
