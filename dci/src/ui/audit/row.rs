//! An entry for people.

use std::collections::HashMap;

use bson::oid::ObjectId;
use bson::{Bson, Document};
use disbatch_core::audit::{Object, ObjectKind};
use disbatch_core::model::TaskId;

use crate::ui::bulk::encoded;
use crate::ui::names::{Called, end_of};
use crate::ui::parts::{When, cut, grouped};
use crate::ui::plain;

/// A longer change is folded: characters.
const LONG: usize = 100;

/// So much of a field's name is shown.
const NAME: usize = 60;

/// What ids stand for.
#[derive(Debug, Default)]
pub struct ObjectNames {
    /// The names of the queues that there are.
    pub queues: HashMap<ObjectId, String>,
    pub tasks: Called,
}

impl ObjectNames {
    /// A task by what it is called, or else by the end of its id.
    fn task(&self, id: ObjectId) -> String {
        let called = self.tasks.of(&TaskId(id));
        if called.is_empty() { end_of(id) } else { called.to_owned() }
    }

    /// Words in which ids of queues are names.
    fn words(&self, text: &str) -> String {
        let word = |word: &str| match ObjectId::parse_str(word) {
            Ok(id) => self.queues.get(&id).cloned().unwrap_or_else(|| word.to_owned()),
            Err(_) => word.to_owned(),
        };
        text.split(' ').map(word).collect::<Vec<_>>().join(" ")
    }

    /// What an id stands for, or itself.
    fn any(&self, id: ObjectId) -> String {
        let called =
            || Some(self.tasks.of(&TaskId(id))).filter(|called| !called.is_empty()).map(str::to_owned);
        self.queues.get(&id).cloned().or_else(called).unwrap_or_else(|| id.to_hex())
    }
}

pub fn tasks_of(entry: &Document) -> Vec<TaskId> {
    let object = Object::of_entry(entry).filter(|object| object.kind == ObjectKind::Task);
    object.and_then(|object| object.id).into_iter().chain(first_task(entry)).map(TaskId).collect()
}

/// An entry.
pub struct Row {
    pub at: When,
    pub who: String,
    /// How they were recognised, and from where they came.
    pub how: String,
    pub what: String,
    /// The kind of what it was done to, before its name.
    pub kind: String,
    pub object: Option<Thing>,
    /// To which tasks, for a bulk job.
    pub about: Vec<About>,
    pub changes: Vec<Change>,
    pub result: String,
    /// The first of the tasks that were submitted: its id, and what it is called.
    pub task: Option<(ObjectId, String)>,
    pub reason: String,
}

/// Something that may have a page.
#[derive(Debug, PartialEq, Eq)]
pub struct Thing {
    pub name: String,
    pub address: Option<String>,
}

/// A part of what a bulk job is about.
#[derive(Debug, PartialEq, Eq)]
pub struct About {
    /// What of the tasks.
    pub what: String,
    /// How it must be.
    pub value: Thing,
}

/// A field that has changed.
#[derive(Debug, PartialEq, Eq)]
pub struct Change {
    pub field: String,
    /// As it was, if that is to be told.
    pub old: Option<String>,
    /// As it is, if that is to be told.
    pub new: Option<String>,
    /// Whether it is folded.
    pub is_long: bool,
}

impl Row {
    pub fn of(entry: &Document, names: &ObjectNames) -> Self {
        let (who, how) = whom(entry);
        let (kind, object) = object(entry, names);
        Self {
            at: When::exact(entry.get("at")),
            who,
            how,
            what: plain(entry.get("what")),
            kind,
            object,
            about: entry.get_document("filter").map(|filter| about(filter, names)).unwrap_or_default(),
            changes: changes(entry, names),
            result: result(entry),
            task: first_task(entry).map(|id| (id, names.task(id))),
            reason: plain(entry.get("reason")),
        }
    }
}

/// The user, and how they were recognised. Where nobody is asked there are only words.
fn whom(entry: &Document) -> (String, String) {
    let from = plain(entry.get("from"));
    let Ok(user) = entry.get_str("user") else {
        return match entry.get_str("via") {
            Ok("open") => ("anonymous".to_owned(), format!("from {from}")),
            _ => (plain(entry.get("by")), String::new()), // By an older release, in words alone.
        };
    };
    let how = match entry.get_str("via").unwrap_or_default() {
        "token" => format!("with the token {} from {from}", plain(entry.get("token_name"))),
        "session" => format!("in a session from {from}"),
        "password" => format!("with a password from {from}"),
        "proxy" => format!("through a proxy from {from}"),
        _ => format!("from {from}"), // Nothing else has a name.
    };
    (user.to_owned(), how)
}

/// What it was done to: its kind, and it by name, with its page if it has one.
fn object(entry: &Document, names: &ObjectNames) -> (String, Option<Thing>) {
    let Ok(object) = entry.get_document("object") else {
        // Entries of older releases are of bulk jobs.
        let job = entry.get_object_id("job").ok().map(|id| page_of("/bulk", id, end_of(id)));
        return (job.as_ref().map(|_| "bulk job".to_owned()).unwrap_or_default(), job);
    };
    let (kind, id) = (plain(object.get("kind")), object.get_object_id("id").ok());
    let name = Some(plain(object.get("name"))).filter(|name| !name.is_empty());
    let called = || name.clone().or_else(|| id.map(|id| id.to_hex())).unwrap_or_default();
    let thing = match (kind.as_str(), id) {
        ("queue", Some(id)) => queue(id, called(), &names.queues),
        ("task", Some(id)) => page_of("/tasks", id, names.task(id)),
        ("bulk", Some(id)) => page_of("/bulk", id, name.unwrap_or_else(|| end_of(id))),
        ("schedule", Some(id)) => page_of("/schedules", id, called()),
        ("subscription", _) => Thing { name: called(), address: Some("/subscriptions".to_owned()) },
        ("calendar", _) => Thing { name: called(), address: Some("/calendars".to_owned()) },
        ("node", _) => Thing { address: Some(format!("/nodes/{}", encoded(&called()))), name: called() },
        ("admission", _) => Thing { name: names.words(&called()), address: Some("/admission".to_owned()) },
        ("balance", _) => Thing { name: "QueueBalance".to_owned(), address: Some("/balance".to_owned()) },
        ("user", _) => Thing { name: called(), address: Some("/users".to_owned()) },
        ("files", _) => Thing { address: Some(format!("/files/{}", encoded(&called()))), name: called() },
        ("worker", _) => Thing { address: Some(format!("/workers/{}", encoded(&called()))), name: called() },
        _ => Thing { name: called(), address: None }, // Nothing else has a page.
    };
    let kind = if kind == "bulk" { "bulk job".to_owned() } else { kind };
    (kind, Some(thing).filter(|thing| !thing.name.is_empty()))
}

fn page_of(place: &str, id: ObjectId, name: String) -> Thing {
    Thing { name, address: Some(format!("{place}/{id}")) }
}

/// A queue by the name that it has now. What is gone has no page.
fn queue(id: ObjectId, otherwise: String, names: &HashMap<ObjectId, String>) -> Thing {
    match names.get(&id) {
        Some(name) => page_of("/queues", id, name.clone()),
        None => Thing { name: otherwise, address: None },
    }
}

/// What has changed, field by field. What was made has nothing before, and what is gone nothing after.
fn changes(entry: &Document, names: &ObjectNames) -> Vec<Change> {
    let part = |name: &str| entry.get_document(name).ok().cloned().unwrap_or_default();
    let (before, after) = (part("before"), part("after"));
    let what = entry.get_str("what").unwrap_or_default();
    let is_made = [" create", " add", " commit"].iter().any(|made| what.ends_with(made));
    let is_gone = what.ends_with(" delete") || what.ends_with(" remove") || what.ends_with(" revoke");
    let change = |field: &String| {
        let (was, is) = (before.get(field), after.get(field));
        let is_flag = [was, is].iter().any(|value| matches!(value, Some(Bson::Boolean(_))));
        let told = |value: Option<&Bson>| match value {
            // A queue accepts unless it is told not to; all other flags have to be set.
            None | Some(Bson::Null) if is_flag => yes_or_no(field == "accepting"),
            None | Some(Bson::Null) => "nothing".to_owned(),
            Some(value) => told(value, names),
        };
        let old = (!is_made).then(|| told(was));
        let new = (!is_gone).then(|| told(is));
        let length = [&old, &new].into_iter().flatten().map(|text| text.chars().count()).sum::<usize>();
        Change { field: cut(field, NAME), old, new, is_long: length > LONG }
    };
    let new = after.keys().filter(|field| !before.contains_key(field.as_str()));
    before.keys().chain(new).map(change).collect()
}

fn yes_or_no(is: bool) -> String {
    if is { "yes" } else { "no" }.to_owned()
}

/// A value for people: queues and tasks by their names, and other ids without what is around them.
fn told(value: &Bson, names: &ObjectNames) -> String {
    match value {
        Bson::String(text) if text.is_empty() => "\"\"".to_owned(),
        Bson::Boolean(is) => yes_or_no(*is),
        value => plain(Some(&named(value, names))),
    }
}

/// The same value, with texts in the place of ids.
fn named(value: &Bson, names: &ObjectNames) -> Bson {
    match value {
        Bson::ObjectId(id) => Bson::String(names.any(*id)),
        Bson::String(text) => Bson::String(names.words(text)),
        Bson::Array(values) => values.iter().map(|value| named(value, names)).collect::<Vec<_>>().into(),
        Bson::Document(fields) => fields
            .iter()
            .map(|(name, value)| (name.clone(), named(value, names)))
            .collect::<Document>()
            .into(),
        other => other.clone(),
    }
}

fn result(entry: &Document) -> String {
    let number = |field: &str| entry.get(field).and_then(disbatch_core::model::whole_number);
    let tasks = |count: i64| grouped(u64::try_from(count).unwrap_or(0));
    let counted = match entry.get_str("what").unwrap_or_default() {
        "tasks submit" | "schedule run" | "schedule backfill" => "submitted",
        "login refused" => "refused",
        _ => "found", // For bulk jobs.
    };
    let mut result = Vec::new();
    result.extend(number("count").map(|count| format!("{} {counted}", tasks(count))));
    result.extend(number("done").map(|done| format!("{} done", tasks(done))));
    result.extend(
        number("skipped").filter(|skipped| *skipped > 0).map(|skipped| format!("{} skipped", tasks(skipped))),
    );
    result.extend(entry.get_str("state").ok().map(str::to_owned));
    result.extend(entry.get_str("collection").ok().map(|name| format!("made of the collection {name}")));
    result.join(", ")
}

fn first_task(entry: &Document) -> Option<ObjectId> {
    entry.get_array("tasks").ok()?.first().and_then(Bson::as_object_id)
}

/// A filter for people.
fn about(filter: &Document, names: &ObjectNames) -> Vec<About> {
    let plainly = |name: String| Thing { name, address: None };
    let part = |(name, value): (&String, &Bson)| match (name.as_str(), value) {
        ("queue", Bson::ObjectId(id)) => {
            About { what: "queue".into(), value: queue(*id, id.to_hex(), &names.queues) }
        }
        ("queue", Bson::String(all)) if all == "*" => {
            About { what: "queue".into(), value: plainly("all".into()) }
        }
        ("older_than", seconds) => {
            About { what: "unchanged for".into(), value: plainly(format!("{} s", plain(Some(seconds)))) }
        }
        (other, value) => About { what: other.to_owned(), value: plainly(told(value, names)) },
    };
    filter.iter().map(part).collect()
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    fn row(entry: &Document) -> Row {
        Row::of(entry, &ObjectNames::default())
    }

    #[test]
    fn it_is_told_how_somebody_was_recognised() {
        let of = |via: &str| {
            let entry = doc! { "by": "alice", "user": "alice", "via": via, "from": "x", "token_name": "t" };
            let row = row(&entry);
            (row.who, row.how)
        };
        assert_eq!(of("session"), ("alice".into(), "in a session from x".into()));
        assert_eq!(of("token"), ("alice".into(), "with the token t from x".into()));
        assert_eq!(of("telepathy"), ("alice".into(), "from x".into()));
        let anybody = row(&doc! { "by": "the REST API from x", "via": "open", "from": "x" });
        assert_eq!((anybody.who.as_str(), anybody.how.as_str()), ("anonymous", "from x"));
        let old = row(&doc! { "by": "the REST API from x" });
        assert_eq!((old.who.as_str(), old.how.as_str()), ("the REST API from x", ""));
    }

    #[test]
    fn objects_lead_to_their_pages() {
        let id = ObjectId::parse_str("6b0003bb686c8275d70dc2f1").unwrap();
        let of = |object: Document| {
            let row = row(&doc! { "object": object });
            let thing = row.object.map(|thing| (thing.name, thing.address.unwrap_or_default()));
            (row.kind, thing)
        };
        let with = |kind: &str, name: &str, address: &str| {
            (kind.to_owned(), Some((name.to_owned(), address.to_owned())))
        };
        let hex = id.to_hex();
        assert_eq!(of(doc! { "kind": "task", "id": id }), with("task", "…0dc2f1", &format!("/tasks/{hex}")));
        assert_eq!(
            of(doc! { "kind": "bulk", "id": id }),
            with("bulk job", "…0dc2f1", &format!("/bulk/{hex}"))
        );
        assert_eq!(of(doc! { "kind": "node", "name": "a b" }), with("node", "a b", "/nodes/a%20b"));
        assert_eq!(of(doc! { "kind": "queue", "id": id, "name": "gone" }), with("queue", "gone", ""));
        assert_eq!(of(doc! { "kind": "balance" }), with("balance", "QueueBalance", "/balance"));
        let rule = doc! { "kind": "admission", "name": format!("queue {hex}") };
        assert_eq!(of(rule), with("admission", &format!("queue {hex}"), "/admission"));
        let known = ObjectNames { queues: [(id, "mail".to_owned())].into(), tasks: Called::default() };
        assert_eq!(known.words(&format!("queue {hex}, all")), format!("queue {hex}, all"), "a whole word");
        assert_eq!(known.words(&format!("queue {hex} all")), "queue mail all");
        assert_eq!(of(doc! { "kind": "counters" }), ("counters".to_owned(), None));
        let old = row(&doc! { "job": id });
        let address = old.object.unwrap().address;
        assert_eq!((old.kind.as_str(), address), ("bulk job", Some(format!("/bulk/{hex}"))));
    }

    #[test]
    fn changes_are_told_field_by_field() {
        let of = |what: &str, before: Document, after: Document| {
            let entry = doc! { "what": what, "before": before, "after": after };
            let told = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
            let changes = row(&entry).changes.into_iter();
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
        let row = Row::of(
            &entry,
            &ObjectNames { queues: [(queue, "mail".to_owned())].into(), tasks: Called::default() },
        );
        let changes = row.changes.iter().map(|change| {
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
        let row = row(&entry);
        assert_eq!(row.result, "1,200 submitted, made of the collection people");
        assert_eq!(row.task, Some((id, end_of(id))));
        assert_eq!(super::result(&doc! { "what": "login refused", "count": 3_i64 }), "3 refused");
    }
}
