//! Tasks that an application submits by the inbox, in transactions of its own, and DENs that are killed while they move them.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use bson::{Bson, Document, doc};
use disbatch_client::inbox::{COLLECTION, enqueue_many};
use disbatch_core::model::TaskId;
use disbatch_core::store::StoreError;
use mongodb::{ClientSession, Collection};
use tokio::time::{Instant, sleep, timeout};

use super::random::Random;
use super::submit::{Submitted, any_queue, any_work};
use super::world::World;
use crate::eventually;

/// So many tasks have an order.
const ORDERED: usize = 5;
/// Of so many orders, one meets somebody who is faster.
const CONTESTED: usize = 3;
/// So long it is waited until something is to be moved, and so long between two looks.
const PATIENCE: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(5);
const STOCK: &str = "stock";

/// The application's own, in a database of its own.
fn orders(world: &World) -> Collection<Document> {
    world.database.client().database("shop").collection("orders")
}

/// What all orders take from.
pub async fn stock(world: &World) -> anyhow::Result<()> {
    orders(world).insert_one(doc! { "_id": STOCK, "left": 0 }).await?;
    Ok(())
}

fn take() -> (Document, Document) {
    (doc! { "_id": STOCK }, doc! { "$inc": { "left": -1 } })
}

/// Submits `count` tasks, spread over `time`, a few with each order. A transaction that fails is repeated, unless its order is there.
pub async fn with_orders(
    world: Arc<World>,
    count: usize,
    time: Duration,
    mut random: Random,
) -> anyhow::Result<Submitted> {
    let mut submitted = Submitted::default();
    let batches = count.div_ceil(ORDERED);
    for number in 0..batches {
        sleep(time / u32::try_from(batches)?).await;
        let Some(queue) = any_queue(&world, &mut random) else { break };
        let size = ORDERED.min(count - number * ORDERED);
        let params: Vec<Document> = (0..size).map(|_| any_work(&mut random).params()).collect();
        let mut tried: usize = 0;
        let ids = loop {
            let work = async |session: &mut ClientSession| {
                tried += 1;
                let ids = enqueue_many(&world.database, queue.id, &params, (), &mut *session).await?;
                if tried == 1 && number.is_multiple_of(CONTESTED) {
                    let (what, change) = take();
                    orders(&world).update_one(what, change).await?;
                }
                let (what, change) = take();
                orders(&world).update_one(what, change).session(&mut *session).await?;
                let order = doc! { "_id": i64::try_from(number).unwrap_or_default(), "tasks": &ids };
                orders(&world).insert_one(order).session(session).await?;
                Ok(ids)
            };
            let mut session = world.database.client().start_session().await?;
            match session.start_transaction().and_run2(work).await {
                Ok(ids) => break ids,
                Err(error) => match ordered(&world, number).await {
                    Ok(Some(ids)) => break ids,
                    Ok(None) if !StoreError::from(error.clone()).is_transient() => return Err(error.into()),
                    Ok(None) | Err(_) => sleep(Duration::from_millis(200)).await,
                },
            }
        };
        submitted.repeated += u64::try_from(tried.saturating_sub(1))?;
        anyhow::ensure!(ids.len() == size, "an order of {} tasks, and not {size}", ids.len());
        for id in ids {
            submitted.ids.push(TaskId(id.parse()?));
        }
    }
    Ok(submitted)
}

/// The tasks of an order, if it is there.
async fn ordered(world: &World, number: usize) -> anyhow::Result<Option<Vec<String>>> {
    let found = orders(world).find_one(doc! { "_id": i64::try_from(number)? }).await?;
    let Some(order) = found else { return Ok(None) };
    let ids = order.get_array("tasks")?.iter().map(Bson::as_str);
    Ok(Some(ids.map(|id| id.map(str::to_owned)).collect::<Option<_>>().context("no ids")?))
}

/// Waits until something is to be moved. Returns whether that has come.
pub async fn until_it_moves(world: &World) -> bool {
    let inbox = world.database.collection::<Document>(COLLECTION);
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        match timeout(PATIENCE, inbox.find_one(doc! {})).await {
            Ok(Ok(Some(_))) => return true,
            Ok(Ok(None)) => sleep(LOOK).await,
            Ok(Err(_)) | Err(_) => return false, // The database is away.
        }
    }
    false
}

pub async fn until_all_are_moved(world: &World) -> anyhow::Result<()> {
    let inbox = world.database.collection::<Document>(COLLECTION);
    eventually("the inbox to be empty", || async {
        Ok((inbox.count_documents(doc! {}).await? == 0).then_some(()))
    })
    .await
}

/// Orders of a transaction that was said to have failed, and tasks that were refused. `submitted` are all that were acknowledged.
pub async fn wrong_orders(world: &World, submitted: &[TaskId]) -> anyhow::Result<Vec<String>> {
    let ordered = orders(world).distinct("tasks", doc! { "tasks": { "$exists": true } }).await?;
    let unknown = ordered.iter().filter(|id| {
        let id = id.as_str().and_then(|id| id.parse().ok()).map(TaskId);
        id.is_none_or(|id| !submitted.contains(&id))
    });
    let tasks = world.database.collection::<Document>("tasks");
    let refused = tasks.distinct("_id", doc! { "refused": { "$exists": true } }).await?;
    let refused = refused.iter().map(|id| format!("the task {id} was refused"));
    let unknown = unknown.map(|id| format!("an order has the task {id}, which nobody was told of"));
    Ok(unknown.chain(refused).collect())
}
