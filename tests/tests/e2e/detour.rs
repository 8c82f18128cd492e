//! Ways to the database that lead through the test, which so decides what comes through, and when.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use disbatch_core::clock::SystemClock;
use disbatch_core::store::Store;
use disbatch_tests::{PATIENCE, World};
use mongodb::options::ClientOptions;
use mongodb::{Client, Database};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Host and port of the server.
pub fn address(world: &World) -> anyhow::Result<String> {
    let config: Value = serde_json::from_slice(&std::fs::read(world.config())?)?;
    let uri = config["mongohost"].as_str().context("no address")?;
    let address = uri.trim_start_matches("mongodb://").split(['/', '?']).next();
    Ok(address.context("no address")?.to_owned())
}

/// The database, by way of this port.
pub async fn database(world: &World, port: u16) -> anyhow::Result<Database> {
    let mut options = ClientOptions::parse(uri(port)).await?;
    options.server_selection_timeout = Some(Duration::from_secs(1));
    Ok(Client::with_options(options)?.database(world.database().name()))
}

fn uri(port: u16) -> String {
    format!("mongodb://127.0.0.1:{port}/?directConnection=true")
}

/// A way on which requests that have a certain word wait until they may go on: as if their process stood still there.
pub struct Held {
    /// Who goes this way.
    pub store: Store,
    /// The way, for a configuration.
    pub uri: String,
    reached: watch::Receiver<bool>,
    open: watch::Sender<bool>,
}

impl Held {
    /// One where requests with this word wait.
    pub async fn at(world: &World, word: &'static str) -> anyhow::Result<Self> {
        let (to, listener) = (address(world)?, TcpListener::bind("127.0.0.1:0").await?);
        let port = listener.local_addr()?.port();
        let (say, reached) = watch::channel(false);
        let (open, may_go) = watch::channel(false);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(pass_on(client, to.clone(), word, (say.clone(), may_go.clone())));
            }
        });
        let store = Store::with_clock(database(world, port).await?, Arc::new(SystemClock));
        Ok(Self { store, uri: uri(port), reached, open })
    }

    /// Waits until a request has come that waits.
    pub async fn reached(&self) -> anyhow::Result<()> {
        let mut reached = self.reached.clone();
        let waited = tokio::time::timeout(PATIENCE, reached.wait_for(|reached| *reached)).await;
        waited.context("no such request has come")?.context("the way is closed")?;
        Ok(())
    }

    /// Lets them go on, and all that come later.
    pub fn release(&self) {
        self.open.send_replace(true);
    }

    /// Lets those wait that come from now on.
    pub fn hold(&self) {
        self.open.send_replace(false);
    }
}

/// Passes a connection's requests on one by one, and the answers as they come.
async fn pass_on(
    client: TcpStream,
    to: String,
    word: &'static str,
    (reached, mut open): (watch::Sender<bool>, watch::Receiver<bool>),
) -> io::Result<()> {
    let server = TcpStream::connect(&to).await?;
    let (mut from_client, mut to_client) = client.into_split();
    let (mut from_server, mut to_server) = server.into_split();
    tokio::spawn(async move { tokio::io::copy(&mut from_server, &mut to_client).await });
    loop {
        // A message begins with its length, of which these four bytes are part.
        let mut length = [0; 4];
        from_client.read_exact(&mut length).await?;
        let rest =
            usize::try_from(u32::from_le_bytes(length)).unwrap_or_default().saturating_sub(length.len());
        let mut message = vec![0; rest];
        from_client.read_exact(&mut message).await?;
        let is_open = *open.borrow();
        if !is_open && message.windows(word.len()).any(|part| part == word.as_bytes()) {
            reached.send_replace(true);
            if open.wait_for(|open| *open).await.is_err() {
                return Ok(()); // The test is over.
            }
        }
        to_server.write_all(&length).await?;
        to_server.write_all(&message).await?;
    }
}
