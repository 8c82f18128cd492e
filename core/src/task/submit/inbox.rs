//! Tasks whose documents are in the inbox, under the ids of these: see [`crate::inbox`].

use bson::{Bson, Document, doc};

use super::idempotency::{Note, id_of};
use super::{Once, SubmitError, TaskOptions, blocked};
use crate::admission::Admitted;
use crate::model::{QueueId, Status, TRACE, TaskId, TraceContext};
use crate::store::{Store, StoreError};
use disbatch_metrics::labels::Source;

/// What the requests of all documents with the same key have in common.
const OF_INBOX: &str = "inbox";

/// A task with the id of its document.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Given {
    pub id: TaskId,
    /// As they were read: what is stored are those that the server finds in the document.
    pub params: Document,
    pub trace: Option<TraceContext>,
}

impl Store {
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
        let note = Note { id: id_of(queue, key).into(), ids: ids.clone(), sources: None, done: false };
        let noted = self.take_note(queue, &Once::new(key.to_owned(), OF_INBOX), note).await?;
        if noted.ids != ids {
            return Err(noted
                .ids
                .first()
                .map_or(SubmitError::AnotherRequest, |id| SubmitError::KeyTaken(TaskId(*id))));
        }
        let inserted = self.insert_given(queue, tasks, with).await;
        match &inserted {
            Ok(()) => self.mark_done(&noted.id, &ids).await?,
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
            task.extend(given.trace.as_ref().map(|trace| (TRACE.to_owned(), trace.field())));
        }
        let blocked = blocked(&tasks);
        if let Ok(key) = template.fields.get_str("unique") {
            self.insert_unique(queue, key, tasks, true).await?;
        } else if let Err(error) = self.insert_of_inbox(&tasks).await {
            // How many of them are there nobody knows.
            self.doubt_counters();
            return Err(match error.write_failure() {
                Some(failure) if failure.is_duplicate_key() => {
                    StoreError::Unconfirmed { reason: "another DEN has moved it".to_owned() }.into()
                }
                _ => error.into(),
            });
        }
        self.submitted(queue, Some(template.status), given.len() as u64 - blocked, Source::Inbox);
        self.submitted(queue, Some(Status::Blocked), blocked, Source::Inbox);
        if blocked > 0 {
            let ids: Vec<TaskId> = given.iter().map(|task| task.id).collect();
            self.link_at_once(&ids).await;
        }
        Ok(())
    }

    pub(super) async fn insert_of_inbox(&self, tasks: &[Document]) -> Result<(), StoreError> {
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
