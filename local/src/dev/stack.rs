//! MongoDB, DCI and DEN: started in this order, stopped in the other.

use std::net::{Ipv4Addr, TcpListener};
use std::path::PathBuf;

use anyhow::Context;
use disbatch_cli::api::Client;
use disbatch_cli::args::ConnectionOptions;
use disbatch_mongod::locate;
use disbatch_mongod::server::{Options, Server};

use super::console::{Colour, Console};
use super::folder::{DATABASE, Folder};
use super::process::Process;
use super::{readiness, runners};

/// What runs so far.
#[derive(Debug)]
pub struct Stack {
    console: Console,
    client: Client,
    address: String,
    url: String,
    mongod: Option<Server>,
    dci: Option<Process>,
    den: Option<Process>,
}

impl Stack {
    /// Nothing yet; the DCI is to be at `port`. `connection` says who asks it, for a database that has users.
    pub fn new(console: Console, port: u16, connection: ConnectionOptions) -> anyhow::Result<Self> {
        let address = format!("127.0.0.1:{port}");
        let url = format!("http://{address}");
        let client = Client::new(&ConnectionOptions { url: Some(url.clone()), ..connection })?;
        Ok(Self { console, client, address, url, mongod: None, dci: None, den: None })
    }

    pub fn console(&self) -> &Console {
        &self.console
    }

    pub fn client(&self) -> &Client {
        &self.client
    }

    /// Where the DCI is.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Starts everything and waits until it works. After an error or when this is broken off, what has been
    /// started is there to be stopped.
    pub async fn start(
        &mut self,
        folder: &Folder,
        mongo_port: Option<u16>,
        plugins: &[PathBuf],
    ) -> anyhow::Result<()> {
        let port = self.address.rsplit(':').next().and_then(|port| port.parse().ok()).unwrap_or(0);
        TcpListener::bind((Ipv4Addr::LOCALHOST, port)).with_context(|| {
            format!("port {port} on 127.0.0.1 cannot be used; choose another with --port")
        })?;
        self.console.line("starting MongoDB, dci and den");
        let mongod = self.start_mongod(folder, mongo_port).await?;
        folder.write_config(&mongod.uri(), plugins)?;
        self.mongod = Some(mongod);

        let (config, console) = (folder.config(), &self.console);
        let arguments = ["--listen", &self.address];
        let dci = Process::start("dci", (&config, &arguments), folder.log("dci"), (console, Colour::Blue))?;
        let dci = self.dci.insert(dci);
        let before = tokio::select! {
            before = readiness::dci(&self.client) => before?,
            death = dci.death() => return Err(death),
        };
        let den = Process::start("den", (&config, &[]), folder.log("den"), (console, Colour::Cyan))?;
        let den = self.den.insert(den);
        tokio::select! {
            ready = readiness::den(&self.client, &before) => ready,
            death = dci.death() => Err(death),
            death = den.death() => Err(death),
        }
    }

    async fn start_mongod(&self, folder: &Folder, port: Option<u16>) -> anyhow::Result<Server> {
        let console = self.console.clone();
        let find = move || locate::find_or_fetch(|message| console.line(message));
        let program =
            tokio::task::spawn_blocking(find).await.context("the search for mongod broke off")??;
        let data = folder.mongodb();
        Server::start(Options {
            program,
            data,
            port,
            replica_set: true,
            ephemeral: false,
            arguments: Vec::new(),
        })
        .await
    }

    /// Resolves when one of them ends without having been told to.
    pub async fn death(&mut self) -> anyhow::Error {
        let (Some(mongod), Some(dci), Some(den)) = (&mut self.mongod, &mut self.dci, &mut self.den) else {
            return anyhow::anyhow!("not everything was started");
        };
        tokio::select! {
            death = dci.death() => death,
            death = den.death() => death,
            status = mongod.wait() => match status {
                Ok(status) => anyhow::anyhow!("mongod ended ({status}); log: {}", mongod.log_file().display()),
                Err(error) => anyhow::Error::new(error).context("cannot wait for mongod"),
            },
        }
    }

    /// Stops everything: no new tasks, the running ones end (at once when `impatient` resolves), then the rest.
    pub async fn stop(mut self, impatient: impl Future<Output = ()>) {
        if self.mongod.is_none() {
            return;
        }
        self.console.line("stopping");
        if let Some(den) = self.den.take() {
            den.stop().await;
            runners::wait(&self.console, &self.client, impatient).await;
        }
        if let Some(dci) = self.dci.take() {
            dci.stop().await;
        }
        if let Some(mongod) = self.mongod.take()
            && let Err(error) = mongod.stop().await
        {
            self.console.error(&format!("{error:#}"));
        }
        self.console.line("stopped");
    }

    /// Where everything is, and what to do first.
    pub fn introduction(&self, folder: &Folder) -> Vec<String> {
        let program = std::env::args().next().unwrap_or_else(|| "disbatch".to_owned());
        let disbatch = format!("{program} --url {}", self.url);
        let mongodb = self.mongod.as_ref().map(Server::uri).unwrap_or_default();
        let mut lines = vec![String::new()];
        let logs = folder.root().join("logs");
        for (label, value) in [
            ("pages and REST API", self.console.paint(Colour::Green, &self.url)),
            ("configuration", folder.config().display().to_string()),
            ("logs", logs.display().to_string()),
            ("data", folder.mongodb().display().to_string()),
            ("MongoDB", format!("{mongodb} (database {DATABASE})")),
        ] {
            lines.push(format!("  {label:<20} {value}"));
        }
        lines.push("\n  A first task:".to_owned());
        for arguments in [
            "create-queue first Disbatch::Plugin::Shell",
            "update-queue first threads 2",
            "create-task first command 'echo hello from $(hostname)'",
            "queues",
        ] {
            lines.push(format!("    {disbatch} {arguments}"));
        }
        lines.push(String::new());
        lines
    }
}
