//! Sockets and pipes of which is heard when there is something to read, and only then; what a socket had no room for yet; and
//! descriptors that this process was started with.
//!
//! The runtime's own sockets would be told of each message that the other side has read, too, since there is room for another one
//! then: that is a system call for each. There nearly always is room. And its pipes are asked for more than has to be known of them.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::pin::Pin;
use std::sync::Mutex;
use std::task::{Context, Poll, ready};

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::unistd::close;
use rustix::io::{Errno, ioctl_fionbio};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, recvmsg, send};
use tokio::io::unix::AsyncFd;
use tokio::io::{AsyncRead, Interest, ReadBuf};
use tokio::sync::Notify;

use crate::lock;
use crate::secrets::Wiped;

const STDERR: RawFd = 2;

/// Has the runtime tell when `descriptor` is ready, and for nothing but that.
#[expect(
    deprecated,
    reason = "what took its place is unsafe for types whose descriptor may change, and this one's stays"
)]
pub fn followed(descriptor: OwnedFd, interest: Interest) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(descriptor, interest)
}

/// A socket, and what it had no room for yet: a message goes out whole, whatever becomes of who wanted it sent. Bytes leave in the
/// order in which they came.
#[derive(Debug)]
pub struct Socket {
    socket: AsyncFd<OwnedFd>,
    unsent: Mutex<Unsent>,
    more: Notify,
}

impl Socket {
    pub fn new(socket: std::os::unix::net::UnixStream) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        // A descriptor that is no such socket has no peer.
        socket.peer_addr()?;
        let socket = followed(socket.into(), Interest::READABLE)?;
        Ok(Self { socket, unsent: Mutex::default(), more: Notify::new() })
    }

    /// Sends what there is room for. Never waits.
    fn try_write(&self, bytes: &[u8]) -> io::Result<usize> {
        Ok(send(self.socket.get_ref(), bytes, SendFlags::NOSIGNAL | SendFlags::DONTWAIT)?)
    }

    async fn writable(&self) -> io::Result<()> {
        let other = followed(self.socket.get_ref().try_clone()?, Interest::WRITABLE)?;
        other.writable().await.map(|mut room| room.retain_ready())
    }

    /// Sends `bytes`, as far as there is room at once, and keeps the rest for [`Socket::flush`].
    pub fn send(&self, bytes: &[u8]) -> io::Result<()> {
        self.send_by(bytes, |bytes| self.try_write(bytes))
    }

    /// The same where `write` sends what goes at once.
    pub fn send_by(&self, bytes: &[u8], write: impl FnOnce(&[u8]) -> io::Result<usize>) -> io::Result<()> {
        let mut unsent = lock(&self.unsent);
        let sent = if unsent.left().is_empty() { at_once(write(bytes))? } else { 0 };
        if sent < bytes.len() {
            unsent.add(&bytes[sent..]);
            self.more.notify_one();
        }
        Ok(())
    }

    /// Keeps `bytes` until [`Socket::flush_now`].
    pub fn keep(&self, bytes: &[u8]) {
        lock(&self.unsent).add(bytes);
    }

    /// Has [`Socket::flush`] see to what is still kept.
    pub fn go_on(&self) {
        if !self.has_sent_all() {
            self.more.notify_one();
        }
    }

    pub fn has_sent_all(&self) -> bool {
        lock(&self.unsent).left().is_empty()
    }

    /// Sends what is kept, whenever there is room. Returns when that fails. Nothing is lost when this is dropped, and begun again.
    pub async fn flush(&self) -> io::Error {
        loop {
            while !self.has_sent_all() {
                if let Err(error) = self.writable().await.and_then(|()| self.flush_now()) {
                    return error;
                }
            }
            self.more.notified().await;
        }
    }

    /// Sends what there is room for now of what is kept.
    pub fn flush_now(&self) -> io::Result<()> {
        let mut unsent = lock(&self.unsent);
        if unsent.left().is_empty() {
            return Ok(());
        }
        let sent = at_once(self.try_write(unsent.left()))?;
        unsent.sent(sent);
        Ok(())
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.get_ref().as_fd()
    }
}

/// Whether nothing was left, so that the system tells when there is more. Of the end it does not tell again.
pub fn is_all(read: usize, room: usize) -> bool {
    read > 0 && read < room
}

pub fn read_some(from: BorrowedFd<'_>, buffer: &mut [u8]) -> io::Result<usize> {
    loop {
        match rustix::io::read(from, &mut *buffer) {
            Err(Errno::INTR) => {}
            read => return Ok(read?),
        }
    }
}

impl AsyncRead for &Socket {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        poll_read(&self.socket, cx, buffer)
    }
}

fn poll_read(
    from: &AsyncFd<OwnedFd>,
    cx: &mut Context<'_>,
    buffer: &mut ReadBuf<'_>,
) -> Poll<io::Result<()>> {
    loop {
        let mut there = ready!(from.poll_read_ready(cx))?;
        let room = buffer.initialize_unfilled();
        let length = room.len();
        match read_some(from.get_ref().as_fd(), room) {
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

#[derive(Debug)]
pub struct PipeSource(AsyncFd<OwnedFd>);

impl PipeSource {
    /// A new pipe, and its other end, which blocks.
    pub fn new() -> io::Result<(Self, OwnedFd)> {
        let (near, far) = io::pipe()?;
        ioctl_fionbio(&near, true)?;
        Ok((Self(followed(near.into(), Interest::READABLE)?), far.into()))
    }

    pub fn into_inner(self) -> AsyncFd<OwnedFd> {
        self.0
    }
}

impl AsyncRead for PipeSource {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        poll_read(&self.0, cx, buffer)
    }
}

/// The end of a pipe to which is written. The runtime does not know it until there is no room.
#[derive(Debug)]
pub struct PipeSink(OwnedFd);

impl PipeSink {
    /// A new pipe, and its other end, which blocks.
    pub fn new() -> io::Result<(Self, OwnedFd)> {
        let (far, near) = io::pipe()?;
        ioctl_fionbio(&near, true)?;
        Ok((Self(near.into()), far.into()))
    }

    pub fn followed(self) -> io::Result<AsyncFd<OwnedFd>> {
        followed(self.0, Interest::WRITABLE)
    }

    /// Writes all of it, and closes the pipe.
    pub async fn write_all(self, mut bytes: &[u8]) -> io::Result<()> {
        bytes = &bytes[write_some(&self.0, bytes)?..];
        if bytes.is_empty() {
            return Ok(());
        }
        let pipe = self.followed()?;
        while !bytes.is_empty() {
            pipe.writable().await?.clear_ready();
            let written = write_some(pipe.get_ref(), bytes)?;
            bytes = &bytes[written..];
        }
        Ok(())
    }
}

fn write_some(pipe: &OwnedFd, bytes: &[u8]) -> io::Result<usize> {
    let mut written = 0;
    while written < bytes.len() {
        match rustix::io::write(pipe, &bytes[written..]) {
            Ok(more) => written += more,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => break,
            Err(error) => return Err(error.into()),
        }
    }
    Ok(written)
}

/// What could not be sent at once. A plugin's variables are among it, which may be secret.
#[derive(Debug, Default)]
struct Unsent {
    bytes: Wiped,
    /// So many of them, from the beginning, have been sent since.
    gone: usize,
}

impl Unsent {
    fn left(&self) -> &[u8] {
        &self.bytes[self.gone..]
    }

    fn add(&mut self, bytes: &[u8]) {
        // Else all would be kept as long as there always is something more.
        if self.gone > self.bytes.len() / 2 {
            self.bytes.leave_out(std::mem::take(&mut self.gone));
        }
        self.bytes.extend(bytes);
    }

    fn sent(&mut self, bytes: usize) {
        self.gone += bytes;
        if self.left().is_empty() {
            // It may have held a large result.
            *self = Self::default();
        }
    }
}

fn at_once(written: io::Result<usize>) -> io::Result<usize> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        written => written,
    }
}

/// Takes over the descriptor `number`, with which this process was started, so that no process that this one starts inherits it.
///
/// A number alone is nobody's property. The kernel, however, makes an owned descriptor of one when it is sent over a
/// socket, which this process does to itself.
pub fn adopt(number: RawFd) -> io::Result<OwnedFd> {
    // The sockets might get the number otherwise.
    if !Path::new(&format!("/proc/self/fd/{number}")).is_symlink() {
        return Err(io::Error::other(format!("descriptor {number} is not open")));
    }
    let (near, far) = UnixDatagram::pair()?;
    let numbers = [number];
    let sent = [ControlMessage::ScmRights(&numbers)];
    sendmsg::<()>(near.as_raw_fd(), &[IoSlice::new(b"x")], &sent, MsgFlags::empty(), None)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut received = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(&far, &mut [IoSliceMut::new(&mut byte)], &mut received, RecvFlags::CMSG_CLOEXEC)?;
    let owned = received.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut descriptors) => descriptors.next(),
        _ => None, // Nothing else was sent.
    });
    close(number)?;
    if number <= STDERR {
        // Whatever is opened next would get the number of a standard stream.
        let _stays_open = File::open("/dev/null")?.into_raw_fd();
    }
    owned.ok_or_else(|| io::Error::other("the descriptor did not arrive"))
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
        let (mut source, mut all, mut buffer) = (&socket, 0, [0; 8]);
        loop {
            match source.read(&mut buffer).await.unwrap() {
                0 => break,
                read => all += read,
            }
        }
        sender.join().unwrap();
        assert_eq!(all, 100_025);
        assert_eq!(source.read(&mut buffer).await.unwrap(), 0, "and the end comes again");
    }

    #[tokio::test]
    async fn all_that_goes_through_a_pipe_comes_out_of_it() {
        for length in [0, 1, 65_536, 1_000_000] {
            let (sink, far_source) = PipeSink::new().unwrap();
            let (mut source, far_sink) = PipeSource::new().unwrap();
            let between = std::thread::spawn(move || {
                let (mut from, mut to) = (std::fs::File::from(far_source), std::fs::File::from(far_sink));
                std::io::copy(&mut from, &mut to).unwrap()
            });
            let bytes = vec![b'x'; length];
            let (mut back, written) = (Vec::new(), sink.write_all(&bytes));
            let (written, read) = tokio::join!(written, source.read_to_end(&mut back));
            written.unwrap();
            assert_eq!((read.unwrap(), between.join().unwrap()), (length, length as u64));
            assert!(back == bytes);
        }
        let (sink, far) = PipeSink::new().unwrap();
        drop(far);
        assert_eq!(sink.write_all(b"x").await.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
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

    #[tokio::test]
    async fn what_does_not_go_at_once_goes_later_in_order() {
        let (near, mut far) = UnixStream::pair().unwrap();
        let socket = Socket::new(near).unwrap();
        let mut all: Vec<u8> = Vec::new();
        let mut send = |number: u8| {
            socket.send(&[number; 10_000]).unwrap();
            all.extend([number; 10_000]);
        };
        while socket.has_sent_all() {
            send(1);
        }
        (2..10).for_each(send);
        let mut read = vec![0; all.len()];
        let reader = std::thread::spawn(move || {
            far.read_exact(&mut read).unwrap();
            (read, far)
        });
        let all_is_sent = async {
            while !socket.has_sent_all() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            error = socket.flush() => panic!("{error}"),
            () = all_is_sent => {}
        }
        let (read, far) = reader.join().unwrap();
        assert!(read == all);
        drop(far);
        // What is kept goes when it is asked for, and not before.
        socket.keep(b"more");
        socket.go_on();
        assert_eq!(socket.flush().await.kind(), io::ErrorKind::BrokenPipe);
        assert!(!socket.has_sent_all());
    }

    #[test]
    fn what_is_adopted_is_the_same_and_owned() {
        let (reader, mut writer) = io::pipe().unwrap();
        let adopted = adopt(reader.into_raw_fd()).unwrap();
        writer.write_all(b"words").unwrap();
        drop(writer);
        let mut words = String::new();
        io::PipeReader::from(adopted).read_to_string(&mut words).unwrap();
        assert_eq!(words, "words");
    }

    #[test]
    fn a_number_without_a_descriptor_is_an_error() {
        assert!(adopt(1_000_000).is_err());
    }
}
