//! The inbox: tasks that applications submit by inserts in transactions of their own.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::admission::{Action, NewRule, Scope};
use disbatch_core::config::{Config, Role};
use disbatch_core::inbox::Moved;
use disbatch_core::model::{QueueId, TaskId};
use disbatch_core::schema::{Schema, Schemas};
use disbatch_core::store::Store;
use disbatch_core::task::{Retried, TaskOptions};
use disbatch_tests::{Dci, Script, Server, World, eventually};
use futures::StreamExt;
use mongodb::error::TRANSIENT_TRANSACTION_ERROR;
use mongodb::{ClientSession, Collection};
use nix::sys::signal::Signal;
use serde_json::{Value, json};

mod enqueue;

const QUICK: Script<'_> = Script { name: "Quick", text: "#!/bin/sh\nexit 0\n" };

fn inbox(world: &World) -> Collection<Document> {
    world.database().collection("inbox")
}

fn document(id: ObjectId, queue: QueueId) -> Document {
    doc! { "_id": id, "v": 1, "queue": queue, "params": { "to": "a" } }
}

async fn put(world: &World, queue: QueueId, more: Document) -> anyhow::Result<TaskId> {
    let mut one = document(ObjectId::new(), queue);
    one.extend(more);
    let id = one.get_object_id("_id")?;
    inbox(world).insert_one(one).await?;
    Ok(TaskId(id))
}

async fn until_empty(world: &World) -> anyhow::Result<()> {
    eventually("the inbox to be empty", || async {
        Ok((inbox(world).count_documents(doc! {}).await? == 0).then_some(()))
    })
    .await
}

/// A world with a queue whose tasks nobody runs.
async fn world() -> anyhow::Result<(World, QueueId)> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let queue = world.queue("P", doc! {}).await?;
    Ok((world, queue))
}

async fn moved(store: &Store) -> anyhow::Result<(u64, u64)> {
    let Moved { tasks, refused } = store.move_inbox(&Schemas::default(), None).await?;
    Ok((tasks, refused))
}

/// Why a task was refused: by what, and the reason.
async fn refusal(world: &World, id: TaskId) -> anyhow::Result<(String, String)> {
    let task = world.task(id).await?;
    ensure!(world.status(id).await? == -5, "{task}");
    let refused = task.get_document("refused")?;
    Ok((refused.get_str("by")?.to_owned(), refused.get_str("reason")?.to_owned()))
}

/// A plugin that notes each of its runs in a file.
async fn noting(world: &World, threads: i32) -> anyhow::Result<(QueueId, PathBuf)> {
    let path = world.path().join("runs");
    let text = format!("#!/bin/sh\necho $DISBATCH_TASK_ID >> {}\n", path.display());
    let queue = world.script_queue(Script { name: "Noting", text: &text }, threads).await?;
    Ok((queue, path))
}

fn runs(path: &Path) -> anyhow::Result<Vec<String>> {
    let mut runs: Vec<String> = fs::read_to_string(path)?.lines().map(str::to_owned).collect();
    runs.sort();
    Ok(runs)
}

async fn begin(world: &World) -> anyhow::Result<ClientSession> {
    let mut session = world.database().client().start_session().await?;
    session.start_transaction().await?;
    Ok(session)
}

#[tokio::test]
async fn what_is_committed_runs_once_and_what_is_aborted_never() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (queue, path) = noting(&world, 2).await?;
    let _den = world.den_at_work("n1").await?;
    let orders = world.database().collection::<Document>("people");
    orders.insert_one(doc! { "_id": "stock", "left": 3 }).await?;

    let [committed, aborted, contested] = [0; 3].map(|_| ObjectId::new());
    let mut session = begin(&world).await?;
    orders.insert_one(doc! { "_id": 1, "mail": committed }).session(&mut session).await?;
    inbox(&world).insert_one(document(committed, queue)).session(&mut session).await?;
    let mut other = begin(&world).await?;
    inbox(&world).insert_one(document(aborted, queue)).session(&mut other).await?;
    other.abort_transaction().await?;
    session.commit_transaction().await?;

    // Two want the same at once: the second begins anew, with the same id.
    let take = doc! { "$inc": { "left": -1 } };
    let (mut first, mut second) = (begin(&world).await?, begin(&world).await?);
    orders.update_one(doc! { "_id": "stock" }, take.clone()).session(&mut first).await?;
    inbox(&world).insert_one(document(contested, queue)).session(&mut second).await?;
    let conflict = orders.update_one(doc! { "_id": "stock" }, take.clone()).session(&mut second).await;
    assert!(conflict.unwrap_err().contains_label(TRANSIENT_TRANSACTION_ERROR));
    first.commit_transaction().await?;
    second.abort_transaction().await?;
    second.start_transaction().await?;
    inbox(&world).insert_one(document(contested, queue)).session(&mut second).await?;
    orders.update_one(doc! { "_id": "stock" }, take).session(&mut second).await?;
    second.commit_transaction().await?;

    for task in [committed, contested] {
        eventually("the task", || async {
            Ok(world.tasks().find_one(doc! { "_id": task, "status": 1 }).await?)
        })
        .await?;
    }
    until_empty(&world).await?;
    let mut expected = vec![committed.to_hex(), contested.to_hex()];
    expected.sort();
    assert_eq!(runs(&path)?, expected);
    assert_eq!(world.tasks().count_documents(doc! {}).await?, 2);
    world.end().await
}

#[tokio::test]
async fn a_document_that_was_told_of_is_moved_with_the_others_and_only_while_it_is_there()
-> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let store = world.store();
    let told = document(ObjectId::new(), queue);
    let move_told = async || store.move_inbox(&Schemas::default(), Some(told.clone())).await;
    put(&world, queue, doc! {}).await?;
    move_told().await?;
    assert_eq!(world.tasks().count_documents(doc! {}).await?, 1, "only the other one was in the inbox");
    inbox(&world).insert_one(&told).await?;
    assert_eq!(move_told().await?.tasks, 1);
    let id = TaskId(told.get_object_id("_id")?);
    assert_eq!(world.status(id).await?, -2);
    until_empty(&world).await?;
    // Told once more: by somebody who stood still.
    world.set(id, doc! { "status": 1 }).await?;
    assert_eq!(move_told().await?.tasks, 0);
    assert_eq!(world.status(id).await?, 1);
    assert_eq!(world.tasks().count_documents(doc! {}).await?, 2);
    world.end().await
}

#[tokio::test]
async fn documents_are_decided_about_as_requests_are() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let store = world.store();
    // What only one may have.
    let first = put(&world, queue, doc! { "options": { "unique": "k" } }).await?;
    assert_eq!(moved(&store).await?, (1, 0));
    let second = put(&world, queue, doc! { "options": { "unique": "k" } }).await?;
    assert_eq!(moved(&store).await?, (0, 1));
    let (by, reason) = refusal(&world, second).await?;
    assert!(by == "unique" && reason.ends_with(&first.to_string()), "{by} {reason}");
    // What names a request.
    let keyed = put(&world, queue, doc! { "key": "order 7" }).await?;
    assert_eq!(moved(&store).await?, (1, 0));
    let again = put(&world, queue, doc! { "key": "order 7" }).await?;
    assert_eq!(moved(&store).await?, (0, 1));
    assert_eq!(
        refusal(&world, again).await?,
        ("key".to_owned(), format!("the idempotency key is that of the task {keyed}"))
    );
    // What comes after others, whatever the order of their ids.
    let [early, late] = [ObjectId::new(), ObjectId::new()];
    let chain = [
        doc! { "_id": early, "options": { "after": [late, keyed] } },
        doc! { "_id": late, "options": { "after": first.to_string() } },
    ];
    for link in chain {
        put(&world, queue, link).await?;
    }
    let own = ObjectId::new();
    let own = put(&world, queue, doc! { "_id": own, "options": { "after": [own] } }).await?;
    assert_eq!(moved(&store).await?, (2, 1));
    assert_eq!(refusal(&world, own).await?.0, "after");
    assert_eq!(world.task(TaskId(early)).await?.get_array("waiting_for")?.len(), 2);
    assert_eq!(world.status(TaskId(early)).await?, -4);
    // Rules, and what is held.
    let rule = |action| NewRule {
        scope: Scope::Queue(queue),
        action,
        reason: Some("upgrade".to_owned()),
        by: "anna".to_owned(),
    };
    store.set_rule(&rule(Action::Pause)).await?;
    let held = put(&world, queue, doc! {}).await?;
    assert_eq!(moved(&store).await?, (1, 0));
    assert_eq!(world.task(held).await?.get_str("gate")?, "admission");
    store.set_rule(&rule(Action::Reject)).await?;
    let rejected = put(&world, queue, doc! {}).await?;
    assert_eq!(moved(&store).await?, (0, 1));
    assert_eq!(
        refusal(&world, rejected).await?,
        ("admission".to_owned(), "no new tasks of this queue are taken at the moment: upgrade".to_owned())
    );
    assert_eq!(store.retry_task(rejected, "again").await?, Retried::Refused);
    // What cannot be a task under its own id is one under another.
    inbox(&world).insert_one(doc! { "_id": "seven", "v": 1, "queue": queue, "params": { "a": 1 } }).await?;
    assert_eq!(moved(&store).await?, (0, 1));
    assert_eq!(world.count(queue, doc! { "refused.reason": "_id must be an ObjectId" }).await?, 1);
    until_empty(&world).await?;
    world.end().await
}

#[tokio::test]
async fn of_a_batch_those_get_through_that_a_quota_has_room_for() -> anyhow::Result<()> {
    let (world, _) = world().await?;
    let queue = world.queue("P", doc! { "tenant": "acme" }).await?;
    world
        .database()
        .collection::<Document>("tenants")
        .insert_one(doc! { "_id": "acme", "max_queued": 3_i64 })
        .await?;
    let all: Vec<Document> = (0..5).map(|_| document(ObjectId::new(), queue)).collect();
    inbox(&world).insert_many(&all).await?;
    assert_eq!(moved(&world.store()).await?, (3, 2));
    for (index, one) in all.iter().enumerate() {
        let id = TaskId(one.get_object_id("_id")?);
        match index {
            0..3 => assert_eq!(world.status(id).await?, -2),
            _ => assert_eq!(refusal(&world, id).await?.0, "quota"),
        }
    }
    world.end().await
}

#[tokio::test]
async fn a_document_whose_task_is_there_or_was_is_only_removed() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let store = world.store();
    let tasks = world.submit(queue, vec![doc! { "a": 1 }; 3]).await?;
    for task in &tasks {
        world.set(*task, doc! { "status": 1 }).await?;
    }
    let [there, archived, deleted] = [tasks[0], tasks[1], tasks[2]];
    store.archive_tasks(&[archived]).await?;
    store.delete_tasks(&[deleted]).await?;
    assert_eq!(world.tasks_of(queue).await?.len(), 1);
    for task in [there, archived, deleted] {
        put(&world, queue, doc! { "_id": task.0 }).await?;
    }
    assert_eq!(moved(&store).await?, (0, 0));
    until_empty(&world).await?;
    assert_eq!(world.tasks_of(queue).await?.len(), 1, "nothing was made anew");
    world.end().await
}

/// As an administrator would do it who cleans up while four DENs move the same.
#[tokio::test]
async fn of_many_that_move_the_same_each_task_is_made_once_though_some_are_deleted_meanwhile()
-> anyhow::Result<()> {
    const TASKS: u64 = 3_000;
    let (world, queue) = world().await?;
    let tasks = world.tasks();
    let mut made = tasks.watch().pipeline([doc! { "$match": { "operationType": "insert" } }]).await?;
    let all: Vec<Document> = (0..TASKS).map(|_| document(ObjectId::new(), queue)).collect();
    inbox(&world).insert_many(&all).await?;

    let mover = async || {
        let store = world.store();
        while inbox(&world).find_one(doc! {}).await?.is_some() {
            // Somebody else is at the same documents: whoever is second tries again.
            if let Err(error) = store.move_inbox(&Schemas::default(), None).await {
                ensure!(error.is_transient(), "{error}");
                tokio::task::yield_now().await;
            }
        }
        anyhow::Ok(())
    };
    let cleaner = async {
        let store = world.store();
        let mut deleted = 0;
        while deleted < TASKS / 10 {
            let Some(task) = tasks.find_one(doc! { "queue": queue, "status": -2 }).await? else { continue };
            let id = TaskId(task.get_object_id("_id")?);
            world.set(id, doc! { "status": 1 }).await?;
            deleted += store.delete_tasks(&[id]).await?;
        }
        anyhow::Ok(deleted)
    };
    let (.., deleted) = futures::try_join!(mover(), mover(), mover(), mover(), cleaner)?;
    assert_eq!(world.count(queue, doc! {}).await? as u64 + deleted, TASKS);
    let mut inserted = BTreeSet::new();
    while inserted.len() < all.len() {
        let event = made.next().await.context("the change stream has ended")??;
        let key = event.document_key.context("an insert without a key")?;
        ensure!(inserted.insert(key.get_object_id("_id")?), "{key} was made twice");
    }
    let marker = ObjectId::new();
    tasks.insert_one(doc! { "_id": marker, "queue": queue, "status": 1 }).await?;
    let last = made.next().await.context("the change stream has ended")??;
    assert_eq!(last.document_key, Some(doc! { "_id": marker }), "one was made twice");
    world.end().await
}

#[tokio::test]
async fn what_is_not_understood_is_left_for_an_hour() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let store = world.store();
    let new = put(&world, queue, doc! { "v": 2 }).await?;
    let option = put(&world, queue, doc! { "options": { "urgency": 1 } }).await?;
    // They wait for each other, and would for ever.
    let [one, other] = [ObjectId::new(), ObjectId::new()];
    put(&world, queue, doc! { "_id": one, "options": { "after": [other] } }).await?;
    put(&world, queue, doc! { "_id": other, "options": { "after": [one] } }).await?;
    assert_eq!(moved(&store).await?, (0, 0));
    assert_eq!(inbox(&world).count_documents(doc! { "left": { "$type": "date" } }).await?, 4);
    let left = store.move_left(&Schemas::default()).await?;
    assert_eq!((left.tasks, left.refused), (0, 0), "it is not an hour ago");
    let long_ago = DateTime::from_millis(store.now().timestamp_millis() - 3_600_001);
    inbox(&world).update_many(doc! {}, doc! { "$set": { "left": long_ago } }).await?;
    // A later release may have been faster.
    inbox(&world).update_one(doc! { "_id": new }, doc! { "$set": { "v": 1 } }).await?;
    let left = store.move_left(&Schemas::default()).await?;
    assert_eq!((left.tasks, left.refused), (1, 3));
    assert_eq!(world.status(new).await?, -2);
    assert_eq!(
        refusal(&world, option).await?,
        ("contract".to_owned(), "the option 'urgency' is unknown".to_owned())
    );
    assert_eq!(refusal(&world, TaskId(one)).await?.0, "after");
    world.end().await
}

#[tokio::test]
async fn dens_that_are_killed_lose_nothing_and_run_nothing_twice() -> anyhow::Result<()> {
    const TASKS: usize = 500;
    let world = World::new().await?;
    world.configure(json!({ "lease": 2 }))?;
    let (queue, path) = noting(&world, 20).await?;
    world.store().ensure_indexes().await?;
    let ids: Vec<ObjectId> = (0..TASKS).map(|_| ObjectId::new()).collect();
    // Some of them alone, so that there are many steps to die between.
    let all = ids.iter().enumerate().map(|(index, id)| {
        let mut one = document(*id, queue);
        one.extend(
            (index % 5 == 0).then(|| ("options".to_owned(), doc! { "unique": format!("{index}") }.into())),
        );
        one
    });
    let mut session = begin(&world).await?;
    inbox(&world).insert_many(all.collect::<Vec<_>>()).session(&mut session).await?;
    session.commit_transaction().await?;
    for part in [1, 150, 300] {
        let dens = [world.den("n1")?, world.den("n2")?];
        eventually("some to be moved", || async {
            let left = inbox(&world).count_documents(doc! {}).await?;
            Ok((left <= u64::try_from(TASKS - part)?).then_some(()))
        })
        .await?;
        for den in dens {
            den.end_with(Signal::SIGKILL).await?;
        }
    }
    let _den = world.den("n3")?;
    until_empty(&world).await?;
    let ended = world.until_all_ended(queue).await?;
    let made: BTreeSet<ObjectId> = ended.iter().filter_map(|task| task.get_object_id("_id").ok()).collect();
    assert_eq!(made, ids.iter().copied().collect());
    let runs = runs(&path)?;
    assert_eq!(runs.len(), runs.iter().collect::<BTreeSet<_>>().len(), "one has run twice");
    assert!(usize::try_from(world.count(queue, doc! { "status": 1 }).await?)? <= runs.len());
    world.end().await
}

#[tokio::test]
async fn the_id_of_a_long_transaction_is_claimed_before_newer_ones() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(Script { name: "Slow", text: "#!/bin/sh\nsleep 0.05\n" }, 1).await?;
    let _den = world.den_at_work("n1").await?;
    let backlog = world.submit(queue, vec![doc! { "a": 1 }; 400]).await?;
    world.until_status(backlog[5], 1).await?;
    let seconds = u32::try_from(world.store().now().timestamp_millis() / 1000 - 60)?;
    let old = ObjectId::from_parts(seconds, [7; 5], [0; 3]);
    let old = put(&world, queue, doc! { "_id": old }).await?;
    eventually("the old one", || async {
        Ok(world.tasks().find_one(doc! { "_id": old, "status": 1 }).await?)
    })
    .await?;
    assert!(world.count(queue, doc! { "status": -2 }).await? > 0, "it came last");
    world.update_queue(queue, doc! { "paused": true }).await?;
    world.end().await
}

#[tokio::test]
async fn a_task_is_seen_and_waited_for_before_it_is_moved() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.configure(json!({ "inbox": { "producers": { "shop": { "owner": "shop", "queues": ["q"] } } } }))?;
    world.store().ensure_indexes().await?;
    QUICK.install(&world.plugins())?;
    let queue = world.queue("Quick", doc! { "name": "q", "threads": 1 }).await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let id = put(&world, queue, doc! { "queue": "q", "by": "shop" }).await?;
    let refused = put(&world, queue, doc! { "queue": "q" }).await?;
    let with_files = doc! { "files": { "input": { "name": "x" } } };
    let with_files = put(&world, queue, doc! { "queue": "q", "by": "shop", "options": with_files }).await?;
    let shown = dci.get(&format!("/tasks/{id}")).await?;
    assert_eq!(
        (&shown["status"], &shown["inbox"], &shown["owner"]),
        (&json!(-2), &json!(true), &json!("shop"))
    );
    assert_eq!(
        (&shown["params"], &shown["queue"]["$oid"]),
        (&json!({ "to": "a" }), &json!(queue.to_string()))
    );
    let waited = dci.get(&format!("/tasks/{id}/wait?.timeout=0")).await?;
    assert_eq!((&waited["status"], &waited["ended"]), (&json!(-2), &json!(false)));
    let fields = dci.get(&format!("/tasks/{id}/wait?.timeout=0&.fields=[\"status\",\"inbox\"]")).await?;
    assert_eq!(
        (&fields["fields"]["status"], &fields["fields"]["inbox"]),
        (&json!(-2), &json!(true)),
        "{fields}"
    );
    let (status, _) = dci.post(&format!("/tasks/{id}/cancel"), &json!({})).await?;
    assert_eq!(status, 404, "it can be cancelled when it is moved");

    let paths = [id, refused].map(|id| format!("/tasks/{id}/wait?.timeout=60"));
    let (ran, cancelled, den) =
        tokio::join!(dci.get(&paths[0]), dci.get(&paths[1]), async { world.den("n1") });
    let _den = den?;
    assert_eq!((&ran?["status"], &cancelled?["status"]), (&json!(1), &json!(-5)));
    let shown = dci.get(&format!("/tasks/{refused}")).await?;
    assert_eq!(shown["refused"], json!({ "by": "producer", "reason": "by is missing" }));
    dci.get(&format!("/tasks/{with_files}/wait?.timeout=60")).await?;
    let shown = dci.get(&format!("/tasks/{with_files}")).await?;
    assert_eq!(shown["refused"]["by"], "files", "{shown}");
    assert!(dci.get(&format!("/tasks/{id}")).await?.get("inbox").is_none());
    let told = dci.get(&format!("/tasks/{refused}/explain")).await?;
    assert!(
        told["summary"].as_str().is_some_and(|text| text.contains("refused by producer: by is missing")),
        "{told}"
    );
    let (status, answer) = dci.post(&format!("/tasks/{refused}/retry"), &json!({})).await?;
    assert!(status == 409 && answer["error"] == Retried::WAS_REFUSED, "{status} {answer}");
    world.end().await
}

#[tokio::test]
async fn without_hints_and_without_the_one_that_leads_it_is_moved_all_the_same() -> anyhow::Result<()> {
    for server in [Server::Standalone, Server::ReplicaSet] {
        let world = World::on(server).await?;
        let queue = world.script_queue(QUICK, 2).await?;
        if let Server::ReplicaSet = server {
            let lease = doc! { "_id": "inbox", "instance": "somebody", "until": DateTime::MAX };
            world.database().collection::<Document>("leases").insert_one(lease).await?;
        }
        let _den = world.den_at_work("n1").await?;
        let id = put(&world, queue, doc! {}).await?;
        eventually("the task", || async {
            Ok(world.tasks().find_one(doc! { "_id": id, "status": 1 }).await?)
        })
        .await?;
        until_empty(&world).await?;
        world.end().await?;
    }
    Ok(())
}

/// The contract with applications, as a DEN keeps it.
#[tokio::test]
async fn the_contract_is_kept() -> anyhow::Result<()> {
    let read = |name: &str| -> anyhow::Result<Value> {
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../contract").join(name);
        Ok(serde_json::from_str(&fs::read_to_string(path)?)?)
    };
    let schema = Schema::compile(&read("inbox.schema.json")?)?;
    let vectors = read("inbox.vectors.json")?;
    let world = World::new().await?;
    world
        .configure(json!({ "inbox": { "producers": { "shop": { "owner": "shop", "tenant": "acme" } } } }))?;
    let params = json!({ "type": "object", "properties": { "to": { "type": "string" } } });
    let mail = json!({ "name": "Mail", "command": ["./run"], "params": params });
    Script { name: "Mail", text: "#!/bin/sh\n" }.install_as(&world.plugins(), &mail)?;
    for (name, more) in [
        ("mail", doc! {}),
        ("theirs", doc! { "tenant": "other" }),
        ("closed", doc! { "accepting": false, "reason": "moving" }),
    ] {
        let mut queue = doc! { "name": name, "threads": 0 };
        queue.extend(more);
        world.queue("Mail", queue).await?;
    }
    let den = world.den_at_work("n1").await?;
    for vector in vectors["vectors"].as_array().context("no vectors")? {
        let (name, id) = (vector["name"].as_str().context("no name")?, ObjectId::new());
        let mut document = vector["document"].clone();
        document["_id"] = json!({ "$oid": id.to_hex() });
        let until = Instant::now() + Duration::from_secs(5);
        assert_eq!(schema.check(&document, until).is_ok(), vector["valid"] == json!(true), "{name}");
        let Bson::Document(document) = Bson::try_from(document)? else { panic!("{name}") };
        inbox(&world).insert_one(document).await?;
        let task = eventually(name, || async {
            let left = inbox(&world).find_one(doc! { "_id": id, "left": { "$exists": true } }).await?;
            Ok(left.or(world.tasks().find_one(doc! { "_id": id }).await?))
        })
        .await?;
        if let Some(reason) = vector["left"].as_str() {
            assert!(task.contains_key("left"), "{name}: {task}");
            ensure!(den.log()?.contains(reason), "{name}: {}", den.log()?);
        } else if let Some([by, reason]) = vector["refused"].as_array().map(Vec::as_slice) {
            let refused = refusal(&world, TaskId(id)).await.context(name.to_owned())?;
            assert_eq!(json!(refused.0), *by, "{name}: {refused:?}");
            assert!(refused.1.starts_with(reason.as_str().context("no reason")?), "{name}: {refused:?}");
        } else {
            let shown = Bson::Document(task).into_relaxed_extjson();
            for (field, value) in vector["task"].as_object().context("no outcome")? {
                assert_eq!(shown.get(field).unwrap_or(&Value::Null), value, "{name}: {field} of {shown}");
            }
        }
    }
    world.end().await
}

/// The store of a process with the world's configuration.
#[tokio::test]
async fn whose_tasks_are_follows_from_the_configuration() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let producers = json!({ "shop": { "owner": "shop", "tenant": "acme" }, "other": { "tenant": "other" } });
    world.configure(json!({ "inbox": { "producers": producers } }))?;
    let store = Store::connect(&Config::load(&world.config())?, Role::Disbatchd).await?;
    let own = world.queue("P", doc! { "tenant": "acme" }).await?;
    let parent =
        world.store().submit_tasks(own, vec![doc! { "a": 1 }], &TaskOptions::default()).await?.ids[0];
    let after = doc! { "after": [parent] };
    let of_shop = put(&world, queue, doc! { "by": "shop", "options": after.clone() }).await?;
    let of_other = put(&world, queue, doc! { "by": "other", "options": after }).await?;
    assert_eq!(moved(&store).await?, (1, 1));
    let task = world.task(of_shop).await?;
    assert_eq!((task.get_str("owner")?, task.get_str("tenant")?), ("shop", "acme"));
    // It learns nothing of tasks of other tenants.
    let (by, reason) = refusal(&world, of_other).await?;
    assert_eq!((by.as_str(), reason), ("after", format!("there are no tasks with these ids: {parent}")));
    assert_eq!(world.task(of_other).await?.get_str("tenant")?, "other");
    // Nor of those that come at the same time.
    let first = document(ObjectId::new(), own);
    let parent = first.get_object_id("_id")?;
    let by = |by: &str, mut one: Document| {
        one.insert("by", by);
        one
    };
    let next = || doc! { "options": { "after": [parent] } };
    let behind = |who: &str| {
        let mut one = by(who, document(ObjectId::new(), queue));
        one.extend(next());
        one
    };
    let all = [by("shop", first), behind("shop"), behind("other")];
    let ids =
        all.iter().map(|one| Ok(TaskId(one.get_object_id("_id")?))).collect::<anyhow::Result<Vec<_>>>()?;
    inbox(&world).insert_many(&all).await?;
    assert_eq!(moved(&store).await?, (2, 1));
    assert_eq!((world.status(ids[0]).await?, world.status(ids[1]).await?), (-2, -4));
    assert_eq!(refusal(&world, ids[2]).await?.0, "after");
    world.end().await
}

/// Whoever looks whether a task is there that another one comes after may do so just before somebody else moves it.
#[tokio::test]
async fn of_many_that_move_the_same_none_takes_what_comes_for_what_is_missing() -> anyhow::Result<()> {
    const PAIRS: usize = 400;
    let (world, queue) = world().await?;
    let mut all = Vec::new();
    for number in 0..PAIRS {
        let (parent, child) = (document(ObjectId::new(), queue), document(ObjectId::new(), queue));
        let mut child = child;
        child.insert("options", doc! { "after": [parent.get_object_id("_id")?] });
        // Some come before what they come after.
        all.extend(if number % 2 == 0 { [parent, child] } else { [child, parent] });
    }
    inbox(&world).insert_many(&all).await?;
    let mover = async || {
        let (store, mut refused) = (world.store(), 0);
        while inbox(&world).find_one(doc! { "left": null }).await?.is_some() {
            match store.move_inbox(&Schemas::default(), None).await {
                Ok(moved) => refused += moved.refused,
                Err(error) => ensure!(error.is_transient(), "{error}"),
            }
        }
        anyhow::Ok(refused)
    };
    let refused = futures::try_join!(mover(), mover(), mover())?;
    assert_eq!(refused, (0, 0, 0));
    // What was left in passing is for the next look at it.
    world.store().move_left(&Schemas::default()).await?;
    assert_eq!(world.count(queue, doc! {}).await?, 2 * PAIRS as u64);
    assert_eq!(world.count(queue, doc! { "status": -5 }).await?, 0);
    world.end().await
}
