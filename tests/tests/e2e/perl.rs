//! A database that Perl Disbatch has written is taken over as it is.

use std::net::TcpListener;

use anyhow::Context;
use bson::{Bson, Document, doc};
use disbatch_core::model::TaskId;
use disbatch_tests::{Dci, Script, World, binary, eventually};
use futures::TryStreamExt;
use reqwest::Method;
use serde_json::json;
use tokio::process::Command;

/// Everything in the recorded database, in its collections.
async fn restore(world: &World) -> anyhow::Result<Document> {
    let json: serde_json::Value = serde_json::from_str(include_str!("../../fixtures/documents.json"))?;
    let recorded = bson::deserialize_from_bson::<Document>(Bson::try_from(json)?)?;
    for collection in ["nodes", "queues", "tasks.files", "tasks.chunks", "balance", "reports"] {
        insert(world, collection, recorded.get_array(collection)?).await?;
    }
    for (_, tasks) in recorded.get_document("tasks")? {
        insert(world, "tasks", tasks.as_array().context("a list of tasks")?).await?;
    }
    Ok(recorded)
}

async fn insert(world: &World, collection: &str, documents: &[Bson]) -> anyhow::Result<()> {
    let documents = documents.iter().filter_map(Bson::as_document).cloned();
    world.database().collection::<Document>(collection).insert_many(documents).await?;
    Ok(())
}

#[tokio::test]
async fn its_queued_tasks_run_and_nothing_else_is_touched() -> anyhow::Result<()> {
    let world = World::new().await?;
    let recorded = restore(&world).await?;
    // The recorded node name: its DEN comes back as one of ours. The plugin of some queues is Perl's.
    let plugin = Script { name: "PeerPlugin", text: "#!/bin/sh\necho peer\n" };
    plugin.install(&world.plugins())?;
    let queued: Vec<TaskId> = recorded
        .get_document("tasks")?
        .get_array("queued")?
        .iter()
        .filter_map(|task| Some(TaskId(task.as_document()?.get_object_id("_id").ok()?)))
        .collect();
    assert_eq!(queued.len(), 2);
    let queues = world.database().collection::<Document>("queues");
    queues.update_one(doc! { "name": "q_queued" }, doc! { "$set": { "threads": "2" } }).await?;
    let before: Vec<Document> =
        world.tasks().find(doc! { "status": { "$gte": 0 } }).await?.try_collect().await?;

    let _den = world.den("node1.example.com")?;
    let first = world.until_status(queued[0], 1).await?;
    assert_eq!(first.get_str("stdout")?, "This is command 'a' for apple.\n");
    let sent = recorded.get_document("tasks")?.get_array("queued")?;
    let params = sent.first().and_then(Bson::as_document).context("a task")?.get_document("params")?;
    assert_eq!(first.get_document("params")?, params, "parameters are as Perl wrote them");
    world.until_status(queued[1], 1).await?;

    for task in before {
        let now = world.tasks().find_one(doc! { "_id": task.get_object_id("_id")? }).await?;
        assert_eq!(now.as_ref(), Some(&task), "finished, running and odd tasks are left alone");
    }
    let nodes = world.database().collection::<Document>("nodes");
    let node = nodes.find_one(doc! { "node": "node1.example.com" }).await?.context("the node")?;
    assert_eq!(node.get_i32("maxthreads")?, 10);
    assert_eq!(nodes.count_documents(doc! {}).await?, 1);
    world.end().await
}

#[tokio::test]
async fn the_indexes_of_perl_are_there_to_the_name() -> anyhow::Result<()> {
    let world = World::new().await?;
    let den = world.den_at_work("n1").await?;
    let json: serde_json::Value = serde_json::from_str(include_str!("../../fixtures/documents.json"))?;
    let recorded = bson::deserialize_from_bson::<Document>(Bson::try_from(json)?)?;
    for collection in ["nodes", "queues", "tasks", "tasks.files", "tasks.chunks"] {
        let expected = recorded.get_document("indexes")?.get_array(collection)?;
        let mut listed = Vec::new();
        let mut cursor = world.database().run_cursor_command(doc! { "listIndexes": collection }).await?;
        while let Some(index) = cursor.try_next().await? {
            // Ours hold only some of the tasks.
            let is_ours = index.contains_key("partialFilterExpression") || index.contains_key("sparse");
            if !is_ours {
                listed.push(Bson::Document(index));
            }
        }
        let by_name =
            |index: &Bson| index.as_document().and_then(|d| d.get_str("name").ok()).map(str::to_owned);
        listed.sort_by_key(by_name);
        let mut expected = expected.clone();
        expected.sort_by_key(by_name);
        assert_eq!(listed, expected, "{collection}");
    }
    eventually("the DEN to go on", || async { Ok((!den.log()?.contains("ERROR")).then_some(())) }).await?;
    world.end().await
}

#[tokio::test]
async fn tasks_are_searched_by_an_operators_own_indexes_also_of_some_tasks() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
    world.submit(queue, vec![doc! { "customer": "c", "order": "o" }, doc! {}]).await?;
    let some = doc! { "params.order": { "$exists": true } };
    let indexes = vec![
        doc! { "key": { "params.customer": 1 }, "name": "mine", "sparse": true },
        doc! { "key": { "params.order": 1 }, "name": "params.order_1", "partialFilterExpression": some },
    ];
    world.database().run_command(doc! { "createIndexes": "tasks", "indexes": indexes }).await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    for restriction in ["params.customer=c", "params.order=o"] {
        let found = dci.get(&format!("/tasks?{restriction}&.count=1")).await?;
        assert_eq!(found, json!({ "count": 1 }), "{restriction}");
    }
    let refused = dci.request(Method::GET, "/tasks?lease_until=1").send().await?;
    assert_eq!(refused.status(), 400, "what ours hold is a part");
    world.end().await
}

#[tokio::test]
async fn every_page_and_document_of_it_is_served() -> anyhow::Result<()> {
    let world = World::new().await?;
    let recorded = restore(&world).await?;
    world.store().ensure_indexes().await?;
    let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
    let _dci = Command::new(binary("dci")?)
        .arg("--config")
        .arg(world.config())
        .args(["--listen", &format!("127.0.0.1:{port}")])
        .stderr(std::fs::File::create(world.path().join("dci.log"))?)
        .kill_on_drop(true)
        .spawn()?;
    let mut paths: Vec<String> = [
        "/",
        "/queues",
        "/nodes",
        "/plugins",
        "/info",
        "/monitoring",
        "/balance",
        "/tasks?.limit=100&.full=1",
    ]
    .map(str::to_owned)
    .to_vec();
    for (_, tasks) in recorded.get_document("tasks")? {
        for task in tasks.as_array().context("tasks")?.iter().filter_map(Bson::as_document) {
            paths.push(format!("/tasks/{}", task.get_object_id("_id")?));
        }
    }
    for queue in recorded.get_array("queues")?.iter().filter_map(Bson::as_document) {
        paths.push(format!("/queues/{}", queue.get_str("name")?));
        paths.push(format!("/tasks?queue={}", queue.get_object_id("_id")?));
    }
    let status = async |path: &str, accept: &str| {
        let url = format!("http://127.0.0.1:{port}{path}");
        let accept = format!("Accept: {accept}");
        let arguments = ["-s", "-o", "/dev/null", "-w", "%{http_code}", "-H", &accept, &url];
        let output = Command::new("curl").args(arguments).output().await?;
        anyhow::Ok(String::from_utf8(output.stdout)?)
    };
    eventually("the DCI to answer", || async {
        Ok((status("/plugins", "*/*").await? == "200").then_some(()))
    })
    .await?;
    assert_eq!(paths.len(), 8 + 10 + 18);
    for path in paths {
        for accept in ["application/json", "text/html"] {
            assert_eq!(status(&path, accept).await?, "200", "{path} as {accept}");
        }
    }
    world.end().await
}
