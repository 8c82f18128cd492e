//! TLS of the web server itself.

use std::path::{Path, PathBuf};

use serde::Deserialize;

/// The files with which the DCI speaks TLS. Without them it speaks plain HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct Tls {
    /// PEM file with the server's certificate first, and then those of the authorities between it and one that clients
    /// trust.
    pub certificate: PathBuf,
    /// PEM file with the private key of the first certificate.
    pub key: PathBuf,
}

impl Tls {
    /// The same files, where relative paths are seen from `folder`.
    pub(super) fn within(&self, folder: &Path) -> Self {
        Self { certificate: folder.join(&self.certificate), key: folder.join(&self.key) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn both_files_have_to_be_there() {
        let parse = |text: &str| serde_json::from_str::<Tls>(text).map_err(|error| error.to_string());
        let tls = parse(r#"{"certificate": "/etc/disbatch/chain.pem", "key": "/etc/disbatch/key.pem"}"#);
        let expected =
            Tls { certificate: "/etc/disbatch/chain.pem".into(), key: "/etc/disbatch/key.pem".into() };
        assert_eq!(tls, Ok(expected));
        for (text, missing) in [(r#"{"certificate": "a"}"#, "`key`"), (r#"{"key": "a"}"#, "`certificate`")] {
            let error = parse(text).unwrap_err();
            assert!(error.contains("missing field") && error.contains(missing), "{error}");
        }
    }

    #[test]
    fn relative_paths_are_seen_from_the_configuration() {
        let text = r#"{"mongohost": "h", "database": "d",
            "tls": {"certificate": "chain.pem", "key": "/run/key.pem"}}"#;
        let config = Config::parse(text, Path::new("/etc/disbatch/config.json")).unwrap();
        let expected = Tls { certificate: "/etc/disbatch/chain.pem".into(), key: "/run/key.pem".into() };
        assert_eq!(config.tls_files(), Some(expected));
        assert!(config.unknown_keys.is_empty(), "{:?}", config.unknown_keys);
    }
}
