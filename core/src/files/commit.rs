//! Commit: a version is whole. That of a task's run is sealed, and all others are done. Settle: what a run has left is done when
//! the run has ended its task well, and gone when it has not.
//!
//! **A version that a run has left is seen only with the end of its task.** The run seals it before it ends the task, and a
//! version that is sealed is shown to nobody. Here alone it becomes done, on the condition that the task has ended with
//! status 1 by that very attempt; that is read after the version was found. It becomes gone if the task has gone on without
//! the run, and stays as it is while the run is at work.
//!
//! Whoever looks for versions settles first those that it would pass over, and so do sweeps: nobody relies on the runner or
//! the DEN to have come this far before it died. What has become of a run does not change any more, once it has ended.
//! A task that has ended is begun again, or removed, only after what it has left was settled. Its end may be read before a
//! majority of the servers has it, and what is settled may not be taken back. So whoever settles waits until a majority has all that could
//! be read when the versions were found, and whoever has seen the end of a task sees what it has left. A majority that is behind is not
//! waited for long: then what it has counts. A task is not begun again while a version is sealed, and a deletion is noted by
//! a majority first, which then has the end as well.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Document, doc};
use disbatch_operation::operation;
use futures::TryStreamExt;
use mongodb::ClientSession;
use mongodb::options::{ReadConcern, ReturnDocument};

use super::sets::gone;
use super::upload::DONE;
use super::{
    ContentId, EntryQuery, FileSet, FilesError, MOST_FILES, SETS, SetState, TRIES, content_of, id_of,
};
use crate::model::{FileSetId, Status, TaskId, whole_number};
use crate::store::collections::TASKS;
use crate::store::error::typed;
use crate::store::{Store, StoreError, collect, count_of, integer, with};
use crate::task::archive;

/// So many contents that are missing are named.
const NAMED: usize = 100;

/// So many versions are settled at once.
const AT_ONCE: i64 = 1_000;

/// So long it is waited for a majority of the servers to have what the primary has. It is behind for moments.
const MAJORITY_WITHIN: Duration = Duration::from_secs(2);

/// What became of a wish to make a version done.
#[derive(Debug, Clone, PartialEq)]
pub enum Committed {
    /// It is whole: done, or sealed until the task has ended whose run has made it.
    Done(FileSet),
    /// Contents of its files are missing, or have another size than the entries say: the first of them. The version is still
    /// open.
    Incomplete(Vec<ContentId>),
}

#[derive(Debug, Default)]
struct Sums {
    count: u64,
    bytes: u64,
    missing: Vec<ContentId>,
}

impl Store {
    /// Makes an open version done, if all contents of its files are there; that of a task's run is sealed, and done only when
    /// the run has ended its task well. May be repeated: one that is whole counts as made so.
    #[operation(%set)]
    pub async fn fileset_commit(&self, set: FileSetId) -> Result<Committed, FilesError> {
        for _ in 0..TRIES {
            let found = self.find_fileset(set).await?.ok_or(FilesError::NoSuchVersion)?;
            match found.state {
                SetState::Open => {}
                SetState::Sealed | SetState::Done => return Ok(Committed::Done(found)),
                SetState::Gone => return Err(FilesError::NotOpen(SetState::Gone)),
            }
            let sums = self.hold_contents(&found).await?;
            if !sums.missing.is_empty() {
                return Ok(Committed::Incomplete(sums.missing));
            }
            // Nobody has begun or ended to add files since they were looked through.
            let unchanged = doc! {
                "_id": set, "state": SetState::Open, "tickets": found.tickets, "pending": &found.pending,
                "lost": &found.lost,
            };
            let whole = if found.task.is_some() { SetState::Sealed } else { SetState::Done };
            let done = vec![
                doc! { "$set": {
                    "state": whole, "count": integer(sums.count), "bytes": integer(sums.bytes),
                    "committed": "$$NOW", "lost": { "$setUnion": ["$lost", "$pending"] }, "pending": [],
                } },
                doc! { "$unset": ["touched"] },
            ];
            let sets = self.filesets_collection();
            let done =
                sets.find_one_and_update(unchanged, done).return_document(ReturnDocument::After).await?;
            if let Some(done) = done {
                return Ok(Committed::Done(typed(SETS, done)?));
            }
        }
        Err(FilesError::Busy)
    }

    /// Looks through the entries of a version, and keeps their contents from being removed: whoever has seen since when
    /// nobody names one finds another time by now, and whoever looks from now on finds the entries.
    async fn hold_contents(&self, set: &FileSet) -> Result<Sums, FilesError> {
        let mut sums = Sums::default();
        let mut after: Option<String> = None;
        loop {
            let query = EntryQuery { after: after.as_deref(), ..EntryQuery::ALL };
            let page = self.fileset_entries(set, query).await?;
            let Some(last) = page.last() else { return Ok(sums) };
            let sizes: BTreeMap<ContentId, u64> = page.iter().map(|entry| (entry.file, entry.size)).collect();
            let lengths = self.hold(&sizes).await?;
            for entry in &page {
                sums.count += 1;
                sums.bytes = sums.bytes.saturating_add(entry.size);
                let is_there = lengths.get(&entry.file) == Some(&entry.size);
                if !is_there && sums.missing.len() < NAMED && !sums.missing.contains(&entry.file) {
                    sums.missing.push(entry.file);
                }
            }
            if sums.count > MOST_FILES {
                return Err(FilesError::TooManyFiles);
            }
            after = Some(last.path.clone());
        }
    }

    /// Holds contents. Returns the lengths of those that are there.
    async fn hold(
        &self,
        contents: &BTreeMap<ContentId, u64>,
    ) -> Result<BTreeMap<ContentId, u64>, StoreError> {
        let ids: Vec<ContentId> = contents.keys().copied().collect();
        let there = doc! { "filename": { "$in": &ids }, "state": DONE };
        let collection = self.contents_collection();
        collection.update_many(there.clone(), doc! { "$unset": { "loose": "" } }).await?;
        let only = doc! { "_id": 0, "filename": 1, "length": 1 };
        let found = collect(collection.find(there).projection(only)).await?;
        let known = |content: &Document| Some((content_of(content)?, count_of(content, "length")?));
        Ok(found.iter().filter_map(known).collect())
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SettledFiles {
    /// Those that can be seen now.
    pub done: u64,
    /// Those that never will be.
    pub gone: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It has ended its task well.
    Well,
    /// It may still do so.
    AtWork,
    /// It has not, and never will.
    Failed,
    /// That cannot be found out.
    Unknown,
}

/// How tasks stand: status and attempt.
#[derive(Debug)]
struct Standings {
    known: HashMap<ObjectId, (Status, i64)>,
    /// Whether the others are gone, and not only out of sight.
    all: bool,
}

impl Store {
    /// Settles what runs of a task have left, and removes what those that have ended had opened and not completed.
    #[operation(%task)]
    pub async fn settle_filesets(&self, task: TaskId) -> Result<SettledFiles, StoreError> {
        self.settle_filesets_of(&[task.0]).await
    }

    /// The same. Tells whether nothing is left of the task that a run has sealed. If not, the task cannot be said to have ended.
    pub(crate) async fn settle_all_filesets(&self, task: TaskId) -> Result<bool, StoreError> {
        self.settle_filesets(task).await?;
        let sealed = doc! { "task": task, "state": SetState::Sealed };
        let found = self.filesets_collection().find_one(sealed).projection(doc! { "_id": 1 }).await;
        // For a user who may not look there is none, as ever.
        Ok(StoreError::unless_forbidden(found)?.flatten().is_none())
    }

    /// The same of several tasks.
    pub(crate) async fn settle_filesets_of(&self, tasks: &[ObjectId]) -> Result<SettledFiles, StoreError> {
        let left = doc! {
            "task": { "$in": tasks }, "state": { "$in": [SetState::Open, SetState::Sealed] },
        };
        self.settle_versions(left).await
    }

    pub(super) async fn settle_sealed(&self, which: Document) -> Result<SettledFiles, StoreError> {
        self.settle_versions(with(which, doc! { "state": SetState::Sealed })).await
    }

    /// Settles versions, if this user may: one that an older release made may not, and the next one that may does it.
    async fn settle_versions(&self, which: Document) -> Result<SettledFiles, StoreError> {
        Ok(StoreError::unless_forbidden(self.settle_each(which).await)?.unwrap_or_default())
    }

    async fn settle_each(&self, which: Document) -> Result<SettledFiles, StoreError> {
        let only = doc! { "task": 1, "attempt": 1, "state": 1 };
        // What it reads later is not older than what it has read before, or could have.
        let mut session = self.database().client().start_session().causal_consistency(true).await?;
        let versions = self.filesets_collection();
        let find = versions.find(which).projection(only).limit(AT_ONCE);
        let found: Vec<Document> =
            find.session(&mut session).await?.stream(&mut session).try_collect().await?;
        let mut settled = SettledFiles::default();
        if found.is_empty() {
            return Ok(settled);
        }
        let tasks: BTreeSet<ObjectId> =
            found.iter().filter_map(|version| version.get_object_id("task").ok()).collect();
        let standings = self.standings_of(tasks.into_iter().collect(), &mut session).await?;
        let are = |state: SetState, fates: &[Fate]| -> Vec<ObjectId> {
            let is_one = |version: &&Document| {
                version.get_str("state").is_ok_and(|found| found == state.as_str())
                    && fates.contains(&standings.fate_of(version))
            };
            found.iter().filter(is_one).filter_map(id_of).collect()
        };
        let done = doc! { "$set": { "state": SetState::Done } };
        let well = are(SetState::Sealed, &[Fate::Well]);
        settled.done = self.move_versions(&well, SetState::Sealed, vec![done]).await?;
        // A run seals a version before it ends its task: one that is open although the task has ended well is of no use.
        let (sealed, open) =
            (are(SetState::Sealed, &[Fate::Failed]), are(SetState::Open, &[Fate::Failed, Fate::Well]));
        settled.gone = self.move_versions(&sealed, SetState::Sealed, gone()).await?;
        settled.gone += self.move_versions(&open, SetState::Open, gone()).await?;
        Ok(settled)
    }

    /// Changes those versions that still stand as they did. Returns how many.
    async fn move_versions(
        &self,
        versions: &[ObjectId],
        from: SetState,
        update: Vec<Document>,
    ) -> Result<u64, StoreError> {
        if versions.is_empty() {
            return Ok(0);
        }
        let still = doc! { "_id": { "$in": versions }, "state": from };
        Ok(self.filesets_collection().update_many(still, update).await?.modified_count)
    }

    /// How tasks stand, wherever they are. What this tells is not taken back when the primary changes.
    async fn standings_of(
        &self,
        tasks: Vec<ObjectId>,
        session: &mut ClientSession,
    ) -> Result<Standings, StoreError> {
        let mut standings = Standings { known: HashMap::new(), all: true };
        let mut left = tasks;
        // In this order: a task that is being archived is in both for a while, and in none at no time.
        for collection in [TASKS.name, archive::COLLECTION] {
            if left.is_empty() {
                break;
            }
            match StoreError::unless_forbidden(self.standings_in(collection, &left, session).await)? {
                Some(found) => standings.known.extend(found),
                None => standings.all = false,
            }
            left.retain(|task| !standings.known.contains_key(task));
        }
        Ok(standings)
    }

    async fn standings_in(
        &self,
        collection: &str,
        tasks: &[ObjectId],
        session: &mut ClientSession,
    ) -> Result<Vec<(ObjectId, (Status, i64))>, StoreError> {
        let collection = self.database().collection::<Document>(collection);
        let find = || {
            let found = collection.find(doc! { "_id": { "$in": tasks } });
            found.projection(doc! { "status": 1, "attempt": 1 }).read_concern(ReadConcern::majority())
        };
        let latest = async {
            let mut found = find().max_time(MAJORITY_WITHIN).session(&mut *session).await?;
            Ok(found.stream(session).try_collect().await?)
        };
        let found: Vec<Document> = match latest.await {
            Err(error) if StoreError::is_out_of_time(&error) => collect(find()).await?,
            found => found?,
        };
        let standing = |task: &Document| {
            let status = Status::stored(task)?;
            let attempt = task.get("attempt").and_then(whole_number).unwrap_or(0);
            Some((id_of(task)?, (status, attempt)))
        };
        Ok(found.iter().filter_map(standing).collect())
    }
}

impl Standings {
    fn fate_of(&self, version: &Document) -> Fate {
        let Ok(task) = version.get_object_id("task") else { return Fate::Unknown };
        let attempt = version.get("attempt").and_then(whole_number).unwrap_or(0);
        match self.known.get(&task) {
            None if self.all => Fate::Failed,
            None => Fate::Unknown,
            Some((Status::Succeeded, last)) if *last == attempt => Fate::Well,
            Some((Status::Running, last)) if *last == attempt => Fate::AtWork,
            Some(_) => Fate::Failed,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_has_ended_well_only_if_its_task_has_ended_with_it() {
        let task = ObjectId::new();
        let version = doc! { "task": task, "attempt": 2_i64 };
        let fate = |known: Option<(Status, i64)>, all: bool| {
            let known = known.map(|standing| (task, standing)).into_iter().collect();
            Standings { known, all }.fate_of(&version)
        };
        for (known, expected) in [
            (Some((Status::Succeeded, 2)), Fate::Well),
            (Some((Status::Running, 2)), Fate::AtWork),
            (Some((Status::Succeeded, 3)), Fate::Failed),
            (Some((Status::Running, 3)), Fate::Failed),
            (Some((Status::Failed, 2)), Fate::Failed),
            (Some((Status::Orphaned, 2)), Fate::Failed),
            (Some((Status::Deferred, 2)), Fate::Failed),
            (Some((Status::Other(7), 2)), Fate::Failed),
            (None, Fate::Failed),
        ] {
            assert_eq!(fate(known, true), expected, "{known:?}");
        }
        assert_eq!(fate(None, false), Fate::Unknown, "it may be where this user may not look");
        let of_nobody = Standings { known: HashMap::new(), all: true };
        assert_eq!(of_nobody.fate_of(&doc! {}), Fate::Unknown);
    }
}
