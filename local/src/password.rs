//! Passwords that are typed, or come from the environment or from standard input.

use std::env::VarError;
use std::io::{BufRead, IsTerminal};

use anyhow::{bail, ensure};

/// How often a password is typed at a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Typed {
    /// Once: it exists already.
    Once,
    /// Twice, so that a new one is what it was meant to be.
    Twice,
}

/// The password of `user`: from the environment, else from the terminal without showing it, else a line of standard
/// input.
pub fn read(variable: &str, user: &str, typed: Typed) -> anyhow::Result<String> {
    match std::env::var(variable) {
        Ok(password) => return Ok(password),
        Err(VarError::NotPresent) => {}
        Err(VarError::NotUnicode(_)) => bail!("{variable} is not UTF-8"),
    }
    let password = if std::io::stdin().is_terminal() {
        from_terminal(user, typed)?
    } else {
        let mut line = String::new();
        std::io::stdin().lock().read_line(&mut line)?;
        line.trim_end_matches(['\r', '\n']).to_owned()
    };
    ensure!(!password.is_empty(), "no password for {user}: set {variable}, or type it when asked");
    Ok(password)
}

fn from_terminal(user: &str, typed: Typed) -> anyhow::Result<String> {
    let ask = |question: &str| -> std::io::Result<String> {
        eprint!("{question} for {user}: ");
        console::Term::stderr().read_secure_line()
    };
    match typed {
        Typed::Once => Ok(ask("Enter password")?),
        Typed::Twice => {
            let password = ask("New password")?;
            ensure!(password == ask("The same again")?, "these were two different passwords");
            Ok(password)
        }
    }
}
