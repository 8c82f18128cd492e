//! Sessions that end while somebody is at work, and what is offered to those who may do something with some queues only.

use anyhow::ensure;
use bson::doc;
use bson::oid::ObjectId;
use disbatch_core::accounts::{Grant, PasswordHash, Role, Scope};
use disbatch_core::model::QueueId;
use disbatch_tests::browser::{Browser, Part, visit};
use serde_json::{Value, json};

use crate::access::{Closed, PASSWORD, log_in, only_refused, until_at};

const ENDED: &str = "Your session has ended";

fn dialog(browser: &Browser) -> Part<'_> {
    browser.part("dialog[open]", ENDED)
}

/// Logs in to the page `path`, which is marked: the mark would go with it.
async fn at_page(browser: &Browser, site: &Closed, path: &str, role: Role) -> anyhow::Result<()> {
    browser.open(&site.url(path)).await?;
    until_at(browser, "/login").await?;
    log_in(browser, role.as_str(), PASSWORD).await?;
    until_at(browser, path).await?;
    browser.script("globalThis.stillTheSame = true", json!([])).await.map(drop)
}

async fn is_the_same(browser: &Browser) -> anyhow::Result<()> {
    ensure!(browser.script("return globalThis.stillTheSame", json!([])).await? == true, "another page");
    Ok(())
}

/// Goes to the field of this label, in which something was typed, and presses Enter.
async fn enter(browser: &Browser, label: &str, typed: &str) -> anyhow::Result<()> {
    let go = format!(
        "const field = [...document.querySelectorAll('main input')].find((field) => field.ariaLabel === {}); \
         field.focus(); return field.value",
        json!(label)
    );
    let value = browser.script(&go, json!([])).await?;
    ensure!(value == typed, "{label} has {value}");
    browser.press("Enter").await
}

#[tokio::test]
async fn one_logs_in_again_where_one_is_and_what_was_typed_stays() -> anyhow::Result<()> {
    let site = Closed::new().await?;
    visit(async |browser| {
        at_page(browser, &site, "/", Role::Operator).await?;
        let page = browser.page();
        page.until_text("Live").await?;
        site.end_sessions(Role::Operator).await?;
        // The next thing that is done.
        page.fill("Threads of mail", "3").await?;
        browser.press("Enter").await?;
        dialog(browser).fill("Password", "something else").await?;
        dialog(browser).click("button", "Log in").await?;
        dialog(browser).until_text("wrong name or password").await?;
        dialog(browser).fill("Password", PASSWORD).await?;
        dialog(browser).click("button", "Log in").await?;
        page.until_text("You are logged in again.").await?;
        page.until_text("Live").await?;
        // With the new session's form token.
        enter(browser, "Threads of mail", "3").await?;
        site.until_threads(3).await?;
        page.until_no_text("Not sent").await?;

        // The next time that the page asks for what changes by itself. One may read on.
        site.end_sessions(Role::Operator).await?;
        page.click("button", "Pause updates").await?;
        page.click("button", "Resume updates").await?;
        dialog(browser).click("button", "Keep reading").await?;
        page.until_text("Session ended").await?;
        page.fill("Threads of mail", "4").await?;
        browser.press("Enter").await?;
        dialog(browser).fill("Password", PASSWORD).await?;
        browser.press("Enter").await?;
        page.until_text("Live").await?;
        enter(browser, "Threads of mail", "4").await?;
        site.until_threads(4).await?;
        is_the_same(browser).await?;
        only_refused(browser, 401).await
    })
    .await?;
    site.world.end().await
}

#[tokio::test]
async fn a_form_that_the_browser_sends_waits_for_the_login() -> anyhow::Result<()> {
    let site = Closed::new().await?;
    visit(async |browser| {
        at_page(browser, &site, "/account", Role::Operator).await?;
        let page = browser.page();
        site.end_sessions(Role::Operator).await?;
        page.fill("What it is for", "nightly").await?;
        page.click("button", "Create token").await?;
        dialog(browser).fill("Password", PASSWORD).await?;
        dialog(browser).click("button", "Log in").await?;
        page.until_text("You are logged in again.").await?;
        is_the_same(browser).await?;
        page.click("button", "Create token").await?;
        page.until_text("It is shown only now").await?;
        page.until_text("nightly").await?;
        only_refused(browser, 401).await
    })
    .await?;
    site.world.end().await
}

#[tokio::test]
async fn the_page_of_one_is_not_used_by_another() -> anyhow::Result<()> {
    let site = Closed::new().await?;
    visit(async |browser| {
        at_page(browser, &site, "/", Role::Operator).await?;
        let page = browser.page();
        // In another window one logs in again: this one learns it when it is used.
        let log_in_elsewhere = format!(
            "const done = arguments[arguments.length - 1]; fetch('/login', {{ method: 'POST', \
             headers: {{ 'Content-Type': 'application/json' }}, \
             body: JSON.stringify({{ name: 'operator', password: {} }}) }}).then(() => done(true))",
            json!(PASSWORD)
        );
        browser.script_that_calls_back(&log_in_elsewhere).await?;
        page.fill("Threads of mail", "3").await?;
        browser.press("Enter").await?;
        page.until_text("Now it can be sent: try again.").await?;
        enter(browser, "Threads of mail", "3").await?;
        site.until_threads(3).await?;
        is_the_same(browser).await?;
        only_refused(browser, 403).await?;

        site.end_sessions(Role::Operator).await?;
        page.fill("Threads of mail", "5").await?;
        browser.press("Enter").await?;
        dialog(browser).fill("Name", "admin").await?;
        dialog(browser).fill("Password", PASSWORD).await?;
        dialog(browser).click("button", "Log in").await?;
        let question = browser.part("dialog[open]", "You are logged in as admin. This page is operator's");
        question.click("button", "Load it again").await?;
        page.until_there("link", "Your account: admin").await?;
        // What was typed is refused as that of another session.
        let complaints = browser.complaints().await?;
        let is_meant =
            |text: &String| ["status of 40", "Error Code 40"].iter().any(|part| text.contains(part));
        ensure!(complaints.iter().all(is_meant), "{complaints:?}");
        site.until_threads(3).await
    })
    .await?;
    site.world.end().await
}

#[tokio::test]
async fn what_one_may_not_do_is_no_new_login() -> anyhow::Result<()> {
    let site = Closed::new().await?;
    visit(async |browser| {
        at_page(browser, &site, "/", Role::Viewer).await?;
        let page = browser.page();
        page.until_text("Live").await?;
        // The page looks whether the session is a new one, and is done with that in the next turn.
        let watch = "const text = Response.prototype.text;
            Response.prototype.text = async function () {
                const said = await text.call(this);
                if (new URL(this.url).pathname === '/account') setTimeout(() => { globalThis.hasLooked = true; });
                return said;
            };";
        browser.script(watch, json!([])).await?;
        // In one go: what changes by itself would take the field away again.
        let send = "const field = document.querySelector('[name=threads]');
            field.disabled = false;
            field.value = '3';
            field.form.requestSubmit()";
        browser.script(send, json!([])).await?;
        browser.until("a look at the session", "return globalThis.hasLooked").await?;
        page.until_text("You are viewer: ").await?;
        let text = page.text().await?;
        ensure!(!text.contains("logged in again") && !text.contains(ENDED), "{text}");
        is_the_same(browser).await?;
        site.until_threads(1).await?;
        only_refused(browser, 403).await
    })
    .await?;
    site.world.end().await
}

/// Which switches of a queue can be used.
fn usable(queue: &str) -> String {
    format!(
        "const row = [...document.querySelectorAll('#queues tbody tr')].find((row) => row.textContent.includes({})); \
         return row && JSON.stringify([...row.querySelectorAll('button.switch, input[type=number]')].map((one) => !one.disabled))",
        json!(queue)
    )
}

/// Checks that a task of the first queue can be retried and one of the other cannot, and that whoever sends it all the same is told why.
async fn of_tasks(browser: &Browser, site: &Closed, queues: [ObjectId; 2]) -> anyhow::Result<()> {
    let page = browser.page();
    let [own, others] =
        queues.map(|queue| doc! { "_id": ObjectId::new(), "queue": queue, "status": 2, "params": {} });
    site.world.tasks().insert_many([&own, &others]).await?;
    let open = async |task: &bson::Document| {
        browser.open(&site.url(&format!("/tasks/{}", task.get_object_id("_id")?))).await?;
        page.until_text("Live").await?;
        let offered = "return document.querySelector('#to-retry').checkVisibility()";
        anyhow::Ok(browser.script(offered, json!([])).await?)
    };
    ensure!(open(&own).await? == true && open(&others).await? == false, "who may retry what");
    // At once: the next change that the page is told of hides it again.
    let retry = "const link = document.querySelector('#to-retry'); link.hidden = false; link.click()";
    browser.script(retry, json!([])).await?;
    let dialog = browser.part("dialog[open]", "Run this task again?");
    dialog.click("button", "Yes, queue it again").await?;
    dialog.until_text("operator").await?;
    ensure!(!dialog.text().await?.contains("logged in again"), "{}", dialog.text().await?);
    only_refused(browser, 403).await
}

#[tokio::test]
async fn only_the_queues_that_one_operates_can_be_changed() -> anyhow::Result<()> {
    let site = Closed::new().await?;
    let queues = site.world.database().collection::<bson::Document>("queues");
    let billing = site.world.queue("Disbatch::Plugin::Demo", doc! { "name": "billing" }).await?;
    let mail = queues.find_one(doc! { "name": "mail" }).await?;
    let mail = mail.and_then(|queue| queue.get_object_id("_id").ok());
    let Some(mail) = mail else { anyhow::bail!("there is no queue") };
    let (store, hash) = (site.world.store(), PasswordHash::of(PASSWORD)?);
    let grant = Grant { scope: Scope::Queue(QueueId(mail)), role: Role::Operator };
    store.add_user(&"bob".parse()?, Some(Role::Viewer), std::slice::from_ref(&grant), Some(&hash)).await?;
    store.add_user(&"eve".parse()?, None, &[grant], Some(&hash)).await?;
    visit(async |browser| {
        browser.open(&site.url("/")).await?;
        until_at(browser, "/login").await?;
        log_in(browser, "bob", PASSWORD).await?;
        until_at(browser, "/").await?;
        let page = browser.page();
        page.until_text("Live").await?;
        let (all, none) = (json!("[true,true,true]"), json!("[false,false,false]"));
        let shown = async |queue| browser.script(&usable(queue), json!([])).await;
        ensure!(
            shown("mail").await? == all && shown("billing").await? == none,
            "{}",
            shown("billing").await?
        );
        // What changes by itself is made for all who look.
        site.world.update_queue(billing, doc! { "paused": true }).await?;
        page.until_text("paused").await?;
        ensure!(
            shown("mail").await? == all && shown("billing").await? == none,
            "{}",
            shown("billing").await?
        );

        of_tasks(browser, &site, [mail, billing.0]).await?;
        browser.open(&site.url("/")).await?;

        // Who sees some queues only has a live page of these.
        page.click("button", "Log out").await?;
        until_at(browser, "/login").await?;
        log_in(browser, "eve", PASSWORD).await?;
        until_at(browser, "/").await?;
        page.until_text("Live").await?;
        queues.update_one(doc! { "_id": mail }, doc! { "$set": { "paused": true } }).await?;
        page.until_text("paused").await?;
        ensure!(shown("mail").await? == all && shown("billing").await? == Value::Null, "it has billing");
        browser.open(&site.url("/tasks")).await?;
        page.until_text("Not live").await?;
        only_refused(browser, 401).await
    })
    .await?;
    site.world.end().await
}
