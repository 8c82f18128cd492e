//! `scrape`: how long a monitoring system waits for metrics.

use std::time::Duration;

use anyhow::ensure;
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

const METHOD: &str = "GET /metrics of a DCI and of a DEN, with --grow finished tasks in 1,000 queues, ten more waiting in each: the DCI 20 \
    times with pauses of 6 s, after which it has to ask the database again, and the DEN 100 times in a row";

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

const QUEUES: u32 = 1_000;

/// So many tasks wait in each queue.
const WAITING: u32 = 10;

const SCRAPES_OF_DCI: u32 = 20;
const SCRAPES_OF_DEN: u32 = 100;

/// Longer than a DCI takes what the database has told for new.
const PAUSE: Duration = Duration::from_secs(6);

async fn measure(turn: Turn<'_>) -> anyhow::Result<Vec<Sample>> {
    let mut setup = turn.world.setup(NAME, Kind::ReplicaSet).await?;
    let den = setup.serve_metrics()?;
    let node = Node::start(&setup).await?;
    node.finish(async |node| {
        let queues = fill_queues(turn, node).await?;
        let web = turn.world.web_beside(&setup).await?;
        let measured = scrapes(turn, &web, &den, &queues).await;
        // Before its database is dropped.
        web.end().await?;
        measured
    })
    .await
}

async fn fill_queues(turn: Turn<'_>, node: &Node) -> anyhow::Result<Vec<QueueId>> {
    turn.begin(&format!("{NAME}: filling"));
    let mut queues = Vec::new();
    for number in 0..QUEUES {
        let queue = new_queue_id();
        node.store.create_queue(queue, format!("scraped{number}").into(), TRUE.into()).await?;
        queues.push(queue);
    }
    let finished = turn.args.grow.get().div_ceil(QUEUES);
    for (each, kind) in [(finished, fill::Kind::Finished), (WAITING, fill::Kind::Queued)] {
        fill(&node.database, &queues, each, kind, turn.progress).await?;
    }
    node.admin().run_command(bson::doc! { "fsync": 1 }).await?;
    Ok(queues)
}

async fn scrapes(turn: Turn<'_>, web: &Web, den: &str, queues: &[QueueId]) -> anyhow::Result<Vec<Sample>> {
    turn.begin(&format!("{NAME}: scraping"));
    let (http, dci) = (client()?, format!("{}/metrics", web.url()));
    let mut samples = Vec::new();
    for number in 0..=SCRAPES_OF_DCI {
        let series = if number == 0 { &FIRST } else { &DCI };
        samples.push(series.sample(scrape(&http, &dci, Some(queues.len())).await?));
        turn.progress.at(u64::from(number), u64::from(SCRAPES_OF_DCI));
        sleep(PAUSE).await;
    }
    for _ in 0..SCRAPES_OF_DEN {
        samples.push(DEN.sample(scrape(&http, den, None).await?));
    }
    turn.end(&samples);
    Ok(samples)
}

/// How many milliseconds a scrape takes. One that left out queues would be fast for nothing.
async fn scrape(http: &reqwest::Client, url: &str, queues: Option<usize>) -> anyhow::Result<f64> {
    let begun = Instant::now();
    let metrics = text(http, url).await?;
    let took = begun.elapsed().as_secs_f64() * 1000.0;
    ensure!(metrics.contains("disbatch_build_info{"), "{url} does not serve our metrics");
    if let Some(queues) = queues {
        let waits = metrics.lines().filter(|line| {
            line.starts_with("disbatch_queue_oldest_seconds{") && line.contains("state=\"queued\"")
        });
        let waits = waits.count();
        ensure!(waits == queues, "{waits} of {queues} queues have something waiting");
    }
    Ok(took)
}

fn findings(results: &Results) -> Vec<Finding> {
    let bounds = [(&DCI, 50.0), (&DEN, 5.0)];
    let finding = |(series, goal): (&'static Series, f64)| {
        Finding::new(series.key.clone(), series.label.clone(), results.values(series).to_vec())
            .with(Goal::P95AtMost(goal))
    };
    bounds.into_iter().map(finding).collect()
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
        assert_eq!(reached, [Some(false), Some(true)]);
    }
}
