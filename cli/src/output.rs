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

/// Writes bytes of a task's output at once, to standard error or standard output.
///
/// # Errors
/// They cannot be written.
pub fn write(bytes: &[u8], to_stderr: bool) -> std::io::Result<()> {
    fn all(mut out: impl Write, bytes: &[u8]) -> std::io::Result<()> {
        out.write_all(bytes)?;
        out.flush()
    }
    if to_stderr { all(std::io::stderr().lock(), bytes) } else { all(std::io::stdout().lock(), bytes) }
}

/// A document in the format that was asked for; `as_text` makes it readable for people.
///
/// # Errors
/// A value cannot be written as JSON, which does not happen.
pub fn document(
    document: &Value,
    options: &ListingOptions,
    as_text: impl FnOnce(&Value) -> String,
) -> anyhow::Result<String> {
    Ok(match options.format {
        Format::Table => as_text(document),
        Format::Json if options.pretty => format!("{}\n", pretty(document)?),
        Format::Json => format!("{document}\n"),
        Format::Yaml => yaml::document(document),
    })
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
    document(list, options, |list| as_table(list.as_array().map(Vec::as_slice).unwrap_or_default()))
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
