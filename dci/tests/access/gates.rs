//! Tasks that wait for others, and locks: what is told of tasks whose queue somebody may not see.

use anyhow::{Context, ensure};
use disbatch_core::accounts::{Grant, PasswordHash, Role, Scope};
use disbatch_core::gates::LockRequest;
use disbatch_core::model::{QueueId, TaskId};
use disbatch_core::task::TaskOptions;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::world::{PASSWORD, World};

async fn submit(world: &World, queue: QueueId, after: &[TaskId], locks: &[&str]) -> anyhow::Result<TaskId> {
    let locks = LockRequest::list(locks.iter().copied())?;
    let options = TaskOptions { after: after.to_vec(), locks, ..TaskOptions::default() };
    let ids = world.store.submit_tasks(queue, vec![bson::doc! { "a": 1 }], &options).await?.ids;
    ids.first().copied().context("no task")
}

async fn pass(world: &World) -> anyhow::Result<()> {
    for _ in 0..20 {
        if !world.store.pass_gates().await?.more {
            return Ok(());
        }
    }
    anyhow::bail!("the gates are never done")
}

async fn text(world: &World, path: &str, user: &str, accept: &str) -> anyhow::Result<(StatusCode, String)> {
    let answer = world.request(Method::GET, path, Some(user)).header("accept", accept).send().await?;
    Ok((answer.status(), answer.text().await?))
}

async fn json(world: &World, path: &str, user: &str) -> anyhow::Result<Value> {
    let (status, text) = text(world, path, user, "application/json").await?;
    ensure!(status.is_success(), "{path} is {status} for {user}: {text}");
    Ok(serde_json::from_str(&text)?)
}

#[tokio::test]
async fn tasks_of_other_queues_are_told_of_without_their_names() -> anyhow::Result<()> {
    let world = World::new().await?;
    let parent = submit(&world, world.other, &[], &[]).await?;
    let child = submit(&world, world.mine, &[parent], &[]).await?;
    let holder = submit(&world, world.other, &[], &["db", "secret"]).await?;
    let waiter = submit(&world, world.mine, &[], &["db"]).await?;
    pass(&world).await?;
    let hidden = [parent.to_string(), holder.to_string(), world.other.to_string()];
    let paths = [
        format!("/tasks/{child}/graph"),
        format!("/tasks/{child}/explain"),
        format!("/tasks/{waiter}/explain"),
        "/locks".to_owned(),
        "/locks/db".to_owned(),
    ];
    for path in &paths {
        for accept in ["application/json", "text/html"] {
            let (status, text) = text(&world, path, "guest", accept).await?;
            ensure!(status.is_success(), "{path} is {status}: {text}");
            for id in &hidden {
                ensure!(!text.contains(id), "{path} ({accept}) tells {id}: {text}");
            }
        }
    }
    let graph = json(&world, &paths[0], "guest").await?;
    let expected = json!({ "key": 0, "status": -2, "word": "queued", "distance": -1, "hidden": true });
    assert_eq!(graph["nodes"][0], expected);
    assert_eq!(graph["edges"], json!([{ "from": 0, "to": 1, "waiting": true }]));
    let explained = json(&world, &paths[1], "guest").await?;
    assert_eq!(explained["summary"], "The task is blocked: it waits until 1 task succeeds.");
    assert_eq!(explained["gates"][1]["text"], "It comes after a task of another queue, which is queued.");
    let explained = json(&world, &paths[2], "guest").await?;
    let text_of_lock = explained["gates"][1]["text"].as_str().unwrap_or_default();
    assert!(text_of_lock.contains("which is held by a task of another queue (queued, since "), "{explained}");
    // The page of the task has the picture.
    let (_, page) = text(&world, &format!("/tasks/{child}"), "guest", "text/html").await?;
    assert!(page.contains("<svg class=\"graph\"") && page.contains("another queue"), "{page}");

    // A lock that none of their tasks has to do with does not exist.
    let names = |locks: &Value| -> Vec<String> {
        let names = locks.as_array().into_iter().flatten().filter_map(|lock| lock["name"].as_str());
        names.map(str::to_owned).collect()
    };
    assert_eq!(names(&json(&world, "/locks", "guest").await?), ["db"]);
    assert_eq!(text(&world, "/locks/secret", "guest", "*/*").await?.0, StatusCode::NOT_FOUND);
    assert_eq!(text(&world, "/locks/nosuch", "viewer", "*/*").await?.0, StatusCode::NOT_FOUND);

    // Who may see all is told all.
    assert_eq!(names(&json(&world, "/locks", "viewer").await?), ["db", "secret"]);
    assert_eq!(names(&json(&world, "/locks?.prefix=s", "viewer").await?), ["secret"]);
    let lock = json(&world, "/locks/db", "viewer").await?;
    assert_eq!((&lock["held_by"], &lock["waiting"]), (&json!(1), &json!(1)));
    assert_eq!(
        (&lock["holders"][0]["id"], &lock["holders"][0]["mode"]),
        (&json!(holder.to_string()), &json!("exclusive"))
    );
    assert_eq!(lock["waiters"][0]["id"], json!(waiter.to_string()));
    let graph = json(&world, &paths[0], "viewer").await?;
    assert_eq!(graph["nodes"][0]["id"], json!(parent.to_string()));
    for wrong in [".depth=0", ".limit=x"] {
        let (status, _) = text(&world, &format!("{}?{wrong}", paths[0]), "viewer", "*/*").await?;
        assert_eq!(status, StatusCode::BAD_REQUEST, "{wrong}");
    }
    world.database.drop_database().await
}

#[tokio::test]
async fn ids_of_tasks_of_other_queues_are_left_out_of_tasks() -> anyhow::Result<()> {
    let world = World::new().await?;
    let own = submit(&world, world.mine, &[], &[]).await?;
    let hidden = submit(&world, world.other, &[], &[]).await?;
    let gone = submit(&world, world.other, &[], &[]).await?;
    let child = submit(&world, world.mine, &[own, hidden, gone], &[]).await?;
    pass(&world).await?;
    world.store.archive_tasks(&[hidden]).await?;
    world
        .database
        .database
        .collection::<bson::Document>("tasks")
        .delete_one(bson::doc! { "_id": gone.0 })
        .await?;
    let queue = world.mine;
    for path in [
        format!("/tasks/{child}"),
        format!("/tasks/{child}?.details=1"),
        format!("/tasks?queue={queue}&.details=1"),
        format!("/tasks?queue={queue}&.details=1&.limit=10&.order=id"),
        format!("/tasks?id={child}&.limit=1&.details=1"),
        format!("/tasks?queue={queue}&.fields=%5B%22after%22%2C%22waiting_for%22%5D&.details=1"),
        format!("/tasks/query?.ids={child}&.fields=after,waiting_for"),
        format!("/tasks/{child}/wait?.fields=after,waiting_for&.timeout=0"),
        format!("/tasks/{child}/graph"),
        format!("/tasks/{child}/attempts"),
    ] {
        let (status, told) = text(&world, &path, "guest", "application/json").await?;
        ensure!(status.is_success(), "{path} is {status}: {told}");
        ensure!(![hidden, gone].iter().any(|id| told.contains(&id.to_string())), "{path}: {told}");
        ensure!(path.ends_with("attempts") || told.contains(&own.to_string()), "{path}: {told}");
        if !path.contains("graph") && !path.contains("attempts") {
            let (_, all) = text(&world, &path, "viewer", "application/json").await?;
            ensure!(all.contains(&hidden.to_string()), "{path} for who sees all: {all}");
        }
    }
    let (status, page) = text(&world, &format!("/tasks/{child}"), "guest", "text/html").await?;
    assert!(
        status.is_success() && !page.contains(&hidden.to_string()) && !page.contains(&gone.to_string()),
        "{page}"
    );
    world.database.drop_database().await
}

#[tokio::test]
async fn nobody_comes_after_a_task_that_they_may_not_see() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (name, hash) = (World::name("worker")?, PasswordHash::of(PASSWORD)?);
    let grant = Grant { scope: Scope::Queue(world.mine), role: Role::Submitter };
    world.store.add_user(&name, None, &[grant], Some(&hash)).await?;
    let (mine, other) =
        (submit(&world, world.mine, &[], &[]).await?, submit(&world, world.other, &[], &[]).await?);
    let missing = TaskId(bson::oid::ObjectId::new());
    let post = async |user: &'static str, options: Value| {
        let mut body = json!({ "queue": world.mine.to_string(), "params": [{ "a": 1 }, { "a": 2 }] });
        for (name, value) in options.as_object().into_iter().flatten() {
            body[name] = value.clone();
        }
        let answer = world.request(Method::POST, "/tasks", Some(user)).json(&body).send().await?;
        anyhow::Ok((answer.status(), answer.json::<Value>().await?))
    };
    for id in [other, missing] {
        let (status, answer) =
            post("worker", json!({ ".after": [mine.to_string(), id.to_string()] })).await?;
        let expected = json!({ "error": format!(".after names tasks that do not exist: {id}") });
        assert_eq!((status, answer), (StatusCode::BAD_REQUEST, expected));
    }
    let (status, answer) = post("submitter", json!({ ".after": other.to_string() })).await?;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let options = json!({
        ".after": [mine.to_string()], ".after_when": "finished", ".after_failed": "wait", ".chain": true,
        ".locks": ["licence/3", "db"],
    });
    let (status, answer) = post("worker", options).await?;
    assert_eq!(status, StatusCode::OK, "{answer}");
    let id = |number: usize| -> anyhow::Result<TaskId> {
        let id = answer["MongoDB::InsertManyResult"]["inserted"][number]["_id"]["$oid"].as_str();
        Ok(id.context("no id")?.parse()?)
    };
    let (first, second) = (id(0)?, id(1)?);
    let stored = json(&world, &format!("/tasks/{second}"), "worker").await?;
    assert_eq!((&stored["status"], &stored["locks"]), (&json!(-4), &json!(["db", "licence/3"])));
    assert_eq!(stored["after"], json!([{ "$oid": first.to_string() }]));
    assert_eq!((&stored["after_when"], &stored["after_failed"]), (&json!("finished"), &json!("wait")));
    assert!(stored.get("waiting_for").is_none(), "{stored}");
    let stored = json(&world, &format!("/tasks/{first}?.details=1"), "worker").await?;
    assert_eq!(
        (&stored["gate"], &stored["waiting_for"][0]["$oid"]),
        (&json!("after"), &json!(mine.to_string()))
    );
    world.database.drop_database().await
}
