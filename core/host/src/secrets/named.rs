//! Named secrets: files on a node that its plugins find in variables. What is in which variable is configured.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use disbatch_documents::PluginName;

use super::keys::OF_OTHERS;
use crate::config::Config;

/// A secret has so many bytes at most: the system takes no variable of more than 128 KiB.
const LONGEST: u64 = 64 * 1024;

/// The secrets that a plugin gets.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct NamedSecrets(Vec<Secret>);

#[derive(Clone, PartialEq, Eq)]
struct Secret {
    name: String,
    variable: String,
    value: String,
}

impl NamedSecrets {
    /// Those of `plugin`, as their files are now.
    ///
    /// # Errors
    /// A file cannot be read, is open to everybody, or has what no variable can have. Says which, and shows nothing of it.
    pub fn load(config: &Config, plugin: &PluginName) -> Result<Self, String> {
        let folder = config.secrets_folder().unwrap_or_default();
        let read = |secret: &crate::config::NamedSecret| match read(&folder.join(&secret.name)) {
            Ok(value) => Ok(Secret { name: secret.name.clone(), variable: secret.variable.clone(), value }),
            Err(error) => Err(format!("cannot read the secret {}: {error}", secret.name)),
        };
        config.secret_environment.of(plugin).map(read).collect::<Result<_, _>>().map(Self)
    }

    /// Each variable and what it has. That is not to be written anywhere but to the plugin.
    pub fn variables(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|secret| (secret.variable.as_str(), secret.value.as_str()))
    }

    /// Each name and what is in its file. That is not to be written anywhere but to the plugin.
    pub fn by_name(&self) -> impl Iterator<Item = (&str, &str)> {
        self.0.iter().map(|secret| (secret.name.as_str(), secret.value.as_str()))
    }
}

impl fmt::Debug for NamedSecrets {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "NamedSecrets({}, not shown)", self.0.len())
    }
}

/// All of a file, without the line break at its end.
fn read(path: &Path) -> io::Result<String> {
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidData, what);
    let file = File::open(path)?;
    let mode = file.metadata()?.permissions().mode() & 0o7777;
    if mode & OF_OTHERS != 0 {
        let path = path.display();
        return Err(invalid(format!(
            "{path} is open to others than its owner and group (mode {mode:04o}): chmod o-rwx {path}"
        )));
    }
    let mut bytes = Vec::new();
    file.take(LONGEST + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > LONGEST {
        return Err(invalid(format!("it has more than {LONGEST} bytes")));
    }
    let mut text = String::from_utf8(bytes).map_err(|_| invalid("it is no text".to_owned()))?;
    if text.contains('\0') {
        return Err(invalid("it has a byte that no variable can have".to_owned()));
    }
    if text.ends_with('\n') {
        text.pop();
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};

    use super::*;

    #[test]
    fn secrets_are_read_when_they_are_needed_and_shown_in_no_message() {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir_all(folder.path().join("secrets/yl.env")).unwrap();
        let text = r#"{"mongohost":"h","database":"d","secrets_dir":"secrets",
            "secret_environment":{"yl.env/cloudant":"cloudant"}}"#;
        let config = Config::parse(text, &folder.path().join("config.json")).unwrap();
        let plugin = "Any".parse().unwrap();
        let load = || NamedSecrets::load(&config, &plugin);
        let path = folder.path().join("secrets/yl.env/cloudant");
        let write = |bytes: &[u8], mode| {
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        };
        let missing = load().unwrap_err();
        assert!(missing.starts_with("cannot read the secret yl.env/cloudant: No such file"), "{missing}");
        for (bytes, expected) in [("correct horse\n", "correct horse"), ("two\n\n", "two\n"), ("", "")] {
            write(bytes.as_bytes(), 0o600);
            let secrets = load().unwrap();
            assert_eq!(secrets.variables().collect::<Vec<_>>(), [("cloudant", expected)]);
            assert_eq!(secrets.by_name().collect::<Vec<_>>(), [("yl.env/cloudant", expected)]);
            assert_eq!(format!("{secrets:?}"), "NamedSecrets(1, not shown)");
        }
        let long = vec![b'x'; 65_537];
        for (bytes, why) in
            [(&b"\xffhorse"[..], "no text"), (&b"horse\0"[..], "no variable"), (&long[..], "65536 bytes")]
        {
            write(bytes, 0o640);
            let error = load().unwrap_err();
            assert!(error.contains(why) && !error.contains("horse") && error.len() < 200, "{error}");
        }
        write(b"horse", 0o644);
        let open = load().unwrap_err();
        assert!(open.contains("(mode 0644): chmod o-rwx ") && !open.contains("horse"), "{open}");
    }
}
