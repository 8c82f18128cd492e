//! `wait`.

use anyhow::ensure;
use serde_json::json as value;

use crate::server::{Reply, Server, json};
use crate::{ID, OTHER};

fn wait(id: &str) -> String {
    format!("GET /tasks/{id}/wait?.timeout=50")
}

fn state(id: &str, status: i64) -> Reply {
    json(
        value!({ "id": id, "queue": "q", "status": status, "word": "", "ended": status > 0, "changed": true }),
    )
}

#[tokio::test]
async fn the_exit_status_tells_how_a_task_ended() -> anyhow::Result<()> {
    for (status, code, word) in [
        (1, 0, "succeeded"),
        (2, 102, "failed"),
        (3, 3, "status 3"),
        (99, 99, "status 99"),
        (100, 100, "status 100"),
        (-3, 103, "terminated"),
        (-5, 105, "cancelled"),
        (-6, 106, "orphaned"),
    ] {
        let server =
            Server::start(vec![(&wait(ID), vec![state(ID, -2), state(ID, 0), state(ID, status)])]).await?;
        let outcome = server.expect(&["wait", ID], code).await?;
        ensure!(outcome.text() == format!("{ID} {word}\n"), "{outcome:?}");
        ensure!(server.lines() == [wait(ID), wait(ID), wait(ID)], "{:?}", server.lines());
    }
    Ok(())
}

#[tokio::test]
async fn of_several_the_first_given_that_did_not_succeed_counts() -> anyhow::Result<()> {
    let server = Server::start(vec![
        (&wait(ID), vec![state(ID, 0), state(ID, -5)]),
        (&wait(OTHER), vec![state(OTHER, 2)]),
    ])
    .await?;
    let outcome = server.expect(&["wait", ID, OTHER, ID], 105).await?;
    let mut lines: Vec<String> = outcome.text().lines().map(str::to_owned).collect();
    lines.sort();
    ensure!(lines == [format!("{ID} cancelled"), format!("{OTHER} failed")], "{outcome:?}");

    let server =
        Server::start(vec![(&wait(ID), vec![Reply::Silence]), (&wait(OTHER), vec![state(OTHER, 1)])]).await?;
    let outcome = server.expect(&["wait", "--any", ID, OTHER], 0).await?;
    ensure!(outcome.text() == format!("{OTHER} succeeded\n"), "{outcome:?}");
    Ok(())
}

#[tokio::test]
async fn a_wait_has_an_end() -> anyhow::Result<()> {
    let server = Server::start(vec![(&wait(ID), vec![Reply::Silence])]).await?;
    let outcome = server.expect(&["wait", ID, "--timeout", "0.2s"], 124).await?;
    ensure!(outcome.stderr.contains("--timeout"), "{outcome:?}");
    // The connection is lost for good, and that takes no longer.
    let server = Server::start(vec![(&wait(ID), vec![state(ID, 0), Reply::Nothing])]).await?;
    let outcome = server.expect(&["wait", ID, "--timeout", "1s"], 124).await?;
    ensure!(outcome.stderr.matches("trying again").count() == 1, "{outcome:?}");
    Ok(())
}

#[tokio::test]
async fn a_lost_connection_is_made_again() -> anyhow::Result<()> {
    let away = Reply::Json(503, value!({ "error": "the database cannot be reached" }));
    let server =
        Server::start(vec![(&wait(ID), vec![state(ID, 0), Reply::Nothing, away, state(ID, 1)])]).await?;
    let outcome = server.expect(&["wait", ID], 0).await?;
    ensure!(outcome.stderr.contains("the connection is back"), "{outcome:?}");
    Ok(())
}

#[tokio::test]
async fn a_wait_outlasts_what_is_away_at_its_very_beginning() -> anyhow::Result<()> {
    let away = Reply::Json(503, value!({ "error": "the database cannot be reached" }));
    for first in [away, Reply::Nothing] {
        let server = Server::start(vec![(&wait(ID), vec![first, state(ID, 1)])]).await?;
        let outcome = server.expect(&["wait", ID], 0).await?;
        ensure!(outcome.stderr.contains("the connection is back"), "{outcome:?}");
    }
    Ok(())
}

#[tokio::test]
async fn an_array_is_waited_for_with_all_its_tasks() -> anyhow::Result<()> {
    let missing = || Reply::Json(404, value!({ "error": format!("no task with id {ID}") }));
    let array = |state: &str, succeeded: Option<bool>| {
        let counts = value!([{ "status": 1, "word": "succeeded", "tasks": 2 }, { "status": -5, "word": "cancelled", "tasks": 1 }]);
        json(value!({ "id": ID, "count": 3, "state": state, "succeeded": succeeded, "counts": counts }))
    };
    let path = format!("GET /arrays/{ID}?.limit=1");
    let server = Server::start(vec![
        (&wait(ID), vec![missing()]),
        (&path, vec![array("open", None), array("open", None), array("done", Some(false))]),
    ])
    .await?;
    let outcome = server.expect(&["wait", ID], 105).await?;
    ensure!(outcome.text() == format!("{ID} 2 succeeded, 1 cancelled\n"), "{outcome:?}");
    ensure!(outcome.stderr.contains(&format!("{ID} is an array of 3 tasks")), "{outcome:?}");
    Ok(())
}

#[tokio::test]
async fn who_cannot_be_asked_is_told() -> anyhow::Result<()> {
    let missing = Reply::Json(404, value!({ "error": format!("no task with id {ID}") }));
    let server = Server::start(vec![(&wait(ID), vec![missing])]).await?;
    let outcome = server.expect(&["wait", ID], 255).await?;
    ensure!(outcome.stderr == format!("no task with id {ID}\n"), "{outcome:?}");
    let outcome = server.expect(&["wait", OTHER], 255).await?;
    ensure!(outcome.stderr.contains("older than this command"), "{outcome:?}");
    let before = server.lines().len();
    for wrong in [&["wait"][..], &["wait", "x"], &["wait", ID, "--timeout", "x"], &["wait", ID, "--al"]] {
        server.expect(wrong, 2).await?;
    }
    ensure!(server.lines().len() == before, "something was sent");
    let outcome = server.expect(&["--url", "http://127.0.0.1:1", "wait", ID], 255).await?;
    ensure!(outcome.stderr.contains("Connection refused"), "{outcome:?}");
    Ok(())
}
