//! Reads contents, from any byte on, a few chunks ahead of who reads.

use disbatch_operation::operation;
use disbatch_values::files::content::{chunk_length, chunks_of, chunks_with, part_of_chunk};
use std::collections::BTreeMap;
use std::io::{self, Cursor};
use std::ops::Range;

use bson::oid::ObjectId;
use bson::{Document, doc};
use futures::{Stream, StreamExt, TryStreamExt, stream};
use tokio::io::AsyncRead;
use tokio_util::io::StreamReader;

use super::upload::DONE;
use super::{ContentHasher, ContentId, id_of, number_in};
use crate::store::{Store, StoreError};

/// So many chunks are in memory for each reader.
const AHEAD: usize = 3;

/// A content that is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Content {
    pub id: ContentId,
    /// How many bytes it has.
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
    /// A content, `None` if it is not there.
    #[operation(%id)]
    pub async fn find_content(&self, id: ContentId) -> Result<Option<Content>, StoreError> {
        let only = doc! { "_id": 1, "length": 1 };
        let wanted = doc! { "filename": id, "state": DONE };
        let found: Option<Document> = self.contents_collection().find_one(wanted).projection(only).await?;
        Ok(found.and_then(|found| {
            Some(Content { id, length: number_in(&found, "length")?, upload: id_of(&found)? })
        }))
    }

    /// Those of these contents that are there.
    #[operation(contents = ids.len())]
    pub async fn find_contents(&self, ids: &[ContentId]) -> Result<BTreeMap<ContentId, Content>, StoreError> {
        let wanted = doc! { "filename": { "$in": ids }, "state": DONE };
        let only = doc! { "_id": 1, "length": 1, "filename": 1 };
        let mut found = self.contents_collection().find(wanted).projection(only).await?;
        let mut contents = BTreeMap::new();
        while let Some(content) = found.try_next().await? {
            let id = content.get_str("filename").ok().and_then(|id| id.parse::<ContentId>().ok());
            if let (Some(id), Some(length), Some(upload)) =
                (id, number_in(&content, "length"), id_of(&content))
            {
                contents.insert(id, Content { id, length, upload });
            }
        }
        Ok(contents)
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

    /// The same as a reader.
    pub fn content_read(
        &self,
        content: Content,
        range: Range<u64>,
    ) -> impl AsyncRead + Send + Unpin + 'static + use<> {
        let pieces = self.content_stream(content, range).map_ok(Cursor::new).map_err(io::Error::other);
        StreamReader::new(Box::pin(pieces))
    }
}
