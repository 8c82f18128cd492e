//! Who may say whose tasks are taken, and for whom somebody may submit tasks.

use anyhow::{Context, ensure};
use bson::{Document, doc};
use disbatch_core::accounts::{Grant, PasswordHash, Role, Scope};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::world::{MARKER, PASSWORD, World};

/// Somebody who operates the first queue and the tenant acme, and may look at the tenant seen.
async fn with_foreman() -> anyhow::Result<World> {
    let world = World::new().await?;
    let (name, hash) = (World::name("foreman")?, PasswordHash::of(PASSWORD)?);
    let grant = |scope, role| Grant { scope, role };
    let grants = [
        grant(Scope::Queue(world.mine), Role::Operator),
        grant(Scope::Tenant("acme".to_owned()), Role::Operator),
        grant(Scope::Tenant("seen".to_owned()), Role::Viewer),
    ];
    world.store.add_user(&name, None, &grants, Some(&hash)).await?;
    Ok(world)
}

async fn post(world: &World, user: &str, path: &str, body: Value) -> anyhow::Result<(StatusCode, String)> {
    let answer = world.request(Method::POST, path, Some(user)).json(&body).send().await?;
    Ok((answer.status(), answer.text().await?))
}

/// The scopes and values of the rules that somebody sees.
async fn seen(world: &World, user: &str) -> anyhow::Result<Vec<Value>> {
    let text = world.request(Method::GET, "/admission", Some(user)).send().await?.text().await?;
    let answer: Value = serde_json::from_str(&text).context(text)?;
    let rules = answer["rules"].as_array().context("no rules")?;
    Ok(rules.iter().map(|rule| json!([rule["scope"], rule["value"]])).collect())
}

#[tokio::test]
async fn numbers_of_all_tasks_are_for_viewers_of_all_queues() -> anyhow::Result<()> {
    let world = with_foreman().await?;
    let all = json!({ "scope": "all", "action": "pause" });
    assert_eq!(post(&world, "operator", "/admission", all).await?.0, 200);
    for (user, is_whole) in [("viewer", true), ("guest", false)] {
        let text = world.request(Method::GET, "/admission", Some(user)).send().await?.text().await?;
        let answer: Value = serde_json::from_str(&text).context(text)?;
        let rule = &answer["rules"][0];
        let shown = (rule["waiting"].is_number(), rule["by"].is_string());
        assert_eq!(shown, (is_whole, is_whole), "{user}: {rule}");
    }
    // A queue that one may not see is as if there were none.
    let other = format!("/arrays?queue={}", world.other);
    for path in [other.as_str(), "/arrays?queue=6b0003bb686c8275d8013333"] {
        let answer = world.request(Method::GET, path, Some("guest")).send().await?;
        assert_eq!(answer.status().as_u16(), 400, "{path}");
    }
    world.database.drop_database().await
}

#[tokio::test]
async fn rules_are_made_by_those_who_operate_what_they_are_about() -> anyhow::Result<()> {
    let world = with_foreman().await?;
    let rule = |scope: &str, value: &str| json!({ "scope": scope, "value": value, "action": "reject" });
    let (mine, other) = (world.mine.to_string(), world.other.to_string());
    for (user, body, expected) in [
        ("foreman", rule("queue", "mine"), 200),
        ("foreman", rule("tenant", "acme"), 200),
        ("foreman", rule("tenant", "seen"), 403),
        ("foreman", rule("tenant", "other"), 403),
        ("foreman", rule("owner", "foreman"), 403),
        ("foreman", json!({ "scope": "all", "action": "reject" }), 403),
        ("foreman", rule("queue", &other), 400),
        ("foreman", rule("queue", MARKER), 400),
        ("submitter", rule("queue", "mine"), 403),
        ("guest", rule("queue", "mine"), 403),
        ("operator", rule("owner", "anna"), 200),
        ("operator", rule("queue", &other), 200),
    ] {
        let (status, text) = post(&world, user, "/admission", body.clone()).await?;
        ensure!(status == expected, "{user} {body}: {status} {text}");
        ensure!(status == 200 || !text.contains(MARKER), "{user} {body} tells: {text}");
    }
    assert_eq!(seen(&world, "foreman").await?, [json!(["queue", mine]), json!(["tenant", "acme"])]);
    assert_eq!(seen(&world, "guest").await?, [json!(["queue", mine])]);
    assert_eq!(seen(&world, "viewer").await?.len(), 4);

    // Whoever is refused is told why, and no other is refused.
    let task = |queue: &str| json!({ "queue": queue, "params": [{ "a": 1 }] });
    assert_eq!(post(&world, "submitter", "/tasks", task("mine")).await?.0, 503);
    let lift = async |user: &str, query: &str| {
        let path = format!("/admission?{query}");
        anyhow::Ok(world.request(Method::DELETE, &path, Some(user)).send().await?.status().as_u16())
    };
    assert_eq!(lift("foreman", &format!("scope=queue&value={other}")).await?, 400);
    assert_eq!(lift("submitter", "scope=queue&value=mine").await?, 403);
    assert_eq!(lift("foreman", "scope=queue&value=mine").await?, 200);
    assert_eq!(lift("foreman", "scope=queue&value=mine").await?, 404);
    assert_eq!(post(&world, "submitter", "/tasks", task("mine")).await?.0, 200);
    let audit = world.database.database.collection::<Document>("audit");
    let made = audit.count_documents(doc! { "what": "admission set", "object.kind": "admission" }).await?;
    let lifted = doc! { "what": "admission lift", "user": "foreman", "queue": world.mine.0 };
    assert_eq!((made, audit.count_documents(lifted).await?), (4, 1));
    // Limits are for administrators; what changes nothing has no entry.
    let limits = json!({ "max_queued": 5 });
    for (user, expected) in [("operator", 403), ("admin", 200), ("admin", 200)] {
        assert_eq!(post(&world, user, "/tenants/acme", limits.clone()).await?.0, expected, "{user}");
    }
    let gone = world.request(Method::DELETE, "/tenants/acme", Some("admin")).send().await?;
    assert_eq!(gone.status(), 200);
    let of_tenant = doc! { "object.kind": "tenant", "object.name": "acme", "user": "admin" };
    assert_eq!(audit.count_documents(of_tenant.clone()).await?, 2);
    let mut set = of_tenant;
    set.extend(doc! { "what": "tenant set", "after.max_queued": 5 });
    assert_eq!(audit.count_documents(set).await?, 1);
    world.database.drop_database().await
}

#[tokio::test]
async fn tasks_are_of_whoever_submits_them_and_for_a_tenant_that_is_theirs() -> anyhow::Result<()> {
    let world = with_foreman().await?;
    let task = |tenant: &str| json!({ "queue": "mine", "params": [{ "a": 1 }], ".tenant": tenant });
    assert_eq!(post(&world, "foreman", "/tasks", task("acme")).await?.0, 200);
    assert_eq!(post(&world, "foreman", "/tasks", task("seen")).await?.0, 403);
    assert_eq!(post(&world, "foreman", "/tasks", task("other")).await?.0, 403);
    assert_eq!(post(&world, "operator", "/tasks", task("other")).await?.0, 200);
    let tasks = world.database.database.collection::<Document>("tasks");
    for (owner, tenant) in [("foreman", "acme"), ("operator", "other")] {
        let found = tasks.count_documents(doc! { "owner": owner, "tenant": tenant }).await?;
        assert_eq!(found, 1, "{owner}");
    }
    // The queue becomes that of a tenant, and only administrators can do that.
    let path = format!("/queues/{}", world.mine);
    assert_eq!(post(&world, "operator", &path, json!({ "tenant": "acme" })).await?.0, 403);
    assert_eq!(post(&world, "admin", &path, json!({ "tenant": "acme" })).await?.0, 200);
    assert_eq!(post(&world, "foreman", "/tasks", task("seen")).await?.0, 400);
    let plain = json!({ "queue": "mine", "params": [{ "a": 1 }] });
    assert_eq!(post(&world, "submitter", "/tasks", plain.clone()).await?.0, 200);
    let theirs = doc! { "owner": "submitter", "tenant": "acme" };
    assert_eq!(tasks.count_documents(theirs).await?, 1);
    // What one may not see is not told, by whatever call.
    let id = world.task(world.other).await?;
    let query = world.request(Method::GET, &format!("/tasks/query?.ids={id}&.fields=params"), Some("guest"));
    assert_eq!(query.send().await?.text().await?, "[null]");
    let batch = json!({ "tasks": [{ "queue": MARKER, "params": { "a": 1 } }, plain] });
    let (status, text) = post(&world, "foreman", "/tasks/batch", batch).await?;
    let answer: Value = serde_json::from_str(&text)?;
    assert_eq!((status.as_u16(), &answer["submitted"]), (200, &json!(1)), "{text}");
    assert_eq!(answer["results"][0], json!({ "error": "queue not found", "status": 400 }));
    let archive = json!({ ".older_than": 1 });
    assert_eq!(post(&world, "foreman", "/tasks/archive", archive).await?.0, 403, "of all queues");
    world.database.drop_database().await
}
