//! The trace of whoever submits a task reaches its plugin.

mod spans;

use anyhow::Context;
use bson::{Document, doc};
use disbatch_core::model::TaskId;
use disbatch_tests::{Dci, Script, World};
use reqwest::Method;
use serde_json::{Value, json};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// Prints what it has of a trace in its environment, and in its task.
const TRACED: Script<'_> = Script {
    name: "Traced",
    text: "#!/usr/bin/env python3\nimport json, os, sys\ntask = json.load(sys.stdin)\n\
           names = ['TRACEPARENT', 'TRACESTATE', 'BAGGAGE']\n\
           print(json.dumps([[os.environ.get(name) for name in names], task.get('trace')]))\n\
           sys.exit(int(os.environ['DISBATCH_ATTEMPT']) < task['params'].get('until', 1))\n",
};

async fn submit(dci: &Dci, headers: &[(&str, &str)], params: Value) -> anyhow::Result<TaskId> {
    let mut request =
        dci.request(Method::POST, "/tasks").json(&json!({ "queue": "traced", "params": [params] }));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let answer: Value = request.send().await?.json().await?;
    let id = answer["MongoDB::InsertManyResult"]["inserted"][0]["_id"]["$oid"].as_str();
    Ok(id.with_context(|| answer.to_string())?.parse()?)
}

fn printed(task: &Document) -> anyhow::Result<Value> {
    Ok(serde_json::from_str(task.get_str("stdout")?)?)
}

#[tokio::test]
async fn a_plugin_is_told_of_the_trace_of_its_submission() -> anyhow::Result<()> {
    let world = World::new().await?;
    let queue = world.script_queue(TRACED, 1).await?;
    world
        .update_queue(
            queue,
            doc! { "name": "traced", "max_attempts": 2, "backoff": { "base": 0.01, "jitter": 0 } },
        )
        .await?;
    let dci = Dci::start(&world.config(), &world.path().join("dci.log")).await?;
    let all =
        [("traceparent", PARENT), ("tracestate", "a=b"), ("tracestate", "c=d"), ("baggage", "user=ann")];
    let traced = submit(&dci, &all, json!({ "until": 2 })).await?;
    let plain = submit(&dci, &[("baggage", "user=ann")], json!({ "a": 1 })).await?;
    let wrong =
        submit(&dci, &[("traceparent", "00-00-00-00"), ("tracestate", "a=b")], json!({ "a": 1 })).await?;
    let twice = submit(&dci, &[("traceparent", PARENT), ("traceparent", PARENT)], json!({ "a": 1 })).await?;
    let _den = world.den_at_work("n1").await?;

    let expected = json!([
        [PARENT, "a=b,c=d", "user=ann"],
        { "parent": PARENT, "state": "a=b,c=d", "baggage": "user=ann" },
    ]);
    let task = world.until_status(traced, 1).await?;
    assert_eq!(printed(&task)?, expected, "of the second attempt");
    let first = world.store().list_attempts(traced).await?;
    assert_eq!(printed(first.first().unwrap_or(&doc! {}))?, expected, "of the first");
    for task in [plain, wrong, twice] {
        let task = world.until_status(task, 1).await?;
        assert_eq!(printed(&task)?, json!([[null, null, null], null]), "{task}");
    }
    let seen = dci.get(&format!("/tasks/{traced}")).await?;
    assert_eq!(seen["trace"], expected[1], "{seen}");
    let seen = dci.get(&format!("/tasks/{plain}")).await?;
    assert!(seen.get("trace").is_none(), "{seen}");
    world.end().await
}
