//! Contents: who may name one, as knowing its SHA-256 is not enough; how they are read, from any byte on, a few chunks ahead of who
//! reads; and how many small ones are stored at once, each of which would take ten operations if they were sent one by one.
//!
//! The steps for small ones are those of any upload, each for all of them: the documents of the uploads, their chunks, and then the
//! documents become contents. Whatever gets in the way of one is left as an upload that is sent like any other.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bson::oid::ObjectId;
use bson::{Bson, Document, RawDocumentBuf, doc};
use disbatch_operation::operation;
use disbatch_values::files::{chunk_length, chunks_of, chunks_with, part_of_chunk};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use serde::Deserialize;

use super::upload::{DONE, OPEN, PROVEN, Sender, chunk_document, new_upload};
use super::{CHUNK_BYTES, CONTENTS, ContentHasher, ContentId, ENTRIES, SETS, SetState, content_of, id_of};
use crate::store::error::typed;
use crate::store::{Store, StoreError, collect, count_of, integer, put};

/// It is looked for so many contents at once.
const LOOKS_AT_ONCE: usize = 16;

/// So many entries are read at once to learn which versions have a content.
const PAGE: i64 = 64;

/// So many chunks are in memory for each reader.
const AHEAD: usize = 3;

/// So many bytes are stored together at most.
pub const MOST_TOGETHER: usize = 4 * 1024 * 1024;

impl Store {
    /// Those of `contents` that a user must not name in an entry: who sends them has not sent all of it, and no version
    /// that is done has it and is of one of the tenants `readable`. `None`: that user may read every version.
    #[operation]
    pub async fn unreferable(
        &self,
        contents: &[ContentId],
        sender: &Sender,
        readable: Option<&[String]>,
    ) -> Result<Vec<ContentId>, StoreError> {
        let sent = self.all_sent(contents, sender).await?;
        let others: BTreeSet<ContentId> = contents.iter().copied().filter(|id| !sent.contains(id)).collect();
        let look = |id: ContentId| async move {
            let may = self.is_in_version(&id.to_string(), readable, &[SetState::Done]).await?;
            Ok::<_, StoreError>((id, may))
        };
        let looked: Vec<(ContentId, bool)> =
            stream::iter(others).map(look).buffered(LOOKS_AT_ONCE).try_collect().await?;
        Ok(looked.into_iter().filter(|(_, may)| !may).map(|(id, _)| id).collect())
    }

    pub(super) async fn was_sent(&self, id: ContentId, sender: &Sender) -> Result<bool, StoreError> {
        Ok(!self.all_sent(&[id], sender).await?.is_empty())
    }

    /// Those contents that are there and that `sender` has sent all of. That somebody has sent a content that was there
    /// already says nothing any more when that is gone.
    async fn all_sent(
        &self,
        contents: &[ContentId],
        sender: &Sender,
    ) -> Result<BTreeSet<ContentId>, StoreError> {
        let of_sender = doc! { "by": sender.as_str(), "state": PROVEN };
        let wanted = doc! { "filename": { "$in": contents }, "$or": [{ "state": DONE }, of_sender] };
        let only = doc! { "_id": 0, "filename": 1, "state": 1, "by": 1 };
        let mut found = self.contents_collection().find(wanted).projection(only).await?;
        let (mut there, mut sent) = (BTreeSet::new(), BTreeSet::new());
        while let Some(content) = found.try_next().await? {
            let Some(id) = content_of(&content) else { continue };
            if content.get_str("state").is_ok_and(|state| state == DONE) {
                there.insert(id);
            }
            if content.get_str("by").is_ok_and(|by| by == sender.as_str()) {
                sent.insert(id);
            }
        }
        Ok(sent.intersection(&there).copied().collect())
    }

    /// Whether a version that stands so has the content, of one of these tenants. `None`: of any, or of none. Each version is
    /// looked at once however many of its files have the content, and those of other tenants are not looked at: some contents,
    /// as the empty one, are in every folder.
    pub(super) async fn is_in_version(
        &self,
        content: &str,
        tenants: Option<&[String]>,
        states: &[SetState],
    ) -> Result<bool, StoreError> {
        let mut last: Option<Place> = None;
        loop {
            let page = versions_with(entries_with(content, tenants, last.as_ref()));
            let found = collect(self.entries_collection().aggregate(page)).await?;
            let found: Vec<Having> = found
                .into_iter()
                .map(|version| typed(ENTRIES, version))
                .collect::<Result<_, StoreError>>()?;
            if found.iter().any(|version| version.stands(states)) {
                return Ok(true);
            }
            if found.iter().map(|version| version.entries).sum::<i64>() < PAGE {
                return Ok(false);
            }
            last = found.into_iter().next_back().map(|version| version.place);
        }
    }
}

#[derive(Debug, Deserialize)]
struct Having {
    #[serde(rename = "_id")]
    place: Place,
    /// How many of the entries that were read are its own.
    entries: i64,
    /// How it stands; nothing if it is not there.
    state: Vec<SetState>,
}

/// Where it is in the order in which versions are looked at.
#[derive(Debug, Deserialize)]
struct Place {
    tenant: Option<String>,
    set: ObjectId,
}

impl Having {
    fn stands(&self, states: &[SetState]) -> bool {
        self.state.iter().any(|state| states.contains(state))
    }
}

/// The entries that have a content, of versions of these tenants, and behind all those of a version and the ones before it.
fn entries_with(content: &str, tenants: Option<&[String]>, after: Option<&Place>) -> Document {
    let of_tenants = tenants.map(|tenants| doc! { "$in": tenants });
    let Some(Place { tenant, set }) = after else {
        let mut first = doc! { "file": content };
        put(&mut first, "tenant", of_tenants);
        return first;
    };
    let mut others = of_tenants.unwrap_or_default();
    match tenant {
        Some(tenant) => others.insert("$gt", tenant),
        // What is of no tenant comes before all that is of one.
        None => others.insert("$gte", ""),
    };
    let same = tenant.as_deref().map_or(Bson::Null, Bson::from);
    doc! { "$or": [
        { "file": content, "tenant": same, "set": { "$gt": *set } },
        { "file": content, "tenant": others },
    ] }
}

/// The versions of the first of these entries, with how many of the entries each has, and how it stands. All of it is in the
/// index but how it stands.
fn versions_with(entries: Document) -> Vec<Document> {
    vec![
        doc! { "$match": entries },
        doc! { "$sort": { "tenant": 1, "set": 1 } },
        doc! { "$limit": PAGE },
        doc! { "$group": { "_id": { "tenant": "$tenant", "set": "$set" }, "entries": { "$sum": 1 } } },
        doc! { "$lookup": {
            "from": SETS, "localField": "_id.set", "foreignField": "_id", "as": "set",
        } },
        doc! { "$project": { "entries": 1, "state": "$set.state" } },
        doc! { "$sort": { "_id": 1 } },
    ]
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    pub id: ContentId,
    pub length: u64,
    /// The upload that has its chunks.
    upload: ObjectId,
}

impl Content {
    pub fn chunks(&self) -> u64 {
        chunks_of(self.length)
    }

    fn damaged(&self, reason: impl Into<String>) -> StoreError {
        StoreError::DamagedContent { id: self.id.to_string(), reason: reason.into() }
    }
}

impl Store {
    #[operation(%id)]
    pub async fn find_content(&self, id: ContentId) -> Result<Option<Content>, StoreError> {
        let only = doc! { "_id": 1, "length": 1 };
        let wanted = doc! { "filename": id, "state": DONE };
        let found: Option<Document> = self.contents_collection().find_one(wanted).projection(only).await?;
        Ok(found.and_then(|found| {
            Some(Content { id, length: count_of(&found, "length")?, upload: id_of(&found)? })
        }))
    }

    #[operation(contents = ids.len())]
    pub async fn find_contents(&self, ids: &[ContentId]) -> Result<BTreeMap<ContentId, Content>, StoreError> {
        let wanted = doc! { "filename": { "$in": ids }, "state": DONE };
        let only = doc! { "_id": 1, "length": 1, "filename": 1 };
        let found = collect(self.contents_collection().find(wanted).projection(only)).await?;
        let content = |found: &Document| {
            let id = content_of(found)?;
            Some((id, Content { id, length: count_of(found, "length")?, upload: id_of(found)? }))
        };
        Ok(found.iter().filter_map(content).collect())
    }

    /// The chunk `n` of a content. Nobody has checked what is in it: its reader knows that of the whole by
    /// [`ContentHasher`].
    #[operation(id = %content.id, n)]
    pub async fn content_chunk(&self, content: Content, n: u64) -> Result<Vec<u8>, StoreError> {
        let missing = || content.damaged(format!("chunk {n} is missing"));
        let bytes = self.chunk_of(content.upload, n).await?.ok_or_else(missing)?;
        let expected = chunk_length(content.length, n).ok_or_else(missing)?;
        if bytes.len() as u64 != expected {
            let reason = format!("chunk {n} has {} bytes and should have {expected}", bytes.len());
            return Err(content.damaged(reason));
        }
        Ok(bytes)
    }

    /// The bytes of a content that are in `range`, piece by piece. Whoever reads all of it gets an error in the place of the
    /// last piece if it is not what it should be.
    pub fn content_stream(
        &self,
        content: Content,
        range: Range<u64>,
    ) -> impl Stream<Item = Result<Vec<u8>, StoreError>> + Send + 'static + use<> {
        let range = range.start.min(content.length)..range.end.min(content.length);
        let numbers = chunks_with(&range);
        let last = numbers.end.checked_sub(1);
        let mut hasher = (range == (0..content.length)).then(ContentHasher::default);
        let store = self.clone();
        let fetch = move |n: u64| {
            let store = store.clone();
            async move { store.content_chunk(content, n).await.map(|bytes| (n, bytes)) }
        };
        stream::iter(numbers).map(fetch).buffered(AHEAD).map(move |fetched| {
            let (n, mut bytes) = fetched?;
            let part = part_of_chunk(&range, n, bytes.len());
            bytes.truncate(part.end);
            bytes.drain(..part.start);
            if let Some(hasher) = &mut hasher {
                hasher.update(&bytes);
                if last == Some(n) && hasher.clone().finish() != content.id {
                    return Err(content.damaged("it has another SHA-256"));
                }
            }
            Ok(bytes)
        })
    }
}

impl Store {
    /// Stores contents of at most one chunk each, [`MOST_TOGETHER`] bytes in all, of which whoever calls knows that they are
    /// what their names say. Returns those that are there now. The others, if any, are to be sent one by one.
    #[operation(contents = contents.len())]
    pub async fn store_small_contents(
        &self,
        contents: &BTreeMap<ContentId, Vec<u8>>,
        sender: &Sender,
    ) -> Result<BTreeSet<ContentId>, StoreError> {
        let ids: Vec<ContentId> = contents.keys().copied().collect();
        let mut there: BTreeSet<ContentId> = self.find_contents(&ids).await?.into_keys().collect();
        let fits = |bytes: &[u8]| !bytes.is_empty() && bytes.len() as u64 <= CHUNK_BYTES;
        let new = contents.iter().filter(|(id, bytes)| !there.contains(*id) && fits(bytes));
        let uploads: Vec<(ObjectId, ContentId, &[u8])> =
            new.map(|(id, bytes)| (ObjectId::new(), *id, bytes.as_slice())).collect();
        if uploads.is_empty() || !self.begin_uploads(&uploads, sender).await? {
            return Ok(there);
        }
        let chunks: Vec<RawDocumentBuf> =
            uploads.iter().map(|(upload, _, bytes)| chunk_document(*upload, 0, bytes)).collect();
        let begun: Vec<ObjectId> = uploads.iter().map(|(upload, ..)| *upload).collect();
        match self.content_chunks().insert_many(chunks).await.map_err(StoreError::from) {
            Ok(_) => {}
            // Somebody else is about to store the same, and shares an upload: it is to be looked at like any other.
            Err(error) if error.is_duplicate_only() => {
                self.remove_strays(&begun).await?;
                return Ok(there);
            }
            Err(error) => return Err(error),
        }
        let open = doc! { "_id": { "$in": &begun }, "state": OPEN };
        let done = vec![doc! { "$set": { "state": DONE, "uploadDate": "$$NOW", "loose": "$$NOW" } }];
        let sealed = self.contents_collection().update_many(open, done).await.map_err(StoreError::from);
        match sealed {
            Ok(sealed) if sealed.modified_count == uploads.len() as u64 => {
                there.extend(uploads.iter().map(|(_, id, _)| *id));
            }
            // Somebody else has stored the same: those that were not reached are like any upload that was broken off.
            Ok(_) => {}
            Err(error) if error.is_duplicate_key() => {}
            Err(error) => return Err(error),
        }
        if !uploads.iter().all(|(_, id, _)| there.contains(id)) {
            self.remove_strays(&begun).await?;
        }
        Ok(there)
    }

    /// Begins uploads. Tells whether all of them are begun; those that are stay, if not.
    async fn begin_uploads(
        &self,
        uploads: &[(ObjectId, ContentId, &[u8])],
        sender: &Sender,
    ) -> Result<bool, StoreError> {
        let begin = |(upload, id, bytes): &(ObjectId, ContentId, &[u8])| {
            let fields = new_upload(*id, integer(bytes.len() as u64), sender);
            doc! { "q": { "_id": *upload }, "u": [{ "$set": fields }], "upsert": true }
        };
        let updates: Vec<Document> = uploads.iter().map(begin).collect();
        let command = doc! {
            "update": CONTENTS, "updates": updates, "ordered": false, "writeConcern": { "w": "majority" },
        };
        let answer = self.database().run_command(command).await?;
        if let Ok(concern) = answer.get_document("writeConcernError") {
            let reason = concern.get_str("errmsg").unwrap_or("no reason given").to_owned();
            return Err(StoreError::Unconfirmed { reason });
        }
        Ok(!answer.contains_key("writeErrors"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn having(place: Document, state: &[&str]) -> Having {
        typed(ENTRIES, doc! { "_id": place, "entries": 64, "state": state }).unwrap()
    }

    #[test]
    fn versions_are_looked_at_one_after_the_other_and_only_those_of_the_tenants() {
        let tenants = ["b".to_owned(), "c".to_owned()];
        assert_eq!(entries_with("x", None, None), doc! { "file": "x" });
        let named = doc! { "file": "x", "tenant": { "$in": ["b", "c"] } };
        assert_eq!(entries_with("x", Some(&tenants), None), named);
        let nobody = doc! { "file": "x", "tenant": { "$in": Vec::<&str>::new() } };
        assert_eq!(entries_with("x", Some(&[]), None), nobody);
        let set = ObjectId::from_bytes([7; 12]);
        let behind = |place: Document, tenants: Option<&[String]>| {
            entries_with("x", tenants, Some(&having(place, &["open"]).place))
        };
        let expected = doc! { "$or": [
            { "file": "x", "tenant": "b", "set": { "$gt": set } },
            { "file": "x", "tenant": { "$in": ["b", "c"], "$gt": "b" } },
        ] };
        assert_eq!(behind(doc! { "tenant": "b", "set": set }, Some(&tenants)), expected);
        let expected = doc! { "$or": [
            { "file": "x", "tenant": Bson::Null, "set": { "$gt": set } },
            { "file": "x", "tenant": { "$gte": "" } },
        ] };
        assert_eq!(behind(doc! { "tenant": Bson::Null, "set": set }, None), expected);
        assert_eq!(behind(doc! { "set": set }, None), expected, "one of no tenant may not say so");
    }

    #[test]
    fn a_version_that_is_not_there_stands_nowhere() {
        let place = || doc! { "tenant": "b", "set": ObjectId::from_bytes([7; 12]) };
        let open = having(place(), &["open"]);
        assert!(open.stands(&[SetState::Done, SetState::Open]) && !open.stands(&[SetState::Done]));
        assert!(!having(place(), &[]).stands(&[SetState::Open, SetState::Done, SetState::Gone]));
    }
}
