//! Moving what is in the inbox.

use std::collections::HashSet;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, RawDocumentBuf, doc};
use disbatch_operation::operation;
use futures::future::OptionFuture;
use futures::{FutureExt, TryStreamExt};

use super::judge::{Fate, Group, QueueCache, Refusal, Refused, id_of};
use super::{LEFT, NO_QUEUE, REFUSED};
use crate::model::document::readable;
use crate::model::{Status, TRACE, TaskId, TraceContext};
use crate::schema::Schemas;
use crate::store::collections::{ARCHIVE, TASKS, TOMBSTONES};
use crate::store::{Store, StoreError, put};
use crate::task::{Given, SubmitError};

/// So many documents are moved at once.
const BATCH: i64 = 1_000;

/// Of large ones fewer: so many bytes at most, and one more.
const BATCH_BYTES: usize = 8 << 20;

/// What was left for so long is refused: milliseconds.
const GIVEN_UP_AFTER: i64 = 60 * 60 * 1000;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Moved {
    pub tasks: u64,
    pub refused: u64,
}

/// Documents that have been read, and what is to become of them.
#[derive(Debug, Default)]
struct Judged {
    documents: Vec<Document>,
    /// Those of their tasks that were there already.
    there: HashSet<ObjectId>,
    groups: Vec<Group>,
    refused: Vec<Refused>,
    unknown: Vec<Refused>,
    /// What ids others have that are to be read, unless there are no more.
    others: Option<Document>,
}

#[derive(Debug, Default)]
struct Round {
    moved: Moved,
    /// What only a later release may understand.
    unknown: Vec<Refused>,
    /// What comes after tasks that are in the inbox.
    behind: Vec<Refused>,
    /// Documents whose tasks are there, known to a majority: they can go.
    done: Vec<Bson>,
}

#[derive(Debug, Default)]
struct Pass {
    moved: Moved,
    unknown: usize,
    behind: usize,
}

impl Moved {
    fn add(&mut self, more: Self) {
        self.tasks += more.tasks;
        self.refused += more.refused;
    }
}

impl Store {
    #[operation]
    pub async fn may_move_inbox(&self) -> Result<bool, StoreError> {
        let nothing = doc! { "_id": { "$in": [] } };
        Ok(StoreError::unless_forbidden(self.inbox().delete_many(nothing).await)?.is_some())
    }

    /// Makes tasks of what is in the inbox and was not left, any number of DENs at once. `schemas`: what plugins want of parameters, as far
    /// as that is known here. `told`: a new document, with which it begins, while the others are read.
    ///
    /// # Errors
    /// The database cannot be reached, or this user has no right to tasks. What was done by then is done.
    #[operation]
    pub async fn move_inbox(
        &self,
        schemas: &Schemas,
        mut told: Option<Document>,
    ) -> Result<Moved, StoreError> {
        let mut all = Moved::default();
        let mut leaves_behind = false;
        loop {
            let Pass { moved, unknown, behind } = self.pass(schemas, leaves_behind, told.take()).await?;
            all.add(moved);
            if behind == 0 || leaves_behind {
                return Ok(all);
            }
            // What it comes after may have been moved in this pass. If nothing was, it is left.
            leaves_behind = moved == Moved::default() && unknown == 0;
        }
    }

    /// Goes through all of the inbox once: what was told of, and the others in the order of their ids. While tasks are made of some
    /// documents, the next ones are read, and those before are removed.
    async fn pass(
        &self,
        schemas: &Schemas,
        leaves_behind: bool,
        told: Option<Document>,
    ) -> Result<Pass, StoreError> {
        let mut pass = Pass::default();
        let mut next = Some(match told {
            Some(told) => {
                let others = doc! { "$ne": told.get("_id") };
                Judged { others: Some(others), ..self.judge_all(vec![told], schemas).await? }
            }
            None => self.judge_some(doc! { LEFT: Bson::Null }, schemas).await?,
        });
        let mut done = Vec::new();
        while let Some(judged) = next {
            let others = judged.others.clone().map(|others| doc! { LEFT: Bson::Null, "_id": others });
            let ahead = OptionFuture::from(others.map(|others| self.judge_some(others, schemas)));
            let ahead = ahead.map(Option::transpose);
            let removed = self.remove_moved(std::mem::take(&mut done));
            let (round, ahead, ()) = futures::try_join!(self.move_judged(&judged), ahead, removed)?;
            self.leave_in_inbox(&round.unknown).await?;
            if leaves_behind {
                self.leave_in_inbox(&round.behind).await?;
            }
            pass.moved.add(round.moved);
            pass.unknown += round.unknown.len();
            pass.behind += round.behind.len();
            (done, next) = (round.done, ahead);
        }
        self.remove_moved(done).await?;
        Ok(pass)
    }

    /// Looks once more at what was left, and refuses what was left an hour ago.
    #[operation]
    pub async fn move_left(&self, schemas: &Schemas) -> Result<Moved, StoreError> {
        let (mut all, mut ids) = (Moved::default(), doc! { "$gt": Bson::MinKey });
        loop {
            let left = doc! { LEFT: { "$ne": Bson::Null }, "_id": ids };
            let judged = self.judge_some(left, schemas).await?;
            if judged.documents.is_empty() {
                return Ok(all);
            }
            let now = self.server_time().await?.timestamp_millis();
            let Round { moved, unknown, behind, mut done } = self.move_judged(&judged).await?;
            let old = judged.documents.iter().filter(|document| is_given_up(document, now));
            let old: HashSet<ObjectId> = old.filter_map(|document| document.get("_id")).map(id_of).collect();
            let mut refused = unknown;
            refused.extend(behind);
            refused.retain(|refused| old.contains(&id_of(&refused.id)));
            done.extend(self.refuse(&refused).await?);
            self.remove_moved(done).await?;
            all.add(moved);
            all.refused += refused.len() as u64;
            match judged.others {
                Some(others) => ids = others,
                None => return Ok(all),
            }
        }
    }

    /// Reads some documents, and decides what is to become of them, but for what their insertion decides.
    async fn judge_some(&self, filter: Document, schemas: &Schemas) -> Result<Judged, StoreError> {
        let (documents, is_last) = self.read_inbox(filter).await?;
        let end = documents.last().filter(|_| !is_last).and_then(|document| document.get("_id"));
        let others = end.map(|end| doc! { "$gt": end });
        Ok(Judged { others, ..self.judge_all(documents, schemas).await? })
    }

    async fn judge_all(&self, documents: Vec<Document>, schemas: &Schemas) -> Result<Judged, StoreError> {
        let (there, judged) =
            futures::try_join!(self.moved_before(&documents), self.judge_read(&documents, schemas))?;
        Ok(Judged { documents, there, ..judged })
    }

    async fn judge_read(&self, documents: &[Document], schemas: &Schemas) -> Result<Judged, StoreError> {
        let (mut judged, mut known) = (Judged::default(), QueueCache::default());
        for document in documents {
            match self.judge_entry(document, schemas, &mut known).await? {
                Fate::Task(one) => into_groups(*one, &mut judged.groups),
                Fate::Refused(one) => judged.refused.push(*one),
                Fate::Left(one) => judged.unknown.push(*one),
            }
        }
        Ok(judged)
    }

    /// Some documents in the order of their ids, and whether there are no more.
    async fn read_inbox(&self, filter: Document) -> Result<(Vec<Document>, bool), StoreError> {
        let inbox = self.inbox().clone_with_type::<RawDocumentBuf>();
        let mut found = inbox.find(filter).sort(doc! { "_id": 1 }).limit(BATCH).await?;
        let (mut documents, mut bytes) = (Vec::new(), 0);
        while let Some(document) = found.try_next().await? {
            bytes += document.as_bytes().len();
            documents.push(readable(document));
            if bytes > BATCH_BYTES {
                return Ok((documents, false));
            }
        }
        let is_last = i64::try_from(documents.len()).is_ok_and(|read| read < BATCH);
        Ok((documents, is_last))
    }

    /// Makes tasks of them, or refuses them. Documents whose tasks were there before are done: somebody has died in between, or is about to
    /// remove them.
    async fn move_judged(&self, judged: &Judged) -> Result<Round, StoreError> {
        let is_there = |id: &Bson| judged.there.contains(&id_of(id));
        let new = |all: &[Refused]| all.iter().filter(|one| !is_there(&one.id)).cloned().collect::<Vec<_>>();
        let ids = judged.documents.iter().filter_map(|document| document.get("_id"));
        let mut round = Round {
            unknown: new(&judged.unknown),
            done: ids.filter(|id| is_there(id)).cloned().collect(),
            ..Round::default()
        };
        let mut refused = new(&judged.refused);
        for group in &judged.groups {
            let tasks =
                group.tasks.iter().filter(|task| !judged.there.contains(&task.id.0)).cloned().collect();
            self.move_group((group, tasks), &mut round, &mut refused).await?;
        }
        round.moved.refused = refused.len() as u64;
        round.done.extend(self.refuse(&refused).await?);
        Ok(round)
    }

    /// Which of their tasks are there already, or were.
    async fn moved_before(&self, documents: &[Document]) -> Result<HashSet<ObjectId>, StoreError> {
        let ids: Vec<Bson> =
            documents.iter().filter_map(|document| document.get("_id")).map(|id| id_of(id).into()).collect();
        if ids.is_empty() {
            return Ok(HashSet::new());
        }
        // One that is on its way from one to the other may be missed: its document has gone before, and the server sees that where it inserts.
        let [live, archived, deleted] =
            [TASKS, ARCHIVE, TOMBSTONES].map(|place| self.ids_in(place.name, &ids));
        let (mut there, archived, deleted) = futures::try_join!(live, archived, deleted)?;
        there.extend(archived);
        there.extend(deleted);
        Ok(there)
    }

    /// Submits alike tasks, one by one where they are refused together: each is a submission of its own.
    async fn move_group(
        &self,
        (group, tasks): (&Group, Vec<Given>),
        round: &mut Round,
        refused: &mut Vec<Refused>,
    ) -> Result<(), StoreError> {
        let mut waiting = vec![tasks];
        while let Some(tasks) = waiting.pop() {
            if tasks.is_empty() {
                continue;
            }
            let error = match self.submit_group(group, &tasks).await {
                Ok(()) => {
                    round.done.extend(tasks.iter().map(|task| Bson::from(task.id.0)));
                    round.moved.tasks += tasks.len() as u64;
                    continue;
                }
                Err(SubmitError::Busy(busy)) => {
                    return Err(StoreError::Unconfirmed { reason: busy.to_string() });
                }
                Err(SubmitError::Store(error)) if !error.is_about_one() => return Err(error),
                Err(error) => error,
            };
            let [task] = &tasks[..] else {
                waiting.extend(tasks.into_iter().rev().map(|task| vec![task]));
                continue;
            };
            let one = Refused {
                id: task.id.0.into(),
                queue: Some(group.queue),
                owner: group.options.owner.clone(),
                tenant: group.options.tenant.clone(),
                trace: task.trace.clone(),
                refusal: Refusal::of(&error),
            };
            match &error {
                SubmitError::NoSuchTasks(parents) if self.may_come(parents, task.id).await? => {
                    round.behind.push(one)
                }
                _ => refused.push(one),
            }
        }
        Ok(())
    }

    async fn submit_group(&self, group: &Group, tasks: &[Given]) -> Result<(), SubmitError> {
        let after = &group.options.after;
        if let Some(producer) = &group.parents_of {
            let missing = self.missing_parents(producer, after, &mut QueueCache::default()).await?;
            if !missing.is_empty() {
                return Err(SubmitError::NoSuchTasks(missing));
            }
        }
        self.submit_from_inbox(group.queue, tasks, &group.options, group.key.as_deref()).await
    }

    /// Whether any of these tasks, which were not there, is still to be moved, or has been meanwhile. It is looked for in this order: a
    /// document leaves the inbox only when its task is there.
    async fn may_come(&self, parents: &[TaskId], own: TaskId) -> Result<bool, StoreError> {
        let others: Vec<TaskId> = parents.iter().filter(|parent| **parent != own).copied().collect();
        let only_id = doc! { "_id": 1 };
        let waits = self.inbox().find_one(doc! { "_id": { "$in": &others } }).projection(only_id).await?;
        Ok(waits.is_some() || self.missing_tasks(&others).await?.len() < others.len())
    }

    /// Makes cancelled tasks of what is refused. Returns the ids of the documents, which can go.
    async fn refuse(&self, refused: &[Refused]) -> Result<Vec<Bson>, StoreError> {
        if refused.is_empty() {
            return Ok(Vec::new());
        }
        let tasks = |with_params| {
            refused
                .iter()
                .map(|one| (one.id.clone(), cancelled(one, self.now(), with_params)))
                .collect::<Vec<_>>()
        };
        match self.insert_from_inbox(&tasks(true)).await {
            Err(error) if error.is_about_one() => {
                // One of them has no room for its parameters, say, or is there already.
                for one in tasks(false) {
                    StoreError::unless_duplicate(self.insert_from_inbox(std::slice::from_ref(&one)).await)?;
                }
            }
            inserted => inserted?,
        }
        for one in refused {
            let (queue, refusal) = (one.queue.unwrap_or(NO_QUEUE), &one.refusal);
            self.moved(queue, None, Some(Status::Cancelled), 1);
            if let Some(label) = refusal.label {
                self.metrics().queues.of(queue.0.bytes()).refused.of(label).inc();
            }
            tracing::warn!(task = %id_of(&one.id), by = refusal.by, reason = refusal.reason, "a document of the inbox is refused");
        }
        Ok(refused.iter().map(|one| one.id.clone()).collect())
    }

    /// Removes documents whose tasks are there.
    pub(crate) async fn remove_moved(&self, ids: Vec<Bson>) -> Result<(), StoreError> {
        if !ids.is_empty() {
            self.inbox().delete_many(doc! { "_id": { "$in": ids } }).await?;
        }
        Ok(())
    }

    /// Leaves documents for later, from the first time on that somebody has.
    async fn leave_in_inbox(&self, left: &[Refused]) -> Result<(), StoreError> {
        if left.is_empty() {
            return Ok(());
        }
        for one in left {
            tracing::warn!(document = %one.id, why = one.refusal.reason, "a document of the inbox is left for an hour");
        }
        let ids: Vec<&Bson> = left.iter().map(|one| &one.id).collect();
        let new = doc! { "_id": { "$in": ids }, LEFT: Bson::Null };
        self.inbox().update_many(new, vec![doc! { "$set": { LEFT: "$$NOW" } }]).await?;
        Ok(())
    }
}

/// Puts a task to alike ones. What only one may have comes alone, and so does what could not be told apart from a chain.
fn into_groups(one: Group, groups: &mut Vec<Group>) {
    let is_alone = one.key.is_some() || one.options.unique.is_some() || one.options.chain;
    let is_alike = |group: &&mut Group| {
        !is_alone
            && group.key.is_none()
            && group.queue == one.queue
            && group.options == one.options
            && group.parents_of == one.parents_of
    };
    match groups.iter_mut().find(is_alike) {
        Some(group) => group.tasks.extend(one.tasks),
        None => groups.push(one),
    }
}

/// The task that a refused document becomes. Null as its parameters stands for those of the document.
fn cancelled(refused: &Refused, now: DateTime, with_params: bool) -> Document {
    let Refusal { by, reason, .. } = &refused.refusal;
    let note = format!("refused by {by}: {reason}");
    let mut task = doc! {
        "_id": id_of(&refused.id), "queue": refused.queue.unwrap_or(NO_QUEUE), "status": Status::Cancelled, "node": Bson::Null,
        "params": if with_params { Bson::Null } else { doc! {}.into() }, "stdout": Bson::Null, "stderr": Bson::Null,
        "ctime": now, "mtime": now, REFUSED: { "reason": reason, "by": *by },
        "history": [{ "at": now, "status": Status::Cancelled, "attempt": Bson::Null, "node": Bson::Null, "note": note }],
    };
    put(&mut task, "owner", refused.owner.as_ref());
    put(&mut task, "tenant", refused.tenant.as_ref());
    put(&mut task, TRACE, refused.trace.as_ref().map(TraceContext::field));
    task
}

fn is_given_up(document: &Document, now: i64) -> bool {
    let left = document.get(LEFT).and_then(Bson::as_datetime);
    left.is_none_or(|left| now.saturating_sub(left.timestamp_millis()) >= GIVEN_UP_AFTER)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::QueueId;
    use crate::task::TaskOptions;

    #[test]
    fn alike_tasks_are_submitted_together_and_those_with_keys_alone() {
        let queues = [1, 2].map(|number| QueueId(ObjectId::from_bytes([number; 12])));
        let one = |queue: usize, unique: Option<&str>, key: Option<&str>| Group {
            queue: queues[queue],
            options: TaskOptions { unique: unique.map(str::to_owned), ..TaskOptions::default() },
            key: key.map(str::to_owned),
            parents_of: None,
            tasks: vec![Given { id: TaskId(ObjectId::new()), params: Document::new(), trace: None }],
        };
        let mut groups = Vec::new();
        let all = [
            one(0, None, None),
            one(1, None, None),
            one(0, None, Some("k")),
            one(0, Some("u"), None),
            one(0, None, None),
            one(0, Some("u"), None),
            one(1, None, None),
        ];
        all.into_iter().for_each(|one| into_groups(one, &mut groups));
        let sizes: Vec<usize> = groups.iter().map(|group| group.tasks.len()).collect();
        assert_eq!(sizes, [2, 2, 1, 1, 1]);
    }

    #[test]
    fn what_is_left_is_given_up_after_an_hour() {
        let now = 1_795_163_067_344;
        let left = |at: Bson| is_given_up(&doc! { LEFT: at }, now);
        let ago = |millis: i64| Bson::from(DateTime::from_millis(now - millis));
        assert!(!left(ago(3_599_999)) && left(ago(3_600_000)) && !left(ago(-5)));
        assert!(left("soon".into()), "nobody would find out");
        assert_eq!(id_of(&"a".into()), id_of(&"a".into()));
        assert_ne!(id_of(&"a".into()), id_of(&"b".into()));
    }
}
