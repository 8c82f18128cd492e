//! Output as it comes, until its attempt is over.

use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::web::{Bytes, Data};
use disbatch_core::live::LiveStream;
use disbatch_core::model::TaskId;
use disbatch_core::output::StreamName;
use futures::{Stream, stream};

use super::rendered;
use crate::error::HttpError;
use crate::state::State;
use crate::tail::{Source, Tail};
use crate::watch::Waiter;

/// A stream that somebody follows.
pub struct Follow {
    state: Data<State>,
    waiter: Waiter,
    task: TaskId,
    stream: StreamName,
    /// The attempt that was asked for.
    attempt: Option<i64>,
    /// Its output; none until an attempt runs.
    tail: Option<Tail>,
    last: Option<u8>,
    over: bool,
}

impl Follow {
    /// Follows the attempt that runs, or else the next one, if no `attempt` is asked for.
    pub fn new(
        state: Data<State>,
        waiter: Waiter,
        (task, stream): (TaskId, StreamName),
        attempt: Option<i64>,
    ) -> Self {
        Self { state, waiter, task, stream, attempt, tail: None, last: None, over: false }
    }

    /// The bytes. Errors break the connection, since the answer has begun.
    pub fn stream(self) -> impl Stream<Item = Result<Bytes, HttpError>> {
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
                let bytes = rendered(&tail.live().await?, &mut self.last);
                if !bytes.is_empty() {
                    return Ok(bytes);
                }
            }
            if !self.waiter.change(Duration::MAX).await {
                // Breaking off tells that there is more; the end would say that this is all.
                return Err(HttpError::new(StatusCode::SERVICE_UNAVAILABLE, "the server stops"));
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
        let tail = self.tail.get_or_insert_with(|| Tail::new(store.clone(), of, 0));
        if !seen.is_over(attempt) {
            return Ok(false);
        }
        tail.settle(Source::of_attempt(store, &seen, attempt, self.stream).await?).await?;
        Ok(true)
    }
}
