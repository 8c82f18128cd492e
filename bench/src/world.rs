//! What is measured in: private MongoDB servers, a DEN with a fresh database for each measurement, the peers, and what
//! engines of plugins need besides.

pub mod arena;
pub mod drain;
pub mod fill;
pub mod node;
pub mod plugins;
pub mod podman;
pub mod processes;
pub mod service;
pub mod starts;
pub mod web;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use disbatch_mongod::locate;
use disbatch_mongod::server::{Options, Server};
use serde_json::Map;
use tokio::sync::OnceCell;

use crate::peer::{Account, Peers};
use crate::progress::Progress;
use node::{Node, Setup};
use podman::Podman;
use web::Web;

/// The programs that are measured, from beside this one.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The DEN. It finds its runner and the shipped plugins beside itself.
    pub den: PathBuf,
    pub dci: PathBuf,
    /// The plugin that says when it began.
    pub starts: PathBuf,
}

#[derive(Debug)]
pub struct World {
    pub programs: Programs,
    pub peers: Peers,
    /// A folder that is removed with the server.
    pub folder: PathBuf,
    server: Server,
    standalone: OnceCell<Server>,
    /// Or why there is none.
    podman: OnceCell<Result<Podman, String>>,
    mongod: PathBuf,
    nodes: Cell<u32>,
    /// What cannot be measured here, and why.
    not_measured: RefCell<BTreeMap<String, String>>,
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
        Ok(Self {
            programs,
            peers,
            folder,
            server,
            standalone: OnceCell::new(),
            podman: OnceCell::new(),
            mongod,
            nodes: Cell::new(0),
            not_measured: RefCell::default(),
        })
    }

    /// A fresh database on the replica set, with a DEN that is ready and has nothing to do.
    pub async fn node(&self, figure: &str) -> anyhow::Result<Node> {
        Node::start(&self.setup(figure, Kind::ReplicaSet).await?).await
    }

    /// What [`Node::start`] needs, for a database that does not exist yet.
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
            database: name.clone(),
            name,
            plugins: vec![plugins::own_folder(&self.folder)],
            settings: Map::new(),
            environment: Vec::new(),
        })
    }

    /// A fresh database with a DCI that listens.
    pub async fn web(&self, figure: &str) -> anyhow::Result<Web> {
        let name = format!("bench_{figure}");
        let database = (self.server.uri(), name.as_str());
        let folder = self.folder.join(&name);
        Box::pin(Web::start(&self.programs.dci, (&database.0, database.1), &folder, &[])).await
    }

    /// A DCI that listens, for the database of a node, and has its plugins.
    pub async fn web_beside(&self, setup: &Setup) -> anyhow::Result<Web> {
        let folder = setup.folder.join("dci");
        let database = (setup.uri.as_str(), setup.database.as_str());
        Box::pin(Web::start(&self.programs.dci, database, &folder, &setup.plugins)).await
    }

    /// A Podman of the benchmark's own, which is started when it is first needed. Or why it cannot run containers here.
    pub async fn podman(&self) -> Result<&Podman, &str> {
        let start = || async { Box::pin(Podman::start()).await.map_err(|error| format!("{error:#}")) };
        self.podman.get_or_init(start).await.as_ref().map_err(String::as_str)
    }

    /// Notes that something cannot be measured here, and says so once.
    pub fn leave_out(&self, what: String, why: &str) {
        let line = format!("{what}: not measured: {why}");
        if self.not_measured.borrow_mut().insert(what, why.to_owned()).is_none() {
            crate::progress::say(&line);
        }
    }

    /// What the report says of what there was to measure with.
    pub fn account(&self) -> Account {
        Account { not_measured: self.not_measured.borrow().clone(), ..self.peers.account() }
    }

    /// Ends the servers and removes their data.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.peers.stop().await?;
        if let Some(standalone) = self.standalone.into_inner() {
            standalone.stop().await?;
        }
        if let Some(Ok(podman)) = self.podman.into_inner() {
            podman.stop().await?;
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
    for found_by_others in
        ["dtr", "disbatch-plugin-demo", "disbatch-plugin-shell", "disbatch-container", "disbatch-http"]
    {
        beside(found_by_others)?;
    }
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
