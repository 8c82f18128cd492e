//! From the parameters of a request to a search in the audit, or to a moment of the past, and from an entry, or from what is known of that
//! moment, to what clients see.

use std::ops::Range;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{DateTime, Document};
use disbatch_core::accounts::Role;
use disbatch_core::audit::{AuditKey, AuditQuery, ObjectKind};
use disbatch_core::model::{NodeName, Queue, Selector};
use disbatch_core::moment::{AROUND, Event, Limits, MOST_AROUND, Past, Question, Ran};
use disbatch_core::paging::Position;
use disbatch_core::schedules::Zone;
use disbatch_core::store::Store;
use disbatch_wire::history::{Moment, MomentEvent, MomentLimits, RanThen};
use disbatch_wire::seconds as span;
use serde_json::{Map, Value};

use crate::access::Who;
use crate::error::HttpError;
use crate::json::{self, Dates};
use crate::params::Params;
use crate::state::State;
use crate::ui::names::QueueNames;
use crate::ui::zone;
use crate::{bulk, values};

/// The longest text that is looked for, in characters.
const LONGEST_TEXT: usize = 200;

/// Reads and checks what is looked for. An empty field of a form is no condition. Days are those of the zone.
pub fn audit_query(params: &Params, limit: usize, zone: &Zone) -> Result<AuditQuery, HttpError> {
    let kind = short_text(&params.fields, "object")?.map(|name| ObjectKind::named(&name).ok_or_else(no_kind));
    let id = |name: &str, of: &str| {
        let wrong =
            || HttpError::bad_request(format!("{name} must be the id of {of}: 24 hexadecimal digits"));
        short_text(&params.fields, name)?.map(|id| ObjectId::parse_str(&id).map_err(|_| wrong())).transpose()
    };
    let key = |name: &str| {
        let key = short_text(&params.options, name)?.map(|text| text.parse::<AuditKey>());
        key.transpose().map_err(|error| HttpError::bad_request(format!(".{name}: {error}")))
    };
    Ok(AuditQuery {
        what: short_text(&params.fields, "what")?,
        by: short_text(&params.fields, "by")?,
        user: short_text(&params.fields, "user")?,
        queue: id("queue", "a queue")?,
        within: None,
        kind: kind.transpose()?,
        name: short_text(&params.fields, "name")?,
        about: id("about", "a queue, a task, a bulk job or of something else")?,
        from: day_or_time(&params.fields, "from", zone, |day| day.start)?,
        to: day_or_time(&params.fields, "to", zone, |day| day.end)?,
        position: Position::of(key("after")?, key("before")?),
        limit,
    })
}

/// Puts the id of the queue into the place of its name. One that is gone is found as the object of entries by its name.
pub async fn name_queue(store: &Store, params: &mut Params) -> Result<(), HttpError> {
    let Some(name) = short_text(&params.fields, "queue")? else { return Ok(()) };
    if let Selector::Name(_) = Selector::parse(&name) {
        let queue = store.find_queue(&Selector::parse(&name)).await?;
        let queue = queue.ok_or_else(|| HttpError::bad_request(format!("no queue '{name}'")))?;
        params.fields.insert("queue".to_owned(), queue.id.to_string().into());
    }
    Ok(())
}

fn no_kind() -> HttpError {
    let known: Vec<&str> = ObjectKind::ALL.iter().map(|kind| kind.as_str()).collect();
    HttpError::bad_request(format!("object must be one of {}", known.join(", ")))
}

fn short_text(fields: &Map<String, Value>, name: &str) -> Result<Option<String>, HttpError> {
    let given = values::trimmed(fields, name)?;
    if given.as_ref().is_some_and(|text| text.chars().count() > LONGEST_TEXT) {
        return Err(HttpError::bad_request(format!(
            "{name} must not be longer than {LONGEST_TEXT} characters"
        )));
    }
    Ok(given)
}

/// A time, or what `of_day` has of a day.
fn day_or_time(
    fields: &Map<String, Value>,
    name: &str,
    zone: &Zone,
    of_day: impl FnOnce(Range<DateTime>) -> DateTime,
) -> Result<Option<DateTime>, HttpError> {
    let Some(given) = short_text(fields, name)? else { return Ok(None) };
    if given.len() == "2026-11-20".len() && given.contains('-') {
        return Ok(Some(of_day(zone::day(zone, name, &given)?)));
    }
    Ok(Some(zone::time(zone, name, &given)?))
}

/// An entry as clients see it. `key` is its place: `.after` of the next search, if it is the last one.
pub fn audit_view(entry: &Document) -> Value {
    let mut view = json::from_document(entry, Dates::Text);
    view.remove("_id");
    if let Some(key) = AuditKey::of(entry) {
        view.insert("key".to_owned(), Value::from(key.to_string()));
    }
    bulk::plain_ids(Value::Object(view))
}

pub struct Asked {
    pub question: Question,
    pub queues: Vec<Queue>,
}

/// Reads and checks which moment is meant. An empty field of a form is none. Times without a zone are those of `zone`; the hour alone is the last one that was.
pub async fn asked_moment(
    state: &State,
    who: &Who,
    params: &Params,
    zone: &Zone,
) -> Result<Asked, HttpError> {
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

pub fn moment_view(question: &Question, past: &Past, names: &QueueNames) -> Moment {
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

fn view_of_ran(ran: &Ran, names: &QueueNames) -> RanThen {
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

fn view_of_event(event: &Event, names: &QueueNames) -> MomentEvent {
    MomentEvent {
        at: stamp(event.at),
        kind: event.kind.as_str().to_owned(),
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
    use bson::doc;
    use serde_json::json;

    use super::*;

    const ID: &str = "6b0003bb686c8275d70dc2f1";

    fn of(fields: Value, options: Value) -> Result<AuditQuery, HttpError> {
        let map = |value: Value| value.as_object().unwrap().clone();
        audit_query(&Params { fields: map(fields), options: map(options) }, 7, &Zone::default())
    }

    #[test]
    fn all_conditions_are_read() {
        let id = ObjectId::parse_str(ID).unwrap();
        let asked = of(
            json!({
                "what": "queue update", "by": " a ", "user": "alice", "queue": ID, "object": "queue", "name": "mail",
                "about": ID, "from": "2026-11-20", "to": "2026-11-20",
            }),
            json!({ "before": format!("5-{ID}") }),
        );
        let midnight = 1_795_132_800_000;
        let expected = AuditQuery {
            what: Some("queue update".into()),
            by: Some("a".into()),
            user: Some("alice".into()),
            queue: Some(id),
            within: None,
            kind: Some(ObjectKind::Queue),
            name: Some("mail".into()),
            about: Some(id),
            from: Some(DateTime::from_millis(midnight)),
            to: Some(DateTime::from_millis(midnight + 86_400_000)),
            position: Position::Before(AuditKey { at: DateTime::from_millis(5), id }),
            limit: 7,
        };
        assert_eq!(asked.unwrap(), expected);
        let names = disbatch_wire::options::field_names::<disbatch_wire::history::AuditSearch>().iter();
        let empty = names.map(|name| ((*name).to_owned(), json!(""))).collect();
        assert_eq!(
            of(Value::Object(empty), json!({})).unwrap(),
            AuditQuery { limit: 7, ..AuditQuery::default() }
        );
    }

    #[test]
    fn a_time_may_be_told_to_the_second() {
        let asked = of(json!({"from": "2026-11-20T08:24:27Z", "to": 1_795_163_068_i64}), json!({})).unwrap();
        assert_eq!(asked.from, Some(DateTime::from_millis(1_795_163_067_000)));
        assert_eq!(asked.to, Some(DateTime::from_millis(1_795_163_068_000)));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let nothing = json!({});
        assert!(of(json!({"by": "é".repeat(200)}), nothing.clone()).is_ok());
        for (fields, options, message) in [
            (json!({"about": "mail"}), nothing.clone(), "about must be the id of a queue, a task"),
            (json!({"queue": "mail"}), nothing.clone(), "queue must be the id of a queue"),
            (json!({"by": "x".repeat(201)}), nothing.clone(), "by must not be longer than 200"),
            (json!({"what": ["a", "b"]}), nothing.clone(), "what must be given once, as text"),
            (json!({"object": "thing"}), nothing.clone(), "object must be one of queue, node, "),
            (json!({"from": "yesterday"}), nothing.clone(), "from must be a time"),
            (json!({"to": "2026-13-01"}), nothing.clone(), "to must be a time"),
            (nothing.clone(), json!({"after": "x"}), ".after: no place in the audit"),
            (nothing.clone(), json!({"before": 5}), ".before: no place in the audit"),
        ] {
            let error = of(fields, options).unwrap_err();
            assert_eq!(error.status(), 400);
            assert!(error.to_string().starts_with(message), "{error}");
        }
    }

    #[test]
    fn entries_are_told_with_their_place() {
        let id = ObjectId::parse_str(ID).unwrap();
        let entry = doc! {
            "_id": id, "at": DateTime::from_millis(1_795_163_067_344), "by": "alice from 10.0.0.1",
            "object": { "kind": "queue", "id": id }, "before": { "name": { "$date": "never" } },
        };
        let expected = json!({
            "key": format!("1795163067344-{ID}"), "at": "2026-11-20T08:24:27", "by": "alice from 10.0.0.1",
            "object": { "kind": "queue", "id": ID }, "before": { "name": { "$date": "never" } },
        });
        assert_eq!(audit_view(&entry), expected);
        assert_eq!(audit_view(&doc! { "at": "soon" }), json!({ "at": "soon" }));
    }

    /// 2026-11-20 08:24:27.
    const NOW: i64 = 1_795_163_067_000;

    #[test]
    fn an_hour_alone_is_the_last_one_that_was() {
        let at = |given: &str| time(given, DateTime::from_millis(NOW), &Zone::default()).map(stamp).ok();
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
