//! File sets. What others see changes when a version is done, or is removed: these have entries. What is sent before that is seen
//! by nobody else, goes away by itself, and has none.

use actix_web::web::Bytes;
use bson::{Document, doc};
use disbatch_core::audit::{Actor, AuditEntry, Object, ObjectKind, Verb};
use disbatch_core::files::{
    Check, Chunk, Committed, ContentId, FileSet, FilesError, NewEntry, NewSet, Put, SetName,
};
use disbatch_core::model::FileSetId;
use disbatch_core::store::Store;

use super::{actor, noted, to_the_end};
use crate::access::Who;
use crate::error::HttpError;
use crate::files::sender;
use crate::state::State;

#[derive(Debug)]
pub struct SentChunk {
    /// What the whole content is known by.
    pub of: ContentId,
    /// How many bytes that has.
    pub length: u64,
    pub n: u64,
    pub bytes: Bytes,
}

pub async fn open_files(state: &State, name: SetName, new: NewSet) -> Result<FileSet, FilesError> {
    let store = state.store.clone();
    to_the_end(state, async move { store.fileset_open(&name, &new).await }).await
}

pub async fn add_files(state: &State, set: FileSetId, entries: Vec<NewEntry>) -> Result<(), FilesError> {
    let store = state.store.clone();
    to_the_end(state, async move { store.fileset_add(set, &entries).await }).await
}

pub async fn commit_files(state: &State, who: &Who, set: FileSetId) -> Result<Committed, FilesError> {
    let commit = move |store: Store, who: Actor| async move {
        let committed = store.fileset_commit(set).await?;
        let Committed::Done(done) = &committed else { return Ok((committed, None)) };
        let entry = entry(who, Verb::FilesCommit, &done.name, (None, Some(told(done))));
        Ok((committed, Some(entry)))
    };
    noted(state, actor(who), commit).await
}

/// Removes a version of a set, or all of them. Returns how many.
pub async fn delete_files(
    state: &State,
    who: &Who,
    name: SetName,
    version: Option<i64>,
) -> Result<u64, FilesError> {
    let delete = move |store: Store, who: Actor| async move {
        let before = match version {
            None => store.fileset_latest(&name).await?,
            Some(version) => store.fileset_version(&name, version).await?,
        };
        let deleted = store.fileset_delete(&name, version).await?;
        let entry = (deleted > 0).then(|| AuditEntry {
            more: doc! { "versions": i64::try_from(deleted).unwrap_or(i64::MAX) },
            ..entry(who, Verb::FilesDelete, name.as_str(), (before.as_ref().map(told), None))
        });
        Ok((deleted, entry))
    };
    noted(state, actor(who), delete).await
}

pub async fn put_chunk(state: &State, who: &Who, sent: SentChunk) -> Result<Put, FilesError> {
    let (store, sender) = (state.store.clone(), sender(who));
    let change = async move {
        let SentChunk { of, length, n, bytes } = sent;
        store.content_put_chunk(Chunk { of, length, n, bytes: &bytes }, &sender).await
    };
    to_the_end(state, change).await
}

/// Makes a content of what somebody has sent. All of it is read to the end, even if whoever has asked hangs up, and asking again
/// joins that.
pub async fn finish_content(state: &State, who: &Who, content: ContentId) -> Result<(), HttpError> {
    let (store, sender) = (state.store.clone(), sender(who));
    let sent = (content, sender.clone());
    let check = async move { store.content_finish(content, &sender, Check::ReadBack).await };
    state.checks.join(&state.runtime, sent, check).await
}

fn told(set: &FileSet) -> Document {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let mut told = doc! { "version": set.version, "files": number(set.count), "bytes": number(set.bytes) };
    if let Some(tenant) = &set.tenant {
        told.insert("tenant", tenant.as_str());
    }
    told
}

fn entry(
    who: Actor,
    what: Verb,
    name: &str,
    (before, after): (Option<Document>, Option<Document>),
) -> AuditEntry {
    let object = Object::with_name(ObjectKind::Files, name);
    AuditEntry { before, after, ..AuditEntry::new(who, what, object) }
}
