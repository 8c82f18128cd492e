//! The log of a pod, as the output of this process: from its beginning, while it is written, whatever happens to the
//! connection. Each of its lines, which have their times, is passed on once however often the log is read again.
//!
//! A log is asked for again from a time on. What comes then begins with lines that have come already, in the same order:
//! so many of them are left out as there were with such a time. Times are those of writers that do not wait for each other: those of
//! neighbours may be the wrong way round, so it is asked for some seconds more than would be needed.

use std::collections::BTreeMap;
use std::io;
use std::pin::pin;
use std::time::Duration;

use disbatch_adapter::Output;
use futures::AsyncReadExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::api::LogParams;
use kube::{Api, Error};
use tokio::sync::watch::Receiver;
use tokio::time::{sleep, timeout};

use super::cluster::{Pauses, describe, in_time, is_passing, is_refusal};

const READ_SIZE: usize = 64 * 1024;

/// A log that is silent for so long is asked for again: the connection may be dead.
const SILENCE: Duration = Duration::from_secs(300);

/// The log of a container that has ended comes to its end by itself, and soon.
const LAST: Duration = Duration::from_secs(5);

/// How long it takes at least until a log is asked for again.
const LOOK_AGAIN: Duration = Duration::from_millis(500);

const TRIES: u32 = 10;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Heard {
    pub pod: Option<String>,
    pub has_begun: bool,
    /// Whether it has ended, or never will begin.
    pub is_over: bool,
}

struct Copying<'a> {
    pods: &'a Api<Pod>,
    container: &'a str,
    heard: Receiver<Heard>,
    lines: Lines,
    /// Whether something has come since the last time that nothing could be read.
    has_read: bool,
    target: Output,
}

/// Copies the log of a container to the standard output of this process until it is over. Ends at once if the container never
/// begins.
pub async fn copy(pods: &Api<Pod>, container: &str, mut heard: Receiver<Heard>) -> Result<(), String> {
    let begun = match heard.wait_for(|heard| heard.has_begun || heard.is_over).await {
        Ok(heard) => heard.clone(),
        // Nobody follows it any more.
        Err(_) => return Ok(()),
    };
    let (Some(pod), true) = (begun.pod, begun.has_begun) else { return Ok(()) };
    let target = Output::to(io::stdout()).map_err(|error| format!("cannot pass on the output: {error}"))?;
    let mut copy = Copying { pods, container, heard, lines: Lines::default(), has_read: false, target };
    let copied = copy.run(&pod).await;
    copy.target.flush().await;
    copied
}

impl Copying<'_> {
    async fn run(&mut self, pod: &str) -> Result<(), String> {
        let mut pauses = Pauses::default();
        let mut failures = 0;
        // Whether a log that was followed has come to its end: then nothing is missing if the pod is gone.
        let mut is_whole = false;
        loop {
            let is_over = self.heard.borrow().is_over;
            let error = match self.read(pod, is_over).await {
                Ok(true) if is_over => return Ok(()),
                Ok(to_its_end) => {
                    is_whole = to_its_end;
                    pauses.reset();
                    self.wait().await;
                    continue;
                }
                Err(error) => error,
            };
            if std::mem::take(&mut self.has_read) {
                pauses.reset();
            }
            if is_over {
                failures += 1;
                if matches!(&error, Error::Api(status) if status.is_not_found()) && is_whole {
                    return Ok(());
                }
                if failures == TRIES || !(is_passing(&error) || is_refusal(&error)) {
                    return Err(format!("the output is not complete: {}", describe(&error)));
                }
            }
            pauses.pause().await;
        }
    }

    async fn wait(&mut self) {
        let over = self.heard.wait_for(|heard| heard.is_over);
        drop(timeout(LOOK_AGAIN, over).await);
    }

    /// Reads the log, from where it broke off. Returns whether it has come to its end, as that was then.
    async fn read(&mut self, pod: &str, is_over: bool) -> Result<bool, Error> {
        let params = LogParams {
            container: Some(self.container.to_owned()),
            follow: !is_over,
            timestamps: true,
            since_time: self.lines.since(),
            ..LogParams::default()
        };
        let mut log = pin!(in_time(self.pods.log_stream(pod, &params)).await?);
        self.lines.again();
        let (mut buffer, mut text) = (vec![0; READ_SIZE], Vec::new());
        loop {
            let read = tokio::select! {
                read = log.read(&mut buffer) => read,
                () = no_more(&mut self.heard, is_over) => return Ok(false),
            };
            match read {
                Ok(0) => return Ok(true),
                Ok(read) => {
                    self.has_read = true;
                    self.lines.take(&buffer[..read], &mut text);
                }
                Err(error) => return Err(Error::ReadEvents(error)),
            }
            self.target.write(&text).await;
            text.clear();
        }
    }
}

/// Waits until there is no use in waiting for more of a log that is followed.
async fn no_more(heard: &mut Receiver<Heard>, is_over: bool) {
    if is_over {
        return sleep(SILENCE).await;
    }
    let over = async {
        drop(heard.wait_for(|heard| heard.is_over).await);
        sleep(LAST).await;
    };
    // It is over, or nobody knows.
    let _silent = timeout(SILENCE, over).await;
}

/// So many seconds before the newest line the log is asked for again.
const MARGIN: i64 = 5;

/// No time is longer, as text.
const LONGEST_TIME: usize = 64;

#[derive(Debug, Default)]
struct Lines {
    /// How many whole lines there were, by the second of their time. Those that are never asked for again are forgotten.
    counts: BTreeMap<i64, u64>,
    newest: Option<Timestamp>,
    /// The line that broke off: its time, and how many of its bytes have come.
    broken: Option<(Timestamp, usize)>,
    /// So many lines that come next have come already.
    known: u64,
    /// What was the newest when this reading began: later ones have not come yet.
    newest_before: Option<Timestamp>,
    at: At,
}

#[derive(Debug)]
enum At {
    /// In its time, of which there is so much.
    Time(Vec<u8>),
    Text(Text),
}

#[derive(Debug, Default)]
struct Text {
    /// `None`: the line has no time, so it is not from the container.
    time: Option<Timestamp>,
    /// Whether it has come already.
    is_known: bool,
    /// So many of the next bytes have come already.
    known: usize,
    /// How many of its bytes have come in this reading.
    passed: usize,
}

impl Default for At {
    fn default() -> Self {
        Self::Time(Vec::new())
    }
}

impl Lines {
    /// From when on the log is to be asked for. `None`: from its beginning.
    fn since(&self) -> Option<Timestamp> {
        Timestamp::from_second(self.newest?.as_second() - MARGIN).ok()
    }

    /// The log is read again, from [`Self::since`] on.
    fn again(&mut self) {
        if let At::Text(Text { time: Some(time), is_known: false, known, passed }) = self.at {
            self.broken = Some((time, passed + known));
        }
        self.at = At::default();
        self.newest_before = self.newest;
        let first = self.since().map_or(i64::MIN, Timestamp::as_second);
        self.counts = self.counts.split_off(&first);
        self.known = self.counts.values().sum();
    }

    /// Takes the next bytes of the log, and adds to `text` what has not come yet.
    fn take(&mut self, mut bytes: &[u8], text: &mut Vec<u8>) {
        while let Some(first) = bytes.first() {
            if matches!(self.at, At::Text(_)) {
                let end = bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| end + 1);
                let (piece, rest) = bytes.split_at(end);
                self.take_text(piece, text);
                bytes = rest;
            } else {
                self.take_time(*first, text);
                bytes = &bytes[1..];
            }
        }
    }

    fn take_time(&mut self, byte: u8, text: &mut Vec<u8>) {
        let At::Time(time) = &mut self.at else { return };
        if byte != b' ' && byte != b'\n' && time.len() < LONGEST_TIME {
            time.push(byte);
            return;
        }
        let head = std::mem::take(time);
        let parsed = std::str::from_utf8(&head).ok().and_then(|time| time.parse::<Timestamp>().ok());
        self.at = At::Text(self.begin(parsed, text));
        if parsed.is_none() {
            self.take_text(&head, text);
        }
        if parsed.is_none() || byte == b'\n' {
            self.take_text(&[byte], text);
        }
    }

    /// What is to be done with a line that has this time.
    fn begin(&mut self, time: Option<Timestamp>, text: &mut Vec<u8>) -> Text {
        let Some(time) = time else { return Text::default() };
        if Some(time) > self.newest_before {
            // The log has lost lines that had come, as it does when it becomes too long.
            self.known = 0;
        }
        if self.known > 0 {
            self.known -= 1;
            return Text { time: Some(time), is_known: true, ..Text::default() };
        }
        match self.broken.take() {
            Some((broken, passed)) if broken == time => {
                Text { time: Some(time), is_known: false, known: passed, passed: 0 }
            }
            Some((_, 1..)) => {
                // Its rest is lost.
                text.push(b'\n');
                Text { time: Some(time), ..Text::default() }
            }
            _ => Text { time: Some(time), ..Text::default() },
        }
    }

    fn take_text(&mut self, piece: &[u8], text: &mut Vec<u8>) {
        let At::Text(line) = &mut self.at else { return };
        if !line.is_known {
            let known = line.known.min(piece.len());
            line.known -= known;
            line.passed += piece.len();
            text.extend_from_slice(&piece[known..]);
        }
        if !piece.ends_with(b"\n") {
            if let Some(time) = line.time {
                self.newest = self.newest.max(Some(time));
            }
            return;
        }
        let Text { time, is_known, .. } = std::mem::take(line);
        self.at = At::default();
        if let Some(time) = time
            && !is_known
        {
            self.newest = self.newest.max(Some(time));
            *self.counts.entry(time.as_second()).or_default() += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn time(second: i64, nanosecond: i32) -> Timestamp {
        Timestamp::new(1_800_000_000 + second, nanosecond).unwrap()
    }

    /// A line of a log as it is sent.
    fn line(time: Timestamp, text: &str) -> String {
        format!("{time} {text}\n")
    }

    fn read(lines: &mut Lines, bytes: &[u8]) -> String {
        let mut text = Vec::new();
        lines.take(bytes, &mut text);
        String::from_utf8(text).unwrap()
    }

    #[test]
    fn times_are_taken_away_and_nothing_else() {
        let mut lines = Lines::default();
        let log = "2026-11-20T08:24:27.123456789Z one two\n2026-11-20T09:24:28+01:00 \n2026-11-20T08:24:29Z\nno time\n\n";
        assert_eq!(read(&mut lines, log.as_bytes()), "one two\n\n\nno time\n\n");
        let since = lines.since().unwrap();
        assert_eq!(since.to_string(), "2026-11-20T08:24:24Z");
    }

    #[test]
    fn lines_that_have_come_do_not_come_again() {
        let mut lines = Lines::default();
        let log: String = (0..20).map(|n| line(time(n / 2, 7), &n.to_string())).collect();
        assert_eq!(read(&mut lines, log.as_bytes()).lines().count(), 20);
        assert_eq!(lines.since(), Some(time(4, 0)));
        lines.again();
        let again: String = (8..22).map(|n| line(time(n / 2, 7), &n.to_string())).collect();
        assert_eq!(read(&mut lines, again.as_bytes()), "20\n21\n");
        lines.again();
        assert_eq!(read(&mut lines, b""), "");
        lines.again();
        let last: String = (10..23).map(|n| line(time(n / 2, 7), &n.to_string())).collect();
        assert_eq!(read(&mut lines, last.as_bytes()), "22\n");
    }

    #[test]
    fn a_line_that_broke_off_goes_on() {
        let mut lines = Lines::default();
        let log = format!("{}{} half of", line(time(0, 0), "whole"), time(1, 5));
        assert_eq!(read(&mut lines, log.as_bytes()), "whole\nhalf of");
        lines.again();
        // It broke off before it came to that line.
        assert_eq!(read(&mut lines, line(time(0, 0), "whole").as_bytes()), "");
        lines.again();
        let log = format!("{}{} half of it\n{} 3", line(time(0, 0), "whole"), time(1, 5), time(2, 0));
        assert_eq!(read(&mut lines, log.as_bytes()), " it\n3");
    }

    #[test]
    fn a_log_that_has_lost_its_beginning_costs_nothing_that_is_left() {
        let mut lines = Lines::default();
        let log: String = (0..5).map(|n| line(time(n, 0), &n.to_string())).collect();
        read(&mut lines, log.as_bytes());
        lines.again();
        let rest: String = (4..7).map(|n| line(time(n, 0), &n.to_string())).collect();
        assert_eq!(read(&mut lines, rest.as_bytes()), "5\n6\n");
        let mut lines = Lines::default();
        read(&mut lines, format!("{} half", time(0, 0)).as_bytes());
        lines.again();
        assert_eq!(read(&mut lines, line(time(9, 0), "next").as_bytes()), "\nnext\n");
    }

    /// The log of two writers whose times may be the wrong way round, and where its readings break off.
    fn logs() -> impl Strategy<Value = (Vec<(Timestamp, String)>, Vec<usize>)> {
        let line = (0..3_000_i64, "[a-z ]{0,6}");
        let lines = prop::collection::vec(line, 1..40).prop_map(|lines| {
            let timed = lines.into_iter().enumerate().map(|(number, (late, text))| {
                let millis = i64::try_from(number).unwrap() * 700 + late;
                (Timestamp::from_millisecond(1_800_000_000_000 + millis).unwrap(), text)
            });
            timed.collect::<Vec<_>>()
        });
        (lines, prop::collection::vec(0..2_000_usize, 0..8))
    }

    proptest! {
        #[test]
        fn each_line_comes_once_wherever_readings_break_off((log, mut breaks) in logs()) {
            let expected: String = log.iter().map(|(_, text)| format!("{text}\n")).collect();
            breaks.push(usize::MAX);
            let mut lines = Lines::default();
            let mut text = Vec::new();
            for end in breaks {
                lines.again();
                let since = lines.since();
                let sent: String = log.iter().filter(|(at, _)| since.is_none_or(|since| *at >= since))
                    .map(|(at, text)| line(*at, text)).collect();
                // It never reaches less than before: what was there is still there.
                for piece in sent.as_bytes()[..end.min(sent.len())].chunks(7) {
                    lines.take(piece, &mut text);
                }
            }
            prop_assert_eq!(String::from_utf8(text).unwrap(), expected);
        }
    }
}
