//! What the database is like: its server, how that is set up, and how large what is ours has become.

use disbatch_operation::operation;
use std::time::{Duration, Instant};

use bson::{Bson, Document, doc};
use futures::{FutureExt, StreamExt, TryStreamExt};

use crate::store::{Store, StoreError, collections, count_of};

/// So many collections are asked about at once.
const AT_ONCE: usize = 4;

/// The server is asked for what it knows anyway. It may still have to wait for a lock.
const PATIENCE: Duration = Duration::from_secs(5);

pub type Measured = (&'static str, Option<Size>);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Topology {
    /// One server, which has no change streams.
    Standalone,
    ReplicaSet {
        name: String,
        members: Vec<String>,
        /// The one that takes writes, if there is one.
        primary: Option<String>,
    },
    /// A sharded cluster, behind a router.
    Sharded,
}

impl Topology {
    fn of(hello: &Document) -> Self {
        let text = |key: &str| hello.get_str(key).ok().map(str::to_owned);
        if hello.get_str("msg").is_ok_and(|message| message == "isdbgrid") {
            return Self::Sharded;
        }
        let Some(name) = text("setName") else { return Self::Standalone };
        let listed = ["hosts", "passives", "arbiters"].into_iter();
        let listed = listed.filter_map(|key| hello.get_array(key).ok()).flatten();
        let members = listed.filter_map(Bson::as_str).map(str::to_owned).collect();
        Self::ReplicaSet { name, members, primary: text("primary") }
    }

    /// Whether changes can be followed; else everybody has to look again and again.
    pub const fn has_change_streams(&self) -> bool {
        !matches!(self, Self::Standalone)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Its release; empty if it does not tell.
    pub version: String,
    pub topology: Topology,
    pub answered_in: Duration,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Size {
    /// Its documents; after a crash of the server about so many.
    pub documents: u64,
    /// What they have: bytes.
    pub data: u64,
    /// What they take on disk: bytes.
    pub stored: u64,
    /// What its indexes take on disk: bytes.
    pub indexes: u64,
}

impl Size {
    fn of(sums: &Document) -> Self {
        let sum = |name| count_of(sums, name).unwrap_or(0);
        Self {
            documents: sum("documents"),
            data: sum("data"),
            stored: sum("stored"),
            indexes: sum("indexes"),
        }
    }
}

impl Store {
    #[operation]
    pub async fn about_server(&self) -> Result<Server, StoreError> {
        let began = Instant::now();
        let hello = self.database().run_command(doc! { "hello": 1 }).await?;
        let answered_in = began.elapsed();
        let info = self.database().run_command(doc! { "buildInfo": 1 }).await?;
        let version = info.get_str("version").unwrap_or_default().to_owned();
        Ok(Server { version, topology: Topology::of(&hello), answered_in })
    }

    /// How large our collections are, in an order that does not change; those that are not there are left out. The server
    /// knows it without reading them, but does not tell it while a collection is locked: its size is unknown then, after a
    /// few seconds. `None`: this user may not ask.
    #[operation]
    pub async fn sizes(&self) -> Result<Option<Vec<Measured>>, StoreError> {
        let mut sizes = Vec::new();
        for collection in collections::ALL {
            sizes.push(self.measured(collection.name).boxed());
        }
        let sizes = futures::stream::iter(sizes).buffered(AT_ONCE).try_collect::<Vec<_>>().await;
        Ok(StoreError::unless_forbidden(sizes)?.map(|sizes| sizes.into_iter().flatten().collect()))
    }

    async fn measured(&self, name: &'static str) -> Result<Option<Measured>, StoreError> {
        match self.size(name).await {
            Err(error) if error.is_out_of_time() => Ok(Some((name, None))),
            size => size.map(|size| size.map(|size| (name, Some(size)))),
        }
    }

    /// `None`: there is no such collection.
    async fn size(&self, collection: &str) -> Result<Option<Size>, StoreError> {
        let sum = |field: &str| doc! { "$sum": format!("$storageStats.{field}") };
        let pipeline = [
            doc! { "$collStats": { "storageStats": {} } },
            // There is one for each shard.
            doc! { "$group": {
                "_id": Bson::Null, "documents": sum("count"), "data": sum("size"), "stored": sum("storageSize"),
                "indexes": sum("totalIndexSize"),
            } },
        ];
        let collection = self.database().collection::<Document>(collection);
        let asked = async { collection.aggregate(pipeline).max_time(PATIENCE).await?.try_next().await };
        match asked.await.map_err(StoreError::from) {
            Ok(sums) => Ok(sums.as_ref().map(Size::of)),
            Err(error) if error.is_no_collection() => Ok(None),
            Err(error) => Err(error),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_says_what_it_belongs_to() {
        assert_eq!(Topology::of(&doc! { "isWritablePrimary": true }), Topology::Standalone);
        assert_eq!(Topology::of(&doc! { "msg": "isdbgrid", "setName": "odd" }), Topology::Sharded);
        let hello =
            doc! { "setName": "rs0", "hosts": ["a:1", "b:1"], "arbiters": ["c:1", 5], "primary": "a:1" };
        let expected = Topology::ReplicaSet {
            name: "rs0".into(),
            members: ["a:1", "b:1", "c:1"].map(str::to_owned).into(),
            primary: Some("a:1".into()),
        };
        assert_eq!(Topology::of(&hello), expected);
        assert!(expected.has_change_streams() && !Topology::Standalone.has_change_streams());
    }

    #[test]
    fn sizes_are_read_as_far_as_they_are_numbers() {
        let sums = doc! { "documents": 5, "data": 1e3, "stored": -4, "indexes": "many" };
        assert_eq!(Size::of(&sums), Size { documents: 5, data: 1000, ..Size::default() });
    }
}
