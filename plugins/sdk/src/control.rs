//! The control descriptor: JSON lines from the plugin to its runner.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

use serde_json::Value;

/// Names the descriptor in the environment.
const VARIABLE: &str = "DISBATCH_CONTROL_FD";

/// The way to the runner, if there is one.
#[derive(Debug, Default)]
pub(crate) struct Control(Option<File>);

impl Control {
    /// Opens the descriptor that the environment names; does nothing when it names none.
    ///
    /// A descriptor that cannot be opened is said on standard error, since results would be lost silently.
    pub(crate) fn from_environment() -> Self {
        let Some(number) = std::env::var_os(VARIABLE) else { return Self(None) };
        let number = number.to_string_lossy();
        match open(&number) {
            Ok(file) => Self(Some(file)),
            Err(error) => {
                let _ = writeln!(
                    io::stderr(),
                    "cannot open descriptor '{number}' of {VARIABLE}: {error}; progress and results are lost"
                );
                Self(None)
            }
        }
    }

    /// Sends one line. A runner that no longer listens does not stop the plugin.
    pub(crate) fn send(&mut self, message: &Value) {
        let Some(file) = &mut self.0 else { return };
        // One write for the whole line, so that a process that shares the pipe cannot get in between.
        if file.write_all(format!("{message}\n").as_bytes()).is_err() {
            self.0 = None;
        }
    }

    /// Whether nobody listens.
    pub(crate) fn is_closed(&self) -> bool {
        self.0.is_none()
    }
}

/// Opens an inherited descriptor by its number, which `/proc` makes possible without unsafe code.
fn open(number: &str) -> io::Result<File> {
    let number: u32 = number.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    // Appending, so that a file given by hand is not overwritten from its start.
    OpenOptions::new().append(true).open(format!("/proc/self/fd/{number}"))
}

#[cfg(test)]
pub(crate) mod tests {
    use std::io::{PipeReader, Read, pipe};
    use std::os::fd::{AsRawFd, OwnedFd};

    use serde_json::json;

    use super::*;

    /// A control and the runner's end of it.
    pub(crate) fn connected() -> (Control, PipeReader) {
        let (reader, writer) = pipe().unwrap();
        (Control(Some(File::from(OwnedFd::from(writer)))), reader)
    }

    #[test]
    fn a_pipe_opens_by_its_number() {
        let (mut reader, writer) = pipe().unwrap();
        let mut control = Control(Some(open(&writer.as_raw_fd().to_string()).unwrap()));
        drop(writer);
        control.send(&json!({ "status": 3 }));
        control.send(&json!({ "progress": { "message": "a\nb" } }));
        drop(control);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "{\"status\":3}\n{\"progress\":{\"message\":\"a\\nb\"}}\n");
    }

    #[test]
    fn what_is_no_descriptor_does_not_open() {
        for number in ["", "x", "-1", "1/../../status", "99999"] {
            assert!(open(number).is_err(), "{number}");
        }
    }

    #[test]
    fn a_runner_that_is_gone_is_no_error() {
        let (mut control, reader) = connected();
        drop(reader);
        control.send(&json!({}));
        assert!(control.0.is_none());
        control.send(&json!({}));
    }
}
