//! Who asks: what is sent to show it, and what is said where that is not enough.

use anyhow::{Context, ensure};
use serde_json::json as value;
use tokio::process::Command;

use crate::server::{Reply, Server, json};
use crate::{ID, OTHER};

/// Name and password as HTTP has them.
const ASHLEY: &str = "Basic YXNobGV5OnNlY3JldCB3b3Jk";

/// What a run has sent to show who asks.
async fn shown(change: impl FnOnce(&mut Command)) -> anyhow::Result<Option<String>> {
    let server = Server::start(vec![("GET /queues", vec![json(value!([]))])]).await?;
    let mut command = server.command(&["queues"]);
    change(&mut command);
    let output = command.output().await?;
    ensure!(output.status.success(), "{output:?}");
    Ok(server.asked().pop().context("nothing was asked")?.authorization)
}

#[tokio::test]
async fn a_token_comes_before_a_password_unless_that_was_said_nearer() -> anyhow::Result<()> {
    let named = ["--username", "ashley", "--password", "secret word"];
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("cli.json");
    std::fs::write(&file, r#"{"token":"of-file","username":"ashley","password":"secret word"}"#)?;
    let nobody = shown(|_| ()).await?;
    ensure!(nobody.is_none(), "{nobody:?}");
    let option = shown(|command| {
        command.args(["--token", "t"]).args(named);
    });
    let option = option.await?;
    ensure!(option.as_deref() == Some("Bearer t"), "{option:?}");
    let environment = shown(|command| {
        command.env("DISBATCH_TOKEN", "t");
    });
    let environment = environment.await?;
    ensure!(environment.as_deref() == Some("Bearer t"), "{environment:?}");
    let nearer = shown(|command| {
        command.env("DISBATCH_TOKEN", "t").args(named);
    });
    let nearer = nearer.await?;
    ensure!(nearer.as_deref() == Some(ASHLEY), "{nearer:?}");
    let from_file = shown(|command| {
        command.arg("--config").arg(&file);
    });
    let from_file = from_file.await?;
    ensure!(from_file.as_deref() == Some("Bearer of-file"), "{from_file:?}");
    let named = shown(|command| {
        command.arg("--config").arg(&file).env("DISBATCH_USERNAME", "ashley");
    });
    let named = named.await?;
    ensure!(named.as_deref() == Some(ASHLEY), "{named:?}");
    Ok(())
}

#[tokio::test]
async fn whoever_is_refused_is_told_what_to_do() -> anyhow::Result<()> {
    let server = Server::start(vec![
        ("GET /queues", vec![Reply::Json(401, value!({ "error": "this needs a login" }))]),
        ("GET /nodes?.details=1", vec![Reply::Json(403, value!({ "error": "this needs the role viewer" }))]),
        (
            &format!("GET /tasks/{ID}/explain"),
            vec![Reply::Json(429, value!({ "error": "too many wrong passwords or tokens: wait 4 s" }))],
        ),
        (
            &format!("POST /tasks/{OTHER}/cancel"),
            vec![Reply::Json(403, value!({ "error": "this needs the role operator" }))],
        ),
    ])
    .await?;
    let (token, named) = (["--token", "t"], ["--username", "u", "--password", "p"]);
    for (options, words) in [
        (&[][..], "Give --token, or --username and --password"),
        (&named, "The user name or the password is wrong."),
        (&token, "The token is wrong, has ended or was revoked."),
    ] {
        let outcome = server.expect(&[&["queues"], options].concat(), 255).await?;
        let first = format!("Error getting {}/queues (401 Unauthorized): ", server.url);
        ensure!(outcome.stderr.starts_with(&first) && outcome.stderr.contains(words), "{}", outcome.stderr);
    }
    let outcome = server.expect(&["nodes", "--token", "t"], 255).await?;
    ensure!(outcome.stderr.contains("this needs the role viewer"), "{}", outcome.stderr);
    ensure!(outcome.stderr.contains("The token may not do this"), "{}", outcome.stderr);
    let outcome = server.expect(&["explain", ID], 255).await?;
    ensure!(
        outcome.stderr.contains("wait 4 s") && outcome.stderr.contains("try again"),
        "{}",
        outcome.stderr
    );
    let outcome = server.expect(&[&["cancel", OTHER][..], &named].concat(), 255).await?;
    ensure!(outcome.stderr.contains("this needs the role operator"), "{}", outcome.stderr);
    ensure!(outcome.stderr.contains("disbatch user grant"), "{}", outcome.stderr);
    let wrong = server.expect(&["queues", "--token", "two words"], 255).await?;
    ensure!(wrong.stderr.contains("characters that no token has"), "{}", wrong.stderr);
    Ok(())
}
