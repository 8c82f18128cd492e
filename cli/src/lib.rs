//! What `disbatch` and `disbatch-local` share: the definition of the command line, what is printed and how, and the way to a DCI.
//!
//! `disbatch` needs nothing of the database and of runners, and is not linked with them. It hands commands that do to
//! `disbatch-local`.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "printing is what a command line is for")]

pub mod api;
pub mod args;
pub mod output;
pub mod signals;
pub mod status;
