//! What was noted and is not written: added up, and then written.

use std::collections::BTreeMap;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_operation::operation;
use tokio::time::Instant;

use super::numbers::Numbers;
use super::{Series, Sides};
use crate::model::{NodeName, QueueId, Trial};
use crate::node::Stats;
use crate::notebook::SILENCE;
use crate::store::collections::SERIES;
use crate::store::{Store, StoreError, integer, put};

/// So many documents of queues wait at most, and so many of nodes. Beyond that, the oldest minutes are forgotten.
pub(super) const MOST: usize = 10_000;

/// The field of a node's document that has what ended there.
pub(super) const OF_QUEUES: &str = "queues";

/// So many documents are in one command at most.
const AT_ONCE: usize = 1_000;

#[derive(Debug, Clone, Default, PartialEq)]
struct OfNode {
    /// How many tasks it ran, and what its host was like.
    sample: Option<(usize, Stats)>,
    queues: BTreeMap<ObjectId, Numbers>,
}

/// What is added to each document. By minute first, so that the oldest can be forgotten.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Pending {
    /// Without a queue: of all together.
    queues: BTreeMap<(i64, Option<ObjectId>), Numbers>,
    nodes: BTreeMap<(i64, NodeName), OfNode>,
    /// Of canaries: by when they began, and their queues.
    canaries: BTreeMap<(i64, ObjectId), Sides>,
    pub forgotten: usize,
}

impl Pending {
    /// Adds to the numbers of a queue and a minute, and to those of all queues together.
    pub(super) fn add(&mut self, minute: i64, queue: QueueId, change: impl Fn(&mut Numbers)) {
        for of in [None, Some(queue.0)] {
            change(self.queues.entry((minute, of)).or_default());
        }
        self.forget();
    }

    pub(super) fn sample(&mut self, minute: i64, node: &NodeName, sample: (usize, Stats)) {
        self.nodes.entry((minute, node.clone())).or_default().sample = Some(sample);
        self.forget();
    }

    pub(super) fn add_on_node(
        &mut self,
        minute: i64,
        node: &NodeName,
        queue: QueueId,
        change: impl FnOnce(&mut Numbers),
    ) {
        change(self.nodes.entry((minute, node.clone())).or_default().queues.entry(queue.0).or_default());
        self.forget();
    }

    pub(super) fn add_attempt(&mut self, queue: QueueId, trial: Trial, has_failed: bool) {
        let key = (trial.began.timestamp_millis(), queue.0);
        self.canaries.entry(key).or_default().add(trial.is_canary, has_failed);
        self.forget();
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty() && self.nodes.is_empty() && self.canaries.is_empty()
    }

    fn len(&self) -> usize {
        self.queues.len() + self.nodes.len() + self.canaries.len()
    }

    /// Takes out so many documents, or all if there are not so many.
    fn take(&mut self, most: usize) -> Self {
        let mut part = Self::default();
        while part.len() < most {
            if let Some((key, numbers)) = self.queues.pop_first() {
                part.queues.insert(key, numbers);
            } else if let Some((key, noted)) = self.nodes.pop_first() {
                part.nodes.insert(key, noted);
            } else if let Some((key, sides)) = self.canaries.pop_first() {
                part.canaries.insert(key, sides);
            } else {
                break;
            }
        }
        part
    }

    /// Takes back what could not be written. What was noted meanwhile stays.
    fn put_back(&mut self, other: Self) {
        for (key, numbers) in other.queues {
            self.queues.entry(key).or_default().merge(&numbers);
        }
        for (key, noted) in other.nodes {
            let known = self.nodes.entry(key).or_default();
            known.sample = known.sample.or(noted.sample);
            for (queue, numbers) in noted.queues {
                known.queues.entry(queue).or_default().merge(&numbers);
            }
        }
        for (key, sides) in other.canaries {
            self.canaries.entry(key).or_default().merge(sides);
        }
        self.forgotten += other.forgotten;
        self.forget();
    }

    fn forget(&mut self) {
        self.forgotten += oldest_forgotten(&mut self.queues)
            + oldest_forgotten(&mut self.nodes)
            + oldest_forgotten(&mut self.canaries);
    }

    fn statements(&self) -> Vec<Document> {
        let of_queues = self.queues.iter().map(|((minute, queue), numbers)| added(*queue, *minute, numbers));
        let of_nodes = self.nodes.iter().map(|((minute, node), noted)| of_node(node, *minute, noted));
        let of_canaries = self.canaries.iter().map(|((began, queue), sides)| sides.statement(*queue, *began));
        of_queues.chain(of_nodes).chain(of_canaries).collect()
    }
}

/// Leaves so many documents as may wait. Returns how many were forgotten.
fn oldest_forgotten<K: Ord, V>(documents: &mut BTreeMap<K, V>) -> usize {
    let forgotten = documents.len().saturating_sub(MOST);
    (0..forgotten).for_each(|_| drop(documents.pop_first()));
    forgotten
}

/// The id of the document of a queue and a minute; null for all queues.
pub(super) fn id_of_queue(queue: impl Into<Bson>, minute: i64) -> Document {
    doc! { "queue": queue.into(), "at": DateTime::from_millis(minute) }
}

pub(super) fn id_of_node(node: &NodeName, minute: i64) -> Document {
    doc! { "node": node, "at": DateTime::from_millis(minute) }
}

fn added(queue: Option<ObjectId>, minute: i64, numbers: &Numbers) -> Document {
    let increments: Document =
        numbers.fields().map(|(name, number)| (name, Bson::from(integer(number)))).collect();
    let update = doc! { "$inc": increments, "$setOnInsert": { "at": DateTime::from_millis(minute) } };
    doc! { "q": { "_id": id_of_queue(queue, minute) }, "u": update, "upsert": true }
}

fn of_node(node: &NodeName, minute: i64, noted: &OfNode) -> Document {
    let mut fields = doc! { "at": DateTime::from_millis(minute) };
    if let Some((running, stats)) = noted.sample {
        fields.insert("running", integer(running));
        put(&mut fields, "load", stats.load);
        put(&mut fields, "memory_available", stats.memory_available.map(integer));
    }
    let mut increments = Document::new();
    for (queue, numbers) in &noted.queues {
        for (name, number) in numbers.fields() {
            increments.insert(format!("{OF_QUEUES}.{queue}.{name}"), integer(number));
        }
    }
    let mut update = doc! { "$set": fields };
    put(&mut update, "$inc", (!increments.is_empty()).then_some(increments));
    doc! { "q": { "_id": id_of_node(node, minute) }, "u": update, "upsert": true }
}

impl Store {
    /// Writes all that this process has noted and not written: counters, numbers over time, and what groups have had. A
    /// process that ends calls this last; others need not.
    ///
    /// # Errors
    /// As of [`Store::flush_counters`], [`Store::flush_series`] and [`Store::flush_groups`]: the first of them if several
    /// fail.
    #[operation]
    pub async fn flush(&self) -> Result<(), StoreError> {
        let (counters, series, groups) =
            futures::join!(self.flush_counters(), self.flush_series(), self.flush_groups());
        counters.and(series).and(groups)
    }

    /// Writes the numbers over time that this process has noted and not written.
    ///
    /// # Errors
    /// The database cannot be reached: what it has not acknowledged is kept and written later, unless this process runs one
    /// task. Or it does not take them: they are lost, which is logged.
    #[operation]
    pub async fn flush_series(&self) -> Result<(), StoreError> {
        let _one_at_a_time = self.series.one_at_a_time().await;
        let mut left = self.series.with(|series| std::mem::take(&mut series.pending));
        self.lost(std::mem::take(&mut left.forgotten), "they could not be written for too long");
        let Err(error) = in_parts(&mut left, |statements| self.write_series(statements)).await else {
            return Ok(());
        };
        if error.is_forbidden() {
            tracing::info!(
                %error,
                "numbers over time are not kept by this process; `disbatch create-users` gives the right to"
            );
            self.series.silence();
            return Ok(());
        }
        // The same may be written later, but a runner does not get another chance.
        if self.series.goes_on() && error.is_transient() {
            self.series.with(|series| series.pending.put_back(left));
        } else {
            self.lost(left.len(), &error.to_string());
        }
        Err(error)
    }

    async fn write_series(&self, statements: Vec<Document>) -> Result<(), StoreError> {
        let command = doc! {
            "update": SERIES.name, "updates": statements, "ordered": false, "writeConcern": { "w": 1 },
        };
        let answer = self.database().run_command(command).await?;
        if let Ok([first, more @ ..]) = answer.get_array("writeErrors").map(Vec::as_slice) {
            self.lost(1 + more.len(), &first.to_string());
        }
        Ok(())
    }

    /// Says that numbers are lost, once in a while.
    fn lost(&self, documents: usize, reason: &str) {
        if documents > 0 && self.series.with(|series| series.may_warn(Instant::now())) {
            tracing::warn!(documents, reason, "some numbers over time are lost");
        }
    }
}

impl Series {
    /// Whether to say that something is lost: not again within [`SILENCE`].
    fn may_warn(&mut self, now: Instant) -> bool {
        let may = self.warned_until.is_none_or(|until| now >= until);
        if may {
            self.warned_until = Some(now + SILENCE);
        }
        may
    }
}

/// Writes what is left, a part after the other. What could not be written stays, with the part of which nobody knows
/// whether it was written.
async fn in_parts<F: Future<Output = Result<(), StoreError>>>(
    left: &mut Pending,
    write: impl Fn(Vec<Document>) -> F,
) -> Result<(), StoreError> {
    while !left.is_empty() {
        let part = left.take(AT_ONCE);
        let written = write(part.statements()).await;
        if written.is_err() {
            left.put_back(part);
            return written;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::time::Duration;

    use super::*;
    use crate::model::Status;

    fn queue(number: u8) -> QueueId {
        QueueId(ObjectId::from_bytes([number; 12]))
    }

    fn increments(statement: &Document) -> &Document {
        statement.get_document("u").unwrap().get_document("$inc").unwrap()
    }

    #[test]
    fn a_minute_has_a_document_for_each_queue_and_one_for_all() {
        let mut pending = Pending::default();
        for (number, tasks) in [(1, 2), (2, 3), (1, 5)] {
            pending.add(60_000, queue(number), |numbers| numbers.ended.add(Status::Succeeded, tasks));
        }
        pending.add(60_000, queue(2), |numbers| numbers.ran.add(Duration::from_millis(4), 1));
        let statements = pending.statements();
        let ids: Vec<&Document> = statements
            .iter()
            .map(|one| one.get_document("q").unwrap().get_document("_id").unwrap())
            .collect();
        let of = |id: Bson| doc! { "queue": id, "at": DateTime::from_millis(60_000) };
        assert_eq!(ids, [&of(Bson::Null), &of(queue(1).into()), &of(queue(2).into())]);
        assert_eq!(increments(&statements[0]), &doc! { "succeeded": 10_i64, "run_ms": 4_i64, "r5": 1_i64 });
        assert_eq!(increments(&statements[1]), &doc! { "succeeded": 7_i64 });
    }

    #[test]
    fn what_ended_on_a_node_is_in_its_document_by_queue() {
        let (node, ran) = (NodeName::new("n"), Duration::from_millis(4));
        let end = |pending: &mut Pending| {
            pending.add_on_node(60_000, &node, queue(1), |numbers| {
                numbers.ended.add(Status::Failed, 1);
                numbers.ran.add(ran, 1);
            });
        };
        let (mut before, mut pending) = (Pending::default(), Pending::default());
        end(&mut before);
        pending.sample(60_000, &node, (2, Stats::default()));
        end(&mut pending);
        pending.put_back(before);
        let statements = pending.statements();
        assert_eq!(statements.len(), 1, "it is written at once");
        let of = |name: &str| format!("queues.{}.{name}", queue(1));
        assert_eq!(
            increments(&statements[0]),
            &doc! { of("failed"): 2_i64, of("run_ms"): 8_i64, of("r5"): 2_i64 }
        );
        let set = doc! { "at": DateTime::from_millis(60_000), "running": 2_i64 };
        assert_eq!(statements[0].get_document("u").unwrap().get_document("$set").unwrap(), &set);
    }

    #[test]
    fn what_could_not_be_written_is_added_to_what_was_noted_since() {
        let (node, sample) = (NodeName::new("n"), (2, Stats::default()));
        let failed = |tasks| move |numbers: &mut Numbers| numbers.ended.add(Status::Failed, tasks);
        let mut before = Pending::default();
        before.add(0, queue(1), failed(1));
        before.sample(0, &node, sample);
        let mut pending = Pending::default();
        pending.add(0, queue(1), failed(2));
        pending.put_back(before);
        let statements = pending.statements();
        assert_eq!(statements.len(), 3);
        assert_eq!(increments(&statements[1]), &doc! { "failed": 3_i64 });
        let set = doc! { "at": DateTime::from_millis(0), "running": 2_i64 };
        assert_eq!(statements[2].get_document("u").unwrap(), &doc! { "$set": set });
    }

    #[test]
    fn no_more_waits_than_fits_and_the_oldest_is_forgotten() {
        let mut pending = Pending::default();
        // Each minute is in two documents.
        let most = i64::try_from(MOST / 2).unwrap();
        let succeeded = |numbers: &mut Numbers| numbers.ended.add(Status::Succeeded, 1);
        for minute in 10..most + 15 {
            pending.add(minute, queue(1), succeeded);
        }
        pending.add(most, queue(1), succeeded);
        assert_eq!(pending.len(), MOST, "what is known takes no place from others");
        assert_eq!((pending.queues.first_key_value().unwrap().0.0, pending.forgotten), (15, 10));
        let mut before = Pending::default();
        (0..10).for_each(|minute| before.add(minute, queue(1), succeeded));
        pending.put_back(before);
        assert_eq!(pending.queues.first_key_value().unwrap().0.0, 15, "what is newer stays");
        assert_eq!((pending.len(), pending.forgotten), (MOST, 30));
    }

    #[test]
    fn what_is_taken_out_is_not_left() {
        let mut pending = Pending::default();
        pending.add(0, queue(1), |numbers| numbers.ended.add(Status::Failed, 1));
        pending.sample(0, &NodeName::new("n"), (0, Stats::default()));
        let all = pending.statements();
        let parts = [pending.take(2), pending.take(2), pending.take(2)];
        assert_eq!(parts.each_ref().map(Pending::len), [2, 1, 0]);
        assert_eq!(parts.map(|part| part.statements()).concat(), all);
        assert!(pending.is_empty());
    }

    #[tokio::test]
    async fn what_was_acknowledged_is_not_written_again() {
        let mut left = Pending::default();
        for minute in 0..1_200 {
            let queue = QueueId(ObjectId::from_bytes([1; 12]));
            left.add(minute * 60_000, queue, |numbers| numbers.ended.add(Status::Succeeded, 1));
        }
        let all = left.statements();
        assert_eq!(all.len(), 2_400);
        let sent: RefCell<Vec<Vec<Document>>> = RefCell::default();
        let write = |statements: Vec<Document>| {
            sent.borrow_mut().push(statements);
            let has_answer = sent.borrow().len() != 2;
            async move { if has_answer { Ok(()) } else { Err(StoreError::Unconfirmed { reason: "away".into() }) } }
        };
        in_parts(&mut left, write).await.unwrap_err();
        assert_eq!(left.statements(), all[AT_ONCE..], "the part in doubt, and what was not sent");
        in_parts(&mut left, write).await.unwrap();
        assert!(left.is_empty());
        let parts: Vec<usize> = sent.borrow().iter().map(Vec::len).collect();
        assert_eq!(parts, [1_000, 1_000, 1_000, 400]);
        assert_eq!(sent.borrow()[0], all[..AT_ONCE]);
        assert_eq!(sent.borrow()[2..].concat(), all[AT_ONCE..]);
    }

    #[test]
    fn losses_are_told_once_in_a_while() {
        let (mut series, now) = (Series::default(), Instant::now());
        assert!(series.may_warn(now));
        assert!(!series.may_warn(now + SILENCE / 2));
        assert!(series.may_warn(now + SILENCE));
    }
}
