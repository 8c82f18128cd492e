//! Calendars: named lists of days on which schedules do not fire, or on which alone they do.

use disbatch_operation::operation;
use std::collections::{BTreeMap, BTreeSet};

use bson::{Bson, Document, doc};
use jiff::civil::Date;

use super::spec::{Rule, SpecError, given, is_name, shown, text, zone};
use super::zone::Zone;
use super::{Schedule, ScheduleError, Spec};
use crate::store::{Altered, Store, StoreError, collect, put};

/// So many days a calendar has at most, of each kind.
const MOST_DAYS: usize = 5_000;

/// How often the next time of a schedule is set anew that others change at the same moment.
const TRIES: usize = 5;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Calendar {
    pub name: String,
    dates: BTreeSet<Date>,
    /// Month and day, of every year.
    recurring: BTreeSet<(i8, i8)>,
    /// By whose clocks its days begin and end; that of the schedule where it has none.
    zone: Option<Zone>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Calendars(BTreeMap<String, Calendar>);

impl Calendar {
    /// Reads `name` (or `_id`), `dates` (`["2026-12-25"]`), `recurring` (`["12-25"]`) and `zone`. Other fields are not looked at.
    pub fn read(fields: &Document) -> Result<Self, SpecError> {
        let name = text(fields, "name")?.or(text(fields, "_id")?).filter(|name| is_name(name));
        let wrong = || SpecError::new("name", "expected a name of 1 to 200 characters");
        Ok(Self {
            name: name.ok_or_else(wrong)?.to_owned(),
            dates: days(fields, "dates", "2026-12-25", date)?,
            recurring: days(fields, "recurring", "12-25", day_of_year)?,
            zone: zone(fields)?,
        })
    }

    pub fn document(&self) -> Document {
        let mut document = doc! { "_id": &self.name, "dates": self.dates(), "recurring": self.recurring() };
        put(&mut document, "zone", self.zone());
        document
    }

    pub fn dates(&self) -> Vec<String> {
        self.dates.iter().map(Date::to_string).collect()
    }

    pub fn recurring(&self) -> Vec<String> {
        self.recurring.iter().map(|(month, day)| format!("{month:02}-{day:02}")).collect()
    }

    pub fn zone(&self) -> Option<&str> {
        self.zone.as_ref().map(Zone::name)
    }

    fn has(&self, date: Date) -> bool {
        self.dates.contains(&date) || self.recurring.contains(&(date.month(), date.day()))
    }
}

impl Calendars {
    pub fn of(calendars: impl IntoIterator<Item = Calendar>) -> Self {
        Self(calendars.into_iter().map(|calendar| (calendar.name.clone(), calendar)).collect())
    }

    /// A calendar that is not here, of those that a schedule goes by.
    pub fn missing<'a>(&self, spec: &'a Spec) -> Option<&'a str> {
        spec.calendars.iter().map(|used| used.name.as_str()).find(|name| !self.0.contains_key(*name))
    }

    /// Whether a calendar keeps a schedule from firing at this moment, in seconds since 1970; if so, the zone whose day
    /// it is. One that does not exist has no days.
    pub(super) fn closed<'a>(&'a self, spec: &'a Spec, at: i64) -> Option<&'a Zone> {
        for used in &spec.calendars {
            let calendar = self.0.get(&used.name);
            let zone = calendar.and_then(|calendar| calendar.zone.as_ref()).unwrap_or(&spec.zone);
            let has = |calendar: &Calendar| zone.date(at).is_some_and(|date| calendar.has(date));
            let is_named = calendar.is_some_and(has);
            if is_named == (used.rule == Rule::Exclude) {
                return Some(zone);
            }
        }
        None
    }
}

impl Store {
    /// All calendars, by name. One that cannot be read is logged and left out.
    #[operation]
    pub async fn list_calendars(&self) -> Result<Vec<Calendar>, StoreError> {
        self.calendars_that(doc! {}).await
    }

    #[operation]
    pub async fn find_calendar(&self, name: &str) -> Result<Option<Calendar>, StoreError> {
        Ok(self.calendars_that(doc! { "_id": name }).await?.pop())
    }

    /// The calendars that a schedule goes by, those of them that there are.
    #[operation]
    pub async fn calendars_of(&self, spec: &Spec) -> Result<Calendars, StoreError> {
        if spec.calendars.is_empty() {
            return Ok(Calendars::default());
        }
        let names: Vec<&String> = spec.calendars.iter().map(|used| &used.name).collect();
        Ok(Calendars::of(self.calendars_that(doc! { "_id": { "$in": names } }).await?))
    }

    /// Also sets the next times of the schedules that go by it. Repeating it completes one that was broken off.
    #[operation(calendar = %calendar.name)]
    pub async fn set_calendar(&self, calendar: &Calendar) -> Result<Altered, StoreError> {
        let (this, after) = (doc! { "_id": &calendar.name }, calendar.document());
        let before = self.calendars().find_one_and_replace(this, after.clone()).upsert(true).await?;
        self.reckon_all(&calendar.name).await?;
        Ok(Altered { before, after })
    }

    /// Stores a calendar, and sets the next times of the schedules that go by one of its name. `None`: there is one.
    #[operation(calendar = %calendar.name)]
    pub async fn create_calendar(&self, calendar: &Calendar) -> Result<Option<Altered>, StoreError> {
        let after = calendar.document();
        if StoreError::unless_duplicate(self.calendars().insert_one(&after).await)?.is_none() {
            return Ok(None);
        }
        self.reckon_all(&calendar.name).await?;
        Ok(Some(Altered { before: None, after }))
    }

    /// Deletes a calendar that no schedule goes by. Returns what it was; `None`: there is none with this name.
    #[operation(calendar = name)]
    pub async fn delete_calendar(&self, name: &str) -> Result<Option<Document>, ScheduleError> {
        let users = self.schedules_by(name).await?;
        if !users.is_empty() {
            let schedules = users.into_iter().map(|schedule| schedule.settings.name).take(20).collect();
            return Err(ScheduleError::CalendarInUse { calendar: name.to_owned(), schedules });
        }
        Ok(self.calendars().find_one_and_delete(doc! { "_id": name }).await.map_err(StoreError::from)?)
    }

    async fn calendars_that(&self, filter: Document) -> Result<Vec<Calendar>, StoreError> {
        let found = collect(self.calendars().find(filter).sort(doc! { "_id": 1 })).await?;
        let readable = |calendar: &Document| {
            Calendar::read(calendar)
                .inspect_err(|error| tracing::warn!(%error, "ignoring a calendar that cannot be read"))
                .ok()
        };
        Ok(found.iter().filter_map(readable).collect())
    }

    async fn schedules_by(&self, calendar: &str) -> Result<Vec<Schedule>, StoreError> {
        let found = collect(self.schedules().find(doc! { "calendars.name": calendar })).await?;
        Ok(found.into_iter().filter_map(super::document::readable).collect())
    }

    async fn reckon_all(&self, calendar: &str) -> Result<(), StoreError> {
        for schedule in self.schedules_by(calendar).await? {
            self.reckon(schedule).await?;
        }
        Ok(())
    }

    /// As its calendars have changed. A time that is due stays, and is looked at when it fires.
    async fn reckon(&self, mut schedule: Schedule) -> Result<(), StoreError> {
        for _ in 0..TRIES {
            let now = self.server_time().await?;
            if schedule.paused || schedule.next.is_some_and(|next| next <= now) {
                return Ok(());
            }
            let calendars = self.calendars_of(&schedule.settings.spec).await?;
            if schedule.settings.spec.still_to_fire(&calendars, schedule.next_for, now).is_some() {
                return Ok(());
            }
            let next = schedule.settings.spec.next(&calendars, now);
            let update = super::document::next_update(schedule.id, &schedule.settings.spec, next);
            if self.schedules().update_one(schedule.unchanged(), update).await?.matched_count == 1 {
                return Ok(());
            }
            let Some(current) = self.schedule(schedule.id).await? else { return Ok(()) };
            schedule = current;
        }
        tracing::warn!(schedule = %schedule.id, "the next time of a schedule was not set: others change it all the time");
        Ok(())
    }
}

fn days<T: Ord>(
    fields: &Document,
    field: &'static str,
    example: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<BTreeSet<T>, SpecError> {
    let list = match given(fields, field) {
        None => return Ok(BTreeSet::new()),
        Some(Bson::Array(list)) if list.len() <= MOST_DAYS => list,
        Some(_) => {
            let reason = format!("expected a list of at most {MOST_DAYS} like [\"{example}\"]");
            return Err(SpecError::new(field, reason));
        }
    };
    let wrong = |day: &Bson| SpecError::new(field, format!("{} is no day like \"{example}\"", shown(day)));
    list.iter().map(|day| day.as_str().and_then(&read).ok_or_else(|| wrong(day))).collect()
}

fn date(text: &str) -> Option<Date> {
    let date: Date = text.parse().ok()?;
    // Other forms of a date are no error to the parser.
    (date.to_string() == text).then_some(date)
}

fn day_of_year(text: &str) -> Option<(i8, i8)> {
    // February 29 is a day of some years.
    let date = date(&format!("2000-{text}"))?;
    Some((date.month(), date.day()))
}

#[cfg(test)]
mod tests {
    use bson::DateTime;

    use super::super::{CalendarUse, CronExpr};
    use super::*;

    fn spec(cron: &str, zone: &str, rules: &[(&str, Rule)]) -> Spec {
        let used = |(name, rule): &(&str, Rule)| CalendarUse { name: (*name).to_owned(), rule: *rule };
        Spec {
            zone: Zone::named(zone).unwrap(),
            calendars: rules.iter().map(used).collect(),
            ..Spec::new(vec![CronExpr::parse(cron).unwrap()])
        }
    }

    fn times(spec: &Spec, calendars: &Calendars, after: &str, limit: usize) -> Vec<String> {
        let after = DateTime::parse_rfc3339_str(after).unwrap();
        spec.preview(None, calendars, after, limit).into_iter().map(|found| found.local).collect()
    }

    #[test]
    fn what_is_stored_is_read_again() {
        let stored = doc! {
            "_id": "holidays", "dates": ["2026-04-03", "2027-03-26"], "recurring": ["02-29", "12-25"],
            "zone": "Europe/Berlin",
        };
        assert_eq!(Calendar::read(&stored).unwrap().document(), stored);
        let empty = Calendar::read(&doc! { "name": "none", "dates": null }).unwrap();
        assert_eq!(empty.document(), doc! { "_id": "none", "dates": [], "recurring": [] });
        for (odd, error) in [
            (doc! {}, "name: expected a name of 1 to 200 characters"),
            (
                doc! { "name": "a", "dates": "2026-12-25" },
                "dates: expected a list of at most 5000 like [\"2026-12-25\"]",
            ),
            (
                doc! { "name": "a", "dates": ["2026-02-29"] },
                "dates: \"2026-02-29\" is no day like \"2026-12-25\"",
            ),
            (
                doc! { "name": "a", "dates": ["20261225"] },
                "dates: \"20261225\" is no day like \"2026-12-25\"",
            ),
            (doc! { "name": "a", "recurring": ["25.12."] }, "recurring: \"25.12.\" is no day like \"12-25\""),
            (doc! { "name": "a", "zone": "Mars" }, "zone: 'Mars' is no time zone"),
        ] {
            assert_eq!(Calendar::read(&odd).unwrap_err().to_string(), error);
        }
    }

    #[test]
    fn days_are_left_out_or_are_the_only_ones() {
        let holidays = doc! { "name": "holidays", "dates": ["2026-12-28"], "recurring": ["12-25"] };
        let calendars = Calendars::of([Calendar::read(&holidays).unwrap()]);
        let days = |rule| {
            let spec = spec("0 8 * * *", "Europe/Berlin", &[("holidays", rule)]);
            let found = times(&spec, &calendars, "2026-12-24T08:00:00Z", 4);
            found.into_iter().map(|time| time[..10].to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(days(Rule::Exclude), ["2026-12-26", "2026-12-27", "2026-12-29", "2026-12-30"]);
        assert_eq!(days(Rule::Only), ["2026-12-25", "2026-12-28", "2027-12-25", "2028-12-25"]);
        // A calendar that is gone has no days.
        let spec = |rule| spec("0 8 * * *", "UTC", &[("gone", rule)]);
        assert_eq!(times(&spec(Rule::Exclude), &calendars, "2026-12-24T08:00:00Z", 1).len(), 1);
        assert_eq!(times(&spec(Rule::Only), &calendars, "2026-12-24T08:00:00Z", 1).len(), 0);
        assert_eq!(calendars.missing(&spec(Rule::Only)), Some("gone"));
    }

    #[test]
    fn days_are_those_of_the_zone_of_the_calendar() {
        let fields = doc! { "name": "christmas", "recurring": ["12-25"], "zone": "Europe/Berlin" };
        let calendars = Calendars::of([Calendar::read(&fields).unwrap()]);
        let spec = |rule| spec("30 * * * *", "UTC", &[("christmas", rule)]);
        let first = times(&spec(Rule::Only), &calendars, "2026-12-01T00:00:00Z", 1);
        assert_eq!(first, ["2026-12-24T23:30:00+00:00"]);
        let around = times(&spec(Rule::Exclude), &calendars, "2026-12-24T22:00:00Z", 2);
        assert_eq!(around, ["2026-12-24T22:30:00+00:00", "2026-12-25T23:30:00+00:00"]);
    }

    #[test]
    fn every_rule_has_to_agree() {
        let of = |name: &str, dates: &[&str]| {
            Calendar::read(&doc! { "name": name, "dates": dates.to_vec() }).unwrap()
        };
        let calendars =
            Calendars::of([of("fairs", &["2026-12-05", "2026-12-06"]), of("closed", &["2026-12-06"])]);
        let spec = spec("0 8 * * *", "UTC", &[("fairs", Rule::Only), ("closed", Rule::Exclude)]);
        assert_eq!(times(&spec, &calendars, "2026-12-01T00:00:00Z", 5), ["2026-12-05T08:00:00+00:00"]);
    }
}
