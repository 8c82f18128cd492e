//! How many tasks of a queue have one of some statuses, and where just these are found.

use std::collections::BTreeMap;

use askama::filters::HtmlSafeOutput;
use bson::doc;
use disbatch_core::counters::Totals;
use disbatch_core::counters::count::Amount;
use disbatch_core::model::QueueId;
use disbatch_core::store::{Store, StoreError};

use crate::counts;
use crate::ui::parts::{grouped, number};

/// An address has no more statuses.
const MOST_STATUSES: usize = 50;

/// Tasks that are counted together.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tally {
    /// Nothing if it is not known which they are.
    statuses: Vec<i64>,
    amount: Amount,
}

impl Default for Tally {
    fn default() -> Self {
        Self::new(Vec::new(), Amount::Exactly(0))
    }
}

impl Tally {
    /// One that has been counted. `statuses` are empty if it is not known which they are.
    pub const fn new(statuses: Vec<i64>, amount: Amount) -> Self {
        Self { statuses, amount }
    }

    pub fn sum<'a>(tallies: impl Iterator<Item = &'a Self>) -> Self {
        let amount = tallies.fold(Amount::Exactly(0), |sum, tally| match (sum, tally.amount) {
            (Amount::Exactly(one), Amount::Exactly(other)) => Amount::Exactly(one.saturating_add(other)),
            (
                Amount::Exactly(one) | Amount::MoreThan(one),
                Amount::Exactly(other) | Amount::MoreThan(other),
            ) => Amount::MoreThan(one.saturating_add(other)),
        });
        Self::new(Vec::new(), amount)
    }

    /// How many there are at least.
    pub const fn least(&self) -> u64 {
        let (Amount::Exactly(tasks) | Amount::MoreThan(tasks)) = self.amount;
        tasks
    }

    pub const fn is_none(&self) -> bool {
        matches!(self.amount, Amount::Exactly(0))
    }

    /// How many, for people.
    pub fn words(&self) -> String {
        match self.amount {
            Amount::Exactly(tasks) => grouped(tasks),
            Amount::MoreThan(tasks) => format!("{}+", grouped(tasks)),
        }
    }

    /// The same in a table: nothing is not to catch the eye.
    pub fn shown(&self) -> HtmlSafeOutput<String> {
        if self.is_none() { number(0_u64) } else { HtmlSafeOutput(self.words()) }
    }

    /// Where these tasks of `queue` are found, if that can be said.
    pub fn link(&self, queue: QueueId) -> Option<String> {
        let statuses: String = self.statuses.iter().map(|status| format!("&status={status}")).collect();
        let is_known = (1..=MOST_STATUSES).contains(&self.statuses.len());
        is_known.then(|| format!("/tasks?queue={queue}{statuses}"))
    }
}

/// What is to be known of a queue.
#[derive(Debug, Clone)]
pub struct Question {
    queue: QueueId,
    statuses: Vec<i64>,
    known: Option<u64>,
    bound: u64,
}

impl Question {
    /// How many tasks of `queue`, which is one of so many, have one of `statuses`.
    pub fn new(queue: QueueId, statuses: Vec<i64>, (queues, totals): (usize, Option<&Totals>)) -> Self {
        let known = totals.and_then(|totals| totals.of_statuses(queue, &statuses));
        let bound = known.map_or_else(|| counts::bound(queues), |_| counts::bound_of_page(queues));
        Self { queue, statuses, known, bound }
    }

    /// What the counters say where they tell of far more than would be counted.
    fn many(&self) -> Option<u64> {
        self.known.filter(|tasks| *tasks >= self.bound.saturating_mul(2))
    }

    /// Whether the counters say that the count will not get to its bound.
    fn is_few(&self) -> bool {
        self.known.is_some_and(|tasks| tasks < self.bound)
    }

    /// Answers all of them: counts up to bounds, beyond which the counters say how many there are, if there are any.
    pub async fn answers(store: &Store, questions: Vec<Self>) -> Result<Vec<Tally>, StoreError> {
        let mut amounts: Vec<Option<Amount>> =
            questions.iter().map(|of| of.many().map(Amount::Exactly)).collect();
        Self::count_few(store, &questions, &mut amounts).await?;
        let each = questions.iter().zip(&mut amounts).filter(|(_, amount)| amount.is_none());
        let (counts, places): (Vec<_>, Vec<_>) = each
            .map(|(of, amount)| {
                let filter = doc! { "queue": of.queue, "status": { "$in": &of.statuses } };
                ((filter, of.bound), (amount, of.known))
            })
            .unzip();
        for ((place, known), counted) in places.into_iter().zip(store.count_each_up_to(&counts).await?) {
            *place = Some(beyond(counted, known));
        }
        let tally = |(of, amount): (Self, Option<Amount>)| {
            Tally::new(of.statuses, amount.unwrap_or(Amount::Exactly(0)))
        };
        Ok(questions.into_iter().zip(amounts).map(tally).collect())
    }

    /// Counts what is few together, for all that ask for the same statuses.
    async fn count_few(
        store: &Store,
        questions: &[Self],
        amounts: &mut [Option<Amount>],
    ) -> Result<(), StoreError> {
        let mut alike: BTreeMap<&[i64], Vec<(&Self, &mut Option<Amount>)>> = BTreeMap::new();
        for (of, amount) in questions.iter().zip(amounts).filter(|(of, _)| of.is_few()) {
            alike.entry(&of.statuses).or_default().push((of, amount));
        }
        let count = async |(statuses, asked): (&[i64], Vec<(&Self, &mut Option<Amount>)>)| {
            let queues: Vec<QueueId> = asked.iter().map(|(of, _)| of.queue).collect();
            let most = asked.iter().map(|(of, _)| of.bound).sum();
            // There may be many more since the counters were written.
            let Some(counts) = store.count_few(&queues, statuses, most).await? else {
                return Ok::<_, StoreError>(());
            };
            for (of, amount) in asked {
                let counted = counts.get(&of.queue).copied().unwrap_or(0);
                *amount = Some(beyond(Amount::up_to(counted, of.bound), of.known));
            }
            Ok(())
        };
        futures::future::try_join_all(alike.into_iter().map(count)).await?;
        Ok(())
    }
}

/// What is known of a number whose count has ended at its bound.
pub fn beyond(amount: Amount, known: Option<u64>) -> Amount {
    match (amount, known) {
        (Amount::MoreThan(least), Some(tasks)) => Amount::Exactly(tasks.max(least)),
        (amount, _) => amount,
    }
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

    use super::*;

    #[test]
    fn a_tally_leads_to_what_it_counts() {
        let queue = QueueId(ObjectId::from_bytes([1; 12]));
        let waiting = Tally::new(vec![-2, -7], Amount::Exactly(1_234));
        let link = waiting.link(queue);
        assert_eq!(link, Some("/tasks?queue=010101010101010101010101&status=-2&status=-7".into()));
        assert_eq!((waiting.words(), waiting.is_none()), ("1,234".into(), false));
        assert_eq!(Tally::default().link(queue), None, "nobody knows which they are");
        assert_eq!(Tally::new((0..99).collect(), Amount::Exactly(1)).link(queue), None);
        assert_eq!(Tally::default().shown().to_string(), "<span class=\"zero\">0</span>");
        assert_eq!(Tally::new(vec![2], Amount::MoreThan(1_000)).shown().to_string(), "1,000+");
    }

    #[test]
    fn what_is_not_counted_to_the_last_is_said_so() {
        let of = |amount| Tally::new(vec![1], amount);
        let sum = Tally::sum([of(Amount::Exactly(5)), of(Amount::MoreThan(1_000))].iter());
        assert_eq!((sum.words(), sum.least()), ("1,005+".into(), 1_005));
        assert_eq!(Tally::sum(std::iter::empty()), Tally::default());
        assert_eq!(beyond(Amount::MoreThan(10), Some(7)), Amount::Exactly(10), "counters may be late");
        assert_eq!(beyond(Amount::MoreThan(10), None), Amount::MoreThan(10));
        assert_eq!(beyond(Amount::Exactly(3), Some(7)), Amount::Exactly(3));
    }
}
