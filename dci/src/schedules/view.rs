//! A schedule, its times and its runs, which are its tasks, as clients see them.

use bson::oid::ObjectId;
use bson::{Bson, DateTime, Document, doc};
use disbatch_core::model::{Queue, Status, date_time, whole_number};
use disbatch_core::schedules::{self, CronExpr, Occurrence, Spec};
use disbatch_core::store::{Store, StoreError};
use disbatch_core::task::TaskQuery;
use disbatch_wire::schedules::{
    CalendarUse, ClockChange, LastSuccess, LastTime, NextTime, Schedule, SchedulePreview,
};

use crate::json::{Dates, date_text, from_bson, from_document};

/// So many changes of the clock are told.
const MOST_CHANGES: usize = 100;

/// A schedule; with the name of its queue, if that is known.
pub fn view(schedule: &schedules::Schedule, queue: Option<&Queue>) -> Schedule {
    let (settings, spec) = (&schedule.settings, &schedule.settings.spec);
    let time = |at: Option<DateTime>| at.and_then(date_text);
    let shown = schedule.shown();
    let options = shown.get_document("options").map(|options| from_document(options, Dates::Text));
    let used = spec
        .calendars
        .iter()
        .map(|used| CalendarUse { name: used.name.clone(), rule: Some(used.rule.as_str().to_owned()) });
    Schedule {
        id: schedule.id.to_string(),
        name: settings.name.clone(),
        description: settings.description.clone(),
        queue: settings.queue.to_string(),
        queue_name: queue.map(Queue::display_name),
        params: from_document(&settings.params, Dates::Text).into(),
        has_secure_params: settings.options.secure_params.is_some(),
        options: options.unwrap_or_default(),
        cron: spec.cron.iter().map(|cron| CronExpr::text(cron).to_owned()).collect(),
        zone: spec.zone.name().to_owned(),
        gap: spec.gap.as_str().to_owned(),
        fold: spec.fold.as_str().to_owned(),
        jitter: spec.jitter.as_secs(),
        start: time(spec.start),
        end: time(spec.end),
        calendars: used.collect(),
        overlap: settings.overlap.as_str().to_owned(),
        catch_up: settings.catch_up.as_secs(),
        tenant: settings.tenant.clone(),
        owner: settings.owner.clone(),
        paused: schedule.paused,
        next: time(schedule.next),
        last: schedule.last.as_ref().map(|last| LastTime {
            time: date_text(last.time),
            task: last.task.map(|task| task.to_string()),
            at: date_text(last.at),
            outcome: last.outcome.clone(),
            why: last.why.clone(),
        }),
        counts: schedule.counts,
        last_success: schedule
            .last_success
            .map(|success| LastSuccess { start: time(success.start), finish: date_text(success.finish) }),
        storage: schedule.storage.as_ref().map(|storage| from_bson(storage, Dates::Text)),
        stored_for: time(schedule.stored_for),
        rev: schedule.rev,
        created: time(schedule.created),
        changed: time(schedule.changed),
    }
}

/// The next times after a moment, and the changes of the clock up to the last of them.
pub fn preview(spec: &Spec, times: &[Occurrence], after: DateTime) -> SchedulePreview {
    let until = times.last().map_or(after, |last| last.time);
    let changes = spec.zone.changes(after, until, MOST_CHANGES).into_iter().map(|change| ClockChange {
        at: date_text(change.at),
        before: offset(change.before),
        after: offset(change.after),
    });
    let times = times.iter().map(|one| NextTime {
        at: date_text(one.time),
        due: date_text(one.due),
        local: one.local.get(..19).map(str::to_owned),
        offset: one.local.get(19..).map(str::to_owned),
        moved: one.moved,
        twice: one.twice,
    });
    SchedulePreview { zone: spec.zone.name().to_owned(), times: times.collect(), changes: changes.collect() }
}

/// What is added to UTC, of seconds: `+01:00`.
pub fn offset(seconds: i64) -> String {
    let sign = if seconds < 0 { '-' } else { '+' };
    let minutes = seconds.unsigned_abs() / 60;
    format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60)
}

/// A task of a schedule, as far as it can be understood.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    pub task: Option<ObjectId>,
    pub queue: Option<ObjectId>,
    pub code: Option<i64>,
    pub time: Option<DateTime>,
    pub started: Option<DateTime>,
    pub ended: Option<DateTime>,
    pub node: Option<Bson>,
    /// Somebody has asked for it.
    pub asked_for: bool,
}

impl Run {
    pub fn of(task: &Document) -> Self {
        let time = |field: &str| task.get(field).and_then(date_time);
        let code = task.get("status").and_then(whole_number);
        let has_ended = code.is_some_and(|code| Status::from_code(code).has_ended());
        Self {
            task: task.get_object_id("_id").ok(),
            queue: task.get_object_id("queue").ok(),
            code,
            time: time("scheduled_for"),
            started: time("started"),
            ended: time("mtime").filter(|_| has_ended),
            node: task.get("node").cloned(),
            asked_for: task.get_bool("asked_for").unwrap_or(false),
        }
    }

    pub fn id(&self) -> String {
        self.task.map(|id| id.to_hex()).unwrap_or_default()
    }
}

/// The last runs that are like this, the latest first.
pub async fn find_runs(
    store: &Store,
    filter: Document,
    limit: i64,
    archive: bool,
) -> Result<Vec<Run>, StoreError> {
    let fields = doc! {
        "queue": 1, "status": 1, "scheduled_for": 1, "started": 1, "mtime": 1, "node": 1, "asked_for": 1,
    };
    let query = TaskQuery {
        filter,
        limit: Some(limit),
        projection: Some(fields),
        sort: Some(doc! { "scheduled_for": -1 }),
        archive,
        ..TaskQuery::default()
    };
    Ok(store.search_tasks(query).await?.iter().map(Run::of).collect())
}

#[cfg(test)]
mod tests {
    use disbatch_core::schedules::Calendars;
    use serde_json::json;

    use super::*;
    use crate::json::value_of;

    #[test]
    fn times_have_the_clock_beside_them() {
        let after = DateTime::parse_rfc3339_str("2027-03-27T00:00:00Z").unwrap();
        let spec = Spec::read(&doc! { "cron": "30 2 * * *", "zone": "Europe/Berlin" }).unwrap();
        let times = spec.preview(None, &Calendars::default(), after, 2);
        let expected = json!({
            "zone": "Europe/Berlin",
            "times": [
                {
                    "at": "2027-03-27T01:30:00", "due": "2027-03-27T01:30:00", "local": "2027-03-27T02:30:00",
                    "offset": "+01:00", "moved": false, "twice": false,
                },
                {
                    "at": "2027-03-28T01:00:00", "due": "2027-03-28T01:00:00", "local": "2027-03-28T03:00:00",
                    "offset": "+02:00", "moved": true, "twice": false,
                },
            ],
            "changes": [{ "at": "2027-03-28T01:00:00", "before": "+01:00", "after": "+02:00" }],
        });
        assert_eq!(value_of(&preview(&spec, &times, after)).unwrap(), expected);
        assert_eq!([0, 3600, -12_600, 37_800].map(offset), ["+00:00", "+01:00", "-03:30", "+10:30"]);
        assert!(preview(&spec, &[], after).times.is_empty());
    }
}
