//! The documentation at `/docs/`, whose scripts are those of mdbook: they must do under the DCI's policy.

use std::path::Path;

use anyhow::ensure;
use disbatch_tests::browser::visit;
use disbatch_tests::skipped;
use serde_json::json;

use crate::site::Site;

/// Where `make docs` puts it.
const SITE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../target/docs/site");

#[tokio::test]
async fn the_documentation_is_searched_and_read() -> anyhow::Result<()> {
    if !Path::new(SITE).join("index.html").is_file() {
        ensure!(std::env::var_os("DISBATCH_REQUIRE_DOCS").is_none(), "{SITE} is missing");
        skipped(&format!("there is no {SITE}: `make docs` makes it"));
        return Ok(());
    }
    let site = Site::with(|world| world.configure(json!({ "docs_root": SITE }))).await?;
    visit(async |browser| {
        browser.open(&site.url("/about")).await?;
        browser.part(".hint", "What is not told here").click("link", "the documentation").await?;
        browser.page().until_there("heading", "The first minute").await?;
        // The contents come by a script, and lead to other pages.
        browser.part("#mdbook-sidebar", "").click("link", "Upgrades").await?;
        browser.page().until_there("heading", "The policy").await?;
        browser.press("/").await?;
        browser.until("the field", "return document.activeElement.id === 'mdbook-searchbar'").await?;
        for key in "heartbeat".chars() {
            browser.press(&key.to_string()).await?;
        }
        let found = "const found = document.querySelectorAll('#mdbook-searchresults a'); \
                     return found.length > 3 && found[0].href";
        let first = browser.until("what is found", found).await?;
        ensure!(first.as_str().is_some_and(|address| address.starts_with(&site.url("/docs/"))), "{first}");
        // Its own style and fonts are used.
        browser.until("the font", "return document.fonts.check('16px \"Open Sans\"')").await?;
        // A picture that has a style in itself.
        browser.open(&site.url("/docs/index.html")).await?;
        let pictures =
            "return [...document.images].every((image) => image.complete && image.naturalWidth > 0)";
        browser.until("the pictures", pictures).await?;
        Ok(())
    })
    .await?;
    site.end().await
}
