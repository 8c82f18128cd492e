//! The header `Range` of HTTP (RFC 9110, 14.2), as far as it asks for one range of bytes.

use std::ops::Range;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Asked {
    /// From a byte to a byte, or to the end.
    From(u64, Option<u64>),
    /// The last so many bytes.
    Last(u64),
}

impl Asked {
    /// Reads the header. `None`: it asks for something else, or makes no sense, and is to be ignored.
    pub fn parse(header: &str) -> Option<Self> {
        let (unit, ranges) = header.split_once('=')?;
        if !unit.trim().eq_ignore_ascii_case("bytes") {
            return None;
        }
        let (first, last) = ranges.trim().split_once('-')?;
        match (number(first), number(last)) {
            (Some(first), Some(last)) => (first <= last).then_some(Self::From(first, Some(last))),
            (Some(first), None) if last.is_empty() => Some(Self::From(first, None)),
            (None, Some(last)) if first.is_empty() => Some(Self::Last(last)),
            _ => None, // Several ranges, or no numbers.
        }
    }

    /// The first stretch of what there is that is asked for. `None`: there is nothing of it.
    pub fn within(self, extent: &[Range<u64>]) -> Option<Range<u64>> {
        let end = extent.last().map_or(0, |last| last.end);
        let wanted = match self {
            Self::From(first, Some(last)) => first..last.saturating_add(1),
            Self::From(first, None) => first..u64::MAX,
            Self::Last(length) => end.saturating_sub(length)..end,
        };
        let common = |there: &Range<u64>| there.start.max(wanted.start)..there.end.min(wanted.end);
        extent.iter().map(common).find(|common| !common.is_empty())
    }
}

/// Digits only; too many of them are beyond any end.
fn number(text: &str) -> Option<u64> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    digits.then(|| text.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_range_of_bytes_is_understood() {
        assert_eq!(Asked::parse("bytes=0-99"), Some(Asked::From(0, Some(99))));
        assert_eq!(Asked::parse("Bytes=7-"), Some(Asked::From(7, None)));
        assert_eq!(Asked::parse("bytes=-5"), Some(Asked::Last(5)));
        let endless = "99999999999999999999999";
        assert_eq!(Asked::parse(&format!("bytes=1-{endless}")), Some(Asked::From(1, Some(u64::MAX))));
        for ignored in [
            "",
            "bytes",
            "bytes=",
            "bytes=-",
            "lines=1-2",
            "bytes=5-2",
            "bytes=0-1,3-4",
            "bytes=a-b",
            "bytes=+1-2",
        ] {
            assert_eq!(Asked::parse(ignored), None, "{ignored}");
        }
    }

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "an extent of one range")]
    fn ranges_are_what_there_is_of_them() {
        let whole = [0..10];
        assert_eq!(Asked::From(2, Some(4)).within(&whole), Some(2..5));
        assert_eq!(Asked::From(2, Some(99)).within(&whole), Some(2..10));
        assert_eq!(Asked::From(9, None).within(&whole), Some(9..10));
        assert_eq!(Asked::From(10, None).within(&whole), None);
        assert_eq!(Asked::Last(3).within(&whole), Some(7..10));
        assert_eq!(Asked::Last(99).within(&whole), Some(0..10));
        assert_eq!(Asked::Last(0).within(&whole), None);
        assert_eq!(Asked::From(0, Some(u64::MAX)).within(&whole), Some(0..10));
        assert_eq!(Asked::From(0, None).within(&[]), None);
        let parts = [5..8, 12..20];
        assert_eq!(Asked::From(0, Some(99)).within(&parts), Some(5..8), "one stretch, without the gap");
        assert_eq!(Asked::From(9, Some(13)).within(&parts), Some(12..14));
        assert_eq!(Asked::Last(3).within(&parts), Some(17..20));
    }
}
