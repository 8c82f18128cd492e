//! What can be done to all tasks that a search finds: as `POST /bulk` has it, after a look at how many they are.

use askama::Template;
use askama::filters::HtmlSafe;
use bson::DateTime;
use disbatch_core::bulk::Action;
use disbatch_core::tags::{ANY_TAGS, TAGS};
use disbatch_core::task::Created;

use super::search::Search;
use crate::json::date_text;
use crate::ui::names::QueueNames;
use crate::values::CREATED;

#[derive(Debug, Default, PartialEq, Eq, Template)]
#[template(path = "tasks/actions.html")]
pub struct Actions {
    forms: Vec<Form>,
    pub of_some: Vec<Action>,
    scope: String,
    count: String,
    /// What becomes of archived tasks, or why there is nothing that can be done.
    note: String,
}

impl HtmlSafe for Actions {}

type Form = (Action, Vec<(&'static str, String)>);

impl Actions {
    /// Those for what `search` finds. None, and why, where it asks for something that `POST /bulk` does not know. None for
    /// everything either: that is nothing to be done by mistake.
    pub fn of(search: &Search, count: Option<&str>, names: &QueueNames, now: DateTime) -> Self {
        let of_some: Vec<Action> =
            Action::ALL.into_iter().filter(|action| statuses(*action, search).is_some()).collect();
        if let Some(note) = impossible(search) {
            return Self { note, of_some, ..Self::default() };
        }
        // Times that make no sense find nothing.
        let created = search.created.between(now).unwrap_or_default();
        let forms: Vec<Form> = of_some.iter().filter_map(|action| form(*action, search, created)).collect();
        let given = [&search.queue, &search.node, &search.id, &search.tags, &search.any_tags];
        let narrowed = given.iter().any(|given| !given.is_empty()) || !created.is_any();
        if forms.is_empty() || (!narrowed && search.statuses.is_empty()) {
            return Self { of_some, ..Self::default() };
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
        let scope = search.scope(names);
        Self { forms, of_some, scope, count: count.unwrap_or_default().to_owned(), note: note.to_owned() }
    }
}

fn impossible(search: &Search) -> Option<String> {
    let others: Vec<&str> = search.others.iter().map(|(name, _)| name.as_str()).collect();
    let cannot = |what: &str| format!("{what} cannot be applied to all matches yet. Select rows.");
    if !search.text.is_empty() {
        return Some(cannot("Text searches"));
    }
    (!others.is_empty()).then(|| cannot(&format!("Searches by {}", others.join(" and "))))
}

pub const fn title(action: Action) -> &'static str {
    match action {
        Action::Cancel => "Cancel",
        Action::Retry => "Retry",
        Action::Archive => "Archive",
        Action::Delete => "Delete",
    }
}

/// The statuses that are looked for and that an action is for. None: it is for none of them.
fn statuses(action: Action, search: &Search) -> Option<Vec<&str>> {
    let applies = |status: &&String| status.parse().is_ok_and(|status| action.applies_to(status));
    let statuses: Vec<&str> = search.statuses.iter().filter(applies).map(String::as_str).collect();
    (search.statuses.is_empty() || !statuses.is_empty()).then_some(statuses)
}

/// The form of an action. None: it is for none of the statuses that are looked for.
fn form(action: Action, search: &Search, created: Created) -> Option<Form> {
    let statuses = statuses(action, search)?;
    let at = |at: Option<DateTime>| at.and_then(date_text).map(|text| format!("{text}Z")).unwrap_or_default();
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
        (CREATED[0], at(created.since)),
        (CREATED[1], at(created.until)),
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
        let search = Search::of(&Params { fields: map(fields), options: map(options) });
        Actions::of(&search, Some("10,000+"), &QueueNames::new(), DateTime::from_millis(1_795_163_067_344))
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
    fn only_what_can_be_done_is_offered_and_for_what_is_said() {
        let failed = of(json!({"status": "2"}), json!({"created": "today"}));
        assert_eq!(names(&failed), ["retry", "archive", "delete"]);
        assert_eq!(failed.of_some, [Action::Retry, Action::Archive, Action::Delete]);
        let since = ("created_since", "2026-11-20T00:00:00Z".to_owned());
        assert!(failed.forms.iter().all(|(_, fields)| fields.contains(&since)), "{failed:?}");
        let html = failed.render().unwrap();
        assert!(html.contains("data-scope=\"failed, all queues, created today (UTC)\""), "{html}");
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
            (
                json!({"queue": QUEUE, "params.<to>": "n"}),
                json!({}),
                "Searches by params.&#60;to&#62; cannot",
            ),
            (json!({"queue": QUEUE}), json!({"text": "x"}), "Text searches cannot be applied"),
        ] {
            let actions = of(fields.clone(), options);
            let html = actions.render().unwrap();
            assert!(actions.forms.is_empty() && html.contains(why), "{fields}: {html}");
            assert!(!html.contains("<form"), "{html}");
        }
        for nothing in [json!({}), json!({"queue": QUEUE, "status": "x"})] {
            let actions = of(nothing, json!({}));
            assert!(actions.forms.is_empty() && actions.note.is_empty(), "{actions:?}");
        }
        assert!(of(json!({}), json!({"archive": "1"})).forms.is_empty(), "that is everything, too");
    }
}
