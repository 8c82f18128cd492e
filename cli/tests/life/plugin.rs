//! Writing a plugin: no server and no database is there.

use std::path::Path;
use std::process::{Output, Stdio};

use anyhow::ensure;
use tokio::process::Command;

/// `disbatch plugin ..`, in this folder.
async fn plugin(folder: &Path, arguments: &[&str]) -> anyhow::Result<Output> {
    let temporary = folder.join("tmp");
    std::fs::create_dir_all(&temporary)?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_disbatch"));
    command.arg("plugin").args(arguments).current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
    command.env("TMPDIR", temporary);
    for variable in ["DISBATCH_URL", "DISBATCH_TOKEN", "DISBATCH_USERNAME", "DISBATCH_PASSWORD"] {
        command.env_remove(variable);
    }
    Ok(command.output().await?)
}

/// The same, which must end with this exit status. Returns both streams.
async fn expect(folder: &Path, arguments: &[&str], code: i32) -> anyhow::Result<(String, String)> {
    let output = plugin(folder, arguments).await?;
    let (stdout, stderr) = (String::from_utf8(output.stdout)?, String::from_utf8(output.stderr)?);
    ensure!(output.status.code() == Some(code), "{arguments:?}: {:?} {stdout} {stderr}", output.status);
    Ok((stdout, stderr))
}

/// Whether the machine has a language.
fn has(program: &str) -> bool {
    let is_there = std::process::Command::new(program).arg("--version").output().is_ok();
    if !is_there {
        let _nobody_reads =
            std::io::Write::write_all(&mut std::io::stderr(), format!("skipped: no {program}\n").as_bytes());
    }
    is_there
}

#[tokio::test]
async fn what_is_begun_with_works_in_every_language() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    for (language, program) in [("sh", "sh"), ("python", "python3"), ("perl", "perl")] {
        // A shell need not know --version.
        if language != "sh" && !has(program) {
            continue;
        }
        let made = ["new", "My::Greet", "--language", language, "--folder", language];
        let (said, _) = expect(folder.path(), &made, 0).await?;
        ensure!(said.contains("Made My::Greet in ") && said.contains("plugin.json"), "{said}");
        let (right, odd) = expect(folder.path(), &["check", language], 0).await?;
        ensure!(right.contains("run by the engine exec") && odd.is_empty(), "{language}: {right} {odd}");
        let run = ["run", language, "--params", "{\"name\": \"Ada\"}"];
        let (stdout, stderr) = expect(folder.path(), &run, 0).await?;
        assert_eq!(stdout, "Hello Ada\n", "{language}");
        for part in
            ["progress: 50 % half of it\n", "result: {\"greeted\":\"Ada\"}\n", "status: 1, succeeded\n"]
        {
            ensure!(stderr.contains(part), "{language}: {part} is not in {stderr}");
        }
        // Without parameters it is what forms begin with.
        assert_eq!(expect(folder.path(), &["run", language], 0).await?.0, "Hello world\n", "{language}");
    }
    Ok(())
}

#[tokio::test]
async fn programs_and_modules_answer_as_they_do_on_a_node() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let all = [
        ("program", Some("sh"), "sh"),
        ("program", Some("python"), "python3"),
        ("program", Some("perl"), "perl"),
        ("perl", None, "perl"),
    ];
    for (engine, language, program) in all {
        if program != "sh" && !has(program) {
            continue;
        }
        let name = format!("{engine}-{}", language.unwrap_or("module"));
        let mut made = vec!["new", "My::Greet", "--engine", engine, "--folder", &name];
        if let Some(language) = language {
            made.extend(["--language", language]);
        }
        expect(folder.path(), &made, 0).await?;
        let (right, odd) = expect(folder.path(), &["check", &name], 0).await?;
        ensure!(right.contains(&format!("engine {engine}")) && odd.is_empty(), "{name}: {right} {odd}");
        let run = ["run", name.as_str(), "--params", "{\"name\": \"Ada\"}"];
        let (stdout, stderr) = expect(folder.path(), &run, 0).await?;
        ensure!(
            stdout == "Hello Ada\n" && stderr.contains("status: 1, succeeded\n"),
            "{name}: {stdout} {stderr}"
        );
    }
    Ok(())
}

#[tokio::test]
async fn what_runs_elsewhere_has_a_manifest_to_begin_with() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    for engine in ["container", "http", "kubernetes"] {
        expect(folder.path(), &["new", "My::Job", "--engine", engine, "--folder", engine], 0).await?;
        let (right, _) = expect(folder.path(), &["check", engine], 0).await?;
        ensure!(right.contains(&format!("engine {engine}")) && right.contains("params: a schema"), "{right}");
    }
    let (_, refused) = expect(folder.path(), &["run", "http"], 255).await?;
    ensure!(refused.contains("calls a DCI back"), "{refused}");
    // Compiling it would need crates from elsewhere.
    expect(folder.path(), &["new", "My::Job", "--language", "rust"], 0).await?;
    let (_, wrong) = expect(folder.path(), &["check", "my-job"], 255).await?;
    ensure!(wrong.contains("cargo build --release"), "{wrong}");
    Ok(())
}

#[tokio::test]
async fn nothing_is_made_in_the_place_of_something_else() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    expect(folder.path(), &["new", "My::Greet", "--language", "sh"], 0).await?;
    let (_, error) = expect(folder.path(), &["new", "My::Greet", "--language", "sh"], 255).await?;
    ensure!(error.contains("my-greet is there already"), "{error}");
    let (_, error) = expect(folder.path(), &["new", "not; legal"], 255).await?;
    ensure!(error.contains("plugin value 'not; legal'"), "{error}");
    expect(folder.path(), &["new", "A", "--engine", "docker"], 2).await?;
    let (_, error) = expect(folder.path(), &["check", "nowhere"], 255).await?;
    ensure!(error.contains("cannot find nowhere"), "{error}");
    Ok(())
}

#[tokio::test]
async fn how_a_run_ends_is_its_exit_status() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    expect(folder.path(), &["new", "My::Greet", "--language", "sh", "--folder", "greet"], 0).await?;
    let program = folder.path().join("greet/my-greet.sh");
    let secret = folder.path().join("secret.json");
    std::fs::write(&secret, "{\"password\": \"correct horse\"}")?;
    let secret = secret.to_string_lossy().into_owned();
    let with_secret = ["--secure-params-file", secret.as_str()];
    let cases: [(&str, &[&str], i32, &str); 5] = [
        ("exit 3", &[], 102, "status: 2, failed\n"),
        ("echo '{\"status\": 7}' >&3", &[], 7, "status: 7, status 7\n"),
        ("exec sleep 1000", &["--timeout", "0.2s"], 103, "it took longer than its timeout\n"),
        ("grep -q 'correct horse'", &with_secret, 0, "succeeded\n"),
        ("env | grep -q 'correct horse'", &with_secret, 102, "failed\n"),
    ];
    for (script, arguments, code, part) in cases {
        std::fs::write(&program, format!("#!/bin/sh\n{script}\n"))?;
        let arguments = [&["run", "greet"][..], arguments].concat();
        let (_, stderr) = expect(folder.path(), &arguments, code).await?;
        ensure!(stderr.contains(part) && !stderr.contains("horse"), "{script}: {stderr}");
    }
    let left: Vec<_> = std::fs::read_dir(folder.path().join("tmp"))?.collect();
    ensure!(left.is_empty(), "{left:?} is left behind");
    Ok(())
}
