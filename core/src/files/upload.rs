//! Sends contents, chunk by chunk, in any order and as often as it takes.
//!
//! An upload belongs to who sends it: its chunks are looked at by nobody else until they are a content. So it goes on where
//! it was broken off, and nobody can put anything into it. Runners share theirs, as each of them has the file and knows what
//! its content is.

use disbatch_operation::operation;
use disbatch_values::files::{Gaps, chunk_length, chunks_of};
use std::ops::Range;

use bson::oid::ObjectId;
use bson::raw::{RawBinaryRef, RawDocumentBuf, cstr};
use bson::spec::BinarySubtype;
use bson::{Document, doc};
use futures::{StreamExt, TryStreamExt, stream};

use super::{ContentHasher, ContentId, FilesError, LONGEST, TRIES, id_of, literal};
use crate::store::{Store, StoreError, collect_ids, count_of, integer};

/// An upload is known to be under way whenever so many chunks have come.
const SIGN_OF_LIFE: u64 = 64;

/// So many chunks are read at once to look through them.
const READ_AT_ONCE: usize = 4;

/// The size of a chunk as GridFS has it in the document of a file.
const CHUNK_SIZE: i32 = 1024 * 1024;

/// An upload whose chunks do not all come.
pub(super) const OPEN: &str = "open";
/// A content.
pub(super) const DONE: &str = "done";
/// An upload whose content was there already: it tells who has it.
pub(super) const PROVEN: &str = "proven";
/// It is being removed.
pub(super) const GONE: &str = "gone";

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Sender(String);

impl Sender {
    /// A user of the web server, or whoever asks it where nobody has to log in.
    pub fn user(name: Option<&str>) -> Self {
        Self(name.map_or_else(|| "anyone".to_owned(), |name| format!("user/{name}")))
    }

    pub fn runner() -> Self {
        Self("runner".to_owned())
    }
}

disbatch_values::shown_as_text!(Sender);

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ContentState {
    pub length: Option<u64>,
    /// Whether it need not be sent.
    pub done: bool,
    /// The numbers of the chunks that are to be sent. Where the length is not known, all are.
    pub missing: Vec<Range<u64>>,
}

#[derive(Debug, Clone, Copy)]
pub struct Chunk<'a> {
    /// What the whole content is known by.
    pub of: ContentId,
    pub length: u64,
    /// Which part: it begins at `n` times [`super::CHUNK_BYTES`].
    pub n: u64,
    /// Its bytes: as many as [`chunk_length`] says.
    pub bytes: &'a [u8],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Put {
    Stored,
    /// It had been sent before. The one that was sent first stays.
    Known,
}

/// How it is known that an upload is what its name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    ReadBack,
    /// Whoever calls has found it out while it sent all of it, and has stored every chunk.
    Computed,
}

impl Store {
    /// Which chunks of a content `sender` still has to send. `shared`: what anybody has stored counts, which may be said to
    /// those only who may name the content; see [`Store::unreferable`]. One that need not be sent is kept for a day.
    #[operation(%id)]
    pub async fn content_state(
        &self,
        id: ContentId,
        sender: &Sender,
        shared: bool,
    ) -> Result<ContentState, StoreError> {
        if shared || self.was_sent(id, sender).await? {
            self.keep_content(id, sender).await?;
            if let Some(content) = self.find_content(id).await? {
                return Ok(ContentState { length: Some(content.length), done: true, missing: Vec::new() });
            }
        }
        let Some(upload) = self.contents_collection().find_one(open_of(id, sender)).await? else {
            return Ok(ContentState::default());
        };
        let (Some(upload), length) = (id_of(&upload), count_of(&upload, "length").unwrap_or(0)) else {
            return Ok(ContentState::default());
        };
        self.keep_upload(upload).await?;
        let missing = self.missing_chunks(upload, length).await?;
        Ok(ContentState { length: Some(length), done: false, missing })
    }

    /// Stores a chunk. The first one of a content begins its upload; one of a content with another length begins it anew.
    #[operation(of = %chunk.of, n = chunk.n)]
    pub async fn content_put_chunk(&self, chunk: Chunk<'_>, sender: &Sender) -> Result<Put, FilesError> {
        let Chunk { of, length, n, bytes } = chunk;
        if length > LONGEST {
            return Err(FilesError::TooLong);
        }
        let no_such = FilesError::NoSuchChunk { n, length };
        let (Some(expected), Ok(number)) = (chunk_length(length, n), i32::try_from(n)) else {
            return Err(no_such);
        };
        let got = bytes.len() as u64;
        if got != expected {
            return Err(FilesError::WrongSize { n, expected, got });
        }
        for _ in 0..TRIES {
            let upload = self.upload_of(of, length, sender).await?;
            if n % SIGN_OF_LIFE == SIGN_OF_LIFE - 1 {
                self.keep_upload(upload).await?;
            }
            let inserted = self.content_chunks().insert_one(chunk_document(upload, number, bytes)).await;
            let put = StoreError::unless_duplicate(inserted)?.map_or(Put::Known, |_| Put::Stored);
            if self.remove_strays(&[upload]).await? == 0 {
                return Ok(put);
            }
        }
        Err(FilesError::Busy)
    }

    /// Removes chunks of those of `uploads` that are gone: whoever has removed them may have been faster than these chunks.
    /// Returns of how many uploads.
    pub(super) async fn remove_strays(&self, uploads: &[ObjectId]) -> Result<usize, StoreError> {
        let kept = doc! { "_id": { "$in": uploads }, "state": { "$in": [OPEN, DONE] } };
        let kept = collect_ids(self.contents_collection().find(kept).projection(doc! { "_id": 1 })).await?;
        let strays: Vec<ObjectId> = uploads.iter().copied().filter(|id| !kept.contains(id)).collect();
        if !strays.is_empty() {
            self.content_chunks().delete_many(doc! { "files_id": { "$in": &strays } }).await?;
        }
        Ok(strays.len())
    }

    /// Makes a content of what `sender` has sent. May be repeated. The empty content needs no chunks.
    #[operation(%id)]
    pub async fn content_finish(
        &self,
        id: ContentId,
        sender: &Sender,
        check: Check,
    ) -> Result<(), FilesError> {
        if self.is_sent(id, sender).await? {
            return Ok(());
        }
        match self.finish_upload(id, sender, check).await {
            // Who shares the upload may have been faster: then what was looked at is gone, or one begun after it.
            Err(FilesError::Incomplete(_) | FilesError::WrongContent | FilesError::NotSent)
                if self.is_sent(id, sender).await? =>
            {
                Ok(())
            }
            finished => finished,
        }
    }

    /// Whether there is nothing to do for a content, as it is there and `sender` has sent it. It is kept then.
    async fn is_sent(&self, id: ContentId, sender: &Sender) -> Result<bool, StoreError> {
        if !self.was_sent(id, sender).await? {
            return Ok(false);
        }
        self.keep_content(id, sender).await?;
        if self.find_content(id).await?.is_none() {
            return Ok(false);
        }
        self.drop_upload(id, sender).await?;
        Ok(true)
    }

    async fn finish_upload(&self, id: ContentId, sender: &Sender, check: Check) -> Result<(), FilesError> {
        if id == ContentId::of(b"") {
            self.upload_of(id, 0, sender).await?;
        }
        let open = self.contents_collection().find_one(open_of(id, sender)).await?;
        let Some((upload, length)) =
            open.as_ref().and_then(|open| Some((id_of(open)?, count_of(open, "length")?)))
        else {
            return Err(FilesError::NotSent);
        };
        let missing = self.missing_chunks(upload, length).await?;
        if !missing.is_empty() {
            return Err(FilesError::Incomplete(missing));
        }
        if check == Check::ReadBack && self.hash_of(upload, length).await? != id {
            self.give_up_upload(upload).await?;
            return Err(FilesError::WrongContent);
        }
        self.seal_upload(upload).await
    }

    /// The open upload of a content of this length, which is begun if there is none.
    async fn upload_of(&self, id: ContentId, length: u64, sender: &Sender) -> Result<ObjectId, FilesError> {
        for _ in 0..TRIES {
            let only = doc! { "_id": 1, "length": 1 };
            let found = self.contents_collection().find_one(open_of(id, sender)).projection(only).await?;
            match found.as_ref().and_then(|found| Some((id_of(found)?, count_of(found, "length")?))) {
                Some((upload, known)) if known == length => return Ok(upload),
                // Whoever sends it has been wrong about its length before.
                Some((upload, _)) => self.give_up_upload(upload).await?,
                None => {
                    if let Some(upload) = self.begin_upload(id, length, sender).await? {
                        return Ok(upload);
                    }
                }
            }
        }
        Err(FilesError::Busy)
    }

    /// `None`: there is one by now.
    async fn begin_upload(
        &self,
        id: ContentId,
        length: u64,
        sender: &Sender,
    ) -> Result<Option<ObjectId>, StoreError> {
        let upload = ObjectId::new();
        let fields = new_upload(id, integer(length), sender);
        let contents = self.contents_collection();
        let begun = contents.update_one(doc! { "_id": upload }, vec![doc! { "$set": fields }]).upsert(true);
        Ok(StoreError::unless_duplicate(begun.await)?.map(|_| upload))
    }

    /// Notes that an upload is under way, or that somebody wants to go on with it.
    async fn keep_upload(&self, upload: ObjectId) -> Result<(), StoreError> {
        let now = doc! { "$currentDate": { "loose": true } };
        self.contents_collection().update_one(doc! { "_id": upload, "state": OPEN }, now).await?;
        Ok(())
    }

    /// Keeps a content that nobody is known to name, as `sender` is about to, and that it was sent by them. A sweep that has
    /// found it before removes it only if it is still as it was found: what is there after this stays for a while.
    async fn keep_content(&self, id: ContentId, sender: &Sender) -> Result<(), StoreError> {
        let known = doc! {
            "filename": id, "loose": { "$type": "date" },
            "$or": [{ "state": DONE }, { "state": PROVEN, "by": sender.as_str() }],
        };
        let now = doc! { "$currentDate": { "loose": true } };
        self.contents_collection().update_many(known, now).await?;
        Ok(())
    }

    /// Removes an upload that nobody needs, as the content is there.
    async fn drop_upload(&self, id: ContentId, sender: &Sender) -> Result<(), StoreError> {
        let open = self.contents_collection().find_one(open_of(id, sender)).await?;
        match open.as_ref().and_then(id_of) {
            Some(upload) => self.give_up_upload(upload).await,
            None => Ok(()),
        }
    }

    /// Leaves an upload to be removed.
    async fn give_up_upload(&self, upload: ObjectId) -> Result<(), StoreError> {
        let gone = doc! { "$set": { "state": GONE } };
        let given_up =
            self.contents_collection().update_one(doc! { "_id": upload, "state": OPEN }, gone).await?;
        if given_up.matched_count == 1 {
            self.remove_content(upload).await?;
        }
        Ok(())
    }

    /// Removes what is gone: the chunks first, as they are found by its document.
    pub(super) async fn remove_content(&self, upload: ObjectId) -> Result<(), StoreError> {
        self.content_chunks().delete_many(doc! { "files_id": upload }).await?;
        self.contents_collection().delete_one(doc! { "_id": upload, "state": GONE }).await?;
        Ok(())
    }

    /// Makes an upload a content, if there is no such content yet.
    async fn seal_upload(&self, upload: ObjectId) -> Result<(), FilesError> {
        let open = doc! { "_id": upload, "state": OPEN };
        let to =
            |state: &str| vec![doc! { "$set": { "state": state, "uploadDate": "$$NOW", "loose": "$$NOW" } }];
        let contents = self.contents_collection();
        let done = contents.update_one(open.clone(), to(DONE)).await;
        let sealed = match StoreError::unless_duplicate(done)? {
            Some(done) => done,
            None => {
                let proven = contents.update_one(open, to(PROVEN)).await?;
                if proven.matched_count == 1 {
                    self.content_chunks().delete_many(doc! { "files_id": upload }).await?;
                }
                proven
            }
        };
        if sealed.matched_count == 1 { Ok(()) } else { Err(FilesError::NotSent) }
    }

    /// Which chunks of an upload are missing. Reads nothing but an index.
    async fn missing_chunks(&self, upload: ObjectId, length: u64) -> Result<Vec<Range<u64>>, StoreError> {
        let chunks = self.content_chunks().clone_with_type::<Document>();
        let only = doc! { "_id": 0, "n": 1 };
        let mut found =
            chunks.find(doc! { "files_id": upload }).projection(only).sort(doc! { "n": 1 }).await?;
        let mut gaps = Gaps::default();
        while let Some(chunk) = found.try_next().await? {
            if let Some(n) = count_of(&chunk, "n") {
                gaps.there(n);
            }
        }
        Ok(gaps.of(chunks_of(length)))
    }

    async fn hash_of(&self, upload: ObjectId, length: u64) -> Result<ContentId, StoreError> {
        let mut hasher = ContentHasher::default();
        let chunk = |n| self.chunk_of(upload, n);
        let mut chunks = stream::iter(0..chunks_of(length)).map(chunk).buffered(READ_AT_ONCE);
        while let Some(bytes) = chunks.next().await {
            hasher.update(&bytes?.unwrap_or_default());
        }
        Ok(hasher.finish())
    }

    pub(super) async fn chunk_of(&self, upload: ObjectId, n: u64) -> Result<Option<Vec<u8>>, StoreError> {
        let wanted = doc! { "files_id": upload, "n": integer(n) };
        let found = self.content_chunks().find_one(wanted).projection(doc! { "_id": 0, "data": 1 }).await?;
        Ok(found.and_then(|chunk| chunk.get_binary("data").ok().map(|data| data.bytes.to_vec())))
    }
}

pub(super) fn chunk_document(upload: ObjectId, number: i32, bytes: &[u8]) -> RawDocumentBuf {
    let mut document = RawDocumentBuf::new();
    document.append(cstr!("_id"), ObjectId::new());
    document.append(cstr!("files_id"), upload);
    document.append(cstr!("n"), number);
    document.append(cstr!("data"), RawBinaryRef { subtype: BinarySubtype::Generic, bytes });
    document
}

/// The fields of a new upload, as an update takes them.
pub(super) fn new_upload(id: ContentId, length: i64, sender: &Sender) -> Document {
    doc! {
        "filename": id, "length": length, "chunkSize": CHUNK_SIZE, "uploadDate": "$$NOW", "state": OPEN,
        "by": literal(sender.as_str()), "loose": "$$NOW",
    }
}

fn open_of(id: ContentId, sender: &Sender) -> Document {
    doc! { "filename": id, "by": sender.as_str(), "state": OPEN }
}
