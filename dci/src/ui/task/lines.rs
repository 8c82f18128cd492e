//! Lines of what a task has written, for its page: where some are that contain a text or look like errors, where one of a
//! number begins, and which number the one at a place has. All of the output counts, however long; one request reads so much
//! of it as it can in a moment, and says where to go on.

use std::time::{Duration, Instant};

use actix_web::web::{Data, Path};
use disbatch_core::live::LiveStream;
use disbatch_core::model::TaskId;
use disbatch_core::output::StreamName;
use disbatch_core::store::StoreError;
use serde::Serialize;
use serde_json::Value;
use tokio::sync::Semaphore;
use utoipa::ToSchema;

use super::output::without_controls;
use crate::api::Answer;
use crate::error::HttpError;
use crate::json;
use crate::openapi::OfSearch;
use crate::output::{Part, Source, Tail};
use crate::params::Params;
use crate::state::State;
use crate::ui::parts::cut;

/// A request reads for so long at most.
const MOMENT: Duration = Duration::from_secs(2);

/// And finds so many lines.
const MOST: usize = 200;

/// Of a line so many characters are told.
const SHOWN: usize = 300;

const LONGEST_TEXT: usize = 1_000;

const LONGEST_LINE: usize = 1024 * 1024;

static SEARCHES: Semaphore = Semaphore::const_new(4);

const BAD: [&str; 8] =
    ["error", "exception", "traceback", "fatal", "panic", "segmentation fault", "critical", "failed"];

const GOOD: [&str; 5] = ["no error", "0 error", "0 failed", "without error", "error: none"];

/// Lines that were found, and how far was read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct Lines {
    /// In their order.
    lines: Vec<Line>,
    /// Everything before this byte was read.
    position: u64,
    /// Of the line at `position`.
    number: u64,
    /// Whether that is the end.
    ended: bool,
    /// Whether the numbers are right: of a running task not all lines may be kept.
    exact: bool,
}

/// A line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
struct Line {
    /// The first one has 1.
    number: u64,
    /// Where it begins, in bytes.
    offset: u64,
    /// What it says, or the beginning of that.
    text: String,
}

/// Lines of a task's output, by a text that they contain (`search`), as they look like errors (`errors`), by their number
/// (`line`) or by their place (`offset`). A request reads for two seconds at most; `from` and `number` lead on.
#[utoipa::path(
    get, path = "/ui/tasks/{id}/output/{stream}", tag = "service", operation_id = "findOutputLines",
    params(
        ("id" = String, Path, description = "The task's id."),
        ("stream" = String, Path, description = "stdout or stderr."),
        ("search" = Option<String>, Query, description = "A text; upper and lower case of ASCII letters are the same."),
        ("errors" = Option<bool>, Query, description = "Lines that look like errors."),
        ("line" = Option<u64>, Query, description = "The line with this number."),
        ("offset" = Option<u64>, Query, description = "Which number the line has that this byte is in."),
        ("from" = Option<u64>, Query, description = "The `position` of an earlier answer."),
        ("number" = Option<u64>, Query, description = "Its `number`."),
        (".attempt" = Option<i64>, Query, description = "Of this attempt in place of the last one."),
    ),
    responses(
        (status = 200, description = "What was found so far.", body = Lines),
        (status = 400, description = "Nothing is asked for, or something odd."),
        (status = 404, description = "There is no such task, or no such attempt."),
        OfSearch,
    ),
)]
pub async fn handle(state: Data<State>, path: Path<(String, String)>, params: Params) -> Answer {
    let (id, stream) = path.into_inner();
    let wanted = Wanted::read(&params)?;
    let from = number(&params, "from")?.unwrap_or(0);
    let first = number(&params, "number")?.unwrap_or(1);
    let stream = StreamName::named(&stream);
    let stream = stream.ok_or_else(|| HttpError::not_found("a task has stdout and stderr"))?;
    let _turn = SEARCHES.acquire().await.map_err(|error| HttpError::internal(&error.to_string()))?;
    let mut reader = Reader::open(&state, &id, stream, params.integer("attempt")?, from).await?;
    let mut scan = Scan::new(wanted, from, first);
    let begun = Instant::now();
    while !scan.is_done() && begun.elapsed() < MOMENT {
        match reader.next().await? {
            Some(bytes) => scan.feed(&bytes),
            None => scan.end(),
        }
    }
    json::of(&Lines { exact: reader.exact, ..scan.found })
}

fn number(params: &Params, name: &str) -> Result<Option<u64>, HttpError> {
    let wrong = || HttpError::bad_request(format!("{name} must be a whole number"));
    let value = match params.fields.get(name) {
        None | Some(Value::Null) => return Ok(None),
        Some(Value::Number(number)) => number.as_u64(),
        Some(Value::String(text)) => text.parse().ok(),
        Some(_) => None,
    };
    value.map(Some).ok_or_else(wrong)
}

struct Reader {
    tail: Tail,
    is_live: bool,
    /// Whether nothing was missing so far.
    exact: bool,
}

impl Reader {
    async fn open(
        state: &State,
        id: &str,
        stream: StreamName,
        attempt: Option<i64>,
        from: u64,
    ) -> Result<Self, HttpError> {
        let store = &state.store;
        let no_task = || HttpError::not_found(format!("no task with id {id}"));
        let task: TaskId = id.parse().map_err(|_| no_task())?;
        let seen = store.observe_task(task).await?.ok_or_else(no_task)?;
        let of = LiveStream { task, attempt: seen.attempt(), stream };
        let mut tail = Tail::new(store.clone(), of, from);
        if seen.is_running() && attempt.is_none_or(|attempt| attempt == seen.attempt()) {
            return Ok(Self { tail, is_live: true, exact: true });
        }
        let source = match attempt {
            None => Source::of_task(store, task, stream).await?,
            Some(attempt) => Source::of_attempt(store, &seen, attempt, stream)
                .await?
                .ok_or_else(|| HttpError::not_found(format!("task {id} has no attempt {attempt}")))?,
        };
        tail.settle(Some(source)).await?;
        Ok(Self { tail, is_live: false, exact: true })
    }

    /// The next bytes; nothing at the end of what there is.
    async fn next(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        let (tail, is_live) = (&mut self.tail, self.is_live);
        let parts = if is_live { tail.live().await? } else { Vec::from_iter(tail.rest().await?) };
        let is_end = parts.is_empty();
        let mut all = Vec::new();
        for part in parts {
            match part {
                Part::Bytes(bytes) => all.extend(bytes),
                Part::Gap(_) => self.exact = false,
            }
        }
        Ok((!is_end).then_some(all))
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Wanted {
    /// Lines with this text, which is in lower case.
    Text(String),
    Errors,
    Line(u64),
    /// The number of the line at this byte.
    Offset(u64),
}

impl Wanted {
    fn read(params: &Params) -> Result<Self, HttpError> {
        let text = crate::ui::text(params.fields.get("search"));
        if text.len() > LONGEST_TEXT {
            return Err(HttpError::bad_request(format!("search must have at most {LONGEST_TEXT} bytes")));
        }
        if !text.is_empty() {
            return Ok(Self::Text(text.to_ascii_lowercase()));
        }
        if params.fields.contains_key("errors") {
            return Ok(Self::Errors);
        }
        match (number(params, "line")?, number(params, "offset")?) {
            (Some(line), _) => Ok(Self::Line(line)),
            (None, Some(offset)) => Ok(Self::Offset(offset)),
            (None, None) => {
                Err(HttpError::bad_request("one of search, errors, line and offset must be given"))
            }
        }
    }

    /// Whether text, in lower case, may have something of it.
    fn is_in(&self, text: &str) -> bool {
        match self {
            Self::Text(wanted) => text.contains(wanted.as_str()),
            Self::Errors => BAD.iter().any(|bad| text.contains(bad)),
            Self::Line(_) | Self::Offset(_) => false,
        }
    }

    /// Whether a line, in lower case, is one of those.
    fn is(&self, line: &str) -> bool {
        self.is_in(line) && (*self != Self::Errors || !GOOD.iter().any(|good| line.contains(good)))
    }

    /// So much of a line that goes on may be the beginning of what is looked for.
    fn overlap(&self) -> usize {
        match self {
            Self::Text(wanted) => wanted.len().saturating_sub(1),
            Self::Errors => 32,
            Self::Line(_) | Self::Offset(_) => 0,
        }
    }
}

#[derive(Debug)]
struct Scan {
    wanted: Wanted,
    found: Lines,
    /// Where the line at the position begins.
    start: u64,
    /// What was not looked at yet, from the position on: a line whose end has not come.
    rest: Vec<u8>,
    is_enough: bool,
}

impl Scan {
    fn new(wanted: Wanted, position: u64, number: u64) -> Self {
        let is_enough = matches!(wanted, Wanted::Offset(offset) if offset <= position);
        let found = Lines { lines: Vec::new(), position, number, ended: false, exact: true };
        Self { wanted, found, start: position, rest: Vec::new(), is_enough }
    }

    fn is_done(&self) -> bool {
        self.found.ended || self.is_enough
    }

    fn feed(&mut self, bytes: &[u8]) {
        self.rest.extend_from_slice(bytes);
        let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map(|at| at + 1);
        let is_long = self.rest.len() > LONGEST_LINE;
        let cut = whole.or_else(|| is_long.then(|| self.rest.len().saturating_sub(self.wanted.overlap())));
        if let Some(cut) = cut {
            self.look(cut);
        }
    }

    fn end(&mut self) {
        self.look(self.rest.len());
        self.found.ended = !self.is_enough;
    }

    fn look(&mut self, cut: usize) {
        let mut piece: Vec<u8> = self.rest.drain(..cut).collect();
        if let Wanted::Offset(offset) = self.wanted
            && let Ok(left) = usize::try_from(offset - self.found.position)
            && left <= piece.len()
        {
            piece.truncate(left);
            self.is_enough = true;
        }
        let is_by_line = match self.wanted {
            Wanted::Line(_) => true,
            Wanted::Offset(_) => false,
            _ => self.wanted.is_in(&lower(&piece)),
        };
        if !is_by_line {
            self.pass(&piece);
            return;
        }
        for line in piece.split_inclusive(|byte| *byte == b'\n') {
            let (found, number) = (&mut self.found.lines, self.found.number);
            let is_first = found.last().is_none_or(|last| last.number != number);
            let is_wanted = match &self.wanted {
                Wanted::Line(wanted) => *wanted == number,
                wanted => wanted.is(&lower(line)),
            };
            if is_wanted && is_first {
                found.push(Line { number, offset: self.start, text: cut_line(line) });
            }
            self.pass(line);
            if self.found.lines.len() >= MOST || (is_wanted && matches!(self.wanted, Wanted::Line(_))) {
                self.is_enough = true;
                return;
            }
        }
    }

    fn pass(&mut self, bytes: &[u8]) {
        let breaks = bytes.iter().filter(|byte| **byte == b'\n').count();
        if let Some(last) = bytes.iter().rposition(|byte| *byte == b'\n') {
            self.start = self.found.position + last as u64 + 1;
        }
        self.found.position += bytes.len() as u64;
        self.found.number += breaks as u64;
    }
}

fn lower(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).to_ascii_lowercase()
}

fn cut_line(line: &[u8]) -> String {
    let begin = line.get(..4 * SHOWN).unwrap_or(line);
    cut(without_controls(&String::from_utf8_lossy(begin)).trim_end(), SHOWN)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// What is found of `text`, which comes in pieces of so many bytes.
    fn found(wanted: Wanted, text: &str, at_once: usize) -> Lines {
        let mut scan = Scan::new(wanted, 0, 1);
        for piece in text.as_bytes().chunks(at_once) {
            if !scan.is_done() {
                scan.feed(piece);
            }
        }
        if !scan.is_done() {
            scan.end();
        }
        scan.found
    }

    fn places(lines: &Lines) -> Vec<(u64, u64, &str)> {
        lines.lines.iter().map(|line| (line.number, line.offset, line.text.as_str())).collect()
    }

    #[test]
    fn lines_are_found_however_they_come() {
        let text = "one\nTwo \u{2603}\n\nthree two\r\nend two";
        for at_once in [1, 3, 7, 100] {
            let lines = found(Wanted::Text("two".into()), text, at_once);
            assert_eq!(places(&lines), [(2, 4, "Two \u{2603}"), (4, 13, "three two"), (5, 24, "end two")]);
            assert_eq!((lines.position, lines.number, lines.ended), (31, 5, true));
            assert_eq!(places(&found(Wanted::Line(4), text, at_once)), [(4, 13, "three two")]);
            let there = found(Wanted::Offset(13), text, at_once);
            assert_eq!((there.position, there.number, there.ended), (13, 4, false));
            assert_eq!(found(Wanted::Offset(99), text, at_once).position, 31, "there is no more");
            assert!(found(Wanted::Line(6), text, at_once).lines.is_empty());
        }
    }

    #[test]
    fn errors_are_told_from_those_that_are_none() {
        let text = "all well\nValueError: x\n0 errors\nno error here\nTraceback (most recent call last):\nFAILED a\n";
        let numbers: Vec<u64> =
            found(Wanted::Errors, text, 1000).lines.iter().map(|line| line.number).collect();
        assert_eq!(numbers, [2, 5, 6]);
    }

    #[test]
    fn one_goes_on_where_it_was_enough() {
        let text = "hit\n".repeat(MOST + 5);
        let lines = found(Wanted::Text("hit".into()), &text, 1000);
        assert_eq!((lines.lines.len(), lines.ended), (MOST, false));
        let mut scan = Scan::new(Wanted::Text("hit".into()), lines.position, lines.number);
        scan.feed(&text.as_bytes()[usize::try_from(lines.position).unwrap()..]);
        scan.end();
        let rest = scan.found;
        assert_eq!((rest.lines.len(), rest.ended, rest.number), (5, true, MOST as u64 + 6));
        assert_eq!(rest.lines[0].number, MOST as u64 + 1);
    }

    #[test]
    fn a_line_without_end_takes_little_memory() {
        let mut scan = Scan::new(Wanted::Text("needle".into()), 0, 1);
        for _ in 0..5 {
            scan.feed(&vec![b'x'; LONGEST_LINE]);
            assert!(scan.rest.len() <= LONGEST_LINE, "{}", scan.rest.len());
        }
        scan.feed(b"needle, and the needle\nmore\n");
        scan.end();
        let lines = scan.found;
        assert_eq!(lines.lines.len(), 1);
        assert_eq!((lines.lines[0].number, lines.lines[0].offset, lines.number), (1, 0, 3));
    }

    #[test]
    fn something_has_to_be_asked_for() {
        let read = |fields: Value| {
            Wanted::read(&Params {
                fields: fields.as_object().cloned().unwrap_or_default(),
                ..Params::default()
            })
        };
        assert_eq!(read(json!({"search": "A\u{c9}"})).unwrap(), Wanted::Text("a\u{c9}".into()));
        assert_eq!(read(json!({"errors": "1"})).unwrap(), Wanted::Errors);
        assert_eq!(read(json!({"line": "7"})).unwrap(), Wanted::Line(7));
        assert_eq!(read(json!({"offset": 7})).unwrap(), Wanted::Offset(7));
        for odd in
            [json!({}), json!({"line": "x"}), json!({"offset": -1}), json!({"search": "x".repeat(2_000)})]
        {
            assert!(read(odd.clone()).is_err(), "{odd}");
        }
    }
}
