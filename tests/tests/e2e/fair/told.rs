//! What is told of groups, and what it costs to find out who waits.

use anyhow::Context;
use bson::{Document, doc};
use disbatch_core::counters::count::Amount;
use disbatch_core::fair::GroupFilter;
use disbatch_core::model::whole_number;
use disbatch_core::store::Store;
use disbatch_core::task::Ahead;
use disbatch_tests::{Script, World, eventually};
use nix::sys::signal::Signal;

use super::{Scene, submit};
use crate::claims::queue;
use crate::plan::{most, plans, stages};

#[tokio::test]
async fn who_waits_is_found_without_reading_what_waits() -> anyhow::Result<()> {
    let scene = Scene::fair(doc! {}).await?;
    for group in 0..10 {
        scene.submit(&format!("g{group}"), Some(group), 200).await?;
    }
    let queue = scene.queue().await?;
    let filter = GroupFilter { limit: 10, waiting: true, ..GroupFilter::default() };
    let look = async |store: Store| anyhow::Ok(store.queue_groups(&queue, &filter).await?);
    let (_, plans) = plans(&scene.world, look).await?;
    let is_of_groups = |plan: &&Document| stages(plan).contains(&"DISTINCT_SCAN");
    let plan = plans.iter().find(is_of_groups).context("nobody has looked for groups")?;
    let reads = stages(plan);
    assert!(!reads.iter().any(|stage| ["COLLSCAN", "SORT", "FETCH"].contains(stage)), "{plan}");
    assert!(most(plan, "totalKeysExamined").is_some_and(|keys| keys <= 20), "{plan}");
    scene.world.end().await
}

#[tokio::test]
async fn who_comes_first_by_priority_is_found_without_reading_what_waits() -> anyhow::Result<()> {
    let scene = Scene::new(doc! { "policy": "priority" }).await?;
    for priority in 0..10 {
        scene.submit("", Some(priority), 200).await?;
    }
    let queue = scene.queue().await?;
    let claim = async |store: Store| {
        anyhow::Ok(store.claim_tasks(&queue, &scene.den, &[0], &mut Ahead::default()).await?)
    };
    let (batch, plans) = plans(&scene.world, claim).await?;
    assert_eq!(batch.claims.len(), 1);
    let is_of_priorities = |plan: &&Document| plan.to_string().contains("queue_1_status_1_priority_-1__id_1");
    let plan = plans.iter().find(is_of_priorities).context("nobody has looked for priorities")?;
    let reads = stages(plan);
    assert!(reads.contains(&"IXSCAN"), "{plan}");
    assert!(!reads.iter().any(|stage| ["COLLSCAN", "SORT"].contains(stage)), "{plan}");
    assert_eq!(most(plan, "totalDocsExamined"), Some(0), "{plan}");
    // As many as are read at once.
    assert!(most(plan, "totalKeysExamined").is_some_and(|keys| keys <= 66), "{plan}");
    scene.world.end().await
}

const QUICK: Script<'_> = Script { name: "Quick", text: "#!/bin/sh\necho done\n" };

#[tokio::test]
async fn a_den_tells_what_groups_had_and_when_their_turns_are() -> anyhow::Result<()> {
    let world = World::new().await?;
    let id = world.script_queue(QUICK, 2).await?;
    world.update_queue(id, doc! { "policy": "fair", "share": "use", "weights": { "acme/ann": 2 } }).await?;
    let store = world.store();
    for group in ["acme/ann", "acme/bob", ""] {
        submit(&store, id, group, (None, 3)).await?;
    }
    let den = world.den_at_work("n1").await?;
    for task in world.until_all_ended(id).await? {
        assert_eq!(task.get_i32("status")?, 1, "{task}");
    }
    let queue = queue(&world, id).await?;
    let filter = GroupFilter { limit: 10, ..GroupFilter::default() };
    let page = eventually("the DEN to tell what it has done", || async {
        let page = store.queue_groups(&queue, &filter).await?;
        let is_told = page.rows.len() == 3 && page.rows.iter().all(|row| row.finished == 3);
        Ok(is_told.then_some(page))
    })
    .await?;
    let names: Vec<&str> = page.rows.iter().map(|row| row.group.as_str()).collect();
    assert_eq!((names, page.more), (vec!["", "acme/ann", "acme/bob"], false));
    assert!(
        page.rows
            .iter()
            .all(|row| row.started == 3 && row.used > 0.0 && row.why == "none of its tasks waits"),
        "{page:?}"
    );
    assert_eq!(page.rows[1].weight, 2);
    let totals = world.database().collection::<Document>("queue_groups");
    den.end_with(Signal::SIGTERM).await?;
    let total =
        totals.find_one(doc! { "_id": { "queue": id, "group": "acme/" } }).await?.context("no total")?;
    assert_eq!(total.get("finished").and_then(whole_number), Some(6));
    submit(&store, id, "zoe", (None, 2)).await?;
    let waiting = GroupFilter { waiting: true, ..filter.clone() };
    let page = store.queue_groups(&queue, &waiting).await?;
    assert_eq!((page.rows.len(), page.waiting), (1, Amount::Exactly(1)));
    let zoe = &page.rows[0];
    assert_eq!((zoe.waiting, zoe.more_waiting, zoe.why.as_str()), (2, false, "its turn is next"));
    let first = store.queue_groups(&queue, &GroupFilter { limit: 2, ..filter.clone() }).await?;
    assert_eq!((first.rows.len(), first.more), (2, true));
    let after = Some(first.rows[1].group.clone());
    let rest = store.queue_groups(&queue, &GroupFilter { after, ..filter }).await?;
    let names: Vec<&str> = rest.rows.iter().map(|row| row.group.as_str()).collect();
    assert_eq!(names, ["acme/bob", "zoe"]);
    world.end().await
}
