//! Streams that go on where they were when the connection is lost.

use std::collections::VecDeque;
use std::fmt;
use std::str::FromStr;

use futures::stream::{BoxStream, StreamExt, try_unfold};
use reqwest::StatusCode;
use reqwest::header::{ACCEPT, HeaderMap, HeaderName, RANGE};
use serde_json::Value;
use tokio::time::Instant;

use crate::call::{Call, Connection, Incoming};
use crate::error::{Error, Result};
use crate::retries::tried_since;
use crate::task::Task;

/// What of a task's output is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OutputStream {
    Stdout,
    Stderr,
}

impl fmt::Display for OutputStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        })
    }
}

impl FromStr for OutputStream {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let all = [Self::Stdout, Self::Stderr];
        let wrong = || Error::Invalid(format!("a task has stdout and stderr, and no {text:?}"));
        all.into_iter().find(|stream| stream.to_string() == text).ok_or_else(wrong)
    }
}

/// What happens to a task: `status`, `progress`, `output` or `end`, and its data.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    pub event: String,
    pub data: Value,
    pub id: Option<String>,
}

/// A connection that is opened again when it is lost, until there is no point in that.
struct Opened {
    connection: Connection,
    incoming: Option<Incoming>,
    answered: Option<Instant>,
    tried: u32,
}

impl Opened {
    fn new(connection: Connection) -> Self {
        Self { connection, incoming: None, answered: None, tried: 0 }
    }

    async fn open(&mut self, call: &Call) -> Result<&Incoming> {
        self.answered = None;
        let incoming = self.connection.open(call).await?;
        self.answered = Some(Instant::now());
        Ok(self.incoming.insert(incoming))
    }

    /// What is to be done after an error: the next connection, or it is returned.
    async fn lost(&mut self, error: Error, call: &Call) -> Result<()> {
        self.incoming = None;
        // A task may be silent for as long as it likes.
        if self.answered.is_some() && matches!(error, Error::RequestTimeout(_)) {
            return Ok(());
        }
        self.tried = tried_since(self.answered, self.tried);
        self.connection.pause(error, call, &mut self.tried).await
    }
}

/// Where in a stream of bytes we are, however often the connection is lost.
#[derive(Default)]
struct Position {
    offset: u64,
    at: u64,
    /// Bytes before the next one that are not kept.
    missing: u64,
    /// The last byte that was handed on.
    last: Option<u8>,
}

impl Position {
    /// An answer begins where it says, which need not be where it was asked for.
    fn answered(&mut self, status: StatusCode, headers: &HeaderMap) {
        let (name, otherwise) = match status {
            StatusCode::PARTIAL_CONTENT => ("content-range", self.offset),
            _ => ("disbatch-from", 0),
        };
        let said = headers.get(name).and_then(|value| value.to_str().ok());
        let start = said.and_then(|said| said.trim_start_matches("bytes ").split('-').next()?.parse().ok());
        self.at = start.unwrap_or(otherwise);
        self.missing += self.at.saturating_sub(self.offset);
        self.offset = self.offset.max(self.at);
    }

    /// What of it was not there before, after a line for what is missing, as the server has it where nobody counts bytes.
    fn fresh(&mut self, mut chunk: Vec<u8>) -> Vec<u8> {
        let known = usize::try_from(self.offset - self.at).unwrap_or(usize::MAX).min(chunk.len());
        self.at += chunk.len() as u64;
        self.offset = self.offset.max(self.at);
        chunk.drain(..known);
        if self.missing > 0 && !chunk.is_empty() {
            let before = if self.last.is_none_or(|byte| byte == b'\n') { "" } else { "\n" };
            let line = format!("{before}[{} bytes not kept]\n", std::mem::take(&mut self.missing));
            chunk = [line.into_bytes(), chunk].concat();
        }
        self.last = chunk.last().copied().or(self.last);
        chunk
    }
}

/// The output of a task, piece by piece.
pub struct OutputReader {
    pub id: String,
    pub stream: OutputStream,
    pub attempt: Option<u32>,
    pub follow: bool,
    position: Position,
    opened: Opened,
}

impl OutputReader {
    pub fn new(
        connection: Connection,
        id: &str,
        stream: OutputStream,
        attempt: Option<u32>,
        follow: bool,
    ) -> Self {
        let (position, opened) = (Position::default(), Opened::new(connection));
        Self { id: id.to_owned(), stream, attempt, follow, position, opened }
    }

    pub fn into_stream(self) -> BoxStream<'static, Result<Vec<u8>>> {
        try_unfold((self, true), |(mut reader, is_first)| async move {
            if is_first && reader.follow {
                reader.find_attempt().await?;
            }
            Ok(reader.next().await?.map(|piece| (piece, (reader, false))))
        })
        .boxed()
    }

    async fn next(&mut self) -> Result<Option<Vec<u8>>> {
        loop {
            let call = self.call()?;
            match self.piece(&call).await {
                Ok(Some(piece)) if piece.is_empty() => (),
                Ok(piece) => {
                    self.opened.tried = 0;
                    return Ok(piece);
                }
                // It broke off at its end.
                Err(error) if error.status() == Some(416) && self.position.offset > 0 => return Ok(None),
                Err(error) => self.opened.lost(error, &call).await?,
            }
        }
    }

    fn call(&self) -> Result<Call> {
        let call = self.opened.connection.get(&["tasks", &self.id, &self.stream.to_string()])?;
        let call = call.maybe(".follow", self.follow.then_some(1)).maybe(".attempt", self.attempt);
        let call = call.maybe(".from", self.follow.then_some(self.position.offset));
        let call = call.header(ACCEPT, "*/*");
        Ok(match self.position.offset {
            0 => call,
            offset => call.header(RANGE, format!("bytes={offset}-")),
        })
    }

    async fn piece(&mut self, call: &Call) -> Result<Option<Vec<u8>>> {
        if self.opened.incoming.is_none() {
            let response = &self.opened.open(call).await?.response;
            self.position.answered(response.status(), response.headers());
        }
        let Some(incoming) = &mut self.opened.incoming else { return Ok(None) };
        let Some(chunk) = incoming.chunk().await? else { return Ok(None) };
        if self.position.last.is_none() && self.follow {
            // One that was not there yet when it was asked for. What comes after a lost connection is to be of the same.
            self.find_attempt().await?;
        }
        Ok(Some(self.position.fresh(chunk)))
    }

    /// The number of the attempt that runs, or was the last; none as long as there is another one to come.
    async fn find_attempt(&mut self) -> Result<()> {
        if self.attempt.is_none() {
            let connection = &self.opened.connection;
            let call = connection.get(&["tasks", &self.id])?.query(".details", 1).query(".terse", 1);
            let task = Task::read(connection.ask(call).await?)?;
            let attempt = task["attempt"].as_u64().and_then(|attempt| u32::try_from(attempt).ok());
            self.attempt = attempt.filter(|_| task.status == 0 || task.ended);
        }
        Ok(())
    }
}

/// The events of a task, over lost connections.
pub struct EventReader {
    id: String,
    after: Option<String>,
    parser: EventParser,
    ready: VecDeque<Event>,
    opened: Opened,
    is_over: bool,
}

impl EventReader {
    pub fn new(connection: Connection, id: &str, after: Option<&str>) -> Self {
        let (parser, ready, opened) = (EventParser::default(), VecDeque::new(), Opened::new(connection));
        Self { id: id.to_owned(), after: after.map(str::to_owned), parser, ready, opened, is_over: false }
    }

    pub fn into_stream(self) -> BoxStream<'static, Result<Event>> {
        try_unfold(self, |mut reader| async move { Ok(reader.next().await?.map(|event| (event, reader))) })
            .boxed()
    }

    async fn next(&mut self) -> Result<Option<Event>> {
        while !self.is_over {
            if let Some(event) = self.ready.pop_front() {
                self.opened.tried = 0;
                self.after = event.id.clone().or(self.after.take());
                self.is_over = event.event == "end";
                return Ok(Some(event));
            }
            let mut call = self
                .opened
                .connection
                .get(&["tasks", &self.id, "events"])?
                .header(ACCEPT, "text/event-stream");
            if let Some(after) = &self.after {
                call = call.header(HeaderName::from_static("last-event-id"), after);
            }
            if let Err(error) = self.read(&call).await {
                self.opened.lost(error, &call).await?;
            }
        }
        Ok(None)
    }

    async fn read(&mut self, call: &Call) -> Result<()> {
        if self.opened.incoming.is_none() {
            self.opened.open(call).await?;
            self.parser = EventParser::default();
        }
        let Some(incoming) = &mut self.opened.incoming else { return Ok(()) };
        let broke_off = || Error::Unreachable { message: "the events broke off".to_owned(), sent: true };
        let chunk = incoming.chunk().await?.ok_or_else(broke_off)?;
        self.ready.extend(self.parser.feed(&chunk)?);
        Ok(())
    }
}

/// Server-Sent Events, of chunks that may end anywhere.
#[derive(Default)]
struct EventParser {
    rest: Vec<u8>,
    event: String,
    data: Vec<String>,
    id: Option<String>,
}

impl EventParser {
    fn feed(&mut self, chunk: &[u8]) -> Result<Vec<Event>> {
        self.rest.extend(chunk);
        let whole = self.rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        let lines: Vec<u8> = self.rest.drain(..whole).collect();
        let mut events = Vec::new();
        for line in String::from_utf8_lossy(&lines).lines() {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            let value = value.strip_prefix(' ').unwrap_or(value).to_owned();
            match name {
                "event" => self.event = value,
                "data" => self.data.push(value),
                "id" => self.id = Some(value),
                "" if line.is_empty() && !self.data.is_empty() => events.push(self.event()?),
                _ => (), // A comment, or what is of a later release.
            }
        }
        Ok(events)
    }

    fn event(&mut self) -> Result<Event> {
        let data = std::mem::take(&mut self.data).join("\n");
        let wrong = |error| Error::Protocol(format!("the data of an event is no JSON: {error}"));
        let data = serde_json::from_str(&data).map_err(wrong)?;
        Ok(Event { event: std::mem::take(&mut self.event), data, id: self.id.clone() })
    }
}

#[cfg(test)]
mod tests {
    use reqwest::header::HeaderValue;
    use serde_json::json;

    use super::*;

    #[test]
    fn events_may_be_cut_anywhere() {
        let text =
            "event: output\nid: 1\ndata: {\"text\":\"ü\"}\r\n\n: ping\n\nevent: end\ndata: {}\n\n".as_bytes();
        for size in 1..text.len() {
            let mut parser = EventParser::default();
            let events: Vec<_> = text.chunks(size).flat_map(|chunk| parser.feed(chunk).unwrap()).collect();
            let id = Some("1".to_owned());
            let output = Event { event: "output".into(), data: json!({"text": "ü"}), id: id.clone() };
            assert_eq!(events, [output, Event { event: "end".into(), data: json!({}), id }], "{size}");
        }
        let error = EventParser::default().feed(b"data: {\n\n").unwrap_err();
        assert!(error.to_string().starts_with("the data of an event is no JSON: "), "{error}");
    }

    #[test]
    fn a_position_skips_what_was_there() {
        let mut position = Position::default();
        let headers = |name: &'static str, value: &'static str| -> HeaderMap {
            HeaderMap::from_iter([(HeaderName::from_static(name), HeaderValue::from_static(value))])
        };
        position.answered(StatusCode::OK, &HeaderMap::new());
        assert_eq!(position.fresh(b"abc".to_vec()), b"abc");
        position.answered(StatusCode::PARTIAL_CONTENT, &headers("content-range", "bytes 2-9/10"));
        assert_eq!(position.fresh(b"c".to_vec()), b"");
        assert_eq!(position.fresh(b"de".to_vec()), b"de");
        position.answered(StatusCode::OK, &HeaderMap::new());
        assert_eq!(position.fresh(b"abcdef".to_vec()), b"f");
        assert_eq!(position.offset, 6);
        position.answered(StatusCode::OK, &headers("disbatch-from", "4"));
        assert_eq!(position.fresh(b"efgh".to_vec()), b"gh");
        position.answered(StatusCode::OK, &headers("disbatch-from", "11"));
        assert_eq!(position.fresh(b"l\n".to_vec()), b"\n[3 bytes not kept]\nl\n");
        position.answered(StatusCode::OK, &headers("disbatch-from", "15"));
        assert_eq!(position.fresh(b"p".to_vec()), b"[2 bytes not kept]\np");
        assert_eq!(position.offset, 16);
    }

    #[test]
    fn output_is_one_of_two() {
        assert_eq!("stderr".parse::<OutputStream>().unwrap(), OutputStream::Stderr);
        let error = "stdin".parse::<OutputStream>().unwrap_err();
        assert_eq!(error.to_string(), "a task has stdout and stderr, and no \"stdin\"");
    }
}
