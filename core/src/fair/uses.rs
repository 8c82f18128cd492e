//! What groups have used by now: what was noted of them, less what is long ago, and what they have running.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bson::{Document, doc};
use futures::TryStreamExt;

use super::group::{tenant_of, total_of};
use super::ledger::{GROUPS, id_of};
use super::read::Running;
use super::settings::Settings;
use super::shares::{Shares, decayed};
use crate::model::{QueueId, number, whole_number};
use crate::store::{Store, StoreError};

/// How long a task is taken to run, in seconds, as long as none has ended.
const USUAL: f64 = 1.0;

/// So many groups are asked for at once.
const AT_ONCE: usize = 5_000;

/// What is stored of a group.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Used {
    /// Seconds, as of now.
    pub used: f64,
    pub started: u64,
    pub finished: u64,
    /// Seconds in all.
    pub ran: f64,
    /// How long ago a task of it was started.
    pub since_start: Option<Duration>,
}

/// What groups and tenants have used.
#[derive(Debug, Default)]
pub(super) struct Uses {
    stored: HashMap<String, Used>,
    running: HashMap<String, f64>,
    /// How long a task runs, in seconds.
    usual: f64,
}

impl Store {
    /// What is stored of these groups or totals, by their names.
    pub(super) async fn used_by(
        &self,
        queue: QueueId,
        names: &[String],
        half_life: Duration,
    ) -> Result<HashMap<String, Used>, StoreError> {
        let mut all = HashMap::new();
        for some in names.chunks(AT_ONCE) {
            let ids: Vec<Document> = some.iter().map(|name| id_of(queue, name)).collect();
            let since = |field: &str| doc! { "$subtract": ["$$NOW", format!("${field}")] };
            let pipeline = [
                doc! { "$match": { "_id": { "$in": ids } } },
                doc! { "$project": {
                    "use": 1, "started": 1, "finished": 1, "ran": 1, "age": since("at"),
                    "since_start": since("last_start"),
                } },
            ];
            let groups = self.database().collection::<Document>(GROUPS);
            let found: Vec<Document> = groups.aggregate(pipeline).await?.try_collect().await?;
            let named = |group: &Document| {
                let name = group.get_document("_id").ok()?.get_str("group").ok()?.to_owned();
                Some((name, Used::of(group, half_life)))
            };
            all.extend(found.iter().filter_map(named));
        }
        Ok(all)
    }

    /// The order of groups that wait, by what each and its tenant has used, and what a task is charged, in seconds.
    pub(super) async fn shares(
        &self,
        queue: QueueId,
        groups: &[Arc<str>],
        settings: &Settings,
    ) -> Result<(Shares, f64), StoreError> {
        let names = names_for(groups.iter().map(|group| &**group));
        let (stored, running) = futures::try_join!(
            self.used_by(queue, &names, settings.half_life()),
            self.running_by_group(queue),
        )?;
        let uses = Uses::of(stored, &running);
        let given = groups.iter().map(|group| (Arc::clone(group), uses.of_group(group)));
        Ok((Shares::new(given, |tenant| uses.of_tenant(tenant), settings), uses.usual))
    }
}

impl Used {
    fn of(stored: &Document, half_life: Duration) -> Self {
        let seconds = |field: &str| stored.get(field).and_then(number).unwrap_or(0.0);
        let count = |field: &str| {
            let count = stored.get(field).and_then(whole_number);
            count.and_then(|count| u64::try_from(count).ok()).unwrap_or(0)
        };
        let span = |field: &str| {
            let ms = stored.get(field).and_then(whole_number);
            ms.map(|ms| Duration::from_millis(u64::try_from(ms).unwrap_or(0)))
        };
        Self {
            used: decayed(seconds("use"), span("age").unwrap_or_default(), half_life),
            started: count("started"),
            finished: count("finished"),
            ran: seconds("ran"),
            since_start: span("since_start"),
        }
    }
}

impl Uses {
    /// Of what is stored, and what runs.
    pub fn of(stored: HashMap<String, Used>, running: &HashMap<Arc<str>, Running>) -> Self {
        // A tenant's total has what its groups have, so it does not count twice.
        let groups = stored.iter().filter(|(name, _)| !name.ends_with('/')).map(|(_, used)| used);
        let (ran, finished) = groups.fold((0.0, 0), |sum, used| (sum.0 + used.ran, sum.1 + used.finished));
        let usual = if finished == 0 { USUAL } else { ran / finished as f64 };
        let mut of_groups: HashMap<String, f64> = HashMap::new();
        for (group, running) in running {
            // A task that has just begun counts as if it took as long as others.
            let least = running.places.running as f64 * usual;
            *of_groups.entry(group.to_string()).or_default() += running.seconds.max(least);
            let tenant = tenant_of(group);
            if tenant != &**group {
                *of_groups.entry(total_of(tenant)).or_default() += running.seconds.max(least);
            }
        }
        Self { stored, running: of_groups, usual }
    }

    /// Seconds.
    pub fn of_group(&self, name: &str) -> f64 {
        let stored = self.stored.get(name).map_or(0.0, |used| used.used);
        stored + self.running.get(name).copied().unwrap_or(0.0)
    }

    /// Seconds.
    pub fn of_tenant(&self, tenant: &str) -> f64 {
        self.of_group(tenant) + self.of_group(&total_of(tenant))
    }
}

/// The names under which it is stored what these groups and their tenants have used.
pub(super) fn names_for<'a>(groups: impl Iterator<Item = &'a str>) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for group in groups {
        let tenant = tenant_of(group);
        names.extend([group.to_owned(), tenant.to_owned(), total_of(tenant)]);
    }
    names.sort_unstable();
    names.dedup();
    names
}

#[cfg(test)]
mod tests {
    use super::super::window::Places;
    use super::*;

    fn used(used: f64, finished: u64, ran: f64) -> Used {
        Used { used, finished, ran, ..Used::default() }
    }

    fn running(tasks: u64, seconds: f64) -> Running {
        Running { places: Places { running: tasks, ..Places::default() }, seconds }
    }

    #[test]
    fn what_runs_counts_as_what_has_run() {
        let stored = HashMap::from([
            ("acme/ann".to_owned(), used(10.0, 5, 20.0)),
            ("acme/".to_owned(), used(10.0, 5, 20.0)),
            ("solo".to_owned(), used(1.0, 1, 4.0)),
        ]);
        let now = HashMap::from([
            (Arc::from("acme/bob"), running(2, 1.0)),
            (Arc::from("acme/ann"), running(1, 90.0)),
            (Arc::from("acme"), running(1, 0.0)),
        ]);
        let uses = Uses::of(stored, &now);
        assert!((uses.usual - 4.0).abs() < 1e-9, "24 s for 6 tasks: {}", uses.usual);
        let has = |name: &str, seconds: f64| {
            assert!((uses.of_group(name) - seconds).abs() < 1e-9, "{name}: {}", uses.of_group(name));
        };
        has("acme/bob", 8.0);
        has("acme/ann", 100.0);
        has("solo", 1.0);
        has("new", 0.0);
        assert!((uses.of_tenant("acme") - (10.0 + 8.0 + 90.0 + 4.0)).abs() < 1e-9);
        assert!((uses.of_tenant("solo") - 1.0).abs() < 1e-9);
        assert!((Uses::of(HashMap::new(), &HashMap::new()).usual - USUAL).abs() < 1e-9);
    }

    #[test]
    fn groups_are_asked_for_with_their_tenants() {
        let names = names_for(["acme/ann", "acme/bob", "solo"].into_iter());
        assert_eq!(names, ["acme", "acme/", "acme/ann", "acme/bob", "solo", "solo/"]);
    }

    #[test]
    fn what_is_stored_is_read_as_of_now() {
        let hour = Duration::from_secs(3600);
        let stored = doc! { "use": 8.0, "age": 7_200_000_i64, "started": 3, "finished": 2_i64, "ran": 9, "since_start": 1 };
        let read = Used::of(&stored, hour);
        assert!((read.used - 2.0).abs() < 1e-9 && (read.ran - 9.0).abs() < 1e-9, "{read:?}");
        assert_eq!((read.started, read.finished, read.since_start), (3, 2, Some(Duration::from_millis(1))));
        assert_eq!(Used::of(&doc! { "started": -1, "age": "x" }, hour), Used::default());
    }
}
