//! Time zones, and what becomes of times that a change of the clocks leaves out or repeats.
//!
//! Rules of zones come from the host where it has them, so that they are as new as the host keeps them, and else from the
//! copy that is compiled in.

use bson::DateTime;
use jiff::Timestamp;
use jiff::civil;
use jiff::tz::{AmbiguousOffset, Offset, TimeZone, TimeZoneTransition};

use disbatch_values::words;

words! {
    /// What becomes of a time that does not exist, as the clocks go forward over it.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub enum Gap {
        /// Nothing fires.
        Skip = "skip",
        /// It fires when the clocks have gone forward.
        #[default]
        After = "after",
    }
}

words! {
    /// What becomes of a time that there is twice, as the clocks go back.
    #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
    pub enum Fold {
        /// The first one fires.
        #[default]
        First = "first",
        /// The last one fires.
        Last = "last",
        /// Both do.
        Both = "both",
    }
}

/// A zone of the tz database; UTC by default.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Zone {
    name: String,
    rules: TimeZone,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    pub at: DateTime,
    /// What is added to UTC until then, in seconds.
    pub before: i64,
    /// What is added from then on.
    pub after: i64,
}

/// A time in which the clocks are not changed. All are seconds; times are those since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stretch {
    /// What is added to UTC.
    pub offset: i64,
    /// When it begins, and what was added until then.
    pub begin: Option<(i64, i64)>,
    /// When it ends, and what is added from then on.
    pub end: Option<(i64, i64)>,
}

impl Default for Zone {
    fn default() -> Self {
        Self { name: "UTC".to_owned(), rules: TimeZone::UTC }
    }
}

impl Zone {
    /// The zone with this name, `Europe/Berlin` for instance. Case does not matter. `None`: there is none.
    pub fn named(name: &str) -> Option<Self> {
        let is_character = |c: char| c.is_ascii_alphanumeric() || "/_+-".contains(c);
        // These count leap seconds, or are second names for all others.
        let is_variant = ["right/", "posix/"].iter().any(|part| name.to_ascii_lowercase().starts_with(part));
        if name.is_empty() || !name.chars().all(is_character) || is_variant {
            return None;
        }
        let rules = jiff::tz::db().get(name).ok().filter(|rules| !rules.is_unknown())?;
        let name = rules.iana_name().unwrap_or(name).to_owned();
        Some(Self { name, rules })
    }

    pub fn names() -> Vec<String> {
        let mut names: Vec<String> = jiff::tz::db().available().map(|name| name.to_string()).collect();
        names.retain(|name| Self::named(name).is_some());
        names.sort();
        names.dedup();
        names
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// A time as clocks in the zone show it, with what was added to UTC: `2026-03-29T03:00:00+02:00`.
    pub fn local(&self, at: DateTime) -> String {
        match Timestamp::from_second(seconds(at)) {
            Ok(at) => at.display_with_offset(self.rules.to_offset(at)).to_string(),
            Err(_) => at.to_string(), // No clock stands there.
        }
    }

    /// The same for people: `Mon 23 Nov 03:30`, with the year if it is another than that of `now`, and seconds if there are any.
    pub fn day_and_time(&self, at: DateTime, now: DateTime) -> String {
        let here = |at| Timestamp::from_second(seconds(at)).ok().map(|at| at.to_zoned(self.rules.clone()));
        let Some((there, now)) = here(at).zip(here(now)) else { return at.to_string() };
        let year = if there.year() == now.year() { "" } else { " %Y" };
        let second = if there.second() == 0 { "" } else { ":%S" };
        there.strftime(&format!("%a %-d %b{year} %H:%M{second}")).to_string()
    }

    /// What is added to UTC at a time, in seconds.
    pub fn offset(&self, at: DateTime) -> i64 {
        self.stretch(seconds(at)).map_or(0, |stretch| stretch.offset)
    }

    pub fn changes(&self, after: DateTime, until: DateTime, limit: usize) -> Vec<Change> {
        let mut changes = Vec::new();
        let mut at = seconds(after);
        while changes.len() < limit
            && let Some(Stretch { offset, end: Some((end, next)), .. }) = self.stretch(at)
            && end <= seconds(until)
        {
            changes.push(Change { at: time(end), before: offset, after: next });
            at = end;
        }
        changes
    }

    pub(super) fn is_twice(&self, at: i64) -> bool {
        let Some(stretch) = self.stretch(at) else { return false };
        let local = at.saturating_add(stretch.offset);
        let was = |(begin, before): (i64, i64)| local < begin.saturating_add(before);
        let comes = |(end, after): (i64, i64)| local >= end.saturating_add(after);
        stretch.begin.is_some_and(was) || stretch.end.is_some_and(comes)
    }

    /// The time around `at` in which the clocks are not changed. `None`: no clock stands there.
    pub(super) fn stretch(&self, at: i64) -> Option<Stretch> {
        let now = Timestamp::from_second(at).ok()?;
        let offset = self.added(now);
        let from =
            |change: TimeZoneTransition<'_>| (change.timestamp().as_second(), offset_of(change.offset()));
        // Some changes are of nothing but a name.
        let end = self.rules.following(now).map(from).find(|(_, after)| *after != offset);
        let later = Timestamp::from_second(at.checked_add(1)?).ok()?;
        let until = |change: Timestamp| {
            let before = Timestamp::from_second(change.as_second().checked_sub(1)?).ok()?;
            Some((change.as_second(), self.added(before)))
        };
        let mut changes = self.rules.preceding(later).filter_map(|change| until(change.timestamp()));
        let begin = changes.find(|(_, before)| *before != offset);
        let begin = begin.and_then(|(change, _)| self.last_change(change.checked_sub(1)?, at));
        Some(Stretch { offset, begin, end })
    }

    /// The last change after `from` and not after `at`, and what was added until then. Looking back, a rule that has just begun
    /// to hold is taken to have held before: it would have changed the clocks at another moment than was the case.
    fn last_change(&self, from: i64, at: i64) -> Option<(i64, i64)> {
        let from = Timestamp::from_second(from).ok()?;
        let (mut before, mut last) = (self.added(from), None);
        for change in self.rules.following(from) {
            let (moment, after) = (change.timestamp().as_second(), offset_of(change.offset()));
            if moment > at {
                break;
            }
            if after != before {
                last = Some((moment, before));
            }
            before = after;
        }
        last
    }

    pub(super) fn date(&self, at: i64) -> Option<civil::Date> {
        Some(self.rules.to_datetime(Timestamp::from_second(at).ok()?).date())
    }

    /// A time after `at` up to which the date does not change.
    pub(super) fn end_of_day(&self, at: i64) -> Option<i64> {
        let midnight = self.date(at)?.tomorrow().ok()?.to_datetime(civil::Time::midnight());
        let next = self.rules.to_ambiguous_timestamp(midnight);
        if let AmbiguousOffset::Gap { .. } = next.offset() {
            // Clocks never show it.
            return self.stretch(at)?.end.map(|(end, _)| end);
        }
        let both = [next.earlier().ok(), next.later().ok()];
        both.into_iter().flatten().map(Timestamp::as_second).filter(|next| *next > at).min()
    }

    fn added(&self, at: Timestamp) -> i64 {
        offset_of(self.rules.to_offset(at))
    }
}

fn offset_of(offset: Offset) -> i64 {
    i64::from(offset.seconds())
}

/// Whole seconds since 1970; what is left of them does not count.
pub(super) fn seconds(at: DateTime) -> i64 {
    at.timestamp_millis().div_euclid(1_000)
}

pub(super) fn time(seconds: i64) -> DateTime {
    DateTime::from_millis(seconds.saturating_mul(1_000))
}

/// What a clock shows that is so many seconds from what it would have shown in 1970.
pub(super) fn clock(local: i64) -> Option<civil::DateTime> {
    Some(Offset::UTC.to_datetime(Timestamp::from_second(local).ok()?))
}

/// The inverse of [`clock`].
pub(super) fn since_1970(clock: civil::DateTime) -> Option<i64> {
    Some(Offset::UTC.to_timestamp(clock).ok()?.as_second())
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Zone {
        /// The zone with this name of the copy that is compiled in.
        pub(in crate::schedules) fn compiled_in(name: &str) -> Option<Self> {
            let rules = jiff::tz::TimeZoneDatabase::bundled().get(name).ok()?;
            Some(Self { name: name.to_owned(), rules })
        }
    }

    fn at(text: &str) -> DateTime {
        DateTime::parse_rfc3339_str(text).unwrap()
    }

    #[test]
    fn zones_have_names() {
        assert_eq!(Zone::named("europe/berlin").unwrap().name(), "Europe/Berlin");
        assert_eq!(Zone::default(), Zone::named("UTC").unwrap());
        for wrong in ["", "Mars/Olympus", "../etc/passwd", "right/UTC", "Etc/Unknown", "UTC\0", "Europe/"] {
            assert_eq!(Zone::named(wrong), None, "{wrong}");
        }
        let names = Zone::names();
        assert!(names.iter().any(|name| name == "Australia/Lord_Howe") && names.len() > 300);
    }

    #[test]
    fn times_are_shown_as_clocks_show_them() {
        let berlin = Zone::named("Europe/Berlin").unwrap();
        assert_eq!(berlin.local(at("2026-03-29T01:00:00Z")), "2026-03-29T03:00:00+02:00");
        assert_eq!(berlin.local(at("2026-03-29T00:59:59Z")), "2026-03-29T01:59:59+01:00");
        assert_eq!(berlin.offset(at("2026-07-01T00:00:00Z")), 7_200);
        assert_eq!(Zone::default().local(at("2026-03-29T01:00:00Z")), "2026-03-29T01:00:00+00:00");
        let told = |time, now| berlin.day_and_time(at(time), at(now));
        assert_eq!(told("2026-03-29T01:00:00Z", "2026-12-31T22:00:00Z"), "Sun 29 Mar 03:00");
        assert_eq!(told("2026-03-29T01:00:05Z", "2026-12-31T23:00:00Z"), "Sun 29 Mar 2026 03:00:05");
    }

    #[test]
    fn changes_of_the_clocks_are_known() {
        let howe = Zone::named("Australia/Lord_Howe").unwrap();
        let found = howe.changes(at("2026-01-01T00:00:00Z"), at("2026-12-31T00:00:00Z"), 10);
        assert_eq!(
            found,
            [
                Change { at: at("2026-04-04T15:00:00Z"), before: 39_600, after: 37_800 },
                Change { at: at("2026-10-03T15:30:00Z"), before: 37_800, after: 39_600 },
            ]
        );
        assert_eq!(howe.changes(at("2026-01-01T00:00:00Z"), at("2030-01-01T00:00:00Z"), 1).len(), 1);
        assert_eq!(Zone::default().changes(at("1970-01-01T00:00:00Z"), at("2100-01-01T00:00:00Z"), 9), []);
    }

    #[test]
    fn a_change_is_the_same_looking_forward_and_back() {
        // Clocks went from two to four there, and the rules of another zone have held since.
        let winamac = Zone::compiled_in("America/Indiana/Winamac").unwrap();
        let change = seconds(at("2007-03-11T08:00:00Z"));
        assert_eq!(winamac.stretch(change - 1).unwrap().end, Some((change, -14_400)));
        for later in [0, 1, 3_600, 86_400] {
            assert_eq!(winamac.stretch(change + later).unwrap().begin, Some((change, -21_600)), "{later}");
        }
    }

    #[test]
    fn a_day_ends_at_midnight_wherever_that_is() {
        // Clocks in Cairo go forward at midnight, those in Havana go back at one to midnight.
        for (zone, at_text, end) in [
            ("Europe/Berlin", "2026-03-28T22:00:00Z", "2026-03-28T23:00:00Z"),
            ("Africa/Cairo", "2025-04-24T20:00:00Z", "2025-04-24T22:00:00Z"),
            ("America/Havana", "2025-11-02T03:30:00Z", "2025-11-02T04:00:00Z"),
            ("Pacific/Apia", "2011-12-30T09:00:00Z", "2011-12-30T10:00:00Z"),
        ] {
            let found = Zone::named(zone).unwrap().end_of_day(seconds(at(at_text))).unwrap();
            assert_eq!(time(found), at(end), "{zone}");
        }
    }
}
