//! The built `dci` with TLS, and what it shows to those who mean it no good.

mod certificates;
mod crowd;
mod limits;
mod memory;
mod server;
mod shell;

use std::path::Path;

use anyhow::Context;
use certificates::{Authority, plain_client, put, section};
use reqwest::{Client, Version};
use serde_json::{Value, json};
use server::{Server, eventually};
use tokio::process::Command;

/// A configuration without a database: nothing here asks it.
pub fn without_database() -> Value {
    let uri = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100";
    json!({ "mongohost": uri, "database": "x", "plugins": ["My::Plugin"] })
}

fn with_tls(folder: &Path) -> Value {
    let mut config = without_database();
    config["tls"] = section(folder);
    config
}

/// Whether the client gets an answer over TLS, on a new connection.
async fn trusts(client: &Client, server: &Server) -> bool {
    let answer = client.get(format!("https://{}/openapi.json", server.address)).send().await;
    answer.is_ok_and(|answer| answer.status() == 200)
}

#[tokio::test]
async fn https_is_served_and_http_is_not() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let authority = Authority::new("one")?;
    authority.issue(folder.path())?;
    let server = Server::start(&with_tls(folder.path()), &[]).await?;
    let answer = authority.client()?.get(format!("https://{}/openapi.json", server.address)).send().await?;
    assert_eq!((answer.status().as_u16(), answer.version()), (200, Version::HTTP_11));
    assert_eq!(answer.headers()["strict-transport-security"], "max-age=31536000");
    assert!(answer.text().await?.contains("\"openapi\""));
    assert!(plain_client()?.get(format!("http://{}/openapi.json", server.address)).send().await.is_err());
    assert!(!trusts(&plain_client()?, &server).await, "there is nobody that it could trust");
    assert_eq!(server.said("speaking TLS with this certificate"), 1);
    Ok(())
}

#[tokio::test]
async fn files_of_the_command_line_come_first() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let authority = Authority::new("one")?;
    authority.issue(folder.path())?;
    let mut config = without_database();
    config["tls"] = json!({ "certificate": "/nowhere/chain.pem", "key": "/nowhere/key.pem" });
    let [certificate, key] = ["chain.pem", "key.pem"].map(|name| folder.path().join(name));
    let certificate = certificate.to_str().context("odd folder")?;
    let key = key.to_str().context("odd folder")?;
    let arguments = ["--tls-certificate", certificate, "--tls-key", key];
    let server = Server::start(&config, &arguments).await?;
    assert!(trusts(&authority.client()?, &server).await);
    Ok(())
}

#[tokio::test]
async fn a_certificate_that_cannot_be_used_is_a_wrong_configuration() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let authority = Authority::new("one")?;
    authority.issue(folder.path())?;
    let first_key = std::fs::read_to_string(folder.path().join("key.pem"))?;
    authority.issue(folder.path())?;
    put(folder.path(), "key.pem", &first_key)?;
    let path = folder.path().join("config.json");
    let run = async |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_dci"));
        let output = command.arg("--config").arg(&path).args(arguments).output().await?;
        anyhow::Ok((output.status.code(), String::from_utf8(output.stderr)?))
    };
    for (name, text, problem) in [
        ("key.pem", first_key.as_str(), "is not that of the first certificate in"),
        ("key.pem", "", "there is no private key in"),
        ("chain.pem", "", "there is no certificate in"),
    ] {
        put(folder.path(), name, text)?;
        std::fs::write(&path, with_tls(folder.path()).to_string())?;
        let (status, said) = run(&["--listen", "127.0.0.1:0"]).await?;
        assert_eq!(status, Some(3), "{problem}: {said}");
        assert!(said.contains("dci: ") && said.contains(problem), "{problem}: {said}");
        assert!(said.contains(&folder.path().join(name).display().to_string()), "{said}");
    }
    let (status, said) = run(&["--tls-key", "key.pem"]).await?;
    assert_eq!(status, Some(2), "{said}");
    assert!(said.contains("--tls-certificate"), "{said}");
    Ok(())
}

#[tokio::test]
async fn a_new_certificate_is_served_without_a_restart() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (first, second) = (Authority::new("one")?, Authority::new("two")?);
    first.issue(folder.path())?;
    let server = Server::start(&with_tls(folder.path()), &[]).await?;
    assert!(trusts(&first.client()?, &server).await);
    assert!(!trusts(&second.client()?, &server).await);
    second.issue(folder.path())?;
    eventually("the new certificate", async || Ok(trusts(&second.client()?, &server).await)).await?;
    assert!(!trusts(&first.client()?, &server).await, "nobody gets the old one");
    Ok(())
}

#[tokio::test]
async fn sighup_reads_the_certificate_and_a_broken_one_changes_nothing() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let (first, second) = (Authority::new("one")?, Authority::new("two")?);
    first.issue(folder.path())?;
    let server = Server::start(&with_tls(folder.path()), &[]).await?;
    let again = "speaking TLS with the certificate as it is now";
    assert_eq!(server.said(again), 0);
    server.hang_up()?;
    eventually("a word about it", async || Ok(server.said(again) == 1)).await?;
    assert!(trusts(&first.client()?, &server).await);

    put(folder.path(), "chain.pem", "no certificate")?;
    let refused = "the new certificate cannot be used, the one before is kept";
    eventually("a word about it", async || {
        server.hang_up()?;
        Ok(server.said(refused) > 0)
    })
    .await?;
    assert!(trusts(&first.client()?, &server).await);

    second.issue(folder.path())?;
    eventually("the new certificate", async || {
        server.hang_up()?;
        Ok(trusts(&second.client()?, &server).await)
    })
    .await
}
