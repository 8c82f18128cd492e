//! Slots of queues that nodes hold.
//!
//! Each of the `threads` slots of a queue is given once: a node that starts tasks in one has a document of it here, whose `_id` is the slot. It keeps that
//! from task to task, so a task that takes the place of another costs nothing but its own update. No index over tasks is needed.
//!
//! Who holds a slot is told by an id that a DEN draws anew at each start, its *holder*. With each heartbeat the holder gets a *fence*: a moment by the server's
//! clock, [`FENCE`] after the heartbeat before it. Every start carries the fence in its filter, so that none takes effect later. A DEN that finds that its fence
//! had passed draws another holder, and holds nothing any more: what it sent before is refused, and what it held is nobody's to use. Whoever has seen for
//! longer than that that a holder does not beat takes its slots back, save those in which tasks are claimed or running. The model `holds` checks this.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};
use disbatch_operation::operation;

use crate::keys::duplicates;
use crate::model::{NodeName, QueueId, TaskId};
use crate::node::HOLDERS;
use crate::store::{Store, StoreError, collect, count_of, integer, with};

/// Starts of a holder are refused so long after the last heartbeat but one.
pub const FENCE: Duration = Duration::from_secs(5);

/// The server ends a command that starts tasks after so long: it looks at the fence when the command begins.
pub const STARTS_TAKE: Duration = Duration::from_secs(4);

/// Who has been silent for so long has started nothing since, and can start nothing any more: longer than the other two together, as servers that follow each
/// other as primary may have clocks that differ.
pub const SILENT: Duration = Duration::from_secs(10);

/// Who holds slots: one start of a DEN, or what it goes on as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Holder(pub ObjectId);

impl Holder {
    pub fn drawn() -> Self {
        Self(ObjectId::new())
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldSlot {
    pub queue: QueueId,
    pub number: u64,
    pub holder: Holder,
    pub node: String,
}

impl HeldSlot {
    fn read(stored: &Document) -> Option<Self> {
        let id = stored.get_document("_id").ok()?;
        Some(Self {
            queue: QueueId(id.get_object_id("queue").ok()?),
            number: count_of(id, "slot")?,
            holder: Holder(stored.get_object_id("holder").ok()?),
            node: stored.get_str("node").unwrap_or_default().to_owned(),
        })
    }
}

fn slot_of(task: &Document) -> Option<(QueueId, u64)> {
    Some((QueueId(task.get_object_id("queue").ok()?), count_of(task, "slot")?))
}

fn key(queue: QueueId, number: u64) -> Document {
    doc! { "queue": queue, "slot": integer(number) }
}

impl Store {
    /// Has `holder` hold those of these slots that nobody holds. Returns which these are.
    ///
    /// # Errors
    /// The database cannot be reached, and any of them may be held now; or this user may not write here.
    #[operation(queue = %queue)]
    pub async fn hold_slots(
        &self,
        queue: QueueId,
        (holder, node): (Holder, &NodeName),
        slots: &[u64],
    ) -> Result<Vec<u64>, StoreError> {
        let one = |number: &u64| doc! { "_id": key(queue, *number), "queue": queue, "holder": holder.0, "node": node };
        let held = self.slots().insert_many(slots.iter().map(one)).ordered(false).await;
        let others = duplicates(held)?;
        Ok(slots.iter().enumerate().filter(|(at, _)| !others.contains(at)).map(|(_, slot)| *slot).collect())
    }

    #[operation]
    pub async fn held_slots(&self, queues: &[QueueId]) -> Result<Vec<HeldSlot>, StoreError> {
        self.held_slots_like(doc! { "queue": { "$in": queues } }).await
    }

    /// Who holds slots, and who of them has said that it starts nothing any more.
    #[operation]
    pub async fn holders(&self) -> Result<HashMap<Holder, bool>, StoreError> {
        let pipeline = [doc! { "$group": { "_id": "$holder", "closed": { "$max": "$closed" } } }];
        let found = collect(self.slots().aggregate(pipeline)).await?;
        let holder = |group: &Document| {
            Some((Holder(group.get_object_id("_id").ok()?), group.get_bool("closed").unwrap_or(false)))
        };
        Ok(found.iter().filter_map(holder).collect())
    }

    async fn held_slots_like(&self, filter: Document) -> Result<Vec<HeldSlot>, StoreError> {
        let found = collect(self.slots().find(filter)).await?;
        Ok(found.iter().filter_map(HeldSlot::read).collect())
    }

    /// Gives up slots of `holder`, in which no task of its is any more.
    ///
    /// # Errors
    /// The database cannot be reached: nobody knows when it is done, so the holder must not use them again.
    #[operation]
    pub async fn release_slots(&self, holder: Holder, slots: &[(QueueId, u64)]) -> Result<(), StoreError> {
        let ids: Vec<Document> = slots.iter().map(|(queue, number)| key(*queue, *number)).collect();
        self.slots().delete_many(doc! { "_id": { "$in": ids }, "holder": holder.0 }).await?;
        Ok(())
    }

    /// Says that `holder` starts nothing any more: what it still holds may be taken back as soon as no task is in it.
    #[operation]
    pub async fn close_slots(&self, holder: Holder) -> Result<(), StoreError> {
        self.slots().update_many(doc! { "holder": holder.0 }, doc! { "$set": { "closed": true } }).await?;
        Ok(())
    }

    /// Takes back the slots of holders that start nothing any more, save those in which a task is claimed or running. Returns how many.
    #[operation]
    pub async fn take_back_slots(&self, of: &HashSet<Holder>) -> Result<u64, StoreError> {
        if of.is_empty() {
            return Ok(0);
        }
        let ids: Vec<ObjectId> = of.iter().map(|holder| holder.0).collect();
        let theirs = doc! { "holder": { "$in": ids } };
        // Behind a majority, so that what is read next is read from the present primary, and shows all that they have started.
        let open = with(theirs.clone(), doc! { "closed": { "$ne": true } });
        self.slots().update_many(open, doc! { "$set": { "closed": true } }).await?;
        let held = self.held_slots_like(theirs.clone()).await?;
        let queues: HashSet<QueueId> = held.iter().map(|slot| slot.queue).collect();
        // By an index it is in the order of the statuses, so a task that is started meanwhile is not passed by.
        let taken = self.taken_tasks(doc! { "queue": { "$in": queues } }).await?;
        let busy: HashSet<(QueueId, u64)> = taken.iter().filter_map(slot_of).collect();
        let free = held.iter().filter(|slot| !busy.contains(&(slot.queue, slot.number)));
        let free: Vec<Document> = free.map(|slot| key(slot.queue, slot.number)).collect();
        if free.is_empty() {
            return Ok(0);
        }
        let these = with(theirs, doc! { "_id": { "$in": free } });
        Ok(self.slots().delete_many(these).await?.deleted_count)
    }

    /// When each holder has shown itself last, by the server's clock.
    #[operation]
    pub async fn beats_of_holders(&self) -> Result<HashMap<Holder, DateTime>, StoreError> {
        let nodes = self.nodes();
        let found =
            collect(nodes.find(doc! { HOLDERS: { "$exists": true } }).projection(doc! { HOLDERS: 1 }))
                .await?;
        Ok(found.iter().flat_map(crate::node::beats).collect())
    }

    #[operation]
    pub async fn still_taken(&self, tasks: &[TaskId]) -> Result<HashMap<TaskId, (QueueId, u64)>, StoreError> {
        let found = self.taken_tasks(doc! { "_id": { "$in": tasks } }).await?;
        let one = |task: &Document| Some((TaskId(task.get_object_id("_id").ok()?), slot_of(task)?));
        Ok(found.iter().filter_map(one).collect())
    }

    async fn taken_tasks(&self, filter: Document) -> Result<Vec<Document>, StoreError> {
        let filter = with(filter, doc! { "status": { "$in": [-1, 0] } });
        collect(self.tasks().find(filter).projection(doc! { "queue": 1, "slot": 1 })).await
    }
}
