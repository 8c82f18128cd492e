use bson::{DateTime, doc};
use disbatch_core::audit::AuditKey;
use serde_json::{Value, json};

use super::*;

const QUEUE: &str = "6b0003bb686c8275d70dc2f1";

fn params(fields: Value) -> Params {
    Params { fields: fields.as_object().unwrap().clone(), ..Params::default() }
}

fn queue() -> Queue {
    let id = ObjectId::parse_str(QUEUE).unwrap();
    bson::deserialize_from_document(doc! { "_id": id, "name": "<mail>" }).unwrap()
}

fn html(params: &Params, entries: &[Document]) -> String {
    let known = Names { queues: [(queue().id.0, "<mail>".to_owned())].into(), ..Names::default() };
    let key = AuditKey { at: DateTime::from_millis(5), id: queue().id.0 };
    let found = EntriesPage { rows: entries.to_vec(), next: Some(key), previous: None };
    page(form(params, vec![queue()]), Some(found), &known).render().unwrap()
}

#[test]
fn a_search_that_takes_too_long_says_so_and_keeps_what_was_asked() {
    let params = params(json!({"by": "<nobody>"}));
    let html = page(form(&params, vec![]), None, &Names::default()).render().unwrap();
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

#[test]
fn it_is_told_how_somebody_was_recognised() {
    let of = |via: &str| {
        whom(&doc! { "by": "alice", "user": "alice", "via": via, "from": "x", "token_name": "t" })
    };
    assert_eq!(of("session"), ("alice".into(), "in a session from x".into()));
    assert_eq!(of("token"), ("alice".into(), "with the token t from x".into()));
    assert_eq!(of("telepathy"), ("alice".into(), "from x".into()));
    let anybody = whom(&doc! { "by": "the REST API from x", "via": "open", "from": "x" });
    assert_eq!(anybody, ("anonymous".into(), "from x".into()));
    let old = whom(&doc! { "by": "the REST API from x" });
    assert_eq!(old, ("the REST API from x".into(), String::new()));
}

#[test]
fn objects_lead_to_their_pages() {
    let id = ObjectId::parse_str("6b0003bb686c8275d70dc2f1").unwrap();
    let of = |of: Document| {
        let (kind, thing) = object(&doc! { "object": of }, &Names::default());
        (kind, thing.map(|thing| (thing.name, thing.address.unwrap_or_default())))
    };
    let with = |kind: &str, name: &str, address: &str| {
        (kind.to_owned(), Some((name.to_owned(), address.to_owned())))
    };
    let hex = id.to_hex();
    assert_eq!(of(doc! { "kind": "task", "id": id }), with("task", "…0dc2f1", &format!("/tasks/{hex}")));
    assert_eq!(of(doc! { "kind": "bulk", "id": id }), with("bulk job", "…0dc2f1", &format!("/bulk/{hex}")));
    assert_eq!(of(doc! { "kind": "node", "name": "a b" }), with("node", "a b", "/nodes/a%20b"));
    assert_eq!(of(doc! { "kind": "queue", "id": id, "name": "gone" }), with("queue", "gone", ""));
    assert_eq!(of(doc! { "kind": "balance" }), with("balance", "QueueBalance", "/balance"));
    let rule = doc! { "kind": "admission", "name": format!("queue {hex}") };
    assert_eq!(of(rule), with("admission", &format!("queue {hex}"), "/admission"));
    let known = Names { queues: [(id, "mail".to_owned())].into(), ..Names::default() };
    assert_eq!(known.words(&format!("queue {hex}, all")), format!("queue {hex}, all"), "a whole word");
    assert_eq!(known.words(&format!("queue {hex} all")), "queue mail all");
    assert_eq!(of(doc! { "kind": "counters" }), ("counters".to_owned(), None));
    let (kind, old) = object(&doc! { "job": id }, &Names::default());
    assert_eq!((kind.as_str(), old.unwrap().address), ("bulk job", Some(format!("/bulk/{hex}"))));
}

#[test]
fn changes_are_told_field_by_field() {
    let of = |what: &str, before: Document, after: Document| {
        let entry = doc! { "what": what, "before": before, "after": after };
        let told = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
        let changes = changes(&entry, &Names::default()).into_iter();
        changes.map(|c| format!("{} {} {}", c.field, told(c.old), told(c.new))).collect::<Vec<_>>()
    };
    let before = doc! { "threads": 1, "reason": "x" };
    let update = of("queue update", before, doc! { "threads": 2, "sort": "" });
    assert_eq!(update, ["threads 1 2", "reason x nothing", "sort nothing \"\""]);
    assert_eq!(of("queue create", doc! {}, doc! { "name": "mail" }), ["name - mail"]);
    assert_eq!(of("queue delete", doc! { "name": "mail" }, doc! {}), ["name mail -"]);
    assert_eq!(of("balance update", doc! {}, doc! { "queues": [["a"]] }), ["queues nothing [[\"a\"]]"]);
}

#[test]
fn flags_and_ids_are_told_as_people_say_them() {
    let (queue, other) = (ObjectId::from_bytes([7; 12]), ObjectId::from_bytes([8; 12]));
    let entry = doc! {
        "what": "schedule update",
        "before": { "queue": other, "paused": Bson::Null, "locks": [] },
        "after": { "queue": queue, "paused": true, "accepting": false, "deep": { "of": [queue] } },
    };
    let known = Names { queues: [(queue, "mail".to_owned())].into(), ..Names::default() };
    let changes = changes(&entry, &known);
    let changes = changes.iter().map(|change| {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        (change.field.as_str(), text(&change.old), text(&change.new))
    });
    let expected = [
        ("queue", other.to_hex(), "mail".to_owned()),
        ("paused", "no".into(), "yes".into()),
        ("locks", "[]".into(), "nothing".into()),
        ("accepting", "yes".into(), "no".into()),
        ("deep", "nothing".into(), "{\"of\":[\"mail\"]}".into()),
    ];
    assert_eq!(changes.collect::<Vec<_>>(), expected);
}

#[test]
fn submissions_lead_to_their_first_task() {
    let id = ObjectId::new();
    let entry = doc! { "what": "tasks submit", "count": 1200_i64, "tasks": [id], "collection": "people" };
    assert_eq!(super::result(&entry), "1,200 submitted, made of the collection people");
    assert_eq!(first_task(&entry), Some(id));
    assert_eq!(Names::default().task(&id), end_of(id));
    assert_eq!(super::result(&doc! { "what": "login refused", "count": 3_i64 }), "3 refused");
}
