//! A small web service: it takes tasks, and the test says for it how they get on.

use std::net::SocketAddr;
use std::path::Path;

use anyhow::{Context, ensure};
use bson::oid::ObjectId;
use disbatch_core::model::TaskId;
use disbatch_tests::{Dci, PATIENCE};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::timeout;

/// So many connections may wait for it.
const WAITING: u32 = 64;

/// How a service answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// It takes the task: 201.
    Takes,
    /// It reads the request and never answers.
    IsSilent,
    /// It refuses: 500.
    Refuses,
}

/// A service that runs. Ends when dropped.
pub struct Service {
    address: SocketAddr,
    orders: UnboundedReceiver<Order>,
    running: JoinHandle<()>,
}

/// A task that was given to a service.
#[derive(Debug, Clone)]
pub struct Order {
    /// The request's first line and its headers, in small letters.
    pub head: String,
    /// What the service was told.
    pub body: Value,
}

impl Drop for Service {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl Service {
    /// Starts one that answers so.
    pub async fn start(manner: Manner) -> anyhow::Result<Self> {
        Self::with(TcpListener::bind("127.0.0.1:0").await?, manner)
    }

    /// Starts one that listens from now on at the address of this socket.
    pub fn behind(socket: TcpSocket, manner: Manner) -> anyhow::Result<Self> {
        Self::with(socket.listen(WAITING)?, manner)
    }

    fn with(listener: TcpListener, manner: Manner) -> anyhow::Result<Self> {
        let address = listener.local_addr()?;
        let (sender, orders) = unbounded_channel();
        let running = tokio::spawn(serve(listener, manner, sender));
        Ok(Self { address, orders, running })
    }

    /// Where it is.
    pub fn url(&self) -> String {
        format!("http://{}/start", self.address)
    }

    /// The next task that it gets.
    pub async fn next(&mut self) -> anyhow::Result<Order> {
        timeout(PATIENCE, self.orders.recv())
            .await
            .context("the service got no task")?
            .context("it has ended")
    }

    /// Whether it has got another one.
    pub fn has_more(&self) -> bool {
        !self.orders.is_empty()
    }
}

async fn serve(listener: TcpListener, manner: Manner, orders: UnboundedSender<Order>) {
    // Those that are not answered stay open.
    let mut silent = Vec::new();
    while let Ok((stream, _)) = listener.accept().await {
        // Whoever hangs up on it is no matter for it.
        if let Ok(Some(stream)) = take(stream, manner, &orders).await {
            silent.push(stream);
        }
    }
}

async fn take(
    stream: TcpStream,
    manner: Manner,
    orders: &UnboundedSender<Order>,
) -> anyhow::Result<Option<TcpStream>> {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while stream.read_line(&mut head).await? > 2 {}
    let head = head.to_lowercase();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.context("no length")?.trim().parse()?];
    stream.read_exact(&mut body).await?;
    orders.send(Order { head, body: serde_json::from_slice(&body)? })?;
    let (status, text) = match manner {
        Manner::Takes => ("201 Created", ""),
        Manner::Refuses => ("500 Internal Server Error", "no room"),
        Manner::IsSilent => return Ok(Some(stream.into_inner())),
    };
    let length = text.len();
    let answer = format!("HTTP/1.1 {status}\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{text}");
    stream.write_all(answer.as_bytes()).await?;
    stream.shutdown().await?;
    Ok(None)
}

impl Order {
    pub fn task(&self) -> anyhow::Result<TaskId> {
        let id = self.body["runId"].as_str().context("no runId")?;
        Ok(TaskId(ObjectId::parse_str(id)?))
    }

    /// What the service shows.
    pub fn token(&self) -> &str {
        self.body["token"].as_str().unwrap_or_default()
    }

    /// Calls back, and returns the status of the answer.
    pub async fn call(&self, dci: &Dci, what: &str, body: impl Into<reqwest::Body>) -> anyhow::Result<u16> {
        self.call_with(dci, what, self.token(), body).await
    }

    /// The same with another token.
    pub async fn call_with(
        &self,
        dci: &Dci,
        what: &str,
        token: &str,
        body: impl Into<reqwest::Body>,
    ) -> anyhow::Result<u16> {
        let url = self.body["callbacks"][what].as_str().context("no such callback")?;
        // Behind the address of any of the servers.
        let (_, path) = url.split_once("/callbacks/").context("no callback")?;
        let request = dci.request(Method::POST, &format!("/callbacks/{path}"));
        Ok(request.bearer_auth(token).body(body).send().await?.status().as_u16())
    }

    /// Logs something.
    pub async fn log(&self, dci: &Dci, text: impl Into<reqwest::Body>) -> anyhow::Result<()> {
        let status = self.call(dci, "log", text).await?;
        ensure!(status == 200, "the log is answered with {status}");
        Ok(())
    }

    /// Says that it has ended well.
    pub async fn finish(&self, dci: &Dci) -> anyhow::Result<()> {
        let status = self.call(dci, "status", json!({ "status": "FINISHED" }).to_string()).await?;
        ensure!(status == 200, "the end is answered with {status}");
        Ok(())
    }
}

/// Installs a plugin of a service.
pub fn install(plugins: &Path, name: &str, http: &Value) -> anyhow::Result<()> {
    let folder = plugins.join(name);
    std::fs::create_dir_all(&folder)?;
    let manifest = json!({ "name": name, "engine": "http", "http": http });
    std::fs::write(folder.join("plugin.json"), manifest.to_string())?;
    Ok(())
}
