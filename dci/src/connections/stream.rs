//! The bytes of a connection, as long as it keeps its place.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use actix_web::rt::net::{ActixStream, Ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Sleep, sleep_until};

use super::{Entered, Place};

/// A connection. It ends when its place is given to another, or when a request does not come in time.
#[derive(Debug)]
pub struct Stream {
    stream: TcpStream,
    entered: Entered,
    timer: Option<Pin<Box<Sleep>>>,
}

impl Stream {
    /// One that has a place.
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
