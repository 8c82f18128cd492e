//! What needs the database, a runner or a MongoDB server of its own is done by the program beside this one.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, ensure};
use tempfile::TempDir;
use tokio::process::Command;

/// Takes the place of the program beside it: says which process it is and what it was told, and ends as no command does.
const BESIDE: &str = r#"#!/bin/sh
printf '%s' $$
printf ' <%s>' "$@"
exit 47
"#;

/// `disbatch` in a folder of its own.
struct Alone(TempDir);

impl Alone {
    fn new() -> anyhow::Result<Self> {
        let folder = tempfile::tempdir()?;
        fs::copy(env!("CARGO_BIN_EXE_disbatch"), folder.path().join("disbatch"))?;
        Ok(Self(folder))
    }

    fn beside(&self) -> anyhow::Result<PathBuf> {
        Ok(fs::canonicalize(self.0.path())?.join("disbatch-local"))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(self.0.path().join("disbatch"));
        command.args(arguments).stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.kill_on_drop(true);
        command
    }
}

#[tokio::test]
async fn a_missing_program_is_named_and_nothing_else_needs_it() -> anyhow::Result<()> {
    let alone = Alone::new()?;
    let output = alone.command(&["user", "list"]).output().await?;
    let expected = format!(
        "cannot start {}, which does this: No such file or directory (os error 2)\n",
        alone.beside()?.display()
    );
    assert_eq!((String::from_utf8(output.stderr)?, output.status.code()), (expected, Some(255)));
    for (arguments, text) in [
        (["user", "--help"], "Add somebody who may log in"),
        (["dev", "--help"], "--mongo-port"),
        (["completion", "bash"], "--drop_roles"),
    ] {
        let output = alone.command(&arguments).output().await?;
        ensure!(output.status.success(), "{arguments:?}: {output:?}");
        let stdout = String::from_utf8(output.stdout)?;
        assert!(stdout.contains(text), "{arguments:?}: {stdout}");
    }
    Ok(())
}

#[tokio::test]
async fn the_program_beside_it_is_the_same_process_with_the_same_words() -> anyhow::Result<()> {
    let alone = Alone::new()?;
    fs::write(alone.beside()?, BESIDE)?;
    fs::set_permissions(alone.beside()?, Permissions::from_mode(0o755))?;
    for (arguments, handed_on, complaint) in [
        (&["secrets-key"][..], "<secrets-key>", ""),
        (
            &["--bogus", "create-users", "--config", "a b"],
            "<create-users> <--config> <a b>",
            "Unknown option: bogus\n",
        ),
        (&["user", "list"], "<user> <list>", ""),
        (&["token", "list", "--format", "json"], "<token> <list> <--format> <json>", ""),
        (&["plugin", "check", "*"], "<plugin> <check> <*>", ""),
        (&["dev", "--demo"], "<dev> <--demo>", ""),
    ] {
        let child = alone.command(arguments).spawn()?;
        let own = child.id().context("it has ended already")?;
        let output = child.wait_with_output().await?;
        assert_eq!(String::from_utf8(output.stdout)?, format!("{own} {handed_on}"), "{arguments:?}");
        assert_eq!(String::from_utf8(output.stderr)?, complaint, "{arguments:?}");
        assert_eq!(output.status.code(), Some(47), "{arguments:?}");
    }
    Ok(())
}

#[tokio::test]
async fn the_command_line_is_not_linked_with_the_database_and_runners() -> anyhow::Result<()> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let output = Command::new(cargo)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .args(["tree", "--locked", "--offline", "--edges", "normal", "--prefix", "none", "--format", "{p}"])
        .output()
        .await?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let tree = String::from_utf8(output.stdout)?;
    let crates: Vec<&str> = tree.lines().filter_map(|line| line.split(' ').next()).collect();
    assert!(crates.contains(&"disbatch-values"), "{tree}");
    for heavy in ["mongodb", "disbatch-core", "disbatch-dtr", "disbatch-mongod"] {
        assert!(!crates.contains(&heavy), "{heavy}: {tree}");
    }
    Ok(())
}
