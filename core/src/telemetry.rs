//! Logs. One line per event with its fields, on standard error or in the file that `log4perl` names.
//!
//! `DISBATCH_LOG` overrides the configured level; its syntax is that of `tracing_subscriber::EnvFilter`, for
//! instance `debug` or `info,mongodb=warn`. `DISBATCH_LOG_FORMAT=json` writes JSON lines.

use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use crate::config::Log;

/// Writes the one line that says why `program` ends, whatever the log level.
///
/// Where nobody reads standard error any more there is nobody to tell.
pub fn last_words(program: &str, failure: &dyn std::fmt::Display) {
    let _nobody_reads = writeln!(io::stderr(), "{program}: {failure}");
}

/// Starts logging. Call once, at the start of `main`.
///
/// # Errors
/// The configured log file cannot be opened for appending; the error names it.
pub fn init(log: &Log) -> io::Result<()> {
    let filter =
        EnvFilter::try_from_env("DISBATCH_LOG").unwrap_or_else(|_| EnvFilter::new(log.level.as_filter()));
    let writer = match &log.file {
        None => BoxMakeWriter::new(io::stderr),
        Some(path) => {
            let file = OpenOptions::new().create(true).append(true).open(path).map_err(|error| {
                io::Error::new(error.kind(), format!("cannot open log file {}: {error}", path.display()))
            })?;
            BoxMakeWriter::new(Mutex::new(file))
        }
    };
    let colour = log.file.is_none() && io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    // A runner outlives whoever reads its standard error. Losing a log line must not cost it its task, and the
    // subscriber's own complaint about it, an `eprintln!`, would be a panic.
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(writer)
        .with_target(false)
        .log_internal_errors(false);
    // A second call (in tests) leaves the first subscriber in place.
    let _already_set = if std::env::var("DISBATCH_LOG_FORMAT").is_ok_and(|format| format == "json") {
        builder.json().try_init()
    } else {
        builder.with_ansi(colour).try_init()
    };
    Ok(())
}
