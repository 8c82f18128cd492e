//! The events of many tasks: `GET /events`.

use std::collections::HashMap;
use std::time::Duration;

use actix_web::web::{Bytes, Data};
use bson::Bson;
use disbatch_core::accounts::Reach;
use disbatch_core::model::{TaskId, whole_number};
use disbatch_core::observe::{Feed, StatusChange};
use disbatch_core::tags::stored;
use disbatch_wire::events::TaskEvent;
use futures::{Stream, stream};
use tokio::sync::{Semaphore, SemaphorePermit, watch};
use tokio::time::{Instant, timeout};

use super::frame;
use crate::error::HttpError;
use crate::json::{self, Dates};
use crate::state::State;

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

/// Takes a place, if there is one.
pub fn place() -> Result<Place, HttpError> {
    PLACES.try_acquire().map_err(|_| {
        HttpError::unavailable(format!("{MOST} clients follow events already, which is the limit"))
    })
}

/// What one client follows.
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
            if self.last.is_none_or(|last| last.elapsed() >= super::HEARTBEAT) {
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
