//! The inbox next to the node: makes tasks of what applications have put there, see [`disbatch_core::inbox`].
//!
//! Whoever holds the lease follows the changes of the inbox. The others move something when a look of their node finds what should have
//! been moved: when the one with the lease is gone, or cannot keep up. What was left, because this release does not understand it
//! or because of what it comes after, every DEN looks at now and then: the next one may be a newer one. Nothing depends on the lease but how
//! soon something is noticed.

use std::sync::Arc;
use std::time::Duration;

use bson::Document;
use disbatch_core::inbox::Moved;
use disbatch_core::lease::LeaseName;
use disbatch_core::metrics::labels::Worker;
use disbatch_core::store::StoreError;
use disbatch_core::wake::{self, Hints, ToMove};
use tokio::sync::mpsc;
use tokio_util::task::AbortOnDropHandle;

use super::{Clockwork, Leader, measured, rounds};

pub const LEASE: LeaseName = LeaseName::new("inbox", Duration::from_secs(90));

/// How often the lease is taken or prolonged, and what was left is looked at.
const PROLONGED: Duration = Duration::from_secs(30);

/// How long it waits when the database is away.
const PAUSE: Duration = Duration::from_secs(1);

pub async fn run(leader: Leader, hints: Arc<Hints>, clockwork: Clockwork) {
    leader.stop.run_until_cancelled(work(&leader, &hints, &clockwork)).await;
    leader.resign().await;
}

async fn work(leader: &Leader, hints: &Arc<Hints>, clockwork: &Clockwork) {
    let mut turns = rounds(PROLONGED);
    let mut may_move = false;
    // Held as long as the lease is.
    let mut follower: Option<AbortOnDropHandle<()>> = None;
    let (mover, mut asked) = mpsc::channel::<ToMove>(1);
    loop {
        let (is_turn, asked) = tokio::select! {
            _ = turns.tick() => (true, None),
            () = hints.inbox.notified() => (false, None),
            asked = asked.recv() => (false, asked),
        };
        let (told, answer) = asked.map(|ToMove { told, answer }| (told, answer)).unzip();
        let worked = async {
            if is_turn && !may_move {
                may_move = leader.store.may_move_inbox().await?;
                if !may_move {
                    tracing::warn!(
                        "the inbox is not looked after from here; `disbatch create-users` gives the right to"
                    );
                }
            }
            if !may_move {
                return Ok(0);
            }
            if is_turn {
                let leads = leader.leads().await?;
                let follow = || {
                    tokio::spawn(wake::follow_inbox(leader.store.clone(), Arc::clone(hints), mover.clone()))
                };
                follower = leads.then(|| follower.take().unwrap_or_else(|| AbortOnDropHandle::new(follow())));
            }
            move_all((leader, follower.is_some()), clockwork, is_turn, told.flatten()).await
        };
        let error = match worked.await {
            Ok(moved) => {
                answer.map(|answer| answer.send(moved));
                continue;
            }
            Err(error) => error,
        };
        tracing::warn!(%error, "the inbox could not be looked after");
        tokio::time::sleep(PAUSE).await;
        hints.inbox.notify_one();
    }
}

/// Returns how many tasks were made.
async fn move_all(
    (leader, leads): (&Leader, bool),
    clockwork: &Clockwork,
    is_turn: bool,
    told: Option<Document>,
) -> Result<u64, StoreError> {
    let (store, schemas) = (&leader.store, clockwork.schemas().await);
    let mut moved = Moved::default();
    if leads || !is_turn {
        moved = measured(store, Worker::Inbox, store.move_inbox(&schemas, told)).await?;
    }
    if is_turn {
        // All do that, and it says nothing of the one who has the lease.
        let left = match leads {
            true => measured(store, Worker::Inbox, store.move_left(&schemas)).await?,
            false => store.move_left(&schemas).await?,
        };
        moved = Moved { tasks: moved.tasks + left.tasks, refused: moved.refused + left.refused };
    }
    if moved != Moved::default() {
        tracing::debug!(tasks = moved.tasks, refused = moved.refused, "looked after the inbox");
    }
    Ok(moved.tasks)
}
