//! The end of what a task has written, as text. Scripts go on from there: they colour it, and add what comes.

use askama::Template;
use askama::filters::HtmlSafe;
use bson::{Bson, Document};
use disbatch_core::live::{LiveStream, torn_end};
use disbatch_core::model::TaskId;
use disbatch_core::output::{OutputEnd, StreamName, Times};
use disbatch_core::store::{Store, StoreError};

use crate::output;
use crate::ui::plain;

pub const SHOWN_BYTES: usize = 64 * 1024;

const MOST_TOGETHER: u64 = 1024 * 1024;

#[derive(Debug, Clone, PartialEq, Eq, Template)]
#[template(path = "task/output.html")]
pub struct Output {
    task: String,
    stream: &'static str,
    /// The earlier attempt that it is of, as an option of addresses; empty if it is of the task itself.
    attempt: String,
    /// Without what is meant for terminals.
    text: String,
    /// With it, as JSON, where there is something of it.
    raw: Option<String>,
    start: u64,
    pub end: u64,
    damage: Option<String>,
    live: bool,
    times: Option<Times>,
}

impl HtmlSafe for Output {}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Of {
    Running(i64),
    Task,
    /// That of an earlier attempt, which is told by its own document.
    Earlier(i64),
}

impl Output {
    /// Reads it from the document that has it. `live`: more may come.
    pub async fn read(
        store: &Store,
        (id, document): (TaskId, &Document),
        stream: StreamName,
        (of, live): (Of, bool),
    ) -> Result<Self, StoreError> {
        let (end, damage) = match (of, document.get(stream.as_str())) {
            (Of::Running(attempt), _) => {
                (running(store, LiveStream { task: id, attempt, stream }).await?, None)
            }
            (_, None | Some(Bson::Null)) => (OutputEnd::default(), None),
            (_, Some(Bson::ObjectId(file))) => match store.read_output_end(*file, SHOWN_BYTES).await {
                Ok(end) => (end, None),
                Err(error @ StoreError::DamagedOutput { .. }) => {
                    // What can be read is at its start.
                    let excerpt = output::excerpt(store, *file, SHOWN_BYTES).await?;
                    let damage = excerpt.damage.unwrap_or_else(|| error.to_string());
                    (OutputEnd { offset: 0, bytes: excerpt.text.into_bytes() }, Some(damage))
                }
                Err(error) => return Err(error),
            },
            (_, Some(text)) => (last(plain(Some(text)).into_bytes()), None),
        };
        let exit = document.get_document("exit").ok().filter(|_| !matches!(of, Of::Running(_)));
        let times = exit.and_then(|exit| Times::read(exit, stream));
        let attempt = match of {
            Of::Earlier(attempt) => format!("?.attempt={attempt}"),
            Of::Running(_) | Of::Task => String::new(),
        };
        Ok(Self { attempt, times, ..Self::of(&id.to_string(), stream, end, damage, live) })
    }

    pub fn of(task: &str, stream: StreamName, end: OutputEnd, damage: Option<String>, live: bool) -> Self {
        let OutputEnd { mut offset, mut bytes } = end;
        if live {
            // The rest of the character comes later.
            bytes.truncate(bytes.len() - torn_end(&bytes));
        }
        let stop = offset + bytes.len() as u64;
        if offset > 0 {
            let cut = start_of_text(&bytes);
            bytes.drain(..cut);
            offset += cut as u64;
        }
        let raw = String::from_utf8(bytes)
            .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
        let text = without_controls(&raw);
        Self {
            task: task.to_owned(),
            stream: stream.as_str(),
            attempt: String::new(),
            raw: (text != raw).then(|| serde_json::Value::from(raw).to_string()),
            text,
            start: offset,
            end: stop,
            damage,
            live,
            times: None,
        }
    }
}

/// Of each piece, as JSON: milliseconds since the start, and its first byte.
fn pieces(times: &Times) -> String {
    serde_json::json!(times.pieces).to_string()
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Template)]
#[template(path = "task/one_stream.html")]
pub struct Together {
    bytes: u64,
}

impl HtmlSafe for Together {}

impl Together {
    /// That of a task of which it is known when its pieces came.
    pub fn of(outputs: &[Output; 2]) -> Option<Self> {
        let is_timed = outputs.iter().all(|output| output.times.is_some());
        is_timed.then(|| Self { bytes: outputs.iter().map(|output| output.end).sum() })
    }
}

async fn running(store: &Store, of: LiveStream) -> Result<OutputEnd, StoreError> {
    let end = store.live_extent(of).await?.last().map_or(0, |last| last.end);
    let from = end.saturating_sub(SHOWN_BYTES as u64);
    let mut shown = OutputEnd { offset: from, bytes: Vec::new() };
    for piece in store.read_live(of, from, 2 * SHOWN_BYTES).await? {
        if piece.offset != shown.offset + shown.bytes.len() as u64 {
            // What is before a gap is left out.
            shown = OutputEnd { offset: piece.offset, bytes: Vec::new() };
        }
        shown.bytes.extend(piece.bytes);
    }
    Ok(shown)
}

fn last(mut bytes: Vec<u8>) -> OutputEnd {
    let cut = bytes.len().saturating_sub(SHOWN_BYTES);
    bytes.drain(..cut);
    OutputEnd { offset: cut as u64, bytes }
}

/// Where text begins that was cut somewhere: with a line, or at least with a character.
fn start_of_text(bytes: &[u8]) -> usize {
    let line = bytes.iter().position(|byte| *byte == b'\n').map(|at| at + 1);
    line.filter(|at| *at < bytes.len()).unwrap_or_else(|| {
        bytes.iter().take(3).take_while(|byte| **byte & 0b1100_0000 == 0b1000_0000).count()
    })
}

/// Text without what terminals are told by escape sequences and control characters. What returns to the start of a line begins a
/// new one.
pub(super) fn without_controls(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            '\u{1b}' => skip_sequence(&mut rest),
            '\r' if rest.peek() != Some(&'\n') => shown.push('\n'),
            '\n' | '\t' => shown.push(c),
            c if c.is_control() => {}
            c => shown.push(c),
        }
    }
    shown
}

fn skip_sequence(rest: &mut std::iter::Peekable<std::str::Chars<'_>>) {
    let Some(kind) = rest.next_if(|c| matches!(c, ' '..='~')) else { return };
    match kind {
        '[' => {
            while rest.next_if(|c| matches!(c, ' '..='?')).is_some() {}
            rest.next_if(|c| matches!(c, '@'..='~'));
        }
        // A command with text, up to a bell or another escape character.
        ']' | 'P' | 'X' | '^' | '_' => {
            while rest.next_if(|c| !matches!(c, '\u{7}' | '\u{1b}' | '\n')).is_some() {}
            if rest.next_if(|c| *c == '\u{1b}').is_some() {
                rest.next_if(|c| *c == '\\');
            }
        }
        ' '..='/' => {
            while rest.next_if(|c| matches!(c, ' '..='/')).is_some() {}
            rest.next_if(|c| matches!(c, '0'..='~'));
        }
        _ => {} // That was all.
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TASK: &str = "6b0003bb686c8275d8013333";

    fn of(offset: u64, bytes: &[u8], live: bool) -> Output {
        Output::of(TASK, StreamName::Stdout, OutputEnd { offset, bytes: bytes.to_vec() }, None, live)
    }

    #[test]
    fn text_begins_with_a_line_and_ends_with_a_character() {
        let shown = of(1000, b"est of a line\nwhole\n", false);
        assert_eq!((shown.text.as_str(), shown.start, shown.end), ("whole\n", 1014, 1020));
        let whole = of(0, b"whole\nlines", false);
        assert_eq!((whole.text.as_str(), whole.start, whole.end), ("whole\nlines", 0, 11));
        let torn = of(5, "\u{2603}a\u{2603}".as_bytes().get(1..6).unwrap(), true);
        assert_eq!((torn.text.as_str(), torn.start, torn.end), ("a", 7, 8));
        assert_eq!(of(7, b"no break\n", false).text, "no break\n");
        assert_eq!(of(0, b"a\xffb", false).text, "a\u{fffd}b");
    }

    #[test]
    fn the_part_shows_text_alone_and_where_the_rest_is() {
        let html = of(70_000, b"x\n\x1b[31m<script>&\x1b[0m", false).render().unwrap();
        for part in [
            "<pre",
            "&#60;script&#62;&#38;</pre>",
            "data-raw=\"&#34;\\u001b[31m&#60;script&#62;&#38;\\u001b[0m&#34;\"",
            "data-start=\"70002\"",
            "Last 18 bytes of 68 KiB.",
            "href=\"/tasks/6b0003bb686c8275d8013333/stdout\"",
            "download=\"6b0003bb686c8275d8013333.stdout.txt\"",
        ] {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        let none = of(0, b"", false).render().unwrap();
        assert!(none.contains("Empty.") && none.contains("<pre"), "a retry may bring some: {none}");
        assert!(of(0, b"", true).render().unwrap().contains("Nothing yet."));
        let damage = Some("chunk <2> is missing".to_owned());
        let damaged = Output::of(TASK, StreamName::Stderr, OutputEnd::default(), damage, false);
        assert!(damaged.render().unwrap().contains("chunk &#60;2&#62; is missing"));
    }

    #[test]
    fn streams_are_one_if_it_is_known_when_their_pieces_came() {
        let timed = |end| {
            let since = bson::DateTime::from_millis(5);
            Output { times: Some(Times { since, pieces: vec![[0, 0], [300, 7]] }), ..of(end, b"x\n", false) }
        };
        let html = timed(0).render().unwrap();
        assert!(html.contains("data-since=\"5\" data-pieces=\"[[0,0],[300,7]]\""), "{html}");
        assert_eq!(Together::of(&[timed(0), of(0, b"y\n", false)]), None);
        let shown = |end| Together::of(&[timed(end), timed(0)]).unwrap().render().unwrap();
        let most = MOST_TOGETHER - 4;
        assert!(shown(most).contains("as one stream</label>"));
        assert!(shown(most + 1).contains("have 1.0 MiB together") && !shown(most + 1).contains("<label"));
    }

    #[test]
    fn what_is_for_terminals_is_left_out() {
        for (raw, shown) in [
            ("a\x1b[1;31mb\x1b[0mc", "abc"),
            ("\x1b]0;title\x07x\x1b]8;;http://e\x1b\\link", "xlink"),
            ("10%\r20%\r\ndone\r", "10%\n20%\ndone\n"),
            ("a\u{8}b\u{0}c\u{9b}d\te", "abcd\te"),
            ("\x1b(Bx\x1b=y\x1b", "xy"),
            ("\x1b[", ""),
            ("\x1b]never ends\nnext", "\nnext"),
        ] {
            assert_eq!(without_controls(raw), shown, "{raw:?}");
        }
    }

    proptest! {
        #[test]
        fn no_control_character_is_left(raw in "(\\PC|[\u{0}-\u{9f}]){0,60}") {
            let shown = without_controls(&raw);
            prop_assert!(shown.chars().all(|c| !c.is_control() || matches!(c, '\n' | '\t')), "{shown:?}");
            let text: String = raw.chars().filter(|c| !c.is_control()).collect();
            let has_sequences = raw.contains('\u{1b}');
            prop_assert!(has_sequences || shown.replace(['\n', '\t'], "") == text, "{}", shown);
        }
    }
}
