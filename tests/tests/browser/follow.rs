//! A task that runs while somebody looks.

use bson::doc;
use disbatch_tests::Script;
use disbatch_tests::browser::visit;
use serde_json::json;

use crate::site::Site;

/// Prints a line, and one more for each of two files that comes to be.
const STEPS: Script<'_> = Script {
    name: "Steps",
    text: r#"#!/usr/bin/env python3
import json, os, sys, time
params = json.load(sys.stdin)["params"]
print("the first line", flush=True)
for name in ("second", "third"):
    while not os.path.exists(os.path.join(params["folder"], name)):
        time.sleep(0.02)
    print("the " + name + " line", flush=True)
"#,
};

#[tokio::test]
async fn a_running_task_is_followed_without_loading_its_page_again() -> anyhow::Result<()> {
    let site = Site::new().await?;
    let world = &site.world;
    let folder = world.path().display().to_string();
    let (id, _den) = site.running(STEPS, doc! { "folder": folder }).await?;
    visit(async |browser| {
        browser.open(&site.url(&format!("/tasks/{id}"))).await?;
        let page = browser.page();
        page.until_text("the first line").await?;
        page.until_text("running").await?;
        // It would go with the page.
        browser.script("globalThis.stillTheSame = true", json!([])).await?;
        for (step, last) in [("second", false), ("third", true)] {
            std::fs::write(world.path().join(step), "")?;
            page.until_text(&format!("the {step} line")).await?;
            if last {
                page.until_text("succeeded").await?;
            }
        }
        assert_eq!(browser.script("return globalThis.stillTheSame", json!([])).await?, true);
        Ok(())
    })
    .await?;
    site.end().await
}
