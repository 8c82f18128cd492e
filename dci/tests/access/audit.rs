//! Who did what: each change leaves one entry, also if whoever made it hangs up, and nothing else leaves any.

mod finding;
mod ways;

use std::time::Duration;

use anyhow::{Context, ensure};
use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};
use disbatch_core::accounts::{NewToken, Role};
use futures::TryStreamExt;
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::sessions::log_in;
use crate::world::{PASSWORD, World};

/// How long to wait for something that should happen within moments, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// What is only in what must not be recorded.
const SECRET: &str = "qwerty-nobody-may-know-5531";

/// The entries that a search finds, the latest first.
async fn entries(world: &World, search: &str) -> anyhow::Result<Vec<Value>> {
    let path = format!("/audit?.limit=1000&{search}");
    let answer = world.request(Method::GET, &path, Some("admin")).send().await?;
    let (status, text) = (answer.status(), answer.text().await?);
    ensure!(status == 200, "{path}: {status} {text}");
    Ok(serde_json::from_str(&text)?)
}

/// The status of the answer, and the entries that the request has left.
async fn left(world: &World, request: RequestBuilder) -> anyhow::Result<(u16, Vec<Value>)> {
    let before = entries(world, "").await?.len();
    let status = request.send().await?.status().as_u16();
    let mut now = entries(world, "").await?;
    now.truncate(now.len().saturating_sub(before));
    Ok((status, now))
}

/// The same for a change of an operator that must be recorded.
async fn change(world: &World, method: Method, path: &str, body: Value) -> anyhow::Result<Value> {
    let request = world.request(method.clone(), path, Some("operator")).json(&body);
    let (status, mut left) = left(world, request).await?;
    ensure!(status < 400 && left.len() == 1, "{method} {path} {body}: {status} {left:?}");
    let entry = left.remove(0);
    ensure!(
        entry["user"] == "operator"
            && entry["via"] == "password"
            && entry["from"] == "127.0.0.1"
            && entry["by"] == "operator from 127.0.0.1",
        "{method} {path}: {entry}"
    );
    Ok(entry)
}

/// What a request leaves that changes nothing.
async fn nothing(world: &World, user: &str, path: &str, body: Value, expected: u16) -> anyhow::Result<()> {
    let request = world.request(Method::POST, path, Some(user)).json(&body);
    let (status, left) = left(world, request).await?;
    ensure!(status == expected && left.is_empty(), "{path} {body}: {status} {left:?}");
    Ok(())
}

async fn task(world: &World, status: i32) -> anyhow::Result<ObjectId> {
    let id = ObjectId::new();
    let now = DateTime::from_millis(1_795_163_067_344);
    let task = doc! {
        "_id": id, "queue": world.mine.0, "status": status, "params": { "to": SECRET }, "stdout": null,
        "stderr": null, "node": null, "ctime": now, "mtime": now,
    };
    world.database.database.collection::<Document>("tasks").insert_one(task).await?;
    Ok(id)
}

#[tokio::test]
async fn changes_of_queues_say_what_was_and_what_is() -> anyhow::Result<()> {
    let world = World::new().await?;
    let new = json!({ "name": "new", "plugin": "My::Plugin" });
    let made = change(&world, Method::POST, "/queues", new.clone()).await?;
    assert_eq!(
        (&made["what"], &made["after"], &made["before"]),
        (&json!("queue create"), &new, &Value::Null)
    );
    let path = format!("/queues/{}", world.mine);
    let first = change(&world, Method::POST, &path, json!({ "threads": 3, "paused": true })).await?;
    assert_eq!(first["after"], json!({ "threads": 3, "paused": true }));
    let second = change(&world, Method::POST, &path, json!({ "threads": 4, "paused": true })).await?;
    assert_eq!((&second["before"], &second["after"]), (&json!({ "threads": 3 }), &json!({ "threads": 4 })));
    let object = json!({ "kind": "queue", "id": world.mine.to_string(), "name": "mine" });
    assert_eq!((&second["object"], &second["queue"]), (&object, &json!(world.mine.to_string())));
    let third = change(&world, Method::POST, &path, json!({ "paused": null, ".then": "/" })).await?;
    assert_eq!((&third["before"], &third["after"]), (&json!({ "paused": true }), &Value::Null));

    nothing(&world, "operator", &path, json!({ "threads": 4 }), 200).await?;
    nothing(&world, "operator", &path, json!({ "threads": -1 }), 400).await?;
    nothing(&world, "operator", &path, json!({ "name": "new" }), 400).await?;
    nothing(&world, "viewer", &path, json!({ "threads": 9 }), 403).await?;
    nothing(&world, "operator", "/queues/nosuch", json!({ "threads": 9 }), 400).await?;
    nothing(&world, "operator", "/queues", new, 400).await?;

    let gone = change(&world, Method::DELETE, "/queues/new", json!({})).await?;
    assert_eq!((&gone["what"], &gone["before"]["name"]), (&json!("queue delete"), &json!("new")));
    let by_form = change(&world, Method::POST, &format!("/ui{path}/delete"), json!({})).await?;
    assert_eq!((&by_form["what"], &by_form["before"]["threads"]), (&json!("queue delete"), &json!(4)));
    world.database.drop_database().await
}

#[tokio::test]
async fn a_repeated_submission_and_a_task_that_has_ended_leave_nothing() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.mine.to_string();
    let once = json!({ "queue": queue, "params": [{ "a": 1 }], ".idempotency_key": "k" });
    change(&world, Method::POST, "/tasks", once.clone()).await?;
    nothing(&world, "operator", "/tasks", once, 200).await?;
    let ended = task(&world, 2).await?;
    nothing(&world, "operator", &format!("/tasks/{ended}/cancel"), json!({}), 409).await?;
    let running = task(&world, 0).await?;
    let path = format!("/tasks/{running}/cancel");
    let asked = change(&world, Method::POST, &path, json!({})).await?;
    assert_eq!((&asked["before"], &asked["after"]), (&Value::Null, &json!({ "cancel": "requested" })));
    nothing(&world, "operator", &path, json!({}), 200).await?;
    nothing(&world, "operator", &format!("/tasks/{running}/retry"), json!({}), 409).await?;
    world.database.drop_database().await
}

#[tokio::test]
async fn bulk_jobs_say_who_made_them_and_how_they_ended() -> anyhow::Result<()> {
    let world = World::new().await?;
    task(&world, -2).await?;
    let body = json!({ "action": "cancel", "filter": { "queue": "mine" }, "reason": "late" });
    let made = world.request(Method::POST, "/bulk", Some("operator")).json(&body).send().await?;
    assert_eq!(made.status(), 202);
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let both = loop {
        let found = entries(&world, "what=bulk%20cancel").await?;
        if found.len() == 2 {
            break found;
        }
        ensure!(tokio::time::Instant::now() < deadline, "the job does not end: {found:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    for (entry, what) in both.iter().zip(["bulk cancel ended", "bulk cancel"]) {
        assert_eq!((&entry["what"], &entry["user"]), (&json!(what), &json!("operator")));
        assert_eq!((&entry["via"], &entry["queue"]), (&json!("password"), &json!(world.mine.to_string())));
        assert_eq!((&entry["object"]["id"], &entry["reason"]), (&entry["job"], &json!("late")));
    }
    assert_eq!((&both[0]["state"], &both[0]["done"]), (&json!("done"), &json!(1)));
    assert_eq!(entries(&world, "object=bulk").await?.len(), 2);
    world.database.drop_database().await
}

#[tokio::test]
async fn logins_are_recorded_and_refused_ones_once_a_minute() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (cookie, token) = log_in(&world, "viewer").await?;
    let login = entries(&world, "what=login").await?.remove(0);
    assert_eq!(
        (&login["what"], &login["user"], &login["via"]),
        (&json!("login"), &json!("viewer"), &json!("session"))
    );
    let out = world.server.request(Method::POST, "/logout").header("cookie", &cookie);
    let out = out.form(&[(".form_token", &token)]).send().await?;
    assert_eq!(out.status(), 303);
    assert_eq!(entries(&world, "what=logout&user=viewer").await?.len(), 1);
    for (name, password) in [("viewer", SECRET), ("viewer", "wrong password"), (SECRET, SECRET)] {
        let body = json!({ "name": name, "password": password });
        let refused = world.server.request(Method::POST, "/login").json(&body).send().await?;
        assert_eq!(refused.status(), 401);
    }
    // The answers do not wait for them.
    let deadline = tokio::time::Instant::now() + PATIENCE;
    let refused = loop {
        let found = entries(&world, "what=login%20refused").await?;
        if found.len() >= 2 {
            break found;
        }
        ensure!(tokio::time::Instant::now() < deadline, "they are not recorded: {found:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    let mut names: Vec<Option<&str>> = refused.iter().map(|entry| entry["object"]["name"].as_str()).collect();
    names.sort_unstable();
    assert_eq!(names, [None, Some("viewer")], "one for the user, one for whom there is no user");
    assert!(refused.iter().all(|entry| entry["user"].is_null() && entry["via"] == "refused"), "{refused:?}");
    world.database.drop_database().await
}

#[tokio::test]
async fn tokens_and_passwords_are_recorded_without_themselves() -> anyhow::Result<()> {
    let world = World::new().await?;
    let new = NewToken {
        user: World::name("operator")?,
        name: "nightly".into(),
        role: Role::Operator,
        queues: None,
        lasts: None,
    };
    let text = world.store.create_token(&new).await?;
    let path = format!("/queues/{}", world.mine);
    let by_token = world.server.request(Method::POST, &path).bearer_auth(&text);
    let (status, by_token) = left(&world, by_token.json(&json!({ "threads": 5 }))).await?;
    assert_eq!((status, by_token.len()), (200, 1));
    assert_eq!(by_token[0]["by"], "operator with the token \"nightly\" from 127.0.0.1");
    assert_eq!((&by_token[0]["via"], &by_token[0]["token_name"]), (&json!("token"), &json!("nightly")));

    let body = json!({ "name": "mine", "role": "viewer", "days": "30" });
    let made = world.request(Method::POST, "/account/tokens", Some("operator")).json(&body).send().await?;
    let made: Value = serde_json::from_str(&made.text().await?)?;
    let made = made["token"].as_str().context("there is no token")?.to_owned();
    let created = entries(&world, "what=token%20create").await?.remove(0);
    assert_eq!(created["after"], json!({ "user": "operator", "role": "viewer", "days": 30 }));
    let id = created["object"]["id"].as_str().context("the token has no id")?;
    change(&world, Method::POST, &format!("/account/tokens/{id}/revoke"), json!({})).await?;

    let password = json!({ "old": PASSWORD, "new": SECRET });
    let changed = world.request(Method::POST, "/account/password", Some("viewer")).json(&password);
    assert_eq!(changed.send().await?.status(), 200);
    assert_eq!(entries(&world, "what=password&user=viewer").await?.len(), 1);
    let params = json!({ "queue": "mine", "params": [{ "password": SECRET, "to": SECRET }] });
    change(&world, Method::POST, "/tasks", params).await?;

    let audit = world.database.database.collection::<Document>("audit");
    let stored: Vec<Document> = audit.find(doc! {}).await?.try_collect().await?;
    let told = format!("{stored:?}");
    for secret in [SECRET, PASSWORD, text.as_str(), made.as_str(), "disbatch_"] {
        assert!(!told.contains(secret), "{secret} is in {told}");
    }
    world.database.drop_database().await
}

#[tokio::test]
async fn where_nobody_is_asked_there_is_the_address() -> anyhow::Result<()> {
    let world = World::new().await?;
    for name in ["viewer", "submitter", "operator", "admin", "guest"] {
        world.store.remove_user(&World::name(name)?).await?;
    }
    let config = json!({ "mongohost": world.database.uri, "database": world.database.name });
    let open = crate::server::Server::start(&config).await?;
    let body = json!({ "threads": 1 });
    let changed = open.request(Method::POST, &format!("/queues/{}", world.mine)).json(&body).send().await?;
    assert_eq!(changed.status(), 200);
    let audit = open.request(Method::GET, "/audit").send().await?.text().await?;
    let audit: Vec<Value> = serde_json::from_str(&audit)?;
    assert_eq!(audit.len(), 1);
    assert_eq!(audit[0]["by"], "the REST API from 127.0.0.1");
    assert_eq!((&audit[0]["via"], audit[0].get("user")), (&json!("open"), None));
    world.database.drop_database().await
}
