//! `queues`: how long the list of all queues takes, with many tasks to count.

use anyhow::ensure;
use disbatch_core::queue::new_queue_id;
use futures::FutureExt;
use serde_json::Value;
use tokio::time::Instant;

use crate::figure::{Figure, Rounds, Turn};
use crate::progress::Progress;
use crate::results::{Sample, Series};
use crate::world::fill::{Kind, fill};
use crate::world::web::Web;

pub const NAME: &str = "queues";

pub const METHOD: &str = "one DCI and a database with 1,000,000 finished tasks in 100 queues, made in the first \
    round; 100 times GET /queues, which counts them or says what was counted before, each followed by a GET /plugins, which asks no database, \
    over one connection. Look at the p95";

/// What is asked for.
pub static LIST: Series = Series::fixed(NAME, "get_queues_ms", "GET /queues, ms");

/// What any request costs.
pub static FLOOR: Series = Series::fixed(NAME, "get_plugins_ms", "GET /plugins, ms");

const QUEUES: u32 = 100;
const TASKS_PER_QUEUE: u32 = 10_000;
const REQUESTS: u32 = 100;

/// All samples, on a database and with a DCI of their own.
async fn measure(turn: Turn<'_>) -> anyhow::Result<Vec<Sample>> {
    let web = turn.world.web(NAME).await?;
    let measured = samples(&web, turn.progress).await;
    web.stop().await?;
    measured
}

pub const FIGURE: Figure = Figure {
    name: NAME,
    method: METHOD,
    rounds: Rounds::First,
    measure: |turn| measure(turn).boxed_local(),
    findings: |_| Vec::new(),
};

async fn samples(web: &Web, progress: &Progress) -> anyhow::Result<Vec<Sample>> {
    filled(web, progress).await?;
    check(&web.get("/queues").await?)?;
    let mut samples = Vec::new();
    for number in 0..REQUESTS {
        for (series, path) in [(&LIST, "/queues"), (&FLOOR, "/plugins")] {
            let begun = Instant::now();
            web.get(path).await?;
            samples.push(series.sample(begun.elapsed().as_secs_f64() * 1000.0));
        }
        progress.at(u64::from(number + 1), u64::from(REQUESTS));
    }
    Ok(samples)
}

/// Indexes come last: that is faster.
async fn filled(web: &Web, progress: &Progress) -> anyhow::Result<()> {
    let mut queues = Vec::new();
    for number in 0..QUEUES {
        let queue = new_queue_id();
        let name = format!("queue{number}");
        web.store
            .insert_queue(bson::doc! { "_id": queue, "name": name, "plugin": "Disbatch::Plugin::Demo" })
            .await?;
        queues.push(queue);
    }
    fill(&web.database, &queues, TASKS_PER_QUEUE, Kind::Finished, progress).await?;
    web.store.ensure_indexes().await?;
    Ok(())
}

/// A DCI that counts wrong would be fast for nothing.
fn check(queues: &Value) -> anyhow::Result<()> {
    let counts: Option<Vec<u64>> = queues
        .as_array()
        .map(|queues| queues.iter().filter_map(|queue| queue["completed"].as_u64()).collect());
    let counts = counts.unwrap_or_default();
    let right = counts.iter().filter(|count| **count == u64::from(TASKS_PER_QUEUE)).count();
    ensure!(u32::try_from(right)? == QUEUES, "{right} of {QUEUES} queues are counted right");
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn wrong_counts_are_noticed() {
        let queues = |completed: u64| Value::from(vec![json!({ "completed": completed }); 100]);
        assert!(check(&queues(10_000)).is_ok());
        assert!(check(&queues(9_999)).is_err());
        assert!(check(&json!([])).is_err());
    }
}
