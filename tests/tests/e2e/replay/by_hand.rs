//! What people do at a terminal: they look around in the plugin's place, and are asked for what is secret.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::Stdio;

use anyhow::{Context, ensure};
use bson::doc;
use disbatch_tests::{Dci, Script, World, binary};
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::process::{ChildStdout, Command};

use super::{bundle, disbatch, record, secret_files, submit_secret};

/// Runs a program in a terminal that is so wide, and answers each question when its answer is not shown any more.
const TERMINAL: &str = r#"
import fcntl, os, struct, subprocess, sys, termios, time
columns, answers, words = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3:]
terminal, inner = os.openpty()
fcntl.ioctl(inner, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
own = lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0)
child = subprocess.Popen(words, stdin=inner, stdout=inner, stderr=inner, start_new_session=True, preexec_fn=own)
os.close(inner)
def show():
    try:
        said = os.read(terminal, 65536)
    except OSError:
        return b""
    os.write(1, said)
    return said
for _ in range(answers):
    said = b""
    while not said.endswith(b": "):
        more = show()
        if not more:
            sys.exit("it ended without a question")
        said += more
    while termios.tcgetattr(terminal)[3] & termios.ECHO:
        time.sleep(0.01)
    os.write(terminal, sys.stdin.buffer.readline())
while show():
    pass
sys.exit(child.wait())
"#;

/// Runs `disbatch` in a terminal. Returns its exit status and what it showed.
async fn in_terminal(
    world: &World,
    (columns, answers): (u32, &[&str]),
    arguments: &[&str],
) -> anyhow::Result<(Option<i32>, String)> {
    let mut command = Command::new("python3");
    command.args(["-c", TERMINAL, &columns.to_string(), &answers.len().to_string()]);
    command
        .arg(binary("disbatch")?)
        .args(arguments)
        .env("XDG_CONFIG_HOME", "/nonexistent")
        .env("TERM", "xterm");
    command.env_remove("NO_COLOR").current_dir(world.path()).kill_on_drop(true);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?;
    let mut input = child.stdin.take().context("no standard input")?;
    input
        .write_all(answers.iter().map(|answer| format!("{answer}\n")).collect::<String>().as_bytes())
        .await?;
    drop(input);
    let shown = all_of(child.stdout.take().context("no standard output")?).await?;
    Ok((child.wait().await?.code(), shown))
}

async fn all_of(mut stdout: ChildStdout) -> anyhow::Result<String> {
    let mut shown = Vec::new();
    stdout.read_to_end(&mut shown).await?;
    Ok(String::from_utf8_lossy(&shown).replace("\r\n", "\n"))
}

#[tokio::test]
async fn a_terminal_is_asked_for_secrets_and_shows_none() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (password, key) = ("horse-battery", "a-key-of-mine");
    world.configure(json!({
        "secrets": { "key_file": "secrets.key" }, "secrets_dir": "secrets", "secret_environment": { "key": "KEY" },
    }))?;
    let new = secret_files(&world, key)?;
    let text = "#!/bin/sh\nprintf %s \"$KEY$(grep -o 'horse-[a-z]*')\" | sha256sum; echo one; echo two\n";
    let queue = world.script_queue(Script { name: "Sum", text }, 1).await?;
    record(&world, queue).await?;
    let den = world.den_at_work("n1").await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let task = submit_secret(&world, queue, &new, password).await?;
    world.until_status(task, 1).await?;
    let (path, _) = bundle(&world, &dci, task, &[]).await?;
    let path = path.to_string_lossy().into_owned();
    let given = json!({ "password": password }).to_string();
    let (code, shown) = in_terminal(&world, (120, &[&given, key]), &["replay", &path]).await?;
    ensure!(code == Some(0), "{code:?}: {shown}");
    assert!(shown.contains("secure_params (a JSON object): ") && shown.contains("KEY: "), "{shown}");
    assert!(!shown.contains(password) && !shown.contains(key), "{shown}");
    // Of many it is asked once.
    let (code, shown) = in_terminal(&world, (120, &[key, &given]), &["replay", &path, &path]).await?;
    ensure!(
        code == Some(0) && shown.contains("2 runs: ") && shown.matches("KEY: ").count() == 1,
        "{code:?}: {shown}"
    );

    // What differs is shown side by side where there is room, with what has changed marked.
    let (code, shown) = in_terminal(&world, (120, &[&given, "wrong"]), &["replay", &path]).await?;
    ensure!(
        code == Some(1) && shown.contains("\x1b[31m") && !shown.contains("+++ replayed"),
        "{code:?}: {shown}"
    );
    assert!(shown.lines().any(|line| line.matches("one").count() == 2), "{shown}");
    let (_, shown) = in_terminal(&world, (80, &[&given, "wrong"]), &["replay", &path]).await?;
    assert!(
        shown.contains("+++ replayed") && shown.lines().all(|line| line.matches("one").count() < 2),
        "{shown}"
    );
    let (code, shown) = in_terminal(&world, (80, &["horse"]), &["replay", &path]).await?;
    ensure!(code == Some(255) && shown.contains("secure_params is no JSON"), "{code:?}: {shown}");
    drop(den);
    world.end().await
}

#[tokio::test]
async fn a_shell_is_where_the_plugin_would_be() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(Script { name: "Echo", text: "#!/bin/sh\necho run\n" }, 1).await?;
    record(&world, queue).await?;
    let den = world.den_at_work("n1").await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let task = world.submit(queue, vec![doc! { "a": 1 }]).await?[0];
    world.until_status(task, 1).await?;
    let (path, _) = bundle(&world, &dci, task, &[]).await?;
    let shell = world.path().join("shell");
    fs::write(
        &shell,
        "#!/bin/sh\npwd; echo \"$DISBATCH_TASK_ID $JOB_PARAMS $HIDDEN\"; touch left; exit 7\n",
    )?;
    fs::set_permissions(&shell, fs::Permissions::from_mode(0o755))?;
    for keep in [false, true] {
        let mut command = Command::new(binary("disbatch")?);
        command.arg("replay").arg(&path).arg("--shell").args(keep.then_some("--keep"));
        command.env("SHELL", &shell).env("HIDDEN", "hidden").stdin(Stdio::null());
        let output = command.output().await?;
        let [out, err] =
            [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        ensure!(output.status.code() == Some(7), "{out}{err}");
        let lines: Vec<&str> = out.lines().collect();
        assert_eq!(lines[1], format!("{task} {} ", json!({ "a": 1 })), "nothing else of the environment");
        let folder = PathBuf::from(lines[0]);
        assert_eq!(folder.join("left").exists(), keep);
        let run =
            err.lines().find_map(|line| line.strip_prefix("the plugin is run by: ")).context("not said")?;
        assert!(run.contains("/Echo/./run < ") && run.ends_with(" 3>&2"), "{run}");
        if keep {
            assert!(err.contains(&format!("the private folder is {}", folder.display())), "{err}");
            fs::remove_dir_all(folder)?;
        }
    }
    let both = disbatch(world.path(), &["replay", &path.to_string_lossy(), "--shell", "--json"]).await?;
    assert_eq!(both.status.code(), Some(2), "not both");
    drop(den);
    world.end().await
}
