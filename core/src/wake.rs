//! Wake-ups: a hint that there may be something to claim, from a change stream where the server has them.
//!
//! A hint only shortens a wait. Nothing depends on it arriving, so losing the stream is logged and retried,
//! and a standalone server, which has none, is served by polling alone.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bson::doc;
use futures::StreamExt;
use serde::Deserialize;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::store::{Store, StoreError};

/// How long to wait before asking again for a stream that was lost.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// How long before asking a server again that has no change streams: it may become a replica set.
const RETRY_STANDALONE_AFTER: Duration = Duration::from_secs(300);

/// 40573: "The $changeStream stage is only supported on replica sets".
const NOT_A_REPLICA_SET: i32 = 40_573;

/// What has been noticed and not been looked into yet.
#[derive(Debug, Default)]
pub struct Hints {
    something: Notify,
    attention: AtomicBool,
}

impl Hints {
    /// Resolves when there is something to look into.
    pub async fn noticed(&self) {
        self.something.notified().await;
    }

    /// Whether a task's end was asked for since this was last called.
    pub fn take_attention(&self) -> bool {
        self.attention.swap(false, Ordering::Relaxed)
    }

    fn notice(&self, hint: &Hint) {
        if hint.attention {
            self.attention.store(true, Ordering::Relaxed);
        }
        self.something.notify_one();
    }
}

/// A change, as far as it matters.
#[derive(Debug, Default, Deserialize)]
struct Hint {
    /// The end of a running task was asked for.
    #[serde(default)]
    attention: bool,
}

/// Fills `hints` whenever a task becomes queued, the end of one is asked for, or a queue changes, until `stop`.
pub async fn follow_changes(store: Store, hints: Arc<Hints>, stop: CancellationToken) {
    let mut had_stream = true;
    while !stop.is_cancelled() {
        let lost = tokio::select! {
            () = stop.cancelled() => return,
            result = follow(&store, &hints, &mut had_stream) => result,
        };
        let standalone = lost.write_failure().is_some_and(|failure| failure.code == NOT_A_REPLICA_SET);
        if standalone && had_stream {
            tracing::info!("no change streams on this server: polling every second");
        } else if had_stream {
            tracing::warn!(error = %lost, "lost the change stream: polling until it is back");
        }
        had_stream = false;
        let pause = if standalone { RETRY_STANDALONE_AFTER } else { RETRY_AFTER };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Follows one stream until it is lost.
async fn follow(store: &Store, hints: &Hints, had_stream: &mut bool) -> StoreError {
    let of_interest = doc! { "$match": { "$or": [
        { "ns.coll": "tasks", "operationType": "insert" },
        { "ns.coll": "tasks", "updateDescription.updatedFields.status": -2 },
        { "ns.coll": "tasks", "updateDescription.updatedFields.cancel": { "$exists": true } },
        { "ns.coll": "queues" },
    ] } };
    let is_cancel = doc! { "$ne": [{ "$type": "$updateDescription.updatedFields.cancel" }, "missing"] };
    let only_hints = doc! { "$project": { "_id": 1, "attention": is_cancel } };
    let stream = store
        .database()
        .watch()
        .pipeline([of_interest, only_hints])
        .await
        .map(mongodb::change_stream::ChangeStream::with_type::<Hint>);
    let mut stream = match stream {
        Ok(stream) => stream,
        Err(error) => return error.into(),
    };
    if !std::mem::replace(had_stream, true) {
        tracing::info!("following changes of the database");
    }
    // What happened before the stream was open is found by looking once.
    hints.notice(&Hint { attention: true });
    loop {
        match stream.next().await {
            Some(Ok(hint)) => hints.notice(&hint),
            Some(Err(error)) => return error.into(),
            None => {
                return StoreError::from(mongodb::error::Error::from(std::io::Error::new(
                    std::io::ErrorKind::UnexpectedEof,
                    "the server closed the change stream",
                )));
            }
        }
    }
}
