//! What is printed, and where.

mod json;
mod screen;
mod table;
mod yaml;

use std::io::Write;

use serde_json::Value;

use crate::args::{Format, ListingOptions};

pub use json::pretty;
pub use screen::Screen;
pub use table::{Column, Cut, Table};

/// Prints `text` as it is. Unlike `print!` it does not panic when nobody reads any more.
///
/// # Errors
/// Standard output cannot be written to.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(text.as_bytes())?;
    Ok(stdout.flush()?)
}

/// A list in the format that was asked for; `as_table` makes the table.
///
/// # Errors
/// A value cannot be written as JSON, which does not happen.
pub fn list(
    list: &Value,
    options: &ListingOptions,
    as_table: impl FnOnce(&[Value]) -> String,
) -> anyhow::Result<String> {
    Ok(match options.format {
        Format::Table => as_table(list.as_array().map(Vec::as_slice).unwrap_or_default()),
        Format::Json if options.pretty => format!("{}\n", pretty(list)?),
        Format::Json => format!("{list}\n"),
        Format::Yaml => yaml::document(list),
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
