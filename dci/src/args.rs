//! The command line.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use clap::{CommandFactory, Parser};
use disbatch_core::config::{Config, DEFAULT_PATH, Tls};
use disbatch_core::store::{Store, StoreError};

use crate::access::Door;

/// How often an absent database is looked for.
const RETRY: Duration = Duration::from_secs(5);

const EXIT_CODES: &str = "\
Exit status:
  0  ended by a signal, all requests answered; with --check-config: it can be used
  2  wrong usage
  3  the configuration cannot be used
  4  cannot listen";

/// Serves the REST API and the pages of a Disbatch database.
#[derive(Debug, Parser)]
#[command(name = "dci", version, after_help = EXIT_CODES)]
pub struct Arguments {
    /// Configuration file
    #[arg(long, value_name = "FILE", default_value = DEFAULT_PATH)]
    pub config: PathBuf,
    /// Address and port to listen on; port 0 takes a free one
    #[arg(long, value_name = "ADDR:PORT", default_value = "127.0.0.1:8080")]
    pub listen: SocketAddr,
    /// Serve everyone who can reach the address: nobody is asked who they are
    #[arg(long)]
    pub insecure_no_auth: bool,
    /// PEM file with the certificate to speak TLS with, and those between it and its authority
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub tls_certificate: Option<PathBuf>,
    /// PEM file with the key of that certificate
    #[arg(long, value_name = "FILE", requires = "tls_certificate")]
    pub tls_key: Option<PathBuf>,
    /// Check the configuration without the database, and end: with 0 if it can be used, else with 3
    #[arg(long)]
    pub check_config: bool,
    /// Print the manual page, for packages
    #[arg(long, exclusive = true, hide = true)]
    pub man_page: bool,
}

#[derive(Debug, thiserror::Error)]
pub enum DoorError {
    /// It can be reached from elsewhere, and nobody could log in.
    #[error(
        "refusing to listen on {0}: there are no users yet, so only loopback addresses are served. Add the first with \
         `disbatch user add NAME --admin --config FILE`, or have a proxy ask (access.proxy in the configuration); \
         --insecure-no-auth serves everyone"
    )]
    Exposed(SocketAddr),
    /// The database does not answer with more than an error that stays.
    #[error("refusing to listen on {address}: cannot find out whether there are users: {source}")]
    Unknown { address: SocketAddr, source: StoreError },
}

impl Arguments {
    pub fn print_man_page() -> io::Result<()> {
        clap_mangen::Man::new(Self::command()).render(&mut io::stdout())
    }

    /// The files for TLS: these, or those of the configuration. Without any there is plain HTTP.
    pub fn tls(&self, config: &Config) -> Option<Tls> {
        match (&self.tls_certificate, &self.tls_key) {
            (Some(certificate), Some(key)) => {
                Some(Tls { certificate: certificate.clone(), key: key.clone() })
            }
            _ => config.tls_files(), // One of them alone is a wrong command line.
        }
    }

    /// Whom the door is open to. Waits for the database where it matters whether there are users.
    pub async fn door(&self, config: &Config, store: &Store) -> Result<Door, DoorError> {
        let address = self.listen;
        if self.insecure_no_auth {
            tracing::warn!(listen = %address, "--insecure-no-auth: everyone who can reach the address may do anything");
            return Ok(Door::Open);
        }
        // A proxy that asks people is believed from its own address only, but then nobody is let in unasked.
        let proxy_asks = config.access.proxy.as_ref().is_some_and(|proxy| proxy.user_header.is_some());
        if proxy_asks {
            return Ok(Door::Closed);
        }
        // A proxy on the same machine lets in whoever reaches it.
        if address.ip().to_canonical().is_loopback() && config.access.proxy.is_none() {
            return Ok(Door::OpenWithoutUsers);
        }
        let mut waits = false;
        loop {
            match store.has_users().await {
                Ok(true) => return Ok(Door::Closed),
                Ok(false) => return Err(DoorError::Exposed(address)),
                Err(error) if error.is_transient() => {
                    if !waits {
                        tracing::warn!(%error, listen = %address, "not listening before it is known whether there are users");
                        waits = true;
                    }
                    tokio::time::sleep(RETRY).await;
                }
                Err(source) => return Err(DoorError::Unknown { address, source }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use disbatch_core::config::Role;

    use super::*;

    #[test]
    fn files_of_the_command_line_come_before_those_of_the_configuration() {
        let text = r#"{"mongohost": "h", "database": "d", "tls": {"certificate": "c.pem", "key": "k.pem"}}"#;
        let parse = |text| Config::parse(text, std::path::Path::new("/etc/c.json")).unwrap();
        let tls = |words: &[&str], config| {
            let arguments = Arguments::try_parse_from([&["dci"], words].concat())?;
            let files = arguments.tls(config).map(|tls| [tls.certificate, tls.key]);
            Ok::<_, clap::Error>(files.map(|files| files.map(|file| file.display().to_string()).join(" ")))
        };
        let (with, without) = (parse(text), parse(r#"{"mongohost": "h", "database": "d"}"#));
        let given = ["--tls-certificate", "a", "--tls-key", "b"];
        assert_eq!(tls(&[], &without).unwrap(), None);
        assert_eq!(tls(&[], &with).unwrap().as_deref(), Some("/etc/c.pem /etc/k.pem"));
        assert_eq!(tls(&given, &with).unwrap().as_deref(), Some("a b"));
        assert_eq!(tls(&given, &without).unwrap().as_deref(), Some("a b"));
        assert!(tls(&given[..2], &with).is_err() && tls(&given[2..], &with).is_err());
    }

    async fn door(words: &[&str], more: &str) -> Result<Door, DoorError> {
        // Nothing listens there: whoever does not have to ask does not.
        let text = format!(r#"{{"mongohost": "127.0.0.1:1", "database": "d"{more}}}"#);
        let config = Config::parse(&text, std::path::Path::new("/c.json")).unwrap();
        let store = Store::connect(&config, Role::DisbatchWeb).await.unwrap();
        Arguments::try_parse_from([&["dci"], words].concat()).unwrap().door(&config, &store).await
    }

    #[tokio::test]
    async fn only_loopback_is_open_without_being_asked_for() {
        assert_eq!(door(&[], "").await.unwrap(), Door::OpenWithoutUsers);
        assert_eq!(door(&["--listen", "[::ffff:127.0.0.1]:80"], "").await.unwrap(), Door::OpenWithoutUsers);
        assert_eq!(door(&["--listen", "0.0.0.0:80", "--insecure-no-auth"], "").await.unwrap(), Door::Open);
        let proxy = r#", "access": {"proxy": {"addresses": ["10.0.0.1"], "user_header": "X-Remote-User"}}"#;
        assert_eq!(door(&["--listen", "0.0.0.0:80"], proxy).await.unwrap(), Door::Closed);
        assert_eq!(door(&[], proxy).await.unwrap(), Door::Closed);
        let error = DoorError::Exposed("0.0.0.0:8080".parse().unwrap()).to_string();
        assert!(
            error.starts_with("refusing to listen on 0.0.0.0:8080: ") && error.contains("disbatch user add")
        );
    }
}
