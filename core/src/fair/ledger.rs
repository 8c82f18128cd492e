//! What groups have had: how many of their tasks were started and have ended, and for how long these had a place.
//!
//! The DEN that runs a task notes it, and writes a few seconds later for many tasks at once. `queue_groups` has a document
//! for each group:
//!
//! | field | |
//! | --- | --- |
//! | `_id` | `{queue, group}` |
//! | `started`, `finished` | how many of its tasks |
//! | `ran` | for how many seconds these had a place, in all |
//! | `use` | the same as of `at`, where what is older counts less: half after each half-life |
//! | `at` | when that was written, by the server's clock; documents go away when it is long ago |
//! | `last_start` | when a task of it was last started, likewise |
//!
//! Where use is shared, a tenant has a document too, under its name and a slash, for all its groups that have further parts.
//! Of a task that was handed over to a web service, whoever makes its end notes how long it had its place, from its start on.
//! A DEN that is killed loses what it had not written, and nobody notes what runners do without their DEN, so these numbers
//! are near the truth and not equal to it.

use disbatch_operation::operation;
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bson::{Bson, Document, doc};

use super::{LONGEST_HALF_LIFE, NO_GROUP, Settings, Share, group_of, tenant_of, total_of};
use crate::model::{Policy, Queue, QueueId, Task};
use crate::notebook::{Notebook, Notes};
use crate::store::collections;
use crate::store::{Store, StoreError, put};
use crate::task::Claim;

pub(crate) const GROUPS: &str = collections::GROUPS.name;

/// For how long a group is remembered of which nothing was heard.
pub(crate) const KEPT: Duration = LONGEST_HALF_LIFE.saturating_mul(3);

/// So many groups are written with one command at most.
const AT_ONCE: usize = 1_000;

/// So many groups are noted at most while the database is away.
const MOST: usize = 100_000;

/// A task of a fair queue that was given to a runner: tell when it has let go of it.
#[derive(Debug, Clone)]
pub struct Stay {
    queue: QueueId,
    group: Arc<str>,
    half_life: Duration,
    /// Whether its tenant is told, too.
    tenant: bool,
    since: Instant,
}

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Entry {
    started: i64,
    finished: i64,
    seconds: f64,
    half_life: Duration,
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    groups: HashMap<(QueueId, Arc<str>), Entry>,
}

impl Stay {
    /// A stay that begins now, if the claim is of a fair queue.
    pub fn begin(claim: &Claim, queue: &Queue) -> Option<Self> {
        Self::of_group(group_of(&claim.document), claim.queue, queue)
    }

    fn of_group(group: &str, id: QueueId, queue: &Queue) -> Option<Self> {
        (queue.policy() == Policy::Fair).then(|| {
            let settings = Settings::of(queue);
            Self {
                queue: id,
                group: Arc::from(group),
                half_life: settings.half_life(),
                tenant: settings.share == Share::Use,
                since: Instant::now(),
            }
        })
    }
}

impl Notes for Ledger {
    const EVERY: Duration = Duration::from_secs(2);

    fn book(store: &Store) -> &Notebook<Self> {
        &store.groups
    }

    fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    fn give_up(&mut self) {
        self.groups.clear();
    }

    async fn flush(store: &Store) -> Result<(), StoreError> {
        store.flush_groups().await
    }
}

impl Store {
    /// Notes that a task was given to a runner.
    pub fn note_stay(&self, stay: &Stay) {
        self.note::<Ledger>(|ledger| ledger.add(stay, (1, 0), Duration::ZERO));
    }

    /// Notes that the runner has let go of it.
    pub fn note_stayed(&self, stay: &Stay) {
        let stayed = stay.since.elapsed();
        self.note::<Ledger>(|ledger| ledger.add(stay, (0, 1), stayed));
    }

    /// Notes that the web service has let go of a task that it had, if that is of a fair queue, and for how long its group had
    /// the place since its runner has left it.
    pub(crate) fn note_stayed_with_service(&self, task: &Task, queue: &Queue, stayed: Duration) {
        let group = task.rest.get("group").and_then(Bson::as_str).unwrap_or(NO_GROUP);
        if let Some(stay) = Stay::of_group(group, task.queue, queue) {
            self.note::<Ledger>(|ledger| ledger.add(&stay, (0, 0), stayed));
        }
    }

    /// Writes what this process has noted of groups and not written. What is not acknowledged is kept, and written later.
    #[operation]
    pub async fn flush_groups(&self) -> Result<(), StoreError> {
        let _one_at_a_time = self.groups.one_at_a_time().await;
        let mut left: Vec<((QueueId, Arc<str>), Entry)> =
            self.groups.with(|ledger| std::mem::take(&mut ledger.groups)).into_iter().collect();
        while !left.is_empty() {
            let some = left.split_off(left.len().saturating_sub(AT_ONCE));
            let statements: Vec<Document> =
                some.iter().map(|((queue, group), entry)| statement(*queue, group, entry)).collect();
            let command = doc! {
                "update": GROUPS, "updates": statements, "ordered": false, "writeConcern": { "w": 1 },
            };
            let Err(error) = self.database().run_command(command).await.map_err(StoreError::from) else {
                continue;
            };
            if error.is_forbidden() {
                tracing::info!(
                    %error,
                    "what groups use is not kept by this process; `disbatch create-users` gives the right to"
                );
                self.groups.silence();
                return Ok(());
            }
            // What was sent may have been written.
            self.groups
                .with(|ledger| left.into_iter().for_each(|(group, entry)| ledger.add_to(group, entry)));
            return Err(error);
        }
        Ok(())
    }
}

impl Ledger {
    fn add(&mut self, stay: &Stay, (started, finished): (i64, i64), stayed: Duration) {
        let entry = Entry { started, finished, seconds: stayed.as_secs_f64(), half_life: stay.half_life };
        self.add_to((stay.queue, Arc::clone(&stay.group)), entry);
        let tenant = tenant_of(&stay.group);
        if stay.tenant && tenant != &*stay.group {
            self.add_to((stay.queue, Arc::from(total_of(tenant))), entry);
        }
    }

    fn add_to(&mut self, group: (QueueId, Arc<str>), more: Entry) {
        if self.groups.len() >= MOST && !self.groups.contains_key(&group) {
            return;
        }
        let entry = self.groups.entry(group).or_default();
        entry.started += more.started;
        entry.finished += more.finished;
        entry.seconds += more.seconds;
        entry.half_life = more.half_life;
    }
}

/// The `_id` of a group. The order of its fields belongs to it.
pub(super) fn id_of(queue: QueueId, group: &str) -> Document {
    doc! { "queue": queue, "group": group }
}

fn statement(queue: QueueId, group: &str, entry: &Entry) -> Document {
    let sum = |field: &str, more: Bson| doc! { "$add": [{ "$ifNull": [format!("${field}"), 0] }, more] };
    let ms = entry.half_life.as_secs_f64().max(0.001) * 1000.0;
    let age = doc! { "$max": [0, { "$subtract": ["$$NOW", { "$ifNull": ["$at", "$$NOW"] }] }] };
    let decay = -std::f64::consts::LN_2 / ms;
    let kept = doc! { "$exp": { "$multiply": [decay, age] } };
    let kept = doc! { "$multiply": [{ "$ifNull": ["$use", 0] }, kept] };
    let mut set = doc! {
        "use": { "$add": [kept, entry.seconds] },
        "ran": sum("ran", entry.seconds.into()),
        "started": sum("started", entry.started.into()),
        "finished": sum("finished", entry.finished.into()),
        "at": "$$NOW",
    };
    put(&mut set, "last_start", (entry.started > 0).then_some("$$NOW"));
    doc! { "q": { "_id": id_of(queue, group) }, "u": [{ "$set": set }], "upsert": true }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

    use super::*;

    fn stay(group: &str, tenant: bool) -> Stay {
        let queue = QueueId(ObjectId::from_bytes([1; 12]));
        Stay {
            queue,
            group: Arc::from(group),
            half_life: Duration::from_secs(60),
            tenant,
            since: Instant::now(),
        }
    }

    fn noted(ledger: &Ledger) -> Vec<(String, i64, i64, f64)> {
        let of = |((_, group), entry): (&(QueueId, Arc<str>), &Entry)| {
            (group.to_string(), entry.started, entry.finished, entry.seconds)
        };
        let mut noted: Vec<_> = ledger.groups.iter().map(of).collect();
        noted.sort_by(|one, other| one.0.cmp(&other.0));
        noted
    }

    #[test]
    fn what_a_group_has_is_added_up_and_its_tenant_is_told() {
        let mut ledger = Ledger::default();
        ledger.add(&stay("acme/ann", true), (1, 0), Duration::ZERO);
        ledger.add(&stay("acme/ann", true), (0, 1), Duration::from_secs(3));
        ledger.add(&stay("acme/bob", true), (1, 0), Duration::ZERO);
        ledger.add(&stay("solo", true), (1, 0), Duration::ZERO);
        ledger.add(&stay("other/eve", false), (1, 0), Duration::ZERO);
        let expected = [
            ("acme/".to_owned(), 2, 1, 3.0),
            ("acme/ann".to_owned(), 1, 1, 3.0),
            ("acme/bob".to_owned(), 1, 0, 0.0),
            ("other/eve".to_owned(), 1, 0, 0.0),
            ("solo".to_owned(), 1, 0, 0.0),
        ];
        assert_eq!(noted(&ledger), expected);
        let left: Vec<_> = std::mem::take(&mut ledger.groups).into_iter().collect();
        ledger.add(&stay("solo", true), (1, 0), Duration::ZERO);
        left.into_iter().for_each(|(group, entry)| ledger.add_to(group, entry));
        assert_eq!(noted(&ledger)[4], ("solo".to_owned(), 2, 0, 0.0));
    }

    #[test]
    fn no_more_is_kept_in_memory_than_fits() {
        let mut ledger = Ledger::default();
        for number in 0..MOST + 10 {
            ledger.add(&stay(&number.to_string(), false), (1, 0), Duration::ZERO);
        }
        ledger.add(&stay("7", false), (1, 0), Duration::ZERO);
        assert_eq!(ledger.groups.len(), MOST);
        let seven = (QueueId(ObjectId::from_bytes([1; 12])), Arc::from("7"));
        assert_eq!(ledger.groups[&seven].started, 2);
    }

    #[test]
    fn use_decays_in_the_same_update_that_adds_to_it() {
        let entry = Entry { started: 0, finished: 1, seconds: 2.5, half_life: Duration::from_secs(1) };
        let queue = QueueId(ObjectId::from_bytes([1; 12]));
        let statement = statement(queue, "a.b/$c", &entry);
        assert_eq!(
            statement.get_document("q").unwrap(),
            &doc! { "_id": { "queue": queue, "group": "a.b/$c" } }
        );
        let text = statement.to_string();
        assert!(text.contains("$exp") && text.contains("$$NOW") && !text.contains("last_start"), "{text}");
    }
}
