//! What requests and answers cost the web server, by the peak of its memory.

use anyhow::{Context, ensure};
use bson::{Document, doc};
use disbatch_core::model::TaskId;
use disbatch_tests::{Dci, PATIENCE, World, eventually};
use futures::future::try_join_all;
use reqwest::Method;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

const MIB: u64 = 1024 * 1024;

/// What one request may take.
const REQUEST: u64 = 64 * MIB;

/// What all answers may take together, and what those may that are being made.
const ANSWERS: u64 = 128 * MIB + 4 * REQUEST;

/// What the server may take besides: buffers of connections, and what is freed but not given back.
const BESIDES: u64 = 24 * MIB;

/// So many answers are not read: more than there is room for.
const UNREAD: usize = 30;

fn text(bytes: usize) -> String {
    "x".repeat(bytes)
}

fn address(dci: &Dci) -> &str {
    dci.url().trim_start_matches("http://")
}

/// Asks for something and reads none of the answer.
async fn ask(dci: &Dci, path: &str) -> anyhow::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_recv_buffer_size(4096)?;
    let mut stream = socket.connect(address(dci).parse()?).await?;
    stream.write_all(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes()).await?;
    Ok(stream)
}

/// The status of the answer, of which nothing else is read.
async fn status(stream: &mut TcpStream) -> anyhow::Result<u16> {
    let mut line = [0; 12];
    timeout(PATIENCE, stream.read_exact(&mut line)).await.context("no answer")??;
    Ok(std::str::from_utf8(&line[9..])?.parse()?)
}

/// The id of a new task with a text of 12 MB.
async fn long_task(dci: &Dci, queue: &str) -> anyhow::Result<TaskId> {
    let made = dci.posted("/tasks", &json!({ "queue": queue, "params": { "a": text(12_000_000) } })).await?;
    let id = made.pointer("/MongoDB::InsertManyResult/inserted/0/_id/$oid").and_then(Value::as_str);
    Ok(id.context("no id")?.parse()?)
}

#[tokio::test]
async fn a_large_request_takes_no_more_than_it_may() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.queue("P", doc! {}).await?.to_string();
    world.store().ensure_indexes().await?;
    let tasks = |params: Value| json!({ "queue": queue, "params": params });
    let with = |mut body: Value, option: &str, value: Value| {
        body[option] = value;
        body
    };
    let many = |count: usize, each: Value| Value::from(vec![each; count]);
    let long = |bytes: usize| json!({ "a": text(bytes) });
    let lines = json!({ "a": format!("{}\n", text(99)).repeat(125_000) });
    let steps = |bytes| with(tasks(json!({ "a": 1 })), ".steps", json!([{ "params": long(bytes) }]));
    let array = |bytes| with(tasks(long(bytes)), ".array", json!("1-3"));
    let schedule = |name: &str, bytes| json!({ "name": name, "queue": queue, "cron": "0 0 1 1 *", "params": long(bytes) });
    for (what, path, body, expected) in [
        ("one long text", "/tasks", tasks(long(13_500_000)), 200),
        ("one of many lines", "/tasks", tasks(lines), 200),
        (
            "one that may be repeated",
            "/tasks",
            with(tasks(long(13_500_000)), ".idempotency_key", json!("k")),
            200,
        ),
        ("one that is unique", "/tasks", with(tasks(long(13_500_000)), ".unique", json!("k")), 200),
        ("many tasks", "/tasks", tasks(many(1_000, long(15_000))), 200),
        ("very many tasks", "/tasks", tasks(many(35_000, json!({ "a": 1 }))), 200),
        ("too many tasks", "/tasks", tasks(many(50_000, json!({ "a": 1 }))), 413),
        ("many numbers", "/tasks", tasks(json!({ "a": many(250_000, json!(1)) })), 200),
        ("a batch", "/tasks/batch", json!({ "tasks": many(4, tasks(long(3_500_000))) }), 200),
        ("long steps", "/tasks", steps(7_000_000), 200),
        ("longer steps", "/tasks", steps(13_000_000), 413),
        ("a long array", "/tasks", array(6_000_000), 200),
        ("a longer array", "/tasks", array(12_000_000), 413),
        ("a long schedule", "/schedules", schedule("a", 5_000_000), 201),
        ("a longer schedule", "/schedules", schedule("b", 12_000_000), 413),
    ] {
        // Each has its own, as what one leaves behind would be there when the next begins.
        let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
        dci.posted("/tasks", &tasks(json!({ "a": 1 }))).await?;
        let body = body.to_string();
        ensure!(body.len() < 16 * 1024 * 1024, "{what}: {}", body.len());
        dci.forget_peak()?;
        let before = dci.peak()?;
        let request = dci.request(Method::POST, path).header("content-type", "application/json").body(body);
        let answer = request.send().await?;
        let (status, told) = (answer.status().as_u16(), answer.text().await?);
        assert_eq!(status, expected, "{what}: {}", &told[..told.len().min(300)]);
        assert!(status != 413 || told.contains("MiB of memory"), "{what}: {told}");
        let grown = dci.peak()? - before;
        assert!(grown < REQUEST + BESIDES / 2, "{what}: {} MiB", grown / MIB);
        let _address = dci.kill().await?;
    }
    world.end().await
}

#[tokio::test]
async fn answers_that_nobody_reads_have_a_bound() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.queue("P", doc! {}).await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let task = long_task(&dci, &queue.to_string()).await?;
    let written = *world.submit(queue, vec![doc! { "a": 1 }]).await?.first().context("no task")?;
    let output = doc! { "status": 1, "stdout": text(12_000_000) };
    let tasks = world.database().collection::<Document>("tasks");
    tasks.update_one(doc! { "_id": written }, doc! { "$set": output }).await?;
    world.store().ensure_indexes().await?;
    for path in
        [format!("/tasks/{task}"), format!("/tasks?queue={queue}"), format!("/tasks/{written}/stdout")]
    {
        dci.forget_peak()?;
        let before = dci.peak()?;
        let mut unread = try_join_all((0..UNREAD).map(|_| ask(&dci, &path))).await?;
        let statuses = try_join_all(unread.iter_mut().map(status)).await?;
        let refused = statuses.iter().filter(|status| **status == 503).count();
        assert!(refused > 0 && refused < UNREAD, "{path}: {statuses:?}");
        let grown = dci.peak()? - before;
        assert!(grown < ANSWERS + BESIDES, "{path}: {} MiB", grown / MIB);

        let other = dci.request(Method::GET, &path).send().await?;
        assert_eq!(other.status(), 503, "{path}");
        assert!(other.headers().contains_key("retry-after"), "{path}");
        assert!(other.text().await?.contains("answers that have not been read yet"), "{path}");
        assert_eq!(dci.request(Method::GET, "/info").send().await?.status(), 200, "short answers are given");
        drop(unread);
        eventually("room after these have gone", || async {
            let answer = dci.request(Method::GET, &path).send().await?;
            let whole = answer.status() == 200 && answer.bytes().await?.len() >= 12_000_000;
            Ok(whole.then_some(()))
        })
        .await?;
    }
    world.end().await
}
