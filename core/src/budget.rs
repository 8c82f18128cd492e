//! Budgets: how many bytes of BSON each part of a task may take, so that what is accepted can go through its whole life.
//!
//! MongoDB stores documents of at most 16 MiB, and a task grows: by its history, and by what its runs leave. All that one is given and
//! all that it grows by fits together. Output has what is left: where that is little it goes to GridFS (`gfs`), as output above 15 MiB
//! does in any case. What large tasks need belongs into a file set, which has no such limit.
//!
//! Documents of other programs keep no budget. Those that have no room for a run are ended when they are claimed
//! ([`has_room_for_a_run`]); of the others, what has no room is left out when it is to be stored.

use bson::{Bson, Document, RawDocumentBuf};

use crate::model::{AWAITING, STEPS};
use crate::secrets;
use crate::store::StoreError;

const KIB: usize = 1024;
const MIB: usize = 1024 * KIB;

pub const DOCUMENT: usize = 16 * MIB;

/// `params` and `.steps` of a new task, together.
pub const PARAMS: usize = 13 * MIB;

/// All other options of a new task, with the fields that each has.
pub const OPTIONS: usize = 256 * KIB;

pub const RESULT: usize = MIB;

/// What a plugin saves for its next run.
pub const STORAGE: usize = MIB;

/// What becomes of steps, all together.
pub const STATES: usize = 256 * KIB;

/// The facts that a plugin tells of its run.
pub const FACTS: usize = 16 * KIB;

pub const MESSAGE: usize = 4 * KIB;

pub const ENTRIES: i32 = 50;

pub const NOTE: usize = 1_000;

/// The name of a node, as far as it is reckoned with.
const NODE: usize = 300;

/// An entry without its note and its node.
const ENTRY: usize = 100;

/// Who wants the end of a task, and why.
pub const CANCEL: usize = 8 * KIB;

/// What a web service says of the end of its task.
pub const SAID: usize = 64 * KIB;

/// What the answer of a person may have, as JSON.
pub const REPLY: usize = 64 * KIB;

/// What a task may grow by, by what that is.
pub const GROWTH: [(&str, usize); 14] = [
    ("history", ENTRIES.unsigned_abs() as usize * (ENTRY + NODE + NOTE)),
    ("result", RESULT),
    (crate::task::STORAGE, STORAGE),
    (STEPS, STATES),
    // How a plugin ended, with its facts. Some of it is in fields of its own, too.
    ("exit", 2 * 2 * FACTS),
    ("progress", 2 * MESSAGE),
    ("cancel", CANCEL),
    // What a claim, a lease, a runner, uploads and a web service leave in a task while it runs.
    ("run", 16 * KIB),
    ("message", SAID),
    // What stands in place of output that could not be stored, and the notes that it ends with.
    ("complaints", 32 * KIB),
    (crate::task::ERROR, 4 * crate::task::MOST_OF_LINE),
    // With those who may answer and their links.
    (AWAITING, 64 * KIB + 24 * KIB),
    (crate::task::question::ANSWER, 3 * REPLY / 2),
    // What a move to the archive adds, and a mark of those that wait for the task.
    ("marks", 256),
];

/// Room for what the end of a task adds besides output and result: an entry of its history, its exit, and what it gets later.
pub const END: usize = 8 * KIB;

/// Whether a task of so many bytes, once it is claimed, can be started and ended, if with little to tell.
pub(crate) fn has_room_for_a_run(bytes: usize) -> bool {
    bytes + END <= DOCUMENT
}

/// What cannot be stored at all has so many bytes.
const TOO_MANY: usize = usize::MAX / 1024;

pub(crate) fn no_room(bytes: usize) -> StoreError {
    StoreError::unfit(&format!(
        "the task has {bytes} bytes, which leaves no room for its run: a document has at most {DOCUMENT}"
    ))
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.words())]
pub struct OverBudget {
    /// Which of several tasks, counted from 0.
    pub task: Option<usize>,
    /// What is too large, as the submitter calls it.
    pub field: String,
    pub bytes: usize,
    pub limit: usize,
    /// Whether the size is that of several fields, of which this one is the largest.
    pub all: bool,
}

impl OverBudget {
    fn words(&self) -> String {
        let Self { task, field, bytes, limit, all } = self;
        let which = task.map(|number| format!("task {number} of the request: ")).unwrap_or_default();
        let whose = if *all { "and what else the task has of its kind take" } else { "takes" };
        format!(
            "{which}{field} {whose} {bytes} bytes as BSON, and may take {limit}: large input belongs into a file set, \
             which the task gets by .files"
        )
    }

    #[must_use]
    pub fn of_task(self, number: usize) -> Self {
        Self { task: Some(number), ..self }
    }
}

/// Sees to it that a new task keeps its budgets: its parameters, and the fields that it gets by options. If a part does not, its
/// largest field is named.
pub fn check(params: &Document, options: &Document) -> Result<(), OverBudget> {
    let params = size(params).map_or(TOO_MANY, |bytes| bytes + "params".len() + 2);
    let (mut given, mut others) = (vec![("params", params)], Vec::new());
    for (name, value) in options {
        let of = if name == STEPS { &mut given } else { &mut others };
        of.push((name.as_str(), size_of_field(name, value)));
    }
    within(&given, PARAMS)?;
    within(&others, OPTIONS)
}

fn within(sizes: &[(&str, usize)], limit: usize) -> Result<(), OverBudget> {
    let bytes = sizes.iter().map(|(_, size)| size).sum();
    if bytes <= limit {
        return Ok(());
    }
    let largest = sizes.iter().max_by_key(|(_, size)| *size);
    let field = largest.map_or("params", |(name, _)| *name);
    let all = largest.is_some_and(|(_, size)| *size <= limit);
    let bytes = if all { bytes } else { largest.map_or(bytes, |(_, size)| *size) };
    let field = match field {
        "params" => "'params'".to_owned(),
        secrets::FIELD => ".secure_params".to_owned(),
        option => format!(".{option}"),
    };
    Err(OverBudget { task: None, field, bytes, limit, all })
}

/// How many bytes a field takes in a document: its type, its name and its value. What cannot be stored takes too many.
pub fn size_of_field(name: &str, value: &Bson) -> usize {
    let value = match value {
        Bson::Document(document) => size(document),
        Bson::String(text) => Some(text.len() + 5),
        other => size(&bson::doc! { "": other.clone() }).map(|bytes| bytes.saturating_sub(7)),
    };
    value.map_or(TOO_MANY, |value| value + name.len() + 2)
}

/// How many bytes a document takes. `None`: it cannot be stored.
pub(crate) fn size(document: &Document) -> Option<usize> {
    RawDocumentBuf::try_from(document).ok().map(|raw| raw.as_bytes().len())
}

pub fn cut(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let most = most.saturating_sub('…'.len_utf8());
    let end = (0..=most).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…", &text[..end])
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn all_that_a_task_is_given_and_grows_by_fits_into_a_document() {
        let growth: usize = GROWTH.iter().map(|(_, bytes)| bytes).sum();
        let all = PARAMS + OPTIONS + growth + END;
        assert!(all <= DOCUMENT, "{all} of {DOCUMENT}: {GROWTH:?}");
        assert!(DOCUMENT - all < 512 * KIB, "params may have more: {} are left", DOCUMENT - all);
    }

    #[test]
    fn what_is_too_large_is_named_with_its_size_and_its_limit() {
        let text = |bytes: usize| "x".repeat(bytes);
        // 5 of the document, 3 of the name, 5 of the text, and 8 of the field in the task.
        let params = |bytes| doc! { "a": text(bytes - 21) };
        assert_eq!(check(&params(PARAMS), &doc! {}), Ok(()));
        let over = check(&params(PARAMS + 1), &doc! {}).unwrap_err();
        assert_eq!((over.field.as_str(), over.limit, over.all), ("'params'", PARAMS, false));
        let words = over.to_string();
        assert!(
            words.starts_with("'params' takes 13631489 bytes as BSON, and may take 13631488: "),
            "{words}"
        );
        assert!(words.contains("large input belongs into a file set"), "{words}");
        assert!(over.of_task(3).to_string().starts_with("task 3 of the request: 'params' takes"));
        let step = doc! { "name": "a", "params": { "b": text(PARAMS / 2) } };
        let over = check(&params(PARAMS / 2 + 9), &doc! { "steps": [step] }).unwrap_err();
        assert_eq!((over.field.as_str(), over.all), (".steps", true));
        let over = check(&doc! {}, &doc! { "unique": text(OPTIONS) }).unwrap_err();
        assert_eq!((over.field.as_str(), over.limit), (".unique", OPTIONS));
        assert!(has_room_for_a_run(DOCUMENT - END) && !has_room_for_a_run(DOCUMENT - END + 1));
    }

    proptest! {
        #[test]
        fn sizes_are_those_of_bson(name in "[a-z]{0,9}", text in ".{0,40}", list in prop::collection::vec(any::<i32>(), 0..9)) {
            let list: Vec<Bson> = list.into_iter().map(Bson::from).collect();
            for value in [Bson::from(text.clone()), Bson::from(doc! { "t": &text }), list.into(), Bson::Null, 1.5.into(), true.into()] {
                let whole = size(&doc! { name.clone(): value.clone() }).unwrap();
                prop_assert_eq!(size_of_field(&name, &value) + 5, whole, "{:?}", value);
            }
        }
    }
}
