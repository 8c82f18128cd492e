//! One key, and what is done with it.

use std::fmt;
use std::io;

use base64::alphabet;
use base64::engine::{DecodePaddingMode, Engine, GeneralPurpose, GeneralPurposeConfig};
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

/// The length of a key in bytes.
const LENGTH: usize = 32;

/// The length of a nonce in bytes. It is so long that random ones never meet.
pub(super) const NONCE_LENGTH: usize = 24;

/// So many bytes of its hash name a key.
const ID_LENGTH: usize = 8;

/// The length of a key of HMAC-SHA-256, which ends in zeros if it was shorter.
const MAC_LENGTH: usize = 64;

/// Base64 comes with padding or without, and in two alphabets.
const LIBERAL: GeneralPurposeConfig =
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent);
const STANDARD: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LIBERAL);
const URL_SAFE: GeneralPurpose = GeneralPurpose::new(&alphabet::URL_SAFE, LIBERAL);

/// Names a key: the first bytes of its SHA-256 in hexadecimal. It tells nothing of the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyId(String);

impl KeyId {
    pub(super) fn stored(text: &str) -> Self {
        Self(text.to_owned())
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for KeyId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A key of 256 bits, overwritten when it is dropped.
pub(super) struct Key {
    id: KeyId,
    bytes: Zeroizing<[u8; LENGTH]>,
}

impl Key {
    /// Reads base64 or hexadecimal digits. `None`: these are not 32 bytes.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = of_hex(text).or_else(|| of_base64(text))?;
        let id = hex(Sha256::digest(bytes.as_slice()).iter().take(ID_LENGTH));
        Some(Self { id: KeyId(id), bytes })
    }

    pub fn id(&self) -> &KeyId {
        &self.id
    }

    /// What is written in place of `text`; `bound_to` is needed to read it again. `None`: it is too long for the
    /// cipher.
    pub fn encrypt(&self, nonce: [u8; NONCE_LENGTH], text: &[u8], bound_to: &[u8]) -> Option<Vec<u8>> {
        self.cipher().encrypt(&XNonce::from(nonce), Payload { msg: text, aad: bound_to }).ok()
    }

    /// The text again. `None`: this key has not written it, or not so, or bound to something else.
    pub fn decrypt(
        &self,
        nonce: [u8; NONCE_LENGTH],
        written: &[u8],
        bound_to: &[u8],
    ) -> Option<Zeroizing<Vec<u8>>> {
        let text = self.cipher().decrypt(&XNonce::from(nonce), Payload { msg: written, aad: bound_to });
        text.ok().map(Zeroizing::new)
    }

    /// What tells a text from others, and tells nobody without the key which it is: also short texts, of which all can
    /// be tried, cannot be found from it. It is made with a secret of its own that is made of the key.
    pub fn fingerprint(&self, text: &[u8], bound_to: &[u8]) -> String {
        let mut padded = Zeroizing::new([0_u8; MAC_LENGTH]);
        padded[..LENGTH].copy_from_slice(self.bytes.as_slice());
        let secret = mac(&padded, &[b"disbatch fingerprint of secure parameters"]);
        let mut padded = Zeroizing::new([0_u8; MAC_LENGTH]);
        padded[..LENGTH].copy_from_slice(secret.as_slice());
        // The length keeps what is bound and the text apart.
        let length = (bound_to.len() as u64).to_be_bytes();
        hex(mac(&padded, &[&length, bound_to, text]).iter())
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new((&*self.bytes).into())
    }
}

/// A new key as text, from the system's source of random numbers.
pub fn new_key() -> io::Result<Zeroizing<String>> {
    let mut bytes = Zeroizing::new([0_u8; LENGTH]);
    getrandom::fill(bytes.as_mut_slice()).map_err(io::Error::other)?;
    Ok(Zeroizing::new(STANDARD.encode(bytes.as_slice())))
}

fn mac(key: &[u8; MAC_LENGTH], parts: &[&[u8]]) -> Zeroizing<[u8; LENGTH]> {
    let mut mac = <Hmac<Sha256> as hmac::KeyInit>::new(key.into());
    for part in parts {
        mac.update(part);
    }
    Zeroizing::new(mac.finalize().into_bytes().into())
}

fn hex<'a>(bytes: impl Iterator<Item = &'a u8>) -> String {
    bytes.map(|byte| format!("{byte:02x}")).collect()
}

fn of_hex(text: &str) -> Option<Zeroizing<[u8; LENGTH]>> {
    if text.len() != 2 * LENGTH || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = Zeroizing::new([0_u8; LENGTH]);
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(2 * at..2 * at + 2)?, 16).ok()?;
    }
    Some(bytes)
}

fn of_base64(text: &str) -> Option<Zeroizing<[u8; LENGTH]>> {
    let decoded = STANDARD.decode(text).or_else(|_| URL_SAFE.decode(text)).ok().map(Zeroizing::new)?;
    decoded.as_slice().try_into().ok().map(Zeroizing::new)
}

#[cfg(test)]
mod tests {
    use super::*;

    const ZEROS: &str = "0000000000000000000000000000000000000000000000000000000000000000";

    #[test]
    fn keys_are_written_in_several_ways() {
        // SHA-256 of 32 zeros begins so.
        let id = "66687aadf862bd77";
        let same = [
            ZEROS,
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=",
            "AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA",
        ];
        for text in same {
            assert_eq!(Key::parse(text).unwrap().id().as_str(), id, "{text}");
        }
        let standard = Key::parse("////////////////////////////////////////+/8=").unwrap();
        let url_safe = Key::parse("________________________________________-_8").unwrap();
        assert_eq!(standard.id(), url_safe.id());
        let upper = Key::parse(&"aB".repeat(32)).unwrap();
        assert_eq!(upper.id(), Key::parse(&"Ab".repeat(32)).unwrap().id());
    }

    #[test]
    fn anything_else_is_no_key() {
        let short = ZEROS.get(..62).unwrap();
        let signed = format!("+0{short}");
        for wrong in ["", "x", "key", short, &format!("{ZEROS}00"), &signed, "AAAA", "é", &"g".repeat(64)] {
            assert!(Key::parse(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn new_keys_are_keys_and_differ() {
        let (one, other) = (new_key().unwrap(), new_key().unwrap());
        assert_ne!(*one, *other);
        assert!(Key::parse(&one).is_some() && Key::parse(&other).is_some());
    }

    #[test]
    fn fingerprints_tell_texts_and_keys_apart() {
        let (key, other) = (Key::parse(ZEROS).unwrap(), Key::parse(&"11".repeat(32)).unwrap());
        let print = key.fingerprint(b"text", b"q");
        assert_eq!(print, key.fingerprint(b"text", b"q"));
        assert_eq!(print.len(), 64);
        for different in [
            key.fingerprint(b"texts", b"q"),
            key.fingerprint(b"ext", b"qt"),
            other.fingerprint(b"text", b"q"),
        ] {
            assert_ne!(print, different);
        }
        assert_ne!(print, hex(Sha256::digest(b"text").iter()), "not a hash that anybody can make");
    }

    /// The example of RFC 4231, section 4.2, checks how HMAC is used here.
    #[test]
    fn the_mac_is_hmac_sha_256() {
        let mut key = [0; MAC_LENGTH];
        key[..20].fill(0x0b);
        let expected = "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7";
        assert_eq!(hex(mac(&key, &[b"Hi ", b"There"]).iter()), expected);
    }
}
