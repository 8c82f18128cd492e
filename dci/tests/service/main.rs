//! What the built `dci` does when something is not as it should be, and what its pages show.

mod arrays;
#[path = "../replay/server.rs"]
mod server;

use std::process::{Output, Stdio};
use std::time::Duration;

use anyhow::{Context, ensure};
use bson::oid::ObjectId;
use bson::{Document, doc};
use disbatch_core::clock::SystemClock;
use disbatch_core::model::TaskId;
use disbatch_core::output::{Encoding, StreamName};
use disbatch_core::store::Store;
use disbatch_mongod::testing::TestDatabase;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use reqwest::{Method, StatusCode};
use serde_json::{Value, json};
use server::Server;
use tokio::process::Command;
use tokio::time::Instant;

/// How long to wait for something that should happen within moments, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Nothing listens on port 1; the answer is not to be waited for.
const NO_DATABASE: &str = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100";

async fn run(arguments: &[&str]) -> anyhow::Result<Output> {
    Ok(Command::new(env!("CARGO_BIN_EXE_dci")).args(arguments).output().await?)
}

fn without_database() -> Value {
    json!({ "mongohost": NO_DATABASE, "database": "x", "plugins": ["My::Plugin"] })
}

async fn page(server: &Server, path: &str) -> anyhow::Result<(StatusCode, String)> {
    let response = server.request(Method::GET, path).header("accept", "text/html").send().await?;
    let status = response.status();
    let policy = response.headers().get("content-security-policy").context("no policy")?;
    ensure!(policy.to_str()?.starts_with("default-src 'none'"));
    Ok((status, response.text().await?))
}

#[tokio::test]
async fn exit_codes_tell_what_is_wrong() -> anyhow::Result<()> {
    let missing = run(&["--config", "/does/not/exist"]).await?;
    assert_eq!(missing.status.code(), Some(3));
    assert_eq!(
        String::from_utf8(missing.stderr)?,
        "dci: cannot read configuration /does/not/exist: No such file or directory (os error 2)\n"
    );
    assert_eq!(run(&["--nonsense"]).await?.status.code(), Some(2));

    let folder = tempfile::tempdir()?;
    let config = folder.path().join("config.json");
    std::fs::write(&config, without_database().to_string())?;
    // Nobody could log in, so that nobody is to be served.
    let database = TestDatabase::create(disbatch_mongod::testing::server().await?).await?;
    let empty = folder.path().join("empty.json");
    std::fs::write(&empty, json!({ "mongohost": database.uri, "database": database.name }).to_string())?;
    let exposed = run(&["--config", empty.to_str().context("odd folder")?, "--listen", "0.0.0.0:0"]).await?;
    assert_eq!(exposed.status.code(), Some(2));
    let said = String::from_utf8(exposed.stderr)?;
    assert!(said.contains("disbatch user add NAME --admin"), "{said}");
    database.drop_database().await?;
    let taken = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = taken.local_addr()?.to_string();
    let config = config.to_str().context("odd folder")?;
    let busy = run(&["--config", config, "--listen", &address]).await?;
    assert_eq!(busy.status.code(), Some(4));
    Ok(())
}

#[tokio::test]
async fn no_core_dump_is_written_with_secrets_in_it() -> anyhow::Result<()> {
    // As if dumps were wanted: this is what the server begins with.
    let (_, highest) = getrlimit(Resource::RLIMIT_CORE)?;
    setrlimit(Resource::RLIMIT_CORE, highest, highest)?;
    let folder = tempfile::tempdir()?;
    let config = folder.path().join("config.json");
    std::fs::write(&config, without_database().to_string())?;
    let mut command = Command::new(env!("CARGO_BIN_EXE_dci"));
    command.arg("--config").arg(&config).args(["--listen", "127.0.0.1:0"]).stderr(Stdio::null());
    let server = command.kill_on_drop(true).spawn()?;
    let limits = format!("/proc/{}/limits", server.id().context("it has ended")?);
    let deadline = Instant::now() + PATIENCE;
    loop {
        let limits = std::fs::read_to_string(&limits)?;
        let line = limits.lines().find_map(|line| line.strip_prefix("Max core file size"));
        if line.context("no such limit")?.split_whitespace().next() == Some("0") {
            return Ok(());
        }
        ensure!(Instant::now() < deadline, "they would be written: {limits}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn without_a_database_requests_are_answered_with_503() -> anyhow::Result<()> {
    let server = Server::start(&without_database()).await?;
    for _ in 0..2 {
        let response = server.request(Method::GET, "/queues").send().await?;
        assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
        assert!(response.headers().contains_key("retry-after"));
        assert_eq!(response.text().await?, r#"{"error":"the database cannot be reached"}"#);
    }
    let (status, html) = page(&server, "/").await?;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE);
    assert!(html.contains("the database cannot be reached"), "{html}");
    // Without the database it is not known whether anybody has to log in.
    let response = server.request(Method::GET, "/plugins").send().await?;
    assert_eq!(response.status(), StatusCode::SERVICE_UNAVAILABLE);
    let (status, html) = page(&server, "/login").await?;
    assert_eq!(status, StatusCode::SERVICE_UNAVAILABLE, "{html}");
    Ok(())
}

#[tokio::test]
async fn requests_that_make_no_sense_are_told_so() -> anyhow::Result<()> {
    let database = TestDatabase::create(disbatch_mongod::testing::server().await?).await?;
    let server = Server::start(&json!({ "mongohost": database.uri, "database": database.name })).await?;
    let response = server.request(Method::DELETE, "/nodes").send().await?;
    assert_eq!(response.status(), StatusCode::METHOD_NOT_ALLOWED);
    assert_eq!(response.headers().get("allow").context("no Allow")?, "GET, HEAD");
    let form =
        |accept: &str| server.request(Method::GET, "/schedules/x/backfill").header("accept", accept).send();
    assert_eq!(form("application/json").await?.status(), StatusCode::METHOD_NOT_ALLOWED);
    // A browser is led to the page that has the form.
    let response = form("text/html").await?;
    assert_eq!(response.status(), StatusCode::SEE_OTHER);
    assert_eq!(response.headers().get("location").context("no Location")?, "/schedules/x#backfill");
    let (status, html) = page(&server, "/counters/audit").await?;
    assert_eq!((status, html.contains("405")), (StatusCode::METHOD_NOT_ALLOWED, true));
    let response = server.request(Method::GET, "/nowhere").send().await?;
    assert_eq!(response.status(), StatusCode::NOT_FOUND);
    assert_eq!(response.text().await?, r#"{"error":"nothing is at /nowhere"}"#);
    let (status, html) = page(&server, "/nowhere").await?;
    assert_eq!((status, html.contains("404 Not Found")), (StatusCode::NOT_FOUND, true));
    let long = server.request(Method::POST, "/queues").header("content-type", "application/json");
    let response = long.body(vec![b' '; 16 * 1024 * 1024 + 1]).send().await?;
    assert_eq!(response.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let foreign = server.request(Method::POST, "/queues").header("origin", "http://evil.example");
    assert_eq!(foreign.send().await?.status(), StatusCode::FORBIDDEN);
    database.drop_database().await
}

#[tokio::test]
async fn a_task_that_no_document_can_hold_is_refused() -> anyhow::Result<()> {
    let database = TestDatabase::create(disbatch_mongod::testing::server().await?).await?;
    let config = json!({ "mongohost": database.uri, "database": database.name, "plugins": ["My::Plugin"] });
    let server = Server::start(&config).await?;
    let post = |path: &str, body: Value| {
        let request = server.request(Method::POST, path).header("content-type", "application/json");
        request.body(body.to_string()).send()
    };
    let queue = post("/queues", json!({ "name": "q", "plugin": "My::Plugin" })).await?;
    assert_eq!(queue.status(), StatusCode::OK);
    // Short enough as a body; as a document it has to grow by what comes out.
    let text = "x".repeat(14 * 1024 * 1024);
    let refused = post("/tasks", json!({ "queue": "q", "params": [{ "a": text }] })).await?;
    assert_eq!(refused.status(), StatusCode::PAYLOAD_TOO_LARGE);
    let body: Value = serde_json::from_str(&refused.text().await?)?;
    assert_eq!((&body["field"], &body["limit"]), (&json!("'params'"), &json!(13 * 1024 * 1024)), "{body}");
    database.drop_database().await
}

#[tokio::test]
async fn chosen_fields_that_are_too_much_for_one_answer_are_refused() -> anyhow::Result<()> {
    let database = TestDatabase::create(disbatch_mongod::testing::server().await?).await?;
    let config = json!({ "mongohost": database.uri, "database": database.name, "plugins": [] });
    let server = Server::start(&config).await?;
    // Two of them are answered at once, and three are more than 16 MiB.
    let ids = [ObjectId::new(), ObjectId::new(), ObjectId::new()];
    let text = "x".repeat(6 * 1024 * 1024);
    for id in ids {
        let task = doc! { "_id": id, "status": 1, "params": { "text": &text } };
        database.database.collection::<Document>("tasks").insert_one(task).await?;
    }
    let query = async |ids: &[ObjectId], fields: &str| {
        let ids: Vec<String> = ids.iter().map(|id| id.to_hex()).collect();
        let path = format!("/tasks/query?.ids={}&.fields={fields}", ids.join(","));
        let answer = server.request(Method::GET, &path).send().await?;
        anyhow::Ok((answer.status(), serde_json::from_str::<Value>(&answer.text().await?)?))
    };
    let (status, rows) = query(&ids[..2], "params").await?;
    assert_eq!((status, rows.as_array().map(Vec::len)), (StatusCode::OK, Some(2)));
    assert_eq!(rows[1]["fields"]["params"]["text"].as_str().map(str::len), Some(text.len()));
    let (status, refused) = query(&ids, "params").await?;
    let message = "the fields have more than 16777216 bytes: ask for fewer tasks or fewer fields";
    assert_eq!((status, refused), (StatusCode::PAYLOAD_TOO_LARGE, json!({ "error": message })));
    // Nor is it told of a task twice, however often it is asked about.
    let (status, rows) = query(&[ids[0]; 3], "params").await?;
    assert_eq!((status, rows.as_array().map(Vec::len)), (StatusCode::OK, Some(1)));
    let (status, rows) = query(&ids, "status").await?;
    assert_eq!((status, &rows[2]["fields"]), (StatusCode::OK, &json!({ "status": 1 })));
    database.drop_database().await
}

#[tokio::test]
async fn deprecated_routes_answer_as_perl_does() -> anyhow::Result<()> {
    let database = TestDatabase::create(disbatch_mongod::testing::server().await?).await?;
    let config = json!({ "mongohost": database.uri, "database": database.name, "plugins": ["My::Plugin"],
        "web_extensions": ["Disbatch::Web::Tasks", "Disbatch::Web::V3"] });
    let server = Server::start(&config).await?;
    let store = Store::with_clock(database.database.clone(), std::sync::Arc::new(SystemClock));
    store.ensure_indexes().await?;
    let queues = database.database.collection::<Document>("queues");
    queues.insert_one(doc! { "name": "old", "plugin": "My::Old" }).await?;
    let post = async |path: &str, body: Value| {
        let response = server.request(Method::POST, path).json(&body).send().await?;
        anyhow::Ok((response.status().as_u16(), serde_json::from_str::<Value>(&response.text().await?)?))
    };
    let none = json!({ "queueid": "old", "collection": "nobody", "jsonfilter": {}, "params": { "a": 1 } });
    for (path, body, status, said) in [
        ("/start-queue-json", json!({ "type": "Nope", "name": "x" }), 400, json!([0, "unknown type"])),
        (
            "/set-queue-attr-json",
            json!({ "value": 1 }),
            400,
            json!({ "error": "Invalid attr", "success": 0 }),
        ),
        ("/queue-create-tasks-from-query-json", none, 400, json!([0, 0])),
        ("/search-tasks-json", json!({ "queue": "zzz" }), 200, json!([0, "Value 'zzz' is not a valid OID"])),
        ("/tasks", json!([{ "a": 1 }]), 400, json!({ "error": "queue not found" })),
        ("/tasks/old", json!({ "a": 1 }), 400, json!({ "error": "invalid parameters passed" })),
    ] {
        assert_eq!(post(path, body).await?, (status, said), "{path}");
    }
    let (status, made) = post("/tasks/old", json!({ "params": [{ "a": 1 }] })).await?;
    let made = made["MongoDB::InsertManyResult"]["inserted"].as_array().map(Vec::len);
    assert_eq!((status, made), (200, Some(1)));
    let counted = post("/search-tasks-json", json!({ "filter": { "status": "-2" }, "count": 1 })).await?;
    assert_eq!(counted, (200, json!([1, 1])));
    let found = server.request(Method::GET, "/tasks?queue=&status=-2&.count=1").send().await?;
    assert_eq!(found.text().await?, r#"{"count":1}"#);
    let started = post("/start-queue-json", json!({ "type": "My::Old", "name": "another" })).await?;
    assert_eq!((started.0, &started.1[0]), (200, &json!(1)), "the plugin of a queue that there is");
    database.drop_database().await
}

#[tokio::test]
async fn what_looks_like_extended_json_hides_nothing() -> anyhow::Result<()> {
    let database = TestDatabase::create(disbatch_mongod::testing::server().await?).await?;
    let config = json!({ "mongohost": database.uri, "database": database.name, "plugins": ["My::Plugin"],
        "web_extensions": ["Disbatch::Web::Tasks", "Disbatch::Web::V3"] });
    let server = Server::start(&config).await?;
    let post = |path: &str, body: Value| server.request(Method::POST, path).json(&body).send();
    post("/queues", json!({ "name": "q", "plugin": "My::Plugin" })).await?;
    let odd = json!([
        { "a": { "$oid": "q1" } }, { "$oid": "me" }, { "a": [{ "$date": "never" }] }, { "a": { "$binary": 5 } },
        { "a": { "$numberLong": "many" } }, { "a": { "$oid": "6b0003bb686c8275d8013333" } },
    ]);
    let made = post("/tasks", json!({ "queue": "q", "params": odd })).await?;
    assert_eq!(made.status(), StatusCode::OK);
    let v3 = post("/search-tasks-json", json!({ "filter": {} })).await?;
    let listed = server.request(Method::GET, "/tasks?.limit=100").send().await?;
    for answer in [v3, listed] {
        assert_eq!(answer.status(), StatusCode::OK);
        let tasks: Vec<Value> = serde_json::from_str(&answer.text().await?)?;
        let params: Vec<&Value> = tasks.iter().map(|task| &task["params"]).collect();
        assert_eq!(json!(params), odd);
        for task in &tasks {
            let id = task["_id"]["$oid"].as_str().or_else(|| task["id"].as_str()).context("no id")?;
            let one = server.request(Method::GET, &format!("/tasks/{id}")).send().await?;
            let one: Value = serde_json::from_str(&one.text().await?)?;
            assert_eq!(one["params"], task["params"]);
            let (status, html) = page(&server, &format!("/tasks/{id}")).await?;
            assert_eq!(status, StatusCode::OK, "{html}");
        }
    }
    let (status, html) = page(&server, "/tasks").await?;
    assert!(status == StatusCode::OK && html.contains("never"), "{html}");
    let named = json!({ "name": { "$oid": "me" }, "plugin": "My::Plugin" });
    assert_eq!(post("/queues", named).await?.status(), StatusCode::OK);
    let queues = server.request(Method::GET, "/queues").send().await?;
    let queues: Vec<Value> = serde_json::from_str(&queues.text().await?)?;
    let names: Vec<&Value> = queues.iter().map(|queue| &queue["name"]).collect();
    assert_eq!(names, [&json!("q"), &json!({ "$oid": "me" })]);
    for path in ["/", "/queues", "/tasks", "/balance"] {
        let (status, html) = page(&server, path).await?;
        assert_eq!(status, StatusCode::OK, "{path}: {html}");
    }
    database.drop_database().await
}

#[tokio::test]
async fn pages_show_queues_tasks_and_output() -> anyhow::Result<()> {
    let database = TestDatabase::create(disbatch_mongod::testing::server().await?).await?;
    let store = Store::with_clock(database.database.clone(), std::sync::Arc::new(SystemClock));
    store.ensure_indexes().await?;
    let (queue, task, file) = (ObjectId::new(), ObjectId::new(), ObjectId::new());
    let queues = database.database.collection("queues");
    queues
        .insert_one(doc! { "_id": queue, "name": "<mail>", "plugin": "My::Plugin", "threads": "2" })
        .await?;
    let document = doc! { "_id": task, "queue": queue, "status": 1, "params": { "to": "<you>" },
    "stdout": file, "stderr": "careful <b>", "node": "vm" };
    database.database.collection("tasks").insert_one(document).await?;
    let output = "0123456789abcdef".repeat(5000);
    let stream = (TaskId(task), StreamName::Stdout);
    store.put_output(file, stream, Encoding::Text, output.as_bytes()).await?;

    let config = json!({ "mongohost": database.uri, "database": database.name, "plugins": [] });
    let server = Server::start(&config).await?;
    let (_, html) = page(&server, "/").await?;
    assert!(html.contains("&#60;mail&#62;") && html.contains(&format!("/tasks?queue={queue}")), "{html}");
    let (_, html) = page(&server, &format!("/tasks?queue={queue}")).await?;
    assert!(html.contains(&format!("/tasks/{task}")) && html.contains("succeeded"), "{html}");
    for found in ["/tasks", "/tasks?status=1", "/tasks?.text=%3CYOU%3E", "/tasks?node=vm"] {
        let (status, html) = page(&server, found).await?;
        assert!(status == StatusCode::OK && html.contains(&format!("/tasks/{task}")), "{found}: {html}");
    }
    let (_, html) = page(&server, &format!("/tasks?queue={queue}&status=2")).await?;
    assert!(html.contains("No task matches.") && !html.contains(&format!("/tasks/{task}")), "{html}");
    let (status, html) = page(&server, "/tasks?params.to=x").await?;
    assert!(status == StatusCode::BAD_REQUEST && html.contains("There is no index for params.to"), "{html}");
    let (_, html) = page(&server, &format!("/tasks/{task}")).await?;
    assert!(html.contains(&"0123456789abcdef".repeat(4096)), "the last 64 KiB are missing");
    assert!(!html.contains(&output) && html.contains("Last 64 KiB of 78 KiB."), "{html}");
    assert!(html.contains("careful &#60;b&#62;"), "{html}");
    let (status, html) = page(&server, "/tasks/000000000000000000000000").await?;
    assert_eq!((status, html.contains("no task with id 0000")), (StatusCode::NOT_FOUND, true));

    let full = server.request(Method::GET, &format!("/tasks?id={task}&.full=1&.limit=1")).send().await?;
    let full: Value = serde_json::from_str(&full.text().await?)?;
    assert_eq!(full["stdout"], output);
    database.drop_database().await
}

#[tokio::test]
async fn forms_of_pages_lead_to_a_page() -> anyhow::Result<()> {
    let database = TestDatabase::create(disbatch_mongod::testing::server().await?).await?;
    let (queue, task) = (ObjectId::new(), ObjectId::new());
    let queues = database.database.collection("queues");
    queues.insert_one(doc! { "_id": queue, "name": "mail", "plugin": "My::Plugin", "threads": 1 }).await?;
    let document = doc! { "_id": task, "queue": queue, "status": -2, "node": null, "params": {} };
    database.database.collection("tasks").insert_one(document).await?;
    let config = json!({ "mongohost": database.uri, "database": database.name, "plugins": [] });
    let server = Server::start(&config).await?;
    let send = |path: String, form: &[(&str, &str)]| server.request(Method::POST, &path).form(form).send();

    let paused = [(".then", "/"), ("paused", "true"), ("reason", "a <move>")];
    let response = send(format!("/queues/{queue}"), &paused).await?;
    assert_eq!((response.status(), response.headers()["location"].to_str()?), (StatusCode::SEE_OTHER, "/"));
    let (_, html) = page(&server, "/").await?;
    assert!(html.contains(">paused<") && html.contains("a &#60;move&#62;"), "{html}");
    let (_, html) = page(&server, &format!("/tasks/{task}")).await?;
    assert!(html.contains("queue mail</a> is paused: a &#60;move&#62;."), "{html}");

    let then = format!("/tasks/{task}");
    let response = send(format!("{then}/cancel"), &[(".then", &then), ("reason", "")]).await?;
    assert_eq!(response.status(), StatusCode::SEE_OTHER);
    let (_, html) = page(&server, &then).await?;
    assert!(html.contains("cancelled by the REST API from 127.0.0.1") && html.contains("/retry"), "{html}");
    let response = send(format!("{then}/cancel"), &[(".then", &then)]).await?;
    assert_eq!(response.status(), StatusCode::CONFLICT);
    assert!(response.text().await?.contains("<!DOCTYPE html>"));
    let response = send(format!("{then}/retry"), &[(".then", "//evil.example")]).await?;
    assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    database.drop_database().await
}

#[tokio::test]
async fn a_closed_queue_takes_no_tasks_on_any_route() -> anyhow::Result<()> {
    let database = TestDatabase::create(disbatch_mongod::testing::server().await?).await?;
    let (queue, task) = (ObjectId::new(), ObjectId::new());
    let closed =
        doc! { "_id": queue, "name": "mail", "plugin": "My::Plugin", "accepting": false, "reason": "full" };
    database.database.collection("queues").insert_one(closed).await?;
    let document = doc! { "_id": task, "queue": queue, "status": -2, "node": null, "params": {} };
    database.database.collection("tasks").insert_one(document).await?;
    let config = json!({
        "mongohost": database.uri, "database": database.name, "plugins": [],
        "web_extensions": ["Disbatch::Web::Tasks", "Disbatch::Web::V3"],
    });
    let server = Server::start(&config).await?;
    let post = async |path: &str, body: Value| {
        let response = server.request(Method::POST, path).json(&body).send().await?;
        anyhow::Ok((response.status().as_u16(), serde_json::from_str::<Value>(&response.text().await?)?))
    };
    let message = "queue mail accepts no tasks: full";
    let error = (409, json!({ "error": message }));
    let id = queue.to_hex();
    let tasks = json!([{ "a": 1 }]);
    assert_eq!(post("/tasks", json!({ "queue": "mail", "params": tasks })).await?, error);
    assert_eq!(post("/tasks/mail", tasks.clone()).await?, error);
    let pattern = json!({ "filter": {}, "params": { "a": 1 } });
    assert_eq!(post(&format!("/tasks/{id}/queues"), pattern).await?, error);
    let in_array = (409, json!([0, message]));
    let old = json!({ "queueid": id, "object": tasks });
    assert_eq!(post("/queue-create-tasks-json", old).await?, in_array);
    let old =
        json!({ "queueid": id, "collection": "queues", "jsonfilter": { "a": 1 }, "params": { "a": 1 } });
    assert_eq!(post("/queue-create-tasks-from-query-json", old).await?, in_array);
    // The operations on a task come before the extension's collections.
    let (status, cancelled) = post(&format!("/tasks/{task}/cancel"), json!({})).await?;
    assert_eq!((status, &cancelled["outcome"]), (200, &json!("cancelled")));
    database.drop_database().await
}
