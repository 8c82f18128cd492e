//! Workers are made, changed and removed by people.

use bson::{Bson, Document, doc};
use disbatch_operation::operation;

use super::{COLLECTION, NewWorker, OURS, Worker, WorkerError, hidden, json};
use crate::model::{PluginName, to_bson, whole_number};
use crate::store::{Altered, Store, StoreError, Stored};

/// How often a definition is stored that others store at the same moment.
const TRIES: usize = 5;

/// What became of a change of a worker.
#[derive(Debug, Clone, PartialEq)]
pub enum WorkerUpdated {
    /// It is stored. Neither document has what is secret in a definition.
    Updated(Box<Altered>),
    /// Somebody else has changed it since: it has this number now, and is as it was.
    Changed {
        /// The number.
        rev: i64,
    },
    /// There is no such worker.
    NoSuchWorker,
}

/// What became of a definition that was to be there, whatever was before.
#[derive(Debug, Clone, PartialEq)]
pub enum SetWorker {
    /// There was none. The document has nothing that is secret.
    Created(Document),
    /// It has taken the place of another one.
    Updated(Box<Altered>),
    /// It was there already.
    Unchanged,
    /// Others change it all the time: it has this number now.
    Changed {
        /// The number.
        rev: i64,
    },
}

impl Store {
    /// Makes a worker. `by`: who wants it, in words. Returns what it is, without secrets.
    ///
    /// # Errors
    /// There is one of this name, there are too many, or the database cannot be reached or refuses the user.
    #[operation(worker = %worker.name)]
    pub async fn create_worker(&self, worker: &NewWorker, by: &str) -> Result<Document, WorkerError> {
        self.room_for_workers(std::slice::from_ref(worker), false).await?;
        self.insert_worker(worker, by).await
    }

    /// Changes a worker, if it still has the number `rev`.
    ///
    /// # Errors
    /// All of them would be too large, or the database cannot be reached, or refuses the user.
    #[operation(worker = %worker.name)]
    pub async fn update_worker(
        &self,
        worker: &NewWorker,
        rev: i64,
        by: &str,
    ) -> Result<WorkerUpdated, WorkerError> {
        self.room_for_workers(std::slice::from_ref(worker), true).await?;
        self.replace_worker(worker, rev, by).await
    }

    /// Has a worker be like this, whatever it was before.
    ///
    /// # Errors
    /// There are too many, or the database cannot be reached, or refuses the user.
    #[operation(worker = %worker.name)]
    pub async fn set_worker(&self, worker: &NewWorker, by: &str) -> Result<SetWorker, WorkerError> {
        self.room_for_workers(std::slice::from_ref(worker), true).await?;
        self.put_worker(worker, by).await
    }

    /// Stores a definition that comes from elsewhere; `replace`: also in the place of another one of its name. Whoever imports
    /// several asks for [`Store::room_for_workers`] before the first of them. Returns what became of it; `None`: there is another one
    /// of its name, which stays.
    #[operation(worker = %worker.name)]
    pub async fn import_worker(
        &self,
        worker: &NewWorker,
        replace: bool,
        by: &str,
    ) -> Result<Option<SetWorker>, WorkerError> {
        if replace {
            return self.put_worker(worker, by).await.map(Some);
        }
        match self.insert_worker(worker, by).await {
            Ok(created) => Ok(Some(SetWorker::Created(created))),
            Err(WorkerError::NameTaken(_)) => {
                let current = self.worker(&worker.name).await?;
                Ok(current.filter(|current| current.defines(worker)).map(|_| SetWorker::Unchanged))
            }
            Err(error) => Err(error),
        }
    }

    /// Removes a worker; with `rev`, only if it still has this number. Tasks that run go on. Returns what it was, without
    /// secrets; `None`: there is no such worker, or it has another number.
    #[operation(worker = %name)]
    pub async fn delete_worker(
        &self,
        name: &PluginName,
        rev: Option<i64>,
    ) -> Result<Option<Document>, StoreError> {
        let filter = match rev {
            Some(rev) => with_rev(name, rev),
            None => doc! { "_id": name.as_str() },
        };
        Ok(self.worker_collection().find_one_and_delete(filter).await?.map(|gone| shown(gone.into())))
    }

    async fn insert_worker(&self, worker: &NewWorker, by: &str) -> Result<Document, WorkerError> {
        let document = self.stored(worker, 1, by).await?;
        match self.worker_collection().insert_one(Stored(document.clone())).await.map_err(StoreError::from) {
            Ok(_) => Ok(shown(document)),
            Err(error) if error.write_failure().is_some_and(|failure| failure.is_duplicate_key()) => {
                Err(WorkerError::NameTaken(worker.name.clone()))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn replace_worker(
        &self,
        worker: &NewWorker,
        rev: i64,
        by: &str,
    ) -> Result<WorkerUpdated, WorkerError> {
        let after = self.stored(worker, rev.saturating_add(1), by).await?;
        let is_as_known = with_rev(&worker.name, rev);
        let before =
            self.worker_collection().find_one_and_replace(is_as_known, Stored(after.clone())).await?;
        if let Some(before) = before {
            let altered = Altered { before: Some(shown(before.into())), after: shown(after) };
            return Ok(WorkerUpdated::Updated(Box::new(altered)));
        }
        let current = self.worker(&worker.name).await?;
        Ok(current.map_or(WorkerUpdated::NoSuchWorker, |worker| WorkerUpdated::Changed { rev: worker.rev }))
    }

    async fn put_worker(&self, worker: &NewWorker, by: &str) -> Result<SetWorker, WorkerError> {
        let mut last = 0;
        for _ in 0..TRIES {
            let Some(current) = self.worker(&worker.name).await? else {
                match self.insert_worker(worker, by).await {
                    // Somebody was faster.
                    Err(WorkerError::NameTaken(_)) => continue,
                    created => return created.map(SetWorker::Created),
                }
            };
            if current.defines(worker) {
                return Ok(SetWorker::Unchanged);
            }
            match self.replace_worker(worker, current.rev, by).await? {
                WorkerUpdated::Updated(altered) => return Ok(SetWorker::Updated(altered)),
                WorkerUpdated::Changed { rev } => last = rev,
                WorkerUpdated::NoSuchWorker => {}
            }
        }
        Ok(SetWorker::Changed { rev: last })
    }

    async fn stored(&self, worker: &NewWorker, rev: i64, by: &str) -> Result<Document, StoreError> {
        let mut document = doc! { "_id": worker.name.as_str() };
        document.extend(worker.definition.clone());
        document.extend(doc! { "rev": rev, "by": by, "at": self.server_time().await? });
        Ok(document)
    }
}

/// The worker while it has this number. Documents that were put there by other means have none.
fn with_rev(name: &PluginName, rev: i64) -> Document {
    match rev {
        0 => doc! { "_id": name.as_str(), "rev": { "$in": [Bson::Null, Bson::from(0)] } },
        rev => doc! { "_id": name.as_str(), "rev": rev },
    }
}

/// A document of the collection for the audit: without secrets, and without what changes by itself.
fn shown(document: Document) -> Document {
    let rev = document.get("rev").and_then(whole_number).unwrap_or_default();
    let name = document.get("_id").cloned().unwrap_or(Bson::Null);
    let defined: Document = document
        .into_iter()
        .filter(|(field, _)| !OURS.contains(&field.as_str()) && !field.starts_with('_'))
        .collect();
    let mut shown = doc! { "_id": name };
    if let Bson::Document(fields) = to_bson(&hidden(&json(&Bson::Document(defined)))) {
        shown.extend(fields);
    }
    // Where a secret alone has changed, this is what tells.
    shown.insert("rev", rev);
    shown
}

impl Worker {
    /// How the server tells whether any definition has changed: a small value for all of them, in one stage for a document.
    pub(crate) fn mark() -> Vec<Document> {
        vec![
            doc! { "$group": {
                "_id": Bson::Null,
                "count": { "$sum": 1 },
                "bytes": { "$sum": { "$bsonSize": "$$ROOT" } },
                "revs": { "$sum": "$rev" },
                "newest": { "$max": "$at" },
            } },
            doc! { "$project": { "_id": 0, "what": COLLECTION, "mark": ["$count", "$bytes", "$revs", "$newest"] } },
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_audit_has_names_and_no_secrets() {
        let stored = doc! {
            "_id": "csv", "engine": "http", "http": { "url": "https://x/", "headers": { "A": "horse" }, "timeout": 5 },
            "rev": 3_i64, "by": "somebody", "at": bson::DateTime::from_millis(5),
        };
        let shown = shown(stored);
        assert_eq!(
            shown,
            doc! {
                "_id": "csv", "engine": "http",
                "http": { "headers": { "A": "(hidden)" }, "timeout": 5, "url": "https://x/" }, "rev": 3_i64,
            }
        );
    }

    #[test]
    fn what_was_put_there_by_other_means_has_the_number_0() {
        let name = "csv".parse().unwrap();
        assert_eq!(with_rev(&name, 7), doc! { "_id": "csv", "rev": 7_i64 });
        assert_eq!(with_rev(&name, 0).get_document("rev").unwrap().get_array("$in").unwrap().len(), 2);
    }
}
