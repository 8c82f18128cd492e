//! What was wrong with what a plugin said, as lines for its task's standard error: neither many nor long, however much
//! it says.

/// After so many complaints the rest is only counted.
const MOST: usize = 10;

/// What is quoted may be long; a complaint has so many characters at most.
const LONGEST: usize = 300;

#[derive(Debug, Default)]
pub struct Notes {
    first: Vec<String>,
    more: usize,
}

impl Notes {
    /// Notes a complaint. Tells whether it is among the first, which are worth a word in the log too.
    pub fn add(&mut self, complaint: &str) -> bool {
        if self.first.len() == MOST {
            self.more += 1;
            return false;
        }
        let mut short: String = complaint.chars().take(LONGEST).collect();
        if short.len() < complaint.len() {
            short.push('…');
        }
        self.first.push(format!("disbatch: {short}\n"));
        true
    }

    /// The lines. `more` says what those are that were only counted.
    pub fn lines(&self, more: &str) -> impl Iterator<Item = String> {
        let rest = (self.more > 0).then(|| format!("disbatch: and {} more {more}\n", self.more));
        self.first.iter().cloned().chain(rest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neither_many_nor_long_complaints_are_kept() {
        let mut notes = Notes::default();
        assert_eq!(notes.lines("complaints").count(), 0);
        assert!(notes.add("short") && notes.add(&"é".repeat(1_000_000)));
        let kept = (2..100).filter(|number| notes.add(&number.to_string())).count();
        assert_eq!(kept, MOST - 2);
        let lines: Vec<String> = notes.lines("complaints").collect();
        assert_eq!(lines.len(), MOST + 1);
        assert_eq!((lines[0].as_str(), lines[1].chars().count()), ("disbatch: short\n", LONGEST + 12));
        assert_eq!(lines[MOST], "disbatch: and 90 more complaints\n");
    }
}
