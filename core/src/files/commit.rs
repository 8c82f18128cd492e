//! Commit: a version is whole. That of a task's run is sealed, and all others are done.

use disbatch_operation::operation;
use std::collections::BTreeMap;

use bson::{Document, doc};
use futures::TryStreamExt;
use mongodb::options::ReturnDocument;

use super::upload::DONE;
use super::{
    ContentId, EntryQuery, FileSet, FilesError, MOST_FILES, SETS, SetState, TRIES, number_in, stored_number,
};
use crate::model::FileSetId;
use crate::store::error::typed;
use crate::store::{Store, StoreError};

/// So many contents that are missing are named.
const NAMED: usize = 100;

/// What became of a wish to make a version done.
#[derive(Debug, Clone, PartialEq)]
pub enum Committed {
    /// It is whole: done, or sealed until the task has ended whose run has made it.
    Done(FileSet),
    /// Contents of its files are missing, or have another size than the entries say: the first of them. The version is still
    /// open.
    Incomplete(Vec<ContentId>),
}

/// What was found when the entries of a version were looked through.
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
                    "state": whole, "count": stored_number(sums.count), "bytes": stored_number(sums.bytes),
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
        let found: Vec<Document> = collection.find(there).projection(only).await?.try_collect().await?;
        let known = |content: &Document| {
            let id = content.get_str("filename").ok()?.parse::<ContentId>().ok()?;
            Some((id, number_in(content, "length")?))
        };
        Ok(found.iter().filter_map(known).collect())
    }
}
