//! `GET /audit` for people: who did what to which object, and when.

use std::collections::HashMap;

use actix_web::web::Data;
use askama::Template;
use bson::oid::ObjectId;
use bson::{Bson, Document};
use disbatch_core::audit::{AuditPage as EntriesPage, CHANGES, Object, ObjectKind, Verb};
use disbatch_core::model::{Queue, TaskId};
use disbatch_wire::history::AuditSearch;
use disbatch_wire::options::field_names;

use crate::params::{Lenient, Params};
use crate::state::State;
use crate::ui::names::{self, Link, Names, QueueNames, encoded, end_of};
use crate::ui::parts::{cut, grouped};
use crate::ui::{Rendered, plain, text, zone};
use crate::{history, ui};

const LIMIT: usize = 100;

#[derive(Template)]
#[template(path = "audit.html")]
struct AuditPage<'a> {
    form: Form,
    entries: Vec<Document>,
    known: &'a Names,
    /// The same with only what changes something, or with all again.
    changes: String,
    /// Whether the search was broken off, as it took too long.
    too_long: bool,
    previous: String,
    next: String,
}

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

    /// What is looked for and has no field that can be seen: it comes from a link.
    fn hidden(&self) -> Vec<(&'static str, &str)> {
        let hidden = ["user", "object", "name"].map(|name| (name, self.field(name)));
        hidden.into_iter().filter(|(_, value)| !value.is_empty()).collect()
    }
}

pub async fn render(state: Data<State>, Lenient(params): Lenient) -> Rendered {
    let query = history::audit_query(&params, LIMIT, &zone::now())?;
    let (found, queues) = futures::try_join!(state.store.find_audit(&query), state.store.list_queues())?;
    let tasks = found.iter().flat_map(|found| &found.rows).flat_map(tasks_of);
    let known = Names::read(&state, &queues, tasks).await?;
    ui::render(&page(form(&params, queues), found, &known))
}

fn page(form: Form, found: Option<EntriesPage>, known: &Names) -> AuditPage<'_> {
    let too_long = found.is_none();
    let found = found.unwrap_or_default();
    let changes = if form.field("what") == CHANGES { "" } else { CHANGES };
    AuditPage {
        entries: found.rows,
        known,
        too_long,
        changes: address(&form, "what", changes),
        previous: found.previous.map(|key| address(&form, ".before", &key.to_string())).unwrap_or_default(),
        next: found.next.map(|key| address(&form, ".after", &key.to_string())).unwrap_or_default(),
        form,
    }
}

fn said(what: &str) -> &str {
    if what == CHANGES { "changes only" } else { what }
}

fn form(params: &Params, mut queues: Vec<Queue>) -> Form {
    let field = |name: &str| text(params.fields.get(name)).trim().to_owned();
    let fields = field_names::<AuditSearch>().iter().map(|name| (*name, field(name))).collect();
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
    let others = field_names::<AuditSearch>().iter().filter(|name| **name != field);
    let others = others.map(|name| (*name, form.field(name)));
    names::address("/audit", others.chain([(field, value)]).filter(|(_, value)| !value.is_empty()))
}

/// A longer change is folded: characters.
const LONG: usize = 100;

/// So much of a field's name is shown.
const NAME: usize = 60;

/// What ids of entries stand for.
impl Names {
    fn task(&self, id: &ObjectId) -> String {
        let called = self.tasks.of(&TaskId(*id));
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

fn tasks_of(entry: &Document) -> Vec<TaskId> {
    let object = Object::of_entry(entry).filter(|object| object.kind == ObjectKind::Task);
    object.and_then(|object| object.id).into_iter().chain(first_task(entry)).map(TaskId).collect()
}

#[derive(Debug, PartialEq, Eq)]
struct Change {
    field: String,
    /// As it was, if that is to be told.
    old: Option<String>,
    /// As it is, if that is to be told.
    new: Option<String>,
    /// Whether it is folded.
    is_long: bool,
}

/// The user, how they were recognised, and from where they came. Where nobody is asked there are only words.
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
fn object(entry: &Document, names: &Names) -> (String, Option<Link>) {
    let Ok(object) = entry.get_document("object") else {
        // Entries of older releases are of bulk jobs.
        let job = entry.get_object_id("job").ok().map(|id| page_of("/bulk", id, end_of(id)));
        return (job.as_ref().map(|_| "bulk job".to_owned()).unwrap_or_default(), job);
    };
    let (kind, id) = (plain(object.get("kind")), object.get_object_id("id").ok());
    let name = Some(plain(object.get("name"))).filter(|name| !name.is_empty());
    let called = || name.clone().or_else(|| id.map(|id| id.to_hex())).unwrap_or_default();
    let by_name = |place: &str| Link::to(called(), format!("{place}/{}", encoded(&called())));
    let thing = match (kind.as_str(), id) {
        ("queue", Some(id)) => queue(id, called(), &names.queues),
        ("task", Some(id)) => page_of("/tasks", id, names.task(&id)),
        ("bulk", Some(id)) => page_of("/bulk", id, name.unwrap_or_else(|| end_of(id))),
        ("schedule", Some(id)) => page_of("/schedules", id, called()),
        ("subscription", _) => Link::to(called(), "/subscriptions"),
        ("calendar", _) => Link::to(called(), "/calendars"),
        ("node", _) => by_name("/nodes"),
        ("admission", _) => Link::to(names.words(&called()), "/admission"),
        ("balance", _) => Link::to("QueueBalance", "/balance"),
        ("user", _) => Link::to(called(), "/users"),
        ("files", _) => by_name("/files"),
        ("worker", _) => by_name("/workers"),
        _ => Link::nowhere(called()), // Nothing else has a page.
    };
    let kind = if kind == "bulk" { "bulk job".to_owned() } else { kind };
    (kind, Some(thing).filter(|thing| !thing.name.is_empty()))
}

fn page_of(place: &str, id: ObjectId, name: String) -> Link {
    Link::to(name, format!("{place}/{id}"))
}

/// A queue by the name that it has now. What is gone has no page.
fn queue(id: ObjectId, otherwise: String, names: &QueueNames) -> Link {
    match names.get(&id) {
        Some(name) => page_of("/queues", id, name.clone()),
        None => Link::nowhere(otherwise),
    }
}

/// What has changed, field by field. What was made has nothing before, and what is gone nothing after.
fn changes(entry: &Document, names: &Names) -> Vec<Change> {
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
fn told(value: &Bson, names: &Names) -> String {
    match value {
        Bson::String(text) if text.is_empty() => "\"\"".to_owned(),
        Bson::Boolean(is) => yes_or_no(*is),
        value => plain(Some(&named(value, names))),
    }
}

/// The same value, with texts in the place of ids.
fn named(value: &Bson, names: &Names) -> Bson {
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
    let number = |field: &str| ui::integer(entry, field);
    let counted = match entry.get_str("what").unwrap_or_default() {
        "tasks submit" | "schedule run" | "schedule backfill" => "submitted",
        "login refused" => "refused",
        _ => "found", // For bulk jobs.
    };
    let skipped = number("skipped").filter(|skipped| *skipped > 0);
    let result = [
        number("count").map(|count| format!("{} {counted}", grouped(count))),
        number("done").map(|done| format!("{} done", grouped(done))),
        skipped.map(|skipped| format!("{} skipped", grouped(skipped))),
        entry.get_str("state").ok().map(str::to_owned),
        entry.get_str("collection").ok().map(|name| format!("made of the collection {name}")),
    ];
    result.into_iter().flatten().collect::<Vec<_>>().join(", ")
}

fn first_task(entry: &Document) -> Option<ObjectId> {
    entry.get_array("tasks").ok()?.first().and_then(Bson::as_object_id)
}

/// To which tasks, for a bulk job: what of them, and how it must be.
fn about(entry: &Document, names: &Names) -> Vec<(String, Link)> {
    let part = |(name, value): (&String, &Bson)| {
        let (what, value) = match (name.as_str(), value) {
            ("queue", Bson::ObjectId(id)) => ("queue", queue(*id, id.to_hex(), &names.queues)),
            ("queue", Bson::String(all)) if all == "*" => ("queue", Link::nowhere("all")),
            ("older_than", seconds) => {
                ("unchanged for", Link::nowhere(format!("{} s", plain(Some(seconds)))))
            }
            (other, value) => (other, Link::nowhere(told(value, names))),
        };
        (what.to_owned(), value)
    };
    entry.get_document("filter").into_iter().flatten().map(part).collect()
}

#[cfg(test)]
mod tests;
