//! A group beside the others of its page, as bars.

use askama::Template;
use askama::filters::HtmlSafe;
use disbatch_core::counters::count::Amount;
use disbatch_core::fair::GroupRow;
use disbatch_core::text;

use crate::ui::parts::grouped;
use crate::ui::tally::Tally;

/// What waits and runs, beside what other groups have, and what was got, beside what it would be by weight.
#[derive(Debug, Clone, PartialEq, Template)]
#[template(path = "groups/picture.html")]
pub(super) struct Picture {
    label: String,
    waiting: String,
    running: String,
    received: String,
    due: String,
}

impl HtmlSafe for Picture {}

/// What the groups of a page have together, and the most that one of them has.
#[derive(Debug, Default)]
pub(super) struct All {
    waiting: u64,
    running: u64,
    started: u64,
    weight: u64,
    /// The largest part of what was got, or should be.
    part: f64,
}

impl All {
    pub fn of(rows: &[GroupRow]) -> Self {
        let mut all = Self {
            waiting: rows.iter().map(|row| least(row.waiting)).max().unwrap_or(0),
            running: rows.iter().map(|row| row.running).max().unwrap_or(0),
            started: rows.iter().map(|row| row.started).sum(),
            weight: rows.iter().map(|row| u64::from(row.weight)).sum(),
            part: 0.0,
        };
        let parts = rows.iter().map(|row| all.received(row).max(all.due(row)));
        all.part = parts.fold(0.0, f64::max);
        all
    }

    fn received(&self, row: &GroupRow) -> f64 {
        part(row.started, self.started)
    }

    fn due(&self, row: &GroupRow) -> f64 {
        part(u64::from(row.weight), self.weight)
    }
}

fn least(amount: Amount) -> u64 {
    let (Amount::Exactly(number) | Amount::MoreThan(number)) = amount;
    number
}

fn part(of: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { of as f64 / all as f64 }
}

impl Picture {
    pub fn of(row: &GroupRow, all: &All) -> Self {
        let (received, due) = (all.received(row), all.due(row));
        let of_part = |one: f64| if all.part > 0.0 { one / all.part } else { 0.0 };
        let width = |part: f64| format!("{:.1}", 100.0 * part);
        let percent = |part: f64| text::percent(100.0 * part, 0);
        Self {
            label: format!(
                "{} waiting, {} running; it got {} of what these groups got, and by weight it would be {}",
                Tally::new(Vec::new(), row.waiting).words(),
                grouped(row.running),
                percent(received),
                percent(due)
            ),
            waiting: width(part(least(row.waiting), all.waiting)),
            running: width(part(row.running, all.running)),
            received: width(of_part(received)),
            due: width(of_part(due)),
        }
    }
}

#[cfg(test)]
mod tests {
    use disbatch_core::fair::Why;

    use super::*;

    #[test]
    fn nothing_divides_by_nothing() {
        let none = GroupRow {
            group: "a".to_owned(),
            waiting: Amount::Exactly(0),
            running: 0,
            started: 0,
            finished: 0,
            used: f64::NAN,
            weight: 1,
            since_start: None,
            turn_in: None,
            why: Why::After(2),
        };
        let all = All::of(std::slice::from_ref(&none));
        let picture = Picture::of(&none, &all);
        assert_eq!((picture.waiting.as_str(), picture.running.as_str()), ("0.0", "0.0"));
        assert_eq!((picture.received.as_str(), picture.due.as_str()), ("0.0", "100.0"));
    }
}
