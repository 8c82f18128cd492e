//! The keys that a process has, where they come from, and what is done with one.

use std::env::VarError;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use base64::alphabet;
use base64::engine::{DecodePaddingMode, Engine, GeneralPurpose, GeneralPurposeConfig};
use chacha20poly1305::aead::{Aead, Payload};
use chacha20poly1305::{KeyInit, XChaCha20Poly1305, XNonce};
use disbatch_documents::QueueId;
use disbatch_values::text::hex;
use hmac::{Hmac, Mac};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::SecureParams;
use crate::config::Config;

/// The environment variable that may have keys, with spaces between them.
pub const VARIABLE: &str = "DISBATCH_SECRETS_KEY";

/// The bits of a file's mode that let others than its owner and its group do something with it.
pub(super) const OF_OTHERS: u32 = 0o007;

/// The keys of secure parameters. The first one encrypts.
#[derive(Default)]
pub struct Keys(Vec<Key>);

/// Keys cannot be used. One line, with where they are and what is wrong, and nothing of a key.
#[derive(Debug, thiserror::Error)]
pub enum KeysError {
    #[error("cannot read secrets.key_file {path}: {source}", path = path.display())]
    Read { path: PathBuf, source: io::Error },
    #[error(
        "secrets.key_file {path} is open to others than its owner and group (mode {mode:04o}): chmod o-rwx {path}",
        path = path.display()
    )]
    Exposed { path: PathBuf, mode: u32 },
    #[error(
        "secrets.key_file {path}, line {line}: expected a key of 32 bytes as base64 or as 64 hexadecimal digits",
        path = path.display()
    )]
    Line {
        path: PathBuf,
        /// The line, counted from 1.
        line: usize,
    },
    #[error("secrets.key_file {path} has no key: 'disbatch secrets-key' prints a new one", path = path.display())]
    Empty { path: PathBuf },
    #[error(
        "the environment variable DISBATCH_SECRETS_KEY: expected a key of 32 bytes as base64 or as 64 hexadecimal \
         digits, or several with spaces between them"
    )]
    Variable,
}

impl Keys {
    /// Those of the environment variable [`VARIABLE`], and after these those of the file that the configuration
    /// names. There may be none at all.
    pub fn load(config: &Config) -> Result<Self, KeysError> {
        let variable = match std::env::var(VARIABLE) {
            Ok(text) => Some(Zeroizing::new(text)),
            Err(VarError::NotPresent) => None,
            Err(VarError::NotUnicode(_)) => return Err(KeysError::Variable),
        };
        let file = config.secrets.key_file.as_ref().map(|file| config.folder().join(file));
        Self::of(variable.as_ref().map(|text| text.as_str()), file.as_deref())
    }

    /// Keys from text as the environment has it, and from a file.
    pub fn of(variable: Option<&str>, file: Option<&Path>) -> Result<Self, KeysError> {
        let words = variable.unwrap_or_default().split_whitespace();
        let mut keys: Vec<Key> =
            words.map(|word| Key::parse(word).ok_or(KeysError::Variable)).collect::<Result<_, _>>()?;
        if let Some(path) = file {
            keys.extend(of_file(path)?);
        }
        Ok(Self(keys))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The names of all keys, that of the one that encrypts first.
    pub fn ids(&self) -> impl Iterator<Item = &KeyId> {
        self.0.iter().map(Key::id)
    }

    /// What tells these parameters for tasks of `queue` from others, as each of the keys has it, the first one first.
    /// Nobody without the keys finds out from it what they are.
    pub fn fingerprints(&self, queue: QueueId, params: &SecureParams) -> Vec<String> {
        let json = params.json();
        self.0.iter().map(|key| key.fingerprint(&json, &queue.0.bytes())).collect()
    }

    /// The key that encrypts.
    pub(super) fn first(&self) -> Option<&Key> {
        self.0.first()
    }

    pub(super) fn named(&self, id: &KeyId) -> Option<&Key> {
        self.0.iter().find(|key| key.id() == id)
    }
}

disbatch_values::not_shown!(Keys, this => "Keys({}, not shown)", this.0.len());

/// A key to a line; what follows a `#` is a comment.
fn of_file(path: &Path) -> Result<Vec<Key>, KeysError> {
    let cannot_read = |source| KeysError::Read { path: path.to_owned(), source };
    let mut file = File::open(path).map_err(cannot_read)?;
    let mode = file.metadata().map_err(cannot_read)?.permissions().mode() & 0o7777;
    if mode & OF_OTHERS != 0 {
        return Err(KeysError::Exposed { path: path.to_owned(), mode });
    }
    let mut text = Zeroizing::new(String::new());
    file.read_to_string(&mut text).map_err(cannot_read)?;
    let mut keys = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let word = line.split('#').next().unwrap_or_default().trim();
        if !word.is_empty() {
            let wrong = || KeysError::Line { path: path.to_owned(), line: at + 1 };
            keys.push(Key::parse(word).ok_or_else(wrong)?);
        }
    }
    if keys.is_empty() { Err(KeysError::Empty { path: path.to_owned() }) } else { Ok(keys) }
}

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
}

disbatch_values::shown_as_text!(KeyId);

/// A key of 256 bits, overwritten when it is dropped.
pub(super) struct Key {
    id: KeyId,
    bytes: Zeroizing<[u8; LENGTH]>,
}

impl Key {
    /// Reads base64 or hexadecimal digits. `None`: these are not 32 bytes.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = of_hex(text).or_else(|| of_base64(text))?;
        let id = hex(&Sha256::digest(bytes.as_slice())[..ID_LENGTH]);
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
        hex(mac(&padded, &[&length, bound_to, text]).as_slice())
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

fn of_hex(text: &str) -> Option<Zeroizing<[u8; LENGTH]>> {
    // Not by a copy, of which something would be left.
    let mut bytes = Zeroizing::new([0_u8; LENGTH]);
    hex::decode_to_slice(text, bytes.as_mut_slice()).ok()?;
    Some(bytes)
}

fn of_base64(text: &str) -> Option<Zeroizing<[u8; LENGTH]>> {
    let decoded = STANDARD.decode(text).or_else(|_| URL_SAFE.decode(text)).ok().map(Zeroizing::new)?;
    decoded.as_slice().try_into().ok().map(Zeroizing::new)
}

#[cfg(test)]
mod tests {
    use std::fs::Permissions;

    use tempfile::TempDir;

    use super::super::new_key;
    use super::*;

    struct KeyFile {
        _folder: TempDir,
        path: PathBuf,
    }

    fn file(text: &str, mode: u32) -> KeyFile {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("secrets.key");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        KeyFile { _folder: folder, path }
    }

    fn ids(keys: &Keys) -> Vec<String> {
        keys.ids().map(ToString::to_string).collect()
    }

    #[test]
    fn keys_come_from_the_environment_and_from_a_file_in_this_order() {
        let texts = [(); 4].map(|()| new_key().unwrap());
        let [a, b, c, d] = &texts;
        let in_file = file(&format!("# the new one\n\n{} # of May\n  {}\n", **c, **d), 0o640);
        let alone = |text: &str| ids(&Keys::of(Some(text), None).unwrap());
        let all = Keys::of(Some(&format!(" {} {}\n", **a, **b)), Some(&in_file.path)).unwrap();
        assert_eq!(ids(&all), [alone(a), alone(b), alone(c), alone(d)].concat());
        assert!(Keys::of(None, None).unwrap().is_empty() && Keys::of(Some(" "), None).unwrap().is_empty());
        let shown = format!("{all:?}");
        assert_eq!(shown, "Keys(4, not shown)");
        assert!(texts.iter().all(|text| !shown.contains(text.as_str())));
    }

    #[test]
    fn the_file_of_the_configuration_is_found_beside_it() {
        let in_file = file(&new_key().unwrap(), 0o400);
        let text = r#"{"mongohost":"h","database":"d","secrets":{"key_file":"secrets.key"}}"#;
        let config = Config::parse(text, &in_file.path.with_file_name("config.json")).unwrap();
        assert!(config.unknown_keys.is_empty(), "{:?}", config.unknown_keys);
        assert!(!Keys::load(&config).unwrap().is_empty());
        let without = Config::parse(r#"{"mongohost":"h","database":"d"}"#, &in_file.path).unwrap();
        assert_eq!(without.secrets.key_file, None);
    }

    #[test]
    fn a_file_that_everybody_can_use_is_refused() {
        let key = new_key().unwrap();
        for (mode, open) in
            [(0o600, false), (0o440, false), (0o660, false), (0o644, true), (0o602, true), (0o601, true)]
        {
            let in_file = file(&key, mode);
            match Keys::of(None, Some(&in_file.path)) {
                Ok(_) => assert!(!open, "{mode:o}"),
                Err(error) => {
                    let path = in_file.path.display();
                    let message = error.to_string();
                    assert!(
                        open && message.ends_with(&format!("(mode {mode:04o}): chmod o-rwx {path}")),
                        "{message}"
                    );
                }
            }
        }
    }

    #[test]
    fn mistakes_say_where_they_are_and_nothing_of_the_key() {
        let key = new_key().unwrap();
        let cut = &key[1..];
        let wrong = |text: &str| {
            let in_file = file(text, 0o600);
            let message = Keys::of(None, Some(&in_file.path)).unwrap_err().to_string();
            assert!(!message.contains(cut), "{message}");
            message
        };
        assert!(wrong(&format!("# c\n{}\n{cut}\n", *key)).contains(", line 3: expected a key of 32 bytes"));
        assert!(wrong("# nothing\n\n").contains("has no key: 'disbatch secrets-key' prints a new one"));
        let missing = Keys::of(None, Some(Path::new("/nonexistent/key"))).unwrap_err().to_string();
        assert!(
            missing.starts_with("cannot read secrets.key_file /nonexistent/key: No such file"),
            "{missing}"
        );
        let variable = Keys::of(Some(cut), None).unwrap_err().to_string();
        assert!(variable.contains("DISBATCH_SECRETS_KEY") && !variable.contains(cut), "{variable}");
    }

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
