//! How the server finds something, as it explains it.

use bson::{Bson, Document};
use disbatch_core::model::whole_number;

/// The names of all stages.
pub fn stages(plan: &Document) -> Vec<&str> {
    all_of(plan, "stage").into_iter().filter_map(Bson::as_str).collect()
}

/// The largest of the numbers with this name, if there is one.
pub fn most(plan: &Document, name: &str) -> Option<i64> {
    all_of(plan, name).into_iter().filter_map(whole_number).max()
}

/// All values with this name, wherever they are.
fn all_of<'a>(plan: &'a Document, name: &str) -> Vec<&'a Bson> {
    let mut found = Vec::new();
    for (key, value) in plan {
        if key == name {
            found.push(value);
        }
        found.extend(below(value, name));
    }
    found
}

fn below<'a>(value: &'a Bson, name: &str) -> Vec<&'a Bson> {
    match value {
        Bson::Document(document) => all_of(document, name),
        Bson::Array(items) => items.iter().flat_map(|item| below(item, name)).collect(),
        _ => Vec::new(),
    }
}
