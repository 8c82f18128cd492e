//! An engine that answers as a test wants, and the adapter as a process in front of it.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, chown};
use std::path::PathBuf;
use std::process::{Output, Stdio};
use std::sync::Arc;
use std::time::Duration;

use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, Uid};
use serde_json::json;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::process::{Child, Command};
use tokio::sync::watch::{Sender, channel};
use tokio::time::timeout;

/// Nothing here takes so long.
const LONGEST: Duration = Duration::from_secs(60);

const PROGRAM: &str = env!("CARGO_BIN_EXE_disbatch-container");

/// The user of an adapter that is not root, where these tests are.
pub const NOBODY: u32 = 65_534;

/// The task of all tests, in its second attempt.
pub const TASK: &str = "6b0004f4686c827f5a609575";

/// A status and a body. `None`: there is no answer, ever.
pub type Answer = Option<(u16, String)>;

/// Answers a request such as `GET /info`; the number says how often it was asked before.
type Answers = dyn Fn(&str, usize) -> Answer + Send + Sync;

#[derive(Debug, Clone)]
pub struct Asked {
    /// The method and the path, without the version and what is asked for with it.
    pub what: String,
    pub body: String,
}

pub struct Engine {
    folder: TempDir,
    asked: Sender<Vec<Asked>>,
}

pub struct Adapter {
    child: Child,
    /// Its private folder.
    _work: TempDir,
}

/// What an engine says that has nothing to hide, and no container yet.
pub fn usual(what: &str) -> Answer {
    let (status, body) = match what {
        "GET /containers/json" => (200, "[]"),
        "POST /containers/create" => (201, r#"{"Id":"new"}"#),
        what if what.starts_with("DELETE /containers/") => (204, ""),
        what if what.starts_with("GET ") => (200, r#"{"State":{}}"#),
        _ => (500, r#"{"message":"that is enough"}"#),
    };
    Some((status, body.to_owned()))
}

impl Engine {
    /// One that answers so.
    pub fn start(answers: impl Fn(&str, usize) -> Answer + Send + Sync + 'static) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("socket");
        let listener = UnixListener::bind(&socket).unwrap();
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(&socket, Permissions::from_mode(0o666)).unwrap();
        let (asked, _) = channel(Vec::new());
        let answers: Arc<Answers> = Arc::new(answers);
        let sender = asked.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, Arc::clone(&answers), sender.clone()));
            }
        });
        Self { folder, asked }
    }

    pub fn asked(&self) -> Vec<Asked> {
        self.asked.borrow().clone()
    }

    /// How often something was asked for.
    pub fn count(&self, what: &str) -> usize {
        self.asked.borrow().iter().filter(|asked| asked.what == what).count()
    }

    pub async fn until_asked(&self, what: &str) {
        let mut asked = self.asked.subscribe();
        let found = asked.wait_for(|asked| asked.iter().any(|asked| asked.what == what));
        timeout(LONGEST, found).await.unwrap().unwrap();
    }

    /// Starts an adapter with the task, by this user, or, where this is root, by one who is not if `is_other`.
    pub fn adapter(&self, is_other: bool) -> Adapter {
        let work = tempfile::tempdir().unwrap();
        let settings = json!({ "image": "i", "pull": "never", "socket": self.folder.path().join("socket") });
        let variables = json!({ "DISBATCH_TASK_ID": TASK, "DISBATCH_ATTEMPT": "2", "DISBATCH_NODE": "n1" });
        let task = json!({ "params": {}, "worker": {
            "name": "Boxed", "engine": "container", "settings": settings, "variables": variables,
            "work_dir": work.path(), "database": "main", "grace": 10.0,
        } });
        let mut command = if is_other && Uid::effective().is_root() {
            chown(work.path(), Some(NOBODY), Some(NOBODY)).unwrap();
            let mut command = Command::new(self.copied_program());
            command.uid(NOBODY).gid(NOBODY);
            command
        } else {
            Command::new(PROGRAM)
        };
        command.env_clear().stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.kill_on_drop(true).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        tokio::spawn(async move { stdin.write_all(format!("{task}\n").as_bytes()).await.unwrap() });
        Adapter { child, _work: work }
    }

    /// The adapter's program where everybody can run it.
    fn copied_program(&self) -> PathBuf {
        let program = self.folder.path().join("program");
        fs::copy(PROGRAM, &program).unwrap();
        program
    }
}

impl Adapter {
    /// Tells it that the task is to end.
    pub fn terminate(&self) {
        kill(Pid::from_raw(i32::try_from(self.child.id().unwrap()).unwrap()), Signal::SIGTERM).unwrap();
    }

    /// Waits for its end. Returns its exit code and its standard error.
    pub async fn end(self) -> (Option<i32>, String) {
        let (code, [_, stderr]) = self.end_with_output().await;
        (code, stderr)
    }

    /// The same with its standard output before its standard error.
    pub async fn end_with_output(self) -> (Option<i32>, [String; 2]) {
        let ended = timeout(LONGEST, self.child.wait_with_output()).await.unwrap();
        let Output { status, stdout, stderr } = ended.unwrap();
        (status.code(), [stdout, stderr].map(|bytes| String::from_utf8(bytes).unwrap()))
    }
}

/// Reads one request and answers it.
async fn answer(mut stream: UnixStream, answers: Arc<Answers>, asked: Sender<Vec<Asked>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.lines().find_map(|line| {
        let (name, value) = line.split_once(": ")?;
        name.eq_ignore_ascii_case("content-length").then(|| value.parse().unwrap())
    });
    let mut body = vec![0; length.unwrap_or(0)];
    stream.read_exact(&mut body).await.unwrap();
    let mut words = head.split([' ', '?']);
    let (method, path) = (words.next().unwrap(), words.next().unwrap());
    let what = format!("{method} {}", path.strip_prefix("/v1.41").unwrap_or(path));
    let mut before = 0;
    asked.send_modify(|all| {
        before = all.iter().filter(|asked| asked.what == what).count();
        all.push(Asked { what: what.clone(), body: String::from_utf8(body).unwrap() });
    });
    let Some((status, body)) = answers(&what, before) else { return std::future::pending().await };
    let head = match status {
        101 => "Connection: Upgrade\r\nUpgrade: tcp".to_owned(),
        _ => format!("Api-Version: 1.41\r\nContent-Length: {}\r\nConnection: close", body.len()),
    };
    let text = format!("HTTP/1.1 {status} Said\r\n{head}\r\n\r\n{body}");
    // The adapter may have ended.
    let _hung_up = stream.write_all(text.as_bytes()).await;
}
