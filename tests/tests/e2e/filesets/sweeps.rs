//! Sweeps: what nobody needs goes, and what a version has stays, whoever does what at the same time.

use bson::oid::ObjectId;
use bson::{Document, doc};
use disbatch_core::files::{Check, Committed, ContentId, NewSet, Sender, SetState, SweptFiles};
use disbatch_tests::eventually;
use serde_json::json;

use super::{
    CHUNK, OLD, age, alice, chunk, count, done, entry, files_of, latest, named, noise, put, send, send_as,
    versions, world,
};

#[tokio::test]
async fn what_nobody_needs_for_a_day_goes_and_all_else_stays() -> anyhow::Result<()> {
    let world = world().await?;
    let store = world.store();
    let [kept, dropped, broken] = [1, 2, 3].map(|seed| noise(2 * CHUNK, seed));
    put(&store, "a", None, &[("kept", &kept, 0o644), ("dropped", &dropped, 0o644)]).await?;
    put(&store, "b", None, &[("also", &kept, 0o644)]).await?;
    let id = ContentId::of(&broken);
    store.content_put_chunk(chunk(id, &broken, 0)?, &alice()).await?;
    send(&store, b"for later").await?;
    assert_eq!(store.sweep_files().await?, SweptFiles::default());
    age(&world).await?;
    let swept = store.sweep_files().await?;
    assert_eq!(
        (swept.contents, swept.bytes),
        (2, 2 * CHUNK as u64 + 9),
        "the upload, and what nobody has named"
    );
    assert_eq!(store.content_state(id, &alice(), true).await?.length, None);
    store.fileset_delete(&named("a")?, None).await?;
    let swept = store.sweep_files().await?;
    assert_eq!((swept.entries, swept.contents), (2, 0), "the contents stay for a day");
    age(&world).await?;
    let swept = store.sweep_files().await?;
    assert_eq!((swept.entries, swept.contents), (0, 1));
    assert_eq!(count(&world, "filesets.chunks", doc! {}).await?, 2);
    age(&world).await?;
    assert_eq!(store.sweep_files().await?, SweptFiles::default(), "what is needed is not looked at again");
    let set = latest(&store, "b").await?.ok_or_else(|| anyhow::anyhow!("no set"))?;
    assert!(files_of(&store, &set).await?["also"] == kept);
    world.end().await
}

#[tokio::test]
async fn a_content_that_need_not_be_sent_again_stays_until_it_can_be_named() -> anyhow::Result<()> {
    let world = world().await?;
    let store = world.store();
    let bob = Sender::user(Some("bob"));
    send(&store, b"asked for").await?;
    send_as(&store, &bob, b"asked for").await?;
    send(&store, b"finished twice").await?;
    send(&store, b"forgotten").await?;
    age(&world).await?;
    let id = ContentId::of(b"asked for");
    for sender in [alice(), bob] {
        assert!(store.content_state(id, &sender, false).await?.done);
    }
    store.content_finish(ContentId::of(b"finished twice"), &alice(), Check::ReadBack).await?;
    assert_eq!(store.sweep_files().await?.contents, 1, "nobody has asked for one of them");
    assert!(
        store.content_state(id, &Sender::user(Some("bob")), false).await?.done,
        "he is known to have sent it"
    );
    put(&store, "data", None, &[("x", b"asked for", 0o644), ("y", b"finished twice", 0o644)]).await?;
    world.end().await
}

#[tokio::test]
async fn a_content_is_there_of_which_that_was_told_while_it_was_swept() -> anyhow::Result<()> {
    let world = world().await?;
    let store = world.store();
    for round in 0..40_u64 {
        let bytes = noise(100, round);
        let id = ContentId::of(&bytes);
        send(&store, &bytes).await?;
        age(&world).await?;
        let alice = alice();
        let (told, swept) = tokio::join!(store.content_state(id, &alice, false), store.sweep_files());
        swept?;
        assert_eq!(store.find_content(id).await?.is_some(), told?.done, "round {round}");
    }
    world.end().await
}

#[tokio::test]
async fn versions_that_were_given_up_or_have_run_out_go() -> anyhow::Result<()> {
    let world = world().await?;
    let store = world.store();
    let fresh = store.fileset_open(&named("fresh")?, &NewSet::default()).await?;
    let stale = store.fileset_open(&named("stale")?, &NewSet::default()).await?;
    let expires = NewSet { expires: Some(OLD), ..NewSet::default() };
    let short = store.fileset_open(&named("short")?, &expires).await?;
    done(&store, &short).await?;
    put(&store, "long", None, &[("x", b"x", 0o644)]).await?;
    let sets = world.database().collection::<Document>("filesets");
    sets.update_one(doc! { "_id": stale.id }, doc! { "$set": { "touched": OLD } }).await?;
    assert_eq!(store.sweep_files().await?.versions, 2);
    let state = async |id| anyhow::Ok(store.find_fileset(id).await?.map(|set| set.state));
    assert_eq!(state(fresh.id).await?, Some(SetState::Open));
    assert_eq!(state(stale.id).await?, Some(SetState::Gone));
    assert_eq!(state(short.id).await?, Some(SetState::Gone));
    assert_eq!((versions(&world, "done").await?, versions(&world, "gone").await?), (1, 2));
    world.end().await
}

#[tokio::test]
async fn a_round_of_the_janitor_removes_more_than_a_sweep_does() -> anyhow::Result<()> {
    let world = world().await?;
    world.configure(json!({ "janitor": { "every": 3600 } }))?;
    let set =
        |version: i32| doc! { "_id": ObjectId::new(), "name": "a", "version": version, "state": "gone" };
    let sets: Vec<Document> = (0..250).map(set).collect();
    let entry = |set: &Document| doc! { "set": set.get("_id").cloned(), "path": "x", "file": "f" };
    let entries: Vec<Document> = sets.iter().map(entry).collect();
    let content = |n: i32| doc! { "filename": n.to_string(), "state": "done", "length": 1_i64, "loose": OLD };
    let contents: Vec<Document> = (0..3).map(content).collect();
    for (name, documents) in [("filesets", sets), ("filesets.entries", entries), ("filesets.files", contents)]
    {
        world.database().collection::<Document>(name).insert_many(documents).await?;
    }
    let swept = world.store().sweep_files().await?;
    // One look is enough for each version.
    assert_eq!((swept.entries, swept.contents, swept.more), (100, 3, true));
    let _den = world.den("n1")?;
    eventually("the rest to be removed", || async {
        Ok((count(&world, "filesets.entries", doc! {}).await? == 0).then_some(()))
    })
    .await?;
    assert!(!world.store().sweep_files().await?.more);
    world.end().await
}

#[tokio::test]
async fn a_deleter_that_dies_leaves_nothing_for_ever() -> anyhow::Result<()> {
    let world = world().await?;
    let store = world.store();
    let bytes = noise(3 * CHUNK, 7);
    send(&store, &bytes).await?;
    // It had marked the content, and removed a part of the chunks.
    let contents = world.database().collection::<Document>("filesets.files");
    contents.update_one(doc! {}, doc! { "$set": { "state": "gone", "loose": OLD } }).await?;
    world.database().collection::<Document>("filesets.chunks").delete_one(doc! { "n": 1 }).await?;
    // Meanwhile it is sent again.
    assert_eq!(send(&store, &bytes).await?, 3);
    put(&store, "data", None, &[("x", &bytes, 0o644)]).await?;
    assert_eq!(store.sweep_files().await?.contents, 1);
    assert_eq!(count(&world, "filesets.chunks", doc! {}).await?, 3);
    let set = latest(&store, "data").await?.ok_or_else(|| anyhow::anyhow!("no set"))?;
    assert!(files_of(&store, &set).await?["x"] == bytes);
    world.end().await
}

#[tokio::test]
async fn a_sweep_and_a_commit_at_once_never_leave_a_version_without_its_contents() -> anyhow::Result<()> {
    let world = world().await?;
    let store = world.store();
    for round in 0..60_u64 {
        let bytes = noise(CHUNK + 10, round);
        send(&store, &bytes).await?;
        let set = store.fileset_open(&named("data")?, &NewSet::default()).await?;
        age(&world).await?;
        // As an upload does for a content that is there: it names it, and commits.
        let name_and_commit = async {
            store.fileset_add(set.id, &[entry(("x", &bytes, 0o644))?]).await?;
            loop {
                match store.fileset_commit(set.id).await? {
                    Committed::Done(set) => return anyhow::Ok(set),
                    // A sweep was faster.
                    Committed::Incomplete(_) => {
                        send(&store, &bytes).await?;
                    }
                }
            }
        };
        let (committed, first, second) =
            tokio::join!(name_and_commit, store.sweep_files(), store.sweep_files());
        let committed = committed?;
        assert!(first.is_ok() && second.is_ok(), "round {round}: {first:?} {second:?}");
        assert!(files_of(&store, &committed).await?["x"] == bytes, "round {round}");
        age(&world).await?;
        store.sweep_files().await?;
        assert!(files_of(&store, &committed).await?["x"] == bytes, "round {round}");
    }
    world.end().await
}
