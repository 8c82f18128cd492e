//! A server in this process that answers as it was told to, and remembers what it was asked.

use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context, ensure};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::process::Command;

/// An answer.
#[derive(Debug, Clone)]
pub enum Reply {
    /// A status and JSON.
    Json(u16, Value),
    /// All bytes of a stream.
    Bytes(Vec<u8>),
    /// Bytes of a stream from an offset on.
    Part(u64, Vec<u8>),
    /// The beginning of a stream; then the connection breaks.
    Broken(Vec<u8>),
    /// The same of a stream that is followed from an offset on.
    BrokenFrom(u64, Vec<u8>),
    /// The beginning of a stream; then nothing more happens.
    Stalled(Vec<u8>),
    /// The connection ends without an answer.
    Nothing,
    /// No answer comes.
    Silence,
}

/// JSON with status 200.
pub fn json(value: Value) -> Reply {
    Reply::Json(200, value)
}

#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    /// Method and path with its query.
    pub line: String,
    /// The body, null if there was none.
    pub body: Value,
    /// The header `Range`.
    pub range: Option<String>,
    /// The header `Authorization`.
    pub authorization: Option<String>,
}

/// What came of a run of `disbatch`.
#[derive(Debug)]
pub struct CommandOutput {
    pub code: Option<i32>,
    pub stdout: Vec<u8>,
    pub stderr: String,
}

impl CommandOutput {
    /// Standard output as text.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }
}

#[derive(Debug, Default)]
struct Play {
    /// By method and path. The last reply is repeated.
    replies: HashMap<String, VecDeque<Reply>>,
    asked: Vec<Asked>,
}

#[derive(Debug)]
pub struct Server {
    play: Arc<Mutex<Play>>,
    pub url: String,
}

impl Server {
    /// Starts one with its replies, by method and path.
    pub async fn start(replies: Vec<(&str, Vec<Reply>)>) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}", listener.local_addr()?);
        let replies = replies.into_iter().map(|(line, replies)| (line.to_owned(), replies.into())).collect();
        let play = Arc::new(Mutex::new(Play { replies, asked: Vec::new() }));
        let shared = Arc::clone(&play);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, Arc::clone(&shared)));
            }
        });
        Ok(Self { play, url })
    }

    /// What was asked so far.
    pub fn asked(&self) -> Vec<Asked> {
        lock(&self.play).asked.clone()
    }

    /// What was asked so far, without bodies.
    pub fn lines(&self) -> Vec<String> {
        self.asked().into_iter().map(|asked| asked.line).collect()
    }

    /// The body of the only request `line`.
    pub fn body(&self, line: &str) -> anyhow::Result<Value> {
        let mut bodies: Vec<Value> =
            self.asked().into_iter().filter(|asked| asked.line == line).map(|asked| asked.body).collect();
        ensure!(bodies.len() == 1, "{} requests {line}: {:?}", bodies.len(), self.lines());
        bodies.pop().context("none")
    }

    /// `disbatch` with this server and no other settings.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_disbatch"));
        for variable in ["DISBATCH_USERNAME", "DISBATCH_PASSWORD", "DISBATCH_TOKEN", "HOME"] {
            command.env_remove(variable);
        }
        command.env("XDG_CONFIG_HOME", "/nonexistent").env("DISBATCH_URL", &self.url).kill_on_drop(true);
        command.args(arguments).stdin(std::process::Stdio::null());
        command
    }

    /// Runs `disbatch` to its end.
    pub async fn run(&self, arguments: &[&str]) -> anyhow::Result<CommandOutput> {
        let output = self.command(arguments).output().await?;
        let stderr = String::from_utf8(output.stderr)?;
        Ok(CommandOutput { code: output.status.code(), stdout: output.stdout, stderr })
    }

    /// Runs `disbatch` to its end, which must be with this exit status.
    pub async fn expect(&self, arguments: &[&str], code: i32) -> anyhow::Result<CommandOutput> {
        let outcome = self.run(arguments).await?;
        let asked = self.lines();
        ensure!(outcome.code == Some(code), "{arguments:?}: {outcome:?} {} {asked:?}", outcome.text());
        Ok(outcome)
    }
}

fn lock(play: &Mutex<Play>) -> MutexGuard<'_, Play> {
    play.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Answers one request; what goes wrong here is seen by the one who asked.
async fn answer(stream: TcpStream, play: Arc<Mutex<Play>>) -> anyhow::Result<()> {
    let mut stream = BufReader::new(stream);
    let asked = read(&mut stream).await?;
    let reply = {
        let mut play = lock(&play);
        let replies = play.replies.get_mut(&asked.line);
        let reply =
            replies.and_then(
                |replies| if replies.len() > 1 { replies.pop_front() } else { replies.front().cloned() },
            );
        play.asked.push(asked);
        reply
            .unwrap_or_else(|| Reply::Json(404, serde_json::json!({ "error": "nothing is at that address" })))
    };
    let head = |status: &str, length: usize, more: &str| {
        format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n{more}\r\n")
            .into_bytes()
    };
    let bytes = match &reply {
        Reply::Json(status, value) => {
            let body = value.to_string();
            [head(&format!("{status} Status"), body.len(), ""), body.into_bytes()].concat()
        }
        Reply::Bytes(bytes) => [head("200 OK", bytes.len(), ""), bytes.clone()].concat(),
        Reply::Part(offset, bytes) => {
            let last = offset + bytes.len() as u64 - 1;
            let range = format!("Content-Range: bytes {offset}-{last}/*\r\n");
            [head("206 Partial Content", bytes.len(), &range), bytes.clone()].concat()
        }
        Reply::Broken(bytes) | Reply::Stalled(bytes) => {
            [head("200 OK", bytes.len() + 99, ""), bytes.clone()].concat()
        }
        Reply::BrokenFrom(offset, bytes) => {
            [head("200 OK", bytes.len() + 99, &format!("Disbatch-From: {offset}\r\n")), bytes.clone()]
                .concat()
        }
        Reply::Nothing | Reply::Silence => Vec::new(),
    };
    stream.write_all(&bytes).await?;
    stream.flush().await?;
    if matches!(reply, Reply::Stalled(_) | Reply::Silence) {
        // Until the other side has enough.
        stream.read_to_end(&mut Vec::new()).await?;
    }
    Ok(())
}

async fn read(stream: &mut BufReader<TcpStream>) -> anyhow::Result<Asked> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        stream.read_line(&mut line).await?;
        if line.trim().is_empty() {
            break;
        }
        lines.push(line.trim().to_owned());
    }
    let header = |name: &str| {
        let mut values = lines.iter().filter_map(|line| line.split_once(": "));
        values.find(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.to_owned())
    };
    let length = header("content-length").map_or(Ok(0), |length| length.parse())?;
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await?;
    let first = lines.first().context("no request")?;
    Ok(Asked {
        line: first.trim_end_matches(" HTTP/1.1").to_owned(),
        body: serde_json::from_slice(&body).unwrap_or_default(),
        range: header("range"),
        authorization: header("authorization"),
    })
}
