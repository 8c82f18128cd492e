//! What can be done to all tasks that a search finds: as `POST /bulk` has it, after a look at how many they are.

use askama::Template;
use askama::filters::HtmlSafe;
use disbatch_core::bulk::Action;

use super::search::Search;

/// Forms, one for each action that makes sense.
#[derive(Debug, Default, PartialEq, Eq, Template)]
#[template(path = "tasks/actions.html")]
pub struct Actions {
    forms: Vec<Form>,
    /// How many tasks are found, if that is known.
    count: String,
}

impl HtmlSafe for Actions {}

#[derive(Debug, PartialEq, Eq)]
struct Form {
    action: &'static str,
    title: &'static str,
    danger: bool,
    fields: Vec<(&'static str, String)>,
}

impl Actions {
    /// Those for what `search` finds. None where it asks for something that `POST /bulk` does not know, or for
    /// everything: that is nothing to be done by mistake.
    pub fn of(search: &Search, count: Option<&str>) -> Self {
        let beyond = !search.node.is_empty() || !search.text.is_empty() || !search.others.is_empty();
        if beyond || search.archive || search.is_everything() {
            return Self::default();
        }
        let forms = Action::ALL.into_iter().filter_map(|action| form(action, search)).collect();
        Self { forms, count: count.unwrap_or_default().to_owned() }
    }

    /// Whether there is nothing that can be done.
    pub fn is_empty(&self) -> bool {
        self.forms.is_empty()
    }
}

/// What an action is called on a button.
pub const fn title(action: Action) -> &'static str {
    match action {
        Action::Cancel => "Cancel",
        Action::Retry => "Retry",
        Action::Archive => "Archive",
        Action::Delete => "Delete",
    }
}

/// The form of an action. None: it is for none of the statuses that are looked for.
fn form(action: Action, search: &Search) -> Option<Form> {
    let applies = |status: &&String| status.parse().is_ok_and(|status| action.applies_to(status));
    let statuses: Vec<&str> = search.statuses.iter().filter(applies).map(String::as_str).collect();
    if statuses.is_empty() && !search.statuses.is_empty() {
        return None;
    }
    let queue = match (&search.queue, &search.id) {
        (queue, id) if queue.is_empty() && id.is_empty() => "*",
        (queue, _) => queue,
    };
    let fields = [("queue", queue.to_owned()), ("ids", search.id.clone()), ("status", statuses.join(","))];
    Some(Form {
        action: action.as_str(),
        title: title(action),
        danger: action == Action::Delete,
        fields: fields.into_iter().filter(|(_, value)| !value.is_empty()).collect(),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::params::Params;

    const QUEUE: &str = "6b0003bb686c8275d70dc2f1";

    fn of(fields: Value, options: Value) -> Actions {
        let map = |value: Value| value.as_object().unwrap().clone();
        Actions::of(&Search::of(&Params { fields: map(fields), options: map(options) }), Some("10,000+"))
    }

    fn names(actions: &Actions) -> Vec<&str> {
        actions.forms.iter().map(|form| form.action).collect()
    }

    #[test]
    fn actions_are_for_what_a_search_finds() {
        let all = of(json!({"queue": QUEUE}), json!({}));
        assert_eq!(names(&all), ["cancel", "retry", "archive", "delete"]);
        let html = all.render().unwrap();
        for part in [
            "action=\"/bulk\" method=\"post\"",
            "name=\".preview\" value=\"1\"",
            "name=\"queue\" value=\"6b0003bb686c8275d70dc2f1\"",
            "name=\"action\" value=\"retry\"",
            "10,000+",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        let failed = of(json!({"status": ["2", "-2"]}), json!({}));
        assert_eq!(names(&failed), ["cancel", "retry", "archive", "delete"]);
        assert_eq!(failed.forms[0].fields, [("queue", "*".to_owned()), ("status", "-2".to_owned())]);
        assert_eq!(failed.forms[1].fields[1], ("status", "2".to_owned()));
        assert_eq!(names(&of(json!({"queue": QUEUE, "status": "-2"}), json!({}))), ["cancel"]);
    }

    #[test]
    fn what_cannot_be_said_is_not_offered() {
        for (fields, options) in [
            (json!({}), json!({})),
            (json!({"queue": QUEUE, "node": "n"}), json!({})),
            (json!({"queue": QUEUE, "params.to": "n"}), json!({})),
            (json!({"queue": QUEUE}), json!({"text": "x"})),
            (json!({"queue": QUEUE}), json!({"archive": "1"})),
            (json!({"queue": QUEUE, "status": "x"}), json!({})),
        ] {
            let actions = of(fields.clone(), options);
            assert!(actions.is_empty(), "{fields}: {actions:?}");
        }
    }
}
