//! Many tasks at once: bulk jobs, the archive, and the policies of queues.

use std::fs::{self, File};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, ensure};
use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::model::{QueueId, TaskId};
use disbatch_core::output::{Encoding, StreamName};
use disbatch_core::store::Store;
use disbatch_core::task::{Archived, Place, Retried, TaskQuery};
use disbatch_tests::{Script, World, binary, eventually};
use mongodb::Collection;
use serde_json::{Value, json};
use tokio::process::{Child, Command};

use crate::plan::{most, plans, stages};

/// A DCI on a free port. Killed when dropped.
struct Dci {
    child: Child,
    url: String,
}

impl Dci {
    async fn start(world: &World, name: &str) -> anyhow::Result<Self> {
        let log = world.path().join(format!("{name}.log"));
        let child = Command::new(binary("dci")?)
            .arg("--config")
            .arg(world.config())
            .args(["--listen", "127.0.0.1:0"])
            .stdin(Stdio::null())
            .stderr(File::create(&log)?)
            .kill_on_drop(true)
            .spawn()?;
        let address = eventually("the DCI's address", || async {
            let text = fs::read_to_string(&log)?;
            let address = text.split("address=").nth(1).and_then(|rest| rest.split_whitespace().next());
            Ok(address.map(str::to_owned))
        })
        .await?;
        Ok(Self { child, url: format!("http://{address}") })
    }

    async fn curl(&self, path: &str, arguments: &[&str]) -> anyhow::Result<Value> {
        let url = format!("{}{path}", self.url);
        let output = Command::new("curl")
            .args(["-sS", "-g", "--noproxy", "*", &url])
            .args(arguments)
            .output()
            .await
            .context("this test needs curl")?;
        ensure!(output.status.success(), "{url}: {}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout)?;
        serde_json::from_str(&text).with_context(|| format!("{url}: {text}"))
    }

    /// What a browser gets, with the status in front.
    async fn page(&self, path: &str, form: &[&str]) -> anyhow::Result<String> {
        let fields = form.iter().flat_map(|field| ["--data-urlencode", field]);
        let output = Command::new("curl")
            .args(["-sS", "--noproxy", "*", "-i", "-H", "Accept: text/html", &format!("{}{path}", self.url)])
            .args(fields)
            .output()
            .await
            .context("this test needs curl")?;
        Ok(String::from_utf8(output.stdout)?)
    }

    async fn get(&self, path: &str) -> anyhow::Result<Value> {
        self.curl(path, &[]).await
    }

    async fn post(&self, path: &str, body: Value) -> anyhow::Result<Value> {
        self.curl(path, &["-H", "Content-Type: application/json", "-d", &body.to_string()]).await
    }

    /// Makes a bulk job and waits for its end.
    async fn bulk(&self, body: Value) -> anyhow::Result<Value> {
        let made = self.post("/bulk", body).await?;
        let id = made["id"].as_str().with_context(|| made.to_string())?.to_owned();
        self.ended(&id).await
    }

    async fn ended(&self, id: &str) -> anyhow::Result<Value> {
        let path = format!("/bulk/{id}");
        eventually("the end of the bulk job", || async {
            let job = self.get(&path).await?;
            Ok((job["state"] != "running").then_some(job))
        })
        .await
    }
}

fn archive(world: &World) -> Collection<Document> {
    world.database().collection("tasks.archive")
}

async fn number_of(world: &World, collection: &str) -> anyhow::Result<u64> {
    Ok(world.database().collection::<Document>(collection).count_documents(doc! {}).await?)
}

/// Tasks that have ended with this status, an hour ago.
pub async fn ended(world: &World, queue: QueueId, status: i32, many: usize) -> anyhow::Result<Vec<TaskId>> {
    let ids = world.submit(queue, vec![doc! {}; many]).await?;
    let at = DateTime::from_millis(world.store().now().timestamp_millis() - 3_600_000);
    let end = doc! { "$set": { "status": status, "mtime": at, "node": "n1", "complete": true } };
    let these = doc! { "_id": { "$in": ids.iter().map(|id| id.0).collect::<Vec<_>>() } };
    world.tasks().update_many(these, end).await?;
    Ok(ids)
}

#[tokio::test]
async fn a_bulk_job_outlives_the_server_that_took_it() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
    world.submit(queue, vec![doc! {}; 2000]).await?;
    let mut first = Dci::start(&world, "dci1").await?;
    let filter = json!({ "queue": queue.to_string() });
    let preview =
        first.post("/bulk", json!({ "action": "cancel", "filter": &filter, ".preview": 1 })).await?;
    assert_eq!(preview, json!({ "count": 2000 }));
    assert_eq!(world.count(queue, doc! { "status": -2 }).await?, 2000, "a preview does nothing");
    let made = first.post("/bulk", json!({ "action": "cancel", "filter": filter, "reason": "test" })).await?;
    let id = made["id"].as_str().with_context(|| made.to_string())?.to_owned();
    let later = world.submit(queue, vec![doc! {}]).await?;
    let path = format!("/bulk/{id}");
    let half = eventually("progress", || async {
        let job = first.get(&path).await?;
        Ok((job["done"].as_u64() >= Some(200)).then_some(job))
    })
    .await?;
    assert_eq!((&half["state"], &half["total"]), (&json!("running"), &json!(2000)), "{half}");
    first.child.kill().await?;
    let left = world.count(queue, doc! { "status": -2 }).await?;
    ensure!(left > 100, "the server was too fast for this test: {left} left");

    let second = Dci::start(&world, "dci2").await?;
    let job = second.ended(&id).await?;
    assert_eq!(job["state"], "done", "{job}");
    assert_eq!((&job["done"], &job["skipped"]), (&json!(2000), &json!(0)), "{job}");
    let once = doc! { "status": -5, "history": { "$size": 1 }, "cancel.reason": "test" };
    assert_eq!(world.count(queue, once).await?, 2000, "each was cancelled once");
    assert_eq!(world.status(later[0]).await?, -2, "it came later");
    // It is written right after the job's end.
    let what = eventually("the job's end in the audit", || async {
        let audit = second.get("/audit").await?;
        let entries = audit.as_array().context("no array")?;
        let what: Vec<String> =
            entries.iter().filter_map(|entry| entry["what"].as_str().map(str::to_owned)).collect();
        Ok((what.len() > 1).then_some(what))
    })
    .await?;
    assert_eq!(what, ["bulk cancel ended", "bulk cancel"]);
    world.end().await
}

/// Two archived tasks are spared by a job that leaves archived ones out, which counts and deletes only the others.
async fn delete_without_archived(world: &World, dci: &Dci, queue: QueueId) -> anyhow::Result<()> {
    let archived = number_of(world, "tasks.archive").await?;
    let here = ended(world, queue, 2, 3).await?;
    let filter = json!({ "queue": "other", "archive": false });
    let count = dci.post("/bulk", json!({ "action": "delete", "filter": filter, ".preview": 1 })).await?;
    assert_eq!(count["count"], 3, "{count}");
    let all = json!({ "action": "delete", "filter": { "queue": "other" }, ".preview": 1 });
    assert_eq!(dci.post("/bulk", all).await?["count"], 5);
    let on_node = json!({ "queue": "other", "node": "nowhere", "archive": false });
    let count = dci.post("/bulk", json!({ "action": "delete", "filter": on_node, ".preview": 1 })).await?;
    assert_eq!(count["count"], 0, "none was given to it: {count}");
    let deleted = dci.bulk(json!({ "action": "delete", "filter": filter })).await?;
    assert_eq!((&deleted["done"], &deleted["total"]), (&json!(3), &json!(3)), "{deleted}");
    assert_eq!(world.tasks().count_documents(doc! { "_id": here[0] }).await?, 0);
    assert_eq!(number_of(world, "tasks.archive").await?, archived);
    Ok(())
}

/// What people see: a form that counts first, the jobs, and each of them.
async fn on_pages(dci: &Dci, other: QueueId, bad: &[TaskId]) -> anyhow::Result<()> {
    let fields = ["action=cancel", "queue=other", "status=", "older_than=", "ids=", "reason=a & b"];
    let preview = dci.page("/bulk", &[&fields[..], &[".preview=1"]].concat()).await?;
    assert!(preview.contains("Cancel 0 tasks?") && preview.contains("No task matches."), "{preview}");
    let refused = dci.page("/bulk", &["action=cancel", ".preview=1"]).await?;
    assert!(refused.contains("400 Bad Request") && refused.contains("refusing to act"), "{refused}");
    let made = dci.page("/bulk", &fields).await?;
    assert!(made.contains("303 See Other") && made.contains("location: /bulk/"), "{made}");
    let job = made.split("location: ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let job = dci.page(job.context("no address")?, &[]).await?;
    assert!(
        job.contains("200 OK") && job.contains("a &#38; b") && job.contains("data-live=\"/ui/bulk/"),
        "{job}"
    );
    let selected =
        [format!("ids={}", bad[0]), format!("ids={}", bad[2]), "action=cancel".into(), ".preview=1".into()];
    let selected: Vec<&str> = selected.iter().map(String::as_str).collect();
    let preview = dci.page("/bulk", &selected).await?;
    assert!(preview.contains("Cancel 1 task?") && preview.matches("name=\"ids\"").count() == 2, "{preview}");
    let listed = dci.page(&format!("/bulk?action=retry&queue={other}"), &[]).await?;
    for part in ["a &#38; b", "<option value=\"retry\" selected>", "done</span>"] {
        assert!(listed.contains(part), "{part}: {listed}");
    }
    Ok(())
}

#[tokio::test]
async fn bulk_jobs_do_what_they_are_told_and_no_more() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail" }).await?;
    let other = world.queue("Disbatch::Plugin::Demo", doc! { "name": "other" }).await?;
    let (good, bad) = (ended(&world, queue, 1, 3).await?, ended(&world, queue, 2, 450).await?);
    let foreign = ended(&world, other, 2, 2).await?;
    let dci = Dci::start(&world, "dci").await?;
    for (body, message) in [
        (json!({ "action": "cancel", "filter": {} }), "refusing to act on everything"),
        (json!({ "action": "cancel", "filter": { "queue": "mail", "status": [] } }), "status is empty"),
        (
            json!({ "action": "cancel", "filter": { "queue": "mail", "status": "" } }),
            "filter.status is empty",
        ),
        (
            json!({ "action": "cancel", "filter": { "queue": "mail", "tenant": "" } }),
            "filter.tenant is empty",
        ),
        (
            json!({ "action": "cancel", "filter": { "queue": "mail", "group": null } }),
            "filter.group is empty",
        ),
        (json!({ "action": "cancel", "queue": "mail", "status": [] }), "status is empty"),
        (json!({ "action": "cancel", "filter": { "status": -2 } }), "refusing to act on everything"),
        (json!({ "action": "drop", "filter": { "queue": "mail" } }), "action must be one of"),
        (json!({ "action": "retry", "filter": { "queue": "mail", "status": [-2] } }), "nothing to retry"),
        (json!({ "action": "retry", "filter": { "queue": "nosuch" } }), "no queue 'nosuch'"),
        (json!({ "action": "retry", "filter": { "queue": "mail", "pid": 7 } }), "unknown param"),
    ] {
        let answer = dci.post("/bulk", body.clone()).await?;
        assert!(answer["error"].as_str().is_some_and(|error| error.contains(message)), "{body}: {answer}");
    }
    let young = json!({ "action": "retry", "filter": { "queue": "mail", "older_than": 7200 } });
    assert_eq!(dci.bulk(young).await?["done"], 0);
    let retried =
        dci.bulk(json!({ "action": "retry", "filter": { "queue": "mail", "older_than": 60 } })).await?;
    assert_eq!((&retried["state"], &retried["done"]), (&json!("done"), &json!(450)), "{retried}");
    assert_eq!(world.count(queue, doc! { "status": -2 }).await?, 450);
    assert_eq!(world.status(good[0]).await?, 1, "what went well is not done again unasked");
    assert_eq!(world.status(foreign[0]).await?, 2, "it is of another queue");
    assert_eq!(number_of(&world, "tasks.attempts").await?, 450);
    let ids = json!([bad[0].to_string(), bad[1].to_string(), good[0].to_string()]);
    let cancelled = dci.bulk(json!({ "action": "cancel", "filter": { "ids": ids } })).await?;
    assert_eq!((&cancelled["done"], &cancelled["total"]), (&json!(2), &json!(2)), "{cancelled}");
    let over =
        dci.post(&format!("/bulk/{}/cancel", cancelled["id"].as_str().unwrap_or("")), json!({})).await?;
    assert_eq!(over["error"], "the bulk job is over: its state is done");
    let all = dci.bulk(json!({ "action": "archive", "filter": { "queue": "*", "status": [1, 2] } })).await?;
    assert_eq!(all["done"], 5, "{all}");
    on_pages(&dci, other, &bad).await?;
    let jobs = dci.get("/bulk?.limit=2").await?;
    assert_eq!(jobs[1]["id"], all["id"], "the latest is the first");
    assert_eq!(jobs.as_array().map(Vec::len), Some(2));
    delete_without_archived(&world, &dci, other).await?;
    world.end().await
}

#[tokio::test]
async fn a_queue_archives_and_deletes_by_its_policy() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "gfs": true, "janitor": { "every": 0.2 } }))?;
    let hello = Script { name: "Hello", text: "#!/bin/sh\necho hello\n" };
    let queue = world.script_queue(hello, 2).await?;
    world.update_queue(queue, doc! { "retention": { "archive_after": 0.5 } }).await?;
    let forever = world.queue("Hello", doc! { "threads": 1 }).await?;
    let kept = world.submit(forever, vec![doc! {}]).await?;
    let _den = world.den("n1")?;
    let ids = world.submit(queue, vec![doc! {}; 3]).await?;
    eventually("three archived tasks", || async {
        let archived = archive(&world).count_documents(doc! { "status": 1 }).await?;
        Ok((archived == 3 && world.count(queue, doc! {}).await? == 0).then_some(()))
    })
    .await?;
    world.until_status(kept[0], 1).await?;

    let dci = Dci::start(&world, "dci").await?;
    let task = dci.get(&format!("/tasks/{}", ids[0])).await?;
    assert_eq!(task["status"], 1, "{task}");
    assert!(task["archived"].is_string() && task["moving"].is_null(), "{task}");
    assert!(task["stdout"]["$oid"].is_string(), "{task}");
    assert_eq!(dci.get(&format!("/tasks?queue={queue}")).await?, json!({}));
    let found = dci.get(&format!("/tasks?queue={queue}&.archive=1&.full=1")).await?;
    assert_eq!(found.as_array().map(Vec::len), Some(3), "{found}");
    assert_eq!(found[0]["stdout"], "hello\n", "{found}");
    assert_eq!(dci.get(&format!("/tasks?queue={queue}&.archive=1&.count=1")).await?, json!({ "count": 3 }));

    let one = json!({ "action": "delete", "filter": { "ids": [ids[0].to_string()] } });
    assert_eq!(dci.bulk(one).await?["done"], 1);
    let gone = dci.get(&format!("/tasks/{}", ids[0])).await?;
    assert_eq!(gone["error"], format!("no task with id {}", ids[0]));
    assert_eq!(number_of(&world, "tasks.files").await?, 6, "those of two archived tasks and of the kept one");
    world.update_queue(queue, doc! { "retention": { "delete_after": 0.5 } }).await?;
    eventually("the policy to delete the rest", || async {
        let left = archive(&world).count_documents(doc! {}).await?;
        Ok((left == 0 && number_of(&world, "tasks.files").await? == 2).then_some(()))
    })
    .await?;
    assert_eq!(number_of(&world, "tasks.chunks").await?, 1);
    world.task(kept[0]).await?;
    world.end().await
}

/// What is left when a mover is killed after its copy.
async fn half_moved(world: &World, id: TaskId) -> anyhow::Result<()> {
    let mut copy = world.task(id).await?;
    copy.extend(doc! { "archived": world.store().now(), "moving": true });
    archive(world).insert_one(copy).await?;
    Ok(())
}

#[tokio::test]
async fn a_mover_that_was_killed_leaves_nothing_lost_and_nothing_twice() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    store.ensure_indexes().await?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
    let ids = ended(&world, queue, 1, 3).await?;
    let [killed, retried, whole] = ids[..] else { anyhow::bail!("three were made") };
    half_moved(&world, killed).await?;
    half_moved(&world, retried).await?;
    let live = world.submit(queue, vec![doc! {}]).await?;
    assert_eq!(store.archive_tasks(&[whole, live[0]]).await?, Archived { moved: 1, stayed: 0 });
    assert_eq!(store.retry_task(retried, "again").await?, Retried::Queued);

    let seen = async |filter: Document| {
        let query = TaskQuery { filter: filter.clone(), archive: true, ..TaskQuery::default() };
        let found = store.search_tasks(query.clone()).await?;
        let count = store.count_query(query).await?;
        ensure!(count == found.len() as u64, "counted {count}, found {found:?}");
        Ok(found.len())
    };
    for _ in 0..2 {
        assert_eq!(seen(doc! { "queue": queue }).await?, 4);
        assert_eq!(seen(doc! { "queue": queue, "status": 1 }).await?, 2, "the retried one is queued");
        assert_eq!(seen(doc! { "queue": queue, "status": -2 }).await?, 2);
        let task = store.find_task_anywhere(retried).await?.context("lost")?;
        assert_eq!(task.get_i32("status")?, -2);
        store.finish_archiving().await?;
    }
    assert_eq!(world.count(queue, doc! {}).await?, 2);
    assert_eq!(archive(&world).count_documents(doc! { "moving": { "$exists": false } }).await?, 2);
    assert_eq!(archive(&world).count_documents(doc! { "_id": retried }).await?, 0);
    // The next run replaces a copy: the task has ended again, otherwise.
    half_moved(&world, retried).await?;
    world.set(retried, doc! { "status": 2, "mtime": world.store().now() }).await?;
    assert_eq!(store.archive_tasks(&[retried]).await?.moved, 1);
    let archived = archive(&world).find_one(doc! { "_id": retried }).await?.context("lost")?;
    assert_eq!((archived.get_i32("status")?, archived.get("moving")), (2, None));
    world.end().await
}

/// Perl's runner first ends a task, and then stores its output; `mtime` stays that of its claim.
#[tokio::test]
async fn a_task_that_perls_runner_ends_stays_until_its_output_is_stored() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    store.ensure_indexes().await?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
    let ids = world.submit(queue, vec![doc! {}; 2]).await?;
    let [ending, abandoned] = ids[..] else { anyhow::bail!("two were made") };
    let claimed_before = async |task: TaskId, hours: i64| {
        let at = DateTime::from_millis(store.now().timestamp_millis() - hours * 3_600_000);
        world.set(task, doc! { "status": 1, "node": "perl", "mtime": at }).await
    };
    claimed_before(ending, 5).await?;
    claimed_before(abandoned, 5).await?;
    let old =
        async || anyhow::Ok(store.ended_before(queue, Place::Tasks, Duration::from_secs(60), 10).await?);
    assert!(old().await?.is_empty(), "their output may come yet");
    claimed_before(abandoned, 25).await?;
    assert_eq!(old().await?, [abandoned], "nobody stores its output any more");

    half_moved(&world, ending).await?;
    world.set(ending, doc! { "stdout": "perl\n", "stderr": Bson::Null, "complete": true }).await?;
    assert_eq!(store.finish_archiving().await?, Archived { moved: 0, stayed: 1 });
    assert_eq!(world.task(ending).await?.get_str("stdout")?, "perl\n");
    assert_eq!(number_of(&world, "tasks.archive").await?, 0);
    assert_eq!(old().await?, [ending, abandoned]);
    world.end().await
}

#[tokio::test]
async fn a_deleter_that_was_killed_leaves_only_what_is_found_again() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    store.ensure_indexes().await?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
    let ids = ended(&world, queue, 1, 2).await?;
    for id in &ids {
        let file = ObjectId::new();
        store.put_output(file, (*id, StreamName::Stdout), Encoding::Text, &b"output"[..]).await?;
        world.set(*id, doc! { "stdout": file }).await?;
        let attempts = world.database().collection::<Document>("tasks.attempts");
        attempts.insert_one(doc! { "task": id, "attempt": 1 }).await?;
    }
    // Killed before anything was deleted, and after the task was.
    let long_ago = DateTime::from_millis(0);
    let tombstones = world.database().collection::<Document>("tasks.deleting");
    for id in &ids {
        tombstones.insert_one(doc! { "_id": id, "at": long_ago, "status": 1, "files": [] }).await?;
    }
    world.tasks().delete_one(doc! { "_id": ids[1] }).await?;
    assert_eq!(store.finish_deleting().await?, 1);
    assert_eq!(number_of(&world, "tasks.files").await?, 1);
    let task = world.task(ids[0]).await?;
    assert_eq!(world.chunks(task.get_object_id("stdout")?).await?.len(), 1, "it keeps its output");
    assert_eq!(store.finish_deleting().await?, 0);

    // A mover that had read the task before it was deleted cannot bring it back.
    half_moved(&world, ids[0]).await?;
    assert_eq!(store.delete_tasks(&ids).await?, 1);
    let mut copy = task;
    copy.insert("moving", true);
    archive(&world).insert_one(copy).await?;
    store.finish_archiving().await?;
    for collection in ["tasks", "tasks.archive", "tasks.files", "tasks.chunks", "tasks.attempts"] {
        assert_eq!(number_of(&world, collection).await?, 0, "{collection}");
    }
    world.end().await
}

#[tokio::test]
async fn policies_are_looked_up_in_an_index_and_no_look_reads_without_bound() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    store.ensure_indexes().await?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
    let old = ended(&world, queue, 7, 6000).await?;
    world.submit(queue, vec![doc! {}; 10]).await?;
    let found = store.ended_before(queue, Place::Tasks, Duration::from_secs(60), 500).await?;
    assert_eq!(found.len(), 500);
    assert!(found.iter().all(|id| old.contains(id)));
    let none = store.ended_before(queue, Place::Tasks, Duration::from_secs(7200), 500).await?;
    assert_eq!(none.len(), 0, "they are too young");
    let age = Duration::from_secs(7200);
    let look = async |store: Store| anyhow::Ok(store.ended_before(queue, Place::Tasks, age, 500).await?);
    let (_, plans) = plans(&world, look).await?;
    for plan in &plans {
        let stages = stages(plan);
        assert!(stages.contains(&"IXSCAN") && !stages.contains(&"COLLSCAN"), "{plan}");
    }
    let examined = plans.iter().filter_map(|plan| most(plan, "totalDocsExamined")).max();
    assert!(examined.is_some_and(|examined| (1..=5000).contains(&examined)), "{examined:?} were read");
    world.end().await
}
