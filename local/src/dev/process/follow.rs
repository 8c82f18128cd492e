//! Shows what is appended to a log.

use std::fs::File;
use std::io::Read;
use std::path::PathBuf;
use std::time::Duration;

use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::dev::console::Console;

const INTERVAL: Duration = Duration::from_millis(100);

/// Follows one log in the background.
#[derive(Debug)]
pub struct Follower {
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl Follower {
    /// Prints every line of `log`, from its start, with `label` in front.
    pub fn start(console: Console, label: String, log: PathBuf) -> Self {
        let stop = CancellationToken::new();
        let task = tokio::spawn(follow(console, label, log, stop.clone()));
        Self { stop, task }
    }

    /// Prints what is left and ends.
    pub async fn stop(self) {
        self.stop.cancel();
        // It fails only if it panicked, and then there is nothing more to show.
        let _ = self.task.await;
    }
}

async fn follow(console: Console, label: String, log: PathBuf, stop: CancellationToken) {
    let Ok(mut file) = File::open(&log) else { return };
    let mut interval = tokio::time::interval(INTERVAL);
    let mut rest = Vec::new();
    let mut stopping = false;
    while !stopping {
        tokio::select! {
            _ = interval.tick() => {}
            () = stop.cancelled() => stopping = true,
        }
        if file.read_to_end(&mut rest).is_err() {
            return;
        }
        for line in complete_lines(&mut rest) {
            console.line(&format!("{label} | {line}"));
        }
    }
    if !rest.is_empty() {
        console.line(&format!("{label} | {}", String::from_utf8_lossy(&rest)));
    }
}

/// Takes the lines that have an end out of `bytes`.
fn complete_lines(bytes: &mut Vec<u8>) -> Vec<String> {
    let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |position| position + 1);
    let complete: Vec<u8> = bytes.drain(..end).collect();
    String::from_utf8_lossy(&complete).lines().map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_waits_for_its_end() {
        let mut bytes = b"one\ntwo\nthr".to_vec();
        assert_eq!(complete_lines(&mut bytes), ["one", "two"]);
        assert!(complete_lines(&mut bytes).is_empty());
        bytes.extend(b"ee\n");
        assert_eq!(complete_lines(&mut bytes), ["three"]);
        assert!(bytes.is_empty());
    }
}
