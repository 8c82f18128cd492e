//! TLS of the server itself. Its certificate is read again when its files change, and on SIGHUP, without a restart: new
//! connections get the new one, others go on.

use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use anyhow::{anyhow, bail};
use bson::DateTime;
use disbatch_core::clock::{Clock, SystemClock};
use disbatch_core::config::Tls;
use disbatch_core::service_manager;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};
use x509_parser::parse_x509_certificate;

use crate::json::date_text;

/// How often the files are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// How often a certificate that ends soon is warned of.
const WARN_EVERY: Duration = Duration::from_secs(24 * 3600);

/// The certificate that clients are shown, and the files that it comes from.
#[derive(Debug)]
pub struct Certificate {
    files: Tls,
    served: RwLock<Arc<CertifiedKey>>,
    /// What the files were like when they were last read.
    seen: Mutex<Stamp>,
}

/// What tells a file from one that has taken its place or has been written to: device, number, time of the last change and
/// length. Links are followed, as those who renew certificates change where links lead.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Stamp([Option<OfFile>; 2]);

/// Device, number, seconds and nanoseconds of the last change, length.
type OfFile = (u64, u64, i64, i64, u64);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looked {
    Same,
    /// What they hold is served from now on.
    Replaced,
    /// They cannot be used; what was served still is.
    Refused,
}

impl Certificate {
    pub fn open(files: Tls) -> anyhow::Result<Self> {
        let seen = Stamp::of(&files);
        let key = load(&files)?;
        let certificate = Self { files, served: RwLock::new(Arc::new(key)), seen: Mutex::new(seen) };
        certificate.tell("speaking TLS with this certificate");
        Ok(certificate)
    }

    /// How a server speaks TLS with this certificate, which is kept fresh from now on.
    pub fn serve(self) -> io::Result<ServerConfig> {
        let hangups = signal(SignalKind::hangup())?;
        // TLS 1.2 and 1.3: the library has no older ones.
        let config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(io::Error::other)?;
        let certificate = Arc::new(self);
        tokio::spawn(keep_fresh(Arc::clone(&certificate), hangups));
        Ok(config.with_no_client_auth().with_cert_resolver(certificate))
    }

    fn served(&self) -> Arc<CertifiedKey> {
        Arc::clone(&self.served.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the files again if they have changed, or in any case if `asked` to.
    fn look(&self, asked: bool) -> Looked {
        // Before they are read: what changes meanwhile is read at the next look.
        let stamp = Stamp::of(&self.files);
        let mut seen = disbatch_core::lock(&self.seen);
        if *seen == stamp && !asked {
            return Looked::Same;
        }
        match load(&self.files) {
            Ok(key) => {
                *seen = stamp;
                *self.served.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(key);
                self.tell("speaking TLS with the certificate as it is now");
                Looked::Replaced
            }
            Err(error) => {
                // What cannot even be read may be there in a moment. What is wrong stays wrong until it is changed.
                if error.downcast_ref::<io::Error>().is_none() {
                    *seen = stamp;
                }
                tracing::warn!(%error, "the new certificate cannot be used, the one before is kept");
                Looked::Refused
            }
        }
    }

    fn validity(&self) -> Option<Validity> {
        self.served().cert.first().and_then(Validity::of)
    }

    /// Says which certificate is served now, and what is wrong with it.
    fn tell(&self, message: &str) {
        let file = self.files.certificate.display();
        let valid_until = self.validity().and_then(|validity| validity.end());
        tracing::info!(certificate = %file, valid_until, "{message}");
        let key = self.files.key.display();
        if is_readable_by_all(&self.files.key) {
            tracing::warn!(%key, "everybody on this host can read the key of the certificate: chmod o= {key}");
        }
        self.warn_of_end();
    }

    fn warn_of_end(&self) {
        let Some(validity) = self.validity() else { return };
        if let Some(trouble) = validity.trouble(SystemClock.now()) {
            let file = self.files.certificate.display();
            tracing::warn!(certificate = %file, valid_until = validity.end(), "{trouble}");
        }
    }
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _client: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.served())
    }
}

impl Stamp {
    fn of(files: &Tls) -> Self {
        Self([&files.certificate, &files.key].map(|path| {
            let file = std::fs::metadata(path).ok()?;
            Some((file.dev(), file.ino(), file.ctime(), file.ctime_nsec(), file.len()))
        }))
    }
}

/// Looks at the files for as long as the process lives.
async fn keep_fresh(certificate: Arc<Certificate>, mut hangups: Signal) {
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut warnings = interval(WARN_EVERY);
    // The first tick comes at once, when all has been said.
    warnings.tick().await;
    loop {
        let asked = tokio::select! {
            _ = looks.tick() => false,
            Some(()) = hangups.recv() => true,
            _ = warnings.tick() => {
                certificate.warn_of_end();
                continue;
            }
        };
        if asked {
            service_manager::reloading();
        }
        let looking = Arc::clone(&certificate);
        // Files may be where reading takes long.
        if let Err(error) = spawn_blocking(move || looking.look(asked)).await {
            tracing::error!(%error, "cannot look at the certificate");
        }
        if asked {
            service_manager::ready();
        }
    }
}

/// The bit of a file's mode that lets everybody read it. A group may be one that is meant to.
const READABLE_BY_ALL: u32 = 0o004;

/// What stands in keys that need a password.
const ENCRYPTED: &[u8] = b"ENCRYPTED";

/// The certificate in the files, with those between it and its authority.
fn load(files: &Tls) -> anyhow::Result<CertifiedKey> {
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

fn is_readable_by_all(path: &Path) -> bool {
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

/// So many days before its end a certificate is warned of.
const SOON: i64 = 14;

const DAY: i64 = 24 * 3600;

/// From when until when, in seconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Validity {
    from: i64,
    until: i64,
}

impl Validity {
    /// That of this certificate; nothing if it is so odd that it cannot be told.
    pub fn of(certificate: &CertificateDer<'_>) -> Option<Self> {
        let (_, parsed) = parse_x509_certificate(certificate.as_ref()).ok()?;
        let validity = parsed.validity();
        Some(Self { from: validity.not_before.timestamp(), until: validity.not_after.timestamp() })
    }

    pub fn end(&self) -> Option<String> {
        date_text(DateTime::from_millis(self.until.saturating_mul(1000)))
    }

    /// What an operator has to see to at this time.
    pub fn trouble(&self, now: DateTime) -> Option<String> {
        let now = now.timestamp_millis().div_euclid(1000);
        if now < self.from {
            return Some("the certificate is not valid yet: clients will refuse it".to_owned());
        }
        match self.until.saturating_sub(now) {
            ..0 => Some("the certificate has expired: clients refuse it".to_owned()),
            left if left < SOON * DAY => {
                Some(format!("the certificate expires soon, days left: {}", left / DAY))
            }
            _ => None, // There is time.
        }
    }
}

#[cfg(test)]
mod tests;
