//! Output of tasks: that which is in `GridFS` as text, and that of one attempt from some byte on: what is there of it while it runs, and
//! the rest from where it is stored.

use bson::Bson;
use bson::oid::ObjectId;
use disbatch_core::live::LiveStream;
use disbatch_core::model::TaskId;
use disbatch_core::observe::Observed;
use disbatch_core::output::{OutputFile, StreamName};
use disbatch_core::store::{Store, StoreError};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt, pin_mut};

use crate::allowance::answers::TOGETHER;

/// The first bytes of an output.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Excerpt {
    /// Bytes that are not UTF-8 are replaced.
    pub text: String,
    pub cut: bool,
    pub damage: Option<String>,
}

/// All of the file `id`, nothing if it is empty or gone. A damaged file counts as far as it can be read, and one that is longer than
/// an answer may be as far as it is too long.
pub async fn whole(store: &Store, id: ObjectId) -> Result<Option<String>, StoreError> {
    let excerpt = excerpt(store, id, TOGETHER).await?;
    Ok(Some(excerpt.text).filter(|text| !text.is_empty()))
}

pub async fn excerpt(store: &Store, id: ObjectId, limit: usize) -> Result<Excerpt, StoreError> {
    let chunks = store.read_output(id).await?;
    pin_mut!(chunks);
    let mut bytes = Vec::new();
    let mut damage = None;
    while let Some(chunk) = chunks.next().await {
        match chunk {
            Ok(chunk) => bytes.extend(chunk),
            Err(error @ StoreError::DamagedOutput { .. }) => {
                tracing::warn!(%error, "output is shown in part");
                damage = Some(error.to_string());
                break;
            }
            Err(error) => return Err(error),
        }
        if bytes.len() > limit {
            break;
        }
    }
    Ok(Excerpt { damage, ..cut(bytes, limit) })
}

/// At most the first `limit` bytes of `bytes`, without half a character at the end.
pub fn cut(mut bytes: Vec<u8>, limit: usize) -> Excerpt {
    let cut = bytes.len() > limit;
    if cut {
        let is_first = |at: &usize| bytes[*at] & 0b1100_0000 != 0b1000_0000;
        let start = (0..=limit).rev().find(is_first).unwrap_or(limit);
        // Four bytes are the longest character; more are no text, and cut anywhere.
        bytes.truncate(if limit - start < 4 { start } else { limit });
    }
    let text = String::from_utf8(bytes)
        .unwrap_or_else(|error| String::from_utf8_lossy(error.as_bytes()).into_owned());
    Excerpt { text, cut, damage: None }
}

/// Live output is read about so many bytes at a time, and text in tasks is handed on in such pieces.
const AT_ONCE: usize = 256 * 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    Bytes(Vec<u8>),
    /// So many bytes that are not kept.
    Gap(u64),
}

#[derive(Debug)]
pub enum Source {
    /// In the task.
    Text(String),
    /// In a file, with what is known about it.
    File(ObjectId, Option<OutputFile>),
}

impl Source {
    /// The stored output of an attempt that is over. `None`: nothing is known of such an attempt.
    pub async fn of_attempt(
        store: &Store,
        seen: &Observed,
        attempt: i64,
        stream: StreamName,
    ) -> Result<Option<Self>, StoreError> {
        let task = seen.task.id;
        let is_latest = seen.attempt().max(1) == attempt.max(1);
        let value = if is_latest && seen.task.status.has_ended() {
            store.task_output(task, stream).await?
        } else {
            match store.attempt_output(task, attempt, stream).await? {
                // What a task did before anybody counted is its first attempt.
                None if attempt == 0 => store.attempt_output(task, 1, stream).await?,
                None if is_latest => store.task_output(task, stream).await?,
                kept => kept,
            }
        };
        match value {
            Some(value) => Self::from_value(store, value).await.map(Some),
            None => Ok(None),
        }
    }

    /// What a task holds as its output.
    pub async fn of_task(store: &Store, task: TaskId, stream: StreamName) -> Result<Self, StoreError> {
        let value = store.task_output(task, stream).await?;
        Self::from_value(store, value.unwrap_or(Bson::Null)).await
    }

    /// Its bytes, as far as is known.
    pub fn length(&self) -> u64 {
        match self {
            Self::Text(text) => text.len() as u64,
            Self::File(_, file) => file.map_or(0, |file| file.length),
        }
    }

    async fn from_value(store: &Store, value: Bson) -> Result<Self, StoreError> {
        Ok(match value {
            Bson::String(text) => Self::Text(text),
            Bson::ObjectId(id) => Self::File(id, store.find_output(id).await?),
            other => Self::Text(crate::ui::plain(Some(&other))),
        })
    }

    /// Its bytes, without those before `from`.
    pub async fn read(
        self,
        store: &Store,
        from: u64,
    ) -> Result<BoxStream<'static, Result<Vec<u8>, StoreError>>, StoreError> {
        Ok(match self {
            Self::Text(text) => {
                let mut bytes = text.into_bytes();
                let known = usize::try_from(from).unwrap_or(usize::MAX).min(bytes.len());
                bytes.drain(..known);
                let pieces: Vec<_> = bytes.chunks(AT_ONCE).map(|piece| Ok(piece.to_vec())).collect();
                stream::iter(pieces).boxed()
            }
            Self::File(id, file) => store.read_output_from(id, file, from).await?.boxed(),
        })
    }
}

/// One stream of one attempt, read from its position on.
pub struct Tail {
    store: Store,
    of: LiveStream,
    position: u64,
    rest: Option<BoxStream<'static, Result<Vec<u8>, StoreError>>>,
}

impl Tail {
    pub fn new(store: Store, of: LiveStream, position: u64) -> Self {
        Self { store, of, position, rest: None }
    }

    pub fn position(&self) -> u64 {
        self.position
    }

    pub fn name(&self) -> StreamName {
        self.of.stream
    }

    /// What there is of the live output, not necessarily all at once. Nothing if there is no more for now.
    pub async fn live(&mut self) -> Result<Vec<Part>, StoreError> {
        let mut parts = Vec::new();
        for piece in self.store.read_live(self.of, self.position, AT_ONCE).await? {
            if piece.offset > self.position {
                parts.push(Part::Gap(piece.offset - self.position));
            }
            self.position = piece.end();
            parts.push(Part::Bytes(piece.bytes));
        }
        Ok(parts)
    }

    /// The same up to the first gap. `None`: it is here.
    pub async fn live_until_gap(&mut self) -> Result<Option<Vec<u8>>, StoreError> {
        let mut bytes = Vec::new();
        for piece in self.store.read_live(self.of, self.position, AT_ONCE).await? {
            if piece.offset > self.position {
                return Ok(Some(bytes).filter(|bytes| !bytes.is_empty()));
            }
            self.position = piece.end();
            bytes.extend(piece.bytes);
        }
        Ok(Some(bytes))
    }

    /// The attempt is over: the rest is in `source`.
    pub async fn settle(&mut self, source: Option<Source>) -> Result<(), StoreError> {
        self.rest = match source {
            Some(source) => Some(source.read(&self.store, self.position).await?),
            None => None,
        };
        Ok(())
    }

    /// The next part of the rest, `None` at the end.
    pub async fn rest(&mut self) -> Result<Option<Part>, StoreError> {
        let Some(rest) = &mut self.rest else { return Ok(None) };
        let Some(bytes) = rest.try_next().await? else { return Ok(None) };
        self.position += bytes.len() as u64;
        Ok(Some(Part::Bytes(bytes)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn characters_are_not_cut_in_half() {
        let cut_at = |limit| cut("aé☃b".as_bytes().to_vec(), limit);
        assert_eq!(cut_at(7), Excerpt { text: "aé☃b".into(), cut: false, damage: None });
        assert_eq!(cut_at(6).text, "aé☃");
        assert_eq!(cut_at(5).text, "aé");
        assert_eq!(cut_at(2).text, "a");
        assert!(cut_at(2).cut);
        assert_eq!(cut(vec![0x80; 9], 5).text.chars().count(), 5);
    }
}
