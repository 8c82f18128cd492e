//! Which fields of documents are shown. Without the option `.details`, answers have what Disbatch has, and what a
//! client or a plugin put there by using something new; the rest is how this release works inside.

use bson::{Bson, Document};
use disbatch_core::fair::{Scheme, Settings};
use disbatch_core::model::{
    CANARY, CANARY_RETURNED, FILES, NODES, PLUGIN_VERSION, Policy, Queue, RECORD, Rules, SHADOW, Sort,
    VERSION,
};
use disbatch_core::node::HOLDERS;
use disbatch_core::plugin::VERSIONS;
use disbatch_core::rate::limit;
use disbatch_core::tags::INDEX;
use disbatch_core::task::history;
use serde_json::{Map, Value, json};

use crate::json::{Dates, from_bson};
use crate::ui::names::TITLE;

/// Fields of a task that are details.
const OF_TASK: [&str; 28] = [
    "again",
    "attempt",
    "awaited",
    "born",
    "dependents",
    "error",
    "exit",
    "failures",
    "freed",
    "gate",
    "group_slot",
    "held",
    "history",
    "holds_locks",
    "instance",
    "interrupt",
    "lease_until",
    "lock_round",
    "needs_lock",
    "pid",
    PLUGIN_VERSION,
    "reserved",
    "saves",
    "slot",
    "started",
    "uploads",
    "waiting_for",
    "wants_key",
];

/// Fields of a node that are details.
const OF_NODE: [&str; 26] = [
    "addresses",
    "aside",
    "attention",
    "draining",
    "engines",
    HOLDERS,
    "hook",
    "instance",
    "interrupt",
    "labels",
    "lease_ms",
    "plugin_problems",
    VERSIONS,
    "plugins",
    "rival",
    "running",
    "schedules",
    "seen",
    "serves",
    "shadow_plugins",
    "started",
    "state",
    "stats",
    "version",
    "wants",
    "workers",
];

/// What of a task is shown. Its history begins with its submission.
pub fn of_task(mut task: Document, details: bool) -> Document {
    if !details {
        without(&mut task, &OF_TASK);
    } else if let Some(history) = history(&task) {
        task.insert("history", history);
    }
    task
}

pub fn of_node(mut node: Document, details: bool) -> Document {
    if !details {
        without(&mut node, &OF_NODE);
    }
    node
}

/// The details of a queue: what applies to its tasks, with defaults for what is not set. Null is no limit, or
/// nothing.
pub fn of_queue(queue: &Queue) -> Map<String, Value> {
    let rules = Rules::of_queue(queue);
    let stored = |name: &str| queue.rest.get(name).map_or(Value::Null, |value| from_bson(value, Dates::Text));
    let details = json!({
        "accepting": queue.is_accepting(),
        CANARY: stored(CANARY),
        CANARY_RETURNED: stored(CANARY_RETURNED),
        "backoff": {
            "base": rules.backoff.base,
            "factor": rules.backoff.factor,
            "jitter": rules.backoff.jitter,
            "max": rules.backoff.max,
        },
        "files": stored(FILES),
        "grace": rules.grace.as_secs_f64(),
        "group_rate": stored(limit::OF_GROUPS),
        "index": stored(INDEX),
        "max_attempts": rules.max_attempts,
        "nodes": stored(NODES),
        "on_lost_lease": rules.on_lost_lease.as_str(),
        "on_orphan": rules.on_orphan.as_str(),
        "paused": queue.is_paused(),
        "rate": stored(limit::OF_QUEUE),
        RECORD: stored(RECORD),
        SHADOW: stored(SHADOW),
        "reason": queue.reason(),
        "retention": {
            "archive_after": retention(queue, "archive_after"),
            "delete_after": retention(queue, "delete_after"),
        },
        "sort": queue.sort_order().unwrap_or(Sort::Default).as_str(),
        "tenant": queue.tenant(),
        TITLE: stored(TITLE),
        "timeout": rules.timeout.map(|timeout| timeout.as_secs_f64()),
        "unleased_limit": stored("unleased_limit"),
        VERSION: stored(VERSION),
    });
    let mut all = Map::new();
    for details in [details, turns(queue)] {
        if let Value::Object(details) = details {
            all.extend(details);
        }
    }
    all
}

/// By what it is decided which task of a queue is next.
pub fn policy(queue: &Queue) -> &'static str {
    match queue.policy() {
        Policy::Fair => "fair",
        Policy::Priority => "priority",
        Policy::Sorted(Sort::Lifo) => "lifo",
        Policy::Sorted(Sort::Fifo | Sort::Default) => "fifo",
    }
}

/// By what it is decided whose turn it is in a queue: an object.
fn turns(queue: &Queue) -> Value {
    let settings = Settings::of(queue);
    let weights = queue.rest.get("weights").map_or(Value::Null, |weights| from_bson(weights, Dates::Text));
    json!({
        "group_threads": settings.group_threads,
        "half_life": settings.half_life().as_secs_f64(),
        "policy": policy(queue),
        "scheme": settings.scheme.as_ref().map(Scheme::times),
        "share": settings.share.as_str(),
        "weights": weights,
    })
}

fn retention(queue: &Queue, name: &str) -> Value {
    let retention = queue.rest.get("retention").and_then(Bson::as_document);
    let value = retention.and_then(|retention| retention.get(name));
    value.map_or(Value::Null, |value| from_bson(value, Dates::Text))
}

fn without(document: &mut Document, names: &[&str]) {
    for name in names {
        document.remove(name);
    }
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use bson::oid::ObjectId;

    use super::*;

    #[test]
    fn details_are_shown_to_those_who_ask() {
        let task = doc! {
            "_id": 1, "status": 1, "attempt": 2, "failures": 1, "instance": "i", "slot": 0, "pid": 7,
            "lease_until": 1, "started": 1, "history": [], "exit": {}, "result": {}, "run_at": 1, "uploads": [],
            "unique": "k", "error": "e", "interrupt": 2, "someone_elses": 1,
        };
        let shown: Vec<String> = of_task(task.clone(), false).into_iter().map(|(name, _)| name).collect();
        assert_eq!(shown, ["_id", "status", "result", "run_at", "unique", "someone_elses"]);
        assert_eq!(of_task(task.clone(), true), task);
        let node =
            doc! { "node": "n", "maxthreads": 1, "seen": 1, "state": "alive", "draining": true, "stats": {} };
        assert_eq!(of_node(node.clone(), false), doc! { "node": "n", "maxthreads": 1 });
        assert_eq!(of_node(node.clone(), true), node);
    }

    #[test]
    fn details_of_a_queue_have_their_defaults() {
        let queue = |fields: Document| {
            let mut queue = doc! { "_id": ObjectId::new(), "name": "q" };
            queue.extend(fields);
            of_queue(&bson::deserialize_from_document(queue).unwrap())
        };
        let plain = Value::Object(queue(doc! {}));
        let expected = json!({
            "accepting": true, "backoff": { "base": 1.0, "factor": 2.0, "jitter": 0.1, "max": 3600.0 },
            "canary": null, "canary_returned": null,
            "files": null, "grace": 10.0, "group_rate": null, "index": null, "max_attempts": null, "nodes": null, "on_lost_lease": "keep", "on_orphan": "fail", "paused": false,
            "rate": null, "reason": null, "record": null, "retention": { "archive_after": null, "delete_after": null }, "shadow": null, "sort": "default",
            "group_threads": null, "half_life": 3600.0, "policy": "fifo", "scheme": null, "share": "turns", "weights": null,
            "tenant": null, "timeout": null, "title": null, "unleased_limit": null, "version": null,
        });
        assert_eq!(plain, expected);
        let set = queue(doc! { "on_orphan": "requeue", "paused": true, "retention": { "delete_after": 5 } });
        assert_eq!((&set["on_lost_lease"], &set["paused"]), (&json!("stop"), &json!(true)));
        assert_eq!(set["retention"], json!({ "archive_after": null, "delete_after": 5 }));
        let fair = doc! { "policy": "fair", "scheme": [2, 1], "weights": { "a": 3 }, "group_threads": 2 };
        let fair = Value::Object(queue(fair));
        let told = ["policy", "scheme", "weights", "group_threads", "sort"].map(|name| fair[name].clone());
        assert_eq!(told, [json!("fair"), json!([2, 1]), json!({ "a": 3 }), json!(2), json!("default")]);
        assert_eq!(queue(doc! { "sort": "lifo" })["policy"], json!("lifo"));
        let limited = queue(doc! { "rate": { "n": 10, "per": 60 } });
        assert_eq!(limited["rate"], json!({ "n": 10, "per": 60 }));
    }
}
