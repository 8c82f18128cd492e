//! Schedules: tasks that are made again and again, by the clock.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use serde_with::{apply, skip_serializing_none};

use crate::Object;
use crate::liberal::{Flag, Seconds, Set, Text, When, Whole, given};

/// What to change of a schedule: any of the fields of a new one. Null takes one back to its default.
#[apply(
    Option<Set> => #[serde(default, deserialize_with = "given", skip_serializing_if = "Option::is_none")],
    Option<Set<String>> => #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))],
    Option<Set<Text>> => #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))],
    Option<Set<Value>> => #[cfg_attr(feature = "cli", arg(skip))],
    Option<Set<Seconds>> => #[cfg_attr(feature = "cli", arg(long, value_name = "TIME"))],
    Option<Set<When>> =>
        #[cfg_attr(feature = "openapi", schema(value_type = Option<Value>))]
        #[cfg_attr(feature = "cli", arg(long, value_name = "WHEN"))]
)]
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"cron": "30 2 * * *", "options": {"timeout": 3600}, ".rev": 1})))]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct ScheduleChange {
    /// A name that no other schedule has.
    #[cfg_attr(feature = "openapi", schema(min_length = 1, max_length = 200))]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub name: Option<Set<Text>>,
    /// The queue of its tasks, by name or id.
    #[cfg_attr(feature = "cli", arg(long))]
    pub queue: Option<Set<Text>>,
    /// When it makes tasks: an expression, or several. Without it, only when somebody asks for one.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Expressions>))]
    pub cron: Option<Set<Value>>,
    /// The time zone that this is meant in, as Europe/Berlin; `UTC` by default.
    #[cfg_attr(feature = "cli", arg(long))]
    pub zone: Option<Set<String>>,
    /// What becomes of times that the clock skips: `after` it, the default, or `skip`.
    #[cfg_attr(feature = "cli", arg(long, value_name = "WORD"))]
    pub gap: Option<Set<String>>,
    /// What becomes of times that the clock shows twice: `first`, the default, `last` or `both`.
    #[cfg_attr(feature = "cli", arg(long, value_name = "WORD"))]
    pub fold: Option<Set<String>>,
    /// Later by up to so many seconds.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>, minimum = 0, maximum = 86400))]
    pub jitter: Option<Set<Seconds>>,
    /// Not before: ISO 8601, or seconds since 1970.
    pub start: Option<Set<When>>,
    /// Not after, likewise.
    pub end: Option<Set<When>>,
    /// The calendars that it goes by.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<CalendarUse>>))]
    pub calendars: Option<Set<Value>>,
    /// What to do when an earlier task has not ended: `skip`, the default, `queue`, `allow` or `cancel`.
    #[cfg_attr(feature = "cli", arg(long, value_name = "WORD"))]
    pub overlap: Option<Set<String>>,
    /// How late times that were missed may be made up for, in seconds. 0, the default: only the newest, by up to a minute.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>, minimum = 0))]
    pub catch_up: Option<Set<Seconds>>,
    /// What its tasks get.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub params: Option<Set<Value>>,
    /// What else its tasks have: `timeout`, `grace`, `max_attempts`, `backoff`, `priority`, `group`, `locks`, `tags`, `steps` and `files`, as
    /// `POST /tasks` has them. Keys that are not given stay.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub options: Option<Set<Value>>,
    /// What only the plugin is told, as `POST /tasks` has it.
    #[serde(rename = ".secure_params", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub secure_params: Option<Object>,
    /// What it is for.
    #[cfg_attr(feature = "openapi", schema(max_length = 10000))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "TEXT"))]
    pub description: Option<Set<String>>,
    /// For whom its tasks are, if the queue is nobody's.
    #[cfg_attr(feature = "cli", arg(long))]
    pub tenant: Option<Set<Text>>,
    /// Whether it makes no tasks by itself yet.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<bool>))]
    #[cfg_attr(feature = "cli", arg(long, num_args = 0, default_missing_value = "true"))]
    pub paused: Option<Set<Flag>>,
    /// Only if it has this revision.
    #[serde(rename = ".rev", skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub rev: Option<i64>,
}

/// A new schedule. A form may have `options` one by one, as `options.timeout`, and calendars by their names, as
/// `calendars.exclude` and `calendars.only`.
#[cfg(feature = "openapi")]
#[derive(Serialize, utoipa::ToSchema)]
#[schema(example = json!({
    "name": "nightly", "queue": "mail", "cron": "0 3 * * *", "zone": "Europe/Berlin", "params": {"to": "all"},
}))]
pub struct NewSchedule {
    /// A name that no other schedule has.
    #[schema(min_length = 1, max_length = 200)]
    pub name: String,
    /// The queue of its tasks, by name or id.
    pub queue: String,
    #[serde(flatten)]
    pub others: ScheduleChange,
}

/// One expression, or several.
#[cfg(feature = "openapi")]
#[derive(Serialize, utoipa::ToSchema)]
#[serde(untagged)]
pub enum Expressions {
    /// One.
    One(String),
    /// Several.
    Several(Vec<String>),
}

/// How a schedule goes by a calendar.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"name": "holidays", "use": "exclude"})))]
pub struct CalendarUse {
    /// The calendar.
    pub name: String,
    /// `exclude`: not on its days; `only`: on no others.
    #[serde(rename = "use")]
    pub rule: Option<String>,
}

/// A schedule.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "id": "6b0003bb686c8275d8014444", "name": "nightly", "description": "", "queue": "6b0003bb686c8275d70dc2f1",
    "queue_name": "mail", "params": {"to": "all"}, "has_secure_params": false, "options": {}, "cron": ["0 3 * * *"],
    "zone": "Europe/Berlin", "gap": "after", "fold": "first", "jitter": 0, "start": null, "end": null, "calendars": [],
    "overlap": "skip", "catch_up": 0, "tenant": null, "owner": "alice", "paused": false, "next": "2026-11-21T02:00:00",
    "last": {
        "for": "2026-11-20T02:00:00", "task": "6b0003bb686c8275d8013333", "at": "2026-11-20T02:00:00",
        "outcome": "succeeded",
    },
    "counts": {"fired": 12, "skipped": 0},
    "last_success": {"start": "2026-11-20T02:00:01", "finish": "2026-11-20T02:03:10"}, "storage": null,
    "stored_for": null, "rev": 1, "created": "2026-11-08T08:24:27", "changed": "2026-11-08T08:24:27",
})))]
pub struct Schedule {
    pub id: String,
    pub name: String,
    pub description: String,
    /// The queue's id.
    pub queue: String,
    /// Its name; null if it is gone.
    pub queue_name: Option<String>,
    pub params: Object,
    pub has_secure_params: bool,
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub options: Map<String, Value>,
    pub cron: Vec<String>,
    pub zone: String,
    pub gap: String,
    pub fold: String,
    pub jitter: u64,
    /// UTC.
    pub start: Option<String>,
    /// UTC.
    pub end: Option<String>,
    pub calendars: Vec<CalendarUse>,
    pub overlap: String,
    pub catch_up: u64,
    pub tenant: Option<String>,
    /// Who has made it.
    pub owner: Option<String>,
    pub paused: bool,
    /// When it makes its next task, UTC; null if it is paused or makes no more.
    pub next: Option<String>,
    /// What became of the newest time.
    pub last: Option<LastTime>,
    pub counts: TimeCounts,
    /// The newest run that succeeded.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Object>))]
    pub last_success: Option<LastSuccess>,
    /// What the plugin has saved for its next run.
    pub storage: Option<Value>,
    /// The time of the task that has saved it.
    pub stored_for: Option<String>,
    /// It grows with each change of the settings.
    pub rev: i64,
    pub created: Option<String>,
    pub changed: Option<String>,
}

/// What became of a time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct LastTime {
    /// The time, UTC.
    #[serde(rename = "for")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub time: Option<String>,
    /// Its task, if it made one.
    pub task: Option<String>,
    /// When that was decided.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub at: Option<String>,
    /// `fired`, `skipped`, `missed`, `no queue`, `wrong params` or `refused`, and after the end of the task a word for its status.
    pub outcome: String,
    /// What is wrong with the parameters, if that is the outcome.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}

/// How many times there were.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct TimeCounts {
    /// Those that made a task.
    pub fired: i64,
    /// Those that were passed over.
    pub skipped: i64,
}

/// A run that succeeded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastSuccess {
    pub start: Option<String>,
    pub finish: Option<String>,
}

/// Which schedules are asked for.
#[apply(Option<Text> => #[cfg_attr(feature = "openapi", param(value_type = Option<String>))])]
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct ScheduleSearch {
    /// Those of this queue, by name or id.
    pub queue: Option<Text>,
    /// Those of this tenant.
    pub tenant: Option<Text>,
    /// Those that are paused, or those that are not.
    #[cfg_attr(feature = "openapi", param(value_type = Option<bool>))]
    pub paused: Option<Flag>,
    /// Those behind this name.
    #[serde(rename = ".after")]
    pub after: Option<Text>,
    /// At most so many.
    #[serde(rename = ".limit")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<i64>, minimum = 1, maximum = 1000))]
    pub limit: Option<Whole<1, 1000>>,
}

/// Which times are asked for.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct PreviewOptions {
    /// From this time on; from now on unless given.
    #[serde(rename = ".after")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub after: Option<When>,
    /// So many; 20 unless given.
    #[serde(rename = ".limit")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<i64>, minimum = 1, maximum = 1000))]
    pub limit: Option<Whole<1, 1000>>,
}

/// The next times.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "zone": "Europe/Berlin",
    "times": [{
        "at": "2027-03-28T01:00:00", "due": "2027-03-28T01:00:00", "local": "2027-03-28T03:00:00", "offset": "+02:00",
        "moved": true, "twice": false,
    }],
    "changes": [{"at": "2027-03-28T01:00:00", "before": "+01:00", "after": "+02:00"}],
})))]
pub struct SchedulePreview {
    pub zone: String,
    pub times: Vec<NextTime>,
    /// When the clock is changed meanwhile.
    #[cfg_attr(feature = "openapi", schema(value_type = Vec<Object>))]
    pub changes: Vec<ClockChange>,
}

/// A time to come.
#[apply(Option => #[cfg_attr(feature = "openapi", schema(value_type = String))])]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct NextTime {
    /// UTC.
    pub at: Option<String>,
    /// The same with its jitter.
    pub due: Option<String>,
    /// What the clocks of the zone show.
    pub local: Option<String>,
    /// By how much they are ahead of UTC.
    pub offset: Option<String>,
    /// Whether the clock skips the time that was meant, and this is right after it.
    pub moved: bool,
    /// Whether the clock shows it twice.
    pub twice: bool,
}

/// A change of the clock.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ClockChange {
    pub at: Option<String>,
    pub before: String,
    pub after: String,
}

/// A task that was made at once.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"id": "6b0003bb686c8275d8014444", "task": "6b0003bb686c8275d8013333"})))]
pub struct ScheduleRun {
    /// The schedule.
    pub id: String,
    /// The task.
    pub task: String,
}

/// The times whose tasks are to be made.
#[skip_serializing_none]
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"from": "2026-11-01", "to": "2026-11-08", ".preview": true})))]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct Backfill {
    /// From this time on: ISO 8601, a day, or seconds since 1970.
    #[cfg_attr(feature = "openapi", schema(value_type = Value))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "WHEN"))]
    pub from: When,
    /// Up to this one; now unless given.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Value>))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "WHEN"))]
    pub to: Option<When>,
    /// At most so many, the earliest first.
    #[cfg_attr(feature = "openapi", schema(value_type = Option<u32>, minimum = 1, maximum = 1000))]
    #[cfg_attr(feature = "cli", arg(id = "most", long, value_name = "N"))]
    pub limit: Option<Whole<1, 1000>>,
    /// Only say which times these are.
    #[serde(rename = ".preview")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<bool>))]
    #[cfg_attr(feature = "cli", arg(skip))]
    pub preview: Option<Value>,
}

/// The tasks that were made, or with `.preview` the times.
#[skip_serializing_none]
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({"count": 1, "tasks": ["6b0003bb686c8275d8013333"]})))]
pub struct Backfilled {
    #[cfg_attr(feature = "openapi", schema(value_type = u64))]
    pub count: usize,
    /// Their ids.
    pub tasks: Option<Vec<String>>,
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<Object>>))]
    pub times: Option<Vec<MissingTime>>,
}

/// A time that has no task.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MissingTime {
    pub at: Option<String>,
    pub local: Option<String>,
    pub offset: Option<String>,
}

/// Something that is gone.
#[derive(Debug, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = Deleted, example = json!({"id": "6b0003bb686c8275d8014444", "name": "nightly", "deleted": true})))]
pub struct ScheduleDeleted {
    pub id: String,
    pub name: String,
    pub deleted: bool,
}

/// Which runs are asked for.
#[derive(Debug, Clone, Default, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::IntoParams), into_params(parameter_in = Query))]
pub struct RunsSearch {
    /// At most so many, up to 1000; 50 by default.
    #[serde(rename = ".limit")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<i64>))]
    pub limit: Option<Whole<1, 1000>>,
    /// Those for times before this: ISO 8601, or seconds since 1970.
    #[serde(rename = ".before")]
    #[cfg_attr(feature = "openapi", param(value_type = Option<String>))]
    pub before: Option<When>,
}

/// Runs of a schedule, the latest first.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "runs": [{
        "task": "6b0003bb686c8275d8013333", "for": "2026-11-20T02:00:00Z", "status": 1, "word": "succeeded",
        "queue": "6b0003bb686c8275d70dc2f1", "node": "worker1", "started": "2026-11-20T02:00:01",
        "ended": "2026-11-20T02:03:10", "asked_for": false,
    }],
    "next": null,
})))]
pub struct RunsOfSchedule {
    pub runs: Vec<RunOfSchedule>,
    /// What `.before` has to be for those before them; null if there are none.
    pub next: Option<String>,
}

/// A task of a schedule.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct RunOfSchedule {
    /// Its id.
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub task: Option<String>,
    /// The time that it is for.
    #[serde(rename = "for")]
    #[cfg_attr(feature = "openapi", schema(value_type = String))]
    pub time: Option<String>,
    /// Its status.
    pub status: Option<i64>,
    /// The word for that.
    pub word: Option<String>,
    /// Its queue.
    pub queue: Option<String>,
    /// Where it runs or has run.
    pub node: Option<String>,
    /// When it started.
    pub started: Option<String>,
    /// When it ended; null if it has not.
    pub ended: Option<String>,
    /// Whether somebody has asked for it, and not its time has come.
    pub asked_for: bool,
}
