//! What happens to a task, as Server-Sent Events: `GET /tasks/:id/events`, and those of many tasks: `GET /events`.

mod frame;

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use actix_web::http::header::{CACHE_CONTROL, CONTENT_ENCODING};
use actix_web::web::{Bytes, Data};
use actix_web::{HttpResponse, HttpResponseBuilder};
use bson::{Bson, Document};
use disbatch_core::accounts::Reach;
use disbatch_core::live::LiveStream;
use disbatch_core::model::{Status, TaskId, whole_number};
use disbatch_core::observe::{Feed, Observed, StatusChange};
use disbatch_core::output::StreamName;
use disbatch_core::store::StoreError;
use disbatch_core::tags::stored;
use disbatch_wire::history::TaskEvent;
use futures::{Stream, stream};
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::{Instant, timeout};

use crate::error::HttpError;
use crate::json::{self, Dates};
use crate::output::{Part, Source, Tail};
use crate::state::State;
use crate::watch::Waiter;
use frame::Decoder;
pub use frame::Resume;

/// The beginning of an answer that goes on for as long as somebody listens.
pub fn response() -> HttpResponseBuilder {
    let mut response = HttpResponse::Ok();
    response
        .content_type("text/event-stream")
        .insert_header((CACHE_CONTROL, "no-cache"))
        // Neither this server nor a proxy is to wait for more before it sends what there is.
        .insert_header((CONTENT_ENCODING, "identity"))
        .insert_header(("X-Accel-Buffering", "no"));
    response
}

/// Something is sent at least so often, so that a connection that leads nowhere is noticed.
const HEARTBEAT: Duration = Duration::from_secs(15);

const STREAMS: [StreamName; 2] = [StreamName::Stdout, StreamName::Stderr];

pub struct Events {
    state: Data<State>,
    waiter: Waiter,
    task: TaskId,
    resume: Option<Resume>,
    /// What the client knows already.
    status: Option<(Status, i64, Option<Bson>)>,
    progress: Option<Document>,
    /// The attempt whose output is sent, and its output.
    current: Option<(i64, [Output; 2])>,
    /// The attempt whose output has been sent to its end.
    done: Option<i64>,
    phase: Phase,
    frames: VecDeque<String>,
    last: Instant,
}

struct Output {
    tail: Tail,
    decoder: Decoder,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    /// Look, tell, wait.
    Watching,
    /// The attempt is over: send the rest of its output.
    Finishing,
    Ended,
}

impl Events {
    /// The events of `task` from now on, with the output of the attempt that runs, or ran last, from its
    /// beginning or from where the client had it.
    pub fn new(state: Data<State>, waiter: Waiter, task: TaskId, resume: Option<Resume>) -> Self {
        Self {
            state,
            waiter,
            task,
            resume,
            status: None,
            progress: None,
            current: None,
            done: None,
            phase: Phase::Watching,
            frames: VecDeque::new(),
            last: Instant::now(),
        }
    }

    /// The events as they are sent. An error breaks the connection; the client comes back then.
    pub fn stream(self) -> impl Stream<Item = Result<Bytes, HttpError>> {
        stream::try_unfold(self, async |mut events| {
            Ok(events.next().await?.map(|frame| (Bytes::from(frame), events)))
        })
    }

    async fn next(&mut self) -> Result<Option<String>, StoreError> {
        loop {
            if let Some(frame) = self.frames.pop_front() {
                self.last = Instant::now();
                return Ok(Some(frame));
            }
            match self.phase {
                Phase::Ended => return Ok(None),
                Phase::Finishing => self.finish().await?,
                Phase::Watching => {
                    self.look().await?;
                    // Not after the rest of an attempt's output: what comes next is known already.
                    if self.frames.is_empty() && self.phase == Phase::Watching {
                        self.wait().await;
                    }
                }
            }
        }
    }

    /// Waits for something to tell, and says something when it takes long.
    async fn wait(&mut self) {
        let left = HEARTBEAT.saturating_sub(self.last.elapsed());
        if !self.waiter.change(left).await {
            self.phase = Phase::Ended;
        } else if self.last.elapsed() >= HEARTBEAT {
            self.frames.push_back(frame::HEARTBEAT.to_owned());
        }
    }

    async fn look(&mut self) -> Result<(), StoreError> {
        self.waiter.mark();
        let Some(seen) = self.state.store.observe_task(self.task).await? else {
            self.frames.push_back(frame::deleted());
            self.phase = Phase::Ended;
            return Ok(());
        };
        self.tell_status(&seen);
        self.choose_attempt(&seen);
        let Some((attempt, outputs)) = &mut self.current else {
            if seen.task.status.has_ended() {
                self.frames.push_back(frame::status("end", &seen));
                self.phase = Phase::Ended;
            }
            return Ok(());
        };
        let attempt = *attempt;
        if seen.is_over(attempt) {
            for output in outputs {
                let stream = output.tail.name();
                let source = Source::of_attempt(&self.state.store, &seen, attempt, stream).await?;
                output.tail.settle(source).await?;
            }
            self.phase = Phase::Finishing;
            return Ok(());
        }
        for index in 0..outputs.len() {
            if let Some((_, outputs)) = &mut self.current {
                let parts = outputs[index].tail.live().await?;
                self.tell_parts(index, parts);
            }
        }
        Ok(())
    }

    fn tell_status(&mut self, seen: &Observed) {
        let status = (seen.task.status, seen.attempt(), seen.task.mtime.clone());
        if self.status.as_ref() != Some(&status) {
            self.frames.push_back(frame::status("status", seen));
            self.status = Some(status);
        }
        let progress = seen.progress();
        if progress.is_some() && progress != self.progress.as_ref() {
            self.frames.extend(progress.map(frame::progress));
        }
        self.progress = progress.cloned();
    }

    /// Chooses whose output to send next, if none is being sent: that of the attempt in which the client was
    /// interrupted, of the one that runs, or of the last one.
    fn choose_attempt(&mut self, seen: &Observed) {
        if self.current.is_some() {
            return;
        }
        let latest = seen.attempt();
        let attempt = match self.resume.and_then(|resume| resume.attempt) {
            Some(attempt) if attempt <= latest => attempt,
            _ if seen.is_running() || seen.task.status.has_ended() => latest,
            _ => return,
        };
        let resume = self.resume.take().filter(|resume| resume.attempt.is_none_or(|n| n == attempt));
        if self.done == Some(attempt) {
            return;
        }
        let from = resume.unwrap_or_default();
        let output = |stream, offset| Output {
            tail: Tail::new(
                self.state.store.clone(),
                LiveStream { task: self.task, attempt, stream },
                offset,
            ),
            decoder: Decoder::at(offset),
        };
        self.current = Some((attempt, [output(STREAMS[0], from.stdout), output(STREAMS[1], from.stderr)]));
    }

    /// Sends the next part of the rest of an attempt's output.
    async fn finish(&mut self) -> Result<(), StoreError> {
        for index in 0..STREAMS.len() {
            let Some((_, outputs)) = &mut self.current else { break };
            let part = match outputs[index].tail.rest().await {
                Ok(part) => part,
                Err(error @ StoreError::DamagedOutput { .. }) => {
                    tracing::warn!(%error, "output is sent in part");
                    None
                }
                Err(error) => return Err(error),
            };
            if let Some(part) = part {
                self.tell_parts(index, vec![part]);
                return Ok(());
            }
        }
        self.tell_torn();
        self.done = self.current.take().map(|(attempt, _)| attempt);
        self.phase = Phase::Watching;
        Ok(())
    }

    fn tell_parts(&mut self, index: usize, parts: Vec<Part>) {
        let Some((attempt, outputs)) = &mut self.current else { return };
        for part in parts {
            let texts = outputs[index].decoder.decode(part);
            let positions = [outputs[0].decoder.position(), outputs[1].decoder.position()];
            let stream = STREAMS[index];
            self.frames.extend(texts.iter().map(|text| frame::output(*attempt, stream, text, positions)));
        }
    }

    /// What is left of characters that never became whole.
    fn tell_torn(&mut self) {
        let Some((attempt, outputs)) = &mut self.current else { return };
        for index in 0..STREAMS.len() {
            if let Some(text) = outputs[index].decoder.finish() {
                let positions = [outputs[0].decoder.position(), outputs[1].decoder.position()];
                self.frames.push_back(frame::output(*attempt, STREAMS[index], &text, positions));
            }
        }
    }
}

/// How long to wait for more once everything has been sent.
const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A connection is closed after so long. The client comes back for what it has not got, if it may still log in.
const LONGEST: Duration = Duration::from_secs(3600);

/// Names of queues count for so long.
const NAMES: Duration = Duration::from_secs(60);

/// So many follow at once. Each has the database read every task that changes.
const MOST: usize = 32;

static PLACES: Semaphore = Semaphore::const_new(MOST);

/// A place among those who follow.
pub type Place = SemaphorePermit<'static>;

pub fn place() -> Result<Place, HttpError> {
    PLACES.try_acquire().map_err(|_| {
        HttpError::unavailable(format!("{MOST} clients follow events already, which is the limit"))
    })
}

pub struct Followed {
    state: Data<State>,
    feed: Feed,
    /// Whose names the client may know.
    reach: Reach,
    names: HashMap<String, Option<String>>,
    named: Instant,
    closing: watch::Receiver<bool>,
    begun: Instant,
    last: Option<Instant>,
    _place: Place,
}

impl Followed {
    pub fn new(state: Data<State>, feed: Feed, reach: Reach, place: Place) -> Self {
        let closing = state.watch.closing();
        let now = Instant::now();
        Self {
            state,
            feed,
            reach,
            names: HashMap::new(),
            named: now,
            closing,
            begun: now,
            last: None,
            _place: place,
        }
    }

    /// The events as they are sent. An error breaks the connection; the client comes back then.
    pub fn stream(self) -> impl Stream<Item = Result<Bytes, HttpError>> {
        stream::try_unfold(self, async |mut followed| {
            Ok(followed.next().await?.map(|frame| (Bytes::from(frame), followed)))
        })
    }

    async fn next(&mut self) -> Result<Option<String>, HttpError> {
        loop {
            if *self.closing.borrow() || self.begun.elapsed() > LONGEST {
                return Ok(None);
            }
            let change = self.feed.next_change().await?;
            let position = self.feed.position().and_then(|position| position.text());
            if let Some(change) = change {
                self.last = Some(Instant::now());
                let event = self.event(change).await?;
                return match frame::change(position.as_deref(), &event) {
                    Ok(frame) => Ok(Some(frame)),
                    Err(error) => Err(HttpError::internal(&error.to_string())),
                };
            }
            // At once, so that the client has something to come back with.
            if self.last.is_none_or(|last| last.elapsed() >= HEARTBEAT) {
                self.last = Some(Instant::now());
                return Ok(Some(frame::position(position.as_deref())));
            }
            // Either way there is something to look at.
            drop(timeout(LOOK_EVERY, self.closing.changed()).await);
        }
    }

    async fn event(&mut self, change: StatusChange) -> Result<TaskEvent, HttpError> {
        let StatusChange { task: TaskId(id), status, queue, node, attempt, mtime, .. } = change;
        let StatusChange { schedule, group, tenant, tags, .. } = change;
        let text = |value: Option<Bson>| match json::from_bson(&value?, Dates::Text) {
            serde_json::Value::Null => None,
            serde_json::Value::String(text) => Some(text),
            other => Some(other.to_string()),
        };
        let id_of = |value: Option<Bson>| value?.as_object_id().map(|id| id.to_hex());
        let queue = id_of(queue);
        Ok(TaskEvent {
            id: id.to_hex(),
            queue_name: match &queue {
                Some(queue) => self.name(queue).await?,
                None => None,
            },
            queue,
            status: status.code(),
            word: status.word().to_owned(),
            attempt: attempt.as_ref().and_then(whole_number).unwrap_or(0),
            ended: status.has_ended(),
            node: text(node),
            schedule: id_of(schedule),
            group: text(group),
            tenant: text(tenant),
            tags: stored(tags.as_ref()),
            mtime: text(mtime),
        })
    }

    /// What a queue is called. Queues are read again for one that was not there, and when they may have got other names.
    async fn name(&mut self, queue: &str) -> Result<Option<String>, HttpError> {
        if !self.names.contains_key(queue) || self.named.elapsed() > NAMES {
            let queues = self.state.store.queues_within(&self.reach).await?;
            self.names =
                queues.iter().map(|queue| (queue.id.to_string(), Some(queue.display_name()))).collect();
            self.named = Instant::now();
        }
        Ok(self.names.entry(queue.to_owned()).or_default().clone())
    }
}
