//! Writes a Disbatch plugin in Rust.
//!
//! A plugin is a program. [`run`] reads the task, calls your function with it, and turns the function's outcome
//! into the exit status. What the function prints is the task's output.
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! use disbatch_plugin::{Error, Task};
//! use serde_json::json;
//!
//! fn greet(task: &mut Task) -> Result<(), Error> {
//!     let names: Vec<String> = task.param("names")?;
//!     for (done, name) in (1u32..).zip(&names) {
//!         println!("Hello {name}");
//!         task.progress(f64::from(done) * 100.0 / names.len() as f64, name);
//!     }
//!     task.set_result(json!({ "greeted": names.len() }))
//! }
//!
//! fn main() -> ExitCode {
//!     disbatch_plugin::run(greet)
//! }
//! ```
//!
//! Try it by hand, without a runner; progress, results and reports then go nowhere:
//!
//! ```sh
//! echo '{"params":{"names":["Ada"]}}' | target/debug/greet
//! ```
//!
//! # What becomes of a task
//!
//! | the function | exit | the task's status |
//! | --- | --- | --- |
//! | returns `Ok` | 0 | 1, succeeded |
//! | returns `Err` | 1, and the error is printed on standard error | 2, failed |
//! | panics | 101, and the panic is printed on standard error | 2, failed |
//! | called [`Task::set_status`], then any of these | | the status it set, but not 1 if it failed |
//!
//! A process killed by a signal always ends with status 2.
//!
//! Any error type with a text will do, `anyhow::Error` too: it is printed with `{:#}`, which shows its causes.
//! [`Error`] is there for plugins that need no type of their own.
//!
//! # Secure parameters
//!
//! What was submitted as `.secure_params` is stored encrypted, and only the plugin gets to see it:
//!
//! ```
//! # use disbatch_plugin::{Error, Task};
//! # fn open(_: &str, _: &str) {}
//! fn fetch(task: &mut Task) -> Result<(), Error> {
//!     let address: String = task.param("address")?;
//!     let password: String = task.secure_param("password")?;
//!     open(&address, &password);
//!     Ok(())
//! }
//! # fetch(&mut r#"{"params":{"address":"a"},"secure_params":{"password":"p"}}"#.parse()?)?;
//! # Ok::<(), Error>(())
//! ```
//!
//! What the function prints, and the errors that it returns, are stored as output: keep secrets out of both.
//!
//! # Storage
//!
//! A task of a schedule finds what the run before it has saved:
//!
//! ```
//! # use disbatch_plugin::{Error, Task};
//! # fn import_after(last: u64) -> u64 { last + 1 }
//! fn import(task: &mut Task) -> Result<(), Error> {
//!     let last = task.storage()["last"].as_u64().unwrap_or(0);
//!     let last = import_after(last);
//!     task.save_storage(serde_json::json!({ "last": last }))
//! }
//! # import(&mut "{}".parse()?)?;
//! # Ok::<(), Error>(())
//! ```
//!
//! # Warm plugins
//!
//! Each task has a process of its own, unless the manifest has `"warm": true`: then one process takes task after
//! task, and [`run`] calls the function for each. The function needs no change for that, if it
//!
//! - leaves nothing behind that the next task could mistake for its own;
//! - asks the task for what differs from task to task: [`Task::variable`] in place of `std::env::var`, and
//!   [`Task::work_dir`] in place of the working directory;
//! - has threads and programs of its own ended before it returns, and writers of its own flushed.
//!
//! An error or a panic is a failure of that task only. A panic takes the process with it if the program is built
//! with `panic = "abort"`; the runner then starts another one. What the function keeps is kept for as long as the
//! process lives:
//!
//! ```no_run
//! # use disbatch_plugin::{Error, Task};
//! # struct Connection; impl Connection { fn open() -> Self { Self } fn ask(&mut self, _: &str) {} }
//! # fn main() -> std::process::ExitCode {
//! let mut connection = Connection::open();
//! disbatch_plugin::run(move |task: &mut Task| {
//!     let question: String = task.param("question")?;
//!     connection.ask(&question);
//!     Ok::<(), Error>(())
//! })
//! # }
//! ```
//!
//! # Testing
//!
//! A [`Task`] parses from text, so the function can be called in a unit test:
//!
//! ```
//! # use disbatch_plugin::{Error, Task};
//! # fn greet(task: &mut Task) -> Result<(), Error> { task.param::<Vec<String>>("names").map(|_| ()) }
//! let mut task: Task = r#"{"params":{"names":"Ada"}}"#.parse()?;
//! let error = greet(&mut task).unwrap_err();
//! assert!(error.to_string().starts_with("params.names is wrong"));
//! # Ok::<(), Error>(())
//! ```

#![warn(missing_docs)]

mod control;
mod task;
mod warm;

use std::fmt::{self, Display};
use std::io::{self, Write};
use std::process::ExitCode;

use serde_json::{Map, Value};

pub use task::{MAX_RESULT_BYTES, MAX_STORAGE_BYTES, Question, Task};

/// Reads the task from standard input, does `work` with it, and returns the exit code for `main`.
///
/// An error of `work`, or of reading the task, is printed on standard error and gives exit code 1.
///
/// Where the manifest says that the plugin is warm, `work` is called for each task that comes, and an error is an
/// error of that task. The process ends when no more tasks can come.
pub fn run<E: Display>(work: impl FnMut(&mut Task) -> Result<(), E>) -> ExitCode {
    if warm::is_wanted() {
        return warm::serve(io::stdin().lock(), &mut control::Control::from_environment(), work);
    }
    match finish(Task::read(), work) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            // Nobody is left to tell when standard error is closed.
            let _ = writeln!(io::stderr(), "{message}");
            ExitCode::FAILURE
        }
    }
}

fn finish<E: Display>(
    task: Result<Task, Error>,
    work: impl FnOnce(&mut Task) -> Result<(), E>,
) -> Result<(), String> {
    let mut task = task.map_err(|error| error.to_string())?;
    work(&mut task).map_err(|error| format!("{error:#}"))?;
    // The process would flush at its end too, but without a word if that fails.
    io::stdout().flush().map_err(|error| format!("cannot write standard output: {error}"))
}

/// Why a plugin, or one of its calls to this crate, failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The task on standard input cannot be read.
    Task(String),
    /// A parameter is missing or has a wrong value.
    Param {
        /// The key in `params`.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A secure parameter is missing or has a wrong value, which is not shown.
    SecureParam {
        /// The key in `secure_params`.
        name: String,
        /// What is wrong with it.
        problem: String,
    },
    /// A status that is not a positive integer.
    Status(i32),
    /// A result that cannot be stored.
    Result(String),
    /// A report that cannot be stored.
    Report(String),
    /// A value that cannot be saved.
    Storage(String),
    /// A question that cannot be asked.
    Question(String),
    /// The task cannot be ended in a transaction.
    Commit,
    /// Input or output failed.
    Io(io::Error),
    /// The plugin's own reason.
    Failed(String),
}

impl Error {
    /// A failure that the plugin puts in its own words.
    pub fn failed(reason: impl fmt::Display) -> Self {
        Self::Failed(reason.to_string())
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Task(problem) => write!(f, "cannot read the task: {problem}"),
            Self::Param { name, problem } => write!(f, "params.{name} {problem}"),
            Self::SecureParam { name, problem } => write!(f, "secure_params.{name} {problem}"),
            Self::Status(status) => write!(f, "status must be a positive integer, got {status}"),
            Self::Result(problem) => write!(f, "result {problem}"),
            Self::Report(problem) => write!(f, "report {problem}"),
            Self::Storage(problem) => write!(f, "storage {problem}"),
            Self::Question(problem) => write!(f, "question {problem}"),
            Self::Commit => f.write_str(
                "the task cannot be committed: its manifest has no \"commits\": true, or another step comes after this one",
            ),
            Self::Io(error) => error.fmt(f),
            Self::Failed(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        // The text of an I/O error is the whole text of ours, so its source is what stands behind it.
        if let Self::Io(error) = self { error.source() } else { None }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// The task's secure parameters: passwords, tokens, and whatever else was given to be shown to nobody. There may be
/// none.
///
/// Runner and plugin alone know them. Disbatch stores what a plugin prints, so do not print them, not even in errors;
/// with `{:?}` this value shows nothing. Programs that the plugin starts should get them on standard input or in files
/// of the [work folder](crate::Task::work_dir), as everybody on the host can see their arguments.
#[derive(Clone, Default, PartialEq)]
pub struct SecureParams(Map<String, Value>);

impl SecureParams {
    /// Takes them out of a task's document, so that nobody comes upon them by chance.
    pub(crate) fn take(document: &mut Value) -> Self {
        match document.as_object_mut().and_then(|document| document.remove("secure_params")) {
            Some(Value::Object(params)) => Self(params),
            _ => Self::default(), // A runner writes an object, or nothing.
        }
    }

    /// The one with this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Their names.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Debug for SecureParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SecureParams({}, not shown)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_any_type_becomes_a_message() {
        let failed = finish("{}".parse(), |_| Err("no disk"));
        assert_eq!(failed, Err("no disk".to_owned()));
        let done = finish("{}".parse(), |_| Ok::<(), Error>(()));
        assert_eq!(done, Ok(()));
    }

    #[test]
    fn without_a_task_no_work_is_done() {
        let failed = finish("[]".parse(), |_| -> Result<(), Error> { panic!("must not be called") });
        assert_eq!(failed, Err("cannot read the task: must be an object, got []".to_owned()));
    }
}
