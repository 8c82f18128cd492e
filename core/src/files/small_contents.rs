//! Many small contents at once: sent one by one, each would take ten operations.
//!
//! The steps are those of any upload, each for all of them: the documents of the uploads, their chunks, and then the
//! documents become contents. Whatever gets in the way of one is left as an upload that is sent like any other.

use disbatch_operation::operation;
use std::collections::{BTreeMap, BTreeSet};

use bson::oid::ObjectId;
use bson::{Document, RawDocumentBuf, doc};

use super::upload::{DONE, OPEN, Sender, chunk_document, new_upload};
use super::{CHUNK_BYTES, CONTENTS, ContentId, stored_number};
use crate::store::{Store, StoreError};

/// So many bytes are stored together at most.
pub const MOST_TOGETHER: usize = 4 * 1024 * 1024;

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
        if uploads.is_empty() {
            return Ok(there);
        }
        if !self.begin_uploads(&uploads, sender).await? {
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
            Err(error) if error.write_failure().is_some_and(|failure| failure.is_duplicate_key()) => {}
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
            let fields = new_upload(*id, stored_number(bytes.len() as u64), sender);
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
