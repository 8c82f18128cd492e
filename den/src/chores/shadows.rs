//! Shadows next to the node: has tasks run a second time whose queues want that, see [`disbatch_core::shadow`]. Whoever holds the lease works.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bson::Timestamp;
use disbatch_core::metrics::labels;
use disbatch_core::notifications::{FollowError, Follower};
pub use disbatch_core::shadow::LEASE;
use disbatch_core::shadow::{Shadowed, place_before};
use disbatch_core::store::StoreError;
use tokio::time::sleep;

use super::{Clockwork, Leader, measured};

/// How often it is looked whether the node knows of a queue that wants shadows: that asks nobody.
const IDLE: Duration = Duration::from_secs(1);

/// How often the lease is prolonged or asked for, and queues are read anew.
const TURN: Duration = Duration::from_secs(5);

/// How long it waits when nothing has ended.
const PAUSE: Duration = Duration::from_millis(250);

/// Whoever begins looks so far back: a queue may want it for so long before anybody has seen that.
const BACK: Duration = Duration::from_secs(15);

/// What was seen longer ago is made up for no more: nobody wanted it meanwhile, or no DEN was there.
const STALE: Duration = Duration::from_secs(600);

/// So many ends are seen to at once.
const MOST: usize = 1_000;

struct Worker {
    leader: Leader,
    clockwork: Clockwork,
    turned: Option<Instant>,
    shadowed: Vec<Shadowed>,
    follower: Option<Follower>,
    /// Whether it was said that the server has no log of changes.
    is_blind: bool,
}

pub async fn run(leader: Leader, clockwork: Clockwork) {
    let stop = leader.stop.clone();
    let mut worker =
        Worker { leader, clockwork, turned: None, shadowed: vec![], follower: None, is_blind: false };
    let mut pause = Duration::ZERO;
    while stop.run_until_cancelled(sleep(pause)).await.is_some() {
        pause = match worker.round().await {
            Ok(pause) => pause,
            Err(error) => {
                worker.forget();
                if !error.is_forbidden() {
                    tracing::warn!(%error, "shadows of tasks cannot be made");
                }
                TURN
            }
        };
    }
    if !worker.shadowed.is_empty() {
        worker.leader.resign().await;
    }
}

impl Worker {
    fn forget(&mut self) {
        self.turned = None;
        self.shadowed.clear();
        self.follower = None;
    }

    /// Returns how long nothing is to be done.
    async fn round(&mut self) -> Result<Duration, StoreError> {
        if self.shadowed.is_empty() && !self.clockwork.shadows.load(Ordering::Relaxed) {
            return Ok(IDLE);
        }
        if self.turned.is_none_or(|turned| turned.elapsed() >= TURN) {
            self.turn().await?;
        }
        if self.shadowed.is_empty() {
            return Ok(TURN);
        }
        let store = self.leader.store.clone();
        measured(&store, labels::Worker::Shadows, self.work()).await
    }

    /// What the one who has the lease does.
    async fn work(&mut self) -> Result<Duration, StoreError> {
        match self.follow().await {
            Ok(pause) => Ok(pause),
            Err(FollowError::Lost) => {
                tracing::warn!(
                    "the database's log of changes does not reach back so far: some tasks have no shadow"
                );
                self.begin(None).await?;
                Ok(PAUSE)
            }
            Err(FollowError::Store(error)) if error.has_no_change_streams() => {
                if !std::mem::replace(&mut self.is_blind, true) {
                    tracing::warn!("this server is no member of a replica set: no task has a shadow");
                }
                Ok(TURN)
            }
            Err(FollowError::Store(error)) => Err(error),
        }
    }

    async fn turn(&mut self) -> Result<(), StoreError> {
        self.shadowed = self.leader.store.shadowed_queues().await?;
        if self.shadowed.is_empty() || !self.leader.leads().await? {
            self.forget();
        }
        // Where nothing has ended, the log need not be read again from there.
        if let Some(place) = self.follower.as_ref().and_then(Follower::position) {
            self.leader.store.store_shadow_place(&self.leader.instance, place.time).await?;
        }
        self.turned = Some(Instant::now());
        Ok(())
    }

    /// Follows the log from where somebody has seen it last, if that is not long ago.
    async fn begin(&mut self, seen: Option<Timestamp>) -> Result<(), StoreError> {
        let store = &self.leader.store;
        let now = store.server_time().await?;
        let seen = seen.filter(|seen| *seen > place_before(now, STALE));
        let since = seen.unwrap_or(place_before(now, BACK));
        store.store_shadow_place(&self.leader.instance, since).await?;
        self.follower = None;
        Ok(())
    }

    async fn follow(&mut self) -> Result<Duration, FollowError> {
        let store = self.leader.store.clone();
        let follower = match &mut self.follower {
            Some(follower) => follower,
            None => {
                let seen = store.shadow_place().await?;
                self.begin(seen).await?;
                let since = store.shadow_place().await?.unwrap_or(Timestamp { time: 0, increment: 0 });
                self.follower.insert(store.follow_ends(since).await?)
            }
        };
        let ends = follower.followed(MOST).await?;
        let Some(last) = ends.last() else { return Ok(PAUSE) };
        let made = store.make_shadows(&ends, &self.shadowed, &self.leader.instance).await?;
        if made > 0 {
            tracing::debug!(made, "made shadows of tasks");
        }
        if !store.store_shadow_place(&self.leader.instance, last.position.time).await? {
            self.forget();
            return Ok(PAUSE);
        }
        Ok(if ends.len() < MOST { PAUSE } else { Duration::ZERO })
    }
}
