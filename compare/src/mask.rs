//! What is taken for the same in output that differs from run to run: times, the private folder, and what is asked for.

use regex::bytes::{NoExpand, Regex};

/// Times as most programs write them: ISO 8601, `date`, mail and logs, a time of day, and seconds or milliseconds since 1970 from 2017 on.
const TIMES: [&str; 4] = [
    r"\d{4}-\d{2}-\d{2}(?:[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?: ?(?:Z|UTC|[+-]\d{2}:?\d{2}))?)?",
    r"(?:(?:Mon|Tue|Wed|Thu|Fri|Sat|Sun)\w*,? +)?(?:\d{1,2} )?(?:Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)\w* +(?:\d{1,2},? )?(?:\d{4} )?\d{2}:\d{2}:\d{2}(?: (?:AM|PM))?(?: (?:[A-Z]{2,5}|[+-]\d{4}))?(?: \d{4})?",
    r"\b\d{2}:\d{2}:\d{2}(?:[.,]\d+)?\b",
    r"\b1[5-9]\d{8}(?:\d{3}|\.\d+)?\b",
];

/// What somebody asks for is no pattern.
#[derive(Debug, thiserror::Error)]
#[error("--mask {pattern} is no regular expression")]
pub struct MaskError {
    pattern: String,
    #[source]
    why: regex::Error,
}

/// Patterns, each with what stands for what they match.
#[derive(Debug, Clone)]
pub struct Masks(Vec<(Regex, &'static [u8])>);

impl Masks {
    /// Those that are asked for, which come first, private folders, whose names begin so, and times.
    pub fn new(asked: &[String], folders: &str) -> Result<Self, MaskError> {
        let regex =
            |pattern: &str| Regex::new(pattern).map_err(|why| MaskError { pattern: pattern.to_owned(), why });
        let own = |pattern: &String| Ok((regex(pattern)?, &b"<masked>"[..]));
        let mut masks = asked.iter().map(own).collect::<Result<Vec<_>, _>>()?;
        let private = format!(r"(?:/[^\s/]+)*/{}-[0-9A-Za-z]+", regex::escape(folders));
        masks.push((regex(&private)?, b"<folder>"));
        for time in TIMES {
            masks.push((regex(time)?, b"<time>"));
        }
        Ok(Self(masks))
    }

    /// The same without what differs from run to run.
    pub fn apply(&self, bytes: &[u8]) -> Vec<u8> {
        self.0.iter().fold(bytes.to_vec(), |bytes, (regex, shown)| {
            regex.replace_all(&bytes, NoExpand(shown)).into_owned()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_the_same_and_all_else_is_not() {
        let masks = Masks::new(&["id=[0-9]+".to_owned()], "disbatch-5f").unwrap();
        let mask = |text: &str| String::from_utf8(masks.apply(text.as_bytes())).unwrap();
        for time in [
            "2026-11-26T10:00:00Z",
            "2026-11-26 10:00:00.123456",
            "2026-11-26 10:00:00 +0100",
            "2026-11-26",
            "10:00:00,5",
            "Thu Nov 26 10:00:00 UTC 2026",
            "Thu, 26 Nov 2026 10:00:00 +0000",
            "Nov 26 10:00:00",
            "1795687200",
            "1795687200.25",
            "1795687200123",
        ] {
            assert_eq!(mask(&format!("at {time} x")), "at <time> x", "{time}");
        }
        for other in ["10:00", "1234567890", "17956872001", "26 files", "May the", "v2026-11"] {
            assert_eq!(mask(other), other);
        }
        assert_eq!(
            mask("id=7 in /tmp/disbatch-5f-Ab3/x, not /tmp/disbatch-5e-Ab3"),
            "<masked> in <folder>/x, not /tmp/disbatch-5e-Ab3"
        );
        assert!(
            Masks::new(&["(".to_owned()], "x").unwrap_err().to_string().contains("--mask ( is no regular")
        );
    }
}
