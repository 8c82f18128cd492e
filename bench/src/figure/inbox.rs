//! `inbox`: what it costs to submit by an insert of one's own, beside `POST /tasks`.

use std::time::Duration;

use anyhow::ensure;
use bson::oid::ObjectId;
use bson::{Document, doc};
use disbatch_core::model::QueueId;
use futures::FutureExt;
use serde_json::json;
use tokio::time::{Instant, interval};

use crate::compare::{Finding, Goal, ratio};
use crate::figure::{Figure, Rounds, Turn};
use crate::progress::Progress;
use crate::results::{Results, Sample, Series};
use crate::statistics::{Summary, rate};
use crate::world::Kind;
use crate::world::node::Node;
use crate::world::plugins::{STARTS, TRUE};
use crate::world::starts::Starts;
use crate::world::web::Web;

const NAME: &str = "inbox";

const METHOD: &str = "100,000 tasks for a queue with threads 0, in inserts of 1,000 documents into the inbox, one after the other, until the DEN has \
    moved the last one; beside them the same by POST /tasks, 1,000 in each request. Then 30 tasks one by one on an idle node, from before the insert into \
    the inbox to the plugin's first moment, and the same by Disbatch's own submission; the difference is of the medians of a round";

pub const FIGURE: Figure = Figure {
    name: NAME,
    method: METHOD,
    rounds: Rounds::Every,
    measure: |turn| measure(turn).boxed_local(),
    findings,
};

static MOVED: Series = Series::fixed(NAME, "inbox_per_s", "tasks/s through the inbox");
static POSTED: Series = Series::fixed(NAME, "post_per_s", "tasks/s by POST /tasks");
static WAIT: Series =
    Series::fixed(NAME, "start_ms", "until it starts, through the inbox, median of a round, ms");
static DIRECT: Series =
    Series::fixed(NAME, "direct_start_ms", "until it starts, submitted directly, median of a round, ms");
static MORE: Series = Series::fixed(NAME, "more_ms", "what the inbox adds to it, ms");

const TASKS: u32 = 100_000;
const BATCH: u32 = 1_000;
const ALONE: u32 = 30;

const LOOK_EVERY: Duration = Duration::from_millis(10);

/// If it takes longer until everything is moved, something is broken.
const PATIENCE: Duration = Duration::from_secs(300);

async fn measure(turn: Turn<'_>) -> anyhow::Result<Vec<Sample>> {
    let setup = turn.world.setup(NAME, Kind::ReplicaSet).await?;
    let node = Node::start(&setup).await?;
    let mut starts = Starts::open(turn.world)?;
    node.finish(async |node| {
        let tasks = turn.args.tasks_or(TASKS).next_multiple_of(BATCH);
        let web = turn.world.web_beside(&setup).await?;
        let both = [true, false].map(|inbox| inbox == turn.round.is_multiple_of(2));
        let mut samples = Vec::new();
        for through_inbox in both {
            turn.begin(&format!(
                "{NAME}: {tasks} {}",
                if through_inbox { "through it" } else { "by POST /tasks" }
            ));
            let queue = node.create_queue(TRUE, 0).await?;
            let begun = Instant::now();
            if through_inbox {
                insert(node, queue, tasks, turn.progress).await?;
            } else {
                post(&web, queue, tasks, turn.progress).await?;
            }
            let seconds = begun.elapsed().as_secs_f64();
            let made = node.database.collection::<Document>("tasks");
            let made = made.count_documents(doc! { "queue": queue, "status": -2 }).await?;
            ensure!(made == u64::from(tasks), "not all tasks are queued");
            let series = if through_inbox { &MOVED } else { &POSTED };
            samples.extend(rate(tasks, seconds).map(|rate| series.sample(rate)));
        }
        Web::end(web).await?;
        samples.extend(alone(turn, node, &mut starts).await?);
        turn.end(&samples);
        Ok(samples)
    })
    .await
}

fn document(queue: QueueId) -> Document {
    doc! { "_id": ObjectId::new(), "v": 1, "queue": queue, "params": { "n": 1 } }
}

async fn insert(node: &Node, queue: QueueId, tasks: u32, progress: &Progress) -> anyhow::Result<()> {
    let inbox = node.database.collection::<Document>("inbox");
    for number in 0..tasks / BATCH {
        inbox.insert_many((0..BATCH).map(|_| document(queue))).await?;
        progress.at(u64::from(number * BATCH), u64::from(tasks));
    }
    let begun = Instant::now();
    let mut looks = interval(LOOK_EVERY);
    while inbox.find_one(doc! {}).await?.is_some() {
        ensure!(begun.elapsed() < PATIENCE, "the inbox is not empty after {} s", PATIENCE.as_secs());
        looks.tick().await;
    }
    Ok(())
}

async fn post(web: &Web, queue: QueueId, tasks: u32, progress: &Progress) -> anyhow::Result<()> {
    let params: Vec<_> = (0..BATCH).map(|_| json!({ "n": 1 })).collect();
    for number in 0..tasks / BATCH {
        web.submit_all(queue, &params).await?;
        progress.at(u64::from(number * BATCH), u64::from(tasks));
    }
    Ok(())
}

/// How long a task waits that is the only one.
async fn alone(turn: Turn<'_>, node: &Node, starts: &mut Starts) -> anyhow::Result<Vec<Sample>> {
    let queue = node.create_queue(STARTS, 8).await?;
    let inbox = node.database.collection::<Document>("inbox");
    turn.begin(&format!("{NAME}: one by one"));
    let through = async || {
        inbox.insert_one(document(queue)).await?;
        Ok(())
    };
    let through = starts.waits(ALONE, through, turn.progress).await?;
    let direct =
        starts.waits(ALONE, async || super::latency::submit(node, queue).await, turn.progress).await?;
    let Some((through, direct)) = Summary::of(&through).zip(Summary::of(&direct)) else {
        return Ok(Vec::new());
    };
    let (through, direct) = (through.median, direct.median);
    Ok(vec![WAIT.sample(through), DIRECT.sample(direct), MORE.sample(through - direct)])
}

fn findings(results: &Results) -> Vec<Finding> {
    let more = Finding::new(MORE.key.clone(), MORE.label.clone(), results.values(&MORE).to_vec());
    vec![
        Finding::new(
            "inbox_over_post",
            "through the inbox / by POST /tasks",
            ratio(results, &MOVED, &POSTED),
        )
        .with(Goal::AtLeast(0.8)),
        more.with(Goal::AtMost(4.0)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_inbox_and_a_late_start_are_seen() {
        let mut results = Results::default();
        results.add(vec![MOVED.sample(700.0), POSTED.sample(1000.0), MORE.sample(3.0)]);
        let reached: Vec<_> = findings(&results).iter().map(Finding::is_reached).collect();
        assert_eq!(reached, [Some(false), Some(true)]);
    }
}
