//! Writes batches of chunks, two at a time: while the server makes one durable, the next is on its way.
//!
//! Each is acknowledged by a majority, like the file's document that follows them all. With less, an election in the
//! middle could take back a batch, and the next primary would accept the file nevertheless.

use bson::{Document, RawDocumentBuf};
use mongodb::Collection;
use tokio::task::JoinSet;

use crate::store::StoreError;

/// So many batches are under way at once.
const AT_ONCE: usize = 2;

/// The writes of one file.
pub(super) struct Writes {
    chunks: Collection<RawDocumentBuf>,
    under_way: JoinSet<Result<(), StoreError>>,
}

impl Writes {
    /// Writes to `chunks`.
    pub(super) fn to(chunks: Collection<Document>) -> Self {
        Self { chunks: chunks.clone_with_type(), under_way: JoinSet::new() }
    }

    /// Begins to write a batch, as soon as there is room for one more.
    ///
    /// # Errors
    /// An earlier batch could not be written.
    pub(super) async fn add(&mut self, batch: Vec<RawDocumentBuf>) -> Result<(), StoreError> {
        if batch.is_empty() {
            return Ok(());
        }
        if self.under_way.len() >= AT_ONCE {
            self.next().await?;
        }
        let chunks = self.chunks.clone();
        self.under_way.spawn(async move {
            chunks.insert_many(batch).await?;
            Ok(())
        });
        Ok(())
    }

    /// Waits until nothing is under way any more.
    ///
    /// # Errors
    /// The first one of a batch that could not be written.
    pub(super) async fn end(mut self) -> Result<(), StoreError> {
        let mut ended = Ok(());
        while !self.under_way.is_empty() {
            ended = ended.and(self.next().await);
        }
        ended
    }

    async fn next(&mut self) -> Result<(), StoreError> {
        match self.under_way.join_next().await {
            None => Ok(()),
            Some(Ok(written)) => written,
            Some(Err(broken)) => Err(StoreError::Spool(std::io::Error::other(broken))),
        }
    }
}
