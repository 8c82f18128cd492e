//! Counts up to a bound.

use bson::doc;
use disbatch_core::counters::count::Amount;
use disbatch_tests::World;

#[tokio::test]
async fn many_counts_in_few_commands_are_those_of_one_each() -> anyhow::Result<()> {
    let world = World::new().await?;
    let mut counts = Vec::new();
    for number in 0..70_usize {
        let queue = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
        if number % 3 > 0 {
            world.submit(queue, vec![doc! { "a": 1 }; number]).await?;
        }
        counts.push((doc! { "queue": queue, "status": { "$in": [-2, -7] } }, 40));
        counts.push((doc! { "queue": queue, "status": { "$in": [2] } }, 40));
    }
    let store = world.store();
    let amounts = store.count_each_up_to(&counts).await?;
    assert_eq!(amounts.len(), counts.len());
    for ((filter, bound), amount) in counts.into_iter().zip(&amounts) {
        assert_eq!(store.count_up_to(filter.clone(), bound).await?, *amount, "{filter}");
    }
    assert!(amounts.contains(&Amount::MoreThan(40)) && amounts.contains(&Amount::Exactly(40)), "{amounts:?}");
    assert_eq!(store.count_each_up_to(&[]).await?, []);
    world.end().await
}
