use std::time::Duration;

use bson::{DateTime, Document, doc};
use disbatch_core::counters::count::Amount;
use disbatch_core::explain::{Hold, Holding};
use disbatch_core::series::{Ended, Numbers, Point, Sides};
use serde_json::json;

use super::facts::Statuses;
use super::lists::{Line, Lists};
use super::versions::Versions;
use super::*;
use crate::ui::StatusView;
use crate::ui::live::assert_on_page;
use crate::ui::nodes::Now;
use crate::ui::parts::When;
use crate::ui::queue_state::Tally;

const NOW: DateTime = DateTime::from_millis(1_795_163_067_344);
const ID: &str = "6b0003bb686c8275d70dc2f1";

fn queue(fields: Document) -> Queue {
    let mut document = doc! { "_id": bson::oid::ObjectId::parse_str(ID).unwrap() };
    document.extend(fields);
    bson::deserialize_from_document(document).unwrap()
}

fn facts(fields: Document) -> Facts {
    let mut hour = Numbers { ended: Ended { succeeded: 7, failed: 2, other: 0 }, ..Numbers::default() };
    hour.waited.add(Duration::from_millis(250), 1);
    let node = doc! {
        "_id": bson::oid::ObjectId::new(), "node": "n", "instance": "i", "seen": NOW, "lease_ms": 30_000,
        "plugins": ["My::Plugin"],
    };
    Facts {
        queue: queue(fields),
        tallies: vec![
            (Statuses::One(-2), Tally::new(vec![-2], Amount::Exactly(17_000))),
            (Statuses::Held, Tally::new(vec![], Amount::Exactly(4))),
            (Statuses::One(0), Tally::new(vec![0], Amount::Exactly(2))),
            (Statuses::One(2), Tally::new(vec![2], Amount::MoreThan(1000))),
            (Statuses::Finished, Tally::new(vec![7, 17], Amount::Exactly(9))),
        ],
        running: 2,
        held: Holding {
            gate: Hold::Empty,
            text: "No task waits.".into(),
            head: None,
            next: None,
            nodes: None,
        },
        oldest: Some(NOW),
        hour,
        nodes: vec![node],
        now: Now { server: NOW, host: NOW },
        rate: None,
        intake: None,
        lists: Lists::default(),
        versions: Versions::of(
            &queue(doc! {}),
            (&[], &Now { server: NOW, host: NOW }),
            (Reader::OfAll, Sides::default()),
        ),
    }
}

/// All tabs of the page.
fn html(facts: &Facts, form: Option<Form>) -> String {
    [Tab::Now, Tab::New, Tab::Settings].map(|tab| html_of(tab, facts, form.clone())).concat()
}

fn html_of(tab: Tab, facts: &Facts, form: Option<Form>) -> String {
    let plugins = ["My::Plugin".to_owned(), "<Other>".to_owned()];
    let point = Point { at: NOW, numbers: Numbers::default() };
    let charts = charts::first(facts.queue.id, Span::Day, std::slice::from_ref(&point));
    QueuePage { tab, ..page(facts, &plugins, (form, None), charts) }.render().unwrap()
}

fn form() -> Form {
    Form::of(&json!({
        "properties": { "to": { "type": "string", "description": "<who>" } }, "required": ["to"],
    }))
}

#[test]
fn what_holds_its_head_is_told_once() {
    let facts = |gate, text: &str| {
        let mut facts = facts(doc! { "name": "mail", "plugin": "My::Plugin", "threads": 3, "paused": true });
        facts.held = Holding { gate, text: text.to_owned(), ..facts.held };
        html(&facts, None)
    };
    let paused = facts(Hold::Paused, "The queue <mail> is paused.");
    assert!(
        paused.contains("The queue &#60;mail&#62; is paused.") && !paused.contains("as it is paused"),
        "{paused}"
    );
    let empty = facts(Hold::Empty, "No task waits.");
    assert!(empty.contains("as it is paused") && !empty.contains("No task waits."), "{empty}");
}

#[test]
fn an_unknown_order_is_told() {
    let html = html(&facts(doc! { "name": "mail", "sort": "<weird>" }), None);
    assert!(html.contains("Its order (sort), &#34;&#60;weird&#62;&#34;, is unknown"), "{html}");
}

#[test]
fn the_page_shows_what_the_queue_has_to_do() {
    let html = html(
        &facts(
            doc! { "name": "<mail>", "plugin": "My::Plugin", "threads": "3", "paused": true, "reason": "a <move>" },
        ),
        Some(form()),
    );
    for part in [
        "data-live=\"/ui/queues/6b0003bb686c8275d70dc2f1\"",
        "<span class=\"hidden\">Queue </span>&#60;mail&#62;</h1>",
        "<span class=\"status paused\">paused</span>",
        "Nothing of it is claimed, as it is paused: a &#60;move&#62;",
        "name=\"threads\" value=\"3\"",
        "value=\"a &#60;move&#62;\"",
        "17,000",
        "1,000+",
        "/tasks?queue=6b0003bb686c8275d70dc2f1&#38;status=-2",
        "&#38;status=7&#38;status=17\"><span class=\"status finished\" title=\"status 3 and above\">finished</span>",
        "<span class=\"chip\"><span class=\"status held\" title=\"status -8 and below\">held</span>",
        "data-chart=\"/ui/queues/6b0003bb686c8275d70dc2f1/chart?of=waited&amp;span=24h\"",
        "No task was started within the last 24 hours.",
        "name=\"/to\"",
        "&#60;who&#62;",
        "<textarea id=\"params-json\" name=\"json\"",
        "id=\"file-form\"",
        "hx-delete=\"/queues/6b0003bb686c8275d70dc2f1\"",
        "action=\"/ui/queues/6b0003bb686c8275d70dc2f1/delete\"",
        "Its tasks stay in the database",
    ] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
    assert!(!html.contains("<mail>") && !html.contains("<who>") && !html.contains(" style="), "{html}");
}

#[test]
fn all_that_run_are_counted_and_more_wait_than_are() {
    let mut facts = facts(doc! { "name": "q", "plugin": "My::Plugin", "threads": 1_500 });
    (facts.running, facts.tallies[0].1) = (1_500, Tally::new(vec![-2], Amount::MoreThan(1000)));
    let html = html_of(Tab::Now, &facts, None);
    for part in ["Running (1,500)", ">full</span>", "<span class=\"figure\">1,000+</span>"] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
}

#[test]
fn every_setting_is_there_with_what_it_means() {
    let html = html(
        &facts(doc! {
            "name": "q", "plugin": "Gone", "sort": "lifo", "max_attempts": 4, "timeout": 90.5, "grace": "5",
            "backoff": { "base": 2, "jitter": 0.5 }, "on_orphan": "requeue", "unleased_limit": 7_200,
            "retention": { "archive_after": 604_800.0 },
        }),
        None,
    );
    for part in [
        "name=\"name\" value=\"q\"",
        "<option value=\"Gone\" selected>Gone (not known here)</option>",
        "<option value=\"&#60;Other&#62;\">&#60;Other&#62;</option>",
        "<option value=\"lifo\" selected>",
        "name=\"max_attempts\" value=\"4\"",
        "name=\"timeout\" value=\"90.5\"",
        "name=\"grace\" value=\"5\"",
        "name=\"backoff.base\" value=\"2\"",
        "name=\"backoff.factor\" value=\"\"",
        "name=\"backoff.jitter\" value=\"0.5\"",
        "<option value=\"requeue\" selected>",
        "name=\"on_lost_lease\"",
        "name=\"unleased_limit\" value=\"7200\"",
        "Now about 2 h.",
        "name=\"retention.archive_after\" value=\"604800\"",
        "Now about 7 d.",
        "name=\"retention.delete_after\" value=\"\"",
        "<h3>Ended tasks</h3> <span>archived after 7 d</span>",
        "4 attempts, 4 s · 8 s",
        "How long a plugin that is to end has between SIGTERM and SIGKILL.",
        "No node that is alive has its plugin Gone.",
    ] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
    assert!(!html.contains("id=\"by-form\""), "nobody knows its parameters: {html}");
}

#[test]
fn odd_queues_are_shown_too() {
    let nasty = "<script>alert('1')</script>\"".repeat(400);
    let odd = doc! {
        "name": &nasty, "plugin": &nasty, "accepting": false, "reason": &nasty, "sort": 5, "backoff": "soon",
        "retention": [], "grace": { "a": &nasty },
    };
    let form = Form::of(&json!({ "properties": { &nasty: { "type": "string", "default": &nasty } } }));
    let html = html(&facts(odd), Some(form));
    let body = html.split_once("<main").unwrap().1.replace("<script src=\"/assets/", "");
    assert!(!body.contains("<script") && body.contains("&#60;script&#62;alert(&#39;1&#39;)"), "it is text");
    assert!(
        body.contains("accepts no tasks") && body.contains("must be a valid perl package name"),
        "{body}"
    );
    let mut bare = facts(doc! {});
    (bare.oldest, bare.nodes, bare.tallies) = (None, Vec::new(), Vec::new());
    let html = self::html(&bare, None);
    assert!(html.contains(&format!("</span>{ID}</h1>")), "a queue without a name has its id: {html}");
    assert!(html.contains("It has no plugin") && html.contains("its threads are 0"), "{html}");
}

#[test]
fn a_task_can_be_run_again_with_other_parameters() {
    let facts = facts(doc! { "name": "q", "plugin": "My::Plugin" });
    let again = json!({ "to": "you <b>", "more": 1 });
    let charts = charts::first(facts.queue.id, Span::Hour, &[]);
    let page = page(&facts, &[], (Some(form()), again.as_object().cloned()), charts);
    let options = json!({ "group": "a/<b>", "locks": "db/2", "steps": "[{}]" }).as_object().cloned();
    let template = Prefilled { options: options.unwrap_or_default(), ..Prefilled::default() };
    let others = without_field(&template);
    let html = QueuePage { tab: Tab::New, template, others, ..page }.render().unwrap();
    assert!(html.contains("name=\"/to\" value=\"you &#60;b&#62;\""), "{html}");
    assert!(html.contains("&#34;more&#34; : 1,") && !html.contains("<b>"), "{html}");
    for part in [
        "name=\".group\" value=\"a/&#60;b&#62;\"",
        "name=\".locks\" value=\"db/2\"",
        "name=\".steps\" value=\"[{}]\"",
    ] {
        assert_eq!(html.matches(part).count(), 2, "with the form, and with JSON: {part} in {html}");
    }
}

#[test]
fn secure_parameters_have_a_field_where_there_is_a_key() {
    let facts = facts(doc! { "name": "q", "plugin": "My::Plugin" });
    let charts = charts::first(facts.queue.id, Span::Hour, &[]);
    let page = QueuePage { tab: Tab::New, ..page(&facts, &[], (Some(form()), None), charts) };
    let fields = |html: &str| html.matches("<input type=\"password\" name=\".secure_params\"").count();
    assert_eq!(fields(&page.render().unwrap()), 0);
    let with_keys = QueuePage { has_keys: true, ..page };
    assert_eq!(fields(&with_keys.render().unwrap()), 2, "with the form, and with JSON");
}

#[test]
fn an_array_is_asked_for_with_the_form_and_with_json() {
    let html = html(&facts(doc! { "name": "q", "plugin": "My::Plugin" }), Some(form()));
    for part in ["<label>Array <input name=\".array\"", "name=\".array_key\"", "<code>0-99%10</code>"] {
        assert_eq!(html.matches(part).count(), 2, "{part} in {html}");
    }
    assert!(html.contains("href=\"/arrays?queue=6b0003bb686c8275d70dc2f1\""), "{html}");
}

#[test]
fn every_part_is_on_the_page_under_its_id() {
    let facts = facts(doc! { "name": "q", "plugin": "My::Plugin" });
    let html = html_of(Tab::Now, &facts, Some(form()));
    assert_on_page(&facts.parts().unwrap(), &html);
    for tab in [Tab::New, Tab::Settings] {
        let always = html_of(tab, &facts, Some(form()));
        assert_on_page(&facts.parts().unwrap()[..3], &always);
    }
}

#[test]
fn tasks_that_run_failed_or_come_next_are_lists_that_lead_to_them() {
    let line = |title: &str| Line {
        id: "6b0003bb686c8275d8013333".to_owned(),
        title: title.to_owned(),
        status: StatusView::from_code(0),
        node: "<n1>".to_owned(),
        at: When::at(NOW),
        progress: (Some(50.0), "<half>".to_owned()),
        error: "exit code 3".to_owned(),
    };
    let mut facts = facts(doc! { "name": "q", "plugin": "My::Plugin", "policy": "fair" });
    let lists = [vec![line("<sleep> 5")], vec![line("")], vec![line("next one")]];
    let [running, failed, next] = lists;
    facts.lists = Lists { running, failed, next };
    let html = html_of(Tab::Now, &facts, None);
    for part in [
        "Running (2)",
        "href=\"/tasks/6b0003bb686c8275d8013333\" title=\"&#60;sleep&#62; 5\">&#60;sleep&#62; 5</a> <code class=\"hint\">…013333</code>",
        "<code>6b0003bb686c8275d8013333</code>",
        "value=\"50\"",
        "&#60;half&#62;",
        "exit code 3",
        "Waiting, oldest first",
        "All that wait",
        "aria-current=\"page\">Now</a>",
        "?tab=settings\">Settings</a>",
    ] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
    assert!(!html.contains("id=\"params-json\"") && !html.contains("name=\"timeout\""), "{html}");
}

#[test]
fn a_tab_is_asked_for_by_its_address() {
    let of = |fields: serde_json::Value| {
        Tab::of(&Params { fields: fields.as_object().unwrap().clone(), ..Params::default() })
    };
    assert_eq!(of(json!({})), Tab::Now);
    assert_eq!(of(json!({"task": "6b0003bb686c8275d8013333"})), Tab::New);
    for tab in [Tab::Now, Tab::New, Tab::Settings] {
        let name = tab.about().1.strip_prefix("?tab=").unwrap_or_default();
        assert_eq!(of(json!({ "tab": name })), tab);
    }
}
