//! A schedule and its times as clients see them.

use bson::DateTime;
use disbatch_core::model::Queue;
use disbatch_core::schedules::{CalendarUse, Change, CronExpr, Occurrence, Schedule, Spec};
use serde_json::{Map, Value, json};

use crate::json::{Dates, date_text, from_bson};

/// So many changes of the clock are told.
const MOST_CHANGES: usize = 100;

/// A schedule; with the name of its queue, if that is known.
pub fn view(schedule: &Schedule, queue: Option<&Queue>) -> Value {
    let shown = schedule.shown();
    let stored = |name: &str| shown.get(name).map_or(Value::Null, |value| from_bson(value, Dates::Text));
    let (settings, spec) = (&schedule.settings, &schedule.settings.spec);
    let options = stored("options");
    let set = json!({
        "id": schedule.id.to_string(),
        "name": settings.name,
        "description": settings.description,
        "queue": settings.queue.to_string(),
        "queue_name": queue.map(Queue::display_name),
        "params": stored("params"),
        "has_secure_params": settings.options.secure_params.is_some(),
        "options": if options.is_null() { json!({}) } else { options },
        "cron": spec.cron.iter().map(CronExpr::text).collect::<Vec<_>>(),
        "zone": spec.zone.name(),
        "gap": spec.gap.as_str(),
        "fold": spec.fold.as_str(),
        "jitter": spec.jitter.as_secs(),
        "start": time(spec.start),
        "end": time(spec.end),
        "calendars": spec.calendars.iter().map(used).collect::<Vec<_>>(),
        "overlap": settings.overlap.as_str(),
        "catch_up": settings.catch_up.as_secs(),
        "tenant": settings.tenant,
        "owner": settings.owner,
    });
    let told = json!({
        "paused": schedule.paused,
        "next": time(schedule.next),
        "last": last(schedule),
        "counts": { "fired": schedule.counts.fired, "skipped": schedule.counts.skipped },
        "last_success": schedule.last_success.map(|success| json!({
            "start": time(success.start), "finish": time(Some(success.finish)),
        })),
        "storage": stored("storage"),
        "stored_for": time(schedule.stored_for),
        "rev": schedule.rev,
        "created": time(schedule.created),
        "changed": time(schedule.changed),
    });
    [set, told].into_iter().filter_map(fields).flatten().collect::<Map<String, Value>>().into()
}

fn fields(value: Value) -> Option<Map<String, Value>> {
    match value {
        Value::Object(fields) => Some(fields),
        _ => None, // It is an object.
    }
}

/// The next times after a moment, and the changes of the clock up to the last of them.
pub fn preview(spec: &Spec, times: &[Occurrence], after: DateTime) -> Value {
    let until = times.last().map_or(after, |last| last.time);
    let changes = spec.zone.changes(after, until, MOST_CHANGES);
    let change = |change: &Change| {
        json!({
            "at": time(Some(change.at)), "before": offset(change.before), "after": offset(change.after),
        })
    };
    json!({
        "zone": spec.zone.name(),
        "times": times.iter().map(occurrence).collect::<Vec<_>>(),
        "changes": changes.iter().map(change).collect::<Vec<_>>(),
    })
}

fn occurrence(one: &Occurrence) -> Value {
    json!({
        "at": time(Some(one.time)),
        "due": time(Some(one.due)),
        "local": one.local.get(..19),
        "offset": one.local.get(19..),
        "moved": one.moved,
        "twice": one.twice,
    })
}

fn last(schedule: &Schedule) -> Value {
    schedule.last.as_ref().map_or(Value::Null, |last| {
        let mut told = json!({
            "for": time(Some(last.time)),
            "task": last.task.map(|task| task.to_string()),
            "at": time(Some(last.at)),
            "outcome": last.outcome,
        });
        if let Some(why) = &last.why {
            told["why"] = Value::from(why.as_str());
        }
        told
    })
}

fn used(calendar: &CalendarUse) -> Value {
    json!({ "name": calendar.name, "use": calendar.rule.as_str() })
}

fn time(at: Option<DateTime>) -> Value {
    at.and_then(date_text).map_or(Value::Null, Value::from)
}

/// What is added to UTC, of seconds: `+01:00`.
pub fn offset(seconds: i64) -> String {
    let sign = if seconds < 0 { '-' } else { '+' };
    let minutes = seconds.unsigned_abs() / 60;
    format!("{sign}{:02}:{:02}", minutes / 60, minutes % 60)
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use disbatch_core::schedules::Calendars;

    use super::*;

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
        assert_eq!(preview(&spec, &times, after), expected);
        assert_eq!([0, 3600, -12_600, 37_800].map(offset), ["+00:00", "+01:00", "-03:30", "+10:30"]);
        assert_eq!(preview(&spec, &[], after)["times"], json!([]));
    }
}
