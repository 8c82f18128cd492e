//! The runner's end of the link to its DEN, see [`disbatch_core::link`].
//!
//! Questions and answers are matched by number, so that any number of them may be under way. The link is given up for
//! good when it ends, when an answer does not come in time, or when the DEN has trouble: from then on, the runner
//! speaks to the database by itself.

use std::collections::HashMap;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use disbatch_core::link::{Answer, Ask, ToDen, ToRunner, encode, read};
use tokio::io::BufReader;
use tokio::net::UnixStream;
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use crate::custody::Nudges;
use crate::outbox::Outbox;

/// Asks the DEN. Clones share the link.
#[derive(Debug, Clone)]
pub struct Link(Arc<Shared>);

/// Takes what the DEN says without being asked: tasks, and whether they have been started.
#[derive(Debug)]
pub struct Incoming(mpsc::UnboundedReceiver<ToRunner>);

#[derive(Debug)]
struct Shared {
    target: OwnedWriteHalf,
    outbox: Outbox,
    questions: Mutex<HashMap<i64, oneshot::Sender<Answer>>>,
    last: AtomicI64,
    closed: CancellationToken,
}

impl Link {
    /// Takes over the runner's end of the socket. A request to look at the task is passed on to `nudges`.
    ///
    /// # Errors
    /// The descriptor is no Unix socket.
    pub fn open(socket: OwnedFd, nudges: Nudges) -> io::Result<(Self, Incoming)> {
        let socket = std::os::unix::net::UnixStream::from(socket);
        socket.set_nonblocking(true)?;
        // A descriptor that is no such socket has no peer.
        socket.peer_addr()?;
        let (source, target) = UnixStream::from_std(socket)?.into_split();
        let shared = Arc::new(Shared {
            target,
            outbox: Outbox::default(),
            questions: Mutex::default(),
            last: AtomicI64::new(0),
            closed: CancellationToken::new(),
        });
        let (sender, incoming) = mpsc::unbounded_channel();
        tokio::spawn(Arc::clone(&shared).work(source, sender, nudges));
        Ok((Self(shared), Incoming(incoming)))
    }

    /// Whether the DEN is still there, and has always answered.
    pub fn is_up(&self) -> bool {
        !self.0.closed.is_cancelled()
    }

    /// Gives the link up. Who waits for an answer gets none. What the DEN has sent by now still comes in; it
    /// cannot send anything more.
    pub fn close(&self) {
        self.0.closed.cancel();
        lock(&self.0.questions).clear();
        // The DEN is to notice at once, although the socket stays open as long as there are clones.
        let _gone = rustix::net::shutdown(self.0.target.as_ref(), rustix::net::Shutdown::Both);
    }

    /// Says that the task of the assignment `of` has been taken. If that cannot be said, the link is given up. Returns whether all of
    /// it has gone out: the DEN will read it, whatever becomes of this process.
    pub fn taken(&self, of: i64) -> bool {
        if !self.is_up() {
            return false;
        }
        match self.0.send(&ToDen::Taken { of }) {
            Ok(()) => self.0.outbox.is_empty(),
            Err(error) => {
                self.give_up(&error);
                false
            }
        }
    }

    /// Asks something about the assignment `of`, and waits so long for the answer. `None`: there is none, and never
    /// will be: the link is given up.
    pub async fn ask(&self, of: i64, ask: Ask, patience: Duration) -> Option<Answer> {
        if !self.is_up() {
            return None;
        }
        let id = self.0.last.fetch_add(1, Ordering::Relaxed) + 1;
        let (sender, receiver) = oneshot::channel();
        lock(&self.0.questions).insert(id, sender);
        if let Err(error) = self.0.send(&ToDen::Ask { id, of, ask }) {
            return self.give_up(&error);
        }
        match timeout(patience, receiver).await {
            Ok(Ok(Answer::Trouble(why))) => self.give_up(&why),
            Ok(Ok(answer)) => Some(answer),
            Ok(Err(_)) => None,
            Err(_) => self.give_up(&"no answer in time"),
        }
    }

    fn give_up(&self, why: &dyn std::fmt::Display) -> Option<Answer> {
        if self.is_up() {
            tracing::warn!("cannot go on with the help of the DEN, so without it: {why}");
        }
        self.close();
        None
    }
}

impl Incoming {
    /// The next message; `None` when the link is down. Nothing is lost when this is dropped.
    pub async fn next(&mut self) -> Option<ToRunner> {
        self.0.recv().await
    }
}

impl Shared {
    /// Sends, or keeps for later what the socket has no room for. Never waits.
    fn send(&self, message: &ToDen) -> io::Result<()> {
        self.outbox.send(&encode(message)?, |bytes| self.target.try_write(bytes))
    }

    /// Reads and writes until the link is down.
    async fn work(
        self: Arc<Self>,
        source: OwnedReadHalf,
        incoming: mpsc::UnboundedSender<ToRunner>,
        nudges: Nudges,
    ) {
        let flush = async {
            let error =
                self.outbox.flush(|| self.target.writable(), |bytes| self.target.try_write(bytes)).await;
            tracing::debug!(%error, "cannot send to the DEN");
            Link(Arc::clone(&self)).close();
            // What has come in is still read.
            std::future::pending::<()>().await;
        };
        let ended = tokio::select! {
            ended = self.receive(source, incoming, nudges) => ended,
            () = flush => Ok(()),
        };
        if let Err(error) = ended {
            tracing::warn!(%error, "the link to the DEN is broken");
        }
        Link(self).close();
    }

    async fn receive(
        &self,
        source: OwnedReadHalf,
        incoming: mpsc::UnboundedSender<ToRunner>,
        nudges: Nudges,
    ) -> io::Result<()> {
        let mut source = BufReader::new(source);
        while let Some(message) = read(&mut source).await? {
            match message {
                ToRunner::Answer { id, answer } => {
                    if let Some(asker) = lock(&self.questions).remove(&id) {
                        // Who has asked may have ended meanwhile.
                        let _unheard = asker.send(answer);
                    }
                }
                ToRunner::Look { .. } => nudges.nudge(),
                other @ (ToRunner::Assign(_) | ToRunner::Go(_) | ToRunner::Gone { .. }) => {
                    let _ending = incoming.send(other);
                }
            }
        }
        Ok(())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
