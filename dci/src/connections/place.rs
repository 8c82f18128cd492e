//! What is known of a connection, and its bytes, as long as it keeps its place.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use actix_web::rt::net::{ActixStream, Ready};
use futures::task::AtomicWaker;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, Sleep, sleep_until};

use super::Entered;

/// How long the beginning of a request may take: its line and its headers.
pub const HEAD: Duration = Duration::from_secs(10);

/// How long a connection is kept that nobody asks anything on. Proxies keep theirs for a minute, and should be those who
/// close them.
pub const KEEP_ALIVE: Duration = Duration::from_secs(75);

/// What happens on a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Nothing has been asked yet. How long that may last is up to the server.
    New,
    /// A request is being answered.
    Serving,
    /// All that was asked has been answered.
    Idle,
    /// The next request has begun to come.
    Head,
}

/// What is known of a connection.
#[derive(Debug)]
pub struct Place {
    peer: Option<SocketAddr>,
    encrypted: bool,
    known: AtomicBool,
    closed: AtomicBool,
    last: AtomicBool,
    phase: Mutex<(Phase, Instant)>,
    task: AtomicWaker,
}

/// As long as this is there, a request is being answered.
#[derive(Debug)]
pub struct Serving(Arc<Place>);

impl Place {
    pub fn new(peer: Option<SocketAddr>, encrypted: bool) -> Self {
        Self {
            peer,
            encrypted,
            known: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            last: AtomicBool::new(false),
            phase: Mutex::new((Phase::New, Instant::now())),
            task: AtomicWaker::new(),
        }
    }

    pub fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    pub fn is_encrypted(&self) -> bool {
        self.encrypted
    }

    /// Whether somebody has asked something on it who has logged in.
    pub fn is_known(&self) -> bool {
        self.known.load(Ordering::Relaxed)
    }

    /// From now on it belongs to somebody who has logged in.
    pub fn know(&self) {
        self.known.store(true, Ordering::Relaxed);
    }

    /// Whether it is being closed.
    pub fn is_closed(&self) -> bool {
        self.closed.load(Ordering::Relaxed)
    }

    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.task.wake();
    }

    /// The request that is being answered is its last one: nothing is read after that.
    pub fn end_with_answer(&self) {
        self.last.store(true, Ordering::Relaxed);
    }

    /// Whether its last request has been answered.
    pub fn has_ended(&self) -> bool {
        self.last.load(Ordering::Relaxed) && !self.is_serving()
    }

    pub fn is_serving(&self) -> bool {
        self.phase().0 == Phase::Serving
    }

    /// Since when it is as it is.
    pub fn since(&self) -> Instant {
        self.phase().1
    }

    /// A request begins to be answered.
    pub fn serve(self: Arc<Self>) -> Serving {
        self.is_now(Phase::Serving);
        Serving(self)
    }

    /// Something has come.
    pub fn heard(&self) {
        if self.phase().0 == Phase::Idle {
            self.is_now(Phase::Head);
        }
    }

    /// Until when something has to happen on it.
    pub fn deadline(&self) -> Option<Instant> {
        let (phase, since) = self.phase();
        match phase {
            Phase::New | Phase::Serving => None,
            Phase::Idle => Some(since + KEEP_ALIVE),
            Phase::Head => Some(since + HEAD),
        }
    }

    /// Who is to be woken when it is closed, or its deadline changes.
    pub fn wakes(&self, waker: &Waker) {
        self.task.register(waker);
    }

    fn phase(&self) -> (Phase, Instant) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn is_now(&self, phase: Phase) {
        *self.phase.lock().unwrap_or_else(PoisonError::into_inner) = (phase, Instant::now());
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.is_now(Phase::Idle);
        // It has a deadline now.
        self.0.task.wake();
    }
}

/// A connection. It ends when its place is given to another, or when a request does not come in time.
#[derive(Debug)]
pub struct Stream {
    stream: TcpStream,
    entered: Entered,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Stream {
    pub fn new(stream: TcpStream, entered: Entered) -> Self {
        Self { stream, entered, timer: None }
    }

    pub fn place(&self) -> Arc<Place> {
        Arc::clone(self.entered.place())
    }

    pub fn peer(&self) -> Option<SocketAddr> {
        self.entered.place().peer()
    }

    /// Whether something has not happened in time. Otherwise the task is woken when it has not.
    fn is_late(&mut self, context: &mut Context<'_>) -> bool {
        let Some(deadline) = self.entered.place().deadline() else {
            self.timer = None;
            return false;
        };
        let timer = self.timer.get_or_insert_with(|| Box::pin(sleep_until(deadline)));
        if timer.deadline() != deadline {
            timer.as_mut().reset(deadline);
        }
        timer.as_mut().poll(context).is_ready()
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        this.entered.place().wakes(context.waker());
        if this.entered.place().is_closed() || this.entered.place().has_ended() {
            return Poll::Ready(Ok(()));
        }
        let before = buffer.filled().len();
        match Pin::new(&mut this.stream).poll_read(context, buffer) {
            Poll::Pending if this.is_late(context) => Poll::Ready(Ok(())),
            Poll::Pending => Poll::Pending,
            Poll::Ready(read) => {
                if buffer.filled().len() > before {
                    this.entered.place().heard();
                }
                Poll::Ready(read)
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        this.entered.place().wakes(context.waker());
        if this.entered.place().is_closed() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        Pin::new(&mut this.stream).poll_write(context, bytes)
    }

    fn poll_flush(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(context)
    }

    fn poll_shutdown(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(context)
    }
}

impl ActixStream for Stream {
    fn poll_read_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        self.stream.poll_read_ready(context).map_ok(|()| Ready::READABLE)
    }

    fn poll_write_ready(&self, context: &mut Context<'_>) -> Poll<io::Result<Ready>> {
        self.stream.poll_write_ready(context).map_ok(|()| Ready::WRITABLE)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn nothing_comes_after_the_last_answer() {
        let place = Arc::new(Place::new(None, false));
        let serving = Arc::clone(&place).serve();
        place.end_with_answer();
        assert!(!place.has_ended());
        drop(serving);
        assert!(place.has_ended());
    }

    #[tokio::test(start_paused = true)]
    async fn each_request_has_its_time() {
        let place = Arc::new(Place::new(None, false));
        place.heard();
        assert_eq!(place.deadline(), None, "that of the first request is the server's");
        for _ in 0..2 {
            let serving = Arc::clone(&place).serve();
            place.heard();
            assert!(place.is_serving() && place.deadline().is_none());
            drop(serving);
            assert_eq!(place.deadline(), Some(Instant::now() + KEEP_ALIVE));
            tokio::time::advance(Duration::from_secs(60)).await;
            place.heard();
            let end = Instant::now() + HEAD;
            assert_eq!(place.deadline(), Some(end));
            tokio::time::advance(Duration::from_secs(9)).await;
            place.heard();
            assert_eq!(place.deadline(), Some(end), "more of it is no new beginning");
        }
    }
}
