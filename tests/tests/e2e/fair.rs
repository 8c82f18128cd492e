//! Fair queues and queues that go by priority: whose task is claimed next, by one DEN and by several at once, and that
//! groups have no more tasks at once than they may. Here the operations themselves are called, as a DEN does.

mod places;
mod told;
mod turns;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_core::model::{Queue, QueueId, TaskId};
use disbatch_core::store::Store;
use disbatch_core::task::{Ahead, Batch, Claim, Claimant, RunWrite, TaskOptions};
use disbatch_tests::World;

use crate::claims::{claimant, queue, start, success};

/// A queue, and one DEN's view of it.
struct Scene {
    world: World,
    store: Store,
    id: QueueId,
    den: Claimant,
    ahead: Ahead,
    slots: u64,
}

impl Scene {
    async fn new(fields: Document) -> anyhow::Result<Self> {
        let world = World::new().await?;
        world.store().ensure_indexes().await?;
        let mut all = doc! { "threads": 100_000 };
        all.extend(fields);
        let id = world.queue("Demo", all).await?;
        let (store, den) = (world.store(), claimant("n1"));
        Ok(Self { world, store, id, den, ahead: Ahead::default(), slots: 0 })
    }

    async fn fair(fields: Document) -> anyhow::Result<Self> {
        let mut all = doc! { "policy": "fair" };
        all.extend(fields);
        Self::new(all).await
    }

    async fn submit(&self, group: &str, priority: Option<i64>, tasks: usize) -> anyhow::Result<Vec<TaskId>> {
        submit(&self.store, self.id, group, (priority, tasks)).await
    }

    /// Puts tasks there as Perl's programs do.
    async fn submit_as_perl(&self, tasks: usize) -> anyhow::Result<Vec<TaskId>> {
        let task = |_| doc! { "_id": ObjectId::new(), "queue": self.id, "status": -2, "node": Bson::Null, "params": {} };
        let tasks: Vec<Document> = (0..tasks).map(task).collect();
        let ids = tasks.iter().filter_map(|task| task.get_object_id("_id").ok()).map(TaskId).collect();
        self.world.tasks().insert_many(tasks).await?;
        Ok(ids)
    }

    async fn queue(&self) -> anyhow::Result<Queue> {
        queue(&self.world, self.id).await
    }

    async fn batch(&mut self, number: u64) -> anyhow::Result<Batch> {
        let slots: Vec<u64> = (self.slots..self.slots + number).collect();
        self.slots += number;
        let queue = self.queue().await?;
        Ok(self.store.claim_tasks(&queue, &self.den, &slots, &mut self.ahead).await?)
    }

    /// Claims so many at once.
    async fn claim(&mut self, number: u64) -> anyhow::Result<Vec<Claim>> {
        Ok(self.batch(number).await?.claims)
    }

    /// Claims one after the other. Returns the groups, in order.
    async fn groups_one_by_one(&mut self, number: usize) -> anyhow::Result<Vec<String>> {
        let mut had = Vec::new();
        for _ in 0..number {
            had.extend(groups(&self.claim(1).await?));
        }
        Ok(had)
    }
}

async fn submit(
    store: &Store,
    queue: QueueId,
    group: &str,
    (priority, tasks): (Option<i64>, usize),
) -> anyhow::Result<Vec<TaskId>> {
    let group = Some(group.to_owned()).filter(|group| !group.is_empty());
    let options = TaskOptions { group, priority, ..TaskOptions::default() };
    Ok(store.submit_tasks(queue, vec![doc! {}; tasks], &options).await?.ids)
}

fn groups(claims: &[Claim]) -> Vec<String> {
    claims.iter().map(|claim| claim.group().to_owned()).collect()
}

fn tasks(claims: &[Claim]) -> Vec<TaskId> {
    claims.iter().map(|claim| claim.task).collect()
}

/// Starts the claimed tasks and ends them.
async fn run(store: &Store, claims: &[Claim]) -> anyhow::Result<()> {
    let starts: Vec<RunWrite> = claims.iter().map(|claim| RunWrite::Start(start(claim, store, 1))).collect();
    let end = |claim: &Claim| RunWrite::Finish { run: claim.run(), finish: success("done\n") };
    let ends: Vec<RunWrite> = claims.iter().map(end).collect();
    for writes in [starts, ends] {
        for written in store.write_runs(&writes).await? {
            written?;
        }
    }
    Ok(())
}
