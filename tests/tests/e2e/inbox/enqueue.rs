//! `enqueue` of the client for Rust, in real transactions. That a set loses its primary is in `clients/conformance/failover.py`.

use disbatch_client::inbox::{enqueue, enqueue_many};
use mongodb::error::Error;

use super::*;

/// All of them have succeeded, and these alone have run, each once.
async fn until_run(world: &World, path: &Path, ids: &[String]) -> anyhow::Result<()> {
    until_empty(world).await?;
    for id in ids {
        let ended = doc! { "_id": id.parse::<ObjectId>()?, "status": { "$nin": [-7, -4, -2, -1, 0] } };
        let what = format!("task {id} to end, which is {}", world.task(TaskId(id.parse()?)).await?);
        let task = eventually(&what, || async { Ok(world.tasks().find_one(ended.clone()).await?) }).await?;
        assert_eq!(task.get_i32("status")?, 1, "{task}");
    }
    let mut expected = ids.to_vec();
    expected.sort();
    assert_eq!(runs(path)?, expected);
    assert_eq!(world.tasks().count_documents(doc! {}).await?, u64::try_from(ids.len())?);
    Ok(())
}

#[tokio::test]
async fn what_is_enqueued_is_committed_or_aborted_with_all_else() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (queue, path) = noting(&world, 4).await?;
    let _den = world.den_at_work("n1").await?;
    let (database, params) = (world.database(), doc! { "at": DateTime::from_millis(4_070_908_800_000) });
    let orders = database.collection::<Document>("people");

    let mut session = begin(&world).await?;
    let mut ids = vec![enqueue(database, queue, &params, (), &mut session).await?];
    let after = json!({ "after": [ids[0]] });
    ids.extend(enqueue_many(database, queue, [&params; 20], after, &mut session).await?);
    orders.insert_one(doc! { "_id": 1, "tasks": &ids }).session(&mut session).await?;
    session.commit_transaction().await?;
    session.start_transaction().await?;
    enqueue(database, queue, &params, (), &mut session).await?;
    enqueue_many(database, queue, [&params; 2], (), &mut session).await?;
    session.abort_transaction().await?;
    let chain = json!({ "chain": true, "key": "k" });
    ids.extend(enqueue_many(database, queue, [&params; 2], chain, None).await?);
    ids.push(enqueue(database, queue, &params, (), None).await?);
    assert_eq!(enqueue_many(database, queue, [(); 0], (), None).await?, Vec::<String>::new());

    until_run(&world, &path, &ids).await?;
    assert_eq!(orders.find_one(doc! {}).await?, Some(doc! { "_id": 1, "tasks": &ids[..21] }));
    world.end().await
}

#[tokio::test]
async fn a_transaction_that_is_repeated_enqueues_once() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (queue, path) = noting(&world, 1).await?;
    let _den = world.den_at_work("n1").await?;
    let database = world.database();
    let orders = database.collection::<Document>("people");
    orders.insert_one(doc! { "_id": "stock", "left": 3 }).await?;
    let (stock, take) = (doc! { "_id": "stock" }, doc! { "$inc": { "left": -1 } });

    let mut tried = Vec::new();
    let mut session = database.client().start_session().await?;
    let sell = session.start_transaction().and_run2(async |session| {
        let id = enqueue(database, queue, doc! { "to": "a" }, (), &mut *session).await?;
        tried.push(id.clone());
        if tried.len() == 1 {
            // Somebody else is faster: what follows conflicts with it.
            orders.update_one(stock.clone(), take.clone()).await?;
        }
        orders.update_one(stock.clone(), take.clone()).session(session).await?;
        Ok(id)
    });
    let id = sell.await?;
    assert_eq!((tried.len(), &tried[1]), (2, &id));
    assert_eq!(orders.find_one(doc! {}).await?, Some(doc! { "_id": "stock", "left": 1 }));
    until_run(&world, &path, &[id]).await?;
    world.end().await
}

/// What labels say is the application's to act on.
#[tokio::test]
async fn errors_of_the_driver_and_of_the_contract_are_told_apart() -> anyhow::Result<()> {
    let (world, queue) = world().await?;
    let database = world.database();
    let said = |error: Error| error.get_custom::<String>().cloned();
    let mut session = begin(&world).await?;
    let wrong = enqueue(database, queue, doc! {}, json!({ "urgency": 1 }), &mut session).await.unwrap_err();
    assert!(said(wrong).is_some_and(|said| said.starts_with("urgency is unknown; known are ")));
    // Nothing was sent, so the transaction goes on.
    let id = enqueue(database, queue, doc! {}, (), &mut session).await?;
    // It conflicts with itself: another one has put the same id there.
    let mut other = begin(&world).await?;
    let taken = document(id.parse()?, queue);
    let conflict = inbox(&world).insert_one(taken).session(&mut other).await.unwrap_err();
    assert!(conflict.contains_label(TRANSIENT_TRANSACTION_ERROR), "{conflict}");
    let aborted = enqueue(database, queue, doc! {}, (), &mut other).await.unwrap_err();
    assert!(aborted.contains_label(TRANSIENT_TRANSACTION_ERROR), "the server has aborted it: {aborted}");
    assert_eq!(said(aborted), None);
    session.commit_transaction().await?;
    assert_eq!(inbox(&world).count_documents(doc! {}).await?, 1);
    world.end().await
}
