//! What a task writes: colours, search, bounds, and another run with changes.

use bson::doc;
use disbatch_tests::Script;
use disbatch_tests::browser::{Browser, visit};
use serde_json::json;

use crate::site::Site;

/// Prints what terminals understand, then many lines as soon as a file is there, and ends when another one is.
const LOUD: Script<'_> = Script {
    name: "Loud",
    text: r#"#!/usr/bin/env python3
import json, os, sys, time
params = json.load(sys.stdin)["params"]
def until(name):
    while not os.path.exists(os.path.join(params["folder"], name)):
        time.sleep(0.02)
print("plain \x1b[1;31mred <script>alert(1)</script>\x1b[0m \x1b]8;;http://elsewhere.example\x07link\x1b]8;;\x07", flush=True)
print("10%\r50%\r100%", flush=True)
print("on stderr", file=sys.stderr, flush=True)
until("many")
for number in range(12000):
    print("line", number)
print("all lines are there", flush=True)
until("end")
"#,
};

/// A script's expression for the output.
const LOG: &str = "document.querySelector('#log-stdout pre')";

async fn shows(browser: &Browser, what: &str, script: &str) -> anyhow::Result<()> {
    browser.until(what, &format!("const log = {LOG}; return {script}")).await.map(drop)
}

#[tokio::test]
async fn output_is_coloured_searched_and_never_too_much() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let folder = world.path().display().to_string();
    let (id, _den) = site.running(LOUD, doc! { "folder": folder }).await?;
    visit(async |browser| {
        browser.open(&site.url(&format!("/tasks/{id}"))).await?;
        let page = browser.page();
        page.until_text("plain red <script>alert(1)</script> link").await?;
        shows(
            browser,
            "a colour",
            "log.querySelector('.ansi-bold.ansi-red').textContent.startsWith('red <script>')",
        )
        .await?;
        // What a bar overwrites is not seen.
        page.until_text("100%").await?;
        page.until_no_text("50%").await?;
        page.until_no_text("elsewhere.example").await?;
        page.until_text("on stderr").await?;

        std::fs::write(world.path().join("many"), "")?;
        page.until_text("all lines are there").await?;
        shows(browser, "a bounded number of lines", "log.childElementCount === 10000").await?;
        shows(browser, "the end", "log.scrollTop + log.clientHeight >= log.scrollHeight - 8").await?;
        page.until_text("Only the newest lines are kept here").await?;

        let log = browser.part("#log-stdout", "all lines are there");
        log.fill("Search in stdout", "line 11999").await?;
        log.until_text("1 of 1").await?;
        log.fill("Search in stdout", "LINE 1199").await?;
        log.until_text("10 of 10").await?;
        browser.press("Enter").await?;
        log.until_text("1 of 10").await?;
        shows(
            browser,
            "no more following",
            "!document.querySelector('#log-stdout [data-is=follow]').checked",
        )
        .await?;
        log.click("checkbox", "Wrap lines").await?;
        shows(browser, "lines as they are", "getComputedStyle(log).whiteSpace === 'pre'").await?;

        std::fs::write(world.path().join("end"), "")?;
        page.until_text("succeeded").await?;
        // What is stored is shown from its end.
        browser.open(&site.url(&format!("/tasks/{id}"))).await?;
        page.until_text("all lines are there").await?;
        page.until_text("Load earlier").await?;
        // What is shown has a bound: the lines after these give way.
        let log = browser.part("#log-stdout", "line");
        log.click("button", "Load earlier").await?;
        shows(browser, "lines before", "log.childElementCount === 5000").await?;
        log.click("button", "Load earlier").await?;
        page.until_text("plain red <script>alert(1)</script> link").await?;
        shows(browser, "more lines", "log.childElementCount > 5000").await
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn a_task_is_run_again_with_changes() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue("Disbatch::Plugin::Shell", doc! { "name": "shell", "threads": 1 }).await?;
    let id = world.submit(queue, vec![doc! { "command": "exit 3" }]).await?[0];
    let _den = world.den_at_work("node1").await?;
    world.until_status(id, 2).await?;
    visit(async |browser| {
        browser.open(&site.url(&format!("/tasks/{id}"))).await?;
        let page = browser.page();
        page.until_text("exit 3").await?;
        page.click("link", "Run again with changes").await?;
        let dialog = browser.part("dialog[open]", "Run again with changes");
        dialog.fill("Params as JSON", "{\"command\":").await?;
        dialog.click("button", "Submit task").await?;
        dialog.until_text("The params are not JSON").await?;
        dialog.fill("Params as JSON", "{\"command\": \"echo changed\"}").await?;
        dialog.click("button", "Submit task").await?;
        page.until_text("This is the new task.").await?;
        page.until_text("succeeded").await?;
        page.until_text("echo changed").await?;
        browser.part("#log-stdout", "changed").until_text("changed").await?;
        // And the old one once more, as it was.
        browser.open(&site.url(&format!("/tasks/{id}"))).await?;
        page.click("link", "Retry").await?;
        page.click("button", "Yes, queue it again").await?;
        page.until_text("Earlier attempts").await?;
        page.until_text("failed").await
    })
    .await?;
    site.end().await
}

/// Prints on both streams, with pauses.
const SLOW: Script<'_> = Script {
    name: "Slow",
    text: "#!/bin/sh\necho fetch\nsleep 0.6\necho 'odd <b>\u{2603}</b>' >&2\nsleep 0.6\nprintf 'sto'\nsleep 0.6\nprintf 're\\nend\\n'\n",
};

/// Of each line of a pane its text behind the time that is shown for it.
const LINES: &str = "const [selector] = arguments; return [...document.querySelectorAll(`${selector} pre > div`)].map((line) => {
    const time = line.querySelector('.time');
    const isShown = time && getComputedStyle(time).display !== 'none';
    return `${isShown ? getComputedStyle(time, '::before').content.replaceAll(/[\"\\d.]/g, '') : ''}|${line.textContent}`;
})";

/// What `LINES` tells of a pane.
async fn lines(browser: &Browser, selector: &str) -> anyhow::Result<serde_json::Value> {
    browser.script(LINES, json!([selector])).await
}

#[tokio::test]
async fn pieces_of_output_have_times() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let (id, _den) = site.running(SLOW, doc! {}).await?;
    site.world.until_status(id, 1).await?;
    visit(async |browser| {
        browser.open(&site.url(&format!("/tasks/{id}"))).await?;
        let log = browser.part("#log-stdout", "fetch");
        log.until_text("store").await?;
        // What was printed after the last pause begins within a line: the next line has its time.
        assert_eq!(lines(browser, "#log-stdout").await?, json!(["+ s|fetch", "+ s|store", "+ s|end"]));
        assert_eq!(lines(browser, "#log-stderr").await?, json!(["+ s|odd <b>\u{2603}</b>"]));
        let title = "const time = document.querySelector('#log-stdout .time');
            time.dispatchEvent(new PointerEvent('pointerover', { bubbles: true }));
            return /^\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d \\S+$/.test(time.title)";
        assert_eq!(browser.script(title, json!([])).await?, json!(true));
        log.fill("Search in stdout", "s").await?;
        log.until_text("1 of 1").await?;
        assert_eq!(browser.violations().await?, [""; 0]);

        log.click("checkbox", "Times").await?;
        assert_eq!(lines(browser, "#log-stdout").await?, json!(["|fetch", "|store", "|end"]));
        browser.open(&site.url(&format!("/tasks/{id}"))).await?;
        log.until_text("store").await?;
        assert_eq!(lines(browser, "#log-stdout").await?, json!(["|fetch", "|store", "|end"]));
        Ok(())
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn both_streams_are_one_and_fill_the_screen() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let (id, _den) = site.running(SLOW, doc! {}).await?;
    visit(async |browser| {
        // It comes with the end of the task.
        browser.open(&site.url(&format!("/tasks/{id}"))).await?;
        browser.page().click("checkbox", "stdout and stderr as one stream").await?;
        let both = browser.part("#log-both", "fetch");
        both.until_text("store").await?;
        let one = ["+ s|fetch", "+ s|stderr: odd <b>\u{2603}</b>", "+ s|store", "+ s|end"];
        assert_eq!(lines(browser, "#log-both").await?, json!(one));
        let bars = "return [...document.querySelectorAll('#log-both pre > div')]
            .map((line) => getComputedStyle(line).boxShadow !== 'none')";
        assert_eq!(browser.script(bars, json!([])).await?, json!([false, true, false, false]));
        assert_eq!(browser.violations().await?, [""; 0]);

        both.click("button", "Full screen").await?;
        let fills = "const log = document.querySelector('#log-both');
            return document.fullscreenElement === log && log.getBoundingClientRect().height === innerHeight
                && log.querySelector('[data-is=full]').ariaPressed === 'true'";
        browser.until("the full screen", fills).await?;
        assert_eq!(browser.violations().await?, [""; 0]);
        // What an action says is seen there, too, and behind it.
        let says = "window.disbatch.toast('Done, says the page.');
            const { top, bottom } = document.querySelector('.toast').getBoundingClientRect();
            return document.elementFromPoint(innerWidth - 60, (top + bottom) / 2)?.closest('.toast') !== null";
        browser.until("what an action says", says).await?;
        both.click("button", "Full screen").await?;
        browser.page().until_text("Done, says the page.").await?;
        let leaves = "return document.fullscreenElement === null
            && document.querySelector('#log-both [data-is=full]').ariaPressed === 'false'";
        browser.until("the page", leaves).await?;

        browser.page().click("checkbox", "stdout and stderr as one stream").await?;
        browser.part("#log-stdout", "fetch").click("button", "Full screen").await?;
        browser.until("stdout", "return document.fullscreenElement?.id === 'log-stdout'").await.map(drop)
    })
    .await?;
    site.end().await
}
