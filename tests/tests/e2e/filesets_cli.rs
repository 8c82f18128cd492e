//! File sets from the command line to a task and back.

use std::path::Path;
use std::process::Stdio;

use anyhow::{Context, ensure};
use bson::{Document, doc};
use disbatch_tests::{Dci, Script, World, binary, eventually};
use tokio::process::Command;

/// Doubles each number of the files that it gets, and leaves one file more.
const DOUBLE: Script<'_> = Script {
    name: "Double",
    text: r#"#!/usr/bin/env python3
import glob
import os
import sys

sys.stdin.read()
for path in sorted(glob.glob("numbers/*.txt")):
    with open(path) as file:
        numbers = [int(line) for line in file]
    with open(path, "w") as file:
        file.writelines(f"{2 * number}\n" for number in numbers)
os.makedirs("sums", exist_ok=True)
with open("sums/all.txt", "w") as file:
    file.write(f"{len(glob.glob('numbers/*.txt'))}\n")
os.chmod("sums/all.txt", 0o600)
os.symlink("/etc/passwd", "sums/link")
"#,
};

/// `disbatch` with no settings but the DCI, in a folder.
fn disbatch(dci: &Dci, folder: &Path, arguments: &[&str]) -> anyhow::Result<Command> {
    let mut command = Command::new(binary("disbatch")?);
    for variable in ["DISBATCH_USERNAME", "DISBATCH_PASSWORD", "DISBATCH_TOKEN"] {
        command.env_remove(variable);
    }
    command.env("XDG_CONFIG_HOME", "/nonexistent").env("DISBATCH_URL", dci.url());
    command.args(arguments).current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
    Ok(command)
}

/// Runs a command, which must end so, and gives all that it has printed.
async fn expect(dci: &Dci, folder: &Path, arguments: &[&str], part: &str) -> anyhow::Result<String> {
    let output = disbatch(dci, folder, arguments)?.output().await?;
    let text = String::from_utf8([output.stdout, output.stderr].concat())?;
    ensure!(output.status.success(), "{arguments:?}: {:?}: {text}", output.status);
    ensure!(text.contains(part), "{arguments:?}: no '{part}' in {text}");
    Ok(text)
}

async fn world() -> anyhow::Result<World> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    Ok(world)
}

fn read(folder: &Path, path: &str) -> anyhow::Result<String> {
    std::fs::read_to_string(folder.join(path)).with_context(|| path.to_owned())
}

#[tokio::test]
async fn a_task_gets_what_was_put_there_and_leaves_what_is_got() -> anyhow::Result<()> {
    let world = world().await?;
    let queue_id = world.script_queue(DOUBLE, 1).await?;
    let queue = queue_id.to_string();
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let _den = world.den("n1")?;
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    std::fs::create_dir_all(folder.join("in/numbers"))?;
    for (path, text) in [("in/numbers/a.txt", "1\n2\n"), ("in/numbers/b.txt", "5\n"), ("in/unused.txt", "x")]
    {
        std::fs::write(folder.join(path), text)?;
    }
    expect(&dci, folder, &["files", "put", "data", "in"], "Stored version 1 of data: 3 files").await?;
    let run = [
        "run",
        &queue,
        "n=1",
        "--files-in",
        "data@1",
        "--files-in-match",
        "numbers/**",
        "--files-out",
        "result",
    ];
    let text = expect(&dci, folder, &run, "").await?;
    ensure!(text.contains("sums/link"), "what is left out is said: {text}");
    let get = ["files", "get", "result", "out"];
    expect(&dci, folder, &get, "Got version 1 of result: 3 files").await?;
    ensure!(read(folder, "out/numbers/a.txt")? == "2\n4\n" && read(folder, "out/numbers/b.txt")? == "10\n");
    ensure!(read(folder, "out/sums/all.txt")? == "2\n");
    let listed =
        expect(&dci, folder, &["files", "ls", "result", "--prefix", "sums/"], "sums/all.txt").await?;
    ensure!(
        listed.starts_with("600 ") && !listed.contains("link") && !listed.contains("numbers"),
        "{listed}"
    );
    let tasks = world.tasks_of(queue.parse()?).await?;
    let files = tasks.first().context("no task")?.get_document("files")?;
    let version =
        |part: &str, key: &str| files.get_document(part).ok().and_then(|part| part.get(key).cloned());
    assert_eq!(version("input", "taken"), Some(bson::Bson::Int64(1)));
    assert_eq!(version("output", "version"), Some(bson::Bson::Int64(1)));
    let id = tasks[0].get_object_id("_id")?.to_hex();
    expect(&dci, folder, &["show", &id], "Files out   result version 1\n").await?;

    // What a task has left is what the next one takes, the newest version unless it says another.
    let run = [
        "run",
        &queue,
        "n=1",
        "--files-in",
        "result",
        "--files-out",
        "result",
        "--files-out-match",
        "numbers/a.txt",
    ];
    expect(&dci, folder, &run, "").await?;
    expect(&dci, folder, &["files", "get", "result", "second"], "Got version 2 of result: 1 file").await?;
    ensure!(read(folder, "second/numbers/a.txt")? == "4\n8\n");
    // A set that is not there is said at once, and there is no task.
    let before = world.count(queue_id, doc! {}).await?;
    let missing = disbatch(&dci, folder, &["run", &queue, "n=1", "--files-in", "nosuch"])?.output().await?;
    let text = String::from_utf8(missing.stderr)?;
    ensure!(
        missing.status.code() == Some(255) && text.contains("no file set 'nosuch'"),
        "{:?} {text}",
        missing.status
    );
    ensure!(world.count(queue_id, doc! {}).await? == before, "nothing is made");
    // It may be there by the time that a task starts later, or after another one.
    let later = ["create-task", &queue, "n", "1", "--files-in", "nosuch@7", "--delay", "3600"];
    let delayed = disbatch(&dci, folder, &later)?.output().await?;
    ensure!(delayed.status.success(), "{}", String::from_utf8_lossy(&delayed.stderr));
    world.end().await
}

#[tokio::test]
async fn a_put_outlasts_its_web_server() -> anyhow::Result<()> {
    const CHUNKS: u64 = 128;
    let world = world().await?;
    let (config, log) = (world.config(), world.path().join("dci.log"));
    let dci = Dci::start(&config, &log).await?;
    let folder = tempfile::tempdir()?;
    let large: Vec<Vec<u8>> =
        (0..CHUNKS).map(|n| vec![u8::try_from(n).unwrap_or_default(); 1 << 20]).collect();
    let large = large.concat();
    std::fs::write(folder.path().join("large"), &large)?;
    let mut put = disbatch(&dci, folder.path(), &["files", "put", "data", "large"])?;
    let put = put.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let chunks = world.database().collection::<Document>("filesets.chunks");
    eventually("some chunks", || async { Ok((chunks.count_documents(doc! {}).await? >= 4).then_some(())) })
        .await?;
    let address = dci.kill().await?;
    let before = chunks.count_documents(doc! {}).await?;
    ensure!(before < CHUNKS, "it was too quick to be broken off");
    let again = Dci::start_at(&address, &config, &world.path().join("again.log")).await?;
    let output = put.wait_with_output().await?;
    let text = String::from_utf8([output.stdout, output.stderr].concat())?;
    ensure!(
        output.status.success() && text.contains("Stored version 1 of data: 1 file, 128.00 MiB"),
        "{text}"
    );
    ensure!(text.contains("trying again until it is back"), "it was not interrupted: {text}");
    assert_eq!(chunks.count_documents(doc! {}).await?, CHUNKS);
    expect(&again, folder.path(), &["files", "get", "data", "out"], "1 file, 128.00 MiB").await?;
    ensure!(std::fs::read(folder.path().join("out/large"))? == large, "it came back as something else");
    world.end().await
}
