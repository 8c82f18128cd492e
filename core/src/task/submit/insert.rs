//! Tasks that are inserted on a condition: with a `unique` key, which no other one of their queue may have until they have ended; or because
//! of another document, as one of the inbox ([`crate::inbox`]), whose id they have, or the note of their submission: the server inserts them in
//! the operation in which it sees that one.

use std::time::Duration;

use bson::{Bson, Document, doc};
use disbatch_metrics::labels::Source;
use disbatch_operation::operation;
use mongodb::Collection;
use mongodb::options::WriteConcern;

use super::idempotency::{Note, id_of};
use super::{Once, SubmitError, TaskOptions, blocked};
use crate::admission::Admitted;
use crate::keys::{self, Key, Settled};
use crate::model::{QueueId, Status, TRACE, TaskId, TraceContext};
use crate::store::collections::TASKS;
use crate::store::{Store, StoreError, Stored, put};
use crate::task::archive::ids_of;

/// How often the task is inserted where the index of an earlier release refuses it, and nobody has the key when it is looked at.
const TRIES: usize = 100;

/// What the requests of all documents with the same key have in common.
const OF_INBOX: &str = "inbox";

/// So long the server may take to insert tasks. It is far below the time after which others do it in the place of one who has died: an
/// insert that was broken off never comes after what others did because of that.
const INSERTING: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Given {
    pub id: TaskId,
    /// As they were read: what is stored are those that the server finds in the document.
    pub params: Document,
    pub trace: Option<TraceContext>,
}

pub(super) enum Cause {
    Request,
    Inbox,
    Note(Document),
}

impl Store {
    /// Inserts a task with a key that no other task of the queue may have while it is on its way: see [`crate::keys`]. What is there
    /// already under its id goes on. Returns whether it is new.
    pub(super) async fn insert_unique(
        &self,
        queue: QueueId,
        text: &str,
        documents: Vec<Document>,
        cause: Cause,
    ) -> Result<bool, SubmitError> {
        let own = documents.iter().find_map(|task| task.get_object_id("_id").ok()).map(TaskId);
        let Some(own) = own else { return Ok(false) };
        let key = Key::Unique { queue, text: text.to_owned() };
        // Mostly it is known here already, and nothing has to be written. But an earlier submission of the same may have got as far as
        // to insert it: then it has had the key since, or is to be removed before it can have it.
        if let Some(task) = self.find_unique(queue, text).await?.filter(|task| *task != own) {
            match self.find_task_fields(own, doc! { "status": 1, "gate": 1 }).await? {
                None => return Err(SubmitError::NotUnique { task }),
                Some(found) if keys::is_pending(&found) => {}
                Some(_) => return Ok(false),
            }
        }
        let documents: Vec<Document> = documents.into_iter().map(keys::pending).collect();
        let mut tries = 0;
        let is_new = loop {
            tries += 1;
            let inserted = match &cause {
                Cause::Inbox => self.insert_of_inbox(&documents).await,
                Cause::Note(note) => {
                    let made = because(note.clone(), documents.clone());
                    self.insert_made(&self.submissions(), made).await
                }
                Cause::Request => {
                    self.new_tasks().insert_many(&documents).await.map(drop).map_err(StoreError::from)
                }
            };
            let Err(error) = inserted else { break true };
            if !error.is_duplicate_key() {
                // Of these the driver sends none again.
                if error.is_transient() && matches!(cause, Cause::Note(_)) && tries < TRIES {
                    continue;
                }
                return Err(error.into());
            }
            let fields = doc! { "status": 1, "gate": 1 };
            match self.find_task_fields(own, fields).await? {
                // An answer was lost, or it was submitted before.
                Some(task) if keys::is_pending(&task) => break false,
                Some(_) => return Ok(false),
                // The index of an earlier release has refused it.
                None => {}
            }
            match self.any_unique(queue, text).await? {
                Some((task, true)) => drop(self.settle_pending(task, &key).await?),
                Some((task, false)) => return Err(SubmitError::NotUnique { task }),
                // It has ended since: once more.
                None if tries < TRIES => {}
                None => return Err(error.into()),
            }
        };
        match self.settle_pending(own, &key).await? {
            Settled::GoesOn => Ok(is_new),
            Settled::Refused(task) => Err(SubmitError::NotUnique { task }),
        }
    }

    #[operation(queue = %queue)]
    pub async fn find_unique(&self, queue: QueueId, unique: &str) -> Result<Option<TaskId>, StoreError> {
        let key = Key::Unique { queue, text: unique.to_owned() };
        let found = self.tasks().find_one(key.counted()).projection(doc! { "_id": 1 }).await?;
        Ok(found.and_then(|task| task.get_object_id("_id").ok()).map(TaskId))
    }

    /// One that has not ended, pending or not, and whether it is pending.
    async fn any_unique(&self, queue: QueueId, unique: &str) -> Result<Option<(TaskId, bool)>, StoreError> {
        let filter = doc! { "queue": queue, "unique": unique, "status": { "$in": Status::LIVE.to_vec() } };
        let found = self.tasks().find_one(filter).projection(doc! { "status": 1, "gate": 1 }).await?;
        Ok(found.and_then(|task| Some((TaskId(task.get_object_id("_id").ok()?), keys::is_pending(&task)))))
    }

    /// Creates tasks of documents that are in the inbox. Those that are there are left as they are, and nothing is made of a document that
    /// somebody else has removed. With a `key` there is one task.
    pub(crate) async fn submit_from_inbox(
        &self,
        queue: QueueId,
        tasks: &[Given],
        options: &TaskOptions,
        key: Option<&str>,
    ) -> Result<(), SubmitError> {
        self.check_after(options, tasks.len()).await?;
        let admitted = self.admit(queue, options, tasks.len()).await?;
        let done = match key {
            Some(key) => self.insert_given_once(queue, tasks, (options, &admitted), key).await,
            None => self.insert_given(queue, tasks, (options, &admitted)).await,
        };
        self.conclude(admitted, done).await
    }

    /// The same if the key is nobody's. It is noted first: whoever completes what was half done finds that it is the task's own.
    async fn insert_given_once(
        &self,
        queue: QueueId,
        tasks: &[Given],
        with: (&TaskOptions, &Admitted),
        key: &str,
    ) -> Result<(), SubmitError> {
        let ids: Vec<_> = tasks.iter().map(|task| task.id.0).collect();
        let note = Note::new(id_of(queue, key), ids.clone());
        let noted = self.take_note(queue, &Once::new(key.to_owned(), OF_INBOX), note).await?;
        if noted.ids != ids {
            let other = noted.ids.first().map(|id| SubmitError::KeyTaken(TaskId(*id)));
            return Err(other.unwrap_or(SubmitError::AnotherRequest));
        }
        let inserted = self.insert_given(queue, tasks, with).await;
        match &inserted {
            Ok(()) => {
                self.mark_done(&noted.id, &ids).await?;
            }
            Err(SubmitError::NotUnique { .. }) => self.forget_note(&noted.id).await?,
            Err(_) => {}
        }
        inserted
    }

    async fn insert_given(
        &self,
        queue: QueueId,
        given: &[Given],
        (options, admitted): (&TaskOptions, &Admitted),
    ) -> Result<(), SubmitError> {
        let template = self.template(queue, options, given.len()).await?;
        let mut tasks: Vec<Document> =
            template.tasks(given.iter().map(|task| (task.id.0, task.params.clone())), admitted).collect();
        for (task, given) in tasks.iter_mut().zip(given) {
            task.insert("params", Bson::Null);
            put(task, TRACE, given.trace.as_ref().map(TraceContext::field));
        }
        let blocked = blocked(&tasks);
        if let Ok(key) = template.fields.get_str("unique") {
            self.insert_unique(queue, key, tasks, Cause::Inbox).await?;
        } else if let Err(error) = self.insert_of_inbox(&tasks).await {
            // How many of them are there nobody knows.
            self.doubt_counters();
            let moved = || StoreError::unconfirmed("another DEN has moved it");
            return Err(if error.is_duplicate_key() { moved() } else { error }.into());
        }
        self.submitted(queue, Some(template.status), given.len() as u64 - blocked, Source::Inbox);
        self.submitted(queue, Some(Status::Blocked), blocked, Source::Inbox);
        if blocked > 0 {
            let ids: Vec<TaskId> = given.iter().map(|task| task.id).collect();
            self.link_at_once(&ids).await;
        }
        Ok(())
    }

    async fn insert_of_inbox(&self, tasks: &[Document]) -> Result<(), StoreError> {
        let with_id = |task: &Document| (task.get("_id").cloned().unwrap_or(Bson::Null), task.clone());
        self.insert_from_inbox(&tasks.iter().map(with_id).collect::<Vec<_>>()).await
    }

    /// Inserts each of these tasks, with the id of its document, which has its parameters if it has null. The server does so in the operation
    /// in which it sees that the document is still in the inbox: whoever has read the document long ago makes no second one. No task leaves
    /// `tasks` before its document has gone, so one that was made is there to be seen.
    ///
    /// # Errors
    /// One of them is there (a duplicate key), and maybe some are not that come after it.
    pub(crate) async fn insert_from_inbox(&self, tasks: &[(Bson, Document)]) -> Result<(), StoreError> {
        let ids: Vec<&Bson> = tasks.iter().map(|(id, _)| id).collect();
        let is_object = doc! { "$eq": [{ "$type": "$params" }, "object"] };
        let params = doc! { "params": { "$cond": [is_object, "$params", { "$literal": {} }] } };
        let mut pipeline = vec![doc! { "$match": { "_id": { "$in": &ids } } }];
        pipeline.extend(match alike(tasks) {
            Some((task, true)) => vec![
                doc! { "$replaceWith": { "$mergeObjects": [{ "_id": "$_id" }, { "$literal": task }, params] } },
            ],
            Some((task, false)) => {
                vec![doc! { "$replaceWith": { "$mergeObjects": [{ "_id": "$_id" }, { "$literal": task }] } }]
            }
            None => {
                let place = doc! { "$indexOfArray": [{ "$literal": &ids }, "$_id"] };
                let tasks: Vec<&Document> = tasks.iter().map(|(_, task)| task).collect();
                vec![
                    doc! { "$project": { "params": 1, "task": { "$arrayElemAt": [{ "$literal": tasks }, place] } } },
                    doc! { "$replaceWith": { "$mergeObjects": [
                        "$task", { "$cond": [{ "$eq": ["$task.params", Bson::Null] }, params, {}] },
                    ] } },
                ]
            }
        });
        self.insert_made(&self.inbox(), pipeline).await
    }

    /// Inserts `task` if there is a document like `cause`. Returns whether nothing was in the way: no task with its id, and none that has a
    /// key of its own.
    pub(crate) async fn insert_because<T: Send + Sync>(
        &self,
        causes: &Collection<T>,
        cause: Document,
        task: Document,
    ) -> Result<bool, StoreError> {
        let inserted = self.insert_made(causes, because(cause, vec![task])).await;
        let inserted = StoreError::unless_duplicate(inserted).inspect_err(|_| self.doubt_counters())?;
        Ok(inserted.is_some())
    }

    /// Inserts those of `tasks` that are not there, if there is a document like `cause`. As long as there is, they are in doubt
    /// ([`Store::in_doubt`]), so that those that were inserted before are there. Returns whether none was. If there is no such document,
    /// nothing happens, which is not told.
    pub(crate) async fn insert_missing_because<T: Send + Sync>(
        &self,
        causes: &Collection<T>,
        cause: &Document,
        mut tasks: Vec<Document>,
    ) -> Result<bool, StoreError> {
        let (mut are_new, mut again) = (true, true);
        loop {
            let ids = ids_of(&tasks);
            let inserted = self.insert_made(causes, because(cause.clone(), tasks.clone())).await;
            let Err(error) = inserted else { return Ok(are_new) };
            are_new = false;
            // The driver does not send it again, and what was made by the first finds a duplicate.
            if error.is_transient() && std::mem::take(&mut again) {
                continue;
            }
            if !error.is_duplicate_key() {
                return Err(error);
            }
            let there = self.ids_in(TASKS.name, &ids).await?;
            tasks.retain(|task| task.get_object_id("_id").is_ok_and(|id| !there.contains(&id)));
            if tasks.is_empty() {
                return Ok(false);
            }
            if tasks.len() == ids.len() {
                return Err(error);
            }
        }
    }

    async fn insert_made<T: Send + Sync>(
        &self,
        causes: &Collection<T>,
        mut pipeline: Vec<Document>,
    ) -> Result<(), StoreError> {
        pipeline.push(doc! { "$merge": {
            "into": TASKS.name, "on": "_id", "whenMatched": "fail", "whenNotMatched": "insert",
        } });
        let inserted =
            causes.aggregate(pipeline).with_type::<Stored>().write_concern(WriteConcern::majority());
        match inserted.max_time(INSERTING).await.map_err(StoreError::from) {
            Err(error) if error.is_out_of_time() => {
                Err(StoreError::unconfirmed("the server had no time for new tasks"))
            }
            inserted => inserted.map(drop),
        }
    }
}

fn because(cause: Document, tasks: Vec<Document>) -> Vec<Document> {
    vec![
        doc! { "$match": cause },
        doc! { "$project": { "_id": 0, "task": { "$literal": tasks } } },
        doc! { "$unwind": "$task" },
        doc! { "$replaceWith": "$task" },
    ]
}

fn but_id(task: &Document) -> impl Iterator<Item = (&String, &Bson)> {
    task.iter().filter(|(name, _)| *name != "_id")
}

/// What all these tasks are but for their ids, which are those of their documents, and whether each has the parameters of its document.
/// `None`: they are not alike. So many of them need not be sent one by one.
fn alike(tasks: &[(Bson, Document)]) -> Option<(Document, bool)> {
    let (_, first) = tasks.first()?;
    let is_like = |task: &Document| but_id(task).eq(but_id(first));
    let are_alike = tasks.iter().all(|(id, task)| task.get("_id") == Some(id) && is_like(task));
    are_alike.then(|| {
        let mut task = first.clone();
        task.remove("_id");
        let takes_params = task.get("params") == Some(&Bson::Null);
        (task, takes_params)
    })
}
