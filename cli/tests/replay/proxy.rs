//! A server that can be reached for some bytes only, as if the network stood still then: what is on its way stays there,
//! however quick this machine is.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::{JoinHandle, JoinSet};

/// So many bytes are passed on at once.
const PIECE: usize = 16 * 1024;

/// A way to a server. It and all connections end when this is dropped.
pub struct Proxy {
    address: SocketAddr,
    running: JoinHandle<()>,
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl Proxy {
    /// To the server at this address, for so many bytes, both ways together.
    pub async fn start(server: &str, bytes: usize) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (server, left) = (server.to_owned(), Arc::new(Semaphore::new(bytes)));
        let running = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((client, _)) = listener.accept().await {
                connections.spawn(connect(client, server.clone(), Arc::clone(&left)));
            }
        });
        Ok(Self { address, running })
    }

    /// Its address for `--url`.
    pub fn url(&self) -> String {
        format!("http://{}", self.address)
    }
}

async fn connect(client: TcpStream, server: String, left: Arc<Semaphore>) -> io::Result<()> {
    let server = TcpStream::connect(server).await?;
    let ((from_client, to_client), (from_server, to_server)) = (client.into_split(), server.into_split());
    tokio::try_join!(pass_on(from_client, to_server, &left), pass_on(from_server, to_client, &left))?;
    Ok(())
}

async fn pass_on(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, left: &Semaphore) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    loop {
        let read = from.read(&mut piece).await?;
        if read == 0 {
            return to.shutdown().await;
        }
        let bytes = u32::try_from(read).map_err(io::Error::other)?;
        // When there are none left, it waits for ever.
        left.acquire_many(bytes).await.map_err(io::Error::other)?.forget();
        to.write_all(&piece[..read]).await?;
    }
}
