//! Schedules that only people start, those of tenants, and what became of their tasks.

use bson::{DateTime, Document, doc};
use disbatch_core::accounts::{Grant, PasswordHash, Role, Scope};
use reqwest::Method;
use serde_json::{Value, json};

use crate::{PASSWORD, World, id_of};

#[tokio::test]
async fn a_schedule_without_times_runs_when_somebody_asks() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (status, made) =
        world.call(Method::POST, "/schedules", json!({ "name": "by hand", "queue": "reports" })).await?;
    assert_eq!((status, &made["cron"], &made["next"]), (201, &json!([]), &Value::Null), "{made}");
    let (status, run) = world.call(Method::POST, "/schedules/by%20hand/run", json!({})).await?;
    assert_eq!(status, 200, "{run}");
    assert_eq!(world.tasks(doc! { "schedule": id_of(&made)? }).await?, 1);
    for path in ["pause", "resume"] {
        let (status, answer) =
            world.call(Method::POST, &format!("/schedules/by%20hand/{path}"), json!({})).await?;
        assert_eq!((status, &answer["next"]), (200, &Value::Null));
    }
    let (_, shown) = world.call(Method::GET, "/schedules/by%20hand/preview", Value::Null).await?;
    assert_eq!(shown["times"], json!([]));
    let (_, page) = world.page("/schedules").await?;
    assert!(page.contains("only when somebody asks") && page.contains("manual"), "{page}");
    // With times it is one like all others, and without them it is none again.
    let (_, changed) = world.call(Method::POST, "/schedules/by%20hand", json!({ "cron": "@daily" })).await?;
    assert!(changed["next"].is_string(), "{changed}");
    let (_, changed) = world.call(Method::POST, "/schedules/by%20hand", json!({ "cron": null })).await?;
    assert_eq!((&changed["cron"], &changed["next"]), (&json!([]), &Value::Null));
    let form =
        world.form("/schedules", &[("name", "formed"), ("queue", "reports"), ("cron", ""), (".then", "/")]);
    assert_eq!(form.await?.status(), 303);
    world.end().await
}

#[tokio::test]
async fn runs_are_told_page_by_page_also_from_the_archive() -> anyhow::Result<()> {
    let world = World::new().await?;
    let schedule = id_of(&world.nightly().await?)?;
    let at = |number: i64| DateTime::from_millis(1_795_000_000_123 + number * 60_000);
    let run = |number: i64, status: i32| {
        doc! {
            "queue": world.mail.0, "schedule": schedule, "scheduled_for": at(number), "status": status, "params": {},
            "node": "n1", "started": at(number), "mtime": at(number), "ctime": at(number),
        }
    };
    let database = &world.database.database;
    database.collection("tasks").insert_many((3..6).map(|number| run(number, 1))).await?;
    database.collection("tasks.archive").insert_many((0..3).map(|number| run(number, 2))).await?;
    let page = async |query: String| {
        let (status, answer) =
            world.call(Method::GET, &format!("/schedules/nightly/runs{query}"), Value::Null).await?;
        assert_eq!(status, 200, "{answer}");
        let of = |name: &str| -> Vec<Value> {
            answer["runs"].as_array().into_iter().flatten().map(|run| run[name].clone()).collect()
        };
        anyhow::Ok((of("for"), of("word"), answer["next"].clone()))
    };
    let (all, words, next) = page(String::new()).await?;
    assert_eq!((all.len(), next), (6, Value::Null));
    assert_eq!(words, ["succeeded", "succeeded", "succeeded", "failed", "failed", "failed"]);
    let mut seen = Vec::new();
    let mut query = "?.limit=4".to_owned();
    loop {
        let (times, _, next) = page(query).await?;
        seen.extend(times);
        let Some(next) = next.as_str() else { break };
        query = format!("?.limit=4&.before={next}");
    }
    assert_eq!(seen, all, "each once, the latest first");
    assert_eq!(world.call(Method::GET, "/schedules/nightly/runs?.limit=0", Value::Null).await?.0, 400);
    assert_eq!(world.call(Method::GET, "/schedules/nosuch/runs", Value::Null).await?.0, 404);
    // The same as a filter of tasks.
    let (status, tasks) =
        world.call(Method::GET, &format!("/tasks?schedule={schedule}&status=1"), Value::Null).await?;
    assert_eq!((status, tasks.as_array().map(Vec::len)), (200, Some(3)), "{tasks}");
    assert_eq!(world.call(Method::GET, "/tasks?schedule=nightly", Value::Null).await?.0, 400, "it is no id");
    let (status, html) = world.page(&format!("/tasks?schedule={schedule}")).await?;
    assert_eq!((status, html.matches("<tr id=").count()), (200, 3), "{html}");
    world.end().await
}

#[tokio::test]
async fn a_schedule_in_a_shared_queue_is_for_its_tenant() -> anyhow::Result<()> {
    let world = World::with_users().await?;
    let hash = PasswordHash::of(PASSWORD)?;
    let grants = [
        Grant { scope: Scope::Queue(world.mail), role: Role::Submitter },
        Grant { scope: Scope::Tenant("acme".to_owned()), role: Role::Submitter },
    ];
    world.store.add_user(&"tina".parse()?, None, &grants, Some(&hash)).await?;
    let new = |name: &str| json!({ "name": name, "queue": "<mail>", "cron": "@daily", "tenant": "acme" });
    let (status, error) = world.call_as(Some("ann"), Method::POST, "/schedules", new("a")).await?;
    assert_eq!((status, &error["error"]), (403, &json!("this needs the role submitter on the tenant acme")));
    let (status, made) = world.call_as(Some("tina"), Method::POST, "/schedules", new("b")).await?;
    assert_eq!((status, &made["tenant"]), (201, &json!("acme")), "{made}");
    assert_eq!(world.call_as(Some("ann"), Method::POST, "/schedules/b/run", json!({})).await?.0, 403);
    assert_eq!(world.call_as(Some("tina"), Method::POST, "/schedules/b/run", json!({})).await?.0, 200);
    let tasks = world.database.database.collection::<Document>("tasks");
    assert_eq!(tasks.count_documents(doc! { "tenant": "acme", "schedule": id_of(&made)? }).await?, 1);
    // Its limits are those of the tenant.
    let limits = json!({ "max_schedules": 1 });
    let (status, _) = world.call(Method::POST, "/tenants/acme", limits.clone()).await?;
    if status == 200 {
        assert_eq!(world.call_as(Some("tina"), Method::POST, "/schedules", new("c")).await?.0, 429);
    }
    world.end().await
}
