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

/// A rule as the DCI tells it.
fn rule(scope: &str, value: Option<&str>, action: &str, text: &str) -> Value {
    let safe = text.ends_with("safe to upgrade");
    value!({ "scope": scope, "value": value, "name": value, "action": action, "text": text, "safe": safe })
}

#[tokio::test]
async fn new_tasks_are_refused_held_or_taken() -> anyhow::Result<()> {
    let line = "POST /admission";
    let cases: [(&[&str], Value, &str); 4] = [
        (
            &["drain", "--queue", "my mail", "--reason", "x"],
            value!({ "scope": "queue", "value": "my mail", "action": "reject", "reason": "x" }),
            "queue my mail: new tasks are refused; 3 wait, 1 run\n",
        ),
        (
            &["drain", "--tenant", "acme", "--pause"],
            value!({ "scope": "tenant", "value": "acme", "action": "pause", "reason": null }),
            "tenant acme: new tasks are held; 3 wait, 1 run\n",
        ),
        (
            &["drain", "--owner", "anna", "--accept"],
            value!({ "scope": "owner", "value": "anna", "action": "accept", "reason": null }),
            "user anna: new tasks are taken; 3 wait, 1 run\n",
        ),
        (
            &["drain", "--all"],
            value!({ "scope": "all", "value": null, "action": "reject", "reason": null }),
            "all: new tasks are refused; 3 wait, 1 run\n",
        ),
    ];
    for (arguments, body, text) in cases {
        let [scope, value, action] = ["scope", "value", "action"].map(|name| body[name].as_str());
        let made = rule(scope.unwrap_or_default(), value, action.unwrap_or_default(), "3 wait, 1 run");
        let server = Server::start(vec![(line, vec![json(made)])]).await?;
        let outcome = server.expect(arguments, 0).await?;
        ensure!(outcome.text() == text, "{arguments:?} {outcome:?}");
        ensure!(server.body(line)? == body, "{arguments:?} {:?}", server.asked());
    }
    let lifted = "DELETE /admission?scope=queue&value=my%20mail";
    let server = Server::start(vec![(lifted, vec![json(value!({ "lifted": true, "released": 2 }))])]).await?;
    let outcome = server.expect(&["undrain", "--queue", "my mail"], 0).await?;
    ensure!(outcome.text() == "The rule is lifted; 2 held tasks go on\n", "{outcome:?}");
    for wrong in [
        &["drain", "node1", "--all"][..],
        &["drain", "--queue", "mail", "--tenant", "acme"],
        &["drain", "node1", "--pause"],
        &["drain", "--all", "--pause", "--accept"],
        &["undrain"],
    ] {
        server.expect(wrong, 2).await?;
    }
    Ok(())
}

#[tokio::test]
async fn somebody_waits_until_it_is_safe_to_upgrade() -> anyhow::Result<()> {
    let mail = |text| rule("queue", Some("mail"), "reject", text);
    let rules = |text| json(value!({ "rules": [rule("all", None, "accept", ""), mail(text)] }));
    let server = Server::start(vec![
        ("POST /admission", vec![json(mail("1 wait, 0 run"))]),
        (
            "GET /admission",
            vec![rules("1 wait, 0 run"), rules("0 wait, 1 run"), rules("empty: safe to upgrade")],
        ),
    ])
    .await?;
    let outcome = server.expect(&["drain", "--queue", "mail", "--wait"], 0).await?;
    let text = "queue mail: new tasks are refused; 1 wait, 0 run\n\
                queue mail: new tasks are refused; empty: safe to upgrade\n";
    ensure!(outcome.text() == text, "{outcome:?} {}", outcome.text());
    ensure!(outcome.stderr.contains("0 wait, 1 run"), "{outcome:?}");
    let listed = server.expect(&["admission"], 0).await?.text();
    ensure!(listed.contains("queue mail | refused") && listed.contains("2 total rules."), "{listed}");
    let gone = Server::start(vec![
        ("POST /admission", vec![json(mail("1 wait, 0 run"))]),
        ("GET /admission", vec![json(value!({ "rules": [] }))]),
    ])
    .await?;
    let outcome = gone.expect(&["drain", "--queue", "mail", "--wait"], 255).await?;
    ensure!(outcome.stderr.contains("the rule was lifted meanwhile"), "{outcome:?}");
    Ok(())
}

#[tokio::test]
async fn tenants_are_limited() -> anyhow::Result<()> {
    let tenant = value!({
        "tenant": "a b", "max_queued": 5, "max_per_day": null, "max_schedules": null, "waiting": 3, "running": 1,
        "submitted_today": 0, "schedules": 0, "queues": 1,
    });
    let line = "POST /tenants/a%20b";
    let server = Server::start(vec![
        (line, vec![json(tenant.clone())]),
        ("GET /tenants/a%20b", vec![json(tenant.clone())]),
        ("GET /tenants", vec![json(value!([tenant]))]),
        ("DELETE /tenants/a%20b", vec![json(value!({ "deleted": 1 }))]),
        ("POST /tasks", vec![Reply::Json(429, value!({ "error": "too many", "limit": "max_queued" }))]),
    ])
    .await?;
    let set =
        server.expect(&["tenant", "set", "a b", "--max-queued", "5", "--max-per-day", "none"], 0).await?;
    ensure!(set.text().contains("Waiting     3 of 5\n"), "{}", set.text());
    ensure!(server.body(line)? == value!({ "max_queued": 5, "max_per_day": null }), "{:?}", server.asked());
    ensure!(server.expect(&["tenant", "show", "a b"], 0).await?.text().contains("Running     1\n"), "show");
    ensure!(server.expect(&["tenant", "list"], 0).await?.text().contains("3 of 5"), "list");
    let deleted = server.expect(&["tenant", "delete", "a b"], 0).await?.text();
    ensure!(deleted == "Tenant a b has no limits any more\n", "{deleted}");
    for wrong in
        [&["tenant", "set", "acme"][..], &["tenant", "set", "acme", "--max-queued", "many"], &["tenant"]]
    {
        server.expect(wrong, 2).await?;
    }
    let refused =
        server.expect(&["run", "mail", "command=date", "--detach", "--tenant", "acme"], 255).await?;
    ensure!(refused.stderr == "too many\n", "no word about passwords: {refused:?}");
    ensure!(server.body("POST /tasks")?[".tenant"] == "acme", "{:?}", server.asked());
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
