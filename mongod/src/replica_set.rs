//! A replica set of several members on this machine, whose members can be killed and come back: for tests of
//! what the loss of a server does to its clients.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use bson::{Bson, Document, doc};
use mongodb::Database;

use crate::server::{Options, REPLICA_SET, Server, connect};

/// How long a set may be without a primary after its start.
const DEADLINE: Duration = Duration::from_secs(60);
const INTERVAL: Duration = Duration::from_millis(50);

/// Members that hear nothing of their primary for so long elect another. The default, 10 s, is for networks.
const ELECTION_TIMEOUT_MS: i32 = 2_000;

/// How long a primary that is told to step down does not stand for election again.
const STEPPED_DOWN_S: i32 = 5;

/// A running replica set. Dropping it ends its members soon after.
#[derive(Debug)]
pub struct ReplicaSet {
    program: PathBuf,
    members: Vec<Member>,
}

#[derive(Debug)]
struct Member {
    data: PathBuf,
    port: u16,
    admin: Database,
    /// `None` while it is dead.
    server: Option<Server>,
}

impl ReplicaSet {
    /// Starts `members` servers with their data below `folder`, makes them one set, and waits until it takes
    /// writes.
    pub async fn start(program: &Path, folder: &Path, members: usize) -> anyhow::Result<Self> {
        let mut set = Self { program: program.to_owned(), members: Vec::new() };
        for number in 0..members {
            let data = folder.join(format!("member-{number}"));
            let server = Server::start_member(options(program, &data, None)).await?;
            let (port, admin) = (server.port(), connect(server.port())?.database("admin"));
            set.members.push(Member { data, port, admin, server: Some(server) });
        }
        set.initiate().await?;
        let deadline = Instant::now() + DEADLINE;
        let mut looks = tokio::time::interval(INTERVAL);
        while set.primary().await.is_none() {
            looks.tick().await;
            if Instant::now() > deadline {
                bail!("no member of the replica set becomes primary");
            }
        }
        Ok(set)
    }

    async fn initiate(&self) -> anyhow::Result<()> {
        let members: Vec<Bson> = (0i32..)
            .zip(&self.members)
            .map(|(id, member)| Bson::from(doc! { "_id": id, "host": format!("127.0.0.1:{}", member.port) }))
            .collect();
        let settings = doc! { "electionTimeoutMillis": ELECTION_TIMEOUT_MS, "heartbeatIntervalMillis": 500 };
        let config = doc! { "_id": REPLICA_SET, "members": members, "settings": settings };
        let first = self.members.first().context("a replica set has members")?;
        first.admin.run_command(doc! { "replSetInitiate": config }).await.context("cannot initiate")?;
        Ok(())
    }

    pub fn uri(&self) -> String {
        let hosts: Vec<String> =
            self.members.iter().map(|member| format!("127.0.0.1:{}", member.port)).collect();
        format!("mongodb://{}/?replicaSet={REPLICA_SET}", hosts.join(","))
    }

    pub fn size(&self) -> usize {
        self.members.len()
    }

    pub async fn primary(&self) -> Option<usize> {
        for member in 0..self.members.len() {
            if self.hello(member).await.is_some_and(|answer| flag(&answer, "isWritablePrimary")) {
                return Some(member);
            }
        }
        None
    }

    /// Whether there is a primary, and every member follows it: only then can the set lose one.
    pub async fn is_whole(&self) -> bool {
        let mut primaries = 0;
        for member in 0..self.members.len() {
            let Some(answer) = self.hello(member).await else { return false };
            let primary = flag(&answer, "isWritablePrimary");
            if !primary && !flag(&answer, "secondary") {
                return false;
            }
            primaries += usize::from(primary);
        }
        primaries == 1
    }

    /// `None`: it is dead or does not answer.
    async fn hello(&self, member: usize) -> Option<Document> {
        let member = self.members.get(member)?;
        member.server.as_ref()?;
        member.admin.run_command(doc! { "hello": 1 }).await.ok()
    }

    /// Kills a member. Its data stays.
    pub async fn kill(&mut self, member: usize) -> anyhow::Result<()> {
        match self.members.get_mut(member).and_then(|member| member.server.take()) {
            Some(server) => server.kill().await,
            None => Ok(()),
        }
    }

    /// Starts a member that has been killed, with its data and on its port.
    pub async fn restart(&mut self, member: usize) -> anyhow::Result<()> {
        let program = self.program.clone();
        let member = self.members.get_mut(member).context("no such member")?;
        if member.server.is_none() {
            let options = options(&program, &member.data, Some(member.port));
            member.server = Some(Server::start_member(options).await?);
        }
        Ok(())
    }

    /// Has the primary step down, so that another member is elected. Nothing happens if there is none.
    pub async fn step_down(&self) -> anyhow::Result<()> {
        let primary = self.primary().await.and_then(|number| self.members.get(number));
        let Some(primary) = primary else { return Ok(()) };
        let command = doc! { "replSetStepDown": STEPPED_DOWN_S, "secondaryCatchUpPeriodSecs": 2 };
        primary.admin.run_command(command).await?;
        Ok(())
    }

    pub async fn destroy(mut self) -> anyhow::Result<()> {
        for number in 0..self.members.len() {
            self.kill(number).await?;
        }
        for member in &self.members {
            std::fs::remove_dir_all(&member.data)
                .with_context(|| format!("cannot remove {}", member.data.display()))?;
        }
        Ok(())
    }
}

fn options(program: &Path, data: &Path, port: Option<u16>) -> Options {
    Options {
        program: program.to_owned(),
        data: data.to_owned(),
        port,
        replica_set: true,
        ephemeral: true,
        arguments: Vec::new(),
    }
}

fn flag(answer: &Document, name: &str) -> bool {
    answer.get_bool(name).unwrap_or(false)
}
