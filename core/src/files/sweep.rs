//! Sweep: what nobody needs any more goes away. Whoever does this, and however many do it at once, it is a number of conditional
//! updates; see [`crate::files`] for why no content goes that a version has.

use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use disbatch_operation::operation;

use super::sets::gone;
use super::upload::{DONE, GONE};
use super::{MOST_AT_ONCE, SetState, id_of};
use crate::store::{Store, StoreError, collect, count_of, integer};

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
