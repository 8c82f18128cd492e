//! What the built `dci` says about tasks while they run. The tests play the runner's part.

#[path = "../replay/server.rs"]
mod server;

mod feed;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::clock::SystemClock;
use disbatch_core::live::LiveStream;
use disbatch_core::model::TaskId;
use disbatch_core::output::{Encoding, StreamName};
use disbatch_core::store::Store;
use disbatch_mongod::testing::{self, TestDatabase};
use futures::TryStreamExt;
use mongodb::Collection;
use reqwest::{Method, Response, StatusCode};
use serde_json::{Value, json};
use server::Server;
use tokio::time::{Instant, timeout};

/// How long to wait for something that should happen within moments, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

struct World {
    database: TestDatabase,
    server: Server,
}

impl World {
    async fn new() -> anyhow::Result<Self> {
        Self::on(testing::replica_set().await?).await
    }

    async fn on(uri: String) -> anyhow::Result<Self> {
        let database = TestDatabase::create(uri).await?;
        let config = json!({ "mongohost": database.uri, "database": database.name, "plugins": [] });
        Ok(Self { server: Server::start(&config).await?, database })
    }

    fn store(&self) -> Store {
        Store::with_clock(self.database.database.clone(), Arc::new(SystemClock))
    }

    fn tasks(&self) -> Collection<Document> {
        self.database.database.collection("tasks")
    }

    async fn task(&self, fields: Document) -> anyhow::Result<TaskId> {
        let id = ObjectId::new();
        let mut task = doc! {
            "_id": id, "queue": ObjectId::new(), "status": -2, "node": Bson::Null, "params": {},
            "stdout": Bson::Null, "stderr": Bson::Null, "mtime": DateTime::from_millis(1_795_163_067_344),
        };
        task.extend(fields);
        self.tasks().insert_one(task).await?;
        Ok(TaskId(id))
    }

    async fn running(&self) -> anyhow::Result<TaskId> {
        self.task(doc! { "status": 0, "node": "n1", "attempt": 1 }).await
    }

    async fn set(&self, task: TaskId, fields: Document) -> anyhow::Result<()> {
        self.tasks().update_one(doc! { "_id": task }, doc! { "$set": fields }).await?;
        Ok(())
    }

    /// What a runner writes.
    async fn print(&self, task: TaskId, attempt: i64, offset: u64, bytes: &[u8]) -> anyhow::Result<()> {
        let of = LiveStream { task, attempt, stream: StreamName::Stdout };
        Ok(self.store().append_live(of, offset, bytes).await?)
    }

    async fn get(&self, path: &str) -> anyhow::Result<Response> {
        Ok(self.server.request(Method::GET, path).send().await?)
    }

    async fn range(&self, path: &str, range: &str) -> anyhow::Result<(StatusCode, String, Vec<u8>)> {
        let response = self.server.request(Method::GET, path).header("Range", range).send().await?;
        let found = response.headers().get("content-range").map(|value| value.to_str().map(str::to_owned));
        let found = found.transpose()?.unwrap_or_default();
        Ok((response.status(), found, response.bytes().await?.to_vec()))
    }

    async fn json(&self, path: &str) -> anyhow::Result<Value> {
        Ok(serde_json::from_str(&self.get(path).await?.text().await?)?)
    }

    async fn end(self) -> anyhow::Result<()> {
        self.database.drop_database().await
    }
}

/// Reads an answer until it contains `wanted`, and returns what came.
async fn until(response: &mut Response, wanted: &str) -> anyhow::Result<String> {
    let mut text = String::new();
    while !text.contains(wanted) {
        let chunk = timeout(PATIENCE, response.chunk()).await.with_context(|| format!("only {text:?}"))??;
        let Some(chunk) = chunk else { bail!("{wanted:?} does not come after {text:?}") };
        text.push_str(std::str::from_utf8(&chunk)?);
    }
    Ok(text)
}

async fn rest(mut response: Response) -> anyhow::Result<String> {
    let mut bytes = Vec::new();
    while let Some(chunk) = timeout(PATIENCE, response.chunk()).await?? {
        bytes.extend(chunk);
    }
    Ok(String::from_utf8(bytes)?)
}

/// The events in a text: names and data.
fn events(text: &str) -> Vec<(String, Value)> {
    let field = |event: &str, name: &str| {
        event.lines().find_map(|line| line.strip_prefix(name).map(str::to_owned)).unwrap_or_default()
    };
    let events = text.split("\n\n").filter(|event| event.starts_with("event: "));
    events
        .map(|event| {
            (field(event, "event: "), serde_json::from_str(&field(event, "data: ")).unwrap_or_default())
        })
        .collect()
}

#[tokio::test]
async fn waiting_ends_with_the_task_on_every_kind_of_server() -> anyhow::Result<()> {
    for uri in [testing::replica_set().await?, testing::standalone().await?] {
        let world = World::on(uri).await?;
        let task = world.running().await?;
        let path = format!("/tasks/{task}/wait");
        let now = world.json(&format!("{path}?.timeout=0")).await?;
        assert_eq!((&now["status"], &now["word"]), (&json!(0), &json!("running")));
        assert_eq!((&now["ended"], &now["changed"]), (&json!(false), &json!(false)));
        assert_eq!(now["mtime"], "2026-11-20T08:24:27");
        let end = async {
            world.set(task, doc! { "progress": { "percent": 50 } }).await?;
            world.set(task, doc! { "status": 7 }).await
        };
        let (waited, ended) = tokio::join!(world.json(&path), end);
        ended?;
        let waited = waited?;
        assert_eq!((&waited["status"], &waited["word"]), (&json!(7), &json!("finished")));
        assert_eq!((&waited["ended"], &waited["changed"]), (&json!(true), &json!(true)));
        assert_eq!(waited["progress"], json!({ "percent": 50 }));
        assert_eq!(waited["id"], task.to_string());
        world.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn waiting_since_a_status_ends_when_there_is_another() -> anyhow::Result<()> {
    let world = World::new().await?;
    let task = world.task(doc! {}).await?;
    let path = format!("/tasks/{task}/wait?.since=-2");
    let (waited, set) = tokio::join!(world.json(&path), world.set(task, doc! { "status": -1 }));
    set?;
    assert_eq!(waited?["status"], -1);
    let still = world.json(&format!("/tasks/{task}/wait?.since=-1&.timeout=1")).await?;
    assert_eq!(still["changed"], false);
    let deleted = async { anyhow::Ok(world.tasks().delete_one(doc! { "_id": task }).await?) };
    let path = format!("/tasks/{task}/wait");
    let (gone, deleted) = tokio::join!(world.get(&path), deleted);
    deleted?;
    assert_eq!(gone?.status(), 404);
    for (path, status) in [(".timeout=601", 400), (".since=x", 400)] {
        assert_eq!(world.get(&format!("/tasks/{task}/wait?{path}")).await?.status(), status);
    }
    world.end().await
}

#[tokio::test]
async fn output_is_followed_from_before_the_start_to_the_stored_end() -> anyhow::Result<()> {
    for uri in [testing::replica_set().await?, testing::standalone().await?] {
        let world = World::on(uri).await?;
        let task = world.task(doc! {}).await?;
        let path = format!("/tasks/{task}/stdout?.follow=1");
        let mut follower = world.get(&path).await?;
        world.set(task, doc! { "status": 0, "node": "n1", "attempt": 1 }).await?;
        world.print(task, 1, 0, b"one\n").await?;
        until(&mut follower, "one\n").await?;
        // The chunk grows.
        world.print(task, 1, 0, "one\ntwo ☃".as_bytes()).await?;
        until(&mut follower, "two ☃").await?;
        world.print(task, 1, 1000, b"late\n").await?;
        until(&mut follower, "\n[989 bytes not kept]\nlate\n").await?;
        let whole = format!("one\ntwo ☃{}late\nlast words", "x".repeat(989));
        world.set(task, doc! { "status": 1, "stdout": &whole }).await?;
        assert_eq!(rest(follower).await?, "last words");
        assert_eq!(world.get(&path).await?.text().await?, whole, "it has ended");
        world.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn whoever_counts_bytes_is_told_where_they_begin_and_gets_nothing_in_place_of_others()
-> anyhow::Result<()> {
    let world = World::new().await?;
    let task = world.running().await?;
    world.print(task, 1, 10, b"0123456789").await?;
    world.print(task, 1, 30, b"abc").await?;
    let follow = async |from: i64| world.get(&format!("/tasks/{task}/stdout?.follow=1&.from={from}")).await;
    for (from, begin, text) in [(0, "10", "0123456789"), (12, "12", "23456789"), (20, "30", "abc")] {
        let mut answer = follow(from).await?;
        assert_eq!(answer.headers()["disbatch-from"], begin);
        assert_eq!(until(&mut answer, text).await?, text);
        if begin != "30" {
            assert!(rest(answer).await.is_err(), "there is a gap");
        }
    }
    let mut last = follow(33).await?;
    assert_eq!(last.headers()["disbatch-from"], "33");
    world.print(task, 1, 30, b"abcdef").await?;
    assert_eq!(until(&mut last, "def").await?, "def");
    assert_eq!(follow(-1).await?.status(), StatusCode::BAD_REQUEST);
    world.set(task, doc! { "status": 1, "stdout": "x".repeat(40) }).await?;
    assert_eq!(follow(0).await?.text().await?, "x".repeat(40));
    let empty = world.get(&format!("/tasks/{task}/stderr?.follow=1&.from=0")).await?;
    assert_eq!((empty.status(), empty.text().await?), (StatusCode::OK, String::new()));
    let ended = follow(33).await?;
    assert_eq!(
        (ended.status(), &ended.headers()["content-range"]),
        (StatusCode::PARTIAL_CONTENT, &"bytes 33-39/40".parse()?)
    );
    assert_eq!(ended.text().await?, "xxxxxxx");
    world.end().await
}

#[tokio::test]
async fn output_of_a_runner_that_shows_nothing_comes_at_the_end() -> anyhow::Result<()> {
    let world = World::new().await?;
    let task = world.task(doc! { "status": 0, "node": "perl" }).await?;
    let follower = world.get(&format!("/tasks/{task}/stderr?.follow=1")).await?;
    world.set(task, doc! { "status": 2, "stderr": "oops\n" }).await?;
    assert_eq!(rest(follower).await?, "oops\n");
    world.end().await
}

#[tokio::test]
async fn running_output_has_ranges_without_a_total() -> anyhow::Result<()> {
    let world = World::new().await?;
    let task = world.running().await?;
    let path = format!("/tasks/{task}/stdout");
    assert_eq!(world.get(&path).await?.text().await?, "");
    assert_eq!(world.range(&path, "bytes=0-").await?.0, 416);
    world.print(task, 1, 10, b"0123456789").await?;
    world.print(task, 1, 30, b"abc").await?;
    let all = world.get(&path).await?;
    assert_eq!(all.headers()["content-type"], "text/plain; charset=utf-8");
    assert_eq!(all.headers()["x-content-type-options"], "nosniff");
    assert_eq!(all.text().await?, "[10 bytes not kept]\n0123456789\n[10 bytes not kept]\nabc");
    let part = |range: &str, bytes: &[u8]| (StatusCode::PARTIAL_CONTENT, range.to_owned(), bytes.to_vec());
    assert_eq!(world.range(&path, "bytes=0-").await?, part("bytes 10-19/*", b"0123456789"));
    assert_eq!(world.range(&path, "bytes=12-14").await?, part("bytes 12-14/*", b"234"));
    assert_eq!(world.range(&path, "bytes=-2").await?, part("bytes 31-32/*", b"bc"));
    let (status, range, _) = world.range(&path, "bytes=33-").await?;
    assert_eq!((status, range.as_str()), (StatusCode::RANGE_NOT_SATISFIABLE, "bytes */33"));
    world.end().await
}

#[tokio::test]
async fn stored_output_has_ranges_wherever_it_is() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    // Characters of three bytes, so that chunks of text are no chunks of as many bytes.
    let wide = "☃".repeat(600_000);
    let noise: Vec<u8> = (0..=255).cycle().take(700_000).collect();
    let (text, binary) = (ObjectId::new(), ObjectId::new());
    let task = world.task(doc! { "status": 1, "stdout": text, "stderr": binary }).await?;
    store.put_output(text, (task, StreamName::Stdout), Encoding::Text, wide.as_bytes()).await?;
    store.put_output(binary, (task, StreamName::Stderr), Encoding::Binary, &noise[..]).await?;
    let small = world.task(doc! { "status": 1, "stdout": "0123456789" }).await?;
    let cases: [(String, &[u8], &str); 3] = [
        (format!("/tasks/{task}/stdout"), wide.as_bytes(), "text/plain; charset=utf-8"),
        (format!("/tasks/{task}/stderr"), &noise, "application/octet-stream"),
        (format!("/tasks/{small}/stdout"), b"0123456789", "text/plain; charset=utf-8"),
    ];
    for (path, bytes, kind) in cases {
        let all = world.get(&path).await?;
        assert_eq!(all.headers()["content-type"], kind);
        assert!(all.bytes().await? == bytes, "{path}");
        let length = bytes.len();
        for (range, first, end) in [
            ("bytes=3-8".to_owned(), 3, 9),
            (format!("bytes={}-", length - 1), length - 1, length),
            (format!("bytes={}-{}", length / 2, length * 2), length / 2, length),
            ("bytes=-5".to_owned(), length - 5, length),
            ("bytes=0-".to_owned(), 0, length),
        ] {
            let (status, found, sent) = world.range(&path, &range).await?;
            assert_eq!(status, 206, "{path} {range}");
            assert_eq!(found, format!("bytes {first}-{}/{length}", end - 1), "{path}");
            assert!(sent == bytes[first..end], "{path} {range}");
        }
        let (status, found, _) = world.range(&path, &format!("bytes={length}-")).await?;
        assert_eq!((status, found), (StatusCode::RANGE_NOT_SATISFIABLE, format!("bytes */{length}")));
        let (status, _, sent) = world.range(&path, "bytes=0-1,3-4").await?;
        assert!(status == 200 && sent == bytes, "several ranges are not served");
    }
    world.end().await
}

#[tokio::test]
async fn earlier_attempts_and_archived_tasks_keep_their_output() -> anyhow::Result<()> {
    let world = World::new().await?;
    let task = world.task(doc! { "status": 1, "attempt": 3, "stdout": "third" }).await?;
    let attempts = world.database.database.collection::<Document>("tasks.attempts");
    for (attempt, output) in [(1, "first"), (2, "second")] {
        attempts.insert_one(doc! { "task": task, "attempt": attempt, "stdout": output, "status": 2 }).await?;
    }
    let get = async |query: &str| {
        world.get(&format!("/tasks/{task}/stdout{query}")).await?.text().await.map_err(anyhow::Error::from)
    };
    for (query, expected) in [
        ("", "third"),
        ("?.attempt=3", "third"),
        ("?.attempt=1", "first"),
        ("?.attempt=2&.follow=1", "second"),
    ] {
        assert_eq!(get(query).await?, expected, "{query}");
    }
    assert_eq!(get("?.attempt=4").await?, format!("{{\"error\":\"task {task} has no attempt 4\"}}"));
    let document = world.tasks().find_one_and_delete(doc! { "_id": task }).await?.context("no task")?;
    world.database.database.collection("tasks.archive").insert_one(document).await?;
    assert_eq!(get("").await?, "third");
    assert_eq!(get("?.attempt=2").await?, "second");
    assert_eq!(world.json(&format!("/tasks/{task}/wait")).await?["ended"], true);
    let told = events(&world.get(&format!("/tasks/{task}/events")).await?.text().await?);
    let names: Vec<&str> = told.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["status", "output", "end"]);
    let none = ObjectId::new();
    for path in ["stdout", "stderr", "events", "wait"] {
        let response = world.get(&format!("/tasks/{none}/{path}")).await?;
        assert_eq!(response.status(), 404);
        assert_eq!(response.text().await?, format!("{{\"error\":\"no task with id {none}\"}}"));
    }
    world.end().await
}

#[tokio::test]
async fn events_tell_a_task_through_a_retry() -> anyhow::Result<()> {
    let world = World::new().await?;
    let task = world.task(doc! {}).await?;
    let mut told = world.get(&format!("/tasks/{task}/events")).await?;
    assert_eq!(told.headers()["content-type"], "text/event-stream");
    let mut text = until(&mut told, "\"word\":\"queued\"").await?;
    world.set(task, doc! { "status": 0, "node": "n1", "attempt": 1, "progress": { "percent": 10 } }).await?;
    world.print(task, 1, 0, b"half a snowman \xe2\x98").await?;
    text += &until(&mut told, "half a snowman ").await?;
    world.print(task, 1, 0, b"half a snowman \xe2\x98\x83\n").await?;
    text += &until(&mut told, "☃\\n").await?;
    let attempts = world.database.database.collection::<Document>("tasks.attempts");
    let kept = doc! { "task": task, "attempt": 1, "stdout": "half a snowman ☃\nfailed\n", "stderr": "why" };
    attempts.insert_one(kept).await?;
    world.set(task, doc! { "status": -7, "node": Bson::Null }).await?;
    text += &until(&mut told, "why").await?;
    world.set(task, doc! { "status": 0, "node": "n2", "attempt": 2 }).await?;
    world.print(task, 2, 0, b"again\n").await?;
    text += &until(&mut told, "again").await?;
    world.set(task, doc! { "status": 1, "stdout": "again\ndone\n" }).await?;
    let ended = Instant::now();
    text += &rest(told).await?;
    assert!(ended.elapsed() < Duration::from_secs(9), "told at once, not when it is looked anyway");
    let told = events(&text);
    let statuses: Vec<&Value> =
        told.iter().filter(|(name, _)| name == "status").map(|(_, data)| &data["status"]).collect();
    assert_eq!(statuses, [-2, 0, -7, 0, 1], "{text}");
    let output = |attempt: i64, stream: &str| -> String {
        let of = told.iter().filter(|(name, data)| {
            name == "output" && data["attempt"] == attempt && data["stream"] == stream
        });
        of.filter_map(|(_, data)| data["text"].as_str()).collect()
    };
    assert_eq!(output(1, "stdout"), "half a snowman ☃\nfailed\n");
    assert_eq!(output(1, "stderr"), "why");
    assert_eq!(output(2, "stdout"), "again\ndone\n");
    assert!(told.iter().any(|(name, data)| name == "progress" && data["percent"] == 10));
    let (name, data) = told.last().context("no events")?;
    assert_eq!((name.as_str(), &data["status"], &data["word"]), ("end", &json!(1), &json!("succeeded")));
    world.end().await
}

#[tokio::test]
async fn a_client_that_comes_back_gets_what_it_missed() -> anyhow::Result<()> {
    let world = World::new().await?;
    let task = world.running().await?;
    world.print(task, 1, 0, b"one\ntwo\n").await?;
    let back = |id: &str| {
        let request = world.server.request(Method::GET, &format!("/tasks/{task}/events"));
        request.header("Last-Event-ID", id.to_owned()).send()
    };
    let mut told = back("stdout:4,stderr:0").await?;
    let text = until(&mut told, "two").await?;
    assert!(!text.contains("one") && text.contains("id: attempt:1,stdout:8,stderr:0"), "{text}");
    drop(told);
    world.set(task, doc! { "status": 1, "stdout": "one\ntwo\nthree\n" }).await?;
    let text = back("attempt:1,stdout:8,stderr:0").await?.text().await?;
    assert!(!text.contains("two") && text.contains("three"), "{text}");
    // The attempt in which the client went away is over, and another has run.
    let attempts = world.database.database.collection::<Document>("tasks.attempts");
    attempts.insert_one(doc! { "task": task, "attempt": 1, "stdout": "one\ntwo\nthree\n" }).await?;
    world.set(task, doc! { "attempt": 2, "stdout": "four\n" }).await?;
    let text = back("attempt:1,stdout:8,stderr:0").await?.text().await?;
    assert!(!text.contains("two") && text.contains("three") && text.contains("four"), "{text}");
    world.end().await
}

#[tokio::test]
async fn a_task_that_is_deleted_ends_its_events() -> anyhow::Result<()> {
    let world = World::new().await?;
    let task = world.running().await?;
    let mut told = world.get(&format!("/tasks/{task}/events")).await?;
    let follower = world.get(&format!("/tasks/{task}/stdout?.follow=1")).await?;
    until(&mut told, "running").await?;
    world.tasks().delete_one(doc! { "_id": task }).await?;
    let last = rest(told).await?;
    assert!(last.contains("event: end") && last.contains("deleted"), "{last}");
    assert_eq!(rest(follower).await?, "");
    world.end().await
}

#[tokio::test]
async fn a_list_tells_archived_tasks_from_deleted_ones() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut tasks = Vec::new();
    for _ in 0..3 {
        tasks.push(world.task(doc! { "status": 1 }).await?);
    }
    let [archived, stays, deleted] = tasks[..] else { bail!("three tasks") };
    world.store().archive_tasks(&[archived]).await?;
    world.tasks().delete_one(doc! { "_id": deleted }).await?;
    let mut told = world.get(&format!("/ui/tasks?.ids={archived},{stays},{deleted}")).await?;
    let text = until(&mut told, "class=\"hint\">deleted</td>").await?;
    assert_eq!(text.matches("class=\"hint\">archived</td>").count(), 1, "{text}");
    for (task, is_linked) in [(archived, true), (stays, true), (deleted, false)] {
        assert_eq!(text.contains(&format!("href=\"/tasks/{task}\"")), is_linked, "{task}: {text}");
    }
    world.end().await
}

/// How many change streams are open on the database.
async fn change_streams(world: &World) -> anyhow::Result<usize> {
    let client = world.database.database.client();
    let open = doc! { "$currentOp": { "idleCursors": true, "allUsers": true } };
    let ours = doc! { "$match": { "ns": { "$regex": format!("^{}\\.", world.database.name) } } };
    let stage = "cursor.originatingCommand.pipeline.0.$changeStream";
    let streams = doc! { "$match": { stage: { "$exists": true } } };
    let found: Vec<Document> =
        client.database("admin").aggregate([open, ours, streams]).await?.try_collect().await?;
    Ok(found.len())
}

async fn until_streams(world: &World, count: usize) -> anyhow::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    while change_streams(world).await? != count {
        ensure!(Instant::now() < deadline, "there never are {count} change streams");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

#[tokio::test]
async fn one_change_stream_is_open_while_somebody_waits_and_none_else() -> anyhow::Result<()> {
    let world = World::new().await?;
    assert_eq!(change_streams(&world).await?, 0);
    let (one, other) = (world.running().await?, world.running().await?);
    let followers = [
        world.get(&format!("/tasks/{one}/events")).await?,
        world.get(&format!("/tasks/{one}/stdout?.follow=1")).await?,
        world.get(&format!("/tasks/{other}/stderr?.follow=1")).await?,
    ];
    until_streams(&world, 1).await?;
    // They go away without a word.
    drop(followers);
    until_streams(&world, 0).await?;
    let mut told = world.get(&format!("/tasks/{one}/events")).await?;
    until_streams(&world, 1).await?;
    world.set(one, doc! { "status": 1 }).await?;
    until(&mut told, "event: end").await?;
    world.end().await
}
