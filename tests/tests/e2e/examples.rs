//! The example plugins of `plugins/examples` under a real DEN.

use std::path::Path;

use bson::{Document, doc};
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

/// What of a task a submitter of commands sees.
fn seen(task: &Document) -> anyhow::Result<Document> {
    let exit = task.get_document("exit")?;
    let of_exit = ["code", "signal", "reason"].map(|key| (key.to_owned(), exit.get(key).cloned().into()));
    let own = ["status", "stdout", "stderr"].map(|key| (key.to_owned(), task.get(key).cloned().into()));
    let seen = of_exit.into_iter().chain(own).collect();
    Ok(seen)
}

#[tokio::test]
async fn commands_come_to_the_same_with_and_without_the_program_of_their_plugin() -> anyhow::Result<()> {
    let world = World::new().await?;
    let plugins = world.path().join("shells");
    std::fs::create_dir_all(&plugins)?;
    let manifest = json!({ "name": "Program", "command": ["disbatch-plugin-shell"] });
    std::fs::write(plugins.join("plugin.json"), manifest.to_string())?;
    world.configure(json!({ "plugin_dirs": [plugins] }))?;
    let direct = world.queue("Disbatch::Plugin::Shell", doc! { "threads": 4 }).await?;
    let program = world.queue("Program", doc! { "threads": 4 }).await?;
    let odd = world.path().join("odd");
    std::fs::write(&odd, "echo no first line; exit 5\n")?;
    std::fs::set_permissions(&odd, std::os::unix::fs::PermissionsExt::from_mode(0o755))?;
    let folder = world.path().display().to_string();
    let cases = vec![
        doc! { "command": ["printf", "%s|", "a b", "$HOME", "*"] },
        doc! { "command": "echo out | tr a-z A-Z; echo err >&2; exit 7" },
        doc! { "command": "echo $0; cat; nonsense" },
        doc! { "command": ["sh", "-c", "kill -KILL $$"] },
        doc! { "command": "echo '{\"status\":3,\"result\":{\"n\":1}}' >&3" },
        doc! { "command": "pwd; echo $A", "env": { "A": "b c" }, "cwd": "/usr" },
        doc! { "command": ["./odd"], "cwd": &folder },
        doc! { "command": ["odd"], "env": { "PATH": &folder } },
        doc! { "command": ["true"], "env": { "PATH": "/nowhere" } },
        doc! { "command": ["no-such-program"] },
        doc! { "command": ["/etc/passwd"] },
        doc! { "command": ["/etc"] },
        doc! { "command": "true", "cwd": "/nowhere" },
        doc! { "command": ["true", "x".repeat(200_000)] },
        doc! { "command": 5 },
        doc! { "command": ["ls", 5] },
        doc! { "command": "true", "env": { "A=B": "" } },
        doc! {},
    ];
    let ids = [world.submit(direct, cases.clone()).await?, world.submit(program, cases.clone()).await?];
    let _den = world.den("n1")?;
    let direct = world.until_all_ended(direct).await?;
    let program = world.until_all_ended(program).await?;
    assert_eq!([direct.len(), program.len()], ids.map(|ids| ids.len()));
    for ((case, direct), program) in cases.iter().zip(&direct).zip(&program) {
        let case: String = case.to_string().chars().take(200).collect();
        assert_eq!(seen(direct)?, seen(program)?, "{case}");
    }
    let codes: Vec<i32> =
        direct.iter().filter_map(|task| task.get_document("exit").ok()?.get_i32("code").ok()).collect();
    assert_eq!(
        codes,
        [0, 7, 127, 0, 0, 5, 5, 127, 127, 126, 126, 2, 126, 2, 2, 2, 2],
        "the one that was killed has none"
    );
    world.end().await
}
