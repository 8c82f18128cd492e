//! TLS of the server itself. Its certificate is read again when its files change, and on SIGHUP, without a restart: new
//! connections get the new one, others go on.

mod load;
#[cfg(test)]
mod tests;
mod validity;

use std::io;
use std::os::unix::fs::MetadataExt;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use disbatch_core::clock::{Clock, SystemClock};
use disbatch_core::config::Tls;
use disbatch_core::service_manager;
use rustls::ServerConfig;
use rustls::crypto::ring;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::spawn_blocking;
use tokio::time::{MissedTickBehavior, interval};

use validity::Validity;

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

/// What a look at the files has brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Looked {
    /// They are as they were.
    Same,
    /// What they hold is served from now on.
    Replaced,
    /// They cannot be used; what was served still is.
    Refused,
}

impl Certificate {
    /// Reads the files.
    pub fn open(files: Tls) -> anyhow::Result<Self> {
        let seen = Stamp::of(&files);
        let key = load::load(&files)?;
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
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        if *seen == stamp && !asked {
            return Looked::Same;
        }
        match load::load(&self.files) {
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
        if load::is_readable_by_all(&self.files.key) {
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
