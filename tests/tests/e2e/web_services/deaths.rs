//! Who may die while a web service has a task, or is about to have it.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context;
use bson::{DateTime, doc};
use disbatch_core::model::{TaskId, whole_number};
use disbatch_tests::{Dci, World, always, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;
use tokio::net::TcpSocket;

use super::service::{Manner, Service, install};
use super::{Scene, configure, external, note, processes_of, shown_of, until_detached, until_no_pieces};

async fn kill_runner(world: &World, task: TaskId) -> anyhow::Result<()> {
    let pid = eventually("the runner", || async { Ok(world.task(task).await?.get_i64("pid").ok()) }).await?;
    Ok(kill(Pid::from_raw(pid.try_into()?), Signal::SIGKILL)?)
}

/// A world whose service is not there yet, and where it will be. Until somebody listens there, whoever connects is refused, and
/// nobody else gets the address.
async fn without_service(retries: u32) -> anyhow::Result<(World, Dci, TcpSocket)> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    configure(&world, &dci)?;
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from(([127, 0, 0, 1], 0)))?;
    let url = format!("http://{}/start", socket.local_addr()?);
    install(&world.plugins(), "Web", &json!({ "url": url, "connect_retries": retries }))?;
    Ok((world, dci, socket))
}

/// Waits until the program that asks the service is at it.
async fn until_asked(task: TaskId) -> anyhow::Result<()> {
    eventually("somebody who asks", || async { Ok((processes_of(task) > 0).then_some(())) }).await
}

#[tokio::test]
async fn a_service_that_comes_late_is_asked_until_it_is_there() -> anyhow::Result<()> {
    let (world, dci, socket) = without_service(20).await?;
    let queue = world.queue("Web", doc! { "threads": 1 }).await?;
    let task = world.submit(queue, vec![doc! {}]).await?[0];
    let _den = world.den("n1")?;
    until_asked(task).await?;
    let mut service = Service::behind(socket, Manner::Takes)?;
    let order = service.next().await?;
    until_detached(&world, task).await?;
    order.finish(&dci).await?;
    world.until_status(task, 1).await?;
    assert!(!service.has_more(), "it is asked once");
    world.end().await
}

#[tokio::test]
async fn a_service_that_never_comes_is_a_failure() -> anyhow::Result<()> {
    let (world, _dci, _socket) = without_service(0).await?;
    let queue = world.queue("Web", doc! { "threads": 1 }).await?;
    let task = world.submit(queue, vec![doc! {}]).await?[0];
    let _den = world.den("n1")?;
    let ended = world.until_status(task, 2).await?;
    assert!(ended.get_str("stderr")?.contains("the web service cannot be reached"), "{ended}");
    world.end().await
}

#[tokio::test]
async fn a_runner_that_is_killed_before_it_has_asked_leaves_the_next_to_ask() -> anyhow::Result<()> {
    let (world, dci, socket) = without_service(50).await?;
    let quick = doc! { "base": 0.05, "factor": 1, "jitter": 0 };
    let fields = doc! { "threads": 1, "on_orphan": "requeue", "backoff": quick };
    let queue = world.queue("Web", fields).await?;
    let task = world.submit(queue, vec![doc! {}]).await?[0];
    let _den = world.den("n1")?;
    until_asked(task).await?;
    kill_runner(&world, task).await?;
    eventually("the second attempt", || async {
        let attempt = world.task(task).await?.get("attempt").and_then(whole_number);
        Ok((attempt == Some(2) && processes_of(task) > 0).then_some(()))
    })
    .await?;
    let mut service = Service::behind(socket, Manner::Takes)?;
    let order = service.next().await?;
    assert_eq!(order.body["attempt"], json!(2));
    until_detached(&world, task).await?;
    order.finish(&dci).await?;
    world.until_status(task, 1).await?;
    assert!(!service.has_more(), "the first has not asked");
    world.end().await
}

#[tokio::test]
async fn a_runner_that_is_killed_after_the_service_has_called_back_leaves_it_the_task() -> anyhow::Result<()>
{
    let mut scene = Scene::with(1, Manner::IsSilent, &json!({})).await?;
    let _den = scene.world.den("n1")?;
    let task = scene.submit(1).await?[0];
    let order = scene.service.next().await?;
    order.log(&scene.dci, "begun\n").await?;
    kill_runner(&scene.world, task).await?;
    let running = until_detached(&scene.world, task).await?;
    assert_eq!(running.get_i32("status")?, 0);
    order.log(&scene.dci, "done\n").await?;
    order.finish(&scene.dci).await?;
    let ended = scene.world.until_status(task, 1).await?;
    assert_eq!(ended.get_str("stdout")?, "begun\ndone\n");
    assert!(!scene.service.has_more(), "nobody else was asked");
    scene.world.end().await
}

/// Kills the program that asks the service.
async fn kill_asker(task: TaskId) -> anyhow::Result<()> {
    let is_it = |process: &PathBuf| {
        std::fs::read_to_string(process.join("comm")).is_ok_and(|name| name.trim() == "disbatch-http")
    };
    let process = eventually("who asks", || async { Ok(shown_of(task).into_iter().find(is_it)) }).await?;
    let pid = process.file_name().and_then(|name| name.to_str()).context("no process")?;
    Ok(kill(Pid::from_raw(pid.parse()?), Signal::SIGKILL)?)
}

#[tokio::test]
async fn who_asks_is_killed_after_the_service_has_called_back_and_leaves_it_the_task() -> anyhow::Result<()> {
    let mut scene = Scene::with(1, Manner::IsSilent, &json!({})).await?;
    let quick = doc! { "base": 0.05, "factor": 1, "jitter": 0 };
    scene.world.update_queue(scene.queue, doc! { "max_attempts": 2, "backoff": quick }).await?;
    let _den = scene.world.den("n1")?;
    let task = scene.submit(1).await?[0];
    let order = scene.service.next().await?;
    order.log(&scene.dci, "begun\n").await?;
    kill_asker(task).await?;
    until_detached(&scene.world, task).await?;
    order.log(&scene.dci, "done\n").await?;
    order.finish(&scene.dci).await?;
    let ended = scene.world.until_status(task, 1).await?;
    assert_eq!(ended.get_str("stdout")?, "begun\ndone\n");
    assert!(!scene.service.has_more(), "nobody else was asked");
    scene.world.end().await
}

#[tokio::test]
async fn who_asks_is_killed_before_the_service_has_called_back_and_it_comes_too_late() -> anyhow::Result<()> {
    let mut scene = Scene::with(1, Manner::IsSilent, &json!({})).await?;
    let _den = scene.world.den("n1")?;
    let task = scene.submit(1).await?[0];
    let order = scene.service.next().await?;
    kill_asker(task).await?;
    scene.world.until_status(task, 2).await?;
    assert_eq!(order.call(&scene.dci, "log", "too late").await?, 410);
    until_no_pieces(&scene.world).await?;
    scene.world.end().await
}

#[tokio::test]
async fn a_runner_that_is_killed_after_it_has_asked_is_a_dead_runner() -> anyhow::Result<()> {
    let mut scene = Scene::with(1, Manner::IsSilent, &json!({})).await?;
    let _den = scene.world.den("n1")?;
    let task = scene.submit(1).await?[0];
    let order = scene.service.next().await?;
    kill_runner(&scene.world, task).await?;
    scene.world.until_status(task, -6).await?;
    assert_eq!(order.call(&scene.dci, "log", "too late").await?, 410);
    until_no_pieces(&scene.world).await?;
    scene.world.end().await
}

#[tokio::test]
async fn an_end_that_is_called_back_before_the_answer_is_an_end() -> anyhow::Result<()> {
    let mut scene = Scene::with(1, Manner::IsSilent, &json!({})).await?;
    let _den = scene.world.den("n1")?;
    let task = scene.submit(1).await?[0];
    let order = scene.service.next().await?;
    order.log(&scene.dci, "quick\n").await?;
    order.finish(&scene.dci).await?;
    let ended = scene.world.until_status(task, 1).await?;
    assert_eq!(ended.get_str("stdout")?, "quick\n");
    // Whoever asks is not left behind, and the node goes on.
    eventually("no process of the task", || async { Ok((processes_of(task) == 0).then_some(())) }).await?;
    scene.submit(1).await?;
    scene.service.next().await?;
    assert_eq!(scene.world.task(task).await?, ended);
    scene.world.end().await
}

#[tokio::test]
async fn a_server_that_is_killed_between_two_callbacks_has_kept_the_first() -> anyhow::Result<()> {
    let mut scene = Scene::new(1).await?;
    let den = scene.world.den("n1")?;
    let (task, order) = scene.given().await?;
    order.log(&scene.dci, "first\n").await?;
    let Scene { world, dci, .. } = scene;
    let address = dci.kill().await?;
    let dci = Dci::start_at(&address, &world.config(), &world.path().join("dci3.log")).await?;
    order.log(&dci, "second\n").await?;
    order.finish(&dci).await?;
    let ended = world.until_status(task, 1).await?;
    assert_eq!(ended.get_str("stdout")?, "first\nsecond\n");
    drop(den);
    world.end().await
}

#[tokio::test]
async fn an_end_whose_maker_has_died_is_made_by_a_den() -> anyhow::Result<()> {
    let mut scene = Scene::new(2).await?;
    let den = scene.world.den("n1")?;
    let (task, order) = scene.given().await?;
    let (silent, _) = scene.given().await?;
    order.log(&scene.dci, "all of it\n").await?;
    den.end_with(Signal::SIGKILL).await?;
    // As somebody leaves it who dies right after the first of two updates.
    let past = DateTime::from_millis(1_000);
    let end =
        doc! { "status": 2, "reason": "service", "message": "no disk", "at": scene.world.store().now() };
    scene.world.set(task, doc! { "external.end": end, "lease_until": past }).await?;
    scene.world.set(silent, doc! { "lease_until": past }).await?;
    assert_eq!(order.call(&scene.dci, "log", "late").await?, 410, "its end was noted");
    // It need not be the node that had it.
    let _other = scene.world.den("n2")?;
    let ended = scene.world.until_status(task, 2).await?;
    assert_eq!((ended.get_str("stdout")?, ended.get_str("stderr")?), ("all of it\n", "no disk\n"));
    let ended = scene.world.until_status(silent, -3).await?;
    assert!(note(&ended).starts_with("nothing was heard from its web service"), "{ended}");
    until_no_pieces(&scene.world).await?;
    scene.world.end().await
}

#[tokio::test]
async fn a_den_that_is_killed_while_it_waits_changes_nothing() -> anyhow::Result<()> {
    let mut scene = Scene::new(2).await?;
    let den = scene.world.den("n1")?;
    let (first, of_first) = scene.given().await?;
    let (second, of_second) = scene.given().await?;
    den.end_with(Signal::SIGKILL).await?;
    of_first.log(&scene.dci, "without a den\n").await?;
    of_first.finish(&scene.dci).await?;
    let ended = scene.world.until_status(first, 1).await?;
    assert_eq!(ended.get_str("stdout")?, "without a den\n");
    // The one after it does not take it for a run of its own that has died.
    let next = scene.world.den_at_work("n1").await?;
    always("the task waits on", Duration::from_secs(6), || async {
        let task = scene.world.task(second).await?;
        Ok(task.get_i32("status")? == 0 && external(&task).get_bool("detached")?)
    })
    .await?;
    // And one that is to leave does not wait for it.
    assert!(next.end_with(Signal::SIGTERM).await?.success());
    of_second.finish(&scene.dci).await?;
    scene.world.until_status(second, 1).await?;
    scene.world.end().await
}
