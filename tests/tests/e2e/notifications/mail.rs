//! Messages as mail, to a mail server of ours.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use anyhow::{Context, bail, ensure};
use bson::doc;
use bson::oid::ObjectId;
use disbatch_core::notifications::QUEUE;
use disbatch_tests::{PATIENCE, fetched};
use nix::sys::signal::Signal;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};
use tokio::time::timeout;

use super::{PAGES, Scene, with};
use crate::secrets::not_in_the_database;

/// Its folder, named with its version in `scripts/prepare`, too.
const AIOSMTPD: &str = "aiosmtpd-1.4.6";

/// A mail server that runs. Killed when dropped.
struct MailServer {
    _child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    port: u64,
}

impl MailServer {
    async fn start(arguments: &[&str]) -> anyhow::Result<Self> {
        let libraries = fetched()?.join(AIOSMTPD);
        ensure!(
            libraries.is_dir(),
            "this test needs aiosmtpd in {}: 'scripts/prepare browser' fetches it",
            libraries.display()
        );
        let mut child = Command::new("python3")
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/mail_server.py"))
            .args(arguments)
            .env("PYTHONPATH", libraries)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()?;
        let lines = BufReader::new(child.stdout.take().context("no output")?).lines();
        let mut server = Self { _child: child, lines, port: 0 };
        server.port = server.next().await?["port"].as_u64().context("no port")?;
        Ok(server)
    }

    /// The next thing that it says.
    async fn next(&mut self) -> anyhow::Result<Value> {
        let line =
            timeout(PATIENCE, self.lines.next_line()).await.context("the mail server says nothing")??;
        Ok(serde_json::from_str(&line.context("the mail server has ended")?)?)
    }

    /// The settings of a subscription that is told by mail.
    fn settings(&self, query: &str) -> Value {
        json!({
            "channel": "mail", "url": format!("smtp://127.0.0.1:{}{query}", self.port), "events": ["failed"],
            "from": "Disbatch <disbatch@example.org>", "to": ["ann@example.org", "bob@example.org"],
        })
    }
}

/// A certificate for this machine with its key, and that of the authority that has signed it.
fn certificates(folder: &Path) -> anyhow::Result<(PathBuf, PathBuf)> {
    let mut authority = rcgen::CertificateParams::new(Vec::new())?;
    authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    authority.distinguished_name.push(rcgen::DnType::CommonName, "Disbatch test authority");
    let authority = rcgen::CertifiedIssuer::self_signed(authority, rcgen::KeyPair::generate()?)?;
    let key = rcgen::KeyPair::generate()?;
    let names = vec!["127.0.0.1".to_owned()];
    let certificate = rcgen::CertificateParams::new(names)?.signed_by(&key, &authority)?;
    let (server, trusted) = (folder.join("mail.pem"), folder.join("authority.pem"));
    std::fs::write(&server, certificate.pem() + &key.serialize_pem())?;
    std::fs::write(&trusted, authority.pem())?;
    Ok((server, trusted))
}

#[tokio::test]
async fn a_mail_says_what_has_happened() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let mut server = MailServer::start(&[]).await?;
    let queue = scene.queue("imports").await?;
    scene.subscribe("mail", &server.settings("?tls=none")).await?;
    let _den = scene.world.den_at_work("n1").await?;
    let failed = scene.run(queue, "fail", 1).await?[0];
    let mail = server.next().await?["mail"].take();
    assert_eq!(mail["from"], "disbatch@example.org");
    assert_eq!(mail["to"], json!(["ann@example.org", "bob@example.org"]));
    let text = mail["text"].as_str().context("no text")?;
    let tasks = scene.world.until_all_ended(QUEUE).await?;
    let [task] = &tasks[..] else { bail!("several messages: {tasks:?}") };
    assert_eq!(task.get_i32("status")?, 1, "{task}");
    let (head, body) = text.split_once("\r\n\r\n").context("no body")?;
    for line in [
        "From: Disbatch <disbatch@example.org>".to_owned(),
        "To: ann@example.org, bob@example.org".to_owned(),
        "Subject: queue imports: 1 task failed".to_owned(),
        format!("Message-ID: <{}@disbatch>", task.get_object_id("_id")?),
    ] {
        assert!(head.lines().any(|other| other == line), "no '{line}' in {head}");
    }
    assert!(head.to_lowercase().contains("content-type: text/plain; charset=utf-8"), "{head}");
    // A long line may be broken for the way.
    let body = body.replace("=\r\n", "");
    assert!(body.contains(&format!("{PAGES}/tasks/{failed}")), "{body}");
    scene.world.end().await
}

#[tokio::test]
async fn a_password_is_for_the_server_whose_certificate_is_right() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let world = &scene.world;
    let password = ObjectId::new().to_hex();
    let (certificate, trusted) = certificates(world.path())?;
    let (certificate, trusted) = (certificate.display().to_string(), trusted.display().to_string());
    let arguments = ["--certificate", &certificate, "--user", "disbatch", "--password", &password];
    let mut server = MailServer::start(&arguments).await?;
    let secret = json!({ "user": "disbatch", "secret": password });
    scene.subscribe("mail", &with(server.settings("?tls=required"), &secret)).await?;
    world.update_queue(QUEUE, doc! { "max_attempts": 1 }).await?;
    let task = scene.test("mail").await?;
    let stranger = world.den_at_work("n1").await?;
    let refused = world.until_status(task, 2).await?;
    assert!(refused.get_str("stderr")?.contains("certificate"), "{refused}");
    stranger.end_with(Signal::SIGTERM).await?;

    let _den = world.den_in("n2", &[], &[("SSL_CERT_FILE", &trusted)])?;
    scene.dci.posted(&format!("/tasks/{task}/retry"), &json!({})).await?;
    world.until_status(task, 1).await?;
    assert_eq!(server.next().await?, json!({ "login": { "encrypted": true, "right": true } }));
    let mail = server.next().await?["mail"].take();
    assert_eq!((&mail["encrypted"], &mail["authenticated"]), (&json!(true), &json!(true)));
    not_in_the_database(world, &password).await?;
    scene.world.end().await
}

#[tokio::test]
async fn a_password_does_not_go_to_a_server_that_cannot_encrypt() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let world = &scene.world;
    let mut server = MailServer::start(&[]).await?;
    let password = ObjectId::new().to_hex();
    let secret = json!({ "user": "disbatch", "secret": password });
    scene.subscribe("secret", &with(server.settings(""), &secret)).await?;
    scene.subscribe("open", &server.settings("")).await?;
    world.update_queue(QUEUE, doc! { "max_attempts": 1 }).await?;
    let _den = world.den_at_work("n1").await?;
    let refused = world.until_status(scene.test("secret").await?, 2).await?;
    assert!(!refused.get_str("stderr")?.contains(&password), "{refused}");
    world.until_status(scene.test("open").await?, 1).await?;
    let first = server.next().await?;
    assert_eq!(first["mail"]["authenticated"], json!(null), "nobody has tried to log in before: {first}");
    not_in_the_database(world, &password).await?;
    scene.world.end().await
}
