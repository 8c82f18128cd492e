//! Wake-ups: a hint that there may be something to do, from a change stream where the server has them.
//!
//! A hint only shortens a wait. Nothing depends on it arriving, so losing the stream is logged and retried,
//! and a standalone server, which has none, is served by polling alone.

mod change;
mod hints;

use std::sync::Arc;
use std::time::Duration;

use bson::{Document, RawDocumentBuf, Timestamp, doc};
use mongodb::change_stream::ChangeStream;
use mongodb::change_stream::event::ResumeToken;
use serde::Deserialize;
use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use self::change::Change;
use self::hints::{Pace, Stream};
use crate::model::document::readable;
use crate::store::{Store, StoreError, between};

pub use hints::{Arrivals, Hints, Listener, News, Peak, Peaks};

/// After so long without any answer the connection is taken for dead.
const SILENCE: Duration = Duration::from_secs(20);

/// How long before a stream of the inbox is asked for again.
const RETRY_INBOX_AFTER: Duration = Duration::from_secs(30);

/// So many bytes of a new document of the inbox are told with it; larger ones are read.
const MOST_TOLD: i32 = 16 * 1024;

/// To open a stream anew costs as much as to be told of so many changes.
const MANY_CHANGES: u64 = 100;

/// How long before asking a server again that has no change streams: it may become a replica set.
const RETRY_STANDALONE_AFTER: Duration = Duration::from_secs(300);

/// The first pause before a lost stream is asked for again.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(16);

/// Tells `hints` what changes, until `stop`.
pub async fn follow_changes(store: Store, hints: Arc<Hints>, stop: CancellationToken) {
    let mut follower = Follower {
        store,
        hints,
        last: None,
        changed: None,
        pace: Pace::Waiting,
        pause: FIRST_PAUSE,
        complained: false,
    };
    loop {
        let lost = tokio::select! {
            () = stop.cancelled() => return,
            lost = follower.follow() => lost,
        };
        let pause = follower.lost(&lost);
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
    }
}

/// Whoever moves what is in the inbox is asked to do so.
#[derive(Debug)]
pub struct ToMove {
    /// The new document, if it came alone and is small: it need not be read.
    pub told: Option<Document>,
    /// Gets how many tasks were made.
    pub answer: oneshot::Sender<u64>,
}

/// A document of the inbox, as the change stream tells of it.
#[derive(Debug, Deserialize)]
struct NewInInbox {
    document: Option<RawDocumentBuf>,
}

/// Asks whoever moves what is in the inbox to do so, whenever there are new documents and change streams, until it is dropped. Others are
/// found by looks of nodes.
///
/// While they are moved, no changes are asked for; and the server is not asked for those of many that were moved: it would take as long
/// to tell them as to move them.
pub async fn follow_inbox(store: Store, hints: Arc<Hints>, mover: mpsc::Sender<ToMove>) {
    loop {
        let Err(lost) = follow_inserts(&store, &hints, &mover).await else { continue };
        tracing::debug!(error = %lost, "no changes of the inbox are told: polling");
        tokio::time::sleep(RETRY_INBOX_AFTER).await;
    }
}

/// Until a stream is lost, or another one costs less.
async fn follow_inserts(
    store: &Store,
    hints: &Hints,
    mover: &mpsc::Sender<ToMove>,
) -> Result<(), StoreError> {
    let moved = async |told: Option<Document>| {
        let (answer, moved) = oneshot::channel();
        let _gone = mover.send(ToMove { told, answer }).await;
        moved.await.unwrap_or(0)
    };
    let only_inserts = doc! { "$match": { "operationType": "insert" } };
    let is_small = doc! { "$lt": [{ "$bsonSize": "$fullDocument" }, MOST_TOLD] };
    let document = doc! { "$cond": [is_small, "$fullDocument", "$$REMOVE"] };
    let pipeline = [only_inserts, doc! { "$project": { "_id": 1, "document": document } }];
    let pace = hints.pace(Stream::Inbox);
    let stream = store.inbox().watch().pipeline(pipeline).max_await_time(pace.await_time()).await?;
    let mut stream = stream.with_type::<NewInInbox>();
    // What came before it is told of nothing.
    moved(None).await;
    // So many of those that are told now may have been moved with others.
    let mut moved_before = 0;
    loop {
        let answered = tokio::select! {
            answered = tokio::time::timeout(SILENCE, stream.next_if_any()) => answered,
            () = hints.another_pace(Stream::Inbox, pace) => return Ok(()),
        };
        match answered {
            Ok(Ok(Some(new))) => {
                let told = new.document.filter(|_| moved_before == 0).map(readable);
                let tasks = moved(told).await;
                if tasks > MANY_CHANGES {
                    return Ok(());
                }
                moved_before = (moved_before + tasks).saturating_sub(1);
            }
            Ok(Ok(None)) if stream.is_alive() => hints.rest(Stream::Inbox, pace).await,
            Ok(Ok(None)) => {
                return Err(broken(std::io::ErrorKind::UnexpectedEof, "the server closed the change stream"));
            }
            Ok(Err(error)) => return Err(error.into()),
            Err(_) => return Err(broken(std::io::ErrorKind::TimedOut, "the change stream is silent")),
        }
    }
}

struct Follower {
    store: Store,
    hints: Arc<Hints>,
    /// Where to go on.
    last: Option<ResumeToken>,
    /// When the change was, if that is the place of one.
    changed: Option<Timestamp>,
    /// How the stream was asked last.
    pace: Pace,
    /// Before the stream is asked for again when it is lost, on average.
    pause: Duration,
    /// That there is no stream has been said.
    complained: bool,
}

impl Follower {
    async fn follow(&mut self) -> StoreError {
        loop {
            let pace = self.hints.pace(Stream::Changes);
            let mut stream = match self.open(pace).await {
                Ok(stream) => stream,
                Err(error) => return error,
            };
            self.hints.listen(true);
            if std::mem::replace(&mut self.pace, pace) == Pace::Asking {
                // Of what came meanwhile nobody has told.
                self.hints.tell(News::all());
            }
            self.store.metrics().stream_up.set_whether(true);
            if let Err(error) = self.listen(&mut stream, pace).await {
                return error;
            }
        }
    }

    /// Listens to the changes until it is to be done at another pace.
    async fn listen(&mut self, stream: &mut ChangeStream<Change>, pace: Pace) -> Result<(), StoreError> {
        // Where it goes on is known as soon as the server has answered.
        while self.hints.pace(Stream::Changes) == pace || self.last.is_none() {
            let answered = tokio::select! {
                answered = tokio::time::timeout(SILENCE, stream.next_if_any()) => answered,
                () = self.hints.another_pace(Stream::Changes, pace), if self.last.is_some() => return Ok(()),
            };
            let silent = |_| broken(std::io::ErrorKind::TimedOut, "the change stream is silent");
            let change = answered.map_err(silent)??;
            self.pause = FIRST_PAUSE;
            if std::mem::take(&mut self.complained) {
                tracing::info!("following changes of the database again");
            }
            if let Some(change) = &change {
                self.tell(change);
            }
            let place = stream.resume_token();
            // An answer without changes may leave it where it was.
            if change.is_some() || place != self.last {
                self.changed = change.as_ref().and_then(|change| change.time);
            }
            self.last = place;
            if !stream.is_alive() {
                // Of no use any more: it ends for good when the database is dropped, say.
                self.last = None;
                return Err(broken(std::io::ErrorKind::UnexpectedEof, "the server closed the change stream"));
            }
            if change.is_none() {
                self.hints.rest(Stream::Changes, pace).await;
            }
        }
        Ok(())
    }

    fn tell(&self, change: &Change) {
        self.store.metrics().stream_hints.inc();
        if let Some(at) = change.at {
            self.store.metrics().stream_lag.observe_time(between(at, self.store.now()));
        }
        self.hints.arrived(change.arrival());
        self.hints.had_limit(change.peak());
        self.hints.tell(change.news(self.hints.node()));
    }

    /// Goes on where the stream was lost. Where the server does not know that place any more, what happened since
    /// is found by looking at everything once.
    async fn open(&mut self, pace: Pace) -> Result<ChangeStream<Change>, StoreError> {
        if let Some(last) = self.last.take() {
            // A stream that leaves a change out cannot go on behind it: it is told of what was in the same moment once more.
            let since = self.changed.filter(|_| pace.is_about_tasks() != self.pace.is_about_tasks());
            match self.watch(Some((last.clone(), since)), pace).await {
                Ok(stream) => {
                    self.last = Some(last);
                    return Ok(stream);
                }
                Err(error) if error.is_transient() => {
                    self.last = Some(last);
                    return Err(error);
                }
                Err(error) => {
                    tracing::info!(%error, "cannot go on where the change stream was lost: looking at everything")
                }
            }
        }
        let stream = self.watch(None, pace).await?;
        self.hints.tell_all();
        Ok(stream)
    }

    /// `after`: behind which change it begins, or since when.
    async fn watch(
        &self,
        after: Option<(ResumeToken, Option<Timestamp>)>,
        pace: Pace,
    ) -> Result<ChangeStream<Change>, StoreError> {
        let database = self.store.database();
        let stream = database.watch().pipeline(change::pipeline(pace)).max_await_time(pace.await_time());
        let stream = match after {
            Some((_, Some(since))) => stream.start_at_operation_time(since),
            Some((after, None)) => stream.resume_after(after),
            None => stream,
        };
        Ok(stream.await?.with_type())
    }

    /// Says so once, and tells how long to wait before the next try.
    fn lost(&mut self, error: &StoreError) -> Duration {
        self.hints.listen(false);
        self.store.metrics().stream_up.set_whether(false);
        let standalone = error.has_no_change_streams();
        if !std::mem::replace(&mut self.complained, true) {
            if standalone {
                tracing::info!("no change streams on this server: polling");
            } else {
                tracing::warn!(%error, "lost the change stream: polling until it is back");
            }
        }
        if standalone { RETRY_STANDALONE_AFTER } else { next_pause(&mut self.pause, crate::clock::chance()) }
    }
}

fn broken(kind: std::io::ErrorKind, what: &str) -> StoreError {
    StoreError::from(mongodb::error::Error::from(std::io::Error::new(kind, what)))
}

/// The next pause before a lost stream is asked for again, from half to one and a half of `average`, which is longer the next
/// time: so a thousand nodes do not come back in the same moment. `chance` is from 0 to 1.
fn next_pause(average: &mut Duration, chance: f64) -> Duration {
    let pause = average.mul_f64(0.5 + chance.clamp(0.0, 1.0));
    *average = (*average * 2).min(LONGEST_PAUSE);
    pause
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_spread_and_begin_anew() {
        let mut average = FIRST_PAUSE;
        let pauses: Vec<u128> = (0..8).map(|_| next_pause(&mut average, 0.5).as_millis()).collect();
        assert_eq!(pauses, [250, 500, 1_000, 2_000, 4_000, 8_000, 16_000, 16_000]);
        assert_eq!(next_pause(&mut average, 0.0), Duration::from_secs(8));
        assert_eq!(next_pause(&mut average, 1.0), Duration::from_secs(24));
        average = FIRST_PAUSE;
        assert_eq!(next_pause(&mut average, 0.0), Duration::from_millis(125));
    }
}
