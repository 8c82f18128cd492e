//! `run` and `logs`.

use std::ffi::OsStr;
use std::process::Stdio;

use anyhow::{Context, ensure};
use serde_json::{Value, json as value};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, BufReader};
use tokio::process::{Child, Command};

use crate::ID;
use crate::server::{Reply, Server, json};

const DETAILS: &str = "GET /tasks/6b0003bb686c8275d8013333?.details=1";

fn created() -> Reply {
    json(value!({ "MongoDB::InsertManyResult": { "inserted": [{ "_id": { "$oid": ID } }] } }))
}

fn task(status: i64, attempt: i64) -> Reply {
    json(
        value!({ "_id": { "$oid": ID }, "status": status, "attempt": attempt, "run_at": "2026-11-20T08:24:27" }),
    )
}

fn state(status: i64) -> Reply {
    json(value!({ "id": ID, "status": status, "changed": true }))
}

fn bytes(text: &str) -> Vec<Reply> {
    vec![Reply::Bytes(text.as_bytes().to_vec())]
}

fn stream(name: &str, attempt: i64) -> String {
    stream_from(name, attempt, 0)
}

fn stream_from(name: &str, attempt: i64, from: u64) -> String {
    format!("GET /tasks/{ID}/{name}?.follow=1&.attempt={attempt}&.from={from}")
}

fn wait(since: i64, seconds: i64) -> String {
    format!("GET /tasks/{ID}/wait?.timeout={seconds}&.since={since}")
}

#[tokio::test]
async fn a_run_ends_as_its_task() -> anyhow::Result<()> {
    for (status, code) in [(1, 0), (2, 102), (-3, 103), (-5, 105), (-6, 106), (17, 17), (100_000, 100)] {
        let server = Server::start(vec![
            ("POST /tasks", vec![created()]),
            (DETAILS, vec![task(-2, 0), task(0, 1), task(status, 1)]),
            (&wait(-2, 5), vec![state(0)]),
            (&stream("stdout", 1), vec![Reply::Bytes(b"out\xff\n".to_vec())]),
            (&stream("stderr", 1), bytes("warning\n")),
        ])
        .await?;
        let options = ["--timeout", "5m", "--max-attempts", "3", "--delay=0", "--idempotency-key", "k"];
        let outcome =
            server.expect(&[&["run", "mail", "command=date", "n=1"][..], &options].concat(), code).await?;
        ensure!(outcome.stdout == b"out\xff\n", "{outcome:?}");
        ensure!(outcome.stderr.contains("warning\n") && outcome.stderr.contains(ID), "{outcome:?}");
        let expected = value!({ "queue": "mail", "params": { "command": "date", "n": "1" }, ".timeout": 300,
            ".max_attempts": 3, ".delay": 0, ".idempotency_key": "k" });
        ensure!(server.body("POST /tasks")? == expected, "{:?}", server.asked());
    }
    Ok(())
}

#[tokio::test]
async fn a_run_goes_on_with_the_next_attempt() -> anyhow::Result<()> {
    let server = Server::start(vec![
        ("POST /tasks", vec![created()]),
        // The second attempt was given back before it ran.
        (DETAILS, vec![task(-7, 1), task(-7, 1), task(-1, 2), task(1, 3)]),
        (&wait(-7, 5), vec![state(-1)]),
        (&wait(-1, 5), vec![state(0)]),
        (&stream("stdout", 1), bytes("one\n")),
        (&stream("stderr", 1), bytes("")),
        (&stream("stdout", 3), bytes("three\n")),
        (&stream("stderr", 3), bytes("")),
    ])
    .await?;
    let outcome = server.expect(&["run", "mail", "{\"n\":1}"], 0).await?;
    ensure!(outcome.text() == "one\nthree\n", "{outcome:?}");
    let said = "attempt 1 did not succeed; the task waits until 2026-11-20T08:24:27 UTC for the next one";
    ensure!(outcome.stderr.contains(said), "{outcome:?}");
    ensure!(outcome.stderr.contains("attempt 3\n"), "{outcome:?}");
    ensure!(server.body("POST /tasks")?["params"] == value!({ "n": 1 }));
    Ok(())
}

#[tokio::test]
async fn output_goes_on_where_the_connection_broke() -> anyhow::Result<()> {
    let server = Server::start(vec![
        ("POST /tasks", vec![created()]),
        (DETAILS, vec![task(1, 1)]),
        (&stream("stdout", 1), vec![Reply::Broken(b"0123".to_vec())]),
        // One DCI begins where it is asked to, another sends everything again, and of what has ended there are ranges.
        (&stream_from("stdout", 1, 4), vec![Reply::Nothing, Reply::BrokenFrom(4, b"4".to_vec())]),
        (&stream_from("stdout", 1, 5), vec![Reply::Broken(b"012345".to_vec())]),
        (&stream_from("stdout", 1, 6), vec![Reply::Part(6, b"6789".to_vec())]),
        (&stream("stderr", 1), vec![Reply::Broken(b"all".to_vec())]),
        (&stream_from("stderr", 1, 3), vec![Reply::Json(416, value!({ "error": "no such range" }))]),
    ])
    .await?;
    let outcome = server.expect(&["run", "mail"], 0).await?;
    ensure!(outcome.text() == "0123456789", "{outcome:?}");
    ensure!(outcome.stderr.contains("all") && outcome.stderr.contains("trying again"), "{outcome:?}");
    let asked = server.asked();
    let of_stdout = asked.iter().filter(|asked| asked.line.contains("/stdout"));
    let ranges = of_stdout.map(|asked| asked.range.clone());
    let range = |text: &str| Some(text.to_owned());
    let expected = [None, range("bytes=4-"), range("bytes=4-"), range("bytes=5-"), range("bytes=6-")];
    ensure!(ranges.collect::<Vec<_>>() == expected, "{asked:?}");
    Ok(())
}

#[tokio::test]
async fn a_file_whose_connection_broke_is_told_with_the_whole_address() -> anyhow::Result<()> {
    let entry = value!({ "path": "x", "size": 6,
        "sha256": "bef57ec7f53a6d40beb640a780a639c83bc29ac8a9816f1fc6c5c6dcd93c4721" });
    let page = value!({ "id": ID, "name": "data", "version": 1, "state": "done", "count": 1, "bytes": 6,
        "entries": [entry], "next": null, "versions": [] });
    let content = "/files/data/content/x?.version=1";
    let server = Server::start(vec![
        ("GET /files/data?.limit=1000", vec![json(page)]),
        (&format!("GET {content}"), vec![Reply::Broken(b"abc".to_vec()), Reply::Part(3, b"def".to_vec())]),
    ])
    .await?;
    let folder = tempfile::tempdir()?;
    let out = folder.path().to_str().context("a path that is not UTF-8")?;
    let outcome = server.expect(&["files", "get", "data", out], 0).await?;
    ensure!(outcome.stderr.contains(&format!("Error getting {}{content} (500", server.url)), "{outcome:?}");
    ensure!(std::fs::read(folder.path().join("x"))? == b"abcdef");
    Ok(())
}

#[tokio::test]
async fn why_a_task_waits_is_told() -> anyhow::Result<()> {
    let server = Server::start(vec![
        ("POST /tasks", vec![created()]),
        (DETAILS, vec![task(-2, 0), task(-5, 0)]),
        (&wait(-2, 5), vec![state(-2)]),
        (&format!("GET /tasks/{ID}/explain"), vec![json(value!({ "summary": "The queue is paused." }))]),
        (&wait(-2, 50), vec![state(-5)]),
        (&format!("GET /tasks/{ID}/stdout?.follow=1&.from=0"), bytes("")),
        (&format!("GET /tasks/{ID}/stderr?.follow=1&.from=0"), bytes("")),
    ])
    .await?;
    let outcome = server.expect(&["run", "mail", "a=b"], 105).await?;
    ensure!(outcome.stderr.contains("disbatch: The queue is paused.\n"), "{outcome:?}");
    ensure!(outcome.stderr.contains("cancelled"), "{outcome:?}");
    Ok(())
}

/// A run whose output has begun; its standard error is read on.
async fn begun(server: &Server, arguments: &[&str]) -> anyhow::Result<Child> {
    let mut command = server.command(arguments);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().context("no standard output")?).lines();
    ensure!(lines.next_line().await?.as_deref() == Some("begun"));
    Ok(child)
}

async fn interrupted(mut child: Child) -> anyhow::Result<(Option<i32>, String)> {
    let id = nix::unistd::Pid::from_raw(child.id().context("it has ended")?.try_into()?);
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGINT)?;
    let mut text = String::new();
    child.stderr.take().context("no standard error")?.read_to_string(&mut text).await?;
    Ok((child.wait().await?.code(), text))
}

#[tokio::test]
async fn an_interruption_leaves_the_task_alone() -> anyhow::Result<()> {
    let server = Server::start(vec![
        ("POST /tasks", vec![created()]),
        (DETAILS, vec![task(0, 1)]),
        (&stream("stdout", 1), vec![Reply::Stalled(b"begun\n".to_vec())]),
        (&stream("stderr", 1), vec![Reply::Silence]),
    ])
    .await?;
    let (code, text) = interrupted(begun(&server, &["run", "mail", "a=b"]).await?).await?;
    ensure!(code == Some(130), "{code:?} {text}");
    ensure!(text.contains(&format!("'disbatch logs -f {ID}'")), "{text}");
    ensure!(!server.lines().iter().any(|line| line.contains("cancel")), "{:?}", server.lines());
    Ok(())
}

#[tokio::test]
async fn an_interruption_cancels_if_that_was_asked_for() -> anyhow::Result<()> {
    let server = Server::start(vec![
        ("POST /tasks", vec![created()]),
        (DETAILS, vec![task(0, 1), task(-3, 1)]),
        (&stream("stdout", 1), vec![Reply::Bytes(b"begun\n".to_vec())]),
        (&stream("stderr", 1), vec![Reply::Stalled(vec![])]),
        (&format!("POST /tasks/{ID}/cancel"), vec![json(value!({ "outcome": "requested" }))]),
    ])
    .await?;
    let child = begun(&server, &["run", "mail", "a=b", "--cancel-on-interrupt"]).await?;
    let id = nix::unistd::Pid::from_raw(child.id().context("it has ended")?.try_into()?);
    let mut child = child;
    let mut lines = BufReader::new(child.stderr.take().context("no standard error")?).lines();
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGINT)?;
    loop {
        let line = lines.next_line().await?.context("it did not say that it cancels")?;
        if line.contains("cancelling the task") {
            break;
        }
    }
    ensure!(server.body(&format!("POST /tasks/{ID}/cancel"))? == value!({ "reason": "interrupted" }));
    // The end of the task does not come; the second one does not wait for it.
    nix::sys::signal::kill(id, nix::sys::signal::Signal::SIGINT)?;
    ensure!(child.wait().await?.code() == Some(130));
    Ok(())
}

#[tokio::test]
async fn what_cannot_be_run_is_told() -> anyhow::Result<()> {
    let refused = Reply::Json(409, value!({ "error": "the queue does not accept tasks: use post" }));
    let server = Server::start(vec![("POST /tasks", vec![refused])]).await?;
    let outcome = server.expect(&["run", "mail", "a=b"], 255).await?;
    ensure!(outcome.stderr == "the queue does not accept tasks: use post\n", "{outcome:?}");
    let outcome = server.expect(&["run", "mail", "word"], 255).await?;
    ensure!(outcome.stderr.contains("'word' is no parameter"), "{outcome:?}");
    for wrong in [&["run"][..], &["run", "mail", "--delay", "soon"], &["run", "mail", "--max-attempts", "0"]]
    {
        server.expect(wrong, 2).await?;
    }
    let outcome = server.expect(&["run", "mail", "--detatch=1"], 2).await?;
    ensure!(outcome.stderr.contains("Unknown option: detatch"), "{outcome:?}");
    ensure!(server.lines().len() == 1, "{:?}", server.lines());
    let server = Server::start(vec![("POST /tasks", vec![created()])]).await?;
    let outcome = server.expect(&["run", "mail", "--detach"], 0).await?;
    ensure!(outcome.text() == format!("{ID}\n"), "{outcome:?}");
    let words = "'params' must be a JSON array of task params objects with key/value pairs";
    let refused = Reply::Json(400, value!({ "error": words }));
    let server = Server::start(vec![("POST /tasks", vec![refused])]).await?;
    for none in [&["run", "mail"][..], &["run", "mail", "{}"]] {
        let outcome = server.expect(none, 255).await?;
        ensure!(outcome.stderr.starts_with("no parameters are given: "), "{outcome:?}");
    }
    Ok(())
}

#[tokio::test]
async fn logs_are_printed() -> anyhow::Result<()> {
    let line = |rest: &str| format!("GET /tasks/{ID}/{rest}");
    let gone: Value = value!({ "error": "task has no attempt 9" });
    let server = Server::start(vec![
        (&line("stdout"), bytes("out\n")),
        (&line("stderr"), bytes("err\n")),
        (&line("stderr?.attempt=2"), bytes("err2\n")),
        (&line("stdout?.attempt=9"), vec![Reply::Json(404, gone)]),
        (DETAILS, vec![task(0, 2), task(1, 2)]),
        (&stream("stdout", 2), bytes("latest\n")),
    ])
    .await?;
    for (arguments, stdout, stderr) in [
        (&["logs", ID][..], "out\n", ""),
        (&["logs", "--stderr", ID], "err\n", ""),
        (&["logs", "--both", ID], "out\n", "err\n"),
        (&["logs", "--stderr", "--attempt", "2", ID], "err2\n", ""),
        (&["logs", "-f", ID], "latest\n", ""),
    ] {
        let outcome = server.expect(arguments, 0).await?;
        ensure!(
            (outcome.text().as_str(), outcome.stderr.as_str()) == (stdout, stderr),
            "{arguments:?} {outcome:?}"
        );
    }
    let outcome = server.expect(&["logs", "--attempt", "9", ID], 255).await?;
    ensure!(outcome.stderr == "task has no attempt 9\n", "{outcome:?}");
    let before = server.lines().len();
    for wrong in [&["logs"][..], &["logs", "nonsense"], &["logs", "-f", "--attempt", "1", ID]] {
        server.expect(wrong, 2).await?;
    }
    ensure!(server.lines().len() == before, "{:?}", server.lines());
    Ok(())
}

/// Runs a command with a terminal for its standard output and error, and prints what that was told.
const IN_A_TERMINAL: &str = r#"
import os, pty, sys
child, terminal = pty.fork()
if child == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
told = b""
while True:
    try:
        piece = os.read(terminal, 65536)
    except OSError:
        break
    if not piece:
        break
    told += piece
os.waitpid(child, 0)
sys.stdout.buffer.write(told)
"#;

async fn in_a_terminal(server: &Server, arguments: &[&str]) -> anyhow::Result<String> {
    let command = server.command(arguments);
    let command = command.as_std();
    let mut terminal = Command::new("python3");
    terminal.args(["-c", IN_A_TERMINAL, "env"]);
    for (name, _) in command.get_envs().filter(|(_, value)| value.is_none()) {
        terminal.arg("-u").arg(name);
    }
    for (name, value) in command.get_envs().filter_map(|(name, value)| Some((name, value?))) {
        terminal.arg([name, value].join(OsStr::new("=")));
    }
    terminal.arg(command.get_program()).args(command.get_args());
    let output = terminal.stdin(Stdio::null()).kill_on_drop(true).output().await?;
    ensure!(output.status.success(), "{output:?}");
    Ok(String::from_utf8(output.stdout)?)
}

#[tokio::test]
async fn a_terminal_is_told_text_and_colours() -> anyhow::Result<()> {
    let hostile = b"a\x1b]0;title\x07\x1b[31mred\x08\n";
    let line = format!("GET /tasks/{ID}/stdout");
    let reason = "paused: \u{1b}[2J";
    let server = Server::start(vec![
        (&line, vec![Reply::Bytes(hostile.to_vec())]),
        (&format!("POST /tasks/{ID}/cancel"), vec![Reply::Json(409, value!({ "error": reason }))]),
    ])
    .await?;
    let told = in_a_terminal(&server, &["logs", ID]).await?;
    ensure!(told == "a^[]0;title^G\x1b[31mred^H\r\n\x1b[0m", "{told:?}");
    let told = in_a_terminal(&server, &["logs", "--raw", ID]).await?;
    ensure!(told == "a\x1b]0;title\x07\x1b[31mred\x08\r\n", "{told:?}");
    let piped = server.expect(&["logs", ID], 0).await?;
    ensure!(piped.stdout == hostile, "{piped:?}");
    let told = in_a_terminal(&server, &["cancel", ID]).await?;
    ensure!(told.contains("paused: \u{fffd}[2J") && !told.contains('\u{1b}'), "{told:?}");
    Ok(())
}

#[tokio::test]
async fn output_that_is_not_kept_any_more_is_said_to_be_missing_and_nothing_else_is() -> anyhow::Result<()> {
    let server = Server::start(vec![
        ("POST /tasks", vec![created()]),
        (DETAILS, vec![task(1, 1)]),
        (&stream("stdout", 1), vec![Reply::BrokenFrom(100, b"ab".to_vec())]),
        // Where there is a gap the connection breaks.
        (&stream_from("stdout", 1, 102), vec![Reply::BrokenFrom(150, b"cd".to_vec())]),
        (&stream_from("stdout", 1, 152), vec![Reply::Part(152, b"ef".to_vec())]),
        (&stream("stderr", 1), bytes("")),
    ])
    .await?;
    let outcome = server.expect(&["run", "mail"], 0).await?;
    ensure!(outcome.text() == "abcdef", "{outcome:?}");
    for missing in [100, 48] {
        let said = format!("disbatch: {missing} bytes of the output are missing here");
        ensure!(outcome.stderr.contains(&said), "{outcome:?}");
    }
    Ok(())
}
