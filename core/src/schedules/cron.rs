//! Cron expressions: which times on a clock they mean. They know no zone; what a change of the clocks makes of these
//! times is the matter of [`super::occurrences`].

mod words;

use jiff::civil::{Date, DateTime, Time};

const NAMED: [(&str, &str); 7] = [
    ("@yearly", "0 0 1 1 *"),
    ("@annually", "0 0 1 1 *"),
    ("@monthly", "0 0 1 * *"),
    ("@weekly", "0 0 * * 0"),
    ("@daily", "0 0 * * *"),
    ("@midnight", "0 0 * * *"),
    ("@hourly", "0 * * * *"),
];

const EVERY_HOUR: u64 = (1 << 24) - 1;

/// The calendar repeats itself after so many years, and so does what an expression means.
const YEARS: i16 = 400;

/// A cron expression of five fields (minute, hour, day of the month, month, day of the week), or of six with the second
/// before them.
///
/// Fields are lists of numbers, ranges (`1-5`), steps (`*/15`, `8-18/2`, `5/20` from 5 on) and names (`mon`, `jan`). The last day of a
/// month is `L`, the last friday of it `5L` or `friL`, the second monday `1#2` or `mon#2`. A day field that leaves all to the other one is
/// `*` or `?`; where both name days, each day counts that one of them names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CronExpr {
    text: String,
    /// Sets of numbers, a bit for each.
    seconds: u64,
    minutes: u64,
    hours: u64,
    months: u64,
    days: Option<Days>,
    weekdays: Option<Weekdays>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Days {
    numbers: u64,
    last: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CronError {
    #[error("'{text}' has {fields} fields, a cron expression has 5, or 6 with seconds first")]
    Fields { text: String, fields: usize },
    #[error("'{0}' is no name of a cron expression: expected {names}", names = names())]
    Name(String),
    #[error("the field {field}: '{value}' {reason}")]
    Field { field: &'static str, value: String, reason: String },
    /// No day is like that: February 30, for instance.
    #[error("'{0}' never comes: no month has such a day")]
    Never(String),
}

fn names() -> String {
    NAMED.map(|(name, _)| name).join(", ")
}

impl CronExpr {
    pub fn parse(text: &str) -> Result<Self, CronError> {
        let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
        let meant = match NAMED.iter().find(|(name, _)| *name == text.to_ascii_lowercase()) {
            Some((_, meant)) => *meant,
            None if text.starts_with('@') => return Err(CronError::Name(text)),
            None => text.as_str(),
        };
        let fields: Vec<&str> = meant.split(' ').filter(|field| !field.is_empty()).collect();
        let (second, rest) = match fields.as_slice() {
            [second, rest @ ..] if rest.len() == 5 => (*second, rest),
            all => ("0", all),
        };
        let &[minute, hour, day, month, weekday] = rest else {
            return Err(CronError::Fields { text: text.clone(), fields: fields.len() });
        };
        let expression = Self {
            seconds: SECOND.set(second)?,
            minutes: MINUTE.set(minute)?,
            hours: HOUR.set(hour)?,
            months: MONTH.set(month)?,
            days: days(day)?,
            weekdays: Weekdays::parse(weekday)?,
            text: text.clone(),
        };
        // Any four hundred years show whether there is ever such a day.
        let (first, last) = (Date::constant(2_000, 1, 1), Date::constant(2_000 + YEARS, 1, 1));
        match expression.next_from(first.to_datetime(Time::midnight()), last.to_datetime(Time::midnight())) {
            Some(_) => Ok(expression),
            None => Err(CronError::Never(expression.text)),
        }
    }

    /// As it was written, with single spaces.
    pub fn text(&self) -> &str {
        &self.text
    }

    pub(super) fn is_every_hour(&self) -> bool {
        self.hours == EVERY_HOUR
    }

    /// The first time that it means from `from` on, whole seconds, and before `before`.
    pub(super) fn next_from(&self, from: DateTime, before: DateTime) -> Option<DateTime> {
        let mut date = from.date();
        let mut earliest = (from.hour(), from.minute(), from.second());
        while date.to_datetime(Time::midnight()) < before {
            if self.is_day(date)
                && let Some(time) = self.time_from(earliest)
            {
                return Some(date.to_datetime(time)).filter(|found| *found < before);
            }
            let over = if self.is_month(date) { date } else { date.last_of_month() };
            date = over.tomorrow().ok()?;
            earliest = (0, 0, 0);
        }
        None
    }

    fn is_month(&self, date: Date) -> bool {
        first(self.months, date.month()) == Some(date.month())
    }

    fn is_day(&self, date: Date) -> bool {
        let of_month = |days: Days| {
            let is_last = days.last && date.day() == date.days_in_month();
            is_last || first(days.numbers, date.day()) == Some(date.day())
        };
        let is_day = match (self.days, self.weekdays) {
            (None, None) => true,
            (Some(days), None) => of_month(days),
            (None, Some(weekdays)) => weekdays.has(date),
            (Some(days), Some(weekdays)) => of_month(days) || weekdays.has(date),
        };
        is_day && self.is_month(date)
    }

    fn time_from(&self, (hour, minute, second): (i8, i8, i8)) -> Option<Time> {
        let this_hour = first(self.hours, hour)? == hour;
        if this_hour
            && first(self.minutes, minute) == Some(minute)
            && let Some(second) = first(self.seconds, second)
        {
            return Time::new(hour, minute, second, 0).ok();
        }
        let second = first(self.seconds, 0)?;
        if this_hour && let Some(minute) = first(self.minutes, minute + 1) {
            return Time::new(hour, minute, second, 0).ok();
        }
        let hour = first(self.hours, if this_hour { hour + 1 } else { hour })?;
        Time::new(hour, first(self.minutes, 0)?, second, 0).ok()
    }
}

/// The field of days of the month. `None`: it names none.
fn days(text: &str) -> Result<Option<Days>, CronError> {
    if Field::names_nothing(text) {
        return Ok(None);
    }
    let mut days = Days { numbers: 0, last: false };
    for part in text.split(',') {
        match part {
            "L" | "l" => days.last = true,
            part => days.numbers |= DAY.part(part)?,
        }
    }
    Ok(Some(days))
}

#[derive(Debug)]
struct Field {
    name: &'static str,
    least: u8,
    most: u8,
    /// What `*` goes up to.
    last: u8,
    /// Names of numbers, the first one for `least`.
    names: &'static [&'static str],
}

const SECOND: Field = Field { name: "second", least: 0, most: 59, last: 59, names: &[] };

const MINUTE: Field = Field { name: "minute", least: 0, most: 59, last: 59, names: &[] };

const HOUR: Field = Field { name: "hour", least: 0, most: 23, last: 23, names: &[] };

const DAY: Field = Field { name: "day of month", least: 1, most: 31, last: 31, names: &[] };

const MONTH: Field = Field {
    name: "month",
    least: 1,
    most: 12,
    last: 12,
    names: &["jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec"],
};

/// Sunday is 0 and 7.
const WEEKDAY: Field = Field {
    name: "day of week",
    least: 0,
    most: 7,
    last: 6,
    names: &["sun", "mon", "tue", "wed", "thu", "fri", "sat"],
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Weekdays {
    pub every: u64,
    /// The last one of a month.
    pub last: u64,
    /// The first of a month, the second and so on.
    pub nth: [u64; 5],
}

impl Field {
    /// Whether a field of days leaves all to the other one.
    fn names_nothing(text: &str) -> bool {
        text == "*" || text == "?"
    }

    fn set(&self, text: &str) -> Result<u64, CronError> {
        text.split(',').try_fold(0, |set, part| Ok(set | self.part(part)?))
    }

    fn part(&self, text: &str) -> Result<u64, CronError> {
        let (range, step) = match text.split_once('/') {
            Some((range, step)) => {
                let step = number(step).filter(|step| *step > 0);
                let wrong = || self.wrong(text, "has no step: expected a number above zero".to_owned());
                (range, Some(step.ok_or_else(wrong)?))
            }
            None => (text, None),
        };
        let (from, to) = match (range.split_once('-'), step) {
            _ if range == "*" => (self.least, self.last),
            (Some((from, to)), _) => self.between(from, to)?,
            (None, Some(_)) => (self.number(range)?, self.last.max(self.number(range)?)),
            (None, None) => (self.number(range)?, self.number(range)?),
        };
        if to < from {
            return Err(self.wrong(text, "ends before it begins".to_owned()));
        }
        let numbers = (from..=to).step_by(usize::from(step.unwrap_or(1)));
        Ok(numbers.fold(0, |set, number| set | (1_u64 << number)))
    }

    fn number(&self, text: &str) -> Result<u8, CronError> {
        let is_named = |name: &&str| name.eq_ignore_ascii_case(text);
        let named = (self.least..).zip(self.names).find(|(_, name)| is_named(name)).map(|(number, _)| number);
        let found = named.or_else(|| number(text)).filter(|number| (self.least..=self.most).contains(number));
        found.ok_or_else(|| {
            let name = self.names.get(1).filter(|_| number(text).is_none());
            let names = name.map(|name| format!(", nor a name like {name}")).unwrap_or_default();
            self.wrong(text, format!("is not from {} to {}{names}", self.least, self.most))
        })
    }

    /// A range, where Sunday comes after Saturday.
    fn between(&self, from: &str, to: &str) -> Result<(u8, u8), CronError> {
        let (from, to) = (self.number(from)?, self.number(to)?);
        let is_sunday = self.most > self.last && to == 0 && from > 0;
        Ok((from, if is_sunday { self.most } else { to }))
    }

    fn wrong(&self, value: &str, reason: String) -> CronError {
        CronError::Field { field: self.name, value: value.to_owned(), reason }
    }
}

impl Weekdays {
    /// The field of days of the week. `None`: it names none.
    fn parse(text: &str) -> Result<Option<Self>, CronError> {
        if Field::names_nothing(text) {
            return Ok(None);
        }
        let mut days = Self { every: 0, last: 0, nth: [0; 5] };
        for part in text.split(',') {
            if part.eq_ignore_ascii_case("l") {
                let reason = "names no day: the last friday of a month is 5L".to_owned();
                return Err(WEEKDAY.wrong(part, reason));
            } else if let Some((day, which)) = part.split_once('#') {
                let wrong = || WEEKDAY.wrong(part, "is not the first to the fifth of a month".to_owned());
                let which = number(which).and_then(|which| which.checked_sub(1)).map(usize::from);
                let nth = which.and_then(|which| days.nth.get_mut(which)).ok_or_else(wrong)?;
                *nth |= once(1_u64 << WEEKDAY.number(day)?);
            } else if let Some(day) = part.strip_suffix(['L', 'l']) {
                days.last |= once(1_u64 << WEEKDAY.number(day)?);
            } else {
                days.every |= once(WEEKDAY.part(part)?);
            }
        }
        Ok(Some(days))
    }

    fn has(self, date: Date) -> bool {
        let weekday = date.weekday().to_sunday_zero_offset();
        let is_in = |set: u64| first(set, weekday) == Some(weekday);
        let which = usize::try_from((date.day() - 1) / 7).unwrap_or_default();
        is_in(self.every)
            || (date.day() + 7 > date.days_in_month() && is_in(self.last))
            || self.nth.get(which).is_some_and(|set| is_in(*set))
    }
}

/// Sunday as 0 only.
fn once(days: u64) -> u64 {
    (days | (days >> 7)) & 0x7f
}

/// The first number of a set that is not below `from`, which is from 0 to 62.
fn first(set: u64, from: i8) -> Option<i8> {
    let from = u32::try_from(from).ok()?;
    let rest = set.checked_shr(from)?;
    if rest == 0 { None } else { i8::try_from(rest.trailing_zeros() + from).ok() }
}

fn numbers(set: u64) -> Vec<u8> {
    (0..64).filter(|number| set & (1 << number) != 0).collect()
}

fn number(text: &str) -> Option<u8> {
    // A sign is not part of it.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

#[cfg(test)]
mod tests {
    use jiff::ToSpan;
    use jiff::civil::date;
    use proptest::prelude::*;

    use super::*;

    impl CronExpr {
        /// Whether it means this time, of whole seconds.
        fn is(&self, at: DateTime) -> bool {
            let has = |set: u64, number: i8| first(set, number) == Some(number);
            self.is_day(at.date())
                && has(self.hours, at.hour())
                && has(self.minutes, at.minute())
                && has(self.seconds, at.second())
        }
    }

    fn next(expression: &str, from: &str) -> String {
        let expression = CronExpr::parse(expression).unwrap();
        let from: DateTime = from.parse().unwrap();
        expression.next_from(from, date(2_500, 1, 1).at(0, 0, 0, 0)).unwrap().to_string()
    }

    #[test]
    fn expressions_mean_times_on_a_clock() {
        for (expression, from, found) in [
            ("* * * * *", "2026-11-22T10:11:12", "2026-11-22T10:12:00"),
            ("* * * * * *", "2026-11-22T10:11:12", "2026-11-22T10:11:12"),
            ("*/20 * * * * *", "2026-11-22T10:59:41", "2026-11-22T11:00:00"),
            ("30 4 * * *", "2026-11-22T04:30:01", "2026-11-23T04:30:00"),
            ("0 8-18/5 * * 1-5", "2026-11-20T18:00:01", "2026-11-23T08:00:00"),
            ("5/20 0 * * *", "2026-11-22T00:06:00", "2026-11-22T00:25:00"),
            ("0 0 L * *", "2027-02-02T00:00:00", "2027-02-28T00:00:00"),
            ("0 0 L * *", "2028-02-02T00:00:00", "2028-02-29T00:00:00"),
            ("0 0 15,L 2 ?", "2027-02-16T00:00:00", "2027-02-28T00:00:00"),
            ("0 0 ? * 5L", "2026-11-01T00:00:00", "2026-11-27T00:00:00"),
            ("0 0 * * FRIL", "2026-11-28T00:00:00", "2026-12-25T00:00:00"),
            ("0 0 * * 2#1", "2026-11-04T00:00:00", "2026-12-01T00:00:00"),
            ("0 0 * * sun#5", "2026-09-01T00:00:00", "2026-11-29T00:00:00"),
            ("0 0 13 * 5", "2026-11-01T00:00:00", "2026-11-06T00:00:00"),
            ("0 0 13 * 5", "2026-11-07T00:00:00", "2026-11-13T00:00:00"),
            ("0 0 29 2 *", "2096-03-01T00:00:00", "2104-02-29T00:00:00"),
            ("0 0 * * sat-sun", "2026-11-23T00:00:00", "2026-11-28T00:00:00"),
            ("0 0 * * 7", "2026-11-23T00:00:00", "2026-11-29T00:00:00"),
            ("0 0 * jan,Jul mon", "2026-11-23T00:00:00", "2027-01-04T00:00:00"),
            ("@yearly", "2026-11-23T00:00:00", "2027-01-01T00:00:00"),
            ("@Monthly", "2026-11-23T00:00:00", "2026-12-01T00:00:00"),
            ("@weekly", "2026-11-23T00:00:00", "2026-11-29T00:00:00"),
            ("@daily", "2026-11-23T00:00:01", "2026-11-24T00:00:00"),
            ("@hourly", "2026-11-23T00:00:01", "2026-11-23T01:00:00"),
            ("59 59 23 31 12 *", "2026-01-01T00:00:00", "2026-12-31T23:59:59"),
        ] {
            assert_eq!(next(expression, from), found, "{expression}");
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (expression, error) in [
            ("", "'' has 0 fields, a cron expression has 5, or 6 with seconds first"),
            ("* * * *", "'* * * *' has 4 fields, a cron expression has 5, or 6 with seconds first"),
            (
                "@often",
                "'@often' is no name of a cron expression: expected @yearly, @annually, @monthly, @weekly, @daily, \
                 @midnight, @hourly",
            ),
            ("60 * * * *", "the field minute: '60' is not from 0 to 59"),
            ("* 24 * * *", "the field hour: '24' is not from 0 to 23"),
            ("* * 0 * *", "the field day of month: '0' is not from 1 to 31"),
            ("* * * 13 *", "the field month: '13' is not from 1 to 12"),
            ("* * * * 8", "the field day of week: '8' is not from 0 to 7"),
            ("* * * * L", "the field day of week: 'L' names no day: the last friday of a month is 5L"),
            ("* * * * 1#6", "the field day of week: '1#6' is not the first to the fifth of a month"),
            ("* * * foo *", "the field month: 'foo' is not from 1 to 12, nor a name like feb"),
            ("5-2 * * * *", "the field minute: '5-2' ends before it begins"),
            ("*/0 * * * *", "the field minute: '*/0' has no step: expected a number above zero"),
            ("1,,2 * * * *", "the field minute: '' is not from 0 to 59"),
            ("? * * * *", "the field minute: '?' is not from 0 to 59"),
            ("-1 * * * *", "the field minute: '' is not from 0 to 59"),
            ("0 0 30 2 *", "'0 0 30 2 *' never comes: no month has such a day"),
            ("0 0 31 4,6 *", "'0 0 31 4,6 *' never comes: no month has such a day"),
            ("é * * * *", "the field minute: 'é' is not from 0 to 59"),
        ] {
            assert_eq!(CronExpr::parse(expression).unwrap_err().to_string(), error, "{expression}");
        }
    }

    #[test]
    fn it_is_kept_as_it_was_written() {
        let expression = CronExpr::parse("  0  8 * *\tmon-fri ").unwrap();
        assert_eq!(expression.text(), "0 8 * * mon-fri");
        assert_eq!(CronExpr::parse(expression.text()), Ok(expression));
        assert!(CronExpr::parse("5 */1 * * *").unwrap().is_every_hour());
        assert!(!CronExpr::parse("5 */2 * * *").unwrap().is_every_hour());
    }

    /// A field with numbers up to `most`.
    fn a_field(least: u8, most: u8) -> impl Strategy<Value = String> {
        let number = least..=most;
        prop_oneof![
            3 => Just("*".to_owned()),
            2 => number.clone().prop_map(|number| number.to_string()),
            1 => (number.clone(), 1_u8..20).prop_map(|(from, step)| format!("{from}/{step}")),
            1 => (1_u8..30).prop_map(|step| format!("*/{step}")),
            1 => (number.clone(), number).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
        ]
    }

    prop_compose! {
        fn an_expression()(
            second in a_field(0, 59), minute in a_field(0, 59), hour in a_field(0, 23), day in a_field(1, 28),
            month in a_field(1, 12), weekday in a_field(0, 7),
        ) -> String {
            format!("{second} {minute} {hour} {day} {month} {weekday}")
        }
    }

    proptest! {
        #[test]
        fn no_time_is_left_out_and_none_is_wrong(text in an_expression(), start in 0_i64..1_000_000_000) {
            let expression = CronExpr::parse(&text).unwrap();
            let start = date(2_020, 1, 1).at(0, 0, 0, 0) + start.seconds();
            let found = expression.next_from(start, date(2_100, 1, 1).at(0, 0, 0, 0)).unwrap();
            prop_assert!(found >= start && expression.is(found));
            // As far as it can be looked at one by one.
            let mut at = start;
            for _ in 0..2_000 {
                prop_assert_eq!(expression.is(at), at == found, "{}", at);
                if at == found {
                    break;
                }
                at += 1.second();
            }
        }

        #[test]
        fn any_text_is_read_or_refused(text in "[-0-9*/,#?L@a-z ]{0,20}") {
            let _either = CronExpr::parse(&text);
        }
    }
}
