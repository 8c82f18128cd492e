//! The tasks that others come after. New blocked tasks give those a mark, then it is looked how they are; and who waits for
//! them is told when they have ended.

use std::collections::{BTreeSet, HashMap};

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_operation::operation;
use mongodb::Collection;

use super::apply::{released, way_of};
use super::blocked::{AfterWhen, Blocked, Parent, waits_for_none};
use super::{Parts, Passed, ended_parents, new_ones};
use crate::model::{QueueId, Status, TaskId};
use crate::store::{Store, StoreError, Stored, as_majority, collect_ids, integer, put, with};

/// So many tasks are linked at once.
const AT_ONCE: usize = 500;

/// To so many others at most.
const PARENTS: usize = 20_000;

/// How many steps a task takes at most until it waits for something, or for nothing: to those that it comes after, and from
/// there to its locks.
const STEPS: usize = 3;

/// So many ended tasks are looked at at once.
const ENDED: i64 = 100;

/// So many of those that wait for them are read at once.
const WAITING: i64 = 500;

/// So many are told at once.
const TOLD: u64 = 2_000;

impl Store {
    /// Links tasks that were made or blocked just now. If that fails, a DEN does it.
    pub(crate) async fn link_at_once(&self, tasks: &[TaskId]) {
        for batch in tasks.chunks(AT_ONCE) {
            let ids: Vec<ObjectId> = batch.iter().map(|task| task.0).collect();
            for _ in 0..STEPS {
                match self.link(doc! { "_id": { "$in": &ids } }).await {
                    Ok(passed) if passed.more => {}
                    Ok(_) => break,
                    Err(error) => {
                        tracing::warn!(%error, tasks = tasks.len(), "cannot link blocked tasks: a DEN does it");
                        return;
                    }
                }
            }
        }
    }

    pub(super) async fn link_new(&self) -> Result<Passed, StoreError> {
        let mut parts = Parts::default();
        parts.note(self.link(Document::new()).await)?;
        if parts.is_forbidden() {
            // Those that cannot go to their locks are not in the way of others.
            let others =
                [doc! { "waiting_for.0": { "$exists": true } }, doc! { "locks.0": { "$exists": false } }];
            parts.note(self.link(doc! { "$or": others.to_vec() }).await)?;
        }
        parts.end()
    }

    async fn link(&self, only: Document) -> Result<Passed, StoreError> {
        let found = self.blocked(with(new_ones(), only), integer(AT_ONCE)).await?;
        let (waiting, others): (Vec<Blocked>, Vec<Blocked>) =
            found.into_iter().partition(|task| !task.waiting_for.is_empty());
        let mut parts = Parts::default();
        parts.note(self.link_to_parents(&waiting).await)?;
        parts.note(self.pass_on(others).await)?;
        parts.end()
    }

    async fn link_to_parents(&self, waiting: &[Blocked]) -> Result<Passed, StoreError> {
        let mut parents = BTreeSet::new();
        let mut linked = 0;
        for task in waiting {
            if linked > 0 && parents.len() + task.waiting_for.len() > PARENTS {
                break;
            }
            parents.extend(task.waiting_for.iter().copied());
            linked += 1;
        }
        let Some(waiting) = waiting.get(..linked).filter(|waiting| !waiting.is_empty()) else {
            return Ok(Passed::default());
        };
        for task in waiting {
            // Else others would wait with it for locks that it had. Who may not do that has it done when locks are looked at again.
            StoreError::unless_forbidden(self.leave_earlier_rounds(task).await)?;
        }
        let parents: Vec<ObjectId> = parents.into_iter().collect();
        // Before they are looked at, and known to a majority, as is all that was written before: also that they are there.
        let unmarked = doc! { "_id": { "$in": &parents }, "dependents": { "$ne": true } };
        self.update_found(unmarked, doc! { "$set": { "dependents": true } }).await?;
        let states = self.parent_states(&parents).await?;
        self.apply("new", waiting, &states).await
    }

    async fn pass_on(&self, tasks: Vec<Blocked>) -> Result<Passed, StoreError> {
        let now = self.time_for(&tasks).await?;
        let mut parts = Parts::default();
        let mut groups: HashMap<(Status, Option<QueueId>), Vec<Bson>> = HashMap::new();
        let mut to_locks = Vec::new();
        for task in tasks {
            match way_of(&task, now) {
                Status::Blocked => to_locks.push(task),
                way => groups.entry((way, task.queue)).or_default().push(task.id.into()),
            }
        }
        for ((way, queue), ids) in groups {
            let still = doc! { "status": Status::Blocked, "gate": "new", "waiting_for": waits_for_none() };
            let update = released(self, way).note("it waits for nothing");
            let released = self.unblock((ids, still), update, queue, way).await;
            let passed = |released| Passed { released, more: released > 0, ..Passed::default() };
            parts.note(released.map(passed))?;
        }
        parts.note(self.enter_locks(&to_locks).await)?;
        parts.end()
    }
}

pub(super) type States = HashMap<ObjectId, Parent>;

impl Store {
    /// Those of `tasks` that there are not, neither in `tasks` nor in the archive, in their order.
    #[operation(tasks = tasks.len())]
    pub async fn missing_tasks(&self, tasks: &[TaskId]) -> Result<Vec<TaskId>, StoreError> {
        let known = self.queues_of_tasks(tasks).await?;
        Ok(tasks.iter().filter(|task| !known.contains_key(*task)).copied().collect())
    }

    /// The queues of those of `tasks` that there are, archived ones among them. `None`: it is of no queue.
    #[operation(tasks = tasks.len())]
    pub async fn queues_of_tasks(
        &self,
        tasks: &[TaskId],
    ) -> Result<HashMap<TaskId, Option<QueueId>>, StoreError> {
        let ids: Vec<ObjectId> = tasks.iter().map(|task| task.0).collect();
        let found = self.tasks_by_id(&ids, &["queue"]).await?;
        let queue = |task: &Document| task.get_object_id("queue").ok().map(QueueId);
        Ok(found.iter().map(|(id, task)| (TaskId(*id), queue(task))).collect())
    }

    /// How these tasks are, as a majority has it.
    async fn parent_states(&self, ids: &[ObjectId]) -> Result<States, StoreError> {
        let mut states = states_in(self.tasks(), ids, false).await?;
        let rest: Vec<ObjectId> = ids.iter().filter(|id| !states.contains_key(*id)).copied().collect();
        if !rest.is_empty() {
            states.extend(states_in(self.archive(), &rest, true).await?);
        }
        for id in rest {
            states.entry(id).or_insert(Parent::Gone);
        }
        Ok(states)
    }

    pub(super) async fn tell_of_ends(&self) -> Result<Passed, StoreError> {
        let ended = self.ended_with_dependents().await?;
        let ids: Vec<ObjectId> = ended.iter().filter_map(|task| task.get_object_id("_id").ok()).collect();
        if ids.is_empty() {
            return Ok(Passed::default());
        }
        // Before those who wait are read: one that is new now, and waits a moment later, may be missed by that.
        let awaited = self.awaited_by_new_ones(&ids).await?;
        let mut passed = Passed::default();
        let mut last: Option<ObjectId> = None;
        loop {
            let mut filter = doc! { "gate": "after", "waiting_for": { "$in": &ids } };
            put(&mut filter, "_id", last.map(|last| doc! { "$gt": last }));
            let waiting = self.blocked(filter, WAITING).await?;
            passed.add(self.tell(&waiting, &ids).await?);
            last = waiting.last().map(|task| task.id);
            if i64::try_from(waiting.len()).is_ok_and(|found| found < WAITING) {
                break;
            }
            if passed.released + passed.cancelled + passed.linked > TOLD {
                return Ok(passed); // They keep their mark.
            }
        }
        let is_told = |task: &&Document| task.get_object_id("_id").is_ok_and(|id| !awaited.contains(&id));
        let told: Vec<Document> = ended.iter().filter(is_told).cloned().collect();
        passed.more |= self.have_told(&told).await? > 0;
        Ok(passed)
    }

    /// Those of these tasks that new ones are about to wait for. Whoever links these may have read before the end that the task
    /// goes on: then they wait for it, and are to be told.
    async fn awaited_by_new_ones(&self, ids: &[ObjectId]) -> Result<BTreeSet<ObjectId>, StoreError> {
        let pipeline = [
            doc! { "$match": {
                "status": Status::Blocked, "gate": "new", "waiting_for": { "$in": ids, "$type": "array" },
            } },
            doc! { "$project": { "waiting_for": { "$setIntersection": ["$waiting_for", ids] } } },
            doc! { "$unwind": "$waiting_for" },
            doc! { "$group": { "_id": "$waiting_for" } },
        ];
        Ok(collect_ids(self.tasks().aggregate(pipeline)).await?.into_iter().collect())
    }

    /// Judges those that wait by those of these that they wait for. They are looked at once more: one that was tried again since, and for whose
    /// next end a task waits by now, has not ended for that.
    async fn tell(&self, waiting: &[Blocked], ended: &[ObjectId]) -> Result<Passed, StoreError> {
        let ended: BTreeSet<&ObjectId> = ended.iter().collect();
        // Whether none of them has succeeded is known by all of them only.
        let known = waiting.iter().flat_map(|task| {
            task.waiting_for.iter().filter(|id| task.when == AfterWhen::Any || ended.contains(*id))
        });
        let known: BTreeSet<ObjectId> = known.copied().collect();
        let states = self.parent_states(&known.into_iter().collect::<Vec<_>>()).await?;
        self.apply("after", waiting, &states).await
    }

    /// Ended tasks with dependents that have not been told, as a majority has them.
    async fn ended_with_dependents(&self) -> Result<Vec<Document>, StoreError> {
        let mut ended = Vec::new();
        for filter in ended_parents().map(|filter| self.without_left_alone(filter)) {
            let only = doc! { "status": 1, "mtime": 1, "attempt": 1 };
            ended.extend(as_majority(&self.tasks(), filter, only, ENDED).await?);
        }
        Ok(ended)
    }

    /// Notes that the dependents of these were told, unless they have been tried again since. The mark stays as `false`,
    /// so that another try makes it true again.
    async fn have_told(&self, ended: &[Document]) -> Result<u64, StoreError> {
        let tasks = self.tasks();
        let update = doc! { "$set": { "dependents": false }, "$unset": { "awaited": "" } };
        let told = ended.iter().map(|task| {
            let field = |name: &str| task.get(name).cloned().unwrap_or(Bson::Null);
            let same = doc! {
                "_id": field("_id"), "status": field("status"), "mtime": field("mtime"),
                "attempt": field("attempt"), "dependents": true,
            };
            let told = tasks.update_one(same, update.clone());
            async move { (field("_id"), told.await.map_err(StoreError::from)) }
        });
        let mut changed = 0;
        for (id, told) in futures::future::join_all(told).await {
            match told {
                Ok(told) => changed += told.modified_count,
                Err(error) if error.is_about_one() => {
                    if let Some(id) = id.as_object_id() {
                        self.set_aside(TaskId(id), &error.to_string()).await;
                    }
                }
                Err(error) => return Err(error),
            }
        }
        Ok(changed)
    }

    /// Lets those look again that wait for tasks which have left `tasks`.
    pub(crate) async fn ask_dependents_again(&self, gone: &[Bson]) -> Result<(), StoreError> {
        if gone.is_empty() {
            return Ok(());
        }
        let waiting = doc! { "status": Status::Blocked, "gate": "after", "waiting_for": { "$in": gone } };
        self.update_found(waiting, doc! { "$set": { "gate": "new" } }).await?;
        Ok(())
    }
}

async fn states_in(
    collection: Collection<Stored>,
    ids: &[ObjectId],
    is_archived: bool,
) -> Result<States, StoreError> {
    let found = as_majority(&collection, doc! { "_id": { "$in": ids } }, doc! { "status": 1 }, 0).await?;
    let state = |task: &Document| {
        let parent = Status::stored(task).map_or(Parent::Live, |status| Parent::of(status, is_archived));
        Some((task.get_object_id("_id").ok()?, parent))
    };
    Ok(found.iter().filter_map(state).collect())
}
