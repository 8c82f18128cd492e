//! Tenants: for whom tasks are, and how much of the system each of them may take.
//!
//! A queue may be that of a tenant, and a task of a queue that is nobody's may be for one. `tenants` has the limits of those
//! that have any; a tenant without a document has none.
//!
//! **Limits are exact.** Whoever submits makes a reservation first: one update of the tenant's document, on the condition that
//! `rev` is what it was before the tasks were counted. Tasks carry the id of their reservation, and those of reservations
//! that are still open are left out of the count, as the reservation counts in full. So of any number of submissions at once
//! those get through, one after the other, that fit. An open reservation of a process that has died runs out.
//! Whoever does not get through tries again after a moment, and is told to come back after some of these. Far below the limit
//! it is enough to know how much there was a moment ago, and what was submitted since.

mod cache;
mod quota;
mod reserve;

use disbatch_operation::operation;
use std::collections::HashMap;

use bson::{Bson, Document, doc};
use futures::TryStreamExt;
use mongodb::Collection;

pub(crate) use cache::Lately;
pub use quota::{Busy, Limits, OverQuota, Quota};
pub(crate) use reserve::Reservation;

use crate::counters::count::Amount;
use crate::model::QueueId;
use crate::schedules;
use crate::store::collections;
use crate::store::{Altered, Store, StoreError, Stored};

/// The collection of tenants that have limits.
pub(crate) const COLLECTION: &str = collections::TENANTS.name;

/// A name has so many characters at most.
pub const LONGEST_NAME: usize = 200;

/// Up to so many tasks are counted to be shown.
const BOUND: u64 = 10_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tenant {
    pub name: String,
    pub limits: Limits,
}

/// How much of the system a tenant takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Usage {
    /// Its tasks that wait: deferred, blocked, held or queued.
    pub waiting: Amount,
    /// Its tasks that are claimed or run.
    pub running: Amount,
    /// How many tasks it has submitted since midnight UTC, as far as that is counted: while it has a limit for it.
    pub today: u64,
    pub schedules: u64,
    /// How many queues are its own.
    pub queues: u64,
}

impl Store {
    pub(crate) fn tenants(&self) -> Collection<Document> {
        self.database().collection(COLLECTION)
    }

    /// All tenants by name: those that have limits, and those that have a queue.
    #[operation]
    pub async fn list_tenants(&self) -> Result<Vec<Tenant>, StoreError> {
        let limited = async {
            let found = self.tenants().find(doc! {}).sort(doc! { "_id": 1 }).await?;
            Ok::<Vec<Document>, StoreError>(found.try_collect().await?)
        };
        let (limited, of_queues) = futures::try_join!(limited, self.tenants_of_queues())?;
        let mut all: Vec<Tenant> = limited.iter().filter_map(tenant).collect();
        for name in of_queues.into_values() {
            if !all.iter().any(|tenant| tenant.name == name) {
                all.push(Tenant { name, limits: Limits::default() });
            }
        }
        all.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(all)
    }

    /// One tenant. `None`: it has no limits.
    #[operation]
    pub async fn find_tenant(&self, name: &str) -> Result<Option<Tenant>, StoreError> {
        Ok(self.tenants().find_one(doc! { "_id": name }).await?.as_ref().and_then(tenant))
    }

    /// How much of the system a tenant takes now.
    #[operation]
    pub async fn tenant_usage(&self, name: &str) -> Result<Usage, StoreError> {
        let (queues, schedules) =
            (self.queues(), self.database().collection::<Document>(schedules::COLLECTION));
        let of_tenant = doc! { "tenant": name };
        let count = async {
            let schedules = schedules.count_documents(of_tenant.clone()).await?;
            Ok::<(u64, u64), StoreError>((schedules, queues.count_documents(of_tenant.clone()).await?))
        };
        let (waiting, running, today, (schedules, queues)) = futures::try_join!(
            self.count_up_to(quota::waiting(name), BOUND),
            self.count_up_to(quota::running(name), BOUND),
            self.submitted_today(name),
            count,
        )?;
        Ok(Usage { waiting, running, today, schedules, queues })
    }

    /// Sets limits of a tenant, and removes those whose new value is null. Submissions that begin afterwards keep to them;
    /// what there is already stays.
    #[operation]
    pub async fn set_tenant(&self, name: &str, limits: Document) -> Result<Altered, StoreError> {
        let (gone, set): (Document, Document) =
            limits.clone().into_iter().partition(|(_, value)| *value == Bson::Null);
        let mut update = vec![doc! { "$set": { "rev": bson::oid::ObjectId::new() } }];
        let literal = |(name, value): (String, Bson)| (name, Bson::from(doc! { "$literal": value }));
        if !set.is_empty() {
            update.push(doc! { "$set": set.into_iter().map(literal).collect::<Document>() });
        }
        if !gone.is_empty() {
            update.push(doc! { "$unset": gone.keys().cloned().collect::<Vec<String>>() });
        }
        let before = self.tenants().find_one_and_update(doc! { "_id": name }, update).upsert(true).await?;
        let (before, known) = (before.map(shown), doc! { "_id": name });
        let altered = Altered::by_setting_or_removing(before.clone().unwrap_or(known), limits);
        Ok(Altered { before, after: altered.after })
    }

    /// Removes the limits of a tenant. Returns what they were; `None`: it had none.
    #[operation]
    pub async fn delete_tenant(&self, name: &str) -> Result<Option<Document>, StoreError> {
        Ok(self.tenants().find_one_and_delete(doc! { "_id": name }).await?.map(shown))
    }

    /// The tenants of those queues that have one.
    pub(crate) async fn tenants_of_queues(&self) -> Result<HashMap<QueueId, String>, StoreError> {
        let theirs = doc! { "tenant": { "$type": "string" } };
        let found = self.queues().find(theirs).projection(doc! { "tenant": 1 }).await?;
        let found: Vec<Stored> = found.try_collect().await?;
        let tenant = |queue: &Stored| {
            Some((QueueId(queue.get_object_id("_id").ok()?), queue.get_str("tenant").ok()?.to_owned()))
        };
        Ok(found.iter().filter_map(tenant).collect())
    }
}

/// A tenant, if its document has a name.
fn tenant(document: &Document) -> Option<Tenant> {
    Some(Tenant { name: document.get_str("_id").ok()?.to_owned(), limits: Limits::stored(document) })
}

/// The name and the limits, without what keeps them.
fn shown(tenant: Document) -> Document {
    tenant.into_iter().filter(|(name, _)| name == "_id" || Quota::named(name).is_some()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_limits_are_shown() {
        let stored =
            doc! { "_id": "acme", "max_queued": 5, "rev": 1, "open": [], "today": 3, "max_running": 7 };
        assert_eq!(shown(stored.clone()), doc! { "_id": "acme", "max_queued": 5 });
        let read = tenant(&stored).unwrap();
        assert_eq!((read.name.as_str(), read.limits.get(Quota::Queued)), ("acme", Some(5)));
        assert_eq!(tenant(&doc! { "_id": 5 }), None);
    }
}
