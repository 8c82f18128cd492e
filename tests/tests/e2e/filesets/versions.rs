//! Versions: numbers that come once, entries that count only when they were confirmed, and commits that are whole.

use bson::{Bson, DateTime, Document, doc};
use disbatch_core::files::{
    Committed, ContentId, EntryQuery, FilesError, NewEntry, NewSet, SetQuery, SetState,
};
use futures::future::try_join_all;

use super::{done, entry, files_of, latest, named, put, send, world};

#[tokio::test]
async fn many_who_open_a_set_at_once_get_versions_of_their_own() -> anyhow::Result<()> {
    let world = world().await?;
    let store = world.store();
    let (name, new) = (named("data")?, NewSet::default());
    let sets = try_join_all((0..12).map(|_| store.fileset_open(&name, &new))).await?;
    let mut numbers: Vec<i64> = sets.iter().map(|set| set.version).collect();
    numbers.sort_unstable();
    assert_eq!(numbers, (1..=12).collect::<Vec<i64>>());
    assert_eq!(latest(&store, "data").await?, None, "none of them is done");
    for set in &sets {
        done(&store, set).await?;
    }
    assert_eq!(latest(&store, "data").await?.map(|set| set.version), Some(12));
    // The name is taken, and free again when all versions are gone; numbers do not come again.
    let acme = NewSet { tenant: Some("acme".to_owned()), ..NewSet::default() };
    let taken = store.fileset_open(&name, &acme).await.unwrap_err();
    assert_eq!(taken.to_string(), "the file set data belongs to another tenant");
    assert_eq!(store.fileset_delete(&name, Some(12)).await?, 1);
    assert_eq!(latest(&store, "data").await?.map(|set| set.version), Some(11));
    assert_eq!(store.fileset_delete(&name, None).await?, 11);
    assert_eq!(store.fileset_open(&name, &acme).await?.version, 13);
    world.end().await
}

#[tokio::test]
async fn sets_and_versions_are_listed_for_those_who_may_see_them() -> anyhow::Result<()> {
    let world = world().await?;
    let store = world.store();
    for (name, tenant, times) in [("b", Some("acme"), 3), ("a", None, 1), ("c", Some("other"), 1)] {
        for time in 0..times {
            let text = format!("{name}{time}");
            put(&store, name, tenant, &[("x", text.as_bytes(), 0o644)]).await?;
        }
    }
    store.fileset_open(&named("open")?, &NewSet::default()).await?;
    let names = |query: SetQuery| {
        let store = &store;
        async move {
            let sets = store.filesets(&query).await?;
            anyhow::Ok(
                sets.into_iter().map(|set| (set.latest.name, set.versions, set.bytes)).collect::<Vec<_>>(),
            )
        }
    };
    let all = names(SetQuery::default()).await?;
    assert_eq!(all, [("a".to_owned(), 1, 2), ("b".to_owned(), 3, 6), ("c".to_owned(), 1, 2)]);
    let page = SetQuery { after: Some("a".to_owned()), limit: 1, ..SetQuery::default() };
    assert_eq!(names(page).await?, all[1..2]);
    let of_acme = SetQuery { tenants: Some(vec!["acme".to_owned()]), ..SetQuery::default() };
    assert_eq!(names(of_acme).await?, all[1..2]);
    let versions = store.fileset_versions(&named("b")?, Some(3), 1).await?;
    assert_eq!(versions.iter().map(|set| set.version).collect::<Vec<_>>(), [2]);
    assert_eq!(store.fileset_versions(&named("b")?, None, 0).await?.len(), 3);
    world.end().await
}

#[tokio::test]
async fn entries_are_listed_page_by_page_and_by_folder() -> anyhow::Result<()> {
    let world = world().await?;
    let store = world.store();
    let paths = ["a", "a/b", "a/é", "ab", "b/1", "b/2", "b/\u{10ffff}", "c"];
    let set = store.fileset_open(&named("data")?, &NewSet::default()).await?;
    send(&store, b"x").await?;
    let entries: anyhow::Result<Vec<NewEntry>> =
        paths.iter().rev().map(|path| entry((*path, b"x", 0o644))).collect();
    store.fileset_add(set.id, &entries?).await?;
    let set = done(&store, &set).await?;
    let list = async |query: EntryQuery<'_>| {
        let entries = store.fileset_entries(&set, query).await?;
        anyhow::Ok(entries.into_iter().map(|entry| entry.path).collect::<Vec<String>>())
    };
    assert_eq!(list(EntryQuery::ALL).await?, paths);
    assert_eq!(list(EntryQuery { prefix: "a/", ..EntryQuery::ALL }).await?, ["a/b", "a/é"]);
    assert_eq!(list(EntryQuery { prefix: "b/", ..EntryQuery::ALL }).await?, paths[4..7]);
    assert_eq!(list(EntryQuery { prefix: "b/", after: Some("b/1"), limit: 1 }).await?, ["b/2"]);
    assert_eq!(store.fileset_entry(&set, "a/b").await?.map(|entry| entry.size), Some(1));
    assert_eq!(store.fileset_entry(&set, "nothing").await?, None);
    world.end().await
}

#[tokio::test]
async fn entries_that_were_not_confirmed_are_never_shown() -> anyhow::Result<()> {
    let world = world().await?;
    let store = world.store();
    let set = store.fileset_open(&named("data")?, &NewSet::default()).await?;
    // Somebody has taken a ticket, added entries, and died before they were confirmed.
    let sets = world.database().collection::<Document>("filesets");
    let entries = world.database().collection::<Document>("filesets.entries");
    sets.update_one(
        doc! { "_id": set.id },
        doc! { "$inc": { "tickets": 1_i64 }, "$push": { "pending": 1_i64 } },
    )
    .await?;
    let stray = |path: &str| {
        let at = DateTime::from_millis(0);
        doc! {
            "set": set.id, "path": path, "file": ContentId::of(b"stray"), "size": 5_i64, "mode": 0o644, "mtime": at,
            "t": 1_i64,
        }
    };
    entries.insert_many([stray("a"), stray("b")]).await?;
    let shown = async |id| {
        let set = store.find_fileset(id).await?.ok_or_else(|| anyhow::anyhow!("no set"))?;
        let entries = store.fileset_entries(&set, EntryQuery::ALL).await?;
        anyhow::Ok(entries.into_iter().map(|entry| entry.path).collect::<Vec<String>>())
    };
    assert!(shown(set.id).await?.is_empty());
    // Somebody else adds one of the same paths, which is free.
    send(&store, b"good").await?;
    store.fileset_add(set.id, &[entry(("a", b"good", 0o644))?]).await?;
    assert_eq!(shown(set.id).await?, ["a"]);
    let done = done(&store, &set).await?;
    assert_eq!((done.count, done.bytes), (1, 4));
    // And the one who has died comes back.
    entries.insert_one(stray("c")).await?;
    assert_eq!(shown(set.id).await?, ["a"]);
    let late = sets.update_one(
        doc! { "_id": set.id, "state": "open", "pending": 1_i64 },
        doc! { "$pull": { "pending": 1_i64 } },
    );
    assert_eq!(late.await?.matched_count, 0);
    world.end().await
}

#[tokio::test]
async fn adding_may_be_repeated_and_what_is_there_does_not_change() -> anyhow::Result<()> {
    let world = world().await?;
    let store = world.store();
    let set = store.fileset_open(&named("data")?, &NewSet::default()).await?;
    for text in ["one", "two"] {
        send(&store, text.as_bytes()).await?;
    }
    let both = [entry(("a", b"one", 0o644))?, entry(("b", b"two", 0o600))?];
    store.fileset_add(set.id, &both[..1]).await?;
    store.fileset_add(set.id, &both).await?;
    store.fileset_add(set.id, &both).await?;
    store.fileset_add(set.id, &[]).await?;
    for other in [entry(("b", b"one", 0o600))?, entry(("b", b"two", 0o644))?] {
        let new = entry(("c", b"two", 0o644))?;
        let taken = store.fileset_add(set.id, &[new, other]).await.unwrap_err();
        assert_eq!(taken.to_string(), "the version has another file at b");
    }
    let twice = [entry(("d", b"one", 0o644))?, entry(("d", b"two", 0o644))?];
    assert_eq!(
        store.fileset_add(set.id, &twice).await.unwrap_err().to_string(),
        "the version has another file at d"
    );
    // Several at once, with paths in common.
    let entries: anyhow::Result<Vec<NewEntry>> =
        (0..200).map(|n| entry((&format!("many/{n}"), b"one", 0o644))).collect();
    let entries = entries?;
    try_join_all((0..4).map(|n| {
        let (store, part) = (&store, &entries[n * 20..n * 20 + 120]);
        async move {
            // Who is overtaken tries again.
            loop {
                match store.fileset_add(set.id, part).await {
                    Err(FilesError::Overtaken) => {}
                    added => return added,
                }
            }
        }
    }))
    .await?;
    let done = done(&store, &set).await?;
    assert_eq!(done.count, 2 + 180);
    let late = store.fileset_add(done.id, &both).await.unwrap_err();
    assert_eq!(late.to_string(), "the version is done and takes no more files");
    assert_eq!(files_of(&store, &done).await?.len(), 182, "nothing of what was refused is there");
    world.end().await
}

#[tokio::test]
async fn a_version_is_done_only_when_it_is_whole() -> anyhow::Result<()> {
    let world = world().await?;
    let store = world.store();
    let set = store.fileset_open(&named("data")?, &NewSet::default()).await?;
    send(&store, b"there").await?;
    let missing = entry(("missing", b"missing", 0o644))?;
    store.fileset_add(set.id, &[entry(("there", b"there", 0o644))?, missing.clone()]).await?;
    assert_eq!(store.fileset_commit(set.id).await?, Committed::Incomplete(vec![missing.file]));
    assert_eq!(latest(&store, "data").await?, None);
    send(&store, b"missing").await?;
    let committed = done(&store, &set).await?;
    assert_eq!((committed.state, committed.count, committed.bytes), (SetState::Done, 2, 12));
    assert_eq!(done(&store, &set).await?, committed, "it may be repeated");
    // Of another size than it says.
    let set = store.fileset_open(&named("data")?, &NewSet::default()).await?;
    let wrong = NewEntry { size: 6, ..entry(("there", b"there", 0o644))? };
    store.fileset_add(set.id, &[wrong]).await?;
    assert_eq!(store.fileset_commit(set.id).await?, Committed::Incomplete(vec![ContentId::of(b"there")]));
    store.fileset_delete(&named("data")?, Some(set.version)).await?;
    let gone = store.fileset_commit(set.id).await.unwrap_err();
    assert_eq!(gone.to_string(), "the version is gone and takes no more files");
    assert_eq!(Bson::from(SetState::Gone), Bson::from("gone"));
    world.end().await
}

#[tokio::test]
async fn a_commit_and_an_addition_at_once_are_one_before_the_other() -> anyhow::Result<()> {
    let world = world().await?;
    let store = world.store();
    send(&store, b"x").await?;
    for round in 0..30 {
        let set = store.fileset_open(&named("data")?, &NewSet::default()).await?;
        store.fileset_add(set.id, &[entry(("first", b"x", 0o644))?]).await?;
        let second = [entry(("second", b"x", 0o644))?];
        let (added, committed) =
            tokio::join!(store.fileset_add(set.id, &second), store.fileset_commit(set.id));
        let Committed::Done(done) = committed? else { anyhow::bail!("round {round} is incomplete") };
        let count = if added.is_ok() { 2 } else { 1 };
        assert_eq!(
            (done.count, files_of(&store, &done).await?.len() as u64),
            (count, count),
            "round {round}"
        );
    }
    world.end().await
}
