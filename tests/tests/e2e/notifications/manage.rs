//! Subscriptions as people make, change and try them.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, ensure};
use bson::doc;
use disbatch_core::notifications::QUEUE;
use disbatch_tests::hook::count_events;
use disbatch_tests::{Dci, World, binary};
use reqwest::Method;
use serde_json::{Value, json};
use tokio::process::Command;

use super::{Scene, count_of, names, tasks_of, with};

/// Runs `disbatch`, and gives its exit code and all that it has printed.
async fn disbatch(dci: &Dci, folder: &Path, arguments: &[&str]) -> anyhow::Result<(Option<i32>, String)> {
    let mut command = Command::new(binary("disbatch")?);
    for variable in ["DISBATCH_USERNAME", "DISBATCH_PASSWORD", "DISBATCH_TOKEN"] {
        command.env_remove(variable);
    }
    command.env("XDG_CONFIG_HOME", "/nonexistent").env("DISBATCH_URL", dci.url());
    command.arg("subscription").args(arguments).current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
    let output = command.output().await?;
    Ok((output.status.code(), String::from_utf8([output.stdout, output.stderr].concat())?))
}

/// The same, which is to succeed and to print this part.
async fn expect(scene: &Scene, arguments: &[&str], part: &str) -> anyhow::Result<String> {
    let (code, text) = disbatch(&scene.dci, scene.world.path(), arguments).await?;
    ensure!(code == Some(0) && text.contains(part), "{arguments:?}: {code:?}, no '{part}' in {text}");
    Ok(text)
}

#[tokio::test]
async fn the_command_line_makes_shows_tries_and_deletes_subscriptions() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    scene.queue("imports").await?;
    let _den = scene.world.den_at_work("n1").await?;
    std::fs::write(scene.world.path().join("key.txt"), "whsec_C2FVsBQIhrscChlQIMV+b5sSYspob7oD\n")?;
    let url = scene.hook.url();
    let set = [
        "set",
        "night imports",
        "--channel",
        "webhook",
        "--address",
        &url,
        "--secret-file",
        "key.txt",
        "--events",
        "failed,lost",
        "--queues",
        "imports",
        "--waits-longer",
        "1h",
        "--every",
        "15m",
        "--delay",
        "0",
    ];
    expect(&scene, &set, "Set subscription night imports\n").await?;
    let stored = scene.dci.get("/subscriptions/night%20imports").await?;
    let expected = json!({
        "events": ["failed", "lost"], "queues": ["imports"], "waits_longer": 3600, "every": 900, "delay": 0,
        "has_secret": true, "enabled": true,
    });
    for (field, value) in expected.as_object().into_iter().flatten() {
        assert_eq!(stored[field], *value, "{field}");
    }
    let list = expect(&scene, &["list"], "night imports").await?;
    assert!(list.contains("failed, lost, waits_longer 3600 s") && list.contains("webhook"), "{list}");
    let shown = expect(&scene, &["show", "night imports"], "events: failed, lost\n").await?;
    assert!(shown.contains("has_secret: true\n") && !shown.contains("C2FVsBQ"), "{shown}");
    let tried = expect(&scene, &["test", "night imports"], " delivers a test\n").await?;
    let task = tried.split(' ').nth(1).context("no task")?.parse()?;
    scene.world.until_status(task, 1).await?;
    assert_eq!(count_events(&scene.hook.messages()?, "test"), 1);
    assert!(scene.hook.received()[0].header("webhook-signature").is_some());

    let wrong = ["set", "odd", "--channel", "webhook", "--address", &url, "--events", "faild"];
    let (code, text) = disbatch(&scene.dci, scene.world.path(), &wrong).await?;
    assert!(code == Some(255) && text.contains("'faild' is none of failed"), "{code:?} {text}");
    expect(&scene, &["delete", "night imports"], "Deleted subscription night imports\n").await?;
    for gone in ["show", "test", "delete"] {
        let (code, text) = disbatch(&scene.dci, scene.world.path(), &[gone, "night imports"]).await?;
        assert!(
            code == Some(255) && text.contains("no subscription 'night imports'"),
            "{gone}: {code:?} {text}"
        );
    }
    assert_eq!(scene.dci.get("/subscriptions").await?, json!([]));
    scene.world.end().await
}

#[tokio::test]
async fn what_cannot_be_is_refused_and_said() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let hook = json!({ "channel": "webhook", "url": "https://hooks.example/x", "events": ["failed"] });
    let mail = json!({
        "channel": "mail", "url": "smtp://mail.example", "events": ["failed"], "from": "d@example.org",
        "to": "ann@example.org",
    });
    let cases = [
        (&hook, json!({ "channel": null }), "channel must be one of webhook, slack, teams, mail"),
        (&hook, json!({ "channel": "pigeon" }), "channel must be one of webhook"),
        (&hook, json!({ "events": ["faild"] }), "events: 'faild' is none of failed, first_failure"),
        (&hook, json!({ "events": [] }), "events: nothing is to be told"),
        (&hook, json!({ "events": 5 }), "events must be a list"),
        (&hook, json!({ "failures_in_row": 1 }), "failures_in_row must be from 2"),
        (&hook, json!({ "waits_longer": "soon" }), "waits_longer must be a number of seconds"),
        (&hook, json!({ "runs_longer": 0 }), "runs_longer: expected 1 to"),
        (&hook, json!({ "every": -1 }), "every: expected 0 to"),
        (&hook, json!({ "queues": ["nobody's"] }), "queues: there is no queue 'nobody's'"),
        (&hook, json!({ "schedules": "never" }), "schedules: there is no schedule 'never'"),
        (&hook, json!({ "url": null }), "url: must be given"),
        (&hook, json!({ "url": "ftp://hooks.example" }), "url: expected an address with http:// or https://"),
        (&hook, json!({ "to": "ann@example.org" }), "to: expected"),
        (&hook, json!({ "user": "ann" }), "user: is for mail alone"),
        (&hook, json!({ "channel": "slack", "url": null }), "url: must be given"),
        (&hook, json!({ "channel": "slack", "secret": "x" }), "secret: the address of this channel"),
        (&hook, json!({ "enabled": "perhaps" }), "enabled must be true or false"),
        (&hook, json!({ "evry": 5 }), "unknown param"),
        (&mail, json!({ "url": "https://mail.example" }), "url: expected an address with smtp://"),
        (&mail, json!({ "to": null }), "to: expected"),
        (&mail, json!({ "to": "nobody" }), "to: expected"),
        (&mail, json!({ "from": null }), "from: must be given"),
    ];
    for (whole, wrong, why) in cases {
        let (status, answer) = scene.dci.post("/subscriptions/odd", &with(whole.clone(), &wrong)).await?;
        assert_eq!(status, 400, "{wrong}: {answer}");
        assert!(answer["error"].as_str().is_some_and(|error| error.starts_with(why)), "{wrong}: {answer}");
    }
    let (status, answer) = scene.dci.post("/subscriptions/%20odd", &hook).await?;
    assert!(status == 400 && answer.to_string().contains("name must be text"), "{status} {answer}");
    assert_eq!(scene.dci.get("/subscriptions").await?, json!([]));
    for (method, path) in [
        (Method::GET, "/subscriptions/odd"),
        (Method::DELETE, "/subscriptions/odd"),
        (Method::POST, "/subscriptions/odd/test"),
    ] {
        let answer = scene.dci.request(method, path).send().await?;
        let (status, text) = (answer.status(), answer.text().await?);
        assert!(status == 404 && text.contains("no subscription 'odd'"), "{path}: {status} {text}");
    }
    // The queue of another one is not taken for that of messages.
    scene.queue("notifications").await?;
    let (status, answer) = scene.dci.post("/subscriptions/odd", &hook).await?;
    assert!(status == 409 && answer.to_string().contains("give it another name"), "{status} {answer}");
    scene.world.end().await
}

#[tokio::test]
async fn without_a_key_there_are_no_secrets() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let hook = json!({ "channel": "webhook", "url": "https://hooks.example/x", "events": ["failed"] });
    for secret in [json!({ "channel": "slack" }), json!({ "channel": "teams" }), json!({ "secret": "x" })] {
        let (status, answer) = dci.post("/subscriptions/secret", &with(hook.clone(), &secret)).await?;
        assert_eq!(status, 503, "{secret}: {answer}");
        let why = answer["error"].as_str().unwrap_or_default();
        assert!(why.starts_with("this server has no key for secure parameters"), "{secret}: {answer}");
    }
    assert_eq!(dci.get("/subscriptions").await?, json!([]));
    assert_eq!(dci.post("/subscriptions/open", &hook).await?.0, 200);
    world.end().await
}

#[tokio::test]
async fn what_happens_while_a_subscription_is_off_is_never_told() -> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let queue = scene.queue("imports").await?;
    let on_off = |enabled: bool| json!({ "events": ["failed", "first_failure"], "enabled": enabled });
    scene.subscribe("each", &on_off(true)).await?;
    let _den = scene.world.den_at_work("n1").await?;
    let mut told = scene.run(queue, "fail", 1).await?;
    scene.until_events("failed", 1).await?;
    scene.subscribe("each", &on_off(false)).await?;
    scene.run(queue, "fail", 2).await?;
    let test = scene.test("each").await?;
    scene.world.until_status(test, 1).await?;
    assert_eq!(count_events(&scene.hook.messages()?, "test"), 1, "it can be tried");
    scene.subscribe("each", &on_off(true)).await?;
    told.extend(scene.run(queue, "fail", 1).await?);
    let messages = scene.until_last().await?;
    assert_eq!(tasks_of(&messages, "failed", "imports"), names(&told));
    assert_eq!(count_of(&messages, "first_failure", "imports"), 2, "it knows nothing of before");
    scene.world.end().await
}

#[tokio::test]
async fn a_new_subscription_is_told_nothing_of_the_past_whatever_others_have_still_to_be_told()
-> anyhow::Result<()> {
    let scene = Scene::new().await?;
    let queue = scene.queue("imports").await?;
    scene.subscribe("old", &json!({ "events": ["failed"] })).await?;
    // While no DEN is there, others say that these have failed.
    let past = scene.world.submit(queue, vec![doc! { "do": "nothing" }; 3]).await?;
    for task in &past {
        scene.world.set(*task, doc! { "status": 2, "mtime": scene.world.store().now() }).await?;
    }
    scene.subscribe("new", &json!({ "events": ["failed"] })).await?;
    let _den = scene.world.den_at_work("n1").await?;
    let failed = scene.run(queue, "fail", 1).await?;
    let last = scene.queue("last").await?;
    scene.run(last, "fail", 1).await?;
    scene.until("the last failure, twice", |messages| count_of(messages, "failed", "last") == 2).await?;
    scene.world.until_all_ended(QUEUE).await?;
    let messages = scene.hook.messages()?;
    let of = |name: &str| -> Vec<Value> {
        messages.iter().filter(|message| message["subscription"] == name).cloned().collect()
    };
    let all = [past, failed.clone()].concat();
    assert_eq!(tasks_of(&of("old"), "failed", "imports"), names(&all));
    assert_eq!(tasks_of(&of("new"), "failed", "imports"), names(&failed));
    scene.world.end().await
}
