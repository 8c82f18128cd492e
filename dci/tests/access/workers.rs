//! Plugins that the database defines: who may see and change them, and what becomes of them.

use anyhow::{Context, ensure};
use bson::{Document, doc};
use futures::TryStreamExt;
use reqwest::Method;
use serde_json::{Value, json};

use crate::world::World;

/// What is nobody's business but administrators'.
const SECRET: &str = "zyxw-key-9173";

async fn call(
    world: &World,
    user: &str,
    (method, path): (Method, &str),
    body: Value,
) -> anyhow::Result<(u16, Value)> {
    let request = world.request(method.clone(), path, Some(user));
    let request = if method == Method::GET { request } else { request.json(&body) };
    let answer = request.send().await?;
    let (status, text) = (answer.status().as_u16(), answer.text().await?);
    Ok((status, serde_json::from_str(&text).with_context(|| format!("{path}: {status} {text}"))?))
}

async fn page(world: &World, user: &str, path: &str) -> anyhow::Result<(u16, String)> {
    let answer = world.request(Method::GET, path, Some(user)).header("accept", "text/html").send().await?;
    Ok((answer.status().as_u16(), answer.text().await?))
}

fn report() -> Value {
    json!({
        "_id": "My::Report", "engine": "http", "description": "<writes>",
        "http": { "url": "https://reports.example/run", "headers": { "X-Key": SECRET } },
        "params": { "properties": { "to": { "type": "string", "description": "who reads it" } } },
        "template": { "params": { "to": "all" } },
    })
}

async fn entries(world: &World, filter: Document) -> anyhow::Result<Vec<Document>> {
    let audit = world.database.database.collection::<Document>("audit");
    Ok(audit.find(filter).sort(doc! { "_id": 1 }).await?.try_collect().await?)
}

#[tokio::test]
async fn administrators_define_plugins_and_others_see_no_secrets() -> anyhow::Result<()> {
    let world = World::new().await?;
    let create = (Method::POST, "/workers");
    for user in ["viewer", "submitter", "operator"] {
        assert_eq!(call(&world, user, create.clone(), report()).await?.0, 403, "{user}");
    }
    let (status, made) = call(&world, "admin", create.clone(), report()).await?;
    assert_eq!((status, &made["name"], &made["rev"]), (201, &json!("My::Report"), &json!(1)));
    assert_eq!(made["definition"]["http"]["headers"]["X-Key"], SECRET);
    let (status, again) = call(&world, "admin", create, report()).await?;
    assert_eq!((status, &again["error"]), (409, &json!("there is a worker 'My::Report' already")));
    let one = (Method::GET, "/workers/My::Report");
    for user in ["viewer", "operator"] {
        let (status, seen) = call(&world, user, one.clone(), Value::Null).await?;
        assert_eq!((status, &seen["runs"]), (200, &json!("https://reports.example/run")));
        assert_eq!(seen["definition"]["http"]["headers"]["X-Key"], "(hidden)");
        let (_, list) = call(&world, user, (Method::GET, "/workers"), Value::Null).await?;
        assert_eq!(list.as_array().map(Vec::len), Some(1));
        for path in ["/workers", "/workers/My::Report", "/plugins"] {
            let (status, html) = page(&world, user, path).await?;
            ensure!(status == 200 && html.contains("&#60;writes&#62;"), "{path}: {html}");
            ensure!(!html.contains(SECRET) && !html.contains("<writes>"), "{path}: {html}");
            ensure!(!html.contains("<textarea"), "{path} has a form for {user}");
        }
    }
    let (_, html) = page(&world, "admin", "/workers/My::Report").await?;
    ensure!(html.contains(SECRET) && html.contains("who reads it") && html.contains("<textarea"), "{html}");
    assert_eq!(call(&world, "guest", one, Value::Null).await?.0, 403);
    let made = entries(&world, doc! { "object.kind": "worker", "object.name": "My::Report" }).await?;
    assert_eq!(made.len(), 1, "{made:?}");
    assert_eq!((made[0].get_str("what")?, made[0].get_str("user")?), ("worker create", "admin"));
    assert!(!made[0].to_string().contains(SECRET), "{}", made[0]);
    world.database.drop_database().await
}

#[tokio::test]
async fn a_worker_is_a_plugin_that_queues_may_have() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = json!({ "name": "reports", "plugin": "My::Report" });
    assert_eq!(call(&world, "operator", (Method::POST, "/queues"), queue.clone()).await?.0, 400);
    call(&world, "admin", (Method::POST, "/workers"), report()).await?;
    let (_, plugins) = call(&world, "viewer", (Method::GET, "/plugins"), Value::Null).await?;
    assert_eq!(plugins, json!(["My::Plugin", "My::Report"]));
    let (status, made) = call(&world, "operator", (Method::POST, "/queues"), queue).await?;
    ensure!(status == 200, "{made}");
    let id = made["id"]["$oid"].as_str().context("no id")?.to_owned();
    // Its form is that of the definition.
    let (_, html) = page(&world, "operator", &format!("/queues/{id}?tab=new")).await?;
    ensure!(html.contains("who reads it") && html.contains("value=\"all\""), "{html}");
    let steps = json!({ "queue": "mine", "params": [{ "n": 1 }], ".steps": [{ "plugin": "My::Report" }] });
    let (status, told) = call(&world, "operator", (Method::POST, "/tasks"), steps).await?;
    ensure!(status == 200, "{told}");
    let (status, gone) = call(&world, "admin", (Method::DELETE, "/workers/My::Report"), json!({})).await?;
    assert_eq!(
        (status, gone),
        (200, json!({ "name": "My::Report", "deleted": true, "queues": ["reports"] }))
    );
    let change = json!({ "plugin": "My::Report" });
    assert_eq!(call(&world, "operator", (Method::POST, "/queues/mine"), change).await?.0, 400);
    world.database.drop_database().await
}

#[tokio::test]
async fn what_a_node_runs_by_itself_cannot_be_defined() -> anyhow::Result<()> {
    let world = World::new().await?;
    let cases = [
        (json!({ "_id": "A", "command": ["sh", "-c", "id"] }), "engine: exec runs a program of the node"),
        (json!({ "_id": "A", "engine": "perl" }), "engine: perl runs a program of the node"),
        (json!({ "_id": "A", "engine": "program" }), "engine: program runs a program of the node"),
        (
            json!({ "_id": "A", "engine": "container", "container": {
                "image": "i", "mounts": [{ "source": "/", "target": "/host" }],
            } }),
            "container.mounts: is about the node itself",
        ),
        (json!({ "_id": "A", "engine": "http", "htp": {} }), "htp: is unknown"),
        (json!({ "_id": "../a", "engine": "http" }), "_id: plugin value '../a' must be"),
        (json!({ "engine": "http" }), "_id: expected the name of a plugin"),
        (json!({ "_id": "A", "worker": { "image": 5 } }), "worker.image: invalid type"),
    ];
    for (definition, message) in cases {
        let (status, told) = call(&world, "admin", (Method::POST, "/workers"), definition.clone()).await?;
        let error = told["error"].as_str().unwrap_or_default();
        ensure!(status == 400 && error.starts_with(message), "{definition}: {status} {told}");
        let (status, told) = call(&world, "viewer", (Method::POST, "/workers/validate"), definition).await?;
        assert_eq!((status, &told["valid"], told["error"].as_str()), (200, &json!(false), Some(error)));
    }
    let (_, told) = call(&world, "viewer", (Method::POST, "/workers/validate"), report()).await?;
    assert_eq!((&told["valid"], &told["plugin"]["engine"]), (&json!(true), &json!("http")));
    // What others put into the database is no plugin either, and says so.
    let workers = world.database.database.collection::<Document>("workers");
    workers.insert_one(doc! { "_id": "Shell", "command": ["sh"] }).await?;
    let (_, seen) = call(&world, "admin", (Method::GET, "/workers/Shell"), Value::Null).await?;
    ensure!(seen["problem"].as_str().is_some_and(|problem| problem.starts_with("engine: exec")), "{seen}");
    let (_, plugins) = call(&world, "viewer", (Method::GET, "/plugins"), Value::Null).await?;
    assert_eq!(plugins, json!(["My::Plugin"]));
    world.database.drop_database().await
}

#[tokio::test]
async fn a_change_is_made_from_what_is_known_or_not_at_all() -> anyhow::Result<()> {
    let world = World::new().await?;
    let path = "/workers/My::Report";
    let put = |definition: Value| call(&world, "admin", (Method::PUT, path), definition);
    let definition = |url: &str| json!({ "engine": "http", "http": { "url": url } });
    let with_rev = |url: &str, rev: i64| {
        let mut body = definition(url);
        body[".rev"] = rev.into();
        body
    };
    assert_eq!(put(with_rev("https://a/", 1)).await?.0, 404);
    assert_eq!(put(definition("https://a/")).await?.0, 201);
    let (status, same) = put(definition("https://a/")).await?;
    assert_eq!((status, &same["rev"]), (200, &json!(1)), "nothing has changed");
    // Eight at once from the same revision.
    let urls: Vec<String> = (0..8).map(|n| format!("https://{n}/")).collect();
    let all = futures::future::try_join_all(urls.iter().map(|url| put(with_rev(url, 1)))).await?;
    let stored: Vec<&Value> = all.iter().filter(|(status, _)| *status == 200).map(|(_, told)| told).collect();
    assert_eq!(stored.len(), 1, "{all:?}");
    assert!(
        all.iter().all(|(status, told)| *status == 200 || (*status == 409 && told["rev"] == 2)),
        "{all:?}"
    );
    let (_, now) = call(&world, "admin", (Method::GET, path), Value::Null).await?;
    assert_eq!(now["definition"], stored[0]["definition"]);
    let named = json!({ "name": "Other", "engine": "http" });
    let (status, told) = put(named).await?;
    assert_eq!(
        (status, told["error"].as_str()),
        (400, Some("_id: 'Other' is not the name of this worker, 'My::Report'"))
    );
    // A document without a revision has 0.
    let workers = world.database.database.collection::<Document>("workers");
    workers.update_one(doc! {}, doc! { "$unset": { "rev": 1 } }).await?;
    assert_eq!(put(with_rev("https://z/", 2)).await?.0, 409);
    assert_eq!(put(with_rev("https://z/", 0)).await?.1["rev"], 1);
    let changes = entries(&world, doc! { "what": "worker update" }).await?;
    assert_eq!(changes.len(), 2, "{changes:?}");
    world.database.drop_database().await
}

#[tokio::test]
async fn definitions_of_another_scheduler_are_imported_as_they_stand() -> anyhow::Result<()> {
    let world = World::new().await?;
    let documents = json!([
        { "_id": "requiredlearningcsv", "worker": {
            "name": "Required learning", "description": "Required learning. No parameters.",
            "image": "registry.example/batch.learning",
        } },
        { "_id": "service", "_rev": "2-ea", "worker": {
            "name": "Service", "engine": "webservice", "url": "https://workers.example/x",
            "httpHeaders": { "Authorization": format!("Basic {SECRET}") }, "template": { "parameters": { "rows": 5 } },
        } },
    ]);
    let import = (Method::POST, "/workers/import");
    assert_eq!(call(&world, "operator", import.clone(), documents.clone()).await?.0, 403);
    let (status, told) = call(&world, "admin", import.clone(), documents.clone()).await?;
    let waits = |name: &str, engine: &str| {
        format!(
            "{name}: no node whose DEN is alive has the engine {engine}, so its tasks wait until one has; or name \
             another engine"
        )
    };
    let expected = json!({
        "created": ["requiredlearningcsv", "service"], "updated": [], "unchanged": [], "left": [],
        "warnings": [
            waits("requiredlearningcsv", "kubernetes"), waits("service", "http"),
            "service: when it calls back, its service has to show the token that it is told; for one that cannot, say \
             \"callback_auth\": \"none\" beside its url",
        ],
    });
    assert_eq!((status, told), (200, expected));
    let (_, list) = call(&world, "viewer", (Method::GET, "/workers"), Value::Null).await?;
    let engines: Vec<&Value> = list.as_array().context("no list")?.iter().map(|one| &one["engine"]).collect();
    assert_eq!(engines, [&json!("kubernetes"), &json!("http")]);
    assert!(!list.to_string().contains(SECRET), "{list}");
    // Once more, and with something else under a name.
    let (_, told) = call(&world, "admin", import.clone(), documents).await?;
    assert_eq!(told["unchanged"].as_array().map(Vec::len), Some(2));
    let other = json!({ "_id": "service", "worker": { "image": "i" } });
    let (_, told) = call(&world, "admin", import.clone(), json!([other])).await?;
    assert_eq!(told["left"], json!(["service"]));
    let replace = json!({ "documents": [other], "replace": true });
    let (_, told) = call(&world, "admin", import.clone(), replace).await?;
    assert_eq!(told["updated"], json!(["service"]));
    // One that is wrong, and nothing is stored.
    let some_wrong =
        json!([{ "_id": "good", "engine": "http" }, { "_id": "a-b", "worker": { "image": "i" } }]);
    let (status, told) = call(&world, "admin", import, some_wrong).await?;
    assert_eq!((status, &told["problems"][0]["name"]), (400, &json!("a-b")));
    assert_eq!(call(&world, "admin", (Method::GET, "/workers/good"), Value::Null).await?.0, 404);
    let made = entries(&world, doc! { "what": "worker create" }).await?;
    assert_eq!(made.len(), 2, "{made:?}");
    assert!(!format!("{made:?}").contains(SECRET));
    world.database.drop_database().await
}

#[tokio::test]
async fn who_defines_workers_does_not_choose_programs_of_nodes() -> anyhow::Result<()> {
    let world = World::new().await?;
    let shell = "Disbatch::Plugin::Shell";
    let put = |name: &str| {
        let path = format!("/workers/{name}");
        let world = &world;
        async move { call(world, "admin", (Method::PUT, path.as_str()), json!({ "engine": "http" })).await }
    };
    let is_refused = |(status, told): &(u16, Value), why: &str| {
        *status == 400 && told["error"].as_str().is_some_and(|error| error.contains(why))
    };
    let told = put(shell).await?;
    ensure!(is_refused(&told, "comes with Disbatch"), "{told:?}");
    // Somebody has put it there by other means.
    let workers = world.database.database.collection::<Document>("workers");
    workers.insert_one(doc! { "_id": shell, "engine": "http" }).await?;
    let (_, plugins) = call(&world, "viewer", (Method::GET, "/plugins"), Value::Null).await?;
    assert_eq!(plugins, json!(["My::Plugin"]));
    let queue = json!({ "name": "commands", "plugin": shell });
    let told = call(&world, "admin", (Method::POST, "/queues"), queue).await?;
    ensure!(is_refused(&told, "Unknown plugin"), "{told:?}");
    let told = call(&world, "admin", (Method::POST, "/queues/mine"), json!({ "plugin": shell })).await?;
    ensure!(told.0 == 400, "{told:?}");
    let steps = json!({ "queue": "mine", "params": [{ "n": 1 }], ".steps": [{ "plugin": shell }] });
    let told = call(&world, "admin", (Method::POST, "/tasks"), steps).await?;
    ensure!(is_refused(&told, "Unknown plugin"), "{told:?}");
    // What a node has by itself is known from the node.
    let nodes = world.database.database.collection::<Document>("nodes");
    let node = doc! { "node": "n1", "plugins": ["My::Plugin", "Own::Dump", "Far"], "workers": ["Far"] };
    nodes.insert_one(node).await?;
    let told = put("Own::Dump").await?;
    ensure!(is_refused(&told, "the node n1 has a plugin 'Own::Dump' in its files"), "{told:?}");
    for (method, path, body) in [
        (Method::POST, "/workers", json!({ "_id": "Own::Dump", "engine": "http" })),
        (Method::POST, "/workers/import", json!([{ "_id": "Own::Dump", "worker": { "image": "i" } }])),
    ] {
        let told = call(&world, "admin", (method, path), body).await?;
        ensure!(is_refused(&told, "the node n1 has"), "{path}: {told:?}");
    }
    assert_eq!((put("Far").await?.0, put("My::Plugin").await?.0), (201, 201), "these are allowed anyway");
    world.database.drop_database().await
}

#[tokio::test]
async fn what_is_secret_in_an_imported_definition_is_for_administrators_alone() -> anyhow::Result<()> {
    let world = World::new().await?;
    let headers = json!({ "Authorization": SECRET });
    let definition = json!([{ "_id": "service", "worker": {
        "name": "Service", "engine": "webservice", "httpHeaders": headers, "template": {
            "parameters": { "rows": 5171 }, "httpHeaders": headers, "secureParameters": { "password": SECRET },
        },
    } }]);
    let (status, told) = call(&world, "admin", (Method::POST, "/workers/import"), definition).await?;
    ensure!(status == 200, "{told}");
    let workers = world.database.database.collection::<Document>("workers");
    let stored = workers.find_one(doc! {}).await?.context("nothing is stored")?;
    ensure!(!stored.to_string().contains("password"), "{stored}");
    // Others may have put some there.
    let secure = doc! { "$set": { "worker.template.secureParameters": { "password": SECRET } } };
    workers.update_one(doc! {}, secure).await?;
    let queue = json!({ "name": "service", "plugin": "service" });
    let (status, made) = call(&world, "operator", (Method::POST, "/queues"), queue).await?;
    ensure!(status == 200, "{made}");
    let id = made["id"]["$oid"].as_str().context("no id")?.to_owned();
    for path in [format!("/queues/{id}?tab=new"), format!("/schedules/new?queue={id}")] {
        let (status, html) = page(&world, "submitter", &path).await?;
        ensure!(status == 200 && html.contains("5171"), "{path} is not what it should be: {html}");
        ensure!(!html.contains(SECRET), "{path} shows a secret: {html}");
    }
    for path in ["/workers", "/workers/service"] {
        let (_, seen) = call(&world, "viewer", (Method::GET, path), Value::Null).await?;
        ensure!(seen.to_string().contains("5171") && !seen.to_string().contains(SECRET), "{seen}");
    }
    let (_, gone) = call(&world, "admin", (Method::DELETE, "/workers/service"), json!({})).await?;
    assert_eq!(gone["deleted"], true);
    let noted = entries(&world, doc! { "object.kind": "worker" }).await?;
    ensure!(noted.len() == 2 && !format!("{noted:?}").contains(SECRET), "{noted:?}");
    world.database.drop_database().await
}

/// How often the server was asked for all workers while the page of the plugins was asked for `times` times.
async fn reads(world: &World, times: usize) -> anyhow::Result<u64> {
    let database = &world.database.database;
    let profile = database.collection::<Document>("system.profile");
    profile.drop().await?;
    database.run_command(doc! { "profile": 2 }).await?;
    for _ in 0..times {
        let (status, html) = page(world, "viewer", "/plugins").await?;
        ensure!(status == 200, "{html}");
    }
    database.run_command(doc! { "profile": 0 }).await?;
    let of_workers = format!("{}.workers", database.name());
    let asked = profile.find(doc! { "ns": of_workers, "op": "command" }).await?;
    let asked: Vec<Document> = asked.try_collect().await?;
    // Whether something has changed is a sum; all of them come in an order.
    let begins_with = |stage: &str| {
        let first = |asked: &Document| {
            let pipeline = asked.get_document("command").and_then(|command| command.get_array("pipeline"));
            pipeline
                .is_ok_and(|stages| stages[0].as_document().is_some_and(|first| first.contains_key(stage)))
        };
        asked.iter().filter(|asked| first(asked)).count()
    };
    let looks = begins_with("$group");
    ensure!(looks >= times, "each has asked whether something has changed: {looks}");
    Ok(u64::try_from(begins_with("$sort"))?)
}

#[tokio::test]
async fn definitions_are_read_once_and_there_are_not_too_many() -> anyhow::Result<()> {
    let world = World::new().await?;
    let workers = world.database.database.collection::<Document>("workers");
    let many = (0..1_000).map(|n| doc! { "_id": format!("W{n}"), "engine": "http", "rev": 1_i64 });
    workers.insert_many(many).await?;
    assert_eq!(reads(&world, 5).await?, 1, "they have changed once");
    assert_eq!(reads(&world, 5).await?, 0);
    let too_many = "there may be 1000 workers, and this would make 1001";
    let one = json!({ "_id": "New", "engine": "http" });
    for (method, path, body) in [
        (Method::POST, "/workers", one.clone()),
        (Method::PUT, "/workers/New", json!({ "engine": "http" })),
        (Method::POST, "/workers/import", json!([{ "_id": "W5", "engine": "http" }, one])),
    ] {
        let (status, told) = call(&world, "admin", (method, path), body).await?;
        assert_eq!((status, told["error"].as_str()), (400, Some(too_many)), "{path}");
    }
    assert_eq!(workers.count_documents(doc! {}).await?, 1_000, "nothing is stored");
    let change = json!({ "engine": "http", "description": "another" });
    assert_eq!(call(&world, "admin", (Method::PUT, "/workers/W7"), change).await?.0, 200);
    assert_eq!(reads(&world, 3).await?, 1);
    let large = json!({ "engine": "http", "description": "x".repeat(200_000) });
    let mut stored = 0;
    let (status, told) = loop {
        let path = format!("/workers/W{stored}");
        let (status, told) = call(&world, "admin", (Method::PUT, path.as_str()), large.clone()).await?;
        if status != 200 {
            break (status, told);
        }
        stored += 1;
        ensure!(stored < 60, "nothing is too much");
    };
    ensure!(status == 400 && stored > 30, "{stored} were stored: {told}");
    let why = told["error"].as_str().unwrap_or_default();
    ensure!(why.starts_with("all workers together may have 8388608 bytes"), "{why}");
    world.database.drop_database().await
}

#[tokio::test]
async fn forms_without_script_make_change_and_delete_workers() -> anyhow::Result<()> {
    let world = World::new().await?;
    let form = async |path: &str, fields: &[(&str, &str)]| {
        let request = world.request(Method::POST, path, Some("admin")).header("accept", "text/html");
        let answer = request.form(fields).send().await?;
        let next =
            answer.headers().get("location").map(|next| next.to_str().map(str::to_owned)).transpose()?;
        anyhow::Ok((answer.status().as_u16(), next.unwrap_or_default(), answer.text().await?))
    };
    let then = (".then", "/workers");
    let text = "{ \"engine\": \"http\" }";
    let made = form("/workers", &[then, ("name", "My::Report"), ("definition", text)]).await?;
    assert_eq!((made.0, made.1.as_str()), (303, "/workers"));
    let path = "/ui/workers/My%3A%3AReport";
    let saved =
        form(path, &[then, (".rev", "1"), ("definition", "{ \"engine\": \"http\", \"version\": \"2\" }")])
            .await?;
    assert_eq!((saved.0, saved.1.as_str()), (303, "/workers"));
    let stale = form(path, &[then, (".rev", "1"), ("definition", text)]).await?;
    ensure!(stale.0 == 409 && stale.2.contains("its revision is 2"), "{stale:?}");
    let wrong = form(path, &[then, (".rev", "2"), ("definition", "{")]).await?;
    ensure!(wrong.0 == 400 && wrong.2.contains("the definition is not JSON"), "{wrong:?}");
    let gone = form(&format!("{path}/delete"), &[]).await?;
    assert_eq!((gone.0, gone.1.as_str()), (303, "/workers"));
    ensure!(page(&world, "admin", "/workers").await?.1.contains("There are no workers yet."));
    world.database.drop_database().await
}
