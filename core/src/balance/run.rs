//! A round of `QueueBalance`, which sets `threads` of the queues that it is told about.
//!
//! Any number of DENs may want to, and one at a time works: the one that has the lease (see [`crate::lease`]), a document of
//! its own collection, so that `balance` keeps having one document.

use std::collections::HashMap;
use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};

use super::plan::{Demand, Settings, WeekMinute, allot};
use crate::config::Balance;
use crate::lease::LeaseName;
use crate::model::{Queue, QueueId, Selector, Status, to_bson};
use crate::store::{Store, StoreError, collect, collections};

pub const LEASE: LeaseName =
    LeaseName::in_collection(collections::BALANCE_LEASE.name, "queuebalance", Duration::from_secs(30));

/// What `/monitoring` says about a round.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// `OK`, `WARNING` or `CRITICAL`.
    pub status: &'static str,
    pub message: String,
}

/// One round: reads the settings, sets `threads`, and writes down how it went.
pub async fn round(store: &Store, settings: Balance) -> Result<Report, StoreError> {
    let report = balance(store, settings, &TimeZone::system()).await?;
    // Perl's monitoring reckons with seconds.
    let seconds = store.now().timestamp_millis() / 1000;
    store
        .save_balance(doc! { "status": report.status, "message": &report.message, "timestamp": seconds })
        .await?;
    Ok(report)
}

async fn balance(store: &Store, config: Balance, zone: &TimeZone) -> Result<Report, StoreError> {
    let mut documents = store.balance_documents().await?;
    if documents.is_empty() {
        // Unless somebody has made one meanwhile.
        let empty = doc! { "$setOnInsert": { "max_tasks": {}, "queues": [] } };
        store.balance().update_one(doc! {}, empty).upsert(true).await?;
        documents = store.balance_documents().await?;
    }
    let settings = match Settings::read(documents) {
        Ok(settings) => settings,
        Err(error) => return Ok(report("CRITICAL", format!("QueueBalance: {error}"))),
    };
    let now = local(store.now(), zone);
    if let Some(until) = settings.disabled {
        if now.timestamp().as_second() < until {
            return Ok(report("OK", format!("QueueBalance disabled until {}", shown(until, zone))));
        }
        tracing::info!("QueueBalance is no longer disabled");
        if !config.pretend.0 {
            store.save_balance(doc! { "disabled": Bson::Null }).await?;
        }
    }
    let Some(limit) = week_minute(&now).and_then(|now| settings.timetable.limit_at(now)) else {
        let nothing = "QueueBalance: max_tasks has no entry, so there is nothing to go by";
        return Ok(report("WARNING", nothing.to_owned()));
    };
    let (tiers, unknown) = find(&settings.tiers, store.list_queues().await?);
    let mut demands = Vec::new();
    for tier in &tiers {
        let demand = |queue: &Queue| store.demand(queue.id, limit);
        demands.push(futures::future::try_join_all(tier.iter().map(demand)).await?);
    }
    let allotted = allot(limit, &demands);
    if config.verbose.0 {
        tracing::info!(limit, "QueueBalance: {}", summary(&tiers, &demands, &allotted));
    }
    apply(store, config, &tiers, &allotted).await?;
    Ok(match unknown.as_slice() {
        [] => report("OK", "QueueBalance is running".into()),
        names => report("WARNING", format!("QueueBalance: unknown queue {}", names.join(", "))),
    })
}

/// Writes what has changed. Limits go down before others go up, so that their sum is never too large.
async fn apply(
    store: &Store,
    config: Balance,
    tiers: &[Vec<Queue>],
    allotted: &[Vec<u64>],
) -> Result<(), StoreError> {
    let all = tiers.iter().flatten().zip(allotted.iter().flatten().copied());
    let (down, up): (Vec<_>, Vec<_>) = all.partition(|(queue, threads)| *threads < queue.thread_limit());
    for (queue, threads) in down.into_iter().chain(up) {
        let (name, before) = (queue.display_name(), queue.thread_limit());
        if threads == before && queue.rest.contains_key("threads") {
            if config.verbose.0 {
                tracing::info!(queue = name, threads, "QueueBalance: no change");
            }
            continue;
        }
        if config.log.0 {
            tracing::info!(queue = name, before, threads, pretend = config.pretend.0, "QueueBalance: change");
        }
        if !config.pretend.0 {
            let fields = doc! { "threads": to_bson(&threads.into()) };
            store.update_queue(&Selector::Id(queue.id.0), fields).await?;
        }
    }
    Ok(())
}

impl Store {
    /// All documents of `balance`, of which there should be one.
    async fn balance_documents(&self) -> Result<Vec<Document>, StoreError> {
        collect(self.balance().find(doc! {})).await
    }

    /// What a queue has to do. Tasks with an unused negative status wait for nobody, so they do not count. More than
    /// `limit` makes no difference and is not counted.
    async fn demand(&self, queue: QueueId, limit: u64) -> Result<Demand, StoreError> {
        let tasks = self.tasks();
        let queued = tasks.count_documents(doc! { "queue": queue, "status": Status::Queued });
        let queued = queued.limit(limit.clamp(1, i64::MAX.unsigned_abs()));
        let running = tasks.count_documents(doc! { "queue": queue, "status": { "$in": [-1, 0] } });
        let (queued, running) = futures::try_join!(queued.into_future(), running.into_future())?;
        Ok(Demand { queued, running })
    }
}

fn summary(tiers: &[Vec<Queue>], demands: &[Vec<Demand>], allotted: &[Vec<u64>]) -> String {
    let queues = tiers.iter().flatten().zip(demands.iter().flatten()).zip(allotted.iter().flatten());
    let of = |((queue, demand), threads): ((&Queue, &Demand), &u64)| {
        let Demand { queued, running } = demand;
        format!("{} has {queued} queued and {running} running, and gets {threads}", queue.display_name())
    };
    let all: Vec<String> = queues.map(of).collect();
    if all.is_empty() { "no queue is in its tiers".to_owned() } else { all.join("; ") }
}

fn report(status: &'static str, message: String) -> Report {
    Report { status, message }
}

/// The queues of these names, and the names that no queue has.
fn find(tiers: &[Vec<String>], queues: Vec<Queue>) -> (Vec<Vec<Queue>>, Vec<String>) {
    let mut by_name: HashMap<String, Queue> =
        queues.into_iter().map(|queue| (queue.display_name(), queue)).collect();
    let mut unknown = Vec::new();
    let mut queue = |name: &String| {
        let queue = by_name.remove(name);
        unknown.extend(queue.is_none().then(|| name.clone()));
        queue
    };
    let found = tiers.iter().map(|names| names.iter().filter_map(&mut queue).collect()).collect();
    (found, unknown)
}

fn local(now: DateTime, zone: &TimeZone) -> Zoned {
    // Out of jiff's range only where no clock stands.
    Timestamp::from_millisecond(now.timestamp_millis())
        .unwrap_or(Timestamp::UNIX_EPOCH)
        .to_zoned(zone.clone())
}

fn week_minute(now: &Zoned) -> Option<WeekMinute> {
    let part = |number: i8| u8::try_from(number).ok();
    WeekMinute::new(part(now.weekday().to_sunday_zero_offset())?, part(now.hour())?, part(now.minute())?)
}

/// A time as Perl's `localtime` writes it.
fn shown(seconds: i64, zone: &TimeZone) -> String {
    match Timestamp::from_second(seconds) {
        Ok(at) => at.to_zoned(zone.clone()).strftime("%a %b %e %H:%M:%S %Y").to_string(),
        Err(_) => seconds.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::new_queue_id;

    #[test]
    fn limits_go_by_the_local_time_of_the_zone() {
        // Friday 2026-11-20 23:30 UTC is Saturday 00:30 in Berlin.
        let now = DateTime::from_millis(1_795_217_400_000);
        let berlin = TimeZone::posix("CET-1CEST,M3.5.0,M10.5.0/3").unwrap();
        assert_eq!(week_minute(&local(now, &TimeZone::UTC)), WeekMinute::new(5, 23, 30));
        assert_eq!(week_minute(&local(now, &berlin)), WeekMinute::new(6, 0, 30));
    }

    #[test]
    fn what_queues_get_is_said_in_words() {
        let queue = |name: &str| Queue { id: new_queue_id(), rest: doc! { "name": name } };
        let tiers = [vec![queue("mail")], vec![queue("video")]];
        let demand = |queued, running| vec![Demand { queued, running }];
        assert_eq!(
            summary(&tiers, &[demand(4, 0), demand(1, 2)], &[vec![3], vec![1]]),
            "mail has 4 queued and 0 running, and gets 3; video has 1 queued and 2 running, and gets 1"
        );
        assert_eq!(summary(&[], &[], &[]), "no queue is in its tiers");
    }

    #[test]
    fn times_are_shown_as_perl_shows_them() {
        assert_eq!(shown(4_102_444_800, &TimeZone::UTC), "Fri Jan  1 00:00:00 2100");
        assert_eq!(shown(i64::MAX, &TimeZone::UTC), i64::MAX.to_string());
    }
}
