//! The pages of queues, nodes, QueueBalance and the audit, and what their forms do.

use std::collections::BTreeSet;

use anyhow::{Context, ensure};
use bson::oid::ObjectId;
use bson::{DateTime, Document, doc};
use reqwest::{Method, Response};
use serde_json::{Value, json};

use super::{World, until};

impl World {
    pub async fn page(&self, path: &str) -> anyhow::Result<String> {
        Ok(self.get(path, "identity").await?.text().await?)
    }

    async fn sent(&self, path: &str, form: &[(&str, &str)]) -> anyhow::Result<Response> {
        Ok(self.server.request(Method::POST, path).form(form).send().await?)
    }

    async fn json(&self, path: &str) -> anyhow::Result<Value> {
        let request = self.server.request(Method::GET, path);
        Ok(serde_json::from_str(&request.send().await?.error_for_status()?.text().await?)?)
    }
}

fn next(response: &Response) -> anyhow::Result<String> {
    let location = response.headers().get("location").context("it leads nowhere")?;
    Ok(location.to_str()?.to_owned())
}

#[tokio::test]
async fn programs_get_json_where_browsers_get_pages() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = format!("/queues/{}", world.queue);
    let node = doc! { "_id": ObjectId::new(), "node": "<vm>", "timestamp": DateTime::from_millis(0) };
    world.database.database.collection::<Document>("nodes").insert_one(&node).await?;
    let of_node = format!("/nodes/{}", node.get_object_id("_id")?);
    for path in ["/queues/%3Cmail%3E", &queue, "/nodes", "/nodes/%3Cvm%3E", &of_node, "/plugins", "/audit"] {
        let request = world.server.request(Method::GET, path).header("accept", "*/*");
        let answer = request.send().await?.error_for_status()?;
        assert_eq!(answer.headers()["content-type"], "application/json", "{path}");
        assert_eq!(answer.headers()["vary"], "Accept", "{path}");
        let html = world.page(path).await?;
        assert!(
            html.starts_with("<!DOCTYPE html>") && !html.contains("<mail>") && !html.contains("<vm>"),
            "{path}"
        );
    }
    let missing =
        world.server.request(Method::GET, "/queues/nosuch").header("accept", "text/html").send().await?;
    assert_eq!((missing.status().as_u16(), &missing.headers()["content-type"]), (404, &"text/html".parse()?));
    world.database.drop_database().await
}

#[tokio::test]
async fn tasks_are_made_by_forms_without_script() -> anyhow::Result<()> {
    let world = World::new().await?;
    let path = format!("/ui/queues/{}/tasks", world.queue);
    let then = (".then", "/");
    let one = world.sent(&path, &[then, ("json", "{\"to\": \"<you>\"}"), (".delay", "3600")]).await?;
    assert_eq!(one.status(), 303);
    let task = next(&one)?;
    assert_eq!(world.json(&task).await?["params"], json!({ "to": "<you>" }));
    let several = world.sent(&path, &[("json", "{\"a\":1}\n{\"b\":2}\n")]).await?;
    let several: Value = serde_json::from_str(&several.text().await?)?;
    assert_eq!((&several["count"], &several["said"]), (&json!(2), &json!("2 tasks are submitted.")));
    let wrong = world.sent(&path, &[then, ("json", "{\"a\":1}\n{")]).await?;
    assert_eq!(wrong.status(), 400);
    assert!(wrong.text().await?.contains("line 2 is not JSON"));
    let unknown = world.sent(&path, &[("/to", "you")]).await?;
    assert!(unknown.text().await?.contains("give them as JSON"), "this host does not have the plugin");
    let page = world.page(&format!("/queues/{}?{}", world.queue, task.replace("/tasks/", "task="))).await?;
    assert!(page.contains("&#34;to&#34; : &#34;&#60;you&#62;&#34;"), "{page}");
    world.database.drop_database().await
}

#[tokio::test]
async fn a_queue_is_changed_and_deleted_by_forms_without_script() -> anyhow::Result<()> {
    let world = World::new().await?;
    let path = format!("/queues/{}", world.queue);
    let form = [(".then", path.as_str()), ("backoff.base", "2"), ("backoff.max", ""), ("timeout", "90")];
    assert_eq!(world.sent(&path, &form).await?.status(), 303);
    let queue = world.json(&format!("{path}?.details=1")).await?;
    assert_eq!((&queue["backoff"]["base"], &queue["timeout"]), (&json!(2), &json!(90)));
    let mut told = world.server.request(Method::GET, &format!("/ui{path}")).send().await?;
    until(&mut told, "queue-statuses").await?;
    let change = [("paused", "true"), ("reason", "a <move>")];
    assert_eq!(world.sent(&path, &change).await?.status(), 200);
    until(&mut told, "as it is paused: a &#60;move&#62;").await?;
    let deleted = world.sent(&format!("/ui{path}/delete"), &[]).await?;
    assert_eq!((deleted.status().as_u16(), next(&deleted)?.as_str()), (303, "/"));
    until(&mut told, "event: trouble").await?;
    let again = world.sent(&format!("/ui{path}/delete"), &[]).await?;
    assert_eq!(again.status(), 400);
    assert!(again.text().await?.contains("<!DOCTYPE html>"));
    world.database.drop_database().await
}

#[tokio::test]
async fn a_form_overwrites_nothing_that_somebody_else_has_changed() -> anyhow::Result<()> {
    let world = World::new().await?;
    let path = format!("/queues/{}", world.queue);
    let change = async |fields: Value| -> anyhow::Result<(u16, Value)> {
        let answer = world.server.request(Method::POST, &path).json(&fields).send().await?;
        Ok((answer.status().as_u16(), answer.json().await?))
    };
    assert_eq!(change(json!({ "timeout": 60, "backoff": { "base": 2, "max": 9 } })).await?.0, 200);
    // A field that the form leaves as it is, and one that it changes, while somebody changes the first one.
    assert_eq!(change(json!({ "timeout": 90 })).await?.0, 200);
    let was = "{\"timeout\":\"60\",\"max_attempts\":\"\",\"backoff.base\":\"2\",\"backoff.max\":\"9\",\"plugin\":\"My::Gone\"}";
    let form = [
        (".then", path.as_str()),
        (".was", was),
        ("timeout", "60"),
        ("max_attempts", "5"),
        ("backoff.base", "2"),
        ("backoff.max", "9"),
        ("plugin", "My::Gone"),
    ];
    assert_eq!(world.sent(&path, &form).await?.status(), 303);
    let queue = world.json(&format!("{path}?.details=1")).await?;
    assert_eq!((&queue["timeout"], &queue["max_attempts"]), (&json!(90), &json!(5)), "{queue}");
    assert_eq!((&queue["backoff"]["max"], &queue["plugin"]), (&json!(9), &json!("My::Plugin")), "{queue}");
    // The same field.
    let (status, told) = change(json!({ "timeout": 120, ".was": { "timeout": 60 } })).await?;
    assert_eq!((status, &told["changed"]), (409, &json!({ "timeout": 90 })), "{told}");
    let says = "changed by somebody else meanwhile: timeout (now 90). Nothing is saved";
    assert_eq!(told["error"], says);
    let (status, told) = change(json!({ "timeout": 120, ".was": { "timeout": 90 } })).await?;
    assert_eq!(status, 200, "{told}");
    let (status, told) = change(json!({ "timeout": 120, ".was": { "timeout": 1 } })).await?;
    assert_eq!(
        (status, &told["MongoDB::UpdateResult"]["modified_count"]),
        (200, &json!(0)),
        "it is so already: {told}"
    );
    assert_eq!(change(json!({ "timeout": 1, ".was": 5 })).await?.0, 400);
    let mut wrong =
        world.sent(&path, &[(".then", "/"), (".was", "{\"timeout\":1}"), ("timeout", "7")]).await?;
    assert_eq!(wrong.status(), 409);
    let page = wrong.chunk().await?.context("no page")?;
    assert!(page.starts_with(b"<!DOCTYPE html>"));
    world.database.drop_database().await
}

#[tokio::test]
async fn a_reason_goes_when_its_queue_goes_on() -> anyhow::Result<()> {
    let world = World::new().await?;
    let path = format!("/queues/{}", world.queue);
    let reason = async |fields: Value| -> anyhow::Result<Value> {
        let change = world.server.request(Method::POST, &path).json(&fields);
        change.send().await?.error_for_status()?;
        Ok(world.json(&format!("{path}?.details=1")).await?["reason"].clone())
    };
    assert_eq!(reason(json!({ "paused": true, "accepting": false, "reason": "a move" })).await?, "a move");
    assert_eq!(reason(json!({ "paused": false })).await?, "a move", "it takes no tasks yet");
    assert_eq!(reason(json!({ "accepting": true })).await?, Value::Null);
    assert_eq!(reason(json!({ "paused": true, "reason": "again" })).await?, "again");
    assert_eq!(reason(json!({ "paused": null })).await?, Value::Null);
    let queues = world.database.database.collection::<Document>("queues");
    let queue = queues.find_one(doc! {}).await?.context("no queue")?;
    assert!(!queue.contains_key("reason") && !queue.contains_key("stopped"), "{queue}");
    world.database.drop_database().await
}

#[tokio::test]
async fn balance_is_checked_before_it_is_saved() -> anyhow::Result<()> {
    let world = World::new().await?;
    let check = |body: Value| world.server.request(Method::POST, "/ui/balance/check").json(&body).send();
    let times =
        json!([{ "day": "*", "time": "07:00", "most": "5" }, { "day": "0", "time": "x", "most": "5" }]);
    let wrong = check(json!({ "times": times, "tiers": [["gone"]], "default": ["<mail>"] })).await?;
    let wrong: Value = serde_json::from_str(&wrong.text().await?)?;
    let places: Vec<&str> =
        wrong["problems"].as_array().context("none")?.iter().filter_map(|p| p["at"].as_str()).collect();
    assert_eq!(places, ["times/1/time", "queues/gone"]);
    let right = check(json!({ "times": [times[0]], "default": ["<mail>"] })).await?;
    let right: Value = serde_json::from_str(&right.text().await?)?;
    assert_eq!(right["problems"], json!([]));
    ensure!(
        right["week"].as_str().is_some_and(|html| html.contains("5 tasks may run at any time.")),
        "{right}"
    );
    let saved = world.server.request(Method::POST, "/balance").json(&right["document"]).send().await?;
    assert_eq!(saved.status(), 200);
    let html = world.page("/balance").await?;
    assert!(html.contains("value=\"07:00\"") && html.contains("data-queue=\"&#60;mail&#62;\""), "{html}");
    world.database.drop_database().await
}

#[tokio::test]
async fn of_changes_made_from_the_same_settings_one_is_saved() -> anyhow::Result<()> {
    let world = World::new().await?;
    let balance = world.database.database.collection::<Document>("balance");
    let revision = async || {
        let html = world.page("/balance").await?;
        let revision = html.split("data-revision=\"").nth(1).and_then(|rest| rest.split('"').next());
        revision.map(str::to_owned).context("the page has no revision")
    };
    let save = |limit: i32, base: &str| {
        let body = json!({ "max_tasks": { "* 07:00": limit }, "queues": [["<mail>"]], ".base": base });
        world.server.request(Method::POST, "/ui/balance").json(&body).send()
    };
    // The first time there is no document, later there is one.
    for round in 0..3 {
        let seen = revision().await?;
        let answers = futures::future::try_join_all((0..8).map(|n| save(10 * round + n, &seen))).await?;
        let mut statuses: Vec<u16> = answers.iter().map(|answer| answer.status().as_u16()).collect();
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 409, 409, 409, 409, 409, 409, 409]);
        assert_eq!(balance.count_documents(doc! {}).await?, 1);
    }
    let seen = revision().await?;
    // What the loop writes, and a pause, are no other settings.
    balance
        .update_one(doc! {}, doc! { "$set": { "status": "OK", "message": "QueueBalance is running" } })
        .await?;
    assert_eq!(world.sent("/ui/balance/disable", &[("hours", "1")]).await?.status(), 200);
    assert_eq!(revision().await?, seen);
    let program = json!({ "max_tasks": { "* 08:00": 1 }, "queues": [] });
    let program = world.server.request(Method::POST, "/balance").json(&program).send().await?;
    assert_eq!(program.status(), 200);
    let refused = save(99, &seen).await?;
    assert_eq!(refused.status(), 409);
    assert!(refused.text().await?.contains("Load the page again"));
    assert_eq!(world.json("/balance").await?["max_tasks"], json!({ "* 08:00": 1 }));
    assert_eq!(save(99, &revision().await?).await?.status(), 200);
    world.database.drop_database().await
}

#[tokio::test]
async fn a_change_of_balance_is_taken_back_also_where_it_was_odd() -> anyhow::Result<()> {
    let world = World::new().await?;
    let post = async |body: Value| {
        let answer = world.server.request(Method::POST, "/ui/balance").json(&body).send().await?;
        let status = answer.status().as_u16();
        anyhow::Ok((status, serde_json::from_str::<Value>(&answer.text().await?)?))
    };
    let odd = json!({ "max_tasks": { "never": 5 }, "queues": [["gone"]] });
    let with = |mut body: Value, base: &Value, undo: bool| {
        body[".base"] = base.clone();
        body[".undo"] = undo.into();
        body
    };
    let (status, saved) = post(json!({ "max_tasks": {}, "queues": [], ".base": "" })).await?;
    assert_eq!(status, 200, "{saved}");
    assert_eq!(post(with(odd.clone(), &saved["revision"], false)).await?.0, 400);
    let (status, before) = post(with(odd.clone(), &saved["revision"], true)).await?;
    assert_eq!(status, 200, "{before}");
    assert_eq!(world.json("/balance").await?["queues"], json!([["gone"]]));
    assert_eq!(post(with(odd, &saved["revision"], true)).await?.0, 409);
    assert_eq!(post(json!({ "max_tasks": {}, "queues": [] })).await?.0, 400);
    world.database.drop_database().await
}

#[tokio::test]
async fn balance_is_paused_by_a_form_without_script() -> anyhow::Result<()> {
    let world = World::new().await?;
    let balance = world.database.database.collection::<Document>("balance");
    let odd = doc! { "max_tasks": { "never": 5 }, "queues": [["gone"]] };
    balance.insert_one(&odd).await?;
    let path = "/ui/balance/disable";
    let then = (".then", "/balance");
    let paused = world.sent(path, &[then, ("hours", "8"), ("until", "")]).await?;
    assert_eq!((paused.status().as_u16(), next(&paused)?.as_str()), (303, "/balance"));
    assert!(world.page("/balance").await?.contains("It does nothing until"));
    let stored = balance.find_one(odd.clone()).await?.context("something else was changed")?;
    ensure!(stored.contains_key("disabled"), "{stored}");
    let passed = world.sent(path, &[then, ("until", "2020-01-01T00:00")]).await?;
    assert_eq!(passed.status(), 400);
    let html = passed.text().await?;
    assert!(html.contains("<!DOCTYPE html>") && html.contains("this time has passed already"), "{html}");
    let again = world.sent(path, &[("enable", "1"), ("until", "")]).await?;
    let again: Value = serde_json::from_str(&again.text().await?)?;
    assert_eq!(again, json!({ "disabled": null, "said": "QueueBalance works again." }));
    assert!(world.page("/balance").await?.contains("It does not work, as it is switched off."));
    world.database.drop_database().await
}

#[tokio::test]
async fn a_tenant_has_limits_before_it_has_a_queue() -> anyhow::Result<()> {
    let world = World::new().await?;
    let limits = [("name", " <new> "), ("max_queued", "5"), ("max_per_day", ""), ("max_schedules", "")];
    let set = world.sent("/ui/tenants", &limits).await?;
    assert_eq!((set.status().as_u16(), next(&set)?.as_str()), (303, "/tenants"));
    assert_eq!(world.json("/tenants/%3Cnew%3E").await?["max_queued"], 5);
    let html = world.page("/tenants").await?;
    assert!(html.contains("&#60;new&#62;</h2>") && html.contains("action=\"/ui/tenants\""), "{html}");
    let nameless = world.sent("/ui/tenants", &[("max_queued", "5")]).await?;
    assert_eq!(nameless.status(), 400);
    assert!(nameless.text().await?.contains("a tenant&#39;s name has 1 to 200 characters"));
    world.database.drop_database().await
}

#[tokio::test]
async fn pages_of_the_audit_have_each_entry_once() -> anyhow::Result<()> {
    let world = World::new().await?;
    let entry = |number: i64| {
        // Many have the same time.
        let at = DateTime::from_millis(1_795_163_067_000 + number / 50);
        let by = if number % 2 == 0 { "the REST API from 10.0.0.1" } else { "(odd)" };
        doc! { "_id": ObjectId::new(), "at": at, "by": by, "what": "bulk cancel", "job": ObjectId::new() }
    };
    let entries: Vec<Document> = (0..250).map(entry).collect();
    world.database.database.collection::<Document>("audit").insert_many(&entries).await?;
    let jobs = |html: &str| -> Vec<String> {
        let rows = html.split("href=\"/bulk/").skip(1);
        rows.filter_map(|rest| rest.get(..24)).map(str::to_owned).collect()
    };
    let address = |html: &str, rel: &str| {
        let link = html.split(&format!("rel=\"{rel}\" href=\"")).nth(1)?.split('"').next()?;
        Some(link.replace("&#38;", "&"))
    };
    let (mut html, mut seen) = (world.page("/audit").await?, Vec::new());
    loop {
        seen.extend(jobs(&html));
        let Some(next) = address(&html, "next") else { break };
        html = world.page(&next).await?;
    }
    assert_eq!((seen.len(), seen.iter().collect::<BTreeSet<_>>().len()), (250, 250));
    let back = world.page(&address(&html, "prev").context("there is a page before")?).await?;
    assert_eq!(jobs(&back), seen[100..200]);
    assert_eq!(jobs(&world.page("/audit?by=%28odd").await?).len(), 100);
    assert_eq!(jobs(&world.page(&format!("/audit?about={}", seen[7])).await?), seen[7..8]);
    assert!(world.page("/audit?what=bulk+retry").await?.contains("No entry matches."));
    world.database.drop_database().await
}

#[tokio::test]
async fn about_tells_what_the_database_is() -> anyhow::Result<()> {
    let world = World::new().await?;
    let html = world.page("/about").await?;
    for part in [world.database.name.as_str(), "<code>queues</code>", "MongoDB", "No Disbatch nodes found"] {
        assert!(html.contains(part), "{part} is not in {html}");
    }
    world.database.drop_database().await
}
