//! Authorities, the certificates that they sign, and clients that trust one of them alone.

use std::path::Path;

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use reqwest::Client;
use reqwest::redirect::Policy;
use serde_json::{Value, json};

/// Who signs certificates.
pub struct Authority {
    issuer: CertifiedIssuer<'static, KeyPair>,
}

impl Authority {
    pub fn new(name: &str) -> anyhow::Result<Self> {
        let mut parameters = CertificateParams::new(Vec::<String>::new())?;
        parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        parameters.distinguished_name.push(DnType::CommonName, name);
        Ok(Self { issuer: CertifiedIssuer::self_signed(parameters, KeyPair::generate()?)? })
    }

    /// Puts a certificate of this machine and its key into the folder.
    pub fn issue(&self, folder: &Path) -> anyhow::Result<()> {
        let key = KeyPair::generate()?;
        let parameters = CertificateParams::new(vec!["127.0.0.1".to_owned()])?;
        let certificate = parameters.signed_by(&key, &self.issuer)?;
        put(folder, "chain.pem", &certificate.pem())?;
        put(folder, "key.pem", &key.serialize_pem())
    }

    /// A client that trusts this authority and nobody else.
    pub fn client(&self) -> anyhow::Result<Client> {
        let authority = reqwest::Certificate::from_pem(self.issuer.pem().as_bytes())?;
        client(Some(authority))
    }
}

/// A client that does not trust anybody.
pub fn plain_client() -> anyhow::Result<Client> {
    client(None)
}

fn client(authority: Option<reqwest::Certificate>) -> anyhow::Result<Client> {
    // Fails when a provider is installed already, which is as good.
    let _already_installed = rustls::crypto::ring::default_provider().install_default();
    let builder = Client::builder().tls_certs_only(authority).no_proxy().redirect(Policy::none());
    Ok(builder.build()?)
}

/// Puts a file into the place of the one that is there, at once.
pub fn put(folder: &Path, name: &str, text: &str) -> anyhow::Result<()> {
    let new = folder.join("new");
    std::fs::write(&new, text)?;
    Ok(std::fs::rename(new, folder.join(name))?)
}

/// The section `tls` of a configuration for files in this folder.
pub fn section(folder: &Path) -> Value {
    json!({ "certificate": folder.join("chain.pem"), "key": folder.join("key.pem") })
}
