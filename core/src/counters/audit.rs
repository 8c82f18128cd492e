//! The audit: compares counters with what is there, and mends those that have drifted.
//!
//! **How it is not fooled by moves that are under way.** A window is: read the counters, wait for [`SETTLED`], count the tasks,
//! wait again, read the counters again. Every process writes its moves within a second. A task that moved before
//! the count began is counted where it is, and its move was written before the second reading, as were those of all tasks
//! that moved while it went on. So if the second reading finds that *nothing* of a queue has moved in the window,
//! counters and tasks stood still, and each difference is drift, to the task. If something has moved, by *m*
//! tasks, a difference of up to *m* may be due to that and is left alone, until the queue has a quieter moment;
//! a larger one is drift for certain, and what is left of it after the correction is at most *m*.
//!
//! A process that could not write for longer than that says so when it can again, and the next audit mends what
//! this one got wrong. The correction is written on the condition that no other audit has written since the first
//! reading, so a worker that slept over the end of its lease corrects nothing twice; if the answer is lost,
//! nothing is done: the next audit looks again.

use disbatch_operation::operation;
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use tokio::time::Instant;

use super::count::Total;
use super::{AuditNote, BASE, Totals};
use crate::model::QueueId;
use crate::store::{Store, StoreError, between};

/// Longer than any process needs to write its moves.
const SETTLED: Duration = Duration::from_millis(2_500);

/// A window counts for so long, and leaves the other queues to the next one.
const WINDOW: Duration = Duration::from_secs(1);

/// A node of Perl's is at work if it was seen within this time: milliseconds.
const PERL_SEEN: i64 = 60_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Due {
    Nothing,
    /// Queues that have no counters yet.
    New(Vec<QueueId>),
    All {
        queues: Vec<QueueId>,
        /// The time of the server when this was asked.
        at: DateTime,
    },
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Window {
    /// How many of the queues it has come to.
    pub queues: usize,
    /// For how long it counted.
    pub counting: Duration,
    pub corrections: Vec<Correction>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Correction {
    pub queue: QueueId,
    pub status: i64,
    /// By how much it was too low.
    pub by: i64,
}

impl Store {
    /// Says what an audit would have to look at. All queues are looked at every `every`; five times as often while a
    /// program of Perl Disbatch is at work or somebody has doubted the counters since, or soon when an operator
    /// asks for it.
    #[operation]
    pub async fn audit_due(&self, every: Duration) -> Result<Due, StoreError> {
        let (totals, queues, at) = futures::try_join!(self.totals(), self.list_queues(), self.server_time())?;
        let queues: Vec<QueueId> = queues.iter().map(|queue| queue.id).collect();
        let last = totals.audit.at;
        let all = Due::All { queues: queues.clone(), at };
        let Some(last) = last else { return Ok(all) };
        let silence = between(last, at);
        if totals.asked.is_some_and(|asked| asked > last) || silence >= every {
            return Ok(all);
        }
        let doubted = totals.doubted.is_some_and(|doubted| doubted > last);
        if silence >= every / 5 && (doubted || self.is_perl_at_work(at).await?) {
            return Ok(all);
        }
        let new: Vec<QueueId> =
            queues.into_iter().filter(|queue| totals.by_status(*queue).is_none()).collect();
        Ok(if new.is_empty() { Due::Nothing } else { Due::New(new) })
    }

    #[operation]
    pub async fn ask_for_audit(&self) -> Result<(), StoreError> {
        let ask = doc! { "$currentDate": { "asked": true } };
        self.counter_documents().update_one(doc! { "_id": BASE }, ask).upsert(true).await?;
        Ok(())
    }

    async fn is_perl_at_work(&self, now: DateTime) -> Result<bool, StoreError> {
        let nodes = self.list_nodes().await?;
        let is_perl = |node: &Document| {
            let seen = node.get_datetime("timestamp").ok();
            !node.contains_key("instance")
                && seen.is_some_and(|seen| now.timestamp_millis() - seen.timestamp_millis() < PERL_SEEN)
        };
        Ok(nodes.iter().any(is_perl))
    }

    /// Compares the counters of as many of `queues` as there is time for, in this order, with their tasks, and mends those
    /// that have drifted. Takes some seconds, most of which it waits.
    #[operation]
    pub async fn audit_window(&self, queues: &[QueueId]) -> Result<Window, StoreError> {
        // What this process has noted itself is not drift either.
        self.flush_counters().await?;
        let before = self.totals().await?;
        tokio::time::sleep(SETTLED).await;
        let began = Instant::now();
        let mut truths = Vec::new();
        for queue in queues {
            truths.push((*queue, self.count_truth(*queue).await?));
            if began.elapsed() > WINDOW {
                break;
            }
        }
        let counting = began.elapsed();
        tokio::time::sleep(SETTLED).await;
        self.flush_counters().await?;
        let after = self.totals().await?;
        let found = |(queue, truth): &(QueueId, BTreeMap<i64, i64>)| {
            (*queue, drift(&before.total(*queue), &after.total(*queue), truth))
        };
        let found: Vec<(QueueId, Vec<(i64, i64)>)> = truths.iter().map(found).collect();
        let window = Window { queues: truths.len(), counting, corrections: Vec::new() };
        if !self.correct(before.version, &found, &before).await? {
            return Ok(window);
        }
        let known = |queue: &QueueId| before.by_status(*queue).is_some();
        let corrections = found.into_iter().filter(|(queue, _)| known(queue)).flat_map(|(queue, drifts)| {
            drifts.into_iter().map(move |(status, by)| Correction { queue, status, by })
        });
        Ok(Window { corrections: corrections.collect(), ..window })
    }

    /// Writes what was found, unless another audit has written since. Returns whether it has.
    async fn correct(
        &self,
        version: i64,
        found: &[(QueueId, Vec<(i64, i64)>)],
        before: &Totals,
    ) -> Result<bool, StoreError> {
        let (mut increments, mut now) = (doc! { "version": 1_i64 }, Document::new());
        for (queue, drifts) in found {
            let field = format!("q.{queue}");
            for (status, by) in drifts {
                increments.insert(format!("{field}.n.{status}"), *by);
            }
            if before.by_status(*queue).is_none() {
                now.insert(format!("{field}.at"), true);
            }
        }
        if increments.len() == 1 && now.is_empty() {
            return Ok(true);
        }
        let mut update = doc! { "$inc": increments };
        if !now.is_empty() {
            update.insert("$currentDate", now);
        }
        let unchanged = match version {
            0 => doc! { "_id": BASE, "version": { "$in": [0, Bson::Null] } },
            version => doc! { "_id": BASE, "version": version },
        };
        let written = self.counter_documents().update_one(unchanged, update).upsert(version == 0).await;
        // Unless another one has made the first.
        let written = StoreError::unless_duplicate(written)?;
        Ok(written.is_some_and(|written| written.matched_count == 1 || written.upserted_id.is_some()))
    }

    /// Notes that all queues have been looked at, and removes what is no longer needed: counters of queues that are
    /// gone, and what parts know of processes that have ended.
    #[operation]
    pub async fn audited(&self, note: &AuditNote) -> Result<(), StoreError> {
        // In this order, or a queue that is made in between would be taken for one that is gone.
        let counted: Vec<ObjectId> = self.totals().await?.queues().collect();
        let queues = self.list_queues().await?;
        let queues: HashSet<ObjectId> = queues.iter().map(|queue| queue.id.0).collect();
        let gone: Document = counted
            .iter()
            .filter(|queue| !queues.contains(queue))
            .map(|queue| (format!("q.{queue}"), Bson::from("")))
            .collect();
        if !gone.is_empty() {
            self.counter_documents().update_many(doc! {}, doc! { "$unset": gone }).await?;
        }
        self.forget_flushes().await?;
        let noted = doc! { "$set": { "audit": note.document() } };
        self.counter_documents().update_one(doc! { "_id": BASE }, noted).upsert(true).await?;
        Ok(())
    }
}

/// What to add to each counter of a queue, by what was read before the count and after it.
fn drift(before: &Total, after: &Total, truth: &BTreeMap<i64, i64>) -> Vec<(i64, i64)> {
    let moved = after.moves - before.moves;
    let statuses: HashSet<i64> =
        before.tasks.keys().chain(after.tasks.keys()).chain(truth.keys()).copied().collect();
    let of = |tasks: &BTreeMap<i64, i64>, status| tasks.get(&status).copied().unwrap_or(0);
    let by = |status| {
        // In the middle of the window, when it was counted.
        let counted = (of(&before.tasks, status) + of(&after.tasks, status)).div_euclid(2);
        let by = of(truth, status) - counted;
        (by.abs() > moved || !before.is_audited).then_some((status, by)).filter(|(_, by)| *by != 0)
    };
    let mut drifts: Vec<(i64, i64)> = statuses.into_iter().filter_map(by).collect();
    drifts.sort_unstable();
    drifts
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn total(tasks: &[(i64, i64)], moves: i64) -> Total {
        Total { tasks: tasks.iter().copied().collect(), moves, is_audited: true }
    }

    #[test]
    fn in_a_quiet_queue_every_difference_is_drift() {
        let counters = total(&[(-2, 10), (1, 100), (2, 3)], 50);
        let truth = BTreeMap::from([(-2, 10), (1, 99), (7, 1)]);
        assert_eq!(drift(&counters, &counters, &truth), [(1, -1), (2, -3), (7, 1)]);
    }

    #[test]
    fn in_a_busy_queue_only_what_cannot_be_moves_is_drift() {
        let (before, after) = (total(&[(-2, 1000), (1, 0)], 0), total(&[(-2, 900), (1, 100)], 200));
        let truth = |queued, done| BTreeMap::from([(-2, queued), (1, done)]);
        assert_eq!(drift(&before, &after, &truth(930, 70)), []);
        assert_eq!(drift(&before, &after, &truth(930, 1_000_050)), [(1, 1_000_000)]);
    }

    #[test]
    fn without_a_base_whatever_is_there_is_taken() {
        let (before, after) =
            (Total::default(), Total { moves: 50, tasks: [(1, 50)].into(), ..Total::default() });
        assert_eq!(drift(&before, &after, &BTreeMap::from([(1, 525)])), [(1, 500)]);
    }

    proptest! {
        /// Tasks move while they are counted, and moves are written late, but within the window: nothing is
        /// corrected. And whatever had drifted before is off by no more than what has moved, afterwards.
        #[test]
        fn moves_under_way_are_no_drift(
            moves in proptest::collection::vec((-4_i64..4, -4_i64..4, 0_usize..5), 0..30), drifted in -50_i64..50,
        ) {
            // Each move becomes true at a step of the window, and is written at once or with the next reading.
            let statuses = [-4, -3, -2, 1, 2, 3];
            let mut truth: BTreeMap<i64, i64> = statuses.iter().map(|s| (*s, 100)).collect();
            let mut counted = truth.clone();
            counted.insert(1, 100 - drifted);
            let (mut before, mut after) = (counted.clone(), counted);
            let (mut seen, mut moved) = (truth.clone(), 0);
            for (from, to, step) in moves {
                let (Some(from), Some(to)) =
                    (super::super::counter_of(from), super::super::counter_of(to)) else { continue };
                if from == to { continue }
                let apply = |tasks: &mut BTreeMap<i64, i64>| {
                    *tasks.entry(from).or_default() -= 1;
                    *tasks.entry(to).or_default() += 1;
                };
                apply(&mut truth);
                apply(&mut after);
                match step {
                    // Written before the window: all see it.
                    0 => { apply(&mut before); apply(&mut seen) }
                    // Happened before the count, written in the window.
                    1 | 2 => { apply(&mut seen); moved += 1 }
                    // Happened when its old place had been counted and its new one had not, or the other way round.
                    3 => { *seen.entry(to).or_default() += 1; moved += 1 }
                    _ => moved += 1,
                }
            }
            let (before, after) = (Total { tasks: before, moves: 0, is_audited: true },
                Total { tasks: after, moves: moved, is_audited: true });
            for (status, by) in drift(&before, &after, &seen) {
                prop_assert!(drifted != 0 && status == 1, "status {status} by {by}");
                prop_assert!((by - drifted).abs() <= moved);
            }
            let corrected = drift(&before, &after, &seen).iter().any(|(status, _)| *status == 1);
            prop_assert!(corrected || drifted.abs() <= 2 * moved);
        }
    }
}
