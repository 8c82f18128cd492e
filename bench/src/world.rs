//! What is measured in: private MongoDB servers, a DEN with a fresh database for each measurement, and the peers.

pub mod arena;
pub mod drain;
pub mod fill;
pub mod node;
pub mod plugins;
pub mod processes;
pub mod web;

use std::cell::Cell;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use disbatch_mongod::locate;
use disbatch_mongod::server::{Options, Server};
use tokio::sync::OnceCell;

use crate::peer::Peers;
use crate::progress::Progress;
use node::{Node, Setup};
use web::Web;

/// The programs that are measured, from beside this one.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The DEN. It finds its runner and the shipped plugins beside itself.
    pub den: PathBuf,
    /// The DCI.
    pub dci: PathBuf,
    /// The plugin that says when it began.
    pub starts: PathBuf,
}

/// The servers.
#[derive(Debug)]
pub struct World {
    /// What to run.
    pub programs: Programs,
    /// What to compare with.
    pub peers: Peers,
    /// A folder that is removed with the server.
    pub folder: PathBuf,
    server: Server,
    standalone: OnceCell<Server>,
    mongod: PathBuf,
    nodes: Cell<u32>,
}

/// Which MongoDB server a node is to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A replica set of one member, which has change streams.
    ReplicaSet,
    /// A server without them.
    Standalone,
}

impl World {
    /// Starts a replica set of one member. Its data are in the folder for temporary files.
    ///
    /// # Errors
    /// A program is missing, or the server does not start.
    pub async fn start(progress: &Progress) -> anyhow::Result<Self> {
        let programs = programs()?;
        progress.begin("starting MongoDB");
        let search = || locate::find_or_fetch(crate::progress::say);
        let mongod =
            tokio::task::spawn_blocking(search).await.context("the search for mongod broke off")??;
        let (server, folder) = Box::pin(start_server(mongod.clone(), true)).await?;
        plugins::write(&folder, &programs)?;
        let peers = Peers::find(
            folder.join("peers"),
            format!("{}&appName=agenda", with_database(&server.uri(), "agenda")),
        )?;
        let (standalone, nodes) = (OnceCell::new(), Cell::new(0));
        Ok(Self { programs, peers, folder, server, standalone, mongod, nodes })
    }

    /// A fresh database on the replica set, with a DEN that is ready and has nothing to do.
    ///
    /// # Errors
    /// The DEN does not start.
    pub async fn node(&self, figure: &str) -> anyhow::Result<Node> {
        Node::start(&self.setup(figure, Kind::ReplicaSet).await?).await
    }

    /// What [`Node::start`] needs, for a database that does not exist yet.
    ///
    /// # Errors
    /// The server does not start.
    pub async fn setup(&self, figure: &str, kind: Kind) -> anyhow::Result<Setup> {
        let number = self.nodes.get() + 1;
        self.nodes.set(number);
        let name = format!("bench_{figure}_{number}");
        let uri = match kind {
            Kind::ReplicaSet => self.server.uri(),
            Kind::Standalone => {
                let start = async || Ok(Box::pin(start_server(self.mongod.clone(), false)).await?.0);
                self.standalone.get_or_try_init::<anyhow::Error, _, _>(start).await?.uri()
            }
        };
        let folder = self.folder.join(&name);
        Ok(Setup {
            den: self.programs.den.clone(),
            uri,
            folder,
            name,
            plugins: plugins::own_folder(&self.folder),
        })
    }

    /// A fresh database with a DCI that listens.
    ///
    /// # Errors
    /// The DCI does not start.
    pub async fn web(&self, figure: &str) -> anyhow::Result<Web> {
        let name = format!("bench_{figure}");
        Box::pin(Web::start(&self.programs.dci, &self.server.uri(), &self.folder.join(&name), &name)).await
    }

    /// A DCI that listens, for the database of a node.
    ///
    /// # Errors
    /// The DCI does not start.
    pub async fn web_beside(&self, setup: &Setup) -> anyhow::Result<Web> {
        let folder = setup.folder.join("dci");
        Box::pin(Web::start(&self.programs.dci, &setup.uri, &folder, &setup.name)).await
    }

    /// Ends the servers and removes their data.
    ///
    /// # Errors
    /// One cannot be ended.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.peers.stop().await?;
        if let Some(standalone) = self.standalone.into_inner() {
            standalone.stop().await?;
        }
        self.server.stop().await
    }
}

/// A server with its folder, which is removed with it, also when this process is killed.
async fn start_server(program: PathBuf, replica_set: bool) -> anyhow::Result<(Server, PathBuf)> {
    let folder = tempfile::Builder::new().prefix("disbatch-bench-").tempdir()?.keep();
    let options = Options {
        program,
        data: folder.clone(),
        port: None,
        replica_set,
        ephemeral: true,
        arguments: Vec::new(),
    };
    Ok((Box::pin(Server::start(options)).await?, folder))
}

/// `uri` with the name of a database, and something behind it that further options can be added to.
fn with_database(uri: &str, database: &str) -> String {
    let (server, options) =
        uri.split_once("/?").unwrap_or((uri.trim_end_matches('/'), "directConnection=false"));
    format!("{server}/{database}?{options}")
}

/// `uri` for the benchmark's own connections, which the server then tells from others.
pub fn own_uri(uri: &str) -> String {
    format!("{}&appName={OWN_NAME}", with_database(uri, ""))
}

/// What the server calls the benchmark's own connections.
pub const OWN_NAME: &str = "disbatch-bench";

fn programs() -> anyhow::Result<Programs> {
    let here = std::env::current_exe().context("cannot tell where this program is")?;
    let beside = |name: &str| {
        let path = here.with_file_name(name);
        ensure!(
            path.is_file(),
            "{} is missing: build all programs first with `make release`",
            path.display()
        );
        Ok(path)
    };
    beside("dtr")?;
    beside("disbatch-plugin-demo")?;
    Ok(Programs { dci: beside("dci")?, den: beside("den")?, starts: beside("disbatch-bench-plugin")? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_get_a_database_and_a_name() {
        let set = "mongodb://127.0.0.1:1/?replicaSet=disbatch";
        assert_eq!(own_uri(set), "mongodb://127.0.0.1:1/?replicaSet=disbatch&appName=disbatch-bench");
        assert_eq!(with_database(set, "a"), "mongodb://127.0.0.1:1/a?replicaSet=disbatch");
        assert_eq!(with_database("mongodb://h:1", "a"), "mongodb://h:1/a?directConnection=false");
    }
}
