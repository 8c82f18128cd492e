//! The documents that the pages are made of. All of it is so far in the future that no clock of a server makes a difference.

use std::path::Path;

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::accounts::PasswordHash;
use mongodb::Database;

pub const PASSWORD: &str = "correct horse battery";

/// 2100-01-01T08:24:27.344Z
pub const AT: DateTime = DateTime::from_millis(4_102_475_067_344);

pub const MAIL: &str = "6b0003bb686c8275d70dc2f1";
pub const FAIR: &str = "6b0003bb686c8275d70dc2f2";
pub const GONE: &str = "6b0003bb686c8275d70dc2f3";
pub const NODE: &str = "6b0003b956635706337b691a";
pub const ARRAY: &str = "6b0003bb686c8275d8015555";

/// One in each state.
pub const TASKS: [&str; 8] = [
    "6b0003bb686c8275d8013300",
    "6b0003bb686c8275d8013301",
    "6b0003bb686c8275d8013302",
    "6b0003bb686c8275d8013303",
    "6b0003bb686c8275d8013304",
    "6b0003bb686c8275d8013305",
    "6b0003bb686c8275d8013306",
    "6b0003bb686c8275d8013307",
];

fn id(hex: &str) -> ObjectId {
    ObjectId::parse_str(hex).unwrap()
}

/// So many seconds before the time at which the pages are made.
fn ago(seconds: i64) -> DateTime {
    DateTime::from_millis(AT.timestamp_millis() - 1_000 * seconds)
}

/// Writes all of it into a new database, and the plugins of the host into a folder.
pub async fn fill(database: &Database, folder: &Path) {
    disbatch_core::store::Store::with_clock(
        database.clone(),
        std::sync::Arc::new(disbatch_core::clock::SystemClock),
    )
    .ensure_indexes()
    .await
    .unwrap();
    for (collection, documents) in [
        ("queues", queues()),
        ("nodes", nodes()),
        ("tasks", [tasks(), odd_tasks(), elements()].concat()),
        (
            "tasks_archive",
            vec![
                doc! { "_id": id("6b0003bb686c8275d8013200"), "queue": id(MAIL), "status": 1, "archived": AT },
            ],
        ),
        ("attempts", attempts()),
        ("arrays", arrays()),
        ("series", series()),
        ("workers", vec![worker()]),
        ("audit", [audit(), audit_of_anybody()].concat()),
        ("filesets", filesets()),
        ("filesets.entries", entries()),
        ("accounts.users", users()),
        ("accounts.tokens", tokens()),
        (
            "accounts.sessions",
            vec![doc! {
                "_id": id("6b0003bb686c8275d8016666"), "user": "ann", "created": ago(90), "seen": ago(5), "expires": AT,
                "idle_until": AT, "from": "10.0.0.7", "agent": "curl/8",
            }],
        ),
    ] {
        database.collection::<Document>(collection).insert_many(documents).await.unwrap();
    }
    for (name, manifest) in
        [("good", r#"{"name": "Host::Plugin", "version": "1.2", "command": ["./x"]}"#), ("bad", "{")]
    {
        let folder = folder.join("plugins").join(name);
        std::fs::create_dir_all(&folder).unwrap();
        std::fs::write(folder.join("plugin.json"), manifest).unwrap();
    }
}

fn queues() -> Vec<Document> {
    vec![
        doc! {
            "_id": id(MAIL), "name": "<mail>", "plugin": "My::Plugin", "threads": 2, "sort": "fifo", "timeout": 90,
            "max_attempts": 3, "backoff": { "base": 300.0 }, "retention": { "delete_after": 864_000 }, "on_orphan": "requeue",
            "nodes": { "labels": { "gpu": "yes" }, "names": ["one"] }, "index": ["params.to"], "rate": { "n": 5, "per": 60 },
        },
        doc! {
            "_id": id(FAIR), "name": "fair", "plugin": "Nobody::Has", "threads": 0, "policy": "fair", "tenant": "acme",
            "accepting": false, "reason": "<moved>", "weights": { "a": 3 }, "group_rate": { "n": 1 },
        },
        doc! { "_id": id(GONE), "paused": true, "sort": "odd", "threads": "many" },
    ]
}

fn nodes() -> Vec<Document> {
    vec![
        doc! {
            "_id": id(NODE), "node": "<vm>", "timestamp": AT, "seen": AT, "lease_ms": 30_000_i64, "instance": "i",
            "state": "alive", "running": 1_i64, "version": "4.1.0", "maxthreads": 8, "labels": { "gpu": "yes" },
            "addresses": { "private": ["10.0.0.5", "10.0.0.6"], "public": ["192.0.2.1"] }, "rival": "other",
            "plugins": ["My::Plugin", "<odd>"], "aside": 2_i64, "schedules": false, "serves": { "active": [1, 2] },
            "plugin_problems": [{ "plugin": "<Bad>", "why": "/p: EOF" }, { "why": "/q: gone" }],
            "stats": { "load": 0.5, "cpus": 2_i64, "memory": 8_589_934_592_i64, "memory_available": 2_147_483_648_i64 },
        },
        doc! {
            "_id": id("6b0003b956635706337b691b"), "node": "drained", "timestamp": AT, "seen": AT, "lease_ms": 30_000_i64,
            "instance": "j", "state": "draining", "draining": true, "running": 0_i64, "version": "4.1.0", "plugins": [],
            "serves": { "ignored": [1] }, "stats": { "load": 0.25 },
        },
        doc! {
            "_id": id("6b0003b956635706337b691c"), "node": "dead", "timestamp": DateTime::from_millis(0),
            "seen": DateTime::from_millis(0), "lease_ms": 30_000_i64, "instance": "k", "state": "dead", "version": "4.0.0",
            "hook": { "by": "n2", "outcome": "exit status: 3" },
        },
        doc! { "_id": id("6b0003b956635706337b691d"), "node": "perl", "timestamp": DateTime::from_millis(1_000), "maxthreads": Bson::Null },
    ]
}

fn entry(status: i32, seconds: i64) -> Document {
    doc! { "at": ago(seconds), "status": status, "attempt": 1, "node": "<vm>", "note": format!("note {status}") }
}

fn tasks() -> Vec<Document> {
    let [failed, waiting, running, deferred, _, succeeded, ..] = TASKS.map(id);
    let large = "x".repeat(70_000);
    vec![
        doc! {
            "_id": failed, "queue": id(MAIL), "status": 2, "node": "<vm>", "params": { "to": "<Ada>", "count": 4 },
            "ctime": ago(600), "run_at": ago(590), "started": ago(300), "mtime": ago(60), "attempt": 2, "max_attempts": 3,
            "failures": 1, "complete": false, "stdout": "so <far>\n\u{1b}[31mred", "stderr": "oh\n", "result": { "rows": 17 },
            "history": [entry(-2, 500), entry(-1, 400), entry(0, 300), entry(2, 60)], "odd": "<odd>", "timeout": 90,
            "exit": { "code": 3, "signal": 9, "reason": "why", "oom": true, "limit": "memory", "duration": 61.5, "cpu": 1.25, "peak_memory": 3_000_000_i64,
                "output": { "since": AT, "stdout": [0_i64, 0_i64, 61_000_i64, 9_i64], "stderr": [1_500_i64, 0_i64] } },
            "unique": "key", "group": "g", "priority": 7, "grace": 5, "deadline": AT, "has_secure_params": true,
            "cancel": { "by": "ann", "reason": "<why>" }, "locks": ["a", "b"], "after": [succeeded], "after_when": "finished",
            "dependents": true, "schedule": id(GONE),
            "tags": ["customer=7", "<odd>, too"],
            "files": { "input": { "name": "data", "version": 1, "patterns": ["a*"] }, "output": { "name": "out" } },
        },
        doc! {
            "_id": waiting, "queue": id(MAIL), "status": -4, "params": { "to": "Bob" }, "ctime": ago(50), "mtime": ago(50),
            "after": [failed, running, id(GONE)], "waiting_for": [running], "history": [], "after_when": "any",
        },
        doc! {
            "_id": running, "queue": id(MAIL), "status": 0, "node": "<vm>", "params": { "to": "Cyd" }, "attempt": 1,
            "ctime": ago(40), "started": AT, "mtime": AT, "progress": { "percent": 41.7, "message": "<half>" },
            "history": [entry(-1, 0), entry(0, 0)], "cancel": { "by": "ann", "reason": "<why>" }, "dependents": true,
            "steps": [
                { "name": "fetch", "status": 1, "started": ago(9), "ended": ago(4), "params": { "a": 1 }, "exit": { "code": 0 } },
                { "name": "<convert>", "plugin": "Other::Plugin", "status": 0, "started": AT, "message": "on it", "output_at": { "stdout": 12 } },
                { "name": "store", "status": -2 },
            ],
        },
        doc! {
            "_id": deferred, "queue": id(MAIL), "status": -7, "params": { "to": &large }, "ctime": ago(30), "run_at": AT,
            "mtime": ago(30), "attempt": 1, "external": { "since": ago(20), "heard": ago(10) },
        },
    ]
}

/// One that makes no sense, and some that do not wait for anything.
fn odd_tasks() -> Vec<Document> {
    let [.., odd, succeeded, queued, cancelled] = TASKS.map(id);
    let large = "x".repeat(70_000);
    vec![
        doc! { "_id": odd, "queue": "odd <queue>", "status": "done", "node": 5, "ctime": "soon", "result": &large, "parameters": [1] },
        doc! {
            "_id": succeeded, "queue": id(MAIL), "status": 1, "node": "perl", "params": {}, "ctime": ago(900), "mtime": ago(800),
            "complete": true, "stdout": format!("{large}\nthe end"), "dependents": true, "exit": { "code": 0, "duration": 0.5 },
            "array": { "id": id(ARRAY), "index": 9 }, "archived": ago(1),
        },
        doc! { "_id": queued, "queue": id(GONE), "status": -2, "params": { "to": "Dan" }, "ctime": ago(5), "mtime": ago(5) },
        doc! {
            "_id": cancelled, "queue": id("6b0003bb686c8275d70dc2ff"), "status": -5, "params": Bson::Null, "mtime": ago(3),
            "final_of": id(ARRAY), "steps": [{ "name": "only", "status": -2 }], "progress": { "percent": 5 },
        },
    ]
}

fn elements() -> Vec<Document> {
    let element = |index: i32, status: i32| {
        let array = ObjectId::parse_str(ARRAY).unwrap().bytes();
        let mut bytes = array;
        bytes[11] = bytes[11].wrapping_add(1 + u8::try_from(index).unwrap());
        doc! {
            "_id": ObjectId::from_bytes(bytes), "queue": id(MAIL), "status": status, "ctime": ago(700), "mtime": ago(700),
            "params": { "item": index }, "array": { "id": id(ARRAY), "index": index },
        }
    };
    vec![element(0, 1), element(1, 2), element(2, -5)]
}

fn attempts() -> Vec<Document> {
    vec![doc! {
        "_id": { "task": id(TASKS[0]), "attempt": 1 }, "task": id(TASKS[0]), "attempt": 1, "status": 2, "node": "<vm>",
        "started": ago(550), "ended": ago(520), "note": "<why>", "stdout": "x", "exit": { "code": 1, "duration": 30.0 },
    }]
}

fn arrays() -> Vec<Document> {
    vec![
        doc! {
            "_id": id(ARRAY), "queue": id(MAIL), "words": "0-3<1>", "count": 4, "next_index": 3, "cap": 2, "key": "item",
            "state": "open", "created": ago(700), "owner": "<ann>", "final": id(TASKS[7]), "final_when": "finished",
        },
        doc! {
            "_id": id("6b0003bb686c8275d8015500"), "queue": id("6b0003bb686c8275d70dc2ff"), "words": "1000", "count": 1_000,
            "next_index": 1_000, "key": "n", "state": "done", "created": ago(9_000), "ended": ago(8_000), "succeeded": true,
            "counts": [{ "status": 1_i64, "tasks": 1_000_i64 }],
        },
    ]
}

fn series() -> Vec<Document> {
    let minute = |minutes: i64| DateTime::from_millis((AT.timestamp_millis() / 60_000 - minutes) * 60_000);
    let of = |queue: Bson, minutes: i64, failed: i64| {
        doc! {
            "_id": { "queue": queue, "at": minute(minutes) }, "at": minute(minutes), "succeeded": 1_234_i64, "failed": failed,
            "other": failed, "wait_ms": 900_i64, "w5": 3_i64, "run_ms": 60_000_i64, "r32": 1_i64, "r5": 2_i64,
        }
    };
    let node = |minutes: i64, running: i64| {
        doc! {
            "_id": { "node": "<vm>", "at": minute(minutes) }, "at": minute(minutes), "running": running, "load": 0.5,
            "memory_available": 2_147_483_648_i64,
        }
    };
    let all =
        [(Bson::Null, 1, 4), (Bson::Null, 300, 0), (id(MAIL).into(), 1, 4_000), (id(MAIL).into(), 30, 0)];
    let mut documents: Vec<Document> = all.map(|(queue, minutes, failed)| of(queue, minutes, failed)).into();
    documents.extend([node(2, 3), node(40, 1), node(3_000, 2)]);
    documents
}

fn worker() -> Document {
    let address = doc! { "type": "object", "required": ["city"], "properties": {
        "city": { "type": "string" }, "zip": { "type": "string", "description": "<code>" },
    } };
    doc! {
        "_id": "My::Plugin", "engine": "http", "description": "<sends>", "version": "2.0", "rev": 1_i64,
        "http": { "url": "https://mail.example/send", "callback_auth": "none" },
        "template": { "params": { "name": "ada" }, "options": { "timeout": 60, "group": "<g>", "priority": 5 } },
        "params": { "type": "object", "required": ["name", "dry"], "$defs": { "address": address }, "properties": {
            "name": { "type": "string", "description": "who", "minLength": 2, "maxLength": 9, "pattern": "^[a-z-]+$" },
            "text": { "type": "string", "maxLength": 5000 },
            "day": { "type": "string", "format": "date" },
            "count": { "type": "integer", "minimum": 1, "maximum": 9, "default": 3 },
            "share": { "type": ["number", "null"], "exclusiveMinimum": 0, "multipleOf": 0.25 },
            "dry": { "type": "boolean", "default": true },
            "format": { "enum": ["webp", "<b>", 5], "default": "webp" },
            "colours": { "type": "array", "items": { "enum": ["red", "green"] } },
            "sizes": { "type": "array", "items": { "type": "integer", "minimum": 16 } },
            "to": { "$ref": "#/$defs/address" },
            "any": { "description": "whatever" },
        } },
    }
}

fn audited(seconds: i64, more: Document) -> Document {
    let number = u32::try_from(seconds).unwrap().to_be_bytes();
    let mut entry = doc! { "_id": ObjectId::from_parts(1, *b"audit", [number[1], number[2], number[3]]), "at": ago(seconds) };
    entry.extend(more);
    entry
}

fn audit() -> Vec<Document> {
    let by = |via: &str| doc! { "by": format!("ann by {via}"), "user": "ann", "via": via, "token_name": "<nightly>", "from": "10.0.0.1" };
    let with = |mut one: Document, other: Document| {
        one.extend(other);
        one
    };
    vec![
        audited(
            1,
            with(
                by("token"),
                doc! {
                    "what": "queue update", "object": { "kind": "queue", "id": id(MAIL), "name": "old" }, "queue": id(MAIL),
                    "before": { "threads": 1, "reason": "<x>" }, "after": { "threads": 2, "sort": "y".repeat(500), "name": "" },
                },
            ),
        ),
        audited(
            2,
            with(
                by("session"),
                doc! {
                    "what": "queue create", "object": { "kind": "queue", "id": id(ARRAY), "name": "gone" }, "queue": id(MAIL), "after": { "a": 1 },
                },
            ),
        ),
        audited(
            3,
            with(
                by("password"),
                doc! {
                    "what": "tasks submit", "object": { "kind": "queue", "id": id(MAIL) }, "tasks": [id(TASKS[0])], "count": 2_000_i64, "collection": "people",
                },
            ),
        ),
        audited(
            4,
            with(
                by("proxy"),
                doc! { "what": "files delete", "object": { "kind": "files", "name": "a b" }, "before": { "a": 1 } },
            ),
        ),
    ]
}

/// Entries of those who are not asked who they are.
fn audit_of_anybody() -> Vec<Document> {
    vec![
        audited(
            5,
            doc! {
                "by": "the REST API", "what": "bulk cancel ended", "reason": "<why>", "object": { "kind": "bulk", "id": id(ARRAY) },
                "filter": { "queue": id(MAIL), "status": [-2], "older_than": 60.0 }, "count": 5_000_i64, "state": "done",
                "done": 4_999_i64, "skipped": 1_i64,
            },
        ),
        audited(
            6,
            doc! { "by": "older", "what": "bulk retry", "job": id(ARRAY), "filter": { "queue": "*" } },
        ),
        audited(
            7,
            doc! { "by": 5, "what": "node update", "object": { "kind": "node", "name": "<vm>" }, "before": {}, "after": { "draining": true } },
        ),
        audited(8, doc! { "by": "x", "what": "balance update", "object": { "kind": "balance" } }),
        audited(9, doc! { "by": "x", "what": "odd", "object": { "kind": "odd", "name": "thing" } }),
        audited(
            10,
            doc! { "by": "x", "what": "worker create", "object": { "kind": "worker", "name": "My::Plugin" } },
        ),
    ]
}

fn filesets() -> Vec<Document> {
    let set = |number: u8, name: &str, version: i64| {
        doc! {
            "_id": ObjectId::from_bytes([number; 12]), "name": name, "version": version, "state": "done", "count": 2_i64,
            "bytes": 3_000_000_i64, "created": ago(400), "committed": ago(350),
        }
    };
    let mut newest = set(2, "data", 2);
    newest.extend(doc! { "by": "<ann>", "task": id(TASKS[0]), "tenant": "acme", "expires": AT });
    let mut old = set(1, "data", 1);
    old.extend(doc! { "by": "bob", "tenant": "acme" });
    vec![old, newest, set(3, "plain & simple", 1)]
}

fn entries() -> Vec<Document> {
    let hash = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
    let entry = |set: u8, path: &str| {
        doc! {
            "set": ObjectId::from_bytes([set; 12]), "path": path, "file": hash, "size": 1_536_i64, "mode": 0o644_i64, "mtime": ago(360),
        }
    };
    vec![entry(1, "a b/<c>.csv"), entry(1, "a/d"), entry(2, "a b/<c>.csv"), entry(2, "z")]
}

fn users() -> Vec<Document> {
    let password = PasswordHash::of(PASSWORD).unwrap();
    vec![
        doc! { "_id": "ann", "role": "admin", "grants": [], "created": ago(9_000), "password": password.as_stored() },
        doc! {
            "_id": "guest", "password": password.as_stored(), "grants": [
                { "queue": id(MAIL), "role": "submitter" }, { "queue": id(ARRAY), "role": "viewer" }, { "tenant": "acme", "role": "viewer" },
            ],
        },
        doc! { "_id": "proxied", "role": "viewer", "created": ago(8_000) },
    ]
}

fn tokens() -> Vec<Document> {
    let token = |number: u8, user: &str, more: Document| {
        let mut token = doc! { "_id": ObjectId::from_bytes([number; 12]), "user": user, "name": format!("<token {number}>"), "role": "viewer", "created": ago(500) };
        token.extend(more);
        token
    };
    vec![
        token(1, "ann", doc! { "expires": AT, "used": ago(100), "from": "10.0.0.9" }),
        token(2, "ann", doc! { "queues": [id(MAIL), id(ARRAY)] }),
        token(3, "ann", doc! { "expires": DateTime::from_millis(0) }),
        token(4, "guest", doc! {}),
    ]
}
