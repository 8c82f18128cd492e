//! Servers and databases for tests.
//!
//! `disbatch-mongod run -- cargo nextest run` has one server of each kind for all tests. Without it, a test
//! process starts its own when it first asks.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Context;
use bson::oid::ObjectId;
use mongodb::{Client, Database};
use nix::errno::Errno;
use nix::sys::signal::kill;
use nix::unistd::Pid;
use tokio::sync::OnceCell;

use crate::locate;
use crate::server::{CACHE_GB, Options, Server};

/// The URI of a standalone server that the tests are to use.
pub const STANDALONE: &str = "DISBATCH_TEST_STANDALONE";

/// The URI of a replica set that the tests are to use.
pub const REPLICA_SET: &str = "DISBATCH_TEST_REPLICA_SET";

/// Data in memory makes short tests shorter; it needs this much room there.
const ROOM_IN_MEMORY: u64 = 4 << 30;

/// The URI of a standalone server, which has no change streams and no transactions.
pub async fn standalone() -> anyhow::Result<String> {
    static SERVER: OnceCell<Server> = OnceCell::const_new();
    shared(STANDALONE, &SERVER, false).await
}

/// The URI of a replica set with one member.
pub async fn replica_set() -> anyhow::Result<String> {
    static SERVER: OnceCell<Server> = OnceCell::const_new();
    shared(REPLICA_SET, &SERVER, true).await
}

/// The URI of the server for tests that need no particular kind: a replica set, as in production.
pub async fn server() -> anyhow::Result<String> {
    replica_set().await
}

// A server in the cell ends with the process: see `watchdog`.
async fn shared(variable: &str, cell: &OnceCell<Server>, replica_set: bool) -> anyhow::Result<String> {
    match std::env::var(variable) {
        Ok(uri) if !uri.is_empty() => Ok(uri),
        _ => Ok(cell.get_or_try_init(|| Box::pin(start_ephemeral(replica_set))).await?.uri()),
    }
}

pub async fn start_ephemeral(replica_set: bool) -> anyhow::Result<Server> {
    // It has the writes of thousands of databases at once: the largest documents did not always find room in less.
    let mut arguments = vec![CACHE_GB.into(), "1".into()];
    // A dropped collection costs until a checkpoint has forgotten it, which takes six minutes otherwise.
    arguments.extend(
        ["--syncdelay", "5", "--setParameter", "minSnapshotHistoryWindowInSeconds=1"].map(OsString::from),
    );
    start_ephemeral_with(replica_set, arguments).await
}

/// Starts a server with further arguments, whose data is removed when it ends.
pub async fn start_ephemeral_with(replica_set: bool, arguments: Vec<OsString>) -> anyhow::Result<Server> {
    let find = || locate::find_or_fetch(|_| ());
    let program = tokio::task::spawn_blocking(find).await.context("the search for mongod broke off")??;
    let data = tempfile::Builder::new().prefix("disbatch-mongod-").tempdir_in(temporary_folder())?.keep();
    Server::start(Options { program, data, port: None, replica_set, ephemeral: true, arguments }).await
}

/// Where tests put what they do not keep: in memory, if there is room.
pub fn temporary_folder() -> PathBuf {
    let memory = PathBuf::from("/dev/shm");
    let room = nix::sys::statvfs::statvfs(&memory)
        .map(|status| status.blocks_available().saturating_mul(status.fragment_size()));
    if room.is_ok_and(|room| room >= ROOM_IN_MEMORY) { memory } else { std::env::temp_dir() }
}

/// A name for a database that no other call gets: up to 26 characters of `test`, this process, and 24 digits.
pub fn database_name(test: &str) -> String {
    let mut name: String =
        test.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '_' }).collect();
    name.truncate(26);
    // MongoDB takes up to 63 bytes; an ObjectId is unique over hosts, processes and calls.
    format!("{name}_{}_{}", std::process::id(), ObjectId::new())
}

/// The process that a database was made for, if its name is one of [`database_name`]'s.
fn process_of(database: &str) -> Option<Pid> {
    let (name, id) = database.rsplit_once('_')?;
    id.parse::<ObjectId>().ok()?;
    let (_test, process) = name.rsplit_once('_')?;
    process.parse().ok().filter(|process| *process > 0).map(Pid::from_raw)
}

/// Drops the databases of test processes that have ended. With thousands of them each further collection
/// costs a server ten times as much.
pub async fn drop_abandoned(server: &Client) -> mongodb::error::Result<()> {
    for name in server.list_database_names().await? {
        if process_of(&name).is_some_and(|process| kill(process, None) == Err(Errno::ESRCH)) {
            server.database(&name).drop().await?;
        }
    }
    Ok(())
}

#[derive(Debug, Clone)]
pub struct TestDatabase {
    /// The server, as a configuration's `mongohost` takes it.
    pub uri: String,
    pub name: String,
    pub database: Database,
}

impl TestDatabase {
    /// A new database on the server at `uri`, named after the running test (the thread that calls).
    pub async fn create(uri: impl Into<String>) -> anyhow::Result<Self> {
        let uri = uri.into();
        let thread = std::thread::current();
        let test = thread.name().and_then(|path| path.rsplit("::").next()).unwrap_or("test");
        let name = database_name(test);
        let database = Client::with_uri_str(&uri).await?.database(&name);
        Ok(Self { uri, name, database })
    }

    pub async fn drop_database(&self) -> anyhow::Result<()> {
        Ok(self.database.drop().await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_databases_are_legal_and_unique() {
        let name = database_name("store::tests::A very long name of a test, longer than MongoDB takes");
        assert!(name.starts_with("store__tests__a_very_long_"), "{name}");
        assert_eq!(process_of(&name), Some(Pid::this()));
        assert!(name.len() <= 63);
        assert_ne!(database_name("x"), database_name("x"));
    }

    #[test]
    fn other_names_are_of_no_process() {
        let id = ObjectId::new();
        for name in [
            "disbatch",
            "disbatch_12",
            "a_b_c",
            &format!("x_{id}"),
            &format!("x_0_{id}"),
            &format!("x_-1_{id}"),
        ] {
            assert_eq!(process_of(name), None, "{name}");
        }
    }

    #[tokio::test]
    async fn the_databases_of_processes_that_have_ended_are_dropped() {
        let mine = TestDatabase::create(server().await.unwrap()).await.unwrap();
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let left = format!("left_{}_{}", child.id(), ObjectId::new());
        child.wait().unwrap();
        let client = mine.database.client();
        for name in [&mine.name, &left] {
            client.database(name).collection("tasks").insert_one(bson::doc! {}).await.unwrap();
        }
        drop_abandoned(client).await.unwrap();
        let names = client.list_database_names().await.unwrap();
        assert!(names.contains(&mine.name) && !names.contains(&left), "{names:?}");
    }
}
