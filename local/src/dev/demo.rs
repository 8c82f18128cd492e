//! `--demo`: two queues and 20 real tasks.

mod table;
mod tasks;

use std::collections::HashSet;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use disbatch_cli::api::Client;
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use super::console::Console;
use tasks::{Demo, LARGE_OUTPUT, QUEUES};

const INTERVAL: Duration = Duration::from_millis(100);
const DEADLINE: Duration = Duration::from_secs(120);

/// How many of them run at once.
const THREADS: u32 = 4;

/// Runs the demo; true if everything went as expected.
pub async fn run(console: &Console, client: &Client, url: &str) -> anyhow::Result<bool> {
    create_queues(client).await?;
    let mut demos = submit(client).await?;
    console.line(&format!(
        "submitted {} tasks to {}",
        demos.len(),
        QUEUES.map(|(name, _)| name).join(" and ")
    ));
    let all_done = watch(console, client, &mut demos).await?;
    for line in table::render(console, &demos) {
        console.line(&line);
    }
    if !all_done {
        let open = demos.iter().filter(|demo| !demo.is_done()).count();
        bail!("{open} tasks of the demo are not done after {} s", DEADLINE.as_secs());
    }
    let mut wrong = demos.iter().filter(|demo| !demo.is_as_expected()).count();
    if let Err(error) = check_large_output(client, &demos).await {
        console.error(&format!("the large output: {error:#}"));
        wrong += 1;
    }
    let failed = demos.iter().filter(|demo| demo.status() != 1).count();
    let verdict = if wrong == 0 { "all as expected".to_owned() } else { format!("{wrong} NOT as expected") };
    let succeeded = demos.len() - failed;
    console.line(&format!("\n{succeeded} succeeded, {failed} failed: {verdict} ({url}/)\n"));
    Ok(wrong == 0)
}

async fn create_queues(client: &Client) -> anyhow::Result<()> {
    let queues = client.get("/queues", None).await?;
    let known: HashSet<&str> =
        queues.as_array().into_iter().flatten().filter_map(|queue| queue["name"].as_str()).collect();
    for (name, plugin) in QUEUES {
        if !known.contains(name) {
            client.post("/queues", &json!({ "name": name, "plugin": plugin })).await?;
        }
        client.post(&format!("/queues/{name}"), &json!({ "threads": THREADS })).await?;
    }
    Ok(())
}

/// Submits the tasks of each queue in one request.
async fn submit(client: &Client) -> anyhow::Result<Vec<Demo>> {
    let mut demos = tasks::all();
    for (name, _) in QUEUES {
        let params: Vec<&Value> =
            demos.iter().filter(|demo| demo.queue == name).map(|demo| &demo.params).collect();
        let answer = client.post("/tasks", &json!({ "queue": name, "params": params })).await?;
        let inserted = answer["MongoDB::InsertManyResult"]["inserted"].as_array();
        let mut ids = inserted.into_iter().flatten().filter_map(|task| task["_id"]["$oid"].as_str());
        for demo in demos.iter_mut().filter(|demo| demo.queue == name) {
            demo.id = ids.next().context("the DCI gave fewer ids than tasks")?.to_owned();
        }
    }
    Ok(demos)
}

/// Waits until all tasks are done, within the deadline; true if they are.
async fn watch(console: &Console, client: &Client, demos: &mut [Demo]) -> anyhow::Result<bool> {
    let total = demos.len();
    let style = ProgressStyle::with_template("  {bar:40.green} {pos} of {len} done, {msg} [{elapsed}]")?;
    let bar = console.bars.add(ProgressBar::new(total as u64).with_style(style));
    let mut interval = tokio::time::interval(INTERVAL);
    let start = Instant::now();
    let mut shown = None;
    loop {
        interval.tick().await;
        for demo in demos.iter_mut().filter(|demo| !demo.is_done()) {
            demo.look(client.get(&format!("/tasks/{}", demo.id), None).await?);
        }
        let done = demos.iter().filter(|demo| demo.is_done()).count();
        let running = demos.iter().filter(|demo| matches!(demo.status(), -1 | 0)).count();
        bar.set_position(done as u64);
        bar.set_message(format!("{running} running"));
        // Where there is no bar, a line now and then says as much.
        if !console.has_bars() && shown != Some(done / 5) {
            shown = Some(done / 5);
            console.line(&format!("{done} of {total} done, {running} running"));
        }
        if done == total || start.elapsed() > DEADLINE {
            bar.finish_and_clear();
            console.bars.remove(&bar);
            return Ok(done == total);
        }
    }
}

/// The large output is too large for a task: it must be in `GridFS`, all of it.
async fn check_large_output(client: &Client, demos: &[Demo]) -> anyhow::Result<()> {
    let large = demos.iter().find(|demo| demo.is_large).context("there is no such task")?;
    if large.document["stdout"]["$oid"].as_str().is_none() {
        bail!("it is not in GridFS");
    }
    let full = client.get(&format!("/tasks?id={}&.full=1&.limit=1", large.id), None).await?;
    let length = full["stdout"].as_str().map_or(0, str::len);
    if length != LARGE_OUTPUT {
        bail!("{length} of {LARGE_OUTPUT} bytes are stored");
    }
    Ok(())
}
