//! Rules that say whose tasks are taken, held or refused, and the calls that ask for many tasks at once or for chosen fields.

use std::time::Duration;

use anyhow::Context;
use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};
use disbatch_core::admission::{Action, NewRule, Scope};
use disbatch_core::model::{QueueId, TaskId};
use disbatch_core::task::{CancelRequest, Retried, TaskOptions};
use disbatch_tests::{Dci, World, eventually};
use reqwest::Method;
use serde_json::{Value, json};

const DEMO: &str = "Disbatch::Plugin::Demo";

/// A database with its indexes, and a DCI.
async fn served() -> anyhow::Result<(World, Dci)> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    Ok((world, dci))
}

fn task(queue: QueueId, options: Value) -> Value {
    let mut body = json!({ "queue": queue.to_string(), "params": [{ "commands": "a", "noreport": 1 }] });
    if let (Some(body), Some(options)) = (body.as_object_mut(), options.as_object()) {
        body.extend(options.clone());
    }
    body
}

async fn submit(dci: &Dci, queue: QueueId, options: Value) -> anyhow::Result<TaskId> {
    let answer = dci.posted("/tasks", &task(queue, options)).await?;
    let id = &answer["MongoDB::InsertManyResult"]["inserted"][0]["_id"]["$oid"];
    Ok(id.as_str().context(answer.to_string())?.parse()?)
}

async fn rule(dci: &Dci, scope: &str, value: &str, action: &str) -> anyhow::Result<Value> {
    let value = if scope == "all" { Value::Null } else { json!(value) };
    let body = json!({ "scope": scope, "value": value, "action": action, "reason": "upgrade" });
    dci.posted("/admission", &body).await
}

async fn lift(dci: &Dci, scope: &str, value: &str) -> anyhow::Result<Value> {
    let path = if scope == "all" {
        "/admission?scope=all".to_owned()
    } else {
        format!("/admission?scope={scope}&value={value}")
    };
    let answer = dci.request(Method::DELETE, &path).send().await?;
    let (status, text) = (answer.status(), answer.text().await?);
    anyhow::ensure!(status == 200, "{path}: {status} {text}");
    Ok(serde_json::from_str(&text)?)
}

/// The gate that a task is at, if it is blocked.
async fn gate(world: &World, id: TaskId) -> anyhow::Result<Option<String>> {
    Ok(world.task(id).await?.get_str("gate").ok().map(str::to_owned))
}

#[tokio::test]
async fn a_pause_holds_its_tasks_and_lets_all_of_them_and_no_others_go() -> anyhow::Result<()> {
    let (world, dci) = served().await?;
    let ours = world.queue(DEMO, doc! { "tenant": "acme", "threads": 1 }).await?;
    let both = world.queue(DEMO, doc! { "tenant": "acme" }).await?;
    let free = world.queue(DEMO, doc! {}).await?;
    let before = submit(&dci, ours, json!({})).await?;
    rule(&dci, "tenant", "acme", "pause").await?;
    rule(&dci, "queue", &both.to_string(), "pause").await?;

    let plain = submit(&dci, ours, json!({})).await?;
    let twice = submit(&dci, both, json!({})).await?;
    let other = submit(&dci, free, json!({})).await?;
    let named = submit(&dci, free, json!({ ".tenant": "acme" })).await?;
    let behind = submit(&dci, ours, json!({ ".after": [other.to_string()] })).await?;
    let locked = submit(&dci, ours, json!({ ".locks": ["db"] })).await?;
    let later = submit(&dci, ours, json!({ ".delay": 86_400 })).await?;
    for id in [plain, twice, named, behind, locked, later] {
        assert_eq!((world.status(id).await?, gate(&world, id).await?.as_deref()), (-4, Some("admission")));
    }
    assert_eq!((world.status(before).await?, world.status(other).await?), (-2, -2));
    let parent = world.task(other).await?;
    assert!(!parent.contains_key("dependents"), "nobody waits for it yet");
    let told = dci.get(&format!("/tasks/{plain}/explain")).await?;
    let expected = "The task is blocked: it is held until the rule of admission for the tenant acme is lifted (upgrade).";
    assert_eq!(told["summary"], expected);
    // Whoever looks at gates leaves it alone.
    world.store().pass_gates().await?;
    world.store().recheck_gates(None).await?;
    assert_eq!(world.store().finish_admission().await?, 0);
    assert_eq!(world.status(plain).await?, -4);

    assert_eq!(lift(&dci, "tenant", "acme").await?, json!({ "lifted": true, "released": 5 }));
    assert_eq!((world.status(plain).await?, world.status(named).await?), (-2, -2));
    assert_eq!((world.status(later).await?, world.status(twice).await?), (-7, -4));
    assert_eq!(gate(&world, plain).await?, None);
    assert_eq!(gate(&world, twice).await?.as_deref(), Some("admission"), "another rule holds it");
    for id in [behind, locked] {
        assert_eq!((world.status(id).await?, gate(&world, id).await?.as_deref()), (-4, Some("new")));
    }
    let waiting = world.task(behind).await?;
    assert_eq!(waiting.get_array("waiting_for")?, waiting.get_array("after")?);
    let _den = world.den_at_work("n1").await?;
    for id in [before, plain, locked] {
        world.until_status(id, 1).await?;
    }
    assert_eq!(lift(&dci, "queue", &both.to_string()).await?["released"], 1);
    assert_eq!(world.status(twice).await?, -2);
    let again = dci.request(Method::DELETE, "/admission?scope=tenant&value=acme").send().await?;
    assert_eq!(again.status(), 404);
    world.end().await
}

#[tokio::test]
async fn the_rule_for_the_narrowest_decides_and_of_two_the_stricter() -> anyhow::Result<()> {
    let (world, dci) = served().await?;
    let acme = world.queue(DEMO, doc! { "tenant": "acme" }).await?;
    let free = world.queue(DEMO, doc! {}).await?;
    let tries = async |queue| anyhow::Ok(dci.post("/tasks", &task(queue, json!({}))).await?);
    let made = rule(&dci, "all", "", "reject").await?;
    assert_eq!(
        (&made["scope"], &made["action"], &made["safe"]),
        (&json!("all"), &json!("reject"), &json!(false))
    );
    let (status, refused) = tries(free).await?;
    assert_eq!(status, 503);
    let expected = json!({
        "error": "no new tasks are taken at the moment: upgrade", "rule": { "scope": "all", "value": null },
    });
    assert_eq!(refused, expected);
    rule(&dci, "tenant", "acme", "accept").await?;
    assert_eq!((tries(acme).await?.0, tries(free).await?.0), (200, 503));
    rule(&dci, "queue", &acme.to_string(), "reject").await?;
    let (status, refused) = tries(acme).await?;
    assert_eq!((status, &refused["rule"]["scope"]), (503, &json!("queue")), "the stricter one");
    rule(&dci, "queue", &acme.to_string(), "pause").await?;
    assert_eq!(tries(acme).await?.0, 200);
    assert_eq!(world.count(acme, doc! { "status": -4, "gate": "admission" }).await?, 1);
    // A milder rule lets go what the one before held.
    rule(&dci, "queue", &acme.to_string(), "accept").await?;
    assert_eq!(world.count(acme, doc! { "status": -2 }).await?, 2);
    let owner = TaskOptions { owner: Some("anna".to_owned()), ..TaskOptions::default() };
    let by_anna = async || world.store().submit_tasks(free, vec![doc! {}], &owner).await;
    assert!(by_anna().await.is_err());
    rule(&dci, "owner", "anna", "accept").await?;
    by_anna().await?;
    let wrong = json!({ "scope": "planet", "value": "x", "action": "reject" });
    assert_eq!(dci.post("/admission", &wrong).await?.0, 400);
    let rules = dci.get("/admission").await?;
    let scopes: Vec<&Value> =
        rules["rules"].as_array().context("no rules")?.iter().map(|rule| &rule["scope"]).collect();
    assert_eq!(scopes, ["all", "queue", "tenant", "owner"]);
    world.end().await
}

#[tokio::test]
async fn it_is_safe_to_upgrade_when_nothing_is_left_but_what_is_held() -> anyhow::Result<()> {
    let (world, dci) = served().await?;
    let queue = world.queue(DEMO, doc! { "threads": 1 }).await?;
    let task = submit(&dci, queue, json!({})).await?;
    let name = format!("q{queue}");
    rule(&dci, "queue", &name, "pause").await?;
    submit(&dci, queue, json!({})).await?;
    let state = async || {
        let rules = dci.get("/admission").await?;
        Ok::<Value, anyhow::Error>(rules["rules"][0].clone())
    };
    let before = state().await?;
    assert_eq!((&before["waiting"], &before["held"], &before["safe"]), (&json!(2), &json!(1), &json!(false)));
    assert_eq!((&before["name"], &before["text"]), (&json!(name), &json!("2 wait, 1 held, 0 run")));
    let _den = world.den_at_work("n1").await?;
    world.until_status(task, 1).await?;
    let after = eventually("it to be safe", || async {
        let now = state().await?;
        Ok((now["safe"] == true).then_some(now))
    })
    .await?;
    assert_eq!(after["text"], "empty, 1 held: safe to upgrade");
    world.end().await
}

#[tokio::test]
async fn no_task_is_held_that_no_rule_holds_whoever_dies() -> anyhow::Result<()> {
    // Without a DCI, which would look for them, too.
    let world = World::new().await?;
    let (store, queue) = (world.store(), world.queue(DEMO, doc! {}).await?);
    store.ensure_indexes().await?;
    let rules = world.database().collection::<Document>("admission");
    let pause =
        |scope: Scope| NewRule { scope, action: Action::Pause, reason: None, by: "somebody".to_owned() };
    store.set_rule(&pause(Scope::Owner("anna".to_owned()))).await?;
    // As if whoever lifted the rule had died, and a submission that had read it before had come later.
    let owner = TaskOptions { owner: Some("anna".to_owned()), ..TaskOptions::default() };
    let held = store.submit_tasks(queue, vec![doc! {}, doc! {}], &owner).await?.ids;
    let lifted = doc! { "$unset": { "action": "" }, "$set": { "settled": false, "changed": store.now() } };
    rules.update_one(doc! { "_id": "owner anna" }, lifted).await?;
    assert_eq!(store.finish_admission().await?, 2);
    assert_eq!(world.status(held[0]).await?, -2);
    world.set(held[0], doc! { "status": -4, "gate": "admission" }).await?;
    assert_eq!(store.finish_admission().await?, 1, "it is looked for again for a while");
    // After that nobody can be about to hold anything because of it.
    let long_ago = DateTime::from_millis(store.now().timestamp_millis() - 11 * 60_000);
    rules.update_many(doc! {}, doc! { "$set": { "changed": long_ago } }).await?;
    store.finish_admission().await?;
    assert_eq!(rules.count_documents(doc! {}).await?, 0, "a lifted rule is gone");
    store.set_rule(&pause(Scope::All)).await?;
    rules.update_many(doc! {}, doc! { "$set": { "changed": long_ago } }).await?;
    store.finish_admission().await?;
    let kept = rules.find_one(doc! { "_id": "all" }).await?.context("the rule is gone")?;
    assert_eq!((kept.get_str("action")?, kept.get_bool("settled")?), ("pause", true));
    world.end().await
}

#[tokio::test]
async fn each_entry_of_a_batch_is_answered_by_itself() -> anyhow::Result<()> {
    let (world, dci) = served().await?;
    let disks = world.queue(DEMO, doc! {}).await?;
    let closed = world.queue(DEMO, doc! { "accepting": false }).await?;
    let limited = world.queue(DEMO, doc! { "tenant": "acme" }).await?;
    dci.posted("/tenants/acme", &json!({ "max_queued": 1 })).await?;
    let entry = |queue: String, options: Value| {
        let mut entry = json!({ "queue": queue, "params": { "commands": "a" } });
        if let (Some(entry), Some(options)) = (entry.as_object_mut(), options.as_object()) {
            entry.extend(options.clone());
        }
        entry
    };
    let tasks = json!([
        entry(disks.to_string(), json!({})),
        entry(closed.to_string(), json!({})),
        entry("nosuch".to_owned(), json!({})),
        entry(limited.to_string(), json!({})),
        entry(limited.to_string(), json!({})),
        entry(disks.to_string(), json!({ ".after": [-5, -2] })),
        entry(disks.to_string(), json!({ ".after": [-2] })),
        entry(disks.to_string(), json!({ ".timeout": "soon" })),
        { "queue": disks.to_string(), "params": [{ "a": 1 }, { "a": 2 }] },
    ]);
    let answer = dci.posted("/tasks/batch", &json!({ "tasks": tasks })).await?;
    let results = answer["results"].as_array().context("no results")?;
    let statuses: Vec<u64> = results.iter().map(|result| result["status"].as_u64().unwrap_or(200)).collect();
    assert_eq!(statuses, [200, 409, 400, 200, 429, 200, 409, 400, 200], "{answer}");
    assert_eq!((&answer["submitted"], &answer["refused"]), (&json!(4), &json!(5)));
    assert_eq!(results[8]["ids"].as_array().map(Vec::len), Some(2));
    assert_eq!(world.count(disks, doc! {}).await?, 4);

    let after = json!({ "tasks": [
        entry(disks.to_string(), json!({})), entry(disks.to_string(), json!({ ".after": [-1] })),
    ] });
    let answer = dci.posted("/tasks/batch", &after).await?;
    let ids: Vec<TaskId> = [0, 1]
        .into_iter()
        .map(|at: usize| Ok(answer["results"][at]["id"].as_str().context("no id")?.parse()?))
        .collect::<anyhow::Result<_>>()?;
    assert_eq!(world.task(ids[1]).await?.get_array("after")?, &vec![ids[0].0.into()]);
    for wrong in
        [json!({}), json!({ "tasks": [] }), json!({ "tasks": [1] }), json!({ "tasks": [{}], "queue": "q" })]
    {
        assert_eq!(dci.post("/tasks/batch", &wrong).await?.0, 400, "{wrong}");
    }
    world.end().await
}

#[tokio::test]
async fn no_change_of_chosen_fields_is_missed_between_asking_and_waiting() -> anyhow::Result<()> {
    let (world, dci) = served().await?;
    let queue = world.queue(DEMO, doc! {}).await?;
    let task = submit(&dci, queue, json!({})).await?;
    let absent = ObjectId::new();
    let fields = ".fields=status,progress";
    let rows = dci.get(&format!("/tasks/query?.ids={absent},{task}&{fields}")).await?;
    assert_eq!((&rows[0], &rows[1]["fields"]), (&Value::Null, &json!({ "status": -2 })));
    let seen = rows[1]["seen"].as_str().context("nothing to wait with")?.to_owned();
    let wait = |since: &str, seconds: u64| {
        dci.request(Method::GET, &format!("/tasks/{task}/wait?{fields}&.since={since}&.timeout={seconds}"))
            .send()
    };
    let same: Value = serde_json::from_str(&wait(&seen, 0).await?.text().await?)?;
    assert_eq!((&same["changed"], &same["seen"]), (&json!(false), &json!(seen)));
    // What nobody has asked for changes nothing.
    world.set(task, doc! { "node": "n1" }).await?;
    let other: Value = serde_json::from_str(&wait(&seen, 0).await?.text().await?)?;
    assert_eq!(other["changed"], false);

    // Between the answer and the next question.
    world.set(task, doc! { "status": 0 }).await?;
    let changed: Value = serde_json::from_str(&wait(&seen, 600).await?.text().await?)?;
    assert_eq!((&changed["changed"], &changed["fields"]), (&json!(true), &json!({ "status": 0 })));
    let next = changed["seen"].as_str().context("nothing to wait with")?.to_owned();

    // While it is waited for.
    let waiting = tokio::spawn(wait(&next, 600));
    world.set(task, doc! { "progress": { "percent": 40 } }).await?;
    let told: Value =
        serde_json::from_str(&tokio::time::timeout(Duration::from_secs(60), waiting).await???.text().await?)?;
    assert_eq!(told["fields"], json!({ "status": 0, "progress": { "percent": 40 } }));
    let first = dci.get(&format!("/tasks/{task}/wait?{fields}&.timeout=600")).await?;
    assert_eq!((&first["changed"], &first["seen"]), (&json!(true), &told["seen"]), "at once without .since");
    for wrong in ["/tasks/query", "/tasks/query?.ids=x", "/tasks/query?.ids={id}&.fields=$where"] {
        let path = wrong.replace("{id}", &task.to_string());
        assert_eq!(dci.request(Method::GET, &path).send().await?.status(), 400, "{path}");
    }
    world.end().await
}

#[tokio::test]
async fn one_task_goes_to_the_archive_and_so_do_old_ones() -> anyhow::Result<()> {
    let (world, dci) = served().await?;
    let queue = world.queue(DEMO, doc! {}).await?;
    let task = submit(&dci, queue, json!({})).await?;
    let path = format!("/tasks/{task}/archive");
    let (status, answer) = dci.post(&path, &json!({})).await?;
    assert_eq!(
        (status, answer),
        (409, json!({ "error": "the task has not ended: its status is -2 (queued)" }))
    );
    world.set(task, doc! { "status": 1 }).await?;
    let archived = json!({ "id": task.to_string(), "outcome": "archived" });
    assert_eq!(dci.posted(&path, &json!({})).await?, archived);
    assert_eq!(dci.posted(&path, &json!({})).await?["outcome"], "archived before");
    assert_eq!(dci.get(&format!("/tasks/{task}")).await?["status"], 1);
    let row = dci.get(&format!("/tasks/query?.ids={task}")).await?;
    assert_eq!(row[0]["fields"], json!({ "status": 1 }), "it is found in the archive, too");
    assert_eq!(dci.post("/tasks/000000000000000000000000/archive", &json!({})).await?.0, 404);

    let old = submit(&dci, queue, json!({})).await?;
    let new = submit(&dci, queue, json!({})).await?;
    let hour_ago = DateTime::from_millis(world.store().now().timestamp_millis() - 3_600_000);
    world.set(old, doc! { "status": 1, "mtime": hour_ago }).await?;
    world.set(new, doc! { "status": 1, "mtime": world.store().now() }).await?;
    assert_eq!(dci.post("/tasks/archive", &json!({ "queue": "*" })).await?.0, 400);
    let (status, job) = dci.post("/tasks/archive", &json!({ ".older_than": 600 })).await?;
    assert_eq!(status, 202, "{job}");
    let job = job["id"].as_str().context("no id")?.to_owned();
    eventually("the end of the job", || async {
        Ok((dci.get(&format!("/bulk/{job}")).await?["state"] == "done").then_some(()))
    })
    .await?;
    assert!(world.task(old).await.is_err());
    world.task(new).await?;
    world.end().await
}

#[tokio::test]
async fn a_task_that_was_cancelled_while_it_was_held_waits_as_before_when_it_is_tried_again()
-> anyhow::Result<()> {
    let (world, dci) = served().await?;
    let queue = world.queue(DEMO, doc! { "threads": 0 }).await?;
    let parent = submit(&dci, queue, json!({})).await?;
    rule(&dci, "queue", &queue.to_string(), "pause").await?;
    let child = submit(&dci, queue, json!({ ".after": [parent.to_string()] })).await?;
    let (store, request) = (world.store(), CancelRequest { by: "a test".to_owned(), reason: None });
    store.cancel_task(child, &request).await?;
    assert_eq!(world.status(child).await?, -5);
    assert_eq!(store.retry_task(child, "after all").await?, Retried::Blocked);
    assert_eq!(gate(&world, child).await?.as_deref(), Some("admission"), "the rule is still there");
    store.cancel_task(child, &request).await?;
    lift(&dci, "queue", &queue.to_string()).await?;
    assert_eq!(store.retry_task(child, "after all").await?, Retried::Blocked);
    let task = world.task(child).await?;
    assert_eq!(task.get_array("waiting_for")?, task.get_array("after")?);
    assert_eq!(gate(&world, child).await?.as_deref(), Some("after"));
    world.end().await
}
