//! From the parameters of a request to a search in the audit, and from an entry to what clients see.

use std::ops::Range;

use bson::oid::ObjectId;
use bson::{DateTime, Document};
use disbatch_core::audit::{AuditKey, AuditPosition, AuditQuery, ObjectKind};
use disbatch_core::model::Selector;
use disbatch_core::schedules::Zone;
use disbatch_core::store::Store;
use serde_json::{Map, Value};

use crate::error::HttpError;
use crate::json::{self, Dates};
use crate::params::Params;
use crate::ui::zone;
use crate::{bulk, values};

/// The longest text that is looked for, in characters.
const LONGEST: usize = 200;

/// Reads and checks what is looked for. An empty field of a form is no condition. Days are those of the zone.
pub fn query(params: &Params, limit: usize, zone: &Zone) -> Result<AuditQuery, HttpError> {
    let kind = text(&params.fields, "object")?.map(|name| ObjectKind::named(&name).ok_or_else(no_kind));
    let id = |name: &str, of: &str| {
        let wrong =
            || HttpError::bad_request(format!("{name} must be the id of {of}: 24 hexadecimal digits"));
        text(&params.fields, name)?.map(|id| ObjectId::parse_str(&id).map_err(|_| wrong())).transpose()
    };
    let key = |name: &str| {
        let key = text(&params.options, name)?.map(|text| text.parse::<AuditKey>());
        key.transpose().map_err(|error| HttpError::bad_request(format!(".{name}: {error}")))
    };
    Ok(AuditQuery {
        what: text(&params.fields, "what")?,
        by: text(&params.fields, "by")?,
        user: text(&params.fields, "user")?,
        queue: id("queue", "a queue")?,
        within: None,
        kind: kind.transpose()?,
        name: text(&params.fields, "name")?,
        about: id("about", "a queue, a task, a bulk job or of something else")?,
        from: time(&params.fields, "from", zone, |day| day.start)?,
        to: time(&params.fields, "to", zone, |day| day.end)?,
        position: match (key("after")?, key("before")?) {
            (Some(key), _) => AuditPosition::After(key),
            (None, Some(key)) => AuditPosition::Before(key),
            (None, None) => AuditPosition::First,
        },
        limit,
    })
}

/// Puts the id of the queue into the place of its name. One that is gone is found as the object of entries by its name.
pub async fn name_queue(store: &Store, params: &mut Params) -> Result<(), HttpError> {
    let Some(name) = text(&params.fields, "queue")? else { return Ok(()) };
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

/// A field that is not too long.
fn text(fields: &Map<String, Value>, name: &str) -> Result<Option<String>, HttpError> {
    let given = values::trimmed(fields, name)?;
    if given.as_ref().is_some_and(|text| text.chars().count() > LONGEST) {
        return Err(HttpError::bad_request(format!("{name} must not be longer than {LONGEST} characters")));
    }
    Ok(given)
}

/// A time, or what `of_day` has of a day.
fn time(
    fields: &Map<String, Value>,
    name: &str,
    zone: &Zone,
    of_day: impl FnOnce(Range<DateTime>) -> DateTime,
) -> Result<Option<DateTime>, HttpError> {
    let Some(given) = text(fields, name)? else { return Ok(None) };
    if given.len() == "2026-11-20".len() && given.contains('-') {
        return Ok(Some(of_day(zone::day(zone, name, &given)?)));
    }
    Ok(Some(zone::time(zone, name, &given)?))
}

/// An entry as clients see it. `key` is its place: `.after` of the next search, if it is the last one.
pub fn view(entry: &Document) -> Value {
    let mut view = json::from_document(entry, Dates::Text);
    view.remove("_id");
    if let Some(key) = AuditKey::of(entry) {
        view.insert("key".to_owned(), Value::from(key.to_string()));
    }
    bulk::plain_ids(Value::Object(view))
}

#[cfg(test)]
mod tests {
    use bson::doc;
    use serde_json::json;

    use super::*;

    const ID: &str = "6b0003bb686c8275d70dc2f1";

    fn of(fields: Value, options: Value) -> Result<AuditQuery, HttpError> {
        let map = |value: Value| value.as_object().unwrap().clone();
        query(&Params { fields: map(fields), options: map(options) }, 7, &Zone::utc())
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
            position: AuditPosition::Before(AuditKey { at: DateTime::from_millis(5), id }),
            limit: 7,
        };
        assert_eq!(asked.unwrap(), expected);
        let names = disbatch_wire::fields::of::<disbatch_wire::history::AuditSearch>().iter();
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
        assert_eq!(view(&entry), expected);
        assert_eq!(view(&doc! { "at": "soon" }), json!({ "at": "soon" }));
    }
}
