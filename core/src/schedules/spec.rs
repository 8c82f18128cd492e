//! When a schedule fires, as people write it. Reading is strict: a wrong value is refused with the name of its field.

use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};

use super::cron::CronExpr;
use super::zone::{Fold, Gap, Zone};
use super::{LONGEST_NAME, ScheduleId};
use crate::model::whole_number;
use disbatch_values::words;

const MOST_EXPRESSIONS: usize = 20;

const MOST_CALENDARS: usize = 20;

/// The longest jitter: a day, in seconds.
pub(crate) const LONGEST_JITTER: i64 = 86_400;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Spec {
    /// At the times of any of these. None: it makes no tasks by itself, only when somebody asks for one.
    pub cron: Vec<CronExpr>,
    pub zone: Zone,
    pub gap: Gap,
    pub fold: Fold,
    /// By how much it fires later at most, in whole seconds. By how much it is depends on the schedule and the time alone.
    pub jitter: Duration,
    pub start: Option<DateTime>,
    pub end: Option<DateTime>,
    pub calendars: Vec<CalendarUse>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CalendarUse {
    pub name: String,
    pub rule: Rule,
}

words! {
    /// What the days of a calendar mean.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    pub enum Rule {
        /// Nothing fires on them.
        Exclude = "exclude",
        /// Nothing fires on others.
        Only = "only",
    }
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {reason}")]
pub struct SpecError {
    pub field: &'static str,
    pub reason: String,
}

impl SpecError {
    pub(super) fn new(field: &'static str, reason: impl Into<String>) -> Self {
        Self { field, reason: reason.into() }
    }
}

impl Spec {
    pub fn new(cron: Vec<CronExpr>) -> Self {
        Self { cron, ..Self::default() }
    }

    /// Reads the fields `cron`, `zone`, `gap`, `fold`, `jitter`, `start`, `end` and `calendars`. None of them must be there. Fields that
    /// are null count as if they were not; other fields are not looked at. Times are dates or RFC 3339 text.
    pub fn read(fields: &Document) -> Result<Self, SpecError> {
        let spec = Self {
            cron: cron(given(fields, "cron"))?,
            zone: zone(fields)?.unwrap_or_default(),
            gap: word(fields, "gap", Gap::named, "skip or after")?,
            fold: word(fields, "fold", Fold::named, "first, last or both")?,
            jitter: seconds(fields, "jitter", LONGEST_JITTER)?.unwrap_or_default(),
            start: moment(fields, "start")?,
            end: moment(fields, "end")?,
            calendars: calendars(given(fields, "calendars"))?,
        };
        if let (Some(start), Some(end)) = (spec.start, spec.end)
            && end < start
        {
            return Err(SpecError::new("end", "it is before the start"));
        }
        Ok(spec)
    }

    /// The same fields, with null for what is as it is by default.
    pub(super) fn fields(&self) -> Document {
        let cron = match self.cron.as_slice() {
            [] => Bson::Null,
            [one] => one.text().into(),
            several => several.iter().map(CronExpr::text).collect(),
        };
        let one = |used: &CalendarUse| doc! { "name": &used.name, "use": used.rule.as_str() };
        let calendars = self.calendars.iter().map(one).collect::<Vec<_>>();
        doc! {
            "cron": cron,
            "zone": self.zone.name(),
            "gap": (self.gap != Gap::default()).then(|| self.gap.as_str()),
            "fold": (self.fold != Fold::default()).then(|| self.fold.as_str()),
            "jitter": whole_unless_zero(self.jitter),
            "start": self.start,
            "end": self.end,
            "calendars": (!calendars.is_empty()).then_some(calendars),
        }
    }

    pub fn is_manual(&self) -> bool {
        self.cron.is_empty()
    }

    pub fn delay(&self, schedule: Option<ScheduleId>, time: DateTime) -> Duration {
        let longest = u64::try_from(self.jitter.as_millis()).unwrap_or(u64::MAX);
        let (Some(schedule), 1..) = (schedule, longest) else { return Duration::ZERO };
        let mut bytes = schedule.0.bytes().to_vec();
        bytes.extend(time.timestamp_millis().to_be_bytes());
        Duration::from_millis(super::occurrences::scattered(&bytes) % longest.saturating_add(1))
    }
}

/// A field that is there and not null.
pub(super) fn given<'a>(fields: &'a Document, name: &str) -> Option<&'a Bson> {
    fields.get(name).filter(|value| **value != Bson::Null)
}

pub(super) fn text<'a>(fields: &'a Document, name: &'static str) -> Result<Option<&'a str>, SpecError> {
    match given(fields, name) {
        None => Ok(None),
        Some(Bson::String(text)) => Ok(Some(text)),
        Some(other) => Err(SpecError::new(name, format!("expected text, not {}", shown(other)))),
    }
}

pub(super) fn zone(fields: &Document) -> Result<Option<Zone>, SpecError> {
    let Some(name) = text(fields, "zone")? else { return Ok(None) };
    let unknown = || SpecError::new("zone", format!("'{name}' is no time zone"));
    Zone::named(name).map(Some).ok_or_else(unknown)
}

/// A field with one of the words that `named` knows: `expected` has them.
pub(super) fn word<T: Default>(
    fields: &Document,
    name: &'static str,
    named: fn(&str) -> Option<T>,
    expected: &str,
) -> Result<T, SpecError> {
    let Some(text) = text(fields, name)? else { return Ok(T::default()) };
    named(text).ok_or_else(|| SpecError::new(name, format!("'{text}' is not {expected}")))
}

pub(super) fn seconds(
    fields: &Document,
    name: &'static str,
    most: i64,
) -> Result<Option<Duration>, SpecError> {
    let Some(value) = given(fields, name) else { return Ok(None) };
    let number = whole_number(value).filter(|number| (0..=most).contains(number));
    let wrong =
        || SpecError::new(name, format!("expected whole seconds from 0 to {most}, not {}", shown(value)));
    number.map(|number| Some(Duration::from_secs(number.unsigned_abs()))).ok_or_else(wrong)
}

pub(super) fn shown(value: &Bson) -> String {
    match value {
        Bson::Array(_) => "a list".to_owned(),
        Bson::Document(_) => "an object".to_owned(),
        other => other.to_string(),
    }
}

pub(super) fn whole(duration: Duration) -> i64 {
    i64::try_from(duration.as_secs()).unwrap_or(i64::MAX)
}

pub(super) fn whole_unless_zero(duration: Duration) -> Option<i64> {
    (!duration.is_zero()).then(|| whole(duration))
}

fn moment(fields: &Document, name: &'static str) -> Result<Option<DateTime>, SpecError> {
    let found = match given(fields, name) {
        None => return Ok(None),
        Some(Bson::DateTime(time)) => Some(*time),
        Some(Bson::String(text)) => DateTime::parse_rfc3339_str(text).ok(),
        Some(_) => None, // Numbers are seconds to some and milliseconds to others.
    };
    let wrong =
        || SpecError::new(name, "expected a date and a time with their offset, like 2026-12-31T23:59:00Z");
    found.ok_or_else(wrong).map(Some)
}

fn cron(value: Option<&Bson>) -> Result<Vec<CronExpr>, SpecError> {
    let texts: Option<Vec<&str>> = match value {
        None => return Ok(Vec::new()),
        // With one on each line.
        Some(Bson::String(text)) => {
            Some(text.lines().map(str::trim).filter(|line| !line.is_empty()).collect())
        }
        Some(Bson::Array(list)) => list.iter().map(Bson::as_str).collect(),
        _ => None, // Nothing else is an expression.
    };
    let texts = texts.filter(|texts| texts.len() <= MOST_EXPRESSIONS);
    let wrong = || {
        let reason = format!("expected a cron expression, or a list of at most {MOST_EXPRESSIONS}");
        SpecError::new("cron", reason)
    };
    let read = |text: &&str| CronExpr::parse(text).map_err(|error| SpecError::new("cron", error.to_string()));
    texts.ok_or_else(wrong)?.iter().map(read).collect()
}

fn calendars(value: Option<&Bson>) -> Result<Vec<CalendarUse>, SpecError> {
    let wrong = || {
        let reason = format!(
            "expected a list of at most {MOST_CALENDARS} like [{{\"name\": \"holidays\", \"use\": \"exclude\"}}]"
        );
        SpecError::new("calendars", reason)
    };
    let list = match value {
        None => return Ok(Vec::new()),
        Some(Bson::Array(list)) if list.len() <= MOST_CALENDARS => list,
        Some(_) => return Err(wrong()),
    };
    let one = |used: &Bson| {
        let used = used.as_document()?;
        let known = used.keys().all(|key| key == "name" || key == "use");
        let name = used.get_str("name").ok().filter(|name| is_name(name) && known)?;
        let rule = used.get("use").map_or(Some(Rule::Exclude), |rule| Rule::named(rule.as_str()?))?;
        Some(CalendarUse { name: name.to_owned(), rule })
    };
    list.iter().map(|used| one(used).ok_or_else(wrong)).collect()
}

pub(super) fn is_name(name: &str) -> bool {
    let length = name.chars().count();
    (1..=LONGEST_NAME).contains(&length) && !name.chars().any(char::is_control) && name.trim() == name
}

#[cfg(test)]
mod tests {
    use bson::oid::ObjectId;

    use super::*;
    use crate::store::without_null;

    #[test]
    fn what_is_stored_is_read_again() {
        let start = DateTime::parse_rfc3339_str("2026-01-01T00:00:00Z").unwrap();
        let full = doc! {
            "cron": ["0 8 * * *", "@weekly"], "zone": "Europe/Berlin", "gap": "skip", "fold": "both", "jitter": 30_i64,
            "start": start, "end": "2027-01-01T00:00:00+01:00",
            "calendars": [{ "name": "holidays", "use": "exclude" }, { "name": "fairs", "use": "only" }],
        };
        let spec = Spec::read(&full).unwrap();
        assert_eq!((spec.gap, spec.fold, spec.jitter), (Gap::Skip, Fold::Both, Duration::from_secs(30)));
        let end = DateTime::parse_rfc3339_str("2026-12-31T23:00:00Z").unwrap();
        let mut stored = full;
        stored.insert("end", end);
        assert_eq!(without_null(spec.fields()), stored);
        for manual in [doc! {}, doc! { "cron": null }, doc! { "cron": [] }] {
            let spec = Spec::read(&manual).unwrap();
            assert_eq!((spec.is_manual(), without_null(spec.fields())), (true, doc! { "zone": "UTC" }));
            let next = spec.next(&super::super::Calendars::default(), start);
            assert_eq!(next, None, "it never comes by itself");
        }
        let short = doc! { "cron": "0 8 * * *", "zone": "UTC" };
        let spec = Spec::read(&doc! { "cron": "0 8 * * *", "zone": null, "name": 5 }).unwrap();
        assert_eq!((&spec, without_null(spec.fields())), (&Spec::new(spec.cron.clone()), short.clone()));
        assert_eq!(Spec::read(&short), Ok(spec));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (fields, error) in [
            (doc! { "cron": [5] }, "cron: expected a cron expression, or a list of at most 20"),
            (doc! { "cron": "61 * * * *" }, "cron: the field minute: '61' is not from 0 to 59"),
            (doc! { "cron": "@daily", "zone": "Mars" }, "zone: 'Mars' is no time zone"),
            (doc! { "cron": "@daily", "zone": 5 }, "zone: expected text, not 5"),
            (doc! { "cron": "@daily", "zone": { "a": 1 } }, "zone: expected text, not an object"),
            (doc! { "cron": "@daily", "gap": "before" }, "gap: 'before' is not skip or after"),
            (doc! { "cron": "@daily", "fold": "none" }, "fold: 'none' is not first, last or both"),
            (
                doc! { "cron": "@daily", "jitter": -1 },
                "jitter: expected whole seconds from 0 to 86400, not -1",
            ),
            (
                doc! { "cron": "@daily", "start": "soon" },
                "start: expected a date and a time with their offset, like 2026-12-31T23:59:00Z",
            ),
            (
                doc! { "cron": "@daily", "start": "2027-01-01T00:00:00Z", "end": "2026-01-01T00:00:00Z" },
                "end: it is before the start",
            ),
        ] {
            assert_eq!(Spec::read(&fields).unwrap_err().to_string(), error, "{fields}");
        }
        for odd in [
            Bson::from("holidays"),
            Bson::from(vec!["holidays"]),
            Bson::from(vec![doc! { "name": "" }]),
            Bson::from(vec![doc! { "name": "a", "use": "never" }]),
            Bson::from(vec![doc! { "name": "a", "uses": "only" }]),
        ] {
            let error = Spec::read(&doc! { "cron": "@daily", "calendars": odd.clone() }).unwrap_err();
            assert_eq!(error.field, "calendars", "{odd}");
        }
    }

    #[test]
    fn a_delay_is_that_of_the_schedule_and_the_time() {
        let (one, other) = (ScheduleId(ObjectId::new()), ScheduleId(ObjectId::new()));
        let mut spec = Spec::new(vec![CronExpr::parse("@hourly").unwrap()]);
        let hour = |number: i64| DateTime::from_millis(number * 3_600_000);
        assert_eq!(spec.delay(Some(one), hour(1)), Duration::ZERO);
        spec.jitter = Duration::from_secs(60);
        let delays: Vec<Duration> = (0..500).map(|number| spec.delay(Some(one), hour(number))).collect();
        assert!(delays.iter().all(|delay| *delay <= spec.jitter));
        assert!(delays.iter().max().unwrap() > &Duration::from_secs(50), "they go up to all of it");
        assert!(delays.iter().min().unwrap() < &Duration::from_secs(10));
        assert_eq!(spec.delay(Some(one), hour(7)), delays[7]);
        assert_ne!(spec.delay(Some(one), hour(7)), spec.delay(Some(other), hour(7)));
        assert_eq!(spec.delay(None, hour(7)), Duration::ZERO);
    }
}
