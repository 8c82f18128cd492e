//! Of which collections who may make tasks.

use anyhow::ensure;
use bson::doc;
use disbatch_core::accounts::Role;
use disbatch_core::store::collections::{ALL, TaskSource};
use reqwest::Method;
use serde_json::{Value, json};

use crate::world::{MARKER, World};

/// The requests that make a task of each document of the collection that has the marker.
fn requests(world: &World, collection: &str) -> Vec<(String, Value)> {
    let (queue, filter, params) = (
        world.mine.to_string(),
        json!({ "registry_test": MARKER }),
        json!({ "stolen": "document.registry_test" }),
    );
    vec![
        (
            "/tasks".to_owned(),
            json!({ "queue": queue, "collection": collection, "filter": filter, "params": params }),
        ),
        (format!("/tasks/{queue}/{collection}"), json!({ "filter": filter, "params": params })),
        (
            "/queue-create-tasks-from-query-json".to_owned(),
            json!({ "queueid": queue, "collection": collection, "jsonfilter": filter, "params": params }),
        ),
    ]
}

/// Tasks with what was in a document.
async fn stolen(world: &World) -> anyhow::Result<u64> {
    let tasks = world.database.database.collection::<bson::Document>("tasks");
    Ok(tasks.count_documents(doc! { "params.stolen": MARKER }).await?)
}

#[tokio::test]
async fn tasks_are_made_of_our_collections_only_where_these_are_declared_as_sources() -> anyhow::Result<()> {
    let world = World::new().await?;
    let users: Vec<Option<&str>> =
        Role::ALL.iter().map(|role| Some(role.as_str())).chain([Some("guest"), None]).collect();
    let strange = ["tasks.mine", "accounts.old", "workers.copy", "people"];
    for collection in ALL.iter().map(|collection| collection.name).chain(strange) {
        let documents = world.database.database.collection(collection);
        // What the collection is for does not matter here; what the server refuses is not there.
        let id = bson::oid::ObjectId::new();
        documents
            .insert_one(doc! { "_id": id, "registry_test": MARKER, "name": id.to_hex(), "node": id.to_hex() })
            .await?;
        let source = TaskSource::named(collection).is_ok();
        for user in &users {
            let may = source && matches!(*user, Some("operator" | "admin"));
            for (path, body) in requests(&world, collection) {
                let before = stolen(&world).await?;
                let answer = world.request(Method::POST, &path, *user).json(&body).send().await?;
                let (status, text) = (answer.status().as_u16(), answer.text().await?);
                let what = format!("{user:?} {path} {collection}: {status} {text}");
                let made = stolen(&world).await? - before;
                // Of tasks, those made before are found, too.
                ensure!((made > 0) == may, "{what}: {made} made");
                ensure!(if may { status == 200 } else { matches!(status, 401 | 403 | 404) }, "{what}");
                if matches!(*user, Some("operator" | "admin")) && !may {
                    ensure!(status == 403 && text.contains("Disbatch's own"), "{what}");
                }
            }
        }
        documents.delete_one(doc! { "_id": id }).await?;
    }
    world.database.drop_database().await
}
