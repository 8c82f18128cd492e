//! Parameters are checked by the schema of the plugin whatever way tasks come, and options that there are not are named.

use bson::{Document, doc};
use disbatch_core::model::QueueId;
use reqwest::Method;
use serde_json::{Value, json};

use crate::world::World;

/// Asks as the administrator.
async fn call(
    world: &World,
    method: Method,
    path: &str,
    body: &Value,
) -> anyhow::Result<(u16, String, Value)> {
    let answer = world.request(method, path, Some("admin")).json(body).send().await?;
    let status = answer.status().as_u16();
    let warning = answer.headers().get("disbatch-warning").and_then(|value| value.to_str().ok());
    let warning = warning.unwrap_or_default().to_owned();
    Ok((status, warning, answer.json().await.unwrap_or_default()))
}

/// With a plugin that wants `n`, from 1 on, and the queue `checked` that has it.
async fn world() -> anyhow::Result<(World, QueueId)> {
    let world = World::new().await?;
    let plugin = |least: i64| {
        json!({
            "_id": "My::Checked", "engine": "http", "http": { "url": "http://127.0.0.1:1/" },
            "params": {
                "type": "object", "required": ["n"], "additionalProperties": false,
                "properties": { "n": { "type": "integer", "minimum": least }, "mode": { "enum": ["fast", "slow"] } },
            },
        })
    };
    assert_eq!(call(&world, Method::POST, "/workers", &plugin(1)).await?.0, 201);
    let queue = QueueId(bson::oid::ObjectId::new());
    world.store.insert_queue(doc! { "_id": queue, "name": "checked", "plugin": "My::Checked" }).await?;
    Ok((world, queue))
}

async fn tasks(world: &World, queue: QueueId) -> anyhow::Result<u64> {
    let tasks = world.database.database.collection::<Document>("tasks");
    Ok(tasks.count_documents(doc! { "queue": queue.0 }).await?)
}

#[tokio::test]
async fn no_way_leads_around_the_schema_of_a_plugin() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let people = world.database.database.collection::<Document>("people");
    people.insert_many([doc! { "age": 5 }, doc! { "age": "old" }]).await?;
    let wrong = json!({ "n": 0 });
    let of_person = json!({ "n": "document.age" });
    for (path, body) in [
        ("/tasks", json!({ "queue": "checked", "params": wrong })),
        ("/tasks", json!({ "queue": "checked", "params": [{ "n": 1 }, wrong] })),
        ("/tasks", json!({ "queue": "checked", "params": of_person, "collection": "people", "filter": {} })),
        ("/tasks", json!({ "queue": "checked", "params": {}, ".array": "0-9", ".array_key": "n" })),
        (
            "/tasks",
            json!({ "queue": "checked", "params": { "n": 1 }, ".array": ["fast", "tepid"], ".array_key": "mode" }),
        ),
        (
            "/tasks",
            json!({ "queue": "checked", "params": {}, ".array": "1-9", ".array_key": "n", ".array_final": {} }),
        ),
        ("/tasks", json!({ "queue": "checked", "params": { "n": 1 }, ".steps": [{}, { "params": wrong }] })),
        ("/tasks/checked", json!([wrong])),
        ("/tasks/checked/people", json!({ "filter": {}, "params": of_person })),
        ("/queue-create-tasks-json", json!({ "queueid": "checked", "object": [wrong] })),
        (
            "/queue-create-tasks-from-query-json",
            json!({
                "queueid": "checked", "collection": "people", "jsonfilter": {}, "params": of_person,
            }),
        ),
        ("/schedules", json!({ "name": "x", "queue": "checked", "cron": "@daily", "params": wrong })),
        ("/schedules", json!({ "name": "x", "queue": "checked", "cron": "@daily" })),
    ] {
        let (status, _, answer) = call(&world, Method::POST, path, &body).await?;
        assert_eq!(status, 400, "{path} {body}: {answer}");
        let text = answer.to_string();
        assert!(text.contains("the schema of the plugin My::Checked: /"), "{path} {body}: {answer}");
    }
    let batch = json!({ "tasks": [{ "queue": "checked", "params": wrong }, { "queue": "checked", "params": { "n": 1 } }] });
    let (_, _, answer) = call(&world, Method::POST, "/tasks/batch", &batch).await?;
    assert_eq!((&answer["results"][0]["status"], &answer["submitted"]), (&json!(400), &json!(1)), "{answer}");
    let path = format!("/ui/queues/{queue}/tasks");
    let (status, _, answer) = call(&world, Method::POST, &path, &json!({ "json": "{\"n\":0}" })).await?;
    assert_eq!((status, &answer["fields"]["/n"]), (400, &json!("must be at least 1")), "{answer}");
    assert_eq!(tasks(&world, queue).await?, 1, "that of the batch alone");
    world.database.drop_database().await
}

#[tokio::test]
async fn all_mistakes_are_told_with_their_pointers() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let body =
        json!({ "queue": "checked", "params": [{ "n": 1 }, { "n": "x", "mode": "tepid" }, { "m": 1 }] });
    let (status, _, answer) = call(&world, Method::POST, "/tasks", &body).await?;
    assert_eq!(status, 400);
    let expected = json!({
        "error": "task 2: params do not fit the schema of the plugin My::Checked: /mode must be one of \"fast\", \"slow\"; \
            /n must be of type integer, and is string; task 3: params do not fit the schema of the plugin My::Checked: \
            /n must be given; /m is unknown: did you mean n?",
        "problems": [
            { "task": 1, "path": "/mode", "message": "must be one of \"fast\", \"slow\"", "plugin": "My::Checked" },
            { "task": 1, "path": "/n", "message": "must be of type integer, and is string", "plugin": "My::Checked" },
            { "task": 2, "path": "/n", "message": "must be given", "plugin": "My::Checked" },
            { "task": 2, "path": "/m", "message": "is unknown: did you mean n?", "plugin": "My::Checked" },
        ],
    });
    assert_eq!(answer, expected);
    let many = json!({ "queue": "checked", "params": vec![json!({ "n": 0 }); 500] });
    let (_, _, answer) = call(&world, Method::POST, "/tasks", &many).await?;
    assert_eq!(answer["problems"].as_array().map(Vec::len), Some(20));
    for right in [json!({ "n": 1 }), json!({ "n": 7, "mode": "slow" })] {
        let body = json!({ "queue": "checked", "params": right });
        assert_eq!(call(&world, Method::POST, "/tasks", &body).await?.0, 200);
    }
    assert_eq!(tasks(&world, queue).await?, 2);
    // A plugin without a schema, and one that is not known here, take anything.
    let body = json!({ "queue": "mine", "params": { "whatever": [1] } });
    assert_eq!(call(&world, Method::POST, "/tasks", &body).await?.0, 200);
    world.database.drop_database().await
}

#[tokio::test]
async fn a_schema_that_is_changed_holds_for_schedules_and_repetitions_that_were_there() -> anyhow::Result<()>
{
    let (world, queue) = world().await?;
    let schedule = json!({ "name": "nightly", "queue": "checked", "cron": "@daily", "params": { "n": 1 } });
    assert_eq!(call(&world, Method::POST, "/schedules", &schedule).await?.0, 201);
    let once = json!({ "queue": "checked", "params": { "n": 1 }, ".idempotency_key": "k" });
    let (_, _, first) = call(&world, Method::POST, "/tasks", &once).await?;
    let stricter = json!({
        "engine": "http", "http": { "url": "http://127.0.0.1:1/" },
        "params": { "properties": { "n": { "type": "integer", "minimum": 5 } } },
    });
    assert_eq!(call(&world, Method::PUT, "/workers/My::Checked", &stricter).await?.0, 200);
    let expected = "params do not fit the schema of the plugin My::Checked: /n must be at least 5";
    for (path, body) in [
        ("/schedules/nightly/run", json!({})),
        ("/schedules/nightly", json!({ "params": { "n": 4 } })),
        ("/schedules/nightly/backfill", json!({ "from": "2026-01-01", "to": "2026-01-02" })),
    ] {
        let (status, _, answer) = call(&world, Method::POST, path, &body).await?;
        assert_eq!((status, answer["error"].as_str()), (400, Some(expected)), "{path}");
    }
    let (status, _, again) = call(&world, Method::POST, "/tasks", &once).await?;
    assert_eq!((status, again), (200, first), "it is answered as it was");
    assert_eq!(tasks(&world, queue).await?, 1);
    let change = json!({ "params": { "n": 5 } });
    assert_eq!(call(&world, Method::POST, "/schedules/nightly", &change).await?.0, 200);
    assert_eq!(call(&world, Method::POST, "/schedules/nightly/run", &json!({})).await?.0, 200);
    world.database.drop_database().await
}

#[tokio::test]
async fn a_schema_that_reads_from_elsewhere_is_refused() -> anyhow::Result<()> {
    let world = World::new().await?;
    for (params, message) in [
        (
            json!({ "$ref": "https://example.com/s.json" }),
            "params: /$ref: 'https://example.com/s.json' is not in this schema",
        ),
        (
            json!({ "properties": { "n": { "type": "text" } } }),
            "params: /properties/n/type: expected the name of a type",
        ),
    ] {
        let worker = json!({ "_id": "My::Odd", "engine": "http", "params": params });
        let (status, _, answer) = call(&world, Method::POST, "/workers", &worker).await?;
        let error = answer["error"].as_str().unwrap_or_default();
        assert!(status == 400 && error.starts_with(message), "{status} {answer}");
    }
    world.database.drop_database().await
}

#[tokio::test]
async fn an_option_that_there_is_not_is_refused_or_told() -> anyhow::Result<()> {
    let world = World::new().await?;
    let task = json!({ "queue": "mine", "params": { "a": 1 }, ".max_attemps": 5 });
    let (status, warning, _) = call(&world, Method::POST, "/tasks", &task).await?;
    assert_eq!(
        (status, warning.as_str()),
        (200, "ignored unknown option '.max_attemps': did you mean '.max_attempts'?")
    );
    let right = json!({ "queue": "mine", "params": { "a": 1 }, ".max_attempts": 5, ".delay": 5 });
    assert_eq!(call(&world, Method::POST, "/tasks", &right).await?.1, "");
    let (status, warning, _) =
        call(&world, Method::POST, "/tasks/mine?.deadine=1", &json!([{ "a": 1 }])).await?;
    assert_eq!((status, warning.as_str()), (200, "ignored unknown option '.deadine'"));
    let (_, _, answer) = call(&world, Method::POST, "/tasks/batch", &json!({ "tasks": [task] })).await?;
    let expected = "unknown option '.max_attemps': did you mean '.max_attempts'?";
    assert_eq!(answer["results"][0], json!({ "error": expected, "status": 400 }));
    let schedule = json!({ "name": "x", "queue": "mine", "cron": "@daily" });
    let with = |name: &str, value: Value| {
        let mut schedule = schedule.clone();
        schedule[name] = value;
        schedule
    };
    for (path, body, expected) in [
        (
            "/schedules",
            with(".secure_parms", json!({})),
            "unknown option '.secure_parms': did you mean '.secure_params'?",
        ),
        (
            "/schedules",
            with("options", json!({ "timout": 5 })),
            "unknown param in options: did you mean timeout?",
        ),
        ("/tasks/batch", json!({ "tasks": [], ".delay": 1 }), "unknown option '.delay'"),
        (
            "/bulk",
            json!({ "action": "cancel", "filter": {}, ".previw": true }),
            "unknown option '.previw': did you mean '.preview'?",
        ),
    ] {
        let (status, _, answer) = call(&world, Method::POST, path, &body).await?;
        assert_eq!((status, answer["error"].as_str()), (400, Some(expected)), "{path} {body}");
    }
    let (status, _, answer) = call(&world, Method::GET, "/arrays?.limt=5", &json!({})).await?;
    assert_eq!((status, answer["error"].as_str()), (200, None), "a body in place of the address: {answer}");
    let answer = world.request(Method::GET, "/arrays?.limt=5", Some("admin")).send().await?;
    assert_eq!(answer.status(), 400);
    let page = world
        .request(Method::GET, "/arrays?.limt=5", Some("admin"))
        .header("accept", "text/html")
        .send()
        .await?;
    assert_eq!(page.status(), 200);
    world.database.drop_database().await
}
