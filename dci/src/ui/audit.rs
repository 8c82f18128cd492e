//! `GET /audit` for people: who did what to which object, and when.

mod row;

use std::collections::HashMap;

use actix_web::http::StatusCode;
use askama::Template;
use disbatch_core::audit::{AuditPage as EntriesPage, CHANGES, Verb};
use disbatch_core::model::Queue;
use disbatch_wire::fields;
use disbatch_wire::history::AuditSearch;

use crate::params::Params;
use crate::state::State;
use crate::ui::bulk::encoded;
use crate::ui::names::names;
use crate::ui::{Rendered, text, zone};
use crate::{audit, ui};
use row::{ObjectNames, Row, tasks_of};

/// So many entries are on a page.
const LIMIT: usize = 100;

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage {
    form: Form,
    rows: Vec<Row>,
    /// The same with only what changes something, or with all again.
    changes: String,
    /// Whether the search was broken off, as it took too long.
    too_long: bool,
    previous: String,
    next: String,
}

/// What is looked for.
#[derive(Debug, Default)]
struct Form {
    /// What can be done, and whether it is looked for.
    whats: Vec<(String, bool)>,
    queues: Vec<Queue>,
    /// The other fields, by name.
    fields: HashMap<&'static str, String>,
}

impl Form {
    fn field(&self, name: &str) -> &str {
        self.fields.get(name).map(String::as_str).unwrap_or_default()
    }

    /// How many things are looked for.
    fn set(&self) -> usize {
        self.fields.values().filter(|value| !value.is_empty()).count()
    }

    fn is_of_changes(&self) -> bool {
        self.field("what") == CHANGES
    }

    /// What is looked for and has no field that can be seen: it comes from a link.
    fn hidden(&self) -> Vec<(&'static str, &str)> {
        let hidden = ["user", "object", "name"].map(|name| (name, self.field(name)));
        hidden.into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }
}

pub async fn render(state: &State, params: &Params) -> Rendered {
    let query = audit::query(params, LIMIT, &zone::now())?;
    let (found, queues) = futures::try_join!(state.store.find_audit(&query), state.store.list_queues())?;
    let tasks = found.iter().flat_map(|found| &found.entries).flat_map(tasks_of);
    let tasks = state.titles(&queues).await?.read(&state.store, tasks).await?;
    let known = ObjectNames { queues: names(&queues), tasks };
    ui::render(StatusCode::OK, &page(form(params, queues), found, &known))
}

fn page(form: Form, found: Option<EntriesPage>, known: &ObjectNames) -> AuditPage {
    let too_long = found.is_none();
    let found = found.unwrap_or_default();
    let changes = if form.is_of_changes() { "" } else { CHANGES };
    AuditPage {
        rows: found.entries.iter().map(|entry| Row::of(entry, known)).collect(),
        too_long,
        changes: address(&form, "what", changes),
        previous: found.previous.map(|key| address(&form, ".before", &key.to_string())).unwrap_or_default(),
        next: found.next.map(|key| address(&form, ".after", &key.to_string())).unwrap_or_default(),
        form,
    }
}

/// What is looked for, for people.
fn said(what: &str) -> &str {
    if what == CHANGES { "changes only" } else { what }
}

fn form(params: &Params, mut queues: Vec<Queue>) -> Form {
    let field = |name: &str| text(params.fields.get(name)).trim().to_owned();
    let fields = fields::of::<AuditSearch>().iter().map(|name| (*name, field(name))).collect();
    let what = field("what");
    queues.sort_by_cached_key(Queue::display_name);
    let verbs = Verb::all().into_iter().filter(|verb| !verb.is_found_with_another()).map(Verb::words);
    let verbs = [CHANGES.to_owned()].into_iter().chain(verbs);
    let mut whats: Vec<(String, bool)> = verbs.map(|words| (words.clone(), words == what)).collect();
    if !what.is_empty() && !whats.iter().any(|(_, chosen)| *chosen) {
        // A link may ask for what begins with a word.
        whats.push((what, true));
    }
    Form { whats, queues, fields }
}

/// The address of the same with this field.
fn address(form: &Form, field: &str, value: &str) -> String {
    let others = fields::of::<AuditSearch>().iter().filter(|name| **name != field);
    let others = others.map(|name| (*name, form.field(name)));
    let given = others.chain([(field, value)]).filter(|(_, value)| !value.is_empty());
    let pairs: Vec<String> = given.map(|(name, value)| format!("{name}={}", encoded(value))).collect();
    if pairs.is_empty() { "/audit".to_owned() } else { format!("/audit?{}", pairs.join("&")) }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;
    use bson::{DateTime, Document, doc};
    use disbatch_core::audit::AuditKey;
    use serde_json::{Value, json};

    use super::*;
    use crate::ui::names::Called;

    const QUEUE: &str = "6b0003bb686c8275d70dc2f1";

    fn params(fields: Value) -> Params {
        Params { fields: fields.as_object().unwrap().clone(), ..Params::default() }
    }

    fn queue() -> Queue {
        let id = ObjectId::parse_str(QUEUE).unwrap();
        bson::deserialize_from_document(doc! { "_id": id, "name": "<mail>" }).unwrap()
    }

    fn html(params: &Params, entries: &[Document]) -> String {
        let known =
            ObjectNames { queues: [(queue().id.0, "<mail>".to_owned())].into(), tasks: Called::default() };
        let key = AuditKey { at: DateTime::from_millis(5), id: queue().id.0 };
        let found = EntriesPage { entries: entries.to_vec(), next: Some(key), previous: None };
        page(form(params, vec![queue()]), Some(found), &known).render().unwrap()
    }

    #[test]
    fn a_search_that_takes_too_long_says_so_and_keeps_what_was_asked() {
        let params = params(json!({"by": "<nobody>"}));
        let html = page(form(&params, vec![]), None, &ObjectNames::default()).render().unwrap();
        for part in ["It took too long", "value=\"&#60;nobody&#62;\"", "maxlength=\"200\""] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("No entry matches."), "nobody knows that");
    }

    #[test]
    fn entries_of_changes_say_what_was_and_what_is() {
        let entry = doc! {
            "at": DateTime::from_millis(1_795_163_067_344), "by": "alice from 10.0.0.1", "user": "<alice>",
            "via": "token", "token_name": "<nightly>", "from": "10.0.0.1", "what": "queue update",
            "object": { "kind": "queue", "id": queue().id.0, "name": "old" }, "queue": queue().id.0,
            "before": { "threads": 1, "reason": "<x>" }, "after": { "threads": 2, "sort": "y".repeat(500) },
        };
        let html = html(&params(json!({"what": "queue", "from": "2026-11-20"})), &[entry]);
        for part in [
            "<a href=\"/audit\" aria-current=\"page\">Audit</a>",
            "datetime=\"2026-11-20T08:24:27Z\"",
            "&#60;alice&#62;",
            "with the token &#60;nightly&#62; from 10.0.0.1",
            "queue <a href=\"/queues/6b0003bb686c8275d70dc2f1\">&#60;mail&#62;</a>",
            "threads: <del>1</del> → <ins>2</ins>",
            "reason: <del>&#60;x&#62;</del> → <ins>nothing</ins>",
            "<details><summary>sort</summary>",
            "<option value=\"queue\" selected>",
            "type=\"date\" name=\"from\" value=\"2026-11-20\"",
            "/audit?what=queue&#38;from=2026-11-20&#38;.after=5-6b0003bb686c8275d70dc2f1",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<x>") && !html.contains(" style="), "{html}");
    }

    #[test]
    fn entries_of_bulk_jobs_say_to_which_tasks() {
        let entry = doc! {
            "at": DateTime::from_millis(1_795_163_067_344), "by": "someone <x>", "what": "bulk cancel ended",
            "filter": { "queue": queue().id.0, "status": [-2], "older_than": 60.0 }, "count": 5000_i64,
            "job": queue().id.0, "reason": "a \"b\"", "state": "done", "done": 4_999_i64, "skipped": 1_i64,
        };
        let asked = params(json!({"what": "bulk cancel", "by": "some one", "queue": QUEUE, "user": "<x>"}));
        let html = html(&asked, &[entry]);
        for part in [
            "someone &#60;x&#62;",
            "bulk cancel ended",
            "<a href=\"/bulk/6b0003bb686c8275d70dc2f1\">",
            "<a href=\"/queues/6b0003bb686c8275d70dc2f1\">&#60;mail&#62;</a>",
            "unchanged for 60 s",
            "status [-2]",
            "a &#34;b&#34;",
            "5,000 found, 4,999 done, 1 skipped, done",
            "<option value=\"bulk cancel\" selected>",
            "<input type=\"hidden\" name=\"user\" value=\"&#60;x&#62;\">",
            "/audit?what=bulk%20cancel&#38;by=some%20one&#38;user=%3Cx%3E&#38;queue=6b0003bb686c8275d70dc2f1&#38;.after=5-",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        assert!(!html.contains("<mail>") && !html.contains("<x>"), "{html}");
    }

    #[test]
    fn odd_entries_are_shown_as_far_as_they_go() {
        let nasty = "<script>'\"".repeat(1000);
        let odd = doc! {
            "at": "soon", "by": &nasty, "what": 5, "filter": { &nasty: &nasty }, "count": "many", "user": &nasty,
            "via": &nasty, "object": { "kind": &nasty, "name": &nasty, "id": &nasty }, "tasks": &nasty,
            "before": { &nasty: { "$oid": &nasty } }, "after": &nasty,
        };
        let html = html(&Params::default(), &[odd, doc! {}]);
        let body = html.split("<main").nth(1).unwrap();
        assert!(!body.contains("<script") && body.contains("&#60;script&#62;&#39;&#34;"), "it is text");
        assert!(self::html(&Params::default(), &[]).contains("Nothing has been done yet."));
        assert!(self::html(&params(json!({"by": "x"})), &[]).contains("No entry matches."));
    }
}
