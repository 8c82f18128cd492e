//! What a heartbeat tells of this node: what it runs and can run, what its host is like and where that is, and whether another DEN has its name.

use std::fs;
use std::time::{Duration, Instant};

use bson::{Bson, Document, doc};
use disbatch_core::clock::boot_time;
use disbatch_core::config::Config;
use disbatch_core::model;
use disbatch_core::node::{Addresses, Beat, Stats, beat_of};
use disbatch_core::store::StoreError;
use nix::ifaddrs::getifaddrs;
use nix::sys::socket::SockaddrStorage;

use super::Node;
use crate::pace::is_due;

impl Node {
    pub(crate) fn has_rival(&self) -> bool {
        self.rivals.now(Instant::now()).is_some()
    }

    fn measure(&self) {
        let metrics = self.store.metrics();
        match self.capacity.maxthreads {
            Some(limit) => metrics.node_places.set(limit),
            None => metrics.node_places.forget(),
        }
        metrics.node_places_used.set(self.runners.launcher.running() as u64);
        self.runners.launcher.measure();
    }

    /// The queues that its configuration restricts it to, or that it leaves out.
    fn serves(&self) -> Document {
        let ids = |ids: &[model::QueueId]| ids.iter().map(|id| Bson::from(id.0)).collect::<Vec<_>>();
        match (&self.config.activequeues, &self.config.ignorequeues) {
            (Some(active), _) => doc! { "active": ids(active) },
            (None, Some(ignored)) => doc! { "ignored": ids(ignored) },
            (None, None) => doc! {},
        }
    }

    pub(super) async fn beat(&mut self, leaving: bool) -> Result<(), StoreError> {
        self.try_right_to_hold().await?;
        if self.capacity.watch.is_stuck(Instant::now()) && self.capacity.holdings.fence().is_some() {
            tracing::warn!("this node has not come to its claims for long: it gives up its slots");
            self.renounce();
        }
        let holder = self.capacity.holdings.holder();
        let plugins = &self.availability.plugins;
        let beat = Beat {
            instance: self.instance.clone(),
            lease: self.config.lease(),
            draining: leaving || self.draining,
            running: self.runners.launcher.running(),
            plugins: self.availability.names(&self.config),
            versions: texts(plugins.versions()),
            workers: texts(plugins.names_of_workers()),
            shadows: self.availability.shadows(),
            problems: plugins.reports(),
            engines: plugins.engines(),
            serves: self.serves(),
            fires_no_schedules: !self.config.schedules.0,
            wants: self.capacity.sharing.wants(Instant::now()),
            labels: self.config.labels.clone(),
            addresses: addresses(&self.config),
            rival: self.rivals.now(Instant::now()),
            aside: self.store.count_aside(),
            stats: stats(),
            holder: Some(holder).filter(|_| !self.capacity.watch.is_forbidden()),
        };
        let sent = boot_time();
        let entry = self.store.heartbeat(&self.name, &beat).await?;
        self.rivals.found(&self.instance, &entry, Instant::now());
        let ours = entry.instance() == Some(&self.instance);
        self.supervision.reached(sent, entry.rest.get_datetime("seen").ok().copied().filter(|_| ours));
        if let Some(at) = beat_of(&entry, holder)
            && !self.capacity.holdings.beaten(holder, at)
        {
            tracing::warn!("no heartbeat for seconds: slots that this node held are others' now");
            self.renounce();
        }
        self.hints.set_node(entry.id);
        self.capacity.maxthreads = entry.thread_limit();
        self.measure();
        if entry.is_draining() != self.draining {
            self.draining = entry.is_draining();
            let what = if self.draining { "claiming nothing more" } else { "claiming again" };
            tracing::info!("an operator has changed whether this node drains: {what}");
        }
        if entry.interrupts() || (leaving && self.interrupt) {
            let tasks = self.store.interrupt_runs(&self.name).await?;
            if !tasks.is_empty() {
                tracing::info!(tasks = tasks.len(), "told running tasks to go on elsewhere, if they can");
            }
            self.pay_attention(&tasks).await?;
        }
        self.pay_attention(&entry.attention()).await
    }
}

fn texts<'a>(names: impl Iterator<Item = &'a model::PluginName>) -> Vec<String> {
    names.map(ToString::to_string).collect()
}

/// So long after a rival was found it is told with heartbeats.
const TOLD: Duration = Duration::from_secs(10);

const REMINDED: Duration = Duration::from_secs(300);

/// Other DENs that use the name of this node. Both then write its entry in turn, so each finds what the other wrote.
#[derive(Debug, Default)]
pub(super) struct Rivals {
    /// This DEN has written the entry: what another one has written since then is of one that is alive.
    has_written: bool,
    last: Option<(String, Instant)>,
    logged: Option<Instant>,
}

impl Rivals {
    /// This is the entry as it was before a heartbeat of `own`.
    fn found(&mut self, own: &str, before: &model::Node, now: Instant) {
        let has_written = std::mem::replace(&mut self.has_written, true);
        // One that drains is about to end, and another one may have taken its place.
        let other = before.instance().filter(|other| *other != own && before.state() == Some("alive"));
        let Some(other) = other.filter(|_| has_written) else { return };
        if is_due(&mut self.logged, REMINDED, now) {
            tracing::warn!(
                node = %before.node, instance = own, other,
                "another DEN uses the name of this node: give each a name of its own with --node"
            );
        }
        self.last = Some((other.to_owned(), now));
    }

    fn now(&self, now: Instant) -> Option<String> {
        let recent = self.last.as_ref().filter(|(_, at)| now.saturating_duration_since(*at) < TOLD);
        recent.map(|(other, _)| other.clone())
    }
}

fn addresses(config: &Config) -> Addresses {
    let found = || getifaddrs().into_iter().flatten().filter_map(|one| address_text(&one.address?)).collect();
    let all: Vec<String> = config.addresses.clone().unwrap_or_else(found);
    Addresses::sorted(all.iter().map(String::as_str))
}

fn address_text(address: &SockaddrStorage) -> Option<String> {
    let v4 = address.as_sockaddr_in().map(|address| address.ip().to_string());
    v4.or_else(|| address.as_sockaddr_in6().map(|address| address.ip().to_string()))
}

/// What the host is like: load, processors and memory, from three small files of the system. Of what it does not tell, or tells in a way
/// that is not understood, nothing is known.
fn stats() -> Stats {
    let file = |path| fs::read_to_string(path).unwrap_or_default();
    // Those of the host, as the load is, also where a DEN may use fewer.
    stats_of(&file("/proc/loadavg"), &file("/sys/devices/system/cpu/online"), &file("/proc/meminfo"))
}

fn stats_of(load: &str, cpus: &str, memory: &str) -> Stats {
    Stats {
        load: load
            .split_whitespace()
            .next()
            .and_then(|word| word.parse().ok())
            .filter(|load: &f64| load.is_finite() && *load >= 0.0),
        cpus: processors(cpus),
        memory: bytes(memory, "MemTotal"),
        memory_available: bytes(memory, "MemAvailable"),
    }
}

/// How many there are in a list of ranges: `0-3,8`.
fn processors(list: &str) -> Option<u64> {
    let number = |text: &str| text.parse::<u64>().ok();
    let length = |range: &str| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        number(last)?.checked_sub(number(first)?)?.checked_add(1)
    };
    list.trim().split(',').try_fold(0_u64, |sum, range| sum.checked_add(length(range)?))
}

/// A line of `/proc/meminfo`, which has units of 1024 bytes.
fn bytes(text: &str, name: &str) -> Option<u64> {
    let value = |line: &str| {
        let (found, value) = line.split_once(':')?;
        let kibibytes = value.trim().strip_suffix("kB").filter(|_| found == name)?;
        kibibytes.trim_end().parse::<u64>().ok()?.checked_mul(1024)
    };
    text.lines().find_map(value)
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use bson::oid::ObjectId;

    use super::*;

    fn entry(instance: &str, state: &str) -> model::Node {
        let node = doc! { "_id": ObjectId::new(), "node": "n", "instance": instance, "state": state };
        bson::deserialize_from_document(node).unwrap()
    }

    #[test]
    fn who_writes_between_own_heartbeats_is_a_rival() {
        let now = Instant::now();
        let mut rivals = Rivals::default();
        rivals.found("me", &entry("before me", "alive"), now);
        assert_eq!(rivals.now(now), None, "that of the last start");
        rivals.found("me", &entry("me", "alive"), now);
        rivals.found("me", &entry("old", "draining"), now);
        assert_eq!(rivals.now(now), None, "it is about to end");
        rivals.found("me", &entry("other", "alive"), now);
        assert_eq!(rivals.now(now).as_deref(), Some("other"));
        rivals.found("me", &entry("me", "alive"), now);
        assert_eq!((rivals.now(now).is_some(), rivals.now(now + TOLD)), (true, None));
    }

    const MEMORY: &str = "\
MemTotal:        8146872 kB
MemFree:          312044 kB
MemAvailable:    4012344 kB
Buffers:           12345 kB
HugePages_Total:       0
";

    #[test]
    fn what_linux_says_is_understood() {
        let stats = stats_of("0.52 0.58 0.59 1/967 12345\n", "0-3,8,10-11\n", MEMORY);
        let expected = Stats {
            load: Some(0.52),
            cpus: Some(7),
            memory: Some(8_146_872 * 1024),
            memory_available: Some(4_012_344 * 1024),
        };
        assert_eq!(stats, expected);
        assert_eq!(processors("0\n"), Some(1));
    }

    #[test]
    fn what_is_absent_or_odd_is_not_known() {
        assert_eq!(stats_of("", "", ""), Stats::default());
        let odd = "MemTotal: many kB\nMemAvailable: 99999999999999999999 kB\nMemTotal 5\n";
        assert_eq!(stats_of("NaN 1 1", "3-0", odd), Stats::default());
        assert_eq!(stats_of("-1", "0-18446744073709551615", "MemAvailable: 5"), Stats::default());
        for list in ["0-", "-1", "0-1-2", "a", ",", "0,,1"] {
            assert_eq!(processors(list), None, "{list}");
        }
    }

    #[test]
    fn this_host_tells_something() {
        let stats = stats();
        assert!(stats.load.is_some() && stats.memory > stats.memory_available, "{stats:?}");
    }
}
