//! What is printed, and where.

mod screen;
mod table;
mod terminal;
mod yaml;

use std::io::{IsTerminal, Write};
use std::process::ExitCode;

use serde_json::Value;

use crate::api::{Answer, read};
use crate::args::{Format, ListingOptions};
use crate::status::FAILED;
pub use screen::{Screen, shows_marks};
pub use table::{Column, Cut, Table, date};
pub use terminal::{TaskOutput, visible};
pub use yaml::pretty;

/// Prints `text` as it is. Unlike `print!` it does not panic when nobody reads any more.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    Ok(stdout.flush()?)
}

/// Says something to whoever looks, on standard error. What it quotes does not control a terminal.
pub fn say(message: &str) {
    if std::io::stderr().is_terminal() {
        eprintln!("{}", terminal::visible_lines(message));
    } else {
        eprintln!("{message}");
    }
}

/// Names that were given by others, and may control a terminal, for standard output.
pub fn shown_name(name: &str) -> String {
    if std::io::stdout().is_terminal() { visible(name) } else { name.to_owned() }
}

/// JSON for standard output. What it leaves as it is and may control a terminal is escaped there.
pub fn shown_json(json: String) -> String {
    if std::io::stdout().is_terminal() { terminal::escaped_json(&json) } else { json }
}

/// A document in the format that was asked for; `as_text` makes what is read of it readable for people.
pub fn document<T: Answer>(
    document: &Value,
    options: &ListingOptions,
    as_text: impl FnOnce(&T) -> String,
) -> anyhow::Result<String> {
    Ok(match options.format() {
        Format::Table => as_text(&read(document.clone())?),
        Format::Json if options.pretty => shown_json(format!("{}\n", pretty(document)?)),
        Format::Json => shown_json(format!("{document}\n")),
        Format::Yaml => yaml::document(document),
    })
}

/// A list in the format that was asked for; `as_table` makes the table of what is read of its items.
pub fn list<T: Answer>(
    list: &Value,
    options: &ListingOptions,
    as_table: impl FnOnce(&[T]) -> String,
) -> anyhow::Result<String> {
    document(list, options, |list: &Value| as_table(&items(list)))
}

/// What may not be known: nothing then.
pub fn known(text: &Option<String>) -> String {
    text.clone().unwrap_or_default()
}

pub fn items<T: Answer>(list: &Value) -> Vec<T> {
    let items = list.as_array().into_iter().flatten();
    items.map(|item| read(item.clone()).unwrap_or_default()).collect()
}

/// What a command ends with. Says what went wrong.
pub fn exit_code(outcome: anyhow::Result<ExitCode>) -> ExitCode {
    outcome.unwrap_or_else(|error| {
        if !is_broken_pipe(&error) {
            say(&format!("{error:#}"));
        }
        ExitCode::from(FAILED)
    })
}

/// Whether the reader of our output went away, as `head` does: nobody is left to be told.
pub fn is_broken_pipe(error: &anyhow::Error) -> bool {
    let kind = error.downcast_ref::<std::io::Error>().map(std::io::Error::kind);
    kind == Some(std::io::ErrorKind::BrokenPipe)
}

/// A value as a person reads it in a table: text as it is, null as nothing.
pub fn plain(value: Option<&Value>) -> String {
    match value {
        None | Some(Value::Null) => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}
