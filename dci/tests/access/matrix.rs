//! Every route with every role, as docs/security.md has it; another test sees to it that this is what the routes need.

use anyhow::{Context, ensure};
use disbatch_core::accounts::{Grant, PasswordHash, Role, Scope};
use disbatch_core::model::{QueueId, Selector};
use reqwest::{Method, StatusCode};
use serde_json::json;

use crate::world::{MARKER, PASSWORD, World};

const DOCUMENTED: &str = include_str!("../../../docs/security.md");

struct Row {
    method: Method,
    path: String,
    need: String,
}

impl Row {
    /// The least role that gets through everywhere. None: no login is needed, or any is enough.
    fn role(&self) -> anyhow::Result<Option<Role>> {
        match self.need.split(' ').next() {
            Some("nothing" | "token" | "login") => Ok(None),
            Some(role) => role.parse::<Role>().map(Some).map_err(anyhow::Error::msg),
            None => anyhow::bail!("{} has no need", self.path),
        }
    }

    /// The address for a queue: with its id, and with a new task or job of it.
    async fn address(&self, world: &World, queue: QueueId) -> anyhow::Result<String> {
        let path = &self.path;
        let mut id = queue.0;
        if self.need.contains("task's queue") {
            id = world.task(queue).await?;
        } else if self.need.contains("array's queue") {
            id = world.array(queue).await?;
        } else if self.need.contains("job's queue") {
            id = world.job(queue).await?;
        } else if self.need.contains("schedule's queue") {
            id = world.schedule(queue).await?;
        }
        Ok(path
            .replace("{id}", &id.to_hex())
            .replace("{queue}", &queue.to_string())
            .replace("{node}", "vm")
            .replace("{tenant}", "acme")
            .replace("{name}", "holidays")
            .replace("{asset}", "app.css")
            .replace("{sha256}", &"0a".repeat(32))
            .replace("{n}", "0")
            .replace("{stream}", "stdout")
            .replace("{path}", "a")
            .replace("{collection}", "things"))
    }
}

fn rows() -> anyhow::Result<Vec<Row>> {
    let table = DOCUMENTED.split_once("<!-- routes -->").context("no table")?.1;
    let table = table.split_once("<!-- /routes -->").context("no end")?.0;
    let row = |line: &str| -> anyhow::Result<Row> {
        let (route, need) = line.trim_matches(['|', ' ']).split_once(" | ").context("no need")?;
        let (method, path) = route.trim_matches('`').split_once(' ').context("no path")?;
        Ok(Row { method: method.parse()?, path: path.to_owned(), need: need.to_owned() })
    };
    let rows: Vec<Row> = table.trim().lines().skip(2).map(row).collect::<anyhow::Result<_>>()?;
    ensure!(rows.len() > 60, "the table has only {} rows", rows.len());
    Ok(rows)
}

/// The answer's status. What follows a stream is not waited for.
async fn status(world: &World, row: &Row, path: &str, user: Option<&str>) -> anyhow::Result<StatusCode> {
    let request = world.request(row.method.clone(), path, user);
    let request = if row.method == Method::GET { request } else { request.json(&json!({})) };
    Ok(request.send().await?.status())
}

/// A queue of its own for those that may delete it.
async fn new_queue(world: &World, name: String) -> anyhow::Result<QueueId> {
    let queue = QueueId(bson::oid::ObjectId::new());
    world.store.insert_queue(bson::doc! { "_id": queue, "name": name, "plugin": "My::Plugin" }).await?;
    Ok(queue)
}

#[tokio::test]
async fn each_role_may_do_what_is_documented_and_nothing_else() -> anyhow::Result<()> {
    let world = World::new().await?;
    for (number, row) in rows()?.iter().enumerate() {
        let needed = row.role()?;
        for role in [None].into_iter().chain(Role::ALL.map(Some)) {
            let name = role.map_or("nobody", Role::as_str);
            let queue = new_queue(&world, format!("{number} {name}")).await?;
            let path = row.address(&world, queue).await?;
            let status = status(&world, row, &path, role.map(Role::as_str)).await?;
            let refused = match (row.need.as_str(), role) {
                ("nothing", _) => None,
                // No user has it, whatever their role.
                ("token of the task", _) => Some(StatusCode::UNAUTHORIZED),
                (_, None) => Some(StatusCode::UNAUTHORIZED),
                (_, role) => (role < needed).then_some(StatusCode::FORBIDDEN),
            };
            let is_right = match refused {
                Some(refused) => status == refused,
                // Logging out and in without a password is refused for other reasons.
                None if row.path == "/login" || row.path.starts_with("/account") => !status.is_server_error(),
                None => ![401, 403].contains(&status.as_u16()) && !status.is_server_error(),
            };
            ensure!(is_right, "{} {path} needs {}: {name} gets {status}", row.method, row.need);
        }
    }
    world.database.drop_database().await
}

#[tokio::test]
async fn who_may_see_one_queue_sees_nothing_of_others() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (task, job) = (world.task(world.other).await?, world.job(world.other).await?);
    // What is followed has tests of its own, as it does not end.
    let is_followed = |row: &Row| ["/events", "/ui/overview", "/ui/admission"].contains(&row.path.as_str());
    for row in rows()?.into_iter().filter(|row| !is_followed(row)) {
        let by_queue = row.need.contains("queue") && !row.need.contains("some queue");
        let path = row.address(&world, world.other).await?;
        let listed = [
            path.clone(),
            format!("{path}?queue={}", world.other),
            format!("{path}?.count=1"),
            format!("{path}?.order=id"),
            format!("{path}?status=2"),
            format!("{path}?id={task}"),
            format!("{path}?.text=zyxw"),
        ];
        let paths = if row.need.contains("some queue") { &listed[..] } else { &listed[..1] };
        for path in paths {
            for accept in ["application/json", "text/html"] {
                let request = world.request(row.method.clone(), path, Some("guest")).header("accept", accept);
                let body = json!({ "queue": world.other.to_string(), "params": [{ "a": 1 }], "ids": [job.to_hex()],
                    "filter": { "queue": world.other.to_string() }, "action": "cancel", ".preview": true });
                let request = if row.method == Method::GET { request } else { request.json(&body) };
                let answer = request.send().await?;
                let status = answer.status();
                let is_stream = answer
                    .headers()
                    .get("content-type")
                    .is_some_and(|kind| kind.as_bytes().starts_with(b"text/event-stream"));
                ensure!(!is_stream, "{} {path} is a stream for everybody", row.method);
                ensure!(!status.is_server_error(), "{} {path} is {status}", row.method);
                let text = answer.text().await?;
                ensure!(!text.contains(MARKER), "{} {path} ({accept}) tells: {text}", row.method);
                if by_queue {
                    ensure!(
                        [403, 404].contains(&status.as_u16()),
                        "{} {path} ({accept}) is {status}: {text}",
                        row.method
                    );
                }
            }
        }
    }
    let counted = world.request(Method::GET, "/tasks?.count=1", Some("guest")).send().await?.text().await?;
    assert_eq!(counted, r#"{"count":0}"#);
    let mine = world.task(world.mine).await?;
    let counted = world.request(Method::GET, "/tasks?.count=1", Some("guest")).send().await?.text().await?;
    assert_eq!(counted, r#"{"count":1}"#);
    let seen = world.request(Method::GET, &format!("/tasks/{mine}"), Some("guest")).send().await?;
    assert!(seen.status().is_success() && seen.text().await?.contains(MARKER));
    let queues = world.request(Method::GET, "/queues", Some("guest")).send().await?.text().await?;
    assert!(queues.contains("\"mine\""), "{queues}");
    world.database.drop_database().await
}

#[tokio::test]
async fn who_operates_one_queue_operates_no_other() -> anyhow::Result<()> {
    let world = World::new().await?;
    let (name, hash) = (World::name("foreman")?, PasswordHash::of(PASSWORD)?);
    let grant = Grant { scope: Scope::Queue(world.mine), role: Role::Operator };
    world.store.add_user(&name, None, &[grant], Some(&hash)).await?;
    world.job(world.other).await?;
    let of_other = |action: &str| json!({ "action": action, "filter": { "queue": world.other.to_string() } });
    let absent = json!({ "action": "cancel", "filter": { "queue": "6b0003bb686c8275d8013333" } });
    for accept in ["application/json", "text/html"] {
        for body in [of_other("nope"), of_other("cancel"), absent.clone(), json!({ "action": "nope" })] {
            let request = world.request(Method::POST, "/bulk", Some("foreman")).header("accept", accept);
            let answer = request.json(&body).send().await?;
            let status = answer.status();
            let text = answer.text().await?;
            ensure!(status.is_client_error() && !text.contains(MARKER), "{body}: {status} {text}");
        }
    }
    // A number is another name than the same as text: what was looked at is what is deleted.
    let five = new_queue(&world, "5".to_owned()).await?;
    let renamed = world.request(Method::POST, &format!("/queues/{}", world.mine), Some("foreman"));
    renamed.json(&json!({ "name": 5 })).send().await?.error_for_status()?;
    let deleted = world.request(Method::DELETE, "/queues/5", Some("foreman")).send().await?;
    ensure!(deleted.status() == StatusCode::NOT_FOUND, "{}", deleted.status());
    ensure!(world.store.find_queue(&Selector::Id(five.0)).await?.is_some(), "the other one was deleted");
    for (path, body) in [
        (format!("/queues/{}", world.mine), json!({ "plugin": "My::Plugin" })),
        (format!("/queues/{}", world.mine), json!({ "tenant": "mine" })),
        ("/tasks".to_owned(), json!({ "queue": "5", "params": [{ "a": 1 }] })),
    ] {
        let answer = world.request(Method::POST, &path, Some("foreman")).json(&body).send().await?;
        ensure!([400, 403].contains(&answer.status().as_u16()), "{path} {body}: {}", answer.status());
    }
    world.database.drop_database().await
}

#[tokio::test]
async fn a_queue_by_any_other_name_is_as_hidden() -> anyhow::Result<()> {
    let world = World::new().await?;
    let marker = MARKER.replacen('z', "%%37a", 1);
    let hex = world.other.to_string();
    let (first, rest) = hex.split_at(1);
    let names = [
        MARKER.to_owned(),
        marker,
        MARKER.replacen('z', "%7A", 1),
        format!("%3{first}{rest}"),
        format!("%%33{first}{rest}"),
    ];
    for name in names {
        for (method, path) in [
            (Method::GET, format!("/queues/{name}")),
            (Method::POST, format!("/queues/{name}")),
            (Method::DELETE, format!("/queues/{name}")),
            (Method::POST, format!("/tasks/{name}")),
        ] {
            let request =
                world.request(method.clone(), &path, Some("guest")).json(&json!([{ "threads": 5 }]));
            let answer = request.send().await?;
            let status = answer.status();
            let text = answer.text().await?;
            ensure!([403, 404].contains(&status.as_u16()), "{method} {path}: {status} {text}");
        }
    }
    ensure!(world.store.find_queue(&Selector::Id(world.other.0)).await?.is_some(), "it was deleted");
    world.database.drop_database().await
}
