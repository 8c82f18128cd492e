//! `scrape`: how long a monitoring system waits for metrics.

use std::time::Duration;

use anyhow::ensure;
use bson::{Document, doc};
use disbatch_core::model::QueueId;
use disbatch_core::queue::new_queue_id;
use futures::FutureExt;
use tokio::time::{Instant, sleep};

use crate::compare::{Finding, Goal};
use crate::figure::{Figure, Rounds, Turn};
use crate::results::{Results, Sample, Series};
use crate::world::Kind;
use crate::world::fill::{self, fill};
use crate::world::node::Node;
use crate::world::plugins::TRUE;
use crate::world::web::{Web, client, text};

const NAME: &str = "scrape";

const METHOD: &str = "GET /metrics of a DCI and of a DEN, with --grow finished tasks in 1,000 queues, ten more waiting in each: 20 times the DCI, \
    with pauses of 6 s, after which it has to ask the database again, and each time the DEN 5 times; then the DEN has run what waits, so that it has \
    to tell of all queues, and is asked 20 times";

pub const FIGURE: Figure = Figure {
    name: NAME,
    method: METHOD,
    rounds: Rounds::First,
    measure: |turn| measure(turn).boxed_local(),
    findings,
};

static FIRST: Series = Series::fixed(NAME, "dci_first_ms", "GET /metrics of a DCI, the first, ms");
static DCI: Series = Series::fixed(NAME, "dci_ms", "GET /metrics of a DCI, ms");
static DEN: Series = Series::fixed(NAME, "den_ms", "GET /metrics of a DEN, ms");
static OF_ALL: Series =
    Series::fixed(NAME, "den_of_all_ms", "GET /metrics of a DEN that has run tasks of 1,000 queues, ms");

const QUEUES: u32 = 1_000;

/// So many tasks wait in each queue.
const WAITING: u32 = 10;

const SCRAPES: u32 = 20;
const OF_DEN_EACH: u32 = 5;

/// Longer than a DCI takes what the database has told for new.
const PAUSE: Duration = Duration::from_secs(6);

/// How often to look whether the DEN has run what waits, and how long it has between two scrapes afterwards.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// How long it may take to run what waits.
const PATIENCE: Duration = Duration::from_secs(600);

async fn measure(turn: Turn<'_>) -> anyhow::Result<Vec<Sample>> {
    let mut setup = turn.world.setup(NAME, Kind::ReplicaSet).await?;
    let den = setup.serve_metrics()?;
    let node = Node::start(&setup).await?;
    node.finish(async |node| {
        let queues = fill_queues(turn, node).await?.len();
        let web = turn.world.web_beside(&setup).await?;
        let measured = scrapes(turn, &web, &den, queues).await;
        // Before its database is dropped.
        web.end().await?;
        let mut samples = measured?;
        run_waiting(turn, node).await?;
        let http = client()?;
        for _ in 0..SCRAPES {
            sleep(LOOK_EVERY).await;
            samples.push(OF_ALL.sample(scrape(&http, &den, Some((ENDED, queues))).await?));
        }
        turn.end(&samples);
        Ok(samples)
    })
    .await
}

async fn fill_queues(turn: Turn<'_>, node: &Node) -> anyhow::Result<Vec<QueueId>> {
    turn.begin(&format!("{NAME}: filling"));
    let mut queues = Vec::new();
    for number in 0..QUEUES {
        let queue = new_queue_id();
        node.store
            .insert_queue(doc! { "_id": queue, "name": format!("scraped{number}"), "plugin": TRUE })
            .await?;
        queues.push(queue);
    }
    let finished = turn.args.grow.get().div_ceil(QUEUES);
    for (each, kind) in [(finished, fill::Kind::Finished), (WAITING, fill::Kind::Queued)] {
        fill(&node.database, &queues, each, kind, turn.progress).await?;
    }
    node.admin().run_command(doc! { "fsync": 1 }).await?;
    Ok(queues)
}

/// The first series of each queue that has tasks waiting, in what a DCI tells.
const WAITING_LONGEST: (&str, &str) = ("disbatch_queue_oldest_seconds{", "state=\"queued\"");

/// The same of each queue that a DEN has run tasks of.
const ENDED: (&str, &str) = ("disbatch_tasks_ended_total{", "outcome=\"succeeded\"");

async fn scrapes(turn: Turn<'_>, web: &Web, den: &str, queues: usize) -> anyhow::Result<Vec<Sample>> {
    turn.begin(&format!("{NAME}: scraping"));
    let (http, dci) = (client()?, format!("{}/metrics", web.url()));
    let mut samples = Vec::new();
    for number in 0..=SCRAPES {
        let series = if number == 0 { &FIRST } else { &DCI };
        samples.push(series.sample(scrape(&http, &dci, Some((WAITING_LONGEST, queues))).await?));
        for _ in 0..OF_DEN_EACH {
            samples.push(DEN.sample(scrape(&http, den, None).await?));
        }
        turn.progress.at(u64::from(number), u64::from(SCRAPES));
        sleep(PAUSE).await;
    }
    Ok(samples)
}

/// Lets the DEN run what waits.
async fn run_waiting(turn: Turn<'_>, node: &Node) -> anyhow::Result<()> {
    turn.begin(&format!("{NAME}: running what waits"));
    let queues = node.database.collection::<Document>("queues");
    queues.update_many(doc! {}, doc! { "$set": { "threads": 1 } }).await?;
    let tasks = node.database.collection::<Document>("tasks");
    let begun = Instant::now();
    while tasks.find_one(doc! { "status": { "$in": [-2, -1, 0] } }).await?.is_some() {
        ensure!(begun.elapsed() < PATIENCE, "what waits has not run after {} s", PATIENCE.as_secs());
        sleep(LOOK_EVERY).await;
    }
    Ok(())
}

/// How many milliseconds a scrape takes. One that left out `queues` would be fast for nothing: each has such a series.
async fn scrape(
    http: &reqwest::Client,
    url: &str,
    queues: Option<((&str, &str), usize)>,
) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let metrics = text(http, url).await?;
    let took = begun.elapsed().as_secs_f64() * 1000.0;
    ensure!(metrics.contains("disbatch_build_info{"), "{url} does not serve our metrics");
    if let Some(((name, label), queues)) = queues {
        let told = metrics.lines().filter(|line| line.starts_with(name) && line.contains(label)).count();
        ensure!(told == queues, "{url} tells of {told} of {queues} queues");
    }
    Ok(took)
}

fn findings(results: &Results) -> Vec<Finding> {
    let bounds = [(&DCI, 50.0), (&DEN, 5.0)];
    let finding = |(series, goal): (&'static Series, f64)| {
        Finding::new(series.key.clone(), series.label.clone(), results.values(series).to_vec())
            .with(Goal::P95AtMost(goal))
    };
    let of_all = Finding::new(OF_ALL.key.clone(), OF_ALL.label.clone(), results.values(&OF_ALL).to_vec());
    bounds.into_iter().map(finding).chain([of_all]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slow_ones_count() {
        let mut results = Results::default();
        results.add((0..20).map(|number| DCI.sample(if number < 17 { 4.0 } else { 80.0 })).collect());
        results.add(vec![DEN.sample(4.0), FIRST.sample(900.0)]);
        let reached: Vec<_> = findings(&results).iter().map(Finding::is_reached).collect();
        assert_eq!(reached, [Some(false), Some(true), None]);
    }
}
