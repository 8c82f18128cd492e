//! Very many connections, and slow ones.

use std::time::Duration;

use anyhow::{Context, ensure};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};

use crate::certificates::plain_client;
use crate::server::{PATIENCE, Server};
use crate::without_database;

/// More than a server has places.
const MANY: usize = 2_100;

/// A little less than the beginning of a request may take.
const HEAD: Duration = Duration::from_secs(9);

/// A connection on which one request has been answered, and nothing has been asked since.
async fn answered(server: &Server, path: &str) -> anyhow::Result<TcpStream> {
    let mut connection = TcpStream::connect(server.address).await?;
    connection.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).await?;
    let mut answer = [0; 16];
    timeout(PATIENCE, connection.read_exact(&mut answer)).await.context("no answer")??;
    ensure!(answer.starts_with(b"HTTP/1.1 "), "{answer:?}");
    Ok(connection)
}

/// Reads what is left until the server closes the connection.
async fn end(connection: &mut TcpStream) -> anyhow::Result<()> {
    let mut rest = Vec::new();
    // It may be reset.
    let _closed = timeout(PATIENCE, connection.read_to_end(&mut rest)).await.context("it stays open")?;
    Ok(())
}

#[tokio::test]
async fn each_request_of_a_connection_has_to_begin_in_time() -> anyhow::Result<()> {
    let server = Server::start(&without_database(), &[]).await?;
    // One on which somebody has logged in, as nobody is asked here, and one of a stranger.
    let connections = ["/nowhere", "/login"].map(async |path| {
        let mut connection = answered(&server, path).await?;
        let began = Instant::now();
        connection.write_all(b"GET /login HTTP/1.1\r\nHost: ").await?;
        end(&mut connection).await?;
        anyhow::Ok(began.elapsed())
    });
    for took in futures::future::try_join_all(connections).await? {
        assert!(took >= HEAD, "clients may take their time: {took:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_crowd_shuts_nobody_out() -> anyhow::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    let server = Server::start(&without_database(), &[]).await?;
    let mut crowd = Vec::new();
    for number in 0..MANY {
        let path = if number % 2 == 0 { "/nowhere" } else { "/login" };
        crowd.push(answered(&server, path).await.with_context(|| format!("number {number}"))?);
    }
    // Those that ask nothing are kept for 75 seconds, unless others need their places.
    let answer = plain_client()?.get(format!("http://{}/nowhere", server.address)).send();
    assert_eq!(timeout(PATIENCE, answer).await.context("nobody else is served")??.status(), 404);
    end(&mut crowd[1]).await.context("the oldest stranger has made room")?;
    Ok(())
}

#[tokio::test]
async fn who_is_slow_to_agree_on_keys_makes_room_too() -> anyhow::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    let folder = tempfile::tempdir()?;
    let authority = crate::certificates::Authority::new("one")?;
    authority.issue(folder.path())?;
    let server = Server::start(&crate::with_tls(folder.path()), &[]).await?;
    let mut crowd = Vec::new();
    for _ in 0..MANY {
        crowd.push(TcpStream::connect(server.address).await?);
    }
    let client = authority.client()?;
    let answer = timeout(HEAD, client.get(format!("https://{}/nowhere", server.address)).send()).await;
    assert_eq!(answer.context("nobody else is served")??.status(), 404);
    Ok(())
}
