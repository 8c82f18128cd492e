//! Tells requests that wait for a task when to look at it again.
//!
//! While somebody waits, one change stream for the whole process says which tasks change. Without it (on a
//! standalone server, without the privilege, or while it is lost) those who wait look twice a second.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use disbatch_core::model::TaskId;
use disbatch_core::store::{Store, StoreError};
use futures::{Stream, StreamExt};
use tokio::sync::watch::{Receiver, Sender, channel};
use tokio::time::{Instant, interval, timeout};

/// How often to look while nobody tells.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// How often to look in any case: what the change stream tells is a hint.
const LOOK_ANYWAY: Duration = Duration::from_secs(10);

/// How often the follower sees whether anybody still waits. It ends when nobody did twice in a row.
const REVIEW: Duration = Duration::from_secs(2);

/// How long to wait before asking again for a stream that was lost.
const RETRY_AFTER: Duration = Duration::from_secs(5);

/// How long before asking a server again that has no change streams: it may become a replica set.
const RETRY_STANDALONE_AFTER: Duration = Duration::from_secs(300);

#[derive(Debug)]
pub struct Watch {
    waiting: Mutex<Waiting>,
    closing: Sender<bool>,
}

#[derive(Debug, Default)]
struct Waiting {
    /// By task. Each waiter has one receiver.
    tasks: HashMap<TaskId, Sender<()>>,
    follower: Follower,
}

/// What the one follower does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Follower {
    #[default]
    Absent,
    /// It has no change stream.
    Blind,
    Following,
}

/// Somebody's interest in a task, until it is dropped.
#[derive(Debug)]
pub struct Waiter {
    watch: Arc<Watch>,
    task: TaskId,
    changes: Receiver<()>,
    closing: Receiver<bool>,
}

impl Default for Watch {
    fn default() -> Self {
        Self { waiting: Mutex::default(), closing: channel(false).0 }
    }
}

impl Watch {
    /// Registers interest in `task`. What changes from now on ends the wait of [`Waiter::change`].
    pub fn wait_for(self: &Arc<Self>, task: TaskId, store: &Store) -> Waiter {
        let mut waiting = self.waiting();
        let changes = waiting.tasks.entry(task).or_insert_with(|| channel(()).0).subscribe();
        if waiting.follower == Follower::Absent {
            waiting.follower = Follower::Blind;
            tokio::spawn(Arc::clone(self).follow(store.clone()));
        }
        drop(waiting);
        Waiter { watch: Arc::clone(self), task, changes, closing: self.closing.subscribe() }
    }

    /// Tells when the process is about to stop.
    pub fn closing(&self) -> Receiver<bool> {
        self.closing.subscribe()
    }

    /// Ends all waiting: the process is about to stop.
    pub fn close(&self) {
        self.closing.send_replace(true);
    }

    /// Follows changes until nobody waits.
    async fn follow(self: Arc<Self>, store: Store) {
        let broken_off = Absence(&self);
        let mut idle = false;
        let mut complained = false;
        loop {
            let lost = match store.task_changes().await {
                Ok(changes) => {
                    complained = false;
                    match self.tell(changes, &mut idle).await {
                        FollowEnd::Lost(error) => error,
                        FollowEnd::NobodyWaits => break,
                    }
                }
                Err(error) => Some(error),
            };
            self.becomes(Follower::Blind);
            let standalone = lost.as_ref().is_some_and(StoreError::has_no_change_streams);
            if !std::mem::replace(&mut complained, true) {
                log(lost.as_ref(), standalone);
            }
            if !self
                .somebody_waits_for(if standalone { RETRY_STANDALONE_AFTER } else { RETRY_AFTER }, &mut idle)
                .await
            {
                break;
            }
        }
        // It is known as absent already, and another may be there.
        std::mem::forget(broken_off);
    }

    /// Passes changes on.
    async fn tell(
        &self,
        mut changes: impl Stream<Item = Result<TaskId, StoreError>> + Unpin,
        idle: &mut bool,
    ) -> FollowEnd {
        // What changed before the stream was open is found by looking once.
        self.becomes(Follower::Following);
        let mut review = interval(REVIEW);
        loop {
            tokio::select! {
                change = changes.next() => match change {
                    Some(Ok(task)) => self.changed(task),
                    Some(Err(error)) => return FollowEnd::Lost(Some(error)),
                    None => return FollowEnd::Lost(None),
                },
                _ = review.tick() => if self.nobody_waits(idle) {
                    return FollowEnd::NobodyWaits;
                },
            }
        }
    }

    /// Pauses while somebody waits. Returns whether somebody does in the end.
    async fn somebody_waits_for(&self, pause: Duration, idle: &mut bool) -> bool {
        let end = Instant::now() + pause;
        while Instant::now() < end {
            tokio::time::sleep(REVIEW).await;
            if self.nobody_waits(idle) {
                return false;
            }
        }
        true
    }

    fn changed(&self, task: TaskId) {
        if let Some(waiters) = self.waiting().tasks.get(&task) {
            waiters.send_replace(());
        }
    }

    fn becomes(&self, follower: Follower) {
        let mut waiting = self.waiting();
        waiting.follower = follower;
        for waiters in waiting.tasks.values() {
            waiters.send_replace(());
        }
    }

    /// Whether the follower is to end, since nobody waits now and nobody did when this was last asked.
    fn nobody_waits(&self, before: &mut bool) -> bool {
        let mut waiting = self.waiting();
        let idle = waiting.tasks.is_empty();
        let end = idle && *before;
        *before = idle;
        if end {
            // Under the same lock, so that whoever comes next starts another.
            waiting.follower = Follower::Absent;
        }
        end
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        disbatch_core::lock(&self.waiting)
    }
}

enum FollowEnd {
    NobodyWaits,
    /// The stream broke, or the server closed it.
    Lost(Option<StoreError>),
}

/// Makes the follower known as absent when it is broken off.
struct Absence<'a>(&'a Watch);

impl Drop for Absence<'_> {
    fn drop(&mut self) {
        self.0.becomes(Follower::Absent);
    }
}

impl Waiter {
    /// From now on only further changes count: to be called before the task is looked at.
    pub fn mark(&mut self) {
        self.changes.borrow_and_update();
    }

    /// Waits until it is time to look again: at a change since the mark, after a while, and after `longest` at
    /// the latest. False if there is no time to wait, as the server stops.
    pub async fn change(&mut self, longest: Duration) -> bool {
        let look = match self.watch.waiting().follower {
            Follower::Following => LOOK_ANYWAY,
            Follower::Absent | Follower::Blind => LOOK_EVERY,
        };
        if *self.closing.borrow() {
            return false;
        }
        tokio::select! {
            closed = self.closing.wait_for(|closing| *closing) => closed.is_err(),
            // It fails only without a sender, which lives as long as this does.
            _ = timeout(look.min(longest), self.changes.changed()) => true,
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        let mut waiting = self.watch.waiting();
        if waiting.tasks.get(&self.task).is_some_and(|waiters| waiters.receiver_count() <= 1) {
            waiting.tasks.remove(&self.task);
        }
    }
}

fn log(lost: Option<&StoreError>, standalone: bool) {
    let reason = lost.map_or_else(|| "the server closed it".to_owned(), ToString::to_string);
    if standalone {
        tracing::info!("no change streams on this server: tasks that are waited for are polled");
    } else {
        tracing::warn!(reason, "no change stream: tasks that are waited for are polled");
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

    use super::*;

    fn waiter(watch: &Arc<Watch>, task: TaskId) -> Waiter {
        let changes = watch.waiting().tasks.entry(task).or_insert_with(|| channel(()).0).subscribe();
        Waiter { watch: Arc::clone(watch), task, changes, closing: watch.closing.subscribe() }
    }

    #[tokio::test]
    async fn a_change_after_the_mark_is_not_missed() {
        let watch = Arc::new(Watch::default());
        watch.waiting().follower = Follower::Following;
        let (task, other) = (TaskId(ObjectId::new()), TaskId(ObjectId::new()));
        let mut waiter = waiter(&watch, task);
        waiter.mark();
        watch.changed(other);
        watch.changed(task);
        let began = Instant::now();
        assert!(waiter.change(Duration::from_secs(60)).await);
        assert!(began.elapsed() < LOOK_ANYWAY, "told at once");
        assert!(waiter.change(Duration::from_millis(1)).await, "it was told of that already");
    }

    #[tokio::test]
    async fn closing_ends_all_waiting() {
        let watch = Arc::new(Watch::default());
        let mut waiter = waiter(&watch, TaskId(ObjectId::new()));
        let wait = tokio::spawn(async move { waiter.change(Duration::from_secs(60)).await });
        watch.close();
        assert!(!wait.await.unwrap());
    }

    #[tokio::test]
    async fn who_has_gone_is_forgotten_and_the_follower_ends_after_a_while() {
        let watch = Arc::new(Watch::default());
        watch.waiting().follower = Follower::Following;
        let task = TaskId(ObjectId::new());
        let (first, second) = (waiter(&watch, task), waiter(&watch, task));
        drop(first);
        let mut idle = false;
        assert!(!watch.nobody_waits(&mut idle));
        drop(second);
        assert!(watch.waiting().tasks.is_empty());
        assert!(!watch.nobody_waits(&mut idle), "somebody may come back soon");
        assert!(watch.nobody_waits(&mut idle));
        assert_eq!(watch.waiting().follower, Follower::Absent);
    }
}
