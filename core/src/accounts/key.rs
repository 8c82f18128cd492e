//! What a browser or a program shows to be let in: an id to find it by, and a secret.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bson::oid::ObjectId;
use bson::spec::BinarySubtype;
use bson::{Binary, Bson};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

/// The secret's length in bytes.
const LENGTH: usize = 32;

/// The length of an id as text.
const ID_LENGTH: usize = 24;

/// An id and a secret of 256 random bits. As text they are 67 letters, digits, hyphens and underscores.
#[derive(Clone, PartialEq, Eq)]
pub struct Key {
    /// By which it is found.
    pub id: ObjectId,
    secret: [u8; LENGTH],
}

impl Key {
    pub fn new() -> std::io::Result<Self> {
        let mut secret = [0; LENGTH];
        getrandom::fill(&mut secret).map_err(std::io::Error::other)?;
        Ok(Self { id: ObjectId::new(), secret })
    }

    /// Reads what [`Key::text`] has written. `None`: it is no key.
    pub fn parse(text: &str) -> Option<Self> {
        let (id, secret) = text.split_at_checked(ID_LENGTH)?;
        let secret = URL_SAFE_NO_PAD.decode(secret).ok()?;
        Some(Self { id: ObjectId::parse_str(id).ok()?, secret: secret.try_into().ok()? })
    }

    /// The whole of it, for whom it is made.
    pub fn text(&self) -> String {
        format!("{}{}", self.id, URL_SAFE_NO_PAD.encode(self.secret))
    }

    /// By which forms of a session's pages are known. It does not tell the secret, and looks different each time, so that
    /// the length of compressed pages does not tell it either.
    pub fn form_token(&self) -> String {
        let mut mask = [0; LENGTH];
        // Without random numbers it is the same each time, and as good otherwise.
        let _unmasked = getrandom::fill(&mut mask);
        let masked = self.of_forms().into_iter().zip(mask).map(|(byte, mask)| byte ^ mask);
        URL_SAFE_NO_PAD.encode(mask.into_iter().chain(masked).collect::<Vec<u8>>())
    }

    /// Whether `given` is a [`Key::form_token`]. The time that it takes does not tell how much of it is right.
    pub fn is_form_token(&self, given: &str) -> bool {
        let Ok(bytes) = URL_SAFE_NO_PAD.decode(given) else { return false };
        let Some((mask, masked)) = bytes.split_at_checked(LENGTH) else { return false };
        let token: Vec<u8> = masked.iter().zip(mask).map(|(byte, mask)| byte ^ mask).collect();
        masked.len() == LENGTH && bool::from(token.ct_eq(&self.of_forms()))
    }

    fn of_forms(&self) -> [u8; LENGTH] {
        let mut hash = Sha256::new();
        hash.update(b"disbatch form\0");
        hash.update(self.secret);
        hash.finalize().into()
    }

    /// What is stored of the secret. It is random, so that nobody finds it by trying.
    pub(super) fn fingerprint(&self) -> Bson {
        let bytes = Sha256::digest(self.secret).to_vec();
        Bson::Binary(Binary { subtype: BinarySubtype::Generic, bytes })
    }

    /// Whether `stored` is the fingerprint. The time that it takes does not tell how much of it is right.
    pub(super) fn matches(&self, stored: Option<&Bson>) -> bool {
        let (Some(Bson::Binary(stored)), Bson::Binary(ours)) = (stored, self.fingerprint()) else {
            return false;
        };
        stored.bytes.ct_eq(&ours.bytes).into()
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("id", &self.id).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_written_and_read() {
        let key = Key::new().unwrap();
        assert_eq!(key.text().len(), 67);
        assert_eq!(Key::parse(&key.text()), Some(key.clone()));
        assert!(key.matches(Some(&key.fingerprint())));
        let other = Key::new().unwrap();
        assert!(!other.matches(Some(&key.fingerprint())) && !key.matches(None));
        assert!(key.is_form_token(&key.form_token()));
        assert!(!key.is_form_token(&other.form_token()) && !key.is_form_token(""));
        assert_ne!(key.form_token(), key.form_token());
        assert!(!key.is_form_token(&format!("{}aaaa", key.form_token())), "nothing may follow");
        for secret in [key.text().get(24..).unwrap(), &key.form_token()] {
            assert!(!format!("{key:?}").contains(secret));
        }
        assert!(!key.form_token().contains(key.text().get(24..).unwrap()));
    }

    #[test]
    fn anything_else_is_no_key() {
        let text = Key::new().unwrap().text();
        let wrong = ["", "x", &text[1..], &text[..66], &format!("{text}a"), &format!("g{}", &text[1..])];
        for wrong in wrong {
            assert_eq!(Key::parse(wrong), None, "{wrong}");
        }
        assert_eq!(Key::parse("ééééééééééééééé"), None);
    }
}
