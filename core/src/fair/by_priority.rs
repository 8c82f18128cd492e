//! Claims of a queue that goes by priority.

use disbatch_operation::operation;
use std::collections::HashSet;
use std::time::Instant;

use bson::oid::ObjectId;
use bson::{Document, RawDocumentBuf, doc};
use futures::TryStreamExt;
use mongodb::Collection;
use mongodb::options::Hint;

use super::order::Candidate;
use super::priority_window::{Call, Ranked, Reading};
use super::read::{candidate, has_no_priority};
use super::settings::Settings;
use crate::model::{Queue, Status};
use crate::store::collections::TASKS;
use crate::store::error::is_no_index;
use crate::store::{Store, StoreError};
use crate::task::{Batch, ClaimOutcome, Claimant, MOST_ALONE, MOST_PASSES, Slot, Try};

/// The index of tasks that wait and have a priority. The status is the same for all of them, as in that of groups.
pub(crate) fn index_of_priorities() -> Document {
    doc! { "queue": 1, "status": 1, "priority": -1, "_id": 1 }
}

/// A task that is to be claimed, and whether it has no priority.
type Choice = (Candidate, bool);

impl Store {
    /// Claims tasks of a queue that goes by priority, one for each of `slots` at most. See [`Store::claim_tasks`].
    ///
    /// # Errors
    /// The database cannot be reached. Some of the tasks may have been claimed.
    pub(crate) async fn claim_by_priority(
        &self,
        queue: &Queue,
        claimant: &Claimant,
        slots: &[Slot],
        ranked: &mut Ranked,
    ) -> Result<Batch, StoreError> {
        let settings = Settings::of(queue);
        ranked.keep_to(settings.scheme.as_ref());
        let mut call = Call::of(slots.len());
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
            let rest = slots.split_off(choices.len().min(slots.len()));
            let try_one =
                |((task, _), slot): (&Choice, Slot)| Try { task: task.task, slot, group_slot: None };
            let tries: Vec<Try> = choices.iter().zip(slots).map(try_one).collect();
            slots = rest;
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
        let mut filter = doc! { "queue": queue.id, "status": Status::Queued };
        filter.extend(reading.filter.clone());
        let tasks: Collection<RawDocumentBuf> = self.tasks().clone_with_type();
        let limit = i64::try_from(reading.limit).unwrap_or(i64::MAX);
        let find = || {
            let only = doc! { "_id": 1, "priority": 1 };
            let order = doc! { "priority": -1, "_id": 1 };
            tasks.find(filter.clone()).projection(only).sort(order).limit(limit)
        };
        let found = match find().hint(Hint::Keys(index_of_priorities())).await {
            // Nobody has created it yet: the server finds another way.
            Err(error) if is_no_index(&error) => find().await?,
            found => found?,
        };
        let found: Vec<RawDocumentBuf> = found.try_collect().await?;
        Ok(found.iter().filter_map(candidate).collect())
    }

    /// How the server finds the next tasks of a queue that goes by priority.
    #[operation]
    pub async fn explain_priorities(&self, queue: &Queue) -> Result<Document, StoreError> {
        let mut ranked = Ranked::default();
        ranked.keep_to(None);
        let mut filter = doc! { "queue": queue.id, "status": Status::Queued };
        if let Some(reading) = ranked.reading(&Call::of(1), 1, Instant::now()) {
            filter.extend(reading.filter);
        }
        let find = doc! {
            "find": TASKS.name, "filter": filter, "projection": { "_id": 1, "priority": 1 },
            "sort": { "priority": -1, "_id": 1 }, "limit": 10, "hint": index_of_priorities(),
        };
        Ok(self.database().run_command(doc! { "explain": find, "verbosity": "executionStats" }).await?)
    }
}

/// Notes what came of tries.
fn settle(ranked: &mut Ranked, choices: &[Choice], outcome: &ClaimOutcome) {
    let now = Instant::now();
    for lost in &outcome.lost {
        ranked.skip(lost.task, now);
    }
    let refused: HashSet<ObjectId> = outcome.refused.iter().map(|refused| refused.task).collect();
    // The first one ends at the front again.
    for (task, is_plain) in choices.iter().rev().filter(|(task, _)| refused.contains(&task.task)) {
        ranked.put_back(*task, *is_plain);
    }
    ranked.spread.met_others(choices.len(), outcome.lost.len());
}
