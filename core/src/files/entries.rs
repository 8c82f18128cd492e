//! The files of a version: they are added while it is open, and listed.

use disbatch_operation::operation;
use std::collections::{BTreeMap, BTreeSet};

use bson::{Bson, Document, doc};
use mongodb::options::ReturnDocument;

use super::{ENTRIES, EntryQuery, FileEntry, FileSet, FilesError, MOST_AT_ONCE, NewEntry, SetState, TRIES};
use crate::model::{FileSetId, whole_number};
use crate::store::error::typed;
use crate::store::{Store, StoreError, collect, integer, put, with};

/// No character comes after this one, so no path that begins with a text comes after that text and some of these.
const LAST_CHARACTER: &str = "\u{10FFFF}\u{10FFFF}";

/// Which bits of a mode are kept.
const PERMISSIONS: u32 = 0o777;

impl Store {
    /// Adds files to an open version. Their contents may still be missing. A file that is there already, with the same
    /// content, size and mode, counts as added, so this may be repeated when an answer was lost.
    ///
    /// # Errors
    /// The version is not open, or has another file at one of the paths, which is named; or there are too many entries; or
    /// the database cannot be reached. None of the files is in the version then, unless it was before.
    #[operation(%set, entries = entries.len())]
    pub async fn fileset_add(&self, set: FileSetId, entries: &[NewEntry]) -> Result<(), FilesError> {
        if entries.len() > MOST_AT_ONCE {
            return Err(FilesError::TooManyAtOnce);
        }
        let Ticket { number: ticket, tenant } = self.take_ticket(set).await?;
        let mut left: Vec<&NewEntry> = entries.iter().collect();
        for _ in 0..TRIES {
            let documents: Vec<Document> =
                left.iter().map(|entry| document_of((set, tenant.as_deref()), ticket, entry)).collect();
            if documents.is_empty() {
                return self.give_ticket_back(set, ticket).await;
            }
            let inserted = self.entries_collection().insert_many(documents).ordered(false).await;
            match inserted.map_err(StoreError::from) {
                Ok(_) => left.clear(),
                Err(error) if error.is_duplicate_only() => {
                    left = self.make_room(set, ticket, left).await?;
                }
                Err(error) => return Err(error.into()),
            }
        }
        Err(FilesError::Busy)
    }

    /// Lets entries be added, if the version is open. Who holds a ticket knows that it was open then, and gives the ticket
    /// back only if it still is.
    async fn take_ticket(&self, set: FileSetId) -> Result<Ticket, FilesError> {
        let take = vec![
            doc! { "$set": { "tickets": { "$add": ["$tickets", 1] }, "touched": "$$NOW" } },
            doc! { "$set": { "pending": { "$concatArrays": ["$pending", ["$tickets"]] } } },
        ];
        let open = doc! { "_id": set, "state": SetState::Open };
        let sets = self.filesets_collection();
        let taken = sets
            .find_one_and_update(open, take)
            .projection(doc! { "tickets": 1, "tenant": 1 })
            .return_document(ReturnDocument::After)
            .await?;
        let number = taken.as_ref().and_then(|set| set.get("tickets")).and_then(whole_number);
        match (number, taken) {
            (Some(number), Some(set)) => {
                Ok(Ticket { number, tenant: set.get_str("tenant").ok().map(str::to_owned) })
            }
            _ => Err(FilesError::NotOpen(self.open_fileset(set).await?.state)),
        }
    }

    /// Shows the entries of a ticket, all of which are there.
    async fn give_ticket_back(&self, set: FileSetId, ticket: i64) -> Result<(), FilesError> {
        let held = doc! { "_id": set, "state": SetState::Open, "pending": ticket };
        let back = doc! { "$pull": { "pending": ticket }, "$currentDate": { "touched": true } };
        let given = self.filesets_collection().update_one(held, back).await?;
        if given.matched_count == 1 {
            return Ok(());
        }
        self.open_fileset(set).await?;
        // Somebody who adds the same has taken it away.
        Err(FilesError::Overtaken)
    }

    async fn open_fileset(&self, set: FileSetId) -> Result<FileSet, FilesError> {
        match self.find_fileset(set).await? {
            Some(found) if found.state == SetState::Open => Ok(found),
            Some(found) => Err(FilesError::NotOpen(found.state)),
            None => Err(FilesError::NoSuchVersion),
        }
    }

    /// Makes room for entries whose paths are taken. What is there by a ticket that was not given back is nobody's: the ticket
    /// becomes one that never will be, and only then its entries are removed. Returns the entries that are still to be added.
    async fn make_room<'a>(
        &self,
        set: FileSetId,
        ticket: i64,
        wanted: Vec<&'a NewEntry>,
    ) -> Result<Vec<&'a NewEntry>, FilesError> {
        let by_path: BTreeMap<&str, &NewEntry> =
            wanted.iter().map(|entry| (entry.path.as_str(), *entry)).collect();
        if let Some(twice) = twice(&wanted) {
            return Err(FilesError::PathTaken(twice.path.clone()));
        }
        let paths: Vec<&str> = by_path.keys().copied().collect();
        let there = doc! { "set": set, "path": { "$in": &paths } };
        let there = collect(self.entries_collection().find(there)).await?;
        let Some(version) = self.find_fileset(set).await? else { return Err(FilesError::NoSuchVersion) };
        let (mut added, mut strangers) = (BTreeSet::new(), BTreeSet::new());
        for document in there {
            let of = document.get("t").and_then(whole_number).unwrap_or(0);
            let entry: FileEntry = typed(ENTRIES, document)?;
            let own = by_path.get(entry.path.as_str());
            if of == ticket {
                added.insert(entry.path);
            } else if version.pending.contains(&of) || version.lost.contains(&of) {
                strangers.insert(of);
            } else if own.is_some_and(|own| is_same(own, &entry)) {
                added.insert(entry.path);
            } else if let Some(own) = own {
                return Err(FilesError::PathTaken(own.path.clone()));
            }
        }
        for stranger in strangers {
            // One that was given back meanwhile shows at the next look.
            if self.lose_ticket(set, ticket, stranger).await? {
                let taken = doc! { "set": set, "path": { "$in": &paths }, "t": stranger };
                self.entries_collection().delete_many(taken).await?;
            }
        }
        Ok(wanted.into_iter().filter(|entry| !added.contains(entry.path.as_str())).collect())
    }

    /// Sees to it that a ticket will never be given back, as long as one's own can be: of two who get in each other's way, one
    /// goes on. Tells whether it will not; if not, it was given back.
    async fn lose_ticket(&self, set: FileSetId, own: i64, stranger: i64) -> Result<bool, FilesError> {
        let both = doc! { "_id": set, "state": SetState::Open, "pending": { "$all": [own, stranger] } };
        let lose = doc! { "$pull": { "pending": stranger }, "$addToSet": { "lost": stranger } };
        if self.filesets_collection().update_one(both, lose).await?.matched_count == 1 {
            return Ok(true);
        }
        let found = self.open_fileset(set).await?;
        if !found.pending.contains(&own) {
            return Err(FilesError::Overtaken);
        }
        Ok(found.lost.contains(&stranger))
    }

    /// Files of a version in the order of the bytes of their paths. Of one that is open, those whose addition was confirmed.
    #[operation(set = %set.id)]
    pub async fn fileset_entries(
        &self,
        set: &FileSet,
        query: EntryQuery<'_>,
    ) -> Result<Vec<FileEntry>, StoreError> {
        let mut path = Document::new();
        if !query.prefix.is_empty() {
            path.insert("$gte", query.prefix);
            path.insert("$lt", format!("{}{LAST_CHARACTER}", query.prefix));
        }
        put(&mut path, "$gt", query.after);
        let mut wanted = visible(set);
        put(&mut wanted, "path", (!path.is_empty()).then_some(path));
        let most = integer(query.limit.clamp(1, MOST_AT_ONCE));
        let found =
            collect(self.entries_collection().find(wanted).sort(doc! { "path": 1 }).limit(most)).await?;
        found.into_iter().map(|entry| typed(ENTRIES, entry)).collect()
    }

    #[operation(set = %set.id)]
    pub async fn fileset_entry(&self, set: &FileSet, path: &str) -> Result<Option<FileEntry>, StoreError> {
        Ok(self.fileset_entries_at(set, &[path]).await?.pop())
    }

    /// Those files of a version that are at these paths, in any order.
    #[operation(set = %set.id)]
    pub async fn fileset_entries_at(
        &self,
        set: &FileSet,
        paths: &[&str],
    ) -> Result<Vec<FileEntry>, StoreError> {
        let wanted = with(visible(set), doc! { "path": { "$in": paths } });
        let found = collect(self.entries_collection().find(wanted)).await?;
        found.into_iter().map(|entry| typed(ENTRIES, entry)).collect()
    }
}

/// Whoever has it may add entries to a version.
struct Ticket {
    number: i64,
    /// Whose the version is, as each of its entries has it.
    tenant: Option<String>,
}

/// The entries of a version that count.
pub(super) fn visible(set: &FileSet) -> Document {
    let mut filter = doc! { "set": set.id };
    let hidden: Vec<i64> = set.pending.iter().chain(&set.lost).copied().collect();
    put(&mut filter, "t", (!hidden.is_empty()).then(|| doc! { "$nin": hidden }));
    filter
}

fn document_of((set, tenant): (FileSetId, Option<&str>), ticket: i64, entry: &NewEntry) -> Document {
    doc! {
        "set": set, "tenant": tenant, "path": entry.path.as_str(), "file": entry.file,
        "size": integer(entry.size), "mode": Bson::from(entry.mode & PERMISSIONS), "mtime": entry.mtime,
        "t": ticket,
    }
}

fn is_same(own: &NewEntry, there: &FileEntry) -> bool {
    own.file == there.file && own.size == there.size && own.mode & PERMISSIONS == there.mode
}

/// The first of entries whose path another one has, too.
fn twice<'a>(entries: &[&'a NewEntry]) -> Option<&'a NewEntry> {
    let mut seen = BTreeSet::new();
    entries.iter().copied().find(|entry| !seen.insert(entry.path.as_str()))
}

#[cfg(test)]
mod tests {
    use bson::DateTime;
    use bson::oid::ObjectId;

    use super::super::SETS;
    use super::*;
    use crate::files::ContentId;

    fn entry(path: &str, mode: u32) -> NewEntry {
        NewEntry {
            path: path.parse().unwrap(),
            file: ContentId::of(path.as_bytes()),
            size: 3,
            mode,
            mtime: DateTime::from_millis(7),
        }
    }

    #[test]
    fn an_entry_is_read_as_it_is_stored() {
        let new = entry("a/b", 0o104_755);
        let stored = document_of((FileSetId(ObjectId::new()), Some("acme")), 5, &new);
        let read: FileEntry = typed(ENTRIES, stored).unwrap();
        assert_eq!(
            (read.path.as_str(), read.mode, read.size),
            ("a/b", 0o755, 3),
            "no bit that makes it run as another"
        );
        assert!(is_same(&new, &read));
        assert!(!is_same(&entry("a/c", 0o755), &read) && !is_same(&entry("a/b", 0o700), &read));
    }

    #[test]
    fn a_path_that_is_given_twice_is_found() {
        let [a, b, again] = [entry("a", 1), entry("b", 1), entry("a", 2)];
        assert_eq!(twice(&[&a, &b]), None);
        assert_eq!(twice(&[&a, &b, &again]), Some(&again));
    }

    #[test]
    fn entries_of_tickets_that_were_not_given_back_do_not_count() {
        let id = ObjectId::new();
        let stored = |pending: Vec<i64>, lost: Vec<i64>| -> FileSet {
            let set = doc! {
                "_id": id, "name": "x", "version": 1_i64, "state": "open", "created": DateTime::from_millis(0),
                "pending": pending, "lost": lost,
            };
            typed(SETS, set).unwrap()
        };
        assert_eq!(visible(&stored(vec![], vec![])), doc! { "set": id });
        assert_eq!(visible(&stored(vec![3], vec![1])), doc! { "set": id, "t": { "$nin": [3_i64, 1_i64] } });
    }
}
