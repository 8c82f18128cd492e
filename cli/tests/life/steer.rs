//! Queues and nodes.

use anyhow::ensure;
use serde_json::{Value, json as value};

use crate::server::{Reply, Server, json};

#[tokio::test]
async fn queues_and_nodes_are_steered() -> anyhow::Result<()> {
    let queue = "POST /queues/my%20mail";
    let node = "POST /nodes/node1.example.com";
    let cases: [(&[&str], &str, Value, &str); 9] = [
        (&["pause", "my mail"], queue, value!({ "paused": true, "reason": null }), "Paused queue my mail"),
        (&["pause", "my mail", "--reason", "x"], queue, value!({ "paused": true, "reason": "x" }), "Paused"),
        (&["resume", "my mail"], queue, value!({ "paused": false }), "Resumed queue my mail"),
        (
            &["close", "my mail", "--reason", "x"],
            queue,
            value!({ "accepting": false, "reason": "x" }),
            "Closed",
        ),
        (&["open", "my mail"], queue, value!({ "accepting": true }), "Opened"),
        (
            &["set-queue", "my mail", "timeout=5m", "retention.archive_after=7d"],
            queue,
            value!({ "timeout": 300, "retention": { "archive_after": 604_800 } }),
            "Updated queue my mail: {",
        ),
        (&["set-queue", "my mail", "name=post"], queue, value!({ "name": "post" }), "Updated"),
        (&["drain", "node1.example.com"], node, value!({ "draining": true }), "claims no more tasks"),
        (&["undrain", "node1.example.com"], node, value!({ "draining": false }), "claims tasks again"),
    ];
    for (arguments, line, body, text) in cases {
        let server = Server::start(vec![(line, vec![json(value!({}))])]).await?;
        let outcome = server.expect(arguments, 0).await?;
        ensure!(outcome.text().contains(text), "{arguments:?} {outcome:?}");
        ensure!(server.body(line)? == body, "{arguments:?} {:?}", server.asked());
    }
    Ok(())
}

#[tokio::test]
async fn what_the_dci_refuses_is_told() -> anyhow::Result<()> {
    let refused = Reply::Json(400, value!({ "error": "no queue 'mail'" }));
    let server = Server::start(vec![("POST /queues/mail", vec![refused])]).await?;
    let outcome = server.expect(&["pause", "mail"], 255).await?;
    ensure!(outcome.stderr == "no queue 'mail'\n", "{outcome:?}");
    for wrong in [&["pause"][..], &["set-queue", "mail"], &["drain"], &["resume", "mail", "--reason", "x"]] {
        server.expect(wrong, 2).await?;
    }
    ensure!(server.lines().len() == 1, "{:?}", server.lines());
    Ok(())
}

#[tokio::test]
async fn completion_knows_every_command_and_its_options() -> anyhow::Result<()> {
    let server = Server::start(vec![]).await?;
    for shell in ["bash", "zsh", "fish"] {
        let text = server.expect(&["completion", shell], 0).await?.text();
        for word in [
            "run",
            "wait",
            "logs",
            "explain",
            "bulk-jobs",
            "set-queue",
            "undrain",
            "older-than",
            "idempotency-key",
        ] {
            ensure!(text.contains(word), "{shell}: no {word}");
        }
    }
    Ok(())
}
