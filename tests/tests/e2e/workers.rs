//! Plugins that the database defines: nodes learn of them, run those that they may, and nothing else.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use bson::{Bson, Document, doc};
use disbatch_core::model::TaskId;
use disbatch_tests::{Dci, Script, Server, World, always, eventually};
use nix::sys::signal::Signal;
use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What the service says to whoever asks it.
const WORDS: &str = "there is no tea";

/// What a service was asked, in small letters.
type Asked = Arc<Mutex<Vec<String>>>;

/// A web service that takes no job. Returns its address, and what it is asked.
async fn service() -> anyhow::Result<(String, Asked)> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = format!("http://{}/job", listener.local_addr()?);
    let asked = Asked::default();
    let all = Arc::clone(&asked);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // Who has not sent all of a request has another try.
            if let Ok(request) = refuse(stream).await {
                lock(&all).push(request.to_lowercase());
            }
        }
    });
    Ok((address, asked))
}

/// Reads one request, and answers that it does not.
async fn refuse(mut stream: TcpStream) -> anyhow::Result<String> {
    let mut request = String::new();
    let mut piece = vec![0; 16 * 1024];
    loop {
        let read = stream.read(&mut piece).await?;
        ensure!(read > 0, "the request ends early: {request}");
        request.push_str(std::str::from_utf8(&piece[..read])?);
        let Some((head, body)) = request.split_once("\r\n\r\n") else { continue };
        let head = head.to_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next());
        let length: usize = length.context("no length")?.trim().parse()?;
        if body.len() >= length {
            break;
        }
    }
    let length = WORDS.len();
    let answer = format!(
        "HTTP/1.1 500 Internal Server Error\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{WORDS}"
    );
    stream.write_all(answer.as_bytes()).await?;
    Ok(request)
}

fn lock(asked: &Asked) -> MutexGuard<'_, Vec<String>> {
    asked.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A node that may ask web services.
fn configure(world: &World) -> anyhow::Result<()> {
    world.configure(json!({ "engines": { "http": { "callback_url": "http://127.0.0.1:1" } } }))
}

/// Waits until the task has come back from the service.
async fn until_asked(world: &World, task: TaskId) -> anyhow::Result<()> {
    let task = world.until_status(task, 2).await?;
    let stderr = task.get_str("stderr").unwrap_or_default();
    ensure!(stderr.contains("500") && stderr.contains(WORDS), "{task}");
    Ok(())
}

async fn plugins_of(world: &World, node: &str) -> anyhow::Result<Vec<String>> {
    let nodes = world.database().collection::<Document>("nodes");
    let entry = nodes.find_one(doc! { "node": node }).await?.unwrap_or_default();
    let plugins = entry.get_array("plugins").into_iter().flatten();
    Ok(plugins.filter_map(Bson::as_str).map(str::to_owned).collect())
}

#[tokio::test]
async fn a_queue_waits_for_its_plugin_to_be_defined() -> anyhow::Result<()> {
    let world = World::new().await?;
    configure(&world)?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let (url, asked) = service().await?;
    let queue = world.queue("My::Tea", doc! { "threads": 1 }).await?;
    let ids = world.submit(queue, vec![doc! { "sugar": 2 }; 2]).await?;
    let den = world.den_at_work("n1").await?;
    eventually("a word about the missing plugin", || async {
        Ok(den.log()?.contains("plugin My::Tea is not available on this node").then_some(()))
    })
    .await?;
    assert_eq!(world.status(ids[0]).await?, -2);
    let definition = json!({
        "_id": "My::Tea", "engine": "http", "http": { "url": url, "headers": { "X-Milk": "none" } },
    });
    let (status, made) = dci.post("/workers", &definition).await?;
    ensure!(status == 201, "{made}");
    for id in &ids {
        until_asked(&world, *id).await?;
    }
    let requests = lock(&asked).clone();
    ensure!(requests.len() == 2, "{requests:?}");
    for request in requests {
        ensure!(request.starts_with("post /job ") && request.contains("x-milk: none"), "{request}");
    }
    eventually("the node to say that it has it", || async {
        Ok(plugins_of(&world, "n1").await?.contains(&"My::Tea".to_owned()).then_some(()))
    })
    .await?;
    // What is changed holds for the next task, and what is removed is not there any more.
    let change = json!({ "engine": "http", "http": { "url": url, "headers": { "X-Milk": "much" } } });
    dci.request(Method::PUT, "/workers/My::Tea").json(&change).send().await?.error_for_status()?;
    let again = eventually("the change to be known", || async {
        let id = world.submit(queue, vec![doc! {}]).await?[0];
        until_asked(&world, id).await?;
        let last = lock(&asked).pop().unwrap_or_default();
        Ok(last.contains("x-milk: much").then_some(id))
    });
    again.await?;
    dci.request(Method::DELETE, "/workers/My::Tea").send().await?.error_for_status()?;
    eventually("the node to have it no more", || async {
        Ok((!plugins_of(&world, "n1").await?.contains(&"My::Tea".to_owned())).then_some(()))
    })
    .await?;
    let id = world.submit(queue, vec![doc! {}]).await?[0];
    always("it waits", Duration::from_secs(1), || async { Ok(world.status(id).await? == -2) }).await?;
    world.end().await
}

#[tokio::test]
async fn definitions_of_another_scheduler_are_plugins_as_they_stand() -> anyhow::Result<()> {
    // Without hints, too.
    for server in [Server::ReplicaSet, Server::Standalone] {
        let world = World::on(server).await?;
        configure(&world)?;
        let (url, asked) = service().await?;
        let den = world.den_at_work("n1").await?;
        let workers = world.database().collection::<Document>("workers");
        let document = doc! { "_id": "tea", "_rev": "2-ea", "worker": {
            "name": "Tea", "description": "Makes tea.", "engine": "webservice", "url": &url,
            "httpHeaders": { "X-Milk": "none" },
        } };
        workers.insert_one(document).await?;
        let queue = world.queue("tea", doc! { "threads": 1 }).await?;
        let id = world.submit(queue, vec![doc! { "sugar": 2 }]).await?[0];
        until_asked(&world, id).await?;
        let request = lock(&asked).pop().unwrap_or_default();
        ensure!(request.contains("x-milk: none") && request.contains("\"sugar\":2"), "{request}");
        den.end_with(Signal::SIGTERM).await?;
        // A runner by itself reads it, too.
        let id = world.claimed(queue, doc! { "sugar": 3 }, "n1").await?;
        let ended = world.dtr(&id.to_string(), &["--node", "n1"]).await?;
        ensure!(ended.code()? == 0, "{}", ended.stderr);
        until_asked(&world, id).await?;
        world.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn nothing_of_a_node_is_run_because_the_database_says_so() -> anyhow::Result<()> {
    let world = World::new().await?;
    // It may not ask web services either.
    let mark = world.path().join("ran");
    let mark_text = mark.to_string_lossy().into_owned();
    let workers = world.database().collection::<Document>("workers");
    workers
        .insert_many([
            doc! { "_id": "Exec", "engine": "exec", "command": ["touch", &mark_text] },
            doc! { "_id": "Program", "engine": "program", "program": { "path": "/usr/bin/touch", "args": [&mark_text] } },
            doc! { "_id": "Perl", "engine": "perl", "perl": { "lib": ["/tmp"] } },
            doc! { "_id": "Far", "engine": "http", "http": { "url": "http://127.0.0.1:1/" } },
        ])
        .await?;
    let mut tasks = Vec::new();
    for plugin in ["Exec", "Program", "Perl", "Far"] {
        let queue = world.queue(plugin, doc! { "threads": 1 }).await?;
        tasks.extend(world.submit(queue, vec![doc! {}]).await?);
    }
    let den = world.den_at_work("n1").await?;
    for word in ["plugin Far is not available on this node", "plugin Exec is not available on this node"] {
        eventually(word, || async { Ok(den.log()?.contains(word).then_some(())) }).await?;
    }
    always("they all wait", Duration::from_secs(2), || async {
        for id in &tasks {
            if world.status(*id).await? != -2 {
                return Ok(false);
            }
        }
        Ok(true)
    })
    .await?;
    assert!(!mark.exists());
    // A runner that is asked by hand does not do it either.
    let queue = world.queue("Exec", doc! {}).await?;
    let id = world.claimed(queue, doc! {}, "n2").await?;
    world.dtr(&id.to_string(), &["--node", "n2"]).await?;
    let task = world.until_status(id, 2).await?;
    ensure!(task.get_str("stderr")?.starts_with("plugin Exec is not installed on this node"), "{task}");
    assert!(!mark.exists());
    world.end().await
}

#[tokio::test]
async fn a_plugin_in_the_files_of_a_node_comes_before_one_of_the_database() -> anyhow::Result<()> {
    let world = World::new().await?;
    configure(&world)?;
    let (url, asked) = service().await?;
    let workers = world.database().collection::<Document>("workers");
    workers.insert_one(doc! { "_id": "Mine", "engine": "http", "http": { "url": &url } }).await?;
    let script = Script { name: "Mine", text: "#!/bin/sh\necho from the file\n" };
    let queue = world.script_queue(script, 1).await?;
    let _den = world.den_at_work("n1").await?;
    let id = world.submit(queue, vec![doc! {}]).await?[0];
    let task = world.until_status(id, 1).await?;
    assert_eq!(task.get_str("stdout")?, "from the file\n");
    assert!(lock(&asked).is_empty(), "nobody was asked");
    world.end().await
}

#[tokio::test]
async fn a_worker_does_not_bring_back_what_the_configuration_leaves_out() -> anyhow::Result<()> {
    let world = World::new().await?;
    let engines = json!({ "http": { "callback_url": "http://127.0.0.1:1" } });
    world.configure(json!({ "plugins": ["My::Safe"], "engines": engines }))?;
    let (url, asked) = service().await?;
    let shell = "Disbatch::Plugin::Shell";
    let workers = world.database().collection::<Document>("workers");
    workers.insert_one(doc! { "_id": shell, "engine": "http", "http": { "url": &url } }).await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let (status, told) = dci.post("/queues", &json!({ "name": "commands", "plugin": shell })).await?;
    ensure!(status == 400 && told["error"] == "Unknown plugin", "{told}");
    // Nor does a node run anything for a queue that somebody has put there.
    let mark = world.path().join("ran");
    let params = doc! { "command": format!("touch {}", mark.display()) };
    let queue = world.queue(shell, doc! { "threads": 1 }).await?;
    let id = world.submit(queue, vec![params.clone()]).await?[0];
    let den = world.den_at_work("n1").await?;
    let why = "this node has it, the list plugins of its configuration does not";
    eventually("a word about both", || async { Ok(den.log()?.contains(why).then_some(())) }).await?;
    always("it waits", Duration::from_secs(2), || async { Ok(world.status(id).await? == -2) }).await?;
    assert!(!plugins_of(&world, "n1").await?.contains(&shell.to_owned()));
    // A runner that is asked by hand does not either.
    let id = world.claimed(queue, params, "n2").await?;
    world.dtr(&id.to_string(), &["--node", "n2"]).await?;
    let task = world.until_status(id, 2).await?;
    ensure!(task.get_str("stderr")?.starts_with(&format!("plugin {shell} is not installed")), "{task}");
    assert!(!mark.exists() && lock(&asked).is_empty(), "neither was run");
    world.end().await
}
