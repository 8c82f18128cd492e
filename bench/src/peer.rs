//! The systems that ours is compared with. `scripts/bench-peers` installs them; each has a script in `bench/peers`.

mod service;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, anyhow, ensure};
use serde_json::Value;
use tokio::process::Command;
use tokio::sync::OnceCell;
use tokio::time::timeout;

use service::Service;

/// How long one script may take. They give up earlier by themselves.
const DEADLINE: Duration = Duration::from_secs(900);

/// All scripts, and what they share.
const SCRIPTS: [(&str, &str); 8] = [
    ("measure.py", include_str!("../peers/measure.py")),
    ("measure.mjs", include_str!("../peers/measure.mjs")),
    ("rq_peer.py", include_str!("../peers/rq_peer.py")),
    ("celery_peer.py", include_str!("../peers/celery_peer.py")),
    ("minion_peer.pl", include_str!("../peers/minion_peer.pl")),
    ("agenda_peer.mjs", include_str!("../peers/agenda_peer.mjs")),
    ("bullmq_peer.mjs", include_str!("../peers/bullmq_peer.mjs")),
    ("bullmq_job.mjs", include_str!("../peers/bullmq_job.mjs")),
];

/// A system, in one way of running it.
#[derive(Debug)]
pub struct Peer {
    pub key: &'static str,
    pub label: &'static str,
    /// The system, as in the list of versions.
    system: &'static str,
    script: &'static str,
    variant: &'static str,
    language: Language,
    database: Database,
    /// How many jobs it gets, as a share of our tasks: enough for a drain of some seconds.
    share: (u32, u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Language {
    Python,
    Perl,
    Node,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Database {
    Redis,
    Postgres,
    MongoDb,
}

/// Forks a process for each job.
pub static RQ: Peer = Peer {
    key: "rq",
    label: "RQ, a fork per job",
    system: "rq",
    script: "rq_peer.py",
    variant: "",
    language: Language::Python,
    database: Database::Redis,
    share: (1, 2),
};

/// Forks a process for each job.
pub static MINION: Peer = Peer {
    key: "minion",
    label: "Minion on PostgreSQL, a fork per job",
    system: "minion",
    script: "minion_peer.pl",
    variant: "",
    language: Language::Perl,
    database: Database::Postgres,
    share: (1, 2),
};

/// Uses each process for many jobs.
pub static CELERY: Peer = Peer {
    key: "celery",
    label: "Celery prefork on Redis",
    system: "celery",
    script: "celery_peer.py",
    variant: "prefork",
    language: Language::Python,
    database: Database::Redis,
    share: (5, 2),
};

/// Uses each process for one job.
pub static CELERY_CHILD: Peer = Peer {
    key: "celery_child",
    label: "Celery, one task per child",
    variant: "child",
    share: (1, 20),
    ..CELERY
};

/// Runs all jobs in one process, on the same server as ours.
pub static AGENDA: Peer = Peer {
    key: "agenda",
    label: "Agenda on the same MongoDB",
    system: "agenda",
    script: "agenda_peer.mjs",
    variant: "",
    language: Language::Node,
    database: Database::MongoDb,
    share: (1, 2),
};

/// Runs all jobs in one process.
pub static BULLMQ: Peer = Peer {
    key: "bullmq",
    label: "BullMQ on Redis",
    system: "bullmq",
    script: "bullmq_peer.mjs",
    variant: "plain",
    language: Language::Node,
    database: Database::Redis,
    share: (5, 1),
};

/// Uses each process for many jobs.
pub static BULLMQ_SANDBOXED: Peer =
    Peer { key: "bullmq_sandboxed", label: "BullMQ, sandboxed pool", variant: "sandboxed", ..BULLMQ };

impl Peer {
    /// How many jobs it drains where we drain `tasks`.
    pub fn jobs(&self, tasks: u32) -> u32 {
        let (above, below) = self.share;
        (tasks.saturating_mul(above) / below).max(1)
    }
}

/// What there was to measure with, and what is left out.
#[derive(Debug, Clone, Default)]
pub struct Account {
    /// Name and version of what is installed.
    pub versions: BTreeMap<String, String>,
    /// Name of what was left out, and why.
    pub skipped: BTreeMap<&'static str, String>,
    /// What of ours could not be measured here, and why.
    pub not_measured: BTreeMap<String, String>,
}

/// All peers, with their servers, which are started when they are first needed.
#[derive(Debug)]
pub struct Peers {
    cache: PathBuf,
    folder: PathBuf,
    mongodb: String,
    versions: BTreeMap<String, String>,
    /// What is left out, and why.
    skipped: RefCell<BTreeMap<&'static str, String>>,
    redis: OnceCell<Service>,
    postgres: OnceCell<Service>,
}

impl Peers {
    /// Looks for what is installed. Scripts work in `folder`, and with the server at `mongodb` if they use one.
    pub fn find(folder: PathBuf, mongodb: String) -> anyhow::Result<Self> {
        let cache = cache();
        let versions = fs::read_to_string(cache.join("versions.tsv")).unwrap_or_default();
        fs::create_dir_all(&folder)?;
        for (name, text) in SCRIPTS {
            fs::write(folder.join(name), text)?;
        }
        // Node looks for packages beside the script.
        std::os::unix::fs::symlink(cache.join("node/node_modules"), folder.join("node_modules"))?;
        Ok(Self {
            cache,
            folder,
            mongodb,
            versions: parse_versions(&versions),
            skipped: RefCell::default(),
            redis: OnceCell::new(),
            postgres: OnceCell::new(),
        })
    }

    /// How many jobs a second `peer` ran, `width` at once. `None` if it is left out.
    pub async fn drain(&self, peer: &Peer, jobs: u32, width: u32) -> Option<f64> {
        let answer = self.run(peer, &["drain", &jobs.to_string(), &width.to_string()]).await?;
        match answer["seconds"].as_f64() {
            Some(seconds) if seconds > 0.0 => Some(f64::from(jobs) / seconds),
            _ => self.skip(peer, &anyhow!("it printed no time: {answer}")),
        }
    }

    /// How many milliseconds each of `samples` jobs waited for its start. `None` if it is left out.
    pub async fn latency(&self, peer: &Peer, samples: u32) -> Option<Vec<f64>> {
        let answer = self.run(peer, &["latency", &samples.to_string()]).await?;
        let waited = answer["milliseconds"].as_array().into_iter().flatten().map(Value::as_f64);
        match waited.collect::<Option<Vec<f64>>>() {
            Some(waited) if u32::try_from(waited.len()) == Ok(samples) => Some(waited),
            _ => self.skip(peer, &anyhow!("it printed no times: {answer}")),
        }
    }

    /// What the report says of them.
    pub fn account(&self) -> Account {
        let (versions, skipped) = (self.versions.clone(), self.skipped.borrow().clone());
        Account { versions, skipped, ..Account::default() }
    }

    /// Ends their servers.
    pub async fn stop(self) -> anyhow::Result<()> {
        for service in [self.redis.into_inner(), self.postgres.into_inner()].into_iter().flatten() {
            service.stop().await?;
        }
        Ok(())
    }

    /// A system that failed once is not tried again: figures of half the rounds would be compared with all of ours.
    async fn run(&self, peer: &Peer, arguments: &[&str]) -> Option<Value> {
        if self.skipped.borrow().contains_key(peer.key) {
            return None;
        }
        match self.answer(peer, arguments).await {
            Ok(answer) => Some(answer),
            Err(error) => self.skip(peer, &error),
        }
    }

    fn skip<T>(&self, peer: &Peer, error: &anyhow::Error) -> Option<T> {
        crate::progress::say(&format!("{} is left out: {error:#}", peer.label));
        self.skipped.borrow_mut().insert(peer.key, format!("{error:#}"));
        None
    }

    async fn answer(&self, peer: &Peer, arguments: &[&str]) -> anyhow::Result<Value> {
        ensure!(self.versions.contains_key(peer.system), "not installed; scripts/bench-peers installs it");
        let private = tempfile::Builder::new().prefix("peer-").tempdir_in(&self.folder)?;
        let mut command = Command::new(self.interpreter(peer.language));
        command.arg(self.folder.join(peer.script)).args(arguments).kill_on_drop(true);
        command.env("BENCH_ADDRESS", self.address(peer.database).await?);
        command.env("BENCH_FOLDER", private.path()).env("BENCH_VARIANT", peer.variant);
        command.env("PERL5LIB", self.cache.join("perl/lib/perl5"));
        let output = timeout(DEADLINE, command.stdin(Stdio::null()).output())
            .await
            .context("it takes too long")?
            .context("cannot be started")?;
        let complaints = String::from_utf8_lossy(&output.stderr);
        let end = complaints.trim_end().lines().rev().take(5).collect::<Vec<_>>();
        let end = end.into_iter().rev().collect::<Vec<_>>().join("; ");
        ensure!(output.status.success(), "{}: {end}", output.status);
        serde_json::from_slice(&output.stdout).with_context(|| format!("it printed no answer: {end}"))
    }

    fn interpreter(&self, language: Language) -> PathBuf {
        match language {
            Language::Python => self.cache.join("python/bin/python"),
            Language::Perl => "perl".into(),
            Language::Node => "node".into(),
        }
    }

    async fn address(&self, database: Database) -> anyhow::Result<String> {
        Ok(match database {
            Database::Redis => self.redis.get_or_try_init(Service::redis).await?.url.clone(),
            Database::Postgres => {
                let folder = self.versions.get("postgresql_folder").context("PostgreSQL is not installed")?;
                let start = || Service::postgres(Path::new(folder));
                self.postgres.get_or_try_init(start).await?.url.clone()
            }
            Database::MongoDb => self.mongodb.clone(),
        })
    }
}

/// Where `scripts/bench-peers` installs.
fn cache() -> PathBuf {
    let given = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    given("DISBATCH_BENCH_CACHE").unwrap_or_else(|| {
        let caches = given("XDG_CACHE_HOME").or_else(|| Some(given("HOME")?.join(".cache")));
        caches.unwrap_or_else(std::env::temp_dir).join("disbatch-bench")
    })
}

/// Name and version in each line, with a tab between them. What has no version is not installed.
fn parse_versions(text: &str) -> BTreeMap<String, String> {
    let pairs = text.lines().filter_map(|line| line.split_once('\t'));
    pairs.filter(|(_, version)| !version.is_empty()).map(|(a, b)| (a.to_owned(), b.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_no_version_is_not_installed() {
        let versions = parse_versions("redis\t7.0.15\nrq\t\nnonsense\n");
        assert_eq!(versions, BTreeMap::from([("redis".to_owned(), "7.0.15".to_owned())]));
    }

    #[test]
    fn peers_get_as_many_jobs_as_take_some_seconds() {
        assert_eq!(
            [&RQ, &CELERY, &CELERY_CHILD, &BULLMQ].map(|peer| peer.jobs(4000)),
            [2000, 10_000, 200, 20_000]
        );
        assert_eq!(CELERY_CHILD.jobs(1), 1);
    }

    #[tokio::test]
    async fn what_is_not_installed_is_left_out_by_name() {
        let folder = tempfile::tempdir().unwrap();
        let peers = Peers::find(folder.path().join("peers"), String::new()).unwrap();
        let peers = Peers { versions: BTreeMap::new(), ..peers };
        assert_eq!(peers.drain(&RQ, 1, 1).await, None);
        assert_eq!(peers.latency(&BULLMQ, 1).await, None);
        let skipped = peers.account().skipped;
        assert_eq!(skipped.keys().copied().collect::<Vec<_>>(), ["bullmq", "rq"]);
        assert!(skipped["rq"].contains("not installed"), "{skipped:?}");
    }
}
