//! Queues that go by priority: their claims, and what a DEN has read of them. Tasks with the highest priority come first, and
//! of these the oldest.
//!
//! The index has them in this order, so they are read ahead past a mark, as in [`crate::task::Ahead`], and from the start again
//! about once a second: a new task with a high priority waits for so long at most, or less where a hint tells of it. With a
//! scheme, each class is read by itself.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use bson::oid::ObjectId;
use bson::{Document, doc};

use super::Settings;
use super::order::{Candidate, Range, Scheme};
use super::read::{any_id, candidate, has_no_priority};
use super::unindexed_tasks::{self, Plain};
use super::window::{SKIPPED, Spread, is_due};
use crate::clock::chance;
use crate::model::{Queue, Status};
use crate::store::{Store, StoreError, with};
use crate::task::{Batch, ClaimOutcome, Claimant, MOST_ALONE, MOST_PASSES, Slot, Try};

/// So many are read at once, at least.
const RUN: usize = 64;

/// How long what is behind the mark waits, at least and at most.
const AGAIN: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(10));

/// The priority of tasks that have none.
const NONE: i64 = 0;

/// The index of tasks that wait and have a priority. The status is the same for all of them, as in that of groups.
pub(crate) fn index_of_priorities() -> Document {
    doc! { "queue": 1, "status": 1, "priority": -1, "_id": 1 }
}

/// A task that is to be claimed, and whether it has no priority.
type Choice = (Candidate, bool);

impl Store {
    /// Claims tasks of a queue that goes by priority, one for each of `slots` at most. See [`Store::claim_tasks`].
    pub(crate) async fn claim_by_priority(
        &self,
        queue: &Queue,
        claimant: &Claimant,
        slots: &[Slot],
        ranked: &mut Ranked,
    ) -> Result<Batch, StoreError> {
        let settings = Settings::of(queue);
        ranked.keep_to(settings.scheme.as_ref());
        let mut call = Call::default();
        let mut batch = Batch::default();
        let mut slots = slots.to_vec();
        for _ in 0..MOST_PASSES {
            if slots.is_empty() {
                break;
            }
            self.read_ranked(queue, &mut call, ranked, slots.len()).await?;
            let choices = self.choose_ranked(queue, &settings, ranked, slots.len()).await?;
            if choices.is_empty() {
                batch.exhausted = ranked.is_exhausted(&call);
                break;
            }
            let tried = slots.drain(..choices.len().min(slots.len()));
            let try_one =
                |((task, _), slot): (&Choice, Slot)| Try { task: task.task, slot, group_slot: None };
            let tries: Vec<Try> = choices.iter().zip(tried).map(try_one).collect();
            let outcome = self.try_claims(queue, claimant, (tries, MOST_ALONE)).await;
            // Of a claim without an answer nobody knows whether it was made.
            let outcome = outcome.inspect_err(|_| self.doubt_counters())?;
            settle(ranked, &choices, &outcome);
            slots.extend(outcome.lost.iter().map(|lost| lost.slot));
            batch.taken.extend(outcome.refused.iter().map(|refused| refused.slot.number));
            batch.claims.extend(outcome.claims);
        }
        Ok(batch)
    }

    async fn read_ranked(
        &self,
        queue: &Queue,
        call: &mut Call,
        ranked: &mut Ranked,
        wanted: usize,
    ) -> Result<(), StoreError> {
        while let Some(reading) = ranked.reading(call, wanted, Instant::now()) {
            let began = Instant::now();
            let tasks = self.ranked_tasks(queue, &reading).await?;
            ranked.read(call, &reading, tasks, (began, Instant::now()));
        }
        call.plain.want(wanted, ranked.has_ranked());
        while let Some(reading) = ranked.plain.reading(&mut call.plain, Instant::now()) {
            let began = Instant::now();
            let (tasks, last, found) = self.plain_tasks(queue, reading, has_no_priority).await?;
            ranked.plain.read(&mut call.plain, (reading.limit, last, tasks), found, (began, Instant::now()));
        }
        Ok(())
    }

    /// The next tasks, `wanted` at most. With a scheme, they are of the classes whose turns these are, over all DENs.
    async fn choose_ranked(
        &self,
        queue: &Queue,
        settings: &Settings,
        ranked: &mut Ranked,
        wanted: usize,
    ) -> Result<Vec<Choice>, StoreError> {
        let plain: HashSet<ObjectId> = ranked.plain.found.iter().map(|task| task.task).collect();
        if plain.is_empty() && !ranked.has_ranked() {
            return Ok(Vec::new());
        }
        let first = match settings.scheme {
            Some(_) => self.rounds(queue.id, wanted).await?,
            None => 0,
        };
        let classes = ranked.classes(first, wanted);
        let tasks = classes.into_iter().map_while(|class| ranked.next(class));
        Ok(tasks.map(|task| (task, plain.contains(&task.task))).collect())
    }

    async fn ranked_tasks(&self, queue: &Queue, reading: &Reading) -> Result<Vec<Candidate>, StoreError> {
        let filter = doc! { "queue": queue.id, "status": Status::Queued };
        let filter = with(filter, reading.filter.clone());
        let only = doc! { "_id": 1, "priority": 1 };
        let order = doc! { "priority": -1, "_id": 1 };
        let found = self.by_index(index_of_priorities(), filter, only, order, reading.limit).await?;
        Ok(found.iter().filter_map(candidate).collect())
    }
}

fn settle(ranked: &mut Ranked, choices: &[Choice], outcome: &ClaimOutcome) {
    let now = Instant::now();
    for lost in &outcome.lost {
        // It is gone, or odd.
        ranked.skipped.insert(lost.task, now);
    }
    let refused: HashSet<ObjectId> = outcome.refused.iter().map(|refused| refused.task).collect();
    // The first one ends at the front again.
    for (task, is_plain) in choices.iter().rev().filter(|(task, _)| refused.contains(&task.task)) {
        ranked.put_back(*task, *is_plain);
    }
    ranked.spread.met_others(choices.len(), outcome.lost.len());
}

#[derive(Debug, Default)]
pub(crate) struct Ranked {
    lines: Vec<Line>,
    plain: Plain,
    spread: Spread,
    scheme: Option<Scheme>,
    skipped: HashMap<ObjectId, Instant>,
}

/// Tasks of some priorities.
#[derive(Debug, Default)]
struct Line {
    range: Range,
    /// Read and not tried yet, in order.
    tasks: Vec<Candidate>,
    mark: Option<(i64, ObjectId)>,
    /// There is nothing behind the mark.
    at_end: bool,
    /// When it was read from the start, and how long that took.
    scanned: Option<(Instant, Duration)>,
    stale: bool,
}

#[derive(Debug, Clone, PartialEq)]
struct Reading {
    pub line: usize,
    /// Which tasks, besides the queue and its status.
    pub filter: Document,
    pub limit: usize,
    from_start: bool,
}

#[derive(Debug, Default)]
struct Call {
    pub plain: unindexed_tasks::Search,
    /// Lines that were read from the start.
    scanned: Vec<usize>,
}

impl Ranked {
    /// Something may have been put back, or is new.
    pub fn look_back(&mut self) {
        self.lines.iter_mut().for_each(|line| line.stale = true);
        self.plain.look_back();
    }

    fn keep_to(&mut self, scheme: Option<&Scheme>) {
        if self.lines.is_empty() || self.scheme.as_ref() != scheme {
            let ranges: Vec<Range> = match scheme {
                Some(scheme) => (0..scheme.times().len()).map(|class| scheme.range(class)).collect(),
                None => vec![Range::default()],
            };
            self.lines = ranges.into_iter().map(|range| Line { range, ..Line::default() }).collect();
            self.scheme = scheme.cloned();
        }
    }

    /// Which classes the next tasks are to be of, from a round on.
    fn classes(&self, first: i64, wanted: usize) -> Vec<usize> {
        let class = |round| self.scheme.as_ref().map_or(0, |scheme| scheme.preferred(round));
        (first..).take(wanted).map(class).collect()
    }

    /// What is to be read next, if so many tasks may be needed of each line.
    fn reading(&self, call: &Call, wanted: usize, now: Instant) -> Option<Reading> {
        let limit = wanted.max(RUN) + self.spread.distance();
        self.lines.iter().enumerate().find_map(|(number, line)| {
            let had = call.scanned.contains(&number);
            let from_start = !had && line.is_due(now);
            let goes_on = line.tasks.len() < wanted + self.spread.distance() && !line.at_end;
            let past = line.mark.filter(|_| !from_start);
            (from_start || goes_on).then(|| Reading {
                line: number,
                filter: line.filter(past),
                limit,
                from_start: past.is_none(),
            })
        })
    }

    fn read(
        &mut self,
        call: &mut Call,
        reading: &Reading,
        tasks: Vec<Candidate>,
        (began, ended): (Instant, Instant),
    ) {
        self.skipped.retain(|_, at| ended.saturating_duration_since(*at) < SKIPPED);
        let Some(line) = self.lines.get_mut(reading.line) else { return };
        if reading.from_start {
            call.scanned.push(reading.line);
            line.scanned = Some((ended, ended.saturating_duration_since(began)));
            line.stale = false;
            line.tasks.clear();
            line.mark = None;
        }
        line.at_end = tasks.len() < reading.limit;
        line.mark = tasks.last().map(|task| (task.priority, task.task)).or(line.mark);
        let skipped = &self.skipped;
        line.tasks.extend(tasks.into_iter().filter(|task| !skipped.contains_key(&task.task)));
    }

    fn has_ranked(&self) -> bool {
        self.lines.iter().any(|line| !line.tasks.is_empty())
    }

    /// The next task of a class, or of the highest that has any.
    fn next(&mut self, class: usize) -> Option<Candidate> {
        std::iter::once(class).chain(0..self.lines.len()).find_map(|class| self.next_of(class))
    }

    fn next_of(&mut self, class: usize) -> Option<Candidate> {
        let line = self.lines.get_mut(class)?;
        let plain = self.plain.found.first().filter(|_| line.range.has(NONE));
        let is_plain = match (line.tasks.first(), plain) {
            (Some(ranked), Some(plain)) => (ranked.priority, plain.task) < (NONE, ranked.task),
            (None, Some(_)) => true,
            (_, None) => false,
        };
        let tasks = if is_plain { &mut self.plain.found } else { &mut line.tasks };
        let priority = tasks.first()?.priority;
        // Any of those with the same priority may be the next.
        let alike =
            tasks.iter().take(self.spread.distance() + 1).take_while(|task| task.priority == priority);
        let at = self.spread.pick(alike.count(), chance());
        Some(tasks.remove(at))
    }

    /// A task was not claimed, and still may be.
    fn put_back(&mut self, task: Candidate, is_plain: bool) {
        if is_plain {
            self.plain.found.insert(0, task);
        } else if let Some(line) = self.lines.iter_mut().find(|line| line.range.has(task.priority)) {
            line.tasks.insert(0, task);
        }
    }

    /// Whether the queue has nothing to claim, as far as `call` could tell.
    fn is_exhausted(&self, call: &Call) -> bool {
        let is_empty = |(number, line): (usize, &Line)| {
            line.tasks.is_empty() && line.at_end && call.scanned.contains(&number)
        };
        self.lines.iter().enumerate().all(is_empty) && self.plain.is_exhausted(&call.plain)
    }
}

impl Line {
    /// Whether it is to be read from the start.
    fn is_due(&self, now: Instant) -> bool {
        is_due(self.scanned, AGAIN, self.stale || (self.tasks.is_empty() && self.at_end), now)
    }

    /// Matches its tasks, past one of them if that is said.
    fn filter(&self, past: Option<(i64, ObjectId)>) -> Document {
        let least = self.range.least.unwrap_or(i64::MIN);
        match past {
            None => doc! {
                "priority": { "$gte": least, "$lte": self.range.most.unwrap_or(i64::MAX) }, "_id": any_id(),
            },
            Some((priority, task)) => doc! { "$or": [
                { "priority": priority, "_id": { "$gt": task } },
                { "priority": { "$gte": least, "$lt": priority }, "_id": any_id() },
            ] },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn task(number: u8, priority: i64) -> Candidate {
        Candidate { task: ObjectId::from_bytes([number; 12]), priority, again: false }
    }

    /// Has all of `tasks` read that the lines ask for.
    fn read(ranked: &mut Ranked, call: &mut Call, tasks: &[Candidate], now: Instant) {
        let mut readings = 0;
        while let Some(reading) = ranked.reading(call, 100, now) {
            readings += 1;
            assert!(readings < 20, "{reading:?}");
            let line = &ranked.lines[reading.line];
            let past = |task: &Candidate| match line.mark.filter(|_| !reading.from_start) {
                Some((priority, id)) => (-task.priority, task.task) > (-priority, id),
                None => true,
            };
            let mut of_line: Vec<Candidate> =
                tasks.iter().filter(|task| line.range.has(task.priority) && past(task)).copied().collect();
            of_line.sort_by_key(|task| (-task.priority, task.task));
            of_line.truncate(reading.limit);
            ranked.read(call, &reading, of_line, (now, now));
        }
    }

    fn order(ranked: &mut Ranked, first: i64, number: usize) -> Vec<u8> {
        let classes = ranked.classes(first, number);
        classes.into_iter().filter_map(|class| ranked.next(class)).map(|task| task.task.bytes()[0]).collect()
    }

    #[test]
    fn the_highest_priority_comes_first_and_those_without_are_between() {
        let mut ranked = Ranked::default();
        ranked.keep_to(None);
        let mut call = Call::default();
        let tasks = [task(9, 5), task(3, 5), task(2, -1), task(5, 0), task(4, 900)];
        read(&mut ranked, &mut call, &tasks, Instant::now());
        ranked.plain.found = vec![task(1, 0), task(7, 0)];
        assert_eq!(order(&mut ranked, 0, 9), [4, 3, 9, 1, 5, 7, 2]);
    }

    #[test]
    fn a_scheme_lets_the_lower_ones_have_their_turns() {
        let mut ranked = Ranked::default();
        let scheme = Scheme::new(vec![2, 1]);
        ranked.keep_to(scheme.as_ref());
        let mut call = Call::default();
        let mut tasks: Vec<Candidate> = (1..=5).map(|number| task(number, 3)).collect();
        tasks.push(task(11, -2));
        read(&mut ranked, &mut call, &tasks, Instant::now());
        ranked.plain.found = vec![task(12, 0)];
        assert_eq!(order(&mut ranked, 0, 9), [1, 2, 12, 3, 4, 11, 5]);
        let scanned = call.scanned.clone();
        assert_eq!(scanned, [0, 1]);
    }

    #[test]
    fn it_is_read_on_past_the_mark_and_from_the_start_again() {
        let (mut ranked, begin) = (Ranked::default(), Instant::now());
        ranked.keep_to(None);
        let mut tasks: Vec<Candidate> = (1..=250).map(|number| task(number, 1)).collect();
        let mut call = Call::default();
        read(&mut ranked, &mut call, &tasks, begin);
        assert_eq!(order(&mut ranked, 0, 90), (1..=90).collect::<Vec<u8>>());
        tasks.drain(..90);
        tasks.push(task(251, 2));
        let mut call = Call::default();
        read(&mut ranked, &mut call, &tasks, begin + Duration::from_millis(500));
        assert!(call.scanned.is_empty());
        assert_eq!(order(&mut ranked, 0, 2), [91, 92], "what is new is not known yet");
        tasks.drain(..2);
        read(&mut ranked, &mut Call::default(), &tasks, begin + AGAIN.0);
        assert_eq!(order(&mut ranked, 0, 2), [251, 93]);
        let mut call = Call::default();
        ranked.look_back();
        read(&mut ranked, &mut call, &[], begin + AGAIN.0);
        assert!(order(&mut ranked, 0, 2).is_empty());
        assert!(!ranked.is_exhausted(&call), "those without a priority have not been looked for");
    }

    #[test]
    fn what_cannot_be_claimed_does_not_stand_in_the_way() {
        let (mut ranked, now) = (Ranked::default(), Instant::now());
        ranked.keep_to(None);
        ranked.skipped.insert(task(1, 9).task, now);
        read(&mut ranked, &mut Call::default(), &[task(1, 9), task(2, 1)], now);
        assert_eq!(order(&mut ranked, 0, 2), [2]);
        ranked.put_back(task(2, 1), false);
        ranked.put_back(task(3, 0), true);
        assert_eq!(order(&mut ranked, 0, 9), [2, 3]);
        ranked.look_back();
        read(&mut ranked, &mut Call::default(), &[task(1, 9)], now + SKIPPED);
        assert_eq!(order(&mut ranked, 0, 2), [1]);
    }
}
