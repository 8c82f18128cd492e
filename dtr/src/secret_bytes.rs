//! Bytes that may have secrets: of these nothing is left in memory when they are not needed any more.

use std::fmt;
use std::io;
use std::ops::{Deref, DerefMut};

use zeroize::Zeroize;

/// Bytes that are overwritten when they are left out or dropped, and where they have been when they move to where there is
/// more room.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Wiped(Vec<u8>);

impl Wiped {
    pub fn extend(&mut self, bytes: &[u8]) {
        let needed = self.0.len().saturating_add(bytes.len());
        if needed > self.0.capacity() {
            // A vector that grows by itself leaves a copy behind.
            let mut larger = Vec::with_capacity(needed.max(self.0.capacity().saturating_mul(2)));
            larger.extend_from_slice(&self.0);
            std::mem::replace(&mut self.0, larger).zeroize();
        }
        self.0.extend_from_slice(bytes);
    }

    /// Leaves out so many at the beginning, or all if there are fewer.
    pub fn leave_out(&mut self, first: usize) {
        let first = first.min(self.0.len());
        let left = self.0.len() - first;
        self.0.copy_within(first.., 0);
        self.0[left..].zeroize();
        self.0.truncate(left);
    }
}

impl Drop for Wiped {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl Deref for Wiped {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}

impl DerefMut for Wiped {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

impl From<Vec<u8>> for Wiped {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl io::Write for Wiped {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.extend(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl fmt::Debug for Wiped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Wiped({} bytes, not shown)", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_left_out_is_gone_and_nothing_is_shown() {
        let mut bytes = Wiped::from(b"correct horse battery".to_vec());
        let room = bytes.0.capacity();
        bytes.leave_out(8);
        assert_eq!(&*bytes, b"horse battery");
        bytes.leave_out(99);
        assert!(bytes.is_empty() && bytes.0.capacity() == room, "its room is kept, to be overwritten");
        assert_eq!(format!("{:?}", Wiped::from(b"horse".to_vec())), "Wiped(5 bytes, not shown)");
    }

    #[test]
    fn it_moves_only_to_where_there_is_room_for_much_more() {
        let mut bytes = Wiped::default();
        for _ in 0..1_000 {
            let before = bytes.0.capacity();
            bytes.extend(b"0123456789abc");
            let after = bytes.0.capacity();
            assert!(after == before || after >= 2 * before, "{before} {after}");
        }
    }

    proptest! {
        #[test]
        fn it_has_what_a_vector_has(steps in prop::collection::vec((any::<Vec<u8>>(), 0usize..40), 0..20)) {
            let (mut bytes, mut expected) = (Wiped::default(), Vec::new());
            for (more, first) in steps {
                bytes.extend(&more);
                expected.extend_from_slice(&more);
                bytes.leave_out(first);
                expected.drain(..first.min(expected.len()));
                prop_assert_eq!(&*bytes, expected.as_slice());
            }
        }
    }
}
