//! What an expression means, in words.

use jiff::civil::Date;

use super::{CronExpr, Days, EVERY_HOUR, Weekdays, numbers};
use crate::text::list;

const WHICH: [&str; 5] = ["first", "second", "third", "fourth", "fifth"];

/// All minutes of an hour, and all seconds of a minute.
const SIXTY: u64 = (1 << 60) - 1;

const EVERY_MONTH: u64 = 0x1ffe;

/// A list of more is no easier to read than the expression.
const MOST: usize = 6;

impl CronExpr {
    /// What it means: `At 03:30, Monday to Friday`. `None`: words would be no easier to read.
    pub fn words(&self) -> Option<String> {
        let mut words = self.times()?;
        let mut days = Vec::new();
        if let Some(named) = self.days {
            days.push(of_month(named)?);
        }
        if let Some(named) = self.weekdays {
            days.push(of_week(named)?);
        }
        match days.join(" or ") {
            // What comes more than once a day comes each day.
            none if none.is_empty() && words.starts_with("At ") => words.push_str(" every day"),
            none if none.is_empty() => {}
            days => words.push_str(&format!(", {days}")),
        }
        if self.months != EVERY_MONTH {
            words.push_str(&format!(", in {}", ranges(self.months, month)?));
        }
        Some(words)
    }

    fn times(&self) -> Option<String> {
        let (minutes, hours) = (numbers(self.minutes), numbers(self.hours));
        if self.seconds != 1 {
            let always = self.minutes == SIXTY && self.hours == EVERY_HOUR;
            return step(&numbers(self.seconds), 60).filter(|_| always).map(|step| every(step, "second"));
        }
        let pairs: Vec<String> = hours
            .iter()
            .flat_map(|hour| minutes.iter().map(move |minute| format!("{hour:02}:{minute:02}")))
            .take(MOST)
            .collect();
        let by_step = step(&minutes, 60);
        if self.hours == EVERY_HOUR {
            return Some(match (by_step, minutes.as_slice()) {
                (Some(step), _) => every(step, "minute"),
                (None, [0]) => "Every hour".to_owned(),
                (None, [minute]) => format!("Every hour at minute {minute}"),
                (None, _) => format!("Every hour at the minutes {}", ranges(self.minutes, |_| None)?),
            });
        }
        let count = minutes.len().saturating_mul(hours.len());
        if count <= 4 {
            return Some(format!("At {}", list(&pairs)));
        }
        let (first, last) = (hours.first()?, hours.last()?);
        let is_range = usize::from(last - first) + 1 == hours.len();
        let (begin, end) = (minutes.first()?, minutes.last()?);
        let within = format!("from {first:02}:{begin:02} to {last:02}:{end:02}");
        match (by_step, minutes.as_slice()) {
            (Some(step), _) if is_range => Some(format!("{} {within}", every(step, "minute"))),
            (None, [_]) if is_range => Some(format!("Every hour {within}")),
            (None, [minute]) => {
                let at = if *minute == 0 { String::new() } else { format!(" at minute {minute}") };
                step(&hours, 24).map(|step| format!("{}{at}", every(step, "hour")))
            }
            _ => None,
        }
    }
}

/// By how much numbers from 0 on go up, if they are all such ones below `end`.
fn step(numbers: &[u8], end: u8) -> Option<u8> {
    let &[0, step, ..] = numbers else { return None };
    let all = (0..end).step_by(usize::from(step));
    (end.is_multiple_of(step) && all.eq(numbers.iter().copied())).then_some(step)
}

fn every(step: u8, what: &str) -> String {
    if step == 1 { format!("Every {what}") } else { format!("Every {step} {what}s") }
}

fn of_month(days: Days) -> Option<String> {
    let mut words = Vec::new();
    if days.numbers != 0 {
        let day = if days.numbers.is_power_of_two() { "day" } else { "days" };
        words.push(format!("on {day} {} of the month", ranges(days.numbers, |_| None)?));
    }
    if days.last {
        words.push("on the last day of the month".to_owned());
    }
    Some(words.join(" or "))
}

fn of_week(days: Weekdays) -> Option<String> {
    let mut words = Vec::new();
    if days.every != 0 {
        // A week begins with Monday.
        let every = (days.every & !1) | ((days.every & 1) << 7);
        words.push(ranges(every, weekday)?);
    }
    let which = WHICH.into_iter().zip(days.nth).chain([("last", days.last)]);
    for (which, days) in which.filter(|(_, days)| *days != 0) {
        let days: Vec<String> = numbers(days).into_iter().filter_map(weekday).collect();
        words.push(format!("the {which} {} of the month", list(&days)));
    }
    Some(words.join(" or "))
}

/// The name of a day, of which Sunday is 0 and 7.
fn weekday(day: u8) -> Option<String> {
    // The second of January 2000 was a Sunday.
    Some(Date::new(2000, 1, i8::try_from(day).ok()? + 2).ok()?.strftime("%A").to_string())
}

fn month(month: u8) -> Option<String> {
    Some(Date::new(2000, i8::try_from(month).ok()?, 1).ok()?.strftime("%B").to_string())
}

/// Numbers in words, three and more in a row from the first to the last. Those without a name are numbers.
fn ranges(set: u64, name: fn(u8) -> Option<String>) -> Option<String> {
    let name = |number: u8| name(number).unwrap_or_else(|| number.to_string());
    let mut runs: Vec<(u8, u8)> = Vec::new();
    for number in numbers(set) {
        match runs.last_mut() {
            Some((_, last)) if *last + 1 == number => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let words: Vec<String> = runs
        .into_iter()
        .flat_map(|(first, last)| match last - first {
            0 => vec![name(first)],
            1 => vec![name(first), name(last)],
            _ => vec![format!("{} to {}", name(first), name(last))],
        })
        .collect();
    (words.len() <= MOST).then(|| list(&words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_are_told_in_words_that_are_easier_to_read() {
        for (expression, words) in [
            ("30 3 * * 1-5", "At 03:30, Monday to Friday"),
            ("30 3 * * *", "At 03:30 every day"),
            ("0 3,15 * * sat,sun", "At 03:00 and 15:00, Saturday and Sunday"),
            ("* * * * *", "Every minute"),
            ("*/15 * * * *", "Every 15 minutes"),
            ("*/20 * * * * *", "Every 20 seconds"),
            ("@hourly", "Every hour"),
            ("20 * * * mon", "Every hour at minute 20, Monday"),
            ("5,35 * * * *", "Every hour at the minutes 5 and 35"),
            ("*/10 8-18 * * *", "Every 10 minutes from 08:00 to 18:50"),
            ("5 8-18 * * *", "Every hour from 08:05 to 18:05"),
            ("0 */2 * * *", "Every 2 hours"),
            ("0 9 * * 1#2,5L", "At 09:00, the second Monday of the month or the last Friday of the month"),
            ("0 0 1,15 * *", "At 00:00, on days 1 and 15 of the month"),
            ("0 0 L jan,mar-may *", "At 00:00, on the last day of the month, in January and March to May"),
            ("0 0 13 * 5", "At 00:00, on day 13 of the month or Friday"),
            ("@yearly", "At 00:00, on day 1 of the month, in January"),
        ] {
            assert_eq!(CronExpr::parse(expression).unwrap().words().as_deref(), Some(words), "{expression}");
        }
        for odd in ["1-59/7 3,9 * * *", "0 0 */2 * *", "5 4 3 * * *"] {
            assert_eq!(CronExpr::parse(odd).unwrap().words(), None, "{odd}");
        }
    }
}
