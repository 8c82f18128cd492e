//! What a web service shows to call back.

use std::fmt;

use sha2::{Digest, Sha256};

/// The length of a token as text: 256 random bits in hexadecimal.
const LENGTH: usize = 64;

/// A token for one attempt of one task. It is shown in a header, or is a part of the address; one of either kind is none of the
/// other.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    text: String,
    is_in_address: bool,
}

impl Token {
    /// A new one.
    ///
    /// # Errors
    /// The system has no random numbers.
    pub fn new() -> std::io::Result<Self> {
        let mut bytes = [0; LENGTH / 2];
        getrandom::fill(&mut bytes).map_err(std::io::Error::other)?;
        Ok(Self { text: hexadecimal(&bytes), is_in_address: false })
    }

    /// The same as a part of the address, for services that show nothing.
    #[must_use]
    pub fn in_address(self) -> Self {
        Self { is_in_address: true, ..self }
    }

    /// Whether it is a part of the address.
    pub fn is_in_address(&self) -> bool {
        self.is_in_address
    }

    /// Reads one. `None`: it is none.
    pub fn parse(text: &str) -> Option<Self> {
        let is_token = text.len() == LENGTH
            && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        is_token.then(|| Self { text: text.to_owned(), is_in_address: false })
    }

    /// The whole of it, for the service.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// What is stored of it: the SHA-256 sum of its text, in hexadecimal. It is random, so that nobody finds it by trying.
    pub fn fingerprint(&self) -> String {
        let kind: &[u8] = if self.is_in_address { b"address:" } else { b"" };
        hexadecimal(&Sha256::new().chain_update(kind).chain_update(self.text.as_bytes()).finalize())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(not shown)")
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_read_as_it_was_written() {
        let token = Token::new().unwrap();
        assert_eq!(Token::parse(token.text()), Some(token.clone()));
        assert_ne!(token, Token::new().unwrap());
        assert!(!format!("{token:?}").contains(token.text()));
        let zeros = Token::parse(&"0".repeat(64)).unwrap();
        let expected = "60e05bd1b195af2f94112fa7197a5c88289058840ce7c6df9693756bc6250f55";
        assert_eq!(zeros.fingerprint(), expected);
        let in_address = zeros.clone().in_address();
        assert!(in_address.is_in_address() && !zeros.is_in_address());
        assert_ne!(in_address.fingerprint(), expected, "who has seen the address cannot show it as a header");
    }

    #[test]
    fn anything_else_is_none() {
        for wrong in ["", "x", &"a".repeat(63), &"a".repeat(65), &"A".repeat(64), &"é".repeat(32)] {
            assert_eq!(Token::parse(wrong), None, "{wrong}");
        }
    }
}
