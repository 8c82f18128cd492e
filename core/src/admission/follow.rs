//! Sees to it that no task is held that no rule holds any more.

use disbatch_operation::operation;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use tokio::time::MissedTickBehavior;

use super::{GRACE, Scope};
use crate::lease::LeaseName;
use crate::store::collections::ADMISSION;
use crate::store::{Store, StoreError, collect, millis, with};

/// How often it is looked for tasks that somebody else should have released.
const LOOK: Duration = Duration::from_secs(15);

/// One of so many looks is for all held tasks, also where no rule was changed: a rule may have been removed by hand, and
/// tasks of an array may be inserted long after it was submitted.
const LOOKS: u32 = 40;

/// Who looks for tasks that no rule holds any more. It is prolonged with each look.
const LEASE: LeaseName = LeaseName::in_collection(ADMISSION.name, "lease", Duration::from_secs(40));

/// Looks again and again, for as long as the process goes on. Of any number of processes one does the work.
pub async fn follow(store: Store) {
    let instance = ObjectId::new().to_hex();
    let mut looks = tokio::time::interval(LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    for look in (0..LOOKS).cycle() {
        looks.tick().await;
        match store.look_for_held(look == 0, &instance).await {
            Ok(0) => {}
            Ok(tasks) => tracing::info!(tasks, "tasks were held that no rule holds any more: released"),
            Err(error) => tracing::debug!(%error, "cannot look for held tasks"),
        }
    }
}

impl Store {
    /// Releases tasks that no rule holds any more, as long as a rule was changed that may have held some. Returns how many
    /// were released.
    #[operation]
    pub async fn finish_admission(&self) -> Result<u64, StoreError> {
        let unsettled = self.unsettled_rules().await?;
        if unsettled.is_empty() {
            return Ok(0);
        }
        let released = self.release_held_of(&about(&unsettled)).await?;
        for rule in unsettled {
            let (Some(id), Some(Bson::DateTime(changed))) = (rule.get("_id"), rule.get("changed")) else {
                continue;
            };
            self.settle_rule(id, *changed).await?;
        }
        Ok(released)
    }

    /// Releases held tasks as [`Store::finish_admission`] does, or all of them that no rule holds, if no other process is at
    /// it.
    pub(crate) async fn look_for_held(&self, all: bool, instance: &str) -> Result<u64, StoreError> {
        if !all && self.unsettled_rules().await?.is_empty() {
            return Ok(0);
        }
        if !self.take_lease(LEASE, instance).await? {
            return Ok(0);
        }
        if all { self.release_held().await } else { self.finish_admission().await }
    }

    async fn unsettled_rules(&self) -> Result<Vec<Document>, StoreError> {
        collect(self.admission().find(doc! { "settled": false })).await
    }

    /// Notes that nobody can be about to insert tasks because of what a rule was before it was changed, if that was long
    /// enough ago and it has not been changed since.
    async fn settle_rule(&self, id: &Bson, changed: DateTime) -> Result<(), StoreError> {
        let is_old = doc! { "$lt": ["$changed", { "$subtract": ["$$NOW", millis(GRACE)] }] };
        let same = doc! { "_id": id, "changed": changed, "settled": false, "$expr": is_old };
        let lifted = with(same.clone(), doc! { "action": { "$exists": false } });
        self.admission().delete_one(lifted).await?;
        self.admission().update_one(same, doc! { "$set": { "settled": true } }).await?;
        Ok(())
    }
}

/// What finds the tasks that these rules are about. Of one that cannot be understood that is not known: all tasks.
fn about(rules: &[Document]) -> Document {
    let filter = |rule| Scope::stored(rule).map(|scope| scope.filter()).filter(|of| !of.is_empty());
    let filters: Option<Vec<Document>> = rules.iter().map(filter).collect();
    filters.map_or_else(Document::new, |of| doc! { "$or": of })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tasks_are_looked_at_that_changed_rules_are_about() {
        let lifted = doc! { "_id": "tenant acme", "scope": "tenant", "value": "acme", "settled": false };
        let rule = doc! { "scope": "owner", "value": "bob", "action": "accept" };
        let expected = doc! { "$or": [{ "tenant": "acme" }, { "owner": "bob" }] };
        assert_eq!(about(&[lifted.clone(), rule]), expected);
        for wide in [doc! { "scope": "all" }, doc! { "scope": "of a newer release" }] {
            assert_eq!(about(&[lifted.clone(), wide]), doc! {});
        }
    }
}
