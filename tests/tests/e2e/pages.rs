//! Pages of tasks in the order of ids.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::counters::count::Amount;
use disbatch_core::model::{NodeName, QueueId, TaskId};
use disbatch_core::store::Store;
use disbatch_core::task::Created;
use disbatch_core::task::pages::{Order, PageQuery, Position, Selection};
use disbatch_tests::{Dci, World};
use reqwest::Method;
use serde_json::Value;

use crate::plan::plans;

fn of(queue: QueueId, statuses: Option<&[i64]>) -> Selection {
    Selection { statuses: statuses.map(<[i64]>::to_vec), ..Selection::of_queue(queue) }
}

/// All pages, with `meanwhile` done between each two.
async fn turn(
    store: &Store,
    of: Selection,
    order: Order,
    mut meanwhile: impl AsyncFnMut(usize) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<TaskId>> {
    let mut page = PageQuery { of, order, position: Position::First, limit: 10 };
    let mut seen = Vec::new();
    for number in 0.. {
        let found = store.find_page(&page).await?;
        ensure!(found.rows.len() <= 10, "{} tasks on a page", found.rows.len());
        seen.extend(&found.rows);
        let Some(next) = found.next else { break };
        page.position = Position::After(next);
        meanwhile(number).await?;
    }
    Ok(seen)
}

fn is_sorted(ids: &[TaskId], order: Order) -> bool {
    ids.windows(2).all(|two| match order {
        Order::Oldest => two[0].0 < two[1].0,
        Order::Newest => two[0].0 > two[1].0,
    })
}

async fn fill(world: &World, queue: QueueId, tasks: usize) -> anyhow::Result<Vec<TaskId>> {
    let statuses = [-7, -6, -5, -2, -1, 0, 1, 1, 2, 77];
    let made: Vec<Document> = (0..tasks)
        .map(|n| {
            doc! { "_id": ObjectId::new(), "queue": queue, "status": statuses[n % statuses.len()], "node": "n", "n": 1 }
        })
        .collect();
    world.tasks().insert_many(&made).await?;
    made.iter().map(|task| Ok(TaskId(task.get_object_id("_id")?))).collect()
}

#[tokio::test]
async fn pages_neither_miss_nor_repeat_tasks_that_come_and_end_meanwhile() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    store.ensure_indexes().await?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
    let noise = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
    for order in [Order::Oldest, Order::Newest] {
        world.tasks().delete_many(doc! {}).await?;
        let there = fill(&world, queue, 120).await?;
        let meanwhile = async |number: usize| {
            fill(&world, noise, 10).await?;
            fill(&world, queue, 3).await?;
            // Everything moves on by one step, wherever the pages are.
            for (from, to) in [(2, 3), (1, 2), (0, 1), (-1, 0), (-2, -1), (-7, -2)] {
                let some = doc! { "queue": queue, "status": from };
                let ids: Vec<TaskId> = there.iter().copied().skip(number % 7).step_by(7).collect();
                let ids: Vec<ObjectId> = ids.iter().map(|id| id.0).collect();
                let which = doc! { "$and": [some, { "_id": { "$in": ids } }] };
                world.tasks().update_many(which, doc! { "$set": { "status": to } }).await?;
            }
            Ok(())
        };
        let seen = turn(&store, of(queue, None), order, meanwhile).await?;
        assert!(is_sorted(&seen, order), "{seen:?}");
        let seen: BTreeSet<ObjectId> = seen.iter().map(|id| id.0).collect();
        let missed: Vec<&TaskId> = there.iter().filter(|id| !seen.contains(&id.0)).collect();
        assert!(missed.is_empty(), "missed {missed:?}");
    }
    world.end().await
}

#[tokio::test]
async fn pages_have_the_tasks_that_were_made_between_two_times() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    store.ensure_indexes().await?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
    let id = |second: u32, n: u8| ObjectId::from_parts(second, [0; 5], [0, 0, n]);
    let statuses = [-2, 0, 1, 2, 77];
    let made: Vec<Document> = (1_000..1_010)
        .flat_map(|second| statuses.iter().zip(0..).map(move |(status, n)| (second, *status, n)))
        .map(|(second, status, n)| doc! { "_id": id(second, n), "queue": queue, "status": status, "node": "n" })
        .collect();
    world.tasks().insert_many(&made).await?;
    let at = |second: i64| Some(DateTime::from_millis(second * 1_000));
    let created = Created { since: at(1_002), until: at(1_005) };
    for order in [Order::Oldest, Order::Newest] {
        for selection in [
            Selection { created, ..of(queue, None) },
            Selection { created, ..Selection::default() },
            Selection { created, ..of(queue, Some(&statuses.map(i64::from))) },
        ] {
            let seen = turn(&store, selection.clone(), order, async |_| Ok(())).await?;
            ensure!(seen.len() == 15 && is_sorted(&seen, order), "{selection:?}: {seen:?}");
            let within = seen.iter().all(|task| (id(1_002, 0)..id(1_005, 0)).contains(&task.0));
            ensure!(within, "{selection:?}: {seen:?}");
        }
    }
    ensure!(store.count_created(queue, created, 100).await? == Amount::Exactly(15));
    ensure!(store.count_created(queue, created, 9).await? == Amount::MoreThan(9));
    let page = PageQuery {
        of: Selection { created, ..of(queue, Some(&[2])) },
        order: Order::Newest,
        position: Position::First,
        limit: 100,
    };
    let find = async |store: Store| anyhow::Ok(store.find_page(&page).await?);
    for explained in plans(&world, find).await?.1 {
        let stats = explained.get_document("executionStats")?;
        let looked_at = stats.get_i32("totalKeysExamined")?;
        ensure!(looked_at <= 4, "{looked_at} keys for three tasks: {stats}");
    }
    world.end().await
}

#[tokio::test]
async fn pages_go_both_ways_for_every_selection() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    let queue = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
    let all = fill(&world, queue, 75).await?;
    // First without the indexes, as in a database that no DEN has seen yet.
    for indexed in [false, true] {
        if indexed {
            store.ensure_indexes().await?;
        }
        let node = Selection { node: Some(NodeName::new("n")), ..of(queue, Some(&[1, -2])) };
        // More than the server merges at once, of which one has tasks.
        let many: Vec<QueueId> = (0..250).map(|_| QueueId(ObjectId::new())).chain([queue]).collect();
        let of_many = |statuses: Option<Vec<i64>>| Selection {
            queues: Some(many.clone()),
            statuses,
            ..Selection::default()
        };
        let selections = [
            (Selection::default(), 75),
            (Selection { queues: Some(Vec::new()), ..Selection::default() }, 0),
            (Selection { queues: Some(Vec::new()), ..of(queue, Some(&[1])) }, 0),
            (of_many(None), 75),
            (of_many(Some(vec![1])), 14),
            (of_many(Some(vec![77, -2, 0])), 22),
            (Selection { node: Some(NodeName::new("n")), ..of_many(Some(vec![1, -2])) }, 22),
            (of(queue, None), 75),
            (of(queue, Some(&[1])), 14),
            (of(queue, Some(&[77, -2, 0])), 22),
            (of(QueueId(ObjectId::new()), None), 0),
            (node, 22),
        ];
        for (selection, expected) in selections {
            for order in [Order::Oldest, Order::Newest] {
                let seen = turn(&store, selection.clone(), order, async |_| Ok(())).await?;
                assert_eq!(seen.len(), expected, "{selection:?}");
                assert!(is_sorted(&seen, order));
            }
        }
        let page = |position| PageQuery { of: of(queue, None), order: Order::Oldest, position, limit: 10 };
        let before = store.find_page(&page(Position::Before(all[30]))).await?;
        assert_eq!((before.rows, before.previous), (all[20..30].to_vec(), Some(all[20])));
        let first = store.find_page(&page(Position::Before(all[7]))).await?;
        assert_eq!((first.rows, first.previous), (all[..7].to_vec(), None));
    }
    world.end().await
}

#[tokio::test]
async fn a_page_is_read_from_indexes_wherever_it_is() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    store.ensure_indexes().await?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
    let other = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
    let all = fill(&world, queue, 5_000).await?;
    fill(&world, other, 5_000).await?;
    let both = Selection { queues: Some(vec![queue, other]), ..of(queue, Some(&[2, -5])) };
    let selections =
        [Selection::default(), of(queue, None), of(queue, Some(&[1])), of(queue, Some(&[2, -5])), both];
    for selection in selections {
        for position in [Position::First, Position::After(all[2_500]), Position::Before(all[2_500])] {
            for order in [Order::Oldest, Order::Newest] {
                let page = PageQuery { of: selection.clone(), order, position, limit: 10 };
                let find = async |store: Store| anyhow::Ok(store.find_page(&page).await?);
                for plan in plans(&world, find).await?.1 {
                    // Those that run are few: they are put in order.
                    let hint = plan.get_document("command")?.get_document("hint");
                    if hint.is_ok_and(|hint| *hint == doc! { "queue": 1, "status": 1 }) {
                        continue;
                    }
                    let text = plan.to_string();
                    assert!(!text.contains("COLLSCAN") && !text.contains("\"SORT\""), "{text}");
                    let stats = plan.get_document("executionStats")?;
                    assert!(stats.get_i32("totalKeysExamined")? <= 40, "{text}");
                    assert_eq!(stats.get_i32("totalDocsExamined")?, 0, "{text}");
                }
            }
        }
    }
    world.end().await
}

#[tokio::test]
async fn the_api_and_the_page_turn_pages() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let queue = world.queue("Disbatch::Plugin::Demo", doc! {}).await?;
    let all = fill(&world, queue, 25).await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let get = async |query: &str| {
        let path = format!("/tasks?queue={queue}&.limit=10&.fields=%5B%22status%22%5D&{query}");
        let answer = dci.request(Method::GET, &path).send().await?;
        let header =
            |name: &str| answer.headers().get(name).and_then(|id| id.to_str().ok()).map(str::to_owned);
        let neighbours = (header("disbatch-before"), header("disbatch-after"));
        let tasks: Value = serde_json::from_str(&answer.text().await?)?;
        let ids = tasks.as_array().map(|tasks| {
            tasks
                .iter()
                .filter_map(|task| task["_id"]["$oid"].as_str().map(str::to_owned))
                .collect::<Vec<_>>()
        });
        anyhow::Ok((ids.unwrap_or_default(), neighbours))
    };
    let id = |number: usize| all[number].to_string();
    let ids = |numbers: std::ops::Range<usize>| numbers.map(id).collect::<Vec<_>>();
    let (first, (before, after)) = get(".order=id").await?;
    assert_eq!((first, before, after.clone()), (ids(0..10), None, Some(id(9))));
    let (second, (before, after)) = get(&format!(".after={}", after.context("no next page")?)).await?;
    assert_eq!((second, before.clone(), after), (ids(10..20), Some(id(10)), Some(id(19))));
    let (back, _) = get(&format!(".before={}", before.context("no page before")?)).await?;
    assert_eq!(back, ids(0..10));
    let (newest, _) = get(".order=-id").await?;
    assert_eq!(newest, (15..25).rev().map(id).collect::<Vec<_>>());
    let (last, (_, after)) = get(&format!(".after={}", id(19))).await?;
    assert_eq!((last, after), (ids(20..25), None));
    for wrong in [".order=x", ".after=x", ".order=id&.skip=1", ".order=id&.archive=1", ".order=id&node=n"] {
        let answer = dci.request(Method::GET, &format!("/tasks?queue={queue}&{wrong}")).send().await?;
        assert_eq!(answer.status(), 400, "{wrong}");
    }
    let page = async |query: &str| {
        let path = format!("/tasks?queue={queue}&.limit=10{query}");
        let answer = dci.request(Method::GET, &path).header("Accept", "text/html").send().await?;
        anyhow::Ok(answer.text().await?)
    };
    let html = page("").await?;
    assert!(html.contains(&id(24)) && html.contains(&format!(".after={}\">Next</a>", id(15))), "{html}");
    let html = page(&format!("&.after={}", id(15))).await?;
    assert!(html.contains(&id(14)) && html.contains(&format!(".before={}\">Previous</a>", id(14))), "{html}");
    let html = page("&.skip=20").await?;
    assert!(html.contains(".skip=10\">Previous</a>"), "{html}");
    world.end().await
}

/// The ids of the tasks on a page, in order, and the address of the page that follows.
fn read(html: &str) -> (Vec<String>, Option<String>) {
    let rows = html.split("<tr id=\"task-").skip(1).filter_map(|rest| rest.split('"').next());
    let next = html.split("rel=\"next\" href=\"").nth(1).and_then(|rest| rest.split('"').next());
    (rows.map(str::to_owned).collect(), next.map(|address| address.replace("&#38;", "&")))
}

#[tokio::test]
async fn a_status_is_found_in_all_queues_and_text_in_params_a_stretch_at_a_time() -> anyhow::Result<()> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let mut failed = Vec::new();
    for name in ["one", "two", "three"] {
        let queue = world.queue("Disbatch::Plugin::Demo", doc! { "name": name }).await?;
        let tasks: Vec<Document> = (0..40)
            .map(|n| {
                let params = doc! { "customer": format!("C-{}", n % 10), "queue": name };
                let status = if n % 4 == 0 { 2 } else { -2 };
                doc! { "_id": ObjectId::new(), "queue": queue, "status": status, "node": Bson::Null, "params": params }
            })
            .collect();
        world.tasks().insert_many(&tasks).await?;
        let of_queue = tasks.iter().filter(|task| task.get_i32("status").is_ok_and(|status| status == 2));
        failed.extend(of_queue.filter_map(|task| task.get_object_id("_id").ok()));
    }
    failed.sort_unstable_by(|a, b| b.cmp(a));
    let failed: Vec<String> = failed.into_iter().map(ObjectId::to_hex).collect();
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let page = async |path: &str| {
        let answer = dci.request(Method::GET, path).header("Accept", "text/html").send().await?;
        ensure!(answer.status() == 200, "{path}: {}", answer.status());
        anyhow::Ok(read(&answer.text().await?))
    };
    let (first, next) = page("/tasks?status=2&.limit=8").await?;
    assert_eq!(first, failed[..8]);
    let (second, _) = page(&next.context("no next page")?).await?;
    assert_eq!(second, failed[8..16]);
    let (back, _) = page(&format!("/tasks?status=2&.limit=8&.before={}", failed[8])).await?;
    assert_eq!(back, failed[..8]);

    let mut found = Vec::new();
    let mut address = Some("/tasks?.text=%22c-7%22&.limit=5".to_owned());
    while let Some(path) = address {
        let (some, next) = page(&path).await?;
        found.extend(some);
        address = next;
    }
    assert_eq!(found.len(), 12, "four of each queue: {found:?}");
    let with_node = page("/tasks?status=2&.text=%22c-4%22&.columns=params").await?;
    assert_eq!(with_node.0.len(), 6, "each twentieth: {with_node:?}");
    world.end().await
}
