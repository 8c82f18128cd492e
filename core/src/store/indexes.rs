//! The indexes that a DEN ensures at its start.

use disbatch_operation::operation;
use std::collections::BTreeMap;
use std::time::Duration;

use bson::{Document, doc};
use futures::TryStreamExt;
use mongodb::IndexModel;
use mongodb::options::IndexOptions;

use super::{Store, StoreError};
use crate::{accounts, arrays, audit, callbacks, fair, files, gates, live, rate, schedules, series};

/// How long an idempotency key is remembered.
const SUBMISSIONS_KEPT: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long entries of the audit are kept if they are to be kept for ever: 68 years are the longest time that the
/// server knows.
const FOR_EVER: Duration = Duration::from_secs(2_147_483_647);

/// How long it is remembered that there was a version of a file set, so that its number does not come again at once.
const FILE_SETS_KEPT: Duration = Duration::from_secs(30 * 24 * 3600);

/// How long it is remembered that a task was deleted, for movers that had read it before.
const TOMBSTONES_KEPT: Duration = Duration::from_secs(3600);

struct Index {
    collection: &'static str,
    keys: Document,
    unique: bool,
    /// Only documents that match this are in it.
    partial: Option<Document>,
    sparse: bool,
    /// Documents go away so long after the time in the field.
    expire: Option<Duration>,
}

impl Index {
    fn on(collection: &'static str, keys: Document) -> Self {
        Self { collection, keys, unique: false, partial: None, sparse: false, expire: None }
    }

    fn unique(self) -> Self {
        Self { unique: true, ..self }
    }

    fn sparse(self) -> Self {
        Self { sparse: true, ..self }
    }

    fn only(self, partial: Document) -> Self {
        Self { partial: Some(partial), ..self }
    }

    fn expire(self, after: Duration) -> Self {
        Self { expire: Some(after), ..self }
    }

    fn model(self) -> IndexModel {
        let options = IndexOptions::builder()
            .unique(self.unique.then_some(true))
            .sparse(self.sparse.then_some(true))
            .partial_filter_expression(self.partial)
            .expire_after(self.expire)
            .build();
        IndexModel::builder().keys(self.keys).options(options).build()
    }
}

/// Those of Disbatch (Disbatch 4 design, Database Collections). Names are MongoDB's default names, as Perl
/// creates them.
fn of_disbatch() -> Vec<Index> {
    vec![
        Index::on("tasks", doc! { "node": 1, "status": 1, "queue": 1 }),
        Index::on("tasks", doc! { "node": 1, "status": 1, "queue": 1, "_id": 1 }),
        Index::on("tasks", doc! { "node": 1, "status": 1, "queue": 1, "_id": -1 }),
        Index::on("tasks", doc! { "queue": 1, "status": 1 }),
        Index::on("queues", doc! { "name": 1 }).unique(),
        Index::on("nodes", doc! { "node": 1 }).unique(),
        Index::on("tasks.chunks", doc! { "files_id": 1, "n": 1 }).unique(),
        Index::on("tasks.files", doc! { "filename": 1, "metadata.task_id": 1 }),
    ]
}

/// Ours. Those of `tasks` hold the few tasks that are on their way, save two for pages.
fn of_ours() -> Vec<Index> {
    let taken = doc! { "status": { "$gte": -1, "$lte": 0 } };
    vec![
        // A place in a queue is taken once: this keeps `threads`, however many DENs claim at once.
        Index::on("tasks", doc! { "queue": 1, "slot": 1 })
            .unique()
            .only(doc! { "status": { "$gte": -1, "$lte": 0 }, "slot": { "$exists": true } }),
        // Who has tasks of its own, and not those that web services work on: these may be many.
        Index::on("tasks", doc! { "node": 1, "status": 1, "external.detached": 1 }).only(taken.clone()),
        Index::on("tasks", doc! { "lease_until": 1 }).only(taken),
        Index::on("tasks", doc! { "run_at": 1 }).only(doc! { "status": -7 }),
        // By status first: those that must not have a place are found without reading the others.
        Index::on("tasks", doc! { "status": 1, "slot": 1 }).only(doc! { "slot": { "$exists": true } }),
        // By status first: the deadlines of tasks that wait, and not those of ended ones.
        Index::on("tasks", doc! { "status": 1, "deadline": 1 })
            .only(doc! { "deadline": { "$exists": true } }),
        Index::on("nodes", doc! { "state": 1, "seen": 1 }).only(doc! { "seen": { "$type": "date" } }),
        // Pages in the order of ids, for the two phases that grow. A task moves from one to the other once, unless
        // it is given back or tried again.
        Index::on("tasks", crate::task::pages::queued_index()).only(doc! { "status": { "$lte": -2 } }),
        Index::on("tasks", crate::task::pages::completed_index()).only(doc! { "status": { "$gte": 1 } }),
        // At most one task with a key waits or runs in a queue.
        Index::on("tasks", doc! { "queue": 1, "unique": 1 }).unique().only(doc! {
            "unique": { "$exists": true }, "status": { "$in": [-7, -4, -2, -1, 0] },
        }),
        // Gates: blocked tasks by what they wait for, and what changes that.
        Index::on("tasks", doc! { "gate": 1, "_id": 1 })
            .only(doc! { "status": -4, "gate": { "$exists": true } }),
        Index::on("tasks", doc! { "waiting_for": 1, "_id": 1 })
            .only(doc! { "status": -4, "waiting_for": { "$exists": true } }),
        Index::on("tasks", doc! { "needs_lock": 1, "_id": 1 })
            .only(doc! { "status": -4, "needs_lock": { "$exists": true } }),
        Index::on("tasks", doc! { "dependents": 1, "status": 1 }).only(doc! { "dependents": true }),
        Index::on("tasks", doc! { "holds_locks": 1, "status": 1 }).only(doc! { "holds_locks": true }),
        Index::on(gates::LOCKS, doc! { "dirty": 1 }).only(doc! { "dirty": true }),
        // What comes after a task, for pictures.
        Index::on("tasks", doc! { "after": 1 }).only(doc! { "after": { "$exists": true } }),
        Index::on("tasks.archive", doc! { "after": 1 }).only(doc! { "after": { "$exists": true } }),
        // Arrays that are open, and their elements: by status first, to find one that has not ended.
        Index::on(arrays::COLLECTION, doc! { "work": 1 }).only(doc! { "work": true }),
        Index::on(arrays::COLLECTION, doc! { "looked": 1 }).only(doc! { "state": "done" }),
        Index::on(arrays::COLLECTION, doc! { "gone": 1 }).expire(arrays::KEPT).only(doc! { "state": "done" }),
        Index::on("tasks", elements()).only(doc! { "array.id": { "$exists": true } }),
        Index::on("tasks.archive", elements()).only(doc! { "array.id": { "$exists": true } }),
        Index::on("tasks.attempts", doc! { "task": 1, "attempt": 1 }).unique(),
        // What web services log, in its order, and what was left behind of it.
        Index::on(callbacks::LOG, doc! { "task": 1, "attempt": 1, "n": 1 }).unique(),
        Index::on(callbacks::LOG, doc! { "at": 1, "task": 1, "attempt": 1 }),
        Index::on("submissions", doc! { "at": 1 }).expire(SUBMISSIONS_KEPT),
        Index::on(audit::COLLECTION, doc! { "at": 1, "_id": 1 }),
        Index::on(audit::COLLECTION, doc! { "user": 1, "at": 1, "_id": 1 }),
        Index::on(accounts::SESSIONS, doc! { "user": 1 }),
        // Sessions are of no use after that; this only tidies up.
        Index::on(accounts::SESSIONS, doc! { "expires": 1 }).expire(Duration::ZERO),
        Index::on(accounts::TOKENS, doc! { "user": 1 }),
        Index::on("tasks.archive", doc! { "queue": 1, "status": 1 }),
        Index::on("tasks.archive", doc! { "mtime": 1 }),
        // Copies whose move has not come to its end.
        Index::on("tasks.archive", doc! { "moving": 1 }).sparse(),
        Index::on("tasks.deleting", doc! { "done": 1 }).expire(TOMBSTONES_KEPT),
        Index::on("bulk", doc! { "state": 1, "lease_until": 1 }),
        Index::on(series::COLLECTION, doc! { "at": 1 }).expire(series::KEPT),
        Index::on(rate::COLLECTION, doc! { "full": 1 }).expire(rate::KEPT),
        // What a tenant has that waits or runs, and under which reservation it came.
        Index::on("tasks", doc! { "tenant": 1, "status": 1, "reserved": 1 })
            .only(doc! { "tenant": { "$exists": true }, "status": { "$lte": 0 } }),
        Index::on(schedules::COLLECTION, doc! { "tenant": 1 }).only(doc! { "tenant": { "$exists": true } }),
    ]
}

fn elements() -> Document {
    doc! { "array.id": 1, "status": 1, "array.index": 1 }
}

/// Those of schedules.
fn of_schedules() -> Vec<Index> {
    let with_time = doc! { "scheduled_for": { "$exists": true } };
    vec![
        // A time has one task, whoever makes it.
        Index::on("tasks", doc! { "schedule": 1, "scheduled_for": 1 }).unique().only(with_time.clone()),
        Index::on("tasks.archive", doc! { "schedule": 1, "scheduled_for": 1 }).only(with_time),
        Index::on("tasks", doc! { "schedule": 1, "status": 1 })
            .only(doc! { "schedule": { "$exists": true } }),
        Index::on("tasks", doc! { "unsettled": 1, "status": 1 }).only(doc! { "unsettled": true }),
        Index::on(schedules::COLLECTION, doc! { "name": 1 }).unique(),
        Index::on(schedules::COLLECTION, doc! { "next": 1 }).only(doc! { "next": { "$type": "date" } }),
        Index::on(schedules::COLLECTION, doc! { "firing_at": 1 })
            .only(doc! { "firing_at": { "$type": "date" } }),
    ]
}

/// Those of file sets.
fn of_files() -> Vec<Index> {
    vec![
        // Of several who open a version of a set, each gets another number.
        Index::on(files::SETS, doc! { "name": 1, "version": -1 }).unique(),
        Index::on(files::SETS, doc! { "state": 1, "touched": 1 }),
        // What there is of a set is found, listed and summed up by this one, without those that are gone.
        Index::on(
            files::SETS,
            doc! { "state": 1, "name": 1, "version": -1, "tenant": 1, "bytes": 1, "_id": 1 },
        ),
        // Those that are gone and still have entries.
        Index::on(files::SETS, doc! { "state": 1, "emptied": 1 }).only(doc! { "state": "gone" }),
        Index::on(files::SETS, doc! { "task": 1 }).only(doc! { "task": { "$exists": true } }),
        Index::on(files::SETS, doc! { "expires": 1 }).only(doc! { "expires": { "$type": "date" } }),
        Index::on(files::SETS, doc! { "emptied": 1 }).expire(FILE_SETS_KEPT),
        Index::on(files::ENTRIES, doc! { "set": 1, "path": 1 }).unique(),
        // Which versions have a content, whose they are before anything else: `files/known.rs` steps from one to the next.
        Index::on(files::ENTRIES, doc! { "file": 1, "tenant": 1, "set": 1 }),
        // Equal files are stored once, and of each who sends one, it is one upload that goes on.
        Index::on(files::CONTENTS, doc! { "filename": 1 }).unique().only(doc! { "state": "done" }),
        Index::on(files::CONTENTS, doc! { "filename": 1, "by": 1 }).unique().only(doc! { "state": "open" }),
        Index::on(files::CONTENTS, doc! { "filename": 1, "state": 1 }),
        Index::on(files::CONTENTS, doc! { "loose": 1 }).only(doc! { "loose": { "$type": "date" } }),
        Index::on(files::CHUNKS, doc! { "files_id": 1, "n": 1 }).unique(),
    ]
}

/// Those of queues that are fair or go by priority.
fn of_policies() -> Vec<Index> {
    let queued = |field: &str| doc! { "status": -2, field: { "$exists": true } };
    vec![
        Index::on("tasks", fair::index_of_groups()).only(queued("group")),
        Index::on("tasks", fair::index_of_priorities()).only(queued("priority")),
        // A place in a group is taken once: this keeps `group_threads`, as the one over places of queues keeps `threads`.
        Index::on("tasks", doc! { "queue": 1, "group": 1, "group_slot": 1 })
            .unique()
            .only(doc! { "status": { "$gte": -1, "$lte": 0 }, "group_slot": { "$exists": true } }),
        Index::on(fair::GROUPS, doc! { "at": 1 }).expire(fair::KEPT),
        Index::on(fair::TURNS, doc! { "at": 1 }).expire(fair::KEPT),
    ]
}

impl Store {
    /// Whether the index is there that keeps tasks with the same `unique` key apart: a DEN of an older release
    /// has not created it.
    ///
    /// # Errors
    /// The database cannot be reached.
    #[operation]
    pub async fn keeps_unique_keys(&self) -> Result<bool, StoreError> {
        self.keeps_apart(&["queue", "unique"]).await
    }

    /// Whether a unique index over these fields of tasks is there.
    ///
    /// # Errors
    /// The database cannot be reached.
    pub(crate) async fn keeps_apart(&self, fields: &[&str]) -> Result<bool, StoreError> {
        let indexes: Vec<IndexModel> = match self.tasks().list_indexes().await {
            Ok(cursor) => cursor.try_collect().await?,
            Err(error) => match StoreError::from(error) {
                missing if missing.write_failure().is_some_and(|failure| failure.is_no_collection()) => {
                    Vec::new()
                }
                other => return Err(other),
            },
        };
        let keeps = |index: &IndexModel| {
            let unique = index.options.as_ref().is_some_and(|options| options.unique == Some(true));
            unique && index.keys.keys().eq(fields)
        };
        Ok(indexes.iter().any(keeps))
    }

    /// Has the server remove entries of the audit that are so old; `None`: none of them, as long as anybody can tell.
    /// What holds for all is what was said last.
    ///
    /// # Errors
    /// The database cannot be reached, or refuses the user.
    #[operation]
    pub async fn keep_audit(&self, kept: Option<Duration>) -> Result<(), StoreError> {
        let kept = kept.unwrap_or(FOR_EVER).min(FOR_EVER);
        // The server looks at this one for what to remove, and only at one with a single field.
        let index = Index::on(audit::COLLECTION, doc! { "at": 1 }).expire(kept).model();
        let entries = self.database().collection::<Document>(audit::COLLECTION);
        match entries.create_index(index).await.map_err(StoreError::from) {
            Ok(_) => Ok(()),
            Err(error) if error.write_failure().is_some_and(|failure| failure.is_other_index()) => {
                let seconds = i64::try_from(kept.as_secs()).unwrap_or(i64::MAX);
                let index = doc! { "keyPattern": { "at": 1 }, "expireAfterSeconds": seconds };
                self.database().run_command(doc! { "collMod": audit::COLLECTION, "index": index }).await?;
                tracing::info!(
                    days = kept.as_secs() / 86_400,
                    "entries of the audit are kept so long from now on"
                );
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Creates every index that is missing. One that the server refuses does not keep the others from being
    /// created. Users that Perl Disbatch made have no right to those of collections that it does not know; what
    /// needs these does without.
    ///
    /// # Errors
    /// The database cannot be reached; or it refuses an index, for instance because documents violate a
    /// unique one. The message names it.
    #[operation]
    pub async fn ensure_indexes(&self) -> Result<(), StoreError> {
        let mut refused = None;
        let essential = of_disbatch().into_iter().map(|index| (true, index.collection, index.model()));
        let ours = of_ours().into_iter().chain(of_policies()).chain(of_schedules()).chain(of_files());
        let ours = ours.map(|index| (false, index.collection, index.model()));
        let live = live::indexes().map(|index| (false, live::COLLECTION, index));
        // Those of Disbatch come first: of two that serve a query as well, the server takes the older one, and the order in
        // which tasks are found is that of the index.
        let mut of_collections: BTreeMap<(bool, &str), Vec<IndexModel>> = BTreeMap::new();
        for (essential, name, index) in essential.chain(ours).chain(live) {
            of_collections.entry((!essential, name)).or_default().push(index);
        }
        for ((ours, name), indexes) in of_collections {
            let essential = !ours;
            let collection = self.database().collection::<Document>(name);
            // All at once: the server reads a collection once for all of them.
            match collection.create_indexes(indexes.clone()).await.map_err(StoreError::from) {
                Ok(_) => {}
                Err(error) if error.is_transient() => return Err(error),
                Err(_) => {
                    let error = self.ensure_each((name, essential), indexes).await?;
                    refused = refused.or(error);
                }
            }
        }
        refused.map_or(Ok(()), Err)
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
            let created = self.database().collection::<Document>(name).create_index(index).await;
            match created.map_err(StoreError::from) {
                Ok(_) => {}
                Err(error) if error.is_transient() => return Err(error),
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
