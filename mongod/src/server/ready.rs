//! From "started" to "takes writes".

use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bson::{Document, doc};
use mongodb::error::ErrorKind;
use mongodb::options::{ClientOptions, ServerAddress};
use mongodb::{Client, Database};

use super::{Readiness, Server, logged_reason};

pub(crate) const REPLICA_SET: &str = "disbatch";

/// Recovery after a kill may take a while.
const DEADLINE: Duration = Duration::from_secs(60);
const INTERVAL: Duration = Duration::from_millis(25);

/// Waits until the server is ready; makes it a replica set if it is to be one by itself.
pub(super) async fn wait(server: &mut Server, readiness: Readiness) -> anyhow::Result<()> {
    let admin = connect(server.port)?.database("admin");
    let mut interval = tokio::time::interval(INTERVAL);
    let deadline = Instant::now() + DEADLINE;
    let mut configured = readiness == Readiness::Answers || !server.options.replica_set;
    loop {
        interval.tick().await;
        server.check_alive()?;
        let problem = match step(&admin, server.port, &mut configured).await {
            Ok(is_primary) if is_primary || readiness == Readiness::Answers => {
                end_promptly(&admin).await;
                return Ok(());
            }
            Ok(_) => anyhow::anyhow!("it is not primary"),
            Err(error) => error,
        };
        if Instant::now() > deadline {
            let reason = logged_reason(&server.log_file());
            bail!("mongod is not ready after {} s: {problem:#}; {reason}", DEADLINE.as_secs());
        }
    }
}

/// A connection to this server alone, whatever its state in its set.
pub(crate) fn connect(port: u16) -> anyhow::Result<Client> {
    let mut options = ClientOptions::default();
    options.hosts = vec![ServerAddress::Tcp { host: "127.0.0.1".to_owned(), port: Some(port) }];
    // Also while it is not a member of its set.
    options.direct_connection = Some(true);
    options.server_selection_timeout = Some(Duration::from_millis(500));
    Ok(Client::with_options(options)?)
}

/// Does what is to be done next; true when the server takes writes.
async fn step(admin: &Database, port: u16, configured: &mut bool) -> anyhow::Result<bool> {
    if !*configured {
        configure(admin, port).await?;
        *configured = true;
    }
    let hello = admin.run_command(doc! { "hello": 1 }).await?;
    Ok(hello.get_bool("isWritablePrimary").unwrap_or(false))
}

/// Initiates the replica set, or tells an existing one its new port.
async fn configure(admin: &Database, port: u16) -> anyhow::Result<()> {
    let host = format!("127.0.0.1:{port}");
    // While the server loads a configuration that it has, it answers as if there were none.
    let stored = admin.client().database("local").collection::<Document>("system.replset");
    let known = match stored.find_one(doc! {}).await {
        Ok(known) => known.is_some(),
        // With access control the first client may initiate a set, and not look whether there is one.
        Err(error) if is_unauthorized(&error) => false,
        Err(error) => return Err(error.into()),
    };
    if !known {
        let config = doc! { "_id": REPLICA_SET, "members": [{ "_id": 0, "host": host }] };
        admin.run_command(doc! { "replSetInitiate": config }).await.context("cannot initiate")?;
        return Ok(());
    }
    let found = admin.run_command(doc! { "replSetGetConfig": 1 }).await?;
    let config = found.get_document("config").context("the replica set has no configuration")?;
    if let Some(config) = moved_to(config, &host)? {
        let command = doc! { "replSetReconfig": config, "force": true };
        admin.run_command(command).await.context("cannot change the port of the replica set")?;
    }
    Ok(())
}

fn is_unauthorized(error: &mongodb::error::Error) -> bool {
    const UNAUTHORIZED: i32 = 13;
    matches!(error.kind.as_ref(), ErrorKind::Command(failure) if failure.code == UNAUTHORIZED)
}

/// A member of a replica set takes 15 seconds after SIGTERM for its clients to find another.
async fn end_promptly(admin: &Database) {
    let command = doc! { "setParameter": 1, "shutdownTimeoutMillisForSignaledShutdown": 0 };
    // Versions before 5.0 do not know this, and do not wait either.
    let _ = admin.run_command(command).await;
}

/// The configuration with its one member at `host`, unless it is there.
fn moved_to(config: &Document, host: &str) -> anyhow::Result<Option<Document>> {
    let mut config = config.clone();
    let version = config.get_i32("version").context("the configuration of the replica set has no version")?;
    let members = config.get_array_mut("members").context("the replica set has no members")?;
    let [member] = members.as_mut_slice() else { bail!("the replica set has more than one member") };
    let member = member.as_document_mut().context("the member of the replica set is no document")?;
    if member.get_str("host").is_ok_and(|known| known == host) {
        return Ok(None);
    }
    member.insert("host", host);
    config.insert("version", version + 1);
    Ok(Some(config))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_configuration_changes_only_with_the_port() {
        let config = doc! { "version": 3, "members": [{ "_id": 0, "host": "127.0.0.1:1" }] };
        assert_eq!(moved_to(&config, "127.0.0.1:1").unwrap(), None);
        let moved = doc! { "version": 4, "members": [{ "_id": 0, "host": "127.0.0.1:2" }] };
        assert_eq!(moved_to(&config, "127.0.0.1:2").unwrap(), Some(moved));
        let foreign = doc! { "version": 3, "members": [{ "host": "a" }, { "host": "b" }] };
        assert!(moved_to(&foreign, "a").unwrap_err().to_string().contains("more than one member"));
    }
}
