//! What is measured in: one private MongoDB server, and a DEN with a fresh database for each measurement.

pub mod node;
pub mod web;

use std::cell::Cell;
use std::path::PathBuf;

use anyhow::{Context, ensure};
use disbatch_mongod::locate;
use disbatch_mongod::server::{Options, Server};

use crate::progress::Progress;
use node::Node;
use web::Web;

/// The programs that are measured, from beside this one.
#[derive(Debug, Clone)]
pub struct Programs {
    /// The DEN. It finds its runner and the plugin beside itself.
    pub den: PathBuf,
    /// The DCI.
    pub dci: PathBuf,
    /// The plugin of all tasks.
    pub plugin: PathBuf,
}

/// The server.
#[derive(Debug)]
pub struct World {
    /// What to run.
    pub programs: Programs,
    server: Server,
    /// The server's folder, which is removed with it, also when this process is killed.
    folder: PathBuf,
    nodes: Cell<u32>,
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
        let program =
            tokio::task::spawn_blocking(search).await.context("the search for mongod broke off")??;
        let folder = tempfile::Builder::new().prefix("disbatch-bench-").tempdir()?.keep();
        let options = Options {
            program,
            data: folder.clone(),
            port: None,
            replica_set: true,
            ephemeral: true,
            arguments: Vec::new(),
        };
        let server = Box::pin(Server::start(options)).await?;
        Ok(Self { programs, server, folder, nodes: Cell::new(0) })
    }

    /// A fresh database with a DEN that is ready and has nothing to do.
    ///
    /// # Errors
    /// The DEN does not start.
    pub async fn node(&self, figure: &str) -> anyhow::Result<Node> {
        let number = self.nodes.get() + 1;
        self.nodes.set(number);
        let name = format!("bench_{figure}_{number}");
        Box::pin(Node::start(&self.programs.den, &self.server.uri(), &self.folder.join(&name), &name)).await
    }

    /// A fresh database with a DCI that listens.
    ///
    /// # Errors
    /// The DCI does not start.
    pub async fn web(&self, figure: &str) -> anyhow::Result<Web> {
        let name = format!("bench_{figure}");
        Box::pin(Web::start(&self.programs.dci, &self.server.uri(), &self.folder.join(&name), &name)).await
    }

    /// Ends the server and removes its data.
    ///
    /// # Errors
    /// It cannot be ended.
    pub async fn stop(self) -> anyhow::Result<()> {
        self.server.stop().await
    }
}

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
    Ok(Programs { dci: beside("dci")?, den: beside("den")?, plugin: beside("disbatch-plugin-demo")? })
}
