//! With access control, every process works as a user of its own who may do nothing else.

mod doctor;
mod filesets;
mod inbox;
mod keys;
mod perl;
mod schedules;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bson::oid::ObjectId;
use bson::{Document, doc};
use disbatch_core::clock::SystemClock;
use disbatch_core::model::{NodeName, TaskId};
use disbatch_core::node::Beat;
use disbatch_core::series::Point;
use disbatch_core::store::Store;
use disbatch_mongod::server::Server;
use disbatch_mongod::testing::start_ephemeral_with;
use disbatch_tests::{Dci, Script, World, binary, eventually};
use mongodb::error::ErrorKind;
use mongodb::{Client, Database};
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt;
use tokio::process::Command;

const ROOT_PASSWORD: &str = "top: secret";
const ASHLEYS_PASSWORD: &str = "correct horse battery";

/// Who may use the DCI.
const ACCOUNTS: [&str; 3] = ["accounts.users", "accounts.sessions", "accounts.tokens"];

/// A server with access control on which the users have been created.
struct Secured {
    world: World,
    server: Server,
    _keys: TempDir,
}

impl Secured {
    /// A replica set, since change streams need rights of their own.
    async fn new(config: Value) -> anyhow::Result<Self> {
        let keys = tempfile::tempdir()?;
        let key = keys.path().join("key");
        fs::write(&key, "c2VjcmV0IG9mIHRoZSBtZW1iZXJz")?;
        fs::set_permissions(&key, Permissions::from_mode(0o600))?;
        let arguments = vec!["--auth".into(), "--keyFile".into(), key.into_os_string()];
        let server = start_ephemeral_with(true, arguments).await?;
        let password = ROOT_PASSWORD.replace(' ', "%20").replace(':', "%3A");
        let root = server.uri().replace("mongodb://", &format!("mongodb://root:{password}@"));
        let world = World::at(format!("{root}&authSource=admin")).await?;
        let mut all = json!({ "mongohost": server.uri(), "auth": {
            "disbatchd": "d", "disbatch_web": "w", "task_runner": "t", "queuebalance": "q", "plugin": "p",
        } });
        for (key, value) in config.as_object().context("no object")? {
            all[key] = value.clone();
        }
        world.configure(all)?;
        Ok(Self { world, server, _keys: keys })
    }

    /// `disbatch create-users`, with the password on standard input.
    async fn create_users(&self, arguments: &[&str]) -> anyhow::Result<(Option<i32>, String)> {
        let mut child = Command::new(binary("disbatch")?)
            .args(["create-users", "--root_user", "root", "--config"])
            .arg(self.world.config())
            .args(arguments)
            .env_remove("DISBATCH_ROOT_PASSWORD")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        child.stdin.take().context("no stdin")?.write_all(format!("{ROOT_PASSWORD}\n").as_bytes()).await?;
        let output = child.wait_with_output().await?;
        let text = [output.stdout, output.stderr].concat();
        Ok((output.status.code(), String::from_utf8(text)?))
    }

    /// The database as one of the users sees it.
    async fn database_as(&self, user: &str, password: &str) -> anyhow::Result<Database> {
        let name = self.world.database().name();
        let uri = self.server.uri().replace("mongodb://", &format!("mongodb://{user}:{password}@"));
        Ok(Client::with_uri_str(format!("{uri}&authSource={name}")).await?.database(name))
    }
}

async fn disbatch(url: &str, arguments: &[&str]) -> anyhow::Result<String> {
    let output = Command::new(binary("disbatch")?).args(["--url", url]).args(arguments).output().await?;
    let text = String::from_utf8([output.stdout, output.stderr].concat())?;
    anyhow::ensure!(output.status.success(), "{arguments:?}: {text}");
    Ok(text)
}

#[tokio::test]
async fn every_process_works_as_its_own_user() -> anyhow::Result<()> {
    let secured =
        Secured::new(json!({ "gfs": true, "balance": { "enabled": 1 }, "janitor": { "every": 0.2 } }))
            .await?;
    let world = &secured.world;
    let (code, text) = secured.create_users(&["--create_root"]).await?;
    assert_eq!(code, Some(0), "{text}");
    for user in ["disbatchd", "disbatch_web", "task_runner", "queuebalance", "plugin"] {
        assert!(text.contains(&format!("Created user '{user}'")), "{text}");
    }
    assert!(!text.contains(ROOT_PASSWORD));
    let balance = world.database().collection::<Document>("balance");
    balance.insert_one(doc! { "max_tasks": { "* 00:00": 3 }, "queues": [] }).await?;

    let den = world.den_with("n1", &["--balance"])?;
    let log = world.path().join("dci.log");
    let dci = Dci::start(&world.config(), &log).await?;
    let url = dci.url();
    disbatch(url, &["create-queue", "demo", "Disbatch::Plugin::Demo"]).await?;
    disbatch(url, &["update-queue", "demo", "threads", "1"]).await?;
    disbatch(url, &["set-queue", "demo", "record.share=1"]).await?;
    disbatch(url, &["create-task", "demo", "commands", "ab"]).await?;
    let task = world.tasks().find_one(doc! {}).await?.context("no task")?.get_object_id("_id")?;
    let ended = world.until_status(TaskId(task), 1).await;
    let ended = ended.with_context(|| den.log().unwrap_or_default())?;
    assert!(ended.get_object_id("stdout").is_ok(), "{ended}");
    let filter = json!({ "id": task.to_string() }).to_string();
    let shown = disbatch(url, &["tasks", &filter, "--full"]).await?;
    assert!(shown.contains("This is command 'a' for apple."), "{shown}");
    act_on(&dci, world, TaskId(task)).await?;
    archived_and_deleted(&dci, world, task).await?;
    disbatch(url, &["delete-queue", "demo"]).await?;
    people_come_and_go(&dci, world).await?;

    let series = world.database().collection::<Document>("series");
    // By the DEN's user and by the DCI's.
    for noted in [doc! { "succeeded": { "$gte": 1 } }, doc! { "other": { "$gte": 1 } }] {
        eventually("numbers over time", || async { Ok(series.find_one(noted.clone()).await?) }).await?;
    }
    let reports = world.database().collection::<Document>("reports");
    // One for each attempt.
    assert_eq!(reports.count_documents(doc! { "status": "SUCCESS" }).await?, 2);
    eventually("a round of QueueBalance", || async { Ok(balance.find_one(doc! { "status": "OK" }).await?) })
        .await?;
    let log = format!("{}{}", den.log()?, fs::read_to_string(log)?);
    assert!(!log.contains("not authorized") && !log.contains("change stream"), "{log}");
    secured.server.stop().await
}

/// What the DCI does to tasks and nodes needs rights too.
async fn act_on(dci: &Dci, world: &World, task: TaskId) -> anyhow::Result<()> {
    dci.posted(&format!("/tasks/{task}/retry"), &json!({})).await?;
    world.until_status(task, 1).await?;
    let attempts = dci.get(&format!("/tasks/{task}/attempts")).await?;
    anyhow::ensure!(attempts[0]["attempt"] == 1, "{attempts}");
    dci.posted("/nodes/n1", &json!({ "draining": true })).await?;
    let body = json!({
        "queue": "demo", "params": [{ "commands": "a" }], ".unique": "u", ".idempotency_key": "i", ".delay": 600,
    });
    let answer = dci.posted("/tasks", &body).await?;
    let id = answer["MongoDB::InsertManyResult"]["inserted"][0]["_id"]["$oid"].as_str().context("no id")?;
    let other = json!({ "queue": "demo", "params": [{ "a": 1 }], ".unique": "u", ".idempotency_key": "j" });
    let (status, answer) = dci.post("/tasks", &other).await?;
    anyhow::ensure!(status == 409, "{status} {answer}");
    dci.get(&format!("/tasks/{id}/explain")).await?;
    dci.posted(&format!("/tasks/{id}/cancel"), &json!({})).await?;
    Ok(())
}

/// The DEN archives the task, and the DCI deletes it, each as its own user.
async fn archived_and_deleted(dci: &Dci, world: &World, task: ObjectId) -> anyhow::Result<()> {
    let queues = world.database().collection::<Document>("queues");
    let recordings = world.database().collection::<Document>("tasks.recordings");
    let of_task = doc! { "task": task };
    let recorded =
        eventually("a recording", || async { Ok(recordings.find_one(of_task.clone()).await?) }).await?;
    let common = doc! { "_id": recorded.get_str("common")? };
    anyhow::ensure!(recordings.count_documents(common).await? == 1, "{recorded}");
    let policy = doc! { "$set": { "retention": { "archive_after": 0 } } };
    queues.update_one(doc! { "name": "demo" }, policy).await?;
    let archive = world.database().collection::<Document>("tasks.archive");
    eventually("the task in the archive", || async { Ok(archive.find_one(doc! { "_id": task }).await?) })
        .await?;
    let (status, answer) =
        dci.post("/bulk", &json!({ "action": "delete", "filter": { "queue": "demo" } })).await?;
    anyhow::ensure!(status == 202, "{status} {answer}");
    let files = world.database().collection::<Document>("tasks.files");
    eventually("the end of the task's output", || async {
        Ok((files.count_documents(doc! {}).await? == 0).then_some(()))
    })
    .await?;
    eventually("the end of the recordings", || async {
        Ok((recordings.count_documents(of_task.clone()).await? == 0).then_some(()))
    })
    .await?;
    eventually("an empty archive", || async {
        Ok((archive.count_documents(doc! {}).await? == 0).then_some(()))
    })
    .await
}

/// `disbatch` on the database, with the rights of the DCI's user.
async fn direct(world: &World, arguments: &[&str]) -> anyhow::Result<String> {
    let mut command = Command::new(binary("disbatch")?);
    command.args(arguments).arg("--config").arg(world.config());
    let output =
        command.env("DISBATCH_USER_PASSWORD", ASHLEYS_PASSWORD).stdin(Stdio::null()).output().await?;
    let text = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "{arguments:?}: {text}");
    Ok(String::from_utf8(output.stdout)?)
}

/// Users, sessions and tokens are made, used, changed and removed.
async fn people_come_and_go(dci: &Dci, world: &World) -> anyhow::Result<()> {
    let status = async |header: &str, value: &str| -> anyhow::Result<u16> {
        Ok(dci.request(Method::GET, "/queues").header(header, value).send().await?.status().as_u16())
    };
    direct(world, &["user", "add", "ashley", "--admin"]).await?;
    eventually("a DCI that asks who it is", || async {
        Ok((status("accept", "application/json").await? == 401).then_some(()))
    })
    .await?;
    let token = direct(world, &["token", "create", "nightly", "--user", "ashley"]).await?;
    let bearer = format!("Bearer {}", token.trim_end());
    anyhow::ensure!(status("authorization", &bearer).await? == 200, "the token is not taken");
    let fields = [("name", "ashley"), ("password", ASHLEYS_PASSWORD), (".then", "/")];
    let answer = dci.request(Method::POST, "/login").form(&fields).send().await?;
    let cookie = answer.headers().get("set-cookie").with_context(|| format!("no cookie: {answer:?}"))?;
    let cookie = cookie.to_str()?.split(';').next().unwrap_or_default().to_owned();
    // It was used long ago, so its use is written down.
    let sessions = world.database().collection::<Document>("accounts.sessions");
    let long_ago = bson::DateTime::from_millis(0);
    sessions.update_one(doc! {}, doc! { "$set": { "seen": long_ago } }).await?;
    anyhow::ensure!(status("cookie", &cookie).await? == 200, "the session is not taken");
    let session = sessions.find_one(doc! {}).await?.context("no session")?;
    anyhow::ensure!(*session.get_datetime("seen")? > long_ago, "{session}");
    direct(world, &["user", "passwd", "ashley"]).await?;
    anyhow::ensure!(status("cookie", &cookie).await? == 401, "the session has not ended");
    direct(world, &["user", "grant", "ashley", "--role", "viewer"]).await?;
    direct(world, &["token", "revoke", &token[9..33]]).await?;
    anyhow::ensure!(status("authorization", &bearer).await? == 401, "the token is still taken");
    direct(world, &["user", "remove", "ashley"]).await?;
    // By the DEN.
    let tokens = world.database().collection::<Document>("accounts.tokens");
    for (collection, index) in [(&sessions, "user_1"), (&sessions, "expires_1"), (&tokens, "user_1")] {
        let indexes = collection.list_index_names().await?;
        anyhow::ensure!(indexes.iter().any(|name| name == index), "no {index} in {indexes:?}");
    }
    Ok(())
}

/// Tries what must be refused.
async fn refused(database: &Database, commands: Vec<Document>) -> anyhow::Result<()> {
    for command in commands {
        let shown = command.to_string();
        let error = database.run_command(command).await.err().context(format!("{shown} was allowed"))?;
        let unauthorized = matches!(error.kind.as_ref(), ErrorKind::Command(failure) if failure.code == 13);
        assert!(unauthorized, "{shown}: {error}");
    }
    Ok(())
}

fn insert(collection: &str) -> Document {
    doc! { "insert": collection, "documents": [{ "x": 1 }] }
}

fn find(collection: &str) -> Document {
    doc! { "find": collection }
}

fn update(collection: &str) -> Document {
    doc! { "update": collection, "updates": [{ "q": {}, "u": { "$set": { "x": 1 } } }] }
}

fn delete(collection: &str) -> Document {
    doc! { "delete": collection, "deletes": [{ "q": {}, "limit": 0 }] }
}

#[tokio::test]
async fn every_user_is_refused_what_its_process_does_not_need() -> anyhow::Result<()> {
    let secured = Secured::new(json!({})).await?;
    let (code, text) = secured.create_users(&["--create_root"]).await?;
    assert_eq!(code, Some(0), "{text}");
    let everywhere = || vec![doc! { "dropDatabase": 1 }, doc! { "drop": "tasks" }, doc! { "usersInfo": 1 }];
    let cases = [
        ("disbatchd", "d", vec![delete("queues"), update("audit"), insert("queues"), insert("reports")]),
        ("disbatchd", "d", ACCOUNTS.map(insert).to_vec()),
        ("disbatchd", "d", ACCOUNTS.map(update).to_vec()),
        ("disbatch_web", "w", vec![delete("audit"), delete("bulk"), insert("nodes"), insert("reports")]),
        ("disbatch_web", "w", vec![update("audit")]),
        ("queuebalance", "q", vec![insert("audit")]),
        ("task_runner", "t", vec![insert("queues"), insert("tasks"), find("nodes"), insert("reports")]),
        ("task_runner", "t", ACCOUNTS.map(find).to_vec()),
        ("queuebalance", "q", vec![update("tasks"), insert("tasks"), insert("queues"), find("tasks.files")]),
        ("queuebalance", "q", ACCOUNTS.map(find).to_vec()),
        ("plugin", "p", vec![find("tasks"), find("reports"), update("tasks"), find("queues")]),
        ("plugin", "p", ACCOUNTS.map(find).to_vec()),
    ];
    for (user, password, commands) in cases {
        let database = secured.database_as(user, password).await?;
        database.run_command(doc! { "ping": 1 }).await?;
        refused(&database, commands).await.context(user)?;
        refused(&database, everywhere()).await.context(user)?;
    }
    // The second of them changes what the first has made.
    let den = Store::with_clock(secured.database_as("disbatchd", "d").await?, Arc::new(SystemClock));
    for kept in [Some(Duration::from_secs(86_400)), None] {
        den.keep_audit(kept).await?;
    }
    let rated = doc! { "_id": ObjectId::new(), "rate": { "n": 1, "per": 1 } };
    let granted = den.take_starts(&bson::deserialize_from_document(rated)?, None, 1).await?;
    assert_eq!(granted.starts, 1, "starts are counted by DENs");
    secured.server.stop().await
}

/// Users who know only the collections of Disbatch 4.
#[tokio::test]
async fn tasks_are_run_and_orphaned_as_users_that_perl_has_made() -> anyhow::Result<()> {
    let secured = Secured::new(json!({ "lease": 3, "gfs": true })).await?;
    assert_eq!(secured.create_users(&["--create_root"]).await?.0, Some(0));
    let world = &secured.world;
    let may = |collection: &str, actions: &[&str]| {
        let resource = doc! { "db": world.database().name(), "collection": collection };
        doc! { "resource": resource, "actions": actions }
    };
    let den = vec![
        may("nodes", &["find", "insert", "update", "createIndex"]),
        may("queues", &["find", "createIndex"]),
        may("tasks", &["find", "update", "createIndex"]),
        may("tasks.files", &["createIndex"]),
        may("tasks.chunks", &["createIndex"]),
    ];
    let runner = vec![
        may("queues", &["find"]),
        may("tasks", &["find", "update"]),
        may("tasks.files", &["insert", "remove"]),
        may("tasks.chunks", &["insert", "remove"]),
    ];
    for (role, privileges) in [("disbatchd", den), ("task_runner", runner)] {
        let command = doc! { "createRole": format!("perl_{role}"), "privileges": privileges, "roles": [] };
        world.database().run_command(command).await?;
        let roles = vec![format!("perl_{role}")];
        world.database().run_command(doc! { "updateUser": role, "roles": roles }).await?;
    }
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "threads": 1 }).await?;
    let text = "#!/bin/sh\nread -r _ _ _ runner _ < /proc/$PPID/stat\nkill -9 $runner\nsleep 100\n";
    let fatal = world.script_queue(Script { name: "Regicide", text }, 1).await?;
    world.update_queue(fatal, doc! { "on_orphan": "requeue" }).await?;
    let committing = Script { name: "Committing", text: "#!/bin/sh\n" };
    let manifest = json!({ "name": "Committing", "command": ["./run"], "commits": true });
    committing.install_as(&world.plugins(), &manifest)?;
    let committing = world.queue("Committing", doc! { "threads": 1 }).await?;
    let untold = world.submit(committing, vec![doc! {}]).await?[0];
    let good = world.submit(queue, vec![doc! { "commands": "a", "noreport": 1 }]).await?[0];
    let bad = world.submit(fatal, vec![doc! {}]).await?[0];
    let den = world.den("n1")?;
    world.until_status(good, 1).await?;
    world.until_status(bad, -6).await?;
    let untold = world.until_status(untold, 2).await?;
    assert!(untold.get_str("error")?.contains("run disbatch create-users again"), "{untold}");
    let log = den.log()?;
    assert!(!log.contains("cannot work with the database"), "{log}");
    let database = secured.database_as("disbatchd", "d").await?;
    let store = Store::with_clock(database, Arc::new(SystemClock));
    store.heartbeat(&NodeName::new("n2"), &Beat::default()).await?;
    store.flush().await?;
    let ended = |points: &[Point]| points.iter().map(|point| point.numbers.ended.total()).sum::<u64>();
    let points = store.series(None, store.now(), Duration::from_secs(60)).await?;
    assert!(!points.is_empty() && ended(&points) == 0, "{points:?}");
    assert!(store.last_hour().await?.is_empty());
    let series = world.database().collection::<Document>("series");
    assert_eq!(series.count_documents(doc! {}).await?, 0);
    secured.server.stop().await
}

#[tokio::test]
async fn users_are_brought_up_to_date_and_replaced() -> anyhow::Result<()> {
    let secured = Secured::new(json!({})).await?;
    let (code, text) = secured.create_users(&[]).await?;
    assert_eq!(code, Some(255), "there is no root yet: {text}");
    assert!(
        text.contains("cannot work as the MongoDB user 'root': MongoDB refused the credentials"),
        "{text}"
    );
    assert!(
        !text.contains("Kind:") && !text.contains("labels"),
        "a sentence, and nothing of the driver: {text}"
    );
    assert_eq!(secured.create_users(&["--create_root"]).await?.0, Some(0));
    let (code, text) = secured.create_users(&["--create_root"]).await?;
    assert_eq!(code, Some(255), "{text}");
    assert!(text.contains("cannot create user 'root'"), "{text}");

    let folder = tempfile::tempdir()?;
    let (plugin, more) = (folder.path().join("plugin.json"), folder.path().join("more.json"));
    fs::write(&plugin, r#"{ "mail": ["find"], } # no reports"#)?;
    fs::write(&more, r#"{ "task_runner": { "queues": ["update"] } }"#)?;
    let [plugin, more] = [plugin, more].map(|path| path.display().to_string());
    for (options, word) in [(&[][..], "Updated user 'plugin'"), (&["--drop_roles"], "Created user 'plugin'")]
    {
        let permissions = ["--plugin_perms", &plugin, "--additional_perms", &more];
        let (code, text) = secured.create_users(&[&permissions, options].concat()).await?;
        assert_eq!(code, Some(0), "{text}");
        assert!(text.contains(word), "{text}");
        let plugin = secured.database_as("plugin", "p").await?;
        plugin.run_command(find("mail")).await?;
        refused(&plugin, vec![insert("reports")]).await?;
        secured.database_as("task_runner", "t").await?.run_command(update("queues")).await?;
    }
    // Run again without the files, the users may do no more than they should.
    assert_eq!(secured.create_users(&[]).await?.0, Some(0));
    let plugin = secured.database_as("plugin", "p").await?;
    plugin.run_command(insert("reports")).await?;
    refused(&plugin, vec![find("mail")]).await?;
    refused(&secured.database_as("task_runner", "t").await?, vec![update("queues")]).await?;
    secured.server.stop().await
}

#[tokio::test]
async fn a_configuration_that_is_not_there_is_told_once() -> anyhow::Result<()> {
    let arguments = ["create-users", "--config", "/does/not/exist"];
    let output = Command::new(binary("disbatch")?).args(arguments).output().await?;
    let text = String::from_utf8(output.stderr)?;
    assert_eq!(text, "cannot read configuration /does/not/exist: No such file or directory (os error 2)\n");
    assert_eq!(output.status.code(), Some(255));
    Ok(())
}
