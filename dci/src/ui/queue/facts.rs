//! What the page of a queue shows of it, gathered with bounded reads.

use bson::{Bson, DateTime, Document, doc};
use disbatch_core::counters::Totals;
use disbatch_core::counters::count::Amount;
use disbatch_core::model::{Queue, QueueId};
use disbatch_core::series::Numbers;
use disbatch_core::store::{Store, StoreError};
use futures::{StreamExt, TryStreamExt};

use super::charts;
use crate::state::State;
use crate::ui::node_state::Now;
use crate::ui::overview::throughput::Span;
use crate::ui::tally::{Tally, beyond};

/// Up to so many tasks of a status are counted, and beyond that the counters are asked.
const BOUND: u64 = 1_000;

/// So many statuses are counted at once.
const AT_ONCE: usize = 6;

/// Statuses in the order in which tasks come to them, and those beyond the known ones.
const STATUSES: [Statuses; 12] = [
    Statuses::One(-2),
    Statuses::One(-7),
    Statuses::One(-4),
    Statuses::Held,
    Statuses::One(-1),
    Statuses::One(0),
    Statuses::One(1),
    Statuses::One(2),
    Statuses::Finished,
    Statuses::One(-6),
    Statuses::One(-5),
    Statuses::One(-3),
];

/// Tasks that are counted together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Statuses {
    /// Those with this status.
    One(i64),
    /// Those that somebody keeps from being claimed: -8 and below.
    Held,
    /// Those with a status of their plugin's: 3 and above.
    Finished,
}

#[derive(Debug)]
pub(super) struct Facts {
    pub queue: Queue,
    pub tallies: Vec<(Statuses, Tally)>,
    /// Since when the task waits that waits longest.
    pub oldest: Option<DateTime>,
    /// What happened within the last hour.
    pub hour: Numbers,
    pub nodes: Vec<Document>,
    pub now: Now,
}

impl Statuses {
    fn filter(self, queue: QueueId) -> Document {
        let status: Bson = match self {
            Self::One(code) => code.into(),
            Self::Held => doc! { "$lte": -8 }.into(),
            Self::Finished => doc! { "$gte": 3 }.into(),
        };
        doc! { "queue": queue, "status": status }
    }

    /// What the counters say. Nobody counts those that run.
    fn counted(self, totals: &Totals, queue: QueueId) -> Option<u64> {
        let by_status = totals.by_status(queue)?;
        let tasks: i64 = match self {
            Self::One(-1 | 0) => return None,
            Self::One(code) => by_status.get(&code).copied().unwrap_or(0),
            Self::Held => by_status.range(..=-8).map(|(_, tasks)| *tasks).sum(),
            Self::Finished => by_status.range(3..).map(|(_, tasks)| *tasks).sum(),
        };
        u64::try_from(tasks).ok()
    }

    /// Which they are; nothing if the counters do not tell.
    fn codes(self, totals: Option<&Totals>, queue: QueueId) -> Vec<i64> {
        let codes = match self {
            Self::One(code) => return vec![code],
            Self::Held => totals.and_then(|totals| totals.statuses_within(queue, ..=-8)),
            Self::Finished => totals.and_then(|totals| totals.statuses_within(queue, 3..)),
        };
        codes.unwrap_or_default()
    }
}

impl Facts {
    pub async fn gather(state: &State, queue: Queue) -> Result<Self, StoreError> {
        let (store, id) = (&state.store, queue.id);
        let (tallies, nodes, server, points, oldest) = futures::try_join!(
            tallies(store, id),
            store.list_nodes(),
            store.server_time(),
            charts::points(store, id, Span::Hour),
            store.longest_waiting(id),
        )?;
        let hour = points.iter().fold(Numbers::default(), |mut sum, point| {
            sum.merge(&point.numbers);
            sum
        });
        Ok(Self { queue, tallies, oldest, hour, nodes, now: Now { server, host: store.now() } })
    }

    /// How many tasks have one of these statuses; if there are many more, at least so many.
    pub fn tasks(&self, of: Statuses) -> u64 {
        let tally = self.tallies.iter().find(|(statuses, _)| *statuses == of);
        tally.map_or(0, |(_, tally)| tally.least())
    }
}

async fn tallies(store: &Store, queue: QueueId) -> Result<Vec<(Statuses, Tally)>, StoreError> {
    let count =
        async |of: Statuses| Ok::<_, StoreError>((of, store.count_up_to(of.filter(queue), BOUND).await?));
    let counted: Vec<(Statuses, Amount)> =
        futures::stream::iter(STATUSES).map(count).buffered(AT_ONCE).try_collect().await?;
    let is_asked = |(of, amount): &(Statuses, Amount)| match amount {
        Amount::Exactly(0) => false,
        Amount::Exactly(_) => !matches!(of, Statuses::One(_)),
        Amount::MoreThan(_) => true,
    };
    let totals = if counted.iter().any(is_asked) { store.read_counters().await? } else { None };
    let tally = |(of, amount): (Statuses, Amount)| {
        let known = totals.as_ref().and_then(|totals| of.counted(totals, queue));
        (of, Tally::new(of.codes(totals.as_ref(), queue), beyond(amount, known)))
    };
    Ok(counted.into_iter().map(tally).collect())
}
