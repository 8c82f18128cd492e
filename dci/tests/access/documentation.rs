//! The documentation at `/docs/`.

use std::path::Path;

use anyhow::{Context, ensure};
use reqwest::{Method, Response};
use serde_json::json;

use crate::world::World;

/// A site of two files, beside one that is none of it.
fn site(folder: &Path) -> anyhow::Result<()> {
    std::fs::create_dir(folder.join("site"))?;
    let words = "leases and heartbeats ".repeat(100);
    std::fs::write(folder.join("site/index.html"), format!("<!DOCTYPE html>{words}"))?;
    std::fs::write(folder.join("site/book.js"), "let a;")?;
    std::fs::write(folder.join("secret.html"), "secret")?;
    std::os::unix::fs::symlink(folder.join("secret.html"), folder.join("site/out.html"))?;
    Ok(())
}

async fn get(world: &World, path: &str, user: Option<&str>) -> anyhow::Result<Response> {
    Ok(world.request(Method::GET, path, user).header("accept", "text/html").send().await?)
}

#[tokio::test]
async fn who_has_logged_in_reads_it() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    site(folder.path())?;
    let world = World::with(json!({ "docs_root": folder.path().join("site") })).await?;
    let stranger = get(&world, "/docs/", None).await?;
    assert_eq!(stranger.status(), 303);
    assert!(stranger.headers()["location"].to_str()?.starts_with("/login"));
    for (path, status) in
        [("/docs/", 200), ("/docs/book.js", 200), ("/docs/out.html", 404), ("/docs/no", 404)]
    {
        assert_eq!(get(&world, path, Some("guest")).await?.status(), status, "{path}");
    }
    let page = get(&world, "/docs/", Some("guest")).await?;
    let policy = page.headers()["content-security-policy"].to_str()?;
    ensure!(policy.contains("script-src 'self'") && !policy.contains("unsafe"), "{policy}");
    let tag = page.headers().get("etag").context("no ETag")?.clone();
    let again =
        world.request(Method::GET, "/docs/", Some("guest")).header("if-none-match", tag).send().await?;
    assert_eq!(again.status(), 304);
    let small = world.request(Method::GET, "/docs/", Some("guest")).header("accept-encoding", "gzip");
    let small = small.send().await?;
    assert_eq!(small.headers()["content-encoding"], "gzip");
    // The description of the API is where it was.
    let api = get(&world, "/docs", Some("guest")).await?.text().await?;
    ensure!(api.contains("id=\"createTasks\"") && api.contains("href=\"/docs/\""), "{api}");
    world.database.drop_database().await
}

#[tokio::test]
async fn where_it_is_not_installed_one_learns_how_to_get_it() -> anyhow::Result<()> {
    let folder = tempfile::tempdir()?;
    let world = World::with(json!({ "docs_root": folder.path() })).await?;
    let page = get(&world, "/docs/", Some("guest")).await?;
    assert_eq!(page.status(), 404);
    let html = page.text().await?;
    ensure!(
        html.contains("the documentation is not installed on this server") && html.contains("make docs"),
        "{html}"
    );
    for path in ["/", "/docs", "/about"] {
        let html = get(&world, path, Some("viewer")).await?.text().await?;
        ensure!(!html.contains("href=\"/docs/\""), "{path} leads to nothing: {html}");
    }
    world.database.drop_database().await
}
