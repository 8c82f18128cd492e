//! `GET /admission` for people: whose tasks are taken at the moment, and whether it is safe to upgrade. What every page says while
//! new tasks are rejected or held, whosever they are.

use actix_web::web::Data;
use actix_web::{HttpRequest, HttpResponse};
use askama::Template;
use askama::filters::HtmlSafe;
use disbatch_core::accounts::Role;
use disbatch_core::admission::{Action, Rule, Scope};
use disbatch_wire::admission::AdmissionRule;

use crate::access::{Who, viewer};
use crate::admission::RuleState;
use crate::error::HttpError;
use crate::openapi::EventStream;
use crate::state::State;
use crate::ui::Rendered;
use crate::ui::live::{self, Part};
use crate::ui::names::Link;
use crate::ui::parts::{Pill, When, counted};
use crate::{admission, ui};

#[derive(Template)]
#[template(path = "admission.html")]
struct AdmissionPage {
    shown: Rules,
    /// Whether the page's reader may make rules for something.
    operates: bool,
}

/// What changes by itself.
#[derive(Template)]
#[template(path = "admission/rules.html")]
struct Rules {
    headline: Message,
    rows: Vec<Row>,
    /// Whether it is safe to upgrade.
    verdict: Option<Message>,
}

impl HtmlSafe for Rules {}

struct Message {
    tone: &'static str,
    text: String,
}

struct Row {
    seen: AdmissionRule,
    place: Link,
    action: Pill,
    by: String,
    at: When,
}

pub async fn render(state: Data<State>, who: Who) -> Rendered {
    let shown = Rules::of(&admission::shown(&state, &who).await?);
    ui::render(&AdmissionPage { shown, operates: viewer::may_somewhere(Role::Operator) })
}

/// What of the page changes, as Server-Sent Events like those of `/ui/overview`.
#[utoipa::path(
    get,
    path = "/ui/admission",
    tag = "service",
    operation_id = "admissionEvents",
    responses(EventStream)
)]
pub async fn live(request: HttpRequest, state: Data<State>, who: Who) -> HttpResponse {
    // What is shown depends on who looks.
    let reader = format!("admission for {:?} {:?}", who.name, who.rights);
    live::respond(&request, &state, reader, async move |state: &State| {
        let shown = Rules::of(&admission::shown(state, &who).await?);
        Ok(vec![Part::new(&shown)?])
    })
}

impl Rules {
    fn of(shown: &[RuleState]) -> Self {
        let tone = |shown: &RuleState| if shown.is_safe() { "good" } else { "bad" };
        let verdict = |shown: &RuleState| Some(Message { tone: tone(shown), text: shown.verdict()? });
        Self {
            headline: headline(shown.iter().map(|shown| (&shown.rule.scope, shown.rule.action))),
            rows: shown.iter().map(Row::of).collect(),
            verdict: shown.iter().find_map(verdict),
        }
    }
}

/// What becomes of new tasks now, in a sentence. Of all rules it takes for which tasks each is, and what it does to them.
fn headline<'a>(rules: impl Iterator<Item = (&'a Scope, Action)>) -> Message {
    let rules: Vec<(&Scope, Action)> = rules.collect();
    let of_all = rules.iter().find(|(scope, _)| **scope == Scope::All).map(|(_, action)| *action);
    let usual = of_all.unwrap_or(Action::Accept);
    let whose = |action: Action| {
        let scopes = rules.iter().filter(|(_, of)| *of == action).map(|(scope, _)| *scope);
        Some((whose(scopes.collect()), action)).filter(|(whose, _)| !whose.is_empty())
    };
    let others = Action::ALL.into_iter().filter(|action| *action != usual).filter_map(whose);
    let others: Vec<String> =
        others.map(|(whose, action)| format!("of {whose} are {}", told(action).1)).collect();
    let tone = match usual {
        Action::Accept if others.is_empty() => "good",
        Action::Reject => "bad",
        Action::Accept | Action::Pause => "busy",
    };
    let text = match others.as_slice() {
        [] => format!("All new tasks are {}.", told(usual).1),
        others => format!("New tasks {}; all others are {}.", others.join(", those "), told(usual).1),
    };
    Message { tone, text }
}

/// What a rule does, and what becomes of tasks by it.
const fn told(action: Action) -> (Pill, &'static str) {
    match action {
        Action::Accept => (Pill { tone: "good", word: "accept" }, "accepted"),
        Action::Pause => (Pill { tone: "busy", word: "hold" }, "held"),
        Action::Reject => (Pill { tone: "bad", word: "reject" }, "rejected"),
    }
}

/// Whose tasks these are, other than all: how many queues, tenants and users.
fn whose(scopes: Vec<&Scope>) -> String {
    let count = |is: fn(&Scope) -> bool, name: &str| {
        let count = scopes.iter().filter(|scope| is(scope)).count();
        (count > 0).then(|| counted(count, name))
    };
    let counts = [
        count(|scope| matches!(scope, Scope::Queue(_)), "queue"),
        count(|scope| matches!(scope, Scope::Tenant(_)), "tenant"),
        count(|scope| matches!(scope, Scope::Owner(_)), "user"),
    ];
    counts.into_iter().flatten().collect::<Vec<_>>().join(" and ")
}

impl Row {
    fn of(shown: &RuleState) -> Self {
        let rule = &shown.rule;
        let place = match &rule.scope {
            Scope::All => Link::nowhere("All tasks"),
            Scope::Queue(queue) => Link::queue(*queue, shown.name.as_ref()),
            Scope::Tenant(tenant) => Link::nowhere(format!("Tenant {tenant}")),
            Scope::Owner(owner) => Link::nowhere(format!("Tasks of {owner}")),
        };
        let (by, action) = (name_of(&rule.by).to_owned(), told(rule.action).0);
        Self { seen: shown.view(), by, place, action, at: When::at(rule.at) }
    }
}

/// How the words begin that say who has made a rule where nobody is asked who they are.
const NOBODY: &str = "the REST API";

/// The bar, which is empty as long as there is nothing to say.
#[derive(Debug, Default, Template)]
#[template(path = "parts/intake.html")]
pub struct Intake<'a> {
    /// That for all tasks.
    pub rule: Option<&'a Rule>,
    /// Whether the reader sees all queues. Who has made the rule is not for others.
    pub sees_all: bool,
}

pub async fn intake(state: &State, sees_all: bool) -> Result<Part, HttpError> {
    let rule = state.store.rule_for_all().await?;
    Part::new(&Intake { rule: rule.as_ref(), sees_all })
}

/// Who made a rule, without the address; nothing if nobody was asked.
pub fn name_of(by: &str) -> &str {
    let name = by.rsplit_once(" from ").map_or(by, |(name, _)| name);
    if name == NOBODY { "" } else { name }
}

#[cfg(test)]
mod tests {
    use bson::DateTime;

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
            place: Link::nowhere("Tenant <acme>"),
            action: Pill { tone: "busy", word: "hold" },
            by: "anna".to_owned(),
            at: When::default(),
        }
    }

    fn html(rows: Vec<Row>, verdict: Option<Message>, operates: bool) -> String {
        let shown = Rules { headline: headline([].into_iter()), rows, verdict };
        AdmissionPage { shown, operates }.render().unwrap()
    }

    #[test]
    fn rules_are_rows_that_operators_can_remove() {
        let html = html(vec![row("tenant", true)], None, true);
        for part in [
            "Tenant &#60;acme&#62;",
            "&#60;upgrade&#62;",
            "safe to upgrade",
            "action=\"/ui/admission/lift\"",
            "hx-confirm=\"Remove the rule for Tenant &#60;acme&#62;?",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        let html = self::html(vec![], None, false);
        assert!(!html.contains("/ui/admission/lift") && !html.contains("<select"), "{html}");
        assert!(html.contains("All new tasks are accepted."), "{html}");
    }

    #[test]
    fn the_headline_says_what_becomes_of_new_tasks() {
        let [acme, other] = ["acme", "other"].map(|name| Scope::Tenant(name.to_owned()));
        let anna = Scope::Owner("anna".to_owned());
        let of = |rules: &[(&Scope, Action)]| {
            let Message { tone, text } = headline(rules.iter().copied());
            format!("{tone}: {text}")
        };
        assert_eq!(of(&[]), "good: All new tasks are accepted.");
        assert_eq!(of(&[(&Scope::All, Action::Reject)]), "bad: All new tasks are rejected.");
        assert_eq!(
            of(&[(&acme, Action::Pause), (&other, Action::Pause), (&anna, Action::Reject)]),
            "busy: New tasks of 2 tenants are held, those of 1 user are rejected; all others are accepted."
        );
        assert_eq!(
            of(&[(&Scope::All, Action::Pause), (&acme, Action::Accept), (&anna, Action::Accept)]),
            "busy: New tasks of 1 tenant and 1 user are accepted; all others are held."
        );
    }

    #[test]
    fn a_rule_for_all_is_asked_about_and_says_in_large_letters_what_it_comes_to() {
        let verdict = |tone, text: &str| Some(Message { tone, text: text.to_owned() });
        let html = html(vec![row("all", false)], verdict("bad", "Not safe to upgrade yet: 9 <wait>"), true);
        for part in
            ["class=\"verdict tone-bad\"", "yet: 9 &#60;wait&#62;", "<option value=\"all\" data-question="]
        {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        let html = self::html(vec![row("all", true)], verdict("good", "Safe to upgrade"), true);
        assert!(html.contains("class=\"verdict tone-good\""), "{html}");
        let headline = headline([].into_iter());
        let shown = Rules { headline, rows: vec![row("all", true)], verdict: verdict("good", "Safe") };
        live::assert_on_page(&[Part::new(&shown).unwrap()], &html);
    }

    fn intake_html(action: Action, by: &str, sees_all: bool) -> String {
        let rule = Rule {
            scope: Scope::All,
            action,
            reason: Some("<upgrade> at noon".to_owned()),
            by: by.to_owned(),
            at: DateTime::from_millis(1_795_163_067_344),
        };
        Intake { rule: Some(&rule), sees_all }.render().unwrap()
    }

    #[test]
    fn a_rule_for_all_is_told_with_who_made_it_and_why() {
        let rejected = intake_html(Action::Reject, "<ann> from 10.0.0.1", true);
        for part in [
            "New tasks are rejected",
            "2026-11-20T08:24:27Z",
            "by &#60;ann&#62;",
            "&#60;upgrade&#62; at noon",
            "hx-post=\"/ui/admission/lift\"",
            "hx-confirm=\"Lift the rule for all new tasks?\"",
        ] {
            assert!(rejected.contains(part), "{part} is not in {rejected}");
        }
        assert!(!rejected.contains("10.0.0.1"), "{rejected}");
        assert!(intake_html(Action::Pause, "x", true).contains("New tasks are held"));
        assert!(!intake_html(Action::Reject, "ann from 10.0.0.1", false).contains("ann"));
        assert!(!intake_html(Action::Reject, "the REST API from 10.0.0.1", true).contains(" by "));
        let none = Intake::default().render().unwrap();
        assert!(!none.contains("message"), "{none}");
    }
}
