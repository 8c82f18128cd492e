//! Why a queue does not move, why a task does not run, and whether all is well.

use serde::{Deserialize, Serialize};

/// What holds the first task of a queue that waits.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "id": "6b0003bb686c8275d70dc2f1", "name": "mail", "gate": "plugin",
    "summary": "No node can claim it. n1: it does not have the plugin My::Mail.", "head": "6b0003bb686c8275d8013333",
    "running": 0, "threads": 4, "next": null,
    "nodes": [{ "node": "n1", "able": false, "why": ["it does not have the plugin My::Mail"] }],
})))]
pub struct QueueExplanation {
    /// The queue's id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// What holds its head, in a word: `none`, `empty` (no task waits), `paused`, `limit`, `rate`, `nodes`, `plugin`, `deferred`,
    /// `admission`, `lock`, `dependency` or `blocked`.
    pub gate: String,
    /// The same in a sentence.
    pub summary: String,
    /// The id of the head: the first task that can be claimed; where there is none, one that is blocked or deferred.
    pub head: Option<String>,
    /// How many of its tasks are claimed or running.
    pub running: u64,
    /// How many may be.
    pub threads: u64,
    /// When the gate opens, if that is known: when the rate allows the next start, or the time of a deferred task.
    pub next: Option<String>,
    /// The nodes whose DENs are alive. Null if no task waits, and for those who may not look at all queues.
    pub nodes: Option<Vec<NodeChance>>,
}

/// A node, and whether it could claim the head of a queue.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NodeChance {
    /// Its name.
    pub node: String,
    /// Whether it could.
    pub able: bool,
    /// What keeps it from that.
    pub why: Vec<String>,
}

/// Why a task does not run, or how it does.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "id": "6b0003bb686c8275d8013333", "status": -2, "word": "queued", "summary": "The queue mail is paused.",
    "gates": [
        {"gate": "status", "open": true, "text": "The task is queued."},
        {"gate": "queue_paused", "open": false, "text": "The queue mail is paused."},
    ],
})))]
pub struct Explained {
    pub id: String,
    pub status: i64,
    /// The status in a word.
    pub word: String,
    /// The first gate that is closed, or what is going on.
    pub summary: String,
    /// What the task has to pass to run.
    pub gates: Vec<Gate>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Gate {
    /// Its name.
    #[serde(rename = "gate")]
    pub name: String,
    /// Whether the task may pass.
    pub open: bool,
    /// Why, in a sentence.
    pub text: String,
}

impl Gate {
    /// The name of the gates of single nodes, of which one that is open is enough.
    pub const NODE: &str = "node";

    /// Something that a task has to pass to run, or that is to be known of its run. `name` is the same in every release.
    pub fn new(name: &str, open: bool, text: impl Into<String>) -> Self {
        Self { name: name.to_owned(), open, text: text.into() }
    }

    /// Whether it keeps the task from running.
    pub fn is_closed(&self) -> bool {
        !self.open && self.name != Self::NODE
    }
}

/// What was found out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "level": "warning",
    "findings": [
        {"check": "database", "level": "ok", "subject": null, "text": "MongoDB 6.0.5, replica set rs0", "advice": null},
        {"check": "clocks", "level": "warning", "subject": "worker1", "text": "its clock is 4.2 s ahead of the database's",
         "advice": "Have NTP set the clock of this host."},
    ],
})))]
pub struct Diagnosis {
    /// The worst of all: `ok`, `warning` or `error`.
    pub level: String,
    /// In the order of the checks; of each check at least one.
    pub findings: Vec<Finding>,
}

/// What one check has found.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Finding {
    /// What was looked at: `database`, `replica_set`, `rights`, `indexes`, `disk`, `clocks`, `nodes`, `versions`, `plugins`, `queues`,
    /// `schedules` or `users`.
    pub check: String,
    /// `ok`, `warning`, `error`, or `skipped` if it could not be found out.
    pub level: String,
    /// The node, queue, schedule, index or collection.
    pub subject: Option<String>,
    /// What is so.
    pub text: String,
    /// What to do about it.
    pub advice: Option<String>,
}
