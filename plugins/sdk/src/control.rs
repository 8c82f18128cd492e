//! The control channel: JSON lines from the plugin to its runner.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use serde_json::Value;

const VARIABLE: &str = "DISBATCH_CONTROL_FD";

/// Names a pipe where there can be no descriptor: in a container.
const PIPE_VARIABLE: &str = "DISBATCH_CONTROL";

#[derive(Debug, Default)]
pub(crate) struct Control {
    file: Option<File>,
    /// The task that what is sent is about, where the runner has to be told.
    of: Option<String>,
}

impl Control {
    /// Opens what the environment names; does nothing when it names nothing.
    ///
    /// What cannot be opened is said on standard error, since results would be lost silently.
    pub(crate) fn from_environment() -> Self {
        let [number, pipe] = [VARIABLE, PIPE_VARIABLE].map(std::env::var_os);
        let opened = match (number, pipe) {
            (Some(number), _) => {
                let number = number.to_string_lossy();
                open(&number).map_err(|error| format!("descriptor '{number}' of {VARIABLE}: {error}"))
            }
            (None, Some(pipe)) => append(Path::new(&pipe))
                .map_err(|error| format!("'{}' of {PIPE_VARIABLE}: {error}", pipe.to_string_lossy())),
            (None, None) => return Self::default(),
        };
        match opened {
            Ok(file) => Self::to(file),
            Err(why) => {
                let _ = writeln!(io::stderr(), "cannot open {why}; progress and results are lost");
                Self::default()
            }
        }
    }

    fn to(file: File) -> Self {
        Self { file: Some(file), of: None }
    }

    /// What is sent from now on is about this task; `None`: the runner knows.
    pub(crate) fn about(&mut self, task: Option<String>) {
        self.of = task;
    }

    pub(crate) fn is_among_others(&self) -> bool {
        self.of.is_some()
    }

    /// Sends one line. A runner that no longer listens does not stop the plugin.
    pub(crate) fn send(&mut self, message: &Value) {
        let Some(file) = &mut self.file else { return };
        let named = self.of.as_ref().and_then(|task| {
            let mut named = message.as_object()?.clone();
            named.insert("id".to_owned(), task.clone().into());
            Some(Value::from(named))
        });
        let message = named.as_ref().unwrap_or(message);
        // One write for the whole line, so that a process that shares the pipe cannot get in between.
        if file.write_all(format!("{message}\n").as_bytes()).is_err() {
            self.file = None;
        }
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.file.is_none()
    }
}

/// Opens an inherited descriptor by its number, which `/proc` makes possible without unsafe code.
fn open(number: &str) -> io::Result<File> {
    let number: u32 = number.parse().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
    append(Path::new(&format!("/proc/self/fd/{number}")))
}

/// Appending, so that a file given by hand is not overwritten from its start.
fn append(path: &Path) -> io::Result<File> {
    OpenOptions::new().append(true).open(path)
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
        (Control::to(File::from(OwnedFd::from(writer))), reader)
    }

    #[test]
    fn a_pipe_opens_by_its_number() {
        let (mut reader, writer) = pipe().unwrap();
        let mut control = Control::to(open(&writer.as_raw_fd().to_string()).unwrap());
        drop(writer);
        control.send(&json!({ "status": 3 }));
        control.send(&json!({ "progress": { "message": "a\nb" } }));
        drop(control);
        let mut text = String::new();
        reader.read_to_string(&mut text).unwrap();
        assert_eq!(text, "{\"status\":3}\n{\"progress\":{\"message\":\"a\\nb\"}}\n");
    }

    #[test]
    fn a_pipe_with_a_name_is_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("control");
        assert!(append(&path).is_err());
        std::fs::write(&path, "before\n").unwrap();
        Control::to(append(&path).unwrap()).send(&json!({ "status": 3 }));
        assert_eq!(std::fs::read_to_string(&path).unwrap(), "before\n{\"status\":3}\n");
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
        assert!(control.is_closed());
        control.send(&json!({}));
    }
}
