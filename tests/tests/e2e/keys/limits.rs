//! Limits where no index gives each slot once.

use std::time::Duration;

use bson::doc;
use disbatch_tests::faults::limits::Limits;
use disbatch_tests::faults::moments::{Claims, Moment};
use disbatch_tests::faults::records;
use disbatch_tests::faults::work::Work;
use disbatch_tests::{World, eventually, install_recorder};

use super::drop_unique_indexes;

const COUNTED: &str = "limits are kept by counting, which costs more";

#[tokio::test]
async fn dens_notice_that_slots_keep_nothing_and_count() -> anyhow::Result<()> {
    const THREADS: i32 = 3;
    const TASKS: usize = 120;
    let world = World::new().await?;
    install_recorder(&world.plugins(), "Recorder", &world.path().join("records"))?;
    let queue = world.queue("Recorder", doc! { "threads": THREADS, "sort": "fifo" }).await?;
    let mut dens = Vec::new();
    for number in 0..4 {
        dens.push(world.den_at_work(&format!("n{number}")).await?);
    }
    for den in &dens {
        let log = den.log()?;
        assert!(!log.contains(COUNTED), "{log}");
    }
    assert_eq!(drop_unique_indexes(&world).await?, 1);
    for den in &dens {
        eventually("the DEN to notice", || async { Ok(den.log()?.contains(COUNTED).then_some(())) }).await?;
    }
    world.submit(queue, vec![Work { millis: 30, lines: 1, fails: 0 }.params(); TASKS]).await?;
    let tasks = world.until_all_ended(queue).await?;
    let runs = records::read(&world.path().join("records"))?;
    assert_eq!((tasks.len(), runs.len()), (TASKS, TASKS), "each ran once");
    let mut limits = Limits::default();
    limits.changed(u64::try_from(THREADS)?, Duration::ZERO, Duration::ZERO);
    let moments = Moment::all(&runs, &Claims::of(&tasks), &limits);
    for moment in &moments {
        assert!(!moment.is_over(), "{}", moment.describe());
    }
    assert!(
        moments.iter().any(|moment| moment.alive.len() >= 2),
        "nothing ran at once: the test tests nothing"
    );

    // The indexes are back with the next DEN, and with them slots keep the limit.
    drop(dens.pop());
    let _next = world.den_at_work("n4").await?;
    for den in &dens {
        let again = "unique indexes keep slots of tasks apart again";
        eventually("the DEN to notice", || async { Ok(den.log()?.contains(again).then_some(())) }).await?;
    }
    world.end().await
}
