//! Shows a running plugin's output to those who watch: what is captured is also written to `tasks.live`, a
//! little later.
//!
//! The plugin never waits for this. When the database is slow or away, the newest bytes are kept and the rest is
//! left out; the stored output at the end of the task has it all.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use disbatch_core::live::{CHUNK_BYTES, FULL_BYTES, Piece};
use disbatch_core::output::StreamName;
use disbatch_core::store::StoreError;
use disbatch_core::task::Run;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::ledger::Ledger;
use crate::lock;

/// A task that ends sooner is not written about.
const FIRST_AFTER: Duration = Duration::from_millis(100);

/// A plugin that has closed its streams is about to end; it is given so long.
const CLOSED_AFTER: Duration = Duration::from_secs(1);

const EVERY: Duration = Duration::from_millis(500);

/// How long the end of the task waits for a write that is under way.
const LAST_WRITE: Duration = Duration::from_secs(5);

/// So many bytes of a stream are held until they are written; older ones are left out.
const HELD_BYTES: usize = 1024 * 1024;

#[derive(Debug)]
pub struct Live<'a> {
    ledger: &'a Ledger,
    run: &'a Run,
    taps: [Tap; 2],
    news: Arc<Notify>,
    wrote: AtomicBool,
    stop: CancellationToken,
}

impl<'a> Live<'a> {
    pub fn new(ledger: &'a Ledger, run: &'a Run) -> Self {
        let news = Arc::new(Notify::new());
        let taps = StreamName::ALL.map(|_| Tap::new(Arc::clone(&news)));
        let (wrote, stop) = (AtomicBool::new(false), CancellationToken::new());
        Self { ledger, run, taps, news, wrote, stop }
    }

    pub fn tap(&self, stream: StreamName) -> Tap {
        self.taps[stream as usize].clone()
    }

    /// Does `work`, and writes meanwhile what the taps are given. Then it stops, and removes what was written: the task has its
    /// output by then, or is not ours any more; unless the work has failed.
    pub async fn beside<T, E>(&self, work: impl Future<Output = Result<T, E>>) -> Result<T, E> {
        let mut follow = pin!(self.follow());
        let mut follows = true;
        let done = {
            let mut work = pin!(work);
            loop {
                tokio::select! {
                    biased;
                    done = work.as_mut() => break done?,
                    () = follow.as_mut(), if follows => follows = false,
                }
            }
        };
        self.stop.cancel();
        if !self.wrote.load(Ordering::Acquire) {
            return Ok(done);
        }
        // A write that reaches the server after the removal would stay.
        if follows {
            let _too_slow = tokio::time::timeout(LAST_WRITE, follow).await;
        }
        if let Err(error) = self.ledger.remove_live(self.run).await {
            tracing::warn!(%error, "cannot remove the live output");
        }
        Ok(done)
    }

    async fn follow(&self) {
        self.news.notified().await;
        // Most tasks say nothing.
        Box::pin(self.write_all()).await;
    }

    async fn write_all(&self) {
        if self.stop.run_until_cancelled(self.await_first()).await.is_none() {
            return;
        }
        let mut writers = StreamName::ALL.map(|stream| Writer { stream, tap: self.tap(stream), open: None });
        let mut failing = false;
        loop {
            self.wrote.store(true, Ordering::Release);
            // A write is not broken off: it might come true after the live output was removed.
            match self.write(&mut writers).await {
                Ok(()) if failing => {
                    tracing::info!("live output is written again");
                    failing = false;
                }
                Ok(()) => {}
                Err(error) if !error.is_transient() => {
                    tracing::warn!(%error, "output cannot be shown while the task runs");
                    return;
                }
                Err(error) if !failing => {
                    tracing::warn!(%error, "cannot write live output, keeping the newest");
                    failing = true;
                }
                Err(_) => {}
            }
            let pause = async {
                tokio::time::sleep(EVERY).await;
                if !failing {
                    self.news.notified().await;
                }
            };
            if self.stop.run_until_cancelled(pause).await.is_none() {
                return;
            }
        }
    }

    async fn await_first(&self) {
        tokio::time::sleep(FIRST_AFTER).await;
        if self.taps.iter().all(Tap::is_closed) {
            tokio::time::sleep(CLOSED_AFTER).await;
        }
    }

    async fn write(&self, writers: &mut [Writer; 2]) -> Result<(), StoreError> {
        for writer in writers {
            writer.write(self.ledger, self.run).await?;
        }
        Ok(())
    }
}

/// Takes what a capture reads, and holds the newest bytes until they are written. Clones share what they hold.
#[derive(Debug, Clone)]
pub struct Tap {
    held: Arc<Mutex<Held>>,
    news: Arc<Notify>,
}

#[derive(Debug, Default)]
struct Held {
    bytes: VecDeque<u8>,
    offset: u64,
    closed: bool,
}

impl Tap {
    /// A tap at the start of a stream, which tells `news` when it has been given something.
    pub fn new(news: Arc<Notify>) -> Self {
        Self { held: Arc::default(), news }
    }

    /// The next bytes of the stream. Never waits.
    pub fn push(&self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        {
            let mut held = lock(&self.held);
            let newest = &bytes[bytes.len().saturating_sub(HELD_BYTES)..];
            let too_many = (held.bytes.len() + newest.len()).saturating_sub(HELD_BYTES);
            held.bytes.drain(..too_many);
            held.bytes.extend(newest);
            held.offset += (too_many + bytes.len() - newest.len()) as u64;
        }
        self.news.notify_one();
    }

    pub fn close(&self) {
        lock(&self.held).closed = true;
    }

    pub fn open(&self) {
        lock(&self.held).closed = false;
    }

    pub fn is_closed(&self) -> bool {
        lock(&self.held).closed
    }

    /// What is held, if anything. It is still held afterwards.
    pub fn peek(&self) -> Option<Piece> {
        let held = lock(&self.held);
        let (first, second) = held.bytes.as_slices();
        let bytes = [first, second].concat();
        (!bytes.is_empty()).then_some(Piece { offset: held.offset, bytes })
    }

    /// Lets go of what comes before the byte `end`: it is written.
    pub fn forget_before(&self, end: u64) {
        let mut held = lock(&self.held);
        let written = usize::try_from(end.saturating_sub(held.offset)).unwrap_or(usize::MAX);
        let written = written.min(held.bytes.len());
        held.bytes.drain(..written);
        held.offset += written as u64;
    }
}

/// One stream on its way to the database: whole chunks, of which the last may still grow.
struct Writer {
    stream: StreamName,
    tap: Tap,
    /// The last chunk, while it is short enough to grow.
    open: Option<Piece>,
}

impl Writer {
    async fn write(&mut self, ledger: &Ledger, run: &Run) -> Result<(), StoreError> {
        let Some(new) = self.tap.peek() else { return Ok(()) };
        let end = new.end();
        let whole = joined(self.open.as_ref(), new);
        ledger.write_live(run, self.stream, &whole).await?;
        self.tap.forget_before(end);
        self.open = last_chunk(whole);
        Ok(())
    }
}

/// The chunk that may grow, grown by what follows it. Skipped bytes end it.
fn joined(open: Option<&Piece>, new: Piece) -> Piece {
    match open {
        Some(open) if open.end() == new.offset => {
            Piece { offset: open.offset, bytes: [&open.bytes[..], &new.bytes].concat() }
        }
        _ => new,
    }
}

/// The last chunk of what was written, if it may grow.
fn last_chunk(written: Piece) -> Option<Piece> {
    let start = (written.bytes.len().saturating_sub(1) / CHUNK_BYTES) * CHUNK_BYTES;
    let bytes = written.bytes[start..].to_vec();
    (bytes.len() < FULL_BYTES).then_some(Piece { offset: written.offset + start as u64, bytes })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use disbatch_core::config::Config;
    use disbatch_core::lifecycle::Lifecycle;
    use disbatch_core::model::{NodeName, QueueId};
    use proptest::prelude::*;

    use super::*;

    impl Tap {
        fn held_bytes(&self) -> usize {
            lock(&self.held).bytes.len()
        }
    }

    fn tap() -> Tap {
        Tap::new(Arc::default())
    }

    #[test]
    fn the_newest_bytes_are_held() {
        let tap = tap();
        assert_eq!(tap.peek(), None);
        tap.push(&vec![b'a'; HELD_BYTES]);
        tap.push(b"bcd");
        let piece = tap.peek().unwrap();
        assert_eq!((piece.offset, piece.bytes.len()), (3, HELD_BYTES));
        assert!(piece.bytes.ends_with(b"abcd"));
        tap.push(&[b'e'; 3 * HELD_BYTES]);
        let piece = tap.peek().unwrap();
        assert_eq!((piece.offset, piece.end()), (3 * HELD_BYTES as u64 + 3, 4 * HELD_BYTES as u64 + 3));
        assert!(piece.bytes.iter().all(|byte| *byte == b'e'));
        tap.forget_before(7);
        assert_eq!(tap.peek(), Some(piece), "that was not held any more");
        tap.forget_before(u64::MAX);
        assert_eq!(tap.peek(), None);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]

        #[test]
        fn offsets_are_those_of_the_stream(
            steps in prop::collection::vec((0usize..2 * HELD_BYTES, any::<bool>()), 1..4),
        ) {
            let stream: Vec<u8> = (0..=250).cycle().take(8 * HELD_BYTES).collect();
            let (tap, mut end) = (tap(), 0);
            for (length, written) in steps {
                tap.push(&stream[end..end + length]);
                end += length;
                let Some(piece) = tap.peek() else { continue };
                let start = usize::try_from(piece.offset).unwrap();
                prop_assert!(piece.bytes == stream[start..end], "{start} to {end}");
                if written {
                    tap.forget_before(piece.end());
                }
            }
        }
    }

    fn piece(offset: u64, length: usize) -> Piece {
        Piece { offset, bytes: vec![b'x'; length] }
    }

    #[test]
    fn short_chunks_grow_and_full_ones_do_not() {
        assert_eq!(last_chunk(piece(5, 7)), Some(piece(5, 7)));
        assert_eq!(last_chunk(piece(5, FULL_BYTES)), None);
        assert_eq!(last_chunk(piece(5, CHUNK_BYTES)), None);
        assert_eq!(last_chunk(piece(5, CHUNK_BYTES + 3)), Some(piece(5 + CHUNK_BYTES as u64, 3)));
    }

    #[test]
    fn only_what_follows_is_joined() {
        assert_eq!(joined(None, piece(5, 7)), piece(5, 7));
        assert_eq!(joined(Some(&piece(2, 3)), piece(5, 7)), piece(2, 10));
        assert_eq!(joined(Some(&piece(1, 3)), piece(5, 7)), piece(5, 7), "a byte was skipped");
    }

    /// Live output for a database that nobody answers for.
    fn unreachable() -> (Ledger, Run) {
        let text = r#"{ "database": "x", "mongohost":
            "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=10&connectTimeoutMS=10" }"#;
        let config = Config::parse(text, Path::new("/config.json")).unwrap();
        let task = bson::oid::ObjectId::new().into();
        let queue = QueueId(bson::oid::ObjectId::new());
        let run = Run { task, queue, node: NodeName::new("n"), attempt: 1, instance: None };
        (Ledger::new(Arc::new(config), Lifecycle::default(), None, crate::ledger::Connection::default()), run)
    }

    #[tokio::test]
    async fn a_task_that_ends_at_once_is_not_written_about() {
        let (ledger, run) = unreachable();
        let live = Live::new(&ledger, &run);
        let tap = live.tap(StreamName::Stdout);
        let work = async {
            tap.push(b"quick\n");
            tap.close();
            tokio::task::yield_now().await;
            Ok::<(), ()>(())
        };
        live.beside(work).await.unwrap();
        assert!(!live.wrote.load(Ordering::Acquire));
    }

    #[tokio::test]
    async fn an_absent_database_costs_nothing_but_live_output() {
        let (ledger, run) = unreachable();
        let live = Live::new(&ledger, &run);
        let tap = live.tap(StreamName::Stderr);
        let work = async {
            tap.push(b"slow\n");
            while !live.wrote.load(Ordering::Acquire) {
                tokio::task::yield_now().await;
            }
            tap.push(&vec![b'x'; 9 << 20]);
            assert!(tap.held_bytes() <= HELD_BYTES);
            Ok::<(), ()>(())
        };
        // It would try for a while to remove what may have been written.
        let _tries_on = tokio::time::timeout(Duration::from_millis(500), live.beside(work)).await;
        assert!(live.wrote.load(Ordering::Acquire));
    }
}
