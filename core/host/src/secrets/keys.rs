//! The keys that a process has, and where they come from.

use std::env::VarError;
use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use zeroize::Zeroizing;
use disbatch_documents::QueueId;

use super::SecureParams;
use super::key::{Key, KeyId};
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
    Read {
        /// The file.
        path: PathBuf,
        source: io::Error,
    },
    #[error(
        "secrets.key_file {path} is open to others than its owner and group (mode {mode:04o}): chmod o-rwx {path}",
        path = path.display()
    )]
    Exposed {
        /// The file.
        path: PathBuf,
        mode: u32,
    },
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
    Empty {
        /// The file.
        path: PathBuf,
    },
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
        let folder = config.path.parent().unwrap_or(Path::new("."));
        let file = config.secrets.key_file.as_ref().map(|file| folder.join(file));
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

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Keys({}, not shown)", self.0.len())
    }
}

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
}
