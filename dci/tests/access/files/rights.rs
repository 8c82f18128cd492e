//! Whose file sets are whose.

use anyhow::{Context, ensure};
use bson::{Document, doc};
use disbatch_core::accounts::Role::{Submitter, Viewer};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use super::{add, add_user, commit, get, open, post, put, send, sha, store};
use crate::world::World;

/// Anna stores files for acme, and so does Ada; Bob for other, and Sue, who sees what acme has.
async fn with_tenants() -> anyhow::Result<World> {
    let world = World::new().await?;
    add_user(&world, "anna", &[("acme", Submitter)]).await?;
    add_user(&world, "ada", &[("acme", Submitter)]).await?;
    add_user(&world, "bob", &[("other", Submitter)]).await?;
    add_user(&world, "sue", &[("other", Submitter), ("acme", Viewer)]).await?;
    Ok(world)
}

async fn delete(world: &World, user: &str, path: &str) -> anyhow::Result<StatusCode> {
    Ok(world.request(Method::DELETE, path, Some(user)).send().await?.status())
}

/// The names of the sets that somebody is shown.
async fn seen(world: &World, user: &str) -> anyhow::Result<Vec<String>> {
    let (_, sets) = get(world, user, "/files").await?;
    let sets = sets.as_array().context("no list")?;
    Ok(sets.iter().map(|set| set["name"].as_str().unwrap_or_default().to_owned()).collect())
}

#[tokio::test]
async fn a_set_is_for_those_of_its_tenant() -> anyhow::Result<()> {
    let world = with_tenants().await?;
    let of_acme = store(&world, "anna", "letters", &[("a", b"of acme")]).await?;
    assert_eq!(of_acme["tenant"], "acme", "it is the only one that she has");
    let of_nobody = store(&world, "submitter", "shared", &[("a", b"of nobody")]).await?;
    assert_eq!(of_nobody["tenant"], Value::Null);
    for (user, sets) in [
        ("anna", &["letters"][..]),
        ("sue", &["letters"]),
        ("bob", &[]),
        ("guest", &[]),
        ("viewer", &["letters", "shared"]),
    ] {
        assert_eq!(seen(&world, user).await?, sets, "{user}");
        for name in ["letters", "shared"] {
            let expected = if sets.contains(&name) { 200 } else { 404 };
            for path in [
                format!("/files/{name}"),
                format!("/files/{name}/content/a"),
                format!("/files/{name}?.version=1"),
            ] {
                let status = world.request(Method::GET, &path, Some(user)).send().await?.status();
                ensure!(status == expected, "{user} {path}: {status}");
            }
            let page = world.request(Method::GET, &format!("/files/{name}"), Some(user));
            let page = page.header("accept", "text/html").send().await?.status();
            ensure!(page == expected, "{user}: the page of {name} is {page}");
        }
    }
    // What one may not see is as if it were not there; what one may only see is not removed.
    assert_eq!(delete(&world, "bob", "/files/letters").await?, 404);
    assert_eq!(delete(&world, "sue", "/files/letters").await?, 403);
    assert_eq!(delete(&world, "viewer", "/files/letters").await?, 403);
    assert_eq!(delete(&world, "anna", "/files/shared").await?, 404);
    let second = store(&world, "submitter", "letters", &[("a", b"more")]).await?;
    assert_eq!(
        (&second["tenant"], &second["version"]),
        (&json!("acme"), &json!(2)),
        "a set stays with its tenant"
    );
    assert_eq!(delete(&world, "ada", "/files/letters?.version=2").await?, 200);
    assert_eq!(delete(&world, "anna", "/files/letters").await?, 200);
    world.database.drop_database().await
}

#[tokio::test]
async fn nobody_stores_files_for_others() -> anyhow::Result<()> {
    let world = with_tenants().await?;
    store(&world, "anna", "letters", &[("a", b"x")]).await?;
    for (user, name, tenant, expected) in [
        ("bob", "letters", Value::Null, 403),
        ("bob", "letters", json!("other"), 403),
        ("bob", "letters", json!("acme"), 403),
        ("bob", "mine", json!("acme"), 403),
        ("sue", "letters", Value::Null, 403),
        ("sue", "mine", Value::Null, 201),
        ("submitter", "mine", json!("other"), 201),
        ("submitter", "letters", json!("other"), 409),
        ("guest", "mine", Value::Null, 403),
        ("viewer", "mine", Value::Null, 403),
    ] {
        let (status, told) =
            post(&world, user, &format!("/files/{name}"), json!({ ".tenant": tenant })).await?;
        ensure!(status == expected, "{user} {name} {tenant}: {status} {told}");
    }
    let several = [("acme", Submitter), ("other", Submitter)];
    add_user(&world, "both", &several).await?;
    assert_eq!(post(&world, "both", "/files/new", json!({})).await?.0, 400, "it does not say for which");
    assert_eq!(post(&world, "both", "/files/new", json!({ ".tenant": "acme" })).await?.0, 201);
    // Whoever has no tenant is not even read.
    let content = (sha(b"x"), b"x");
    for user in ["guest", "viewer"] {
        assert_eq!(put(&world, user, (&content.0, content.1), 0).await?.0, 403, "{user}");
        assert_eq!(get(&world, user, &format!("/files/contents/{}", content.0)).await?.0, 403, "{user}");
    }
    world.database.drop_database().await
}

#[tokio::test]
async fn a_version_that_is_made_is_of_whoever_has_opened_it() -> anyhow::Result<()> {
    let world = with_tenants().await?;
    send(&world, "anna", b"x").await?;
    send(&world, "ada", b"x").await?;
    let id = open(&world, "anna", "letters", json!({})).await?;
    for user in ["ada", "bob", "submitter", "admin"] {
        assert_eq!(add(&world, user, &id, &[("a", b"x")]).await?.0, 404, "{user}");
        assert_eq!(commit(&world, user, &id).await?.0, 404, "{user}");
    }
    let unknown = "6b0003bb686c8275d8013333";
    assert_eq!(commit(&world, "anna", unknown).await?.0, 404);
    assert_eq!(add(&world, "anna", &id, &[("a", b"x")]).await?.0, 200);
    assert_eq!(commit(&world, "anna", &id).await?.0, 200);
    // Nor is a version that a task makes, whoever has submitted that.
    let made = doc! { "$set": { "state": "open", "task": world.task(world.mine).await? } };
    let sets = world.database.database.collection::<Document>("filesets");
    sets.update_one(doc! { "name": "letters" }, made).await?;
    assert_eq!(add(&world, "anna", &id, &[("b", b"x")]).await?.0, 404);
    world.database.drop_database().await
}

#[tokio::test]
async fn nobody_gets_a_content_by_guessing_its_hash() -> anyhow::Result<()> {
    let world = with_tenants().await?;
    let secret = b"the salaries of acme".as_slice();
    store(&world, "anna", "letters", &[("a", secret)]).await?;
    let (id, nothing) = (sha(secret), sha(b"what nobody has"));
    let path = format!("/files/contents/{id}");
    // That it is there is not told, by whatever question.
    let (_, mut told) = get(&world, "bob", &path).await?;
    let (_, of_nothing) = get(&world, "bob", &format!("/files/contents/{nothing}")).await?;
    told["sha256"] = json!(nothing);
    assert_eq!(told, of_nothing);
    assert_eq!(post(&world, "bob", &format!("{path}/finish"), json!({})).await?.0, 404);
    let version = open(&world, "bob", "mine", json!({})).await?;
    for (content, id) in [(secret, &id), (&b"what nobody has"[..], &nothing)] {
        let (status, told) = add(&world, "bob", &version, &[("a", content)]).await?;
        assert_eq!((status, &told["contents"]), (409, &json!([id])), "{told}");
        assert_eq!(told["error"], "1 of the contents are not there, or not for you: send them first");
    }
    // A part of it is not enough, nor something else under its name.
    assert_eq!(put(&world, "bob", (&id, &b"x".repeat(secret.len())), 0).await?.0, 200);
    assert_eq!(add(&world, "bob", &version, &[("a", secret)]).await?.0, 409);
    assert_eq!(post(&world, "bob", &format!("{path}/finish"), json!({})).await?.0, 422);
    assert_eq!(add(&world, "bob", &version, &[("a", secret)]).await?.0, 409);
    let (_, done) = commit(&world, "bob", &version).await?;
    assert_eq!(done["count"], 0, "{done}");
    // Who has it may name it, and so may who may read it.
    let version = open(&world, "sue", "other-letters", json!({})).await?;
    assert_eq!(get(&world, "sue", &path).await?.1["done"], true);
    assert_eq!(add(&world, "sue", &version, &[("a", secret)]).await?.0, 200);
    send(&world, "bob", secret).await?;
    let version = open(&world, "bob", "mine", json!({})).await?;
    assert_eq!(add(&world, "bob", &version, &[("a", secret)]).await?.0, 200);
    assert_eq!(commit(&world, "bob", &version).await?.0, 200);
    let contents = world.database.database.collection::<Document>("filesets.files");
    let stored = contents.count_documents(doc! { "filename": &id, "state": "done" }).await?;
    assert_eq!(stored, 1, "equal files are stored once");
    world.database.drop_database().await
}

#[tokio::test]
async fn what_others_see_changes_with_one_entry_in_the_audit() -> anyhow::Result<()> {
    let world = with_tenants().await?;
    let count = async || anyhow::Ok(get(&world, "admin", "/audit").await?.1.as_array().map(Vec::len));
    let before = count().await?;
    store(&world, "anna", "letters", &[("a", b"x")]).await?;
    assert_eq!(delete(&world, "anna", "/files/letters").await?, 200);
    assert_eq!(delete(&world, "anna", "/files/letters").await?, 404);
    let (_, entries) = get(&world, "admin", "/audit?object=files").await?;
    let entries = entries.as_array().context("no list")?;
    let told: Vec<Value> =
        entries.iter().map(|entry| json!([entry["what"], entry["object"]["name"], entry["user"]])).collect();
    let expected = [json!(["files delete", "letters", "anna"]), json!(["files commit", "letters", "anna"])];
    assert_eq!(told, expected);
    assert_eq!(entries[1]["after"], json!({ "version": 1, "files": 1, "bytes": 1, "tenant": "acme" }));
    assert_eq!(count().await?, before.map(|before| before + 2), "what is only sent has none");
    world.database.drop_database().await
}
