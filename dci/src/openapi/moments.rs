//! What a moment of the past looks like.

use serde::Serialize;
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

/// Which moment.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
#[expect(dead_code, reason = "types that only describe are never made")]
pub struct MomentSearch {
    /// ISO 8601, UTC unless it has a zone, seconds since 1970, an age (`2h`), or an hour (`03:12`), which is the last one that was. Now unless given.
    #[param(example = "2h")]
    at: Option<String>,
    /// For how long before and after it: `90s`, `10m` or `2h`, up to 12 h. 5 minutes unless given.
    #[param(example = "10m")]
    around: Option<String>,
    /// Of this queue only, by name or id.
    #[param(example = "mail")]
    queue: Option<String>,
    /// Of this node only.
    node: Option<String>,
}

/// What is known of a moment of the past.
#[derive(Debug, Serialize, ToSchema)]
#[schema(example = json!({
    "at": "2026-11-20T03:12:00Z", "from": "2026-11-20T03:07:00Z", "to": "2026-11-20T03:17:00Z", "running": [], "waiting": 0,
    "limits": [{"kind": "queue", "name": "mail", "settings": {"threads": 2}, "known": true}], "ran": [],
    "events": [{
        "at": "2026-11-20T03:12:05Z", "kind": "change", "words": "queue update mail: threads 2 → 4", "task": null,
        "queue": "6b0003bb686c8275d70dc2f1", "queue_name": "mail", "node": null, "schedule": null, "status": null, "by": "alice",
    }],
    "gaps": [],
}))]
pub struct Moment {
    /// The moment: ISO 8601, UTC.
    pub at: String,
    /// The beginning of the span around it.
    pub from: String,
    /// Its end.
    pub to: String,
    /// The attempts that ran at the moment.
    pub running: Vec<RanThen>,
    /// How many tasks waited at the moment; null of a node, as tasks wait in queues.
    pub waiting: Option<u64>,
    /// What limits queues and nodes had at the moment.
    pub limits: Vec<MomentLimits>,
    /// The attempts that ran within the span, those that began first the first.
    pub ran: Vec<RanThen>,
    /// What happened, in the order of time: up to 1,000 of those next to the moment.
    pub events: Vec<MomentEvent>,
    /// What is not told, in words.
    pub gaps: Vec<String>,
}

/// An attempt that ran.
#[derive(Debug, Serialize, ToSchema)]
pub struct RanThen {
    /// The task's id.
    pub task: String,
    /// The id of its queue.
    pub queue: Option<String>,
    /// Its name, if it is still there.
    pub queue_name: Option<String>,
    /// Where it ran.
    pub node: Option<String>,
    /// Which attempt it was, counted from 1.
    pub attempt: Option<i64>,
    /// When it began to run.
    pub since: String,
    /// When it was over; null while it runs.
    pub until: Option<String>,
    /// The status of its task then: one that was tried again waited.
    pub then: Option<i64>,
    /// What the task's history says of that.
    pub note: String,
}

/// What limits a queue or a node had.
#[derive(Debug, Serialize, ToSchema)]
pub struct MomentLimits {
    /// `queue` or `node`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Those that were set: `threads`, `paused`, `accepting`, `maxthreads`, `draining` and others.
    #[schema(value_type = Object)]
    pub settings: Value,
    /// Whether the audit reaches back to the moment. If not, they may have been others.
    pub known: bool,
}

/// Something that happened.
#[derive(Debug, Serialize, ToSchema)]
pub struct MomentEvent {
    /// When: ISO 8601, UTC.
    pub at: String,
    /// `task`, `node`, `change` or `schedule`.
    pub kind: String,
    /// What happened.
    pub words: String,
    /// The task that it is about.
    pub task: Option<String>,
    /// The queue that it is about.
    pub queue: Option<String>,
    /// Its name, if it is still there.
    pub queue_name: Option<String>,
    /// The node that it is about.
    pub node: Option<String>,
    /// The schedule that made the task.
    pub schedule: Option<String>,
    /// The status of the task from then on.
    pub status: Option<i64>,
    /// Who did it.
    pub by: Option<String>,
}
