//! `growth`: whether anything gets slower as finished tasks pile up.

mod look;
mod series;

use std::time::Duration;

use anyhow::{Context, ensure};
use bson::doc;
use disbatch_core::model::{QueueId, Selector};
use disbatch_core::queue::new_queue_id;
use futures::FutureExt;
use serde_json::Value;
use tokio::time::{Instant, sleep};

use crate::figure::{Figure, Rounds, Turn};
use crate::results::Sample;
use crate::world::Kind;
use crate::world::fill::{self, fill};
use crate::world::node::Node;
use crate::world::web::Web;
use series::findings;

pub const NAME: &str = "growth";

const METHOD: &str = "a DEN and a DCI on one database, with 0, a tenth of, and all of --grow finished tasks in 100 \
    queues (0: with 1,000 in one queue, for the pages), inserted past Disbatch, with all indexes, and audited by \
    POST /counters/audit; 5 s after a checkpoint. Each time: claims of one task, and of 8 in one call, from a new queue \
    of 2,400, and the start and end of 8; three drains of 3,000 no-op tasks by the DEN, 64 wide, warm; 200 times \
    GET /queues, GET /plugins (no database), and GET /tasks of one queue, 100 finished tasks, newest first, and \
    what comes after them; the look at everything that an idle DEN makes every two seconds; and what the idle DEN costs, in \
    six windows of 4 s: opcounters, and the time that the server spent on tasks, queues and nodes ($collStats, \
    latencyStats). Last: claims of 8 with a tenth of --grow queued tasks in their queue. Ratios are of medians";

pub const FIGURE: Figure = Figure {
    name: NAME,
    method: METHOD,
    rounds: Rounds::First,
    measure: |turn| measure(turn).boxed_local(),
    findings,
};

const QUEUES: u32 = 100;

/// What the queue whose pages are read has from the beginning.
const PAGES: u32 = 1_000;

/// How long the server gets to write and tidy up what was filled in.
const SETTLE: Duration = Duration::from_secs(5);

/// How long an audit may take to come to the end of all queues.
const AUDIT_DEADLINE: Duration = Duration::from_secs(600);

const LOOK_EVERY: Duration = Duration::from_millis(500);

/// A database that grows.
struct Ground<'a> {
    turn: Turn<'a>,
    node: &'a mut Node,
    web: &'a Web,
    queues: Vec<QueueId>,
    /// So many finished tasks in each queue.
    each: u32,
}

async fn measure(turn: Turn<'_>) -> anyhow::Result<Vec<Sample>> {
    let setup = turn.world.setup(NAME, Kind::ReplicaSet).await?;
    let node = Node::start(&setup).await?;
    node.finish(async |node| {
        let web = turn.world.web_beside(&setup).await?;
        let mut queues = Vec::new();
        for number in 0..QUEUES {
            let queue = new_queue_id();
            node.store
                .insert_queue(
                    doc! { "_id": queue, "name": format!("grown{number}"), "plugin": "Bench::True" },
                )
                .await?;
            queues.push(queue);
        }
        let mut ground = Ground { turn, node, web: &web, queues, each: 0 };
        let measured = ground.grow().await;
        web.end().await?;
        measured
    })
    .await
}

impl Ground<'_> {
    async fn grow(&mut self) -> anyhow::Result<Vec<Sample>> {
        let most = self.turn.args.grow.get();
        let mut samples = Vec::new();
        self.turn.begin(&format!("{NAME}: filling"));
        let first: Vec<QueueId> = self.queues.iter().take(1).copied().collect();
        fill(&self.node.database, &first, PAGES, fill::Kind::Finished, self.turn.progress).await?;
        for level in [0, most / 10, most] {
            self.fill_to(level).await?;
            self.settle().await?;
            let new = look::everything(self, level).await.with_context(|| format!("at {level} tasks"))?;
            self.turn.end(&new);
            samples.extend(new);
        }
        samples.extend(self.deep(most / 10, most).await?);
        Ok(samples)
    }

    /// All queues get the same, until there are so many.
    async fn fill_to(&mut self, level: u32) -> anyhow::Result<()> {
        let each = (level / QUEUES).saturating_sub(self.each);
        if each == 0 {
            return Ok(());
        }
        self.turn.begin(&format!("{NAME}: filling to {level}"));
        let began = Instant::now();
        fill(&self.node.database, &self.queues, each, fill::Kind::Finished, self.turn.progress).await?;
        self.each += each;
        self.note(&format!("filled to {level} in {:.0} s", began.elapsed().as_secs_f64()));
        Ok(())
    }

    fn note(&self, what: &str) {
        self.turn.progress.note(&format!("{NAME}: {what}"));
    }

    /// Has the counters audited, and waits until the server is done with what was filled in.
    async fn settle(&mut self) -> anyhow::Result<()> {
        self.turn.begin(&format!("{NAME}: waiting for the audit"));
        self.web.post("/counters/audit").await?;
        let began = Instant::now();
        while !self.are_counted(&self.web.get("/queues").await?) {
            self.node.check_alive()?;
            ensure!(began.elapsed() < AUDIT_DEADLINE, "the queues are not counted right");
            sleep(LOOK_EVERY).await;
        }
        self.node.admin().run_command(doc! { "fsync": 1 }).await?;
        sleep(SETTLE).await;
        Ok(())
    }

    /// Whether the DCI shows what was filled in: one that counts wrong would be fast for nothing.
    fn are_counted(&self, shown: &Value) -> bool {
        let completed = |queue: &QueueId| {
            let id = queue.to_string();
            let mut all = shown.as_array().into_iter().flatten();
            all.find(|queue| queue["id"] == id.as_str())?["completed"].as_u64()
        };
        self.queues.iter().enumerate().all(|(number, queue)| {
            let base = if number == 0 { PAGES } else { 0 };
            completed(queue) == Some(u64::from(self.each + base))
        })
    }

    /// Claims from a queue in which very many tasks wait.
    async fn deep(&mut self, queued: u32, level: u32) -> anyhow::Result<Vec<Sample>> {
        self.turn.begin(&format!("{NAME}: {queued} queued tasks"));
        let queue = self.node.create_queue("Bench::True", 0).await?;
        fill(&self.node.database, &[queue], queued, fill::Kind::Queued, self.turn.progress).await?;
        self.node.admin().run_command(doc! { "fsync": 1 }).await?;
        sleep(SETTLE).await;
        let queue = self.node.store.find_queue(&Selector::Id(queue.0)).await?.context("the queue is gone")?;
        look::deep_claims(self.node, &queue, level).await
    }
}
