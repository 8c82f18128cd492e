//! The command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Parser;
use disbatch_core::config::DEFAULT_PATH;

const EXIT_CODES: &str = "\
Exit status:
  0  ended by a signal, all requests answered
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
}

/// Why an address is not listened on.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "refusing to listen on {0}: there is no authentication yet, so only loopback addresses are served; \
     --insecure-no-auth serves everyone"
)]
pub struct Exposed(SocketAddr);

impl Arguments {
    /// Checks that only this machine is served, unless told otherwise in words.
    ///
    /// # Errors
    /// The address can be reached from elsewhere.
    pub fn checked_address(&self) -> Result<SocketAddr, Exposed> {
        let loopback = self.listen.ip().to_canonical().is_loopback();
        if loopback || self.insecure_no_auth { Ok(self.listen) } else { Err(Exposed(self.listen)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn address(words: &[&str]) -> Result<SocketAddr, Exposed> {
        Arguments::try_parse_from([&["dci"], words].concat()).unwrap().checked_address()
    }

    #[test]
    fn only_loopback_is_served_without_authentication() {
        assert_eq!(address(&[]).unwrap().to_string(), "127.0.0.1:8080");
        assert!(address(&["--listen", "[::1]:80"]).is_ok());
        assert!(address(&["--listen", "[::ffff:127.0.0.1]:80"]).is_ok());
        let error = address(&["--listen", "0.0.0.0:8080"]).unwrap_err();
        assert!(error.to_string().starts_with("refusing to listen on 0.0.0.0:8080: "), "{error}");
        assert!(address(&["--listen", "0.0.0.0:8080", "--insecure-no-auth"]).is_ok());
    }
}
