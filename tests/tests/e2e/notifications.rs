//! Notifications: who is told what, and told once, whoever dies; and what becomes of messages that do not arrive.

mod channels;
mod conditions;
mod counts;
mod crashes;
mod deliveries;
mod ends;
mod mail;
mod manage;
mod streaks;

use std::collections::BTreeSet;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, bail, ensure};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};
use disbatch_core::model::{QueueId, TaskId};
use disbatch_core::notifications::QUEUE;
use disbatch_core::secrets::new_key;
use disbatch_tests::hook::{Hook, Manner, Received, count_events};
use disbatch_tests::{Dci, Script, World, eventually};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

use crate::metrics;
use crate::secrets::not_in_the_database;

/// Where the pages are, as messages say.
const PAGES: &str = "http://d.example";

/// Fails, or not, as its task says.
const WORKER: Script<'_> = Script {
    name: "Worker",
    text: "#!/bin/sh\nread -r line\ncase \"$line\" in *'\"fail\"'*) exit 3;; *) exit 0;; esac\n",
};

/// A world with a DCI, and somebody who is told.
struct Scene {
    world: World,
    dci: Dci,
    hook: Hook,
}

/// An object with further keys, or with other values.
fn with(mut object: Value, further: &Value) -> Value {
    for (key, value) in further.as_object().into_iter().flatten() {
        object[key] = value.clone();
    }
    object
}

/// So soon a message is tried again.
fn soon() -> Document {
    doc! { "base": 0.05, "factor": 1, "jitter": 0 }
}

/// How many events of a kind messages tell of a queue.
fn count_of(messages: &[Value], kind: &str, queue: &str) -> i64 {
    events_of(messages, kind, queue).filter_map(|event| event["count"].as_i64()).sum()
}

/// The tasks that messages name for a kind of event in a queue.
fn tasks_of(messages: &[Value], kind: &str, queue: &str) -> BTreeSet<String> {
    let tasks = events_of(messages, kind, queue).filter_map(|event| event["tasks"].as_array()).flatten();
    tasks.filter_map(|task| task["id"].as_str()).map(str::to_owned).collect()
}

fn events_of<'a>(messages: &'a [Value], kind: &'a str, queue: &'a str) -> impl Iterator<Item = &'a Value> {
    let events = messages.iter().filter_map(|message| message["events"].as_array()).flatten();
    events.filter(move |event| event["event"] == kind && event["queue"] == queue)
}

fn names(tasks: &[TaskId]) -> BTreeSet<String> {
    tasks.iter().map(ToString::to_string).collect()
}

fn time(value: &Value) -> anyhow::Result<DateTime> {
    Ok(DateTime::parse_rfc3339_str(value.as_str().context("no time")?)?)
}

/// The task that delivers a message.
fn task_of(message: &Value) -> anyhow::Result<TaskId> {
    Ok(message["id"].as_str().context("a message without an id")?.parse()?)
}

impl Scene {
    async fn new() -> anyhow::Result<Self> {
        Self::with(&json!({}), vec![]).await
    }

    /// With further keys of the configuration, and somebody who answers so at first.
    async fn with(further: &Value, manners: Vec<Manner>) -> anyhow::Result<Self> {
        let world = World::new().await?;
        let allowed = json!({ "allow": ["127.0.0.1"], "url": PAGES });
        let config = json!({ "notifications": allowed, "secrets": { "key_file": "secrets.key" } });
        world.configure(with(config, further))?;
        let key = world.path().join("secrets.key");
        fs::write(&key, new_key()?.as_str())?;
        fs::set_permissions(&key, Permissions::from_mode(0o600))?;
        world.store().ensure_indexes().await?;
        WORKER.install(&world.plugins())?;
        let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
        Ok(Self { world, dci, hook: Hook::start(manners).await? })
    }

    /// A queue whose tasks do as they are told.
    async fn queue(&self, name: &str) -> anyhow::Result<QueueId> {
        self.world.queue(WORKER.name, doc! { "name": name, "threads": 8 }).await
    }

    /// Makes or changes a subscription: the hook is told at once, unless something else is said. The name is as in an address.
    async fn subscribe(&self, name: &str, settings: &Value) -> anyhow::Result<Value> {
        let at_once = json!({ "channel": "webhook", "url": self.hook.url(), "delay": 0, "every": 0 });
        self.dci.posted(&format!("/subscriptions/{name}"), &with(at_once, settings)).await
    }

    /// Has a message delivered that is a test. Gives the task.
    async fn test(&self, name: &str) -> anyhow::Result<TaskId> {
        let sent = self.dci.posted(&format!("/subscriptions/{name}/test"), &json!({})).await?;
        Ok(sent["task"].as_str().with_context(|| sent.to_string())?.parse()?)
    }

    /// Runs tasks, and waits until all of the queue have ended.
    async fn run(&self, queue: QueueId, what: &str, number: usize) -> anyhow::Result<Vec<TaskId>> {
        let ids = self.world.submit(queue, vec![doc! { "do": what }; number]).await?;
        self.world.until_all_ended(queue).await?;
        Ok(ids)
    }

    /// Waits until the messages are enough.
    async fn until(&self, what: &str, are_enough: impl Fn(&[Value]) -> bool) -> anyhow::Result<Vec<Value>> {
        let told = eventually(what, || async {
            let messages = self.hook.messages()?;
            Ok(are_enough(&messages).then_some(messages))
        });
        told.await.with_context(|| format!("{:#?}", self.hook.received()))
    }

    async fn until_events(&self, kind: &str, number: i64) -> anyhow::Result<Vec<Value>> {
        self.until(&format!("{number} times {kind}"), |messages| count_events(messages, kind) >= number).await
    }

    /// Has one more task fail, in a queue of its own, waits until that is told, and gives all messages: what was before it in the log
    /// of changes is told, too.
    async fn until_last(&self) -> anyhow::Result<Vec<Value>> {
        let queue = self.queue("last").await?;
        self.run(queue, "fail", 1).await?;
        self.until("the last failure", |messages| count_of(messages, "failed", "last") > 0).await?;
        // Of several messages, a later one may arrive earlier.
        self.world.until_all_ended(QUEUE).await?;
        self.hook.messages()
    }

    /// Waits until so many events are to be told in the next message of a subscription.
    async fn until_pending(&self, name: &str, number: i64) -> anyhow::Result<()> {
        let path = format!("/subscriptions/{name}");
        eventually(&format!("{number} events to be noted"), || async {
            let pending = self.dci.get(&path).await?["pending"].as_i64();
            ensure!(pending <= Some(number), "{pending:?} are noted, and there were {number}");
            Ok((pending == Some(number)).then_some(()))
        })
        .await
    }
}

/// What a receiver that has the key expects.
fn signature(key: &[u8], received: &Received) -> anyhow::Result<String> {
    let time = received.header("webhook-timestamp").context("no time")?;
    let mut mac = Hmac::<Sha256>::new_from_slice(key)?;
    mac.update(format!("{}.{time}.{}", received.id()?, received.body).as_bytes());
    Ok(format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes())))
}

#[tokio::test]
async fn the_failures_of_a_queue_arrive_in_one_message_and_nothing_else_does() -> anyhow::Result<()> {
    let scene = Scene::with(&json!({ "metrics": { "listen": 0 } }), vec![]).await?;
    let (imports, mail) = (scene.queue("imports").await?, scene.queue("mail").await?);
    let settings = json!({ "events": ["failed"], "queues": ["imports"], "delay": 3600 });
    let made = scene.subscribe("night%20imports", &settings).await?;
    assert_eq!((&made["name"], &made["messages"]), (&json!("night imports"), &json!(0)));
    let den = scene.world.den_at_work("n1").await?;
    scene.run(mail, "fail", 2).await?;
    scene.run(imports, "work", 2).await?;
    let failed = scene.run(imports, "fail", 3).await?;
    scene.until_pending("night%20imports", 3).await?;
    assert!(scene.hook.received().is_empty(), "it waits for others");
    scene.subscribe("night%20imports", &with(settings, &json!({ "delay": 0 }))).await?;
    let messages = scene.until_events("failed", 3).await?;
    let [message] = &messages[..] else { bail!("there are several: {messages:?}") };

    for (field, expected) in [
        ("subscription", json!("night imports")),
        ("number", json!(1)),
        ("count", json!(3)),
        ("more", json!(0)),
        ("url", json!(PAGES)),
        ("subject", json!("queue imports: 3 tasks failed")),
    ] {
        assert_eq!(message[field], expected, "{field}");
    }
    let [since, until, at] = ["since", "until", "at"].map(|field| time(&message[field]));
    let (since, until, at) = (since?, until?, at?);
    assert!(since <= until && until <= at, "{message}");
    let [event] = &message["events"].as_array().context("no events")?[..] else { bail!("{message}") };
    assert_eq!(
        (&event["event"], &event["queue"], &event["count"]),
        (&json!("failed"), &json!("imports"), &json!(3))
    );
    assert!(["schedule", "node", "detail"].into_iter().all(|field| event[field].is_null()), "{event}");
    assert_eq!(tasks_of(&messages, "failed", "imports"), names(&failed));
    for task in event["tasks"].as_array().context("no tasks")? {
        let link = format!("{PAGES}/tasks/{}", task["id"].as_str().unwrap_or_default());
        assert_eq!(task["url"], json!(link));
        assert!(message["text"].as_str().is_some_and(|text| text.contains(&link)), "{message}");
    }
    let received = &scene.hook.received()[0];
    assert_eq!((received.id()?, received.path()), (message["id"].as_str().unwrap_or_default(), "/hook"));
    assert_eq!(received.header("content-type"), Some("application/json"));
    assert_eq!(received.header("webhook-signature"), None, "there is no key");
    scene.world.until_status(task_of(message)?, 1).await?;
    let shown = scene.dci.get("/subscriptions/night%20imports").await?;
    assert_eq!(
        (&shown["messages"], &shown["pending"], &shown["task"]),
        (&json!(1), &json!(0), &message["id"])
    );
    let queued = r#"disbatch_notifications_total{channel="webhook",outcome="queued"}"#;
    metrics::until(&metrics::address_of(&den).await?, &[(queued.to_owned(), 1.0)]).await?;
    scene.world.end().await
}

#[tokio::test]
async fn messages_are_signed_with_a_key_that_nobody_sees() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let _den = scene.world.den_at_work("n1").await?;
    let (bytes, words) = (ObjectId::new().bytes(), ObjectId::new().to_hex());
    let encoded = BASE64_STANDARD.encode(bytes);
    let settings = json!({ "events": ["failed"] });
    for (name, secret) in [("encoded", format!("whsec_{encoded}")), ("words", words.clone())] {
        let made = scene.subscribe(name, &with(settings.clone(), &json!({ "secret": secret }))).await?;
        assert_eq!(made["has_secret"], true);
        assert!(!made.to_string().contains(&secret), "{made}");
    }
    // It stays where it is not said anew, as long as the address does.
    scene.subscribe("encoded", &settings).await?;
    for (number, (name, key)) in
        [("encoded", &bytes[..]), ("words", words.as_bytes())].into_iter().enumerate()
    {
        let task = scene.test(name).await?;
        scene.world.until_status(task, 1).await?;
        let received = &scene.hook.received()[number];
        assert_eq!(received.header("webhook-signature"), Some(signature(key, received)?.as_str()), "{name}");
        let time: i64 = received.header("webhook-timestamp").context("no time")?.parse()?;
        let now = scene.world.store().now().timestamp_millis() / 1_000;
        assert!((now - 120..=now + 1).contains(&time), "{time} {now}");
    }
    let elsewhere = json!({ "events": ["failed"], "url": scene.hook.url_of("localhost") });
    assert_eq!(scene.subscribe("encoded", &elsewhere).await?["has_secret"], false, "nobody else gets it");
    for secret in [&encoded, &words] {
        not_in_the_database(&scene.world, secret).await?;
    }
    scene.world.end().await
}

#[tokio::test]
async fn templates_make_the_words_of_messages() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let queue = scene.queue("imports").await?;
    let text =
        "{% for event in events %}{{ event.queue }} {{ event.tasks[0].url }}\n{% endfor %}{{ subscription }}";
    let settings = json!({ "events": ["failed"], "subject": "{{ count }} broken", "text": text });
    scene.subscribe("words", &settings).await?;
    scene.subscribe("wrong", &json!({ "events": ["failed"], "text": "{{ nobody" })).await?;
    scene.world.update_queue(QUEUE, doc! { "max_attempts": 1 }).await?;
    let _den = scene.world.den_at_work("n1").await?;
    let failed = scene.run(queue, "fail", 1).await?[0];
    let messages = scene.until_events("failed", 1).await?;
    assert_eq!(messages[0]["subject"], "1 broken");
    assert_eq!(messages[0]["text"], format!("imports {PAGES}/tasks/{failed}\nwords"));
    let wrong = eventually("the wrong one to fail", || async {
        let filter = doc! { "queue": QUEUE, "status": 2 };
        Ok(scene.world.tasks().find_one(filter).await?)
    })
    .await?;
    assert!(wrong.get_str("stderr")?.contains("the template of the subscription is wrong"), "{wrong}");
    assert_eq!(scene.hook.received().len(), 1);
    scene.world.end().await
}
