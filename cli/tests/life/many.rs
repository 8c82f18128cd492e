//! `bulk`, `archive` and `bulk-jobs`.

use anyhow::ensure;
use serde_json::{Value, json as value};

use crate::ID;
use crate::server::{Reply, Server, json};

fn job(state: &str, done: u64) -> Value {
    value!({ "id": ID, "action": "retry", "state": state, "total": 3, "done": done, "skipped": 1 })
}

async fn server(jobs: Vec<Value>) -> anyhow::Result<Server> {
    Server::start(vec![
        ("POST /bulk", vec![Reply::Json(202, value!({ "id": ID }))]),
        (&format!("GET /bulk/{ID}"), jobs.into_iter().map(json).collect()),
        ("GET /bulk", vec![json(value!([job("done", 2)]))]),
        (&format!("POST /bulk/{ID}/cancel"), vec![json(value!({ "id": ID }))]),
    ])
    .await
}

#[tokio::test]
async fn a_job_is_followed_to_its_end() -> anyhow::Result<()> {
    let server = server(vec![job("running", 0), job("running", 1), job("done", 2)]).await?;
    let arguments =
        ["bulk", "retry", "--queue", "mail", "--status", "failed,-6", "--older-than", "7d", "--yes"];
    let outcome = server.expect(&[&arguments[..], &["--reason", "disk was full"]].concat(), 0).await?;
    ensure!(
        outcome.text() == "retry: 2 tasks, 1 left out, as they had changed or could not be acted on\n",
        "{outcome:?}"
    );
    let expected = value!({ "action": "retry", "reason": "disk was full",
        "filter": { "queue": "mail", "status": [2, -6], "older_than": 604_800 } });
    ensure!(server.body("POST /bulk")? == expected, "{:?}", server.asked());
    Ok(())
}

#[tokio::test]
async fn what_is_wrong_on_standard_input_is_told_of_it() -> anyhow::Result<()> {
    let server = server(Vec::new()).await?;
    let path = tempfile::NamedTempFile::new()?;
    std::fs::write(&path, "nope\n")?;
    let output = server.command(&["batch", "-"]).stdin(path.reopen()?).output().await?;
    let text = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(255), "{:?}: {text}", output.status);
    ensure!(text.contains("standard input: line 1: not a JSON object"), "{text}");
    Ok(())
}

#[tokio::test]
async fn tasks_that_could_not_be_acted_on_are_named() -> anyhow::Result<()> {
    for (errors, all) in [(9, true), (10, false)] {
        let mut done = job("done", 2);
        done["errors"] = vec![value!({ "id": ID, "error": "it runs" }); errors].into();
        let server = server(vec![done]).await?;
        let outcome = server.expect(&["bulk", "retry", "--queue", "mail", "--yes"], 0).await?;
        ensure!(outcome.stderr.matches(&format!("{ID}: it runs\n")).count() == errors, "{outcome:?}");
        ensure!(outcome.stderr.contains("these are the first 10") != all, "{outcome:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_job_that_fails_is_told() -> anyhow::Result<()> {
    for state in ["failed", "cancelled"] {
        let server = server(vec![job(state, 1)]).await?;
        let outcome = server.expect(&["archive", "--queue", "mail", "-y"], 255).await?;
        ensure!(outcome.stderr.contains(&format!("bulk job {ID} {state}")), "{outcome:?}");
        ensure!(server.body("POST /bulk")? == value!({ "action": "archive", "filter": { "queue": "mail" } }));
    }
    Ok(())
}

#[tokio::test]
async fn nobody_is_asked_without_a_terminal() -> anyhow::Result<()> {
    let server = Server::start(vec![("POST /bulk", vec![json(value!({ "count": 12 }))])]).await?;
    let outcome = server.expect(&["bulk", "delete", "--queue", "mail"], 255).await?;
    ensure!(outcome.stderr.contains("delete 12 tasks of queue mail: add --yes"), "{outcome:?}");
    let expected = value!({ "action": "delete", "filter": { "queue": "mail" }, ".preview": 1 });
    ensure!(server.body("POST /bulk")? == expected, "{:?}", server.asked());
    let outcome = server.expect(&["bulk", "delete", "--queue", "mail", "--preview"], 0).await?;
    ensure!(outcome.text() == "12 tasks\n", "{outcome:?}");
    for wrong in [
        &["bulk", "delete"][..],
        &["bulk", "explode", "--queue", "mail"],
        &["bulk", "delete", "--queue", "mail", "--status", "done"],
        &["bulk", "delete", "--queue", "mail", "--yes", "--oldr-than=7d"],
    ] {
        server.expect(wrong, 2).await?;
    }
    ensure!(server.lines().len() == 2, "{:?}", server.lines());
    Ok(())
}

#[tokio::test]
async fn jobs_are_listed_and_cancelled() -> anyhow::Result<()> {
    let server = server(vec![]).await?;
    let outcome = server.expect(&["bulk-jobs"], 0).await?;
    ensure!(outcome.text().contains(&format!("{ID} | retry  | done  | 3     | 2 ")), "{}", outcome.text());
    let outcome = server.expect(&["bulk-jobs", "--cancel", ID], 0).await?;
    ensure!(outcome.text().starts_with(&format!("Cancelled bulk job {ID}")), "{outcome:?}");
    let outcome = server.expect(&["bulk", "cancel", "--queue", "mail", "--yes", "--detach"], 0).await?;
    ensure!(outcome.text() == format!("{ID}\n"), "{outcome:?}");
    Ok(())
}
