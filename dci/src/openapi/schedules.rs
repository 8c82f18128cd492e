//! What schedules look like. These types are never made: they only describe.

use serde_json::{Map, Value};
use utoipa::{IntoParams, ToSchema};

/// A new schedule. A form may have `options` one by one, as `options.timeout`, and calendars by their names, as
/// `calendars.exclude` and `calendars.only`.
#[derive(ToSchema)]
#[schema(example = json!({
    "name": "nightly", "queue": "mail", "cron": "0 3 * * *", "zone": "Europe/Berlin", "params": {"to": "all"},
}))]
pub struct NewSchedule {
    /// A name that no other schedule has.
    #[schema(min_length = 1, max_length = 200)]
    name: String,
    /// The queue of its tasks, by name or id.
    queue: String,
    /// When it makes tasks: an expression, or several. Without it, only when somebody asks for one.
    cron: Option<Expressions>,
    /// The time zone that this is meant in; `UTC` by default.
    zone: Option<String>,
    /// What becomes of times that the clock skips: `after` it, the default, or `skip`.
    gap: Option<String>,
    /// What becomes of times that the clock shows twice: `first`, the default, `last` or `both`.
    fold: Option<String>,
    /// Later by up to so many seconds.
    #[schema(minimum = 0, maximum = 86400)]
    jitter: Option<u32>,
    /// Not before: ISO 8601, or seconds since 1970.
    start: Option<Value>,
    /// Not after, likewise.
    end: Option<Value>,
    /// The calendars that it goes by.
    calendars: Option<Vec<CalendarUse>>,
    /// What to do when an earlier task has not ended: `skip`, the default, `queue`, `allow` or `cancel`.
    overlap: Option<String>,
    /// How late times that were missed may be made up for, in seconds. 0, the default: only the newest, by up to a minute.
    #[schema(minimum = 0)]
    catch_up: Option<u32>,
    /// What its tasks get.
    #[schema(value_type = Option<Object>)]
    params: Option<Map<String, Value>>,
    /// What else its tasks have: `timeout`, `grace`, `max_attempts`, `backoff`, `priority`, `group`, `locks`, `steps` and `files`, as
    /// `POST /tasks` has them.
    #[schema(value_type = Option<Object>)]
    options: Option<Map<String, Value>>,
    /// What only the plugin is told, as `POST /tasks` has it.
    #[schema(rename = ".secure_params", value_type = Option<Object>)]
    secure_params: Option<Map<String, Value>>,
    /// What it is for.
    #[schema(max_length = 10000)]
    description: Option<String>,
    /// For whom its tasks are, if the queue is nobody's.
    tenant: Option<String>,
    /// Whether it makes no tasks by itself yet.
    paused: Option<bool>,
}

/// What to change of a schedule: any of the fields of a new one. Null takes one back to its default.
#[derive(ToSchema)]
#[schema(example = json!({"cron": "30 2 * * *", "options": {"timeout": 3600}, ".rev": 1}))]
pub struct ScheduleChange {
    name: Option<String>,
    queue: Option<String>,
    cron: Option<Expressions>,
    zone: Option<String>,
    gap: Option<String>,
    fold: Option<String>,
    jitter: Option<u32>,
    start: Option<Value>,
    end: Option<Value>,
    calendars: Option<Vec<CalendarUse>>,
    overlap: Option<String>,
    catch_up: Option<u32>,
    #[schema(value_type = Option<Object>)]
    params: Option<Map<String, Value>>,
    /// Keys that are not given stay.
    #[schema(value_type = Option<Object>)]
    options: Option<Map<String, Value>>,
    #[schema(rename = ".secure_params", value_type = Option<Object>)]
    secure_params: Option<Map<String, Value>>,
    description: Option<String>,
    tenant: Option<String>,
    paused: Option<bool>,
    /// Only if it has this revision.
    #[schema(rename = ".rev")]
    rev: Option<i64>,
}

/// One expression, or several.
#[derive(serde::Serialize, ToSchema)]
#[serde(untagged)]
pub enum Expressions {
    /// One.
    One(String),
    /// Several.
    Several(Vec<String>),
}

/// How a schedule goes by a calendar.
#[derive(ToSchema)]
#[schema(example = json!({"name": "holidays", "use": "exclude"}))]
pub struct CalendarUse {
    /// The calendar.
    name: String,
    /// `exclude`: not on its days; `only`: on no others.
    #[schema(rename = "use")]
    rule: Option<String>,
}

/// A schedule.
#[derive(ToSchema)]
#[schema(example = json!({
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
}))]
pub struct Schedule {
    id: String,
    name: String,
    description: String,
    /// The queue's id.
    queue: String,
    /// Its name; null if it is gone.
    queue_name: Option<String>,
    #[schema(value_type = Object)]
    params: Map<String, Value>,
    has_secure_params: bool,
    #[schema(value_type = Object)]
    options: Map<String, Value>,
    cron: Vec<String>,
    zone: String,
    gap: String,
    fold: String,
    jitter: u64,
    /// UTC.
    start: Option<String>,
    /// UTC.
    end: Option<String>,
    calendars: Vec<CalendarUse>,
    overlap: String,
    catch_up: u64,
    tenant: Option<String>,
    /// Who has made it.
    owner: Option<String>,
    paused: bool,
    /// When it makes its next task, UTC; null if it is paused or makes no more.
    next: Option<String>,
    /// What became of the newest time.
    last: Option<LastTime>,
    counts: TimeCounts,
    /// The newest run that succeeded.
    #[schema(value_type = Option<Object>)]
    last_success: Option<Value>,
    /// What the plugin has saved for its next run.
    storage: Option<Value>,
    /// The time of the task that has saved it.
    stored_for: Option<String>,
    /// It grows with each change of the settings.
    rev: i64,
    created: Option<String>,
    changed: Option<String>,
}

/// What became of a time.
#[derive(ToSchema)]
pub struct LastTime {
    /// The time, UTC.
    #[schema(rename = "for")]
    time: String,
    /// Its task, if it made one.
    task: Option<String>,
    /// When that was decided.
    at: String,
    /// `fired`, `skipped`, `missed`, `no queue`, `wrong params` or `refused`, and after the end of the task a word for its status.
    outcome: String,
    /// What is wrong with the parameters, if that is the outcome.
    why: Option<String>,
}

/// How many times there were.
#[derive(ToSchema)]
pub struct TimeCounts {
    /// Those that made a task.
    fired: i64,
    /// Those that were passed over.
    skipped: i64,
}

/// Which schedules are asked for.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct ScheduleSearch {
    /// Those of this queue, by name or id.
    queue: Option<String>,
    /// Those of this tenant.
    tenant: Option<String>,
    /// Those that are paused, or those that are not.
    paused: Option<bool>,
    /// Those behind this name.
    #[param(rename = ".after")]
    after: Option<String>,
    /// At most so many.
    #[param(rename = ".limit", minimum = 1, maximum = 1000)]
    limit: Option<i64>,
}

/// Which times are asked for.
#[derive(IntoParams)]
#[into_params(parameter_in = Query)]
pub struct PreviewOptions {
    /// From this time on; from now on unless given.
    #[param(rename = ".after")]
    after: Option<String>,
    /// So many; 20 unless given.
    #[param(rename = ".limit", minimum = 1, maximum = 1000)]
    limit: Option<i64>,
}

/// The next times.
#[derive(ToSchema)]
#[schema(example = json!({
    "zone": "Europe/Berlin",
    "times": [{
        "at": "2027-03-28T01:00:00", "due": "2027-03-28T01:00:00", "local": "2027-03-28T03:00:00", "offset": "+02:00",
        "moved": true, "twice": false,
    }],
    "changes": [{"at": "2027-03-28T01:00:00", "before": "+01:00", "after": "+02:00"}],
}))]
pub struct SchedulePreview {
    zone: String,
    times: Vec<NextTime>,
    /// When the clock is changed meanwhile.
    #[schema(value_type = Vec<Object>)]
    changes: Vec<Value>,
}

/// A time to come.
#[derive(ToSchema)]
pub struct NextTime {
    /// UTC.
    at: String,
    /// The same with its jitter.
    due: String,
    /// What the clocks of the zone show.
    local: String,
    /// By how much they are ahead of UTC.
    offset: String,
    /// Whether the clock skips the time that was meant, and this is right after it.
    moved: bool,
    /// Whether the clock shows it twice.
    twice: bool,
}

/// A task that was made at once.
#[derive(ToSchema)]
#[schema(example = json!({"id": "6b0003bb686c8275d8014444", "task": "6b0003bb686c8275d8013333"}))]
pub struct ScheduleRun {
    /// The schedule.
    id: String,
    /// The task.
    task: String,
}

/// The times whose tasks are to be made.
#[derive(ToSchema)]
#[schema(example = json!({"from": "2026-11-01", "to": "2026-11-08", ".preview": true}))]
pub struct Backfill {
    /// From this time on: ISO 8601, a day, or seconds since 1970.
    from: Value,
    /// Up to this one; now unless given.
    to: Option<Value>,
    /// At most so many, the earliest first.
    #[schema(minimum = 1, maximum = 1000)]
    limit: Option<u32>,
    /// Only say which times these are.
    #[schema(rename = ".preview")]
    preview: Option<bool>,
}

/// The tasks that were made, or with `.preview` the times.
#[derive(ToSchema)]
#[schema(example = json!({"count": 1, "tasks": ["6b0003bb686c8275d8013333"]}))]
pub struct Backfilled {
    count: u64,
    /// Their ids.
    tasks: Option<Vec<String>>,
    #[schema(value_type = Option<Vec<Object>>)]
    times: Option<Vec<Value>>,
}

/// Something that is gone.
#[derive(ToSchema)]
#[schema(example = json!({"id": "6b0003bb686c8275d8014444", "name": "nightly", "deleted": true}))]
pub struct Deleted {
    id: String,
    name: String,
    deleted: bool,
}

/// Runs of a schedule, the latest first.
#[derive(ToSchema)]
#[schema(example = json!({
    "runs": [{
        "task": "6b0003bb686c8275d8013333", "for": "2026-11-20T02:00:00Z", "status": 1, "word": "succeeded",
        "queue": "6b0003bb686c8275d70dc2f1", "node": "worker1", "started": "2026-11-20T02:00:01",
        "ended": "2026-11-20T02:03:10", "asked_for": false,
    }],
    "next": null,
}))]
pub struct RunsOfSchedule {
    runs: Vec<RunOfSchedule>,
    /// What `.before` has to be for those before them; null if there are none.
    next: Option<String>,
}

/// A task of a schedule.
#[derive(ToSchema)]
pub struct RunOfSchedule {
    /// Its id.
    task: String,
    /// The time that it is for.
    #[schema(rename = "for")]
    time: String,
    /// Its status.
    status: Option<i64>,
    /// The word for that.
    word: Option<String>,
    /// Its queue.
    queue: Option<String>,
    /// Where it runs or has run.
    node: Option<String>,
    /// When it started.
    started: Option<String>,
    /// When it ended; null if it has not.
    ended: Option<String>,
    /// Whether somebody has asked for it, and not its time has come.
    asked_for: bool,
}
