//! The example plugins of `plugins/examples` under a real DEN.

use std::path::Path;

use bson::doc;
use disbatch_tests::World;
use serde_json::json;

#[tokio::test]
async fn the_python_and_the_shell_example_run() -> anyhow::Result<()> {
    let world = World::new().await?;
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../plugins/examples");
    world.configure(json!({ "plugin_dirs": [examples] }))?;
    let words = world.queue("Example::WordCount", doc! { "threads": 1 }).await?;
    let sums = world.queue("Example::Checksum", doc! { "threads": 1 }).await?;
    let file = world.path().join("data");
    std::fs::write(&file, "hello\n")?;
    let words = world.submit(words, vec![doc! { "text": "one two two" }]).await?[0];
    let file = file.display().to_string();
    let sum = world.submit(sums, vec![doc! { "file": file }, doc! { "file": "/nonexistent" }]).await?;
    let den = world.den("n1")?;
    let counted = world.until_status(words, 1).await?;
    assert!(counted.get_str("stdout")?.contains('3'), "{counted}");
    assert!(counted.get_document("result").is_ok(), "{counted}");
    let summed = world.until_status(sum[0], 1).await?;
    let sha256 = "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03";
    assert!(summed.get_str("stdout")?.contains(sha256), "{summed} {}", den.log()?);
    world.until_status(sum[1], 3).await?;
    world.end().await
}
