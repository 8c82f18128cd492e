//! How far an array is, as a strip of marks.

use disbatch_values::status::Status;
use disbatch_wire::arrays::Array;

use crate::status;

/// The strip is so wide, in marks.
const WIDTH: usize = 40;

/// What becomes of an element, in the order of the strip.
const KINDS: [Kind; 5] = [Kind::Succeeded, Kind::Ended, Kind::Runs, Kind::Waits, Kind::Missing];

/// How far an element is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Succeeded,
    /// In another way.
    Ended,
    Runs,
    Waits,
    /// It was not created yet, or is gone.
    Missing,
}

impl Kind {
    fn of(code: i64) -> Self {
        let status = Status::from_code(code);
        match status {
            Status::Succeeded => Self::Succeeded,
            Status::Failed | Status::Cancelled | Status::Terminated | Status::Orphaned => Self::Ended,
            Status::Claimed | Status::Running => Self::Runs,
            Status::Deferred | Status::Blocked | Status::Queued => Self::Waits,
            Status::Other(_) if status.has_ended() => Self::Ended,
            Status::Other(_) => Self::Waits,
        }
    }

    /// Its mark in ASCII, or where more can be shown.
    const fn mark(self, in_unicode: bool) -> &'static str {
        match (self, in_unicode) {
            (Self::Succeeded, true) => "█",
            (Self::Succeeded, false) => "#",
            (Self::Ended, true) => "✗",
            (Self::Ended, false) => "x",
            (Self::Runs, true) => "▸",
            (Self::Runs, false) => ">",
            (Self::Waits, true) => "·",
            (Self::Waits, false) => ".",
            (Self::Missing, _) => " ",
        }
    }
}

/// What is known of the elements of an array: how many are in which status.
#[derive(Debug)]
pub struct Strip {
    counts: Vec<(i64, usize)>,
    /// How many elements the array has.
    count: usize,
}

impl Strip {
    /// The strip of an array; none where its elements are too many to be counted.
    pub fn of(array: &Array) -> Option<Self> {
        let counts = array.counts.as_ref()?.iter();
        let counts = counts.map(|one| (one.status, usize::try_from(one.tasks).unwrap_or(0))).collect();
        Some(Self { counts, count: usize::try_from(array.count).unwrap_or(0) })
    }

    /// The strip. What there is of a kind has one mark at least.
    pub fn draw(&self, in_unicode: bool) -> String {
        let marks = spread(&KINDS.map(|kind| self.tasks(kind)));
        let marks = KINDS.iter().zip(marks).map(|(kind, marks)| kind.mark(in_unicode).repeat(marks));
        format!("[{}]", marks.collect::<String>())
    }

    /// Which mark stands for what, and how much of it there is, a line each.
    pub fn legend(&self, in_unicode: bool) -> Vec<String> {
        let of_kind = |kind: Kind| {
            let counts =
                self.counts.iter().filter(move |(code, tasks)| Kind::of(*code) == kind && *tasks > 0);
            counts.map(move |(code, tasks)| (kind, *tasks, status::word(*code)))
        };
        let there = KINDS.into_iter().flat_map(of_kind);
        let missing = self.tasks(Kind::Missing);
        let missing = (missing > 0).then(|| (Kind::Missing, missing, "not there".to_owned()));
        let lines = there.chain(missing);
        lines.map(|(kind, tasks, word)| format!("{} {tasks} {word}", kind.mark(in_unicode))).collect()
    }

    fn tasks(&self, kind: Kind) -> usize {
        if kind == Kind::Missing {
            let there: usize = self.counts.iter().map(|(_, tasks)| tasks).sum();
            return self.count.saturating_sub(there);
        }
        self.counts.iter().filter(|(code, _)| Kind::of(*code) == kind).map(|(_, tasks)| tasks).sum()
    }
}

/// How many of the marks each has. The largest one gives what is missing because small ones have a whole mark.
fn spread(tasks: &[usize; KINDS.len()]) -> [usize; KINDS.len()] {
    let total: usize = tasks.iter().sum();
    let share = |tasks: usize| (tasks.saturating_mul(WIDTH) / total.max(1)).max(usize::from(tasks > 0));
    let mut marks = tasks.map(share);
    let drawn: usize = marks.iter().sum();
    if let Some(largest) = marks.iter_mut().max().filter(|_| total > 0) {
        *largest = (*largest + WIDTH).saturating_sub(drawn);
    }
    marks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strip(counts: &[(i64, usize)], count: usize) -> Strip {
        Strip { counts: counts.to_vec(), count }
    }

    #[test]
    fn every_kind_has_its_part_of_the_strip() {
        let strip = strip(&[(-5, 5), (-4, 20), (-1, 1), (0, 4), (1, 50), (2, 10)], 100);
        assert_eq!(strip.draw(false), "[####################xxxxxx>>........    ]");
        assert_eq!(strip.draw(true).chars().count(), WIDTH + 2);
        let expected = [
            "# 50 succeeded",
            "x 5 cancelled",
            "x 10 failed",
            "> 1 claimed",
            "> 4 running",
            ". 20 blocked",
            "  10 not there",
        ];
        assert_eq!(strip.legend(false), expected);
        assert_eq!(strip.legend(true)[1], "✗ 5 cancelled");
    }

    #[test]
    fn one_of_many_is_seen() {
        let all = strip(&[(-2, 1), (0, 1), (1, 99_996), (2, 1)], 100_000);
        assert_eq!(all.draw(false), format!("[{}x>. ]", "#".repeat(WIDTH - 4)));
        assert_eq!(strip(&[(1, 3)], 3).draw(false), format!("[{}]", "#".repeat(WIDTH)));
        assert_eq!(strip(&[], 5).draw(false), format!("[{}]", " ".repeat(WIDTH)));
    }

    #[test]
    fn what_is_not_counted_is_not_drawn() {
        assert!(Strip::of(&Array { count: 5, ..Array::default() }).is_none());
        assert_eq!(strip(&[], 0).draw(false), "[]");
    }
}
