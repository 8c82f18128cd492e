//! What a task, a change stream and a question in vain cost the database: from other figures, or measured here.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use bson::doc;
use disbatch_core::clock::SystemClock;
use disbatch_core::model::{NodeName, Queue, QueueId, Selector};
use disbatch_core::queue::new_queue_id;
use disbatch_core::store::Store;
use disbatch_core::task::{Ahead, Question, TaskOptions};
use disbatch_core::wake::{Hints, Listener, follow_changes};
use futures::{StreamExt, TryStreamExt, stream};
use mongodb::options::ClientOptions;
use mongodb::{Client, Database};
use tokio::task::JoinSet;
use tokio::time::{Instant, interval, sleep};
use tokio_util::sync::CancellationToken;

use super::NAME;
use crate::figure::Turn;
use crate::figure::contention::{claimant, cost, write};
use crate::figure::contest::Entrant;
use crate::results::{Results, Sample, Series};
use crate::simulation::Assumptions;
use crate::statistics::Summary;
use crate::world::processes::{cpu_seconds, server_pid};
use crate::world::{Kind, own_uri};

const TASKS: u32 = 2_000;

/// So many submissions are on their way at once.
const SUBMITTERS: usize = 8;

/// Tasks are claimed so many at a time.
const PLACES: u64 = 8;

/// Change streams that are followed.
const STREAMS: u32 = 32;

/// Connections beside those of the streams.
const CONNECTIONS: u32 = 16;

/// How long the streams get to be told of everything.
const SETTLE: Duration = Duration::from_secs(2);

const DEADLINE: Duration = Duration::from_secs(60);
const LOOK_EVERY: Duration = Duration::from_millis(20);

static SUBMIT: Series = Series::fixed(NAME, "submit_cpu_us", "submission of a task, us of mongod's CPU");
static STREAM: Series =
    Series::fixed(NAME, "stream_cpu_us", "a change stream for each task, us of mongod's CPU");
static ASKED: Series = Series::fixed(
    NAME,
    "asked_stream_cpu_us",
    "the same of one that is asked now and then what else has changed, us of mongod's CPU",
);
static RUN: Series =
    Series::fixed(NAME, "run_cpu_us", "claim, start and end of a task, 8 together, us of mongod's CPU");
static WORN: Series = Series::fixed(
    NAME,
    "fruitless_worn_cpu_us",
    "the same after 2,000 tasks have been claimed and ended by one node",
);
static LOOK: Series =
    Series::fixed(NAME, "look_cpu_us", "a look for what any node may do, us of mongod's CPU");
static OWN_LOOK: Series =
    Series::fixed(NAME, "own_look_cpu_us", "a look of a node for itself alone, us of mongod's CPU");
static FRUITLESS: Series =
    Series::fixed(NAME, "fruitless_cpu_us", "a claim from an empty queue, us of mongod's CPU");

#[derive(Debug)]
pub struct Costs {
    pub assumptions: Assumptions,
    /// The names of what was measured.
    pub measured: Vec<&'static str>,
}

impl Costs {
    /// Takes what other figures have found, and measures the rest.
    pub async fn measure(turn: Turn<'_>) -> anyhow::Result<(Self, Vec<Sample>)> {
        let mut costs = Self::of_others(turn.results);
        let alone = Arena::new(turn, None).await?;
        let fruitless = alone.ask_in_vain("fresh").await?;
        let (look, own_look) = (alone.look(true).await?, alone.look(false).await?);
        let (submit, run) = (alone.submit().await?, alone.run().await?);
        let worn = alone.ask_in_vain("worn").await?;
        alone.end().await?;
        let mut of_streams = [0.0; 2];
        for (cost, wait) in of_streams.iter_mut().zip([true, false]) {
            let watched = Arena::new(turn, Some(wait)).await?;
            let all = watched.submit().await? + watched.run().await?;
            watched.end().await?;
            *cost = ((all - submit - run) / f64::from(STREAMS)).max(0.0);
        }
        let [stream, asked] = of_streams;
        let a = &mut costs.assumptions;
        (a.submit_us, a.stream_us, a.asked_us, a.fruitless_us) = (submit, stream, asked, fruitless);
        (a.look_us, a.own_look_us) = (look, own_look);
        if !costs.measured.contains(&"run_us") {
            a.run_us = run;
            costs.measured.push("run_us");
        }
        costs.measured.extend([
            "submit_us",
            "stream_us",
            "asked_us",
            "fruitless_us",
            "look_us",
            "own_look_us",
        ]);
        let samples = vec![
            STREAM.sample(stream),
            ASKED.sample(asked),
            SUBMIT.sample(submit),
            RUN.sample(run),
            FRUITLESS.sample(fruitless),
            WORN.sample(worn),
            LOOK.sample(look),
            OWN_LOOK.sample(own_look),
        ];
        Ok((costs, samples))
    }

    fn of_others(results: &Results) -> Self {
        let mut assumptions = Assumptions::default();
        let mut measured = Vec::new();
        let mut take = |name: &'static str, field: &mut f64, series: &Series| {
            if let Some(summary) = Summary::of(results.values(series)) {
                *field = summary.median;
                measured.push(name);
            }
        };
        let a = &mut assumptions;
        take("run_us", &mut a.run_us, &cost("256 claimers"));
        take("starts_per_second", &mut a.starts_per_second, &Entrant::Ours.series("processes", 64));
        take("connections", &mut a.connections, &Series::fixed("footprint", "connections", ""));
        Self { assumptions, measured }
    }
}

/// A queue in a database of its own, with change streams that are followed.
struct Arena {
    store: Store,
    database: Database,
    queue: Queue,
    mongod: i32,
    streams: JoinSet<()>,
    stop: CancellationToken,
}

impl Arena {
    /// `wait`: there are change streams, at which it is waited, or which are asked now and then.
    async fn new(turn: Turn<'_>, wait: Option<bool>) -> anyhow::Result<Self> {
        let streams = if wait.is_some() { STREAMS } else { 0 };
        let setup = turn.world.setup(NAME, Kind::ReplicaSet).await?;
        let mut options = ClientOptions::parse(own_uri(&setup.uri)).await?;
        options.max_pool_size = Some(CONNECTIONS + streams);
        let database = Client::with_options(options)?.database(&setup.name);
        let store = Store::with_clock(database.clone(), Arc::new(SystemClock));
        store.ensure_indexes().await?;
        let id: QueueId = new_queue_id();
        store.insert_queue(doc! { "_id": id, "name": "bench", "plugin": "Bench" }).await?;
        let queue = store.find_queue(&Selector::Id(id.0)).await?.context("the queue is gone")?;
        let mongod = server_pid(&database).await?;
        let (stop, mut followers) = (CancellationToken::new(), JoinSet::new());
        let hints: Vec<Arc<Hints>> = (0..streams).map(|_| Arc::default()).collect();
        for hints in &hints {
            followers.spawn(follow_changes(store.clone(), hints.clone(), stop.clone()));
        }
        let (began, mut look) = (Instant::now(), interval(LOOK_EVERY));
        while !hints.iter().all(|hints| hints.are_coming()) {
            ensure!(began.elapsed() < DEADLINE, "the change streams do not open");
            look.tick().await;
        }
        for hints in &hints {
            hints.needs_at_once(Listener::Node, wait == Some(true));
        }
        Ok(Self { store, database, queue, mongod, streams: followers, stop })
    }

    /// Microseconds of mongod's CPU for each of `tasks` while `work` is done and told of.
    async fn cpu(&self, tasks: u32, work: impl Future<Output = anyhow::Result<()>>) -> anyhow::Result<f64> {
        let used = || cpu_seconds(self.mongod).context("mongod has ended");
        let before = used()?;
        work.await?;
        // The server gets the same time without streams, so that what it does by itself counts in both.
        sleep(SETTLE).await;
        Ok((used()? - before) * 1e6 / f64::from(tasks))
    }

    async fn submit(&self) -> anyhow::Result<f64> {
        let one = |_| async {
            let params = vec![doc! { "commands": "a" }];
            self.store.submit_tasks(self.queue.id, params, &TaskOptions::default()).await?;
            anyhow::Ok(())
        };
        let all = stream::iter(0..TASKS).map(one).buffer_unordered(SUBMITTERS);
        self.cpu(TASKS, all.try_collect()).await
    }

    async fn run(&self) -> anyhow::Result<f64> {
        let all = async {
            let (claimant, places): (_, Vec<u64>) = (claimant(0), (0..PLACES).collect());
            let mut ahead = Ahead::default();
            let mut ended = 0;
            while ended < usize::try_from(TASKS)? {
                let batch = self.store.claim_tasks(&self.queue, &claimant, &places, &mut ahead).await?;
                ensure!(!batch.claims.is_empty(), "{ended} of {TASKS} tasks were claimed");
                write(&self.store, &batch.claims).await?;
                ended += batch.claims.len();
            }
            Ok(())
        };
        self.cpu(TASKS, all).await
    }

    async fn ask_in_vain(&self, name: &str) -> anyhow::Result<f64> {
        let all = async {
            let id = new_queue_id();
            self.store.insert_queue(doc! { "_id": id, "name": name, "plugin": "Bench" }).await?;
            let queue = self.store.find_queue(&Selector::Id(id.0)).await?.context("the queue is gone")?;
            let (claimant, places): (_, Vec<u64>) = (claimant(0), (0..PLACES).collect());
            let mut ahead = Ahead::default();
            for _ in 0..TASKS {
                let batch = self.store.claim_tasks(&queue, &claimant, &places, &mut ahead).await?;
                ensure!(batch.claims.is_empty(), "an empty queue has a task");
            }
            Ok(())
        };
        self.cpu(TASKS, all).await
    }

    /// `for_all`: for what any node may do, too.
    async fn look(&self, for_all: bool) -> anyhow::Result<f64> {
        let node = NodeName::new("bench");
        let queues = [self.queue.id];
        let lease = Duration::from_secs(60);
        let question =
            Question { occupied: false, for_all, claim_from: &queues, ..Question::new(&node, lease) };
        let all = async {
            for _ in 0..TASKS {
                self.store.look_around(&question).await?;
            }
            Ok(())
        };
        self.cpu(TASKS, all).await
    }

    async fn end(mut self) -> anyhow::Result<()> {
        self.stop.cancel();
        while self.streams.join_next().await.is_some() {}
        Ok(self.database.drop().await?)
    }
}
