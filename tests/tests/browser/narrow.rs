//! Pages in the windows of telephones.

use anyhow::ensure;
use bson::doc;
use disbatch_tests::browser::visit;
use serde_json::json;

use crate::site::Site;

#[tokio::test]
async fn rows_are_cards_and_the_head_is_one_line() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail", "threads": 1 }).await?;
    world.submit(queue, vec![doc! { "a": 1 }]).await?;
    visit(async |browser| {
        browser.resize(390, 900).await?;
        for (path, shown) in [("/", "mail"), ("/tasks", "queued")] {
            browser.open(&site.url(path)).await?;
            let page = browser.page();
            page.until_text(shown).await?;
            page.until_text("Live").await?;
            let height =
                browser.script("return document.querySelector('.top').offsetHeight", json!([])).await?;
            ensure!(
                height.as_u64().is_some_and(|height| height <= 56),
                "{path}: the head is {height} pixels high"
            );
            let fits = "return [...document.querySelectorAll('table.cards-of')].every((table) => \
                table.scrollWidth <= table.parentElement.clientWidth) \
                && document.querySelectorAll('table.cards-of').length > 0";
            ensure!(browser.script(fits, json!([])).await? == true, "{path}: a table does not fit");
            // Cells say what they are, where a number alone would not.
            let unnamed = "return [...document.querySelectorAll('td[data-label]')].filter((cell) => \
                !getComputedStyle(cell, '::before').content.includes(cell.dataset.label)).length";
            ensure!(browser.script(unnamed, json!([])).await? == 0, "{path}: cells without a name");
            page.click("DisclosureTriangle", "Menu").await?;
            page.until_there("link", "Schedules").await?;
            page.until_there("button", "Pause updates").await?;
            let violations = browser.violations().await?;
            ensure!(violations.is_empty(), "{path}: {violations:?}");
        }
        Ok(())
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn filters_are_behind_a_button_that_says_how_many_are_set() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let queue = site.world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail", "threads": 1 }).await?;
    site.world.submit(queue, vec![doc! { "a": 1 }]).await?;
    visit(async |browser| {
        browser.resize(390, 900).await?;
        for path in ["/tasks?queue=mail&status=-2", "/audit?what=queue+update&by=ann"] {
            browser.open(&site.url(path)).await?;
            let page = browser.page();
            page.until_there("DisclosureTriangle", "Filters (2)").await?;
            let seen = "return document.querySelector('form[role=search]:not(.jump)').checkVisibility()";
            ensure!(browser.script(seen, json!([])).await? == false, "{path}: the form is in the way");
            page.click("DisclosureTriangle", "Filters (2)").await?;
            browser.until("the form", seen).await?;
            browser.resize(1000, 900).await?;
            browser.open(&site.url(path)).await?;
            browser.until("the form in a wide window", seen).await?;
            browser.resize(390, 900).await?;
        }
        Ok(())
    })
    .await?;
    site.end().await
}
