//! Clients that are slow, or do not know when to end.

use std::time::Duration;

use reqwest::Method;
use tokio::time::Instant;

use crate::certificates::plain_client;
use crate::server::Server;
use crate::without_database;

/// The longest body.
const LIMIT: usize = 16 * 1024 * 1024;

/// A little less than a client may be silent.
const PAUSE: Duration = Duration::from_secs(9);

const HEAD: &str = "POST /queues HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n";

#[tokio::test]
async fn clients_that_stop_sending_are_cut_off() -> anyhow::Result<()> {
    let server = Server::start(&without_database(), &[]).await?;
    let began = Instant::now();
    let body = format!("{HEAD}Content-Length: 100\r\n\r\n{{");
    let chunks = format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n5\r\n{{\"a\":\r\n");
    let (head, body, chunks) = tokio::try_join!(
        server.exchange(HEAD.as_bytes()),
        server.exchange(body.as_bytes()),
        server.exchange(chunks.as_bytes()),
    )?;
    assert!(began.elapsed() >= PAUSE, "clients may take their time: {:?}", began.elapsed());
    assert!(head.starts_with("HTTP/1.1 408 "), "{head}");
    for answer in [body, chunks] {
        assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
        assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
        assert!(answer.contains(r#"{"error":"the body did not come in time"}"#), "{answer}");
    }
    Ok(())
}

#[tokio::test]
async fn bodies_that_are_too_long_are_not_read_to_their_end() -> anyhow::Result<()> {
    let server = Server::start(&without_database(), &[]).await?;
    let request = plain_client()?.request(Method::POST, format!("http://{}/queues", server.address));
    let request = request.header("content-type", "application/json").body(vec![b' '; LIMIT + 1]);
    assert_eq!(request.send().await?.status(), 413);

    // Chunks have no length in all, so nobody knows before.
    let mut sent = format!("{HEAD}Transfer-Encoding: chunked\r\n\r\n").into_bytes();
    for _ in 0..=LIMIT / 65_536 {
        sent.extend_from_slice(b"10000\r\n");
        sent.extend_from_slice(&[b' '; 65_536]);
        sent.extend_from_slice(b"\r\n");
    }
    let answer = server.exchange(&sent).await?;
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.contains("\r\nconnection: close\r\n"), "{answer}");
    Ok(())
}

#[tokio::test]
async fn a_body_may_come_in_pieces() -> anyhow::Result<()> {
    let server = Server::start(&without_database(), &[]).await?;
    let head = format!("{HEAD}Connection: close\r\nTransfer-Encoding: chunked\r\n\r\n");
    let answer = server.exchange(format!("{head}1\r\n[\r\n1\r\n]\r\n0\r\n\r\n").as_bytes()).await?;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    assert!(answer.contains("the body must be a JSON object"), "{answer}");
    Ok(())
}

#[tokio::test]
async fn who_wants_to_speak_another_protocol_is_answered_and_sent_away() -> anyhow::Result<()> {
    let server = Server::start(&without_database(), &[]).await?;
    let websocket = "Connection: Upgrade\r\nUpgrade: websocket\r\n";
    for (request, headers) in
        [("GET /openapi.json", websocket), ("POST /queues", websocket), ("CONNECT localhost:80", "")]
    {
        let began = Instant::now();
        let sent = format!("{request} HTTP/1.1\r\nHost: localhost\r\n{headers}\r\n");
        let answer = server.exchange(sent.as_bytes()).await?;
        assert!(answer.starts_with("HTTP/1.1 "), "{request}: {answer}");
        assert!(answer.contains("\r\nconnection: close\r\n"), "{request}: {answer}");
        assert!(began.elapsed() < PAUSE / 3, "{request}: {:?}", began.elapsed());
    }
    Ok(())
}
