//! From the parameters of a request to a moment of the past, and from what is known of it to what clients see.

use std::collections::HashMap;
use std::time::Duration;

use bson::DateTime;
use bson::oid::ObjectId;
use disbatch_core::accounts::Role;
use disbatch_core::model::{NodeName, Queue, Selector};
use disbatch_core::moment::{AROUND, Event, Limits, MOST_AROUND, Past, Question, Ran};
use disbatch_core::schedules::Zone;
use disbatch_wire::history::{Moment, MomentEvent, MomentLimits, RanThen};
use disbatch_wire::seconds as span;
use serde_json::Value;

use crate::access::Who;
use crate::error::HttpError;
use crate::json::{self, Dates};
use crate::params::Params;
use crate::state::State;
use crate::ui::zone;
use crate::values;

/// A moment, and the queues that who asks may see.
pub struct Asked {
    pub question: Question,
    pub queues: Vec<Queue>,
}

/// Reads and checks which moment is meant. An empty field of a form is none. Times without a zone are those of `zone`; the hour alone is the last one that was.
pub async fn asked(state: &State, who: &Who, params: &Params, zone: &Zone) -> Result<Asked, HttpError> {
    let now = state.store.now();
    let text = |name: &str| values::trimmed(&params.fields, name);
    let at = text("at")?.map(|given| time(&given, now, zone)).transpose()?;
    let around = text("around")?.map(|given| around(&given)).transpose()?;
    let reach = who.reach(Role::Viewer);
    let queues = state.store.queues_within(&reach).await?;
    let queue = match text("queue")? {
        None => None,
        Some(given) => {
            let selector = Selector::parse(&given);
            let is_it = |queue: &&Queue| match &selector {
                Selector::Id(id) => queue.id.0 == *id,
                Selector::Name(name) => queue.display_name() == *name,
            };
            Some(queues.iter().find(is_it).ok_or_else(|| HttpError::not_found("there is no such queue"))?.id)
        }
    };
    let question = Question {
        at: at.unwrap_or(now),
        around: around.unwrap_or(AROUND),
        queue,
        node: text("node")?.map(NodeName::new),
        reach,
        changes: who.reach(Role::Admin),
    };
    Ok(Asked { question, queues })
}

/// A time, an age as `2h`, or an hour as `03:12`.
fn time(given: &str, now: DateTime, zone: &Zone) -> Result<DateTime, HttpError> {
    if given.ends_with(['s', 'm', 'h', 'd']) {
        return values::moment("at", &Value::from(given), now);
    }
    let is_hour = given.contains(':') && !given.contains('-');
    if !is_hour {
        return zone::time(zone, "at", given);
    }
    let local = zone.local(now);
    let of_day = |day: &str| zone::time(zone, "at", &format!("{day}T{given}"));
    let today = of_day(local.get(..10).unwrap_or_default())?;
    if today <= now {
        return Ok(today);
    }
    let yesterday = DateTime::from_millis(now.timestamp_millis().saturating_sub(86_400_000));
    of_day(zone.local(yesterday).get(..10).unwrap_or_default())
}

fn around(given: &str) -> Result<Duration, HttpError> {
    let read = match given.parse::<u64>() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => span::parse(given).ok(),
    };
    let fits = read.filter(|around| (Duration::from_secs(1)..=MOST_AROUND).contains(around));
    let wrong = || HttpError::bad_request("around must be a time from 1s to 12h, as 90s, 10m and 2h");
    fits.ok_or_else(wrong)
}

pub fn view(question: &Question, past: &Past, names: &HashMap<ObjectId, String>) -> Moment {
    let ran = |ran: &Ran| view_of_ran(ran, names);
    Moment {
        at: stamp(question.at),
        from: stamp(question.from()),
        to: stamp(question.to()),
        running: past.running(question.at).map(ran).collect(),
        waiting: past.waiting,
        limits: past.limits.iter().map(view_of_limits).collect(),
        ran: past.ran.iter().map(ran).collect(),
        events: past.events.iter().map(|event| view_of_event(event, names)).collect(),
        gaps: past.gaps.clone(),
    }
}

fn stamp(at: DateTime) -> String {
    at.try_to_rfc3339_string().unwrap_or_default()
}

fn view_of_ran(ran: &Ran, names: &HashMap<ObjectId, String>) -> RanThen {
    RanThen {
        task: ran.task.to_string(),
        queue: ran.queue.map(|queue| queue.to_string()),
        queue_name: ran.queue.and_then(|queue| names.get(&queue.0).cloned()),
        node: ran.node.clone(),
        attempt: ran.attempt,
        since: stamp(ran.since),
        until: ran.until.map(stamp),
        then: ran.then.map(|status| status.code()),
        note: ran.note.clone(),
    }
}

fn view_of_limits(limits: &Limits) -> MomentLimits {
    MomentLimits {
        kind: if limits.of_node { "node" } else { "queue" }.to_owned(),
        name: limits.name.clone(),
        settings: Value::Object(json::from_document(&limits.settings, Dates::Text)),
        known: limits.known,
    }
}

fn view_of_event(event: &Event, names: &HashMap<ObjectId, String>) -> MomentEvent {
    MomentEvent {
        at: stamp(event.at),
        kind: event.kind.word().to_owned(),
        words: event.words.clone(),
        task: event.task.map(|task| task.to_string()),
        queue: event.queue.map(|queue| queue.to_string()),
        queue_name: event.queue.and_then(|queue| names.get(&queue.0).cloned()),
        node: event.node.clone(),
        schedule: event.schedule.map(|schedule| schedule.to_hex()),
        status: event.status.map(|status| status.code()),
        by: event.by.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 2026-11-20 08:24:27.
    const NOW: i64 = 1_795_163_067_000;

    #[test]
    fn an_hour_alone_is_the_last_one_that_was() {
        let at = |given: &str| time(given, DateTime::from_millis(NOW), &Zone::utc()).map(stamp).ok();
        for (given, expected) in [
            ("03:12", "2026-11-20T03:12:00Z"),
            ("08:24:27", "2026-11-20T08:24:27Z"),
            ("23:05", "2026-11-19T23:05:00Z"),
            ("2026-11-18 03:12", "2026-11-18T03:12:00Z"),
            ("2h", "2026-11-20T06:24:27Z"),
        ] {
            assert_eq!(at(given).as_deref(), Some(expected), "{given}");
        }
        for wrong in ["25:00", "soon", "3:1"] {
            assert_eq!(at(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn spans_are_bounded() {
        assert_eq!(around("10m").ok(), Some(Duration::from_secs(600)));
        assert_eq!(around("90").ok(), Some(Duration::from_secs(90)));
        for wrong in ["0", "13h", "-5", "x"] {
            assert!(around(wrong).is_err(), "{wrong}");
        }
    }
}
