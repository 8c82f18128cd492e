//! What the Perl client does not have, with a server: `create-tasks --file`, nodes, and watching queues.

use std::process::Stdio;

use anyhow::{Context, ensure};
use bson::{Document, doc};
use disbatch_mongod::testing::TestDatabase;
use mongodb::Collection;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::TcpListener;
use tokio::process::{Child, Command};

use crate::server::{Server, disbatch};
use crate::states;

/// A queue that takes tasks.
pub struct Fixture {
    pub database: TestDatabase,
    server: Server,
}

impl Fixture {
    pub async fn new() -> anyhow::Result<Self> {
        let database = TestDatabase::create(disbatch_mongod::testing::server().await?).await?;
        states::prepare(&database).await?;
        let server = Server::start(&database, &[]).await?;
        let fixture = Self { database, server };
        fixture.expect(&["create-queue", "q", "Disbatch::Plugin::Demo"], 0, "Created queue q").await?;
        Ok(fixture)
    }

    pub fn tasks(&self) -> Collection<Document> {
        self.database.database.collection("tasks")
    }

    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = disbatch();
        command.args(["--url", &self.server.url()]).args(arguments);
        command
    }

    /// Runs `disbatch` and returns all its output, which must contain `part`.
    pub async fn expect(&self, arguments: &[&str], status: i32, part: &str) -> anyhow::Result<String> {
        let output = self.command(arguments).output().await?;
        let text = String::from_utf8([output.stdout, output.stderr].concat())?;
        ensure!(output.status.code() == Some(status), "{arguments:?}: {:?}: {text}", output.status);
        ensure!(text.contains(part), "{arguments:?}: no '{part}' in {text}");
        Ok(text)
    }
}

#[tokio::test]
async fn a_file_is_taken_in_batches_and_can_be_resumed() -> anyhow::Result<()> {
    let fixture = Fixture::new().await?;
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("tasks.ndjson");
    let file = path.to_str().context("a path that is not UTF-8")?;
    let good: String = (1..=5).map(|n| format!("{{\"n\":{n}}}\n")).collect();
    std::fs::write(&path, format!("{good}oops\n{{\"n\":7}}\n"))?;
    let create = ["create-tasks", "q", "--file", file, "--batch", "2"];

    let text = fixture.expect(&create, 255, "line 6: not a JSON object").await?;
    ensure!(text.contains("4 tasks, up to line 4. Go on with --skip-lines 4."), "{text}");
    ensure!(fixture.tasks().count_documents(doc! {}).await? == 4, "the bad line's batch was sent");

    std::fs::write(&path, format!("{good}\n{{\"n\":12345678901}}\n"))?;
    let resume = [&create[..], &["--skip-lines", "4", "--ids"]].concat();
    let text = fixture.expect(&resume, 0, "Created 2 tasks in queue q in").await?;
    ensure!(text.lines().filter(|line| line.len() == 24).count() == 2, "no ids: {text}");
    ensure!(fixture.tasks().count_documents(doc! { "params.n": 12_345_678_901_i64 }).await? == 1);

    let text =
        fixture.expect(&["create-tasks", "nosuch", "--file", file], 255, "lines 1 to 7: Error").await?;
    ensure!(text.contains("queue not found") && text.contains("0 tasks, up to line 0"), "{text}");
    fixture.expect(&["create-tasks", "q", "[]", "--file", file], 2, "cannot be used with").await?;
    let both = ["--collection", "users", "create-tasks", "q", "--file", file];
    fixture.expect(&both, 255, "cannot be used together").await?;
    fixture.database.drop_database().await
}

#[tokio::test]
async fn an_interruption_tells_how_to_go_on() -> anyhow::Result<()> {
    let fixture = Fixture::new().await?;
    let mut command = fixture.command(&["create-tasks", "q", "--file", "-", "--batch", "2", "--ids"]);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn()?;
    let mut input = child.stdin.take().context("no standard input")?;
    input.write_all(b"{\"n\":1}\n{\"n\":2}\n{\"n\":3}\n").await?;
    let mut lines = BufReader::new(child.stdout.take().context("no standard output")?).lines();
    for _ in 0..2 {
        lines.next_line().await?.context("no id")?;
    }
    // Its input is still open: it waits for the fourth line.
    interrupt(&child)?;
    let output = child.wait_with_output().await?;
    let text = String::from_utf8(output.stderr)?;
    ensure!(output.status.code() == Some(130), "{:?}: {text}", output.status);
    ensure!(text.contains("2 tasks, up to line 2. Go on with --skip-lines 2."), "{text}");
    fixture.database.drop_database().await
}

#[tokio::test]
async fn a_second_interruption_does_not_wait_for_an_answer() -> anyhow::Result<()> {
    let silent = TcpListener::bind("127.0.0.1:0").await?;
    let mut command = disbatch();
    command.args(["--url", &format!("http://{}", silent.local_addr()?)]);
    command.args(["create-tasks", "q", "--file", "-", "--batch", "1"]);
    let mut child = command.stdin(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().context("no standard input")?;
    input.write_all(b"{\"n\":1}\n").await?;
    let _request = silent.accept().await?;
    let mut lines = BufReader::new(child.stderr.take().context("no standard error")?).lines();
    interrupt(&child)?;
    let line = lines.next_line().await?.context("it did not wait")?;
    ensure!(line.starts_with("waiting for the answer"), "{line}");
    interrupt(&child)?;
    let mut rest = String::new();
    while let Some(line) = lines.next_line().await? {
        rest.push_str(&line);
    }
    ensure!(child.wait().await?.code() == Some(130), "{rest}");
    ensure!(rest.contains("0 tasks, up to line 0. Lines 1 to 1 may have been accepted"), "{rest}");
    Ok(())
}

/// Does what ^C does.
fn interrupt(child: &Child) -> anyhow::Result<()> {
    let id = nix::unistd::Pid::from_raw(child.id().context("it has ended")?.try_into()?);
    Ok(nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGINT)?)
}

#[tokio::test]
async fn nodes_are_shown_and_limited() -> anyhow::Result<()> {
    let fixture = Fixture::new().await?;
    fixture.database.database.collection("nodes").insert_one(doc! { "node": "vm" }).await?;
    fixture
        .expect(&["update-node", "vm", "maxthreads", "5"], 0, "Updated node vm: {\"maxthreads\":5}")
        .await?;
    fixture.expect(&["nodes"], 0, " | vm   | 5 ").await?;
    fixture.expect(&["nodes", "--format", "yaml"], 0, "  maxthreads: 5\n  node: vm\n").await?;
    fixture.expect(&["--format", "json", "queues"], 0, "[{\"completed\":0,").await?;
    fixture.expect(&["update-node", "vm", "maxthreads", "-1"], 255, "maxthreads must be").await?;
    fixture.expect(&["update-node", "vm", "maxthreads", "null"], 0, "null").await?;
    fixture.expect(&["update-node"], 255, "Node name not given").await?;
    fixture.database.drop_database().await
}

#[tokio::test]
async fn queues_are_watched_until_interrupted() -> anyhow::Result<()> {
    let fixture = Fixture::new().await?;
    let mut command = fixture.command(&["queues", "--watch", "0.1"]);
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("no standard output")?).lines();
    let mut tables = 0;
    while tables < 3 {
        let line = lines.next_line().await?.context("it ended by itself")?;
        ensure!(!line.contains('\u{1b}'), "no terminal, but {line:?}");
        tables += usize::from(line == "1 total queues.");
    }
    interrupt(&child)?;
    ensure!(child.wait().await?.success());
    fixture.expect(&["queues", "--watch", "-1"], 255, "--watch takes seconds").await?;
    fixture.database.drop_database().await
}
