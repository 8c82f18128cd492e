//! Who may have a bundle.

use anyhow::Context;
use bson::doc;
use disbatch_tests::{Dci, Script, World};
use reqwest::Method;

use crate::accounts::direct;

#[tokio::test]
async fn who_may_not_see_a_task_may_not_bundle_it() -> anyhow::Result<()> {
    const PASSWORD: &str = "correct horse battery";
    let world = World::new().await?;
    let queue = world.script_queue(Script { name: "Echo", text: "#!/bin/sh\necho x\n" }, 1).await?;
    let other = world.queue("Echo", doc! { "name": "other", "threads": 1 }).await?;
    let (queue_name, other_name) = (name_of(&world, queue).await?, name_of(&world, other).await?);
    direct(&world, &["user", "add", "root", "--admin"], PASSWORD).await?;
    let on = |queue: &str| format!("{queue}=viewer");
    for (user, queue) in [("mine", &queue_name), ("theirs", &other_name)] {
        direct(&world, &["user", "add", user, "--queue", &on(queue)], PASSWORD).await?;
    }
    let den = world.den_at_work("n1").await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let task = world.submit(queue, vec![doc! { "a": 1 }]).await?[0];
    world.until_status(task, 1).await?;
    let recordings = format!("/queues/{queue_name}/recordings");
    for (user, code) in [(None, 401), (Some("mine"), 200), (Some("theirs"), 404), (Some("root"), 200)] {
        for path in [format!("/tasks/{task}"), format!("/tasks/{task}/bundle"), recordings.clone()] {
            let request = dci.request(Method::GET, &path);
            let request = match user {
                Some(user) => request.basic_auth(user, Some(PASSWORD)),
                None => request,
            };
            assert_eq!(request.send().await?.status().as_u16(), code, "{user:?} {path}");
        }
    }
    for wrong in ["0", "1001", "x"] {
        let request = dci.request(Method::GET, &format!("{recordings}?.limit={wrong}"));
        assert_eq!(
            request.basic_auth("root", Some(PASSWORD)).send().await?.status().as_u16(),
            400,
            "{wrong}"
        );
    }
    drop(den);
    world.end().await
}

async fn name_of(world: &World, queue: disbatch_core::model::QueueId) -> anyhow::Result<String> {
    let queues = world.store().list_queues().await?;
    let found = queues.into_iter().find(|found| found.id == queue).context("no queue")?;
    Ok(found.display_name())
}
