//! Logging in, and what people change of their own accounts.

use std::time::Duration;

use anyhow::Context;
use bson::oid::ObjectId;
use disbatch_core::accounts::{Grant, NewToken, PasswordHash, Role, Scope};
use reqwest::{Method, RequestBuilder, Response, StatusCode};
use serde_json::{Value, json};

use crate::sessions::log_in;
use crate::world::{MARKER, PASSWORD, World};

const OTHER: &str = "another horse battery";

fn by_browser(world: &World, method: Method, path: &str, cookie: &str) -> RequestBuilder {
    world.server.request(method, path).header("cookie", cookie).header("accept", "text/html")
}

fn header(answer: &Response, name: &str) -> anyhow::Result<String> {
    let value = answer.headers().get(name).with_context(|| format!("no {name}"))?;
    Ok(value.to_str()?.to_owned())
}

async fn json_of(request: RequestBuilder) -> anyhow::Result<Value> {
    Ok(serde_json::from_str(&request.send().await?.error_for_status()?.text().await?)?)
}

#[tokio::test]
async fn a_login_is_asked_for_and_leads_on() -> anyhow::Result<()> {
    let world = World::new().await?;
    let page =
        world.server.request(Method::GET, "/login?then=/tasks").header("accept", "text/html").send().await?;
    assert_eq!((page.status(), header(&page, "cache-control")?.as_str()), (StatusCode::OK, "no-store"));
    let html = page.text().await?;
    assert!(html.contains("name=\".then\" value=\"/tasks\"") && !html.contains("<nav"), "{html}");
    for (name, password) in [("admin", "wrong password"), ("<nobody>", PASSWORD), ("a:b", PASSWORD)] {
        let form = [("name", name), ("password", password), (".then", "/tasks")];
        let refused = world.server.request(Method::POST, "/login").form(&form).send().await?;
        assert_eq!(refused.status(), StatusCode::UNAUTHORIZED, "{name}");
        assert!(refused.headers().get("set-cookie").is_none(), "{name}");
        let html = refused.text().await?;
        assert!(html.contains("wrong name or password") && !html.contains(password), "{name}: {html}");
        assert!(html.contains(&name.replace('<', "&#60;").replace('>', "&#62;")), "{name}: {html}");
    }
    let form = [("name", "admin"), ("password", PASSWORD), (".then", "//evil.example/")];
    let elsewhere = world.server.request(Method::POST, "/login").form(&form).send().await?;
    assert_eq!((elsewhere.status(), header(&elsewhere, "location")?.as_str()), (StatusCode::SEE_OTHER, "/"));
    let cookie = header(&elsewhere, "set-cookie")?.split(';').next().unwrap_or_default().to_owned();
    let known = by_browser(&world, Method::GET, "/login", &cookie).send().await?.text().await?;
    assert!(known.contains("You are logged in as") && !known.contains("type=\"password\""), "{known}");
    // For programs; and not in an address, which is kept in logs.
    let body = json!({ "name": "viewer", "password": PASSWORD });
    let answer = world.server.request(Method::POST, "/login").json(&body).send().await?;
    assert!(header(&answer, "set-cookie")?.contains("HttpOnly"));
    assert_eq!(answer.text().await?, r#"{"name":"viewer"}"#);
    let in_address = format!("/login?name=viewer&password={}", PASSWORD.replace(' ', "+"));
    assert_eq!(world.server.request(Method::POST, &in_address).send().await?.status(), 400);
    world.database.drop_database().await
}

#[tokio::test]
async fn who_guesses_on_the_page_has_to_wait() -> anyhow::Result<()> {
    let world = World::new().await?;
    let form = [("name", "admin"), ("password", "wrong password"), (".then", "/")];
    let guess = || world.server.request(Method::POST, "/login").form(&form).send();
    for attempt in 0..5 {
        assert_eq!(guess().await?.status(), StatusCode::UNAUTHORIZED, "{attempt}");
    }
    let mut refused = guess().await?;
    for _ in 0..6 {
        if refused.status() == StatusCode::TOO_MANY_REQUESTS {
            break;
        }
        // A slow machine has compared passwords for so long: the next wait is twice as long.
        refused = guess().await?;
    }
    assert_eq!(refused.status(), StatusCode::TOO_MANY_REQUESTS);
    let seconds: u64 = header(&refused, "retry-after")?.parse()?;
    assert!((1..=64).contains(&seconds), "{seconds}");
    let html = refused.text().await?;
    assert!(html.contains("too many wrong passwords") && html.contains("value=\"admin\""), "{html}");
    world.database.drop_database().await
}

#[tokio::test]
async fn a_password_is_changed_by_whoever_knows_it() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (cookie, token) = log_in(&world, "viewer").await?;
    let (elsewhere, _) = log_in(&world, "viewer").await?;
    let change = |old: &str, again: &str| {
        let then = "/account?said=password";
        let form = [
            (".form_token", token.as_str()),
            (".then", then),
            ("old", old),
            ("new", OTHER),
            ("again", again),
        ];
        by_browser(&world, Method::POST, "/account/password", &cookie).form(&form)
    };
    for (old, again, status, message) in [
        ("wrong password", OTHER, 403, "the old password is wrong"),
        (PASSWORD, "something else", 400, "the new password is not the same twice"),
    ] {
        let refused = change(old, again).send().await?;
        assert_eq!(refused.status(), status, "{message}");
        let html = refused.text().await?;
        assert!(html.contains(message) && !html.contains(old) && !html.contains(OTHER), "{message}: {html}");
    }
    let changed = change(PASSWORD, OTHER).send().await?;
    assert_eq!(
        (changed.status(), header(&changed, "location")?.as_str()),
        (StatusCode::SEE_OTHER, "/account?said=password")
    );
    let fresh = header(&changed, "set-cookie")?.split(';').next().unwrap_or_default().to_owned();
    for (cookie, status) in [(&cookie, 401), (&elsewhere, 401), (&fresh, 200)] {
        let queues = world.server.request(Method::GET, "/queues").header("cookie", cookie);
        assert_eq!(queues.send().await?.status(), status, "{cookie}");
    }
    let page = by_browser(&world, Method::GET, "/account?said=password", &fresh).send().await?.text().await?;
    assert!(page.contains("Your password is changed") && page.contains("this one"), "{page}");
    assert_eq!(world.request(Method::GET, "/queues", Some("viewer")).send().await?.status(), 401);
    // Programs change theirs without a session.
    let body = json!({ "old": OTHER, "new": PASSWORD });
    let request =
        || world.server.request(Method::POST, "/account/password").basic_auth("viewer", Some(OTHER));
    let short = request().json(&json!({ "old": OTHER, "new": "short" })).send().await?;
    assert_eq!(
        (short.status().as_u16(), short.text().await?.contains("has 10 to 1024 characters")),
        (400, true)
    );
    let back = request().json(&body).send().await?;
    assert_eq!((back.status().as_u16(), back.headers().get("set-cookie").is_none()), (200, true));
    assert_eq!(world.request(Method::GET, "/queues", Some("viewer")).send().await?.status(), 200);
    world.database.drop_database().await
}

#[tokio::test]
async fn tokens_are_made_shown_once_and_revoked() -> anyhow::Result<()> {
    let world = World::new().await?;
    let make = |body: Value| world.request(Method::POST, "/account/tokens", Some("operator")).json(&body);
    let above = make(json!({ "name": "n", "role": "admin" })).send().await?;
    assert_eq!(above.status(), StatusCode::FORBIDDEN);
    let body = json!({ "name": "nightly", "role": "submitter", "queues": ["mine"], "days": 1 });
    let made = json_of(make(body)).await?;
    let token = made["token"].as_str().context("no token")?.to_owned();
    let by_token = |method: Method, path: &str| world.server.request(method, path).bearer_auth(&token);
    let account = json_of(by_token(Method::GET, "/account")).await?;
    assert_eq!((&account["name"], &account["via"]), (&json!("operator"), &json!("token")));
    assert_eq!(account["grants"][0]["role"], json!("submitter"));
    assert_eq!((&account["sessions"], &account["tokens"]), (&json!([]), &json!([])));
    let own = json_of(world.request(Method::GET, "/account", Some("operator"))).await?;
    let listed = &own["tokens"][0];
    assert_eq!((&listed["name"], &listed["over"]), (&json!("nightly"), &json!(false)));
    assert!(!own.to_string().contains(token.get(33..).context("too short")?), "it is told once");
    for (path, body) in [
        ("/account/tokens", json!({ "name": "n", "role": "viewer" })),
        ("/account/password", json!({ "old": PASSWORD, "new": OTHER })),
    ] {
        let refused = by_token(Method::POST, path).json(&body).send().await?;
        assert_eq!(refused.status(), StatusCode::FORBIDDEN, "{path}");
    }
    let path = format!("/account/tokens/{}/revoke", listed["id"].as_str().context("no id")?);
    for (user, status) in [("admin", 404), ("operator", 200), ("operator", 404)] {
        let revoked = world.request(Method::POST, &path, Some(user)).send().await?;
        assert_eq!(revoked.status(), status, "{user}");
    }
    assert_eq!(by_token(Method::GET, "/account").send().await?.status(), StatusCode::UNAUTHORIZED);

    let (cookie, form_token) = log_in(&world, "operator").await?;
    let mine = world.mine.to_string();
    let form = [
        (".form_token", form_token.as_str()),
        (".then", "/account"),
        ("name", "<by> form"),
        ("role", "viewer"),
        ("days", ""),
        ("queues", mine.as_str()),
    ];
    let page = by_browser(&world, Method::POST, "/account/tokens", &cookie).form(&form).send().await?;
    assert_eq!((page.status(), header(&page, "cache-control")?.as_str()), (StatusCode::OK, "no-store"));
    let html = page.text().await?;
    assert!(html.contains("value=\"disbatch_") && html.contains("&#60;by&#62; form"), "{html}");
    let again = by_browser(&world, Method::GET, "/account", &cookie).send().await?.text().await?;
    assert!(!again.contains("value=\"disbatch_") && again.contains("&#60;by&#62; form"), "{again}");
    world.database.drop_database().await
}

#[tokio::test]
async fn tokens_that_have_ended_leave_room_for_others() -> anyhow::Result<()> {
    let world = World::new().await?;
    let user = World::name("operator")?;
    let token = |lasts: Option<Duration>| NewToken {
        user: user.clone(),
        name: "nightly".to_owned(),
        role: Role::Viewer,
        queues: None,
        lasts,
    };
    for _ in 0..5 {
        world.store.create_token(&token(Some(Duration::ZERO))).await?;
    }
    for _ in 0..99 {
        world.store.create_token(&token(None)).await?;
    }
    let body = json!({ "name": "n", "role": "viewer" });
    let make = || world.request(Method::POST, "/account/tokens", Some("operator")).json(&body).send();
    assert_eq!(make().await?.status(), StatusCode::OK, "five of them have ended");
    assert_eq!(make().await?.status(), StatusCode::CONFLICT, "there are a hundred that have not");
    world.database.drop_database().await
}

#[tokio::test]
async fn sessions_are_listed_and_ended() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (here, token) = log_in(&world, "viewer").await?;
    let (elsewhere, _) = log_in(&world, "viewer").await?;
    let (foreign, _) = log_in(&world, "admin").await?;
    let list = async |cookie: &str| -> anyhow::Result<Vec<Value>> {
        let account = json_of(world.server.request(Method::GET, "/account").header("cookie", cookie)).await?;
        Ok(account["sessions"].as_array().context("no sessions")?.clone())
    };
    let end = |session: &Value| {
        let path = format!("/account/sessions/{}/end", session["id"].as_str().unwrap_or_default());
        let form = [(".form_token", token.as_str()), (".then", "/account?said=session")];
        by_browser(&world, Method::POST, &path, &here).form(&form).send()
    };
    let sessions = list(&here).await?;
    assert_eq!(sessions.len(), 2, "{sessions:?}");
    let other = sessions.iter().find(|session| session["own"] == false).context("no other session")?;
    let of_admin = list(&foreign).await?;
    assert_eq!(end(&of_admin[0]).await?.status(), 404, "it is somebody else's");
    assert_eq!(end(other).await?.status(), 303);
    let status = async |cookie: &str| -> anyhow::Result<u16> {
        let queues = world.server.request(Method::GET, "/queues").header("cookie", cookie);
        Ok(queues.send().await?.status().as_u16())
    };
    assert_eq!((status(&elsewhere).await?, status(&here).await?, status(&foreign).await?), (401, 200, 200));
    world.database.drop_database().await
}

#[tokio::test]
async fn users_are_shown_to_admins_without_their_hashes() -> anyhow::Result<()> {
    let world = World::new().await?;
    let users = json_of(world.request(Method::GET, "/users", Some("admin"))).await?;
    let names: Vec<&str> =
        users.as_array().context("no users")?.iter().filter_map(|user| user["name"].as_str()).collect();
    assert_eq!(names, ["admin", "guest", "operator", "submitter", "viewer"]);
    assert_eq!(
        users[1]["grants"][0],
        json!({ "queue": world.mine.to_string(), "name": "mine", "role": "viewer" })
    );
    assert_eq!((&users[0]["role"], &users[0]["password"]), (&json!("admin"), &json!(true)));
    let html =
        world.request(Method::GET, "/users", Some("admin")).header("accept", "text/html").send().await?;
    let html = html.text().await?;
    assert!(html.contains("guest") && html.contains("disbatch user"), "{html}");
    assert!(!html.contains("argon2") && !users.to_string().contains("argon2"), "{html}");
    assert_eq!(world.request(Method::GET, "/users", Some("operator")).send().await?.status(), 403);
    world.database.drop_database().await
}

#[tokio::test]
async fn a_form_is_not_filled_with_what_is_hidden() -> anyhow::Result<()> {
    let world = World::new().await?;
    let grant = Grant { scope: Scope::Queue(world.mine), role: Role::Submitter };
    let hash = PasswordHash::of(PASSWORD)?;
    world.store.add_user(&World::name("helper")?, None, &[grant], Some(&hash)).await?;
    let page = async |task: ObjectId| -> anyhow::Result<String> {
        let path = format!("/queues/{}?task={task}", world.mine);
        let request = world.request(Method::GET, &path, Some("helper")).header("accept", "text/html");
        Ok(request.send().await?.error_for_status()?.text().await?)
    };
    let (own, others) = (world.task(world.mine).await?, world.task(world.other).await?);
    assert!(page(own).await?.contains(MARKER), "its params are to be changed");
    assert!(!page(others).await?.contains(MARKER), "it is of another queue");
    world.database.drop_database().await
}
