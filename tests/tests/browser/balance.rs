//! QueueBalance, by keyboard and by clicks.

use bson::{Document, doc};
use disbatch_tests::browser::visit;
use disbatch_tests::eventually;

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
