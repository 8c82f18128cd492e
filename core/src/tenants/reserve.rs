//! Reservations: how much of its limits a tenant is about to take.

use std::collections::HashMap;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use futures::TryStreamExt;

use super::{Busy, Limits, Quota, check, waiting};
use crate::admission::{GRACE, RESERVED};
use crate::counters::count::Amount;
use crate::lock;
use crate::schedules::ScheduleError;
use crate::store::{Store, StoreError, count_of, documents_in, integer, millis, with};
use crate::task::SubmitError;

/// What a tenant has is remembered for so long. Tasks that come without being submitted, as those that are tried again, are not known before that.
const KEPT: Duration = Duration::from_secs(2);

/// More tenants than that are not remembered.
const MOST: usize = 1_000;

/// How often something is tried to be reserved while others get in the way.
const TURNS: u32 = 100;

/// So long is waited after the first turn at most, and longer after each further one.
const PAUSE: Duration = Duration::from_millis(5);

/// So long is waited after a turn at most.
const LONGEST_PAUSE: Duration = Duration::from_millis(100);

/// What was counted for tenants lately, which a process remembers for a moment, so that not every submission counts the tasks
/// that wait.
#[derive(Debug, Default)]
pub(crate) struct Lately(Mutex<HashMap<String, (Instant, Counted)>>);

/// How much a tenant had when it was counted.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Counted {
    /// The day by the server's clock.
    pub day: String,
    /// How many tasks had been submitted on that day.
    pub today: u64,
    /// How many waited, with those that were reserved.
    pub waiting: u64,
}

impl Lately {
    /// The most that a tenant can have now, where `today` have been submitted. `None`: it is to be counted.
    fn at_most(&self, tenant: &str, (day, today): (&str, u64), now: Instant) -> Option<u64> {
        let remembered = lock(&self.0);
        let (at, counted) = remembered.get(tenant)?;
        if now.saturating_duration_since(*at) >= KEPT || counted.day != day {
            return None;
        }
        // All that was reserved since is among what was submitted today.
        Some(counted.waiting.saturating_add(today.checked_sub(counted.today)?))
    }

    fn note(&self, tenant: &str, counted: Counted, at: Instant) {
        let mut remembered = lock(&self.0);
        if remembered.len() >= MOST {
            remembered.clear();
        }
        remembered.insert(tenant.to_owned(), (at, counted));
    }
}

/// Part of a tenant's limits, until it is settled or given back, or has run out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Reservation {
    tenant: String,
    /// What the tasks that it is for carry.
    pub(crate) id: ObjectId,
    /// How much of it counts for the day.
    tasks: i64,
}

struct Account {
    rev: Option<Bson>,
    limits: Limits,
    /// Reservations that are open: what they are for, their ids, and how much each takes.
    open: Vec<(Quota, ObjectId, u64)>,
    /// The day by the server's clock.
    day: String,
    today: u64,
}

impl Account {
    fn of(tenant: &Document) -> Self {
        let now = tenant.get_datetime("now").copied().unwrap_or(DateTime::MIN);
        let is_same_day = tenant.get_str("day").is_ok_and(|day| tenant.get_str("this_day").ok() == Some(day));
        let today = count_of(tenant, "today").filter(|_| is_same_day);
        Self {
            rev: tenant.get("rev").cloned(),
            limits: Limits::stored(tenant),
            open: documents_in(tenant, "open").filter_map(|one| reservation(one, now)).collect(),
            day: tenant.get_str("this_day").unwrap_or_default().to_owned(),
            today: today.unwrap_or(0),
        }
    }

    fn open(&self, quota: Quota) -> (Vec<ObjectId>, u64) {
        let of_quota = self.open.iter().filter(|(of, ..)| *of == quota);
        let (ids, much): (Vec<ObjectId>, Vec<u64>) = of_quota.map(|(_, id, much)| (*id, *much)).unzip();
        (ids, much.into_iter().fold(0, u64::saturating_add))
    }
}

/// An open reservation, unless it has run out.
fn reservation(one: &Document, now: DateTime) -> Option<(Quota, ObjectId, u64)> {
    let age = now.checked_duration_since(*one.get_datetime("at").ok()?);
    let much = count_of(one, "n")?;
    let quota = one.get_str("of").ok().and_then(Quota::named)?;
    // One that comes from the future is of this moment.
    age.is_none_or(|age| age < GRACE).then_some((quota, one.get_object_id("id").ok()?, much))
}

impl Store {
    /// Reserves room for new tasks. `None`: nothing limits the tenant.
    pub(crate) async fn reserve_tasks(
        &self,
        tenant: &str,
        tasks: u64,
    ) -> Result<Option<Reservation>, SubmitError> {
        for turn in 1..=TURNS {
            let Some(account) = self.account(tenant).await? else { return Ok(None) };
            let (queued, per_day) = (account.limits.get(Quota::Queued), account.limits.get(Quota::PerDay));
            if queued.is_none() && per_day.is_none() {
                return Ok(None);
            }
            check((tenant, Quota::PerDay), per_day, account.today, tasks)?;
            if let Some(most) = queued {
                self.check_waiting(tenant, &account, (most, tasks)).await?;
            }
            let reservation =
                Reservation { tenant: tenant.to_owned(), id: ObjectId::new(), tasks: integer(tasks) };
            if self.open_reservation(&account, Quota::Queued, &reservation).await? {
                return Ok(Some(reservation));
            }
            pause(turn).await;
        }
        Err(Busy(tenant.to_owned()).into())
    }

    async fn check_waiting(
        &self,
        tenant: &str,
        account: &Account,
        (most, tasks): (u64, u64),
    ) -> Result<(), SubmitError> {
        let (lately, at) = (self.admission.lately(), Instant::now());
        let now = lately.at_most(tenant, (account.day.as_str(), account.today), at);
        if now.is_some_and(|now| now.saturating_add(tasks) <= most / 2) {
            return Ok(());
        }
        let (ids, reserved) = account.open(Quota::Queued);
        let settled = with(waiting(tenant), doc! { RESERVED: { "$nin": ids } });
        // Beyond that it does not matter how many there are.
        let now = match self.count_up_to(settled, most).await? {
            Amount::Exactly(tasks) | Amount::MoreThan(tasks) => tasks.saturating_add(reserved),
        };
        let counted = Counted { day: account.day.clone(), today: account.today, waiting: now };
        lately.note(tenant, counted, at);
        Ok(check((tenant, Quota::Queued), Some(most), now, tasks)?)
    }

    /// Reserves room for a schedule that will have this id. `None`: nothing limits the tenant, or there is none.
    pub(crate) async fn reserve_schedule(
        &self,
        tenant: Option<&str>,
        id: ObjectId,
    ) -> Result<Option<Reservation>, ScheduleError> {
        let Some(tenant) = tenant else { return Ok(None) };
        for turn in 1..=TURNS {
            let Some(account) = self.account(tenant).await? else { return Ok(None) };
            let Some(most) = account.limits.get(Quota::Schedules) else { return Ok(None) };
            let (ids, reserved) = account.open(Quota::Schedules);
            let others = doc! { "tenant": tenant, "_id": { "$nin": ids } };
            let others = self.schedules().count_documents(others).await.map_err(StoreError::from)?;
            check((tenant, Quota::Schedules), Some(most), others.saturating_add(reserved), 1)?;
            let reservation = Reservation { tenant: tenant.to_owned(), id, tasks: 0 };
            if self.open_reservation(&account, Quota::Schedules, &reservation).await? {
                return Ok(Some(reservation));
            }
            pause(turn).await;
        }
        Err(Busy(tenant.to_owned()).into())
    }

    /// Closes a reservation whose tasks are there, and are counted from now on. If that fails, it runs out.
    pub(crate) async fn settle_reservation(&self, reservation: &Reservation) {
        let update = doc! { "$pull": { "open": { "id": reservation.id } } };
        let settled = self.tenants().update_one(doc! { "_id": &reservation.tenant }, update).await;
        told(settled, reservation);
    }

    /// Closes a reservation, unless an error says that what it is for may still come to be there.
    pub(crate) async fn settle_unless_unknown(
        &self,
        reservation: Option<Reservation>,
        error: Option<&StoreError>,
    ) {
        if let Some(reservation) = reservation
            && !error.is_some_and(StoreError::is_transient)
        {
            self.settle_reservation(&reservation).await;
        }
    }

    /// Closes a reservation of which nothing has come.
    pub(crate) async fn give_back_reservation(&self, reservation: &Reservation) {
        let open = doc! { "_id": &reservation.tenant, "open.id": reservation.id };
        let is_other = doc! { "$ne": ["$$this.id", reservation.id] };
        let is_same_day = doc! { "$eq": ["$day", this_day()] };
        let rest = doc! { "$max": [{ "$subtract": ["$today", reservation.tasks] }, 0] };
        let update = vec![doc! { "$set": {
            "open": { "$filter": { "input": "$open", "cond": is_other } },
            "today": { "$cond": [is_same_day, rest, "$today"] },
        } }];
        told(self.tenants().update_one(open, update).await, reservation);
    }

    /// How many tasks a tenant has submitted today, as far as that is counted.
    pub(super) async fn submitted_today(&self, tenant: &str) -> Result<u64, StoreError> {
        Ok(self.account(tenant).await?.map_or(0, |account| account.today))
    }

    /// The document of a tenant, with the server's time. A user of MongoDB that may not read it is one of a time before
    /// there were any.
    async fn account(&self, tenant: &str) -> Result<Option<Account>, StoreError> {
        let read = async {
            let pipeline = [
                doc! { "$match": { "_id": tenant } },
                doc! { "$set": { "now": "$$NOW", "this_day": this_day() } },
            ];
            Ok::<Option<Document>, StoreError>(self.tenants().aggregate(pipeline).await?.try_next().await?)
        };
        Ok(StoreError::unless_forbidden(read.await)?.flatten().as_ref().map(Account::of))
    }

    /// Notes a reservation, unless anybody has noted one since the account was read, or changed a limit. Returns whether
    /// it is noted.
    async fn open_reservation(
        &self,
        account: &Account,
        quota: Quota,
        reservation: &Reservation,
    ) -> Result<bool, StoreError> {
        let same = doc! { "_id": &reservation.tenant, "rev": account.rev.clone().unwrap_or(Bson::Null) };
        let much = if quota == Quota::Schedules { 1 } else { reservation.tasks };
        let one = doc! { "id": reservation.id, "of": quota.as_str(), "n": much, "at": "$$NOW" };
        let is_open = doc! { "$gt": ["$$this.at", { "$subtract": ["$$NOW", millis(GRACE)] }] };
        let open = doc! { "$cond": [{ "$isArray": "$open" }, "$open", []] };
        let open = doc! { "$filter": { "input": open, "cond": is_open } };
        let is_same_day = doc! { "$eq": ["$day", this_day()] };
        let today = doc! { "$cond": [is_same_day, { "$ifNull": ["$today", 0] }, 0] };
        let update = vec![doc! { "$set": {
            "rev": ObjectId::new(),
            "open": { "$concatArrays": [open, [one]] },
            "today": { "$add": [today, reservation.tasks] },
            "day": this_day(),
        } }];
        Ok(self.tenants().update_one(same, update).await?.matched_count == 1)
    }
}

/// Those that got in each other's way try again at different moments.
async fn pause(turn: u32) {
    tokio::time::sleep(LONGEST_PAUSE.min(PAUSE * turn).mul_f64(crate::clock::chance())).await;
}

/// The day by the server's clock, UTC.
fn this_day() -> Document {
    doc! { "$dateToString": { "format": "%Y-%m-%d", "date": "$$NOW" } }
}

fn told<T>(closed: mongodb::error::Result<T>, reservation: &Reservation) {
    if let Err(error) = closed {
        let error = StoreError::from(error);
        tracing::warn!(%error, tenant = reservation.tenant, "cannot close a reservation: it runs out by itself");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_submitted_since_is_added_for_a_moment() {
        let (lately, now) = (Lately::default(), Instant::now());
        assert_eq!(lately.at_most("acme", ("2026-11-20", 5), now), None);
        lately.note("acme", Counted { day: "2026-11-20".to_owned(), today: 5, waiting: 30 }, now);
        assert_eq!(lately.at_most("acme", ("2026-11-20", 9), now + KEPT / 2), Some(34));
        assert_eq!(lately.at_most("acme", ("2026-11-20", 9), now + KEPT), None);
        assert_eq!(lately.at_most("acme", ("2026-11-20", 4), now), None, "some were given back");
        assert_eq!(lately.at_most("acme", ("2026-11-21", 9), now), None, "it is counted anew each day");
        assert_eq!(lately.at_most("other", ("2026-11-20", 9), now), None);
    }

    #[test]
    fn open_reservations_count_until_they_run_out() {
        let ids = [1, 2, 3, 4].map(|number| ObjectId::from_bytes([number; 12]));
        let at = |seconds: i64| DateTime::from_millis(10_000_000 + seconds * 1_000);
        let one = |id: ObjectId, of: &str, n: i64, seconds: i64| doc! { "id": id, "of": of, "n": n, "at": at(seconds) };
        let tenant = doc! {
            "_id": "acme", "rev": 7, "max_queued": 9, "now": at(0), "day": "2026-11-20", "this_day": "2026-11-20",
            "today": 5_i64, "open": [
                one(ids[0], "max_queued", 3, -599), one(ids[1], "max_queued", 2, -601),
                one(ids[2], "max_schedules", 1, 0), one(ids[3], "max_queued", 4, 5), "odd",
            ],
        };
        let account = Account::of(&tenant);
        assert_eq!(account.open(Quota::Queued), (vec![ids[0], ids[3]], 7));
        assert_eq!(account.open(Quota::Schedules), (vec![ids[2]], 1));
        assert_eq!((account.today, account.rev.clone()), (5, Some(Bson::from(7))));
        let mut next_day = tenant;
        next_day.insert("this_day", "2026-11-21");
        assert_eq!(Account::of(&next_day).today, 0);
        let empty = Account::of(&doc! { "_id": "acme" });
        assert_eq!((empty.open(Quota::Queued), empty.today, empty.rev), ((vec![], 0), 0, None));
    }
}
