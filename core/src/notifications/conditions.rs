//! What lasts too long, and what has passed over without a trace in the log of changes: what has to be looked for.

use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_operation::operation;
use serde::{Deserialize, Serialize};

use super::{About, Event, Kind, QUEUE, Settings};
use crate::model::{CANARY_RETURNED, SHADOW_OF, Status, whole_number};
use crate::queue::FirstTask;
use crate::store::{Store, StoreError, collect};
use crate::tags::{self, TAGS};
use crate::task::archive::server_time_before;

/// So many tasks that run too long are known, those that were started first.
const MOST_TASKS: i64 = 1_000;

/// A time of a schedule that is due for so long was missed.
const OVERDUE: Duration = Duration::from_secs(60);

/// What was missed longer ago is not told.
const RECENT: Duration = Duration::from_secs(86_400);

/// What a subscription remembers of something that lasts, so that it is told once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Held {
    pub kind: Kind,
    #[serde(flatten)]
    pub about: About,
    /// What it is told apart by.
    pub key: String,
}

impl Held {
    pub(super) fn event(&self, at: DateTime) -> Event {
        Event { kind: self.kind, about: self.about.clone(), task: None, at, detail: None }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub struct Condition {
    pub held: Held,
    pub tenant: Option<String>,
    /// Those of the task, if it is one of a task.
    tags: Vec<String>,
    task: Option<ObjectId>,
    /// Since when, if it began at a moment: what began before a subscription is not told.
    began: Option<DateTime>,
    /// For how many seconds.
    lasts: f64,
    /// In words.
    detail: Option<String>,
}

impl Condition {
    pub(super) fn new(kind: Kind, about: About, key: String) -> Self {
        let held = Held { kind, about, key };
        Self { held, tenant: None, tags: vec![], task: None, began: None, lasts: f64::INFINITY, detail: None }
    }

    /// Whether it is to be told by a subscription that is as it is since `since`.
    pub(super) fn counts(&self, settings: &Settings, since: DateTime) -> bool {
        let least = match self.held.kind {
            Kind::WaitsLong => settings.waits_longer,
            Kind::RunsLong => settings.runs_longer,
            _ => None,
        };
        settings.tells(self.held.kind)
            && settings.covers(&self.held.about, self.tenant.as_deref(), &self.tags)
            && self.lasts >= least.unwrap_or(0.0)
            && self.began.is_none_or(|began| began >= since)
    }

    pub(super) fn event(&self, at: DateTime) -> Event {
        Event { task: self.task, detail: self.detail.clone(), ..self.held.event(at) }
    }
}

impl Store {
    /// What lasts now of this kind. Of tasks that run, those that have for so many seconds; of schedules, also those that are overdue if
    /// nobody is about to make up for it.
    #[operation]
    pub async fn lasting(
        &self,
        kind: Kind,
        runs_longer: f64,
        with_overdue: bool,
    ) -> Result<Vec<Condition>, StoreError> {
        match kind {
            Kind::WaitsLong => self.waiting_long().await,
            Kind::RunsLong => self.running_long(runs_longer).await,
            Kind::ScheduleMissed => self.missed_times(with_overdue).await,
            Kind::NodeDead => self.dead_nodes().await,
            Kind::CanaryReturned => self.returned_canaries().await,
            _ => Ok(Vec::new()), // The log of changes tells of these.
        }
    }

    async fn waiting_long(&self) -> Result<Vec<Condition>, StoreError> {
        let tenants = self.tenants_of_queues().await?;
        let is_shadow =
            |first: &FirstTask| first.task.as_ref().is_some_and(|task| task.rest.contains_key(SHADOW_OF));
        let first = self.first_tasks().await?.into_iter();
        let first = first.filter(|(queue, first)| *queue != QUEUE && !is_shadow(first));
        let waits = first.filter_map(|(queue, first)| {
            let about = About { queue: Some(queue.0), ..About::default() };
            Some(Condition {
                tenant: tenants.get(&queue).cloned(),
                task: first.task.as_ref().map(|task| task.id.0),
                lasts: first.waited?.as_secs_f64(),
                ..Condition::new(Kind::WaitsLong, about, queue.to_string())
            })
        });
        Ok(waits.collect())
    }

    async fn running_long(&self, seconds: f64) -> Result<Vec<Condition>, StoreError> {
        let ago = doc! { "$subtract": ["$$NOW", seconds * 1000.0] };
        let filter = doc! {
            "status": Status::Running, "queue": { "$ne": QUEUE }, SHADOW_OF: { "$exists": false }, "started": { "$type": "date" },
            "$expr": { "$lt": ["$started", ago] },
        };
        let fields = doc! { "queue": 1, "schedule": 1, "tenant": 1, TAGS: 1, "attempt": 1, "started": 1 };
        let tasks = self.tasks();
        let found = tasks.find(filter).sort(doc! { "started": 1 }).limit(MOST_TASKS).projection(fields);
        let found = collect(found).await?;
        let now = self.now().timestamp_millis();
        let runs = found.iter().filter_map(|task| {
            let id = task.get_object_id("_id").ok()?;
            let started = task.get_datetime("started").ok()?.timestamp_millis();
            let attempt = task.get("attempt").and_then(whole_number).unwrap_or(0);
            let about = About {
                queue: task.get_object_id("queue").ok(),
                schedule: task.get_object_id("schedule").ok(),
                node: None,
            };
            #[expect(clippy::cast_precision_loss, reason = "seconds for people")]
            let lasts = now.saturating_sub(started) as f64 / 1000.0;
            Some(Condition {
                tenant: task.get_str("tenant").ok().map(str::to_owned),
                tags: tags::stored(task.get(TAGS)),
                task: Some(id),
                lasts,
                ..Condition::new(Kind::RunsLong, about, format!("{id}:{attempt}"))
            })
        });
        Ok(runs.collect())
    }

    /// Times of schedules that came too late for a task, and, where nobody is about to make up for them, those that have passed.
    async fn missed_times(&self, with_overdue: bool) -> Result<Vec<Condition>, StoreError> {
        let missed = doc! {
            "missed.at": { "$type": "date" }, "$expr": { "$gt": ["$missed.at", server_time_before("$$NOW", RECENT)] },
        };
        let overdue = doc! {
            "paused": { "$ne": true }, "next": { "$type": "date" }, "next_for": { "$type": "date" },
            "$expr": { "$lt": ["$next", server_time_before("$$NOW", OVERDUE)] },
        };
        let mut conditions = Vec::new();
        for (filter, field) in [(Some(missed), "missed"), (with_overdue.then_some(overdue), "next_for")] {
            let Some(filter) = filter else { continue };
            let fields = doc! { "queue": 1, "tenant": 1, field: 1 };
            let found = collect(self.schedules().find(filter).projection(fields)).await?;
            conditions.extend(found.iter().filter_map(missed_time));
        }
        Ok(conditions)
    }

    /// Canaries that were taken back lately. They are told apart by when they had begun.
    async fn returned_canaries(&self) -> Result<Vec<Condition>, StoreError> {
        let at = format!("{CANARY_RETURNED}.at");
        let recently = doc! { "$gt": [format!("${at}"), server_time_before("$$NOW", RECENT)] };
        let returned = doc! { &at: { "$type": "date" }, "$expr": recently };
        let found =
            collect(self.queues().find(returned).projection(doc! { "tenant": 1, CANARY_RETURNED: 1 }))
                .await?;
        Ok(found.iter().filter_map(returned_canary).collect())
    }

    async fn dead_nodes(&self) -> Result<Vec<Condition>, StoreError> {
        let dead = doc! { "state": "dead", "seen": { "$type": "date" } };
        let found =
            collect(self.nodes().find(dead).projection(doc! { "node": 1, "seen": 1, "lease_ms": 1 })).await?;
        let dead = found.iter().filter_map(|node| {
            let name = node.get("node").and_then(Bson::as_str)?.to_owned();
            let seen = *node.get_datetime("seen").ok()?;
            let key = format!("{name}:{}", seen.timestamp_millis());
            let about = About { node: Some(name), ..About::default() };
            let lease = node.get("lease_ms").and_then(whole_number).unwrap_or(0);
            let died = seen.saturating_add_millis(lease);
            Some(Condition { began: Some(died), ..Condition::new(Kind::NodeDead, about, key) })
        });
        Ok(dead.collect())
    }
}

fn returned_canary(queue: &Document) -> Option<Condition> {
    let id = queue.get_object_id("_id").ok()?;
    let returned = queue.get_document(CANARY_RETURNED).ok()?;
    let at = *returned.get_datetime("at").ok()?;
    let count = |name| returned.get(name).and_then(whole_number).unwrap_or(0);
    let detail = format!(
        "version {}: {} of {} attempts failed, and {} of {} others",
        returned.get_str("version").unwrap_or_default(),
        count("failed"),
        count("of"),
        count("others_failed"),
        count("others_of")
    );
    let about = About { queue: Some(id), ..About::default() };
    Some(Condition {
        tenant: queue.get_str("tenant").ok().map(str::to_owned),
        began: Some(at),
        detail: Some(detail),
        ..Condition::new(Kind::CanaryReturned, about, format!("{id}:canary:{}", at.timestamp_millis()))
    })
}

/// A time that a schedule has missed. Whether it was found before the schedule went on or after that, it has the same key.
fn missed_time(schedule: &Document) -> Option<Condition> {
    let id = schedule.get_object_id("_id").ok()?;
    let about = About { queue: schedule.get_object_id("queue").ok(), schedule: Some(id), ..About::default() };
    let missed = schedule.get_document("missed").ok();
    let time = match missed {
        Some(missed) => missed.get_datetime("for"),
        None => schedule.get_datetime("next_for"),
    };
    let times =
        missed.and_then(|missed| missed.get("times")).and_then(whole_number).filter(|times| *times > 1);
    Some(Condition {
        tenant: schedule.get_str("tenant").ok().map(str::to_owned),
        began: missed.and_then(|missed| missed.get_datetime("at").ok()).copied(),
        detail: times.map(|times| format!("{times} times")),
        ..Condition::new(Kind::ScheduleMissed, about, format!("{id}:{}", time.ok()?.timestamp_millis()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_canary_that_was_taken_back_is_told_with_the_numbers() {
        let (id, at) = (ObjectId::new(), DateTime::from_millis(5));
        let returned = doc! {
            "version": "2", "at": at, "failed": 9_i64, "of": 20_i64, "others_failed": 0_i64, "others_of": 40_i64,
        };
        let told = returned_canary(&doc! { "_id": id, CANARY_RETURNED: returned }).unwrap();
        assert_eq!((told.began, told.held.about.queue), (Some(at), Some(id)));
        let detail = "version 2: 9 of 20 attempts failed, and 0 of 40 others";
        assert_eq!(told.detail.as_deref(), Some(detail));
        assert!(returned_canary(&doc! { "_id": id, CANARY_RETURNED: 7 }).is_none());
    }

    #[test]
    fn a_time_that_is_overdue_and_then_missed_is_one() {
        let (id, time) = (ObjectId::new(), DateTime::from_millis(1_795_305_600_000));
        let overdue = missed_time(&doc! { "_id": id, "next_for": time }).unwrap();
        let missed = doc! { "for": time, "at": DateTime::from_millis(1_795_305_700_000), "times": 3_i64 };
        let missed = missed_time(&doc! { "_id": id, "tenant": "acme", "missed": missed }).unwrap();
        assert_eq!((&overdue.held, overdue.began, &overdue.detail), (&missed.held, None, &None));
        assert_eq!((missed.tenant.as_deref(), missed.detail.as_deref()), (Some("acme"), Some("3 times")));
        assert!(missed_time(&doc! { "_id": id, "missed": { "times": 1 } }).is_none());
    }
}
