//! One field of a cron expression: a set of numbers.

use jiff::civil::Date;

use super::CronError;

/// What a field may have.
#[derive(Debug)]
pub(super) struct Field {
    name: &'static str,
    least: u8,
    most: u8,
    /// What `*` goes up to.
    last: u8,
    /// Names of numbers, the first one for `least`.
    names: &'static [&'static str],
}

pub(super) const SECOND: Field = Field { name: "second", least: 0, most: 59, last: 59, names: &[] };
pub(super) const MINUTE: Field = Field { name: "minute", least: 0, most: 59, last: 59, names: &[] };
pub(super) const HOUR: Field = Field { name: "hour", least: 0, most: 23, last: 23, names: &[] };
pub(super) const DAY: Field = Field { name: "day of month", least: 1, most: 31, last: 31, names: &[] };
pub(super) const MONTH: Field = Field {
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

/// Days of the week.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Weekdays {
    /// Each of them.
    pub every: u64,
    /// The last one of a month.
    pub last: u64,
    /// The first of a month, the second and so on.
    pub nth: [u64; 5],
}

impl Field {
    /// Whether a field of days leaves all to the other one.
    pub(super) fn names_nothing(text: &str) -> bool {
        text == "*" || text == "?"
    }

    /// What the whole field means.
    pub(super) fn set(&self, text: &str) -> Result<u64, CronError> {
        text.split(',').try_fold(0, |set, part| Ok(set | self.part(part)?))
    }

    /// What a part of a list means.
    pub(super) fn part(&self, text: &str) -> Result<u64, CronError> {
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

    /// A number, or a name of one.
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
    pub(super) fn parse(text: &str) -> Result<Option<Self>, CronError> {
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

    /// Whether a day is one of them.
    pub(super) fn has(self, date: Date) -> bool {
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
pub(super) fn first(set: u64, from: i8) -> Option<i8> {
    let from = u32::try_from(from).ok()?;
    let rest = set.checked_shr(from)?;
    if rest == 0 { None } else { i8::try_from(rest.trailing_zeros() + from).ok() }
}

/// The numbers of a set, in order.
pub(super) fn numbers(set: u64) -> Vec<u8> {
    (0..64).filter(|number| set & (1 << number) != 0).collect()
}

fn number(text: &str) -> Option<u8> {
    // A sign is not part of it.
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}
