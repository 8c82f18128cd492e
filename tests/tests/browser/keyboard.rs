//! Everything by keyboard alone.

use anyhow::ensure;
use bson::doc;
use disbatch_tests::browser::{Browser, visit};
use serde_json::json;

use crate::site::Site;

/// Waits until the browser is on this page, and its script has begun.
async fn until_at(browser: &Browser, path: &str) -> anyhow::Result<()> {
    let script = format!("return location.pathname === {} && globalThis.disbatch !== undefined", json!(path));
    browser.until(path, &script).await.map(drop)
}

/// Waits until what has the focus is called this.
async fn until_focus(browser: &Browser, name: &str) -> anyhow::Result<()> {
    let script = format!(
        "const at = document.activeElement; return (at.ariaLabel ?? at.textContent).trim() === {}",
        json!(name)
    );
    browser.until(&format!("the focus on {name}"), &script).await.map(drop)
}

#[tokio::test]
async fn pages_are_reached_and_rows_opened_by_keys() -> anyhow::Result<()> {
    let site = Site::new().await?;
    for name in ["alpha", "beta"] {
        site.world.queue("Disbatch::Plugin::Demo", doc! { "name": name }).await?;
    }
    visit(async |browser| {
        browser.open(&site.url("/")).await?;
        until_at(browser, "/").await?;
        // The first thing that a key reaches leads past the head of the page, and is seen then.
        browser.press("Tab").await?;
        until_focus(browser, "Skip to content").await?;
        let seen = "const { top, height } = document.activeElement.getBoundingClientRect(); return top >= 0 && height > 10";
        ensure!(browser.script(seen, json!([])).await? == true, "it is not seen");

        browser.press("?").await?;
        let help = browser.part("dialog[open]", "Keyboard");
        help.until_text("Next row, row before").await?;
        browser.press("Escape").await?;

        browser.press("/").await?;
        until_focus(browser, "Show only queues with").await?;
        for key in ["b", "e", "t"] {
            browser.press(key).await?;
        }
        browser.page().until_no_text("alpha").await?;
        for _ in 0..2 {
            browser.press("Escape").await?;
        }
        browser.press("j").await?;
        until_focus(browser, "alpha").await?;
        browser.press("j").await?;
        until_focus(browser, "beta").await?;
        browser.press("k").await?;
        until_focus(browser, "alpha").await?;
        browser.press("Enter").await?;
        browser.part("h1", "alpha").until_text("alpha").await?;

        for (key, path) in [("t", "/tasks"), ("n", "/nodes"), ("q", "/balance"), ("a", "/audit"), ("o", "/")] {
            browser.press("g").await?;
            browser.press(key).await?;
            until_at(browser, path).await?;
        }
        Ok(())
    })
    .await?;
    site.end().await
}

/// Waits until the menu of further places is open, or closed.
async fn until_menu(browser: &Browser, is_open: bool) -> anyhow::Result<()> {
    let script = format!("return document.querySelector('.further').open === {is_open}");
    browser.until(if is_open { "an open menu" } else { "a closed menu" }, &script).await.map(drop)
}

#[tokio::test]
async fn further_places_are_in_a_menu_that_keys_open_and_close() -> anyhow::Result<()> {
    let site = Site::new().await?;
    visit(async |browser| {
        browser.resize(1440, 900).await?;
        browser.open(&site.url("/plugins")).await?;
        until_at(browser, "/plugins").await?;
        // The head is one row, and says where this is although it is in the menu.
        let head = "const top = document.querySelector('.top'); \
            return top.getBoundingClientRect().height < 60 \
              && top.querySelector('.further a[aria-current=page]').textContent === 'Plugins' \
              && top.querySelector('.further > summary').ariaCurrent === 'true'";
        ensure!(browser.script(head, json!([])).await? == true, "the head is not as it should be");
        let more = "return document.activeElement.textContent.trim() === 'More'";
        for _ in 0..12 {
            if browser.script(more, json!([])).await? == true {
                break;
            }
            browser.press("Tab").await?;
        }
        until_focus(browser, "More").await?;
        browser.press("Enter").await?;
        until_menu(browser, true).await?;
        browser.press("Tab").await?;
        until_focus(browser, "Arrays").await?;
        let lies_over = "const { left, right } = document.activeElement.getBoundingClientRect(); \
            const main = document.querySelector('main').getBoundingClientRect(); \
            return main.top < 60 && right <= innerWidth && left >= 0";
        ensure!(browser.script(lies_over, json!([])).await? == true, "it moves the page, or sticks out");
        browser.press("Escape").await?;
        until_menu(browser, false).await?;
        until_focus(browser, "More").await?;
        // Nor does it lie over what is used next.
        browser.press("Enter").await?;
        until_menu(browser, true).await?;
        browser.press("Shift+Tab").await?;
        until_focus(browser, "Nodes").await?;
        until_menu(browser, false).await?;
        let page = browser.page();
        page.click("DisclosureTriangle", "More").await?;
        until_menu(browser, true).await?;
        page.click("heading", "Plugins").await?;
        until_menu(browser, false).await?;

        // In a narrow window it is part of the other menu, and stays open beside what is used.
        browser.resize(360, 800).await?;
        page.click("DisclosureTriangle", "Menu").await?;
        page.click("DisclosureTriangle", "More").await?;
        page.until_there("link", "About").await?;
        let fits = "return document.documentElement.scrollWidth <= 360";
        ensure!(browser.script(fits, json!([])).await? == true, "it is too wide");
        page.click("heading", "Plugins").await?;
        until_menu(browser, true).await?;
        page.click("link", "Audit").await?;
        until_at(browser, "/audit").await
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn a_queue_is_made_and_changed_by_keys() -> anyhow::Result<()> {
    let site = Site::new().await?;
    visit(async |browser| {
        browser.open(&site.url("/")).await?;
        until_at(browser, "/").await?;
        // As often as needed, and no more than there are things to reach.
        for _ in 0..40 {
            let name = "return document.activeElement.textContent.trim()";
            if browser.script(name, json!([])).await? == "New queue" {
                break;
            }
            browser.press("Tab").await?;
        }
        until_focus(browser, "New queue").await?;
        browser.press("Enter").await?;
        browser.part("dialog[open]", "New queue").until_text("Plugin").await?;
        for key in ["m", "a", "i", "l", "Enter"] {
            browser.press(key).await?;
        }
        browser.page().until_text("Queue mail is there.").await?;
        browser.page().until_there("link", "mail").await?;
        browser.press("j").await?;
        until_focus(browser, "mail").await?;
        browser.press("Tab").await?;
        until_focus(browser, "Threads of mail").await?;
        for key in ["Control+a", "5", "Enter"] {
            browser.press(key).await?;
        }
        browser.page().until_text("Threads of mail: 5.").await
    })
    .await?;
    site.end().await
}
