//! Tags of tasks, as `customer=7`: what they are found by. A submission gives them, and the queue's `index` says which parameters
//! give more ([`TagIndex`]). One index has the tags of all tasks that have any, and one those of archived tasks, so that a search
//! reads no other tasks.

use std::collections::HashMap;

use bson::{Bson, Document, doc};

use crate::model::{QueueId, Task};
use crate::store::{Store, StoreError, collect};

/// The field of a task. In a filter: all that it must have.
pub const TAGS: &str = "tags";

/// In a filter: those of which it must have one.
pub const ANY_TAGS: &str = "any_tags";

/// The setting of a queue.
pub const INDEX: &str = "index";

/// A task is submitted with so many at most, and so many are asked for at once.
const MOST: usize = 20;

/// A tag has so many characters at most.
const LONGEST: usize = 128;

const MOST_PATHS: usize = 10;

/// Where the paths of an index begin.
const ROOT: &str = "params.";

/// Which parameters of a queue's tasks are tags: what each is called there, and its path.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TagIndex(Vec<(String, String)>);

/// Tags, each once, in the order in which they are given.
///
/// # Errors
/// What follows the name of what has them: which of them is none, or that there are too many.
pub fn checked(given: Vec<String>) -> Result<Vec<String>, String> {
    let expected = format!("text of 1 to {LONGEST} characters, without control characters");
    several(given, MOST, is_tag, &expected)
}

/// The tags that are stored, and none of what is something else.
pub fn stored(tags: Option<&Bson>) -> Vec<String> {
    let tags = tags.and_then(Bson::as_array).into_iter().flatten();
    tags.filter_map(Bson::as_str).map(str::to_owned).collect()
}

/// Finds tasks that have `all` of these tags, and one of `any` if there are some. `None`: that is no restriction.
pub fn query(all: &[String], any: &[String]) -> Option<Document> {
    let both = [("$all", all), ("$in", any)].into_iter().filter(|(_, tags)| !tags.is_empty());
    let both: Document = both.map(|(how, tags)| (how.to_owned(), tags.to_vec().into())).collect();
    (!both.is_empty()).then(|| doc! { TAGS: both })
}

fn is_tag(text: &str) -> bool {
    (1..=LONGEST).contains(&text.chars().count()) && !text.contains(char::is_control)
}

fn several(
    given: Vec<String>,
    most: usize,
    fits: impl Fn(&str) -> bool,
    expected: &str,
) -> Result<Vec<String>, String> {
    let mut once: Vec<String> = Vec::new();
    for (place, text) in given.into_iter().enumerate() {
        if !fits(&text) {
            return Err(format!("[{place}] must be {expected}"));
        }
        if !once.contains(&text) {
            once.push(text);
        }
        // At once: looking through very many takes long.
        if once.len() > most {
            return Err(format!(" must be at most {most}"));
        }
    }
    Ok(once)
}

impl TagIndex {
    /// That of these paths, as `params.customer` or `params.user.id`. A parameter is called by the last part of its path, or by all
    /// behind `params` if the last part is that of another one, too.
    ///
    /// # Errors
    /// What follows the name of what has them: which of them is none, or that there are too many.
    pub fn of(paths: Vec<String>) -> Result<Self, String> {
        let is_path = |path: &str| {
            let parts = path.strip_prefix(ROOT).filter(|_| is_tag(path));
            parts.is_some_and(|parts| parts.split('.').all(|part| !part.is_empty()))
        };
        let expected = format!("the path of a parameter, as {ROOT}customer or {ROOT}user.id");
        let paths = several(paths, MOST_PATHS, is_path, &expected)?;
        let last = |path: &str| path.rsplit('.').next().unwrap_or_default().to_owned();
        let name = |path: &String| {
            let is_alone = paths.iter().filter(|other| last(other) == last(path)).count() == 1;
            let path = path.strip_prefix(ROOT).unwrap_or(path).to_owned();
            (if is_alone { last(&path) } else { path.clone() }, path)
        };
        Ok(Self(paths.iter().map(name).collect()))
    }

    /// What is stored. One that this release does not know is none.
    pub fn stored(paths: Option<&Bson>) -> Self {
        Self::of(stored(paths)).unwrap_or_default()
    }

    pub fn paths(&self) -> Vec<String> {
        self.0.iter().map(|(_, path)| format!("{ROOT}{path}")).collect()
    }

    /// Adds to the tags of a new task what it has in its parameters: text, numbers, true and false. What would be no tag, as it is
    /// too long, is left out.
    pub(crate) fn mark(&self, task: &mut Document) {
        let found = self.found(task);
        if !found.is_empty() {
            let own = stored(task.get(TAGS));
            let more = found.into_iter().filter(|tag| !own.contains(tag));
            task.insert(TAGS, own.iter().cloned().chain(more).collect::<Vec<String>>());
        }
    }

    /// The tags that a task was given: all but those that it has in its parameters.
    pub fn given(&self, task: &Document) -> Vec<String> {
        let found = self.found(task);
        stored(task.get(TAGS)).into_iter().filter(|tag| !found.contains(tag)).collect()
    }

    fn found(&self, task: &Document) -> Vec<String> {
        let Ok(params) = task.get_document("params") else { return Vec::new() };
        let tag = |(name, path): &(String, String)| Some(format!("{name}={}", text(at(params, path)?)?));
        self.0.iter().filter_map(tag).filter(|tag| is_tag(tag)).collect()
    }
}

fn at<'a>(params: &'a Document, path: &str) -> Option<&'a Bson> {
    match path.split_once('.') {
        None => params.get(path),
        Some((first, rest)) => at(params.get_document(first).ok()?, rest),
    }
}

fn text(value: &Bson) -> Option<String> {
    match value {
        Bson::String(text) => Some(text.clone()),
        Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) | Bson::Boolean(_) => Some(value.to_string()),
        _ => None, // Nothing else is a single value that people write.
    }
}

impl Store {
    /// The tags that `task` has with these parameters in place of its own.
    pub(crate) async fn tags_with(&self, task: &Task, params: &Document) -> Result<Vec<String>, StoreError> {
        let queue = self.queues().find_one(doc! { "_id": task.queue }).projection(doc! { INDEX: 1 }).await?;
        let queue = queue.map(Document::from).unwrap_or_default();
        let index = TagIndex::stored(queue.get(INDEX));
        let own = index.given(&doc! { "params": task.params().clone(), TAGS: stored(task.rest.get(TAGS)) });
        let mut with = doc! { "params": params.clone(), TAGS: own };
        index.mark(&mut with);
        Ok(stored(with.get(TAGS)))
    }

    /// The indexes of those queues that have one.
    pub(crate) async fn tag_indexes(&self) -> Result<HashMap<QueueId, TagIndex>, StoreError> {
        let theirs = doc! { INDEX: { "$exists": true } };
        let found = collect(self.queues().find(theirs).projection(doc! { INDEX: 1 })).await?;
        let of = |queue: &Document| {
            Some((QueueId(queue.get_object_id("_id").ok()?), TagIndex::stored(queue.get(INDEX))))
        };
        Ok(found.iter().filter_map(of).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(texts: &[&str]) -> Vec<String> {
        texts.iter().map(|text| (*text).to_owned()).collect()
    }

    fn marked(paths: &[&str], mut task: Document) -> Vec<String> {
        TagIndex::of(texts(paths)).unwrap().mark(&mut task);
        stored(task.get(TAGS))
    }

    #[test]
    fn tags_are_there_once_in_their_order() {
        assert_eq!(checked(texts(&["b=2", "a, b", "b=2"])), Ok(texts(&["b=2", "a, b"])));
        let many = (0..=MOST).map(|number| number.to_string()).collect();
        assert_eq!(checked(many).unwrap_err(), " must be at most 20");
        for wrong in ["", "a\nb", &"x".repeat(LONGEST + 1)] {
            let error = checked(texts(&["fits", wrong])).unwrap_err();
            assert_eq!(error, "[1] must be text of 1 to 128 characters, without control characters");
        }
    }

    #[test]
    fn parameters_are_tags_by_the_last_part_of_their_path() {
        let params = doc! {
            "customer": 7, "user": { "id": "ann", "of": [1] }, "order": { "id": 5_i64, "paid": true, "sum": 2.0 },
            "long": "x".repeat(LONGEST), "none": null, "lines": "a\nb",
        };
        let task = || doc! { "params": params.clone(), TAGS: ["mail", "customer=7"] };
        let paths = ["params.user.id", "params.customer", "params.order.paid", "params.order.sum"];
        let expected = ["mail", "customer=7", "id=ann", "paid=true", "sum=2"];
        assert_eq!(marked(&paths, task()), expected);
        let same = ["params.user.id", "params.order.id"];
        assert_eq!(marked(&same, doc! { "params": params.clone() }), ["user.id=ann", "order.id=5"]);
        let nothing = [
            "params.long",
            "params.none",
            "params.lines",
            "params.user",
            "params.user.of",
            "params.customer.x",
        ];
        assert_eq!(marked(&nothing, task()), ["mail", "customer=7"]);
        let untouched = doc! { "params": { "a": 1 } };
        let mut task = untouched.clone();
        TagIndex::of(texts(&["params.b"])).unwrap().mark(&mut task);
        assert_eq!(task, untouched);
    }

    #[test]
    fn an_index_has_paths_of_parameters() {
        let paths = texts(&["params.b", "params.a.b", "params.b"]);
        assert_eq!(TagIndex::of(paths).unwrap().paths(), ["params.b", "params.a.b"]);
        let expected = "must be the path of a parameter, as params.customer or params.user.id";
        for wrong in ["customer", "params", "params.", "params.a..b", "status", "params.a\n"] {
            let error = TagIndex::of(texts(&["params.a", wrong])).unwrap_err();
            assert_eq!(error, format!("[1] {expected}"), "{wrong:?}");
        }
        let many = (0..=MOST_PATHS).map(|number| format!("params.{number}")).collect();
        assert_eq!(TagIndex::of(many).unwrap_err(), " must be at most 10");
        assert_eq!(TagIndex::stored(Some(&"params.a".into())), TagIndex::default());
    }

    #[test]
    fn a_search_is_for_all_or_any() {
        let (all, any) = (texts(&["a", "b"]), texts(&["c"]));
        assert_eq!(query(&[], &[]), None);
        assert_eq!(query(&all, &[]), Some(doc! { TAGS: { "$all": ["a", "b"] } }));
        assert_eq!(query(&all, &any), Some(doc! { TAGS: { "$all": ["a", "b"], "$in": ["c"] } }));
    }
}
