//! `disbatch files`, with a server: trees that come back as they were, and what was broken off.

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use bson::oid::ObjectId;
use bson::{Document, doc};
use disbatch_core::clock::SystemClock;
use disbatch_core::files::ContentId;
use disbatch_core::store::Store;
use disbatch_mongod::testing::TestDatabase;
use futures::TryStreamExt;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tempfile::TempDir;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep};

use crate::proxy::Proxy;
use crate::server::{Server, disbatch};

/// How long to wait for something that should happen within moments, on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A file of which a part is on its way when that is broken off.
const MEBIBYTES: u8 = 32;

/// So much of it comes through before. That is more than the chunks that are on their way at the same time.
const LET_THROUGH: usize = 10 << 20;

/// It has so many chunks.
const CHUNKS: usize = MEBIBYTES as usize;

/// A file of a tree: what is in it, and its mode.
type Tree = BTreeMap<String, (Vec<u8>, u32)>;

/// A DCI, and a folder for files.
struct Fixture {
    database: TestDatabase,
    server: Server,
    folder: TempDir,
}

impl Fixture {
    async fn new() -> anyhow::Result<Self> {
        let database = TestDatabase::create(disbatch_mongod::testing::server().await?).await?;
        let store = Store::with_clock(database.database.clone(), Arc::new(SystemClock));
        store.ensure_indexes().await?;
        let server = Server::start(&database, &[]).await?;
        Ok(Self { database, server, folder: tempfile::tempdir()? })
    }

    fn command(&self, arguments: &[&str]) -> Command {
        self.command_by(&self.server.url(), arguments)
    }

    /// With the server at this address.
    fn command_by(&self, url: &str, arguments: &[&str]) -> Command {
        let mut command = disbatch();
        command.args(["--url", url]).args(arguments).current_dir(self.folder.path());
        command
    }

    /// A way to the server that comes to a standstill.
    async fn standstill(&self) -> anyhow::Result<Proxy> {
        Proxy::start(&self.server.address, LET_THROUGH).await
    }

    /// Runs `disbatch` and returns all its output, which must contain `part`.
    async fn expect(&self, arguments: &[&str], status: i32, part: &str) -> anyhow::Result<String> {
        let output = self.command(arguments).output().await?;
        let text = String::from_utf8([output.stdout, output.stderr].concat())?;
        ensure!(output.status.code() == Some(status), "{arguments:?}: {:?}: {text}", output.status);
        ensure!(text.contains(part), "{arguments:?}: no '{part}' in {text}");
        Ok(text)
    }

    fn write(&self, path: &str, bytes: &[u8], mode: u32) -> anyhow::Result<()> {
        let path = self.folder.path().join(path);
        std::fs::create_dir_all(path.parent().context("no folder")?)?;
        std::fs::write(&path, bytes)?;
        Ok(std::fs::set_permissions(&path, PermissionsExt::from_mode(mode))?)
    }

    /// The ids of the chunks that are stored.
    async fn chunks(&self) -> anyhow::Result<Vec<ObjectId>> {
        let chunks = self.database.database.collection::<Document>("filesets.chunks");
        let found = chunks.find(doc! {}).projection(doc! { "_id": 1 }).sort(doc! { "_id": 1 });
        let found: Vec<Document> = found.await?.try_collect().await?;
        Ok(found.iter().filter_map(|chunk| chunk.get_object_id("_id").ok()).collect())
    }
}

/// All files below a folder.
fn tree(top: &Path) -> anyhow::Result<Tree> {
    let mut tree = Tree::new();
    let mut folders = vec![top.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(&folder)? {
            let path = entry?.path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let mode = std::fs::symlink_metadata(&path)?.permissions().mode() & 0o777;
            let name = path.strip_prefix(top)?.to_string_lossy().into_owned();
            tree.insert(name, (std::fs::read(&path)?, mode));
        }
    }
    Ok(tree)
}

/// So many MiB, each of which is another one.
fn large(mebibytes: u8) -> Vec<u8> {
    let all: Vec<Vec<u8>> = (0..mebibytes).map(|n| vec![n; 1 << 20]).collect();
    all.concat()
}

/// How many bytes a command says that it has sent or received.
fn moved<'a>(text: &'a str, word: &str) -> anyhow::Result<&'a str> {
    let (_, rest) = text.split_once(" (").context("it does not say")?;
    let (bytes, _) = rest.split_once(&format!(" {word})")).context("it says something else")?;
    Ok(bytes)
}

/// The same in whole MiB.
fn mebibytes(text: &str, word: &str) -> anyhow::Result<usize> {
    let bytes = moved(text, word)?;
    match bytes.strip_suffix(" MiB").and_then(|number| number.split('.').next()) {
        Some(number) => Ok(number.parse()?),
        None => Ok(0),
    }
}

#[tokio::test]
async fn a_tree_comes_back_as_it_was() -> anyhow::Result<()> {
    let fixture = Fixture::new().await?;
    let large = [large(2), b"the end".to_vec()].concat();
    let files: [(&str, &[u8], u32); 6] = [
        ("in/a.csv", b"1,2\n", 0o644),
        ("in/bin/run", b"#!/bin/sh\n", 0o755),
        ("in/bin/old/run", b"#!/bin/sh\n", 0o700),
        ("in/.hidden \u{e9}", b"x", 0o600),
        ("in/empty", b"", 0o644),
        ("in/data/large", &large, 0o400),
    ];
    for (path, bytes, mode) in files {
        fixture.write(path, bytes, mode)?;
    }
    symlink("/etc/passwd", fixture.folder.path().join("in/link"))?;
    let put = ["files", "put", "data", "in"];
    let text = fixture.expect(&put, 0, "Stored version 1 of data: 6 files, 2.00 MiB").await?;
    ensure!(text.contains("left out, as it is no file: ") && text.contains("in/link"), "{text}");
    fixture
        .expect(
            &["files", "get", "data", "out"],
            0,
            "Got version 1 of data: 6 files, 2.00 MiB (2.00 MiB received)\n",
        )
        .await?;
    let top = fixture.folder.path();
    let mut before = tree(&top.join("in"))?;
    before.remove("link").context("no link")?;
    let after = tree(&top.join("out"))?;
    // What others may do is as the umask says.
    let shown = |tree: &Tree| -> Tree {
        tree.iter().map(|(path, (bytes, mode))| (path.clone(), (bytes.clone(), mode & 0o700))).collect()
    };
    ensure!(shown(&before) == shown(&after), "{:?} {:?}", before.keys(), after.keys());
    let modified = |name: &str| anyhow::Ok(std::fs::metadata(top.join(name))?.modified()?);
    let [was, is] = [modified("in/a.csv")?, modified("out/a.csv")?];
    ensure!(was.duration_since(is).unwrap_or_else(|error| error.duration()) < Duration::from_secs(1));

    // Nothing is sent or brought again.
    let again = fixture.expect(&put, 0, "Stored version 2 of data: 6 files").await?;
    ensure!(moved(&again, "sent")? == "0 B", "{again}");
    fixture
        .expect(&["files", "get", "data", "out"], 0, "0 files, 0 B (0 B received); 6 were there already")
        .await?;
    // What is there is replaced, and what is not of the set stays.
    fixture.write("out/a.csv", b"mine", 0o644)?;
    fixture.write("out/other", b"other", 0o644)?;
    fixture
        .expect(
            &["files", "get", "data", "out", "--version", "1"],
            0,
            "1 file, 4 B (4 B received); 5 were there",
        )
        .await?;
    let files = tree(&top.join("out"))?;
    ensure!(
        files["a.csv"].0 == b"1,2\n" && files["other"].0 == b"other" && files.len() == 7,
        "{:?}",
        files.keys()
    );
    fixture.database.drop_database().await
}

#[tokio::test]
async fn patterns_choose_and_versions_are_listed_and_removed() -> anyhow::Result<()> {
    let fixture = Fixture::new().await?;
    for (path, bytes) in
        [("in/a.csv", "a"), ("in/b.txt", "b"), ("in/x/c.csv", "c"), ("single.csv", "d"), ("other/a.csv", "e")]
    {
        fixture.write(path, bytes.as_bytes(), 0o644)?;
    }
    let put = ["files", "put", "data", "in", "single.csv", "--match", "**/*.csv"];
    fixture.expect(&put, 0, "Stored version 1 of data: 3 files, 3 B").await?;
    fixture.expect(&["files", "put", "data", "in/b.txt"], 0, "Stored version 2 of data: 1 file, 1 B").await?;
    let get = ["files", "get", "data", "out", "--version", "1", "--match", "x/*"];
    fixture.expect(&get, 0, "Got version 1 of data: 1 file, 1 B").await?;
    let got = tree(&fixture.folder.path().join("out"))?;
    ensure!(got.keys().eq(["x/c.csv"]), "{:?}", got.keys());
    fixture.expect(&["files", "ls"], 0, "data | 2       | 1     | 1 B  |").await?;
    let listed =
        fixture.expect(&["files", "ls", "data", "--version", "1"], 0, "Version 1 of data: 3 files").await?;
    let paths: Vec<&str> =
        listed.lines().filter_map(|line| line.strip_prefix("644")?.split(' ').next_back()).collect();
    ensure!(paths == ["a.csv", "single.csv", "x/c.csv"], "{listed}");
    let json = ["files", "ls", "data", "--version", "1", "--prefix", "x/", "--format", "json"];
    fixture.expect(&json, 0, &format!("\"sha256\":\"{}\"", ContentId::of(b"c"))).await?;
    fixture.expect(&["files", "ls", "data", "--versions"], 0, "2 total versions.").await?;
    fixture.expect(&["files", "rm", "data", "--version", "2"], 0, "Removed version 2 of data\n").await?;
    fixture.expect(&["files", "ls", "data"], 0, "Version 1 of data").await?;
    fixture.expect(&["files", "rm", "data"], 0, "Removed data: 1 versions\n").await?;
    fixture.expect(&["files", "ls", "data"], 255, "no file set 'data'").await?;
    fixture.expect(&["files", "rm", "data"], 255, "no file set 'data'").await?;
    for (wrong, status, part) in [
        (&["files", "put", "../x", "in"][..], 2, "is no name of a file set"),
        (&["files", "put", "data"], 2, "required"),
        (&["files", "put", "data", "in", "--match", "a["], 2, "cannot be understood"),
        (&["files", "put", "data", "in", "--match", "*.none"], 255, "there is no file to be stored"),
        (&["files", "put", "data", "nowhere"], 255, "cannot read nowhere"),
        (&["files", "put", "data", "in/a.csv", "other"], 255, "would both be a.csv"),
        (&["files", "get", "none", "out"], 255, "no file set 'none'"),
        (&["files", "get", "data", "out", "--version", "0"], 2, "0"),
    ] {
        fixture.expect(wrong, status, part).await?;
    }
    fixture.database.drop_database().await
}

/// Waits until a condition holds.
async fn until(mut holds: impl AsyncFnMut() -> anyhow::Result<bool>) -> anyhow::Result<()> {
    let end = Instant::now() + PATIENCE;
    while !holds().await? {
        ensure!(Instant::now() < end, "it never happened");
        sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}

fn signal(child: &Child, signal: Signal) -> anyhow::Result<()> {
    let id = Pid::from_raw(child.id().context("it has ended")?.try_into()?);
    Ok(kill(id, signal)?)
}

#[tokio::test]
async fn a_put_that_is_broken_off_goes_on_where_it_was() -> anyhow::Result<()> {
    let fixture = Fixture::new().await?;
    fixture.write("in/large", &large(MEBIBYTES), 0o644)?;
    let put = ["files", "put", "data", "in"];
    for how in [Signal::SIGKILL, Signal::SIGINT] {
        let before = fixture.chunks().await?.len();
        let way = fixture.standstill().await?;
        let mut child = fixture.command_by(&way.url(), &put).stderr(std::process::Stdio::piped()).spawn()?;
        until(async || anyhow::Ok(fixture.chunks().await?.len() >= before + 4)).await?;
        signal(&child, how)?;
        if how == Signal::SIGINT {
            let output = child.wait_with_output().await?;
            let text = String::from_utf8(output.stderr)?;
            ensure!(
                output.status.code() == Some(130) && text.contains("the same command goes on with it"),
                "{text}"
            );
        } else {
            child.wait().await?;
        }
        ensure!(fixture.chunks().await?.len() < CHUNKS, "more has come than there could");
    }
    let before = fixture.chunks().await?;
    fixture.expect(&["files", "ls"], 0, "0 total file sets.").await?;
    let text = fixture.expect(&put, 0, "of data: 1 file, 32.00 MiB").await?;
    let after = fixture.chunks().await?;
    ensure!(after.len() == CHUNKS && before.iter().all(|id| after.contains(id)), "{} chunks", after.len());
    // Some of the last chunks may have come when the command was gone already.
    let (new, missing) = (mebibytes(&text, "sent")?, CHUNKS - before.len());
    ensure!(new <= missing, "{text}: {missing} chunks were missing");
    fixture.expect(&["files", "get", "data", "out"], 0, "1 file, 32.00 MiB").await?;
    ensure!(std::fs::read(fixture.folder.path().join("out/large"))? == large(MEBIBYTES));
    fixture.database.drop_database().await
}

#[tokio::test]
async fn a_get_that_is_broken_off_goes_on_where_it_was() -> anyhow::Result<()> {
    let fixture = Fixture::new().await?;
    fixture.write("in/large", &large(MEBIBYTES), 0o644)?;
    fixture.expect(&["files", "put", "data", "in"], 0, "Stored version 1").await?;
    let out = fixture.folder.path().join("out");
    let length = || -> u64 {
        let entries = std::fs::read_dir(&out).into_iter().flatten().filter_map(Result::ok);
        entries.filter_map(|entry| entry.metadata().ok()).map(|metadata| metadata.len()).sum()
    };
    let way = fixture.standstill().await?;
    let mut child = fixture.command_by(&way.url(), &["files", "get", "data", "out"]).spawn()?;
    until(async || anyhow::Ok(length() >= 1 << 20)).await?;
    signal(&child, Signal::SIGKILL)?;
    child.wait().await?;
    ensure!(!out.join("large").exists(), "it is not whole");
    let before = length();
    ensure!(before >= 1 << 20, "what has come is kept");
    let get = ["files", "get", "data", "out"];
    let text = fixture.expect(&get, 0, "Got version 1 of data: 1 file, 32.00 MiB").await?;
    // What is shown is rounded.
    let (new, missing) = (mebibytes(&text, "received")?, CHUNKS - usize::try_from(before >> 20)?);
    ensure!(new <= missing, "{text}: {missing} MiB were missing");
    let got = tree(&out)?;
    ensure!(got.keys().eq(["large"]) && got["large"].0 == large(MEBIBYTES), "{:?}", got.keys());
    fixture.database.drop_database().await
}

#[tokio::test]
async fn nothing_is_written_outside_the_folder() -> anyhow::Result<()> {
    let fixture = Fixture::new().await?;
    fixture.write("in/a/x", b"from the set", 0o644)?;
    fixture.write("in/ok", b"ok", 0o644)?;
    fixture.expect(&["files", "put", "data", "in"], 0, "Stored version 1").await?;
    let top = fixture.folder.path();
    std::fs::create_dir_all(top.join("out"))?;
    std::fs::create_dir(top.join("elsewhere"))?;
    symlink("../elsewhere", top.join("out/a"))?;
    fixture.expect(&["files", "get", "data", "out"], 255, "is in the way, and no folder").await?;
    ensure!(std::fs::read_dir(top.join("elsewhere"))?.next().is_none(), "it went through a link");
    // Nor if the database says so.
    let entries = fixture.database.database.collection::<Document>("filesets.entries");
    entries.update_one(doc! { "path": "a/x" }, doc! { "$set": { "path": "../evil" } }).await?;
    fixture.expect(&["files", "get", "data", "clean"], 255, "is no path in a file set").await?;
    ensure!(!top.join("evil").exists());
    fixture.database.drop_database().await
}
