//! What tasks are called on pages: made from their params when they are shown, as their queue has it.
//!
//! `import {file.name}` has the parameter `name` of the object `file` in the place of its braces. Without such a template
//! a task is called by its `command`, if it has one.

use bson::{Bson, Document};
use disbatch_core::model::Queue;

use super::parts::cut;
use super::plain;

/// The field of a queue with the template.
pub const TITLE: &str = "title";

/// What a task is called if its queue does not say it.
const USUAL: &str = "{command}";

/// A title has so many characters at most.
const MOST: usize = 120;

/// So many characters of a parameter are looked at.
const LOOKED_AT: usize = 1_000;

/// The template of a queue, if it has one.
pub fn template(queue: &Queue) -> Option<&str> {
    queue.rest.get(TITLE).and_then(Bson::as_str).filter(|template| !template.trim().is_empty())
}

/// What a task is called, by the template of its queue: one line of text, empty if its params do not say it. Of the task it
/// takes `params` or `parameters`.
pub fn title_of(task: &Document, template: Option<&str>) -> String {
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
    use bson::doc;
    use bson::oid::ObjectId;

    use super::*;

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
    fn queues_may_have_a_template() {
        let queue = |fields: Document| {
            let mut queue = doc! { "_id": ObjectId::new(), "name": "q" };
            queue.extend(fields);
            bson::deserialize_from_document::<Queue>(queue).unwrap()
        };
        assert_eq!(template(&queue(doc! { "title": "{a}" })), Some("{a}"));
        for none in [doc! {}, doc! { "title": " " }, doc! { "title": 5 }] {
            assert_eq!(template(&queue(none)), None);
        }
    }
}
