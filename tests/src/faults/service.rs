//! The web service of the suite: is given tasks, works on them as the plugin does, and calls back whatever happens to the DCI.
//! It remembers what it was told of its callbacks, which are the only record of its runs.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, ensure};
use disbatch_core::model::TaskId;
use reqwest::StatusCode;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::sleep;

use super::random::Random;
use super::records::Run;
use super::work::{Work, boot_time, wall_time};

/// It may be silent for so many seconds.
pub const SILENCE: u64 = 6;

/// A callback without an answer is repeated after so long.
const AGAIN: Duration = Duration::from_millis(100);

/// So long it is waited for the answer to a callback.
const ANSWER: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub struct Service {
    /// Where it is asked.
    pub url: String,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    http: reqwest::Client,
    random: Mutex<Random>,
    served: Mutex<Vec<Served>>,
    at_work: AtomicUsize,
}

/// What it does with an order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// Says that it has it, and works.
    Usual,
    /// Calls back before it says so.
    Early,
    /// Never says so, and works.
    Wordless,
    /// Says so, and does nothing.
    Silent,
}

/// What it was asked, and what became of its callbacks. What it has begun to count it until its end.
#[derive(Debug, Clone)]
pub struct Served {
    pub task: TaskId,
    pub attempt: i64,
    /// When the first callback that was taken had been: since the machine was started, and by the time of day.
    first: Option<(Duration, Duration)>,
    /// When the last one was about to be.
    last: Duration,
    /// It was told that its success was taken.
    pub finished: bool,
    /// How often it was not told what became of each half of its output, which may be there more often then.
    pub unanswered: [usize; 2],
}

#[derive(Debug)]
struct Order {
    /// Its place among those that were served.
    number: usize,
    task: String,
    attempt: i64,
    work: Work,
    token: String,
    log: String,
    status: String,
}

/// What became of a callback.
enum Heard {
    Taken,
    Over,
    Nothing,
}

impl Service {
    pub async fn start(random: Random) -> anyhow::Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let url = format!("http://{}/work", listener.local_addr()?);
        let http = reqwest::Client::builder().no_proxy().timeout(ANSWER).build()?;
        let (random, served) = (Mutex::new(random), Mutex::new(Vec::new()));
        let shared = Arc::new(Shared { http, random, served, at_work: AtomicUsize::new(0) });
        let all = shared.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let shared = all.clone();
                // Adapters are killed while they ask.
                tokio::spawn(async move { shared.serve(stream).await.ok() });
            }
        });
        Ok(Self { url, shared })
    }

    /// Whether nothing is to be called back any more.
    pub fn is_idle(&self) -> bool {
        self.shared.at_work.load(Ordering::Acquire) == 0
    }

    /// Everything that it was asked.
    pub fn served(&self) -> Vec<Served> {
        self.shared.served().clone()
    }
}

impl Served {
    /// The time in which the task was certainly its own, if there was one.
    pub fn run(&self) -> Option<Run> {
        let (started, started_wall) = self.first?;
        Some(Run {
            task: self.task,
            attempt: self.attempt,
            pid: 0,
            started,
            started_wall,
            last: self.last,
            ended: self.finished,
        })
    }

    /// Whether `stored` is `expected`, of which each half may be there as often as it may have been taken.
    pub fn has_logged(&self, expected: &[u8], stored: &[u8]) -> bool {
        let (first, second) = halves(expected);
        let mut rest = stored;
        for (half, unanswered) in [(first, self.unanswered[0]), (second, self.unanswered[1])] {
            let Some(after) = rest.strip_prefix(half) else { return false };
            rest = after;
            for _ in 0..unanswered {
                rest = if half.is_empty() { rest } else { rest.strip_prefix(half).unwrap_or(rest) };
            }
        }
        rest.is_empty()
    }
}

/// What is logged before the work, and what after it.
fn halves(output: &[u8]) -> (&[u8], &[u8]) {
    output.split_at(output.len() / 2)
}

impl Shared {
    fn served(&self) -> MutexGuard<'_, Vec<Served>> {
        self.served.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn manner(&self) -> Manner {
        match self.random.lock().unwrap_or_else(PoisonError::into_inner).below(20) {
            0 => Manner::Silent,
            1 => Manner::Wordless,
            2..=5 => Manner::Early,
            _ => Manner::Usual,
        }
    }

    async fn serve(self: Arc<Self>, mut stream: TcpStream) -> anyhow::Result<()> {
        let order = self.accept(&read(&mut stream).await?)?;
        let manner = self.manner();
        if manner == Manner::Early {
            // Then there may be nobody any more who would listen.
            self.spawn(order);
            return accepted(&mut stream).await;
        }
        if manner != Manner::Wordless {
            accepted(&mut stream).await?;
        }
        drop(stream);
        if manner != Manner::Silent {
            self.spawn(order);
        }
        Ok(())
    }

    fn accept(&self, body: &[u8]) -> anyhow::Result<Order> {
        let body: Value = serde_json::from_slice(body)?;
        let text = |path: &str| {
            let text = body.pointer(path).and_then(Value::as_str).map(str::to_owned);
            text.with_context(|| format!("the order has no {path}"))
        };
        let task = text("/runId")?;
        let attempt = body["attempt"].as_i64().context("the order has no attempt")?;
        let mut served = self.served();
        let order = Order {
            number: served.len(),
            attempt,
            work: Work::of(&body["job"]).context("the order asks for nothing known")?,
            token: text("/token")?,
            log: text("/callbacks/log")?,
            status: text("/callbacks/status")?,
            task,
        };
        served.push(Served {
            task: order.task.parse()?,
            attempt,
            first: None,
            last: Duration::ZERO,
            finished: false,
            unanswered: [0; 2],
        });
        Ok(order)
    }

    fn spawn(self: &Arc<Self>, order: Order) {
        let shared = self.clone();
        shared.at_work.fetch_add(1, Ordering::AcqRel);
        tokio::spawn(async move {
            shared.work(&order).await;
            shared.at_work.fetch_sub(1, Ordering::AcqRel);
        });
    }

    async fn work(&self, order: &Order) {
        let output = order.work.output(&order.task, order.attempt, 0);
        let (first, second) = halves(output.as_bytes());
        if !self.log(order, 0, first).await {
            return;
        }
        sleep(Duration::from_millis(order.work.millis.into())).await;
        if !self.log(order, 1, second).await {
            return;
        }
        let finishes = order.attempt > i64::from(order.work.fails);
        let end = json!({ "status": if finishes { "FINISHED" } else { "FAILED" } }).to_string().into_bytes();
        // What was not answered may have been heard, and have ended the task.
        let first = boot_time();
        loop {
            match self.call(order, &order.status, &end).await {
                Heard::Taken => {
                    let served = &mut self.served()[order.number];
                    (served.finished, served.last) = (finishes, first);
                    return;
                }
                Heard::Over => return,
                Heard::Nothing => sleep(AGAIN).await,
            }
        }
    }

    /// Whether it was taken, after however many tries.
    async fn log(&self, order: &Order, half: usize, bytes: &[u8]) -> bool {
        loop {
            match self.call(order, &order.log, bytes).await {
                Heard::Taken => return true,
                Heard::Over => return false,
                Heard::Nothing => self.served()[order.number].unanswered[half] += 1,
            }
            sleep(AGAIN).await;
        }
    }

    async fn call(&self, order: &Order, url: &str, body: &[u8]) -> Heard {
        let before = boot_time();
        let sent = self.http.post(url).bearer_auth(&order.token).body(body.to_vec()).send().await;
        let Ok(answer) = sent else { return Heard::Nothing };
        match answer.status() {
            status if status.is_success() => {
                let served = &mut self.served()[order.number];
                served.first.get_or_insert_with(|| (boot_time(), wall_time()));
                served.last = before;
                Heard::Taken
            }
            status if status.is_server_error() || status == StatusCode::REQUEST_TIMEOUT => Heard::Nothing,
            _ => Heard::Over,
        }
    }
}

async fn accepted(stream: &mut TcpStream) -> anyhow::Result<()> {
    stream.write_all(b"HTTP/1.1 201 Created\r\nContent-Length: 0\r\nConnection: close\r\n\r\n").await?;
    Ok(stream.shutdown().await?)
}

/// The body of one request.
async fn read(stream: &mut TcpStream) -> anyhow::Result<Vec<u8>> {
    let mut request = Vec::new();
    let mut piece = vec![0; 16 * 1024];
    loop {
        let read = stream.read(&mut piece).await?;
        ensure!(read > 0, "the request ends early");
        request.extend_from_slice(&piece[..read]);
        let Some(end) = request.windows(4).position(|bytes| bytes == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&request[..end]).to_lowercase();
        let length = head.split("content-length:").nth(1).and_then(|rest| rest.lines().next());
        let length: usize = length.context("the request has no length")?.trim().parse()?;
        if request.len() >= end + 4 + length {
            return Ok(request.split_off(end + 4));
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

    use super::*;

    #[test]
    fn what_may_have_been_taken_twice_may_be_there_twice() {
        let served = |unanswered| Served {
            task: TaskId(ObjectId::new()),
            attempt: 1,
            first: None,
            last: Duration::ZERO,
            finished: true,
            unanswered,
        };
        for (unanswered, stored, is_right) in [
            ([0, 0], "abcd", true),
            ([0, 0], "ababcd", false),
            ([1, 0], "ababcd", true),
            ([1, 0], "abcd", true),
            ([2, 1], "abababcdcd", true),
            ([1, 0], "abababcd", false),
            ([1, 1], "cd", false),
            ([0, 0], "abc", false),
            ([1, 1], "abcdab", false),
        ] {
            let is = served(unanswered).has_logged(b"abcd", stored.as_bytes());
            assert_eq!(is, is_right, "{unanswered:?} {stored}");
        }
        assert!(served([1, 1]).has_logged(b"", b""));
    }
}
