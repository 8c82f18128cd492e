//! What happened in the database before and between the recorded runs.

use bson::{DateTime, Document, doc};
use disbatch_mongod::testing::TestDatabase;

/// When the recorded tasks ended.
const ENDED: i64 = 1_795_163_086_437;

/// What a DEN and an operator had done before the recordings were made.
pub async fn prepare(database: &TestDatabase) -> anyhow::Result<()> {
    let index =
        |keys: Document, name: &str, unique: bool| doc! { "key": keys, "name": name, "unique": unique };
    let names = [index(doc! { "name": 1 }, "name_1", true)];
    let tasks = [
        index(doc! { "node": 1, "status": 1, "queue": 1, "_id": 1 }, "a", false),
        index(doc! { "queue": 1, "status": 1 }, "b", false),
    ];
    let database = &database.database;
    database.run_command(doc! { "createIndexes": "queues", "indexes": names.to_vec() }).await?;
    database.run_command(doc! { "createIndexes": "tasks", "indexes": tasks.to_vec() }).await?;
    let users = ["ashley", "matt"].map(|name| doc! { "username": name, "migration": "foo" });
    database.collection("users").insert_many(users).await?;
    Ok(())
}

/// Does what was done before the run `name`: a DEN had run all tasks.
pub async fn before(name: &str, database: &TestDatabase) -> anyhow::Result<()> {
    if name != "run.queues" {
        return Ok(());
    }
    let tasks = database.database.collection::<Document>("tasks");
    let ended = doc! { "status": 1, "node": "vm", "mtime": DateTime::from_millis(ENDED), "complete": true };
    tasks.update_many(doc! {}, doc! { "$set": ended }).await?;
    let apple = doc! { "stdout": "This is command 'a' for apple.\n" };
    tasks.update_many(doc! { "params.commands": "a" }, doc! { "$set": apple }).await?;
    Ok(())
}
