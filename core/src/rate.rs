//! How many tasks of a queue may start in which time, over all DENs, by the server's clock.
//!
//! `rates` has a document for each queue with a `rate`, and for each group of one with a `group_rate`. Whoever wants to start
//! tasks takes starts from it, by one conditional update, before they claim; what they do not need they give back. Each
//! take is kept in the document for a while, so that what is given back counts as never taken, and nothing else does (see
//! [`limit`]).

pub mod limit;

use disbatch_operation::operation;
use std::collections::HashMap;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};
use mongodb::options::ReturnDocument;

pub use limit::Rate;
use limit::{Take, Taken, nanos};

use crate::model::{Queue, QueueId, whole_number};
use crate::store::{Store, StoreError, collect, documents_in, integer, put};
use crate::task::claimable;

/// A document is of no use any more when all starts are paid for; it stays so much longer.
pub(crate) const KEPT: Duration = Duration::from_secs(3600);

/// So many takes are kept. Nobody can give back what was taken before.
const KEPT_TAKES: i32 = 32;

/// Nobody waits longer than this before they ask again.
const AGAIN: Duration = Duration::from_secs(5);

/// Somebody may run `disbatch create-users`, so it is tried again after so long.
const FORBIDDEN: Duration = Duration::from_secs(60);

/// A document may vanish between two operations, and then there is another try.
const TRIES: usize = 3;

/// Starts that may be used now. Give back what is not used: [`Store::return_starts`].
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Granted {
    /// How many tasks may be claimed.
    pub starts: u64,
    /// How long after this answer to ask again: when the next start is possible, or after a few seconds, since others may
    /// give starts back, and somebody may change the rate. `None`: at once.
    pub next: Option<Duration>,
    /// From which document they were taken, and by which take.
    take: Option<(Document, ObjectId)>,
}

impl Granted {
    fn none(next: Duration) -> Self {
        Self { next: Some(next), ..Self::default() }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standing {
    pub rate: Rate,
    /// How many tasks may start at once.
    pub allowed: u64,
    /// How long it is until the next one may. `None`: at once.
    pub next: Option<Duration>,
}

impl Store {
    /// How many tasks of `queue` wait to be claimed, `most` at most: it makes no sense to take more starts than that.
    #[operation(queue = %queue.id)]
    pub async fn claimable_tasks(&self, queue: &Queue, most: usize) -> Result<u64, StoreError> {
        if most == 0 {
            return Ok(0);
        }
        Ok(self.tasks().count_documents(claimable(queue.id)).limit(most as u64).await?)
    }

    /// Takes up to `wanted` starts of `queue` (`group`: `None`, by its `rate`), or of one of its groups (by its
    /// `group_rate`). All of `wanted` are granted where there is no such rate, without a look at the database.
    ///
    /// Whoever takes the same starts at the same time gets others: it is one update whose filter says that there are some.
    /// A user who has no right to take starts gets none. What may have been taken when this fails counts as used.
    #[operation(queue = %queue.id, wanted)]
    pub async fn take_starts(
        &self,
        queue: &Queue,
        group: Option<&str>,
        wanted: u64,
    ) -> Result<Granted, StoreError> {
        let Some(rate) = rate_of(queue, group).filter(|_| wanted > 0) else {
            return Ok(Granted { starts: wanted, ..Granted::default() });
        };
        match self.take_of(&key(queue.id, group), &rate, wanted).await {
            Err(error) if error.is_forbidden() => {
                tracing::error!(
                    %error, queue = queue.display_name(),
                    "cannot ask for the rate of the queue, so that none of its tasks start; `disbatch create-users` \
                     gives the right to"
                );
                Ok(Granted::none(FORBIDDEN))
            }
            granted => granted,
        }
    }

    /// Gives back `unused` of what was granted: it is as if these had never been taken. Nothing happens if it was long ago,
    /// with many takes since. If this fails, they count as used.
    #[operation(unused)]
    pub async fn return_starts(&self, granted: &Granted, unused: u64) -> Result<(), StoreError> {
        let Some((key, take)) = granted.take.as_ref().filter(|_| unused > 0) else { return Ok(()) };
        let unused = integer(unused);
        let still_there = doc! {
            "_id": key, "takes": { "$elemMatch": { "id": *take, "n": { "$gte": unused } } },
        };
        self.rates().update_one(still_there, doc! { "$inc": { "takes.$.n": -unused } }).await?;
        Ok(())
    }

    /// What the rate of `queue`, or the one of a group of it, allows now. `None`: it has no such rate.
    #[operation(queue = %queue.id)]
    pub async fn rate_standing(
        &self,
        queue: &Queue,
        group: Option<&str>,
    ) -> Result<Option<Standing>, StoreError> {
        let Some(rate) = rate_of(queue, group) else { return Ok(None) };
        Ok(Some(standing(rate, self.taken(&key(queue.id, group)).await?)))
    }

    /// What the rates of all of these queues that have one allow now, in one operation.
    #[operation]
    pub async fn rate_standings(&self, queues: &[Queue]) -> Result<HashMap<QueueId, Standing>, StoreError> {
        let rates: Vec<(QueueId, Rate)> =
            queues.iter().filter_map(|queue| Some((queue.id, rate_of(queue, None)?))).collect();
        if rates.is_empty() {
            return Ok(HashMap::new());
        }
        let keys: Vec<Document> = rates.iter().map(|(queue, _)| key(*queue, None)).collect();
        let mut taken: HashMap<QueueId, (Taken<ObjectId>, i64)> = HashMap::new();
        for found in self.all_taken(doc! { "$in": keys }).await? {
            let queue = found.get_document("_id").and_then(|key| key.get_object_id("queue"));
            if let (Ok(queue), Some(read)) = (queue, read(&found)) {
                taken.insert(QueueId(queue), read);
            }
        }
        Ok(rates.into_iter().map(|(queue, rate)| (queue, standing(rate, taken.remove(&queue)))).collect())
    }

    async fn take_of(&self, key: &Document, rate: &Rate, wanted: u64) -> Result<Granted, StoreError> {
        for _ in 0..TRIES {
            if let Some(granted) = self.take(key, rate, wanted).await? {
                return Ok(granted);
            }
            match self.taken(key).await? {
                Some((taken, now)) if taken.is_out_of_reach(rate, now) => {
                    self.bring_into_reach(key, rate, &taken).await?;
                }
                Some((taken, now)) => {
                    let wait = taken.wait(rate, now).unwrap_or_default();
                    return Ok(Granted::none(wait.min(AGAIN)));
                }
                None => self.begin_rate(key).await?,
            }
        }
        // Somebody is busy with it.
        Ok(Granted::none(Duration::ZERO))
    }

    /// `None`: there is nothing to take, or no document.
    async fn take(&self, key: &Document, rate: &Rate, wanted: u64) -> Result<Option<Granted>, StoreError> {
        let id = ObjectId::new();
        let filter = doc! { "_id": key, "$expr": has_starts(rate) };
        let rates = self.rates();
        let taken = rates.find_one_and_update(filter, taking(rate, wanted, id));
        let taken = taken.return_document(ReturnDocument::After).await?;
        let Some(taken) = taken.as_ref().map(taken_of) else { return Ok(None) };
        let Some(ours) = taken.takes.iter().find(|take| take.id == id) else { return Ok(None) };
        let starts = u64::try_from(ours.n).unwrap_or(0);
        let next = taken.wait(rate, ours.at).map(|wait| wait.min(AGAIN));
        Ok(Some(Granted { starts, next, take: Some((key.clone(), id)) }))
    }

    /// What was taken, and the server's time in milliseconds since 1970.
    async fn taken(&self, key: &Document) -> Result<Option<(Taken<ObjectId>, i64)>, StoreError> {
        Ok(self.all_taken(key.clone()).await?.first().and_then(read))
    }

    async fn all_taken(&self, keys: Document) -> Result<Vec<Document>, StoreError> {
        let with_time = [
            doc! { "$match": { "_id": keys } },
            doc! { "$project": { "tat": 1, "takes": 1, "now": "$$NOW" } },
        ];
        collect(self.rates().aggregate(with_time)).await
    }

    async fn begin_rate(&self, key: &Document) -> Result<(), StoreError> {
        let first = doc! { "_id": key, "tat": 0_i64, "takes": [], "full": self.now() };
        StoreError::unless_duplicate(self.rates().insert_one(first).await)?;
        Ok(())
    }

    /// After the rate was changed: what was taken by the other one is paid for as soon as it can be by this one. Nothing
    /// happens if somebody has taken or given back something since.
    async fn bring_into_reach(
        &self,
        key: &Document,
        rate: &Rate,
        taken: &Taken<ObjectId>,
    ) -> Result<(), StoreError> {
        let ids: Vec<ObjectId> = taken.takes.iter().map(|take| take.id).collect();
        let numbers: Vec<i64> = taken.takes.iter().map(|take| take.n).collect();
        let unchanged = doc! { "_id": key, "$expr": { "$and": [
            { "$eq": ["$tat", taken.tat] },
            { "$eq": ["$takes.id", ids] },
            { "$eq": ["$takes.n", numbers] },
        ] } };
        let reach = doc! { "$add": [nanos_of("$$NOW"), rate.reach()] };
        let update =
            vec![doc! { "$set": { "tat": reach, "takes": [] } }, doc! { "$set": { "full": full(rate) } }];
        self.rates().update_one(unchanged, update).await?;
        Ok(())
    }
}

/// By what was taken, and the server's time in milliseconds since 1970.
fn standing(rate: Rate, taken: Option<(Taken<ObjectId>, i64)>) -> Standing {
    match taken {
        // The next that takes brings it into reach, and waits for one interval.
        Some((taken, now)) if taken.is_out_of_reach(&rate, now) => {
            let wait = Duration::from_nanos(rate.interval().unsigned_abs());
            Standing { rate, allowed: 0, next: Some(wait) }
        }
        Some((taken, now)) => {
            Standing { rate, allowed: taken.allowed(&rate, now), next: taken.wait(&rate, now) }
        }
        None => Standing { rate, allowed: rate.burst, next: None },
    }
}

fn read(found: &Document) -> Option<(Taken<ObjectId>, i64)> {
    Some((taken_of(found), found.get_datetime("now").ok()?.timestamp_millis()))
}

fn rate_of(queue: &Queue, group: Option<&str>) -> Option<Rate> {
    if group.is_some() { Rate::of_groups(queue) } else { Rate::of_queue(queue) }
}

/// The `_id`. The order of its fields belongs to it.
fn key(queue: QueueId, group: Option<&str>) -> Document {
    let mut key = doc! { "queue": queue };
    put(&mut key, "group", group);
    key
}

fn taken_of(document: &Document) -> Taken<ObjectId> {
    let number = |document: &Document, field: &str| document.get(field).and_then(whole_number);
    let take = |take: &Document| {
        let at = take.get_datetime("at").ok().copied().map(DateTime::timestamp_millis)?;
        Some(Take { id: take.get_object_id("id").ok()?, at, n: number(take, "n")? })
    };
    let takes = documents_in(document, "takes").filter_map(take).collect();
    Taken { tat: number(document, "tat").unwrap_or(0), takes }
}

/// A time of the server in nanoseconds since 1970.
fn nanos_of(time: &str) -> Document {
    doc! { "$multiply": [{ "$toLong": time }, nanos(1)] }
}

/// When `tat` is paid for and then the starts of a take, named `take`. As [`Taken::paid`].
fn after(tat: &str, take: &str, rate: &Rate) -> Document {
    let at = nanos_of(&format!("{take}.at"));
    doc! { "$add": [{ "$max": [tat, at] }, { "$multiply": [format!("{take}.n"), rate.interval()] }] }
}

fn paid(rate: &Rate) -> Document {
    doc! { "$reduce": { "input": "$takes", "initialValue": "$tat", "in": after("$$value", "$$this", rate) } }
}

/// When all is paid for, as a date.
fn full(rate: &Rate) -> Document {
    doc! { "$toDate": { "$toLong": { "$ceil": { "$divide": [paid(rate), nanos(1)] } } } }
}

fn has_starts(rate: &Rate) -> Document {
    doc! { "$lte": [paid(rate), { "$add": [nanos_of("$$NOW"), rate.reach() - rate.interval()] }] }
}

/// Takes up to `wanted` starts, of which there is one at least.
fn taking(rate: &Rate, wanted: u64, id: ObjectId) -> Vec<Document> {
    let now = nanos_of("$$NOW");
    let interval = rate.interval();
    let left = doc! { "$subtract": [
        { "$add": [now.clone(), rate.reach()] }, { "$max": [paid(rate), now] },
    ] };
    // The server divides in floating point. What is divided here is a multiple, so that rounding gives the exact number.
    let whole = doc! { "$subtract": ["$$left", { "$mod": ["$$left", interval] }] };
    let allowed = doc! { "$toLong": { "$round": [{ "$divide": [whole, interval] }, 0] } };
    let wanted = integer(wanted);
    let n = doc! { "$let": { "vars": { "left": left }, "in": { "$min": [wanted, allowed] } } };
    let take = doc! { "id": id, "at": "$$NOW", "n": n };
    let first = doc! { "$let": {
        "vars": { "first": { "$arrayElemAt": ["$takes", 0] } }, "in": after("$tat", "$$first", rate),
    } };
    let too_many = doc! { "$gt": [{ "$size": "$takes" }, KEPT_TAKES] };
    vec![
        doc! { "$set": { "takes": { "$concatArrays": ["$takes", [take]] } } },
        doc! { "$set": {
            "tat": { "$cond": [too_many, first, "$tat"] },
            "takes": { "$slice": ["$takes", -KEPT_TAKES] },
        } },
        doc! { "$set": { "full": full(rate) } },
    ]
}
