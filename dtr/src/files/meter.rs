//! Says how far a transfer is, as the progress of the task.

use std::cell::Cell;
use std::time::{Duration, Instant};

use bson::doc;

use crate::relay::Relay;

/// Not more often than this. It is written into the task once a second at most.
const EVERY: Duration = Duration::from_millis(200);

const UNITS: [&str; 5] = ["bytes", "KiB", "MiB", "GiB", "TiB"];

/// How far a transfer is.
#[derive(Debug)]
pub struct Meter<'a> {
    relay: &'a Relay,
    what: &'static str,
    files: Cell<u64>,
    bytes: Cell<u64>,
    said: Cell<Option<Instant>>,
}

impl<'a> Meter<'a> {
    pub fn new(relay: &'a Relay, what: &'static str) -> Self {
        let meter =
            Self { relay, what, files: Cell::default(), bytes: Cell::default(), said: Cell::default() };
        meter.say();
        meter
    }

    pub fn add_bytes(&self, bytes: u64) {
        self.bytes.set(self.bytes.get().saturating_add(bytes));
        self.say();
    }

    pub fn add_file(&self) {
        self.files.set(self.files.get().saturating_add(1));
        self.say();
    }

    fn say(&self) {
        if self.said.get().is_some_and(|said| said.elapsed() < EVERY) {
            return;
        }
        self.said.set(Some(Instant::now()));
        let (files, bytes) = (self.files.get(), shown(self.bytes.get()));
        let message = format!("{}: {files} files, {bytes}", self.what);
        self.relay.progress(doc! { "message": message });
    }
}

/// A number of bytes with one digit after the point.
fn shown(bytes: u64) -> String {
    let mut unit = 0;
    let (mut whole, mut rest) = (bytes, 0);
    while whole >= 1024 && unit + 1 < UNITS.len() {
        rest = whole % 1024;
        whole /= 1024;
        unit += 1;
    }
    let name = UNITS.get(unit).copied().unwrap_or_default();
    if unit == 0 { format!("{whole} {name}") } else { format!("{whole}.{} {name}", rest * 10 / 1024) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay;

    #[test]
    fn bytes_are_shown_in_units_that_fit() {
        let all: Vec<String> = [0, 1023, 1024, 1536, 300 << 20, 10 << 30, 1 << 50].map(shown).into();
        assert_eq!(
            all,
            ["0 bytes", "1023 bytes", "1.0 KiB", "1.5 KiB", "300.0 MiB", "10.0 GiB", "1024.0 TiB"]
        );
    }

    #[test]
    fn the_task_is_told_at_once_that_something_is_going_on() {
        let (relay, _inbox) = relay::channel();
        let meter = Meter::new(&relay, "bringing input files");
        meter.add_bytes(5);
        meter.add_file();
        assert_eq!((meter.files.get(), meter.bytes.get()), (1, 5));
        assert!(meter.said.get().is_some());
    }
}
