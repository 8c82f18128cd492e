//! The server goes, and comes back, while somebody looks.

use anyhow::ensure;
use bson::doc;
use disbatch_mongod::locate;
use disbatch_mongod::server::{Options, Server};
use disbatch_tests::browser::visit;
use disbatch_tests::{Dci, World};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use serde_json::json;

#[tokio::test]
async fn a_page_says_that_the_server_is_gone_and_goes_on_when_it_is_back() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let log = world.path().join("dci.log");
    let dci = Dci::start(&world.config(), &log).await?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail", "threads": 1 }).await?;
    // As long as the page is open.
    let mut back = None;
    visit(async |browser| {
        browser.open(&format!("{}/", dci.url())).await?;
        let page = browser.page();
        page.until_there("link", "mail").await?;
        page.until_text("Live").await?;
        page.click("link", "New queue").await?;
        let dialog = browser.part("dialog[open]", "New queue");
        dialog.fill("Name", "reports").await?;
        let address = dci.kill().await?;
        page.until_text("Connection lost").await?;
        dialog.click("button", "Create queue").await?;
        dialog.until_text("The server cannot be reached.").await?;
        // Meanwhile somebody else works on.
        world.update_queue(queue, doc! { "paused": true }).await?;
        back = Some(Dci::start_at(&address, &world.config(), &log).await?);
        page.until_text("Live").await?;
        page.until_text("paused").await?;
        // What was typed is still there.
        let name = "return document.querySelector('#new-queue [name=name]').value";
        ensure!(browser.script(name, json!([])).await? == "reports");
        dialog.click("button", "Create queue").await?;
        page.until_there("link", "reports").await?;
        let complaints = browser.complaints().await?;
        let is_meant = |text: &String| text.contains("ERR_") || text.contains("htmx");
        ensure!(complaints.iter().all(is_meant), "{complaints:?}");
        Ok(())
    })
    .await?;
    drop(back);
    world.end().await
}

#[tokio::test]
async fn a_page_that_hears_nothing_says_so_and_since_when() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let process = Pid::from_raw(i32::try_from(dci.process()?)?);
    visit(async |browser| {
        browser.open(&format!("{}/", dci.url())).await?;
        let page = browser.page();
        page.until_text("Live").await?;
        // It does nothing any more, and its connections stay.
        kill(process, Signal::SIGSTOP)?;
        page.until_text("No news").await?;
        let since = "return /^for \\d+ s$/.test(document.querySelector('#since').textContent)
            && getComputedStyle(document.querySelector('#figures')).filter.includes('grayscale')";
        browser.until("since when", since).await?;
        page.until_text("Connection lost").await?;
        let as_of = "return document.documentElement.hasAttribute('data-stale') \
            && /^as of \\d\\d:\\d\\d:\\d\\d$/.test(document.querySelector('#since').textContent)";
        browser.until("as of when", as_of).await?;
        let violations = browser.violations().await?;
        ensure!(violations.is_empty(), "{violations:?}");
        kill(process, Signal::SIGCONT)?;
        page.until_text("Live").await?;
        browser.until("fresh figures", "return !document.documentElement.hasAttribute('data-stale')").await?;
        // What was asked while it did nothing has waited too long for it.
        let complaints = browser.complaints().await?;
        let is_meant = |text: &String| text.contains("408") || text.contains("ERR_") || text.contains("htmx");
        ensure!(complaints.iter().all(is_meant), "{complaints:?}");
        Ok(())
    })
    .await?;
    world.end().await
}

/// A database server of the test's own.
async fn database(data: &std::path::Path, port: Option<u16>) -> anyhow::Result<Server> {
    let program = tokio::task::spawn_blocking(|| locate::find_or_fetch(|_| ())).await??;
    let data = data.to_owned();
    Server::start(Options { program, data, port, replica_set: true, ephemeral: false, arguments: Vec::new() })
        .await
}

#[tokio::test]
async fn pages_come_back_by_themselves_with_the_database() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let mut server = database(data.path(), None).await?;
    let port = server.port();
    let world = World::at(server.uri()).await?;
    world.store().ensure_indexes().await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail", "threads": 1 }).await?;
    visit(async |browser| {
        browser.open(&format!("{}/", dci.url())).await?;
        let page = browser.page();
        page.until_text("Live").await?;
        kill(Pid::from_raw(i32::try_from(server.pid())?), Signal::SIGKILL)?;
        server.wait().await?;
        page.until_text("the database cannot be reached").await?;
        browser.open(&format!("{}/queues/mail", dci.url())).await?;
        page.until_text("This page tries again by itself.").await?;
        let back = database(data.path(), Some(port)).await?;
        page.until_there("heading", "Queue mail").await?;
        page.until_text("Live").await?;
        let complaints = browser.complaints().await?;
        ensure!(complaints.iter().all(|text| text.contains("503")), "{complaints:?}");
        back.stop().await
    })
    .await
}
