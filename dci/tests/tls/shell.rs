//! What answers tell browsers, and under which names this server is reached.

use bson::doc;
use bson::oid::ObjectId;
use disbatch_mongod::testing::{self, TestDatabase};
use reqwest::header::HeaderMap;
use reqwest::{Client, Method, Response};
use serde_json::json;

use crate::certificates::plain_client;
use crate::server::Server;
use crate::without_database;

/// Of every answer.
const OF_ALL: [(&str, &str); 6] = [
    ("x-content-type-options", "nosniff"),
    ("x-frame-options", "DENY"),
    ("referrer-policy", "same-origin"),
    ("cross-origin-opener-policy", "same-origin"),
    ("cross-origin-resource-policy", "same-origin"),
    ("permissions-policy", "camera=(), geolocation=(), microphone=(), payment=(), usb=()"),
];

/// The policy of what is no page.
const DATA: &str = "default-src 'none'; frame-ancestors 'none'; sandbox";

/// How the policy of pages begins.
const PAGE: &str = "default-src 'none'; style-src 'self'; script-src 'self'";

/// The policy of the operator's files.
const FILE: &str = "frame-ancestors 'none'";

fn check(what: &str, headers: &HeaderMap, policy: &str) {
    for (name, value) in OF_ALL {
        let all: Vec<_> = headers.get_all(name).iter().collect();
        assert_eq!(all, [value], "{what}: {name}");
    }
    let found = headers.get("content-security-policy").and_then(|found| found.to_str().ok());
    let found = found.unwrap_or_default();
    let is_right = if policy == PAGE { found.starts_with(PAGE) } else { found == policy };
    assert!(is_right, "{what}: {found}");
    for name in headers.keys() {
        assert!(!name.as_str().starts_with("access-control-"), "{what}: {name}");
    }
    assert!(!headers.contains_key("strict-transport-security"), "{what}: there is no TLS");
}

#[tokio::test]
async fn every_answer_has_the_headers_that_keep_browsers_out_of_trouble() -> anyhow::Result<()> {
    let database = TestDatabase::create(testing::server().await?).await?;
    let files = tempfile::tempdir()?;
    std::fs::write(files.path().join("old.html"), "<!DOCTYPE html><script>let a;</script>")?;
    let task = ObjectId::new();
    let document = doc! { "_id": task, "queue": ObjectId::new(), "status": 1, "stdout": "<b>", "params": {} };
    database.database.collection("tasks").insert_one(document).await?;
    let config = json!({
        "mongohost": database.uri, "database": database.name, "plugins": [], "web_root": files.path(),
    });
    let server = Server::start(&config, &[]).await?;
    let client = plain_client()?;
    let stdout = format!("/tasks/{task}/stdout");
    let events = format!("/tasks/{task}/events");
    for (method, path, accept, status, policy) in [
        (Method::GET, "/", "text/html", 200, PAGE),
        (Method::HEAD, "/", "text/html", 200, PAGE),
        (Method::GET, "/queues", "application/json", 200, DATA),
        (Method::GET, stdout.as_str(), "*/*", 200, DATA),
        (Method::GET, events.as_str(), "*/*", 200, DATA),
        (Method::GET, "/assets/app.css", "*/*", 200, DATA),
        (Method::GET, "/old.html", "text/html", 200, FILE),
        (Method::GET, "/nowhere", "application/json", 404, DATA),
        (Method::GET, "/nowhere", "text/html", 404, PAGE),
        (Method::PUT, "/queues", "application/json", 405, DATA),
        (Method::OPTIONS, "/queues", "application/json", 405, DATA),
        (Method::POST, "/queues", "application/json", 403, DATA),
    ] {
        let request = client.request(method.clone(), format!("http://{}{path}", server.address));
        let request = request.header("accept", accept).header("access-control-request-method", "POST");
        // It would be refused for that before it is known that there is no such method.
        let is_put = method == Method::PUT;
        let request = if is_put { request } else { request.header("origin", "http://evil.example") };
        let response = request.send().await?;
        let what = format!("{method} {path} as {accept}");
        assert_eq!(response.status(), status, "{what}");
        check(&what, response.headers(), policy);
    }
    database.drop_database().await
}

async fn asked(client: &Client, server: &Server, host: &str) -> anyhow::Result<Response> {
    let request = client.get(format!("http://{}/openapi.json", server.address));
    Ok(request.header("accept", "application/json").header("host", host).send().await?)
}

#[tokio::test]
async fn this_machine_is_served_under_its_own_names_only() -> anyhow::Result<()> {
    let server = Server::start(&without_database(), &[]).await?;
    let client = plain_client()?;
    let port = server.address.port();
    for own in ["localhost".to_owned(), format!("localhost:{port}"), format!("[::1]:{port}")] {
        assert_eq!(asked(&client, &server, &own).await?.status(), 200, "{own}");
    }
    for other in ["evil.example".to_owned(), format!("evil.example:{port}"), "10.0.0.5".to_owned()] {
        let response = asked(&client, &server, &other).await?;
        assert_eq!(response.status(), 421, "{other}");
        check(&other, response.headers(), DATA);
        let text = response.text().await?;
        assert!(text.contains("'hosts'") && text.contains(&other), "{text}");
    }
    let none = server.exchange(b"GET /openapi.json HTTP/1.0\r\n\r\n").await?;
    assert!(none.starts_with("HTTP/1.0 421 ") || none.starts_with("HTTP/1.1 421 "), "{none}");
    Ok(())
}

#[tokio::test]
async fn names_of_the_configuration_are_served_too() -> anyhow::Result<()> {
    let mut config = without_database();
    config["hosts"] = json!(["disbatch.example.com"]);
    let server = Server::start(&config, &[]).await?;
    let client = plain_client()?;
    for (host, status) in [
        ("disbatch.example.com", 200),
        ("Disbatch.example.com:443", 200),
        ("localhost:8080", 200),
        ("example.com", 421),
        ("disbatch.example.com.evil.example", 421),
    ] {
        assert_eq!(asked(&client, &server, host).await?.status(), status, "{host}");
    }
    Ok(())
}
