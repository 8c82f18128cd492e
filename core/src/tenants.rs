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

mod reserve;

use std::collections::{BTreeSet, HashMap};

use bson::{Document, doc};
use disbatch_operation::operation;
use disbatch_wire::tenants::Tenant;

pub(crate) use reserve::{Lately, Reservation};

use crate::model::QueueId;
use crate::store::{Altered, Store, StoreError, collect, count_of, setting_or_removing};

pub const LONGEST_NAME: usize = 200;

/// Up to so many tasks are counted to be shown.
const BOUND: u64 = 10_000;

/// Statuses of tasks that wait: deferred, blocked, queued.
const WAITING: [i64; 3] = [-7, -4, -2];

impl Store {
    /// The names of all tenants: of those that have limits, and of those that have a queue.
    #[operation]
    pub async fn list_tenants(&self) -> Result<BTreeSet<String>, StoreError> {
        let tenants = self.tenants();
        let limited = collect(tenants.find(doc! {}).sort(doc! { "_id": 1 }));
        let (limited, of_queues) = futures::try_join!(limited, self.tenants_of_queues())?;
        let limited = limited.iter().filter_map(|tenant| tenant.get_str("_id").ok()).map(str::to_owned);
        Ok(limited.chain(of_queues.into_values()).collect())
    }

    #[operation]
    pub async fn find_tenant(&self, name: &str) -> Result<Limits, StoreError> {
        let found = self.tenants().find_one(doc! { "_id": name }).await?;
        Ok(found.as_ref().map(Limits::stored).unwrap_or_default())
    }

    /// How much of the system a tenant takes now, without what it may take.
    #[operation]
    pub async fn tenant_usage(&self, name: &str) -> Result<Tenant, StoreError> {
        let of_tenant = doc! { "tenant": name };
        let count = async {
            let schedules = self.schedules().count_documents(of_tenant.clone()).await?;
            Ok::<(u64, u64), StoreError>((schedules, self.queues().count_documents(of_tenant.clone()).await?))
        };
        let (waiting, running, submitted_today, (schedules, queues)) = futures::try_join!(
            self.count_up_to(waiting(name), BOUND),
            self.count_up_to(running(name), BOUND),
            self.submitted_today(name),
            count,
        )?;
        let (waiting, running) = (waiting.at_least(), running.at_least());
        let tenant = name.to_owned();
        Ok(Tenant { tenant, waiting, running, submitted_today, schedules, queues, ..Tenant::default() })
    }

    /// Sets limits of a tenant, and removes those whose new value is null. Submissions that begin afterwards keep to them;
    /// what there is already stays.
    #[operation]
    pub async fn set_tenant(&self, name: &str, limits: Document) -> Result<Altered, StoreError> {
        let mut update = vec![doc! { "$set": { "rev": bson::oid::ObjectId::new() } }];
        update.extend(setting_or_removing(limits.clone()));
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

    pub(crate) async fn tenants_of_queues(&self) -> Result<HashMap<QueueId, String>, StoreError> {
        let theirs = doc! { "tenant": { "$type": "string" } };
        let found = collect(self.queues().find(theirs).projection(doc! { "tenant": 1 })).await?;
        let tenant = |queue: &Document| {
            Some((QueueId(queue.get_object_id("_id").ok()?), queue.get_str("tenant").ok()?.to_owned()))
        };
        Ok(found.iter().filter_map(tenant).collect())
    }
}

/// The name and the limits, without what keeps them.
fn shown(tenant: Document) -> Document {
    tenant.into_iter().filter(|(name, _)| name == "_id" || Quota::named(name).is_some()).collect()
}

disbatch_values::words! {
    /// Something of which a tenant may have so much at most. Its word is the name of the limit.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum Quota {
        /// Tasks that wait.
        Queued = "max_queued",
        /// Tasks that are submitted in a day, from midnight UTC on.
        PerDay = "max_per_day",
        Schedules = "max_schedules",
    }
}

impl Quota {
    const fn what(self) -> &'static str {
        match self {
            Self::Queued => "waiting tasks",
            Self::PerDay => "new tasks a day",
            Self::Schedules => "schedules",
        }
    }
}

/// What a tenant may take: of each [`Quota`], in their order.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits([Option<u64>; Quota::ALL.len()]);

impl Limits {
    /// What is stored. What is no whole number from 0 on is no limit.
    fn stored(tenant: &Document) -> Self {
        Self(Quota::ALL.map(|quota| count_of(tenant, quota.as_str())))
    }

    /// How much of it there may be. `None`: any number.
    pub const fn get(&self, quota: Quota) -> Option<u64> {
        self.0[quota as usize]
    }
}

/// A tenant would have more than it may.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the tenant {tenant} may have {most} {what} ({limit}): it has {now}, and {wanted} more would be too many",
    what = .quota.what(), limit = .quota.as_str()
)]
pub struct OverQuota {
    pub tenant: String,
    pub quota: Quota,
    pub most: u64,
    /// How much of it there is, with what others are about to add.
    pub now: u64,
    pub wanted: u64,
}

/// So many reserve something for one tenant at once that one of them did not get its turn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("too many submissions for the tenant {0} at once: try again")]
pub struct Busy(pub String);

fn check((tenant, quota): (&str, Quota), most: Option<u64>, now: u64, wanted: u64) -> Result<(), OverQuota> {
    match most {
        Some(most) if now.saturating_add(wanted) > most => {
            Err(OverQuota { tenant: tenant.to_owned(), quota, most, now, wanted })
        }
        _ => Ok(()),
    }
}

fn waiting(tenant: &str) -> Document {
    doc! { "tenant": tenant, "status": { "$in": WAITING.to_vec() } }
}

fn running(tenant: &str) -> Document {
    doc! { "tenant": tenant, "status": { "$in": [-1, 0] } }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_limits_are_shown() {
        let stored =
            doc! { "_id": "acme", "max_queued": 5, "rev": 1, "open": [], "today": 3, "max_running": 7 };
        assert_eq!(Limits::stored(&stored).get(Quota::Queued), Some(5));
        assert_eq!(shown(stored), doc! { "_id": "acme", "max_queued": 5 });
    }

    #[test]
    fn limits_are_whole_numbers() {
        let limits = Limits::stored(&doc! { "max_queued": 5_i64, "max_per_day": 0, "max_schedules": "many" });
        assert_eq!(Quota::ALL.map(|quota| limits.get(quota)), [Some(5), Some(0), None]);
        assert_eq!(Limits::stored(&doc! { "max_queued": -1, "max_per_day": 1.5 }), Limits::default());
        assert_eq!(Quota::ALL.map(|quota| Quota::named(quota.as_str())), Quota::ALL.map(Some));
        assert_eq!(Quota::named("max_running"), None);
    }

    #[test]
    fn it_is_told_what_was_too_much() {
        let error = check(("acme", Quota::Queued), Some(5), 4, 3).unwrap_err();
        assert_eq!(
            error.to_string(),
            "the tenant acme may have 5 waiting tasks (max_queued): it has 4, and 3 more would be too many"
        );
        assert!(check(("acme", Quota::PerDay), None, u64::MAX, 5).is_ok());
    }

    proptest! {
        #[test]
        fn there_are_never_more_than_there_may_be(most in 0_u64..50, wanted in prop::collection::vec(0_u64..9, 0..40)) {
            let mut now = 0;
            for wanted in wanted {
                if check(("t", Quota::Queued), Some(most), now, wanted).is_ok() {
                    now += wanted;
                } else {
                    prop_assert!(now + wanted > most);
                }
                prop_assert!(now <= most);
            }
        }
    }
}
