//! A queue in a database of its own, for claims without any DEN.

use std::sync::Arc;

use anyhow::Context;
use bson::Document;
use disbatch_core::clock::SystemClock;
use disbatch_core::model::{Queue, Selector};
use disbatch_core::queue::new_queue_id;
use disbatch_core::store::Store;
use mongodb::options::ClientOptions;
use mongodb::{Client, Database};

use super::processes::{cpu_seconds, server_pid};
use super::{Kind, World, own_uri};

/// A queue, and the ways to it.
#[derive(Debug)]
pub struct Arena {
    pub store: Store,
    pub database: Database,
    pub queue: Queue,
    mongod: i32,
}

impl Arena {
    /// A queue with these fields and no tasks. The database has no indexes yet. All who use it share so many connections; none:
    /// as many as the driver makes.
    pub async fn new(
        world: &World,
        figure: &str,
        fields: Document,
        connections: Option<u32>,
    ) -> anyhow::Result<Self> {
        let setup = world.setup(figure, Kind::ReplicaSet).await?;
        let mut options = ClientOptions::parse(own_uri(&setup.uri)).await?;
        options.max_pool_size = connections.or(options.max_pool_size);
        let database = Client::with_options(options)?.database(&setup.name);
        let store = Store::with_clock(database.clone(), Arc::new(SystemClock));
        let id = new_queue_id();
        store.insert_queue(bson::doc! { "_id": id, "name": "bench", "plugin": "Bench" }).await?;
        store.update_queue(&Selector::Id(id.0), fields).await?;
        let queue = store.find_queue(&Selector::Id(id.0)).await?.context("the queue is gone")?;
        let mongod = server_pid(&database).await?;
        Ok(Self { store, database, queue, mongod })
    }

    /// The processor time that the server has used, in seconds.
    pub fn cpu(&self) -> anyhow::Result<f64> {
        cpu_seconds(self.mongod).context("mongod has ended")
    }

    /// Drops the database.
    pub async fn end(self) -> anyhow::Result<()> {
        Ok(self.database.drop().await?)
    }
}
