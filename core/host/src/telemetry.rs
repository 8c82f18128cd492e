//! Logs. One line per event with its fields, on standard error or in the file that `log4perl` names.
//!
//! `DISBATCH_LOG` overrides the configured level; its syntax is that of `tracing_subscriber::EnvFilter`, for
//! instance `debug` or `info,mongodb=warn`. `DISBATCH_LOG_FORMAT=json` writes JSON lines.

use std::fmt;
use std::fs::OpenOptions;
use std::io::{self, IsTerminal, Write};
use std::sync::Mutex;

use disbatch_values::text;
use tracing::field::Field;
use tracing_subscriber::EnvFilter;
use tracing_subscriber::field::MakeExt;
use tracing_subscriber::fmt::format::{Writer, debug_fn};
use tracing_subscriber::fmt::writer::BoxMakeWriter;

use crate::config::Log;

/// Writes the one line that says why `program` ends, whatever the log level.
///
/// Where nobody reads standard error any more there is nobody to tell.
pub fn last_words(program: &str, failure: &dyn std::fmt::Display) {
    let _nobody_reads = writeln!(io::stderr(), "{program}: {failure}");
}

/// Writes a field. A name that somebody has given can neither begin a line of its own nor control a terminal.
fn field(writer: &mut Writer<'_>, field: &Field, value: &dyn fmt::Debug) -> fmt::Result {
    let value = text::escaped(&format!("{value:?}"));
    match field.name() {
        "message" => writer.write_str(&value),
        name => write!(writer, "{name}={value}"),
    }
}

/// Starts logging. Call once, at the start of `main`.
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
        builder.with_ansi(colour).fmt_fields(debug_fn(field).delimited(" ")).try_init()
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[derive(Debug, Clone, Default)]
    struct Page(Arc<Mutex<Vec<u8>>>);

    impl Write for Page {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().write(bytes)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn names_control_nothing() {
        let page = Page::default();
        let writer = page.clone();
        let subscriber = tracing_subscriber::fmt()
            .with_writer(move || writer.clone())
            .with_ansi(false)
            .without_time()
            .fmt_fields(debug_fn(field).delimited(" "))
            .finish();
        tracing::subscriber::with_default(subscriber, || {
            let name = "a\u{1b}[2J\n ERROR forged\u{202e}";
            let span = tracing::info_span!("create_schedule", schedule = %name);
            let _entered = span.enter();
            tracing::info!(queue = %name, text = name, count = 3, "made {name}");
        });
        let written = String::from_utf8(page.0.lock().unwrap().clone()).unwrap();
        let line = written.strip_suffix('\n').unwrap();
        assert!(!line.contains(text::is_odd), "{line:?}");
        let name = r"a\u{1b}[2J\n ERROR forged\u{202e}";
        for part in
            [format!("schedule={name}"), format!("made {name} queue={name} text="), "count=3".to_owned()]
        {
            assert!(line.contains(&part), "{part}: {line}");
        }
    }
}
