//! Why a queue does not move: the API, the command line, the page and the metrics say the same.

use disbatch_core::explain::Head;
use disbatch_core::model::{QueueId, Selector};

use super::*;

/// A queue that is held by a gate, and what of the sentence says so.
struct Held {
    name: &'static str,
    gate: &'static str,
    says: &'static str,
}

const HELD: [Held; 11] = [
    Held { name: "free", gate: "empty", says: "No task of the queue free waits." },
    Held { name: "halted", gate: "paused", says: "The queue halted is paused: repairs." },
    Held { name: "busy", gate: "limit", says: "The queue is full: 1 of 1 threads are in use" },
    Held {
        name: "slow",
        gate: "rate",
        says: "The rate of the queue slow, 1 in 36000 s, allows the next start in ",
    },
    Held { name: "lacking", gate: "plugin", says: "n1: it does not have the plugin Absent" },
    Held { name: "afar", gate: "nodes", says: "the queue is for other nodes" },
    Held { name: "later", gate: "deferred", says: "The task is deferred until " },
    Held { name: "second", gate: "dependency", says: "it waits until 1 task succeeds" },
    Held { name: "locked", gate: "lock", says: "it waits for the lock tape" },
    Held {
        name: "stopped",
        gate: "admission",
        says: "it is held until the rule of admission for its queue is lifted (audit)",
    },
    Held { name: "odd", gate: "blocked", says: "it waits until somebody queues it" },
];

async fn queue(world: &World, name: &str) -> anyhow::Result<QueueId> {
    let fields = match name {
        "halted" => doc! { "paused": true, "reason": "repairs" },
        "slow" => doc! { "rate": { "n": 1, "per": 36_000 } },
        "afar" => doc! { "nodes": { "names": ["elsewhere"] } },
        "busy" => doc! { "threads": 1 },
        _ => doc! {},
    };
    let mut all = doc! { "name": name, "threads": 4 };
    all.extend(fields);
    world.queue(if name == "lacking" { "Absent" } else { "Mixed" }, all).await
}

/// Brings each queue into its state.
async fn hold_all(world: &World, dci: &Dci) -> anyhow::Result<()> {
    for held in &HELD {
        queue(world, held.name).await?;
    }
    let submit = async |queue: &str, what: &str, more: Value| -> anyhow::Result<String> {
        let mut body = json!({ "queue": queue, "params": { "do": what } });
        let more = more.as_object().cloned().unwrap_or_default();
        body.as_object_mut().context("no object")?.extend(more);
        let answer = dci.posted("/tasks", &body).await?;
        let id = answer["MongoDB::InsertManyResult"]["inserted"][0]["_id"]["$oid"].as_str();
        Ok(id.with_context(|| answer.to_string())?.to_owned())
    };
    let stays = submit("busy", "stay", json!({ ".locks": ["tape"] })).await?;
    world.until_status(stays.parse()?, 0).await?;
    submit("busy", "work", json!({})).await?;
    let started = submit("slow", "work", json!({})).await?;
    world.until_status(started.parse()?, 1).await?;
    let rule = json!({ "scope": "queue", "value": "stopped", "action": "pause", "reason": "audit" });
    dci.posted("/admission", &rule).await?;
    for (queue, more) in [
        ("halted", json!({})),
        ("slow", json!({})),
        ("lacking", json!({})),
        ("afar", json!({})),
        ("later", json!({ ".delay": 3_600 })),
        ("second", json!({ ".after": [stays] })),
        ("locked", json!({ ".locks": ["tape"] })),
        ("stopped", json!({})),
    ] {
        submit(queue, "work", more).await?;
    }
    let odd = submit("odd", "work", json!({ ".delay": 3_600 })).await?;
    world.set(odd.parse()?, doc! { "status": -4 }).await
}

async fn command_line(dci: &Dci, arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(binary("disbatch")?);
    let output = command.args(["--url", dci.url()]).args(arguments).kill_on_drop(true).output().await?;
    ensure!(output.status.success(), "{arguments:?}: {output:?}");
    Ok(String::from_utf8(output.stdout)?)
}

/// As pages have it.
fn escaped(text: &str) -> String {
    text.replace('&', "&#38;").replace('"', "&#34;").replace('<', "&#60;").replace('>', "&#62;")
}

#[tokio::test]
async fn everybody_says_alike_what_holds_a_queue() -> anyhow::Result<()> {
    let world = World::new().await?;
    MIXED.install(&world.plugins())?;
    let _den = world.den_at_work("n1").await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    hold_all(&world, &dci).await?;
    for Held { name, gate, says } in &HELD {
        let told = eventually(&format!("{name} to be held by {gate}"), || async {
            let told = dci.get(&format!("/queues/{name}/explain")).await?;
            Ok((told["gate"] == *gate).then_some(told))
        })
        .await?;
        let summary = told["summary"].as_str().context("no summary")?;
        assert!(summary.contains(says), "{told}");
        assert_eq!(told["nodes"].is_null(), *gate == "empty", "{told}");
        assert_eq!(told["next"].is_null(), !matches!(*gate, "rate" | "deferred"), "{told}");
        let line = command_line(&dci, &["explain", "--queue", name]).await?;
        assert!(line.starts_with(&format!("{name} {gate}\n")) && line.contains(says), "{line}");
        if *gate == "empty" {
            continue;
        }
        let page = dci.request(Method::GET, &format!("/queues/{name}")).header("accept", "text/html");
        let page = page.send().await?.text().await?;
        assert!(page.contains(&escaped(says)), "{name}: {page}");
    }
    let lacking = dci.get("/queues/lacking/explain").await?;
    assert_eq!(lacking["nodes"][0]["node"], "n1");
    assert_eq!(lacking["nodes"][0]["why"], json!(["it does not have the plugin Absent"]));
    let busy = dci.get("/queues/busy/explain").await?;
    assert_eq!((&busy["running"], &busy["threads"]), (&json!(1), &json!(1)));

    let expected: Vec<(String, f64)> = HELD
        .iter()
        .flat_map(|held| of_queue(held.name, &[("queue_held_by", &format!("gate=\"{}\"", held.gate), 1.0)]))
        .collect();
    let found = until(dci.url(), &expected).await?;
    let lines = found.series.keys().filter(|key| key.starts_with("disbatch_queue_held_by")).count();
    assert_eq!(lines, HELD.len(), "each queue has one gate");
    world.end().await
}

/// What nodes pass over is not what a queue waits for.
#[tokio::test]
async fn the_first_task_of_a_queue_is_one_that_nodes_take() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (store, id) = (world.store(), world.queue("Mixed", doc! { "threads": 1 }).await?);
    let queue = store.find_queue(&Selector::Id(id.0)).await?.context("it is there")?;
    let now = store.server_time().await?;
    let odd = doc! { "_id": "odd", "queue": id, "status": -2, "node": null, "ctime": now, "mtime": now };
    world.tasks().insert_one(odd).await?;
    let head = store.head_of_queue(&queue).await?;
    ensure!(matches!(head, Head::Unreadable(_)), "there is no other: {head:?}");
    let first = store.first_tasks().await?.remove(&id).context("it is there")?;
    ensure!(first.task.is_none(), "{first:?}");
    let ids = world.submit(id, vec![doc! { "a": 1 }; 2]).await?;
    store.set_aside(ids[0], "nothing can be done with it").await;
    let head = store.head_of_queue(&queue).await?;
    ensure!(matches!(&head, Head::Task(facts) if facts.task.id == ids[1]), "{head:?}");
    let first = store.first_tasks().await?.remove(&id).context("it is there")?;
    ensure!(first.waited.is_some(), "{first:?}");
    ensure!(first.task.as_ref().is_some_and(|task| task.id == ids[1]), "{first:?}");
    world.end().await
}
