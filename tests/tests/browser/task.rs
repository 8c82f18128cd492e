//! The page of a task: why it has failed, why it waits and what helps, its attempts, and all of what it has written.

use anyhow::ensure;
use bson::{DateTime, doc};
use disbatch_core::model::{QueueId, TaskId};
use disbatch_tests::browser::visit;
use serde_json::{Value, json};

use crate::site::Site;

const SHELL: &str = "Disbatch::Plugin::Shell";

/// Submits a task of shell commands with options.
async fn submit(site: &Site, queue: QueueId, command: &str, options: Value) -> anyhow::Result<TaskId> {
    let mut task = json!({ "queue": queue.to_string(), "params": { "command": command } });
    if let (Some(task), Some(options)) = (task.as_object_mut(), options.as_object()) {
        task.extend(options.clone());
    }
    site.post("/tasks", &task).await?;
    let newest = site.world.tasks().find_one(doc! { "params.command": command }).await?;
    let id = newest.and_then(|task| task.get_object_id("_id").ok());
    id.map(TaskId).ok_or_else(|| anyhow::anyhow!("it is not there"))
}

#[tokio::test]
async fn a_deferred_task_with_locks_runs_when_it_is_told_to() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue(SHELL, doc! { "name": "shell", "threads": 1 }).await?;
    let options = json!({ ".delay": 3600, ".locks": "db" });
    let id = submit(&site, queue, "echo it has run", options).await?;
    let _den = world.den_at_work("node1").await?;
    visit(async |browser| {
        browser.open(&site.url(&format!("/tasks/{id}"))).await?;
        let page = browser.page();
        page.until_text("The task is deferred until").await?;
        page.click("link", "Run now").await?;
        page.click("button", "Yes, queue it now").await?;
        browser.part("#log-stdout", "it has run").until_text("it has run").await?;
        browser.part("#task-head", "succeeded").until_text("succeeded").await
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn a_failed_task_says_why_on_top() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue(SHELL, doc! { "name": "shell", "threads": 1, "title": "{command}" }).await?;
    let command = "for i in 1 2 3 4 5 6; do echo line $i >&2; done; exit 3";
    let id = submit(&site, queue, command, json!({})).await?;
    visit(async |browser| {
        browser.open(&site.url(&format!("/tasks/{id}"))).await?;
        browser
            .until("the name of a task that waits", "return document.title.startsWith('◷ shell: for i in')")
            .await?;
        let _den = world.den_at_work("node1").await?;
        // It is told while somebody looks.
        let box_of = browser.part("#task-failed", "exit code 3");
        box_of.until_text("on node1: exit code 3.").await?;
        box_of.until_text("line 2\nline 3\nline 4\nline 5\nline 6").await?;
        ensure!(!box_of.text().await?.contains("line 1"), "only the last lines");
        browser.until("a sign in the tab", "return document.title.startsWith('✗ ')").await?;
        let heading = browser.page().names("heading").await?;
        ensure!(heading.iter().any(|name| name.starts_with("for i in 1 2 3")), "{heading:?}");
        Ok(())
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn what_keeps_a_task_stands_alone_and_can_be_helped() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue(SHELL, doc! { "name": "shell", "threads": 1, "paused": true }).await?;
    let id = submit(&site, queue, "echo at last", json!({})).await?;
    let _den = world.den_at_work("node1").await?;
    visit(async |browser| {
        browser.open(&site.url(&format!("/tasks/{id}"))).await?;
        let why = browser.part("#task-why", "is paused");
        why.until_text("The queue shell is paused.").await?;
        why.until_text("other checks passed").await?;
        why.until_there("link", "queue shell").await?;
        why.until_no_text("The queue shell is there").await?;
        ensure!(browser.violations().await?.is_empty(), "{:?}", browser.violations().await?);
        why.click("button", "Resume queue").await?;
        browser.part("#log-stdout", "at last").until_text("at last").await
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn the_history_of_a_task_that_waited_for_a_lock_says_so() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue(SHELL, doc! { "name": "shell", "threads": 0 }).await?;
    let id = world.submit(queue, vec![doc! { "command": "true" }]).await?[0];
    let at = |seconds: i64| DateTime::from_millis(1_795_163_067_344 + seconds * 1000);
    // It was blocked by a lock, has failed once, and waits for its next attempt.
    let fields = doc! {
        "status": -7, "ctime": at(0), "mtime": at(50), "locks": ["db"], "failures": 1, "attempt": 1, "run_at": DateTime::MAX,
        "history": [{ "at": at(40), "status": -2 }, { "at": at(41), "status": 0 }, { "at": at(50), "status": -7 }],
    };
    world.set(id, fields).await?;
    visit(async |browser| {
        browser.open(&site.url(&format!("/tasks/{id}"))).await?;
        browser
            .part("#task-timeline", "It ")
            .until_text("It was blocked for 40.0 s, waited 1.0 s, ran 9.0 s")
            .await?;
        // A state has the same colour in the picture as in words.
        let same = "const of = (tone) => getComputedStyle(document.querySelector(`.life .${tone}`)).fill;
            return of('blocked') !== of('queued') && of('blocked') === of('deferred')";
        browser.until("colours as those of the statuses", same).await.map(drop)
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn attempts_have_tabs_and_the_last_one_is_shown_until_the_next() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let settings = doc! { "name": "shell", "threads": 1, "max_attempts": 2, "backoff": { "base": 3600 } };
    let queue = world.queue(SHELL, settings).await?;
    let mark = world.path().join("mark").display().to_string();
    let command = format!(
        "if [ -e {mark} ]; then echo the second try; else touch {mark}; echo the first try; fi; exit 1"
    );
    let id = submit(&site, queue, &command, json!({})).await?;
    let _den = world.den_at_work("node1").await?;
    world.until_status(id, -7).await?;
    visit(async |browser| {
        browser.open(&site.url(&format!("/tasks/{id}"))).await?;
        let page = browser.page();
        let head = browser.part("#task-head", "failure 1 of 2");
        head.until_text("failure 1 of 2, next").await?;
        let log = browser.part("#log-stdout", "try");
        log.until_text("the first try").await?;
        head.click("link", "Run now").await?;
        page.click("button", "Yes, queue it now").await?;
        log.until_text("the second try").await?;
        log.until_no_text("the first try").await?;
        browser.part("#task-failed", "exit code 1").until_text("Attempt 2 · failure 2 of 2.").await?;
        let tabs = browser.part("#task-attempts", "Attempt 1");
        tabs.click("link", "Attempt 1 failed").await?;
        log.until_text("the first try").await?;
        browser
            .until(
                "the tab that is shown",
                "return document.querySelector('#task-attempts [aria-current]').dataset.attempt === '1'",
            )
            .await?;
        tabs.click("link", "Attempt 2 failed").await?;
        log.until_text("the second try").await
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn all_of_a_long_output_is_found() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue(SHELL, doc! { "name": "shell", "threads": 1 }).await?;
    let command = "seq -w 1 500000; echo ValueError: odd; seq -w 500001 600000";
    let id = submit(&site, queue, command, json!({})).await?;
    let _den = world.den_at_work("node1").await?;
    world.until_status(id, 1).await?;
    visit(async |browser| {
        browser.open(&site.url(&format!("/tasks/{id}"))).await?;
        let log = browser.part("#log-stdout", "stdout");
        log.until_text("Last 63 KiB of 4.0 MiB.").await?;
        let number = "const pre = document.querySelector('#log-stdout pre.numbered');
            const before = Number(pre.style.getPropertyValue('--before'));
            return before + pre.childElementCount === 600001";
        browser.until("the numbers of the last lines", number).await?;
        // It is not in what is shown.
        log.fill("Search in stdout", "123456").await?;
        log.until_text("not in what is shown").await?;
        log.click("button", "Search all 4.0 MiB").await?;
        log.until_text("1 line found in all 4.0 MiB.").await?;
        log.click("link", "123456").await?;
        let marked = |text: &str| {
            format!("return document.querySelector('#log-stdout pre .line-now').textContent === '{text}'")
        };
        browser.until("the line", &marked("123456")).await?;
        ensure!(browser.url().await?.ends_with("#L123456"), "{}", browser.url().await?);
        log.click("button", "Go to the start").await?;
        log.until_text("000001").await?;
        log.click("button", "Go to the end").await?;
        log.until_text("Last 63 KiB of 4.0 MiB.").await?;
        log.click("button", "Find errors").await?;
        log.until_text("1 line looks like an error in all 4.0 MiB.").await?;
        log.until_text("ValueError: odd").await?;
        ensure!(browser.violations().await?.is_empty(), "{:?}", browser.violations().await?);
        // An address leads to a line.
        browser.open(&site.url(&format!("/tasks/{id}#L499999"))).await?;
        browser.open(&site.url(&format!("/tasks/{id}?again#L499999"))).await?;
        browser.until("the line of the address", &marked("499999")).await?;
        log.click("button", "Load later").await?;
        log.until_text("ValueError: odd").await
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn params_have_room_in_the_dialog() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue(SHELL, doc! { "name": "shell", "threads": 0 }).await?;
    let options = json!({ ".locks": "db/2", ".group": "a/b", ".priority": 5, ".tags": "x,y", ".grace": 1.5, ".unique": "k" });
    let id = submit(&site, queue, "true", options).await?;
    visit(async |browser| {
        browser.open(&site.url(&format!("/tasks/{id}"))).await?;
        browser.page().click("link", "Run again with changes").await?;
        let wide = "const [field, form] = ['#again textarea', '#again form'].map((part) => document.querySelector(part));
            return field.clientWidth > 0.9 * form.clientWidth";
        browser.until("a field as wide as its form", wide).await?;
        let twice = "const form = document.querySelector('#again form');
            form.requestSubmit();
            form.requestSubmit();
            return true";
        browser.script(twice, json!([])).await?;
        browser.page().until_text("This is the new task.").await?;
        ensure!(world.count(queue, doc! {}).await? == 2, "twice is once");
        let same = doc! { "locks": ["db/2"], "group": "a/b", "priority": 5, "tags": ["x", "y"], "grace": 1.5 };
        ensure!(world.count(queue, same).await? == 2, "it has what the first one was submitted with");
        Ok(())
    })
    .await?;
    site.end().await
}
