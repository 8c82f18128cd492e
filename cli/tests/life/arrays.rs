//! Arrays.

use anyhow::ensure;
use serde_json::{Value, json as value};

use crate::server::{Reply, Server, json};
use crate::{ID, OTHER};

/// An array as a DCI answers it.
fn array() -> Value {
    value!({
        "id": ID, "queue": "6b0003bb686c8275d70dc2f1", "items": "0-3", "count": 4, "inserted": 4, "cap": null,
        "key": "item", "state": "done", "created": "2026-11-20T08:24:27", "ended": "2026-11-20T08:25:27",
        "succeeded": false, "owner": null, "tenant": null, "done": 4, "final": null,
        "counts": [{ "status": 1, "word": "succeeded", "tasks": 3 }, { "status": 2, "word": "failed", "tasks": 1 }],
    })
}

/// The bulk job that does something with its tasks.
fn job(state: &str) -> Reply {
    json(value!({ "id": OTHER, "action": "retry", "state": state, "total": 1, "done": 1, "skipped": 0 }))
}

#[tokio::test]
async fn arrays_are_listed_and_shown() -> anyhow::Result<()> {
    let mut with_elements = array();
    with_elements["elements"] = value!([{ "id": OTHER, "index": 2, "value": 2, "status": 2 }]);
    let one = format!("GET /arrays/{ID}");
    let server = Server::start(vec![
        ("GET /arrays?.limit=5&queue=mail&state=open", vec![json(value!([array()]))]),
        ("GET /arrays", vec![json(value!([]))]),
        (&one, vec![json(array())]),
        (&format!("{one}?.from=2&.limit=1"), vec![json(with_elements)]),
    ])
    .await?;
    let strip = format!("Progress    [{}{}] 4 of 4 ended\n", "#".repeat(30), "x".repeat(10));
    for (arguments, text) in [
        (
            &["array", "list", "--queue", "mail", "--state", "open", "--limit", "5"][..],
            "| 0-3      | 4 of 4 | done, not all succeeded |",
        ),
        (&["arrays", "list"], "0 total arrays.\n"),
        (&["array", "list", "--format", "json"], "[]\n"),
        (&["array", "show", ID], &strip),
        (&["array", "show", ID, "--format", "yaml"], "inserted: 4\n"),
        (
            &["array", "show", ID, "--elements", "--from", "2", "--limit", "1"],
            &format!("2     | {OTHER} | 2     | failed | \n\n1 total elements.\nThere are more: --from 3\n"),
        ),
    ] {
        let outcome = server.expect(arguments, 0).await?;
        ensure!(outcome.text().contains(text), "{arguments:?} {outcome:?} {}", outcome.text());
    }
    Ok(())
}

#[tokio::test]
async fn arrays_are_cancelled_and_tried_again_by_a_job() -> anyhow::Result<()> {
    let (cancel, retry) = (format!("POST /arrays/{ID}/cancel"), format!("POST /arrays/{ID}/retry"));
    let accepted = || vec![Reply::Json(202, value!({ "id": OTHER }))];
    let server = Server::start(vec![
        (&cancel, accepted()),
        (&retry, accepted()),
        (&format!("GET /bulk/{OTHER}"), vec![job("running"), job("done")]),
    ])
    .await?;
    let outcome = server.expect(&["array", "retry", ID, "--reason", "disk was full"], 0).await?;
    ensure!(outcome.text() == "retry: 1 tasks\n", "{outcome:?}");
    ensure!(server.body(&retry)? == value!({ "reason": "disk was full" }), "{:?}", server.asked());
    let before = server.lines().len();
    let outcome = server.expect(&["array", "cancel", ID, "--detach"], 0).await?;
    ensure!(outcome.text() == format!("{OTHER}\n"), "{outcome:?}");
    ensure!(server.body(&cancel)? == value!({}), "{:?}", server.asked());
    ensure!(server.lines().len() == before + 1, "it was not left alone: {:?}", server.lines());
    Ok(())
}

#[tokio::test]
async fn elements_of_an_array_run_again() -> anyhow::Result<()> {
    let (task, rerun) = (format!("POST /tasks/{ID}/rerun"), format!("POST /arrays/{ID}/rerun"));
    let server = Server::start(vec![
        (&task, vec![Reply::Json(404, value!({ "error": "no task with id" }))]),
        (&format!("GET /arrays/{ID}?.limit=1"), vec![json(array())]),
        (&rerun, vec![Reply::Json(202, value!({ "id": OTHER, "left": 0 })); 2]),
        (&format!("GET /bulk/{OTHER}"), vec![job("done"), job("done")]),
    ])
    .await?;
    let outcome = server.expect(&["rerun", ID], 0).await?;
    ensure!(
        outcome.text() == "retry: 1 tasks\n" && outcome.stderr.contains("an array of 4 tasks"),
        "{outcome:?}"
    );
    let outcome = server.expect(&["rerun", ID, "--elements", "all", "--downstream", "all"], 0).await?;
    ensure!(outcome.text() == "retry: 1 tasks\n", "{outcome:?}");
    let bodies = server.asked().into_iter().filter(|asked| asked.line == rerun).map(|asked| asked.body);
    let all = value!({ "elements": "all", "downstream": "all" });
    ensure!(bodies.eq([value!({ "downstream": "none" }), all]), "{:?}", server.asked());
    Ok(())
}

#[tokio::test]
async fn what_is_wrong_with_an_array_is_told() -> anyhow::Result<()> {
    let refused = Reply::Json(409, value!({ "error": "the array has no element to retry" }));
    let server = Server::start(vec![
        (&format!("POST /arrays/{ID}/retry"), vec![refused]),
        (&format!("POST /arrays/{OTHER}/cancel"), vec![Reply::Json(202, value!({ "id": ID }))]),
        (&format!("GET /bulk/{ID}"), vec![job("failed")]),
    ])
    .await?;
    let nothing = server.expect(&["array", "retry", ID], 255).await?;
    ensure!(nothing.stderr == "the array has no element to retry\n", "{nothing:?}");
    let failed = server.expect(&["array", "cancel", OTHER], 255).await?;
    ensure!(failed.stderr.contains(&format!("bulk job {ID} failed")), "{failed:?}");
    let before = server.lines().len();
    for wrong in [
        &["array"][..],
        &["array", "show", "mail"],
        &["array", "list", "--state", "closed"],
        &["array", "cancel", ID, "--bogus"],
        &["--bogus", "arrays", "retry", ID],
    ] {
        server.expect(wrong, 2).await?;
    }
    ensure!(server.lines().len() == before, "{:?}", server.lines());
    Ok(())
}
