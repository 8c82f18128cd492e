//! Logs. One line per event with its fields, on standard error or in the file that `log4perl` names.
//!
//! `DISBATCH_LOG` overrides the configured level; its syntax is that of `tracing_subscriber::EnvFilter`, for
//! instance `debug` or `info,mongodb=warn`. `DISBATCH_LOG_FORMAT=json` writes JSON lines.

use std::fs::OpenOptions;
use std::io::{self, IsTerminal};
use std::sync::Mutex;

use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use crate::config::Log;

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
    let builder = tracing_subscriber::fmt().with_env_filter(filter).with_writer(writer).with_target(false);
    // A second call (in tests) leaves the first subscriber in place.
    let _already_set = if std::env::var("DISBATCH_LOG_FORMAT").is_ok_and(|format| format == "json") {
        builder.json().try_init()
    } else {
        builder.with_ansi(colour).try_init()
    };
    Ok(())
}
