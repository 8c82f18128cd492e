//! Hints: what they tell, what they do not, and how the stream that they come from survives.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, bail};
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::callbacks::{Heard, Report, Token};
use disbatch_core::model::{NodeName, QueueId, Selector, Status};
use disbatch_core::node::{Beat, Draining, NodeChange};
use disbatch_core::notifications::Settings;
use disbatch_core::task::{
    Ahead, CancelRequest, Claim, Claimant, Detached, Finish, Interim, Run, Start, Started,
};
use disbatch_core::wake::{Hints, Listener, News, Peaks, follow_changes};
use disbatch_mongod::locate;
use disbatch_mongod::server::{Options, Server};
use disbatch_tests::{Script, World, eventually};
use futures::TryStreamExt;
use nix::sys::signal::Signal;
use tokio_util::sync::{CancellationToken, DropGuard};

const LEASE: Duration = Duration::from_secs(60);
const NOTHING: News = News {
    inserted: false,
    put_back: false,
    timed: false,
    queues_changed: false,
    attention: false,
    node_changed: false,
    gates: false,
    freed: false,
    wanted: false,
    subscriptions: false,
};

/// Follows the changes of a world. What has happened before is not in the hints any more.
async fn follow(world: &World) -> anyhow::Result<(Arc<Hints>, DropGuard)> {
    let (hints, stop) = (Arc::new(Hints::default()), CancellationToken::new());
    tokio::spawn(follow_changes(world.store(), hints.clone(), stop.clone()));
    until_coming(&hints, true).await?;
    assert_eq!(hints.take(), News::all(), "a new stream says nothing of what was before it");
    assert!(hints.take_peaks().of_any);
    Ok((hints, stop.drop_guard()))
}

async fn until_coming(hints: &Hints, coming: bool) -> anyhow::Result<()> {
    eventually("the stream", || async { Ok((hints.are_coming() == coming).then_some(())) }).await
}

/// All news of what was done before this is called. The stream is in order, so a queue that is made now comes
/// last.
async fn news(world: &World, hints: &Hints) -> anyhow::Result<News> {
    Ok(news_and_peaks(world, hints).await?.0)
}

async fn news_and_peaks(world: &World, hints: &Hints) -> anyhow::Result<(News, Peaks)> {
    let last = world.queue("Last", doc! {}).await?;
    let so_far = RefCell::new((NOTHING, Peaks::default()));
    eventually("the hint of the queue", || async {
        let (news, peaks) = &mut *so_far.borrow_mut();
        let more = hints.take_peaks();
        peaks.of_any |= more.of_any;
        peaks.queues.extend(more.queues);
        *news |= hints.take();
        // Of what came before a stream that begins anew nothing is told.
        Ok((peaks.of_any || peaks.queues.contains_key(&last)).then_some(()))
    })
    .await?;
    let (mut news, peaks) = so_far.into_inner();
    news |= hints.take();
    Ok((News { queues_changed: false, ..news }, peaks))
}

async fn claim(world: &World, queue: QueueId) -> anyhow::Result<Claim> {
    let claimant =
        Claimant { node: NodeName::new("n2"), instance: "1".to_owned(), lease: Some(LEASE), fence: None };
    let queue = world.store().find_queue(&Selector::Id(queue.0)).await?.context("no queue")?;
    let batch = world.store().claim_tasks(&queue, &claimant, &[0], &mut Ahead::default()).await?;
    batch.claims.into_iter().next().context("nothing was claimed")
}

/// Claims the next task and starts it.
async fn begin(world: &World, queue: QueueId) -> anyhow::Result<Run> {
    let claimed = claim(world, queue).await?;
    let start = Start {
        task: claimed.task,
        from: Status::Claimed,
        node: claimed.node.clone(),
        claim: Some((claimed.attempt, claimed.instance.clone())),
        claimed: None,
        at: world.store().now(),
        lease: LEASE,
        pid: 4_000_000,
        waiting: None,
    };
    let Started::Running(_, run) = world.store().start_task(&start).await? else { bail!("not started") };
    Ok(run)
}

#[tokio::test]
async fn each_hint_tells_what_has_changed() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (store, queue) = (world.store(), world.queue("P", doc! { "threads": 1 }).await?);
    let (hints, _guard) = follow(&world).await?;

    let task = world.submit(queue, vec![doc! {}]).await?[0];
    assert_eq!(news(&world, &hints).await?, News { inserted: true, ..NOTHING });
    let claimed = claim(&world, queue).await?;
    assert_eq!(news(&world, &hints).await?, NOTHING);
    store.unclaim_task(&claimed, "a test").await?;
    assert_eq!(news(&world, &hints).await?, News { put_back: true, ..NOTHING });
    world.set(task, doc! { "status": -7, "run_at": DateTime::from_millis(1_000) }).await?;
    assert_eq!(news(&world, &hints).await?, News { timed: true, ..NOTHING });
    store.sweep_tasks().await?;
    assert_eq!(news(&world, &hints).await?, News { put_back: true, ..NOTHING });
    world.tasks().insert_one(doc! { "queue": queue, "status": -7, "node": Bson::Null }).await?;
    assert_eq!(news(&world, &hints).await?, News { timed: true, ..NOTHING });
    let with_deadline = doc! { "queue": queue, "status": -2, "deadline": DateTime::from_millis(1_000) };
    world.tasks().insert_one(with_deadline).await?;
    assert_eq!(news(&world, &hints).await?, News { inserted: true, timed: true, ..NOTHING });
    world.set(task, doc! { "status": 0, "node": "n1" }).await?;
    store.cancel_task(task, &CancelRequest { by: "a test".to_owned(), reason: None }).await?;
    assert_eq!(news(&world, &hints).await?, News { attention: true, ..NOTHING });
    world.end().await
}

#[tokio::test]
async fn a_web_service_that_has_ended_leaves_a_place() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (store, queue) = (world.store(), world.queue("P", doc! { "threads": 1 }).await?);
    let quick = doc! { "base": 0.05, "factor": 1, "max": 1, "jitter": 0 };
    world.update_queue(queue, doc! { "max_attempts": 2, "backoff": quick }).await?;
    let task = world.submit(queue, vec![doc! {}]).await?[0];
    let (hints, _guard) = follow(&world).await?;
    let tell = async |status: Status| {
        let run = begin(&world, queue).await?;
        let token = Token::new()?;
        assert!(store.register_external(&run, &token.fingerprint(), LEASE).await?);
        assert_eq!(store.detach_external(&run).await?, Detached::Done);
        assert_eq!(news(&world, &hints).await?, NOTHING);
        let report = Report { status, message: None, result: None };
        assert_eq!(store.callback_status(task, &token, report).await?, Heard::Done);
        news(&world, &hints).await
    };
    assert_eq!(tell(Status::Failed).await?, News { freed: true, timed: true, ..NOTHING });
    eventually("the next attempt", || async { Ok((store.sweep_tasks().await?.due > 0).then_some(())) })
        .await?;
    assert_eq!(news(&world, &hints).await?, News { put_back: true, ..NOTHING });
    assert_eq!(tell(Status::Succeeded).await?, News { freed: true, ..NOTHING });
    world.end().await
}

#[tokio::test]
async fn what_others_do_wakes_nobody() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (store, queue) = (world.store(), world.queue("P", doc! { "threads": 1 }).await?);
    world.submit(queue, vec![doc! {}]).await?;
    let (n1, n2) = (NodeName::new("n1"), NodeName::new("n2"));
    let own = store.heartbeat(&n1, &Beat::default()).await?;
    let (hints, _guard) = follow(&world).await?;
    hints.set_node(own.id);

    let run = begin(&world, queue).await?;
    store.renew_lease(&run, LEASE).await?;
    store.keep_interim(&run, &Interim::Progress(doc! { "percent": 99 })).await?;
    let finish = Finish {
        status: Status::Succeeded,
        stdout: "done".into(),
        stderr: Bson::Null,
        complete: true,
        result: None,
        exit: None,
        note: None,
        last_line: None,
        pause: None,
        recorded: None,
        trial: None,
    };
    store.finish_task(&run, &finish).await?;
    for node in [&n1, &n2] {
        store.heartbeat(node, &Beat { running: 3, ..Beat::default() }).await?;
    }
    store.leave(&n2, "").await?;
    let drain = NodeChange { maxthreads: None, draining: Some(Draining::Yes) };
    store.update_node(&Selector::Name("n2".to_owned()), drain.clone()).await?;
    assert_eq!(news(&world, &hints).await?, NOTHING);
    store.update_node(&Selector::Name("n1".to_owned()), drain).await?;
    assert_eq!(news(&world, &hints).await?, News { node_changed: true, ..NOTHING });
    let unset = doc! { "$unset": { "draining": "" } };
    world.database().collection::<Document>("nodes").update_one(doc! { "node": "n1" }, unset).await?;
    assert_eq!(news(&world, &hints).await?, News { node_changed: true, ..NOTHING });
    world.end().await
}

#[tokio::test]
async fn subscriptions_are_told_of_but_not_how_far_they_are() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (store, (hints, _guard)) = (world.store(), follow(&world).await?);
    let mut settings: Settings = bson::deserialize_from_document(doc! {
        "events": ["failed"], "channel": "webhook", "url": "http://127.0.0.1:1/", "every": 60.0, "delay": 1.0,
        "enabled": false,
    })?;
    let told = News { subscriptions: true, ..NOTHING };
    store.set_subscription("pager", &settings, None).await?;
    assert_eq!(news(&world, &hints).await?, told);
    let mut subscription = store.find_subscription("pager").await?.context("no subscription")?;
    subscription.state.number += 1;
    assert!(store.advance_subscription(&mut subscription).await?);
    assert_eq!(news(&world, &hints).await?, NOTHING);
    settings.enabled = true;
    store.set_subscription("pager", &settings, None).await?;
    assert_eq!(news(&world, &hints).await?, told);
    settings.tags.push("nightly".to_owned());
    store.set_subscription("pager", &settings, None).await?;
    assert_eq!(news(&world, &hints).await?, told);
    world.end().await
}

/// The cursors of change streams of this database, and whether they tell of tasks.
async fn streams(world: &World) -> anyhow::Result<BTreeMap<i64, bool>> {
    let of_world = ["$cmd", "$cmd.aggregate"].map(|name| format!("{}.{name}", world.database().name()));
    let admin = world.database().client().database("admin");
    let pipeline = [
        doc! { "$currentOp": { "allUsers": true, "idleCursors": true } },
        doc! { "$match": { "ns": { "$in": of_world.to_vec() }, "cursor.cursorId": { "$exists": true } } },
    ];
    let found: Vec<Document> = admin.aggregate(pipeline).await?.try_collect().await?;
    let stream = |op: &Document| {
        let cursor = op.get_document("cursor").ok()?;
        let of_tasks = cursor
            .get_document("originatingCommand")
            .ok()?
            .to_string()
            .contains("fullDocument.deadline\": {");
        Some((cursor.get_i64("cursorId").ok()?, of_tasks))
    };
    Ok(found.iter().filter_map(stream).collect())
}

/// How many DENs wait for tasks.
async fn waiting(world: &World) -> anyhow::Result<usize> {
    // Cursors of those that were killed stay for a while.
    let (streams, active) = (streams(world).await?, active(world).await?);
    Ok(active.iter().filter(|cursor| streams.get(cursor) == Some(&true)).count())
}

/// The cursors of which more is asked at this moment.
async fn active(world: &World) -> anyhow::Result<Vec<i64>> {
    let admin = world.database().client().database("admin");
    let pipeline = [
        doc! { "$currentOp": { "allUsers": true } },
        doc! { "$match": { "op": "getmore", "cursor.cursorId": { "$exists": true } } },
    ];
    let found: Vec<Document> = admin.aggregate(pipeline).await?.try_collect().await?;
    Ok(found.iter().filter_map(|op| op.get_document("cursor").ok()?.get_i64("cursorId").ok()).collect())
}

#[tokio::test]
async fn who_need_not_hear_of_tasks_asks_now_and_then_and_misses_nothing_else() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.queue("P", doc! { "threads": 1 }).await?;
    let (hints, _guard) = follow(&world).await?;
    let until_told = async |of_tasks: bool| {
        let all = || async { Ok(streams(&world).await?.into_values().eq([of_tasks]).then_some(())) };
        eventually("its stream", all).await
    };
    until_told(true).await?;
    for round in 1..=2 {
        hints.needs_at_once(Listener::Node, false);
        until_told(false).await?;
        news(&world, &hints).await?;
        world.submit(queue, vec![doc! {}]).await?;
        world.update_queue(queue, doc! { "threads": 1 + round }).await?;
        let (told, peaks) = news_and_peaks(&world, &hints).await?;
        assert_eq!(told, NOTHING, "it looks for tasks");
        assert!(!peaks.of_any && peaks.queues.contains_key(&queue), "{peaks:?}");
        hints.needs_at_once(Listener::Node, true);
        until_told(true).await?;
        let all = News { queues_changed: false, ..News::all() };
        assert_eq!(news(&world, &hints).await?, all, "so everything is looked at");
        hints.take_arrivals();
        // It goes on after what it is not told of at the other pace.
        let told = world.submit(queue, vec![doc! {}]).await?;
        let arrived = || async { Ok(Some(hints.take_arrivals()).filter(|arrivals| arrivals.count > 0)) };
        let arrived = eventually("the task", arrived).await?;
        assert_eq!(arrived.tasks.get(&queue), Some(&told));
        let told = News { queues_changed: false, ..hints.take() };
        assert_eq!(told, News { inserted: true, ..NOTHING });
        assert!(!hints.take_peaks().of_any, "limits were told of all the time");
    }
    hints.needs_at_once(Listener::Node, false);
    until_told(false).await?;
    hints.needs_at_once(Listener::Gates, true);
    until_told(true).await?;
    world.end().await
}

#[tokio::test]
async fn who_writes_much_asks_instead_of_waiting_and_is_told_of_everything() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.queue("P", doc! { "threads": 1 }).await?;
    let (hints, _guard) = follow(&world).await?;
    let waits = async |waits: bool| {
        let seen = || async { Ok((waiting(&world).await? == usize::from(waits)).then_some(())) };
        eventually("how its stream is asked", seen).await
    };
    waits(true).await?;
    for (rate, waiting) in [(1_000.0, false), (0.0, true), (1_000.0, false), (0.0, true)] {
        (0..3).for_each(|_| hints.hands_over(rate));
        waits(waiting).await?;
        let submitted = world.submit(queue, vec![doc! {}]).await?;
        let (told, peaks) = news_and_peaks(&world, &hints).await?;
        assert_eq!(told, News { inserted: true, ..NOTHING });
        assert_eq!(hints.take_arrivals().tasks.get(&queue), Some(&submitted));
        assert!(!peaks.of_any, "it goes on where it was");
    }
    world.end().await
}

/// How many looks the profiler has noted, and how many of these were for what any node may do.
async fn looks(world: &World) -> anyhow::Result<(usize, usize)> {
    let profile = world.database().collection::<Document>("system.profile");
    let of_tasks: Vec<Document> =
        profile.find(doc! { "command.aggregate": "tasks" }).await?.try_collect().await?;
    let texts = of_tasks.iter().map(ToString::to_string).filter(|text| text.contains("\"occupied\""));
    let for_all: Vec<bool> = texts.map(|text| text.contains("\"silent nodes\"")).collect();
    Ok((for_all.len(), for_all.iter().filter(|for_all| **for_all).count()))
}

#[tokio::test]
async fn of_many_nodes_few_wait_for_tasks() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let queue = world.script_queue(Script { name: "Quick", text: "#!/bin/sh\necho done\n" }, 9).await?;
    let mut dens = Vec::new();
    for number in 0..7 {
        dens.push(world.den_at_work(&format!("n{number}")).await?);
    }
    // One more where whoever lets tasks go on that wait for others is none of the first.
    let few = || async { Ok((4..=5).contains(&waiting(&world).await?).then_some(())) };
    eventually("few that wait", few).await?;
    world.submit(queue, vec![doc! {}; 20]).await?;
    world.until_all_ended(queue).await?;
    // As few look for what any node may do.
    world.database().run_command(doc! { "profile": 2 }).await?;
    let (all, for_all) = eventually("looks", || async {
        let looks = looks(&world).await?;
        Ok((looks.0 >= 40).then_some(looks))
    })
    .await?;
    assert!(for_all > 0 && for_all * 4 < all * 3, "{for_all} of {all}");
    world.database().run_command(doc! { "profile": 0 }).await?;
    // Others take the places of those that are gone.
    for den in dens.drain(..4) {
        den.end_with(Signal::SIGKILL).await?;
    }
    let due = world.store().now().timestamp_millis() + 2_000;
    let deferred = world.submit(queue, vec![doc! {}]).await?[0];
    world.set(deferred, doc! { "status": -7, "run_at": DateTime::from_millis(due) }).await?;
    eventually("the rest", || async { Ok((waiting(&world).await? == 3).then_some(())) }).await?;
    world.submit(queue, vec![doc! {}; 20]).await?;
    world.until_all_ended(queue).await?;
    drop(dens);
    world.end().await
}

/// A replica set that can be told to fail.
pub async fn fallible(data: &std::path::Path) -> anyhow::Result<Server> {
    let program = tokio::task::spawn_blocking(|| locate::find_or_fetch(|_| ())).await??;
    let arguments = ["--setParameter", "enableTestCommands=1"].map(OsString::from).to_vec();
    let options = Options {
        program,
        data: data.to_owned(),
        port: None,
        replica_set: true,
        ephemeral: false,
        arguments,
    };
    Server::start(options).await
}

/// What it does from now on, as its fail point `failCommand` takes it.
pub async fn fail(world: &World, mode: impl Into<Bson>, data: Document) -> anyhow::Result<()> {
    let command = doc! { "configureFailPoint": "failCommand", "mode": mode.into(), "data": data };
    world.database().client().database("admin").run_command(command).await?;
    Ok(())
}

#[tokio::test]
async fn a_lost_stream_goes_on_where_it_was() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = fallible(data.path()).await?;
    let world = World::at(server.uri()).await?;
    let queue = world.queue("P", doc! { "threads": 1 }).await?;
    let (hints, _guard) = follow(&world).await?;

    // The server forgets the cursor.
    let cursor = || async { Ok(streams(&world).await?.pop_first()) };
    let (cursor, _) = eventually("the cursor of the stream", cursor).await?;
    world.database().run_command(doc! { "killCursors": "$cmd.aggregate", "cursors": [cursor] }).await?;
    world.submit(queue, vec![doc! {}]).await?;
    assert_eq!(news(&world, &hints).await?, News { inserted: true, ..NOTHING });

    // It refuses for a while, and something happens meanwhile.
    let refusing = doc! { "failCommands": ["getMore", "aggregate"], "errorCode": 112 };
    fail(&world, "alwaysOn", refusing).await?;
    world.set(world.submit(queue, vec![doc! {}]).await?[0], doc! { "status": 1 }).await?;
    until_coming(&hints, false).await?;
    hints.take();
    world.submit(queue, vec![doc! {}]).await?;
    fail(&world, "off", doc! {}).await?;
    until_coming(&hints, true).await?;
    assert_eq!(news(&world, &hints).await?, News { inserted: true, ..NOTHING }, "and nothing else");

    // It does not know any more what has happened since.
    let lost = doc! { "failCommands": ["getMore", "aggregate"], "errorCode": 286 };
    fail(&world, doc! { "times": 2 }, lost).await?;
    world.submit(queue, vec![doc! {}]).await?;
    let all = News { queues_changed: false, ..News::all() };
    assert_eq!(news(&world, &hints).await?, all, "so everything is looked at");
    world.end().await?;
    server.stop().await
}

#[tokio::test]
async fn a_den_without_its_stream_polls_until_it_is_back() -> anyhow::Result<()> {
    let data = tempfile::tempdir()?;
    let server = fallible(data.path()).await?;
    let world = World::at(server.uri()).await?;
    let script = Script { name: "Quick", text: "#!/bin/sh\necho done\n" };
    let queue = world.script_queue(script, 1).await?;
    // Nothing but the stream asks for more; this does not make the driver believe that the server is away.
    let no_stream = doc! { "failCommands": ["getMore"], "errorCode": 286, "appName": "disbatchd" };
    fail(&world, "alwaysOn", no_stream).await?;
    let den = world.den_at_work("n1").await?;
    eventually("a word about it", || async {
        Ok(den.log()?.contains("lost the change stream: polling until it is back").then_some(()))
    })
    .await?;
    let task = world.submit(queue, vec![doc! {}]).await?[0];
    world.until_status(task, 1).await?;
    fail(&world, "off", doc! {}).await?;
    eventually("a word about its return", || async {
        Ok(den.log()?.contains("following changes of the database again").then_some(()))
    })
    .await?;
    den.end_with(Signal::SIGTERM).await?;
    world.end().await?;
    server.stop().await
}
