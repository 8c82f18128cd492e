//! Plugins that end their tasks in transactions of their own: effects are there exactly once, whoever dies and whenever.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use anyhow::Context;
use bson::{Bson, Document, doc};
use disbatch_core::files::SetName;
use disbatch_core::model::{QueueId, Status, TaskId};
use disbatch_core::task::{Buried, CancelRequest, Commit, Evidence};
use disbatch_tests::{Dci, Script, Server, World, binary, eventually};
use mongodb::Collection;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

use crate::filesets::{files_of, submit};

/// What the page about plugins shows.
const PAGE: &str = include_str!("../../../docs/plugins.md");

/// Does what the page shows, and stands still where `params.stop` says: before its transaction, before the end of it, or after it. The file
/// `params.at` has the id of its runner when it does.
const STOPPING: &str = r#"#!/usr/bin/env python3
import os, sys, time
from disbatch.plugin import Task, run
from pymongo import MongoClient

def work(task: Task) -> None:
    client = MongoClient(os.environ["SHOP_MONGODB_URL"])
    effects = client[os.environ["DISBATCH_DATABASE"]]["people"]

    def stand(where):
        if task.params.get("stop") == where and task.attempt == 1:
            with open(task.params["at"] + ".new", "w") as file:
                file.write(str(os.getpid()))
            os.rename(task.params["at"] + ".new", task.params["at"])
            while not os.path.exists(task.params["at"] + ".go"):
                time.sleep(0.02)

    def move(session):
        effects.insert_one({"task": task.id, "attempt": task.attempt}, session=session)
        stand("inside")
        task.commit(session, task.params.get("status", 1))

    if "leaves" in task.params:
        with open("left", "w") as file:
            file.write(task.params["leaves"])
    stand("before")
    with client.start_session() as session:
        session.with_transaction(move)
    stand("after")
    print("done")
    sys.exit(task.params.get("exit", 0))

run(work)
"#;

/// A file that the page shows.
pub fn shown(file: &str) -> anyhow::Result<&'static str> {
    let (_, after) = PAGE.split_once(&format!("<!-- file: {file} -->\n```")).context(file.to_owned())?;
    let (_, text) = after.split_once('\n').context("no block")?;
    Ok(text.split_once("\n```\n").context("no end")?.0)
}

struct Shop {
    world: World,
    stopping: QueueId,
}

impl Shop {
    /// A world whose plugins find the library for Python, MongoDB's driver, and the server.
    async fn new() -> anyhow::Result<Self> {
        let world = World::on(Server::ReplicaSet).await?;
        let clients = Path::new(env!("CARGO_MANIFEST_DIR")).join("../clients");
        let driver =
            std::process::Command::new("python3").arg(clients.join("conformance/tools.py")).output()?;
        let driver = String::from_utf8(driver.stdout)?.trim().to_owned();
        assert!(Path::new(&driver).is_dir(), "scripts/prepare clients installs what this needs");
        let path = format!("{}:{driver}", clients.join("python/src").canonicalize()?.display());
        let secrets = world.path().join("environment");
        std::fs::create_dir_all(&secrets)?;
        let secret = |name: &str, value: &str| -> anyhow::Result<()> {
            std::fs::write(secrets.join(name), value)?;
            Ok(std::fs::set_permissions(
                secrets.join(name),
                std::os::unix::fs::PermissionsExt::from_mode(0o600),
            )?)
        };
        secret("url", world.uri())?;
        secret("path", &path)?;
        let plugins = ["Shop::Transfer", "Stopping", "Rust"];
        world.configure(json!({
            "secrets_dir": secrets,
            "secret_environment": {
                "url": { "variable": "SHOP_MONGODB_URL", "plugins": plugins },
                "path": { "variable": "PYTHONPATH", "plugins": plugins },
            },
        }))?;
        world.database().create_collection("people").await?;
        let stopping = Script { name: "Stopping", text: STOPPING };
        let manifest = json!({ "name": "Stopping", "command": ["./run"], "commits": true });
        stopping.install_as(&world.plugins(), &manifest)?;
        let rules = doc! { "threads": 4, "on_orphan": "requeue", "max_attempts": 3, "backoff": 0.1 };
        let stopping = world.queue("Stopping", rules).await?;
        Ok(Self { world, stopping })
    }

    fn at(&self) -> PathBuf {
        self.world.path().join("at")
    }

    /// Submits one, with `params.at`.
    async fn submit(&self, mut params: Document) -> anyhow::Result<TaskId> {
        params.insert("at", self.at().display().to_string());
        Ok(self.world.submit(self.stopping, vec![params]).await?[0])
    }

    /// Waits until its plugin stands still, and returns the process.
    async fn until_it_stands(&self) -> anyhow::Result<Pid> {
        let at = self.at();
        eventually("the plugin to stand still", || async {
            let text = std::fs::read_to_string(&at).ok();
            Ok(text.and_then(|text| text.parse().ok()).map(Pid::from_raw))
        })
        .await
    }

    fn go_on(&self) -> anyhow::Result<()> {
        Ok(std::fs::write(self.at().with_extension("go"), "")?)
    }

    /// The attempts whose effects are there.
    async fn effects(&self, task: TaskId) -> anyhow::Result<Vec<i64>> {
        let effects: Collection<Document> = self.world.database().collection("people");
        let attempts = effects.distinct("attempt", doc! { "task": task.to_string() }).await?;
        assert_eq!(effects.count_documents(doc! { "task": task.to_string() }).await?, attempts.len() as u64);
        Ok(attempts.iter().filter_map(disbatch_core::model::whole_number).collect())
    }

    /// Kills the runner of a task.
    async fn kill_runner(&self, task: TaskId) -> anyhow::Result<()> {
        let pid = self.world.task(task).await?.get_i64("pid")?;
        Ok(kill(Pid::from_raw(i32::try_from(pid)?), Signal::SIGKILL)?)
    }
}

fn last_note(task: &Document) -> &str {
    let last = task.get_array("history").ok().and_then(|history| history.last()?.as_document());
    last.and_then(|entry| entry.get_str("note").ok()).unwrap_or_default()
}

#[tokio::test]
async fn what_the_page_shows_moves_money_once() -> anyhow::Result<()> {
    let shop = Shop::new().await?;
    let folder = shop.world.plugins().join("transfer");
    std::fs::create_dir_all(&folder)?;
    for file in ["plugin.json", "transfer.py"] {
        // Tests share a server, and with it the database that the page names.
        let text = shown(&format!("transfer/{file}"))?
            .replace("client[\"shop\"]", "client[os.environ[\"DISBATCH_DATABASE\"]]");
        std::fs::write(folder.join(file), text.replace("[\"accounts\"]", "[\"people\"]"))?;
        std::fs::set_permissions(folder.join(file), std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    }
    let queue = shop.world.queue("Shop::Transfer", doc! { "threads": 4 }).await?;
    let accounts: Collection<Document> = shop.world.database().collection("people");
    accounts.insert_one(doc! { "_id": "ann", "balance": 100 }).await?;
    let params = doc! { "amount": 7, "from": "ann", "to": "bob" };
    // They meet in the same accounts: transactions conflict, and are repeated.
    shop.world.submit(queue, vec![params; 6]).await?;
    let _den = shop.world.den("n1")?;
    for task in shop.world.until_all_ended(queue).await? {
        assert_eq!(task.get_i32("status")?, 1, "{task}");
    }
    let balance = async |of: &str| -> anyhow::Result<Option<i64>> {
        let account = accounts.find_one(doc! { "_id": of }).await?;
        Ok(account.and_then(|account| account.get("balance").and_then(disbatch_core::model::whole_number)))
    };
    assert_eq!((balance("ann").await?, balance("bob").await?), (Some(58), Some(42)));
    shop.world.end().await
}

#[tokio::test]
async fn a_runner_that_is_killed_after_the_commit_has_ended_its_task() -> anyhow::Result<()> {
    let shop = Shop::new().await?;
    let _den = shop.world.den("n1")?;
    for status in [1, 7] {
        let task = shop.submit(doc! { "stop": "after", "status": status }).await?;
        shop.until_it_stands().await?;
        shop.kill_runner(task).await?;
        let ended = shop.world.until_status(task, status.into()).await?;
        assert_eq!(shop.effects(task).await?, [1]);
        assert!(
            last_note(&ended).starts_with(&format!("its plugin had committed status {status}; its runner")),
            "{ended}"
        );
        assert_eq!(
            ended.get("attempt").and_then(disbatch_core::model::whole_number),
            Some(1),
            "never tried again"
        );
        std::fs::remove_file(shop.at())?;
    }
    shop.world.end().await
}

#[tokio::test]
async fn files_are_left_by_the_status_that_was_committed() -> anyhow::Result<()> {
    let shop = Shop::new().await?;
    let store = shop.world.store();
    store.ensure_indexes().await?;
    let _den = shop.world.den("n1")?;
    let files = doc! { "output": { "name": "left", "patterns": ["left"] } };
    let params = doc! { "leaves": "all", "exit": 3 };
    let badly = submit(&shop.world, shop.stopping, params, files.clone()).await?;
    let ended = shop.world.until_status(badly, 1).await?;
    assert!(last_note(&ended).starts_with("its plugin had committed status 1; "), "{ended}");
    let name: SetName = "left".parse()?;
    let set = store.fileset_latest(&name).await?.context("no set")?;
    assert_eq!(files_of(&store, &set).await?, BTreeMap::from([("left".to_owned(), b"all".to_vec())]));
    let well = submit(&shop.world, shop.stopping, doc! { "leaves": "more", "status": 7 }, files).await?;
    shop.world.until_status(well, 7).await?;
    let newest = store.fileset_latest(&name).await?.context("no set")?;
    assert_eq!((newest.version, newest.task), (set.version, Some(badly)));
    shop.world.end().await
}

#[tokio::test]
async fn a_runner_that_is_killed_before_the_commit_has_done_nothing() -> anyhow::Result<()> {
    let shop = Shop::new().await?;
    let _den = shop.world.den("n1")?;
    let task = shop.submit(doc! { "stop": "before" }).await?;
    shop.until_it_stands().await?;
    shop.kill_runner(task).await?;
    shop.world.until_status(task, 1).await?;
    assert_eq!(shop.effects(task).await?, [2], "the next attempt has done it");
    shop.world.end().await
}

#[tokio::test]
async fn a_plugin_that_has_lost_its_task_cannot_commit() -> anyhow::Result<()> {
    let shop = Shop::new().await?;
    let den = shop.world.den("n1")?;
    let task = shop.submit(doc! { "stop": "before" }).await?;
    shop.until_it_stands().await?;
    // Somebody who does not hear of the node takes the task away, and the plugin goes on.
    den.signal(Signal::SIGSTOP)?;
    let store = shop.world.store();
    let run = store.find_task(task).await?.context("no task")?;
    assert_eq!(store.bury(&run, Evidence::ProcessGone, "it seemed so").await?, Buried::Again);
    shop.go_on()?;
    den.signal(Signal::SIGCONT)?;
    shop.world.until_status(task, 1).await?;
    assert_eq!(shop.effects(task).await?, [2]);
    shop.world.end().await
}

#[tokio::test]
async fn an_open_transaction_is_waited_for() -> anyhow::Result<()> {
    let shop = Shop::new().await?;
    let _den = shop.world.den("n1")?;
    let task = shop.submit(doc! { "stop": "inside" }).await?;
    shop.until_it_stands().await?;
    let name = disbatch_core::task::commit_name(task, 1);
    let database = shop.world.database();
    let mut session = database.client().start_session().await?;
    session.start_transaction().await?;
    let commits: Collection<Document> = database.collection("tasks.commits");
    commits.insert_one(doc! { "_id": &name, "status": 3 }).session(&mut session).await?;
    let store = shop.world.store();
    let run = store.find_task(task).await?.context("no task")?;
    assert_eq!(store.bury(&run, Evidence::ProcessGone, "it seemed so").await?, Buried::Open);
    assert_eq!(shop.world.status(task).await?, 0, "nothing has changed");
    session.commit_transaction().await?;
    // What it wanted to commit by itself comes too late, and so does its exit status.
    shop.go_on()?;
    let ended = shop.world.until_status(task, 3).await?;
    assert_eq!(shop.effects(task).await?, Vec::<i64>::new());
    assert_eq!(ended.get("attempt").and_then(disbatch_core::model::whole_number), Some(1), "{ended}");
    shop.world.end().await
}

#[tokio::test]
async fn what_was_committed_stands() -> anyhow::Result<()> {
    let shop = Shop::new().await?;
    let _den = shop.world.den("n1")?;
    let failed = shop.submit(doc! { "exit": 5 }).await?;
    let ended = shop.world.until_status(failed, 1).await?;
    assert_eq!(ended.get_str("stdout")?, "done\n");
    assert_eq!(ended.get_document("exit")?.get_i32("code")?, 5);
    assert_eq!(last_note(&ended), "its plugin had committed status 1; its plugin ended otherwise");
    let cancelled = shop.submit(doc! { "stop": "after" }).await?;
    let plugin = shop.until_it_stands().await?;
    let by = CancelRequest { by: "ada".to_owned(), reason: None };
    shop.world.store().cancel_task(cancelled, &by).await?;
    let ended = shop.world.until_status(cancelled, 1).await?;
    assert_eq!(last_note(&ended), "its plugin had committed status 1; cancelled");
    assert!(kill(plugin, None).is_err(), "its process was ended all the same");
    assert_eq!((shop.effects(failed).await?, shop.effects(cancelled).await?), (vec![1], vec![1]));
    shop.world.end().await
}

/// With the document that the library for Rust makes. Those for other languages do the same in `clients/conformance/cases/plugins.json`.
#[tokio::test]
async fn a_plugin_in_rust_ends_its_task_with_its_effects_or_neither_is_there() -> anyhow::Result<()> {
    let shop = Shop::new().await?;
    let text = format!("#!/bin/sh\nexec {}\n", binary("examples/commits")?.display());
    let manifest = json!({ "name": "Rust", "command": ["./run"], "commits": true });
    Script { name: "Rust", text: &text }.install_as(&shop.world.plugins(), &manifest)?;
    let rules = doc! { "threads": 4, "max_attempts": 2, "backoff": 0.1 };
    let queue = shop.world.queue("Rust", rules).await?;
    let cases = [("", 1), ("fail", 1), ("again", 1), ("abort", 2)];
    let params = cases.iter().map(|(then, _)| doc! { "then": *then }).collect();
    let ids = shop.world.submit(queue, params).await?;
    let _den = shop.world.den("n1")?;
    for (task, (then, attempt)) in ids.into_iter().zip(cases) {
        let ended = shop.world.until_status(task, 1).await?;
        assert_eq!(shop.effects(task).await?, [attempt], "{then}: {ended}");
        let last = ended.get("attempt").and_then(disbatch_core::model::whole_number);
        assert_eq!(last, Some(attempt), "{then}: {ended}");
        let stderr = ended.get_str("stderr").unwrap_or_default();
        let expected = match then {
            "fail" => "too late",
            "again" => "11000",
            _ => "",
        };
        assert!(stderr.contains(expected), "{then}: {ended}");
    }
    shop.world.end().await
}

#[tokio::test]
async fn what_an_attempt_comes_to_is_decided_once() -> anyhow::Result<()> {
    let world = World::on(Server::ReplicaSet).await?;
    let store = world.store();
    let task = TaskId(bson::oid::ObjectId::new());
    let commits: Collection<Document> = world.database().collection("tasks.commits");
    let committed = |attempt, status: i32| doc! { "_id": disbatch_core::task::commit_name(task, attempt), "status": status };
    assert_eq!(store.settle_commit(task, 1).await?, Commit::Never);
    assert!(commits.insert_one(committed(1, 1)).await.is_err(), "too late");
    commits.insert_one(committed(2, 1)).await?;
    for _ in 0..2 {
        assert_eq!(store.settle_commit(task, 1).await?, Commit::Never);
        assert_eq!(store.settle_commit(task, 2).await?, Commit::Done(Status::Succeeded));
    }
    let settled = commits.find_one(committed(2, 1)).await?.context("gone")?;
    assert!(
        matches!(settled.get("settled"), Some(Bson::DateTime(_))),
        "the server removes it some day: {settled}"
    );
    world.end().await
}

/// What is not said to commit is not looked for, and has no name to do it by.
#[tokio::test]
async fn only_who_says_so_may_commit() -> anyhow::Result<()> {
    let shop = Shop::new().await?;
    let script = Script { name: "Quiet", text: "#!/bin/sh\necho \"[$DISBATCH_COMMIT$DISBATCH_DATABASE]\"\n" };
    let queue = shop.world.script_queue(script, 1).await?;
    let task = shop.world.submit(queue, vec![doc! {}]).await?[0];
    let _den = shop.world.den("n1")?;
    let ended = shop.world.until_status(task, 1).await?;
    assert_eq!(ended.get_str("stdout")?, "[]\n");
    let commits: Collection<Document> = shop.world.database().collection("tasks.commits");
    assert_eq!(commits.count_documents(doc! {}).await?, 0);
    let dci = Dci::start(&shop.world.config(), &shop.world.path().join("dci.log")).await?;
    assert_eq!(dci.get(&format!("/tasks/{task}")).await?["status"], 1);
    shop.world.end().await
}
