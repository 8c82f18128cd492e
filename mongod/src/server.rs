//! One `mongod`, bound to 127.0.0.1, with data of its own.

use std::ffi::{OsStr, OsString};
use std::net::{Ipv4Addr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bson::{Document, doc};
use mongodb::error::ErrorKind;
use mongodb::options::{ClientOptions, ServerAddress};
use mongodb::{Client, Database};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::Value;
use tokio::process::{Child, Command};

use crate::watchdog::Watchdog;

/// How long a server may take to end before it is killed.
const STOP_DEADLINE: Duration = Duration::from_secs(30);

/// How often a start is tried anew when another process took the port that was free a moment ago.
const PORT_TRIES: u32 = 5;

#[derive(Debug, Clone)]
pub struct Options {
    /// The program: see [`crate::locate`].
    pub program: PathBuf,
    /// The folder of the server's data, its log and its port; created if it is missing.
    pub data: PathBuf,
    /// The port. Unless set: the one this folder had before if that is free, else any free one.
    pub port: Option<u16>,
    /// Whether to be a replica set of one member, which has change streams and transactions.
    pub replica_set: bool,
    /// Whether the folder is to be removed when the server ends.
    pub ephemeral: bool,
    pub arguments: Vec<OsString>,
}

/// A running server. Dropping it ends it soon after; [`Server::stop`] waits for the end.
#[derive(Debug)]
pub struct Server {
    child: Child,
    pid: u32,
    watchdog: Watchdog,
    port: u16,
    options: Options,
}

impl Server {
    /// Starts a server and waits until it takes writes.
    pub async fn start(options: Options) -> anyhow::Result<Self> {
        Self::start_as(false, options).await
    }

    /// Starts a server that is to be a member of a larger replica set, and waits until it answers: it takes writes only if
    /// the others elect it.
    pub(crate) async fn start_member(options: Options) -> anyhow::Result<Self> {
        Self::start_as(true, options).await
    }

    async fn start_as(is_member: bool, options: Options) -> anyhow::Result<Self> {
        let database = options.data.join("db");
        std::fs::create_dir_all(&database)
            .with_context(|| format!("cannot create folder {}", database.display()))?;
        let mut tries = 1;
        loop {
            let port = choose_port(&options)?;
            match Self::start_on(port, &options, is_member).await {
                Err(error) if options.port.is_none() && tries < PORT_TRIES && port_is_taken(&error) => {
                    tries += 1;
                }
                outcome => return outcome,
            }
        }
    }

    async fn start_on(port: u16, options: &Options, is_member: bool) -> anyhow::Result<Self> {
        // The log of the run before is kept, and no more.
        let log = log_file(&options.data);
        if log.exists() {
            std::fs::rename(&log, log.with_extension("log.1")).context("cannot rename the old log")?;
        }
        let mut command = Command::new(&options.program);
        command.args(arguments(options, port)).current_dir("/");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        // A ^C in the terminal is for the starter, who ends its servers last.
        command.process_group(0);
        let child = command.spawn().with_context(|| format!("cannot start {}", options.program.display()))?;
        let pid = child.id().context("mongod ended at once")?;
        let folder = options.ephemeral.then_some(options.data.as_path());
        let watchdog = Watchdog::start(pid, options.data.join("db").as_os_str(), folder)
            .context("cannot start sh to watch mongod")?;
        let mut server = Self { child, pid, watchdog, port, options: options.clone() };
        match Box::pin(wait_until_ready(&mut server, is_member)).await {
            Ok(()) => {
                std::fs::write(port_file(&options.data), port.to_string())
                    .context("cannot store the port of mongod")?;
                Ok(server)
            }
            Err(error) => {
                let _ = server.kill_and_release().await;
                Err(error)
            }
        }
    }

    pub fn uri(&self) -> String {
        if self.options.replica_set {
            format!("mongodb://127.0.0.1:{}/?replicaSet={}", self.port, REPLICA_SET)
        } else {
            format!("mongodb://127.0.0.1:{}/", self.port)
        }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    pub fn pid(&self) -> u32 {
        self.pid
    }

    pub fn log_file(&self) -> PathBuf {
        log_file(&self.options.data)
    }

    /// Waits until the server ends by itself, which it should not.
    pub async fn wait(&mut self) -> std::io::Result<ExitStatus> {
        self.child.wait().await
    }

    /// Ends the server in order: it writes everything to its files. Kills it if it takes over 30 seconds.
    pub async fn stop(mut self) -> anyhow::Result<()> {
        if self.child.try_wait()?.is_none() {
            let process = Pid::from_raw(i32::try_from(self.pid).unwrap_or(i32::MAX));
            kill(process, Signal::SIGTERM).context("cannot signal mongod")?;
        }
        if let Ok(status) = tokio::time::timeout(STOP_DEADLINE, self.child.wait()).await {
            status.context("cannot wait for mongod")?;
        }
        self.kill_and_release().await
    }

    /// Ends the server as a crash of its machine would, and leaves its data.
    pub async fn kill(mut self) -> anyhow::Result<()> {
        self.options.ephemeral = false;
        self.kill_and_release().await
    }

    async fn kill_and_release(mut self) -> anyhow::Result<()> {
        if self.child.try_wait()?.is_none() {
            self.child.kill().await.context("cannot kill mongod")?;
        }
        if self.options.ephemeral {
            std::fs::remove_dir_all(&self.options.data)
                .with_context(|| format!("cannot remove {}", self.options.data.display()))?;
        }
        self.watchdog.release();
        Ok(())
    }
}

fn log_file(data: &Path) -> PathBuf {
    data.join("mongod.log")
}

fn port_file(data: &Path) -> PathBuf {
    data.join("port")
}

fn choose_port(options: &Options) -> anyhow::Result<u16> {
    let bind = |port| TcpListener::bind((Ipv4Addr::LOCALHOST, port));
    if let Some(port) = options.port {
        bind(port).with_context(|| format!("port {port} on 127.0.0.1 cannot be used for mongod"))?;
        return Ok(port);
    }
    let before = std::fs::read_to_string(port_file(&options.data)).ok();
    let before = before.and_then(|text| text.trim().parse().ok()).filter(|port| bind(*port).is_ok());
    match before {
        Some(port) => Ok(port),
        None => Ok(bind(0).and_then(|socket| socket.local_addr()).context("no free port")?.port()),
    }
}

/// How much of what is stored the server keeps in memory.
pub(crate) const CACHE_GB: &str = "--wiredTigerCacheSizeGB";

/// The command line: what a private server on a small machine needs, and the durability of any other.
fn arguments(options: &Options, port: u16) -> Vec<OsString> {
    let mut arguments: Vec<OsString> = Vec::new();
    let mut add = |flag: &str, value: &OsStr| arguments.extend([flag.into(), value.to_owned()]);
    add("--dbpath", options.data.join("db").as_os_str());
    add("--logpath", log_file(&options.data).as_os_str());
    add("--bind_ip", OsStr::new("127.0.0.1"));
    add("--port", OsStr::new(&port.to_string()));
    if !options.arguments.iter().any(|argument| argument == CACHE_GB) {
        add(CACHE_GB, OsStr::new("0.25"));
    }
    // Without this, 300 MB of journal are laid out before the first write.
    // Files of collections that nobody uses are closed soon: many databases have more of them than a process may have open.
    let files = "file_manager=(close_idle_time=20,close_scan_interval=5,close_handle_minimum=500)";
    let journal = "log=(prealloc=false,file_max=32MB)";
    add("--wiredTigerEngineConfigString", OsStr::new(&format!("{journal},{files}")));
    add("--setParameter", OsStr::new("diagnosticDataCollectionEnabled=false"));
    if options.replica_set {
        add("--replSet", OsStr::new(REPLICA_SET));
        add("--oplogSize", OsStr::new("128"));
    }
    arguments.push("--nounixsocket".into());
    arguments.extend(options.arguments.iter().cloned());
    arguments
}

/// A server that ended at its start.
#[derive(Debug)]
struct Ended {
    status: ExitStatus,
    reason: String,
}

impl std::fmt::Display for Ended {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "mongod ended at its start ({}): {}", self.status, self.reason)
    }
}

impl std::error::Error for Ended {}

fn port_is_taken(error: &anyhow::Error) -> bool {
    error.downcast_ref::<Ended>().is_some_and(|ended| ended.reason.contains("Address already in use"))
}

/// Why the server ended, in one line: its last error, else its last lines.
fn logged_reason(log: &Path) -> String {
    let text = match std::fs::read(log) {
        Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        Err(error) => return format!("there is no log: {error}"),
    };
    let lines: Vec<Value> = text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
    let errors: Vec<String> = lines.iter().filter(|line| is_error(line)).map(message).collect();
    let found = if errors.is_empty() {
        lines.iter().rev().take(3).rev().map(message).collect::<Vec<_>>()
    } else {
        errors
    };
    format!("{} (log: {})", found.join("; "), log.display())
}

fn is_error(line: &Value) -> bool {
    matches!(line["s"].as_str(), Some("E" | "F")) || !line["attr"]["error"].is_null()
}

fn message(line: &Value) -> String {
    let text = line["msg"].as_str().unwrap_or_default();
    match &line["attr"]["error"] {
        Value::Null => text.to_owned(),
        Value::String(error) => format!("{text}: {error}"),
        error => {
            format!("{text}: {}", error["errmsg"].as_str().map_or_else(|| error.to_string(), str::to_owned))
        }
    }
}

pub(crate) const REPLICA_SET: &str = "disbatch";

/// How long it may take from "started" to "takes writes": recovery after a kill may take a while.
const READY_DEADLINE: Duration = Duration::from_secs(60);
const LOOK_AGAIN: Duration = Duration::from_millis(25);

/// Waits until the server is ready; makes it a replica set if it is to be one by itself.
async fn wait_until_ready(server: &mut Server, is_member: bool) -> anyhow::Result<()> {
    let admin = connect(server.port)?.database("admin");
    let mut interval = tokio::time::interval(LOOK_AGAIN);
    let deadline = Instant::now() + READY_DEADLINE;
    let mut configured = is_member || !server.options.replica_set;
    loop {
        interval.tick().await;
        if let Some(status) = server.child.try_wait()? {
            bail!(Ended { status, reason: logged_reason(&server.log_file()) });
        }
        let problem = match step(&admin, server.port, &mut configured).await {
            Ok(is_primary) if is_primary || is_member => {
                end_promptly(&admin).await;
                return Ok(());
            }
            Ok(_) => anyhow::anyhow!("it is not primary"),
            Err(error) => error,
        };
        if Instant::now() > deadline {
            let reason = logged_reason(&server.log_file());
            bail!("mongod is not ready after {} s: {problem:#}; {reason}", READY_DEADLINE.as_secs());
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

    fn options(folder: &Path) -> Options {
        Options {
            program: "mongod".into(),
            data: folder.to_owned(),
            port: None,
            replica_set: false,
            ephemeral: true,
            arguments: Vec::new(),
        }
    }

    #[test]
    fn the_command_line_is_private_and_small() {
        let joined = |options: &Options| {
            let words = arguments(options, 4711);
            words.iter().map(|word| word.to_string_lossy().into_owned()).collect::<Vec<_>>().join(" ")
        };
        let standalone = options(Path::new("/data"));
        let line = joined(&standalone);
        assert!(
            line.starts_with("--dbpath /data/db --logpath /data/mongod.log --bind_ip 127.0.0.1 --port 4711")
        );
        assert!(!line.contains("--replSet") && line.contains("--wiredTigerCacheSizeGB 0.25"));
        let larger = Options { arguments: vec![CACHE_GB.into(), "1".into()], ..options(Path::new("/data")) };
        let line = joined(&larger);
        assert!(line.ends_with("--wiredTigerCacheSizeGB 1") && !line.contains("0.25"), "{line}");
        let line = joined(&Options { replica_set: true, ..standalone });
        assert!(line.contains("--replSet disbatch --oplogSize 128"), "{line}");
    }

    #[test]
    fn a_folder_keeps_its_port_while_it_is_free() {
        let folder = tempfile::tempdir().unwrap();
        let any = choose_port(&options(folder.path())).unwrap();
        std::fs::write(port_file(folder.path()), format!("{any}\n")).unwrap();
        assert_eq!(choose_port(&options(folder.path())).unwrap(), any);
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, any)).unwrap();
        assert_ne!(choose_port(&options(folder.path())).unwrap(), any);
        let error = choose_port(&Options { port: Some(any), ..options(folder.path()) }).unwrap_err();
        assert_eq!(error.to_string(), format!("port {any} on 127.0.0.1 cannot be used for mongod"));
        drop(taken);
    }

    #[test]
    fn errors_come_before_the_last_lines() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("mongod.log");
        assert!(logged_reason(&log).starts_with("there is no log: "));
        let noise = r#"{"s":"I","msg":"Starting"}"#;
        std::fs::write(&log, format!("{noise}\nnot JSON\n{noise}\n")).unwrap();
        assert_eq!(logged_reason(&log), format!("Starting; Starting (log: {})", log.display()));
        let error = r#"{"s":"E","msg":"Failed to set up listener","attr":{"error":{"code":9001,"errmsg":"Address already in use"}}}"#;
        std::fs::write(&log, format!("{noise}\n{error}\n{noise}\n")).unwrap();
        assert_eq!(
            logged_reason(&log),
            format!("Failed to set up listener: Address already in use (log: {})", log.display())
        );
    }

    #[test]
    fn only_a_server_that_ended_for_its_port_is_started_anew() {
        const TAKEN: &str = "Failed to set up listener: Address already in use";
        let ended = |reason: &str| Ended { status: ExitStatus::default(), reason: reason.to_owned() };
        let error = anyhow::Error::new(ended(TAKEN));
        assert!(error.to_string().ends_with(TAKEN) && port_is_taken(&error), "{error}");
        assert!(port_is_taken(&error.context("cannot start the first member")));
        assert!(!port_is_taken(&anyhow::Error::new(ended("No space left on device"))));
        assert!(!port_is_taken(&anyhow::anyhow!(
            "mongod is not ready after 60 s: it is not primary; {TAKEN}"
        )));
    }

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
