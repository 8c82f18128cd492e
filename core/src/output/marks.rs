//! When the pieces of a task's output came: an attempt's `exit.output`. Only of attempts whose output took a while.

use std::time::Duration;

use bson::{Bson, DateTime, Document, doc};

use super::StreamName;
use crate::model::whole_number;
use crate::store::integer;

const OUTPUT: &str = "output";

/// The field of that with the time that marks count from.
const SINCE: &str = "since";

/// A stream has at most so many marks.
const MOST: usize = 64;

/// Milliseconds between two marks at first.
const GAP: u64 = 250;

/// What takes less time, in milliseconds, is not stored.
const SHORTEST: u64 = 1_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Mark {
    /// Milliseconds after the output began.
    at: u64,
    /// Its first byte in the stream.
    offset: u64,
}

/// The marks of a stream: a piece has what was written within the gap.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Marks {
    marks: Vec<Mark>,
    /// In milliseconds. It doubles when there are too many.
    gap: u64,
}

impl Default for Marks {
    fn default() -> Self {
        Self { marks: Vec::new(), gap: GAP }
    }
}

impl Marks {
    /// What comes now, so long after the output began, is at `offset`.
    pub fn note(&mut self, at: Duration, offset: u64) {
        let at = u64::try_from(at.as_millis()).unwrap_or(u64::MAX);
        if self
            .marks
            .last()
            .is_some_and(|last| at < last.at.saturating_add(self.gap) || offset <= last.offset)
        {
            return;
        }
        if self.marks.len() == MOST {
            self.marks = self.marks.iter().copied().step_by(2).collect();
            self.gap = self.gap.saturating_mul(2);
            return self.note(Duration::from_millis(at), offset);
        }
        self.marks.push(Mark { at, offset });
    }

    fn numbers(&self) -> Bson {
        self.marks.iter().flat_map(|mark| [mark.at, mark.offset]).map(integer).collect()
    }
}

/// What `exit` has of the marks of standard output and standard error, which count from `since`. `None`: all came at once.
pub fn timed(since: DateTime, [stdout, stderr]: [&Marks; 2]) -> Option<Document> {
    let times = || stdout.marks.iter().chain(&stderr.marks).map(|mark| mark.at);
    let took = times().max()? - times().min()?;
    (took >= SHORTEST).then(|| {
        let [out, err] = StreamName::ALL.map(StreamName::as_str);
        doc! { OUTPUT: { SINCE: since, out: stdout.numbers(), err: stderr.numbers() } }
    })
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Times {
    pub since: DateTime,
    /// Of each piece: milliseconds, and its first byte.
    pub pieces: Vec<[i64; 2]>,
}

impl Times {
    /// Those of a stream. `None`: they were not stored.
    pub fn read(exit: &Document, stream: StreamName) -> Option<Self> {
        let output = exit.get(OUTPUT)?.as_document()?;
        let since = *output.get(SINCE)?.as_datetime()?;
        let numbers: Vec<i64> =
            output.get(stream.as_str())?.as_array()?.iter().filter_map(whole_number).collect();
        let (pieces, _) = numbers.as_chunks();
        Some(Self { since, pieces: pieces.to_vec() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn noted(times: impl IntoIterator<Item = u64>) -> Marks {
        let mut marks = Marks::default();
        for (offset, at) in (10..).zip(times) {
            marks.note(Duration::from_millis(at), offset);
        }
        marks
    }

    #[test]
    fn what_comes_at_once_is_one_piece() {
        let pieces = |times: &[u64]| noted(times.iter().copied()).marks.len();
        assert_eq!(pieces(&[]), 0);
        assert_eq!(pieces(&[5, 6, 254]), 1);
        assert_eq!(pieces(&[5, 6, 255, 504, 505]), 3);
    }

    #[test]
    fn only_what_took_a_while_is_stored_and_read_again() {
        let since = DateTime::from_millis(1_700_000_000_000);
        let stored = |out: &[u64], err: &[u64]| {
            timed(since, [&noted(out.iter().copied()), &noted(err.iter().copied())])
        };
        for (out, err) in [(&[][..], &[][..]), (&[9_000], &[]), (&[5, 300, 1_004], &[900])] {
            assert_eq!(stored(out, err), None);
        }
        let exit = stored(&[5, 300], &[1_005]).unwrap();
        let read = |stream| Times::read(&exit, stream).unwrap();
        assert_eq!(read(StreamName::Stdout), Times { since, pieces: vec![[5, 10], [300, 11]] });
        assert_eq!(read(StreamName::Stderr), Times { since, pieces: vec![[1_005, 10]] });
        for odd in [
            doc! {},
            doc! { OUTPUT: 1 },
            doc! { OUTPUT: { SINCE: 7, "stdout": [1, 2] } },
            doc! { OUTPUT: { SINCE: since, "stdout": "x" } },
        ] {
            assert_eq!(Times::read(&odd, StreamName::Stdout), None, "{odd}");
        }
        let half = doc! { OUTPUT: { SINCE: since, "stdout": [1, 2, 3] } };
        assert_eq!(Times::read(&half, StreamName::Stdout).unwrap().pieces, [[1, 2]]);
    }

    proptest! {
        #[test]
        fn marks_grow_are_few_and_begin_with_the_first(pauses in prop::collection::vec(0..5_000_u64, 1..2_000)) {
            let times = pauses.iter().scan(0, |at, pause| { *at += pause; Some(*at) });
            let Marks { marks, gap } = noted(times);
            prop_assert!(marks.len() <= MOST);
            prop_assert_eq!(marks[0], Mark { at: pauses[0], offset: 10 });
            for pair in marks.windows(2) {
                prop_assert!(pair[0].at + gap <= pair[1].at);
                prop_assert!(pair[0].offset < pair[1].offset);
            }
        }
    }
}
