//! Output as it is, byte for byte: `GET /tasks/:id/stdout` and `/stderr`.

use std::ops::Range;
use std::time::Duration;

use actix_web::http::header::{
    ACCEPT_RANGES, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_RANGE, HeaderName, IF_RANGE, RANGE,
};
use actix_web::http::{Method, StatusCode};
use actix_web::web::{Bytes, Data};
use actix_web::{HttpRequest, HttpResponse, HttpResponseBuilder};
use disbatch_core::live::{LiveStream, gap_line};
use disbatch_core::model::TaskId;
use disbatch_core::observe::Observed;
use disbatch_core::output::{Encoding, StreamName};
use disbatch_wire::search::OutputOptions;
use futures::{Stream, TryStreamExt, stream};

use crate::api::{Answer, task_actions};
use crate::error::HttpError;
use crate::output::{Part, Source, Tail};
use crate::params::Params;
use crate::state::State;
use crate::watch::Waiter;

const TEXT: &str = "text/plain; charset=utf-8";
const BINARY: &str = "application/octet-stream";

/// Bytes are handed on in pieces of at most so many, which the server copies.
pub const PIECE: usize = 32 * 1024;

/// The byte that a followed answer begins with.
const BEGIN: HeaderName = HeaderName::from_static("disbatch-from");

/// What is longer is sent as it is, whatever the client takes.
const COMPRESSED: u64 = 1024 * 1024;

pub async fn respond(
    request: &HttpRequest,
    state: Data<State>,
    id: &str,
    params: &Params,
    stream: StreamName,
) -> Answer {
    let task = task_actions::task_id(id)?;
    let OutputOptions { follow, attempt, from } = params.options()?;
    for (name, value) in [("attempt", attempt), ("from", from)] {
        if value.is_some_and(|value| value < 0) {
            return Err(HttpError::bad_request(format!("'.{name}' must not be negative")));
        }
    }
    let from = from.and_then(|from| u64::try_from(from).ok());
    // From the first byte on is all of it, also where there is none.
    let asked = asked(request, None).or(from.filter(|from| *from > 0).map(|from| Asked::From(from, None)));
    let follows = follow && request.method() == Method::GET;
    // Interest is registered before the first look, so that no change is missed.
    let waiter = follows.then(|| state.watch.wait_for(task, &state.store));
    let seen = state.store.observe_task(task).await?.ok_or_else(|| task_actions::not_found(id))?;
    if let Some(waiter) = waiter
        && goes_on(&seen, attempt)
    {
        let mut answer = builder(StatusCode::OK, TEXT);
        answer.insert_header((CONTENT_ENCODING, "identity"));
        let begin = match from {
            Some(from) if attempt.is_some() || seen.is_running() => {
                let of = LiveStream { task, attempt: attempt.unwrap_or(seen.attempt()), stream };
                let kept = Asked::From(from, None).within(&state.store.live_extent(of).await?);
                Some(kept.map_or(from, |kept| kept.start))
            }
            from => from, // There is nothing of it yet.
        };
        answer.insert_header((BEGIN, begin.unwrap_or(0)));
        let (tail, last, over) = (None, None, false);
        let follow = Follow { state, waiter, task, stream, attempt, begin, tail, last, over };
        return Ok(answer.streaming(follow.stream()));
    }
    let is_latest = attempt.is_none_or(|attempt| attempt == seen.attempt());
    if seen.is_running() && is_latest {
        return live(asked, &state, LiveStream { task, attempt: seen.attempt(), stream }).await;
    }
    let source = match attempt {
        None => Source::of_task(&state.store, task, stream).await?,
        Some(attempt) => Source::of_attempt(&state.store, &seen, attempt, stream)
            .await?
            .ok_or_else(|| HttpError::not_found(format!("task {id} has no attempt {attempt}")))?,
    };
    stored(asked, &state, source).await
}

/// Whether there may be more output later.
fn goes_on(seen: &Observed, attempt: Option<i64>) -> bool {
    match attempt {
        Some(attempt) => !seen.is_over(attempt),
        None => !seen.task.status.has_ended(),
    }
}

fn builder(status: StatusCode, content_type: &str) -> HttpResponseBuilder {
    let mut response = HttpResponse::build(status);
    response.content_type(content_type);
    response.insert_header((ACCEPT_RANGES, "bytes")).insert_header((CACHE_CONTROL, "no-cache"));
    response
}

async fn stored(asked: Option<Asked>, state: &State, source: Source) -> Answer {
    let (length, content_type) = match &source {
        Source::Text(text) => (Some(text.len() as u64), TEXT),
        Source::File(_, Some(file)) if file.encoding == Encoding::Binary => (Some(file.length), BINARY),
        Source::File(_, file) => (file.map(|file| file.length), TEXT),
    };
    let whole: Vec<Range<u64>> = length.into_iter().map(|length| 0..length).collect();
    let asked = asked.filter(|_| length.is_some());
    let total = length.unwrap_or_default();
    match asked.map(|asked| asked.within(&whole)) {
        None => {
            let bytes = match source {
                // Long text waits in memory until it has been read, and counts as that.
                Source::Text(text) => return Ok(builder(StatusCode::OK, content_type).body(text)),
                file @ Source::File(..) => file.read(&state.store, 0).await?,
            };
            let body = pieces(bytes.map_ok(Bytes::from)).map_err(HttpError::from);
            let mut answer = builder(StatusCode::OK, content_type);
            if total > COMPRESSED {
                answer.insert_header((CONTENT_ENCODING, "identity"));
            }
            Ok(answer.streaming(body))
        }
        Some(None) => Ok(unsatisfiable(total, "output")),
        Some(Some(found)) => {
            let bytes = source.read(&state.store, found.start).await?.map_err(HttpError::from);
            Ok(partial(&found, &total.to_string(), content_type, bytes))
        }
    }
}

/// The same in pieces of at most [`PIECE`], without copying them.
pub fn pieces<E: 'static>(
    chunks: impl Stream<Item = Result<Bytes, E>> + 'static,
) -> impl Stream<Item = Result<Bytes, E>> {
    stream::try_unfold((Box::pin(chunks), Bytes::new()), async |(mut chunks, mut rest)| {
        while rest.is_empty() {
            match chunks.try_next().await? {
                Some(chunk) => rest = chunk,
                None => return Ok(None),
            }
        }
        let piece = rest.split_to(rest.len().min(PIECE));
        Ok(Some((piece, (chunks, rest))))
    })
}

async fn live(asked: Option<Asked>, state: &State, of: LiveStream) -> Answer {
    let extent = state.store.live_extent(of).await?;
    let end = extent.last().map_or(0, |last| last.end);
    match asked.map(|asked| asked.within(&extent)) {
        None => {
            let tail = Tail::new(state.store.clone(), of, 0);
            Ok(builder(StatusCode::OK, TEXT).streaming(until(tail, end)))
        }
        Some(None) => Ok(unsatisfiable(end, "output")),
        Some(Some(found)) => {
            let tail = Tail::new(state.store.clone(), of, found.start);
            let bytes = until(tail, found.end).map_ok(|bytes| bytes.to_vec());
            // How long it will be in the end nobody knows.
            Ok(partial(&found, "*", TEXT, bytes))
        }
    }
}

/// The range that is asked for, unless it is one of another content. Without a tag `If-Range` has nothing to be compared with, so that it
/// always asks for all.
pub fn asked(request: &HttpRequest, tag: Option<&str>) -> Option<Asked> {
    let headers = request.headers();
    if headers.get(IF_RANGE).is_some_and(|condition| Some(condition.as_bytes()) != tag.map(str::as_bytes)) {
        return None;
    }
    Asked::parse(headers.get(RANGE)?.to_str().ok()?)
}

/// There is nothing of the range in the output, or file, that has so many bytes.
pub fn unsatisfiable(length: u64, of: &str) -> HttpResponse {
    let range = (CONTENT_RANGE, format!("bytes */{length}"));
    let message = format!("there is no such range of the {of}");
    let error = HttpError::new(StatusCode::RANGE_NOT_SATISFIABLE, message);
    error.response().insert_header(range).content_type(crate::json::CONTENT_TYPE).body(error.json())
}

fn partial(
    found: &Range<u64>,
    total: &str,
    content_type: &str,
    bytes: impl Stream<Item = Result<Vec<u8>, HttpError>> + 'static,
) -> HttpResponse {
    let range = format!("bytes {}-{}/{total}", found.start, found.end - 1);
    builder(StatusCode::PARTIAL_CONTENT, content_type)
        .insert_header((CONTENT_RANGE, range))
        // The range is one of the bytes as they are, not of compressed ones.
        .insert_header((CONTENT_ENCODING, "identity"))
        .streaming(limited(bytes, found.end - found.start))
}

/// The first `length` bytes; an error if there are fewer, as they were announced.
pub fn limited(
    bytes: impl Stream<Item = Result<Vec<u8>, HttpError>> + 'static,
    length: u64,
) -> impl Stream<Item = Result<Bytes, HttpError>> {
    stream::try_unfold((Box::pin(bytes), length), async |(mut bytes, left)| {
        if left == 0 {
            return Ok(None);
        }
        let Some(mut piece) = bytes.try_next().await? else {
            return Err(HttpError::not_found("the output is shorter than it was"));
        };
        piece.truncate(usize::try_from(left).unwrap_or(usize::MAX));
        let left = left - piece.len() as u64;
        Ok(Some((Bytes::from(piece), (bytes, left))))
    })
}

/// The live output from the tail's position up to `end`, with lines where some is missing.
fn until(tail: Tail, end: u64) -> impl Stream<Item = Result<Bytes, HttpError>> {
    stream::try_unfold((tail, end, None), async |(mut tail, end, mut last)| {
        if tail.position() >= end {
            return Ok(None);
        }
        let bytes = rendered(&tail.live().await?, &mut last);
        Ok((!bytes.is_empty()).then_some((bytes, (tail, end, last))))
    })
}

/// Parts one after the other; `last` is the last byte so far.
fn rendered(parts: &[Part], last: &mut Option<u8>) -> Bytes {
    let mut all = Vec::new();
    for part in parts {
        match part {
            Part::Bytes(bytes) => all.extend_from_slice(bytes),
            Part::Gap(missing) => all.extend(gap_line(*missing, all.last().copied().or(*last)).into_bytes()),
        }
    }
    *last = all.last().copied().or(*last);
    Bytes::from(all)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// From a byte to a byte, or to the end.
    From(u64, Option<u64>),
    /// The last so many bytes.
    Last(u64),
}

impl Asked {
    /// Reads the header. `None`: it asks for something else, or makes no sense, and is to be ignored.
    pub fn parse(header: &str) -> Option<Self> {
        let (unit, ranges) = header.split_once('=')?;
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (first, last) = ranges.trim().split_once('-')?;
        match (number(first), number(last)) {
            (Some(first), Some(last)) => (first <= last).then_some(Self::From(first, Some(last))),
            (Some(first), None) if last.is_empty() => Some(Self::From(first, None)),
            (None, Some(last)) if first.is_empty() => Some(Self::Last(last)),
            _ => None, // Several ranges, or no numbers.
        }
    }

    /// The first stretch of what there is that is asked for. `None`: there is nothing of it.
    pub fn within(self, extent: &[Range<u64>]) -> Option<Range<u64>> {
        let end = extent.last().map_or(0, |last| last.end);
        let wanted = match self {
            Self::From(first, Some(last)) => first..last.saturating_add(1),
            Self::From(first, None) => first..u64::MAX,
            Self::Last(length) => end.saturating_sub(length)..end,
        };
        let common = |there: &Range<u64>| there.start.max(wanted.start)..there.end.min(wanted.end);
        extent.iter().map(common).find(|common| !common.is_empty())
    }
}

/// Digits only; too many of them are beyond any end.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

/// A stream that somebody follows, as it comes, until its attempt is over.
struct Follow {
    state: Data<State>,
    waiter: Waiter,
    task: TaskId,
    stream: StreamName,
    /// The attempt that was asked for; else the one that runs, or the next one.
    attempt: Option<i64>,
    /// The byte to begin with, for who counts bytes: they get no lines in place of what is missing.
    begin: Option<u64>,
    /// Its output; none until an attempt runs.
    tail: Option<Tail>,
    last: Option<u8>,
    over: bool,
}

impl Follow {
    /// The bytes. Errors break the connection, since the answer has begun.
    fn stream(self) -> impl Stream<Item = Result<Bytes, HttpError>> {
        stream::try_unfold(self, async |mut follow| {
            let bytes = follow.next().await?;
            Ok((!bytes.is_empty()).then_some((bytes, follow)))
        })
    }

    /// The next bytes; none at the end.
    async fn next(&mut self) -> Result<Bytes, HttpError> {
        loop {
            if self.over {
                return self.rest().await;
            }
            self.waiter.mark();
            if self.look().await? {
                self.over = true;
                continue;
            }
            if let Some(tail) = &mut self.tail {
                let bytes = if self.begin.is_some() {
                    let bytes = tail.live_until_gap().await?;
                    Bytes::from(
                        bytes.ok_or_else(|| HttpError::unavailable("some output is not kept any more"))?,
                    )
                } else {
                    rendered(&tail.live().await?, &mut self.last)
                };
                if !bytes.is_empty() {
                    return Ok(bytes);
                }
            }
            if !self.waiter.change(Duration::MAX).await {
                // Breaking off tells that there is more; the end would say that this is all.
                return Err(HttpError::unavailable("the server stops"));
            }
        }
    }

    async fn rest(&mut self) -> Result<Bytes, HttpError> {
        let Some(tail) = &mut self.tail else { return Ok(Bytes::new()) };
        let part = tail.rest().await?;
        Ok(rendered(part.as_slice(), &mut self.last))
    }

    /// Looks at the task, and returns whether there will be no more live output.
    async fn look(&mut self) -> Result<bool, HttpError> {
        let store = &self.state.store;
        // A task that was deleted has no more output.
        let Some(seen) = store.observe_task(self.task).await? else { return Ok(true) };
        let ended = seen.task.status.has_ended();
        if self.attempt.is_none() && (seen.is_running() || ended) {
            self.attempt = Some(seen.attempt());
        }
        let Some(attempt) = self.attempt else { return Ok(false) };
        let of = LiveStream { task: self.task, attempt, stream: self.stream };
        let tail = self.tail.get_or_insert_with(|| Tail::new(store.clone(), of, self.begin.unwrap_or(0)));
        if !seen.is_over(attempt) {
            return Ok(false);
        }
        tail.settle(Source::of_attempt(store, &seen, attempt, self.stream).await?).await?;
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_lines() {
        let bytes = |bytes: &[u8]| Part::Bytes(bytes.to_vec());
        let mut last = None;
        assert_eq!(rendered(&[Part::Gap(7), bytes(b"ab")], &mut last), "[7 bytes not kept]\nab");
        assert_eq!(rendered(&[], &mut last), "");
        let more = [Part::Gap(1), bytes(b"\n"), Part::Gap(2)];
        assert_eq!(rendered(&more, &mut last), "\n[1 bytes not kept]\n\n[2 bytes not kept]\n");
        assert_eq!(last, Some(b'\n'));
    }

    #[actix_web::test]
    async fn chunks_are_sent_in_pieces() {
        let chunks =
            [vec![1; PIECE + 1], vec![], vec![2; 2 * PIECE], vec![3]].map(|c| Ok::<_, ()>(Bytes::from(c)));
        let sent: Vec<Bytes> = pieces(stream::iter(chunks.clone())).try_collect().await.unwrap();
        assert_eq!(sent.iter().map(Bytes::len).collect::<Vec<_>>(), [PIECE, 1, PIECE, PIECE, 1]);
        assert_eq!(sent.concat(), chunks.map(Result::unwrap).concat());
    }

    #[actix_web::test]
    async fn what_was_announced_is_sent_or_the_connection_breaks() {
        let pieces = || stream::iter([Ok(b"abc".to_vec()), Ok(b"def".to_vec())]);
        let sent: Vec<Bytes> = limited(pieces(), 5).try_collect().await.unwrap();
        assert_eq!(sent.concat(), b"abcde");
        assert!(limited(pieces(), 7).try_collect::<Vec<_>>().await.is_err());
    }

    #[test]
    fn one_range_of_bytes_is_understood() {
        assert_eq!(Asked::parse("bytes=0-99"), Some(Asked::From(0, Some(99))));
        assert_eq!(Asked::parse("Bytes=7-"), Some(Asked::From(7, None)));
        assert_eq!(Asked::parse("bytes=-5"), Some(Asked::Last(5)));
        let endless = "99999999999999999999999";
        assert_eq!(Asked::parse(&format!("bytes=1-{endless}")), Some(Asked::From(1, Some(u64::MAX))));
        for ignored in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "lines=1-2",
            "bytes=5-2",
            "bytes=0-1,3-4",
            "bytes=a-b",
            "bytes=+1-2",
        ] {
            assert_eq!(Asked::parse(ignored), None, "{ignored}");
        }
    }

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "an extent of one range")]
    fn ranges_are_what_there_is_of_them() {
        let whole = [0..10];
        assert_eq!(Asked::From(2, Some(4)).within(&whole), Some(2..5));
        assert_eq!(Asked::From(2, Some(99)).within(&whole), Some(2..10));
        assert_eq!(Asked::From(9, None).within(&whole), Some(9..10));
        assert_eq!(Asked::From(10, None).within(&whole), None);
        assert_eq!(Asked::Last(3).within(&whole), Some(7..10));
        assert_eq!(Asked::Last(99).within(&whole), Some(0..10));
        assert_eq!(Asked::Last(0).within(&whole), None);
        assert_eq!(Asked::From(0, Some(u64::MAX)).within(&whole), Some(0..10));
        assert_eq!(Asked::From(0, None).within(&[]), None);
        let parts = [5..8, 12..20];
        assert_eq!(Asked::From(0, Some(99)).within(&parts), Some(5..8), "one stretch, without the gap");
        assert_eq!(Asked::From(9, Some(13)).within(&parts), Some(12..14));
        assert_eq!(Asked::Last(3).within(&parts), Some(17..20));
    }
}
