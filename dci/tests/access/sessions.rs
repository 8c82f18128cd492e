//! Sessions: begun, used, and ended.

use anyhow::Context;
use bson::{DateTime, doc};
use reqwest::{Method, Response, StatusCode};
use serde_json::json;

use crate::world::{PASSWORD, World};

/// The cookie of a new session, and what its forms have.
pub async fn log_in(world: &World, name: &str) -> anyhow::Result<(String, String)> {
    let fields = [("name", name), ("password", PASSWORD), (".then", "/tasks")];
    let answer = world.server.request(Method::POST, "/login").form(&fields).send().await?;
    assert_eq!(answer.status(), StatusCode::SEE_OTHER);
    assert_eq!(answer.headers().get("location").context("no way")?, "/tasks");
    let cookie = answer.headers().get("set-cookie").context("no cookie")?.to_str()?;
    for part in ["HttpOnly", "SameSite=Lax", "Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let cookie = cookie.split(';').next().unwrap_or_default().to_owned();
    let page = world
        .server
        .request(Method::GET, "/account")
        .header("cookie", &cookie)
        .header("accept", "text/html")
        .send()
        .await?
        .text()
        .await?;
    let token = page.split_once("name=\"form-token\" content=\"").context("no token")?.1;
    Ok((cookie, token.split('"').next().unwrap_or_default().to_owned()))
}

async fn get(world: &World, cookie: &str, accept: &str) -> anyhow::Result<Response> {
    let request = world.server.request(Method::GET, "/queues").header("cookie", cookie);
    Ok(request.header("accept", accept).send().await?)
}

#[tokio::test]
async fn a_session_lasts_until_it_is_ended() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (cookie, token) = log_in(&world, "operator").await?;
    assert_eq!(get(&world, &cookie, "application/json").await?.status(), 200);
    let (other, _) = log_in(&world, "operator").await?;
    let out = world.server.request(Method::POST, "/logout").header("cookie", &cookie);
    let out = out.form(&[(".form_token", &token)]).send().await?;
    assert_eq!(out.status(), StatusCode::SEE_OTHER);
    assert_eq!(get(&world, &cookie, "application/json").await?.status(), 401);
    assert_eq!(get(&world, &other, "application/json").await?.status(), 200, "the other one goes on");
    world.store.end_sessions(&World::name("operator")?).await?;
    assert_eq!(get(&world, &other, "application/json").await?.status(), 401);
    let to_login = get(&world, &other, "text/html").await?;
    assert_eq!(to_login.status(), StatusCode::SEE_OTHER);
    assert_eq!(to_login.headers().get("location").context("no way")?, "/login?then=%2Fqueues");
    world.database.drop_database().await
}

#[tokio::test]
async fn a_session_that_is_idle_or_old_is_over() -> anyhow::Result<()> {
    let world = World::new().await?;
    for field in ["idle_until", "expires"] {
        let (cookie, _) = log_in(&world, "viewer").await?;
        assert_eq!(get(&world, &cookie, "application/json").await?.status(), 200);
        let over = doc! { "$set": { field: DateTime::from_millis(1_795_163_067_344) } };
        world
            .database
            .database
            .collection::<bson::Document>("accounts.sessions")
            .update_many(doc! {}, over)
            .await?;
        assert_eq!(get(&world, &cookie, "application/json").await?.status(), 401, "{field}");
    }
    world.database.drop_database().await
}

#[tokio::test]
async fn changes_need_the_form_token_of_the_session() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (cookie, token) = log_in(&world, "operator").await?;
    let (_, foreign) = log_in(&world, "operator").await?;
    let path = format!("/queues/{}", world.mine);
    let post = || world.server.request(Method::POST, &path).header("cookie", &cookie);
    let threads = json!({ "threads": 3 });
    for refused in [
        post().json(&threads),
        post().json(&threads).header("x-disbatch-form-token", &foreign),
        post().form(&[("threads", "3")]),
        post().form(&[(".form_token", foreign.as_str()), ("threads", "3")]),
        post().form(&[("threads", "3"), (".form_token", token.as_str())]),
        post().body("threads=3"),
        world.server.request(Method::DELETE, &path).header("cookie", &cookie),
    ] {
        assert_eq!(refused.send().await?.status(), StatusCode::FORBIDDEN);
    }
    let queue = world.store.list_queues().await?;
    assert!(queue.iter().all(|queue| !queue.rest.contains_key("threads")), "{queue:?}");
    for taken in [
        post().json(&threads).header("x-disbatch-form-token", &token),
        post().form(&[(".form_token", token.as_str()), (".then", "/"), ("threads", "3")]),
    ] {
        let status = taken.send().await?.status();
        assert!(status == StatusCode::OK || status == StatusCode::SEE_OTHER, "{status}");
    }
    world.database.drop_database().await
}

#[tokio::test]
async fn a_changed_password_ends_sessions_and_the_old_one_is_not_remembered() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (cookie, _) = log_in(&world, "viewer").await?;
    let by_password = || world.request(Method::GET, "/queues", Some("viewer")).send();
    assert_eq!(by_password().await?.status(), 200);
    let hash = disbatch_core::accounts::PasswordHash::of("another password")?;
    world.store.set_password(&World::name("viewer")?, &hash).await?;
    assert_eq!(by_password().await?.status(), 401);
    assert_eq!(get(&world, &cookie, "application/json").await?.status(), 401);
    world.store.remove_user(&World::name("admin")?).await?;
    assert_eq!(world.request(Method::GET, "/queues", Some("admin")).send().await?.status(), 401);
    world.database.drop_database().await
}
