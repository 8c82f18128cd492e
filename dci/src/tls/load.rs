//! Reads a certificate and its key, and says what is wrong with them.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use anyhow::{anyhow, bail};
use disbatch_core::config::Tls;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

/// The bit of a file's mode that lets everybody read it. A group may be one that is meant to.
const READABLE_BY_ALL: u32 = 0o004;

/// What stands in keys that need a password.
const ENCRYPTED: &[u8] = b"ENCRYPTED";

/// The certificate in the files, with those between it and its authority.
pub fn load(files: &Tls) -> anyhow::Result<CertifiedKey> {
    let chain = certificates(&files.certificate)?;
    let key = private_key(&files.key)?;
    CertifiedKey::from_der(chain, key, &ring::default_provider()).map_err(|error| {
        let (certificate, key) = (files.certificate.display(), files.key.display());
        match error {
            rustls::Error::InconsistentKeys(_) => {
                anyhow!("the key in {key} is not that of the first certificate in {certificate}")
            }
            rustls::Error::InvalidCertificate(_) => {
                anyhow!("the first certificate in {certificate} cannot be used: {error}")
            }
            other => anyhow!("the key in {key} cannot be used: {other}"), // All that is left are keys.
        }
    })
}

/// Whether everybody on this host can read the file.
pub fn is_readable_by_all(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.permissions().mode() & READABLE_BY_ALL != 0)
}

fn certificates(path: &Path) -> anyhow::Result<Vec<CertificateDer<'static>>> {
    let text = read("certificate", path)?;
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let found = found.map_err(|error| damaged(path, &error))?;
    if found.is_empty() {
        bail!("there is no certificate in {}: it has to be a PEM file", path.display());
    }
    Ok(found)
}

fn private_key(path: &Path) -> anyhow::Result<PrivateKeyDer<'static>> {
    let text = read("key", path)?;
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
        let path_shown = path.display();
        if text.windows(ENCRYPTED.len()).any(|part| part == ENCRYPTED) {
            return anyhow!("the key in {path_shown} is encrypted: it has to be one without a password");
        }
        match error {
            pem::Error::NoItemsFound => {
                anyhow!("there is no private key in {path_shown}: it has to be a PEM file")
            }
            other => damaged(path, &other), // There is one, and it cannot be read.
        }
    })
}

fn read(what: &str, path: &Path) -> anyhow::Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| {
        let message = format!("cannot read the {what} {}: {error}", path.display());
        anyhow::Error::new(error).context(message)
    })
}

fn damaged(path: &Path, error: &pem::Error) -> anyhow::Error {
    let path = path.display();
    match error {
        pem::Error::MissingSectionEnd { .. } => anyhow!("{path} is damaged: a section has no end"),
        pem::Error::IllegalSectionStart { .. } => anyhow!("{path} is damaged: a section has no proper start"),
        other => anyhow!("{path} is damaged: {other}"), // The library's own words for it will do.
    }
}
