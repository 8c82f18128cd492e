//! What people did, what became of tasks, and what a moment of the past was like.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::{apply, skip_serializing_none};

use crate::Object;
use crate::liberal::{Flag, Text};

/// Something that was done, and by whom.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "key": "1795163067344-6b0003bb686c8275d8016666", "at": "2026-11-20T08:24:27", "by": "alice from 10.0.0.1",
    "user": "alice", "via": "session", "from": "10.0.0.1", "what": "queue update",
    "object": {"kind": "queue", "id": "6b0003bb686c8275d70dc2f1", "name": "mail"},
    "queue": "6b0003bb686c8275d70dc2f1", "before": {"threads": 2}, "after": {"threads": 4},
})))]
pub struct AuditEntry {
    /// Its place: `.after` or `.before` of another search.
    pub key: String,
    /// UTC, by the clock of the host that has recorded it.
    pub at: String,
    /// Who did it, and from where.
    pub by: String,
    /// The user's name; missing where nobody is asked.
    pub user: Option<String>,
    /// How they were recognised: `open` (nobody is asked), `session`, `password`, `token`, `proxy`, `command line`, or
    /// `refused`.
    pub via: Option<String>,
    /// The token that they were recognised by.
    pub token_name: Option<String>,
    /// The address that they came from; for the command line an account and a host.
    pub from: Option<String>,
    /// For a bulk job: `bulk` and its action, when it was made; the same and `ended` or `cancelled`.
    pub what: String,
    /// `kind`, and `id` and `name` if it has them. Missing in entries of older releases.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub object: Option<AuditObject>,
    /// The queue that it is about.
    pub queue: Option<String>,
    /// The fields that have changed, as they were.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub before: Option<Map<String, Value>>,
    /// The fields that have changed, as they are since.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub after: Option<Map<String, Value>>,
    /// Why, if that was said.
    pub reason: Option<String>,
    /// How many tasks were submitted, or matched a bulk job; how many logins were refused since the entry before.
    pub count: Option<u64>,
    /// The first tasks that were submitted.
    pub tasks: Option<Vec<String>>,
    /// The collection that tasks were made of.
    pub collection: Option<String>,
    /// The filter of a bulk job.
    pub filter: Option<Object>,
    /// The bulk job.
    pub job: Option<String>,
    /// The state of a bulk job that is over.
    pub state: Option<String>,
    /// How many tasks it has changed.
    pub done: Option<u64>,
    /// How many needed nothing, or could not be acted on.
    pub skipped: Option<u64>,
}

/// What something was done to.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AuditObject {
    pub kind: String,
    pub id: Option<String>,
    pub name: Option<String>,
}

/// Which entries.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct AuditSearch {
    /// What was done, or what that begins with: `queue` finds `queue update` too, and `bulk cancel` finds `bulk cancel ended`.
    /// `changes` finds all but logins, logouts and audits of counters.
    #[cfg_attr(feature = "openapi", param(example = "queue update"))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "TEXT"))]
    pub what: Option<String>,
    /// Text that `by` has somewhere.
    #[cfg_attr(feature = "cli", arg(long, value_name = "TEXT"))]
    pub by: Option<String>,
    /// A user's name.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub user: Option<String>,
    /// The queue that it is about, by name or id.
    #[cfg_attr(feature = "cli", arg(long, value_name = "QUEUE"))]
    pub queue: Option<String>,
    /// The kind of object: `queue`, `node`, `balance`, `task`, `bulk`, `user`, `token`, `session` or `counters`.
    #[cfg_attr(feature = "cli", arg(long, value_name = "KIND"))]
    pub object: Option<String>,
    /// The object's name.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub name: Option<String>,
    /// The id of anything that it is about: an object, a queue, a bulk job, or one of the first tasks of a submission.
    #[cfg_attr(feature = "openapi", param(pattern = "^[0-9a-f]{24}$"))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "ID"))]
    pub about: Option<String>,
    /// From this time on: a day as `2026-11-20`, ISO 8601, or seconds since 1970. UTC unless it has a zone.
    #[cfg_attr(feature = "openapi", param(example = "2026-11-20"))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "WHEN"))]
    pub from: Option<String>,
    /// Until before this time. A day is meant with all of it.
    #[cfg_attr(feature = "cli", arg(long, value_name = "WHEN"))]
    pub to: Option<String>,
    /// At most so many, the latest first: 100 unless given.
    #[serde(rename = ".limit")]
    #[cfg_attr(feature = "openapi", param(minimum = 1, maximum = 1000))]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub limit: Option<i64>,
    /// Those that are older than the one with this `key`.
    #[serde(rename = ".after")]
    #[cfg_attr(feature = "cli", arg(long, value_name = "KEY"))]
    pub after: Option<String>,
    /// Those that are newer than the one with this `key`, and next to it.
    #[serde(rename = ".before")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub before: Option<String>,
}

/// Which moment.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct MomentSearch {
    /// ISO 8601, UTC unless it has a zone, seconds since 1970, an age (`2h`), or an hour (`03:12`), which is the last one that was. Now unless given.
    #[cfg_attr(feature = "openapi", param(example = "2h"))]
    #[cfg_attr(feature = "cli", arg(value_name = "TIME"))]
    pub at: Option<String>,
    /// For how long before and after it: `90s`, `10m` or `2h`, up to 12 h. 5 minutes unless given.
    #[cfg_attr(feature = "openapi", param(example = "10m"))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "TIME"))]
    pub around: Option<String>,
    /// Of this queue only, by name or id.
    #[cfg_attr(feature = "openapi", param(example = "mail"))]
    #[cfg_attr(feature = "cli", arg(long))]
    pub queue: Option<String>,
    /// Of this node only.
    #[cfg_attr(feature = "cli", arg(long, value_name = "NAME"))]
    pub node: Option<String>,
}

/// What is known of a moment of the past.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "at": "2026-11-20T03:12:00Z", "from": "2026-11-20T03:07:00Z", "to": "2026-11-20T03:17:00Z", "running": [], "waiting": 0,
    "limits": [{"kind": "queue", "name": "mail", "settings": {"threads": 2}, "known": true}], "ran": [],
    "events": [{
        "at": "2026-11-20T03:12:05Z", "kind": "change", "words": "queue update mail: threads 2 → 4", "task": null,
        "queue": "6b0003bb686c8275d70dc2f1", "queue_name": "mail", "node": null, "schedule": null, "status": null, "by": "alice",
    }],
    "gaps": [],
})))]
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
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MomentLimits {
    /// `queue` or `node`.
    pub kind: String,
    /// Its name.
    pub name: String,
    /// Those that were set: `threads`, `paused`, `accepting`, `maxthreads`, `draining` and others.
    pub settings: Object,
    /// Whether the audit reaches back to the moment. If not, they may have been others.
    pub known: bool,
}

/// Something that happened.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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

/// Which events are wanted: all that is given must be so.
#[apply(Option<Text> => #[cfg_attr(feature = "openapi", param(value_type = Option<String>))])]
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct EventSearch {
    /// Of tasks of these queues, by name or id, with commas between them.
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>, example = "mail"))]
    pub queue: Option<Value>,
    /// Changes to these statuses, as numbers with commas between them.
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>, example = "2,-6"))]
    pub status: Option<Value>,
    /// Only ends of tasks.
    #[cfg_attr(feature = "openapi", param(value_type = Option<bool>))]
    pub ended: Option<Flag>,
    /// Of tasks that this schedule made, by name or id.
    pub schedule: Option<Text>,
    /// Of tasks of this group.
    pub group: Option<Text>,
    /// Of tasks of this tenant.
    pub tenant: Option<Text>,
    /// Of tasks with all of these tags, with commas between them.
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>, example = "customer=7"))]
    pub tags: Option<Value>,
    /// Of tasks with one of these tags.
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub any_tags: Option<Value>,
    /// What happened after the event with this id, for clients that cannot set the header, which goes before it.
    #[serde(rename = ".after")]
    pub after: Option<Text>,
}

/// A change of a task's status. What the task does not have is left out.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "id": "6b0003bb686c8275d8013333", "queue": "6b0003bb686c8275d70dc2f1", "queue_name": "mail", "status": 1,
    "word": "succeeded", "attempt": 1, "ended": true, "node": "worker1", "mtime": "2026-11-20T08:24:29",
})))]
pub struct TaskEvent {
    /// The task's id.
    pub id: String,
    /// The id of its queue.
    pub queue: Option<String>,
    /// What that is called now.
    pub queue_name: Option<String>,
    /// What it changed to.
    pub status: i64,
    /// The same in a word.
    pub word: String,
    /// The number of the attempt, from 1 on; 0 before the first.
    pub attempt: i64,
    /// Whether the task is over.
    pub ended: bool,
    /// The node that has it, or had it last.
    pub node: Option<String>,
    /// The id of the schedule that made it.
    pub schedule: Option<String>,
    /// Its group.
    pub group: Option<String>,
    /// Its tenant.
    pub tenant: Option<String>,
    /// Its tags.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tags: Vec<String>,
    /// When it changed.
    pub mtime: Option<String>,
}
