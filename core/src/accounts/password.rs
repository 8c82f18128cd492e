//! Passwords, of which only a hash is kept.

use std::fmt;
use std::ops::RangeInclusive;
use std::sync::LazyLock;

use argon2::Argon2;
use argon2::password_hash::{PasswordHasher, PasswordVerifier};

/// So many characters a password has. Longer ones only take time.
const LENGTHS: RangeInclusive<usize> = 10..=1024;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PasswordError {
    #[error("a password has {} to {} characters, this one has {length}", LENGTHS.start(), LENGTHS.end(), length = .0)]
    Length(usize),
    /// The system has no memory or no random numbers for it.
    #[error("the password cannot be hashed")]
    Hash,
}

/// An Argon2id hash in the PHC string format, which names how it was made.
#[derive(Clone, PartialEq, Eq)]
pub struct PasswordHash(String);

/// That of no password, to be compared with where there is no user.
static NOBODY: LazyLock<Option<PasswordHash>> = LazyLock::new(|| hash("nobody has this password").ok());

impl PasswordHash {
    /// The hash of a password that somebody chooses. It takes tens of milliseconds of a processor and 19 MiB.
    pub fn of(password: &str) -> Result<Self, PasswordError> {
        let length = password.chars().count();
        if LENGTHS.contains(&length) { hash(password) } else { Err(PasswordError::Length(length)) }
    }

    pub(super) fn stored(text: &str) -> Self {
        Self(text.to_owned())
    }

    pub fn as_stored(&self) -> &str {
        &self.0
    }

    /// Whether it is the hash of `password`. It takes as long as [`PasswordHash::of`].
    pub fn is_of(&self, password: &str) -> bool {
        password.len() <= 4 * LENGTHS.end()
            && Argon2::default().verify_password(password.as_bytes(), self.0.as_str()).is_ok()
    }

    /// Takes the time that it takes to compare a password, where there is none to compare with: who tries names is not
    /// to learn which there are.
    pub fn of_nobody(password: &str) {
        if let Some(hash) = NOBODY.as_ref() {
            let _never = hash.is_of(password);
        }
    }
}

impl fmt::Debug for PasswordHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PasswordHash")
    }
}

fn hash(password: &str) -> Result<PasswordHash, PasswordError> {
    let hash = Argon2::default().hash_password(password.as_bytes());
    hash.map(|hash| PasswordHash(hash.to_string())).map_err(|_| PasswordError::Hash)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_known_by_its_hash() {
        let hash = PasswordHash::of("correct horse").unwrap();
        assert!(hash.as_stored().starts_with("$argon2id$v=19$m=19456,t=2,p=1$"), "{}", hash.as_stored());
        assert!(hash.is_of("correct horse"));
        assert!(!hash.is_of("correct hors") && !hash.is_of("") && !hash.is_of(&"x".repeat(5000)));
        assert_ne!(hash, PasswordHash::of("correct horse").unwrap(), "each has a salt of its own");
        assert!(!PasswordHash::stored("rubbish").is_of("correct horse"));
        assert!(!format!("{hash:?}").contains("argon2"));
    }

    #[test]
    fn lengths_are_limited() {
        assert_eq!(PasswordHash::of("short").unwrap_err(), PasswordError::Length(5));
        let error = PasswordHash::of(&"x".repeat(1025)).unwrap_err();
        assert_eq!(error.to_string(), "a password has 10 to 1024 characters, this one has 1025");
    }
}
