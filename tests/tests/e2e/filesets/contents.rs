//! Contents: they are sent in chunks, stored once, and read from anywhere.

use anyhow::{Context, ensure};
use bson::{Binary, Document, doc};
use disbatch_core::files::{Check, Chunk, ContentId, FileSet, FilesError, NewEntry, NewSet, Put, Sender};
use disbatch_core::model::whole_number;
use disbatch_core::store::{Store, StoreError};
use disbatch_tests::World;
use futures::TryStreamExt;
use futures::future::try_join_all;

use crate::wake::{fail, fallible};

use super::{CHUNK, alice, chunk, content, count, done, entry, named, noise, put, send, send_as, world};

#[tokio::test]
async fn an_upload_goes_on_where_it_was_broken_off() -> anyhow::Result<()> {
    let world = world().await?;
    let store = world.store();
    let bytes = noise(4 * CHUNK + 17, 1);
    let id = ContentId::of(&bytes);
    assert_eq!(store.content_state(id, &alice(), true).await?.length, None);
    let nothing = store.content_finish(id, &alice(), Check::ReadBack).await.unwrap_err();
    assert!(matches!(nothing, FilesError::NotSent), "{nothing}");
    for n in [0, 2] {
        assert_eq!(store.content_put_chunk(chunk(id, &bytes, n)?, &alice()).await?, Put::Stored);
    }
    assert_eq!(store.content_put_chunk(chunk(id, &bytes, 2)?, &alice()).await?, Put::Known);
    let state = store.content_state(id, &alice(), true).await?;
    assert_eq!(
        (state.length, state.done, state.missing),
        (Some(bytes.len() as u64), false, vec![1..2, 3..5])
    );
    let early = store.content_finish(id, &alice(), Check::ReadBack).await.unwrap_err();
    assert_eq!(early.to_string(), "chunks are missing: 1, 3 to 4");
    assert_eq!(send(&store, &bytes).await?, 3, "what is there is not sent again");
    assert!(content(&store, id).await? == bytes);
    assert_eq!(send(&store, &bytes).await?, 0, "it may be repeated");
    assert_eq!(count(&world, "filesets.chunks", doc! {}).await?, 5);
    world.end().await
}

#[tokio::test]
async fn chunks_that_make_no_sense_are_refused() -> anyhow::Result<()> {
    let world = world().await?;
    let store = world.store();
    let bytes = noise(CHUNK + 1, 1);
    let id = ContentId::of(&bytes);
    let good = chunk(id, &bytes, 1)?;
    for (wrong, error) in [
        (Chunk { n: 2, ..good }, "a content of 1048577 bytes has no chunk 2"),
        (Chunk { n: 0, ..good }, "chunk 0 must have 1048576 bytes and has 1"),
        (Chunk { bytes: b"", ..good }, "chunk 1 must have 1 bytes and has 0"),
        (Chunk { length: 1 << 41, ..good }, "a file has at most 1099511627776 bytes"),
    ] {
        assert_eq!(store.content_put_chunk(wrong, &alice()).await.unwrap_err().to_string(), error);
    }
    // Who was wrong about the length begins anew.
    let longer = Chunk { length: CHUNK as u64 * 3, ..chunk(id, &bytes, 0)? };
    assert_eq!(store.content_put_chunk(longer, &alice()).await?, Put::Stored);
    assert_eq!(store.content_put_chunk(good, &alice()).await?, Put::Stored);
    let missing = store.content_state(id, &alice(), true).await?.missing;
    assert_eq!(missing.into_iter().flatten().collect::<Vec<u64>>(), [0]);
    // The empty content needs no chunk.
    let empty = ContentId::of(b"");
    store.content_finish(empty, &alice(), Check::ReadBack).await?;
    assert!(content(&store, empty).await?.is_empty());
    world.end().await
}

#[tokio::test]
async fn nobody_spoils_or_gets_what_somebody_else_sends() -> anyhow::Result<()> {
    let world = world().await?;
    let store = world.store();
    let mallory = Sender::user(Some("mallory"));
    let bytes = noise(2 * CHUNK, 1);
    let id = ContentId::of(&bytes);
    let wrong = noise(2 * CHUNK, 2);
    for n in 0..2 {
        store.content_put_chunk(chunk(id, &wrong, n)?, &mallory).await?;
    }
    assert_eq!(send(&store, &bytes).await?, 2);
    assert!(content(&store, id).await? == bytes);
    let refused = store.content_finish(id, &mallory, Check::ReadBack).await.unwrap_err();
    assert!(matches!(refused, FilesError::WrongContent), "{refused}");
    // Knowing the hash is not enough.
    assert_eq!(store.unreferable(&[id], &mallory, Some(&[])).await?, [id]);
    assert!(store.unreferable(&[id, id], &alice(), Some(&[])).await?.is_empty());
    assert!(!store.content_state(id, &mallory, false).await?.done, "nobody is told that it is there");
    assert_eq!(send_as(&store, &mallory, &bytes).await?, 2, "all of it has to be sent");
    assert!(store.unreferable(&[id], &mallory, Some(&[])).await?.is_empty());
    assert_eq!(count(&world, "filesets.chunks", doc! {}).await?, 2, "and it is stored once");
    // Whoever may read a version that has it may name it.
    put(&store, "shared", Some("acme"), &[("x", &bytes, 0o644)]).await?;
    let bob = Sender::user(Some("bob"));
    let tenants = |name: &str| [name.to_owned()];
    assert!(store.unreferable(&[id], &bob, Some(&tenants("acme"))).await?.is_empty());
    assert_eq!(store.unreferable(&[id], &bob, Some(&tenants("other"))).await?, [id]);
    assert!(store.unreferable(&[id], &bob, None).await?.is_empty());
    world.end().await
}

/// A version with 2,000 empty files.
async fn many_empty(store: &Store, name: &str, tenant: &str) -> anyhow::Result<FileSet> {
    let new = NewSet { tenant: Some(tenant.to_owned()), ..NewSet::default() };
    let set = store.fileset_open(&named(name)?, &new).await?;
    send(store, b"").await?;
    for part in 0..2 {
        let paths = (0..1_000).map(|n| format!("{part}/{n}/__init__.py"));
        let entries = paths.map(|path| entry((path.as_str(), b"".as_slice(), 0o644)));
        store.fileset_add(set.id, &entries.collect::<anyhow::Result<Vec<NewEntry>>>()?).await?;
    }
    done(store, &set).await
}

/// What somebody of a tenant must not name, and how many keys and entries of file sets the server has read to tell.
async fn looked_up(world: &World, id: ContentId, tenant: &str) -> anyhow::Result<(Vec<ContentId>, i64)> {
    let (database, mallory) = (world.database(), Sender::user(Some("mallory")));
    let profile = database.collection::<Document>("system.profile");
    profile.drop().await?;
    database.run_command(doc! { "profile": 2 }).await?;
    let refused = world.store().unreferable(&[id], &mallory, Some(&[tenant.to_owned()])).await;
    database.run_command(doc! { "profile": 0 }).await?;
    let of_entries = doc! { "ns": format!("{}.filesets.entries", database.name()) };
    let operations: Vec<Document> = profile.find(of_entries).await?.try_collect().await?;
    ensure!(!operations.is_empty(), "the server has noted nothing");
    let of = |operation: &Document, key: &str| operation.get(key).and_then(whole_number).unwrap_or(0);
    let read: i64 = operations.iter().map(|one| of(one, "keysExamined") + of(one, "docsExamined")).sum();
    Ok((refused?, read))
}

#[tokio::test]
async fn who_has_a_content_is_found_out_however_many_files_have_it() -> anyhow::Result<()> {
    let world = world().await?;
    let store = world.store();
    let id = ContentId::of(b"");
    many_empty(&store, "theirs", "acme").await?;
    many_empty(&store, "dropped", "corp").await?;
    store.fileset_delete(&named("dropped")?, None).await?;
    // Neither those of another tenant nor those of a version that is gone are read one by one.
    let (refused, read) = looked_up(&world, id, "corp").await?;
    assert_eq!(refused, [id]);
    ensure!(read < 500, "{read} were read");
    assert!(looked_up(&world, id, "acme").await?.0.is_empty());
    put(&store, "own", Some("corp"), &[("x", b"", 0o644)]).await?;
    let (refused, read) = looked_up(&world, id, "corp").await?;
    ensure!(refused.is_empty() && read < 500, "{refused:?}, {read} were read");
    world.end().await
}

#[tokio::test]
async fn equal_contents_are_stored_once_however_many_send_them_at_once() -> anyhow::Result<()> {
    let world = world().await?;
    let store = world.store();
    let bytes = noise(3 * CHUNK + 5, 3);
    let senders: Vec<Sender> = (0..8).map(|n| Sender::user(Some(&format!("user-{n}")))).collect();
    try_join_all(senders.iter().map(|sender| send_as(&store, sender, &bytes))).await?;
    // Runners share an upload: while some send parts of it still, it is ended by others.
    let rounds = 2;
    for round in 0..rounds {
        let bytes = noise(2 * CHUNK, 10 + round);
        let (store, bytes) = (&store, &bytes);
        let runners = (0..16).map(|again| async move {
            let part = chunk(ContentId::of(bytes), bytes, 1)?;
            for _ in 0..again {
                store.content_put_chunk(part, &Sender::runner()).await?;
            }
            send_as(store, &Sender::runner(), bytes).await
        });
        try_join_all(runners).await?;
    }
    assert_eq!(count(&world, "filesets.files", doc! { "state": "done" }).await?, 1 + rounds);
    assert_eq!(count(&world, "filesets.files", doc! { "state": "open" }).await?, 0);
    assert_eq!(count(&world, "filesets.chunks", doc! {}).await?, 4 + 2 * rounds);
    assert!(content(&store, ContentId::of(&bytes)).await? == bytes);
    world.end().await
}

#[tokio::test]
async fn an_upload_that_another_runner_ends_meanwhile_has_ended_well() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = fallible(data.path()).await?;
    let world = World::at(server.uri()).await?;
    world.store().ensure_indexes().await?;
    let (store, runner) = (world.store(), Sender::runner());
    let bytes = noise(CHUNK + 1, 6);
    let id = ContentId::of(&bytes);
    send(&store, &bytes).await?;
    for n in [0, 1] {
        store.content_put_chunk(chunk(id, &bytes, n)?, &runner).await?;
    }
    // One looks for what is missing, and gets its answer only when the other has ended the upload and removed its chunks.
    let slow = doc! {
        "failCommands": ["find"], "namespace": format!("{}.filesets.chunks", world.database().name()),
        "blockConnection": true, "blockTimeMS": 1500,
    };
    fail(&world, doc! { "times": 1 }, slow).await?;
    let other = async {
        let entered = doc! { "waitForFailPoint": "failCommand", "timesEntered": 1, "maxTimeMS": 20_000 };
        world.database().client().database("admin").run_command(entered).await.map_err(StoreError::from)?;
        store.content_finish(id, &runner, Check::ReadBack).await
    };
    let (slow, other) = futures::join!(store.content_finish(id, &runner, Check::ReadBack), other);
    slow.context("who was slow")?;
    other.context("who was fast")?;
    assert_eq!(count(&world, "filesets.chunks", doc! {}).await?, 2);
    world.end().await?;
    server.stop().await
}

#[tokio::test]
async fn contents_are_read_from_anywhere_and_damage_is_seen() -> anyhow::Result<()> {
    let world = world().await?;
    let store = world.store();
    let bytes = noise(3 * CHUNK + 100, 5);
    let id = ContentId::of(&bytes);
    send(&store, &bytes).await?;
    let found = store.find_content(id).await?.unwrap();
    let end = bytes.len();
    for (from, to) in
        [(0, 0), (5, 10), (CHUNK - 1, CHUNK + 1), (CHUNK, 3 * CHUNK), (end - 1, end), (end, end)]
    {
        let read = store.content_stream(found, from as u64..to as u64).try_collect::<Vec<Vec<u8>>>();
        assert!(read.await?.concat() == bytes[from..to], "{from} to {to}");
    }
    let beyond: Vec<Vec<u8>> = store.content_stream(found, 10..u64::MAX).try_collect().await?;
    assert!(beyond.concat() == bytes[10..]);
    let chunks = world.database().collection::<Document>("filesets.chunks");
    let data = Binary { subtype: bson::spec::BinarySubtype::Generic, bytes: vec![0; CHUNK] };
    chunks.update_one(doc! { "n": 1 }, doc! { "$set": { "data": data } }).await?;
    let damaged = |end: u64| store.content_stream(found, 0..end).try_collect::<Vec<Vec<u8>>>();
    let error = damaged(found.length).await.unwrap_err();
    assert!(error.to_string().ends_with("is damaged: it has another SHA-256"), "{error}");
    chunks.delete_one(doc! { "n": 1 }).await?;
    let error = damaged(found.length).await.unwrap_err();
    assert!(
        matches!(&error, StoreError::DamagedContent { reason, .. } if reason == "chunk 1 is missing"),
        "{error}"
    );
    assert_eq!(damaged(10).await?.concat(), bytes[..10], "the rest can still be read");
    world.end().await
}
