//! The program beside this one for what needs the database, a runner or a MongoDB server of its own.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::anyhow;

const PROGRAM: &str = "disbatch-local";

/// Becomes that program, with the same words, the first of which is how this one was called: to whoever waits for it, and to
/// whoever sends it a signal, it is the same process. Comes back only if that cannot be.
pub fn become_it(words: &[OsString]) -> anyhow::Error {
    let program = match std::env::current_exe() {
        Ok(own) => own.with_file_name(PROGRAM),
        Err(error) => return anyhow!(error).context("cannot tell where this program is"),
    };
    let mut command = Command::new(&program);
    if let Some((own, arguments)) = words.split_first() {
        command.arg0(own).args(arguments);
    }
    let error = anyhow!(command.exec());
    error.context(format!("cannot start {}, which does this", program.display()))
}
