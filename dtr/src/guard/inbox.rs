//! Orders as they arrive at the guard, with the descriptors that come along.

use std::collections::VecDeque;
use std::io::{self, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use zeroize::Zeroize;

use super::MOST_DESCRIPTORS;
use super::protocol::ToGuard;
use crate::secret_bytes::Wiped;

/// Bytes that are read at once.
const READ_SIZE: usize = 16 * 1024;

/// What has arrived.
pub struct Inbox {
    socket: UnixStream,
    buffer: Vec<u8>,
    arrived: Wiped,
    descriptors: VecDeque<OwnedFd>,
}

impl Inbox {
    pub fn new(socket: UnixStream) -> Self {
        let (buffer, arrived) = (vec![0; READ_SIZE], Wiped::default());
        Self { socket, buffer, arrived, descriptors: VecDeque::new() }
    }

    /// Takes what there is, and waits if there is nothing. False: nothing will come any more.
    pub fn receive(&mut self) -> io::Result<bool> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST_DESCRIPTORS))];
        let mut along = RecvAncillaryBuffer::new(&mut space);
        let mut into = [IoSliceMut::new(&mut self.buffer)];
        let received = match recvmsg(&self.socket, &mut into, &mut along, RecvFlags::CMSG_CLOEXEC) {
            Ok(message) => message.bytes,
            Err(rustix::io::Errno::INTR) => return Ok(true),
            // Who dies with unread reports resets the connection.
            Err(rustix::io::Errno::CONNRESET) => 0,
            Err(error) => return Err(error.into()),
        };
        for message in along.drain() {
            if let RecvAncillaryMessage::ScmRights(descriptors) = message {
                self.descriptors.extend(descriptors);
            }
        }
        self.arrived.extend(&self.buffer[..received]);
        // A plugin's variables may be secret.
        self.buffer[..received].zeroize();
        Ok(received > 0)
    }

    /// The next order that has arrived completely.
    pub fn next(&mut self) -> io::Result<Option<ToGuard>> {
        ToGuard::take(&mut self.arrived)
    }

    /// The descriptors that belong to the order that was taken last.
    pub fn descriptors(&mut self, number: usize) -> io::Result<Vec<OwnedFd>> {
        if self.descriptors.len() < number {
            return Err(io::Error::other("a plugin's descriptors have not come with it"));
        }
        Ok(self.descriptors.drain(..number).collect())
    }
}
