//! Whose task is claimed next.

use std::collections::{BTreeSet, HashSet};
use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};
use disbatch_core::model::TaskId;
use disbatch_core::task::{Ahead, RunWrite};
use disbatch_tests::eventually;

use super::{Scene, groups, run, tasks};
use crate::claims::{claimant, index_slots, start, success};

/// A user has submitted twenty documents before ninety-nine others come: with four places, nobody waits for them.
async fn many_users(scene: &Scene) -> anyhow::Result<BTreeSet<String>> {
    scene.submit("user050", None, 20).await?;
    let users: BTreeSet<String> = (0..100).map(|number| format!("user{number:03}")).collect();
    for user in users.iter().filter(|user| *user != "user050") {
        scene.submit(user, None, 2).await?;
    }
    Ok(users)
}

#[tokio::test]
async fn every_user_has_a_document_started_before_any_has_two() -> anyhow::Result<()> {
    let mut scene = Scene::fair(doc! { "threads": 4 }).await?;
    let users = many_users(&scene).await?;
    let mut started = Vec::new();
    for free in [4, 1, 3, 2].into_iter().cycle().take(60) {
        // These places are free again: others are not.
        scene.slots = 0;
        let claims = scene.claim(free).await?;
        started.extend(groups(&claims));
        run(&scene.store, &claims).await?;
    }
    let first: BTreeSet<String> = started.iter().take(100).cloned().collect();
    assert_eq!(first, users, "{started:?}");
    let second: BTreeSet<String> = started[100..].iter().cloned().collect();
    assert_eq!(second.len(), started.len() - 100, "nobody has three before others have two");
    scene.world.end().await
}

#[tokio::test]
async fn the_same_holds_where_two_claim_at_once() -> anyhow::Result<()> {
    let scene = Scene::fair(doc! { "threads": 4 }).await?;
    let users = many_users(&scene).await?;
    let (store, queue) = (&scene.store, scene.queue().await?);
    let (dens, mut aheads) = ([claimant("n1"), claimant("n2")], [Ahead::default(), Ahead::default()]);
    let mut started = Vec::new();
    while started.len() < 100 {
        let [one, other] = &mut aheads;
        let (one, other) = futures::try_join!(
            store.claim_tasks(&queue, &dens[0], &[0, 1], one),
            store.claim_tasks(&queue, &dens[1], &[2, 3], other),
        )?;
        for batch in [one, other] {
            assert!(batch.taken.is_empty(), "{:?}", batch.taken);
            started.extend(groups(&batch.claims));
            run(store, &batch.claims).await?;
        }
    }
    let first: BTreeSet<String> = started.iter().cloned().collect();
    assert_eq!(first, users, "{started:?}");
    assert!(started.len() < 104, "{started:?}");
    scene.world.end().await
}

#[tokio::test]
async fn dens_that_take_turns_go_through_one_rotation() -> anyhow::Result<()> {
    let mut scene = Scene::fair(doc! {}).await?;
    for group in ["c", "a", "b"] {
        scene.submit(group, None, 6).await?;
    }
    let (mut other, second) = (Ahead::default(), claimant("n2"));
    let queue = scene.queue().await?;
    let mut had = Vec::new();
    for turn in 0..9 {
        had.extend(groups(&scene.claim(1).await?));
        let claims = scene.store.claim_tasks(&queue, &second, &[50_000 + turn], &mut other).await?.claims;
        had.extend(groups(&claims));
    }
    assert_eq!(had, ["a", "b", "c"].repeat(6));
    assert!(scene.claim(1).await?.is_empty());
    scene.world.end().await
}

#[tokio::test]
async fn weights_and_new_groups_count_from_their_next_turn() -> anyhow::Result<()> {
    let mut scene = Scene::fair(doc! { "weights": { "a": 3 } }).await?;
    scene.submit("a", None, 30).await?;
    scene.submit("c", None, 30).await?;
    assert_eq!(scene.groups_one_by_one(6).await?, ["a", "a", "a", "c", "a", "a"]);
    scene.submit("b", None, 2).await?;
    // Who has not read anything yet sees it, and goes on where the others are.
    scene.ahead = Ahead::default();
    assert_eq!(groups(&scene.claim(8).await?).join(""), "abcaaabc");
    scene.world.end().await
}

#[tokio::test]
async fn tasks_without_a_group_take_part_as_one() -> anyhow::Result<()> {
    let mut scene = Scene::fair(doc! {}).await?;
    scene.submit("a", None, 50).await?;
    let plain = scene.submit_as_perl(3).await?;
    scene.submit("b", None, 50).await?;
    let claims = scene.claim(11).await?;
    assert_eq!(groups(&claims), ["", "a", "b", "", "a", "b", "", "a", "b", "a", "b"]);
    let without: Vec<TaskId> =
        claims.iter().filter(|claim| claim.group().is_empty()).map(|claim| claim.task).collect();
    assert_eq!(without, plain, "in the order of their ids");
    // One that comes later is found, too.
    let late = scene.submit_as_perl(1).await?;
    let store = scene.store.clone();
    let (id, scene) = (scene.id, tokio::sync::Mutex::new(scene));
    eventually("the late task to be claimed", || async {
        let mut scene = scene.lock().await;
        scene.ahead.look_back(id);
        Ok(tasks(&scene.claim(1).await?).contains(&late[0]).then_some(()))
    })
    .await?;
    let scene = scene.into_inner();
    assert!(store.find_task(late[0]).await?.is_some_and(|task| task.instance() == Some("start of n1")));
    scene.world.end().await
}

#[tokio::test]
async fn what_is_tried_again_goes_first_in_its_group() -> anyhow::Result<()> {
    let mut scene = Scene::fair(doc! {}).await?;
    let poor = scene.submit("a", Some(-5), 1).await?[0];
    let claims = scene.claim(1).await?;
    assert_eq!(tasks(&claims), [poor]);
    scene.submit("a", Some(900), 5).await?;
    let store = scene.store.clone();
    for written in store.write_runs(&[RunWrite::Start(start(&claims[0], &store, 1))]).await? {
        written?;
    }
    store.retry_later(&claims[0].run(), &success("no\n"), Duration::ZERO).await?;
    eventually("the task to be due", || async { Ok((store.sweep_tasks().await?.due == 1).then_some(())) })
        .await?;
    let stored = scene.world.task(poor).await?;
    assert_eq!((stored.get_i32("status")?, stored.get_bool("again")?), (-2, true));
    assert!(!stored.contains_key("slot") && !stored.contains_key("group_slot"));
    scene.ahead.look_back(scene.id);
    let again = scene.claim(2).await?;
    assert_eq!(tasks(&again)[0], poor);
    assert_eq!(again[1].group(), "a");
    scene.world.end().await
}

#[tokio::test]
async fn a_scheme_gives_the_lower_priorities_their_turns() -> anyhow::Result<()> {
    let mut scene = Scene::fair(doc! { "scheme": [2, 1] }).await?;
    let high = scene.submit("a", Some(5), 4).await?;
    let low = scene.submit("a", None, 4).await?;
    let had = tasks(&scene.claim(8).await?);
    assert_eq!(had, [high[0], high[1], low[0], high[2], high[3], low[1], low[2], low[3]]);
    let mut by_priority = Scene::new(doc! { "policy": "priority", "scheme": [2, 1] }).await?;
    let high = by_priority.submit("", Some(5), 4).await?;
    let plain = by_priority.submit_as_perl(4).await?;
    let had = tasks(&by_priority.claim(8).await?);
    assert_eq!(had, [high[0], high[1], plain[0], high[2], high[3], plain[1], plain[2], plain[3]]);
    by_priority.world.end().await?;
    scene.world.end().await
}

#[tokio::test]
async fn the_highest_priority_is_claimed_first() -> anyhow::Result<()> {
    let mut scene = Scene::new(doc! { "policy": "priority" }).await?;
    let low = scene.submit("", Some(-3), 2).await?;
    let plain = scene.submit_as_perl(2).await?;
    let zero = scene.submit("", Some(0), 1).await?;
    let high = scene.submit("", Some(10), 2).await?;
    let mut had = Vec::new();
    for _ in 0..3 {
        had.extend(tasks(&scene.claim(1).await?));
    }
    assert_eq!(had, [high[0], high[1], plain[0]]);
    let urgent = scene.submit("", Some(1_000), 1).await?;
    scene.ahead = Ahead::default();
    let had = tasks(&scene.claim(9).await?);
    assert_eq!(had, [urgent[0], plain[1], zero[0], low[0], low[1]]);
    scene.world.end().await
}

#[tokio::test]
async fn who_has_used_least_comes_next_where_use_is_shared() -> anyhow::Result<()> {
    let mut scene = Scene::fair(doc! { "share": "use" }).await?;
    for group in ["acme/ann", "acme/bob", "solo"] {
        scene.submit(group, None, 40).await?;
    }
    let used = |group: &str, seconds: f64| {
        doc! {
            "_id": { "queue": scene.id, "group": group }, "use": seconds, "at": scene.store.now(), "started": 10_i64,
            "finished": 10_i64, "ran": 100.0,
        }
    };
    let stored = vec![used("acme/ann", 60.0), used("acme/", 60.0)];
    scene.world.database().collection::<Document>("queue_groups").insert_many(stored).await?;
    // A task takes 10 s: the other tenant has what the first had, and then the user who had nothing comes.
    let had = groups(&scene.claim(10).await?);
    let count = |group: &str| had.iter().filter(|name| *name == group).count();
    assert_eq!([count("acme/ann"), count("acme/bob"), count("solo")], [0, 2, 8], "{had:?}");
    assert_eq!(had[..6], ["solo"; 6]);
    scene.world.end().await
}

#[tokio::test]
async fn tasks_that_a_node_has_do_not_hold_up_their_group() -> anyhow::Result<()> {
    let scene = Scene::fair(doc! {}).await?;
    for task in scene.submit("a", None, 40).await? {
        scene.world.set(task, doc! { "node": "elsewhere" }).await?;
    }
    let free = scene.submit("a", None, 1).await?;
    let (id, scene) = (scene.id, tokio::sync::Mutex::new(scene));
    let claimed = eventually("the task behind them to be claimed", || async {
        let mut scene = scene.lock().await;
        scene.ahead.look_back(id);
        let claims = scene.claim(4).await?;
        Ok((!claims.is_empty()).then(|| tasks(&claims)))
    });
    assert_eq!(claimed.await?, free);
    scene.into_inner().world.end().await
}

/// Other programs may have inserted tasks under ids of any kind: nobody claims these, and they are in nobody's way.
#[tokio::test]
async fn tasks_without_an_object_id_hold_up_nobody() -> anyhow::Result<()> {
    let fair = doc! { "policy": "fair" };
    let by_use = doc! { "policy": "fair", "share": "use" };
    for fields in [fair, by_use, doc! { "policy": "priority" }] {
        let mut scene = Scene::new(fields).await?;
        let odd =
            |id: Bson| doc! { "_id": id, "queue": scene.id, "status": -2, "node": Bson::Null, "params": {} };
        let ranked = |id: Bson| {
            let mut task = odd(id);
            task.extend(doc! { "group": "a", "priority": 9_i64 });
            task
        };
        // Before all ids that are such, and behind them: more than are read at once.
        let numbers = (0_i32..300)
            .map(|number| odd(number.into()))
            .chain((300_i32..600).map(|number| ranked(number.into())));
        let dates = (0..9).map(|at| ranked(DateTime::from_millis(at).into()));
        scene.world.tasks().insert_many(numbers.chain(dates)).await?;
        let mut expected: HashSet<TaskId> = scene.submit("a", Some(1), 3).await?.into_iter().collect();
        expected.extend(scene.submit_as_perl(3).await?);
        let mut had = HashSet::new();
        for _ in 0..3 {
            had.extend(tasks(&scene.claim(2).await?));
        }
        assert_eq!(had, expected);
        scene.world.end().await?;
    }
    Ok(())
}

#[tokio::test]
async fn places_that_others_were_faster_to_take_are_counted() -> anyhow::Result<()> {
    for policy in ["fair", "priority"] {
        let mut scene = Scene::new(doc! { "policy": policy }).await?;
        index_slots(&scene.world).await?;
        scene.submit("", None, 2).await?;
        let (queue, other) = (scene.queue().await?, claimant("n2"));
        let theirs = scene.store.claim_tasks(&queue, &other, &[0], &mut Ahead::default()).await?;
        let ours = scene.batch(1).await?;
        assert_eq!((theirs.claims.len(), ours.claims.len(), ours.taken), (1, 0, vec![0]), "{policy}");
        assert_eq!(scene.store.metrics().claim_lost.get(), 1.0, "{policy}");
        scene.world.end().await?;
    }
    Ok(())
}
