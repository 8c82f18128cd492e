//! `disbatch events`, while the DCI dies and comes back.

use std::process::Stdio;

use anyhow::Context;
use bson::{Document, doc};
use disbatch_core::task::CancelRequest;
use disbatch_tests::{Dci, PATIENCE, World, binary};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{ChildStdout, Command};
use tokio::time::timeout;

async fn next(lines: &mut Lines<BufReader<ChildStdout>>) -> anyhow::Result<Value> {
    let line = timeout(PATIENCE, lines.next_line()).await.context("no event comes")??;
    let line = line.context("it has ended")?;
    serde_json::from_str(&line).with_context(|| line.clone())
}

#[tokio::test]
async fn events_that_come_while_the_dci_is_down_are_printed_when_it_is_back() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.queue("P", doc! { "name": "mail", "threads": 0 }).await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let mut child = Command::new(binary("disbatch")?)
        .args(["--url", dci.url(), "events", "--queue", "mail", "--format", "json", "--limit", "3"])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("no standard output")?).lines();
    // It begins with what happens once it has been answered, which it does not say: so tasks come until one is seen.
    let first = loop {
        let task = *world.submit(queue, vec![Document::new()]).await?.first().context("no task")?;
        if let Ok(event) = timeout(std::time::Duration::from_millis(500), next(&mut lines)).await {
            let event = event?;
            let id: String = event["id"].as_str().unwrap_or_default().to_owned();
            break (id, event, task);
        }
    };
    assert_eq!((first.1["status"].as_i64(), first.1["queue_name"].as_str()), (Some(-2), Some("mail")));
    assert!(first.1["after"].as_str().is_some_and(|after| after.len() > 16), "{}", first.1);

    let address = dci.kill().await?;
    let request = CancelRequest { by: "a test".to_owned(), reason: None };
    world.store().cancel_task(first.2, &request).await?;
    let later = *world.submit(queue, vec![Document::new()]).await?.first().context("no task")?;
    let _dci = Dci::start_at(&address, &world.config(), &world.path().join("again.log")).await?;
    let mut seen = Vec::new();
    while let Ok(event) = next(&mut lines).await {
        seen.push((
            event["id"].as_str().unwrap_or_default().to_owned(),
            event["word"].as_str().unwrap_or_default().to_owned(),
        ));
    }
    let status = timeout(PATIENCE, child.wait()).await??;
    assert!(status.success(), "it ends after three: {status}");
    if first.0 == first.2.to_string() {
        assert_eq!(seen, [(first.0, "cancelled".to_owned()), (later.to_string(), "queued".to_owned())]);
    } else {
        assert_eq!(seen.len(), 2, "{seen:?}");
    }
    world.end().await
}
