//! What queues and tasks are called on pages, and where the pages of things are. Titles of tasks are made from their params when they
//! are shown, as their queue has it.
//!
//! `import {file.name}` has the parameter `name` of the object `file` in the place of its braces. Without such a template
//! a task is called by its `command`, if it has one. The plugin of a queue says it for queues that do not.

use std::collections::HashMap;
use std::fmt::Display;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_core::accounts::Role;
use disbatch_core::model::{PluginName, Queue, QueueId, Selector, TaskId};
use disbatch_core::plugin::Manifest;
use disbatch_core::store::{Store, StoreError};
use futures::TryStreamExt;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use super::plain;
use super::tasks::unless_large;
use crate::access::viewer;
use crate::state::State;
use crate::ui::parts::cut;

/// What does not stand for itself in a query string.
const NOT_IN_QUERIES: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'*');

/// A value in a query string.
pub fn encoded(value: &str) -> String {
    utf8_percent_encode(value, NOT_IN_QUERIES).to_string()
}

pub fn address(path: &str, pairs: impl IntoIterator<Item = (impl AsRef<str>, impl AsRef<str>)>) -> String {
    let pairs = pairs.into_iter();
    let pairs = pairs.map(|(name, value)| format!("{}={}", encoded(name.as_ref()), encoded(value.as_ref())));
    let query: Vec<String> = pairs.collect();
    if query.is_empty() { path.to_owned() } else { format!("{path}?{}", query.join("&")) }
}

/// A thing by its name, with the page that it has: `{{ ui::link(thing) }}` in a template, see macros.html.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Link {
    pub name: String,
    /// None: it has no page.
    pub address: Option<String>,
}

impl Link {
    pub fn to(name: impl Into<String>, address: impl Into<String>) -> Self {
        Self { name: name.into(), address: Some(address.into()) }
    }

    pub fn nowhere(name: impl Into<String>) -> Self {
        Self { name: name.into(), address: None }
    }

    /// A queue that rights or rules are about, by the name that it has. `None`: it is gone.
    pub fn queue(queue: QueueId, name: Option<&String>) -> Self {
        match name {
            Some(name) => Self::to(format!("Queue {name}"), format!("/queues/{queue}")),
            None => Self::nowhere(format!("Queue {queue}, which is not there")),
        }
    }

    /// Pages of nodes are for those who see all queues.
    pub fn node(name: &str) -> Self {
        let address = viewer::may(Role::Viewer).then(|| format!("/nodes/{}", encoded(name)));
        Self { name: name.to_owned(), address }
    }
}

pub type QueueNames = HashMap<ObjectId, String>;

#[derive(Debug, Default)]
pub struct Names {
    pub queues: QueueNames,
    pub tasks: Called,
}

impl Names {
    pub async fn read(
        state: &State,
        queues: &[Queue],
        tasks: impl IntoIterator<Item = TaskId>,
    ) -> Result<Self, StoreError> {
        let tasks = state.titles(queues).await?.read(&state.store, tasks).await?;
        Ok(Self { queues: names(queues), tasks })
    }
}

pub fn names(queues: &[Queue]) -> QueueNames {
    queues.iter().map(|queue| (queue.id.0, label(queue))).collect()
}

pub fn name_of(names: &QueueNames, queue: QueueId) -> String {
    names.get(&queue.0).cloned().unwrap_or_else(|| queue.to_string())
}

/// The queue that a form asks for by its id, if it is none of its choices: there may still be something of it.
pub fn gone<'a>(queues: &[Queue], asked: &'a str) -> Option<&'a str> {
    let is_choice = asked.is_empty() || queues.iter().any(|queue| queue.id.to_string() == asked);
    (!is_choice).then_some(asked)
}

pub fn label(queue: &Queue) -> String {
    let name = queue.display_name();
    if name.is_empty() { queue.id.to_string() } else { name }
}

/// So much of it that it is recognised.
pub fn short(queue: &Queue) -> String {
    cut(&label(queue), 80)
}

/// The last part of a plugin's name, which is what tells it from others where there is little room.
pub fn end_of_plugin(name: &str) -> &str {
    name.rsplit("::").next().unwrap_or(name)
}

/// The address of a queue's page, by the name that pages call it unless that cannot be told from an id or would be read as another address.
pub fn place(id: impl Display, label: &str) -> String {
    let is_name = |c: char| c.is_alphanumeric() || "-_.: @+~".contains(c);
    let is_plain = label.chars().all(is_name) && label.chars().any(|c| c != '.') && label.trim() == label;
    match Selector::parse(label) {
        Selector::Name(_) if is_plain => format!("/queues/{}", encoded(label)),
        Selector::Name(_) | Selector::Id(_) => format!("/queues/{id}"),
    }
}

pub fn place_of(queue: &Queue) -> String {
    place(queue.id, &label(queue))
}

/// The field of a queue with the template.
pub const TITLE: &str = "title";

/// What a task is called if its queue does not say it.
const USUAL: &str = "{command}";

/// A title has so many characters at most.
const MOST: usize = 120;

/// So many characters of a parameter are looked at.
const LOOKED_AT: usize = 1_000;

/// So much of an id tells it from others.
const END: usize = 6;

/// What of a task says what it is called. Each of them may be large.
pub const FIELDS: [&str; 5] = ["queue", "params", "parameters", "array", "final_of"];

/// So much of the value of an element of an array is shown.
const VALUE: usize = 40;

/// The templates of queues.
#[derive(Debug, Clone, Default)]
pub struct Titles(HashMap<ObjectId, String>);

#[derive(Debug, Clone, Default)]
pub struct Called(HashMap<TaskId, String>);

impl Titles {
    /// Those of these queues; of one that has none, that of its plugin.
    pub fn of<'a>(queues: &[Queue], plugin: impl Fn(&PluginName) -> Option<&'a Manifest>) -> Self {
        let of_plugin = |queue: &Queue| {
            let manifest = queue.effective_plugin().ok().flatten().and_then(|name| plugin(&name));
            manifest.map(|manifest| manifest.title.clone()).filter(|title| !title.trim().is_empty())
        };
        let of = |queue: &Queue| template(queue).map(str::to_owned).or_else(|| of_plugin(queue));
        Self(queues.iter().filter_map(|queue| Some((queue.id.0, of(queue)?))).collect())
    }

    pub fn template(&self, queue: ObjectId) -> Option<&str> {
        self.0.get(&queue).map(String::as_str)
    }

    /// What a task is called. Of the task it takes `queue` besides.
    pub fn of_task(&self, task: &Document) -> String {
        title_of(task, task.get_object_id("queue").ok().and_then(|queue| self.template(queue)))
    }

    fn fields() -> Document {
        FIELDS.map(|field| (field.to_owned(), unless_large(field))).into_iter().collect()
    }

    /// What all tasks of an array are called that has this one; empty if their params do not say it.
    pub async fn of_array(&self, store: &Store, element: TaskId) -> Result<String, StoreError> {
        let found: Vec<Document> =
            store.stream_page(&[element], doc! {}, Some(Self::fields())).await?.try_collect().await?;
        let template =
            |task: &Document| task.get_object_id("queue").ok().and_then(|queue| self.template(queue));
        Ok(found.first().map(|task| shared_title(task, template(task))).unwrap_or_default())
    }

    /// What these tasks are called, those that are there: one read for all of them.
    pub async fn read(
        &self,
        store: &Store,
        ids: impl IntoIterator<Item = TaskId>,
    ) -> Result<Called, StoreError> {
        let ids: Vec<TaskId> = ids.into_iter().collect();
        if ids.is_empty() {
            return Ok(Called::default());
        }
        let tasks = store.stream_page(&ids, doc! {}, Some(Self::fields())).await?;
        let called = tasks.try_filter_map(async |task| {
            Ok(task.get_object_id("_id").ok().map(|id| (TaskId(id), self.of_task(&task))))
        });
        Ok(Called(called.try_collect().await?))
    }
}

impl Called {
    pub fn iter(&self) -> impl Iterator<Item = (&TaskId, &str)> {
        self.0.iter().map(|(id, title)| (id, title.as_str()))
    }

    /// What one of them is called; nothing if its params do not say it.
    pub fn of(&self, id: &TaskId) -> &str {
        self.0.get(id).map(String::as_str).unwrap_or_default()
    }
}

/// The end of an id, which tells it from others: its beginning is a time.
pub fn end_of(id: impl std::fmt::Display) -> String {
    let id = id.to_string();
    let end = id.char_indices().rev().nth(END - 1).and_then(|(at, _)| id.get(at..));
    end.map_or_else(|| id.clone(), |end| format!("…{end}"))
}

/// What it says by itself of what its tasks are called.
pub fn template(queue: &Queue) -> Option<&str> {
    queue.rest.get(TITLE).and_then(Bson::as_str).filter(|template| !template.trim().is_empty())
}

/// What a task is called, by the template of its queue: one line of text, empty if its params do not say it. Of the task it
/// takes `params` or `parameters`; and `array` or `final_of`, which tell those of an array apart.
pub fn title_of(task: &Document, template: Option<&str>) -> String {
    let title = shared_title(task, template);
    if title.is_empty() {
        return title;
    }
    match place_in_array(task) {
        Some(place) if !has_word(&title, &place) => format!("{title} · {place}"),
        _ => title,
    }
}

/// What tells a task from the others of its array: the value that it is for, or its number.
fn place_in_array(task: &Document) -> Option<String> {
    if task.get_object_id("final_of").is_ok() {
        return Some("final".to_owned());
    }
    let array = task.get_document("array").ok()?;
    let value = on_one_line(&plain(array.get("value").or_else(|| array.get("index"))));
    Some(cut(&value, VALUE)).filter(|value| !value.is_empty())
}

/// Whether a text has a word, or several, as such and not as a part of another.
fn has_word(text: &str, word: &str) -> bool {
    let is_end = |c: Option<char>| c.is_none_or(|c| !c.is_alphanumeric());
    text.match_indices(word).any(|(at, _)| {
        let (before, after) = (text.get(..at), text.get(at + word.len()..));
        is_end(before.and_then(|text| text.chars().next_back()))
            && is_end(after.and_then(|text| text.chars().next()))
    })
}

/// What all tasks of an array are called.
pub fn shared_title(task: &Document, template: Option<&str>) -> String {
    let params = task.get("params").or_else(|| task.get("parameters")).and_then(Bson::as_document);
    let Some(params) = params else { return String::new() };
    let (mut title, mut is_known) = (String::new(), false);
    let mut rest = template.unwrap_or(USUAL);
    while let Some((before, behind)) = rest.split_once('{') {
        title.push_str(before);
        let Some((name, after)) = behind.split_once('}') else {
            rest = behind;
            title.push('{');
            break;
        };
        let value = value(params, name.trim());
        is_known |= !value.is_empty();
        title.push_str(&value);
        rest = after;
    }
    title.push_str(rest);
    // What has nothing of this task tells it from no other.
    if is_known { cut(&on_one_line(&title), MOST) } else { String::new() }
}

/// A parameter, or a part of one, as text.
fn value(params: &Document, path: &str) -> String {
    let mut parts = path.split('.');
    let first = parts.next().and_then(|name| params.get(name));
    let found = parts.fold(first, |value, name| value?.as_document()?.get(name));
    match found {
        Some(Bson::Array(values)) => {
            let words: Vec<String> =
                values.iter().take(LOOKED_AT / 10).map(|value| plain(Some(value))).collect();
            cut(&words.join(" "), LOOKED_AT)
        }
        value => cut(&plain(value), LOOKED_AT),
    }
}

fn on_one_line(text: &str) -> String {
    let words = text.split(|c: char| c.is_whitespace() || c.is_control()).filter(|word| !word.is_empty());
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    impl<const N: usize> From<[(TaskId, String); N]> for Called {
        fn from(all: [(TaskId, String); N]) -> Self {
            Self(all.into())
        }
    }

    #[test]
    fn a_queue_is_where_its_name_says() {
        let id = ObjectId::from_bytes([1; 12]);
        assert_eq!(place(id, "mail 2"), "/queues/mail%202");
        assert_eq!(place(id, "é"), "/queues/%C3%A9");
        for odd in ["", ".", "..", "a/b", "a/groups", "a%2Fb", "x?y", " mail", "6b0003bb686c8275d70dc2f1"] {
            assert_eq!(place(id, odd), format!("/queues/{id}"), "{odd:?}");
        }
    }

    #[test]
    fn a_queue_without_a_name_has_its_id() {
        let id = ObjectId::from_bytes([1; 12]);
        let queue =
            |name: &str| bson::deserialize_from_document::<Queue>(doc! { "_id": id, "name": name }).unwrap();
        assert_eq!(label(&queue("")), id.to_hex());
        assert_eq!(short(&queue(&"é".repeat(99))).chars().count(), 81);
        assert_eq!(names(&[queue("<q>")])[&id], "<q>");
        assert_eq!(["A::B::C", "D", ""].map(end_of_plugin), ["C", "D", ""]);
    }

    #[test]
    fn tasks_are_called_as_their_queue_has_it() {
        let task = doc! { "params": {
            "command": ["convert", "-q", 5], "file": { "name": "a\n <b>\u{7}" }, "n": 3_i64,
        } };
        let of = |template| title_of(&task, Some(template));
        assert_eq!(title_of(&task, None), "convert -q 5");
        assert_eq!(of("import {file.name} ({ n })"), "import a <b> (3)");
        assert_eq!(of("{n} of {gone} {"), "3 of {");
        assert_eq!(of("{gone}, {file.name.deeper}"), "", "nothing of it is known");
        assert_eq!(title_of(&doc! { "params": { "n": 3 } }, None), "");
        assert_eq!(title_of(&doc! { "params": "odd" }, None), "");
        let long = doc! { "parameters": { "command": "é".repeat(5_000) } };
        assert_eq!(title_of(&long, None).chars().count(), MOST + 1);
    }

    #[test]
    fn elements_of_an_array_are_told_apart() {
        let of = |array: Document, template: &str| {
            let task = doc! { "params": { "command": "convert 12", "item": "b c" }, "array": array };
            title_of(&task, Some(template))
        };
        assert_eq!(of(doc! { "index": 3_i64 }, "{command}"), "convert 12 · 3");
        assert_eq!(of(doc! { "index": 1_i64 }, "{command}"), "convert 12 · 1", "1 is a part of 12");
        assert_eq!(of(doc! { "index": 12_i64 }, "{command}"), "convert 12", "which says it");
        assert_eq!(of(doc! { "index": 1_i64, "value": "b\nc" }, "{command}"), "convert 12 · b c");
        assert_eq!(of(doc! { "index": 1_i64, "value": "b c" }, "{item}, {command}"), "b c, convert 12");
        assert_eq!(of(doc! { "index": 3_i64 }, "{gone}"), "", "its params say nothing");
        let long = of(doc! { "index": 1_i64, "value": "é".repeat(99) }, "{command}");
        assert_eq!(long, format!("convert 12 · {}…", "é".repeat(VALUE)));
        let last = doc! { "params": { "command": "merge" }, "final_of": ObjectId::from_bytes([1; 12]) };
        assert_eq!(
            (title_of(&last, None), shared_title(&last, None)),
            ("merge · final".into(), "merge".into())
        );
    }

    #[test]
    fn queues_may_have_a_template() {
        let queue = |fields: Document| {
            let mut queue = doc! { "_id": ObjectId::new(), "name": "q" };
            queue.extend(fields);
            bson::deserialize_from_document::<Queue>(queue).unwrap()
        };
        assert_eq!(template(&queue(doc! { "title": "{a}" })), Some("{a}"));
        let manifest = Manifest { title: "{b}".to_owned(), ..Manifest::of_perl_module("P".parse().unwrap()) };
        let titles = |fields: Document| {
            Titles::of(&[queue(fields)], |name| (name.as_str() == "P").then_some(&manifest))
        };
        let of_task = |fields: Document| {
            let (task, titles) = (doc! { "params": { "a": 1, "b": 2, "command": "c" } }, titles(fields));
            let queue = titles.0.keys().next().copied().unwrap_or_default();
            let mut task = task;
            task.insert("queue", queue);
            titles.of_task(&task)
        };
        assert_eq!(of_task(doc! { "plugin": "P", "title": "{a}" }), "1");
        assert_eq!(of_task(doc! { "plugin": "P", "title": " " }), "2", "its plugin says it");
        assert_eq!(of_task(doc! { "plugin": "Q" }), "c");
        assert_eq!([end_of("6b0003bb686c8275d8013333"), end_of("odd")], ["…013333", "odd"]);
        for none in [doc! {}, doc! { "title": " " }, doc! { "title": 5 }] {
            assert_eq!(template(&queue(none)), None);
        }
    }
}
