//! Differences of text: unified, as they are stored, and side by side, which is made of that.

use std::time::Duration;

use similar::{ChangeTag, TextDiff};

/// So many lines are shown around each difference.
const AROUND: usize = 3;

/// So many bytes of a difference are kept. Nobody reads more.
const LONGEST: usize = 1024 * 1024;

/// Of longer lines it is not looked for what has changed within them.
const LONGEST_LINE: usize = 1_000;

/// Lines of which less is the same are two lines, and not one that has changed.
const ALIKE: f32 = 0.4;

/// What stands for the end of a line where the other side has none.
const LINE_END: &str = "\u{21b5}";

/// Of both as text. Empty: they differ in bytes that are none. After the time `takes` it is one that is easily found, and not the smallest.
pub fn unified(was: &[u8], is: &[u8], takes: Duration) -> String {
    let [was, is] = [was, is].map(String::from_utf8_lossy);
    let difference = TextDiff::configure().timeout(takes).diff_lines(&*was, &*is);
    let text = difference.unified_diff().context_radius(AROUND).header("recorded", "replayed").to_string();
    cut(text, LONGEST)
}

/// The first lines of it, with no more than so many bytes, and how many more there are.
pub fn cut(text: String, most: usize) -> String {
    if text.len() <= most {
        return text;
    }
    let end = text.as_bytes()[..most].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let more = text[end..].lines().count();
    format!("{}[{more} more lines]\n", &text[..end])
}

/// A line in parts: whether each is what has changed.
pub type Parts = Vec<(bool, String)>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Line {
    /// Counted from 1.
    pub number: usize,
    pub parts: Parts,
    /// Whether the text ends with it, and without an end of the line.
    pub is_open: bool,
}

/// What stands beside what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Row {
    /// Both sides have it.
    Same(Line, Line),
    /// One has something else there, or nothing.
    Changed(Option<Line>, Option<Line>),
    /// What is not shown.
    Gap(String),
}

impl Row {
    /// What stands on both sides.
    pub fn sides(&self) -> [Option<&Line>; 2] {
        match self {
            Self::Same(was, is) => [Some(was), Some(is)],
            Self::Changed(was, is) => [was.as_ref(), is.as_ref()],
            Self::Gap(_) => [None, None],
        }
    }

    pub const fn is_changed(&self) -> bool {
        matches!(self, Self::Changed(..))
    }
}

/// What a unified difference says, for two columns.
pub fn rows(unified: &str) -> Vec<Row> {
    let mut rows = Vec::new();
    let (mut was, mut is): (Vec<Line>, Vec<Line>) = (Vec::new(), Vec::new());
    let mut numbers = [0, 0];
    for text in unified.lines().skip_while(|line| !line.starts_with("@@")) {
        let line = |number: &mut usize| {
            *number += 1;
            Line { number: *number - 1, parts: vec![(false, text[1..].to_owned())], is_open: false }
        };
        match text.as_bytes().first() {
            Some(b'-') => was.push(line(&mut numbers[0])),
            Some(b'+') => is.push(line(&mut numbers[1])),
            Some(b' ') => {
                pair(&mut rows, &mut was, &mut is);
                let [was, is] = &mut numbers;
                rows.push(Row::Same(line(was), line(is)));
            }
            Some(b'\\') => {
                if let Some(last) = is.last_mut().or(was.last_mut()) {
                    last.is_open = true;
                }
            }
            Some(b'@') => {
                pair(&mut rows, &mut was, &mut is);
                numbers = starts(text).unwrap_or(numbers);
                rows.push(Row::Gap(text.to_owned()));
            }
            _ => rows.push(Row::Gap(text.to_owned())), // So many more lines.
        }
    }
    pair(&mut rows, &mut was, &mut is);
    rows
}

/// With which lines a part begins: `@@ -1,7 +1,6 @@`.
fn starts(header: &str) -> Option<[usize; 2]> {
    let mut words = header.split(' ').skip(1);
    let mut number = |sign: char| {
        let word = words.next()?.strip_prefix(sign)?;
        word.split(',').next()?.parse().ok()
    };
    Some([number('-')?, number('+')?])
}

/// Puts what was instead of what beside each other.
fn pair(rows: &mut Vec<Row>, was: &mut Vec<Line>, is: &mut Vec<Line>) {
    let (mut was, mut is) = (was.drain(..), is.drain(..));
    loop {
        match (was.next(), is.next()) {
            (None, None) => return,
            (Some(mut was), Some(mut is)) => {
                mark(&mut was, &mut is);
                rows.push(Row::Changed(Some(was), Some(is)));
            }
            (was, is) => rows.push(Row::Changed(was, is)),
        }
    }
}

/// Says what has changed within a line.
fn mark(was: &mut Line, is: &mut Line) {
    let ([(_, old)], [(_, new)]) = (&was.parts[..], &is.parts[..]) else { return };
    if old == new {
        for line in [was, is] {
            line.parts.extend((!line.is_open).then(|| (true, LINE_END.to_owned())));
        }
        return;
    }
    if let Some(parts) = changed_words(old, new) {
        (was.parts, is.parts) = parts;
    }
}

/// Both in parts, as a line has them. `None`: they are two lines.
fn changed_words(old: &str, new: &str) -> Option<(Parts, Parts)> {
    if old.len().max(new.len()) > LONGEST_LINE {
        return None;
    }
    let words = TextDiff::from_words(old, new);
    let side = |other: ChangeTag| -> Parts {
        let mut parts = Parts::new();
        for change in words.iter_all_changes().filter(|change| change.tag() != other) {
            let is_changed = change.tag() != ChangeTag::Equal;
            match parts.last_mut() {
                Some((same, text)) if *same == is_changed => text.push_str(change.value()),
                _ => parts.push((is_changed, change.value().to_owned())), // The first of its kind.
            }
        }
        parts
    };
    (words.ratio() >= ALIKE).then(|| (side(ChangeTag::Insert), side(ChangeTag::Delete)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unified(was: &[u8], is: &[u8]) -> String {
        super::unified(was, is, Duration::from_secs(5))
    }

    #[test]
    fn within_a_line_it_is_told_what_has_changed() {
        let rows = rows(&unified(b"b is 2\n", b"b is 3\n"));
        let Row::Changed(Some(was), Some(is)) = &rows[1] else { panic!("{rows:?}") };
        assert_eq!(was.parts.last(), Some(&(true, "2".to_owned())));
        assert_eq!(is.parts.last(), Some(&(true, "3".to_owned())));
    }

    #[test]
    fn a_line_without_an_end_differs_from_one_that_has_one() {
        for (was, is) in [("a", "a\n"), ("a\n", "a")] {
            let rows = rows(&unified(was.as_bytes(), is.as_bytes()));
            let Row::Changed(Some(old), Some(new)) = &rows[1] else { panic!("{rows:?}") };
            let ends = [old, new].map(|line| line.parts.contains(&(true, LINE_END.to_owned())));
            assert_eq!(ends, [was.ends_with('\n'), is.ends_with('\n')], "{rows:?}");
        }
    }

    #[test]
    fn of_much_the_first_lines_are_kept() {
        assert_eq!(cut("ab\ncd\nef\n".to_owned(), 5), "ab\n[2 more lines]\n");
        assert_eq!(cut("ab\n".to_owned(), 3), "ab\n");
        assert_eq!(unified(b"\xff", b"\xfe"), "");
    }
}
