//! Inserts the tasks of a note.
//!
//! Of many tasks the note says, a batch after the other, which are there (`next`). The server inserts those of a batch in the operation in
//! which it sees that the note is pending and has come to this batch, and until it has come to the next one, or is done, they are in
//! doubt and so in `tasks`. So none is made again that has ended and left, however late somebody inserts it.
//!
//! **Tasks in doubt** are those that whoever submits them may have inserted without having noted it, so that somebody may insert them once more.
//! They do not leave `tasks` before that is noted, which is where the server finds them then. So the two carry the same
//! invariant: a task is inserted only in an operation that sees it in doubt, and it leaves only when it is not any more, which is for good.
//!
//! In doubt are a batch of each submission with an idempotency key that is not done ([`super::idempotency`]), and of each array that is being filled
//! ([`crate::arrays`]). What nobody completes is in doubt for as long as the key is remembered.

use std::collections::HashSet;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_metrics::labels::Source;

use super::idempotency::Note;
use super::insert::Cause;
use super::{BATCH, SubmitError, TaskOptions, Template, blocked};
use crate::admission::Admitted;
use crate::arrays;
use crate::budget;
use crate::model::{QueueId, Status, TaskId};
use crate::store::{Store, StoreError, collect, ids_in, integer, with};

/// The tasks that are inserted in one operation have so many bytes together at most, unless a single one has more: they are copied on the
/// way, and their command has a limit.
const MOST_BYTES: usize = 4 * 1024 * 1024;

impl Store {
    /// Inserts those tasks of `note` that are not there yet; the first `done` were. If there are not to be any, the note goes too.
    pub(super) async fn complete(
        &self,
        queue: QueueId,
        note: &Note,
        (params, done): (Vec<Document>, usize),
        (options, admitted): (&TaskOptions, &Admitted),
    ) -> Result<(), SubmitError> {
        let inserted = self.insert_missing(queue, note, (params, done), (options, admitted)).await;
        if let Err(SubmitError::NotUnique { .. } | SubmitError::UniqueForSeveral) = &inserted {
            self.forget_note(&note.id).await?;
        }
        inserted
    }

    async fn insert_missing(
        &self,
        queue: QueueId,
        note: &Note,
        (params, mut done): (Vec<Document>, usize),
        (options, admitted): (&TaskOptions, &Admitted),
    ) -> Result<(), SubmitError> {
        let template = self.template(queue, options, note.ids.len()).await?;
        let mut tasks = template.tasks(note.ids.iter().copied().zip(params), admitted).skip(done);
        let (mut next, mut any_blocked) = (note.next, false);
        loop {
            let batch: Vec<Document> = tasks.by_ref().take(BATCH).collect();
            if batch.is_empty() {
                break;
            }
            let (count, blocked) = (batch.len(), blocked(&batch));
            any_blocked |= blocked > 0;
            let are_new = self.insert_noted(&template, pending_at(&note.id, next), batch).await?;
            done += count;
            // The last ones are there when the note is done.
            let is_noted = done == note.ids.len() || self.move_note_on(&note.id, next, next + count).await?;
            next += count;
            if are_new && is_noted {
                self.submitted(queue, Some(template.status), count as u64 - blocked, Source::Api);
                self.submitted(queue, Some(Status::Blocked), blocked, Source::Api);
            } else {
                // Which of them are there from before, and counted, nobody knows.
                self.doubt_counters();
            }
        }
        if any_blocked {
            let ids: Vec<TaskId> = note.ids.iter().copied().map(TaskId).collect();
            self.link_at_once(&ids).await;
        }
        Ok(())
    }

    /// Inserts those tasks of a batch that are not there, if the note is still like this. Returns whether all of them are new.
    async fn insert_noted(
        &self,
        template: &Template,
        note: Document,
        mut batch: Vec<Document>,
    ) -> Result<bool, SubmitError> {
        if let Ok(key) = template.fields.get_str("unique") {
            return self.insert_unique(template.queue, key, batch, Cause::Note(note)).await;
        }
        let mut are_new = true;
        while !batch.is_empty() {
            let rest = batch.split_off(fitting(&batch));
            let inserted = self.insert_missing_because(&self.submissions(), &note, batch).await;
            are_new &= inserted.inspect_err(|_| self.doubt_counters())?;
            batch = rest;
        }
        Ok(are_new)
    }

    /// Notes that all tasks up to this one are there, unless somebody else has noted as much. Returns whether it was so.
    pub(super) async fn move_note_on(&self, note: &Bson, from: usize, to: usize) -> Result<bool, StoreError> {
        let update = doc! { "$set": { "next": integer(to) } };
        Ok(self.submissions().update_one(pending_at(note, from), update).await?.matched_count == 1)
    }

    /// The ids of tasks in doubt of a queue. Not all of them are there.
    pub(in crate::task) async fn in_doubt(&self, queue: QueueId) -> Result<HashSet<ObjectId>, StoreError> {
        self.doubted(doc! { "queue": queue }, None).await
    }

    pub(in crate::task) async fn out_of_doubt(&self, ids: &[TaskId]) -> Result<Vec<ObjectId>, StoreError> {
        let ids: Vec<ObjectId> = ids.iter().map(|id| id.0).collect();
        let in_doubt = self.doubted(Document::new(), Some(&ids)).await?;
        Ok(ids.into_iter().filter(|id| !in_doubt.contains(id)).collect())
    }

    /// Those in doubt of notes and arrays that are like this, of `among` if that is given.
    async fn doubted(
        &self,
        like: Document,
        among: Option<&[ObjectId]>,
    ) -> Result<HashSet<ObjectId>, StoreError> {
        let batch = doc! { "$slice": ["$ids", { "$ifNull": ["$next", 0] }, integer(BATCH)] };
        let ids = match among {
            Some(among) => doc! { "$setIntersection": [batch, { "$literal": among }] },
            None => batch,
        };
        let notes = [
            doc! { "$match": with(doc! { "state": "pending" }, like.clone()) },
            doc! { "$project": { "ids": ids } },
        ];
        let notes = collect(self.submissions().aggregate(notes)).await?;
        let filling = with(doc! { "work": true, "filling": true }, like);
        let only = doc! { "next_index": 1, "count": 1 };
        let filling = collect(self.arrays().find(filling).projection(only)).await?;
        let mut ids: HashSet<ObjectId> = notes.iter().flat_map(|note| ids_in(note, "ids")).collect();
        ids.extend(filling.iter().flat_map(arrays::in_doubt));
        Ok(ids)
    }
}

/// Matches a note as long as so many of its tasks are known to be there. Nothing is noted before the second batch.
fn pending_at(note: &Bson, next: usize) -> Document {
    doc! { "_id": note, "state": "pending", "next": (next > 0).then(|| integer(next)) }
}

/// How many of these tasks are inserted in one operation: one at least.
fn fitting(tasks: &[Document]) -> usize {
    if tasks.len() == 1 {
        return 1; // It may be large.
    }
    let mut bytes = 0_usize;
    let fits = |task: &&Document| {
        bytes = bytes.saturating_add(budget::size(task).unwrap_or(MOST_BYTES));
        bytes <= MOST_BYTES
    };
    tasks.iter().take_while(fits).count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_bytes_are_inserted_in_several_operations() {
        let task = |bytes: usize| doc! { "params": { "text": "x".repeat(bytes) } };
        let third = vec![task(MOST_BYTES / 3 - 100); 7];
        assert_eq!([&third[..], &third[..2], &third[..1]].map(fitting), [3, 2, 1]);
        assert_eq!(fitting(&[task(MOST_BYTES), task(1)]), 1, "one at least");
        assert_eq!(fitting(&[task(1), task(MOST_BYTES), task(1)]), 1);
    }

    #[test]
    fn a_note_is_known_by_how_far_it_has_come() {
        let note = Bson::from("k");
        assert_eq!(pending_at(&note, 0), doc! { "_id": "k", "state": "pending", "next": Bson::Null });
        assert_eq!(pending_at(&note, 1_000), doc! { "_id": "k", "state": "pending", "next": 1_000_i64 });
    }
}
