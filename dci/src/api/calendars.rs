//! The operations on calendars: named days that schedules leave out, or keep to.

pub mod delete;
pub mod get;
pub mod list;
pub mod set;

use bson::{Bson, Document, doc};
use disbatch_core::schedules::Calendar;
use serde_json::{Value, json};

use crate::error::HttpError;
use crate::json::{Dates, from_bson};
use crate::params::Params;
use crate::{schedules, values};

/// The fields that say which days they are.
const FIELDS: [&str; 3] = ["dates", "recurring", "zone"];

/// A calendar as clients see it.
pub fn view(calendar: &Calendar) -> Value {
    let stored = calendar.document();
    let field = |name: &str| stored.get(name).map_or(Value::Null, |value| from_bson(value, Dates::Text));
    json!({
        "name": calendar.name,
        "dates": field("dates"),
        "recurring": field("recurring"),
        "zone": field("zone"),
    })
}

/// There is no such calendar.
pub fn not_found(name: &str) -> HttpError {
    HttpError::not_found(format!("no calendar '{name}'"))
}

/// The calendar with this name that a request describes. Days are lists, or text with commas or line breaks between them.
fn read(name: &str, params: &Params) -> Result<Calendar, HttpError> {
    let mut fields: Document = doc! { "name": name };
    for field in FIELDS {
        let given = params.fields.get(field).filter(|value| !values::is_unset(value));
        let stored = match (field, given) {
            (_, None) => continue,
            ("zone", Some(zone)) => Bson::from(values::text("zone", zone)?),
            (_, Some(Value::Array(_) | Value::String(_))) => days(given),
            (_, Some(_)) => return Err(HttpError::bad_request(format!("{field} must be a list of days"))),
        };
        fields.insert(field, stored);
    }
    Calendar::read(&fields).map_err(|error| HttpError::bad_request(error.to_string()))
}

fn days(given: Option<&Value>) -> Bson {
    given.map(schedules::list).unwrap_or_default().into_iter().map(Bson::from).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(fields: Value) -> Result<Value, String> {
        let params = Params { fields: fields.as_object().unwrap().clone(), ..Params::default() };
        read("holidays", &params).map(|calendar| view(&calendar)).map_err(|error| error.to_string())
    }

    #[test]
    fn days_are_lists_or_lines() {
        let expected = json!({
            "name": "holidays", "dates": ["2026-12-24", "2026-12-31"], "recurring": ["12-25"], "zone": "Europe/Berlin",
        });
        let list =
            json!({ "dates": ["2026-12-31", "2026-12-24"], "recurring": ["12-25"], "zone": "Europe/Berlin" });
        assert_eq!(of(list), Ok(expected.clone()));
        let lines =
            json!({ "dates": "2026-12-24\r\n2026-12-31\r\n", "recurring": "12-25", "zone": "Europe/Berlin" });
        assert_eq!(of(lines), Ok(expected));
        let none = json!({ "name": "holidays", "dates": [], "recurring": [], "zone": null });
        assert_eq!(of(json!({ "dates": "", "zone": null })), Ok(none));
    }

    #[test]
    fn what_is_no_day_is_named() {
        for (fields, part) in [
            (json!({ "dates": ["2026-02-30"] }), "dates: "),
            (json!({ "dates": "24.12.2026" }), "dates: "),
            (json!({ "recurring": ["13-01"] }), "recurring: "),
            (json!({ "zone": "Mars" }), "zone: "),
            (json!({ "dates": 5 }), "dates must be a list of days"),
        ] {
            let error = of(fields.clone()).unwrap_err();
            assert!(error.starts_with(part), "{fields}: {error}");
        }
    }
}
