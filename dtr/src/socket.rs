//! A socket of which is heard when there is something to read, and only then.
//!
//! The runtime's own would be told of each message that the other side has read, too, since there is room for another one then:
//! that is a system call for each. There nearly always is room.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use rustix::io::Errno;
use rustix::net::{SendFlags, send};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, Interest, ReadBuf};

/// Has the runtime tell when `descriptor` is ready, and for nothing but that.
///
/// # Errors
/// The system does not tell that of it.
#[expect(
    deprecated,
    reason = "what took its place is unsafe for types whose descriptor may change, and this one's stays"
)]
pub fn followed(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor, interest)
}

/// A connected socket.
#[derive(Debug)]
pub struct Socket(AsyncFd<OwnedFd>);

impl Socket {
    /// Takes it over.
    ///
    /// # Errors
    /// The descriptor is no connected socket.
    pub fn new(socket: std::os::unix::net::UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        // A descriptor that is no such socket has no peer.
        socket.peer_addr()?;
        Ok(Self(followed(socket.into(), Interest::READABLE)?))
    }

    /// Sends what there is room for. Never waits.
    ///
    /// # Errors
    /// There is no room, or nobody on the other side.
    pub fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.0.get_ref(), bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?)
    }

    /// Waits until there is room.
    ///
    /// # Errors
    /// The system has no more descriptors.
    pub async fn writable(&self) -> io::Result<()> {
        let other = followed(self.0.get_ref().try_clone()?, Interest::WRITABLE)?;
        other.writable().await.map(|mut room| room.retain_ready())
    }

    /// Waits until there is something to read, and reads what is there, as far as it fits. 0: nothing will come any more.
    ///
    /// # Errors
    /// It cannot be read.
    pub async fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let mut there = self.0.readable().await?;
            match read_some(self.as_fd(), buffer) {
                Ok(read) => {
                    if is_all(read, buffer.len()) {
                        there.clear_ready();
                    }
                    return Ok(read);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => there.clear_ready(),
                Err(error) => return Err(error),
            }
        }
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.get_ref().as_fd()
    }
}

/// Whether nothing was left, so that the system tells when there is more. Of the end it does not tell again.
fn is_all(read: usize, room: usize) -> bool {
    read > 0 && read < room
}

fn read_some(socket: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match rustix::io::read(socket, &mut *buffer) {
            Err(Errno::INTR) => {}
            read => return Ok(read?),
        }
    }
}

/// What a socket brings, in order.
#[derive(Debug)]
pub struct Source<'a>(pub &'a Socket);

impl AsyncRead for Source<'_> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let socket = &self.0.0;
        loop {
            let mut there = ready!(socket.poll_read_ready(cx))?;
            let room = buffer.initialize_unfilled();
            let length = room.len();
            match read_some(socket.get_ref().as_fd(), room) {
                Ok(read) => {
                    if is_all(read, length) {
                        there.clear_ready();
                    }
                    buffer.advance(read);
                    return Poll::Ready(Ok(()));
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => there.clear_ready(),
                Err(error) => return Poll::Ready(Err(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use tokio::io::AsyncReadExt;

    use super::*;

    #[tokio::test]
    async fn all_that_is_sent_comes_in_whatever_the_pieces_and_then_the_end() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let socket = Socket::new(near).unwrap();
        let sender = std::thread::spawn(move || {
            for length in [1, 7, 8, 9, 100_000] {
                far.write_all(&vec![b'x'; length]).unwrap();
            }
        });
        let (mut source, mut all, mut buffer) = (Source(&socket), 0, [0; 8]);
        loop {
            match source.read(&mut buffer).await.unwrap() {
                0 => break,
                read => all += read,
            }
            match socket.read(&mut buffer).await.unwrap() {
                0 => break,
                read => all += read,
            }
        }
        sender.join().unwrap();
        assert_eq!(all, 100_025);
        assert_eq!(socket.read(&mut buffer).await.unwrap(), 0, "and the end comes again");
    }

    #[tokio::test]
    async fn who_finds_no_room_is_told_when_there_is_some() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let socket = Socket::new(near).unwrap();
        let mut sent = 0;
        while let Ok(bytes) = socket.try_write(&[b'x'; 4096]) {
            sent += bytes;
        }
        let reader = std::thread::spawn(move || {
            let mut all = Vec::new();
            far.read_to_end(&mut all).unwrap();
            all.len()
        });
        socket.writable().await.unwrap();
        sent += socket.try_write(b"more").unwrap();
        drop(socket);
        assert_eq!(reader.join().unwrap(), sent);
    }
}
