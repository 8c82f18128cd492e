//! Light and dark.

use bson::doc;
use disbatch_tests::browser::{Browser, Theme, visit};

use crate::site::Site;

/// Waits until the ground of the page is dark, or light.
async fn until_ground(browser: &Browser, is_dark: bool) -> anyhow::Result<()> {
    let script = format!(
        "const [red, green, blue] = getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number); \
         return (red + green + blue < 3 * 128) === {is_dark}"
    );
    browser.until(if is_dark { "a dark ground" } else { "a light ground" }, &script).await.map(drop)
}

#[tokio::test]
async fn pages_look_as_the_system_asks_or_as_was_chosen() -> anyhow::Result<()> {
    let site = Site::new().await?;
    site.world.queue("Disbatch::Plugin::Demo", doc! { "name": "mail" }).await?;
    visit(async |browser| {
        browser.open(&site.url("/")).await?;
        until_ground(browser, false).await?;
        browser.theme(Theme::Dark).await?;
        until_ground(browser, true).await?;
        let page = browser.page();
        page.click("button", "Theme: system").await?;
        page.until_there("button", "Theme: light").await?;
        until_ground(browser, false).await?;
        // It is remembered.
        browser.open(&site.url("/tasks")).await?;
        until_ground(browser, false).await?;
        page.click("button", "Theme: light").await?;
        page.until_there("button", "Theme: dark").await?;
        browser.theme(Theme::Light).await?;
        until_ground(browser, true).await?;
        page.click("button", "Theme: dark").await?;
        until_ground(browser, false).await
    })
    .await?;
    site.end().await
}
