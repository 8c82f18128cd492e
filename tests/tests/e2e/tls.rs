//! TLS to MongoDB, in the three forms of `attributes.ssl`.

use std::fs;

use anyhow::Context;
use bson::doc;
use disbatch_mongod::server::Server;
use disbatch_mongod::testing::start_ephemeral_with;
use disbatch_tests::{World, eventually};
use serde_json::{Value, json};
use tempfile::TempDir;

/// A server with a certificate that a private authority has signed.
struct Encrypted {
    world: World,
    server: Server,
    certificates: TempDir,
}

impl Encrypted {
    async fn new(name: &str) -> anyhow::Result<Self> {
        let certificates = tempfile::tempdir()?;
        let mut authority = rcgen::CertificateParams::new(Vec::new())?;
        authority.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        authority.distinguished_name.push(rcgen::DnType::CommonName, "Disbatch test authority");
        let authority_key = rcgen::KeyPair::generate()?;
        let authority = rcgen::CertifiedIssuer::self_signed(authority, authority_key)?;
        let key = rcgen::KeyPair::generate()?;
        let certificate =
            rcgen::CertificateParams::new(vec![name.to_owned()])?.signed_by(&key, &authority)?;
        let pem = certificates.path().join("server.pem");
        fs::write(&pem, certificate.pem() + &key.serialize_pem())?;
        fs::write(certificates.path().join("ca.pem"), authority.pem())?;
        // Those who start the server speak to it without TLS.
        let arguments = vec![
            "--tlsMode".into(),
            "allowTLS".into(),
            "--tlsCertificateKeyFile".into(),
            pem.into_os_string(),
            "--tlsAllowConnectionsWithoutCertificates".into(),
            "--tlsCAFile".into(),
            certificates.path().join("ca.pem").into_os_string(),
        ];
        let server = start_ephemeral_with(false, arguments).await?;
        let world = World::at(server.uri()).await?;
        Ok(Self { world, server, certificates })
    }

    fn configure(&self, ssl: Value) -> anyhow::Result<()> {
        self.world.configure(json!({ "attributes": { "ssl": ssl } }))
    }

    fn authority(&self) -> Value {
        json!({ "SSL_ca_file": self.certificates.path().join("ca.pem") })
    }

    /// How many encrypted connections the server has had.
    async fn encrypted_connections(&self) -> anyhow::Result<i64> {
        let status = self.world.database().run_command(doc! { "serverStatus": 1 }).await?;
        let versions = status.get_document("transportSecurity").context("no count of connections")?;
        Ok(versions.values().filter_map(|n| n.as_i64().or(n.as_i32().map(i64::from))).sum())
    }

    /// A DEN works, and its task is run to the end.
    async fn a_task_runs(&self, node: &str) -> anyhow::Result<()> {
        let before = self.encrypted_connections().await?;
        let queue = self.world.queue("Disbatch::Plugin::Demo", doc! { "threads": 1 }).await?;
        let id = self.world.submit(queue, vec![doc! { "commands": "a" }]).await?[0];
        let den = self.world.den_at_work(node).await?;
        let ended = self.world.until_status(id, 1).await;
        ended.with_context(|| den.log().unwrap_or_default())?;
        assert!(self.encrypted_connections().await? > before, "nobody has spoken TLS");
        Ok(())
    }

    /// A DEN says what is wrong with the certificate and goes on trying.
    async fn is_refused(&self, node: &str, reason: &str) -> anyhow::Result<()> {
        let den = self.world.den(node)?;
        eventually("a word about the certificate", || async {
            let log = den.log()?;
            let line = log.lines().find(|line| line.contains("cannot work with the database"));
            Ok(line.filter(|line| line.contains("ertificate") && line.contains(reason)).map(str::to_owned))
        })
        .await
        .with_context(|| den.log().unwrap_or_default())?;
        let nodes = self.world.database().collection::<bson::Document>("nodes");
        assert_eq!(nodes.count_documents(doc! { "node": node }).await?, 0);
        Ok(())
    }
}

#[tokio::test]
async fn a_server_is_trusted_by_the_authority_in_the_file() -> anyhow::Result<()> {
    let encrypted = Encrypted::new("127.0.0.1").await?;
    encrypted.configure(encrypted.authority())?;
    encrypted.a_task_runs("n1").await?;
    encrypted.server.stop().await
}

#[tokio::test]
async fn a_server_that_no_system_authority_knows_is_refused_unless_nothing_is_checked() -> anyhow::Result<()>
{
    let encrypted = Encrypted::new("127.0.0.1").await?;
    encrypted.configure(json!(1))?;
    encrypted.is_refused("n1", ": I/O error: invalid peer certificate: UnknownIssuer ").await?;
    encrypted.configure(json!({ "SSL_verify_mode": 0 }))?;
    encrypted.a_task_runs("n2").await?;
    encrypted.server.stop().await
}

#[tokio::test]
async fn a_server_under_another_name_is_refused() -> anyhow::Result<()> {
    let encrypted = Encrypted::new("elsewhere.example").await?;
    encrypted.configure(encrypted.authority())?;
    encrypted.is_refused("n1", "not valid for name").await?;
    encrypted.server.stop().await
}
