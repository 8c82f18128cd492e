//! What plugins save for their next run, what they are told of earlier ones, and the secrets of a node.

mod saved;
mod secrets;
mod told;

use bson::Document;

fn text<'a>(task: &'a Document, field: &str) -> &'a str {
    task.get_str(field).unwrap_or_default()
}

/// Prints the variables that are named.
fn prints(names: &str) -> String {
    format!("#!/bin/sh\nfor name in {names}; do eval \"echo \\\"\\$name=[\\$$name]\\\"\"; done\n")
}
