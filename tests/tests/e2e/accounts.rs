//! Users, tokens and sessions: made and changed with the command line, and asked for by a running DCI.

mod crowd;

use std::collections::BTreeSet;
use std::process::Stdio;

use anyhow::{Context, ensure};
use bson::{Document, doc};
use disbatch_tests::{Dci, Finished, PATIENCE, World, binary, eventually};
use futures::future::try_join_all;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

use crate::wake::{fail, fallible};

const PASSWORD: &str = "correct horse battery";
const OTHER_PASSWORD: &str = "another staple";

/// `disbatch` with no settings but those that a test gives.
fn disbatch(arguments: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(binary("disbatch")?);
    for variable in ["DISBATCH_URL", "DISBATCH_USERNAME", "DISBATCH_PASSWORD", "DISBATCH_TOKEN"] {
        command.env_remove(variable);
    }
    command.env("XDG_CONFIG_HOME", "/nonexistent").env_remove("DISBATCH_USER_PASSWORD");
    command.args(arguments).kill_on_drop(true);
    Ok(command)
}

/// Runs a command that works on the database, with a password on its standard input.
pub(crate) async fn direct(world: &World, arguments: &[&str], password: &str) -> anyhow::Result<Finished> {
    let mut command = disbatch(arguments)?;
    command.arg("--config").arg(world.config());
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().context("no standard input")?;
    // It may end without reading.
    let _unread = input.write_all(format!("{password}\n").as_bytes()).await;
    drop(input);
    let output = child.wait_with_output().await?;
    let finished = Finished {
        status: output.status,
        stdout: String::from_utf8(output.stdout)?,
        stderr: String::from_utf8(output.stderr)?,
    };
    ensure!(finished.status.success(), "{arguments:?}: {finished:?}");
    Ok(finished)
}

/// Runs a command that asks the DCI. Gives its exit code and all that it has printed.
async fn ask(dci: &Dci, arguments: &[&str]) -> anyhow::Result<(Option<i32>, String)> {
    let output = disbatch(arguments)?.args(["--url", dci.url()]).stdin(Stdio::null()).output().await?;
    Ok((output.status.code(), String::from_utf8([output.stdout, output.stderr].concat())?))
}

async fn expect(dci: &Dci, arguments: &[&str], code: i32, part: &str) -> anyhow::Result<()> {
    let (status, text) = ask(dci, arguments).await?;
    ensure!(status == Some(code) && text.contains(part), "{arguments:?}: {status:?}, no '{part}' in {text}");
    Ok(())
}

/// The status of `GET /queues` with this header.
async fn queues(dci: &Dci, header: Option<(&str, &str)>) -> anyhow::Result<u16> {
    let request = dci.request(Method::GET, "/queues");
    let request = header.into_iter().fold(request, |request, (name, value)| request.header(name, value));
    Ok(request.send().await?.status().as_u16())
}

/// Waits until nobody is let in who does not say who they are.
async fn closed(dci: &Dci) -> anyhow::Result<()> {
    eventually("a DCI that asks who it is", || async { Ok((queues(dci, None).await? == 401).then_some(())) })
        .await
}

/// Logs in as a browser does, and gives the cookie.
async fn log_in(dci: &Dci, name: &str, password: &str) -> anyhow::Result<String> {
    let fields = [("name", name), ("password", password), (".then", "/")];
    let answer = dci.request(Method::POST, "/login").form(&fields).send().await?;
    ensure!(answer.status() == 303, "{answer:?}");
    let cookie = answer.headers().get("set-cookie").context("no cookie")?.to_str()?;
    Ok(cookie.split(';').next().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn the_first_user_closes_the_door_and_comes_in() -> anyhow::Result<()> {
    let world = World::new().await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    assert_eq!(queues(&dci, None).await?, 200, "there are no users yet");
    let added = direct(&world, &["user", "add", "ashley", "--admin"], PASSWORD).await?;
    assert!(added.stderr.contains("This is the first user"), "{added:?}");
    closed(&dci).await?;
    expect(&dci, &["queues"], 255, "Give --token, or --username and --password").await?;
    let named = ["--username", "ashley", "--password"];
    expect(&dci, &[&named[..], &[PASSWORD, "queues"]].concat(), 0, "0 total queues.").await?;
    let wrong = [&named[..], &["wrong password", "queues"]].concat();
    expect(&dci, &wrong, 255, "The user name or the password is wrong.").await?;
    expect(&dci, &wrong, 255, "(401 Unauthorized)").await?;
    let create = ["create-queue", "mail", "Disbatch::Plugin::Shell"];
    expect(&dci, &[&named[..], &[PASSWORD], &create].concat(), 0, "mail").await?;
    let audit = dci.request(Method::GET, "/audit").basic_auth("ashley", Some(PASSWORD)).send().await?;
    let audit: Value = serde_json::from_str(&audit.text().await?)?;
    let entries = audit.as_array().context("no list")?;
    let added = entries.iter().find(|entry| entry["what"] == "user add").context("no entry")?;
    assert!(added["by"].as_str().is_some_and(|by| by.ends_with(" with the command line")), "{added}");
    assert!(!audit.to_string().contains("argon2"), "{audit}");
    world.end().await
}

#[tokio::test]
async fn a_token_lets_programs_in_until_it_is_revoked() -> anyhow::Result<()> {
    let world = World::new().await?;
    direct(&world, &["user", "add", "ashley", "--admin"], PASSWORD).await?;
    let create = ["token", "create", "nightly", "--user", "ashley", "--role", "viewer", "--days", "1"];
    let made = direct(&world, &create, "").await?;
    let token = made.stdout.trim_end();
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    closed(&dci).await?;
    expect(&dci, &["queues", "--token", token], 0, "0 total queues.").await?;
    let more = ["create-queue", "mail", "Disbatch::Plugin::Shell", "--token", token];
    expect(&dci, &more, 255, "The token may not do this").await?;
    let in_environment =
        disbatch(&["queues", "--url", dci.url()])?.env("DISBATCH_TOKEN", token).output().await?;
    assert!(in_environment.status.success(), "{in_environment:?}");
    let listed = direct(&world, &["token", "list", "--format", "json"], "").await?;
    let listed: Value = serde_json::from_str(&listed.stdout)?;
    assert!(listed[0]["used"].is_string() && listed[0]["from"] == "127.0.0.1", "{listed}");
    direct(&world, &["token", "revoke", listed[0]["id"].as_str().context("no id")?], "").await?;
    expect(&dci, &["queues", "--token", token], 255, "The token is wrong, has ended or was revoked.").await?;
    world.end().await
}

#[tokio::test]
async fn a_new_password_and_a_removal_end_what_there_was() -> anyhow::Result<()> {
    let world = World::new().await?;
    direct(&world, &["user", "add", "ashley", "--admin"], PASSWORD).await?;
    direct(&world, &["user", "add", "robin", "--role", "viewer"], PASSWORD).await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    closed(&dci).await?;
    let robin = log_in(&dci, "robin", PASSWORD).await?;
    let ashley = log_in(&dci, "ashley", PASSWORD).await?;
    assert_eq!(queues(&dci, Some(("cookie", &robin))).await?, 200);
    direct(&world, &["user", "passwd", "robin"], OTHER_PASSWORD).await?;
    assert_eq!(queues(&dci, Some(("cookie", &robin))).await?, 401, "the session goes on");
    assert_eq!(queues(&dci, Some(("cookie", &ashley))).await?, 200, "that of somebody else has ended");
    let by_password = |password: &'static str| ["queues", "--username", "robin", "--password", password];
    expect(&dci, &by_password(PASSWORD), 255, "the password is wrong").await?;
    expect(&dci, &by_password(OTHER_PASSWORD), 0, "0 total queues.").await?;

    direct(&world, &["user", "grant", "robin", "--no-role"], "").await?;
    expect(&dci, &by_password(OTHER_PASSWORD), 255, "Ask an administrator").await?;
    direct(&world, &["user", "grant", "robin", "--role", "viewer"], "").await?;
    let again = log_in(&dci, "robin", OTHER_PASSWORD).await?;
    assert_eq!(queues(&dci, Some(("cookie", &again))).await?, 200);
    direct(&world, &["user", "remove", "robin"], "").await?;
    assert_eq!(queues(&dci, Some(("cookie", &again))).await?, 401);
    expect(&dci, &by_password(OTHER_PASSWORD), 255, "the password is wrong").await?;
    let last = direct(&world, &["user", "remove", "ashley"], "").await?;
    assert!(last.stderr.contains("There are no users any more"), "{last:?}");
    assert_eq!(queues(&dci, None).await?, 401, "a DCI that has asked goes on asking");
    world.end().await
}

#[tokio::test]
async fn a_refused_login_is_answered_before_it_is_recorded() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = fallible(data.path()).await?;
    let world = World::at(server.uri()).await?;
    direct(&world, &["user", "add", "ashley", "--admin"], PASSWORD).await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    closed(&dci).await?;
    let audit = world.database().collection::<Document>("audit");
    let recorded = async || -> anyhow::Result<u64> {
        Ok(audit.count_documents(doc! { "what": "login refused" }).await?)
    };
    // Names of users have more entries than others: the time that an entry takes would tell them.
    let slow = doc! {
        "failCommands": ["insert"], "namespace": format!("{}.audit", world.database().name()),
        "blockConnection": true, "blockTimeMS": 10_000,
    };
    fail(&world, "alwaysOn", slow).await?;
    let (status, _) = dci.post("/login", &json!({ "name": "ashley", "password": "wrong password" })).await?;
    assert_eq!(status, 401);
    assert_eq!(recorded().await?, 0, "the answer has waited for the entry");
    fail(&world, "off", doc! {}).await?;
    eventually("the entry", || async { Ok((recorded().await? == 1).then_some(())) }).await?;
    world.end().await?;
    server.stop().await
}

/// Runs `disbatch user grant robin` with each of these, all at once.
async fn grant_at_once(world: &World, changes: &[(&str, String)]) -> anyhow::Result<()> {
    let commands: Vec<[&str; 5]> =
        changes.iter().map(|(option, value)| ["user", "grant", "robin", *option, value.as_str()]).collect();
    try_join_all(commands.iter().map(|command| direct(world, command, ""))).await?;
    Ok(())
}

/// The tenants on whose queues the only user has a role.
async fn granted(world: &World) -> anyhow::Result<BTreeSet<String>> {
    let listed = direct(world, &["user", "list", "--format", "json"], "").await?;
    let listed: Value = serde_json::from_str(&listed.stdout)?;
    let grants = listed[0]["grants"].as_array().context("no grants")?;
    Ok(grants.iter().filter_map(|grant| grant["tenant"].as_str()).map(str::to_owned).collect())
}

#[tokio::test]
async fn what_several_change_of_a_user_at_once_is_all_done() -> anyhow::Result<()> {
    let world = World::new().await?;
    direct(&world, &["user", "add", "robin", "--tenant", "first=viewer"], PASSWORD).await?;
    let given: Vec<_> = (0..8).map(|number| ("--tenant", format!("t{number}=operator"))).collect();
    grant_at_once(&world, &given).await?;
    let mut expected: BTreeSet<String> = (0..8).map(|number| format!("t{number}")).collect();
    expected.insert("first".to_owned());
    assert_eq!(granted(&world).await?, expected);

    let taken = (0..4).map(|number| ("--revoke-tenant", format!("t{number}")));
    let more = (8..12).map(|number| ("--tenant", format!("t{number}=viewer")));
    let both: Vec<_> = taken.chain(more).collect();
    grant_at_once(&world, &both).await?;
    let mut expected: BTreeSet<String> = (4..12).map(|number| format!("t{number}")).collect();
    expected.insert("first".to_owned());
    assert_eq!(granted(&world).await?, expected);
    world.end().await
}

#[tokio::test]
async fn other_machines_are_served_only_when_somebody_can_log_in() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut command = Command::new(binary("dci")?);
    command.arg("--config").arg(world.config()).args(["--listen", "0.0.0.0:0"]).kill_on_drop(true);
    let refused = tokio::time::timeout(PATIENCE, command.stdin(Stdio::null()).output());
    let refused = refused.await.context("it listens")??;
    let text = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{text}");
    assert!(text.contains("refusing to listen on 0.0.0.0:0") && text.contains("disbatch user add"), "{text}");

    direct(&world, &["user", "add", "ashley", "--role", "viewer"], PASSWORD).await?;
    let dci = Dci::start_at("0.0.0.0:0", &world.config(), &world.path().join("dci.log")).await?;
    assert_eq!(queues(&dci, None).await?, 401);
    expect(&dci, &["queues", "--username", "ashley", "--password", PASSWORD], 0, "0 total queues.").await?;
    world.end().await
}
