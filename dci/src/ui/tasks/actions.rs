//! What can be done to all tasks that a search finds: as `POST /bulk` has it, after a look at how many they are.

use askama::Template;
use askama::filters::HtmlSafe;
use disbatch_core::bulk::Action;
use disbatch_core::tags::{ANY_TAGS, TAGS};

use super::search::Search;

/// Forms, one for each action that makes sense.
#[derive(Debug, Default, PartialEq, Eq, Template)]
#[template(path = "tasks/actions.html")]
pub struct Actions {
    /// What each is for, and its hidden fields.
    forms: Vec<Form>,
    /// How many tasks are found, if that is known.
    count: String,
    /// What becomes of archived tasks, or why there is nothing that can be done.
    note: String,
}

impl HtmlSafe for Actions {}

type Form = (Action, Vec<(&'static str, String)>);

impl Actions {
    /// Those for what `search` finds. None, and why, where it asks for something that `POST /bulk` does not know. None for
    /// everything either: that is nothing to be done by mistake.
    pub fn of(search: &Search, count: Option<&str>) -> Self {
        if let Some(why) = impossible(search) {
            let note =
                format!("Not all that match can be acted on at once: {why}. Select those that are meant.");
            return Self { note, ..Self::default() };
        }
        let forms: Vec<Form> = Action::ALL.into_iter().filter_map(|action| form(action, search)).collect();
        let given = [&search.queue, &search.node, &search.id, &search.tags, &search.any_tags];
        let narrowed = given.iter().any(|given| !given.is_empty());
        if forms.is_empty() || (!narrowed && search.statuses.is_empty()) {
            return Self::default();
        }
        let deletes = forms.iter().any(|(action, _)| *action == Action::Delete);
        let note = match (search.archive, deletes) {
            (true, true) => {
                "Archived tasks among them can only be deleted; the other actions leave them alone."
            }
            (true, false) => "Archived tasks among them are left alone.",
            (false, true) => {
                "Archived tasks are left alone: they are deleted only if they are searched for, too."
            }
            (false, false) => "",
        };
        Self { forms, count: count.unwrap_or_default().to_owned(), note: note.to_owned() }
    }
}

/// Why not all that a search finds can be acted on.
fn impossible(search: &Search) -> Option<String> {
    let others: Vec<&str> =
        search.others.iter().filter(|(_, value)| !value.is_empty()).map(|(name, _)| name.as_str()).collect();
    if !search.text.is_empty() {
        return Some("nobody knows which they are before all params are read".to_owned());
    }
    let others = others.join(" and ");
    let why = || format!("a bulk job knows tasks by queue, status, node, tags and id, not by {others}");
    (!others.is_empty()).then(why)
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
    // What the search has left out is not to be deleted.
    let is_spared = action.reaches_archive() && !search.archive;
    let fields = [
        ("queue", queue.to_owned()),
        ("ids", search.id.clone()),
        ("status", statuses.join(",")),
        ("node", search.node.clone()),
        (TAGS, search.tags.clone()),
        (ANY_TAGS, search.any_tags.clone()),
        ("archive", if is_spared { "0" } else { "" }.to_owned()),
    ];
    Some((action, fields.into_iter().filter(|(_, value)| !value.is_empty()).collect()))
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
        actions.forms.iter().map(|(action, _)| action.as_str()).collect()
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
        assert_eq!(failed.forms[0].1, [("queue", "*".to_owned()), ("status", "-2".to_owned())]);
        assert_eq!(failed.forms[1].1[1], ("status", "2".to_owned()));
        let tagged = of(json!({"tags": ["a=1", "b"]}), json!({}));
        assert_eq!(tagged.forms[0].1, [("queue", "*".to_owned()), ("tags", "a=1,b".to_owned())]);
        assert_eq!(names(&of(json!({"queue": QUEUE, "status": "-2"}), json!({}))), ["cancel"]);
    }

    #[test]
    fn archived_tasks_are_deleted_only_if_they_are_searched_for() {
        let archive = |options: Value| {
            let actions = of(json!({"queue": QUEUE, "node": "<n>"}), options);
            let of = |(_, fields): &Form| fields.iter().find(|(name, _)| *name == "archive").cloned();
            (actions.forms.iter().map(of).collect::<Vec<_>>(), actions.render().unwrap())
        };
        let (fields, html) = archive(json!({}));
        assert_eq!(fields, [None, None, None, Some(("archive", "0".to_owned()))]);
        assert!(html.contains("Archived tasks are left alone: they are deleted only if"), "{html}");
        assert!(html.contains("name=\"node\" value=\"&#60;n&#62;\""), "{html}");
        let (fields, html) = archive(json!({"archive": "1"}));
        assert_eq!(fields, [None, None, None, None]);
        assert!(html.contains("can only be deleted"), "{html}");
    }

    #[test]
    fn what_cannot_be_done_is_said_with_why() {
        for (fields, options, why) in [
            (json!({"queue": QUEUE, "params.<to>": "n"}), json!({}), "not by params.&#60;to&#62;."),
            (json!({"queue": QUEUE}), json!({"text": "x"}), "before all params are read"),
        ] {
            let actions = of(fields.clone(), options);
            let html = actions.render().unwrap();
            assert!(actions.forms.is_empty() && html.contains(why), "{fields}: {html}");
            assert!(!html.contains("<form"), "{html}");
        }
        for nothing in [json!({}), json!({"queue": QUEUE, "status": "x"})] {
            assert_eq!(of(nothing, json!({})), Actions::default());
        }
        assert_eq!(of(json!({}), json!({"archive": "1"})), Actions::default(), "that is everything, too");
    }
}
