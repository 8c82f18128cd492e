//! How much memory requests take: the most that the process has ever had.

use anyhow::Context;
use futures::future::join_all;
use reqwest::{Client, Method, Response};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::certificates::plain_client;
use crate::server::{PATIENCE, Server, eventually};
use crate::without_database;

const MIB: u64 = 1024 * 1024;

/// The longest body.
const LIMIT: usize = 16 * 1024 * 1024;

/// What the server may take besides: buffers of connections, and what is freed but not given back.
const BESIDES: u64 = 24 * MIB;

/// What the server keeps of a connection on which somebody sends more than is read.
const CONNECTION: u64 = 256 * 1024;

const JSON: &str = "application/json";
const FORM: &str = "application/x-www-form-urlencoded";

/// Many small objects, which take ninety times their text as values.
fn objects(bytes: usize) -> String {
    let object = "{\"\":0},";
    format!("{{\"name\":[{}0]}}", object.repeat((bytes - 20) / object.len()))
}

async fn post(
    client: &Client,
    server: &Server,
    path: &str,
    media_type: &str,
    body: String,
) -> anyhow::Result<Response> {
    let request = client.request(Method::POST, format!("http://{}{path}", server.address));
    let answer = request.header("content-type", media_type).body(body).send();
    Ok(timeout(PATIENCE, answer).await.context("no answer")??)
}

/// Begins a body that is never finished. Gives the connection, to be kept.
async fn held(server: &Server, path: &str, bytes: usize) -> anyhow::Result<TcpStream> {
    let mut connection = TcpStream::connect(server.address).await?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: {JSON}\r\nContent-Length: {LIMIT}\r\n\r\n"
    );
    connection.write_all(head.as_bytes()).await?;
    // It may be refused before that.
    let _refused = connection.write_all(&vec![b' '; bytes]).await;
    Ok(connection)
}

#[tokio::test]
async fn strangers_cost_little() -> anyhow::Result<()> {
    let server = Server::start(&without_database(), &[]).await?;
    let client = plain_client()?;
    let status = async |media_type, body| {
        anyhow::Ok(post(&client, &server, "/login", media_type, body).await?.status().as_u16())
    };
    assert_eq!(
        status(JSON, format!("{{\"name\":\"{}\"}}", "x".repeat(60_000))).await?,
        400,
        "there is no password"
    );
    let before = server.peak()?;
    let fields = "a&".repeat(LIMIT / 2);
    for (media_type, body) in
        [(JSON, objects(LIMIT)), (FORM, fields), (JSON, "[".repeat(LIMIT)), (JSON, " ".repeat(65_537))]
    {
        assert_eq!(status(media_type, body).await?, 413);
    }
    for (media_type, body) in [
        (JSON, objects(60_000)),
        (FORM, "a&".repeat(30_000)),
        (JSON, "[".repeat(60_000)),
        (JSON, "{\"a\":".repeat(9)),
    ] {
        assert_eq!(status(media_type, body).await?, 400);
    }
    let crowd = join_all((0..100).map(|_| held(&server, "/login", LIMIT - 1))).await;
    assert!(crowd.iter().all(Result::is_ok));
    assert_eq!(status(JSON, "{}".to_owned()).await?, 400, "it still answers");
    let grown = server.peak()? - before;
    assert!(grown < 100 * CONNECTION + BESIDES, "{} MiB", grown / MIB);
    Ok(())
}

#[tokio::test]
async fn one_request_takes_four_times_the_longest_body() -> anyhow::Result<()> {
    let server = Server::start(&without_database(), &[]).await?;
    let client = plain_client()?;
    let status = async |media_type, body| {
        anyhow::Ok(post(&client, &server, "/tasks", media_type, body).await?.status().as_u16())
    };
    // All is well with these, but for the database.
    let tasks = format!("{{\"queue\":\"q\",\"params\":[{}{{}}]}}", "{\"n\":1},".repeat(35_000));
    let long = format!("{{\"queue\":\"q\",\"params\":[{{\"a\":\"{}\"}}]}}", "x".repeat(LIMIT - 4_096));
    let before = server.peak()?;
    for body in [tasks, long] {
        assert_eq!(status(JSON, body).await?, 503);
    }
    let in_text = format!(
        "{{\"queue\":\"q\",\"params\":{{\"a\":1}},\".after\":{:?}}}",
        format!("[{}0]", "{\"\":0},".repeat(200_000))
    );
    for (body, expected) in [(objects(LIMIT), 413), ("[".repeat(LIMIT), 400), (in_text, 503)] {
        assert_eq!(status(JSON, body).await?, expected);
    }
    assert_eq!(status(FORM, "a&".repeat(LIMIT / 2)).await?, 413);
    // What is wrong with a text in a field is 400, and this is not.
    for (items, expected) in [(format!("[{}]", objects(LIMIT / 2)), 413), ("[".repeat(9), 400)] {
        let body = format!("{{\"queue\":\"q\",\"params\":{{}},\".array\":{items:?}}}");
        let answer = post(&client, &server, "/tasks", JSON, body).await?;
        assert_eq!(answer.status(), expected, "{}", answer.text().await?);
    }
    let grown = server.peak()? - before;
    assert!(grown < 64 * MIB + BESIDES, "{} MiB", grown / MIB);
    Ok(())
}

#[tokio::test]
async fn all_requests_together_have_a_bound() -> anyhow::Result<()> {
    let server = Server::start(&without_database(), &[]).await?;
    let client = plain_client()?;
    let before = server.peak()?;
    // Twice of what there is for all.
    let crowd = join_all((0..32).map(|_| held(&server, "/tasks", LIMIT - 1))).await;
    assert!(crowd.iter().all(Result::is_ok));
    assert!(server.said("take too much memory together") > 0, "some of them were refused");
    let strangers = post(&client, &server, "/login", JSON, "{}".to_owned()).await?;
    assert_eq!(strangers.status(), 400, "strangers have memory of their own");
    let grown = server.peak()? - before;
    assert!(grown < 256 * MIB + 2 * BESIDES, "{} MiB", grown / MIB);
    let body = format!("{{\"name\":\"{}\"}}", "x".repeat(LIMIT - 4_096));
    eventually("a refusal that says when to try again", async || {
        let answer = post(&client, &server, "/queues", JSON, body.clone()).await?;
        let after = answer.headers().contains_key("retry-after");
        Ok(answer.status() == 503 && after && answer.text().await?.contains("too much memory together"))
    })
    .await?;
    drop(crowd);
    eventually("room after these have gone", async || {
        let answer = post(&client, &server, "/queues", JSON, body.clone()).await?;
        Ok(!answer.text().await?.contains("too much memory together"))
    })
    .await
}
