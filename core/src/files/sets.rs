//! Versions of file sets: they are opened, found, listed and removed; and what nobody needs any more goes away. Whoever does that, and
//! however many do it at once, it is a number of conditional updates; see [`crate::files`] for why no content goes that a version has.

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_operation::operation;
use mongodb::options::ReturnDocument;

use super::upload::{DONE, GONE};
use super::{FileSet, FilesError, MOST_AT_ONCE, SETS, SetName, SetState, TRIES, id_of, literal};
use crate::model::{FileSetId, TaskId, whole_number};
use crate::store::error::typed;
use crate::store::{Store, StoreError, collect, count_of, integer, put, with};

/// So many sets or versions are listed at once at most.
const MOST_LISTED: i64 = 1_000;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct NewSet {
    pub by: Option<String>,
    /// Whose it is. All versions of a set are of one tenant, or of none.
    pub tenant: Option<String>,
    /// The task that makes it, and which attempt of it. What earlier attempts have left open is given up.
    pub task: Option<(TaskId, i64)>,
    /// When it is to go away by itself.
    pub expires: Option<DateTime>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SetQuery {
    /// Of these tenants. `None`: of any, or of none.
    pub tenants: Option<Vec<String>>,
    /// Those that come after this name, in the order of names.
    pub after: Option<String>,
    /// So many at most; 0 for as many as are listed at once.
    pub limit: i64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct SetSummary {
    /// Its newest version that is done.
    pub latest: FileSet,
    pub versions: u64,
    /// How many bytes these say they have. Equal files are stored once.
    pub bytes: u64,
}

impl Store {
    /// Opens a new version of a set. It gets the number after the highest that there was.
    #[operation(%name)]
    pub async fn fileset_open(&self, name: &SetName, new: &NewSet) -> Result<FileSet, FilesError> {
        if let Some((task, attempt)) = new.task {
            let earlier = doc! { "task": task, "attempt": { "$lt": attempt }, "state": SetState::Open };
            self.filesets_collection().update_many(earlier, gone()).await?;
        }
        for _ in 0..TRIES {
            let sets = self.filesets_collection();
            let by_number = doc! { "version": -1 };
            let newest = sets.find_one(doc! { "name": name.as_str() }).sort(by_number.clone());
            let newest = newest.projection(doc! { "version": 1 }).await?;
            // Whoever opens a version from now on gets this number, so one of two is refused, and looks again.
            let version =
                newest.as_ref().and_then(|set| set.get("version")).and_then(whole_number).unwrap_or(0) + 1;
            // All that are not gone are of one tenant, so one of them tells whose the set is.
            let alive = doc! { "name": name.as_str(), "state": { "$in": SetState::ALIVE.to_vec() } };
            let other = sets.find_one(alive).sort(by_number).projection(doc! { "tenant": 1 }).await?;
            if other.is_some_and(|other| other.get_str("tenant").ok() != new.tenant.as_deref()) {
                return Err(FilesError::OfAnotherTenant(name.clone()));
            }
            if let Some(set) = self.insert_fileset(name, version, new).await? {
                return Ok(set);
            }
        }
        Err(FilesError::Busy)
    }

    /// `None`: somebody else has that number.
    async fn insert_fileset(
        &self,
        name: &SetName,
        version: i64,
        new: &NewSet,
    ) -> Result<Option<FileSet>, StoreError> {
        let mut fields = doc! {
            "name": literal(name.as_str()), "version": version, "state": SetState::Open, "count": 0_i64, "bytes": 0_i64,
            "created": "$$NOW", "touched": "$$NOW", "tickets": 0_i64, "pending": [], "lost": [],
        };
        let given = [
            ("by", new.by.clone().map(Bson::from)),
            ("tenant", new.tenant.clone().map(Bson::from)),
            ("task", new.task.map(|(task, _)| task.into())),
            ("attempt", new.task.map(|(_, attempt)| attempt.into())),
            ("expires", new.expires.map(Bson::from)),
        ];
        for (field, value) in given {
            put(&mut fields, field, value.map(literal));
        }
        let opened = self
            .filesets_collection()
            .find_one_and_update(doc! { "_id": ObjectId::new() }, vec![doc! { "$set": fields }])
            .upsert(true)
            .return_document(ReturnDocument::After)
            .await;
        let opened = StoreError::unless_duplicate(opened)?;
        opened.map(|set| typed(SETS, set.unwrap_or_default())).transpose()
    }

    /// A version by its id, wherever it stands.
    #[operation(%id)]
    pub async fn find_fileset(&self, id: FileSetId) -> Result<Option<FileSet>, StoreError> {
        self.one_fileset(doc! { "_id": id }).await
    }

    /// The newest version of a set that is done: the one with the highest number. What tasks have left by their ends is.
    #[operation(%name)]
    pub async fn fileset_latest(&self, name: &SetName) -> Result<Option<FileSet>, StoreError> {
        self.done_fileset(doc! { "name": name.as_str() }).await
    }

    /// A version of a set, if it is done.
    #[operation(%name, version)]
    pub async fn fileset_version(&self, name: &SetName, version: i64) -> Result<Option<FileSet>, StoreError> {
        self.done_fileset(doc! { "name": name.as_str(), "version": version }).await
    }

    /// The newest of these versions that is done. If a sealed one would be passed over, it is seen to first what has become
    /// of its run.
    async fn done_fileset(&self, which: Document) -> Result<Option<FileSet>, StoreError> {
        let in_states = |states: Vec<SetState>| with(which.clone(), doc! { "state": { "$in": states } });
        let newest = self.one_fileset(in_states(vec![SetState::Sealed, SetState::Done])).await?;
        if newest.as_ref().is_none_or(|set| set.state == SetState::Done) {
            return Ok(newest);
        }
        self.settle_sealed(which.clone()).await?;
        self.one_fileset(in_states(vec![SetState::Done])).await
    }

    async fn one_fileset(&self, filter: Document) -> Result<Option<FileSet>, StoreError> {
        let found = self.filesets_collection().find_one(filter).sort(doc! { "version": -1 }).await?;
        found.map(|set| typed(SETS, set)).transpose()
    }

    /// Versions of a set that are done, the newest first: those below the number `before`, at most `limit`; 0 for as many as
    /// are listed at once.
    #[operation(%name)]
    pub async fn fileset_versions(
        &self,
        name: &SetName,
        before: Option<i64>,
        limit: i64,
    ) -> Result<Vec<FileSet>, StoreError> {
        self.settle_sealed(doc! { "name": name.as_str() }).await?;
        let mut filter = doc! { "name": name.as_str(), "state": SetState::Done };
        put(&mut filter, "version", before.map(|before| doc! { "$lt": before }));
        let sets = self.filesets_collection();
        let found = collect(sets.find(filter).sort(doc! { "version": -1 }).limit(listed(limit))).await?;
        found.into_iter().map(|set| typed(SETS, set)).collect()
    }

    /// Sets that have a version that is done, by name.
    #[operation]
    pub async fn filesets(&self, query: &SetQuery) -> Result<Vec<SetSummary>, StoreError> {
        self.settle_sealed(Document::new()).await?;
        let sets = self.filesets_collection();
        let names = collect(sets.aggregate(names(query))).await?;
        let names: Vec<Bson> = names.into_iter().filter_map(|mut set| set.remove("_id")).collect();
        if names.is_empty() {
            return Ok(Vec::new());
        }
        let found = collect(sets.aggregate(summaries(names, query))).await?;
        found.into_iter().filter_map(|group| summary(group).transpose()).collect()
    }

    /// Removes a version of a set, or all of them with those that are not done yet. Returns how many. Their files stay for a
    /// day, and longer where other versions have them.
    #[operation(%name)]
    pub async fn fileset_delete(&self, name: &SetName, version: Option<i64>) -> Result<u64, StoreError> {
        let mut filter = doc! { "name": name.as_str(), "state": { "$in": SetState::ALIVE.to_vec() } };
        put(&mut filter, "version", version);
        Ok(self.filesets_collection().update_many(filter, gone()).await?.modified_count)
    }

    /// Takes back what an attempt of a task has made and that nobody has seen, as it gives up: what it has ended its task
    /// with stays. Returns how many versions.
    #[operation(%task, attempt)]
    pub async fn withdraw_filesets(&self, task: TaskId, attempt: i64) -> Result<u64, StoreError> {
        self.settle_filesets(task).await?;
        let made = doc! {
            "task": task, "attempt": attempt, "state": { "$in": [SetState::Open, SetState::Sealed] },
        };
        Ok(self.filesets_collection().update_many(made, gone()).await?.modified_count)
    }
}

/// What becomes of a version that is removed.
pub(super) fn gone() -> Vec<Document> {
    vec![doc! { "$set": { "state": SetState::Gone, "touched": "$$NOW" } }]
}

fn listed(limit: i64) -> i64 {
    if (1..=MOST_LISTED).contains(&limit) { limit } else { MOST_LISTED }
}

fn wanted(query: &SetQuery) -> Document {
    let mut wanted = doc! { "state": SetState::Done };
    put(&mut wanted, "tenant", query.tenants.as_ref().map(|tenants| doc! { "$in": tenants }));
    wanted
}

/// Finds the names of sets, in order. The server leaps from name to name in an index, and reads no version.
fn names(query: &SetQuery) -> [Document; 4] {
    let mut wanted = wanted(query);
    put(&mut wanted, "name", query.after.as_ref().map(|after| doc! { "$gt": after }));
    [
        doc! { "$match": wanted },
        doc! { "$group": { "_id": "$name" } },
        doc! { "$sort": { "_id": 1 } },
        doc! { "$limit": listed(query.limit) },
    ]
}

/// Sums up the versions of these sets, by an index alone, and fetches the newest of each.
fn summaries(names: Vec<Bson>, query: &SetQuery) -> [Document; 5] {
    [
        doc! { "$match": with(wanted(query), doc! { "name": { "$in": names } }) },
        doc! { "$sort": { "name": 1, "version": -1 } },
        doc! { "$group": {
            "_id": "$name", "latest": { "$first": "$_id" }, "versions": { "$sum": 1 }, "bytes": { "$sum": "$bytes" },
        } },
        doc! { "$sort": { "_id": 1 } },
        doc! { "$lookup": { "from": SETS, "localField": "latest", "foreignField": "_id", "as": "latest" } },
    ]
}

/// `None`: the server has forgotten the newest version meanwhile.
fn summary(mut group: Document) -> Result<Option<SetSummary>, StoreError> {
    let (versions, bytes) = (count_of(&group, "versions"), count_of(&group, "bytes"));
    let latest = match group.remove("latest") {
        Some(Bson::Array(found)) => found.into_iter().next(),
        _ => None,
    };
    let Some(Bson::Document(latest)) = latest else { return Ok(None) };
    let (versions, bytes) = (versions.unwrap_or(0), bytes.unwrap_or(0));
    Ok(Some(SetSummary { latest: typed(SETS, latest)?, versions, bytes }))
}

/// An open version that nobody has touched for so long was given up, and a content that no version has for so long is not
/// needed: milliseconds.
const KEPT: i64 = 24 * 3600 * 1000;

/// So many versions or contents are looked at in one sweep.
const MOST: i64 = 500;

const MOST_PAGES: usize = 100;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SweptFiles {
    /// Versions that were given up, or that nobody will see, or that had run out.
    pub versions: u64,
    /// Entries of versions that are gone.
    pub entries: u64,
    /// Contents, and uploads that were broken off.
    pub contents: u64,
    /// How many bytes these had, or were to have.
    pub bytes: u64,
    pub more: bool,
}

impl Store {
    /// Removes versions that were given up or have run out, entries of those that are gone, and contents that no version has
    /// for a day. A bounded part of it at once; the next sweep goes on.
    #[operation]
    pub async fn sweep_files(&self) -> Result<SweptFiles, StoreError> {
        let mut swept = SweptFiles { versions: self.give_up_versions().await?, ..SweptFiles::default() };
        (swept.entries, swept.more) = self.remove_entries().await?;
        let old = doc! { "loose": { "$type": "date" }, "$expr": is_older("$loose") };
        let only = doc! { "filename": 1, "state": 1, "length": 1, "loose": 1 };
        let contents = self.contents_collection();
        let found = contents.find(old).projection(only).sort(doc! { "loose": 1 }).limit(MOST);
        let found = collect(found).await?;
        swept.more |= integer(found.len()) == MOST;
        for content in found {
            if self.sweep_content(&content).await? {
                swept.contents += 1;
                swept.bytes += count_of(&content, "length").unwrap_or(0);
            }
        }
        Ok(swept)
    }

    async fn give_up_versions(&self) -> Result<u64, StoreError> {
        let sets = self.filesets_collection();
        let given_up = doc! { "state": SetState::Open, "$expr": is_older("$touched") };
        let run_out = doc! {
            "state": SetState::Done, "expires": { "$type": "date" }, "$expr": { "$lt": ["$expires", "$$NOW"] },
        };
        // Of runs, where nobody has looked since they have ended.
        let mut versions = self.settle_sealed(Document::new()).await?.gone;
        for filter in [given_up, run_out] {
            versions += sets.update_many(filter, gone()).await?.modified_count;
        }
        Ok(versions)
    }

    /// Removes entries of versions that are gone. A version without any is remembered for a while, so that its number is not
    /// used again at once; the server removes it. Returns how many, and whether there may be more.
    async fn remove_entries(&self) -> Result<(u64, bool), StoreError> {
        let sets = self.filesets_collection();
        let left = doc! { "state": SetState::Gone, "emptied": Bson::Null };
        let found = collect(sets.find(left).projection(doc! { "_id": 1 }).limit(MOST)).await?;
        let (mut removed, mut pages) = (0, 0);
        for set in found.iter().filter_map(id_of) {
            loop {
                if pages >= MOST_PAGES {
                    return Ok((removed, true));
                }
                pages += 1;
                let (had, count) = self.remove_page(set).await?;
                removed += count;
                if had < MOST_AT_ONCE {
                    break;
                }
            }
            let emptied = doc! { "$currentDate": { "emptied": true } };
            sets.update_one(doc! { "_id": set, "state": SetState::Gone }, emptied).await?;
        }
        Ok((removed, integer(found.len()) == MOST))
    }

    /// Removes some of the entries of a version that is gone. Returns how many it had of these, and how many were removed: others may do the
    /// same.
    async fn remove_page(&self, set: ObjectId) -> Result<(usize, u64), StoreError> {
        let most = integer(MOST_AT_ONCE);
        let only = doc! { "file": 1 };
        let found =
            collect(self.entries_collection().find(doc! { "set": set }).projection(only).limit(most)).await?;
        if found.is_empty() {
            return Ok((0, 0));
        }
        let ids: Vec<ObjectId> = found.iter().filter_map(id_of).collect();
        let files: Vec<&str> = found.iter().filter_map(|entry| entry.get_str("file").ok()).collect();
        // Before they are removed: who dies in between leaves entries that the next one finds.
        let named = doc! { "filename": { "$in": files }, "state": DONE };
        self.contents_collection().update_many(named, doc! { "$currentDate": { "loose": true } }).await?;
        let removed = self.entries_collection().delete_many(doc! { "_id": { "$in": ids } }).await?;
        Ok((found.len(), removed.deleted_count))
    }

    /// Removes a content or an upload that is as it was found, if it is still so, and no version has it. Returns whether it
    /// has.
    async fn sweep_content(&self, content: &Document) -> Result<bool, StoreError> {
        let (Some(id), Ok(state)) = (id_of(content), content.get_str("state")) else { return Ok(false) };
        let Ok(loose) = content.get_datetime("loose").copied() else { return Ok(false) };
        if state == GONE {
            self.remove_content(id).await?;
            return Ok(true);
        }
        // Versions that are gone do not count: they will lose their entries, and nobody would look at the content again.
        let file = content.get_str("filename").unwrap_or_default();
        if state == DONE && self.is_in_version(file, None, &SetState::ALIVE).await? {
            let known = doc! { "_id": id, "state": DONE, "loose": loose };
            self.contents_collection().update_one(known, doc! { "$unset": { "loose": "" } }).await?;
            return Ok(false);
        }
        let still_so = doc! { "_id": id, "state": state, "loose": loose };
        let removed =
            self.contents_collection().update_one(still_so, doc! { "$set": { "state": GONE } }).await?;
        if removed.matched_count == 1 {
            self.remove_content(id).await?;
        }
        Ok(removed.matched_count == 1)
    }
}

/// A condition: the time is a day ago, by the server's clock.
fn is_older(time: &str) -> Document {
    doc! { "$lt": [time, { "$subtract": ["$$NOW", KEPT] }] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_read_as_it_is_stored() {
        let id = ObjectId::new();
        let at = DateTime::from_millis(5);
        let stored = doc! {
            "_id": id, "name": "data", "version": 3_i64, "state": "done", "count": 2_i64, "bytes": 7_i64,
            "created": at, "touched": at, "committed": at, "tickets": 4_i64, "pending": [], "lost": [2_i64],
            "attempt": 1_i64, "tenant": "acme",
        };
        let set: FileSet = typed(SETS, stored).unwrap();
        assert_eq!((set.id, set.version, set.state), (FileSetId(id), 3, SetState::Done));
        assert_eq!((set.count, set.bytes, set.lost.as_slice()), (2, 7, &[2][..]));
        assert_eq!((set.tenant.as_deref(), set.task, set.committed), (Some("acme"), None, Some(at)));
        assert_eq!((listed(0), listed(7), listed(5_000)), (MOST_LISTED, 7, MOST_LISTED));
    }
}
