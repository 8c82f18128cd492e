//! What is done with one task, and shown of it.

use anyhow::ensure;
use serde_json::json as value;

use crate::server::{Reply, Server, json};
use crate::{ID, OTHER};

#[tokio::test]
async fn tasks_are_cancelled_and_retried() -> anyhow::Result<()> {
    let line = |id: &str, action: &str| format!("POST /tasks/{id}/{action}");
    let ended = Reply::Json(409, value!({ "error": "the task has ended: it is failed" }));
    let server = Server::start(vec![
        (&line(ID, "cancel"), vec![ended]),
        (&line(OTHER, "cancel"), vec![json(value!({ "id": OTHER, "status": 0, "outcome": "requested" }))]),
        (&line(ID, "retry"), vec![json(value!({ "id": ID, "status": -2, "attempt": 1 }))]),
    ])
    .await?;
    let outcome = server.expect(&["cancel", ID, OTHER, "--reason", "wrong file"], 255).await?;
    ensure!(outcome.text() == format!("{OTHER} runs, and was asked to end\n"), "{outcome:?}");
    ensure!(outcome.stderr == format!("{ID}: the task has ended: it is failed\n"), "{outcome:?}");
    ensure!(server.body(&line(OTHER, "cancel"))? == value!({ "reason": "wrong file" }));
    let outcome = server.expect(&["retry", ID], 0).await?;
    ensure!(outcome.text() == format!("{ID} queued again\n"), "{outcome:?}");
    ensure!(server.body(&line(ID, "retry"))? == value!({}));
    // One wrong id, and nothing is done.
    let before = server.lines().len();
    let outcome = server.expect(&["cancel", OTHER, "6b"], 2).await?;
    ensure!(
        outcome.stderr.contains("24 hexadecimal digits") && server.lines().len() == before,
        "{outcome:?}"
    );
    Ok(())
}

#[tokio::test]
async fn a_task_that_refuses_keeps_no_other_from_it() -> anyhow::Result<()> {
    let line = |id: &str| format!("POST /tasks/{id}/retry");
    let again = || json(value!({ "id": OTHER, "status": -2, "attempt": 1 }));
    for (status, why) in [
        (403, value!({ "error": "this needs the role operator on the queue" })),
        (429, value!({ "error": "the tenant has too many tasks", "limit": "max_waiting" })),
        (503, value!({ "error": "new tasks are rejected", "rule": { "scope": "all" } })),
    ] {
        let server =
            Server::start(vec![(&line(ID), vec![Reply::Json(status, why)]), (&line(OTHER), vec![again()])])
                .await?;
        let outcome = server.expect(&["retry", ID, OTHER], 255).await?;
        ensure!(outcome.text() == format!("{OTHER} queued again\n"), "{status}: {outcome:?}");
        ensure!(outcome.stderr.starts_with(&format!("{ID}: ")), "{status}: {outcome:?}");
    }
    // A server without its database refuses everything.
    let away = Reply::Json(503, value!({ "error": "the database is away" }));
    let server = Server::start(vec![(&line(ID), vec![away]), (&line(OTHER), vec![again()])]).await?;
    server.expect(&["retry", ID, OTHER], 255).await?;
    ensure!(server.lines() == [line(ID)], "{:?}", server.lines());

    let array = value!({ "id": ID, "queue": "6b0003bb686c8275d70dc2f1", "count": 3 });
    let refused = Reply::Json(403, value!({ "error": "this needs the role operator on the queue" }));
    let server = Server::start(vec![
        (&format!("GET /arrays/{ID}?.limit=1"), vec![json(array)]),
        (&format!("POST /arrays/{ID}/retry"), vec![refused]),
        (&line(OTHER), vec![again()]),
    ])
    .await?;
    let outcome = server.expect(&["retry", ID, OTHER], 255).await?;
    ensure!(outcome.text() == format!("{OTHER} queued again\n"), "{outcome:?}");
    Ok(())
}

#[tokio::test]
async fn a_task_is_explained_and_shown() -> anyhow::Result<()> {
    let explained = value!({ "id": ID, "status": -2, "word": "queued", "summary": "The queue is paused.",
        "gates": [{ "gate": "queue_paused", "open": false, "text": "the queue is paused" }] });
    let attempts = value!([{ "attempt": 1, "status": 2, "node": "vm", "started": "2026-11-20T08:24:26",
        "ended": "2026-11-20T08:24:27", "exit": { "code": 3 }, "note": "exit code 3" }]);
    let task = value!({ "_id": { "$oid": ID }, "status": 2, "attempt": 1, "history": [
        { "at": "2026-11-20T08:24:26", "status": 0, "attempt": 1, "node": "vm" },
        { "at": "2026-11-20T08:24:27", "status": 2, "attempt": 1, "node": "vm", "note": "exit code 3" }] });
    let server = Server::start(vec![
        (&format!("GET /tasks/{ID}/explain"), vec![json(explained)]),
        (&format!("GET /tasks/{ID}/attempts"), vec![json(attempts.clone())]),
        (&format!("GET /tasks/{ID}?.details=1"), vec![json(task)]),
    ])
    .await?;
    let outcome = server.expect(&["explain", ID], 0).await?;
    ensure!(
        outcome.text() == format!("{ID} queued\nThe queue is paused.\n  NO  the queue is paused\n"),
        "{outcome:?}"
    );
    let outcome = server.expect(&["attempts", ID], 0).await?;
    ensure!(
        outcome.text().contains("\n1       | failed | vm   | 2026-11-20T08:24:26 | "),
        "{}",
        outcome.text()
    );
    let outcome = server.expect(&["attempts", ID, "--format", "json"], 0).await?;
    ensure!(outcome.text() == format!("{attempts}\n"), "{outcome:?}");
    let outcome = server.expect(&["history", ID], 0).await?;
    ensure!(outcome.text().contains("2026-11-20T08:24:26 | running | 1 "), "{}", outcome.text());
    ensure!(outcome.text().ends_with("\n2 total changes.\n"), "{}", outcome.text());
    let outcome = server.expect(&["show", ID], 0).await?;
    ensure!(
        outcome.text() == format!("Task        {ID}\nStatus      failed (2)\nAttempt     1\n"),
        "{}",
        outcome.text()
    );
    server.expect(&["show", OTHER], 255).await?;
    Ok(())
}

#[tokio::test]
async fn new_tasks_have_options() -> anyhow::Result<()> {
    let created = json(value!({ "MongoDB::InsertManyResult": { "inserted": [{ "_id": { "$oid": ID } }] } }));
    let create = async |arguments: &[&str]| -> anyhow::Result<serde_json::Value> {
        let server = Server::start(vec![("POST /tasks", vec![created.clone()])]).await?;
        let outcome = server.expect(arguments, 0).await?;
        ensure!(outcome.text().contains("Created 1 tasks in queue q"), "{outcome:?}");
        server.body("POST /tasks")
    };
    let body = create(&["create-task", "q", "a", "1"]).await?;
    ensure!(body == value!({ "queue": "q", "params": { "a": "1" } }), "{body}");
    let body = create(&[
        "create-task",
        "q",
        "a",
        "1",
        "--run-at",
        "1795163066",
        "--deadline",
        "2026-11-21T00:00:00Z",
    ]);
    let body = body.await?;
    let expected = value!({ "queue": "q", "params": { "a": "1" }, ".run_at": 1_795_163_066,
        ".deadline": "2026-11-21T00:00:00Z" });
    ensure!(body == expected, "{body}");
    let body =
        create(&["create-tasks", "q", "[{\"a\":1}]", "--delay", "2h", "--unique", "u", "--grace", "5"])
            .await?;
    let expected =
        value!({ "queue": "q", "params": [{ "a": 1 }], ".delay": 7200, ".unique": "u", ".grace": 5 });
    ensure!(body == expected, "{body}");
    let body =
        create(&["create-tasks", "q", "--collection", "users", "{\"params\":{}}", "--timeout", "90"]).await?;
    ensure!(body == value!({ "queue": "q", "collection": "users", "params": {}, ".timeout": 90 }), "{body}");

    let folder = tempfile::tempdir()?;
    let path = folder.path().join("tasks.ndjson");
    std::fs::write(&path, "{\"a\":1}\n{\"a\":2}\n")?;
    let path = path.to_string_lossy().into_owned();
    let server = Server::start(vec![("POST /tasks", vec![created])]).await?;
    let options = ["--batch", "1", "--idempotency-key", "k", "--max-attempts", "2"];
    server.expect(&[&["create-tasks", "q", "--file", &path][..], &options].concat(), 0).await?;
    let bodies: Vec<_> = server.asked().into_iter().map(|asked| asked.body).collect();
    let expected = [1, 2].map(|n| {
        value!({ "queue": "q", "params": [{ "a": n }], ".idempotency_key": format!("k/{n}"), ".max_attempts": 2 })
    });
    ensure!(bodies == expected, "{bodies:?}");
    Ok(())
}

#[tokio::test]
async fn secure_parameters_come_from_a_file() -> anyhow::Result<()> {
    let created = json(value!({ "MongoDB::InsertManyResult": { "inserted": [{ "_id": { "$oid": ID } }] } }));
    let server = Server::start(vec![("POST /tasks", vec![created])]).await?;
    let folder = tempfile::tempdir()?;
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (secure, tasks) = (path("secure.json"), path("tasks.ndjson"));
    std::fs::write(&secure, "{ \"pin\": 1234, # of the door\n}\n")?;
    std::fs::write(&tasks, "{\"a\":1}\n{\"a\":2}\n")?;
    let option = ["--secure-params-file", &secure];
    let create = [
        &["create-task", "q", "a", "1"][..],
        &["create-tasks", "q", "[{\"a\":1}]"],
        &["create-tasks", "q", "--file", &tasks, "--batch", "1"],
        &["run", "q", "a=1", "--detach"],
    ];
    for arguments in create {
        server.expect(&[arguments, &option].concat(), 0).await?;
    }
    let asked = server.asked();
    ensure!(asked.len() == 5, "{asked:?}");
    for asked in asked {
        ensure!(asked.body[".secure_params"] == value!({ "pin": 1234 }), "{asked:?}");
    }
    std::fs::write(&secure, "{ \"pin\": horse }")?;
    let outcome = server.expect(&[&["create-task", "q", "a", "1"][..], &option].concat(), 255).await?;
    ensure!(outcome.stderr.contains("must have a JSON object"), "{outcome:?}");
    ensure!(!outcome.stderr.contains("horse"), "{outcome:?}");
    let both = ["create-tasks", "q", "--file", "-", "--secure-params-file", "-"];
    let outcome = server.expect(&both, 255).await?;
    ensure!(outcome.stderr.contains("cannot both be standard input"), "{outcome:?}");
    Ok(())
}
