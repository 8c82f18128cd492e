//! Definitions are stored and removed by people.

use bson::{Bson, Document, doc};
use disbatch_operation::operation;

use super::{COLLECTION, Definition, DefinitionError, NewDefinition, OURS, hidden, json};
use crate::model::{PluginName, to_bson, whole_number};
use crate::store::{Altered, Store, StoreError, Stored};

/// How often a definition is stored that others store at the same moment.
const TRIES: usize = 5;

/// What a definition takes the place of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Of none: there is no definition of its name.
    Free,
    /// Of the one that has this revision.
    Revision(i64),
    /// Of whichever there is.
    Any,
}

impl Store {
    /// Stores a definition. `by`: who wants it, in words. Returns what it was and is, without secrets; one that was there already in
    /// [`Place::Any`] is not different. Whoever stores some asks for [`Store::room_for_workers`] before the first of them.
    ///
    /// # Errors
    /// There is one of its name, or none that has the revision; or the database cannot be reached, or refuses the user.
    #[operation(worker = %new.name)]
    pub async fn define_plugin(
        &self,
        new: &NewDefinition,
        place: Place,
        by: &str,
    ) -> Result<Altered, DefinitionError> {
        match place {
            Place::Free => return self.insert_definition(new, by).await,
            Place::Revision(rev) => return self.replace_definition(new, rev, by).await,
            Place::Any => {}
        }
        let mut last = 0;
        for _ in 0..TRIES {
            let stored = match self.worker(&new.name).await? {
                None => self.insert_definition(new, by).await,
                Some(current) if current.defines(new) => {
                    return Ok(Altered { before: Some(doc! {}), after: doc! {} });
                }
                Some(current) => self.replace_definition(new, current.rev, by).await,
            };
            match stored {
                // Somebody was faster.
                Err(DefinitionError::NameTaken(_) | DefinitionError::Missing(_)) => {}
                Err(DefinitionError::Changed(rev)) => last = rev,
                stored => return stored,
            }
        }
        Err(DefinitionError::Changed(last))
    }

    /// Removes a definition; with `rev`, only if it still has this revision. Tasks that run go on. Returns what it was, without
    /// secrets; `None`: there is none, or it has another revision.
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

    async fn insert_definition(&self, new: &NewDefinition, by: &str) -> Result<Altered, DefinitionError> {
        let document = self.stored(new, 1, by).await?;
        match self.worker_collection().insert_one(Stored(document.clone())).await.map_err(StoreError::from) {
            Ok(_) => Ok(Altered { before: None, after: shown(document) }),
            Err(error) if error.write_failure().is_some_and(|failure| failure.is_duplicate_key()) => {
                Err(DefinitionError::NameTaken(new.name.clone()))
            }
            Err(error) => Err(error.into()),
        }
    }

    async fn replace_definition(
        &self,
        new: &NewDefinition,
        rev: i64,
        by: &str,
    ) -> Result<Altered, DefinitionError> {
        let after = self.stored(new, rev.saturating_add(1), by).await?;
        let is_as_known = with_rev(&new.name, rev);
        let before =
            self.worker_collection().find_one_and_replace(is_as_known, Stored(after.clone())).await?;
        if let Some(before) = before {
            return Ok(Altered { before: Some(shown(before.into())), after: shown(after) });
        }
        let current = self.worker(&new.name).await?;
        Err(current.map_or_else(
            || DefinitionError::Missing(new.name.clone()),
            |current| DefinitionError::Changed(current.rev),
        ))
    }

    async fn stored(&self, new: &NewDefinition, rev: i64, by: &str) -> Result<Document, StoreError> {
        let mut document = doc! { "_id": new.name.as_str() };
        document.extend(new.definition.clone());
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

impl Definition {
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
