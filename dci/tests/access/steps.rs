//! Steps name plugins, and so could be a way to run what no queue lets somebody run.

use bson::oid::ObjectId;
use disbatch_core::accounts::{Grant, PasswordHash, Role, Scope};
use disbatch_core::model::{QueueId, TaskId};
use reqwest::Method;
use serde_json::{Value, json};

use crate::world::{PASSWORD, World};

#[tokio::test]
async fn a_step_runs_no_plugin_that_whoever_submits_could_not_run_anyway() -> anyhow::Result<()> {
    let world = World::with(json!({ "plugins": ["My::Plugin", "Other::Plugin"] })).await?;
    let grant = Grant { scope: Scope::Queue(world.mine), role: Role::Submitter };
    let hash = PasswordHash::of(PASSWORD)?;
    world.store.add_user(&World::name("narrow")?, None, &[grant], Some(&hash)).await?;
    let submit = async |user: &str, plugin: &str| -> anyhow::Result<(u16, Value)> {
        let steps = json!([{ "name": "own" }, { "plugin": plugin, "params": { "b": 2 } }]);
        let body = json!({ "queue": world.mine.to_string(), "params": [{ "a": 1 }], ".steps": steps });
        let answer = world.request(Method::POST, "/tasks", Some(user)).json(&body).send().await?;
        Ok((answer.status().as_u16(), answer.json().await?))
    };
    let status = async |user: &str, plugin: &str| Ok::<_, anyhow::Error>(submit(user, plugin).await?.0);
    assert_eq!(status("narrow", "My::Plugin").await?, 200, "it is that of the queue");
    assert_eq!(status("narrow", "Other::Plugin").await?, 403);
    assert_eq!(status("submitter", "Other::Plugin").await?, 403, "no queue has it");
    assert_eq!(status("operator", "Other::Plugin").await?, 200, "they may make such a queue");
    assert_eq!(status("viewer", "My::Plugin").await?, 403);
    assert_eq!(status("guest", "My::Plugin").await?, 403);
    let (code, refused) = submit("operator", "No::Plugin").await?;
    assert_eq!((code, refused), (400, json!({ "error": "Unknown plugin", "plugin": "No::Plugin" })));
    let queue = QueueId(ObjectId::new());
    world
        .store
        .insert_queue(bson::doc! { "_id": queue, "name": "theirs", "plugin": "Other::Plugin" })
        .await?;
    assert_eq!(status("submitter", "Other::Plugin").await?, 200);
    let (code, refused) = submit("narrow", "Other::Plugin").await?;
    assert_eq!(code, 403);
    assert!(refused["error"].as_str().is_some_and(|error| error.contains("Other::Plugin")), "{refused}");
    let (_, made) = submit("operator", "Other::Plugin").await?;
    let id = made["MongoDB::InsertManyResult"]["inserted"][0]["_id"]["$oid"].as_str().unwrap_or_default();
    let task = world.store.find_task(id.parse::<TaskId>()?).await?;
    let steps = task.and_then(|task| task.rest.get_array("steps").ok().cloned()).unwrap_or_default();
    let expected = [
        bson::doc! { "name": "own", "params": {}, "status": -2 },
        bson::doc! { "name": "step 2", "plugin": "Other::Plugin", "params": { "b": 2 }, "status": -2 },
    ];
    assert_eq!(steps, expected.map(bson::Bson::from));
    world.database.drop_database().await
}
