//! A submission that may be repeated: the same key with the same request creates its tasks once.
//!
//! First the ids that the tasks will have are noted under the key, then the tasks are inserted, then the
//! note is marked as done. Whoever repeats the request, also after the first one was killed on the way, finds
//! the note and inserts what is missing, so that all get the same ids.
//!
//! How they are inserted is in `noted.rs`.
//!
//! Each queue has keys of its own: who submits to one neither meets the keys of others nor learns of their tasks.

use disbatch_operation::operation;
use std::collections::HashMap;

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use sha2::{Digest, Sha256};

use super::{BATCH, FINDING, SubmitError, Submitted, TaskOptions, within_budget};
use crate::admission::Admitted;
use crate::model::{QueueId, TaskId};
use crate::store::collections::TaskSource;
use crate::store::{Store, StoreError, Stored, collect, count_of, ids_in, integer, put};
use crate::text::hex;

/// So many tasks may be submitted with one key: their ids have to fit into one document, twice.
const MOST: usize = 100_000;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Once {
    key: String,
    hash: String,
    /// The same request, as it may have been written before.
    before: Vec<String>,
}

impl Once {
    pub(super) fn key(&self) -> &str {
        &self.key
    }

    /// The client's key, and all that was asked for, written the same way each time.
    pub fn new(key: String, request: &str) -> Self {
        Self { key, hash: hash_of(request), before: Vec::new() }
    }

    /// The same, where the request may have been written in this other way when it came first.
    pub fn or_before(mut self, request: &str) -> Self {
        self.before.push(hash_of(request));
        self
    }

    fn is_of(&self, hash: &str) -> bool {
        self.hash == hash || self.before.iter().any(|before| before == hash)
    }
}

pub(super) struct Note {
    pub(super) id: Bson,
    pub(super) ids: Vec<ObjectId>,
    /// The documents that the tasks are made of, if they are, in the order of `ids`.
    pub(super) sources: Option<Vec<Bson>>,
    /// So many of them are known to be there, or to have been.
    pub(super) next: usize,
    pub(super) done: bool,
}

impl Note {
    pub(super) fn new(id: impl Into<Bson>, ids: Vec<ObjectId>) -> Self {
        Self { id: id.into(), ids, sources: None, next: 0, done: false }
    }

    fn submitted(self) -> Submitted {
        Submitted { ids: self.ids.into_iter().map(TaskId).collect(), is_repetition: self.done }
    }
}

impl Store {
    #[operation(queue = %queue, tasks = params.len())]
    pub async fn submit_tasks_once(
        &self,
        queue: QueueId,
        params: Vec<Document>,
        options: &TaskOptions,
        once: &Once,
    ) -> Result<Submitted, SubmitError> {
        let (note, admitted) = match self.find_note(queue, once).await? {
            Some(note) if note.done => return Ok(note.submitted()),
            Some(note) => (note, self.admit_again(queue, options).await?),
            None => {
                // Not when a half-done submission is completed: what it came after was there when it began.
                within_budget(options, &params)?;
                self.check_after(options, params.len()).await?;
                let note = Note::new(id_of(queue, &once.key), new_ids(params.len())?);
                self.note_admitted(queue, once, note, options).await?
            }
        };
        let done: Result<(), SubmitError> = async {
            if !note.done {
                self.complete(queue, &note, (params, note.next), (options, &admitted)).await?;
                self.finish_note(&note.id, &note.ids).await?;
            }
            Ok(())
        }
        .await;
        self.conclude(admitted, done.map(|()| note.submitted())).await
    }

    /// [`Store::submit_tasks_for`], once for each key. A document that is gone when a half-done submission is
    /// completed has no task.
    #[operation(queue = %queue, collection = source.name())]
    pub async fn submit_tasks_for_once(
        &self,
        queue: QueueId,
        (source, filter): (&TaskSource, Document),
        params: &(dyn Fn(&Document) -> Document + Sync),
        options: &TaskOptions,
        once: &Once,
    ) -> Result<Submitted, SubmitError> {
        let (note, admitted) = match self.find_note(queue, once).await? {
            Some(note) if note.done => return Ok(note.submitted()),
            Some(note) => (note, self.admit_again(queue, options).await?),
            None => {
                if options.chain {
                    return Err(SubmitError::ChainOfCollection);
                }
                self.check_after(options, 1).await?;
                let sources = self.sources(source, filter).await?;
                if sources.is_empty() {
                    return Ok(Submitted::now(Vec::new()));
                }
                if sources.len() > 1 && options.unique.is_some() {
                    return Err(SubmitError::UniqueForSeveral);
                }
                options.check_links(sources.len())?;
                let note = Note::new(id_of(queue, &once.key), new_ids(sources.len())?);
                self.note_admitted(queue, once, Note { sources: Some(sources), ..note }, options).await?
            }
        };
        let done = self.submit_noted_for(queue, note, (source, params), (options, &admitted)).await;
        self.conclude(admitted, done).await
    }

    async fn submit_noted_for(
        &self,
        queue: QueueId,
        note: Note,
        (source, params): (&TaskSource, impl Fn(&Document) -> Document),
        (options, admitted): (&TaskOptions, &Admitted),
    ) -> Result<Submitted, SubmitError> {
        if note.done {
            return Ok(note.submitted());
        }
        let pairs: Vec<(ObjectId, Bson)> =
            note.ids.into_iter().zip(note.sources.unwrap_or_default()).collect();
        let mut made = Vec::new();
        for (number, batch) in pairs.chunks(BATCH).enumerate() {
            let ids: Vec<&Bson> = batch.iter().map(|(_, source)| source).collect();
            let filter = doc! { "_id": { "$in": ids } };
            let found = collect(self.database().collection::<Stored>(source.name()).find(filter)).await?;
            let found: HashMap<String, &Document> =
                found.iter().map(|document| (key_of(document.get("_id")), document)).collect();
            let documents =
                batch.iter().filter_map(|(id, source)| Some((*id, *found.get(&key_of(Some(source)))?)));
            let (ids, params): (Vec<ObjectId>, Vec<Document>) =
                documents.map(|(id, document)| (id, params(document))).unzip();
            let (next, end) = (number * BATCH, (number + 1) * BATCH);
            let part = Note { next, ..Note::new(note.id.clone(), ids) };
            if next >= note.next {
                if let Err(over) = within_budget(options, &params) {
                    if made.is_empty() {
                        self.forget_note(&note.id).await?;
                    }
                    return Err(over.into());
                }
                self.complete(queue, &part, (params, 0), (options, admitted)).await?;
                if end < pairs.len() && !self.move_note_on(&note.id, next, end).await? {
                    self.doubt_counters();
                }
            }
            made.extend(part.ids);
        }
        self.finish_note(&note.id, &made).await?;
        Ok(Note::new(note.id, made).submitted())
    }

    /// Whether this request was submitted to `queue` before, as far as that is remembered. Another one with the same key was
    /// not.
    #[operation(queue = %queue)]
    pub async fn has_submission(&self, queue: QueueId, once: &Once) -> Result<bool, StoreError> {
        let note = noted(queue, &once.key);
        let found = self.submissions().find_one(note).projection(doc! { "hash": 1 }).await?;
        Ok(found.is_some_and(|note| note.get_str("hash").is_ok_and(|hash| once.is_of(hash))))
    }

    /// The ids of the documents that tasks are to be made of, at most one more than there may be.
    async fn sources(&self, source: &TaskSource, filter: Document) -> Result<Vec<Bson>, StoreError> {
        let filter = self.without_new_tasks(source.name(), filter);
        let documents = self.database().collection::<Document>(source.name());
        let found = documents.find(filter).projection(doc! { "_id": 1 }).limit(integer(MOST + 1));
        let found = collect(found.max_time(FINDING)).await?;
        Ok(found.into_iter().filter_map(|mut document| document.remove("_id")).collect())
    }

    pub(super) async fn find_note(&self, queue: QueueId, once: &Once) -> Result<Option<Note>, SubmitError> {
        let Some(found) = self.submissions().find_one(noted(queue, &once.key)).await? else {
            return Ok(None);
        };
        if !found.get_str("hash").is_ok_and(|hash| once.is_of(hash)) {
            return Err(SubmitError::AnotherRequest);
        }
        Ok(Some(Note {
            id: found.get("_id").cloned().unwrap_or(Bson::Null),
            ids: ids_in(&found, "ids").collect(),
            sources: found.get_array("sources").ok().cloned(),
            next: count_of(&found, "next").and_then(|next| usize::try_from(next).ok()).unwrap_or(0),
            done: found.get_str("state").ok() == Some("done"),
        }))
    }

    /// Notes what is to be done, if it may be. That somebody else has noted it at the same moment is as if it had been
    /// noted before.
    async fn note_admitted(
        &self,
        queue: QueueId,
        once: &Once,
        note: Note,
        options: &TaskOptions,
    ) -> Result<(Note, Admitted), SubmitError> {
        let own = note.ids.first().copied();
        let theirs = match self.admit(queue, options, note.ids.len()).await {
            Ok(admitted) => match self.take_note(queue, once, note).await {
                Ok(note) if note.ids.first().copied() == own => return Ok((note, admitted)),
                Ok(theirs) => {
                    self.retract(&admitted).await;
                    theirs
                }
                Err(error) => return self.conclude(admitted, Err(error)).await,
            },
            // It may be the same request that there is no room beside.
            Err(refused) => self.find_note(queue, once).await?.ok_or(refused)?,
        };
        Ok((theirs, self.admit_again(queue, options).await?))
    }

    /// Notes what is to be done, unless somebody else has noted it at the same moment.
    pub(super) async fn take_note(
        &self,
        queue: QueueId,
        once: &Once,
        note: Note,
    ) -> Result<Note, SubmitError> {
        let mut document = doc! {
            "_id": &note.id, "queue": queue, "hash": &once.hash, "ids": &note.ids, "state": "pending",
            "at": self.server_time().await?,
        };
        put(&mut document, "sources", note.sources.as_ref());
        let error = match self.submissions().insert_one(document).await.map_err(StoreError::from) {
            Ok(_) => return Ok(note),
            Err(error) => error,
        };
        let theirs = if error.is_duplicate_key() { self.find_note(queue, once).await? } else { None };
        theirs.ok_or(error.into())
    }

    /// Marks a note as done, if nobody else has.
    ///
    /// # Errors
    /// Somebody else has given the submission up, so that the rest of its tasks was not inserted.
    async fn finish_note(&self, note: &Bson, ids: &[ObjectId]) -> Result<(), StoreError> {
        if self.mark_done(note, ids).await? {
            return Ok(());
        }
        // What was counted here may be what the other one has inserted.
        self.doubt_counters();
        let done = doc! { "_id": note, "state": "done" };
        let done = self.submissions().find_one(done).projection(doc! { "_id": 1 }).await?;
        done.map(drop).ok_or_else(|| StoreError::unconfirmed("a submission was given up"))
    }

    pub(super) async fn forget_note(&self, note: &Bson) -> Result<(), StoreError> {
        let pending = doc! { "_id": note, "state": "pending" };
        self.submissions().delete_one(pending).await?;
        Ok(())
    }

    /// Returns whether it was pending.
    pub(super) async fn mark_done(&self, note: &Bson, ids: &[ObjectId]) -> Result<bool, StoreError> {
        let unset = doc! { "sources": "", "next": "" };
        let done = doc! { "$set": { "state": "done", "ids": ids }, "$unset": unset };
        let pending = doc! { "_id": note, "state": "pending" };
        Ok(self.submissions().update_one(pending, done).await?.matched_count == 1)
    }
}

pub(super) fn id_of(queue: QueueId, key: &str) -> Document {
    doc! { "queue": queue, "key": key }
}

/// What finds the note of `queue` under `key`. Those of releases that had one set of keys for all queues have the key
/// alone as their id; they hold for their queue until they are removed, a week after they were made.
fn noted(queue: QueueId, key: &str) -> Document {
    doc! { "_id": { "$in": [id_of(queue, key), key] }, "queue": queue }
}

fn hash_of(request: &str) -> String {
    hex(Sha256::digest(request.as_bytes()))
}

fn new_ids(tasks: usize) -> Result<Vec<ObjectId>, SubmitError> {
    if tasks > MOST {
        return Err(SubmitError::TooManyForKey(MOST));
    }
    Ok((0..tasks).map(|_| ObjectId::new()).collect())
}

/// Ids of other programs' documents may be of any type, and not all of these can be compared.
fn key_of(id: Option<&Bson>) -> String {
    id.map(|id| format!("{id:?}")).unwrap_or_default()
}
