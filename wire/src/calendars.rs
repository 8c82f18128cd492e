//! Calendars: named days that schedules leave out, or keep to.

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::liberal::{Text, list};

/// The days of a calendar. Forms have them as lines.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "dates": ["2026-12-24"], "recurring": ["12-25", "12-26"], "zone": "Europe/Berlin",
})))]
#[cfg_attr(feature = "cli", derive(clap::Args))]
pub struct CalendarDays {
    /// A day, as 2026-12-25; several with commas between them
    #[serde(default, deserialize_with = "days")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<String>>))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "DAY", value_delimiter = ','))]
    pub dates: Vec<String>,
    /// A day of every year, as 12-25; several with commas between them
    #[serde(default, deserialize_with = "days")]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<Vec<String>>))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "DAY", value_delimiter = ','))]
    pub recurring: Vec<String>,
    /// The time zone whose days these are [default: that of the schedule]
    #[cfg_attr(feature = "openapi", schema(value_type = Option<String>))]
    #[cfg_attr(feature = "cli", arg(long, value_name = "ZONE"))]
    pub zone: Option<Text>,
}

/// A new calendar.
#[cfg(feature = "openapi")]
#[derive(Serialize, utoipa::ToSchema)]
#[schema(example = json!({"name": "holidays", "dates": ["2026-12-24"], "recurring": ["12-25", "12-26"]}))]
pub struct NewCalendar {
    #[schema(min_length = 1, max_length = 200)]
    pub name: String,
    #[serde(flatten)]
    pub days: CalendarDays,
}

/// A calendar.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(example = json!({
    "name": "holidays", "dates": ["2026-12-24"], "recurring": ["12-25", "12-26"], "zone": null,
})))]
pub struct Calendar {
    pub name: String,
    pub dates: Vec<String>,
    /// Days of every year.
    pub recurring: Vec<String>,
    /// The time zone whose days these are; null for that of the schedule.
    pub zone: Option<String>,
}

fn days<'de, D: Deserializer<'de>>(value: D) -> Result<Vec<String>, D::Error> {
    match Value::deserialize(value)? {
        value @ (Value::Array(_) | Value::String(_)) => Ok(list(&value)),
        _ => Err(serde::de::Error::custom("must be a list of days")),
    }
}
