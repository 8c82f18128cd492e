//! A crowd of strangers, and those who have logged in.

use anyhow::{Context, ensure};
use disbatch_tests::{Dci, PATIENCE, World};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{PASSWORD, closed, direct};

/// More than the DCI has places.
const MANY: usize = 2_200;

/// Asks for the queues on a connection that is kept. Gives the status.
async fn ask(connection: &mut TcpStream, token: &str) -> anyhow::Result<u16> {
    let request = format!("GET /queues HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {token}\r\n\r\n");
    connection.write_all(request.as_bytes()).await?;
    let mut answer = Vec::new();
    while !answer.ends_with(b"[]") {
        let read = timeout(PATIENCE, connection.read_buf(&mut answer)).await.context("no answer")??;
        ensure!(read > 0, "it was closed after {:?}", String::from_utf8_lossy(&answer));
    }
    Ok(String::from_utf8_lossy(&answer).split(' ').nth(1).context("no status")?.parse()?)
}

#[tokio::test]
async fn strangers_shut_out_nobody_who_has_logged_in() -> anyhow::Result<()> {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most)?;
    let world = World::new().await?;
    direct(&world, &["user", "add", "ashley", "--admin"], PASSWORD).await?;
    let made = direct(&world, &["token", "create", "nightly", "--user", "ashley"], "").await?;
    let token = made.stdout.trim_end();
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    closed(&dci).await?;
    let address = dci.url().trim_start_matches("http://").to_owned();
    let mut known = TcpStream::connect(&address).await?;
    assert_eq!(ask(&mut known, token).await?, 200);
    // All of them come after it and from the same address, and all begin to ask something.
    let mut crowd = Vec::new();
    for number in 0..MANY {
        let mut stranger = TcpStream::connect(&address).await?;
        let begun = if number % 2 == 0 {
            "GET /queues HTTP/1.1\r\nHost: "
        } else {
            "POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: 60000\r\n\r\n{"
        };
        // It may have been closed already.
        let _closed = stranger.write_all(begun.as_bytes()).await;
        crowd.push(stranger);
    }
    assert_eq!(ask(&mut known, token).await?, 200, "its connection is still there");
    let mut new = TcpStream::connect(&address).await?;
    assert_eq!(ask(&mut new, token).await?, 200, "who has a token gets a new one");
    drop(crowd);
    world.end().await
}
