//! Descriptors that this process was started with, and of which it knows only the number.

use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixDatagram;
use std::path::Path;

use nix::sys::socket::{ControlMessage, MsgFlags, sendmsg};
use nix::unistd::close;
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};

/// The last of the standard streams.
const STDERR: RawFd = 2;

/// Takes over the descriptor `number`, so that no process that this one starts inherits it.
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
    use std::os::fd::IntoRawFd;

    use super::*;

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
