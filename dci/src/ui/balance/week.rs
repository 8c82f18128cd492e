//! How many tasks may run over the week: as a picture, and as a table for those who cannot see it.

use std::fmt::Write as _;

use askama::Template;
use askama::filters::HtmlSafe;
use disbatch_core::balance::plan::{Timetable, WeekMinute};

use crate::ui::parts::grouped;

/// So many minutes are one unit of the picture's width.
const MINUTES: usize = 10;

/// The picture's height, in units of its own.
const HEIGHT: usize = 100;

/// A day has so many minutes.
const DAY: usize = 24 * 60;

/// The days in the order in which weeks are shown, with the number that `max_tasks` has for each.
const DAYS: [(u8, &str); 7] = [
    (1, "Monday"),
    (2, "Tuesday"),
    (3, "Wednesday"),
    (4, "Thursday"),
    (5, "Friday"),
    (6, "Saturday"),
    (0, "Sunday"),
];

/// The picture and the table.
#[derive(Debug, Template)]
#[template(path = "balance/week.html")]
pub(super) struct Week {
    width: usize,
    height: usize,
    area: String,
    /// Where days begin.
    grid: String,
    days: [&'static str; DAYS.len()],
    most: u64,
    words: String,
    rows: Vec<Row>,
}

impl HtmlSafe for Week {}

/// A stretch of time with one limit.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    from: String,
    until: String,
    limit: u64,
}

impl Week {
    /// Those of a timetable. What is no time of the week is left out.
    pub fn of(max_tasks: &[(String, i64)]) -> Self {
        let legal = |entry: &&(String, i64)| Timetable::read(std::slice::from_ref(*entry)).is_ok();
        let entries: Vec<(String, i64)> = max_tasks.iter().filter(legal).cloned().collect();
        let stretches = stretches(&Timetable::read(&entries).unwrap_or_default());
        let most = stretches.iter().map(|(.., limit)| *limit).max().unwrap_or(0);
        let least = stretches.iter().map(|(.., limit)| *limit).min().unwrap_or(0);
        let words = match (stretches.is_empty(), least == most) {
            (true, _) => "There is no time yet from which on tasks may run.".to_owned(),
            (false, true) => format!("{} tasks may run at any time.", grouped(most)),
            (false, false) => format!("From {} to {} tasks may run.", grouped(least), grouped(most)),
        };
        Self {
            width: 7 * DAY / MINUTES,
            height: HEIGHT,
            area: area(&stretches, most),
            grid: (1..7).fold(String::new(), |mut grid, day| {
                let _infallible = write!(grid, "M{} 0V{HEIGHT}", day * DAY / MINUTES);
                grid
            }),
            days: DAYS.map(|(_, name)| name),
            most,
            words,
            rows: stretches.iter().map(|stretch| row(*stretch)).collect(),
        }
    }
}

/// Which limit holds from which minute to which, counted from the beginning of Monday.
fn stretches(times: &Timetable) -> Vec<(usize, usize, u64)> {
    let mut found: Vec<(usize, usize, u64)> = Vec::new();
    for minute in 0..7 * DAY {
        let Some(limit) = at(minute).and_then(|at| times.limit_at(at)) else { continue };
        match found.last_mut() {
            Some((_, until, known)) if *known == limit && *until == minute => *until = minute + 1,
            _ => found.push((minute, minute + 1, limit)),
        }
    }
    found
}

fn at(minute: usize) -> Option<WeekMinute> {
    let (number, _) = DAYS.get(minute / DAY)?;
    let (hour, rest) = (minute % DAY / 60, minute % 60);
    WeekMinute::new(*number, u8::try_from(hour).ok()?, u8::try_from(rest).ok()?)
}

fn area(stretches: &[(usize, usize, u64)], most: u64) -> String {
    let mut path = String::new();
    for (from, until, limit) in stretches {
        let x = |minute: usize| minute as f64 / MINUTES as f64;
        // A part of the height is left above, so that the highest has an edge.
        let height = 0.92 * HEIGHT as f64 * *limit as f64 / most.max(1) as f64;
        let _infallible = write!(
            path,
            "M{:.1} {HEIGHT}V{:.1}H{:.1}V{HEIGHT}z",
            x(*from),
            HEIGHT as f64 - height,
            x(*until)
        );
    }
    path
}

fn row((from, until, limit): (usize, usize, u64)) -> Row {
    Row { from: told(from), until: told(until), limit }
}

fn told(minute: usize) -> String {
    let day = DAYS.get(minute / DAY % 7).map_or("", |(_, name)| name);
    format!("{day} {:02}:{:02}", minute % DAY / 60, minute % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn week(entries: &[(&str, i64)]) -> Week {
        Week::of(&entries.iter().map(|(time, most)| ((*time).to_owned(), *most)).collect::<Vec<_>>())
    }

    fn rows(entries: &[(&str, i64)]) -> Vec<(String, String, u64)> {
        week(entries).rows.into_iter().map(|row| (row.from, row.until, row.limit)).collect()
    }

    #[test]
    fn one_limit_holds_until_the_next_and_over_the_end_of_the_week() {
        let told = |from: &str, until: &str, limit| (from.to_owned(), until.to_owned(), limit);
        assert_eq!(
            rows(&[("2 07:00", 5), ("5 18:30", 20)]),
            [
                told("Monday 00:00", "Tuesday 07:00", 20),
                told("Tuesday 07:00", "Friday 18:30", 5),
                told("Friday 18:30", "Monday 00:00", 20),
            ]
        );
        assert_eq!(rows(&[("* 00:00", 3)]), [told("Monday 00:00", "Monday 00:00", 3)]);
        assert_eq!(rows(&[("* 07:00", 1), ("* 19:00", 2)]).len(), 15);
        assert!(rows(&[("never", 1)]).is_empty());
    }

    #[test]
    fn the_picture_is_of_the_same() {
        let week = week(&[("1 12:00", 10), ("1 18:00", 0)]);
        assert_eq!(week.area, "M0.0 100V100.0H72.0V100zM72.0 100V8.0H108.0V100zM108.0 100V100.0H1008.0V100z");
        let html = week.render().unwrap();
        for part in
            ["viewBox=\"0 0 1008 100\"", "From 0 to 10 tasks may run.", "Monday 12:00", "<th scope=\"col\">"]
        {
            assert!(html.contains(part), "{part} is not in {html}");
        }
        let empty = Week::of(&[]).render().unwrap();
        assert!(empty.contains("There is no time yet") && !empty.contains("NaN"), "{empty}");
        assert!(!self::week(&[("* 00:00", i64::MAX)]).area.contains("inf"));
    }
}
