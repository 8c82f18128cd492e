//! A company's night: queues, nodes, and tasks in every state.

use anyhow::{Context, bail, ensure};
use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::model::{QueueId, TaskId};
use reqwest::Method;
use serde_json::{Value, json};

use super::past::{self, Habit};
use super::{plugins, schedules, versions};
use crate::{Dci, Den, World, eventually};

/// The nodes that are alive.
const NODES: [&str; 3] = ["worker-1.example.com", "worker-2.example.com", "worker-3.example.com"];

/// One that is not.
const DEAD: &str = "worker-4.example.com";

/// How many thumbnails are made at once.
const THUMBNAIL_THREADS: u64 = 8;

/// Where a page is.
#[derive(Debug, Clone, Copy)]
enum Place {
    /// Always there.
    At(&'static str),
    /// That of the queue that makes thumbnails.
    Queue,
    /// That of the first node.
    Node,
    /// Those of tasks.
    Running,
    Failed,
    Waiting,
}

/// All pages, by what their pictures are called.
const PAGES: [(&str, Place); 20] = [
    ("overview", Place::At("/")),
    ("queue", Place::Queue),
    ("tasks", Place::At("/tasks")),
    ("task-running", Place::Running),
    ("task-failed", Place::Failed),
    ("task-waiting", Place::Waiting),
    ("schedules", Place::At("/schedules")),
    ("schedule", Place::At("/schedules/orders-of-the-night")),
    ("nodes", Place::At("/nodes")),
    ("node", Place::Node),
    ("plugins", Place::At("/plugins")),
    ("bulk", Place::At("/bulk")),
    ("balance", Place::At("/balance")),
    ("notifications", Place::At("/subscriptions")),
    ("audit", Place::At("/audit")),
    ("moment", Place::At("/moments?at=5s&around=1m")),
    ("shadow", Place::At("/queues/imports/shadow")),
    ("versions", Place::At("/queues/invoices")),
    ("api", Place::At("/docs")),
    ("about", Place::At("/about")),
];

/// The names of those pages that are wanted, which are all if `only` has none.
pub(super) fn names(only: &[String]) -> anyhow::Result<Vec<&'static str>> {
    if let Some(unknown) = only.iter().find(|name| !PAGES.iter().any(|(known, _)| known == name)) {
        let known: Vec<&str> = PAGES.iter().map(|(name, _)| *name).collect();
        bail!("there is no page '{unknown}'; there are {}", known.join(", "));
    }
    let names = PAGES.iter().map(|(name, _)| *name);
    Ok(names.filter(|name| only.is_empty() || only.iter().any(|wanted| wanted == name)).collect())
}

/// Queues by what they are for.
struct Queues {
    backups: QueueId,
    thumbnails: QueueId,
    invoices: QueueId,
    imports: QueueId,
    mail: QueueId,
    reports: QueueId,
}

/// Tasks with a page that is worth a picture.
struct Shown {
    running: TaskId,
    failed: TaskId,
    waiting: TaskId,
}

/// The example, with everything that runs.
pub(super) struct Example {
    dci: Dci,
    _dens: Vec<Den>,
    queues: Queues,
    shown: Shown,
}

impl Example {
    /// Fills an empty database, and waits until everything is as it is to be shown.
    pub async fn fill(world: &World) -> anyhow::Result<Self> {
        plugins::install(&world.plugins())?;
        world.store().ensure_indexes().await?;
        let queues = Queues::make(world).await?;
        past::fill(world, &queues.habits(), &NODES).await?;
        let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
        let mut dens = Vec::new();
        for node in NODES {
            dens.push(world.den_at_work(node).await?);
        }
        prepare_nodes(world, &dci).await?;
        balance(&dci).await?;
        versions::prepare(world, &dci, queues.invoices).await?;
        let shown = present(world, &dci, &queues).await?;
        oddities(world, &queues).await?;
        bulk(&dci).await?;
        schedules::fill(world, &dci).await?;
        subscriptions(world, &dci, &shown).await?;
        versions::until_compared(world).await?;
        Ok(Self { dci, _dens: dens, queues, shown })
    }

    /// The address of the page of this name.
    pub fn url(&self, name: &str) -> anyhow::Result<String> {
        let (_, place) = PAGES.iter().find(|(known, _)| *known == name).context("there is no such page")?;
        let path = match place {
            Place::At(path) => (*path).to_owned(),
            Place::Queue => format!("/queues/{}", self.queues.thumbnails),
            Place::Node => format!("/nodes/{}", NODES[0]),
            Place::Running => format!("/tasks/{}", self.shown.running),
            Place::Failed => format!("/tasks/{}", self.shown.failed),
            Place::Waiting => format!("/tasks/{}", self.shown.waiting),
        };
        Ok(format!("{}{path}", self.dci.url()))
    }
}

impl Queues {
    async fn make(world: &World) -> anyhow::Result<Self> {
        let moved = doc! {
            "name": "mail", "threads": 4, "paused": true, "reason": "the mail relay is being moved",
            "title": "{template} to {to}",
        };
        let called =
            |name: &str, threads: i64, title: &str| doc! { "name": name, "threads": threads, "title": title };
        let thumbnails = i64::try_from(THUMBNAIL_THREADS)?;
        let thumbnails = called("thumbnails", thumbnails, "{image} as {format}");
        let invoices = called("invoices", 2, "invoice of {customer} for {month}");
        Ok(Self {
            backups: world.queue("Backup::Database", called("backups", 3, "back up {database}")).await?,
            thumbnails: world.queue("Media::Thumbnails", thumbnails).await?,
            invoices: world.queue("Billing::Invoices", invoices).await?,
            imports: world.queue("Import::Orders", doc! { "name": "imports", "threads": 2 }).await?,
            mail: world.queue("Mail::Send", moved).await?,
            // No node has its plugin.
            reports: world.queue("Report::Monthly", called("reports", 1, "report of {month}")).await?,
        })
    }

    fn habits(&self) -> [Habit; 5] {
        let habit = |queue, hourly, failing, run_ms, params, stdout| Habit {
            queue,
            hourly,
            failing,
            run_ms,
            params,
            stdout,
        };
        [
            habit(self.thumbnails, 14, 3, 700, image, "✔  160 px      3,657 bytes  webp\n"),
            habit(
                self.invoices,
                6,
                6,
                2_500,
                |n| doc! { "customer": format!("C-{}", 10_000 + n), "month": "2026-10" },
                "✔ 1,284.60 EUR\n",
            ),
            habit(
                self.imports,
                8,
                2,
                1_200,
                |n| doc! { "shop": "shop-eu", "since": format!("2026-11-{:02}", 1 + n % 28) },
                "214 orders\n",
            ),
            habit(
                self.backups,
                1,
                1,
                140_000,
                |_| doc! { "database": "crm", "target": "s3://backups/nightly" },
                "done\n",
            ),
            habit(
                self.mail,
                9,
                1,
                300,
                |n| doc! { "to": format!("customer{n}@example.com"), "template": "reminder" },
                "sent\n",
            ),
        ]
    }
}

fn image(number: u64) -> Document {
    doc! { "image": format!("products/{number:05}.tif"), "sizes": [160, 480, 1200], "format": "webp" }
}

/// Limits, one that is to be upgraded, and one that has died.
async fn prepare_nodes(world: &World, dci: &Dci) -> anyhow::Result<()> {
    for (node, most) in [(NODES[0], 8), (NODES[1], 8)] {
        dci.posted(&format!("/nodes/{node}"), &json!({ "maxthreads": most })).await?;
    }
    dci.posted(&format!("/nodes/{}", NODES[2]), &json!({ "draining": true })).await?;
    let silent = DateTime::from_millis(world.store().now().timestamp_millis() - 47 * 60_000);
    let dead = doc! {
        "_id": ObjectId::new(), "node": DEAD, "timestamp": silent, "seen": silent, "instance": "7f31", "state": "dead",
        "lease_ms": 30_000_i64, "running": 0_i64, "version": env!("CARGO_PKG_VERSION"), "plugins": ["Media::Thumbnails"],
        "serves": {},
    };
    world.database().collection::<Document>("nodes").insert_one(dead).await?;
    Ok(())
}

async fn balance(dci: &Dci) -> anyhow::Result<()> {
    let document = json!({
        "max_tasks": {
            "* 07:00": 8, "* 19:00": 24, "0 00:00": 40, "6 00:00": 40, "6 12:00": 32, "1 06:00": 8, "5 18:00": 30,
        },
        "queues": [["thumbnails", "imports"], ["backups"], ["mail", "invoices"]],
    });
    dci.posted("/balance", &document).await?;
    Ok(())
}

/// Submits as a client does. Gives the ids.
async fn submit(dci: &Dci, queue: QueueId, params: Value, options: Value) -> anyhow::Result<Vec<TaskId>> {
    let mut body = json!({ "queue": queue.to_string(), "params": params });
    for (name, value) in options.as_object().into_iter().flatten() {
        body[name] = value.clone();
    }
    let answer = dci.posted("/tasks", &body).await?;
    let inserted = answer["MongoDB::InsertManyResult"]["inserted"].as_array().context("no tasks")?;
    inserted
        .iter()
        .map(|task| Ok(task["_id"]["$oid"].as_str().context("a task without an id")?.parse()?))
        .collect()
}

/// What goes on now.
async fn present(world: &World, dci: &Dci, queues: &Queues) -> anyhow::Result<Shown> {
    for (numbers, format) in [(40_211..40_219, "webp"), (40_219..40_230, "avif")] {
        let image =
            |n| json!({ "image": format!("products/{n}.tif"), "sizes": [160, 480, 1200], "format": format });
        submit(dci, queues.thumbnails, numbers.map(image).collect(), json!({})).await?;
    }
    let shops =
        json!([{ "shop": "shop-us", "since": "2026-11-20" }, { "shop": "shop-eu", "since": "2026-11-20" }]);
    let shops = submit(dci, queues.imports, shops, json!({})).await?;
    let bills =
        json!([{ "customer": "C-20816", "month": "2026-10" }, { "customer": "C-20817", "month": "2026-10" }]);
    let bills = submit(dci, queues.invoices, bills, json!({})).await?;
    let backup = |database: &str| json!([{ "database": database, "target": "s3://backups/nightly", "compress": true }]);
    let running = submit(dci, queues.backups, backup("warehouse"), json!({ ".timeout": 7200 })).await?;
    let stopped = submit(dci, queues.backups, backup("archive"), json!({})).await?;
    submit(dci, queues.backups, backup("crm"), json!({ ".delay": 6 * 3600 })).await?;
    let letters: Vec<Value> = ["ada", "grace", "edsger", "barbara"]
        .map(|name| json!({ "to": format!("{name}@example.com"), "template": "welcome" }))
        .into();
    let letters = submit(dci, queues.mail, json!(letters), json!({})).await?;
    let waiting = submit(dci, queues.reports, json!([{ "month": "2026-10" }]), json!({})).await?;
    cancel(dci, &letters, "no longer a customer").await?;
    world.until_status(one(&shops)?, 3).await?;
    for (ids, status) in [(&running, 0), (&stopped, 0)] {
        world.until_status(one(ids)?, status).await?;
    }
    let failed = *bills.last().context("no invoice")?;
    world.until_status(failed, 2).await?;
    cancel(dci, &stopped, "the wrong target").await?;
    world.until_status(one(&stopped)?, -3).await?;
    let running = one(&running)?;
    until_far(dci, running).await?;
    until_busy(world, queues).await?;
    Ok(Shown { running, failed, waiting: one(&waiting)? })
}

fn one(ids: &[TaskId]) -> anyhow::Result<TaskId> {
    ids.first().copied().context("no task was made")
}

async fn cancel(dci: &Dci, ids: &[TaskId], reason: &str) -> anyhow::Result<()> {
    let path = format!("/tasks/{}/cancel", one(ids)?);
    dci.posted(&path, &json!({ "reason": reason })).await.map(drop)
}

/// Waits until the output has come that is to be seen.
async fn until_far(dci: &Dci, task: TaskId) -> anyhow::Result<()> {
    eventually("the output of a backup", || async {
        let output = dci.request(Method::GET, &format!("/tasks/{task}/stdout")).send().await?.text().await?;
        Ok(output.contains("shipments").then_some(()))
    })
    .await
}

/// Waits until the thumbnails that take long are being made.
async fn until_busy(world: &World, queues: &Queues) -> anyhow::Result<()> {
    let slow = doc! { "status": 0, "params.format": "avif" };
    eventually("all threads of a queue to be used", || async {
        Ok((world.count(queues.thumbnails, slow.clone()).await? == THUMBNAIL_THREADS).then_some(()))
    })
    .await
}

/// States that nobody sees for long.
async fn oddities(world: &World, queues: &Queues) -> anyhow::Result<()> {
    let template = "reminder";
    let params = |name: &str| doc! { "to": format!("{name}@example.com"), "template": template };
    let ids = world.submit(queues.mail, vec![params("alan"), params("kurt"), params("emmy")]).await?;
    let states = [
        doc! { "status": -6, "node": DEAD, "attempt": 1, "complete": false },
        doc! { "status": -4, "node": Bson::Null },
        doc! { "status": -1, "node": DEAD, "attempt": 1 },
    ];
    for (id, state) in ids.into_iter().zip(states) {
        world.set(id, state).await?;
    }
    Ok(())
}

/// Who is told what. The addresses are nobody's, and nothing happens any more that would be told.
async fn subscriptions(world: &World, dci: &Dci, shown: &Shown) -> anyhow::Result<()> {
    let on_call = json!({
        "events": ["lost", "node_dead", "schedule_missed"], "waits_longer": 4 * 3600, "channel": "mail",
        "url": "smtp://mail.example.com:587?tls=required", "from": "Disbatch <disbatch@example.com>",
        "to": ["operators@example.com", "ada@example.com"],
    });
    let night_imports = json!({
        "events": ["first_failure", "recovered"], "failures_in_row": 5, "queues": ["imports"],
        "schedules": ["orders-of-the-night"], "channel": "webhook", "url": "https://hooks.example.com/disbatch",
        "every": 900, "subject": "{{ count }} in {{ events[0].queue }}",
    });
    let backups = json!({
        "events": ["failed"], "runs_longer": 3 * 3600, "queues": ["backups"], "channel": "webhook",
        "url": "https://status.example.com/jobs", "enabled": false,
    });
    let stored = world.database().collection::<Document>("subscriptions");
    for (name, settings, messages) in
        [("on-call", on_call, 3_i64), ("night imports", night_imports, 12), ("backups", backups, 0)]
    {
        dci.posted(&format!("/subscriptions/{}", name.replace(' ', "%20")), &settings).await?;
        if messages > 0 {
            // By the revision a DEN knows that somebody has changed it.
            let past =
                doc! { "state.number": messages, "state.last": shown.failed, "revision": ObjectId::new() };
            stored.update_one(doc! { "_id": name }, doc! { "$set": past }).await?;
        }
    }
    Ok(())
}

/// Runs again what had failed, all at once.
async fn bulk(dci: &Dci) -> anyhow::Result<()> {
    let job = json!({
        "action": "retry",
        "filter": { "queue": "imports", "status": 2 },
        "reason": "the shop's server was down",
    });
    let (status, job) = dci.post("/bulk", &job).await?;
    ensure!(status == 202, "{status} {job}");
    let id = job["id"].as_str().context("a job without an id")?.to_owned();
    eventually("the bulk job to end", || async {
        let job = dci.get(&format!("/bulk/{id}")).await?;
        Ok((job["state"] == "done").then_some(()))
    })
    .await
}
