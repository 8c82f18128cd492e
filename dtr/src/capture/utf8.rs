//! Tells whether a stream is UTF-8 while it passes by.

/// The state of the check: holds at most three bytes of a character that is not complete yet.
#[derive(Debug, Default)]
pub(super) struct Utf8Check {
    invalid: bool,
    pending: Vec<u8>,
    last: Option<u8>,
}

impl Utf8Check {
    pub(super) fn push(&mut self, mut bytes: &[u8]) {
        self.last = bytes.last().copied().or(self.last);
        while !self.pending.is_empty() && !self.invalid {
            let Some((first, rest)) = bytes.split_first() else { return };
            bytes = rest;
            self.pending.push(*first);
            match std::str::from_utf8(&self.pending) {
                Ok(_) => self.pending.clear(),
                Err(error) => self.invalid = error.error_len().is_some(),
            }
        }
        if self.invalid {
            return;
        }
        if let Err(error) = std::str::from_utf8(bytes) {
            self.invalid = error.error_len().is_some();
            self.pending = bytes[error.valid_up_to()..].to_vec();
        }
    }

    /// Whether everything so far is complete UTF-8.
    pub(super) fn is_text(&self) -> bool {
        !self.invalid && self.pending.is_empty()
    }

    /// Whether it is not UTF-8, whatever follows.
    pub(super) fn is_invalid(&self) -> bool {
        self.invalid
    }

    /// The last byte seen.
    pub(super) fn last(&self) -> Option<u8> {
        self.last
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_text(bytes: &[u8], step: usize) -> bool {
        let mut check = Utf8Check::default();
        for piece in bytes.chunks(step) {
            check.push(piece);
        }
        check.is_text()
    }

    proptest! {
        #[test]
        fn agrees_with_the_standard_library(bytes in any::<Vec<u8>>(), step in 1usize..9) {
            prop_assert_eq!(is_text(&bytes, step), std::str::from_utf8(&bytes).is_ok());
        }

        #[test]
        fn text_is_text_however_it_is_cut(text in "[a☃é𝄞]{0,30}", cut in 0usize..4, step in 1usize..9) {
            prop_assert!(is_text(text.as_bytes(), step));
            let bytes = text.as_bytes();
            let shorter = &bytes[..bytes.len().saturating_sub(cut)];
            prop_assert_eq!(is_text(shorter, step), std::str::from_utf8(shorter).is_ok());
        }
    }
}
