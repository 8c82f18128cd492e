//! What a tenant may take at most. Pure.

use bson::{Document, doc};

use crate::model::whole_number;

/// Statuses of tasks that wait: deferred, blocked, queued.
const WAITING: [i64; 3] = [-7, -4, -2];

/// Something of which a tenant may have so much at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Quota {
    /// Tasks that wait.
    Queued,
    /// Tasks that are submitted in a day, from midnight UTC on.
    PerDay,
    Schedules,
}

impl Quota {
    pub const ALL: [Self; 3] = [Self::Queued, Self::PerDay, Self::Schedules];

    /// The name of its limit.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Queued => "max_queued",
            Self::PerDay => "max_per_day",
            Self::Schedules => "max_schedules",
        }
    }

    /// The one whose limit has this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|quota| quota.as_str() == name)
    }

    /// Of what there is a limit.
    const fn what(self) -> &'static str {
        match self {
            Self::Queued => "waiting tasks",
            Self::PerDay => "new tasks a day",
            Self::Schedules => "schedules",
        }
    }
}

/// What a tenant may take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Limits {
    queued: Option<u64>,
    per_day: Option<u64>,
    schedules: Option<u64>,
}

impl Limits {
    /// What is stored. What is no whole number from 0 on is no limit.
    pub(super) fn stored(tenant: &Document) -> Self {
        let limit = |quota: Quota| {
            tenant.get(quota.as_str()).and_then(whole_number).and_then(|most| u64::try_from(most).ok())
        };
        Self {
            queued: limit(Quota::Queued),
            per_day: limit(Quota::PerDay),
            schedules: limit(Quota::Schedules),
        }
    }

    /// How much of it there may be. `None`: any number.
    pub const fn get(&self, quota: Quota) -> Option<u64> {
        match quota {
            Quota::Queued => self.queued,
            Quota::PerDay => self.per_day,
            Quota::Schedules => self.schedules,
        }
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
    /// What there would be too much of.
    pub quota: Quota,
    /// How much of it there may be.
    pub most: u64,
    /// How much of it there is, with what others are about to add.
    pub now: u64,
    /// How much more of it was wanted.
    pub wanted: u64,
}

/// So many reserve something for one tenant at once that one of them did not get its turn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("too many submissions for the tenant {0} at once: try again")]
pub struct Busy(pub String);

/// Sees to it that `wanted` more fit.
pub(super) fn check(
    (tenant, quota): (&str, Quota),
    most: Option<u64>,
    now: u64,
    wanted: u64,
) -> Result<(), OverQuota> {
    match most {
        Some(most) if now.saturating_add(wanted) > most => {
            Err(OverQuota { tenant: tenant.to_owned(), quota, most, now, wanted })
        }
        _ => Ok(()),
    }
}

/// Matches the tasks of a tenant that wait.
pub(super) fn waiting(tenant: &str) -> Document {
    doc! { "tenant": tenant, "status": { "$in": WAITING.to_vec() } }
}

/// Matches the tasks of a tenant that are claimed or run.
pub(super) fn running(tenant: &str) -> Document {
    doc! { "tenant": tenant, "status": { "$in": [-1, 0] } }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

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
