//! QueueBalance, by keyboard and by clicks.

use anyhow::ensure;
use bson::{Document, doc};
use disbatch_tests::browser::visit;
use disbatch_tests::eventually;
use serde_json::json;

use crate::site::Site;

#[tokio::test]
async fn tiers_and_times_are_changed_checked_and_saved() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    for name in ["mail", "reports"] {
        world.queue("Disbatch::Plugin::Demo", doc! { "name": name, "threads": 1 }).await?;
    }
    visit(async |browser| {
        browser.open(&site.url("/balance")).await?;
        let page = browser.page();
        page.until_text("Nothing has been set yet.").await?;
        page.until_text("It does not work, as it is switched off.").await?;
        page.click("button", "New tier").await?;
        // Before it are, from the right: not balanced, the rest, the new tier.
        let move_mail = "Move mail to the tier before";
        page.click("button", move_mail).await?;
        page.until_text("Not saved yet.").await?;
        // The button that was pressed has the focus still, so a key does the rest.
        browser.press("Enter").await?;
        browser.part("[data-tier=tier]", "mail").until_text("mail").await?;
        page.click("button", "Move reports to the tier before").await?;
        browser.part("[data-tier=default]", "reports").until_text("reports").await?;

        page.click("button", "Add a time").await?;
        let row = browser.part("#times tr", "");
        row.fill("Tasks at most", "").await?;
        page.click("button", "Save").await?;
        // The number is not given: nothing is sent.
        browser
            .until(
                "a field that is refused",
                "return document.querySelector('#times :invalid')?.dataset.field === 'most'",
            )
            .await?;
        page.until_text("Not saved").await?;
        row.fill("Tasks at most", "12").await?;
        let time = "const field = document.querySelector('#times [data-field=time]'); field.value = '06:30'; \
                    field.dispatchEvent(new Event('input', { bubbles: true })); return true";
        browser.until("a time", time).await?;
        page.click("button", "Save").await?;
        page.until_text("Everything is saved.").await?;
        page.until_text("Balance: saved.").await?;
        let collection = world.database().collection::<Document>("balance");
        let saved = doc! { "queues": [["reports"], ["mail"]], "max_tasks": { "* 06:30": 12 } };
        eventually("the document", async || Ok(collection.find_one(saved.clone()).await?)).await?;
        // As it was saved it is shown.
        browser.open(&site.url("/balance")).await?;
        browser.part("[data-tier=tier]", "mail").until_text("mail").await?;
        page.until_no_text("Nothing has been set yet.").await?;
        page.click("button", "for 8 h").await?;
        page.until_text("It does nothing until").await?;
        page.click("button", "Enable it now").await?;
        page.until_text("QueueBalance works again.").await
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn what_somebody_else_has_saved_meanwhile_is_not_overwritten() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail", "threads": 1 }).await?;
    let balance = world.database().collection::<Document>("balance");
    balance.insert_one(doc! { "max_tasks": { "* 07:00": 5 }, "queues": [["mail"]] }).await?;
    let until_stored = async |most: i32| {
        let wanted = doc! { "max_tasks": { "* 07:00": most }, "queues": [["mail"]] };
        eventually("the document", async || Ok(balance.find_one(wanted.clone()).await?)).await.map(drop)
    };
    visit(async |browser| {
        browser.open(&site.url("/balance")).await?;
        let (page, row) = (browser.page(), browser.part("#times tr", ""));
        row.fill("Tasks at most", "12").await?;
        balance.update_one(doc! {}, doc! { "$set": { "max_tasks": { "* 07:00": 7 } } }).await?;
        page.click("button", "Save").await?;
        page.until_text("Not saved. Other settings have been saved meanwhile. Load the page again").await?;
        until_stored(7).await?;
        let complaints = browser.complaints().await?;
        ensure!(complaints.iter().all(|text| text.contains("status of 409")), "{complaints:?}");
        page.click("button", "Take back what is not saved").await?;
        let most = |most: &str| {
            format!("return document.querySelector('#times [data-field=most]').value === '{most}'")
        };
        browser.until("what the other has saved", &most("7")).await?;

        row.fill("Tasks at most", "12").await?;
        browser.press("Enter").await?;
        page.until_text("Balance: saved.").await?;
        until_stored(12).await?;
        browser.script("document.querySelector('#toasts').replaceChildren()", json!([])).await?;
        // The page has the new revision, although its field has still the focus.
        row.fill("Tasks at most", "13").await?;
        page.click("button", "Save").await?;
        page.until_text("Balance: saved.").await?;
        until_stored(13).await?;
        page.click("button", "Undo").await?;
        page.until_text("Undone.").await?;
        until_stored(12).await?;
        browser.until("what was there before", &most("12")).await.map(drop)
    })
    .await?;
    site.end().await
}

#[tokio::test]
async fn it_is_paused_whatever_is_stored() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let balance = site.world.database().collection::<Document>("balance");
    balance.insert_one(doc! { "max_tasks": { "never": 5 }, "queues": [["gone"]] }).await?;
    let until_stored = async |disabled: Document| {
        let wanted = doc! { "max_tasks": { "never": 5 }, "queues": [["gone"]], "disabled": disabled };
        eventually("the document", async || Ok(balance.find_one(wanted.clone()).await?)).await.map(drop)
    };
    visit(async |browser| {
        browser.open(&site.url("/balance")).await?;
        let page = browser.page();
        browser.part("#times tr", "").fill("Tasks at most", "9").await?;
        page.click("button", "for 8 h").await?;
        page.until_text("It does nothing until").await?;
        until_stored(doc! { "$gt": 0 }).await?;
        page.click("button", "Enable it now").await?;
        page.until_text("QueueBalance works again.").await?;
        until_stored(doc! { "$type": "null" }).await?;
        // What is not saved has been left alone.
        let typed = "return document.querySelector('#times [data-field=most]').value === '9'";
        browser.until("what was typed", typed).await.map(drop)
    })
    .await?;
    site.end().await
}
