//! Tasks that web services work on: given to them, called back for, and ended, whoever dies meanwhile.

mod crossed;
mod deaths;
mod example;
mod over;
mod service;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::model::{QueueId, TaskId, whole_number};
use disbatch_core::task::TaskOptions;
use disbatch_tests::{Dci, World, always, eventually};
use serde_json::{Value, json};

use service::{Manner, Order, Service, install};

/// A world with a web server that is called back, and a service.
struct Scene {
    world: World,
    dci: Dci,
    service: Service,
    queue: QueueId,
}

impl Scene {
    async fn new(threads: i32) -> anyhow::Result<Self> {
        Self::with(threads, Manner::Takes, &json!({})).await
    }

    /// With a service that answers so, and a plugin whose manifest has these further keys of `http`.
    async fn with(threads: i32, manner: Manner, http: &Value) -> anyhow::Result<Self> {
        let world = World::new().await?;
        world.store().ensure_indexes().await?;
        let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
        let service = Service::start(manner).await?;
        configure(&world, &dci)?;
        let mut settings = json!({ "url": service.url() });
        for (key, value) in http.as_object().context("no object")? {
            settings[key] = value.clone();
        }
        install(&world.plugins(), "Web", &settings)?;
        let queue = world.queue("Web", doc! { "threads": threads }).await?;
        Ok(Self { world, dci, service, queue })
    }

    async fn submit(&self, tasks: usize) -> anyhow::Result<Vec<TaskId>> {
        self.world.submit(self.queue, vec![doc! { "rows": 3 }; tasks]).await
    }

    /// Submits one task, and waits until the service has it and no runner.
    async fn given(&mut self) -> anyhow::Result<(TaskId, Order)> {
        let task = self.submit(1).await?[0];
        let order = self.service.next().await?;
        assert_eq!(order.task()?, task);
        until_detached(&self.world, task).await?;
        Ok((task, order))
    }

    async fn stdout(&self, task: TaskId) -> anyhow::Result<Vec<u8>> {
        let request = self.dci.request(reqwest::Method::GET, &format!("/tasks/{task}/stdout"));
        Ok(request.send().await?.bytes().await?.to_vec())
    }
}

/// The keys of a node that may ask web services.
fn configure(world: &World, dci: &Dci) -> anyhow::Result<()> {
    world.configure(json!({ "lease": 2, "engines": { "http": { "callback_url": dci.url() } } }))
}

fn external(task: &Document) -> Document {
    task.get_document("external").cloned().unwrap_or_default()
}

async fn until_detached(world: &World, task: TaskId) -> anyhow::Result<Document> {
    eventually("the task to be handed over", || async {
        let task = world.task(task).await?;
        Ok(external(&task).get_bool("detached").unwrap_or(false).then_some(task))
    })
    .await
}

/// Has it look as if nothing had been heard of a task for as long as that may be. The time that there is must be long: this
/// machine may be busy.
async fn fall_silent(world: &World, task: TaskId) -> anyhow::Result<()> {
    world.set(task, doc! { "lease_until": DateTime::from_millis(1_000) }).await
}

/// The processes that are told of a task in their environment, as the system shows them.
fn shown_of(task: TaskId) -> Vec<PathBuf> {
    let variable = format!("DISBATCH_TASK_ID={task}");
    let is_its = |entry: &PathBuf| {
        let environment = std::fs::read(entry.join("environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|entry| entry == variable.as_bytes())
    };
    let all = std::fs::read_dir("/proc").into_iter().flatten().filter_map(Result::ok);
    all.map(|entry| entry.path()).filter(is_its).collect()
}

fn processes_of(task: TaskId) -> usize {
    shown_of(task).len()
}

fn note(task: &Document) -> String {
    let last = task.get_array("history").ok().and_then(|history| history.last()).and_then(Bson::as_document);
    last.and_then(|entry| entry.get_str("note").ok()).unwrap_or_default().to_owned()
}

/// They are removed only after the end of their task is stored.
async fn until_no_pieces(world: &World) -> anyhow::Result<()> {
    eventually("the end of the log", || async { Ok((pieces(world).await? == 0).then_some(())) }).await
}

async fn pieces(world: &World) -> anyhow::Result<u64> {
    Ok(world.database().collection::<Document>("callbacks.log").count_documents(doc! {}).await?)
}

#[tokio::test]
async fn a_task_is_given_to_its_service_and_ends_by_what_that_says() -> anyhow::Result<()> {
    let mut scene = Scene::new(1).await?;
    let _den = scene.world.den("n1")?;
    let (task, order) = scene.given().await?;
    assert!(order.head.starts_with("post /start http/1.1\r\n"), "{}", order.head);
    assert_eq!(order.body["job"], json!({ "rows": 3 }));
    let base = format!("{}/callbacks/{task}", scene.dci.url());
    assert_eq!(order.body["callbacks"]["log"], json!(format!("{base}/log")));
    let running = scene.world.task(task).await?;
    assert!(!running.contains_key("pid") && running.contains_key("slot"), "{running}");
    let token = external(&running).get_str("token")?.to_owned();
    assert!(!running.to_string().contains(order.token()) && token.len() == 64);
    eventually("no process of the task", || async { Ok((processes_of(task) == 0).then_some(())) }).await?;

    order.log(&scene.dci, "one\n").await?;
    order.log(&scene.dci, "two\n").await?;
    assert_eq!(scene.stdout(task).await?, b"one\ntwo\n", "it is shown meanwhile");
    let explained = scene.dci.get(&format!("/tasks/{task}/explain")).await?;
    let summary = explained["summary"].as_str().unwrap_or_default();
    assert!(summary.starts_with("It waits for its web service since"), "{summary}");
    assert!(explained["gates"].to_string().contains("It was last heard of at"), "{explained}");

    let end = json!({ "status": "FINISHED", "message": "3 rows", "result": { "rows": 3 } });
    assert_eq!(order.call(&scene.dci, "status", end.to_string()).await?, 200);
    let ended = scene.world.task(task).await?;
    assert_eq!((ended.get_i32("status")?, ended.get_str("stdout")?), (1, "one\ntwo\n"));
    assert_eq!((ended.get("stderr"), ended.get_bool("complete")?), (Some(&Bson::Null), true));
    assert_eq!((ended.get_document("result")?, note(&ended)), (&doc! { "rows": 3 }, "3 rows".to_owned()));
    assert!(!ended.contains_key("slot") && !ended.contains_key("lease_until"), "{ended}");
    until_no_pieces(&scene.world).await?;
    // Its answer may have been lost.
    assert_eq!(order.call(&scene.dci, "status", end.to_string()).await?, 200);
    let other = json!({ "status": "FAILED" });
    assert_eq!(order.call(&scene.dci, "status", other.to_string()).await?, 410);
    assert_eq!(order.call(&scene.dci, "log", "late").await?, 410);
    assert_eq!(scene.world.task(task).await?, ended);
    scene.world.end().await
}

#[tokio::test]
async fn who_waits_for_services_occupies_no_node_and_no_more_than_its_queue_may() -> anyhow::Result<()> {
    let mut scene = Scene::new(3).await?;
    let nodes = scene.world.database().collection::<Document>("nodes");
    nodes.insert_one(doc! { "node": "n1", "maxthreads": 1 }).await?;
    let ids = scene.submit(4).await?;
    let _den = scene.world.den("n1")?;
    let mut orders = Vec::new();
    for _ in 0..3 {
        orders.push(scene.service.next().await?);
    }
    for order in &orders {
        until_detached(&scene.world, order.task()?).await?;
    }
    always("the queue keeps to its limit", Duration::from_secs(2), || async {
        Ok(scene.world.count(scene.queue, doc! { "status": { "$in": [-1, 0] } }).await? == 3)
    })
    .await?;
    assert!(!scene.service.has_more());
    // The node has its place for others.
    let other = scene.world.queue("Disbatch::Plugin::Demo", doc! { "threads": 1 }).await?;
    let demo = scene.world.submit(other, vec![doc! { "commands": "a", "noreport": 1 }]).await?[0];
    scene.world.until_status(demo, 1).await?;
    orders[0].finish(&scene.dci).await?;
    let last = scene.service.next().await?;
    until_detached(&scene.world, last.task()?).await?;
    orders.push(last);
    for order in &orders[1..] {
        order.finish(&scene.dci).await?;
    }
    for id in ids {
        scene.world.until_status(id, 1).await?;
    }
    scene.world.end().await
}

#[tokio::test]
async fn a_group_has_used_the_places_that_services_work_in() -> anyhow::Result<()> {
    let mut scene = Scene::new(1).await?;
    scene.world.update_queue(scene.queue, doc! { "policy": "fair", "share": "use" }).await?;
    let _den = scene.world.den("n1")?;
    let (task, order) = scene.given().await?;
    let long = Duration::from_millis(1_500);
    always("it works", long, || async { Ok(scene.world.status(task).await? == 0) }).await?;
    order.finish(&scene.dci).await?;
    let groups = scene.world.database().collection::<Document>("queue_groups");
    let group = eventually("the use to be noted", || async {
        let used = doc! { "_id.queue": scene.queue, "ran": { "$gte": long.as_secs_f64() } };
        Ok(groups.find_one(used).await?)
    })
    .await?;
    let count = |field: &str| group.get(field).and_then(whole_number);
    assert_eq!((count("started"), count("finished")), (Some(1), Some(1)), "{group}");
    scene.world.end().await
}

#[tokio::test]
async fn what_several_servers_are_told_comes_together_in_its_order() -> anyhow::Result<()> {
    let mut scene = Scene::new(1).await?;
    let second = Dci::start(&scene.world.config(), &scene.world.path().join("dci2.log")).await?;
    let _den = scene.world.den("n1")?;
    let (task, order) = scene.given().await?;
    let servers = [&scene.dci, &second];
    for number in 0..20 {
        order.log(servers[number % 2], format!("line {number}\n")).await?;
    }
    // Those that come at the same time come each as a whole.
    let at_once = (0..40).map(|number| order.log(servers[number % 2], format!("together {number}\n")));
    futures::future::try_join_all(at_once).await?;
    let ends = json!({ "status": "FINISHED" }).to_string();
    let both = futures::join!(
        order.call(servers[0], "status", ends.clone()),
        order.call(servers[1], "status", ends.clone()),
    );
    assert_eq!((both.0?, both.1?), (200, 200));
    let ended = scene.world.until_status(task, 1).await?;
    let lines: Vec<&str> = ended.get_str("stdout")?.lines().collect();
    let first: Vec<String> = (0..20).map(|number| format!("line {number}")).collect();
    assert_eq!(lines[..20], first);
    let mut rest: Vec<String> = lines[20..].iter().map(ToString::to_string).collect();
    let mut expected: Vec<String> = (0..40).map(|number| format!("together {number}")).collect();
    rest.sort_unstable();
    expected.sort_unstable();
    assert_eq!(rest, expected);
    scene.world.end().await
}

#[tokio::test]
async fn a_long_log_is_kept_to_the_byte_and_no_call_is_too_long() -> anyhow::Result<()> {
    let mut scene = Scene::new(2).await?;
    let _den = scene.world.den("n1")?;
    let (text, of_text) = scene.given().await?;
    let (binary, of_binary) = scene.given().await?;
    let piece = "é☃x\n".repeat(140_000);
    for _ in 0..3 {
        of_text.log(&scene.dci, piece.clone()).await?;
    }
    // A character in two pieces.
    of_text.log(&scene.dci, b"\xe2\x98".to_vec()).await?;
    of_text.log(&scene.dci, b"\x83".to_vec()).await?;
    let bytes: Vec<u8> = (0..=255).collect();
    of_binary.log(&scene.dci, bytes.clone()).await?;
    assert_eq!(of_binary.call(&scene.dci, "log", vec![b'x'; 1024 * 1024 + 1]).await?, 413);
    for order in [&of_text, &of_binary] {
        order.finish(&scene.dci).await?;
    }
    let ended = scene.world.task(text).await?;
    assert!(ended.get_object_id("stdout").is_ok(), "it is in a file");
    assert_eq!(scene.stdout(text).await?, format!("{}☃", piece.repeat(3)).into_bytes());
    assert!(scene.world.task(binary).await?.get_object_id("stdout").is_ok());
    assert_eq!(scene.stdout(binary).await?, bytes);
    scene.world.end().await
}

#[tokio::test]
async fn a_service_may_fail_give_up_or_say_a_number() -> anyhow::Result<()> {
    let mut scene = Scene::new(5).await?;
    let _den = scene.world.den("n1")?;
    let cases = [
        (json!({ "status": "FAILED", "message": "no disk" }), 2, "no disk\n", "no disk"),
        (json!({ "status": "ABORTED" }), -3, "", "its web service has aborted it"),
        (json!({ "status": 17, "message": "odd" }), 17, "odd\n", "odd"),
    ];
    for (said, status, stderr, why) in cases {
        let (task, order) = scene.given().await?;
        for wrong in ["", "[]", r#"{"status":"DONE"}"#, r#"{"status":0}"#] {
            assert_eq!(order.call(&scene.dci, "status", wrong).await?, 400, "{wrong}");
        }
        assert_eq!(order.call(&scene.dci, "status", said.to_string()).await?, 200, "{said}");
        let ended = scene.world.task(task).await?;
        assert_eq!(ended.get_i32("status")?, status);
        assert_eq!(ended.get_str("stderr").unwrap_or_default(), stderr);
        assert_eq!(note(&ended), why);
    }
    scene.world.end().await
}

#[tokio::test]
async fn a_failure_is_tried_again_with_another_token() -> anyhow::Result<()> {
    let mut scene = Scene::new(1).await?;
    let quick = doc! { "base": 0.05, "factor": 1, "jitter": 0 };
    scene.world.update_queue(scene.queue, doc! { "max_attempts": 2, "backoff": quick }).await?;
    let _den = scene.world.den("n1")?;
    let (task, first) = scene.given().await?;
    first.log(&scene.dci, "half\n").await?;
    let failed = json!({ "status": "FAILED", "message": "no disk" }).to_string();
    assert_eq!(first.call(&scene.dci, "status", failed).await?, 200);
    let second = scene.service.next().await?;
    assert_eq!((second.task()?, second.body["attempt"].as_i64()), (task, Some(2)));
    assert_ne!(first.token(), second.token());
    until_detached(&scene.world, task).await?;
    assert_eq!(first.call(&scene.dci, "log", "late").await?, 410, "it is another attempt's task by now");
    second.log(&scene.dci, "whole\n").await?;
    second.finish(&scene.dci).await?;
    let ended = scene.world.until_status(task, 1).await?;
    assert_eq!(ended.get_str("stdout")?, "whole\n");
    let attempts = scene.world.store().list_attempts(task).await?;
    assert_eq!(attempts.len(), 1);
    assert_eq!((attempts[0].get_str("stdout")?, attempts[0].get_str("stderr")?), ("half\n", "no disk\n"));
    scene.world.end().await
}

#[tokio::test]
async fn what_is_stored_is_for_the_next_run_of_the_schedule() -> anyhow::Result<()> {
    let mut scene = Scene::new(1).await?;
    let schedule = ObjectId::new();
    let document = doc! {
        "_id": schedule, "name": "nightly", "queue": scene.queue, "params": {}, "cron": "0 0 1 1 *", "zone": "UTC",
        "paused": true, "rev": 1_i64,
    };
    scene.world.database().collection::<Document>("schedules").insert_one(document).await?;
    let _den = scene.world.den("n1")?;
    let mut stored = Value::Null;
    for hour in 0..2 {
        let (id, now) = (ObjectId::new(), scene.world.store().now());
        let at = DateTime::from_millis(1_795_163_067_000 + hour * 3_600_000);
        let task = doc! {
            "_id": id, "queue": scene.queue, "status": -2, "node": Bson::Null, "params": {}, "stdout": Bson::Null,
            "stderr": Bson::Null, "ctime": now, "mtime": now, "schedule": schedule, "unsettled": true,
            "scheduled_for": at,
        };
        scene.world.tasks().insert_one(task).await?;
        let order = scene.service.next().await?;
        assert_eq!((&order.body["jobId"], &order.body["storage"]), (&json!(schedule.to_hex()), &stored));
        assert_eq!(order.body["lastSuccessStart"].is_null(), hour == 0);
        until_detached(&scene.world, TaskId(id)).await?;
        assert_eq!(order.call(&scene.dci, "job_storage", "nope").await?, 400);
        for what in [json!("first"), json!({ "last": hour, "of": [1, null] })] {
            assert_eq!(order.call(&scene.dci, "job_storage", what.to_string()).await?, 200);
            stored = what;
        }
        order.finish(&scene.dci).await?;
        let settled = doc! { "_id": id, "unsettled": { "$exists": false } };
        eventually("the schedule to be told", || async {
            Ok(scene.world.tasks().find_one(settled.clone()).await?)
        })
        .await?;
    }
    scene.world.end().await
}

#[tokio::test]
async fn a_service_that_falls_silent_is_not_waited_for() -> anyhow::Result<()> {
    let mut scene = Scene::with(2, Manner::Takes, &json!({ "timeout": 300 })).await?;
    let quick = doc! { "base": 0.05, "factor": 1, "jitter": 0 };
    scene.world.update_queue(scene.queue, doc! { "max_attempts": 2, "backoff": quick }).await?;
    let _den = scene.world.den("n1")?;
    let (task, order) = scene.given().await?;
    let until = async || anyhow::Ok(*scene.world.task(task).await?.get_datetime("lease_until")?);
    let before = until().await?;
    order.log(&scene.dci, "at work\n").await?;
    let after = until().await?;
    assert!(after > before, "what is heard starts the time anew: {before} {after}");
    fall_silent(&scene.world, task).await?;
    let again = scene.service.next().await?;
    assert_eq!(again.body["attempt"], json!(2), "it is tried again as after a timeout");
    assert_eq!(order.call(&scene.dci, "log", "late").await?, 410);
    let attempts = scene.world.store().list_attempts(task).await?;
    assert_eq!((attempts[0].get_i32("status")?, attempts[0].get_str("stdout")?), (-3, "at work\n"));
    assert_eq!(attempts[0].get_str("note")?, "nothing was heard from its web service for 300 s");
    until_detached(&scene.world, task).await?;
    fall_silent(&scene.world, task).await?;
    let ended = scene.world.until_status(task, -3).await?;
    assert_eq!(note(&ended), "nothing was heard from its web service for 300 s");
    assert_eq!(again.call(&scene.dci, "status", json!({ "status": 1 }).to_string()).await?, 410);
    scene.world.end().await
}

#[tokio::test]
async fn a_timeout_of_the_task_counts_silence_and_its_deadline_does_not_move() -> anyhow::Result<()> {
    let mut scene = Scene::new(2).await?;
    scene.world.update_queue(scene.queue, doc! { "timeout": 300 }).await?;
    let _den = scene.world.den("n1")?;
    let (task, order) = scene.given().await?;
    let until = async |task| anyhow::Ok(*scene.world.task(task).await?.get_datetime("lease_until")?);
    let before = until(task).await?;
    order.log(&scene.dci, "x").await?;
    assert!(until(task).await? > before, "what is heard starts the time anew");
    let running = external(&scene.world.task(task).await?);
    assert_eq!(running.get_f64("timeout")?, 300.0, "in place of that of the plugin");
    assert!(!running.contains_key("until"), "{running}");
    fall_silent(&scene.world, task).await?;
    let ended = scene.world.until_status(task, -3).await?;
    assert_eq!(note(&ended), "nothing was heard from its web service for 300 s");

    let deadline = DateTime::from_millis(scene.world.store().now().timestamp_millis() + 120_000);
    let options = TaskOptions { deadline: Some(deadline), ..TaskOptions::default() };
    let made = scene.world.store().submit_tasks(scene.queue, vec![doc! { "rows": 3 }], &options).await?;
    let (task, order) = (made.ids[0], scene.service.next().await?);
    until_detached(&scene.world, task).await?;
    order.log(&scene.dci, "x").await?;
    assert_eq!(until(task).await?, deadline, "its timeout would be later");
    scene.world.end().await
}

#[tokio::test]
async fn a_service_that_shows_no_token_is_known_by_the_address_that_it_was_told() -> anyhow::Result<()> {
    let mut scene = Scene::with(1, Manner::Takes, &json!({ "callback_auth": "none" })).await?;
    let den = scene.world.den("n1")?;
    let (task, order) = scene.given().await?;
    assert_eq!(order.body["token"], Value::Null);
    let url = order.body["callbacks"]["log"].as_str().context("no address")?.to_owned();
    let (_, path) = url.split_once("/callbacks/").context("no callback")?;
    let secret = path.trim_end_matches("/log").strip_prefix(&format!("{task}-")).context("no secret")?;
    assert!(secret.len() == 64 && !scene.world.task(task).await?.to_string().contains(secret));
    let call = async |path: &str, token: Option<&str>| {
        let mut request = scene.dci.request(reqwest::Method::POST, path).body("x");
        request = token.into_iter().fold(request, reqwest::RequestBuilder::bearer_auth);
        anyhow::Ok(request.send().await?.status().as_u16())
    };
    let own = format!("/callbacks/{path}");
    assert_eq!(call(&own, None).await?, 200);
    for wrong in [format!("/callbacks/{task}/log"), format!("/callbacks/{task}-{}/log", "0".repeat(64))] {
        assert_eq!(call(&wrong, None).await?, 401, "{wrong}");
        assert_eq!(call(&wrong, Some(secret)).await?, 401, "what is in the address is no header: {wrong}");
    }
    assert_eq!(order.call(&scene.dci, "status", json!({ "status": "FINISHED" }).to_string()).await?, 200);
    let ended = scene.world.until_status(task, 1).await?;
    assert_eq!(ended.get_str("stdout")?, "x");
    drop(den);
    let log = std::fs::read_to_string(scene.world.path().join("n1.log")).unwrap_or_default();
    assert!(log.contains("callback_auth is none") && !log.contains(secret), "{log}");

    // The other kind of token does not do in an address.
    let mut usual = Scene::new(1).await?;
    let _den = usual.world.den("n1")?;
    let (task, order) = usual.given().await?;
    let request =
        usual.dci.request(reqwest::Method::POST, &format!("/callbacks/{task}-{}/log", order.token()));
    assert_eq!(request.send().await?.status(), 401);
    usual.world.end().await?;
    scene.world.end().await
}
