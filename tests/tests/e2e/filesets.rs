//! File sets: contents that are stored once, versions that never change, and tasks that take and make them.

mod broken_off;
mod contents;
mod memory;
mod runs;
mod settled;
mod sweeps;
mod versions;

use std::collections::BTreeMap;

use anyhow::Context;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::files::{
    CHUNK_BYTES, Check, Chunk, Committed, ContentId, EntryQuery, FileSet, NewEntry, NewSet, Put, Sender,
    SetName, chunks_of,
};
use disbatch_core::model::{QueueId, TaskFiles, TaskId};
use disbatch_core::store::Store;
use disbatch_core::task::TaskOptions;
use disbatch_tests::World;
use futures::TryStreamExt;

const CHUNK: usize = 1024 * 1024;

/// Long ago.
const OLD: DateTime = DateTime::from_millis(1_000_000_000_000);

/// A file: its path, what is in it, and its mode.
pub type TestFile<'a> = (&'a str, &'a [u8], u32);

/// A world whose database has its indexes.
async fn world() -> anyhow::Result<World> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    Ok(world)
}

fn named(name: &str) -> anyhow::Result<SetName> {
    Ok(name.parse()?)
}

fn alice() -> Sender {
    Sender::user(Some("alice"))
}

/// Bytes that look random, and are the same each time.
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u8::try_from(state >> 56).unwrap_or_default()
    };
    (0..length).map(|_| next()).collect()
}

/// The chunk `n` of a content, as it is to be sent.
fn chunk(id: ContentId, bytes: &[u8], n: u64) -> anyhow::Result<Chunk<'_>> {
    let start = usize::try_from(n * CHUNK_BYTES)?;
    let part = bytes.get(start..bytes.len().min(start + CHUNK)).context("there is no such chunk")?;
    Ok(Chunk { of: id, length: bytes.len() as u64, n, bytes: part })
}

/// Sends what is missing of a content. Returns how many chunks were stored.
pub async fn send_as(store: &Store, sender: &Sender, bytes: &[u8]) -> anyhow::Result<u64> {
    let id = ContentId::of(bytes);
    let state = store.content_state(id, sender, false).await?;
    let missing = match state.length {
        Some(_) => state.missing,
        None => std::iter::once(0..chunks_of(bytes.len() as u64)).collect(),
    };
    let mut sent = 0;
    for n in missing.into_iter().flatten() {
        sent += u64::from(store.content_put_chunk(chunk(id, bytes, n)?, sender).await? == Put::Stored);
    }
    store.content_finish(id, sender, Check::ReadBack).await?;
    Ok(sent)
}

/// The same as alice.
async fn send(store: &Store, bytes: &[u8]) -> anyhow::Result<u64> {
    send_as(store, &alice(), bytes).await
}

pub fn entry((path, bytes, mode): TestFile<'_>) -> anyhow::Result<NewEntry> {
    Ok(NewEntry {
        path: path.parse()?,
        file: ContentId::of(bytes),
        size: bytes.len() as u64,
        mode,
        mtime: DateTime::from_millis(1_700_000_000_000),
    })
}

/// Puts a version of a set there as the web server does.
pub async fn put(
    store: &Store,
    name: &str,
    tenant: Option<&str>,
    files: &[TestFile<'_>],
) -> anyhow::Result<FileSet> {
    let new = NewSet { tenant: tenant.map(str::to_owned), ..NewSet::default() };
    let set = store.fileset_open(&named(name)?, &new).await?;
    for file in files {
        send_as(store, &alice(), file.1).await?;
        store.fileset_add(set.id, &[entry(*file)?]).await?;
    }
    done(store, &set).await
}

/// Makes a version done, all of whose contents are there.
async fn done(store: &Store, set: &FileSet) -> anyhow::Result<FileSet> {
    match store.fileset_commit(set.id).await? {
        Committed::Done(set) => Ok(set),
        Committed::Incomplete(missing) => anyhow::bail!("missing: {missing:?}"),
    }
}

/// All bytes of a content. Fails if they are not what they should be.
async fn content(store: &Store, id: ContentId) -> anyhow::Result<Vec<u8>> {
    let content = store.find_content(id).await?.context("no such content")?;
    let pieces: Vec<Vec<u8>> = store.content_stream(content, 0..content.length).try_collect().await?;
    Ok(pieces.concat())
}

/// The files of a version.
pub async fn files_of(store: &Store, set: &FileSet) -> anyhow::Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for entry in store.fileset_entries(set, EntryQuery::ALL).await? {
        let bytes = content(store, entry.file).await?;
        assert_eq!(bytes.len() as u64, entry.size);
        files.insert(entry.path, bytes);
    }
    Ok(files)
}

async fn latest(store: &Store, name: &str) -> anyhow::Result<Option<FileSet>> {
    Ok(store.fileset_latest(&named(name)?).await?)
}

async fn count(world: &World, collection: &str, filter: Document) -> anyhow::Result<u64> {
    Ok(world.database().collection::<Document>(collection).count_documents(filter).await?)
}

/// How many versions stand so.
async fn versions(world: &World, state: &str) -> anyhow::Result<u64> {
    count(world, "filesets", doc! { "state": state }).await
}

/// Makes everything that nobody is known to need look as if that had been so for long.
async fn age(world: &World) -> anyhow::Result<()> {
    let contents = world.database().collection::<Document>("filesets.files");
    contents.update_many(doc! { "loose": { "$exists": true } }, doc! { "$set": { "loose": OLD } }).await?;
    Ok(())
}

/// Submits a task with file sets.
pub async fn submit(
    world: &World,
    queue: QueueId,
    params: Document,
    files: Document,
) -> anyhow::Result<TaskId> {
    let files = TaskFiles::parse(&Bson::from(files)).map_err(anyhow::Error::msg)?;
    let options = TaskOptions { files, ..TaskOptions::default() };
    let submitted = world.store().submit_tasks(queue, vec![params], &options).await?;
    submitted.ids.first().copied().context("nothing was submitted")
}
