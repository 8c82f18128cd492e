//! Lines of JSON objects, collected into requests.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read};

use anyhow::{Context, ensure};
use serde::de::IgnoredAny;
use tokio::sync::mpsc::{Receiver, channel};

/// A request has at most so many bytes of parameters: a DCI takes bodies up to 16 MiB.
const MOST_BYTES: usize = 8 << 20;

/// How many batches are read ahead.
const AHEAD: usize = 2;

/// The parameters of some tasks.
#[derive(Debug, PartialEq, Eq)]
pub struct Batch {
    /// A JSON array of the lines' objects, each as it was written.
    pub params: String,
    pub tasks: usize,
    /// The number of the first line that is not of an earlier batch; the first of all is 1.
    pub first_line: u64,
    pub last_line: u64,
    /// How many bytes of the input have been read up to there.
    pub bytes_read: u64,
}

/// Reads lines in a thread of its own, which does not keep the program from ending.
///
/// After an error nothing follows. Lines before the last good batch are sent; nothing of the batch with the error.
pub fn read(
    input: impl Read + Send + 'static,
    skip_lines: u64,
    most_lines: u32,
) -> Receiver<anyhow::Result<Batch>> {
    let (sender, receiver) = channel(AHEAD);
    std::thread::spawn(move || {
        let mut lines = Lines { input: BufReader::new(input), line: 0, bytes: 0, held: None };
        let skipped = (0..skip_lines).try_for_each(|_| match lines.next() {
            Ok(Some(_)) => Ok(()),
            Ok(None) => {
                Err(anyhow::anyhow!("--skip-lines {skip_lines}: there are only {} lines", lines.line))
            }
            Err(error) => Err(error),
        });
        if let Err(error) = skipped {
            let _nobody_listens = sender.blocking_send(Err(error));
            return;
        }
        while let Some(batch) = lines.batch(most_lines).transpose() {
            let last = batch.is_err();
            if sender.blocking_send(batch).is_err() || last {
                return;
            }
        }
    });
    receiver
}

struct Lines<R> {
    input: BufReader<R>,
    /// The number of the last line that was taken.
    line: u64,
    bytes: u64,
    /// A line that did not fit any more.
    held: Option<Vec<u8>>,
}

impl<R: Read> Lines<R> {
    /// The next line without its end.
    fn next(&mut self) -> anyhow::Result<Option<Vec<u8>>> {
        let mut line = Vec::new();
        if let Some(held) = self.held.take() {
            line = held;
        } else {
            let context = || format!("cannot read after line {}", self.line);
            if self.input.read_until(b'\n', &mut line).with_context(context)? == 0 {
                return Ok(None);
            }
        }
        self.line += 1;
        self.bytes += u64::try_from(line.len())?;
        Ok(Some(line))
    }

    /// The next lines. Empty lines count as lines and are no tasks.
    fn batch(&mut self, most_lines: u32) -> anyhow::Result<Option<Batch>> {
        let first_line = self.line + 1;
        let mut params = String::from("[");
        let mut tasks = 0;
        while self.line - (first_line - 1) < u64::from(most_lines) {
            let Some(line) = self.next()? else { break };
            if tasks > 0 && params.len() + line.len() > MOST_BYTES {
                self.line -= 1;
                self.bytes -= u64::try_from(line.len())?;
                self.held = Some(line);
                break;
            }
            let text = check(&line).with_context(|| format!("line {}", self.line))?;
            if !text.is_empty() {
                params.push_str(if tasks > 0 { "," } else { "" });
                params.push_str(text);
                tasks += 1;
            }
        }
        params.push(']');
        let batch = Batch { params, tasks, first_line, last_line: self.line, bytes_read: self.bytes };
        Ok((self.line >= first_line).then_some(batch))
    }
}

/// The line as a JSON object with keys, or as nothing.
fn check(line: &[u8]) -> anyhow::Result<&str> {
    let text = std::str::from_utf8(line).context("not UTF-8")?.trim();
    if text.is_empty() {
        return Ok(text);
    }
    ensure!(text.starts_with('{'), "not a JSON object");
    let object: HashMap<String, IgnoredAny> = serde_json::from_str(text).context("not a JSON object")?;
    ensure!(!object.is_empty(), "a task needs at least one parameter");
    Ok(text)
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    async fn all(text: &'static str, skip_lines: u64, most_lines: u32) -> Vec<Result<Batch, String>> {
        let mut receiver = read(Cursor::new(text), skip_lines, most_lines);
        let mut batches = Vec::new();
        while let Some(batch) = receiver.recv().await {
            batches.push(batch.map_err(|error| format!("{error:#}")));
        }
        batches
    }

    fn batch(params: &str, tasks: usize, lines: (u64, u64), bytes_read: u64) -> Result<Batch, String> {
        Ok(Batch { params: params.into(), tasks, first_line: lines.0, last_line: lines.1, bytes_read })
    }

    #[tokio::test]
    async fn lines_are_batched_as_they_are() {
        let text = "{\"a\":12345678901234567890123}\n\n{\"b\": 1}\r\n{\"c\":1}";
        assert_eq!(
            all(text, 0, 2).await,
            [
                batch("[{\"a\":12345678901234567890123}]", 1, (1, 2), 31),
                batch("[{\"b\": 1},{\"c\":1}]", 2, (3, 4), 48)
            ]
        );
        assert_eq!(all(text, 3, 1).await, [batch("[{\"c\":1}]", 1, (4, 4), 48)]);
        assert_eq!(all("", 0, 1).await, []);
    }

    #[tokio::test]
    async fn a_bad_line_takes_its_batch_along() {
        let batches = all("{\"a\":1}\n{\"b\":1}\n{\"c\":1}\n[1]\n{\"d\":1}\n", 0, 2).await;
        assert_eq!(batches[0], batch("[{\"a\":1},{\"b\":1}]", 2, (1, 2), 16));
        assert_eq!(batches[1..], [Err("line 4: not a JSON object".to_owned())]);
        for (text, message) in [
            ("{}", "line 1: a task needs"),
            ("{\"a\"", "line 1: not a JSON object: EOF"),
            ("\n{\"a\":1} x", "line 2: not a JSON object: trailing"),
        ] {
            let error = all(text, 0, 10).await.remove(0).unwrap_err();
            assert!(error.starts_with(message), "{error}");
        }
    }

    #[tokio::test]
    async fn there_must_be_as_many_lines_as_are_left_out() {
        let error = all("{\"a\":1}\n", 2, 10).await.remove(0).unwrap_err();
        assert_eq!(error, "--skip-lines 2: there are only 1 lines");
        assert_eq!(all("{\"a\":1}\n", 1, 10).await, []);
    }

    #[tokio::test]
    async fn large_lines_do_not_share_a_request() {
        let long = format!("{{\"a\":\"{}\"}}\n", "x".repeat(5 << 20));
        let mut receiver = read(Cursor::new(long.repeat(3)), 0, 1000);
        let mut ends = Vec::new();
        while let Some(batch) = receiver.recv().await {
            let batch = batch.unwrap();
            ends.push((batch.first_line, batch.last_line, batch.tasks));
        }
        assert_eq!(ends, [(1, 1, 1), (2, 2, 1), (3, 3, 1)]);
    }
}
