//! Drives a real server.

use std::path::Path;
use std::time::Duration;

use bson::{Document, doc};
use disbatch_mongod::locate;
use disbatch_mongod::replica_set::ReplicaSet;
use disbatch_mongod::server::{Options, Server};
use disbatch_mongod::testing::{self, TestDatabase};
use mongodb::Collection;

async fn start(data: &Path, port: Option<u16>) -> anyhow::Result<Server> {
    let program = locate::find_or_fetch(|_| ())?;
    Server::start(Options {
        program,
        data: data.to_owned(),
        port,
        replica_set: true,
        ephemeral: false,
        arguments: Vec::new(),
    })
    .await
}

async fn things(server: &Server) -> anyhow::Result<Collection<Document>> {
    let uri = format!("{}&w=majority&serverSelectionTimeoutMS=5000", server.uri());
    Ok(mongodb::Client::with_uri_str(uri).await?.database("d").collection("things"))
}

#[tokio::test]
async fn a_replica_set_keeps_majority_writes_when_it_moves_to_another_port() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), None).await.unwrap();
    let collection = things(&server).await.unwrap();
    collection.insert_one(doc! { "_id": 1 }).await.unwrap();
    let (port, pid) = (server.port(), server.pid());
    server.stop().await.unwrap();
    assert!(!Path::new(&format!("/proc/{pid}")).exists(), "mongod still runs");

    let taken = std::net::TcpListener::bind(("127.0.0.1", port)).unwrap();
    let error = start(folder.path(), Some(port)).await.unwrap_err();
    assert!(format!("{error:#}").contains("Address already in use"), "{error:#}");
    // The server asks the port in its configuration whether that is itself, and a deaf one delays it by 30 s.
    drop(taken);
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let server = start(folder.path(), Some(free)).await.unwrap();
    assert_ne!(server.port(), port);
    let collection = things(&server).await.unwrap();
    collection.insert_one(doc! { "_id": 2 }).await.unwrap();
    assert_eq!(collection.count_documents(doc! {}).await.unwrap(), 2);
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_server_without_its_folder_tells_the_reason_from_its_log() {
    let folder = tempfile::tempdir().unwrap();
    let server = start(folder.path(), None).await.unwrap();
    let second = start(folder.path(), None).await.unwrap_err().to_string();
    assert!(second.starts_with("mongod ended at its start (exit status: "), "{second}");
    assert!(second.contains("DBPathInUse") || second.contains("lock"), "{second}");
    server.stop().await.unwrap();
}

#[tokio::test]
async fn a_dropped_server_ends_and_leaves_nothing() {
    let server = testing::start_ephemeral(false).await.unwrap();
    let data = server.log_file().parent().unwrap().to_owned();
    assert!(data.exists());
    drop(server);
    let gone = async {
        let mut interval = tokio::time::interval(Duration::from_millis(20));
        while data.exists() {
            interval.tick().await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), gone).await.expect("the data is removed");
}

#[tokio::test]
async fn tests_share_servers_and_have_databases_of_their_own() {
    let uri = testing::server().await.unwrap();
    assert_eq!(testing::replica_set().await.unwrap(), uri);
    assert_ne!(testing::standalone().await.unwrap(), uri);
    let (one, two) = (TestDatabase::create(&uri).await.unwrap(), TestDatabase::create(&uri).await.unwrap());
    one.database.collection("things").insert_one(doc! { "x": 1 }).await.unwrap();
    assert_eq!(one.database.list_collection_names().await.unwrap(), ["things"]);
    assert!(two.database.list_collection_names().await.unwrap().is_empty());
    assert!(one.name.starts_with("tests_share_servers_and_ha_"), "{}", one.name);
    one.drop_database().await.unwrap();
    two.drop_database().await.unwrap();
}

#[tokio::test]
async fn a_replica_set_of_three_survives_the_death_of_its_primary() {
    let folder = tempfile::tempdir().unwrap();
    let program = locate::find_or_fetch(|_| ()).unwrap();
    let mut set = ReplicaSet::start(&program, folder.path(), 3).await.unwrap();
    let client = mongodb::Client::with_uri_str(format!("{}&w=majority", set.uri())).await.unwrap();
    let collection: Collection<Document> = client.database("d").collection("things");
    collection.insert_one(doc! { "_id": 1 }).await.unwrap();
    let mut looks = tokio::time::interval(Duration::from_millis(50));
    while !set.is_whole().await {
        looks.tick().await;
    }
    let primary = set.primary().await.unwrap();
    set.kill(primary).await.unwrap();
    assert!(!set.is_whole().await);
    // The driver waits for the election.
    collection.insert_one(doc! { "_id": 2 }).await.unwrap();
    assert_ne!(set.primary().await, Some(primary));
    set.restart(primary).await.unwrap();
    while !set.is_whole().await {
        looks.tick().await;
    }
    assert_eq!(collection.count_documents(doc! {}).await.unwrap(), 2);
    set.destroy().await.unwrap();
}
