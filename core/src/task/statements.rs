//! Updates of many tasks in one command: each its own, or all the same.
//!
//! Most of what an update costs the server is per statement: it is parsed, planned and counted. So tasks whose
//! transitions are alike share a statement, whose filter lists their ids, and in which each task finds its own
//! values by its `_id`. Measured, 64 in one statement take a third of the time of 64 statements.
//!
//! A statement for many tasks ends at the first task that cannot be updated. Its tasks are then sent again, each
//! with a statement of its own, so that what is wrong with one task keeps no other from being updated.
//!
//! The server's answer has totals, not which task was updated. Where that is less than all of them, the caller
//! looks at the tasks and recognises what it has written.
//!
//! Where all get the same, a task may be as large as the server allows: an entry in its history is too much then. So what was refused is tried
//! with ever fewer tasks, until it is known which one it is about; that one ends, or is set aside ([`super::aside`]).

use std::collections::HashMap;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::raw::{RawArrayBuf, RawDocumentBuf, cstr};
use bson::{Bson, Document, doc};
use mongodb::options::{UpdateModifications, WriteConcern};

use super::transition::Transition;
use crate::model::{Status, TaskId, whole_number};
use crate::store::{Store, StoreError, collect_ids, count_of, millis, with};

/// So many tasks share a statement at most: each of them looks for its values among all.
const MOST_ALIKE: usize = 256;

/// The values of tasks that share a statement take so many bytes at most.
const MOST_ALIKE_BYTES: usize = 4_000_000;

/// A command takes so many bytes at most. The server's limit for a command that is one document is 16 MiB and
/// 16 KiB; the session and the cluster time come on top of the statements.
const MOST_BYTES: usize = 16_000_000;

/// So many statements are in one command at most, by the server's rule.
const MOST_STATEMENTS: usize = 100_000;

#[derive(Debug, Clone)]
pub(super) struct Statement {
    pub task: ObjectId,
    pub like: Document,
    pub transition: Transition,
    /// It takes a slot that one before it frees: it is made only if none before it has failed.
    pub follows: bool,
    /// The server is to make it within so long, or not at all.
    pub within: Option<Duration>,
}

impl Statement {
    pub(super) const fn of(task: ObjectId, like: Document, transition: Transition) -> Self {
        Self { task, like, transition, follows: false, within: None }
    }

    pub(super) fn alone(self) -> (Document, Vec<Document>) {
        (with(doc! { "_id": self.task }, self.like), self.transition.pipeline())
    }

    fn is_like(&self, other: &Self) -> bool {
        self.follows == other.follows
            && self.within == other.within
            && self.like == other.like
            && self.transition.is_like(&other.transition)
    }
}

#[derive(Debug, Default)]
pub(super) struct Report {
    pub complete: bool,
    /// Those that failed, by their number, and why.
    pub failures: Vec<(usize, StoreError)>,
}

impl Store {
    /// Makes all these updates. One that fails or matches nothing does not keep the others from being made.
    ///
    /// # Errors
    /// The database cannot be reached or has not confirmed the writes: any of them may have been made.
    pub(super) async fn update_tasks(
        &self,
        statements: &[Statement],
        concern: Option<&WriteConcern>,
    ) -> Result<Report, StoreError> {
        let (mut shared, mut failures) = (Vec::new(), Vec::new());
        for group in alike(statements) {
            if let Some(encoded) = Encoded::of(statements, &group)? {
                shared.push(encoded);
                continue;
            }
            // Too large to share one. In their order: what follows is not to overtake them.
            for number in group {
                match Encoded::of(statements, &[number])? {
                    Some(encoded) => shared.push(encoded),
                    None => failures.push((number, too_large())),
                }
            }
        }
        let is_unsent = |one: &Encoded| one.follows && !failures.is_empty();
        let (unsent, shared): (Vec<Encoded>, _) = shared.into_iter().partition(is_unsent);
        let sent = self.send_all(shared, concern).await?;
        let mut alone: Vec<usize> = sent.failures.into_iter().flat_map(|(numbers, _)| numbers).collect();
        alone.extend(sent.unsent);
        alone.extend(unsent.into_iter().flat_map(|one| one.numbers));
        if alone.is_empty() && failures.is_empty() {
            let complete = usize::try_from(sent.matched) == Ok(statements.len());
            return Ok(Report { complete, failures });
        }
        let (following, alone): (Vec<usize>, Vec<usize>) =
            alone.into_iter().partition(|number| statements[*number].follows);
        failures.extend(self.send_singly(statements, alone, concern).await?);
        failures.extend(if failures.is_empty() {
            self.send_singly(statements, following, concern).await?
        } else {
            let unsent = |number| (number, StoreError::unfit("what comes before it has failed"));
            following.into_iter().map(unsent).collect()
        });
        Ok(Report { complete: false, failures })
    }

    /// Sends these statements, none of which shares one. Returns those that failed.
    async fn send_singly(
        &self,
        statements: &[Statement],
        numbers: Vec<usize>,
        concern: Option<&WriteConcern>,
    ) -> Result<Vec<(usize, StoreError)>, StoreError> {
        let (mut failures, mut singly) = (Vec::new(), Vec::new());
        for number in numbers {
            match Encoded::of(statements, &[number])? {
                Some(encoded) => singly.push(Encoded { follows: false, ..encoded }),
                None => failures.push((number, too_large())),
            }
        }
        let sent = self.send_all(singly, concern).await?;
        for (numbers, failure) in sent.failures {
            failures.extend(numbers.first().map(|number| (*number, failure)));
        }
        Ok(failures)
    }

    async fn send_all(
        &self,
        statements: Vec<Encoded>,
        concern: Option<&WriteConcern>,
    ) -> Result<Sent, StoreError> {
        let mut sent = Sent::default();
        let mut command = Command::default();
        for encoded in statements {
            if !command.has_room_for(&encoded.statement) {
                self.send(std::mem::take(&mut command), concern, &mut sent).await?;
            }
            if encoded.follows && !sent.failures.is_empty() {
                sent.unsent.extend(encoded.numbers);
            } else {
                command.add(encoded);
            }
        }
        if !command.numbers.is_empty() {
            self.send(command, concern, &mut sent).await?;
        }
        Ok(sent)
    }

    async fn send(
        &self,
        command: Command,
        concern: Option<&WriteConcern>,
        sent: &mut Sent,
    ) -> Result<(), StoreError> {
        let is_ordered = command.is_ordered;
        let (command, mut numbers) = command.finish(self.tasks().name(), concern)?;
        let answer = self.database().run_raw_command(command).await;
        let answer = answer.map_err(|error| match StoreError::from(error) {
            error if error.is_out_of_time() || error.is_refusal() => StoreError::unconfirmed(error),
            error => error,
        })?;
        if let Ok(concern) = answer.get_document("writeConcernError") {
            return Err(unconfirmed(concern));
        }
        let failures = answer.get_array("writeErrors").map(Vec::as_slice).unwrap_or_default();
        for failure in failures.iter().filter_map(Bson::as_document) {
            let refused = StoreError::of_write(failure).filter(|refused| !refused.is_refusal());
            let refused = refused.ok_or_else(|| unconfirmed(failure))?;
            let index = failure.get("index").and_then(whole_number).and_then(|at| usize::try_from(at).ok());
            let index = index.filter(|at| *at < numbers.len()).ok_or_else(|| unconfirmed(failure))?;
            if is_ordered {
                sent.unsent.extend(numbers.drain(index + 1..).flatten());
            }
            sent.failures.push((std::mem::take(&mut numbers[index]), refused));
        }
        sent.matched += count_of(&answer, "n").unwrap_or(0);
        Ok(())
    }

    /// Updates those of the tasks `ids` that `still` matches. One for which the server refuses that because of what it is like
    /// ends, or is set aside, see [`Store::end_unfit`]. Returns how many were changed, without those.
    pub(crate) async fn update_each(
        &self,
        ids: Vec<Bson>,
        still: &Document,
        update: impl Into<UpdateModifications>,
    ) -> Result<u64, StoreError> {
        self.update_each_or_end((ids, still), update, Status::Terminated).await
    }

    /// The same. What cannot be changed so ends with `status`, if that is one to end with.
    pub(crate) async fn update_each_or_end(
        &self,
        (mut ids, still): (Vec<Bson>, &Document),
        update: impl Into<UpdateModifications>,
        status: Status,
    ) -> Result<u64, StoreError> {
        let update = update.into();
        let left_alone = self.left_alone();
        ids.retain(|id| !left_alone.contains(id));
        let (mut changed, mut parts) = (0, vec![ids]);
        while let Some(mut part) = parts.pop() {
            if part.is_empty() {
                continue;
            }
            let these = doc! { "$and": [{ "_id": { "$in": &part } }, still] };
            let updated = self.tasks().update_many(these, update.clone()).await.map_err(StoreError::from);
            let error = match updated {
                Ok(updated) => {
                    changed += updated.modified_count;
                    continue;
                }
                Err(error) => error,
            };
            // Some of them may have changed.
            self.doubt_counters();
            if !error.is_about_one() {
                return Err(error);
            }
            if part.len() > 1 {
                let rest = part.split_off(part.len() / 2);
                parts.extend([part, rest]);
            } else if let Some(task) = part.first().and_then(Bson::as_object_id) {
                let status = if status.has_ended() { status } else { Status::Terminated };
                self.end_unfit(TaskId(task), still, status, error).await?;
            } else {
                tracing::error!(task = ?part.first(), %error, "a task whose id is none cannot be changed: it stays as it is");
            }
        }
        Ok(changed)
    }

    /// Updates all tasks that `filter` matches with one command. Where the server refuses that because of what one is like, it sets
    /// that one aside and goes on with the others: these updates end no task. Returns how many were changed.
    pub(crate) async fn update_found(&self, filter: Document, update: Document) -> Result<u64, StoreError> {
        let updated =
            self.tasks().update_many(filter.clone(), update.clone()).await.map_err(StoreError::from);
        match updated {
            Err(error) if error.is_about_one() => {}
            updated => return Ok(updated?.modified_count),
        }
        let tasks = self.tasks();
        let found = tasks.find(self.without_left_alone(filter.clone())).projection(doc! { "_id": 1 });
        let mut changed = 0;
        for id in collect_ids(found).await? {
            let this = doc! { "$and": [{ "_id": id }, &filter] };
            match self.tasks().update_one(this, update.clone()).await.map_err(StoreError::from) {
                Ok(updated) => changed += updated.modified_count,
                Err(error) if error.is_about_one() => self.set_aside(TaskId(id), &error.to_string()).await,
                Err(error) => return Err(error),
            }
        }
        Ok(changed)
    }
}

#[derive(Debug, Default)]
struct Sent {
    matched: u64,
    /// Those that failed, by the numbers of what they were for, and why.
    failures: Vec<(Vec<usize>, StoreError)>,
    /// Those that were not sent, or not reached, as others before them failed.
    unsent: Vec<usize>,
}

struct Encoded {
    statement: RawDocumentBuf,
    follows: bool,
    within: Option<Duration>,
    numbers: Vec<usize>,
}

impl Encoded {
    /// One statement for a group. `None`: its values are too large to share one, or it is alone and larger than a command may be.
    fn of(statements: &[Statement], group: &[usize]) -> Result<Option<Self>, StoreError> {
        let Some(first) = group.first().map(|number| &statements[*number]) else { return Ok(None) };
        let (statement, most) = if group.len() == 1 {
            let (filter, update) = first.clone().alone();
            (doc! { "q": filter, "u": update, "hint": { "_id": 1 } }, MOST_BYTES)
        } else {
            let of_group = group.iter().map(|number| &statements[*number]);
            let tasks: Vec<(ObjectId, &Transition)> =
                of_group.map(|one| (one.task, &one.transition)).collect();
            let ids: Vec<ObjectId> = tasks.iter().map(|(task, _)| *task).collect();
            let filter = with(doc! { "_id": { "$in": ids } }, first.like.clone());
            let update = Transition::pipeline_of(&tasks);
            (doc! { "q": filter, "u": update, "multi": true, "hint": { "_id": 1 } }, MOST_ALIKE_BYTES)
        };
        let statement = RawDocumentBuf::try_from(&statement).map_err(unencodable)?;
        let (follows, within, numbers) = (first.follows, first.within, group.to_vec());
        Ok((statement.as_bytes().len() <= most).then_some(Self { statement, follows, within, numbers }))
    }
}

/// The numbers of statements that can share one, in groups. Those of one task stay in their order.
fn alike(statements: &[Statement]) -> Vec<Vec<usize>> {
    let mut groups: Vec<Vec<usize>> = Vec::new();
    // Behind which group the next statement of a task must be.
    let mut behind: HashMap<ObjectId, usize> = HashMap::new();
    for (number, statement) in statements.iter().enumerate() {
        let first = behind.get(&statement.task).map_or(0, |group| group + 1);
        let fits = |group: &Vec<usize>| {
            group.len() < MOST_ALIKE && group.first().is_some_and(|one| statements[*one].is_like(statement))
        };
        let at = (first..groups.len()).rev().find(|at| fits(&groups[*at])).unwrap_or_else(|| {
            groups.push(Vec::new());
            groups.len() - 1
        });
        groups[at].push(number);
        behind.insert(statement.task, at);
    }
    groups
}

fn too_large() -> StoreError {
    StoreError::unfit("the update is larger than a command may be")
}

#[derive(Default)]
struct Command {
    statements: RawArrayBuf,
    numbers: Vec<Vec<usize>>,
    bytes: usize,
    /// It ends at the first statement that fails: one of them is to follow others only if these were made.
    is_ordered: bool,
    within: Option<Duration>,
}

impl Command {
    fn has_room_for(&self, statement: &RawDocumentBuf) -> bool {
        self.numbers.is_empty()
            || (self.numbers.len() < MOST_STATEMENTS && self.bytes + size_of(statement) <= MOST_BYTES)
    }

    fn add(&mut self, encoded: Encoded) {
        self.bytes += size_of(&encoded.statement);
        self.statements.push(encoded.statement);
        self.numbers.push(encoded.numbers);
        self.is_ordered |= encoded.follows;
        self.within = self.within.into_iter().chain(encoded.within).min();
    }

    fn finish(
        self,
        collection: &str,
        concern: Option<&WriteConcern>,
    ) -> Result<(RawDocumentBuf, Vec<Vec<usize>>), StoreError> {
        let mut command = RawDocumentBuf::new();
        command.append(cstr!("update"), collection);
        command.append(cstr!("updates"), self.statements);
        command.append(cstr!("ordered"), self.is_ordered);
        if let Some(within) = self.within {
            command.append(cstr!("maxTimeMS"), millis(within));
        }
        if let Some(concern) = concern {
            let concern = bson::serialize_to_raw_document_buf(concern).map_err(unencodable)?;
            command.append(cstr!("writeConcern"), concern);
        }
        Ok((command, self.numbers))
    }
}

/// In an array, an element has a type, its number as text, and its value.
fn size_of(statement: &RawDocumentBuf) -> usize {
    statement.as_bytes().len() + 8
}

fn unconfirmed(failure: &Document) -> StoreError {
    StoreError::unconfirmed(failure.get_str("errmsg").unwrap_or("the server says no more"))
}

fn unencodable(error: bson::error::Error) -> StoreError {
    StoreError::Database(error.into())
}

#[cfg(test)]
mod tests {
    use bson::DateTime;
    use proptest::prelude::*;

    use super::*;

    fn statement(task: u8, kind: u8) -> Statement {
        let transition = match kind {
            0 => Transition::within().set("progress", i32::from(task)),
            1 => Transition::to(Status::Running, DateTime::from_millis(1)).set("pid", i32::from(task)),
            _ => Transition::to(Status::Succeeded, DateTime::from_millis(2)).end_of_run(),
        };
        Statement::of(ObjectId::from_bytes([task; 12]), doc! { "attempt": 1 }, transition)
    }

    proptest! {
        #[test]
        fn all_are_in_one_group_and_those_of_a_task_in_order(
            of in prop::collection::vec((0u8..6, 0u8..3), 0..40),
        ) {
            let statements: Vec<_> = of.iter().map(|(task, kind)| statement(*task, *kind)).collect();
            let groups = alike(&statements);
            let mut all: Vec<usize> = groups.concat();
            for group in &groups {
                prop_assert!(group.iter().all(|one| statements[*one].is_like(&statements[group[0]])));
            }
            for task in 0..6 {
                let numbers: Vec<usize> =
                    all.iter().copied().filter(|number| of[*number].0 == task).collect();
                prop_assert!(numbers.is_sorted(), "{numbers:?}");
                for group in &groups {
                    prop_assert!(group.iter().filter(|number| of[**number].0 == task).count() <= 1);
                }
            }
            all.sort_unstable();
            prop_assert_eq!(all, (0..statements.len()).collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_is_alike_shares_a_statement() {
        let statements: Vec<_> = (0..200).map(|task| statement(task, 1)).collect();
        assert_eq!(alike(&statements).len(), 1);
    }
}
