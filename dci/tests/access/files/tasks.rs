//! What tasks take and make, as their submitters say.

use anyhow::{Context, ensure};
use bson::{Document, doc};
use disbatch_core::accounts::{Grant, PasswordHash, Role, Scope};
use disbatch_core::model::TaskId;
use reqwest::Method;
use serde_json::{Value, json};

use super::{get, post};
use crate::world::{PASSWORD, World};

/// Narrow may submit tasks to the first queue alone, Anna there and for acme, and Sue sees what acme has besides.
async fn with_submitters() -> anyhow::Result<World> {
    let world = World::new().await?;
    let hash = PasswordHash::of(PASSWORD)?;
    let queue = |role| Grant { scope: Scope::Queue(world.mine), role };
    let acme = |role| Grant { scope: Scope::Tenant("acme".to_owned()), role };
    for (name, grants) in [
        ("narrow", vec![queue(Role::Operator)]),
        ("anna", vec![queue(Role::Submitter), acme(Role::Submitter)]),
        ("sue", vec![queue(Role::Submitter), acme(Role::Viewer)]),
    ] {
        world.store.add_user(&World::name(name)?, None, &grants, Some(&hash)).await?;
    }
    // What tasks take has to be there.
    for (name, options) in [("data", json!({})), ("acme-data", json!({ ".tenant": "acme" }))] {
        let id = super::open(&world, "admin", name, options).await?;
        super::commit(&world, "admin", &id).await?;
    }
    Ok(world)
}

#[tokio::test]
async fn a_task_takes_and_makes_what_its_submitter_may_read_and_store() -> anyhow::Result<()> {
    let world = with_submitters().await?;
    let (input, output) = (json!({ "input": { "name": "data" } }), json!({ "output": { "name": "result" } }));
    let of_acme = json!({ "input": { "name": "acme-data" } });
    for (user, files, tenant, expected) in [
        ("narrow", &input, Value::Null, 403),
        ("narrow", &output, Value::Null, 403),
        ("anna", &input, Value::Null, 403),
        ("anna", &of_acme, json!("acme"), 200),
        ("anna", &output, json!("acme"), 200),
        ("submitter", &input, Value::Null, 200),
        ("submitter", &output, json!("acme"), 200),
        ("narrow", &Value::Null, Value::Null, 200),
    ] {
        let body = json!({ "queue": "mine", "params": [{ "a": 1 }], ".files": files, ".tenant": tenant });
        let (status, told) = post(&world, user, "/tasks", body).await?;
        ensure!(status == expected, "{user} {files} {tenant}: {status} {told}");
    }
    // The form of a queue's page asks the same of whoever fills it in.
    let by_form = format!("/ui/queues/{}/tasks", world.mine);
    for (user, tenant, expected) in [("anna", "acme", 200), ("anna", "", 403), ("sue", "acme", 403)] {
        let files = output.to_string();
        let form = [("json", "{\"a\":1}"), (".files", files.as_str()), (".tenant", tenant)];
        let status = world.request(Method::POST, &by_form, Some(user)).form(&form).send().await?.status();
        ensure!(status == expected, "{user} {tenant}, by a form: {status}");
    }
    // A role on a queue is none on files: nothing is stored, and nothing is told.
    let unknown = format!("/files/contents/{}", super::sha(b"x"));
    assert_eq!(get(&world, "narrow", &unknown).await?.0, 403);
    assert_eq!(super::put(&world, "narrow", (&super::sha(b"x"), b"x"), 0).await?.0, 403);
    assert_eq!(get(&world, "narrow", "/files").await?, (200, json!([])));
    // The queue becomes that of a tenant: its tasks are for that one.
    let path = format!("/queues/{}", world.mine);
    assert_eq!(post(&world, "admin", &path, json!({ "tenant": "acme" })).await?.0, 200);
    for (user, files, expected) in [("sue", &output, 403), ("anna", &output, 200), ("narrow", &input, 403)] {
        let body = json!({ "queue": "mine", "params": [{ "a": 1 }], ".files": files });
        assert_eq!(post(&world, user, "/tasks", body).await?.0, expected, "{user} {files}");
        let text = files.to_string();
        let form = [("json", "{\"a\":1}"), (".files", text.as_str())];
        let path = format!("/ui/queues/{}/tasks", world.mine);
        let status = world.request(Method::POST, &path, Some(user)).form(&form).send().await?.status();
        assert_eq!(status, expected, "{user} {files}, by a form");
    }
    world.database.drop_database().await
}

#[tokio::test]
async fn what_a_task_says_of_files_is_stored_and_checked() -> anyhow::Result<()> {
    let world = with_submitters().await?;
    let wanted = json!({ "Fileset": { "Input": { "Name": "data", "Patterns": ["*.py"] }, "Output": { "Name": "result" } } });
    let body = json!({ "queue": "mine", "params": [{ "a": 1 }], ".files": wanted });
    let (status, told) = post(&world, "submitter", "/tasks", body).await?;
    assert_eq!(status, 200, "{told}");
    let id = told["MongoDB::InsertManyResult"]["inserted"][0]["_id"]["$oid"].as_str().context("no id")?;
    let task = world.store.find_task(id.parse::<TaskId>()?).await?.context("no task")?;
    let stored = doc! { "input": { "name": "data", "patterns": ["*.py"] }, "output": { "name": "result" } };
    assert_eq!(task.rest.get_document("files").ok(), Some(&stored));
    let (_, shown) = get(&world, "viewer", &format!("/tasks/{id}")).await?;
    assert_eq!(shown["files"]["output"]["name"], "result");
    let page =
        world.request(Method::GET, &format!("/tasks/{id}"), Some("viewer")).header("accept", "text/html");
    let html = page.send().await?.error_for_status()?.text().await?;
    ensure!(html.contains("<a href=\"/files/result\">result</a>"), "{html}");
    for (files, part) in [
        (json!([]), ".files must be an object"),
        (json!({ "input": { "name": "../x" } }), ".files.input.name: "),
        (json!({ "input": { "name": "a", "patterns": ["a["] } }), ".files.input.patterns: "),
        (json!({ "output": { "name": "a", "version": 3 } }), ".files.output.version: "),
        (json!({ "outputs": {} }), ".files.outputs is unknown"),
    ] {
        let body = json!({ "queue": "mine", "params": [{ "a": 1 }], ".files": files });
        let (status, told) = post(&world, "submitter", "/tasks", body).await?;
        ensure!(
            status == 400 && told["error"].as_str().is_some_and(|error| error.starts_with(part)),
            "{told}"
        );
    }
    world.database.drop_database().await
}

#[tokio::test]
async fn queues_and_schedules_give_nobody_files_of_others() -> anyhow::Result<()> {
    let world = with_submitters().await?;
    let path = format!("/queues/{}", world.mine);
    let files = json!({ "input": { "name": "data" } });
    assert_eq!(post(&world, "narrow", &path, json!({ "files": files })).await?.0, 403);
    assert_eq!(post(&world, "narrow", &path, json!({ "threads": 3 })).await?.0, 200);
    let (status, told) = post(&world, "operator", &path, json!({ "files": { "input": {} } })).await?;
    assert_eq!((status, &told["error"]), (400, &json!("files.input.name is missing")));
    assert_eq!(post(&world, "operator", &path, json!({ "files": files })).await?.0, 200);
    let (_, queue) = get(&world, "viewer", &format!("{path}?.details=1")).await?;
    assert_eq!(queue["files"], files);
    let from_params = json!({ "from_params": true });
    for (user, expected) in [("narrow", 403), ("operator", 200)] {
        assert_eq!(post(&world, user, &path, json!({ "files": from_params })).await?.0, expected, "{user}");
    }
    let (_, queue) = get(&world, "viewer", &format!("{path}?.details=1")).await?;
    assert_eq!(queue["files"], from_params);
    for wrong in [json!({ "from_params": false }), json!({ "from_params": true, "output": { "name": "a" } })]
    {
        let (status, told) = post(&world, "operator", &path, json!({ "files": wrong })).await?;
        ensure!(status == 400 && told["error"].as_str().is_some_and(|e| e.contains("from_params")), "{told}");
    }
    assert_eq!(post(&world, "narrow", &path, json!({ "files": null })).await?.0, 200, "nothing is anybody's");
    let queues = world.database.database.collection::<Document>("queues");
    let left = queues.find_one(doc! { "_id": world.mine, "files": { "$exists": true } }).await?;
    ensure!(left.as_ref().is_none_or(|queue| queue.get("files") == Some(&bson::Bson::Null)), "{left:?}");

    let schedule = json!({
        "name": "nightly", "queue": "mine", "cron": "@daily", "params": { "a": 1 }, "options": { "files": files },
    });
    let (status, told) = post(&world, "narrow", "/schedules", schedule.clone()).await?;
    assert_eq!(status, 403, "{told}");
    let (status, told) = post(&world, "submitter", "/schedules", schedule).await?;
    assert_eq!((status, &told["options"]["files"]), (201, &files), "{told}");
    let wrong = json!({ "options": { "files": { "input": {} } } });
    let (status, told) = post(&world, "submitter", "/schedules/nightly", wrong).await?;
    assert_eq!((status, &told["error"]), (400, &json!("options.files.input.name is missing")));
    let (status, told) =
        post(&world, "submitter", "/schedules/nightly", json!({ "options": { "files": null } })).await?;
    assert_eq!((status, &told["options"]), (200, &json!({})), "{told}");
    world.database.drop_database().await
}
