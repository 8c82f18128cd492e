//! What a socket had no room for yet: a message goes out whole, whatever becomes of who wanted it sent.

use std::io;
use std::sync::{Mutex, PoisonError};

use tokio::sync::Notify;

use crate::secret_bytes::Wiped;

/// Bytes on their way. They leave in the order in which they came.
#[derive(Debug, Default)]
pub struct Outbox {
    unsent: Mutex<Unsent>,
    more: Notify,
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

impl Outbox {
    /// Sends `bytes` by `write`, as far as it takes them at once, and keeps the rest for [`Outbox::flush`].
    pub fn send(&self, bytes: &[u8], write: impl FnOnce(&[u8]) -> io::Result<usize>) -> io::Result<()> {
        let mut unsent = self.unsent.lock().unwrap_or_else(PoisonError::into_inner);
        let sent = if unsent.left().is_empty() { at_once(write(bytes))? } else { 0 };
        if sent < bytes.len() {
            unsent.add(&bytes[sent..]);
            self.more.notify_one();
        }
        Ok(())
    }

    /// Keeps `bytes` until [`Outbox::flush_now`].
    pub fn keep(&self, bytes: &[u8]) {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner).add(bytes);
    }

    /// Has [`Outbox::flush`] see to what is still kept.
    pub fn go_on(&self) {
        if !self.is_empty() {
            self.more.notify_one();
        }
    }

    pub fn is_empty(&self) -> bool {
        self.unsent.lock().unwrap_or_else(PoisonError::into_inner).left().is_empty()
    }

    /// Sends by `write` what is kept, whenever the socket is `writable`. Returns when that fails. Nothing is lost when this is
    /// dropped, and begun again.
    pub async fn flush<Fut: Future<Output = io::Result<()>>>(
        &self,
        writable: impl Fn() -> Fut,
        write: impl Fn(&[u8]) -> io::Result<usize>,
    ) -> io::Error {
        loop {
            while !self.is_empty() {
                if let Err(error) = writable().await {
                    return error;
                }
                if let Err(error) = self.flush_now(&write) {
                    return error;
                }
            }
            self.more.notified().await;
        }
    }

    /// Sends by `write` what there is room for now of what is kept.
    pub fn flush_now(&self, write: impl FnOnce(&[u8]) -> io::Result<usize>) -> io::Result<()> {
        let mut unsent = self.unsent.lock().unwrap_or_else(PoisonError::into_inner);
        if unsent.left().is_empty() {
            return Ok(());
        }
        let sent = at_once(write(unsent.left()))?;
        unsent.sent(sent);
        Ok(())
    }
}

fn at_once(written: io::Result<usize>) -> io::Result<usize> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(0),
        written => written,
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;

    #[tokio::test]
    async fn what_does_not_go_at_once_goes_later_in_order() {
        let outbox = Outbox::default();
        let sent = RefCell::new(Vec::new());
        let room = Cell::new(3);
        let write = |bytes: &[u8]| {
            let taken = bytes.len().min(room.take());
            sent.borrow_mut().extend_from_slice(&bytes[..taken]);
            if taken == 0 { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(taken) }
        };
        outbox.send(b"ab", write).unwrap();
        outbox.send(b"cdef", write).unwrap();
        outbox.send(b"gh", write).unwrap();
        assert_eq!(*sent.borrow(), b"ab");
        let writable = || {
            let gone_with_all = outbox.is_empty();
            room.set(2);
            std::future::ready(if gone_with_all { Err(io::ErrorKind::BrokenPipe.into()) } else { Ok(()) })
        };
        let flush = outbox.flush(writable, write);
        let all_is_sent = async {
            while sent.borrow().len() < 8 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            error = flush => panic!("{error}"),
            () = all_is_sent => {}
        }
        assert_eq!(*sent.borrow(), b"abcdefgh");
        assert!(outbox.is_empty());
    }
}
