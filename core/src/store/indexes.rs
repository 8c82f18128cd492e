//! The indexes that a DEN ensures at its start: what [`super::collections`] declares.
//!
//! No DEN drops an index, as it cannot know who needs it. With `indexes: "lean"` those that only Perl's programs ask by are not created: what is asked with a hint
//! may name only indexes that are always there.

mod declarations;

use disbatch_operation::operation;
use std::time::Duration;

use bson::{Document, doc};
use mongodb::IndexModel;
use mongodb::options::IndexOptions;

use super::collections::{self, AUDIT};
use super::{Store, StoreError, WriteFailure, collect, integer};
use crate::config::Indexes;

pub(super) use declarations::*;

/// How long entries of the audit are kept if they are to be kept for ever: 68 years are the longest time that the
/// server knows.
const FOR_EVER: Duration = Duration::from_secs(2_147_483_647);

/// An index of a collection. Names are MongoDB's default names, as Perl creates them, see [`Index::name`].
#[derive(Debug, Default)]
pub(crate) struct Index {
    pub keys: Document,
    /// Disbatch cannot do without it (Disbatch 4 design, Database Collections).
    essential: bool,
    /// Only programs of Perl Disbatch ask by it.
    for_perl: bool,
    pub unique: bool,
    /// Only documents that match this are in it.
    partial: Option<Document>,
    sparse: bool,
    /// Documents go away so long after the time in the field.
    expire: Option<Duration>,
}

impl Index {
    pub(super) fn on(keys: Document) -> Self {
        Self { keys, ..Self::default() }
    }

    /// One that Disbatch 4 has.
    pub(super) fn of_disbatch(keys: Document) -> Self {
        Self { essential: true, ..Self::on(keys) }
    }

    /// One that Disbatch 4 has, and that no operation of ours asks by.
    fn of_perl(keys: Document) -> Self {
        Self { for_perl: true, ..Self::of_disbatch(keys) }
    }

    /// The default name. Perl's DCI reads the fields of all indexes of tasks out of their names, and answers nothing any more if it
    /// cannot: it knows one descending field, so that a name tells of no more.
    pub(crate) fn name(&self) -> String {
        let fields: Vec<String> = self.keys.iter().map(|(field, order)| format!("{field}_{order}")).collect();
        let name = fields.join("_");
        if name.matches("_-1").count() > 1 { name.replace("_-1", "_1") } else { name }
    }

    /// Whether more than speed depends on it: it keeps limits, or Disbatch 4 has it.
    pub(crate) fn is_grave(&self) -> bool {
        self.essential || self.unique
    }

    /// Whether one with its fields is among these.
    fn is_among(&self, there: &[Document]) -> bool {
        there.iter().any(|index| index.keys().eq(self.keys.keys()))
    }

    pub(super) fn unique(self) -> Self {
        Self { unique: true, ..self }
    }

    fn sparse(self) -> Self {
        Self { sparse: true, ..self }
    }

    pub(super) fn only(self, partial: Document) -> Self {
        Self { partial: Some(partial), ..self }
    }

    pub(super) fn expire(self, after: Duration) -> Self {
        Self { expire: Some(after), ..self }
    }

    fn model(self) -> IndexModel {
        let options = IndexOptions::builder()
            .name(self.name())
            .unique(self.unique.then_some(true))
            .sparse(self.sparse.then_some(true))
            .partial_filter_expression(self.partial)
            .expire_after(self.expire)
            .build();
        IndexModel::builder().keys(self.keys).options(options).build()
    }
}

impl Store {
    /// Whether the unique index of tasks is there that gives each slot of a group once. There are none where `tasks` is sharded by `_id`, too.
    #[operation]
    pub async fn keeps_slots(&self) -> Result<bool, StoreError> {
        let there = self.unique_indexes().await?;
        Ok(of_tasks().iter().filter(|index| index.unique).all(|index| index.is_among(&there)))
    }

    /// Whether a unique index over these fields of tasks is there.
    pub(crate) async fn keeps_apart(&self, fields: &[&str]) -> Result<bool, StoreError> {
        Ok(self.unique_indexes().await?.iter().any(|index| index.keys().eq(fields)))
    }

    /// The fields of each unique index of tasks. One that is still being built keeps nothing apart.
    async fn unique_indexes(&self) -> Result<Vec<Document>, StoreError> {
        let indexes = self.indexes_of(self.tasks().name()).await?;
        let unique = indexes.into_iter().filter(|index| index.get_bool("unique").is_ok_and(|unique| unique));
        Ok(unique.filter_map(|index| index.get_document("key").ok().cloned()).collect())
    }

    /// The indexes of a collection, none of one that is not there. Those that are being built come as `{ spec, buildUUID }`.
    pub(crate) async fn indexes_of(&self, collection: &str) -> Result<Vec<Document>, StoreError> {
        let list = doc! { "listIndexes": collection, "includeBuildUUIDs": true };
        match collect(self.database().run_cursor_command(list)).await {
            Err(error) if error.is_no_collection() => Ok(Vec::new()),
            found => found,
        }
    }

    /// Has the server remove entries of the audit that are so old; `None`: none of them, as long as anybody can tell.
    /// What holds for all is what was said last.
    #[operation]
    pub async fn keep_audit(&self, kept: Option<Duration>) -> Result<(), StoreError> {
        let kept = kept.unwrap_or(FOR_EVER).min(FOR_EVER);
        // The server looks at this one for what to remove, and only at one with a single field.
        let index = Index::on(doc! { "at": 1 }).expire(kept).model();
        match self.audit().create_index(index).await.map_err(StoreError::from) {
            Ok(_) => Ok(()),
            Err(error) if error.write_failure().is_some_and(|failure| failure.is_other_index()) => {
                let index = doc! { "keyPattern": { "at": 1 }, "expireAfterSeconds": integer(kept.as_secs()) };
                self.database().run_command(doc! { "collMod": AUDIT.name, "index": index }).await?;
                tracing::info!(
                    days = kept.as_secs() / 86_400,
                    "entries of the audit are kept so long from now on"
                );
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Creates every index that is missing, of those that the configuration wants. None is removed. One that the server refuses does not keep the others from being
    /// created. Users that Perl Disbatch made have no right to those of collections that it does not know; what
    /// needs these does without.
    ///
    /// # Errors
    /// The database cannot be reached; or it refuses an index, for instance because documents violate a
    /// unique one. The message names it.
    #[operation]
    pub async fn ensure_indexes(&self) -> Result<(), StoreError> {
        let mut refused = None;
        for essential in [true, false] {
            for collection in collections::ALL {
                let indexes = collection.indexes();
                let is_due = |index: &Index| index.essential == essential && self.wants(index);
                let indexes = indexes.into_iter().filter(is_due);
                let indexes: Vec<IndexModel> = indexes.map(Index::model).collect();
                if indexes.is_empty() {
                    continue;
                }
                // All at once: the server reads a collection once for all of them.
                let documents = self.database().collection::<Document>(collection.name);
                match documents.create_indexes(indexes.clone()).await.map_err(StoreError::from) {
                    Ok(_) => {}
                    Err(error) if error.is_away() => return Err(error),
                    Err(_) => {
                        let error = self.ensure_each((collection.name, essential), indexes).await?;
                        refused = refused.or(error);
                    }
                }
            }
        }
        self.log_superfluous().await?;
        refused.map_or(Ok(()), Err)
    }

    /// The indexes that a DEN with this configuration ensures in a collection.
    pub(crate) fn declared_indexes(&self, collection: &collections::Collection) -> Vec<Index> {
        collection.indexes().into_iter().filter(|index| self.wants(index)).collect()
    }

    fn wants(&self, index: &Index) -> bool {
        match self.indexes {
            Indexes::Exact => true,
            Indexes::Lean => !index.for_perl,
        }
    }

    /// Says which indexes of tasks are there although the configuration leaves them out: a DEN may have created them under
    /// another one, or a Perl DEN, and who else needs them is not for this one to decide.
    async fn log_superfluous(&self) -> Result<(), StoreError> {
        let left_out: Vec<String> =
            of_tasks().iter().filter(|index| !self.wants(index)).map(Index::name).collect();
        if left_out.is_empty() {
            return Ok(());
        }
        match self.tasks().list_index_names().await.map_err(StoreError::from) {
            Ok(there) => {
                for index in left_out.iter().filter(|index| there.contains(index)) {
                    tracing::info!(%index, "indexes is \"lean\", and an index of tasks that only Perl programs need is there: it stays until somebody drops it");
                }
                Ok(())
            }
            Err(error) if error.is_transient() => Err(error),
            // Users of an older release have no right to list them. It is said for information only.
            Err(_) => Ok(()),
        }
    }

    /// The same for indexes of one collection one after the other, as one of them was refused. Returns why, if anything
    /// needs it.
    async fn ensure_each(
        &self,
        (name, essential): (&str, bool),
        indexes: Vec<IndexModel>,
    ) -> Result<Option<StoreError>, StoreError> {
        let mut refused = None;
        for index in indexes {
            let is_unique = index.options.as_ref().is_some_and(|options| options.unique == Some(true));
            let created = self.database().collection::<Document>(name).create_index(index).await;
            let created = created.map_err(StoreError::from);
            let failure = created.as_ref().err().and_then(StoreError::write_failure);
            match created {
                Ok(_) => {}
                Err(error) if error.is_away() => return Err(error),
                // A unique one of an earlier release, which serves as well.
                Err(_) if !is_unique && failure.as_ref().is_some_and(WriteFailure::is_other_index) => {}
                Err(error)
                    if is_unique && failure.as_ref().is_some_and(WriteFailure::is_impossible_index) =>
                {
                    tracing::warn!(%error, collection = name, "the server can have no such unique index, as the collection is sharded; what it keeps is kept without");
                }
                Err(error @ StoreError::Refused { .. }) if !essential => {
                    tracing::warn!(%error, collection = name, "cannot create an index; `disbatch create-users` gives the right to");
                }
                Err(error) => {
                    refused.get_or_insert(error);
                }
            }
        }
        Ok(refused)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A collection that is sharded can have no unique index that does not begin with its shard key, which is queue and `_id` here.
    #[test]
    fn of_tasks_slots_of_groups_alone_have_a_unique_index() {
        let unique: Vec<String> = of_tasks().iter().filter(|index| index.unique).map(Index::name).collect();
        assert_eq!(unique, ["queue_1_group_1_group_slot_1"]);
        let other = Index::on(doc! { "queue": 1, "unique": 1 });
        assert!(!other.is_among(&[doc! { "queue": 1 }, doc! { "unique": 1, "queue": 1 }]));
        assert!(other.is_among(&[doc! { "queue": 1 }, doc! { "queue": 1, "unique": 1 }]));
    }

    /// The fields of an index, as `get_indexes` of Perl's DCI finds them in its name.
    fn fields_for_perl(name: &str) -> Vec<String> {
        let ascending = match name.find("_-1_") {
            Some(at) => format!("{}_1_{}", &name[..at], &name[at + 4..]),
            None => name.strip_suffix("_-1").map_or_else(|| name.to_owned(), |name| format!("{name}_1")),
        };
        let fields = ascending.strip_suffix("_1").unwrap_or(&ascending);
        fields.split("_1_").map(str::to_owned).collect()
    }

    #[test]
    fn perl_finds_the_fields_of_all_indexes_of_tasks_in_their_names() {
        let indexes = of_tasks();
        for index in &indexes {
            assert_eq!(fields_for_perl(&index.name()), index.keys.keys().cloned().collect::<Vec<_>>());
        }
        assert_eq!(fields_for_perl("a_1_b_-1_c_-1"), ["a", "b", "c_-1"], "of two it knows the first");
        let of_page = Index::on(doc! { "a": 1, "b": -1 });
        assert_eq!(of_page.name(), "a_1_b_-1", "as the server names it");
        let groups = Index::on(crate::fair::index_of_groups());
        assert_eq!(groups.name(), "queue_1_status_1_group_1_again_1_priority_1__id_1");
        let names: std::collections::BTreeSet<String> = indexes.iter().map(Index::name).collect();
        assert_eq!(names.len(), indexes.len(), "each has another");
    }
}
