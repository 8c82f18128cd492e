//! Tags: tasks of all sources are found by them, with the API and the command line, and by as many keys of an index as have them.

use anyhow::Context;
use bson::oid::ObjectId;
use bson::{Document, doc};
use disbatch_core::model::TaskId;
use disbatch_core::schema::Schemas;
use disbatch_core::store::Store;
use disbatch_core::tags;
use disbatch_core::task::pages::{Order, PageQuery, Position, Selection};
use disbatch_tests::{Dci, World, binary, eventually, finish};
use serde_json::{Value, json};
use tokio::process::Command;

use crate::plan::plans;

const DEMO: &str = "Disbatch::Plugin::Demo";

/// A database with its indexes, and a DCI.
async fn served() -> anyhow::Result<(World, Dci)> {
    let world = World::new().await?;
    world.store().ensure_indexes().await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    Ok((world, dci))
}

async fn submit(dci: &Dci, queue: &str, params: Value, options: Value) -> anyhow::Result<TaskId> {
    let mut body = json!({ "queue": queue, "params": params });
    if let (Some(body), Some(options)) = (body.as_object_mut(), options.as_object()) {
        body.extend(options.clone());
    }
    let answer = dci.posted("/tasks", &body).await?;
    let id = &answer["MongoDB::InsertManyResult"]["inserted"][0]["_id"]["$oid"];
    Ok(id.as_str().context(answer.to_string())?.parse()?)
}

async fn tags_of(world: &World, id: TaskId) -> anyhow::Result<Vec<String>> {
    Ok(tags::stored(world.task(id).await?.get("tags")))
}

fn ids(tasks: &Value, id: impl Fn(&Value) -> &Value) -> anyhow::Result<Vec<String>> {
    let tasks = tasks.as_array().with_context(|| tasks.to_string())?;
    let mut ids: Vec<String> = tasks.iter().filter_map(|task| id(task).as_str()).map(str::to_owned).collect();
    ids.sort();
    Ok(ids)
}

/// The ids of tasks that a search finds by `GET /tasks`, in order.
async fn searched(dci: &Dci, query: &str) -> anyhow::Result<Vec<String>> {
    let found = dci.get(&format!("/tasks?{query}&.limit=50")).await?;
    if found == json!({}) { Ok(Vec::new()) } else { ids(&found, |task| &task["_id"]["$oid"]) }
}

/// The same by the command line.
async fn listed(dci: &Dci, arguments: &[&str]) -> anyhow::Result<Vec<String>> {
    let mut command = Command::new(binary("disbatch")?);
    let command = command.args(["--url", dci.url()]).args(arguments).args(["--format", "json"]);
    let finished = finish(command).await?;
    anyhow::ensure!(finished.code()? == 0, "{finished:?}");
    ids(&serde_json::from_str(&finished.stdout)?, |task| &task["id"])
}

#[tokio::test]
async fn tasks_are_found_by_all_or_any_of_their_tags() -> anyhow::Result<()> {
    let (world, dci) = served().await?;
    let queue = world.queue(DEMO, doc! { "name": "mail" }).await?;
    world.queue(DEMO, doc! { "name": "other" }).await?;
    let plain = submit(&dci, "mail", json!([{ "a": 1 }]), json!({})).await?;
    assert!(!world.task(plain).await?.contains_key("tags"));
    let made = [
        ("mail", json!(["customer=7", "urgent"])),
        ("mail", json!("customer=7,slow")),
        ("other", json!(["customer=8", "Smith, Ann", "urgent"])),
    ];
    let mut tasks = Vec::new();
    for (name, tags) in made {
        tasks.push(submit(&dci, name, json!([{ "a": 1 }]), json!({ ".tags": tags })).await?.to_string());
    }
    let of = |places: &[usize]| places.iter().map(|place| tasks[*place].clone()).collect::<Vec<_>>();
    for (query, arguments, found) in [
        ("tags=customer%3D7", &["--tag", "customer=7"][..], &[0, 1][..]),
        ("tags=customer%3D7&tags=slow", &["--tag", "customer=7", "--tag", "slow"], &[1]),
        ("any_tags=slow,customer%3D8", &["--any-tag", "slow", "--any-tag", "customer=8"], &[1, 2]),
        (
            "tags=urgent&any_tags=slow&any_tags=Smith,%20Ann",
            &["--tag", "urgent", "--any-tag", "slow", "--any-tag", "Smith, Ann"],
            &[2],
        ),
        ("tags=%5B%22Smith,%20Ann%22%5D", &["--tag", "Smith, Ann"], &[2]),
        (&format!("tags=urgent&queue={queue}"), &["--tag", "urgent", "--queue", "mail"], &[0]),
        ("tags=urgent&status=-2&.order=-id", &["--tag", "urgent", "--status", "queued"], &[0, 2]),
        ("tags=urgent&status=1", &["--tag", "urgent", "--status", "succeeded"], &[]),
        ("tags=none", &["--tag", "none"], &[]),
    ] {
        assert_eq!(searched(&dci, query).await?, of(found), "{query}");
        assert_eq!(listed(&dci, &[&["tasks"], arguments].concat()).await?, of(found), "{arguments:?}");
    }
    assert_eq!(dci.get("/tasks?tags=urgent&.count=1").await?, json!({ "count": 2 }));

    // What is archived is found as before, by those who want it.
    world.set(tasks[0].parse()?, doc! { "status": 1 }).await?;
    world.store().archive_tasks(&[tasks[0].parse()?]).await?;
    assert_eq!(searched(&dci, "tags=customer%3D7").await?, of(&[1]));
    assert_eq!(searched(&dci, "tags=customer%3D7&.archive=1").await?, of(&[0, 1]));
    let again = dci.posted(&format!("/tasks/{}/retry", tasks[0]), &json!({})).await?;
    let again = again["id"].as_str().context("no id")?.parse()?;
    assert_eq!(tags_of(&world, again).await?, ["customer=7", "urgent"]);

    let bulk = json!({ "action": "cancel", "filter": { "queue": "*", "any_tags": ["slow", "customer=8"] } });
    let (_, job) = dci.post("/bulk", &bulk).await?;
    let job = format!("/bulk/{}", job["id"].as_str().context("no job")?);
    eventually("the job is done", async || Ok((dci.get(&job).await?["state"] == "done").then_some(())))
        .await?;
    for (task, status) in [(1, -5), (2, -5)] {
        assert_eq!(world.status(tasks[task].parse()?).await?, status);
    }
    assert_eq!(world.status(plain).await?, -2);
    let page = dci.request(reqwest::Method::GET, "/tasks?tags=customer%3D7").header("accept", "text/html");
    let page = page.send().await?.text().await?;
    assert!(page.contains("<a class=\"chip\" href=\"/tasks?tags=slow\">slow</a>"), "{page}");
    world.end().await
}

#[tokio::test]
async fn parameters_become_tags_whoever_makes_the_task() -> anyhow::Result<()> {
    let (world, dci) = served().await?;
    let queue = world.queue(DEMO, doc! { "name": "mail" }).await?;
    let before = submit(&dci, "mail", json!([{ "customer": 7 }]), json!({})).await?;
    let paths = json!({ "index": "params.customer, params.user.id" });
    dci.posted("/queues/mail", &paths).await?;
    let shown = dci.get("/queues/mail?.details=1").await?;
    assert_eq!(shown["index"], json!(["params.customer", "params.user.id"]));

    let one = json!([{ "customer": 7, "user": { "id": "ann" } }]);
    let task = submit(&dci, "mail", one, json!({ ".tags": ["urgent", "customer=7"] })).await?;
    assert_eq!(tags_of(&world, task).await?, ["urgent", "customer=7", "id=ann"]);
    let once = json!({ ".idempotency_key": "k" });
    let task = submit(&dci, "mail", json!([{ "customer": true }]), once).await?;
    assert_eq!(tags_of(&world, task).await?, ["customer=true"]);
    let chain =
        submit(&dci, "mail", json!([{ "customer": 1 }, { "customer": 2 }]), json!({ ".chain": true }));
    chain.await?;
    assert_eq!(world.count(queue, doc! { "tags": { "$in": ["customer=1", "customer=2"] } }).await?, 2);
    let batch = json!({ "tasks": [{ "queue": "mail", "params": { "customer": 3 }, ".tags": "b" }] });
    dci.posted("/tasks/batch", &batch).await?;
    assert_eq!(world.count(queue, doc! { "tags": ["b", "customer=3"] }).await?, 1);

    let array = json!({
        "queue": "mail", "params": { "user": { "id": 5 } }, ".array": "8-10", ".array_key": "customer", ".tags": ["array"],
        ".array_final": { "customer": 11 },
    });
    dci.posted("/tasks", &array).await?;
    for customer in 8..=10 {
        let tags = vec!["array".to_owned(), format!("customer={customer}"), "id=5".to_owned()];
        assert_eq!(world.count(queue, doc! { "tags": tags }).await?, 1, "{customer}");
    }
    assert_eq!(world.count(queue, doc! { "tags": ["array", "customer=11"] }).await?, 1);

    let schedule = json!({
        "name": "nightly", "queue": "mail", "params": { "customer": "é" }, "options": { "tags": ["nightly"] },
    });
    assert_eq!(dci.post("/schedules", &schedule).await?.0, 201);
    assert_eq!(dci.get("/schedules/nightly").await?["options"], json!({ "tags": ["nightly"] }));
    dci.post("/schedules/nightly/run", &json!({})).await?;
    assert_eq!(world.count(queue, doc! { "tags": ["nightly", "customer=é"] }).await?, 1);

    let documents = world.database().collection::<Document>("customers");
    documents.insert_one(doc! { "number": 12_i64 }).await?;
    let collection = json!({
        "queue": "mail", "collection": "customers", "filter": {}, "params": { "customer": "document.number" },
    });
    dci.posted("/tasks", &collection).await?;
    assert_eq!(world.count(queue, doc! { "tags": ["customer=12"] }).await?, 1);
    documents.drop().await?;

    let inserted = doc! { "_id": ObjectId::new(), "v": 1, "queue": "mail", "params": { "customer": 13 }, "options": { "tags": ["own"] } };
    world.database().collection::<Document>("inbox").insert_one(inserted).await?;
    world.store().move_inbox(&Schemas::default(), None).await?;
    assert_eq!(
        world.count(queue, doc! { "tags": ["own", "customer=13"], "params": { "customer": 13 } }).await?,
        1
    );

    assert!(!world.task(before).await?.contains_key("tags"), "it was there before");
    dci.posted("/queues/mail", &json!({ "index": null })).await?;
    let after = submit(&dci, "mail", json!([{ "customer": 7 }]), json!({})).await?;
    assert!(!world.task(after).await?.contains_key("tags"));
    world.end().await
}

#[tokio::test]
async fn what_is_wrong_is_named() -> anyhow::Result<()> {
    let (world, dci) = served().await?;
    world.queue(DEMO, doc! { "name": "mail" }).await?;
    let many: Vec<String> = (0..21).map(|number| number.to_string()).collect();
    let expected = "must be text of 1 to 128 characters, without control characters";
    for (tags, error) in [
        (json!(["fits", "a\nb"]), format!(".tags[1] {expected}")),
        (json!(["x".repeat(129)]), format!(".tags[0] {expected}")),
        (json!(many), ".tags must be at most 20".to_owned()),
        (json!({ "a": 1 }), ".tags must be an array of texts, or text with commas between them".to_owned()),
    ] {
        let task = json!({ "queue": "mail", "params": { "a": 1 }, ".tags": tags });
        let (status, answer) = dci.post("/tasks", &task).await?;
        assert_eq!((status, &answer["error"]), (400, &json!(error)));
    }
    let (status, answer) = dci.post("/queues/mail", &json!({ "index": ["params.a", "customer"] })).await?;
    let error = "index[1] must be the path of a parameter, as params.customer or params.user.id";
    assert_eq!((status, &answer["error"]), (400, &json!(error)));
    let schedule = json!({ "name": "n", "queue": "mail", "options": { "tags": [""] } });
    let (status, answer) = dci.post("/schedules", &schedule).await?;
    assert_eq!((status, &answer["error"]), (400, &json!(format!("options.tags[0] {expected}"))));
    let bulk = json!({ "action": "cancel", "filter": { "queue": "mail", "tags": [] } });
    let (status, answer) = dci.post("/bulk", &bulk).await?;
    let error = "tags is empty: leave it out if it is to restrict nothing";
    assert_eq!((status, &answer["error"]), (400, &json!(error)));
    for (path, part) in [
        ("/tasks?tags=%00", "tags[0] must be text"),
        ("/tasks/find?any_tags=%01", "any_tags[0] must be text"),
        ("/tasks?tags=a&node=n&unique=k", "non-indexed params given"),
        ("/events?tags=%02", "tags[0] must be text"),
    ] {
        let answer = dci.request(reqwest::Method::GET, path).send().await?;
        let (status, text) = (answer.status(), answer.text().await?);
        assert!(status == 400 && text.contains(part), "{path}: {status} {text}");
    }
    world.end().await
}

#[tokio::test]
async fn a_search_looks_at_tasks_with_the_rarest_tag_alone() -> anyhow::Result<()> {
    let world = World::new().await?;
    let store = world.store();
    store.ensure_indexes().await?;
    let queue = world.queue(DEMO, doc! {}).await?;
    let task = |number: i32| {
        let tags = ["mail".to_owned(), format!("customer={}", number / 10)];
        let status = if number % 2 == 0 { -2 } else { 1 };
        doc! { "queue": queue, "status": status, "node": null, "params": {}, "tags": tags.to_vec() }
    };
    for collection in ["tasks", "tasks.archive"] {
        let tasks = world.database().collection::<Document>(collection);
        tasks.insert_many((0..5_000).map(task)).await?;
    }
    let texts = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let two = texts(&["customer=7", "customer=400"]);
    for (all, any, statuses, found) in [
        (texts(&["mail"]), vec![], None, 25),
        (texts(&["customer=7"]), vec![], None, 10),
        (texts(&["mail", "customer=7"]), vec![], Some(vec![-2]), 5),
        (vec![], two.clone(), None, 20),
        (texts(&["mail"]), two, Some(vec![1]), 10),
    ] {
        let tagged = tags::query(&all, &any);
        let (filter, in_queue) = (tagged.clone().context("no tags")?, statuses.is_some());
        let of =
            Selection { queues: in_queue.then(|| vec![queue]), statuses, tagged, ..Selection::default() };
        let page = PageQuery { of, order: Order::Newest, position: Position::First, limit: 25 };
        let find = async |store: Store| anyhow::Ok(store.find_page(&page).await?);
        let (read, plans) = plans(&world, find).await?;
        assert_eq!((read.rows.len(), read.next.is_some()), (found, found == 25));
        assert!(read.rows.is_sorted_by(|a, b| a.0 > b.0));
        let find = doc! { "find": "tasks.archive", "filter": filter, "limit": 25 };
        let explain = doc! { "explain": find, "verbosity": "executionStats" };
        let archived = world.database().run_command(explain).await?;
        for plan in plans.iter().chain([&archived]) {
            let chosen = plan.get_document("queryPlanner")?.get_document("winningPlan")?;
            let (text, stats) = (chosen.to_string(), plan.get_document("executionStats")?);
            assert!(text.contains("tags_1__id_-1") && !text.contains("\"SORT\""), "{text}");
            assert!(stats.get_i32("totalKeysExamined")? <= 30, "{text}");
            assert!(stats.get_i32("totalDocsExamined")? <= 30, "{text}");
        }
    }
    world.end().await
}
