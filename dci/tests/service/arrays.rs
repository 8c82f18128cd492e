//! Arrays: the routes that make them, those that refuse to, and their pages.

use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::{Context, ensure};
use bson::oid::ObjectId;
use bson::{Document, doc};
use disbatch_core::clock::SystemClock;
use disbatch_core::store::Store;
use disbatch_mongod::testing::TestDatabase;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::page;
use crate::server::Server;

/// A DCI, and the queues `mail` and `other`.
struct World {
    database: TestDatabase,
    server: Server,
    mail: ObjectId,
}

impl World {
    async fn new() -> anyhow::Result<Self> {
        let database = TestDatabase::create(disbatch_mongod::testing::server().await?).await?;
        let store = Store::with_clock(database.database.clone(), Arc::new(SystemClock));
        store.ensure_indexes().await?;
        let mail = ObjectId::new();
        let queues = database.database.collection::<Document>("queues");
        for (id, name) in [(mail, "mail"), (ObjectId::new(), "other")] {
            queues.insert_one(doc! { "_id": id, "name": name, "plugin": "My::Plugin", "threads": 0 }).await?;
        }
        let config = json!({
            "mongohost": database.uri, "database": database.name, "plugins": ["My::Plugin"],
            "web_extensions": ["Disbatch::Web::Tasks", "Disbatch::Web::V3"],
        });
        Ok(Self { server: Server::start(&config).await?, database, mail })
    }

    async fn post(&self, path: &str, body: Value) -> anyhow::Result<(u16, Value)> {
        let response = self.server.request(Method::POST, path).json(&body).send().await?;
        Ok((response.status().as_u16(), serde_json::from_str(&response.text().await?)?))
    }

    /// What the form of the page of `mail` is answered.
    async fn form(&self, form: &[(&str, &str)]) -> anyhow::Result<reqwest::Response> {
        let path = format!("/ui/queues/{}/tasks", self.mail);
        Ok(self.server.request(Method::POST, &path).form(form).send().await?)
    }

    async fn count(&self, collection: &str) -> anyhow::Result<u64> {
        Ok(self.database.database.collection::<Document>(collection).count_documents(doc! {}).await?)
    }
}

#[tokio::test]
async fn who_asks_for_an_array_where_there_are_none_is_told_so() -> anyhow::Result<()> {
    let world = World::new().await?;
    let message = ".array is for POST /tasks alone, and not for tasks of a collection";
    let (error, in_array) = ((400, json!({ "error": message })), (400, json!([0, message])));
    let tasks = json!([{ "a": 1 }]);
    assert_eq!(world.post("/tasks/mail?.array=0-9", tasks.clone()).await?, error);
    let pattern = json!({ "filter": {}, "params": { "a": 1 }, ".array": "0-9" });
    assert_eq!(world.post("/tasks/mail/queues", pattern).await?, error);
    assert_eq!(world.post("/tasks/search", json!({ ".array": "0-9" })).await?, error);
    let schedule = json!({ "name": "nightly", "queue": "mail", "cron": "@daily", ".array": "0-9" });
    assert_eq!(world.post("/schedules", schedule).await?, error);
    let old = json!({ "queueid": "mail", "object": tasks, ".array": "0-9" });
    assert_eq!(world.post("/queue-create-tasks-json", old).await?, in_array);
    let old = json!({
        "queueid": "mail", "collection": "queues", "jsonfilter": { "a": 1 }, "params": { "a": 1 }, ".array": [1],
    });
    assert_eq!(world.post("/queue-create-tasks-from-query-json", old).await?, in_array);
    assert_eq!(world.post("/search-tasks-json", json!({ ".array": "0-9" })).await?, in_array);
    let batch = json!({ "tasks": [{ "queue": "mail", "params": { "a": 1 }, ".array": "0-9" }] });
    let (status, answer) = world.post("/tasks/batch", batch).await?;
    assert_eq!((status, &answer["results"]), (200, &json!([{ "error": message, "status": 400 }])));
    let of_collection =
        json!({ "queue": "mail", "collection": "queues", "filter": {}, "params": {}, ".array": "0-9" });
    let (status, answer) = world.post("/tasks", of_collection).await?;
    ensure!(status == 400 && answer.to_string().contains("with .array"), "{status} {answer}");
    assert_eq!((world.count("tasks").await?, world.count("arrays").await?), (0, 0));
    // What is empty asks for nothing.
    assert_eq!(world.post("/tasks/mail?.array=", tasks).await?.0, 200);
    world.database.drop_database().await
}

#[tokio::test]
async fn the_form_of_a_queue_makes_an_array() -> anyhow::Result<()> {
    let world = World::new().await?;
    let all = [("json", "{\"a\": 1}"), (".array", "0-3%2"), (".array_key", "part"), (".delay", "")];
    let made = world.form(&all).await?;
    let (status, made) = (made.status(), made.text().await?);
    ensure!(status == StatusCode::OK, "{status} {made}");
    let made: Value = serde_json::from_str(&made)?;
    let id = made["array"].as_str().context("no array")?;
    let said = format!("Array {id} of 4 elements is submitted.");
    assert_eq!((&made["count"], &made["said"]), (&json!(4), &json!(said)));
    let array = world.server.request(Method::GET, &format!("/arrays/{id}")).send().await?;
    let array: Value = serde_json::from_str(&array.text().await?)?;
    assert_eq!((&array["count"], &array["cap"], &array["key"]), (&json!(4), &json!(2), &json!("part")));
    let wanted = doc! { "params.a": 1, "params.part": 3 };
    let tasks = world.database.database.collection::<Document>("tasks");
    assert_eq!((tasks.count_documents(wanted).await?, world.count("tasks").await?), (1, 4));

    // Without script it leads to the page of the array, or to one that says what is wrong.
    let then = (".then", "/queues/mail");
    let next = world.form(&[("json", "{}"), (".array", "[\"x\"]"), then]).await?;
    let place = next.headers().get("location").context("it leads nowhere")?.to_str()?.to_owned();
    ensure!(next.status() == StatusCode::SEE_OTHER && place.starts_with("/arrays/"), "{place}");
    let (status, html) = page(&world.server, &place).await?;
    assert!(status == StatusCode::OK && html.contains("element 0, x: queued"), "{html}");
    for (fields, message) in [
        ([("json", "{}"), (".array", "9-0")], ".array: the range"),
        ([("json", "[{},{}]"), (".array", "0-9")], "must be a JSON object where there is .array"),
        ([("json", "{\"item\":1}"), (".array", "0-9")], "has the key item itself"),
        ([("json", "{\"a\":1}"), (".array_cap", "5")], ".array_cap needs .array"),
        ([("/a", "1"), (".array", "0-9")], "give them as JSON"),
    ] {
        let refused = world.form(&[fields[0], fields[1], then]).await?;
        assert_eq!(refused.status(), StatusCode::BAD_REQUEST);
        let html = refused.text().await?;
        assert!(html.contains("<!DOCTYPE html>") && html.contains(message), "{message} is not in {html}");
    }
    assert_eq!((world.count("tasks").await?, world.count("arrays").await?), (5, 2));
    world.database.drop_database().await
}

#[tokio::test]
async fn pages_of_the_arrays_of_a_queue_have_no_others() -> anyhow::Result<()> {
    let world = World::new().await?;
    for queue in ["mail", "other", "mail", "other", "mail"] {
        let (status, made) = world.post("/tasks", json!({ "queue": queue, ".array": "0-1" })).await?;
        ensure!(status == 200, "{made}");
    }
    let ids = |html: &str| -> Vec<String> {
        let rows = html.split("<a class=\"called\" href=\"/arrays/").skip(1);
        rows.filter_map(|rest| rest.get(..24)).map(str::to_owned).collect()
    };
    let mut seen = Vec::new();
    let mut next = Some("/arrays?queue=mail&state=open&.limit=1".to_owned());
    while let Some(place) = next {
        let (status, html) = page(&world.server, &place).await?;
        ensure!(status == StatusCode::OK, "{place}: {html}");
        seen.extend(ids(&html));
        let link = html.split("rel=\"next\" href=\"").nth(1).and_then(|rest| rest.split('"').next());
        next = link.map(|link| link.replace("&#38;", "&"));
        ensure!(seen.len() < 9, "it never ends: {seen:?}");
    }
    let different: BTreeSet<&String> = seen.iter().collect();
    assert_eq!((seen.len(), different.len()), (3, 3), "{seen:?}");
    let (_, html) = page(&world.server, "/arrays").await?;
    assert_eq!(ids(&html).len(), 5);
    world.database.drop_database().await
}
