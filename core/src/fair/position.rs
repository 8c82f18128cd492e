//! What comes before a task that waits, for those who wonder.

use std::collections::BTreeSet;
use std::sync::Arc;

use bson::{Bson, Document, doc};

use super::group::NO_GROUP;
use super::read::{has_no_group, has_no_priority};
use super::settings::Settings;
use super::unindexed_tasks::Reading;
use super::window::Want;
use crate::counters::count::Amount;
use crate::model::{Queue, Status, Task, whole_number};
use crate::store::{Store, StoreError};

/// So many tasks of a queue are looked at for those that have no group, or no priority.
const LOOKED_AT: usize = 1_000;

/// What comes before a task of a fair queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Before {
    /// Turns of other groups, if these can be told.
    pub turns: Option<u64>,
    /// Tasks of its group.
    pub tasks: u64,
    /// Its group has as many tasks running as it may have: so many.
    pub full: Option<u64>,
}

impl Store {
    /// What comes before a task of a fair queue. Up to `most` tasks are counted.
    pub(crate) async fn before_in_group(
        &self,
        queue: &Queue,
        task: &Task,
        most: u64,
    ) -> Result<Before, StoreError> {
        let settings = Settings::of(queue);
        let group = task.rest.get("group").and_then(Bson::as_str).unwrap_or(NO_GROUP);
        let (order, _) = self.order_of_groups(queue).await?;
        let mut full = None;
        if let Some(threads) = settings.group_threads {
            let running = self.running_by_group(queue.id).await?;
            full = running.get(group).is_some_and(|group| group.places.running >= threads).then_some(threads);
        }
        let tasks = if group == NO_GROUP {
            self.before_among_plain(queue, task, most).await?
        } else {
            let limit = usize::try_from(most).unwrap_or(usize::MAX).saturating_add(1);
            let want = Want { group: Arc::from(group), limit, classes: BTreeSet::new(), free: false };
            let found = self.tasks_of_groups(queue.id, &[want], None).await?;
            let tasks = found.into_iter().next().map(|(tasks, _)| tasks).unwrap_or_default();
            let at = tasks.iter().position(|one| one.task == task.id.0).unwrap_or(tasks.len());
            u64::try_from(at).unwrap_or(most).min(most)
        };
        let turns = order.turns_before(group, |group| settings.weight(group));
        Ok(Before { turns, tasks, full })
    }

    async fn before_among_plain(&self, queue: &Queue, task: &Task, most: u64) -> Result<u64, StoreError> {
        let reading = Reading { past: None, limit: LOOKED_AT };
        let (read, _, plain) = self.plain_tasks(queue, reading, has_no_group).await?;
        let before = plain.iter().take_while(|one| one.task != task.id.0).count();
        let is_seen = before < plain.len() || read < LOOKED_AT;
        Ok(if is_seen { u64::try_from(before).unwrap_or(most).min(most) } else { most })
    }

    /// How many tasks come before one of a queue that goes by priority, up to `most`.
    pub(crate) async fn before_by_priority(
        &self,
        queue: &Queue,
        task: &Task,
        most: u64,
    ) -> Result<u64, StoreError> {
        let priority = task.rest.get("priority").and_then(whole_number).unwrap_or(0);
        let with = |fields: Document| {
            let mut filter = doc! { "queue": queue.id, "status": Status::Queued };
            filter.extend(fields);
            (filter, most)
        };
        let higher = with(doc! { "priority": { "$gt": priority } });
        let older = with(doc! { "priority": priority, "_id": { "$lt": task.id } });
        let counted = self.count_each_up_to(&[higher, older]).await?;
        let ranked: u64 =
            counted.iter().map(|(Amount::Exactly(tasks) | Amount::MoreThan(tasks))| *tasks).sum();
        let reading = Reading { past: None, limit: LOOKED_AT };
        let (_, _, plain) = self.plain_tasks(queue, reading, has_no_priority).await?;
        let is_before =
            |one: &super::order::Candidate| priority < 0 || (priority == 0 && one.task < task.id.0);
        let plain = plain.iter().filter(|one| is_before(one)).count();
        Ok(ranked.saturating_add(u64::try_from(plain).unwrap_or(most)).min(most))
    }
}
