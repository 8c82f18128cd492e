//! A receiver of messages: a small web server that remembers what it was sent.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, ensure};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// How a request is answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// It is taken: 204.
    Takes,
    /// It is taken as soon as the test says so.
    Waits,
    /// It is taken, and the connection ends without an answer.
    HangsUp,
    /// It is refused: 500.
    Refuses,
    /// It is read, and never answered.
    IsSilent,
}

impl Manner {
    /// Whether what was sent counts as received.
    pub const fn takes(self) -> bool {
        matches!(self, Self::Takes | Self::Waits | Self::HangsUp)
    }
}

#[derive(Debug, Clone)]
pub struct Received {
    /// Its first line and its headers.
    head: String,
    pub body: String,
    /// How it was answered.
    pub manner: Manner,
}

/// A receiver that runs. Ends when dropped.
#[derive(Debug)]
pub struct Hook {
    address: SocketAddr,
    shared: Arc<Shared>,
    running: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    /// Those of the first requests.
    manners: Vec<Manner>,
    received: Mutex<Vec<Received>>,
    /// Whether those are answered that wait.
    answers: watch::Sender<bool>,
}

impl Drop for Hook {
    fn drop(&mut self) {
        self.running.abort();
    }
}

impl Hook {
    /// Starts one that answers its first requests so, and takes all others.
    pub async fn start(manners: Vec<Manner>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let (answers, _) = watch::channel(false);
        let shared = Arc::new(Shared { manners, received: Mutex::new(Vec::new()), answers });
        let running = tokio::spawn(serve(listener, shared.clone()));
        Ok(Self { address, shared, running })
    }

    /// Where it is.
    pub fn url(&self) -> String {
        self.url_of("127.0.0.1")
    }

    /// The same by another name of this machine.
    pub fn url_of(&self, host: &str) -> String {
        format!("http://{host}:{}/hook", self.address.port())
    }

    /// All requests that were read, in their order.
    pub fn received(&self) -> Vec<Received> {
        self.shared.received().clone()
    }

    /// The messages that were taken, each once, in the order in which they came first.
    ///
    /// # Errors
    /// A request is none of a webhook, or two with the same id are not the same message.
    pub fn messages(&self) -> anyhow::Result<Vec<Value>> {
        let (mut known, mut messages): (HashMap<String, Value>, Vec<Value>) = (HashMap::new(), Vec::new());
        for received in self.received().iter().filter(|received| received.manner.takes()) {
            let (id, message) = (received.id()?, received.json()?);
            match known.get(id) {
                Some(before) => {
                    ensure!(*before == message, "two messages with the id {id}: {before} {message}")
                }
                None => {
                    known.insert(id.to_owned(), message.clone());
                    messages.push(message);
                }
            }
        }
        Ok(messages)
    }

    /// Answers those that wait, and does not let others wait any more.
    pub fn answer(&self) {
        self.shared.answers.send_replace(true);
    }
}

impl Received {
    pub fn header(&self, name: &str) -> Option<&str> {
        let headers = self.head.lines().filter_map(|line| line.split_once(':'));
        let mut found = headers.filter(|(known, _)| known.eq_ignore_ascii_case(name));
        found.next().map(|(_, value)| value.trim())
    }

    /// Where it was sent to.
    pub fn path(&self) -> &str {
        self.head.split(' ').nth(1).unwrap_or_default()
    }

    /// The id of the message, the same in each attempt to deliver it.
    pub fn id(&self) -> anyhow::Result<&str> {
        self.header("webhook-id").with_context(|| format!("a message without an id: {}", self.head))
    }

    pub fn json(&self) -> anyhow::Result<Value> {
        serde_json::from_str(&self.body).with_context(|| format!("no JSON: {}", self.body))
    }
}

/// How many events of a kind messages tell of.
pub fn count_events(messages: &[Value], kind: &str) -> i64 {
    let events = messages.iter().filter_map(|message| message["events"].as_array()).flatten();
    events.filter(|event| event["event"] == kind).filter_map(|event| event["count"].as_i64()).sum()
}

impl Shared {
    fn received(&self) -> MutexGuard<'_, Vec<Received>> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a request, and says how it is to be answered.
    fn note(&self, head: String, body: String) -> Manner {
        let mut received = self.received();
        let manner = self.manners.get(received.len()).copied().unwrap_or(Manner::Takes);
        received.push(Received { head, body, manner });
        manner
    }

    async fn answer(&self, mut stream: TcpStream) -> anyhow::Result<()> {
        let (head, body) = read(&mut stream).await?;
        let answer = match self.note(head, body) {
            Manner::Takes => "204 No Content",
            Manner::Waits => {
                self.answers.subscribe().wait_for(|answers| *answers).await?;
                "204 No Content"
            }
            Manner::Refuses => "500 Internal Server Error",
            Manner::HangsUp => return Ok(()),
            Manner::IsSilent => std::future::pending().await,
        };
        let answer = format!("HTTP/1.1 {answer}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        stream.write_all(answer.as_bytes()).await?;
        Ok(stream.shutdown().await?)
    }
}

async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let mut answering = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { return };
                let shared = shared.clone();
                // Senders are killed while they send.
                answering.spawn(async move { shared.answer(stream).await.ok() });
            }
            Some(_) = answering.join_next() => {}
        }
    }
}

/// The head and the body of one request.
async fn read(stream: &mut TcpStream) -> anyhow::Result<(String, String)> {
    let mut request = Vec::new();
    let mut piece = vec![0; 16 * 1024];
    loop {
        let read = stream.read(&mut piece).await?;
        ensure!(read > 0, "the request ends early");
        request.extend_from_slice(&piece[..read]);
        let Some(end) = request.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&request[..end]).into_owned();
        let length = head.lines().filter_map(|line| line.split_once(':')).find_map(|(name, value)| {
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().to_owned())
        });
        let length: usize = length.context("the request has no length")?.parse()?;
        if request.len() >= end + 4 + length {
            return Ok((head, String::from_utf8(request.split_off(end + 4))?));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn received(id: &str, body: &Value, manner: Manner) -> Received {
        let head = format!("POST /hook HTTP/1.1\r\nHost: x\r\nWebhook-Id: {id}");
        Received { head, body: body.to_string(), manner }
    }

    #[tokio::test]
    async fn a_message_that_comes_twice_is_one() {
        let hook = Hook::start(vec![]).await.unwrap();
        let message = |count: i64| json!({ "events": [{ "event": "failed", "count": count }, { "event": "lost", "count": 9 }] });
        for (id, count, manner) in [
            ("a", 2, Manner::Refuses),
            ("a", 2, Manner::HangsUp),
            ("a", 2, Manner::Takes),
            ("b", 3, Manner::IsSilent),
            ("c", 4, Manner::Takes),
        ] {
            hook.shared.received().push(received(id, &message(count), manner));
        }
        let messages = hook.messages().unwrap();
        assert_eq!((messages.len(), count_events(&messages, "failed")), (2, 6));
        hook.shared.received().push(received("a", &message(7), Manner::Takes));
        assert!(hook.messages().unwrap_err().to_string().contains("two messages with the id a"));
        let first = hook.received().remove(0);
        assert_eq!((first.path(), first.header("host"), first.header("x")), ("/hook", Some("x"), None));
    }
}
