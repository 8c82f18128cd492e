//! The lines of a log with their times, of which each is passed on once however often the log is read again. Pure.
//!
//! A log is asked for again from a time on. What comes then begins with lines that have come already, in the same order:
//! so many of them are left out as there were with such a time. Times are those of writers that do not wait for each other: those of
//! neighbours may be the wrong way round, so it is asked for some seconds more than would be needed.

use std::collections::BTreeMap;

use jiff::Timestamp;

/// So many seconds before the newest line the log is asked for again.
const MARGIN: i64 = 5;

/// No time is longer, as text.
const LONGEST_TIME: usize = 64;

/// What is known of the lines.
#[derive(Debug, Default)]
pub struct Lines {
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

/// Where in a line it is.
#[derive(Debug)]
enum At {
    /// In its time, of which there is so much.
    Time(Vec<u8>),
    /// In what was written.
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
    pub fn since(&self) -> Option<Timestamp> {
        Timestamp::from_second(self.newest?.as_second() - MARGIN).ok()
    }

    /// The log is read again, from [`Self::since`] on.
    pub fn again(&mut self) {
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
    pub fn take(&mut self, mut bytes: &[u8], text: &mut Vec<u8>) {
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

    /// Takes a byte of what may be a time.
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

    /// Takes a piece of a line, which may be the last.
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
