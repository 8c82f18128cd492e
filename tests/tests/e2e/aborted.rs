//! Clients that ask and do not wait for the answer.

use std::fs::read_dir;

use anyhow::Context;
use disbatch_tests::{Dci, PATIENCE, World, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::outage::start;

/// Many times what the driver has connections for.
const MANY: usize = 450;

#[tokio::test]
async fn those_who_leave_hold_up_nobody() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = start(data.path(), None).await?;
    let mongod = Pid::from_raw(i32::try_from(server.pid())?);
    let world = World::at(server.uri()).await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    dci.get("/queues").await?;
    let address = dci.url().trim_start_matches("http://").to_owned();
    let descriptors = format!("/proc/{}/fd", dci.process()?);
    let open = || anyhow::Ok(read_dir(&descriptors)?.count());
    let before = open()?;
    let token = "0".repeat(64);
    let asked = [
        "GET /queues HTTP/1.1\r\nHost: localhost\r\n\r\n".to_owned(),
        format!(
            "POST /callbacks/6b0003b956635706337b691a/log HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\
             Content-Type: text/plain\r\nAuthorization: Bearer {token}\r\n\r\nx"
        ),
    ];

    // Nobody gets an answer from the database.
    kill(mongod, Signal::SIGSTOP)?;
    let mut crowd = Vec::new();
    for request in asked.iter().cycle().take(MANY) {
        let mut client = TcpStream::connect(&address).await?;
        client.write_all(request.as_bytes()).await?;
        crowd.push(client);
    }
    eventually("all to be heard", || async { Ok((open()? >= before + MANY - MANY / 10).then_some(())) })
        .await?;
    // It comes after them, and needs no database.
    dci.get("/openapi.json").await?;
    drop(crowd);
    eventually("all to have left", || async { Ok((open()? < before + MANY / 10).then_some(())) }).await?;
    kill(mongod, Signal::SIGCONT)?;

    timeout(PATIENCE, dci.get("/queues")).await.context("those who have left are still waited for")??;
    world.end().await?;
    server.stop().await
}
