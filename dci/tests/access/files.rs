//! File sets: they are sent, resumed, read in parts, and are for those who may have them.

mod contents;
mod rights;
mod tasks;

use anyhow::{Context, ensure};
use disbatch_core::accounts::{Grant, PasswordHash, Role, Scope};
use disbatch_core::files::{CHUNK_BYTES, ContentId};
use reqwest::{Method, RequestBuilder};
use serde_json::{Value, json};

use crate::world::{PASSWORD, World};

/// A file: its path, and what is in it.
type TestFile<'a> = (&'a str, &'a [u8]);

/// Adds a user with these roles on tenants.
async fn add_user(world: &World, name: &str, tenants: &[(&str, Role)]) -> anyhow::Result<()> {
    let grant =
        |(tenant, role): &(&str, Role)| Grant { scope: Scope::Tenant((*tenant).to_owned()), role: *role };
    let grants: Vec<Grant> = tenants.iter().map(grant).collect();
    world.store.add_user(&World::name(name)?, None, &grants, Some(&PasswordHash::of(PASSWORD)?)).await?;
    Ok(())
}

/// The status and the JSON of an answer.
async fn answer(request: RequestBuilder) -> anyhow::Result<(u16, Value)> {
    let answer = request.send().await?;
    let (status, text) = (answer.status().as_u16(), answer.text().await?);
    Ok((status, serde_json::from_str(&text).with_context(|| format!("{status} {text}"))?))
}

async fn get(world: &World, user: &str, path: &str) -> anyhow::Result<(u16, Value)> {
    answer(world.request(Method::GET, path, Some(user))).await
}

async fn post(world: &World, user: &str, path: &str, body: Value) -> anyhow::Result<(u16, Value)> {
    answer(world.request(Method::POST, path, Some(user)).json(&body)).await
}

fn sha(bytes: &[u8]) -> String {
    ContentId::of(bytes).to_string()
}

/// Bytes that look random, and are the same each time.
fn noise(length: usize) -> Vec<u8> {
    let mut state = 7_u64;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u8::try_from(state >> 56).unwrap_or_default()
    };
    (0..length).map(|_| next()).collect()
}

/// Sends the chunk `n` of a content as `id`, which may be that of another one.
async fn put(world: &World, user: &str, (id, bytes): (&str, &[u8]), n: u64) -> anyhow::Result<(u16, Value)> {
    let size = usize::try_from(CHUNK_BYTES)?;
    let start = usize::try_from(n)? * size;
    let chunk = bytes.get(start..bytes.len().min(start + size)).context("there is no such chunk")?.to_vec();
    let path = format!("/files/contents/{id}/{n}?length={}", bytes.len());
    answer(world.request(Method::PUT, &path, Some(user)).body(chunk)).await
}

/// Sends all of a content.
async fn send(world: &World, user: &str, bytes: &[u8]) -> anyhow::Result<()> {
    let id = sha(bytes);
    for n in 0..(bytes.len() as u64).div_ceil(CHUNK_BYTES) {
        let (status, told) = put(world, user, (&id, bytes), n).await?;
        ensure!(status == 200, "{n}: {status} {told}");
    }
    let (status, told) = post(world, user, &format!("/files/contents/{id}/finish"), json!({})).await?;
    ensure!(status == 200, "{status} {told}");
    Ok(())
}

/// Opens a version. Returns its id.
async fn open(world: &World, user: &str, name: &str, options: Value) -> anyhow::Result<String> {
    let (status, opened) = post(world, user, &format!("/files/{name}"), options).await?;
    ensure!(status == 201, "{status} {opened}");
    Ok(opened["id"].as_str().context("no id")?.to_owned())
}

/// Adds files whose contents are there.
async fn add(world: &World, user: &str, id: &str, files: &[TestFile<'_>]) -> anyhow::Result<(u16, Value)> {
    let entry = |(path, bytes): &TestFile<'_>| json!({ "path": path, "sha256": sha(bytes), "size": bytes.len(), "mode": "755" });
    let entries: Vec<Value> = files.iter().map(entry).collect();
    post(world, user, &format!("/files/versions/{id}/entries"), json!({ "entries": entries })).await
}

async fn commit(world: &World, user: &str, id: &str) -> anyhow::Result<(u16, Value)> {
    post(world, user, &format!("/files/versions/{id}/commit"), json!({})).await
}

/// Puts a version of a set there.
async fn store(world: &World, user: &str, name: &str, files: &[TestFile<'_>]) -> anyhow::Result<Value> {
    for (_, bytes) in files {
        send(world, user, bytes).await?;
    }
    let id = open(world, user, name, json!({})).await?;
    let (status, told) = add(world, user, &id, files).await?;
    ensure!(status == 200, "{status} {told}");
    let (status, done) = commit(world, user, &id).await?;
    ensure!(status == 200, "{status} {done}");
    Ok(done)
}
