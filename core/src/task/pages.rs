//! Pages of tasks in the order of their ids: each begins behind the last task of the one before, so that a page costs
//! the same wherever it is, and tasks that come or end meanwhile move no other from one page to the next.
//!
//! First the ids of a page are found, in an index, and then its tasks are read, by `_id`:
//!
//! - all tasks: `_id`
//! - of a queue: two indexes `{queue, status, _id}`, one of the tasks that wait or have ended without a result, and
//!   one of those that have one. Those that run are in none, which would cost every task two more writes; they are
//!   few, and sorted.
//! - of a queue with one status on one node: `{node, status, queue, _id}`
//! - with tags, whatever else they are: `{tags, _id}`. Of several tags the server takes the one that the fewest tasks have, and looks
//!   at each of these.
//!
//! A task that waits comes to run, and one that runs ends, so the indexes are asked in this order: whatever was not
//! there yet when it was asked for is found by the next one, and whatever is found twice is in the page once. Those that
//! are given back or tried again go the other way, so those that wait are looked at once more at the end.

use std::collections::BTreeSet;
use std::slice::Chunks;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_operation::operation;
use futures::{StreamExt, TryStreamExt, stream};
use mongodb::action::Action;
use mongodb::options::Hint;

use super::search::AT_ONCE;
use crate::counters::count::Amount;
use crate::model::document::readable;
use crate::model::{NodeName, Phase, QueueId, TaskId, whole_number};
use crate::paging::Page;
pub use crate::paging::Position;
use crate::secrets::concealed;
use crate::store::{Rows, Store, StoreError, attended, collect_ids, put};

/// So long the server may look at tasks with a tag for those that are meant.
const LOOKING: Duration = Duration::from_secs(60);

/// The server merges at most so many scans of an index by their order (`internalQueryMaxScansToExplode`).
pub(super) const MERGED: usize = 200;

/// So many queues are asked at once for what they have in any status.
const QUEUES_AT_ONCE: usize = 8;

/// Of those that wait, are held, or have ended without a result.
pub(crate) fn queued_index() -> Document {
    // Another direction, or both would have the same name.
    doc! { "queue": 1, "status": 1, "_id": -1 }
}

/// Of those that have ended with a result.
pub(crate) fn completed_index() -> Document {
    doc! { "queue": 1, "status": 1, "_id": 1 }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    Oldest,
    Newest,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Selection {
    /// Of these queues alone; `None`: of all.
    pub queues: Option<Vec<QueueId>>,
    /// With one of these statuses; `None`: with any. Needs queues, or tags.
    pub statuses: Option<Vec<i64>>,
    /// On which node. Needs queues and statuses, or tags.
    pub node: Option<NodeName>,
    /// With tags: what [`crate::tags::query`] says, and perhaps more.
    pub tagged: Option<Document>,
    pub created: Created,
}

impl Selection {
    pub fn of_queue(queue: QueueId) -> Self {
        Self { queues: Some(vec![queue]), ..Self::default() }
    }

    fn with_tags(&self) -> Option<Document> {
        let mut all = vec![self.tagged.clone()?];
        all.extend(self.queues.as_ref().map(|queues| doc! { "queue": of(queues) }));
        all.extend(self.statuses.as_ref().map(|statuses| doc! { "status": { "$in": statuses } }));
        all.extend(self.node.as_ref().map(|node| doc! { "node": node }));
        Some(doc! { "$and": all })
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PageQuery {
    pub of: Selection,
    pub order: Order,
    pub position: Position<TaskId>,
    pub limit: usize,
}

/// A filter, and the index that is asked.
type Question = (Document, Option<Document>);

impl PageQuery {
    fn ascends(&self) -> bool {
        (self.order == Order::Oldest) != self.position.is_backwards()
    }

    fn question(&self, mut filter: Document, index: Option<Document>) -> Question {
        let beyond = if self.ascends() { "$gt" } else { "$lt" };
        let mut ids = self.of.created.ids();
        if let Position::After(task) | Position::Before(task) = self.position {
            ids.insert(beyond, task);
        }
        put(&mut filter, "_id", (!ids.is_empty()).then_some(ids));
        (filter, index)
    }

    /// For tasks of these queues with those of the statuses that the index of a phase has. What has ended without a result is in that of
    /// what waits. `None`: it has none of them.
    fn of_phase(&self, phase: Phase, queues: &[QueueId], statuses: &BTreeSet<i64>) -> Option<Question> {
        let (of_index, index) = match phase {
            Phase::Queued => (statuses.range(..=-2), queued_index()),
            Phase::Running => (statuses.range(-1..=0), doc! { "queue": 1, "status": 1 }),
            Phase::Completed => (statuses.range(1..), completed_index()),
        };
        let statuses: Vec<i64> = of_index.copied().collect();
        (!statuses.is_empty())
            .then(|| self.question(doc! { "queue": of(queues), "status": { "$in": statuses } }, Some(index)))
    }
}

fn of(queues: &[QueueId]) -> Bson {
    match queues {
        [queue] => queue.into(),
        queues => doc! { "$in": queues }.into(),
    }
}

/// As many queues at a time as the server merges in the order of ids: with more it would read and sort all of their tasks.
fn merged<'a>(queues: &'a [QueueId], statuses: &[i64]) -> Chunks<'a, QueueId> {
    queues.chunks((MERGED / statuses.len().max(1)).max(1))
}

/// Tasks that were made between two times, as their ids say: to the second, and by an index that every database has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Created {
    /// At this time or later.
    pub since: Option<DateTime>,
    /// Before this time.
    pub until: Option<DateTime>,
}

impl Created {
    pub fn is_any(self) -> bool {
        self == Self::default()
    }

    /// What their ids must be: the value of `_id` in a filter. Empty if any task is meant.
    pub fn ids(self) -> Document {
        // Both include their end, so that the place of a page can be told besides.
        let mut ids = Document::new();
        put(&mut ids, "$gte", self.since.map(|at| id(seconds(at), u8::MIN)));
        put(&mut ids, "$lte", self.until.map(|at| id(seconds(at).saturating_sub(1), u8::MAX)));
        ids
    }
}

/// Whole seconds since 1970, as far as ids can have them. A fraction counts to the next one.
fn seconds(at: DateTime) -> u32 {
    let seconds = at.timestamp_millis().saturating_add(999).div_euclid(1_000);
    u32::try_from(seconds.max(0)).unwrap_or(u32::MAX)
}

fn id(seconds: u32, rest: u8) -> ObjectId {
    let mut bytes = [rest; 12];
    bytes[..4].copy_from_slice(&seconds.to_be_bytes());
    ObjectId::from_bytes(bytes)
}

impl Store {
    #[operation]
    pub async fn find_page(&self, page: &PageQuery) -> Result<Page<TaskId, TaskId>, StoreError> {
        let mut found = BTreeSet::new();
        match (page.of.with_tags(), &page.of.queues, &page.of.node, &page.of.statuses) {
            (Some(filter), ..) => self.ask(page, page.question(filter, None), &mut found).await?,
            (None, None, ..) => self.ask(page, page.question(doc! {}, None), &mut found).await?,
            (None, Some(queues), Some(node), statuses) => {
                let statuses = statuses.clone().unwrap_or_default();
                for some in merged(queues, &statuses) {
                    let filter = doc! { "node": node, "status": { "$in": &statuses }, "queue": of(some) };
                    let index = doc! { "node": 1, "status": 1, "queue": 1, "_id": 1 };
                    self.ask(page, page.question(filter, Some(index)), &mut found).await?;
                }
            }
            (None, Some(queues), None, Some(statuses)) => {
                for some in merged(queues, statuses) {
                    self.ask_for(page, some, &statuses.iter().copied().collect(), &mut found).await?;
                }
            }
            (None, Some(queues), None, None) => {
                let each = async |queue: &QueueId| self.ask_all(page, *queue).await;
                let mut each = stream::iter(queues).map(each).buffer_unordered(QUEUES_AT_ONCE);
                while let Some(mut of_queue) = each.try_next().await? {
                    found.append(&mut of_queue);
                }
            }
        }
        let mut ids: Vec<TaskId> = found.into_iter().map(TaskId).collect();
        if !page.ascends() {
            ids.reverse();
        }
        Ok(page.position.page(page.limit, ids, |id| Some(*id)))
    }

    /// How many tasks of a queue were made between two times, counted up to `bound` by the indexes of their pages.
    #[operation(queue = %queue)]
    pub async fn count_created(
        &self,
        queue: QueueId,
        created: Created,
        bound: u64,
    ) -> Result<Amount, StoreError> {
        let of = Selection { created, ..Selection::of_queue(queue) };
        let page = PageQuery { of, order: Order::Oldest, position: Position::First, limit: 0 };
        let statuses = self.statuses_of(queue).await?;
        let phases = [Phase::Queued, Phase::Running, Phase::Completed];
        let all = phases.map(|phase| page.of_phase(phase, &[queue], &statuses));
        let counts: Vec<_> = all.into_iter().flatten().map(|(filter, _)| (filter, bound)).collect();
        let amounts = self.count_each_up_to(&counts).await?.into_iter();
        Ok(amounts.fold(Amount::Exactly(0), |sum, more| sum.and(more, bound)))
    }

    /// Asks for the tasks of some queues with some statuses, in the order of their lives.
    async fn ask_for(
        &self,
        page: &PageQuery,
        queues: &[QueueId],
        statuses: &BTreeSet<i64>,
        found: &mut BTreeSet<ObjectId>,
    ) -> Result<(), StoreError> {
        let of = |phase| page.of_phase(phase, queues, statuses);
        let others = [of(Phase::Running), of(Phase::Completed)];
        let again = others.iter().any(Option::is_some).then(|| of(Phase::Queued)).flatten();
        for question in [of(Phase::Queued)].into_iter().chain(others).chain([again]).flatten() {
            self.ask(page, question, found).await?;
        }
        Ok(())
    }

    async fn ask_all(&self, page: &PageQuery, queue: QueueId) -> Result<BTreeSet<ObjectId>, StoreError> {
        let mut found = BTreeSet::new();
        // Plugins may invent statuses, just now for the first time: these are read once more.
        for phases in [[Phase::Queued, Phase::Running], [Phase::Completed, Phase::Queued]] {
            let statuses = self.statuses_of(queue).await?;
            let asked = phases.map(|phase| page.of_phase(phase, &[queue], &statuses));
            for question in asked.into_iter().flatten() {
                self.ask(page, question, &mut found).await?;
            }
        }
        Ok(found)
    }

    /// The statuses that a queue's tasks have, and those that they come through. One look into the index for each.
    async fn statuses_of(&self, queue: QueueId) -> Result<BTreeSet<i64>, StoreError> {
        let found = self.tasks().distinct("status", doc! { "queue": queue }).await?;
        Ok(found.iter().filter_map(whole_number).chain(-7..=2).collect())
    }

    /// The statuses that the tasks of a node have. One look into the index for each.
    #[operation]
    pub async fn statuses_on_node(&self, node: &str) -> Result<Vec<i64>, StoreError> {
        let found = self.tasks().distinct("status", doc! { "node": node }).await?;
        Ok(found.iter().filter_map(whole_number).collect())
    }

    async fn ask(
        &self,
        page: &PageQuery,
        (filter, index): Question,
        found: &mut BTreeSet<ObjectId>,
    ) -> Result<(), StoreError> {
        let direction = if page.ascends() { 1 } else { -1 };
        let limit = i64::try_from(page.limit).unwrap_or(i64::MAX - 1).saturating_add(1);
        let tasks = self.tasks();
        let find = |index: Option<Document>| {
            let find = tasks.find(filter.clone()).sort(doc! { "_id": direction });
            let find = find.limit(limit).projection(doc! { "_id": 1 });
            let find = find.optional(page.of.tagged.as_ref(), |find, _| find.max_time(LOOKING));
            find.optional(index, |find, index| find.hint(Hint::Keys(index)))
        };
        found.extend(match collect_ids(find(index.clone())).await {
            // The index is not there (yet): slower, and just as right.
            Err(error) if index.is_some() && error.is_no_index() => collect_ids(find(None)).await?,
            ids => ids?,
        });
        Ok(())
    }

    /// The tasks of a page as stored, in its order, a batch at a time. One that does not match `filter` any more is
    /// left out.
    #[operation]
    pub async fn stream_page(
        &self,
        page: &[TaskId],
        filter: Document,
        projection: Option<Document>,
    ) -> Result<Rows<Document>, StoreError> {
        let direction = if page.first() > page.last() { -1 } else { 1 };
        let which = doc! { "$and": [{ "_id": { "$in": page } }, filter] };
        let options = mongodb::options::FindOptions::builder()
            .sort(doc! { "_id": direction })
            .hint(Hint::Keys(doc! { "_id": 1 }))
            .projection(projection)
            .batch_size(AT_ONCE)
            .build();
        let cursor = self.raw_tasks().find(which).with_options(options).await?;
        Ok(attended(cursor.map(|task| Ok(concealed(readable(task?))))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn page(order: Order, position: Position<TaskId>) -> PageQuery {
        PageQuery { of: Selection::default(), order, position, limit: 2 }
    }

    #[test]
    fn what_comes_before_is_read_backwards() {
        let task = TaskId(ObjectId::from_bytes([1; 12]));
        let cases = [
            (Order::Oldest, Position::First, true),
            (Order::Oldest, Position::After(task), true),
            (Order::Oldest, Position::Before(task), false),
            (Order::Newest, Position::First, false),
            (Order::Newest, Position::After(task), false),
            (Order::Newest, Position::Before(task), true),
        ];
        for (order, position, ascends) in cases {
            assert_eq!(page(order, position).ascends(), ascends, "{order:?} {position:?}");
        }
        let asked = page(Order::Newest, Position::After(task)).question(doc! { "queue": 1 }, None);
        assert_eq!(asked.0, doc! { "queue": 1, "_id": { "$lt": task } });
    }

    #[test]
    fn each_status_is_asked_for_in_its_index() {
        let (queue, page) = (QueueId(ObjectId::new()), page(Order::Oldest, Position::First));
        let all: BTreeSet<i64> = [-2, 1, 0, 7].into();
        let asked = |phase: Phase, among: &BTreeSet<i64>| {
            page.of_phase(phase, &[queue], among).map(|(filter, _)| filter.get("status").cloned())
        };
        let statuses = |statuses: &[i64]| Some(Some(Bson::from(doc! { "$in": statuses.to_vec() })));
        assert_eq!(asked(Phase::Queued, &all), statuses(&[-2]));
        assert_eq!(asked(Phase::Running, &all), statuses(&[0]));
        assert_eq!(asked(Phase::Completed, &all), statuses(&[1, 7]));
        assert_eq!(asked(Phase::Completed, &[-2].into()), None);
    }

    #[test]
    fn ids_have_their_second() {
        let at = |millis| Some(DateTime::from_millis(millis));
        let id = |text: &str| ObjectId::parse_str(text).unwrap();
        assert!(Created::default().is_any() && Created::default().ids().is_empty());
        let between = Created { since: at(16_000), until: at(32_000) };
        let (first, last) = (id("000000100000000000000000"), id("0000001fffffffffffffffff"));
        assert_eq!(between.ids(), doc! { "$gte": first, "$lte": last });
        let odd = Created { since: at(15_001), until: at(-5) };
        assert_eq!(odd.ids(), doc! { "$gte": first, "$lte": id("00000000ffffffffffffffff") });
    }
}
