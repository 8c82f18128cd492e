//! Passwords, tokens, proxies, and guessing.

use std::collections::BTreeSet;
use std::time::Duration;

use anyhow::Context;
use disbatch_core::accounts::{NewToken, PasswordHash, Role};
use disbatch_mongod::testing::TestDatabase;
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use crate::server::Server;
use crate::world::{PASSWORD, World};

#[tokio::test]
async fn programs_are_asked_as_disbatch_asks() -> anyhow::Result<()> {
    let world = World::new().await?;
    let answer = world.request(Method::GET, "/queues", None).send().await?;
    assert_eq!(answer.status(), StatusCode::UNAUTHORIZED);
    let challenge = answer.headers().get("www-authenticate").context("no challenge")?.to_str()?;
    assert!(challenge.starts_with("Basic realm=\"disbatch\""), "{challenge}");
    assert_eq!(answer.text().await?, r#"{"error":"this needs a login"}"#);
    assert_eq!(world.request(Method::GET, "/queues", Some("viewer")).send().await?.status(), 200);
    let script = world.server.request(Method::GET, "/queues").header("sec-fetch-mode", "cors").send().await?;
    assert_eq!(script.status(), StatusCode::UNAUTHORIZED);
    assert!(script.headers().get("www-authenticate").is_none(), "the browser would ask by itself");
    for rubbish in ["Basic", "Basic !!", "Bearer", "Bearer disbatch_", "Digest x", "Basic YWRtaW46"] {
        let answer =
            world.server.request(Method::GET, "/queues").header("authorization", rubbish).send().await?;
        assert_eq!(answer.status(), StatusCode::UNAUTHORIZED, "{rubbish}");
    }
    world.database.drop_database().await
}

#[tokio::test]
async fn a_token_has_no_more_than_it_says_and_ends() -> anyhow::Result<()> {
    let world = World::new().await?;
    let token = |role, queues, lasts| NewToken {
        user: World::name("operator").unwrap(),
        name: "nightly".into(),
        role,
        queues,
        lasts,
    };
    let whole = world.store.create_token(&token(Role::Admin, None, None)).await?;
    let only = Some(BTreeSet::from([world.mine]));
    let narrow = world.store.create_token(&token(Role::Submitter, only, None)).await?;
    let over = world.store.create_token(&token(Role::Admin, None, Some(Duration::ZERO))).await?;
    let status = async |token: &str, method: Method, path: String| -> anyhow::Result<u16> {
        let request = world.server.request(method.clone(), &path).bearer_auth(token);
        let request = if method == Method::GET { request } else { request.json(&json!({ "threads": 1 })) };
        Ok(request.send().await?.status().as_u16())
    };
    let queue = |queue| format!("/queues/{queue}");
    assert_eq!(status(&whole, Method::POST, queue(world.other)).await?, 200);
    assert_eq!(status(&whole, Method::GET, "/audit".into()).await?, 403, "its owner is no admin");
    assert_eq!(status(&narrow, Method::GET, queue(world.mine)).await?, 200);
    assert_eq!(status(&narrow, Method::POST, queue(world.mine)).await?, 403);
    assert_eq!(status(&narrow, Method::GET, queue(world.other)).await?, 404);
    assert_eq!(status(&narrow, Method::GET, "/nodes".into()).await?, 403);
    let body = json!({ "queue": world.mine.to_string(), "params": [{ "a": 1 }] });
    let made = world.server.request(Method::POST, "/tasks").bearer_auth(&narrow).json(&body).send().await?;
    assert_eq!(made.status(), 200);
    let from_collection = json!({ "queue": world.mine.to_string(), "collection": "accounts.users", "filter": {},
        "params": { "a": "document._id" } });
    let stolen = world.server.request(Method::POST, "/tasks").bearer_auth(&narrow).json(&from_collection);
    assert_eq!(stolen.send().await?.status(), 403);
    assert_eq!(status(&over, Method::GET, "/queues".into()).await?, 401);
    // In place of a password, for clients that know nothing else; but not for somebody else.
    for (user, expected) in [("operator", 200), ("admin", 401)] {
        let answer =
            world.server.request(Method::GET, "/queues").basic_auth(user, Some(&whole)).send().await?;
        assert_eq!(answer.status(), expected, "{user}");
    }
    let tokens = world.store.list_tokens(None).await?;
    assert_eq!(tokens.iter().filter(|token| token.used.is_some()).count(), 2, "{tokens:?}");
    for token in tokens {
        world.store.revoke_token(token.id, None).await?;
    }
    assert_eq!(status(&whole, Method::GET, "/queues".into()).await?, 401);
    world.database.drop_database().await
}

#[tokio::test]
async fn who_guesses_has_to_wait() -> anyhow::Result<()> {
    let world = World::new().await?;
    let guess = |name: &'static str, password: &'static str| {
        world.server.request(Method::GET, "/queues").basic_auth(name, Some(password)).send()
    };
    for attempt in 0..5 {
        assert_eq!(guess("admin", "wrong password").await?.status(), 401, "{attempt}");
    }
    let refused = guess("admin", "wrong password").await?;
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let wait: u64 = refused.headers().get("retry-after").context("no time")?.to_str()?.parse()?;
    assert!((1..=2).contains(&wait), "{wait}");
    assert_eq!(guess("nobody", "wrong password").await?.status(), StatusCode::TOO_MANY_REQUESTS);
    world.database.drop_database().await
}

#[tokio::test]
async fn nobody_is_kept_out_by_others_who_try_their_name() -> anyhow::Result<()> {
    // Each of those who ask comes from an address of their own.
    let world = World::with(json!({ "access": { "proxy": { "addresses": ["127.0.0.1"] } } })).await?;
    let status = async |from: &str, password: &str| -> anyhow::Result<u16> {
        let request = world.server.request(Method::GET, "/queues").basic_auth("viewer", Some(password));
        Ok(request.header("x-forwarded-for", from).send().await?.status().as_u16())
    };
    assert_eq!(status("192.0.2.7", PASSWORD).await?, 200);
    // One that has not been right lately, which would be remembered.
    let password = "another horse battery";
    world.store.set_password(&World::name("viewer")?, &PasswordHash::of(password)?).await?;
    let mut tried = 0;
    while status(&format!("198.51.100.{tried}"), "wrong password").await? != 429 {
        tried += 1;
        anyhow::ensure!(tried < 200, "a name may be tried as often as anybody likes");
    }
    assert_eq!(status("192.0.2.7", password).await?, 200, "the owner is kept out");
    world.database.drop_database().await
}

#[tokio::test]
async fn a_proxy_is_believed_where_it_is() -> anyhow::Result<()> {
    let proxy = |address: &str| json!({ "access": { "proxy": { "addresses": [address], "user_header": "X-Remote-User" } } });
    let world = World::with(proxy("127.0.0.1")).await?;
    let by = |world: &World, user: &str| {
        world.server.request(Method::GET, "/nodes").header("x-remote-user", user).send()
    };
    assert_eq!(by(&world, "viewer").await?.status(), 200);
    assert_eq!(by(&world, "guest").await?.status(), 403);
    assert_eq!(by(&world, "stranger").await?.status(), 403);
    assert_eq!(world.request(Method::GET, "/nodes", None).send().await?.status(), 401);
    let account = world.server.request(Method::GET, "/account").header("x-remote-user", "viewer");
    let account = account.header("x-forwarded-for", "198.51.100.7").send().await?;
    let account: Value = serde_json::from_str(&account.text().await?)?;
    assert_eq!((&account["name"], &account["via"]), (&json!("viewer"), &json!("proxy")));
    world.database.drop_database().await?;
    let elsewhere = World::with(proxy("192.0.2.1")).await?;
    assert_eq!(by(&elsewhere, "admin").await?.status(), 401);
    elsewhere.database.drop_database().await
}

#[tokio::test]
async fn the_first_user_closes_the_door() -> anyhow::Result<()> {
    let world = World::new().await?;
    for name in ["viewer", "submitter", "operator", "admin", "guest"] {
        world.store.remove_user(&World::name(name)?).await?;
    }
    let config = json!({ "mongohost": world.database.uri, "database": world.database.name });
    let open = crate::server::Server::start(&config).await?;
    assert_eq!(open.request(Method::GET, "/queues").send().await?.status(), 200);
    let hash = disbatch_core::accounts::PasswordHash::of(crate::world::PASSWORD)?;
    world.store.add_user(&World::name("root")?, Some(Role::Admin), &[], Some(&hash)).await?;
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while open.request(Method::GET, "/queues").send().await?.status() != 401 {
        anyhow::ensure!(tokio::time::Instant::now() < deadline, "the door stays open");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    world.store.remove_user(&World::name("root")?).await?;
    assert_eq!(open.request(Method::GET, "/queues").send().await?.status(), 401, "it stays closed");
    world.database.drop_database().await
}

#[tokio::test]
async fn monitoring_with_a_token_asks_for_metrics_by_any_name() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (user, name) = (World::name("viewer")?, "prometheus".to_owned());
    let new = NewToken { user, name, role: Role::Viewer, queues: None, lasts: None };
    let token = world.store.create_token(&new).await?;
    let status = async |server: &Server, path: &str, authorization: &str| -> anyhow::Result<u16> {
        let request = server.request(Method::GET, path).header("host", "10.1.2.3:8080");
        Ok(request.header("authorization", authorization).send().await?.status().as_u16())
    };
    let bearer = format!("Bearer {token}");
    assert_eq!(status(&world.server, "/metrics", &bearer).await?, 200);
    assert_eq!(status(&world.server, "/metrics", "Bearer disbatch_of_a_page").await?, 401);
    assert_eq!(status(&world.server, "/metrics", "Basic dmlld2VyOng=").await?, 421);
    assert_eq!(status(&world.server, "/queues", &bearer).await?, 421);
    // Where nobody is asked who they are, any page could show one.
    let database = TestDatabase::create(disbatch_mongod::testing::server().await?).await?;
    let open = Server::start(&json!({ "mongohost": database.uri, "database": database.name })).await?;
    assert_eq!(status(&open, "/metrics", &bearer).await?, 421);
    database.drop_database().await?;
    world.database.drop_database().await
}
