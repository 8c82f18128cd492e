//! A shell where the plugin would be.

use std::fs;
use std::process::{Command, ExitCode};

use anyhow::Context;
use disbatch_cli::output::say;
use disbatch_dtr::local::{self, Prepared, Rehearsal};

/// What a shell needs of the one that it is started from.
const OWN: [&str; 3] = ["TERM", "LANG", "HOME"];

/// Starts it, and waits for its end. Its exit status is that of the shell.
pub fn run(rehearsal: Rehearsal, keep: bool) -> anyhow::Result<ExitCode> {
    let folder = local::folder().context("cannot make a folder")?;
    let given = tempfile::tempdir().context("cannot make a folder for the input")?;
    let prepared = local::prepare(rehearsal, &folder).context("cannot make ready for the plugin")?;
    let Prepared { program, arguments, environment, input } = prepared;
    let stdin = given.path().join("stdin.json");
    fs::write(&stdin, &input).context("cannot write the input")?;
    let words: Vec<String> = arguments.iter().map(|word| format!(" {}", word.to_string_lossy())).collect();
    say(&format!("the plugin is run by: {}{} < {} 3>&2", program.display(), words.concat(), stdin.display()));
    let own = OWN.iter().filter_map(|name| Some((*name, std::env::var_os(name)?)));
    let shell = std::env::var_os("SHELL").unwrap_or_else(|| "/bin/sh".into());
    let mut command = Command::new(&shell);
    command.env_clear().envs(own).envs(environment).current_dir(&folder);
    let status = command.status().with_context(|| format!("cannot start {}", shell.to_string_lossy()))?;
    if keep {
        say(&format!("the private folder is {}", folder.display()));
    } else {
        fs::remove_dir_all(&folder).with_context(|| format!("cannot remove {}", folder.display()))?;
    }
    Ok(ExitCode::from(status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1)))
}
