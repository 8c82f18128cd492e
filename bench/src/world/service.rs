//! A web service that has nothing to do: it takes each task that it is asked to work on, and says at once that it is done.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::Context;
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use super::web::client;

/// It has the task. Each task comes over a connection of its own.
const TAKEN: &[u8] = b"HTTP/1.1 201 Created\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

const DONE: &str = r#"{"status":"FINISHED"}"#;

/// A service that listens. Ends when dropped.
#[derive(Debug)]
pub struct Service {
    address: SocketAddr,
    running: JoinHandle<()>,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl Service {
    /// Starts one on a free port of this machine.
    pub async fn start() -> anyhow::Result<Self> {
        let http = client()?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        Ok(Self { address, running: tokio::spawn(serve(listener, http)) })
    }

    pub fn url(&self) -> String {
        format!("http://{}/", self.address)
    }
}

async fn serve(listener: TcpListener, http: reqwest::Client) {
    while let Ok((stream, _)) = listener.accept().await {
        let http = http.clone();
        tokio::spawn(async move {
            // Its task does not end then, which others notice without knowing why.
            if let Err(error) = work(stream, &http).await {
                crate::progress::say(&format!("the web service of the benchmark: {error:#}"));
            }
        });
    }
}

async fn work(stream: TcpStream, http: &reqwest::Client) -> anyhow::Result<()> {
    let order = take(stream).await.context("cannot take a task")?;
    let text = |pointer: &str| {
        let found = order.pointer(pointer).and_then(Value::as_str);
        found.with_context(|| format!("the request has no {pointer}"))
    };
    let call = http.post(text("/callbacks/status")?).bearer_auth(text("/token")?).body(DONE);
    let answer = call.send().await?.error_for_status().context("the callback was refused")?;
    // Read to its end, or its connection would not be used again.
    answer.bytes().await?;
    Ok(())
}

/// Reads a request and says that the task is taken.
async fn take(stream: TcpStream) -> anyhow::Result<Value> {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    // An empty line ends the head.
    while stream.read_line(&mut head).await? > 2 {}
    let head = head.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    let mut body = vec![0; length.context("the request has no length")?.trim().parse()?];
    stream.read_exact(&mut body).await?;
    stream.write_all(TAKEN).await?;
    stream.shutdown().await?;
    Ok(serde_json::from_slice(&body)?)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[tokio::test]
    async fn a_task_is_taken_and_called_back_for() {
        let service = Service::start().await.unwrap();
        let dci = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let callback = format!("http://{}/callbacks/1/status", dci.local_addr().unwrap());
        let order = json!({ "callbacks": { "status": callback }, "token": "secret" });
        let http = reqwest::Client::builder().no_proxy().build().unwrap();
        let asked = http.post(service.url()).body(order.to_string()).send().await.unwrap();
        assert_eq!(asked.status(), 201);
        let (stream, _) = dci.accept().await.unwrap();
        let mut lines = BufReader::new(stream).lines();
        let mut head = Vec::new();
        while let Some(line) = lines.next_line().await.unwrap().filter(|line| !line.is_empty()) {
            head.push(line.to_lowercase());
        }
        assert_eq!(head[0], "post /callbacks/1/status http/1.1");
        assert!(head.contains(&"authorization: bearer secret".to_owned()), "{head:?}");
    }
}
